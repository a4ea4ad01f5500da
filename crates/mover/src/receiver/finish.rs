//! The end of a job at its receiver, on the thread that decides, when everything is settled.
//!
//! In this order: files get their other names, what the source does not have is removed, directories get their final mode and
//! time, names become durable, staging goes, and the sender hears of it.

use super::decide::Decide;
use super::prune::{self, Removed};
use crate::job::Ending;
use model::{Failure, mutant};
use store::Durability;
use wire::message::{FailureRecord, Finished};
use wire::{CloseCode, Message, bounded};

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
        job.sink.close();
        let record = |failure: Failure| FailureRecord {
            object: 0,
            path: failure.path,
            kind: failure.kind as u32,
            text: bounded(&failure.message).to_owned(),
        };
        let failures = std::mem::take(&mut *job.decider.directory_failures.lock().unwrap());
        let finished = Finished {
            job: job.number,
            durable: job.durable().to_owned(),
            failures: failures.into_iter().take(1024).map(record).collect(),
            engine: job.write_engine.name(),
            removed: removed.removed,
            extraneous: removed.extraneous,
            deletion: removed.removal as u32,
            linked: linked.made,
            linked_before: linked.there,
        };
        job.warn([self.warnings.take(), job.sink.take_warnings()].concat());
        job.tell_times();
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
