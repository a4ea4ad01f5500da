//! Low jobs make room: where a job of the class high waits long for a slot, the newest low one that holds it stops.
//!
//! Whoever yields loses what was in flight: it is queued again, keeps what was verified, and no attempt without progress is counted.
//!
//! Invariants: one yields at a time where somebody waits, and what it leaves goes to nobody of a lower class before the one that
//! waited. Not here: rates (`daemon::governor`), which give way sooner and cost nothing.

use crate::book::Entry;
use crate::calendar::Now;
use crate::queue::{Lane, Queue};
use crate::status::{Goal, Status};
use model::{Class, JobId};

/// So long a job of the class high waits for a slot before somebody yields.
pub(crate) const PATIENCE_MS: u64 = 10_000;

impl Queue {
    pub(crate) fn make_room(&mut self, now: Now) {
        if model::mutant::is_on("queue-never-yields") {
            return;
        }
        let heads = self.lanes.range((Class::High, 0, 0)..).filter_map(|(_, places)| places.first());
        let waits: Vec<JobId> = heads.map(|(.., id)| *id).filter(|id| self.is_pressed(*id, now)).collect();
        for id in waits {
            if let Some(other) = self.one_to_yield(id) {
                self.made_room.insert(id);
                self.stop(now, other, Goal::Yield);
            }
        }
    }

    /// Only a slot is missing, and has been for too long.
    fn is_pressed(&self, id: JobId, now: Now) -> bool {
        let is_late = |entry: &Entry| entry.since + PATIENCE_MS <= now.ms;
        self.jobs.get(&id).is_some_and(|entry| is_late(entry) && self.lacks_a_slot(entry))
    }

    fn lacks_a_slot(&self, entry: &Entry) -> bool {
        let slots = self.slots_of(entry.share, entry.pair, &entry.job);
        self.may_run(entry.pair, &entry.job) && !self.has_room(entry.pair, entry.job.facts.class, slots)
    }

    /// The low job that began last, of those that hold what another one needs; none while one of them is stopping already.
    fn one_to_yield(&self, id: JobId) -> Option<JobId> {
        let entry = self.jobs.get(&id)?;
        let slots = self.slots_of(entry.share, entry.pair, &entry.job);
        let full = self.full_endpoint(entry.pair, Class::High, slots);
        let holds = |other: &&Entry| {
            let pair = &self.pairs[other.pair];
            let is_there = |name: &str| [pair.from, pair.to].iter().any(|end| *self.endpoints[*end].name == *name);
            other.slots > 0 && full.map_or(other.pair == entry.pair, is_there)
        };
        let held = || self.at_work.iter().filter_map(|other| self.jobs.get(other)).filter(holds);
        if held().any(|other| other.job.status == Status::Stopping) {
            return None;
        }
        let low = held().filter(|other| other.job.facts.class == Class::Low && other.job.status == Status::Running);
        low.max_by_key(|other| (other.since, other.job.seq)).map(|other| other.job.id)
    }

    /// Whether what is free there was left for somebody of the class high.
    pub(crate) fn is_kept_for_another(&self, (class, _, pair): Lane) -> bool {
        let ends = |pair: usize| [self.pairs[pair].from, self.pairs[pair].to];
        let is_for = |id: &JobId| {
            let Some(entry) = self.jobs.get(id) else { return false };
            self.may_run(entry.pair, &entry.job) && ends(entry.pair).iter().any(|end| ends(pair).contains(end))
        };
        class < Class::High && self.made_room.iter().any(is_for)
    }
}
