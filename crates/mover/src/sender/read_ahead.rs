//! Reads a source into a spool, on lanes of its own, while the network is busy with what was read before.
//!
//! Invariants:
//! - As long as these lanes read, no other does: a source that stands still holds up nobody who has something to send.
//! - What a spool does not take is read by whoever sends it.
//!
//! Not here: the frames that wait (`ahead`).

use super::ahead::{Ahead, Filling, Ready};
use super::send::Lane;
use super::work::{Claim, Work};
use super::{Book, SendJob};
use crate::limits::{LANE_BYTES, PERMIT_PATIENCE, READ_LANES_MAX, STALL_REMEMBERED, STORAGE_STALLED};
use crate::stream::Unit;
use model::options::Buffer;
use model::progress::Stage;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::SourceObject;
use store::spool::{Side, Spool};

/// How often a source is looked at that is not read ahead until it has stood still.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a lane without room leaves reading to others.
const NO_ROOM_PAUSE: Duration = Duration::from_secs(1);

impl SendJob {
    /// Lets content wait in a spool for the network. Before `start`. What can be read once only is not given to a spool that may
    /// turn out to have no room for it.
    pub fn read_ahead_in(&self, spool: Arc<Spool>, how: Buffer) {
        let is_unfit = self.options.is_dry_run || self.is_sequential();
        if how == Buffer::Never || is_unfit {
            return;
        }
        let ahead = Ahead::new(spool, how, self.options.class.unwrap_or_default().weight());
        let _ = self.ahead.set(ahead);
    }

    /// Something is being read ahead, or was.
    pub(super) fn is_read_ahead(&self) -> bool {
        self.ahead.get().is_some_and(|ahead| ahead.is_reading() || ahead.has_waiting())
    }

    /// What a lane with a stream does next: it sends what was read ahead, and reads itself where nobody does.
    pub(super) fn claim_to_send(&self, book: &mut Book, lane: u32) -> Claim {
        let Some(ahead) = self.ahead.get() else { return book.split.claim(lane) };
        if let Some(first) = book.ready.front() {
            if !book.split.may_leave(first.unit.payload_bytes()) {
                return Claim::NoCredit;
            }
            let ready = book.ready.pop_front().expect("it is there");
            book.split.leaves(&ready.unit, lane);
            return Claim::Work(Work::Ready(ready));
        }
        match () {
            () if !ahead.has_readers() => book.split.claim(lane),
            () if book.split.is_complete() => Claim::Complete,
            () if book.split.is_spent() => Claim::Spent,
            () => Claim::NoWork,
        }
    }

    /// Ends reading ahead: what waits is read again.
    pub(super) fn lose_ahead(&self, why: &str) {
        if !self.ahead.get().is_some_and(|ahead| ahead.lose(why.to_owned())) {
            return;
        }
        self.progress.note(format!("the buffer is not used any more: {why}"));
        let mut book = self.book.lock().unwrap();
        for ready in std::mem::take(&mut book.ready) {
            book.split.leaves(&ready.unit, u32::MAX);
            book.split.give_back(&ready.unit);
        }
        drop(book);
        self.work.notify_all();
    }

    fn is_ready(&self, ready: Ready) {
        let mut book = self.book.lock().unwrap();
        book.split.waits(ready.unit.payload_bytes());
        book.ready.push_back(ready);
        drop(book);
        self.work.notify_all();
    }

    fn give_back(&self, unit: &Unit) {
        self.book.lock().unwrap().split.give_back(unit);
        self.work.notify_all();
    }
}

/// The first lane that reads ahead; it starts the others.
pub(super) fn run(job: &Arc<SendJob>) {
    let Some(ahead) = job.ahead.get() else { return };
    // What grows is sent as it grows.
    if job.options.follow.is_some() && job.takes_whole() != Some(true) {
        return;
    }
    job.progress.show_buffer(ahead.capacity_bytes(), ahead.waiting_bytes().clone());
    // What stood still for another job is expected to do so again: with many short jobs each would wait for its first stall.
    while ahead.how() == Buffer::Auto && !ahead.spool().has_stalled(Side::Source, STALL_REMEMBERED) {
        if job.progress.is_in_for(&[Stage::Read], STORAGE_STALLED) {
            ahead.spool().note_stall(Side::Source);
        }
        if job.end.wait(LOOK_INTERVAL).is_some() {
            return;
        }
    }
    for number in 1..READ_LANES_MAX {
        crate::job::spawn(job, "read", move |job| read(job, number), SendJob::cancel);
    }
    read(job, 0);
}

/// Counts a lane that reads as long as it does.
struct Reading<'a>(&'a Ahead);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// One lane, to the end of the job.
fn read(job: &Arc<SendJob>, number: u32) {
    let Some(ahead) = job.ahead.get() else { return };
    // The first takes its memory without asking: lanes that wait for what it reads may have all there is.
    let _permit = loop {
        if job.end.is_set() {
            return;
        }
        match job.memory().acquire(LANE_BYTES, PERMIT_PATIENCE) {
            None if number > 0 => {}
            permit => break permit,
        }
    };
    let (is_over, ready) = (|| job.end.is_set(), |ready| job.is_ready(ready));
    let stream = Filling::new(ahead, &is_over, &ready);
    let mut lane = Lane::new(job, u32::MAX - number, stream, job.progress.lane(Stage::Scan));
    while !job.end.is_set() && ahead.why_lost().is_none() {
        ahead.enter();
        let reading = Reading(ahead);
        let ended = read_on(&mut lane);
        lane.stream.give_up();
        drop(reading);
        job.work.notify_all();
        match ended {
            Ok(()) => return,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                lane.clock.enter(Stage::Scan);
                job.end.wait(NO_ROOM_PAUSE);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => job.lose_ahead(&e.to_string()),
        }
    }
}

/// Reads until everything is read, or the spool takes no more; what it did not take is given back.
fn read_on(lane: &mut Lane<'_, Filling<'_>>) -> io::Result<()> {
    let (job, number) = (lane.job, lane.number);
    loop {
        lane.clock.enter(Stage::Scan);
        let clock = &mut lane.clock;
        let work = job.claim_by(&|book| book.split.claim(number), &mut |waits_in| {
            // Those who send wait for the receiver; this one has nothing to read.
            clock.enter(if waits_in == Stage::Read { Stage::Scan } else { waits_in });
            true
        });
        let (unit, read) = match work {
            Some(Work::Files { batch, mut range }) => {
                let read = lane.send_files(&batch, &mut range);
                (pack_of(&batch.objects, range), read)
            }
            Some(Work::Chunk { batch, index, extent }) => {
                let object = &batch.objects[index];
                (Unit::Chunk { object: object.entry.id, extent }, lane.send_chunk(object, extent))
            }
            Some(Work::Ready(_)) | None => return Ok(()),
        };
        if let Err(e) = read {
            job.give_back(&unit);
            return Err(e);
        }
        lane.clock.note_cpu();
    }
}

fn pack_of(objects: &[SourceObject], range: Range<usize>) -> Unit {
    let first = objects[range.start.min(objects.len() - 1)].entry.id;
    let bytes = objects[range.clone()].iter().map(|object| object.entry.size_bytes()).sum();
    Unit::Pack { first, count: range.len(), bytes }
}

#[cfg(test)]
mod tests;
