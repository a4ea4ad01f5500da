//! Copies by several hosts while all members of their etcd stand still, and are then dead: no data waits for them, and no
//! file comes twice.
//!
//! `THALWEG_TEST_OUTAGE_SECONDS` says for how long; `xtask ci --full` makes it a minute.

use crate::bed::{Bed, Server, contents, noise, until};
use crate::coordinators::Site;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

const MEMBERS: usize = 3;
const FILES: usize = 3000;
const FILE_BYTES: usize = 64 << 10;
/// Hosts ask etcd every 5 s.
const SECONDS: u64 = 8;
/// In so much of the outage something has to arrive.
const LOOK: Duration = Duration::from_secs(4);
/// For what comes before the outage and after it, at the rate that the source has until then.
const SPARE_SECONDS: u64 = 30;

fn outage_seconds() -> u64 {
    let named = std::env::var("THALWEG_TEST_OUTAGE_SECONDS").ok();
    named.map_or(SECONDS, |text| text.parse().expect("THALWEG_TEST_OUTAGE_SECONDS is a number of seconds"))
}

/// A source of two hosts without etcd, each of which sends with `rate`.
fn serve_source(bed: &Bed, rate: &str) -> [Server; 2] {
    let at = |home: &str, args: &[&str]| bed.finish(bed.command(home, args)).succeeded();
    let serve = |home: &str, key: &str, file: &str| {
        // Before it runs, so that it holds from the first byte on.
        at(home, &["contract", "add", "slow", "--direction", "out", "--rate", rate]);
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", "from", "--name", home, key, file];
        bed.serve_with(bed.command(home, &args))
    };
    let head = serve("src", "--ticket-file", "ticket-src");
    at("src", &["host", "init"]);
    at("src", &["host", "invite", "src2", "--token-file", "token-src2"]);
    let other = serve("src2", "--join", "token-src2");
    let is_heard = || at("src", &["host", "ls", "--json"]).events().iter().all(|host| host["state"] != "invited");
    until("the source's hosts to be heard", is_heard);
    [head, other]
}

/// The files that have been published, each with the inode that it had first: what is published again has another.
#[derive(Default)]
struct Published(BTreeMap<PathBuf, u64>);

impl Published {
    /// Looks again; returns how many there are.
    #[track_caller]
    fn look(&mut self, tree: &Path) -> usize {
        let listed = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten().collect::<Vec<_>>();
        for file in listed(tree).iter().flat_map(|directory| listed(&directory.path())) {
            let Ok(found) = file.metadata() else { continue };
            let first = *self.0.entry(file.path()).or_insert(found.ino());
            assert_eq!(found.ino(), first, "{} was published twice", file.path().display());
        }
        self.0.len()
    }
}

fn sum(done: &Value, key: &str) -> u64 {
    done["hosts"].as_array().unwrap().iter().map(|host| host[key].as_u64().unwrap()).sum()
}

#[test]
fn a_copy_by_several_hosts_goes_on_while_all_members_of_etcd_are_away_and_brings_each_file_once() {
    let Some(mut site) = Site::new(MEMBERS) else { return };
    let seconds = outage_seconds();
    site.serve("h1", &[]);
    site.join("h1", "h2");
    site.until_states("h1", &[("h1", "active"), ("h2", "active")]);
    let kbit = (FILES * FILE_BYTES * 8) as u64 / 1000 / 2 / (seconds + SPARE_SECONDS);
    let _source = serve_source(&site.bed, &format!("{kbit}kbit"));
    for at in 0..FILES {
        site.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(FILE_BYTES, at as u64));
    }
    for (name, ticket) in [("src", "ticket-src"), ("far", "ticket-h1")] {
        site.at("h1", &["endpoint", "add", name, "--ticket-file", ticket]).succeeded();
    }
    let (tree, mut published) = (site.bed.path("to/y"), Published::default());
    let mut copy = site.bed.command("h1", &["cp", "--json", "src:x/", "far:y/"]);
    let mut copy = copy.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("something to arrive", || published.look(&tree) > 8);
    (0..MEMBERS).for_each(|at| site.members.pause(at, true));
    let looks = (seconds / LOOK.as_secs()).max(2);
    for turn in 0..looks {
        // What stands still answers nobody; what is dead refuses everybody.
        if turn == looks / 2 {
            (0..MEMBERS).for_each(|at| site.members.kill(at));
        }
        let (before, began) = (published.look(&tree), Instant::now());
        until("the look to be over", || began.elapsed() >= LOOK);
        assert!(published.look(&tree) > before, "nothing arrived in {LOOK:?} without etcd, at {turn} of {looks}");
    }
    let ran = site.at("h1", &["host", "ls"]);
    assert!(ran.code == Some(5) && ran.error().contains("hint: "), "{}", ran.stderr);
    assert!(copy.try_wait().unwrap().is_none(), "it was over before etcd came back");
    (0..MEMBERS).for_each(|at| site.members.launch(at));
    site.members.wait();
    site.until_states("h1", &[("h1", "active"), ("h2", "active")]);
    for home in ["src", "src2"] {
        site.at(home, &["contract", "rm", "slow"]).succeeded();
    }
    let done = site.bed.wait(copy).succeeded().done();
    assert_eq!(contents(&site.bed.path("from/x")), contents(&tree));
    assert_eq!(published.look(&tree), FILES);
    assert_eq!((&done["files"]["ok"], &done["files"]["failed"]), (&FILES.into(), &0.into()), "{done}");
    assert_eq!((sum(&done, "files"), sum(&done, "lost")), (FILES as u64, 0), "{done}");
    let working = done["hosts"].as_array().unwrap().iter().filter(|host| host["slices"].as_u64() > Some(0));
    assert_eq!(working.count(), 2, "{done}");
    // What the command kept there is gone with it.
    let left = site.members.ctl(&["get", "--prefix", "--keys-only", "/thalweg/"]);
    assert!(!left.contains("/crews/"), "{left}");
}
