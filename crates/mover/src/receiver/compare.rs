//! Objects of the same size, compared by digest: each side reads its own, and only digests travel.
//!
//! A batch in which something is compared is decided as a whole when all answers are there; the batches behind it do not
//! wait for it. Bounded by the entries' credit.

use super::ReceiveJob;
use super::decide::Answer;
use crate::digest::of_file;
use crate::progress::count;
use model::{Digest, Entry};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use store::Decision;
use wire::Message;
use wire::message::{AskDigests, DigestRecord, runs_of};

/// A file that may be the same.
pub struct Candidate {
    /// Its place in its batch.
    pub index: usize,
    pub entry: Entry,
    pub found: Decision,
}

/// A batch that waits for digests.
pub struct Waiting {
    pub answer: Answer,
    pub directories: u64,
    open: HashMap<u64, (Candidate, Option<Digest>)>,
}

/// What came of a comparison.
pub struct Compared {
    pub candidate: Candidate,
    pub is_same: bool,
}

#[derive(Default)]
pub struct Comparisons {
    waiting: BTreeMap<u64, Waiting>,
}

impl Comparisons {
    /// Asks the sender for digests, and makes those of this side meanwhile.
    pub fn ask(&mut self, job: &ReceiveJob, first: u64, answer: Answer, directories: u64, candidates: Vec<Candidate>) {
        let ids = candidates.iter().map(|candidate| candidate.entry.id.0).collect();
        job.digests_asked.fetch_add(candidates.len() as u64, Relaxed);
        job.port.send(Message::AskDigests(AskDigests { job: job.number, runs: runs_of(ids) }));
        let mut open = HashMap::new();
        for candidate in candidates {
            let file = job.sink.open_published(&candidate.entry);
            let size = candidate.entry.size_bytes();
            let goes_on = || {
                count(&job.progress.blocks_compared, 1);
                !job.end.is_set()
            };
            let digest = file.and_then(|file| of_file(&*file, size, job.options.digest, &goes_on));
            open.insert(candidate.entry.id.0, (candidate, digest.ok().flatten()));
        }
        self.waiting.insert(first, Waiting { answer, directories, open });
    }

    /// Takes an answer: what came of it, and whether its batch waits for nothing more. `None` for what was not asked.
    pub fn take(&mut self, job: &ReceiveJob, record: &DigestRecord) -> Option<(u64, Compared)> {
        let (first, waiting) = self.waiting.range_mut(..=record.object).next_back()?;
        let (candidate, here) = waiting.open.remove(&record.object)?;
        let there = job.options.digest.digest_from_bytes(&record.digest);
        let is_same = here.is_some() && here == there;
        Some((*first, Compared { candidate, is_same }))
    }

    pub fn answer_of(&mut self, first: u64) -> &mut Answer {
        &mut self.waiting.get_mut(&first).expect("it waits").answer
    }

    /// The batch, if it waits for nothing more.
    pub fn complete(&mut self, first: u64) -> Option<Waiting> {
        if !self.waiting.get(&first)?.open.is_empty() {
            return None;
        }
        self.waiting.remove(&first)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
