//! `trial fuzz`: the targets under libFuzzer, built with the stable toolchain; or under a plain mutator, without C++.
//!
//! Seeds are in `fuzz/corpus/TARGET`, inputs that once failed in `fuzz/regressions/TARGET`; a plain test replays both.
//! What libFuzzer finds on the way is kept below the build's folder and used by its next run. A failing input is
//! made small and put among the regressions.
//!
//! Not here: what the targets check (`trial::targets`).

mod libfuzzer;

use crate::record::Tally;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::targets::{self, TARGETS, Target, mutate};

/// The faults of the table that a target is about.
const FAULTS: &[(&str, &[&str])] = &[
    ("frames", &["F002", "F003", "F005", "F008"]),
    ("session", &["F006", "F007", "F010", "F040"]),
    ("ledger", &["F090"]),
    ("manifests", &["F050"]),
    ("locations", &["F040", "F046"]),
    ("configuration", &["F134"]),
    ("tickets", &["F030"]),
    ("options", &["F018"]),
];

#[derive(clap::Args)]
pub struct Arguments {
    /// Seconds for each target
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// One target only
    #[arg(long)]
    target: Option<String>,
    /// Where libFuzzer's program is built and what it found is kept [default: `fuzz` in cargo's target folder]
    #[arg(long)]
    build_dir: Option<PathBuf>,
    /// Run this input once, without libFuzzer
    #[arg(long, requires = "target")]
    input: Option<PathBuf>,
    /// Mutate the corpus in this process instead: no C++ compiler, no coverage
    #[arg(long)]
    plain: bool,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let chosen: Vec<&Target> = match &arguments.target {
        None => TARGETS.iter().collect(),
        Some(name) => vec![find(name)?],
    };
    let mut tally = Tally::new(&format!("trial fuzz --seconds {}", arguments.seconds));
    let started = Instant::now();
    if let Some(input) = &arguments.input {
        let data = std::fs::read(input).with_context(|| format!("read {}", input.display()))?;
        (chosen[0].run)(&data);
        count(&mut tally, chosen[0], 1, None);
    } else if arguments.plain {
        for target in chosen {
            let runs = mutate::run(target, &folder(), 1, Duration::from_secs(arguments.seconds), u64::MAX)?;
            count(&mut tally, target, runs, None);
        }
    } else {
        let build = match &arguments.build_dir {
            Some(dir) => std::path::absolute(dir).context("name the build's folder")?,
            None => default_build_dir()?,
        };
        let program = libfuzzer::build(&folder(), &build)?;
        for target in chosen {
            let ran = libfuzzer::run(&program, target, &folder(), &build, arguments.seconds)?;
            let broken = ran.broken.map(|input| format!("trial fuzz --target {} --input {input}", target.name));
            count(&mut tally, target, ran.executions, broken);
            let figure = format!(
                "{} executions in {} s, {} edges and values, {} inputs that reach new ones",
                ran.executions, arguments.seconds, ran.coverage, ran.new_inputs
            );
            tally.figures.insert(format!("fuzz {}", target.name), figure);
        }
    }
    tally.seconds = started.elapsed().as_secs_f64();
    Ok(tally)
}

fn find(name: &str) -> Result<&'static Target> {
    let Some(target) = targets::find(name) else {
        let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        bail!("no such target; known are {}", known.join(", "));
    };
    Ok(target)
}

fn count(tally: &mut Tally, target: &Target, executions: u64, broken: Option<String>) {
    let class = tally.classes.entry(format!("fuzz: {}", target.name)).or_default();
    let faults = FAULTS.iter().find(|(name, _)| *name == target.name).map_or(&[][..], |(_, faults)| *faults);
    class.faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
    class.violated = u64::from(broken.is_some());
    class.survived = executions.saturating_sub(class.violated);
    class.violations = broken.map(|again| format!("an input breaks a promise; again: {again}")).into_iter().collect();
}

/// The folder `fuzz` at the root of the repository that this program was built from.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// Beside the profile's folder that this program runs from.
fn default_build_dir() -> Result<PathBuf> {
    let program = std::env::current_exe().context("find this program")?;
    let target = program.parent().and_then(Path::parent).context("this program is not in a target folder")?;
    Ok(target.join("fuzz"))
}
