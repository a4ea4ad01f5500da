//! What a trial found, and how trials are counted (`docs/reliability.md`, "How it is counted").
//!
//! A trial is one fault, put in at one point, under one seed. It counts only when the fault fired; one that did not is
//! inert and reported apart. Invariants: nothing is summed across classes; a class names a fault of the table only where
//! that fault was put in; executions of a fuzzer are no trials.
//!
//! Not here: how faults are made, how the outcome is judged, and of which commit and program it is (`origin`).

use crate::origin::Origin;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Violations kept with their text; the rest is counted.
const VIOLATIONS_KEPT_MAX: usize = 32;
/// Figures that say what became of one mutant begin so.
pub const MUTANT_PREFIX: &str = "mutant ";

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The fault fired, every invariant held and the outcome was the expected one.
    Survived,
    /// What was broken.
    Violated(String),
    /// The fault did not fire.
    Inert,
}

/// The trials of one command, by class.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Tally {
    /// The command that makes these figures again.
    pub command: String,
    pub seconds: f64,
    pub classes: BTreeMap<String, Class>,
    /// Other figures worth telling, by name: bytes sent twice, recovery time.
    #[serde(default)]
    pub figures: BTreeMap<String, String>,
    /// Inputs that a fuzzer ran, by target.
    #[serde(default)]
    pub executions: BTreeMap<String, Executions>,
    #[serde(default)]
    pub origin: Origin,
}

/// What a fuzzer did with one target.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Executions {
    pub runs: u64,
    pub seconds: u64,
    /// Edges and values that libFuzzer saw, and inputs kept because they reached new ones; none without it.
    pub coverage: Option<u64>,
    pub new_inputs: Option<u64>,
    /// One line that runs the input again that broke a promise.
    pub violation: Option<String>,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Class {
    /// The faults of the table that this class covers, such as F087.
    pub faults: Vec<String>,
    pub survived: u64,
    pub violated: u64,
    pub inert: u64,
    /// The command was to make this fault: without it fired the run is no success.
    #[serde(default)]
    pub is_planned: bool,
    /// The outcomes that the trial accepts, and how trials that survived ended, where it tells them apart.
    #[serde(default)]
    pub allowed: BTreeSet<String>,
    #[serde(default)]
    pub ended: BTreeMap<String, u64>,
    /// One line that replays each violation that was kept, and what was broken.
    #[serde(default)]
    pub violations: Vec<String>,
}

impl Tally {
    pub fn new(command: &str) -> Tally {
        Tally { command: command.to_owned(), ..Tally::default() }
    }

    /// Counts one trial. `replay` is the command line that runs it again, alone.
    pub fn count(&mut self, class: &str, faults: &[&str], outcome: &Outcome, replay: &str) {
        let class = self.classes.entry(class.to_owned()).or_default();
        for fault in faults {
            if !class.faults.iter().any(|known| known == fault) {
                class.faults.push((*fault).to_owned());
            }
        }
        match outcome {
            Outcome::Survived => class.survived += 1,
            Outcome::Inert => class.inert += 1,
            Outcome::Violated(why) => {
                class.violated += 1;
                if class.violations.len() < VIOLATIONS_KEPT_MAX {
                    class.violations.push(format!("{why}; again: {replay}"));
                }
            }
        }
    }

    /// Says that the command is to make this fault.
    pub fn plan(&mut self, class: &str, faults: &[&str]) {
        let class = self.classes.entry(class.to_owned()).or_default();
        class.is_planned = true;
        class.faults = faults.iter().map(|fault| (*fault).to_owned()).collect();
    }

    /// Says that every class so far was to be made.
    pub fn plan_all(&mut self) {
        self.classes.values_mut().for_each(|class| class.is_planned = true);
    }

