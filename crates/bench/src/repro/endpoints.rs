//! Endpoints of a laboratory and a client that knows them: each in a home of its own, all in one directory.
//!
//! Not here: what they copy, and what is claimed of it (the items).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use emulator::Snapshot;
use lab::Lab;
use lab::record::reasons_since;
use lab::scenario::{Change, Scenario};
use serde_json::json;

use super::context::Context;
use crate::error::{Error, Kind, Result};
use crate::process::{Ready, Server};
use crate::workspace::{Pauses, Workspace};

/// Where every endpoint listens.
const PORT: u16 = 7740;
/// How long a command of the client may take where nobody knows better.
const LIMIT: Duration = Duration::from_secs(3600);
/// How exactly its end is known.
const LOOK: Duration = Duration::from_millis(2);
const HOMES: [&str; 5] = ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"];

pub struct Endpoints<'a> {
    pub lab: Lab,
    workspace: Workspace,
    program: PathBuf,
    cancel: &'a AtomicBool,
    servers: BTreeMap<String, Server>,
    /// The host on which commands are given.
    client: &'static str,
    /// What commands say while they run.
    events: PathBuf,
}

/// A command of the client that runs.
pub struct Running {
    /// It is killed when it takes longer.
    pub limit: Duration,
    child: Child,
    started: Instant,
    /// What the emulator had done until then.
    before: Option<Snapshot>,
    last: thread::JoinHandle<Option<String>>,
}

/// A copy that ended well.
pub struct Ended {
    pub seconds: f64,
    /// The last event.
    pub event: String,
    /// Why it says more about the emulator than about the copy, if it does.
    pub void: Vec<String>,
}

impl Ended {
    /// The end of a line of raw figures.
    pub fn raw(&self) -> String {
        format!(r#""void":{},"done":{}"#, json!(self.void), self.event)
    }

    /// What is told beside the claims that this run is a part of.
    pub fn late(&self, run: &str) -> impl Iterator<Item = String> {
        self.void.iter().map(move |reason| format!("{run}: {reason}"))
    }
}

impl<'a> Endpoints<'a> {
    /// A laboratory by its description, and room for so many bytes.
    pub fn new(
        context: &Context<'a>,
        name: &str,
        scenario: &str,
        client: &'static str,
        bytes: u64,
    ) -> Result<Endpoints<'a>> {
        let scenario = Scenario::from_toml(scenario).map_err(|e| Error::usage("the laboratory", e.to_string()))?;
        let scenario = Scenario { name: name.into(), ..scenario };
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(context.options.work_dir.as_deref(), pauses, &mut |_| ())?;
        workspace.check_space(bytes + (64 << 20))?;
        let (program, cancel, servers) = (context.options.program.clone(), context.cancel(), BTreeMap::new());
        fs::create_dir_all(&context.dir).map_err(Error::io("create", &context.dir))?;
        let events = context.dir.join("events.jsonl");
        let _ = fs::remove_file(&events);
        Ok(Endpoints { lab: Lab::up(scenario)?, workspace, program, cancel, servers, client, events })
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.workspace.path().join(below)
    }

    pub fn command(&self, host: &str, home: &str, args: &[&str]) -> Result<Command> {
        let mut command = self.lab.command(host, &self.program)?;
        let home = self.path(home);
        command.args(args).current_dir(self.workspace.path()).env("HOME", &home).env("THALWEG_CONFIG", "/dev/null");
        for name in HOMES {
            command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
        }
        Ok(command)
    }

