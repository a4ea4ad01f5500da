//! Storage that fails its syncs and writes, with a sender and without: what was called buffered is delivered, or said to be lost.

use super::super::super::{Came, Deaf, commit, replay, settle};
use super::*;
use conformance::memory::{Call, Memory, Order, Rules};
use model::FailureKind::{Other, Permission, WriteError};
use model::Name;
use wire::frame::HEADER_BYTES;

fn bed() -> (Bed, Memory) {
    let memory = Memory::new(Rules { is_synced: true, ..Rules::default() });
    (Bed::before(tempfile::tempdir().unwrap(), memory.sink()), memory)
}

fn whole() -> Option<Vec<u8>> {
    Some([content(0), content(1), content(2)].concat())
}

impl Bed {
    fn held(&self) -> u64 {
        self.hold().waiting_bytes() / CHUNK
    }

    /// One round of the drain lanes.
    fn drain(&self) {
        drain::drain_by_hand(&self.job);
        drain::make_durable(&self.job, self.hold().take_until_durable(true));
    }

    fn asks(&self) -> bool {
        self.says(|message| matches!(message, Message::Resend(_)))
    }

    /// The small object is published before anything else, so that the first to fail is the large one.
    fn publishes_small(&self, memory: &Memory) {
        crate::job::spawn(&self.job, "commit", commit::run, ReceiveJob::cancel);
        self.receive(&[pack()]);
        self.make_durable();
        drain::drain_by_hand(&self.job);
        self.until(|_| memory.content("small").is_some());
    }

    /// Its sender waits for no more, and is let go.
    fn lets_go(&self) {
        self.end_of_listing();
        self.job.handle(Finish { job: 1, is_buffered: true }.into()).unwrap();
        self.make_durable();
        self.job.leave_if_buffered();
        assert!(self.says(|message| matches!(message, Message::Finished(finished) if finished.durable == "buffered")));
    }

    /// The job without its sender.
    fn left(self, memory: &Memory) -> Left {
        let (dir, spool, presence) = (self.dir.clone(), self.spool.clone(), self.job.presence());
        drop(self);
        while presence.strong_count() > 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Left { dir, spool, memory: memory.clone() }
    }
}

struct Left {
    dir: Arc<tempfile::TempDir>,
    spool: Arc<Spool>,
    memory: Memory,
}

impl Left {
    /// As the next process finds it.
    fn found_again(self) -> Left {
        drop(self.spool);
        let spool = Spool::open(&self.dir.path().join("spool"), 16 << 20).unwrap();
        Left { spool, ..self }
    }

