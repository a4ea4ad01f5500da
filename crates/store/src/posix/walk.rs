//! Going through a tree in the order of its names: a directory before what is in it, siblings by the bytes of their names.
//!
//! The order is the same on every host, so that two trees can be compared while they are listed. `survey` lists in the same
//! order by several threads, for whoever does not open what it finds.
//!
//! Invariants:
//! - No link is followed; every directory is opened by one name from the descriptor of the one above.
//! - Memory is bounded by the names of the directories on the way (`NAMES_BYTES_MAX` for one) and not by the tree.
//! - At most `OPEN_MAX` descriptors are held by the walk itself; with those that the visitor keeps at most `Slots` has.

use super::beneath::Bounds;
use super::facts;
use super::source::PosixFile;
use super::target::{Target, status_of};
use super::trail::{OPEN_MAX, OpenDirectory, Trail};
use crate::Error;
use crate::shelf::{Opener, SLOTS_OF_A_WALK, Slots, Visit};
use model::files::FileStatus;
use model::{FailureKind, Name};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, openat, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const LIST_BUFFER_BYTES: usize = 64 << 10;
/// Names of one directory: about two million of ordinary length.
pub const NAMES_BYTES_MAX: usize = 48 << 20;
/// A path below the one that was named: longer ones are reported, not entered.
pub const PATH_BYTES_MAX: usize = 32 << 10;
pub(super) const TOO_DEEP: &str = "it lies too deep";
pub(super) const TOO_MANY_NAMES: &str = "it has more names than can be sorted at once";
/// Names looked at together, and how many of them are worth a thread's start.
const LOOK_AT_ONCE: usize = 4096;
const LOOK_SHARE_MIN: usize = 256;
const LOOK_THREADS_MAX: usize = 4;

const _: () = assert!(SLOTS_OF_A_WALK > 2 * OPEN_MAX);

fn opener(directory: &Arc<OpenDirectory>, name: Option<&Name>, bounds: Bounds) -> Opener {
    let (directory, name) = (directory.clone(), name.cloned());
    Box::new(move || {
        let gone = || Error::of_kind(FailureKind::Other, "open file", b"", "it has no name");
        let opened = bounds.open_file(directory.as_fd(), &name.ok_or_else(gone)?);
        let file = File::from(opened.map_err(|e| Error::new("open file", b"", e))?);
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
        Ok(Arc::new(PosixFile { file }))
    })
}

/// Goes through a target down to `levels` below it; `visit` returns false to stop.
pub fn walk(target: &Target, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Visit<'_>) -> bool) {
    let trail = Trail::new(slots.clone(), target.bounds);
    let (hides_staging, bounds) = (target.hides_staging, target.bounds);
    let mut walk = Walk { levels, slots, hides_staging, bounds, trail, frames: Vec::new(), path: Vec::new(), visit };
    walk.run(target);
}

struct Walk<'a> {
    levels: u32,
    slots: &'a Arc<Slots>,
    hides_staging: bool,
    bounds: Bounds,
    /// The directories on the way, outermost first: how they are reached, and how far they were visited.
    trail: Trail,
    frames: Vec<Frame>,
    path: Vec<u8>,
    visit: &'a mut dyn FnMut(Visit<'_>) -> bool,
}

struct Frame {
    names: Names,
    next: usize,
    /// Status of the names from `looked_from` on.
    looked: Vec<std::result::Result<Stat, Errno>>,
    looked_from: usize,
    /// Length of the walk's path without this directory's last name.
    path_bytes: usize,
}

