//! Changing names: directories made, objects removed or given another name, each by one name from a descriptor.
//!
//! A tree is removed by several threads: one goes through it, the others take names away, directory by directory.
//!
//! Invariants:
//! - No link is followed; a link is removed, never what it points to.
//! - A directory is removed only after everything that was found in it; what was put there meanwhile keeps it.
//! - Memory is bounded by the names of the directories on the way, descriptors by `OPEN_MAX` and the batches under way.

use super::beneath::Mounts;
use super::target::{Target, status_of};
use super::walk::{Names, PATH_BYTES_MAX};
use crate::shelf::{EachFailure, Stopped};
use crate::{Error, Result};
use model::files::{Tally, Version};
use model::{FailureKind, Name};
use os::fs::{fsync, mkdirat, renameat_with, unlinkat};
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

/// Directories on the way that are kept open, half of them the outermost.
const OPEN_MAX: usize = 32;
const BATCH_NAMES: usize = 256;
/// Batches that wait for a thread: each keeps its directory open.
const BATCHES_MAX: usize = 32;
const THREADS_MAX: usize = 4;
/// Failures kept until they are told; more are counted.
const FAILURES_MAX: usize = 1024;

/// Makes a directory; true when it was not there.
pub fn make(target: &Target, may_be_there: bool) -> Result<bool> {
    let failed = |e: Errno| Error::new("make directory", b"", e);
    let is_directory = || target.file_status().is_ok_and(|status| status.is_directory());
    let made = match &target.name {
        Some(name) => mkdirat(&target.directory, name.as_c_str(), Mode::from_raw_mode(0o777)),
        None => Err(Errno::EXIST),
    };
    match made {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) if may_be_there && is_directory() => Ok(false),
        Err(e) => Err(failed(e)),
    }
}

/// Gives an object another name in one step; the names are on disk when this returns.
pub fn rename(from: &Target, to: &Target, may_replace: bool) -> Result<()> {
    let failed = |e: Errno| Error::new("rename", b"", e);
    let flags = if may_replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    let (old, new) = (from.changeable("rename")?, to.changeable("rename")?);
    let refused = |why| Err(Error::of_kind(FailureKind::NameRefused, "rename", b"", why));
    // The kernel does nothing then, and calls it done. Where names differ in case only, it has something to do.
    let is_one = |(a, b): (Stat, Stat)| {
        let is_linked = !FileType::from_raw_mode(a.st_mode).is_dir() && a.st_nlink > 1;
        (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino) && (old == new || is_linked)
    };
    if from.status().ok().zip(to.status().ok()).is_some_and(is_one) {
        return refused("both names already belong to the same file");
    }
    match renameat_with(&from.directory, old.as_c_str(), &to.directory, new.as_c_str(), flags) {
        Err(Errno::INVAL) => return refused("a directory cannot go into itself"),
        renamed => renamed.map_err(failed)?,
    }
    for directory in [&to.directory, &from.directory] {
        match fsync(directory) {
            // Some network file systems cannot, and keep names by themselves.
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => {}
            Err(e) => return Err(Error::new("write directory", b"", e)),
        }
    }
    Ok(())
}

/// Removes one object that is no directory, or an empty directory; only if it still is of the version given.
pub fn remove_one(target: &Target, version: Option<&Version>, may_be_directory: bool) -> Result<Tally> {
    let name = target.changeable("remove")?;
    let failed = |e: Errno| Error::new("remove", b"", e);
    let status = target.status().map_err(failed)?;
    let found = status_of(target.directory.as_fd(), target.name.as_ref(), &status)?;
    if version.is_some_and(|version| *version != found.version()) {
        return Err(Error::of_kind(FailureKind::Changed, "remove", b"", "it was changed meanwhile and is kept"));
    }
    let flags = match found.is_directory() {
        true if !may_be_directory => {
            return Err(Error::of_kind(FailureKind::InTheWay, "remove", b"", "it is a directory; -r removes it whole"));
        }
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    unlinkat(&target.directory, name.as_c_str(), flags).map_err(failed)?;
    let mut tally = Tally::default();
    tally.count(&found);
    Ok(tally)
}

/// Removes an object and everything below it.
pub fn remove_tree(target: &Target, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
    let is_directory = target.file_status().map(|status| status.is_directory());
    if !matches!(is_directory, Ok(true)) {
        return remove_one(target, None, false).unwrap_or_else(|e| {
            each_failure(b"", e);
            Tally { failed: 1, ..Tally::default() }
        });
    }
    let counts = Counts::default();
    let failed = |path: &[u8], e: Error| counts.fail(path, e);
    match target.changeable("remove").and_then(|_| target.open().map_err(|e| Error::new("open directory", b"", e))) {
        Err(e) => failed(b"", e),
        Ok(open) => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
            let (batches, waiting) = sync_channel(BATCHES_MAX);
            let waiting = Mutex::new(waiting);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| unlink_batches(&waiting, &counts, is_stopped));
                }
                let mut removal = Removal {
                    counts: &counts,
                    is_stopped,
                    batches,
                    hides_staging: target.hides_staging,
                    mounts: target.mounts,
                    frames: Vec::new(),
                    path: Vec::new(),
                    each_failure: &mut *each_failure,
                };
                removal.run(open);
            });
            if !is_stopped() {
                let name = target.name.as_ref().expect("what can be changed has a name");
                counts.remove_directory(target.directory.as_fd(), name, b"");
            }
        }
    }
    counts.tell(each_failure);
    counts.tally()
}

