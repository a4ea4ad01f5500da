//! Where a cache's transfers write: every file under what it is known by, in one directory, whatever its path in the set is.
//!
//! Invariants:
//! - A file is told of as held when it has its name, and a chunk when it was compared and written.
//! - Only files that the catalogue lists are taken.
//!
//! Not here: what is fetched (`upstream`), and what the names lead to (`hold`).

use super::hold::{Hold, OfSet, name_of};
use super::shelf::Key;
use model::set::Catalogue;
use model::{Digest, Entry, Extent, ExtentSet, FailureKind, Kind, Location, Name, ObjectId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use store::open::{OpenError, OpenSink, OpenSource, Opener, SinkRequest};
use store::posix::PosixSink;
use store::{
    Abilities, Decision, Error, PublishRule, Result, Sink, SinkFacts, SinkLane, SourceFile, Staged, StagedFile, There,
};

/// The directory as the destination of one transfer.
pub struct Blobs {
    pub hold: Arc<Hold>,
    pub set: OfSet,
    /// What is fetched of it.
    pub catalogue: Arc<Catalogue>,
}

impl Opener for Blobs {
    fn source(&self, _: &[Location], _: &model::TransferOptions) -> std::result::Result<OpenSource, OpenError> {
        Err(OpenError::NoStore("a cache as a source".to_owned()))
    }

    fn sink(&self, _: &Location, _: &SinkRequest<'_>) -> std::result::Result<OpenSink, OpenError> {
        let directory = self.hold.directory().clone();
        let inner = Arc::new(PosixSink::new(directory.clone(), directory, Some((0o600, 0o700))));
        let keys =
            Arc::new(Keys { set: self.set.clone(), catalogue: self.catalogue.clone(), directories: Mutex::default() });
        Ok(OpenSink::new(Arc::new(BlobSink { inner, hold: self.hold.clone(), keys }), None))
    }
}

/// What the files of a transfer are called here.
struct Keys {
    set: OfSet,
    catalogue: Arc<Catalogue>,
    /// Paths, with a slash behind.
    directories: Mutex<HashMap<ObjectId, Vec<u8>>>,
}

impl Keys {
    fn path(&self, entry: &Entry) -> Vec<u8> {
        let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let above = directories.get(&entry.parent).map_or(&[][..], |path| path);
        [above, entry.name.as_bytes()].concat()
    }

    fn add_directory(&self, entry: &Entry) {
        let path = [&self.path(entry)[..], b"/"].concat();
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).insert(entry.id, path);
    }

    /// The file of an entry: its key, its size, and the entry under which it is kept.
    fn find(&self, entry: &Entry) -> Result<(Key, Entry)> {
        let path = self.path(entry);
        let number = self.catalogue.find(&path).filter(|_| entry.kind == Kind::File);
        let number = number
            .ok_or_else(|| Error::of_kind(FailureKind::NameRefused, "write", path, "it is not in the catalogue"))?;
        let key = self.set.0.key(&self.catalogue.files()[number]);
        Ok((key, Entry { name: name_of(&key), parent: ObjectId::ROOT, ..entry.clone() }))
    }

    fn renamed(&self, entry: &Entry) -> Result<Entry> {
        self.find(entry).map(|(_, entry)| entry)
    }
}

struct BlobSink {
    inner: Arc<PosixSink>,
    hold: Arc<Hold>,
    keys: Arc<Keys>,
}

impl Sink for BlobSink {
    fn facts(&self) -> Result<SinkFacts> {
        let facts = self.inner.facts()?;
        let can = Abilities {
            compare: false,
            prune: false,
            amend: false,
            touch: false,
            hard_links: false,
            views: false,
            backup: false,
            ..facts.can
        };
        Ok(SinkFacts { can, ..facts })
    }

    fn enter(&self, _: &Name) -> Result<()> {
        Ok(())
    }

    fn make_directory(&self, entry: &Entry) -> Result<()> {
        self.keys.add_directory(entry);
        Ok(())
    }

    fn make_symlink(&self, entry: &Entry, _: PublishRule) -> Result<bool> {
        Err(Error::of_kind(FailureKind::Special, "skip", entry.name.as_bytes(), "a set holds files alone"))
    }

    fn decide(&self, entry: &Entry) -> Result<Decision> {
        if entry.kind != Kind::File {
            return Ok(Decision::Absent);
        }
        let (key, renamed) = self.keys.find(entry)?;
        match self.inner.decide(&renamed)? {
            // The account knows nothing of it, so that it was wanted: nobody would hear that it is there.
            Decision::Same if !self.hold.holds(&key) => {
                let there = There { is_file: true, modified: entry.generation.modified };
                Ok(Decision::Replace { size_bytes: entry.generation.size_bytes, there })
            }
            decision => Ok(decision),
        }
    }

