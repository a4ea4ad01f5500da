//! Staging of one large object: its data file and its journal.
//!
//! Invariants:
//! - The journal's lock is held while an attempt works on the pair; a second attempt gets a pair of its own.
//! - A journal counts only beside the data it was written for: data that was made anew has nothing.
//! - Data is synced before the journal in a checkpoint, so that the journal never claims more than storage holds.
//! - After a failed write or sync the pair is removed, not used again (F072).

use super::apart::is_apart;
use super::content::{read_back, write_all, write_all_at};
use super::shared::{Shared, times_of};
use super::staging::{Staging, file_name, open_staged, random};
use super::view::View;
use super::wait::once;
use super::{blocks, within};
use crate::sink::{PublishRule, StagedFile};
use crate::{Error, Result, SourceFile};
use model::{Entry, Extent, FailureKind, Name, ObjectId, mutant};
use os::fs::{chmodat, chownat, fallocate, fchmod, fdatasync, fsync, ftruncate, futimens, unlinkat};
use rustix::fs::{AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, statat};
use rustix::io::{Errno, retry_on_intr};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A journal is a header and 64 bytes for each chunk of at least 1 MiB: this is enough for 256 TiB, and a bound for a
/// file that is not ours.
const JOURNAL_BYTES_MAX: u64 = 16 << 30;

/// When a file's room on its storage is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Reserved,
    AsWritten,
    /// The file is as long as what was written to it: its size is not known.
    Growing,
}

pub struct LargeFile {
    shared: Arc<Shared>,
    staging: Arc<Staging>,
    /// The directory that its name is to be in.
    parent: ObjectId,
    /// Where there is a view, that has the file that is written to.
    data: Arc<File>,
    view: Option<View>,
    journal: Mutex<File>,
    data_name: CString,
    journal_name: CString,
    /// Others write to it too, and none of them gives it a name.
    is_part: bool,
    /// It has the size and the metadata of its entry, and was made durable with them.
    is_durable: AtomicBool,
}

impl LargeFile {
    /// What `parts` has opened.
    pub(super) fn of_parts(
        shared: Arc<Shared>,
        (staging, parent): (Arc<Staging>, ObjectId),
        data: (CString, File),
        journal: (CString, File),
        is_part: bool,
    ) -> LargeFile {
        let ((data_name, data), (journal_name, journal)) = (data, journal);
        let (data, journal, is_durable) = (Arc::new(data), Mutex::new(journal), AtomicBool::default());
        LargeFile { shared, staging, parent, data, view: None, journal, data_name, journal_name, is_part, is_durable }
    }

    pub fn open(
        shared: Arc<Shared>,
        entry: &Entry,
        stem: &str,
        room: Room,
        view: Option<&Name>,
    ) -> Result<(LargeFile, Vec<u8>)> {
        let directory = shared.open_directory(entry)?;
        let staging = shared.staging_for_large(entry, stem, &directory)?;
        let path = shared.tree.path(entry.parent.0, entry.name.as_bytes());
        let fail = |e: io::Error| Error::new("create file", path.clone(), e);
        let (journal, stem) = match lock_journal(&staging, stem).map_err(fail)? {
            Some(journal) => (journal, stem.to_owned()),
            None => {
                let own = format!("{stem}-{:016x}", random());
                (lock_journal(&staging, &own).map_err(fail)?.ok_or_else(|| fail(Errno::BUSY.into()))?, own)
            }
        };
        let data_name = file_name(&stem, "data");
        let is_shown = view.is_some_and(|name| View::is_of(directory.as_fd(), name, &staging.directory, &data_name));
        let links_max = if is_shown { 2 } else { 1 };
        if room == Room::Growing {
            drop_what_is_elsewhere(&staging, &data_name, links_max);
        }
        take_back(&staging, &data_name, links_max);
        let opened = open_staged(&staging, &data_name, OFlags::CREATE, links_max).map_err(fail)?;
        shared.give(opened.as_fd(), &staging, entry, 0o600);
        let data = Arc::new(File::from(opened));
        let mode = shared.mode_of(entry) & 0o444;
        let view = view.map(|name| {
            let (given, place, entry) = (shared.clone(), staging.clone(), entry.clone());
            View::new(
                directory,
                name.clone(),
                (staging.directory.clone(), data_name.clone()),
                data.clone(),
                (mode, is_shown),
                Box::new(move |file: BorrowedFd<'_>| given.give(file, &place, &entry, 0o600)),
            )
        });
        let mut file = LargeFile {
            shared,
            staging,
            parent: entry.parent,
            data,
            view,
            journal: Mutex::new(journal),
            data_name,
            journal_name: file_name(&stem, "log"),
            is_part: false,
            is_durable: AtomicBool::default(),
        };
        let size_bytes = (room != Room::Growing).then_some(entry.size_bytes());
        let held = file.read_journal(size_bytes).map_err(fail)?;
        if room == Room::Growing {
            return Ok((file, held));
        }
        file.reserve(entry.size_bytes(), room)
            .map_err(|e| Error::new("write file (reserve its size)", path.clone(), e))?;
        Ok((file, held))
    }

    /// Where no view exchanges it.
    pub(super) fn data(&self) -> Option<BorrowedFd<'_>> {
        self.view.is_none().then(|| self.data.as_fd())
    }

