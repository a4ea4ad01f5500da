//! Events: each change of a job, with a number, for whoever follows; those of before are read from the database.
//!
//! Invariant: a subscriber sees every event behind the number it named, once, in order; or hears that it missed some.

use crate::Result;
use crate::reader::Reader;
use model::{JobId, Timestamp};
use queue::Job;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events that are kept in memory for those who follow.
const RING_MAX: usize = 4096;
/// Events read from the database in one go.
const REPLAY_MAX: usize = 500;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub id: i64,
    pub job: JobId,
    pub owner: String,
    /// JSON.
    pub data: String,
}

impl Event {
    /// Of a job as it is after a change.
    pub fn of(id: i64, at: i64, job: &Job) -> Event {
        let data = json!({"id": id, "at": rfc3339(at), "event": "status", "job": job.id.to_string(), "status": job.status.word(),
            "reason": Some(job.reason.word()).filter(|word| !word.is_empty()), "text": Some(&job.text).filter(|text| !text.is_empty()),
            "attempt": job.attempt, "executor": job.executor().map(|name| name.to_string()), "code": job.code});
        Event { id, job: job.id, owner: job.facts.owner.to_string(), data: data.to_string() }
    }
}

pub fn rfc3339(unix_ms: i64) -> String {
    let nanoseconds = (unix_ms.rem_euclid(1000) * 1_000_000) as u32;
    Timestamp { seconds: unix_ms.div_euclid(1000), nanoseconds }.rfc3339()
}

/// The number after which events are wanted is none of this hub's: too old, or of a generation that is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missed {
    /// The newest there is.
    pub last: i64,
}

#[derive(Default)]
pub struct Ring {
    /// Held for a few pushes.
    state: Mutex<RingState>,
    filled: Condvar,
}

#[derive(Default)]
struct RingState {
    events: VecDeque<Arc<Event>>,
    last: i64,
    is_closed: bool,
}

impl Ring {
    pub fn starting_after(last: i64) -> Arc<Ring> {
        let ring = Ring::default();
        ring.lock().last = last;
        Arc::new(ring)
    }

    pub fn publish(&self, events: Vec<Event>) {
        let mut state = self.lock();
        for event in events {
            state.last = event.id;
            state.events.push_back(Arc::new(event));
            if state.events.len() > RING_MAX {
                state.events.pop_front();
            }
        }
        self.filled.notify_all();
    }

    pub fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
    }

    pub fn last(&self) -> i64 {
        self.lock().last
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who follows the events of an owner, or of all.
pub struct Subscription {
    ring: Arc<Ring>,
    reader: Arc<Reader>,
    owner: Option<String>,
    after: i64,
}

impl Subscription {
    pub(crate) fn new(ring: Arc<Ring>, reader: Arc<Reader>, owner: Option<String>, after: i64) -> Subscription {
        Subscription { ring, reader, owner, after }
    }

    /// The next events, waiting for one for so long. Empty when none came; nothing when the hub ends.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Vec<Arc<Event>>>> {
        let until = Instant::now() + wait;
        let mut state = self.ring.lock();
        loop {
            if state.last > self.after {
                let is_in_ring = state.events.front().is_some_and(|first| first.id <= self.after + 1);
                if !is_in_ring {
                    drop(state);
                    return self.replay().map(Some);
                }
                let found: Vec<_> = state.events.iter().filter(|event| event.id > self.after).cloned().collect();
                self.after = state.last;
                drop(state);
                let own: Vec<_> = found.into_iter().filter(|event| self.is_for(event)).collect();
                if !own.is_empty() {
                    return Ok(Some(own));
                }
                state = self.ring.lock();
                continue;
            }
            if state.is_closed {
                return Ok(None);
            }
            let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) else {
                return Ok(Some(Vec::new()));
            };
            state = self.ring.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn replay(&mut self) -> Result<Vec<Arc<Event>>> {
        let found = self.reader.events(self.after, REPLAY_MAX)?;
        match found.last() {
            Some(last) => self.after = last.id,
            // All that there was is older than what is kept.
            None => self.after = self.ring.last(),
        }
        Ok(found.into_iter().filter(|event| self.is_for(event)).map(Arc::new).collect())
    }

    fn is_for(&self, event: &Event) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner == event.owner)
    }
}
