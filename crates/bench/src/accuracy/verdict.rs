//! What the runs of a cell and a set come to, and of all of them together.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::cells::{DEFAULT, PLAN, RULE};
use super::record::{Run, Step};
use crate::repro::median;

/// Of a cell and a data set. Rates are medians of the repeated runs, bytes a second.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Verdict {
    pub cell: String,
    pub set: String,
    /// The best of the search, by its repetitions.
    pub best: Option<(String, f64)>,
    pub plan: Option<f64>,
    pub default: Option<f64>,
    pub rule: Option<f64>,
    /// Runs of whatever step that ended badly or delivered something else, and those of them that did the latter.
    pub failed: usize,
    pub wrong: usize,
    /// Those during which the link was late, or others used the machine.
    pub void: usize,
    /// Of the runs by the plan: predicted over measured less one, and whether measured lay inside.
    pub errors: Vec<f64>,
    pub within: Vec<bool>,
    /// Of an interval, as a share of the rate expected.
    pub widths: Vec<f64>,
}

impl Verdict {
    /// Every cell and set of which enough is known, or of which a run does not count.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Vec<Verdict> {
        let mut groups: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
        for run in runs {
            groups.entry((&run.cell, &run.set)).or_default().push(run);
        }
        let verdicts = groups.into_iter().map(|((cell, set), runs)| Verdict::of_group(cell, set, &runs));
        verdicts.filter(|verdict| verdict.share().is_some() || verdict.failed + verdict.void > 0).collect()
    }

    fn of_group(cell: &str, set: &str, all: &[&Run]) -> Verdict {
        let runs: Vec<&Run> = all.iter().copied().filter(|run| run.step == Step::Repeat).collect();
        let mut settings: Vec<&str> = runs.iter().map(|run| run.setting.as_str()).collect();
        settings.sort_unstable();
        settings.dedup();
        let rate =
            |setting: &str| median(runs.iter().filter(|run| run.setting == setting).filter_map(|run| run.rate()));
        let is_judged = |setting: &&&str| ![PLAN, DEFAULT, RULE].contains(*setting);
        let searched =
            settings.iter().filter(is_judged).filter_map(|setting| Some(((*setting).to_owned(), rate(setting)?)));
        let mut verdict = Verdict {
            cell: cell.to_owned(),
            set: set.to_owned(),
            best: searched.max_by(|a, b| a.1.total_cmp(&b.1)),
            plan: rate(PLAN),
            default: rate(DEFAULT),
            rule: rate(RULE),
            failed: all.iter().filter(|run| run.is_failed()).count(),
            wrong: all.iter().filter(|run| run.is_wrong()).count(),
            void: all.iter().filter(|run| run.is_void()).count(),
            errors: Vec::new(),
            within: Vec::new(),
            widths: Vec::new(),
        };
        for run in runs.iter().filter(|run| run.setting == PLAN) {
            let of = |key: &str| run.plan.as_ref()?["interval"][key].as_f64();
            let (Some(measured), Some(p5), Some(p50), Some(p95)) = (run.rate(), of("p5"), of("p50"), of("p95")) else {
                continue;
            };
            verdict.errors.push(p50 / measured - 1.0);
            verdict.within.push((p5..=p95).contains(&measured));
            verdict.widths.push((p95 - p5) / p50);
        }
        verdict
    }

    /// Of the best.
    pub fn share(&self) -> Option<f64> {
        Some(self.plan? / self.best.as_ref()?.1)
    }
}

/// A table for people, and what all of it comes to.
pub fn text(verdicts: &[Verdict], commit: &str) -> String {
    let mut text =
        format!("# Plans beside a search\n\nCommit {commit}. Rates are medians of repeated runs in MB/s.\n\n");
    text.push_str("| cell | set | best setting | best | plan | plan / best | default / best | rule / best |");
    text.push_str(" error of P50 | inside | failed | void |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for verdict in verdicts {
        let (setting, best) = verdict.best.as_ref().map_or(("-", None), |(name, rate)| (name.as_str(), Some(*rate)));
        let of_best = |rate: Option<f64>| shown(rate.zip(best).map(|(rate, best)| rate / best), 3);
        let megabytes = |rate: Option<f64>| shown(rate.map(|rate| rate / 1e6), 1);
        let error =
            median(verdict.errors.iter().copied()).map_or("-".to_owned(), |error| format!("{:+.0} %", 100.0 * error));
        let inside = verdict.within.iter().filter(|is_within| **is_within).count();
        let _ = writeln!(
            text,
            "| {} | {} | {setting} | {} | {} | {} | {} | {} | {error} | {inside} of {} | {} | {} |",
            verdict.cell,
            verdict.set,
            megabytes(best),
            megabytes(verdict.plan),
            of_best(verdict.plan),
            of_best(verdict.default),
            of_best(verdict.rule),
            verdict.within.len(),
            verdict.failed,
            verdict.void,
        );
    }
    text + &summary(verdicts)
}

