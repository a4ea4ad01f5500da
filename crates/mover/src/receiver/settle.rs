//! Where objects come to their end: counted, told to the sender and to the observer, and the credit that they give back.
//!
//! Invariant: an object is settled once, whoever brings it to its end, and the observer hears of it before the sender.
//!
//! Not here: what is asked for again (`retry`), and the messages (`tell`).

use super::ReceiveJob;
use super::listed::Listed;
use super::table::Slot;
use super::tell::{self, Words};
use crate::job::{Delivered, bounded_path};
use crate::limits::{GRANT_STEP, IN_FLIGHT_BYTES};
use crate::progress::count;
use model::{Digest, Entry, Failure, FailureKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::limits::ENTRIES_OPEN_MAX;
use wire::message::{Credit, FailureRecord};
use wire::{CloseCode, Message, bounded};

/// Objects that came to their end together.
#[derive(Default)]
pub struct Outcome {
    pub published: Vec<Published>,
    /// Symbolic links that were made: they have no content and no digest.
    pub links: Vec<u64>,
    /// Ids and sizes.
    pub skipped: Vec<(u64, u64)>,
    pub failed: Vec<(u64, Failure)>,
}

pub struct Published {
    pub listed: Arc<Listed>,
    pub index: usize,
    pub digest: Digest,
    pub size_bytes: u64,
    /// It came in several chunks: the sender may not know the digest of the whole.
    pub is_chunked: bool,
}

impl Outcome {
    pub fn is_empty(&self) -> bool {
        self.published.is_empty() && self.links.is_empty() && self.skipped.is_empty() && self.failed.is_empty()
    }
}

impl ReceiveJob {
    /// The sender gave up an object: it is void here, and counted.
    pub(super) fn source_failed(&self, record: FailureRecord) {
        match record.object {
            0 => count(&self.progress.counters.files_listed, 1),
            id => {
                let is_given_up = self.give_up(id, FailureKind::from_number(record.kind) == FailureKind::Changed);
                // It arrived whole before the source failed, or had come to another end, and counts as that.
                if !is_given_up && !self.table.lock().unwrap().was_taken_back(id) {
                    return;
                }
            }
        }
        let kind = FailureKind::from_number(record.kind);
        if let Some(census) = self.census().filter(|_| record.object == 0) {
            match kind {
                FailureKind::Special => census.note_path(&bounded_path(&record.path)),
                // Two sources have it: the first of them is described.
                FailureKind::Duplicate => {}
                _ => census.note_gap(),
            }
        }
        self.count_failure(kind);
        if let Some(observer) = &self.observer {
            let message = model::name::Escaped(bounded(&record.text).as_bytes()).to_string();
            observer.failed(&Failure { path: bounded_path(&record.path), kind, message });
        }
    }

    pub(super) fn count_failure(&self, kind: FailureKind) {
        let counters = &self.progress.counters;
        let counter = if kind == FailureKind::Special { &counters.files_skipped } else { &counters.files_failed };
        count(counter, 1);
    }

    /// Forgets an object that will not come under this id. One that is settled already was counted then.
    pub(super) fn void(&self, id: u64) {
        self.give_up(id, false);
    }

    /// The same of an object that its sender took back with its content: it is counted when the sender says why.
    pub(super) fn take_back(&self, id: u64) {
        let slot = self.table.lock().unwrap().take_back(id);
        if let Some(slot) = slot {
            self.charge_taken_back();
            self.drop_slot(id, slot, false);
        }
    }

    /// False when the object is not open, or is being published. `is_unfinished` of one that grows: the next attempt goes on with what
    /// there is of it.
    fn give_up(&self, id: u64, is_unfinished: bool) -> bool {
        let slot = self.table.lock().unwrap().void(id);
        slot.map(|slot| self.drop_slot(id, slot, is_unfinished)).is_some()
    }

    fn drop_slot(&self, id: u64, slot: Slot, is_unfinished: bool) {
        self.tries.lock().unwrap().ended([id].into_iter());
        self.let_go([id].into_iter());
        match slot.large {
            Some(large) if large.is_growing && is_unfinished => {
                self.has_unfinished.store(true, Relaxed);
                large.leave();
            }
            Some(large) => large.discard(),
            None => {}
        }
        // Only what was open: a sender must not raise its own credit by giving up what it never described.
        self.count_settled(1);
    }

    /// Settles objects, tells the sender, the counters and the observer.
    pub(super) fn settle(&self, outcome: Outcome) {
        if outcome.is_empty() {
            return;
        }
        let counters = &self.progress.counters;
        let settled = [outcome.published.len(), outcome.links.len(), outcome.skipped.len(), outcome.failed.len()];
        let total = settled.iter().sum::<usize>() as u64;
        count(&counters.files_done, outcome.links.len() as u64);
        let mut words = Words::default();
        let wants_delivered = self.observer.as_ref().is_some_and(|o| o.wants_delivered());
        let (wants_paths, mut paths) = (wants_delivered || self.sealed_list.get().is_some(), Vec::new());
        let mut table = self.table.lock().unwrap();
        for published in &outcome.published {
            let entry = &published.listed.expected(published.index).entry;
            // What grew may have got another name when it was complete.
            let large = table.settle(entry.id.0).and_then(|slot| slot.large);
            if wants_paths {
                let path = match large.filter(|large| large.is_growing) {
                    Some(large) => self.sink.path(&large.final_entry().0),
                    None => self.sink.path(entry),
                };
                paths.push((path, published));
            }
            count(&counters.files_done, 1);
            count(&counters.bytes_done, published.size_bytes);
            words.published.push((entry.id.0, published.is_chunked.then(|| published.digest.to_bytes())));
        }
        for (id, size_bytes) in &outcome.skipped {
            table.give_up(*id);
            count(&counters.files_skipped, 1);
            count(&counters.bytes_skipped, *size_bytes);
        }
        drop(table);
        let ended = || {
            let published = outcome.published.iter().map(|p| p.listed.expected(p.index).entry.id.0);
            let others = outcome.skipped.iter().map(|(id, _)| *id).chain(outcome.failed.iter().map(|(id, _)| *id));
            published.chain(others).chain(outcome.links.iter().copied())
        };
        self.tries.lock().unwrap().ended(ended());
        self.let_go(ended());
        if !self.list_published(&paths) {
            return;
        }
        words.published.extend(outcome.links.into_iter().map(|id| (id, None)));
        words.skipped = outcome.skipped.iter().map(|(id, _)| *id).collect();
        for (id, failure) in outcome.failed {
            let failure = tell::at_destination(failure);
            self.count_failure(failure.kind);
            if let Some(observer) = &self.observer {
                observer.failed(&failure);
            }
            words.failed.push(tell::record_of(id, &failure));
        }
        // The observer hears first: once the sender knows, the job may end before this call returns.
        if let Some(observer) = &self.observer
            && wants_delivered
            && !paths.is_empty()
        {
            let delivered = |(path, p): (Vec<u8>, &Published)| {
                let (size_bytes, digest) = (p.size_bytes, p.digest);
                Delivered { path, size_bytes, digest }
            };
            observer.delivered(&paths.into_iter().map(delivered).collect::<Vec<_>>());
        }
        words.messages(self.number).for_each(|settled| self.port.send(Message::Settled(settled)));
        self.count_settled(total);
    }

    /// A destination without room ends the job, because every other object would fail too.
    pub(super) fn no_space(&self, entry: &Entry, message: &str) {
        let path = model::name::Escaped(&self.sink.path(entry)).to_string();
        self.cancel(CloseCode::NoSpace, &format!("no space at the destination ({path}: {message})"));
    }

    /// Fails one object.
    pub(super) fn fail(&self, listed: &Arc<Listed>, index: usize, kind: FailureKind, message: String) {
        let entry = &listed.expected(index).entry;
        if kind == FailureKind::NoSpace {
            return self.no_space(entry, &message);
        }
        if self.is_for_next_time(entry, kind, &message) {
            return;
        }
        // Two lanes may have failed it with two chunks: it is told once.
        let Some(slot) = self.table.lock().unwrap().give_up(entry.id.0) else { return };
        if let Some(large) = slot.large {
            large.discard();
        }
        let failure = Failure { path: self.sink.path(entry), kind, message };
        self.settle(Outcome { failed: vec![(entry.id.0, failure)], ..Outcome::default() });
    }

    pub(super) fn count_settled(&self, entries: u64) {
        if self.options.is_delta {
            self.decider.wake();
        }
        let settled = self.settled.fetch_add(entries, Relaxed) + entries;
        let last = self.granted_at.load(Relaxed);
        if settled - last.min(settled) >= GRANT_STEP
            && self.granted_at.compare_exchange(last, settled, Relaxed, Relaxed).is_ok()
        {
            self.grant(settled);
        }
    }

    pub(super) fn grant(&self, settled: u64) {
        let entries = settled + ENTRIES_OPEN_MAX;
        self.listing.lock().unwrap().grant(entries);
        let credit = Message::Credit(Credit { job: self.number, entries, in_flight_bytes: IN_FLIGHT_BYTES });
        match self.place.get() {
            // The book of several holders may be waiting.
            Some(_) => self.port.send_now(credit),
            None => self.port.send(credit),
        }
    }
}

#[cfg(test)]
mod tests;
