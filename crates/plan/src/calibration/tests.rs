//! Predictions from calibrations whose rates are known, and calibrations that cannot be used.

use super::*;

fn run(streams: u32, files: u64, file_bytes: u64, rate: f64) -> Run {
    // Rounded, as a file holds it.
    let seconds = ((files * file_bytes) as f64 / rate * 1e6).round() / 1e6;
    Run { streams, files, file_bytes, seconds, cpu_seconds: 0.0 }
}

/// A network of 100 MB/s a stream up to 300, storage that takes 250 MB/s at most, 2,000 small files a second.
fn calibration() -> Calibration {
    let network = [(1, 100e6), (2, 200e6), (4, 300e6), (8, 300e6)];
    let write = [(1, 180e6), (2, 240e6), (4, 250e6), (8, 200e6)];
    let runs = |rates: &[(u32, f64)]| -> Vec<Run> {
        rates.iter().flat_map(|(n, rate)| [0.98, 1.0, 1.03].map(|noise| run(*n, 1, 1 << 28, rate * noise))).collect()
    };
    Calibration {
        v: VERSION,
        of: "lab".into(),
        source: None,
        circumstances: Circumstances {
            host: "here".into(),
            kernel: "6.1".into(),
            processors: 4,
            program: "0.1.0".into(),
            taken: 1_000_000,
            profile: "quick".into(),
        },
        start_seconds: vec![0.0],
        measured: vec![
            Measured { part: Part::Network, runs: runs(&network) },
            Measured { part: Part::Write, runs: runs(&write) },
            Measured { part: Part::Metadata, runs: vec![run(4, 2000, 1024, 2000.0 * 1024.0)] },
        ],
        engines: Vec::new(),
        sizes: Vec::new(),
        small_files: Some(Curve { a_seconds: 5e-4, b_bytes_per_second: 250e6, p: 8.0, rms: 0.05 }),
        notes: Vec::new(),
    }
}

#[test]
fn the_fewest_streams_that_keep_the_rate_are_chosen_and_storage_is_named() {
    let large = DataSet::of([4 << 30; 3].into_iter());
    let found = predict(&calibration(), &large, None).unwrap();
    assert_eq!(found.streams, 4, "{found:?}");
    assert!((found.p50 / 250e6 - 1.0).abs() < 0.03, "{found:?}");
    assert!(found.p5 < found.p50 && found.p50 < found.p95 && found.p95 / found.p5 < 1.3, "{found:?}");
    assert_eq!(found.bottlenecks[0].0, Part::Write);
    let asked = predict(&calibration(), &large, Some(1)).unwrap();
    assert!((asked.p50 / 100e6 - 1.0).abs() < 0.03 && asked.bottlenecks[0] == (Part::Network, 1.0), "{asked:?}");
}

#[test]
fn between_two_measured_numbers_the_rate_lies_between_theirs() {
    let large = DataSet::of([1 << 30].into_iter());
    let found = predict(&calibration(), &large, Some(3)).unwrap();
    assert!((found.p50 / 245e6 - 1.0).abs() < 0.03, "{found:?}");
    assert!((predict(&calibration(), &large, Some(60)).unwrap().p50 / 200e6 - 1.0).abs() < 0.03);
}

#[test]
fn small_files_are_limited_by_their_number() {
    let small = DataSet::of(std::iter::repeat_n(2048, 100_000));
    let found = predict(&calibration(), &small, Some(4)).unwrap();
    assert!((found.p50 / (2000.0 * 2048.0) - 1.0).abs() < 0.05, "{found:?}");
    assert_eq!(found.bottlenecks[0].0, Part::Metadata);
}

#[test]
fn the_same_calibration_predicts_the_same() {
    let large = DataSet::of([1 << 30].into_iter());
    assert_eq!(predict(&calibration(), &large, None), predict(&calibration(), &large, None));
}

#[test]
fn calibrations_survive_being_written_and_others_are_refused() {
    let text = serde_json::to_string(&calibration()).unwrap();
    assert_eq!(Calibration::parse(&text), Ok(calibration()));
    assert_eq!(Calibration::parse(&text.replacen("\"v\":1", "\"v\":7", 1)), Err(Unusable::OtherVersion(7)));
    assert!(matches!(Calibration::parse("{}"), Err(Unusable::NotRead(_))));
    assert!(matches!(Calibration::parse(&text.replacen("\"notes\"", "\"note\"", 1)), Err(Unusable::NotRead(_))));
    let endless = text.replacen("\"streams\":1", "\"streams\":0", 1);
    assert!(matches!(Calibration::parse(&endless), Err(Unusable::NotRead(_))));
    let empty = Calibration { measured: Vec::new(), ..calibration() };
    assert_eq!(predict(&empty, &DataSet::of([1].into_iter()), None), Err(Unusable::Empty));
}

#[test]
fn another_host_kernel_or_season_is_a_doubt() {
    let taken = calibration();
    let now = Circumstances { kernel: "6.2".into(), taken: 1_000_000 + 30 * 86_400, ..taken.circumstances.clone() };
    let doubts = taken.doubts(&now);
    assert_eq!(doubts, ["it was taken with kernel 6.1, this is 6.2", "it is 30 days old"]);
    assert!(taken.doubts(&taken.circumstances).is_empty());
}

#[test]
fn a_calibration_is_a_model_that_answers_what_ifs() {
    let large = DataSet::of([4 << 30; 3].into_iter());
    let graph = calibration().graph(&large).unwrap();
    let solution = crate::solve::solve(&graph, None).unwrap();
    assert!((solution.best_bytes_per_second / 250e6 - 1.0).abs() < 0.01, "{solution:?}");
    // The model also knows what lies between two measured numbers: three streams keep 98 %.
    assert_eq!((&solution.settings[..], solution.bottleneck.as_deref()), (&[3][..], Some("write")));
    let faster = graph.with_capacity("write", crate::graph::Change::Times(2.0)).unwrap();
    assert!((crate::solve::best(&faster).unwrap() / 300e6 - 1.0).abs() < 0.01);
    let small = DataSet::of(std::iter::repeat_n(2048, 100_000));
    let small = crate::solve::solve(&calibration().graph(&small).unwrap(), None).unwrap();
    assert_eq!(small.bottleneck.as_deref(), Some("metadata"));
}
