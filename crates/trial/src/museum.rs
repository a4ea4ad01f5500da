//! The museum of deliberate bugs: each is switched on by name in a build that has them, and something has to notice.
//!
//! Most were there before the trials ran against them; others came with a hole that was mended, and for some that nothing
//! caught a test was written afterwards. A mutant that nothing catches is a hole in the trials, and is printed as one.

mod list;
mod suites;

use crate::record::{MUTANT_PREFIX, Outcome, Tally};
use anyhow::{Context, Result, bail};
use clap::Args;
pub use list::{BY_HOSTS, HOSTS, MUTANTS};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;
use suites::{Suites, output};

/// Who has to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// `trial simulate`. This seed is known to notice it; where it does not any more, another is looked for.
    Simulation(u64),
    /// Another command of this program.
    Trial(&'static [&'static str]),
    /// Tests of the named package whose names hold the second word.
    Test(&'static str, &'static str),
}
use Layer::{Simulation, Test, Trial};

/// Of what noticed a mutant, as it is recorded.
const EVIDENCE_CHARACTERS: usize = 160;

impl Layer {
    fn name(self) -> String {
        match self {
            Simulation(_) => "simulation".to_owned(),
            Trial(words) => format!("`trial {}`", words.join(" ")),
            Test(package, filter) => format!("tests of {package} {filter}").trim_end().to_owned(),
        }
    }
}

#[derive(Args)]
pub struct Arguments {
    /// Only these
    names: Vec<String>,
    /// All that simulation catches, and no others
    #[arg(long, conflicts_with = "names")]
    simulation: bool,
    /// Seeds that simulation may take to notice one
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// Test programs that are there, as `cargo test --no-run --features model/mutants --message-format json` lists them: they run
    /// as they are, instead of cargo
    #[arg(long, value_name = "FILE")]
    programs: Option<PathBuf>,
}

/// Under which name a tally records what became of a mutant.
pub fn figure(name: &str) -> String {
    format!("{MUTANT_PREFIX}{name}")
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let began = Instant::now();
    let mut tally = Tally::new("trial museum");
    let unknown = arguments.names.iter().find(|name| MUTANTS.iter().all(|(known, ..)| known != name));
    if let Some(name) = unknown {
        bail!("no mutant is called {name}; `trial museum --help` and docs/reliability.md list them");
    }
    let is_wanted = |(name, _, layer): &&(&str, &str, Layer)| {
        let is_named = arguments.names.is_empty() || arguments.names.iter().any(|wanted| wanted == name);
        is_named && (!arguments.simulation || matches!(layer, Simulation(_)))
    };
    let chosen: Vec<_> = MUTANTS.iter().filter(is_wanted).collect();
    let search = Search { seeds: arguments.seeds, suites: Suites::new(arguments.programs.as_deref())? };
    search.check_healthy(&chosen)?;
    let mut caught = 0;
    for (name, bug, layer) in chosen.iter().copied() {
        let (mut said, mut is_caught) = (Vec::new(), true);
        for layer in layers_of(name, *layer) {
            let evidence = search.catch(name, layer)?;
            is_caught &= evidence.is_some();
            said.push(match evidence {
                Some(evidence) => format!("caught by {}: {evidence}", layer.name()),
                None => format!("MISSED by {}", layer.name()),
            });
        }
        let said = said.join("; ");
        caught += usize::from(is_caught);
        println!("{name} ({bug}): {said}");
        tally.figures.insert(figure(name), said);
        let outcome = match is_caught {
            true => Outcome::Survived,
            false => Outcome::Violated(format!("something that has to notice {name} does not")),
        };
        tally.count("mutants caught", &[], &outcome, &format!("cargo run --release -p trial -- museum {name}"));
    }
    tally.figures.insert("mutants caught".into(), format!("{caught} of {}", chosen.len()));
    tally.seconds = began.elapsed().as_secs_f64();
    Ok(tally)
}

/// Everything that has to notice a mutant.
fn layers_of(name: &str, layer: Layer) -> Vec<Layer> {
    std::iter::once(layer).chain(BY_HOSTS.contains(&name).then_some(HOSTS)).collect()
}

/// How far something that notices is looked for, and in which builds of the tests.
struct Search {
    seeds: u64,
    suites: Suites,
}

impl Search {
    /// A suite that fails anyway catches nothing, and neither does one that runs nothing. Each seed of the simulation is held
    /// against a run without the mutant as it is tried.
    fn check_healthy(&self, chosen: &[&(&str, &str, Layer)]) -> Result<()> {
        let mut layers: Vec<Layer> = Vec::new();
        for layer in chosen.iter().flat_map(|(name, _, layer)| layers_of(name, *layer)) {
            if !matches!(layer, Simulation(_)) && !layers.contains(&layer) {
                layers.push(layer);
            }
        }
        for layer in layers {
            if let Some(evidence) = self.catch("none", layer)? {
                bail!("without any mutant, {} says: {evidence}", layer.name());
            }
        }
        Ok(())
    }

