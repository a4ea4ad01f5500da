//! How each kind of work is run.

use std::fs::{self, File};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::step::{Done, Outcome, Step, Work, dashed};
use super::surroundings::Surroundings;
use super::{programs, tools};
use crate::{first_build, previous, tidy};

/// Who a process is that is not root.
const NOBODY: [&str; 4] = ["unshare", "--user", "--map-user=65534", "--map-group=65534"];

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
        build.args(["--message-format", "json-render-diagnostics", "--config"]).arg(surroundings.checked());
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
}

impl Outcome {
    fn with_size(self, program: &std::path::Path) -> Result<Outcome> {
        if self.failed > 0 {
            return Ok(self);
        }
        let bytes = fs::metadata(program).with_context(|| format!("look at {}", program.display()))?.len();
        Ok(Outcome { note: format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)), ..self })
    }
}

/// One line when a step ends; steps that run beside each other come in the order in which they end.
fn tell(step: &Step, outcome: &Outcome, seconds: f64) -> Result<()> {
    let verdict = if outcome.failed == 0 { "ok" } else { "FAILED" };
    let mut text = format!("{:24} {verdict:6} {seconds:7.1} s  {}\n", step.name, outcome.note);
    outcome.details.iter().for_each(|line| text += &format!("    {line}\n"));
    stdout().lock().write_all(text.as_bytes()).context("print")
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
