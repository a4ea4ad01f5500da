//! What time does: waits end, windows open and close, deadlines pass, absent endpoints are looked at.

use crate::calendar::Now;
use crate::fault::CREDENTIALS_MS;
use crate::job::Job;
use crate::queue::{Action, Queue};
use crate::slots::Health;
use crate::status::{Goal, Reason, Status};
use model::{Exit, JobId};

/// A retry that its pair has no budget for is looked at again after this.
const BUDGET_MS: u64 = 60_000;
/// A look at an endpoint that nothing is heard of, not even that it failed, is made again after this.
const UNHEARD_MS: u64 = 120_000;

impl Queue {
    /// Lets time pass, and begins what may begin.
    pub fn step(&mut self, now: Now) {
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now.ms) {
            self.timers.remove(&(at, id));
            self.waited(now, id);
        }
        let due: Vec<JobId> = self.dates.range(..=(now.unix_ms, JobId([0xff; 16]))).map(|(_, id)| *id).collect();
        for id in due {
            self.reached_date(now, id);
        }
        for endpoint in &mut self.endpoints {
            if endpoint.jobs > 0 && endpoint.health != Health::Up && endpoint.probe_at.is_some_and(|at| at <= now.ms) {
                endpoint.probe_at = Some(now.ms + UNHEARD_MS);
                self.actions.push(Action::Probe { endpoint: endpoint.name.clone() });
            }
        }
        self.forget_shares(now);
        self.choose_all(now);
    }

    /// When `step` has something to do although nothing happens, in milliseconds of the monotonic clock. The calendar is not in it.
    pub fn next_ms(&self) -> Option<u64> {
        let probes = self.endpoints.iter().filter(|e| e.jobs > 0 && e.health != Health::Up).filter_map(|e| e.probe_at);
        self.timers.first().map(|(at, _)| *at).into_iter().chain(probes).min()
    }

    fn waited(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get_mut(&id) else { return };
        match entry.job.reason {
            _ if entry.job.status == Status::Stopping => self.revoke(now, id),
            Reason::Credentials => {
                let text = "nobody gave new credentials within 14 days";
                self.end(now, id, Status::Failed, Exit::Authentication as i32, text, "");
            }
            Reason::Retry => {
                let pair = entry.pair;
                let text = entry.job.text.clone();
                if self.pairs[pair].may_retry(now.ms) {
                    self.pairs[pair].retries.add(1.0, now.ms);
                    self.place(now, id);
                } else {
                    self.wait(now, id, Reason::Retry, &text, Some(BUDGET_MS));
                }
            }
            _ => self.place(now, id),
        }
    }

    fn reached_date(&mut self, now: Now, id: JobId) {
        let Some(job) = self.get(id).cloned() else { return };
        let is_past = |deadline: Option<i64>| deadline.is_some_and(|at| at <= now.unix_ms);
        let is_late = is_past(job.facts.finish_by) || !job.has_begun && is_past(job.facts.start_by);
        match (is_late, job.status) {
            (true, Status::Stopping) => self.note_goal(now, id, Goal::Deadline),
            (true, _) if job.role.is_some() => self.stop(now, id, Goal::Deadline),
            (true, _) => self.late(now, id),
            // It yields until the next window.
            (false, Status::Running) if !self.is_open(&job, now) => self.stop(now, id, Goal::Again),
            (false, Status::Queued | Status::Waiting) if job.role.is_none() => self.place(now, id),
            (false, _) => self.set_date(now, id),
        }
    }

    pub(crate) fn late(&mut self, now: Now, id: JobId) {
        let has_begun = self.get(id).is_some_and(|job| job.has_begun);
        let text = match has_begun {
            true => "its deadline (finish_by) has passed; what was verified is kept",
            false => "its deadline has passed before it could begin",
        };
        self.end(
            now,
            id,
            Status::Failed,
            Exit::DurationLimit as i32,
            text,
            "retrying would miss the deadline again: submit the job anew with a later `finish_by`",
        );
        self.mark(id, Reason::Deadline);
    }

    pub(crate) fn is_open(&self, job: &Job, now: Now) -> bool {
        let windows = job.facts.windows.as_ref();
        windows.is_none_or(|windows| self.calendar.opening(windows, now.unix_ms).is_open)
    }

    /// A job without an order: it is queued, or waits for a window or another job.
    pub(crate) fn place(&mut self, now: Now, id: JobId) {
        let Some(entry) = self.jobs.get(&id) else { return };
        let job = entry.job.clone();
        let is_past = |deadline: Option<i64>| deadline.is_some_and(|at| at <= now.unix_ms);
        if is_past(job.facts.finish_by) || !job.has_begun && is_past(job.facts.start_by) {
            self.late(now, id);
        } else if let Some(first) = job.after.first() {
            let more = if job.after.len() > 1 { format!(" and {} more", job.after.len() - 1) } else { String::new() };
            self.wait(now, id, Reason::Dependency, &format!("comes after job {first}{more}"), None);
        } else if self.is_open(&job, now) {
            self.set(now, id, Status::Queued, Reason::None, "");
        } else {
            let windows = job.facts.windows.as_deref().unwrap_or_default();
            let opens = self.calendar.opening(windows, now.unix_ms).until;
            self.wait(now, id, Reason::Window, "outside its windows", None);
            if let Some(entry) = self.jobs.get_mut(&id) {
                entry.job.until = Some(opens);
            }
            self.note_until(id);
        }
    }

    pub(crate) fn wait_for_credentials(&mut self, now: Now, id: JobId, text: &str) {
        self.wait(now, id, Reason::Credentials, text, Some(CREDENTIALS_MS));
    }
}
