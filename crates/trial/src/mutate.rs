//! Machine-made mutants of commit and publish: one statement dropped, one condition turned, one error ignored.
//!
//! Each is made in a copy of the sources, built, and run against the simulation. Some mutants change nothing that can be
//! seen (a clock, a path in a message); those that nothing notices are therefore listed to be read, not counted as broken.
//! The sources as they are have to pass first, and only a violation is a catch.

use crate::museum;
use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where the publish sequence is.
const FILES: [&str; 4] = [
    "crates/mover/src/receiver/commit.rs",
    "crates/store/src/posix/sink.rs",
    "crates/store/src/posix/lane.rs",
    "crates/store/src/posix/large.rs",
];
/// Lines that begin so are no statements, or cannot be dropped.
const KEPT: [&str; 12] =
    ["let ", "use ", "return", "}", "//", "#", "pub ", "const ", "static ", "mod ", "match ", "type "];

const CLASS: &str = "machine-made mutants";

#[derive(Args)]
pub struct Arguments {
    /// How many of the possible mutants
    #[arg(long, default_value_t = 10)]
    sample: usize,
    /// Which sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds that simulation may take to notice one, in each mode
    #[arg(long, default_value_t = 1500)]
    seeds: u64,
    /// Folder for the copy of the sources and its build; kept, so that the next run builds less
    #[arg(long, default_value = "target/mutate")]
    work_dir: PathBuf,
}

struct Mutant {
    file: &'static str,
    line: usize,
    change: String,
    text: String,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let began = Instant::now();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("find the sources")?;
    let mut tally = Tally::new(&format!("trial mutate --sample {} --seed {}", arguments.sample, arguments.seed));
    let copy = root.join(&arguments.work_dir).join("sources");
    std::fs::create_dir_all(&copy).with_context(|| format!("make {}", copy.display()))?;
    for name in ["Cargo.toml", "Cargo.lock", "crates"] {
        let status = Command::new("cp").arg("-a").arg(root.join(name)).arg(&copy).status().context("run cp")?;
        if !status.success() {
            bail!("copying {name} to {} failed", copy.display());
        }
    }
    let baseline = judge(&copy, arguments)?;
    if baseline != Verdict::Missed {
        bail!("the sources as they are do not pass: {baseline:?}");
    }
    let mut all = Vec::new();
    for file in FILES {
        all.extend(mutants(file, &std::fs::read_to_string(root.join(file))?));
    }
    let possible = all.len();
    for mutant in sampled(all, arguments.sample, arguments.seed) {
        let path = copy.join(mutant.file);
        let original = std::fs::read_to_string(root.join(mutant.file))?;
        std::fs::write(&path, &mutant.text)?;
        let verdict = judge(&copy, arguments);
        std::fs::write(&path, original)?;
        let name = format!("{}:{}: {}", mutant.file, mutant.line, mutant.change);
        let said = match verdict? {
            Verdict::Caught(evidence) => {
                tally.count(CLASS, &[], &Outcome::Survived, "");
                format!("caught: {evidence}")
            }
            Verdict::Missed => {
                tally.count(CLASS, &[], &Outcome::Inert, "");
                "missed, to be read".to_owned()
            }
            Verdict::NotJudged(why) => format!("not judged: {why}"),
        };
        println!("{name}: {said}");
        tally.figures.insert(format!("machine-made mutant {name}"), said);
    }
    tally.figures.insert("machine-made mutants that could be made".into(), possible.to_string());
    tally.seconds = began.elapsed().as_secs_f64();
    Ok(tally)
}

#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Caught(String),
    Missed,
    /// It does not build, or the simulation ended by something else than a violation.
    NotJudged(String),
}

fn judge(copy: &Path, arguments: &Arguments) -> Result<Verdict> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let target = copy.with_file_name("build");
    let built = Command::new(&cargo)
        .args(["build", "--release", "--locked", "--quiet", "-p", "trial"])
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .context("run cargo")?;
    if !built.status.success() {
        return Ok(Verdict::NotJudged("it does not build".to_owned()));
    }
    let seeds = arguments.seeds.to_string();
    let ran = Command::new("timeout")
        .arg("600")
        .arg(target.join("release/trial"))
        .args(["simulate", "--stop", "--seeds", &seeds])
        .output()
        .context("run the simulation")?;
    Ok(match museum::judged(&ran) {
        Ok(Some(evidence)) => Verdict::Caught(evidence),
        Ok(None) => Verdict::Missed,
        Err(why) => Verdict::NotJudged(why),
    })
}

/// Every mutant of a file; its tests and the switches of the museum are left alone.
fn mutants(file: &'static str, text: &str) -> Vec<Mutant> {
    let lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|line| line.starts_with("#[cfg(test)]")).unwrap_or(lines.len());
    let mut mutants = Vec::new();
    for (index, line) in lines[..end].iter().enumerate() {
        let trimmed = line.trim();
        if trimmed.contains("is_on(") || trimmed.contains("clock.") {
            continue;
        }
        for (change, replaced) in changes(trimmed) {
            let mut changed: Vec<&str> = lines.clone();
            changed[index] = &replaced;
            let text = changed.join("\n") + "\n";
            mutants.push(Mutant { file, line: index + 1, change, text });
        }
    }
    mutants
}

/// What may be done to one line: the change in words, and the line after it.
fn changes(line: &str) -> Vec<(String, String)> {
    let mut changes = Vec::new();
    let is_balanced = line.matches('(').count() == line.matches(')').count();
    let is_statement = line.ends_with(';') && is_balanced && !KEPT.iter().any(|kept| line.starts_with(kept));
    if is_statement && line.contains('(') {
        changes.push((format!("drop `{line}`"), String::new()));
    }
    if let Some(call) = line.strip_suffix("?;").filter(|_| is_statement) {
        changes.push((format!("ignore the error of `{line}`"), format!("let _ = {call};")));
    }
    if let Some(condition) = line.strip_prefix("if ").and_then(|rest| rest.strip_suffix(" {"))
        && !condition.contains("let ")
        && is_balanced
    {
        changes.push((format!("turn `{line}`"), format!("if !({condition}) {{")));
    }
    changes
}

/// Spread over the list, a different part of it for each seed.
fn sampled(mut all: Vec<Mutant>, count: usize, seed: u64) -> Vec<Mutant> {
    let step = (all.len() / count.max(1)).max(1);
    let first = seed as usize % step;
    let mut index = 0;
    all.retain(|_| {
        index += 1;
        (index - 1) % step == first
    });
    all.truncate(count);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_dropped_errors_ignored_and_conditions_turned() {
        let text = "fn f() {\n    let a = 1;\n    sync(a)?;\n    if a > 0 {\n        g(a);\n    }\n}\n#[cfg(test)]\nmod tests { g(1); }\n";
        let found: Vec<String> = mutants("f", text).into_iter().map(|mutant| mutant.change).collect();
        assert_eq!(found, ["drop `sync(a)?;`", "ignore the error of `sync(a)?;`", "turn `if a > 0 {`", "drop `g(a);`"]);
    }

    #[test]
    fn samples_are_spread_and_no_longer_than_asked_for() {
        let mutant = |line| Mutant { file: "f", line, change: String::new(), text: String::new() };
        let lines =
            |seed| -> Vec<usize> { sampled((0..30).map(mutant).collect(), 10, seed).iter().map(|m| m.line).collect() };
        assert_eq!(lines(0).len(), 10);
        assert!(lines(0).iter().all(|line| !lines(1).contains(line)));
    }
}
