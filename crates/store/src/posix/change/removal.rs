//! A directory removed with everything below it, by several threads: one goes through the tree, the others take names away, directory
//! by directory.
//!
//! Invariants:
//! - A directory is removed only after everything that was found in it; what was put there meanwhile keeps it.
//! - Memory is bounded by the names of the directories on the way, descriptors by `OPEN_MAX` and the batches under way.

use crate::Error;
use crate::posix::beneath::Bounds;
use crate::posix::target::Target;
use crate::posix::walk::{Names, PATH_BYTES_MAX};
use crate::shelf::{EachFailure, Stopped};
use model::Name;
use model::files::Tally;
use os::fs::unlinkat;
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

/// Directories on the way that are kept open, half of them the outermost.
pub const OPEN_MAX: usize = 32;
const BATCH_NAMES: usize = 256;
/// Batches that wait for a thread: each keeps its directory open.
const BATCHES_MAX: usize = 32;
const THREADS_MAX: usize = 4;
/// Failures kept until they are told; more are counted.
const FAILURES_MAX: usize = 1024;

pub fn remove_directory(target: &Target, is_stopped: Stopped<'_>, each_failure: EachFailure<'_>) -> Tally {
    let counts = Counts::default();
    let failed = |path: &[u8], e: Error| counts.fail(path, e);
    match target.changeable("remove").and_then(|_| target.open().map_err(|e| Error::new("open directory", b"", e))) {
        Err(e) => failed(b"", e),
        Ok(open) => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
            let (batches, waiting) = sync_channel(BATCHES_MAX);
            let waiting = Mutex::new(waiting);
            let begun = std::thread::scope(|scope| {
                let (waiting, counts) = (&waiting, &counts);
                os::thread::several(scope, "remove", threads, || || unlink_batches(waiting, counts, is_stopped))?;
                let mut removal = Removal {
                    counts,
                    is_stopped,
                    batches,
                    hides_staging: target.hides_staging,
                    bounds: target.bounds,
                    frames: Vec::new(),
                    path: Vec::new(),
                    each_failure: &mut *each_failure,
                };
                removal.run(open);
                Ok::<(), std::io::Error>(())
            });
            if let Err(e) = begun {
                failed(b"", Error::new("start a thread", b"", e));
            } else if !is_stopped() {
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
    bounds: Bounds,
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
                false => self.bounds.open_child(open.as_fd(), &name),
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
            at = Arc::new(self.bounds.open_child(at.as_fd(), name)?);
            // The next ones that are left: a deep tree is not walked down again for each of its directories.
            if depth + OPEN_MAX / 2 > innermost {
                frame.open = Some(at.clone());
            }
        }
        Ok(at)
    }
}
