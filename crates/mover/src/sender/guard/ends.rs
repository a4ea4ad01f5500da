//! When each lane of a job had nothing more to send: how long the end took, and for how long one lane was alone at it.
//!
//! The kernel tells how long ago it heard from the other end of a stream. Where nothing is under way, that is when the
//! last byte was acknowledged, whenever it is asked: so nothing is sampled while a job runs. What a slow receiver says
//! of free room counts as heard too: that makes it late by the time between two looks of a lane at most
//! (`CLAIM_PATIENCE`).
//!
//! Invariants: nothing is decided by it; a lane that is forgotten has sent nothing; time comes in as a value.
//!
//! Not here: which lane sends what (`guard`, `split`).

use crate::stream::Pulse;
use model::progress::Tail;
use os::time::Instant;
use std::collections::HashMap;
use std::time::Duration;

#[derive(Default)]
pub struct Ends {
    lanes: HashMap<u32, Lane>,
    /// When a lane first had nothing to do and nothing was left to claim.
    dry: Option<Instant>,
}

#[derive(Default)]
struct Lane {
    has_sent: bool,
    waits: bool,
    /// When all that it sent was acknowledged, once that was seen: what comes later answers probes of the kernel.
    drained: Option<Instant>,
}

impl Ends {
    /// A lane has claimed a unit, or found none. `is_all_claimed` says that nothing is left for any lane.
    pub fn asked(&mut self, lane: u32, has_work: bool, is_all_claimed: bool, pulse: Pulse, now: Instant) {
        let lane = self.lanes.entry(lane).or_default();
        lane.has_sent |= has_work;
        lane.waits = !has_work;
        lane.drained = if has_work { None } else { lane.drained.or_else(|| drained(pulse, now)) };
        if is_all_claimed && self.dry.is_none() && self.lanes.values().any(|lane| lane.waits) {
            self.dry = Some(now);
        }
    }

    /// A lane is not to claim anything for now: it waits for no work.
    pub fn rests(&mut self, lane: u32, pulse: impl FnOnce() -> Option<Pulse>, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        lane.waits = false;
        if lane.has_sent && lane.drained.is_none() {
            lane.drained = pulse().and_then(|pulse| drained(pulse, now));
        }
    }

    pub fn forget(&mut self, lane: u32) {
        self.lanes.remove(&lane);
    }

    /// Everything is settled: what is not acknowledged yet counts as acknowledged now. Nothing where no lane sent any,
    /// or one of those that did cannot be looked at.
    pub fn tail(self, gauge: impl Fn(u32) -> Option<Pulse>, now: Instant) -> Option<Tail> {
        let mut ends = Vec::new();
        for (number, lane) in self.lanes.iter().filter(|(_, lane)| lane.has_sent) {
            ends.push(match lane.drained {
                Some(at) => at,
                None => drained(gauge(*number)?, now).unwrap_or(now),
            });
        }
        ends.sort_unstable();
        let last = ends.pop()?;
        let alone = ends.pop().map(|before| last.duration_since(before));
        Some(Tail { whole: last.duration_since(self.dry.unwrap_or(now)), alone })
    }
}

/// When the last byte was acknowledged, if all are.
fn drained(pulse: Pulse, now: Instant) -> Option<Instant> {
    let ago = Duration::from_millis(pulse.last_ack_received_ms.into());
    (pulse.backlog_bytes == 0).then(|| now.checked_sub(ago).unwrap_or(now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_that_rests_does_not_begin_the_end_and_is_done_with_its_last_byte() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let pulse =
            |backlog_bytes, last_ack_received_ms| Pulse { backlog_bytes, last_ack_received_ms, ..Pulse::default() };
        let mut ends = Ends::default();
        ends.asked(0, true, false, pulse(1, 0), at(0));
        ends.asked(1, true, false, pulse(1, 0), at(0));
        // It has waited before.
        ends.asked(1, false, false, pulse(1, 0), at(100));
        ends.rests(1, || Some(pulse(1, 0)), at(200));
        ends.rests(1, || Some(pulse(0, 80)), at(500));
        // It has answered a probe since.
        ends.rests(1, || Some(pulse(0, 5)), at(1000));
        ends.asked(0, true, true, pulse(1, 0), at(1100));
        ends.asked(0, false, true, pulse(1, 0), at(1500));
        let told = ends.tail(|lane| (lane == 0).then(|| pulse(0, 100)), at(2000));
        let ms = Duration::from_millis;
        assert_eq!(told, Some(Tail { whole: ms(400), alone: Some(ms(1480)) }));
    }
}
