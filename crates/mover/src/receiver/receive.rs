//! A receiver's lane: takes frames from its stream and hands their content to its `Writer` while it is in cache.
//!
//! Invariants: one lane, one thread, one stream; its memory is allocated once.
//!
//! Not here: frames that wait for slow storage (`keep` says which, `drain` takes them out of the job's hold).

use super::ReceiveJob;
use super::aside::{Lending, Lent};
use super::hold::{Hold, What};
use super::keep;
use super::lane::{PackedFile, Writer};
use super::verify::{self, Verdict};
use crate::block::Block;
use crate::compression::{Opener, receiver_lane_bytes};
use crate::limits::{BLOCK_BYTES, LANE_BYTES};
use crate::memory::{LanePermit, Memory};
use crate::progress::LaneClock;
use crate::stream::{LaneEnd, Stream};
use model::ChunkHasher;
use model::mutant;
use model::options::Compression;
use model::progress::Stage;
use os::time::Instant;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Order;
use store::spool::Room;
use wire::data::{CHUNK_HEADER_BYTES, ChunkHeader, ChunkTrailer, PackRow, Status, decode_pack, trailer_bytes};
use wire::frame::{FrameHeader, FrameType, HEADER_BYTES, check_data_body};
use wire::limits::{PACK_BODY_BYTES_MAX, PACK_FILES_MAX};
use wire::{CloseCode, Refusal};

/// Runs one lane on the calling thread until its sender ends it. `refused` hears of a peer that broke the protocol.
pub fn run_lane(
    job: &Arc<ReceiveJob>,
    mut stream: impl Stream,
    memory: &Memory,
    refused: &mut dyn FnMut(Refusal),
) -> LaneEnd {
    let mut clock = job.progress.lane(Stage::Receive);
    // A stream that brings nothing takes no memory.
    if let Err(e) = stream.wait_for_data() {
        return LaneEnd::Failed(e);
    }
    clock.enter(Stage::Memory);
    let (bytes, is_over) = (receiver_lane_bytes(job.options.compression), || job.end.is_set());
    let Some(_permit) = LanePermit::acquire_to_receive(memory, bytes, &job.progress, &mut clock, &is_over) else {
        return LaneEnd::NoMemory;
    };
    stream.widen();
    let stream = Opener::new(stream, job.options.compression != Compression::None, &job.progress);
    let end = match job.hold.get().filter(|hold| hold.may_turn_aside() && job.facts.order == Order::Any) {
        Some(hold) => carry_or_turn_aside(job, hold, stream, clock, memory),
        None => carry(job, stream, clock),
    };
    match end {
        Ok(()) => LaneEnd::Done,
        Err(LaneError::Stream(e)) => LaneEnd::Failed(e),
        Err(LaneError::Refused(refusal)) => {
            refused(refusal);
            LaneEnd::Done
        }
    }
}

/// Takes what a stream brings, to its end.
fn carry(job: &Arc<ReceiveJob>, stream: impl Stream, clock: LaneClock) -> Result<(), LaneError> {
    let mut lane = match StreamLane::new(job, stream, clock) {
        Ok(lane) => lane,
        Err(e) => {
            job.cancel(CloseCode::Forbidden, &e.to_string());
            return Ok(());
        }
    };
    let mut end = Ok(());
    if crate::job::panics(|| end = lane.run()) {
        job.cancel(CloseCode::Internal, "a lane of this program failed; this is a bug");
    }
    end
}