    fn current(&self) -> Arc<File> {
        self.view.as_ref().map_or_else(|| self.data.clone(), View::file)
    }

    /// Gives the data the size and the metadata of its entry.
    fn complete(&self, entry: &Entry) -> Result<()> {
        if self.is_part {
            return Err(Error::of_kind(FailureKind::Other, "publish", b"", "a part of a file has no name"));
        }
        let fail = |e: Errno| Error::new("write file", self.shared.tree.path(entry.parent.0, entry.name.as_bytes()), e);
        if let Some(view) = &self.view {
            view.finish(entry.size_bytes())?;
        }
        let data = &*self.current();
        retry_on_intr(|| ftruncate(data, entry.size_bytes())).map_err(fail)?;
        fchmod(data, Mode::from_raw_mode(self.shared.mode_of(entry))).map_err(fail)?;
        self.shared.keep(data.as_fd(), entry, false);
        futimens(data, &times_of(entry.generation.modified)).map_err(fail)
    }

    /// Gives the staged file its final name.
    fn rename(&self, file: &File, entry: &Entry, rule: PublishRule) -> Result<()> {
        let directory = self.shared.open_directory(entry)?;
        let staged = (&self.staging, self.staging.directory.as_fd(), &*self.data_name);
        let Some(view) = &self.view else {
            return self.shared.publish_file(staged, directory.as_fd(), entry, rule);
        };
        if view.shows(file) {
            // In one step for readers. What is under the final name by then is looked at: others may write to the directory.
            if *view.name() != entry.name {
                self.shared.rename(view.directory(), view.name().as_c_str(), directory.as_fd(), entry, rule)?;
            }
            if is_named(directory.as_fd(), entry.name.as_c_str(), file).is_ok_and(|is_it| is_it) {
                let _ = unlinkat(&self.staging.directory, &self.data_name, AtFlags::empty());
                return Ok(());
            }
        }
        self.shared.publish_file(staged, directory.as_fd(), entry, rule)?;
        view.remove_unless(&entry.name);
        Ok(())
    }

    /// What the journal says of the data, which has its full size as long as the journal is its own. What is said of an object
    /// whose size is not known is for the caller to hold against the data.
    fn read_journal(&mut self, size_bytes: Option<u64>) -> io::Result<Vec<u8>> {
        let journal = self.journal.get_mut().unwrap();
        let mut held = Vec::new();
        let data_bytes = self.data.metadata()?.len();
        let is_whole = size_bytes.is_none_or(|size_bytes| size_bytes == data_bytes);
        if !is_whole && !mutant::is_on("trust-a-journal-alone") {
            // The data was published or dropped by an attempt that died before it removed the journal. What is claimed
            // is not there; nothing may claim it once new data has its size.
            if journal.metadata()?.len() > 0 {
                ftruncate(&*journal, 0)?;
                fdatasync(&*journal)?;
            }
            return Ok(held);
        }
        if journal.metadata()?.len() <= JOURNAL_BYTES_MAX {
            journal.read_to_end(&mut held)?;
        }
        Ok(held)
    }

    /// Gives the file its size, so that lanes may write anywhere and a full disk is noticed now.
    fn reserve(&self, size_bytes: u64, room: Room) -> io::Result<()> {
        if size_bytes == 0 || self.data.metadata()?.len() == size_bytes {
            return Ok(());
        }
        let is_sparse = self.shared.keeper.fidelity.sparse;
        make_room(&self.data, size_bytes, room == Room::Reserved && !is_sparse).inspect_err(|_| self.discard())
    }
}

/// Gives a new file its size, and its room on storage where that can be reserved.
pub(super) fn make_room(file: &File, size_bytes: u64, is_reserved: bool) -> io::Result<()> {
    // On memory-backed storage allocating up front runs alone before the data and only costs (data-path.md).
    if is_reserved && !super::facts::is_memory_backed(file.as_fd()) {
        match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), 0, size_bytes)) {
            Ok(()) => return Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(retry_on_intr(|| ftruncate(file, size_bytes))?)
}

