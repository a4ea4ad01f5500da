//! Endpoints of several hosts that keep their records in a real etcd of three members, which lose members, stand still and are restored.

use crate::bed::{Bed, Ran, Server, contents, noise, until};
use fakes::etcd::Members;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Hosts of one endpoint that serve `to`, and a plain endpoint `src`.
pub struct Site {
    pub bed: Bed,
    pub members: Members,
    servers: Vec<(&'static str, Server)>,
}

impl Site {
    pub fn new(members: usize) -> Option<Site> {
        if !needs::program("etcd") || !needs::program("etcdctl") {
            return None;
        }
        let bed = Bed::new();
        fs::create_dir_all(bed.path("to")).unwrap();
        fs::create_dir_all(bed.path("from")).unwrap();
        let members = Members::start(bed.dir.path(), members);
        Some(Site { bed, members, servers: Vec::new() })
    }

    /// The words of a host, whose configuration names etcd.
    fn configure(&self, home: &str, more: &str) {
        let config = format!("[cluster]\nengine = 'etcd'\nurls = {:?}\n{more}", self.members.urls());
        self.bed.write(&format!("{home}/config_home/thalweg/config.toml"), config.as_bytes());
    }

    pub fn serve(&mut self, home: &'static str, more: &[&str]) {
        self.configure(home, "");
        let ticket = format!("ticket-{home}");
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", "to", "--name", home, "--ticket-file", &ticket];
        let mut command = self.bed.command(home, &args);
        command.args(more);
        let server = self.bed.serve_with(command);
        self.servers.push((home, server));
    }

    pub fn join(&mut self, at: &str, home: &'static str) {
        let token = format!("token-{home}");
        self.at(at, &["host", "invite", home, "--token-file", &token]).succeeded();
        self.serve(home, &["--join", &token]);
    }

    pub fn at(&self, home: &str, args: &[&str]) -> Ran {
        self.bed.finish(self.bed.command(home, args))
    }

    fn kill(&mut self, home: &str) {
        let at = self.servers.iter().position(|(name, _)| *name == home).unwrap();
        self.servers.remove(at).1.kill();
    }

    fn states(&self, at: &str) -> Vec<(String, String)> {
        let ran = self.at(at, &["host", "ls", "--json"]);
        let events = if ran.code == Some(0) { ran.events() } else { Vec::new() };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        events.iter().map(|host| (text(&host["name"]), text(&host["state"]))).collect()
    }

