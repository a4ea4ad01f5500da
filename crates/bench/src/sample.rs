//! One number of one run, with everything needed to judge it.

use serde::Serialize;

use crate::tool::Class;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Of the first round: everything is touched for the first time.
    Discarded,
    Counted,
    /// The emulated link was late or overrun: the time says more about the emulator than about the tool.
    Void,
    /// Ended badly, was killed at the limit, or did not deliver what was sent.
    Failed,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// The largest single process; sampled.
    pub rss_bytes_max: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Sample {
    pub set: String,
    pub class: Class,
    pub tool: String,
    pub is_ours: bool,
    /// 0 is the discarded one.
    pub round: u32,
    pub state: State,
    /// Wall time of the client command, connection included.
    pub seconds: f64,
    /// What the program says about itself, where it does.
    pub reported_seconds: Option<f64>,
    pub bytes: u64,
    pub files: u64,
    pub client: Usage,
    pub server: Option<Usage>,
    /// Processor time that neither end nor this program used.
    pub foreign_cpu_seconds: f64,
    pub steal_seconds: f64,
    /// Why it failed or is void, or empty.
    pub note: String,
}

impl Sample {
    pub fn gbit_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.seconds
    }

    pub fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    pub fn cpu_seconds(&self) -> f64 {
        self.client.cpu_seconds + self.server.map_or(0.0, |server| server.cpu_seconds)
    }

    /// Whether others used so much of the machine that the time says little about the tool.
    pub fn is_disturbed(&self) -> bool {
        /// Of the machine's capacity during the run.
        const FOREIGN_SHARE_MAX: f64 = 0.05;
        let capacity = crate::dataset::cores() as f64 * self.seconds;
        self.foreign_cpu_seconds + self.steal_seconds > FOREIGN_SHARE_MAX * capacity
    }
}