impl Walk<'_> {
    fn run(&mut self, target: &Target) {
        let status = match target.file_status() {
            Ok(status) => status,
            Err(error) => return self.failed(error),
        };
        let opened = match target.directory.try_clone() {
            Ok(fd) => OpenDirectory::new(fd, self.slots),
            Err(e) => return self.failed(Error::new("open directory", b"", e)),
        };
        let is_directory = status.is_directory();
        let opener = &|| opener(&opened, target.name.as_ref(), target.bounds);
        if !(self.visit)(Visit::Object { path: b"", status, is_last: true, opener }) || !is_directory {
            return;
        }
        drop(opened);
        if self.levels > 0 {
            match target.open().and_then(|fd| fd.try_clone()) {
                Ok(fd) => {
                    if !self.enter(OpenDirectory::new(fd, self.slots), None) {
                        return;
                    }
                }
                Err(e) => self.failed(Error::new("open directory", b"", e)),
            }
        }
        while !self.frames.is_empty() {
            if !self.step() {
                return;
            }
        }
        (self.visit)(Visit::Left { path: b"" });
    }

    fn failed(&mut self, error: Error) {
        (self.visit)(Visit::Failed { path: &self.path, error });
    }

    /// Reads a directory and puts it on the way. The walk's path is that of the directory.
    fn enter(&mut self, open: Arc<OpenDirectory>, name: Option<Name>) -> bool {
        let path_bytes = self.path.len() - name.as_ref().map_or(0, |name| name.as_bytes().len());
        let names = match Names::read(open.as_fd(), self.hides_staging) {
            Ok(names) if names.is_complete => names,
            Ok(_) => {
                self.failed(Error::of_kind(FailureKind::Other, "read directory", b"", TOO_MANY_NAMES));
                return self.leave(path_bytes);
            }
            Err(e) => {
                self.failed(Error::new("read directory", b"", e));
                return self.leave(path_bytes);
            }
        };
        self.trail.push(open, name);
        self.frames.push(Frame { names, next: 0, looked: Vec::new(), looked_from: 0, path_bytes });
        true
    }

    fn pop(&mut self) -> Frame {
        self.trail.pop();
        self.frames.pop().expect("a step has a directory")
    }

    /// Tells that a directory is done; the target's own end is told by `run`.
    fn leave(&mut self, path_bytes: usize) -> bool {
        if self.path.is_empty() {
            return true;
        }
        let goes_on = (self.visit)(Visit::Left { path: &self.path });
        self.path.truncate(path_bytes.saturating_sub(1));
        goes_on
    }

    /// Visits the next name of the innermost directory.
    fn step(&mut self) -> bool {
        let depth = self.frames.len();
        let open = match self.trail.innermost() {
            Ok(open) => open,
            Err(e) => {
                self.failed(Error::new("open directory", b"", e));
                let frame = self.pop();
                return self.leave(frame.path_bytes);
            }
        };
        let frame = self.frames.last_mut().expect("a step has a directory");
        let Some(name) = frame.names.get(frame.next) else {
            let frame = self.pop();
            return self.leave(frame.path_bytes);
        };
        if frame.next >= frame.looked_from + frame.looked.len() {
            frame.looked_from = frame.next;
            frame.looked = look(open.as_fd(), &frame.names, frame.next);
        }
        let status = frame.looked[frame.next - frame.looked_from];
        frame.next += 1;
        let is_last = frame.next == frame.names.len();
        let before = self.path.len();
        if before > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        let status = match status {
            Ok(status) => status_of(open.as_fd(), Some(&name), &status),
            // Gone between listing and looking: it was never part of the answer.
            Err(Errno::NOENT) => {
                self.path.truncate(before);
                return true;
            }
            Err(e) => Err(Error::new("look at", b"", e)),
        };
        let goes_on = match status {
            Ok(status) => return self.object(status, &open, &name, is_last, depth, before),
            Err(error) => (self.visit)(Visit::Failed { path: &self.path, error }),
        };
        self.path.truncate(before);
        goes_on
    }

    fn object(
        &mut self,
        status: FileStatus,
        open: &Arc<OpenDirectory>,
        name: &Name,
        is_last: bool,
        depth: usize,
        before: usize,
    ) -> bool {
        let is_directory = status.is_directory();
        let path = &self.path[..];
        if path.len() > PATH_BYTES_MAX {
            let error = Error::of_kind(FailureKind::NameRefused, "look at", b"", TOO_DEEP);
            let goes_on = (self.visit)(Visit::Failed { path: &path[..PATH_BYTES_MAX], error });
            self.path.truncate(before);
            return goes_on;
        }
        let opener = &|| opener(open, Some(name), self.bounds);
        if !(self.visit)(Visit::Object { path, status, is_last, opener }) {
            return false;
        }
        if !is_directory {
            self.path.truncate(before);
            return true;
        }
        if depth as u64 >= u64::from(self.levels) {
            let goes_on = (self.visit)(Visit::Left { path: &self.path });
            self.path.truncate(before);
            return goes_on;
        }
        match self.bounds.open_child(open.as_fd(), name) {
            Ok(fd) => {
                let opened = OpenDirectory::new(fd, self.slots);
                self.enter(opened, Some(name.clone()))
            }
            Err(e) => {
                self.failed(Error::new("open directory", b"", e));
                let goes_on = (self.visit)(Visit::Left { path: &self.path });
                self.path.truncate(before);
                goes_on
            }
        }
    }
}

