//! The files of a cache: one for each content, called by what it is known by (`shelf::key_of`), in one directory. Reading waits for what is not there yet.
//!
//! Invariants:
//! - What is handed out was compared with its digest at that moment; what differs is thrown away and fetched again.
//! - A file is removed, and its place taken, only under the lock of the account.
//! - After a kill the directory tells what is held; what was not complete has no name in it, and goes.
//!
//! Not here: the account (`shelf`), where content comes from (`upstream`).

use super::shelf::{Batch, Key, Shelf, Standing, key_of};
use crate::error::{Error, Result};
use model::set::{Catalogue, Note, Readers, SetFile};
use model::{ChunkHasher, Digest, DigestAlgorithm, Extent, FailureKind, Location, Name, mutant};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fstat, futimens, openat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use store::posix::{PosixSink, beneath, read_directory};
use store::{Sink, StagedFile};
use tracing::warn;

/// Where below the root of the endpoint the files are.
pub const DIRECTORY: &str = "blobs";
const BLOCK_BYTES: usize = 128 << 10;
/// How often content is fetched again that turns out to be wrong.
const TRIES_MAX: u32 = 3;
/// Asked together: those who ask next are expected within this time.
const LINGER: Duration = Duration::from_millis(10);
/// How long room is waited for, and from when on what was used just now is taken.
const ROOM_PATIENCE: Duration = Duration::from_secs(30);
const ROOM_SPARING: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);
/// When a file was used last is written down so finely, for the order after a restart.
const USE_NOTED: Duration = Duration::from_secs(60);

/// A set as it is served: its note was compared with the signature that is known, its catalogue with the note.
#[derive(Debug)]
pub struct SetNow {
    pub note: Note,
    pub catalogue: Arc<Catalogue>,
    /// Where it is fetched from.
    pub holders: Vec<Location>,
}

impl SetNow {
    /// What a file of it is known by here.
    pub fn key(&self, file: &SetFile) -> Key {
        let is_open = self.note.readers == Readers::Public || mutant::is_on("share-private-content");
        key_of((!is_open).then_some(&self.note.name), file)
    }
}

/// The set of what is wanted; the same note is the same set.
#[derive(Clone, Debug)]
pub struct OfSet(pub Arc<SetNow>);

impl PartialEq for OfSet {
    fn eq(&self, other: &OfSet) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

pub struct Hold {
    directory: Arc<OwnedFd>,
    shelf: Mutex<Shelf<OfSet>>,
    /// Files that come in chunks and can be read already.
    staged: Mutex<HashMap<Key, Arc<dyn StagedFile>>>,
    changed: Condvar,
    is_over: Arc<AtomicBool>,
}

/// Content that can be read; while this lives it is not removed.
pub enum Content {
    Held { file: File, key: Key, arrival: u64, hold: Arc<Hold> },
    Staged(Arc<dyn StagedFile>),
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Content::Held { key, arrival, hold, .. } = self {
            hold.shelf().release(key, *arrival);
            hold.changed.notify_all();
        }
    }
}

impl Content {
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        match self {
            Content::Staged(staged) => staged.read_at(offset, buffer),
            Content::Held { file, .. } => loop {
                match file.read_at(buffer, offset) {
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    read => return read.map_err(|e| store::Error::new("read file", b"", e)),
                }
            },
        }
    }

    /// Whether a chunk of it has this digest.
    fn has(&self, extent: Extent, digest: Digest, is_whole: bool) -> bool {
        let (mut hasher, mut at) = (ChunkHasher::new(DigestAlgorithm::Blake3, extent.start), extent.start);
        let mut block = vec![0; BLOCK_BYTES];
        while at < extent.end {
            let wanted = (extent.end - at).min(BLOCK_BYTES as u64) as usize;
            match self.read_at(at, &mut block[..wanted]) {
                Ok(0) | Err(_) => return false,
                Ok(read) => {
                    hasher.update(&block[..read]);
                    at += read as u64;
                }
            }
        }
        hasher.finish(is_whole) == digest
    }
}

pub fn name_of(key: &Key) -> Name {
    Name::new(model::set::page_name(key).as_bytes()).expect("hexadecimal digits are a name")
}

