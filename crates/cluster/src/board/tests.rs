//! Every schedule of three hosts, three bundles and two losses; and by seed a world in which answers are lost, hosts stand still and
//! go on, and the source changes meanwhile.
//!
//! `THALWEG_TEST_BOARD_SEEDS` says how many seeds.

use super::*;
use std::collections::BTreeSet;

fn weight(bytes: u64) -> Weight {
    Weight { files: 0, bytes }
}

fn board(bytes: &[u64]) -> Board<usize> {
    let mut board = Board::default();
    bytes.iter().enumerate().for_each(|(number, bytes)| board.add(number, weight(*bytes)));
    board.complete();
    board
}

fn claim(board: &mut Board<usize>, host: usize, now_ms: u64) -> Option<Page<usize>> {
    board.claim(host, (1, 0..u64::MAX), now_ms, &mut |_| true)
}

const HOSTS: usize = 3;

/// A moment of a schedule.
#[derive(Clone)]
struct World {
    board: Board<usize>,
    /// What each host believes to have, right or wrong.
    hands: [Option<Page<usize>>; HOSTS],
    /// How often each bundle was committed.
    done: [u32; 3],
    losses: u32,
    answers_lost: u32,
}

impl World {
    fn check(&self) {
        assert!(self.done.iter().all(|times| *times <= 1), "committed twice: {:?}", self.done);
        let held: Vec<_> = self.hands.iter().flatten().filter(|page| self.board.holds(page.epoch)).collect();
        let bundles: BTreeSet<_> = held.iter().flat_map(|page| &page.bundles).collect();
        assert_eq!(
            bundles.len(),
            held.iter().map(|page| page.bundles.len()).sum::<usize>(),
            "two hosts have one bundle"
        );
    }

    fn commit(&mut self, host: usize, is_heard: bool) {
        let page = self.hands[host].clone().unwrap();
        let was_held = self.board.holds(page.epoch);
        match self.board.commit(page.epoch, 0) {
            Commit::Done if was_held => page.bundles.iter().for_each(|bundle| self.done[*bundle] += 1),
            Commit::Done => assert!(page.bundles.iter().all(|bundle| self.done[*bundle] == 1), "done by nobody"),
            Commit::Fenced => assert!(!was_held),
            Commit::Unknown => panic!("it was given this epoch"),
        }
        if is_heard {
            self.hands[host] = None;
        }
    }

    /// Everything that may happen next.
    fn next(&self) -> Vec<World> {
        let mut next = Vec::new();
        let mut then = |act: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            act(&mut world);
            world.check();
            next.push(world);
        };
        for host in 0..HOSTS {
            let Some(page) = &self.hands[host] else {
                if self.board.counts().open > 0 {
                    then(&|world| world.hands[host] = claim(&mut world.board, host, 0));
                }
                continue;
            };
            then(&|world| world.commit(host, true));
            if self.answers_lost > 0 {
                then(&|world| {
                    world.answers_lost -= 1;
                    world.commit(host, false);
                });
            }
            if self.losses > 0 && self.board.holds(page.epoch) {
                // It goes on all the same, and says so later.
                then(&|world| {
                    world.losses -= 1;
                    assert!(world.board.lose(page.epoch));
                });
                // It died.
                then(&|world| {
                    world.losses -= 1;
                    assert!(world.board.lose(page.epoch));
                    world.hands[host] = None;
                });
            }
        }
        next
    }
}

#[test]
fn no_schedule_of_three_hosts_commits_a_bundle_twice_or_never() {
    // Their weights make pages of one and of two.
    let world = World { board: board(&[1, 1, 4]), hands: [None, None, None], done: [0; 3], losses: 2, answers_lost: 1 };
    let (mut open, mut ends) = (vec![world], 0u64);
    while let Some(world) = open.pop() {
        let next = world.next();
        if next.is_empty() {
            assert!(world.board.is_over(), "it stands still: {:?}", world.board.counts());
            assert_eq!(world.done, [1; 3]);
            ends += 1;
        }
        open.extend(next);
    }
    assert!(ends > 1000, "{ends} schedules are not all");
}

