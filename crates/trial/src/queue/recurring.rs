//! Schedules among the faults: what is written down of them, and what is held against each turn of a slot.

use crate::random::Random;
use model::JobId;
use queue::{Calendar, Now, Opening, Queue, Schedule, Slots};
use std::collections::{BTreeMap, BTreeSet};

const PERIOD_MS: i64 = 3_600_000;

/// Windows are always open; a schedule has a slot each hour, so many minutes after it.
pub struct Hours;

fn last_slot(times: &str, unix_ms: i64) -> i64 {
    let offset = times.parse::<i64>().unwrap_or(0) * 60_000;
    (unix_ms - offset).div_euclid(PERIOD_MS) * PERIOD_MS + offset
}

impl Calendar for Hours {
    fn opening(&self, _windows: &str, _unix_ms: i64) -> Opening {
        Opening { is_open: true, until: i64::MAX }
    }

    fn slots(&self, times: &str, unix_ms: i64) -> Slots {
        let last = last_slot(times, unix_ms);
        Slots { last: Some(last), next: Some(last + PERIOD_MS) }
    }
}

/// A slot that had its turn.
struct Turn {
    schedule: Schedule,
    slot: i64,
    job: Option<JobId>,
}

#[derive(Default)]
pub struct Recurring {
    disk: BTreeMap<String, Schedule>,
    /// Slots that had their turn, and the last job of each schedule.
    turns: BTreeSet<(String, i64)>,
    jobs: BTreeMap<String, JobId>,
    /// Not written down yet.
    pending: Vec<Turn>,
}

impl Recurring {
    pub fn new(random: &mut Random, now: Now) -> Recurring {
        let mut recurring = Recurring::default();
        for number in 0..random.below(3) {
            let (name, times) = (format!("s{number}"), (17 * number).to_string());
            let (since, job) = (now.unix_ms, None);
            let schedule = Schedule {
                name: name.as_str().into(),
                times: times.as_str().into(),
                since,
                is_paused: false,
                dealt: Vec::new(),
                job,
            };
            recurring.disk.insert(name, schedule);
        }
        recurring
    }

    /// As a hub that starts reads them back. What was not written down is gone.
    pub fn restore(&mut self, queue: &mut Queue) {
        self.pending.clear();
        self.disk.values().for_each(|schedule| queue.put_schedule(schedule.clone()));
    }

    /// Somebody pauses one, or has it go on.
    pub fn toggle(&mut self, random: &mut Random, queue: &mut Queue, now: Now) {
        let Some(name) = self.disk.keys().nth(random.below(3) as usize) else { return };
        let Some(known) = queue.schedule(name) else { return };
        let since = if known.is_paused { now.unix_ms } else { known.since };
        let schedule = Schedule { is_paused: !known.is_paused, since, ..known.clone() };
        queue.put_schedule(schedule.clone());
        self.disk.insert(name.clone(), schedule);
    }

    /// Lets those have their turn whose time it is. `begin` makes a job, where there is room for one; `is_open` asks the records.
    pub fn fire(
        &mut self,
        queue: &mut Queue,
        now: Now,
        is_open: &dyn Fn(JobId) -> bool,
        begin: &mut dyn FnMut(&mut Queue) -> Option<JobId>,
    ) -> Result<(), String> {
        for firing in queue.fire(now) {
            let name = firing.schedule.to_string();
            let job = if firing.is_overlap { None } else { begin(queue) };
            if let Some(job) = job {
                if self.jobs.get(&name).is_some_and(|before| is_open(*before)) {
                    return Err(format!("{name} begins job {} while the one before is open", job.0[0]));
                }
                queue.fired(&name, job);
            }
            let Some(schedule) = queue.schedule(&name).cloned() else { continue };
            if schedule.is_paused || firing.slot > now.unix_ms || firing.slot != last_slot(&schedule.times, now.unix_ms)
            {
                return Err(format!("{name} has its turn for {} at {}", firing.slot, now.unix_ms));
            }
            self.pending.push(Turn { schedule, slot: firing.slot, job });
        }
        Ok(())
    }

    /// What had its turn is written down with the jobs that began.
    pub fn commit(&mut self) -> Result<(), String> {
        for Turn { schedule, slot, job } in self.pending.drain(..) {
            let name = schedule.name.to_string();
            if !self.turns.insert((name.clone(), slot)) {
                return Err(format!("{name} has two turns for {slot}"));
            }
            job.map(|job| self.jobs.insert(name.clone(), job));
            self.disk.insert(name, schedule);
        }
        Ok(())
    }

    /// After a commit: no slot is overdue.
    pub fn check(&self, now: Now) -> Result<(), String> {
        let overdue = self.disk.values().find(|schedule| {
            let slot = last_slot(&schedule.times, now.unix_ms);
            !schedule.is_paused && slot > schedule.since && !self.turns.contains(&(schedule.name.to_string(), slot))
        });
        overdue.map_or(Ok(()), |late| Err(format!("{} is overdue at {}", late.name, now.unix_ms)))
    }

    pub fn is_empty(&self) -> bool {
        self.disk.is_empty()
    }
}
