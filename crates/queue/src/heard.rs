//! What executors say of the orders they were given, and what follows.

use crate::calendar::Now;
use crate::fault::{FAILURES_MAX, Fault, PASS_MS, PASSES_MAX, PROBE_MAX_MS, SPACE_MAX, SPACE_MS, pause_ms};
use crate::job::Work;
use crate::queue::{Action, Queue};
use crate::slots::PARKED_MAX;
use crate::status::{Goal, Reason, Status};
use model::order::{self, Role};
use model::{Exit, JobId};

const RETRY_HINT: &str = "retry that job, then this one";
/// What a job waits for is told in other words at most this often.
const TEXT_MS: u64 = 1000;
/// A job's `failures` counts tries below this, and looks for space in multiples of it.
const LOOK: u32 = FAILURES_MAX + 1;

/// The word of an executor about one attempt of one job.
#[derive(Clone, PartialEq, Debug)]
pub enum Answer {
    /// The order was not taken.
    Refused {
        code: i32,
        text: String,
        hint: String,
    },
    /// The endpoint carries out no orders at all.
    TakesNone {
        text: String,
    },
    News(News),
    Ended(Ended),
    /// There is no such order, and none is on its way.
    Unknown,
}

#[derive(Clone, PartialEq, Debug)]
pub struct News {
    pub status: Status,
    pub reason: order::Reason,
    pub text: String,
    /// Milliseconds since 1970.
    pub until: Option<i64>,
    pub work: Work,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Ended {
    pub code: i32,
    pub text: String,
    pub hint: String,
    pub work: Work,
}

impl Queue {
    /// The executor's word wins, if it is about the attempt that it was last given.
    pub fn heard(&mut self, now: Now, id: JobId, attempt: u32, answer: Answer) {
        let is_current = |job: &crate::Job| job.attempt == attempt || model::mutant::is_on("queue-any-attempt");
        let Some(job) = self.get(id).filter(|job| job.role.is_some() && is_current(job)) else { return };
        let is_stopping = job.status == Status::Stopping;
        match answer {
            Answer::News(news) => self.goes_on(now, id, &news),
            Answer::Ended(ended) => self.ended(now, id, attempt, &ended),
            Answer::Unknown => {
                self.gone(now, id);
                if is_stopping { self.stopped(now, id) } else { self.forgotten(now, id) }
            }
            Answer::TakesNone { text } => {
                if let Some(role) = self.get(id).and_then(|job| job.role) {
                    self.takes_none(now, id, role, &text);
                }
            }
            Answer::Refused { code, text, hint } => {
                self.gone(now, id);
                if is_stopping { self.stopped(now, id) } else { self.refused(now, id, code, &text, &hint) }
            }
        }
    }

    /// The endpoint answers, and all that it has of ours was `heard`.
    pub fn reached(&mut self, endpoint: &str) {
        let number = self.endpoint(&endpoint.into());
        self.endpoints[number].takes_orders = true;
        self.endpoints[number].found();
    }

    /// The endpoint answers, and carries out no orders.
    pub fn takes_no_orders(&mut self, endpoint: &str) {
        let number = self.endpoint(&endpoint.into());
        self.endpoints[number].takes_orders = false;
        self.endpoints[number].found();
    }

    /// The endpoint does not answer. What it was given goes on there.
    pub fn unreached(&mut self, now: Now, endpoint: &str, text: &str) {
        let number = self.endpoint(&endpoint.into());
        self.endpoints[number].lost(now.ms, text.to_owned());
        if !model::mutant::is_on("queue-dispatches-again-on-silence") {
            return;
        }
        for id in self.at_work.clone() {
            if self.get(id).is_some_and(|job| job.executor().is_some_and(|at| **at == *endpoint)) {
                self.gone(now, id);
                self.place(now, id);
            }
        }
    }