/// All cells and sets together.
fn summary(verdicts: &[Verdict]) -> String {
    let shares: Vec<f64> = verdicts.iter().filter_map(Verdict::share).collect();
    let good = shares.iter().filter(|share| **share >= 0.95).count();
    let least = shares.iter().copied().reduce(f64::min);
    let errors = || verdicts.iter().flat_map(|verdict| verdict.errors.iter().map(|error| error.abs()));
    let runs = errors().count();
    let within = verdicts.iter().flat_map(|verdict| &verdict.within).filter(|is_within| **is_within).count();
    let widths = median(verdicts.iter().flat_map(|verdict| verdict.widths.iter().copied()));
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.1} %", 100.0 * value));
    let of_all = |count: fn(&Verdict) -> usize| verdicts.iter().map(count).sum::<usize>();
    format!(
        "\n- plan / best is at least 0.95 in {good} of {} cells and sets, and {} at the least\n\
         - P50 is off by {} in the median of {runs} runs; {within} lay inside their intervals, whose median width is {}\n\
         - {} runs failed, {} of them by a delivery that differs; {} were void\n",
        shares.len(),
        shown(least, 3),
        percent(median(errors())),
        percent(widths),
        of_all(|verdict| verdict.failed),
        of_all(|verdict| verdict.wrong),
        of_all(|verdict| verdict.void),
    )
}

fn shown(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accuracy::record::DIFFERS;

    fn run(setting: &str, round: u32, seconds: f64) -> Run {
        let plan = (setting == PLAN).then(|| serde_json::json!({"interval": {"p5": 90.0, "p50": 100.0, "p95": 110.0}}));
        let (cell, set, step) = ("c".to_owned(), "s".to_owned(), Step::Repeat);
        let (flags, streams, void, commit, program, basis) = Default::default();
        let (files, bytes, foreign, time, setting) = (1, 1000, 0.0, 0, setting.to_owned());
        Run {
            cell,
            set,
            step,
            setting,
            flags,
            round,
            seconds: Some(seconds),
            files,
            bytes,
            plan,
            streams,
            foreign,
            void,
            commit,
            program,
            basis,
            time,
        }
    }

    #[test]
    fn a_plan_is_held_against_the_best_that_was_repeated() {
        let mut runs: Vec<Run> =
            (1..=3).flat_map(|n| [run(PLAN, n, 10.0), run("4", n, 9.6), run("8", n, 20.0)]).collect();
        runs.push(Run { void: "the link was late".into(), ..run(PLAN, 4, 1.0) });
        runs.push(run(DEFAULT, 1, 19.2));
        let found = Verdict::of(&runs);
        assert_eq!(found.len(), 1);
        let (name, best) = found[0].best.clone().unwrap();
        assert_eq!((name.as_str(), found[0].failed, found[0].void), ("4", 0, 1));
        let shares = [found[0].share().unwrap() - 0.96, found[0].default.unwrap() / best - 0.5];
        assert!(shares.iter().all(|off| off.abs() < 1e-9), "{shares:?}");
        assert_eq!((found[0].within.clone(), found[0].rule), (vec![true; 3], None));
        let text = text(&found, "x");
        assert!(text.contains("| 4 | 0.0 | 0.0 | 0.960 | 0.500 | - | +0 % | 3 of 3 | 0 | 1 |"), "{text}");
        assert!(text.contains("in 1 of 1 cells and sets, and 0.960 at the least"), "{text}");
    }

    #[test]
    fn runs_that_failed_or_delivered_something_else_are_counted_even_where_there_is_no_verdict() {
        let void = format!("{DIFFERS}1 file");
        let wrong = Run { void, seconds: None, step: Step::Search, ..run("4", 0, 1.0) };
        let failed = Run { void: "it failed: x".into(), seconds: None, ..run(PLAN, 1, 1.0) };
        let found = Verdict::of(&[wrong, failed, Run { set: "unfinished".into(), ..run(PLAN, 1, 1.0) }]);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].failed, found[0].wrong, found[0].void, found[0].share()), (2, 1, 0, None));
        let text = text(&found, "x");
        assert!(text.contains("| c | s | - | - | - | - | - | - | - | 0 of 0 | 2 | 0 |"), "{text}");
        assert!(text.contains("2 runs failed, 1 of them by a delivery that differs; 0 were void"), "{text}");
        assert!(text.contains("in 0 of 0 cells and sets, and - at the least"), "{text}");
    }
}
