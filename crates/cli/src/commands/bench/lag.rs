//! `thalweg bench lag`: how far behind a growing file is at the other end. The measurement is `bench::lag`.

use super::values::command_line;
use crate::commands::generate::of_bench;
use crate::commands::lab::Wanted;
use crate::exit::{Result, error};
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use bench::lag::{self, Options, Pace, Report, Sample};
use bench::tool::Variant;
use bench::tool::follow::RIVALS;
use model::Exit;
use model::quantity::parse_bytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Measure how long it takes until what is written to a growing file can be read at the other end
///
/// Files are written at a set rate at the first site of a laboratory, carried by `thalweg follow --show prefix` and by other
/// programs, and watched at the last site. Every byte is compared. Needs root, or user namespaces.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg bench lag --lab continent --rounds 5 --out lag-74ms\n\
\x20   thalweg bench lag --lab continent --rival all\n\
\x20   thalweg bench lag --lab continent --lab-set wan.rate=500Mbit --rate 65MB --write-size 1MiB --files 32 --bulk\n\
\x20   thalweg bench lag --files 1000 --rate 50MB --idle-files 100000")]
pub struct Args {
    /// Bytes written a second, to all files together
    #[arg(long, value_name = "SIZE", default_value = "1MB", value_parser = parse_bytes, env = "THALWEG_RATE")]
    rate: u64,
    /// Bytes in one write
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = parse_bytes, env = "THALWEG_WRITE_SIZE")]
    write_size: u64,
    /// Files that grow at once
    #[arg(long, value_name = "N", default_value_t = 1, env = "THALWEG_FILES")]
    files: u32,
    /// Files beside them that nobody writes to
    #[arg(long, value_name = "N", default_value_t = 0, env = "THALWEG_IDLE_FILES")]
    idle_files: u64,
    /// How long files grow
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, env = "THALWEG_SECONDS")]
    seconds: f64,
    /// Also copy the finished files, and compare the rates
    #[arg(long, env = "THALWEG_BULK")]
    bulk: bool,
    /// Rivals: rsync (--append-verify, again each second), lsyncd, tail (`tail -F | ssh`), rclone and xrdcp (again each
    /// second), or all; may be given several times
    #[arg(long = "rival", value_name = "TOOL", env = "THALWEG_RIVAL")]
    rivals: Vec<String>,
    /// The network between the two hosts: a preset or file of `thalweg lab` [default: direct]
    #[arg(long, value_name = "PRESET|FILE", env = "THALWEG_LAB")]
    lab: Option<OsString>,
    /// Changes to its links, such as --lab-set wan.rtt=50ms
    #[arg(long, value_name = "LINK.KEY=VALUE", requires = "lab", env = "THALWEG_LAB_SET")]
    lab_set: Vec<String>,
    /// Rounds; in each one every tool runs once
    #[arg(long, value_name = "N", default_value_t = 1, env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Seconds that everything may take to arrive after the last write
    #[arg(long, value_name = "SECONDS", default_value_t = 30, env = "THALWEG_PATIENCE")]
    patience: u64,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
    /// Argument added to our `follow`, such as --follow-arg=--streams=1
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_FOLLOW_ARG")]
    follow_arg: Vec<String>,
    /// Where source and delivery lie [default: a tmpfs]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Write the figures and every write to this directory
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
    /// Seed of the written bytes
    #[arg(long, value_name = "N", default_value_t = bench::dataset::SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
    /// Print the result as one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: Args) -> Result<Exit> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|e| crate::exit::of_file("find", "this program", &e))?,
    };
    let scenario = match &args.lab {
        Some(lab) => Some(Wanted::new(lab, args.lab_set.clone()).read()?),
        None => None,
    };
    let write_bytes = u32::try_from(args.write_size)
        .map_err(|_| crate::exit::usage("a write is shorter than 4 GiB", "give a smaller --write-size"))?;
    let rivals = match &args.rivals[..] {
        rivals if rivals.iter().any(|rival| rival == "all") => RIVALS.map(str::to_owned).to_vec(),
        rivals => rivals.to_vec(),
    };
    let options = Options {
        pace: Pace {
            files: args.files,
            bytes_per_second: args.rate,
            write_bytes,
            seconds: args.seconds.clamp(0.1, 86_400.0),
            seed: args.seed,
        },
        idle_files: args.idle_files,
        rounds: args.rounds,
        variant: Variant { cp_args: args.follow_arg.into_iter().map(Into::into).collect(), ..Variant::new(program) },
        rivals,
        scenario,
        with_bulk: args.bulk,
        patience: Duration::from_secs(args.patience),
        work_dir: args.work_dir,
        out: args.out,
        regenerate: command_line(),
    };
    lab::unprivileged::become_root().map_err(|e| of_bench(&e.into()))?;
    let interrupt = Interrupt::watch()?;
    let report = lag::run(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    match args.json {
        true => _ = line(&serde_json::to_string(&report).expect("plain values have a JSON form")),
        false => show(&report),
    }
    judge(&report)
}

fn show(report: &Report) {
    report.samples.iter().for_each(|sample| _ = line(&sample.shown()));
    report.missing.iter().for_each(|missing| note(&format!("not run: {missing}")));
}

/// Wrong bytes of ours are a failure of ours, not a figure.
fn judge(report: &Report) -> Result<Exit> {
    let ours = report.tools.first().map(|(name, _)| name.as_str()).unwrap_or_default();
    let is_wrong = |sample: &&Sample| {
        sample.tool == ours && (sample.wrong_bytes_in_the_end + sample.wrong_bytes_seen + sample.shrinks > 0)
    };
    match report.samples.iter().find(is_wrong) {
        Some(sample) => Err(error(Exit::Failed, sample.shown(), "this is a bug: please report it with this output")),
        None => Ok(Exit::Done),
    }
}
