//! What is still missing of one large object, chunk by chunk: what the lead has proved, and who was asked for what.
//!
//! Invariants:
//! - A chunk is in one place at a time: missing without proof, under proof, free, asked of one holder, or here.
//! - What an earlier attempt left counts only after the lead has told the same digest for it.
//!
//! Pure. Not here: which holder takes what next (`book`).

use model::{Digest, Extent, ExtentSet};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks that the lead is asked to prove at once: the first window is small, so that work begins soon.
const WINDOW_CHUNKS_FIRST: u64 = 4;
const WINDOW_CHUNKS_MAX: u64 = 32;

pub struct Spans {
    size_bytes: u64,
    chunk_bytes: u64,
    /// Neither proved, nor asked of anybody.
    unproved: ExtentSet,
    /// The window that the lead is asked about.
    asking: Option<Extent>,
    window_chunks: u64,
    /// The lead could not tell: it has to send the rest.
    is_untellable: bool,
    /// By the lead's word, of chunks that are not here.
    told: BTreeMap<u64, Digest>,
    /// Proved and not asked of anybody.
    free: BTreeSet<u64>,
    asked: BTreeMap<u64, usize>,
    /// Left by an earlier attempt, and not compared yet.
    kept: BTreeMap<u64, Digest>,
    /// Who brought other content for a chunk.
    refused: BTreeSet<(u64, usize)>,
}

/// What the lead's word about kept chunks amounts to.
pub enum Judged {
    Told,
    /// These are the lead's: they are here.
    Same(Vec<(Extent, Digest)>),
    /// What was kept is another version: nothing of it counts.
    Other,
}

impl Spans {
    pub fn new(size_bytes: u64, chunk_bytes: u64, kept: Vec<(Extent, Digest)>) -> Spans {
        let mut unproved = ExtentSet::new();
        unproved.insert(Extent::new(0, size_bytes));
        kept.iter().for_each(|(extent, _)| unproved.remove(*extent));
        Spans {
            size_bytes,
            chunk_bytes,
            unproved,
            asking: None,
            window_chunks: WINDOW_CHUNKS_FIRST,
            is_untellable: false,
            told: BTreeMap::new(),
            free: BTreeSet::new(),
            asked: BTreeMap::new(),
            kept: kept.into_iter().map(|(extent, digest)| (extent.start, digest)).collect(),
            refused: BTreeSet::new(),
        }
    }

    pub fn chunk(&self, start: u64) -> Extent {
        Extent::new(start, self.size_bytes.min(start + self.chunk_bytes))
    }

    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Whether anything is left to be asked of somebody.
    pub fn is_open(&self) -> bool {
        !(self.unproved.is_empty() && self.free.is_empty() && self.kept.is_empty() && self.asking.is_none())
    }

    pub fn free_bytes(&self) -> u64 {
        self.free.len() as u64 * self.chunk_bytes
    }

    /// What the next window will bring, or the one that is asked for.
    pub fn window_bytes(&self) -> u64 {
        self.window_chunks * self.chunk_bytes
    }

    /// The next window for the lead to prove, if it is not busy with one: what was kept first.
    pub fn ask_proof(&mut self) -> Option<Extent> {
        if self.asking.is_some() || self.is_untellable {
            return None;
        }
        let most = self.window_chunks * self.chunk_bytes;
        let window = match self.kept.first_key_value() {
            Some((&start, _)) => {
                let mut window = self.chunk(start);
                while window.length() < most && self.kept.contains_key(&window.end) {
                    window.end = self.chunk(window.end).end;
                }
                window
            }
            None => {
                let gap = self.unproved.iter().next()?;
                Extent::new(gap.start, gap.end.min(gap.start.saturating_add(most)))
            }
        };
        self.unproved.remove(window);
        self.asking = Some(window);
        self.window_chunks = (2 * self.window_chunks).min(WINDOW_CHUNKS_MAX);
        Some(window)
    }

