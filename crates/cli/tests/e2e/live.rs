//! Stores at which somebody has an account: they run only where a variable names a place that they may write below.
//!
//! `THALWEG_LIVE_S3=s3://BUCKET/PREFIX`, with keys from where the program finds them for its users, and
//! `THALWEG_LIVE_DAV=davs://HOST:PORT/PATH`, with a token in `BEARER_TOKEN` or `BEARER_TOKEN_FILE` (docs/stores.md).
//! Invariant: what a test writes lies below one new name there, which is removed at its end, also where it fails.

use crate::bed::{Bed, noise, signal};
use crate::real_stores::goes_both_ways;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const LARGE_BYTES: usize = 64 << 20;

/// A new name at a store, which goes with its test.
struct Place {
    bed: Bed,
    top: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.command(&["rm", "-rf", &self.top]).output();
        if self.top.starts_with("s3") {
            let _ = self.command(&["uploads", "abort", &format!("{}/", self.top)]).output();
        }
    }
}

impl Place {
    /// `None` where no place is named, under continuous integration too: no account belongs to it.
    fn named(variable: &str) -> Option<Place> {
        let Ok(place) = std::env::var(variable) else {
            eprintln!("skipped: {variable} names no place to write below (docs/stores.md)");
            return None;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        Some(Place { bed: Bed::new(), top: format!("{}/thalweg-live-{now}", place.trim_end_matches('/')) })
    }

    /// The client, which finds the keys of whoever runs this.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bed.command("client", args);
        if let Some(home) = std::env::var_os("HOME") {
            command.env("HOME", home);
        }
        command
    }

    fn said(&self, args: &[&str]) -> Vec<u8> {
        self.bed.finish(self.command(args)).succeeded().stdout
    }

    fn goes_both_ways(&self) {
        let read = |path: &str| self.said(&["cat", &format!("{}/{path}", self.top)]);
        goes_both_ways(&self.bed, &self.top, &|args: &[&str]| self.said(args), &read);
    }

    /// A copy is killed midway, and its name shows no part of it; the same command completes it. What that one came to.
    fn goes_on_after_a_kill(&self) -> Value {
        let bytes = noise(LARGE_BYTES, 23);
        self.bed.write("long", &bytes);
        let there = format!("{}/killed/", self.top);
        let args = ["cp", "--json", "long", &there];
        kill_midway(self.command(&[&args[..], &["--bwlimit", "8MiB"]].concat()));
        assert_eq!(self.bed.finish(self.command(&["ls", &there])).stdout, b"");
        let done = self.bed.finish(self.command(&args)).succeeded().done();
        assert!(self.said(&["cat", &format!("{there}long")]) == bytes);
        done
    }

    fn leaves_nothing(&self) {
        self.said(&["rm", "-r", &self.top]);
        let left = self.bed.finish(self.command(&["ls", &self.top]));
        assert!(left.stdout.is_empty() && matches!(left.code, Some(0 | 3 | 4)), "{}", left.stderr);
    }
}

/// Runs a copy that tells of itself, and kills it once more than half of the large file has left.
fn kill_midway(mut command: Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_midway = |line: String| {
        let event: Value = serde_json::from_str(&line).unwrap();
        event["event"] == "progress" && event["bytes"]["sent"].as_u64() > Some(LARGE_BYTES as u64 / 2)
    };
    let is_seen = lines.map_while(Result::ok).any(is_midway);
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(is_seen, "it ended before it was midway");
}

#[test]
fn a_live_object_store_takes_gives_and_goes_on() {
    let Some(place) = Place::named("THALWEG_LIVE_S3") else { return };
    place.goes_both_ways();
    let done = place.goes_on_after_a_kill();
    // Amazon tells the checksum of each part; at a store that does not, a file is sent again from its start.
    let is_amazon = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"].iter().all(|name| std::env::var_os(name).is_none());
    assert!(!is_amazon || done["resumed_bytes"].as_u64() > Some(0), "{done}");
    assert_eq!(place.said(&["uploads", "ls", &format!("{}/", place.top)]), b"");
    place.leaves_nothing();
}

#[test]
fn a_live_webdav_server_takes_gives_and_goes_on() {
    let Some(place) = Place::named("THALWEG_LIVE_DAV") else { return };
    place.goes_both_ways();
    place.goes_on_after_a_kill();
    place.leaves_nothing();
}
