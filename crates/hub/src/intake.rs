//! Jobs that are handed in, and what people do with jobs.
//!
//! Invariant: all of a submission or none: what can be wrong is looked at before anything is taken.

use crate::events::rfc3339;
use crate::job_file::{JobFile, Wish};
use crate::owner::Owner;
use crate::refusal::{changed_meanwhile, refused};
use crate::rows::{Key, NewJob, Rewritten};
use crate::{Error, Result};
use model::{Exit, JobId};
use queue::{Facts, Job, Now, Status, Verb};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Projects of one owner that have open jobs: what is next is chosen among all of them.
const PROJECTS_MAX: usize = 64;

pub struct Submission {
    pub owner: String,
    pub file: JobFile,
    pub wish: Wish,
    pub body: String,
    /// With the digest of what it came with.
    pub key: Option<(String, [u8; 32])>,
    /// Jobs that it comes after: ids, or positions of earlier ones in the same submission.
    pub after: Vec<After>,
}

#[derive(Clone, Copy, Debug)]
pub enum After {
    Job(JobId),
    Here(usize),
}

impl Owner {
    /// All or none: what can be wrong is looked at before anything is taken. Those that others come after are before them.
    pub(crate) fn submit(&mut self, now: Now, jobs: Vec<Submission>) -> Result<Vec<(JobId, bool)>> {
        let mut known = Vec::with_capacity(jobs.len());
        for job in &jobs {
            // Here: rules that are withdrawn from now on are looked for among jobs that have this one (`granting`).
            self.access.check_owner(&job.wish)?;
            self.check_endpoints(&job.wish)?;
            self.posting.channels.check(&job.file.notify)?;
            known.push(self.known_by_key(job)?);
        }
        // What was sent before is answered as it was then.
        let new = || jobs.iter().zip(&known).filter(|(_, known)| known.is_none()).map(|(job, _)| job);
        self.check_room(new().map(|job| &job.wish.facts))?;
        for job in new() {
            check_deadlines(&job.wish.facts, now)?;
            for after in &job.after {
                match *after {
                    After::Job(id) => self.check_after(id, &job.owner)?,
                    After::Here(position) => known[position].map_or(Ok(()), |id| self.check_after(id, &job.owner))?,
                }
            }
        }
        let mut taken: Vec<(JobId, bool)> = Vec::with_capacity(jobs.len());
        for (job, known) in jobs.into_iter().zip(known) {
            let id_of = |after: &After| match *after {
                After::Here(position) => taken[position].0,
                After::Job(id) => id,
            };
            let after = job.after.iter().map(id_of).collect();
            taken.push(match known {
                Some(known) => (known, false),
                None => self.submit_one(now, job, JobId(net::random_bytes()), after)?,
            });
        }
        Ok(taken)
    }

    pub(crate) fn submit_one(
        &mut self,
        now: Now,
        job: Submission,
        id: JobId,
        after: Vec<JobId>,
    ) -> Result<(JobId, bool)> {
        let Submission { owner, wish, body, key, file, .. } = job;
        let labels = file.labels.clone().into_iter().collect();
        let seq = self.next_seq;
        let taken = self.queue.submit(now, Job::new(id, seq, wish.facts.clone(), after));
        let (id, is_new) = match taken {
            Ok(queue::Taken::New) => {
                self.next_seq += 1;
                self.posting.watch(id, &file);
                self.group.new.push(NewJob { id, seq, wish, body, labels });
                (id, true)
            }
            Ok(queue::Taken::Known(known)) => (known, false),
            Err(e) => return Err(refused(&e)),
        };
        if let Some((key, digest)) = key {
            self.group.keys.push(Key { owner, key, digest, job: id });
        }
        Ok((id, is_new))
    }

