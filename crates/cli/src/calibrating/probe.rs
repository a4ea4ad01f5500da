//! The runs of a calibration: short transfers, each made to last about as long as the profile wants.

use crate::commands::calibrate::Profile;
use crate::exit::{Error, Result};
use crate::output::note;
use crate::place::Places;
use crate::transfer::{self, Request};
use model::files::{Doomed, Question};
use model::options::{Depths, Engine};
use model::{Exit, Location};
use plan::calibration::{EngineRun, Measured, Part, Run};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const NETWORK_STREAMS: [u32; 4] = [1, 2, 4, 8];
const STORAGE_STREAMS: [u32; 3] = [1, 2, 4];
/// Equal parts of a run's bytes, so that every stream has some of its own.
const FILES: u64 = 8;
const FIRST_BYTES: u64 = 4 << 20;
const BYTES_MIN: u64 = 1 << 20;
const BYTES_MAX: u64 = 4 << 30;
const SMALL_FILES: u64 = 1_000;
const SMALL_BYTES: u64 = 1 << 10;
/// Sizes of the small-file curve, and at most how many files of each.
const CURVE: [(u64, u64); 5] = [(1 << 10, 1_000), (16 << 10, 1_000), (256 << 10, 200), (4 << 20, 16), (64 << 20, 2)];
/// Ways of using storage that are held against what a transfer chooses when it is told nothing, which is the first. The engine's own depth is 0.
const ENGINES: [(Engine, u32); 5] =
    [(Engine::Auto, 0), (Engine::Plain, 0), (Engine::Uring, 4), (Engine::Uring, 8), (Engine::Uring, 32)];
const CURVE_STREAMS: u32 = 4;
/// Of files that are there, what is read.
const READ_BYTES_MAX: u64 = 1 << 30;
const READ_FILES_MAX: usize = 64;

pub struct Prober<'a> {
    places: &'a Places,
    profile: Profile,
    destination: Location,
    /// The one directory that runs write to.
    directory: String,
    written: u32,
    /// How storage is used, where a run is about that.
    storage: (Engine, Depths),
    started: Instant,
    pub start_seconds: Vec<f64>,
    pub measured: Vec<Measured>,
    pub engines: Vec<EngineRun>,
    pub sizes: Vec<Run>,
    pub notes: Vec<String>,
}

