//! Whether a path is steady enough for a comparison: many streams for a short time, before the comparison begins.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Lab;
use serde::Serialize;

use super::client::Event;
use super::laboratory::{Hosts, run_in};
use super::outcome::Outcome;
use super::slowdown::{Slowdown, Trouble};
use super::{Direction, Load};
use crate::error::Result;

/// One retransmission timeout of a stream among many is in the nature of TCP; standing still for this long is not.
const STALL_SECONDS_MIN: f64 = 1.0;

/// What a path must hold.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Thresholds {
    pub streams: u32,
    pub duration: Duration,
    pub omitted: Duration,
    /// Standard deviation of the rate of all streams together, over its mean.
    pub variation_max: f64,
}

impl Default for Thresholds {
    /// 16 streams, as in the published comparison; a tenth is what a median of a few runs still averages out.
    fn default() -> Thresholds {
        Thresholds {
            streams: 16,
            duration: Duration::from_secs(10),
            omitted: Duration::from_secs(3),
            variation_max: 0.1,
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Stability {
    pub streams: u32,
    pub bits_per_second_mean: f64,
    /// Standard deviation over mean, of the intervals' rates of all streams together.
    pub variation: f64,
    pub retransmitted_share: f64,
    pub is_steady: bool,
    /// One sentence.
    pub verdict: String,
}

/// Sends over the path between the laboratory's first and last site.
pub fn stability_in(lab: &Lab, thresholds: &Thresholds, stop: &AtomicBool) -> Result<Stability> {
    let load = Load {
        streams: thresholds.streams,
        duration: thresholds.duration,
        omitted: thresholds.omitted,
        direction: Direction::Forward,
        interval: Duration::from_millis(500),
        ..Load::default()
    };
    let outcome = run_in(lab, &Hosts::of(lab), &load, stop, &mut |_: Event<'_>| ())?;
    Ok(Stability::of(&outcome, thresholds))
}

impl Stability {
    pub fn of(outcome: &Outcome, thresholds: &Thresholds) -> Stability {
        let counted = outcome.intervals.iter().filter(|interval| !interval.is_omitted);
        let rates: Vec<f64> =
            counted.map(|interval| interval.totals.iter().map(|totals| totals.bits_per_second).sum()).collect();
        let (mean, variation) = mean_and_variation(&rates);
        let is_long = |stall: &&Slowdown| stall.trouble == Trouble::Stall && stall.seconds >= STALL_SECONDS_MIN;
        let stalls = outcome.slowdowns.iter().filter(is_long).count();
        let (again, sent) = outcome
            .totals
            .iter()
            .fold((0, 0), |(again, sent), totals| (again + totals.retransmitted_segments, sent + totals.sent_segments));
        let problem = if let Some(reason) = outcome.void.first() {
            Some(format!("the laboratory did not keep up: {reason}"))
        } else if stalls > 0 {
            Some(format!("streams stalled for {STALL_SECONDS_MIN} s or longer {stalls} times"))
        } else if !(mean > 0.0 && variation <= thresholds.variation_max) {
            let most = thresholds.variation_max * 100.0;
            Some(format!("the rate varies by {:.1} % of its mean (at most {most:.0} %)", variation * 100.0))
        } else {
            None
        };
        Stability {
            streams: outcome.load.streams,
            bits_per_second_mean: mean,
            variation,
            retransmitted_share: again as f64 / sent.max(1) as f64,
            is_steady: problem.is_none(),
            verdict: match problem {
                Some(problem) => format!("not steady: {problem}"),
                None => format!("steady: the rate varies by {:.1} % of its mean", variation * 100.0),
            },
        }
    }
}

/// The variation of nothing, or around zero, is infinite.
fn mean_and_variation(rates: &[f64]) -> (f64, f64) {
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    if rates.is_empty() || mean <= 0.0 {
        return (0.0, f64::INFINITY);
    }
    let degrees = (rates.len() - 1).max(1) as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / degrees;
    (mean, variance.sqrt() / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variation_is_the_deviation_of_a_sample_over_its_mean() {
        assert_eq!(mean_and_variation(&[10.0, 10.0]), (10.0, 0.0));
        let (mean, variation) = mean_and_variation(&[9.0, 11.0]);
        assert!(mean == 10.0 && (variation - 2_f64.sqrt() / 10.0).abs() < 1e-12);
        assert_eq!(mean_and_variation(&[]), (0.0, f64::INFINITY));
        assert_eq!(mean_and_variation(&[0.0]), (0.0, f64::INFINITY));
    }
}
