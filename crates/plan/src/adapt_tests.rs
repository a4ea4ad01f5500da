//! Drives the adaptation against simulated paths: streams under a law of loss, full links, slow storage, slow processors.

use super::*;
use proptest::prelude::*;

const TICK_US: u64 = 50_000;
const MBIT: f64 = 125_000.0;

/// A path on which every stream carries what law and window allow, as far as link and hosts go.
#[derive(Clone, Debug)]
struct Path {
    rtt_us: u64,
    link: f64,
    /// What one stream carries under the path's random loss; infinite without any.
    by_loss: f64,
    by_window: f64,
    /// What storage and processors of the two sides move, whatever the number of streams.
    sender: f64,
    receiver: f64,
    /// Longest wait in the queue before the link, as a share of the round trip.
    queue: f64,
    /// The rate swings by this share.
    swing: f64,
}

fn path() -> Path {
    let unlimited = 100_000.0 * MBIT;
    Path {
        rtt_us: 74_000,
        link: 1_000.0 * MBIT,
        by_loss: f64::INFINITY,
        by_window: f64::INFINITY,
        sender: unlimited,
        receiver: unlimited,
        queue: 1.0,
        swing: 0.05,
    }
}

/// What came of a simulated transfer.
struct Run {
    /// Every number of streams with the time it came at.
    changes: Vec<(f64, u32)>,
    rate: f64,
    note: Option<String>,
}

impl Run {
    fn streams(&self) -> u32 {
        self.changes.last().unwrap().1
    }
}

struct Simulation {
    adaptation: Adaptation,
    sample: StreamSample,
    rate: f64,
    random: u64,
    /// What lanes do at storage they do on a processor.
    computes: bool,
    changes: Vec<(f64, u32)>,
}

impl Simulation {
    fn new(streams: u32, streams_max: u32) -> Simulation {
        let sample = StreamSample { streams, yields_to_loss: true, ..StreamSample::default() };
        let adaptation = Adaptation::new(streams, streams_max);
        Simulation { adaptation, sample, rate: 0.0, random: 1, computes: false, changes: vec![(0.0, streams)] }
    }

    fn run(&mut self, path: &Path, seconds: u64) {
        for _ in 0..seconds * 1_000_000 / TICK_US {
            self.tick(path);
        }
    }

    fn tick(&mut self, path: &Path) {
        let tick_s = TICK_US as f64 / 1e6;
        let streams = f64::from(self.sample.streams);
        let wanted = streams * path.by_loss.min(path.by_window);
        let carried = wanted.min(path.link);
        let target = carried.min(path.sender).min(path.receiver);
        // Three round trips bring a change to two thirds.
        self.rate += (target - self.rate) * (tick_s / (3.0 * path.rtt_us as f64 / 1e6)).min(1.0);
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let swing = ((self.random >> 33) as f64 / (1u64 << 31) as f64 * 2.0 - 1.0) * path.swing;
        let sample = &mut self.sample;
        sample.at_us += TICK_US;
        sample.delivered_bytes += (self.rate * (1.0 + swing) * tick_s) as u64;
        sample.rtt_us_min = path.rtt_us;
        let is_full = wanted > path.link && carried <= path.sender.min(path.receiver);
        let queue = if is_full { 0.5 * path.queue } else { 0.0 };
        sample.rtt_us = (path.rtt_us as f64 * (1.0 + queue)) as u64;
        let loses = path.by_loss.is_finite() || is_full;
        sample.retransmits += u64::from(loses && sample.at_us.is_multiple_of(500_000));
        sample.busy_us += sample.streams as u64 * TICK_US;
        let is_window = path.by_window < path.by_loss && wanted <= path.link.min(path.sender);
        sample.window_limited_us += if is_window { sample.streams as u64 * TICK_US * 9 / 10 } else { 0 };
        let waiting = |limit: f64| if target >= limit { 0.1 } else { 0.9 };
        let (sender, receiver) = (waiting(path.sender), waiting(path.receiver));
        // A receiver that does not keep up lets the sender wait.
        spend(&mut sample.sender, sample.streams, Stage::Send, Stage::Read, sender);
        spend(&mut sample.receiver, sample.streams, Stage::Receive, Stage::Write, receiver);
        if self.computes {
            for times in [&mut sample.sender, &mut sample.receiver] {
                times.cpu_ns = times.stage_ns[Stage::Read as usize] + times.stage_ns[Stage::Write as usize];
            }
        }
        if let Some(streams) = self.adaptation.step(sample) {
            self.changes.push((sample.at_us as f64 / 1e6, streams));
            sample.streams = streams;
        }
    }

