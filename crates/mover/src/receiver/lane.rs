//! What a receiver's lane does with content: verifies it, stages it, publishes it or hands it to the next group.
//!
//! Invariants: a chunk's bytes may reach staging before its digest is judged, a final name only after. What is sent twice
//! or was taken back is read and dropped; what its trailer says of the whole object counts all the same.
//!
//! Not here: frames and streams (`receive`); `growing` takes fragments of objects that grow, `within` is what a lane of a copy
//! within one process can do besides, `proved` what a lane does of a holder whose content is compared with what another one told.

mod growing;
mod proved;
mod within;

use super::ReceiveJob;
use super::commit;
use super::gather::Place;
use super::hold::is_slow_within;
use super::large::{Claimed, Large, QUEUED_FILE_BYTES, Turn, kind_of};
use super::listed::{Expected, Listed};
use super::queue::Item;
use super::settle::{Outcome, Published};
use super::table::Found;
use super::verify::{self, Verdict};
use crate::progress::LaneClock;
use crate::stream::Breaker;
use model::mutant;
use model::options::Verify;
use model::progress::{LaneTimes, Stage};
use model::{Digest, DigestAlgorithm, Entry, Extent, FailureKind};
use os::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use store::{BlockWriter, Durability, Engines, Late, SinkLane, StagedFile};
use wire::data::{ChunkHeader, ChunkTrailer, PackRow, Status};
use wire::message::{ExtentRecord, Held};
use wire::{CloseCode, Message, Refusal};

/// A lane that has waited for storage for so long tells whether a queue is worth a probe.
const HELD_UP: Duration = Duration::from_millis(250);
/// How often it looks, in the middle of a chunk, whether a queue pays by now.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a lane does with content, wherever it comes from.
pub(crate) struct Writer<'a> {
    /// That content goes to.
    job: &'a Arc<ReceiveJob>,
    /// Where several holders bring it.
    place: Option<&'a Place>,
    sink: Box<dyn SinkLane>,
    pub clock: LaneClock,
    engines: Engines,
    queue: Option<Box<dyn BlockWriter>>,
    /// When it looked last whether a queue pays.
    looked: Instant,
    open: Option<OpenChunk>,
    /// Of the stream that this lane reads.
    breaker: Breaker,
}

/// In a process that has both halves, the receiving one is the writer without a stream.
pub(crate) type LocalLane<'a> = Writer<'a>;

/// A file of a pack.
pub(crate) struct PackedFile<'a> {
    pub row: &'a PackRow,
    pub bytes: &'a [u8],
    /// Digested by this process when it read them: they have been nowhere since.
    pub digest: Option<Digest>,
    /// What its description did not tell.
    pub late: Option<Late>,
}

impl PackedFile<'_> {
    fn judge(&self, algorithm: DigestAlgorithm) -> Verdict {
        match (self.digest, self.row.status) {
            (Some(digest), Status::Good | Status::GoodLast) => Verdict::Good(digest),
            _ => verify::packed_file(self.row, self.bytes, algorithm),
        }
    }
}

/// What comes, by the number that the object has in the job, and with the digest that it has to have where its sender is not
/// believed.
#[derive(Clone, Copy)]
struct Coming {
    header: ChunkHeader,
    id: u64,
    told: Option<Digest>,
}

struct OpenChunk {
    coming: Coming,
    target: Target,
    at: u64,
    /// Nothing of it is data.
    is_hole: bool,
    error: Option<store::Error>,
}

enum Target {
    /// Written to nowhere.
    Drop,
    /// An object of one chunk, in the lane's own staging.
    Small(Arc<Listed>, usize),
    Large(Arc<Large>, Arc<dyn StagedFile>, bool, Turn),
    /// A chunk that is held already, sent again because its sender had not heard so. Written to nowhere; what its trailer
    /// says of the whole object counts.
    Held(Arc<Large>, Arc<dyn StagedFile>),
    /// A large object whose staging could not be opened.
    Unopened(Arc<Large>),
}

