//! Staging through buffers: storage that stalls at one end or both, held against the model of `plan::staging`.
//!
//! The rate of the path alone is measured first, from memory to memory, and the model is given that rate. Stalls are
//! short, so that five rounds take minutes; buffers and chunks are small in proportion. Not here: what carries out a run
//! (`far`).

use std::time::Duration;

use lab::Lab;
use plan::staging::{Leg, Legs};

use super::context::Context;
use super::far::{BITS_PER_SECOND, CHUNK, Case, Far, MIB, PathAlone, ROUNDS, ROUNDS_FEW, RTT_US, Run, Slow};
use super::judge::{Check, median, shown};
use crate::error::Result;
use crate::lag;
use crate::plot::{self, Axis, Plot, Point, Scale, Series, Unit};
use crate::sweep::Condition;

/// Storage that stands still for a quarter, or a fifth, of the time. What sockets hold must be little beside what comes meanwhile.
const SINK: Slow = Slow { bytes_per_second: 100_000_000, stall: Some((1250, 5000)) };
const SINK_BOTH: Slow = Slow { stall: Some((2500, 10_000)), ..SINK };
const SOURCE_BOTH: Slow = Slow { stall: Some((1500, 7500)), ..SINK };

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

/// What is told beside a claim about these runs and, if it is in it, the path alone.
fn late_of(path: &[String], groups: &[&[Run]]) -> Vec<String> {
    let of_runs = groups.iter().flat_map(|runs| runs.iter()).flat_map(|run| &run.late);
    path.iter().chain(of_runs).cloned().collect()
}

fn seconds_of(runs: &[Run]) -> Option<f64> {
    median(runs.iter().map(|run| run.seconds))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::error::Kind;
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
}
