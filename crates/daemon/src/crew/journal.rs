//! Which slices of a job were handed out and not committed, as the next run of the same command has to know: their hosts may still be
//! at work.
//!
//! What slices of all runs of the job share for files in ranges is in `run` beside it.
//!
//! `crews/JOB/slices.json` below the state directory, with a lock beside it: one run of a job at a time.
//!
//! Invariant: a slice is in the file before a host hears of it.
//!
//! Not here: what is done already. The destination says that.

use crate::error::{Error, Result};
use crate::private_file::{self, Existing};
use crate::serve::StateLock;
use crate::trust;
use model::options::INSTEAD_OF_MAX;
use model::{Exit, JobId};
use std::path::{Path, PathBuf};

const BYTES_MAX: u64 = 1 << 20;

pub struct Journal {
    directory: PathBuf,
    slices: Vec<JobId>,
    run: JobId,
    _lock: StateLock,
}

impl Journal {
    /// # Errors
    /// When the same job is under way here, or what it left cannot be read.
    pub fn open(state: &Path, job: JobId) -> Result<Journal> {
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
        let slices = read.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", crate::error::shown(&directory)))
                .hint("make sure that no host still works on this job (`thalweg job ls`), and remove that directory")
        })?;
        let path = directory.join("run");
        let known = private_file::read(&path, 64, false)?;
        let known = known.and_then(|text| JobId::from_hex(std::str::from_utf8(&text).ok()?));
        let run = known.unwrap_or_else(|| JobId(net::random_bytes()));
        let text = run.to_string().into_bytes();
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))?;
        Ok(Journal { directory, slices, run, _lock: lock })
    }

    /// Nobody guesses it: who has it finds what others have brought of a file.
    pub fn run(&self) -> JobId {
        self.run
    }

    /// The slices that a run before this one left.
    pub fn left(&self) -> Vec<JobId> {
        self.slices.clone()
    }

    /// # Errors
    /// When it cannot be written down; then no host may hear of it.
    pub fn add(&mut self, slice: JobId) -> Result<()> {
        if self.slices.len() >= INSTEAD_OF_MAX {
            let text = format!("{INSTEAD_OF_MAX} parts of the job are open or lost");
            return Err(
                Error::new(Exit::Temporary, text).hint("see why hosts lose them, and give the same command again")
            );
        }
        self.slices.push(slice);
        self.write()
    }

    /// These are over for good. What cannot be written down is taken over once more by the next run, which does no harm.
    pub fn remove(&mut self, over: &[JobId]) {
        self.slices.retain(|slice| !over.contains(slice));
        let _ = self.write();
    }

    /// The job is done.
    pub fn end(self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    fn write(&self) -> Result<()> {
        let texts: Vec<_> = self.slices.iter().map(ToString::to_string).collect();
        let path = self.directory.join("slices.json");
        let text = serde_json::to_vec(&texts).expect("texts");
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_left_is_known_to_the_next_one_and_two_do_not_run_at_once() {
        let state = tempfile::tempdir().unwrap();
        let (job, one, two) = (JobId([7; 16]), JobId([1; 16]), JobId([2; 16]));
        let mut journal = Journal::open(state.path(), job).unwrap();
        assert_eq!(journal.left(), []);
        journal.add(one).unwrap();
        journal.add(two).unwrap();
        assert!(Journal::open(state.path(), job).err().unwrap().message.contains("in use by process"));
        journal.remove(&[one]);
        drop(journal);
        let journal = Journal::open(state.path(), job).unwrap();
        assert_eq!(journal.left(), [two]);
        journal.end();
        assert_eq!(Journal::open(state.path(), job).unwrap().left(), []);
        let file = state.path().join("crews").join(job.to_string()).join("slices.json");
        std::fs::write(&file, "[\"zz\"]").unwrap();
        assert!(Journal::open(state.path(), job).err().unwrap().message.contains("is damaged"));
    }

    #[test]
    fn more_slices_than_one_can_take_over_are_not_handed_out() {
        let state = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(state.path(), JobId([7; 16])).unwrap();
        for number in 0..INSTEAD_OF_MAX {
            journal.slices.push(JobId((number as u128).to_le_bytes()));
        }
        assert_eq!(journal.add(JobId([9; 16])).unwrap_err().exit, Exit::Temporary);
    }
}
