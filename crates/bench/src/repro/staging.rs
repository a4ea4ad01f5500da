//! Staging through buffers: storage that stalls at one end or both, held against the model of `plan::staging`.
//!
//! Slow storage is this program's own (`lab storage`), so an item needs FUSE. The rate of the path alone is measured first, from
//! memory to memory, and the model is given that rate. Stalls are short, so that five rounds take minutes; buffers and chunks are
//! small in proportion.
//!
//! Invariant: every run is kept in `runs.jsonl`, with the command's last event; a run that did not deliver everything is an error.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Lab;
use lab::record::reasons_since;
use plan::staging::{Leg, Legs, Stalling};
use serde_json::{Value, json};

use super::context::Context;
use super::course::Course;
use super::judge::{Check, median, shown};
use crate::dataset;
use crate::error::{Error, Kind, Result};
use crate::lag;
use crate::plot::{self, Axis, Plot, Point, Scale, Series, Unit};
use crate::process::{Finished, Gated, Ready, Server};
use crate::sweep::Condition;
use crate::tool::thalweg::Thalweg;
use crate::tool::{Bed, Class, Host, Set, Tool, Variant};
use crate::workspace::{Pauses, Workspace, remove_tree};

const BITS_PER_SECOND: u64 = 500_000_000;
const RTT_US: u64 = 74_000;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 2 * MIB;
const CHUNK_FLAGS: [&str; 2] = ["--chunk-size", "2MiB"];
/// Of the path alone, and of a comparison without a condition.
const ROUNDS_FEW: u32 = 2;
/// Of one run; a longer one is a failure.
const LIMIT: Duration = Duration::from_secs(900);
const ROUNDS: u32 = 5;

/// Storage that moves at a rate and stands still for the first seconds of every period.
#[derive(Clone, Copy)]
struct Slow {
    bytes_per_second: u64,
    /// Milliseconds, of milliseconds.
    stall: Option<(u64, u64)>,
}

/// Storage that stands still for a quarter, or a fifth, of the time. What sockets hold must be little beside what comes meanwhile.
const SINK: Slow = Slow { bytes_per_second: 100_000_000, stall: Some((1250, 5000)) };
const SINK_BOTH: Slow = Slow { stall: Some((2500, 10_000)), ..SINK };
const SOURCE_BOTH: Slow = Slow { stall: Some((1500, 7500)), ..SINK };

impl Slow {
    fn model(self) -> Stalling {
        let (stall, period) = self.stall.unwrap_or((0, 1000));
        Stalling {
            bytes_per_second: self.bytes_per_second as f64,
            stall_seconds: stall as f64 / 1e3,
            period_seconds: period as f64 / 1e3,
        }
    }
}

/// What a run is made of.
#[derive(Clone, Default)]
struct Case {
    name: String,
    source: Option<Slow>,
    sink: Option<Slow>,
    /// In bytes, on the client's host and on the endpoint's.
    ahead: Option<u64>,
    behind: Option<u64>,
    flags: Vec<String>,
    bytes: u64,
}

