//! `thalweg bench field`: what a pair of hosts carries, in a folder that can be sent. The measurement is `bench::field`.

use super::values::command_line;
use crate::commands::generate::of_bench;
use crate::exit::{Result, usage};
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use bench::field::{self, Options};
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Measure what this host and an endpoint carry, and leave a folder that you can send
///
/// Looks at both hosts as `thalweg doctor` does, then moves files of every size in both directions: from memory to memory,
/// and where directories are named, from and to storage. What is written is removed again. The folder has every transfer,
/// what limited it, and a description of this host: its processor, kernel and settings, no host names or addresses but
/// what NAME and your directories tell. Look through it before you send it.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg bench field far --out field-far\n\
\x20   thalweg bench field far:scratch --root /data/scratch --seconds 20 --out field-far")]
pub struct Args {
    /// An endpoint that was added, and a directory there where files may be made
    #[arg(value_name = "NAME[:DIR]")]
    place: String,
    /// A directory here where files may be made
    #[arg(long, value_name = "DIR", env = "THALWEG_ROOT")]
    root: Option<PathBuf>,
    /// Also measure the path alone: where `thalweg bench net --serve` listens beside the endpoint
    #[arg(long, value_name = "HOST:PORT", env = "THALWEG_NET")]
    net: Option<String>,
    /// About what one transfer should take
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, env = "THALWEG_SECONDS")]
    seconds: f64,
    /// How often everything is repeated
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100), env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Seconds after which a transfer is abandoned
    #[arg(long, value_name = "SECONDS", default_value_t = 300, env = "THALWEG_LIMIT")]
    limit: u64,
    /// The folder that is made
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: PathBuf,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<Exit> {
    let program = match args.program {
        Some(program) => program,
        None => std::env::current_exe().map_err(|e| crate::exit::of_file("find", "this program", &e))?,
    };
    let (endpoint, far_dir) = match args.place.split_once(':') {
        Some((endpoint, dir)) => (endpoint.to_owned(), Some(dir.to_owned())),
        None => (args.place, None),
    };
    if endpoint.is_empty() || endpoint.contains('/') {
        return Err(usage(
            "this names no endpoint",
            "give a name that `thalweg endpoint ls` shows, as NAME or NAME:DIR",
        ));
    }
    let options = Options {
        program,
        endpoint,
        far_dir,
        near_dir: args.root,
        net: args.net,
        seconds: args.seconds.clamp(0.1, 3600.0),
        rounds: args.rounds,
        limit: Duration::from_secs(args.limit),
        out: args.out,
        regenerate: command_line(),
    };
    let interrupt = Interrupt::watch()?;
    let report = field::run(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    let is_clean = report.samples.iter().all(|sample| sample.error.is_empty());
    let (count, out) = (report.samples.len(), options.out.display());
    _ = line(&format!("{count} transfers in {out}: look through its README.md, then send the folder"));
    Ok(if is_clean && !report.samples.is_empty() { Exit::Done } else { Exit::Failed })
}
