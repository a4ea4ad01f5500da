//! Schedules and the audit log, as they are asked for.

use crate::Result;
use crate::access::Principal;
use crate::audit;
use crate::hub::{Hub, only_admin};
use crate::owner::Owner;
use crate::recurring::{ScheduleVerb, no_such_schedule};
use crate::schedules::{ScheduleFile, ScheduleView};
use model::JobId;
use serde_json::Value;

impl Hub {
    /// Durable when this returns. The same schedule again is the same one.
    pub fn add_schedule(&self, who: &Principal, file: ScheduleFile) -> Result<ScheduleView> {
        file.check(&who.name)?;
        let (owner, name) = (who.name.clone(), file.name.clone());
        let target = name.clone();
        if !who.is_admin() {
            self.inner.access.check(&who.name, &file.job.wish(&who.name)?)?;
        }
        self.carry_out(&who.name, "schedule add", move |_| target, move |hub, _| hub.add_schedule(&owner, file))?;
        self.schedule(who, &name)
    }

    /// One's own; an administrator sees everybody's.
    pub fn schedules(&self, who: &Principal) -> Result<Vec<ScheduleView>> {
        self.inner.reader.schedules(of(who), None)
    }

    pub fn schedule(&self, who: &Principal, name: &str) -> Result<ScheduleView> {
        self.inner.reader.schedules(of(who), Some(name))?.pop().ok_or_else(|| no_such_schedule(name))
    }

    /// For `Run`, the job that it began.
    pub fn steer_schedule(&self, who: &Principal, name: &str, verb: ScheduleVerb) -> Result<Option<JobId>> {
        let owner = self.schedule(who, name)?.owner;
        let (target, name) = (name.to_owned(), name.to_owned());
        let steer = move |hub: &mut Owner, now| hub.steer_schedule(now, (&owner[..], &name[..]), verb);
        self.carry_out(&who.name, verb.action(), move |_| target, steer)
    }

    pub fn audit(&self, who: &Principal, wanted: &audit::Wanted) -> Result<Vec<Value>> {
        only_admin(who)?;
        self.inner.reader.audit(wanted)
    }

    /// Whether the lines of the audit log follow one another, as `hub audit verify` finds it beside the hub.
    pub fn verify_audit(&self, who: &Principal) -> Result<audit::Verified> {
        only_admin(who)?;
        audit::verify(self.state_dir())
    }
}

/// Whose schedules somebody sees: an administrator those of all.
fn of(who: &Principal) -> Option<&str> {
    (!who.is_admin()).then_some(&who.name[..])
}