/// An attempt may have died when its data had got its owner and mode, and not its name: it becomes ours again. Whether all
/// else is as it has to be `open_staged` sees.
fn take_back(staging: &Staging, name: &CStr, links_max: u8) {
    let Ok(status) = statat(&staging.directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let is_alone = FileType::from_raw_mode(status.st_mode).is_file() && status.st_nlink <= links_max.into();
    if !is_alone || mutant::is_on("leave-what-was-given-away") {
        return;
    }
    let us = rustix::process::geteuid();
    if status.st_uid != us.as_raw() {
        let _ = chownat(&staging.directory, name, Some(us), None, AtFlags::SYMLINK_NOFOLLOW);
    }
    if status.st_mode & 0o600 != 0o600 {
        let _ = chmodat(&staging.directory, name, Mode::from_raw_mode(0o600), AtFlags::empty());
    }
}

/// An attempt may have died when its data had its final name and still the one in staging, or other names are not what they
/// were: what is in that file is not written to any more.
fn drop_what_is_elsewhere(staging: &Staging, name: &CStr, links_max: u8) {
    let status = statat(&staging.directory, name, AtFlags::SYMLINK_NOFOLLOW);
    if status.is_ok_and(|status| status.st_nlink > links_max.into()) {
        let _ = unlinkat(&staging.directory, name, AtFlags::empty());
    }
}

/// Opens or makes the journal and wins its lock; `None` when another attempt holds it.
fn lock_journal(staging: &Staging, stem: &str) -> io::Result<Option<File>> {
    let name = file_name(stem, "log");
    for _ in 0..3 {
        let journal = open_staged(staging, &name, OFlags::CREATE | OFlags::APPEND, 1)?;
        match retry_on_intr(|| flock(&journal, FlockOperation::NonBlockingLockExclusive)) {
            // The attempt that held it may have removed it in between, or another host may have taken it over: then this
            // descriptor is of a lost file, or of theirs.
            Ok(()) if is_named(staging.directory.as_fd(), &name, &journal)? => return Ok(Some(File::from(journal))),
            Ok(()) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// Whether a name is that of an open file.
fn is_named(directory: BorrowedFd<'_>, name: &CStr, file: impl AsFd) -> io::Result<bool> {
    let opened = fstat(file)?;
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

impl StagedFile for LargeFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(view) = &self.view {
            return view.write_at(offset, bytes);
        }
        let written = match self.shared.keeper.fidelity.sparse {
            true => super::sparse::write_at(self.data.as_fd(), bytes, offset),
            false => write_all_at(self.data.as_fd(), bytes, offset),
        };
        written.map_err(|e| Error::new("write file", b"", e))
    }

    fn share_from(&self, source: &dyn SourceFile) -> bool {
        self.data().zip(blocks::source_file(source)).is_some_and(|(to, from)| within::share(from, to))
    }

    fn copy_from(&self, source: &dyn SourceFile, extent: Extent) -> u64 {
        let ends = self.data().zip(blocks::source_file(source));
        ends.map_or(Ok(0), |(to, from)| within::copy_range(from, to, extent)).unwrap_or(0)
    }

    fn clear(&self, extent: Extent) -> Result<()> {
        within::clear(self.data.as_fd(), extent)
    }

    fn resume(&self, held_bytes: u64) -> Result<()> {
        let resumed = self.view.as_ref().map_or(Ok(()), |view| view.resume(held_bytes));
        // It comes again, to staging from which it can be shown.
        resumed.map_err(|e| {
            let is_found = is_apart(&e) && matches!(self.shared.nearer(&self.staging, self.parent), Ok(Some(_)));
            Error { kind: if is_found { FailureKind::WriteError } else { e.kind }, ..e }
        })
    }

    fn native(&self) -> Option<&dyn Any> {
        // What is written to a view's file is not all that the object has.
        self.view.is_none().then_some(&*self.data as &dyn Any)
    }

    fn allocated_bytes(&self) -> u64 {
        self.current().metadata().map_or(0, |status| status.blocks().saturating_mul(512))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let (data, mut filled) = (self.current(), 0);
        while filled < buffer.len() {
            match os::fs::pread(&*data, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::new("read staged file", b"", e)),
            }
        }
        Ok(filled)
    }

    fn append_journal(&self, bytes: &[u8]) -> Result<()> {
        write_all(self.journal.lock().unwrap().as_fd(), bytes).map_err(|e| Error::new("write journal", b"", e))
    }

    fn truncate_journal(&self, length: u64) -> Result<()> {
        ftruncate(&*self.journal.lock().unwrap(), length).map_err(|e| Error::new("write journal", b"", e))
    }

    fn checkpoint(&self) -> Result<()> {
        let fail = |e: Errno| Error::new("write to storage (fdatasync)", b"", e);
        let data = self.current();
        let shown = self.view.as_ref().and_then(|view| Some((view, view.shown_bytes_of(&data)?)));
        once(|| fdatasync(&*data)).map_err(fail)?;
        if let Some((view, bytes)) = shown {
            view.checkpointed(&data, bytes);
        }
        let journal = self.journal.lock().unwrap();
        once(|| fdatasync(&*journal)).map_err(fail)
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
        read_back(self.current().as_fd(), check).map_err(|e| Error::new("read back", b"", e))
    }

    fn make_durable(&self, entry: &Entry) -> Result<()> {
        self.complete(entry)?;
        if mutant::is_on("skip-large-sync") {
            return Ok(());
        }
        once(|| fsync(&*self.current())).map_err(|e| {
            self.discard();
            Error::new("write to storage (fsync)", b"", e)
        })?;
        self.is_durable.store(true, Relaxed);
        Ok(())
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
        if !self.is_durable.load(Relaxed) {
            self.complete(entry)?;
        }
        let data = &*self.current();
        self.rename(data, entry, rule)?;
        self.view.iter().for_each(|view| view.unmark(data));
        if !mutant::is_on("forget-large-name") {
            self.shared.changed(entry.parent);
        }
        let _ = unlinkat(&self.staging.directory, &self.journal_name, AtFlags::empty());
        Ok(())
    }

    fn discard(&self) {
        if let Some(view) = &self.view {
            view.remove();
        }
        // Of a part only its word is withheld: the journal that stays says that somebody may still write.
        for name in [&self.data_name, &self.journal_name].into_iter().filter(|_| !self.is_part) {
            let _ = unlinkat(&self.staging.directory, name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::posix::{PosixSink, beneath};
    use crate::sink::{PublishRule, Sink};
    use model::{Entry, Generation, Kind, Name, ObjectId, Timestamp};
    use std::sync::Arc;

    #[test]
    fn data_that_had_its_owner_and_mode_but_not_its_name_is_continued() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let entry = Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"large").unwrap(),
            kind: Kind::File,
            mode: 0o444,
            generation: Generation { size_bytes: 5, ..Generation::default() },
            attributes: None,
        };
        let open = || {
            let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
            PosixSink::new(root.clone(), root, None)
        };
        let (file, _) = open().begin(&entry, "stem").unwrap();
        file.write_at(0, b"whole").unwrap();
        file.append_journal(b"all of it is there").unwrap();
        drop(file);
        let data = crate::posix::staging::tests::places(dir.path()).1.join("stem.data");
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o444)).unwrap();
        // Only root can.
        let _ = chown(&data, Some(1000), Some(1000));
        let (_, held) = open().begin(&entry, "stem").unwrap();
        assert_eq!(held, b"all of it is there");
    }

    #[test]
    fn what_was_written_to_staging_is_room_that_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let entry = Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"large").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: 1 << 20, ..Generation::default() },
            attributes: None,
        };
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let (file, _) = PosixSink::new(root.clone(), root, None).begin(&entry, "stem").unwrap();
        file.write_at(0, &[1; 256 << 10]).unwrap();
        assert!(file.allocated_bytes() >= 256 << 10);
    }

    #[test]
    fn a_journal_whose_data_was_published_claims_nothing_of_the_next_data() {
        let dir = tempfile::tempdir().unwrap();
        let modified = Timestamp { seconds: 1, nanoseconds: 0 };
        let entry = Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"large").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: 5, modified, ..Generation::default() },
            attributes: None,
        };
        let open = || {
            let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
            PosixSink::new(root.clone(), root, None)
        };
        let sink = open();
        let (file, _) = sink.begin(&entry, "stem").unwrap();
        file.write_at(0, b"whole").unwrap();
        file.append_journal(b"all of it is there").unwrap();
        let log = crate::posix::staging::tests::places(dir.path()).1.join("stem.log");
        let kept = log.with_file_name("kept");
        std::fs::hard_link(&log, &kept).unwrap();
        file.publish(&entry, PublishRule::Replace).unwrap();
        // As a crash between the rename and the removal of the journal leaves it, and a removal of the file later on.
        std::fs::rename(&kept, &log).unwrap();
        std::fs::remove_file(dir.path().join("large")).unwrap();
        drop((file, sink));
        let sink = open();
        // A sink that is open already has swept before.
        let (other, _) = sink.begin(&entry, "other").unwrap();
        std::fs::write(&log, "all of it is there").unwrap();
        let (_, held) = sink.begin(&entry, "stem").unwrap();
        assert_eq!(held, b"");
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0);
        other.discard();
    }
}
