//! The whole chain, as a facility uses it: an instrument that writes, storage that stalls, a buffer, a long path, a buffer, a store that
//! stalls, ordered from a third place. Once undisturbed; once with each process killed and the path cut in the middle.
//!
//! Invariants: every word of the hub is kept; every file is compared by programs that are not ours; what is predicted is computed before
//! the run from legs that were measured alone.

mod appender;
mod course;
mod stand;
mod told;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use lab::record::reasons_since;
use plan::staging::{Leg, Legs, Stalling};
use serde_json::{Value, json};

use super::context::Context;
use super::judge::{Check, median, shown};
use crate::environment::{Environment, Program};
use crate::error::{Error, Kind, Result};
use crate::plot::{self, Axis, Plot, Point, Scale, Series, Unit};
use course::{Course, Event, Moment, Shared};
use stand::{Plan, ROLES, Stand};

pub const BITS_PER_SECOND: u64 = 500_000_000;
const RTT_MS: u64 = 74;
const BYTES: u64 = 4_000_000_000;
/// Seconds, of seconds: of the instrument's storage and of the store.
const STALL: (u64, u64) = (3, 15);
/// Relative to the rate of the link.
const STORAGE_SHARE: f64 = 1.6;
const INSTRUMENT_SHARE: f64 = 1.25;
/// What a buffer holds of the link's rate, in seconds: the longest stall, and as much again.
const BUFFER_SECONDS: f64 = 6.4;
const BUFFER_BYTES_MIN: u64 = 64 << 20;
const CHUNK_BYTES: f64 = 8_388_608.0;
const SEGMENT_BYTES: f64 = 67_108_864.0;
const STREAMS: f64 = 4.0;
/// When the first process is killed, and how long until the next, in shares of what the slowest leg needs.
const KILLS: (f64, f64) = (0.4, 0.06);
const PROBE_SECONDS: f64 = 15.0;

/// Each leg alone.
struct Alone {
    bytes: u64,
    instrument: f64,
    storage: Stalling,
    path: f64,
    store: Stalling,
}

impl Alone {
    /// What the slowest needs.
    fn slowest_seconds(&self) -> f64 {
        let rates =
            [self.instrument, self.storage.mean_bytes_per_second(), self.path, self.store.mean_bytes_per_second()];
        self.bytes as f64 / rates.into_iter().fold(f64::MAX, f64::min)
    }

    /// How much later the path ends than if everything were written when it begins: a bucket takes no file that still grows, so each
    /// waits for its last byte.
    fn late_seconds(&self, sizes: &[u64]) -> f64 {
        let slowest = self.bytes as f64 / self.slowest_seconds();
        let (mut before, mut late) = (0.0, 0.0);
        for size in sizes.iter().map(|size| *size as f64) {
            late = f64::max(late, (before + size) / self.instrument - before / slowest);
            before += size;
        }
        late
    }

    fn predicted_seconds(&self, buffer_bytes: u64, sizes: &[u64]) -> Option<f64> {
        let delay_seconds = RTT_MS as f64 / 1e3;
        let leg = Leg {
            bytes_per_second: self.path,
            delay_seconds,
            chunk_bytes: CHUNK_BYTES,
            lanes: STREAMS,
            segment_bytes: SEGMENT_BYTES.min(buffer_bytes as f64 / 4.0),
            // The buffers hold far more.
            window_bytes: 0.0,
        };
        let (source_buffer_bytes, sink_buffer_bytes) = (buffer_bytes as f64, buffer_bytes as f64);
        let (source, sink, volume_bytes) = (self.storage, self.store, self.bytes as f64);
        let legs = Legs { source, source_buffer_bytes, leg, sink_buffer_bytes, sink, volume_bytes };
        legs.times().map(|times| self.late_seconds(sizes) + times.delivered_seconds)
    }
}

