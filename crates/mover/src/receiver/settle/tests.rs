//! Checks that whoever hears what the sender says waits for no storage.

use super::super::by_hand::{Altered, PATIENCE, Rig};
use conformance::memory::Memory;
use model::TransferOptions;
use model::options::Fsync;
use std::sync::{Arc, Mutex, mpsc};
use wire::Message;
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
