//! Small objects on their way: held in memory until they are published by one request each.
//!
//! Invariant: what all lanes hold is bounded, but never so that what would free memory waits for it.

use crate::sink::Job;
use model::{Entry, FailureKind};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use store::{Error, PublishRule, Result, SinkLane, Staged};

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
    fn put(&self, bytes: Vec<u8>) -> u64 {
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

pub struct ObjectSinkLane {
    job: Arc<Job>,
    open: Option<(Vec<u8>, PublishRule)>,
}

impl ObjectSinkLane {
    pub fn new(job: Arc<Job>) -> ObjectSinkLane {
        ObjectSinkLane { job, open: None }
    }
}

impl SinkLane for ObjectSinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.may_write()?;
        self.job.key(entry)?;
        self.open = Some((Vec::with_capacity(entry.size_bytes() as usize), rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.open.as_mut().expect("write follows create").0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        let (bytes, rule) = self.open.take().expect("seal follows create");
        Ok(Staged::new(0, self.job.held.put(bytes), rule))
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(entry, staged)
    }
}

impl Job {
    pub fn publish_held(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let bytes = self.held.take(staged.number());
        let gone = || Error::of_kind(FailureKind::Other, "publish", entry.name.as_bytes(), "it is not staged");
        self.publish(entry, &self.key(entry)?, &bytes.ok_or_else(gone)?, staged.rule())
    }
}
