//! Objects that grow, in the sender's book: how much there is of them, and whose turn is next.
//!
//! Invariant: an object that grows waits at most once for a lane, and only while there is something of it to be read.

use super::*;

impl Split {
    pub(super) fn add_growing(&mut self, id: u64, batch: Arc<Batch>, index: usize, gaps: VecDeque<Extent>, start: u64) {
        let mut large = Large::new(batch, index, gaps);
        large.next_start = Some(start);
        self.large.insert(id, large);
        let available = self.available.remove(&id).unwrap_or(0);
        self.grow(id, available);
    }

    /// So much of an object that grows can be read now.
    pub fn grow(&mut self, id: u64, available_bytes: u64) {
        match self.large.get_mut(&id) {
            Some(large) => {
                large.available_bytes = Some(available_bytes);
                self.queue_growing(id);
            }
            None => {
                if self.find(id).is_some() {
                    self.available.insert(id, available_bytes);
                }
            }
        }
    }

    pub(super) fn queue_growing(&mut self, id: u64) {
        let Some(large) = self.large.get_mut(&id) else { return };
        if !large.is_queued && large.is_claimable() {
            large.is_queued = true;
            self.growing.push_back(id);
        }
    }

    /// How much of an object that grows was claimed, from its start; and how much of that the receiver does not hold.
    pub fn frontier(&self, id: u64) -> Option<(u64, u64)> {
        let large = self.large.get(&id)?;
        let lacking = large.in_flight.values().map(|chunk| chunk.length).sum::<u64>();
        Some((large.next_start?, lacking + large.gaps.iter().map(Extent::length).sum::<u64>()))
    }

    /// How much of an object that grows the receiver holds, from its start.
    pub fn arrived_bytes(&self, id: u64) -> Option<u64> {
        let large = self.large.get(&id)?;
        let gaps = large.gaps.iter().map(|gap| gap.start);
        large.in_flight.keys().copied().chain(gaps).chain(large.next_start).min()
    }

    pub fn is_settled(&self, id: u64) -> bool {
        let end = if id < REPLACEMENT_FIRST { self.end } else { self.end_of_replacements };
        id < end && self.find(id).is_none_or(|(held, index)| held.states.get(index) == State::Settled)
    }

    pub fn object(&self, id: u64) -> Option<SourceObject> {
        let (held, index) = self.find(id)?;
        Some(held.batch.objects[index].clone())
    }

    /// A lane found less of an object that grows than there was to be.
    pub fn fell_short(&mut self, id: u64, extent: Extent, available_bytes: u64) {
        if self.large.contains_key(&id) {
            self.take_back_extent(id, extent);
            self.grow(id, available_bytes);
        }
    }

    /// A fragment of an object that grows. They go before what does not grow: there is little of them.
    pub(super) fn claim_fragment(&mut self, lane: u32) -> Option<Claim> {
        while let Some(id) = self.growing.pop_front() {
            let Some(large) = self.large.get_mut(&id) else { continue };
            large.is_queued = false;
            if !large.is_claimable() {
                continue;
            }
            let claim = self.claim_chunk(lane, id);
            self.queue_growing(id);
            return Some(claim);
        }
        None
    }
}
