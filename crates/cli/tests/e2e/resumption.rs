//! What was interrupted goes on: after a killed client, a killed endpoint, and Ctrl-C.

use crate::bed::{Bed, journal_bytes, signal, staged, until};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::Path;
use std::process::Child;

const LARGE_BYTES: u64 = 512 << 20;
const CHUNK_BYTES: u64 = 8 << 20;
/// Enough to be kept, far from the end.
const CHUNKS_KEPT: u64 = 8;
/// The journal of so many chunks: its header is longer than one record and shorter than eight.
const JOURNAL_BYTES: u64 = (CHUNKS_KEPT + 8) * 64;

/// A file with few bytes on disk and different ones at many places.
pub fn make_large(bed: &Bed, name: &str) {
    use std::os::unix::fs::FileExt;
    let file = File::create(bed.path(name)).unwrap();
    file.set_len(LARGE_BYTES).unwrap();
    for at in (0..LARGE_BYTES).step_by(3 << 20) {
        file.write_all_at(&at.to_le_bytes(), at).unwrap();
    }
}

/// A copy of the large file, stopped by `stop` in the middle.
fn interrupted(bed: &Bed, args: &[&str], staged_below: &str, stop: impl FnOnce(&mut Child)) -> crate::bed::Ran {
    let mut child = bed.start(args);
    until("verified chunks", || journal_bytes(&bed.path(staged_below)) >= JOURNAL_BYTES);
    stop(&mut child);
    bed.wait(child)
}

#[track_caller]
pub fn assert_same(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    let equal = std::process::Command::new("cmp").arg(a.as_ref()).arg(b.as_ref()).status().unwrap();
    assert!(equal.success());
}

#[track_caller]
fn assert_goes_on(bed: &Bed, args: &[&str]) {
    let done = bed.run(args).succeeded().done();
    let resumed = done["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= CHUNKS_KEPT * CHUNK_BYTES, "{done}");
    assert_eq!(done["bytes"], LARGE_BYTES);
    assert_eq!(done["files"]["ok"], 1);
    assert_eq!(done["sent_bytes"].as_u64().unwrap() + resumed, LARGE_BYTES, "{done}");
}

#[test]
fn a_push_goes_on_after_the_client_was_killed() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let args = ["cp", "--json", "large", "lab:dir/"];
    interrupted(&bed, &args, "root", |child| signal(child, Signal::KILL));
    assert!(!bed.path("root/dir/large").exists());
    assert_goes_on(&bed, &args);
    assert_same(bed.path("large"), bed.path("root/dir/large"));
    assert_eq!(staged(&bed.path("root")), []);
}

#[test]
fn a_pull_goes_on_after_the_client_was_killed() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "root/large");
    let args = ["cp", "--json", "lab:large", "here/"];
    interrupted(&bed, &args, "here", |child| signal(child, Signal::KILL));
    assert_goes_on(&bed, &args);
    assert_same(bed.path("root/large"), bed.path("here/large"));
}

#[test]
fn ctrl_c_keeps_what_is_verified_and_says_how_to_go_on() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let args = ["cp", "--json", "large", "lab:it's here/"];
    let ran = interrupted(&bed, &args, "root", |child| signal(child, Signal::INT));
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    let error = ran.error();
    assert!(
        error
            .starts_with("error: stopped; what was verified is kept\nhint: to continue, give the same command again: ")
    );
    assert!(error.ends_with("cp --json large 'lab:it'\\''s here/'"), "{error}");
    assert_eq!((&ran.done()["code"], &ran.done()["durable"]), (&130.into(), &serde_json::Value::Null));
    assert_goes_on(&bed, &args);
    assert_same(bed.path("large"), bed.path("root/it's here/large"));
}

#[test]
fn a_terminated_pull_exits_143_and_goes_on() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "root/large");
    let args = ["cp", "--json", "lab:large", "here"];
    let ran = interrupted(&bed, &args, ".", |child| signal(child, Signal::TERM));
    assert_eq!(ran.code, Some(143), "{}", ran.stderr);
    assert_goes_on(&bed, &args);
    assert_same(bed.path("root/large"), bed.path("here"));
}

#[test]
fn a_push_survives_an_endpoint_that_is_killed_and_comes_back() {
    let (bed, mut server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let address = server.address.clone();
    let mut again = None;
    let ran = interrupted(&bed, &["cp", "--json", "large", "lab:"], "root", |_| {
        server.kill();
        again = Some(bed.serve_as("server", &address, &[]));
    });
    let done = ran.done();
    assert_eq!(ran.code, Some(0), "{} {done}", ran.stderr);
    assert!(done["attempts"].as_u64().unwrap() >= 2, "{done}");
    assert!(ran.stderr.contains("; trying again in "), "{}", ran.stderr);
    assert_eq!(done["bytes"], LARGE_BYTES);
    assert_same(bed.path("large"), bed.path("root/large"));
}

#[test]
fn without_retries_a_lost_endpoint_is_exit_5() {
    let (bed, mut server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let ran = interrupted(&bed, &["cp", "--retries", "0", "large", "lab:"], "root", |_| server.kill());
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.error().starts_with("error: the connection was lost: "), "{}", ran.stderr);
    assert!(ran.error().ends_with("hint: the same command continues where this one stopped"), "{}", ran.stderr);
}

#[test]
fn a_source_that_changed_between_two_attempts_is_not_mixed() {
    let (bed, _server) = Bed::with_endpoint();
    make_large(&bed, "large");
    let args = ["cp", "--json", "large", "lab:"];
    interrupted(&bed, &args, "root", |child| signal(child, Signal::KILL));
    fs::write(bed.path("large"), b"something else").unwrap();
    let done = bed.run(&args).succeeded().done();
    assert_eq!(done["resumed_bytes"], 0);
    assert_same(bed.path("large"), bed.path("root/large"));
}
