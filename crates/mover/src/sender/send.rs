//! A sender's lane: claims work, reads it, digests it while it is in cache, seals and sends it.
//!
//! Invariants: one lane, one thread, one stream; its memory is allocated once; nothing is shared for each block. The
//! digest is of the bytes that were read, before anything else touches them.

use super::SendJob;
use super::ahead::Ready;
use super::work::{Batch, Work};
use crate::block::Block;
use crate::compression::{Packer, sender_lane_bytes};
use crate::limits::{BLOCK_BYTES, DIGEST_TIMED_BYTES, PERMIT_PATIENCE};
use crate::memory::{LanePermit, Memory};
use crate::pace::Paced;
use crate::progress::LaneClock;
use crate::stream::{LaneEnd, Stream, Unit};
use model::options::Compression;
use model::progress::Stage;
use model::{ChunkHasher, Digest, DigestAlgorithm, Extent, FailureKind, Generation};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use store::{SourceFile, SourceLane, SourceObject, UNKNOWN_TIME};
use wire::CloseCode;
use wire::data::{
    CHUNK_HEADER_BYTES, ChunkHeader, ChunkTrailer, PackRow, Status, chunk_extra_bytes, encode_pack_table,
    pack_table_bytes,
};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES};
use wire::limits::{PACK_BODY_BYTES_MAX, PACK_BYTES_MAX, PACK_FILES_MAX};

/// Runs one lane on the calling thread until the job is over or the stream fails.
pub fn run_lane(job: &Arc<SendJob>, lane: u32, mut stream: impl Stream, memory: &Memory) -> LaneEnd {
    let mut clock = job.progress.lane(Stage::Memory);
    let _known = job.know_lane(lane, stream.gauge(), stream.breaker());
    // It has claimed nothing yet: while it waits, the lanes that have memory do the work.
    let waiting = job.progress.lanes.enter_waiting();
    let bytes = sender_lane_bytes(job.options.compression);
    let _permit = loop {
        match LanePermit::acquire(memory, bytes, &job.progress, PERMIT_PATIENCE) {
            Some(permit) => break permit,
            None if job.end.is_set() || job.is_complete() => return LaneEnd::NoMemory,
            None => clock.enter(Stage::Memory),
        }
    };
    drop(waiting);
    let _working = job.enter_work(lane);
    stream.widen();
    let stream = Paced::new(stream, &job.pace, &job.end);
    let is_packed = job.options.compression != Compression::None;
    let stream = Packer::new(stream, is_packed, &job.compression, &job.progress);
    let mut lane = Lane::new(job, lane, stream, clock);
    let mut end = Ok(());
    if crate::job::panics(|| end = lane.run()) {
        job.cancel(CloseCode::Internal, "a lane of this program failed; this is a bug");
    }
    if let Err(e) = end {
        if !model::mutant::is_on("forget-dead-lane") {
            job.lane_died(lane.number);
        }
        return LaneEnd::Failed(e);
    }
    LaneEnd::Done
}

pub(super) struct Lane<'a, S> {
    pub job: &'a Arc<SendJob>,
    pub number: u32,
    pub stream: S,
    source: Box<dyn SourceLane>,
    block: Block,
    pub clock: LaneClock,
    /// A chunk that it has claimed already.
    next: Option<Work>,
    /// One frame with a pack: header, table, payload.
    pack: Vec<u8>,
    rows: Vec<PackRow>,
    digests: Vec<(u64, Digest)>,
}

