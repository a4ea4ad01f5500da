//! The processes of the sites, each of which is killed and comes back: three holders of a set, or a source, an endpoint of three hosts, and a
//! hub at a third site that knows both.
//!
//! Invariants: what is killed is killed with -9, and started again with the state that it left; every answer of the hub is kept, with what
//! happened meanwhile; a run that ends before every kill and the cut have taken place is an error.
//!
//! Not here: what is copied, and what is claimed of it (`million`).

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::context::Context;
use super::super::endpoints::{Ended, Endpoints};
use crate::error::{Error, Kind, Result};
use crate::process::{Ready, Server};

pub const HERE: &str = "here";
pub const FAR: [&str; 3] = ["far1", "far2", "far3"];
pub const OFFICE: &str = "office";
/// The link that is cut.
pub const CUT: &str = "far";
const PORT: u16 = 7740;
const ORDERED: &str = "ordered/";
const ASK_EVERY: Duration = Duration::from_millis(300);
/// Of a run that is disturbed, beside what it takes undisturbed: then it is given up.
const SLOWER_MAX: f64 = 10.0;
const LATE: Duration = Duration::from_secs(300);
/// How long the hosts of an endpoint may take to hear of one another.
const HEARD_LIMIT: Duration = Duration::from_secs(30);
const CUT_FOR: Duration = Duration::from_secs(3);
/// When the first process is killed, and how long until the next, in shares of an undisturbed run.
const KILLS: (f64, f64) = (0.25, 0.1);

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    Kill(&'static str),
    Cut,
}

