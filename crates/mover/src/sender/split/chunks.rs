//! Large objects in the sender's book: the next chunk of each, what is in flight, and what comes back.
//!
//! Not here: one object's account (`sender::large`), and those that grow (`growing`).

use super::*;

impl Split {
    pub(super) fn add_large(&mut self, id: u64, batch: Arc<Batch>, index: usize, gaps: VecDeque<Extent>) {
        let large = Large::new(batch, index, gaps);
        self.claimable.insert((Reverse(large.size_bytes), id));
        self.large.insert(id, large);
    }

    /// An extent that a peer names must be made of whole chunks of a described object.
    pub(super) fn check_extent(&self, record: &ExtentRecord) -> Result<Extent, Refusal> {
        let malformed = || Refusal::new(CloseCode::Malformed, "an extent that is not part of a described object");
        let (held, index) = self.find(record.object).ok_or_else(malformed)?;
        if held.batch.objects[index].is_growing() {
            let is_fit = record.start < record.end && record.end <= i64::MAX as u64;
            return is_fit.then(|| Extent::new(record.start, record.end)).ok_or_else(malformed);
        }
        let size = held.batch.objects[index].entry.size_bytes();
        let is_aligned = record.start.is_multiple_of(self.chunk_bytes)
            && (record.end.is_multiple_of(self.chunk_bytes) || record.end == size);
        if record.start >= record.end || record.end > size || !is_aligned {
            return Err(malformed());
        }
        Ok(Extent::new(record.start, record.end))
    }

    pub(super) fn claim_chunk(&mut self, lane: u32, id: u64) -> Claim {
        let lanes = self.lanes.len() as u64;
        let large = self.large.get_mut(&id).expect("claimable objects are held");
        let extent = large.next_extent(self.chunk_bytes, lanes);
        if !self.bytes.may_send(extent.length()) {
            return Claim::NoCredit;
        }
        if !self.allowance.claim(extent.length()) {
            return Claim::Spent;
        }
        large.take(extent);
        large.claims += 1;
        large.in_flight.insert(extent.start, InFlight { lane, length: extent.length(), is_read: false });
        if !large.is_claimable() {
            self.claimable.remove(&(Reverse(large.size_bytes), id));
        }
        let (batch, index) = (large.batch.clone(), large.index);
        self.bytes.sent(extent.length());
        let is_growing = self.large[&id].available_bytes.is_some();
        self.own_large(lane, Some(id).filter(|_| !is_growing));
        self.set(id, State::Sending);
        Claim::Work(Work::Chunk { batch, index, extent })
    }

    /// A chunk for a lane that still has another one: of the object that it goes on with.
    pub fn claim_ahead(&mut self, lane: u32) -> Option<Work> {
        let id = self.next_large(lane).filter(|id| self.large[id].next_start.is_none())?;
        match self.claim_chunk(lane, id) {
            Claim::Work(work) => Some(work),
            _ => None,
        }
    }

    /// Whether a chunk is still what a lane claimed.
    pub fn is_in_flight(&self, id: u64, extent: Extent, lane: u32) -> bool {
        let chunk = self.large.get(&id).and_then(|large| large.in_flight.get(&extent.start));
        chunk.is_some_and(|chunk| chunk.lane == lane && chunk.length == extent.length())
    }

    pub(super) fn own_large(&mut self, lane: u32, id: Option<u64>) {
        let state = self.lanes.entry(lane).or_default();
        if state.large == id {
            return;
        }
        let before = std::mem::replace(&mut state.large, id);
        if let Some(large) = before.and_then(|id| self.large.get_mut(&id)) {
            large.owners -= 1;
        }
        if let Some(large) = id.and_then(|id| self.large.get_mut(&id)) {
            large.owners += 1;
        }
    }

    /// A chunk's content was read. True when with it the whole object has been read from one version of its source.
    /// `ended` says that an open-ended source came to its end in this chunk.
    pub fn chunk_was_read(&mut self, id: u64, start: u64, ended: bool) -> bool {
        let Some(large) = self.large.get_mut(&id) else { return false };
        if let Some(chunk) = large.in_flight.get_mut(&start) {
            chunk.is_read = true;
        }
        if ended && large.next_start.take().is_some() {
            self.claimable.remove(&(Reverse(large.size_bytes), id));
        }
        large.is_sealed |= !large.is_claimable() && large.in_flight.values().all(|chunk| chunk.is_read);
        large.is_sealed
    }

    /// The receiver verified and holds a chunk.
    pub fn held(&mut self, record: &ExtentRecord) {
        if let Some(large) = self.large.get_mut(&record.object)
            && let Some(chunk) = large.in_flight.remove(&record.start)
        {
            self.bytes.acknowledged(chunk.length);
        }
    }

    /// What an object had changed: it is described again or given up next, and nothing more of it is sent.
    pub fn stop_claims(&mut self, id: u64) {
        if let Some(large) = self.large.get_mut(&id) {
            large.gaps.clear();
            self.claimable.remove(&(Reverse(large.size_bytes), id));
        }
    }

    pub(super) fn take_back_extent(&mut self, id: u64, extent: Extent) {
        let large = self.large.get_mut(&id).expect("checked by the caller");
        let mut freed = 0;
        while let Some((&start, chunk)) = large.in_flight.range(extent.start..extent.end).next() {
            note_step();
            freed += chunk.length;
            large.in_flight.remove(&start);
        }
        self.bytes.acknowledged(freed);
        large.give_back(extent);
        match large.available_bytes {
            Some(_) => self.queue_growing(id),
            None => _ = self.claimable.insert((Reverse(large.size_bytes), id)),
        }
    }
}
