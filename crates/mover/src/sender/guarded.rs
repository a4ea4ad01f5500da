//! Claims of lanes over distance, and on several paths: each tells how it stands before; on several paths one that holds up the end
//! is broken off. What is told of the end of a job is noted here.
//!
//! Not here: the judgement (`guard`), and the lanes' handles (`lanes`).

use super::work::{Claim, Work};
use super::{Book, SendJob};
use crate::limits::FAR;
use crate::stream::{Breaker, Gauge, Pulse};
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
        let pulse = self.lanes.pulse(lane);
        let claim = self.claim_if_soonest(book, lane, pulse);
        if let Some(pulse) = pulse {
            self.note_end(book, lane, claim.as_ref(), pulse);
        }
        claim
    }

    fn claim_if_soonest(&self, book: &mut Book, lane: u32, pulse: Option<Pulse>) -> Option<Claim> {
        let are_on_paths = self.lanes.are_on_paths();
        let pulse = pulse.filter(|pulse| are_on_paths || pulse.rtt_us_min >= FAR.as_micros() as u32);
        let Some(mut pulse) = pulse.filter(|_| !book.split.is_complete()) else {
            return Some(self.claim_to_send(book, lane));
        };
        match are_on_paths {
            // What carries less than its window may be anywhere on the way.
            true => pulse.window_bytes_per_second = 0,
            // Windows tell lanes of one path apart: what one of them leaves does not go to another at once.
            false => pulse.path = None,
        }
        let now = Instant::now();
        book.guard.hear(lane, pulse, now);
        let left_bytes = self.left_bytes();
        book.split.note_left(left_bytes, self.lanes.count());
        let ready_bytes = book.ready.front().map(|ready| ready.unit.payload_bytes());
        let unit_bytes = ready_bytes.or_else(|| book.split.next_bytes(lane));
        if unit_bytes.is_some_and(|bytes| !book.guard.may_take(lane, bytes, left_bytes, now)) {
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

    /// Notes whether a lane has work. The first one to hear that everything is settled looks at all of them.
    fn note_end(&self, book: &mut Book, lane: u32, claim: Option<&Claim>, pulse: Pulse) {
        let now = Instant::now();
        if matches!(claim, Some(Claim::Complete)) {
            let tail = std::mem::take(&mut book.guard.ends).tail(|lane| self.lanes.pulse(lane), now);
            if tail.is_some() {
                *self.progress.tail.lock().unwrap() = tail;
            }
            return;
        }
        let is_all_claimed = self.is_listing_complete()
            && book.split.is_all_claimed()
            && !book.split.is_answer_owed()
            && !self.is_read_ahead();
        let has_work = matches!(claim, Some(Claim::Work(_)));
        book.guard.ends.asked(lane, has_work, is_all_claimed, pulse, now);
    }

    /// Notes when a lane that rests is done with what it sent.
    pub(super) fn note_rest(&self, book: &mut Book, lane: u32) {
        book.guard.ends.rests(lane, || self.lanes.pulse(lane), Instant::now());
    }

    /// Content that no lane has sent; nothing as long as the listing goes on.
    fn left_bytes(&self) -> Option<u64> {
        self.is_listing_complete().then(|| self.listed_left_bytes())
    }

    /// The same of what is listed by now.
    pub(super) fn listed_left_bytes(&self) -> u64 {
        let counters = &self.progress.counters;
        let gone = [&counters.bytes_sent, &counters.bytes_resumed, &counters.bytes_skipped];
        let gone: u64 = gone.into_iter().map(|counter| counter.load(Relaxed)).sum();
        counters.bytes_listed.load(Relaxed).saturating_sub(gone)
    }
}

fn bytes_of(work: &Work) -> u64 {
    match work {
        Work::Files { batch, range } => batch.objects[range.clone()].iter().map(|o| o.entry.size_bytes()).sum(),
        Work::Chunk { extent, .. } => extent.length(),
        Work::Ready(ready) => ready.unit.payload_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;
    use crate::job::Port;
    use crate::sender::work::Batch;
    use conformance::memory::{Memory, Rules};
    use model::{End, Entry, Generation, Kind, Name, ObjectId, TransferOptions};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;
    use store::{DirectoryKey, SourceObject};
    use wire::Message;
    use wire::message::Run;

    struct Nobody;

    impl Port for Nobody {
        fn send(&self, _: Message) {}
    }

    /// In a directory of its own: lanes share none.
    fn object(id: u64) -> SourceObject {
        let entry = Entry {
            id: ObjectId(id),
            parent: ObjectId::ROOT,
            name: Name::new(b"f").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation::default(),
            attributes: None,
        };
        SourceObject { entry, directory: DirectoryKey(id), end: End::Known }
    }

    fn gauge(last_ack_received_ms: u32) -> Gauge {
        Arc::new(move || Some(Pulse { last_ack_received_ms, ..Pulse::default() }))
    }

    /// With files that are listed and wanted.
    fn job(objects: Vec<SourceObject>) -> Arc<SendJob> {
        let count = objects.len() as u64;
        let (source, options) = (Memory::new(Rules::default()).source(), TransferOptions::default());
        let job = SendJob::new(1, options, source, Arc::new(Nobody), Progress::new(), None);
        let mut book = job.book.lock().unwrap();
        book.split.describe(Arc::new(Batch { objects, charge: None }));
        book.split.listing_complete();
        book.split.want(&[Run { first: 1, count }], &[]).unwrap();
        drop(book);
        job.progress.is_listing_complete.store(true, Relaxed);
        job
    }

    fn settle(job: &SendJob) {
        let mut book = job.book.lock().unwrap();
        assert!([1, 2].into_iter().all(|id| book.split.settle(id).is_some()));
    }

    #[test]
    fn how_a_job_ended_is_told_once_everything_is_settled() {
        let job = job(vec![object(1), object(2)]);
        let breaker: Breaker = Arc::new(|| {});
        let _known = [(0, 50), (1, 20)].map(|(lane, ms)| job.know_lane(lane, Some(gauge(ms)), breaker.clone()));
        let claims = |lane| job.claim(lane, &mut |_| false).is_some();
        assert!(claims(0) && claims(1) && !claims(0));
        assert_eq!(job.progress.snapshot().tail, None);
        settle(&job);
        assert!(!claims(1));
        // The other one had nothing more to send by then, and was heard 30 ms longer ago.
        let tail = job.progress.snapshot().tail.unwrap();
        assert!(tail.alone.unwrap() >= Duration::from_millis(30), "{tail:?}");
    }

    #[test]
    fn a_lane_that_rests_at_the_end_was_done_when_its_last_byte_was_acknowledged() {
        let job = job(vec![object(1), object(2)]);
        let breaker: Breaker = Arc::new(|| {});
        let heard_ms = Arc::new(AtomicU32::new(1000));
        let told_ms = heard_ms.clone();
        let resting: Gauge =
            Arc::new(move || Some(Pulse { last_ack_received_ms: told_ms.load(Relaxed), ..Pulse::default() }));
        let _known =
            [(0, gauge(50)), (1, resting)].map(|(lane, gauge)| job.know_lane(lane, Some(gauge), breaker.clone()));
        let _at_work = [0, 1].map(|lane| job.enter_work(lane));
        let claims = |lane| job.claim(lane, &mut |_| false).is_some();
        assert!(claims(0) && claims(1));
        job.set_working(1);
        assert!(!claims(1));
        // It has answered a probe since.
        heard_ms.store(0, Relaxed);
        settle(&job);
        assert!(!claims(0));
        let tail = job.progress.snapshot().tail.unwrap();
        assert!(tail.alone.unwrap() >= Duration::from_millis(900), "{tail:?}");
    }

    #[test]
    fn far_lanes_take_fewer_small_files_at_once_the_less_is_left_and_near_ones_do_not() {
        let small = |id| {
            let mut small = object(id);
            small.directory = DirectoryKey(0);
            small.entry.generation.size_bytes = 64 << 10;
            small
        };
        // By the first of so many lanes, of which none has claimed anything.
        let taken_bytes = |lanes: u32, rtt_us_min: u32, left_bytes: u64| {
            let job = job((1..=200).map(small).collect());
            job.progress.counters.bytes_listed.store(left_bytes, Relaxed);
            let breaker: Breaker = Arc::new(|| {});
            let gauge: Gauge = Arc::new(move || Some(Pulse { rtt_us_min, ..Pulse::default() }));
            let known = |lane| job.know_lane(lane, Some(gauge.clone()), breaker.clone());
            let _known: Vec<_> = (0..lanes).map(known).collect();
            let work = job.claim(0, &mut |_| false).unwrap();
            bytes_of(&work)
        };
        assert_eq!(taken_bytes(1, 74_000, 1 << 30), 4 << 20);
        assert_eq!(taken_bytes(1, 74_000, 2 << 20), 1 << 20);
        assert_eq!(taken_bytes(4, 74_000, 8 << 20), 1 << 20);
        assert_eq!(taken_bytes(1, 74_000, 1000), 256 << 10);
        assert_eq!(taken_bytes(1, 100, 1000), 4 << 20);
    }
}
