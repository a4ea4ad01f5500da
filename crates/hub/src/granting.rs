//! Tokens and rules, as administrators give and withdraw them, and what becomes of jobs that nothing allows any more.

use crate::Result;
use crate::access::{Access, Principal, RuleView, Scopes};
use crate::audit::Deed;
use crate::hub::{Hub, only_admin};
use crate::job_file::JobFile;
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
                    .and_then(|file| self.inner.access.check(owner, &file.wish(owner)?));
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
        self.record(who, "token new", name.to_owned(), token)
    }

    /// Withdraws a token with its rules; what its jobs may not do then ends.
    pub fn remove_token(&self, who: &Principal, name: &str) -> Result<usize> {
        let removed = only_admin(who).and_then(|()| self.inner.access.remove_token(name));
        let affected = self.record(who, "token rm", name.to_owned(), removed)?;
        self.review_all(&affected)
    }

    fn review_all(&self, affected: &[String]) -> Result<usize> {
        affected.iter().try_fold(0, |cancelled, owner| Ok(cancelled + self.review(owner)?))
    }

    /// What somebody who is no administrator adds is a share.
    pub fn add_rule(&self, who: &Principal, text: &str) -> Result<RuleView> {
        let added = self.inner.access.add_rule(who, text);
        self.record(who, "rule add", text.to_owned(), added)
    }

    /// Withdraws a rule; what jobs of whom it was for may not do then ends.
    pub fn remove_rule(&self, who: &Principal, id: u64) -> Result<usize> {
        let removed = self.inner.access.remove_rule(who, id);
        let affected = self.record(who, "rule rm", id.to_string(), removed)?;
        self.review_all(&affected)
    }

    /// Done already, or refused: that is in the audit log before it is answered.
    fn record<T: Send + 'static>(
        &self,
        who: &Principal,
        action: &'static str,
        target: String,
        outcome: Result<T>,
    ) -> Result<T> {
        self.carry_out(&who.name, action, move |_| target, move |_, _| outcome)
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
            if self.access.is_admin(owner) {
                continue;
            }
            let of_owner: Vec<JobId> =
                self.queue.jobs().filter(|job| *job.facts.owner == **owner).map(|job| job.id).collect();
            for id in of_owner {
                let Ok(Some(stored)) = self.store.job(id) else { continue };
                let allowed = stored.file.wish(owner).and_then(|wish| self.access.check(owner, &wish));
                if allowed.is_err() {
                    let outcome = self.steer(now, id, Verb::Cancel, None);
                    self.group.audit.push(Deed::new("hub", "cancel", &id.to_string(), &outcome));
                }
            }
        }
    }
}
