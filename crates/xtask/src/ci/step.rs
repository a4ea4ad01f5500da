//! One step: how each kind of work is run, and what comes of it.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::plan::{CHECKED, Selection};
use super::{Extent, Surroundings, programs, tell, tools};
use crate::{first_build, previous, tidy};

/// Enough of a failing log to show the panic of a test among its neighbours.
const LOG_LINES_SHOWN: usize = 200;
/// The longest step takes four minutes on two cores.
const LASTS_AT_MOST: Duration = Duration::from_secs(1200);
const POLL: Duration = Duration::from_millis(20);
/// Who a process is that is not root.
const NOBODY: [&str; 4] = ["unshare", "--user", "--map-user=65534", "--map-group=65534"];

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
    pub fn timed(&self, surroundings: &Surroundings) -> Result<Done> {
        let (start, processor_before) = (Instant::now(), processor_seconds());
        let outcome = self.run(surroundings).with_context(|| self.name)?;
        let seconds = start.elapsed().as_secs_f64();
        tell(self, &outcome, seconds)?;
        let is_build =
            matches!(self.work, Work::Tested(_) | Work::Product(_) | Work::Previous | Work::Edge | Work::FirstBuild);
        let processor_seconds = processor_seconds() - processor_before;
        Ok(Done { name: self.name, is_build, seconds, processor_seconds, outcome })
    }

    fn run(&self, surroundings: &Surroundings) -> Result<Outcome> {
        let target = &surroundings.workspace.target;
        match &self.work {
            Work::Tools => Ok(tools::missing()),
            Work::Tidy => Ok(Outcome::of_step(tidy::broken_rules(&surroundings.workspace))),
            Work::Cargo(arguments) => self.whole(cargo().args(arguments), surroundings),
            Work::Tested(arguments) => self.tested(arguments, surroundings),
            Work::Product(arguments) => {
                let (is_success, log) = self.logged(cargo().args(arguments), surroundings)?;
                self.clean(is_success, &log, surroundings).with_size(&surroundings.product)
            }
            Work::Edge => {
                let folder = target.join("edge");
                let mut build = cargo();
                build.args(["build", "--release", "--locked", "-p", "thalweg", "--no-default-features"]);
                let outcome = self.whole(build.arg("--target-dir").arg(&folder), surroundings)?;
                outcome.with_size(&folder.join("release/thalweg"))
            }
            Work::FirstBuild => {
                let folder = target.join("first");
                let outcome = self.whole(cargo().args(first_build::arguments(&folder)?), surroundings)?;
                if outcome.failed > 0 {
                    return Ok(outcome);
                }
                let (said, is_within) = first_build::judge(&folder)?;
                Ok(if is_within { Outcome { note: said, ..outcome } } else { Outcome::of_step(vec![said]) })
            }
            Work::OldestToolchain => {
                let version = oldest(surroundings)?;
                let mut check = Command::new("rustup");
                check.args(["run", "--install", &version, "cargo", "check"]).args([
                    "--locked",
                    "--workspace",
                    "--all-targets",
                ]);
                self.whole(check.arg("--target-dir").arg(target.join("oldest")), surroundings)
            }
            Work::Previous => {
                let built = previous::build(&surroundings.workspace, |arguments| {
                    self.logged(cargo().args(arguments), surroundings)
                });
                Ok(match built {
                    Ok(note) => Outcome { note, ..Outcome::of_step(Vec::new()) },
                    Err(error) => Outcome::of_step(format!("{error:#}").lines().map(str::to_owned).collect()),
                })
            }
            Work::Tests(selection) => programs::run(selection, &[], self, surroundings),
            Work::WithoutRoot(selection) => programs::run(selection, &NOBODY, self, surroundings),
            Work::Trial(arguments) => {
                let mut trial = Command::new(target.join("release/trial"));
                self.whole(trial.args(arguments).arg("--out").arg(&surroundings.out), surroundings)
            }
            Work::Program(name, arguments) => {
                let mut program = Command::new(target.join("release").join(name));
                self.whole(program.args(arguments), surroundings)
            }
        }
    }

    /// Compiles, and learns which test programs came of it.
    fn tested(&self, arguments: &[String], surroundings: &Surroundings) -> Result<Outcome> {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().context("run rustc")?;
        let clippy = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim()).join("bin/clippy-driver");
        ensure!(clippy.is_file(), "there is no {}: `rustup component add clippy`", clippy.display());
        let list = surroundings.logs.join(format!("{}.json", dashed(self.name)));
        let mut build = cargo();
        build.args(arguments).args(["--release", "--locked", "--no-fail-fast"]);
        build.args(["--message-format", "json-render-diagnostics", "--config"]).arg(surroundings.logs.join(CHECKED));
        // The compiler that also lints: what is checked here is not compiled again to be linted.
        build.env("RUSTC_WORKSPACE_WRAPPER", clippy);
        let json = File::create(&list).with_context(|| format!("create {}", list.display()))?;
        let (is_success, log) = self.logged_to(&mut build, surroundings, Some(json))?;
        let artifacts = fs::read_to_string(&list).with_context(|| format!("read {}", list.display()))?;
        let mut known = surroundings.programs.lock().expect("no step panics");
        if known.is_empty() {
            *known = programs::found(&artifacts, &surroundings.workspace)?;
        }
        Ok(Outcome { note: format!("{} test programs", known.len()), ..self.clean(is_success, &log, surroundings) })
    }

    /// Of a compiler: a warning is a failure.
    fn clean(&self, is_success: bool, log: &str, surroundings: &Surroundings) -> Outcome {
        let is_clean = is_success && !log.lines().any(|line| line.starts_with("warning"));
        Outcome::of_step(if is_clean { Vec::new() } else { self.shown(log, surroundings) })
    }

    /// Runs a command that succeeds or fails as one.
    fn whole(&self, command: &mut Command, surroundings: &Surroundings) -> Result<Outcome> {
        let (is_success, log) = self.logged(command, surroundings)?;
        Ok(Outcome::of_step(if is_success { Vec::new() } else { self.shown(&log, surroundings) }))
    }

    fn logged(&self, command: &mut Command, surroundings: &Surroundings) -> Result<(bool, String)> {
        self.logged_to(command, surroundings, None)
    }

    /// Runs a command with its output in this step's log, or its standard output elsewhere.
    fn logged_to(&self, command: &mut Command, at: &Surroundings, stdout: Option<File>) -> Result<(bool, String)> {
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

impl Surroundings {
    /// Settings that every child has, and none of the product that the caller has.
    pub fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THALWEG_")) {
            command.env_remove(name);
        }
        if command.get_current_dir().is_none() {
            command.current_dir(&self.workspace.root);
        }
        command.env("THALWEG_BIN", &self.product).env("PROPTEST_RNG_SEED", self.seed.to_string());
        // What is tried against it is not left out: a build that failed has failed its own step.
        let previous = previous::program(&self.workspace);
        command.envs(previous.is_file().then_some(("THALWEG_PREVIOUS_BIN", previous)));
        // A test that cannot run here fails and says what is missing (`needs`).
        command.envs((self.extent != Extent::Quick).then_some(("CI", "true")));
        command.env("CARGO_TERM_COLOR", "never").env("RUSTDOCFLAGS", "-D warnings").stdin(Stdio::null());
    }
}

impl Outcome {
    pub fn of_step(details: Vec<String>) -> Outcome {
        let failed = usize::from(!details.is_empty());
        Outcome { passed: 1 - failed, failed, note: String::new(), details }
    }

    fn with_size(self, program: &std::path::Path) -> Result<Outcome> {
        if self.failed > 0 {
            return Ok(self);
        }
        let bytes = fs::metadata(program).with_context(|| format!("look at {}", program.display()))?.len();
        Ok(Outcome { note: format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)), ..self })
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

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn oldest(surroundings: &Surroundings) -> Result<String> {
    let manifest = surroundings.workspace.text("Cargo.toml").context("read Cargo.toml")?;
    let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).context("no rust-version")?;
    Ok(version.trim_matches('"').to_owned())
}

/// Of all children that ended, in the kernel's hundredths.
fn processor_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields = after_name.split_whitespace().skip(13).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}