/// Each process is killed once, and then the path is cut: in seconds from the beginning.
pub fn disturbances(processes: &[&'static str], undisturbed_seconds: f64) -> Vec<(f64, Event)> {
    let at = |number: usize| undisturbed_seconds * (KILLS.0 + KILLS.1 * number as f64);
    let kills = processes.iter().enumerate().map(|(number, process)| (at(number), Event::Kill(process)));
    kills.chain([(at(processes.len()), Event::Cut)]).collect()
}

pub struct Chain<'s, 'a> {
    stand: &'s Endpoints<'a>,
    cancel: &'a AtomicBool,
    raw: PathBuf,
    /// The folder of what belongs to this chain alone, with a slash; empty for what others have begun.
    folder: &'static str,
    servers: BTreeMap<&'static str, Server>,
}

impl<'s, 'a> Chain<'s, 'a> {
    fn new(context: &Context<'a>, stand: &'s Endpoints<'a>, folder: &'static str) -> Chain<'s, 'a> {
        let (cancel, raw) = (context.cancel(), context.dir.join("chain.jsonl"));
        Chain { stand, cancel, raw, folder, servers: BTreeMap::new() }
    }

    /// Endpoints that the client has enrolled with before, in the homes that they have left.
    pub fn of_holders(context: &Context<'a>, stand: &'s Endpoints<'a>) -> Result<Chain<'s, 'a>> {
        let mut chain = Chain::new(context, stand, "");
        FAR.into_iter().try_for_each(|host| chain.start(host))?;
        Ok(chain)
    }

    /// An endpoint of three hosts, the source, and the hub.
    pub fn ordered(context: &Context<'a>, stand: &'s Endpoints<'a>) -> Result<Chain<'s, 'a>> {
        let folder = stand.path(ORDERED);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let mut chain = Chain::new(context, stand, ORDERED);
        [HERE, FAR[0]].into_iter().try_for_each(|process| chain.start(process))?;
        chain.say(FAR[0], &["host", "init"])?;
        for host in [FAR[1], FAR[2]] {
            chain.say(FAR[0], &["host", "invite", host, "--token-file", &chain.named("token", host)])?;
            chain.start(host)?;
        }
        chain.await_hosts()?;
        chain.start(OFFICE)?;
        for (name, host) in [(HERE, HERE), ("far", FAR[0])] {
            chain.say(OFFICE, &["endpoint", "add", name, "--ticket-file", &chain.named("ticket", host), "--hub"])?;
        }
        Ok(chain)
    }

    fn await_hosts(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let said = self.say(FAR[0], &["host", "ls", "--json"])?;
            let hosts = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            if hosts.filter(|host| host["state"] == "head" || host["state"] == "active").count() == FAR.len() {
                return Ok(());
            }
            if began.elapsed() > HEARD_LIMIT {
                return Err(Error::new(Kind::Failed, "wait for", "the hosts of the endpoint", said));
            }
            thread::sleep(ASK_EVERY);
        }
    }

    fn start(&mut self, process: &'static str) -> Result<()> {
        let [ticket, token, hub] = ["ticket", "token", "state"].map(|what| self.named(what, process));
        let (listen, root) = (format!("0.0.0.0:{PORT}"), if process == HERE { "from" } else { "root" });
        let serve = ["serve", "--listen", &listen, "--name", process, "--root", root];
        let is_further = !self.folder.is_empty() && FAR[1..].contains(&process);
        let words = match process {
            OFFICE => vec!["hub", "--state-dir", &hub],
            _ if is_further => [&serve[..], &["--join", &token]].concat(),
            _ => [&serve[..], &["--ticket-file", &ticket]].concat(),
        };
        let ticket = self.stand.path(&ticket);
        // A ticket that is there says nothing of a second start.
        let ready = match process {
            OFFICE => Ready::Says("ready"),
            _ if is_further || ticket.exists() => Ready::Listens(PORT),
            _ => Ready::Exists(ticket),
        };
        let mut command = self.stand.command(process, &self.named("home", process), &words)?;
        let log = self.stand.path(&self.named("log", process));
        let server = Server::start(&mut command, &ready, &log, self.cancel);
        let server = server.map_err(|error| Error { subject: process.to_owned(), ..error })?;
        self.servers.insert(process, server);
        Ok(())
    }

    /// Below the folder of the stand, where all processes begin.
    fn named(&self, what: &str, process: &str) -> String {
        format!("{}{what}-{process}", self.folder)
    }

    /// What a command says that is given at a host, to the process there.
    fn say(&self, host: &str, words: &[&str]) -> Result<String> {
        let subject = words.join(" ");
        let mut command = self.stand.command(host, &self.named("home", host), words)?;
        let ran = command.output().map_err(Error::io("run", &subject))?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
        }
        Err(Error::new(Kind::Failed, "run", subject, String::from_utf8_lossy(&ran.stderr).trim()))
    }

    fn happen(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Kill(process) => {
                self.servers.remove(process).into_iter().for_each(Server::kill);
                self.start(process)
            }
            Event::Cut => {
                self.stand.cut(CUT, true)?;
                thread::sleep(CUT_FOR);
                self.stand.cut(CUT, false)
            }
        }
    }

    /// A copy by the client, which is killed itself first; then the same command again, while everything happens that is to.
    pub fn copy(&mut self, args: &[&str], events: Vec<(f64, Event)>, undisturbed_seconds: f64) -> Result<Ended> {
        let began = Instant::now();
        let words = [&["cp", "--json"], args].concat();
        let mut command = self.stand.command(HERE, "home-client", &words)?;
        let first = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut first = first.map_err(Error::io("run", "cp"))?;
        self.stand.pass(Duration::from_secs_f64(undisturbed_seconds * KILLS.0));
        if let Some(status) = first.try_wait().map_err(Error::io("wait for", "cp"))? {
            let said = format!("it was over before it was killed: {status}");
            return Err(Error::new(Kind::Failed, "disturb", "cp", said));
        }
        let _ = first.kill();
        first.wait().map_err(Error::io("wait for", "cp"))?;
        let killed_seconds = began.elapsed().as_secs_f64();
        let (again, mut running) = (Instant::now(), self.stand.start(args)?);
        running.limit = limit(undisturbed_seconds);
        let mut happened = Vec::new();
        for (at, event) in events {
            self.stand.pass(Duration::from_secs_f64(at).saturating_sub(again.elapsed()));
            happened.push((again.elapsed().as_secs_f64(), event));
            self.happen(event)?;
        }
        let ended = self.stand.end(running, "from three replicas, disturbed")?;
        let took = own_seconds(&ended.event)?;
        none_after(happened.into_iter().filter(|(at, _)| *at > took))?;
        Ok(Ended { seconds: killed_seconds + ended.seconds, ..ended })
    }

    /// A job at the hub, until it has ended; what is due happens meanwhile. How long it took, and how it stands then.
    pub fn order(&mut self, run: &str, events: Vec<(f64, Event)>, undisturbed_seconds: f64) -> Result<(f64, Value)> {
        let file = self.stand.path("job.json");
        let job = json!({"source": format!("{HERE}:set/"), "destination": "far:set/", "options": {"fsync": "never"}});
        fs::write(&file, job.to_string()).map_err(Error::io("write", &file))?;
        let (began, mut events) = (Instant::now(), events.into_iter().peekable());
        let said = self.say(OFFICE, &["submit", &file.display().to_string()])?;
        let id = said.split_whitespace().last().unwrap_or_default().to_owned();
        loop {
            // A hub that was killed is back at the next look.
            let asked = self.say(OFFICE, &["job", "show", "--json", &id]);
            let job: Value = asked.ok().and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_default();
            let at = began.elapsed();
            self.keep(&json!({"run": run, "at": at.as_secs_f64(), "job": job}))?;
            if job["code"].is_i64() && job["ended"].is_string() {
                none_after(events)?;
                return Ok((at.as_secs_f64(), job));
            }
            if self.cancel.load(Relaxed) {
                return Err(Error::cancelled("order", run));
            }
            if at > limit(undisturbed_seconds) {
                return Err(Error::new(Kind::Failed, "order", run, format!("it is not over in time: {job}")));
            }
            if let Some((_, event)) = events.next_if(|(at, _)| *at <= began.elapsed().as_secs_f64()) {
                self.keep(&json!({"run": run, "at": began.elapsed().as_secs_f64(), "happens": format!("{event:?}")}))?;
                self.happen(event)?;
            }
            thread::sleep(ASK_EVERY);
        }
    }

    fn keep(&self, line: &Value) -> Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(&self.raw);
        let mut file = file.map_err(Error::io("open", &self.raw))?;
        writeln!(file, "{line}").map_err(Error::io("write", &self.raw))
    }
}

