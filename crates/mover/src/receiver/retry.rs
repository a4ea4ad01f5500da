//! What is asked for again: content that was not what its digest says, staging that was lost, streams that broke off.
//!
//! Invariant: an object fails after `TRIES_MAX` tries that were its own fault, or when too many of its job came damaged at once; a
//! broken stream is not one.

use super::ReceiveJob;
use super::listed::Listed;
use super::tries::CHUNKS_MAX;
use crate::limits::TRIES_MAX;
use model::{Extent, FailureKind};
use std::sync::Arc;
use wire::message::{ExtentRecord, Resend, runs_of};
use wire::{Message, bounded};

impl ReceiveJob {
    /// Asks for objects and chunks again after a mismatch or a failed sync; gives an object up after a few tries.
    pub(super) fn ask_again(
        &self,
        listed: &Arc<Listed>,
        index: usize,
        extent: Option<ExtentRecord>,
        why: &str,
        kind: FailureKind,
    ) {
        // Of a job that is over it is for the next attempt to ask, and no failure of the object.
        if self.end.is_set() {
            return;
        }
        let id = listed.expected(index).entry.id.0;
        let mut table = self.table.lock().unwrap();
        let (is_open, large) = (table.is_open(id), table.large_object(id));
        drop(table);
        // It came to its end meanwhile, by another lane.
        if !is_open {
            return;
        }
        let is_whole = |extent: &ExtentRecord| {
            large.as_ref().is_some_and(|large| large.wanted() == Extent::new(extent.start, extent.end))
        };
        let chunk = extent.filter(|extent| !is_whole(extent)).map(|extent| extent.start);
        let tries = self.tries.lock().unwrap().add(id, chunk);
        let Some(tries) = tries else {
            return self.fail(listed, index, kind, format!("{why}, as in {CHUNKS_MAX} other places"));
        };
        if tries >= TRIES_MAX {
            return self.fail(listed, index, kind, format!("{why}, {tries} times"));
        }
        if let Some(place) = self.place.get() {
            let is_all = extent.is_none_or(|extent| extent.end - extent.start > self.options.chunk_bytes);
            if extent.is_none() {
                self.table.lock().unwrap().expect_again(id);
            }
            let extent = extent.filter(|_| !is_all).map(|extent| Extent::new(extent.start, extent.end));
            return place.gather.again(id, extent);
        }
        let mut message = Resend { job: self.number, why: bounded(why).to_owned(), ..Resend::default() };
        match extent {
            Some(extent) => message.extents.push(extent),
            None => {
                self.table.lock().unwrap().expect_again(id);
                message.runs = runs_of(vec![id]);
            }
        }
        self.port.send(Message::Resend(message));
    }

    /// A chunk that came is there: what it took to get it does not count any more.
    pub(super) fn came_right(&self, id: u64, extent: Extent) {
        self.tries.lock().unwrap().came(id, extent);
    }

    /// A stream ended in the middle of an object. That is no fault of the object's: however often streams break, it does not
    /// fail by it. How often they may is decided where they are replaced.
    pub(super) fn broke_off(&self, id: u64) {
        self.table.lock().unwrap().expect_again(id);
        if let Some(place) = self.place.get() {
            return place.gather.again(id, None);
        }
        let why = "the stream ended early".to_owned();
        self.port.send(Message::Resend(Resend { job: self.number, runs: runs_of(vec![id]), why, ..Resend::default() }));
    }
}
