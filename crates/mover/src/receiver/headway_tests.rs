//! Checks that work of which the sender sees nothing counts as getting on, step by step.

use super::Asked;
use super::by_hand::{Altered, Rig};
use super::links::HardLinks;
use conformance::memory::Memory;
use model::options::{Deletion, Fsync, Verify};
use model::{Entry, Generation, Kind, Name, ObjectId, TransferOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use wire::Message;
use wire::message::{Entries, EntryRecord, Finish, ListEnd};

const CHUNK: u64 = 64 << 10;
const DIRECTORY: u32 = 1;

fn options() -> TransferOptions {
    TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, ..TransferOptions::default() }
}

fn worked(rig: &Rig) -> u64 {
    rig.job.progress.worked.load(Relaxed)
}

#[test]
fn reading_back_is_headway() {
    let options = TransferOptions { verify: Verify::Reread, ..options() };
    let rig = Rig::new(Altered::of(&Memory::default()), options);
    rig.describe(1, "large", 3 * CHUNK, 1).unwrap();
    for chunk in 0..3 {
        rig.bring(&mut rig.writer(), 1, chunk * CHUNK, 3 * CHUNK);
    }
    assert_eq!(worked(&rig), 3);
    rig.describe(2, "small", 10, 1).unwrap();
    rig.bring(&mut rig.writer(), 2, 0, 10);
    assert_eq!(worked(&rig), 4);
}

#[test]
fn reading_what_an_earlier_attempt_left_is_headway() {
    let memory = Memory::default();
    let first = Rig::new(Altered::of(&memory), options());
    first.describe(1, "f", 3 * CHUNK, 1).unwrap();
    for chunk in 0..2 {
        first.bring(&mut first.writer(), 1, chunk * CHUNK, 3 * CHUNK);
    }
    drop(first);
    // Its thread may still have the staging.
    while memory.is_held() {
        std::thread::yield_now();
    }
    let second = Rig::new(Altered::of(&memory), options());
    second.describe(1, "f", 3 * CHUNK, 1).unwrap();
    assert_eq!(worked(&second), 2);
}

#[test]
fn names_that_are_linked_are_headway() {
    let rig = Rig::new(Altered::of(&Memory::default()), options());
    let entry = Entry {
        id: ObjectId(2),
        parent: ObjectId::ROOT,
        name: Name::new(b"other").unwrap(),
        kind: Kind::HardLink(ObjectId(1)),
        mode: 0o644,
        generation: Generation::default(),
        attributes: None,
    };
    let mut links = HardLinks::default();
    (0..3).for_each(|_| links.add(ObjectId(1), &entry));
    links.make(&rig.job, &mut |_| {});
    assert_eq!(worked(&rig), 3);
}

#[test]
fn what_is_removed_and_directories_that_are_finished_are_headway() {
    for (deletion, at_least) in [(None, 3), (Some(Deletion { is_at_root: true, removals_max: None }), 3 + 5)] {
        let memory = Memory::default();
        (0..5).for_each(|number| memory.put(&format!("old{number}"), b"old"));
        let is_pruned = deletion.is_some();
        let rig = Rig::new(Altered::of(&memory), TransferOptions { deletion, ..options() });
        let record = |number: u64| EntryRecord {
            name: format!("d{number}").into_bytes(),
            kind: DIRECTORY,
            mode: 0o755,
            ..EntryRecord::default()
        };
        let entries = (1..=3).map(record).collect();
        rig.job.handle(Entries { job: 1, first: 1, entries }.into()).unwrap();
        rig.job.handle(ListEnd { job: 1, entries: 3, bytes: 0 }.into()).unwrap();
        rig.job.handle(Finish { job: 1, is_buffered: false }.into()).unwrap();
        rig.hear(|message| matches!(message, Message::Finished(_)).then_some(()));
        assert!(worked(&rig) >= at_least, "{}", worked(&rig));
        assert_eq!(memory.content("old0").is_none(), is_pruned);
    }
}

#[test]
fn whoever_asked_for_a_listing_is_owed_the_rest_of_it_while_nothing_else_is_open() {
    let rig = Rig::new(Altered::of(&Memory::default()), options());
    let is_owed = || rig.job.headway().is_owed;
    assert!(!is_owed(), "nobody asked");
    rig.job.hold_to(Asked::of(&[b"in/".to_vec()], Arc::default()));
    assert!(is_owed() && rig.job.is_listing_owed());
    rig.job.owes_answer(true);
    assert!(is_owed() && !rig.job.is_listing_owed(), "the answer comes first");
    rig.job.owes_answer(false);
    rig.describe(1, "f", 10, 1).unwrap();
    assert!(is_owed() && !rig.job.is_listing_owed(), "the content does");
    rig.bring(&mut rig.writer(), 1, 0, 10);
    // The thread that decides has looked at all of it by now, or in a moment.
    while !rig.job.is_listing_owed() {
        std::thread::yield_now();
    }
    rig.job.handle(ListEnd { job: 1, entries: 1, bytes: 10 }.into()).unwrap();
    assert!(is_owed() && !rig.job.is_listing_owed(), "the last word is");
}
