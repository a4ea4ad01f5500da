//! The written form of a calibration, version 1: circumstances, raw runs, what was made of them.

use crate::fit::SmallFiles;
use model::options::Depths;
use serde::{Deserialize, Serialize};
use std::fmt;

pub const VERSION: u32 = 1;
/// Of a run, a third of a year: what is longer was given in another unit.
const SECONDS_MAX: f64 = 1e7;
/// Above every device there is, as in models.
const RATE_MAX: f64 = 1e15;

/// Where and when it was taken; what has changed since makes it stale.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Circumstances {
    pub host: String,
    pub kernel: String,
    pub processors: u32,
    pub program: String,
    /// Seconds since 1970.
    pub taken: u64,
    pub profile: String,
}

/// One run at one setting.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    pub streams: u32,
    pub file_bytes: u64,
    pub files: u64,
    pub seconds: f64,
    /// Of this process.
    pub cpu_seconds: f64,
    /// Where it was looked at while it ran: what moved after slow start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady: Option<Steady>,
    /// It began with so many streams and was free to change them, as a transfer is that nobody tells how many to use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_free: bool,
}

/// A stretch of a run at a steady rate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steady {
    pub bytes: u64,
    pub seconds: f64,
}

impl Run {
    /// Whether a rate can be made of it.
    pub fn is_usable(&self) -> bool {
        let is_rate = |bytes: f64, seconds: f64| {
            seconds > 0.0 && seconds <= SECONDS_MAX && (1e-3..=RATE_MAX).contains(&(bytes / seconds))
        };
        let is_steady = |steady: &Steady| is_rate(steady.bytes as f64, steady.seconds);
        self.streams > 0 && is_rate(bytes_of(self), self.seconds) && self.steady.as_ref().is_none_or(is_steady)
    }
}

pub fn bytes_of(run: &Run) -> f64 {
    run.files as f64 * run.file_bytes as f64
}

/// A part of the way, measured alone as far as it can be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The source's storage to nowhere.
    Read,
    /// Memory to memory, over the network and encrypted where there is one.
    Network,
    /// Memory to the destination's storage, which includes the network.
    Write,
    /// Small files to the destination's storage.
    Metadata,
    /// Memory to memory within this host: every byte digested.
    Engine,
}

impl Part {
    pub const ALL: [Part; 5] = [Part::Read, Part::Network, Part::Write, Part::Metadata, Part::Engine];

    pub fn of_word(word: &str) -> Option<Part> {
        Part::ALL.into_iter().find(|part| part.word() == word)
    }

    pub fn word(self) -> &'static str {
        match self {
            Part::Read => "read",
            Part::Network => "network",
            Part::Write => "write",
            Part::Metadata => "metadata",
            Part::Engine => "engine",
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    pub part: Part,
    pub runs: Vec<Run>,
    /// Another tool's runs, which no session was started for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_imported: bool,
}

impl Measured {
    /// Measured here.
    pub fn new(part: Part, runs: Vec<Run>) -> Measured {
        Measured { part, runs, is_imported: false }
    }
}

/// Storage used in one way, at the best number of streams.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineRun {
    /// `Read` or `Write`.
    pub part: Part,
    /// By its name on the command line.
    pub engine: String,
    /// Blocks in flight; 0 is the engine's own number.
    pub depth: u32,
    pub run: Run,
}

impl EngineRun {
    pub fn bytes_per_second(&self) -> f64 {
        bytes_of(&self.run) / self.run.seconds
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    pub a_seconds: f64,
    pub b_bytes_per_second: f64,
    pub p: f64,
    pub rms: f64,
}

impl From<SmallFiles> for Curve {
    fn from(fit: SmallFiles) -> Curve {
        Curve { a_seconds: fit.a_seconds, b_bytes_per_second: fit.b_bytes_per_second, p: fit.p, rms: fit.rms }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    pub v: u32,
    /// An endpoint's name, NAME:DIR of a directory there, or a directory of this host.
    pub of: String,
    /// The directory that was read, if one was named.
    pub source: Option<String>,
    pub circumstances: Circumstances,
    /// What a transfer of nearly nothing takes.
    pub start_seconds: Vec<f64>,
    /// What a transfer begins with that nobody tells how many to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_streams: Option<u32>,
    /// Of the way to the endpoint, the shortest; 0 within this host.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rtt_seconds: f64,
    pub measured: Vec<Measured>,
    /// Runs with other storage engines and depths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineRun>,
    /// Runs of one amount in files of several sizes, and the law through them.
    pub sizes: Vec<Run>,
    pub small_files: Option<Curve>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Why a calibration cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unusable {
    NotRead(String),
    OtherVersion(u32),
    /// Nothing that carries bytes was measured.
    Empty,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::NotRead(why) => write!(f, "it is no calibration: {why}"),
            Unusable::OtherVersion(v) => write!(f, "it is of version {v}; this program reads version {VERSION}"),
            Unusable::Empty => f.write_str("it holds no usable measurement of a network or storage"),
        }
    }
}

impl std::error::Error for Unusable {}

impl Calibration {
    pub fn parse(text: &str) -> Result<Calibration, Unusable> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let unread = |e: serde_json::Error| Unusable::NotRead(e.to_string());
        let Version { v } = serde_json::from_str(text).map_err(unread)?;
        if v != VERSION {
            return Err(Unusable::OtherVersion(v));
        }
        let read: Calibration = serde_json::from_str(text).map_err(unread)?;
        let measured = read.measured.iter().flat_map(|measured| &measured.runs);
        let mut runs = measured.chain(&read.sizes).chain(read.engines.iter().map(|measured| &measured.run));
        let is_span = |seconds: &f64| (0.0..=SECONDS_MAX).contains(seconds);
        let wrong = if let Some(run) = runs.find(|run| !run.is_usable()) {
            let Run { streams, files, file_bytes, seconds, .. } = run;
            format!(
                "a run of {files} files of {file_bytes} bytes in {seconds:?} s with {streams} streams is impossible"
            )
        } else if !read.start_seconds.iter().chain([&read.rtt_seconds]).all(is_span) {
            "a start of a session or a round trip takes no time that is possible".to_owned()
        } else if read.usual_streams == Some(0) {
            "it begins copies with no stream".to_owned()
        } else if read.engines.iter().any(|measured| measured.depth > Depths::MAX) {
            format!("an engine has more than {} blocks in flight", Depths::MAX)
        } else {
            return Ok(read);
        };
        Err(Unusable::NotRead(wrong))
    }

