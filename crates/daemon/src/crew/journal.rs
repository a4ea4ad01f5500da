//! Which slices of a job were handed out and not committed, as the next run of the same command has to know: their hosts may still be
//! at work.
//!
//! `crews/JOB/slices.json` below the state directory, with a lock beside it: one run of a job at a time. Where the command is given at one
//! of several hosts that share a coordinator, it is there as well (`mirror`).
//! What slices of all runs of the job share for files in ranges is in `run` beside it; `attempt` says which run it is, for
//! whoever counts them.
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
use model::options::{INSTEAD_OF_MAX, Slice};
use model::{Exit, JobId};
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const DIRECTORY: &str = "crews";
const BYTES_MAX: u64 = 1 << 20;
/// What many runs may have left that came to nothing.
const SLICES_MAX: usize = 4096;

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
        let directory = make_directory(state, job)?;
        let lock = StateLock::take(&directory)?;
        let mut slices = read(&directory)?.ok_or_else(|| {
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
            Some(Ok((mirror, mut left))) => {
                // In the order in which they were begun, which says what nobody is at work on any more (`inherited`).
                left.retain(|slice| !slices.contains(slice));
                slices.extend(left);
                mirror.keep(&slices);
                Some(mirror)
            }
            Some(Err(e)) if is_silent(&e) => {
                tell(&format!("{}; this copy can be continued from this host alone", e.message));
                None
            }
            Some(Err(e)) => return Err(e),
        };
        let journal = Journal { directory, slices, run, mirror, _lock: lock };
        if journal.slices.len() > SLICES_MAX {
            return Err(Error::new(Exit::Failed, format!("more than {SLICES_MAX} parts of the job are open"))
                .hint("wait until no host works on this job (`thalweg job ls`), and give the command with another destination"));
        }
        Ok(journal)
    }

    /// Nobody guesses it: who has it finds what others have brought of a file.
    pub fn run(&self) -> JobId {
        self.run
    }

    /// The slices that a run before this one left.
    pub fn left(&self) -> Vec<JobId> {
        self.slices.clone()
    }

    /// What another command of the same job has begun, as open here too.
    pub fn found(&mut self) -> Vec<JobId> {
        let found = self.mirror.as_ref().map_or_else(Vec::new, |mirror| mirror.found());
        self.slices.extend(&found);
        found
    }

    /// Whether what is open may be as much as one slice can be told of, should all of it be lost.
    pub fn is_full(&self) -> bool {
        self.slices.len() >= INSTEAD_OF_MAX
    }

    /// A number for a slice, written down as open.
    ///
    /// # Errors
    /// When it cannot be written down; then no host may hear of it.
    pub fn begin(&mut self) -> Result<JobId> {
        if self.slices.len() >= SLICES_MAX {
            return Err(full(SLICES_MAX));
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

/// What one host is to be told whose order does the whole job alone after several have worked on it: nothing more appears
/// then of parts that are open, and it finds what was brought of files. Nothing where none has. The order is open from
/// here on, for whoever takes over from it.
///
/// # Errors
/// When the job is under way here, what was left cannot be read, or the order cannot be written down.
pub fn inherited(state: &Path, job: JobId, order: JobId) -> Result<Option<Slice>> {
    if !directory_of(state, job).exists() {
        return Ok(None);
    }
    let mut journal = Journal::open(state, job, None, &|_| {})?;
    journal.slices.retain(|slice| *slice != order);
    // Of more than one can be told of, the oldest are the ones that nobody is at work on any more.
    let first = journal.slices.len().saturating_sub(INSTEAD_OF_MAX);
    let instead_of = journal.slices[first..].to_vec();
    let spare = (journal.slices.len() + 1).saturating_sub(SLICES_MAX);
    journal.slices.drain(..spare);
    journal.slices.push(order);
    journal.write()?;
    Ok(Some(Slice { instead_of, run: Some(journal.run), range: None }))
}

/// The slices of a job that are open, as far as that can be read, whether the job is under way here or not.
pub fn left(state: &Path, job: JobId) -> Vec<JobId> {
    read(&directory_of(state, job)).ok().flatten().unwrap_or_default()
}

/// Jobs of which something was written down within this time.
pub fn left_since(state: &Path, age: Duration) -> Vec<JobId> {
    let young = |entry: DirEntry| {
        let changed = entry.metadata().ok()?.modified().ok()?;
        let is_old = changed.elapsed().is_ok_and(|since| since > age);
        JobId::from_hex(entry.file_name().to_str()?).filter(|_| !is_old)
    };
    std::fs::read_dir(state.join(DIRECTORY)).into_iter().flatten().flatten().filter_map(young).collect()
}

/// Writes down which attempt of a job several hosts carry out, before any of them hears of it.
pub fn note_attempt(state: &Path, job: JobId, attempt: u32) -> Result<()> {
    let path = make_directory(state, job)?.join("attempt");
    let text = attempt.to_string().into_bytes();
    private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
}

/// The attempt that several hosts have carried out, or do.
pub fn attempt(state: &Path, job: JobId) -> Option<u32> {
    let text = private_file::read(&directory_of(state, job).join("attempt"), 16, false).ok()??;
    std::str::from_utf8(&text).ok()?.parse().ok()
}

/// Somebody else is to have it.
pub fn forget_attempt(state: &Path, job: JobId) -> Result<()> {
    let path = directory_of(state, job).join("attempt");
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::of_file("remove", &path, e)),
        _ => Ok(()),
    }
}

