//! What changes of jobs beside their course: what is asked of an open one, and what is forgotten of old ones.
//!
//! Runs on the owner's thread. Not here: steering, and what endpoints say (`owner`).

use crate::Result;
use crate::courier::Errand;
use crate::job_file::JobFile;
use crate::order::order_id;
use crate::owner::Owner;
use crate::refusal::refused;
use crate::retention::SWEEP_PAUSE;
use crate::store::Rewritten;
use model::JobId;
use queue::Now;
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use tracing::error;

/// Between two steps of a sweep: others come first.
const STEP_PAUSE: Duration = Duration::from_secs(1);

impl Owner {
    pub fn change(&mut self, now: Now, id: JobId, changes: &Map<String, Value>, version: Option<u64>) -> Result<()> {
        if let Some(version) = version {
            self.store.check_version(id, version)?;
        }
        let stored = self.store.job(id)?.ok_or_else(|| refused(&queue::Refused::NoSuchJob))?;
        if self.queue.get(id).is_none() {
            let (status, help) = (stored.job.status, "only an open job can be changed");
            return Err(refused(&queue::Refused::WrongState { status, help }));
        }
        // What was changed since the last transaction.
        let pending = self.group.rewritten.iter().rev().find(|other| other.id == id);
        let file = pending.map_or(Ok(stored.file), |other| JobFile::from_json(&other.body))?.changed(changes)?;
        let facts = file.wish(&stored.job.facts.owner)?.facts;
        self.queue.change(now, id, facts.clone()).map_err(|e| refused(&e))?;
        let body = serde_json::to_string(&file).unwrap_or_default();
        self.group.rewritten.push(Rewritten { id, body, facts });
        Ok(())
    }

    /// What the endpoint does not hear now, because it is away, it is told when it is there again (`note`).
    pub fn set_rate(&mut self, id: JobId, attempt: u32, endpoint: &str) {
        let order = order_id(id, attempt);
        let rate = self.store.job(id).ok().flatten().map(|stored| stored.file.rate);
        let (Some(rate), Some(known)) = (rate, self.orders.get_mut(&order)) else { return };
        known.has_rate = true;
        self.courier(endpoint).send(Errand::SetRate { order, rate });
    }

    /// A bit of what is old, while nobody waits.
    pub fn forget_old(&mut self) {
        if Instant::now() < self.sweep_at {
            return;
        }
        let pause = match self.store.forget_old(&mut self.sweep, self.keep) {
            Ok(true) => SWEEP_PAUSE,
            Ok(false) => STEP_PAUSE,
            Err(e) => {
                error!(error = %e.message, "what is old cannot be forgotten");
                SWEEP_PAUSE
            }
        };
        self.sweep_at = Instant::now() + pause;
    }
}
