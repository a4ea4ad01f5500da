//! Describes the source to the receiver while lanes already send: batches, as far as the credit reaches.

use super::SendJob;
use super::kept::Kept;
use super::work::Batch;
use crate::limits::{BATCH_BYTES, BATCH_ENTRIES, DESCRIBE_PATIENCE, FIRST_BATCH_ENTRIES};
use crate::memory::Permit;
use crate::progress::count;
use model::{End, Failure, Kind};
use os::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::{Found, SourceObject};
use wire::listing::{REPLACEMENT_FIRST, record_of};
use wire::message::{Entries, ListEnd};
use wire::{CloseCode, Message};

/// Failures told in one frame.
const FAILURES_TOLD: usize = 256;
/// A batch leaves at the latest after this long, however few entries a slow source has given.
const BATCH_AGE_MAX: Duration = Duration::from_millis(20);

/// How often a scan that waits for memory looks whether there is some.
const MEMORY_INTERVAL: Duration = Duration::from_millis(50);
/// What an object takes beside its name and its attributes while it is not settled: its description here and in the book, its
/// record on its way.
const OBJECT_BYTES: usize = 2 * size_of::<SourceObject>() + 128;

fn bytes_of(object: &SourceObject) -> usize {
    let link_bytes = if let Kind::Symlink(link) = &object.entry.kind { link.len() } else { 0 };
    let attributes = object.entry.attributes.as_ref().map_or(0, |attributes| 2 * attributes.bytes() as usize + 128);
    OBJECT_BYTES + 2 * (object.entry.name.as_bytes().len() + link_bytes) + attributes
}

pub fn run(job: &Arc<SendJob>) {
    let mut scan = Scan::new(job);
    job.scanning.begin();
    let listed = job.source.scan(&mut |found| job.scanning.outside(|| scan.take(as_listed(found))));
    job.scanning.end();
    if job.end.is_set() {
        return;
    }
    if let Err(e) = listed {
        let code = if e.kind == model::FailureKind::NotFound { CloseCode::NotFound } else { CloseCode::Internal };
        return job.cancel(code, &e.to_string());
    }
    scan.finish();
}

/// Without following, what grows is copied as it was listed, and reported as changed where it grew meanwhile.
fn as_listed(found: Found) -> Found {
    match found {
        Found::Object(object) if object.is_growing() => Found::Object(SourceObject { end: End::Known, ..object }),
        found => found,
    }
}

pub(super) struct Scan<'a> {
    job: &'a Arc<SendJob>,
    objects: Vec<SourceObject>,
    /// Names and links in the batch.
    bytes: usize,
    batch_max: usize,
    since: Instant,
    failures: Vec<(u64, Failure)>,
    entries: u64,
    content_bytes: u64,
    kept: Kept,
}

