//! The events that programs read: docs/json.md lists every field, and nothing else appears.

use crate::bed::{Bed, noise, until};
use crate::follows::eventful;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Stdio;

/// Field names of each event in the tables of the document, `files.ok` for a field within a field.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut event = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("## `") {
            event = name.split('`').next().map(str::to_owned);
        } else if line.starts_with("## ") {
            event = None;
        }
        if let (Some(event), Some(row)) = (&event, line.strip_prefix("| `")) {
            let field = row.split('`').next().unwrap();
            events.entry(event.clone()).or_default().insert(field.to_owned());
        }
    }
    events
}

fn fields(event: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (name, value) in event.as_object().unwrap() {
        match value {
            Value::Object(inner) => found.extend(inner.keys().map(|inner| format!("{name}.{inner}"))),
            _ => _ = found.insert(name.clone()),
        }
    }
    found
}

#[test]
fn every_event_has_exactly_the_documented_fields() {
    let (bed, mut server) = Bed::with_endpoint();
    let documented = documented();
    bed.write("t/f", &noise(5000, 1));
    let socket = std::os::unix::net::UnixListener::bind(bed.path("t/socket")).unwrap();
    let mut events = bed.run(&["cp", "--json", "t", "lab:"]).succeeded().events();
    drop(socket);
    events.extend(bed.run(&["sync", "--json", "--itemize", "t/", "copied"]).succeeded().events());
    // A pipe that stays open long enough for a progress event.
    let mut command = bed.command("client", &["cp", "--json", "-", "lab:slow"]);
    let mut child = command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    loop {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        events.push(event.clone());
        if event["event"] == "progress" {
            break;
        }
    }
    drop(child.stdin.take());
    events.extend(lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()));
    assert!(child.wait().unwrap().success());
    server.kill();
    events.extend(bed.run(&["cp", "--json", "t", "lab:"]).events());
    events.extend(bed.run(&["cp", "--json", "nosuch", "lab:"]).events());
    events.extend(eventful(&bed));
    let mut seen = BTreeSet::new();
    for event in &events {
        let name = event["event"].as_str().unwrap();
        seen.insert(name.to_owned());
        assert_eq!(
            &fields(event),
            documented.get(name).unwrap_or_else(|| panic!("{name} is not documented")),
            "{event}"
        );
        assert_eq!(event["v"], 1);
    }
    // No destination falls behind to order; its fields are those of `lag`.
    seen.insert("lag_alarm".to_owned());
    assert_eq!(seen, documented.keys().cloned().collect());
}

#[test]
fn the_last_event_repeats_the_exit_code_whatever_happened() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/f", b"f");
    for (args, code) in [
        (&["cp", "--json", "t", "lab:"][..], 0),
        (&["cp", "--json", "nosuch", "lab:"], 4),
        (&["cp", "--json", "lab:../x", "."], 6),
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(code), "{}", ran.stderr);
        assert_eq!(ran.done()["code"], code);
        let first = &ran.events()[0]["event"];
        assert!(first == "start" || first == "error");
    }
}

#[test]
fn a_report_or_manifest_that_cannot_be_written_is_told_in_the_last_event() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    for (option, what) in [("--report", "write report"), ("--manifest", "write manifest")] {
        let ran = bed.run(&["cp", "--json", option, "no/dir/file", "f", "lab:g"]);
        let done = ran.done();
        assert_eq!((ran.code, &done["code"], &done["files"]["ok"]), (Some(1), &1.into(), &0.into()));
        assert!(ran.error().contains(what) && ran.error().contains("make its directory first"), "{}", ran.stderr);
        assert!(!bed.path("root/g").exists());
        // Its directory goes away while a pipe is copied: the copy is complete, and says so.
        fs::create_dir(bed.path("d")).unwrap();
        let mut command = bed.command("client", &["cp", "--json", option, "d/file", "-", "lab:piped"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        until("its file", || fs::read_dir(bed.path("d")).unwrap().count() > 0);
        fs::remove_dir_all(bed.path("d")).unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"piped").unwrap();
        let ran = bed.wait(child);
        let done = ran.done();
        assert_eq!((ran.code, &done["code"], &done["files"]["ok"]), (Some(1), &1.into(), &1.into()), "{}", ran.stderr);
        assert!(ran.error().contains(what), "{}", ran.stderr);
        assert_eq!(fs::read(bed.path("root/piped")).unwrap(), b"piped");
    }
}

#[test]
fn a_done_event_tells_how_it_went() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", &noise(3 << 20, 1));
    let done = bed.run(&["cp", "--json", "--streams", "3", "--digest", "blake3", "f", "lab:"]).succeeded().done();
    assert_eq!((&done["bytes"], &done["tls"], &done["verify"]), (&(3 << 20).into(), &true.into(), &"blake3".into()));
    assert!(done["first_byte_seconds"].as_f64().unwrap() <= done["seconds"].as_f64().unwrap());
    assert!(["batch", "memory"].contains(&done["durable"].as_str().unwrap()));
    let done = bed.run(&["cp", "--json", "--fsync", "never", "--verify", "reread", "f", "g"]).succeeded().done();
    assert_eq!(
        (&done["tls"], &done["verify"], &done["durable"]),
        (&false.into(), &"crc64nvme+reread".into(), &"never".into())
    );
}
