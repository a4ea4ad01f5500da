//! The rate of a transfer from a calibration: for each number of streams the slowest part sets the pace of bytes, small files
//! pay for themselves, and the scatter of the measurements becomes an interval.

use super::level::{AS_FAST, is_behind, level, most_asked, runs_behind, settings};
use super::ramp::{RTT_SECONDS_MIN, warm_up_seconds};
use super::written::{Calibration, Part, Run, Unusable, bytes_of, kinds, median};
use crate::streams::STREAMS_CHOSEN_MAX;

/// The share of the best rate that fewer streams must keep, as in `solve`.
const SHARE_KEPT: f64 = 0.98;
/// Other numbers of streams have to promise this much more than the number that a transfer without a plan begins with: what two runs
/// with one setting differ by is of that size.
const STREAMS_WORTH: f64 = 1.05;
const DRAWS: usize = 2_000;
/// Least scatter (one sigma, relative) between two runs of one setting: quick profiles repeat too little to see it.
const SCATTER_MIN: f64 = 0.03;
/// The same where nothing was repeated: what two runs over one path usually differ by is not known.
const SCATTER_UNSEEN: f64 = 0.10;
/// Below this one it is not, whatever it is with more streams.
const SLOWER: f64 = 0.7;
/// How files overlap their own cost with their bytes, where no curve was measured: what published sweeps show.
const EXPONENT_DEFAULT: f64 = 1.5;
/// How far they may do so there: from not at all to nearly all.
const EXPONENTS_UNSEEN: (f64, f64) = (1.0, 5.0);

/// What is to be moved: how many files of which size.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DataSet {
    /// Mean size and count of classes of about equal size.
    pub sizes: Vec<(f64, u64)>,
}

impl DataSet {
    /// Puts files into classes by powers of two.
    pub fn of(file_bytes: impl Iterator<Item = u64>) -> DataSet {
        let mut classes = [(0.0, 0u64); 65];
        for bytes in file_bytes {
            let class = &mut classes[(u64::BITS - bytes.leading_zeros()) as usize];
            *class = (class.0 + bytes as f64, class.1 + 1);
        }
        let filled = classes.into_iter().filter(|(_, count)| *count > 0);
        DataSet { sizes: filled.map(|(sum, count)| (sum / count as f64, count)).collect() }
    }

    pub fn files(&self) -> u64 {
        self.sizes.iter().map(|(_, count)| count).sum()
    }

    pub fn bytes(&self) -> f64 {
        self.sizes.iter().map(|(size, count)| size * *count as f64).sum()
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    pub streams: u32,
    /// Bytes a second, the start and the streams' ramp included.
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
    /// What limits, and in which share of the draws.
    pub bottlenecks: Vec<(Part, f64)>,
    /// Every number of streams that was looked at, with its rate.
    pub choices: Vec<(u32, f64)>,
}

/// By how much more than what was measured each part gives, with other settings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Gains([f64; Part::ALL.len()]);

impl Default for Gains {
    fn default() -> Gains {
        Gains([1.0; Part::ALL.len()])
    }
}

impl Gains {
    pub fn of(&self, part: Part) -> f64 {
        self.0[part as usize]
    }

