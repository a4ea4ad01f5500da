//! Fills the tables of `docs/reliability.md` from the counts that the other commands wrote.
//!
//! Invariants: the document is the same for the same counts; a fault counts only what a trial of that fault fired; a fault that
//! nothing holds says so; classes are never summed but for their fault, and executions of a fuzzer not even for that.

use crate::museum::{MUTANTS, figure};
use crate::origin::Origin;
use crate::record::{Class, MUTANT_PREFIX, Tally};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const FAULTS: &str = include_str!("faults.toml");
const BEGIN: &str = "<!-- counts: made by `cargo run --release -p trial -- report`, not by hand -->";
const END: &str = "<!-- end of counts -->";
/// Measured values of single trials, which are no counts, end so.
const NO_COUNTS: &str = "-trials.json";
/// Of a digest, as it is shown.
const DIGEST_CHARACTERS: usize = 12;
/// What a fault is expected to come to that this program cannot meet begins so.
const NOT_HERE: &str = "no ";
/// Headings of the groups of faults, in their order.
const GROUPS: [(&str, &str); 9] = [
    ("wire", "The protocol and the listener"),
    ("identity", "Encryption, identity, rights"),
    ("names", "Paths and names"),
    ("content", "Content and attributes"),
    ("storage", "Storage"),
    ("process", "Processes, power, clocks"),
    ("network", "Networks"),
    ("service", "Several hosts, the queue, the hub and its interface, configuration"),
    ("several", "Several links, hosts and holders"),
];

#[derive(Args)]
pub struct Arguments {
    /// Folder with the counts of the other commands (their --out)
    counts: PathBuf,
    /// The document to fill
    #[arg(long, default_value = "docs/reliability.md")]
    document: PathBuf,
}

type Tallies = BTreeMap<String, Tally>;

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let tallies = read(&arguments.counts)?;
    let path = &arguments.document;
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        bail!("{} has no place for counts: two lines, `{BEGIN}` and `{END}`", path.display());
    };
    let mut filled = text[..begin + BEGIN.len()].to_owned();
    let _ = write!(filled, "\n\nRead from `{}`.\n\n", arguments.counts.display());
    filled.push_str(&runs(&tallies));
    filled.push_str(&faults(&tallies)?);
    filled.push_str(&classes(&tallies));
    filled.push_str(&fuzz(&tallies));
    filled.push_str(&figures(&tallies));
    filled.push_str(&museum(&tallies));
    filled.push_str(&text[end..]);
    std::fs::write(path, filled).with_context(|| format!("write {}", path.display()))?;
    let mut sum = Tally::new("trial report");
    tallies.into_values().for_each(|tally| sum.merge(tally));
    Ok(sum)
}

fn read(dir: &Path) -> Result<Tallies> {
    let mut tallies = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".json") && !name.ends_with(NO_COUNTS) {
            let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
            let tally = serde_json::from_str(&text).with_context(|| format!("read {} as counts", path.display()))?;
            tallies.insert(name.trim_end_matches(".json").to_owned(), tally);
        }
    }
    if tallies.is_empty() {
        bail!("{} holds no counts; run the other commands with --out {0} first", dir.display());
    }
    Ok(tallies)
}

/// What was run, of which commit, and where.
fn runs(tallies: &Tallies) -> String {
    let mut text = "### Runs\n\n| command | commit | day | s | program under trial | program of trials |\n".to_owned();
    text.push_str("|---|---|---|---:|---|---|\n");
    for Tally { command, seconds, origin, .. } in tallies.values() {
        let Origin { commit, date, product_sha256, trial_sha256, .. } = origin;
        let digest = |text: &str| text.get(..DIGEST_CHARACTERS).unwrap_or("not recorded").to_owned();
        let commit = if commit.is_empty() { "not recorded" } else { commit };
        let (product, trial) = (digest(product_sha256), digest(trial_sha256));
        let _ = writeln!(text, "| `{command}` | {commit} | {date} | {seconds:.0} | {product} | {trial} |");
    }
    let commits: BTreeSet<&str> = tallies.values().map(|tally| &tally.origin.commit[..]).collect();
    let newest = tallies.values().map(|tally| &tally.origin).max_by_key(|origin| &origin.date[..]);
    let newest = newest.map_or("", |origin| &origin.commit[..]);
    if commits.len() > 1 {
        let other = tallies.iter().filter(|(_, tally)| tally.origin.commit != newest).map(|(name, _)| &name[..]);
        let other: Vec<_> = other.collect();
        let _ = writeln!(text, "\nOf other commits than {newest}: {}.", other.join(", "));
    }
    let machines: BTreeSet<_> =
        tallies.values().map(|tally| machine(&tally.origin)).filter(|m| !m.is_empty()).collect();
    for machine in machines {
        let _ = writeln!(text, "\nOn {machine}.");
    }
    text.push('\n');
    text
}

