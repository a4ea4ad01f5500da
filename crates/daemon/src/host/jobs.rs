//! The jobs that are open: each has a record, an observer that the data path holds, and an end that the server tells.
//!
//! The data path may let go of its observer before or after the server tells the end; a record is forgotten after both.
//! Where the end never comes (the job was refused after it had been opened), the record ends some time later.

use super::record::{JobRecord, RunningJob};
use crate::history::Number;
use model::{Failure, JobId, Pin};
use mover::{Delivered, Observer};
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An end that was not told this long after the data path let go does not come any more.
const ORPHAN_AFTER: Duration = Duration::from_secs(2);

/// Client, job, direction.
pub type JobName = (Pin, JobId, u32);

#[derive(Default)]
pub struct Jobs {
    open: Arc<OpenJobs>,
}

#[derive(Default)]
struct OpenJobs {
    /// Held for look-ups only. A client may run one job twice at once: the second attempt, while the first has not
    /// noticed its end. The older attempt stands first.
    by_name: Mutex<HashMap<JobName, Vec<OpenJob>>>,
    changed: Condvar,
}

struct OpenJob {
    record: Arc<JobRecord>,
    is_ended: bool,
    /// When the data path let go of it.
    unused_since: Option<Instant>,
}

/// The data path's end of a record.
struct JobObserver {
    name: JobName,
    record: Arc<JobRecord>,
    open: Arc<OpenJobs>,
}

impl Jobs {
    /// Keeps a record, and returns what the data path tells it by.
    pub fn add(&self, name: JobName, record: Arc<JobRecord>) -> Arc<dyn Observer> {
        self.end_orphans();
        let job = OpenJob { record: record.clone(), is_ended: false, unused_since: None };
        self.open.lock().entry(name).or_default().push(job);
        Arc::new(JobObserver { name, record, open: self.open.clone() })
    }

    /// Ends the job's record by `end`; of two attempts with one name, the older one's.
    pub fn end(&self, name: JobName, end: impl FnOnce(&JobRecord)) {
        let job =
            self.open.lock().get(&name).and_then(|jobs| jobs.iter().find(|job| !job.is_ended).map(OpenJob::record));
        if let Some(record) = job {
            end(&record);
            self.open.change(name, record.number, |job| job.is_ended = true);
        }
    }

    /// The jobs that have not ended.
    pub fn running(&self) -> Vec<RunningJob> {
        let by_name = self.open.lock();
        by_name.values().flatten().filter(|job| !job.is_ended).map(|job| job.record.running()).collect()
    }

    /// Waits until every record has its last line and no lane uses it any more, at most until `deadline`.
    pub fn wait_idle(&self, deadline: Instant) -> bool {
        let mut by_name = self.open.lock();
        while by_name.values().flatten().any(|job| !job.is_orphan()) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            let patience = left.min(ORPHAN_AFTER);
            by_name = self.open.changed.wait_timeout(by_name, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends every record that has no end yet.
    pub fn end_all(&self, end: impl Fn(&JobRecord)) {
        let open: Vec<_> = self.open.lock().values().flatten().map(OpenJob::record).collect();
        open.iter().for_each(|record| end(record));
    }

    fn end_orphans(&self) {
        let mut orphans = Vec::new();
        self.open.lock().retain(|_, jobs| {
            orphans.extend(jobs.extract_if(.., |job| job.is_orphan()));
            !jobs.is_empty()
        });
        orphans.iter().for_each(|job| job.record.not_started());
    }
}

impl OpenJobs {
    /// Changes a job, and forgets it when both its ends are known.
    fn change(&self, name: JobName, number: Number, change: impl FnOnce(&mut OpenJob)) {
        let mut by_name = self.lock();
        if let Some(jobs) = by_name.get_mut(&name) {
            if let Some(job) = jobs.iter_mut().find(|job| job.record.number == number) {
                change(job);
            }
            jobs.retain(|job| !job.is_ended || job.unused_since.is_none());
            if jobs.is_empty() {
                by_name.remove(&name);
            }
        }
        drop(by_name);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobName, Vec<OpenJob>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenJob {
    fn record(&self) -> Arc<JobRecord> {
        self.record.clone()
    }

    fn is_orphan(&self) -> bool {
        !self.is_ended && self.unused_since.is_some_and(|since| since.elapsed() >= ORPHAN_AFTER)
    }
}

impl Observer for JobObserver {
    fn delivered(&self, batch: &[Delivered]) {
        self.record.delivered(batch);
    }

    fn failed(&self, failure: &Failure) {
        self.record.failed(failure);
    }
}

impl Drop for JobObserver {
    fn drop(&mut self) {
        self.record.flush();
        self.open.change(self.name, self.record.number, |job| job.unused_since = Some(Instant::now()));
    }
}
