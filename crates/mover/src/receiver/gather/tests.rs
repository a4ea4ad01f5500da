//! The book of several holders under random orders of events: whatever holders do, everything is asked for until it is here, and
//! nothing that is not the lead's counts.

use super::book::{Action, Book, Wanted};
use super::seats::{BAD_CHUNKS_MAX, LEAD, Offer};
use model::{Digest, Extent, Name, Timestamp};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const CHUNK: u64 = 100;
const HOLDERS: usize = 3;

fn digest(id: u64, start: u64) -> Digest {
    Digest::Crc64Nvme(id << 32 | start)
}

fn wrong(id: u64, start: u64, holder: usize) -> Digest {
    Digest::Crc64Nvme(id << 32 | start | (holder as u64 + 1) << 60)
}

/// What a holder calls an object of the lead's.
fn number(holder: usize, id: u64) -> u64 {
    if holder == LEAD { id } else { 1000 * holder as u64 + id }
}

/// Holders as the book meets them: they do what they are asked, in any order.
struct World {
    book: Book,
    sizes: BTreeMap<u64, u64>,
    poisoned: BTreeSet<usize>,
    /// Asked and not sent: holder, object, extent.
    queue: Vec<(usize, u64, Extent)>,
    questions: VecDeque<(u64, Option<Extent>)>,
    here: BTreeMap<u64, BTreeSet<u64>>,
    /// Staging is emptied, and the book hears of what is in it, some time after.
    is_late: bool,
    to_empty: VecDeque<u64>,
    untold: VecDeque<(usize, u64, Extent)>,
    settled: BTreeSet<u64>,
    told_settled: BTreeSet<(usize, u64)>,
    dropped: BTreeSet<usize>,
    asked: BTreeMap<(u64, u64), usize>,
    missing: BTreeMap<u64, bool>,
}

impl World {
    fn new(sizes: &[u64], poisoned: BTreeSet<usize>) -> World {
        let mut book = Book::new(CHUNK, HOLDERS, false);
        (0..HOLDERS).for_each(|holder| book.join(holder));
        World {
            book,
            sizes: (1..).zip(sizes.iter().copied()).collect(),
            poisoned,
            queue: Vec::new(),
            questions: VecDeque::new(),
            here: BTreeMap::new(),
            is_late: false,
            to_empty: VecDeque::new(),
            untold: VecDeque::new(),
            settled: BTreeSet::new(),
            told_settled: BTreeSet::new(),
            dropped: BTreeSet::new(),
            asked: BTreeMap::new(),
            missing: BTreeMap::new(),
        }
    }

    fn item(&self, id: u64, kept: Vec<(Extent, Digest)>) -> Wanted {
        let size_bytes = self.sizes[&id];
        let modified = Timestamp { seconds: 7, nanoseconds: 0 };
        Wanted { id, key: id, size_bytes, modified, is_large: size_bytes > CHUNK, kept }
    }

    fn offer(&mut self, holder: usize, id: u64, size_bytes: u64) {
        let modified = Timestamp { seconds: 7, nanoseconds: 0 };
        let name = Name::new(b"file").unwrap();
        let offer = Offer { theirs: number(holder, id), name, size_bytes, modified, _charge: None };
        self.book.offered(holder, id, offer);
    }

    fn act(&mut self) {
        self.book.assign();
        for action in self.book.take_actions() {
            self.carry_out(action);
        }
        if !self.is_late {
            self.catch_up();
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::AskWhole(ids) => self.questions.extend(ids.into_iter().map(|id| (id, None))),
            Action::AskWindow(id, window) => self.questions.push_back((id, Some(window))),
            Action::Want { holder, whole, parts, .. } => {
                assert!(!self.dropped.contains(&holder), "a holder that was dropped is asked");
                let own = |theirs: u64| if holder == LEAD { theirs } else { theirs - 1000 * holder as u64 };
                for id in whole.into_iter().map(own) {
                    self.queue.push((holder, id, Extent::new(0, self.sizes[&id])));
                }
                for (theirs, part) in parts {
                    let id = own(theirs);
                    for start in (part.start..part.end).step_by(CHUNK as usize) {
                        let end = part.end.min(start + CHUNK);
                        self.asked.insert((id, start), holder);
                        self.queue.push((holder, id, Extent::new(start, end)));
                    }
                }
            }
            Action::Settled { holder, brought, others } => {
                for theirs in brought.into_iter().chain(others) {
                    assert!(self.told_settled.insert((holder, theirs)), "settled twice");
                }
            }
            Action::Adopt(id, chunks) => {
                for (extent, told) in chunks {
                    assert_eq!(told, digest(id, extent.start), "what was kept is not the lead's");
                    self.arrived(id, extent);
                }
            }
            Action::StartOver(id) => self.to_empty.push_back(id),
            Action::Drop(holder, _) => _ = self.dropped.insert(holder),
            Action::Outvoted(_) => {}
            Action::Unobtainable(missing) => {
                self.missing.extend(missing.iter().map(|missing| (missing.id, missing.is_other_content)));
                self.book.settled(missing.into_iter().map(|missing| missing.id));
            }
        }
    }