#[test]
fn what_three_owners_lost_is_put_aside_and_the_rest_goes_on() {
    let mut board = board(&[1, 1, 1, 1]);
    for _ in 0..OWNERS_MAX {
        let page = claim(&mut board, 0, 0).unwrap();
        assert_eq!(page.bundles[0], 0);
        board.lose(page.epoch);
    }
    while let Some(page) = claim(&mut board, 1, 0) {
        assert!(!page.bundles.contains(&0));
        assert_eq!(board.commit(page.epoch, 0), Commit::Done);
    }
    assert!(board.is_over());
    assert_eq!(board.counts(), Counts { open: 0, all: 4, done: 3, aside: 1 });
}

#[test]
fn what_nobody_has_begun_is_given_back_as_often_as_there_are_hosts() {
    let mut board = board(&[1]);
    for host in 0..2 * usize::from(OWNERS_MAX) {
        let page = claim(&mut board, host, 0).unwrap();
        assert!(board.give_back(page.epoch) && !board.give_back(page.epoch));
        assert_eq!(board.commit(page.epoch, 0), Commit::Fenced);
    }
    let page = claim(&mut board, 0, 0).unwrap();
    assert_eq!(board.commit(page.epoch, 0), Commit::Done);
    assert_eq!(board.counts(), Counts { open: 0, all: 1, done: 1, aside: 0 });
}

#[test]
fn epochs_that_nobody_was_given_are_unknown() {
    let mut board = board(&[1]);
    let page = claim(&mut board, 0, 0).unwrap();
    for epoch in [0, 2, 1 << 63, u64::MAX] {
        assert_eq!(board.commit(Epoch(epoch), 0), Commit::Unknown);
        assert!(!board.lose(Epoch(epoch)) && !board.holds(Epoch(epoch)));
    }
    assert_eq!(board.commit(page.epoch, 0), Commit::Done);
}

#[test]
fn pages_shrink_towards_the_end_and_take_what_fits() {
    let mut board = board(&[1; 64]);
    let sizes: Vec<_> = std::iter::from_fn(|| board.claim(0, (4, 0..u64::MAX), 0, &mut |_| true))
        .map(|page| page.bundles.len())
        .collect();
    assert_eq!((sizes[0], sizes.iter().sum::<usize>()), (8, 64));
    assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[sizes.len() - 1] == 1, "{sizes:?}");
    // What is hardly worth beginning is not handed out, but for the last.
    let mut board = self::board(&[1; 64]);
    let least = 5 * board.open_cost / 64;
    let pages = std::iter::from_fn(|| board.claim(0, (4, least..u64::MAX), 0, &mut |_| true));
    let sizes: Vec<_> = pages.map(|page| page.bundles.len()).collect();
    assert!(sizes[..sizes.len() - 1].iter().all(|size| *size >= 5) && sizes.iter().sum::<usize>() == 64, "{sizes:?}");
    let mut board = self::board(&[1; 64]);
    let mut room = 3;
    let mut fits = |_: &usize| {
        room -= 1;
        room >= 0
    };
    assert_eq!(board.claim(0, (1, 0..u64::MAX), 0, &mut fits).unwrap().bundles.len(), 3);
    // One that fits nowhere is handed out all the same: whoever carries it out says what is wrong.
    assert_eq!(board.claim(0, (1, 0..u64::MAX), 0, &mut |_| false).unwrap().bundles.len(), 1);
}

#[test]
fn an_idle_host_finds_the_claim_that_is_late_and_not_its_own() {
    let mut board = board(&[1 << 20, 1 << 20]);
    let (quick, slow) = (claim(&mut board, 0, 0).unwrap(), claim(&mut board, 1, 0).unwrap());
    assert_eq!(board.late(0, 1 << 40), None, "nothing is known of how long one takes");
    board.commit(quick.epoch, 20_000);
    assert_eq!(board.late(0, 79_000), None);
    assert_eq!((board.late(0, 81_000), board.late(1, 81_000)), (Some(slow.epoch), None));
}

