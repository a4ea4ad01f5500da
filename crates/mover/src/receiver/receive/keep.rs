//! Frames that wait for slow storage: received, verified, and put into the job's hold instead of into storage.
//!
//! Invariant: what does not have the digest its sender gave it does not wait: it is asked for again at once.

use super::super::ReceiveJob;
use super::super::hold::{What, record_of};
use super::super::lane::PackedFile;
use super::super::verify::{self, Verdict};
use super::{LaneError, StreamLane};
use crate::progress::LaneClock;
use crate::stream::Stream;
use model::ChunkHasher;
use model::progress::Stage;
use std::sync::Arc;
use store::spool::Room;
use wire::data::{ChunkHeader, ChunkTrailer, Status, trailer_bytes};
use wire::frame::HEADER_BYTES;

/// Keeps a pack that was received. False when it is to go straight on.
pub(super) fn pack(job: &Arc<ReceiveJob>, clock: &mut LaneClock, files: &[PackedFile<'_>], frame: [&[u8]; 2]) -> bool {
    let Some(hold) = job.hold.get() else { return false };
    let what = What::Pack(files.iter().map(|file| file.row.object.0).collect());
    let bytes = what.parcel_bytes(frame.iter().map(|part| part.len() as u64).sum());
    clock.enter(Stage::Memory);
    let Some(mut room) = hold.room(bytes, &|| job.is_storage_late(), &job.end) else { return false };
    clock.enter(Stage::Digest);
    let is_good = |file: &PackedFile<'_>| {
        matches!(verify::packed_file(file.row, file.bytes, job.options.digest), Verdict::Good(_))
    };
    if !files.iter().all(is_good) {
        return false;
    }
    clock.enter(Stage::Write);
    let (head, flags) = (what.head(), what.flags());
    let parts = [&head[..], frame[0], frame[1], &flags];
    let written = parts.iter().try_for_each(|part| room.write(part)).and_then(|()| room.commit());
    match written {
        Ok(parcel) => hold.keep(parcel, what),
        Err(e) => {
            hold.lose(&e.to_string());
            return false;
        }
    }
    super::drain::start_missing(job);
    true
}

/// Room for a chunk that is to wait; nothing when it is to go straight on.
pub(super) fn room_for_chunk(
    job: &Arc<ReceiveJob>,
    clock: &mut LaneClock,
    header: &ChunkHeader,
    body_bytes: u32,
) -> Option<(Room, What)> {
    let hold = job.hold.get()?;
    let extent = record_of(header.object.0, header.extent);
    let what = What::Chunk { extent, is_seal: false, is_large: true };
    clock.enter(Stage::Memory);
    let bytes = what.parcel_bytes(HEADER_BYTES as u64 + u64::from(body_bytes));
    let room = hold.room(bytes, &|| job.is_storage_late(), &job.end);
    clock.enter(Stage::Open);
    room.map(|room| (room, what))
}

impl<S: Stream> StreamLane<'_, S> {
    /// Receives a chunk into its room. A spool that fails takes the rest of it nowhere: the chunk is asked for again.
    pub(super) fn keep_chunk(
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
        super::drain::start_missing(job);
        Ok(())
    }
}
