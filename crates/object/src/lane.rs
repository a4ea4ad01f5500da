//! Small objects on their way: one under way in each lane, then held until they are published by one request each.
//!
//! Not here: how much is held at once (`store::Held`).

use crate::job::Job;
use model::{Entry, FailureKind};
use std::sync::Arc;
use store::{Error, PublishRule, Result, SinkLane, Staged};

pub struct ObjectSinkLane {
    job: Arc<Job>,
    open: Option<(Vec<u8>, PublishRule)>,
}

impl ObjectSinkLane {
    pub fn new(job: Arc<Job>) -> ObjectSinkLane {
        ObjectSinkLane { job, open: None }
    }
}

impl SinkLane for ObjectSinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.may_write()?;
        self.job.key(entry)?;
        self.open = Some((Vec::with_capacity(entry.size_bytes() as usize), rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.open.as_mut().expect("write follows create").0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        let (bytes, rule) = self.open.take().expect("seal follows create");
        let length = bytes.len();
        Ok(Staged::new(0, self.job.held.put(bytes, length), rule))
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(entry, staged)
    }
}

impl Job {
    pub fn publish_held(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let bytes = self.held.take(staged.number());
        let gone = || Error::of_kind(FailureKind::Other, "publish", entry.name.as_bytes(), "it is not staged");
        self.publish(entry, &self.key(entry)?, &bytes.ok_or_else(gone)?, staged.rule())
    }
}