    pub fn with(mut self, part: Part, gain: f64) -> Gains {
        self.0[part as usize] = gain;
        self
    }
}

/// Predicts a transfer, for the number of streams that is asked for or, without one, for the number that is best.
pub fn predict(calibration: &Calibration, data: &DataSet, asked: Option<u32>) -> Result<Prediction, Unusable> {
    predict_with(calibration, data, asked, &Gains::default())
}

/// The same with other settings than what was measured had.
pub fn predict_with(
    calibration: &Calibration,
    data: &DataSet,
    asked: Option<u32>,
    gains: &Gains,
) -> Result<Prediction, Unusable> {
    let has_way = [Part::Network, Part::Write, Part::Engine].iter().any(|part| !calibration.runs(*part).is_empty());
    if !has_way || data.bytes() <= 0.0 {
        return Err(Unusable::Empty);
    }
    let choices: Vec<(u32, f64)> =
        candidates(calibration).into_iter().map(|n| (n, median_rate(calibration, data, n, gains))).collect();
    let streams = asked.unwrap_or(best(&choices, calibration.usual_streams));
    let levels = Levels::at(calibration, streams);
    let scatters = Part::ALL.map(|part| scatter(calibration, part, streams));
    let of_start = scatter_of_start(calibration);
    // Writing was measured through the network and was as fast: both are slowed down together, so they share one error.
    let shared = is_behind(calibration).then(|| wider(&scatters));
    let mut random = Random(0x5eed_0f7a_1e57_ca11);
    let mut counts = [0usize; Part::ALL.len()];
    let mut rates: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let factor = |part: Part| gains.of(part) * random.of(&scatters[part as usize]);
            let mut factors = Part::ALL.map(factor);
            if let Some(shared) = shared {
                let both = factors[shared as usize] / gains.of(shared);
                for part in [Part::Network, Part::Write] {
                    factors[part as usize] = gains.of(part) * both;
                }
            }
            let [start, ramp] = [random.of(&of_start), random.of(&Scatter { errors: Vec::new(), ..of_start })];
            let exponent = levels.exponent.unwrap_or_else(|| random.exponent());
            let draw = Draw { factors, start, ramp, exponent };
            let (rate, part) = rate(&levels, data, &draw);
            counts[part as usize] += 1;
            rate
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let quantile = |share: f64| rates[((DRAWS - 1) as f64 * share) as usize];
    let mut bottlenecks: Vec<(Part, f64)> = Part::ALL
        .into_iter()
        .zip(counts)
        .filter(|(_, count)| *count > 0)
        .map(|(part, count)| (part, count as f64 / DRAWS as f64))
        .collect();
    bottlenecks.sort_by(|a, b| b.1.total_cmp(&a.1));
    Ok(Prediction { streams, p5: quantile(0.05), p50: quantile(0.5), p95: quantile(0.95), bottlenecks, choices })
}

/// How far the parts are from their medians in one imagined transfer.
struct Draw {
    factors: [f64; Part::ALL.len()],
    /// Of the time until a session stands, and of that until its streams are at their rate.
    start: f64,
    ramp: f64,
    /// How files overlap their own cost with their bytes.
    exponent: f64,
}

/// What each part gives with so many streams: bytes a second, or files a second; and how these overlap, where that was measured.
struct Levels<'a> {
    calibration: &'a Calibration,
    streams: u32,
    carrying: Vec<(f64, Part)>,
    files_per_second: Option<f64>,
    exponent: Option<f64>,
}

impl Levels<'_> {
    fn at(calibration: &Calibration, streams: u32) -> Levels<'_> {
        let carrying = [Part::Read, Part::Network, Part::Write, Part::Engine].into_iter();
        let carrying = carrying.filter_map(|part| Some((level_of_bytes(calibration, part, streams)?, part))).collect();
        let files_per_second = level(calibration, Part::Metadata, streams, |run| run.files as f64);
        let exponent = calibration.small_files.as_ref().map(|curve| curve.p);
        Levels { calibration, streams, carrying, files_per_second, exponent }
    }
}

/// The rate that is expected with so many streams.
pub fn median_rate(calibration: &Calibration, data: &DataSet, streams: u32, gains: &Gains) -> f64 {
    let levels = Levels::at(calibration, streams);
    let exponent = levels.exponent.unwrap_or(EXPONENT_DEFAULT);
    rate(&levels, data, &Draw { factors: gains.0, start: 1.0, ramp: 1.0, exponent }).0
}

/// Of numbers of streams with their rates, the usual one unless another is clearly better; then the least that keeps the best rate.
pub fn best(choices: &[(u32, f64)], usual: Option<u32>) -> u32 {
    let best = choices.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let usual = usual.map(|n| n.min(STREAMS_CHOSEN_MAX));
    let is_good = |(n, rate): &&(u32, f64)| Some(*n) == usual && rate * STREAMS_WORTH >= best;
    let fewest = || choices.iter().find(|(_, rate)| *rate >= best * SHARE_KEPT);
    choices.iter().find(is_good).or_else(fewest).map_or(1, |(n, _)| *n)
}

/// Bytes a second, and the part that limits them.
fn rate(levels: &Levels, data: &DataSet, draw: &Draw) -> (f64, Part) {
    let Levels { calibration, streams, carrying, files_per_second, .. } = levels;
    let rates = carrying.iter().map(|(rate, part)| (rate * draw.factors[*part as usize], *part));
    let (bytes_per_second, slowest) =
        rates.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, Part::Network));
    let a = files_per_second.map_or(0.0, |files| 1.0 / (files * draw.factors[Part::Metadata as usize]));
    let p = draw.exponent.clamp(1.0, 8.0);
    let of_bytes = |size: f64| size / bytes_per_second;
    let each = |size: f64| {
        let longer = a.max(of_bytes(size));
        if longer > 0.0 {
            longer * ((a / longer).powf(p) + (of_bytes(size) / longer).powf(p)).powf(1.0 / p)
        } else {
            0.0
        }
    };
    let sum = |of: &dyn Fn(f64) -> f64| data.sizes.iter().map(|(size, count)| of(*size) * *count as f64).sum::<f64>();
    let seconds = sum(&each);
    let limit = if a * data.files() as f64 > sum(&of_bytes) { Part::Metadata } else { slowest };
    let ramp = calibration.ramp_seconds(*streams, data.bytes() / seconds.max(1e-9), data.bytes());
    let before = calibration.start() * draw.start + ramp * draw.ramp;
    (data.bytes() / (before + seconds).max(1e-9), limit)
}

