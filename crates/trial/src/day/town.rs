//! Three hosts of a laboratory: two endpoints that are far from each other, and the hub; what they suffer, and what they become.
//!
//! Invariants: a process that was killed or stopped is started again with the state that it left; one that exits unasked ends the trial.
//! Not here: what a process may hold (`held`).

use super::held::{Held, Lives};
use super::narrow::Narrow;
use super::programs::Programs;
use super::work::{USERS, Work};
use crate::outside::ground::{at, thalweg};
use crate::outside::process::{Running, output_of};
use anyhow::{Context, Result, bail, ensure};
use lab::Lab;
use lab::scenario::{Change, Scenario};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something stands still, or a path is cut.
const PAUSE: Duration = Duration::from_secs(3);
const FULL: Duration = Duration::from_secs(15);
const AWAY: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long the hub may be away for those who hand in.
const AWAY_LIMIT: Duration = Duration::from_secs(60);
/// Nothing has run for so long: sessions that have nothing to do have ended.
pub const REST: Duration = Duration::from_secs(30);
/// And for how long after it is looked what is held.
const LAST_LOOKS: Duration = Duration::from_secs(5);
const LINK: &str = "to-siteb";
const PORT: u16 = 7740;
const HUB_PORT: u16 = 7741;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    SiteA,
    SiteB,
    Hub,
}

pub const ROLES: [Role; 3] = [Role::SiteA, Role::SiteB, Role::Hub];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::SiteA => "sitea",
            Role::SiteB => "siteb",
            Role::Hub => "hub",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Kill(Role),
    Terminate(Role),
    Stand(Role),
    Cut,
    Lossy,
    /// The second endpoint, to which most goes.
    Away,
    /// Its storage.
    Full,
}

/// What is drawn from.
pub const FAULTS: [Fault; 11] = [
    Fault::Kill(Role::SiteA),
    Fault::Kill(Role::SiteB),
    Fault::Kill(Role::Hub),
    Fault::Terminate(Role::SiteA),
    Fault::Terminate(Role::SiteB),
    Fault::Terminate(Role::Hub),
    Fault::Stand(Role::SiteA),
    Fault::Stand(Role::SiteB),
    Fault::Stand(Role::Hub),
    Fault::Cut,
    Fault::Lossy,
];

impl Fault {
    /// The class of its trials and its number in the table of faults; a stop of seconds has none.
    pub fn class(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Fault::Kill(_) => ("day, kill -9", &["F087"]),
            Fault::Terminate(_) => ("day, SIGTERM", &["F094"]),
            Fault::Stand(_) => ("day, SIGSTOP for 3 s", &[]),
            Fault::Cut => ("day, the path cut for 3 s", &["F100"]),
            Fault::Lossy => ("day, one packet in a hundred lost for 3 s", &["F098"]),
            Fault::Away => ("day, an endpoint away for a minute", &["F102"]),
            Fault::Full => ("day, a destination full for 15 s", &["F070"]),
        }
    }
}

pub struct Town {
    running: BTreeMap<Role, Running>,
    lives: BTreeMap<Role, Lives>,
    /// Until when the second endpoint is away.
    away_until: Option<Instant>,
    programs: Programs,
    /// What is started now.
    program: PathBuf,
    dir: PathBuf,
    pin: String,
    starts: u32,
    /// Of the second site.
    storage: Narrow,
    lab: Lab,
}

impl Town {
    /// Room for `bytes` in the storage that can be made full.
    pub fn build(programs: Programs, dir: &Path, bits_per_second: u64, bytes: u64, seed: u64) -> Result<Town> {
        let mut text = String::new();
        for role in ROLES {
            let name = role.name();
            text.push_str(&format!(
                "[site.{name}]\n[link.to-{name}]\nbetween = [\"{name}\", \"core\"]\nrtt = \"10ms\"\n"
            ));
            text.push_str(&format!("rate = \"{}kbit\"\nqueue = \"1bdp\"\n", bits_per_second / 1000));
        }
        let scenario = Scenario { name: "day".into(), seed, ..Scenario::from_toml(&text)? };
        let (running, lives, pin) = (BTreeMap::new(), BTreeMap::new(), String::new());
        let (program, dir) = (programs.first.path.clone(), dir.to_owned());
        for role in [Role::SiteA, Role::SiteB] {
            fs::create_dir_all(dir.join(root_of(role.name()))).context("create a root")?;
        }
        let lab = Lab::up(scenario)?;
        // After the hosts, which its processes have to see.
        let storage = Narrow::mount(&dir, &dir.join(root_of(Role::SiteB.name())), bytes)?;
        let away_until = None;
        let mut town = Town { running, lives, away_until, programs, program, dir, pin, starts: 0, storage, lab };
        ROLES.into_iter().try_for_each(|role| town.start(role))?;
        for role in [Role::SiteA, Role::SiteB] {
            let ticket = town.ticket(role).display().to_string();
            town.at_hub(&["endpoint", "add", role.name(), "--ticket-file", &ticket, "--hub"])?;
        }
        for user in USERS {
            let file = town.dir.join(user).display().to_string();
            let scopes = ["--scopes", "read,submit,steer", "--expires", "1d", "--token-file", &file];
            town.at_hub(&[&["token", "new", user][..], &scopes].concat())?;
            for site in [Role::SiteA, Role::SiteB] {
                let rule = format!("allow token:{user} read,write,delete {}:", site.name());
                town.at_hub(&["rule", "add", &rule])?;
            }
        }
        Ok(town)
    }