/// The job is done, by whomever.
pub fn forget(state: &Path, job: JobId) {
    let _ = std::fs::remove_dir_all(directory_of(state, job));
}

/// Forgets jobs with which nobody has gone on for so long.
pub fn forget_old(state: &Path, age: Duration) {
    for entry in std::fs::read_dir(state.join(DIRECTORY)).into_iter().flatten().flatten() {
        let changed = entry.metadata().and_then(|found| found.modified());
        if changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > age)) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// What is open below a directory; nothing where that cannot be understood.
fn read(directory: &Path) -> Result<Option<Vec<JobId>>> {
    let Some(bytes) = private_file::read(&directory.join("slices.json"), BYTES_MAX, false)? else {
        return Ok(Some(Vec::new()));
    };
    let texts: Option<Vec<String>> = serde_json::from_slice(&bytes).ok();
    Ok(texts.and_then(|texts| texts.iter().map(|text| JobId::from_hex(text)).collect()))
}

fn make_directory(state: &Path, job: JobId) -> Result<PathBuf> {
    let directory = directory_of(state, job);
    trust::make_private_directory(&state.join(DIRECTORY))?;
    trust::make_private_directory(&directory)?;
    Ok(directory)
}

fn directory_of(state: &Path, job: JobId) -> PathBuf {
    state.join(DIRECTORY).join(job.to_string())
}

