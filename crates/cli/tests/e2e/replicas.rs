//! Several holders of the same: real endpoints that bring a part each, lie, differ, vanish, and a copy that goes on after all that.

use crate::bed::{Bed, Server, journal_bytes, noise, signal, staged, until};
use crate::resumption::{assert_same, make_large};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::Path;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Endpoints `a`, `b` and `c`, each with a root of its own name.
fn serve(bed: &Bed, names: &[&str]) -> Vec<Server> {
    let one = |name: &&str| {
        fs::create_dir_all(bed.path(name)).unwrap();
        let ticket = format!("ticket-{name}");
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", name, "--ticket-file", &ticket];
        let server = bed.serve_with(bed.command(&format!("home-{name}"), &args));
        bed.run(&["endpoint", "add", name, "--ticket-file", &ticket, "--replace"]).succeeded();
        server
    };
    names.iter().map(one).collect()
}

/// Gives the others what `a` has, times included.
fn replicate(bed: &Bed) {
    for name in &NAMES[1..] {
        let copied =
            std::process::Command::new("cp").arg("-a").arg(bed.path("a/.")).arg(bed.path(name)).status().unwrap();
        assert!(copied.success());
    }
}

/// One large file.
fn large(bed: &Bed) {
    fs::create_dir_all(bed.path("a/set")).unwrap();
    make_large(bed, "a/set/large");
}

fn mixed(bed: &Bed) {
    large(bed);
    for at in 0..300 {
        bed.write(&format!("a/set/d{}/f{at}", at % 7), &noise(3000 + 97 * at, at as u64));
    }
    bed.write("a/set/middle", &noise(3 << 20, 5));
    bed.write("a/set/empty", b"");
}

#[track_caller]
fn assert_trees(one: &Path, other: &Path) {
    let compared = std::process::Command::new("diff").arg("-r").arg(one).arg(other).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
}

fn source<'a>(done: &'a Value, name: &str) -> &'a Value {
    let sources = done["sources"].as_array().unwrap();
    sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("no {name}: {done}"))
}

fn bytes(done: &Value, name: &str) -> u64 {
    source(done, name)["bytes"].as_u64().unwrap()
}

const COPY: [&str; 7] = ["cp", "--json", "--replica", "a:set/", "--replica", "b:set/", "--replica"];

fn copy(bed: &Bed) -> Vec<&'static str> {
    let _ = bed;
    [&COPY[..], &["c:set/", "here/"]].concat()
}

#[test]
fn each_holder_brings_a_part_and_the_copy_is_the_first_ones() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    mixed(&bed);
    replicate(&bed);
    let done = bed.run(&copy(&bed)).succeeded().done();
    assert_trees(&bed.path("a/set"), &bed.path("here"));
    assert_eq!(staged(&bed.path("here")), []);
    assert_eq!(done["files"]["ok"], 303, "{done}");
    assert_eq!(NAMES.iter().map(|name| bytes(&done, name)).sum::<u64>(), done["bytes"], "{done}");
    assert!(NAMES.iter().all(|name| bytes(&done, name) > 0), "{done}");
    // What is there is skipped, whoever leads.
    let again = ["cp", "--json", "c:set/", "here/", "--replica", "a:set/"];
    let done = bed.run(&again).succeeded().done();
    assert_eq!((&done["files"]["skipped"], &done["sent_bytes"]), (&303.into(), &0.into()));
}

#[test]
fn one_file_comes_from_holders_that_call_it_differently() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    make_large(&bed, "a/large");
    replicate(&bed);
    fs::rename(bed.path("b/large"), bed.path("b/other")).unwrap();
    let done = bed.run(&["cp", "--json", "a:large", "new-name", "--replica", "b:other", "--replica", "c:large"]);
    let done = done.succeeded().done();
    assert_same(bed.path("a/large"), bed.path("new-name"));
    assert!(bytes(&done, "b") > 0, "{done}");
}

#[test]
fn a_holder_that_has_nothing_at_its_path_is_named_with_the_reason() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES[..2]);
    bed.write("a/set/f", b"x");
    // So short a copy may be over before another holder is asked for anything.
    let ran = bed.run(&["cp", "a:set/", "here/", "--replica", "b:nope/"]).succeeded();
    let why = "nope/: no such file or directory";
    assert!(ran.stderr.contains(&format!("warning: nothing came from b: {why}\n")), "{}", ran.stderr);
    let done = bed.run(&["cp", "--json", "a:set/", "other/", "--replica", "b:nope/"]).succeeded().done();
    assert_eq!((&done["files"]["ok"], &source(&done, "b")["dropped"]), (&1.into(), &why.into()), "{done}");
}

/// The same size and time, and other bytes.
fn poison(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let size = fs::metadata(path).unwrap().len();
    fs::write(path, vec![b'x'; size as usize]).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(modified).unwrap();
}

#[test]
fn a_holder_of_other_bytes_is_found_chunk_by_chunk_and_dropped_by_name() {
    let bed = Bed::new();
    // Were the first holder fast, the other would not have the time to be found out.
    let slow = bed.command("home-a", &["contract", "add", "slow", "--direction", "out", "--rate", "100M"]).status();
    assert!(slow.unwrap().success());
    let _servers = serve(&bed, &NAMES);
    mixed(&bed);
    replicate(&bed);
    poison(&bed.path("b/set/large"));
    let ran = bed.run(&copy(&bed)).succeeded();
    let done = ran.done();
    assert_trees(&bed.path("a/set"), &bed.path("here"));
    let b = source(&done, "b");
    assert!((3..=6).contains(&b["bad_chunks"].as_u64().unwrap()), "{done}");
    assert!(b["dropped"].as_str().unwrap().contains("other content than the first holder's"), "{done}");
    assert!(bytes(&done, "c") > 0, "{done}");
}

