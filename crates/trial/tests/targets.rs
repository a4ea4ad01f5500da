//! The fuzz targets without libFuzzer: everything stored passes, and so do a few thousand mutations of it.

use std::path::Path;
use std::time::Duration;
use trial::targets::{self, mutate};

/// A run of the session, and one of http, makes a directory and a connection; the others take microseconds.
const RUNS: u64 = 20_000;
const SESSION_RUNS: u64 = 400;
const HTTP_RUNS: u64 = 2_000;
/// No target comes near it; a slow machine does less.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The one that property tests take too, so that CI draws others for each commit and says which.
fn seed() -> u64 {
    std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn passes(name: &str, runs: u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let target = targets::find(name).unwrap();
    assert!(!mutate::stored(target, &folder).unwrap().is_empty(), "{name} has no corpus");
    mutate::run(target, &folder, seed(), TIME_MAX, runs).unwrap();
}

macro_rules! targets {
    ($($name:ident $runs:expr),+ $(,)?) => {
        $(#[test]
        fn $name() {
            passes(stringify!($name), $runs);
        })+

        #[test]
        fn every_target_is_tested() {
            let tested = [$(stringify!($name)),+];
            assert!(targets::TARGETS.iter().all(|target| tested.contains(&target.name)));
        }
    };
}

targets! {
    frames RUNS,
    session SESSION_RUNS,
    ledger RUNS,
    manifests RUNS,
    locations RUNS,
    configuration RUNS,
    tickets RUNS,
    options RUNS,
    ftp RUNS,
    http HTTP_RUNS,
    xml RUNS,
    sftp RUNS,
    markers RUNS,
    keys RUNS,
    credentials RUNS,
}
