//! The figures of a sweep: one row for each tool, set and condition, never across them; and the bundle's files.
//!
//! Beside the bundle that every report has, a sweep leaves `sweep.md` (its rows as tables), `cells.csv` (the same for
//! programs) and plots over file size for each group of conditions that differ in one thing only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::CEILINGS;
use super::bound::{self, OF_BOUND_MAX};
use super::pairs::PAIRS;
use super::run::FROM_START;
use crate::ceiling;
use crate::compare::Report;
use crate::error::{Error, Result};
use crate::report;
use crate::sample::{Sample, State};
use crate::statistics::Spread;
use crate::tool::Class;

/// All counted runs of one tool on one set in one condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    pub condition: String,
    pub set: String,
    pub tool: String,
    pub is_ours: bool,
    pub class: Class,
    pub file_bytes: u64,
    pub gbit_per_second: Spread,
    pub gbit_per_second_mean: f64,
    /// Of the runs, not of their mean; 0 for a single one.
    pub gbit_per_second_deviation: f64,
    pub files_per_second_median: f64,
    pub cpu_seconds_per_gb_median: f64,
    /// Median rate over the best ceiling of the condition; none without one.
    pub efficiency: Option<f64>,
    /// Median time of ours over what the path leaves to it; none where the link has no rate.
    pub of_bound: Option<f64>,
    pub cpu_bound: usize,
    pub void: usize,
    pub failed: usize,
}

/// The rows of a sweep in the order of its samples, and the ceiling of each condition in Gbit/s.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    pub rows: Vec<Row>,
    pub ceilings: BTreeMap<String, f64>,
    /// The same counted from the first byte on, where that was measured.
    pub starts: BTreeMap<String, f64>,
}

impl Figures {
    pub fn of(samples: &[Sample]) -> Figures {
        let (mut ceilings, mut starts) = (BTreeMap::new(), BTreeMap::new());
        // Bundles of earlier versions hold flows that count and cannot be true.
        let is_true = |sample: &&Sample| {
            ceiling::above(sample.gbit_per_second() * 1e9, ceiling::link_of_condition(&sample.condition)).is_none()
        };
        let counted = samples.iter().filter(|sample| sample.set == CEILINGS && sample.state == State::Counted);
        for sample in counted.filter(is_true) {
            let kind = if sample.tool.starts_with(FROM_START) { &mut starts } else { &mut ceilings };
            let best: &mut f64 = kind.entry(sample.condition.clone()).or_default();
            *best = best.max(sample.gbit_per_second());
        }
        let mut keys: Vec<[&str; 3]> = Vec::new();
        let key = |sample: &'_ Sample| [&sample.condition[..], &sample.set[..], &sample.tool[..]].map(str::to_owned);
        let mut by_key: BTreeMap<[String; 3], Vec<&Sample>> = BTreeMap::new();
        for sample in samples {
            let of_key = by_key.entry(key(sample)).or_default();
            if of_key.is_empty() {
                keys.push([&sample.condition, &sample.set, &sample.tool]);
            }
            of_key.push(sample);
        }
        let row = |key: [&str; 3]| row(by_key.get(&key.map(str::to_owned))?, &ceilings);
        let rows = keys.into_iter().filter_map(row).collect();
        Figures { rows, ceilings, starts }
    }

    pub fn find(&self, condition: &str, set: &str, tool: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.condition == condition && row.set == set && row.tool == tool)
    }

    /// Rows of work, ceilings and the second races of grids left out.
    pub fn work(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.set != CEILINGS && !row.condition.ends_with(PAIRS))
    }

    /// Conditions in their order.
    pub fn conditions(&self) -> Vec<&str> {
        let mut conditions: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| !row.condition.ends_with(PAIRS)) {
            if !conditions.contains(&row.condition.as_str()) {
                conditions.push(&row.condition);
            }
        }
        conditions
    }
}

fn row(samples: &[&Sample], ceilings: &BTreeMap<String, f64>) -> Option<Row> {
    let counted: Vec<&Sample> = samples.iter().copied().filter(|sample| sample.state == State::Counted).collect();
    let first = counted.first()?;
    let median = |value: fn(&Sample) -> f64| Spread::of(counted.iter().map(|s| value(s))).map_or(0.0, |s| s.median);
    let rates: Vec<f64> = counted.iter().map(|sample| sample.gbit_per_second()).collect();
    let gbit_per_second = Spread::of(rates.iter().copied())?;
    let (mean, deviation) = mean_and_deviation(&rates);
    let ceiling = ceilings.get(first.condition.trim_end_matches(PAIRS)).filter(|_| first.set != CEILINGS);
    let bound = bound::seconds(&first.condition, first.bytes).filter(|_| first.is_ours && first.set != CEILINGS);
    let count = |state| samples.iter().filter(|sample| sample.state == state).count();
    Some(Row {
        condition: first.condition.clone(),
        set: first.set.clone(),
        tool: first.tool.clone(),
        is_ours: first.is_ours,
        class: first.class,
        file_bytes: first.bytes / first.files.max(1),
        gbit_per_second,
        gbit_per_second_mean: mean,
        gbit_per_second_deviation: deviation,
        files_per_second_median: median(Sample::files_per_second),
        cpu_seconds_per_gb_median: median(|sample| sample.cpu_seconds() / (sample.bytes.max(1) as f64 / 1e9)),
        efficiency: ceiling.map(|ceiling| gbit_per_second.median / ceiling),
        of_bound: bound.map(|bound| median(|sample| sample.seconds) / bound),
        cpu_bound: counted.iter().filter(|sample| sample.note.contains("CPU bound")).count(),
        void: count(State::Void),
        failed: count(State::Failed),
    })
}

