//! Sealed small objects in memory, until they are published.
//!
//! Invariant: what all lanes hold is bounded, but never so that what would free memory waits for it.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Held by all lanes before one waits.
const HELD_BYTES_MAX: usize = 64 << 20;
/// After that it goes on: what it holds may be what another waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sealed objects by number.
#[derive(Default)]
pub struct Held {
    state: Mutex<(HashMap<u64, Vec<u8>>, usize, u64)>,
    freed: Condvar,
}

impl Held {
    pub fn put(&self, bytes: Vec<u8>) -> u64 {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap();
        while state.1 > HELD_BYTES_MAX && Instant::now() < until {
            state = self.freed.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
        let (held, length, next) = &mut *state;
        *next += 1;
        *length += bytes.len();
        held.insert(*next, bytes);
        *next
    }

    pub fn take(&self, number: u64) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap();
        let bytes = state.0.remove(&number)?;
        state.1 -= bytes.len();
        self.freed.notify_all();
        Some(bytes)
    }

    pub fn clear(&self) {
        let mut state = self.state.lock().unwrap();
        state.0.clear();
        state.1 = 0;
    }
}
