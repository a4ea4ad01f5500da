//! Storage alone: how fast a directory's file system reads, writes and makes names, and whether that is enough.
//!
//! Invariants:
//! - Everything lies in a private directory of this run, is made fresh for each round, and is removed at the end; what a
//!   killed run left is removed by the next one in the same directory.
//! - Nothing is written when there is not enough space for all of it.
//! - Each figure says what it holds: engine, past the page cache or through it, what was synced inside the measured time,
//!   and what the reads found in the cache. What could not be had as asked is said and labelled, never silently replaced.
//!
//! Not here: random access, object stores, several hosts.

pub mod options;
pub mod latency;
pub mod measured;
pub mod device;
pub mod verdict;
mod team;
mod files;
mod blocks;
mod throughput;
mod metadata;
mod ladder;
pub mod summary;
pub mod report;

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use model::quantity::ByteCount;

use crate::dataset::{Free, SEED_DEFAULT};
use crate::environment::Environment;
use crate::error::{Error, Kind, Result};
use crate::workspace::{Pauses, Workspace, remove_tree};
use blocks::Way;
use files::Layout;
use measured::Measured;
use metadata::{Publish, Tree};
use options::{Cache, Engine, Options, Plan, Step, Sync};
use summary::Outcome;
use team::Bounds;

/// Looks at the directory and its room; writes nothing.
pub fn dry_run(options: &Options) -> Result<(Plan, u64)> {
    options.check()?;
    check_directory(&options.dir)?;
    Ok((options.plan(), Free::at(&options.dir)?.bytes))
}

/// Measures everything that is asked for.
pub fn run(options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let (plan, free_bytes) = dry_run(options)?;
    if plan.space_bytes > free_bytes {
        let cause = format!("needs {}, {} free", ByteCount(plan.space_bytes), ByteCount(free_bytes));
        return Err(Error::new(Kind::NoSpace, "measure in", options.dir.display(), cause));
    }
    if options.cache == Cache::Machine {
        throughput::drop_machine_caches()?;
    }
    let environment = Environment::read();
    let storage = device::Storage::below(&options.dir);
    let workspace = Workspace::create(Some(&options.dir), Pauses::default(), progress)?;
    let (options, mut notes) = possible(options, workspace.path())?;
    let bounds = Bounds { limit: options.limit, cancel };
    let mut session = Session { options: &options, root: workspace.path(), bounds, all: Vec::new(), progress };
    let trees = if options.with_metadata { session.metadata()? } else { Vec::new() };
    for (index, step) in plan.steps.iter().enumerate() {
        session.throughput(index, *step)?;
    }
    session.unlink(&trees)?;
    let ladders = match options.target_bytes_per_second {
        Some(target) => Some(session.ladders(target)?),
        None => None,
    };
    let all = session.all;
    drop(workspace);
    let mut outcome = Outcome::of(&options, plan, environment, storage, all, ladders);
    outcome.warnings.splice(0..0, notes.drain(..));
    Ok(outcome)
}

fn check_directory(dir: &Path) -> Result<()> {
    let found = std::fs::metadata(dir).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::new(Kind::Usage, "look at", dir.display(), "there is no such directory"),
        _ => Error::io("look at", dir)(e),
    })?;
    match found.is_dir() {
        true => Ok(()),
        false => Err(Error::new(Kind::Usage, "look at", dir.display(), "is not a directory")),
    }
}

/// The settings as far as this host and file system have them, and what had to change.
fn possible(wanted: &Options, root: &Path) -> Result<(Options, Vec<String>)> {
    let mut options = wanted.clone();
    let mut notes = Vec::new();
    let dir = std::fs::File::open(root).map_err(Error::io("open", root))?;
    while let Some(refusal) = blocks::refusal(dir.as_fd(), way(&options)) {
        if options.engine == Engine::Uring && refusal.starts_with("io_uring") {
            (options.engine, options.depth) = (Engine::Plain, 1);
            notes.push(format!("{refusal}: measured with pread and pwrite instead, one operation for each thread"));
        } else {
            options.is_direct = false;
            notes.push(format!("{refusal}: measured through the page cache instead"));
        }
    }
    Ok((options, notes))
}

fn way(options: &Options) -> Way {
    let Options { engine, is_direct, block_bytes, depth, .. } = *options;
    Way { engine, is_direct, block_bytes, depth }
}

struct Session<'a> {
    options: &'a Options,
    root: &'a Path,
    bounds: Bounds<'a>,
    all: Vec<Measured>,
    progress: &'a mut dyn FnMut(&str),
}