/// So many parts were lost, or may be.
pub fn full(parts: usize) -> Error {
    Error::new(Exit::Temporary, format!("{parts} parts of the job are open or lost"))
        .hint("see why hosts lose them, and give the same command again")
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
    use crate::hosts::Shared;
    use cluster::coordinator::Coordinator;
    use conformance::coordinators::Memory;
    use net::Identity;

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
    fn slices_beyond_what_one_can_take_over_are_for_those_that_take_over() {
        let state = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(state.path(), JobId([7; 16]), None, &|_| {}).unwrap();
        let numbers = |count: usize| (0..count).map(|number| JobId((number as u128).to_le_bytes()));
        journal.slices = numbers(INSTEAD_OF_MAX - 1).collect();
        assert!(!journal.is_full());
        journal.begin().unwrap();
        assert!(journal.is_full());
        journal.begin().unwrap();
        drop(journal);
        let mut journal = Journal::open(state.path(), JobId([7; 16]), None, &|_| {}).unwrap();
        assert_eq!(journal.left().len(), INSTEAD_OF_MAX + 1);
        journal.slices = numbers(SLICES_MAX).collect();
        assert_eq!(journal.begin().unwrap_err().exit, Exit::Temporary);
    }

    #[test]
    fn whoever_goes_on_alone_is_told_of_the_newest_open_slices_and_of_the_run() {
        let state = tempfile::tempdir().unwrap();
        let job = JobId([7; 16]);
        let order = |attempt: u8| JobId([attempt; 16]);
        let inherited = |attempt: u8| inherited(state.path(), job, order(attempt));
        assert_eq!(inherited(100).unwrap(), None);
        assert!(!state.path().join(DIRECTORY).exists(), "nobody has begun it");
        let mut journal = Journal::open(state.path(), job, None, &|_| {}).unwrap();
        assert!(inherited(100).unwrap_err().message.contains("in use by process"));
        let run = journal.run();
        journal.slices = (0..300).map(|number: u128| JobId(number.to_be_bytes())).collect();
        let newest = journal.begin().unwrap();
        drop(journal);
        for again in 0..2 {
            let slice = inherited(100).unwrap().unwrap();
            let told = (slice.instead_of.len(), slice.instead_of.last());
            assert_eq!(told, (INSTEAD_OF_MAX, Some(&newest)), "{again}");
            assert_eq!((slice.run, slice.range), (Some(run), None));
        }
        assert_eq!(inherited(101).unwrap().unwrap().instead_of.last(), Some(&order(100)), "another attempt");
        forget_old(state.path(), Duration::from_secs(3600));
        assert!(inherited(101).unwrap().is_some());
        forget_old(state.path(), Duration::ZERO);
        assert_eq!(inherited(101).unwrap(), None);
        Journal::open(state.path(), job, None, &|_| {}).unwrap();
        forget(state.path(), job);
        assert_eq!(inherited(101).unwrap(), None);
    }

    #[test]
    fn which_attempt_several_hosts_carry_out_is_known_until_one_is_to_have_it() {
        let state = tempfile::tempdir().unwrap();
        let job = JobId([7; 16]);
        assert_eq!((attempt(state.path(), job), left(state.path(), job)), (None, Vec::new()));
        forget_attempt(state.path(), job).unwrap();
        note_attempt(state.path(), job, 3).unwrap();
        note_attempt(state.path(), job, 4).unwrap();
        assert_eq!(attempt(state.path(), job), Some(4));
        let mut journal = Journal::open(state.path(), job, None, &|_| {}).unwrap();
        let open = journal.begin().unwrap();
        assert_eq!(left(state.path(), job), [open], "while it is under way");
        assert_eq!(left_since(state.path(), Duration::from_secs(3600)), [job]);
        assert_eq!(left_since(state.path(), Duration::ZERO), []);
        forget_attempt(state.path(), job).unwrap();
        assert_eq!((attempt(state.path(), job), left(state.path(), job)), (None, vec![open]));
    }

    /// Numbers that were written down and not used void nothing.
    #[test]
    fn runs_that_begin_nothing_leave_nothing_to_the_next_one() {
        let state = tempfile::tempdir().unwrap();
        let coordinator: Arc<dyn Coordinator> = Arc::new(Memory::default());
        let shared = Shared::begin(state.path(), &coordinator, None, &Identity::generate().unwrap(), "h1").unwrap();
        let common = Common { shared, job: JobId([8; 16]) };
        let open = || Journal::open(state.path(), JobId([7; 16]), Some(&common), &|_| {}).unwrap();
        for _ in 0..12 {
            drop(open());
        }
        let mut journal = open();
        assert_eq!(journal.left(), []);
        let begun: Vec<_> = (0..8).map(|_| journal.begin().unwrap()).collect();
        drop(journal);
        assert_eq!(open().left(), begun, "in their order");
    }
}
