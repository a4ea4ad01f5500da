//! A hub of the program of an earlier commit is stopped while jobs run, wait and are queued, and started again with the
//! present one: it goes on with each of them once, in the order of the queue, and remembers who had how much.
//!
//! As in `compatibility`: without `THALWEG_PREVIOUS_BIN` nothing is tried here, and that is said.

use crate::bed::{Bed, Ends, Ran, Server, noise, until};
use crate::compatibility::Release::{self, Present, Previous};
use crate::compatibility::previous;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;

const SITES: [&str; 3] = ["sitea", "siteb", "sitec"];

/// Its name, which is that of its only file; its source's endpoint, its destination, and what else it says.
type Job = (&'static str, &'static str, &'static str, &'static str);

/// Handed in one by one.
const FIRST: [Job; 2] = [
    ("had", "sitea", "siteb:had/", r#""project":"greedy""#),
    ("slow", "sitea", "siteb:in/slow/", r#""project":"slow","rate":"1M""#),
];

/// Handed in together. What goes to one place goes there one after the other.
const BATCH: [Job; 7] = [
    ("greedy", "sitea", "siteb:in/", r#""project":"greedy""#),
    ("early", "sitea", "siteb:in/", r#""project":"modest""#),
    ("urgent", "sitea", "siteb:in/", r#""project":"modest","priority":5"#),
    ("last", "sitea", "siteb:in/", r#""project":"modest","name":"last""#),
    ("after", "sitea", "siteb:after/", r#""project":"modest","after":["last"]"#),
    ("plain", "sitec", "sitec:in/", r#""project":"away""#),
    ("soon", "sitec", "sitec:in/", r#""project":"away","priority":5"#),
];

/// When the earlier hub is stopped.
const STANDING: [&str; 9] = [
    "had succeeded",
    "slow running",
    "greedy waiting",
    "early waiting",
    "urgent waiting",
    "last waiting",
    "after waiting",
    "plain queued",
    "soon queued",
];

/// By priority and age within a project. What "greedy" had under the earlier hub is more than all that "modest" wants:
/// a hub that had forgotten it would give "greedy" the second turn.
const ORDERS: [&[&str]; 3] = [&["slow", "urgent", "early", "last", "greedy"], &["last", "after"], &["soon", "plain"]];

/// Hub and client are of one program.
struct House {
    hub: Option<Ends>,
    sites: Vec<Server>,
    bed: Bed,
    release: Release,
}

impl House {
    fn new(endpoints: Release) -> House {
        let bed = Bed::new();
        let sites = SITES.map(|name| serve(&bed, endpoints, name, "127.0.0.1:0")).into();
        let mut house = House { hub: None, sites, bed, release: Previous };
        house.start(Previous);
        for name in SITES {
            let ticket = format!("ticket-{name}");
            house.run(&["endpoint", "add", name, "--ticket-file", &ticket, "--hub"]).succeeded();
        }
        house
    }

    fn start(&mut self, release: Release) {
        self.release = release;
        let mut hub = release.of(&self.bed.command("client", &["hub", "--state-dir", "hub-state"]));
        self.hub = Some(Ends(hub.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        until("the hub to answer", || self.run(&["queue"]).code == Some(0));
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.release.run(&self.bed, "client", args)
    }

    /// Under its name as the key.
    fn submit(&self, job: Job) -> String {
        let file = format!("{}.json", job.0);
        self.bed.write(&file, line(job).as_bytes());
        let taken = self.run(&["submit", "--json", "--key", job.0, &file]).succeeded().events().pop().unwrap();
        taken["id"].as_str().unwrap().to_owned()
    }

    /// Hands everything in, and waits until it stands where it is to stand. Returns the names with their ids.
    fn hand_in(&self) -> Vec<(&'static str, String)> {
        for (at, (name, site, ..)) in all().enumerate() {
            let bytes = if at < FIRST.len() { 10 << 20 } else { 1000 + at };
            self.bed.write(&format!("root-{site}/{name}/{name}"), &noise(bytes, at as u64));
        }
        let had = self.submit(FIRST[0]);
        until("a job to end", || self.jobs()[&had]["code"] == 0);
        let slow = self.submit(FIRST[1]);
        until("a job to run", || self.jobs()[&slow]["status"] == "running");
        self.bed.write("batch", BATCH.map(line).concat().as_bytes());
        let ran = self.run(&["batch", "batch"]).succeeded();
        let together: Vec<String> = String::from_utf8(ran.stdout).unwrap().lines().map(str::to_owned).collect();
        let ids = [had, slow].into_iter().chain(together);
        let jobs: Vec<_> = all().map(|job| job.0).zip(ids).collect();
        until("each job to stand where it is to stand", || self.standing(&jobs) == STANDING);
        jobs
    }

    /// All that the hub has, by their ids.
    fn jobs(&self) -> HashMap<String, Value> {
        let jobs = self.run(&["job", "ls", "--json"]).succeeded().events();
        jobs.into_iter().map(|job| (job["id"].as_str().unwrap().to_owned(), job)).collect()
    }

    fn standing(&self, jobs: &[(&str, String)]) -> Vec<String> {
        let found = self.jobs();
        jobs.iter().map(|(name, id)| format!("{name} {}", found[id]["status"].as_str().unwrap())).collect()
    }

    /// When a job's file got its name at the destination.
    fn arrived(&self, name: &str) -> (i64, i64) {
        let job = all().find(|job| job.0 == name).unwrap();
        let found = fs::metadata(self.bed.path(place(job))).unwrap();
        (found.ctime(), found.ctime_nsec())
    }
}

fn all() -> impl Iterator<Item = Job> {
    FIRST.into_iter().chain(BATCH)
}

/// A job file in one line.
fn line((name, site, to, more): Job) -> String {
    format!("{{\"source\":\"{site}:{name}/\",\"destination\":\"{to}\",{more}}}\n")
}

/// Where a job's file is to be.
fn place((name, _, to, _): Job) -> String {
    format!("root-{}{name}", to.replace(':', "/"))
}

fn serve(bed: &Bed, release: Release, name: &str, listen: &str) -> Server {
    let (root, ticket) = (format!("root-{name}"), format!("ticket-{name}"));
    for directory in [&root[..], name] {
        fs::create_dir_all(bed.path(directory)).unwrap();
    }
    let words = ["serve", "--listen", listen, "--root", &root, "--ticket-file", &ticket, "--name", name];
    bed.serve_with(release.of(&bed.command(name, &words)))
}

#[test]
fn a_hub_of_the_earlier_program_goes_on_as_the_present_one_with_each_job_once_and_in_its_order() {
    if previous().is_none() {
        return;
    }
    for endpoints in [Previous, Present] {
        let mut house = House::new(endpoints);
        // What is between places of one endpoint that is away is queued.
        let away = house.sites.pop().unwrap();
        let address = away.address.clone();
        away.stop();
        let jobs = house.hand_in();
        let before = house.jobs();
        // In order, by a signal.
        drop(house.hub.take());
        house.sites.push(serve(&house.bed, endpoints, "sitec", &address));
        house.start(Present);
        until("each job to have ended", || house.jobs().values().all(|job| job["code"].is_i64()));
        let after = house.jobs();
        assert_eq!(after.len(), jobs.len(), "{endpoints:?}: {after:?}");
        for ((name, id), job) in jobs.iter().zip(all()) {
            let (shown, files) = (&after[id], &after[id]["report"]["files"]);
            // The endpoint that was away may still have been so at a first attempt.
            let attempts_max = if job.1 == "sitec" { 2 } else { 1 };
            let is_done = shown["status"] == "succeeded" && shown["attempt"].as_u64() <= Some(attempts_max);
            assert!(is_done, "{endpoints:?}, {name}: {shown}");
            // What is done twice finds its file there the second time.
            assert_eq!((&files["ok"], &files["skipped"]), (&1.into(), &0.into()), "{name}: {shown}");
            let [from, to] = [format!("root-{}/{name}/{name}", job.1), place(job)].map(|path| house.bed.path(path));
            assert!(fs::read(from).unwrap() == fs::read(to).unwrap(), "{endpoints:?}: {name}");
        }
        for order in ORDERS {
            let times: Vec<_> = order.iter().map(|name| house.arrived(name)).collect();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{endpoints:?}: {order:?} came at {times:?}");
        }
        let had = &jobs[0].1;
        for what in ["ended", "report"] {
            assert_eq!(after[had][what], before[had][what], "{what}");
        }
        assert_eq!(house.submit(FIRST[0]), *had, "its key is known");
    }
}
