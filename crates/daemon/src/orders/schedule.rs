//! Which job is next, and the threads that carry jobs out.
//!
//! Invariant: at most `RUNNING_MAX` run at once, and the account with fewest of them is next.

use super::{Job, Key, Live, Orders, State, run};
use crate::warrant::now;
use model::order::{Reason, Status};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Jobs that run at once.
const RUNNING_MAX: usize = 4;
/// How long an end is kept for whoever asks.
const KEPT_SECONDS: u64 = 30 * 86_400;
/// How often the scheduler looks at its clock.
const TICK: Duration = Duration::from_millis(500);

impl Orders {
    /// Begins what is queued, from here on.
    pub fn start(self: &Arc<Orders>) -> std::io::Result<()> {
        let orders = self.clone();
        std::thread::Builder::new().name("orders".into()).spawn(move || orders.schedule()).map(drop)
    }

    fn schedule(self: Arc<Orders>) {
        let mut state = self.lock();
        while !state.is_stopping {
            self.forget_old(&mut state);
            while let Some(key) = state.next() {
                self.begin(&mut state, key);
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn begin(self: &Arc<Orders>, state: &mut State, key: Key) {
        let Some(job) = state.jobs.get_mut(&key) else { return };
        job.live = Live {
            is_running: true,
            wanted: None,
            sample: None,
            not_before: None,
            until: 0,
            ..std::mem::take(&mut job.live)
        };
        job.record.set(Status::Running, Reason::None, "");
        self.keep(&job.record);
        let (orders, record) = (self.clone(), job.record.clone());
        state.threads += 1;
        let run = move || {
            let ending = Ending { orders: &orders, key };
            run::run(&orders, key, record);
            drop(ending);
        };
        if let Err(e) = std::thread::Builder::new().name("order".into()).spawn(run) {
            warn!(error = %e, "no thread for a job that was handed in");
            state.threads -= 1;
            if let Some(job) = state.jobs.get_mut(&key) {
                job.live.is_running = false;
                job.wait(Reason::Retry, "the endpoint has no free thread", Duration::from_secs(5));
            }
        }
    }

    fn forget_old(&self, state: &mut State) {
        let now = now();
        let is_old = |job: &Job| job.record.ended.as_ref().is_some_and(|ended| ended.at + KEPT_SECONDS < now);
        state.jobs.retain(|_, job| {
            let is_over = job.record.status().is_end() && is_old(job);
            !(is_over && self.store.remove(&job.record).is_ok())
        });
    }
}

impl State {
    /// The next job to run: of the account with fewest that run, the oldest.
    fn next(&self) -> Option<Key> {
        let running = |account: &str| {
            self.jobs.values().filter(|job| job.live.is_running && job.record.account == account).count()
        };
        if self.is_stopping || self.threads >= RUNNING_MAX {
            return None;
        }
        let now = Instant::now();
        let is_due = |job: &Job| match job.record.status() {
            Status::Queued => true,
            Status::Waiting => job.live.not_before.is_some_and(|at| at <= now),
            _ => false,
        };
        let due = self.jobs.iter().filter(|(_, job)| !job.live.is_running && is_due(job));
        due.min_by_key(|(_, job)| (running(&job.record.account), job.record.created)).map(|(key, _)| *key)
    }
}

/// A thread that runs a job, which is given back also when it panics.
struct Ending<'a> {
    orders: &'a Orders,
    key: Key,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let mut state = self.orders.lock();
        state.threads -= 1;
        if let Some(job) = state.jobs.get_mut(&self.key) {
            job.live.is_running = false;
            if std::thread::panicking() {
                job.wait(Reason::Retry, "a thread of the endpoint failed; this is a bug", Duration::from_secs(600));
            }
        }
        self.orders.changed.notify_all();
    }
}
