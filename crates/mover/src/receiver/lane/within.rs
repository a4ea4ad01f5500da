//! The writer where the source is in this process too: content that the file system shares, that the kernel copies, holes, and what
//! of an object only reading told.
//!
//! Invariant: what is gone over was put in place by the kernel, or reads as zeros.

use super::{Coming, Expected, Listed, OpenChunk, Outcome, PackedFile, Target, Writer};
use crate::receiver::commit;
use crate::receiver::queue::Item;
use model::progress::Stage;
use model::{Entry, Extent, Kind};
use std::borrow::Cow;
use std::sync::Arc;
use store::{Durability, SourceFile};

impl PackedFile<'_> {
    /// The entry as it is known now.
    pub(super) fn entry<'a>(&self, described: &'a Entry) -> Cow<'a, Entry> {
        let Some(late) = self.late else { return Cow::Borrowed(described) };
        let mut entry = described.clone();
        (entry.generation.modified, entry.mode) = (late.modified, late.mode);
        Cow::Owned(entry)
    }
}

impl Writer<'_> {
    /// Makes the symbolic link that a file turned out to be.
    pub(super) fn link(&self, listed: &Arc<Listed>, index: usize, file: &PackedFile<'_>, outcome: &mut Outcome) {
        let (job, Expected { entry, rule, .. }) = (self.job, listed.expected(index));
        let mut entry = file.entry(entry).into_owned();
        entry.kind = Kind::Symlink(file.bytes.into());
        entry.generation.size_bytes = 0;
        if let Err(e) = job.sink.make_symlink(&entry, *rule) {
            return job.fail(listed, index, e.kind, e.message());
        }
        let id = entry.id.0;
        job.table.lock().unwrap().settle(id);
        job.let_go([id].into_iter());
        match job.durability {
            Durability::Group => job.committer.push(Item::Link(id), &job.end),
            Durability::File => commit::confirm(job, Outcome { links: vec![id], ..Outcome::default() }),
            Durability::None => outcome.links.push(id),
        }
    }

    /// Has what the open chunk is written to share the blocks of its source; true when the chunk's content is there.
    pub fn share(&mut self, source: &dyn SourceFile) -> bool {
        let Some(OpenChunk { coming: Coming { header, .. }, target, error: None, .. }) = &mut self.open else {
            return false;
        };
        let length = header.extent.length();
        self.clock.enter(Stage::Write);
        let is_shared = match target {
            Target::Small(..) => self.sink.share_from(source),
            Target::Large(large, file, ..) => large.share(file, source),
            Target::Drop | Target::Held(..) | Target::Unopened(_) => false,
        };
        if is_shared {
            self.pass(length);
        }
        self.clock.enter(Stage::Open);
        is_shared
    }

    /// Chunks of the open object come without a digest.
    pub fn forgo_journal(&self) {
        if let Some(OpenChunk { target: Target::Large(large, file, ..), .. }) = &self.open {
            large.forgo_journal(file);
        }
    }

    /// Has the kernel copy from the source what comes next; returns how much of it was copied. Whatever went wrong comes up
    /// again when the rest is written.
    pub fn copy_from(&mut self, source: &dyn SourceFile, extent: Extent) -> u64 {
        let Some(OpenChunk { target, error: None, at, .. }) = &mut self.open else { return 0 };
        debug_assert_eq!(*at, extent.start);
        self.clock.enter(Stage::Write);
        let copied = match target {
            Target::Small(..) => self.sink.copy_from(source, extent),
            Target::Large(_, file, ..) => file.copy_from(source, extent),
            Target::Drop | Target::Held(..) | Target::Unopened(_) => 0,
        };
        self.pass(copied);
        self.clock.enter(Stage::Open);
        copied
    }

    /// Goes over a hole of the source.
    pub fn hole(&mut self, bytes: u64) {
        self.clock.enter(Stage::Write);
        if let Some(OpenChunk { target: Target::Large(_, file, ..), at, error: error @ None, .. }) = &mut self.open {
            *error = file.clear(Extent::new(*at, *at + bytes)).err();
        }
        if let Some(open) = &mut self.open {
            open.is_hole = bytes == open.coming.header.extent.length();
        }
        self.pass(bytes);
        self.clock.enter(Stage::Open);
    }

    /// Whether what the open chunk is written to has a place of its own for each byte, so that some can be left out.
    pub fn has_places(&self) -> bool {
        let is_stored = matches!(&self.open, Some(OpenChunk { target: Target::Small(..) | Target::Large(..), .. }));
        is_stored && self.job.facts.can.holes
    }

    fn pass(&mut self, bytes: u64) {
        let Some(open) = &mut self.open else { return };
        open.at += bytes;
        if let Target::Small(..) = open.target
            && open.error.is_none()
            && bytes > 0
        {
            open.error = self.sink.skip(bytes).err();
        }
    }
}