/// Six sizes of a buffer before a sink that stands still for a quarter of the time.
pub fn sizes(context: &mut Context) -> Result<()> {
    let far = Far::up(context)?;
    let PathAlone { bytes_per_second: path, late: path_late, .. } = far.path(context)?;
    let sink = SINK.model();
    let leg_of = |size: u64| leg(&far.lab, path, 1.0, store::spool::segment_bytes(size));
    let mut curves = [Vec::new(), Vec::new()];
    for size in [24, 36, 48, 60, 76, 92].map(|mib| mib * MIB) {
        let case = Case {
            name: format!("buffer of {} MiB", size / MIB),
            sink: Some(SINK),
            behind: Some(size),
            flags: flags(&["--streams", "1", "--buffer", "always"]),
            bytes: 448 * MIB,
            ..Case::default()
        };
        let runs = far.rounds(context, &case, None)?;
        let rates = runs.iter().filter_map(|run| run.course.rate(Some(sink.period_seconds)));
        let measured = median(rates).map(|rate| rate / path);
        let predicted = leg_of(size).carried_bytes_per_second(&sink, size as f64) / path;
        let claim = format!("{}: share of the path's rate, measured / by the model", case.name);
        let late = late_of(&path_late, &[&runs]);
        let check = Check::within(claim, 0.9, 1.1, measured.map(|measured| measured / predicted));
        context.check(check.beside(&late));
        if let Some(measured) = measured {
            let shares = format!("{} measured, {} by the model", shown(measured), shown(predicted));
            context.check(Check::told(format!("{}: share of the path's rate", case.name), "", shares).beside(&late));
            curves[0].push(Point::at(size as f64 / MIB as f64, measured));
            curves[1].push(Point::at(size as f64 / MIB as f64, predicted));
        }
    }
    if let Some(needed) = leg_of(92 * MIB).smallest_buffer_bytes(&sink) {
        context
            .note(format!("the smallest buffer that leaves the path undisturbed: {} MiB", shown(needed / MIB as f64)));
    }
    let [measured, model] = curves;
    context.plot(Plot {
        name: "buffer-sizes".into(),
        title: "Use of the path over the size of the buffer".into(),
        note: "Bytes sent in whole periods of the storage, over what the path carries alone in that time.".into(),
        x: Axis::new("MiB", Scale::Linear, Unit::Number),
        y: Axis::new("share of the path", Scale::Linear, Unit::Number),
        series: vec![
            Series { name: "measured".into(), kind: plot::Kind::Measured, points: measured },
            Series { name: "model".into(), kind: plot::Kind::Bound, points: model },
        ],
    });
    Ok(())
}

/// A stalling source and a stalling sink, with buffers at both ends and with none.
pub fn both_ends(context: &mut Context) -> Result<()> {
    let far = Far::up(context)?;
    let PathAlone { bytes_per_second: path, begin_seconds, late: path_late } = far.path(context)?;
    let buffer = 200 * MIB;
    let case = |name: &str, size: Option<u64>| Case {
        name: name.into(),
        source: Some(SOURCE_BOTH),
        sink: Some(SINK_BOTH),
        ahead: size,
        behind: size,
        flags: if size.is_some() { Vec::new() } else { flags(&["--buffer", "never"]) },
        bytes: 1280 * MIB,
    };
    let (with, without) = (case("buffers at both ends", Some(buffer)), case("no buffers", None));
    let (source, sink) = (SOURCE_BOTH.model(), SINK_BOTH.model());
    let legs = Legs {
        source,
        source_buffer_bytes: buffer as f64,
        leg: leg(&far.lab, path, 4.0, store::spool::segment_bytes(buffer)),
        sink_buffer_bytes: buffer as f64,
        sink,
        volume_bytes: with.bytes as f64,
    };
    let runs = far.rounds(context, &with, None)?;
    let measured = seconds_of(&runs);
    let bare_runs = far.rounds(context, &without, Some(ROUNDS_FEW))?;
    let (bare, late) = (seconds_of(&bare_runs), late_of(&path_late, &[&runs]));
    let predicted = legs.times().map(|times| begin_seconds + times.delivered_seconds);
    let ratio = measured.zip(predicted).map(|(measured, predicted)| measured / predicted);
    context.check(Check::within("time until delivered, measured / by the model", 0.9, 1.1, ratio).beside(&late));
    let slowest = [path, source.mean_bytes_per_second(), sink.mean_bytes_per_second()];
    let slowest = begin_seconds + with.bytes as f64 / slowest.into_iter().fold(f64::MAX, f64::min);
    let over = measured.map(|seconds| seconds / slowest);
    context.check(Check::at_most("time until delivered / the slowest leg alone", 1.15, over).beside(&late));
    let gain = bare.zip(measured).map(|(bare, measured)| bare / measured);
    let gain = gain.map_or("no counted run".into(), shown);
    let late = late_of(&[], &[&bare_runs, &runs]);
    context.check(Check::told("time without buffers / with", "", gain).beside(&late));
    slow_source(context, &far, buffer)?;
    for run in runs.iter().take(1) {
        for plot in run.course.plots("a source and a sink that stand still now and then") {
            context.plot(plot);
        }
    }
    Ok(())
}

