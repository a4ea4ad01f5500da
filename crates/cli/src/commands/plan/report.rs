//! `thalweg plan report`: how far predictions were from what copies reached.

use super::values::shown_rate;
use crate::calibrations::{self, Outcome};
use crate::exit::Result;
use crate::output::{line, note, shown};
use model::{Exit, Timestamp};
use plan::calibration::median;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// So many of the last outcomes outside their interval mean that the calibration no longer holds.
const OUTSIDE_MAX: usize = 3;

/// Show how far planned rates were from the ones that copies reached
///
/// Every copy with --plan that moves all of its files adds a line. When the last three of an endpoint lie outside their
/// intervals, its calibration has become stale: `thalweg calibrate` measures again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n\
\x20   thalweg plan report\n\
\x20   thalweg plan report --json")]
pub struct Args {
    /// Print one JSON object
    #[arg(long, env = "THALWEG_JSON")]
    json: bool,
}

pub fn run(args: &Args) -> Result<Exit> {
    let (outcomes, unread) = calibrations::outcomes()?;
    let accuracy = Accuracy::of(&outcomes);
    let names: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.of.as_str()).collect();
    let taken: BTreeMap<&str, u64> = names.into_iter().filter_map(|of| Some((of, calibrations::taken(of)?))).collect();
    let is_of_now = |outcome: &&Outcome| taken.get(&*outcome.of).is_none_or(|taken| outcome.time >= *taken);
    let stale = stale(&outcomes.iter().filter(is_of_now).cloned().collect::<Vec<_>>());
    if args.json {
        let Accuracy { within, error_median, width_median } = accuracy;
        let share_within = (!outcomes.is_empty()).then(|| within as f64 / outcomes.len() as f64);
        let answer = json!({"v": 1, "outcomes": outcomes, "within": within, "share_within": share_within,
            "error_median": error_median, "width_median": width_median, "stale": stale});
        line(&answer.to_string());
        return Ok(Exit::Done);
    }
    for outcome in &outcomes {
        let mark = if outcome.is_within() { "inside" } else { "outside" };
        let (expected, measured) = (shown_rate(outcome.p50), shown_rate(outcome.measured));
        let text = format!(
            "{}  {}  {expected} expected, {measured} measured (error {:+.0} %), {mark} its interval",
            Timestamp { seconds: outcome.time.min(1 << 40) as i64, nanoseconds: 0 }.rfc3339(),
            shown(&outcome.of),
            100.0 * outcome.error()
        );
        line(&text);
    }
    match (accuracy.error_median, accuracy.width_median) {
        (Some(error), Some(width)) => {
            let text = format!(
                "{} of {} within their intervals ({:.0} %); median error {:.1} %, median width of an interval {:.0} %",
                accuracy.within,
                outcomes.len(),
                100.0 * accuracy.within as f64 / outcomes.len() as f64,
                100.0 * error,
                100.0 * width
            );
            line(&text);
        }
        _ => note("no copy was made with --plan yet"),
    }
    if unread > 0 {
        note(&format!("{unread} lines of the record could not be read"));
    }
    stale
        .iter()
        .for_each(|of| note(&format!("the calibration of {} is stale: `thalweg calibrate` measures again", shown(of))));
    Ok(Exit::Done)
}

/// How good predictions were.
struct Accuracy {
    within: usize,
    /// Without a sign.
    error_median: Option<f64>,
    /// Of an interval, as a share of the rate expected.
    width_median: Option<f64>,
}

impl Accuracy {
    fn of(outcomes: &[Outcome]) -> Accuracy {
        let width = |outcome: &Outcome| (outcome.p95 - outcome.p5) / outcome.p50.max(1e-9);
        Accuracy {
            within: outcomes.iter().filter(|outcome| outcome.is_within()).count(),
            error_median: median(outcomes.iter().map(|outcome| outcome.error().abs()).collect()),
            width_median: median(outcomes.iter().map(width).collect()),
        }
    }
}

/// Endpoints whose last outcomes were all outside.
pub fn stale(outcomes: &[Outcome]) -> Vec<String> {
    let names: BTreeSet<_> = outcomes.iter().map(|outcome| &outcome.of).collect();
    let is_stale = |of: &&&String| {
        let last: Vec<_> = outcomes.iter().rev().filter(|outcome| outcome.of == ***of).take(OUTSIDE_MAX).collect();
        last.len() == OUTSIDE_MAX && last.iter().all(|outcome| !outcome.is_within())
    };
    names.iter().filter(is_stale).map(|of| of.to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(of: &str, measured: f64) -> Outcome {
        let (v, time, streams, p5, p50, p95) = (1, 0, 4, 90.0, 100.0, 110.0);
        Outcome { v, time, of: of.into(), streams, p5, p50, p95, measured, bytes: 1, files: 1, seconds: 1.0 }
    }

    #[test]
    fn three_in_a_row_outside_make_a_calibration_stale() {
        let mut outcomes = vec![outcome("a", 100.0), outcome("a", 50.0), outcome("b", 100.0), outcome("a", 60.0)];
        assert!(stale(&outcomes).is_empty());
        outcomes.push(outcome("a", 70.0));
        assert_eq!(stale(&outcomes), ["a"]);
        outcomes.push(outcome("a", 95.0));
        assert!(stale(&outcomes).is_empty());
        assert!((outcome("a", 50.0).error() - 1.0).abs() < 1e-9);
    }
}
