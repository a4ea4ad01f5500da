//! From samples to figures: medians, quartiles, means, deviations, intervals, outliers, ratios.
//!
//! Invariants:
//! - Figures of different conditions, sets, classes or tools are never mixed: everything is computed per `Key`. An average
//!   over sets (`columns`) is of figures that agree in all the rest.
//! - Only counted samples enter a figure. Outliers are named, not removed.
//!
//! Rates of a race are skewed: judge by medians and their intervals. Means and deviations are there to compare with
//! publications, which print them.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::sample::{NetworkUse, Sample, State};
use crate::tool::Class;

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    pub n: usize,
    pub min: f64,
    pub quartile_1: f64,
    pub median: f64,
    pub quartile_3: f64,
    pub max: f64,
    pub mean: f64,
    /// Of the sample (n - 1); 0 for one value.
    pub standard_deviation: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let at = |part| quantile(&values, part);
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_deviation = (squares / (n.max(2) - 1) as f64).sqrt();
        let (quartile_1, median, quartile_3) = (at(0.25), at(0.5), at(0.75));
        Some(Spread { n, min, quartile_1, median, quartile_3, max, mean, standard_deviation })
    }

    /// The deviation in units of the mean.
    pub fn variation(&self) -> f64 {
        if self.mean == 0.0 { 0.0 } else { self.standard_deviation / self.mean.abs() }
    }

    /// Beyond one and a half times the middle half on either side; never with fewer than five values.
    pub fn is_outlier(&self, value: f64) -> bool {
        const VALUES_MIN: usize = 5;
        let reach = 1.5 * (self.quartile_3 - self.quartile_1);
        self.n >= VALUES_MIN && !(self.quartile_1 - reach..=self.quartile_3 + reach).contains(&value)
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

/// What has to be equal for figures to belong together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    pub condition: String,
    pub set: String,
    pub class: Class,
    pub tool: String,
}

impl Key {
    pub fn of(sample: &Sample) -> Key {
        let Sample { condition, set, class, tool, .. } = sample;
        Key { condition: condition.clone(), set: set.clone(), class: *class, tool: tool.clone() }
    }

    fn holds(&self, sample: &Sample) -> bool {
        self.set == sample.set
            && self.tool == sample.tool
            && self.class == sample.class
            && self.condition == sample.condition
    }
}

/// All counted samples of one tool on one set under one condition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    pub condition: String,
    pub set: String,
    pub class: Class,
    pub tool: String,
    pub is_ours: bool,
    pub bytes: u64,
    pub files: u64,
    pub seconds: Spread,
    pub gbit_per_second: Spread,
    pub reported_seconds_median: Option<f64>,
    pub gbit_per_second_median: f64,
    pub files_per_second_median: f64,
    pub client_cpu_seconds_median: f64,
    pub server_cpu_seconds_median: Option<f64>,
    pub cpu_seconds_per_gb_median: f64,
    pub cpu_us_per_file_median: f64,
    pub client_rss_bytes_max: u64,
    pub server_rss_bytes_max: Option<u64>,
    pub first_byte_seconds_median: Option<f64>,
    /// Bytes that left the sending host for each byte delivered.
    pub sent_per_byte_median: Option<f64>,
    pub retransmitted_segments_median: Option<f64>,
    /// Rounds whose time lies far from the others.
    pub outliers: Vec<u32>,
    pub failed: usize,
    /// Runs in which the emulated link was not what it was to be.
    pub void: usize,
    pub disturbed: usize,
}

/// How much faster ours was, from the rounds in which both counted.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Ratio {
    pub condition: String,
    pub set: String,
    pub class: Class,
    pub ours: String,
    pub rival: String,
    /// Rival's time divided by ours.
    pub speedup: Spread,
    pub interval: Interval,
}

/// The average of a tool over the sets of a condition, as sweeps are summed up in one figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Column {
    pub condition: String,
    pub class: Class,
    pub tool: String,
    /// Of the sets' mean rates.
    pub gbit_per_second: Spread,
}

/// In the order in which they first appear.
pub fn keys(samples: &[Sample]) -> Vec<Key> {
    let mut seen = BTreeSet::new();
    samples.iter().map(Key::of).filter(|key| seen.insert(key.clone())).collect()
}

pub fn summarize(samples: &[Sample]) -> Vec<Summary> {
    summarize_on(samples, crate::dataset::cores())
}

/// Of samples of a machine with so many cores.
pub fn summarize_on(samples: &[Sample], cores: usize) -> Vec<Summary> {
    keys(samples).iter().filter_map(|key| summarize_one(samples, key, cores)).collect()
}