/// What several threads have done.
#[derive(Default)]
struct Counts {
    files: AtomicU64,
    directories: AtomicU64,
    failed: AtomicU64,
    failures: Mutex<Vec<(Vec<u8>, Error)>>,
}

impl Counts {
    fn fail(&self, path: &[u8], error: Error) {
        self.failed.fetch_add(1, SeqCst);
        let mut failures = self.failures.lock().unwrap();
        if failures.len() < FAILURES_MAX {
            failures.push((path[..path.len().min(PATH_BYTES_MAX)].to_vec(), error));
        }
    }

    fn tell(&self, each_failure: EachFailure<'_>) {
        for (path, error) in std::mem::take(&mut *self.failures.lock().unwrap()) {
            each_failure(&path, error);
        }
    }

    fn tally(&self) -> Tally {
        let [files, directories, failed] = [&self.files, &self.directories, &self.failed].map(|n| n.load(SeqCst));
        Tally { files, directories, failed, ..Tally::default() }
    }

    fn remove_directory(&self, parent: std::os::fd::BorrowedFd<'_>, name: &Name, path: &[u8]) {
        match unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR) {
            Ok(()) => _ = self.directories.fetch_add(1, SeqCst),
            Err(Errno::NOENT) => {}
            // The cause was told where it was found.
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.failed.load(SeqCst) > 0 => {}
            Err(e) => self.fail(path, Error::new("remove directory", b"", e)),
        }
    }
}

/// Batches of names that are not done.
#[derive(Default)]
struct Pending {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Pending {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
    }

    fn done(&self) {
        *self.count.lock().unwrap() -= 1;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut count = self.count.lock().unwrap();
        while *count > 0 {
            count = self.changed.wait(count).unwrap();
        }
    }
}

struct Batch {
    directory: Arc<OwnedFd>,
    names: Vec<Name>,
    path: Arc<[u8]>,
    pending: Arc<Pending>,
}

fn unlink_batches(waiting: &Mutex<Receiver<Batch>>, counts: &Counts, is_stopped: Stopped<'_>) {
    loop {
        // The lock is held while this thread waits for work: the others would wait for the same.
        let next = waiting.lock().unwrap().recv();
        let Ok(batch) = next else { return };
        for name in &batch.names {
            if is_stopped() {
                break;
            }
            match unlinkat(&batch.directory, name.as_c_str(), AtFlags::empty()) {
                Ok(()) => _ = counts.files.fetch_add(1, SeqCst),
                Err(Errno::NOENT) => {}
                Err(e) => counts.fail(&joined(&batch.path, name), Error::new("remove", b"", e)),
            }
        }
        batch.pending.done();
    }
}

fn joined(directory: &[u8], name: &Name) -> Vec<u8> {
    let separator: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    [directory, separator, name.as_bytes()].concat()
}

/// The thread that goes through the tree.
struct Removal<'a> {
    counts: &'a Counts,
    is_stopped: Stopped<'a>,
    batches: SyncSender<Batch>,
    hides_staging: bool,
    mounts: Mounts,
    frames: Vec<Frame>,
    /// Of the innermost directory.
    path: Vec<u8>,
    each_failure: EachFailure<'a>,
}

/// A directory on the way: its files are with the other threads, its directories are gone through one by one.
struct Frame {
    /// `None` while it is closed to save a descriptor.
    open: Option<Arc<OwnedFd>>,
    /// How it is opened again; `None` for the target.
    name: Option<Name>,
    directories: Vec<Name>,
    next: usize,
    /// Files right below its directories.
    below: Arc<Pending>,
    /// Its own files.
    own: Arc<Pending>,
    is_complete: bool,
    removed_before: u64,
}

