//! Starts, times, limits and accounts for the processes of a race.
//!
//! Invariants:
//! - A client is started behind a gate: it waits, inside its namespace and with its output redirected, until the clock
//!   starts. The measured time holds its exec, start-up, connection and work, not the making of its surroundings.
//! - Every process is in a group of its own and is killed with it, and with descendants that left it, when its owner is dropped.
//! - A process dies with the thread that started it, even if that is killed, unless it has changed its user meanwhile; what
//!   lives in a laboratory is then removed with it, by the next one at the latest.
//! - Processor time comes from the kernel's account of the process and the children it waited for; peak memory is the
//!   largest single process of the tree, sampled every `SAMPLE_INTERVAL` (what it gains in its last interval is missed).

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::account::{Split, Stat, is_listening, tree, tree_peak_bytes};
use crate::counters::Begun;
use crate::error::{Error, Kind, Result};

const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
const SERVER_START_LIMIT: Duration = Duration::from_secs(20);
const SERVER_STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long the children of a server may outlive the client before their time is left out of the account.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How exactly the moment is known at which content was under way.
const FIRST_BYTE_INTERVAL: Duration = Duration::from_millis(1);
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// What a finished client used.
#[derive(Debug)]
pub struct Finished {
    pub seconds: f64,
    /// From the start until content was under way; none if it never was, or nobody looked.
    pub first_byte_seconds: Option<f64>,
    pub status: Option<ExitStatus>,
    /// It ran into the limit and was killed.
    pub is_killed: bool,
    pub cpu_seconds: f64,
    pub rss_bytes_max: u64,
    pub server_rss_bytes_max: u64,
    pub stdout: String,
    pub stderr: String,
}