impl Hold {
    /// Opens the directory below `root`, made where it is missing, with what was kept in it.
    pub fn open(root: &Path, size_bytes: u64) -> Result<Arc<Hold>> {
        let path = root.join(DIRECTORY);
        crate::trust::make_private_directory(&path)?;
        let failed = |e| Error::of_file("open", &path, e);
        let directory = beneath::open_directory(&path).map_err(failed)?;
        let mut found = Vec::new();
        read_directory(directory.as_fd(), &mut |name, status| {
            let digest = std::str::from_utf8(name.as_bytes()).ok().and_then(model::set::note::digest_of);
            if let (Some(key), Ok(status)) = (digest, status) {
                found.push((status.st_atime, key, status.st_size as u64));
            }
            true
        })
        .map_err(failed)?;
        found.sort_unstable_by_key(|(used, ..)| *used);
        let before = found.into_iter().map(|(_, key, bytes)| (key, bytes)).collect();
        let hold = Hold {
            directory: Arc::new(directory),
            shelf: Mutex::new(Shelf::new(size_bytes, before)),
            staged: Mutex::default(),
            changed: Condvar::new(),
            is_over: Arc::default(),
        };
        // It may have been larger before.
        hold.shelf().make_room(0, Instant::now(), true, &mut |key| hold.remove(key));
        hold.drop_left();
        Ok(Arc::new(hold))
    }

    pub fn directory(&self) -> &Arc<OwnedFd> {
        &self.directory
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf<OfSet>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stages(&self) -> MutexGuard<'_, HashMap<Key, Arc<dyn StagedFile>>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, key: &Key) {
        let _ = unlinkat(&*self.directory, name_of(key).as_c_str(), AtFlags::empty());
    }

    /// Nobody waits any more.
    pub fn end(&self) {
        self.is_over.store(true, Relaxed);
        self.changed.notify_all();
    }

    pub fn is_over(&self) -> &Arc<AtomicBool> {
        &self.is_over
    }

    /// Has files of a set fetched that are not here.
    pub fn want(&self, set: &OfSet, files: impl Iterator<Item = usize>) {
        let mut shelf = self.shelf();
        for number in files {
            let Some(file) = set.0.catalogue.files().get(number) else { continue };
            if file.size_bytes > 0 {
                shelf.want(set, number, set.0.key(file), file.size_bytes);
            }
        }
        drop(shelf);
        self.changed.notify_all();
    }

    /// Whether a file of a set is here or under way.
    pub fn expects(&self, set: &OfSet, number: usize) -> bool {
        let shelf = self.shelf();
        set.0.catalogue.files().get(number).is_none_or(|file| file.size_bytes == 0 || shelf.expects(&set.0.key(file)))
    }

    /// A chunk of a file, right as it is read; waits until it is there.
    pub fn content(self: &Arc<Hold>, set: &OfSet, number: usize, chunk: u64) -> store::Result<Content> {
        let catalogue = &set.0.catalogue;
        let Some(file) = catalogue.files().get(number) else { return Err(failed("it is not in the catalogue")) };
        let key = set.0.key(file);
        let chunk_bytes = catalogue.chunk_bytes;
        let extent = Extent::new(chunk * chunk_bytes, (chunk + 1).saturating_mul(chunk_bytes).min(file.size_bytes));
        let digest = catalogue.digests(number, chunk, 1).pop().ok_or_else(|| failed("it has no such chunk"))?;
        for _ in 0..TRIES_MAX {
            let content = self.wait(set, number, &key, chunk)?;
            let is_whole = extent.length() == file.size_bytes;
            if content.has(extent, digest, is_whole) || mutant::is_on("serve-rot") {
                return Ok(content);
            }
            let Content::Held { arrival, .. } = &content else {
                self.shelf().begins(&key);
                continue;
            };
            warn!(digest = %name_of(&key), "content in the cache is not what it was: it is fetched again");
            let mut shelf = self.shelf();
            if shelf.discard(&key, *arrival) {
                self.remove(&key);
            }
            drop(shelf);
        }
        Err(failed("its content was wrong time and again, as it came or as it was kept"))
    }

    /// Waits until a chunk can be read.
    fn wait(self: &Arc<Hold>, set: &OfSet, number: usize, key: &Key, chunk: u64) -> store::Result<Content> {
        let since = Instant::now();
        let mut shelf = self.shelf();
        loop {
            if self.is_over.load(Relaxed) {
                return Err(failed("the cache is being stopped"));
            }
            match shelf.standing(set, (key, chunk), since, Instant::now()) {
                Standing::Held(arrival) => match self.open_file(key) {
                    Ok(file) => return Ok(Content::Held { file, key: *key, arrival, hold: self.clone() }),
                    // Somebody else removed it.
                    Err(Errno::NOENT) => _ = shelf.discard(key, arrival),
                    // It is there, and can be read another time.
                    Err(e) => {
                        shelf.release(key, arrival);
                        return Err(store::Error::new("open", b"", e));
                    }
                },
                Standing::Chunk => match self.stages().get(key) {
                    Some(staged) => return Ok(Content::Staged(staged.clone())),
                    None => shelf = self.doze(shelf),
                },
                Standing::Coming => shelf = self.doze(shelf),
                Standing::Failed(why) => return Err(failed(&why)),
                Standing::Unknown => {
                    let bytes = set.0.catalogue.files()[number].size_bytes;
                    shelf.want(set, number, *key, bytes);
                    self.changed.notify_all();
                }
            }
        }
    }

