//! Writes a plan with several threads, a run of files in one directory at a time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use model::quantity::ByteCount;
use rustix::fs::{Mode, OFlags};

use super::content::Content;
use super::spec::Plan;
use crate::crc64::Crc64;
use crate::error::{Error, Result};
use crate::manifest::Entry;

/// One buffer per thread: small enough for the second-level cache, a multiple of `content::WORD_BYTES`.
const BLOCK_BYTES: usize = 256 << 10;
/// A unit ends when it holds this much, so that a directory with few large files occupies every thread.
const UNIT_BYTES_MAX: u64 = 128 << 20;
/// Finished units that wait for the collector.
const FINISHED_MAX: usize = 64;
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

pub struct Job<'a> {
    pub plan: &'a Plan,
    pub root: &'a Path,
    pub threads: usize,
    pub with_digests: bool,
}

/// Consecutive files of one directory.
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
        for (group, content) in self.plan.groups.iter().enumerate() {
            let folder = self.root.join(&content.folder);
            let is_flat = self.plan.subdirectories(content) == 0;
            for first in (0..content.files).step_by(self.plan.per_dir.max(1) as usize) {
                let number = first / self.plan.per_dir;
                let directory = if is_flat { folder.clone() } else { folder.join(format!("d{number:04}")) };
                let end = content.files.min(first + self.plan.per_dir);
                self.split(group, &directory, first..end, &mut units);
            }
        }
        units
    }

    fn split(&self, group: usize, directory: &Path, files: std::ops::Range<u64>, units: &mut Vec<Unit>) {
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
        let mut finished = Finished { files: 0, bytes: 0, entries: Vec::new() };
        for file in unit.files.clone() {
            let name = format!("f{file:07}");
            let bytes = self.plan.file_bytes(unit.group, file);
            let content = Content::of_file(self.plan.seed, unit.group as u64, file);
            let digest = self
                .write_file(&directory, &name, content, bytes, buffer)
                .map_err(|source| Error::io("write", unit.directory.join(&name))(source))?;
            finished.files += 1;
            finished.bytes += bytes;
            if self.with_digests {
                let directory = unit.directory.strip_prefix(self.root).expect("units lie below the root");
                let path = directory.join(&name).as_os_str().as_bytes().to_vec();
                finished.entries.push(Entry { path, bytes, digest });
            }
        }
        Ok(finished)
    }

    fn write_file(
        &self,
        directory: &File,
        name: &str,
        content: Content,
        bytes: u64,
        buffer: &mut [u8],
    ) -> std::io::Result<u64> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?);
        let mut crc = Crc64::default();
        let mut offset = 0;
        while offset < bytes {
            let block = &mut buffer[..(bytes - offset).min(BLOCK_BYTES as u64) as usize];
            content.fill(offset, block);
            file.write_all(block)?;
            if self.with_digests {
                crc.update(block);
            }
            offset += block.len() as u64;
        }
        Ok(crc.finish())
    }
}
