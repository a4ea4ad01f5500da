//! An outcome as tables, raw samples and a bundle of files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use model::quantity::{ByteCount, Rate};

use super::measured::{Measured, Operation};
use super::summary::{Outcome, Row};
use super::verdict::{Side, Verdict};
use crate::error::{Error, Kind, Result};

const RAW_HEADER: &str = "operation,file_bytes,round,counted,seconds,files,operations,bytes,bytes_per_second,\
files_per_second,operations_per_second,cpu_seconds,foreign_cpu_seconds,steal_seconds,fetched_bytes,cut,call,\
call_count,mean_us,p50_us,p90_us,p99_us,p999_us,max_us\n";

/// For a terminal.
pub fn text(outcome: &Outcome) -> String {
    let mut text = header(outcome);
    for (title, table) in tables(outcome) {
        let _ = write!(text, "\n{title}\n{}", table.aligned());
    }
    text + &conclusions(outcome)
}

pub fn markdown(outcome: &Outcome) -> String {
    let mut text = format!("# Storage alone\n\n{}\n", header(outcome).replace('\n', "\n\n").trim_end());
    for (title, table) in tables(outcome) {
        let _ = write!(text, "\n## {title}\n\n{}", table.markdown());
    }
    text + &conclusions(outcome).replace("\n", "\n\n").replace("\n\n\n", "\n\n")
}

/// Every round, the discarded one included; one line for each kind of call in it.
pub fn csv(outcome: &Outcome) -> String {
    let mut text = RAW_HEADER.to_owned();
    for measured in &outcome.all {
        for (call, histogram) in &measured.calls {
            let p = histogram.percentiles();
            let _ = writeln!(
                text,
                "{},{call},{},{:.3},{:.3},{:.3},{:.3},{:.3},{:.3}",
                raw_fields(measured),
                p.count,
                p.mean_us,
                p.p50_us,
                p.p90_us,
                p.p99_us,
                p.p999_us,
                p.max_us
            );
        }
    }
    text
}

/// Writes the bundle to a directory that is new or empty.
pub fn write(outcome: &Outcome, dir: &Path) -> Result<()> {
    check_out(dir)?;
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let json = serde_json::to_string_pretty(outcome).map_err(|e| Error::io("write", dir)(std::io::Error::other(e)))?;
    let readme = format!(
        "# Storage alone\n\nMade {} UTC by:\n\n    {}\n\n{}\n\n`summary.md` holds the tables, `summary.json` the same for \
         programs, `samples.csv` every round. How to read them: docs/measuring.md.\n",
        outcome.environment.started,
        outcome.options.regenerate,
        outcome.environment.lines().iter().map(|line| format!("- {line}")).collect::<Vec<_>>().join("\n")
    );
    for (name, content) in [
        ("README.md", readme),
        ("summary.md", markdown(outcome)),
        ("summary.json", json + "\n"),
        ("samples.csv", csv(outcome)),
    ] {
        let path = dir.join(name);
        fs::write(&path, content).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// Refuses a directory that has something in it, which the caller wants to know before the measurement.
pub fn check_out(dir: &Path) -> Result<()> {
    let first = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::io("write the bundle to", dir)(e)),
    };
    match first {
        Some(_) => Err(Error::new(Kind::Usage, "write the bundle to", dir.display(), "the directory is not empty")),
        None => Ok(()),
    }
}

fn raw_fields(measured: &Measured) -> String {
    let fields = [
        measured.operation.to_string(),
        measured.file_bytes.to_string(),
        measured.round.to_string(),
        (measured.round > 0).to_string(),
        format!("{:.6}", measured.seconds),
        measured.files.to_string(),
        measured.operations.to_string(),
        measured.bytes.to_string(),
        format!("{:.0}", measured.bytes_per_second()),
        format!("{:.1}", measured.files_per_second()),
        format!("{:.1}", measured.operations_per_second()),
        format!("{:.3}", measured.cpu_seconds),
        format!("{:.2}", measured.foreign_cpu_seconds),
        format!("{:.2}", measured.steal_seconds),
        measured.fetched_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
        measured.is_cut.to_string(),
    ];
    fields.join(",")
}

fn header(outcome: &Outcome) -> String {
    let environment = &outcome.environment;
    let mut text = format!("storage: {}\n", outcome.storage.describe());
    if let Some(options) = &outcome.storage.mount_options {
        let _ = writeln!(text, "mounted: {options}");
    }
    let _ = writeln!(
        text,
        "machine: {} cores, {}, kernel {}{}",
        environment.cores,
        ByteCount(environment.memory_bytes),
        environment.kernel,
        if environment.is_virtual { ", virtual" } else { "" }
    );
    let _ = writeln!(text, "settings: {}", outcome.settings());
    let rounds = outcome.options.rounds;
    let _ = writeln!(text, "figures: medians of {rounds} rounds [lowest to highest], one more discarded");
    text
}

fn tables(outcome: &Outcome) -> Vec<(&'static str, Table)> {
    let (data, names): (Vec<&Row>, Vec<&Row>) =
        outcome.rows.iter().partition(|row| matches!(row.operation, Operation::Write | Operation::Read));
    let mut tables = Vec::new();
    if !data.is_empty() {
        tables.push(("Throughput", throughput(&data)));
    }
    if !names.is_empty() {
        tables.push(("Names (inside each call; publish is create, write, rename together)", rates(&names)));
    }
    tables.push(("Latency of single calls, microseconds", latencies(&outcome.rows)));
    tables
}

