//! Whether the laboratory does what it says: measurements held against laws, each a gate that passes or does not.
//!
//! Owns: the list of gates (`suite`), the verdicts, and the report. The gates measure from outside, with packets between hosts of
//! laboratories made for the purpose; the emulator's own counts are compared, not believed.
//!
//! Invariants: a gate that cannot be tried here says n/a or void, never pass. A gate that failed while others used the
//! processors, or while the machine itself stood still, is void; one that passed nevertheless passes, because disturbance does not
//! make a wrong emulator look right.
//!
//! Not here: the laws (`statistics`), the laboratories to measure in (`bench`), what each gate does (the other modules).

mod suite;
mod bench;
mod datagrams;
mod delay;
mod disturbance;
mod foreign;
mod law;
mod loss;
mod netem;
mod queue;
mod rate;
mod stalls;
pub mod statistics;
#[cfg(test)]
mod tests;

pub use suite::{gates, validate};

use serde::{Deserialize, Serialize};

use crate::record::Machine;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depth {
    /// What continuous integration can afford, at a rate that a busy machine carries: less than 40 s.
    Quick,
    /// About six minutes.
    Full,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "verdict", content = "reason")]
pub enum Verdict {
    Pass,
    Fail,
    /// This host or this scenario has not what it takes.
    NotApplicable(String),
    /// It was tried and says nothing.
    Void(String),
}

/// One claim and what became of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Gate {
    pub id: String,
    pub title: String,
    /// What emulated the links it was tried on.
    pub backend: String,
    pub measured: String,
    pub expected: String,
    pub tolerance: String,
    #[serde(flatten)]
    pub verdict: Verdict,
    pub details: Vec<String>,
    pub seconds: f64,
    /// Of one processor, by other programs meanwhile.
    pub foreign_share: f64,
    /// How late this machine woke what runs before all others: the 99.9th percentile.
    #[serde(default)]
    pub stalled_us: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub scenario: String,
    pub depth: Depth,
    pub machine: Machine,
    pub seed: u64,
    pub backend: String,
    pub backend_reason: String,
    pub recommendations: Vec<String>,
    pub gates: Vec<Gate>,
    /// Why none of it must be used; empty: it may.
    pub void: Vec<String>,
    pub seconds: f64,
}

/// What `validate` tells while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    Started { id: &'a str, title: &'a str },
    Finished(&'a Gate),
}

/// What a gate found, before it is known whether others disturbed it.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    pub measured: String,
    pub expected: String,
    pub tolerance: String,
    pub verdict: Verdict,
    pub details: Vec<String>,
}

impl Report {
    /// Whether nothing failed and, unless `void_is_allowed`, nothing is void.
    pub fn holds(&self, void_is_allowed: bool) -> bool {
        let is_good = |gate: &Gate| match gate.verdict {
            Verdict::Pass | Verdict::NotApplicable(_) => true,
            Verdict::Void(_) => void_is_allowed,
            Verdict::Fail => false,
        };
        self.gates.iter().all(is_good)
    }
}

impl Finding {
    pub fn new(
        is_within: bool,
        measured: impl Into<String>,
        expected: impl Into<String>,
        tolerance: impl Into<String>,
    ) -> Finding {
        Finding {
            measured: measured.into(),
            expected: expected.into(),
            tolerance: tolerance.into(),
            verdict: if is_within { Verdict::Pass } else { Verdict::Fail },
            details: Vec::new(),
        }
    }

    pub fn not_applicable(reason: impl Into<String>) -> Finding {
        Finding { verdict: Verdict::NotApplicable(reason.into()), ..Finding::new(false, "-", "-", "-") }
    }

    pub fn with(self, details: Vec<String>) -> Finding {
        Finding { details, ..self }
    }
}