    /// Says which outcomes a class accepts.
    pub fn allow(&mut self, class: &str, words: &[&str]) {
        let class = self.classes.entry(class.to_owned()).or_default();
        class.allowed.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// Counts how a trial that survived ended.
    pub fn ended(&mut self, class: &str, word: &str) {
        *self.classes.entry(class.to_owned()).or_default().ended.entry(word.to_owned()).or_default() += 1;
    }

    /// Classes that were planned and of which nothing fired.
    pub fn unfired(&self) -> Vec<&str> {
        let is_missing = |class: &Class| class.is_planned && class.survived + class.violated == 0;
        self.classes.iter().filter(|(_, class)| is_missing(class)).map(|(name, _)| &name[..]).collect()
    }

    /// Something was tried, everything that was planned fired, and nothing was broken.
    pub fn is_success(&self) -> bool {
        let has_run = self.fired() > 0 || self.executions.values().any(|done| done.runs > 0);
        has_run && self.violated() == 0 && self.unfired().is_empty()
    }

    pub fn merge(&mut self, other: Tally) {
        for (name, theirs) in other.classes {
            let ours = self.classes.entry(name).or_default();
            ours.survived += theirs.survived;
            ours.violated += theirs.violated;
            ours.inert += theirs.inert;
            ours.is_planned |= theirs.is_planned;
            ours.allowed.extend(theirs.allowed);
            for (word, count) in theirs.ended {
                *ours.ended.entry(word).or_default() += count;
            }
            ours.violations.extend(theirs.violations);
            ours.violations.truncate(VIOLATIONS_KEPT_MAX);
            for fault in theirs.faults {
                if !ours.faults.contains(&fault) {
                    ours.faults.push(fault);
                }
            }
        }
        self.figures.extend(other.figures);
        self.executions.extend(other.executions);
    }

    pub fn violated(&self) -> u64 {
        let of_fuzzer = self.executions.values().filter(|done| done.violation.is_some()).count() as u64;
        self.classes.values().map(|class| class.violated).sum::<u64>() + of_fuzzer
    }

    pub fn fired(&self) -> u64 {
        self.classes.values().map(|class| class.survived + class.violated).sum()
    }

    /// Writes the tally as `DIR/NAME.json`.
    pub fn write(&self, dir: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let path = dir.join(format!("{name}.json"));
        let text = serde_json::to_string_pretty(self).context("encode a tally")?;
        std::fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))
    }

    /// What a person reads: a line for each class, then the violations.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, class) in &self.classes {
            text.push_str(&format!(
                "{name} ({}): {} fired, {} survived, {} violated, {} inert\n",
                class.faults.join(" "),
                class.survived + class.violated,
                class.survived,
                class.violated,
                class.inert
            ));
        }
        for (name, done) in &self.executions {
            let broken = u64::from(done.violation.is_some());
            text.push_str(&format!("fuzz {name}: {} executions in {} s, {broken} violated\n", done.runs, done.seconds));
        }
        for (name, figure) in &self.figures {
            text.push_str(&format!("{name}: {figure}\n"));
        }
        for (name, class) in &self.classes {
            for violation in &class.violations {
                text.push_str(&format!("VIOLATED {name}: {violation}\n"));
            }
        }
        for (name, done) in &self.executions {
            if let Some(again) = &done.violation {
                text.push_str(&format!("VIOLATED fuzz {name}: an input breaks a promise; again: {again}\n"));
            }
        }
        for name in self.unfired() {
            text.push_str(&format!("NOT FIRED {name}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inert_trials_are_counted_apart_and_violations_say_how_to_see_them_again() {
        let mut tally = Tally::new("trial x");
        tally.count("kill points", &["F087"], &Outcome::Survived, "");
        tally.count("kill points", &["F087"], &Outcome::Inert, "");
        tally.count("kill points", &["F088"], &Outcome::Violated("I1".into()), "trial x --seed 7");
        let class = &tally.classes["kill points"];
        assert_eq!((class.survived, class.violated, class.inert), (1, 1, 1));
        assert_eq!(class.faults, ["F087", "F088"]);
        assert!(tally.text().contains("I1; again: trial x --seed 7"));
        assert_eq!((tally.fired(), tally.violated()), (2, 1));
    }

    #[test]
    fn a_planned_class_that_did_not_fire_is_no_success_whatever_else_fired() {
        let mut tally = Tally::new("trial x");
        tally.plan("kill points", &["F087"]);
        tally.plan("errors", &["F072"]);
        tally.count("kill points", &["F087"], &Outcome::Survived, "");
        tally.count("errors", &["F072"], &Outcome::Inert, "");
        assert_eq!(tally.unfired(), ["errors"]);
        assert!(!tally.is_success() && tally.text().contains("NOT FIRED errors"));
        tally.count("errors", &["F072"], &Outcome::Survived, "");
        assert!(tally.is_success());
        assert!(!Tally::new("trial y").is_success(), "nothing was tried");
    }
}
