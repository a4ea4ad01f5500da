//! Jobs that come in: new ones, those that are there already, and those that were there before a restart.

use crate::calendar::Now;
use crate::fault::CREDENTIALS_MS;
use crate::heard::weight;
use crate::job::Job;
use crate::queue::Queue;
use crate::share::left_of;
use crate::status::{Reason, Status, may_follow};
use model::JobId;
use model::order::Role;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    New,
    /// An open job of the same nature.
    Known(JobId),
}

/// Why a job is not taken, or not steered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The queue, or the owner's part of it, holds as many open jobs as it may.
    Full {
        is_owner: bool,
    },
    NoSuchJob,
    /// With what would help.
    WrongState {
        status: Status,
        help: &'static str,
    },
}

impl Queue {
    /// (absent) -> queued, waiting, failed
    pub fn submit(&mut self, now: Now, job: Job) -> Result<Taken, Refused> {
        // One that has ended since the last `take` is not open any more.
        let is_open = |queue: &Queue, id: &JobId| queue.get(*id).is_some_and(|job| !job.status.is_end());
        if let Some(known) = self.jobs.of_nature(&job.facts.nature).filter(|known| is_open(self, known)) {
            return Ok(Taken::Known(known));
        }
        if self.jobs.len() >= self.limits.jobs_max {
            return Err(Refused::Full { is_owner: false });
        }
        if self.count_of(&job.facts.owner) >= self.limits.of_owner_max {
            return Err(Refused::Full { is_owner: true });
        }
        let (id, mut job) = (job.id, job);
        job.after.retain(|other| self.get(*other).is_some_and(|job| job.status != Status::Succeeded));
        let failed = job.after.iter().copied().find(|other| !is_open(self, other));
        self.enter(job);
        match failed {
            Some(other) => self.fail_behind(now, id, other),
            None => self.place(now, id),
        }
        Ok(Taken::New)
    }

    /// Charges an owner for a job that took `in_ms`, and ended or was put aside `ago_ms` ago, before this queue began.
    pub fn remember(&mut self, now: Now, job: &Job, in_ms: u64, ago_ms: u64) {
        let facts = &job.facts;
        if facts.is_rehearsal || !job.has_begun {
            return;
        }
        let charge = left_of(job.work.charge(), in_ms, ago_ms);
        let share = self.share(&facts.owner, &facts.project);
        self.shares[share].charge.add(charge, now.ms);
        self.classes.entry(facts.class).or_default().add(charge, now.ms);
    }

    /// A job as it was when the queue ended, from the oldest on.
    ///
    /// What an executor has is asked for before anything else is done with it.
    pub fn restore(&mut self, now: Now, job: Job) {
        let (id, status, has_order) = (job.id, job.status, job.role.is_some());
        let (reason, as_written, changes) = (job.reason, job.clone(), self.changes.len());
        self.enter(job);
        if status.is_end() {
            return;
        }
        // One that it comes after may have ended as it was restored: its deadline had passed.
        let is_over = |other: &JobId| self.get(*other).is_some_and(|job| job.status.is_end());
        let failed = self.get(id).and_then(|job| job.after.iter().copied().find(is_over));
        if has_order {
            self.at_work.insert(id);
            let slots = self.jobs.get(&id).map_or(0, |entry| self.slots_of(entry.share, entry.pair, &entry.job));
            match status {
                Status::Running | Status::Stopping => self.hold(id, slots),
                // `heard` does that only when its executor says something new, which may take long.
                Status::Waiting => self.park(id, weight(reason)),
                _ => {}
            }
            self.charge(now, id);
            self.set_date(now, id);
            self.revoke(now, id);
        } else if let Some(other) = failed {
            self.fail_behind(now, id, other);
        } else if status == Status::Paused {
            self.set_date(now, id);
        } else if status == Status::Waiting && reason == Reason::Credentials {
            // As long as it had left: a whole wait more at each restart could be for ever.
            let (text, until) = (as_written.text.clone(), as_written.until);
            let left = until.map_or(CREDENTIALS_MS, |at| at.saturating_sub(now.unix_ms).max(0) as u64);
            self.wait(now, id, Reason::Credentials, &text, Some(left.min(CREDENTIALS_MS)));
        } else {
            self.place(now, id);
        }
        // What stands as it was written down is no change.
        if self.changes[changes..] == [as_written] {
            self.changes.truncate(changes);
        }
        self.share_state(id);
    }

    /// An endpoint may have orders that the records do not know of, which are older than what happened.
    pub fn distrust(&mut self, endpoint: &str) {
        let number = self.endpoint(&endpoint.into());
        self.endpoints[number].is_unheard = true;
    }

    /// An executor has an order of a later attempt than the one that is known: it has the job.
    pub fn adopt(&mut self, now: Now, id: JobId, attempt: u32, role: Role) {
        let Some(status) = self.get(id).filter(|job| attempt > job.attempt).map(|job| job.status) else { return };
        if status.is_end() {
            return;
        }
        self.gone(now, id);
        if !may_follow(status, Status::Running) {
            self.set(now, id, Status::Queued, Reason::None, "");
        }
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let job = &mut entry.job;
        (job.attempt, job.role, job.goal, job.has_begun) = (attempt, Some(role), None, true);
        let (share, pair, job) = (entry.share, entry.pair, entry.job.clone());
        self.at_work.insert(id);
        self.set(now, id, Status::Running, Reason::None, "");
        let slots = self.slots_of(share, pair, &job);
        self.hold(id, slots);
    }

    /// Which of the jobs that others come after are not open any more: to be told with `after_ended`, once all are restored.
    pub fn missing(&self) -> Vec<JobId> {
        self.dependents.keys().copied().filter(|id| !self.jobs.has(id)).collect()
    }
}
