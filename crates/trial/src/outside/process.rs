//! Processes of a trial: they end with it, also when it is killed, and what they say goes to files.
//!
//! Invariant: a process dies with the thread that started it, so a trial must start and await its processes in one thread.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at something that is waited for.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(2);
const START_LIMIT: Duration = Duration::from_secs(30);

/// A program with the arguments of `command` that dies with the calling thread.
pub fn bound(command: &Command) -> Command {
    prefixed(&["setpriv", "--pdeathsig", "KILL", "--"], command)
}

/// The command in a process namespace of its own: what kills its first process kills all of it at once.
pub fn contained(command: &Command) -> Command {
    prefixed(&["unshare", "--pid", "--fork", "--kill-child", "--"], command)
}

/// The same command behind the words of another one that ends by running it.
pub fn prefixed(words: &[&str], command: &Command) -> Command {
    let mut prefixed = Command::new(words[0]);
    prefixed.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => prefixed.env(name, value),
            None => prefixed.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        prefixed.current_dir(dir);
    }
    prefixed
}

/// Killed when dropped.
pub struct Running {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    pub started: Instant,
}

/// What a finished process left.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    /// None: a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub seconds: f64,
}

impl Running {
    /// Output goes to `NAME.out` and `NAME.err` in `dir`.
    pub fn start(mut command: Command, dir: &Path, name: &str) -> Result<Running> {
        let (stdout, stderr) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let open = |path: &Path| File::create(path).with_context(|| format!("create {}", path.display()));
        command.stdin(Stdio::null()).stdout(open(&stdout)?).stderr(open(&stderr)?);
        let child = command.spawn().with_context(|| format!("start {}", command.get_program().display()))?;
        Ok(Running { child, stdout, stderr, started: Instant::now() })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// What it said so far.
    pub fn said(&self) -> (String, String) {
        let read = |path: &Path| fs::read(path).map(|text| String::from_utf8_lossy(&text).into_owned());
        (read(&self.stdout).unwrap_or_default(), read(&self.stderr).unwrap_or_default())
    }

    /// Waits until `is_ready`, at most until the start's limit.
    pub fn await_ready(mut self, mut is_ready: impl FnMut(&Running) -> bool) -> Result<Running> {
        let deadline = Instant::now() + START_LIMIT;
        while !is_ready(&self) {
            if self.has_ended() || Instant::now() > deadline {
                let (stdout, stderr) = self.said();
                bail!("{} did not start: {} {}", self.stdout.display(), stdout.trim(), stderr.trim());
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
        Ok(self)
    }

    /// Waits for the end; none, and a kill, after the deadline. `look` is called again and again meanwhile.
    pub fn finish(&mut self, deadline: Instant, mut look: impl FnMut()) -> Option<Finished> {
        let status = loop {
            if let Some(status) = self.status() {
                break status;
            }
            if Instant::now() >= deadline {
                self.kill();
                return None;
            }
            look();
            std::thread::park_timeout(LOOK_INTERVAL);
        };
        let (stdout, stderr) = self.said();
        let seconds = self.started.elapsed().as_secs_f64();
        let code = status.code().filter(|_| status.signal().is_none());
        Some(Finished { code, stdout, stderr, seconds })
    }

    /// SIGKILL to a `contained` command, all its processes at the same moment; returns when they are gone.
    pub fn kill_contained(&mut self) {
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|word| word.parse().ok()).filter_map(Pid::from_raw) {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.child.wait();
    }

    /// Ends it at once, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a short command to its end; its output, or an error with its words.
pub fn output_of(mut command: Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} {}: {}", words.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_past_its_deadline_is_killed_and_one_in_time_tells_its_code_and_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("1000");
        let mut sleeping = Running::start(bound(&command), dir.path(), "a").unwrap();
        assert!(sleeping.finish(Instant::now(), || {}).is_none() && sleeping.has_ended());
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let deadline = Instant::now() + START_LIMIT;
        let ended = Running::start(bound(&command), dir.path(), "b").unwrap().finish(deadline, || {}).unwrap();
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(3), "out\n", "err\n"));
    }
}
