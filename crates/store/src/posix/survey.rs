//! Lists a tree by several threads, in the order of `walk`: one reads directories and goes ahead, others look at what it came
//! upon, and the caller hears of it in order.
//!
//! The order is known from the names alone, and which of them are directories from the directory itself where the file system
//! says so: nothing has to be looked at before the next directory is read.
//!
//! Invariants:
//! - No link is followed; every directory is opened by one name from the descriptor of the one above.
//! - At most `BATCHES_MAX` batches lie between what is read and what the caller has heard: memory is bounded as that of `walk`.
//! - Of the descriptors at most `OPEN_MAX` wait in a batch that no thread looks at yet, so that slots always come back.

use super::beneath::Bounds;
use super::target::{Target, status_of};
use super::trail::{OPEN_MAX, OpenDirectory, Trail};
use super::walk::{Names, PATH_BYTES_MAX, TOO_DEEP, TOO_MANY_NAMES, processors};
use crate::Error;
use crate::shelf::{Slots, Surveyed};
use model::files::FileStatus;
use model::{FailureKind, Name};
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Names that one thread looks at together.
const BATCH_NAMES: usize = 512;
const BATCHES_MAX: usize = 16;
/// A batch is looked at after this long, however little a slow storage gave.
const BATCH_AGE_MAX: Duration = Duration::from_millis(20);
/// Two hide the latency of one another also where there is one processor.
const LOOKERS: std::ops::RangeInclusive<usize> = 2..=8;

/// Lists a target down to `levels` below it; `visit` returns false to stop.
pub fn survey(target: &Target, levels: u32, slots: &Arc<Slots>, visit: &mut dyn FnMut(Surveyed) -> bool) {
    let found = target.file_status();
    let is_entered = levels > 0 && found.as_ref().is_ok_and(FileStatus::is_directory);
    if !visit(Surveyed { path: Vec::new(), is_last: true, found }) || !is_entered {
        return;
    }
    let is_over = AtomicBool::new(false);
    let begun = std::thread::scope(|scope| {
        let (batches_in, batches_out) = sync_channel(BATCHES_MAX);
        let (room_in, room_out) = sync_channel(BATCHES_MAX);
        let (looked_in, looked_out) = channel();
        let batches_out = Arc::new(Mutex::new(batches_out));
        os::thread::several(scope, "survey", processors().clamp(*LOOKERS.start(), *LOOKERS.end()), || {
            let (batches, looked, is_over) = (batches_out.clone(), looked_in.clone(), &is_over);
            move || look(&batches, &looked, is_over)
        })?;
        drop((batches_out, looked_in));
        let out = Out { batches: batches_in, room: room_in, is_over: &is_over };
        let read = move || Reader::new(target, levels, slots, out).run(target);
        std::thread::Builder::new().name("list".to_owned()).spawn_scoped(scope, read)?;
        let (mut waiting, mut next) = (BTreeMap::new(), 0);
        for (number, found) in looked_out {
            waiting.insert(number, found);
            while let Some(found) = waiting.remove(&next) {
                next += 1;
                let _ = room_out.try_recv();
                if !is_over.load(Relaxed) && !found.into_iter().all(&mut *visit) {
                    is_over.store(true, Relaxed);
                }
            }
        }
        Ok::<(), std::io::Error>(())
    });
    if let Err(e) = begun {
        let error = Error::new("start a thread", b"", e);
        visit(Surveyed { path: Vec::new(), is_last: false, found: Err(error) });
    }
}

type Looked = (u64, Vec<Surveyed>);

/// What one thread looks at.
struct Batch {
    number: u64,
    parts: Vec<Part>,
}

enum Part {
    Names {
        directory: Arc<OpenDirectory>,
        names: Arc<Names>,
        range: Range<usize>,
        /// Stands before the names.
        path: Arc<[u8]>,
    },
    Failed {
        path: Vec<u8>,
        error: Error,
    },
}

/// Where batches go.
struct Out<'a> {
    batches: SyncSender<Batch>,
    room: SyncSender<()>,
    is_over: &'a AtomicBool,
}

/// Reads directories in order, and goes ahead of those who look.
struct Reader<'a> {
    levels: u32,
    slots: &'a Arc<Slots>,
    hides_staging: bool,
    bounds: Bounds,
    trail: Trail,
    frames: Vec<Frame>,
    out: Out<'a>,
    batch: Batch,
    names: usize,
    since: Instant,
}

/// A directory on the way, in the order of the trail.
struct Frame {
    names: Arc<Names>,
    next: usize,
    path: Arc<[u8]>,
}

