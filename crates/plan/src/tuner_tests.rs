//! Drives tuners against a fluid model of what they share: a link with a queue and losses, neighbours on it, storage with a law of
//! its own, each of which changes in steps.

use super::*;

const MBIT: f64 = 125_000.0;
/// Eight round trips of 74 ms, which is also what a change needs to settle.
const WINDOW_S: f64 = 0.6;
const RTT_US: u64 = 74_000;

/// What several jobs share at a moment.
#[derive(Clone, Copy)]
struct World {
    link: f64,
    /// What a stream carries under the losses of the path.
    by_loss: f64,
    /// Foreign streams, each of which takes what one of ours does.
    neighbours: u32,
    /// What storage gives to so many lanes of one job.
    storage: fn(f64) -> f64,
}

const FAST: fn(f64) -> f64 = |_| f64::INFINITY;

fn world() -> World {
    World { link: 1000.0 * MBIT, by_loss: f64::INFINITY, neighbours: 0, storage: FAST }
}

struct Job {
    tuner: Tuner,
    settles: bool,
    rate: f64,
    left_bytes: Option<u64>,
    /// What it takes for the path of the queue that stood when it began. Of the rest it sees what comes and goes.
    unseen_us: u64,
    random: u64,
}

impl Job {
    fn new(streams: u32) -> Job {
        let (tuner, random) = (Tuner::new(streams, 64), u64::from(streams));
        Job { tuner, settles: false, rate: 0.0, left_bytes: None, unseen_us: 0, random }
    }

    /// From -1 to 1.
    fn noise(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as f64 / (1u64 << 30) as f64 - 1.0
    }
}

struct Plant {
    jobs: Vec<Job>,
    windows: u64,
}

impl Plant {
    fn new(streams: &[u32]) -> Plant {
        Plant { jobs: streams.iter().map(|n| Job::new(*n)).collect(), windows: 0 }
    }

    fn run(&mut self, world: &World, seconds: f64) {
        for _ in 0..(seconds / WINDOW_S).round() as u64 {
            self.window(world);
        }
    }

    fn window(&mut self, world: &World) {
        self.windows += 1;
        let streams: u32 = self.jobs.iter().map(|job| job.tuner.streams()).sum::<u32>() + world.neighbours;
        let wanted = f64::from(streams) * world.by_loss;
        let each = world.by_loss.min(world.link / f64::from(streams));
        for job in &mut self.jobs {
            let own = f64::from(job.tuner.streams());
            let (by_network, by_storage) = (own * each, (world.storage)(own));
            job.rate = by_network.min(by_storage) * (1.0 + 0.02 * job.noise());
            if std::mem::take(&mut job.settles) {
                continue;
            }
            let is_network = by_network <= by_storage;
            let is_full = wanted > world.link * 1.001;
            let is_seen = is_full && is_network && (job.unseen_us == 0 || self.windows.is_multiple_of(2));
            let window = Window {
                at_us: (self.windows as f64 * WINDOW_S * 1e6) as u64,
                bytes_per_second: job.rate as u64,
                rtt_us: RTT_US + job.unseen_us,
                queue_us: if is_seen { RTT_US / 2 - job.unseen_us } else { 0 },
                is_lossy: is_full || world.by_loss.is_finite(),
                windows_permille: 0,
                limit: if is_network { Limit::Network } else { Limit::Destination },
                file_bytes: 0,
                left_bytes: job.left_bytes,
            };
            job.settles = job.tuner.step(&window).is_some();
        }
    }

    fn streams(&self) -> Vec<u32> {
        self.jobs.iter().map(|job| job.tuner.streams()).collect()
    }