fn limit(undisturbed_seconds: f64) -> Duration {
    LATE + Duration::from_secs_f64(SLOWER_MAX * undisturbed_seconds)
}

/// What a copy says that it took itself, in its last event.
fn own_seconds(event: &str) -> Result<f64> {
    let done: Value = serde_json::from_str(event).unwrap_or_default();
    let said = || format!("it has no seconds: {event}");
    done["seconds"].as_f64().ok_or_else(|| Error::new(Kind::Failed, "read", "the last event of cp", said()))
}

/// That nothing was to happen after a run was over: otherwise it was not disturbed as it is called.
fn none_after(mut events: impl Iterator<Item = (f64, Event)>) -> Result<()> {
    let Some((at, event)) = events.next() else { return Ok(()) };
    let said = format!("the run was over before {event:?}, {at:.1} s from its beginning; take more files (--size)");
    Err(Error::new(Kind::Failed, "disturb", "the run", said))
}

/// Of the hub's answers for one run: how often a running job said nothing of what limits it or is waited for, twice in a row, of how many, and
/// how often it was told to be less far than before.
pub fn told(raw: &str, run: &str) -> [usize; 3] {
    let lines = raw.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let (mut mute, mut all, mut fell, mut before, mut was_mute) = (0, 0, 0, 0, false);
    for line in lines.filter(|line| line["run"] == run && line["job"].is_object()) {
        let job = &line["job"];
        let reached = job["bytes_reached"].as_u64().unwrap_or(0);
        fell += usize::from(reached < before);
        before = reached;
        if job["status"] == "running" {
            all += 1;
            let is_mute = job["bottleneck"].as_str().unwrap_or_default().is_empty();
            mute += usize::from(is_mute && was_mute);
            was_mute = is_mute;
        }
    }
    [mute, all, fell]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_is_killed_before_the_path_is_cut_and_all_of_it_in_the_middle_of_a_run() {
        let events = disturbances(&["a", "b"], 100.0);
        let [(first, one), (_, other), (last, cut)] = events[..] else { panic!("{events:?}") };
        assert_eq!([one, other, cut], [Event::Kill("a"), Event::Kill("b"), Event::Cut]);
        assert!(first > 20.0 && last < 60.0);
        let all = disturbances(&[HERE, FAR[0], FAR[1], FAR[2], OFFICE], 100.0);
        assert!(all.iter().all(|(at, _)| (20.0..80.0).contains(at)), "{all:?}");
    }

    #[test]
    fn a_run_that_is_over_before_all_has_happened_is_no_disturbed_one() {
        let after = |took: f64| none_after(disturbances(&["a"], 100.0).into_iter().filter(move |(at, _)| *at > took));
        assert!(after(90.0).is_ok());
        assert!(after(30.0).unwrap_err().chain().contains("over before Cut"));
        assert!(after(1.0).unwrap_err().chain().contains(r#"over before Kill("a")"#));
        assert_eq!(own_seconds(r#"{"event":"done","seconds":3.5}"#).unwrap(), 3.5);
        assert!(own_seconds("").is_err());
    }

    #[test]
    fn answers_of_a_running_job_say_why_and_how_far_and_of_another_run_nothing() {
        let line = |run: &str, job: &str| format!(r#"{{"run":"{run}","job":{job}}}"#);
        let raw = [
            line("a", r#"{"status":"queued"}"#),
            line("a", r#"{"status":"running","bottleneck":"limited by memory","bytes_reached":9}"#),
            line("a", r#"{"status":"running","bytes_reached":8}"#),
            line("a", r#"{"status":"running","bytes_reached":8}"#),
            line("a", "null"),
            line("b", r#"{"status":"running"}"#),
        ];
        assert_eq!([told(&raw.join("\n"), "a"), told(&raw.join("\n"), "c")], [[1, 3, 1], [0, 0, 0]]);
    }
}
