//! `thalweg plan SRC DST`: what a calibration predicts for a data set of this host.

use super::values::shown_rate;
use crate::args::values::location;
use crate::calibrations::{self, Outcome};
use crate::exit::{Error, Result, error, usage};
use crate::output::{counted, note, shown};
use model::options::{Compression, Depths, Engine, Fsync, Verify};
use model::quantity::{ByteCount, Rate, duration};
use model::{Exit, Location, TransferOptions, TransferSpec};
use plan::calibration::{
    Calibration, Chosen, Compressed, Content, DataSet, Part, Prediction, Setting, Unusable, candidates, choose,
    is_behind, predict,
};
use plan::graph::{Change, Graph};
use serde::Serialize;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Of the JSON form of an answer.
const VERSION: u64 = 1;

/// A source and a destination of which something is known.
pub struct Ends {
    calibration: Calibration,
    data: DataSet,
    source: Location,
    /// What a sample of it becomes by compression, where that was asked for.
    samples: OnceCell<Vec<Compressed>>,
}

/// What is expected of a transfer.
#[derive(Serialize)]
pub struct Planned {
    pub streams: u32,
    /// Everything that is chosen, each with its reason.
    pub settings: Vec<Setting>,
    pub interval: Interval,
    pub seconds: f64,
    pub files: u64,
    pub bytes: f64,
    /// What was calibrated.
    pub of: String,
    /// What limits, and how likely.
    pub limits: Vec<Limit>,
}

/// Bytes a second.
#[derive(Serialize)]
pub struct Interval {
    pub p5: f64,
    pub p50: f64,
    pub p95: f64,
}

#[derive(Serialize)]
pub struct Limit {
    pub part: &'static str,
    pub share: f64,
}

impl Ends {
    pub fn find(source: &OsStr, destination: &OsStr) -> Result<Ends> {
        let (source, destination) = (location(source)?, location(destination)?);
        let mut calibration =
            calibrations::of_destination(&destination)?.ok_or_else(|| not_calibrated(&destination))?;
        let (data, is_whole) = data_set(&source, &|| false)?;
        if !is_whole {
            note(&in_part(&source));
        }
        for doubt in doubts(&mut calibration, &source)? {
            note(&doubt);
        }
        for part in calibration.unstable() {
            note(&format!("{} was unstable while {} was calibrated", part.word(), shown(&calibration.of)));
        }
        Ok(Ends { calibration, data, source, samples: OnceCell::new() })
    }

    pub fn graph(&self) -> Result<Graph> {
        self.calibration.graph(&self.data).map_err(|e| unusable(&self.calibration.of, &e))
    }

    /// With the fewest streams that reach a rate, or with those that come nearest to it.
    pub fn reach(&self, bytes_per_second: f64, fixed: Option<u32>) -> Result<Planned> {
        let mut best: Option<Planned> = None;
        for n in fixed.map_or_else(|| candidates(&self.calibration), |n| vec![n]) {
            let planned = self.predict(Some(n))?;
            let is_reached = planned.interval.p50 >= bytes_per_second;
            if is_reached || best.as_ref().is_none_or(|best| best.interval.p50 < planned.interval.p50) {
                best = Some(planned);
            }
            if is_reached {
                break;
            }
        }
        best.ok_or_else(|| unusable(&self.calibration.of, &Unusable::Empty))
    }

    /// The same with another rate of one part.
    pub fn with(&self, part: Part, change: Change) -> Ends {
        let mean = self.data.bytes() / self.data.files().max(1) as f64;
        let changed = |rate: f64| match change {
            Change::Times(factor) => rate * factor,
            // An edge for files carries their mean size.
            Change::To(bytes) if part == Part::Metadata => bytes / mean,
            Change::To(bytes) => bytes,
        };
        let calibration = self.calibration.with_rate(part, changed);
        let (data, source, samples) = (self.data.clone(), self.source.clone(), self.samples.clone());
        Ends { calibration, data, source, samples }
    }

    /// What a faster network brings only perhaps.
    pub fn doubt_of_network(&self) -> Option<String> {
        let of = shown(&self.calibration.of);
        is_behind(&self.calibration).then(|| {
            format!(
                "with a faster network, storage is assumed to keep up: the calibration of {of} never saw it faster than the network"
            )
        })
    }

