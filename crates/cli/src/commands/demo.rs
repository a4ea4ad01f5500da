//! `thalweg demo`: moves a data set through a real endpoint on this machine and compares what arrived with what left.
//!
//! The endpoint and the copies are processes of this same program, with configuration and state of their own; nothing of the
//! user's is touched, and everything is removed at the end, also after Ctrl-C. The comparison is another program's.
//! Each copy runs twice and the second run counts: a virtual machine pays for memory the first time it is touched.

mod compare;
mod process;

use super::generate::of_bench;
use crate::exit::{self, Result, error};
use crate::interrupt::Interrupt;
use crate::output::{counted, duration, grouped, line, note, shown};
use bench::dataset;
use compare::Comparison;
use model::Exit;
use model::quantity::{ByteCount, GIB, Rate};
use process::{Stage, remove_tree};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Demonstrate on this machine: move a data set through an endpoint and compare it
///
/// Starts a temporary endpoint, moves DIR (which is only read) or a generated set of large, mixed and tiny files to it
/// over TCP and TLS, compares every byte with another program, and shows the rates beside those of a plain local copy.
/// Needs no setup, and leaves nothing behind.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg demo\n\
\x20   thalweg demo /usr/share/doc")]
pub struct Args {
    /// Move this instead of a generated set
    dir: Option<PathBuf>,
    /// Keep everything in place, and say where
    #[arg(long, env = "THALWEG_KEEP")]
    keep: bool,
    /// Where to put everything [default: memory if there is room, else the directory for temporary files]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// What to generate, as for `thalweg gen`
    #[arg(long, value_name = "SPEC", default_value = "mixed", env = "THALWEG_SET")]
    set: String,
}

/// Room that is left over when everything lies in memory.
const SPARE_BYTES: u64 = GIB;
/// A larger set is moved once only.
const TWICE_BYTES_MAX: u64 = 4 * GIB;

pub fn run(args: Args) -> Result<Exit> {
    let interrupt = Interrupt::watch()?;
    let comparison = Comparison::choose();
    let total_bytes = match &args.dir {
        Some(dir) => measure(dir)?.bytes,
        None => {
            dataset::Plan::parse(&args.set, dataset::PER_DIR_DEFAULT, dataset::SEED_DEFAULT)
                .map_err(|e| of_bench(&e))?
                .totals()
                .space_bytes
        }
    };
    let place = args.work_dir.unwrap_or_else(|| choose_place(total_bytes.saturating_mul(3)));
    let work = Work::create(place, args.keep)?;
    let parts = match &args.dir {
        Some(dir) => vec![dir.clone()],
        None => generate(&args.set, &work.path.join("source"))?,
    };
    let stage = Stage::set_up(&work.path, &interrupt)?;
    let is_twice = total_bytes <= TWICE_BYTES_MAX;
    let rows: Result<Vec<String>> =
        parts.iter().map(|source| move_part(&stage, &work, source, is_twice, &comparison)).collect();
    let rows = rows?;
    stage.take_down()?;
    line(&format!("{:<10} {:>8} {:>10}  {:<30} {}", "", "files", "size", "thalweg, TCP and TLS 1.3", "cp -r, local"));
    rows.iter().for_each(|row| _ = line(row));
    line(&format!("every delivery was compared with its source by {comparison}: equal"));
    line(&format!("all in {}, both ends on this machine; ours was also encrypted and verified", work.kind()));
    Ok(Exit::Done)
}

/// Moves one directory, compares it, and returns its row of the table.
fn move_part(stage: &Stage, work: &Work, source: &Path, is_twice: bool, comparison: &Comparison) -> Result<String> {
    let amount = measure(source)?;
    let name = source.file_name().unwrap_or(OsStr::new("set")).to_owned();
    let delivered = work.path.join("root").join(&name);
    let ours = run_twice(is_twice, &delivered, || stage.push(source, &name))?;
    comparison.compare(source, &delivered).map_err(|differences| {
        error(
            Exit::Integrity,
            format!("what arrived differs from {}: {differences}", shown(source)),
            "this is a bug, or this machine's memory or disk is at fault; --keep leaves both trees in place",
        )
    })?;
    note(&format!("{}: compared by {comparison}, equal", shown(&name)));
    if !work.is_kept {
        remove_tree(&delivered)?;
    }
    let plain = work.path.join("plain").join(&name);
    let theirs = run_twice(is_twice, &plain, || stage.plain_copy(source, &plain))?;
    if !work.is_kept {
        remove_tree(&plain)?;
    }
    let theirs = theirs.map_or("(no cp here)".to_owned(), |seconds| amount.rate(seconds));
    let ours = ours.map_or(String::new(), |seconds| amount.rate(seconds));
    Ok(format!(
        "{:<10} {:>8} {:>10}  {ours:<30} {theirs}",
        shown(&name),
        grouped(amount.files),
        ByteCount(amount.bytes).to_string()
    ))
}

