//! Tokens and rules, as administrators give and withdraw them, and what becomes of jobs that nothing allows any more.

use crate::Result;
use crate::access::{Access, Principal, RuleView, Scopes};
use crate::audit::Deed;
use crate::hub::{Hub, only_admin};
use crate::job_file::{JobFile, Wish};
use crate::owner::Owner;
use crate::reader::{Filter, PAGE_MAX};
use model::JobId;
use queue::{Now, Verb};
use std::time::Duration;
use tracing::error;

impl Hub {
    /// Tokens and rules.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }

    /// Cancels what rules do not allow any more of somebody's open jobs, those that run included.
    pub fn review(&self, owner: &str) -> Result<usize> {
        if self.inner.access.is_admin(owner) {
            return Ok(0);
        }
        let filter = Filter { owner: Some(owner.to_owned()), is_open: true, ..Filter::default() };
        let (mut cancelled, mut after) = (0, None);
        loop {
            let page = self.inner.reader.page(&filter, after, PAGE_MAX)?;
            for job in &page.jobs {
                let allowed = JobFile::from_value(job.job.clone())
                    .and_then(|file| self.inner.access.check(owner, &file.known_wish(owner)?));
                if let (Err(_), Some(id)) = (allowed, JobId::from_hex(&job.id)) {
                    // It may have ended meanwhile.
                    let target = id.to_string();
                    let cancel = move |hub: &mut Owner, now| hub.steer(now, id, Verb::Cancel, None);
                    cancelled += usize::from(self.carry_out("hub", "cancel", move |_| target, cancel).is_ok());
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(cancelled);
            }
        }
    }

    pub fn add_token(&self, who: &Principal, name: &str, scopes: Scopes, lifetime: Duration) -> Result<String> {
        let token = only_admin(who).and_then(|()| self.inner.access.new_token(name, scopes, lifetime));
        self.record(who, "token new", name, token)
    }

    /// Withdraws a token with its rules; what its jobs may not do then ends.
    pub fn remove_token(&self, who: &Principal, name: &str) -> Result<usize> {
        let removed = only_admin(who).and_then(|()| self.inner.access.remove_token(name));
        let affected = self.record(who, "token rm", name, removed)?;
        self.review_all(&affected)
    }

    fn review_all(&self, affected: &[String]) -> Result<usize> {
        affected.iter().try_fold(0, |cancelled, owner| Ok(cancelled + self.review(owner)?))
    }

    /// What somebody who is no administrator adds is a share.
    pub fn add_rule(&self, who: &Principal, text: &str) -> Result<RuleView> {
        let added = self.inner.access.add_rule(who, text);
        self.record(who, "rule add", text, added)
    }

    /// Withdraws a rule; what jobs of whom it was for may not do then ends.
    pub fn remove_rule(&self, who: &Principal, id: u64) -> Result<usize> {
        let removed = self.inner.access.remove_rule(who, id);
        let affected = self.record(who, "rule rm", &id.to_string(), removed)?;
        self.review_all(&affected)
    }
}

impl Owner {
    /// Takes away the rules whose time is over, and cancels what nothing allows any more.
    pub(crate) fn lapse_rules(&mut self, now: Now) {
        let affected = match self.access.lapse() {
            Ok(affected) => affected,
            Err(e) => {
                return error!(error = %e.message, "rules that are over cannot be taken away; they allow nothing all the same");
            }
        };
        for owner in &affected {
            let of_owner: Vec<JobId> =
                self.queue.jobs().filter(|job| *job.facts.owner == **owner).map(|job| job.id).collect();
            for id in of_owner {
                // What cannot be read is not known to be allowed.
                let is_allowed = match self.wish_of(id) {
                    Ok(wish) => wish.is_none_or(|wish| self.access.check_owner(&wish).is_ok()),
                    Err(_) => false,
                };
                if !is_allowed {
                    self.cancel_withdrawn(now, id);
                }
            }
        }
    }

    /// Cancels a job that nothing allows any more.
    pub(crate) fn cancel_withdrawn(&mut self, now: Now, id: JobId) {
        let outcome = self.steer(now, id, Verb::Cancel, None);
        self.group.audit.push(Deed::new("hub", "cancel", &id.to_string(), &outcome));
    }

