//! The folder that a run leaves: `README.md`, `summary.json`, `writes.csv`, and a picture in `plots/`.
//!
//! Every percentile of the summary can be computed again from the writes, unless there are more than `ROWS_MAX` of a run.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::Report;
use super::figures::{Raw, Sample};
use crate::error::{Error, Result};
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};

/// Above it every n-th write is kept.
const ROWS_MAX: usize = 20_000;
/// In a picture.
const POINTS_MAX: usize = 400;

pub fn write(report: &Report, dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let json = serde_json::to_string_pretty(report).expect("plain values have a JSON form") + "\n";
    for (name, text) in [("writes.csv", csv(report)), ("summary.json", json), ("README.md", readme(report))] {
        let path = dir.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    plot(report).write(&dir.join("plots"))
}

fn csv(report: &Report) -> String {
    let mut text = String::from("tool,round,file,end,written_seconds,lag_ms,is_seen\n");
    for raw in &report.raw {
        for row in raw.rows.iter().step_by(raw.rows.len().div_ceil(ROWS_MAX).max(1)) {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{},{},{},{},{:.6},{:.3},{}",
                raw.tool, raw.round, row.file, row.end, row.written_seconds, row.lag_ms, row.is_seen
            );
        }
    }
    text
}

fn readme(report: &Report) -> String {
    let (pace, goals) = (&report.pace, &report.goals);
    let mut text = format!(
        "# Lag of growing files\n\nFiles that grow: {}, to {} bytes each, in writes of {} bytes, {} bytes a second together, for {:.0} \
         s. Files that rest beside them: {}. Round trip {:.1} ms. {} UTC.\n\n{}\n- {}\n- {}\n\nMade by `{}`. The lag of a write is the \
         time from when it was made until all of it was visible at the other end; goals: median up to {:.1} ms, p99 up to {:.1} \
         ms. `sent` is what left the sending host's interface, headers included, over what was written.\n\n",
        pace.files,
        pace.file_bytes(),
        pace.write_bytes,
        pace.bytes_per_second,
        pace.seconds,
        report.idle_files,
        report.rtt_ms,
        report.environment.started,
        report.environment.lines().iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n"),
        report.environment.network,
        report.environment.file_system,
        report.regenerate,
        goals.p50_ms,
        goals.p99_ms,
    );
    text.push_str(
        "| tool | round | median ms | p99 ms | most ms | never seen | wrong while growing | wrong in the end | shrank | sent | \
         core % | peak MiB | streaming/bulk | exit |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    report.samples.iter().for_each(|sample| row(sample, &mut text));
    text.push('\n');
    let mut list = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = write!(text, "{title}:\n\n{}\n\n", lines.join("\n"));
        }
    };
    list("Versions", report.tools.iter().map(|(tool, version)| format!("- {tool}: {version}")).collect());
    list("Commands", report.commands.iter().map(|(tool, command)| format!("- {tool}: `{command}`")).collect());
    list("Not run", report.missing.iter().map(|missing| format!("- {missing}")).collect());
    let void = |sample: &&Sample| !sample.void.is_empty();
    let why = |sample: &Sample| format!("- {}, round {}: {}", sample.tool, sample.round, sample.void.join("; "));
    list("Void", report.samples.iter().filter(void).map(why).collect());
    text
}

fn row(sample: &Sample, text: &mut String) {
    let _ = writeln!(
        text,
        "| {} | {} | {:.1} | {:.1} | {:.0} | {} | {} | {} | {} | {:.2} | {:.1} | {} | {} | {} |",
        sample.tool,
        sample.round,
        sample.lag_p50_ms,
        sample.lag_p99_ms,
        sample.lag_max_ms,
        sample.unseen,
        sample.wrong_bytes_seen,
        sample.wrong_bytes_in_the_end,
        sample.shrinks,
        sample.sent_bytes as f64 / sample.written_bytes.max(1) as f64,
        sample.client_cpu_share * 100.0,
        sample.client_rss_bytes_max >> 20,
        sample.streaming_over_bulk.map_or(String::new(), |share| format!("{share:.3}")),
        sample.exit.map_or("killed".to_owned(), |code| code.to_string()),
    );
}

/// Lag over time, of the first round.
fn plot(report: &Report) -> Plot {
    let series = |raw: &Raw| {
        let step = raw.rows.len().div_ceil(POINTS_MAX).max(1);
        let points = raw.rows.chunks(step).filter_map(|rows| {
            let most = rows.iter().map(|row| row.lag_ms).fold(0.0, f64::max);
            Some(Point::at(rows.first()?.written_seconds, most.max(0.1)))
        });
        Series { name: raw.tool.clone(), kind: Kind::Measured, points: points.collect() }
    };
    Plot {
        name: "lag".into(),
        title: "Lag of growing files".into(),
        note: format!("round trip {:.1} ms; the longest lag in each part of the time", report.rtt_ms),
        x: Axis::new("time of the write (s)", Scale::Linear, Unit::Number),
        y: Axis::new("lag (ms)", Scale::Log10, Unit::Milliseconds),
        series: report.raw.iter().filter(|raw| raw.round == 1).map(series).collect(),
    }
}