    /// The mean rate over the next seconds, as a share of what the best fixed number would have.
    fn share_of_best(&mut self, world: &World, seconds: f64) -> f64 {
        let best = (1..=64).map(|n| {
            let n = f64::from(n);
            let each = world.by_loss.min(world.link / (n + f64::from(world.neighbours)));
            (n * each).min((world.storage)(n))
        });
        let best = best.fold(0.0, f64::max);
        let (mut sum, windows) = (0.0, (seconds / WINDOW_S).round());
        for _ in 0..windows as u64 {
            self.window(world);
            sum += self.jobs[0].rate;
        }
        sum / windows / best
    }
}

fn jain(rates: &[f64]) -> f64 {
    let (sum, squares) = rates.iter().fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    sum * sum / (rates.len() as f64 * squares)
}

#[test]
fn after_a_step_of_the_link_the_rate_is_that_of_the_best_number_within_ten_seconds() {
    let slow = World { link: 600.0 * MBIT, by_loss: 170.0 * MBIT, ..world() };
    let fast = World { link: 2400.0 * MBIT, ..slow };
    let mut plant = Plant::new(&[4]);
    for world in [slow, fast, slow, fast] {
        plant.run(&world, 10.0);
        let share = plant.share_of_best(&world, 30.0);
        assert!(share >= 0.95, "{share} with {:?} on {} Mbit/s", plant.streams(), world.link / MBIT);
    }
}

#[test]
fn after_a_step_of_the_losses_too() {
    let mild = World { by_loss: 260.0 * MBIT, ..world() };
    let heavy = World { by_loss: 40.0 * MBIT, ..world() };
    let mut plant = Plant::new(&[4]);
    for world in [mild, heavy, mild, heavy] {
        plant.run(&world, 10.0);
        let share = plant.share_of_best(&world, 30.0);
        assert!(share >= 0.95, "{share} with {:?}", plant.streams());
    }
}

#[test]
fn storage_that_wants_many_lanes_gets_them_and_storage_that_wants_one_gets_one() {
    // Far away, and turning.
    let latent = World { storage: |n| (n * 30e6).min(400e6), link: f64::INFINITY, ..world() };
    let turning = World { storage: |n| 400e6 * 5.0 / (n + 4.0), ..latent };
    let mut plant = Plant::new(&[2]);
    plant.run(&latent, 10.0);
    let share = plant.share_of_best(&latent, 60.0);
    assert!(share >= 0.95 && plant.streams() == [16], "{share} with {:?}", plant.streams());
    plant.run(&turning, 10.0);
    let share = plant.share_of_best(&turning, 20.0);
    assert!(share >= 0.95, "{share} with {:?}: {:?}", plant.streams(), plant.jobs[0].tuner.changes());
    plant.run(&latent, 10.0);
    let share = plant.share_of_best(&latent, 20.0);
    assert!(share >= 0.95, "{share} with {:?}", plant.streams());
}

#[test]
fn a_neighbour_is_left_its_part_and_what_it_leaves_is_taken() {
    let alone = World { by_loss: 150.0 * MBIT, ..world() };
    let beside = World { neighbours: 8, ..alone };
    let mut plant = Plant::new(&[4]);
    plant.run(&alone, 15.0);
    plant.run(&beside, 30.0);
    let part = plant.jobs[0].rate / beside.link;
    assert!((0.3..=0.55).contains(&part), "{part} beside 8 streams with {:?}", plant.streams());
    plant.run(&alone, 10.0);
    let share = plant.share_of_best(&alone, 20.0);
    assert!(share >= 0.95, "{share} with {:?}", plant.streams());
}

#[test]
fn two_jobs_on_a_full_link_meet() {
    for (one, other) in [(16, 4), (64, 4), (4, 4), (10, 5), (32, 2)] {
        let mut plant = Plant::new(&[one, other]);
        plant.run(&world(), 30.0);
        let mut rates = vec![0.0; 2];
        for _ in 0..50 {
            plant.window(&world());
            plant.jobs.iter().zip(&mut rates).for_each(|(job, sum)| *sum += job.rate);
        }
        assert!(jain(&rates) >= 0.95, "{one} and {other}: {} with {:?}", jain(&rates), plant.streams());
        assert!(rates.iter().sum::<f64>() / 50.0 >= 0.95 * world().link);
    }
}

