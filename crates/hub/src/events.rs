//! Events: each change of a job, with a number; the newest are kept in memory for those who follow.

use model::{JobId, Timestamp};
use queue::Job;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Events that are kept in memory for those who follow.
const RING_MAX: usize = 4096;

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

/// What the ring has behind an event.
pub enum Found {
    Events(Vec<Arc<Event>>),
    Nothing,
    /// Some are only in the database.
    Older,
    Closed,
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

    /// The oldest event that is in memory, or the next one.
    pub fn first(&self) -> i64 {
        let state = self.lock();
        state.events.front().map_or(state.last + 1, |first| first.id)
    }

    /// Waits until there is an event behind one, for so long; the newest, and nothing when the hub ends.
    pub fn wait(&self, after: i64, wait: Duration) -> Option<i64> {
        let has_none = |state: &mut RingState| state.last <= after && !state.is_closed;
        let state =
            self.filled.wait_timeout_while(self.lock(), wait, has_none).unwrap_or_else(PoisonError::into_inner).0;
        (!state.is_closed).then_some(state.last)
    }

    /// The events behind one, so many at most.
    pub fn after(&self, after: i64, limit: usize) -> Found {
        let state = self.lock();
        if state.last <= after {
            return if state.is_closed { Found::Closed } else { Found::Nothing };
        }
        match state.events.front().is_some_and(|first| first.id <= after + 1) {
            true => {
                let from = state.events.partition_point(|event| event.id <= after);
                Found::Events(state.events.range(from..).take(limit).cloned().collect())
            }
            false => Found::Older,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
