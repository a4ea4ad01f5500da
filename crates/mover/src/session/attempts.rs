//! The attempts at an endpoint's jobs: which one is the newest, and which is being opened.
//!
//! Invariant: of the attempts at one job, one at a time is being opened.
//!
//! Not here: how an older attempt gives way to a newer one (`opening`).

use super::running::Running;
use model::{JobId, Pin};
use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

/// How often an attempt that waits for another one looks whether it is still wanted.
const WAIT_INTERVAL: Duration = Duration::from_millis(100);

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

impl<'a> Opening<'a> {
    /// Waits for its turn, for as long as the storage of another attempt takes. Nothing where its session is over before.
    pub fn begin(attempts: &'a Attempts, job: (Pin, JobId), is_over: &dyn Fn() -> bool) -> Option<Opening<'a>> {
        let mut opening = attempts.opening.lock().unwrap();
        while !opening.insert(job) {
            if is_over() {
                return None;
            }
            opening = attempts.opened.wait_timeout(opening, WAIT_INTERVAL).unwrap().0;
        }
        Some(Opening { attempts, job })
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.attempts.opening.lock().unwrap().remove(&self.job);
        self.attempts.opened.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_waits_for_the_one_before_it_and_not_beyond_the_end_of_its_session() {
        let (attempts, job) = (Attempts::default(), (Pin([1; 32]), JobId([2; 16])));
        let first = Opening::begin(&attempts, job, &|| false).unwrap();
        assert!(Opening::begin(&attempts, job, &|| true).is_none());
        let (waits, is_waiting) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let note = || {
                    let _ = waits.send(());
                    false
                };
                Opening::begin(&attempts, job, &note).is_some()
            });
            is_waiting.recv().unwrap();
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(Opening::begin(&attempts, job, &|| true).is_some(), "the turn is given back");
    }
}
