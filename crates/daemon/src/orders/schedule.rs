//! Which job is next, and the threads that carry jobs out.
//!
//! Invariants:
//! - It cannot stop unnoticed: what panics is told and begun again.
//! - At most `RUNNING_MAX` run at once, and the account with fewest of them is next.
//! - An account may have one more run while it has fewer than are left free: however long its jobs take, those of others begin.
//! - A job that only its client could let go on ends when that client has had no rights for `KEPT_SECONDS`.

use super::record::Ended;
use super::{Job, Key, Live, Orders, State, run};
use crate::warrant::now;
use model::order::{Reason, Status};
use model::{Exit, Pin, mutant};
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, warn};

/// Jobs that run at once: of one account, and in all.
const RUNNING_OF_ACCOUNT_MAX: usize = 16;
const RUNNING_MAX: usize = 32;
/// How long an end is kept for whoever asks.
const KEPT_SECONDS: u64 = 30 * 86_400;
const GONE: &str = "its client has had no rights at this endpoint for 30 days; what was verified is kept";
/// How often the scheduler looks at its clock.
const TICK: Duration = Duration::from_millis(500);
/// How often it looks for jobs that nobody can let go on.
const SWEEP: Duration = Duration::from_secs(3600);

impl Orders {
    /// Begins what is queued, from here on.
    pub fn start(self: &Arc<Orders>) -> std::io::Result<()> {
        let orders = self.clone();
        let run = move || {
            while catch_unwind(AssertUnwindSafe(|| orders.schedule())).is_err() {
                error!("choosing which job is next failed, and is begun again; this is a bug");
                assert!(!mutant::is_on("scheduler-may-die"), "injected: it is not begun again");
                std::thread::park_timeout(TICK);
            }
        };
        std::thread::Builder::new().name("orders".into()).spawn(run).map(drop)
    }

    fn schedule(self: &Arc<Orders>) {
        let mut swept = None::<Instant>;
        loop {
            if swept.is_none_or(|at| at.elapsed() >= SWEEP) {
                swept = Some(Instant::now());
                self.end_abandoned(Duration::from_secs(KEPT_SECONDS));
            }
            let mut state = self.lock();
            if state.is_stopping {
                return;
            }
            self.forget_old(&mut state);
            while let Some(key) = state.next() {
                self.begin(&mut state, key);
            }
            drop(self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner));
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

    pub(super) fn forget_old(&self, state: &mut State) {
        let now = now();
        let is_old =
            |job: &Job| job.record.ended.as_ref().is_some_and(|ended| now.saturating_sub(ended.at) > KEPT_SECONDS);
        state.jobs.retain(|_, job| {
            let is_over = job.record.status().is_end() && is_old(job);
            !(is_over && self.store.remove(&job.record).is_ok())
        });
    }

    /// Ends what waits for a client that does not come back: it was struck off, or its ticket is gone. Otherwise such jobs would
    /// hold their places for ever.
    pub(super) fn end_abandoned(&self, patience: Duration) {
        let Some(host) = self.host.upgrade() else { return };
        let is_left = |job: &Job| {
            let waits = match job.record.status() {
                Status::Paused => true,
                Status::Waiting => job.record.reason() == Reason::Credentials,
                _ => false,
            };
            waits && !job.live.is_running && self.store.age(&job.record).is_some_and(|age| age >= patience)
        };
        let mut gone: HashSet<Pin> =
            self.lock().jobs.iter().filter(|(_, job)| is_left(job)).map(|((owner, _), _)| *owner).collect();
        // That may take seconds for each of them, for which whoever steers a job does not wait.
        gone.retain(|owner| !host.knows(*owner));
        for ((owner, _), job) in &mut self.lock().jobs {
            if gone.contains(owner) && is_left(job) {
                job.record.ended =
                    Some(Ended { at: now(), code: Exit::Authentication as i32, text: GONE.into(), ..Ended::default() });
                job.record.set(Status::Failed, Reason::None, "");
                self.keep(&job.record);
            }
        }
    }
}

impl State {
    /// The next job to run: of the account with fewest that run, the oldest.
    pub(super) fn next(&self) -> Option<Key> {
        let free = RUNNING_MAX.saturating_sub(self.threads);
        if self.is_stopping || free == 0 {
            return None;
        }
        let mut running: HashMap<&str, usize> = HashMap::new();
        for job in self.jobs.values().filter(|job| job.live.is_running) {
            *running.entry(&job.record.account).or_default() += 1;
        }
        let running = |job: &Job| running.get(job.record.account.as_str()).copied().unwrap_or(0);
        let share = if mutant::is_on("orders-without-shares") { RUNNING_MAX } else { RUNNING_OF_ACCOUNT_MAX.min(free) };
        let now = Instant::now();
        let is_due = |job: &Job| match job.record.status() {
            Status::Queued => true,
            Status::Waiting => job.live.not_before.is_some_and(|at| at <= now),
            _ => false,
        };
        let may_run = |job: &Job| !job.live.is_running && is_due(job) && running(job) < share;
        let due = self.jobs.iter().filter(|(_, job)| may_run(job));
        due.min_by_key(|(_, job)| (running(job), job.record.created)).map(|(key, _)| *key)
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
        // Otherwise it was settled, and may already run again.
        if std::thread::panicking()
            && let Some(job) = state.jobs.get_mut(&self.key).filter(|job| job.live.is_running)
        {
            job.live.is_running = false;
            let wanted = job.live.wanted.take();
            job.wait(Reason::Retry, "a thread of the endpoint failed; this is a bug", Duration::from_secs(600));
            job.obey(wanted);
            self.orders.keep(&job.record);
        }
        self.orders.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::record::tests::record;
    use crate::orders::tests::book;
    use model::order::Steer;

    #[test]
    fn a_job_whose_thread_panics_is_what_it_was_told_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let (orders, key) = (book(&dir), record().key().unwrap());
        let after_panic = |wanted: Option<Steer>, is_running: bool| {
            let mut job = Job::new(record());
            (job.live.is_running, job.live.wanted) = (is_running, wanted);
            let mut state = orders.lock();
            state.jobs.insert(key, job);
            state.threads = 1;
            drop(state);
            let run = || {
                let _ending = Ending { orders: &orders, key };
                assert!(dir.path().join("nowhere").exists(), "injected");
            };
            assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
            assert_eq!(orders.lock().threads, 0);
            orders.lock().jobs[&key].record.status()
        };
        assert_eq!(after_panic(Some(Steer::Cancel), true), Status::Cancelled);
        assert_eq!(after_panic(Some(Steer::Pause), true), Status::Paused);
        assert_eq!(after_panic(None, true), Status::Waiting);
        assert_eq!(after_panic(None, false), Status::Queued, "it was settled");
    }
}