impl Removal<'_> {
    fn run(&mut self, open: Arc<OwnedFd>) {
        let own = Arc::new(Pending::default());
        self.enter(open, None, own.clone());
        while !self.frames.is_empty() && !(self.is_stopped)() {
            self.step();
            self.counts.tell(self.each_failure);
        }
        own.wait();
    }

    fn failed(&self, operation: &'static str, e: impl Into<std::io::Error>) {
        self.counts.fail(&self.path, Error::new(operation, b"", e));
    }

    /// Puts a directory on the way. Without it the path is as before.
    fn enter(&mut self, open: Arc<OwnedFd>, name: Option<Name>, own: Arc<Pending>) {
        let removed_before = self.counts.files.load(SeqCst);
        match self.hand_out(&open, &own) {
            Ok((directories, is_complete)) => {
                let below = Arc::default();
                let open = Some(open);
                self.frames.push(Frame { open, name, directories, next: 0, below, own, is_complete, removed_before });
                if let Some(middle) = self.frames.len().checked_sub(OPEN_MAX / 2).filter(|at| *at >= OPEN_MAX / 2) {
                    self.frames[middle].open = None;
                }
            }
            Err(e) => {
                self.failed("read directory", e);
                self.shorten(name.as_ref());
            }
        }
    }

    /// Hands the files of a directory to the other threads; returns its directories, and whether that was all.
    fn hand_out(&self, open: &Arc<OwnedFd>, own: &Arc<Pending>) -> std::io::Result<(Vec<Name>, bool)> {
        let names = Names::read(open.as_fd(), self.hides_staging)?;
        let path: Arc<[u8]> = self.path.clone().into();
        let (mut directories, mut batch) = (Vec::new(), Vec::new());
        let send = |names: Vec<Name>| {
            own.add();
            let batch = Batch { directory: open.clone(), names, path: path.clone(), pending: own.clone() };
            self.batches.send(batch).expect("the threads outlive their sender");
        };
        for (index, name) in (0..names.len()).filter_map(|index| names.get(index).map(|name| (index, name))) {
            let is_directory = match names.file_type(index) {
                FileType::Unknown => {
                    let status = statat(open, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                    status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_dir())
                }
                known => known.is_dir(),
            };
            if is_directory {
                directories.push(name);
                continue;
            }
            batch.push(name);
            if batch.len() == BATCH_NAMES {
                send(std::mem::take(&mut batch));
            }
            if index.is_multiple_of(BATCH_NAMES) && (self.is_stopped)() {
                break;
            }
        }
        if !batch.is_empty() {
            send(batch);
        }
        Ok((directories, names.is_complete))
    }

    /// Enters the next directory below the innermost one, or leaves that.
    fn step(&mut self) {
        let open = match self.open_innermost() {
            Ok(open) => open,
            Err(e) => {
                self.failed("open directory", e);
                let frame = self.frames.pop().expect("a step has a directory");
                return self.shorten(frame.name.as_ref());
            }
        };
        let frame = self.frames.last_mut().expect("a step has a directory");
        if let Some(name) = frame.directories.get(frame.next).cloned() {
            frame.next += 1;
            let own = frame.below.clone();
            let before = self.path.len();
            self.path = joined(&self.path, &name);
            let opened = match self.path.len() > PATH_BYTES_MAX {
                true => Err(Errno::NAMETOOLONG.into()),
                false => self.mounts.open_child(open.as_fd(), &name),
            };
            return match opened {
                Ok(fd) => self.enter(Arc::new(fd), Some(name), own),
                Err(e) => {
                    self.failed("open directory", e);
                    self.path.truncate(before);
                }
            };
        }
        self.leave(&open);
    }

    /// Removes the directories right below the innermost one, which are empty.
    fn leave(&mut self, open: &Arc<OwnedFd>) {
        let frame = self.frames.pop().expect("there is one to leave");
        frame.below.wait();
        for name in &frame.directories {
            self.counts.remove_directory(open.as_fd(), name, &joined(&self.path, name));
        }
        if frame.is_complete {
            return self.shorten(frame.name.as_ref());
        }
        // There were more names than may be held: the rest is read when these are gone.
        frame.own.wait();
        if self.counts.files.load(SeqCst) > frame.removed_before {
            return self.enter(open.clone(), frame.name, frame.own);
        }
        self.failed("remove", Errno::NOTEMPTY);
        self.shorten(frame.name.as_ref());
    }

    /// Goes back from the path of a directory to that of the one above.
    fn shorten(&mut self, name: Option<&Name>) {
        let bytes = name.map_or(0, |name| name.as_bytes().len());
        self.path.truncate(self.path.len().saturating_sub(bytes + 1));
    }

    fn open_innermost(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        let innermost = self.frames.len() - 1;
        if let Some(open) = &self.frames[innermost].open {
            return Ok(open.clone());
        }
        let nearest = self.frames.iter().rposition(|frame| frame.open.is_some()).expect("the target stays open");
        let mut at = self.frames[nearest].open.clone().expect("found above");
        for depth in nearest + 1..=innermost {
            let frame = &mut self.frames[depth];
            let name = frame.name.as_ref().expect("only the target has none");
            at = Arc::new(self.mounts.open_child(at.as_fd(), name)?);
            // The next ones that are left: a deep tree is not walked down again for each of its directories.
            if depth + OPEN_MAX / 2 > innermost {
                frame.open = Some(at.clone());
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn target(path: &Path) -> Target {
        Target::local(path.as_os_str().as_encoded_bytes(), false).unwrap()
    }

    fn remove(path: &Path) -> (Tally, Vec<String>) {
        let mut failures = Vec::new();
        let tally = remove_tree(&target(path), &|| false, &mut |path, e| {
            failures.push(format!("{} {e}", String::from_utf8_lossy(path)));
        });
        (tally, failures)
    }

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(dir.path().join("kept")).unwrap();
        fs::write(dir.path().join("kept/f"), b"x").unwrap();
        for i in 0..30 {
            let at = tree.join(format!("{}/{}", i % 3, i));
            fs::create_dir_all(&at).unwrap();
            for j in 0..300 {
                fs::write(at.join(format!("{j}")), b"").unwrap();
            }
            symlink(dir.path().join("kept"), at.join("link")).unwrap();
        }
        let (tally, failures) = remove(&tree);
        assert_eq!((tally.files, tally.directories, tally.failed), (30 * 301, 34, 0), "{failures:?}");
        assert!(!tree.exists() && dir.path().join("kept/f").exists());
        symlink("kept", dir.path().join("alone")).unwrap();
        assert_eq!(remove(&dir.path().join("alone")).0.files, 1);
        assert!(dir.path().join("kept/f").exists());
    }

    /// Directories on the way are closed and opened again, and each sibling comes after the depth below the one before.
    #[test]
    fn a_tree_deeper_than_what_is_kept_open_goes_with_its_side_branches() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("t");
        let mut at = tree.clone();
        for _ in 0..5 * OPEN_MAX {
            fs::create_dir_all(at.join("a/deeper/than/this")).unwrap();
            fs::create_dir_all(at.join("z")).unwrap();
            fs::write(at.join("z/f"), b"").unwrap();
            at.push("m");
        }
        let (tally, failures) = remove(&tree);
        let levels = 5 * OPEN_MAX as u64;
        assert_eq!((tally.files, tally.directories, tally.failed), (levels, 6 * levels, 0), "{failures:?}");
        assert!(!tree.exists());
    }

    #[test]
    fn what_cannot_be_removed_is_told_once_and_the_rest_goes() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("t/shut")).unwrap();
        fs::write(dir.path().join("t/shut/f"), b"").unwrap();
        fs::write(dir.path().join("t/g"), b"").unwrap();
        fs::set_permissions(dir.path().join("t/shut"), fs::Permissions::from_mode(0o500)).unwrap();
        let (tally, failures) = needs::bound_by_permissions(|| remove(&dir.path().join("t")));
        fs::set_permissions(dir.path().join("t/shut"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((tally.files, tally.directories, failures.len()), (1, 0, 1), "{failures:?}");
        assert!(failures[0].starts_with("shut/f remove"), "{failures:?}");
    }

    #[test]
    fn one_object_goes_only_if_it_is_what_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, b"one").unwrap();
        let version = target(&path).file_status().unwrap().version();
        fs::write(&path, b"other").unwrap();
        let refused = remove_one(&target(&path), Some(&version), false).unwrap_err();
        assert_eq!(refused.kind, FailureKind::Changed);
        let version = target(&path).file_status().unwrap().version();
        assert_eq!(remove_one(&target(&path), Some(&version), false).unwrap().files, 1);
        assert!(remove_one(&target(dir.path()), None, false).is_err());
        assert_eq!(remove_one(&target(dir.path()), None, true).unwrap().directories, 1);
    }

    #[test]
    fn a_name_that_is_taken_is_replaced_only_when_that_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, b"a").unwrap();
        fs::write(&b, b"b").unwrap();
        assert_eq!(rename(&target(&a), &target(&b), false).unwrap_err().kind, FailureKind::InTheWay);
        rename(&target(&a), &target(&b), true).unwrap();
        assert_eq!(fs::read(&b).unwrap(), b"a");
        let link = dir.path().join("link");
        fs::hard_link(&b, &link).unwrap();
        for to in [&link, &b] {
            let refused = rename(&target(&b), &target(to), true).unwrap_err();
            assert!(refused.message().ends_with("both names already belong to the same file"), "{refused}");
        }
        assert!(b.exists() && link.exists());
        assert!(make(&target(&b), true).is_err());
        assert!(make(&target(&a), false).unwrap());
        assert!(make(&target(&a), false).is_err() && !make(&target(&a), true).unwrap());
    }
}
