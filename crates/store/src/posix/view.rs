//! What has arrived of a growing file, readable at its destination: the staged file under a second name.
//!
//! Invariants:
//! - Of an inode that was shown no byte changes, none is a hole, and its length only grows. What comes early waits in a file
//!   without a name.
//! - What contradicts bytes that are shown, because the source was rewritten or an attempt left what it could not vouch for, goes
//!   to a new inode.
//! - A name is taken over only from a file that carries the mark of one that was shown.
//!
//! Not here: verification, which comes before (`mover`), and the final name (`large`).

use super::content::write_all_at;
use super::within;
use crate::{Error, Result};
use model::{Extent, FailureKind, Name, mutant};
use os::fs::{fchmod, fremovexattr, fsetxattr, fsync, ftruncate, linkat, openat, pread, renameat_with, unlinkat};
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, XattrFlags, fgetxattr, flock, fstat, statat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How much of the file survives a power loss, in decimal digits. Every file that is shown has it.
const DURABLE: &CStr = c"user.thalweg.durable";
const BLOCK_BYTES: usize = 128 << 10;

/// Gives a file that was just made in staging what it would have of its directory.
type Give = Box<dyn Fn(BorrowedFd<'_>) + Send + Sync>;

pub struct View {
    directory: Arc<OwnedFd>,
    name: Name,
    staging: Arc<OwnedFd>,
    data_name: CString,
    mode: u32,
    give: Give,
    state: Mutex<State>,
}

struct State {
    file: Arc<File>,
    /// All before this was verified in this attempt, or is vouched for by the journal.
    sure_bytes: u64,
    file_bytes: u64,
    /// Device and inode of what was shown last.
    shown: Option<(u64, u64)>,
    /// The file is not shown, and is written to in any order.
    is_private: bool,
    /// It is being published.
    is_finished: bool,
    early: Early,
}

/// What came before what it follows: where it starts, and where it ends.
#[derive(Default)]
struct Early {
    extents: BTreeMap<u64, u64>,
    file: Option<File>,
}

impl View {
    /// Whether `name` is a second name of staged data.
    pub fn is_of(directory: BorrowedFd<'_>, name: &Name, staging: &OwnedFd, data_name: &CStr) -> bool {
        let here = statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let staged = statat(staging, data_name, AtFlags::SYMLINK_NOFOLLOW);
        let is_one = |(a, b): (rustix::fs::Stat, rustix::fs::Stat)| {
            (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) && FileType::from_raw_mode(a.st_mode).is_file()
        };
        here.ok().zip(staged.ok()).is_some_and(is_one)
    }

    /// Of staged data, which is shown already or is to be with `resume`.
    pub fn new(
        directory: Arc<OwnedFd>,
        name: Name,
        (staging, data_name): (Arc<OwnedFd>, CString),
        file: Arc<File>,
        (mode, is_shown): (u32, bool),
        give: Give,
    ) -> View {
        let shown = is_shown.then(|| identity(&file).ok()).flatten();
        let (sure_bytes, file_bytes, is_private, is_finished) = (0, 0, false, false);
        let state = State { file, sure_bytes, file_bytes, shown, is_private, is_finished, early: Early::default() };
        View { directory, name, staging, data_name, mode, give, state: Mutex::new(state) }
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub fn file(&self) -> Arc<File> {
        self.state.lock().unwrap().file.clone()
    }

    /// How far a reader can read this file, if it is the one that is shown.
    pub fn shown_bytes_of(&self, file: &Arc<File>) -> Option<u64> {
        let state = self.state.lock().unwrap();
        (!state.is_private && Arc::ptr_eq(&state.file, file)).then_some(state.sure_bytes)
    }

    /// So much of what is shown survives a power loss, unless it is published meanwhile.
    pub fn checkpointed(&self, file: &Arc<File>, durable_bytes: u64) {
        let state = self.state.lock().unwrap();
        if !state.is_finished && Arc::ptr_eq(&state.file, file) {
            self.mark(file, durable_bytes);
        }
    }

    /// Puts down how much of a file survives a power loss. A file system without attributes leaves readers without that word.
    fn mark(&self, file: &File, durable_bytes: u64) {
        // Who may not write to a file may not mark it, its owner included.
        if fchmod(file, Mode::from_raw_mode(self.mode | 0o200)).is_ok() {
            let _ = fsetxattr(file, DURABLE, durable_bytes.to_string().as_bytes(), XattrFlags::empty());
            let _ = fchmod(file, Mode::from_raw_mode(self.mode));
        }
    }

    /// Shows the file: so much of it is what its source has. What lies behind that is compared as it comes again.
    pub fn resume(&self, held_bytes: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.sure_bytes = held_bytes;
        if state.shown.is_some() {
            state.file_bytes = fstat(&*state.file).map_err(|e| self.error("look at", e))?.st_size as u64;
            return fchmod(&*state.file, Mode::from_raw_mode(self.mode)).map_err(|e| self.error("show", e));
        }
        // It may have been written in any order.
        ftruncate(&*state.file, held_bytes).map_err(|e| self.error("write file", e))?;
        state.file_bytes = held_bytes;
        self.show(&mut state)
    }

    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if mutant::is_on("patch-the-prefix") && offset < state.sure_bytes {
            state.is_private = true;
        }
        if state.is_private {
            return self.put(&state.file, bytes, offset);
        }
        let again = state.sure_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if !self.is_same(&state.file, &bytes[..again], offset)? {
            self.hide(&mut state)?;
            return self.put(&state.file, bytes, offset);
        }
        let (offset, bytes) = (offset + again as u64, &bytes[again..]);
        if bytes.is_empty() {
            return Ok(());
        }
        if offset > state.sure_bytes && !mutant::is_on("show-past-the-frontier") {
            return self.keep_early(&mut state.early, bytes, offset);
        }
        self.append(&mut state, bytes)?;
        self.append_early(&mut state)
    }

    /// What is written is going to be published, and may be shorter than what is shown.
    pub fn finish(&self, size_bytes: u64) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        state.is_finished = true;
        if !state.is_private && state.file_bytes > size_bytes && !mutant::is_on("shrink-the-prefix") {
            state.sure_bytes = state.sure_bytes.min(size_bytes);
            self.hide(&mut state)?;
        }
        let mode = Mode::from_raw_mode(self.mode | 0o200);
        fchmod(&*state.file, mode).map_err(|e| self.error("write file", e))
    }

    /// It has its final name. Before that, what a power loss leaves has to be known for what was shown; a mark that stays is
    /// no harm to a reader.
    pub fn unmark(&self, file: &File) {
        if let Err(Errno::ACCESS | Errno::PERM) = fremovexattr(file, DURABLE)
            && let Ok(status) = fstat(file)
        {
            let mode = status.st_mode & 0o7777;
            let _ = fchmod(file, Mode::from_raw_mode(mode | 0o200));
            let _ = fremovexattr(file, DURABLE);
            let _ = fchmod(file, Mode::from_raw_mode(mode));
        }
    }

    /// Whether this is the file that is found under the name.
    pub fn shows(&self, file: &File) -> bool {
        let shown = self.state.lock().unwrap().shown;
        shown.is_some() && identity(file).ok() == shown && self.found() == shown
    }

    pub fn remove(&self) {
        let shown = self.state.lock().unwrap().shown;
        if shown.is_some() && self.found() == shown {
            let _ = unlinkat(&self.directory, self.name.as_c_str(), AtFlags::empty());
        }
    }

    /// The same, where the name is not another's by now.
    pub fn remove_unless(&self, published: &Name) {
        if *published != self.name {
            self.remove();
        }
    }

    fn append(&self, state: &mut State, bytes: &[u8]) -> Result<()> {
        let known = state.file_bytes.saturating_sub(state.sure_bytes).min(bytes.len() as u64) as usize;
        let mut rest = bytes;
        if known > 0 {
            match self.is_same(&state.file, &bytes[..known], state.sure_bytes)? {
                true => (state.sure_bytes, rest) = (state.sure_bytes + known as u64, &bytes[known..]),
                // An attempt was cut off, and the source was changed since, or what it left is not what it wrote.
                false => {
                    self.renew(state)?;
                    self.show(state)?;
                }
            }
        }
        self.put(&state.file, rest, state.sure_bytes)?;
        state.sure_bytes += rest.len() as u64;
        state.file_bytes = state.file_bytes.max(state.sure_bytes);
        Ok(())
    }

    fn append_early(&self, state: &mut State) -> Result<()> {
        let mut block = Vec::new();
        while let Some((start, end)) = state.early.extents.first_key_value().map(|(start, end)| (*start, *end)) {
            if start > state.sure_bytes {
                break;
            }
            while state.sure_bytes < end {
                block.resize(BLOCK_BYTES.min((end - state.sure_bytes) as usize), 0);
                let early = state.early.file.as_ref().expect("what is early is in a file");
                self.get(early, &mut block, state.sure_bytes)?;
                self.append(state, &block)?;
            }
            state.early.extents.pop_first();
        }
        if let Some(file) = state.early.file.as_ref().filter(|_| state.early.extents.is_empty()) {
            let _ = ftruncate(file, 0);
        }
        Ok(())
    }

    fn keep_early(&self, early: &mut Early, bytes: &[u8], offset: u64) -> Result<()> {
        if early.file.is_none() {
            early.file = Some(self.nameless()?);
        }
        self.put(early.file.as_ref().expect("made just now"), bytes, offset)?;
        let end = early.extents.entry(offset).or_default();
        *end = (*end).max(offset + bytes.len() as u64);
        Ok(())
    }

    /// A file that goes with this process.
    fn nameless(&self) -> Result<File> {
        let (file, name) = self.fresh()?;
        let _ = unlinkat(&self.staging, &name, AtFlags::empty());
        Ok(file)
    }

    /// A new file of staging, which nobody sweeps as long as it is open.
    fn fresh(&self) -> Result<(File, CString)> {
        let name = free_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.staging, &name, flags, Mode::from_raw_mode(0o600));
        let file = file.map_err(|e| self.error("create file", e))?;
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok((File::from(file), name))
    }

    /// What is shown stays as it is; what comes goes to a file that is not, with all that there is so far.
    fn hide(&self, state: &mut State) -> Result<()> {
        self.renew(state)?;
        state.is_private = true;
        let early = std::mem::take(&mut state.early);
        if let Some(file) = &early.file {
            for (start, end) in early.extents {
                self.copy(file, &state.file, Extent::new(start, end))?;
            }
        }
        Ok(())
    }

    /// Puts a copy of all that is sure in the place of the staged file.
    fn renew(&self, state: &mut State) -> Result<()> {
        let (file, name) = self.fresh()?;
        (self.give)(file.as_fd());
        self.copy(&state.file, &file, Extent::new(0, state.sure_bytes))?;
        let directory = &self.staging;
        renameat_with(directory, &name, directory, &self.data_name, RenameFlags::empty())
            .map_err(|e| self.error("exchange", e))?;
        (state.file, state.file_bytes) = (Arc::new(file), state.sure_bytes);
        Ok(())
    }

    fn copy(&self, from: &File, to: &File, extent: Extent) -> Result<()> {
        let mut at = extent.start + within::copy_range(from.as_fd(), to.as_fd(), extent)?;
        let mut block = Vec::new();
        while at < extent.end {
            block.resize(BLOCK_BYTES.min((extent.end - at) as usize), 0);
            self.get(from, &mut block, at)?;
            self.put(to, &block, at)?;
            at += block.len() as u64;
        }
        Ok(())
    }

    /// Gives the staged file its second name.
    fn show(&self, state: &mut State) -> Result<()> {
        fchmod(&*state.file, Mode::from_raw_mode(self.mode)).map_err(|e| self.error("show", e))?;
        self.mark(&state.file, 0);
        // A name that survives a power loss without its mark would be taken for another's, and keep this file out for good.
        fsync(&*state.file).map_err(|e| self.error("sync file", e))?;
        let (staging, data_name, name) = (&self.staging, &self.data_name, self.name.as_c_str());
        match linkat(staging, data_name, &self.directory, name, AtFlags::empty()) {
            Err(Errno::EXIST) if self.found() == state.shown && state.shown.is_some() || self.is_marked() => {
                // The name of what is locked is not swept.
                let _ = flock(&*state.file, FlockOperation::NonBlockingLockExclusive);
                let link = free_name();
                linkat(staging, data_name, staging, &link, AtFlags::empty()).map_err(|e| self.error("show", e))?;
                let renamed = renameat_with(staging, &link, &self.directory, name, RenameFlags::empty());
                renamed.map_err(|e| self.error("show", e))?;
            }
            Err(Errno::EXIST) => {
                let why = "another file has the name under which its beginning is to be shown; remove or rename that";
                return Err(Error::of_kind(FailureKind::InTheWay, "show", self.name.as_bytes(), why));
            }
            linked => linked.map_err(|e| self.error("show", e))?,
        }
        state.shown = identity(&state.file).ok();
        Ok(())
    }

    /// Device and inode of what has the name.
    fn found(&self) -> Option<(u64, u64)> {
        let status = statat(&self.directory, self.name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((status.st_dev, status.st_ino))
    }

    /// Whether what has the name was shown by an earlier attempt.
    fn is_marked(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(&self.directory, self.name.as_c_str(), flags, Mode::empty()) else { return false };
        let is_own = |status: rustix::fs::Stat| {
            FileType::from_raw_mode(status.st_mode).is_file() && status.st_uid == rustix::process::geteuid().as_raw()
        };
        fstat(&file).is_ok_and(is_own) && fgetxattr(&file, DURABLE, &mut [0; 32][..]).is_ok()
    }

    fn is_same(&self, file: &File, bytes: &[u8], offset: u64) -> Result<bool> {
        let mut there = vec![0; bytes.len()];
        self.get(file, &mut there, offset)?;
        Ok(there == bytes)
    }

    fn put(&self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        write_all_at(file.as_fd(), bytes, offset).map_err(|e| self.error("write file", e))
    }

    fn get(&self, file: &File, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        while !buffer.is_empty() {
            match pread(file, &mut *buffer, offset) {
                Ok(0) => return Err(self.error("read staged file", Errno::IO)),
                Ok(read) => (buffer, offset) = (&mut buffer[read..], offset + read as u64),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.error("read staged file", e)),
            }
        }
        Ok(())
    }

    fn error(&self, operation: &'static str, e: Errno) -> Error {
        Error::new(operation, self.name.as_bytes(), e)
    }
}