impl<'a> Reader<'a> {
    fn new(target: &Target, levels: u32, slots: &'a Arc<Slots>, out: Out<'a>) -> Reader<'a> {
        Reader {
            levels,
            slots,
            hides_staging: target.hides_staging,
            bounds: target.bounds,
            trail: Trail::new(slots.clone(), target.bounds),
            frames: Vec::new(),
            out,
            batch: Batch { number: 0, parts: Vec::new() },
            names: 0,
            since: Instant::now(),
        }
    }

    fn run(mut self, target: &Target) {
        match target.open().and_then(|fd| fd.try_clone()) {
            Ok(fd) => self.read(OpenDirectory::new(fd, self.slots), None, Vec::new()),
            Err(e) => self.failed(Vec::new(), Error::new("open directory", b"", e)),
        }
        while !self.frames.is_empty() && !self.out.is_over.load(Relaxed) {
            self.step();
            let is_full = self.names >= BATCH_NAMES || self.batch.parts.len() >= OPEN_MAX;
            if (is_full || self.since.elapsed() > BATCH_AGE_MAX) && !self.hand_over() {
                return;
            }
        }
        self.hand_over();
    }

    /// Takes names of the innermost directory up to the next one that is to be entered, and enters it.
    fn step(&mut self) {
        let depth = self.frames.len();
        let frame = self.frames.last_mut().expect("looked at before");
        if frame.next == frame.names.len() {
            self.trail.pop();
            self.frames.pop();
            return;
        }
        let path = frame.path.clone();
        let directory = match self.trail.innermost() {
            Ok(directory) => directory,
            Err(e) => {
                self.trail.pop();
                self.frames.pop();
                return self.failed(without_slash(&path), Error::new("open directory", b"", e));
            }
        };
        let names = frame.names.clone();
        let (from, end) = (frame.next, names.len().min(frame.next + BATCH_NAMES));
        let mut inner = None;
        if (depth as u64) < u64::from(self.levels) {
            inner = (from..end).find(|index| is_directory(&directory, &names, *index));
        }
        let range = from..inner.map_or(end, |index| index + 1);
        frame.next = range.end;
        self.names += range.len();
        let part = Part::Names { directory: directory.clone(), names: names.clone(), range, path: path.clone() };
        self.batch.parts.push(part);
        if let Some(name) = inner.and_then(|index| names.get(index)) {
            self.enter(&directory, name, [&path[..], name_bytes(&names, inner)].concat());
        }
    }

    fn enter(&mut self, above: &OpenDirectory, name: Name, path: Vec<u8>) {
        // Whoever looks at it says so.
        if path.len() > PATH_BYTES_MAX {
            return;
        }
        match self.bounds.open_child(above.as_fd(), &name) {
            Ok(fd) => self.read(OpenDirectory::new(fd, self.slots), Some(name), path),
            Err(e) => match e.raw_os_error().map(Errno::from_raw_os_error) {
                // Gone, or something else by now, as whoever looks at it finds.
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                _ => self.failed(path, Error::new("open directory", b"", e)),
            },
        }
    }

    /// Reads a directory and puts it on the way.
    fn read(&mut self, open: Arc<OpenDirectory>, name: Option<Name>, mut path: Vec<u8>) {
        match Names::read(open.as_fd(), self.hides_staging) {
            Ok(names) if names.is_complete => {
                if name.is_some() {
                    path.push(b'/');
                }
                self.trail.push(open, name);
                self.frames.push(Frame { names: Arc::new(names), next: 0, path: path.into() });
            }
            Ok(_) => self.failed(path, Error::of_kind(FailureKind::Other, "read directory", b"", TOO_MANY_NAMES)),
            Err(e) => self.failed(path, Error::new("read directory", b"", e)),
        }
    }

    fn failed(&mut self, path: Vec<u8>, error: Error) {
        self.batch.parts.push(Part::Failed { path, error });
    }

    /// False when nobody wants more.
    fn hand_over(&mut self) -> bool {
        self.since = Instant::now();
        if self.batch.parts.is_empty() {
            return true;
        }
        let after = Batch { number: self.batch.number + 1, parts: Vec::new() };
        let batch = std::mem::replace(&mut self.batch, after);
        self.names = 0;
        self.out.room.send(()).is_ok() && self.out.batches.send(batch).is_ok()
    }
}

fn name_bytes(names: &Names, index: Option<usize>) -> &[u8] {
    index.and_then(|index| names.c_str(index)).map_or(&[], |name| name.to_bytes())
}

fn without_slash(path: &[u8]) -> Vec<u8> {
    path.strip_suffix(b"/").unwrap_or(path).to_vec()
}

/// Whether a name is a directory, by the word of the directory it stands in, or of itself where that does not say.
fn is_directory(above: &OpenDirectory, names: &Names, index: usize) -> bool {
    match names.file_type(index) {
        FileType::Unknown => names.c_str(index).is_some_and(|name| {
            let status = statat(above.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW);
            status.is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_dir())
        }),
        known => known.is_dir(),
    }
}

