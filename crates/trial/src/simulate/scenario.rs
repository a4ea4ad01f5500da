//! What one seed means: a small source, what stands at the destination, the options, and the faults of each attempt.
//!
//! Not here: special files, other names and attributes of the source (`metadata`).

use super::faults::{DiskFaults, Kind};
use super::metadata;
use super::network::PipeFaults;
use super::reference::{Goal, Reference, Version};
use super::transfer::NetworkFaults;
use crate::random::Random;
use anyhow::Result;
use model::options::{Compression, Deletion, Engine, Fsync, Verify};
use model::{DigestAlgorithm, TransferOptions};
use rustix::fs::{Timespec, Timestamps, futimens};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::limits::PACKED_FILE_BYTES_MAX;

/// Small, so that a file of a few pages is a large object of several chunks.
const CHUNK_BYTES: u64 = 4096;
/// Now and then: an object that is one chunk and too long for a pack.
const LONG_CHUNK_BYTES: u64 = 256 << 10;
const LONG_FILE_BYTES: u64 = PACKED_FILE_BYTES_MAX + 9_000;
/// Faults of streams lie within so many bytes of the first one's start.
const SPAN_BYTES: u64 = 30_000;
const LONG_SPAN_BYTES: u64 = 2 * LONG_FILE_BYTES;
const FILES_MAX: u64 = 9;

/// A fault of one attempt, with the class it is counted in.
#[derive(Clone, Debug)]
pub enum Fault {
    None,
    /// The receiver's process, at a call to its disk.
    KillReceiver(DiskFaults),
    /// The same, and what was not synced is lost.
    PowerLoss(DiskFaults),
    KillSender(Moment),
    Network(NetworkFaults, &'static str),
    ReceiverDisk(DiskFaults, &'static str),
    SenderDisk(DiskFaults),
    /// A file of the source is rewritten while it may be read.
    SourceChanges(Moment, Change),
}

/// When something happens at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// So long after the attempt's start. Time passes where everyone waits: for what is on its way with this delay.
    At { after: Duration, delay: Duration },
    /// Right before its n-th read of content.
    Reading(u64),
}

/// How a source changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Rewritten,
    /// Other bytes, as many as before.
    InPlace,
}

/// Every class of fault that a seed may draw, with the faults of the table that it is.
pub const CLASSES: [(&str, &[&str]); 13] = [
    ("simulated kill of the receiver", &["F087"]),
    ("simulated power loss", &["F089"]),
    ("simulated kill of the sender", &["F087"]),
    (CUT_STREAM, &["F099"]),
    (CUT_SESSION, &[]),
    (FLIP, &["F075"]),
    (SHORT_WRITES, &["F073"]),
    (FULL, &["F070"]),
    (DEAD, &["F072"]),
    (REFUSED, &["F081"]),
    (ANOTHER, &[]),
    ("simulated read error", &["F071"]),
    ("simulated change of the source", &["F058"]),
];
const CUT_STREAM: &str = "simulated cut of a stream";
const CUT_SESSION: &str = "simulated cut of the session";
const FLIP: &str = "simulated bit flip behind the stream";
const SHORT_WRITES: &str = "simulated short and interrupted writes";
const FULL: &str = "simulated full disk";
const DEAD: &str = "simulated write or sync error";
const REFUSED: &str = "simulated refusal by storage";
const ANOTHER: &str = "simulated error of another call";

