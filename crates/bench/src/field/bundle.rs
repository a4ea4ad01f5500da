//! The folder: `README.md`, `summary.json` with everything, `transfers.csv` with a line for each transfer.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use model::quantity::ByteCount;

use super::record::{Report, Sample};
use crate::error::{Error, Result};
use crate::sample::State;
use crate::statistics::Spread;

pub fn write(report: &Report, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let json = serde_json::to_string_pretty(report).expect("plain values have a JSON form") + "\n";
    for (name, text) in [("transfers.csv", csv(report)), ("summary.json", json), ("README.md", readme(report))] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

fn csv(report: &Report) -> String {
    let mut text = String::from("item,set,streams,round,state,seconds,bytes,files,client_cpu_seconds,bottleneck\n");
    for sample in &report.samples {
        let streams = sample.streams.map_or("auto".to_owned(), |streams| streams.to_string());
        let state = if sample.state() == State::Counted { "counted" } else { "failed" };
        let bottleneck = sample.done["bottleneck"]["stage"].as_str().unwrap_or("");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{streams},{},{state},{:.6},{},{},{:.3},{bottleneck}",
            sample.item,
            sample.set,
            sample.round,
            sample.seconds,
            sample.bytes(),
            sample.files(),
            sample.client_cpu_seconds,
        );
    }
    text
}

fn readme(report: &Report) -> String {
    let machine = report.environment.lines();
    let mut text = format!(
        "# What two hosts carry\n\nMade by `{}`, {} UTC. This end:\n\n{}\n\n",
        report.regenerate,
        report.environment.started,
        machine.iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n"),
    );
    text.push_str("## Transfers\n\nMedians. Rates are of the whole command, connection included.\n\n");
    text.push_str("| from, to | files | streams | n | Gbit/s | files/s | s of processor per GB here | limited by |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    let is_same = |a: &&Sample, b: &Sample| (a.item, &a.set, a.streams) == (b.item, &b.set, b.streams);
    let counted = || report.samples.iter().filter(|sample| sample.state() == State::Counted);
    let mut first: Vec<&Sample> = Vec::new();
    for sample in counted() {
        if !first.iter().any(|one| is_same(one, sample)) {
            first.push(sample);
        }
    }
    for sample in first {
        let all: Vec<&Sample> = counted().filter(|other| is_same(other, sample)).collect();
        text.push_str(&row(&all));
    }
    let failed = report.samples.iter().filter(|sample| sample.state() == State::Failed);
    section(&mut text, "Failed", failed.map(Sample::shown));
    section(&mut text, "Left out", report.left_out.iter().cloned());
    section(
        &mut text,
        "The path alone",
        report.net.iter().map(|done| {
            let rate = done["bits_per_second"].as_f64().unwrap_or(0.0) / 1e9;
            format!("{rate:.2} Gbit/s, {}", done["totals"])
        }),
    );
    let findings = report.findings.iter().filter(|finding| finding["event"] == "finding");
    section(&mut text, "What `thalweg doctor` found", findings.map(finding));
    text
}

/// Of transfers that differ by their round alone.
fn row(all: &[&Sample]) -> String {
    let median = |of: &dyn Fn(&Sample) -> f64| {
        Spread::of(all.iter().map(|sample| of(sample))).map_or(0.0, |spread| spread.median)
    };
    let sample = all[0];
    let (count, bytes) = sample.set.split_once('x').unwrap_or_default();
    let size = ByteCount(bytes.parse().unwrap_or(0));
    let streams = match sample.streams {
        Some(streams) => streams.to_string(),
        None => format!("auto ({})", sample.done["streams"].as_u64().unwrap_or(0)),
    };
    format!(
        "| {} | {count} of {size} | {streams} | {} | {:.2} | {:.0} | {:.2} | {} |\n",
        sample.item,
        all.len(),
        median(&|one| one.bytes() as f64 * 8e-9 / one.seconds),
        median(&|one| one.files() as f64 / one.seconds),
        median(&|one| one.client_cpu_seconds / (one.bytes().max(1) as f64 / 1e9)),
        sample.done["bottleneck"]["sentence"].as_str().unwrap_or(""),
    )
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|line| format!("- {line}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(text, "\n## {title}\n\n{}", lines.concat());
    }
}

/// One that `doctor --json` printed, in a line.
fn finding(event: &serde_json::Value) -> String {
    let word = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let [level, area, subject, found, cost] = ["level", "area", "subject", "found", "cost"].map(word);
    let cost = if cost.is_empty() { cost } else { format!(": {cost}") };
    format!("{level}, {area}, {subject}: {found}{cost}")
}
