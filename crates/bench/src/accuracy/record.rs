//! The runs, one a line, and which of them are there already.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

const FILE: &str = "accuracy.jsonl";

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
    /// Seconds since 1970.
    pub time: u64,
}

impl Run {
    pub fn rate(&self) -> Option<f64> {
        self.seconds.filter(|_| self.void.is_empty()).map(|seconds| self.bytes as f64 / seconds)
    }
}

pub struct Record {
    path: PathBuf,
    file: File,
    pub runs: Vec<Run>,
}

impl Record {
    /// What was measured before, if it was; a line that a kill cut short is dropped.
    pub fn open(dir: &Path) -> Result<Record> {
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
        Ok(Record { path, file, runs })
    }

    pub fn has(&self, cell: &str, set: &str, step: Step, setting: &str, round: u32) -> bool {
        let is_it = |run: &&Run| run.cell == cell && run.set == set && run.step == step && run.round == round;
        self.runs.iter().filter(is_it).any(|run| run.setting == setting)
    }

    pub fn add(&mut self, run: Run) -> Result<()> {
        let line = serde_json::to_string(&run).expect("plain values serialise") + "\n";
        self.file.write_all(line.as_bytes()).map_err(Error::io("write", &self.path))?;
        self.runs.push(run);
        Ok(())
    }
}
