//! Objects that come in one piece: one under way in each lane, then held until they are published. Small ones are held whole, and take
//! one request each; what is longer than a part is sent in parts while it comes, however long chunks are.
//!
//! Not here: how much is held at once (`width`, `store::Held`).

use crate::job::Job;
use crate::upload::{ObjectUpload, PART_BYTES};
use crate::width::Permit;
use model::{Entry, FailureKind};
use std::sync::Arc;
use store::{Error, Held, PublishRule, Result, SinkLane, Staged, StagedFile};

/// What an attempt left of such an object is written anew, or swept.
const STEM: &str = "lane";

pub struct ObjectSinkLane {
    waiting: Arc<Waiting>,
    open: Option<(Sealed, PublishRule)>,
}

/// An object without its name.
enum Sealed {
    Whole(Vec<u8>, Permit),
    /// And how much of it was written.
    Parts(Box<ObjectUpload>, u64),
}

impl ObjectSinkLane {
    pub fn new(waiting: Arc<Waiting>) -> ObjectSinkLane {
        ObjectSinkLane { waiting, open: None }
    }
}

impl Drop for ObjectSinkLane {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Sealed {
    fn discard(self) {
        if let Sealed::Parts(upload, _) = self {
            upload.discard();
        }
    }
}

impl SinkLane for ObjectSinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.abandon();
        let job = &self.waiting.job;
        job.may_write()?;
        let (key, size) = (job.key(entry)?, entry.size_bytes());
        let object = match size <= PART_BYTES {
            true => {
                let room = job.rooms.take_whole(size)?;
                let late = || {
                    let why = match job.rooms.is_over() {
                        true => "the job is over",
                        false => "what waits takes all of the memory, and nothing of it was sent for a minute",
                    };
                    Error::of_entry(FailureKind::WriteError, "write file", entry, why)
                };
                let mut room = room.ok_or_else(late)?;
                let mut whole = room.buffer();
                whole.reserve_exact(size as usize);
                Sealed::Whole(whole, room)
            }
            false => {
                job.sweep();
                let (upload, _) = ObjectUpload::begin(job.clone(), entry, key)?.go_on(STEM)?;
                Sealed::Parts(Box::new(upload), 0)
            }
        };
        self.open = Some((object, rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.open.as_mut().expect("write follows create").0 {
            Sealed::Whole(whole, _) => {
                whole.extend_from_slice(bytes);
                self.waiting.job.rooms.moved();
            }
            Sealed::Parts(upload, at) => {
                upload.write_at(*at, bytes)?;
                *at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn seal(&mut self, _: &Entry, _: bool) -> Result<Staged> {
        let (object, rule) = self.open.take().expect("seal follows create");
        let held_bytes = match &object {
            Sealed::Whole(whole, _) => whole.len(),
            Sealed::Parts(..) => PART_BYTES as usize,
        };
        Ok(Staged::new(0, self.waiting.held.put(object, held_bytes), rule))
    }

    fn abandon(&mut self) {
        if let Some((object, _)) = self.open.take() {
            object.discard();
        }
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.waiting.publish(entry, staged)
    }
}

/// What lanes have sealed and nobody has published yet.
pub struct Waiting {
    job: Arc<Job>,
    held: Held<Sealed>,
}

impl Waiting {
    pub fn new(job: Arc<Job>) -> Waiting {
        Waiting { job, held: Held::default() }
    }

    pub fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let gone = || Error::of_kind(FailureKind::Other, "publish", entry.name.as_bytes(), "it is not staged");
        match self.held.take(staged.number()).ok_or_else(gone)? {
            Sealed::Whole(bytes, mut room) => {
                room.leaves();
                let published = self.job.publish(entry, &self.job.key(entry)?, &bytes, staged.rule());
                room.end_with(bytes);
                published
            }
            Sealed::Parts(upload, _) => upload.publish(entry, staged.rule()),
        }
    }

    pub fn discard(&self, staged: Staged) {
        self.held.take(staged.number()).into_iter().for_each(Sealed::discard);
    }

    pub fn discard_all(&self) {
        self.held.take_all().into_iter().for_each(Sealed::discard);
    }
}
