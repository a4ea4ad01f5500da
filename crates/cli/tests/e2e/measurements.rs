//! Measurements as their users meet them: what they print, what they refuse, and what they leave behind.

use crate::bed::{Bed, until};
use std::fs;
use std::path::Path;

/// Small enough for a test; the figures mean nothing.
const SMALL: [&str; 10] =
    ["--size", "4KiB,256KiB", "--volume", "512KiB", "--files-max", "10", "--files", "40", "--rounds", "1"];

fn storage<'a>(dir: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "storage", dir], &SMALL[..], more].concat()
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn storage_is_measured_shown_and_left_as_it_was() {
    let bed = Bed::new();
    let ran = bed.run(&storage("root", &["--out", "bundle"])).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    for wanted in
        ["settings: ", "write ", "read ", "publish durable", "p99.9", "binds: ", "synced after the last write"]
    {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let raw = fs::read_to_string(bed.path("bundle/samples.csv")).unwrap();
    let columns = raw.lines().next().unwrap().split(',').count();
    assert!(raw.lines().all(|line| line.split(',').count() == columns), "{raw}");
    assert!(raw.contains("\nwrite,4096,0,false,") && raw.contains("\nread,262144,1,true,"), "{raw}");
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(bed.path("bundle/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["plan"]["steps"][0]["files"], 10);
    assert!(fs::read_to_string(bed.path("bundle/summary.md")).unwrap().contains("| operation |"));
    assert!(is_empty(&bed.path("root")));
    let again = bed.run(&storage("root", &["--out", "bundle"]));
    assert_eq!(
        (again.code, &again.error()[..]),
        (
            Some(2),
            "error: write the bundle to bundle: the directory is not empty\n\
             hint: see `thalweg gen --help` and `thalweg bench --help`"
        )
    );
}

#[test]
fn a_target_gives_a_verdict_and_an_exit_code() {
    let bed = Bed::new();
    let only = ["--only", "throughput", "--json", "--block", "64KiB", "--target"];
    let easy = bed.run(&storage("root", &[&only[..], &["1kbit"]].concat())).succeeded();
    let outcome: serde_json::Value = serde_json::from_slice(&easy.stdout).unwrap();
    assert!(outcome["verdict"]["passes"] == true && outcome["verdict"]["sides"][0]["concurrency_needed"] == 1);
    assert!(outcome["verdict"]["sides"][1]["ladder"].as_array().unwrap().len() >= 3, "{outcome}");
    assert!(outcome["rows"][0]["calls"][0][1]["p999_us"].is_number(), "{outcome}");
    let hard = bed.run(&storage("root", &[&only[..], &["900Tbit"]].concat()));
    let outcome: serde_json::Value = serde_json::from_slice(&hard.stdout).unwrap();
    assert!(hard.code == Some(1) && outcome["verdict"]["passes"] == false, "{outcome}");
}

#[test]
fn a_dry_run_of_a_sweep_says_what_it_needs_and_writes_nothing() {
    let bed = Bed::new();
    let sweep = ["bench", "storage", "root", "--sweep", "all", "--step", "2", "--dry-run"];
    let text = String::from_utf8(bed.run(&sweep).succeeded().stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("write and read ")).count(), 31, "{text}");
    assert!(text.contains("write and read 1 x 1.00 TiB, 1.00 TiB, 4 rounds"), "{text}");
    assert!(text.lines().last().unwrap().starts_with("needs 1.0"), "{text}");
    assert!(is_empty(&bed.path("root")));
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let bed = Bed::new();
    bed.write("file", b"");
    for (args, code, said) in [
        (&["none"][..], 2, "error: look at none: there is no such directory"),
        (&["file"], 2, "error: look at file: is not a directory"),
        (&["root", "--depth", "4"], 2, "raise the threads, or choose the engine uring"),
        (&["root", "--direct", "--block", "1000"], 2, "must be a multiple of 4KiB"),
        (&["root", "--sweep", "tiny"], 2, "is not small, medium, large, huge or all"),
        (&["root", "--target", "10GB"], 2, "is not a rate"),
        (&["root", "--size", "1000TiB"], 44, "error: measure in root: needs "),
    ] {
        let ran = bed.run(&[&["bench", "storage"], args].concat());
        assert!(ran.code == Some(code) && ran.stderr.contains(said), "{args:?}: {:?} {}", ran.code, ran.stderr);
    }
    assert!(is_empty(&bed.path("root")));
}

#[test]
fn what_a_killed_measurement_left_is_removed_by_the_next() {
    let bed = Bed::new();
    let mut child = bed.start(&["bench", "storage", "root", "--files", "50000", "--only", "metadata"]);
    until("the first files", || !is_empty(&bed.path("root")));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_empty(&bed.path("root")));
    bed.run(&storage("root", &["--only", "metadata"])).succeeded();
    assert!(is_empty(&bed.path("root")));
}

#[test]
fn a_pair_of_hosts_is_measured_in_both_directions_and_left_as_it_was() {
    let (bed, server) = Bed::with_endpoint();
    fs::create_dir(bed.path("here")).unwrap();
    let field = ["bench", "field", "lab:scratch", "--root", "here", "--seconds", "0.2", "--rounds", "1", "--out"];
    bed.run(&[&field[..], &["bundle"]].concat()).succeeded();
    let summary: serde_json::Value =
        serde_json::from_slice(&fs::read(bed.path("bundle/summary.json")).unwrap()).unwrap();
    let samples = summary["samples"].as_array().unwrap();
    for from_and_to in
        ["here to memory there", "there to memory here", "here to storage there", "there to storage here"]
    {
        let moved = |sample: &serde_json::Value| sample["done"]["bytes"].as_u64().unwrap() > 1 << 20;
        let is_of = |sample: &&serde_json::Value| sample["item"].as_str().unwrap().ends_with(from_and_to);
        assert!(samples.iter().find(is_of).is_some_and(moved), "{from_and_to}: {summary}");
    }
    assert!(samples.iter().all(|sample| sample["exit"] == 0 && sample["done"]["files"]["skipped"] == 0), "{summary}");
    assert!(summary["findings"].as_array().unwrap().iter().any(|finding| finding["found"].is_string()), "{summary}");
    let page = fs::read_to_string(bed.path("bundle/README.md")).unwrap();
    assert!(page.contains("| memory here to memory there | 1 of ") && page.contains("give --net"), "{page}");
    assert!(is_empty(&bed.path("here")) && is_empty(&bed.path("root/scratch")));

    let again = bed.run(&[&field[..], &["bundle"]].concat());
    assert!(again.code == Some(2) && again.error().contains("not empty"), "{}", again.error());
    let nobody = bed.run(&["bench", "field", "nobody", "--out", "other"]);
    assert!(nobody.code == Some(1) && nobody.error().contains("nobody"), "{}", nobody.error());
    server.stop();
}
