//! Jobs that are handed in, and what people do with jobs.
//!
//! Invariant: all of a submission or none: what can be wrong is looked at before anything is taken.

use crate::job_file::{JobFile, Wish};
use crate::owner::Owner;
use crate::refusal::refused;
use crate::rows::{Key, NewJob, Rewritten};
use crate::{Error, Result};
use model::{Exit, JobId};
use queue::{Job, Now, Status, Verb};
use serde_json::{Map, Value};
use std::collections::HashMap;

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
        self.check_room(&jobs)?;
        let mut known = Vec::with_capacity(jobs.len());
        for job in &jobs {
            // Here: rules that are withdrawn from now on are looked for among jobs that have this one (`granting`).
            self.access.check_owner(&job.wish)?;
            self.check_endpoints(&job.wish)?;
            self.posting.channels.check(&job.file.notify)?;
            known.push(self.known_by_key(job)?);
        }
        for job in &jobs {
            for after in &job.after {
                match *after {
                    After::Job(id) => self.check_after(id)?,
                    After::Here(position) => known[position].map_or(Ok(()), |id| self.check_after(id))?,
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
                if !file.is_rehearsal() {
                    self.posting.watch(id, &file);
                }
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
    pub(crate) fn check_room(&self, jobs: &[Submission]) -> Result<()> {
        if self.queue.len() + jobs.len() > self.limits.jobs_max {
            return Err(refused(&queue::Refused::Full { is_owner: false }));
        }
        let mut of_owner: HashMap<&str, usize> = HashMap::new();
        for job in jobs {
            *of_owner.entry(&job.owner).or_default() += 1;
        }
        let is_full = |(owner, more): (&&str, &usize)| self.queue.count_of(owner) + more > self.limits.of_owner_max;
        match of_owner.iter().any(is_full) {
            true => Err(refused(&queue::Refused::Full { is_owner: true })),
            false => Ok(()),
        }
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

    /// A job that another is to come after is open, or ended well.
    pub(crate) fn check_after(&self, id: JobId) -> Result<()> {
        // Of one that has just ended the database may not know it yet.
        let status = match self.queue.get(id) {
            Some(job) => Some(job.status),
            None => self.store.status(id)?,
        };
        let problem = match status {
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
        if let Some(version) = version {
            self.store.check_version(id, version)?;
        }
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
        if let Some(version) = version {
            self.store.check_version(id, version)?;
        }
        if self.queue.get(id).is_none() {
            let stored = self.store.job(id)?.ok_or_else(|| refused(&queue::Refused::NoSuchJob))?;
            self.posting.watch(id, &stored.file);
            self.queue.restore(now, stored.job);
            self.visitors.push(id);
        }
        let steered = self.queue.steer(now, id, verb);
        if verb == Verb::Remove && steered.is_ok() {
            self.group.removed.push(id);
        }
        steered.map_err(|e| refused(&e))
    }
}
