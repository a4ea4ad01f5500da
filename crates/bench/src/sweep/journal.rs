//! What a sweep has measured so far, on disk: the plan, and every sample on a line of its own as soon as it exists.
//!
//! Invariants:
//! - A folder belongs to one plan. Samples of another plan are never added to it.
//! - A line that a kill cut short is dropped; the run it belonged to is made again.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::compare::run::FAILURES_MAX;
use crate::error::{Error, Kind, Result};
use crate::sample::{Sample, State};

const PLAN_FILE: &str = "plan.json";
const SAMPLES_FILE: &str = "samples.jsonl";

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    samples: Vec<Sample>,
    /// By condition, set, tool, round: whether it is settled, and how many void attempts there were.
    seen: BTreeMap<(String, String, String, u32), (bool, u32)>,
    /// Failures since the last success, by condition, set, tool.
    failures: BTreeMap<(String, String, String), u32>,
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    hash: String,
    plan: Plan,
}

impl Journal {
    /// Begins in a folder without a plan, goes on in one that holds the same.
    pub fn open(dir: &Path, plan: &Plan) -> Result<Journal> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let (manifest, path) = (dir.join(PLAN_FILE), dir.join(SAMPLES_FILE));
        match fs::read(&manifest) {
            Ok(bytes) => check_same(&bytes, plan, dir)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let begun = Manifest { hash: plan.hash(), plan: plan.clone() };
                let text = serde_json::to_string_pretty(&begun).expect("plain values serialise") + "\n";
                // Under its name only when it is whole, or a kill would leave a plan that cannot be read.
                let staged = dir.join(".plan.json");
                fs::write(&staged, text).map_err(Error::io("write", &staged))?;
                fs::rename(&staged, &manifest).map_err(Error::io("write", &manifest))?;
            }
            Err(error) => return Err(Error::io("read", &manifest)(error)),
        }
        let file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        let mut journal = Journal { path, file, samples: Vec::new(), seen: BTreeMap::new(), failures: BTreeMap::new() };
        journal.read()?;
        Ok(journal)
    }

    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub fn append(&mut self, sample: Sample) -> Result<()> {
        let line = serde_json::to_string(&sample).expect("plain values serialise") + "\n";
        self.file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))?;
        self.count(sample);
        Ok(())
    }

    /// Whether a run needs no more attempts: it has its figure, was void too often, or its tool keeps failing there.
    pub fn is_settled(&self, condition: &str, set: &str, tool: &str, round: u32, void_attempts_max: u32) -> bool {
        let key = (condition.to_owned(), set.to_owned(), tool.to_owned(), round);
        self.seen.get(&key).is_some_and(|(is_settled, void)| *is_settled || *void >= void_attempts_max)
            || self.failures_of(condition, set, tool) >= FAILURES_MAX
    }

    /// In a row.
    pub fn failures_of(&self, condition: &str, set: &str, tool: &str) -> u32 {
        let key = (condition.to_owned(), set.to_owned(), tool.to_owned());
        self.failures.get(&key).copied().unwrap_or(0)
    }

    fn count(&mut self, sample: Sample) {
        let key = (sample.condition.clone(), sample.set.clone(), sample.tool.clone(), sample.round);
        let seen = self.seen.entry(key).or_default();
        match sample.state {
            State::Void => seen.1 += 1,
            _ => seen.0 = true,
        }
        let lane = (sample.condition.clone(), sample.set.clone(), sample.tool.clone());
        let failures = self.failures.entry(lane).or_default();
        *failures = if sample.state == State::Failed { *failures + 1 } else { 0 };
        self.samples.push(sample);
    }

    fn read(&mut self) -> Result<()> {
        let text = fs::read(&self.path).map_err(Error::io("read", &self.path))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        self.file.set_len(whole as u64).map_err(Error::io("shorten", &self.path))?;
        for (index, line) in text[..whole].split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
        {
            let sample = serde_json::from_slice(line).map_err(|cause| {
                let cause = format!("line {}: {cause}; remove the folder to start again", index + 1);
                Error::new(Kind::Failed, "read", self.path.display(), cause)
            })?;
            self.count(sample);
        }
        Ok(())
    }
}

