//! One operation on one layout: write all files, or read them back, and what it took.
//!
//! A write is create, blocks, sync where asked, close; a read is open, blocks, close. Each call is timed alone, too.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use store::posix::facts;

use super::blocks::{Reader, Way, Writer};
use super::files::{Layout, OpenDir, name};
use super::latency::Histogram;
use super::measured::{Call, Measured, Operation};
use super::options::{Cache, Sync};
use super::team::{self, Bounds};
use crate::error::{Error, Kind, Result};

/// Above it one sync of the file system takes less than one for each file, where it syncs them.
const SYNCED_ALONE_MAX: u64 = 64;

/// How far each thread's writing came: complete pieces, and bytes of the next one.
pub(crate) type Written = Vec<(u64, u64)>;

#[derive(Default)]
struct Calls {
    open: Histogram,
    block: Histogram,
    sync: Histogram,
    close: Histogram,
}

/// What one thread did.
struct Done {
    calls: Calls,
    files: u64,
    bytes: u64,
    reached: (u64, u64),
}

pub(super) fn write(
    layout: &Layout,
    way: Way,
    sync: Sync,
    seed: u64,
    bounds: Bounds<'_>,
) -> Result<(Measured, Written)> {
    let work = |thread: usize, clock: &team::Clock<'_>| {
        let mut writer = Writer::new(way, seed, thread)?;
        let mut dir = OpenDir::default();
        let mut done = Done { calls: Calls::default(), files: 0, bytes: 0, reached: (0, 0) };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | way.flags();
        let flags = if layout.is_shared() { flags } else { flags | OFlags::CREATE | OFlags::EXCL };
        for piece in layout.pieces(thread) {
            if clock.is_over() {
                break;
            }
            let at = dir.at(layout.dir(piece.file))?;
            let failed = |operation| Error::io(operation, layout.path(piece.file));
            let opened = std::time::Instant::now();
            let file = rustix::fs::openat(at, name(piece.file), flags, Mode::from_raw_mode(0o600))
                .map_err(failed("create"))?;
            done.calls.open.record(opened.elapsed());
            if way.allocates() && !layout.is_shared() {
                allocate(file.as_fd(), piece.end).map_err(failed("allocate"))?;
            }
            let written = writer.write(file.as_fd(), piece, clock).map_err(failed("write"))?;
            if sync == Sync::File {
                let called = std::time::Instant::now();
                rustix::fs::fsync(&file).map_err(failed("sync"))?;
                done.calls.sync.record(called.elapsed());
            }
            let called = std::time::Instant::now();
            drop(file);
            done.calls.close.record(called.elapsed());
            done.bytes += written;
            if written < piece.end - piece.start {
                done.reached.1 = written;
                break;
            }
            done.files += 1;
            done.reached.0 += 1;
        }
        done.calls.block = writer.into_latencies();
        Ok(done)
    };
    let sync_nanoseconds = AtomicU64::new(0);
    let finish = || match sync {
        Sync::End => {
            let started = std::time::Instant::now();
            let synced = sync_written(layout);
            sync_nanoseconds.store(started.elapsed().as_nanos() as u64, Relaxed);
            synced
        }
        _ => Ok(()),
    };
    let took = team::run(layout.threads(), bounds, work, finish)?;
    let reached = took.of_threads.iter().map(|done| done.reached).collect();
    let mut measured = measured(Operation::Write, layout, took, Call::Create, Call::WriteBlock);
    if sync == Sync::End {
        let mut once = Histogram::default();
        once.record(std::time::Duration::from_nanos(sync_nanoseconds.load(Relaxed)));
        measured.calls.retain(|(call, _)| *call != Call::Sync);
        measured.calls.push((Call::Sync, once));
    }
    Ok((measured, reached))
}

pub(super) fn read(layout: &Layout, way: Way, written: &Written, bounds: Bounds<'_>) -> Result<Measured> {
    let work = |thread: usize, clock: &team::Clock<'_>| {
        let mut reader = Reader::new(way)?;
        let mut dir = OpenDir::default();
        let mut done = Done { calls: Calls::default(), files: 0, bytes: 0, reached: (0, 0) };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | way.flags();
        let (complete, rest) = written[thread];
        for (index, mut piece) in layout.pieces(thread).enumerate() {
            let index = index as u64;
            if clock.is_over() || index > complete || (index == complete && rest == 0) {
                break;
            }
            if index == complete {
                piece.end = piece.start + rest;
            }
            let at = dir.at(layout.dir(piece.file))?;
            let failed = |operation| Error::io(operation, layout.path(piece.file));
            let opened = std::time::Instant::now();
            let file = rustix::fs::openat(at, name(piece.file), flags, Mode::empty()).map_err(failed("open"))?;
            done.calls.open.record(opened.elapsed());
            let bytes = reader.read(file.as_fd(), piece, clock).map_err(failed("read"))?;
            let called = std::time::Instant::now();
            drop(file);
            done.calls.close.record(called.elapsed());
            done.bytes += bytes;
            if bytes < piece.end - piece.start {
                if clock.is_over() {
                    break;
                }
                let cause = format!("ended after {bytes} of {} bytes", piece.end - piece.start);
                return Err(Error::new(Kind::Failed, "read", layout.path(piece.file).display(), cause));
            }
            done.files += 1;
        }
        done.calls.block = reader.into_latencies();
        Ok(done)
    };
    let before = fetched_bytes();
    let took = team::run(layout.threads(), bounds, work, || Ok(()))?;
    let fetched = fetched_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
    let mut measured = measured(Operation::Read, layout, took, Call::Open, Call::ReadBlock);
    measured.fetched_bytes = fetched;
    Ok(measured)
}

