//! What people do with jobs: pause, resume, cancel, retry and forget them.

use crate::calendar::Now;
use crate::job::Work;
use crate::queue::{Action, Queue};
use crate::slots::Health;
use crate::status::{Goal, Reason, Status, Verb};
use crate::submit::Refused;
use model::{Exit, JobId};

const CANCELLED: &str = "cancelled; what was verified is kept";
const CANCELLED_HINT: &str = "`thalweg job retry` goes on with it";
/// How often a warrant is taken back of an order that does not stop.
const REVOKE_MS: u64 = 10_000;

impl Queue {
    /// Steers an open job, or one that was `restore`d after its end.
    pub fn steer(&mut self, now: Now, id: JobId, verb: Verb) -> Result<(), Refused> {
        let job = self.get(id).ok_or(Refused::NoSuchJob)?;
        let (status, has_order) = (job.status, job.role.is_some());
        let refused = |help| Err(Refused::WrongState { status, help });
        match verb {
            Verb::Cancel if status.is_end() => {}
            Verb::Cancel | Verb::Pause if status == Status::Stopping => return self.stop_otherwise(now, id, verb),
            Verb::Cancel if has_order => self.stop(now, id, Goal::Cancel),
            Verb::Cancel => self.end(now, id, Status::Cancelled, Exit::Cancelled as i32, CANCELLED, CANCELLED_HINT),
            Verb::Pause if status.is_end() => return refused("it cannot be paused"),
            Verb::Pause if status == Status::Paused => {}
            Verb::Pause if has_order => self.stop(now, id, Goal::Pause),
            Verb::Pause => self.set(now, id, Status::Paused, Reason::None, ""),
            Verb::Resume if status.is_end() => return refused("`thalweg job retry` begins it anew"),
            Verb::Resume | Verb::Retry if status == Status::Stopping => return self.stop_otherwise(now, id, verb),
            Verb::Resume if status == Status::Paused => self.place(now, id),
            Verb::Retry if status == Status::Paused => return refused("`thalweg job resume` lets it go on"),
            Verb::Retry if status == Status::Running => return refused("it runs"),
            Verb::Retry
                if status.is_end() && self.jobs.of_nature(&job.facts.nature).is_some_and(|other| other != id) =>
            {
                return refused("the same copy was submitted again since, and is open");
            }
            Verb::Retry if status.is_end() => self.anew(now, id),
            Verb::Resume | Verb::Retry if status == Status::Waiting => self.hurry(now, id),
            Verb::Resume | Verb::Retry => {}
            Verb::Remove if status.is_end() => {}
            Verb::Remove => return refused("cancel it first"),
        }
        Ok(())
    }

    /// stopping -> stopping: what was to follow the stop is something else.
    fn stop_otherwise(&mut self, now: Now, id: JobId, verb: Verb) -> Result<(), Refused> {
        let goal = self.get(id).and_then(|job| job.goal);
        let refused = |help| Err(Refused::WrongState { status: Status::Stopping, help });
        match (goal, verb) {
            (Some(Goal::Cancel), Verb::Cancel) | (Some(Goal::Pause), Verb::Pause) => {}
            (Some(Goal::Cancel | Goal::Deadline), Verb::Pause | Verb::Resume) => {
                return refused("it ends; `thalweg job retry` then begins it anew");
            }
            (_, Verb::Cancel) => self.note_goal(now, id, Goal::Cancel),
            (_, Verb::Pause) => self.note_goal(now, id, Goal::Pause),
            (_, Verb::Resume) => self.note_goal(now, id, Goal::Again),
            _ => return refused("wait until it has stopped"),
        }
        Ok(())
    }

    /// waiting -> queued; where an executor has it, it is tried there at once.
    fn hurry(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.job.failures = 0;
        let (attempt, endpoint) = (entry.job.attempt, entry.job.executor().cloned());
        match endpoint {
            Some(endpoint) => self.actions.push(Action::Renew { id, attempt, endpoint }),
            // What another job is in the way of, or comes after, is not a matter of time.
            None if matches!(entry.job.reason, Reason::Destination) => {}
            None => self.place(now, id),
        }
    }

    /// any end -> queued, waiting. It still comes after those of its jobs that are open.
    fn anew(&mut self, now: Now, id: JobId) {
        let Some(job) = self.get(id) else { return };
        let is_open = |other: &JobId| self.get(*other).is_some_and(|other| !other.status.is_end());
        let after: Vec<JobId> = job.after.iter().copied().filter(is_open).collect();
        for other in &after {
            let dependents = self.dependents.entry(*other).or_default();
            if !dependents.contains(&id) {
                dependents.push(id);
            }
        }
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let job = &mut entry.job;
        (job.failures, job.passes, job.is_switched) = (0, 0, false);
        (job.code, job.work, job.goal) = (None, Work::default(), None);
        (job.after, job.has_begun) = (after, true);
        self.jobs.own_nature(&id);
        self.place(now, id);
    }

    /// running, waiting -> stopping
    pub(crate) fn stop(&mut self, now: Now, id: JobId, goal: Goal) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        let slots = entry.slots;
        entry.job.goal = Some(goal);
        self.set(now, id, Status::Stopping, Reason::None, goal.word());
        self.hold(id, slots);
        self.say_stop(id);
        self.revoke(now, id);
    }

    /// What ends for good is not left to its executor alone, which may not be reached. The other endpoint is told until the order has
    /// stopped: it may be away, or not take it for the moment.
    pub(crate) fn revoke(&mut self, now: Now, id: JobId) {
        let Some(job) = self.get(id).filter(|job| job.is_ending()) else { return };
        let peer = job.peer().filter(|_| !model::mutant::is_on("queue-cancels-without-revoking"));
        let Some((attempt, endpoint)) = peer.map(|peer| (job.attempt, peer.clone())) else { return };
        if self.health(&endpoint).0 == Health::Up {
            self.actions.push(Action::Revoke { id, attempt, endpoint });
        }
        let at = now.ms + REVOKE_MS;
        self.timers.insert((at, id));
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.timer = Some(at);
        }
    }

    pub(crate) fn say_stop(&mut self, id: JobId) {
        let Some(job) = self.get(id) else { return };
        let (attempt, endpoint) = (job.attempt, job.executor().cloned());
        if let Some(endpoint) = endpoint {
            self.actions.push(Action::Stop { id, attempt, endpoint });
        }
    }

    /// stopping -> stopping
    pub(crate) fn note_goal(&mut self, now: Now, id: JobId, goal: Goal) {
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.goal = Some(goal);
        }
        self.set(now, id, Status::Stopping, Reason::None, goal.word());
        self.revoke(now, id);
    }

    /// stopping -> what it was stopped for: its executor says that it does nothing more.
    pub(crate) fn stopped(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        match entry.job.goal.take().unwrap_or(Goal::Again) {
            Goal::Pause => self.set(now, id, Status::Paused, Reason::None, ""),
            Goal::Cancel => self.end(now, id, Status::Cancelled, Exit::Cancelled as i32, CANCELLED, CANCELLED_HINT),
            Goal::Deadline => self.late(now, id),
            Goal::Again | Goal::Yield => self.place(now, id),
            Goal::Switch => {
                entry.job.is_switched = true;
                self.place(now, id);
            }
        }
    }
}
