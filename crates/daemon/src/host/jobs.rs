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
    /// noticed its end, or while what the first left in the buffer is brought to its place. The older one stands first.
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

    /// Ends the job's record by `end`; of several attempts with one name, that of the one whose data path has just let
    /// go, and where all are in use, the oldest one's.
    pub fn end(&self, name: JobName, end: impl FnOnce(&JobRecord)) {
        let by_name = self.open.lock();
        let open = by_name.get(&name).into_iter().flatten().filter(|job| !job.is_ended);
        let job = open.min_by_key(|job| (job.is_orphan(), job.unused_since.is_none())).map(OpenJob::record);
        drop(by_name);
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

#[cfg(test)]
mod tests {
    use super::super::record::Books;
    use super::*;
    use crate::events::EventLog;
    use crate::history::History;
    use crate::transfer_log::TransferLog;
    use model::TransferOptions;
    use mover::session::Grant;
    use wire::handshake::Direction;
    use wire::message::Open;

    #[test]
    fn an_end_is_that_of_the_attempt_whose_data_path_has_just_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(TransferLog::open(&dir.path().join("log")).unwrap());
        let history = Arc::new(History::open(&dir.path().join("ledger.db"), Pin([1; 32])).unwrap());
        let events = Arc::new(EventLog::new(dir.path(), "h"));
        let (pin, id, jobs) = (Pin([2; 32]), JobId([3; 16]), Jobs::default());
        let grant = Grant { pin, name: "c".into(), account: "serve".into(), may_write: true, warrant: None };
        let name = (pin, id, Direction::ClientSends as u32);
        let open = || {
            let books = Books { log: log.clone(), events: events.clone(), history: history.clone() };
            let (open, options) = (Open::default(), TransferOptions::default());
            let record = JobRecord::begin(books, "h", &grant, id, Direction::ClientSends, &open, &options);
            (record.number, jobs.add(name, record))
        };
        let ended = || {
            let mut number = None;
            jobs.end(name, |record| number = Some(record.number));
            number
        };
        // It waits for what an earlier attempt left, which is carried on meanwhile.
        let ((waiting, waits), (carried_on, carries_on)) = (open(), open());
        drop(carries_on);
        assert_eq!(ended(), Some(carried_on));
        assert_eq!(ended(), Some(waiting));
        drop(waits);
        assert!(jobs.open.lock().is_empty());
        // The end of one that was refused after it had been opened never comes.
        drop(open().1);
        let (running, runs) = open();
        let long_ago = Instant::now().checked_sub(ORPHAN_AFTER);
        jobs.open.lock().get_mut(&name).unwrap()[0].unused_since = long_ago;
        assert_eq!(ended(), Some(running));
        drop(runs);
    }
}
