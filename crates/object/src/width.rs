//! How much is under way at once: memory for large bodies. Many small requests go by `web::in_parallel`.
//!
//! Invariant: whoever waits for memory holds none that another waits for; a body that is larger than all of it goes alone.

use std::sync::{Arc, Condvar, Mutex};

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
