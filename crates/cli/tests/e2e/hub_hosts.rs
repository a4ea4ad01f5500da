//! A hub's jobs between endpoints of several hosts: all of them work, and the job goes on whoever of them ends.

use crate::bed::{Bed, Ran, Server, contents, noise, staged, until};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Child;

/// A source of three hosts and a destination of two, which a hub knows as `a` and `b`.
struct Sites {
    bed: Bed,
    servers: Vec<(&'static str, Server)>,
    hub: Option<Child>,
    rate: &'static str,
}

impl Sites {
    /// Each host at the source sends with `rate`, until it is lifted.
    fn of_rate(rate: &'static str) -> Sites {
        let mut sites = Sites { bed: Bed::new(), servers: Vec::new(), hub: None, rate };
        for (head, root, more) in [("a", "from", &["a2", "a3"][..]), ("b", "to", &["b2"])] {
            fs::create_dir_all(sites.bed.path(root)).unwrap();
            sites.serve(head, root, &["--ticket-file", &format!("ticket-{head}")]);
            sites.at(head, &["host", "init"]);
            for name in more {
                let token = format!("token-{name}");
                sites.at(head, &["host", "invite", name, "--token-file", &token]);
                sites.serve(name, root, &["--join", &token]);
            }
            until("the hosts to be heard", || sites.hosts(head).iter().all(|host| host["state"] != "invited"));
        }
        sites.start();
        for head in ["a", "b"] {
            let ticket = format!("ticket-{head}");
            sites.bed.run(&["endpoint", "add", head, "--ticket-file", &ticket, "--hub"]).succeeded();
        }
        sites
    }

    fn serve(&mut self, home: &'static str, root: &str, more: &[&str]) {
        if root == "from" {
            self.at(home, &["contract", "add", "slow", "--direction", "out", "--rate", self.rate]);
        }
        let mut command = self.bed.command(home, &["serve", "--listen", "127.0.0.1:0", "--root", root, "--name", home]);
        command.args(more);
        let server = self.bed.serve_with(command);
        self.servers.push((home, server));
    }

    fn at(&self, home: &str, args: &[&str]) -> Ran {
        self.bed.finish(self.bed.command(home, args)).succeeded()
    }

    /// What the rate was for has happened: these hosts send the rest as fast as they can.
    fn lift_rate(&self, homes: &[&str]) {
        for home in homes {
            self.at(home, &["contract", "rm", "slow"]);
        }
    }

    fn hosts(&self, head: &str) -> Vec<Value> {
        self.at(head, &["host", "ls", "--json"]).events()
    }

    fn start(&mut self) {
        self.hub = Some(self.bed.start(&["hub", "--state-dir", "hub-state"]));
        until("the hub to answer", || self.bed.run(&["queue"]).code == Some(0));
    }

    fn kill_hub(&mut self) {
        let mut hub = self.hub.take().unwrap();
        hub.kill().unwrap();
        hub.wait().unwrap();
    }

    #[track_caller]
    fn submitted(&self, job: &str) -> String {
        self.bed.write("job.toml", job.as_bytes());
        let ran = self.bed.run(&["submit", "job.toml"]).succeeded();
        String::from_utf8(ran.stdout).unwrap().split_whitespace().last().unwrap().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        self.bed.run(&["job", "show", "--json", id]).succeeded().events().pop().unwrap()
    }

    /// To its end, and what is known of it then.
    #[track_caller]
    fn done(&self, job: &str) -> Value {
        let id = self.submitted(job);
        self.bed.run(&["job", "watch", &id]).succeeded();
        self.job(&id)
    }

    fn large_files(&self, count: u64) {
        (0..count).for_each(|at| _ = self.bed.write(&format!("from/x/{at}"), &noise(8 << 20, 7000 + at)));
    }

    fn until_it_moves(&self) {
        until("something to arrive", || staged(&self.bed.path("to")).iter().any(|(_, bytes)| *bytes > 0));
    }

    /// What the hub knows of parts of a job.
    fn parts(&self, id: &str) -> PathBuf {
        self.bed.path("hub-state/crews").join(id)
    }