    /// Carries it on, once. How far it came, and why no further.
    fn carried_on(&self) -> (Came, String) {
        let found = self.spool.found();
        let parcels = self.spool.take_found(found[0]);
        let journal = parcels.iter().filter(|parcel| parcel.kind == Kind::Journal);
        let messages: Vec<_> = journal.skip(1).map(|parcel| parcel.read().unwrap()).collect();
        assert!(messages.iter().all(|message| message.len() > HEADER_BYTES));
        let port = Arc::new(Deaf::default());
        let job = ReceiveJob::new(spec(), self.memory.sink(), port.clone(), Progress::new(), None).unwrap();
        job.buffer_in(Hold::resumed(self.spool.clone(), found[0], parcels));
        let came = replay(&job, &messages, &port).unwrap();
        let (why, presence) = (job.end.get().unwrap().to_string(), job.presence());
        if came == Came::Through {
            job.end_hold();
        }
        drop(job);
        while presence.strong_count() > 0 {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        (came, why)
    }

    /// The next sync of a complete object fails, late enough for whoever thinks meanwhile that it is durable.
    fn fail_to_publish(&self) {
        self.memory.delay(Call::Publish, Duration::from_millis(600));
        self.memory.fail(Call::Publish, 0, 1, WriteError);
    }
}

#[test]
fn what_dies_with_its_staging_is_drained_again_and_let_go_when_it_is_durable() {
    let (bed, memory) = bed();
    bed.receive(&[chunk(0), chunk(1)]);
    bed.make_durable();
    memory.fail(Call::Checkpoint, 0, 1, WriteError);
    bed.drain();
    assert_eq!((bed.held(), bed.asks()), (2, true), "nothing has them any more");
    bed.drain();
    assert_eq!(bed.held(), 0);
}

#[test]
fn a_chunk_of_a_complete_object_stays_until_that_is_settled() {
    let (bed, memory) = bed();
    bed.receive(&[chunk(0), chunk(1), chunk(2)]);
    bed.make_durable();
    bed.drain();
    assert_eq!(bed.held(), 3, "nothing has made them durable");
    let large = bed.job.table.lock().unwrap().large_object(LARGE).unwrap();
    let mut outcome = settle::Outcome::default();
    commit::publish_large(&bed.job, &large, true, &mut outcome);
    bed.job.settle(outcome);
    bed.drain();
    assert_eq!((bed.held(), memory.content("large")), (0, whole()));
}

#[test]
fn a_sender_is_let_go_only_with_what_is_here_or_durable_in_staging() {
    let (bed, _) = bed();
    bed.receive(&[chunk(0), chunk(1)]);
    bed.make_durable();
    bed.drain();
    assert_eq!(bed.held(), 0);
    bed.receive(&[pack(), chunk(2)]);
    let large = bed.job.table.lock().unwrap().large_object(LARGE).unwrap();
    let error = store::Error::of_kind(WriteError, "write to storage", b"", "it failed");
    commit::dead_staging(&bed.job, &large, &error);
    bed.end_of_listing();
    bed.job.handle(Finish { job: 1, is_buffered: true }.into()).unwrap();
    bed.make_durable();
    bed.job.leave_if_buffered();
    assert!(!bed.says(|message| matches!(message, Message::Finished(_))), "two chunks are nowhere");
    bed.receive(&[chunk(0), chunk(1)]);
    bed.make_durable();
    bed.job.leave_if_buffered();
    assert!(bed.says(|message| matches!(message, Message::Finished(_))));
}

#[test]
fn what_was_buffered_when_a_sync_failed_is_delivered_without_its_sender() {
    let (bed, memory) = bed();
    bed.receive(&[chunk(0), chunk(1)]);
    bed.make_durable();
    memory.fail(Call::Checkpoint, 0, 1, WriteError);
    bed.drain();
    bed.receive(&[pack(), chunk(2)]);
    bed.lets_go();
    let left = bed.left(&memory);
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("large"), left.spool.used_bytes()), (whole(), 0));
}

#[test]
fn without_a_sender_all_of_an_object_stays_until_storage_has_published_it() {
    for call in [Call::Publish, Call::WriteAt] {
        let (bed, memory) = bed();
        bed.publishes_small(&memory);
        bed.receive(&[chunk(0), chunk(1), chunk(2)]);
        bed.make_durable();
        bed.lets_go();
        let left = bed.left(&memory);
        match call {
            Call::Publish => left.fail_to_publish(),
            call => memory.fail(call, 0, 1, WriteError),
        }
        assert_eq!(left.carried_on().0, Came::Stuck);
        assert_eq!(memory.content("large"), None);
        assert_eq!(left.carried_on().0, Came::Through);
        assert_eq!((memory.content("large"), left.spool.used_bytes()), (whole(), 0), "{call:?}");
    }
}

#[test]
fn what_storage_refuses_without_a_sender_stays_until_it_is_taken_and_the_rest_is_delivered() {
    for (call, kind) in [(Call::Decide, Other), (Call::Write, Permission), (Call::Publish, Other)] {
        let (bed, memory) = bed();
        bed.receive(&[pack(), chunk(0), chunk(1), chunk(2)]);
        bed.make_durable();
        bed.lets_go();
        let left = bed.left(&memory);
        memory.fail(call, 0, 1, kind);
        let (came, why) = left.carried_on();
        assert!(came == Came::Stuck && why.contains("a fault was injected"), "{call:?}: {why}");
        let delivered = [memory.content("small").is_some(), memory.content("large").is_some()];
        assert!(delivered.contains(&true) && delivered.contains(&false), "{call:?}: {delivered:?}");
        assert_eq!(left.carried_on().0, Came::Through, "{call:?}");
        assert_eq!((memory.content("small").as_deref(), memory.content("large")), (Some(&b"small"[..]), whole()));
        assert_eq!(left.spool.used_bytes(), 0, "{call:?}");
    }
}

