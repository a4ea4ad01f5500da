//! The settings of a transfer as a plan chooses them, each with its reason: streams, storage engine, blocks in flight, compression.
//!
//! Invariant: a setting differs from what a transfer without a plan has only where the calibration promises `WORTH` by it, or where it is
//! what such a transfer would choose in the end, so that a plan never makes a transfer slower on suspicion.
//!
//! Not here: what a transfer makes of them (`cli`, `mover`), changing them while it runs (`tuner`).

use super::level::is_behind;
use super::predict::{DataSet, Gains, Prediction, best, candidates, level_of_bytes, median_rate, predict_with};
use super::written::{Calibration, EngineRun, Part, Unusable, bytes_of, median};
use crate::window::shown;
use model::options::{Compression, Depths, Engine};
use serde::{Deserialize, Serialize};

/// A setting has to promise this much more than what would be chosen without a plan.
const WORTH: f64 = 1.1;

/// One choice, as it is written and told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    pub name: String,
    pub value: String,
    pub reason: String,
}

/// What a sample of the data becomes by one method, and how fast one processor does it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Compressed {
    /// Bytes out for each byte in.
    pub ratio: f64,
    pub bytes_per_second: f64,
    pub sample_bytes: u64,
}

/// What can be asked of the source itself; each takes a while.
pub struct Content<'a> {
    /// Reading them takes as long as the source's storage does.
    pub samples: &'a dyn Fn() -> Vec<Compressed>,
    /// It would be read from memory, and not as calibrated.
    pub is_cached: &'a dyn Fn() -> bool,
}

/// What a transfer is to be done with.
#[derive(Clone, PartialEq, Debug)]
pub struct Chosen {
    pub prediction: Prediction,
    pub engine: Engine,
    pub depths: Depths,
    pub compression: Compression,
    pub settings: Vec<Setting>,
}

/// Chooses settings for a data set. `streams` are those that were asked for. Samples are only taken where compression may help.
pub fn choose(
    calibration: &Calibration,
    data: &DataSet,
    streams: Option<u32>,
    content: &Content<'_>,
) -> Result<Chosen, Unusable> {
    let plain = predict_with(calibration, data, streams, &Gains::default())?;
    let as_it_is = Storage::as_it_is(of_storage_as_it_is(calibration, &plain));
    let (mut storage, mut prediction) = (as_it_is, plain);
    if let Some(other) = faster_storage(calibration) {
        let by_other = predict_with(calibration, data, streams, &other.gains)?;
        // Storage may not be what limits.
        if by_other.p50 >= prediction.p50 * WORTH {
            (storage, prediction) = (other, by_other);
        }
    }
    if storage.engine == Engine::Auto {
        begin_with_queue(calibration, prediction.p50, content.is_cached, &mut storage);
    }
    let (compression, of_compression) =
        compression(calibration, data, streams, content.samples, &mut prediction, &storage.gains)?;
    let mut settings = vec![of_streams(&prediction, streams, calibration.usual_streams)];
    settings.extend(storage.settings);
    settings.push(of_compression);
    Ok(Chosen { prediction, engine: storage.engine, depths: storage.depths, compression, settings })
}

fn setting(name: &str, value: impl ToString, reason: String) -> Setting {
    Setting { name: name.to_owned(), value: value.to_string(), reason }
}

fn of_streams(found: &Prediction, asked: Option<u32>, usual: Option<u32>) -> Setting {
    let best = found.choices.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let own = found.choices.iter().find(|(n, _)| *n == found.streams).map_or(found.p50, |(_, rate)| *rate);
    let limited = limited(found);
    let reason = match asked {
        Some(_) => format!("asked for; {} expected, the best would be {}", shown(own), shown(best)),
        None if usual == Some(found.streams) => {
            format!("as without a plan, because no other number promises 5 % more; {limited}")
        }
        None => format!("the fewest that keep 98 % of the best rate, {}; {limited}", shown(best)),
    };
    setting("streams", found.streams, reason)
}

fn limited(found: &Prediction) -> String {
    let limit = found.bottlenecks.first();
    limit.map_or_else(|| "its limit is not known".to_owned(), |(part, _)| format!("limited by {}", part.word()))
}

fn of_storage_as_it_is(calibration: &Calibration, plain: &Prediction) -> Setting {
    let is_other = |run: &EngineRun| run.engine != Engine::Auto.name();
    let has_other = |part: Part| calibration.engines.iter().any(|run| run.part == part && is_other(run));
    let of_one_side =
        |side: &str| format!("one engine serves both sides, and {side} was not measured with another one");
    let reason = match (has_other(Part::Read), has_other(Part::Write)) {
        (false, false) => "other engines were not measured".to_owned(),
        (false, true) => of_one_side("reading"),
        (true, false) => of_one_side("writing"),
        (true, true) => format!("none that was measured promises 10 % more; {}", limited(plain)),
    };
    setting("engine", Engine::Auto, reason)
}

