//! `thalweg bench compare`: the same work with this program and with others.

use crate::commands::generate::of_bench;
use crate::commands::lab::Wanted;
use crate::exit::Result;
use crate::interrupt::Interrupt;
use crate::output::{line, note};
use bench::compare::{self, ROUNDS_DEFAULT};
use bench::diff::EARLIER;
use bench::tool::{self, Class, RIVALS, Variant};
use bench::{dataset, report};
use daemon::trust::open_file;
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Move the same sets with this program and with others, and report medians, spreads and ratios
///
/// Two hosts are two network namespaces on this machine, which needs root; without it only local copies race. Tools
/// that are not installed are left out and named. Everything a run makes is removed.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n\
\x20   thalweg bench compare --set tiny --rival rsync --rounds 5 --out results/today\n\
\x20   thalweg bench compare --rival all --tool fdt.toml --lab continent --out results/far")]
pub struct Args {
    /// What to move, as for `thalweg gen`; may be given several times [default: large, small, tiny]
    #[arg(long = "set", value_name = "SPEC", env = "THALWEG_SET")]
    sets: Vec<String>,
    /// Against whom: globus-url-copy, rsync (daemon), rsync-ssh, scp, rclone, xrdcp, lftp, tar, cp, or all; may be given
    /// several times [default: globus-url-copy, rsync, cp]
    #[arg(long = "rival", value_name = "TOOL", env = "THALWEG_RIVAL")]
    rivals: Vec<String>,
    /// Also against the tool that this file describes (see docs/measuring.md); may be given several times
    #[arg(long = "tool", value_name = "FILE", env = "THALWEG_TOOL")]
    tools: Vec<PathBuf>,
    /// Only say which rivals are known, what each protects and whether it is installed
    #[arg(long, env = "THALWEG_LIST")]
    list: bool,
    /// Go on with the race that was interrupted with the same --out; runs that are done are not repeated
    #[arg(long, requires = "out", env = "THALWEG_RESUME")]
    resume: bool,
    /// Race without rivals
    #[arg(long, conflicts_with = "rivals", env = "THALWEG_NO_RIVALS")]
    no_rivals: bool,
    /// What lies between the two hosts: a preset or file of `thalweg lab` [default: direct]
    #[arg(long, value_name = "PRESET|FILE", env = "THALWEG_LAB")]
    lab: Option<std::ffi::OsString>,
    /// Changes of its links, such as --lab-set wan.rtt=50ms
    #[arg(long, value_name = "LINK.KEY=VALUE", requires = "lab", env = "THALWEG_LAB_SET")]
    lab_set: Vec<String>,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
    /// Also race this earlier build of ours, called `earlier`, round by round: what `bench diff` needs to see small losses
    #[arg(long, value_name = "FILE", env = "THALWEG_EARLIER")]
    earlier: Option<PathBuf>,
    /// Added to our `cp`, such as --cp-arg=--streams=4
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_CP_ARG")]
    cp_arg: Vec<String>,
    /// Added to our `serve`
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_SERVE_ARG")]
    serve_arg: Vec<String>,
    /// Counted rounds; one more is run and discarded
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT, env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Seconds after which a run is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 120, env = "THALWEG_LIMIT")]
    limit: u64,
    /// Do not measure the network and the file system alone
    #[arg(long, env = "THALWEG_NO_CEILINGS")]
    no_ceilings: bool,
    /// Write report and raw samples to this directory
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
    /// Where data sets and deliveries lie [default: a tmpfs]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Another seed gives other bytes
    #[arg(long, value_name = "N", default_value_t = dataset::SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
}

pub fn run(args: Args) -> Result<Exit> {
    // They name programs to run. A missing one is reported where it is read.
    for file in &args.tools {
        let _ = open_file("the description of a tool", file)?;
    }
    if args.list {
        return list(&args.tools);
    }
    let interrupt = Interrupt::watch()?;
    let program = match args.program {
        Some(program) => program,
        None => std::env::current_exe().map_err(|e| crate::exit::of_file("find", "this program", &e))?,
    };
    let variant = Variant {
        serve_args: args.serve_arg.into_iter().map(Into::into).collect(),
        cp_args: args.cp_arg.into_iter().map(Into::into).collect(),
        ..Variant::new(program)
    };
    let earlier = args.earlier.map(|program| Variant { label: EARLIER.into(), program, ..variant.clone() });
    let scenario = match &args.lab {
        Some(lab) => Some(Wanted::new(lab, args.lab_set).read()?),
        None => None,
    };
    let defaults = compare::Options::default();
    let rivals = match args.rivals {
        rivals if rivals.is_empty() => defaults.rivals,
        rivals if rivals.iter().any(|rival| rival == "all") => RIVALS.map(str::to_owned).to_vec(),
        rivals => rivals,
    };
    let options = compare::Options {
        sets: if args.sets.is_empty() { defaults.sets } else { args.sets },
        variants: earlier.into_iter().chain([variant]).collect(),
        rivals: if args.no_rivals { Vec::new() } else { rivals },
        adapters: args.tools,
        is_resumed: args.resume,
        rounds: args.rounds,
        limit: Duration::from_secs(args.limit),
        scenario,
        with_ceilings: !args.no_ceilings,
        out: args.out,
        work_dir: args.work_dir,
        pauses: defaults.pauses,
        seed: args.seed,
        // Where the program lies on this machine is nothing to a reader.
        regenerate: ["thalweg".into()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" "),
    };
    let raced = compare::run(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    line(report::summary_text(&raced).trim_end());
    Ok(Exit::Done)
}

fn list(files: &[PathBuf]) -> Result<Exit> {
    let known = RIVALS.iter().map(|name| tool::rival(name));
    for found in known.chain(files.iter().map(|file| tool::adapter(file))) {
        let tool = found.map_err(|e| of_bench(&e))?;
        let place = if tool.class() == Class::Local { "local" } else { "network" };
        let version = tool.version().unwrap_or_else(|error| error.chain());
        line(&format!("{:<16} {place:<8} {}", tool.name(), tool.protection()));
        line(&format!("{:<25} {version}", ""));
    }
    Ok(Exit::Done)
}
