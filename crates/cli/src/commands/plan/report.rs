//! `thalweg plan report`: how far predictions were from what copies reached.

use super::values::shown_rate;
use crate::calibrations::{self, Outcome};
use crate::exit::Result;
use crate::output::{line, note, shown};
use model::Exit;
use serde_json::json;

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
    let within = outcomes.iter().filter(|outcome| outcome.is_within()).count();
    let mut errors: Vec<f64> = outcomes.iter().map(|outcome| outcome.error().abs()).collect();
    errors.sort_by(f64::total_cmp);
    let median = errors.get(errors.len() / 2).copied();
    let stale = stale(&outcomes);
    if args.json {
        let answer = json!({"v": 1, "outcomes": outcomes, "within": within, "error_median": median, "stale": stale});
        line(&answer.to_string());
        return Ok(Exit::Done);
    }
    for outcome in &outcomes {
        let mark = if outcome.is_within() { "within" } else { "outside" };
        let (expected, measured) = (shown_rate(outcome.p50), shown_rate(outcome.measured));
        let text = format!(
            "{}  {expected} expected, {measured} measured, {:+.0} %, {mark}",
            shown(&outcome.of),
            100.0 * outcome.error()
        );
        line(&text);
    }
    match median {
        Some(median) => {
            let text =
                format!("{within} of {} within their intervals; median error {:.1} %", outcomes.len(), 100.0 * median);
            line(&text);
        }
        None => note("no copy was made with --plan yet"),
    }
    if unread > 0 {
        note(&format!("{unread} lines of the record could not be read"));
    }
    stale
        .iter()
        .for_each(|of| note(&format!("the calibration of {} is stale: `thalweg calibrate` measures again", shown(of))));
    Ok(Exit::Done)
}

/// Endpoints whose last outcomes were all outside.
fn stale(outcomes: &[Outcome]) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = outcomes.iter().map(|outcome| &outcome.of).collect();
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