    #[track_caller]
    fn assert_whole(&self, to: &str) {
        assert_eq!(contents(&self.bed.path("from/x")), contents(&self.bed.path("to").join(to)));
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        if let Some(mut hub) = self.hub.take() {
            let _ = hub.kill();
            let _ = hub.wait();
        }
    }
}

fn job(source: &str, destination: &str) -> String {
    format!("source = \"a:{source}\"\ndestination = \"b:{destination}\"\n")
}

fn hosts(job: &Value) -> &[Value] {
    job["report"]["hosts"].as_array().map_or(&[][..], Vec::as_slice)
}

fn names(job: &Value) -> Vec<&str> {
    hosts(job).iter().map(|host| host["name"].as_str().unwrap()).collect()
}

#[test]
fn all_hosts_work_on_a_hubs_job_and_one_does_what_several_cannot() {
    let sites = Sites::of_rate("1Gbit");
    for at in 0..1200usize {
        sites.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
    }
    let done = sites.done(&job("x/", "y/"));
    sites.assert_whole("y");
    assert_eq!(names(&done), ["a", "a.a2", "a.a3"], "{done}");
    let sum = |key: &str| hosts(&done).iter().map(|host| host[key].as_u64().unwrap()).sum::<u64>();
    assert!(hosts(&done).iter().filter(|host| host["slices"].as_u64() > Some(0)).count() > 1, "{done}");
    assert_eq!((done["files"]["ok"].as_u64(), sum("files"), sum("lost")), (Some(1200), 1200, 0), "{done}");
    assert_eq!((&done["report"]["bytes"], &done["attempt"]), (&sum("bytes").into(), &1.into()), "{done}");
    // A person reads what each host did.
    let id = sites.submitted(&job("x/", "z/"));
    let watched = sites.bed.run(&["job", "watch", &id]).succeeded();
    assert!(watched.stderr.contains("copied 1,200 files") && watched.stderr.contains("a.a2: "), "{}", watched.stderr);
    sites.assert_whole("z");
    // What is small, goes below the destination under its own name, makes room for others, has a rate, or is no copy.
    let is_low = format!("{}class = \"low\"\n", job("x/", "l/"));
    let with_rate = format!("{}rate = \"1G\"\n", job("x/", "r/"));
    let is_sync = format!("{}kind = \"sync\"\n", job("x/", "s/"));
    for text in [job("x/d0/", "small/"), job("x/d0/f0", "f0"), job("x", "n"), is_low, with_rate, is_sync] {
        let done = sites.done(&text);
        assert!(names(&done).is_empty() && done["status"] == "succeeded", "{text}: {done}");
    }
    ["n/x", "l", "r", "s"].iter().for_each(|to| sites.assert_whole(to));
    // A drained host gets nothing.
    sites.at("a", &["host", "drain", "a2"]);
    assert_eq!(names(&sites.done(&job("x/", "w/"))), ["a", "a.a3"]);
    sites.assert_whole("w");
    assert_eq!(fs::read_dir(sites.bed.path("hub-state/crews")).unwrap().count(), 0, "nothing is open of any job");
}

/// The orders that an endpoint has written down.
fn orders(sites: &Sites, name: &str) -> usize {
    let (mut found, mut open) = (0, vec![sites.bed.path(name)]);
    while let Some(directory) = open.pop() {
        for path in fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            found += usize::from(directory.ends_with("orders"));
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn what_a_killed_host_had_of_a_hubs_job_is_taken_over() {
    let mut sites = Sites::of_rate("40Mbit");
    sites.large_files(24);
    let id = sites.submitted(&job("x/", "y/"));
    until("an order at a2", || orders(&sites, "a2") > 0);
    sites.servers.iter_mut().find(|(name, _)| *name == "a2").unwrap().1.kill();
    sites.lift_rate(&["a", "a3"]);
    sites.bed.run(&["job", "watch", &id]).succeeded();
    sites.assert_whole("y");
    let done = sites.job(&id);
    let lost = hosts(&done).iter().find(|host| host["name"] == "a.a2").and_then(|host| host["lost"].as_u64());
    assert!(lost > Some(0) && done["attempt"] == 1, "{done}");
}

#[test]
fn a_killed_hub_goes_on_with_what_several_hosts_were_at() {
    let mut sites = Sites::of_rate("40Mbit");
    sites.large_files(24);
    let id = sites.submitted(&job("x/", "y/"));
    sites.until_it_moves();
    sites.kill_hub();
    assert!(sites.parts(&id).join("slices.json").exists());
    sites.start();
    sites.lift_rate(&["a", "a2", "a3"]);
    sites.bed.run(&["job", "watch", &id]).succeeded();
    sites.assert_whole("y");
    let done = sites.job(&id);
    assert!(names(&done).len() == 3 && done["attempt"] == 2, "{done}");
    assert!(!sites.parts(&id).exists());
}

#[test]
fn a_job_on_several_hosts_is_paused_and_goes_on_at_one_where_it_is_given_a_rate() {
    let sites = Sites::of_rate("80Mbit");
    sites.large_files(12);
    let id = sites.submitted(&job("x/", "y/"));
    sites.until_it_moves();
    sites.bed.run(&["job", "pause", &id]).succeeded();
    until("the pause", || sites.job(&id)["status"] == "paused");
    assert!(sites.parts(&id).join("slices.json").exists(), "what was open is taken over when it goes on");
    sites.bed.run(&["job", "resume", &id]).succeeded();
    until("it to run again", || sites.job(&id)["status"] == "running");
    // Each would have the rate for itself.
    sites.bed.run(&["job", "rate", &id, "1G"]).succeeded();
    until("it to be begun anew", || sites.job(&id)["attempt"] == 3);
    sites.lift_rate(&["a", "a2", "a3"]);
    sites.bed.run(&["job", "watch", &id]).succeeded();
    sites.assert_whole("y");
    let done = sites.job(&id);
    assert!(names(&done).is_empty() && done["attempt"] == 3, "{done}");
    assert!(!sites.parts(&id).exists(), "whoever did it alone took over what was open");
}