/// A name in staging that is nobody's.
fn free_name() -> CString {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let number = os::random().unwrap_or_else(|| COUNTER.fetch_add(1, Relaxed));
    CString::new(format!("view-{:x}-{number:016x}", std::process::id())).expect("no NUL")
}

fn identity(file: &File) -> std::result::Result<(u64, u64), Errno> {
    fstat(file).map(|status| (status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use crate::posix::{PosixSink, beneath};
    use crate::sink::{PublishRule, Sink, StagedFile};
    use model::{Entry, Generation, Kind, Name, ObjectId, Timestamp};
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::sync::Arc;

    fn entry(size_bytes: u64) -> Entry {
        let modified = Timestamp { seconds: 1, nanoseconds: 0 };
        Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"run").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes, modified, ..Generation::default() },
            attributes: None,
        }
    }

    fn begin(path: &Path, held_bytes: u64) -> Arc<dyn StagedFile> {
        let root = Arc::new(beneath::open_directory(path).unwrap());
        let view = Name::new(b"run.partial").unwrap();
        let sink = PosixSink::new(root.clone(), root, None);
        let (file, _) = sink.begin_growing(&entry(0), "stem", Some(&view)).unwrap();
        file.resume(held_bytes).unwrap();
        file
    }

    #[test]
    fn what_comes_early_is_shown_only_behind_what_it_follows() {
        let dir = tempfile::tempdir().unwrap();
        let (file, shown) = (begin(dir.path(), 0), dir.path().join("run.partial"));
        file.write_at(8, b"third").unwrap();
        file.write_at(4, b"more").unwrap();
        file.write_at(20, b"far").unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"");
        file.write_at(0, b"one ").unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"one morethird");
        // In other pieces, and partly again.
        file.write_at(10, b"irdly, a").unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"one morethirdly, a");
        file.write_at(16, b" and").unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"one morethirdly, andfar");
        assert!(!dir.path().join("run").exists());
    }

    #[test]
    fn bytes_that_were_shown_do_not_change_when_others_are_published() {
        let dir = tempfile::tempdir().unwrap();
        let (file, shown) = (begin(dir.path(), 0), dir.path().join("run.partial"));
        file.write_at(0, b"header, body").unwrap();
        file.write_at(14, b"end").unwrap();
        let reader = File::open(&shown).unwrap();
        file.write_at(0, b"HEADER").unwrap();
        file.write_at(12, b", ").unwrap();
        assert_eq!(fs::read(&shown).unwrap(), b"header, body");
        let mut staged = [0; 17];
        assert_eq!(file.read_at(0, &mut staged).unwrap(), 17);
        assert_eq!(&staged, b"HEADER, body, end");
        file.publish(&entry(17), PublishRule::Replace).unwrap();
        assert_eq!(fs::read(dir.path().join("run")).unwrap(), b"HEADER, body, end");
        assert_eq!(reader.metadata().unwrap().len(), 12);
        assert!(!shown.exists());
    }

    #[test]
    fn a_file_that_is_sealed_shorter_is_not_cut_under_its_reader() {
        let dir = tempfile::tempdir().unwrap();
        let file = begin(dir.path(), 0);
        file.write_at(0, b"all of this").unwrap();
        let reader = File::open(dir.path().join("run.partial")).unwrap();
        file.publish(&entry(3), PublishRule::Replace).unwrap();
        assert_eq!(fs::read(dir.path().join("run")).unwrap(), b"all");
        assert_eq!(reader.metadata().unwrap().len(), 11);
    }

    #[test]
    fn what_an_attempt_left_is_gone_on_with_and_what_it_cannot_vouch_for_is_compared() {
        for (again, is_same) in [(b"right or not", true), (b"right, other", false)] {
            let dir = tempfile::tempdir().unwrap();
            let shown = dir.path().join("run.partial");
            let file = begin(dir.path(), 0);
            file.write_at(0, b"right or not").unwrap();
            drop(file);
            let reader = File::open(&shown).unwrap();
            // Its journal reaches to the fifth byte.
            let file = begin(dir.path(), 5);
            assert_eq!(fs::read(&shown).unwrap(), b"right or not");
            file.write_at(12, b" at all").unwrap();
            file.write_at(5, &again[5..]).unwrap();
            let whole = [&again[..], b" at all"].concat();
            assert_eq!(fs::read(&shown).unwrap(), whole);
            let is_one = reader.metadata().unwrap().ino() == fs::metadata(&shown).unwrap().ino();
            assert_eq!(is_one, is_same);
            assert!(is_same || reader.metadata().unwrap().len() == 12);
            file.publish(&entry(19), PublishRule::Replace).unwrap();
            assert_eq!(fs::read(dir.path().join("run")).unwrap(), whole);
            assert_eq!(fs::metadata(dir.path().join("run")).unwrap().nlink(), 1);
            assert!(!shown.exists());
        }
    }

    #[test]
    fn staging_that_has_its_final_name_already_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let file = begin(dir.path(), 0);
        file.write_at(0, b"published").unwrap();
        drop(file);
        // As a crash between the final name and the removal of the other one leaves it.
        fs::rename(dir.path().join("run.partial"), dir.path().join("run")).unwrap();
        let file = begin(dir.path(), 0);
        file.write_at(0, b"something else").unwrap();
        assert_eq!(fs::read(dir.path().join("run")).unwrap(), b"published");
        assert_eq!(fs::read(dir.path().join("run.partial")).unwrap(), b"something else");
        file.discard();
        assert!(!dir.path().join("run.partial").exists());
    }

    #[test]
    fn how_much_survives_a_power_loss_is_told_after_a_checkpoint_and_not_of_the_final_file() {
        let dir = tempfile::tempdir().unwrap();
        let (file, shown) = (begin(dir.path(), 0), dir.path().join("run.partial"));
        let told = |path: &Path| {
            let mut value = [0; 32];
            let length = rustix::fs::getxattr(path, super::DURABLE, &mut value[..]).ok()?;
            Some(String::from_utf8(value[..length].to_vec()).unwrap())
        };
        file.write_at(0, b"12345").unwrap();
        // A file system without attributes says nothing.
        let Some(before) = told(&shown) else { return };
        assert_eq!(before, "0");
        file.checkpoint().unwrap();
        file.write_at(5, b"678").unwrap();
        assert_eq!(told(&shown).as_deref(), Some("5"));
        file.publish(&entry(8), PublishRule::Replace).unwrap();
        assert_eq!(told(&dir.path().join("run")), None);
    }
}
