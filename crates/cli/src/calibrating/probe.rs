//! The runs of a calibration: short transfers, each made to last about as long as the profile wants.
//!
//! Not here: which of the source's files are read, and the ways of using storage (`storage`); what there is time for (`time`).

mod time;
mod storage;

use crate::commands::calibrate::Profile;
use crate::exit::{Error, Result, plain};
use crate::output::note;
use crate::place::{Places, without_slashes};
use crate::transfer::{self, Request};
use model::files::{Doomed, Found, Question};
use model::name::Escaped;
use model::options::{Depths, Engine};
use model::{Exit, FailureKind, Location};
use mover::session::lossy_paths;
use plan::calibration::{EngineRun, Measured, Part, Run, Steady, bytes_of};
use std::cell::Cell;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const NETWORK_STREAMS: [u32; 4] = [1, 2, 4, 8];
const STORAGE_STREAMS: [u32; 3] = [1, 2, 4];
/// More are tried at storage as long as each doubling brings so much.
const WORTH: f64 = 1.1;
const STREAMS_TRIED_MAX: u32 = 16;
/// Equal parts of a run's bytes, so that every stream has some of its own.
const FILES: u64 = 8;
const FIRST_BYTES: u64 = 4 << 20;
const FIRST_BYTES_FAR: u64 = 16 << 20;
const BYTES_MIN: u64 = 1 << 20;
const BYTES_MAX: u64 = 4 << 30;
/// Over a long path: so many are done one after the other that their number tells the rate.
const FILES_FAR: u64 = 512;
/// How often a run that was too short is made again, larger by this factor at most.
const SIZES_MAX: u32 = 6;
const GROWTH_MIN: f64 = 1.25;
const GROWTH_MAX: f64 = 16.0;
/// Round trips that a run loses before it is at its rate, for guessing the size of the next one.
const LOST_ROUND_TRIPS: f64 = 12.0;
/// The same for storage there, whose files are published one by one.
const FILES_FAR_STORED: u64 = 64;
/// Shorter files show nothing of a queue of requests, which storage may be quick with and is slow without.
const STORED_FILE_BYTES: u64 = 16 << 20;
/// And as many times this of them: each stream has as much to do.
const STORED_FILES_MIN: u64 = 4;
/// Times what a run is to take: where files that are long enough for a queue take longer, storage is slow with one too, and shorter ones are used.
const STORED_TIMES_MAX: f64 = 8.0;
/// Times what a few files of one block take, which is the end of a run and not its rate.
const ENDS_IN_A_RUN: f64 = 20.0;
const BLOCK_BYTES: u64 = 128 << 10;
/// Times what the profile wants: no run is made longer for its end.
const LONGER_MAX: f64 = 4.0;
/// At the most and at the least in a run, and in one that tells how many that should be.
const SMALL_FILES: u64 = 1_000;
/// Over a long path, where a thousand are over before the session has come up to its rate.
const SMALL_FILES_FAR: u64 = 32_000;
const SMALL_FILES_GROWTH: f64 = 4.0;
/// Times what a few take, from where on more of them say what one takes.
const ENOUGH: f64 = 2.0;
const SMALL_FILES_MIN: u64 = 32;
const SMALL_FILES_FIRST: u64 = 64;
const SMALL_BYTES: u64 = 1 << 10;
/// Sizes of the small-file curve, and at most how many files of each.
const CURVE: [(u64, u64); 5] = [(1 << 10, 1_000), (16 << 10, 1_000), (256 << 10, 200), (4 << 20, 16), (64 << 20, 2)];
const CURVE_STREAMS: u32 = 4;
/// Runs that take more than so many times what the profile wants are of slow storage.
const SLOW_TIMES: f64 = 3.0;
/// What runs may leave at the destination before it is removed.
const HELD_BYTES_MAX: u64 = 8 << 30;

/// A run with so many streams, or with what it chooses, and about so many bytes.
type RunOf<'f, 'a> = &'f mut dyn FnMut(&mut Prober<'a>, Option<u32>, f64) -> Result<Run>;

/// How long a run has to be, in seconds without its start, and how long it is made to be.
#[derive(Clone, Copy)]
struct Length {
    part: Part,
    least: f64,
    whole: f64,
    /// Some of it has to lie behind the warm-up.
    must_be_steady: bool,
}