    fn end(self) -> Run {
        Run { changes: self.changes, rate: self.rate, note: self.adaptation.note() }
    }
}

fn spend(times: &mut LaneTimes, lanes: u32, waiting: Stage, working: Stage, share: f64) {
    let ns = f64::from(lanes) * TICK_US as f64 * 1e3;
    times.lanes = lanes;
    times.stage_ns[waiting as usize] += (ns * share) as u64;
    times.stage_ns[working as usize] += (ns * (1.0 - share)) as u64;
}

fn transfer(path: &Path, streams: u32, seconds: u64) -> Run {
    let mut simulation = Simulation::new(streams, 64);
    simulation.run(path, seconds);
    simulation.end()
}

#[test]
fn a_lossy_link_is_filled_within_seconds() {
    let lossy = Path { by_loss: 150.0 * MBIT, ..path() };
    let run = transfer(&lossy, 4, 60);
    assert_eq!(run.changes[..2].iter().map(|(_, n)| *n).collect::<Vec<_>>(), [4, 8], "{:?}", run.changes);
    assert!(run.changes[1].0 < 3.0 && run.rate > 0.95 * lossy.link, "{:?}", run.changes);
    // Seven are enough, and six are not.
    assert!((7..=8).contains(&run.streams()), "{:?}", run.changes);
    let note = run.note.unwrap();
    assert!(note.starts_with("streams were adapted while running: from 4 to 8 after 1."), "{note}");
    assert!(note.contains("losses held the streams back with an empty queue, 60"), "{note}");
}

#[test]
fn small_segments_need_many_streams_and_get_them() {
    let lossy = Path { by_loss: 23.0 * MBIT, ..path() };
    let run = transfer(&lossy, 4, 60);
    assert_eq!(run.changes[..5].iter().map(|(_, n)| *n).collect::<Vec<_>>(), [4, 8, 16, 32, 64], "{:?}", run.changes);
    assert!(run.changes[4].0 < 8.0, "{:?}", run.changes);
}

#[test]
fn windows_that_hold_the_streams_back_are_a_reason_too() {
    let run = transfer(&Path { by_window: 100.0 * MBIT, ..path() }, 2, 60);
    assert_eq!(run.changes[3].1, 16, "{:?}", run.changes);
    assert!(run.streams() >= 10 && run.rate > 0.95 * path().link, "{:?}", run.changes);
    assert!(run.note.unwrap().contains("windows held the streams back"));
}

#[test]
fn a_link_that_is_full_keeps_its_number() {
    let full = transfer(&path(), 4, 120);
    assert_eq!((full.streams(), full.note), (4, None));
}

#[test]
fn a_policed_rate_without_a_queue_costs_few_trials_and_all_but_the_first_are_taken_back() {
    let policed = Path { queue: 0.0, ..path() };
    let run = transfer(&policed, 4, 600);
    assert!(run.streams() == 8 && run.changes.len() <= 9, "{:?}", run.changes);
    assert!(run.note.unwrap().contains("no gain"));
}

#[test]
fn no_loss_and_no_window_is_no_reason() {
    let shaped_elsewhere = Path { by_loss: 100.0 * MBIT, ..path() };
    let mut simulation = Simulation::new(4, 64);
    simulation.sample.yields_to_loss = false;
    simulation.run(&shaped_elsewhere, 60);
    assert_eq!(simulation.end().streams(), 4);
}

#[test]
fn storage_that_lanes_do_not_help_keeps_few_and_processors_keep_their_number() {
    for (sender, receiver) in [(300.0, 1e6), (1e6, 300.0)] {
        let slow = Path { by_loss: 150.0 * MBIT, sender: sender * MBIT, receiver: receiver * MBIT, ..path() };
        let run = transfer(&slow, 4, 120);
        assert!(run.streams() <= 4 && run.rate > 0.95 * 300.0 * MBIT, "{slow:?}: {:?}", run.changes);
        let mut simulation = Simulation::new(4, 64);
        simulation.computes = true;
        simulation.run(&slow, 120);
        assert_eq!(simulation.end().streams(), 4, "{slow:?}");
    }
}

#[test]
fn a_path_within_one_site_keeps_its_number() {
    assert_eq!(transfer(&Path { rtt_us: 300, by_loss: 150.0 * MBIT, ..path() }, 2, 60).streams(), 2);
}

#[test]
fn a_transfer_about_to_end_is_left_alone() {
    let mut simulation = Simulation::new(4, 64);
    simulation.sample.left_bytes = Some((600.0 * MBIT) as u64);
    simulation.run(&Path { by_loss: 150.0 * MBIT, ..path() }, 30);
    assert_eq!(simulation.end().streams(), 4);
}

