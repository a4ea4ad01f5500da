//! What is kept of a run: every transfer, and what was found at both ends.

use serde::Serialize;
use serde_json::Value;

use crate::environment::Environment;
use crate::sample::State;

/// One transfer.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    pub item: &'static str,
    pub set: String,
    /// None where the program chose.
    pub streams: Option<u32>,
    pub round: u32,
    /// Wall time of the command, connection included.
    pub seconds: f64,
    pub client_cpu_seconds: f64,
    pub client_rss_bytes_max: u64,
    pub exit: Option<i32>,
    /// What the program reported at its end, as `docs/json.md` describes it.
    pub done: Value,
    /// What it said when it failed.
    pub error: String,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub environment: Environment,
    pub regenerate: String,
    pub samples: Vec<Sample>,
    /// One for each thing that was looked at, as `doctor --json` gives it.
    pub findings: Vec<Value>,
    /// The path alone, as `bench net --json` gives it.
    pub net: Vec<Value>,
    pub left_out: Vec<String>,
}

impl Sample {
    pub fn state(&self) -> State {
        if self.error.is_empty() { State::Counted } else { State::Failed }
    }

    pub fn bytes(&self) -> u64 {
        self.done["bytes"].as_u64().unwrap_or(0)
    }

    pub fn files(&self) -> u64 {
        self.done["files"]["ok"].as_u64().unwrap_or(0)
    }

    /// One line of progress.
    pub fn shown(&self) -> String {
        let streams = self.streams.map_or(String::new(), |streams| format!(" with {streams} streams"));
        let head = format!("{}: {}{streams}, round {}", self.item, self.set, self.round);
        match self.state() {
            State::Failed => format!("{head}: failed: {}", self.error),
            _ => format!("{head}: {:.2} s, {:.2} Gbit/s", self.seconds, self.bytes() as f64 * 8e-9 / self.seconds),
        }
    }
}