pub struct Prober<'a> {
    places: &'a Places,
    profile: Profile,
    destination: Location,
    /// The one directory that runs write to.
    directory: String,
    written: u32,
    /// What lies there, of runs that are over, and after how many directories everything was removed.
    held_bytes: u64,
    cleaned: u32,
    /// How storage is used, where a run is about that.
    storage: (Engine, Depths),
    started: Instant,
    pub start_seconds: Vec<f64>,
    /// What a transfer begins with that nobody tells how many to use.
    pub usual_streams: Option<u32>,
    /// Of the way to the destination, the shortest; 0 within this host.
    pub rtt_seconds: f64,
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
            directory: format!("thalweg-calibration-{:016x}", u64::from_ne_bytes(net::random_bytes())),
            written: 0,
            held_bytes: 0,
            cleaned: 0,
            storage: (Engine::Auto, Depths::default()),
            started: Instant::now(),
            start_seconds: Vec::new(),
            usual_streams: None,
            rtt_seconds: 0.0,
            measured: Vec::new(),
            engines: Vec::new(),
            sizes: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn measure(&mut self, source: Option<&Path>) -> Result<()> {
        let null = Location::parse("null:".as_ref()).expect("a location");
        let is_remote = self.destination.is_remote();
        let nowhere = match &self.destination {
            Location::Named { name, .. } => Location::Named { name: name.clone(), path: b"null:".to_vec() },
            _ => null.clone(),
        };
        for _ in 0..3 {
            let run = self.transfer(vec![generated(1, 1)], nowhere.clone(), Some(1), (1, 1))?;
            self.start_seconds.push(run.seconds);
        }
        // Says how many streams are usual.
        self.transfer(vec![generated(1, 1)], nowhere.clone(), None, (1, 1))?;
        self.sized(Part::Engine, &STORAGE_STREAMS, &mut |_| Ok(null.clone()))?;
        if is_remote && !self.is_there(Part::Network) {
            self.sized(Part::Network, &NETWORK_STREAMS, &mut |_| Ok(nowhere.clone()))?;
        }
        let wrote = self.write();
        self.or_noted("write and metadata were", wrote)?;
        if let Some(source) = source.filter(|_| !self.is_there(Part::Read)) {
            let read = self.read(source);
            self.or_noted("read was", read)?;
        }
        Ok(())
    }

    /// What cannot be measured is named, and does not undo the rest.
    fn or_noted(&mut self, what: &str, measured: Result<()>) -> Result<()> {
        match measured {
            Err(e) if matches!(e.exit, Exit::Refused | Exit::NoSpace | Exit::Partial | Exit::Failed) => {
                self.notes.push(format!("{what} not measured: {}", e.message));
                Ok(())
            }
            other => other,
        }
    }

    fn write(&mut self) -> Result<()> {
        if !self.is_there(Part::Write) {
            self.sized(Part::Write, &STORAGE_STREAMS, &mut |prober| Ok(prober.fresh()))?;
        }
        let few = self.write_files(SMALL_FILES_FIRST, SMALL_BYTES, CURVE_STREAMS)?;
        let small = self.small_in_a_run(&few);
        // What one stream may take longer for as many.
        let longer = self.without_start(&few) * f64::from(CURVE_STREAMS - 1);
        let (mut runs, mut lasted): (Vec<Run>, f64) = (Vec::new(), 0.0);
        for (streams, is_repetition) in self.order(&[1, CURVE_STREAMS], CURVE_STREAMS) {
            if !runs.is_empty() && !self.has_time(Part::Metadata, lasted + longer) {
                self.note_omitted(Part::Metadata, is_repetition);
                break;
            }
            let begun = Instant::now();
            let files = (small * u64::from(streams) / u64::from(CURVE_STREAMS)).max(SMALL_FILES_MIN);
            let known = runs.is_empty().then_some(few);
            runs.push(match self.warm_up() > 0.0 {
                true => self.write_many(files, streams, known)?,
                false => self.write_files(files, SMALL_BYTES, streams)?,
            });
            lasted = begun.elapsed().as_secs_f64();
        }
        self.measured.push(Measured::new(Part::Metadata, runs));
        self.write_engines()?;
        if self.is_mostly_warm_up() {
            // How files of other sizes overlap would be hidden behind the starts of these runs.
            return Ok(());
        }
        let meant = 2.0 * self.profile.run.as_secs_f64();
        let bytes = self.fastest(Part::Write) * meant;
        for (file_bytes, files_max) in CURVE {
            if !self.has_time(Part::Metadata, self.sizes.last().map_or(meant, |run| run.seconds)) {
                self.notes.push("not every size of files was measured, because the time ran out".to_owned());
                break;
            }
            let files = ((bytes / file_bytes as f64) as u64).clamp(1, files_max.min(small));
            let run = self.write_files(files, file_bytes, CURVE_STREAMS)?;
            self.sizes.push(run);
        }
        Ok(())
    }

    /// How many small files take about as long as a run should: some storages take a second for a few.
    fn small_in_a_run(&self, few: &Run) -> u64 {
        let a_second = few.files as f64 / self.without_start(few);
        ((a_second * self.profile.run.as_secs_f64()) as u64).clamp(SMALL_FILES_MIN, SMALL_FILES)
    }

    /// As many small files as take twice as long as a few, and what they took longer: until then a run is mostly its start. `known` is a run
    /// of a few with as many streams.
    fn write_many(&mut self, mut files: u64, streams: u32, known: Option<Run>) -> Result<Run> {
        let one = match known {
            Some(run) => run,
            None => self.write_files(SMALL_FILES_FIRST, SMALL_BYTES, streams)?,
        };
        if files <= SMALL_FILES_FIRST && self.without_start(&one) > SLOW_TIMES * self.profile.run.as_secs_f64() {
            return Ok(Run { steady: None, ..one });
        }
        // The faster of two: a start that was lost once would make all the others free.
        let other = self.write_files(SMALL_FILES_FIRST, SMALL_BYTES, streams)?;
        let few = if one.seconds <= other.seconds { one } else { other };
        let is_of_files = self.without_start(&few) > few.seconds / 2.0;
        if is_of_files && files <= SMALL_FILES_FIRST {
            return Ok(Run { steady: None, ..few });
        }
        loop {
            let run = self.write_files(files, SMALL_BYTES, streams)?;
            if is_of_files {
                return Ok(Run { steady: None, ..run });
            }
            let ratio = run.seconds / few.seconds;
            if ratio >= ENOUGH || files >= SMALL_FILES_FAR || !self.has_time(Part::Metadata, run.seconds * ENOUGH) {
                let steady = Steady::between(&few, &run).filter(|_| ratio >= ENOUGH);
                return Ok(Run { steady, ..run });
            }
            let growth = (ENOUGH * 1.1 / ratio).clamp(GROWTH_MIN, SMALL_FILES_GROWTH);
            files = ((files as f64 * growth) as u64).min(SMALL_FILES_FAR);
        }
    }

    fn write_files(&mut self, files: u64, file_bytes: u64, streams: u32) -> Result<Run> {
        let destination = self.fresh();
        self.transfer(vec![generated(files, file_bytes)], destination, Some(streams), (files, file_bytes))
    }

    /// Runs of one part at several numbers of streams and, where there is a session, with the number that a copy chooses when none is given;
    /// each as large as those before suggest.
    fn sized(
        &mut self,
        part: Part,
        streams: &[u32],
        destination: &mut dyn FnMut(&mut Self) -> Result<Location>,
    ) -> Result<()> {
        note(&format!("measuring {}", part.word()));
        let warm_up = if part == Part::Engine { 0.0 } else { self.warm_up() };
        let files = match part {
            _ if warm_up == 0.0 => FILES,
            Part::Network => FILES_FAR,
            _ => FILES_FAR_STORED,
        };
        let has_long_files = Cell::new(part == Part::Write);
        let mut run_of = |prober: &mut Self, streams: Option<u32>, bytes: f64| {
            let to = destination(prober)?;
            let bytes = (bytes as u64).clamp(BYTES_MIN, BYTES_MAX);
            let (files, file_bytes) =
                if has_long_files.get() { long_files(files, bytes) } else { (files, bytes / files) };
            let run = prober.transfer(vec![generated(files, file_bytes)], to, streams, (files, file_bytes))?;
            Ok(Run { steady: run.steady.filter(|_| part == Part::Network), ..run })
        };
        let lasts = if part == Part::Write && warm_up == 0.0 { self.longer_than_its_end()? } else { 1.0 };
        let lasts = lasts * self.profile.run.as_secs_f64();
        let whole = warm_up + lasts;
        // Not counted: it opens caches and says how much a run has to move.
        let most = streams[streams.len() - 1];
        let bytes = if warm_up > 0.0 { FIRST_BYTES_FAR } else { FIRST_BYTES };
        let must_be_steady = part == Part::Network && warm_up > 0.0;
        let length = Length { part, least: whole / 2.0, whole, must_be_steady };
        let first = self.long_enough(Some(most), bytes as f64, length, &mut run_of)?;
        has_long_files.set(has_long_files.get() && first.seconds < STORED_TIMES_MAX * lasts);
        let mut known = vec![(most, self.rate(&first))];
        let mut runs: Vec<Run> = Vec::new();
        let free = (part != Part::Engine).then_some(None);
        let all: Vec<_> = streams.iter().copied().map(Some).chain(free).collect();
        // A plan keeps to what a copy chooses, so that comes first.
        for (asked, is_repetition) in self.order(&all, None) {
            let longest = runs.iter().fold(first.seconds, |most, run| most.max(run.seconds));
            if !self.has_time(part, longest) || is_repetition && self.has_no_time_for_repetitions(&runs) {
                self.note_omitted(part, is_repetition);
                break;
            }
            let n = asked.or(self.usual_streams).unwrap_or(most);
            // Fewer streams may carry as much less; too little is seen at once, and too much only after a long time.
            let guess = |(m, rate): &(u32, f64)| rate * f64::from(n.min(*m)) / f64::from(*m);
            let rate = known.iter().map(guess).fold(0.0, f64::max);
            let least = whole - lasts / 2.0;
            let bytes = rate * if must_be_steady { whole } else { whole - self.lost(whole) / 2.0 };
            let run = self.long_enough(asked, bytes, Length { least, ..length }, &mut run_of)?;
            // One that may have gone on with others says nothing of these.
            if !run.is_free {
                known.push((n, self.rate(&run)));
            }
            runs.push(run);
        }
        if part == Part::Write {
            let least = whole - lasts / 2.0;
            self.with_more_streams(most, &mut runs, Length { least, ..length }, &mut run_of)?;
        }
        if runs.is_empty() {
            runs.push(first);
        }
        self.measured.push(Measured::new(part, runs));
        Ok(())
    }

    /// Storage that answers late takes more with each stream: more are tried as long as that pays.
    fn with_more_streams(
        &mut self,
        mut streams: u32,
        runs: &mut Vec<Run>,
        length: Length,
        run_of: RunOf<'_, 'a>,
    ) -> Result<()> {
        while self.do_more_pay(runs, streams) {
            streams *= 2;
            let fastest = runs.iter().map(|run| self.rate(run)).fold(0.0, f64::max);
            // A file for each of them at least.
            let bytes = fastest * (length.whole - self.lost(length.whole) / 2.0);
            let bytes = bytes.max(f64::from(streams) * STORED_FILE_BYTES as f64);
            if !self.has_time(Part::Write, bytes / fastest) {
                self.note_omitted(Part::Write, false);
                return Ok(());
            }
            runs.push(self.long_enough(Some(streams), bytes, length, run_of)?);
        }
        Ok(())
    }

    /// Whether twice as many streams are worth a run: so many carry clearly more than half of them, and the network would carry still more.
    fn do_more_pay(&self, runs: &[Run], streams: u32) -> bool {
        let rate_of = |n: u32| {
            let asked = runs.iter().filter(|run| run.streams == n && !run.is_free);
            asked.map(|run| self.rate(run)).fold(0.0, f64::max)
        };
        let (rate, of_half) = (rate_of(streams), rate_of(streams / 2));
        let network = self.runs_of(Part::Network).map(|run| self.rate(run)).fold(0.0, f64::max);
        let is_network_faster = network == 0.0 || network >= WORTH * rate;
        streams < STREAMS_TRIED_MAX && of_half > 0.0 && rate >= WORTH * of_half && is_network_faster
    }

    /// How many times as long as others a run has to be that writes: where storage answers late, files take long to be made durable, and
    /// runs no longer than that would tell of their ends.
    fn longer_than_its_end(&mut self) -> Result<f64> {
        // The faster of two: one may have stood still.
        let mut end = f64::INFINITY;
        for _ in 0..2 {
            let run = self.write_files(STORED_FILES_MIN, BLOCK_BYTES, CURVE_STREAMS)?;
            end = end.min(self.without_start(&run) / self.profile.run.as_secs_f64());
        }
        Ok((ENDS_IN_A_RUN * end).clamp(1.0, LONGER_MAX))
    }

    /// A run that is long enough to say something.
    fn long_enough(
        &mut self,
        streams: Option<u32>,
        mut bytes: f64,
        length: Length,
        run_of: RunOf<'_, 'a>,
    ) -> Result<Run> {
        let mut run = run_of(self, streams, bytes)?;
        for _ in 1..SIZES_MAX {
            let seconds = self.without_start(&run);
            let is_enough = seconds >= length.least && !(length.must_be_steady && run.steady.is_none());
            let is_out_of_time = self.is_late() || !self.has_time(length.part, length.whole.max(run.seconds));
            if is_enough || bytes >= BYTES_MAX as f64 || is_out_of_time {
                break;
            }
            let lost = self.lost(seconds);
            bytes = bytes_of(&run) * ((length.whole - lost) / (seconds - lost)).clamp(GROWTH_MIN, GROWTH_MAX);
            run = run_of(self, streams, bytes)?;
        }
        Ok(run)
    }

    fn without_start(&self, run: &Run) -> f64 {
        let start = self.start_seconds.iter().copied().fold(f64::INFINITY, f64::min);
        (run.seconds - start).max(run.seconds / 10.0)
    }

    /// Of so many seconds, what goes before a session is at its rate.
    fn lost(&self, seconds: f64) -> f64 {
        (LOST_ROUND_TRIPS * self.rtt_seconds).min(seconds * 0.7)
    }

    /// As far as a run tells it.
    fn rate(&self, run: &Run) -> f64 {
        let seconds = self.without_start(run);
        run.steady.map_or(bytes_of(run) / (seconds - self.lost(seconds)), |steady| steady.bytes as f64 / steady.seconds)
    }

    /// Every setting once, in random order, and then again; with whether it is a repetition. One begins, should the time run out.
    fn order<T: Copy + PartialEq>(&self, settings: &[T], first: T) -> Vec<(T, bool)> {
        let mut seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64) | 1;
        let mut all = Vec::new();
        let repetitions = if self.is_mostly_warm_up() { 1 } else { self.profile.repetitions };
        for repetition in 0..repetitions {
            let mut left = settings.to_vec();
            while !left.is_empty() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (seed >> 33) as usize % left.len();
                all.push((left.swap_remove(place), repetition > 0));
            }
        }
        if let Some(place) = all.iter().position(|(setting, _)| *setting == first) {
            all.swap(0, place);
        }
        all
    }

    fn transfer(
        &mut self,
        sources: Vec<Location>,
        to: Location,
        asked: Option<u32>,
        (files, file_bytes): (u64, u64),
    ) -> Result<Run> {
        let (is_remote, to_storage) = (to.is_remote(), !to.is_synthetic());
        let mut request = Request::plain(sources, to);
        request.spec.streams = asked;
        (request.spec.options.engine, request.spec.options.depths) = self.storage;
        let (began, cpu) = (Instant::now(), processor_seconds());
        let mut looks = Vec::new();
        // What one run finds of the path would change those after it.
        lossy_paths::forget();
        let finished = transfer::run_observed(&request, began, &self.places.interrupt, &mut |observed| {
            looks.extend(observed.sample.as_ref().map(|sample| (sample.seconds, sample.counts.bytes_done)));
        })?;
        if let Some(error) = finished.error {
            return Err(error);
        }
        let report = finished.ended.report.as_ref();
        let begun = report.and_then(|report| report.tuning.first()).map(|log| log.streams).filter(|n| *n > 0);
        self.usual_streams = self.usual_streams.or(begun);
        let rtt_us = report.map_or(0, |report| report.snapshot.stream_facts.rtt_us_min);
        if is_remote && rtt_us > 0 {
            let rtt_seconds = rtt_us as f64 / 1e6;
            let is_shorter = self.rtt_seconds == 0.0 || rtt_seconds < self.rtt_seconds;
            self.rtt_seconds = if is_shorter { rtt_seconds } else { self.rtt_seconds };
        }
        let steady = Steady::of(&looks, self.warm_up()).filter(|_| is_remote && self.warm_up() > 0.0);
        let (seconds, cpu_seconds) = (finished.ended.seconds.max(1e-6), processor_seconds() - cpu);
        self.held_bytes += if to_storage { files * file_bytes } else { 0 };
        if self.held_bytes > HELD_BYTES_MAX {
            self.clean();
        }
        // Also where nothing changed it: runs that decide by themselves are of one kind, whatever they decide.
        let (streams, is_free) = (asked.or(begun).unwrap_or(1), asked.is_none());
        Ok(Run { streams, files, file_bytes, seconds, cpu_seconds, steady, is_free })
    }

    /// Somebody else's figures of it were given.
    fn is_there(&self, part: Part) -> bool {
        self.measured.iter().any(|measured| measured.part == part)
    }

    fn fastest(&self, part: Part) -> f64 {
        self.runs_of(part).map(|run| bytes_of(run) / run.seconds).fold(0.0, f64::max)
    }

    fn runs_of(&self, part: Part) -> impl Iterator<Item = &Run> {
        self.measured.iter().filter(move |measured| measured.part == part).flat_map(|measured| &measured.runs)
    }

    /// A directory that no other run has written to.
    fn fresh(&mut self) -> Location {
        self.written += 1;
        below(&self.destination, &[&self.directory, &self.written.to_string()])
    }

    /// Removes what was written, also when the user has stopped everything else. What cannot be removed is named.
    pub fn clean(&mut self) {
        if self.written == self.cleaned {
            return;
        }
        (self.cleaned, self.held_bytes) = (self.written, 0);
        let location = below(&self.destination, &[&self.directory]);
        let places = self.places.unstopped();
        let removed = places.place(&location).and_then(|place| {
            let objects = vec![Doomed { path: without_slashes(&place.path).to_vec(), version: None }];
            let question = Question::Remove { objects, is_recursive: true, may_be_directory: false };
            let mut left = Ok(());
            let answer = place.ask(&question, &places.interrupt, &mut |record| {
                if let Found::Failed { kind, text } = &record.found
                    && *kind != FailureKind::NotFound
                    && left.is_ok()
                {
                    let what = format!("{}: {}", place.shown(&record.path), plain(&Escaped(text.as_bytes())));
                    left = Err(Error::new(Exit::Partial, what));
                }
                true
            })?;
            answer.finished()?;
            left
        });
        if let Err(e) = removed {
            note(&format!("{location} was not removed: {}; `thalweg rm -r {location}` removes it", told(&e)));
        }
    }
}