/// The status of the next names, by several threads where there are many.
fn look(directory: BorrowedFd<'_>, names: &Names, from: usize) -> Vec<std::result::Result<Stat, Errno>> {
    let end = names.len().min(from + LOOK_AT_ONCE);
    let one = |index: usize| match names.c_str(index) {
        Some(name) => statat(directory, name, AtFlags::SYMLINK_NOFOLLOW),
        None => Err(Errno::NOENT),
    };
    let threads = ((end - from) / LOOK_SHARE_MIN).min(processors()).min(LOOK_THREADS_MAX);
    if threads <= 1 {
        return (from..end).map(one).collect();
    }
    let share = (end - from).div_ceil(threads);
    std::thread::scope(|scope| {
        let one = &one;
        let starts: Vec<usize> = (from..end).step_by(share).collect();
        let rest = starts.iter().skip(1).map(|start| {
            let range = *start..end.min(start + share);
            let looked = range.clone();
            let look = move || looked.map(one).collect::<Vec<_>>();
            // Where no thread is to be had, this one does it.
            std::thread::Builder::new().spawn_scoped(scope, look).map_err(|_| range)
        });
        let rest: Vec<_> = rest.collect();
        let mut all: Vec<_> = (from..end.min(from + share)).map(one).collect();
        rest.into_iter().for_each(|begun| match begun {
            Ok(thread) => all.extend(thread.join().expect("looking does not panic")),
            Err(range) => all.extend(range.map(one)),
        });
        all
    })
}

pub(super) fn processors() -> usize {
    // The kernel is asked once: the answer comes from several files.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Names that all walks of this process hold, in steps of `HELD_STEP_BYTES`: many clients that list huge directories at once
/// are told so instead of being served.
static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);
const HELD_BYTES_MAX: usize = 256 << 20;
const HELD_STEP_BYTES: usize = 1 << 20;

/// The names of one directory, sorted by their bytes, in one piece of memory.
pub struct Names {
    /// Its part of `HELD_BYTES`.
    held_bytes: usize,
    /// Each with a NUL behind it.
    bytes: Vec<u8>,
    /// Start and length in `bytes`, and what the directory says it is.
    spans: Vec<(u32, u8, FileType)>,
    /// False when there were more than may be held.
    pub is_complete: bool,
}

impl Names {
    /// Reads a directory through a descriptor of its own: the offset of a shared one belongs to someone else.
    pub fn read(directory: BorrowedFd<'_>, hides_staging: bool) -> std::io::Result<Names> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = openat(directory, c".", flags, Mode::empty())?;
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
        let mut raw = RawDir::new(&listing, &mut buffer);
        let mut names = Names { held_bytes: 0, bytes: Vec::new(), spans: Vec::new(), is_complete: true };
        while let Some(found) = raw.next() {
            let found = found?;
            let bytes = found.file_name().to_bytes();
            let is_hidden = hides_staging && bytes.starts_with(facts::STAGING_PREFIX);
            // `.`, `..`, and what no kernel should hand out.
            if is_hidden || !Name::is_valid(bytes) {
                continue;
            }
            if !names.make_room(bytes.len() + 1) {
                names.is_complete = false;
                break;
            }
            names.spans.push((names.bytes.len() as u32, bytes.len() as u8, found.file_type()));
            names.bytes.extend_from_slice(bytes);
            names.bytes.push(0);
        }
        let Names { bytes, spans, .. } = &mut names;
        let name = |span: &(u32, u8, FileType)| &bytes[span.0 as usize..span.0 as usize + usize::from(span.1)];
        spans.sort_unstable_by(|a, b| name(a).cmp(name(b)));
        Ok(names)
    }

