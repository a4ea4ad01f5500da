//! One step, and what comes of it; how a command of a step is run, with its output in the step's log.
//!
//! Not here: what each kind of work does (`run`).

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::surroundings::{Extent, Surroundings};

/// Enough of a failing log to show the panic of a test among its neighbours.
const LOG_LINES_SHOWN: usize = 200;
/// The longest step takes four minutes on two cores.
const LASTS_AT_MOST: Duration = Duration::from_secs(1200);
const POLL: Duration = Duration::from_millis(20);
pub struct Step {
    pub name: &'static str,
    pub work: Work,
    /// The smallest that has it.
    pub extent: Extent,
    /// It runs at the same time as its neighbours that say so too.
    pub is_beside: bool,
}

pub enum Work {
    Tools,
    Tidy,
    /// Succeeds or fails as one.
    Cargo(Vec<String>),
    /// The build that is tested, by clippy's compiler: a warning is a failure.
    Tested(Vec<String>),
    /// Builds the product and reports its size.
    Product(Vec<String>),
    /// Builds the release before this one, which the end-to-end tests set beside the product.
    Previous,
    /// The product from nothing, as whoever tries it first compiles it.
    FirstBuild,
    /// The product without its default features, in a folder of its own.
    Edge,
    /// All code is accepted by the oldest compiler that `Cargo.toml` allows.
    OldestToolchain,
    /// Counts as many as the tests it ran.
    Tests(Selection),
    /// The same as nobody in particular, where a test may say that it cannot run.
    WithoutRoot(Selection),
    /// A command of `trial`, which keeps its counts.
    Trial(Vec<String>),
    /// Another program of the tested build.
    Program(&'static str, Vec<String>),
}

/// Which tests of which programs run, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Selection {
    /// True for a program by its name.
    pub is_meant: fn(&str) -> bool,
    /// Only tests that begin so, or with `!` before them all others.
    pub filters: &'static [&'static str],
    pub is_without: bool,
    pub programs_at_a_time: usize,
    pub threads: usize,
}

/// What one step adds to the totals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    pub passed: usize,
    pub failed: usize,
    /// Shown at the end of the step's line.
    pub note: String,
    /// Shown below the line.
    pub details: Vec<String>,
}

/// A step that ended.
pub struct Done {
    pub name: &'static str,
    pub is_build: bool,
    pub seconds: f64,
    /// Of what this step started, and of its neighbours where it ran beside them.
    pub processor_seconds: f64,
    pub outcome: Outcome,
}

impl Step {
    /// Of a compiler: a warning is a failure.
    pub fn clean(&self, is_success: bool, log: &str, surroundings: &Surroundings) -> Outcome {
        let is_clean = is_success && !log.lines().any(|line| line.starts_with("warning"));
        Outcome::of_step(if is_clean { Vec::new() } else { self.shown(log, surroundings) })
    }

    /// Runs a command that succeeds or fails as one.
    pub fn whole(&self, command: &mut Command, surroundings: &Surroundings) -> Result<Outcome> {
        let (is_success, log) = self.logged(command, surroundings)?;
        Ok(Outcome::of_step(if is_success { Vec::new() } else { self.shown(&log, surroundings) }))
    }

    pub fn logged(&self, command: &mut Command, surroundings: &Surroundings) -> Result<(bool, String)> {
        self.logged_to(command, surroundings, None)
    }

    /// Runs a command with its output in this step's log, or its standard output elsewhere.
    pub fn logged_to(&self, command: &mut Command, at: &Surroundings, stdout: Option<File>) -> Result<(bool, String)> {
        let path = self.log(at);
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        at.prepare(command);
        command.stdout(stdout.map_or_else(|| log.try_clone(), Ok).context("share the log")?).stderr(log);
        let is_success = match self.is_success(command) {
            Ok(is_success) => is_success,
            // What is not installed fails its own step.
            Err(error) => return Ok((false, format!("run {}: {error}", command.get_program().display()))),
        };
        let log = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((is_success, String::from_utf8_lossy(&log).into_owned()))
    }

    /// Runs a command to its end. What hangs is killed, unless it is of the kind that takes hours, so that the rest is told.
    pub fn is_success(&self, command: &mut Command) -> io::Result<bool> {
        let (mut child, began) = (command.spawn()?, Instant::now());
        loop {
            match child.try_wait()? {
                Some(status) => return Ok(status.success()),
                None if self.extent < Extent::Full && began.elapsed() > LASTS_AT_MOST => {
                    child.kill()?;
                    println!("{}: stopped after {} s", self.name, LASTS_AT_MOST.as_secs());
                    return Ok(child.wait()?.success());
                }
                None => sleep(POLL),
            }
        }
    }

    fn log(&self, surroundings: &Surroundings) -> PathBuf {
        surroundings.logs.join(format!("{}.log", dashed(self.name)))
    }

    fn shown(&self, log: &str, surroundings: &Surroundings) -> Vec<String> {
        end_of(log, &self.log(surroundings).display().to_string())
    }
}

impl Outcome {
    pub fn of_step(details: Vec<String>) -> Outcome {
        let failed = usize::from(!details.is_empty());
        Outcome { passed: 1 - failed, failed, note: String::new(), details }
    }
}

/// The end of a log, and where the whole of it is.
pub fn end_of(log: &str, name: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let before = lines.len().saturating_sub(LOG_LINES_SHOWN);
    let mut shown = vec![format!("{name} ({before} lines before these)")];
    shown.extend(lines[before..].iter().map(|&line| line.to_owned()));
    shown
}

/// A name as it is in file names.
pub fn dashed(name: &str) -> String {
    name.replace([' ', '/'], "-")
}