    pub fn predict(&self, streams: Option<u32>) -> Result<Planned> {
        let of = &self.calibration.of;
        let samples = || self.samples.get_or_init(|| samples(&self.source)).clone();
        let is_cached = || matches!(self.source, Location::Local(_)) && calibrations::is_cached(local(&self.source));
        let content = Content { samples: &samples, is_cached: &is_cached };
        let found = choose(&self.calibration, &self.data, streams, &content).map_err(|e| unusable(of, &e))?;
        let Chosen { prediction, settings, .. } = found;
        let Prediction { streams, p5, p50, p95, bottlenecks, .. } = prediction;
        Ok(Planned {
            streams,
            settings,
            interval: Interval { p5, p50, p95 },
            seconds: self.data.bytes() / p50,
            files: self.data.files(),
            bytes: self.data.bytes(),
            of: of.clone(),
            limits: bottlenecks.into_iter().map(|(part, share)| Limit { part: part.word(), share }).collect(),
        })
    }
}

fn not_calibrated(destination: &Location) -> Error {
    let name = match destination {
        Location::Named { name, .. } => name.clone(),
        Location::Local(_) => destination.to_string(),
        _ => {
            let hint = "copies to an endpoint that was added, and to a directory of this host, can be planned";
            return usage(format!("{destination} cannot be calibrated"), hint);
        }
    };
    usage(format!("{} was not calibrated", shown(&name)), format!("`thalweg calibrate {}` measures it", shown(&name)))
}

/// What speaks against a calibration. Reads of other storage than the source's are forgotten.
fn doubts(calibration: &mut Calibration, source: &Location) -> Result<Vec<String>> {
    let of = shown(&calibration.of);
    let now = calibrations::circumstances(&calibration.circumstances.profile);
    let mut doubts = Vec::new();
    let differing = calibration.doubts(&now).join("; ");
    if !differing.is_empty() {
        doubts.push(format!(
            "the calibration of {of} may be stale: {differing} (`thalweg calibrate {of}` measures again)"
        ));
    }
    let mut outcomes = calibrations::outcomes()?.0;
    outcomes.retain(|outcome| outcome.time >= calibration.circumstances.taken);
    if super::report::stale(&outcomes).contains(&calibration.of) {
        doubts.push(format!(
            "the calibration of {of} is stale: the last copies were outside their intervals (`thalweg plan report`)"
        ));
    }
    doubts.extend(calibrations::compare_source(calibration, source));
    Ok(doubts)
}

/// The files of a source, and whether these are all of them.
fn data_set(source: &Location, is_stopped: &dyn Fn() -> bool) -> Result<(DataSet, bool)> {
    let hint = "name a directory with files";
    if let Location::Generated(generated) = source {
        if generated.file_bytes == 0 {
            return Err(usage(format!("{source} holds no bytes to plan for"), hint));
        }
        let files = generated.files.min(1 << 20);
        let sizes = std::iter::repeat_n(generated.file_bytes, files as usize);
        return Ok((DataSet::of(sizes), files == generated.files));
    }
    if !matches!(source, Location::Local(_)) {
        let hint =
            "plans are made on the host that has the files: run the command there, with this host as the destination";
        return Err(usage(format!("the source {source} is not on this host"), hint));
    }
    let path = Path::new(OsStr::from_bytes(source.path()));
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let (data, is_whole) = calibrations::data_set(path, is_stopped)?;
    if data.bytes() <= 0.0 {
        return Err(usage(format!("{} holds no bytes to plan for", shown(path)), hint));
    }
    Ok((data, is_whole))
}

/// What is said of a plan that was made of a part of its source.
fn in_part(source: &Location) -> String {
    format!("{source} holds more files than were examined: the plan covers those only")
}

fn local(source: &Location) -> &Path {
    Path::new(OsStr::from_bytes(source.path()))
}

