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
    pub best: (String, f64),
    pub plan: f64,
    pub default: Option<f64>,
    pub rule: Option<f64>,
    /// Of the runs by the plan: predicted over measured less one, and whether measured lay inside.
    pub errors: Vec<f64>,
    pub within: Vec<bool>,
    /// Of an interval, as a share of the rate expected.
    pub widths: Vec<f64>,
}

impl Verdict {
    /// Every cell and set of which enough is known.
    pub fn of(runs: &[Run]) -> Vec<Verdict> {
        let mut groups: BTreeMap<(&str, &str), Vec<&Run>> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.step == Step::Repeat) {
            groups.entry((&run.cell, &run.set)).or_default().push(run);
        }
        groups.into_iter().filter_map(|((cell, set), runs)| Verdict::of_group(cell, set, &runs)).collect()
    }

    fn of_group(cell: &str, set: &str, runs: &[&Run]) -> Option<Verdict> {
        let mut settings: Vec<&str> = runs.iter().map(|run| run.setting.as_str()).collect();
        settings.sort_unstable();
        settings.dedup();
        let rate =
            |setting: &str| median(runs.iter().filter(|run| run.setting == setting).filter_map(|run| run.rate()));
        let is_judged = |setting: &&&str| ![PLAN, DEFAULT, RULE].contains(*setting);
        let searched =
            settings.iter().filter(is_judged).filter_map(|setting| Some(((*setting).to_owned(), rate(setting)?)));
        let best = searched.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let mut verdict = Verdict {
            cell: cell.to_owned(),
            set: set.to_owned(),
            best,
            plan: rate(PLAN)?,
            default: rate(DEFAULT),
            rule: rate(RULE),
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
        Some(verdict)
    }

    /// Of the best.
    pub fn share(&self) -> f64 {
        self.plan / self.best.1
    }
}

/// A table for people, and what all of it comes to.
pub fn text(verdicts: &[Verdict], commit: &str) -> String {
    let mut text =
        format!("# Plans beside a search\n\nCommit {commit}. Rates are medians of repeated runs in MB/s.\n\n");
    text.push_str("| cell | set | best setting | best | plan | plan / best | default / best | rule / best | error of P50 | inside |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for verdict in verdicts {
        let best = verdict.best.1;
        let of_best = |rate: Option<f64>| rate.map_or("-".to_owned(), |rate| format!("{:.2}", rate / best));
        let error =
            median(verdict.errors.iter().copied()).map_or("-".to_owned(), |error| format!("{:+.0} %", 100.0 * error));
        let inside = verdict.within.iter().filter(|is_within| **is_within).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.1} | {:.2} | {} | {} | {error} | {inside} of {} |",
            verdict.cell,
            verdict.set,
            verdict.best.0,
            best / 1e6,
            verdict.plan / 1e6,
            verdict.share(),
            of_best(verdict.default),
            of_best(verdict.rule),
            verdict.within.len(),
        );
    }
    let shares: Vec<f64> = verdicts.iter().map(Verdict::share).collect();
    let good = shares.iter().filter(|share| **share >= 0.95).count();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let errors = || verdicts.iter().flat_map(|verdict| verdict.errors.iter().map(|error| error.abs()));
    let runs = errors().count();
    let within = verdicts.iter().flat_map(|verdict| &verdict.within).filter(|is_within| **is_within).count();
    let widths = median(verdicts.iter().flat_map(|verdict| verdict.widths.iter().copied()));
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.1} %", 100.0 * value));
    let _ = write!(
        text,
        "\n- plan / best is at least 0.95 in {good} of {} cells and sets, and {} at the least\n\
         - P50 is off by {} in the median of {runs} runs; {within} lay inside their intervals, whose median width is {}\n",
        verdicts.len(),
        if shares.is_empty() { "-".to_owned() } else { format!("{least:.2}") },
        percent(median(errors())),
        percent(widths),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(setting: &str, round: u32, seconds: f64) -> Run {
        let plan = (setting == PLAN).then(|| serde_json::json!({"interval": {"p5": 90.0, "p50": 100.0, "p95": 110.0}}));
        let (cell, set, step) = ("c".to_owned(), "s".to_owned(), Step::Repeat);
        let (flags, streams, void, commit) = Default::default();
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
        assert_eq!(found[0].best.0, "4");
        assert!(
            (found[0].share() - 0.96).abs() < 1e-9 && (found[0].default.unwrap() / found[0].best.1 - 0.5).abs() < 1e-9
        );
        assert_eq!((found[0].within.clone(), found[0].rule), (vec![true; 3], None));
        let text = text(&found, "x");
        assert!(text.contains("| 4 | 0.0 | 0.0 | 0.96 | 0.50 | - | +0 % | 3 of 3 |"), "{text}");
        assert!(text.contains("in 1 of 1 cells and sets, and 0.96 at the least"), "{text}");
    }
}
