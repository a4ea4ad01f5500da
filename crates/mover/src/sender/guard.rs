//! The end of a job whose lanes have different rates: the last units go to the lanes that finish them soonest, and what a slow
//! path holds up is taken from it.
//!
//! Two rules; the second is for jobs of several paths alone:
//! 1. **Tail guard.** A lane takes a unit only if it would be done with it when all lanes together are done with everything that is
//!    left, or if no other lane would be done with it sooner. (A chunk of 8 MiB takes 6.7 s at 10 Mbit/s. On one path windows
//!    differ tenfold after the losses of the start.)
//! 2. **Slow give-up.** When nothing is left to claim, a lane that still needs `SLOW` and four times as long for what it holds as
//!    the lane that asks would need is broken off; what it had in flight is sent again.
//!
//! Invariants: of those who wait for a unit, one gets it, so that a job always goes on; time comes in as a value.
//!
//! Not here: breaking off and sending again (`sender`, `split`), and how long the end took (`ends`).

mod ends;

use self::ends::Ends;
use crate::stream::Pulse;
use model::mutant;
use os::time::Instant;
use std::collections::HashMap;
use std::time::Duration;

/// Over how long a lane's rate is measured: less is at the mercy of what its socket takes at once.
const MEASURE: Duration = Duration::from_millis(500);
/// How much later than everything else a lane may be done with what it takes.
const SLACK_SECONDS: f64 = 0.05;
/// A lane that was not heard for this long, and for four times as long as its work should take, is not waited for.
const SILENCE_SECONDS: f64 = 2.0;
const SLOW_SECONDS: f64 = 2.0;
const SLOW_FACTOR: f64 = 4.0;

#[derive(Default)]
pub struct Guard {
    lanes: HashMap<u32, Lane>,
    /// What is told of the end, near lanes included: nothing here follows it.
    pub ends: Ends,
}

struct Lane {
    heard: Instant,
    /// Where the measurement began.
    from: (Instant, u64),
    bytes_per_second: Option<f64>,
    /// In its socket, and claimed since.
    backlog_bytes: u64,
    taken_bytes: u64,
}

impl Lane {
    fn held_bytes(&self) -> u64 {
        self.backlog_bytes + self.taken_bytes
    }

    /// How long it needs for what it holds and `more`, if its rate is known.
    fn seconds_for(&self, more: u64) -> Option<f64> {
        self.bytes_per_second.map(|rate| (self.held_bytes() + more) as f64 / rate.max(1.0))
    }

    /// How long it still needs, as far as can be told between two claims: one that is overdue, as long again.
    fn needs_seconds(&self, now: Instant) -> f64 {
        let (due, gone) = (self.seconds_for(0).unwrap_or(f64::INFINITY), self.unheard_seconds(now));
        if gone <= due { due - gone } else { gone }
    }

    /// When it would be done with so many bytes more.
    fn seconds_until(&self, more: u64, now: Instant) -> f64 {
        self.needs_seconds(now) + self.bytes_per_second.map_or(f64::INFINITY, |rate| more as f64 / rate.max(1.0))
    }

    fn unheard_seconds(&self, now: Instant) -> f64 {
        now.duration_since(self.heard).as_secs_f64()
    }

    /// It does what it should, as far as can be told between two claims.
    fn is_alive(&self, now: Instant) -> bool {
        let due = self.seconds_for(0).unwrap_or(0.0) * SLOW_FACTOR;
        self.unheard_seconds(now) <= due.max(SILENCE_SECONDS)
    }
}

impl Guard {
    /// A lane tells how it stands before it claims.
    pub fn hear(&mut self, lane: u32, pulse: Pulse, now: Instant) {
        let known = self.lanes.entry(lane).or_insert(Lane {
            heard: now,
            from: (now, pulse.acknowledged_bytes),
            bytes_per_second: None,
            backlog_bytes: 0,
            taken_bytes: 0,
        });
        known.heard = now;
        (known.backlog_bytes, known.taken_bytes) = (pulse.backlog_bytes, 0);
        let (since, acknowledged) = known.from;
        let time = now.duration_since(since);
        let bytes = pulse.acknowledged_bytes.saturating_sub(acknowledged);
        if pulse.window_bytes_per_second > 0 {
            known.bytes_per_second = Some(pulse.window_bytes_per_second as f64);
        } else if pulse.backlog_bytes == 0 {
            // Idle for part of the time: that says nothing of the path.
            known.from = (now, pulse.acknowledged_bytes);
        } else if time >= MEASURE {
            let rate = bytes as f64 / time.as_secs_f64();
            known.bytes_per_second = Some(known.bytes_per_second.map_or(rate, |before| (before + rate) / 2.0));
            known.from = (now, pulse.acknowledged_bytes);
        }
    }

    /// It took a unit of so many bytes.
    pub fn took(&mut self, lane: u32, bytes: u64) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.taken_bytes += bytes;
        }
    }

    pub fn forget(&mut self, lane: u32) {
        self.lanes.remove(&lane);
        self.ends.forget(lane);
    }

    /// Whether a lane may take a unit of so many bytes. `left_bytes` have not been sent, what lanes have claimed of them included;
    /// as long as they are not known, it may.
    pub fn may_take(&self, lane: u32, unit_bytes: u64, left_bytes: Option<u64>, now: Instant) -> bool {
        let (Some(mine), Some(left_bytes)) = (self.lanes.get(&lane), left_bytes) else { return true };
        let others = || self.lanes.iter().filter(|(number, other)| **number != lane && other.is_alive(now));
        let until = mine.seconds_until(unit_bytes, now);
        let is_soonest = others().all(|(_, other)| until <= other.seconds_until(unit_bytes, now));
        if is_soonest || mutant::is_on("no-tail-guard") {
            return true;
        }
        let known = || others().map(|(_, other)| other).chain([mine]);
        let rate: f64 = known().filter_map(|lane| lane.bytes_per_second).sum();
        let backlog: u64 = known().map(|lane| lane.backlog_bytes).sum();
        let drain_seconds = left_bytes.saturating_add(backlog) as f64 / rate.max(1.0);
        match mine.seconds_for(unit_bytes) {
            Some(seconds) => seconds <= drain_seconds + SLACK_SECONDS,
            // It may turn out to be the one that holds up the end, and be broken off, again and again.
            None => drain_seconds > SLOW_SECONDS,
        }
    }

    /// A lane that holds up the end, for one that has nothing to do and would be far quicker.
    pub fn straggler(&self, idle: u32, now: Instant) -> Option<u32> {
        let own = self.lanes.get(&idle)?.bytes_per_second?;
        let needs = |lane: &Lane| lane.needs_seconds(now);
        let is_slow = |lane: &Lane| {
            let needs = needs(lane);
            let held = lane.held_bytes();
            held > 0 && needs > SLOW_SECONDS && needs > SLOW_FACTOR * held as f64 / own.max(1.0)
        };
        let slow = self.lanes.iter().filter(|(number, lane)| **number != idle && is_slow(lane));
        slow.max_by(|(_, a), (_, b)| needs(a).total_cmp(&needs(b))).map(|(number, _)| *number)
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
