//! Tables and the story of a race, for people.

use std::fmt::Write as _;

use super::figures::Figures;
use super::{set_up, tables, warnings};
use crate::compare::record::Report;

pub const LEGEND: &str = "Times are seconds: median [first quartile - third quartile] (minimum - maximum); rates are \
                          medians, then mean and standard deviation. CPU is user and system time of both ends. Peak \
                          memory is the largest single process of each end. First content: until 64 KiB had left the \
                          sending host; sent: all frames that left it.";

pub fn summary(report: &Report, figures: &Figures) -> String {
    let mut text = String::from("# Results\n\n");
    let doubts = warnings::of(report, figures);
    if !doubts.is_empty() {
        let list: String = doubts.iter().map(|line| format!("- {line}\n")).collect();
        let _ = write!(text, "Read with care:\n\n{list}\n");
    }
    for section in tables::sections(report, figures) {
        let _ = write!(text, "## {}\n\n", section.title);
        table(&mut text, tables::of_tools(&section));
        for summary in &section.summaries {
            if let Some(seconds) = summary.reported_seconds_median {
                let set = if section.has_sets { format!(", {}", summary.set) } else { String::new() };
                let _ = writeln!(text, "\n{}{set} itself reports {seconds:.3} s (median).", summary.tool);
            }
        }
        if !section.ratios.is_empty() {
            text.push('\n');
            table(&mut text, tables::of_ratios(&section));
        }
        text.push('\n');
    }
    for (title, of) in [
        ("Averages over the sets", tables::of_columns(figures)),
        ("Ceilings, each measured alone", tables::of_ceilings(figures)),
    ] {
        if !of.1.is_empty() {
            let _ = write!(text, "## {title}\n\n");
            table(&mut text, of);
            text.push('\n');
        }
    }
    text + LEGEND + " Raw samples: `samples.csv`.\n"
}

pub fn readme(report: &Report) -> String {
    let machine = &report.environment;
    let mut text = format!("# A race of {}\n\n", machine.started);
    text += "What was measured: the time from starting a client command to its end, connection included, for a delivery \
             whose every file was then found equal to its source by independent code. Tables: `summary.md`; all of it on one page: \
             `report.html`; every run, discarded, void and failed ones included: `samples.csv`.\n\n## Machine\n\n";
    machine.lines().iter().for_each(|line| _ = writeln!(text, "- {line}"));
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
        for (name, program) in &tool.programs {
            let _ = writeln!(text, "  - {name}: {}", program.shown());
        }
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
    text += &set_up::section(&report.tools);
    let _ = write!(text, "\n## How\n\n{}", conventions(report));
    if !report.regenerate.is_empty() {
        let _ = write!(text, "\n## Again\n\n```\n{}\n```\n", report.regenerate);
    }
    text
}

/// How it was measured, as a list.
pub fn conventions(report: &Report) -> String {
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

fn table(text: &mut String, (header, rows): (Vec<&str>, Vec<Vec<String>>)) {
    let _ = writeln!(text, "| {} |\n|{}", header.join(" | "), "---|".repeat(header.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}
