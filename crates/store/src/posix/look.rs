//! Looking at what stands in a destination, without changing it; and the one change that needs no new content, a time.

use super::shared::{OPEN_DIRECTORY, times_of};
use super::sink::PosixSink;
use super::source::PosixFile;
use super::{facts, list, spelling};
use crate::sink::Sink;
use crate::source::SourceFile;
use crate::{Error, Result};
use model::change::cause;
use model::mutant;
use model::{Entry, FailureKind, Kind, Name, ObjectId};
use os::fs::{fsync, futimens};
use rustix::fs::{FileType, fstat, readlinkat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

impl PosixSink {
    /// Enters a directory of the destination into the tree; one that is missing counts as fresh.
    pub(super) fn look_for_directory(&self, entry: &Entry) -> Result<()> {
        let tree = &self.shared.tree;
        let is_missing = tree.is_fresh(entry.parent.0) || {
            let parent = self.shared.open_directory(entry)?;
            match tree.bounds.open_child(parent.as_fd(), &entry.name) {
                Ok(there) => {
                    let status = fstat(&there).map_err(|e| self.error("look at", entry, e))?;
                    if self.is_another(&parent, entry, &status) {
                        let path = self.path(entry);
                        return Err(Error::of_kind(FailureKind::InTheWay, "look at", path, spelling::ANOTHER));
                    }
                    false
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => true,
                Err(e) => return Err(self.no_directory(entry, e)),
            }
        };
        tree.insert(entry.id.0, entry.parent.0, entry.name.clone(), is_missing);
        Ok(())
    }

    /// As `Sink::enter`, without making the directory.
    pub(crate) fn look_into(&self, name: &Name) -> Result<()> {
        let tree = &self.shared.tree;
        let fail = |e: io::Error| Error::new(OPEN_DIRECTORY, name.as_bytes(), e);
        let here = tree.open(ObjectId::ROOT.0).map_err(fail)?;
        match tree.bounds.resolve_directory(here.as_fd(), std::slice::from_ref(name)) {
            Ok(below) => tree.insert_base(ObjectId::ROOT.0, Arc::new(below), b""),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let above = self.shared.scratch_number();
                tree.insert_base(above, here, b"");
                tree.insert(ObjectId::ROOT.0, above, name.clone(), true);
            }
            Err(e) => return Err(fail(e)),
        }
        Ok(())
    }

    /// Why a name cannot be used as a directory.
    pub(super) fn no_directory(&self, entry: &Entry, e: io::Error) -> Error {
        match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOTDIR | Errno::LOOP) => {
                let why = "a file or symbolic link stands where a directory is needed";
                Error::of_kind(FailureKind::InTheWay, "make directory", crate::Sink::path(self, entry), why)
            }
            _ => self.error(OPEN_DIRECTORY, entry, e),
        }
    }

    /// The target of the symbolic link that stands at an entry's name.
    pub(crate) fn link_at(&self, entry: &Entry) -> Result<Option<Vec<u8>>> {
        if self.shared.tree.is_fresh(entry.parent.0) {
            return Ok(None);
        }
        let directory = self.shared.open_directory(entry)?;
        let target = readlinkat(&directory, entry.name.as_c_str(), Vec::new());
        Ok(target.ok().map(|target| target.into_bytes()))
    }

    /// Gives a file whose content is that of its source what else the source has.
    pub(super) fn amend_at(&self, entry: &Entry) -> Result<u32> {
        if !self.shared.keeper.fidelity.has_attributes() {
            return Ok(0);
        }
        let file = self.open_file_at(entry)?;
        let changed = self.shared.keep(file.as_fd(), entry, true);
        if changed != 0 {
            self.settle(&file, entry)?;
        }
        Ok(changed)
    }

    /// What differs of a file, or of a directory that is in the tree, besides content.
    pub(super) fn differences_at(&self, entry: &Entry) -> Result<u32> {
        if !self.shared.keeper.fidelity.has_attributes() {
            return Ok(0);
        }
        let file;
        let directory;
        let object = if entry.kind == Kind::Directory {
            directory = self.shared.tree.open(entry.id.0).map_err(|e| self.error(OPEN_DIRECTORY, entry, e))?;
            directory.as_fd()
        } else {
            file = self.open_file_at(entry)?;
            file.as_fd()
        };
        let differences = self.shared.keeper.differences(object, entry, self.shared.chmod_of(entry));
        let differences = differences.map_err(|e| self.error("look at", entry, e))?;
        let had = match entry.kind {
            Kind::Directory => self.shared.unfinished.lock().unwrap().get(&entry.id.0).copied(),
            _ => None,
        };
        // One that this job has opened for itself is compared as it was.
        let is_set = self.shared.keeper.fidelity.mode || self.shared.chmod.is_some();
        let is_other = |had: u32| is_set && had & 0o1777 != self.shared.mode_of(entry);
        Ok(had.map_or(differences, |had| differences & !cause::MODE | if is_other(had) { cause::MODE } else { 0 }))
    }

    fn open_file_at(&self, entry: &Entry) -> Result<OwnedFd> {
        let directory = self.shared.open_directory(entry)?;
        let bounds = self.shared.tree.bounds;
        let file = bounds.open_file(directory.as_fd(), &entry.name).map_err(|e| self.error("open file", entry, e))?;
        let status = fstat(&file).map_err(|e| self.error("look at", entry, e))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            let path = crate::Sink::path(self, entry);
            return Err(Error::of_kind(FailureKind::InTheWay, "open file", path, "it is no file any more"));
        }
        Ok(file)
    }

    pub(super) fn open_at(&self, entry: &Entry) -> Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(PosixFile { file: self.open_file_at(entry)?.into() }))
    }

    /// Gives a file whose content is that of its source the source's time.
    pub(super) fn set_time(&self, entry: &Entry) -> Result<()> {
        let file = self.open_file_at(entry)?;
        let status = fstat(&file).map_err(|e| self.error("look at", entry, e))?;
        if list::generation_of(&status).modified != entry.generation.modified {
            futimens(&file, &times_of(entry.generation.modified)).map_err(|e| self.error("set time", entry, e))?;
            self.settle(&file, entry)?;
        }
        Ok(())
    }

    /// What was set of a file that is visible already: the wait for names covers it only where that is the wait for a
    /// journal.
    fn settle(&self, file: &OwnedFd, entry: &Entry) -> Result<()> {
        let is_covered = facts::has_local_journal(file.as_fd()) || facts::is_memory_backed(file.as_fd());
        if is_covered || mutant::is_on("forget-amended") {
            return Ok(());
        }
        fsync(file).map_err(|e| self.error("write to storage (fsync)", entry, e))
    }
}
