//! Which storage engine a plan names, from calibrations that tried other ways of using storage on both sides, on one, or not as usual.

use super::*;
use ::model::options::{Depths, Engine};

/// Within this host, with four streams: reading at 50 MB/s and writing at 40 MB/s.
fn slow_storage(engines: Vec<EngineRun>) -> Calibration {
    let runs = |rate: f64| [1.0, 0.98, 1.02].map(|noise| run(4, 1, 1 << 28, rate * noise)).to_vec();
    let measured = vec![Measured::new(Part::Read, runs(50e6)), Measured::new(Part::Write, runs(40e6))];
    Calibration { measured, engines, small_files: None, ..calibration() }
}

fn tried(part: Part, engine: &str, depth: u32, rate: f64) -> EngineRun {
    EngineRun { part, engine: engine.into(), depth, run: run(4, 1, 1 << 28, rate) }
}

/// The engine, what is expected, and why.
fn chosen(calibration: &Calibration) -> (&'static str, f64, String) {
    let large = DataSet::of([4 << 30; 3].into_iter());
    let found =
        choose(calibration, &large, None, &sampled(&|| panic!("without a network nothing is sampled"))).unwrap();
    let why = found.settings.into_iter().find(|setting| setting.name == "engine").unwrap().reason;
    (found.engine.name(), found.prediction.p50, why)
}

#[test]
fn a_way_that_is_five_times_as_fast_is_chosen_though_the_time_ran_out_before_the_usual_one_was_tried() {
    let faster = [tried(Part::Read, "uring", 8, 250e6), tried(Part::Write, "uring", 8, 200e6)];
    let usual = [tried(Part::Read, "auto", 0, 50e6), tried(Part::Write, "auto", 0, 40e6)];
    for beside in [&[][..], &usual[..1], &usual[1..], &usual[..]] {
        let (engine, rate, why) = chosen(&slow_storage([&faster[..], beside].concat()));
        assert_eq!(engine, "uring", "{why}");
        assert!((rate / 200e6 - 1.0).abs() < 0.05, "{rate}");
    }
}

#[test]
fn what_a_part_reached_as_usual_forbids_a_way_that_is_no_faster() {
    // As fast as the best run of writing, and no tenth above its median.
    let alike = vec![tried(Part::Read, "uring", 8, 250e6), tried(Part::Write, "uring", 8, 41e6)];
    let (engine, rate, why) = chosen(&slow_storage(alike));
    assert!(engine == "auto" && why.starts_with("none that was measured promises 10 % more"), "{engine}: {why}");
    assert!((rate / 40e6 - 1.0).abs() < 0.05, "{rate}");
    // Above the median, with a run that was slower than one as usual.
    let scattered = [60e6, 60e6, 40.1e6].map(|rate| tried(Part::Write, "uring", 8, rate));
    let scattered = [&[tried(Part::Read, "uring", 8, 250e6)][..], &scattered].concat();
    assert_eq!(chosen(&slow_storage(scattered)).0, "auto");
}

#[test]
fn a_side_that_was_tried_with_no_other_engine_forbids_one_and_is_named() {
    for (part, side) in [(Part::Read, "writing"), (Part::Write, "reading")] {
        let (engine, _, why) = chosen(&slow_storage(vec![tried(part, "uring", 8, 250e6)]));
        assert!(
            engine == "auto" && why.contains(&format!("{side} was not measured with another one")),
            "{engine}: {why}"
        );
    }
    assert_eq!(chosen(&slow_storage(Vec::new())).2, "other engines were not measured");
}

#[test]
fn what_another_tool_measured_or_other_numbers_of_streams_gave_stands_for_no_usual_way() {
    let faster = vec![tried(Part::Read, "uring", 8, 250e6), tried(Part::Write, "uring", 8, 200e6)];
    let mut imported = slow_storage(faster.clone());
    imported.measured[1].is_imported = true;
    assert_eq!(chosen(&imported).0, "auto");
    let mut other = slow_storage(faster);
    other.measured[0].runs.iter_mut().for_each(|run| run.streams = 2);
    assert_eq!(chosen(&other).0, "auto");
}

#[test]
fn a_queue_that_a_transfer_would_find_by_itself_begins_where_plain_calls_would_limit() {
    let of = |plain: f64, queue: f64| {
        let write = |engine: &str, depth| tried(Part::Write, engine, depth, if depth > 0 { 30e6 } else { 40e6 });
        vec![
            tried(Part::Read, "auto", 0, 50e6),
            tried(Part::Read, "pread", 0, plain),
            tried(Part::Read, "uring", 8, queue),
            write("auto", 0),
            write("pread", 0),
            write("uring", 32),
        ]
    };
    let large = DataSet::of([4 << 30; 3].into_iter());
    let of_memory = Content { samples: &Vec::new, is_cached: &|| true };
    let depths_of = |tried: Vec<EngineRun>, content: &Content<'_>| {
        choose(&slow_storage(tried), &large, None, content).unwrap().depths
    };
    assert_eq!(depths_of(of(5e6, 50e6), &of_memory), Depths::default());
    let found = choose(&slow_storage(of(5e6, 50e6)), &large, None, &sampled(&Vec::new)).unwrap();
    // Writing is left alone: there a queue is slower.
    assert_eq!((found.engine, found.depths), (Engine::Auto, Depths { read: 8, write: 0 }));
    assert!((found.prediction.p50 / 40e6 - 1.0).abs() < 0.05, "what it would come to: {}", found.prediction.p50);
    let told = found.settings.iter().map(|setting| &setting.name[..]).collect::<Vec<_>>();
    assert_eq!(told, ["streams", "engine", "read-depth", "compress"]);
    // Plain calls are as fast as all else, or a queue is slower than what it comes to.
    for (plain, queue) in [(45e6, 50e6), (5e6, 44e6)] {
        assert_eq!(depths_of(of(plain, queue), &sampled(&Vec::new)), Depths::default());
    }
    // Nothing is as fast as the whole, the queue neither.
    let alike = of(5e6, 50e6).into_iter().map(|tried| EngineRun { run: run(4, 1, 1 << 28, 30e6), ..tried }).collect();
    assert_eq!(depths_of(alike, &sampled(&Vec::new)), Depths::default());
}
