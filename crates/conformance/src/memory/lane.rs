//! Small objects: one buffer under way, sealed ones by number.

use super::sink::Job;
use super::tree::Body;
use super::{Call, Flaw};
use model::{Entry, FailureKind};
use std::sync::Arc;
use store::{Error, PublishRule, Result, SinkLane, Staged};

pub struct MemorySinkLane {
    job: Arc<Job>,
    open: Option<(u64, PublishRule)>,
}

impl MemorySinkLane {
    pub fn new(job: Arc<Job>) -> MemorySinkLane {
        MemorySinkLane { job, open: None }
    }

    fn append(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.job.shared.faults.meet(Call::Write).inspect_err(|_| self.abandon())?;
        let (number, _) = self.open.expect("write follows create");
        put(self.job.shared.state().staged.get_mut(&number).expect("what is under way is staged"));
        Ok(())
    }
}

impl Job {
    /// Takes what was staged out of staging.
    pub fn take_staged(&self, number: u64) -> Option<Vec<u8>> {
        self.staged.lock().unwrap().remove(&number);
        self.shared.state().staged.remove(&number)
    }

    pub fn publish_staged(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let number = match self.shared.has(Flaw::PublishesTheLastStaged) {
            true => self.shared.state().next,
            false => staged.number(),
        };
        let met = self.shared.faults.meet(Call::Publish);
        let content = self.take_staged(number);
        met?;
        let content =
            content.ok_or_else(|| Error::of_entry(FailureKind::Other, "publish", entry, "it is not staged"))?;
        let rule = if self.shared.has(Flaw::IgnoresNoReplace) { PublishRule::Replace } else { staged.rule() };
        let published = match content.is_empty() && self.shared.has(Flaw::DropsEmptyFiles) {
            true => Ok(()),
            false => self.publish(entry, Body::File(content.into()), rule),
        };
        if published.is_err() && self.shared.has(Flaw::KeepsRefused) {
            self.shared.state().staged.insert(number, Vec::new());
        }
        published
    }
}

impl SinkLane for MemorySinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.abandon();
        self.job.above(entry)?;
        let number = match self.job.shared.has(Flaw::SharesStaging) {
            true => 0,
            false => self.job.shared.state().number(),
        };
        self.job.shared.state().staged.entry(number).or_default();
        self.job.staged.lock().unwrap().insert(number);
        self.open = Some((number, rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.append(|content| content.extend_from_slice(bytes))
    }

    fn skip(&mut self, count: u64) -> Result<()> {
        let count = if self.job.shared.has(Flaw::DropsSkipped) { 0 } else { count as usize };
        self.append(|content| content.resize(content.len() + count, 0))
    }

    fn seal(&mut self, entry: &Entry, _: bool) -> Result<Staged> {
        let (number, rule) = self.open.take().expect("seal follows create");
        if self.job.shared.has(Flaw::LosesLastByte) {
            self.job.shared.state().staged.entry(number).or_default().pop();
        }
        if self.job.shared.has(Flaw::PublishesWhenSealed) {
            let content = self.job.shared.state().staged[&number].clone();
            self.job.publish(entry, Body::File(content.into()), PublishRule::Replace)?;
        }
        Ok(Staged::new(0, number, rule))
    }

    fn abandon(&mut self) {
        if let Some((number, _)) = self.open.take()
            && !self.job.shared.has(Flaw::KeepsAbandoned)
        {
            self.job.take_staged(number);
        }
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_staged(entry, staged)
    }
}

impl Drop for MemorySinkLane {
    fn drop(&mut self) {
        self.abandon();
    }
}
