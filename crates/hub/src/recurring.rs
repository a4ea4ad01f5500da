//! Schedules at work: whose turn it is begins a job, and is written down with it.
//!
//! Invariant: a job that a slot began and the record that the slot had its turn are one transaction.

use crate::audit::Deed;
use crate::intake::Submission;
use crate::owner::Owner;
use crate::schedules::{ScheduleFile, StoredSchedule};
use crate::{Error, Result};
use model::{Exit, JobId};
use queue::Now;
use tracing::error;

/// Schedules of one hub, and of one owner who is no administrator.
const SCHEDULES_MAX: usize = 1000;
const OF_ONE_MAX: usize = 100;

/// What people do with a schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleVerb {
    Pause,
    Resume,
    /// Begins its job now, besides its times.
    Run,
    Remove,
}

impl ScheduleVerb {
    pub fn from_word(word: &str) -> Option<ScheduleVerb> {
        Some(match word {
            "pause" => ScheduleVerb::Pause,
            "resume" => ScheduleVerb::Resume,
            "run" => ScheduleVerb::Run,
            "rm" => ScheduleVerb::Remove,
            _ => return None,
        })
    }

    pub fn action(self) -> &'static str {
        match self {
            ScheduleVerb::Pause => "schedule pause",
            ScheduleVerb::Resume => "schedule resume",
            ScheduleVerb::Run => "schedule run",
            ScheduleVerb::Remove => "schedule rm",
        }
    }
}

impl Owner {
    /// The same schedule again is the same one; another with its name is refused.
    pub(crate) fn add_schedule(&mut self, owner: &str, file: ScheduleFile) -> Result<()> {
        self.check_endpoints(&file.job.wish(owner)?)?;
        self.posting.channels.check(&file.job.notify)?;
        let name = file.name.clone();
        let there = self.latest(&name)?;
        match there {
            Some(there) if there.owner == owner && there.file == file => return Ok(()),
            Some(_) => {
                return Err(Error::new(Exit::Failed, format!("there is already a schedule {name}"))
                    .hint("`thalweg schedule rm` removes it; or choose another name"));
            }
            None => self.check_schedules(owner)?,
        }
        let stored = StoredSchedule::new(owner, file);
        self.queue.put_schedule(stored.schedule.clone());
        self.group.dropped.retain(|dropped| *dropped != name);
        self.group.schedules.push(stored);
        Ok(())
    }

    /// That there is room for another one.
    fn check_schedules(&self, owner: &str) -> Result<()> {
        let stored = self.store.schedules()?;
        let is_new = |one: &&StoredSchedule| stored.iter().all(|other| other.file.name != one.file.name);
        let all: Vec<_> = stored.iter().chain(self.group.schedules.iter().filter(is_new)).collect();
        let own = all.iter().filter(|one| one.owner == owner).count();
        let text = match all.len() {
            SCHEDULES_MAX.. => format!("the hub keeps at most {SCHEDULES_MAX} schedules"),
            _ if own >= OF_ONE_MAX && !self.access.is_admin(owner) => {
                format!("the hub keeps at most {OF_ONE_MAX} schedules of one user")
            }
            _ => return Ok(()),
        };
        Err(Error::new(Exit::LimitCrossed, text).hint("remove one that is not needed"))
    }

    /// What became of it: for `Run` the job. The schedule has to be one of `of`: it may be another's by now.
    pub(crate) fn steer_schedule(
        &mut self,
        now: Now,
        (of, name): (&str, &str),
        verb: ScheduleVerb,
    ) -> Result<Option<JobId>> {
        let found = self.latest(name)?.filter(|stored| stored.owner == of);
        let mut stored = found.ok_or_else(|| no_such_schedule(name))?;
        match verb {
            ScheduleVerb::Remove => {
                self.queue.drop_schedule(name);
                self.group.schedules.retain(|other| other.file.name != name);
                self.group.dropped.push(name.to_owned());
                return Ok(None);
            }
            ScheduleVerb::Run => {
                let (job, is_new) = self.begin(now, &stored, None)?;
                if !is_new {
                    return Err(Error::new(Exit::Failed, format!("the same copy is open as job {job}"))
                        .hint(format!("`thalweg job show {job}` says how it stands")));
                }
                stored.schedule.job = Some(job);
            }
            ScheduleVerb::Pause => stored.schedule.is_paused = true,
            ScheduleVerb::Resume if stored.schedule.is_paused => {
                stored.schedule.is_paused = false;
                // What it missed meanwhile, it was to miss.
                stored.schedule.since = now.unix_ms;
            }
            ScheduleVerb::Resume => {}
        }
        self.queue.put_schedule(stored.schedule.clone());
        let job = stored.schedule.job.filter(|_| verb == ScheduleVerb::Run);
        self.group.schedules.push(stored);
        Ok(job)
    }

