//! Checks of what counts as still to come.

use super::super::by_hand::{Altered, Rig};
use conformance::memory::Memory;
use model::TransferOptions;
use model::options::Fsync;
use wire::Message;
use wire::listing::REPLACEMENT_FIRST;

const CHUNK: u64 = 64 << 10;

fn rig(memory: &Memory, free_bytes: u64) -> Rig {
    let options = TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, ..TransferOptions::default() };
    Rig::new(Altered { free_bytes, ..Altered::of(memory) }, options)
}

#[test]
fn what_an_earlier_attempt_reserved_is_not_needed_a_second_time() {
    let memory = Memory::default();
    let first = rig(&memory, 10 * CHUNK);
    first.describe(1, "f", 6 * CHUNK, 1).unwrap();
    first.bring(&mut first.writer(), 1, 0, 6 * CHUNK);
    drop(first);
    // Its thread may still have the staging.
    while memory.is_held() {
        std::thread::yield_now();
    }
    let second = rig(&memory, 4 * CHUNK);
    let want = second.describe(1, "f", 6 * CHUNK, 1).unwrap();
    assert_eq!((want.extents[0].start, want.extents[0].end), (CHUNK, 6 * CHUNK));
}

#[test]
fn what_is_described_again_counts_once_and_what_is_open_beside_it_counts_too() {
    let rig = rig(&Memory::default(), 9 * CHUNK);
    rig.describe(1, "f", 6 * CHUNK, 1).unwrap();
    rig.describe(REPLACEMENT_FIRST, "f", 6 * CHUNK, 2).unwrap();
    let lack = rig.describe(2, "g", 4 * CHUNK, 1).unwrap_err();
    assert!(lack.starts_with("no space at the destination: "), "{lack}");
}

#[test]
fn room_that_others_made_since_the_job_began_counts() {
    let rig = rig(&Memory::default(), 15);
    for id in 1..=3 {
        rig.describe(id, &format!("f{id}"), 10, 1).unwrap();
        rig.bring(&mut rig.writer(), id, 0, 10);
        // It was taken away as soon as it was there: as much is free as before.
        rig.hear(|message| matches!(message, Message::Settled(_)).then_some(()));
    }
    rig.describe(4, "f4", 10, 1).unwrap();
    assert!(rig.describe(5, "f5", 10, 1).is_err());
}

#[test]
fn what_staging_has_of_an_open_object_is_not_to_come() {
    let rig = rig(&Memory::default(), 7 * CHUNK);
    rig.describe(1, "f", 6 * CHUNK, 1).unwrap();
    rig.bring(&mut rig.writer(), 1, 0, 6 * CHUNK);
    // All of the first is reserved by now, and so much is free beside it.
    rig.describe(2, "g", 5 * CHUNK, 1).unwrap();
    assert!(rig.describe(3, "h", 3 * CHUNK, 1).is_err());
}
