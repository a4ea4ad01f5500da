//! Many small requests under way at once.
//!
//! Invariant: each of them is made once, whatever threads are to be had.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};

/// Requests of one group that are under way at once.
pub const WIDTH: usize = 32;

/// Does the same to many, up to `width` at once, and returns what came of each in their order.
pub fn in_parallel<T: Sync, R: Send>(width: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if items.len() <= 1 {
        return items.iter().map(work).collect();
    }
    let mut done: Vec<Option<R>> = items.iter().map(|_| None).collect();
    each_in_parallel(width, items, work, &mut |at, result| {
        done[at] = Some(result);
        true
    });
    done.into_iter().map(|one| one.expect("each was done")).collect()
}

/// The same, and tells what came of each as soon as it is known, in any order. No more is begun once that is answered by false.
pub fn each_in_parallel<T: Sync, R: Send>(
    width: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    told: &mut dyn FnMut(usize, R) -> bool,
) {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let run = |tell: Sender<(usize, R)>| {
        while !is_over.load(Relaxed) {
            let at = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(at) else { return };
            let _ = tell.send((at, work(item)));
        }
    };
    std::thread::scope(|scope| {
        let (tell, results) = channel();
        let run = &run;
        let begun = (0..width.min(items.len())).filter(|_| {
            let tell = tell.clone();
            let builder = std::thread::Builder::new().name("store".to_owned());
            builder.spawn_scoped(scope, move || run(tell)).is_ok()
        });
        // Where no thread is to be had, this one does it.
        match begun.count() {
            0 => run(tell),
            _ => drop(tell),
        }
        for (at, result) in results {
            if !told(at, result) {
                is_over.store(true, Relaxed);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_done_once_each_and_told_in_order() {
        let items: Vec<usize> = (0..1000).collect();
        let count = AtomicUsize::new(0);
        let done = in_parallel(WIDTH, &items, |item| {
            count.fetch_add(1, Relaxed);
            item * 2
        });
        assert_eq!(done, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert_eq!(count.load(Relaxed), 1000);
    }

    #[test]
    fn whoever_has_enough_is_heard() {
        let items = [(); 1000];
        let mut heard = 0;
        each_in_parallel(4, &items, |()| std::thread::sleep(std::time::Duration::from_micros(100)), &mut |_, ()| {
            heard += 1;
            heard < 10
        });
        assert!((10..900).contains(&heard), "{heard}");
    }
}