/// A directory below a destination, by its names.
fn below(destination: &Location, names: &[&str]) -> Location {
    let mut location = destination.clone();
    names.iter().for_each(|name| location.go_below(name.as_bytes()));
    location
}

fn told(error: &Error) -> &str {
    &error.message
}

/// So many files of so many bytes, about as many in all, of which none is too short.
fn long_files(files: u64, bytes: u64) -> (u64, u64) {
    match bytes / files {
        each if each >= STORED_FILE_BYTES => (files, each),
        _ => ((bytes / STORED_FILE_BYTES).max(1).next_multiple_of(STORED_FILES_MIN), STORED_FILE_BYTES),
    }
}

fn generated(files: u64, file_bytes: u64) -> Location {
    Location::parse(format!("gen:{files}x{file_bytes}").as_ref()).expect("a location")
}

fn processor_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_long_enough_for_a_queue_and_in_all_about_what_was_asked_for() {
        let mib = |files: u64, bytes: u64| {
            let (files, each) = long_files(files, bytes << 20);
            (files, each >> 20)
        };
        assert_eq!([mib(8, 12), mib(8, 100), mib(8, 400)], [(4, 16), (8, 16), (8, 50)]);
    }

    /// As it is shown it would be another one.
    #[test]
    fn runs_write_below_the_directory_that_was_named_whatever_its_name() {
        for path in [&b"/s/a\\b"[..], b"/s/a\\b/", b"/s/\xff\n"] {
            let ended = if path.ends_with(b"/") { path.to_vec() } else { [path, b"/"].concat() };
            let found = below(&Location::Local(path.to_vec()), &["c", "1"]);
            assert_eq!(found, Location::Local([&ended[..], b"c/1/"].concat()));
        }
        let lab = |path: &[u8]| Location::Named { name: "lab".into(), path: path.to_vec() };
        assert_eq!(below(&lab(b""), &["c"]), lab(b"c/"));
        assert_eq!(below(&lab(b"a\\b"), &["c"]), lab(b"a\\b/c/"));
    }
}