fn machine(origin: &Origin) -> String {
    if origin.processor.is_empty() {
        return String::new();
    }
    let telling = ["aes", "vaes", "pclmulqdq", "vpclmulqdq", "avx2", "avx512f", "sha_ni"];
    let has: BTreeSet<&str> = origin.processor_flags.split(' ').collect();
    let flags: Vec<_> = telling.into_iter().filter(|flag| has.contains(flag)).collect();
    format!("{} ({}), Linux {}", origin.processor, flags.join(" "), origin.kernel)
}

/// Each class of trials: what fired, what it may end with, and how it ended.
fn classes(tallies: &Tallies) -> String {
    let mut text =
        "### By class\n\n| class | faults | fired | survived | violated | inert | accepted | ended |\n".to_owned();
    text.push_str("|---|---|---:|---:|---:|---:|---|---|\n");
    for tally in tallies.values() {
        for (name, class) in &tally.classes {
            let Class { survived, violated, inert, .. } = class;
            let (fired, faults, allowed) = (survived + violated, class.faults.join(" "), words(&class.allowed));
            let ended: Vec<_> = class.ended.iter().map(|(word, count)| format!("{word} {count}")).collect();
            let ended = ended.join(", ");
            let _ = writeln!(
                text,
                "| {name} | {faults} | {fired} | {survived} | {violated} | {inert} | {allowed} | {ended} |"
            );
        }
    }
    text.push('\n');
    text
}

fn words(words: &BTreeSet<String>) -> String {
    words.iter().map(String::as_str).collect::<Vec<_>>().join(" or ")
}

/// Inputs that fuzzers ran: no trials, and of no fault of the table.
fn fuzz(tallies: &Tallies) -> String {
    let mut text =
        "### Fuzzing\n\n| target | executions | s | edges and values | inputs that reached new ones | broken |\n"
            .to_owned();
    text.push_str("|---|---:|---:|---:|---:|---|\n");
    for (target, done) in tallies.values().flat_map(|tally| &tally.executions) {
        let number = |number: Option<u64>| number.map_or("not counted".to_owned(), |number| number.to_string());
        let (coverage, new) = (number(done.coverage), number(done.new_inputs));
        let broken = done.violation.as_deref().unwrap_or("no");
        let _ = writeln!(text, "| {target} | {} | {} | {coverage} | {new} | {broken} |", done.runs, done.seconds);
    }
    text.push('\n');
    text
}

fn figures(tallies: &Tallies) -> String {
    let mut text = "### Figures\n\n".to_owned();
    for (name, tally) in tallies {
        // What became of each mutant stands in the table of the museum.
        for (figure, value) in tally.figures.iter().filter(|(figure, _)| !figure.starts_with(MUTANT_PREFIX)) {
            let _ = writeln!(text, "- {name}, {figure}: {value}");
        }
    }
    text.push('\n');
    text
}

