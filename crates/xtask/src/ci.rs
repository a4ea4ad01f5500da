//! Continuous integration, entire: every step in order, one line each, and the counts at the end.
//!
//! Two cores and a cold cache must do, so everything that is compiled is compiled in the release profile: packages from
//! outside, and the C in them, are built once for clippy, tests and product alike. Tests before the product build add
//! overflow checks and debug assertions to this workspace's own crates only. The product is the last build before the
//! end-to-end tests, so `target/release/thalweg` is what they run and what stays.
//! A step that fails does not stop the ones after it. Output goes to a log for each step and is shown on failure.

use std::fs::{self, File};
use std::io::{Write, stdout};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::workspace::Workspace;
use crate::{previous, tidy};

/// How much of continuous integration to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    Everything,
    /// No documentation, no product builds, no end-to-end tests; needs neither root nor other programs.
    Quick,
}

/// Programs that the end-to-end tests run.
const TOOLS: &[&str] = &[
    "ip",
    "rsync",
    "strace",
    "tcpdump",
    "fusermount3",
    "ps",
    "ping",
    "iptables",
    "unshare",
    "ssh",
    "sshd",
    "git",
    "tar",
];

/// Enough of a failing log to show the panic of a test among its neighbours.
const LOG_LINES_SHOWN: usize = 200;

struct Step {
    name: &'static str,
    work: Work,
    is_quick: bool,
}

enum Work {
    Tools,
    Tidy,
    /// Succeeds or fails as one.
    Cargo(Vec<String>),
    /// Counts as many as the tests it ran.
    Tests(Vec<String>),
    /// Builds the product and reports its size.
    Product(Vec<String>),
    /// Builds the release before this one, which the end-to-end tests set beside the product.
    Previous,
}

/// What one step adds to the totals.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Outcome {
    passed: usize,
    failed: usize,
    /// Shown at the end of the step's line.
    note: String,
    /// Shown below the line.
    details: Vec<String>,
}

struct Surroundings {
    workspace: Workspace,
    logs: PathBuf,
    product: PathBuf,
}

