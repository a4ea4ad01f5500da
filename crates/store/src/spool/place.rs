//! The directory of a spool: its lock, what it was made as, its segment files and its marks.
//!
//! Invariants:
//! - The directory belongs to this user and nobody else may enter it. No link in it is followed.
//! - Room for all of the quota is taken when the spool is made.
//!
//! Not here: what is in the segments (`ring`).

use crate::error::{Error, Result};
use crate::spool::format::HEAD_BYTES;
use model::Crc64;
use model::{FailureKind, quantity::ByteCount};
use rustix::fs::{self, AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const OPERATION: &str = "open the buffer";
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
const SEGMENT_BYTES_MAX: u64 = 64 << 20;
/// The least that is any use: a segment of descriptions, one being written, one being drained, and one between them.
pub const QUOTA_MIN: u64 = 4 * SEGMENT_BYTES_MIN;
/// Beyond it segments are longer, so that descriptors and the scan stay few.
const SEGMENTS_MAX: u64 = 4096;
const LOCK_WAIT: Duration = Duration::from_millis(500);
const LOCK_PAUSE: Duration = Duration::from_millis(5);
const LOCK: &str = "lock";
const MADE_AS: &str = "spool";
const REQUESTS: &str = "requests";
const REQUESTS_BYTES_MAX: u64 = 64 << 10;
const MADE_AS_BYTES: usize = 40;
const MADE_AS_MAGIC: &[u8; 8] = b"twspool\n";

/// What a spool was made as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    pub id: u64,
    pub segment_bytes: u64,
    pub segments: u32,
}

pub struct Place {
    pub made: Made,
    path: Vec<u8>,
    directory: File,
    /// Held by the process that uses the spool, and not by one that only looks.
    _lock: Option<File>,
}

/// The parts that a spool of this size is given to its owners in.
pub fn segment_bytes(quota_bytes: u64) -> u64 {
    let sixteenth = (quota_bytes / 16).max(1);
    let power = 1u64 << (63 - sixteenth.leading_zeros());
    let mut segment_bytes = power.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
    while quota_bytes / segment_bytes > SEGMENTS_MAX {
        segment_bytes *= 2;
    }
    segment_bytes
}

impl Made {
    fn of(quota_bytes: u64) -> Made {
        let segment_bytes = segment_bytes(quota_bytes);
        Made { id: os::random().unwrap_or(1), segment_bytes, segments: (quota_bytes / segment_bytes) as u32 }
    }

    fn encode(&self) -> [u8; MADE_AS_BYTES] {
        let mut bytes = [0; MADE_AS_BYTES];
        bytes[..8].copy_from_slice(MADE_AS_MAGIC);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.segments.to_le_bytes());
        let crc = Crc64::of(&bytes[..32]);
        bytes[32..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Made> {
        let bytes: &[u8; MADE_AS_BYTES] = bytes.try_into().ok()?;
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let made = Made {
            id: u64_at(8),
            segment_bytes: u64_at(16),
            segments: u32::from_le_bytes(bytes[24..28].try_into().expect("4 bytes")),
        };
        let is_sound = &bytes[..8] == MADE_AS_MAGIC && u64_at(32) == Crc64::of(&bytes[..32]);
        (is_sound && made.segment_bytes > HEAD_BYTES && made.segment_bytes <= 1 << 40).then_some(made)
    }
}

/// Whether the lock is had. A program that this one is just starting holds what is open here until it runs, and a process
/// that was killed until it is gone: both for moments only.
fn take_lock(lock: &File) -> rustix::io::Result<bool> {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            ended => return ended.map(|()| true),
        }
    }
}

impl Place {
    /// Opens the directory, made if it is missing, for this process alone. `made` is what the spool in it was made as.
    pub fn open(path: &Path) -> Result<(Place, Option<Made>)> {
        let subject = path.as_os_str().as_bytes().to_vec();
        let failed = |e: Errno| Error::new(OPERATION, subject.clone(), e);
        let refused = |why: &str| Error::of_kind(FailureKind::Permission, OPERATION, subject.clone(), why);
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(failed(e)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = File::from(fs::open(path, flags, Mode::empty()).map_err(failed)?);
        let found = directory.metadata().map_err(|e| Error::new(OPERATION, subject.clone(), e))?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err(refused("the directory must belong to this user and to nobody else (chmod 700)"));
        }
        let lock = open_file(&directory, LOCK, OFlags::RDWR | OFlags::CREATE).map_err(failed)?;
        if !take_lock(&lock).map_err(failed)? {
            return Err(refused("another process uses it"));
        }
        let place = Place {
            made: Made { id: 0, segment_bytes: HEAD_BYTES, segments: 0 },
            path: subject.clone(),
            directory,
            _lock: Some(lock),
        };
        // Nobody waits any more for what was asked of an earlier process.
        let _ = place.take_requests();
        let made = place.read_made()?;
        Ok((Place { made: made.unwrap_or(place.made), ..place }, made))
    }

