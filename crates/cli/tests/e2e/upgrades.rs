//! Endpoints of several hosts of which some run the program of an earlier commit: all of them work on one copy, and are
//! upgraded while it runs.
//!
//! As in `compatibility`: without `THALWEG_PREVIOUS_BIN` nothing is tried here, and that is said.

use crate::bed::{Bed, Ran, Server, contents, noise, until};
use crate::compatibility::Release::{self, Present, Previous};
use crate::compatibility::{PAIRS, previous};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{fs, thread};

const COPY: [&str; 4] = ["cp", "--json", "a:x/", "b:y/"];

/// The only way to a host that receives: all that is sent to it passes at a rate, until it is lifted. A contract is no
/// such thing: the earlier program lets a slice go as fast as it can for its first quarter of a second.
struct Relay {
    address: String,
    to: OnceLock<String>,
    bytes_per_second: f64,
    /// When all that has come has passed.
    due: Mutex<Instant>,
    is_lifted: AtomicBool,
}

impl Relay {
    fn start(bytes_per_second: f64) -> Arc<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (to, is_lifted) = (OnceLock::new(), AtomicBool::new(false));
        let relay = Arc::new(Relay { address, to, bytes_per_second, due: Mutex::new(Instant::now()), is_lifted });
        let this = relay.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // One that is being upgraded is not there.
                let Some(Ok(server)) = this.to.get().map(TcpStream::connect) else { continue };
                let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
                let (mut from, mut into) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Write);
                });
                let this = this.clone();
                thread::spawn(move || {
                    let _ = this.pass(&client, &server);
                    let _ = server.shutdown(Shutdown::Write);
                });
            }
        });
        relay
    }

    fn pass(&self, mut from: &TcpStream, mut into: &TcpStream) -> io::Result<()> {
        let mut block = [0; 4 << 10];
        while !self.is_lifted.load(Relaxed) {
            let read = from.read(&mut block)?;
            if read == 0 {
                return Ok(());
            }
            let due = {
                let mut due = self.due.lock().unwrap();
                *due = (*due).max(Instant::now()) + Duration::from_secs_f64(read as f64 / self.bytes_per_second);
                *due
            };
            thread::sleep(due.saturating_duration_since(Instant::now()));
            into.write_all(&block[..read])?;
        }
        io::copy(&mut from, &mut into).map(drop)
    }
}

/// An endpoint `a` whose hosts serve `from`, and `b` whose hosts serve `to`.
struct Mixed {
    bed: Bed,
    hosts: Vec<Host>,
    relays: BTreeMap<&'static str, Arc<Relay>>,
}

struct Host {
    name: &'static str,
    release: Release,
    root: &'static str,
    is_head: bool,
    server: Server,
}

impl Mixed {
    /// The first host of each is its head. Each of `b` receives at this rate.
    fn new(a: &[(&'static str, Release)], b: &[(&'static str, Release)], bytes_per_second: f64) -> Mixed {
        let mut mixed = Mixed { bed: Bed::new(), hosts: Vec::new(), relays: BTreeMap::new() };
        for (hosts, root) in [(a, "from"), (b, "to")] {
            fs::create_dir_all(mixed.bed.path(root)).unwrap();
            let head = hosts[0].0;
            for &(name, release) in hosts {
                let is_head = name == head;
                if !is_head {
                    mixed.at(head, &["host", "invite", name, "--token-file", &format!("token-{name}")]);
                }
                if root == "to" {
                    mixed.relays.insert(name, Relay::start(bytes_per_second));
                }
                let server = mixed.serve(name, release, (root, is_head), "127.0.0.1:0");
                if let Some(relay) = mixed.relays.get(name) {
                    relay.to.set(server.address.clone()).unwrap();
                }
                mixed.hosts.push(Host { name, release, root, is_head, server });
                if is_head {
                    mixed.at(head, &["host", "init"]);
                }
            }
            let is_heard = |name: &str| mixed.listed(head, name)["state"] != "invited";
            until("the hosts to be heard", || hosts.iter().all(|(name, _)| is_heard(name)));
        }
        mixed
    }

    fn serve(&self, name: &str, release: Release, (root, is_head): (&str, bool), listen: &str) -> Server {
        let (key, file) = if is_head { ("--ticket-file", "ticket") } else { ("--join", "token") };
        let file = format!("{file}-{name}");
        let args = ["serve", "--listen", listen, "--root", root, "--name", name, key, &file];
        let mut command = release.of(&self.bed.command(name, &args));
        if let Some(relay) = self.relays.get(name) {
            command.args(["--advertise", &relay.address]);
        }
        self.bed.serve_with(command)
    }