struct Storage {
    engine: Engine,
    depths: Depths,
    gains: Gains,
    settings: Vec<Setting>,
}

impl Storage {
    fn as_it_is(setting: Setting) -> Storage {
        let (depths, gains) = Default::default();
        Storage { engine: Engine::Auto, depths, gains, settings: vec![setting] }
    }
}

/// The engine and depths with which the slower of both sides is fastest, if they are clearly faster than what a transfer uses without a plan.
/// One engine serves both sides: a side that was not measured with another one forbids it.
fn faster_storage(calibration: &Calibration) -> Option<Storage> {
    let usual = [Part::Read, Part::Write].map(|part| usual_rates(calibration, part));
    let (read, write) = (median(usual[0].clone())?, median(usual[1].clone())?);
    let (slower, of_slower) = if read <= write { (Part::Read, &usual[0]) } else { (Part::Write, &usual[1]) };
    let fastest = of_slower.iter().copied().fold(0.0, f64::max);
    let (mut found, mut least) = (None, read.min(write) * WORTH);
    for engine in [Engine::Plain, Engine::Uring] {
        let best = |part: Part| best_depth(calibration, part, engine);
        let (Some(by_read), Some(by_write)) = (best(Part::Read), best(Part::Write)) else { continue };
        // The best of several depths is better by chance alone; no run of it may be slower than one as it is.
        let depth = if slower == Part::Read { by_read.0 } else { by_write.0 };
        let is_clear = rates(calibration, slower, engine, depth).into_iter().all(|rate| rate >= fastest);
        if by_read.1.min(by_write.1) < least || !is_clear {
            continue;
        }
        least = by_read.1.min(by_write.1);
        let reason = |part: &str, by: f64, usual: f64| format!("{part} {} instead of {}", shown(by), shown(usual));
        let why = format!("{}, {}", reason("reads", by_read.1, read), reason("writes", by_write.1, write));
        let depths = Depths { read: by_read.0, write: by_write.0 };
        let gains = Gains::default().with(Part::Read, by_read.1 / read).with(Part::Write, by_write.1 / write);
        let settings = of_engine(engine, &depths, why);
        found = Some(Storage { engine, depths, gains, settings });
    }
    found
}

/// Begins with a queue on the side where a transfer would choose it in the end and lose time until then: plain calls, with which it
/// begins otherwise, are slower than what is expected of the whole.
fn begin_with_queue(calibration: &Calibration, expected: f64, is_cached: &dyn Fn() -> bool, storage: &mut Storage) {
    let Depths { read, write } = &mut storage.depths;
    for (part, name, verb, depth) in
        [(Part::Read, "read-depth", "read", read), (Part::Write, "write-depth", "write", write)]
    {
        let queued = best_depth(calibration, part, Engine::Uring);
        let plain = median(rates(calibration, part, Engine::Plain, 0));
        let (Some(queued), Some(usual), Some(plain)) = (queued, median(usual_rates(calibration, part)), plain) else {
            continue;
        };
        // What it would come to is not plain calls, and these would limit.
        let is_slow = plain * WORTH < expected.min(usual).min(queued.1);
        if queued.0 == 0 || queued.1 * WORTH < usual || !is_slow || part == Part::Read && is_cached() {
            continue;
        }
        *depth = queued.0;
        let plain = shown(plain);
        let why =
            format!("plain calls {verb} {plain}, and a copy without a plan has only one block in flight at first");
        storage.settings.push(setting(name, queued.0, why));
    }
}

fn of_engine(engine: Engine, depths: &Depths, why: String) -> Vec<Setting> {
    let mut settings = vec![setting("engine", engine, why)];
    if engine == Engine::Uring {
        let named = [("read-depth", depths.read), ("write-depth", depths.write)];
        let of_blocks = || format!("the fastest of the numbers of blocks in flight that were tried with {engine}");
        let named = named.into_iter().filter(|(_, depth)| *depth > 0);
        settings.extend(named.map(|(name, depth)| setting(name, depth, of_blocks())));
    }
    settings
}

/// What the runs with an engine and so many blocks in flight reached.
fn rates(calibration: &Calibration, part: Part, engine: Engine, depth: u32) -> Vec<f64> {
    let is_it = |run: &&EngineRun| run.part == part && run.engine == engine.name() && run.depth == depth;
    calibration.engines.iter().filter(is_it).map(|run| run.bytes_per_second()).collect()
}

