//! The lanes of a job, as handles: how each stands, and how it is broken off.
//!
//! Not here: what is made of it (`guarded`).

use crate::stream::{Breaker, Gauge, Pulse};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Default)]
pub struct Lanes {
    /// They are on several paths.
    are_on_paths: AtomicBool,
    /// Held for a lookup. Taken inside the book's lock, never around it.
    handles: Mutex<HashMap<u32, (Option<Gauge>, Breaker)>>,
}

impl Lanes {
    pub fn are_on_paths(&self) -> bool {
        self.are_on_paths.load(Relaxed)
    }

    pub fn use_several_paths(&self) {
        self.are_on_paths.store(true, Relaxed);
    }

    pub fn enter(&self, lane: u32, gauge: Option<Gauge>, breaker: Breaker) {
        self.handles.lock().unwrap().insert(lane, (gauge, breaker));
    }

    pub fn count(&self) -> usize {
        self.handles.lock().unwrap().len()
    }

    pub fn leave(&self, lane: u32) {
        self.handles.lock().unwrap().remove(&lane);
    }

    /// How a lane's stream stands; nothing where that cannot be told.
    pub fn pulse(&self, lane: u32) -> Option<Pulse> {
        let gauge = self.handles.lock().unwrap().get(&lane)?.0.clone()?;
        gauge()
    }

    pub fn break_off(&self, lane: u32) {
        if let Some((_, breaker)) = self.handles.lock().unwrap().get(&lane) {
            breaker();
        }
    }
}
