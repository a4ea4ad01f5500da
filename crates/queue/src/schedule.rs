//! Schedules: when a job begins again and again, and which of those moments had their turn.
//!
//! A slot is a moment of a schedule. Invariants:
//! - A slot has its turn at most once, whatever the clock does: slots are remembered as ranges, and one that lies in a range has
//!   had its turn, also when the clock comes to it again.
//! - Of several slots that passed since the queue last looked, the latest has its turn; the others had none, and get theirs if the
//!   clock goes back to before them.
//! - While the job of the last turn is open, a slot passes without another.

use crate::calendar::Calendar;
use model::{JobId, mutant};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Ranges of slots that are remembered. Of more, the two oldest become one, with what is between them.
pub(crate) const RANGES_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    pub name: Arc<str>,
    /// For the calendar.
    pub times: Arc<str>,
    /// Slots up to this moment are none of its own: it was made then, or resumed.
    pub since: i64,
    pub is_paused: bool,
    /// First and last slot of each range of slots that had their turn, in order.
    pub dealt: Vec<(i64, i64)>,
    /// The job of its last turn.
    pub job: Option<JobId>,
}

#[derive(Default)]
pub(crate) struct Schedules {
    /// With the moment at which the calendar has its next slot.
    pub known: BTreeMap<Arc<str>, (Schedule, i64)>,
    looked: i64,
}

impl Schedules {
    /// The slots whose turn it is.
    pub fn due(&mut self, calendar: &dyn Calendar, unix_ms: i64) -> Vec<(Arc<str>, i64)> {
        let is_set_back = unix_ms < self.looked;
        self.looked = unix_ms;
        let mut due = Vec::new();
        for (schedule, look_at) in self.known.values_mut() {
            if schedule.is_paused || !is_set_back && unix_ms < *look_at {
                continue;
            }
            let slots = calendar.slots(&schedule.times, unix_ms);
            *look_at = slots.next.unwrap_or(i64::MAX);
            let is_new = |slot: &i64| *slot > schedule.since && !schedule.has_dealt(*slot);
            if let Some(slot) = slots.last.filter(is_new) {
                let before = calendar.slots(&schedule.times, slot.saturating_sub(1)).last;
                schedule.deal(slot, before, slots.next);
                due.push((schedule.name.clone(), slot));
            }
        }
        due
    }
}

impl Schedule {
    fn has_dealt(&self, slot: i64) -> bool {
        if mutant::is_on("schedule-forgets-slots") {
            return self.dealt.last().is_some_and(|(_, last)| *last == slot);
        }
        self.dealt.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Remembers a slot, next to those before and after it.
    fn deal(&mut self, slot: i64, before: Option<i64>, after: Option<i64>) {
        let at = self.dealt.partition_point(|(first, _)| *first < slot);
        self.dealt.insert(at, (slot, slot));
        if after.is_some() && self.dealt.get(at + 1).map(|(first, _)| *first) == after {
            self.dealt[at].1 = self.dealt.remove(at + 1).1;
        }
        if at > 0 && Some(self.dealt[at - 1].1) == before {
            self.dealt[at - 1].1 = self.dealt.remove(at).1;
        }
        if self.dealt.len() > RANGES_MAX {
            self.dealt[0].1 = self.dealt.remove(1).1;
        }
    }
}
