//! One number of one run, with everything needed to judge it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::manifest::Manifest;
use crate::tool::ends::Class;

/// How the note begins of a sample that delivered something else than the source.
const DIFFERS: &str = "delivery differs: ";

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_seconds: f64,
    /// The largest single process; sampled.
    pub rss_bytes_max: u64,
}

/// What the network saw of a run, from the kernel's counters of the two hosts.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NetworkUse {
    /// Until more than the talk at the start of a session had left the host that sends the content.
    pub first_byte_seconds: Option<f64>,
    /// All bytes that left that host, frames' headers included.
    pub sent_bytes: u64,
    pub retransmitted_segments: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// What a sweep varies besides the set, such as `rtt=74ms cc=cubic`; empty in a race. Figures of different conditions
    /// are never mixed.
    #[serde(default)]
    pub condition: String,
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
    /// None where no network is between source and destination.
    pub network: Option<NetworkUse>,
    /// Processor time that neither end nor this program used.
    pub foreign_cpu_seconds: f64,
    pub steal_seconds: f64,
    /// What limited it by our program's own word (`bottleneck.stage`); none of rivals, and in earlier bundles.
    #[serde(default)]
    pub bottleneck: Option<String>,
    /// Why it failed or is void, or empty.
    pub note: String,
}

impl Sample {
    /// Fails if the delivery is not what was sent; what failed before keeps its reason.
    pub(crate) fn verify(&mut self, truth: &Manifest, delivery: &Path) {
        if self.state == State::Failed {
            return;
        }
        let differences = truth.differences_at(delivery, crate::dataset::cores());
        if !differences.is_empty() {
            self.state = State::Failed;
            self.note = format!("{DIFFERS}{}", differences.join(", "));
        }
    }

    /// Whether it ended well and delivered something else than the source.
    pub fn is_wrong(&self) -> bool {
        self.state == State::Failed && self.note.starts_with(DIFFERS)
    }

    pub fn gbit_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / 1e9 / self.seconds
    }

    pub fn files_per_second(&self) -> f64 {
        self.files as f64 / self.seconds
    }

    pub fn cpu_seconds(&self) -> f64 {
        self.client.cpu_seconds + self.server.map_or(0.0, |server| server.cpu_seconds)
    }

    pub fn cpu_seconds_per_gb(&self) -> f64 {
        self.cpu_seconds() / (self.bytes.max(1) as f64 / 1e9)
    }

    /// Whether others used so much of this machine that the time says little about the tool.
    pub fn is_disturbed(&self) -> bool {
        self.is_disturbed_on(crate::dataset::cores())
    }

    /// The same on a machine with so many cores; never on one of which that is not known (0).
    pub fn is_disturbed_on(&self, cores: usize) -> bool {
        /// Of the machine's capacity during the run.
        const FOREIGN_SHARE_MAX: f64 = 0.05;
        let capacity = cores as f64 * self.seconds;
        cores > 0 && self.foreign_cpu_seconds + self.steal_seconds > FOREIGN_SHARE_MAX * capacity
    }
}
