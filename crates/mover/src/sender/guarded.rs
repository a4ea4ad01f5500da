//! Claims of lanes over distance, and on several paths: each tells how it stands before; on several paths one that holds up the end
//! is broken off.
//!
//! Not here: the judgement (`guard`), and the lanes' handles (`lanes`).

use super::work::{Claim, Work};
use super::{Book, SendJob};
use crate::limits::FAR;
use crate::stream::{Breaker, Gauge};
use os::time::Instant;
use std::sync::atomic::Ordering::Relaxed;

/// Forgets a lane when it ends, however it does.
pub struct Known<'a> {
    job: &'a SendJob,
    lane: u32,
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.job.lanes.leave(self.lane);
        self.job.book.lock().unwrap().guard.forget(self.lane);
    }
}

impl SendJob {
    /// From here on its lanes are told apart by what they carry.
    pub fn use_several_paths(&self) {
        self.lanes.use_several_paths();
    }

    pub(super) fn know_lane(&self, lane: u32, gauge: Option<Gauge>, breaker: Breaker) -> Known<'_> {
        self.lanes.enter(lane, gauge, breaker);
        Known { job: self, lane }
    }

    /// The next unit of work; nothing when it is for another lane, which would be done with it sooner.
    pub(super) fn claim_guarded(&self, book: &mut Book, lane: u32) -> Option<Claim> {
        let are_on_paths = self.lanes.are_on_paths();
        let pulse = self.lanes.pulse(lane).filter(|pulse| are_on_paths || pulse.rtt_us_min >= FAR.as_micros() as u32);
        let Some(mut pulse) = pulse.filter(|_| !book.split.is_complete()) else {
            return Some(self.claim_to_send(book, lane));
        };
        if are_on_paths {
            // What carries less than its window may be anywhere on the way.
            pulse.window_bytes_per_second = 0;
        }
        let now = Instant::now();
        book.guard.hear(lane, pulse, now);
        let ready_bytes = book.ready.front().map(|ready| ready.unit.payload_bytes());
        let unit_bytes = ready_bytes.or_else(|| book.split.next_bytes());
        if unit_bytes.is_some_and(|bytes| !book.guard.may_take(lane, bytes, self.left_bytes(), now)) {
            return None;
        }
        let claim = self.claim_to_send(book, lane);
        match &claim {
            Claim::Work(work) => book.guard.took(lane, bytes_of(work)),
            Claim::NoWork if are_on_paths && book.split.is_all_claimed() && !self.is_read_ahead() => {
                if let Some(slow) = book.guard.straggler(lane, now) {
                    book.guard.forget(slow);
                    self.lanes.break_off(slow);
                }
            }
            _ => {}
        }
        Some(claim)
    }

    /// Content that no lane has sent; nothing as long as the listing goes on.
    fn left_bytes(&self) -> Option<u64> {
        let counters = &self.progress.counters;
        let gone = [&counters.bytes_sent, &counters.bytes_resumed, &counters.bytes_skipped];
        let gone: u64 = gone.into_iter().map(|counter| counter.load(Relaxed)).sum();
        self.is_listing_complete().then(|| counters.bytes_listed.load(Relaxed).saturating_sub(gone))
    }
}

fn bytes_of(work: &Work) -> u64 {
    match work {
        Work::Files { batch, range } => batch.objects[range.clone()].iter().map(|o| o.entry.size_bytes()).sum(),
        Work::Chunk { extent, .. } => extent.length(),
        Work::Ready(ready) => ready.unit.payload_bytes(),
    }
}
