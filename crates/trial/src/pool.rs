//! Runs trials side by side: they wait for disks and programs more than they compute.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Hands each item to `run` once, on `threads` threads, in order of their start.
pub fn run<T: Sync>(threads: usize, items: &[T], run: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, 64) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Relaxed)) {
                    run(item);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn every_item_is_run_once() {
        let seen = Mutex::new(Vec::new());
        run(3, &(0..50).collect::<Vec<_>>(), |item| seen.lock().unwrap().push(*item));
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
    }
}
