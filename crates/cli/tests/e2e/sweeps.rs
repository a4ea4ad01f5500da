//! Sweeps and reproductions as their users meet them: a very short one to its end, one that is killed, mistakes.

use crate::bed::{Bed, until};
use std::collections::BTreeMap;
use std::fs;
use std::process::Child;

const SWEEP: [&str; 14] = [
    "bench",
    "sweep",
    "--size",
    "4KiB,64KiB",
    "--rtt",
    "2ms,10ms",
    "--rate",
    "200Mbit",
    "--rounds",
    "1",
    "--seconds",
    "0.1",
    "--no-ceilings",
    "--out",
];

fn sweep(room: &str) -> Vec<&str> {
    [&SWEEP[..], &["sweep", "--work-dir", room]].concat()
}

/// In memory: what lies there is written several times.
fn room() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("thalweg-e2e-").tempdir_in("/dev/shm").unwrap()
}

fn samples(bed: &Bed) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(bed.path("sweep/samples.jsonl")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_killed_sweep_goes_on_where_it_stopped_and_its_bundle_is_complete() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let room = room();
    let sweep = sweep(room.path().to_str().unwrap());
    let child = bed.start(&sweep);
    until("the first sample", || !samples(&bed).is_empty());
    kill(child);
    let before = fs::read_to_string(bed.path("sweep/samples.jsonl")).unwrap();
    let before = &before[..before.rfind('\n').map_or(0, |last| last + 1)];
    let ran = bed.run(&sweep).succeeded();
    assert!(ran.stderr.contains("4 of 4 runs, all of the plan"), "{}", ran.stderr);
    let after = fs::read_to_string(bed.path("sweep/samples.jsonl")).unwrap();
    assert!(after.starts_with(before) && after.len() > before.len(), "what was measured stays");
    // On a busy machine a run may be void, and is then made again; none is made twice after it counted.
    let mut settled: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for sample in samples(&bed) {
        let text = |key: &str| sample[key].as_str().unwrap().to_owned();
        settled.entry((text("condition"), text("set"))).or_default().push(text("state"));
    }
    assert_eq!(settled.len(), 4, "{settled:?}");
    for ((condition, _), states) in &settled {
        assert!(
            condition.starts_with("rate=200Mbit rtt=") && condition.ends_with("cc=cubic streams=auto"),
            "{condition}"
        );
        let (last, void) = states.split_last().unwrap();
        assert!(void.iter().all(|state| state == "void") && (last == "counted" || states.len() == 3), "{settled:?}");
    }
    for name in ["plan.json", "samples.csv", "summary.json", "README.md", "sweep.md", "cells.csv"] {
        assert!(fs::metadata(bed.path("sweep").join(name)).is_ok_and(|found| found.len() > 0), "{name}");
    }
    assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0, "the workspace of the killed sweep is gone too");
    // Again: nothing is left to do, and nothing is added.
    bed.run(&sweep).succeeded();
    assert_eq!(fs::read_to_string(bed.path("sweep/samples.jsonl")).unwrap(), after);
    let other = bed.run(&[&sweep[..], &["--seed", "2"]].concat());
    let said = other.error();
    assert!(other.code == Some(2) && said.contains("it holds another plan (other seed)"), "{said}");
}

#[test]
fn a_plan_is_shown_without_being_run_and_a_budget_cuts_it() {
    let bed = Bed::new();
    let plan = |more: &[&str]| {
        let args = ["bench", "sweep", "--rtt", "20ms,100ms,200ms", "--dry-run"];
        String::from_utf8(bed.run(&[&args[..], more].concat()).succeeded().stdout).unwrap()
    };
    let whole = plan(&[]);
    assert!(whole.contains("rtt=200ms") && whole.contains("1x1GiB") && !whole.contains("cut:"), "{whole}");
    let cut = plan(&["--budget", "10m"]);
    assert!(cut.contains("cut: runs are sized for"), "{cut}");
    let grid = plan(&["--size", "1MiB", "--grid", "streams=1,2"]);
    assert!(grid.contains("tools: thalweg, thalweg streams=1, thalweg streams=2"), "{grid}");
    let ran = bed.run(&["bench", "sweep"]);
    assert_eq!((ran.code, ran.error().contains("--out")), (Some(2), true), "{}", ran.stderr);
    let ran = bed.run(&["bench", "sweep", "--loss", "2", "--dry-run"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn figures_are_listed_and_an_unknown_one_is_answered_with_the_nearest() {
    let bed = Bed::new();
    let listed = String::from_utf8(bed.run(&["bench", "repro", "list"]).succeeded().stdout).unwrap();
    let row =
        |id: &str| listed.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{listed}")).to_owned();
    assert!(
        row("s0-f8 ").ends_with("runs here") && row("s0-f6 ").contains("is not made here: growing files"),
        "{listed}"
    );
    let ran = bed.run(&["bench", "repro", "s0-f88", "--out", "figures"]);
    assert!(ran.code == Some(2) && ran.error().contains("the nearest are s0-f8,"), "{}", ran.stderr);
    let ran = bed.run(&["bench", "repro", "s0-f6", "--out", "figures"]);
    assert!(ran.code == Some(2) && ran.error().contains("growing files"), "{}", ran.stderr);
    assert!(!bed.path("figures").exists());
}

#[test]
fn a_figure_is_made_judged_and_indexed() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let args = ["bench", "repro", "s2-f1", "--rate", "50Mbit", "--no-check", "--budget", "12s", "--out", "figures"];
    let ran = bed.run(&args);
    // The verdict is the machine's; that there is one is ours.
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.stderr);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("coefficient of variation of 16 streams"), "{text} {}", ran.stderr);
    for name in ["README.md", "index.html", "s2-f1/checks.md", "s2-f1/plots/over-time.svg", "s2-f1/samples.jsonl"] {
        assert!(bed.path("figures").join(name).exists(), "{name}: {}", ran.stderr);
    }
}