#[test]
fn what_never_can_be_delivered_does_not_stay() {
    let (bed, memory) = bed();
    bed.receive(&[pack(), chunk(0), chunk(1), chunk(2)]);
    bed.make_durable();
    bed.lets_go();
    let left = bed.left(&memory);
    memory.put("small/directory", b"in the way");
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("large"), left.spool.used_bytes()), (whole(), 0));
}

/// Its room was given back, and nothing of that is on disk.
#[test]
fn what_was_delivered_before_a_restart_is_not_delivered_again() {
    let (bed, memory) = bed();
    crate::job::spawn(&bed.job, "commit", commit::run, ReceiveJob::cancel);
    bed.receive(&[chunk(0), pack()]);
    bed.make_durable();
    drain::drain_by_hand(&bed.job);
    bed.until(|_| memory.content("small").is_some());
    bed.until(|bed| !bed.hold().has(SMALL));
    memory.remove(&Name::new(b"small").unwrap());
    bed.receive(&[chunk(1), chunk(2)]);
    bed.lets_go();
    let left = bed.left(&memory).found_again();
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("small"), memory.content("large")), (None, whole()));
}

#[test]
fn a_sender_is_not_let_go_while_a_part_is_with_storage_that_has_not_confirmed_it() {
    let memory = Memory::new(Rules { is_synced: true, order: Order::Parts(2 << 20), ..Rules::default() });
    let bed = Bed::before(tempfile::tempdir().unwrap(), memory.sink());
    bed.receive(&[chunk(0)]);
    bed.make_durable();
    bed.drain();
    assert_eq!(bed.held(), 0, "its sender could send it again");
    bed.receive(&[pack(), chunk(1), chunk(2)]);
    bed.end_of_listing();
    bed.job.handle(Finish { job: 1, is_buffered: true }.into()).unwrap();
    bed.make_durable();
    bed.job.leave_if_buffered();
    let is_let_go = |message: &Message| matches!(message, Message::Finished(_));
    assert!(!bed.says(is_let_go), "half a part would go with the job");
    bed.drain();
    bed.job.leave_if_buffered();
    assert!(bed.says(is_let_go));
    let left = bed.left(&memory);
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("large"), left.spool.used_bytes()), (whole(), 0));
}

#[test]
fn what_storage_lost_after_its_sender_was_let_go_is_named_and_the_rest_stays() {
    let (bed, memory) = bed();
    bed.publishes_small(&memory);
    bed.receive(&[chunk(0)]);
    bed.make_durable();
    bed.drain();
    assert_eq!(bed.held(), 0);
    bed.receive(&[chunk(1), chunk(2)]);
    bed.make_durable();
    bed.lets_go();
    let left = bed.left(&memory);
    left.fail_to_publish();
    assert_eq!(left.carried_on().0, Came::Stuck);
    for _ in 0..2 {
        let (came, why) = left.carried_on();
        assert!(came == Came::Stuck && why.contains("storage lost a part of large"), "{why}");
        assert!(left.spool.used_bytes() > 0);
    }
    assert_eq!((memory.content("small").as_deref(), memory.content("large")), (Some(&b"small"[..]), None));
}

#[test]
fn what_was_buffered_is_delivered_after_a_thread_failed_with_the_buffer_in_its_hands() {
    let (bed, memory) = bed();
    bed.receive(&[pack(), chunk(0), chunk(1), chunk(2)]);
    bed.make_durable();
    bed.lets_go();
    let fails = || {
        let state = bed.hold().state.lock().unwrap();
        assert!(state.is_over, "as it was told to");
    };
    assert!(crate::job::panics(fails));
    let left = bed.left(&memory);
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("small").as_deref(), memory.content("large")), (Some(&b"small"[..]), whole()));
    assert_eq!(left.spool.used_bytes(), 0);
}

#[test]
fn what_was_never_sent_ends_with_its_job() {
    let (bed, memory) = bed();
    bed.receive(&[pack(), chunk(0), chunk(2)]);
    bed.make_durable();
    bed.end_of_listing();
    bed.make_durable();
    let left = bed.left(&memory);
    assert_eq!(left.carried_on().0, Came::Through);
    assert_eq!((memory.content("small").as_deref(), left.spool.used_bytes()), (Some(&b"small"[..]), 0));
}