#[test]
fn of_64_hosts_that_ask_for_three_bundles_three_work_and_what_is_late_goes_to_one_other_at_a_time() {
    const CROWD: usize = 64;
    const EVERY_MS: usize = 200;
    let ask = |board: &mut Board<usize>, host: usize, now_ms: u64| {
        if let Some(late) = board.late(host, now_ms) {
            assert!(board.lose(late));
        }
        board.claim(host, (CROWD, 0..u64::MAX), now_ms, &mut |_| true)
    };
    let mut board = board(&[1 << 20; 3]);
    let mut pages = Vec::new();
    for now_ms in (0..20_000).step_by(EVERY_MS) {
        pages.extend((0..CROWD).filter_map(|host| ask(&mut board, host, now_ms)));
    }
    let bundles: Vec<_> = pages.iter().map(|page| page.bundles.clone()).collect();
    assert_eq!(bundles, [[0], [1], [2]], "nobody who has nothing takes what another has");
    for page in &pages[..2] {
        assert_eq!(board.commit(page.epoch, 20_000), Commit::Done);
    }
    // The third stands still, as does whoever is given its bundle next.
    let mut taken = Vec::new();
    for now_ms in (20_000..200_000).step_by(EVERY_MS) {
        let pages = (0..CROWD).filter_map(|host| ask(&mut board, host, now_ms));
        taken.extend(pages.map(|page| (now_ms, page.epoch)));
    }
    assert_eq!(taken.iter().map(|(at_ms, _)| *at_ms).collect::<Vec<_>>(), [80_200, 160_400]);
    assert_eq!([pages[2].epoch, taken[0].1].map(|late| board.commit(late, 200_000)), [Commit::Fenced; 2]);
    assert_eq!(board.commit(taken[1].1, 200_000), Commit::Done);
    assert!(board.is_over());
    assert_eq!(board.counts(), Counts { open: 0, all: 3, done: 3, aside: 0 });
}

#[test]
fn a_claim_of_which_everything_was_there_says_nothing_of_how_long_others_take() {
    let mut board = board(&[1 << 20, 1 << 20, 1 << 20]);
    let [first, second, third] = [0, 1, 2].map(|host| claim(&mut board, host, 0).unwrap());
    board.was_there(first.epoch);
    assert_eq!(board.commit(first.epoch, 1), Commit::Done);
    assert_eq!(board.late(0, 1 << 40), None, "nothing is known of how long one takes");
    board.commit(second.epoch, 20_000);
    assert_eq!((board.late(0, 79_000), board.late(0, 81_000)), (None, Some(third.epoch)));
}

/// Which of the rules that stand between hosts and storage hold.
#[derive(Clone, Copy)]
struct Rules {
    is_fenced: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % end as u64) as usize
    }
}

/// A slice under way: its page, the version of each bundle that was read, and how many of them were published.
#[derive(Clone)]
struct Running {
    page: Page<usize>,
    read: Vec<Option<u64>>,
    published: usize,
}

