//! Drives the guard with lanes of made rates through a whole job, in virtual time.

use super::*;
use crate::limits::CLAIM_BYTES;
use crate::sender::work::claim_bytes;
use model::progress::Tail;
use proptest::prelude::*;

const UNIT: u64 = 8 << 20;
const SOCKET: f64 = 1_048_576.0;
const MBIT: f64 = 125_000.0;
const STEP: Duration = Duration::from_millis(10);
/// A chunk over distance.
const CHUNK: u64 = 2 << 20;
/// How many times its part of a path the windows of a lane let it carry.
const ALONE: f64 = 2.0;

/// A lane of a made rate: it claims when its socket has room.
#[derive(Clone, Copy)]
struct Made {
    rate: f64,
    /// Its kernel tells how fast its windows let it be.
    tells_rate: bool,
    /// What of a unit may still be in its socket when it claims the next one.
    socket: f64,
    /// It shares this with others: its rate is what it has of it while all of them have work.
    path: Option<(IpAddr, IpAddr)>,
    /// Acknowledged, and claimed but not acknowledged.
    done: f64,
    holds: f64,
    ended_at: f64,
}

impl Made {
    fn new(rate: f64, tells_rate: bool, socket: f64) -> Made {
        Made { rate, tells_rate, socket, path: None, done: 0.0, holds: 0.0, ended_at: 0.0 }
    }

    fn pulse(&self, seconds: f64) -> Pulse {
        let window_bytes_per_second = if self.tells_rate { self.rate as u64 } else { 0 };
        let last_ack_received_ms = ((seconds - self.ended_at) * 1e3) as u32;
        let (alone_bytes_per_second, path) = ((ALONE * self.rate) as u64, self.path);
        let pulse = pulse(self.done as u64, self.holds as u64);
        Pulse { window_bytes_per_second, alone_bytes_per_second, path, last_ack_received_ms, ..pulse }
    }
}

/// What a lane carries now: those on its path that have work share it, as far as their windows let them.
fn rate_now(lanes: &[Made], number: usize) -> f64 {
    let own = &lanes[number];
    if own.path.is_none() {
        return own.rate;
    }
    let sharing = || lanes.iter().filter(|lane| lane.path == own.path);
    let whole: f64 = sharing().map(|lane| lane.rate).sum();
    let busy: f64 = sharing().filter(|lane| lane.holds > 0.0).map(|lane| lane.rate).sum();
    (own.rate * whole / busy.max(1.0)).min(ALONE * own.rate)
}

/// Between addresses that no other number has.
fn path(number: u8) -> Option<(IpAddr, IpAddr)> {
    Some((IpAddr::from([10, number, 0, 1]), IpAddr::from([10, number, 0, 2])))
}

fn pulse(acknowledged_bytes: u64, backlog_bytes: u64) -> Pulse {
    Pulse { acknowledged_bytes, backlog_bytes, ..Pulse::default() }
}

/// Sends `left` bytes over lanes of these rates; returns when each was done with its last unit, and what is told of it.
fn send(rates: &[f64], tells_rate: bool, left: u64, guard: &mut Guard) -> (Vec<f64>, Option<Tail>) {
    let lanes = rates.iter().map(|rate| Made::new(*rate, tells_rate, SOCKET)).collect();
    send_in_units(lanes, left, guard, &|_| UNIT)
}

