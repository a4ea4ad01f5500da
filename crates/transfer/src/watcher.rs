//! Whoever looks on while a transfer runs, and what they are told.

use crate::error::Error;
use crate::route::Direction;
use model::{Change, Failure, JobId};
use mover::{Followed, Progress};
use std::sync::Arc;
use std::time::Duration;

/// Told from the transfer's own threads: what takes long here holds it up.
pub trait Watcher: Send + Sync {
    /// The way is found, and nothing has moved yet.
    fn started(&self, job: JobId, direction: Direction) {
        let _ = (job, direction);
    }

    /// An attempt begins, which counts in `progress`.
    fn attempt_started(&self, number: u32, progress: &Arc<Progress>) {
        let _ = (number, progress);
    }

    fn attempt_ended(&self) {}

    /// The attempt failed, and there will be another one: `failures` in a row were without progress.
    fn will_retry(&self, error: &Error, failures: u32, pause: Duration) {
        let _ = (error, failures, pause);
    }

    /// An object was not delivered.
    fn failed(&self, failure: &Failure) {
        let _ = failure;
    }

    /// Objects changed at the destination, or would; only where the options say that changes are told.
    fn changed(&self, changes: &[Change]) {
        let _ = changes;
    }

    /// Something became of a file that is followed.
    fn followed(&self, event: &Followed) {
        let _ = event;
    }

    /// Whoever reads what is copied has seen enough.
    fn is_enough(&self) -> bool {
        false
    }
}

/// Nobody.
pub struct Unwatched;

impl Watcher for Unwatched {}
