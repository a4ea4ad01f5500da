//! Rates of single calls on names, each alone, and of all that makes a file appear complete, together.
//!
//! Invariants:
//! - Each thread works in directories of its own, of at most `FEW_FILES_MAX` files, made outside the measured time.
//! - No file is deleted before all that create files have run: creating near many deleted files is many times slower on
//!   ext4, and says nothing about creating.
//!
//! A single call's rate is its count divided by the time that the slowest thread spent inside it, while all threads do the
//! same; the loop around the calls does not count.

use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, Mode, OFlags};
use store::posix::facts;

use super::files::name;
use super::latency::Histogram;
use super::measured::{Call, Measured, Operation};
use super::options::FEW_FILES_MAX;
use super::team::{self, Bounds, Clock, Took};
use crate::dataset::{Content, Stream};
use crate::error::{Error, Result};

/// One tree of empty files, through all its stages.
pub(super) struct Tree {
    root: PathBuf,
    threads: usize,
    files_per_thread: u64,
    /// Complete ones of each thread, should the limit have come first.
    made: Vec<u64>,
}

/// Calls of one thread, in the order in which they were asked for.
type Calls = Vec<(Call, Histogram)>;

/// What one thread does; returns how many files it came to.
type Work<'a> = dyn Fn(usize, &Clock<'_>) -> Result<(u64, Calls)> + std::marker::Sync + 'a;

impl Tree {
    pub fn new(root: PathBuf, threads: usize, files: u64) -> Tree {
        Tree { root, threads, files_per_thread: files / threads as u64, made: vec![0; threads] }
    }

    pub fn create(&mut self, bounds: Bounds<'_>) -> Result<Vec<Measured>> {
        for thread in 0..self.threads {
            for part in 0..self.files_per_thread.div_ceil(FEW_FILES_MAX) {
                for stage in ["new", "renamed"] {
                    let dir = self.dir(thread, stage, part);
                    fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
                }
            }
        }
        let took = team::run(
            self.threads,
            bounds,
            |thread, clock| {
                let (mut create, mut close) = (Histogram::default(), Histogram::default());
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                let made = self.each(thread, "new", self.files_per_thread, clock, &mut |dir, file, path| {
                    let called = Instant::now();
                    let opened = rustix::fs::openat(dir, file, flags, Mode::from_raw_mode(0o600))
                        .map_err(Error::io("create", path))?;
                    create.record(called.elapsed());
                    let called = Instant::now();
                    drop(opened);
                    close.record(called.elapsed());
                    Ok(())
                })?;
                Ok((made, vec![(Call::Create, create), (Call::Close, close)]))
            },
            || Ok(()),
        )?;
        let wanted = self.files_per_thread * self.threads as u64;
        self.made = took.of_threads.iter().map(|(made, _)| *made).collect();
        Ok(split(&took, &[Operation::Create, Operation::Close], wanted))
    }