/// Of the sample, divided by n - 1.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

pub fn write(report: &Report, dir: &Path) -> Result<()> {
    report::write(report, dir)?;
    let figures = Figures::of(&report.samples);
    for (name, text) in [("sweep.md", tables(report, &figures)), ("cells.csv", csv(&figures))] {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
    }
    Ok(())
}

/// One table for each condition, and what the defaults lose where there was a grid.
pub fn tables(report: &Report, figures: &Figures) -> String {
    let mut text = String::from("# Sweep\n\n");
    for note in report.missing.iter().map(|missing| format!("not there: {missing}")).chain(report.notes.clone()) {
        let _ = writeln!(text, "- {note}");
    }
    for condition in figures.conditions() {
        let ceiling = figures.ceilings.get(condition);
        let ceiling = ceiling.map_or(String::new(), |gbit| format!(" (memory to memory: {gbit:.3} Gbit/s)"));
        let _ = write!(
            text,
            "\n## {condition}{ceiling}\n\n| set | tool | n | Gbit/s mean | median | SD | of ceiling | of bound | \
             files/s | CPU s/GB | remarks |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for row in figures.work().filter(|row| row.condition == condition) {
            let _ = writeln!(text, "| {} |", cells(row).join(" | "));
        }
    }
    text + &grid_table(figures)
        + &bound_table(figures)
        + "\nSynthetic sets (`gen:`) are made up in memory and discarded at the remote side: no storage is part of them. \
           Rates are those of verified content over the wall time of the client command. SD is that of the runs. Runs \
           that used more than 80 % of all processors are marked CPU bound: their rate is the machine's. The bound is \
           the time of the bytes at the link's rate, slow start and 3 round trips. Raw samples: `samples.jsonl`.\n"
}

fn cells(row: &Row) -> Vec<String> {
    let mut remarks = Vec::new();
    for (count, word) in [(row.cpu_bound, "CPU bound"), (row.void, "void"), (row.failed, "failed")] {
        remarks.extend((count > 0).then(|| format!("{count} {word}")));
    }
    vec![
        row.set.clone(),
        row.tool.clone(),
        row.gbit_per_second.n.to_string(),
        format!("{:.4}", row.gbit_per_second_mean),
        format!("{:.4}", row.gbit_per_second.median),
        format!("{:.4}", row.gbit_per_second_deviation),
        row.efficiency.map_or("-".into(), |share| format!("{share:.3}")),
        row.of_bound.map_or("-".into(), |times| format!("{times:.2}")),
        format!("{:.0}", row.files_per_second_median),
        format!("{:.2}", row.cpu_seconds_per_gb_median),
        remarks.join(", "),
    ]
}

/// Which copies of ours took longer than they may, by what their paths leave to them.
fn bound_table(figures: &Figures) -> String {
    let judged: Vec<(&Row, f64)> = figures.work().filter_map(|row| Some((row, row.of_bound?))).collect();
    let late: Vec<_> = judged.iter().filter(|(_, times)| *times > OF_BOUND_MAX).collect();
    if judged.is_empty() {
        return String::new();
    }
    let (kept, all) = (judged.len() - late.len(), judged.len());
    let mut text =
        format!("\n## Time over bound, at most {OF_BOUND_MAX:.2}\n\n{kept} of {all} cells of ours keep to it.\n");
    if !late.is_empty() {
        text += "\n| condition | set | tool | of bound |\n|---|---|---|---|\n";
    }
    for (row, times) in late {
        let _ = writeln!(text, "| {} | {} | {} | {times:.2} |", row.condition, row.set, row.tool);
    }
    text
}

