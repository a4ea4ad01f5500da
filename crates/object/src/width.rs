//! How much is under way at once: threads for many small requests, memory for large bodies.
//!
//! Invariant: whoever waits for memory holds none that another waits for; a body that is larger than all of it goes alone.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

/// Requests of one group that are under way at once.
pub const WIDTH: usize = 32;

/// Does the same to many, several at once, and returns what came of each in their order.
pub fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let run = || {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(at) else { return };
            *done[at].lock().unwrap() = Some(work(item));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..WIDTH.min(items.len()) {
            // Where no thread is to be had, fewer do it.
            let _ = std::thread::Builder::new().name("store".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    done.into_iter().map(|one| one.into_inner().unwrap().expect("each was done")).collect()
}

/// Memory for bodies under way. Clones are the same memory.
#[derive(Clone)]
pub struct Permits(Arc<(Mutex<u64>, Condvar, u64)>);

/// Given back when it is dropped.
pub struct Permit {
    of: Permits,
    bytes: u64,
}

impl Permits {
    pub fn new(bytes: u64) -> Permits {
        Permits(Arc::new((Mutex::new(bytes), Condvar::new(), bytes)))
    }

    /// Waits until so much is free, or all of it.
    pub fn take(&self, bytes: u64) -> Permit {
        let (free, changed, whole) = &*self.0;
        let bytes = bytes.min(*whole);
        let mut free = free.lock().unwrap();
        while *free < bytes {
            free = changed.wait(free).unwrap();
        }
        *free -= bytes;
        Permit { of: self.clone(), bytes }
    }

    /// The same without waiting, and only while half of it is free: for what may never be wanted.
    pub fn spare(&self, bytes: u64) -> Option<Permit> {
        let (free, _, whole) = &*self.0;
        let mut free = free.lock().unwrap();
        if free.saturating_sub(bytes) < whole / 2 {
            return None;
        }
        *free -= bytes;
        Some(Permit { of: self.clone(), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.of.0.0.lock().unwrap() += self.bytes;
        self.of.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_done_once_each_and_told_in_order() {
        let items: Vec<usize> = (0..1000).collect();
        let count = AtomicUsize::new(0);
        let done = in_parallel(&items, |item| {
            count.fetch_add(1, Relaxed);
            item * 2
        });
        assert_eq!(done, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(count.load(Relaxed), 1000);
    }

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let permits = Permits::new(100);
        let first = permits.take(60);
        assert!(permits.spare(10).is_none());
        let waiting = {
            let permits = permits.clone();
            std::thread::spawn(move || drop(permits.take(1000)))
        };
        drop(first);
        waiting.join().unwrap();
        assert!(permits.spare(50).is_some());
    }
}