/// With how many blocks in flight an engine is fastest, and how fast.
fn best_depth(calibration: &Calibration, part: Part, engine: Engine) -> Option<(u32, f64)> {
    let mut depths: Vec<u32> = calibration.engines.iter().map(|run| run.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let all = depths.into_iter().filter_map(|depth| Some((depth, median(rates(calibration, part, engine, depth))?)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

fn usual_rates(calibration: &Calibration, part: Part) -> Vec<f64> {
    match rates(calibration, part, Engine::Auto, 0) {
        tried if tried.is_empty() => own_rates(calibration, part),
        tried => tried,
    }
}

/// What stands for storage as it is usually used where the time ran out before that was tried among the other ways: the part's own runs, with
/// as many streams. Another tool's say nothing of it.
fn own_rates(calibration: &Calibration, part: Part) -> Vec<f64> {
    let streams = calibration.engines.iter().find(|tried| tried.part == part).map(|tried| tried.run.streams);
    let own = calibration.measured.iter().filter(|measured| measured.part == part && !measured.is_imported);
    let alike = own.flat_map(|measured| &measured.runs).filter(|run| Some(run.streams) == streams);
    alike.map(|run| bytes_of(run) / run.seconds).collect()
}

/// Compresses where the network limits and a sample of the data becomes so much smaller that it pays, with as many streams as are best
/// then. Storage behind the network was not seen faster than that: what it may give more widens the interval, and is not expected.
fn compression(
    calibration: &Calibration,
    data: &DataSet,
    streams: Option<u32>,
    samples: &dyn Fn() -> Vec<Compressed>,
    prediction: &mut Prediction,
    gains: &Gains,
) -> Result<(Compression, Setting), Unusable> {
    let none = |reason: String| Ok((Compression::None, setting("compress", Compression::None, reason)));
    if calibration.runs(Part::Network).is_empty() {
        return none("no network was measured".to_owned());
    }
    let limit = prediction.bottlenecks.first().map(|(part, _)| *part);
    if limit != Some(Part::Network) && (limit != Some(Part::Write) || !is_behind(calibration)) {
        return none(format!("{}: fewer bytes on the network would not help", limited(prediction)));
    }
    let samples = samples();
    // With more streams, more processors compress.
    let gain_of = |sample: &Compressed, n: u32| {
        let processors = f64::from(n.min(calibration.circumstances.processors.max(1)));
        let network = level_of_bytes(calibration, Part::Network, n).unwrap_or(f64::INFINITY);
        (1.0 / sample.ratio.max(1e-3)).min(sample.bytes_per_second * processors / network)
    };
    let sample_at = |n: u32| samples.iter().max_by(|a, b| gain_of(a, n).total_cmp(&gain_of(b, n)));
    let Some(_) = sample_at(1) else { return none("the data was not sampled".to_owned()) };
    let raised = |n: u32| gains.with(Part::Network, sample_at(n).map_or(1.0, |sample| gain_of(sample, n)));
    let at_most = |n: u32| match is_behind(calibration) {
        true => raised(n).with(Part::Write, gains.of(Part::Write) * raised(n).of(Part::Network)),
        false => raised(n),
    };
    let all = streams.map_or_else(|| candidates(calibration), |n| vec![n]);
    let choices: Vec<_> = all.iter().map(|n| (*n, median_rate(calibration, data, *n, &at_most(*n)))).collect();
    let n = best(&choices, calibration.usual_streams);
    let most = predict_with(calibration, data, Some(n), &at_most(n))?;
    let of_sample = sample_at(n).map_or_else(String::new, told);
    if raised(n).of(Part::Network) < 1.0 || most.p50 < prediction.p50 * WORTH {
        return none(format!("it would gain less than 10 %: {of_sample}"));
    }
    let reason =
        format!("the network limits, and {of_sample}: up to {} instead of {}", shown(most.p50), shown(prediction.p50));
    let expected = predict_with(calibration, data, Some(n), &raised(n))?;
    let choices = all.iter().map(|n| (*n, median_rate(calibration, data, *n, &raised(*n)))).collect();
    *prediction = Prediction { p95: most.p95.max(expected.p95), choices, ..expected };
    Ok((Compression::Auto, setting("compress", Compression::Auto, reason)))
}

fn told(sample: &Compressed) -> String {
    format!(
        "a sample of {} shrinks to {:.0} % of its size, at {} on one core",
        model::quantity::ByteCount(sample.sample_bytes),
        100.0 * sample.ratio,
        shown(sample.bytes_per_second)
    )
}