impl<'a> Prober<'a> {
    pub fn new(places: &'a Places, profile: Profile, destination: Location) -> Prober<'a> {
        Prober {
            places,
            profile,
            destination,
            directory: format!("thalweg-calibration-{}", std::process::id()),
            written: 0,
            storage: (Engine::Auto, Depths::default()),
            started: Instant::now(),
            start_seconds: Vec::new(),
            measured: Vec::new(),
            engines: Vec::new(),
            sizes: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn measure(&mut self, source: Option<&Path>) -> Result<()> {
        let null = Location::parse("null:".as_ref()).expect("a location");
        let is_remote = self.destination.is_remote();
        let nowhere = if is_remote { self.below("null:")? } else { null.clone() };
        for _ in 0..3 {
            let run = self.transfer(vec![generated(1, 1)], nowhere.clone(), 1, (1, 1))?;
            self.start_seconds.push(run.seconds);
        }
        self.sized(Part::Engine, &STORAGE_STREAMS, &mut |_| Ok(null.clone()))?;
        if is_remote && !self.is_there(Part::Network) {
            self.sized(Part::Network, &NETWORK_STREAMS, &mut |_| Ok(nowhere.clone()))?;
        }
        let wrote = self.write();
        match wrote {
            Err(e) if matches!(e.exit, Exit::Refused | Exit::NoSpace | Exit::Partial | Exit::Failed) => {
                self.notes.push(format!("write and metadata were not measured: {}", e.message));
            }
            other => other?,
        }
        if let Some(source) = source.filter(|_| !self.is_there(Part::Read)) {
            self.read(&largest(source))?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if !self.is_there(Part::Write) {
            self.sized(Part::Write, &STORAGE_STREAMS, &mut |prober| prober.fresh())?;
        }
        let mut runs = Vec::new();
        for (streams, _) in self.order(&[1, 4]) {
            let destination = self.fresh()?;
            let source = vec![generated(SMALL_FILES, SMALL_BYTES)];
            runs.push(self.transfer(source, destination, streams, (SMALL_FILES, SMALL_BYTES))?);
        }
        self.measured.push(Measured { part: Part::Metadata, runs });
        self.each_engine(Part::Write, &mut |prober, streams, bytes| {
            let (file_bytes, to) = ((bytes / FILES).max(1), prober.fresh()?);
            prober.transfer(vec![generated(FILES, file_bytes)], to, streams, (FILES, file_bytes))
        })?;
        let fastest = self.fastest(Part::Write);
        for (file_bytes, files_max) in CURVE {
            let files =
                ((fastest * 2.0 * self.profile.run.as_secs_f64() / file_bytes as f64) as u64).clamp(1, files_max);
            let destination = self.fresh()?;
            let source = vec![generated(files, file_bytes)];
            let run = self.transfer(source, destination, CURVE_STREAMS, (files, file_bytes))?;
            self.sizes.push(run);
        }
        Ok(())
    }

    fn read(&mut self, files: &[(PathBuf, u64)]) -> Result<()> {
        if files.is_empty() {
            self.notes.push("read was not measured: the source holds no files".to_owned());
            return Ok(());
        }
        let mut runs = Vec::new();
        for (streams, _) in self.order(&STORAGE_STREAMS) {
            runs.push(self.read_once(files, streams)?);
        }
        self.measured.push(Measured { part: Part::Read, runs });
        self.each_engine(Part::Read, &mut |prober, streams, _| prober.read_once(files, streams))
    }

    /// Reads files that are not in the cache to nowhere.
    fn read_once(&mut self, files: &[(PathBuf, u64)], streams: u32) -> Result<Run> {
        let null = Location::parse("null:".as_ref()).expect("a location");
        files.iter().for_each(|(path, _)| drop_from_cache(path));
        let sources = files.iter().map(|(path, _)| crate::args::values::location(path.as_os_str()));
        let (bytes, count) = (files.iter().map(|(_, bytes)| bytes).sum::<u64>(), files.len() as u64);
        self.transfer(sources.collect::<Result<_>>()?, null, streams, (count, bytes / count))
    }

    /// Runs of a part at its best number of streams, with each way of using storage, as often as the profile repeats.
    fn each_engine(&mut self, part: Part, run: &mut dyn FnMut(&mut Self, u32, u64) -> Result<Run>) -> Result<()> {
        let rate = |run: &Run| (run.files * run.file_bytes) as f64 / run.seconds;
        let runs = self.measured.iter().filter(|measured| measured.part == part).flat_map(|measured| &measured.runs);
        let Some(best) = runs.max_by(|a, b| rate(a).total_cmp(&rate(b))).copied() else { return Ok(()) };
        let places: Vec<u32> = (0..ENGINES.len() as u32).collect();
        for (place, is_repetition) in self.order(&places) {
            if is_repetition && self.started.elapsed() > self.profile.budget {
                break;
            }
            let (engine, depth) = ENGINES[place as usize];
            self.storage = (engine, Depths { read: depth, write: depth });
            let bytes = (rate(&best) * self.profile.run.as_secs_f64()) as u64;
            let measured = run(self, best.streams, bytes.clamp(BYTES_MIN, BYTES_MAX));
            self.storage = (Engine::Auto, Depths::default());
            self.engines.push(EngineRun { part, engine: engine.name().to_owned(), depth, run: measured? });
        }
        Ok(())
    }

    /// Runs of one part at several numbers of streams, each as large as the one before suggests.
    fn sized(
        &mut self,
        part: Part,
        streams: &[u32],
        destination: &mut dyn FnMut(&mut Self) -> Result<Location>,
    ) -> Result<()> {
        note(&format!("measuring {}", part.word()));
        let mut run_of = |prober: &mut Self, streams: u32, bytes: u64| {
            let to = destination(prober)?;
            let file_bytes = (bytes / FILES).max(1);
            prober.transfer(vec![generated(FILES, file_bytes)], to, streams, (FILES, file_bytes))
        };
        // Not counted: it opens caches and says how much a run has to move.
        let mut last = run_of(self, streams[streams.len() - 1], FIRST_BYTES)?;
        let start = self.start_seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let mut runs = Vec::new();
        for (n, is_repetition) in self.order(streams) {
            if is_repetition && self.started.elapsed() > self.profile.budget {
                self.notes.push(format!("{}: repetitions were omitted because the time ran out", part.word()));
                break;
            }
            let moved = (last.files * last.file_bytes) as f64;
            let rate = moved / (last.seconds - start).max(last.seconds / 10.0);
            let bytes = (rate * self.profile.run.as_secs_f64()) as u64;
            last = run_of(self, n, bytes.clamp(BYTES_MIN, BYTES_MAX))?;
            runs.push(last);
        }
        self.measured.push(Measured { part, runs });
        Ok(())
    }

    /// Every setting once, in random order, and then again; with whether it is a repetition.
    fn order(&self, streams: &[u32]) -> Vec<(u32, bool)> {
        let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64) | 1;
        let mut all = Vec::new();
        for repetition in 0..self.profile.repetitions {
            let mut left = streams.to_vec();
            while !left.is_empty() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (seed >> 33) as usize % left.len();
                all.push((left.swap_remove(place), repetition > 0));
            }
        }
        all
    }

    fn transfer(&self, sources: Vec<Location>, to: Location, streams: u32, size: (u64, u64)) -> Result<Run> {
        let mut request = Request::plain(sources, to);
        request.spec.streams = Some(streams);
        (request.spec.options.engine, request.spec.options.depths) = self.storage;
        let (began, cpu) = (Instant::now(), processor_seconds());
        let finished = transfer::run(&request, began, &self.places.interrupt, None)?;
        if let Some(error) = finished.error {
            return Err(error);
        }
        let (files, file_bytes) = size;
        let seconds = finished.ended.seconds.max(1e-6);
        Ok(Run { streams, files, file_bytes, seconds, cpu_seconds: processor_seconds() - cpu })
    }

    /// Somebody else's figures of it were given.
    fn is_there(&self, part: Part) -> bool {
        self.measured.iter().any(|measured| measured.part == part)
    }

    fn fastest(&self, part: Part) -> f64 {
        let runs = self.measured.iter().filter(|measured| measured.part == part).flat_map(|measured| &measured.runs);
        runs.map(|run| (run.files * run.file_bytes) as f64 / run.seconds).fold(0.0, f64::max)
    }

    /// A location below the destination.
    fn below(&self, path: &str) -> Result<Location> {
        let mut text = self.destination.to_string();
        let has_end = text.ends_with(':') || text.ends_with('/');
        if !has_end && path != "null:" {
            text.push('/');
        }
        if path == "null:" {
            text.truncate(text.find(':').map_or(0, |colon| colon + 1));
        }
        crate::args::values::location(OsString::from(text + path).as_os_str())
    }

    /// A directory that no other run has written to.
    fn fresh(&mut self) -> Result<Location> {
        self.written += 1;
        self.below(&format!("{}/{}/", self.directory, self.written))
    }

    /// Removes what was written. What cannot be removed is named.
    pub fn clean(&mut self) {
        if self.written == 0 {
            return;
        }
        let removed = self.below(&self.directory).and_then(|location| {
            let place = self.places.place(&location)?;
            let objects = vec![Doomed { path: place.path.clone(), version: None }];
            let question = Question::Remove { objects, is_recursive: true, may_be_directory: false };
            place.ask(&question, &self.places.interrupt, &mut |_| true)?.finished().map(drop)
        });
        if let Err(e) = removed {
            note(&format!("{} in {} was not removed: {}", self.directory, self.destination, told(&e)));
        }
    }
}

fn told(error: &Error) -> &str {
    &error.message
}

fn generated(files: u64, file_bytes: u64) -> Location {
    Location::parse(format!("gen:{files}x{file_bytes}").as_ref()).expect("a location")
}

/// Some of the largest files below a directory.
fn largest(root: &Path) -> Vec<(PathBuf, u64)> {
    const ENTRIES_MAX: usize = 100_000;
    let (mut files, mut left, mut looked) = (Vec::new(), vec![root.to_owned()], 0);
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(ENTRIES_MAX.saturating_sub(looked)) {
            looked += 1;
            let Ok(found) = entry.metadata() else { continue };
            if found.is_dir() {
                left.push(entry.path());
            } else if found.is_file() && found.len() > 0 && !entry.file_name().as_bytes().contains(&b'\n') {
                files.push((entry.path(), found.len()));
            }
        }
    }
    files.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    // The same name twice would be one file at the destination.
    let mut names = std::collections::BTreeSet::new();
    files.retain(|(path, _)| path.file_name().is_some_and(|name| names.insert(name.to_owned())));
    let mut sum = 0;
    let fits = |(_, bytes): &(PathBuf, u64)| {
        sum += bytes;
        sum == *bytes || sum <= READ_BYTES_MAX
    };
    files.into_iter().take(READ_FILES_MAX).take_while(fits).collect()
}

fn drop_from_cache(path: &Path) {
    if let Ok(file) = File::open(path) {
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
