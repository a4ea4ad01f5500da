//! Files that change while they are read, where watch and lanes say so by hand.

use super::*;
use crate::Progress;
use crate::job::Port;
use conformance::memory::{Memory, Rules};
use model::TransferOptions;
use model::follow::{Follow, Until};
use std::sync::{Arc, Mutex};
use store::{End, Event, Found, Restart, Source};
use wire::Message;
use wire::listing::REPLACEMENT_FIRST as FIRST;

#[derive(Default)]
struct Said(Mutex<Vec<Message>>);

impl Port for Said {
    fn send(&self, message: Message) {
        self.0.lock().unwrap().push(message);
    }
}

/// A source with one file.
struct Bench {
    memory: Memory,
    source: Arc<dyn Source>,
    said: Arc<Said>,
    job: Arc<SendJob>,
}

impl Bench {
    fn new() -> Bench {
        let memory = Memory::new(Rules::default());
        memory.put("f", b"first");
        let (source, said) = (memory.source(), Arc::new(Said::default()));
        let job = SendJob::new(1, TransferOptions::default(), source.clone(), said.clone(), Progress::new(), None);
        Bench { memory, source, said, job }
    }

    /// The file is described, as one that is complete.
    fn follow(&self) -> Following<'_> {
        let mut following = Following::new(&self.job, &Follow::new(Until::Never, Vec::new()), false);
        following.found(self.file());
        following.scan.flush();
        assert_eq!(self.described(), [(1, None)]);
        following
    }

    /// The file as it is now, under the number that the watch gave it.
    fn file(&self) -> SourceObject {
        let mut file = None;
        let mut hear = |found: Found| {
            if let Found::Object(object) = found {
                file = Some(object);
            }
            true
        };
        self.source.scan(&mut hear).unwrap();
        file.unwrap()
    }

    fn growing(&self) -> SourceObject {
        SourceObject { end: End::Growing, ..self.file() }
    }

    /// Lets the file change, and a lane find that out that reads it under this id.
    fn change(&self, id: u64) {
        self.memory.put("f", b"something else");
        let object = self.job.book.lock().unwrap().split.object(id).unwrap();
        self.job.source_changed(&object);
    }

    /// Ids that were described since the last call, and what each replaces.
    fn described(&self) -> Vec<(u64, Option<u64>)> {
        let described = |message: Message| match message {
            Message::Entries(batch) => Some((batch.first, batch.entries[0].replaces)),
            _ => None,
        };
        let said = std::mem::take(&mut *self.said.0.lock().unwrap());
        said.into_iter().filter_map(described).collect()
    }
}

#[test]
fn what_the_watch_tells_of_a_file_replaces_what_was_described_because_it_changed() {
    let bench = Bench::new();
    let mut following = bench.follow();
    bench.change(1);
    assert!(bench.described().is_empty() && !following.is_settled(1), "what is to arrive after it waits");
    following.look_at_changed();
    assert_eq!(bench.described(), [(FIRST, Some(1))]);
    assert!(following.is_settled(1) && !following.is_settled(FIRST));
    let described = bench.job.book.lock().unwrap().split.object(FIRST).unwrap();
    following.restarted(bench.growing(), Restart::Reopened);
    assert_eq!(bench.described(), [(FIRST + 1, Some(FIRST))]);
    // A lane may be reading what is void.
    bench.job.source_changed(&described);
    following.look_at_changed();
    assert!(bench.described().is_empty());
    assert_eq!(bench.job.progress.snapshot().counts.files_listed, 1);
}

#[test]
fn a_change_of_which_the_watch_told_first_is_described_once() {
    let bench = Bench::new();
    let mut following = bench.follow();
    bench.change(1);
    following.restarted(bench.growing(), Restart::Reopened);
    assert_eq!(bench.described(), [(FIRST, Some(1))]);
    following.look_at_changed();
    assert!(bench.described().is_empty());
}

#[test]
fn a_file_that_keeps_changing_is_tried_ever_more_rarely_and_can_fail_only_when_it_is_not_watched_any_more() {
    assert_eq!([0, 1, 2, 6, 7, 100].map(|tries| pause_after(tries).as_secs()), [0, 1, 2, 32, 60, 60]);
    let bench = Bench::new();
    let mut following = bench.follow();
    bench.change(1);
    following.look_at_changed();
    assert_eq!(bench.described(), [(FIRST, Some(1))]);
    let before = Instant::now();
    bench.change(FIRST);
    let due = bench.job.book.lock().unwrap().changed.as_ref().unwrap()[&FIRST];
    assert!(due >= before + PAUSE_FIRST);
    // The end does not wait for that.
    following.take(Event::Over);
    for id in FIRST + 1..FIRST + u64::from(TRIES_MAX) {
        following.look_at_changed();
        assert_eq!(bench.described(), [(id, Some(id - 1))]);
        bench.change(id);
    }
    assert_eq!(bench.job.progress.snapshot().counts.files_failed, 0);
    following.look_at_changed();
    assert!(bench.described().is_empty());
    assert_eq!(bench.job.progress.snapshot().counts.files_failed, 1);
}

#[test]
fn what_changed_when_following_ended_is_described_again_by_whoever_reads_it() {
    let bench = Bench::new();
    let following = bench.follow();
    bench.change(1);
    following.hand_back_changed();
    assert_eq!(bench.described(), [(FIRST, None)]);
    bench.change(FIRST);
    assert_eq!(bench.described(), [(FIRST + 1, None)]);
}

#[test]
fn no_more_waits_for_the_thread_that_follows_than_leaves_it_room_to_describe() {
    let bench = Bench::new();
    let _following = bench.follow();
    let left = (0..2 * CHANGED_MAX as u64).filter(|id| bench.job.leave_to_follower(*id)).count();
    assert_eq!(left, CHANGED_MAX);
}
