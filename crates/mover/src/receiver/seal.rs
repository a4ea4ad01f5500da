//! Objects that grew and were sealed: what is held of them is compared with what their source holds now, chunk by chunk, before
//! they get their names.
//!
//! The sender reads each chunk again under the version that it sealed and tells its digest; here the staging is read. Chunks that
//! differ, because their writer went back to them, come again and are compared again.
//!
//! Invariants:
//! - Nothing that grew is published before every chunk of it was compared under one version of its source.
//! - An object whose source went on while it was compared waits for its next seal, however often. It fails when it is found changed
//!   again and again although its source says that it rests.
//!
//! Not here: when an object is sealed, which its source decides, and the bytes (`lane`).

use super::ReceiveJob;
use super::commit;
use super::complete;
use super::decide::Decide;
use super::events::Event;
use super::large::Large;
use super::policy::{self, Step};
use super::settling::Comparison;
use crate::digest::chunk_at;
use crate::limits::{BLOCK_BYTES, SETTLE_ROUNDS_MAX};
use crate::progress::count;
use model::{ChunkHasher, Digest, DigestAlgorithm, Extent, FailureKind, mutant};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::StagedFile;
use wire::limits::{CHUNK_DIGESTS_MAX, NAME_BYTES_MAX};
use wire::message::{AskDigests, DigestRecord, ExtentRecord, Resend, Seal, runs_of};
use wire::{CloseCode, Message, Refusal};

/// Chunks asked for at once: one window is digested there while the same one is read here.
const WINDOW_CHUNKS: u64 = 256;

impl ReceiveJob {
    /// All of a sealed object is held.
    pub(super) fn covered(&self, id: u64) {
        self.decider.push(Event::Covered(id));
    }

    /// Checks the word that an object is complete. An object that is settled, or was given up, may have crossed it; but some
    /// object of the job was described as one that grows, which the session has to have the feature for.
    pub(super) fn take_seal(&self, seal: Seal) -> Result<(), Refusal> {
        if !self.has_growing.load(Relaxed) {
            return Err(Refusal::new(CloseCode::WrongState, "an object is sealed in a job in which none grows"));
        }
        if seal.name.len() > NAME_BYTES_MAX {
            return Err(Refusal::new(CloseCode::Malformed, "an object is sealed with a name that is none"));
        }
        self.take_sealed(seal);
        Ok(())
    }
}