    #[track_caller]
    pub fn until_states(&self, at: &str, states: &[(&str, &str)]) {
        let wanted: Vec<_> = states.iter().map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect();
        until(&format!("{wanted:?}"), || self.states(at) == wanted);
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn names(done: &Value) -> Vec<&str> {
    done["hosts"].as_array().unwrap().iter().map(|host| host["name"].as_str().unwrap()).collect()
}

#[test]
fn an_endpoint_outlives_its_first_host_and_etcds_leader() {
    let Some(mut site) = Site::new(3) else { return };
    site.serve("h1", &[]);
    site.join("h1", "h2");
    site.join("h2", "h3");
    site.until_states("h1", &[("h1", "active"), ("h2", "active"), ("h3", "active")]);
    site.bed.run(&["endpoint", "add", "far", "--ticket-file", "ticket-h1"]).succeeded();
    // Who leads dies, one stands still, and the first host dies.
    let leader = site.members.leader();
    site.members.kill(leader);
    site.kill("h1");
    for at in 0..900usize {
        site.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
    }
    let source = site.bed.serve_with(site.bed.command(
        "src",
        &["serve", "--listen", "127.0.0.1:0", "--root", "from", "--ticket-file", "ticket-src", "--name", "src"],
    ));
    site.bed.run(&["endpoint", "add", "src", "--ticket-file", "ticket-src"]).succeeded();
    // Whom the first one let in copies through the others.
    let done = site.bed.run(&["cp", "--json", "src:x/", "far:y/"]).succeeded().done();
    assert_eq!(contents(&site.bed.path("from/x")), contents(&site.bed.path("to/y")));
    assert_eq!((&done["files"]["ok"], names(&done)), (&900.into(), vec!["src"]), "{done}");
    // A newcomer enrols with a ticket of one that is left, and is let in at all of them.
    site.at("h3", &["ticket", "new", "--read-only", "--ticket-file", "ticket-late"]).succeeded();
    let late = |args: &[&str]| site.bed.finish(site.bed.command("late", args));
    late(&["endpoint", "add", "far", "--ticket-file", "ticket-late"]).succeeded();
    assert!(late(&["ls", "far:y/"]).succeeded().stdout.starts_with(b"d0"));
    site.at("h3", &["host", "drain", "h2"]).succeeded();
    site.until_states("h3", &[("h1", "silent"), ("h2", "drained"), ("h3", "active")]);
    site.at("h2", &["host", "rm", "h1"]).succeeded();
    assert_eq!(site.states("h3").len(), 2);
    // A host that joins while the first one is dead.
    site.join("h3", "h4");
    site.until_states("h3", &[("h2", "drained"), ("h3", "active"), ("h4", "active")]);
    drop(source);
}

#[test]
fn a_copy_goes_on_while_etcd_stands_still_and_from_another_host_after_its_command_was_killed() {
    let Some(mut site) = Site::new(1) else { return };
    site.serve("h1", &[]);
    site.join("h1", "h2");
    site.until_states("h1", &[("h1", "active"), ("h2", "active")]);
    let source = site.bed.serve_with(site.bed.command(
        "src",
        &["serve", "--listen", "127.0.0.1:0", "--root", "from", "--ticket-file", "ticket-src", "--name", "src"],
    ));
    let mut contract = site.bed.command("src", &["contract", "add", "slow", "--direction", "out", "--rate", "64Mbit"]);
    assert!(contract.output().unwrap().status.success());
    for at in 0..96usize {
        site.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(1 << 20, at as u64));
    }
    for home in ["h1", "h2"] {
        site.at(home, &["endpoint", "add", "src", "--ticket-file", "ticket-src"]).succeeded();
        site.at(home, &["endpoint", "add", "far", "--ticket-file", "ticket-h1"]).succeeded();
    }
    let words = ["cp", "--json", "src:x/", "far:y/"];
    let start = |home: &str| {
        let mut command = site.bed.command(home, &words);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap()
    };
    let arrived = || published(&site.bed.path("to/y"));
    let mut killed = start("h1");
    until("something to arrive", || arrived() > 8);
    // The same command at another host, while it runs.
    let refused = site.at("h2", &words);
    assert!(refused.stderr.contains("the same command runs on h1"), "{}", refused.stderr);
    let open = site.members.ctl(&["get", "--prefix", "--keys-only", "/thalweg/"]);
    assert!(open.contains("slices.json") && open.contains("/lock"), "{open}");
    signal(site.members.pid(0), Signal::STOP);
    let before = arrived();
    until("data to go on without etcd", || arrived() > before + 16);
    signal(site.members.pid(0), Signal::CONT);
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the lock to end", || !site.members.ctl(&["get", "--prefix", "--keys-only", "/thalweg/"]).contains("/lock"));
    assert!(contract_ends(&site.bed));
    let done = site.bed.wait(start("h2")).succeeded().done();
    assert_eq!(contents(&site.bed.path("from/x")), contents(&site.bed.path("to/y")));
    assert_eq!(done["files"]["failed"], 0, "{done}");
    let left = site.members.ctl(&["get", "--prefix", "--keys-only", "/thalweg/"]);
    assert!(!left.contains("/crews/"), "{left}");
    drop(source);
}

/// Files that have been published in the directories of a tree; such that vanish meanwhile are none.
fn published(tree: &Path) -> usize {
    let listed = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    listed(tree).map(|entry| listed(&entry.path()).count()).sum()
}

fn contract_ends(bed: &Bed) -> bool {
    bed.command("src", &["contract", "rm", "slow"]).output().unwrap().status.success()
}

#[test]
fn what_cannot_be_right_is_refused_with_what_to_do() {
    let Some(site) = Site::new(1) else { return };
    let serve = |more: &str, code: i32, said: &str| {
        site.configure("h1", more);
        let ran = site.at("h1", &["serve", "--listen", "127.0.0.1:0", "--root", "to"]);
        assert_eq!((ran.code, ran.error().contains(said)), (Some(code), true), "{said}: {}", ran.stderr);
        assert!(ran.error().contains("hint: ") && !ran.stderr.contains("secret"), "{}", ran.stderr);
    };
    site.bed.write("password", b"secret\n");
    fs::set_permissions(site.bed.path("password"), fs::Permissions::from_mode(0o644)).unwrap();
    serve("user = 'site'\npassword-file = 'password'\n", 6, "can be read by others");
    fs::set_permissions(site.bed.path("password"), fs::Permissions::from_mode(0o600)).unwrap();
    serve("user = 'site'\npassword-file = 'password'\n", 6, "authentication is not enabled");
    serve("ca-file = 'none'\nuser = 'site'\npassword-file = 'nowhere'\n", 2, "there is no password in nowhere");
    let ran = site.at("h1", &["host", "ls"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    site.configure("h1", "");
    let ran = site.at("h1", &["host", "ls"]);
    assert!(ran.error().contains("start `thalweg serve` with this configuration"), "{}", ran.stderr);
    let clear = b"[cluster]\nengine = 'etcd'\nurls = ['http://192.0.2.1:2379']\n";
    site.bed.write("h1/config_home/thalweg/config.toml", clear);
    let ran = site.at("h1", &["serve", "--listen", "127.0.0.1:0", "--root", "to"]);
    assert!(ran.code == Some(2) && ran.error().contains("without TLS"), "{}", ran.stderr);
}