    fn goes_on(&mut self, now: Now, id: JobId, news: &News) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.job.work = news.work;
        let is_first_progress = news.work.files_done.max(news.work.bytes_done) > 0 && entry.job.failures > 0;
        if is_first_progress {
            entry.job.failures = 0;
        }
        let (status, reason, role) = (entry.job.status, entry.job.reason, entry.job.role);
        let is_told = entry.job.text == news.text || now.ms < entry.since + TEXT_MS;
        self.charge(now, id);
        self.note_size(id);
        if is_first_progress {
            // Otherwise tries would be counted on from those before it after a restart.
            self.note_change(id);
        }
        if status == Status::Stopping {
            // The word to stop may have overtaken the order, or been lost.
            if news.status != Status::Stopping {
                self.say_stop(id);
            }
            return;
        }
        match news.status {
            Status::Waiting => {
                let told = Reason::from(news.reason);
                let may_switch = told == Reason::Unreachable && role == Some(Role::Sends) && self.may_fetch(id);
                if may_switch {
                    self.stop(now, id, Goal::Switch);
                } else if status != Status::Waiting || reason != told || !is_told {
                    self.set(now, id, Status::Waiting, told, &news.text);
                    self.park(id, weight(told));
                    if let Some(entry) = self.jobs.get_mut(&id) {
                        entry.job.until = news.until;
                        entry.since = now.ms;
                    }
                    self.note_until(id);
                }
            }
            // Somebody with the same key did that; here it is a pause like any other.
            Status::Paused => self.stop(now, id, Goal::Pause),
            _ if status == Status::Waiting => {
                self.set(now, id, Status::Running, Reason::None, "");
                self.hold_own(id);
            }
            _ => {
                let held = self.jobs.get(&id).map_or(0, |entry| entry.slots);
                if held > 0 {
                    self.hold_own(id);
                }
            }
        }
    }

    /// The other end may try it: nothing was listed, and it has not had its turn.
    fn may_fetch(&self, id: JobId) -> bool {
        let Some(entry) = self.jobs.get(&id) else { return false };
        let to = &self.endpoints[self.pairs[entry.pair].to];
        !entry.job.is_switched && !entry.job.facts.is_standing && entry.job.work.files_listed == 0 && to.is_usable()
    }

    fn hold_own(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let slots = self.slots_of(entry.share, entry.pair, &entry.job);
        self.hold(id, slots);
    }

    /// What is known of a job's size is guessed of its owner's next one.
    fn note_size(&mut self, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else { return };
        if let Some(is_small) = entry.job.work.is_small().filter(|_| !entry.job.facts.is_standing) {
            self.pairs[entry.pair].guesses.insert(entry.share, is_small);
        }
    }

