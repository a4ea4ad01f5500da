//! Threads that make requests, kept from one group of requests to the next.
//!
//! Invariants: never more threads than the crew was made for; each task is run once, by whoever hands it in if no thread is to be had.
//! Threads without work end after a while, and with the crew.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a thread waits for work.
const IDLE: Duration = Duration::from_secs(5);

type Task = Box<dyn FnOnce() + Send>;

pub struct Crew(Arc<Shared>);

struct Shared {
    threads_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    begun: usize,
    is_over: bool,
}

/// A thread that ends, however it does.
struct Leaves<'a>(&'a Shared);

/// Items that are worked off by several threads.
struct Row<T, W> {
    items: Mutex<std::iter::Enumerate<std::vec::IntoIter<T>>>,
    work: W,
    is_over: AtomicBool,
}

impl Crew {
    pub fn new(threads_max: usize) -> Crew {
        Crew(Arc::new(Shared { threads_max, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Has a thread do this, as soon as one is free. A task waits for no other task.
    pub fn hand_in(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state();
        state.tasks.push_back(Box::new(task));
        if state.idle >= state.tasks.len() {
            drop(state);
            return self.0.changed.notify_one();
        }
        if state.threads == self.0.threads_max {
            return;
        }
        let shared = self.0.clone();
        let spawned = std::thread::Builder::new().name("store".to_owned()).spawn(move || shared.work());
        match spawned {
            Ok(_) => (state.threads, state.begun) = (state.threads + 1, state.begun + 1),
            Err(_) if state.threads > 0 => {}
            Err(_) => {
                let task = state.tasks.pop_back();
                drop(state);
                task.into_iter().for_each(|task| task());
            }
        }
    }

    /// Does the same to many, up to `width` at once, and tells what came of each as soon as it is known, in any order. No more is
    /// begun once that is answered by false.
    pub fn each<T: Send + 'static, R: Send + 'static>(
        &self,
        width: usize,
        items: Vec<T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
        told: &mut dyn FnMut(usize, R) -> bool,
    ) {
        let width = width.min(items.len());
        let row = Arc::new(Row { items: Mutex::new(items.into_iter().enumerate()), work, is_over: false.into() });
        let (tell, results) = channel();
        for _ in 0..width {
            let (row, tell) = (row.clone(), tell.clone());
            self.hand_in(move || row.run(&tell));
        }
        drop(tell);
        for (at, result) in results {
            if !told(at, result) {
                row.is_over.store(true, Relaxed);
            }
        }
    }

    /// Threads that were begun so far.
    #[cfg(test)]
    fn begun(&self) -> usize {
        self.0.state().begun
    }
}

impl<T, R, W: Fn(T) -> R> Row<T, W> {
    fn run(&self, tell: &Sender<(usize, R)>) {
        while !self.is_over.load(Relaxed) {
            let next = self.items.lock().unwrap().next();
            let Some((at, item)) = next else { return };
            let _ = tell.send((at, (self.work)(item)));
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn work(&self) {
        let leaves = Leaves(self);
        loop {
            let mut state = self.state();
            let task = loop {
                if let Some(task) = state.tasks.pop_front() {
                    break task;
                }
                if state.is_over {
                    return;
                }
                state.idle += 1;
                let (woken, waited) = self.changed.wait_timeout(state, IDLE).unwrap();
                state = woken;
                state.idle -= 1;
                if waited.timed_out() && state.tasks.is_empty() {
                    // In one step with having found nothing: no task is left to a thread that is gone.
                    state.threads -= 1;
                    return std::mem::forget(leaves);
                }
            };
            drop(state);
            task();
        }
    }
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).threads -= 1;
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn each_item_is_done_once_and_threads_are_kept() {
        let crew = Crew::new(8);
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let counted = count.clone();
            let mut sum = 0;
            crew.each(
                4,
                (0..100u64).collect(),
                move |item| {
                    counted.fetch_add(1, Relaxed);
                    item * 2
                },
                &mut |at, result| {
                    assert_eq!(at as u64 * 2, result);
                    sum += result;
                    true
                },
            );
            assert_eq!(sum, 9900);
        }
        assert_eq!(count.load(Relaxed), 5000);
        assert!(crew.begun() <= 8, "{}", crew.begun());
    }

    #[test]
    fn whoever_has_enough_is_heard() {
        let crew = Crew::new(4);
        let mut heard = 0;
        crew.each(4, vec![(); 100_000], |()| (), &mut |_, ()| {
            heard += 1;
            heard < 10
        });
        assert!((10..100_000).contains(&heard), "{heard}");
    }

    #[test]
    fn a_task_that_panics_takes_its_thread_alone() {
        let crew = Crew::new(1);
        let (tell, told) = channel();
        crew.hand_in(|| panic!("a test's own panic"));
        crew.hand_in({
            let tell = tell.clone();
            move || tell.send(()).unwrap()
        });
        // Whoever comes next finds room for a thread, and what waited is done.
        while told.recv_timeout(Duration::from_millis(1)).is_err() {
            crew.hand_in(|| {});
        }
    }
}
