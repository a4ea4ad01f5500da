//! The test programs of the build: which there are, and how they run.
//!
//! They are run without cargo, several at a time and each with more threads than processors where its tests mostly wait;
//! those that judge by times come alone. Each has a log of its own and its seconds are kept. Few tests that failed beside
//! others are run once more, one at a time: one that then passes counts as passed, and its name and log are shown.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::step::{Outcome, Selection, Step, dashed, end_of};
use super::surroundings::{Program, Surroundings};
use crate::workspace::Workspace;

/// More failures than these are not the neighbours' doing.
const AGAIN_AT_MOST: usize = 4;
/// Tests that take less are not named in the report.
const SLOW_TEST_SECONDS_MIN: f64 = 5.0;

/// The programs that cargo says it made.
pub fn found(artifacts: &str, workspace: &Workspace) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in artifacts.lines().filter(|line| line.starts_with('{')) {
        let artifact: Value = serde_json::from_str(line).context("parse what cargo made")?;
        let (Some(path), Some(true)) = (artifact["executable"].as_str(), artifact["profile"]["test"].as_bool()) else {
            continue;
        };
        let manifest = PathBuf::from(artifact["manifest_path"].as_str().context("a manifest")?);
        let folder = manifest.parent().context("a folder")?.to_owned();
        let package = workspace.packages.iter().find(|package| folder == workspace.root.join(&package.folder));
        let package = &package.with_context(|| format!("{} is of no package", folder.display()))?.name;
        let target = artifact["target"]["name"].as_str().context("a target")?;
        let name = match artifact["target"]["kind"][0].as_str() {
            Some("lib") => package.clone(),
            Some("bin") if target == package => format!("{package} (program)"),
            _ => format!("{package}/{target}"),
        };
        programs.push(Program { name, folder, path: path.into() });
    }
    Ok(programs)
}

/// Runs what is selected, behind the words of `ahead`, and sums what the programs say.
pub fn run(selection: &Selection, ahead: &[&str], step: &Step, surroundings: &Surroundings) -> Result<Outcome> {
    let known = surroundings.programs.lock().expect("no step panics").clone();
    let mut chosen: Vec<_> = known.into_iter().filter(|program| (selection.is_meant)(&program.name)).collect();
    // Taken from the end: programs with most in them tend to be the largest files, and shall not come last.
    chosen.sort_by_key(|program| fs::metadata(&program.path).map_or(0, |file| file.len()));
    let (left, sum) = (Mutex::new(chosen), Mutex::new(Outcome::default()));
    let again: Mutex<Vec<(Program, String)>> = Mutex::default();
    let worker = || -> Result<()> {
        loop {
            let Some(program) = left.lock().expect("no worker panics").pop() else { return Ok(()) };
            let outcome = one(&program, selection, None, ahead, step, surroundings)?;
            let names = outcome
                .details
                .iter()
                .filter_map(|line| Some(line.strip_prefix("test ")?.split_once(" ... FAILED")?.0));
            let names: BTreeSet<_> = names.map(str::to_owned).collect();
            if names.len() == outcome.failed {
                again.lock().expect("no worker panics").extend(names.into_iter().map(|name| (program.clone(), name)));
            }
            let mut sum = sum.lock().expect("no worker panics");
            sum.passed += outcome.passed;
            sum.failed += outcome.failed;
            sum.details.extend(outcome.details);
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..selection.programs_at_a_time).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a worker does not panic"))
    })?;
    let mut sum = sum.into_inner().expect("no worker panics");
    let again = again.into_inner().expect("no worker panics");
    let mut only_alone = String::new();
    if again.len() == sum.failed && again.len() <= AGAIN_AT_MOST {
        for (program, name) in again {
            if one(&program, selection, Some(&name), ahead, step, surroundings)?.failed == 0 {
                sum.passed += 1;
                sum.failed -= 1;
                only_alone += &format!(", passed only when run again alone: {name}");
            }
        }
    }
    sum.note = format!("{} tests{only_alone}", sum.passed);
    if sum.passed == 0 && sum.failed == 0 {
        sum = Outcome { note: "no test ran".to_owned(), failed: 1, ..sum };
    }
    Ok(sum)
}

