//! `thalweg lab validate`: is the laboratory what it says on this machine?

use super::error::of_lab;
use super::scenario::Wanted;
use crate::exit::{Result, of_file, of_written};
use crate::output::{duration, line, note};
use lab::validate::{Depth, Gate, Progress, Report, Verdict, gates, validate};
use model::Exit;
use std::path::PathBuf;

/// Measure whether the laboratory does what it says on this machine
///
/// Builds laboratories with the round trip and rate of the scenario's first link, sends packets through them, and
/// compares what arrives with what must: round trips, lateness, rates, windows, queues, losses, and the laws of
/// congestion control under loss. Use an otherwise idle machine: it takes about six minutes, with --quick half a minute
/// at 1 Gbit/s.
///
/// The exit code is 0 if nothing failed. A gate that failed while other programs used the processors is void: it counts
/// as failed, except with --quick. A gate that this host cannot test says n/a and does not count.
#[derive(clap::Args, Debug)]
#[command(mut_arg("scenario", |arg| arg.required(false).default_value("continent")))]
#[command(after_help = "Examples:\n\
\x20   thalweg lab validate continent\n\
\x20   thalweg lab validate --quick --json metro --output validation.json\n\
\x20   thalweg lab validate continent --only V1,V3,V8 --backend tun")]
pub struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Only what is fast enough for continuous integration
    #[arg(long, env = "THALWEG_QUICK")]
    quick: bool,
    /// Only these gates, such as V3,V8
    #[arg(long, value_name = "GATES", value_delimiter = ',', env = "THALWEG_ONLY")]
    only: Vec<String>,
    /// One JSON document instead of a table
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
    /// Also write the JSON document to this file
    #[arg(short, long, value_name = "FILE", env = "THALWEG_OUTPUT")]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<Exit> {
    lab::unprivileged::become_root().map_err(of_lab)?;
    let scenario = args.wanted.read()?;
    let depth = if args.quick { Depth::Quick } else { Depth::Full };
    let mut progress = |progress: Progress<'_>| {
        if let Progress::Started { id, title } = progress {
            note(&format!("{id} {title} ..."));
        }
    };
    let report = validate(&scenario, depth, &args.only, &mut progress).map_err(of_lab)?;
    let json = || serde_json::to_string_pretty(&report).map_err(|e| of_file("show", "the report", &e.into()));
    if let Some(path) = &args.output {
        std::fs::write(path, json()? + "\n").map_err(|e| of_written("write", path, &e))?;
    }
    if args.json {
        line(&json()?);
    } else {
        for text in lines(&report) {
            line(&text);
        }
    }
    Ok(if report.holds(args.quick) { Exit::Done } else { Exit::Failed })
}

fn lines(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut lines = vec![
        format!("{}, seed {}, {}", report.scenario, report.seed, duration(report.seconds)),
        format!("{}, {} processors, Linux {}", machine.processor, machine.processors, machine.kernel),
        format!("back end {}: {}", report.backend, report.backend_reason),
    ];
    lines.extend(report.recommendations.iter().map(|text| format!("note: {text}")));
    lines.push(String::new());
    for gate in &report.gates {
        lines.extend(of_gate(gate));
    }
    let not_run = gates().filter(|(id, _)| report.gates.iter().all(|gate| gate.id != *id)).map(|(id, _)| id);
    let not_run: Vec<_> = not_run.collect();
    if !not_run.is_empty() {
        lines.push(format!("not tried: {}", not_run.join(", ")));
    }
    lines.extend(report.void.iter().map(|reason| format!("void: {reason}")));
    lines
}

/// A block for each: measured values are too long for columns.
fn of_gate(gate: &Gate) -> Vec<String> {
    let (word, reason) = match &gate.verdict {
        Verdict::Pass => ("pass", None),
        Verdict::Fail => ("FAIL", None),
        Verdict::NotApplicable(reason) => ("n/a", Some(reason)),
        Verdict::Void(reason) => ("VOID", Some(reason)),
    };
    let backend = if gate.backend.is_empty() { String::new() } else { format!(" ({})", gate.backend) };
    let mut lines = vec![format!("{:4} {word:4}  {}{backend}", gate.id, gate.title)];
    lines.extend(reason.map(|reason| format!("{:11}{reason}", "")));
    if !matches!(gate.verdict, Verdict::NotApplicable(_)) {
        for (name, text) in [("measured", &gate.measured), ("expected", &gate.expected), ("within", &gate.tolerance)] {
            lines.push(format!("{:11}{name:9} {text}", ""));
        }
    }
    lines.extend(gate.details.iter().map(|text| format!("{:13}{text}", "")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_shows_its_verdict_and_one_that_was_not_tried_only_why() {
        let mut gate = Gate {
            id: "V1".into(),
            title: "round trip".into(),
            backend: "tun".into(),
            measured: "74.1 ms".into(),
            expected: "74 ms".into(),
            tolerance: "0.74 ms".into(),
            verdict: Verdict::Pass,
            details: vec!["idle".into()],
            seconds: 1.0,
            foreign_share: 0.0,
            stalled_us: 0.0,
        };
        let shown = of_gate(&gate);
        assert_eq!(shown[0], "V1   pass  round trip (tun)");
        assert_eq!(shown[1], "           measured  74.1 ms");
        assert_eq!(shown.len(), 5);
        gate.verdict = Verdict::NotApplicable("no netem".into());
        assert_eq!(of_gate(&gate)[..2], ["V1   n/a   round trip (tun)", "           no netem"]);
    }
}
