//! A receiving job among those of several holders: how it gets its place, and what its book has it do.
//!
//! Not here: the book, and what is said to whom (`gather`).

use super::gather::{Gather, LEAD, Missing, Seated};
use super::large::Large;
use super::{ReceiveJob, commit};
use crate::job::Ending;
use crate::progress::Progress;
use model::{Digest, Extent, FailureKind};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::{CloseCode, Message};

impl ReceiveJob {
    /// Gives the job its place, before it starts. What others than the lead bring goes to the lead's job.
    pub(crate) fn take_place(self: &Arc<ReceiveJob>, gather: &Arc<Gather>, holder: usize) {
        let seated: Arc<dyn Seated> = self.clone();
        let lead = gather.lead().filter(|_| holder != LEAD).and_then(|lead| lead.any().downcast::<ReceiveJob>().ok());
        match gather.seat(holder, &seated).filter(|_| holder == LEAD || lead.is_some()) {
            Some(place) => {
                let _ = self.place.set(place);
                lead.into_iter().for_each(|lead| _ = self.destination.set(lead));
                gather.join(holder);
            }
            None => self.cancel(CloseCode::Cancelled, "the copy is over"),
        }
    }

    fn large_object(&self, id: u64) -> Option<Arc<Large>> {
        self.table.lock().unwrap().large_object(id)
    }
}

impl Seated for ReceiveJob {
    fn number(&self) -> u32 {
        self.number
    }

    /// Said under the book's lock: nobody else gets on meanwhile.
    fn send(&self, message: Message) {
        self.port.send_now(message);
    }

    fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    fn count_settled(&self, entries: u64) {
        ReceiveJob::count_settled(self, entries);
    }

    fn count_asked(&self, digests: u64) {
        self.digests_asked.fetch_add(digests, Relaxed);
    }

    fn adopt(self: Arc<Self>, id: u64, chunks: &[(Extent, Digest)]) {
        let Some(large) = self.large_object(id) else { return };
        let Ok(Some(file)) = large.file(&self) else { return };
        for (extent, digest) in chunks {
            match large.record_proved(&file, *extent, *digest, true) {
                Ok(Some(true)) => return commit::complete(&self, large),
                Ok(_) => {}
                Err(e) => return commit::chunk_failed(&self, &large, &file, &e),
            }
        }
    }

    fn start_over(&self, id: u64) {
        let Some(large) = self.large_object(id) else { return };
        let counter = &self.progress.counters.bytes_resumed;
        counter.fetch_sub(large.held_bytes().min(counter.load(Relaxed)), Relaxed);
        large.restart_complete();
    }

    fn fail_missing(&self, missing: &[Missing]) {
        for Missing { id, is_other_content } in missing {
            let Some((listed, index)) = self.table.lock().unwrap().open_object(*id) else { continue };
            let (kind, why) = match is_other_content {
                true => (FailureKind::DigestMismatch, "every holder that has it has other content than the catalogue"),
                false => (FailureKind::Other, "none of the holders has it"),
            };
            self.fail(&listed, index, kind, why.to_owned());
        }
    }

    fn give_up(&self, why: &str) {
        self.cancel(CloseCode::Cancelled, why);
    }

    fn lose(&self, why: &str) {
        self.stop(Ending::Lost(why.to_owned()));
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

#[cfg(test)]
mod tests;
