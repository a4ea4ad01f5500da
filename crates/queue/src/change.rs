//! An open job is given another class, priority or rate.

use crate::calendar::Now;
use crate::job::{Facts, Job};
use crate::queue::{Action, Queue};
use crate::status::Status;
use crate::submit::Refused;
use model::JobId;
use std::cmp::Reverse;

impl Queue {
    /// The job keeps its state; its place among others is that of its new facts. Owner, project and endpoints stay as they were.
    /// An executor that has it is told of the rate.
    pub fn change(&mut self, now: Now, id: JobId, mut facts: Facts) -> Result<(), Refused> {
        let job = self.get(id).ok_or(Refused::NoSuchJob)?;
        let (status, attempt, executor) = (job.status, job.attempt, job.executor().cloned());
        if status.is_end() {
            return Err(Refused::WrongState { status, help: "only an open job can be changed" });
        }
        if self.jobs.of_nature(&facts.nature).is_some_and(|other| other != id) {
            return Err(Refused::WrongState { status, help: "a job that is so already is open" });
        }
        self.commons.share(&mut facts.common);
        let Some(entry) = self.jobs.get_mut(&id) else { return Err(Refused::NoSuchJob) };
        let (share, pair, seq, slots) = (entry.share, entry.pair, entry.job.seq, entry.slots);
        let before = (entry.job.facts.class, Reverse(entry.job.facts.priority));
        self.hold(id, 0);
        self.jobs.leave_nature(&id);
        let Some(entry) = self.jobs.get_mut(&id) else { return Err(Refused::NoSuchJob) };
        let after = (facts.class, Reverse(facts.priority));
        if before.0 != after.0 {
            self.made_room.remove(&id);
        }
        entry.job.facts = facts;
        self.jobs.own_nature(&id);
        self.hold(id, slots);
        if status == Status::Queued {
            self.leave_lane((before.0, share, pair), (before.1, seq, id));
            self.lanes.entry((after.0, share, pair)).or_default().insert((after.1, seq, id));
        }
        self.note_change(id);
        self.set_date(now, id);
        if executor.is_none() {
            // Others may be before it now, or it before others.
            self.wake_behind(now, id, None);
        }
        if self.get(id).is_some_and(Job::waits_for_destination) {
            self.place(now, id);
        }
        self.actions.extend(executor.map(|endpoint| Action::SetRate { id, attempt, endpoint }));
        Ok(())
    }
}
