//! Takes frames out of a job's hold and hands them to storage, on lanes of their own; and makes durable what is in it.
//!
//! Invariants:
//! - A frame is verified once more on its way out of the spool, by the code that verifies what comes over the network.
//! - Storage that stands still holds up these lanes and nobody else.

use super::hold::{Frame, Hold, What, is_slow};
use super::large::{Kept, Large};
use super::receive::{LaneError, StreamLane};
use super::{ReceiveJob, commit};
use crate::limits::{DRAIN_LANES_MAX, LANE_BYTES, PERMIT_PATIENCE, STORAGE_STALLED};
use crate::stream::{Breaker, Stream};
use model::progress::Stage;
use model::{Extent, ExtentSet};
use os::time::Instant;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Durability;
use wire::CloseCode;

/// How long a lane without a frame waits for one before it makes durable what it wrote.
const REST: Duration = Duration::from_millis(200);
/// How long what was written waits for more before it is made durable.
const DURABLE_INTERVAL: Duration = Duration::from_secs(1);

/// Starts drain lanes while there is more to drain than lanes for it.
pub(super) fn start_missing(job: &Arc<ReceiveJob>) {
    let Some(hold) = job.hold.get() else { return };
    let mut first = Some(()).filter(|()| !hold.has_lanes());
    while hold.wants_lane(DRAIN_LANES_MAX) {
        let is_first = first.take().is_some();
        crate::job::spawn(job, "drain", move |job| run(job, is_first), ReceiveJob::cancel);
    }
}

/// One drain lane, to the end of the job.
fn run(job: &Arc<ReceiveJob>, is_first: bool) {
    let Some(hold) = job.hold.get() else { return };
    // The first takes its memory without asking: lanes that wait for room in the buffer have all there is, and wait for it.
    let _permit = loop {
        if job.end.is_set() {
            return;
        }
        match job.memory().acquire(LANE_BYTES, PERMIT_PATIENCE) {
            None if !is_first => {}
            permit => break permit,
        }
    };
    let clock = job.progress.lane(Stage::Receive);
    let mut lane = match StreamLane::new(job, Spooled::default(), clock) {
        Ok(lane) => lane,
        Err(e) => return job.cancel(CloseCode::Forbidden, &e.to_string()),
    };
    lane.is_first_hand = false;
    let mut made_durable = Instant::now();
    while !job.end.is_set() {
        let frame = hold.next(REST);
        let is_due = frame.is_none() || made_durable.elapsed() >= DURABLE_INTERVAL;
        if let Some(frame) = frame {
            drain(&mut lane, hold, frame);
        }
        let written = hold.take_until_durable(is_due);
        if !written.is_empty() {
            lane.writer.clock.enter(Stage::Sync);
            make_durable(job, written);
            lane.writer.clock.enter(Stage::Receive);
            made_durable = Instant::now();
        }
    }
}

fn drain(lane: &mut StreamLane<'_, Spooled>, hold: &Hold, frame: Arc<Frame>) {
    let job = lane.job;
    if let Some(large) = staged_before(job, hold, &frame) {
        return hold.drained(frame, Some(large).filter(|_| job.durability != Durability::None));
    }
    lane.stream = Spooled { frame: Some(frame.clone()), at: 0 };
    let drained = lane.frame();
    lane.stream.frame = None;
    // It waits for the next one: that is no storage that is late.
    lane.writer.clock.enter(Stage::Receive);
    let mut held_in = None;
    let is_over = job.end.is_set();
    match drained {
        Err(_) if is_over => {
            lane.writer.give_back();
            return hold.undrained(frame);
        }
        Ok(_) => {
            if let What::Chunk { extent, is_large: true, .. } = frame.what {
                let large = job.table.lock().unwrap().large_object(extent.object);
                let is_held = |large: &Arc<Large>| large.holds(Extent::new(extent.start, extent.end));
                // What storage did not take is tried again with the job.
                let is_kept = || hold.is_alone() && frame.parcel().is_sound().unwrap_or(false);
                match large {
                    Some(large) if is_held(&large) && job.durability != Durability::None => held_in = Some(large),
                    Some(large) if !is_held(&large) && is_over => return hold.undrained(frame),
                    Some(large) if !is_held(&large) && !is_kept() => hold.spoiled(&frame),
                    _ => {}
                }
            }
            // What came to its end before it came here is not waited for.
            let mut table = job.table.lock().unwrap();
            let over: Vec<_> = frame.what.objects().filter(|id| !table.is_open(*id)).collect();
            drop(table);
            hold.let_go(over.into_iter());
        }
        Err(e) => {
            lane.writer.give_back();
            let is_sound = frame.parcel().is_sound().unwrap_or(false);
            match e {
                // It was what its sender sent, and against the protocol.
                LaneError::Refused(refusal) if is_sound => job.cancel(refusal.code, &refusal.text),
                _ => {
                    hold.spoiled(&frame);
                    job.ask_for(&frame.what);
                }
            }
        }
    }
    hold.drained(frame, held_in);
}