/// Reading ahead of the path, where that brings nothing.
fn slow_source(context: &mut Context, far: &Far, buffer: u64) -> Result<()> {
    // A source that is simply slow: the path waits for it either way.
    let steady = Slow { bytes_per_second: 40_000_000, stall: None };
    let slow = |name: &str, ahead| Case {
        name: name.into(),
        source: Some(steady),
        ahead,
        bytes: 192 * MIB,
        ..Case::default()
    };
    let with = far.rounds(context, &slow("slow source, read ahead", Some(buffer)), None)?;
    let without = far.rounds(context, &slow("slow source", None), None)?;
    let ratio = seconds_of(&with).zip(seconds_of(&without)).map(|(with, without)| with / without);
    let claim = "a source that is slow and does not stall: time read ahead / not";
    context.check(Check::within(claim, 0.95, 1.05, ratio).beside(&late_of(&[], &[&with, &without])));
    Ok(())
}

/// Fast storage: what it costs to have a buffer that is not needed, at either end.
pub fn bypass(context: &mut Context) -> Result<()> {
    let far = Far::up_with(context, None, 0)?;
    let case = |how: &str| Case {
        name: format!("fast storage, {how}"),
        behind: Some(1 << 30),
        flags: flags(&["--buffer", how]),
        bytes: 2 << 30,
        ..Case::default()
    };
    let cases = [case("auto"), case("never"), case("always")];
    let [auto, never, always] = [0, 1, 2].map(|at| far.rounds(context, &cases[at], None));
    let (auto, never, always) = (auto?, never?, always?);
    let against = |runs: &[Run]| seconds_of(&never).zip(seconds_of(runs)).map(|(never, seconds)| never / seconds);
    let check = Check::at_least("rate with auto / with never", 0.97, against(&auto));
    context.check(check.beside(&late_of(&[], &[&auto, &never])));
    let ratio = against(&always).map_or("no counted run".into(), shown);
    let check = Check::told("rate with always / with never", "", ratio);
    context.check(check.beside(&late_of(&[], &[&always, &never])));
    Ok(())
}

/// Four jobs to one endpoint, one of which goes to storage that stands still all the time: the others have at least what they have
/// beside one whose storage moves.
pub fn sharing(context: &mut Context) -> Result<()> {
    let far = Far::up(context)?;
    let bytes = 128 * MIB;
    let source = far.data(bytes, None)?;
    let buffer = Some(256 * MIB);
    let mut late = Vec::new();
    let fair = far.beside(context, &source, bytes, buffer, false, &mut late)?;
    let beside = far.beside(context, &source, bytes, buffer, true, &mut late)?;
    let ratio = fair.zip(beside).map(|(fair, beside)| fair / beside);
    let claim = "three jobs beside one whose storage hangs: rate / beside one whose storage moves";
    context.check(Check::at_least(claim, 0.95, ratio).beside(&late));
    Ok(())
}

/// What grows, beside the same files when they are finished.
pub fn growing(context: &mut Context) -> Result<()> {
    let bits = context.rate(BITS_PER_SECOND)[0].unwrap_or(BITS_PER_SECOND);
    for (files, name) in [(1u32, "one file"), (16, "16 files")] {
        let pace = lag::Pace {
            files,
            // A little more than the path carries: the rate is that of the path.
            bytes_per_second: (bits as f64 / 8.0 * 1.05) as u64,
            write_bytes: MIB as u32,
            seconds: 4.0,
            seed: context.options.seed,
        };
        let options = lag::Options {
            pace,
            idle_files: 0,
            rounds: context.options.rounds.unwrap_or(ROUNDS),
            variant: context.variant(),
            rivals: Vec::new(),
            scenario: Some(scenario(context)?),
            with_bulk: true,
            patience: Duration::from_secs(120),
            work_dir: context.options.work_dir.clone(),
            out: Some(context.dir.join(name.replace(' ', "-"))),
            regenerate: context.options.regenerate.clone(),
        };
        let report = lag::run(&options, context.cancel(), &mut |_| {})?;
        let claim = format!("{name}: rate while it grows / of the finished files (published: 0.980)");
        let (share, late) = share_of_growing(&report.samples);
        context.check(Check::at_least(claim, 0.97, share).beside(&late));
        let wrong: u64 =
            report.samples.iter().map(|sample| sample.wrong_bytes_in_the_end + sample.wrong_bytes_seen).sum();
        context.check(Check::at_most(format!("{name}: wrong bytes"), 0.0, Some(wrong as f64)).of_any_machine());
    }
    Ok(())
}