pub fn run(context: &mut Context) -> Result<()> {
    let bits = context.options.bits_per_second.unwrap_or(BITS_PER_SECOND);
    let bytes = context.options.bytes.unwrap_or(BYTES);
    let link = bits as f64 / 8.0;
    let plan = Plan {
        bits_per_second: bits,
        rtt_ms: RTT_MS,
        storage_bytes_per_second: (link * STORAGE_SHARE) as u64,
        stall: STALL,
        buffer_bytes: ((link * BUFFER_SECONDS) as u64).max(BUFFER_BYTES_MIN),
    };
    let buffer_bytes = plan.buffer_bytes;
    let storage = stalling(plan.storage_bytes_per_second as f64);
    for name in ["course.jsonl", "events.jsonl", "sums.txt"] {
        let _ = fs::remove_file(context.dir.join(name));
    }
    let mut stand = Stand::up(context, plan, bytes)?;
    context.note(format!("the store is {}", stand.store));
    // Long enough that the ramp is little of it.
    let probe = (link * PROBE_SECONDS) as u64 / 8 * 8;
    let path = path_alone(context, &stand, probe)?;
    let store = stalling(stand.store_alone(probe)?);
    let alone = Alone { bytes, instrument: link * INSTRUMENT_SHARE, storage, path, store };
    let predicted = alone.predicted_seconds(buffer_bytes, &appender::sizes(bytes, context.options.seed));
    keep_set_up(context, &stand, &alone, predicted)?;
    let (mut calm, mut rough): (Runs, Runs) = Default::default();
    let (mut wrong, mut curves) = (0, Vec::new());
    for round in 1..=context.options.rounds.unwrap_or(1) {
        for is_rough in [false, true] {
            let name = format!("{}-{round}", if is_rough { "disturbed" } else { "undisturbed" });
            let (moments, void) = one(context, &mut stand, &alone, &name, is_rough)?;
            wrong += verify(context, &stand, &name, &alone)?;
            let runs = if is_rough { &mut rough } else { &mut calm };
            runs.seconds.extend(moments.last().map(|last| last.at));
            runs.late.extend(void.into_iter().map(|reason| format!("{name}: {reason}")));
            curves.push((name, moments));
        }
    }
    judge(context, &alone, predicted, [calm, rough], wrong)?;
    draw(context, &alone, curves);
    match wrong {
        0 => Ok(()),
        wrong => {
            let cause = format!("an independent reader finds files of {wrong} bytes wrong: sums.txt names them");
            Err(Error::new(Kind::Failed, "deliver", "what was written", cause))
        }
    }
}

/// Those of one kind.
#[derive(Default)]
struct Runs {
    seconds: Vec<f64>,
    /// Why the laboratory may have had a part in them.
    late: Vec<String>,
}

fn stalling(bytes_per_second: f64) -> Stalling {
    Stalling { bytes_per_second, stall_seconds: STALL.0 as f64, period_seconds: STALL.1 as f64 }
}

/// From memory to memory, by the same two endpoints on the hub's order.
fn path_alone(context: &Context, stand: &Stand<'_>, bytes: u64) -> Result<f64> {
    let file = stand.path("job.json");
    let job = json!({"source": format!("instrument:gen:8x{}", bytes / 8), "destination": "archive:null:"});
    fs::write(&file, job.to_string()).map_err(Error::io("write", &file))?;
    let office = stand.office()?;
    let said = office.thalweg(&["submit", &file.display().to_string()])?;
    let id = said.split_whitespace().last().unwrap_or_default();
    let watched = office.thalweg(&["job", "watch", id]);
    let shown = office.thalweg(&["job", "show", "--json", id])?;
    let job: Value = serde_json::from_str(&shown).unwrap_or_default();
    let seconds = job["report"]["seconds"].as_f64().filter(|_| watched.is_ok());
    let path = context.dir.join("path.json");
    fs::write(&path, format!("{job}\n")).map_err(Error::io("write", &path))?;
    seconds.map(|seconds| bytes as f64 / seconds).ok_or_else(|| Error::new(Kind::Failed, "measure", "the path", shown))
}