/// The object whose staging has the chunk from when the job was tried before.
fn staged_before(job: &ReceiveJob, hold: &Hold, frame: &Frame) -> Option<Arc<Large>> {
    let What::Chunk { extent, is_seal: false, is_large: true } = frame.what else { return None };
    let large = hold.is_alone().then(|| job.table.lock().unwrap().large_object(extent.object))??;
    large.holds(Extent::new(extent.start, extent.end)).then_some(large)
}

/// Drains what is there, as a lane does.
#[cfg(test)]
pub(super) fn drain_by_hand(job: &Arc<ReceiveJob>) {
    let mut lane = StreamLane::new(job, Spooled::default(), job.progress.lane(Stage::Receive)).unwrap();
    lane.is_first_hand = false;
    let hold = job.hold.get().unwrap();
    while let Some(frame) = hold.next(Duration::ZERO) {
        drain(&mut lane, hold, frame);
        if job.end.is_set() {
            break;
        }
    }
}

/// Makes chunks durable in their staging; the frames of those that are, or are settled, are let go.
pub(super) fn make_durable(job: &Arc<ReceiveJob>, written: Vec<(Arc<Large>, Arc<Frame>)>) {
    let Some(hold) = job.hold.get() else { return };
    let mut objects: Vec<&Arc<Large>> = written.iter().map(|(large, _)| large).collect();
    objects.sort_by_key(|large| large.id);
    objects.dedup_by_key(|large| large.id);
    for large in &objects {
        if let Err(e) = large.checkpoint() {
            commit::ask_for_all(job, large, &e);
        }
    }
    let of_each = || objects.iter().map(|large| (large.id, large.durable())).collect();
    // Whoever has left sends nothing again.
    let outlasting: Option<HashMap<u64, ExtentSet>> = hold.is_left().then(of_each);
    let is_open = |id: u64| job.table.lock().unwrap().is_open(id);
    let goes_with_job = |id: u64, extent: Extent| {
        let outlasting = outlasting.as_ref().and_then(|outlasting| outlasting.get(&id));
        outlasting.is_some_and(|outlasting| !outlasting.contains(extent))
    };
    let kept = |large: &Large, extent: Extent| match large.kept(extent) {
        Kept::Staged if goes_with_job(large.id, extent) => Kept::Pending,
        kept => kept,
    };
    let became = |(large, frame): (Arc<Large>, Arc<Frame>)| {
        let kept = match frame.what {
            What::Chunk { extent, .. } if is_open(large.id) => kept(&large, Extent::new(extent.start, extent.end)),
            _ => Kept::Staged,
        };
        (large, frame, kept)
    };
    hold.written(written.into_iter().map(became).collect());
}

/// Makes durable what comes into the hold, and tells the sender; to the end of the job.
pub(super) fn keep_durable(job: &Arc<ReceiveJob>) {
    let Some(hold) = job.hold.get() else { return };
    let mut is_told_lost = false;
    let (mut times, mut timed) = (job.progress.here(), Instant::now());
    while !job.end.is_set() {
        let due = hold.take_due(Duration::from_millis(50));
        // Without its sender, nothing is drained before all of it is described (`replay`).
        if job.replayed.get().is_none() {
            start_missing(job);
        }
        let kept = hold.make_durable(due);
        job.tell_buffered(&kept);
        if let Some(why) = hold.why_lost().filter(|_| !is_told_lost) {
            is_told_lost = true;
            job.progress.note(format!("the buffer is not used any more: {why}"));
        }
        if job.progress.is_in_storage_for(STORAGE_STALLED) {
            hold.note_stall();
        }
        if timed.elapsed() >= DURABLE_INTERVAL {
            let now = job.progress.here();
            if hold.is_drained() && is_slow(&times, &now) {
                hold.note_stall();
            }
            (times, timed) = (now, Instant::now());
        }
        job.leave_if_buffered();
    }
    // What came to its end is not to come back, and the rest is for whoever carries the job on.
    let due = hold.take_due(Duration::ZERO);
    hold.make_durable(due);
}

/// A frame of the spool as a stream.
#[derive(Default)]
struct Spooled {
    frame: Option<Arc<Frame>>,
    at: u64,
}

impl Stream for Spooled {
    fn send(&mut self, _parts: &[&[u8]]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let frame = self.frame.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        frame.read_exact_at(buffer, self.at)?;
        self.at += buffer.len() as u64;
        Ok(())
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn is_broken(&self) -> bool {
        false
    }

    /// Nobody waits in it for long.
    fn breaker(&self) -> Breaker {
        Arc::new(|| {})
    }

    fn send_blocked_ns(&self) -> u64 {
        0
    }

    fn recv_blocked_ns(&self) -> u64 {
        0
    }
}
