//! Checks of what the sender gives up: whoever hears of it waits for no storage, and it counts once.

use super::super::by_hand::{Altered, PATIENCE, Rig};
use conformance::memory::Memory;
use model::options::Fsync;
use model::{Extent, ObjectId, TransferOptions};
use std::sync::{Arc, Mutex, mpsc};
use wire::Message;
use wire::data::{ChunkHeader, ChunkTrailer, Status};
use wire::message::{FailureRecord, Finish, ListEnd, SourceFailures};

const CHUNK: u64 = 64 << 10;

#[test]
fn what_the_sender_gives_up_is_dropped_without_holding_up_what_it_says_next() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let discarding: Arc<dyn Fn() + Send + Sync> = Arc::new(move || _ = released.lock().unwrap().recv());
    let options = TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, ..TransferOptions::default() };
    let rig = Rig::new(Altered { discarding, ..Altered::of(&Memory::default()) }, options);
    rig.describe(1, "f", 2 * CHUNK, 1).unwrap();
    rig.bring(&mut rig.writer(), 1, 0, 2 * CHUNK);
    let (job, (tell, told)) = (rig.job.clone(), mpsc::channel());
    std::thread::spawn(move || {
        let failures = vec![FailureRecord { object: 1, ..FailureRecord::default() }];
        let said: [Message; 3] = [
            SourceFailures { job: 1, failures }.into(),
            ListEnd { job: 1, entries: 1, bytes: 2 * CHUNK }.into(),
            Finish { job: 1, is_buffered: false }.into(),
        ];
        let _ = tell.send(said.into_iter().all(|message| job.handle(message).is_ok()));
    });
    let are_taken = told.recv_timeout(PATIENCE);
    drop(release);
    assert_eq!(are_taken, Ok(true));
    rig.hear(|message| matches!(message, Message::Finished(_)).then_some(()));
}

fn rig_with_a_file() -> Rig {
    let options = TransferOptions { chunk_bytes: CHUNK, fsync: Fsync::Never, ..TransferOptions::default() };
    let rig = Rig::new(Altered::of(&Memory::default()), options);
    rig.describe(1, "f", 10, 1).unwrap();
    rig
}

/// The sender says that it gives the file up.
fn give_up(rig: &Rig) {
    let failures = vec![FailureRecord { object: 1, ..FailureRecord::default() }];
    rig.job.handle(SourceFailures { job: 1, failures }.into()).unwrap();
}

/// How many files were done and failed in the end.
fn counted(rig: &Rig) -> (u64, u64) {
    rig.job.handle(ListEnd { job: 1, entries: 1, bytes: 10 }.into()).unwrap();
    rig.job.handle(Finish { job: 1, is_buffered: false }.into()).unwrap();
    rig.hear(|message| matches!(message, Message::Finished(_)).then_some(()));
    let counts = rig.job.progress.snapshot().counts;
    (counts.files_done, counts.files_failed)
}

#[test]
fn a_file_that_its_sender_gives_up_after_it_was_published_counts_as_published_alone() {
    let rig = rig_with_a_file();
    rig.bring(&mut rig.writer(), 1, 0, 10);
    // Its sender has not heard of it yet.
    rig.hear(|message| matches!(message, Message::Settled(_)).then_some(()));
    give_up(&rig);
    assert_eq!(counted(&rig), (1, 0));
}

#[test]
fn a_file_that_is_taken_back_with_its_content_counts_as_failed_once_whichever_word_comes_first() {
    for is_said_first in [false, true] {
        let rig = rig_with_a_file();
        if is_said_first {
            give_up(&rig);
        }
        let (algorithm, object, extent) = (rig.job.options.digest, ObjectId(1), Extent::new(0, 10));
        let digest = algorithm.of_object(&[0; 10]);
        let bound = digest.bind(object, extent);
        let mut writer = rig.writer();
        writer.start(&ChunkHeader { object, extent }).unwrap();
        writer.write_block(&[0; 10]);
        writer.end(&ChunkTrailer { status: Status::Failed, object_bytes: 10, bound }, digest).unwrap();
        if !is_said_first {
            give_up(&rig);
        }
        assert_eq!(counted(&rig), (0, 1), "{is_said_first}");
    }
}
