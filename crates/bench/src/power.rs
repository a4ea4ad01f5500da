//! What a number of runs can tell: the size of a change, how sure it is, and the smallest loss that would have been noticed.
//!
//! Times are compared by their logarithms, so that 5 % is as much at any length; differences of runs of one round are paired.
//! Both errors are bounded: a loss that is none is found in 5 % of comparisons, one of the tolerance is missed in 20 %.
//! An outlier widens what is said here and never makes a loss of itself.
//!
//! Not here: what is compared (`diff`).

use serde::Serialize;

/// Standard normal quantiles of 95 % and 80 %.
const Z_95: f64 = 1.644_853_627;
const Z_80: f64 = 0.841_621_234;
/// Fewer give no deviation worth the name.
pub const RUNS_MIN: usize = 3;
/// More are not asked for: then the machine is not fit for the question.
const RUNS_MAX: usize = 1000;

/// A change for the worse in logarithms, and what is known of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effect {
    /// Above 0: worse.
    pub worse: f64,
    error: f64,
    freedom: f64,
    /// Deviation of the difference of two runs.
    deviation: f64,
    is_paired: bool,
}

/// What a comparison was able to tell.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Power {
    /// The smallest loss that is noticed in four of five comparisons like this one; a part of the rate.
    pub detectable: f64,
    /// Runs of each with which the tolerance would be.
    pub runs_needed: usize,
    /// The loss is below this, 95 % sure; negative: it is a gain of at least so much.
    pub loss_max: f64,
}

impl Effect {
    /// Of values that belong to rounds: pairs are compared with each other.
    pub fn of_pairs(pairs: &[(f64, f64)], more_is_better: bool) -> Option<Effect> {
        let changes: Option<Vec<f64>> = pairs.iter().map(|(before, after)| log_ratio(*before, *after)).collect();
        let (mean, deviation) = mean_and_deviation(&changes?)?;
        let n = pairs.len() as f64;
        Some(Effect {
            worse: if more_is_better { -mean } else { mean },
            error: deviation / n.sqrt(),
            freedom: n - 1.0,
            deviation,
            is_paired: true,
        })
    }

    /// Of values that do not (Welch).
    pub fn of_groups(before: &[f64], after: &[f64], more_is_better: bool) -> Option<Effect> {
        let logs = |values: &[f64]| values.iter().map(|value| log_ratio(1.0, *value)).collect::<Option<Vec<f64>>>();
        let (a, deviation_a) = mean_and_deviation(&logs(before)?)?;
        let (b, deviation_b) = mean_and_deviation(&logs(after)?)?;
        let (n_a, n_b) = (before.len() as f64, after.len() as f64);
        let (part_a, part_b) = (deviation_a.powi(2) / n_a, deviation_b.powi(2) / n_b);
        let sum = part_a + part_b;
        let parts = part_a.powi(2) / (n_a - 1.0) + part_b.powi(2) / (n_b - 1.0);
        Some(Effect {
            worse: if more_is_better { a - b } else { b - a },
            error: sum.sqrt(),
            freedom: if parts > 0.0 { sum.powi(2) / parts } else { n_a + n_b - 2.0 },
            deviation: (deviation_a.powi(2) + deviation_b.powi(2)).sqrt(),
            is_paired: false,
        })
    }

    /// Whether it is more than chance, in either way.
    pub fn is_sure(&self) -> bool {
        self.worse.abs() > self.reach()
    }

    pub fn power(&self, tolerance: f64) -> Power {
        let wanted = -(1.0 - tolerance).ln();
        let enough = |n: &usize| {
            let n = *n as f64;
            let freedom = if self.is_paired { n - 1.0 } else { 2.0 * n - 2.0 };
            (quantile(Z_95, freedom) + quantile(Z_80, freedom)) * self.deviation / n.sqrt() <= wanted
        };
        Power {
            detectable: part(self.error * (quantile(Z_95, self.freedom) + quantile(Z_80, self.freedom))),
            runs_needed: (RUNS_MIN..RUNS_MAX).find(enough).unwrap_or(RUNS_MAX),
            loss_max: part(self.worse + self.reach()),
        }
    }

    /// The loss as a part; negative: a gain.
    pub fn loss(&self) -> f64 {
        part(self.worse)
    }