    /// Stat, open, rename and list, each of all files.
    pub fn look(&self, bounds: Bounds<'_>) -> Result<Vec<Measured>> {
        let stat = |dir: &OwnedFd, file: &str| rustix::fs::statat(dir, file, AtFlags::SYMLINK_NOFOLLOW).map(drop);
        let mut all = self.one(Operation::Stat, bounds, &|thread, clock| {
            self.timed(thread, "new", clock, (Call::Stat, "look up a file in"), &stat)
        })?;
        all.extend(self.one(Operation::Open, bounds, &|thread, clock| {
            // The close is not counted here: it has a rate of its own.
            let mut open = Histogram::default();
            let made = self.each(thread, "new", self.made[thread], clock, &mut |dir, file, path| {
                let called = Instant::now();
                let opened = rustix::fs::openat(dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                    .map_err(Error::io("open", path))?;
                open.record(called.elapsed());
                drop(opened);
                Ok(())
            })?;
            Ok((made, vec![(Call::Open, open)]))
        })?);
        all.extend(self.one(Operation::Rename, bounds, &|thread, clock| {
            let mut target: Option<(u64, OwnedFd)> = None;
            let mut rename = Histogram::default();
            let mut index = 0;
            let made = self.each(thread, "new", self.made[thread], clock, &mut |dir, file, path| {
                let part = index / FEW_FILES_MAX;
                index += 1;
                if target.as_ref().is_none_or(|(opened, _)| *opened != part) {
                    target = Some((part, open_dir(&self.dir(thread, "renamed", part))?));
                }
                let (_, into) = target.as_ref().expect("opened above");
                let called = Instant::now();
                rustix::fs::renameat(dir, file, into, file).map_err(Error::io("rename", path))?;
                rename.record(called.elapsed());
                Ok(())
            })?;
            Ok((made, vec![(Call::Rename, rename)]))
        })?);
        all.extend(self.list(bounds)?);
        Ok(all)
    }

    /// The last stage of a tree.
    pub fn unlink(&self, bounds: Bounds<'_>) -> Result<Vec<Measured>> {
        let unlink = |dir: &OwnedFd, file: &str| rustix::fs::unlinkat(dir, file, AtFlags::empty());
        self.one(Operation::Unlink, bounds, &|thread, clock| {
            self.timed(thread, "renamed", clock, (Call::Unlink, "remove a file from"), &unlink)
        })
    }

    fn list(&self, bounds: Bounds<'_>) -> Result<Vec<Measured>> {
        let took = team::run(
            self.threads,
            bounds,
            |thread, clock| {
                let (mut list, mut entries) = (Histogram::default(), 0);
                for part in 0..self.made[thread].div_ceil(FEW_FILES_MAX) {
                    if clock.is_over() {
                        break;
                    }
                    let path = self.dir(thread, "renamed", part);
                    let called = Instant::now();
                    entries += fs::read_dir(&path).map_err(Error::io("list", &path))?.count() as u64;
                    list.record(called.elapsed());
                }
                Ok((entries, vec![(Call::List, list)]))
            },
            || Ok(()),
        )?;
        let mut measured = split(&took, &[Operation::List], self.made.iter().sum());
        // Entries count, not directories.
        measured.iter_mut().for_each(|measured| measured.operations = measured.files);
        Ok(measured)
    }

    fn one(&self, operation: Operation, bounds: Bounds<'_>, work: &Work<'_>) -> Result<Vec<Measured>> {
        let took = team::run(self.threads, bounds, work, || Ok(()))?;
        Ok(split(&took, &[operation], self.made.iter().sum()))
    }

    /// One call on each file that a thread has made.
    fn timed(
        &self,
        thread: usize,
        stage: &str,
        clock: &Clock<'_>,
        (call, wording): (Call, &'static str),
        act: &dyn Fn(&OwnedFd, &str) -> rustix::io::Result<()>,
    ) -> Result<(u64, Calls)> {
        let mut histogram = Histogram::default();
        let made = self.each(thread, stage, self.made[thread], clock, &mut |dir, file, path| {
            let called = Instant::now();
            act(dir, file).map_err(Error::io(wording, path))?;
            histogram.record(called.elapsed());
            Ok(())
        })?;
        Ok((made, vec![(call, histogram)]))
    }

    /// Visits a thread's files in order; returns how many it came to.
    fn each(
        &self,
        thread: usize,
        stage: &str,
        files: u64,
        clock: &Clock<'_>,
        act: &mut dyn FnMut(&OwnedFd, &str, &Path) -> Result<()>,
    ) -> Result<u64> {
        let mut opened = None;
        for file in 0..files {
            if clock.is_over() {
                return Ok(file);
            }
            if file % FEW_FILES_MAX == 0 {
                let path = self.dir(thread, stage, file / FEW_FILES_MAX);
                opened = Some((open_dir(&path)?, path));
            }
            let (dir, path) = opened.as_ref().expect("opened with the first file");
            act(dir, &name(file), path)?;
        }
        Ok(files)
    }

    fn dir(&self, thread: usize, stage: &str, part: u64) -> PathBuf {
        self.root.join(format!("t{thread}")).join(stage).join(format!("d{part}"))
    }
}

/// Files that are created in a staging directory, written, and renamed to where they belong: what every transfer of small
/// files ends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish {
    pub threads: usize,
    pub files: u64,
    pub file_bytes: u64,
    /// None: nothing waits for durability.
    pub group_files: Option<u64>,
    pub seed: u64,
}

impl Publish {
    pub fn measure(&self, root: &Path, bounds: Bounds<'_>) -> Result<Measured> {
        for thread in 0..self.threads {
            let dir = root.join(format!("t{thread}")).join("staging");
            fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        }
        let work = |thread: usize, clock: &Clock<'_>| self.work(thread, &root.join(format!("t{thread}")), clock);
        let took = team::run(self.threads, bounds, work, || Ok(()))?;
        let operation = if self.group_files.is_some() { Operation::PublishDurable } else { Operation::Publish };
        let (seconds, wanted) = (took.seconds, self.files / self.threads as u64 * self.threads as u64);
        let mut all = split(&took, &[operation], wanted).into_iter();
        let mut measured = all.next().expect("one operation gives one figure");
        // Everything counts here, the directories' making included.
        measured.seconds = seconds;
        measured.operations = measured.files;
        measured.file_bytes = self.file_bytes;
        measured.bytes = measured.files * self.file_bytes;
        measured.calls = merged(&took).into_iter().filter(|(_, histogram)| histogram.count() > 0).collect();
        Ok(measured)
    }