    /// What differs between then and now, in words; nothing where it still holds.
    pub fn doubts(&self, now: &Circumstances) -> Vec<String> {
        const DAY_SECONDS: u64 = 86_400;
        const OLD_SECONDS: u64 = 14 * DAY_SECONDS;
        let then = &self.circumstances;
        let mut doubts = Vec::new();
        let mut differs = |what: &str, then: &str, now: &str| {
            if then != now {
                doubts.push(format!("it was taken {what} {then}, this is {now}"));
            }
        };
        differs("on host", &then.host, &now.host);
        differs("with kernel", &then.kernel, &now.kernel);
        differs("by version", &then.program, &now.program);
        if then.processors != now.processors {
            doubts.push(format!("it was taken with {} processors, this host has {}", then.processors, now.processors));
        }
        let age = now.taken.saturating_sub(then.taken);
        if age > OLD_SECONDS {
            doubts.push(format!("it is {} days old", age / DAY_SECONDS));
        }
        if then.taken > now.taken.saturating_add(DAY_SECONDS) {
            doubts.push("by the clock of this host it was taken in the future".to_owned());
        }
        doubts
    }

    pub fn runs(&self, part: Part) -> &[Run] {
        self.of_part(part).map_or(&[], |measured| &measured.runs)
    }

    /// Whether a session was started for each of a part's runs.
    pub fn has_start(&self, part: Part) -> bool {
        let is_session = matches!(part, Part::Network | Part::Write | Part::Metadata);
        is_session && self.of_part(part).is_some_and(|measured| !measured.is_imported)
    }

    /// Forgets how fast the source was read.
    pub fn forget_reads(&mut self) {
        self.measured.retain(|measured| measured.part != Part::Read);
        self.engines.retain(|measured| measured.part != Part::Read);
    }

    fn of_part(&self, part: Part) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.part == part)
    }

    /// Parts whose runs of one setting are far from each other: something else was going on, or they stall.
    pub fn unstable(&self) -> Vec<Part> {
        const SCATTER_MAX: f64 = 0.08;
        let is_unstable = |part: &Part| {
            let runs = self.runs(*part);
            let rate = |run: &Run| run.files as f64 * run.file_bytes.max(1) as f64 / self.steady_seconds(*part, run);
            let at = |kind| runs.iter().filter(move |run| (run.streams, run.is_free) == kind).map(rate);
            let scatter = |kind| {
                let (count, sum) = at(kind).fold((0.0, 0.0), |(count, sum), rate| (count + 1.0, sum + rate));
                let mean = sum / count;
                let squares: f64 = at(kind).map(|rate| (rate - mean).powi(2)).sum();
                if count > 1.0 { (squares / (count - 1.0)).sqrt() / mean } else { 0.0 }
            };
            kinds(runs).into_iter().any(|kind| scatter(kind) > SCATTER_MAX)
        };
        Part::ALL.into_iter().filter(is_unstable).collect()
    }

    /// What every transfer takes before the first byte: the median.
    pub fn start(&self) -> f64 {
        median(self.start_seconds.clone()).unwrap_or(0.0)
    }
}

/// Runs of one kind tell how far apart two of them may be.
pub fn kinds(runs: &[Run]) -> Vec<(u32, bool)> {
    let mut kinds: Vec<_> = runs.iter().map(|run| (run.streams, run.is_free)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// The middle value, or the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some(f64::midpoint(values[half - 1], values[half])),
    }
}