fn check_same(bytes: &[u8], plan: &Plan, dir: &Path) -> Result<()> {
    let refuse = |cause: String| Err(Error::new(Kind::Usage, "continue the sweep in", dir.display(), cause));
    let Ok(kept) = serde_json::from_slice::<Manifest>(bytes) else {
        return refuse("its plan.json cannot be read; name another folder, or remove this one".into());
    };
    if kept.hash == plan.hash() {
        return Ok(());
    }
    refuse(format!("it holds another plan ({}); name another folder, or remove this one", difference(&kept.plan, plan)))
}

/// What sets two plans apart, in words.
fn difference(kept: &Plan, asked: &Plan) -> String {
    let sets = |plan: &Plan| plan.cells.iter().map(|cell| (cell.condition, cell.set.clone())).collect::<Vec<_>>();
    let mut words = Vec::new();
    for (name, differs) in [
        ("conditions", kept.conditions != asked.conditions),
        ("sets", sets(kept) != sets(asked)),
        ("tools", kept.tools != asked.tools),
        ("rounds", kept.rounds != asked.rounds || kept.pairs != asked.pairs),
        ("ceilings", (&kept.ceiling_streams, kept.ceiling_seconds) != (&asked.ceiling_streams, asked.ceiling_seconds)),
        ("seed", kept.seed != asked.seed),
        ("build of the program", kept.programs != asked.programs),
        ("arguments", kept.arguments != asked.arguments),
        ("versions of rivals", kept.rival_versions != asked.rival_versions),
        ("limit", kept.limit_ms != asked.limit_ms),
        ("file system", kept.file_system != asked.file_system),
    ] {
        words.extend(differs.then_some(name));
    }
    if words.is_empty() { "it was changed by hand".into() } else { format!("other {}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::super::{Axes, Options};
    use super::*;
    use crate::tool::Variant;

    fn plan(rounds: u32) -> Plan {
        let variants = vec![Variant::new(std::env::current_exe().unwrap())];
        let axes = Axes { sets: vec!["2x1KiB".into()], sizes: Vec::new(), ..Axes::default() };
        Plan::of(&Options { axes, variants, rounds, ..Options::default() }).unwrap()
    }

    fn sample(round: u32, state: State) -> Sample {
        let text = r#"{"condition":"c","set":"s","class":"network","tool":"t","is_ours":true,"round":0,"state":"counted",
            "seconds":1.0,"reported_seconds":null,"bytes":1,"files":1,"client":{"cpu_seconds":0.0,"rss_bytes_max":0},
            "server":null,"network":null,"foreign_cpu_seconds":0.0,"steal_seconds":0.0,"note":""}"#;
        Sample { round, state, ..serde_json::from_str(text).unwrap() }
    }

    #[test]
    fn what_was_written_is_found_again_and_half_a_line_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &plan(3)).unwrap();
        journal.append(sample(1, State::Counted)).unwrap();
        journal.append(sample(2, State::Void)).unwrap();
        drop(journal);
        let path = dir.path().join(SAMPLES_FILE);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"condition\":\"c\",\"se").unwrap();
        let mut journal = Journal::open(dir.path(), &plan(3)).unwrap();
        assert_eq!(journal.samples().len(), 2);
        let is_settled = |journal: &Journal, round| journal.is_settled("c", "s", "t", round, 2);
        assert_eq!([1, 2, 3].map(|round| is_settled(&journal, round)), [true, false, false]);
        // Void twice is enough.
        journal.append(sample(2, State::Void)).unwrap();
        assert!(is_settled(&journal, 2));
        assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 3);
    }

    #[test]
    fn another_plan_is_refused_with_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        Journal::open(dir.path(), &plan(3)).unwrap();
        let error = Journal::open(dir.path(), &plan(4)).unwrap_err();
        assert!(error.kind == Kind::Usage && error.chain().contains("other rounds"), "{}", error.chain());
        let shorter = Plan { limit_ms: 1, ..plan(3) };
        let error = Journal::open(dir.path(), &shorter).unwrap_err();
        assert!(error.chain().contains("(other limit)"), "{}", error.chain());
        fs::write(dir.path().join(PLAN_FILE), "{").unwrap();
        assert_eq!(Journal::open(dir.path(), &plan(3)).unwrap_err().kind, Kind::Usage);
    }
}
