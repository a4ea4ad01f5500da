//! Hosts of a laboratory that are two endpoints: three of them serve the source, two the destination; and a desk at
//! which copies are asked for. What a host may suffer, and how that is taken back.
//!
//! Invariant: a host that was killed is started again with the state that it left.
//!
//! Not here: when a host suffers what, and what must hold then (`super`).

use crate::job::check_words;
use crate::outside::ground::{at, thalweg};
use crate::outside::process::{Running, output_of};
use anyhow::{Context, Result, ensure};
use lab::Lab;
use lab::scenario::{Change, Scenario};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PORT: u16 = 7740;
const DESK: &str = "desk";
const HEADS: [&str; 2] = ["a", "b"];
/// What a host that sends may send; the others are not to be what a copy waits for.
const SENDS_MBIT: u64 = 100;
const OTHERS_MBIT: u64 = 1000;
/// How long a host has to be heard by its head, and how long ago that may be: clients are told of hosts that were heard
/// in the last 30 s.
const HEARD_LIMIT: Duration = Duration::from_secs(60);
const SILENT_SECONDS_MAX: u64 = 20;
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Host {
    pub name: &'static str,
    /// The host with which clients of its endpoint enrol.
    head: &'static str,
    pub is_sender: bool,
}

pub const HOSTS: [Host; 5] = [sends("a"), sends("a2"), sends("a3"), receives("b"), receives("b2")];

const fn sends(name: &'static str) -> Host {
    Host { name, head: HEADS[0], is_sender: true }
}

const fn receives(name: &'static str) -> Host {
    Host { name, head: HEADS[1], is_sender: false }
}

impl Host {
    fn root(self) -> &'static str {
        if self.is_sender { "from" } else { "to" }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Kill,
    Stop,
    Cut,
}

pub const FAULTS: [Fault; 3] = [Fault::Kill, Fault::Stop, Fault::Cut];

impl Fault {
    pub fn word(self) -> &'static str {
        match self {
            Fault::Kill => "kill -9",
            Fault::Stop => "SIGSTOP",
            Fault::Cut => "no network",
        }
    }
}

pub struct Houses {
    running: BTreeMap<&'static str, Running>,
    program: PathBuf,
    dir: PathBuf,
    starts: u32,
    /// Wrong words of programs that were told already.
    told: BTreeSet<String>,
    lab: Lab,
}

impl Houses {
    /// Both endpoints, which the desk knows. The roots are `from` and `to` in the directory.
    pub fn build(program: &Path, dir: &Path, seed: u64) -> Result<Houses> {
        let others = HOSTS.iter().map(|host| (host.name, host.is_sender)).chain([(DESK, false)]);
        let text: String = others.map(|(name, is_sender)| site(name, is_sender)).collect();
        let scenario = Scenario { name: "crew".into(), seed, ..Scenario::from_toml(&text)? };
        let (running, told) = (BTreeMap::new(), BTreeSet::new());
        let (program, dir) = (program.to_owned(), dir.to_owned());
        let mut houses = Houses { running, program, dir, starts: 0, told, lab: Lab::up(scenario)? };
        for host in HOSTS {
            let root = houses.dir.join(host.root());
            fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
            if host.name != host.head {
                houses.run_at(host.head, &["host", "invite", host.name, "--token-file", &token(host.name)])?;
            }
            houses.start(host)?;
            if host.name == host.head {
                houses.run_at(host.name, &["host", "init"])?;
            }
        }
        houses.await_all()?;
        for head in HEADS {
            houses.run_at(DESK, &["endpoint", "add", head, "--ticket-file", &ticket(head)])?;
        }
        Ok(houses)
    }

    /// Runs a short command of the product at a host, with that host's state.
    fn run_at(&self, host: &str, words: &[&str]) -> Result<String> {
        output_of(at(&self.lab, host, &thalweg(&self.program, &self.dir, &home(host), words))?)
    }

