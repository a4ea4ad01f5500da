//! The sender's account of one object that travels in chunks: what is not yet claimed, and what is under way.
//!
//! Not here: which lane claims what (`split`).

use super::work::Batch;
use model::Extent;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
}

pub struct InFlight {
    pub lane: u32,
    pub length: u64,
    pub is_read: bool,
}

impl Large {
    pub fn is_claimable(&self) -> bool {
        !self.gaps.is_empty() || self.next_start.is_some()
    }

    pub fn next_extent(&self, chunk_bytes: u64) -> Extent {
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