    /// Takes the lead's word for the window that it was asked about; too few digests are none.
    pub fn told(&mut self, digests: &[Digest]) -> Judged {
        let Some(window) = self.asking.take() else { return Judged::Told };
        let starts = (window.start..window.end).step_by(self.chunk_bytes as usize);
        if digests.len() != starts.clone().count() {
            self.is_untellable = true;
            self.unproved.insert(window);
            let had_kept = !std::mem::take(&mut self.kept).is_empty();
            return if had_kept { Judged::Other } else { Judged::Told };
        }
        let (mut same, mut is_other) = (Vec::new(), false);
        for (start, digest) in starts.zip(digests) {
            match self.kept.remove(&start) {
                Some(kept) if kept == *digest || model::mutant::is_on("mix-replicas") => {
                    same.push((self.chunk(start), kept));
                }
                Some(_) => is_other = true,
                None => {
                    self.told.insert(start, *digest);
                    self.free.insert(start);
                }
            }
        }
        if is_other {
            self.kept.clear();
        }
        match is_other {
            true => Judged::Other,
            false if same.is_empty() => Judged::Told,
            false => Judged::Same(same),
        }
    }

    /// A chunk for a holder that has to prove what it brings: the first that the lead has told of.
    pub fn take_proved(&mut self, holder: usize) -> Option<Extent> {
        let start = self.free.iter().copied().find(|start| !self.refused.contains(&(*start, holder)))?;
        self.free.remove(&start);
        self.asked.insert(start, holder);
        Some(self.chunk(start))
    }

    /// A chunk for the lead: the last of which no proof was asked, so that it reads little twice; else the last that is free.
    pub fn take_last(&mut self, lead: usize) -> Option<Extent> {
        let last = self.unproved.iter().last();
        let start = match last {
            Some(gap) => (gap.end - 1) / self.chunk_bytes * self.chunk_bytes,
            None => *self.free.last()?,
        };
        let extent = self.chunk(start);
        self.unproved.remove(extent);
        self.free.remove(&start);
        self.asked.insert(start, lead);
        Some(extent)
    }

    /// What a holder that has to prove its chunks was asked for, with the digest it must have.
    pub fn expected(&self, holder: usize, extent: Extent) -> Option<Digest> {
        (self.asked.get(&extent.start) == Some(&holder)).then(|| self.told.get(&extent.start).copied()).flatten()
    }

    /// A chunk is here. Returns of whom it was asked.
    pub fn brought(&mut self, extent: Extent) -> Option<usize> {
        self.unproved.remove(extent);
        self.free.remove(&extent.start);
        self.told.remove(&extent.start);
        self.asked.remove(&extent.start)
    }

    /// Nobody is asked for a chunk any more. Returns of whom it was.
    pub fn release(&mut self, start: u64) -> Option<usize> {
        let holder = self.asked.remove(&start)?;
        match self.told.contains_key(&start) {
            true => _ = self.free.insert(start),
            false => _ = self.unproved.insert(self.chunk(start)),
        }
        Some(holder)
    }

    pub fn refuse(&mut self, start: u64, holder: usize) {
        self.refused.insert((start, holder));
    }

    pub fn asked_of(&self, holder: usize) -> Vec<u64> {
        self.asked.iter().filter(|(_, of)| **of == holder).map(|(start, _)| *start).collect()
    }

    /// The last chunk that one holder was asked for is asked of another one. False where that may not be.
    pub fn hand_over(&mut self, from: usize, to: usize, is_lead: bool) -> Option<Extent> {
        let fits = |start: &u64| is_lead || !self.refused.contains(&(*start, to)) && self.told.contains_key(start);
        let start = self.asked.iter().rev().find(|(start, of)| **of == from && fits(start)).map(|(start, _)| *start)?;
        self.asked.insert(start, to);
        Some(self.chunk(start))
    }

    /// Nothing of it is here. Returns who was asked for how much.
    pub fn start_over(&mut self) -> Vec<(usize, u64)> {
        let before = std::mem::replace(self, Spans::new(self.size_bytes, self.chunk_bytes, Vec::new()));
        (self.asking, self.is_untellable, self.refused) = (before.asking, before.is_untellable, before.refused);
        self.asking.iter().for_each(|window| self.unproved.remove(*window));
        before.asked.into_iter().map(|(start, holder)| (holder, self.chunk(start).length())).collect()
    }
}
