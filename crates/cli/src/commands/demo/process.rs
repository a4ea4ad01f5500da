//! The processes of a demonstration: an endpoint, copies to it, a plain copy.
//!
//! Invariant: no process outlives the `Stage`, and an interruption ends the one that runs.

use crate::args::elsewhere::withhold_variables;
use crate::exit::{self, Result, error};
use crate::interrupt::Interrupt;
use crate::output::shown;
use model::Exit;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const NAME: &str = "demo";
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A running endpoint and a client that knows it.
pub struct Stage<'a> {
    program: PathBuf,
    home: PathBuf,
    endpoint: Child,
    interrupt: &'a Interrupt,
}

impl<'a> Stage<'a> {
    pub fn set_up(work: &Path, interrupt: &'a Interrupt) -> Result<Stage<'a>> {
        let program = std::env::current_exe().map_err(|e| exit::of_file("find", "this program", &e))?;
        let home = work.join("home");
        fs::create_dir(&home).map_err(|e| exit::of_file("make directory", &home, &e))?;
        let ticket = home.join("ticket");
        let mut serve = ours(&program, &home);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--name", NAME, "--root"]).arg(work.join("root"));
        serve.arg("--state-dir").arg(home.join("endpoint")).arg("--ticket-file").arg(&ticket);
        serve.stdout(Stdio::piped()).env("THALWEG_LOG", "error");
        let mut endpoint = serve.spawn().map_err(|e| exit::of_file("start", &program, &e))?;
        let mut ready = String::new();
        let said = BufReader::new(endpoint.stdout.take().expect("it was piped")).read_line(&mut ready);
        let stage = Stage { program, home, endpoint, interrupt };
        if said.unwrap_or(0) == 0 {
            return Err(error(Exit::Failed, "the endpoint did not start", "its reason is above"));
        }
        let mut add = ours(&stage.program, &stage.home);
        add.args(["endpoint", "add", NAME, "--ticket-file"]).arg(&ticket).stderr(Stdio::piped());
        stage.run(add, "add the endpoint")?;
        Ok(stage)
    }

    /// Copies the contents of `source` to the endpoint; returns the seconds it took.
    pub fn push(&self, source: &Path, name: &OsStr) -> Result<Option<f64>> {
        let mut target = std::ffi::OsString::from(format!("{NAME}:"));
        target.push(name);
        target.push("/");
        let mut copy = ours(&self.program, &self.home);
        copy.args(["cp", "--quiet", "--"]).arg(with_slash(source)).arg(target).stderr(Stdio::piped());
        self.run(copy, "copy to the endpoint").map(Some)
    }

    /// Copies with the system's `cp`; `None` where there is none.
    pub fn plain_copy(&self, source: &Path, to: &Path) -> Result<Option<f64>> {
        let mut copy = Command::new("cp");
        // Without -a: the plainest copy that keeps links.
        copy.args(["-r", "--"]).arg(source).arg(to).stdin(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        if Command::new("cp").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return Ok(None);
        }
        self.run(copy, "copy with cp").map(Some)
    }

    /// Ends the endpoint in order.
    pub fn take_down(mut self) -> Result<()> {
        terminate(&self.endpoint);
        let ended = self.endpoint.wait().map_err(|e| exit::of_file("wait for", "the endpoint", &e))?;
        if ended.success() {
            return Ok(());
        }
        Err(error(Exit::Failed, "the endpoint did not shut down cleanly", "THALWEG_LOG=debug shows more"))
    }

    /// Runs a process to its end; an interruption ends it.
    fn run(&self, mut command: Command, what: &str) -> Result<f64> {
        let started = Instant::now();
        let mut child = command.spawn().map_err(|e| exit::of_file("start", command.get_program(), &e))?;
        let mut said = child.stderr.take();
        let pid = rustix::process::Pid::from_child(&child);
        let (ended_in, ended) = channel();
        // Waiting is a thread's work: looking again and again would be felt in short runs.
        let wait = std::thread::Builder::new().name("wait".to_owned()).spawn(move || {
            let mut text = Vec::new();
            if let Some(said) = &mut said {
                let _ = said.take(64 << 10).read_to_end(&mut text);
            }
            let status = child.wait();
            let _ = ended_in.send((Instant::now(), status, text));
        });
        let wait = wait.map_err(|e| {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            error(Exit::Failed, format!("start a thread: {e}"), "raise the limit on processes, and try again")
        })?;
        let (at, status, text) = loop {
            match ended.recv_timeout(LOOK_INTERVAL) {
                Ok(end) => break end,
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_set() => {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                    let _ = wait.join();
                    return Err(error(
                        self.interrupt.exit(),
                        "stopped",
                        "everything was removed; start it again when you like",
                    ));
                }
                Err(_) => {}
            }
        };
        let _ = wait.join();
        match status {
            Ok(status) if status.success() => Ok((at - started).as_secs_f64()),
            _ => {
                let said = String::from_utf8_lossy(&text);
                let line = said.lines().find(|line| !line.is_empty()).unwrap_or("no reason was given");
                let line = shown(line.strip_prefix("error: ").unwrap_or(line));
                Err(error(Exit::Failed, format!("{what}: {line}"), "THALWEG_LOG=debug shows more"))
            }
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.endpoint.try_wait() {
            let _ = self.endpoint.kill();
            let _ = self.endpoint.wait();
        }
    }
}

pub fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(exit::of_file("remove", path, &e)),
        _ => Ok(()),
    }
}

/// A command of this program with a home of its own, out of reach of the terminal's Ctrl-C.
fn ours(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    withhold_variables(&mut command, &[]);
    // What the user has set for copies of their own is no part of the demonstration.
    command.env("HOME", home).env("THALWEG_CONFIG", "/dev/null").stdin(Stdio::null()).process_group(0);
    for name in ["CONFIG_HOME", "STATE_HOME", "CACHE_HOME", "DATA_HOME", "RUNTIME_DIR"] {
        command.env(format!("XDG_{name}"), home.join(name.to_ascii_lowercase()));
    }
    command
}

fn terminate(child: &Child) {
    let _ = rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM);
}

fn with_slash(path: &Path) -> std::ffi::OsString {
    let mut text = path.as_os_str().to_owned();
    text.push("/");
    text
}
