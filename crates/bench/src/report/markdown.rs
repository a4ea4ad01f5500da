//! Tables and the story of a race, for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use model::quantity::ByteCount;

use super::{Figures, network};
use crate::compare::Report;
use crate::outlier::outliers;
use crate::sample::State;
use crate::statistics::{Ratio, Spread, Summary};
use crate::tool::Class;

pub fn summary(report: &Report, figures: &Figures) -> String {
    let mut text = String::from("# Results\n\n");
    text += &warnings(report, figures);
    for set in &report.sets {
        let title = format!("{}: {} files, {}", set.name, thousands(set.files as f64), ByteCount(set.bytes));
        text += &section(&title, figures, &set.name);
        text += &network::section(&report.samples, &set.name);
    }
    let references: Vec<&Summary> = figures.summaries.iter().filter(|s| s.class == Class::Reference).collect();
    if !references.is_empty() {
        text += "## Ceilings, each measured alone\n\n| what | n | seconds | rate | CPU s |\n|---|---|---|---|---|\n";
        for summary in references {
            let rate = if summary.files_per_second_median > 1_000.0 {
                format!("{} files/s", thousands(summary.files_per_second_median))
            } else {
                format!("{:.1} Gbit/s", summary.gbit_per_second_median)
            };
            let cpu = summary.client_cpu_seconds_median + summary.server_cpu_seconds_median.unwrap_or(0.0);
            let (tool, n) = (&summary.tool, summary.seconds.n);
            row(&mut text, &[tool, &n.to_string(), &spread(&summary.seconds), &rate, &format!("{cpu:.2}")]);
        }
        text.push('\n');
    }
    text + "Times are seconds: median [first quartile - third quartile] (minimum - maximum). CPU is user and system time of \
            both ends. Peak memory is the largest single process of each end. First content: until 64 KiB had left the client's host; \
            sent: all frames that left it. Raw samples: `samples.csv`.\n"
}

pub fn readme(report: &Report) -> String {
    let machine = &report.environment;
    let mut text = format!("# A race of {}\n\n", machine.started);
    text += "What was measured: the time from starting a client command to its end, connection included, for a delivery \
             whose every file was then found equal to its source by independent code. Tables: `summary.md`; every run, \
             discarded, void and failed ones included: `samples.csv`.\n\n## Machine\n\n";
    let kind = if machine.is_virtual { "virtual machine" } else { "host" };
    let _ = writeln!(text, "- {kind}, {} x {}, {}", machine.cores, machine.cpu, ByteCount(machine.memory_bytes));
    let _ = writeln!(text, "- Linux {}", machine.kernel);
    let _ = writeln!(
        text,
        "- source and destination: {} (huge pages for shared memory: {})",
        machine.file_system, machine.shmem_huge_pages
    );
    if !machine.congestion_control.is_empty() {
        let _ = writeln!(
            text,
            "- network: namespaces of this machine joined by veth, MTU 9000, {}; {}; both ends share the cores",
            machine.congestion_control, machine.network
        );
    }
    text += "\n## Tools, settings, commands\n\n`$WORK` is the run's folder; clients ran on one host, servers on the other.\n\n";
    for tool in &report.tools {
        let _ = writeln!(text, "- **{}** {}: {}", tool.name, tool.version, tool.protection);
        if !tool.server.is_empty() {
            let _ = writeln!(text, "  - server: `{}`", tool.server);
        }
        for (set, client) in &tool.clients {
            let _ = writeln!(text, "  - {set}: `{client}`");
        }
    }
    for missing in &report.missing {
        let _ = writeln!(text, "- not there: {missing}");
    }
    text += &network::set_up(&report.tools);
    let _ = write!(text, "\n## How\n\n{}", conventions(report));
    if !report.regenerate.is_empty() {
        let _ = write!(text, "\n## Again\n\n```\n{}\n```\n", report.regenerate);
    }
    text
}

fn conventions(report: &Report) -> String {
    format!(
        "- Tools alternate within each of {} rounds; one more round, the first, is discarded.\n\
         - Before each run the memory it will fill is touched and given back, because a virtual machine returns free \
         memory to its host and pays several times more to touch it again. The destination folder is fresh each time. \
         A run waits, for a bounded time, until others leave the machine alone.\n\
         - Data sets are generated (seed {}), do not compress, and no two blocks are equal.\n\
         - Ratios are paired: the rival's time divided by ours in the same round; the interval is that of the median, \
         from order statistics.\n\
         - A run is marked disturbed when others used more than 5 % of the machine meanwhile.\n",
        report.rounds, report.seed
    )
}