#[test]
fn loss_that_comes_later_is_answered_and_a_failed_trial_does_not_forbid_it() {
    let policed = Path { queue: 0.0, ..path() };
    let lossy = Path { by_loss: 30.0 * MBIT, ..path() };
    let mut simulation = Simulation::new(4, 64);
    simulation.run(&policed, 30);
    assert_eq!(simulation.sample.streams, 8);
    simulation.run(&lossy, 60);
    // 32 carry 960 of 1000 Mbit/s.
    let run = simulation.end();
    assert!(run.streams() >= 32, "{:?}", run.changes);
}

#[test]
fn lanes_that_are_missing_stop_the_clock() {
    let mut simulation = Simulation::new(4, 64);
    simulation.sample.streams = 3;
    simulation.run(&Path { by_loss: 150.0 * MBIT, ..path() }, 60);
    assert_eq!(simulation.end().changes.len(), 1);
}

/// Losses come and go for longer than windows are kept.
#[test]
fn the_log_of_a_long_job_ends_with_its_windows_and_gives_the_same_decisions() {
    let mut simulation = Simulation::new(4, 64);
    let (mild, heavy) = (Path { by_loss: 260.0 * MBIT, ..path() }, Path { by_loss: 40.0 * MBIT, ..path() });
    for _ in 0..WINDOWS_MAX / 1200 {
        simulation.run(&mild, 600);
        simulation.run(&heavy, 600);
    }
    let log = simulation.adaptation.log();
    assert!(log.is_truncated && log.windows.len() == WINDOWS_MAX);
    assert!(simulation.adaptation.tuner.changes().len() > log.changes.len());
    assert_eq!(log.replayed(), log.changes);
}

#[test]
fn the_most_that_both_ends_take_is_kept() {
    let mut simulation = Simulation::new(4, 6);
    simulation.run(&Path { by_loss: 20.0 * MBIT, ..path() }, 60);
    assert_eq!(simulation.end().streams(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn on_any_path_the_number_stays_within_bounds_and_comes_to_rest(
        rtt_us in 100u64..300_000, link in 10.0f64..10_000.0, by_loss in 1.0f64..5_000.0, by_window in 1.0f64..5_000.0,
        sender in 10.0f64..20_000.0, receiver in 10.0f64..20_000.0, queue in 0.0f64..2.0, swing in 0.0f64..0.5,
        streams in 1u32..32, streams_max in 1u32..80,
    ) {
        let path = Path {
            rtt_us, link: link * MBIT, by_loss: by_loss * MBIT, by_window: by_window * MBIT, sender: sender * MBIT,
            receiver: receiver * MBIT, queue, swing,
        };
        let mut simulation = Simulation::new(streams, streams_max);
        simulation.run(&path, 300);
        let log = simulation.adaptation.log();
        let written = serde_json::to_string(&log).unwrap();
        prop_assert_eq!(serde_json::from_str::<Log>(&written).unwrap().replayed(), log.changes, "a log gives the same decisions");
        let run = simulation.end();
        prop_assert!(run.changes.windows(2).all(|pair| pair[1].1 >= 1 && pair[1].1 <= pair[0].1 * 2));
        prop_assert!(run.changes.len() <= 60, "{:?}", run.changes);
        prop_assert!(run.streams() <= streams.max(streams_max.min(STREAMS_CHOSEN_MAX)));
    }

    #[test]
    fn nothing_that_is_told_makes_it_panic(
        values in proptest::collection::vec(any::<u64>(), 10), stages in proptest::array::uniform14(any::<u64>()),
        streams: u32, streams_max: u32,
    ) {
        let mut adaptation = Adaptation::new(streams, streams_max);
        let times = LaneTimes { lanes: u32::MAX, stage_ns: stages, cpu_ns: 1, ..LaneTimes::default() };
        for (at, v) in values.windows(7).chain(values.windows(7).rev()).enumerate() {
            adaptation.step(&StreamSample {
                at_us: v[0].wrapping_add(at as u64), is_local: v[1] % 2 == 0, streams: streams.max(streams_max), delivered_bytes: v[1],
                retransmits: v[2], yields_to_loss: true, busy_us: v[3], window_limited_us: v[4], rtt_us_min: v[5],
                rtt_us: v[6], rtt_var_us: v[1], sender: times.clone(), receiver: times.clone(), files: v[3], file_bytes: v[4], left_bytes: Some(v[2]),
            });
        }
        prop_assert!(adaptation.note().is_none_or(|note| !note.contains('\n')));
    }
}