/// The median of the rounds that count, and why others don't.
fn share_of_growing(samples: &[lag::Sample]) -> (Option<f64>, Vec<String>) {
    let counted = samples.iter().filter(|sample| sample.void.is_empty());
    let late = samples.iter().filter(|sample| !sample.void.is_empty());
    let told = |sample: &lag::Sample| format!("round {}: {}", sample.round, sample.void.join(", "));
    (median(counted.filter_map(|sample| sample.streaming_over_bulk)), late.map(told).collect())
}

fn flags(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn leg(lab: &Lab, bytes_per_second: f64, lanes: f64, segment_bytes: u64) -> Leg {
    let (delay_seconds, chunk_bytes) = (RTT_US as f64 / 1e6, CHUNK as f64);
    let window_bytes = lanes * lab.receive_window_bytes_max() as f64;
    Leg { bytes_per_second, delay_seconds, chunk_bytes, lanes, segment_bytes: segment_bytes as f64, window_bytes }
}

fn scenario(context: &Context) -> Result<lab::scenario::Scenario> {
    let bits_per_second = context.rate(BITS_PER_SECOND)[0];
    Condition { bits_per_second, rtt_us: RTT_US, ..Condition::default() }.scenario(context.options.seed)
}

/// What the path carries once it is under way, and what a copy takes besides.
struct PathAlone {
    bytes_per_second: f64,
    begin_seconds: f64,
    /// As of runs.
    late: Vec<String>,
}

/// What came of one run.
struct Run {
    /// Until everything was delivered, by the command's own word.
    seconds: f64,
    course: Course,
    /// Why it says more about the emulator than about the copy.
    late: Vec<String>,
}

/// What is told beside a claim about these runs and, if it is in it, the path alone.
fn late_of(path: &[String], groups: &[&[Run]]) -> Vec<String> {
    let of_runs = groups.iter().flat_map(|runs| runs.iter()).flat_map(|run| &run.late);
    path.iter().chain(of_runs).cloned().collect()
}

fn seconds_of(runs: &[Run]) -> Option<f64> {
    median(runs.iter().map(|run| run.seconds))
}

/// Two hosts far from each other, and a folder for both.
struct Far<'a> {
    lab: Lab,
    workspace: Workspace,
    cancel: &'a AtomicBool,
}