/// Over the sets whose files have this mean size or more, in the order in which they first appear.
pub fn columns(summaries: &[Summary], file_bytes_min: u64) -> Vec<Column> {
    let mut columns: Vec<(Column, Vec<f64>)> = Vec::new();
    for summary in summaries.iter().filter(|s| s.class != Class::Reference && s.file_bytes() >= file_bytes_min as f64) {
        let Summary { condition, class, tool, gbit_per_second, .. } = summary;
        let is_same =
            |(of, _): &&mut (Column, Vec<f64>)| of.condition == *condition && of.class == *class && of.tool == *tool;
        match columns.iter_mut().find(is_same) {
            Some((_, rates)) => rates.push(gbit_per_second.mean),
            None => {
                let (condition, tool) = (condition.clone(), tool.clone());
                let column = Column { condition, class: *class, tool, gbit_per_second: *gbit_per_second };
                columns.push((column, vec![gbit_per_second.mean]));
            }
        }
    }
    let spread = |(column, rates): (Column, Vec<f64>)| Some(Column { gbit_per_second: Spread::of(rates)?, ..column });
    columns.into_iter().filter_map(spread).collect()
}

pub fn ratios(samples: &[Sample]) -> Vec<Ratio> {
    let lanes = keys(samples);
    let counted = |key: &Key| -> Vec<&Sample> {
        samples.iter().filter(|sample| key.holds(sample) && sample.state == State::Counted).collect()
    };
    let mut ratios = Vec::new();
    for ours in &lanes {
        let of_ours = counted(ours);
        if !of_ours.first().is_some_and(|sample| sample.is_ours) {
            continue;
        }
        let is_rival = |key: &&Key| {
            key.tool != ours.tool && key.set == ours.set && key.class == ours.class && key.condition == ours.condition
        };
        for rival in lanes.iter().filter(is_rival) {
            let of_rival = counted(rival);
            let speedups = of_ours.iter().filter_map(|mine| {
                Some(of_rival.iter().find(|theirs| theirs.round == mine.round)?.seconds / mine.seconds)
            });
            let speedups: Vec<f64> = speedups.collect();
            let both = Spread::of(speedups.iter().copied()).zip(Interval::of_median(speedups));
            if let Some((speedup, interval)) = both {
                let Key { condition, set, class, tool } = ours.clone();
                ratios.push(Ratio { condition, set, class, ours: tool, rival: rival.tool.clone(), speedup, interval });
            }
        }
    }
    ratios
}

impl Summary {
    pub fn file_bytes(&self) -> f64 {
        self.bytes as f64 / self.files.max(1) as f64
    }
}

fn summarize_one(samples: &[Sample], key: &Key, cores: usize) -> Option<Summary> {
    let all: Vec<&Sample> = samples.iter().filter(|sample| key.holds(sample)).collect();
    let counted: Vec<&Sample> = all.iter().copied().filter(|sample| sample.state == State::Counted).collect();
    let first = counted.first()?;
    let spread = |value: fn(&Sample) -> f64| Spread::of(counted.iter().map(|&sample| value(sample)));
    let median = |value: fn(&Sample) -> f64| spread(value).map_or(0.0, |s| s.median);
    let servers: Vec<_> = counted.iter().filter_map(|sample| sample.server).collect();
    let seconds = spread(|sample| sample.seconds)?;
    let network = |value: fn(&Sample, &NetworkUse) -> Option<f64>| {
        let values = counted.iter().filter_map(|sample| value(sample, sample.network.as_ref()?));
        Spread::of(values).map(|spread| spread.median)
    };
    let Key { condition, set, class, tool } = key.clone();
    Some(Summary {
        condition,
        set,
        class,
        tool,
        is_ours: first.is_ours,
        bytes: first.bytes,
        files: first.files,
        seconds,
        gbit_per_second: spread(Sample::gbit_per_second)?,
        reported_seconds_median: Spread::of(counted.iter().filter_map(|s| s.reported_seconds)).map(|s| s.median),
        gbit_per_second_median: median(Sample::gbit_per_second),
        files_per_second_median: median(Sample::files_per_second),
        client_cpu_seconds_median: median(|sample| sample.client.cpu_seconds),
        server_cpu_seconds_median: Spread::of(servers.iter().map(|server| server.cpu_seconds)).map(|s| s.median),
        cpu_seconds_per_gb_median: median(Sample::cpu_seconds_per_gb),
        cpu_us_per_file_median: median(|sample| sample.cpu_seconds() * 1e6 / sample.files.max(1) as f64),
        client_rss_bytes_max: counted.iter().map(|sample| sample.client.rss_bytes_max).max()?,
        server_rss_bytes_max: servers.iter().map(|server| server.rss_bytes_max).max(),
        first_byte_seconds_median: network(|_, network| network.first_byte_seconds),
        sent_per_byte_median: network(|of, network| Some(network.sent_bytes as f64 / of.bytes.max(1) as f64)),
        retransmitted_segments_median: network(|_, network| Some(network.retransmitted_segments as f64)),
        outliers: counted.iter().filter(|s| seconds.is_outlier(s.seconds)).map(|s| s.round).collect(),
        failed: all.iter().filter(|sample| sample.state == State::Failed).count(),
        void: all.iter().filter(|sample| sample.state == State::Void).count(),
        disturbed: counted.iter().filter(|sample| sample.is_disturbed_on(cores)).count(),
    })
}