impl<'a, S: Stream> Lane<'a, S> {
    pub fn new(job: &'a Arc<SendJob>, number: u32, stream: S, clock: LaneClock) -> Lane<'a, S> {
        Lane {
            job,
            number,
            stream,
            source: job.source_lane(),
            block: Block::new(BLOCK_BYTES),
            clock,
            next: None,
            pack: vec![0; HEADER_BYTES + PACK_BODY_BYTES_MAX],
            rows: Vec::with_capacity(PACK_FILES_MAX),
            digests: Vec::with_capacity(PACK_FILES_MAX),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            self.clock.enter(Stage::Scan);
            let (clock, stream) = (&mut self.clock, &self.stream);
            // Everything may be in the hands of a stream that broke: then nobody but this lane knows that it is lost.
            let mut is_broken = false;
            let next = self.next.take().and_then(|work| self.job.take_ahead(self.number, work));
            let work = next.or_else(|| {
                self.job.claim(self.number, &mut |waits_in| {
                    clock.wait(waits_in);
                    is_broken = stream.is_broken() && !model::mutant::is_on("wait-on-a-broken-stream");
                    !is_broken
                })
            });
            if is_broken {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            match work {
                Some(Work::Files { batch, mut range }) => self.send_files(&batch, &mut range)?,
                Some(Work::Chunk { batch, index, extent }) => {
                    self.claim_ahead();
                    self.send_chunk(&batch.objects[index], extent)?;
                }
                Some(Work::Ready(ready)) => self.send_ready(&ready)?,
                None => break,
            }
            self.clock.note_cpu();
        }
        self.clock.enter(Stage::Send);
        self.stream.send(&[&FrameHeader::new(FrameType::End, 0).encode()])?;
        self.stream.close()
    }

    /// Has storage that is asked for several blocks at once go on with the next chunk when this one is read.
    fn claim_ahead(&mut self) {
        if !self.source.reads_ahead() {
            return;
        }
        self.next = self.job.claim_ahead(self.number);
        if let Some(Work::Chunk { batch, index, extent }) = &self.next {
            let object = &batch.objects[*index];
            self.clock.enter(Stage::Read);
            // If it does not open, that is reported when its turn comes.
            if let Ok(file) = self.job.file(object, &mut || self.source.open(object)) {
                self.source.expect(file, *extent);
            }
        }
    }

    /// Sends a frame that was read ahead. One that cannot be read back ends what is read ahead, and this stream with it: half of
    /// the frame may have left.
    fn send_ready(&mut self, ready: &Ready) -> io::Result<()> {
        let (mut at, mut payload) = (0, ready.unit.payload_bytes());
        while at < ready.frame_bytes() {
            self.clock.enter(Stage::Read);
            let part = (ready.frame_bytes() - at).min(self.block.len() as u64);
            let block = &mut self.block[..part as usize];
            if let Err(e) = ready.read_exact_at(block, at) {
                self.job.lose_ahead(&e.to_string());
                return Err(e);
            }
            send_timed(&mut self.stream, &mut self.clock, &[block])?;
            at += part;
            let moved = part.min(payload);
            payload -= moved;
            self.job.progress.payload_moved(moved);
        }
        Ok(())
    }

    /// Sends small files in as few packs as hold them. What is left of the range was not sent.
    pub fn send_files(&mut self, batch: &Batch, range: &mut Range<usize>) -> io::Result<()> {
        while range.start < range.end {
            let mut bytes = 0;
            let mut end = range.start;
            while end < range.end && end - range.start < PACK_FILES_MAX {
                let size = batch.objects[end].entry.size_bytes() as usize;
                if bytes + size > PACK_BYTES_MAX {
                    break;
                }
                bytes += size;
                end += 1;
            }
            self.send_pack(&batch.objects[range.start..end], bytes)?;
            range.start = end;
        }
        Ok(())
    }

    fn send_pack(&mut self, objects: &[SourceObject], payload_bytes: usize) -> io::Result<()> {
        let algorithm = self.job.options.digest;
        let table_bytes = pack_table_bytes(objects.len(), algorithm);
        let body_bytes = table_bytes + payload_bytes;
        self.rows.clear();
        self.digests.clear();
        let mut at = HEADER_BYTES + table_bytes;
        self.clock.enter(Stage::Read);
        self.source.ahead(objects);
        for object in objects {
            let size = object.entry.size_bytes() as usize;
            let place = &mut self.pack[at..at + size];
            at += size;
            let status = read_small(self.job, &mut *self.source, object, place);
            let extent = Extent::new(0, size as u64);
            let digest = digest_small(algorithm, place, &mut self.clock);
            let bound = digest.bind(object.entry.id, extent);
            self.rows.push(PackRow { object: object.entry.id, length: size as u32, status, bound });
            self.digests.push((object.entry.id.0, digest));
        }
        self.clock.enter(Stage::Seal);
        self.pack[..HEADER_BYTES].copy_from_slice(&FrameHeader::new(FrameType::Pack, body_bytes).encode());
        encode_pack_table(&self.rows, &mut self.pack[HEADER_BYTES..HEADER_BYTES + table_bytes]);
        self.job.note_digests(&mut self.digests.iter().copied());
        let (first, count) = (objects[0].entry.id, objects.len());
        self.stream.announce(Unit::Pack { first, count, bytes: payload_bytes as u64 });
        send_timed(&mut self.stream, &mut self.clock, &[&self.pack[..HEADER_BYTES + body_bytes]])?;
        self.moved(payload_bytes as u64);
        Ok(())
    }

    /// Content has left, and not only been read.
    fn moved(&self, bytes: u64) {
        if self.stream.is_network() {
            self.job.progress.payload_moved(bytes);
        }
    }

    pub fn send_chunk(&mut self, object: &SourceObject, extent: Extent) -> io::Result<()> {
        self.clock.enter(Stage::Read);
        let source = &mut self.source;
        let file = match self.job.file(object, &mut || source.open(object)) {
            Ok(file) => file,
            Err(e) => {
                self.job.source_failed(object, e.kind, e.message());
                return Ok(());
            }
        };
        if object.is_growing() {
            return self.send_fragment(object, extent, &*file);
        }
        if object.is_open_ended() {
            return self.send_open_ended(object, extent, &*file);
        }
        let header = ChunkHeader { object: object.entry.id, extent };
        let mut stream = ChunkStream { stream: &mut self.stream, clock: &mut self.clock, head: None };
        let reader: (&mut dyn SourceLane, &mut [u8]) = (&mut *self.source, &mut self.block);
        send_chunk_payload(self.job, reader, object, &*file, extent, &mut stream, header)
    }

    /// A fragment of an object that grows: read whole before its frame starts, because there may be less of it.
    fn send_fragment(&mut self, object: &SourceObject, extent: Extent, file: &dyn SourceFile) -> io::Result<()> {
        let algorithm = self.job.options.digest;
        let payload = &mut self.pack[..extent.length() as usize];
        if !read_fragment(self.job, object, extent, file, payload) {
            return Ok(());
        }
        self.clock.enter(Stage::Digest);
        let bound = algorithm.of_object(payload).bind(object.entry.id, extent);
        let frame = FrameHeader::new(FrameType::Growth, payload.len() + chunk_extra_bytes(algorithm)).encode();
        let header = ChunkHeader { object: object.entry.id, extent }.encode();
        let mut trailer = Vec::new();
        ChunkTrailer { status: Status::Good, object_bytes: extent.end, bound }.put(&mut trailer);
        send_timed(&mut self.stream, &mut self.clock, &[&frame, &header, payload, &trailer])?;
        self.job.progress.payload_moved(extent.length());
        Ok(())
    }

    /// A chunk whose length is known only when it is read: it is read whole before its frame starts.
    fn send_open_ended(&mut self, object: &SourceObject, extent: Extent, file: &dyn SourceFile) -> io::Result<()> {
        let _charge = match self.job.memory().hold(extent.length() as usize, "a chunk of a pipe (--chunk-size)") {
            Ok(charge) => charge,
            Err(refusal) => {
                self.job.source_failed(object, FailureKind::Other, refusal.text);
                return Ok(());
            }
        };
        let mut content = vec![0; extent.length() as usize];
        let got = match file.read_at(extent.start, &mut content) {
            Ok(got) => got,
            Err(e) => {
                self.job.source_failed(object, e.kind, e.message());
                return Ok(());
            }
        };
        content.truncate(got);
        let ended = file.is_at_end();
        let extent = Extent::new(extent.start, extent.start + got as u64);
        let mut hasher = ChunkHasher::new(self.job.options.digest, extent.start);
        hasher.update(&content);
        let is_first = extent.start == 0;
        let is_last = self.job.chunk_was_read(object, extent, hasher.finish(ended && is_first), ended);
        let digest = hasher.finish(is_last && is_first);
        let status = if is_last { Status::GoodLast } else { Status::Good };
        let bound = digest.bind(object.entry.id, extent);
        let mut trailer = Vec::new();
        ChunkTrailer { status, object_bytes: extent.end, bound }.put(&mut trailer);
        let body_bytes = got + chunk_extra_bytes(self.job.options.digest);
        let frame = FrameHeader::new(FrameType::Chunk, body_bytes).encode();
        let header = ChunkHeader { object: object.entry.id, extent }.encode();
        self.stream.announce(Unit::Chunk { object: object.entry.id, extent });
        send_timed(&mut self.stream, &mut self.clock, &[&frame, &header, &content, &trailer])?;
        self.moved(got as u64);
        Ok(())
    }
}

/// Reads a fragment. False when there is less of it than was said, or it cannot be read; then it is dealt with.
pub(crate) fn read_fragment(
    job: &Arc<SendJob>,
    object: &SourceObject,
    extent: Extent,
    file: &dyn SourceFile,
    payload: &mut [u8],
) -> bool {
    match file.read_at(extent.start, payload) {
        Ok(got) if got == payload.len() => true,
        Ok(got) => {
            job.fell_short(object, extent, extent.start + got as u64);
            false
        }
        Err(e) => {
            job.source_failed(object, e.kind, e.message());
            false
        }
    }
}

/// Sends, counting time spent waiting for the socket as `Send`, for the rate as `Limit`, and the rest as `Seal`.
fn send_timed(stream: &mut impl Stream, clock: &mut LaneClock, parts: &[&[u8]]) -> io::Result<()> {
    clock.enter(Stage::Seal);
    let (blocked_ns, paced_ns) = (stream.send_blocked_ns(), stream.paced_ns());
    let sent = stream.send(parts);
    clock.enter(Stage::Send);
    clock.reassign(Stage::Seal, Stage::Send, stream.send_blocked_ns() - blocked_ns);
    match stream.paced_ns() - paced_ns {
        0 => {}
        ns => clock.reassign(Stage::Seal, Stage::Limit, ns),
    }
    sent
}

/// Digests a small file, on the clock where that takes longer than reading the clock does.
pub(crate) fn digest_small(algorithm: DigestAlgorithm, content: &[u8], clock: &mut LaneClock) -> Digest {
    if content.len() < DIGEST_TIMED_BYTES {
        return algorithm.of_object(content);
    }
    clock.enter(Stage::Digest);
    let digest = algorithm.of_object(content);
    clock.enter(Stage::Read);
    digest
}

/// Reads a small file into its place in a pack and says what it is worth.
pub(crate) fn read_small(
    job: &Arc<SendJob>,
    source: &mut dyn SourceLane,
    object: &SourceObject,
    place: &mut [u8],
) -> Status {
    match source.read_whole(object, place) {
        Ok((got, generation))
            if got == place.len()
                && (is_version(generation, object.entry.generation) || model::mutant::is_on("ignore-changed-file")) =>
        {
            Status::Good
        }
        Ok((got, _)) => {
            // What another file left in the buffer must not travel under this one's name.
            place[got..].fill(0);
            job.source_changed(object);
            Status::Changed
        }
        // Content where none was listed is an error to whoever reads it, unless it has been written since.
        Err(_) if job.was_filled(object) => {
            job.source_changed(object);
            Status::Changed
        }
        Err(e) => {
            place.fill(0);
            job.source_failed(object, e.kind, e.message());
            Status::Failed
        }
    }
}

/// Whether what was read is what was listed. Where the listing did not know the time, the rest of it says so.
fn is_version(read: Generation, listed: Generation) -> bool {
    let is_timeless = listed.modified == UNKNOWN_TIME;
    read == Generation { modified: if is_timeless { read.modified } else { listed.modified }, ..listed }
}

/// Where the blocks of a chunk go.
trait ChunkTarget {
    fn start(&mut self, header: &ChunkHeader, body_bytes: usize) -> io::Result<()>;
    /// The block is in cache and digested.
    fn block(&mut self, block: &[u8]) -> io::Result<()>;
    fn end(&mut self, trailer: &ChunkTrailer) -> io::Result<()>;
    fn clock(&mut self) -> &mut LaneClock;
    fn moved(&self, job: &SendJob, bytes: u64);
}

/// Reads a chunk of a file whose size is known and passes it on block by block. When the source gives less than it
/// promised, the rest is filler and the trailer says so.
fn send_chunk_payload(
    job: &Arc<SendJob>,
    (source, own_block): (&mut dyn SourceLane, &mut [u8]),
    object: &SourceObject,
    file: &dyn SourceFile,
    extent: Extent,
    target: &mut dyn ChunkTarget,
    header: ChunkHeader,
) -> io::Result<()> {
    let algorithm = job.options.digest;
    let size = object.entry.size_bytes();
    target.start(&header, extent.length() as usize + chunk_extra_bytes(algorithm))?;
    let mut hasher = ChunkHasher::new(algorithm, extent.start);
    let mut sent = Ok(());
    // What was handed over before a read failed is in the frame already.
    let mut given = 0;
    target.clock().enter(Stage::Read);
    let read = source.read_extent(file, extent, own_block, &mut |block| {
        target.clock().enter(Stage::Digest);
        hasher.update(block);
        sent = target.block(block);
        given += block.len() as u64;
        target.moved(job, block.len() as u64);
        target.clock().enter(Stage::Read);
        sent.is_ok()
    });
    sent?;
    if given < extent.length() {
        fill(target, extent.length() - given)?;
    }
    let digest = hasher.finish(extent == Extent::new(0, size));
    let status = judge_read(job, object, file, extent, read, digest);
    let bound = digest.bind(object.entry.id, extent);
    target.end(&ChunkTrailer { status, object_bytes: size, bound })
}

/// Says what a chunk is worth of which so much was read.
pub(crate) fn judge_read(
    job: &Arc<SendJob>,
    object: &SourceObject,
    file: &dyn SourceFile,
    extent: Extent,
    read: store::Result<u64>,
    digest: Digest,
) -> Status {
    match read {
        Err(e) => {
            job.source_failed(object, e.kind, e.message());
            Status::Failed
        }
        Ok(got) if got < extent.length() => changed(job, object),
        // A chunk that is the whole object needs nobody else's reading: it may be on its way a second time, after a stream broke.
        Ok(_) if !job.chunk_was_read(object, extent, digest, false) && extent.length() < object.entry.size_bytes() => {
            Status::Good
        }
        // All of it was read: it is one version if the file is still the one that was listed.
        Ok(_) => match file.generation() {
            Ok(now) if now == object.entry.generation || model::mutant::is_on("ignore-changed-chunks") => {
                Status::GoodLast
            }
            _ => changed(job, object),
        },
    }
}

fn changed(job: &Arc<SendJob>, object: &SourceObject) -> Status {
    job.source_changed(object);
    Status::Changed
}

fn fill(target: &mut dyn ChunkTarget, mut missing: u64) -> io::Result<()> {
    let filler = vec![0; BLOCK_BYTES.min(missing as usize)];
    while missing > 0 {
        let part = missing.min(filler.len() as u64);
        target.block(&filler[..part as usize])?;
        missing -= part;
    }
    Ok(())
}

/// The stream as a chunk's target.
struct ChunkStream<'a, S> {
    stream: &'a mut S,
    clock: &'a mut LaneClock,
    /// Frame and chunk header: they leave with the first block.
    head: Option<[u8; HEADER_BYTES + CHUNK_HEADER_BYTES]>,
}

impl<S: Stream> ChunkTarget for ChunkStream<'_, S> {
    fn start(&mut self, header: &ChunkHeader, body_bytes: usize) -> io::Result<()> {
        let mut head = [0; HEADER_BYTES + CHUNK_HEADER_BYTES];
        head[..HEADER_BYTES].copy_from_slice(&FrameHeader::new(FrameType::Chunk, body_bytes).encode());
        head[HEADER_BYTES..].copy_from_slice(&header.encode());
        self.head = Some(head);
        self.stream.announce(Unit::Chunk { object: header.object, extent: header.extent });
        Ok(())
    }

    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        match self.head.take() {
            Some(head) => send_timed(self.stream, self.clock, &[&head, block]),
            None => send_timed(self.stream, self.clock, &[block]),
        }
    }

    fn end(&mut self, trailer: &ChunkTrailer) -> io::Result<()> {
        self.clock.enter(Stage::Send);
        let mut bytes = Vec::with_capacity(64);
        if let Some(head) = self.head.take() {
            bytes.extend_from_slice(&head);
        }
        trailer.put(&mut bytes);
        self.stream.send(&[&bytes])
    }

    fn clock(&mut self) -> &mut LaneClock {
        self.clock
    }

    fn moved(&self, job: &SendJob, bytes: u64) {
        if self.stream.is_network() {
            job.progress.payload_moved(bytes);
        }
    }
}