/// A sample of a source's content, compressed; nothing where there is none to read.
fn samples(source: &Location) -> Vec<Compressed> {
    if !matches!(source, Location::Local(_)) {
        return Vec::new();
    }
    let content = calibrations::sample(local(source));
    let sample_bytes = content.len() as u64;
    let compressed = |(bytes, time): (u64, Duration)| Compressed {
        ratio: bytes as f64 / sample_bytes as f64,
        bytes_per_second: sample_bytes as f64 / time.as_secs_f64().max(1e-9),
        sample_bytes,
    };
    if content.is_empty() {
        Vec::new()
    } else {
        mover::compression::try_out(&content).into_iter().map(compressed).collect()
    }
}

fn unusable(of: &str, why: &Unusable) -> Error {
    error(
        Exit::Failed,
        format!("the calibration of {} cannot be used: {why}", shown(of)),
        format!("`thalweg calibrate {}` measures again", shown(of)),
    )
}

impl Planned {
    /// Beside what a copy reached.
    pub fn outcome(&self, bytes: u64, files: u64, seconds: f64) -> Outcome {
        let Interval { p5, p50, p95 } = self.interval;
        let (time, of, streams) = (calibrations::now(), self.of.clone(), self.streams);
        let measured = bytes as f64 / seconds.max(1e-9);
        Outcome { v: 1, time, of, streams, p5, p50, p95, measured, bytes, files, seconds }
    }

    /// Whether a request kept to all of its settings, and asks for no more than copying than what was calibrated.
    pub fn is_followed_by(&self, spec: &TransferSpec) -> bool {
        let options = &spec.options;
        let is_kept = |Setting { name, value, .. }: &Setting| match name.as_str() {
            "engine" => options.engine.to_string() == *value,
            "compress" => options.compression.to_string() == *value,
            "read-depth" => options.depths.read.to_string() == *value,
            "write-depth" => options.depths.write.to_string() == *value,
            // With a number that is fixed a copy does not go on as a plan expects it to.
            _ => spec.streams.is_none(),
        };
        is_plain(options) && self.settings.iter().all(is_kept)
    }

    /// Gives a request the settings of the plan, but for those that its user chose.
    pub fn apply(&self, spec: &mut TransferSpec) -> Result<()> {
        let mut depths = Depths::default();
        for Setting { name, value, .. } in &self.settings {
            let wrong =
                || usage(format!("the plan's {name} is {}", shown(value)), "`thalweg plan SRC DST --json` prints one");
            let depth = || value.parse().ok().filter(|depth| *depth <= Depths::MAX).ok_or_else(wrong);
            let options = &mut spec.options;
            match name.as_str() {
                "streams" => {}
                "engine" if options.engine == Engine::Auto => options.engine = value.parse().map_err(|_| wrong())?,
                "compress" if options.compression == Compression::None => {
                    options.compression = value.parse().map_err(|_| wrong())?;
                }
                "read-depth" => depths.read = depth()?,
                "write-depth" => depths.write = depth()?,
                "engine" | "compress" => {}
                _ => return Err(wrong()),
            }
        }
        if spec.options.depths == Depths::default() {
            spec.options.depths = depths;
        }
        spec.streams_first = Some(self.streams);
        Ok(())
    }

    pub fn text(&self) -> Vec<String> {
        let Interval { p5, p50, p95 } = self.interval;
        let limit = |limit: &Limit| format!("{} ({:.0} % likely)", limit.part, 100.0 * limit.share);
        let limits: Vec<_> = self.limits.iter().map(limit).collect();
        let mut lines = vec![
            format!("data    {}, {}", counted(self.files, "file", "files"), ByteCount(self.bytes as u64)),
            format!(
                "rate    {}; 9 out of 10 copies between {} and {}",
                shown_rate(p50),
                shown_rate(p5),
                shown_rate(p95)
            ),
            format!("time    {}", duration(self.seconds)),
            format!("with    {}", counted(self.streams.into(), "stream", "streams")),
            format!("limited by {}", limits.join(", ")),
        ];
        let told = |setting: &Setting| format!("{:<11} {}: {}", setting.name, setting.value, setting.reason);
        lines.extend(self.settings.iter().map(told));
        lines
    }
}

/// Whether content is verified and made durable as in the runs of a calibration.
fn is_plain(options: &TransferOptions) -> bool {
    options.verify == Verify::default() && options.fsync == Fsync::default()
}