/// The same in units that are as long as `unit_bytes` says when so much is left. What a lane holds that is broken off is
/// sent again.
fn send_in_units(
    mut lanes: Vec<Made>,
    mut left: u64,
    guard: &mut Guard,
    unit_bytes: &dyn Fn(u64) -> u64,
) -> (Vec<f64>, Option<Tail>) {
    let start = Instant::now();
    let mut now = start;
    while left > 0 || lanes.iter().any(|lane| lane.holds > 0.0) {
        now += STEP;
        let seconds = now.duration_since(start).as_secs_f64();
        assert!(seconds < 3600.0, "it does not end");
        // Claimed, and not in a socket.
        let pending: u64 = lanes.iter().map(|lane| (lane.holds - lane.socket).max(0.0) as u64).sum();
        let mut broken = None;
        let rates: Vec<_> = (0..lanes.len()).map(|number| rate_now(&lanes, number)).collect();
        for (number, lane) in lanes.iter_mut().enumerate() {
            let moved = (rates[number] * STEP.as_secs_f64()).min(lane.holds);
            (lane.done, lane.holds) = (lane.done + moved, lane.holds - moved);
            if moved > 0.0 {
                lane.ended_at = seconds;
            }
            if left == 0 && lane.holds == 0.0 {
                guard.hear(number as u32, lane.pulse(seconds), now);
                broken = guard.straggler(number as u32, now);
            }
            // The unit before is in the socket altogether: the lane is back.
            if lane.holds <= lane.socket {
                let asked = lane.pulse(seconds);
                let unit = unit_bytes(left + pending).min(left);
                let mut has_work = false;
                if left > 0 {
                    guard.hear(number as u32, asked, now);
                    has_work = guard.may_take(number as u32, unit, Some(left + pending), now);
                }
                if has_work {
                    guard.took(number as u32, unit);
                    lane.holds += unit as f64;
                    left -= unit;
                }
                guard.ends.asked(number as u32, has_work, left == 0, asked, now);
            }
        }
        if let Some(slow) = broken {
            guard.forget(slow);
            let slow = &mut lanes[slow as usize];
            left += slow.holds as u64;
            slow.holds = 0.0;
        }
    }
    let seconds = now.duration_since(start).as_secs_f64();
    let told = std::mem::take(&mut guard.ends).tail(|lane| Some(lanes[lane as usize].pulse(seconds)), now);
    (lanes.iter().map(|lane| lane.ended_at).collect(), told)
}

