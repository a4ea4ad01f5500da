//! Two bundles compared, or two builds that raced each other: what became faster, slower, dearer, and whether the difference
//! is more than chance.
//!
//! Invariants:
//! - Only what agrees in condition, set, class and tool, with equal work, is compared.
//! - A change counts if it is more than chance (`power`) and more than half the tolerance. "Same" is said only where a loss of
//!   the tolerance is excluded; what is neither is inconclusive, and says how many runs would tell.
//! - Only our own tools can regress. A rival or a ceiling that changed says that the machine did.
//! - Ours regressed too where it failed more often than before. What of ours was measured before and is not any more is
//!   inconclusive: no build passes by not being measured.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::compare::Report;
use crate::environment::Environment;
use crate::power::{Effect, Power};
use crate::sample::{Sample, State};
use crate::statistics::{Key, Spread, Summary, keys, summarize_on};
use crate::tool::Class;

/// Part of a median.
pub const TOLERANCE_DEFAULT: f64 = 0.05;
/// What a build that races the one under test is called.
pub const EARLIER: &str = "earlier";
/// How far below both its neighbours a size has to lie to be a cusp.
const CUSP_DEPTH: f64 = 0.15;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Diff {
    pub v: u32,
    pub tolerance: f64,
    /// The builds ran in the same rounds.
    pub is_paired: bool,
    /// In the order of the first bundle.
    pub pairs: Vec<Pair>,
    /// What only one of the bundles holds, or holds with other work.
    pub only_before: Vec<String>,
    pub only_after: Vec<String>,
    pub different_work: Vec<String>,
    /// What of ours failed more often than before, and how often.
    pub failing: Vec<String>,
    /// In what the machines differ.
    pub machine: Vec<Difference>,
    /// Sizes of the second bundle that fall out of their curve.
    pub cusps: Vec<Cusp>,
    pub regressions: usize,
    /// Of ours, those whose rate may have fallen by the tolerance without being noticed, and those that only the first
    /// bundle holds, or holds with this work.
    pub inconclusive: usize,
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
    /// None with too few runs.
    pub power: Option<Power>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A loss of the tolerance is excluded.
    Same,
    Better,
    Worse,
    /// Neither is a change more than chance, nor is a loss of the tolerance excluded.
    Inconclusive,
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
    compared(before, after, tolerance, false)
}

/// Compares the two builds of one race, round by round: `EARLIER` with the one that it raced. None where it has no such
/// build.
pub fn diff_of_builds(race: &Report, tolerance: f64) -> Option<Diff> {
    let (mut before, mut after) = (race.clone(), race.clone());
    let is_earlier = |sample: &Sample| sample.is_ours && sample.tool.starts_with(EARLIER);
    let tested = race.samples.iter().find(|sample| sample.is_ours && !is_earlier(sample));
    let label = tested?.tool.trim_end_matches(" (local)").to_owned();
    before.samples.retain(is_earlier);
    after.samples.retain(|sample| sample.is_ours && !is_earlier(sample));
    for sample in &mut before.samples {
        sample.tool = sample.tool.replacen(EARLIER, &label, 1);
    }
    (!before.samples.is_empty()).then(|| compared(&before, &after, tolerance, true))
}

fn compared(before: &Report, after: &Report, tolerance: f64, is_paired: bool) -> Diff {
    let (of_before, of_after) = (counted(&before.samples), counted(&after.samples));
    let has_ours = before.samples.iter().any(|sample| sample.is_ours);
    let failing = failing(&before.samples, &after.samples);
    let told = |key: &Key| failing.get(key).map(|(now, then)| format!("{}: {now} failed, {then} before", named(key)));
    let mut diff = Diff {
        v: 1,
        tolerance,
        is_paired,
        pairs: Vec::new(),
        only_before: Vec::new(),
        only_after: only(&after.samples, &of_after, &of_before),
        different_work: Vec::new(),
        failing: keys(&after.samples).iter().filter_map(told).collect(),
        machine: machine(&before.environment, &after.environment),
        cusps: Vec::new(),
        regressions: failing.len(),
        inconclusive: 0,
    };
    let counts = |pair: &Pair| pair.class != Class::Reference && (pair.is_ours || !has_ours);
    for key in keys(&before.samples).into_iter().filter(|key| of_before.contains_key(key)) {
        // Counted above.
        let is_failing = failing.contains_key(&key);
        let (a, Some(b)) = (&of_before[&key], of_after.get(&key)) else {
            diff.only_before.push(named(&key));
            diff.inconclusive += usize::from(of_before[&key][0].is_ours && !is_failing);
            continue;
        };
        // Ceilings run for a given time: their volume is a result.
        if key.class != Class::Reference && (a[0].bytes, a[0].files) != (b[0].bytes, b[0].files) {
            diff.different_work.push(named(&key));
            diff.inconclusive += usize::from(a[0].is_ours && !is_failing);
            continue;
        }
        let pair = pair(key, a, b, tolerance, is_paired);
        if counts(&pair) && !is_failing {
            diff.regressions += usize::from(pair.is_worse());
            diff.inconclusive += usize::from(pair.is_inconclusive());
        }
        diff.pairs.push(pair);
    }
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

    /// Whether its rate may have fallen by the tolerance without being noticed. Processor time is counted in steps that make
    /// it too coarse for that.
    pub fn is_inconclusive(&self) -> bool {
        self.gbit_per_second.verdict == Verdict::Inconclusive
    }

    /// Whether anything became better or worse, or looks so.
    pub fn is_changed(&self, tolerance: f64) -> bool {
        [self.gbit_per_second, self.cpu_seconds_per_gb].iter().any(|change| change.is_shown(tolerance))
    }
}