    /// All or none: what does not fit is known before anything is taken.
    fn check_room<'a>(&self, jobs: impl Iterator<Item = &'a Facts>) -> Result<()> {
        let mut of_owner: HashMap<&str, (usize, HashSet<&str>)> = HashMap::new();
        for facts in jobs {
            let (more, projects) = of_owner.entry(&facts.owner).or_default();
            *more += 1;
            projects.insert(&facts.project);
        }
        let all: usize = of_owner.values().map(|(more, _)| more).sum();
        if all > 0 && self.queue.len() + all > self.limits.jobs_max {
            return Err(refused(&queue::Refused::Full { is_owner: false }));
        }
        for (owner, (more, mut projects)) in of_owner {
            if self.queue.count_of(owner) + more > self.limits.of_owner_max {
                return Err(refused(&queue::Refused::Full { is_owner: true }));
            }
            let open = self.queue.projects_of(owner).count();
            projects.extend(self.queue.projects_of(owner).map(|(project, _)| project));
            // Whoever has more already, of a time without this bound, goes on in those.
            if projects.len() > PROJECTS_MAX.max(open) {
                let text = format!("the open jobs of one user are of at most {PROJECTS_MAX} projects");
                return Err(Error::new(Exit::Temporary, text)
                    .hint("name a project that has open jobs, or try again when the jobs of some have ended"));
            }
        }
        Ok(())
    }

    pub(crate) fn check_endpoints(&self, wish: &Wish) -> Result<()> {
        for name in [&wish.facts.from, &wish.facts.to] {
            if !self.book.has(name) {
                let known: Vec<_> = self.book.list()?.into_iter().map(|endpoint| endpoint.name).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("the hub knows no endpoint {name}");
                let hint =
                    format!("known to it: {known}; `thalweg endpoint add NAME --ticket-file FILE --hub` adds one");
                return Err(Error::new(Exit::Usage, text).hint(hint));
            }
        }
        Ok(())
    }

    pub(crate) fn known_by_key(&self, job: &Submission) -> Result<Option<JobId>> {
        let Some((key, digest)) = &job.key else { return Ok(None) };
        let pending = self.group.keys.iter().find(|other| other.owner == job.owner && other.key == *key);
        let known = match pending {
            Some(known) => Some((known.digest, known.job)),
            None => self.store.key(&job.owner, key)?,
        };
        match known {
            Some((known, _)) if known != *digest => {
                Err(Error::new(Exit::LimitCrossed, "this key was used for another job")
                    .hint("give each job a key of its own; the same key is for sending the same job again"))
            }
            Some((_, job)) => Ok(Some(job)),
            None => Ok(None),
        }
    }

    /// A job that another one of `owner` is to come after is open, or ended well. Of somebody else's nothing is said.
    pub(crate) fn check_after(&self, id: JobId, owner: &str) -> Result<()> {
        // Of one that has just ended the database may not know it yet.
        let found = match self.queue.get(id) {
            Some(job) => Some((job.status, job.facts.owner.to_string())),
            None => self.store.standing(id)?,
        };
        let seen = found.filter(|(_, of)| of == owner || self.access.is_admin(owner));
        let problem = match seen.map(|(status, _)| status) {
            Some(status) if !status.is_end() || status == Status::Succeeded => return Ok(()),
            Some(status) => (format!("job {id}, which it comes after, is {status}"), "retry that job first"),
            None => (format!("there is no job {id}, which it comes after"), "`thalweg job ls` lists them"),
        };
        Err(Error::new(Exit::Usage, problem.0).hint(problem.1))
    }

    pub(crate) fn change(
        &mut self,
        now: Now,
        id: JobId,
        changes: &Map<String, Value>,
        version: Option<u64>,
    ) -> Result<()> {
        self.check_version(id, version)?;
        let stored = self.store.job(id)?.ok_or_else(|| refused(&queue::Refused::NoSuchJob))?;
        if self.queue.get(id).is_none() {
            let (status, help) = (stored.job.status, "only an open job can be changed");
            return Err(refused(&queue::Refused::WrongState { status, help }));
        }
        // What was changed since the last transaction.
        let pending = self.group.rewritten.iter().rev().find(|other| other.id == id);
        let file = pending.map_or(Ok(stored.file), |other| JobFile::from_json(&other.body))?.changed(changes)?;
        let facts = file.known_wish(&stored.job.facts.owner)?.facts;
        self.queue.change(now, id, facts.clone()).map_err(|e| refused(&e))?;
        let body = serde_json::to_string(&file).unwrap_or_default();
        self.group.rewritten.push(Rewritten { id, body, facts });
        Ok(())
    }

    pub(crate) fn steer(&mut self, now: Now, id: JobId, verb: Verb, version: Option<u64>) -> Result<()> {
        self.check_version(id, version)?;
        let absent = || refused(&queue::Refused::NoSuchJob);
        if self.group.removed.contains(&id) {
            return Err(absent());
        }
        // One that has ended is in the queue while it is steered, and stays only where it begins anew.
        let visitor = match self.queue.get(id) {
            Some(_) => None,
            None => Some(self.store.job(id)?.ok_or_else(absent)?),
        };
        let job = visitor.as_ref().map(|stored| &stored.job).or_else(|| self.queue.get(id));
        if let Some(job) = job.filter(|job| verb == Verb::Retry && job.status.is_end()) {
            self.check_room(visitor.iter().map(|stored| &stored.job.facts))?;
            self.check_others(job)?;
        }
        let file = visitor.map(|stored| {
            self.queue.restore(now, stored.job);
            stored.file
        });
        let steered = self.queue.steer(now, id, verb).map_err(|e| refused(&e));
        match file {
            Some(file) if verb == Verb::Retry && steered.is_ok() => self.posting.watch(id, &file),
            Some(_) => self.queue.let_go(id),
            None => {}
        }
        if verb == Verb::Remove && steered.is_ok() {
            self.group.removed.push(id);
        }
        steered
    }

    /// A job begins anew once those that it comes after are open again, or have ended well.
    fn check_others(&self, job: &Job) -> Result<()> {
        let hint = "retry that job first, or submit this one again without `after`";
        let wrong = |e: Error| Error { exit: Exit::Failed, ..e }.hint(hint);
        job.after.iter().try_for_each(|other| self.check_after(*other, &job.facts.owner).map_err(wrong))
    }

    /// What was changed and is not written down yet has another version as well.
    fn check_version(&self, id: JobId, version: Option<u64>) -> Result<()> {
        match version {
            Some(_) if self.queue.is_changed(id) => Err(changed_meanwhile()),
            Some(version) => self.store.check_version(id, version),
            None => Ok(()),
        }
    }
}