    fn ticket(&self, role: Role) -> PathBuf {
        self.dir.join(format!("ticket-{}", role.name()))
    }

    /// What the program says at the host of the hub, to whoever runs that.
    fn at_hub(&self, words: &[&str]) -> Result<String> {
        output_of(at(&self.lab, Role::Hub.name(), &thalweg(&self.program, &self.dir, "home-hub", words))?)
    }

    fn command(&self, role: Role) -> Result<Command> {
        let (name, home) = (role.name(), format!("home-{}", role.name()));
        let address = self.lab.address_v4(name)?;
        let mut words: Vec<String> = if role == Role::Hub {
            vec![
                "hub".into(),
                "--state-dir".into(),
                "hub-state".into(),
                "--listen".into(),
                format!("{address}:{HUB_PORT}"),
            ]
        } else {
            let ticket = self.ticket(role).display().to_string();
            let root = self.dir.join(root_of(name)).display().to_string();
            ["serve", "--root", &root, "--ticket-file", &ticket, "--name", name].map(str::to_owned).into()
        };
        if role != Role::Hub {
            let at = ["--listen".to_owned(), format!("0.0.0.0:{PORT}"), "--advertise".to_owned(), address.to_string()];
            words.extend(at);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let command = at(&self.lab, name, &thalweg(&self.program, &self.dir, &home, &words))?;
        Ok(if role == Role::SiteB { self.storage.wrap(&command) } else { command })
    }

    /// Where an endpoint has its files, as they can be reached from here.
    pub fn root(&self, site: &str) -> PathBuf {
        if site == Role::SiteB.name() { self.storage.seen() } else { self.dir.join(root_of(site)) }
    }

    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    fn start(&mut self, role: Role) -> Result<()> {
        self.starts += 1;
        let name = format!("{}-{}", role.name(), self.starts);
        let last = if role == Role::Hub { "certificate" } else { "ready on " };
        let running = Running::start(self.command(role)?, &self.dir, &name)?;
        let running =
            running.await_ready(|running| running.said().0.contains(last) && running.said().0.ends_with('\n'))?;
        if let Some((_, pin)) = running.said().0.rsplit_once("certificate ") {
            self.pin = pin.trim().to_owned();
        }
        self.lives.entry(role).or_default().begin();
        self.running.insert(role, running);
        Ok(())
    }

    /// Ends it in order.
    fn terminate(&mut self, role: Role) -> Result<()> {
        let Some(mut running) = self.running.remove(&role) else { return Ok(()) };
        running.signal(Signal::TERM);
        match running.finish(Instant::now() + STOP_LIMIT, || {}) {
            Some(ended) if matches!(ended.code, Some(0 | 143)) => Ok(()),
            Some(ended) => bail!("{} ended with {:?}: {}", role.name(), ended.code, ended.stderr.trim()),
            None => bail!("hang: {} did not end when it was told to", role.name()),
        }
    }

    pub fn suffer(&mut self, fault: Fault) -> Result<()> {
        let for_a_while = |on: &dyn Fn(bool) -> Result<()>| {
            on(true)?;
            // The pause is the fault.
            std::thread::sleep(PAUSE);
            on(false)
        };
        let link = |change: Change| Ok(self.lab.set(LINK, &[(None, change)])?);
        match fault {
            Fault::Kill(role) => {
                self.running.remove(&role);
                self.start(role)
            }
            Fault::Terminate(role) => {
                self.terminate(role)?;
                self.start(role)
            }
            Fault::Stand(role) => for_a_while(&|stands| {
                let signal = if stands { Signal::STOP } else { Signal::CONT };
                self.running.get(&role).into_iter().for_each(|running| running.signal(signal));
                Ok(())
            }),
            Fault::Away => {
                self.running.remove(&Role::SiteB);
                self.away_until = Some(Instant::now() + AWAY);
                Ok(())
            }
            // Longer than a failed job waits before it is tried again.
            Fault::Full => {
                self.storage.fill(true)?;
                std::thread::sleep(FULL);
                self.storage.fill(false)
            }
            Fault::Cut => for_a_while(&|down| link(Change { down: Some(down), ..Change::default() })),
            Fault::Lossy => {
                for_a_while(&|is| link(Change { loss: Some(if is { 0.01 } else { 0.0 }), ..Change::default() }))
            }
        }
    }

    /// Whether the second endpoint still is away. When its time is over it is started.
    pub fn stays_away(&mut self) -> Result<bool> {
        if self.away_until.take_if(|until| *until <= Instant::now()).is_some() {
            self.start(Role::SiteB)?;
        }
        Ok(self.away_until.is_some())
    }

    /// Every process, one after the other, becomes one of the last program, at a place of its own; between two of them old and new
    /// work together for a while. Lives of before are not judged.
    pub fn upgrade(&mut self) -> Result<()> {
        let next = self.dir.join("next");
        fs::create_dir_all(&next).context("create a place for the next program")?;
        let next = next.join("thalweg");
        fs::copy(&self.programs.last.path, &next).context("copy the program")?;
        self.program = next.canonicalize().context("find the next program")?;
        self.lives.clear();
        for role in ROLES {
            self.terminate(role)?;
            self.start(role)?;
            let runs = self.running.get(&role).map(|running| format!("/proc/{}/exe", running.pid()));
            let runs = runs.and_then(|link| fs::read_link(link).ok());
            ensure!(runs.as_ref() == Some(&self.program), "{} did not become another program: {runs:?}", role.name());
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// As its user hands it in, from another host and with a token; until the hub is there. Its id.
    pub fn submit(&self, work: &Work, number: usize) -> Result<String> {
        let (user, job) = work.job(number);
        let file = self.dir.join(format!("job-{number}.json"));
        fs::write(&file, job).context("write a job file")?;
        let (key, file) = (format!("day-{number}"), file.display().to_string());
        let deadline = Instant::now() + AWAY_LIMIT;
        loop {
            let mut command = thalweg(&self.program, &self.dir, "home-users", &["submit", "--key", &key, &file]);
            command.env("THALWEG_HUB_URL", format!("https://{}:{HUB_PORT}", self.lab.address_v4(Role::Hub.name())?));
            command.env("THALWEG_HUB_TOKEN_FILE", self.dir.join(user)).env("THALWEG_HUB_PIN", &self.pin);
            match output_of(at(&self.lab, Role::SiteA.name(), &command)?) {
                Ok(said) => return Ok(said.split_whitespace().last().unwrap_or_default().to_owned()),
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => std::thread::park_timeout(Duration::from_millis(200)),
            }
        }
    }

    /// All that the hub has.
    pub fn jobs(&self) -> Result<Vec<Value>> {
        let said = self.at_hub(&["job", "ls", "--json"])?;
        said.lines().map(|line| serde_json::from_str(line).context("read a job")).collect()
    }

    /// Notes what each process holds.
    pub fn sample(&mut self, is_at_rest: bool) -> Result<()> {
        for (role, running) in &mut self.running {
            let held = Held::by(running).filter(|_| !running.has_ended());
            let Some(held) = held else {
                bail!("{} exited unasked: {}", role.name(), running.said().1.trim());
            };
            self.lives.entry(*role).or_default().note(held, is_at_rest);
        }
        Ok(())
    }

    /// Goes on looking when nothing is left to do, until every process has settled and come to rest.
    pub fn rest(&mut self, settled: Duration) -> Result<()> {
        let (began, ages) = (Instant::now(), self.running.values().map(|running| running.started.elapsed()));
        let is_old = (settled * 3 / 2).saturating_sub(ages.min().unwrap_or_default());
        while began.elapsed() < REST.max(is_old) + LAST_LOOKS {
            self.sample(began.elapsed() >= REST)?;
            std::thread::park_timeout(Duration::from_millis(500));
        }
        Ok(())
    }

    pub fn lives(&self, role: Role) -> &Lives {
        &self.lives[&role]
    }

    /// Panics, in the words of all processes.
    pub fn said_wrong(&self) -> Vec<String> {
        let listing = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let errors = listing.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "err"));
        let check = |entry: fs::DirEntry| {
            let said = fs::read(entry.path()).unwrap_or_default();
            crate::job::check_words(&String::from_utf8_lossy(&said)).err()
        };
        errors.filter_map(check).collect()
    }
}

fn root_of(site: &str) -> String {
    format!("root-{site}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_that_has_a_number_is_in_the_table() {
        let table = include_str!("../faults.toml");
        let all = FAULTS.into_iter().chain([Fault::Away, Fault::Full]);
        for number in all.flat_map(|fault| fault.class().1) {
            assert!(table.contains(&format!("[\"{number}\"")), "{number}");
        }
    }
}
