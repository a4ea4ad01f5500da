//! Which segments of a channel are hit: lost, duplicated or corrupted.
//!
//! Owns: one seeded process over the ordinal numbers of segments, as gaps and bursts between them. It does not depend on
//! time nor on how segments are grouped into packets, so a seed gives the same hits on every back end.
//!
//! With a mean burst of one, gaps are geometric with the probability itself and may be empty: the Bernoulli process.
//! With longer bursts it is the model of Gilbert (1960) with certain loss in the bad state: bursts geometric with the
//! given mean, gaps geometric with the mean that makes the overall share right.

use super::random::Random;

#[derive(Clone, Debug)]
pub struct ErrorProcess {
    random: Random,
    probability: f64,
    burst_mean: f64,
    gap_left: u64,
    burst_left: u64,
}

impl ErrorProcess {
    pub fn new(random: Random, probability: f64, burst_mean: f64) -> ErrorProcess {
        let mut process =
            ErrorProcess { random, probability, burst_mean: burst_mean.max(1.0), gap_left: 0, burst_left: 0 };
        process.start_gap();
        process
    }

    /// Changes the process from the next segment on; the sequence restarts only if something changed.
    pub fn set(&mut self, probability: f64, burst_mean: f64) {
        let burst_mean = burst_mean.max(1.0);
        if (probability, burst_mean) != (self.probability, self.burst_mean) {
            (self.probability, self.burst_mean) = (probability, burst_mean);
            self.start_gap();
        }
    }

    /// Appends which of the next `segments` are hit, by their place among them.
    pub fn draw(&mut self, segments: u32, hit: &mut Vec<u32>) {
        let mut at = 0_u64;
        while at < u64::from(segments) {
            let left = u64::from(segments) - at;
            if self.gap_left >= left {
                self.gap_left -= left;
                return;
            }
            at += self.gap_left;
            self.gap_left = 0;
            let run = self.burst_left.min(u64::from(segments) - at);
            hit.extend((at..at + run).map(|segment| segment as u32));
            at += run;
            self.burst_left -= run;
            if self.burst_left == 0 {
                self.start_gap();
            }
        }
    }

    fn start_gap(&mut self) {
        let (p, mean) = (self.probability, self.burst_mean);
        if mean == 1.0 || p <= 0.0 || p >= 1.0 {
            self.gap_left = self.random.geometric(p);
            self.burst_left = 1;
            return;
        }
        // Share lost = burst / (burst + gap); a gap holds at least one segment, or two bursts would be one.
        let gap_mean = (mean * (1.0 - p) / p).max(1.0);
        self.gap_left = 1 + self.random.geometric(1.0 / gap_mean);
        self.burst_left = 1 + self.random.geometric(1.0 / mean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hit(process: &mut ErrorProcess, total: u32, mut group: impl FnMut() -> u32) -> Vec<u32> {
        let (mut all, mut at) = (Vec::new(), 0);
        while at < total {
            let segments = group().min(total - at);
            let mut now = Vec::new();
            process.draw(segments, &mut now);
            all.extend(now.into_iter().map(|segment| at + segment));
            at += segments;
        }
        all
    }

    proptest! {
        #[test]
        fn grouping_does_not_change_what_is_hit(seed: u64, p in 0.0..=1.0, burst in 1.0..20.0) {
            let process = ErrorProcess::new(Random::new(seed), p, burst);
            let mut sizes = Random::new(seed ^ 1);
            let one_by_one = hit(&mut process.clone(), 2000, || 1);
            let grouped = hit(&mut process.clone(), 2000, || 1 + (sizes.draw() % 45) as u32);
            prop_assert_eq!(one_by_one, grouped);
        }
    }

    #[test]
    fn the_share_and_the_burst_length_are_those_asked_for() {
        for (p, burst) in [(0.001, 1.0), (0.01, 1.0), (0.01, 10.0), (0.3, 3.0)] {
            let total = 4_000_000;
            let hits = hit(&mut ErrorProcess::new(Random::new(5), p, burst), total, || 45);
            let share = hits.len() as f64 / f64::from(total);
            let sigma = (p * (1.0 - p) * (2.0 * burst - 1.0) / f64::from(total)).sqrt();
            assert!((share - p).abs() < 4.0 * sigma, "{p} {burst}: {share}");
            let bursts = 1 + hits.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            let mean = hits.len() as f64 / bursts as f64;
            let expected = if burst == 1.0 { 1.0 / (1.0 - p) } else { burst };
            assert!((mean / expected - 1.0).abs() < 0.05, "{p} {burst}: {mean}");
        }
    }

    #[test]
    fn nothing_is_hit_at_zero_and_everything_at_one() {
        let mut none = ErrorProcess::new(Random::new(3), 0.0, 1.0);
        assert_eq!(hit(&mut none, 1000, || 7), Vec::<u32>::new());
        let mut all = ErrorProcess::new(Random::new(3), 1.0, 1.0);
        assert_eq!(hit(&mut all, 1000, || 7).len(), 1000);
    }
}