    /// Opens the directory of a spool to look at it.
    pub fn look(path: &Path) -> Result<Place> {
        let subject = path.as_os_str().as_bytes().to_vec();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = fs::open(path, flags, Mode::empty()).map_err(|e| Error::new(OPERATION, subject.clone(), e))?;
        let made = Made { id: 0, segment_bytes: HEAD_BYTES, segments: 0 };
        let place = Place { made, path: subject, directory: File::from(directory), _lock: None };
        let made = place.read_made()?.ok_or_else(|| place.refused("there is no buffer in it"))?;
        Ok(Place { made, ..place })
    }

    fn read_made(&self) -> Result<Option<Made>> {
        let file = match open_file(&self.directory, MADE_AS, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened.map_err(|e| self.failed(e))?,
        };
        let mut bytes = Vec::new();
        let read = file.take(MADE_AS_BYTES as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| Error::new(OPERATION, self.path.clone(), e))?;
        let made = Made::decode(&bytes).ok_or_else(|| {
            self.refused("what is in it is no buffer of this version: let that version drain it, or remove its files")
        })?;
        Ok(Some(made))
    }

    /// Whether a process uses the spool. For one that looks: the lock is let go at once.
    pub fn is_used(&self) -> Result<bool> {
        let lock = match open_file(&self.directory, LOCK, OFlags::RDONLY) {
            Err(Errno::NOENT) => return Ok(false),
            opened => opened.map_err(|e| self.failed(e))?,
        };
        match fs::flock(&lock, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Ok(true),
            ended => ended.map(|()| false).map_err(|e| self.failed(e)),
        }
    }

