//! The attempts at an endpoint's jobs: which one is the newest, and which is being opened.
//!
//! Invariant: of the attempts at one job, one at a time is being opened.
//!
//! Not here: how an older attempt gives way to a newer one (`opening`).

use super::running::Running;
use model::{JobId, Pin};
use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, Weak};
use std::time::Instant;

/// The jobs of an endpoint of which there may be several attempts.
#[derive(Default)]
pub(super) struct Attempts {
    /// Jobs that receive, by who asked and what: a newer attempt takes over from one whose client is gone.
    pub receiving: Mutex<HashMap<(Pin, JobId), Attempt>>,
    /// Jobs between the end of their older attempt and the beginning of their new one.
    opening: Mutex<HashSet<(Pin, JobId)>>,
    opened: Condvar,
}

impl Attempts {
    /// An attempt at the job holds its destination.
    pub fn is_there(&self, job: (Pin, JobId)) -> bool {
        let receiving = self.receiving.lock().unwrap();
        receiving.get(&job).is_some_and(|attempt| attempt.presence.strong_count() > 0)
    }
}

pub(super) struct Attempt {
    /// When the session came that it belongs to.
    pub arrived: Instant,
    pub running: Weak<Running>,
    pub presence: Weak<()>,
}

/// The one attempt at a job that is being opened.
pub(super) struct Opening<'a> {
    attempts: &'a Attempts,
    job: (Pin, JobId),
}

impl Opening<'_> {
    pub fn begin(attempts: &Attempts, job: (Pin, JobId)) -> Opening<'_> {
        let mut opening = attempts.opening.lock().unwrap();
        while !opening.insert(job) {
            opening = attempts.opened.wait(opening).unwrap();
        }
        Opening { attempts, job }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.attempts.opening.lock().unwrap().remove(&self.job);
        self.attempts.opened.notify_all();
    }
}