    fn ended(&mut self, now: Now, id: JobId, attempt: u32, ended: &Ended) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        entry.job.work = ended.work;
        let (goal, passes) = (entry.job.goal, entry.job.passes);
        let endpoint = entry.job.executor().cloned();
        self.charge(now, id);
        self.note_size(id);
        self.gone(now, id);
        if let Some(endpoint) = endpoint {
            self.actions.push(Action::Forget { id, attempt, endpoint });
        }
        let Ended { code, text, hint, .. } = ended;
        match Exit::from_number(*code) {
            Exit::Done => self.end(now, id, Status::Succeeded, *code, "", ""),
            Exit::Cancelled if goal.is_some() => self.stopped(now, id),
            Exit::Cancelled => self.end(now, id, Status::Cancelled, *code, text, hint),
            // What was to follow its stop has another end to follow now.
            Exit::Partial | Exit::Changed
                if passes < PASSES_MAX && !matches!(goal, Some(Goal::Cancel | Goal::Deadline)) =>
            {
                if let Some(entry) = self.jobs.get_mut(&id) {
                    entry.job.passes += 1;
                    entry.job.goal = None;
                }
                match goal {
                    // That pass is made when somebody resumes it.
                    Some(Goal::Pause) => self.set(now, id, Status::Paused, Reason::None, ""),
                    _ => {
                        let text = format!("{text}; one more pass over what failed");
                        self.wait(now, id, Reason::Retry, &text, Some(PASS_MS));
                    }
                }
            }
            Exit::Partial | Exit::Changed => self.end(now, id, Status::Partial, *code, text, hint),
            _ => self.end(now, id, Status::Failed, *code, text, hint),
        }
    }

    /// running -> queued, or waiting where that goes on
    fn forgotten(&mut self, now: Now, id: JobId) {
        match self.count_failure(id) {
            1 => self.place(now, id),
            _ => self.try_again(now, id, Exit::Temporary as i32, "the endpoint does not know the order any more", ""),
        }
    }

    fn takes_none(&mut self, now: Now, id: JobId, role: Role, text: &str) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let Some(job) = self.get(id).cloned() else { return };
        let pair = &self.pairs[entry.pair];
        let (own, other) = match role {
            Role::Sends => (pair.from, pair.to),
            Role::Fetches => (pair.to, pair.from),
        };
        self.endpoints[own].takes_orders = false;
        self.gone(now, id);
        if job.status == Status::Stopping {
            self.stopped(now, id);
        } else if self.endpoints[other].takes_orders && own != other {
            // That one may be away: it is waited for.
            self.place(now, id);
        } else {
            let text = format!("neither {} nor {} carries out jobs: {text}", job.facts.from, job.facts.to);
            self.end(
                now,
                id,
                Status::Failed,
                Exit::Refused as i32,
                &text,
                "one of the two must run without --no-orders",
            );
        }
    }

    fn refused(&mut self, now: Now, id: JobId, code: i32, text: &str, hint: &str) {
        match Fault::of(code) {
            Fault::Transient => {
                self.count_failure(id);
                self.try_again(now, id, code, text, hint);
            }
            Fault::Endpoint => self.wait(now, id, Reason::Endpoint, text, Some(PROBE_MAX_MS)),
            Fault::Space if self.may_look_for_space(id) => self.wait(now, id, Reason::Space, text, Some(SPACE_MS)),
            Fault::Credentials => self.wait_for_credentials(now, id, text),
            _ => self.end(now, id, Status::Failed, code, text, hint),
        }
    }

    /// Counts a try, up to the last one, and says how many there were.
    fn count_failure(&mut self, id: JobId) -> u32 {
        let Some(entry) = self.jobs.get_mut(&id) else { return 0 };
        entry.job.failures += u32::from(entry.job.failures % LOOK < FAILURES_MAX);
        entry.job.failures % LOOK
    }

    /// Counts a look for space, which uses up no try; whether there was one left.
    fn may_look_for_space(&mut self, id: JobId) -> bool {
        let Some(entry) = self.jobs.get_mut(&id) else { return false };
        let may = entry.job.failures / LOOK < SPACE_MAX;
        entry.job.failures += if may { LOOK } else { 0 };
        may
    }

    fn try_again(&mut self, now: Now, id: JobId, code: i32, text: &str, hint: &str) {
        let Some(failures) = self.get(id).map(|job| job.failures % LOOK) else { return };
        if failures >= FAILURES_MAX {
            return self.end(now, id, Status::Failed, code, &format!("{text}; tried {failures} times"), hint);
        }
        // Spread by what is known of the job alone: the same events lead to the same actions.
        let spread = id.0[15].wrapping_add((failures as u8).wrapping_mul(37));
        self.wait(now, id, Reason::Retry, text, Some(pause_ms(failures, spread)));
    }

    /// No executor has it any more.
    pub(crate) fn gone(&mut self, now: Now, id: JobId) {
        self.hold(id, 0);
        self.park(id, 0);
        self.at_work.remove(&id);
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.role = None;
        }
        self.wake_behind(now, id, None);
    }

    /// any open state -> an end
    pub(crate) fn end(&mut self, now: Now, id: JobId, status: Status, code: i32, text: &str, hint: &str) {
        self.end_alone(now, id, status, code, text, hint);
        self.after_ended(now, id, status == Status::Succeeded);
    }

    /// Leaves those that come after it as they are.
    fn end_alone(&mut self, now: Now, id: JobId, status: Status, code: i32, text: &str, hint: &str) {
        debug_assert!(self.get(id).is_none_or(|job| job.role.is_none()), "an executor still has it");
        if let Some(entry) = self.jobs.get_mut(&id) {
            entry.job.goal = None;
            entry.job.code = Some(code);
            entry.job.hint = hint.to_owned();
        }
        self.set(now, id, status, Reason::None, text);
    }

    /// Those that come after a job go on, or fail with it.
    pub fn after_ended(&mut self, now: Now, id: JobId, has_succeeded: bool) {
        if model::mutant::is_on("queue-forgets-followers") {
            return;
        }
        // A list, as a chain has more links than a thread's stack has room for.
        let mut ended = vec![id];
        while let Some(id) = ended.pop() {
            for other in self.dependents.remove(&id).unwrap_or_default() {
                let Some(entry) = self.jobs.get_mut(&other) else { continue };
                let (status, reason) = (entry.job.status, entry.job.reason);
                // A job that was retried after it ended no longer waits for this one.
                if status.is_end() || !entry.job.after.contains(&id) {
                    continue;
                }
                if !has_succeeded {
                    self.fail_behind(now, other, id);
                    ended.push(other);
                    continue;
                }
                entry.job.after.retain(|one| *one != id);
                if status == Status::Waiting && reason == Reason::Dependency {
                    self.place(now, other);
                }
            }
        }
    }

    /// A job that it comes after did not succeed. Those that come after it are left as they are.
    pub(crate) fn fail_behind(&mut self, now: Now, id: JobId, other: JobId) {
        let text = format!("job {other}, which it comes after, did not succeed");
        self.end_alone(now, id, Status::Failed, Exit::Failed as i32, &text, RETRY_HINT);
        self.mark(id, Reason::Dependency);
    }
}

/// How much of a pair a waiting order stands for.
pub(crate) fn weight(reason: Reason) -> u32 {
    match reason {
        Reason::Unreachable | Reason::Credentials => PARKED_MAX,
        _ => 1,
    }
}