impl<'a> Far<'a> {
    fn up(context: &Context<'a>) -> Result<Far<'a>> {
        Far::up_with(context, Some(BITS_PER_SECOND), RTT_US)
    }

    fn up_with(context: &Context<'a>, bits_per_second: Option<u64>, rtt_us: u64) -> Result<Far<'a>> {
        let bits_per_second = bits_per_second.and_then(|own| context.rate(own)[0]);
        let condition = Condition { bits_per_second, rtt_us, ..Condition::default() };
        let workspace = Workspace::create(
            context.options.work_dir.as_deref(),
            Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO },
            &mut |_| (),
        )?;
        let lab = Lab::up(condition.scenario(context.options.seed)?)?;
        begin_raw(&context.dir)?;
        Ok(Far { lab, workspace, cancel: context.cancel() })
    }

    fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.workspace.path().join(name);
        remove_tree(&path)?;
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    /// Files of 64 MiB in a directory.
    fn data(&self, bytes: u64, name: Option<&str>) -> Result<PathBuf> {
        let path = self.workspace.path().join(name.unwrap_or("data"));
        if !path.exists() {
            dataset::run(&dataset::Options::new(format!("{}x64MiB", bytes.div_ceil(64 * MIB)), &path), &mut |_| {})?;
        }
        Ok(path)
    }

    /// From memory to memory.
    fn path(&self, context: &mut Context) -> Result<PathAlone> {
        let bytes = 384 * MIB;
        let case = Case { name: "the path alone".into(), bytes, ..Case::default() };
        let set = Set { name: "gen".into(), files: 1, bytes, source: PathBuf::from("gen:1x384MiB") };
        let root = self.dir("root")?;
        let (mut rates, mut seconds, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..context.options.rounds.unwrap_or(ROUNDS).min(ROUNDS_FEW) {
            let run = self.run(context, &case, &root, &set)?;
            rates.extend(run.course.rate(None));
            seconds.push(run.seconds);
            late.extend(run.late);
        }
        let (Some(bytes_per_second), Some(seconds)) = (median(rates), median(seconds)) else {
            return Err(Error::new(Kind::Failed, "measure", "the path", "no run ended"));
        };
        let begin_seconds = (seconds - bytes as f64 / bytes_per_second).max(0.0);
        let told = format!("{} MB/s, {} s until it has begun", shown(bytes_per_second / 1e6), shown(begin_seconds));
        context.check(Check::told("the path alone", "", told).beside(&late));
        Ok(PathAlone { bytes_per_second, begin_seconds, late })
    }

    /// One after the other, as many as the caller asked for, or `rounds_max`.
    fn rounds(&self, context: &mut Context, case: &Case, rounds_max: Option<u32>) -> Result<Vec<Run>> {
        let data = self.data(case.bytes, Some(&format!("data-{}", case.bytes)))?;
        let mut runs = Vec::new();
        let rounds = context.options.rounds.unwrap_or(ROUNDS);
        for _ in 0..rounds_max.map_or(rounds, |most| rounds.min(most)) {
            let real = self.dir("real")?;
            let mut mounts = Vec::new();
            let mut shown = |slow: Option<Slow>, backing: &Path, at: &str| -> Result<PathBuf> {
                let Some(slow) = slow else { return Ok(backing.to_owned()) };
                let mount = self.dir(at)?;
                mounts.push(self.mount(context, slow, backing, &mount)?);
                Ok(mount)
            };
            let root = shown(case.sink, &real, "sink")?;
            let source = shown(case.source, &data, "source")?;
            let set = Set { name: case.name.clone(), files: case.bytes / (64 * MIB), bytes: case.bytes, source };
            runs.push(self.run(context, case, &root, &set)?);
        }
        Ok(runs)
    }

    fn mount(&self, context: &Context, slow: Slow, backing: &Path, at: &Path) -> Result<Server> {
        let mut command = Command::new(&context.options.program);
        command.args(["lab", "storage"]).arg(backing).arg(at).arg("--rate").arg(slow.bytes_per_second.to_string());
        if let Some((stall, period)) = slow.stall {
            // It begins to move, but for storage that hardly ever does.
            let phase = if stall * 2 < period { stall } else { 0 };
            command.arg("--stall").arg(format!("{stall}ms/{period}ms")).arg("--phase").arg(format!("{phase}ms"));
        }
        let log = self.workspace.path().join("storage.log");
        let server = Server::start(&mut command, &Ready::Says("ready"), &log, self.cancel)?;
        Ok(server)
    }

    fn tool(&self, context: &Context, behind: Option<u64>, flags: &[String]) -> Result<Thalweg> {
        let mut variant = Variant { cp_args: flags.iter().map(Into::into).collect(), ..context.variant() };
        if let Some(bytes) = behind {
            let buffer = self.workspace.path().join("behind");
            remove_tree(&buffer)?;
            variant.serve_args = vec!["--buffer".into(), format!("{}:{bytes}", buffer.display()).into()];
        }
        Ok(Thalweg::new(&variant, 0, Class::Network))
    }

    fn server(&self, tool: &Thalweg, bed: &Bed) -> Result<Server> {
        let (command, ready) = tool.server(bed)?.expect("it has one");
        let mut wrapped = bed.at(Host::Server, Class::Network, &command)?;
        let server = Server::start(&mut wrapped, &ready, &self.workspace.path().join("server.log"), self.cancel)?;
        tool.enrol(bed)?;
        Ok(server)
    }

    fn run(&self, context: &mut Context, case: &Case, root: &Path, set: &Set) -> Result<Run> {
        let mut flags = [&CHUNK_FLAGS.map(str::to_owned)[..], &case.flags].concat();
        if let Some(bytes) = case.ahead {
            let buffer = self.workspace.path().join("ahead");
            remove_tree(&buffer)?;
            flags.extend(["--buffer".to_owned(), format!("{}:{bytes}", buffer.display())]);
        }
        let tool = self.tool(context, case.behind, &flags)?;
        let bed = Bed { workspace: self.workspace.path(), delivered: root, lab: Some(&self.lab) };
        let server = self.server(&tool, &bed)?;
        let client = tool.client(&bed, set, Path::new("out"));
        let gated = Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), bed.workspace)?;
        let before = self.lab.snapshot();
        let finished = gated.run(LIMIT, Some(&server), self.cancel)?;
        let void = reasons_since(&self.lab, before.as_ref());
        let done = done_of(&finished)?;
        keep(&context.dir, &case.name, &done, &void)?;
        if done["files"]["ok"].as_u64() != Some(set.files) {
            return Err(Error::new(Kind::Failed, "copy", &case.name, "not everything was delivered"));
        }
        let seconds = done["seconds"].as_f64();
        let seconds = seconds.ok_or_else(|| Error::new(Kind::Failed, "read", "the last event", "it has no seconds"))?;
        let late = void.into_iter().map(|reason| format!("{}: {reason}", case.name)).collect();
        Ok(Run { seconds, course: Course::of(&finished.stdout, set.bytes), late })
    }

