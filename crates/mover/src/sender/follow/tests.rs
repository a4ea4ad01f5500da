//! Following without a session: what is known of files that grow, and when they are described again.

use super::super::split::Split;
use super::*;
use crate::Progress;
use crate::job::Port;
use conformance::memory::{Memory, Rules};
use model::TransferOptions;
use model::follow::Until;
use std::sync::Mutex;
use store::Source;
use wire::message::{FailureRecord, Settled, runs_of};

struct Nobody;

impl Port for Nobody {
    fn send(&self, _: Message) {}
}

#[test]
fn whoever_waits_for_room_for_a_description_does_not_keep_lanes_from_describing() {
    let (source, options) = (Memory::new(Rules::default()).source(), TransferOptions::default());
    let job = SendJob::new(1, options, source, Arc::new(Nobody), Progress::new(), None);
    job.book.lock().unwrap().split = Split::new(1 << 20, 0, 0);
    let (waits, is_waiting) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let describing = scope.spawn(|| {
            let note = || {
                let _ = waits.send(());
                false
            };
            job.when_describable(&note).is_some()
        });
        is_waiting.recv().unwrap();
        let lane = scope.spawn(|| drop(job.replacing.lock().unwrap()));
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !lane.is_finished() && std::time::Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let gets_on = lane.is_finished();
        job.book.lock().unwrap().split.grant(1, 0);
        job.work.notify_all();
        assert!(describing.join().unwrap() && gets_on);
    });
}

/// Keeps what each description replaces.
#[derive(Default)]
struct Replaced(Mutex<Vec<Option<u64>>>);

impl Port for Replaced {
    fn send(&self, message: Message) {
        if let Message::Entries(batch) = message {
            self.0.lock().unwrap().extend(batch.entries.iter().map(|record| record.replaces));
        }
    }
}

/// A source with one file, and that file under a number that a watch may have given it.
fn source_of_one(number: u64) -> (Arc<dyn Source>, SourceObject) {
    let memory = Memory::new(Rules::default());
    memory.put("f", b"first");
    let (source, mut file) = (memory.source(), None);
    let mut hear = |found: Found| {
        if let Found::Object(object) = found {
            file = Some(object);
        }
        true
    };
    source.scan(&mut hear).unwrap();
    let mut object = file.unwrap();
    object.entry.id = ObjectId(number);
    (source, object)
}

#[test]
fn a_file_that_was_missed_replaces_no_other_that_has_its_number_on_the_wire() {
    let (source, object) = source_of_one(2);
    let said = Arc::new(Replaced::default());
    let job = SendJob::new(1, TransferOptions::default(), source, said.clone(), Progress::new(), None);
    let mut following = Following::new(&job, &Follow::new(Until::Never, Vec::new()), false);
    following.found(object.clone());
    following.scan.flush();
    let entry = Entry { id: ObjectId(1), name: Name::new(b"g").unwrap(), ..object.entry.clone() };
    let other = SourceObject { entry, ..object };
    // It is not at its name any more, and then another file is.
    following.found(SourceObject { end: End::Growing, ..other.clone() });
    following.restarted(other, Restart::Replaced);
    assert_eq!(*said.0.lock().unwrap(), [None, Some(0)]);
    assert!(!following.is_settled(1), "the first file is still to be sent");
}

#[test]
fn nobody_waits_for_the_rest_of_a_file_that_was_skipped_or_is_gone() {
    let failed = vec![FailureRecord { object: 1, ..FailureRecord::default() }];
    let failed = Settled { job: 1, failed, ..Settled::default() };
    let skipped = Settled { job: 1, skipped: runs_of(vec![1]), ..Settled::default() };
    for (settled, is_gone) in [(None, true), (Some(failed), true), (Some(skipped), false)] {
        let (source, object) = source_of_one(1);
        let job = SendJob::new(1, TransferOptions::default(), source, Arc::new(Nobody), Progress::new(), None);
        let mut following = Following::new(&job, &Follow::new(Until::Never, Vec::new()), false);
        following.found(SourceObject { end: End::Growing, ..object });
        following.scan.flush();
        following.grown(1, 5);
        following.tell(1);
        let oldest = || job.book.lock().unwrap().lags.take(Instant::now()).oldest;
        assert!(oldest().is_some());
        let what = format!("{settled:?}");
        settled.into_iter().for_each(|settled| job.handle(settled.into()).unwrap());
        if is_gone {
            following.gone(1);
        }
        // As if it had been seen to grow just before that.
        following.tell(1);
        assert_eq!(oldest(), None, "{what}");
        assert!(job.book.lock().unwrap().files.is_empty(), "{what}");
    }
}

#[test]
fn of_a_file_that_was_sealed_and_then_skipped_or_failed_nothing_is_remembered() {
    let failed = vec![FailureRecord { object: 1, ..FailureRecord::default() }];
    let failed = Settled { job: 1, failed, ..Settled::default() };
    let skipped = Settled { job: 1, skipped: runs_of(vec![1]), ..Settled::default() };
    for settled in [failed, skipped] {
        let (source, object) = source_of_one(1);
        let job = SendJob::new(1, TransferOptions::default(), source, Arc::new(Nobody), Progress::new(), None);
        let mut following = Following::new(&job, &Follow::new(Until::Never, Vec::new()), false);
        following.found(SourceObject { end: End::Growing, ..object.clone() });
        following.scan.flush();
        following.ended(1, object.entry);
        following.tell(1);
        let are_remembered = || {
            let book = job.book.lock().unwrap();
            [book.sealed.contains_key(&1), book.final_bytes.contains_key(&1)]
        };
        assert_eq!(are_remembered(), [true, true]);
        job.handle(settled.into()).unwrap();
        assert_eq!(are_remembered(), [false, false]);
    }
}
