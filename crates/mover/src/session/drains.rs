//! What is on its way from an endpoint's buffer to its place, as a value behind locks that are held for look-ups.
//!
//! Not here: bringing it there (`draining`).

use crate::job::Ending;
use crate::receiver::ReceiveJob;
use model::{JobId, Pin};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use store::spool::Owner;

/// What waits, and how it stands.
#[derive(Default)]
pub(super) struct Drains {
    by_owner: Mutex<HashMap<Owner, Drain>>,
    /// Jobs of which a newer attempt waits for what is left of the older ones.
    awaited: Mutex<HashSet<(Pin, JobId)>>,
    pub is_stopped: AtomicBool,
}

#[derive(Default)]
pub(super) struct Drain {
    pub running: Option<Arc<ReceiveJob>>,
    pub is_running: bool,
    /// Why it did not come through the last time, and when it is tried again.
    pub stuck: Option<(String, Instant)>,
    pub tries: u32,
    /// Somebody threw it away while it was being carried on.
    pub is_dropped: bool,
}

impl Drains {
    /// Ends what is carried on; what is left stays in the buffer.
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        for drain in self.drains().values() {
            if let Some(job) = &drain.running {
                job.stop(Ending::Lost("the endpoint is shutting down".into()));
            }
        }
    }

    pub fn awaited(&self) -> MutexGuard<'_, HashSet<(Pin, JobId)>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn drains(&self) -> MutexGuard<'_, HashMap<Owner, Drain>> {
        self.by_owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
