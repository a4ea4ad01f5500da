//! Many small requests under way at once.
//!
//! Invariant: each of them is made once, whatever threads are to be had.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Requests of one group that are under way at once.
pub const WIDTH: usize = 32;

/// Does the same to many, up to `width` at once, and returns what came of each in their order.
pub fn in_parallel<T: Sync, R: Send>(width: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
        for _ in 1..width.min(items.len()) {
            // Where no thread is to be had, fewer do it.
            let _ = std::thread::Builder::new().name("store".to_owned()).spawn_scoped(scope, run);
        }
        run();
    });
    done.into_iter().map(|one| one.into_inner().unwrap().expect("each was done")).collect()
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
}