/// What a copy would take that was only rehearsed, of so many files and bytes, and what speaks against that. Nothing where its destination was
/// not calibrated, or the copy has other settings. `planned` is the plan that it follows.
pub fn of_rehearsal(
    spec: &TransferSpec,
    planned: Option<&Planned>,
    files: u64,
    bytes: u64,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<String>> {
    let TransferSpec { sources, destination, options, .. } = spec;
    let is_as_calibrated = match planned {
        Some(planned) => planned.is_followed_by(spec),
        None => options.engine == Engine::Auto && options.compression == Compression::None && is_plain(options),
    };
    let ([source @ Location::Local(_)], true) = (&sources[..], is_as_calibrated) else { return Ok(Vec::new()) };
    let Some(mut calibration) = calibrations::of_destination(destination)? else { return Ok(Vec::new()) };
    let doubts = doubts(&mut calibration, source)?;
    let (found, is_whole) = data_set(source, is_stopped)?;
    // Of a part, only the mean size of a file is known.
    let is_all = is_whole && (found.bytes() / bytes as f64 - 1.0).abs() < 1e-9;
    let data = if is_all { found } else { DataSet { sizes: vec![(bytes as f64 / files as f64, files)] } };
    let streams = spec.streams.or(calibration.usual_streams);
    let of = calibration.of.clone();
    let Interval { p5, p50, p95 } = match planned {
        Some(_) => Ends { calibration, data, source: source.clone(), samples: OnceCell::new() }.predict(None)?.interval,
        None => {
            let found = predict(&calibration, &data, streams).map_err(|e| unusable(&of, &e))?;
            Interval { p5: found.p5, p50: found.p50, p95: found.p95 }
        }
    };
    let [low, middle, high] = [p5, p50, p95].map(|bytes_per_second| Rate { bytes_per_second });
    let time = duration(bytes as f64 / p50);
    let expected = format!(
        "expected: {time} at {middle}; 9 out of 10 copies between {low} and {high} (by the calibration of {})",
        shown(&of)
    );
    Ok(std::iter::once(expected).chain(doubts).collect())
}

/// The plan that a copy is to follow: of a file, or made of the calibration for its ends. Where none can be made the copy goes on
/// without: `notes` say why, and what speaks against the one that was made.
pub fn for_copy(
    plan: &OsStr,
    sources: &[Location],
    destination: &Location,
    notes: &mut Vec<String>,
) -> Result<Option<Planned>> {
    if plan != "auto" {
        let planned = read(Path::new(plan))?;
        let is_of_another = |names: Vec<String>| !planned.of.is_empty() && !names.contains(&planned.of);
        if calibrations::names_of(destination).is_ok_and(is_of_another) {
            notes.push(format!(
                "it was made for copies to {}, not to {destination}: `thalweg plan SRC DST --json` makes one for these",
                shown(&planned.of)
            ));
        }
        return Ok(Some(planned));
    }
    let [source @ Location::Local(_)] = sources else { return Ok(None) };
    Ok(automatic(source, destination, notes).unwrap_or_else(|e| {
        notes.push(e.message);
        None
    }))
}

fn automatic(source: &Location, destination: &Location, notes: &mut Vec<String>) -> Result<Option<Planned>> {
    let Some(mut calibration) = calibrations::of_destination(destination)? else { return Ok(None) };
    let (data, is_whole) = data_set(source, &|| false)?;
    notes.extend((!is_whole).then(|| in_part(source)));
    notes.extend(doubts(&mut calibration, source)?);
    Ends { calibration, data, source: source.clone(), samples: OnceCell::new() }.predict(None).map(Some)
}

/// Reads what `thalweg plan SRC DST --json` printed. It may have been edited: nothing in it that counts is left out silently.
fn read(path: &Path) -> Result<Planned> {
    planned(&super::values::read_text(path)?).map_err(|why| {
        let hint = "`thalweg plan SRC DST --json` prints one";
        usage(format!("{} holds no plan of a transfer: {why}", shown(path)), hint)
    })
}

fn planned(text: &str) -> Result<Planned, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    match value["v"].as_u64() {
        Some(VERSION) => {}
        Some(v) => return Err(format!("it is of version {v}; this program reads version {VERSION}")),
        None => return Err("it has no version `v`".to_owned()),
    }
    let streams = value["streams"].as_u64().filter(|n| (1..=64).contains(n));
    let streams = streams.ok_or("`streams` is not a number from 1 to 64")?;
    let rates = ["p5", "p50", "p95"].map(|key| value["interval"][key].as_f64().unwrap_or(0.0));
    if rates[0] <= 0.0 || !rates.is_sorted() {
        return Err("`interval` has no rates p5, p50 and p95 that rise".to_owned());
    }
    let [p5, p50, p95] = rates;
    let settings = serde_json::from_value::<Vec<Setting>>(value["settings"].clone());
    let settings = settings.map_err(|e| format!("`settings`: {e}"))?;
    let is_other = |setting: &&Setting| setting.name == "streams" && setting.value != streams.to_string();
    if let Some(Setting { value, .. }) = settings.iter().find(is_other) {
        return Err(format!("`streams` is {streams}, and among the settings it is {}", shown(value)));
    }
    let number = |key: &str| value[key].as_f64().unwrap_or(0.0);
    Ok(Planned {
        streams: streams as u32,
        settings,
        interval: Interval { p5, p50, p95 },
        seconds: number("seconds"),
        files: number("files") as u64,
        bytes: number("bytes"),
        of: value["of"].as_str().unwrap_or_default().to_owned(),
        limits: Vec::new(),
    })
}

