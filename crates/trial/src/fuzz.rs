//! `trial fuzz`: the targets under libFuzzer, built with the stable toolchain; or under a plain mutator, without C++.
//!
//! Seeds are in `fuzz/corpus/TARGET`, inputs that once failed in `fuzz/regressions/TARGET`; a plain test replays both.
//! What libFuzzer finds on the way is kept below the build's folder and used by its next run. A failing input is
//! made small and put among the regressions.
//!
//! Executions are counted by themselves: an input that was drawn is no fault that was put in.
//!
//! Not here: what the targets check (`trial::targets`).

mod libfuzzer;

use crate::record::{Executions, Tally};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trial::targets::{self, TARGETS, Target, mutate};

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
        note(&mut tally, chosen[0], Executions { runs: 1, ..Executions::default() });
    } else if arguments.plain {
        for target in chosen {
            let runs = mutate::run(target, &folder(), 1, Duration::from_secs(arguments.seconds), u64::MAX)?;
            note(&mut tally, target, Executions { runs, seconds: arguments.seconds, ..Executions::default() });
        }
    } else {
        let build = match &arguments.build_dir {
            Some(dir) => std::path::absolute(dir).context("name the build's folder")?,
            None => default_build_dir()?,
        };
        let program = libfuzzer::build(&folder(), &build)?;
        for target in chosen {
            let ran = libfuzzer::run(&program, target, &folder(), &build, arguments.seconds)?;
            let done = Executions {
                runs: ran.executions,
                seconds: arguments.seconds,
                coverage: Some(ran.coverage),
                new_inputs: Some(ran.new_inputs),
                violation: ran.broken.map(|input| format!("trial fuzz --target {} --input {input}", target.name)),
            };
            note(&mut tally, target, done);
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

fn note(tally: &mut Tally, target: &Target, done: Executions) {
    tally.executions.insert(target.name.to_owned(), done);
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
