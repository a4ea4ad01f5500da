//! What is looked at before jobs are taken: whether there is room, and whether what they name is there.

use crate::job_file::Wish;
use crate::owner::{Owner, Submission};
use crate::refusal::refused;
use crate::{Error, Result};
use model::{Exit, JobId};
use queue::Status;
use std::collections::HashMap;

impl Owner {
    /// All or none: what does not fit is known before anything is taken.
    pub fn check_room(&self, jobs: &[Submission]) -> Result<()> {
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

    pub fn check_endpoints(&self, wish: &Wish) -> Result<()> {
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

    pub fn known_by_key(&self, job: &Submission) -> Result<Option<JobId>> {
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
    pub fn check_after(&self, id: JobId) -> Result<()> {
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
}
