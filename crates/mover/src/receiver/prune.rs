//! Removing what the source does not have, when everything else is done.
//!
//! Invariants:
//! - Nothing is removed unless the whole listing was received and the source could list all of it.
//! - Nothing is removed when more would go than the user allows: all is counted before the first.
//! - A name that the sender told of stays, whatever became of it: what it told of is in the `census`, or was compared before, and
//!   what is left to remove is in the `surplus`.

use super::ReceiveJob;
use super::census::Census;
use super::surplus::Surplus;
use crate::progress::count;
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
    let Some(deletion) = &job.options.deletion else { return Removed::default() };
    let root = deletion.is_at_root.then_some(ObjectId::ROOT);
    let directories: Vec<_> = root.into_iter().chain(directories.iter().copied()).collect();
    let (by, has_gaps) = match (job.surplus.get(), job.census()) {
        (Some(surplus), _) => {
            surplus.take_failures().into_iter().for_each(&mut *failed);
            (By::Surplus(surplus), surplus.has_gaps())
        }
        (None, Some(census)) => (By::Census(census, &directories), census.has_gaps()),
        (None, None) => return Removed::default(),
    };
    if has_gaps {
        return Removed { removal: Removal::ListingNotWhole, ..Removed::default() };
    }
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
        extraneous = pass(job, by, true, u64::MAX, tells, &mut told);
        if extraneous > max {
            return Removed { removal: Removal::TooMany, removed: 0, extraneous };
        }
        if job.options.is_dry_run {
            return Removed { removal: Removal::Done, removed: extraneous, extraneous };
        }
    }
    // More may have come since: the bound holds for these too.
    let removed = pass(job, by, false, max, Some(job), failed);
    Removed { removal: Removal::Done, removed, extraneous: extraneous.max(removed) }
}

/// How it is known what the source does not have.
#[derive(Clone, Copy)]
enum By<'a> {
    /// It is what is not in this, of these directories.
    Census(&'a Census, &'a [ObjectId]),
    /// It was put down.
    Surplus(&'a Surplus),
}

/// Goes through it once; returns how many objects were removed, or would be.
fn pass(
    job: &ReceiveJob,
    by: By<'_>,
    is_rehearsal: bool,
    max: u64,
    tells: Option<&ReceiveJob>,
    failed: &mut dyn FnMut(Failure),
) -> u64 {
    let removed = Cell::new(0);
    let changes = RefCell::new(Vec::new());
    let filter = &job.options.selection.filter;
    let directories = if let By::Census(_, directories) = by { directories } else { &[] };
    let mut prune = Prune {
        directories,
        is_listed: &|directory, name| match by {
            By::Census(census, _) => census.is_listed(directory, name),
            By::Surplus(_) => true,
        },
        is_listed_alike: &|directory, name| match by {
            By::Census(census, _) => census.is_listed_alike(directory, name),
            By::Surplus(_) => true,
        },
        fate: &|path, is_directory| match by {
            By::Surplus(_) if is_spared_above(filter, path) => Fate::Spare,
            _ => fate(filter, path, is_directory),
        },
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
        goes_on: &|| {
            count(&job.progress.worked, 1);
            removed.get() < max && !job.end.is_set()
        },
    };
    match by {
        By::Census(..) => job.sink.prune(&mut prune),
        By::Surplus(surplus) => job.sink.prune_paths(&mut surplus.backwards(), &mut prune),
    }
    tell(tells, changes.take());
    removed.get()
}

/// Whether the rules leave a directory that a path lies in.
fn is_spared_above(filter: &Filter, path: &[u8]) -> bool {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    !filter.is_empty() && slashes.into_iter().any(|(at, _)| fate(filter, &path[..at], true) == Fate::Spare)
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
