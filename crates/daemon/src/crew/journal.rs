//! Which slices of a job were handed out and not committed, as the next run of the same command has to know: their hosts may still be
//! at work.
//!
//! `crews/JOB/slices.json` below the state directory, with a lock beside it: one run of a job at a time. Where the command is given at one
//! of several hosts that share a coordinator, it is there as well (`mirror`).
//! What slices of all runs of the job share for files in ranges is in `run` beside it.
//!
//! Invariant: a slice is in the file before a host hears of it.
//!
//! Not here: what is done already. The destination says that.

use super::mirror::{Mirror, is_silent};
use super::work::Common;
use crate::error::{Error, Result};
use crate::private_file::{self, Existing};
use crate::serve::StateLock;
use crate::trust;
use model::options::INSTEAD_OF_MAX;
use model::{Exit, JobId};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const BYTES_MAX: u64 = 1 << 20;

pub struct Journal {
    directory: PathBuf,
    slices: Vec<JobId>,
    run: JobId,
    mirror: Option<Arc<Mirror>>,
    _lock: StateLock,
}

impl Journal {
    /// # Errors
    /// When the same job is under way here, or what it left cannot be read.
    pub fn open(state: &Path, job: JobId, common: Option<&Common>, tell: &dyn Fn(&str)) -> Result<Journal> {
        let directory = state.join("crews").join(job.to_string());
        trust::make_private_directory(&state.join("crews"))?;
        trust::make_private_directory(&directory)?;
        let lock = StateLock::take(&directory)?;
        let found = private_file::read(&directory.join("slices.json"), BYTES_MAX, false)?;
        let texts: Option<Vec<String>> = match &found {
            None => Some(Vec::new()),
            Some(bytes) => serde_json::from_slice(bytes).ok(),
        };
        let read = texts.and_then(|texts| texts.iter().map(|text| JobId::from_hex(text)).collect::<Option<Vec<_>>>());
        let mut slices = read.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", crate::error::shown(&directory)))
                .hint("make sure that no host still works on this job (`thalweg job ls`), and remove that directory")
        })?;
        let path = directory.join("run");
        let known = private_file::read(&path, 64, false)?;
        let known = known.and_then(|text| JobId::from_hex(std::str::from_utf8(&text).ok()?));
        let run = known.unwrap_or_else(|| JobId(net::random_bytes()));
        let text = run.to_string().into_bytes();
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))?;
        let mirror = match common.map(|common| Mirror::open(&common.shared, common.job)) {
            None => None,
            Some(Ok((mirror, left))) => {
                slices.extend(left);
                slices.sort_by_key(|slice| slice.0);
                slices.dedup();
                mirror.keep(&slices);
                Some(mirror)
            }
            Some(Err(e)) if is_silent(&e) => {
                tell(&format!("{}; this copy can be continued from this host alone", e.message));
                None
            }
            Some(Err(e)) => return Err(e),
        };
        if slices.len() > INSTEAD_OF_MAX {
            return Err(Error::new(Exit::Failed, format!("more than {INSTEAD_OF_MAX} parts of the job are open"))
                .hint("wait until no host works on this job (`thalweg job ls`), and give the command with another destination"));
        }
        Ok(Journal { directory, slices, run, mirror, _lock: lock })
    }

    /// Nobody guesses it: who has it finds what others have brought of a file.
    pub fn run(&self) -> JobId {
        self.run
    }

    /// The slices that a run before this one left.
    pub fn left(&self) -> Vec<JobId> {
        self.slices.clone()
    }

    /// A number for a slice, written down as open.
    ///
    /// # Errors
    /// When it cannot be written down; then no host may hear of it.
    pub fn begin(&mut self) -> Result<JobId> {
        let open_max = INSTEAD_OF_MAX.saturating_sub(self.mirror.as_ref().map_or(0, |mirror| mirror.ahead()));
        if self.slices.len() >= open_max {
            let text = format!("{open_max} parts of the job are open or lost");
            return Err(
                Error::new(Exit::Temporary, text).hint("see why hosts lose them, and give the same command again")
            );
        }
        let slice = self.mirror.as_ref().map_or_else(|| Ok(JobId(net::random_bytes())), |mirror| mirror.take())?;
        self.slices.push(slice);
        self.write()?;
        Ok(slice)
    }

    /// These are over for good. What cannot be written down is taken over once more by the next run, which does no harm.
    pub fn remove(&mut self, over: &[JobId]) {
        self.slices.retain(|slice| !over.contains(slice));
        let _ = self.write();
        if let Some(mirror) = &self.mirror {
            mirror.keep(&self.slices);
        }
    }

    /// The job is done.
    pub fn end(mut self) {
        if let Some(mirror) = self.mirror.take() {
            mirror.close(true);
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    fn write(&self) -> Result<()> {
        let texts: Vec<_> = self.slices.iter().map(ToString::to_string).collect();
        let path = self.directory.join("slices.json");
        let text = serde_json::to_vec(&texts).expect("texts");
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Some(mirror) = self.mirror.take() {
            mirror.close(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_left_is_known_to_the_next_one_and_two_do_not_run_at_once() {
        let state = tempfile::tempdir().unwrap();
        let job = JobId([7; 16]);
        let mut journal = Journal::open(state.path(), job, None, &|_| {}).unwrap();
        assert_eq!(journal.left(), []);
        let (one, two) = (journal.begin().unwrap(), journal.begin().unwrap());
        assert!(Journal::open(state.path(), job, None, &|_| {}).err().unwrap().message.contains("in use by process"));
        journal.remove(&[one]);
        drop(journal);
        let journal = Journal::open(state.path(), job, None, &|_| {}).unwrap();
        assert_eq!(journal.left(), [two]);
        journal.end();
        assert_eq!(Journal::open(state.path(), job, None, &|_| {}).unwrap().left(), []);
        let file = state.path().join("crews").join(job.to_string()).join("slices.json");
        std::fs::write(&file, "[\"zz\"]").unwrap();
        assert!(Journal::open(state.path(), job, None, &|_| {}).err().unwrap().message.contains("is damaged"));
    }

    #[test]
    fn more_slices_than_one_can_take_over_are_not_handed_out() {
        let state = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(state.path(), JobId([7; 16]), None, &|_| {}).unwrap();
        for number in 0..INSTEAD_OF_MAX {
            journal.slices.push(JobId((number as u128).to_le_bytes()));
        }
        assert_eq!(journal.begin().unwrap_err().exit, Exit::Temporary);
    }
}