/// One run: the instrument, the job, and what happens meanwhile. Returns how far everything was at each moment, and why
/// that says more about the emulator than about the chain, if it does.
fn one(
    context: &Context,
    stand: &mut Stand<'_>,
    alone: &Alone,
    name: &str,
    is_rough: bool,
) -> Result<(Vec<Moment>, Vec<String>)> {
    let (slowest, seed) = (alone.slowest_seconds(), context.options.seed);
    let dir = stand.instrument().join(name);
    fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
    let file = stand.path(&format!("job-{name}.json"));
    fs::write(&file, course::job(name, name)).map_err(Error::io("write", &file))?;
    let (raw, heard, socket) = (context.dir.join("course.jsonl"), context.dir.join("events.jsonl"), stand.socket());
    let sizes = appender::sizes(alone.bytes, seed);
    let shared = Shared::new(name.to_owned(), Duration::from_secs_f64(120.0 + 6.0 * slowest));
    let events = events(stand, slowest, is_rough, &shared);
    let office = stand.office()?;
    let failed: Mutex<Option<Error>> = Mutex::default();
    let note = |ended: Result<()>| {
        if let Err(error) = ended {
            failed.lock().unwrap().get_or_insert(error);
            shared.is_over.store(true, Relaxed);
        }
    };
    let before = stand.lab.snapshot();
    let course = Course { office: &office, job_file: &file, raw: &raw, shared: &shared };
    let moments = thread::scope(|scope| {
        scope.spawn(|| {
            note(appender::run(&dir, &sizes, (alone.instrument, seed), &shared.written, &shared.is_over));
        });
        scope.spawn(|| note(course::listen(&socket, &heard, &shared)));
        let following = scope.spawn(|| {
            let ended = course.follow();
            let moments = ended.map_err(|error| note(Err(error))).unwrap_or_default();
            shared.is_over.store(true, Relaxed);
            moments
        });
        // On this thread, with which the processes end.
        note(course::happen(stand, events, &raw, &shared, context.cancel()));
        following.join().expect("a run does not panic")
    });
    let void = reasons_since(&stand.lab, before.as_ref());
    course::keep(&raw, &json!({"run": name, "at": shared.began.elapsed().as_secs_f64(), "void": void}))?;
    failed.into_inner().unwrap().map_or(Ok((moments, void)), Err)
}

/// What stands still and when, and in a disturbed run what is killed and cut.
fn events(stand: &Stand<'_>, slowest: f64, is_rough: bool, shared: &Shared) -> Vec<(f64, Event)> {
    let (stall, period) = (STALL.0 as f64, STALL.1 as f64);
    let periods = (shared.limit.as_secs_f64() / period) as u32;
    let stalls = |ahead: f64, event: fn(bool) -> Event| {
        let ends = (1..=periods).map(move |number| f64::from(number) * period - ahead);
        ends.flat_map(move |end| [(end - stall, event(true)), (end, event(false))]).collect::<Vec<_>>()
    };
    // It stands still in the last seconds of each period from when it was mounted.
    let ahead = shared.began.saturating_duration_since(stand.mounted).as_secs_f64() % period;
    let mut events = [stalls(0.0, Event::Stall), stalls(ahead, Event::Storage)].concat();
    if is_rough {
        let kills = ROLES.into_iter().filter(|role| stand.may_kill(*role)).enumerate();
        events.extend(kills.map(|(n, role)| (slowest * (KILLS.0 + KILLS.1 * n as f64), Event::Kill(role))));
        let cut = slowest * (KILLS.0 + KILLS.1 * ROLES.len() as f64);
        events.push((cut, Event::Cut));
    }
    events
}

/// Fetches every file with curl, compares its SHA-256 with the instrument's, and makes room. Returns the bytes of files that are wrong,
/// missing or too many.
fn verify(context: &Context, stand: &Stand<'_>, name: &str, alone: &Alone) -> Result<u64> {
    let (dir, fetched) = (stand.instrument().join(name), stand.path("fetched"));
    let mut wrong = 0;
    let sizes = appender::sizes(alone.bytes, context.options.seed);
    let mut sums = String::new();
    for (number, size) in sizes.iter().enumerate() {
        let key = format!("/{name}/{}", appender::name_of(number));
        let sum = stand.request("GET", &key, Some(&fetched)).and_then(|_| sha256(&fetched)).unwrap_or_default();
        let is_same = sum == sha256(&dir.join(appender::name_of(number)))?;
        wrong += if is_same { 0 } else { *size };
        sums += &format!(
            "{} {key} {size} {}\n",
            if sum.is_empty() { "missing" } else { &sum },
            if is_same { "same" } else { "WRONG" }
        );
        let _ = stand.request("DELETE", &key, None);
    }
    let _ = stand.request("DELETE", &format!("/{name}/{}", appender::STOP), None);
    let path = context.dir.join("sums.txt");
    let before = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, before + &sums).map_err(Error::io("write", &path))?;
    // What is left is nobody's.
    let listed = stand.request("GET", &format!("?list-type=2&prefix={name}%2F"), None)?;
    let left = listed.split("<Key>").skip(1).filter_map(|part| part.split("</Key>").next());
    let left: Vec<_> = left.filter(|key| !key.ends_with('/')).collect();
    fs::remove_dir_all(&dir).map_err(Error::io("remove", &dir))?;
    match left.is_empty() {
        true => Ok(wrong),
        false => Err(Error::new(Kind::Failed, "list", name, format!("nobody wrote {}", left.join(", ")))),
    }
}

fn sha256(path: &Path) -> Result<String> {
    let output = std::process::Command::new("sha256sum").arg(path).output().map_err(Error::io("run", "sha256sum"))?;
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().next().unwrap_or_default().to_owned())
}

