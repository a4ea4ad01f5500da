//! Small files on their way: one under way in each lane, then held until a group of them is sent and published, many at once.
//!
//! Invariant: what was sent and is not published is removed.

use crate::held::Small;
use crate::job::{Complete, Job};
use crate::reading::DavFile;
use model::{Entry, FailureKind};
use simd_adler32::Adler32;
use std::sync::Arc;
use store::{Error, PublishRule, Result, SinkLane, Staged};

pub struct DavSinkLane {
    job: Arc<Job>,
    open: Option<(Vec<u8>, PublishRule)>,
}

fn not_staged() -> Error {
    Error::of_kind(FailureKind::Other, "publish", b"", "it is not staged")
}

impl Job {
    /// Sends a file, if it was not.
    fn send(&self, small: &mut Small) -> Result<Vec<u8>> {
        if let Some(path) = &small.sent {
            return Ok(path.clone());
        }
        let path = self.staged_path()?;
        let sent = self.time(&small.entry).and_then(|headers| {
            let put = self.site.put(&path, &headers, &small.bytes);
            put.map_err(|failure| failure.on("write file", small.entry.name.as_bytes()))
        });
        match sent {
            Ok(()) => {
                small.sent = Some(path.clone());
                Ok(path)
            }
            Err(error) => {
                // It may be there in part.
                self.remove_staged(&path);
                Err(error)
            }
        }
    }

    pub fn publish_held(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let mut small = self.held.take(staged.number()).ok_or_else(not_staged)?;
        let path = self.send(&mut small)?;
        let complete = Complete { staged: &path, entry, rule: staged.rule(), adler: small.adler };
        self.publish(&complete).inspect_err(|_| self.remove_staged(&path))
    }

    pub fn discard_held(&self, number: u64) {
        if let Some(path) = self.held.take(number).and_then(|small| small.sent) {
            self.remove_staged(&path);
        }
    }

    pub fn discard_all(&self) {
        for path in self.held.take_all().into_iter().filter_map(|small| small.sent) {
            self.remove_staged(&path);
        }
    }

    pub fn reread_held(&self, number: u64, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut small = self.held.take(number).ok_or_else(not_staged)?;
        let read = self.send(&mut small).and_then(|path| self.reread(&path, check));
        let bytes = small.bytes.len();
        self.held.put_back(number, small, bytes);
        read
    }

    /// What the server returns of a staged file.
    pub fn reread(&self, staged: &[u8], check: &mut dyn FnMut(&[u8])) -> Result<()> {
        let file = DavFile::open(&self.site, staged)?;
        let whole = model::Extent { start: 0, end: u64::MAX };
        let read = file.extent(whole, &mut vec![0; 128 << 10], &mut |bytes| {
            check(bytes);
            true
        });
        read.map(drop)
    }
}

impl DavSinkLane {
    pub fn new(job: Arc<Job>) -> DavSinkLane {
        DavSinkLane { job, open: None }
    }
}

impl SinkLane for DavSinkLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.may_write()?;
        self.job.path(entry)?;
        self.open = Some((Vec::with_capacity(entry.size_bytes().min(1 << 20) as usize), rule));
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.open.as_mut().expect("write follows create").0.extend_from_slice(bytes);
        Ok(())
    }

    fn seal(&mut self, entry: &Entry, _: bool) -> Result<Staged> {
        let (bytes, rule) = self.open.take().expect("seal follows create");
        let mut adler = Adler32::new();
        adler.write(&bytes);
        let length = bytes.len();
        let small = Small { entry: entry.clone(), bytes, adler: adler.finish(), sent: None };
        Ok(Staged::new(0, self.job.held.put(small, length), rule))
    }

    fn abandon(&mut self) {
        self.open = None;
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        self.job.publish_held(entry, staged)
    }
}