    fn reach(&self) -> f64 {
        quantile(Z_95, self.freedom) * self.error
    }
}

/// Of a rate whose logarithm fell by so much.
fn part(log: f64) -> f64 {
    1.0 - (-log).exp()
}

/// None where one of them is no measurement.
fn log_ratio(before: f64, after: f64) -> Option<f64> {
    (before > 0.0 && after > 0.0).then(|| (after / before).ln())
}

fn mean_and_deviation(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < RUNS_MIN {
        return None;
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (values.len() - 1) as f64).sqrt()))
}

/// Student's quantile from the normal one (Cornish and Fisher's expansion; within 1 % from 2 degrees of freedom on for 80 %
/// and from 3 on for 95 %).
fn quantile(z: f64, freedom: f64) -> f64 {
    let power = |n| z.powi(n);
    let terms = [
        (power(3) + z) / 4.0,
        (5.0 * power(5) + 16.0 * power(3) + 3.0 * z) / 96.0,
        (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * z) / 384.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom.max(1.0)) + z
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, q_95, q_80) in [(4.0, 2.132, 0.941), (9.0, 1.833, 0.883), (26.0, 1.706, 0.856)] {
            assert!((quantile(Z_95, freedom) / q_95 - 1.0).abs() < 0.005, "{freedom}");
            assert!((quantile(Z_80, freedom) / q_80 - 1.0).abs() < 0.005, "{freedom}");
        }
    }

    /// Deviations that do not come from a formula of this file: a fixed generator, normal by the sum of twelve.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> f64 {
            let mut uniform = || {
                self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (self.0 >> 11) as f64 / (1_u64 << 53) as f64
            };
            (0..12).map(|_| uniform()).sum::<f64>() - 6.0
        }
    }

    /// How often a race with this loss and this noise of single runs is found to be worse.
    fn found(runs: usize, loss: f64, deviation: f64) -> f64 {
        let mut noise = Noise(7);
        const RACES: usize = 4000;
        let worse = (0..RACES).filter(|_| {
            let mut run = |seconds: f64| seconds * (deviation * noise.next()).exp();
            let pairs: Vec<_> = (0..runs).map(|_| (run(1.0), run(1.0 / (1.0 - loss)))).collect();
            Effect::of_pairs(&pairs, false).is_some_and(|effect| effect.is_sure() && effect.worse > 0.0)
        });
        worse.count() as f64 / RACES as f64
    }

    #[test]
    fn the_runs_that_are_asked_for_find_a_loss_of_five_percent_in_four_of_five_races() {
        let mut noise = Noise(3);
        let mut run = || (0.05 * noise.next()).exp();
        let pairs: Vec<_> = (0..2000).map(|_| (run(), run())).collect();
        let needed = Effect::of_pairs(&pairs, false).unwrap().power(0.05).runs_needed;
        assert!((11..=16).contains(&needed), "{needed}");
        let (power, false_alarms, few) = (found(needed, 0.05, 0.05), found(needed, 0.0, 0.05), found(5, 0.05, 0.05));
        assert!((0.77..0.86).contains(&power), "{power}");
        assert!((0.035..0.065).contains(&false_alarms), "{false_alarms}");
        assert!(few < 0.55, "{few}");
    }

    #[test]
    fn what_could_have_been_noticed_shrinks_with_runs_and_grows_with_noise() {
        let races = |deviation: f64, runs: usize| {
            let pairs: Vec<_> =
                (0..runs).map(|i| (1.0, if i % 2 == 0 { deviation } else { -deviation }.exp())).collect();
            Effect::of_pairs(&pairs, false).unwrap().power(0.05).detectable
        };
        assert!(races(0.05, 6) > races(0.05, 24) && races(0.1, 24) > races(0.05, 24));
        assert!((0.02..0.035).contains(&races(0.05, 24)));
        assert_eq!(Effect::of_pairs(&[(1.0, 1.0); 2], false), None);
        assert_eq!(Effect::of_groups(&[1.0, 0.0, 1.0], &[1.0; 3], true), None);
        let effect = Effect::of_groups(&[1.0; 5], &[0.5; 5], true).unwrap();
        assert!(effect.is_sure() && (effect.loss() - 0.5).abs() < 1e-9);
        assert!((effect.power(0.05).loss_max - 0.5).abs() < 1e-9);
    }
}
