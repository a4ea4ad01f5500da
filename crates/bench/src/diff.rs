//! Two bundles compared: what became faster, slower, dearer, and whether the difference is more than chance.
//!
//! Invariants:
//! - Only what agrees in condition, set, class and tool, with equal work, is compared.
//! - A change counts only beyond the tolerance, with `RUNS_MIN` runs on both sides, and if the intervals of the two
//!   medians do not overlap. Everything beyond the tolerance is shown, and says which it is.
//! - Only our own tools can regress. A rival or a ceiling that changed says that the machine did.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::Report;
use crate::environment::Environment;
use crate::sample::{Sample, State};
use crate::statistics::{Interval, Key, Spread, Summary, keys, summarize_on};
use crate::tool::Class;

/// Part of a median.
pub const TOLERANCE_DEFAULT: f64 = 0.05;
/// Fewer give no interval.
pub const RUNS_MIN: usize = 3;
/// How far below both its neighbours a size has to lie to be a cusp.
const CUSP_DEPTH: f64 = 0.15;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diff {
    pub v: u32,
    pub tolerance: f64,
    /// In the order of the first bundle.
    pub pairs: Vec<Pair>,
    /// What only one of the bundles holds, or holds with other work.
    pub only_before: Vec<String>,
    pub only_after: Vec<String>,
    pub different_work: Vec<String>,
    /// In what the machines differ.
    pub machine: Vec<Difference>,
    /// Sizes of the second bundle that fall out of their curve.
    pub cusps: Vec<Cusp>,
    pub regressions: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    pub condition: String,
    pub set: String,
    pub class: Class,
    pub tool: String,
    pub is_ours: bool,
    pub runs_before: usize,
    pub runs_after: usize,
    pub gbit_per_second: Change,
    pub files_per_second: Change,
    pub cpu_seconds_per_gb: Change,
}

/// Of a median.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Change {
    pub before: f64,
    pub after: f64,
    /// after / before - 1.
    pub relative: f64,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    Better,
    Worse,
    /// Beyond the tolerance, but the intervals of the medians overlap.
    Overlapping,
    /// Beyond the tolerance, with too few runs to tell.
    FewRuns,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Difference {
    pub what: &'static str,
    pub before: String,
    pub after: String,
}

/// A size whose rate lies well below those of both neighbours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cusp {
    pub condition: String,
    pub class: Class,
    pub tool: String,
    pub set: String,
    /// Of the lower neighbour.
    pub relative: f64,
    /// Whether the first bundle has it too.
    pub was_there: bool,
}

/// Compares bundles as `report::read` gives them. `tolerance` is a part: 0.05 for 5 %.
pub fn diff(before: &Report, after: &Report, tolerance: f64) -> Diff {
    let (of_before, of_after) = (counted(&before.samples), counted(&after.samples));
    let has_ours = of_before.keys().any(|key| of_after.contains_key(key) && of_before[key][0].is_ours);
    let mut diff = Diff {
        v: 1,
        tolerance,
        pairs: Vec::new(),
        only_before: Vec::new(),
        only_after: only(&after.samples, &of_after, &of_before),
        different_work: Vec::new(),
        machine: machine(&before.environment, &after.environment),
        cusps: Vec::new(),
        regressions: 0,
    };
    for key in keys(&before.samples).into_iter().filter(|key| of_before.contains_key(key)) {
        let (a, Some(b)) = (&of_before[&key], of_after.get(&key)) else {
            diff.only_before.push(named(&key));
            continue;
        };
        // Ceilings run for a given time: their volume is a result.
        if key.class != Class::Reference && (a[0].bytes, a[0].files) != (b[0].bytes, b[0].files) {
            diff.different_work.push(named(&key));
            continue;
        }
        diff.pairs.push(pair(key, a, b, tolerance));
    }
    let counts = |pair: &&Pair| pair.class != Class::Reference && (pair.is_ours || !has_ours);
    diff.regressions = diff.pairs.iter().filter(counts).filter(|pair| pair.is_worse()).count();
    let earlier = cusps(&summarize_on(&before.samples, 0));
    let is_same =
        |a: &Cusp, b: &Cusp| (&a.condition, a.class, &a.tool, &a.set) == (&b.condition, b.class, &b.tool, &b.set);
    diff.cusps = cusps(&summarize_on(&after.samples, 0));
    for cusp in &mut diff.cusps {
        cusp.was_there = earlier.iter().any(|other| is_same(other, cusp));
    }
    diff
}

impl Pair {
    /// In rate or in processor time. Files per second follow the rate, the work being equal.
    pub fn is_worse(&self) -> bool {
        [self.gbit_per_second, self.cpu_seconds_per_gb].iter().any(|change| change.verdict == Verdict::Worse)
    }

    /// Whether anything lies beyond the tolerance.
    pub fn is_changed(&self) -> bool {
        [self.gbit_per_second, self.cpu_seconds_per_gb].iter().any(|change| change.verdict != Verdict::Same)
    }
}

