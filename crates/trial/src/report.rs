//! Fills the tables of `docs/reliability.md` from the counts that the other commands wrote.
//!
//! Invariants: the document is the same for the same counts; a fault without a trial says so; classes are never summed.

use crate::museum::{MUTANTS, figure};
use crate::record::{Class, MUTANT_PREFIX, Tally};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const FAULTS: &str = include_str!("faults.toml");
const BEGIN: &str = "<!-- counts: made by `cargo run --release -p trial -- report`, not by hand -->";
const END: &str = "<!-- end of counts -->";
/// Headings of the groups of faults, in their order.
const GROUPS: [(&str, &str); 8] = [
    ("wire", "The protocol and the listener"),
    ("identity", "Encryption, identity, rights"),
    ("names", "Paths and names"),
    ("content", "Content and attributes"),
    ("storage", "Storage"),
    ("process", "Processes, power, clocks"),
    ("network", "Networks"),
    ("later", "Not in the program yet"),
];

#[derive(Args)]
pub struct Arguments {
    /// Folder with the counts of the other commands (their --out)
    counts: PathBuf,
    /// The document to fill
    #[arg(long, default_value = "docs/reliability.md")]
    document: PathBuf,
    /// When the trials ran; written as it is
    #[arg(long)]
    date: String,
    /// Of which commit; written as it is
    #[arg(long)]
    commit: String,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let tallies = read(&arguments.counts)?;
    let path = &arguments.document;
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("{} has no place for counts: two lines, `{BEGIN}` and `{END}`", path.display());
    };
    let mut filled = text[..begin + BEGIN.len()].to_owned();
    let _ = write!(filled, "\n\nTrials of commit {} on {}.\n\n", arguments.commit, arguments.date);
    filled.push_str(&commands(&tallies));
    filled.push_str(&faults(&tallies)?);
    filled.push_str(&museum(&tallies));
    filled.push_str(&text[end..]);
    std::fs::write(path, filled).with_context(|| format!("write {}", path.display()))?;
    let mut sum = Tally::new("trial report");
    tallies.into_values().for_each(|tally| sum.merge(tally));
    Ok(sum)
}

fn read(dir: &Path) -> Result<BTreeMap<String, Tally>> {
    let mut tallies = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let tally = serde_json::from_str(&text).with_context(|| format!("read {} as counts", path.display()))?;
            tallies.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), tally);
        }
    }
    if tallies.is_empty() {
        bail!("{} holds no counts; run the other commands with --out {0} first", dir.display());
    }
    Ok(tallies)
}

/// A table for each command: its classes, then its figures.
fn commands(tallies: &BTreeMap<String, Tally>) -> String {
    let mut text = "### By class\n\n| class | faults | fired | survived | violated | inert | command |\n".to_owned();
    text.push_str("|---|---|---:|---:|---:|---:|---|\n");
    for tally in tallies.values() {
        for (name, class) in &tally.classes {
            let Class { survived, violated, inert, .. } = class;
            let fired = survived + violated;
            let faults = class.faults.join(" ");
            let _ = writeln!(
                text,
                "| {name} | {faults} | {fired} | {survived} | {violated} | {inert} | `{}` |",
                tally.command
            );
        }
    }
    text.push_str("\n### Figures\n\n");
    for (name, tally) in tallies {
        let _ = writeln!(text, "- `{}`: {:.0} s.", tally.command, tally.seconds);
        // What became of each mutant stands in the table of the museum.
        for (figure, value) in tally.figures.iter().filter(|(figure, _)| !figure.starts_with(MUTANT_PREFIX)) {
            let _ = writeln!(text, "  - {name}, {figure}: {value}");
        }
    }
    text.push('\n');
    text
}

fn faults(tallies: &BTreeMap<String, Tally>) -> Result<String> {
    let groups: BTreeMap<String, Vec<[String; 3]>> = toml::from_str(FAULTS).context("read the list of faults")?;
    let mut text = "### By fault\n\n".to_owned();
    for (key, heading) in GROUPS {
        let _ = write!(text, "**{heading}**\n\n| fault | what happens | expected | fired | survived | in |\n");
        text.push_str("|---|---|---|---:|---:|---|\n");
        for [number, what, expected] in groups.get(key).into_iter().flatten() {
            let classes: Vec<(&String, &Class)> = tallies
                .values()
                .flat_map(|tally| &tally.classes)
                .filter(|(_, class)| class.faults.contains(number))
                .collect();
            let fired: u64 = classes.iter().map(|(_, class)| class.survived + class.violated).sum();
            let survived: u64 = classes.iter().map(|(_, class)| class.survived).sum();
            let names: Vec<&str> = classes.iter().map(|(name, _)| name.as_str()).collect();
            let place = if names.is_empty() { "tests only".to_owned() } else { names.join(", ") };
            let _ = writeln!(text, "| {number} | {what} | {expected} | {fired} | {survived} | {place} |");
        }
        text.push('\n');
    }
    Ok(text)
}

fn museum(tallies: &BTreeMap<String, Tally>) -> String {
    let caught = tallies.values().find_map(|tally| tally.figures.get("mutants caught"));
    let mut text = format!("### The museum\n\nMutants caught: {}.\n\n", caught.map_or("not run", String::as_str));
    text.push_str("| mutant | the bug | what the run says |\n|---|---|---|\n");
    for (name, bug, _) in MUTANTS {
        let said = tallies.values().find_map(|tally| tally.figures.get(&figure(name)));
        let said = said.map_or("not run", String::as_str).replace('|', "\\|");
        let _ = writeln!(text, "| `{name}` | {bug} | {said} |");
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;

    #[test]
    fn counts_stand_beside_each_fault_and_a_fault_without_trial_says_so() {
        let mut tally = Tally::new("trial kill");
        tally.count("kill points", &["F087"], &Outcome::Survived, "");
        let tallies = BTreeMap::from([("kill".to_owned(), tally)]);
        let text = faults(&tallies).unwrap();
        assert!(text.contains("| F087 | kill -9 at every durable step | KEEP | 1 | 1 | kill points |"), "{text}");
        assert!(text.contains("| F091 | a ledger of a newer version or another host | REFUSE | 0 | 0 | tests only |"));
        let numbers = (1..=108).filter(|number| text.contains(&format!("| F{number:03} |"))).count();
        assert_eq!(numbers, 108);
    }

    #[test]
    fn a_mutant_is_caught_only_where_a_run_recorded_it() {
        let mut tally = Tally::new("trial museum");
        tally.figures.insert(figure("leave-staging"), "caught by simulation: I20".to_owned());
        let tallies = BTreeMap::from([("museum".to_owned(), tally)]);
        let text = museum(&tallies);
        assert!(text.contains("| `leave-staging` | the end of a job leaves its staging | caught by simulation: I20 |"));
        assert!(text.contains("| `skip-reread` | --verify reread reads nothing | not run |"), "{text}");
        assert!(!commands(&tallies).contains("leave-staging"));
    }
}
