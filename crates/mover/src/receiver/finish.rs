//! The end of a job at its receiver, on the thread that decides, when everything is settled.
//!
//! In this order: files get their other names, what the source does not have is removed, directories get their final mode and
//! time, names become durable, staging goes, and the sender hears of it: in one message, with as many failures as fit it and the
//! number of the others.

use super::decide::Decide;
use super::prune::{self, Removed};
use super::{resume, tell};
use crate::job::Ending;
use crate::progress::count;
use model::{Failure, mutant};
use std::sync::atomic::Ordering::Relaxed;
use store::Durability;
use wire::limits::FAILURES_MAX;
use wire::message::{FailureRecord, Finished, failures_that_fit};
use wire::{CloseCode, Message};

impl Decide<'_> {
    /// Puts everything in place that waited for the end, and says so.
    pub(super) fn finish(&mut self) {
        let job = self.job;
        let linked = self.links.make(job, &mut |failure| self.directory_failed(failure));
        let removed = self.prune();
        if job.end.is_set() {
            return;
        }
        for entry in self.directories.iter().rev() {
            count(&job.progress.worked, 1);
            if let Err(e) = job.sink.finish_directory(entry) {
                let failure = Failure { path: job.sink.path(entry), kind: e.kind, message: e.message() };
                self.directory_failed(failure);
            }
        }
        if job.durability != Durability::None
            && !mutant::is_on("finish-without-name-sync")
            && let Err(e) = job.sink.sync_names()
        {
            return job.cancel(CloseCode::Internal, &e.to_string());
        }
        if let Err(e) = job.close_sealed_list() {
            return job.cancel(CloseCode::Internal, &e.to_string());
        }
        // What grew and has another name by now, or is gone, is not asked for again.
        if !job.has_unfinished.load(Relaxed) && !mutant::is_on("leave-staging") {
            job.sink.drop_staged(&|stem, journal| resume::grew_in(journal, stem, job.sender, job.id));
        }
        if let Some(run) = job.options.slice.as_ref().filter(|slice| slice.range.is_none()).and_then(|slice| slice.run)
            && job.progress.counters.files_failed.load(Relaxed) == 0
        {
            job.sink.drop_parts(&resume::tag_of_parts(run));
        }
        job.sink.close();
        let (failures, failures_untold) = told(&std::mem::take(&mut *job.decider.directory_failures.lock().unwrap()));
        let finished = Finished {
            job: job.number,
            durable: job.durable().to_owned(),
            failures,
            failures_untold,
            engine: job.engine_used.get().copied().unwrap_or(store::PLAIN_ENGINE).to_owned(),
            removed: removed.removed,
            extraneous: removed.extraneous,
            deletion: removed.removal as u32,
            linked: linked.made,
            linked_before: linked.there,
        };
        job.warn([self.warnings.take(), job.sink.take_warnings()].concat());
        job.tell_times();
        if let Some(hold) = job.hold.get()
            && let Err(e) = hold.end()
        {
            job.progress.note(format!("{e}: what is delivered may be looked at once more after a power loss"));
        }
        // Said before it is known here: whoever waits for the end may close the session at once. And noted before it is
        // said: the other side may close the session as soon as it hears it.
        let _ = job.finished.set(finished.clone());
        job.port.send(Message::Finished(finished.clone()));
        job.end.set(Ending::Finished(finished));
        // Whoever gives the same command again waits for its threads to let the destination go.
        job.committer.wake();
    }

    /// Removes what the source does not have, if that was asked for.
    fn prune(&self) -> Removed {
        let directories: Vec<_> = match self.job.options.deletion {
            Some(_) => self.directories.iter().map(|entry| entry.id).collect(),
            None => return Removed::default(),
        };
        prune::run(self.job, &directories, &mut |failure| self.directory_failed(failure))
    }
}

/// The failures that go into the last message, and how many do not.
fn told(failures: &[Failure]) -> (Vec<FailureRecord>, u64) {
    // More than one message takes are not worth making.
    let records = failures.iter().take(FAILURES_MAX).map(|failure| tell::record_of(0, failure));
    let mut records: Vec<_> = records.collect();
    records.truncate(failures_that_fit(&records));
    let untold = (failures.len() - records.len()) as u64;
    (records, untold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::FailureKind;
    use wire::message;

    #[test]
    fn the_last_word_fits_a_message_however_much_failed_and_counts_what_it_leaves_out() {
        for (count, path_bytes, text_bytes) in [(3, 20, 20), (20_000, 20, 20), (2000, 100_000, 5000)] {
            let message = "x".repeat(text_bytes);
            let failure = Failure { path: vec![b'p'; path_bytes], kind: FailureKind::Permission, message };
            let (failures, failures_untold) = told(&vec![failure; count]);
            assert!(!failures.is_empty() && failures.len() as u64 + failures_untold == count as u64);
            assert_eq!(failures_untold > 0, count > 3);
            let finished = Finished { job: u32::MAX, failures, failures_untold, ..Finished::default() };
            message::fits(&message::encode(finished)).unwrap();
        }
    }
}