/// Condition, set and tool on one line.
pub fn named(key: &Key) -> String {
    let parts = [key.condition.as_str(), &key.set, &key.tool];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
}

/// Sizes of a curve whose rate is 15 % below both neighbours, per condition, class and tool.
pub fn cusps(summaries: &[Summary]) -> Vec<Cusp> {
    let mut curves: BTreeMap<(&str, Class, &str), Vec<&Summary>> = BTreeMap::new();
    for summary in summaries.iter().filter(|summary| summary.class != Class::Reference) {
        curves.entry((&summary.condition, summary.class, &summary.tool)).or_default().push(summary);
    }
    let mut cusps = Vec::new();
    for ((condition, class, tool), mut curve) in curves {
        curve.sort_by(|a, b| a.file_bytes().total_cmp(&b.file_bytes()));
        for window in curve.windows(3) {
            let [below, of, above] = [window[0], window[1], window[2]].map(|summary| summary.gbit_per_second_median);
            let lower = below.min(above);
            if of < (1.0 - CUSP_DEPTH) * lower {
                let (condition, tool, set) = (condition.to_owned(), tool.to_owned(), window[1].set.clone());
                cusps.push(Cusp { condition, class, tool, set, relative: of / lower - 1.0, was_there: false });
            }
        }
    }
    cusps
}

type Counted<'a> = BTreeMap<Key, Vec<&'a Sample>>;

fn counted(samples: &[Sample]) -> Counted<'_> {
    let mut counted = Counted::new();
    for sample in samples.iter().filter(|sample| sample.state == State::Counted) {
        counted.entry(Key::of(sample)).or_default().push(sample);
    }
    counted
}

fn only(samples: &[Sample], of: &Counted, other: &Counted) -> Vec<String> {
    let is_only = |key: &Key| of.contains_key(key) && !other.contains_key(key);
    keys(samples).iter().filter(|key| is_only(key)).map(named).collect()
}

fn pair(key: Key, before: &[&Sample], after: &[&Sample], tolerance: f64) -> Pair {
    let change = |value: fn(&Sample) -> f64, more_is_better: bool| {
        let values = |samples: &[&Sample]| samples.iter().map(|sample| value(sample)).collect::<Vec<f64>>();
        change(&values(before), &values(after), tolerance, more_is_better)
    };
    let Key { condition, set, class, tool } = key;
    Pair {
        condition,
        set,
        class,
        tool,
        is_ours: before[0].is_ours,
        runs_before: before.len(),
        runs_after: after.len(),
        gbit_per_second: change(Sample::gbit_per_second, true),
        files_per_second: change(Sample::files_per_second, true),
        cpu_seconds_per_gb: change(Sample::cpu_seconds_per_gb, false),
    }
}

fn change(before: &[f64], after: &[f64], tolerance: f64, more_is_better: bool) -> Change {
    let median = |values: &[f64]| Spread::of(values.iter().copied()).map_or(0.0, |spread| spread.median);
    let (a, b) = (median(before), median(after));
    let relative = if a > 0.0 { b / a - 1.0 } else { 0.0 };
    let verdict = if relative.abs() <= tolerance {
        Verdict::Same
    } else if before.len().min(after.len()) < RUNS_MIN {
        Verdict::FewRuns
    } else if overlap(before, after) {
        Verdict::Overlapping
    } else if (relative > 0.0) == more_is_better {
        Verdict::Better
    } else {
        Verdict::Worse
    };
    Change { before: a, after: b, relative, verdict }
}

fn overlap(before: &[f64], after: &[f64]) -> bool {
    let interval = |values: &[f64]| Interval::of_median(values.iter().copied());
    match (interval(before), interval(after)) {
        (Some(a), Some(b)) => a.low <= b.high && b.low <= a.high,
        _ => true,
    }
}

