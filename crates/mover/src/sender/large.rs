//! The sender's account of one object that travels in chunks: what is not yet claimed, and what is under way.
//!
//! Not here: which lane claims what (`split`).

use super::work::Batch;
use model::Extent;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::limits::FRAGMENT_BYTES_MAX;
use wire::{CloseCode, Refusal};

pub struct Large {
    pub batch: Arc<Batch>,
    pub index: usize,
    pub size_bytes: u64,
    /// Not yet claimed, in order.
    pub gaps: VecDeque<Extent>,
    pub in_flight: BTreeMap<u64, InFlight>,
    pub owners: u32,
    /// Where an open-ended object goes on; `None` for others and after its end.
    pub next_start: Option<u64>,
    /// A chunk was sent with the word that all of it had been read from one version. What is read again after that has to be
    /// of the same version too: the receiver may complete the object with it.
    pub is_sealed: bool,
    /// Of an object that grows: how much of it there is to be read.
    pub available_bytes: Option<u64>,
    /// It waits among those that grow for a lane.
    pub is_queued: bool,
    /// How often a chunk of it was claimed, and how often the receiver asked for something of it again.
    pub claims: u64,
    pub asked_again: u64,
}

pub struct InFlight {
    pub lane: u32,
    pub length: u64,
    pub is_read: bool,
}

/// Asking again costs a walk over the gaps, so it has to be paid for with chunks that were sent. A receiver asks a few times for
/// a chunk, and for all of an object.
const ASKED_AGAIN_PER_CLAIM: u64 = 4;
const ASKED_AGAIN_FREE: u64 = 64;
/// A fragment of so many bytes is not cut further: the first window of a stream holds about as much.
const FRAGMENT_SHARED_BYTES: u64 = 16 << 10;

impl Large {
    pub fn new(batch: Arc<Batch>, index: usize, gaps: VecDeque<Extent>) -> Large {
        let object = &batch.objects[index];
        let next_start = (object.is_open_ended() || object.is_growing()).then_some(0);
        let (size_bytes, available_bytes) = (object.entry.size_bytes(), object.is_growing().then_some(0));
        let in_flight = BTreeMap::new();
        let (owners, is_sealed, claims, asked_again) = (0, false, 0, 0);
        Large {
            batch,
            index,
            size_bytes,
            gaps,
            in_flight,
            owners,
            next_start,
            is_sealed,
            available_bytes,
            is_queued: false,
            claims,
            asked_again,
        }
    }

    /// # Errors
    /// When the receiver asks far more often than it was sent anything.
    pub fn is_asked_again(&mut self) -> Result<(), Refusal> {
        self.asked_again += 1;
        if self.asked_again > self.claims * ASKED_AGAIN_PER_CLAIM + ASKED_AGAIN_FREE {
            return Err(Refusal::new(CloseCode::Limit, "content is asked for again far more often than it was sent"));
        }
        Ok(())
    }

    pub fn is_claimable(&self) -> bool {
        match self.available_bytes {
            Some(available) => !self.next_fragment(available, 1).is_empty(),
            None => !self.gaps.is_empty() || self.next_start.is_some(),
        }
    }

    /// The next piece of an object that grows; empty where there is none yet. What there is, is shared out among the lanes: a
    /// stream that has rested takes a round trip for each window, and may hold no more than one.
    fn next_fragment(&self, available: u64, lanes: u64) -> Extent {
        let (start, end) = match (self.gaps.front(), self.next_start) {
            (Some(gap), _) => (gap.start, gap.end),
            (None, start) => (start.unwrap_or(available), available),
        };
        let share = available.saturating_sub(start).div_ceil(lanes).clamp(FRAGMENT_SHARED_BYTES, FRAGMENT_BYTES_MAX);
        Extent::new(start, end.min(available).min(start + share).max(start))
    }

    pub fn next_extent(&self, chunk_bytes: u64, lanes: u64) -> Extent {
        if let Some(available) = self.available_bytes {
            return self.next_fragment(available, lanes);
        }
        match (self.gaps.front(), self.next_start) {
            (Some(gap), _) => Extent::new(gap.start, gap.end.min(gap.start / chunk_bytes * chunk_bytes + chunk_bytes)),
            (None, Some(start)) => Extent::new(start, start + chunk_bytes),
            (None, None) => panic!("claimed from an object without gaps"),
        }
    }

    /// Puts an extent in front of what is not yet claimed.
    pub fn give_back(&mut self, extent: Extent) {
        let around = |gap: Extent| {
            let before = (gap.start < extent.start).then(|| Extent::new(gap.start, gap.end.min(extent.start)));
            let after = (gap.end > extent.end).then(|| Extent::new(gap.start.max(extent.end), gap.end));
            before.into_iter().chain(after)
        };
        self.gaps = std::iter::once(extent).chain(self.gaps.iter().copied().flat_map(around)).collect();
    }

    pub fn take(&mut self, extent: Extent) {
        match self.gaps.front_mut() {
            Some(gap) if gap.end == extent.end => _ = self.gaps.pop_front(),
            Some(gap) => gap.start = extent.end,
            None => self.next_start = Some(extent.end),
        }
    }
}