    /// The longest of three jobs, beside a fourth, whose storage hangs or does not.
    fn beside(
        &self,
        context: &mut Context,
        source: &Path,
        bytes: u64,
        behind: Option<u64>,
        hangs: bool,
        late: &mut Vec<String>,
    ) -> Result<Option<f64>> {
        let name = if hangs { "beside a job that hangs" } else { "beside a job that moves" };
        let mut longest = Vec::new();
        for _ in 0..context.options.rounds.unwrap_or(ROUNDS) {
            let (root, hung) = (self.dir("root")?, self.dir("hung")?);
            let mount = root.join("hung");
            fs::create_dir(&mount).map_err(Error::io("create", &mount))?;
            let standing = Slow { bytes_per_second: 1_000_000_000, stall: Some((3_599_000, 3_600_000)) };
            let _storage = match hangs {
                true => Some(self.mount(context, standing, &hung, &mount)?),
                false => None,
            };
            let tool = self.tool(context, behind, &[])?;
            let bed = Bed { workspace: self.workspace.path(), delivered: &root, lab: Some(&self.lab) };
            let server = self.server(&tool, &bed)?;
            let set = Set { name: "job".into(), files: bytes / (64 * MIB), bytes, source: source.to_owned() };
            let start = |to: &str| -> Result<Gated> {
                let client = tool.client(&bed, &set, Path::new(to));
                let outputs = self.dir(&format!("client-{to}"))?;
                Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), &outputs)
            };
            let stuck = start("hung")?;
            let others = ["a", "b", "c"].map(start);
            let over = AtomicBool::new(false);
            let before = self.lab.snapshot();
            let seconds = std::thread::scope(|scope| -> Result<f64> {
                let over = &over;
                let stuck = scope.spawn(move || stuck.run(LIMIT, None, over));
                let running = others.map(|gated| scope.spawn(|| gated?.run(LIMIT, None, self.cancel)));
                let mut longest = 0.0f64;
                let mut failed = None;
                for thread in running {
                    match thread.join().expect("a run does not panic").and_then(|finished| done_of(&finished)) {
                        Ok(done) => {
                            let void = reasons_since(&self.lab, before.as_ref());
                            keep(&context.dir, name, &done, &void)?;
                            longest = longest.max(done["seconds"].as_f64().unwrap_or(f64::MAX));
                        }
                        Err(e) => failed = Some(e),
                    }
                }
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                let _ = stuck.join();
                failed.map_or(Ok(longest), Err)
            })?;
            drop(server);
            let void = reasons_since(&self.lab, before.as_ref());
            late.extend(void.into_iter().map(|reason| format!("{name}: {reason}")));
            longest.push(seconds);
        }
        Ok(median(longest))
    }
}

