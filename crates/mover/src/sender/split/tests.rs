//! Checks of the sender's book against a plain model: random receivers, random deaths of lanes.

use super::*;
use crate::sender::states::STEPS;
use model::{Entry, Generation, Name, ObjectId};
use proptest::prelude::*;
use wire::limits::FRAGMENT_BYTES_MAX;

const CHUNK: u64 = 1 << 20;

fn object(id: u64, directory: u64, size_bytes: u64) -> SourceObject {
    let entry = Entry {
        id: ObjectId(id),
        parent: ObjectId::ROOT,
        name: Name::new(format!("f{id}").as_bytes()).unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes, ..Generation::default() },
        attributes: None,
    };
    SourceObject { entry, directory: DirectoryKey(directory), end: store::End::Known }
}

fn described(sizes: &[u64], directory: impl Fn(u64) -> u64) -> Split {
    let mut split = Split::new(CHUNK, 10_000, 1 << 40);
    let objects = sizes.iter().zip(1..).map(|(size, id)| object(id, directory(id), *size)).collect();
    split.describe(Arc::new(Batch { objects, charge: None }));
    split.want(&[IdRun { first: 1, count: sizes.len() as u64 }], &[]).unwrap();
    split.listing_complete();
    split
}

fn chunk_of(claim: Claim) -> (u64, Extent) {
    match claim {
        Claim::Work(Work::Chunk { batch, index, extent }) => (batch.objects[index].entry.id.0, extent),
        other => panic!("{other:?}"),
    }
}

/// Small files of a unit, and how long they are.
fn small_of(work: &Work) -> impl Iterator<Item = (u64, u64)> {
    let files: &[SourceObject] = match work {
        Work::Files { batch, range } => &batch.objects[range.clone()],
        _ => &[],
    };
    files.iter().map(|file| (file.entry.id.0, file.entry.size_bytes()))
}

