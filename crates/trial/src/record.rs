//! What a trial found, and how trials are counted (`docs/reliability.md`, "How it is counted").
//!
//! A trial is one fault, put in at one point, under one seed. It counts only when the fault fired; one that did not is
//! inert and reported apart. Invariant: nothing is summed across classes.
//!
//! Not here: how faults are made, and how the outcome is judged.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
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
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct Class {
    /// The faults of the table that this class covers, such as F087.
    pub faults: Vec<String>,
    pub survived: u64,
    pub violated: u64,
    pub inert: u64,
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

    pub fn merge(&mut self, other: Tally) {
        for (name, theirs) in other.classes {
            let ours = self.classes.entry(name).or_default();
            ours.survived += theirs.survived;
            ours.violated += theirs.violated;
            ours.inert += theirs.inert;
            ours.violations.extend(theirs.violations);
            ours.violations.truncate(VIOLATIONS_KEPT_MAX);
            for fault in theirs.faults {
                if !ours.faults.contains(&fault) {
                    ours.faults.push(fault);
                }
            }
        }
        self.figures.extend(other.figures);
    }

    pub fn violated(&self) -> u64 {
        self.classes.values().map(|class| class.violated).sum()
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
        for (name, figure) in &self.figures {
            text.push_str(&format!("{name}: {figure}\n"));
        }
        for (name, class) in &self.classes {
            for violation in &class.violations {
                text.push_str(&format!("VIOLATED {name}: {violation}\n"));
            }
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
}