    fn lane(&self, is_published_at_once: bool) -> Result<Box<dyn SinkLane>> {
        let lane = self.inner.lane(is_published_at_once)?;
        Ok(Box::new(BlobLane { lane, hold: self.hold.clone(), keys: self.keys.clone() }))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (key, renamed) = self.keys.find(entry)?;
        let (file, journal) = self.inner.begin(&renamed, stem)?;
        self.hold.begins(key, file.clone());
        let (hold, keys) = (self.hold.clone(), self.keys.clone());
        let (chunk_bytes, size_bytes) = (keys.catalogue.chunk_bytes, entry.generation.size_bytes);
        Ok((Arc::new(BlobFile { file, key, chunk_bytes, size_bytes, hold, keys }), journal))
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        self.keys.renamed(entry).is_ok_and(|entry| self.inner.has_journal(&entry, stem))
    }

    fn drop_staged(&self, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
        self.inner.drop_staged(is_needless);
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> Result<bool> {
        self.inner.sync_group(group)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> Result<()> {
        let (key, renamed) = self.keys.find(entry)?;
        self.inner.publish(&renamed, staged)?;
        self.hold.arrived(&key, renamed.generation.size_bytes);
        Ok(())
    }

    fn discard(&self, staged: Staged) {
        self.inner.discard(staged);
    }

    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.inner.reread(&self.keys.renamed(entry)?, staged, check)
    }

    fn sync_names(&self) -> Result<()> {
        self.inner.sync_names()
    }

    fn finish_directory(&self, _: &Entry) -> Result<()> {
        Ok(())
    }

    fn close(&self) {
        self.inner.close();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        self.keys.path(entry)
    }
}

struct BlobLane {
    lane: Box<dyn SinkLane>,
    hold: Arc<Hold>,
    keys: Arc<Keys>,
}

impl SinkLane for BlobLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.lane.create(&self.keys.renamed(entry)?, rule)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.lane.write(bytes)
    }

    fn skip(&mut self, count: u64) -> Result<()> {
        self.lane.skip(count)
    }

    fn seal(&mut self, entry: &Entry, sync: bool) -> Result<Staged> {
        self.lane.seal(&self.keys.renamed(entry)?, sync)
    }

    fn abandon(&mut self) {
        self.lane.abandon();
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> Result<()> {
        let (key, renamed) = self.keys.find(entry)?;
        self.lane.publish(&renamed, staged)?;
        self.hold.arrived(&key, renamed.generation.size_bytes);
        Ok(())
    }
}

struct BlobFile {
    file: Arc<dyn StagedFile>,
    key: Key,
    chunk_bytes: u64,
    size_bytes: u64,
    hold: Arc<Hold>,
    keys: Arc<Keys>,
}

impl StagedFile for BlobFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn share_from(&self, source: &dyn SourceFile) -> bool {
        self.file.share_from(source)
    }

    fn copy_from(&self, source: &dyn SourceFile, extent: Extent) -> u64 {
        self.file.copy_from(source, extent)
    }

    fn clear(&self, extent: Extent) -> Result<()> {
        self.file.clear(extent)
    }

    fn allocated_bytes(&self) -> u64 {
        self.file.allocated_bytes()
    }

    fn resume(&self, held_bytes: u64) -> Result<()> {
        self.file.resume(held_bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn kept(&self, recorded: &[(Extent, Digest)]) -> Option<Vec<bool>> {
        self.file.kept(recorded)
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        self.file.append_journal(bytes)
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        self.file.truncate_journal(length)
    }

    /// It was compared and is written.
    fn seal_extent(&self, extent: Extent, record: &[u8]) -> Result<()> {
        self.file.seal_extent(extent, record)?;
        let length = self.chunk_bytes.min(self.size_bytes.saturating_sub(extent.start));
        if extent.start.is_multiple_of(self.chunk_bytes) && extent.length() == length {
            self.hold.has_chunk(&self.key, extent.start / self.chunk_bytes);
        }
        Ok(())
    }

    fn settle(&self, size_bytes: u64) -> Result<()> {
        self.file.settle(size_bytes)
    }

    fn checkpoint(&self) -> Result<()> {
        self.file.checkpoint()
    }

    fn confirmed(&self, held: &ExtentSet) -> ExtentSet {
        self.file.confirmed(held)
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.file.reread(check)
    }

    fn make_durable(&self, entry: &Entry) -> Result<()> {
        self.file.make_durable(&self.keys.renamed(entry)?)
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        self.file.publish(&self.keys.renamed(entry)?, rule)?;
        self.hold.arrived(&self.key, self.size_bytes);
        Ok(())
    }

    fn discard(&self) {
        self.file.discard();
    }
}
