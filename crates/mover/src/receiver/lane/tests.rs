//! Checks of a lane whose storage refuses a block, of what is charged for chunks, and of packs that are refused.

use super::super::by_hand::{Altered, Rig};
use super::{Found, PackedFile};
use crate::limits::LANE_BYTES;
use conformance::memory::Memory;
use model::options::Fsync;
use model::{Digest, DigestAlgorithm, FailureKind, ObjectId, TransferOptions};
use std::ops::Range;
use store::{BlockWriter, StagedFile};
use wire::Message;
use wire::data::{PackRow, Status};

const CHUNK: u64 = 64 << 10;

fn options(chunk_bytes: u64) -> TransferOptions {
    let digest = DigestAlgorithm::Crc64Nvme;
    TransferOptions { chunk_bytes, digest, fsync: Fsync::Never, ..TransferOptions::default() }
}

/// Refuses the first block, and says so until it is drained.
struct Refusing {
    block: Vec<u8>,
    is_refused: bool,
    has_error: bool,
}

fn refusing() -> Box<dyn BlockWriter> {
    Box::new(Refusing { block: vec![0; CHUNK as usize], is_refused: false, has_error: false })
}

fn lost() -> store::Error {
    store::Error::of_kind(FailureKind::WriteError, "write file", b"", "it was lost")
}

impl BlockWriter for Refusing {
    fn buffer(&mut self) -> store::Result<&mut [u8]> {
        if self.has_error { Err(lost()) } else { Ok(&mut self.block) }
    }
    fn write(&mut self, file: &dyn StagedFile, offset: u64, length: usize) -> store::Result<()> {
        if !std::mem::replace(&mut self.is_refused, true) {
            self.has_error = true;
            return Err(lost());
        }
        file.write_at(offset, &self.block[..length])
    }
    fn drain(&mut self) -> store::Result<()> {
        if std::mem::take(&mut self.has_error) { Err(lost()) } else { Ok(()) }
    }
    fn name(&self) -> &'static str {
        "refusing"
    }
}

#[test]
fn a_block_that_storage_refuses_fails_its_own_chunk_and_not_the_next_one() {
    let sink = Altered { writer: Some(refusing), ..Altered::of(&Memory::default()) };
    let rig = Rig::new(sink, options(CHUNK));
    for (id, name) in [(1, "a"), (2, "b")] {
        rig.describe(id, name, 2 * CHUNK, 1).unwrap();
    }
    let mut writer = rig.writer();
    for id in [1, 2] {
        rig.bring(&mut writer, id, 0, 2 * CHUNK);
    }
    let said = |message: Message| match message {
        Message::Held(held) => Some(("held", held.extents[0].object)),
        Message::Resend(again) => Some(("asked for again", again.extents[0].object)),
        _ => None,
    };
    assert_eq!([rig.hear(said), rig.hear(said)], [("asked for again", 1), ("held", 2)]);
}

#[test]
fn digests_of_chunks_are_charged_and_a_job_without_room_for_more_of_them_ends() {
    let (chunk_bytes, size_bytes) = (16, 16 << 12);
    let account = crate::Memory::of_endpoint(LANE_BYTES);
    let rig = Rig::charged(Altered::of(&Memory::default()), options(chunk_bytes), account.clone());
    rig.describe(1, "f", size_bytes, 1).unwrap();
    let mut writer = rig.writer();
    let mut bring = |chunks: Range<u64>| {
        for chunk in chunks {
            rig.bring(&mut writer, 1, chunk * chunk_bytes, size_bytes);
        }
    };
    let before = account.free_to_hold_bytes();
    bring(0..1023);
    assert_eq!(account.free_to_hold_bytes(), before);
    bring(1023..2048);
    let charged = before - account.free_to_hold_bytes();
    assert!(charged >= 2048 * size_of::<(u64, Digest)>(), "{charged}");
    let _rest = account.hold(account.free_to_hold_bytes(), "all").unwrap();
    assert!(rig.job.end.get().is_none());
    bring(2048..3072);
    assert!(rig.job.end.is_set());
}

/// Where one of several holders sends it, the others bring the rest.
#[test]
fn of_a_pack_that_is_refused_what_was_stored_is_settled_and_the_rest_is_still_expected() {
    let rig = Rig::new(Altered::of(&Memory::default()), options(CHUNK));
    for (id, name, size_bytes) in [(1, "a", 4), (2, "large", 2 * CHUNK), (3, "b", 4), (4, "c", 5), (5, "d", 4)] {
        rig.describe(id, name, size_bytes, 1).unwrap();
    }
    let digest = rig.job.options.digest.of_object(b"xxxx");
    let mut writer = rig.writer();
    // A chunk of a large object, and a file that is shorter than it was described.
    for ids in [[1, 2, 3], [3, 4, 5]] {
        let rows = ids.map(|id| PackRow { object: ObjectId(id), length: 4, status: Status::Good, bound: digest });
        let file = |row| PackedFile { row, bytes: b"xxxx", digest: Some(digest), late: None };
        assert!(writer.packed(&rows.each_ref().map(file)).is_err());
    }
    let mut table = rig.job.table.lock().unwrap();
    let states = [1, 3, 4, 5].map(|id| (table.is_open(id), matches!(table.take(id), Found::Small(..))));
    assert_eq!(states, [(false, false), (false, false), (true, true), (true, true)]);
}