/// The median rate of a part. Storage behind a network that held it back gives what the network does: over a long path its runs have no
/// steady part, and say less than those of the network. Over a short one that is so only with more streams than were tried for storage.
/// With more than writing was asked to use, a copy without a plan is all that was seen of it: it was held back only where it was nearly as fast.
pub fn level_of_bytes(calibration: &Calibration, part: Part, streams: u32) -> Option<f64> {
    let found = level(calibration, part, streams, bytes_of)?;
    if part != Part::Write || !is_behind(calibration) {
        return Some(found);
    }
    let most = settings(calibration.runs(part)).last().copied()?;
    let network = |streams: u32| level(calibration, Part::Network, streams, bytes_of);
    if warm_up_seconds(calibration.rtt_seconds) > 0.0 {
        let network = network(streams)?;
        let slower = if most_asked(calibration).is_some_and(|asked| streams > asked) { AS_FAST } else { SLOWER };
        return Some(if streams <= most && found < slower * network { found } else { found.max(network) });
    }
    Some(if streams > most { found * (network(streams)? / network(most)?).max(1.0) } else { found })
}

/// All numbers of streams that some part was measured at, and the usual one.
pub fn candidates(calibration: &Calibration) -> Vec<u32> {
    let measured = calibration.measured.iter().flat_map(|measured| settings(&measured.runs));
    // Another tool may have been run with more than a transfer takes.
    let mut all: Vec<u32> = measured.chain(calibration.usual_streams).map(|n| n.min(STREAMS_CHOSEN_MAX)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// How far a part's runs are from each other.
struct Scatter {
    /// Relative, against the median of their setting, as logarithms.
    errors: Vec<f64>,
    /// What is added to each.
    sigma: f64,
}

/// Around the level with so many streams.
fn scatter(calibration: &Calibration, part: Part, streams: u32) -> Scatter {
    let runs = calibration.runs(part);
    let of_level = runs_behind(runs, streams).max(1) as f64;
    let all = kinds(runs);
    let is_repeated = runs.len() > all.len();
    let sigma = if is_repeated { SCATTER_MIN } else { SCATTER_UNSEEN };
    let mut errors = Vec::new();
    for kind in all {
        let rates = runs.iter().filter(|run| (run.streams, run.is_free) == kind);
        let amount = |run: &Run| run.files as f64 * run.file_bytes.max(1) as f64;
        let rates: Vec<f64> = rates.map(|run| amount(run) / calibration.steady_seconds(part, run)).collect();
        let Some(middle) = median(rates.clone()) else { continue };
        if is_repeated && rates.len() == 1 {
            // It says nothing of it.
            continue;
        }
        // Few runs are nearer to their own median than the next one will be to a level, which may rest on fewer still.
        let count = rates.len() as f64;
        let wider = if count > 1.0 { (count / (count - 1.0) * (1.0 + 1.0 / of_level)).sqrt() } else { 1.0 };
        errors.extend(rates.iter().map(|rate| (rate / middle).ln() * wider));
    }
    Scatter { errors, sigma }
}

/// Of network and writing, the part that is farther from its medians.
fn wider(scatters: &[Scatter]) -> Part {
    let spread = |part: Part| {
        let Scatter { errors, sigma } = &scatters[part as usize];
        sigma.powi(2) + errors.iter().map(|error| error.powi(2)).sum::<f64>() / errors.len().max(1) as f64
    };
    if spread(Part::Write) > spread(Part::Network) { Part::Write } else { Part::Network }
}

/// How far the starts of sessions are from each other. Their ramps differ too, by what is not seen.
fn scatter_of_start(calibration: &Calibration) -> Scatter {
    let middle = calibration.start();
    let is_far = calibration.rtt_seconds >= RTT_SECONDS_MIN;
    let errors = calibration.start_seconds.iter().filter(|seconds| **seconds > 0.0 && middle > 0.0);
    Scatter {
        errors: errors.map(|seconds| (seconds / middle).ln()).collect(),
        sigma: if is_far { SCATTER_UNSEEN } else { SCATTER_MIN },
    }
}

/// The generator SplitMix64: the same prediction for the same calibration, always.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An exponent where none was measured, as often below the default as above. Its inverse is what times follow evenly.
    fn exponent(&mut self) -> f64 {
        let off = 2.0 * self.unit() - 1.0;
        let (least, most) = EXPONENTS_UNSEEN;
        let end = if off < 0.0 { least } else { most };
        let usual = 1.0 / EXPONENT_DEFAULT;
        1.0 / (usual + off.abs() * (1.0 / end - usual))
    }

    /// One of the errors that were seen, and the scatter that few runs do not show, as a factor.
    fn of(&mut self, Scatter { errors, sigma }: &Scatter) -> f64 {
        let seen = match errors.len() {
            0 => 0.0,
            n => errors[(self.next() % n as u64) as usize],
        };
        // Twelve of them are nearly normal.
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (seen + sigma * normal).exp()
    }
}