    /// What noticed the mutant; none when nothing did.
    fn catch(&self, name: &str, layer: Layer) -> Result<Option<String>> {
        match layer {
            Simulation(known) => by_simulation(name, known, self.seeds),
            Trial(words) => by_trial(name, words),
            Test(package, filter) => self.suites.failing_test(name, package, filter),
        }
    }
}

/// A seed that is violated under the mutant and is not without it: the one that is known, or the first. Mode `liveness` looks
/// for all that `safety` does.
fn by_simulation(name: &str, known: u64, seeds: u64) -> Result<Option<String>> {
    if let Some(evidence) = by_seed(name, known)? {
        return Ok(Some(evidence));
    }
    let mut first = 1;
    while first <= seeds {
        let left = (seeds + 1 - first).to_string();
        let words = ["simulate", "--stop", "--mode", "liveness", "--first", &first.to_string(), "--seeds", &left];
        let Some(evidence) = by_trial(name, &words)? else { break };
        let seed = seed_of(&evidence).with_context(|| format!("{evidence:?} names no seed"))?;
        if by_seed(name, seed)?.is_some() {
            return Ok(Some(format!("{evidence} (seed {known} does not notice it any more)")));
        }
        first = seed + 1;
    }
    Ok(None)
}

/// What one seed notices under the mutant and does not without it.
fn by_seed(name: &str, seed: u64) -> Result<Option<String>> {
    let alone = ["simulate", "--mode", "liveness", "--first", &seed.to_string(), "--seeds", "1"];
    let Some(evidence) = by_trial(name, &alone)? else { return Ok(None) };
    Ok(by_trial("none", &alone)?.is_none().then_some(evidence))
}

fn seed_of(evidence: &str) -> Option<u64> {
    let (_, rest) = evidence.split_once("seed ")?;
    rest.split(':').next()?.parse().ok()
}

/// This program under a mutant: what it says is violated.
fn by_trial(name: &str, words: &[&str]) -> Result<Option<String>> {
    let program = std::env::current_exe().context("find this program")?;
    let output = output(Command::new(program).args(words).env("THALWEG_MUTANT", name))?;
    judged(&output).map_err(|why| anyhow::anyhow!("`trial {}` under {name} was no trial: {why}", words.join(" ")))
}

/// What a run of this program found; none: nothing.
///
/// # Errors
/// Says how it ended where it was no trial at all: a wrong option, no place to work in, a deadline, no fault that fired.
pub fn judged(output: &Output) -> Result<Option<String>, String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let violation = text.lines().find_map(|line| line.strip_prefix("VIOLATED "));
    match (output.status.code(), violation) {
        (Some(0), _) => Ok(None),
        // A seed of which no fault came in time is no trial, and no violation.
        (Some(1), None) if text.contains(" 0 violated, ") => Ok(None),
        (Some(1), Some(line)) => {
            Ok(Some(line.split("; again").next().unwrap_or(line).chars().take(EVIDENCE_CHARACTERS).collect()))
        }
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, said.lines().last().unwrap_or("it said nothing")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_no_trial_is_no_catch() {
        let ended = |script: &str| judged(&Command::new("sh").args(["-c", script]).output().unwrap());
        assert_eq!(ended("echo fine"), Ok(None));
        assert_eq!(ended("echo 'VIOLATED a: b; again: c'; exit 1"), Ok(Some("a: b".to_owned())));
        assert!(ended("exit 1").is_err());
        assert_eq!(ended("echo 'a (F001): 0 fired, 0 survived, 0 violated, 1 inert'; exit 1"), Ok(None));
        assert_eq!(seed_of("simulated kill: seed 12: I3: object"), Some(12));
        assert!(ended("echo 'trial: no tmpfs' >&2; exit 2").unwrap_err().contains("no tmpfs"));
        assert!(ended("exit 124").is_err());
    }

    /// Names in the code and names in the list are the same.
    #[test]
    fn every_switch_in_the_code_is_in_the_list_once() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut switches = std::collections::BTreeSet::new();
        for name in [
            "ledger", "model", "mover", "store", "wire", "net", "transfer", "daemon", "ssh", "cli", "plan", "queue",
            "cluster", "etcd", "foreign", "hub", "api", "object", "dav",
        ] {
            gather(&crates.join(name).join("src"), &mut switches);
        }
        let listed: std::collections::BTreeSet<_> = MUTANTS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(listed.len(), MUTANTS.len(), "a mutant is listed twice");
        assert_eq!(switches, listed);
        assert!(MUTANTS.len() >= 40);
        assert!(BY_HOSTS.iter().all(|name| listed.contains(*name)));
    }

    fn gather(dir: &std::path::Path, switches: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                gather(&path, switches);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let found = text.split("is_on(\"").skip(1).filter_map(|rest| rest.split('"').next());
                switches.extend(found.map(str::to_owned));
            }
        }
    }
}
