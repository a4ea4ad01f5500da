//! Removing what the source does not have, when everything else is done.
//!
//! Invariants:
//! - Nothing is removed unless the whole listing was received and the source could list all of it.
//! - Nothing is removed when more would go than the user allows: all is counted before the first.
//! - A name that the sender told of stays, whatever became of it.
//!
//! Memory: eight bytes for each object of the job. Two names whose keyed hashes are the same only spare one more object.

use super::ReceiveJob;
use crate::report::Removal;
use model::change::{Subject, cause};
use model::filter::Filter;
use model::{Change, Failure, Name, ObjectId};
use os::sync::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use store::{Fate, Prune};

/// Names that are remembered: 16 million, about 300 MiB. A job with more removes nothing.
const NAMES_MAX: usize = 16 << 20;
/// Changes told at once.
const CHANGES_AT_ONCE: usize = 256;

/// What the sender told of.
#[derive(Default)]
pub struct Census {
    hasher: RandomState,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    names: HashSet<u64>,
    /// Hashes of the paths of directories, by their ids.
    directories: HashMap<u64, u64>,
    /// Something could not be listed, or there was too much to remember.
    has_gaps: bool,
}

#[derive(Clone, Copy, Default)]
pub struct Removed {
    pub removal: Removal,
    pub removed: u64,
    pub extraneous: u64,
}

impl Census {
    fn hash(&self, above: u64, name: &[u8]) -> u64 {
        self.hasher.hash_one((above, name))
    }

    /// Notes a name; `directory` is the id of the object if it is one.
    pub fn note(&self, parent: ObjectId, name: &Name, directory: Option<ObjectId>) {
        let mut known = self.known.lock().unwrap();
        let above = known.directories.get(&parent.0).copied().unwrap_or(0);
        let hash = self.hash(above, name.as_bytes());
        known.insert(hash);
        if let Some(id) = directory {
            known.directories.insert(id.0, hash);
        }
    }

    /// Notes what is at the source and not copied.
    pub fn note_path(&self, path: &[u8]) {
        let parts = path.split(|b| *b == b'/').filter(|part| !part.is_empty());
        let hash = parts.fold(0, |above, name| self.hash(above, name));
        self.known.lock().unwrap().insert(hash);
    }

    /// The source could not list something.
    pub fn note_gap(&self) {
        self.known.lock().unwrap().has_gaps = true;
    }

    fn is_listed(&self, directory: ObjectId, name: &Name) -> bool {
        let known = self.known.lock().unwrap();
        let above = match known.directories.get(&directory.0) {
            Some(above) => *above,
            None if directory == ObjectId::ROOT => 0,
            // Nothing is known about a directory that was never described.
            None => return true,
        };
        known.names.contains(&self.hash(above, name.as_bytes()))
    }
}

impl Known {
    fn insert(&mut self, hash: u64) {
        if self.names.len() < NAMES_MAX {
            self.names.insert(hash);
        } else {
            self.has_gaps = true;
        }
    }
}

/// Removes what the source does not have in these directories, or says why not.
pub fn run(job: &ReceiveJob, directories: &[ObjectId], failed: &mut dyn FnMut(Failure)) -> Removed {
    let (Some(deletion), Some(census)) = (&job.options.deletion, &job.census) else { return Removed::default() };
    if census.known.lock().unwrap().has_gaps {
        return Removed { removal: Removal::ListingNotWhole, ..Removed::default() };
    }
    let root = deletion.is_at_root.then_some(ObjectId::ROOT);
    let directories: Vec<_> = root.into_iter().chain(directories.iter().copied()).collect();
    let max = deletion.removals_max.unwrap_or(u64::MAX);
    let mut extraneous = 0;
    if deletion.removals_max.is_some() || job.options.is_dry_run {
        let tells = job.options.is_dry_run.then_some(job);
        // What cannot be looked at is told by the pass that removes, or else by this one.
        let mut told = |failure: Failure| {
            if job.options.is_dry_run {
                failed(failure)
            }
        };
        extraneous = pass(job, census, &directories, true, u64::MAX, tells, &mut told);
        if extraneous > max {
            return Removed { removal: Removal::TooMany, removed: 0, extraneous };
        }
        if job.options.is_dry_run {
            return Removed { removal: Removal::Done, removed: extraneous, extraneous };
        }
    }
    // More may have come since: the bound holds for these too.
    let removed = pass(job, census, &directories, false, max, Some(job), failed);
    Removed { removal: Removal::Done, removed, extraneous: extraneous.max(removed) }
}

/// Goes through the directories once; returns how many objects were removed, or would be.
fn pass(
    job: &ReceiveJob,
    census: &Census,
    directories: &[ObjectId],
    is_rehearsal: bool,
    max: u64,
    tells: Option<&ReceiveJob>,
    failed: &mut dyn FnMut(Failure),
) -> u64 {
    let removed = Cell::new(0);
    let changes = RefCell::new(Vec::new());
    let filter = &job.options.selection.filter;
    job.sink.prune(&mut Prune {
        directories,
        is_listed: &|directory, name| census.is_listed(directory, name),
        fate: &|path, is_directory| fate(filter, path, is_directory),
        is_rehearsal,
        removed: &mut |path, is_directory| {
            removed.set(removed.get() + 1);
            let subject = if is_directory { Subject::Directory } else { Subject::File };
            changes.borrow_mut().push(Change { path: path.to_vec(), subject, causes: cause::REMOVED });
            if changes.borrow().len() >= CHANGES_AT_ONCE {
                tell(tells, changes.take());
            }
        },
        failed,
        goes_on: &|| removed.get() < max && !job.end.is_set(),
    });
    tell(tells, changes.take());
    removed.get()
}

/// What the rules leave is not the source's business, and stays. A directory that none takes may hold what one takes.
fn fate(filter: &Filter, path: &[u8], is_directory: bool) -> Fate {
    let explained = filter.explain(path, is_directory);
    match explained.is_taken {
        true => Fate::Remove,
        false if is_directory && explained.rule.is_none() => Fate::Keep,
        false => Fate::Spare,
    }
}

fn tell(tells: Option<&ReceiveJob>, changes: Vec<Change>) {
    if let Some(job) = tells {
        job.tell_changes(changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_is_known_in_its_directory_only() {
        let census = Census::default();
        census.note(ObjectId::ROOT, &name("d"), Some(ObjectId(1)));
        census.note(ObjectId(1), &name("f"), None);
        census.note_path(b"d/socket");
        assert!(census.is_listed(ObjectId::ROOT, &name("d")) && census.is_listed(ObjectId(1), &name("f")));
        assert!(census.is_listed(ObjectId(1), &name("socket")));
        assert!(!census.is_listed(ObjectId::ROOT, &name("f")) && !census.is_listed(ObjectId(1), &name("d")));
        assert!(census.is_listed(ObjectId(7), &name("x")), "nothing is known of that directory");
        assert!(!census.known.lock().unwrap().has_gaps);
    }
}
