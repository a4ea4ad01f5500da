//! `thalweg bench sweep`: the same program over a grid of sizes and paths, unattended.

use crate::commands::bench::compare::judge;
use crate::commands::bench::values;
use crate::commands::generate::of_bench;
use crate::exit::{Result, error, of_file};
use crate::interrupt::Interrupt;
use crate::output::{line, note, shown};
use bench::dataset;
use bench::sweep::{self, Axes, Figures, Outcome, PAIRS_DEFAULT, Plan, ROUNDS_DEFAULT, RUN_SECONDS_DEFAULT};
use bench::tool::Variant;
use lab::scenario::quantity::{parse_burst, parse_duration, parse_probability, parse_rate};
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Measure over file sizes, round trips, congestion controls, losses, stream counts and rates, in laboratories
///
/// Every combination is a condition with its own laboratory; in each, work goes from small to large files, and the
/// throughput of the path from memory to memory is measured too. Lists are separated by commas. Every sample is on disk
/// before the next run starts: the same command resumes where it was interrupted. Needs root, or user namespaces.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg bench sweep --size 1KiB..64MiB/4 --rtt 20ms,100ms,200ms --rate 1Gbit --budget 30m --out sweep\n\
\x20   thalweg bench sweep --size 64MiB --loss 0,0.01% --cc cubic,bbr --streams auto,1,8 --out loss\n\
\x20   thalweg bench sweep --size 64KiB,16MiB --grid streams=1,2,4,8 --grid chunk=1MiB,8MiB --out grid")]
pub struct Args {
    /// File sizes, or a range such as 1KiB..1GiB/4 [default: 1KiB..1GiB/4 unless --set is given]
    #[arg(long = "size", value_name = "SIZES", value_parser = values::sizes, env = "THALWEG_SIZE")]
    sizes: Option<values::Sizes>,
    /// A data set as for `thalweg gen`, or gen:NxSIZE for one generated in memory; may be given several times
    #[arg(long = "set", value_name = "SPEC", env = "THALWEG_SET")]
    sets: Vec<String>,
    /// Rates of the link, such as 200Mbit,1Gbit
    #[arg(long, value_name = "RATES", value_delimiter = ',', default_value = "1Gbit", env = "THALWEG_RATE")]
    rate: Vec<String>,
    /// Round trips, such as 20ms,100ms
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "74ms", env = "THALWEG_RTT")]
    rtt: Vec<String>,
    /// Loss of segments in each direction, such as 0,0.01%
    #[arg(long, value_name = "LOSSES", value_delimiter = ',', default_value = "0", env = "THALWEG_LOSS")]
    loss: Vec<String>,
    /// Mean segments lost in a row, such as 1,8; with 1 losses are independent
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1", env = "THALWEG_LOSS_BURST")]
    loss_burst: Vec<String>,
    /// Congestion controls of all tools
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cubic", env = "THALWEG_CC")]
    cc: Vec<String>,
    /// Data streams of our program: numbers, or auto for its own choice
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "auto", env = "THALWEG_STREAMS")]
    streams: Vec<String>,
    /// The largest buffers of a connection, such as 1MiB,2MiB; tuned keeps those of the hosts
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "tuned", env = "THALWEG_WINDOW")]
    window: Vec<String>,
    /// Client commands at once, each with the whole set
    #[arg(long, value_name = "COUNTS", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64), env = "THALWEG_CLIENTS")]
    clients: Vec<u32>,
    /// Socket limits of the hosts as distributions ship them
    #[arg(long, env = "THALWEG_STOCK_HOSTS")]
    stock_hosts: bool,
    /// Other settings of our program, each combination raced: KEY=VALUE,VALUE; may be given several times
    #[arg(long, value_name = "KEY=VALUES", env = "THALWEG_GRID")]
    grid: Vec<String>,
    /// With --grid: rounds in which the defaults and the winner race again
    #[arg(long, value_name = "N", default_value_t = PAIRS_DEFAULT, env = "THALWEG_PAIRS")]
    pairs: u32,
    /// Also race another tool, where real files are moved and --streams is auto; may be given several times
    #[arg(long = "rival", value_name = "TOOL", env = "THALWEG_RIVAL")]
    rivals: Vec<String>,
    /// Counted rounds; with more than one, another is run first and discarded
    #[arg(long, value_name = "N", default_value_t = ROUNDS_DEFAULT, env = "THALWEG_ROUNDS")]
    rounds: u32,
    /// Target duration of a run
    #[arg(long, value_name = "SECONDS", default_value_t = RUN_SECONDS_DEFAULT, env = "THALWEG_SECONDS")]
    seconds: f64,
    /// Amounts above this are generated in memory and discarded at the remote side
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = model::quantity::parse_bytes, env = "THALWEG_VOLUME_MAX")]
    volume_max: u64,
    /// Cut the plan down to this time, such as 60m; reports what was cut
    #[arg(long, value_name = "TIME", value_parser = values::budget, env = "THALWEG_BUDGET")]
    budget: Option<Duration>,
    /// Further attempts at a run in which the emulated link was late
    #[arg(long, value_name = "N", default_value_t = 2, env = "THALWEG_VOID_RETRIES")]
    void_retries: u32,
    /// Do not measure the throughput of the path from memory to memory
    #[arg(long, env = "THALWEG_NO_CEILINGS")]
    no_ceilings: bool,
    /// Seconds after which a run is abandoned
    #[arg(long, value_name = "SECONDS", default_value_t = 120, env = "THALWEG_LIMIT")]
    limit: u64,
    /// Where to put plan, samples and report; an earlier sweep of the same plan there is resumed
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
    /// Only say what would be run
    #[arg(long, env = "THALWEG_DRY_RUN")]
    dry_run: bool,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
    /// Argument added to our `cp`, such as --cp-arg=--fsync=never
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_CP_ARG")]
    cp_arg: Vec<String>,
    /// Argument added to our `serve`
    #[arg(long, value_name = "ARG", allow_hyphen_values = true, env = "THALWEG_SERVE_ARG")]
    serve_arg: Vec<String>,
    /// Where to put data sets and deliveries [default: a tmpfs]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Seed of the generated bytes and the lost packets
    #[arg(long, value_name = "N", default_value_t = dataset::SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
}