/// The same, beside another thread that goes on with the stream when this one is stuck in storage.
fn carry_or_turn_aside<S: Stream>(
    job: &Arc<ReceiveJob>,
    hold: &Hold,
    stream: S,
    clock: LaneClock,
    memory: &Memory,
) -> Result<(), LaneError> {
    let (lending, watch) = (Lending::new(stream), clock.watch());
    let go_on = || -> Option<Result<(), LaneError>> {
        let mut permit = None;
        let taken = lending.take(hold, &watch, &mut || {
            permit = permit.take().or_else(|| memory.acquire(LANE_BYTES, Duration::ZERO));
            permit.is_some()
        });
        match taken {
            Ok(None) => None,
            Ok(Some(stream)) => Some(carry(job, stream, job.progress.lane(Stage::Receive))),
            Err(e) => Some(Err(e.into())),
        }
    };
    std::thread::scope(|scope| {
        let Ok(other) = std::thread::Builder::new().name("aside".into()).spawn_scoped(scope, go_on) else {
            return carry(job, Lent::new(&lending, hold), clock);
        };
        let end = carry(job, Lent::new(&lending, hold), clock);
        lending.done();
        other.thread().unpark();
        if matches!(end, Err(LaneError::Refused(_))) {
            lending.break_off();
        }
        match (end, other.join()) {
            (Err(LaneError::Refused(refusal)), _) => Err(LaneError::Refused(refusal)),
            (_, Ok(Some(other))) => other,
            (end, _) => end,
        }
    })
}

pub(super) enum LaneError {
    Stream(io::Error),
    Refused(Refusal),
}

impl From<io::Error> for LaneError {
    /// What a parcel is refused for comes as an error of the stream.
    fn from(e: io::Error) -> Self {
        match e.get_ref().and_then(|inner| inner.downcast_ref::<Refusal>()) {
            Some(refusal) => LaneError::Refused(refusal.clone()),
            None => LaneError::Stream(e),
        }
    }
}

impl From<Refusal> for LaneError {
    fn from(refusal: Refusal) -> Self {
        LaneError::Refused(refusal)
    }
}

pub(super) struct StreamLane<'a, S> {
    pub job: &'a Arc<ReceiveJob>,
    pub stream: S,
    pub writer: Writer<'a>,
    pack: Vec<u8>,
    rows: Vec<PackRow>,
    block: Block,
    /// What it reads came over the network just now.
    pub is_first_hand: bool,
}

