//! Reads the history of jobs that `history` writes, also while an endpoint writes it.
//!
//! Invariants: no row is written; what is read is bounded. Not here: showing it (the program).

use crate::error::{Error, Result, shown};
pub use ledger::{Job, RecordedFailure, Role, State};
use ledger::{JobFilter, Kind, Reader};
use model::name::Escaped;
use model::{Exit, JobId};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Digits of an id that have to be given at least.
const PREFIX_DIGITS_MIN: usize = 4;

pub struct Past {
    reader: Reader,
}

impl Past {
    /// The history of the endpoint with this state directory.
    pub fn open(state: &Path) -> Result<Past> {
        let path = state.join("ledger.db");
        // A FIFO would hold up whoever opens it.
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(Error::new(Exit::Failed, format!("{} is not a regular file", shown(&path))));
        }
        match Reader::open(&path) {
            Ok(reader) => Ok(Past { reader }),
            Err(e) if e.kind == Kind::Absent => Err(Error::new(
                Exit::Failed,
                format!("there is no history in {}: no endpoint has run with this state directory", shown(state)),
            )
            .hint(
                "give the state directory of `thalweg serve` with --state-dir; a service runs as its own user, see docs/operating.md",
            )),
            Err(e) => Err(failed(&e)),
        }
    }

    /// Runs of which something was recorded since then, the newest change first, and at most so many. Each is its job as it
    /// was when the next run began.
    pub fn runs(&self, since: Option<SystemTime>, runs_max: usize) -> Result<Vec<Job>> {
        let changed_since_unix_ms = since.map(|time| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        });
        self.reader.runs(None, changed_since_unix_ms, runs_max).map_err(|e| failed(&e))
    }

    /// The runs of a job before its latest, the newest first.
    pub fn earlier_runs(&self, job: &Job, runs_max: usize) -> Result<Vec<Job>> {
        // Others may have the same id: another client's, or the other direction's.
        let runs = self.reader.runs(Some(job.key.id), None, usize::MAX).map_err(|e| failed(&e))?;
        let is_earlier = |run: &Job| run.key == job.key && run.attempts < job.attempts;
        Ok(runs.into_iter().filter(is_earlier).take(runs_max).collect())
    }

    /// The jobs of an id, or of its first digits. More than one has it where several clients, or both directions, do.
    pub fn find(&self, id: &str) -> Result<Vec<Job>> {
        let is_prefix = (PREFIX_DIGITS_MIN..=32).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit());
        if !is_prefix {
            return Err(Error::new(Exit::Usage, format!("{} is not a job id", Escaped(id.as_bytes())))
                .hint("an id has 32 hexadecimal digits, of which the first 4 suffice; `thalweg log` lists them"));
        }
        let id = id.to_ascii_lowercase();
        let jobs = self.reader.jobs(&JobFilter::default()).map_err(|e| failed(&e))?;
        let found: Vec<_> = jobs.into_iter().filter(|job| job.key.id.to_string().starts_with(&id)).collect();
        let first: Option<JobId> = found.first().map(|job| job.key.id);
        match first {
            None => Err(Error::new(Exit::Failed, format!("no job id in the history begins with {id}"))
                .hint("jobs are deleted 90 days after their last change; `thalweg log` lists those that are known")),
            Some(first) if found.iter().any(|job| job.key.id != first) => {
                Err(Error::new(Exit::Usage, format!("several job ids begin with {id}")).hint("give more digits"))
            }
            Some(_) => Ok(found),
        }
    }

    /// The failures of a job's latest attempt, from the one behind number `after`, at most so many.
    pub fn failures(&self, job: &Job, after: u64, failures_max: usize) -> Result<Vec<RecordedFailure>> {
        self.reader.failures(&job.key, after, failures_max).map_err(|e| failed(&e))
    }
}

fn failed(error: &ledger::Error) -> Error {
    let told = Error::new(Exit::Failed, error.to_string());
    Error { hint: error.kind.hint().map(str::to_owned), ..told }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{JobKey, JobSpec, Ledger};

    #[test]
    fn what_is_no_file_is_no_history_and_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(Past::open(dir.path()).err().unwrap().message.contains("not a regular file"));
    }

    #[test]
    fn a_job_is_found_by_its_first_digits_and_nothing_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let absent = Past::open(dir.path()).err().unwrap();
        assert!(absent.message.contains("there is no history in"), "{absent}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let ledger = Ledger::open(&dir.path().join("ledger.db")).unwrap();
        for (first, peer) in [(0xab, "a"), (0xab, "b"), (0xac, "a")] {
            let mut id = [0xcd; 16];
            id[0] = first;
            let key = JobKey { id: JobId(id), role: Role::Sender, peer: peer.into() };
            let (source, destination) = ("s".into(), "d".into());
            ledger.begin_attempt(&JobSpec { key, source, destination, options: String::new() }).unwrap();
        }
        let past = Past::open(dir.path()).unwrap();
        assert_eq!(past.find("ABCD").unwrap().len(), 2);
        assert_eq!(past.find("accdcd").unwrap().len(), 1);
        assert_eq!(past.find("abce").err().unwrap().exit, Exit::Failed);
        for wrong in ["ab", "", "xyzw", &"a".repeat(33)] {
            assert_eq!(past.find(wrong).err().unwrap().exit, Exit::Usage, "{wrong}");
        }
        assert_eq!(past.runs(None, 2).unwrap().len(), 2);
        assert!(past.runs(Some(SystemTime::now() + std::time::Duration::from_secs(60)), 9).unwrap().is_empty());
    }
}