impl Decide<'_> {
    pub(super) fn sealed(&mut self, seal: &Seal) {
        let Some(large) = self.growing(seal.object) else { return };
        let entry = match seal.entry(large.entry()) {
            Ok(entry) if self.job.is_sealed_list(&entry) => {
                let (listed, index) = large.place().clone();
                return self.job.fail(&listed, index, FailureKind::NameRefused, complete::TAKEN.to_owned());
            }
            Ok(entry) if !entry.name.as_bytes().starts_with(store::STAGING_PREFIX) => entry,
            Ok(_) => return self.job.cancel(CloseCode::Malformed, "an object is sealed with a name kept for staging"),
            Err(refusal) => return self.job.cancel(refusal.code, &refusal.text),
        };
        // An answer to what was asked under the earlier seal is still to come.
        if self.settling.0.contains_key(&seal.object) {
            return large.seal(entry, large.rule, seal.is_append_only);
        }
        let rule = match self.job.sink.decide(&entry) {
            Ok(found) => match policy::step(&self.job.options, &entry, true, &found) {
                Step::Publish(rule) => self.rule_of(&entry, rule),
                Step::Skip | Step::Compare => {
                    self.job.list_found(&entry);
                    let outcome = super::settle::Outcome {
                        skipped: vec![(seal.object, entry.size_bytes())],
                        ..Default::default()
                    };
                    large.discard();
                    return self.job.settle(outcome);
                }
            },
            Err(e) => {
                let (listed, index) = large.place().clone();
                return self.job.fail(&listed, index, e.kind, e.message());
            }
        };
        large.seal(entry, rule, seal.is_append_only);
        self.covered(seal.object);
    }

    /// Begins to compare an object that is sealed and whole.
    pub(super) fn covered(&mut self, id: u64) {
        let Some(large) = self.growing(id) else { return };
        let Some(entry) = large.covered().filter(|_| !self.settling.0.contains_key(&id)) else { return };
        if mutant::is_on("seal-before-settling") {
            large.complete(entry.size_bytes(), [self.job.options.digest.of_object(b"")]);
            return commit::complete(self.job, large);
        }
        let comparison =
            Comparison { large, entry, asked: 0..0, digests: Vec::new(), here: Vec::new(), differing: Vec::new() };
        self.go_on(id, comparison);
    }

    /// Takes the sender's digests of a window; false where the object is not under comparison.
    pub(super) fn settled_window(&mut self, record: &DigestRecord) -> bool {
        // Of a window that was not asked for nothing is told.
        let is_asked = self.settling.0.get(&record.object).is_some_and(|comparison| !comparison.here.is_empty());
        if !is_asked {
            return self.settling.0.contains_key(&record.object);
        }
        let Some(mut comparison) = self.settling.0.remove(&record.object) else { return false };
        let algorithm = self.job.options.digest;
        let there: Vec<_> =
            record.digest.chunks(algorithm.digest_bytes()).map(|digest| algorithm.digest_from_bytes(digest)).collect();
        if there.len() != comparison.here.len() {
            // The source went on: its next seal, which may be here already, begins again.
            let (now, _) = comparison.large.final_entry();
            if now.generation != comparison.entry.generation || now.name != comparison.entry.name {
                self.covered(record.object);
            } else {
                comparison.large.unseal();
            }
            return true;
        }
        for ((chunk, here), there) in comparison.asked.clone().zip(&comparison.here).zip(there) {
            if Some(*here) != there {
                let size = comparison.entry.size_bytes();
                comparison.differing.push(chunk_at(chunk, self.job.options.chunk_bytes, size));
            }
        }
        comparison.digests.append(&mut comparison.here);
        self.go_on(record.object, comparison);
        true
    }

    fn growing(&self, id: u64) -> Option<Arc<Large>> {
        self.job.table.lock().unwrap().large_object(id).filter(|large| large.is_growing)
    }

    /// Asks for the next window, or comes to the end.
    fn go_on(&mut self, id: u64, mut comparison: Comparison) {
        let (size, chunk_bytes) = (comparison.entry.size_bytes(), self.job.options.chunk_bytes);
        let (first, chunks) = (comparison.asked.end, size.div_ceil(chunk_bytes));
        let is_append_only = comparison.large.is_append_only();
        if is_append_only && first > 0 && first + 1 < chunks {
            comparison.asked = first..(chunks - 1).min(first + WINDOW_CHUNKS);
            return self.take_for_granted(id, comparison);
        }
        let window = if is_append_only { 1 } else { WINDOW_CHUNKS };
        comparison.asked = first..chunks.min(first + window);
        if comparison.asked.is_empty() {
            return self.compared_whole(id, comparison);
        }
        self.job.digests_asked.fetch_add(1, Relaxed);
        self.job.port.send(Message::AskDigests(AskDigests {
            job: self.job.number,
            runs: runs_of(vec![id]),
            chunk_first: first,
            chunk_count: (comparison.asked.end - first) as u32,
        }));
        match self.read(&comparison) {
            Ok(here) => comparison.here = here,
            // The answer still comes, and is passed over.
            Err(e) => {
                let (listed, index) = comparison.large.place().clone();
                self.job.fail(&listed, index, e.kind, e.message());
            }
        }
        self.settling.0.insert(id, comparison);
    }

    /// Digests a window of chunks that the source need not read again; others have a turn before the next one.
    fn take_for_granted(&mut self, id: u64, mut comparison: Comparison) {
        match self.read(&comparison) {
            Ok(mut here) => comparison.digests.append(&mut here),
            Err(e) => {
                let (listed, index) = comparison.large.place().clone();
                return self.job.fail(&listed, index, e.kind, e.message());
            }
        }
        self.settling.0.insert(id, comparison);
        self.job.decider.push(Event::Granted(id));
    }

    /// Goes on after a window that was not asked for.
    pub(super) fn granted(&mut self, id: u64) {
        // Of what was asked for there is something here.
        if self.settling.0.get(&id).is_some_and(|comparison| comparison.here.is_empty())
            && let Some(comparison) = self.settling.0.remove(&id)
        {
            self.go_on(id, comparison);
        }
    }

    /// The digests of a window, from staging.
    fn read(&self, comparison: &Comparison) -> store::Result<Vec<Digest>> {
        let Some(file) = comparison.large.file(self.job)? else { return Ok(Vec::new()) };
        let (size, algorithm) = (comparison.entry.size_bytes(), self.job.options.digest);
        let chunks = comparison.asked.clone().take_while(|_| !self.job.end.is_set());
        let extents = chunks.map(|chunk| chunk_at(chunk, self.job.options.chunk_bytes, size));
        extents.map(|extent| of_staged(self.job, &*file, extent, (algorithm, size))).collect()
    }

    fn compared_whole(&mut self, id: u64, comparison: Comparison) {
        let Comparison { large, entry, mut digests, differing, .. } = comparison;
        let (now, _) = large.final_entry();
        if now.generation != entry.generation || now.name != entry.name {
            return self.covered(id);
        }
        if differing.is_empty() {
            // Of an empty object nothing came that would have opened its staging.
            if let Err(e) = large.file(self.job) {
                let (listed, index) = large.place().clone();
                return self.job.fail(&listed, index, e.kind, e.message());
            }
            if digests.is_empty() {
                digests.push(self.job.options.digest.of_object(b""));
            }
            if large.complete(entry.size_bytes(), digests) {
                commit::complete(self.job, large);
            }
            return;
        }
        let (listed, index) = large.place().clone();
        if large.distrust(entry.generation) > SETTLE_ROUNDS_MAX {
            let message = format!("the file was changed again each time it was compared, {SETTLE_ROUNDS_MAX} times");
            return self.job.fail(&listed, index, FailureKind::Changed, message);
        }
        let why = "its source was changed after it was read".to_owned();
        let extents: Vec<_> = differing
            .into_iter()
            .inspect(|extent| large.give_up(*extent))
            .map(|extent| ExtentRecord { object: id, start: extent.start, end: extent.end })
            .collect();
        for told in extents.chunks(wire::limits::EXTENTS_TOLD.min(1024)) {
            let (job, extents) = (self.job.number, told.to_vec());
            self.job.port.send(Message::Resend(Resend { job, extents, why: why.clone(), ..Resend::default() }));
        }
    }

    /// Puts down how far what grows has come, where no committer does it.
    pub(super) fn note_frontiers(&self) {
        let growing = self.job.table.lock().unwrap().large_objects().into_iter().filter(|large| large.is_growing);
        for large in growing {
            if let Err(e) = large.note_frontier() {
                commit::dead_staging(self.job, &large, &e);
            }
        }
    }
}

/// Of a chunk in staging, as the sender digests it in its source.
fn of_staged(
    job: &ReceiveJob,
    file: &dyn StagedFile,
    extent: Extent,
    (algorithm, size): (DigestAlgorithm, u64),
) -> store::Result<Digest> {
    let mut hasher = ChunkHasher::new(algorithm, extent.start);
    let mut block = vec![0; BLOCK_BYTES.min(extent.length() as usize)];
    let mut at = extent.start;
    while at < extent.end && !job.end.is_set() {
        let wanted = block.len().min((extent.end - at) as usize);
        let read = file.read_at(at, &mut block[..wanted])?;
        if read == 0 {
            let why = "what was written there is gone";
            return Err(store::Error::of_kind(FailureKind::WriteError, "read staged file", b"", why));
        }
        count(&job.progress.worked, 1);
        hasher.update(&block[..read]);
        at += read as u64;
    }
    let is_whole = extent == Extent::new(0, size) && !mutant::is_on("close-chunk-at-its-boundary");
    Ok(hasher.finish(is_whole))
}

const _: () = assert!(WINDOW_CHUNKS <= CHUNK_DIGESTS_MAX as u64);

#[cfg(test)]
mod tests;