    fn arrived(&mut self, id: u64, extent: Extent) {
        let here = self.here.entry(id).or_default();
        here.insert(extent.start);
        if here.len() as u64 == self.sizes[&id].div_ceil(CHUNK).max(1) && self.settled.insert(id) {
            self.book.settled([id].into_iter());
        }
    }

    fn catch_up(&mut self) {
        while !self.to_empty.is_empty() || !self.untold.is_empty() {
            self.empty();
            self.tell();
        }
    }

    /// The first staging that is to be emptied is.
    fn empty(&mut self) {
        if let Some(id) = self.to_empty.pop_front() {
            self.here.remove(&id);
            self.book.release(id, None);
        }
    }

    /// The book hears of the first chunk that is in staging.
    fn tell(&mut self) {
        if let Some((holder, id, extent)) = self.untold.pop_front() {
            let is_there = self.here.get(&id).is_some_and(|here| here.contains(&extent.start));
            self.book.brought(holder, id, extent, is_there);
        }
    }

    /// The lead answers its first question.
    fn answer(&mut self) {
        let Some((id, window)) = self.questions.pop_front() else { return };
        let window = window.unwrap_or(Extent::new(0, 1));
        let digests: Vec<_> = (window.start..window.end).step_by(CHUNK as usize).map(|at| digest(id, at)).collect();
        self.book.told(id, &digests);
    }

    /// One of what is asked arrives.
    fn send(&mut self, at: usize) {
        if self.queue.is_empty() {
            return;
        }
        let (holder, id, extent) = self.queue.swap_remove(at % self.queue.len());
        let is_small = self.sizes[&id] <= CHUNK;
        if holder == LEAD {
            match is_small {
                true => self.book.staged(LEAD, id),
                false => self.stage(LEAD, id, extent),
            }
            return self.arrived(id, extent);
        }
        let Some((of, told)) = self.book.expected(holder, number(holder, id), extent) else { return };
        assert_eq!((of, told), (id, digest(id, extent.start)));
        if self.poisoned.contains(&holder) {
            return self.book.bad(holder, id, extent, wrong(id, extent.start, holder));
        }
        match is_small {
            true => self.book.staged(holder, id),
            false => self.stage(holder, id, extent),
        }
        self.arrived(id, extent);
    }

    fn stage(&mut self, holder: usize, id: u64, extent: Extent) {
        self.here.entry(id).or_default().insert(extent.start);
        self.untold.push_back((holder, id, extent));
        if !self.is_late {
            self.catch_up();
        }
    }