/// A row: number, what happens, what is expected, and the tests and trials that hold it.
fn faults(tallies: &Tallies) -> Result<String> {
    let groups: BTreeMap<String, Vec<Vec<String>>> = toml::from_str(FAULTS).context("read the list of faults")?;
    let mut text = "### By fault\n\n".to_owned();
    for (key, heading) in GROUPS {
        let _ = write!(text, "**{heading}**\n\n| fault | what happens | expected | fired | survived | held by |\n");
        text.push_str("|---|---|---|---:|---:|---|\n");
        for row in groups.get(key).into_iter().flatten() {
            let [number, what, expected, held @ ..] = &row[..] else { bail!("a fault without its words: {row:?}") };
            let classes: Vec<(&String, &Class)> = tallies
                .values()
                .flat_map(|tally| &tally.classes)
                .filter(|(_, class)| class.faults.contains(number))
                .collect();
            let fired: u64 = classes.iter().map(|(_, class)| class.survived + class.violated).sum();
            let survived: u64 = classes.iter().map(|(_, class)| class.survived).sum();
            let tests = held.iter().filter(|held| !held.starts_with("trial ")).map(|test| format!("`{test}`"));
            let mut holds: Vec<String> = classes.iter().map(|(name, _)| (*name).clone()).chain(tests).collect();
            // A trial that is named and is not among these counts says so.
            if classes.is_empty() {
                let trials = held.iter().filter(|held| held.starts_with("trial "));
                holds.extend(trials.map(|trial| format!("`{trial}`, not among these runs")));
            }
            if holds.is_empty() {
                let is_here = !expected.starts_with(NOT_HERE);
                holds.push(if is_here { "**not covered**" } else { "does not apply" }.to_owned());
            }
            let holds = holds.join(", ");
            let _ = writeln!(text, "| {number} | {what} | {expected} | {fired} | {survived} | {holds} |");
        }
        text.push('\n');
    }
    Ok(text)
}

fn museum(tallies: &Tallies) -> String {
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
    use crate::record::{Executions, Outcome};

    fn of(name: &str, tally: Tally) -> Tallies {
        BTreeMap::from([(name.to_owned(), tally)])
    }

    #[test]
    fn counts_stand_beside_each_fault_and_a_fault_that_nothing_holds_says_so() {
        let mut tally = Tally::new("trial kill");
        tally.count("kill points", &["F087"], &Outcome::Survived, "");
        let text = faults(&of("kill", tally)).unwrap();
        assert!(text.contains("| F087 | kill -9 at every durable step | KEEP | 1 | 1 | kill points"), "{text}");
        assert!(text.contains("| 0 | 0 | **not covered** |") && text.contains("| 0 | 0 | does not apply |"));
        assert!(text.contains("| 0 | 0 | `ledger::"), "a test is named");
        let numbers = (1..=145).filter(|number| text.contains(&format!("| F{number:03} |"))).count();
        assert_eq!(numbers, 145);
    }

    #[test]
    fn executions_of_a_fuzzer_are_in_a_table_of_their_own_and_no_faults() {
        let mut tally = Tally::new("trial fuzz");
        tally.executions.insert("frames".to_owned(), Executions { runs: 18_900_000, ..Executions::default() });
        let tallies = of("fuzz", tally);
        assert!(fuzz(&tallies).contains("| frames | 18900000 |"));
        assert!(!faults(&tallies).unwrap().contains("18900000") && !classes(&tallies).contains("18900000"));
    }

    #[test]
    fn runs_of_other_commits_are_named_and_what_was_not_recorded_says_so() {
        let mut tallies = of("kill", Tally::new("trial kill"));
        assert!(runs(&tallies).contains("| `trial kill` | not recorded |"));
        let mut newer = Tally::new("trial errno");
        newer.origin = Origin { commit: "abc".into(), date: "2026-11-22".into(), ..Origin::default() };
        tallies.insert("errno".to_owned(), newer);
        assert!(runs(&tallies).contains("Of other commits than abc: kill."));
    }

    #[test]
    fn a_mutant_is_caught_only_where_a_run_recorded_it() {
        let mut tally = Tally::new("trial museum");
        tally.figures.insert(figure("leave-staging"), "caught by simulation: I20".to_owned());
        let tallies = of("museum", tally);
        let text = museum(&tallies);
        assert!(text.contains("| `leave-staging` | the end of a job leaves its staging | caught by simulation: I20 |"));
        assert!(text.contains("| `skip-reread` | --verify reread reads nothing | not run |"), "{text}");
        assert!(!figures(&tallies).contains("leave-staging"));
    }
}