impl Fault {
    /// Class and faults of the table.
    pub fn class(&self) -> (&'static str, &'static [&'static str]) {
        let class = match self {
            Fault::None => return ("none", &[]),
            Fault::KillReceiver(_) => "simulated kill of the receiver",
            Fault::PowerLoss(_) => "simulated power loss",
            Fault::KillSender(_) => "simulated kill of the sender",
            Fault::Network(_, class) | Fault::ReceiverDisk(_, class) => class,
            Fault::SenderDisk(_) => "simulated read error",
            Fault::SourceChanges(..) => "simulated change of the source",
        };
        CLASSES.into_iter().find(|(name, _)| *name == class).expect("every class is listed")
    }
}

pub struct Scenario {
    pub options: TransferOptions,
    pub streams: u32,
    pub is_journaled: bool,
    pub faults: Vec<Fault>,
    /// Files of the source that have one name, by path.
    pub files: Vec<Vec<u8>>,
    /// Names of one file, where the job keeps them so.
    pub names_of_one: Vec<Vec<u8>>,
}

/// Makes source and destination below `dir`, and tells the reference of them.
pub fn make(random: &mut Random, dir: &Path, reference: &Reference) -> Result<Scenario> {
    let (source, root) = (dir.join("source"), dir.join("disk-0"));
    std::fs::create_dir(&source)?;
    std::fs::create_dir_all(root.join("to"))?;
    let options = options(random);
    let chunk_bytes = options.chunk_bytes;
    let mut files = Vec::new();
    let directories: Vec<Vec<u8>> =
        [&b""[..], b"a", b"a/deeper", b"b"][..1 + random.below(4) as usize].iter().map(|name| name.to_vec()).collect();
    for directory in directories.iter().filter(|directory| !directory.is_empty()) {
        std::fs::create_dir(join(&source, directory))?;
        reference.source_has(directory, Version::Directory);
        if random.one_in(3) {
            std::fs::create_dir_all(join(&root.join("to"), directory))?;
        }
    }
    for number in 0..1 + random.below(FILES_MAX) {
        let directory = &directories[random.below(directories.len() as u64) as usize];
        let mut path = directory.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(format!("file-{number}").as_bytes());
        if random.one_in(10) {
            std::os::unix::fs::symlink("somewhere/else", join(&source, &path))?;
            reference.source_has(&path, Version::Link(b"somewhere/else".to_vec()));
            continue;
        }
        let at = join(&source, &path);
        let seconds = 1_000_000 + number as i64;
        let version = match chunk_bytes {
            LONG_CHUNK_BYTES if number < 2 => write_sized(random, &at, seconds, LONG_FILE_BYTES)?,
            _ => write(random, &at, seconds)?,
        };
        reference.source_has(&path, version);
        if random.one_in(3) {
            let at = join(&root.join("to"), &path);
            std::fs::create_dir_all(at.parent().unwrap_or(&root))?;
            let before = match random.below(6) {
                0 | 1 => copy(&join(&source, &path), &at)?,
                2 => alter(random, &join(&source, &path), &at)?,
                _ => write(random, &at, 500)?,
            };
            reference.destination_had(&path, before);
        }
        files.push(path);
    }
    let mut names_of_one = Vec::new();
    if options.fidelity.hard_links {
        metadata::give(random, &source, &files, reference)?;
        names_of_one = metadata::link(random, &source, &root.join("to"), &directories, reference)?;
        metadata::add_specials(random, &source, &directories, reference)?;
    }
    if options.deletion.is_some() {
        add_extraneous(random, &root.join("to"), reference)?;
    }
    let has_journal = random.one_in(2);
    reference.job_is_to(Goal { deletes: options.deletion.is_some(), backup: options.backup.clone(), has_journal });
    note_directories(&root.join("to"), b"", reference)?;
    let span = if chunk_bytes == LONG_CHUNK_BYTES { LONG_SPAN_BYTES } else { SPAN_BYTES };
    let faults = (0..1 + random.below(4)).map(|_| fault(random, span)).collect();
    Ok(Scenario {
        options,
        streams: 1 + random.below(3) as u32,
        is_journaled: has_journal,
        faults,
        files,
        names_of_one,
    })
}

/// What the source does not have.
fn add_extraneous(random: &mut Random, to: &Path, reference: &Reference) -> Result<()> {
    std::fs::create_dir_all(to.join("extra/deeper"))?;
    for path in [&b"extra-file"[..], b"extra/file", b"extra/deeper/file"] {
        if random.below(3) > 0 {
            let version = write(random, &join(to, path), 500)?;
            reference.destination_had(path, version);
        }
    }
    Ok(())
}

pub fn join(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(path))
}

