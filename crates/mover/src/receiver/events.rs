//! What waits for the thread that decides, and what that thread and others share.
//!
//! The queue is bounded by the entries' credit, and by the job's account: what a sender says goes with what it takes.

use crate::memory::Permit;
use model::{Failure, Name};
use os::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use wire::listing::Described;
use wire::message::{DigestRecord, FailureRecord, Names, Seal};

pub enum Event {
    /// With what it takes until all of it is settled.
    Described(Vec<Described>, Arc<Permit>),
    Digests(Vec<DigestRecord>, Permit),
    Names(Names),
    /// The sender gave up an object.
    Failed(FailureRecord, Permit),
    /// An object that grew is complete at its source.
    Sealed(Seal, Permit),
    /// All of one is held here.
    Covered(u64),
    /// A window of one that is compared was digested here, and its source was not asked.
    Granted(u64),
    Finish,
}

pub struct Decider {
    events: Mutex<VecDeque<Event>>,
    arrived: Condvar,
    /// The event that was taken last is being looked at.
    is_busy: AtomicBool,
    /// What the one object is to be called; if it turns out to be a directory, the name is of its parent.
    pub rename_to: Mutex<Option<Name>>,
    /// Told to the sender at the end.
    pub directory_failures: Mutex<Vec<Failure>>,
}

impl Decider {
    pub fn new(rename_to: Option<Name>) -> Decider {
        Decider {
            events: Mutex::default(),
            arrived: Condvar::new(),
            is_busy: AtomicBool::new(false),
            rename_to: Mutex::new(rename_to),
            directory_failures: Mutex::default(),
        }
    }

    pub fn push(&self, event: Event) {
        self.events.lock().unwrap().push_back(event);
        self.arrived.notify_one();
    }

    pub fn wake(&self) {
        self.arrived.notify_one();
    }

    /// Everything that came was looked at.
    pub fn is_idle(&self) -> bool {
        self.events.lock().unwrap().is_empty() && !self.is_busy.load(Relaxed)
    }

    pub fn done(&self) {
        self.is_busy.store(false, Relaxed);
    }

    /// The next event, or nothing after `patience`.
    pub fn take(&self, patience: Duration) -> Option<Event> {
        let mut events = self.events.lock().unwrap();
        if events.is_empty() {
            events = self.arrived.wait_timeout(events, patience).unwrap().0;
        }
        let event = events.pop_front();
        self.is_busy.store(event.is_some(), Relaxed);
        event
    }
}
