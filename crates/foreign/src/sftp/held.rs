//! Sealed small files in memory, until they are sent, and where they lie until they are published.
//!
//! Invariant: what all lanes hold is bounded, but never so that what would free memory waits for it.

use super::packet::Attributes;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use store::Error;

/// Held by all lanes before one waits.
const HELD_BYTES_MAX: usize = 64 << 20;
/// After that it goes on: what it holds may be what another waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A sealed file: its bytes, until they lie at the server.
pub struct Small {
    pub path: Vec<u8>,
    pub mode: u32,
    pub attributes: Attributes,
    pub bytes: Vec<u8>,
    pub wants_sync: bool,
    pub is_sent: bool,
    pub is_synced: bool,
    pub failure: Option<Error>,
}

#[derive(Default)]
pub struct Held {
    state: Mutex<(HashMap<u64, Small>, usize, u64)>,
    freed: Condvar,
}

impl Held {
    pub fn put(&self, small: Small) -> u64 {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock().unwrap();
        while state.1 > HELD_BYTES_MAX && Instant::now() < until {
            state = self.freed.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
        state.2 += 1;
        let number = state.2;
        drop(state);
        self.put_back(number, small);
        number
    }

    pub fn put_back(&self, number: u64, small: Small) {
        let mut state = self.state.lock().unwrap();
        state.1 += small.bytes.len();
        state.0.insert(number, small);
    }

    pub fn take(&self, number: u64) -> Option<Small> {
        let mut state = self.state.lock().unwrap();
        let small = state.0.remove(&number)?;
        state.1 -= small.bytes.len();
        self.freed.notify_all();
        Some(small)
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.state.lock().unwrap().0.keys().copied().collect()
    }
}