impl<'a> Scan<'a> {
    pub(super) fn new(job: &'a Arc<SendJob>) -> Scan<'a> {
        Scan {
            job,
            objects: Vec::new(),
            bytes: 0,
            batch_max: FIRST_BATCH_ENTRIES,
            since: Instant::now(),
            failures: Vec::new(),
            entries: 0,
            content_bytes: 0,
            kept: Kept::new(job.options.fidelity),
        }
    }

    /// Nothing more is described.
    pub(super) fn finish(mut self) {
        let job = self.job;
        self.flush();
        self.flush_failures();
        job.warn([job.source.take_warnings(), self.kept.take_warnings()].concat());
        let end = ListEnd { job: job.number, entries: self.entries, bytes: self.content_bytes };
        job.progress.is_listing_complete.store(true, Relaxed);
        // Said before it is noted: with the note, an answer that comes in at this moment may finish the job.
        job.port.send(Message::ListEnd(end));
        job.book.lock().unwrap().split.listing_complete();
        job.finish_if_complete();
        job.work.notify_all();
    }

    /// False when the job is over.
    pub(super) fn take(&mut self, found: Found) -> bool {
        match found {
            Found::Failed(failure) => {
                self.failures.push((0, failure));
                count(&self.job.progress.counters.files_listed, 1);
                if self.failures.len() >= FAILURES_TOLD {
                    self.flush_failures();
                }
            }
            Found::Object(mut object) => {
                self.bytes += self.kept.take(&mut object, &*self.job.source);
                let link_bytes = if let Kind::Symlink(link) = &object.entry.kind { link.len() } else { 0 };
                self.bytes += object.entry.name.as_bytes().len() + link_bytes;
                if self.objects.is_empty() {
                    self.since = Instant::now();
                }
                self.objects.push(object);
                let is_old = self.objects.len().is_multiple_of(16) && self.since.elapsed() > BATCH_AGE_MAX;
                if self.objects.len() >= self.batch_max || self.bytes >= BATCH_BYTES || is_old {
                    return self.flush();
                }
            }
        }
        !self.job.end.is_set()
    }

    /// Describes the batch, waiting for credit. False when the job is over.
    pub(super) fn flush(&mut self) -> bool {
        if self.objects.is_empty() {
            return !self.job.end.is_set();
        }
        let objects = std::mem::take(&mut self.objects);
        self.bytes = 0;
        // Growing, so that the first ones fit the window of a connection that has just begun, and are answered at once.
        self.batch_max = (2 * self.batch_max).min(BATCH_ENTRIES);
        let counters = &self.job.progress.counters;
        for object in &objects {
            match object.entry.kind {
                Kind::Directory => count(&counters.directories, 1),
                // Counted when they are made, in the end.
                Kind::HardLink(_) => {}
                _ => count(&counters.files_listed, 1),
            }
            let size = object.entry.size_bytes();
            count(&counters.bytes_listed, size);
            self.content_bytes += size;
        }
        let is_replacement = objects[0].entry.id.0 >= REPLACEMENT_FIRST;
        // Those that replace others are not counted again.
        self.entries += if is_replacement { 0 } else { objects.len() as u64 };
        let records = objects.iter().map(|o| record_of(&o.entry, o.end)).collect();
        let message = Entries { job: self.job.number, first: objects[0].entry.id.0, entries: records };
        for names in self.kept.names(self.job.number, &objects, &*self.job.source) {
            self.job.port.send(Message::Names(names));
        }
        let Some(charge) = self.charge(&objects) else { return false };
        let mut book = self.job.book.lock().unwrap();
        while book.split.describable() < objects.len() as u64 || !self.kept.has_room_for(&objects) {
            if self.job.end.is_set() {
                return false;
            }
            book = self.job.work.wait_timeout(book, super::CLAIM_PATIENCE).unwrap().0;
        }
        book.split.describe(Arc::new(Batch { objects, charge: Some(charge) }));
        drop(book);
        self.job.port.send(Message::Entries(message));
        !self.job.end.is_set()
    }

    /// Waits for the memory that a batch takes, as long as something moves. `None` when the job is over.
    fn charge(&self, objects: &[SourceObject]) -> Option<Permit> {
        let bytes = objects.iter().map(bytes_of).sum();
        let mut last = (self.job.progress.headway(), Instant::now());
        loop {
            let refusal = match self.job.memory().hold(bytes, "descriptions") {
                Ok(charge) => return Some(charge),
                Err(refusal) => refusal,
            };
            let mark = self.job.progress.headway();
            if mark != last.0 {
                last = (mark, Instant::now());
            } else if last.1.elapsed() >= DESCRIBE_PATIENCE {
                self.job.cancel(refusal.code, &refusal.text);
            }
            if self.job.end.is_set() {
                return None;
            }
            let book = self.job.book.lock().unwrap();
            drop(self.job.work.wait_timeout(book, MEMORY_INTERVAL).unwrap());
        }
    }

    pub(super) fn flush_failures(&mut self) {
        if !self.failures.is_empty() {
            self.job.tell_failures(std::mem::take(&mut self.failures));
        }
    }
}
