//! The tests that have to notice a mutant: run by cargo, which compiles them first, or as the programs that a build left.
//!
//! Invariant: a filter that no test answers to is an error; what did not run noticed nothing. A test that does not end has noticed.
//! Not here: which tests notice which mutant (`museum`).

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// For the tests that a filter chooses, and what cargo compiles before them.
const LIMIT: Duration = Duration::from_secs(600);

/// Test programs with mutants in them.
pub struct Suites {
    /// None: cargo compiles and runs them.
    built: Option<Vec<Program>>,
    limit: Duration,
}

struct Program {
    package: String,
    path: PathBuf,
    /// Of the package: its tests run there.
    folder: PathBuf,
}

impl Suites {
    /// `list` is what cargo said when it made them, a JSON message in each line.
    pub fn new(list: Option<&Path>) -> Result<Suites> {
        let Some(list) = list else { return Ok(Suites { built: None, limit: LIMIT }) };
        let text = fs::read_to_string(list).with_context(|| format!("read {}", list.display()))?;
        let built: Vec<Program> = text.lines().filter_map(program).collect();
        if built.is_empty() {
            bail!(
                "{} names no test program; it is what `cargo test --no-run --message-format json` prints",
                list.display()
            );
        }
        Ok(Suites { built: Some(built), limit: LIMIT })
    }

    /// The first test that fails under the mutant, of those of the package whose names hold `filter`.
    pub fn failing_test(&self, mutant: &str, package: &str, filter: &str) -> Result<Option<String>> {
        let mut commands = self.commands(package);
        let (mut passed, mut failing) = (0, None);
        for command in &mut commands {
            // An input that fails under a mutant is no regression to keep.
            command.arg(filter).env("THALWEG_MUTANT", mutant).env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");
            let Some(output) = output_within(command, self.limit)? else {
                failing = failing.or(Some(format!("{filter}, which does not end")));
                continue;
            };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            passed += text.lines().filter(|line| line.starts_with("test ") && line.ends_with(" ... ok")).count();
            let failed =
                text.lines().find_map(|line| line.strip_suffix(" ... FAILED").filter(|l| l.starts_with("test ")));
            match (output.status.success(), failed) {
                (true, _) => {}
                (false, Some(test)) => failing = failing.or(Some(test.to_owned())),
                (false, None) => {
                    bail!("the tests of {package} did not run: {}", String::from_utf8_lossy(&output.stderr))
                }
            }
        }
        if passed == 0 && failing.is_none() {
            bail!("no test of {package} is called {filter}");
        }
        Ok(failing)
    }

    fn commands(&self, package: &str) -> Vec<Command> {
        let Some(built) = &self.built else {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.args([
                "test",
                "--release",
                "--locked",
                "--no-fail-fast",
                "--features",
                "model/mutants",
                "-p",
                package,
            ]);
            return vec![cargo];
        };
        let of_package = built.iter().filter(|program| program.package == package);
        let command = |program: &Program| {
            let mut command = Command::new(&program.path);
            command.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
            command
        };
        of_package.map(command).collect()
    }
}

/// What a command prints, and how it ends.
pub fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("run {}", command.get_program().to_string_lossy()))
}

/// The same; nothing where it does not end in time: then it is ended, with all that it started.
fn output_within(command: &mut Command, limit: Duration) -> Result<Option<Output>> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("run {name}"))?;
    let group = Pid::from_child(&child);
    let (ended, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let ender = scope.spawn(move || {
            let is_late = waits.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
            if is_late {
                let _ = kill_process_group(group, Signal::KILL);
            }
            is_late
        });
        let output = child.wait_with_output().with_context(|| format!("run {name}"));
        drop(ended);
        let is_late = ender.join().unwrap_or(false);
        output.map(|output| (!is_late).then_some(output))
    })
}

/// The test program that a message of cargo tells of.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let path = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    // `path+file:///r/crates/store#0.1.0`, or `...crates/cli#thalweg@0.1.0` where the folder has another name.
    let (_, id) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = id.split_once('@').map(|(name, _)| name).or(folder.file_name()?.to_str())?;
    Some(Program { package: package.to_owned(), path: path.into(), folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(folder: &str, id: &str, is_test: bool) -> String {
        serde_json::json!({ "manifest_path": format!("/r/crates/{folder}/Cargo.toml"), "executable": "/t/x",
            "package_id": format!("path+file:///r/crates/{folder}#{id}"), "profile": { "test": is_test } })
        .to_string()
    }

    #[test]
    fn test_programs_are_found_by_package() {
        let of = |line: String| program(&line).map(|program| program.package);
        assert_eq!(of(message("store", "0.1.0", true)).as_deref(), Some("store"));
        assert_eq!(of(message("cli", "thalweg@0.1.0", true)).as_deref(), Some("thalweg"));
        assert_eq!(of(message("store", "0.1.0", false)), None);
        assert_eq!(of("no message".to_owned()), None);
    }

    /// A filter that nobody answers to would make every mutant look uncaught, or a broken suite look healthy.
    #[test]
    fn a_suite_that_runs_nothing_is_an_error_and_not_a_miss() {
        let folder = tempfile::tempdir().unwrap();
        // The shell runs the script that the filter names.
        let program = Program { package: "store".to_owned(), path: "/bin/sh".into(), folder: folder.path().to_owned() };
        let mut suites = Suites { built: Some(vec![program]), limit: LIMIT };
        let write = |text: &str| fs::write(folder.path().join("x"), text).unwrap();
        let ran = |text: &str| {
            write(text);
            suites.failing_test("none", "store", "x")
        };
        assert_eq!(ran("echo 'test a::x ... ok'").unwrap(), None);
        assert_eq!(ran("echo 'test a::x ... FAILED'; exit 101").unwrap().as_deref(), Some("test a::x"));
        assert!(ran("true").unwrap_err().to_string().contains("no test of store is called x"));
        assert!(ran("echo gone >&2; exit 1").unwrap_err().to_string().contains("did not run: gone"));
        assert!(suites.failing_test("none", "mover", "x").is_err());
        suites.limit = Duration::from_millis(100);
        write("sleep 1000 & wait");
        assert_eq!(suites.failing_test("none", "store", "x").unwrap().as_deref(), Some("x, which does not end"));
    }
}
