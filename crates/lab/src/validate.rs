//! Whether the laboratory does what it says: measurements held against laws, each a gate that passes or does not.
//!
//! Owns: the list of gates, the verdicts, and the report. The gates measure from outside, with packets between hosts of
//! laboratories made for the purpose; the emulator's own counts are compared, not believed.
//!
//! Invariants: a gate that cannot be tried here says n/a or void, never pass. A gate that failed while others used the
//! processors is void; one that passed nevertheless passes, because disturbance does not make a wrong emulator look right.
//!
//! Not here: the laws (`statistics`), the laboratories to measure in (`bench`), what each gate does (the other modules).

mod bench;
mod datagrams;
mod delay;
mod foreign;
mod law;
mod loss;
mod netem;
mod queue;
mod rate;
pub mod statistics;
#[cfg(test)]
mod tests;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::backend;
use crate::error::{Error, Kind, Result};
use crate::record::Machine;
use crate::scenario::Scenario;
use bench::Bench;
use foreign::Usage;

/// Of one processor, used by other programs or by other guests of the host: beyond this a failure says nothing.
const FOREIGN_SHARE_MAX: f64 = 0.10;

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

struct Kept {
    id: &'static str,
    title: &'static str,
    is_quick: bool,
    run: fn(&mut Bench) -> Result<Finding>,
}

const fn gate(id: &'static str, title: &'static str, is_quick: bool, run: fn(&mut Bench) -> Result<Finding>) -> Kept {
    Kept { id, title, is_quick, run }
}

/// In the order in which they run: those that need a machine at rest first.
const GATES: [Kept; 14] = [
    gate("V1", "round trip", true, delay::round_trip),
    gate("F1", "rate with 1, 4 and 16 streams", false, rate::streams),
    gate("V2", "lateness of releases", true, delay::lateness),
    gate("V3", "goodput of the rate", true, rate::goodput),
    gate("V4", "window law", false, rate::window_law),
    gate("V8", "drop-tail queue under Reno", true, queue::drop_tail),
    gate("Q1", "queue holds exactly its limit", true, queue::limit),
    gate("V7", "loss process", true, loss::process),
    gate("V5", "Reno and the Mathis law", false, law::reno),
    gate("V6", "CUBIC and RFC 9438", false, law::cubic),
    gate("V9", "agreement with netem", false, netem::agreement),
    gate("V10", "forwarding without delay or limit", false, rate::forwarding),
    gate("V11", "large flows at 10 and 100 ms", false, rate::distance),
    gate("F2", "highest rate in time", false, rate::highest),
];

/// (id, title) of every gate.
pub fn gates() -> impl Iterator<Item = (&'static str, &'static str)> {
    GATES.iter().map(|gate| (gate.id, gate.title))
}

/// Tries the gates named in `only`, or without any all that belong to the depth.
pub fn validate(
    scenario: &Scenario,
    depth: Depth,
    only: &[String],
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Report> {
    let unknown = only.iter().find(|wanted| !GATES.iter().any(|gate| gate.id.eq_ignore_ascii_case(wanted)));
    if let Some(unknown) = unknown {
        let known: Vec<_> = gates().map(|(id, _)| id).collect();
        return Err(Error::new(Kind::Refused, "find gate", unknown, format!("there are {}", known.join(", "))));
    }
    let start = Instant::now();
    let choice = backend::choose(scenario)?;
    let mut bench = Bench::new(scenario, depth);
    let is_wanted = |gate: &&Kept| match only {
        [] => gate.is_quick || depth == Depth::Full,
        only => only.iter().any(|wanted| gate.id.eq_ignore_ascii_case(wanted)),
    };
    let mut gates = Vec::new();
    for gate in GATES.iter().filter(is_wanted) {
        progress(Progress::Started { id: gate.id, title: gate.title });
        let result = tried(gate, &mut bench)?;
        progress(Progress::Finished(&result));
        gates.push(result);
    }
    Ok(Report {
        scenario: scenario.name.clone(),
        depth,
        machine: Machine::this(),
        seed: scenario.seed,
        backend: choice.backend.name().into(),
        backend_reason: choice.reason,
        recommendations: scenario.needs().recommendations,
        void: reasons_to_void(&gates),
        gates,
        seconds: start.elapsed().as_secs_f64(),
    })
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

fn tried(gate: &Kept, bench: &mut Bench) -> Result<Gate> {
    let (start, before) = (Instant::now(), Usage::now());
    bench.backends.clear();
    bench.foreign_share_earlier = 0.0;
    let finding = match (gate.run)(bench) {
        Ok(finding) => finding,
        Err(error) if matches!(error.kind, Kind::Refused | Kind::Missing) => Finding::not_applicable(error.to_string()),
        Err(error) if error.kind == Kind::Failed => Finding::new(false, error.to_string(), "-", "-"),
        Err(error) => return Err(error),
    };
    let foreign_share = Usage::now().foreign_since(&before).max(bench.foreign_share_earlier);
    Ok(Gate {
        id: gate.id.into(),
        title: gate.title.into(),
        backend: bench.backends.join(", "),
        measured: finding.measured,
        expected: finding.expected,
        tolerance: finding.tolerance,
        verdict: judged(finding.verdict, foreign_share),
        details: finding.details,
        seconds: start.elapsed().as_secs_f64(),
        foreign_share,
    })
}

fn judged(verdict: Verdict, foreign_share: f64) -> Verdict {
    if verdict == Verdict::Fail && foreign_share > FOREIGN_SHARE_MAX {
        return Verdict::Void(format!(
            "other programs used {:.0} % of a processor meanwhile ({:.0} % at most)",
            100.0 * foreign_share,
            100.0 * FOREIGN_SHARE_MAX
        ));
    }
    verdict
}

fn reasons_to_void(gates: &[Gate]) -> Vec<String> {
    let late = gates.iter().filter(|gate| gate.id == "V2" && !matches!(gate.verdict, Verdict::Pass));
    let reason = |gate: &Gate| match &gate.verdict {
        Verdict::NotApplicable(reason) => format!("lateness is not known: {reason}"),
        _ => format!("releases were late: {}", gate.measured),
    };
    late.map(reason).collect()
}
