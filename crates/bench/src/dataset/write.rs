//! Writes a plan with several threads, a run of files in one directory at a time.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use content::{Content, Crc64, Stream};
use model::quantity::ByteCount;
use rustix::fs::{Mode, OFlags};

use super::object::Object;
use super::plan::Plan;
use super::tree;
use crate::error::{Error, Result};
use crate::manifest::{Entry, What};

/// One buffer per thread: small enough for the second-level cache, a multiple of `content::UNIT_BYTES`, and not more than
/// one piece of a sparse file.
const BLOCK_BYTES: usize = 256 << 10;
/// A unit ends when it holds this much, so that a directory with few large files occupies every thread.
const UNIT_BYTES_MAX: u64 = 128 << 20;
/// Finished units that wait for the collector.
const FINISHED_MAX: usize = 64;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub struct Job<'a> {
    pub plan: &'a Plan,
    pub root: &'a Path,
    pub content: Content,
    pub threads: usize,
    pub with_digests: bool,
}

/// Consecutive objects of one directory.
struct Unit {
    group: usize,
    directory: PathBuf,
    files: std::ops::Range<u64>,
}

struct Finished {
    files: u64,
    bytes: u64,
    entries: Vec<Entry>,
}

impl Job<'_> {
    /// Returns the digests in no particular order, or nothing if none were asked for.
    pub fn run(&self, progress: &mut dyn FnMut(&str)) -> Result<Vec<Entry>> {
        let units = self.units();
        let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (sender, receiver) = sync_channel(FINISHED_MAX);
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                let (sender, units, next, is_stopped) = (sender.clone(), &units, &next, &is_stopped);
                scope.spawn(move || self.work(units, next, is_stopped, &sender));
            }
            drop(sender);
            let collected = self.collect(&receiver, progress);
            is_stopped.store(true, Ordering::Relaxed);
            // Frees workers that wait to hand over a result nobody wants any more.
            drop(receiver);
            collected
        })
    }

    fn units(&self) -> Vec<Unit> {
        let mut units = Vec::new();
        for group in 0..self.plan.groups.len() {
            for directory in self.plan.directories(group) {
                self.split(group, &self.root.join(directory.path), directory.files, &mut units);
            }
        }
        units
    }

    fn split(&self, group: usize, directory: &Path, files: std::ops::Range<u64>, units: &mut Vec<Unit>) {
        if files.is_empty() {
            units.push(Unit { group, directory: directory.to_owned(), files: files.clone() });
        }
        let (mut first, mut bytes) = (files.start, 0_u64);
        for file in files.clone() {
            bytes = bytes.saturating_add(self.plan.file_bytes(group, file));
            if bytes >= UNIT_BYTES_MAX || file + 1 == files.end {
                units.push(Unit { group, directory: directory.to_owned(), files: first..file + 1 });
                (first, bytes) = (file + 1, 0);
            }
        }
    }

    fn work(&self, units: &[Unit], next: &AtomicUsize, stopped: &AtomicBool, sender: &SyncSender<Result<Finished>>) {
        let mut buffer = vec![0; BLOCK_BYTES];
        while !stopped.load(Ordering::Relaxed) {
            let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
            let result = self.write_unit(unit, &mut buffer);
            if sender.send(result).is_err() {
                return;
            }
        }
    }

    fn collect(&self, receiver: &Receiver<Result<Finished>>, progress: &mut dyn FnMut(&str)) -> Result<Vec<Entry>> {
        let totals = self.plan.totals();
        let (mut files, mut bytes, mut entries) = (0, 0, Vec::new());
        let mut shown = std::time::Instant::now();
        loop {
            match receiver.recv_timeout(PROGRESS_INTERVAL) {
                Ok(finished) => {
                    let finished = finished?;
                    files += finished.files;
                    bytes += finished.bytes;
                    entries.extend(finished.entries);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(entries),
            }
            if shown.elapsed() >= PROGRESS_INTERVAL {
                shown = std::time::Instant::now();
                let (done, all) = (ByteCount(bytes), ByteCount(totals.bytes));
                progress(&format!("{files} of {} files, {done} of {all} written", totals.files));
            }
        }
    }

    fn write_unit(&self, unit: &Unit, buffer: &mut [u8]) -> Result<Finished> {
        fs::create_dir_all(&unit.directory).map_err(Error::io("create", &unit.directory))?;
        let directory = File::open(&unit.directory).map_err(Error::io("open", &unit.directory))?;
        let below = unit.directory.strip_prefix(self.root).expect("units lie below the root");
        let mut finished = Finished { files: 0, bytes: 0, entries: Vec::new() };
        for file in unit.files.clone() {
            let name = tree::os(self.plan.name(unit.group, file));
            let stream = Stream::of_file(self.content, self.plan.seed, unit.group as u64, file);
            let what = self
                .write_object(&directory, &name, self.plan.object(unit.group, file), stream, buffer)
                .map_err(|source| Error::io("write", unit.directory.join(&name))(source))?;
            if let What::File { bytes, .. } = what {
                finished.files += 1;
                finished.bytes += bytes;
            }
            if self.with_digests {
                finished.entries.push(Entry { path: below.join(&name).as_os_str().as_bytes().to_vec(), what });
            }
        }
        Ok(finished)
    }

    fn write_object(
        &self,
        directory: &File,
        name: &OsStr,
        object: Object,
        stream: Stream,
        buffer: &mut [u8],
    ) -> io::Result<What> {
        let (bytes, is_sparse) = match object {
            Object::File { bytes } => (bytes, false),
            Object::Sparse { bytes } => (bytes, true),
            Object::Link { target } => {
                rustix::fs::symlinkat(&target[..], directory, name)?;
                return Ok(What::Link { target });
            }
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?);
        let digest = if is_sparse {
            self.write_sparse(&file, bytes, stream, buffer)?
        } else {
            self.write_whole(&file, bytes, stream, buffer)?
        };
        Ok(What::File { bytes, digest })
    }

    fn write_whole(&self, mut file: &File, bytes: u64, stream: Stream, buffer: &mut [u8]) -> io::Result<u64> {
        let mut crc = Crc64::default();
        let mut offset = 0;
        while offset < bytes {
            let block = &mut buffer[..(bytes - offset).min(BLOCK_BYTES as u64) as usize];
            stream.fill(offset, block);
            file.write_all(block)?;
            if self.with_digests {
                crc.update(block);
            }
            offset += block.len() as u64;
        }
        Ok(crc.finish())
    }

    /// Leaves holes, which read as zeros and are digested as such.
    fn write_sparse(&self, file: &File, bytes: u64, stream: Stream, buffer: &mut [u8]) -> io::Result<u64> {
        file.set_len(bytes)?;
        let mut crc = Crc64::default();
        let mut offset = 0;
        while offset < bytes {
            let block = &mut buffer[..(bytes - offset).min(BLOCK_BYTES as u64) as usize];
            if tree::is_hole(offset) {
                block.fill(0);
            } else {
                stream.fill(offset, block);
                file.write_all_at(block, offset)?;
            }
            if self.with_digests {
                crc.update(block);
            }
            offset += block.len() as u64;
        }
        Ok(crc.finish())
    }
}
