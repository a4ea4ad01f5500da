//! Median, quartiles and intervals: rates of a race are skewed, so means and deviations are not used.

use serde::Serialize;

use crate::sample::{Sample, State};
use crate::tool::Class;

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub n: usize,
    pub min: f64,
    pub quartile_1: f64,
    pub median: f64,
    pub quartile_3: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let at = |part| quantile(&values, part);
        Some(Spread { n: values.len(), min, quartile_1: at(0.25), median: at(0.5), quartile_3: at(0.75), max })
    }
}

/// An interval that holds the true median with this confidence, whatever the distribution.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    pub confidence: f64,
}

impl Interval {
    /// From order statistics: the narrowest symmetric one with at least 95 %, or the whole range if there is none.
    pub fn of_median(values: impl IntoIterator<Item = f64>) -> Option<Interval> {
        const CONFIDENCE: f64 = 0.95;
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let n = values.len();
        let confidence = |cut: usize| 1.0 - 2.0 * binomial_below_half(n, cut);
        let cut = (1..n.div_ceil(2)).rev().find(|&cut| confidence(cut) >= CONFIDENCE).unwrap_or(0);
        Some(Interval { low: *values.get(cut)?, high: values[n - 1 - cut], confidence: confidence(cut) })
    }
}

/// All counted samples of one tool on one set.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub set: String,
    pub class: Class,
    pub tool: String,
    pub is_ours: bool,
    pub seconds: Spread,
    pub reported_seconds_median: Option<f64>,
    pub gbit_per_second_median: f64,
    pub files_per_second_median: f64,
    pub client_cpu_seconds_median: f64,
    pub server_cpu_seconds_median: Option<f64>,
    pub cpu_seconds_per_gb_median: f64,
    pub cpu_us_per_file_median: f64,
    pub client_rss_bytes_max: u64,
    pub server_rss_bytes_max: Option<u64>,
    pub failed: usize,
    /// Runs in which the emulated link was not what it was to be.
    pub void: usize,
    pub disturbed: usize,
}

/// How much faster ours was, from the rounds in which both counted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratio {
    pub set: String,
    pub class: Class,
    pub ours: String,
    pub rival: String,
    /// Rival's time divided by ours.
    pub speedup: Spread,
    pub interval: Interval,
}

/// In the order in which sets and tools first appear.
pub fn summarize(samples: &[Sample]) -> Vec<Summary> {
    keys(samples).into_iter().filter_map(|(set, tool)| summarize_one(samples, &set, &tool)).collect()
}

pub fn ratios(samples: &[Sample]) -> Vec<Ratio> {
    let lanes = keys(samples);
    let counted = |set: &str, tool: &str| -> Vec<&Sample> {
        samples.iter().filter(|s| s.set == set && s.tool == tool && s.state == State::Counted).collect()
    };
    let mut ratios = Vec::new();
    for (set, ours) in &lanes {
        let of_ours = counted(set, ours);
        let Some(first) = of_ours.first().filter(|sample| sample.is_ours) else { continue };
        for (_, rival) in lanes.iter().filter(|(of, tool)| of == set && tool != ours) {
            let of_rival = counted(set, rival);
            if of_rival.first().is_none_or(|sample| sample.class != first.class) {
                continue;
            }
            let speedups = of_ours.iter().filter_map(|mine| {
                Some(of_rival.iter().find(|theirs| theirs.round == mine.round)?.seconds / mine.seconds)
            });
            let speedups: Vec<f64> = speedups.collect();
            let both = Spread::of(speedups.iter().copied()).zip(Interval::of_median(speedups));
            if let Some((speedup, interval)) = both {
                let (set, ours, rival) = (set.clone(), ours.clone(), rival.clone());
                ratios.push(Ratio { set, class: first.class, ours, rival, speedup, interval });
            }
        }
    }
    ratios
}

