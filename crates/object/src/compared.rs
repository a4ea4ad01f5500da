//! Which version of an object a comparison read, so that what follows from it is done to that one alone.
//!
//! Invariant: what is forgotten is of entries that are settled.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

/// Far more than are open in a job at once.
const NOTED_MAX: usize = 1 << 18;

#[derive(Default)]
pub struct Compared(Mutex<State>);

#[derive(Default)]
struct State {
    etags: HashMap<String, String>,
    /// In their order; those that were taken among them.
    noted: VecDeque<String>,
}

impl Compared {
    pub fn note(&self, key: String, etag: &str) {
        let mut state = self.0.lock().unwrap();
        state.etags.insert(key.clone(), etag.to_owned());
        state.noted.push_back(key);
        while state.noted.len() > NOTED_MAX {
            if let Some(oldest) = state.noted.pop_front() {
                state.etags.remove(&oldest);
            }
        }
    }

    pub fn take(&self, key: &str) -> Option<String> {
        self.0.lock().unwrap().etags.remove(key)
    }
}
