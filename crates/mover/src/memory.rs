//! Memory permits: the right to hold bytes, given back when the holder is dropped.
//!
//! Invariant: the sum of all permits never exceeds the limit. A permit travels inside what holds the memory. Never wait
//! for one while holding a lock.

use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<usize>,
    freed: Condvar,
}

impl Memory {
    pub fn new(limit_bytes: usize) -> Memory {
        Memory { shared: Arc::new(Shared { free: Mutex::new(limit_bytes), freed: Condvar::new() }) }
    }

    /// Waits until `bytes` are free, at most for `patience`.
    pub fn acquire(&self, bytes: usize, patience: Duration) -> Option<Permit> {
        let deadline = Instant::now() + patience;
        let mut free = self.shared.free.lock().unwrap();
        while *free < bytes {
            let left = deadline.checked_duration_since(Instant::now())?;
            free = self.shared.freed.wait_timeout(free, left).unwrap().0;
        }
        *free -= bytes;
        Some(Permit { bytes, shared: self.shared.clone() })
    }

    pub fn free_bytes(&self) -> usize {
        *self.shared.free.lock().unwrap()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new(crate::limits::MEMORY_BYTES_MAX)
    }
}

/// The right to hold `bytes`.
pub struct Permit {
    bytes: usize,
    shared: Arc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.shared.free.lock().unwrap() += self.bytes;
        self.shared.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_limit_and_come_back_on_drop() {
        let memory = Memory::new(10);
        let first = memory.acquire(6, Duration::ZERO).unwrap();
        assert!(memory.acquire(5, Duration::ZERO).is_none());
        drop(first);
        assert!(memory.acquire(10, Duration::ZERO).is_some());
        assert_eq!(memory.free_bytes(), 10);
    }
}