    /// A segment's file, to be read, if it is there.
    pub fn seen_segment(&self, number: u32) -> Result<Option<File>> {
        match open_file(&self.directory, &name_of(number), OFlags::RDONLY) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some).map_err(|e| self.failed(e)),
        }
    }

    /// Leaves a request for the process that uses the spool.
    pub fn write_request(&self, request: &str) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND;
        let mut file = open_file(&self.directory, REQUESTS, flags).map_err(|e| self.failed(e))?;
        file.write_all(format!("{request}\n").as_bytes()).map_err(|e| Error::new(OPERATION, self.path.clone(), e))
    }

    /// Takes a request back. False where it has been taken.
    pub fn withdraw_request(&self, request: &str) -> Result<bool> {
        let (own, others): (Vec<_>, Vec<_>) = self.take_requests().into_iter().partition(|left| left == request);
        others.iter().try_for_each(|other| self.write_request(other))?;
        Ok(!own.is_empty())
    }

    /// Takes the requests that were left.
    pub fn take_requests(&self) -> Vec<String> {
        let Ok(file) = open_file(&self.directory, REQUESTS, OFlags::RDONLY) else { return Vec::new() };
        if fs::unlinkat(&self.directory, REQUESTS, AtFlags::empty()).is_err() {
            // Somebody else takes them.
            return Vec::new();
        }
        let mut text = String::new();
        let _ = file.take(REQUESTS_BYTES_MAX).read_to_string(&mut text);
        text.lines().map(str::to_owned).collect()
    }

    /// Gives a mark the time of now.
    pub fn mark(&self, name: &str) -> rustix::io::Result<()> {
        let file = open_file(&self.directory, name, OFlags::WRONLY | OFlags::CREATE)?;
        let now = Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW };
        fs::futimens(&file, &Timestamps { last_access: now, last_modification: now })
    }

    /// How old a mark is; nothing for one of the future.
    pub fn marked_ago(&self, name: &str) -> Option<Duration> {
        let file = open_file(&self.directory, name, OFlags::RDONLY).ok()?;
        SystemTime::now().duration_since(file.metadata().ok()?.modified().ok()?).ok()
    }

    /// Makes the spool of this size: every segment is there afterwards, with its room. What was in the directory is lost.
    pub fn make(&mut self, quota_bytes: u64) -> Result<()> {
        let made = Made::of(quota_bytes);
        let _ = fs::unlinkat(&self.directory, MADE_AS, AtFlags::empty());
        for number in made.segments.. {
            if fs::unlinkat(&self.directory, name_of(number), AtFlags::empty()).is_err() {
                break;
            }
        }
        self.made = made;
        for number in 0..made.segments {
            self.segment(number)?;
        }
        let mut file = open_file(&self.directory, "spool.new", OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
            .map_err(|e| self.failed(e))?;
        let written = file.write_all(&made.encode()).and_then(|()| file.sync_all());
        written.map_err(|e| Error::new(OPERATION, self.path.clone(), e))?;
        fs::renameat(&self.directory, "spool.new", &self.directory, MADE_AS).map_err(|e| self.failed(e))?;
        self.directory.sync_all().map_err(|e| Error::new(OPERATION, self.path.clone(), e))
    }

    /// Whether a spool of this size is what is there.
    pub fn is_of(&self, quota_bytes: u64) -> bool {
        let made = Made::of(quota_bytes);
        (self.made.segment_bytes, self.made.segments) == (made.segment_bytes, made.segments)
    }

    /// A segment's file, made if it is missing, as long as a segment and with its room.
    pub fn segment(&self, number: u32) -> Result<File> {
        let name = name_of(number);
        let file = open_file(&self.directory, &name, OFlags::RDWR | OFlags::CREATE).map_err(|e| match e {
            Errno::LOOP | Errno::ISDIR => self.refused(&format!("{name} in it is not a file of a buffer: remove it")),
            e => self.failed(e),
        })?;
        let found = fs::fstat(&file).map_err(|e| self.failed(e))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_nlink != 1 {
            return Err(self.refused(&format!("{name} in it is not a file of a buffer: remove it")));
        }
        let wanted = self.made.segment_bytes;
        if found.st_size as u64 != wanted || (found.st_blocks as u64).saturating_mul(512) < wanted {
            match fs::fallocate(&file, FallocateFlags::empty(), 0, wanted) {
                Ok(()) => {}
                // Room that cannot be taken ahead may be missing later, and a chunk then goes straight on.
                Err(Errno::OPNOTSUPP) => fs::ftruncate(&file, wanted).map_err(|e| self.failed(e))?,
                Err(Errno::NOSPC | Errno::DQUOT) => {
                    let all = ByteCount(wanted * u64::from(self.made.segments));
                    let why = format!("there is no room for {all}: name a smaller size, or another file system");
                    return Err(Error::of_kind(FailureKind::NoSpace, OPERATION, self.path.clone(), &why));
                }
                Err(e) => return Err(self.failed(e)),
            }
        }
        Ok(file)
    }

    pub fn refused(&self, why: &str) -> Error {
        Error::of_kind(FailureKind::InTheWay, OPERATION, self.path.clone(), why)
    }

    pub fn path(&self) -> &[u8] {
        &self.path
    }

    fn failed(&self, e: Errno) -> Error {
        Error::new(OPERATION, self.path.clone(), e)
    }
}

/// Reads a record of fixed length; what is not there reads as zeros.
pub fn read_at<const N: usize>(file: &File, at: u64) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match file.read_at(&mut bytes[filled..], at + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(bytes)
}

fn name_of(number: u32) -> String {
    format!("segment-{number:05}")
}

fn open_file(directory: &File, name: &str, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_a_sixteenth_of_the_quota_within_bounds_and_never_more_than_it() {
        for (quota, segment, segments) in [
            (4 << 20, 1 << 20, 4),
            (48 << 20, 2 << 20, 24),
            (352 << 20, 16 << 20, 22),
            (100 << 30, 64 << 20, 1600),
            (2 << 40, 512 << 20, 4096),
        ] {
            let made = Made::of(quota);
            assert_eq!((made.segment_bytes, made.segments), (segment, segments));
            assert!(made.segment_bytes * u64::from(made.segments) <= quota);
            assert_eq!(Made::decode(&made.encode()), Some(made));
        }
    }

    #[test]
    fn a_request_is_of_the_process_that_uses_the_spool_and_may_be_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        let (mut place, _) = Place::open(&path).unwrap();
        place.make(QUOTA_MIN).unwrap();
        let outside = Place::look(&path).unwrap();
        assert!(outside.is_used().unwrap());
        outside.write_request("drop a").unwrap();
        outside.write_request("drain").unwrap();
        assert!(outside.withdraw_request("drop a").unwrap(), "nobody has taken it");
        assert_eq!(place.take_requests(), ["drain"]);
        assert!(!outside.withdraw_request("drain").unwrap(), "it was taken");
        outside.write_request("drop a").unwrap();
        drop(place);
        assert!(!outside.is_used().unwrap());
        let (next, _) = Place::open(&path).unwrap();
        assert!(next.take_requests().is_empty() && outside.is_used().unwrap());
    }
}