/// One run by a seed. The source's bundles change while it runs; a host that was given up goes on with what it has.
fn simulate(seed: u64, rules: Rules) -> Result<Counts, String> {
    const BUNDLES: usize = 12;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut board = board(&[1; BUNDLES]);
    let (mut source, mut there) = ([1u64; BUNDLES], [0u64; BUNDLES]);
    let (mut committed, mut void) = ([0u32; BUNDLES], BTreeSet::new());
    let mut lost: Vec<Epoch> = Vec::new();
    let mut hosts: [Vec<Running>; 4] = Default::default();
    for now_ms in 0..100_000u64 {
        if board.is_over() && hosts.iter().all(Vec::is_empty) {
            break;
        }
        let host = random.below(hosts.len());
        match random.below(20) {
            0 => source[random.below(BUNDLES)] += 1,
            // Its lease is gone; whether it died or was only silent, nobody knows.
            1 => {
                if let Some(running) = hosts[host].last()
                    && board.lose(running.page.epoch)
                {
                    lost.push(running.page.epoch);
                    if random.below(2) == 0 {
                        hosts[host].pop();
                    }
                }
            }
            2..=5 if hosts[host].len() < 2 => {
                if let Some(page) = board.claim(host, (8, 0..u64::MAX), now_ms, &mut |_| true) {
                    // The slice takes over from all that were lost, before it looks at anything.
                    if rules.is_fenced {
                        void.extend(lost.iter().copied());
                    }
                    let read = vec![None; page.bundles.len()];
                    hosts[host].push(Running { page, read, published: 0 });
                }
            }
            _ => {
                let Some(at) = hosts[host].len().checked_sub(1) else { continue };
                let running = &mut hosts[host][random.below(at + 1).min(at)].clone();
                let epoch = running.page.epoch;
                let next = running.published;
                match running.page.bundles.get(next).copied() {
                    Some(bundle) if running.read[next].is_none() => running.read[next] = Some(source[bundle]),
                    Some(bundle) if !void.contains(&epoch) => {
                        let version = running.read[next].unwrap_or_default();
                        if version < there[bundle] {
                            return Err(format!("seed {seed}: version {version} over {}", there[bundle]));
                        }
                        there[bundle] = version;
                        running.published += 1;
                    }
                    Some(_) => {
                        // Its staging is gone: the slice has failed.
                        hosts[host].retain(|other| other.page.epoch != epoch);
                        if board.lose(epoch) {
                            return Err(format!("seed {seed}: a slice was fenced and not lost"));
                        }
                        continue;
                    }
                    None => {
                        let held = board.holds(epoch);
                        let outcome = board.commit(epoch, now_ms);
                        if (outcome == Commit::Done) != held && outcome != Commit::Done {
                            return Err(format!("seed {seed}: {outcome:?} of a claim that is held"));
                        }
                        if held {
                            running.page.bundles.iter().for_each(|bundle| committed[*bundle] += 1);
                        }
                        // The answer is lost one time in three: it asks again.
                        if random.below(3) > 0 {
                            hosts[host].retain(|other| other.page.epoch != epoch);
                        }
                        continue;
                    }
                }
                if let Some(place) = hosts[host].iter_mut().find(|other| other.page.epoch == epoch) {
                    *place = running.clone();
                }
            }
        }
    }
    let counts = board.counts();
    if !board.is_over() || counts.done + counts.aside != BUNDLES {
        return Err(format!("seed {seed}: it did not end: {counts:?}"));
    }
    if committed.iter().any(|times| *times > 1) || committed.iter().sum::<u32>() as usize != counts.done {
        return Err(format!("seed {seed}: committed {committed:?}"));
    }
    match (0..BUNDLES).find(|bundle| committed[*bundle] == 1 && there[*bundle] == 0) {
        Some(bundle) => Err(format!("seed {seed}: bundle {bundle} is committed and not there")),
        None => Ok(counts),
    }
}

fn seeds() -> u64 {
    let named = std::env::var("THALWEG_TEST_BOARD_SEEDS").ok();
    named.map_or(10_000, |text| text.parse().expect("THALWEG_TEST_BOARD_SEEDS is a number of seeds"))
}

#[test]
fn by_seed_nothing_older_appears_over_something_newer_and_nothing_counts_twice() {
    for seed in 1..=seeds() {
        simulate(seed, Rules { is_fenced: true }).unwrap();
    }
    // In the world as it is set up here, that does not hold without it.
    let violated = (1..=10_000).find(|seed| simulate(*seed, Rules { is_fenced: false }).is_err());
    assert!(violated.is_some(), "without the fence nothing goes wrong: this test shows nothing");
}
