//! `thalweg bench storage`: how fast the storage below a directory is, alone.

use crate::commands::generate::of_bench;
use crate::exit::{Result, error, usage};
use crate::interrupt::Interrupt;
use crate::output::{grouped, line, note, shown};
use bench::storage::options::{self, Cache, Engine, Options, Plan, Sync, sweep_sizes};
use bench::storage::{dry_run, report, run as measure};
use clap::ValueEnum;
use model::Exit;
use model::quantity::{ByteCount, parse_bytes};
use std::path::PathBuf;
use std::time::Duration;

/// Measure how fast a directory's storage reads, writes and creates names, and whether that is enough
///
/// Everything is written to a private directory in DIR, which is removed at the end. Reads come from storage: the cache
/// of each file is dropped first. Writes end when they are synced. `--target` says whether the storage keeps up with a
/// rate, and how much must be in flight for that; a missed target gives exit code 1.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg bench storage /data\n\
\x20   thalweg bench storage /data --target 10Gbit --engine uring --direct\n\
\x20   thalweg bench storage /data --sweep small --dry-run")]
pub struct Args {
    /// Where to measure; it must exist
    dir: PathBuf,
    /// Sizes of the files, such as 1MiB; may be given several times [default: 256MiB]
    #[arg(long = "size", value_name = "SIZE", value_parser = bytes, env = "THALWEG_SIZE", value_delimiter = ',')]
    sizes: Vec<u64>,
    /// Many sizes: small (1KiB-512KiB), medium (1MiB-512MiB), large (1GiB-64GiB), huge (128GiB-1TiB), all, or FROM-TO
    #[arg(long, value_name = "RANGE", conflicts_with = "sizes", env = "THALWEG_SWEEP")]
    sweep: Option<String>,
    /// Each size of a sweep is this many times the one before: 2 or 4
    #[arg(long, value_name = "FACTOR", default_value_t = 4, requires = "sweep", env = "THALWEG_STEP")]
    step: u64,
    /// How much is written and read for each size; at least one file
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1GiB", env = "THALWEG_VOLUME")]
    volume: u64,
    /// At most this many files of each size
    #[arg(long, value_name = "N", default_value_t = options::FILES_MAX_DEFAULT, env = "THALWEG_FILES_MAX")]
    files_max: u64,
    /// How much is read or written in one operation [default: 128KiB; 1MiB with --direct or uring]
    #[arg(long, value_name = "SIZE", value_parser = bytes, env = "THALWEG_BLOCK")]
    block: Option<u64>,
    /// Threads, each with its own files if there are enough [default: one per core]
    #[arg(long, value_name = "N", env = "THALWEG_THREADS")]
    threads: Option<usize>,
    /// Operations that each thread keeps in flight, with --engine uring [default: 8]
    #[arg(long, value_name = "N", env = "THALWEG_DEPTH")]
    depth: Option<usize>,
    /// How blocks are moved
    #[arg(long, value_enum, default_value_t = EngineName::Plain, env = "THALWEG_ENGINE")]
    engine: EngineName,
    /// Bypass the page cache (O_DIRECT)
    #[arg(long, env = "THALWEG_DIRECT")]
    direct: bool,
    /// What the reads may find in the page cache
    #[arg(long, value_enum, default_value_t = CacheName::Dropped, env = "THALWEG_CACHE")]
    cache: CacheName,
    /// What the writes wait for inside the measured time
    #[arg(long, value_enum, default_value_t = SyncName::End, env = "THALWEG_FSYNC")]
    fsync: SyncName,
    /// Measure only this part
    #[arg(long, value_enum, env = "THALWEG_ONLY")]
    only: Option<Part>,
    /// Number of files for measuring create, stat, open, rename, list and unlink
    #[arg(long, value_name = "N", default_value_t = options::METADATA_FILES_DEFAULT, env = "THALWEG_FILES")]
    files: u64,
    /// Size of the files that are created, written and renamed
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1KiB", env = "THALWEG_PUBLISH_SIZE")]
    publish_size: u64,
    /// How many of them become durable together; at most 1000
    #[arg(long, value_name = "N", default_value_t = options::GROUP_FILES_DEFAULT, env = "THALWEG_GROUP")]
    group: u64,
    /// The rate that the storage should keep up with, such as 10Gbit
    #[arg(long, value_name = "RATE", value_parser = rate, env = "THALWEG_TARGET")]
    target: Option<f64>,
    /// Counted rounds; one more is run and discarded
    #[arg(long, value_name = "N", default_value_t = options::ROUNDS_DEFAULT, env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Seconds after which one operation of one round is cut short
    #[arg(long, value_name = "SECONDS", default_value_t = 60, env = "THALWEG_LIMIT")]
    limit: u64,
    /// Only say what would be measured and how much space that needs
    #[arg(long, env = "THALWEG_DRY_RUN")]
    dry_run: bool,
    /// Print the result as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Write tables and raw samples to this directory, which must be new or empty
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum EngineName {
    /// pread and pwrite, one operation for each thread
    Plain,
    /// io_uring, several operations for each thread
    Uring,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum CacheName {
    /// Whatever the writes left there
    Warm,
    /// Nothing of the files
    Dropped,
    /// Nothing at all: empties the caches of the whole machine, names included; needs root
    Machine,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum SyncName {
    /// Nothing
    Never,
    /// One sync of each file before its close
    File,
    /// A sync of everything after the last write
    End,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Reading and writing
    Throughput,
    /// Rates of names, and of files published
    Metadata,
}

pub fn run(args: Args) -> Result<Exit> {
    let options = settings(&args)?;
    if args.dry_run {
        let (plan, free_bytes) = dry_run(&options).map_err(|e| of_bench(&e))?;
        return show_plan(&args, &plan, free_bytes);
    }
    if matches!(args.cache, CacheName::Machine) && !rustix::process::geteuid().is_root() {
        let hint = "run it as root, or with `--cache dropped`, which needs no rights";
        return Err(error(Exit::Failed, "only root may empty the caches of the machine", hint));
    }
    if let Some(out) = &args.out {
        report::check_out(out).map_err(|e| of_bench(&e))?;
    }
    let interrupt = Interrupt::watch()?;
    let outcome = measure(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    if let Some(out) = &args.out {
        report::write(&outcome, out).map_err(|e| of_bench(&e))?;
    }
    if args.json {
        line(&serde_json::to_string(&outcome).expect("figures and texts have a form in JSON"));
    } else {
        line(report::text(&outcome).trim_end());
    }
    Ok(if outcome.verdict.is_none_or(|verdict| verdict.passes) { Exit::Done } else { Exit::Failed })
}

fn settings(args: &Args) -> Result<Options> {
    let defaults = Options::new(&args.dir);
    let is_queued = args.engine == EngineName::Uring;
    let long_blocks = is_queued || args.direct;
    if args.group > 1_000 {
        return Err(usage("a group has at most 1000 files", "choose a smaller --group"));
    }
    let sizes = match &args.sweep {
        Some(range) => sweep_sizes(range, args.step).map_err(|e| of_bench(&e))?,
        None if args.sizes.is_empty() => defaults.sizes,
        None => args.sizes.clone(),
    };
    Ok(Options {
        dir: args.dir.clone(),
        sizes,
        volume_bytes: args.volume,
        files_max: args.files_max,
        block_bytes: args.block.unwrap_or(if long_blocks { 1 << 20 } else { defaults.block_bytes }),
        threads: args.threads.unwrap_or(defaults.threads),
        depth: args.depth.unwrap_or(if is_queued { 8 } else { 1 }),
        engine: if is_queued { Engine::Uring } else { Engine::Plain },
        is_direct: args.direct,
        cache: match args.cache {
            CacheName::Warm => Cache::Warm,
            CacheName::Dropped => Cache::Dropped,
            CacheName::Machine => Cache::Machine,
        },
        sync: match args.fsync {
            SyncName::Never => Sync::Never,
            SyncName::File => Sync::File,
            SyncName::End => Sync::End,
        },
        with_throughput: args.only != Some(Part::Metadata),
        with_metadata: args.only != Some(Part::Throughput),
        metadata_files: args.files,
        publish_bytes: args.publish_size,
        group_files: args.group,
        rounds: args.rounds,
        limit: Duration::from_secs(args.limit),
        target_bytes_per_second: args.target,
        regenerate: ["thalweg".into()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
    })
}

fn show_plan(args: &Args, plan: &Plan, free_bytes: u64) -> Result<Exit> {
    if args.json {
        line(&serde_json::json!({ "plan": plan, "free_bytes": free_bytes }).to_string());
        return Ok(Exit::Done);
    }
    for step in &plan.steps {
        let (files, size, bytes) = (grouped(step.files), ByteCount(step.file_bytes), ByteCount(step.bytes));
        line(&format!("write and read {files} x {size}, {bytes}, {} rounds", plan.rounds));
    }
    if plan.metadata_files > 0 {
        let files = grouped(plan.metadata_files);
        line(&format!("create, stat, open, rename, list, publish, unlink {files} files, {} rounds", plan.rounds));
    }
    let (needed, free) = (ByteCount(plan.space_bytes), ByteCount(free_bytes));
    let verdict = if plan.space_bytes > free_bytes { "not enough" } else { "enough" };
    line(&format!("needs {needed} in {}, {free} free: {verdict}", shown(&args.dir)));
    Ok(Exit::Done)
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        0 => Err("must be more than nothing".into()),
        bytes => Ok(bytes),
    }
}

/// Bytes per second from bits.
fn rate(text: &str) -> Result<f64, String> {
    match lab::scenario::quantity::parse_rate(text) {
        Ok(Some(bits)) if bits > 0 => Ok(bits as f64 / 8.0),
        Ok(_) => Err("a target is a rate, such as 10Gbit".into()),
        Err(e) => Err(e.to_string()),
    }
}