/// Runs the steps, prints `N passed, N failed` last, and says whether nothing failed.
pub fn run(extent: Extent) -> Result<bool> {
    let workspace = Workspace::read()?;
    let logs = workspace.target.join("ci");
    fs::create_dir_all(&logs).with_context(|| format!("create {}", logs.display()))?;
    let product = workspace.target.join("release/thalweg");
    let members: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
    let steps = steps(&members);
    let surroundings = Surroundings { workspace, logs, product };
    let (mut passed, mut failed) = (0, 0);
    for step in steps.iter().filter(|step| step.is_quick || extent == Extent::Everything) {
        print!("{:24} ", step.name);
        stdout().flush().context("print")?;
        let start = Instant::now();
        let outcome = step.run(&surroundings)?;
        let verdict = if outcome.failed == 0 { "ok" } else { "FAILED" };
        println!("{verdict:6} {:7.1} s  {}", start.elapsed().as_secs_f64(), outcome.note);
        outcome.details.iter().for_each(|line| println!("    {line}"));
        passed += outcome.passed;
        failed += outcome.failed;
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn steps(members: &[&str]) -> Vec<Step> {
    let quick = |name, work| Step { name, work, is_quick: true };
    let full = |name, work| Step { name, work, is_quick: false };
    let checked = |selection: &str| {
        let mut arguments = words(selection);
        for member in members {
            for check in ["overflow-checks", "debug-assertions"] {
                arguments.extend(["--config".to_owned(), format!("profile.release.package.{member}.{check}=true")]);
            }
        }
        arguments
    };
    vec![
        full("tools", Work::Tools),
        quick("fmt", Work::Cargo(words("fmt --all -- --check"))),
        quick(
            "clippy",
            Work::Cargo(words("clippy --release --locked --keep-going --workspace --all-targets -- -D warnings")),
        ),
        full("rustdoc", Work::Cargo(words("doc --release --locked --workspace --no-deps --document-private-items"))),
        quick(
            "tests",
            Work::Tests(checked(
                "test --release --locked --no-fail-fast --workspace --exclude thalweg --exclude trial",
            )),
        ),
        quick("tests of thalweg", Work::Tests(checked("test --release --locked --no-fail-fast -p thalweg --bins"))),
        full("previous release", Work::Previous),
        full("edge build", Work::Product(words("build --release --locked -p thalweg --no-default-features"))),
        full("release build", Work::Product(words("build --release --locked -p thalweg"))),
        quick("tidy", Work::Tidy),
        full("package", Work::Cargo(words("run --release --locked -p xtask -- deb --try"))),
        full("tests of trials", Work::Tests(words("test --release --locked --no-fail-fast -p trial"))),
        full("simulation", Work::Cargo(trial("simulate --seeds 400"))),
        full("crash states", Work::Cargo(trial("crash-states --scenarios 3"))),
        full("museum", Work::Cargo(trial("museum --first 8"))),
        full("kill points", Work::Cargo(trial("kill"))),
        full("errors of storage", Work::Cargo(trial("errno"))),
        full("hostile peers", Work::Cargo(trial("hostile"))),
        full("path attacks", Work::Cargo(trial("paths --rounds 2000"))),
        full("faults from outside", Work::Cargo(trial("rivals --trials 1 --tool thalweg --tool cp"))),
        full("bit flips", Work::Cargo(trial("flips --flips 600"))),
        full("networks", Work::Cargo(trial("network"))),
        full("end to end", Work::Tests(words("test --release --locked --no-fail-fast -p thalweg --test *"))),
    ]
}

fn trial(command: &str) -> Vec<String> {
    words(&format!("run --release --locked -p trial -- {command}"))
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

impl Step {
    fn run(&self, surroundings: &Surroundings) -> Result<Outcome> {
        match &self.work {
            Work::Tools => Ok(missing_tools()),
            Work::Tidy => Ok(Outcome::of_step(tidy::broken_rules(&surroundings.workspace))),
            Work::Cargo(arguments) => {
                let (is_success, log) = self.cargo(arguments, surroundings)?;
                Ok(Outcome::of_step(if is_success { Vec::new() } else { self.shown(&log, surroundings) }))
            }
            Work::Product(arguments) => {
                let (is_success, log) = self.cargo(arguments, surroundings)?;
                let mut outcome =
                    Outcome::of_step(if is_success { Vec::new() } else { self.shown(&log, surroundings) });
                if is_success {
                    let bytes = fs::metadata(&surroundings.product).context("look at the product")?.len();
                    outcome.note = format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
                }
                Ok(outcome)
            }
            Work::Previous => {
                let built = previous::build(&surroundings.workspace, |arguments| self.cargo(arguments, surroundings));
                Ok(match built {
                    Ok(note) => Outcome { note, ..Outcome::of_step(Vec::new()) },
                    Err(error) => Outcome::of_step(format!("{error:#}").lines().map(str::to_owned).collect()),
                })
            }
            Work::Tests(arguments) => {
                let (is_success, log) = self.cargo(arguments, surroundings)?;
                let mut outcome = Outcome::of_tests(is_success, &log);
                if outcome.failed > 0 {
                    outcome.details.extend(self.shown(&log, surroundings));
                }
                Ok(outcome)
            }
        }
    }

    /// Runs cargo with its output in this step's log, and without settings of the product inherited from the caller.
    fn cargo(&self, arguments: &[String], surroundings: &Surroundings) -> Result<(bool, String)> {
        let path = self.log(surroundings);
        let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("THALWEG_")) {
            command.env_remove(name);
        }
        command.args(arguments).current_dir(&surroundings.workspace.root);
        command.env("THALWEG_BIN", &surroundings.product);
        // What is tried against it is not left out: a build that failed has failed its own step.
        let previous = previous::program(&surroundings.workspace);
        command.envs(previous.is_file().then_some(("THALWEG_PREVIOUS_BIN", previous)));
        command.env("CARGO_TERM_COLOR", "never").env("RUSTDOCFLAGS", "-D warnings");
        command.stdin(Stdio::null()).stdout(log.try_clone().context("share the log")?).stderr(log);
        let status = command.status().context("run cargo")?;
        let log = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok((status.success(), String::from_utf8_lossy(&log).into_owned()))
    }

    fn log(&self, surroundings: &Surroundings) -> PathBuf {
        surroundings.logs.join(format!("{}.log", self.name.replace(' ', "-")))
    }

    /// The end of a log, and where the whole of it is.
    fn shown(&self, log: &str, surroundings: &Surroundings) -> Vec<String> {
        let lines: Vec<&str> = log.lines().collect();
        let skipped = lines.len().saturating_sub(LOG_LINES_SHOWN);
        let mut shown = vec![format!("{} ({skipped} lines before these)", self.log(surroundings).display())];
        shown.extend(lines[skipped..].iter().map(|&line| line.to_owned()));
        shown
    }
}

impl Outcome {
    fn of_step(details: Vec<String>) -> Outcome {
        let failed = usize::from(!details.is_empty());
        Outcome { passed: 1 - failed, failed, note: String::new(), details }
    }

    /// Sums what the test programs reported. A run that failed elsewhere, or ran no test at all, is one failure.
    fn of_tests(is_success: bool, log: &str) -> Outcome {
        let results = log.lines().filter_map(|line| line.split_once("test result: ")).map(|(_, result)| result);
        let count = |label: &str| -> usize { results.clone().filter_map(|result| number_before(result, label)).sum() };
        let (passed, mut failed, ignored) = (count(" passed"), count(" failed"), count(" ignored"));
        let mut note = format!("{passed} tests");
        if ignored > 0 {
            note += &format!(", {ignored} ignored");
        }
        if failed == 0 && (!is_success || passed == 0) {
            failed = 1;
            note += if is_success { ", none ran" } else { ", cargo failed" };
        }
        let details = log.lines().filter(|line| line.starts_with("test ") && line.ends_with("FAILED"));
        Outcome { passed, failed, note, details: details.map(str::to_owned).collect() }
    }
}

fn number_before(text: &str, label: &str) -> Option<usize> {
    let before = &text[..text.find(label)?];
    before.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

fn missing_tools() -> Outcome {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&search).collect();
    let is_missing = |tool: &&&str| !folders.iter().any(|folder| folder.join(tool).is_file());
    let mut missing: Vec<String> = TOOLS.iter().filter(is_missing).map(|tool| format!("no {tool} in PATH")).collect();
    if fs::metadata("/proc/self").map_or(1, |metadata| metadata.uid()) != 0 {
        missing.push("not root: network namespaces cannot be made".to_owned());
    }
    if !missing.is_empty() {
        missing.push("hint: .ci/run as root installs what is missing; ci --quick needs none of it".to_owned());
    }
    Outcome::of_step(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "     Running unittests\ntest a ... ok\ntest b ... FAILED\n\
        test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
        noise test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";

    #[test]
    fn counts_are_summed_over_test_programs() {
        let outcome = Outcome::of_tests(false, LOG);
        assert_eq!((outcome.passed, outcome.failed), (15, 1));
        assert_eq!(
            (outcome.note.as_str(), outcome.details.as_slice()),
            ("15 tests, 2 ignored", &["test b ... FAILED".to_owned()][..])
        );
    }

    #[test]
    fn a_run_that_failed_elsewhere_or_ran_nothing_is_a_failure() {
        let only_passed = "test result: ok. 3 passed; 0 failed; 0 ignored;";
        assert_eq!(Outcome::of_tests(true, only_passed).failed, 0);
        assert_eq!(Outcome::of_tests(false, only_passed).failed, 1);
        assert_eq!(Outcome::of_tests(true, "test result: ok. 0 passed; 0 failed; 0 ignored;").failed, 1);
        assert_eq!(Outcome::of_tests(false, "error: could not compile").failed, 1);
    }

    #[test]
    fn the_product_is_the_last_build_before_the_end_to_end_tests() {
        let steps = steps(&["model"]);
        let names: Vec<_> = steps.iter().map(|step| step.name).collect();
        let position = |name| names.iter().position(|found| *found == name);
        assert!(position("tests") < position("edge build"));
        assert!(position("previous release") < position("edge build"));
        assert!(position("edge build") < position("release build"));
        assert!(position("release build") < position("end to end"));
        assert_eq!(names.last(), Some(&"end to end"));
    }

    #[test]
    fn own_crates_are_tested_with_checks_and_the_product_without() {
        let steps = steps(&["model"]);
        let is_checked = |step: &&Step| match &step.work {
            Work::Tests(arguments) | Work::Product(arguments) | Work::Cargo(arguments) => {
                arguments.contains(&"profile.release.package.model.overflow-checks=true".to_owned())
            }
            Work::Tools | Work::Tidy | Work::Previous => false,
        };
        let names: Vec<_> = steps.iter().filter(is_checked).map(|step| step.name).collect();
        assert_eq!(names, ["tests", "tests of thalweg"]);
    }
}
