//! Removing what the source does not have, when everything else is done.
//!
//! Invariants:
//! - Nothing is removed unless the whole listing was received and the source could list all of it.
//! - Nothing is removed when more would go than the user allows: all is counted before the first.
//! - A name that the sender told of (`census`) stays, whatever became of it.

use super::ReceiveJob;
use super::census::Census;
use crate::report::Removal;
use model::change::{Subject, cause};
use model::filter::Filter;
use model::{Change, Failure, ObjectId};
use std::cell::{Cell, RefCell};
use store::{Fate, Prune};

/// Changes told at once.
const CHANGES_AT_ONCE: usize = 256;

#[derive(Clone, Copy, Default)]
pub struct Removed {
    pub removal: Removal,
    pub removed: u64,
    pub extraneous: u64,
}

/// Removes what the source does not have in these directories, or says why not.
pub fn run(job: &ReceiveJob, directories: &[ObjectId], failed: &mut dyn FnMut(Failure)) -> Removed {
    let (Some(deletion), Some(census)) = (&job.options.deletion, &job.census) else { return Removed::default() };
    if census.has_gaps() {
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