    fn is_complete(&self) -> bool {
        self.settled.len() == self.sizes.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_holders_do_everything_comes_and_only_what_is_the_leads(
        sizes in proptest::collection::vec(0u64..3000, 1..12),
        is_poisoned in any::<bool>(),
        lacks in proptest::collection::vec((1..HOLDERS, 1u64..12), 0..6),
        left_by_others in proptest::collection::btree_set(1u64..12, 0..4),
        steps in proptest::collection::vec((0u8..16, 0usize..64), 0..400),
    ) {
        let mut world = World::new(&sizes, is_poisoned.then_some(2).into_iter().collect());
        world.is_late = true;
        let mut left: Vec<(usize, u64)> = (0..HOLDERS).flat_map(|of| (1..=sizes.len() as u64).map(move |id| (of, id))).collect();
        left.retain(|(of, id)| *of == LEAD || !lacks.contains(&(*of, *id)));
        // Of another version, by an earlier attempt.
        let kept = |id: u64| match left_by_others.contains(&id) && sizes[id as usize - 1] > CHUNK {
            true => vec![(Extent::new(0, CHUNK), wrong(id, 0, 0))],
            false => Vec::new(),
        };
        let mut now_us = 0;
        for (step, at) in steps {
            match step {
                0..=3 if !left.is_empty() => {
                    let (holder, id) = left.remove(at % left.len());
                    match holder {
                        LEAD => { let item = world.item(id, kept(id)); world.book.listed(vec![item]); }
                        _ => world.offer(holder, id, sizes[id as usize - 1]),
                    }
                }
                4..=8 => world.send(at),
                9 => world.answer(),
                12 | 13 => world.tell(),
                14 => world.empty(),
                // One holder comes and goes; what it offered is offered again.
                10 if at % 8 == 0 => {
                    world.book.gone(1, "lost", false);
                    world.queue.retain(|(holder, ..)| *holder != 1);
                    world.told_settled.retain(|(holder, _)| *holder != 1);
                    world.book.join(1);
                    left.retain(|(of, _)| *of != 1);
                    left.extend((1..=sizes.len() as u64).filter(|id| !lacks.contains(&(1, *id))).map(|id| (1, id)));
                }
                _ => { now_us += 300_000; world.book.tick(now_us, &[now_us; HOLDERS]); }
            }
            world.act();
        }
        for (holder, id) in left {
            match holder {
                LEAD => { let item = world.item(id, kept(id)); world.book.listed(vec![item]); }
                _ => world.offer(holder, id, sizes[id as usize - 1]),
            }
            world.act();
        }
        world.book.lead_listed();
        world.is_late = false;
        world.act();
        for turn in 0..5_000 {
            if world.is_complete() {
                break;
            }
            world.answer();
            world.act();
            world.send(turn);
            world.act();
        }
        prop_assert!(world.is_complete(), "{} of {} are here", world.settled.len(), world.sizes.len());
        prop_assert!(world.book.seats.iter().all(|seat| seat.asked_bytes == 0), "something is still asked for");
    }
}

fn listed(sizes: &[u64], poisoned: &[usize]) -> World {
    let mut world = World::new(sizes, poisoned.iter().copied().collect());
    for id in 1..=sizes.len() as u64 {
        let item = world.item(id, Vec::new());
        world.book.listed(vec![item]);
        (1..HOLDERS).for_each(|holder| world.offer(holder, id, sizes[id as usize - 1]));
    }
    world.book.lead_listed();
    world.act();
    world
}

#[test]
fn nothing_is_asked_of_the_others_before_the_lead_has_told_what_it_is() {
    let mut world = listed(&[50, 5000], &[]);
    assert!(world.queue.iter().all(|(holder, ..)| *holder == LEAD));
    while !world.questions.is_empty() {
        world.answer();
        world.act();
    }
    assert!(world.queue.iter().any(|(holder, ..)| *holder != LEAD));
}

#[test]
fn a_holder_of_other_content_is_dropped_after_three_chunks_and_the_rest_comes_from_the_others() {
    let mut world = listed(&[100_000], &[2]);
    for turn in 0..10_000 {
        world.answer();
        world.send(turn);
        world.act();
    }
    assert!(world.is_complete());
    assert_eq!(world.dropped, BTreeSet::from([2]));
    let tallies = world.book.tallies();
    assert_eq!((tallies[2].bytes, tallies[2].bad_chunks), (0, BAD_CHUNKS_MAX));
    assert_eq!(tallies[0].bytes + tallies[1].bytes, 100_000);
}

#[test]
fn another_version_is_not_taken_and_said() {
    let mut world = World::new(&[300], BTreeSet::new());
    world.offer(1, 1, 299);
    let item = world.item(1, Vec::new());
    world.book.listed(vec![item]);
    world.offer(2, 1, 300);
    world.act();
    assert_eq!(world.told_settled, BTreeSet::from([(1, number(1, 1))]));
    let tallies = world.book.tallies();
    assert_eq!((tallies[1].differing, tallies[1].difference.as_deref()), (1, Some("file: 299 bytes instead of 300")));
    assert_eq!(tallies[2].differing, 0);
}

#[test]
fn what_an_earlier_attempt_left_counts_if_it_is_the_leads_and_not_at_all_otherwise() {
    let chunk = |at: u64| Extent::new(at * CHUNK, (at + 1) * CHUNK);
    for is_other in [false, true] {
        let mut world = World::new(&[1000], BTreeSet::new());
        let told = |at: u64| if is_other && at == 4 { wrong(1, 400, 0) } else { digest(1, at * CHUNK) };
        let kept = (2..6).map(|at| (chunk(at), told(at))).collect();
        let item = world.item(1, kept);
        world.book.listed(vec![item]);
        world.book.lead_listed();
        world.act();
        while !world.questions.is_empty() {
            world.answer();
            world.act();
        }
        assert_eq!(world.here.get(&1).map_or(0, BTreeSet::len), if is_other { 0 } else { 4 });
        for turn in 0..100 {
            world.send(turn);
            world.answer();
            world.act();
        }
        assert!(world.is_complete());
    }
}

#[test]
fn what_came_before_staging_was_emptied_comes_again_whenever_the_book_hears_of_it() {
    for (hears_before, is_told_first) in [(true, false), (false, true), (false, false)] {
        let mut world = World::new(&[1000], BTreeSet::new());
        world.is_late = true;
        let item = world.item(1, vec![(Extent::new(0, CHUNK), wrong(1, 0, 0))]);
        world.book.listed(vec![item]);
        world.book.lead_listed();
        world.act();
        if is_told_first {
            world.answer();
            world.act();
        }
        // A chunk of the lead's is in staging.
        world.send(0);
        if hears_before {
            world.tell();
        }
        if !is_told_first {
            world.answer();
            world.act();
        }
        assert!(world.untold.is_empty() == hears_before && world.to_empty.len() == 1);
        if is_told_first {
            world.tell();
        }
        world.empty();
        world.tell();
        for turn in 0..100 {
            world.act();
            world.send(turn);
            world.tell();
        }
        assert!(world.is_complete(), "{hears_before} {is_told_first}: {:?}", world.here);
    }
}

#[test]
fn a_slow_holder_gives_up_what_an_idle_one_would_have_sooner() {
    let mut world = listed(&[2000], &[]);
    while !world.questions.is_empty() {
        world.answer();
        world.act();
    }
    // Holder 1 sends all it is asked for, holder 2 one byte a second.
    let mut moved = [0u64; HOLDERS];
    for second in 1..60 {
        moved[2] += 1;
        let of_others: Vec<_> = (0..world.queue.len()).filter(|at| world.queue[*at].0 != 2).collect();
        for at in of_others.into_iter().rev() {
            let (holder, _, extent) = world.queue[at];
            moved[holder] += extent.length();
            world.send(at);
        }
        world.answer();
        world.act();
        world.book.tick(second * 1_000_000, &moved);
        world.act();
    }
    assert!(world.is_complete(), "{:?}", world.queue);
}

/// Of a catalogue: it tells, and has no content.
fn of_list(sizes: &[u64], poisoned: &[usize], has: &[(usize, u64)]) -> World {
    let mut world = World::new(sizes, poisoned.iter().copied().collect());
    world.book = Book::of_list(CHUNK, HOLDERS);
    (0..HOLDERS).for_each(|holder| world.book.join(holder));
    for id in 1..=sizes.len() as u64 {
        let item = world.item(id, Vec::new());
        world.book.listed(vec![item]);
    }
    has.iter().for_each(|(holder, id)| world.offer(*holder, *id, sizes[*id as usize - 1]));
    world.book.lead_listed();
    world.act();
    world
}

fn run(world: &mut World) {
    for turn in 0..4000u64 {
        world.answer();
        world.act();
        assert!(world.queue.iter().all(|(holder, ..)| *holder != LEAD), "a catalogue was asked for content");
        world.send(turn as usize);
        world.act();
        world.book.tick(turn * 300_000, &[turn; HOLDERS]);
        world.act();
    }
}

#[test]
fn what_a_catalogue_lists_comes_from_its_holders_alone() {
    let mut world = of_list(&[5000, 50, 70], &[], &[(1, 1), (2, 1), (1, 2), (2, 3)]);
    [1, 2].into_iter().for_each(|holder| world.book.holder_listed(holder));
    run(&mut world);
    assert!(world.is_complete() && world.missing.is_empty());
    assert_eq!(world.book.tallies()[LEAD].bytes, 0);
}

#[test]
fn what_no_holder_has_is_given_up_once_all_have_said_what_they_have() {
    let mut world = of_list(&[5000, 50, 300], &[2], &[(1, 1), (2, 3)]);
    world.book.holder_listed(1);
    for turn in 0..200 {
        world.book.tick(turn * 300_000, &[turn; HOLDERS]);
        world.act();
    }
    assert!(world.missing.is_empty(), "a holder may still describe it");
    world.book.holder_listed(2);
    run(&mut world);
    assert_eq!(world.missing, BTreeMap::from([(2, false), (3, true)]));
    assert_eq!(world.settled, BTreeSet::from([1]));
}

#[test]
fn where_every_holder_was_dropped_the_attempt_ends() {
    let mut world = of_list(&[5000], &[1, 2], &[(1, 1), (2, 1)]);
    [1, 2].into_iter().for_each(|holder| world.book.holder_listed(holder));
    run(&mut world);
    assert_eq!(world.dropped, BTreeSet::from([LEAD, 1, 2]));
    assert!(world.here.is_empty());
}

#[test]
fn what_a_holder_takes_back_is_asked_of_the_others_and_of_it_no_more() {
    // A large one before anything of it was asked, a large one of which something was, and small ones.
    for withdrawn in 1..=3 {
        let mut world = of_list(&[250, 450, 50], &[], &[(1, withdrawn)]);
        world.book.withdrawn(1, number(1, withdrawn));
        let settle = |world: &mut World| (0..20).for_each(|_| (world.answer(), world.act()).1);
        settle(&mut world);
        assert!(world.queue.iter().all(|(_, id, _)| *id != withdrawn), "{withdrawn}");
        world.offer(2, withdrawn, world.sizes[&withdrawn]);
        settle(&mut world);
        let asked: BTreeSet<_> = world.queue.iter().map(|(holder, ..)| *holder).collect();
        assert_eq!(asked, BTreeSet::from([2]), "{withdrawn}");
    }
}

#[test]
fn what_a_holder_takes_back_costs_nothing_if_it_was_not_offered_or_is_over() {
    let mut world = World::new(&[50], BTreeSet::new());
    // Before the lead has described it, and after.
    for is_described in [false, true] {
        if is_described {
            let item = world.item(1, Vec::new());
            world.book.listed(vec![item]);
        }
        world.offer(1, 1, 50);
        assert!(!world.book.withdrawn(1, 9999), "nobody described that");
        assert!(world.book.withdrawn(1, number(1, 1)));
        assert!(!world.book.withdrawn(1, number(1, 1)), "it is over");
    }
}

#[test]
fn where_a_catalogue_leads_whoever_is_there_and_brings_nothing_is_left_and_may_come_back() {
    // One is asked and sends nothing, or neither says what it has. The attempt ends with them, before they are back.
    for (has, dropped) in [(&[(1, 1)][..], BTreeSet::from([LEAD, 1])), (&[], BTreeSet::from([LEAD, 1, 2]))] {
        let mut world = of_list(&[50], &[], has);
        if !has.is_empty() {
            [1, 2].into_iter().for_each(|holder| world.book.holder_listed(holder));
            world.answer();
            world.act();
            assert_eq!(world.queue.len(), 1, "it was asked");
        }
        for second in 1..=1200 {
            world.book.tick(second * 1_000_000, &[0; HOLDERS]);
            world.act();
            assert!(second > 600 || world.dropped.is_empty(), "{second}");
            if !world.dropped.is_empty() {
                break;
            }
        }
        assert_eq!(world.dropped, dropped);
        assert!(world.book.tallies().iter().all(|tally| !tally.is_for_good));
    }
}

/// Of three holders that deliver one file after the other, in the order in which they were asked.
#[test]
fn small_files_are_asked_for_many_at_a_time_and_those_that_came_are_forgotten() {
    const FILES: u64 = 40_000;
    let mut book = Book::new(8 << 20, HOLDERS, true);
    (0..HOLDERS).for_each(|holder| book.join(holder));
    let modified = Timestamp { seconds: 7, nanoseconds: 0 };
    for id in 1..=FILES {
        book.listed(vec![Wanted { id, key: id, size_bytes: 1024, modified, is_large: false, kept: Vec::new() }]);
        for holder in 1..HOLDERS {
            let name = Name::new(b"file").unwrap();
            book.offered(holder, id, Offer { theirs: id, name, size_bytes: 1024, modified, _charge: None });
        }
    }
    book.lead_listed();
    let mut asked: VecDeque<(usize, u64)> = VecDeque::new();
    let (mut came, mut messages) = (0, 0);
    while came < FILES {
        book.assign();
        for action in book.take_actions() {
            match action {
                Action::AskWhole(ids) => ids.iter().for_each(|id| book.told(*id, &[digest(*id, 0)])),
                Action::Want { holder, whole, .. } => {
                    messages += 1;
                    asked.extend(whole.into_iter().map(|id| (holder, id)));
                }
                _ => {}
            }
        }
        let Some((holder, id)) = asked.pop_front() else { continue };
        book.staged(holder, id);
        book.settled([id].into_iter());
        came += 1;
    }
    assert!(messages * 100 <= FILES, "{messages} messages for {FILES} files");
    assert!(book.queued() < FILES as usize / 2, "{} are still in queues", book.queued());
}

fn book_of_small_files(count: u64) -> Book {
    let mut book = Book::new(8 << 20, HOLDERS, true);
    let modified = Timestamp { seconds: 7, nanoseconds: 0 };
    book.join(1);
    for id in 1..=count {
        book.listed(vec![Wanted { id, key: id, size_bytes: 1024, modified, is_large: false, kept: Vec::new() }]);
        let name = Name::new(b"file").unwrap();
        book.offered(1, id, Offer { theirs: id, name, size_bytes: 1024, modified, _charge: None });
    }
    book.lead_listed();
    book.assign();
    for action in book.take_actions() {
        if let Action::AskWhole(ids) = action {
            ids.iter().for_each(|id| book.told(*id, &[digest(*id, 0)]));
        }
    }
    book.take_actions();
    book
}

/// What of the lead's is asked of the lead.
fn wanted_of_lead(book: &mut Book) -> usize {
    let of_lead = |action: Action| match action {
        Action::Want { holder: LEAD, whole, .. } => whole.len(),
        _ => 0,
    };
    book.take_actions().into_iter().map(of_lead).sum()
}

#[test]
fn a_small_file_of_which_every_holder_has_other_content_is_asked_of_the_lead() {
    let mut book = book_of_small_files(1);
    book.bad(1, 1, Extent::new(0, 1024), wrong(1, 0, 1));
    book.join(LEAD);
    book.assign();
    assert_eq!(wanted_of_lead(&mut book), 1);
}

#[test]
fn of_a_slow_holders_small_files_an_idle_one_takes_half_at_once() {
    let mut book = book_of_small_files(1000);
    book.join(LEAD);
    // The lead has shown its rate; the other one stands still.
    for second in 1..4 {
        book.tick(second * 1_000_000, &[second * 1_000_000, 0, 0]);
    }
    assert!((400..=600).contains(&wanted_of_lead(&mut book)));
}

#[test]
fn what_breaks_off_on_its_way_is_asked_for_again_unless_another_one_was_asked_for_it() {
    for is_of_another in [false, true] {
        let mut world = of_list(&[50], &[], &[(1, 1), (2, 1)]);
        world.answer();
        world.act();
        let (holder, ..) = world.queue.pop().unwrap();
        assert_eq!(holder, 1);
        if is_of_another {
            world.book.gone(1, "lost", false);
            world.act();
        }
        world.book.broke_off(1, 1);
        world.act();
        assert_eq!(world.queue.len(), 1, "{is_of_another}");
    }
}

#[test]
fn whoever_waits_for_what_the_lead_has_to_tell_is_not_silent() {
    let mut book = Book::new(8 << 20, HOLDERS, true);
    let modified = Timestamp { seconds: 7, nanoseconds: 0 };
    (0..HOLDERS).for_each(|holder| book.join(holder));
    for id in 1..=10_000 {
        book.listed(vec![Wanted { id, key: id, size_bytes: 1024, modified, is_large: false, kept: Vec::new() }]);
        let name = Name::new(b"file").unwrap();
        book.offered(1, id, Offer { theirs: id, name, size_bytes: 1024, modified, _charge: None });
    }
    for second in 1..20 {
        book.assign();
        book.tick(second * 1_000_000, &[second * 1_000_000, 0, 0]);
    }
    assert!(!book.take_actions().iter().any(|action| matches!(action, Action::Drop(1, _))));
}