/// Runs a copy, discards what it made, and runs it again; returns the seconds of the last run.
fn run_twice(is_twice: bool, made: &Path, mut copy: impl FnMut() -> Result<Option<f64>>) -> Result<Option<f64>> {
    if is_twice {
        copy()?;
        remove_tree(made)?;
    }
    copy()
}

fn generate(spec: &str, root: &Path) -> Result<Vec<PathBuf>> {
    let options = dataset::Options::new(spec, root);
    let outcome = dataset::run(&options, &mut |_| ()).map_err(|e| of_bench(&e))?;
    let totals = outcome.totals;
    note(&format!(
        "generated {}, {} in {}",
        counted(totals.files, "file", "files"),
        ByteCount(totals.bytes),
        duration(outcome.seconds)
    ));
    let mut parts = Vec::new();
    for entry in fs::read_dir(root).map_err(|e| exit::of_file("list", root, &e))? {
        let entry = entry.map_err(|e| exit::of_file("list", root, &e))?;
        if !entry.path().is_dir() {
            return Ok(vec![root.to_owned()]);
        }
        parts.push(entry.path());
    }
    // Large, mixed, tiny: creating many files is slow near many that were just removed, so that the most come last.
    parts.sort();
    Ok(parts)
}

#[derive(Clone, Copy, Default)]
struct Amount {
    files: u64,
    bytes: u64,
}

impl Amount {
    /// As a rate of bytes, and of files where they are so small that this says more.
    fn rate(self, seconds: f64) -> String {
        const SMALL_BYTES: u64 = 64 << 10;
        let rate = Rate::over(self.bytes, seconds);
        if self.files > 0 && self.bytes / self.files < SMALL_BYTES {
            return format!("{} files/s", grouped((self.files as f64 / seconds) as u64));
        }
        format!("{rate} ({}/s)", ByteCount(rate.bytes_per_second as u64))
    }
}

/// Regular files below a directory and their bytes; whatever cannot be read is left to the copy to report.
fn measure(root: &Path) -> Result<Amount> {
    let mut amount = Amount::default();
    let mut pending = vec![root.to_owned()];
    fs::read_dir(root).map_err(|e| exit::of_file("list", root, &e))?;
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(found) if found.is_dir() => pending.push(entry.path()),
                Ok(found) if found.is_file() => {
                    amount.files += 1;
                    amount.bytes += found.len();
                }
                _ => {}
            }
        }
    }
    Ok(amount)
}

/// Memory where there is room for everything, else the directory for temporary files.
fn choose_place(needed_bytes: u64) -> PathBuf {
    const MEMORY: &str = "/dev/shm";
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |room| room.f_bavail.saturating_mul(room.f_frsize));
    let has_room = free.min(available_memory()) >= needed_bytes.saturating_add(SPARE_BYTES);
    if has_room && is_memory(Path::new(MEMORY)) { MEMORY.into() } else { std::env::temp_dir() }
}

fn is_memory(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|directory| {
        use std::os::fd::AsFd;
        store::posix::facts::is_memory_backed(directory.as_fd())
    })
}

fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

/// The directory that holds everything of one demonstration.
struct Work {
    path: PathBuf,
    is_kept: bool,
}

impl Work {
    fn create(place: PathBuf, is_kept: bool) -> Result<Work> {
        // The processes' homes lie in it, and a home is no home unless its path is absolute.
        let place = fs::canonicalize(&place).map_err(|e| exit::of_file("use directory", &place, &e))?;
        let [a, b, c, d] = net::random_bytes::<4>();
        let path = place.join(format!("thalweg-demo-{a:02x}{b:02x}{c:02x}{d:02x}"));
        for directory in [&path, &path.join("root"), &path.join("plain")] {
            fs::create_dir(directory).map_err(|e| exit::of_file("make directory", directory, &e))?;
        }
        Ok(Work { path, is_kept })
    }

    fn kind(&self) -> &'static str {
        if is_memory(&self.path) { "memory (tmpfs)" } else { "files on disk, ours durable, cp's not" }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.is_kept {
            note(&format!("kept in {}", shown(&self.path)));
        } else if let Err(e) = remove_tree(&self.path) {
            note(&format!("{}; remove it by hand", e.message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_are_counted_and_large_ones_weighed() {
        assert_eq!(Amount { files: 20_000, bytes: 20_000 << 10 }.rate(0.5), "40,000 files/s");
        assert_eq!(Amount { files: 2, bytes: 1_250_000_000 }.rate(1.0), "10.0 Gbit/s (1.16 GiB/s)");
    }
}