fn allocate(file: BorrowedFd<'_>, bytes: u64) -> rustix::io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::fs::ftruncate(file, bytes),
        ended => ended,
    }
}

fn measured(operation: Operation, layout: &Layout, took: team::Took<Done>, open: Call, block: Call) -> Measured {
    let mut calls = Calls::default();
    let (mut files, mut bytes) = (0, 0);
    for done in &took.of_threads {
        for (all, more) in [
            (&mut calls.open, &done.calls.open),
            (&mut calls.block, &done.calls.block),
            (&mut calls.sync, &done.calls.sync),
            (&mut calls.close, &done.calls.close),
        ] {
            all.merge(more);
        }
        files += done.files;
        bytes += done.bytes;
    }
    // Threads that share a file have a piece each.
    let is_complete = bytes == layout.step.bytes;
    let files = if layout.is_shared() { u64::from(is_complete) * layout.step.files } else { files };
    let calls = [(open, calls.open), (block, calls.block), (Call::Sync, calls.sync), (Call::Close, calls.close)];
    Measured {
        operation,
        file_bytes: layout.step.file_bytes,
        round: 0,
        files,
        operations: calls[1].1.count(),
        bytes,
        seconds: took.seconds,
        cpu_seconds: took.cpu_seconds,
        foreign_cpu_seconds: took.foreign_cpu_seconds,
        steal_seconds: took.steal_seconds,
        fetched_bytes: None,
        is_cut: !is_complete,
        calls: calls.into_iter().filter(|(_, histogram)| histogram.count() > 0).collect(),
    }
}

/// Makes the next read of the files come from storage as far as the kernel allows that.
pub(super) fn drop_caches(layout: &Layout, written: &Written, cache: Cache) -> Result<()> {
    if cache == Cache::Warm {
        return Ok(());
    }
    // Only clean pages can be given up; one sync for all is faster than one for each of many small files.
    sync_file_system(layout)?;
    let mut dir = OpenDir::default();
    for (thread, (complete, rest)) in written.iter().enumerate() {
        let reached = complete + u64::from(*rest > 0);
        for piece in layout.pieces(thread).take(reached as usize) {
            let at = dir.at(layout.dir(piece.file))?;
            let failed = |operation| Error::io(operation, layout.path(piece.file));
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(at, name(piece.file), flags, Mode::empty()).map_err(failed("open"))?;
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(failed("give up the cache of"))?;
        }
    }
    if cache == Cache::Machine { drop_machine_caches() } else { Ok(()) }
}

/// Pages, names and inodes of the whole machine.
pub(super) fn drop_machine_caches() -> Result<()> {
    const FILE: &str = "/proc/sys/vm/drop_caches";
    std::fs::write(FILE, "3").map_err(Error::io("write", FILE))
}

/// Syncs what was written: few files one by one, because a sync of the file system also waits for what others wrote
/// there, and many likewise where such a sync waits for less than all (FUSE ignores it) or for a whole cluster.
fn sync_written(layout: &Layout) -> Result<()> {
    let root = std::fs::File::open(layout.root()).map_err(Error::io("open", layout.root()))?;
    if layout.step.files > SYNCED_ALONE_MAX && facts::has_local_journal(root.as_fd()) {
        return sync_file_system(layout);
    }
    for path in (0..layout.step.files).map(|file| layout.path(file)) {
        match std::fs::File::open(&path) {
            Ok(file) => file.sync_all().map_err(Error::io("sync", &path))?,
            // The limit came before this file.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("open", &path)(error)),
        }
    }
    Ok(())
}

pub(super) fn sync_file_system(layout: &Layout) -> Result<()> {
    sync_file_system_of(layout.root())
}

pub(super) fn sync_file_system_of(dir: &Path) -> Result<()> {
    let opened = std::fs::File::open(dir).map_err(Error::io("open", dir))?;
    rustix::fs::syncfs(&opened).map_err(Error::io("sync", dir))
}

/// What this process has had fetched from storage so far. File systems that do their own transfers do not count here.
fn fetched_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.trim().parse().ok())
}