    fn start(&mut self, host: Host) -> Result<()> {
        let name = host.name;
        let (listen, address) = (format!("0.0.0.0:{PORT}"), self.lab.address_v4(name)?.to_string());
        let (key, file) = if name == host.head { ("--ticket-file", ticket(name)) } else { ("--join", token(name)) };
        let words =
            ["serve", "--root", host.root(), "--name", name, "--listen", &listen, "--advertise", &address, key, &file];
        let command = at(&self.lab, name, &thalweg(&self.program, &self.dir, &home(name), &words))?;
        self.starts += 1;
        let running = Running::start(command, &self.dir, &format!("{name}-{}", self.starts))?;
        let running = running.await_ready(|running| {
            let said = running.said().0;
            said.contains("ready on ") && said.ends_with('\n')
        })?;
        self.running.insert(name, running);
        Ok(())
    }

    /// Waits until clients are told of all hosts.
    pub fn await_all(&self) -> Result<()> {
        let deadline = Instant::now() + HEARD_LIMIT;
        let is_heard = |host: &Value| {
            let silent = host["silent_seconds"].as_u64();
            host["head"] == true || silent.is_some_and(|seconds| seconds <= SILENT_SECONDS_MAX)
        };
        for head in HEADS {
            loop {
                let said = self.run_at(head, &["host", "ls", "--json"])?;
                let hosts = said.lines().map(|line| serde_json::from_str(line).context("read a host"));
                if hosts.collect::<Result<Vec<Value>>>()?.iter().all(is_heard) {
                    break;
                }
                ensure!(Instant::now() < deadline, "{head} does not hear its hosts: {}", said.trim());
                std::thread::park_timeout(LOOK);
            }
        }
        Ok(())
    }

    /// Starts a copy of all of the source by all hosts of both endpoints.
    pub fn copy(&self, to: &str, name: &str) -> Result<Running> {
        let destination = format!("b:{to}/");
        let words = ["cp", "--json", "--hosts", "all", "--to-hosts", "all", "a:x/", &destination];
        let command = at(&self.lab, DESK, &thalweg(&self.program, &self.dir, &home(DESK), &words))?;
        Running::start(command, &self.dir, name)
    }

    pub fn disturb(&mut self, fault: Fault, host: Host) -> Result<()> {
        match fault {
            // Killed when dropped.
            Fault::Kill => drop(self.running.remove(host.name)),
            Fault::Stop => self.signal(host, Signal::STOP),
            Fault::Cut => self.cut(host, true)?,
        }
        Ok(())
    }

    /// Takes a fault back.
    pub fn mend(&mut self, fault: Fault, host: Host) -> Result<()> {
        match fault {
            Fault::Kill => self.start(host)?,
            Fault::Stop => self.signal(host, Signal::CONT),
            Fault::Cut => self.cut(host, false)?,
        }
        Ok(())
    }

    fn signal(&self, host: Host, signal: Signal) {
        self.running.get(host.name).into_iter().for_each(|running| running.signal(signal));
    }

    fn cut(&self, host: Host, is_down: bool) -> Result<()> {
        let change = Change { down: Some(is_down), ..Change::default() };
        self.lab.set(&link(host.name), &[(None, change)])?;
        Ok(())
    }

    /// Panics in the words of all programs, each told once.
    pub fn said_wrong(&mut self) -> Vec<String> {
        let listing = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let errors = listing.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "err"));
        let check = |entry: fs::DirEntry| {
            let said = fs::read(entry.path()).unwrap_or_default();
            let why = check_words(&String::from_utf8_lossy(&said)).err()?;
            Some(format!("{}: {why}", entry.file_name().display()))
        };
        let told = &mut self.told;
        errors.filter_map(check).filter(|why| told.insert(why.clone())).collect()
    }
}

/// A host in a site of its own, so that it can be cut off alone.
fn site(name: &str, is_sender: bool) -> String {
    let (link, mbit) = (link(name), if is_sender { SENDS_MBIT } else { OTHERS_MBIT });
    let ends = format!("[site.{name}]\n[link.{link}]\nbetween = [\"{name}\", \"core\"]\n");
    ends + &format!("rtt = \"4ms\"\nrate = \"{mbit}Mbit\"\nqueue = \"1bdp\"\n")
}

fn link(name: &str) -> String {
    format!("to-{name}")
}

fn home(name: &str) -> String {
    format!("home-{name}")
}

fn ticket(name: &str) -> String {
    format!("ticket-{name}")
}

fn token(name: &str) -> String {
    format!("token-{name}")
}