fn look(batches: &Mutex<Receiver<Batch>>, looked: &Sender<Looked>, is_over: &AtomicBool) {
    loop {
        // The lock is held while this thread waits for work: the others would wait for the same.
        let next = batches.lock().unwrap().recv();
        let Ok(Batch { number, parts }) = next else { return };
        let mut found = Vec::with_capacity(BATCH_NAMES);
        for part in parts {
            match part {
                _ if is_over.load(Relaxed) => {}
                Part::Failed { path, error } => found.push(Surveyed { path, is_last: false, found: Err(error) }),
                Part::Names { directory, names, range, path } => {
                    found.extend(range.filter_map(|index| look_at(&directory, &names, index, &path)));
                }
            }
        }
        if looked.send((number, found)).is_err() {
            return;
        }
    }
}

fn look_at(directory: &OpenDirectory, names: &Names, index: usize, above: &[u8]) -> Option<Surveyed> {
    let name = names.c_str(index)?;
    let found = match statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(status) => {
            // A link is read by its name.
            let is_link = FileType::from_raw_mode(status.st_mode).is_symlink();
            let named = if is_link { names.get(index) } else { None };
            status_of(directory.as_fd(), named.as_ref(), &status)
        }
        // Gone between listing and looking: it was never part of the answer.
        Err(Errno::NOENT) => return None,
        Err(e) => Err(Error::new("look at", b"", e)),
    };
    let mut path = Vec::with_capacity(above.len() + name.to_bytes().len());
    path.extend_from_slice(above);
    path.extend_from_slice(name.to_bytes());
    let is_last = index + 1 == names.len();
    if path.len() > PATH_BYTES_MAX {
        path.truncate(PATH_BYTES_MAX);
        let error = Error::of_kind(FailureKind::NameRefused, "look at", b"", TOO_DEEP);
        return Some(Surveyed { path, is_last, found: Err(error) });
    }
    Some(Surveyed { path, is_last, found })
}

#[cfg(test)]
mod tests {
    use super::super::walk::walk;
    use super::*;
    use crate::shelf::Visit;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn surveyed(root: &Path, levels: u32) -> Vec<(Vec<u8>, Option<FileStatus>, bool)> {
        let target = Target::local(root.as_os_str().as_encoded_bytes(), false).unwrap();
        let mut found = Vec::new();
        survey(&target, levels, &Slots::new(80), &mut |one| {
            found.push((one.path, one.found.ok(), one.is_last));
            true
        });
        found
    }

    fn walked(root: &Path, levels: u32) -> Vec<(Vec<u8>, Option<FileStatus>, bool)> {
        let target = Target::local(root.as_os_str().as_encoded_bytes(), false).unwrap();
        let mut found = Vec::new();
        walk(&target, levels, &Slots::new(80), &mut |visit| {
            match visit {
                Visit::Object { path, status, is_last, .. } => found.push((path.to_vec(), Some(status), is_last)),
                Visit::Failed { path, .. } => found.push((path.to_vec(), None, false)),
                Visit::Left { .. } => {}
            }
            true
        });
        found
    }

    /// Everything that a tree can hold, more names than a batch, more directories than are kept open.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for i in 0..2 * BATCH_NAMES + 9 {
            fs::create_dir_all(at("many")).unwrap();
            fs::write(at(&format!("many/{i:05}")), vec![0; i]).unwrap();
        }
        for i in 0..300 {
            fs::create_dir_all(at(&format!("wide/{i}/deeper/{}", i % 3))).unwrap();
            fs::write(at(&format!("wide/{i}-x")), b"x").unwrap();
        }
        let mut deep = dir.path().to_owned();
        for i in 0..100 {
            deep.push(format!("d{}", i % 2));
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("e"), b"").unwrap();
            fs::write(deep.join("a"), b"").unwrap();
        }
        symlink("many", at("link")).unwrap();
        symlink("nothing", at("wide/dangling")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        dir
    }

    #[test]
    fn a_survey_finds_what_a_walk_finds_in_the_same_order() {
        let dir = tree();
        for levels in [0, 1, 2, 3, 50, u32::MAX] {
            assert_eq!(surveyed(dir.path(), levels), walked(dir.path(), levels), "{levels}");
        }
        let file = dir.path().join("many/00007");
        assert_eq!(surveyed(&file, u32::MAX), walked(&file, u32::MAX));
    }

    #[test]
    fn what_cannot_be_read_is_told_where_it_stands() {
        let dir = tree();
        let closed = dir.path().join("wide/7");
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        let look = || (surveyed(dir.path(), u32::MAX), walked(dir.path(), u32::MAX));
        let (found, walked) = needs::bound_by_permissions(look);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(found, walked);
        let at = found.iter().position(|(path, ..)| path == b"wide/7").unwrap();
        assert!(found[at].1.is_some() && found[at + 1] == (b"wide/7".to_vec(), None, false));
    }

    #[test]
    fn whoever_has_enough_hears_no_more() {
        let dir = tree();
        let target = Target::local(dir.path().as_os_str().as_encoded_bytes(), false).unwrap();
        for enough in [1, 2, 700, 1500] {
            let mut heard = 0;
            survey(&target, u32::MAX, &Slots::new(80), &mut |_| {
                heard += 1;
                heard < enough
            });
            assert_eq!(heard, enough);
        }
    }
}