impl Change {
    /// What is inconclusive and within the tolerance is told by what could have been noticed.
    pub fn is_shown(&self, tolerance: f64) -> bool {
        matches!(self.verdict, Verdict::Better | Verdict::Worse) || self.relative.abs() > tolerance
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

/// What of ours failed more often than before: how often, and how often before.
fn failing(before: &[Sample], after: &[Sample]) -> BTreeMap<Key, (usize, usize)> {
    let mut failed: BTreeMap<Key, (usize, usize)> = BTreeMap::new();
    let is_failed = |sample: &&Sample| sample.is_ours && sample.state == State::Failed;
    before.iter().filter(is_failed).for_each(|sample| failed.entry(Key::of(sample)).or_default().1 += 1);
    after.iter().filter(is_failed).for_each(|sample| failed.entry(Key::of(sample)).or_default().0 += 1);
    failed.retain(|_, (now, then)| now > then);
    failed
}

fn only(samples: &[Sample], of: &Counted, other: &Counted) -> Vec<String> {
    let is_only = |key: &Key| of.contains_key(key) && !other.contains_key(key);
    keys(samples).iter().filter(|key| is_only(key)).map(named).collect()
}

fn pair(key: Key, before: &[&Sample], after: &[&Sample], tolerance: f64, is_paired: bool) -> Pair {
    let change = |value: fn(&Sample) -> f64, more_is_better: bool| {
        let values = |samples: &[&Sample]| samples.iter().map(|sample| value(sample)).collect::<Vec<f64>>();
        let effect = match is_paired {
            true => {
                let of_round = |round| after.iter().find(|sample| sample.round == round).map(|sample| value(sample));
                let pairs = before.iter().filter_map(|sample| Some((value(sample), of_round(sample.round)?)));
                Effect::of_pairs(&pairs.collect::<Vec<_>>(), more_is_better)
            }
            false => Effect::of_groups(&values(before), &values(after), more_is_better),
        };
        change(&values(before), &values(after), effect, tolerance)
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

fn change(before: &[f64], after: &[f64], effect: Option<Effect>, tolerance: f64) -> Change {
    let median = |values: &[f64]| Spread::of(values.iter().copied()).map_or(0.0, |spread| spread.median);
    let (a, b) = (median(before), median(after));
    let relative = if a > 0.0 { b / a - 1.0 } else { 0.0 };
    let power = effect.map(|effect| effect.power(tolerance));
    let verdict = match (effect, power) {
        (Some(effect), _) if effect.is_sure() && effect.loss() > tolerance / 2.0 => Verdict::Worse,
        (Some(effect), _) if effect.is_sure() && effect.loss() < -tolerance / 2.0 => Verdict::Better,
        (_, Some(power)) if power.loss_max <= tolerance => Verdict::Same,
        _ => Verdict::Inconclusive,
    };
    Change { before: a, after: b, relative, verdict, power }
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
            ("processor's abilities", of.processor_flags.join(" ")),
            // A tenth more or less is the noise of so short a measurement.
            ("memory copy", of.memory_copy_shown()),
        ]
    };
    let both = fields(before).into_iter().zip(fields(after));
    // What an older bundle did not record is no difference.
    let is_newer = |what: &str| matches!(what, "processor's abilities" | "memory copy");
    let different = both.filter(|((what, before), (_, after))| {
        before != after && (!is_newer(what) || !before.is_empty() && !after.is_empty())
    });
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
        let same = diff(&before, &before, TOLERANCE_DEFAULT);
        assert_eq!((same.regressions, same.inconclusive, same.pairs[0].is_changed(TOLERANCE_DEFAULT)), (0, 0, false));
        assert_eq!(diff(&before, &report(&[("thalweg", 1.2)], 5), 0.5).regressions, 0);
    }

    #[test]
    fn what_chance_could_have_done_is_inconclusive_and_says_what_would_have_been_noticed() {
        let before = report(&[("thalweg", 1.0)], 5);
        let mut noisy = report(&[("thalweg", 1.2)], 5);
        noisy.samples[0].seconds = 0.9;
        let noisy = diff(&before, &noisy, TOLERANCE_DEFAULT);
        assert_eq!((noisy.regressions, noisy.inconclusive), (0, 1));
        let power = noisy.pairs[0].gbit_per_second.power.unwrap();
        assert!(power.detectable > 0.1 && power.runs_needed > 20, "{power:?}");
        let few = diff(&before, &report(&[("thalweg", 1.2)], 2), TOLERANCE_DEFAULT);
        assert_eq!((few.regressions, few.inconclusive, few.pairs[0].gbit_per_second.power), (0, 1, None));
        // A rival may be as noisy as it likes.
        let mut rival = report(&[("thalweg", 1.0), ("rsync", 1.2)], 5);
        rival.samples[1].seconds = 0.9;
        let rival = diff(&report(&[("thalweg", 1.0), ("rsync", 1.0)], 5), &rival, TOLERANCE_DEFAULT);
        assert_eq!((rival.regressions, rival.inconclusive), (0, 0));
    }

    #[test]
    fn builds_that_raced_are_compared_round_by_round() {
        let race = |loss: f64| {
            let mut samples = Vec::new();
            // The machine drifts by 40 % in the race, and both builds with it.
            for round in 1..=8 {
                let drift = 1.0 + 0.05 * f64::from(round) + 0.002 * f64::from(round % 3);
                samples.push(Sample { is_ours: true, ..sample(EARLIER, round, drift) });
                samples.push(sample("thalweg", round, drift * (1.0 + 0.003 * f64::from(round % 2)) / (1.0 - loss)));
                samples.push(sample("rsync", round, 2.0));
            }
            Report { samples, ..Report::default() }
        };
        let found = |loss| diff_of_builds(&race(loss), TOLERANCE_DEFAULT).unwrap();
        let (lost, same) = (found(0.05), found(0.0));
        assert_eq!((lost.pairs.len(), lost.regressions, lost.is_paired), (1, 1, true));
        assert_eq!((same.regressions, same.inconclusive), (0, 0));
        // As two bundles the same figures tell nothing.
        let only = |tool: &str| {
            let of: Vec<Sample> = race(0.05).samples.into_iter().filter(|sample| sample.tool == tool).collect();
            Report {
                samples: of.into_iter().map(|of| Sample { tool: "t".into(), is_ours: true, ..of }).collect(),
                ..Report::default()
            }
        };
        assert_eq!(diff(&only(EARLIER), &only("thalweg"), TOLERANCE_DEFAULT).inconclusive, 1);
        assert_eq!(diff_of_builds(&report(&[("thalweg", 1.0)], 5), TOLERANCE_DEFAULT), None);
    }

    #[test]
    fn a_build_that_fails_has_regressed_and_one_that_is_not_measured_any_more_does_not_pass() {
        let before = report(&[("thalweg", 1.0), ("rsync", 1.0)], 5);
        let failed = |tool: &str, rounds: &[u32]| {
            let mut after = before.clone();
            for sample in after.samples.iter_mut().filter(|of| of.tool == tool && rounds.contains(&of.round)) {
                sample.state = State::Failed;
            }
            after
        };
        for rounds in [&[1, 2, 3, 4, 5][..], &[3]] {
            let after = failed("thalweg", rounds);
            let found = diff(&before, &after, TOLERANCE_DEFAULT);
            assert_eq!((found.regressions, found.inconclusive), (1, 0), "{rounds:?}");
            assert_eq!(found.failing, [format!("tiny, thalweg: {} failed, 0 before", rounds.len())]);
            assert_eq!(diff(&after, &after, TOLERANCE_DEFAULT).regressions, 0, "as often as before");
        }
        let rival = diff(&before, &failed("rsync", &[1, 2, 3, 4, 5]), TOLERANCE_DEFAULT);
        assert_eq!((rival.regressions, rival.inconclusive), (0, 0));
        let mut without = before.clone();
        without.samples.retain(|sample| !sample.is_ours);
        let found = diff(&before, &without, TOLERANCE_DEFAULT);
        assert_eq!((found.regressions, found.inconclusive, found.failing.len()), (0, 1, 0));
        assert_eq!(found.only_before, ["tiny, thalweg"]);
        // Neither does a build that was given other work.
        let mut smaller = before.clone();
        smaller.samples.iter_mut().filter(|sample| sample.is_ours).for_each(|sample| sample.bytes -= 1);
        let found = diff(&before, &smaller, TOLERANCE_DEFAULT);
        assert_eq!((found.regressions, found.inconclusive, found.different_work.len()), (0, 1, 1));
        // In a race of two builds, too.
        let mut race = failed("thalweg", &[1, 2]);
        race.samples.extend((1..=5).map(|round| Sample { is_ours: true, ..sample(EARLIER, round, 1.0) }));
        assert_eq!(diff_of_builds(&race, TOLERANCE_DEFAULT).unwrap().failing, ["tiny, thalweg: 2 failed, 0 before"]);
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
