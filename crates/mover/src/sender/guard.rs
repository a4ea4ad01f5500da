//! The end of a job whose lanes have different rates: the last units go to the lanes that finish them soonest, and what a slow
//! path holds up is taken from it.
//!
//! Two rules; the second is for jobs of several paths alone:
//! 1. **Tail guard.** A lane takes a unit only if it would be done with it when all lanes together are done with everything that is
//!    left, or if no other lane would be done with it sooner. (A chunk of 8 MiB takes 6.7 s at 10 Mbit/s. On one path windows
//!    differ tenfold after the losses of the start.) Of several paths, each has lanes that share it, and one that leaves
//!    a unit to others leaves them its part of the path: a lane may also take what its path would be done with in time.
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
use std::net::IpAddr;
use std::time::Duration;

/// Over how long a lane's rate is measured: less is at the mercy of what its socket takes at once.
const MEASURE: Duration = Duration::from_millis(500);
/// How much later than everything else a lane may be done with what it takes.
const SLACK_SECONDS: f64 = 0.05;
/// A lane that takes so long for a unit may count on its path, which has to be done with it in this part of the time
/// that everything else takes: a slow path that is idle for a while costs less than all others waiting for it.
const LONG_SECONDS: f64 = 1.0;
const PATH_PART: f64 = 0.9;
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
    /// What its windows let it carry when nobody else is on its path.
    alone_bytes_per_second: f64,
    /// Lanes with the same one share a path; `None` where that says nothing.
    path: Option<(IpAddr, IpAddr)>,
    /// In its socket, and claimed since.
    backlog_bytes: u64,
    taken_bytes: u64,
}

impl Lane {
    fn held_bytes(&self) -> u64 {
        self.backlog_bytes + self.taken_bytes
    }

    /// How long it needs for what it holds, if its rate is known.
    fn due_seconds(&self) -> Option<f64> {
        self.bytes_per_second.map(|rate| self.held_bytes() as f64 / rate.max(1.0))
    }

    /// How long it still needs, as far as can be told between two claims: one that is overdue, as long again.
    fn needs_seconds(&self, now: Instant) -> f64 {
        let (due, gone) = (self.due_seconds().unwrap_or(f64::INFINITY), self.unheard_seconds(now));
        if gone <= due { due - gone } else { gone }
    }

    /// When it would be done with so many bytes more.
    fn seconds_until(&self, more: u64, now: Instant) -> f64 {
        self.needs_seconds(now) + self.bytes_per_second.map_or(f64::INFINITY, |rate| more as f64 / rate.max(1.0))
    }

    /// What it still has to send, as far as can be told between two claims.
    fn rest_bytes(&self, now: Instant) -> f64 {
        match self.bytes_per_second {
            Some(rate) if self.held_bytes() > 0 => self.needs_seconds(now) * rate.max(1.0),
            _ => self.held_bytes() as f64,
        }
    }

    fn unheard_seconds(&self, now: Instant) -> f64 {
        now.duration_since(self.heard).as_secs_f64()
    }

    /// It does what it should, as far as can be told between two claims.
    fn is_alive(&self, now: Instant) -> bool {
        let due = self.due_seconds().unwrap_or(0.0) * SLOW_FACTOR;
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
            alone_bytes_per_second: 0.0,
            path: None,
            backlog_bytes: 0,
            taken_bytes: 0,
        });
        known.heard = now;
        (known.backlog_bytes, known.taken_bytes) = (pulse.backlog_bytes, 0);
        (known.alone_bytes_per_second, known.path) = (pulse.alone_bytes_per_second as f64, pulse.path);
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
        let Some(own) = mine.bytes_per_second else {
            // It may turn out to be the one that holds up the end, and be broken off, again and again.
            return drain_seconds > SLOW_SECONDS;
        };
        let seconds = |bytes: u64| bytes as f64 / own.max(1.0);
        if seconds(mine.held_bytes() + unit_bytes) <= drain_seconds + SLACK_SECONDS {
            return true;
        }
        let may_count_on_path = seconds(unit_bytes) >= LONG_SECONDS;
        may_count_on_path && self.seconds_by_path(mine, unit_bytes, now) <= drain_seconds * PATH_PART
    }

    /// How long a lane needs for what it holds and `more`, if those that share its path take nothing more: as long as
    /// the path needs for what all of them hold, or as its windows let it when it is alone. Without end where nothing
    /// is known of that.
    fn seconds_by_path(&self, lane: &Lane, more: u64, now: Instant) -> f64 {
        if lane.path.is_none() || lane.bytes_per_second.is_none() {
            return f64::INFINITY;
        }
        let sharing = || self.lanes.values().filter(|other| other.path == lane.path);
        let rate: f64 = sharing().filter_map(|other| other.bytes_per_second).sum();
        let held_bytes: f64 = sharing().map(|other| other.rest_bytes(now)).sum();
        let alone = (lane.rest_bytes(now) + more as f64) / lane.alone_bytes_per_second.max(1.0);
        alone.max((held_bytes + more as f64) / rate.max(1.0))
    }

    /// A lane that holds up the end, for one that has nothing to do and would be far quicker.
    pub fn straggler(&self, idle: u32, now: Instant) -> Option<u32> {
        let own = self.lanes.get(&idle)?.bytes_per_second?;
        // One that is not alive has had its path for long enough.
        let by_path = |lane: &Lane| match lane.is_alive(now) {
            true => self.seconds_by_path(lane, 0, now),
            false => f64::INFINITY,
        };
        let needs = |lane: &Lane| lane.needs_seconds(now).min(by_path(lane));
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