    /// As it is after what this group changed.
    pub(crate) fn latest(&self, name: &str) -> Result<Option<StoredSchedule>> {
        if self.group.dropped.iter().any(|dropped| dropped == name) {
            return Ok(None);
        }
        let pending = self.group.schedules.iter().rev().find(|stored| stored.file.name == name);
        let found = pending.cloned().map_or_else(|| self.store.schedule(name), |stored| Ok(Some(stored)))?;
        // The queue knows which slots had their turn.
        let known = |stored: &StoredSchedule| self.queue.schedule(name).unwrap_or(&stored.schedule).clone();
        Ok(found.map(|stored| StoredSchedule { schedule: known(&stored), ..stored }))
    }

    pub(crate) fn begin_scheduled(&mut self, now: Now) {
        for firing in self.queue.fire(now) {
            let stored = match self.latest(&firing.schedule) {
                Ok(Some(stored)) => stored,
                Ok(None) => continue,
                Err(e) => {
                    error!(schedule = &*firing.schedule, error = %e.message, "a schedule cannot be read");
                    continue;
                }
            };
            let begun = match firing.is_overlap {
                true => Ok(None),
                false => self.begin(now, &stored, Some(firing.slot)).map(|(job, is_new)| is_new.then_some(job)),
            };
            let said = match &begun {
                Ok(Some(_)) => String::new(),
                Ok(None) => "skipped: the job that began before is still open".to_owned(),
                Err(e) => format!("no job began: {}", e.message),
            };
            let target = format!("{} {}", stored.file.name, crate::events::rfc3339(firing.slot));
            self.note_deed(now, &stored.owner, Deed::new("schedule", "submit", &target, &begun));
            if let Ok(Some(job)) = begun {
                self.queue.fired(&firing.schedule, job);
            }
            let schedule = self.queue.schedule(&firing.schedule).unwrap_or(&stored.schedule).clone();
            self.group.schedules.push(StoredSchedule { schedule, slot: Some(firing.slot), said, ..stored });
        }
    }

    /// The key of a slot is its name: whatever was forgotten, it begins one job.
    fn begin(&mut self, now: Now, stored: &StoredSchedule, slot: Option<i64>) -> Result<(JobId, bool)> {
        let owner = stored.owner.clone();
        let file = stored.file.job.clone();
        let wish = file.wish(&owner)?;
        let body = serde_json::to_string(&file).unwrap_or_default();
        let name = &stored.file.name;
        let key = slot.map(|slot| (format!("schedule {name} {} {slot}", stored.created), net::sha256(b"")));
        let submission = Submission { owner, file, wish, body, key, after: Vec::new() };
        let taken = self.submit(now, vec![submission])?;
        taken.first().copied().ok_or_else(|| Error::new(Exit::Fatal, "no answer for a job"))
    }
}

pub fn no_such_schedule(name: &str) -> Error {
    Error::new(Exit::SourceFileNotFound, format!("the hub has no schedule {name}"))
        .hint("`thalweg schedule ls` lists them")
}

#[cfg(test)]
mod tests {
    use super::OF_ONE_MAX;
    use crate::access::{Principal, Scopes};
    use crate::audit::Wanted;
    use crate::recurring::ScheduleVerb;
    use crate::scene::{anna, jobs, start, state, until};
    use crate::schedules::{ScheduleFile, StoredSchedule};
    use crate::store::{Group, Store};
    use crate::{Channels, unix_ms, verify_audit};
    use model::Exit;
    use std::time::Duration;

    const FILE: &str = r#"{"name":"hourly","times":{"at":["*:00"]},"job":{"source":"a:x/","destination":"b:y/"}}"#;

    /// One that was there two days ago has missed many hours: it begins one job, through restarts as well.
    #[test]
    fn missed_slots_begin_one_job_and_a_restart_none() {
        let dir = state();
        let mut stored = StoredSchedule::new("unix:0", ScheduleFile::from_json(FILE).unwrap());
        stored.schedule.since = unix_ms() - 2 * 86_400_000;
        let mut store = Store::open(dir.path()).unwrap();
        store.commit(&Group { schedules: vec![stored], ..Group::default() }).unwrap();
        drop(store);
        for _ in 0..3 {
            let hub = start(dir.path(), Channels::default());
            until(|| !jobs(&hub).is_empty());
            let view = hub.schedule(&anna(), "hourly").unwrap();
            assert_eq!((jobs(&hub).len(), view.last_job), (1, Some(jobs(&hub)[0].id.clone())));
            hub.stop();
        }
        verify_audit(dir.path()).unwrap();
    }