/// A job that would be late before it is handed in was written down wrongly.
fn check_deadlines(facts: &Facts, now: Now) -> Result<()> {
    for (key, at) in [("finish_by", facts.finish_by), ("start_by", facts.start_by)] {
        if let Some(at) = at.filter(|at| *at <= now.unix_ms) {
            let text = format!("{key} is {}, which has passed: it is {} now", rfc3339(at), rfc3339(now.unix_ms));
            return Err(Error::new(Exit::Usage, text).hint("name a moment to come, with its offset, or leave it out"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PROJECTS_MAX, Submission};
    use crate::access::{Principal, Scopes};
    use crate::events::rfc3339;
    use crate::scene::{anna, start, state};
    use crate::{Channels, Hub, JobFile, Options, unix_ms};
    use model::{Exit, JobId};
    use queue::{Limits, Verb};
    use std::time::Duration;

    #[test]
    fn the_open_jobs_of_one_user_are_of_so_many_projects() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let file = |number: usize, project: usize| {
            let text = format!(r#"{{"source":"a:x","destination":"b:{number}","project":"p{project}"}}"#);
            JobFile::from_json(&text).unwrap()
        };
        let all: Vec<JobFile> = (0..=PROJECTS_MAX).map(|number| file(number, number)).collect();
        assert!(hub.batch(&anna(), all.clone(), None).unwrap_err().message.contains("projects"));
        let taken = hub.batch(&anna(), all[1..].to_vec(), None).unwrap();
        assert!(hub.submit(&anna(), file(0, 0), None).unwrap_err().message.contains("projects"));
        assert!(hub.submit(&anna(), file(0, 1), None).is_ok());
        hub.steer(&anna(), taken[1].id, Verb::Cancel, None).unwrap();
        let once = || hub.submit(&anna(), file(99, 0), Some("once")).map(|taken| taken.id);
        let first = once().expect("another project has no job any more");
        hub.steer(&anna(), first, Verb::Cancel, None).unwrap();
        hub.submit(&anna(), file(98, 2), None).unwrap();
        assert_eq!(once().unwrap(), first, "it was sent before");
        // As if there had been no bound when it came.
        let (owner, one_more) = ("unix:0".to_owned(), file(97, 0));
        let (wish, body) = (one_more.wish(&owner).unwrap(), serde_json::to_string(&one_more).unwrap());
        let one_more = Submission { owner, file: one_more, wish, body, key: None, after: Vec::new() };
        let taken = hub.look(|owner| owner.submit_one(owner.now(), one_more, JobId([9; 16]), Vec::new()).is_ok());
        assert!(taken.unwrap());
        assert!(hub.submit(&anna(), file(96, 2), None).is_ok(), "that project is open");
        assert!(hub.submit(&anna(), file(95, PROJECTS_MAX + 1), None).unwrap_err().message.contains("projects"));
        hub.stop();
    }

    fn file(number: usize) -> JobFile {
        JobFile::from_json(&format!(r#"{{"source":"a:x","destination":"b:{number}"}}"#)).unwrap()
    }

    /// Two jobs, the second of which comes after the first.
    fn chain() -> Vec<JobFile> {
        let (mut first, mut second) = (file(1), file(2));
        first.name = Some("first".to_owned());
        second.after = vec!["first".to_owned()];
        vec![first, second]
    }

    #[test]
    fn a_batch_that_is_sent_again_is_answered_as_before_whatever_became_of_it() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let ids = || hub.batch(&anna(), chain(), Some("once")).map(|taken| [taken[0].id, taken[1].id]);
        let before = ids().unwrap();
        hub.steer(&anna(), before[0], Verb::Cancel, None).unwrap();
        assert_eq!(ids().unwrap(), before);
        hub.stop();
    }

    #[test]
    fn a_job_that_is_late_before_it_is_handed_in_is_refused_with_the_moment_that_was_read() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let submit = |key: &str, at: i64| {
            let text = format!(r#"{{"source":"a:x","destination":"b:y","{key}":"{}"}}"#, rfc3339(at));
            hub.submit(&anna(), JobFile::from_json(&text).unwrap(), Some("once")).map(|taken| taken.id)
        };
        for key in ["finish_by", "start_by"] {
            let refused = submit(key, 1_577_836_800_000).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            let read = format!("{key} is 2020-01-01T00:00:00Z, which has passed: it is 20");
            assert!(refused.message.starts_with(&read), "{}", refused.message);
        }
        let soon = unix_ms() + 2000;
        let taken = submit("finish_by", soon).unwrap();
        while unix_ms() <= soon {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(submit("finish_by", soon).unwrap(), taken, "what was sent before is answered as it was then");
        hub.stop();
    }

    #[test]
    fn a_job_is_retried_after_those_that_it_comes_after() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let taken = hub.batch(&anna(), chain(), None).unwrap();
        let (first, second) = (taken[0].id, taken[1].id);
        let retry = |id: JobId| hub.steer(&anna(), id, Verb::Retry, None);
        let stands = |id: JobId| hub.show(&anna(), id).map(|job| (job.status, job.reason.unwrap_or_default())).unwrap();
        hub.steer(&anna(), first, Verb::Cancel, None).unwrap();
        assert_eq!(stands(second), ("failed".to_owned(), "dependency".to_owned()));
        let refused = retry(second).unwrap_err();
        assert!(refused.message.contains("which it comes after, is cancelled"), "{}", refused.message);
        assert!(refused.hint.unwrap().contains("retry that job first"));
        retry(first).and_then(|()| retry(second)).unwrap();
        assert_eq!(stands(second), ("waiting".to_owned(), "dependency".to_owned()));
        hub.stop();
    }

    #[test]
    fn a_job_that_begins_anew_counts_as_one_more() {
        let dir = state();
        let limits = Limits { of_owner_max: 1, ..Limits::default() };
        let hub = Hub::start(Options { limits, ..Options::new(dir.path().to_owned()) }).unwrap();
        let submit = |number: usize| hub.submit(&anna(), file(number), None).unwrap().id;
        let steer = |id: JobId, verb: Verb| hub.steer(&anna(), id, verb, None);
        let first = submit(1);
        steer(first, Verb::Cancel).unwrap();
        let second = submit(2);
        let refused = steer(first, Verb::Retry).unwrap_err();
        assert!(refused.message.contains("the limit of open jobs"), "{}", refused.message);
        // Nor does one that was looked at in the same group take a place that nobody counted.
        let both = hub.look(move |owner| {
            let verbs = [Verb::Cancel, Verb::Retry];
            verbs.map(|verb| owner.steer(owner.now(), first, verb, None).is_ok())
        });
        assert_eq!(both.unwrap(), [true, false]);
        steer(second, Verb::Cancel).unwrap();
        steer(first, Verb::Retry).unwrap();
        hub.stop();
    }

    #[test]
    fn of_two_who_decide_on_one_version_of_a_job_the_first_has_it() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let id = hub.submit(&anna(), file(1), None).unwrap().id;
        let version = Some(hub.show(&anna(), id).unwrap().version);
        let both = hub.look(move |owner| {
            let verbs = [Verb::Pause, Verb::Cancel];
            verbs.map(|verb| owner.steer(owner.now(), id, verb, version).is_ok())
        });
        assert_eq!(both.unwrap(), [true, false]);
        hub.stop();
    }

    #[test]
    fn a_job_cannot_come_after_somebody_elses_and_hears_nothing_of_it() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let secret = hub.add_token(&anna(), "ci", Scopes::ORDINARY, Duration::from_secs(3600)).unwrap();
        for rule in ["allow token:ci read a:", "allow token:ci write b:"] {
            hub.add_rule(&anna(), rule).unwrap();
        }
        let ci = hub.access().recognise(&secret).unwrap();
        let submit = |who: &Principal, after: Option<JobId>| {
            let mut file = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap();
            file.after = after.iter().map(JobId::to_string).collect();
            hub.submit(who, file, None)
        };
        let said = |id: JobId| submit(&ci, Some(id)).unwrap_err().message.replace(&id.to_string(), "ID");
        let (other, absent) = (submit(&anna(), None).unwrap().id, said(JobId([9; 16])));
        assert_eq!((&said(other)[..], &absent[..]), ("there is no job ID, which it comes after", &said(other)[..]));
        hub.steer(&anna(), other, Verb::Cancel, None).unwrap();
        assert_eq!(said(other), absent);
        let own = submit(&ci, None).unwrap().id;
        assert!(submit(&ci, Some(own)).is_ok() && submit(&anna(), Some(own)).is_ok());
        hub.stop();
    }
}
