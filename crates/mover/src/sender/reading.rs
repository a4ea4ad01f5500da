//! What the lanes of a sender have in common of what they read: the open files of large objects, and the digests.
//!
//! Invariant: a file that can be opened again is open only until all of it was read. As many would be open otherwise as may wait to
//! be settled.

use super::SendJob;
use model::{Digest, End, Extent};
use std::sync::Arc;
use store::{SourceFile, SourceObject};

impl SendJob {
    /// The open file of a large object, shared by its lanes.
    pub(crate) fn file(
        &self,
        object: &SourceObject,
        open: &mut dyn FnMut() -> store::Result<Arc<dyn SourceFile>>,
    ) -> store::Result<Arc<dyn SourceFile>> {
        if let Some(file) = self.book.lock().unwrap().files.get(&object.entry.id.0) {
            return Ok(file.clone());
        }
        let opened = open()?;
        let mut book = self.book.lock().unwrap();
        Ok(book.files.entry(object.entry.id.0).or_insert(opened).clone())
    }

    /// Notes that a chunk's content was read; true when it was the last of its object.
    pub(crate) fn chunk_was_read(&self, object: &SourceObject, extent: Extent, digest: Digest, ended: bool) -> bool {
        let id = object.entry.id.0;
        let mut book = self.book.lock().unwrap();
        if self.observer.as_ref().is_some_and(|o| o.wants_delivered()) {
            book.digests.entry(id).or_default().insert(extent.start, digest);
        }
        if ended {
            book.final_bytes.insert(id, extent.end);
        }
        let is_read = book.split.chunk_was_read(id, extent.start, ended);
        if is_read && object.end == End::Known {
            // What is asked for again is opened again.
            book.files.remove(&id);
        }
        is_read
    }

    /// Keeps digests of small objects for the observer.
    pub(crate) fn note_digests(&self, digests: &mut dyn Iterator<Item = (u64, Digest)>) {
        if self.observer.as_ref().is_some_and(|o| o.wants_delivered()) {
            let mut book = self.book.lock().unwrap();
            for (id, digest) in digests {
                book.digests.entry(id).or_default().insert(0, digest);
            }
        }
    }
}