/// As recorded at 20 ms beside four streams: its least round trip was 30 ms, and the rest of the queue 5 % of that and more.
#[test]
fn a_copy_that_begins_later_has_its_share_within_ten_seconds_and_takes_no_more() {
    let mut plant = Plant::new(&[4]);
    plant.run(&world(), 5.0);
    plant.jobs.push(Job { unseen_us: RTT_US * 2 / 5, ..Job::new(4) });
    plant.run(&world(), 10.0);
    let mut rates = vec![0.0; 2];
    for _ in 0..50 {
        plant.window(&world());
        plant.jobs.iter().zip(&mut rates).for_each(|(job, sum)| *sum += job.rate);
    }
    let changes = plant.jobs[1].tuner.changes();
    assert!(jain(&rates) >= 0.95, "{} with {:?}: {changes:?}", jain(&rates), plant.streams());
}

#[test]
fn alone_on_a_full_link_nothing_is_lost_by_what_is_given_back() {
    for by_loss in [40.0, 90.0, 150.0] {
        let world = World { by_loss: by_loss * MBIT, ..world() };
        let mut plant = Plant::new(&[4]);
        plant.run(&world, 10.0);
        let share = plant.share_of_best(&world, 300.0);
        assert!(share >= 0.98, "{share} at {by_loss} with {:?}", plant.streams());
    }
}

#[test]
fn at_the_end_nothing_is_begun_and_a_trial_that_fails_is_taken_back() {
    let latent = World { storage: |n| (n * 30e6).min(400e6), link: f64::INFINITY, ..world() };
    let mut plant = Plant::new(&[2]);
    plant.jobs[0].left_bytes = Some(2 * 60_000_000);
    plant.run(&latent, 30.0);
    assert_eq!(plant.streams(), [2]);
    // A few seconds are enough for more, and not for giving any back.
    plant.jobs[0].left_bytes = Some(9 * 60_000_000);
    plant.run(&latent, 30.0);
    assert!(plant.streams()[0] >= 4, "{:?}", plant.streams());
    // What is left becomes little in the middle of a trial without a gain.
    let full = World { storage: |_| 100e6, ..latent };
    let mut plant = Plant::new(&[2]);
    plant.run(&full, 0.6);
    assert_eq!(plant.streams(), [4]);
    plant.jobs[0].left_bytes = Some(1);
    plant.run(&full, 30.0);
    assert_eq!(plant.streams(), [2]);
}

#[test]
fn other_files_void_a_trial_and_are_no_alarm() {
    let mut tuner = Tuner::new(4, 64);
    let mut window = Window { limit: Limit::Source, rtt_us: 100, file_bytes: 1 << 20, ..Window::default() };
    let mut step = |bytes_per_second: u64, file_bytes: u64| {
        window.at_us += 600_000;
        (window.bytes_per_second, window.file_bytes) = (bytes_per_second, file_bytes);
        tuner.step(&window);
        tuner.streams()
    };
    assert_eq!(step(100_000_000, 1 << 20), 8);
    assert_eq!(step(1_000_000, 1 << 10), 4, "small files are slow with any number");
    // It is tried again, for these, after half a minute: nothing was learned of it.
    let after = (1..100).find(|_| step(1_000_000, 1 << 10) == 8);
    assert_eq!(after, Some(50));
    assert!(tuner.changes()[1].why.contains("not comparable"), "{:?}", tuner.changes());
}