fn files_of(claim: Claim) -> Vec<u64> {
    match claim {
        Claim::Work(Work::Files { batch, range }) => range.map(|i| batch.objects[i].entry.id.0).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn lanes_take_the_largest_free_object_and_join_only_at_the_end() {
    let mut split = described(&[3 * CHUNK, 5 * CHUNK], |_| 0);
    assert_eq!(chunk_of(split.claim(0)).0, 2);
    assert_eq!(chunk_of(split.claim(1)), (1, Extent::new(0, CHUNK)));
    assert_eq!(chunk_of(split.claim(1)), (1, Extent::new(CHUNK, 2 * CHUNK)));
    assert_eq!(chunk_of(split.claim(1)), (1, Extent::new(2 * CHUNK, 3 * CHUNK)));
    assert_eq!(chunk_of(split.claim(1)), (2, Extent::new(CHUNK, 2 * CHUNK)));
}

#[test]
fn lanes_keep_to_directories_of_their_own() {
    let mut split = described(&[1024; 2000], |id| id / 501);
    let first = files_of(split.claim(0));
    let second = files_of(split.claim(1));
    assert_ne!(first[0] / 501, second[0] / 501);
    // The rest of a run stays with its lane; a lane without any takes half of another's.
    let all: usize = first.len()
        + second.len()
        + std::iter::from_fn(|| match split.claim(0) {
            Claim::Work(Work::Files { range, .. }) => Some(range.len()),
            _ => None,
        })
        .sum::<usize>();
    assert_eq!(all, 2000);
}

#[test]
fn a_lane_hears_of_the_unit_that_it_would_get() {
    let mut split = described(&[5 * CHUNK, 3 * CHUNK, 1000, 1000], |_| 0);
    assert_eq!(split.next_bytes(0), Some(CHUNK));
    assert_eq!(chunk_of(split.claim(0)).0, 1);
    assert_eq!(split.next_bytes(1), Some(CHUNK));
    assert_eq!(chunk_of(split.claim(1)).0, 2);
    // Those who have a large object go on with it, and another one has small files before it joins them.
    assert_eq!([0, 1, 2].map(|lane| split.next_bytes(lane)), [Some(CHUNK), Some(CHUNK), Some(2000)]);
    assert_eq!(files_of(split.claim(2)), [3, 4]);
    assert_eq!(split.next_bytes(2), Some(CHUNK));
    chunk_of(split.claim(2));
    assert_eq!(Split::new(CHUNK, 10, 1 << 40).next_bytes(0), None);
}

#[test]
fn the_less_is_left_the_fewer_small_files_a_lane_takes_at_once() {
    const FILE: u64 = 64 << 10;
    let taken_bytes = |left_bytes: Option<u64>| {
        let mut split = described(&[FILE; 600], |_| 0);
        (0..2).for_each(|lane| assert_eq!(files_of(split.claim(lane)).len() as u64 * FILE, CLAIM_BYTES));
        split.note_left(left_bytes, 2);
        files_of(split.claim(0)).len() as u64 * FILE
    };
    let left_bytes = [None, Some(1 << 30), Some(8 << 20), Some(0)];
    assert_eq!(left_bytes.map(taken_bytes), [CLAIM_BYTES, CLAIM_BYTES, 2 << 20, 256 << 10]);
}

#[test]
fn chunks_are_whole_however_little_is_left() {
    let mut split = described(&[3 * CHUNK], |_| 0);
    split.note_left(Some(0), 1);
    for start in [0, CHUNK, 2 * CHUNK] {
        assert_eq!(chunk_of(split.claim(0)).1, Extent::new(start, start + CHUNK));
    }
}

#[test]
fn nothing_is_claimed_beyond_what_may_be_sent_in_all_and_the_end_waits_for_what_is_in_flight() {
    let mut split = described(&[4 * CHUNK, 1000, 1000, 1000], |_| 0);
    split.allow(Some(2 * CHUNK + 2500));
    for start in [0, CHUNK] {
        let (id, extent) = chunk_of(split.claim(0));
        assert_eq!((id, extent.start), (1, start));
    }
    assert!(matches!(split.claim(0), Claim::Spent) && !split.is_idle());
    for start in [0, CHUNK] {
        split.held(&ExtentRecord { object: 1, start, end: start + CHUNK });
    }
    assert!(matches!(split.claim(1), Claim::Spent) && split.is_idle());
    let mut small = described(&[1000, 1000, 1000], |_| 0);
    small.allow(Some(2500));
    assert_eq!(files_of(small.claim(0)), [1, 2]);
    assert!(matches!(small.claim(0), Claim::Spent));
}

#[test]
fn nothing_is_claimed_beyond_the_credit() {
    let mut split = described(&[4 * CHUNK], |_| 0);
    split.grant(0, 2 * CHUNK);
    split.claim(0);
    let (id, second) = chunk_of(split.claim(0));
    assert!(matches!(split.claim(0), Claim::NoCredit));
    split.held(&ExtentRecord { object: id, start: second.start, end: second.end });
    assert_eq!(chunk_of(split.claim(0)).1.start, 2 * CHUNK);
}

#[test]
fn what_is_read_ahead_takes_no_credit_until_it_leaves_and_then_belongs_to_the_lane_that_sends_it() {
    let mut split = described(&[4 * CHUNK], |_| 0);
    split.grant(0, CHUNK);
    let chunks: Vec<_> = (0..3)
        .map(|_| {
            let (id, extent) = chunk_of(split.claim(9));
            let unit = Unit::Chunk { object: ObjectId(id), extent };
            split.waits(unit.payload_bytes());
            unit
        })
        .collect();
    assert!(split.may_leave(CHUNK));
    split.leaves(&chunks[0], 0);
    assert!(!split.may_leave(CHUNK), "the credit is used up");
    split.held(&ExtentRecord { object: 1, start: 0, end: CHUNK });
    assert!(split.may_leave(CHUNK));
    split.leaves(&chunks[1], 0);
    split.lane_died(0);
    // What was read and not sent is still there; what the dead lane had comes again.
    let Unit::Chunk { extent, .. } = chunks[1] else { unreachable!() };
    assert_eq!(chunk_of(split.claim(0)), (1, extent));
    split.lane_died(0);
    split.give_back(&chunks[2]);
    let Unit::Chunk { extent, .. } = chunks[2] else { unreachable!() };
    assert_eq!(chunk_of(split.claim(1)), (1, extent));
}

#[test]
fn a_pack_that_was_read_ahead_is_wanted_again_when_its_lane_dies() {
    let mut split = described(&[1000, 1000, 1000], |_| 0);
    assert_eq!(files_of(split.claim(9)), [1, 2, 3]);
    let unit = Unit::Pack { first: ObjectId(1), count: 2, bytes: 2000 };
    split.waits(2000);
    split.leaves(&unit, 0);
    split.lane_died(0);
    assert_eq!(files_of(split.claim(1)), [1, 2]);
    split.give_back(&Unit::Pack { first: ObjectId(3), count: 1, bytes: 1000 });
    assert_eq!(files_of(split.claim(1)), [3]);
}

#[test]
fn the_last_chunk_read_says_so_even_after_a_lane_died() {
    let mut split = described(&[2 * CHUNK], |_| 0);
    let (_, first) = chunk_of(split.claim(0));
    let (_, second) = chunk_of(split.claim(1));
    assert!(!split.chunk_was_read(1, second.start, false));
    assert!(split.chunk_was_read(1, first.start, false));
    split.lane_died(0);
    assert_eq!(chunk_of(split.claim(1)).1, first);
    assert!(split.chunk_was_read(1, first.start, false));
}

#[test]
fn after_a_seal_each_chunk_that_is_read_again_is_to_be_of_the_same_version() {
    let mut split = described(&[2 * CHUNK], |_| 0);
    let (_, first) = chunk_of(split.claim(0));
    let (_, second) = chunk_of(split.claim(1));
    assert!(!split.chunk_was_read(1, first.start, false));
    assert!(split.chunk_was_read(1, second.start, false));
    // Both streams are lost, and of the first the receiver may still get the chunk: then the second completes the object.
    split.lane_died(0);
    split.lane_died(1);
    let (_, again) = chunk_of(split.claim(2));
    chunk_of(split.claim(3));
    assert!(split.chunk_was_read(1, again.start, false));
}

#[test]
fn a_chunk_asked_for_again_takes_nothing_else_from_what_is_unclaimed() {
    let mut split = described(&[4 * CHUNK], |_| 0);
    chunk_of(split.claim(0));
    let record = |start: u64, end: u64| ExtentRecord { object: 1, start: start * CHUNK, end: end * CHUNK };
    split.resend(&[], &[record(0, 4)]).unwrap();
    split.resend(&[], &[record(2, 3)]).unwrap();
    let mut starts: Vec<u64> = (0..4).map(|_| chunk_of(split.claim(0)).1.start / CHUNK).collect();
    starts.sort_unstable();
    assert_eq!(starts, [0, 1, 2, 3]);
    assert!(matches!(split.claim(0), Claim::NoWork));
}

#[test]
fn a_receiver_that_grants_everything_does_not_make_the_book_grow() {
    let mut split = described(&[1; 1000], |_| 0);
    split.grant(u64::MAX, u64::MAX);
    assert_eq!(split.describable(), ENTRIES_OPEN_MAX - 1000);
    assert!(split.bytes.may_send(IN_FLIGHT_BYTES) && split.bytes.in_flight() == 0);
    split.bytes.sent(1);
    assert!(!split.bytes.may_send(IN_FLIGHT_BYTES));
}

#[test]
fn of_an_object_that_changed_nothing_more_is_claimed_while_it_waits_to_be_described_again() {
    let mut split = described(&[3 * CHUNK, 1000], |_| 0);
    assert_eq!(chunk_of(split.claim(0)).0, 1);
    split.stop_claims(1);
    assert_eq!(files_of(split.claim(0)), [2]);
    assert!(matches!(split.claim(0), Claim::NoWork) && !split.is_complete());
    assert!(split.settle(1).is_some() && split.settle(2).is_some());
    assert!(split.is_complete() && split.bytes.in_flight() == 0);
}

#[test]
fn what_lies_in_a_buffer_is_sent_again_when_it_is_asked_for() {
    let mut split = described(&[1024; 3], |_| 0);
    let all = [IdRun { first: 1, count: 3 }];
    assert_eq!(files_of(split.claim(0)), [1, 2, 3]);
    split.buffered(&all).unwrap();
    assert!(split.is_idle() && matches!(split.claim(0), Claim::NoWork));
    split.resend(&[IdRun { first: 2, count: 1 }], &[]).unwrap();
    assert_eq!(files_of(split.claim(0)), [2]);
}

#[test]
fn what_there_is_of_a_growing_file_is_shared_out_among_the_lanes() {
    let mut split = Split::new(CHUNK, 10, 1 << 40);
    let growing = SourceObject { end: store::End::Growing, ..object(1, 0, 0) };
    split.describe(Arc::new(Batch { objects: vec![growing], charge: None }));
    split.want(&[IdRun { first: 1, count: 1 }], &[]).unwrap();
    (0..4).for_each(|lane| assert!(matches!(split.claim(lane), Claim::NoWork)));
    split.grow(1, 200_000);
    let mut lengths: Vec<_> = (0..4).map(|lane| chunk_of(split.claim(lane)).1.length()).collect();
    assert_eq!(lengths[0], 50_000);
    split.grow(1, 200_100);
    lengths.extend(std::iter::from_fn(|| match split.claim(0) {
        Claim::NoWork => None,
        claim => Some(chunk_of(claim).1.length()),
    }));
    assert_eq!(lengths.iter().sum::<u64>(), 200_100);
    // A fragment of a few packets is not cut further; of a long backlog each is as long as it may be.
    assert_eq!(lengths.iter().filter(|length| **length < 16 << 10).count(), 1, "{lengths:?}");
    split.grow(1, 1 << 30);
    assert_eq!(chunk_of(split.claim(1)).1.length(), FRAGMENT_BYTES_MAX);
}

#[test]
fn an_object_of_one_chunk_is_sent_again_when_it_is_asked_for_whole() {
    let mut split = described(&[CHUNK / 2], |_| 0);
    let claimed = chunk_of(split.claim(0));
    assert!(split.chunk_was_read(1, 0, false));
    split.resend(&[IdRun { first: 1, count: 1 }], &[]).unwrap();
    assert_eq!(chunk_of(split.claim(0)), claimed);
    assert!(split.chunk_was_read(1, 0, false));
}

#[test]
fn hostile_wants_are_refused() {
    let mut split = described(&[10, 3 * CHUNK], |_| 0);
    assert!(split.want(&[IdRun { first: 1, count: 1 }], &[]).is_err());
    assert!(split.want(&[IdRun { first: 99, count: 1 }], &[]).is_err());
    assert!(split.want(&[IdRun { first: 0, count: u64::MAX }], &[]).is_err());
    for (object, start, end) in [(2, 1, CHUNK), (2, 0, 4 * CHUNK), (2, CHUNK, CHUNK), (2, 0, CHUNK + 1), (7, 0, CHUNK)]
    {
        assert!(split.resend(&[], &[ExtentRecord { object, start, end }]).is_err() || object == 7);
        assert!(split.want(&[], &[ExtentRecord { object, start, end }]).is_err());
    }
}

#[test]
fn what_a_receiver_settles_before_it_was_sent_is_stepped_over() {
    let mut split = described(&[10; 6], |_| 0);
    for id in [1, 2, 4, 6] {
        assert!(split.settle(id).is_some());
    }
    assert_eq!(files_of(split.claim(0)), [3]);
    assert_eq!(files_of(split.claim(0)), [5]);
    assert!(split.settle(3).is_some() && split.settle(5).is_some());
    assert!(split.is_complete() && split.bytes.in_flight() == 0);

    let mut split = described(&[10; 3], |_| 0);
    (1..=3).for_each(|id| assert!(split.settle(id).is_some()));
    assert!(matches!(split.claim(0), Claim::Complete));
    let mut split = described(&[10; 3], |_| 0);
    split.is_listing_complete = false;
    (1..=3).for_each(|id| assert!(split.settle(id).is_some()));
    assert!(matches!(split.claim(0), Claim::NoWork));
}

/// Small files 1 to `count` in batches of 1,024, all wanted and sent.
fn sent(count: u64) -> Split {
    let mut split = Split::new(CHUNK, count, 1 << 40);
    for first in (1..=count).step_by(1024) {
        let objects = (first..=count.min(first + 1023)).map(|id| object(id, 0, 10)).collect();
        split.describe(Arc::new(Batch { objects, charge: None }));
    }
    split.want(&[IdRun { first: 1, count }], &[]).unwrap();
    while let Claim::Work(_) = split.claim(0) {}
    split
}

fn steps_of(act: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    act();
    STEPS.get() - before
}

#[test]
fn runs_name_what_was_described_and_no_more_than_can_be_open() {
    let split = sent(ENTRIES_OPEN_MAX);
    let run = IdRun { first: 1, count: ENTRIES_OPEN_MAX };
    assert!(split.check_runs(&[run]).is_ok());
    assert!(split.check_runs(&[run, IdRun { first: 9, count: 1 }]).is_err());
    for (first, count) in [(0, u64::MAX), (1, ENTRIES_OPEN_MAX + 1), (2, ENTRIES_OPEN_MAX), (REPLACEMENT_FIRST, 1)] {
        assert!(split.check_runs(&[IdRun { first, count }]).is_err(), "{first} {count}");
    }
}

/// A message of 20 bytes names 65,536 objects: that costs their number once, and hardly anything again.
#[test]
fn a_run_costs_what_is_open_of_it() {
    let mut split = sent(ENTRIES_OPEN_MAX);
    let all = [IdRun { first: 1, count: ENTRIES_OPEN_MAX }];
    let batches = ENTRIES_OPEN_MAX / 1024;
    let resent = steps_of(|| split.resend(&all, &[]).unwrap());
    assert!(resent <= ENTRIES_OPEN_MAX * 3, "{resent}");
    // They are wanted again, and not being sent: nothing is to be taken back. A word of bits is one step.
    let again = steps_of(|| split.resend(&all, &[]).unwrap());
    assert!(again <= batches * (1 + 1024 / 64), "{again} steps for nothing");
    let mut settle = |first, count| {
        let (runs, mut settled) = ([IdRun { first, count }], 0);
        let mut ids = Ids::of(&runs);
        let steps = steps_of(|| {
            while split.settle_first(&mut ids).is_some() {
                settled += 1;
            }
        });
        (settled, steps)
    };
    // All but every thousandth.
    for first in (1..ENTRIES_OPEN_MAX).step_by(1000) {
        assert_eq!(settle(first + 1, 999.min(ENTRIES_OPEN_MAX - first)).0, 999.min(ENTRIES_OPEN_MAX - first));
    }
    let (settled, steps) = settle(1, ENTRIES_OPEN_MAX);
    assert_eq!(settled, ENTRIES_OPEN_MAX.div_ceil(1000));
    assert!(steps <= batches * 17 + settled * 3, "{steps} steps for {settled} objects");
    assert_eq!(settle(1, ENTRIES_OPEN_MAX), (0, 0));
}

#[test]
fn asking_again_is_paid_for_with_what_was_sent() {
    let mut split = described(&[100 * CHUNK], |_| 0);
    let asked = |at: u64| ExtentRecord { object: 1, start: at % 100 * CHUNK, end: (at % 100 + 1) * CHUNK };
    let refused = (0..1000).find(|at| split.resend(&[], &[asked(*at)]).is_err());
    assert!(refused.is_some_and(|at| at < 100), "{refused:?}");
    let mut split = described(&[100 * CHUNK], |_| 0);
    for at in 0..100 {
        // Each chunk three times, and all of it now and then.
        for _ in 0..3 {
            let (_, extent) = chunk_of(split.claim(0));
            split.resend(&[], &[ExtentRecord { object: 1, start: extent.start, end: extent.end }]).unwrap();
        }
        chunk_of(split.claim(0));
        if at % 40 == 0 {
            split.resend(&[], &[ExtentRecord { object: 1, start: 0, end: 100 * CHUNK }]).unwrap();
        }
    }
}

proptest! {
    /// Whatever lanes do, die of and are acknowledged, and however much is left, every byte of every object is claimed,
    /// none of it twice at a time, and every object settles.
    #[test]
    fn every_object_settles(
        sizes in prop::collection::vec(prop_oneof![0u64..200_000, CHUNK..5 * CHUNK], 1..60),
        steps in prop::collection::vec((0u32..4, 0u8..10, prop::option::of(0u64..64 << 20)), 0..200),
    ) {
        let mut split = described(&sizes, |id| id / 7);
        let mut outstanding: Vec<(u32, Work)> = Vec::new();
        let mut covered: HashMap<u64, model::ExtentSet> = HashMap::new();
        let mut small = BTreeSet::new();
        let mut settled = 0;
        let steps = steps.into_iter().chain((0..).map(|i| (i % 4, 1u8, Some(0)))).take(20_000);
        for (lane, step, left_bytes) in steps {
            if step == 0 {
                split.lane_died(lane);
                for (_, work) in outstanding.extract_if(.., |(owner, _)| *owner == lane) {
                    small_of(&work).for_each(|(id, _)| _ = small.remove(&id));
                }
                continue;
            }
            split.note_left(left_bytes, 4);
            match split.claim(lane) {
                Claim::Work(work) => {
                    let bytes: u64 = small_of(&work).map(|(_, bytes)| bytes).sum();
                    prop_assert!(bytes <= split.claim_bytes);
                    for (id, _) in small_of(&work) {
                        prop_assert!(small.insert(id), "{} claimed twice", id);
                    }
                    outstanding.push((lane, work));
                }
                Claim::Complete => break,
                Claim::NoWork | Claim::NoCredit | Claim::Spent => {}
            }
            if step % 3 == 1 && !outstanding.is_empty() {
                match outstanding.remove(0).1 {
                    Work::Files { batch, range } => for i in range {
                        settled += usize::from(split.settle(batch.objects[i].entry.id.0).is_some());
                    },
                    Work::Chunk { batch, index, extent } => {
                        let object = &batch.objects[index].entry;
                        split.chunk_was_read(object.id.0, extent.start, false);
                        split.held(&ExtentRecord { object: object.id.0, start: extent.start, end: extent.end });
                        let set = covered.entry(object.id.0).or_default();
                        prop_assert!(set.insert(extent), "{:?} claimed twice after it was held", extent);
                        if set.covers(object.size_bytes()) {
                            settled += usize::from(split.settle(object.id.0).is_some());
                        }
                    }
                    Work::Ready(_) => unreachable!("the book gives no frames out"),
                }
            }
        }
        prop_assert!(split.is_complete());
        prop_assert_eq!(settled, sizes.len());
        prop_assert_eq!(split.bytes.in_flight(), 0);
    }
}