fn section(title: &str, figures: &Figures, set: &str) -> String {
    let mut text = format!("## {title}\n\n");
    text += "| tool | n | seconds | Gbit/s | files/s | CPU s client + server | CPU s/GB | CPU us/file | peak MiB \
             client, server |\n";
    text += "|---|---|---|---|---|---|---|---|---|\n";
    for summary in figures.summaries.iter().filter(|summary| summary.set == set) {
        let mebibytes = |bytes: u64| (bytes >> 20).to_string();
        let server_cpu = summary.server_cpu_seconds_median.map(|cpu| format!(" + {cpu:.2}")).unwrap_or_default();
        let server_rss = summary.server_rss_bytes_max.map(|rss| format!(", {}", mebibytes(rss))).unwrap_or_default();
        row(
            &mut text,
            &[
                &summary.tool,
                &summary.seconds.n.to_string(),
                &spread(&summary.seconds),
                &format!("{:.2}", summary.gbit_per_second_median),
                &thousands(summary.files_per_second_median),
                &format!("{:.2}{server_cpu}", summary.client_cpu_seconds_median),
                &format!("{:.2}", summary.cpu_seconds_per_gb_median),
                &format!("{:.1}", summary.cpu_us_per_file_median),
                &format!("{}{server_rss}", mebibytes(summary.client_rss_bytes_max)),
            ],
        );
    }
    for summary in figures.summaries.iter().filter(|summary| summary.set == set) {
        if let Some(seconds) = summary.reported_seconds_median {
            let _ = writeln!(text, "\n{} itself reports {seconds:.3} s (median).", summary.tool);
        }
    }
    let ratios: Vec<&Ratio> = figures.ratios.iter().filter(|ratio| ratio.set == set).collect();
    if !ratios.is_empty() {
        text += "\n| rate of ours / rival's | pairs | median | interval of the median |\n|---|---|---|---|\n";
        for ratio in ratios {
            let interval = &ratio.interval;
            let confidence = interval.confidence * 100.0;
            let range = format!("{:.2} - {:.2} ({confidence:.0} %)", interval.low, interval.high);
            let both = format!("{} / {}", ratio.ours, ratio.rival);
            row(&mut text, &[&both, &ratio.speedup.n.to_string(), &format!("{:.2}", ratio.speedup.median), &range]);
        }
    }
    text.push('\n');
    text
}

/// Reasons to doubt the figures, first.
fn warnings(report: &Report, figures: &Figures) -> String {
    /// Fewer give no interval worth the name.
    const ROUNDS_MIN: u32 = 5;
    /// Width of the middle half, of the median.
    const SPREAD_MAX: f64 = 0.15;
    /// Below it, starting programs and the clock's grain weigh too much.
    const SECONDS_MIN: f64 = 0.5;
    let mut lines: Vec<String> = report.missing.iter().map(|missing| format!("not there: {missing}")).collect();
    lines.extend(report.notes.iter().cloned());
    if report.rounds < ROUNDS_MIN {
        lines.push(format!("only {} counted rounds", report.rounds));
    }
    let void = report.samples.iter().filter(|sample| sample.state == State::Void);
    let of_void: BTreeSet<_> = void.map(|sample| (&sample.set, &sample.tool)).collect();
    // A tool without a counted run has no row that could say so.
    let has_row =
        |(set, tool): &(&String, &String)| figures.summaries.iter().any(|s| s.set == **set && s.tool == **tool);
    for (set, tool) in of_void.into_iter().filter(|of| !has_row(of)) {
        lines.push(format!("{set}, {tool}: no run counts: the emulated link was late or overrun"));
    }
    for summary in &figures.summaries {
        let what = format!("{}, {}", summary.set, summary.tool);
        let Spread { n, quartile_1, quartile_3, median, .. } = summary.seconds;
        if summary.disturbed > 0 {
            lines.push(format!("{what}: {} of {n} runs were disturbed by other processes", summary.disturbed));
        }
        if median < SECONDS_MIN && summary.class != Class::Reference {
            lines.push(format!("{what}: shorter than {SECONDS_MIN} s: a larger set would say more"));
        }
        if summary.void > 0 {
            let void = summary.void;
            lines.push(format!(
                "{what}: {void} runs are void: the emulated link was late or overrun; they count nowhere"
            ));
        }
        if summary.failed > 0 {
            lines.push(format!("{what}: {} runs failed", summary.failed));
        }
        if (quartile_3 - quartile_1) > SPREAD_MAX * median {
            lines.push(format!("{what}: the middle half of the times spans {:.0} % of the median", {
                (quartile_3 - quartile_1) / median * 100.0
            }));
        }
    }
    for sample in outliers(&report.samples) {
        let (set, tool, round, seconds) = (&sample.set, &sample.tool, sample.round, sample.seconds);
        lines.push(format!("{set}, {tool}: round {round} is an outlier: {seconds:.3} s"));
    }
    if lines.is_empty() {
        return String::new();
    }
    let list: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("Read with care:\n\n{list}\n")
}

fn row(text: &mut String, cells: &[&str]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn spread(seconds: &Spread) -> String {
    let Spread { median, quartile_1, quartile_3, min, max, .. } = seconds;
    format!("{median:.3} [{quartile_1:.3} - {quartile_3:.3}] ({min:.3} - {max:.3})")
}

/// A whole number with separators, for rates and counts.
fn thousands(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(thousands(50_000.4), "50,000");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(2.31), "2.31");
    }
}
