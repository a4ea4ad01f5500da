//! Looks at a ledger while its writer may be at work: lists jobs and their failures.
//!
//! Invariant: no row is written and no ledger made, whatever is found; SQLite may leave its companions (`-wal`, `-shm`), empty,
//! beside one that is closed. Not here: changes (`ledger`).

use crate::error::{Cause, Result, Subject};
use crate::job::{Job, JobFilter, JobKey, RecordedFailure};
use crate::limits::Settings;
use crate::{query, schema};
use model::JobId;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

pub struct Reader {
    connection: Connection,
    path: PathBuf,
}

impl Reader {
    /// `Kind::Absent` where no ledger is.
    pub fn open(path: &Path) -> Result<Reader> {
        let opened = schema::open_to_read(path, &Settings::default());
        let connection = opened.map_err(|cause| cause.of("open", Subject::Ledger(path.to_owned())))?;
        Ok(Reader { connection, path: path.to_owned() })
    }

    /// The selected jobs, the newest change first.
    pub fn jobs(&self, filter: &JobFilter) -> Result<Vec<Job>> {
        query::jobs(&self.connection, filter).map_err(|cause| self.failed("list jobs", cause))
    }

    /// The runs of a job, or of all, the newest change first: each as its job was when the next one began.
    pub fn runs(&self, id: Option<JobId>, changed_since_unix_ms: Option<i64>, limit: usize) -> Result<Vec<Job>> {
        let found = query::runs(&self.connection, id, changed_since_unix_ms, limit);
        found.map_err(|cause| self.failed("list runs", cause))
    }

    /// Failures of a job's latest attempt in the order recorded, from the one behind number `after`; at most 10,000.
    pub fn failures(&self, key: &JobKey, after: u64, limit: usize) -> Result<Vec<RecordedFailure>> {
        let found = query::failures(&self.connection, key, after, limit);
        found.map_err(|cause| cause.of("list failures", Subject::Job(key.id)))
    }

    fn failed(&self, operation: &'static str, cause: Cause) -> crate::Error {
        cause.of(operation, Subject::Ledger(self.path.clone()))
    }
}