impl Session<'_> {
    /// All that makes and looks at names; deleting comes last of everything.
    fn metadata(&mut self) -> Result<Vec<Tree>> {
        let (threads, files) = (self.options.threads, self.options.metadata_files);
        let mut trees = Vec::new();
        for round in 0..=self.options.rounds {
            self.say(&format!("create, stat, open, rename, list {files} files, {}", round_name(round)))?;
            let mut tree = Tree::new(self.root.join(format!("names-{round}")), threads, files);
            let created = tree.create(self.bounds)?;
            self.keep(round, created);
            if self.options.cache == Cache::Machine {
                throughput::drop_machine_caches()?;
            }
            let looked = tree.look(self.bounds)?;
            self.keep(round, looked);
            trees.push(tree);
        }
        for group_files in [None, Some(self.options.group_files)] {
            for round in 0..=self.options.rounds {
                let durable = if group_files.is_some() { ", durable in groups" } else { "" };
                self.say(&format!("create, write, rename {files} files{durable}, {}", round_name(round)))?;
                let file_bytes = self.options.publish_bytes;
                let publish =
                    Publish { threads, files, file_bytes, group_files, seed: SEED_DEFAULT + u64::from(round) };
                let name = format!("publish-{}-{round}", group_files.unwrap_or(0));
                let measured = publish.measure(&self.root.join(name), self.bounds)?;
                self.keep(round, vec![measured]);
            }
        }
        Ok(trees)
    }

    fn unlink(&mut self, trees: &[Tree]) -> Result<()> {
        for (round, tree) in (0..).zip(trees) {
            self.say(&format!("unlink, {}", round_name(round)))?;
            let measured = tree.unlink(self.bounds)?;
            self.keep(round, measured);
        }
        Ok(())
    }

    fn throughput(&mut self, index: usize, step: Step) -> Result<()> {
        for round in 0..=self.options.rounds {
            self.say(&format!("{} x {}, {}", step.files, ByteCount(step.file_bytes), round_name(round)))?;
            let root = self.root.join(format!("size-{index}-{round}"));
            let both = self.write_and_read(root, step, way(self.options), self.options.threads, self.bounds.limit)?;
            self.keep(round, both.into());
        }
        Ok(())
    }

    /// Writes a layout, makes its cache what it is to be, reads it, and removes it unless it has many files.
    fn write_and_read(
        &self,
        root: std::path::PathBuf,
        step: Step,
        way: Way,
        threads: usize,
        limit: Duration,
    ) -> Result<[Measured; 2]> {
        let layout = Layout::new(root, step, threads, way.block_bytes);
        let bounds = Bounds { limit, ..self.bounds };
        // Directories and shared files are on storage before the clock runs.
        layout.prepare()?;
        throughput::sync_file_system(&layout)?;
        let seed = SEED_DEFAULT.wrapping_add(self.all.len() as u64);
        let (written, reached) = throughput::write(&layout, way, self.options.sync, seed, bounds)?;
        throughput::drop_caches(&layout, &reached, self.options.cache)?;
        let read = throughput::read(&layout, way, &reached, bounds)?;
        if !step.is_kept() {
            remove_tree(layout.root())?;
        }
        throughput::sync_file_system_of(self.root)?;
        Ok([written, read])
    }

    fn say(&mut self, text: &str) -> Result<()> {
        if self.bounds.cancel.load(Relaxed) {
            return Err(Error::cancelled("measure", self.options.dir.display()));
        }
        (self.progress)(text);
        Ok(())
    }

    fn keep(&mut self, round: u32, measured: Vec<Measured>) {
        self.all.extend(measured.into_iter().map(|measured| Measured { round, ..measured }));
    }
}

fn round_name(round: u32) -> String {
    if round == 0 { "not counted".into() } else { format!("round {round}") }
}

/// Two of the ceilings of a race, which are the same everywhere: threads in directories of their own, nothing synced.
pub(crate) mod ceiling {
    use super::*;

    pub fn publish(root: &Path, threads: usize, files: u64, file_bytes: u64, limit: Duration) -> Result<Measured> {
        let publish = Publish { threads, files, file_bytes, group_files: None, seed: SEED_DEFAULT };
        publish.measure(root, Bounds { limit, cancel: &AtomicBool::new(false) })
    }

    pub fn write(root: &Path, threads: usize, bytes: u64, block_bytes: u64, limit: Duration) -> Result<Measured> {
        let step = Step { file_bytes: bytes / threads as u64, files: threads as u64, bytes };
        let way = Way { engine: Engine::Plain, is_direct: false, block_bytes, depth: 1 };
        let layout = Layout::new(root.to_owned(), step, threads, block_bytes);
        layout.prepare()?;
        let bounds = Bounds { limit, cancel: &AtomicBool::new(false) };
        Ok(throughput::write(&layout, way, Sync::Never, SEED_DEFAULT, bounds)?.0)
    }
}

#[cfg(test)]
mod tests;