    /// A command at a host, with the program that it has.
    fn at(&self, name: &str, args: &[&str]) -> Ran {
        let host = self.hosts.iter().find(|host| host.name == name).unwrap();
        host.release.run(&self.bed, name, args).succeeded()
    }

    /// A host as its head lists it.
    fn listed(&self, head: &str, name: &str) -> Value {
        let hosts = self.at(head, &["host", "ls", "--json"]).events();
        hosts.into_iter().find(|host| host["name"] == name).unwrap()
    }

    /// Ends a host's program in order, and starts the present one in its place, with what it left.
    fn upgrade(&mut self, name: &str) {
        let at = self.hosts.iter().position(|host| host.name == name).unwrap();
        let Host { name, root, is_head, server, .. } = self.hosts.remove(at);
        let address = server.address.clone();
        server.stop();
        let server = self.serve(name, Present, (root, is_head), &address);
        self.hosts.push(Host { name, release: Present, root, is_head, server });
    }

    fn enrol(&self, client: Release) {
        for name in ["a", "b"] {
            let ticket = format!("ticket-{name}");
            client.run(&self.bed, "client", &["endpoint", "add", name, "--ticket-file", &ticket]).succeeded();
        }
    }

    /// Whether a host has received files.
    fn has_received(&self, name: &str) -> bool {
        let log = fs::read_to_string(self.bed.path(name).join("state_home/thalweg/transfers.jsonl"));
        log.unwrap_or_default().contains("\"bundle\"")
    }

    #[track_caller]
    fn assert_whole(&self, done: &Value, files: usize) {
        assert_eq!(contents(&self.bed.path("from/x")), contents(&self.bed.path("to/y")));
        // What a host brought and could not tell before it was ended is there already for whoever comes after it.
        let count = |of: &str| done["files"][of].as_u64().unwrap();
        assert_eq!((count("ok") + count("skipped"), count("failed")), (files as u64, 0), "{done}");
    }
}

fn slices(done: &Value, name: &str) -> u64 {
    let hosts = done["hosts"].as_array().unwrap();
    let host = hosts.iter().find(|host| host["name"] == name).unwrap_or_else(|| panic!("{name}: {done}"));
    host["slices"].as_u64().unwrap()
}

#[test]
fn hosts_of_two_versions_share_a_copy_whichever_heads_them_and_whichever_is_asked_for_it() {
    if previous().is_none() {
        return;
    }
    for (head, other) in PAIRS {
        let site = Mixed::new(&[("a", head), ("a2", other)], &[("b", other), ("b2", head)], 25e6);
        for at in 0..900usize {
            site.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
        }
        // What present hosts among themselves send in ranges.
        site.bed.write("from/x/large", &noise((72 << 20) + 1, 7));
        site.enrol(other);
        let done = other.run(&site.bed, "client", &COPY).succeeded().done();
        site.assert_whole(&done, 901);
        for name in ["a", "a.a2"] {
            assert!(slices(&done, name) > 0, "{head:?}, {other:?}: {done}");
        }
        until("both to have received", || site.has_received("b") && site.has_received("b2"));
    }
}

#[test]
fn hosts_are_upgraded_one_after_the_other_while_they_share_a_copy() {
    if previous().is_none() {
        return;
    }
    // So slow that all of it would take more than three minutes, and what hosts have at a time some 10 s: when they are
    // upgraded, most is left.
    let senders = [("a", Previous), ("a2", Previous), ("a3", Present)];
    let mut site = Mixed::new(&senders, &[("b", Present), ("b2", Previous)], 1.25e6);
    for at in 0..8000usize {
        site.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(64 << 10, at as u64));
    }
    site.enrol(Present);
    let mut child = site.bed.start(&COPY);
    let members = [("a", "a2"), ("b", "b2")];
    let works = |site: &Mixed, head: &str, name: &str| site.listed(head, name)["jobs"].as_u64() > Some(0);
    for (head, name) in members {
        until("it to work", || works(&site, head, name));
        site.at(head, &["host", "drain", name]);
    }
    for (head, name) in members {
        until("it to finish what it has", || site.listed(head, name)["state"] == "drained");
        site.upgrade(name);
        site.at(head, &["host", "resume", name]);
    }
    until("an upgraded host to work", || works(&site, "a", "a2"));
    assert!(child.try_wait().unwrap().is_none(), "it was over before the last host was upgraded");
    // The one that is asked who the others are, with no word to anybody.
    site.upgrade("a");
    site.relays.values().for_each(|relay| relay.is_lifted.store(true, Relaxed));
    let done = site.bed.wait(child).succeeded().done();
    site.assert_whole(&done, 8000);
    for name in ["a", "a.a2", "a.a3"] {
        assert!(slices(&done, name) > 0, "{done}");
    }
    assert!(site.has_received("b2"), "{done}");
}
