//! The chunk that a lane claims while it still reads another one, so that storage that answers late is asked for it in time.
//!
//! Invariants:
//! - It is in flight like any other: if the lane dies it is wanted again, and what was taken back of it meanwhile is not sent by this lane.
//! - Nobody claims ahead near the end, where others could do it, nor far away or on several paths, where lanes are told apart by what they
//!   carry (`guarded`), nor while following or reading ahead, nor where only so much may be sent: what is given back would count.
//!
//! Not here: reading it (`store`).

use super::SendJob;
use super::work::Work;
use crate::limits::FAR;
use crate::stream::Unit;
use std::sync::atomic::Ordering::Relaxed;

/// A lane holds a second chunk as long as so many are left for each.
const CHUNKS_LEFT: u64 = 4;

impl SendJob {
    /// The chunk that a lane reads after the one that it has, if it may hold one.
    pub(super) fn claim_ahead(&self, lane: u32) -> Option<Work> {
        let is_far = || self.lanes.pulse(lane).is_some_and(|pulse| u128::from(pulse.rtt_us_min) >= FAR.as_micros());
        let bytes_min = CHUNKS_LEFT * self.options.chunk_bytes * self.lanes.count() as u64;
        if self.listed_left_bytes() < bytes_min
            || self.options.follow.is_some()
            || self.options.payload_bytes_max.is_some()
            || self.is_bound_there.load(Relaxed)
            || self.ahead.get().is_some()
            || self.lanes.are_on_paths()
            || !self.working.may_work(lane)
            || is_far()
        {
            return None;
        }
        self.book.lock().unwrap().split.claim_ahead(lane)
    }

    /// A chunk that was claimed ahead, when its turn comes: nothing where it is not this lane's any more, or the lane is to rest.
    pub(super) fn take_ahead(&self, lane: u32, work: Work) -> Option<Work> {
        let Work::Chunk { batch, index, extent } = &work else { return None };
        let (object, extent) = (batch.objects[*index].entry.id, *extent);
        let mut book = self.book.lock().unwrap();
        if !book.split.is_in_flight(object.0, extent, lane) {
            return None;
        }
        if self.end.is_set() || !self.working.may_work(lane) {
            book.split.give_back(&Unit::Chunk { object, extent });
            drop(book);
            self.work.notify_all();
            return None;
        }
        Some(work)
    }
}
