//! Drives the guard with lanes of made rates through a whole job, in virtual time.

use super::*;
use proptest::prelude::*;

const UNIT: u64 = 8 << 20;
const SOCKET: u64 = 1 << 20;
const MBIT: f64 = 125_000.0;
const STEP: Duration = Duration::from_millis(10);

/// A lane of a made rate: it claims when its socket has room.
#[derive(Clone, Copy)]
struct Made {
    rate: f64,
    /// Acknowledged, and claimed but not acknowledged.
    done: f64,
    holds: f64,
    ended_at: f64,
}

/// Sends `left` bytes over lanes of these rates; returns when each was done with its last unit. What a lane holds that is broken off
/// is sent again.
fn send(rates: &[f64], mut left: u64, guard: &mut Guard) -> Vec<f64> {
    let start = Instant::now();
    let mut lanes: Vec<_> =
        rates.iter().map(|rate| Made { rate: *rate, done: 0.0, holds: 0.0, ended_at: 0.0 }).collect();
    let mut now = start;
    while left > 0 || lanes.iter().any(|lane| lane.holds > 0.0) {
        now += STEP;
        let seconds = now.duration_since(start).as_secs_f64();
        assert!(seconds < 3600.0, "it does not end");
        // Claimed, and not in a socket.
        let pending: u64 = lanes.iter().map(|lane| (lane.holds as u64).saturating_sub(SOCKET)).sum();
        let mut broken = None;
        for (number, lane) in lanes.iter_mut().enumerate() {
            let moved = (lane.rate * STEP.as_secs_f64()).min(lane.holds);
            (lane.done, lane.holds) = (lane.done + moved, lane.holds - moved);
            if moved > 0.0 {
                lane.ended_at = seconds;
            }
            if left == 0 && lane.holds == 0.0 {
                let pulse = Pulse { acknowledged_bytes: lane.done as u64, backlog_bytes: 0 };
                guard.hear(number as u32, pulse, now);
                broken = guard.straggler(number as u32, now);
            }
            // The unit before is in the socket altogether: the lane is back.
            if lane.holds <= SOCKET as f64 && left > 0 {
                let pulse = Pulse { acknowledged_bytes: lane.done as u64, backlog_bytes: lane.holds as u64 };
                guard.hear(number as u32, pulse, now);
                let unit = UNIT.min(left);
                let unsent = left + pending;
                if guard.may_take(number as u32, unit, Some(unsent), now) {
                    guard.took(number as u32, unit);
                    lane.holds += unit as f64;
                    left -= unit;
                }
            }
        }
        if let Some(slow) = broken {
            guard.forget(slow);
            let slow = &mut lanes[slow as usize];
            left += slow.holds as u64;
            slow.holds = 0.0;
        }
    }
    lanes.iter().map(|lane| lane.ended_at).collect()
}

/// From when the first lane had nothing more to do to the end.
fn tail(ends: &[f64]) -> f64 {
    ends.iter().copied().fold(0.0, f64::max) - ends.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn the_last_units_go_to_the_fast_lane() {
    for rates in [&[100.0, 25.0][..], &[100.0, 10.0], &[250.0, 250.0, 25.0, 5.0]] {
        let rates: Vec<_> = rates.iter().map(|rate| rate * MBIT).collect();
        let ends = send(&rates, 400 << 20, &mut Guard::default());
        let sum: f64 = rates.iter().sum();
        let (end, ideal) = (ends.iter().copied().fold(0.0, f64::max), (400 << 20) as f64 / sum);
        // A unit of the fastest lane, and the slack; a lane that is broken off costs what it held once more.
        assert!(end <= ideal + 1.5, "{rates:?}: {end:.1} s, ideally {ideal:.1} s ({ends:.1?})");
    }
}

#[test]
fn lanes_alike_end_together() {
    let ends = send(&[100.0 * MBIT; 4], 400 << 20, &mut Guard::default());
    assert!(tail(&ends) <= 1.0, "{ends:?}");
}

#[test]
fn a_fast_lane_that_is_not_heard_any_more_keeps_nobody_waiting() {
    let mut guard = Guard::default();
    let start = Instant::now();
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    for (lane, rate) in [(0, 100.0 * MBIT), (1, 1.0 * MBIT)] {
        guard.hear(lane, Pulse { acknowledged_bytes: 0, backlog_bytes: 1 }, at(0.0));
        guard.hear(lane, Pulse { acknowledged_bytes: rate as u64, backlog_bytes: 1 }, at(1.0));
    }
    guard.took(0, UNIT);
    assert!(!guard.may_take(1, UNIT, Some(UNIT), at(1.1)), "the fast lane is back soon");
    guard.hear(1, Pulse { acknowledged_bytes: (1.0 * MBIT) as u64, backlog_bytes: 0 }, at(5.0));
    assert!(guard.may_take(1, UNIT, Some(UNIT), at(5.0)));
}

#[test]
fn a_lane_that_holds_up_the_end_is_broken_off_for_one_that_is_far_quicker() {
    let mut guard = Guard::default();
    let start = Instant::now();
    let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
    for (lane, rate) in [(0, 100.0 * MBIT), (1, 2.0 * MBIT), (2, 60.0 * MBIT)] {
        guard.hear(lane, Pulse { acknowledged_bytes: 0, backlog_bytes: 1 }, at(0.0));
        guard.hear(lane, Pulse { acknowledged_bytes: rate as u64, backlog_bytes: 1 }, at(1.0));
        guard.took(lane, UNIT);
    }
    guard.hear(0, Pulse { acknowledged_bytes: UNIT, backlog_bytes: 0 }, at(1.7));
    assert_eq!(guard.straggler(0, at(1.7)), Some(1));
    guard.forget(1);
    assert_eq!(guard.straggler(0, at(1.7)), None, "the other is nearly done");
    // It stands still.
    assert_eq!(guard.straggler(0, at(9.0)), Some(2));
}

proptest! {
    #[test]
    fn any_job_comes_to_its_end(rates in prop::collection::vec(1.0f64..1000.0, 1..6), units in 1u64..40) {
        let rates: Vec<_> = rates.iter().map(|rate| rate * MBIT).collect();
        send(&rates, units * UNIT, &mut Guard::default());
    }

    #[test]
    fn whoever_asks_is_refused_only_for_a_faster_one(
        told in prop::collection::vec((0u32..4, 0u64..1 << 30, 0u64..1 << 24, 0u64..3000), 1..40), left: u64,
    ) {
        let mut guard = Guard::default();
        let mut now = Instant::now();
        for (lane, acknowledged_bytes, backlog_bytes, later) in told {
            now += Duration::from_millis(later);
            guard.hear(lane, Pulse { acknowledged_bytes, backlog_bytes }, now);
            if !guard.may_take(lane, UNIT, Some(left), now) {
                let own = guard.lanes[&lane].bytes_per_second;
                prop_assert!(guard.lanes.values().any(|other| other.bytes_per_second > own && other.is_alive(now)));
            }
            let _ = guard.straggler(lane, now);
        }
    }
}
