//! `bench net`: two ends, or both in a laboratory; its events and files are as documented; its errors say what to do.

use crate::bed::{Bed, signal};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

/// The other end, ended with the test.
struct Remote {
    child: Child,
    address: String,
}

impl Remote {
    fn serve(bed: &Bed) -> Remote {
        let mut command = bed.command("server", &["bench", "net", "--serve", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        let address = ready.trim().strip_prefix("ready on ").unwrap().to_owned();
        Remote { child, address }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Field names of each table of the document, by its heading.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench-net.md")).unwrap();
    let mut tables: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            heading = name.split('`').nth(1).unwrap().to_owned();
        }
        if let Some(row) = line.strip_prefix("| `") {
            tables.entry(heading.clone()).or_default().insert(row.split('`').next().unwrap().to_owned());
        }
    }
    tables
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

const SHORT: [&str; 6] = ["--seconds", "0.06", "--omit", "0.02", "--interval", "0.02"];

#[test]
fn every_event_of_a_run_has_exactly_the_documented_fields() {
    let bed = Bed::new();
    let far = Remote::serve(&bed);
    let documented = documented();
    let run = |more: &[&str]| bed.run(&[&["bench", "net", "--json"], &SHORT[..], more].concat());
    let mut events = run(&[&far.address, "--both", "--streams", "2", "--tls", "on"]).succeeded().events();
    assert_eq!(events.iter().filter(|event| event["event"] == "interval").count(), 4);
    assert!(events[1]["is_omitted"] == true && events[2]["is_omitted"] == false);
    let done = events.last().unwrap();
    assert!(done["bits_per_second"].as_f64().unwrap() > 0.0 && done["streams"].as_array().unwrap().len() == 4);
    events.extend(run(&["127.0.0.1:1"]).events());
    let mut seen = BTreeSet::new();
    for event in &events {
        let name = event["event"].as_str().unwrap().to_owned();
        assert_eq!(&keys(event), &documented[&name], "{event}");
        for list in ["totals", "streams"] {
            for object in event[list].as_array().into_iter().flatten() {
                assert_eq!(&keys(object), &documented[list], "{object}");
            }
        }
        seen.insert(name);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["done", "error", "interval", "start"]);
}

#[test]
fn a_run_shows_streams_and_sums_and_leaves_its_intervals() {
    let bed = Bed::new();
    let far = Remote::serve(&bed);
    let args = [&["bench", "net", &far.address, "--streams", "2", "--reverse", "--out", "out"], &SHORT[..]].concat();
    let ran = bed.run(&args).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("(left out)") && text.contains("   all  reverse") && text.contains("CPU"), "{text}");
    assert!(ran.stderr.contains("2 streams of clear text from 127.0.0.1"), "{}", ran.stderr);
    let csv = fs::read_to_string(bed.path("out/intervals.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 4 * 2, "{csv}");
    let summary: Value = serde_json::from_slice(&fs::read(bed.path("out/summary.json")).unwrap()).unwrap();
    assert_eq!(summary["load"]["streams"], 2);
    assert!(fs::read_to_string(bed.path("out/README.md")).unwrap().contains("| reverse |"));
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let bed = Bed::new();
    let far = Remote::serve(&bed);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = silent.local_addr().unwrap().to_string();
    let closing = std::thread::spawn(move || drop(silent.accept().unwrap()));
    for (args, code, said) in [
        (vec!["127.0.0.1:1"], 43, "nothing listens there"),
        (vec!["127.0.0.1:1"], 43, "bench net --serve '[::]:7741'"),
        (vec![&elsewhere], 42, "run the same version"),
        (vec![&far.address, "--congestion", "no-such-one"], 2, "available"),
        (vec![&far.address, "--streams", "0"], 2, "1 to 1024"),
        (vec![&far.address, "--interval", "0"], 2, "an interval"),
        (vec![&far.address, "--reverse", "--both"], 2, "cannot be used with"),
        (vec![], 2, "required"),
        (vec!["--lab", "moon"], 2, "neither a preset nor a file"),
    ] {
        let ran = bed.run(&[vec!["bench", "net"], args].concat());
        assert!(ran.code == Some(code) && ran.stderr.contains(said), "{code} {said}: {:?} {}", ran.code, ran.stderr);
    }
    closing.join().unwrap();
}

#[test]
fn a_server_ends_in_order_when_it_is_asked_to() {
    let bed = Bed::new();
    let mut far = Remote::serve(&bed);
    signal(&far.child, rustix::process::Signal::TERM);
    assert_eq!(far.child.wait().unwrap().code(), Some(0));
}

#[test]
fn both_ends_run_in_a_laboratory_and_see_its_round_trip() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let args = ["bench", "net", "--lab", "interstate", "--lab-set", "wan.rate=100Mbit", "--json", "--seconds", "1"];
    let done = bed.run(&args).succeeded().done();
    assert!(done["totals"][0]["rtt_us_min"].as_u64().unwrap() >= 20_000, "{done}");
    assert!(done["bits_per_second"].as_f64().unwrap() < 100e6, "{done}");
}