    /// Whether one more name of so many bytes may be held.
    fn make_room(&mut self, name_bytes: usize) -> bool {
        let needed = self.bytes.len() + name_bytes + (self.spans.len() + 1) * size_of::<(u32, u8, FileType)>();
        if needed > NAMES_BYTES_MAX {
            return false;
        }
        // What fits the first step is the price of being asked at all.
        if needed > self.held_bytes + HELD_STEP_BYTES {
            if HELD_BYTES.fetch_add(HELD_STEP_BYTES, Relaxed) >= HELD_BYTES_MAX {
                HELD_BYTES.fetch_sub(HELD_STEP_BYTES, Relaxed);
                return false;
            }
            self.held_bytes += HELD_STEP_BYTES;
        }
        true
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<Name> {
        let (start, bytes, _) = self.spans.get(index)?;
        let start = *start as usize;
        Some(Name::new(&self.bytes[start..start + usize::from(*bytes)]).expect("checked when it was read"))
    }

    pub(super) fn c_str(&self, index: usize) -> Option<&CStr> {
        let (start, bytes, _) = self.spans.get(index)?;
        let start = *start as usize;
        CStr::from_bytes_with_nul(&self.bytes[start..=start + usize::from(*bytes)]).ok()
    }

    /// What the directory says the object is; `Unknown` where its file system does not say.
    pub fn file_type(&self, index: usize) -> FileType {
        self.spans[index].2
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        HELD_BYTES.fetch_sub(self.held_bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::beneath;
    use super::*;
    use std::fs;

    fn paths(root: &std::path::Path, levels: u32) -> Vec<String> {
        let target = Target::local(root.as_os_str().as_encoded_bytes(), false).unwrap();
        let mut found = Vec::new();
        walk(&target, levels, &Slots::new(80), &mut |visit| {
            found.push(match visit {
                Visit::Object { path, is_last, .. } => {
                    format!("{}{}", String::from_utf8_lossy(path), if is_last { "$" } else { "" })
                }
                Visit::Left { path } => format!("<{}", String::from_utf8_lossy(path)),
                Visit::Failed { path, error } => panic!("{path:?} {error}"),
            });
            true
        });
        found
    }

    #[test]
    fn names_come_in_the_order_of_their_bytes_and_directories_are_left() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["a/x", "a-b", "a/y/z", "B"] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        }
        let all = ["$", "B", "a", "a/x", "a/y$", "a/y/z$", "<a/y", "<a", "a-b$", "<"];
        assert_eq!(paths(dir.path(), u32::MAX), all);
        assert_eq!(paths(dir.path(), 1), ["$", "B", "a", "<a", "a-b$", "<"]);
        assert_eq!(paths(dir.path(), 0), ["$", "<"]);
    }

    #[test]
    fn a_thousand_levels_are_walked_with_few_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let mut at = beneath::open_directory(dir.path()).unwrap();
        let names = ["d", "e"].map(|name| Name::new(name.as_bytes()).unwrap());
        for _ in 0..1000 {
            for name in &names {
                rustix::fs::mkdirat(&at, name.as_c_str(), Mode::from_raw_mode(0o700)).unwrap();
            }
            at = beneath::open_child(at.as_fd(), &names[0]).unwrap();
        }
        assert_eq!(paths(dir.path(), u32::MAX).len(), 2 * (1 + 2000));
        // What removes the test's directory would need a descriptor for each level.
        let target = Target::local(dir.path().join("d").as_os_str().as_encoded_bytes(), false).unwrap();
        let removed = super::super::change::remove_tree(&target, &|| false, &mut |_, e| panic!("{e}"));
        assert_eq!(removed.directories, 1999);
    }

    #[test]
    fn a_directory_with_more_names_than_are_looked_at_at_once_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        for i in 0..(LOOK_AT_ONCE * 2 + 10) {
            fs::write(dir.path().join(format!("{i:05}")), b"").unwrap();
        }
        let found = paths(dir.path(), 1);
        assert_eq!(found.len(), LOOK_AT_ONCE * 2 + 10 + 2);
        assert!(found[1..found.len() - 2].is_sorted());
    }
}