/// Directories that stand at the destination before.
fn note_directories(dir: &Path, path: &[u8], reference: &Reference) -> Result<()> {
    for child in std::fs::read_dir(dir)? {
        let child = child?;
        if child.file_type()?.is_dir() {
            let path = if path.is_empty() {
                child.file_name().as_bytes().to_vec()
            } else {
                [path, b"/", child.file_name().as_bytes()].concat()
            };
            reference.destination_had(&path, Version::Directory);
            note_directories(&child.path(), &path, reference)?;
        }
    }
    Ok(())
}

/// Writes a file of a size at which something may go wrong (F056). Never all zeros: those are what a loss leaves.
pub fn write(random: &mut Random, at: &Path, seconds: i64) -> Result<Version> {
    let sizes = [0, 1, 100, 3000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 5 * CHUNK_BYTES + 77];
    let size = sizes[random.below(sizes.len() as u64) as usize];
    write_sized(random, at, seconds, size)
}

pub fn write_sized(random: &mut Random, at: &Path, seconds: i64, size: u64) -> Result<Version> {
    let bytes: Vec<u8> = (0..size).map(|_| random.below(255) as u8 + 1).collect();
    std::fs::write(at, &bytes)?;
    let modified = (seconds, random.below(1_000_000_000) as i64);
    set_time(at, modified)?;
    Ok(Version::File { bytes, modified, kept: None })
}

fn copy(from: &Path, to: &Path) -> Result<Version> {
    use std::os::unix::fs::MetadataExt;
    let bytes = std::fs::read(from)?;
    let status = std::fs::metadata(from)?;
    std::fs::write(to, &bytes)?;
    let modified = (status.mtime(), status.mtime_nsec());
    set_time(to, modified)?;
    Ok(Version::File { bytes, modified, kept: None })
}

/// An older version of the same file: a byte differs, or the end.
fn alter(random: &mut Random, from: &Path, to: &Path) -> Result<Version> {
    let mut bytes = std::fs::read(from)?;
    let place = random.below(bytes.len() as u64 + 1) as usize;
    match bytes.get_mut(place) {
        Some(byte) if random.one_in(2) => *byte = *byte % 255 + 1,
        _ => bytes.truncate(place),
    }
    std::fs::write(to, &bytes)?;
    set_time(to, (500, 0))?;
    Ok(Version::File { bytes, modified: (500, 0), kept: None })
}

pub fn set_time(at: &Path, (tv_sec, tv_nsec): (i64, i64)) -> Result<()> {
    let time = Timespec { tv_sec, tv_nsec };
    let file = std::fs::File::open(at)?;
    Ok(futimens(&file, &Timestamps { last_access: time, last_modification: time })?)
}

fn options(random: &mut Random) -> TransferOptions {
    let is_delta = random.one_in(4);
    let is_long_digest = random.one_in(4) || is_delta;
    let compressions = [Compression::None, Compression::None, Compression::Zstd, Compression::Lz4];
    TransferOptions {
        fsync: if random.one_in(5) { Fsync::File } else { Fsync::Batch },
        verify: if random.one_in(5) { Verify::Reread } else { Verify::Stream },
        digest: if is_long_digest { DigestAlgorithm::Blake3 } else { DigestAlgorithm::Crc64Nvme },
        chunk_bytes: if random.one_in(8) { LONG_CHUNK_BYTES } else { CHUNK_BYTES },
        engine: if random.one_in(3) { Engine::Uring } else { Engine::Plain },
        compression: compressions[random.below(4) as usize],
        deletion: random.one_in(4).then_some(Deletion { is_at_root: true, removals_max: None }),
        backup: random.one_in(5).then(|| b"old".to_vec()),
        fidelity: if random.one_in(3) { metadata::everything() } else { Default::default() },
        is_delta,
        ..TransferOptions::default()
    }
}