fn throughput(rows: &[&Row]) -> Table {
    let mut table =
        Table::new(["operation", "file size", "files", "GB/s", "spread", "Gbit/s", "files/s", "CPU s/GB", "cached"]);
    for row in rows {
        let rate = row.bytes_per_second;
        table.add([
            row.operation.to_string(),
            ByteCount(row.file_bytes).to_string(),
            row.files.to_string(),
            digits(rate.median / 1e9),
            format!("[{} to {}]", digits(rate.min / 1e9), digits(rate.max / 1e9)),
            digits(rate.median * 8.0 / 1e9),
            format!("{:.0}", row.files_per_second.median),
            row.cpu_seconds_per_gb.map(digits).unwrap_or_default(),
            row.cached_share
                .filter(|_| row.operation == Operation::Read)
                .map_or("-".into(), |share| format!("{:.0} %", share * 100.0)),
        ]);
    }
    table
}

fn rates(rows: &[&Row]) -> Table {
    let mut table = Table::new(["operation", "file size", "files", "per second", "spread", "CPU us/file"]);
    for row in rows {
        let rate = row.operations_per_second;
        table.add([
            row.operation.to_string(),
            ByteCount(row.file_bytes).to_string(),
            row.files.to_string(),
            format!("{:.0}", rate.median),
            format!("[{:.0} to {:.0}]", rate.min, rate.max),
            digits(row.cpu_us_per_file),
        ]);
    }
    table
}

fn latencies(rows: &[Row]) -> Table {
    let mut table =
        Table::new(["operation", "file size", "call", "count", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    for row in rows {
        for (call, p) in &row.calls {
            let figures = [p.mean_us, p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.max_us].map(digits);
            let [mean, p50, p90, p99, p999, max] = figures;
            let (operation, size) = (row.operation.to_string(), ByteCount(row.file_bytes).to_string());
            table.add([operation, size, call.to_string(), p.count.to_string(), mean, p50, p90, p99, p999, max]);
        }
    }
    table
}

fn conclusions(outcome: &Outcome) -> String {
    let mut text = String::new();
    if let Some(binds) = outcome.binds {
        let slower = if binds.operation == Operation::Write { "writing" } else { "reading" };
        let _ = match binds.by < 1.05 {
            true => write!(text, "\nbinds: neither; reading and writing are equally fast"),
            false => write!(text, "\nbinds: {slower}; the other side is {:.2} times as fast", binds.by),
        };
        text.push('\n');
    }
    if let Some(verdict) = &outcome.verdict {
        text.push_str(&of_target(verdict));
    }
    for warning in &outcome.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

fn of_target(verdict: &Verdict) -> String {
    let rate = |bytes_per_second| Rate { bytes_per_second };
    let word = |is_good| if is_good { "pass" } else { "FAIL" };
    let mut text = format!("target: {}: {}\n", rate(verdict.target_bytes_per_second), word(verdict.passes));
    for side in &verdict.sides {
        let Side { operation, concurrency, concurrency_needed, .. } = side;
        let _ =
            writeln!(text, "  {operation} throughput: {} ({})", word(side.is_fast_enough), rate(side.bytes_per_second));
        let _ = writeln!(
            text,
            "  {operation} latency: {} ({} us for a block alone: {concurrency_needed} in flight needed, {concurrency} there)",
            word(side.is_concurrent_enough),
            digits(side.latency_alone_us),
        );
        let steps = side.ladder.iter().map(|rung| format!("{}: {}", rung.concurrency(), rate(rung.bytes_per_second)));
        let _ = writeln!(text, "  {operation} by blocks in flight: {}", steps.collect::<Vec<_>>().join(", "));
        let _ = writeln!(text, "  {operation}: {}", side.advice);
    }
    text
}

/// Three significant digits.
fn digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v if v >= 0.1 => format!("{v:.3}"),
        v => format!("{v:.4}"),
    }
}

/// Rows of cells; the first column is text, the others are figures.
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new<const N: usize>(header: [&str; N]) -> Table {
        Table { rows: vec![header.map(str::to_owned).to_vec()] }
    }

    fn add<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.rows[0].len());
        self.rows.push(cells.to_vec());
    }

    fn aligned(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| self.rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }

    fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = format!("|---|{}\n", "---:|".repeat(self.rows[0].len() - 1));
        self.rows[..1].iter().map(line).chain([rule]).chain(self.rows[1..].iter().map(line)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_for_a_terminal_and_ruled_for_a_page() {
        let mut table = Table::new(["what", "figure"]);
        table.add(["a".into(), "1.5".into()]);
        assert_eq!(table.aligned(), "what  figure\na        1.5\n");
        assert_eq!(table.markdown(), "| what | figure |\n|---|---:|\n| a | 1.5 |\n");
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.01234, 0.1234, 1.234, 12.34, 1234.0].map(digits), ["0.0123", "0.123", "1.23", "12.3", "1234"]);
    }
}
