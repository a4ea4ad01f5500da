//! Runs that lie far from the other runs of the same tool on the same set under the same condition.
//!
//! Invariant: an outlier is named, never removed; every figure holds it.

use crate::sample::{Sample, State};
use crate::statistics::Spread;

/// Beyond the quartiles by more than this many times their distance.
const REACH: f64 = 1.5;
/// With fewer runs the quartiles say nothing about the ends.
const RUNS_MIN: usize = 5;

pub fn outliers(samples: &[Sample]) -> Vec<&Sample> {
    let counted = || samples.iter().filter(|sample| sample.state == State::Counted);
    let is_outlier = |sample: &&Sample| {
        let key = |of: &Sample| of.condition == sample.condition && of.set == sample.set && of.tool == sample.tool;
        let alike = counted().filter(|of| key(of) && of.class == sample.class).map(|of| of.seconds);
        Spread::of(alike).filter(|spread| spread.n >= RUNS_MIN).is_some_and(|spread| {
            let reach = REACH * (spread.quartile_3 - spread.quartile_1);
            sample.seconds < spread.quartile_1 - reach || sample.seconds > spread.quartile_3 + reach
        })
    };
    counted().filter(is_outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Usage;
    use crate::tool::Class;

    fn sample(condition: &str, round: u32, seconds: f64) -> Sample {
        Sample {
            condition: condition.into(),
            set: "s".into(),
            class: Class::Network,
            tool: "t".into(),
            is_ours: false,
            round,
            state: State::Counted,
            seconds,
            reported_seconds: None,
            bytes: 1,
            files: 1,
            client: Usage::default(),
            server: None,
            network: None,
            foreign_cpu_seconds: 0.0,
            steal_seconds: 0.0,
            note: String::new(),
        }
    }

    #[test]
    fn a_run_far_from_its_own_kind_is_an_outlier_and_other_conditions_are_another_kind() {
        let near = [1.0, 1.1, 1.2, 1.1, 1.0, 5.0];
        let mut samples: Vec<_> =
            near.iter().zip(1..).map(|(seconds, round)| sample("near", round, *seconds)).collect();
        samples.extend((1..7).map(|round| sample("far", round, 5.0)));
        let found: Vec<_> = outliers(&samples).iter().map(|sample| (sample.condition.as_str(), sample.round)).collect();
        assert_eq!(found, [("near", 6)]);
    }
}