/// The last event of a command that ended well.
fn done_of(finished: &Finished) -> Result<Value> {
    let last = finished.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let done: Value = serde_json::from_str(last).unwrap_or_default();
    match finished.status {
        Some(status) if status.success() && done["event"] == "done" => Ok(done),
        _ => Err(Error::new(Kind::Failed, "copy", "with a buffer", finished.stderr.trim())),
    }
}

fn raw_of(dir: &Path) -> PathBuf {
    dir.join("runs.jsonl")
}

/// What an earlier run of the item has left is not this one's.
fn begin_raw(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let path = raw_of(dir);
    fs::File::create(&path).map(drop).map_err(Error::io("create", &path))
}

fn keep(dir: &Path, name: &str, done: &Value, void: &[String]) -> Result<()> {
    let path = raw_of(dir);
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
    let line = json!({"case": name, "seconds": done["seconds"], "bytes": done["bytes"], "legs": done["legs"],
        "bottleneck": done["bottleneck"], "streams": done["streams"], "notes": done["notes"], "void": void});
    writeln!(file, "{line}").map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{ITEMS, Options};

    #[test]
    fn a_request_to_stop_ends_an_item_and_leaves_nothing_behind() {
        if !needs::root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("thalweg");
        // An endpoint that is never ready, written by another process: what this one has open for writing cannot be started.
        let endpoint = "#!/bin/sh\ntest \"$1\" = --version || exec sleep 1000\n";
        let mut writing = Command::new("sh");
        writing.args(["-c", r#"printf %s "$0" > "$1" && chmod 755 "$1""#, endpoint]).arg(&program);
        assert!(writing.status().unwrap().success());
        let room = dir.path().join("room");
        fs::create_dir(&room).unwrap();
        let options = Options { work_dir: Some(room.clone()), ..Options::new(dir.path().join("out"), &program) };
        let (cancel, mut silent) = (AtomicBool::new(true), |_: &str| ());
        let mut context = Context::new(&ITEMS[0], &options, Duration::ZERO, &cancel, &mut silent, Vec::new());
        for item in [sizes, growing] {
            let error = item(&mut context).unwrap_err();
            assert_eq!(error.kind, Kind::Cancelled, "{}", error.chain());
            assert_eq!(fs::read_dir(&room).unwrap().count(), 0);
        }
    }

    #[test]
    fn what_grows_over_a_late_link_is_told_and_does_not_count() {
        let sample = |round, share, void: &[&str]| lag::Sample {
            round,
            streaming_over_bulk: Some(share),
            void: void.iter().map(|reason| (*reason).to_owned()).collect(),
            ..lag::Sample::default()
        };
        let samples = [sample(1, 0.98, &[]), sample(2, 0.5, &["packets were late", "and lost"]), sample(3, 0.99, &[])];
        let (share, late) = share_of_growing(&samples);
        assert!((share.unwrap() - 0.985).abs() < 1e-9);
        assert_eq!(late, ["round 2: packets were late, and lost"]);
        assert_eq!(share_of_growing(&samples[1..2]).0, None);
    }

    #[test]
    fn raw_lines_are_those_of_this_run_and_say_when_the_laboratory_was_late() {
        let dir = tempfile::tempdir().unwrap();
        let lines = || -> Vec<Value> {
            let text = fs::read_to_string(raw_of(dir.path())).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        for void in [Vec::new(), vec!["packets were late".to_owned()]] {
            begin_raw(dir.path()).unwrap();
            keep(dir.path(), "case", &json!({"seconds": 1.5}), &void).unwrap();
            assert_eq!(lines().len(), 1);
            assert_eq!((&lines()[0]["void"], &lines()[0]["seconds"]), (&json!(void), &json!(1.5)));
        }
    }
}