/// A client that waits for its start.
#[derive(Debug)]
pub struct Gated {
    group: Group,
    watched: Option<Begun>,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Gated {
    /// Starts `client` up to the gate. `wrap` puts the command where it has to run, such as in a namespace.
    pub fn prepare(
        client: &Command,
        wrap: impl FnOnce(&Command) -> Result<Command>,
        output_dir: &Path,
    ) -> Result<Gated> {
        let (stdout, stderr) = (output_dir.join("client.out"), output_dir.join("client.err"));
        let mut gate = Command::new("sh");
        let script =
            r#"out=$1 err=$2; shift 2; echo ready; read -r go || exit 125; exec "$@" </dev/null >"$out" 2>"$err""#;
        gate.args(["-c", script, "sh"]).arg(&stdout).arg(&stderr).arg(client.get_program()).args(client.get_args());
        for (name, value) in client.get_envs() {
            match value {
                Some(value) => gate.env(name, value),
                None => gate.env_remove(name),
            };
        }
        let mut command = bound(&wrap(&gate)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut group = Group::spawn(&mut command)?;
        let mut line = String::new();
        let pipe = group.child.stdout.take().expect("stdout is piped");
        BufReader::new(pipe).read_line(&mut line).map_err(Error::io("start", client.get_program()))?;
        if line.trim() != "ready" {
            return Err(Error::new(Kind::Failed, "start", client.get_program().display(), "did not reach its gate"));
        }
        Ok(Gated { group, watched: None, stdout, stderr })
    }

    /// Of the process that becomes the client.
    pub fn id(&self) -> u32 {
        self.group.id()
    }

    /// Also looks, while the client runs, when its content is under way.
    pub fn watch(&mut self, counted: Begun) {
        self.watched = Some(counted);
    }

    /// Opens the gate and waits for the end, the limit or the caller's request to stop.
    pub fn run(mut self, limit: Duration, server: Option<&Server>, cancel: &AtomicBool) -> Result<Finished> {
        let pidfd = self.group.pidfd()?;
        let mut gate = self.group.child.stdin.take().expect("stdin is piped");
        let (mut rss, mut server_rss, mut is_killed) = (0, 0, false);
        let cpu_before = Stat::read(self.group.id()).map_or(0.0, |stat| stat.cpu_seconds);
        let started = Instant::now();
        // A client that is gone already closes the pipe; its status tells.
        let _ = gate.write_all(b"go\n");
        drop(gate);
        let mut first_byte_seconds = None;
        let mut sampled = started;
        loop {
            let is_awaited = self.watched.is_some() && first_byte_seconds.is_none();
            let is_over = wait_readable(&pidfd, if is_awaited { FIRST_BYTE_INTERVAL } else { SAMPLE_INTERVAL })?;
            if is_awaited && self.watched.as_ref().is_some_and(Begun::has_content_left) {
                first_byte_seconds = Some(started.elapsed().as_secs_f64());
            }
            if is_over {
                break;
            }
            // The moment of the first content is a good one to look at memory too: many runs are over before the next.
            let is_still_awaited = is_awaited && first_byte_seconds.is_none();
            if is_still_awaited && sampled.elapsed() < SAMPLE_INTERVAL && !cancel.load(Ordering::Relaxed) {
                continue;
            }
            sampled = Instant::now();
            rss = rss.max(tree_peak_bytes(self.group.id()));
            server_rss = server_rss.max(server.map_or(0, Server::peak_bytes));
            is_killed = started.elapsed() > limit;
            if is_killed || cancel.load(Ordering::Relaxed) {
                self.group.kill();
                wait_readable(&pidfd, SERVER_STOP_LIMIT)?;
                break;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        // The process is a zombie here: its account is complete and still readable.
        let _ =
            rustix::process::waitid(WaitId::PidFd(pidfd_ref(&pidfd)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let cpu_seconds = Stat::read(self.group.id()).map_or(0.0, |stat| stat.cpu_seconds - cpu_before);
        server_rss = server_rss.max(server.map_or(0, Server::peak_bytes));
        let status = self.group.child.wait().ok();
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::cancelled("run", "the race"));
        }
        let (stdout, stderr) = (read_output(&self.stdout), read_output(&self.stderr));
        let server_rss_bytes_max = server_rss;
        Ok(Finished {
            seconds,
            first_byte_seconds,
            status,
            is_killed,
            cpu_seconds,
            rss_bytes_max: rss,
            server_rss_bytes_max,
            stdout,
            stderr,
        })
    }
}

/// When a server counts as started.
#[derive(Clone, Debug)]
pub enum Ready {
    /// Something in its network namespace listens on this TCP port.
    Listens(u16),
    Exists(PathBuf),
    /// It has written a line that begins so.
    Says(&'static str),
}

/// A server in the foreground; stopped when dropped.
#[derive(Debug)]
pub struct Server {
    group: Group,
}

impl Server {
    pub fn start(command: &mut Command, ready: &Ready, log: &Path, cancel: &AtomicBool) -> Result<Server> {
        let file = File::create(log).map_err(Error::io("create", log))?;
        let copy = file.try_clone().map_err(Error::io("create", log))?;
        let mut group = Group::spawn(bound(command).stdin(Stdio::null()).stdout(file).stderr(copy))?;
        let deadline = Instant::now() + SERVER_START_LIMIT;
        let refuse = |cause: &str| {
            let said = read_output(log);
            Err(Error::new(Kind::Failed, "start server", shown_program(command), format!("{cause}: {}", said.trim())))
        };
        loop {
            let is_ready = match ready {
                Ready::Listens(port) => is_listening(group.id(), *port),
                Ready::Exists(path) => path.exists(),
                Ready::Says(word) => read_output(log).lines().any(|line| line.starts_with(word)),
            };
            if is_ready {
                return Ok(Server { group });
            }
            if group.child.try_wait().is_ok_and(|status| status.is_some()) {
                return refuse("it ended");
            }
            if Instant::now() > deadline {
                return refuse("not ready in time");
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::cancelled("start", "a server"));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Processor time of the server and all its children so far.
    pub fn cpu_seconds(&self) -> f64 {
        tree(self.group.id()).into_iter().filter_map(Stat::read).map(|stat| stat.cpu_seconds).sum()
    }

    /// The same by where it was spent.
    pub fn split(&self) -> Split {
        Split::of_tree(self.group.id())
    }

    /// Waits, for a bounded time, until only the processes that were there before a client came are left.
    pub fn settle(&self, processes: usize) {
        let deadline = Instant::now() + SETTLE_LIMIT;
        while self.processes() > processes && Instant::now() < deadline {
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// As `kill -9` does it, with what it has started.
    pub fn kill(mut self) {
        self.group.kill();
        let _ = self.group.child.wait();
    }

    /// Stands still until `resume`.
    pub fn pause(&self) {
        self.group.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.group.signal(Signal::CONT);
    }

    pub fn processes(&self) -> usize {
        tree(self.group.id()).len()
    }

    fn peak_bytes(&self) -> u64 {
        tree_peak_bytes(self.group.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked first, so that a server can end in its own way. Its sessions may be in groups of their own, and are nobody's
        // children once it has gone.
        let sessions = self.group.descendants();
        self.group.signal_leader(Signal::TERM);
        if let Ok(pidfd) = self.group.pidfd() {
            let _ = wait_readable(&pidfd, SERVER_STOP_LIMIT);
        }
        // Before the leader is waited for: until then the group's id cannot mean another group.
        self.group.signal(Signal::KILL);
        kill_all(&sessions);
    }
}

/// A process that leads a group of its own.
#[derive(Debug)]
struct Group {
    child: Child,
}

impl Group {
    fn spawn(command: &mut Command) -> Result<Group> {
        let child = command.process_group(0).spawn().map_err(Error::io("start", shown_program(command)))?;
        Ok(Group { child })
    }

    fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn pidfd(&self) -> Result<OwnedFd> {
        rustix::process::pidfd_open(self.pid(), PidfdFlags::empty()).map_err(Error::io("watch", "a process"))
    }

    fn signal(&self, signal: Signal) {
        // The child is not waited for before this is dropped, so the id cannot belong to another group.
        let _ = rustix::process::kill_process_group(self.pid(), signal);
    }

    /// With those descendants that have left the group.
    fn kill(&self) {
        let descendants = self.descendants();
        self.signal(Signal::KILL);
        kill_all(&descendants);
    }

    /// By handles, which cannot come to mean other processes.
    fn descendants(&self) -> Vec<OwnedFd> {
        let pids = tree(self.id()).into_iter().skip(1).filter_map(|pid| Pid::from_raw(pid.cast_signed()));
        pids.filter_map(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()).collect()
    }

    fn signal_leader(&self, signal: Signal) {
        let _ = rustix::process::kill_process(self.pid(), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

fn kill_all(handles: &[OwnedFd]) {
    for handle in handles {
        let _ = rustix::process::pidfd_send_signal(handle, Signal::KILL);
    }
}

/// The same command, which the kernel ends when the calling thread ends in whatever way.
fn bound(command: &Command) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    let mut bound = if Path::new(SETPRIV).exists() {
        let mut bound = Command::new(SETPRIV);
        bound.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
        bound
    } else {
        Command::new(command.get_program())
    };
    bound.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        bound.current_dir(dir);
    }
    bound
}

fn shown_program(command: &Command) -> String {
    command.get_program().display().to_string()
}

fn pidfd_ref(pidfd: &OwnedFd) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(pidfd)
}

/// A pidfd is readable when its process has ended.
fn wait_readable(pidfd: &OwnedFd, limit: Duration) -> Result<bool> {
    let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(Error::io("watch", "a process")(errno)),
    }
}

fn read_output(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(OUTPUT_BYTES_MAX)..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn run(script: &str, limit: Duration) -> Finished {
        let dir = tempfile::tempdir().unwrap();
        let mut client = Command::new("sh");
        client.args(["-c", script]);
        let gated = Gated::prepare(&client, |command| Ok(copy(command)), dir.path()).unwrap();
        gated.run(limit, None, &AtomicBool::new(false)).unwrap()
    }

    fn copy(command: &Command) -> Command {
        let mut copy = Command::new(command.get_program());
        copy.args(command.get_args());
        copy
    }

    #[test]
    fn a_client_is_timed_accounted_for_and_heard() {
        // The loop runs in a child of the client, whose time counts too.
        let finished =
            run("(i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done); echo said; echo wrong >&2; exit 3", LIMIT);
        assert_eq!(finished.status.unwrap().code(), Some(3));
        assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("said\n", "wrong\n"));
        assert!(finished.cpu_seconds > 0.0 && finished.cpu_seconds <= finished.seconds + 0.02, "{finished:?}");
    }

    #[test]
    fn a_client_that_exceeds_the_limit_is_killed_with_its_children() {
        let finished = run("sleep 1000 & echo $!; wait", Duration::from_millis(100));
        assert!(finished.is_killed);
        let child: i32 = finished.stdout.trim().parse().unwrap();
        let gone = rustix::process::pidfd_open(Pid::from_raw(child).unwrap(), PidfdFlags::empty())
            .map_or(Ok(true), |pidfd| wait_readable(&pidfd, LIMIT));
        assert!(gone.unwrap(), "process {child} outlived its parent");
    }

    #[test]
    fn a_server_that_ends_instead_of_starting_is_reported_with_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 1"]);
        let ready = Ready::Exists(dir.path().join("never"));
        let log = dir.path().join("log");
        let error = Server::start(&mut command, &ready, &log, &AtomicBool::new(false)).unwrap_err();
        assert!(error.chain().contains("it ended: no such thing"), "{}", error.chain());
    }
}