/// From when the first lane had nothing more to do to the end.
fn tail(ends: &[f64]) -> f64 {
    ends.iter().copied().fold(0.0, f64::max) - ends.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn the_last_units_go_to_the_fast_lane() {
    for rates in [&[100.0, 25.0][..], &[100.0, 10.0], &[250.0, 250.0, 25.0, 5.0]] {
        let rates: Vec<_> = rates.iter().map(|rate| rate * MBIT).collect();
        let (ends, _) = send(&rates, false, 400 << 20, &mut Guard::default());
        let sum: f64 = rates.iter().sum();
        let (end, ideal) = (ends.iter().copied().fold(0.0, f64::max), (400 << 20) as f64 / sum);
        // A unit of the fastest lane, and the slack; a lane that is broken off costs what it held once more.
        assert!(end <= ideal + 1.5, "{rates:?}: {end:.1} s, ideally {ideal:.1} s ({ends:.1?})");
    }
}

/// Lanes that never counted on their path left the slow one idle for up to a chunk, and ended up to 0.7 s late.
#[test]
fn lanes_on_a_slow_path_leave_it_idle_for_less_than_a_chunk() {
    for mib in (100..130u64).step_by(3) {
        let of_path = |(mbit, number): (f64, u8)| {
            let rate = mbit * MBIT / 4.0;
            [Made { path: path(number), ..Made::new(rate, false, 0.3 * rate) }; 4]
        };
        let lanes = [(100.0, 0), (25.0, 1)].into_iter().flat_map(of_path).collect();
        let (ends, _) = send_in_units(lanes, mib << 20, &mut Guard::default(), &|_| CHUNK);
        let (end, ideal) = (ends.iter().copied().fold(0.0, f64::max), (mib << 20) as f64 / (125.0 * MBIT));
        assert!(end <= ideal + 0.45, "{mib} MiB: {end:.2} s, ideally {ideal:.2} s ({ends:.1?})");
    }
}

/// One lane of 100 Mbit/s, and four that share a path of 20: each was heard, with next to nothing to do.
fn fast_and_four_slow(start: Instant, are_paths_told: bool, alone: f64) -> Guard {
    let mut guard = Guard::default();
    for seconds in [0, 1] {
        for (lane, mbit) in [100.0, 5.0, 5.0, 5.0, 5.0].into_iter().enumerate() {
            let rate = mbit * MBIT;
            let path = path(u8::from(lane > 0)).filter(|_| are_paths_told);
            let alone_bytes_per_second = (alone * rate) as u64;
            let told = Pulse { alone_bytes_per_second, path, ..pulse(seconds * rate as u64, 1) };
            guard.hear(lane as u32, told, start + Duration::from_secs(seconds));
        }
    }
    guard
}

#[test]
fn a_lane_takes_what_its_path_is_done_with_in_time_when_the_others_on_it_have_nothing_to_do() {
    let start = Instant::now();
    let now = start + Duration::from_secs(1);
    // All together need 2.5 s for it. A slow lane alone needs 3.4 s for a chunk, and with its path for itself 1.7 s.
    let left_bytes = Some((2.5 * 120.0 * MBIT) as u64);
    let mut guard = fast_and_four_slow(start, true, ALONE);
    for lane in [1, 2] {
        assert!(guard.may_take(lane, CHUNK, left_bytes, now), "{lane}");
        guard.took(lane, CHUNK);
    }
    assert!(!guard.may_take(3, CHUNK, left_bytes, now), "three chunks take the path 2.5 s");
    assert!(!fast_and_four_slow(start, false, ALONE).may_take(1, CHUNK, left_bytes, now), "no path");
    assert!(!fast_and_four_slow(start, true, 1.0).may_take(1, CHUNK, left_bytes, now), "windows too small for more");
}

#[test]
fn a_lane_is_not_broken_off_for_what_its_path_will_soon_be_done_with() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let straggler = |are_paths_told: bool| {
        let mut guard = fast_and_four_slow(start, are_paths_told, ALONE);
        guard.took(1, CHUNK);
        guard.straggler(0, at(1100))
    };
    assert_eq!(straggler(true), None);
    assert_eq!(straggler(false), Some(1));
}

#[test]
fn a_lane_that_is_silent_for_long_does_not_count_on_its_path() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let mut guard = fast_and_four_slow(start, true, 8.0);
    // The others on its path have nothing to do.
    for lane in 2..=4 {
        let idle = Pulse { alone_bytes_per_second: 5_000_000, path: path(1), ..pulse(625_000, 0) };
        guard.hear(lane, idle, at(1000));
    }
    guard.took(1, CHUNK / 8);
    assert_eq!(guard.straggler(0, at(2900)), None);
    assert_eq!(guard.straggler(0, at(3100)), Some(1));
}

#[test]
fn lanes_of_one_path_whose_windows_differ_end_together() {
    // As they were at 1 Gbit/s and 74 ms after the losses of the start.
    let rates = [438.0, 268.0, 93.0, 76.0, 57.0, 40.0].map(|rate| rate * MBIT);
    let (ends, _) = send(&rates, true, 400 << 20, &mut Guard::default());
    let end = ends.iter().copied().fold(0.0, f64::max);
    let ideal = (400 << 20) as f64 / rates.iter().sum::<f64>();
    assert!(end <= ideal + 0.4, "{end:.2} s, ideally {ideal:.2} s ({ends:.2?})");
}

#[test]
fn lanes_alike_end_together() {
    let (ends, _) = send(&[100.0 * MBIT; 4], false, 400 << 20, &mut Guard::default());
    assert!(tail(&ends) <= 1.0, "{ends:?}");
}

const LANES: usize = 6;