#[test]
fn sizes_of_files_that_take_turns_do_not_make_the_number_swing() {
    for only_grows in [false, true] {
        let mut tuner = Tuner::new(4, 64);
        if only_grows {
            tuner.only_grows();
        }
        let (mut least, mut changes) = (4, 0);
        for at in 1..100u64 {
            let (bytes_per_second, file_bytes) =
                if at % 2 == 0 { (100_000_000, 1 << 20) } else { (1_000_000, 1 << 10) };
            let window = Window {
                at_us: at * 600_000,
                bytes_per_second,
                rtt_us: RTT_US,
                is_lossy: true,
                limit: Limit::Network,
                file_bytes,
                ..Window::default()
            };
            changes += u32::from(tuner.step(&window).is_some());
            if only_grows {
                assert!(tuner.streams() >= least, "lanes of other paths would rest: {:?}", tuner.changes());
                least = tuner.streams();
            }
        }
        assert!(changes <= 4, "{changes} changes in a minute: {:?}", tuner.changes());
    }
}

#[test]
fn a_rate_that_was_set_processors_and_what_is_not_known_change_nothing() {
    for limit in [Limit::Rate, Limit::Processors, Limit::Unknown] {
        let mut tuner = Tuner::new(4, 64);
        for at in 1..200u64 {
            // It falls to a fifth in between.
            let bytes_per_second = if (80..120).contains(&at) { 20_000_000 } else { 100_000_000 };
            let window = Window { at_us: at * 600_000, bytes_per_second, rtt_us: RTT_US, limit, ..Window::default() };
            assert_eq!(tuner.step(&window), None, "{limit:?}");
        }
    }
}

/// Streams that lost much in their slow start are slow for seconds: the rate falls while the number grows.
#[test]
fn a_rate_that_falls_by_itself_takes_no_stream_back() {
    let mut tuner = Tuner::new(4, 64);
    let (mut bytes_per_second, mut most) = (32_000_000.0, 4);
    for at in 1..40u64 {
        bytes_per_second *= 0.93;
        let window = Window {
            at_us: at * 600_000,
            bytes_per_second: bytes_per_second as u64,
            rtt_us: RTT_US,
            is_lossy: true,
            limit: Limit::Network,
            ..Window::default()
        };
        tuner.step(&window);
        assert!(tuner.streams() >= most, "{:?}", tuner.changes());
        most = tuner.streams();
    }
    assert!(most >= 16, "{:?}", tuner.changes());
}

#[test]
fn trials_become_rare_when_nothing_comes_of_them() {
    // A policer: no queue stands, losses are seen, and more streams bring nothing.
    let mut tuner = Tuner::new(4, 64);
    let mut changes = 0;
    for at in 1..6000u64 {
        let (bytes_per_second, limit) = (125_000_000, Limit::Network);
        let window = Window {
            at_us: at * 600_000,
            bytes_per_second,
            rtt_us: RTT_US,
            is_lossy: true,
            limit,
            ..Window::default()
        };
        changes += u32::from(tuner.step(&window).is_some());
    }
    assert!(tuner.streams() == 8 && changes <= 12, "{changes} changes in an hour");
}

/// A job of days: what is remembered is full, and trials go on.
#[test]
fn what_is_remembered_of_a_long_past_grows_no_more() {
    let mut tuner = Tuner::new(4, 64);
    tuner.changes = vec![Change { at_us: 1, from: 8, to: 4, why: "the last one".to_owned() }; CHANGES_MAX];
    let mut window = Window { limit: Limit::Source, rtt_us: 100, file_bytes: 1 << 20, ..Window::default() };
    let mut step = |bytes_per_second: u64, file_bytes: u64| {
        window.at_us += 600_000;
        (window.bytes_per_second, window.file_bytes) = (bytes_per_second, file_bytes);
        tuner.step(&window);
        tuner.streams()
    };
    assert_eq!(step(100_000_000, 1 << 20), 8);
    assert_eq!(step(190_000_000, 1 << 20), 16, "it is kept, and the next one begins");
    assert_eq!(step(1_000_000, 1 << 10), 8, "which is void");
    assert!(tuner.changes().len() == CHANGES_MAX && tuner.changes()[CHANGES_MAX - 1].why == "the last one");
}
