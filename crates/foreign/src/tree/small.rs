//! Small files on their way: one under way in each lane, then held until a group of them is sent, all at once.
//!
//! Invariant: what was sent and is not published is removed.

use super::held::Small;
use super::job::Job;
use super::remote::Remote;
use model::{Entry, FailureKind};
use std::sync::Arc;
use store::{Error, PublishRule, Result, SinkLane, Staged};

fn not_staged() -> Error {
    Error::of_kind(FailureKind::Other, "publish", b"", "it is not staged")
}

impl<R: Remote> Job<R> {
    /// Sends what is held of these numbers and was not sent; with `sync` it lies safely there afterwards. What fails singly is kept
    /// for whoever publishes it.
    ///
    /// # Errors
    /// When nothing can be sent any more.
    pub fn send_held(&self, numbers: &[u64], sync: bool) -> Result<()> {
        for some in numbers.chunks(self.server.group_files()) {
            let mut group: Vec<_> =
                some.iter().filter_map(|number| Some((*number, self.held.take(*number)?))).collect();
            let sent = self.server.send(&mut group, sync);
            for (number, small) in group {
                self.put_back(number, small);
            }
            sent?;
        }
        Ok(())
    }

    pub fn publish_held(&self, group: &[(&Entry, Staged)]) -> Vec<Result<()>> {
        let numbers: Vec<_> = group.iter().map(|(_, staged)| staged.number()).collect();
        // Whoever fails by it says so below.
        let _ = self.send_held(&numbers, false);
        let taken: Vec<_> = numbers.iter().map(|number| self.held.take(*number)).collect();
        let mut results: Vec<Option<Result<()>>> = Vec::new();
        let mut renamed = Vec::new();
        for ((small, (entry, staged)), at) in taken.into_iter().zip(group).zip(0..) {
            results.push(match small {
                None => Some(Err(not_staged())),
                Some(Small { failure: Some(failure), .. }) => Some(Err(failure)),
                Some(small) => {
                    renamed.push((at, small.path, *entry, staged.rule()));
                    None
                }
            });
        }
        let asked: Vec<_> = renamed.iter().map(|(_, path, entry, rule)| (&path[..], *entry, *rule)).collect();
        for ((at, path, ..), result) in renamed.iter().zip(self.publish_group(&asked)) {
            if result.is_err() {
                let _ = self.server.remove(path);
            }
            let at: usize = *at;
            results[at] = Some(result);
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(not_staged()))).collect()
    }

    pub fn discard_held(&self, number: u64) {
        if let Some(small) = self.held.take(number) {
            self.discard_small(&small);
        }
    }

    fn put_back(&self, number: u64, small: Small) {
        let bytes = small.bytes.len();
        self.held.put_back(number, small, bytes);
    }

    fn discard_small(&self, small: &Small) {
        if small.is_sent {
            let _ = self.server.remove(&small.path);
        }
    }

    pub fn discard_all(&self) {
        self.held.take_all().into_iter().for_each(|small| self.discard_small(&small));
    }

    pub fn reread_held(&self, number: u64, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.send_held(&[number], false)?;
        let small = self.held.take(number).ok_or_else(not_staged)?;
        let path = small.path.clone();
        let read = match &small.failure {
            Some(failure) => Err(Error::of_kind(failure.kind, "write file", &path[..], &failure.message())),
            None => self.server.read_all(&path, small.size_bytes, check),
        };
        self.put_back(number, small);
        read
    }
}

pub struct SmallLane<R> {
    job: Arc<Job<R>>,
    open: Option<(Vec<u8>, PublishRule)>,
}

impl<R: Remote> SmallLane<R> {
    pub fn new(job: Arc<Job<R>>) -> SmallLane<R> {
        SmallLane { job, open: None }
    }
}

impl<R: Remote> SinkLane for SmallLane<R> {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.may_write()?;
        self.job.path(entry)?;
        self.open = Some((Vec::new(), rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.open.as_mut().expect("write follows create").0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, entry: &Entry, sync: bool) -> Result<Staged> {
        let (bytes, rule) = self.open.take().expect("seal follows create");
        let small = Small {
            path: self.job.staged_path(entry, &self.job.next_mark())?,
            mode: self.job.mode(entry),
            attributes: self.job.attributes(entry),
            size_bytes: bytes.len() as u64,
            bytes,
            wants_sync: sync,
            is_sent: false,
            is_synced: false,
            failure: None,
        };
        let bytes = small.bytes.len();
        Ok(Staged::new(0, self.job.held.put(small, bytes), rule))
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(&[(entry, staged)]).remove(0)
    }
}