pub fn run(args: Args) -> Result<Exit> {
    let options = options(&args)?;
    let plan = Plan::of(&options).map_err(|e| of_bench(&e))?;
    if args.dry_run {
        for text in plan.lines() {
            line(&text);
        }
        return Ok(Exit::Done);
    }
    if args.out.is_none() {
        let hint = "give `--out DIR`; every sample is written there at once";
        return Err(crate::exit::usage("a sweep needs a directory for its samples", hint));
    }
    plan.cut.iter().for_each(|cut| note(&format!("cut to fit the budget: {cut}")));
    // Before any thread is started.
    lab::unprivileged::become_root().map_err(|e| of_bench(&e.into()))?;
    let interrupt = Interrupt::watch()?;
    let swept = sweep::run(&options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    finish(&swept, &options, &interrupt)
}

fn finish(swept: &Outcome, options: &sweep::Options, interrupt: &Interrupt) -> Result<Exit> {
    let Outcome { settled, planned, .. } = swept;
    if swept.is_cancelled {
        let message = format!("stopped after {settled} of {planned} runs, which are kept in {}", shown(&options.out));
        return Err(error(interrupt.exit(), message, "the same command resumes from there"));
    }
    line(sweep::tables(&swept.report, &Figures::of(swept.samples())).trim_end());
    let state = if swept.is_complete { "all" } else { "not all" };
    note(&format!("{settled} of {planned} runs, {state} of the plan; the bundle is in {}", shown(&options.out)));
    judge(swept.samples())
}

fn options(args: &Args) -> Result<sweep::Options> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(|e| of_file("find", "this program", &e))?,
    };
    let base = Variant {
        serve_args: args.serve_arg.iter().map(Into::into).collect(),
        cp_args: args.cp_arg.iter().map(Into::into).collect(),
        ..Variant::new(program)
    };
    let defaults = sweep::Options::default();
    Ok(sweep::Options {
        axes: axes(args)?,
        variants: sweep::variants(&base, &args.grid).map_err(|e| of_bench(&e))?,
        rivals: args.rivals.clone(),
        rounds: args.rounds,
        pairs: if args.grid.is_empty() { 0 } else { args.pairs },
        run_seconds: args.seconds,
        volume_bytes_max: args.volume_max,
        budget: args.budget,
        void_retries: args.void_retries,
        ceiling_streams: if args.no_ceilings { Vec::new() } else { defaults.ceiling_streams.clone() },
        limit: Duration::from_secs(args.limit),
        out: args.out.clone().unwrap_or_default(),
        work_dir: args.work_dir.clone(),
        seed: args.seed,
        regenerate: values::command_line(),
        ..defaults
    })
}

fn axes(args: &Args) -> Result<Axes> {
    let sizes = match &args.sizes {
        Some(values::Sizes(sizes)) => sizes.clone(),
        None if args.sets.is_empty() => (0..11).map(|step| 1024 << (2 * step)).collect(),
        None => Vec::new(),
    };
    Ok(Axes {
        sizes,
        sets: args.sets.clone(),
        rates: values::each(&args.rate, |text| parse_rate(text).map_err(|e| e.to_string()))?,
        round_trips: values::each(&args.rtt, |text| parse_duration(text).map_err(|e| e.to_string()))?,
        losses: values::each(&args.loss, |text| parse_probability(text).map_err(|e| e.to_string()))?,
        loss_bursts: values::each(&args.loss_burst, |text| parse_burst(text).map_err(|e| e.to_string()))?,
        congestion_controls: args.cc.clone(),
        streams: values::each(&args.streams, values::streams)?,
        has_stock_hosts: args.stock_hosts,
        windows: values::each(&args.window, values::window)?,
        clients: args.clients.clone(),
    })
}
