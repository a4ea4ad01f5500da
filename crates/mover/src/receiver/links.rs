//! Other names of files: made in the end, when the files have their first names.
//!
//! Invariants:
//! - Another name is given only to a file that stands there as it was described; otherwise it alone fails.
//! - They are counted when they are made: until then the listing does not have them.
//!
//! Memory: an entry for each file of several names and for each other name (`wire::limits`).

use super::ReceiveJob;
use crate::progress::count;
use model::change::{Subject, cause};
use model::options::Compare;
use model::{Change, Entry, Failure, FailureKind, Kind, Name, ObjectId, TransferOptions};
use std::collections::HashMap;
use store::{LinkRule, Linked};
use wire::listing::REPLACEMENT_FIRST;

/// Changes told at once.
const CHANGES_AT_ONCE: usize = 256;

#[derive(Default)]
pub struct HardLinks {
    files: HashMap<u64, Entry>,
    /// Where the files are, once one of them was described again: under an id that other names do not know.
    places: Option<HashMap<(ObjectId, Name), u64>>,
    names: Vec<(u64, Entry)>,
}

/// What became of other names.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    pub made: u64,
    pub there: u64,
}

impl HardLinks {
    /// Remembers a file that has several names.
    pub fn note(&mut self, entry: &Entry) {
        if !entry.attributes.as_ref().is_some_and(|attributes| attributes.is_shared()) {
            return;
        }
        if entry.id.0 < REPLACEMENT_FIRST {
            self.files.insert(entry.id.0, Entry { attributes: None, ..entry.clone() });
            if let Some(places) = &mut self.places {
                places.insert((entry.parent, entry.name.clone()), entry.id.0);
            }
            return;
        }
        let place = |(id, entry): (&u64, &Entry)| ((entry.parent, entry.name.clone()), *id);
        let places = self.places.get_or_insert_with(|| self.files.iter().map(place).collect());
        if let Some(id) = places.get(&(entry.parent, entry.name.clone()))
            && let Some(file) = self.files.get_mut(id)
        {
            file.generation = entry.generation;
        }
    }

    pub fn add(&mut self, first: ObjectId, entry: &Entry) {
        self.names.push((first.0, Entry { attributes: None, ..entry.clone() }));
    }

    /// Makes the names; `failed` hears of each that was not made.
    pub fn make(&self, job: &ReceiveJob, failed: &mut dyn FnMut(Failure)) -> Counts {
        let mut counts = Counts::default();
        let mut changes = Vec::new();
        for (first, entry) in &self.names {
            if job.end.is_set() {
                break;
            }
            count(&job.progress.worked, 1);
            let linked = match self.files.get(first) {
                Some(file) if is_out_of_bounds(&job.options, file) => Ok(Linked::Kept),
                Some(file) => job.sink.make_hard_link(file, entry, rule(&job.options)),
                None => Ok(Linked::NoFile),
            };
            match linked {
                Ok(Linked::Made { has_replaced }) => {
                    counts.made += 1;
                    let causes = cause::LINKED | if has_replaced { 0 } else { cause::NEW };
                    if job.options.tells_changes {
                        changes.push(Change { path: job.sink.path(entry), subject: Subject::File, causes });
                    }
                    if changes.len() == CHANGES_AT_ONCE {
                        job.tell_changes(std::mem::take(&mut changes));
                    }
                }
                Ok(Linked::NoFile) if !may_differ(&job.options) => {
                    let message = "link: the file it is a hard link to did not arrive".to_owned();
                    failed(Failure { path: job.sink.path(entry), kind: FailureKind::Other, message });
                }
                Ok(Linked::There | Linked::Kept | Linked::NoFile) => counts.there += 1,
                Err(e) => failed(Failure { path: job.sink.path(entry), kind: e.kind, message: e.message() }),
            }
        }
        job.tell_changes(changes);
        let counters = &job.progress.counters;
        count(&counters.files_listed, counts.made + counts.there);
        count(&counters.files_done, counts.made);
        count(&counters.files_skipped, counts.there);
        counts
    }
}

fn rule(options: &TransferOptions) -> LinkRule {
    LinkRule {
        may_make: !options.only_existing,
        may_replace: !options.no_clobber && options.compare != Compare::Exists,
        ignores_time: options.compare == Compare::Size,
        is_rehearsal: options.is_dry_run,
    }
}

/// Files may have been left as they were, whatever was described.
fn may_differ(options: &TransferOptions) -> bool {
    options.no_clobber || options.keeps_newer || options.only_existing || options.compare == Compare::Exists
}

/// Where something is removed the bounds are applied here.
fn is_out_of_bounds(options: &TransferOptions, file: &Entry) -> bool {
    debug_assert!(file.kind == Kind::File);
    options.deletion.is_some() && !options.selection.bounds.admit(file)
}
