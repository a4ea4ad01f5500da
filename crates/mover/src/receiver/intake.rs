//! What is described, taken in: counted, named, and made where it is a directory. What is left is a file or link, whose fate what
//! stands at its name decides (`deciding`).

use super::answer::Answer;
use super::decide::Decide;
use super::gather::without_version;
use crate::progress::count;
use model::change::cause;
use model::{End, Entry, Failure, FailureKind, Kind};
use wire::listing::{Described, REPLACEMENT_FIRST};

impl Decide<'_> {
    /// Counts what was described, names it, and makes what is a directory. Returns a file or link, whose fate what stands at
    /// its name decides.
    pub(super) fn taken_in(&mut self, described: Described, answer: &mut Answer) -> Option<(Entry, End)> {
        let counters = &self.job.progress.counters;
        let (mut entry, end, replaces) = match described {
            Described::Entry { entry, end, replaces } => (entry, end, replaces),
            Described::BadName { id, parent, name, why } => {
                let path = self.bad_path(parent, &name);
                let failure = Failure { path, kind: FailureKind::NameRefused, message: why };
                count(&counters.files_listed, 1);
                answer.outcome.failed.push((id.0, failure));
                return None;
            }
        };
        match entry.kind {
            Kind::Directory => count(&counters.directories, 1),
            // Counted when they are made, in the end.
            Kind::HardLink(_) => {}
            _ => count(&counters.files_listed, 1),
        }
        count(&counters.bytes_listed, entry.size_bytes());
        let told = |e: store::Error| (e.kind, e.message());
        let named = self.named(&mut entry, replaces);
        match named.and_then(|()| self.is_open(&entry, answer).map_err(told)) {
            Ok(true) if self.job.place.get().is_some() => Some((without_version(entry), end)),
            Ok(true) => Some((entry, end)),
            Ok(false) => None,
            Err((kind, message)) => {
                self.failed(&entry, kind, message, answer);
                None
            }
        }
    }

    /// False for what needs no look at its name.
    fn is_open(&mut self, entry: &Entry, answer: &mut Answer) -> store::Result<bool> {
        let options = &self.job.options;
        if entry.kind == Kind::Directory {
            return self.directory(entry, answer).map(|()| false);
        }
        if let Kind::HardLink(first) = entry.kind {
            self.links.add(first, entry);
            return Ok(false);
        }
        self.links.note(entry);
        if self.job.was_settled(entry.id.0) {
            answer.outcome.skipped.push((entry.id.0, entry.size_bytes()));
            return Ok(false);
        }
        // Where nothing is removed the sender has left out what is not within them, unless it changed since.
        let is_to_be_bound = options.deletion.is_some() || entry.id.0 >= REPLACEMENT_FIRST;
        if is_to_be_bound && !options.selection.bounds.admit(entry) {
            answer.outcome.skipped.push((entry.id.0, entry.size_bytes()));
            return Ok(false);
        }
        Ok(true)
    }

    pub(super) fn failed(&self, entry: &Entry, kind: FailureKind, message: String, answer: &mut Answer) {
        if kind == FailureKind::NoSpace {
            return self.job.no_space(entry, &message);
        }
        if self.job.is_for_next_time(entry, kind, &message) {
            return;
        }
        let path = self.job.sink.path(entry);
        let failure = Failure { path, kind, message };
        if let Kind::Directory | Kind::HardLink(_) = entry.kind {
            // The sender counts them as settled by being described: it hears of this at the end.
            self.directory_failed(failure);
        } else {
            answer.outcome.failed.push((entry.id.0, failure));
        }
    }

    pub(super) fn directory_failed(&self, failure: Failure) {
        let failure = super::tell::at_destination(failure);
        // Counted among the files, which failures are of.
        count(&self.job.progress.counters.files_listed, 1);
        self.job.count_failure(failure.kind);
        if let Some(observer) = &self.job.observer {
            observer.failed(&failure);
        }
        if self.job.charge_to_the_end(failure.path.len() + failure.message.len() + 64, "failures") {
            self.job.decider.directory_failures.lock().unwrap().push(failure);
        }
    }

    fn directory(&mut self, entry: &Entry, answer: &mut Answer) -> store::Result<()> {
        let job = self.job;
        let is_made = !job.options.only_existing && !job.options.is_dry_run;
        if is_made {
            job.sink.make_directory(entry)?
        } else {
            job.sink.look_directory(entry)?
        }
        let is_fresh = job.sink.is_fresh(entry.id);
        if is_fresh && job.options.only_existing {
            return Ok(());
        }
        let causes = match is_fresh {
            true => cause::NEW,
            // What cannot be looked at is told when it cannot be set.
            false if job.options.tells_changes && job.facts.can.amend => job.sink.differences(entry).unwrap_or(0),
            false => 0,
        };
        if causes != 0 {
            self.change(entry, causes | if is_fresh { 0 } else { cause::KEPT }, answer);
        }
        self.directories.push(entry.clone());
        Ok(())
    }
}