fn summarize_one(samples: &[Sample], set: &str, tool: &str) -> Option<Summary> {
    let all: Vec<&Sample> = samples.iter().filter(|sample| sample.set == set && sample.tool == tool).collect();
    let counted: Vec<&Sample> = all.iter().copied().filter(|sample| sample.state == State::Counted).collect();
    let first = counted.first()?;
    let median = |value: fn(&Sample) -> f64| Spread::of(counted.iter().map(|&s| value(s))).map_or(0.0, |s| s.median);
    let servers: Vec<_> = counted.iter().filter_map(|sample| sample.server).collect();
    Some(Summary {
        set: set.to_owned(),
        class: first.class,
        tool: tool.to_owned(),
        is_ours: first.is_ours,
        seconds: Spread::of(counted.iter().map(|sample| sample.seconds))?,
        reported_seconds_median: Spread::of(counted.iter().filter_map(|s| s.reported_seconds)).map(|s| s.median),
        gbit_per_second_median: median(Sample::gbit_per_second),
        files_per_second_median: median(Sample::files_per_second),
        client_cpu_seconds_median: median(|sample| sample.client.cpu_seconds),
        server_cpu_seconds_median: Spread::of(servers.iter().map(|server| server.cpu_seconds)).map(|s| s.median),
        cpu_seconds_per_gb_median: median(|sample| sample.cpu_seconds() / (sample.bytes.max(1) as f64 / 1e9)),
        cpu_us_per_file_median: median(|sample| sample.cpu_seconds() * 1e6 / sample.files.max(1) as f64),
        client_rss_bytes_max: counted.iter().map(|sample| sample.client.rss_bytes_max).max()?,
        server_rss_bytes_max: servers.iter().map(|server| server.rss_bytes_max).max(),
        failed: all.iter().filter(|sample| sample.state == State::Failed).count(),
        void: all.iter().filter(|sample| sample.state == State::Void).count(),
        disturbed: counted.iter().filter(|sample| sample.is_disturbed()).count(),
    })
}

fn keys(samples: &[Sample]) -> Vec<(String, String)> {
    let mut keys = Vec::new();
    for sample in samples {
        let key = (sample.set.clone(), sample.tool.clone());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys
}

/// Linear between the two nearest values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Probability that at most `cut` of `n` fair coins show heads.
fn binomial_below_half(n: usize, cut: usize) -> f64 {
    let mut term = 0.5_f64.powi(n as i32);
    let mut sum = term;
    for heads in 1..=cut {
        term *= (n - heads + 1) as f64 / heads as f64;
        sum += term;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Usage;

    fn sample(tool: &str, round: u32, seconds: f64) -> Sample {
        Sample {
            condition: String::new(),
            set: "tiny".into(),
            class: Class::Network,
            tool: tool.into(),
            is_ours: tool == "thalweg",
            round,
            state: if round == 0 { State::Discarded } else { State::Counted },
            seconds,
            reported_seconds: None,
            bytes: 1_000_000_000,
            files: 10,
            client: Usage { cpu_seconds: 1.0, rss_bytes_max: 7 },
            server: Some(Usage { cpu_seconds: 2.0, rss_bytes_max: 9 }),
            network: None,
            foreign_cpu_seconds: 0.0,
            steal_seconds: 0.0,
            note: String::new(),
        }
    }

    #[test]
    fn quartiles_lie_between_the_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.quartile_1, spread.median, spread.quartile_3), (1.75, 2.5, 3.25));
        assert_eq!((spread.n, spread.min, spread.max), (4, 1.0, 4.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn the_interval_of_a_median_says_how_sure_it_is() {
        let of_count = |n: u32| Interval::of_median((1..=n).map(f64::from)).unwrap();
        // Published ranks: n = 10 gives 2..9 with 97.9 %, n = 20 gives 6..15 with 95.9 %.
        let (ten, twenty, five) = (of_count(10), of_count(20), of_count(5));
        assert_eq!((ten.low, ten.high), (2.0, 9.0));
        assert!((ten.confidence - 0.9785).abs() < 1e-3);
        assert_eq!((twenty.low, twenty.high), (6.0, 15.0));
        assert!((twenty.confidence - 0.9586).abs() < 1e-3);
        assert_eq!((five.low, five.high, five.confidence), (1.0, 5.0, 0.9375));
    }

    #[test]
    fn only_counted_samples_enter_a_summary_and_ratios_are_paired_by_round() {
        let mut samples = Vec::new();
        for round in 0..4 {
            samples.push(sample("thalweg", round, 1.0 + f64::from(round)));
            samples.push(sample("rsync", round, 2.0 + 2.0 * f64::from(round)));
        }
        samples[5].state = State::Failed;
        let summaries = summarize(&samples);
        assert_eq!(summaries.iter().map(|s| (s.seconds.n, s.failed)).collect::<Vec<_>>(), [(3, 0), (2, 1)]);
        assert_eq!(summaries[0].cpu_seconds_per_gb_median, 3.0);
        let ratios = ratios(&samples);
        assert_eq!(ratios.len(), 1);
        assert_eq!((ratios[0].speedup.n, ratios[0].speedup.min, ratios[0].speedup.max), (2, 2.0, 2.0));
    }
}
