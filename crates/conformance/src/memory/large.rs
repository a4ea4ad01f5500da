//! Large objects: an upload under a stem, with a journal, held by one attempt at a time.

use super::sink::Job;
use super::tree::Body;
use super::{Call, Flaw, Order, State, Upload};
use model::{Entry, Extent, ExtentSet, FailureKind};
use std::sync::Arc;
use store::{Error, PublishRule, Result, StagedFile};

pub struct MemoryLarge {
    job: Arc<Job>,
    stem: String,
}

fn refused(why: &str) -> Error {
    Error::of_kind(FailureKind::WriteError, "write file", b"", why)
}

impl MemoryLarge {
    pub fn begin(job: Arc<Job>, entry: &Entry, stem: &str) -> Result<(MemoryLarge, Vec<u8>)> {
        job.shared.faults.meet(Call::Begin)?;
        job.above(entry)?;
        let mut state = job.shared.state();
        let mut stem = if job.shared.has(Flaw::IgnoresStems) { "stem" } else { stem }.to_owned();
        let is_held = state.uploads.get(&stem).is_some_and(|upload| upload.is_held);
        if is_held && !job.shared.has(Flaw::SharesUploads) {
            stem = format!("{stem}-{}", state.number());
        }
        let upload = state.uploads.entry(stem.clone()).or_default();
        upload.is_held = true;
        let journal = if job.shared.has(Flaw::ForgetsJournals) { Vec::new() } else { upload.journal.clone() };
        drop(state);
        if job.shared.has(Flaw::PublishesWhenBegun) {
            job.publish(entry, Body::File(Arc::from(*b"")), PublishRule::Replace)?;
        }
        Ok((MemoryLarge { job, stem }, journal))
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.job.shared.has(flaw)
    }

    /// Works on the upload, while it is there.
    fn on<T>(&self, work: impl FnOnce(&mut Upload) -> Result<T>) -> Result<T> {
        let mut state = self.job.shared.state();
        let State { uploads, .. } = &mut *state;
        work(uploads.get_mut(&self.stem).ok_or_else(|| refused("its staging is gone"))?)
    }

    /// Bytes that come in parts follow each other.
    fn append(&self, upload: &mut Upload, part_bytes: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset != upload.data.len() as u64 && !self.has(Flaw::TakesGaps) {
            return Err(refused("its parts come one after another"));
        }
        upload.data.extend_from_slice(bytes);
        upload.in_parts = upload.data.len() / part_bytes * part_bytes;
        Ok(())
    }
}

impl StagedFile for MemoryLarge {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.job.shared.faults.meet(Call::WriteAt)?;
        self.on(|upload| {
            if let Order::Parts(part_bytes) = self.job.shared.rules.order {
                return self.append(upload, part_bytes, offset, bytes);
            }
            let start = if self.has(Flaw::AppendsChunks) { upload.data.len() } else { offset as usize };
            let end = start + bytes.len();
            let filler = if self.has(Flaw::FillsGapsWithOnes) { 1 } else { 0 };
            upload.data.resize(upload.data.len().max(end), filler);
            upload.data[start..end].copy_from_slice(bytes);
            Ok(())
        })
    }

    fn clear(&self, extent: Extent) -> Result<()> {
        self.write_at(extent.start, &vec![0; extent.length() as usize])
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let offset = if self.has(Flaw::ReadsStagedFromTheStart) { 0 } else { offset };
        self.on(|upload| {
            let rest = &upload.data[(offset as usize).min(upload.data.len())..];
            let read = rest.len().min(buffer.len());
            buffer[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        self.job.shared.faults.meet(Call::Journal)?;
        self.on(|upload| {
            if self.has(Flaw::OverwritesJournals) {
                upload.journal.clear();
            }
            upload.journal.extend_from_slice(bytes);
            Ok(())
        })
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        self.on(|upload| {
            if !self.has(Flaw::NeverCutsJournals) {
                upload.journal.truncate(length as usize);
            }
            Ok(())
        })
    }

    fn seal_extent(&self, _: Extent, record: &[u8]) -> Result<()> {
        if self.has(Flaw::ForgetsSealedExtents) || record.is_empty() { Ok(()) } else { self.append_journal(record) }
    }

    fn settle(&self, size_bytes: u64) -> Result<()> {
        self.on(|upload| {
            if self.has(Flaw::CutsWhatIsSettled) {
                upload.data.truncate(size_bytes as usize / 2);
            }
            Ok(())
        })
    }

    fn checkpoint(&self) -> Result<()> {
        self.job.shared.faults.meet(Call::Checkpoint)?;
        self.on(|_| Ok(()))
    }

    /// What is not in a whole part is lost with the attempt.
    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        let mut confirmed = held.clone();
        if self.job.shared.rules.order != Order::Any {
            let in_parts = self.on(|upload| Ok(upload.in_parts as u64)).unwrap_or(0);
            confirmed.remove(Extent::new(in_parts, u64::MAX));
        }
        confirmed
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.job.shared.faults.meet(Call::Reread)?;
        let data = self.on(|upload| Ok(upload.data.clone()))?;
        let end = if self.has(Flaw::RereadsHalfOfUploads) { data.len() / 2 } else { data.len() };
        data[..end].chunks(1 << 16).for_each(check);
        Ok(())
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.job.shared.faults.meet(Call::Publish)?;
        let mut data = self.on(|upload| Ok(upload.data.clone()))?;
        let size = entry.size_bytes() as usize;
        if self.job.shared.rules.order != Order::Any && data.len() != size {
            return Err(Error::of_entry(FailureKind::WriteError, "publish", entry, "a part is missing"));
        }
        data.resize(size, if self.has(Flaw::FillsGapsWithOnes) { 1 } else { 0 });
        if self.has(Flaw::LosesLastByteOfUploads) {
            data.pop();
        }
        let rule = if self.has(Flaw::IgnoresNoReplaceOfUploads) { PublishRule::Replace } else { rule };
        self.job.publish(entry, Body::File(data.into()), rule)?;
        match self.job.shared.flaw {
            Some(Flaw::KeepsPublishedUploads) => {}
            Some(Flaw::KeepsJournals) => self.on(|upload| {
                upload.data.clear();
                Ok(())
            })?,
            _ => _ = self.job.shared.state().uploads.remove(&self.stem),
        }
        Ok(())
    }

    fn discard(&self) {
        if !self.has(Flaw::KeepsDiscardedUploads) {
            self.job.shared.state().uploads.remove(&self.stem);
        }
    }
}

impl Drop for MemoryLarge {
    /// The attempt is over. What it had in parts stays for the next one, if it left a journal.
    fn drop(&mut self) {
        let mut state = self.job.shared.state();
        let Some(upload) = state.uploads.get_mut(&self.stem) else { return };
        upload.is_held = false;
        if self.job.shared.rules.order != Order::Any {
            upload.data.truncate(upload.in_parts);
        }
        if upload.journal.is_empty() && !self.has(Flaw::KeepsDiscardedUploads) {
            state.uploads.remove(&self.stem);
        }
    }
}