impl<'a> Writer<'a> {
    pub fn new(job: &'a Arc<ReceiveJob>, clock: LaneClock, breaker: Breaker) -> store::Result<Writer<'a>> {
        let place = job.place.get();
        let job = job.destination.get().unwrap_or(job);
        // What is read back is looked for by name.
        let is_published_at_once = job.durability != Durability::Group && job.options.verify != Verify::Reread;
        let (sink, engines) = (job.sink.lane(is_published_at_once)?, job.engines());
        let (queue, open, looked) = (None, None, Instant::now());
        Ok(Writer { job, place, sink, clock, engines, queue, looked, open, breaker })
    }

    /// The holder whose content has to be compared with what the lead told.
    fn beside(&self) -> Option<&'a Place> {
        self.place.filter(|place| !place.is_lead())
    }

    /// Verifies, stages and publishes the files of a pack.
    pub fn packed(&mut self, files: &[PackedFile<'_>]) -> Result<(), Refusal> {
        match self.beside() {
            Some(place) => self.packed_by(place, files),
            None => {
                self.break_off_others(files.iter().map(|file| file.row.object.0));
                self.packed_here(files)
            }
        }
    }

    fn packed_here(&mut self, files: &[PackedFile<'_>]) -> Result<(), Refusal> {
        let mut found = Vec::with_capacity(files.len());
        {
            let mut table = self.job.table.lock().unwrap();
            found.extend(files.iter().map(|file| table.take(file.row.object.0)));
        }
        let (mut outcome, mut taken) = (Outcome::default(), files.iter().zip(found));
        let done = taken.try_for_each(|(file, found)| self.packed_file(file, found, &mut outcome));
        // What lies behind a file that is refused may come from another holder.
        if done.is_err() {
            let mut table = self.job.table.lock().unwrap();
            let left = taken.filter(|(_, found)| matches!(found, Found::Small(..)));
            left.for_each(|(file, _)| table.expect_again(file.row.object.0));
        }
        self.clock.enter(Stage::Publish);
        self.job.settle(outcome);
        self.clock.enter(Stage::Receive);
        done
    }

    /// Takes one file of a pack. What is refused is in nobody's hands.
    fn packed_file(&mut self, file: &PackedFile<'_>, found: Found, outcome: &mut Outcome) -> Result<(), Refusal> {
        let (PackedFile { row, bytes, .. }, algorithm) = (file, self.job.options.digest);
        let (listed, index) = match found {
            Found::NotNow if file.judge(algorithm) == Verdict::Mismatch => return Err(malformed(NOT_ITS_OWN)),
            Found::NotNow => return Ok(()),
            Found::Large(_) => return Err(malformed("a large object came in a pack")),
            Found::Small(listed, index) => (listed, index),
        };
        let expected_bytes = listed.expected(index).entry.size_bytes();
        self.clock.enter(Stage::Digest);
        match file.judge(algorithm) {
            Verdict::Void => self.job.take_back(row.object.0),
            Verdict::Good(_) if bytes.len() as u64 != expected_bytes => {
                self.job.table.lock().unwrap().expect_again(row.object.0);
                return Err(malformed("a packed file is not as long as it was described"));
            }
            Verdict::Good(_) if file.late.is_some_and(|late| late.is_link) => {
                self.link(&listed, index, file, outcome);
            }
            Verdict::Good(digest) => self.store_small(listed, index, file, digest, outcome),
            Verdict::Mismatch => {
                self.job.ask_again(&listed, index, None, "digest mismatch", FailureKind::DigestMismatch);
            }
        }
        Ok(())
    }

    fn store_small(
        &mut self,
        listed: Arc<Listed>,
        index: usize,
        file: &PackedFile<'_>,
        digest: Digest,
        outcome: &mut Outcome,
    ) {
        let Expected { entry, rule, .. } = listed.expected(index);
        let entry = file.entry(entry);
        self.clock.enter(Stage::Create);
        let written = self.sink.create(&entry, *rule).and_then(|()| {
            self.clock.enter(Stage::Write);
            self.sink.write(file.bytes)
        });
        match written {
            Ok(()) => self.seal_small(&listed, index, &entry, digest, outcome),
            Err(e) => self.small_failed(&listed, index, &e),
        }
    }

    /// Completes what the lane has staged last, and publishes it or hands it to the next group.
    fn seal_small(&mut self, listed: &Arc<Listed>, index: usize, entry: &Entry, digest: Digest, outcome: &mut Outcome) {
        let job = self.job;
        let (sync, size_bytes) = (job.durability == Durability::File, entry.size_bytes());
        let staged = match self.sink.seal(entry, sync) {
            Ok(staged) => staged,
            Err(e) => return self.small_failed(listed, index, &e),
        };
        if let Some(place) = self.place {
            place.staged(entry.id.0);
        }
        let listed = listed.clone();
        if job.durability == Durability::Group {
            self.clock.enter(Stage::Sync);
            return job.committer.push(Item::Small { listed, index, staged, digest, size_bytes }, &job.end);
        }
        self.clock.enter(Stage::Publish);
        if !commit::survives_reread(job, &listed, index, staged, digest) {
            return;
        }
        let published = self.sink.publish(entry, staged).and_then(|()| match sync {
            true => job.sink.sync_names(),
            false => Ok(()),
        });
        match published {
            Ok(()) => outcome.published.push(Published { listed, index, digest, size_bytes, is_chunked: false }),
            Err(e) => job.fail(&listed, index, e.kind, e.message()),
        }
    }

    /// Storage did not take an object: it comes again, into a new file (F072). What would fail again at once, for want of
    /// room or of a right, fails.
    fn small_failed(&self, listed: &Arc<Listed>, index: usize, e: &store::Error) {
        match kind_of(e) {
            FailureKind::WriteError => {
                self.job.ask_again(listed, index, None, &e.message(), FailureKind::WriteError);
            }
            kind => self.job.fail(listed, index, kind, e.message()),
        }
    }

    /// Opens the target of a chunk.
    pub fn start(&mut self, header: &ChunkHeader) -> Result<(), Refusal> {
        let (id, told) = match self.beside().map(|place| place.expected(header.object, header.extent)) {
            None => (header.object.0, None),
            Some(Some((id, told))) => (id, Some(told)),
            // Nobody asked for it, or not any more.
            Some(None) => (0, None),
        };
        let found = match told {
            Some(_) => self.take_proved(id),
            None => {
                self.break_off_others([id].into_iter());
                self.job.table.lock().unwrap().take(id)
            }
        };
        let mut error = None;
        let target = match found {
            Found::NotNow => Target::Drop,
            Found::Small(listed, index) => {
                if header.extent != Extent::new(0, listed.expected(index).entry.size_bytes()) {
                    self.job.table.lock().unwrap().expect_again(id);
                    return Err(malformed("a chunk is not the whole of an object that is one chunk long"));
                }
                self.clock.enter(Stage::Create);
                let Expected { entry, rule, .. } = listed.expected(index);
                error = self.sink.create(entry, *rule).err();
                Target::Small(listed, index)
            }
            Found::Large(large) => {
                let end = header.extent.end;
                let is_inside = end <= large.size_bytes
                    && (end == large.size_bytes || header.extent.length() == self.job.options.chunk_bytes);
                if large.is_growing || !large.is_open_ended && !is_inside {
                    return Err(malformed("a chunk is not a part of its object"));
                }
                self.clock.enter(Stage::Create);
                self.open_large(large, header.extent, &mut error)
            }
        };
        self.clock.enter(Stage::Open);
        let coming = Coming { header: *header, id, told };
        self.open = Some(OpenChunk { coming, target, at: header.extent.start, is_hole: false, error });
        Ok(())
    }

    fn open_large(&mut self, large: Arc<Large>, extent: Extent, error: &mut Option<store::Error>) -> Target {
        let turn = match large.turn(extent, &self.breaker, &self.job.end) {
            Claimed::Turn(turn) => turn,
            Claimed::Held(file) if !mutant::is_on("drop-the-seal-of-a-duplicate") => return Target::Held(large, file),
            Claimed::Held(_) | Claimed::Nothing => return Target::Drop,
        };
        match large.file(self.job) {
            Ok(Some(file)) => {
                self.look_for_queue(large.size_bytes);
                Target::Large(large, file, self.queue.is_some(), turn)
            }
            Ok(None) => Target::Drop,
            Err(e) => {
                *error = Some(e);
                Target::Unopened(large)
            }
        }
    }

    /// Has storage probed that holds this lane up, and takes the queue if it pays by now.
    fn look_for_queue(&mut self, size_bytes: u64) {
        if self.queue.is_some() {
            return;
        }
        let is_held_up = || is_slow_within(&LaneTimes::default(), &self.clock.times(), HELD_UP);
        if size_bytes >= QUEUED_FILE_BYTES && !self.job.is_probed() && is_held_up() {
            self.job.probe_storage();
        }
        self.queue = self.job.sink.writer(&self.engines);
        if let Some(queue) = &self.queue {
            let _ = self.job.engine_used.set(queue.name());
        }
    }

    /// In the middle of a chunk, whose rest may take seconds on slow storage.
    fn look_again(&mut self) {
        let now = Instant::now();
        if self.queue.is_some() || now - self.looked < LOOK_INTERVAL {
            return;
        }
        self.looked = now;
        let Some(OpenChunk { target: Target::Large(large, ..), error: None, .. }) = &self.open else { return };
        let size_bytes = large.size_bytes;
        self.look_for_queue(size_bytes);
        if let Some(OpenChunk { target: Target::Large(_, _, is_queued, _), .. }) = &mut self.open {
            *is_queued = self.queue.is_some();
        }
    }

    /// Whether blocks of the open chunk go through the queue.
    pub fn is_queued(&self) -> bool {
        matches!(&self.open, Some(OpenChunk { target: Target::Large(_, _, true, _), error: None, .. }))
    }

    /// The queue's next buffer, if the open chunk is written by one.
    pub fn queue_buffer(&mut self) -> Option<&mut [u8]> {
        if !self.is_queued() {
            return None;
        }
        self.clock.enter(Stage::Write);
        // A failed write is reported by `drain` at the end of the chunk; until then the bytes need a place.
        if self.queue.as_mut().is_some_and(|queue| queue.buffer().is_err()) {
            self.note_queue_error();
            return None;
        }
        self.clock.enter(Stage::Open);
        self.queue.as_mut().and_then(|queue| queue.buffer().ok())
    }

    fn note_queue_error(&mut self) {
        let (Some(queue), Some(open)) = (&mut self.queue, &mut self.open) else { return };
        if let Err(e) = queue.drain() {
            open.error.get_or_insert(e);
        }
    }

    /// Time in the socket and of the digest is not time of opening.
    pub fn received(&mut self, blocked_ns: u64, digest_ns: u64) {
        self.clock.enter(Stage::Write);
        self.clock.reassign(Stage::Open, Stage::Receive, blocked_ns);
        self.clock.reassign(Stage::Open, Stage::Digest, digest_ns);
    }

    /// Hands the queue's buffer in.
    pub fn submit(&mut self, length: usize, blocked_ns: u64, digest_ns: u64) {
        self.received(blocked_ns, digest_ns);
        let (Some(queue), Some(open)) = (&mut self.queue, &mut self.open) else { return };
        if let Target::Large(_, file, ..) = &open.target
            && let Err(e) = queue.write(&**file, open.at, length)
        {
            open.error.get_or_insert(e);
        }
        open.at += length as u64;
        self.clock.enter(Stage::Open);
    }

    /// Writes a block of the open chunk. An error is kept for the end of the chunk; the rest is dropped.
    pub fn write(&mut self, block: &[u8]) {
        self.clock.enter(Stage::Write);
        let Some(open) = &mut self.open else { return };
        if open.error.is_none() {
            open.error = match &open.target {
                Target::Drop | Target::Held(..) | Target::Unopened(_) => None,
                Target::Small(..) => self.sink.write(block).err(),
                Target::Large(_, file, ..) => file.write_at(open.at, block).err(),
            };
        }
        open.at += block.len() as u64;
        self.clock.enter(Stage::Open);
        self.look_again();
    }

    /// Writes a block that lies elsewhere, through the queue if the open chunk is written by one.
    pub fn write_block(&mut self, block: &[u8]) {
        let mut rest = block;
        while self.is_queued() && !rest.is_empty() {
            let Some(buffer) = self.queue_buffer() else { break };
            let part = rest.len().min(buffer.len());
            buffer[..part].copy_from_slice(&rest[..part]);
            self.submit(part, 0, 0);
            rest = &rest[part..];
        }
        if !rest.is_empty() {
            self.write(rest);
        }
    }

    /// The chunk broke off: what it was part of will come again.
    pub fn give_back(&mut self) {
        if let Some(queue) = &mut self.queue {
            let _ = queue.drain();
        }
        self.sink.abandon();
        if let Some(OpenChunk { target: Target::Small(listed, index), .. }) = self.open.take()
            && !mutant::is_on("forget-broken-chunk")
        {
            let id = listed.expected(index).entry.id.0;
            match self.beside() {
                Some(place) => self.broke_off_beside(place, id),
                None => self.job.broke_off(id),
            }
        }
    }

    /// Judges the open chunk and does with it what is to be done.
    pub fn end(&mut self, trailer: &ChunkTrailer, digest: Digest) -> Result<(), Refusal> {
        // After an error too: what is under way belongs to this chunk, and so does what becomes of it.
        if matches!(&self.open, Some(OpenChunk { target: Target::Large(_, _, true, _), .. })) {
            self.clock.enter(Stage::Write);
            self.note_queue_error();
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let coming = open.coming;
        let (header, id) = (coming.header, coming.id);
        if coming.told.is_some() {
            self.job.table.lock().unwrap().was_read(id);
        }
        let verdict = verify::chunk(trailer, header.object, header.extent, digest);
        let verdict = match self.beside().map(|place| self.proved(place, &coming, verdict)) {
            Some(None) => {
                self.refuse(open, verdict, digest);
                return Ok(());
            }
            Some(Some(proved)) => proved,
            None => verdict,
        };
        match open.target {
            Target::Drop if verdict == Verdict::Mismatch => Err(malformed(NOT_ITS_OWN)),
            Target::Drop => Ok(()),
            // Its bytes were compared with the trailer; those that are held were when they came.
            Target::Held(large, file) => self.end_large(coming, trailer, (large, file, None), (verdict, None), false),
            // It is the whole object or nothing: only a sealed chunk was read from one version of its source.
            Target::Small(listed, index) => {
                let is_sealed = trailer.status == Status::GoodLast || mutant::is_on("publish-what-is-not-sealed");
                let verdict = if is_sealed || verdict == Verdict::Void { verdict } else { Verdict::Mismatch };
                self.end_small(coming, listed, index, verdict, open.error)
            }
            Target::Large(large, file, _, turn) => {
                self.end_large(coming, trailer, (large, file, Some(turn)), (verdict, open.error), open.is_hole)
            }
            Target::Unopened(large) => {
                match (verdict, open.error) {
                    (Verdict::Void, _) | (_, None) => self.job.take_back(id),
                    (_, Some(e)) => commit::unopened(self.job, &large, header.extent, &e),
                }
                Ok(())
            }
        }
    }

    fn end_small(
        &mut self,
        coming: Coming,
        listed: Arc<Listed>,
        index: usize,
        verdict: Verdict,
        error: Option<store::Error>,
    ) -> Result<(), Refusal> {
        match (verdict, error) {
            (Verdict::Void, _) => {
                self.sink.abandon();
                self.job.take_back(coming.id);
            }
            (_, Some(e)) => {
                self.sink.abandon();
                self.small_failed(&listed, index, &e);
            }
            (Verdict::Mismatch, None) => {
                self.sink.abandon();
                self.job.ask_again(&listed, index, None, "digest mismatch", FailureKind::DigestMismatch);
            }
            (Verdict::Good(digest), None) => {
                let mut outcome = Outcome::default();
                self.seal_small(&listed, index, &listed.expected(index).entry, digest, &mut outcome);
                self.job.settle(outcome);
            }
        }
        Ok(())
    }

    fn end_large(
        &mut self,
        Coming { header, id, told }: Coming,
        trailer: &ChunkTrailer,
        (large, file, turn): (Arc<Large>, Arc<dyn StagedFile>, Option<Turn>),
        verdict: (Verdict, Option<store::Error>),
        is_hole: bool,
    ) -> Result<(), Refusal> {
        let (listed, index) = large.place().clone();
        let extent = ExtentRecord { object: id, start: header.extent.start, end: header.extent.end };
        let sealed = (trailer.status == Status::GoodLast).then_some(trailer.object_bytes);
        if sealed.is_some_and(|size| !large.is_open_ended && size != large.size_bytes || size < header.extent.end) {
            return Err(malformed("an object is sealed with a size that it does not have"));
        }
        if matches!(verdict.0, Verdict::Good(_)) {
            large.check_end(header.extent, sealed).map_err(malformed)?;
        }
        match verdict {
            (Verdict::Void, _) => self.job.take_back(id),
            (_, Some(e)) => commit::chunk_failed(self.job, &large, &file, &e),
            (Verdict::Mismatch, None) => {
                let kind = FailureKind::DigestMismatch;
                large.refuse(header.extent);
                self.job.ask_again(&listed, index, Some(extent), "digest mismatch", kind);
            }
            (Verdict::Good(digest), None) if large.contradicts(header.extent, digest) => {
                let (kind, why) = (FailureKind::DigestMismatch, "a chunk came twice, with different content");
                if !large.is_fed_alone() {
                    // What was verified first stays; this job brings no more of the object.
                    self.job.fail(&listed, index, kind, why.to_owned());
                    return Ok(());
                }
                commit::restart(self.job, &large, &file, &store::Error::of_kind(kind, "receive", b"", why));
            }
            (Verdict::Good(digest), None) => {
                let recorded = match told {
                    Some(_) => large.record_proved(&file, header.extent, digest, false),
                    None => large.record(&file, header.extent, digest, sealed, is_hole),
                };
                drop(turn);
                self.job.came_right(id, header.extent);
                if let Some(place) = self.place {
                    recorded_among(place, &large, header.extent, &recorded);
                }
                if !self.job.charge_pieces(&large) {
                    return Ok(());
                }
                // What went into staging that died is not held: all of the object is asked for again.
                if !matches!(recorded, Ok(None)) && told.is_none() {
                    self.job.port.send(Message::Held(Held { job: self.job.number, extents: vec![extent] }));
                }
                match recorded {
                    Ok(Some(true)) => self.complete(large),
                    Ok(_) => {}
                    Err(e) => commit::chunk_failed(self.job, &large, &file, &e),
                }
            }
        }
        Ok(())
    }

    fn complete(&mut self, large: Arc<Large>) {
        self.clock.enter(Stage::Publish);
        commit::complete(self.job, large);
    }
}

/// Tells the book of several holders what became of a chunk.
fn recorded_among(place: &Place, large: &Large, extent: Extent, recorded: &store::Result<Option<bool>>) {
    match recorded {
        Ok(Some(_)) => place.brought(large.id, extent, || large.holds(extent)),
        // Its staging died meanwhile.
        Ok(None) => place.gather.again(large.id, Some(extent)),
        Err(_) => {}
    }
}

/// What is dropped as sent twice has a digest that fits. Else its number was damaged, and the object it belongs to would be
/// waited for in vain.
const NOT_ITS_OWN: &str = "content that does not belong to the object it is sent for";

fn malformed(what: &str) -> Refusal {
    Refusal::new(CloseCode::Malformed, what)
}

#[cfg(test)]
mod tests;
