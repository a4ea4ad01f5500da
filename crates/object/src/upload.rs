//! A large object on its way: blocks become parts, and parts leave when they are complete.
//!
//! Parts are equal, but for the last; they grow with the object so that it has no more of them than a store takes. An object of one
//! part leaves whole, when it is published.
//!
//! Invariants: an upload is completed, aborted, or left with a log that the next attempt goes on from (`resume`); a part counts when
//! the store confirmed it; bytes that come twice replace what they were. What a part had is gone once it has left. So one of several
//! chunks leaves when all of them were verified, because a chunk that was not may come again; a chunk of several parts brings each of
//! them anew. A part of which only something came again is missing, and makes no object.

use crate::calls::{CopyOf, PARTS_MAX, Part};
use crate::failure::{Failure, Result, Why};
use crate::filling::Filling;
use crate::job::Job;
use crate::publish::prefix_of;
use crate::reading::ObjectFile;
use crate::upload_log::UploadLog;
use crate::width::Permit;
use model::{Digest, DigestAlgorithm, Entry, Extent, ExtentSet, FailureKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{Builder, JoinHandle};
use store::{PublishRule, SourceFile, StagedFile};

pub const PART_BYTES: u64 = 8 << 20;
/// What stores take as one part.
const PART_BYTES_MAX: u64 = 5 << 30;
/// Of an object whose end is not known.
const OPEN_PART_BYTES: u64 = 64 << 20;

pub struct ObjectUpload {
    pub job: Arc<Job>,
    /// Its metadata is that of the entry it was begun with.
    pub entry: Entry,
    pub key: String,
    pub size_bytes: Option<u64>,
    pub part_bytes: u64,
    pub shared: Arc<Shared>,
}

#[derive(Default)]
pub struct Shared {
    pub state: Mutex<State>,
    changed: Condvar,
    /// Held while the upload is begun.
    beginning: Mutex<()>,
    /// Where what the store confirmed is put down.
    pub log: OnceLock<UploadLog>,
}

#[derive(Default)]
pub struct State {
    pub id: Option<String>,
    filling: BTreeMap<u64, Filling>,
    /// Of those, what was verified whole.
    ready: BTreeSet<u64>,
    under_way: BTreeSet<u64>,
    /// Parts that the store has, numbered from 0.
    pub sent: BTreeMap<u64, Part>,
    failed: Option<Failure>,
    /// The store is to copy it from there.
    copied: Option<CopyOf>,
    /// Finds out what the store does with conditions.
    learning: Option<JoinHandle<()>>,
    is_over: bool,
}

impl State {
    /// Nothing was written to it.
    fn is_empty(&self) -> bool {
        self.id.is_none() && self.filling.is_empty() && !self.is_over
    }
}

/// The length of parts of an object of this size.
fn part_bytes(size_bytes: u64) -> u64 {
    let mut length = PART_BYTES;
    while size_bytes.div_ceil(length) > u64::from(PARTS_MAX) {
        length *= 2;
    }
    length
}

impl ObjectUpload {
    /// # Errors
    /// When no store takes an object of that size.
    pub fn begin(job: Arc<Job>, entry: &Entry, key: String) -> store::Result<ObjectUpload> {
        let size_bytes = Some(entry.size_bytes()).filter(|size| *size > 0);
        let part_bytes = size_bytes.map_or(OPEN_PART_BYTES, part_bytes);
        if part_bytes > PART_BYTES_MAX {
            let why = "it is larger than an object can be: a store takes 10,000 parts of at most 5 GiB";
            return Err(store::Error::of_entry(FailureKind::Permission, "write file", entry, why));
        }
        Ok(ObjectUpload { job, entry: entry.clone(), key, size_bytes, part_bytes, shared: Arc::default() })
    }

    /// Several chunks make a part, each of which may come again until it was verified.
    fn waits_for_seals(&self) -> bool {
        self.job.chunk_bytes < self.part_bytes
    }

    /// How long a part is, as far as the object's end is known.
    pub fn length(&self, number: u64) -> u64 {
        let start = number * self.part_bytes;
        self.size_bytes.map_or(self.part_bytes, |size| self.part_bytes.min(size.saturating_sub(start)))
    }

    fn error(&self, failure: &Failure) -> store::Error {
        failure.on("write file", &self.key)
    }

    fn refused(&self, why: &str) -> store::Error {
        store::Error::of_kind(FailureKind::WriteError, "write file", self.key.as_bytes(), why)
    }

    /// Waits until a part may be written to, and begins it if it is not begun.
    fn open_part(&self, number: u64) -> store::Result<MutexGuard<'_, State>> {
        let mut room: Option<Permit> = None;
        loop {
            let mut state = self.shared.state.lock().unwrap();
            while state.under_way.contains(&number) {
                state = self.shared.changed.wait(state).unwrap();
            }
            if let Some(failure) = &state.failed {
                return Err(self.error(failure));
            }
            if state.is_over {
                return Err(self.refused("its upload is over"));
            }
            if state.filling.contains_key(&number) {
                return Ok(state);
            }
            if let Some(room) = room.take() {
                if state.sent.remove(&number).is_some()
                    && let Some(log) = self.shared.log.get()
                {
                    log.replaced(number as u32 + 1);
                }
                state.filling.insert(number, Filling::new(room));
                return Ok(state);
            }
            // Whoever completes another one needs the state.
            drop(state);
            room = self.job.rooms.take(self.length(number), &mut || self.send_sealed(number))?;
            if room.is_none() {
                return Err(self.no_room());
            }
        }
    }

    /// Where the job is over, what the store has is left to the next attempt, also when this one discards it.
    fn no_room(&self) -> store::Error {
        if !self.job.rooms.is_over() {
            return self.refused("too many parts of objects are begun, and none was completed for a minute");
        }
        let over = Failure::new(Why::Unknown, "the job is over");
        let mut state = self.shared.state.lock().unwrap();
        self.error(state.failed.get_or_insert(over))
    }

    /// Puts bytes of one part in their place; sends it when it is complete, unless it has to be verified first.
    fn put(&self, number: u64, offset: u64, bytes: &[u8]) -> store::Result<()> {
        let length = self.length(number);
        if offset + bytes.len() as u64 > length {
            return Err(self.refused("it is longer than it was described"));
        }
        if number >= u64::from(PARTS_MAX) {
            return Err(self.refused("an object whose size is not known before it comes has at most 625 GiB"));
        }
        let mut state = self.open_part(number)?;
        // Until what comes again was verified too.
        state.ready.remove(&number);
        let Some(part) = state.filling.get_mut(&number) else { return Err(self.refused("its upload is over")) };
        if part.write(offset, bytes, length, self.size_bytes.is_none()).is_err() {
            return Err(self.refused(&format!("there is no memory for a part of {length} bytes")));
        }
        self.job.rooms.moved();
        let is_single = self.size_bytes.is_some_and(|size| size <= self.part_bytes);
        if self.waits_for_seals() || is_single || !part.is_written(length) {
            return Ok(());
        }
        self.send_complete(state, number)
    }

    fn send_complete(&self, mut state: MutexGuard<'_, State>, number: u64) -> store::Result<()> {
        let Some(part) = state.filling.remove(&number) else { return Ok(()) };
        state.under_way.insert(number);
        drop(state);
        self.send(number, part, self.length(number)).map_err(|failure| self.error(&failure))
    }

    /// Sends what was verified meanwhile, but for the part that is about to be written to.
    fn send_sealed(&self, but: u64) -> store::Result<()> {
        loop {
            let mut state = self.shared.state.lock().unwrap();
            let Some(number) = state.ready.iter().copied().find(|number| *number != but) else { return Ok(()) };
            state.ready.remove(&number);
            self.send_complete(state, number)?;
        }
    }

    /// Notes what was verified. It waits for nothing: what is complete by it goes with whatever is written next, or at the end.
    fn seal(&self, extent: Extent) {
        if !self.waits_for_seals() {
            return;
        }
        let mut state = self.shared.state.lock().unwrap();
        let state = &mut *state;
        let is_single = self.size_bytes.is_some_and(|size| size <= self.part_bytes);
        for number in extent.start / self.part_bytes..extent.end.div_ceil(self.part_bytes) {
            let start = number * self.part_bytes;
            let end = extent.end.min(start + self.part_bytes);
            let Some(part) = state.filling.get_mut(&number) else { continue };
            part.seal(Extent::new(extent.start.max(start) - start, end - start));
            if !is_single && part.is_sealed(self.length(number)) {
                state.ready.insert(number);
            }
        }
    }

    /// Sends a part, which is marked as under way.
    fn send(&self, number: u64, part: Filling, length: u64) -> Result<()> {
        let sent = self.id().map(|id| self.spawn(id, number, part.into_bytes(length)));
        if let Err(failure) = &sent {
            self.shared.settle(number, Err(failure.clone()));
        }
        sent
    }

    /// The upload, begun by the first part that leaves.
    pub fn id(&self) -> Result<String> {
        // Others wait for the one request; whoever only notes something does not.
        let _one = self.shared.beginning.lock().unwrap();
        let known = self.shared.state.lock().unwrap().id.clone();
        if let Some(id) = known {
            return Ok(id);
        }
        // The parts find connections that are open by the time they may leave.
        self.job.bucket.warm(self.size_bytes.map_or(1, |size| size.div_ceil(self.part_bytes)) as usize);
        let id = self.job.bucket.begin_upload(&self.key, &self.job.meta(&self.entry))?;
        if let Some(log) = self.shared.log.get() {
            log.begun(&id);
        }
        let learning = self.learn_conditions();
        let mut state = self.shared.state.lock().unwrap();
        (state.id, state.learning) = (Some(id.clone()), learning);
        Ok(id)
    }

    /// What the store does with conditions is found out beside the parts, so that publishing at a far store need not wait for it.
    /// What fails here is tried again then.
    fn learn_conditions(&self) -> Option<JoinHandle<()>> {
        let (bucket, key) = (self.job.bucket.clone(), self.key.clone());
        let is_unknown = bucket.conditions.try_lock().is_ok_and(|tried| tried.known.is_none());
        let learn = move || drop(bucket.conditions(prefix_of(&key)));
        is_unknown.then(|| Builder::new().name("store".to_owned()).spawn(learn).ok()).flatten()
    }

    fn spawn(&self, id: String, number: u64, (bytes, mut room): (Vec<u8>, Permit)) {
        let (bucket, key, shared) = (self.job.bucket.clone(), self.key.clone(), self.shared.clone());
        room.leaves();
        let run = move || {
            let sent = bucket.put_part(&key, &id, number as u32 + 1, &bytes);
            room.end_with(bytes);
            shared.settle(number, sent);
        };
        if let Err(e) = Builder::new().name("store".to_owned()).spawn(run) {
            self.shared.settle(number, Err(Failure::new(Why::Other, format!("no thread to send it: {e}"))));
        }
    }

    /// Everything that was written is with the store; an object of one part is returned instead.
    fn finish(&self, size: u64) -> store::Result<Finished> {
        let count = size.div_ceil(self.part_bytes).max(1);
        let length = |number: u64| self.part_bytes.min(size.saturating_sub(number * self.part_bytes));
        let missing = || self.refused("a part of it is missing");
        let mut state = self.shared.state.lock().unwrap();
        let is_whole = |(number, part): (&u64, &Filling)| *number < count && part.is_written(length(*number));
        if !state.filling.iter().all(is_whole) {
            return Err(missing());
        }
        if state.id.is_none() && count == 1 && state.under_way.is_empty() {
            return match state.filling.remove(&0) {
                Some(whole) => {
                    let (bytes, room) = whole.into_bytes(size);
                    Ok(Finished::Whole(bytes, Some(room)))
                }
                None if size == 0 => Ok(Finished::Whole(Vec::new(), None)),
                None => Err(missing()),
            };
        }
        state.ready.clear();
        let rest = std::mem::take(&mut state.filling);
        state.under_way.extend(rest.keys());
        drop(state);
        let mut rest = rest.into_iter();
        while let Some((number, part)) = rest.next() {
            if let Err(failure) = self.send(number, part, length(number)) {
                // Nobody waits for what is not sent any more.
                rest.for_each(|(number, _)| self.shared.settle(number, Err(failure.clone())));
                return Err(self.error(&failure));
            }
        }
        let mut state = self.shared.state.lock().unwrap();
        while !state.under_way.is_empty() {
            state = self.shared.changed.wait(state).unwrap();
        }
        if let Some(failure) = &state.failed {
            return Err(self.error(failure));
        }
        let parts: Vec<Part> = state.sent.values().cloned().collect();
        let is_in_place =
            |(at, part): (usize, &Part)| part.number as usize == at + 1 && part.size_bytes == length(at as u64);
        match (parts.len() as u64 == count && parts.iter().enumerate().all(is_in_place), &state.id) {
            (true, Some(id)) => Ok(Finished::Parts(id.clone(), parts)),
            _ => Err(missing()),
        }
    }

    /// Ends the upload without an object, or leaves it to the next attempt, if there is one to be left and it `may_stay`.
    pub fn end(&self, may_stay: bool) {
        let mut state = self.shared.state.lock().unwrap();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        state.filling.clear();
        state.ready.clear();
        while !state.under_way.is_empty() {
            state = self.shared.changed.wait(state).unwrap();
        }
        let log = self.shared.log.get();
        // Nothing goes on with one whose end was not known.
        let stays = may_stay && self.size_bytes.is_some() && !state.sent.is_empty();
        if let Some(log) = log.filter(|log| stays && log.is_kept()) {
            log.release();
            return;
        }
        let id = state.id.take();
        drop(state);
        // What stays of it is told by `thalweg uploads ls`.
        let is_gone = id.is_none_or(|id| self.job.bucket.abort(&self.key, &id).is_ok());
        match log {
            Some(log) if is_gone => log.forget(),
            Some(log) => log.release(),
            None => {}
        }
    }

    fn published(&self) {
        self.shared.state.lock().unwrap().is_over = true;
        if let Some(log) = self.shared.log.get() {
            log.forget();
        }
    }

    /// Publishing failed. Where the store may do it later it stays as it is, also when it is discarded; parts that are not what was
    /// sent do not.
    fn not_published(&self, failure: Failure) -> store::Error {
        if failure.may_stay() && failure.why != Why::Damaged {
            _ = self.shared.state.lock().unwrap().failed.get_or_insert(failure.clone());
        } else {
            self.end(false);
        }
        failure.on("publish", &self.key)
    }
}

