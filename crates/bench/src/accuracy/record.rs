//! The runs, one a line, and which of them are there already.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const FILE: &str = "accuracy.jsonl";
/// What plans were made from, with what the laboratory said of its lateness meanwhile.
const CALIBRATIONS: &str = "calibrations.jsonl";
/// A run during which the machine stood still is made again, so often in all; every one of them stays on record.
const TRIES: usize = 3;
/// How the reason begins for a delivery that is not its source.
pub const DIFFERS: &str = "the delivery differs: ";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    Search,
    Repeat,
}

/// One copy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Run {
    pub cell: String,
    pub set: String,
    pub step: Step,
    pub setting: String,
    pub flags: Vec<String>,
    pub round: u32,
    /// Of the command; nothing where it failed or delivered something else.
    pub seconds: Option<f64>,
    pub files: u64,
    pub bytes: u64,
    /// Of a run by a plan, what `thalweg plan --json` said before it.
    pub plan: Option<serde_json::Value>,
    /// What the copy said of its streams, for runs that adapt.
    pub streams: Option<u64>,
    /// Share of the machine that others used.
    pub foreign: f64,
    /// Why it does not count, or empty.
    pub void: String,
    pub commit: String,
    /// SHA-256 of the program, hexadecimal.
    #[serde(default)]
    pub program: String,
    /// Seconds since 1970.
    pub time: u64,
}

impl Run {
    pub fn rate(&self) -> Option<f64> {
        self.seconds.filter(|_| self.void.is_empty()).map(|seconds| self.bytes as f64 / seconds)
    }

    /// Ended well and delivered something else than the source. In older records such runs have seconds.
    pub fn is_wrong(&self) -> bool {
        self.void.starts_with(DIFFERS)
    }

    /// Ended badly or is wrong: making it again would hide that.
    pub fn is_failed(&self) -> bool {
        self.seconds.is_none() || self.is_wrong()
    }

    pub fn is_void(&self) -> bool {
        !self.is_failed() && !self.void.is_empty()
    }
}

pub struct Record {
    path: PathBuf,
    file: File,
    program: String,
    runs: Vec<Run>,
}

impl Record {
    /// What was measured before, if it was, to go on with the program of this digest; a line that a kill cut short is
    /// dropped.
    pub fn open(dir: &Path, program: &str) -> Result<Record> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let runs: Vec<Run> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(Error::io("write", &path))?;
        }
        Ok(Record { path, file, program: program.to_owned(), runs })
    }

    /// Those of this program. Runs recorded before they named their program count for whatever program is asked, so
    /// that records that were begun with it go on.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.program.is_empty() || run.program == self.program)
    }

    /// Of whatever program.
    pub fn count(&self) -> usize {
        self.runs.len()
    }

    /// Whether a run that counts is there, or one that failed, or as many void ones as are tried.
    pub fn has(&self, cell: &str, set: &str, step: Step, setting: &str, round: u32) -> bool {
        let is_it = |run: &&Run| run.cell == cell && run.set == set && run.step == step && run.round == round;
        let tried = || self.runs().filter(is_it).filter(|run| run.setting == setting);
        tried().any(|run| !run.is_void()) || tried().count() >= TRIES
    }

    pub fn add_calibration(&self, calibration: &serde_json::Value) -> Result<()> {
        let path = self.path.with_file_name(CALIBRATIONS);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
        file.write_all(format!("{calibration}\n").as_bytes()).map_err(Error::io("write", &path))
    }

    pub fn add(&mut self, run: Run) -> Result<()> {
        let line = serde_json::to_string(&run).expect("plain values serialise") + "\n";
        self.file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))?;
        self.runs.push(run);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One as records had it before runs named their program, at round 1.
    fn older(seconds: Option<f64>, void: &str) -> Run {
        let text = r#"{"cell":"c","set":"s","step":"repeat","setting":"4","flags":[],"round":1,"seconds":null,"files":1,
            "bytes":1000,"plan":null,"streams":null,"foreign":0.0,"void":"","commit":"x","time":0}"#;
        Run { seconds, void: void.into(), ..serde_json::from_str(text).unwrap() }
    }

    fn is_there(record: &Record) -> bool {
        record.has("c", "s", Step::Repeat, "4", 1)
    }

    #[test]
    fn a_run_of_another_program_is_not_this_ones() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::open(dir.path(), "aa").unwrap();
        record.add(Run { program: "aa".into(), ..older(Some(1.0), "") }).unwrap();
        assert!(is_there(&record));
        let mut other = Record::open(dir.path(), "bb").unwrap();
        assert!(!is_there(&other) && other.runs().count() == 0 && other.count() == 1);
        other.add(older(Some(1.0), "")).unwrap();
        assert!(is_there(&other), "one without a program goes on as any");
        assert!(is_there(&Record::open(dir.path(), "cc").unwrap()));
    }

    #[test]
    fn a_delivery_that_differs_is_not_made_again_and_a_void_one_is_three_times() {
        let differs = format!("{DIFFERS}1 file");
        for (seconds, void, times) in [(None, &*differs, 1), (Some(1.0), &*differs, 1), (Some(1.0), "late", TRIES)] {
            let dir = tempfile::tempdir().unwrap();
            let mut record = Record::open(dir.path(), "aa").unwrap();
            for _ in 0..times {
                assert!(!is_there(&record), "{void}");
                record.add(older(seconds, void)).unwrap();
            }
            assert!(is_there(&record), "{void}");
            assert!(record.runs().all(|run| run.is_failed() == void.starts_with(DIFFERS) && run.rate().is_none()));
        }
    }
}
