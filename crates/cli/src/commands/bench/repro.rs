//! `thalweg bench repro`: published figures and tables, made again and judged.

use crate::commands::bench::values;
use crate::commands::generate::of_bench;
use crate::exit::{Result, error, of_file, usage};
use crate::interrupt::Interrupt;
use crate::output::{line, note, shown};
use bench::dataset::SEED_DEFAULT;
use bench::repro::{self, ITEMS, Item, Outcome};
use lab::scenario::quantity::parse_rate;
use model::Exit;
use std::path::PathBuf;
use std::time::Duration;

/// Make published figures and tables again, at the scale of this machine, and say whether their claims hold
///
/// ID is a figure or table such as s0-f8, `all` for every one that runs here, or `list`. Laboratories are checked first;
/// each claim is PASS, FAIL or VOID with what was measured. An interrupted run is continued by the same command. The
/// exit code is 1 if a claim fails. Needs root, or user namespaces.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg bench repro list\n\
\x20   thalweg bench repro s0-f8 --budget 10m --out figures\n\
\x20   thalweg bench repro all --budget 60m --out figures")]
pub struct Args {
    /// Which figures: IDs, all, or list
    #[arg(required = true, value_name = "ID|all|list")]
    ids: Vec<String>,
    /// Where samples, plots and verdicts go, a folder for each
    #[arg(long, value_name = "DIR", env = "THALWEG_OUT")]
    out: Option<PathBuf>,
    /// Time for all of them together, such as 60m [default: 10m each]
    #[arg(long, value_name = "TIME", value_parser = values::budget, env = "THALWEG_BUDGET")]
    budget: Option<Duration>,
    /// Rate of the links, such as 200Mbit [default: each figure's own, mostly 1Gbit]
    #[arg(long, value_name = "RATE", env = "THALWEG_RATE")]
    rate: Option<String>,
    /// Counted rounds [default: 3, or what the budget allows]
    #[arg(long, value_name = "N", env = "THALWEG_ROUNDS")]
    rounds: Option<u32>,
    /// Do not hold the laboratory against its gates first
    #[arg(long, env = "THALWEG_NO_CHECK")]
    no_check: bool,
    /// Our program [default: this one]
    #[arg(long, value_name = "FILE", env = "THALWEG_PROGRAM")]
    program: Option<PathBuf>,
    /// Where data sets and deliveries lie [default: a tmpfs]
    #[arg(long, value_name = "DIR", env = "THALWEG_WORK_DIR")]
    work_dir: Option<PathBuf>,
    /// Another seed gives other bytes and loses other packets
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT, env = "THALWEG_SEED")]
    seed: u64,
}

pub fn run(args: Args) -> Result<Exit> {
    if args.ids.iter().any(|id| id == "list") {
        for item in ITEMS {
            line(&format!("{:11} {:52} {}", item.id, item.title, item.needs.shown()));
        }
        return Ok(Exit::Done);
    }
    let items = items(&args.ids)?;
    let Some(out) = args.out else {
        return Err(usage("figures need a directory", "give `--out DIR`; every sample is written there at once"));
    };
    let rate = args.rate.as_deref().map(parse_rate).transpose();
    let rate = rate.map_err(|e| usage(e.to_string(), "write a rate such as 1Gbit"))?;
    let program = match args.program {
        Some(program) => program,
        None => std::env::current_exe().map_err(|e| of_file("find", "this program", &e))?,
    };
    let options = repro::Options {
        budget: args.budget,
        bits_per_second: rate.flatten(),
        rounds: args.rounds,
        is_unchecked: args.no_check,
        work_dir: args.work_dir,
        seed: args.seed,
        regenerate: values::command_line(),
        ..repro::Options::new(out, program)
    };
    // Before any thread is started.
    lab::unprivileged::become_root().map_err(|e| of_bench(&e.into()))?;
    let interrupt = Interrupt::watch()?;
    let outcome = repro::run(&items, &options, interrupt.flag(), &mut |text| note(text)).map_err(|e| of_bench(&e))?;
    show(&outcome);
    if outcome.is_cancelled {
        let message = format!("stopped; what was measured is kept in {}", shown(&options.out));
        return Err(error(interrupt.exit(), message, "the same command resumes from there"));
    }
    note(&format!("the index is {}", shown(options.out.join("README.md"))));
    Ok(if outcome.holds() { Exit::Done } else { Exit::Failed })
}

fn items(ids: &[String]) -> Result<Vec<&'static Item>> {
    if ids.iter().any(|id| id == "all") {
        return Ok(ITEMS.iter().filter(|item| item.run.is_some()).collect());
    }
    let mut items: Vec<&'static Item> = Vec::new();
    for id in ids {
        let item = repro::find(id).map_err(|e| of_bench(&e))?;
        if !items.iter().any(|other| other.id == item.id) {
            items.push(item);
        }
    }
    Ok(items)
}

fn show(outcome: &Outcome) {
    for done in &outcome.done {
        line(&format!("{}: {}", done.id, done.title));
        for check in &done.checks {
            line(&format!("  {}", check.shown()));
        }
        for text in done.notes.iter().chain(&done.failure) {
            line(&format!("  note: {text}"));
        }
    }
}