    fn work(&self, thread: usize, root: &Path, clock: &Clock<'_>) -> Result<(u64, Calls)> {
        let staging = open_dir(&root.join("staging"))?;
        let has_journal = facts::has_local_journal(staging.as_fd());
        let mut content = vec![0; self.file_bytes as usize];
        let [mut create, mut write, mut sync, mut rename] = [(); 4].map(|()| Histogram::default());
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let files = self.files / self.threads as u64;
        let group_files = self.group_files.unwrap_or(FEW_FILES_MAX).min(FEW_FILES_MAX);
        let mut published = 0;
        while published < files && !clock.is_over() {
            let group = published..(published + group_files).min(files);
            let path = root.join(format!("d{published}"));
            fs::create_dir(&path).map_err(Error::io("create", &path))?;
            let target = open_dir(&path)?;
            let publish = |file: u64, rename: &mut Histogram| -> Result<()> {
                let called = Instant::now();
                rustix::fs::renameat(&staging, name(file), &target, name(file)).map_err(Error::io("rename", &path))?;
                rename.record(called.elapsed());
                Ok(())
            };
            for file in group.clone() {
                Stream::of_file(Content::Random, self.seed, thread as u64, file).fill(0, &mut content);
                let called = Instant::now();
                let opened = rustix::fs::openat(&staging, name(file), flags, Mode::from_raw_mode(0o600))
                    .map_err(Error::io("create", root))?;
                create.record(called.elapsed());
                let mut opened = fs::File::from(opened);
                let called = Instant::now();
                opened.write_all(&content).map_err(Error::io("write", root))?;
                write.record(called.elapsed());
                if self.group_files.is_none() {
                    drop(opened);
                    publish(file, &mut rename)?;
                } else if !has_journal {
                    let called = Instant::now();
                    rustix::fs::fsync(&opened).map_err(Error::io("sync", root))?;
                    sync.record(called.elapsed());
                }
            }
            if self.group_files.is_some() {
                let called = Instant::now();
                make_durable(&staging).map_err(Error::io("sync", root))?;
                sync.record(called.elapsed());
                group.clone().try_for_each(|file| publish(file, &mut rename))?;
                let called = Instant::now();
                make_durable(&target).map_err(Error::io("sync", &path))?;
                sync.record(called.elapsed());
            }
            published = group.end;
        }
        let calls = [(Call::Create, create), (Call::WriteBlock, write), (Call::Sync, sync), (Call::Rename, rename)];
        Ok((published, calls.into()))
    }
}

/// One sync of the file system where that waits for a local journal; elsewhere the files have been synced one by one, and
/// the directory is.
fn make_durable(dir: &OwnedFd) -> rustix::io::Result<()> {
    if facts::has_local_journal(dir.as_fd()) { rustix::fs::syncfs(dir) } else { rustix::fs::fsync(dir) }
}

fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(Error::io("open", path))
}

fn merged(took: &Took<(u64, Calls)>) -> Calls {
    let mut all = Calls::new();
    for (call, histogram) in took.of_threads.iter().flat_map(|(_, calls)| calls) {
        match all.iter_mut().find(|(known, _)| known == call) {
            Some((_, merged)) => merged.merge(histogram),
            None => all.push((*call, histogram.clone())),
        }
    }
    all
}

/// One figure for each of the calls, in their order.
fn split(took: &Took<(u64, Calls)>, operations: &[Operation], wanted: u64) -> Vec<Measured> {
    let files = took.of_threads.iter().map(|(files, _)| files).sum();
    let all = merged(took);
    let figures = operations.iter().enumerate().filter_map(|(index, operation)| {
        let (call, histogram) = all.get(index)?.clone();
        let of_threads = took.of_threads.iter().filter_map(|(_, calls)| calls.iter().find(|(known, _)| *known == call));
        Some(Measured {
            operation: *operation,
            file_bytes: 0,
            round: 0,
            files,
            operations: histogram.count(),
            bytes: 0,
            seconds: of_threads.map(|(_, histogram)| histogram.seconds()).fold(0.0, f64::max),
            cpu_seconds: took.cpu_seconds,
            foreign_cpu_seconds: took.foreign_cpu_seconds,
            steal_seconds: took.steal_seconds,
            fetched_bytes: None,
            is_cut: files < wanted,
            calls: vec![(call, histogram)],
        })
    });
    figures.collect()
}