impl<'a, S: Stream> StreamLane<'a, S> {
    pub fn new(job: &'a Arc<ReceiveJob>, stream: S, clock: LaneClock) -> store::Result<StreamLane<'a, S>> {
        Ok(StreamLane {
            job,
            writer: Writer::new(job, clock, stream.breaker())?,
            stream,
            pack: vec![0; PACK_BODY_BYTES_MAX],
            rows: Vec::with_capacity(PACK_FILES_MAX),
            block: Block::new(BLOCK_BYTES),
            is_first_hand: true,
        })
    }

    fn run(&mut self) -> Result<(), LaneError> {
        while self.frame()? && !self.job.end.is_set() {}
        Ok(())
    }

    /// Takes one frame. False when the sender ends the lane.
    pub fn frame(&mut self) -> Result<bool, LaneError> {
        let mut head = [0; HEADER_BYTES];
        self.writer.clock.enter(Stage::Receive);
        self.stream.recv_exact(&mut head)?;
        let header = FrameHeader::decode(&head)?;
        let Some(frame_type) = header.known()? else {
            self.skip(header.body_bytes as usize)?;
            return Ok(true);
        };
        check_data_body(frame_type, header.body_bytes, self.job.options.chunk_bytes)?;
        let job = self.job;
        let _frame = self.is_first_hand.then(|| job.progress.lanes.enter_frame());
        match frame_type {
            FrameType::Pack => self.pack(&head, header.body_bytes as usize)?,
            FrameType::Chunk => self.chunk(&head, header.body_bytes)?,
            FrameType::Growth => self.fragment(header.body_bytes as usize)?,
            _ => return Ok(false),
        }
        self.writer.clock.note_cpu();
        Ok(true)
    }

    fn payload_moved(&self, bytes: u64) {
        if self.is_first_hand {
            self.job.progress.payload_moved(bytes);
            if let Some(place) = self.job.place.get() {
                place.payload_moved(bytes);
            }
        }
    }

    fn skip(&mut self, mut bytes: usize) -> io::Result<()> {
        while bytes > 0 {
            let part = bytes.min(self.block.len());
            self.stream.recv_exact(&mut self.block[..part])?;
            bytes -= part;
        }
        Ok(())
    }

    fn pack(&mut self, head: &[u8], body_bytes: usize) -> Result<(), LaneError> {
        let body = &mut self.pack[..body_bytes];
        recv_timed(&mut self.stream, &mut self.writer.clock, body)?;
        let body = &self.pack[..body_bytes];
        let payload = decode_pack(body, self.job.options.digest, &mut self.rows)?;
        let mut files = Vec::with_capacity(self.rows.len());
        let mut at = 0;
        for row in &self.rows {
            let bytes = &payload[at..at + row.length as usize];
            at += row.length as usize;
            files.push(PackedFile { row, bytes, digest: None, late: None });
        }
        if self.is_first_hand {
            self.payload_moved(at as u64);
            if keep::pack(self.job, &mut self.writer.clock, &files, [head, body]) {
                return Ok(());
            }
        }
        self.writer.packed(&files)?;
        Ok(())
    }

    fn chunk(&mut self, frame_head: &[u8], body_bytes: u32) -> Result<(), LaneError> {
        let options = &self.job.options;
        let mut head = [0; CHUNK_HEADER_BYTES];
        self.stream.recv_exact(&mut head)?;
        let header = ChunkHeader::decode(&head, body_bytes, options.digest, options.chunk_bytes)?;
        if self.is_first_hand
            && let Some(room) = keep::room_for_chunk(self.job, &mut self.writer.clock, &header, body_bytes)
        {
            return self.keep_chunk(&header, [frame_head, &head], room);
        }
        self.writer.start(&header)?;
        let moved = self.chunk_payload(&header);
        if moved.is_err() {
            self.writer.give_back();
        }
        moved
    }

    /// A fragment of an object that grows: it is verified before any of it is written.
    fn fragment(&mut self, body_bytes: usize) -> Result<(), LaneError> {
        let algorithm = self.job.options.digest;
        let body = &mut self.pack[..body_bytes];
        recv_timed(&mut self.stream, &mut self.writer.clock, body)?;
        let (head, rest) = body.split_first_chunk::<CHUNK_HEADER_BYTES>().ok_or_else(short_fragment)?;
        let header = ChunkHeader::decode_fragment(head, body_bytes as u32, algorithm)?;
        let (payload, trailer) = rest.split_at(header.extent.length() as usize);
        let trailer = ChunkTrailer::decode(trailer, algorithm)?;
        let digest = algorithm.of_object(payload);
        self.job.progress.payload_moved(payload.len() as u64);
        self.writer.fragment(&header, payload, &trailer, digest)?;
        Ok(())
    }

    fn chunk_payload(&mut self, header: &ChunkHeader) -> Result<(), LaneError> {
        let algorithm = self.job.options.digest;
        let mut hasher = ChunkHasher::new(algorithm, header.extent.start);
        let mut left = header.extent.length() as usize;
        while left > 0 {
            let block = match self.writer.queue_buffer() {
                Some(buffer) => buffer,
                None => &mut self.block[..],
            };
            let part = left.min(block.len());
            let block = &mut block[..part];
            // The block lives in the writer's queue or in this lane: the clock is in the writer too, hence by value.
            let before = self.stream.recv_blocked_ns();
            if let Err(e) = self.stream.recv_exact(block) {
                if !mutant::is_on("take-fin-for-the-end") {
                    return Err(e.into());
                }
                let digest = hasher.finish(true);
                let bound = digest.bind(header.object, header.extent);
                let trailer = ChunkTrailer { status: Status::GoodLast, object_bytes: header.extent.end, bound };
                return Ok(self.writer.end(&trailer, digest)?);
            }
            let received = Instant::now();
            hasher.update(block);
            let digest_ns = received.elapsed().as_nanos() as u64;
            let blocked_ns = self.stream.recv_blocked_ns() - before;
            match self.writer.is_queued() {
                true => self.writer.submit(part, blocked_ns, digest_ns),
                false => {
                    self.writer.received(blocked_ns, digest_ns);
                    self.writer.write(&self.block[..part]);
                }
            }
            self.payload_moved(part as u64);
            left -= part;
        }
        let mut trailer = [0; 48];
        let trailer = &mut trailer[..trailer_bytes(algorithm)];
        self.stream.recv_exact(trailer)?;
        let trailer = ChunkTrailer::decode(trailer, algorithm)?;
        let is_whole =
            header.extent.start == 0 && trailer.status == Status::GoodLast && header.extent.end == trailer.object_bytes;
        self.writer.end(&trailer, hasher.finish(is_whole))?;
        Ok(())
    }
}

impl<S: Stream> StreamLane<'_, S> {
    /// Receives a chunk into its room. A spool that fails takes the rest of it nowhere: the chunk is asked for again.
    fn keep_chunk(
        &mut self,
        header: &ChunkHeader,
        heads: [&[u8]; 2],
        (mut room, mut what): (Room, What),
    ) -> Result<(), LaneError> {
        let (job, algorithm) = (self.job, self.job.options.digest);
        let hold = job.hold.get().expect("there is room in it");
        let mut failed = [&what.head()[..], heads[0], heads[1]].iter().find_map(|part| room.write(part).err());
        let mut hasher = ChunkHasher::new(algorithm, header.extent.start);
        let mut left = header.extent.length() as usize;
        while left > 0 {
            let part = left.min(self.block.len());
            let before = self.stream.recv_blocked_ns();
            self.stream.recv_exact(&mut self.block[..part])?;
            self.writer.received(self.stream.recv_blocked_ns() - before, 0);
            hasher.update(&self.block[..part]);
            if failed.is_none() {
                failed = room.write(&self.block[..part]).err();
            }
            self.writer.clock.enter(Stage::Open);
            self.job.progress.payload_moved(part as u64);
            left -= part;
        }
        let mut bytes = [0; 48];
        let bytes = &mut bytes[..trailer_bytes(algorithm)];
        self.stream.recv_exact(bytes)?;
        let trailer = ChunkTrailer::decode(bytes, algorithm)?;
        let is_last = trailer.status == Status::GoodLast;
        let is_whole = header.extent.start == 0 && is_last && header.extent.end == trailer.object_bytes;
        let digest = hasher.finish(is_whole);
        if !matches!(verify::chunk(&trailer, header.object, header.extent, digest), Verdict::Good(_)) {
            // What becomes of such a chunk is the same, whatever way it takes: nothing of it is written.
            drop(room);
            self.writer.start(header)?;
            return Ok(self.writer.end(&trailer, digest)?);
        }
        if let What::Chunk { is_seal, is_large, .. } = &mut what {
            (*is_seal, *is_large) = (is_last, !is_whole);
        }
        let flags = what.flags();
        let failed = failed.or_else(|| [&bytes[..], &flags].iter().find_map(|part| room.write(part).err()));
        let committed = failed.map_or(Ok(()), Err).and_then(|()| room.commit());
        match committed {
            Ok(parcel) => hold.keep(parcel, what),
            Err(e) => {
                hold.lose(&e.to_string());
                job.ask_for(&what);
            }
        }
        Ok(())
    }
}

fn short_fragment() -> Refusal {
    Refusal::new(CloseCode::Malformed, "a fragment is shorter than its header")
}

/// Receives, counting time in the socket as `Receive` and the rest as `Open`.
fn recv_timed(stream: &mut impl Stream, clock: &mut LaneClock, buffer: &mut [u8]) -> io::Result<()> {
    clock.enter(Stage::Open);
    let before = stream.recv_blocked_ns();
    stream.recv_exact(buffer)?;
    clock.enter(Stage::Open);
    clock.reassign(Stage::Open, Stage::Receive, stream.recv_blocked_ns() - before);
    Ok(())
}