enum Finished {
    Whole(Vec<u8>, Option<Permit>),
    Parts(String, Vec<Part>),
}

impl Shared {
    fn settle(&self, number: u64, sent: Result<Part>) {
        let mut state = self.state.lock().unwrap();
        state.under_way.remove(&number);
        match sent {
            Ok(part) => {
                if let Some(log) = self.log.get() {
                    log.confirmed(&part);
                }
                state.sent.insert(number, part);
            }
            Err(failure) => _ = state.failed.get_or_insert(failure),
        }
        self.changed.notify_all();
    }
}

impl StagedFile for ObjectUpload {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> store::Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let number = at / self.part_bytes;
            let within = at - number * self.part_bytes;
            let (now, after) = rest.split_at(rest.len().min((self.part_bytes - within) as usize));
            if self.waits_for_seals() {
                self.send_sealed(number)?;
            }
            self.put(number, within, now)?;
            (at, rest) = (at + now.len() as u64, after);
        }
        Ok(())
    }

    /// Nothing is done before the object is published: then the store copies it.
    fn share_from(&self, source: &dyn SourceFile) -> bool {
        let source = source.native().and_then(|native| native.downcast_ref::<ObjectFile>());
        let Some(source) = source.filter(|source| self.job.bucket.is_store_of(&source.bucket)) else { return false };
        let ObjectFile { bucket, key, object, .. } = source;
        let may = self.shared.state.lock().unwrap().is_empty()
            && !self.job.bucket.copies_not.load(Relaxed)
            && !self.job.uncopied.lock().unwrap().contains(&self.job.bucket.number(&self.key, ""))
            && !object.etag.is_empty()
            && (&bucket.name, key) != (&self.job.bucket.name, &self.key);
        if !may {
            return false;
        }
        // A listing does not tell it, and the answer that does may be on its way.
        let crc = source.stored_crc();
        if object.size_bytes > self.job.bucket.copy_bytes_max && crc.is_none() {
            return false;
        }
        let (bucket, key, etag) = (bucket.name.clone(), key.clone(), object.etag.clone());
        self.shared.state.lock().unwrap().copied = Some(CopyOf { bucket, key, etag, crc });
        true
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> store::Result<usize> {
        Err(store::Error::of_kind(
            FailureKind::ReadError,
            "read back",
            b"",
            "an object store returns nothing of an open upload",
        ))
    }

    fn kept(&self, recorded: &[(Extent, Digest)]) -> Option<Vec<bool>> {
        Some(self.keep(recorded))
    }

    fn again_from(&self, start: u64) -> u64 {
        start / self.part_bytes * self.part_bytes
    }

    fn seal_extent(&self, extent: Extent, record: &[u8]) -> store::Result<()> {
        self.seal(extent);
        if record.is_empty() { Ok(()) } else { self.append_journal(record) }
    }

    fn append_journal(&self, bytes: &[u8]) -> store::Result<()> {
        if let Some(log) = self.shared.log.get() {
            log.append_journal(bytes);
        }
        Ok(())
    }

    fn truncate_journal(&self, length: u64) -> store::Result<()> {
        if let Some(log) = self.shared.log.get() {
            log.truncate_journal(length);
        }
        Ok(())
    }

    fn checkpoint(&self) -> store::Result<()> {
        Ok(())
    }

    /// Whole parts that the store has and of which the log tells the next attempt. What is being filled, or is on its way, goes with
    /// this process.
    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        let mut confirmed = ExtentSet::default();
        let state = self.shared.state.lock().unwrap();
        for number in state.sent.iter().filter(|(_, part)| part.crc.is_some()).map(|(number, _)| *number) {
            let start = number * self.part_bytes;
            let part = Extent::new(start, start + self.length(number));
            if held.contains(part) {
                confirmed.insert(part);
            }
        }
        drop(state);
        match self.shared.log.get() {
            Some(log) if self.size_bytes.is_some() && !confirmed.is_empty() && log.sync() => confirmed,
            _ => ExtentSet::default(),
        }
    }

    fn reread(&self, _: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        self.read_at(0, &mut []).map(drop)
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> store::Result<()> {
        // What else waits for its name waits for this one.
        let _busy = self.job.rooms.busy();
        let size = entry.size_bytes();
        let copied = self.shared.state.lock().unwrap().copied.take();
        if let Some(from) = copied {
            let published =
                self.job.publish_copy(entry, &self.key, rule, |condition| self.copy(entry, &from, condition));
            return published.inspect(|()| self.published());
        }
        let published = match self.finish(size)? {
            Finished::Whole(bytes, _room) => {
                return self.job.publish(entry, &self.key, &bytes, rule).inspect(|()| self.published());
            }
            Finished::Parts(id, parts) => {
                let sums: Vec<_> = parts.iter().map(|part| Digest::Crc64Nvme(part.crc.unwrap_or_default())).collect();
                let Digest::Crc64Nvme(crc) = DigestAlgorithm::Crc64Nvme.combine(&sums, self.part_bytes, size) else {
                    unreachable!("a combined CRC is a CRC")
                };
                let (bucket, meta) = (&self.job.bucket, self.job.meta(&self.entry));
                self.job.write(&self.key, rule, |condition| {
                    bucket.publish_parts((&self.key, &id), &parts, crc, &meta, condition)
                })
            }
        };
        published.map_err(|failure| self.not_published(failure))?;
        self.job.note_unverified(entry);
        self.published();
        Ok(())
    }

    /// What a store in trouble has of it is asked for once more by whoever begins again. Of any other it cannot be told whether its
    /// content is wanted.
    fn discard(&self) {
        let may_stay = self.shared.state.lock().unwrap().failed.as_ref().is_some_and(Failure::may_stay);
        self.end(may_stay);
    }
}

impl Drop for ObjectUpload {
    fn drop(&mut self) {
        self.end(true);
        // Its scratch object is removed before the job ends.
        let learning = self.shared.state.lock().unwrap().learning.take();
        learning.map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_so_that_no_object_has_too_many() {
        for (size, length) in
            [(1, 8 << 20), (80_000 << 20, 8 << 20), ((80_000 << 20) + 1, 16 << 20), (5 << 40, 1 << 30)]
        {
            assert_eq!(part_bytes(size), length, "{size}");
            assert!(size.div_ceil(part_bytes(size)) <= u64::from(PARTS_MAX));
        }
    }
}
