//! Sealed small objects in memory, until a store that takes each by a request of its own has published them.
//!
//! Invariant: what all lanes hold is bounded, but never so that what would free memory waits for it.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Held by all lanes before one waits.
const HELD_BYTES_MAX: usize = 64 << 20;
/// After that it goes on: what it holds may be what another waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects by number, each with the bytes of memory that it takes.
pub struct Held<T> {
    state: Mutex<State<T>>,
    freed: Condvar,
}

struct State<T> {
    objects: HashMap<u64, (T, usize)>,
    bytes: usize,
    last: u64,
}

impl<T> Default for Held<T> {
    fn default() -> Held<T> {
        Held { state: Mutex::new(State { objects: HashMap::new(), bytes: 0, last: 0 }), freed: Condvar::new() }
    }
}

impl<T> Held<T> {
    pub fn put(&self, object: T, bytes: usize) -> u64 {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap();
        while state.bytes > HELD_BYTES_MAX && Instant::now() < until {
            state = self.freed.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
        state.last += 1;
        let number = state.last;
        state.insert(number, object, bytes);
        number
    }

    /// Puts back what was taken, as it is by then.
    pub fn put_back(&self, number: u64, object: T, bytes: usize) {
        self.state.lock().unwrap().insert(number, object, bytes);
    }

    pub fn take(&self, number: u64) -> Option<T> {
        let mut state = self.state.lock().unwrap();
        let (object, bytes) = state.objects.remove(&number)?;
        state.bytes -= bytes;
        self.freed.notify_all();
        Some(object)
    }

    /// Takes all that is left.
    pub fn take_all(&self) -> Vec<T> {
        let mut state = self.state.lock().unwrap();
        state.bytes = 0;
        self.freed.notify_all();
        state.objects.drain().map(|(_, (object, _))| object).collect()
    }
}

impl<T> State<T> {
    fn insert(&mut self, number: u64, object: T, bytes: usize) {
        self.bytes += bytes;
        self.objects.insert(number, (object, bytes));
    }
}