/// Where a job with this delay is under way nearly always: it takes about six ways, and a millisecond.
fn moment(random: &mut Random) -> Moment {
    if random.one_in(2) {
        return Moment::Reading(1 + random.below(12));
    }
    let delay = Duration::from_micros([500, 5_000, 40_000][random.below(3) as usize]);
    let latest_us = 1_000 + 6 * delay.as_micros() as u64;
    Moment::At { after: Duration::from_micros(random.below(latest_us)), delay }
}

pub fn fault(random: &mut Random, span: u64) -> Fault {
    let kill = |random: &mut Random| DiskFaults {
        kill: Some((1 + random.below(90), random.one_in(2))),
        ..DiskFaults::default()
    };
    let delay = Duration::from_micros([0, 100, 40_000][random.below(3) as usize]);
    let stream = |stream| NetworkFaults { delay, stream, ..NetworkFaults::default() };
    let at = random.below(span);
    match random.below(16) {
        0 | 1 => Fault::KillReceiver(kill(random)),
        2..=5 => Fault::PowerLoss(kill(random)),
        6 => Fault::KillSender(moment(random)),
        7 => Fault::Network(stream(PipeFaults { cut_at: Some(at), ..PipeFaults::default() }), CUT_STREAM),
        8 => Fault::Network(
            NetworkFaults { delay, control_cut_at: Some(random.below(600)), ..NetworkFaults::default() },
            CUT_SESSION,
        ),
        9 => Fault::Network(stream(PipeFaults { flip_at: Some(at), ..PipeFaults::default() }), FLIP),
        10 | 11 => disk_error(random),
        12 => Fault::ReceiverDisk(
            DiskFaults { short_bytes: Some(1 + random.below(700) as usize), ..DiskFaults::default() },
            SHORT_WRITES,
        ),
        13 => {
            let error = Some((1 + random.below(10), Kind::Read, Errno::IO));
            Fault::SenderDisk(DiskFaults { error, ..DiskFaults::default() })
        }
        14 => {
            let change = if random.one_in(2) { Change::InPlace } else { Change::Rewritten };
            Fault::SourceChanges(moment(random), change)
        }
        _ => Fault::None,
    }
}

fn disk_error(random: &mut Random) -> Fault {
    let (kind, errnos): (Kind, &[Errno]) = match random.below(9) {
        0 | 1 => (Kind::Sync, &[Errno::IO, Errno::NOSPC, Errno::DQUOT]),
        2 => (Kind::Write, &[Errno::IO, Errno::NOSPC, Errno::DQUOT]),
        3 => (Kind::Rename, &[Errno::IO, Errno::NOSPC, Errno::ROFS]),
        4 => (Kind::Attribute, &[Errno::IO, Errno::PERM, Errno::ROFS]),
        5 => (Kind::HardLink, &[Errno::IO, Errno::NOSPC]),
        // Where devices are forbidden they are skipped, which is no failure.
        6 => (Kind::MakeNode, &[Errno::IO, Errno::NOSPC]),
        7 => (Kind::Unlink, &[Errno::IO, Errno::ACCESS, Errno::BUSY]),
        _ => (Kind::Open, &[Errno::NOSPC, Errno::MFILE, Errno::ROFS, Errno::ACCESS]),
    };
    let errno = errnos[random.below(errnos.len() as u64) as usize];
    let class = match (kind, errno) {
        (_, Errno::NOSPC | Errno::DQUOT) => FULL,
        (Kind::Sync | Kind::Write, _) => DEAD,
        (_, Errno::ROFS | Errno::ACCESS) => REFUSED,
        _ => ANOTHER,
    };
    let first = match kind {
        // These are few: wherever one comes.
        Kind::HardLink | Kind::MakeNode | Kind::Unlink => 1,
        _ => 1 + random.below(80),
    };
    Fault::ReceiverDisk(DiskFaults { error: Some((first, kind, errno)), ..DiskFaults::default() }, class)
}
