//! The gates in their order, tried one after the other and judged.

use std::time::Instant;

use super::bench::Bench;
use super::disturbance::{Disturbance, Watch};
use super::{Depth, Finding, Gate, Progress, Report, Verdict};
use super::{delay, law, loss, netem, queue, rate};
use crate::backend;
use crate::error::{Error, Kind, Result};
use crate::record::{LATENESS_P999_MAX_US, Machine};
use crate::scenario::Scenario;

/// Of one processor, used by other programs or by other guests of the host: beyond this a failure says nothing.
const FOREIGN_SHARE_MAX: f64 = 0.10;

/// Gates on time, which a machine that stands still makes fail.
const ON_TIME: [&str; 5] = ["V1", "F1", "V2", "V3", "V8"];

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

fn tried(gate: &Kept, bench: &mut Bench) -> Result<Gate> {
    let (start, watch) = (Instant::now(), Watch::start());
    bench.backends.clear();
    bench.disturbed_earlier = Disturbance::default();
    let finding = match (gate.run)(bench) {
        Ok(finding) => finding,
        Err(error) if matches!(error.kind, Kind::Refused | Kind::Missing) => Finding::not_applicable(error.to_string()),
        Err(error) if error.kind == Kind::Failed => Finding::new(false, error.to_string(), "-", "-"),
        Err(error) => return Err(error),
    };
    let disturbed = watch.end().max(bench.disturbed_earlier);
    Ok(Gate {
        id: gate.id.into(),
        title: gate.title.into(),
        backend: bench.backends.join(", "),
        measured: finding.measured,
        expected: finding.expected,
        tolerance: finding.tolerance,
        verdict: judged(gate.id, finding.verdict, disturbed),
        details: finding.details,
        seconds: start.elapsed().as_secs_f64(),
        foreign_share: disturbed.foreign_share,
        stalled_us: disturbed.stalled_us,
    })
}

pub(super) fn judged(id: &str, verdict: Verdict, disturbed: Disturbance) -> Verdict {
    match disturbed {
        _ if verdict != Verdict::Fail => verdict,
        Disturbance { foreign_share, .. } if foreign_share > FOREIGN_SHARE_MAX => Verdict::Void(format!(
            "other programs used {:.0} % of a processor meanwhile ({:.0} % at most)",
            100.0 * foreign_share,
            100.0 * FOREIGN_SHARE_MAX
        )),
        // What runs before all others would not have passed either.
        Disturbance { stalled_us, .. } if stalled_us > LATENESS_P999_MAX_US && ON_TIME.contains(&id) => {
            Verdict::Void(format!(
                "the machine stood still meanwhile: what runs before all others woke {stalled_us:.0} us late in one case of a \
             thousand ({LATENESS_P999_MAX_US:.0} us at most)"
            ))
        }
        _ => verdict,
    }
}

pub(super) fn reasons_to_void(gates: &[Gate]) -> Vec<String> {
    let late = gates.iter().filter(|gate| gate.id == "V2" && !matches!(gate.verdict, Verdict::Pass));
    let reason = |gate: &Gate| match &gate.verdict {
        Verdict::NotApplicable(reason) => format!("lateness is not known: {reason}"),
        _ => format!("releases were late: {}", gate.measured),
    };
    late.map(reason).collect()
}