    fn doze<'a>(&self, shelf: MutexGuard<'a, Shelf<OfSet>>) -> MutexGuard<'a, Shelf<OfSet>> {
        self.changed.wait_timeout(shelf, LOOK).unwrap_or_else(PoisonError::into_inner).0
    }

    fn open_file(&self, key: &Key) -> rustix::io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(&*self.directory, name_of(key).as_c_str(), flags, Mode::empty())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        if fstat(&file)?.st_atime + (USE_NOTED.as_secs() as i64) < now {
            let last_access = Timespec { tv_sec: now, tv_nsec: 0 };
            let last_modification = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let _ = futimens(&file, &Timestamps { last_access, last_modification });
        }
        Ok(file.into())
    }

    /// What is to be fetched next, with room for it; nothing when all is over.
    pub fn next_batch(&self) -> Option<Batch<OfSet>> {
        let mut shelf = self.shelf();
        loop {
            if self.is_over.load(Relaxed) {
                return None;
            }
            if !shelf.has_queue() {
                shelf = self.doze(shelf);
                continue;
            }
            // Whoever asks for one asks for the next ones too.
            shelf = self.changed.wait_timeout(shelf, LINGER).unwrap_or_else(PoisonError::into_inner).0;
            let Some(batch) = shelf.next_batch() else { continue };
            let why = match batch.bytes > shelf.size_bytes() {
                true => Some("it is larger than the cache"),
                false => {
                    let (guard, has_room) = self.make_room(shelf, &batch);
                    shelf = guard;
                    (!has_room).then_some("the cache has no room for it: all of it is in use")
                }
            };
            let Some(why) = why else { return Some(batch) };
            warn!(set = batch.of.0.note.name, bytes = batch.bytes, why, "content is not fetched");
            shelf.ended(&batch, why, Instant::now());
            self.changed.notify_all();
        }
    }

    fn make_room<'a>(
        &self,
        mut shelf: MutexGuard<'a, Shelf<OfSet>>,
        batch: &Batch<OfSet>,
    ) -> (MutexGuard<'a, Shelf<OfSet>>, bool) {
        let since = Instant::now();
        while !self.is_over.load(Relaxed) {
            let takes_recent = since.elapsed() >= ROOM_SPARING;
            if shelf.reserve(batch, Instant::now(), takes_recent, &mut |key| self.remove(key)) {
                return (shelf, true);
            }
            if since.elapsed() >= ROOM_PATIENCE {
                break;
            }
            shelf = self.doze(shelf);
        }
        (shelf, false)
    }

    /// A file that comes in chunks can be read from here on, as far as it has come.
    pub fn begins(&self, key: Key, file: Arc<dyn StagedFile>) {
        self.shelf().begins(&key);
        self.stages().insert(key, file);
    }

    pub fn has_chunk(&self, key: &Key, chunk: u64) {
        self.shelf().has_chunk(key, chunk);
        self.changed.notify_all();
    }

    /// A file has its name.
    pub fn arrived(&self, key: &Key, bytes: u64) {
        self.shelf().arrived(key, bytes, Instant::now());
        self.stages().remove(key);
        self.changed.notify_all();
    }

    /// The fetching of a batch is over.
    pub fn ended(&self, batch: &Batch<OfSet>, why: &str) {
        let has_failed = self.shelf().ended(batch, why, Instant::now());
        batch.files.iter().for_each(|(key, _)| _ = self.stages().remove(key));
        self.changed.notify_all();
        if has_failed {
            self.drop_left();
        }
    }

    pub fn holds(&self, key: &Key) -> bool {
        self.shelf().holds(key)
    }

    /// What is left of files that nobody works on takes room that is not counted, and whether somebody asks for them again is open.
    fn drop_left(&self) {
        let sink = PosixSink::new(self.directory.clone(), self.directory.clone(), None);
        sink.drop_staged(&|_, _| true);
        sink.close();
    }
}

fn failed(why: &str) -> store::Error {
    store::Error::of_kind(FailureKind::ReadError, "fetch for the cache", b"", why)
}
