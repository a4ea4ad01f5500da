//! Frames that wait for slow storage: whether one does, and a pack's way into the job's hold. A chunk is received into it (`receive`).
//!
//! Invariant: what does not have the digest its sender gave it does not wait: it is asked for again at once.

use super::ReceiveJob;
use super::hold::{What, record_of};
use super::lane::PackedFile;
use super::verify::{self, Verdict};
use crate::progress::LaneClock;
use model::progress::Stage;
use std::sync::Arc;
use store::spool::Room;
use wire::data::ChunkHeader;
use wire::frame::HEADER_BYTES;

/// Keeps a pack that was received. False when it is to go straight on.
pub(crate) fn pack(job: &Arc<ReceiveJob>, clock: &mut LaneClock, files: &[PackedFile<'_>], frame: [&[u8]; 2]) -> bool {
    let Some(hold) = job.hold.get() else { return false };
    let what = What::Pack(files.iter().map(|file| file.row.object.0).collect());
    let bytes = what.parcel_bytes(frame.iter().map(|part| part.len() as u64).sum());
    // A full buffer is storage behind it that does not keep up.
    clock.enter(Stage::Write);
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
    true
}

/// Room for a chunk that is to wait; nothing when it is to go straight on.
pub(crate) fn room_for_chunk(
    job: &Arc<ReceiveJob>,
    clock: &mut LaneClock,
    header: &ChunkHeader,
    body_bytes: u32,
) -> Option<(Room, What)> {
    let hold = job.hold.get()?;
    let extent = record_of(header.object.0, header.extent);
    let what = What::Chunk { extent, is_seal: false, is_large: true };
    clock.enter(Stage::Write);
    let bytes = what.parcel_bytes(HEADER_BYTES as u64 + u64::from(body_bytes));
    let room = hold.room(bytes, &|| job.is_storage_late(), &job.end);
    clock.enter(Stage::Open);
    room.map(|room| (room, what))
}
