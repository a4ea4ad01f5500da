//! Objects compared by digest: each side reads its own, and only digests travel.
//!
//! A batch in which something is compared is decided as a whole when all answers are there; the batches behind it do not
//! wait for it. Bounded by the entries' credit.

use super::ReceiveJob;
use super::answer::Answer;
use super::delta::Delta;
use crate::digest::of_file;
use crate::progress::count;
use model::{Digest, Entry};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
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
    /// For the chunks of one that may differ.
    pub place: Option<Arc<()>>,
}

/// A batch that waits for digests.
pub struct Waiting {
    pub answer: Answer,
    pub directories: u64,
    open: HashMap<u64, Open>,
}

enum Open {
    /// With the digest of what is here.
    Whole(Candidate, Option<Digest>),
    Chunks(Delta),
}

/// What came of an answer.
pub enum Compared {
    Whole {
        candidate: Candidate,
        is_same: bool,
    },
    /// What the old file has of the new one is taken over.
    Chunks(Delta),
    /// More was asked.
    Asked,
}

#[derive(Default)]
pub struct Comparisons {
    waiting: BTreeMap<u64, Waiting>,
}

impl Comparisons {
    /// Asks the sender for digests, and makes those of this side meanwhile.
    pub fn ask(&mut self, job: &ReceiveJob, first: u64, answer: Answer, directories: u64, candidates: Vec<Candidate>) {
        self.waiting.insert(first, Waiting { answer, directories, open: HashMap::new() });
        if candidates.is_empty() {
            return;
        }
        let ids = candidates.iter().map(|candidate| candidate.entry.id.0).collect();
        job.digests_asked.fetch_add(candidates.len() as u64, Relaxed);
        job.port.send(Message::AskDigests(AskDigests { job: job.number, runs: runs_of(ids), ..AskDigests::default() }));
        for candidate in candidates {
            let file = job.sink.open_published(&candidate.entry);
            let size = candidate.entry.size_bytes();
            let goes_on = || {
                count(&job.progress.worked, 1);
                !job.end.is_set()
            };
            let digest = file.and_then(|file| of_file(&*file, size, job.options.digest, &goes_on));
            self.open(first).insert(candidate.entry.id.0, Open::Whole(candidate, digest.ok().flatten()));
        }
    }

    /// Asks for the first chunks of a file of a batch that waits.
    pub fn ask_chunks(&mut self, job: &ReceiveJob, first: u64, mut delta: Delta) {
        delta.ask(job);
        self.open(first).insert(delta.entry.id.0, Open::Chunks(delta));
    }

    /// Takes an answer: what came of it. `None` for what was not asked.
    pub fn take(&mut self, job: &ReceiveJob, record: &DigestRecord) -> Option<(u64, Compared)> {
        let (first, waiting) = self.waiting.range_mut(..=record.object).next_back()?;
        let compared = match waiting.open.remove(&record.object)? {
            Open::Whole(candidate, here) => {
                let there = job.options.digest.digest_from_bytes(&record.digest);
                Compared::Whole { candidate, is_same: here.is_some() && here == there }
            }
            Open::Chunks(mut delta) => {
                if delta.compare(job, record) && delta.ask(job) {
                    waiting.open.insert(record.object, Open::Chunks(delta));
                    Compared::Asked
                } else {
                    Compared::Chunks(delta)
                }
            }
        };
        Some((*first, compared))
    }

    fn open(&mut self, first: u64) -> &mut HashMap<u64, Open> {
        &mut self.waiting.get_mut(&first).expect("it waits").open
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