/// Defaults against the best of the grid, from the runs of the second race where there was one.
fn grid_table(figures: &Figures) -> String {
    let mut lines = Vec::new();
    for condition in figures.conditions() {
        let again = format!("{condition}{PAIRS}");
        let mut sets: Vec<&str> = Vec::new();
        for row in figures.work().filter(|row| row.condition == condition && row.is_ours) {
            if !sets.contains(&row.set.as_str()) {
                sets.push(&row.set);
            }
        }
        for set in sets {
            let of_set: Vec<_> =
                figures.work().filter(|row| row.condition == condition && row.set == set && row.is_ours).collect();
            let (Some(defaults), true) = (of_set.first(), of_set.len() > 1) else { continue };
            let rate = |row: &&&Row| row.gbit_per_second.median;
            let Some(best) = of_set.iter().max_by(|a, b| rate(a).total_cmp(&rate(b))) else { continue };
            let raced = |tool: &str| figures.find(&again, set, tool).map(|row| row.gbit_per_second.median);
            let paired = raced(&defaults.tool).zip(raced(&best.tool));
            let paired = paired.map_or("-".into(), |(own, best)| format!("{:.3}", own / best));
            let ratio = defaults.gbit_per_second.median / best.gbit_per_second.median;
            lines.push(format!("| {condition} | {set} | {} | {ratio:.3} | {paired} |\n", best.tool));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    format!(
        "\n## Defaults against the best of the grid\n\n| condition | set | best | defaults / best in the grid | raced \
         again in pairs |\n|---|---|---|---|---|\n{}",
        lines.concat()
    )
}

fn csv(figures: &Figures) -> String {
    let mut text = String::from(
        "condition,set,tool,file_bytes,n,gbit_per_second_mean,gbit_per_second_median,gbit_per_second_sd,efficiency,\
         files_per_second_median,cpu_seconds_per_gb_median,cpu_bound,void,failed,of_bound\n",
    );
    for row in &figures.rows {
        let [efficiency, of_bound] =
            [row.efficiency, row.of_bound].map(|share| share.map(|share| format!("{share:.4}")).unwrap_or_default());
        let _ = writeln!(
            text,
            "{},\"{}\",{},{},{},{:.6},{:.6},{:.6},{efficiency},{:.1},{:.4},{},{},{},{of_bound}",
            row.condition,
            row.set,
            row.tool.replace(',', ";"),
            row.file_bytes,
            row.gbit_per_second.n,
            row.gbit_per_second_mean,
            row.gbit_per_second.median,
            row.gbit_per_second_deviation,
            row.files_per_second_median,
            row.cpu_seconds_per_gb_median,
            row.cpu_bound,
            row.void,
            row.failed,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::empty_sample;

    fn sample(condition: &str, tool: &str, gbit: f64) -> Sample {
        let sample = empty_sample(tool, 1);
        let (condition, set) = (condition.to_owned(), "10x1MiB".to_owned());
        Sample {
            condition,
            set,
            class: Class::Network,
            is_ours: true,
            seconds: 8.0 / gbit,
            bytes: 1_000_000_000,
            files: 10,
            ..sample
        }
    }

    #[test]
    fn conditions_are_never_mixed_and_efficiency_is_of_the_conditions_own_ceiling() {
        let ceiling = |condition, gbit| Sample { set: CEILINGS.into(), ..sample(condition, "flow, 1 stream", gbit) };
        let samples = [
            ceiling("near", 2.0),
            ceiling("near", 4.0),
            ceiling("far", 1.0),
            sample("near", "thalweg", 3.0),
            sample("near", "thalweg", 5.0),
            sample("far", "thalweg", 0.5),
        ];
        let figures = Figures::of(&samples);
        let near = figures.find("near", "10x1MiB", "thalweg").unwrap();
        let far = figures.find("far", "10x1MiB", "thalweg").unwrap();
        assert!((near.gbit_per_second_mean - 4.0).abs() < 1e-9 && near.gbit_per_second.n == 2);
        assert!((near.gbit_per_second_deviation - 2_f64.sqrt()).abs() < 1e-9);
        assert!((near.efficiency.unwrap() - 1.0).abs() < 1e-9 && (far.efficiency.unwrap() - 0.5).abs() < 1e-9);
        assert_eq!((figures.work().count(), figures.conditions()), (2, vec!["near", "far"]));
    }

    #[test]
    fn the_defaults_are_held_against_the_winner_in_the_runs_of_the_second_race() {
        let again = format!("near{PAIRS}");
        let samples = [
            sample("near", "thalweg", 3.0),
            sample("near", "thalweg streams=4", 4.0),
            sample(&again, "thalweg", 3.8),
            sample(&again, "thalweg streams=4", 4.0),
        ];
        let table = grid_table(&Figures::of(&samples));
        assert!(table.contains("| near | 10x1MiB | thalweg streams=4 | 0.750 | 0.950 |"), "{table}");
    }

    #[test]
    fn cells_that_take_more_than_their_path_leaves_to_them_are_named() {
        let path = "rate=1Gbit rtt=74ms loss=0 cc=cubic streams=4";
        let slow = "rate=1Gbit rtt=1ms loss=0 cc=cubic streams=4";
        let rival = Sample { is_ours: false, ..sample(path, "rsync", 0.5) };
        let samples = [sample(path, "thalweg", 0.9), sample(slow, "thalweg", 0.9), rival];
        let figures = Figures::of(&samples);
        let of = |condition: &str, tool: &str| figures.find(condition, "10x1MiB", tool).unwrap().of_bound;
        assert!((of(path, "thalweg").unwrap() - 8.889 / 8.499).abs() < 0.001 && of(path, "rsync").is_none());
        let table = bound_table(&figures);
        let named = format!("| {slow} | 10x1MiB | thalweg | 1.11 |");
        assert!(table.contains("1 of 2 cells") && table.contains(&named) && !table.contains(path), "{table}");
        assert!(tables(&Report::default(), &figures).contains(&table));
        assert_eq!(bound_table(&Figures::of(&[])), "");
    }
}