/// Runs the tests of one program that are selected, or the test of that name alone.
fn one(
    program: &Program,
    of: &Selection,
    alone: Option<&str>,
    ahead: &[&str],
    step: &Step,
    at: &Surroundings,
) -> Result<Outcome> {
    let name = format!("{}{}: {}", step.name, if alone.is_some() { " again" } else { "" }, program.name);
    let path = at.logs.join(format!("{}.log", dashed(&name.replace(':', ""))));
    let log = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    let mut words = ahead.iter().map(Into::into).chain([program.path.clone().into_os_string()]);
    let mut command = Command::new(words.next().context("a program")?);
    command.args(words).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    match alone {
        Some(name) => _ = command.args(["--exact", name]),
        None => {
            command.arg(format!("--test-threads={}", of.threads));
            for filter in of.filters {
                command.args(of.is_without.then_some("--skip")).arg(filter);
            }
        }
    }
    // The seconds of each test, which the test programs of this toolchain tell as an unstable option only.
    command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
    at.prepare(&mut command);
    if !ahead.is_empty() {
        command.env_remove("CI");
    }
    let start = Instant::now();
    command.stdout(log.try_clone().context("share the log")?).stderr(log);
    let is_success = step.is_success(&mut command).with_context(|| format!("run {}", program.path.display()))?;
    let log = String::from_utf8_lossy(&fs::read(&path).context("read the log")?).into_owned();
    let mut ran = at.ran.lock().expect("no worker panics");
    ran.push((name.clone(), start.elapsed().as_secs_f64()));
    ran.extend(slow_tests(&log).map(|(test, seconds)| (format!("{name}: {test}"), seconds)));
    drop(ran);
    let mut outcome = of_tests(is_success, &log);
    if outcome.failed > 0 {
        outcome.details.insert(0, format!("{name}:"));
        outcome.details.extend(end_of(&log, &path.display().to_string()));
    }
    Ok(outcome)
}

/// What a test program reported. One that failed elsewhere is one failure.
fn of_tests(is_success: bool, log: &str) -> Outcome {
    let results = log.lines().filter_map(|line| line.split_once("test result: ")).map(|(_, result)| result);
    let count = |label: &str| -> usize { results.clone().filter_map(|result| number_before(result, label)).sum() };
    let (passed, mut failed) = (count(" passed"), count(" failed"));
    if failed == 0 && (!is_success || count(" ignored") > 0) {
        failed = 1;
    }
    let details = log.lines().filter(|line| line.starts_with("test ") && line.contains(" ... FAILED"));
    Outcome { passed, failed, note: String::new(), details: details.map(str::to_owned).collect() }
}

/// Tests that took long, as `test NAME ... ok <12.345s>`.
fn slow_tests(log: &str) -> impl Iterator<Item = (&str, f64)> {
    log.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
        let seconds = rest.split_once('<')?.1.strip_suffix("s>")?.parse().ok()?;
        (seconds >= SLOW_TEST_SECONDS_MIN).then_some((name, seconds))
    })
}

fn number_before(text: &str, label: &str) -> Option<usize> {
    let before = &text[..text.find(label)?];
    before.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    const LOG: &str = "test a ... ok <7.250s>\ntest b ... FAILED <0.001s>\n\
        test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
        noise test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";

    #[test]
    fn counts_are_summed_and_failures_named() {
        let outcome = of_tests(false, LOG);
        assert_eq!((outcome.passed, outcome.failed), (15, 1));
        assert_eq!(outcome.details, ["test b ... FAILED <0.001s>"]);
        assert_eq!(slow_tests(LOG).collect::<Vec<_>>(), [("a", 7.25)]);
    }

    #[test]
    fn a_program_that_failed_elsewhere_or_ignored_a_test_is_a_failure() {
        let only_passed = "test result: ok. 3 passed; 0 failed; 0 ignored;";
        assert_eq!(of_tests(true, only_passed).failed, 0);
        assert_eq!(of_tests(false, only_passed).failed, 1);
        assert_eq!(of_tests(false, "killed").failed, 1);
        assert_eq!(of_tests(true, "test result: ok. 3 passed; 0 failed; 1 ignored;").failed, 1);
    }

    #[test]
    fn programs_with_tests_are_found_by_package_and_target() {
        let package = Package { name: "store".into(), folder: "crates/store".into(), ..Package::default() };
        let workspace = Workspace { root: "/r".into(), packages: vec![package], ..Workspace::default() };
        let artifact = |kind: &str, name: &str, is_test: bool| {
            serde_json::json!({ "manifest_path": "/r/crates/store/Cargo.toml", "executable": "/t/x",
                "target": { "name": name, "kind": [kind] }, "profile": { "test": is_test } })
            .to_string()
        };
        let text = [artifact("lib", "store", true), artifact("test", "appeared", true), artifact("bin", "x", false)];
        let names: Vec<_> = found(&text.join("\n"), &workspace).unwrap().into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["store", "store/appeared"]);
    }
}