    #[test]
    fn one_user_has_so_many_schedules_and_leaves_room_to_others() {
        let dir = state();
        let named = |name: &str| ScheduleFile { name: name.into(), ..ScheduleFile::from_json(FILE).unwrap() };
        let stored = |n: usize| StoredSchedule::new("token:ci", named(&format!("s{n}")));
        let group = Group { schedules: (0..OF_ONE_MAX).map(stored).collect(), ..Group::default() };
        Store::open(dir.path()).unwrap().commit(&group).unwrap();
        let hub = start(dir.path(), Channels::default());
        let secret = hub.add_token(&anna(), "ci", Scopes::ORDINARY, Duration::from_secs(3600)).unwrap();
        for rule in ["allow token:ci read a:", "allow token:ci write b:"] {
            hub.add_rule(&anna(), rule).unwrap();
        }
        let ci = hub.access().recognise(&secret).unwrap();
        assert_eq!(hub.add_schedule(&ci, named("more")).unwrap_err().exit, Exit::LimitCrossed);
        hub.add_schedule(&anna(), named("more")).unwrap();
        let seen = |who: &Principal| hub.schedules(who).unwrap().len();
        assert_eq!((seen(&ci), seen(&anna())), (OF_ONE_MAX, OF_ONE_MAX + 1));
        assert!(hub.schedule(&ci, "s1").is_ok() && hub.schedule(&ci, "more").is_err());
        hub.stop();
    }

    #[test]
    fn a_schedule_that_has_the_name_of_one_that_was_looked_up_is_not_taken_for_it() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        hub.add_schedule(&anna(), ScheduleFile::from_json(FILE).unwrap()).unwrap();
        let removed = |of: &'static str| {
            hub.look(move |owner| owner.steer_schedule(owner.now(), (of, "hourly"), ScheduleVerb::Remove).is_ok())
        };
        assert!(!removed("token:ci").unwrap() && removed("unix:0").unwrap());
        hub.stop();
    }

    #[test]
    fn a_schedule_is_made_run_paused_and_removed_by_those_who_may() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let file = || ScheduleFile::from_json(FILE).unwrap();
        let added = hub.add_schedule(&anna(), file()).unwrap();
        assert_eq!((added.upcoming.len(), added.upcoming.first()), (5, added.next.as_ref()));
        hub.add_schedule(&anna(), file()).unwrap();
        let mut other = file();
        other.times.at = vec!["01:00".into()];
        assert!(hub.add_schedule(&anna(), other).unwrap_err().message.contains("there is already a schedule"));
        let mut nowhere = file();
        (nowhere.name, nowhere.job.destination) = ("other".into(), "nowhere:y".into());
        assert!(hub.add_schedule(&anna(), nowhere).unwrap_err().message.contains("knows no endpoint nowhere"));
        let stranger = Principal::local(4_000_000);
        let refused = hub.steer_schedule(&stranger, "hourly", ScheduleVerb::Run).unwrap_err();
        assert!(refused.message.contains("has no schedule"), "{}", refused.message);
        assert!(
            hub.schedules(&stranger).unwrap().is_empty()
                && hub.audit(&stranger, &Wanted::default()).is_err()
                && hub.verify_audit(&stranger).is_err()
        );
        let steer = |verb| hub.steer_schedule(&anna(), "hourly", verb);
        let job = steer(ScheduleVerb::Run).unwrap().unwrap();
        assert_eq!(jobs(&hub)[0].id, job.to_string());
        assert_eq!(hub.schedule(&anna(), "hourly").unwrap().last_status.as_deref(), Some("queued"));
        assert!(steer(ScheduleVerb::Run).unwrap_err().message.contains("is open as job"));
        steer(ScheduleVerb::Pause).unwrap();
        assert!(hub.schedule(&anna(), "hourly").unwrap().next.is_none());
        steer(ScheduleVerb::Resume).unwrap();
        steer(ScheduleVerb::Remove).unwrap();
        assert!(hub.schedules(&anna()).unwrap().is_empty() && steer(ScheduleVerb::Run).is_err());
        let lines = hub.audit(&anna(), &Wanted { limit: 100, ..Wanted::default() }).unwrap();
        let told = |what: &str| lines.iter().filter(|line| line["do"] == what && line["who"] == "unix:0").count();
        assert_eq!((told("schedule add"), told("schedule run"), told("schedule rm")), (4, 2, 1), "{lines:?}");
        hub.stop();
        assert_eq!(verify_audit(dir.path()).unwrap().head.n, lines.len() as i64);
    }
}