#[test]
fn a_holder_with_another_version_brings_what_is_the_same() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    mixed(&bed);
    replicate(&bed);
    bed.write("b/set/middle", &noise(4 << 20, 6));
    bed.write("c/set/only-here", b"not in the lead's listing");
    let done = bed.run(&copy(&bed)).succeeded().done();
    assert_trees(&bed.path("a/set"), &bed.path("here"));
    let b = source(&done, "b");
    assert_eq!((&b["differing"], &b["dropped"]), (&1.into(), &Value::Null), "{done}");
    assert!(b["difference"].as_str().unwrap().starts_with("middle: 4194304 bytes instead of"), "{done}");
}

#[test]
fn when_two_agree_against_the_first_the_copy_ends_and_says_so() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    large(&bed);
    replicate(&bed);
    poison(&bed.path("a/set/large"));
    let ran = bed.run(&copy(&bed));
    assert_eq!(ran.code, Some(40), "{}", ran.stderr);
    assert!(ran.error().contains("a differs from the others"), "{}", ran.error());
    assert!(!bed.path("here/large").exists());
}

/// A holder is killed in the middle of a copy, and the others finish it.
fn survives(victim: usize) {
    let bed = Bed::new();
    let mut servers = serve(&bed, &NAMES);
    mixed(&bed);
    replicate(&bed);
    let child = bed.start(&copy(&bed));
    until("verified chunks", || journal_bytes(&bed.path("here")) >= 8 * 64);
    servers[victim].kill();
    let done = bed.wait(child).succeeded().done();
    assert_trees(&bed.path("a/set"), &bed.path("here"));
    assert_eq!(staged(&bed.path("here")), []);
    // What was published in the moment of the loss is found there by the next attempt.
    let files = &done["files"];
    assert_eq!(files["ok"].as_u64().unwrap() + files["skipped"].as_u64().unwrap(), 303, "{done}");
}

#[test]
fn the_others_finish_when_one_vanishes() {
    survives(1);
}

#[test]
fn the_others_finish_when_the_first_vanishes() {
    survives(0);
}

#[test]
fn a_copy_that_was_killed_goes_on_from_whichever_holder_comes_first() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    large(&bed);
    replicate(&bed);
    let mut child = bed.start(&copy(&bed));
    until("verified chunks", || journal_bytes(&bed.path("here")) >= 16 * 64);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let again = ["cp", "--json", "b:set/", "here/", "--replica", "c:set/", "--replica", "a:set/"];
    let done = bed.run(&again).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() >= 8 * (8 << 20), "{done}");
    assert_trees(&bed.path("a/set"), &bed.path("here"));
    assert_eq!(staged(&bed.path("here")), []);
}

#[test]
fn ctrl_c_ends_it_and_keeps_what_is_verified() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    large(&bed);
    replicate(&bed);
    let child = bed.start(&copy(&bed));
    until("verified chunks", || journal_bytes(&bed.path("here")) >= 8 * 64);
    signal(&child, Signal::INT);
    assert_eq!(bed.wait(child).code, Some(130));
    let done = bed.run(&copy(&bed)).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_trees(&bed.path("a/set"), &bed.path("here"));
}

#[test]
fn what_was_left_of_one_version_never_becomes_part_of_another() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    large(&bed);
    replicate(&bed);
    poison(&bed.path("c/set/large"));
    let mut child = bed.start(&["cp", "--json", "a:set/", "here/", "--replica", "b:set/"]);
    until("verified chunks", || journal_bytes(&bed.path("here")) >= 16 * 64);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    // The same size and time at the holder that leads now, and other bytes.
    let done = bed.run(&["cp", "--json", "c:set/", "here/", "--replica", "a:set/"]).succeeded().done();
    assert!(source(&done, "a")["dropped"].is_string(), "{done}");
    assert_trees(&bed.path("c/set"), &bed.path("here"));
}

#[test]
fn without_any_holder_it_ends_and_goes_on_later() {
    let bed = Bed::new();
    let mut servers = serve(&bed, &NAMES);
    large(&bed);
    replicate(&bed);
    let args = [&copy(&bed)[..], &["--retries", "0"]].concat();
    let child = bed.start(&args);
    until("verified chunks", || journal_bytes(&bed.path("here")) >= 8 * 64);
    servers.iter_mut().for_each(Server::kill);
    let ran = bed.wait(child);
    assert!(matches!(ran.code, Some(5 | 43)), "{:?} {}", ran.code, ran.stderr);
    drop(servers);
    let _servers = serve(&bed, &NAMES);
    let done = bed.run(&copy(&bed)).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_trees(&bed.path("a/set"), &bed.path("here"));
}

#[test]
fn what_several_holders_cannot_do_is_refused_with_a_way_out() {
    let bed = Bed::new();
    let _servers = serve(&bed, &NAMES);
    bed.write("a/set/f", b"x");
    for (args, text) in [
        (&["cp", "--replica", "a:set/", "--replica", "b:set/", "c:x/"][..], "not for copies between two endpoints"),
        (&["cp", "a:set/", "b:set/", "here/", "--replica", "c:set/"], "other holders of one source"),
        (&["cp", "a:set/", "here/", "--replica", "a:set/"], "a:set/ is named twice"),
        (&["cp", "a:set/", "here/", "--replica", "set/"], "endpoints and hosts that all have the same"),
        (&["cp", "a:set/", "here/", "--replica", "b:set/", "--delta"], "nothing from the old version"),
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.error().contains(text) && ran.error().contains("hint: "), "{args:?}: {}", ran.error());
    }
}
