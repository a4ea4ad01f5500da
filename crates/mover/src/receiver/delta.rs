//! Large files that replace others, with `--delta`: what the old one has of the new one is taken over, chunk by chunk at the
//! same place.
//!
//! The sender tells the digests of its chunks, a window at a time. Meanwhile the old file's chunks of that window are copied
//! into staging; those that have the sender's digest are held, as if an interrupted attempt had brought them, and the others
//! come as data, over what was copied.
//!
//! Invariants:
//! - A chunk is held only when the bytes that were written to staging have the digest that the sender told.
//! - The old file is only read. It stands until the new one is complete and takes its name.
//!
//! Not here: content that moved to another place in its file; all of what is behind it travels.

use super::ReceiveJob;
use super::large::Large;
use crate::digest::{chunk_at, of_chunk};
use crate::progress::count;
use model::{Digest, Entry, mutant};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use store::{PublishRule, SourceFile, StagedFile};
use wire::Message;
use wire::limits::CHUNK_DIGESTS_MAX;
use wire::message::{AskDigests, DigestRecord, runs_of};

/// Chunks asked for at once: one window is digested there while the same one is copied here.
const WINDOW_CHUNKS: u64 = 256;

/// One file under comparison.
pub struct Delta {
    /// Its place in its batch.
    pub index: usize,
    pub entry: Entry,
    pub rule: PublishRule,
    /// As in `Expected`.
    pub room_bytes: u64,
    pub large: Arc<Large>,
    old: Arc<dyn SourceFile>,
    file: Arc<dyn StagedFile>,
    /// Chunks that the old file has whole.
    chunks: u64,
    asked: Range<u64>,
    /// What was copied of `asked`; nothing for a chunk that was held before.
    copied: Vec<Option<Digest>>,
}

impl Delta {
    /// Nothing where there is nothing to compare: then the object travels as any other.
    pub fn start(
        job: &ReceiveJob,
        entry: &Entry,
        (rule, room_bytes): (PublishRule, u64),
        large: &Arc<Large>,
        old_bytes: u64,
    ) -> Option<Delta> {
        let chunk_bytes = job.options.chunk_bytes;
        let chunks = match old_bytes >= entry.size_bytes() {
            true => entry.size_bytes().div_ceil(chunk_bytes),
            false => old_bytes / chunk_bytes,
        };
        if !job.compares_chunks()
            || large.is_open_ended
            || large.is_growing
            || large.range().is_some()
            || rule != PublishRule::Replace
            || chunks == 0
        {
            return None;
        }
        let old = job.sink.open_published(entry).ok()?;
        let file = large.staging(job, entry).ok()??;
        large.keep_place(job.delta_places.clone());
        let (entry, large) = (entry.clone(), large.clone());
        let (index, asked, copied) = (0, 0..0, Vec::new());
        Some(Delta { index, entry, rule, room_bytes, large, old, file, chunks, asked, copied })
    }

    /// With its place in its batch.
    pub fn placed(self, index: usize) -> Delta {
        Delta { index, ..self }
    }

    /// Asks for the digests of the next chunks, and copies them meanwhile. False when there are none any more.
    pub fn ask(&mut self, job: &ReceiveJob) -> bool {
        let first = self.asked.end;
        self.asked = first..self.chunks.min(first + WINDOW_CHUNKS);
        self.copied.clear();
        if self.asked.is_empty() {
            return false;
        }
        job.digests_asked.fetch_add(1, Relaxed);
        job.port.send(Message::AskDigests(AskDigests {
            job: job.number,
            runs: runs_of(vec![self.entry.id.0]),
            chunk_first: first,
            chunk_count: (self.asked.end - first) as u32,
        }));
        for chunk in self.asked.clone() {
            match self.copy(job, chunk) {
                Ok(digest) => self.copied.push(digest),
                // Whoever writes the rest will meet it again, and say so.
                Err(_) => break,
            }
        }
        true
    }

    /// `None` when it is held, or the old file ends before it.
    fn copy(&self, job: &ReceiveJob, chunk: u64) -> store::Result<Option<Digest>> {
        let extent = chunk_at(chunk, job.options.chunk_bytes, self.entry.size_bytes());
        if self.large.holds(extent) {
            return Ok(None);
        }
        of_chunk(&*self.old, extent, job.options.digest, &mut |at, block| {
            count(&job.progress.worked, 1);
            self.file.write_at(at, block)?;
            Ok(!job.end.is_set())
        })
    }

    /// Takes the answer in: what is the same is held. False when nothing more can be compared.
    pub fn compare(&mut self, job: &ReceiveJob, record: &DigestRecord) -> bool {
        let digest_bytes = job.options.digest.digest_bytes();
        let is_whole = self.copied.len() as u64 == self.asked.end - self.asked.start
            && record.digest.len() == self.copied.len() * digest_bytes;
        let told = record.digest.chunks_exact(digest_bytes);
        let mut held_bytes = 0;
        for ((chunk, here), there) in self.asked.clone().zip(&self.copied).zip(told) {
            let there = job.options.digest.digest_from_bytes(there);
            let is_same = |here: &Digest| Some(*here) == there || mutant::is_on("adopt-unlike-chunks");
            let Some(digest) = here.filter(is_same) else { continue };
            let extent = chunk_at(chunk, job.options.chunk_bytes, self.entry.size_bytes());
            if self.large.adopt(&self.file, extent, digest).is_err() {
                // Its log could not be written: it comes whole, into fresh staging.
                self.large.restart(&self.file);
                return false;
            }
            held_bytes += extent.length();
        }
        count(&job.progress.counters.bytes_resumed, held_bytes);
        is_whole && !job.end.is_set()
    }
}

const _: () = assert!(WINDOW_CHUNKS <= CHUNK_DIGESTS_MAX as u64);