fn machine(before: &Environment, after: &Environment) -> Vec<Difference> {
    if before.cores == 0 || after.cores == 0 {
        let shown = |of: &Environment| if of.cores == 0 { "not recorded" } else { "recorded" }.to_owned();
        return vec![Difference { what: "machine", before: shown(before), after: shown(after) }];
    }
    // A host gives its guests a little more or less memory from start to start.
    let memory = |of: &Environment| format!("{:.0} GiB", of.memory_bytes as f64 / (1_u64 << 30) as f64);
    let fields = |of: &Environment| {
        [
            ("processor", of.cpu.clone()),
            ("cores", of.cores.to_string()),
            ("memory", memory(of)),
            ("kernel", of.kernel.clone()),
            ("kind", if of.is_virtual { "virtual machine" } else { "host" }.to_owned()),
            ("huge pages for shared memory", of.shmem_huge_pages.clone()),
            ("congestion control", of.congestion_control.clone()),
            ("network", of.network.clone()),
            ("storage", of.file_system.clone()),
        ]
    };
    let both = fields(before).into_iter().zip(fields(after));
    let different = both.filter(|((_, before), (_, after))| before != after);
    different.map(|((what, before), (_, after))| Difference { what, before, after }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::tests::sample;

    fn report(seconds: &[(&str, f64)], rounds: u32) -> Report {
        let mut samples = Vec::new();
        for round in 1..=rounds {
            for (tool, seconds) in seconds {
                samples.push(sample(tool, round, seconds * (1.0 + 0.002 * f64::from(round))));
            }
        }
        Report { samples, ..Report::default() }
    }

    #[test]
    fn a_slower_tool_of_ours_is_a_regression_and_a_slower_rival_is_not() {
        let before = report(&[("thalweg", 1.0), ("rsync", 1.0)], 5);
        let slower = diff(&before, &report(&[("thalweg", 1.2), ("rsync", 1.0)], 5), TOLERANCE_DEFAULT);
        assert_eq!((slower.regressions, slower.pairs[0].gbit_per_second.verdict), (1, Verdict::Worse));
        // Processor time per byte did not change.
        assert_eq!(slower.pairs[0].cpu_seconds_per_gb.verdict, Verdict::Same);
        let rival = diff(&before, &report(&[("thalweg", 1.0), ("rsync", 1.2)], 5), TOLERANCE_DEFAULT);
        assert_eq!((rival.regressions, rival.pairs[1].gbit_per_second.verdict), (0, Verdict::Worse));
        let faster = diff(&before, &report(&[("thalweg", 0.8), ("rsync", 1.0)], 5), TOLERANCE_DEFAULT);
        assert_eq!((faster.regressions, faster.pairs[0].gbit_per_second.verdict), (0, Verdict::Better));
        assert_eq!(diff(&before, &before, TOLERANCE_DEFAULT).regressions, 0);
        assert_eq!(diff(&before, &report(&[("thalweg", 1.2)], 5), 0.25).regressions, 0);
    }

    #[test]
    fn what_chance_could_have_done_is_shown_but_does_not_count() {
        let before = report(&[("thalweg", 1.0)], 5);
        let mut noisy = report(&[("thalweg", 1.2)], 5);
        noisy.samples[0].seconds = 0.9;
        let noisy = diff(&before, &noisy, TOLERANCE_DEFAULT);
        assert_eq!((noisy.regressions, noisy.pairs[0].gbit_per_second.verdict), (0, Verdict::Overlapping));
        let few = diff(&before, &report(&[("thalweg", 1.2)], 2), TOLERANCE_DEFAULT);
        assert_eq!((few.regressions, few.pairs[0].gbit_per_second.verdict), (0, Verdict::FewRuns));
    }

    #[test]
    fn only_equal_work_under_equal_conditions_is_compared() {
        let before = report(&[("thalweg", 1.0), ("rsync", 1.0)], 3);
        let mut after = before.clone();
        for sample in &mut after.samples {
            match sample.is_ours {
                true => sample.condition = "rtt=74ms".into(),
                false => sample.bytes += 1,
            }
        }
        let diff = diff(&before, &after, TOLERANCE_DEFAULT);
        assert!(diff.pairs.is_empty());
        assert_eq!(diff.only_before, ["tiny, thalweg"]);
        assert_eq!(diff.only_after, ["rtt=74ms, tiny, thalweg"]);
        assert_eq!(diff.different_work, ["tiny, rsync"]);
    }

    #[test]
    fn a_size_below_both_neighbours_is_a_cusp() {
        let curve = |seconds: [f64; 4]| {
            let sized = |(power, seconds): (u32, f64)| Sample {
                set: format!("2^{power}"),
                files: 1,
                bytes: 1 << power,
                ..sample("thalweg", 1, seconds * f64::from(1 << power))
            };
            Report { samples: (10..).zip(seconds).map(sized).collect(), ..Report::default() }
        };
        let (smooth, dented) = (curve([1.0, 1.0, 0.9, 0.9]), curve([1.0, 1.3, 0.9, 0.9]));
        let found = diff(&smooth, &dented, TOLERANCE_DEFAULT).cusps;
        assert_eq!((found.len(), found[0].set.as_str(), found[0].was_there), (1, "2^11", false));
        assert!(diff(&dented, &dented, TOLERANCE_DEFAULT).cusps[0].was_there);
        assert!(diff(&dented, &smooth, TOLERANCE_DEFAULT).cusps.is_empty());
    }

    #[test]
    fn machines_that_differ_are_said_to() {
        let mut before = report(&[("thalweg", 1.0)], 3);
        before.environment = Environment { cores: 2, kernel: "6.1".into(), ..Environment::default() };
        let mut after = before.clone();
        after.environment.kernel = "6.2".into();
        let found = diff(&before, &after, TOLERANCE_DEFAULT).machine;
        assert_eq!(found, [Difference { what: "kernel", before: "6.1".into(), after: "6.2".into() }]);
    }
}
