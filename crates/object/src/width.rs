//! How much is under way at once: memory for large bodies. Many small requests go by `web::in_parallel`.
//!
//! Invariant: whoever waits for memory holds none that another waits for; a body that is larger than all of it goes alone.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Buffers of such a length are worth keeping: fresh memory costs as much as sending them.
const KEPT_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=16 << 20;

/// Memory for bodies under way. Clones are the same memory.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

struct Shared {
    whole: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: u64,
    /// That were used, for whoever needs one next; none once nothing is under way.
    buffers: Vec<Vec<u8>>,
}

/// Given back when it is dropped.
pub struct Permit {
    of: Permits,
    bytes: u64,
}

impl Permits {
    pub fn new(bytes: u64) -> Permits {
        let state = Mutex::new(State { free: bytes, buffers: Vec::new() });
        Permits(Arc::new(Shared { whole: bytes, state, changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    /// An empty buffer, which may have room already.
    pub fn buffer(&self) -> Vec<u8> {
        self.state().buffers.pop().unwrap_or_default()
    }

    /// Takes back a buffer whose bytes are not wanted any more.
    pub fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut state = self.state();
        let kept: usize = state.buffers.iter().map(Vec::capacity).sum();
        if KEPT_BYTES.contains(&buffer.capacity()) && (kept + buffer.capacity()) as u64 <= self.0.whole {
            state.buffers.push(buffer);
        }
    }

    /// Waits until so much is free, or all of it.
    pub fn take(&self, bytes: u64) -> Permit {
        let bytes = bytes.min(self.0.whole);
        let mut state = self.state();
        while state.free < bytes {
            state = self.0.changed.wait(state).unwrap();
        }
        state.free -= bytes;
        Permit { of: self.clone(), bytes }
    }

    /// The same without waiting, and only while half of it is free: for what may never be wanted.
    pub fn spare(&self, bytes: u64) -> Option<Permit> {
        let mut state = self.state();
        if state.free.saturating_sub(bytes) < self.0.whole / 2 {
            return None;
        }
        state.free -= bytes;
        Some(Permit { of: self.clone(), bytes })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.of.state();
        state.free += self.bytes;
        if state.free == self.of.0.whole {
            state.buffers.clear();
        }
        drop(state);
        self.of.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn buffers_are_kept_while_something_is_under_way() {
        let permits = Permits::new(4 << 20);
        let first = permits.take(1);
        (0..9).for_each(|_| permits.keep(Vec::with_capacity(1 << 20)));
        permits.keep(Vec::with_capacity(10));
        let kept: Vec<_> =
            std::iter::from_fn(|| Some(permits.buffer()).filter(|buffer| buffer.capacity() > 0)).collect();
        assert_eq!(kept.len(), 4);
        kept.into_iter().for_each(|buffer| permits.keep(buffer));
        drop(first);
        assert_eq!(permits.buffer().capacity(), 0);
    }
}