/// Linear between the two nearest values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let position = part * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// Probability that at most `cut` of `n` fair coins show heads.
fn binomial_below_half(n: usize, cut: usize) -> f64 {
    // By logarithms: from 1,075 coins on, the probability of a single outcome is too small for an `f64`.
    let mut term = -(n as f64);
    let mut sum = term.exp2();
    for heads in 1..=cut {
        term += ((n - heads + 1) as f64 / heads as f64).log2();
        sum += term.exp2();
    }
    sum
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::published;
    use crate::sample::Usage;

    pub fn sample(tool: &str, round: u32, seconds: f64) -> Sample {
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
            bottleneck: None,
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

    /// It reaches 1.96 times the root of a quarter of their number to either side.
    #[test]
    fn the_interval_of_thousands_of_values_is_no_point() {
        let Interval { low, high, confidence } = Interval::of_median((1..=3000).map(f64::from)).unwrap();
        assert!((1440.0..1455.0).contains(&low) && (1546.0..1561.0).contains(&high), "{low} to {high}");
        assert!((0.95..0.96).contains(&confidence), "{confidence}");
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

    #[test]
    fn means_deviations_and_outliers_are_those_of_the_textbook() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!(spread.mean, 5.0);
        assert!((spread.standard_deviation - 2.138_089_935).abs() < 1e-9);
        assert!((spread.variation() - 0.427_617_987).abs() < 1e-9);
        assert!(spread.is_outlier(20.0) && !spread.is_outlier(5.0));
        let one = Spread::of([3.0]).unwrap();
        assert_eq!((one.mean, one.standard_deviation, one.is_outlier(30.0)), (3.0, 0.0, false));
    }

    #[test]
    fn an_outlier_is_named_by_its_round_and_stays_in_the_figures() {
        let samples: Vec<Sample> =
            (1..=6).map(|round| sample("rsync", round, if round == 4 { 9.0 } else { 1.0 })).collect();
        let summary = &summarize(&samples)[0];
        assert_eq!((summary.outliers.as_slice(), summary.seconds.n, summary.seconds.max), ([4].as_slice(), 6, 9.0));
    }

    /// The published streaming sweep as samples of ours, each latency a condition.
    fn published_streaming() -> Vec<Sample> {
        let mut samples = Vec::new();
        for (latency, series) in published::LATENCIES_MS.iter().zip(published::streaming_lab()) {
            for point in series.points {
                let condition = format!("latency={latency}ms");
                let set = format!("{} bytes", point.x);
                let (bytes, files) = ((point.y * 1e9 / 8.0).round() as u64, 1);
                samples.push(Sample { condition, set, bytes, files, ..sample("zx", 1, 1.0) });
            }
        }
        samples
    }

    #[test]
    fn the_published_columns_average_to_their_own_means_and_not_to_the_printed_ones() {
        let samples = published_streaming();
        let columns = columns(&summarize(&samples), 0);
        let means: Vec<String> = columns.iter().map(|column| format!("{:.2}", column.gbit_per_second.mean)).collect();
        assert_eq!(means, ["92.98", "86.08", "83.88"]);
        assert!(columns.iter().all(|column| column.gbit_per_second.n == 19));
        for (mean, printed) in columns[1..].iter().zip(published::STREAMING_MEANS_AS_PRINTED) {
            assert!(printed - mean.gbit_per_second.mean > 1.0);
        }
    }

    #[test]
    fn only_a_lost_condition_would_mix_latencies() {
        let mut samples = published_streaming();
        assert_eq!(summarize(&samples).len(), 57);
        samples.iter_mut().for_each(|sample| sample.condition.clear());
        // Three latencies under one set: what the printed curves did with some of them.
        let mixed = columns(&summarize(&samples), 0);
        assert_eq!(mixed.len(), 1);
        assert_eq!(format!("{:.2}", mixed[0].gbit_per_second.mean), "87.65");
    }

    #[test]
    fn ratios_pair_within_a_condition_only() {
        let at = |condition: &str, tool: &str, seconds: f64| Sample {
            condition: condition.into(),
            ..sample(tool, 1, seconds)
        };
        let samples = [
            at("rtt=0ms", "thalweg", 1.0),
            at("rtt=0ms", "rsync", 2.0),
            at("rtt=74ms", "thalweg", 1.0),
            at("rtt=74ms", "rsync", 5.0),
        ];
        let found: Vec<_> = ratios(&samples).into_iter().map(|r| (r.condition, r.speedup.median)).collect();
        assert_eq!(found, [("rtt=0ms".to_owned(), 2.0), ("rtt=74ms".to_owned(), 5.0)]);
    }
}