/// What a result says of the plan.
pub fn told(plan: &OsString, planned: &Planned) -> Vec<String> {
    let Interval { p5, p50, p95 } = planned.interval;
    let settings =
        planned.settings.iter().map(|Setting { name, value, reason }| format!("plan: {name} {value}: {reason}"));
    let expected = format!(
        "plan {}: {}; {} expected, 9 out of 10 copies between {} and {}",
        shown(plan),
        counted(planned.streams.into(), "stream", "streams"),
        Rate { bytes_per_second: p50 },
        Rate { bytes_per_second: p5 },
        Rate { bytes_per_second: p95 },
    );
    std::iter::once(expected).chain(settings).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_was_edited_is_read_as_it_says_or_refused_with_what_is_wrong() {
        let good = r#"{"v":1,"streams":4,"interval":{"p5":1e8,"p50":2e8,"p95":3e8},"bytes":1e9,"files":3,"of":"lab",
            "settings":[{"name":"streams","value":"4","reason":"r"},{"name":"engine","value":"plain","reason":"r"}]}"#;
        let read = planned(good).unwrap();
        assert_eq!((read.streams, read.settings.len(), read.files, &read.of[..]), (4, 2, 3, "lab"));
        for (from, to, said) in [
            ("\"v\":1", "\"v\":2", "version 2; this program reads version 1"),
            ("\"v\":1,", "", "no version"),
            ("\"streams\":4", "\"streams\":65", "1 to 64"),
            ("\"streams\":4", "\"streams\":8", "`streams` is 8, and among the settings it is 4"),
            ("1e8", "9e8", "p5, p50 and p95"),
            ("1e8", "-1", "p5, p50 and p95"),
            ("1e8", "null", "p5, p50 and p95"),
            ("\"value\":\"plain\"", "\"valeu\":\"plain\"", "`settings`: unknown field `valeu`"),
            ("\"settings\"", "\"setings\"", "`settings`: "),
            ("{", "", "line 1"),
        ] {
            let wrong = good.replacen(from, to, 1);
            let why = planned(&wrong).err().unwrap_or_else(|| panic!("{wrong}"));
            assert!(wrong != good && why.contains(said), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_source_without_bytes_is_named_and_not_the_calibration() {
        let source = Location::parse("gen:5x0".as_ref()).unwrap();
        let wrong = data_set(&source, &|| false).unwrap_err();
        assert!(wrong.message.contains("holds no bytes to plan for"), "{}", wrong.message);
    }

    #[test]
    fn a_source_of_more_files_than_are_looked_at_is_known_in_part() {
        let is_whole = |text: &str| data_set(&Location::parse(text.as_ref()).unwrap(), &|| false).unwrap().1;
        assert!(is_whole("gen:1048576x1KiB") && !is_whole("gen:1048577x1KiB"));
    }
}
