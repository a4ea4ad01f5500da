//! What a receiver says of content that waits in its buffer, and how a sender leaves that does not wait for more.
//!
//! Invariants:
//! - A sender is told that content is buffered when it and what describes it are durable.
//! - A sender is let go when all that is not settled is durable here, its seals included: the rest is done without it.
//! - Then it is told `buffered`, which is not `delivered`.

use super::events::Event;
use super::hold::{Frame, Hold, What};
use super::{NOT_SETTLED, Older, ReceiveJob, commit};
use crate::job::{End, Ending};
use crate::limits::STORAGE_LATE;
use model::mutant;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::limits::SETTLED_TOLD;
use wire::message::{Finished, Held, Resend, Settled, runs_of};
use wire::{CloseCode, Message, Refusal};

/// What the result says of durability where a sender did not wait for more.
pub const BUFFERED: &str = "buffered";

impl ReceiveJob {
    /// Lets content wait in a buffer. Before `start`.
    pub(crate) fn buffer_in(&self, hold: Hold) {
        self.progress.show_buffer(hold.capacity_bytes(), hold.waiting().clone());
        let _ = self.hold.set(hold);
    }

    /// Nothing of the job comes back.
    pub(crate) fn end_hold(&self) {
        if let Some(hold) = self.hold.get() {
            let _ = hold.end();
        }
    }

    /// Waits for something before anything is decided. Before `start`.
    pub(crate) fn begin_after(&self, older: Older) {
        let _ = self.older.set(older);
    }

    /// The session lacks the feature for buffered content: nothing is said of it.
    pub(crate) fn forbid_buffered(&self) {
        if let Some(hold) = self.hold.get() {
            hold.may_tell.store(false, Relaxed);
        }
    }

    pub(super) fn is_storage_late(&self) -> bool {
        self.progress.is_in_storage_for(STORAGE_LATE)
    }

    /// Objects came to their end: what waits of them is not wanted any more.
    pub(super) fn let_go(&self, ids: impl Iterator<Item = u64>) {
        if let Some(place) = self.place.get() {
            return place.gather.settled(ids);
        }
        if let Some(hold) = self.hold.get() {
            hold.settled(ids);
        }
    }

    /// Tells the sender of frames that are durable here.
    pub(super) fn tell_buffered(&self, frames: &[Arc<Frame>]) {
        let is_told = self.hold.get().is_some_and(|hold| hold.may_tell.load(Relaxed));
        if !is_told || frames.is_empty() {
            return;
        }
        let mut ids = Vec::new();
        let mut extents = Vec::new();
        for frame in frames {
            match &frame.what {
                What::Pack(objects) => ids.extend(objects),
                What::Chunk { extent, .. } => extents.push(*extent),
            }
        }
        let job = self.number;
        for extents in extents.chunks(SETTLED_TOLD) {
            self.port.send(Message::Held(Held { job, extents: extents.to_vec() }));
        }
        ids.sort_unstable();
        ids.dedup();
        for ids in ids.chunks(SETTLED_TOLD) {
            let buffered = runs_of(ids.to_vec());
            self.port.send(Message::Settled(Settled { job, buffered, ..Settled::default() }));
        }
    }

    /// What was in a frame of the buffer is worth nothing: it is to come again.
    pub(super) fn ask_for(&self, what: &What) {
        match what {
            What::Chunk { extent, is_large: true, .. } => {
                let large = self.table.lock().unwrap().large_object(extent.object);
                if let Some(large) = large {
                    large.refuse(model::Extent::new(extent.start, extent.end));
                    let why = "the buffer lost it".to_owned();
                    let again = Resend { job: self.number, extents: vec![*extent], why, ..Resend::default() };
                    self.port.send(Message::Resend(again));
                }
            }
            what => what.objects().for_each(|id| self.broke_off(id)),
        }
    }

    /// The sender leaves when everything is settled or buffered.
    pub(super) fn take_leave(&self) -> Result<(), Refusal> {
        if !self.progress.is_listing_complete.load(Relaxed) {
            return Err(Refusal::new(CloseCode::WrongState, NOT_SETTLED));
        }
        if self.is_finish_heard.swap(true, Relaxed) {
            return Err(Refusal::new(CloseCode::WrongState, "a job that is finished twice"));
        }
        self.is_left.store(true, Relaxed);
        Ok(())
    }

    /// Lets the sender go, once everything is here that it brought. Called again and again.
    pub(super) fn leave_if_buffered(self: &Arc<ReceiveJob>) {
        let Some(hold) = self.hold.get().filter(|_| self.is_left.load(Relaxed)) else { return };
        let open = self.table.lock().unwrap().open_objects();
        if open.is_empty() {
            self.is_left.store(false, Relaxed);
            return self.decider.push(Event::Finish);
        }
        if !hold.is_durable() || hold.why_lost().is_some() {
            return;
        }
        let mut is_covered = true;
        for (id, size_bytes, large) in open {
            let durable = large.as_ref().map(|large| large.durable()).unwrap_or_default();
            if hold.covers(id, size_bytes, &durable) {
                continue;
            }
            is_covered = false;
            // The rest of it may be in staging, and is to be durable there before it counts.
            if let Some(large) = large
                && hold.covers(id, size_bytes, &large.staged())
                && let Err(e) = large.checkpoint()
            {
                commit::ask_for_all(self, &large, &e);
            }
        }
        if is_covered {
            self.is_left.store(false, Relaxed);
            self.tell_left();
        }
    }

    fn tell_left(&self) {
        let durable = if mutant::is_on("delivered-when-buffered") { self.durable() } else { BUFFERED };
        let finished = Finished { job: self.number, durable: durable.to_owned(), ..Finished::default() };
        self.tell_times();
        let _ = self.finished.set(finished.clone());
        self.port.send(Message::Finished(finished.clone()));
        self.end.set(Ending::Finished(finished));
        self.decider.wake();
        self.committer.wake();
    }
}

/// Waits in steps until `is_done`, or the job is over.
pub(crate) fn wait_until(end: &End, is_done: &dyn Fn() -> bool) {
    while !is_done() && end.wait(std::time::Duration::from_millis(100)).is_none() {}
}