    /// What a job does, whatever its state.
    pub(crate) fn wish_of(&self, id: JobId) -> Result<Option<Wish>> {
        match self.group.new.iter().find(|new| new.id == id) {
            Some(new) => Ok(Some(new.wish.clone())),
            None => Ok(self.store.job(id)?.map(|stored| stored.wish)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Channels;
    use crate::audit::Wanted;
    use crate::events::rfc3339;
    use crate::intake::Submission;
    use crate::scene::{anna, jobs, start, state, until};
    use crate::unix_ms;
    use model::Exit;
    use queue::Status;
    use rusqlite::Connection;

    const BODY: &str = r#"{"source":"a:x","destination":"b:y"}"#;
    const RULES: [&str; 2] = ["allow token:ci read a:", "allow token:ci write b:"];

    /// Somebody with a token, whom rules allow that job.
    fn ci(hub: &Hub) -> Principal {
        let scopes = Scopes::parse("read,submit,steer").unwrap();
        let secret = hub.add_token(&anna(), "ci", scopes, Duration::from_secs(3600)).unwrap();
        RULES.iter().for_each(|rule| _ = hub.add_rule(&anna(), rule).unwrap());
        hub.access().recognise(&secret).unwrap()
    }

    #[test]
    fn what_a_rule_allowed_that_was_withdrawn_before_a_crash_is_cancelled_at_the_next_start() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let ci = ci(&hub);
        hub.submit(&anna(), JobFile::from_json(BODY).unwrap(), None).unwrap();
        let job = hub.submit(&ci, JobFile::from_json(BODY).unwrap(), None).unwrap().id.to_string();
        hub.stop();
        drop(hub);
        let status = |hub: &Hub| jobs(hub).into_iter().map(|job| (job.id, job.status)).collect::<Vec<_>>();
        let hub = start(dir.path(), Channels::default());
        assert!(status(&hub).iter().all(|(_, status)| status == "queued"));
        hub.stop();
        drop(hub);
        Access::open(dir.path()).unwrap().remove_rule(&anna(), 1).unwrap();
        let hub = start(dir.path(), Channels::default());
        until(|| status(&hub)[0] == (job.clone(), "cancelled".to_owned()));
        assert_eq!(status(&hub)[1].1, "queued", "an administrator's");
        let wanted = Wanted { limit: 9, text: Some(job), is_newest_first: true, ..Wanted::default() };
        let line = &hub.audit(&anna(), &wanted).unwrap()[0];
        assert_eq!((line["who"].as_str(), line["do"].as_str()), (Some("hub"), Some("cancel")));
        hub.stop();
    }

    #[test]
    fn a_rule_that_was_made_while_nothing_could_be_written_down_holds_and_has_its_line_later() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let connection = Connection::open(crate::database::path(dir.path())).unwrap();
        connection.execute_batch("ALTER TABLE audit RENAME TO away").unwrap();
        let error = hub.add_rule(&anna(), RULES[0]).unwrap_err();
        assert!(error.message.contains("`rule add` was done and holds"), "{}", error.message);
        assert_eq!(hub.access().rules(&anna()).len(), 1);
        connection.execute_batch("ALTER TABLE away RENAME TO audit").unwrap();
        hub.stop();
        drop(hub);
        let hub = start(dir.path(), Channels::default());
        let wanted = Wanted { limit: 9, text: Some(RULES[0].to_owned()), ..Wanted::default() };
        let lines = hub.audit(&anna(), &wanted).unwrap();
        assert!(lines.len() == 1 && lines[0]["do"] == "rule add", "once: {lines:?}");
        hub.stop();
    }

    #[test]
    fn a_job_that_cannot_be_read_when_a_rule_ends_is_cancelled() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let ci = ci(&hub);
        let job = hub.submit(&ci, JobFile::from_json(BODY).unwrap(), None).unwrap().id;
        let path = crate::database::path(dir.path());
        let status = hub.look(move |owner| {
            owner.access.remove_rule(&anna(), 1).unwrap();
            let over = (unix_ms() / 1000 + 2) * 1000;
            owner.access.add_rule(&anna(), &format!("allow token:ci list until {} a:", rfc3339(over))).unwrap();
            while unix_ms() < over {
                std::thread::yield_now();
            }
            let connection = Connection::open(path).unwrap();
            connection.execute_batch("ALTER TABLE jobs RENAME TO away").unwrap();
            owner.lapse_rules(owner.now());
            connection.execute_batch("ALTER TABLE away RENAME TO jobs").unwrap();
            owner.queue.get(job).map(|job| job.status)
        });
        assert_eq!(status.unwrap(), Some(Status::Cancelled));
        hub.stop();
    }

    #[test]
    fn a_flood_of_refused_requests_is_a_bounded_number_of_lines() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let stranger = Principal::local(4_000_000);
        (0..1010).for_each(|_| _ = hub.add_rule(&stranger, RULES[0]).unwrap_err());
        assert!(only_admin(&stranger).is_err() && hub.add_rule(&anna(), RULES[0]).is_ok());
        hub.stop();
        drop(hub);
        let hub = start(dir.path(), Channels::default());
        let wanted = Wanted { limit: 2, is_newest_first: true, ..Wanted::default() };
        let last = hub.audit(&anna(), &wanted).unwrap();
        let told = |line: usize| (last[line]["n"].as_i64(), last[line]["target"].as_str());
        assert_eq!(told(0), (Some(1002), Some("10 more requests that were refused")));
        assert_eq!(told(1), (Some(1001), Some(RULES[0])));
        hub.stop();
    }

    #[test]
    fn rights_are_looked_at_where_a_job_is_taken_in() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let ci = ci(&hub);
        let submit = || {
            let (owner, file) = (ci.name.clone(), JobFile::from_json(BODY).unwrap());
            let (wish, body) = (file.wish(&owner).unwrap(), BODY.to_owned());
            let job = Submission { owner, file, wish, body, key: None, after: Vec::new() };
            hub.carry_out(&ci.name, "submit", |_| String::new(), move |owner, now| owner.submit(now, vec![job]))
        };
        let (job, _) = submit().unwrap()[0];
        hub.steer(&ci, job, Verb::Pause, None).unwrap();
        // Of the rule that goes, nobody looks for jobs.
        hub.access().remove_rule(&anna(), 2).unwrap();
        assert_eq!(submit().unwrap_err().exit, Exit::Refused);
        assert_eq!(hub.steer(&ci, job, Verb::Resume, None).unwrap_err().exit, Exit::Refused);
        hub.steer(&anna(), job, Verb::Resume, None).unwrap();
        hub.stop();
    }
}