/// For how long one of six lanes of this rate over 74 ms is alone at the end, at most, whether what is sent makes whole rounds
/// of the longest unit or leaves any part of one.
fn alone_at_most(mbit: f64, longest: u64, unit_bytes: &dyn Fn(u64) -> u64) -> f64 {
    let rate = mbit * MBIT;
    let alone = |halves: u64| {
        let lanes = vec![Made::new(rate, true, rate * 0.074); LANES];
        let total = 3 * LANES as u64 * longest + halves * longest / 2;
        let (mut ends, _) = send_in_units(lanes, total, &mut Guard::default(), unit_bytes);
        ends.sort_unstable_by(f64::total_cmp);
        ends[LANES - 1] - ends[LANES - 2]
    };
    (0..2 * LANES as u64).map(alone).fold(0.0, f64::max)
}

/// Before and after decision 064, for runs of small files; for chunks, what they cost and what parts of them would.
#[test]
fn a_lane_is_alone_for_a_whole_chunk_and_for_a_fraction_of_a_run_of_small_files() {
    for mbit in [50.0, 100.0, 224.0, 500.0] {
        let needs = |bytes: u64| bytes as f64 / (mbit * MBIT);
        let [chunk, run] = [UNIT, CLAIM_BYTES].map(|bytes| alone_at_most(mbit, bytes, &|_| bytes));
        for (alone, bytes) in [(chunk, UNIT), (run, CLAIM_BYTES)] {
            assert!((alone - needs(bytes)).abs() <= 0.04, "{mbit} Mbit/s: {alone:.2} s for {bytes} bytes");
        }
        let shrinking = alone_at_most(mbit, CLAIM_BYTES, &|left| claim_bytes(left, LANES));
        assert!(shrinking <= 0.1, "{mbit} Mbit/s: {shrinking:.2} s, {run:.2} s before");
        let parts = alone_at_most(mbit, UNIT, &|left| (left / (2 * LANES as u64)).clamp(1 << 20, UNIT));
        assert!(parts <= 0.3, "{mbit} Mbit/s: {parts:.2} s, {chunk:.2} s in chunks");
    }
}

#[test]
fn what_is_told_of_the_end_is_what_the_lanes_did() {
    // As many units as make lanes end together, one more, and lanes that differ.
    for (rates, units) in [(&[100.0; 4][..], 48), (&[100.0; 4], 49), (&[438.0, 268.0, 93.0, 76.0, 57.0, 40.0], 50)] {
        let rates: Vec<_> = rates.iter().map(|rate| rate * MBIT).collect();
        let (mut ends, told) = send(&rates, true, units * UNIT, &mut Guard::default());
        ends.sort_unstable_by(f64::total_cmp);
        let (told, alone) = (told.unwrap(), ends[ends.len() - 1] - ends[ends.len() - 2]);
        assert!((told.alone.unwrap().as_secs_f64() - alone).abs() < 0.002, "{told:?}, {ends:?}");
    }
}

#[test]
fn the_end_begins_when_a_lane_has_nothing_to_do_and_nothing_is_left() {
    let start = Instant::now();
    let at = |ms: u64| start + Duration::from_millis(ms);
    let busy = pulse(0, 1);
    let heard = |last_ack_received_ms: u32| Pulse { last_ack_received_ms, ..pulse(UNIT, 0) };
    let mut ends = Ends::default();
    ends.asked(0, true, false, busy, at(0));
    ends.asked(1, true, false, busy, at(0));
    // What is left is for the other one.
    ends.asked(1, false, false, busy, at(900));
    ends.asked(0, true, true, busy, at(1000));
    ends.asked(1, false, true, heard(80), at(1200));
    // It has answered a probe since.
    ends.asked(1, false, true, heard(5), at(1700));
    // One that never sent anything says nothing of the end.
    ends.asked(2, false, true, heard(0), at(1800));
    ends.asked(0, false, true, busy, at(1850));
    let told = ends.tail(|lane| (lane == 0).then(|| heard(100)), at(2000));
    let ms = Duration::from_millis;
    assert_eq!(told, Some(Tail { whole: ms(900), alone: Some(ms(780)) }));
}