    /// Runs a command on a host to its end.
    pub fn done(&self, host: &str, home: &str, args: &[&str]) -> Result<()> {
        let ran = self.command(host, home, args)?.output().map_err(Error::io("run", &self.program))?;
        match ran.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                Err(Error::new(Kind::Failed, "run", args.join(" "), said))
            }
        }
    }

    /// (Re)starts the endpoint of a host with that root, which keeps its identity for as long as the home is the same, and has the
    /// client know it by the host's name.
    pub fn serve(&mut self, host: &str, home: &str, root: &str, more: &[&str]) -> Result<()> {
        self.servers.remove(host);
        let (ticket, log) = (self.path(&format!("ticket-{host}")), self.path(&format!("log-{host}")));
        let _ = fs::remove_file(&ticket);
        let (listen, ticket_name) = (format!("0.0.0.0:{PORT}"), ticket.display().to_string());
        let mut args =
            vec!["serve", "--listen", &listen, "--root", root, "--ticket-file", &ticket_name, "--name", host];
        args.extend(more);
        let mut command = self.command(host, home, &args)?;
        let server = Server::start(&mut command, &Ready::Exists(ticket.clone()), &log, self.cancel)?;
        self.servers.insert(host.to_owned(), server);
        self.done(self.client, "home-client", &["endpoint", "add", host, "--ticket-file", &ticket_name, "--replace"])
    }

    pub fn kill(&mut self, host: &str) {
        self.servers.remove(host).into_iter().for_each(Server::kill);
    }

    /// Starts a server that is not ours on a host; it ends with what is returned.
    pub fn beside(&self, host: &str, server: &Command, ready: &Ready, name: &str) -> Result<Server> {
        let mut command = self.lab.exec(host, server)?;
        Server::start(&mut command, ready, &self.path(&format!("log-{name}")), self.cancel)
    }

    /// Has a link carry nothing, or carry again.
    pub fn cut(&self, link: &str, is_down: bool) -> Result<()> {
        let change = Change { down: Some(is_down), ..Change::default() };
        Ok(self.lab.set(link, &[(None, change)])?)
    }

    /// Starts a copy by the client.
    pub fn start(&self, args: &[&str]) -> Result<Running> {
        self.launch(self.command(self.client, "home-client", &[&["cp", "--json"], args].concat())?)
    }

    /// Starts a command as it is; what it says is kept with the events.
    pub fn launch(&self, mut command: Command) -> Result<Running> {
        let (before, started) = (self.lab.snapshot(), Instant::now());
        let log = fs::File::create(self.path("log-client")).map_err(Error::io("create", self.path("log-client")))?;
        let child = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = child.map_err(Error::io("run", command.get_program()))?;
        let output = child.stdout.take().expect("it is piped");
        let events = fs::OpenOptions::new().create(true).append(true).open(&self.events);
        let mut events = events.map_err(Error::io("open", &self.events))?;
        let last = thread::spawn(move || {
            let keep = |line: &String| drop(writeln!(events, "{line}"));
            BufReader::new(output).lines().map_while(std::result::Result::ok).inspect(keep).last()
        });
        Ok(Running { limit: LIMIT, child, started, before, last })
    }

    /// Lets time pass, as long as the run is wanted.
    pub fn pass(&self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.cancel.load(Relaxed) {
            thread::sleep(LOOK);
        }
    }

    /// An error if the copy failed, or took longer than it may.
    pub fn end(&self, running: Running, what: &str) -> Result<Ended> {
        let Running { limit, mut child, started, before, last } = running;
        let status = ended(&mut child, started + limit, self.cancel).map_err(Error::io("wait for", &self.program))?;
        if status.is_none() && self.cancel.load(Relaxed) {
            return Err(Error::cancelled("copy", what));
        }
        let seconds = started.elapsed().as_secs_f64();
        let void = reasons_since(&self.lab, before.as_ref());
        let event = last.join().ok().flatten().unwrap_or_default();
        if status.is_some_and(|status| status.success()) {
            return Ok(Ended { seconds, event: event.trim().to_owned(), void });
        }
        let late = status.map_or_else(|| format!("it is not over after {} s: ", limit.as_secs()), |_| String::new());
        let said = fs::read_to_string(self.path("log-client")).unwrap_or_default();
        Err(Error::new(Kind::Failed, "copy", what, format!("{late}{} {}", said.trim(), event.trim())))
    }

    /// Whether a program that is not ours finds the same names and bytes in both.
    pub fn are_same(&self, one: &str, other: &str) -> Result<bool> {
        let mut command = Command::new("diff");
        command.args(["-rq", "--no-dereference"]).args([self.path(one), self.path(other)]).stdout(Stdio::null());
        command.status().map(|status| status.success()).map_err(Error::io("run", "diff"))
    }
}

/// Waits for a process. None: it was killed at the deadline, or since nobody wants it any more.
fn ended(child: &mut Child, deadline: Instant, cancel: &AtomicBool) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline || cancel.load(Relaxed) {
            child.kill()?;
            return child.wait().map(|_| None);
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_or_is_not_wanted_any_more_is_killed() {
        let run = |script: &str, limit: Duration, is_cancelled: bool| {
            let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let status = ended(&mut child, Instant::now() + limit, &AtomicBool::new(is_cancelled)).unwrap();
            status.map(|status| status.code())
        };
        assert_eq!(run("exit 3", LIMIT, false), Some(Some(3)));
        assert_eq!(run("exec sleep 1000", Duration::from_millis(50), false), None);
        assert_eq!(run("exec sleep 1000", LIMIT, true), None);
    }

    #[test]
    fn why_the_laboratory_was_late_is_in_the_raw_line_and_beside_the_claims() {
        let mut ended = Ended { seconds: 1.0, event: r#"{"event":"done"}"#.into(), void: Vec::new() };
        let read = |ended: &Ended| serde_json::from_str::<serde_json::Value>(&format!("{{{}}}", ended.raw())).unwrap();
        assert_eq!(read(&ended), json!({"void": [], "done": {"event": "done"}}));
        assert_eq!(ended.late("all").count(), 0);
        ended.void.push("packets were late by \"5 ms\"".into());
        assert_eq!(read(&ended)["void"][0], ended.void[0].as_str());
        assert_eq!(ended.late("all").collect::<Vec<_>>(), ["all: packets were late by \"5 ms\""]);
    }
}
