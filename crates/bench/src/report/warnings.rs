//! Reasons to doubt the figures, so that a reader meets them before the figures.

use std::collections::BTreeSet;

use super::figures::Figures;
use crate::compare::record::Report;
use crate::sample::State;
use crate::statistics::{Spread, Summary};
use crate::tool::Class;

/// Fewer give no interval worth the name.
const ROUNDS_MIN: u32 = 5;
/// Below it, starting programs and the clock's grain weigh too much.
const SECONDS_MIN: f64 = 0.5;
/// Width of the middle half, of the median.
const SPREAD_MAX: f64 = 0.15;

pub fn of(report: &Report, figures: &Figures) -> Vec<String> {
    let mut lines: Vec<String> = report.missing.iter().map(|missing| format!("not there: {missing}")).collect();
    lines.extend(report.notes.iter().cloned());
    if report.rounds < ROUNDS_MIN {
        lines.push(format!("only {} counted rounds", report.rounds));
    }
    let of_void: BTreeSet<[&str; 3]> = report
        .samples
        .iter()
        .filter(|sample| sample.state == State::Void)
        .map(|sample| [sample.condition.as_str(), &sample.set, &sample.tool])
        .collect();
    for [condition, set, tool] in of_void {
        // A tool without a counted run has no row that could say so.
        if !figures.summaries.iter().any(|s| s.set == set && s.tool == tool && s.condition == condition) {
            let what = named(condition, set, tool);
            lines.push(format!("{what}: no run counts: the emulated link was late or overrun"));
        }
    }
    figures.summaries.iter().for_each(|summary| of_summary(summary, &mut lines));
    lines
}

fn of_summary(summary: &Summary, lines: &mut Vec<String>) {
    let what = named(&summary.condition, &summary.set, &summary.tool);
    let Spread { n, quartile_1, quartile_3, median, .. } = summary.seconds;
    if summary.disturbed > 0 {
        lines.push(format!("{what}: {} of {n} runs were disturbed by other processes", summary.disturbed));
    }
    if median < SECONDS_MIN && summary.class != Class::Reference {
        lines.push(format!("{what}: shorter than {SECONDS_MIN} s: a larger set would say more"));
    }
    if summary.void > 0 {
        let void = summary.void;
        lines.push(format!("{what}: {void} runs are void: the emulated link was late or overrun; they count nowhere"));
    }
    if summary.failed > 0 {
        lines.push(format!("{what}: {} runs failed", summary.failed));
    }
    if !summary.outliers.is_empty() {
        let rounds: Vec<String> = summary.outliers.iter().map(u32::to_string).collect();
        lines.push(format!("{what}: round {} lies far from the others", rounds.join(", ")));
    }
    if (quartile_3 - quartile_1) > SPREAD_MAX * median {
        let percent = (quartile_3 - quartile_1) / median * 100.0;
        lines.push(format!("{what}: the middle half of the times spans {percent:.0} % of the median"));
    }
}

fn named(condition: &str, set: &str, tool: &str) -> String {
    if condition.is_empty() { format!("{set}, {tool}") } else { format!("{condition}, {set}, {tool}") }
}