#[test]
fn nothing_is_told_of_an_end_at_which_a_lane_cannot_be_looked_at() {
    let now = Instant::now();
    let sent = |lanes: &[u32]| {
        let mut ends = Ends::default();
        lanes.iter().for_each(|lane| ends.asked(*lane, true, false, pulse(0, 1), now));
        ends
    };
    let first = |lane: u32| (lane == 0).then(|| pulse(0, 1));
    assert_eq!(sent(&[]).tail(first, now), None);
    assert_eq!(sent(&[0, 1]).tail(first, now), None);
    // Nobody had asked in vain, and no other one has sent anything.
    let alone = Some(Tail { whole: Duration::ZERO, alone: None });
    assert_eq!(sent(&[0]).tail(first, now), alone);
    let mut broken_off = sent(&[0, 1]);
    broken_off.forget(1);
    assert_eq!(broken_off.tail(first, now), alone);
}

#[test]
fn a_fast_lane_that_is_not_heard_any_more_keeps_nobody_waiting() {
    let mut guard = Guard::default();
    let start = Instant::now();
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    for (lane, rate) in [(0, 100.0 * MBIT), (1, 1.0 * MBIT)] {
        guard.hear(lane, pulse(0, 1), at(0.0));
        guard.hear(lane, pulse(rate as u64, 1), at(1.0));
    }
    guard.took(0, UNIT);
    assert!(!guard.may_take(1, UNIT, Some(UNIT), at(1.1)), "the fast lane is back soon");
    guard.hear(1, pulse((1.0 * MBIT) as u64, 0), at(5.0));
    assert!(guard.may_take(1, UNIT, Some(UNIT), at(5.0)));
}

#[test]
fn a_lane_that_holds_up_the_end_is_broken_off_for_one_that_is_far_quicker() {
    let mut guard = Guard::default();
    let start = Instant::now();
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    for (lane, rate) in [(0, 100.0 * MBIT), (1, 2.0 * MBIT), (2, 60.0 * MBIT)] {
        guard.hear(lane, pulse(0, 1), at(0.0));
        guard.hear(lane, pulse(rate as u64, 1), at(1.0));
        guard.took(lane, UNIT);
    }
    guard.hear(0, pulse(UNIT, 0), at(1.7));
    assert_eq!(guard.straggler(0, at(1.7)), Some(1));
    guard.forget(1);
    assert_eq!(guard.straggler(0, at(1.7)), None, "the other is nearly done");
    // It stands still.
    assert_eq!(guard.straggler(0, at(9.0)), Some(2));
}

proptest! {
    #[test]
    fn any_job_comes_to_its_end(rates in prop::collection::vec(1.0f64..1000.0, 1..6), units in 1u64..40, tells_rate: bool) {
        let rates: Vec<_> = rates.iter().map(|rate| rate * MBIT).collect();
        send(&rates, tells_rate, units * UNIT, &mut Guard::default());
    }

    #[test]
    fn whoever_asks_is_refused_only_for_one_that_is_done_sooner(
        told in prop::collection::vec((0u32..4, 0u64..1 << 30, 0u64..1 << 24, 0u64..3000), 1..40), left: u64,
    ) {
        let mut guard = Guard::default();
        let mut now = Instant::now();
        for (lane, acknowledged_bytes, backlog_bytes, later) in told {
            now += Duration::from_millis(later);
            guard.hear(lane, pulse(acknowledged_bytes, backlog_bytes), now);
            if !guard.may_take(lane, UNIT, Some(left), now) {
                let own = guard.lanes[&lane].seconds_until(UNIT, now);
                let is_sooner = |other: &Lane| other.seconds_until(UNIT, now) < own && other.is_alive(now);
                prop_assert!(guard.lanes.values().any(is_sooner));
            }
            let _ = guard.straggler(lane, now);
        }
    }
}
