//! A program under trial: started, perhaps stopped at its calls, signalled, and waited for with a deadline.
//!
//! Invariant: nothing started here outlives this process, however that ends. A program is signalled through a descriptor
//! of its process, never by a number that may belong to another one meanwhile.

use crate::calls::{Areas, Seen};
use crate::sys::{self, Answer};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often a file that a program is to write is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Which calls to stop at, and what to do there.
pub struct Tracing {
    pub numbers: Vec<i64>,
    pub areas: Areas,
    pub each: Box<dyn FnMut(&Seen) -> Answer + Send>,
}

pub struct Process {
    pub id: u32,
    handle: OwnedFd,
    ended: Receiver<io::Result<ExitStatus>>,
    pub output: PathBuf,
    pub errors: PathBuf,
}

/// What a program left.
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub output: String,
    pub errors: String,
}

impl Process {
    /// Starts a program; what it says goes to `NAME.out` and `NAME.err` in `dir`.
    pub fn start(mut command: Command, dir: &Path, name: &str, tracing: Option<Tracing>) -> Result<Process> {
        let (output, errors) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let create = |path: &Path| File::create(path).with_context(|| format!("make {}", path.display()));
        command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        let (tell_started, started) = channel();
        let (tell_ended, ended) = channel();
        let run = move || {
            let status = match tracing {
                Some(tracing) => run_traced(command, tracing, &tell_started),
                None => run_alone(command, &tell_started),
            };
            // The channel is gone when nobody waits any more.
            let _ = tell_ended.send(status.map(ExitStatus::from_raw));
        };
        std::thread::Builder::new().name(format!("runs {name}")).spawn(run).context("start a thread")?;
        match started.recv() {
            Ok(started) => {
                let (id, handle) = started.with_context(|| format!("start {name}"))?;
                Ok(Process { id, handle, ended, output, errors })
            }
            Err(_) => {
                let why = ended.recv().ok().and_then(Result::err);
                bail!("start {name}: {}", why.map_or("no reason is known".to_owned(), |e| e.to_string()))
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        // One that has ended cannot be signalled, and needs not.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits for its end; `None` when it outlasts the patience, after which it is killed.
    pub fn wait(self, patience: Duration) -> Result<Option<Ended>> {
        let status = match self.ended.recv_timeout(patience) {
            Ok(status) => status.context("wait for a program")?,
            Err(RecvTimeoutError::Timeout) => {
                self.signal(Signal::KILL);
                let _ = self.ended.recv_timeout(patience);
                return Ok(None);
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the thread of a program ended without a word"),
        };
        let read = |path: &Path| Ok::<_, io::Error>(String::from_utf8_lossy(&std::fs::read(path)?).into_owned());
        let (output, errors) = (read(&self.output)?, read(&self.errors)?);
        Ok(Some(Ended { code: status.code(), signal: status.signal(), output, errors }))
    }

    /// Waits until the program has printed a line; `None` when it ended first or took too long.
    pub fn first_line(&self, patience: Duration) -> Option<String> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let is_over = self.has_ended();
            let text = std::fs::read_to_string(&self.output).unwrap_or_default();
            match text.split_once('\n') {
                Some((line, _)) => return Some(line.to_owned()),
                None if is_over => return None,
                None => std::thread::park_timeout(LOOK_INTERVAL),
            }
        }
        None
    }

    pub fn has_ended(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&self.handle, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

type Started = Sender<io::Result<(u32, OwnedFd)>>;

fn announce(id: u32, started: &Started) {
    let pid = Pid::from_raw(id as i32).expect("a child has a number");
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from);
    let _ = started.send(handle.map(|handle| (id, handle)));
}

fn run_alone(mut command: Command, started: &Started) -> io::Result<i32> {
    sys::dies_with_its_starter(&mut command);
    let mut child = command.spawn()?;
    announce(child.id(), started);
    Ok(child.wait()?.into_raw())
}

fn run_traced(command: Command, mut tracing: Tracing, started: &Started) -> io::Result<i32> {
    let areas = tracing.areas;
    sys::trace(command, &tracing.numbers, |id| announce(id, started), &mut |stop| match Seen::of(stop, &areas) {
        Some(seen) => (tracing.each)(&seen),
        None => Answer::GoOn,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_outlasts_the_patience_is_killed_and_one_that_ends_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ready; read x < /dev/zero; sleep 100"]);
        let process = Process::start(command, dir.path(), "long", None).unwrap();
        assert_eq!(process.first_line(Duration::from_secs(20)).as_deref(), Some("ready"));
        process.signal(Signal::KILL);
        let ended = process.wait(Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!((ended.code, ended.signal, &ended.output[..]), (None, Some(9), "ready\n"));
        let missing = Process::start(Command::new("/nowhere/at-all"), dir.path(), "missing", None);
        assert!(missing.is_err());
    }
}