fn keep_set_up(context: &mut Context, stand: &Stand<'_>, alone: &Alone, predicted: Option<f64>) -> Result<()> {
    let legs = [
        ("instrument", alone.instrument),
        ("its storage, stalls included", alone.storage.mean_bytes_per_second()),
        ("path alone", alone.path),
        ("store, stalls included", alone.store.mean_bytes_per_second()),
    ];
    for (leg, rate) in legs {
        context.check(Check::told(leg, "", format!("{} MB/s", shown(rate / 1e6))));
    }
    let legs: serde_json::Map<_, _> = legs.into_iter().map(|(leg, rate)| (leg.to_owned(), json!(rate))).collect();
    let curl = crate::tool::version_of(Path::new("curl"), "--version", "curl").unwrap_or_default();
    let environment = Environment { program: Program::read(&context.options.program), ..Environment::read() };
    let set_up = json!({"environment": environment, "store": stand.store, "reader": curl, "bytes": alone.bytes,
        "bytes_per_second": legs, "slowest_seconds": alone.slowest_seconds(), "predicted_seconds": predicted});
    let path = context.dir.join("set-up.json");
    let text = serde_json::to_string_pretty(&set_up).expect("plain values serialise") + "\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}

fn judge(
    context: &mut Context,
    alone: &Alone,
    predicted: Option<f64>,
    [calm, rough]: [Runs; 2],
    wrong: u64,
) -> Result<()> {
    let slowest = alone.slowest_seconds();
    let [calm_seconds, rough_seconds] = [&calm, &rough].map(|runs| median(runs.seconds.iter().copied()));
    let against = |seconds: Option<f64>| seconds.map(|seconds| seconds / slowest);
    let check = Check::at_most("undisturbed: makespan / slowest leg alone", 1.15, against(calm_seconds));
    context.check(check.beside(&calm.late));
    let claim = "each process killed and the path cut: makespan / slowest leg alone";
    context.check(Check::at_most(claim, 1.15, against(rough_seconds)).beside(&rough.late));
    let ratio = calm_seconds.zip(predicted).map(|(measured, predicted)| measured / predicted);
    let check = Check::within("undisturbed: makespan / the planner's prediction", 0.9, 1.1, ratio);
    context.check(check.beside(&calm.late));
    let claim = "bytes of files that an independent reader finds wrong";
    context.check(Check::at_most(claim, 0.0, Some(wrong as f64)).of_any_machine());
    let kept = |name: &str| {
        let path = context.dir.join(name);
        fs::read_to_string(&path).map_err(Error::io("read", &path))
    };
    let told = told::check(&kept("course.jsonl")?, &kept("events.jsonl")?, alone.bytes);
    told.checks(&[calm.late, rough.late].concat()).into_iter().for_each(|check| context.check(check));
    Ok(())
}

fn draw(context: &mut Context, alone: &Alone, curves: Vec<(String, Vec<Moment>)>) {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    for (name, moments) in curves {
        let points =
            |of: &dyn Fn(&Moment) -> u64| moments.iter().map(|moment| Point::at(moment.at, gb(of(moment)))).collect();
        let written = points(&|moment| moment.written);
        let reached = points(&|moment| moment.delivered);
        let bound = vec![Point::at(0.0, 0.0), Point::at(alone.slowest_seconds(), gb(alone.bytes))];
        let of = |name: &str, kind, points| Series { name: name.into(), kind, points };
        context.plot(Plot {
            name: name.clone(),
            title: format!("The chain, {}", name.replace('-', ", round ")),
            note: "What is under way counts as reached; the store and the instrument's storage stand still for 3 of every 15 s.".into(),
            x: Axis::new("seconds", Scale::Linear, Unit::Number),
            y: Axis::new("GB", Scale::Linear, Unit::Number),
            series: vec![
                of("written by the instrument", plot::Kind::Rival, written),
                of("delivered, or under way", plot::Kind::Measured, reached),
                of("slowest leg alone", plot::Kind::Bound, bound),
            ],
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_waits_for_the_last_byte_of_the_first_large_file() {
        let fast = Stalling { bytes_per_second: 100.0, stall_seconds: 0.0, period_seconds: 1.0 };
        let alone = Alone { bytes: 120, instrument: 10.0, storage: fast, path: 5.0, store: fast };
        assert_eq!(alone.late_seconds(&[10, 100, 10]), 9.0);
        assert_eq!(alone.late_seconds(&[10; 12]), 1.0);
    }
}
