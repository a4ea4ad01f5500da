//! Two hosts, an endpoint at the far one, and copies to it from memory to memory: for a time, or to their end.
//!
//! Invariants: copies for a time are all different commands, so that none continues or takes over another, and have
//! more to send than they can: the end of a job is tuned in another way. One that ends for any other reason than its
//! time is an error.
//!
//! Not here: what is claimed of them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::record::reasons_since;
use model::Exit;
use serde_json::Value;

use super::super::context::Context;
use super::curve::Curve;
use crate::compare::run::failure;
use crate::error::{Error, Kind, Result};
use crate::process::{Finished, Gated, Server};
use crate::sweep::Condition;
use crate::tool::thalweg::Thalweg;
use crate::tool::{Bed, Class, Host, SYNTHETIC_SOURCE, Set, Tool, Variant};
use crate::workspace::{Pauses, Workspace};

/// Copies go on for so long after what is looked at, so that an event comes after it.
const AFTER_SECONDS: f64 = 1.0;
/// What starting and ending a copy takes besides.
pub const OVERHEAD_SECONDS: f64 = 0.4;
/// A copy has so many times what its link carries meanwhile.
const PLENTY: u64 = 4;
/// For what a copy does beyond its time, and of one without a time.
const LIMIT: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(5);
const SUBJECT: &str = "from memory to memory";

/// A copy; it is tuned unless its number of streams is fixed.
#[derive(Default)]
pub struct Job {
    pub streams: Option<u32>,
    /// Seconds of the clock.
    pub begins: f64,
    /// Where what was decided about its streams is kept.
    pub log: Option<PathBuf>,
}

impl Job {
    fn args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        if let Some(streams) = self.streams {
            args.push(OsString::from(format!("--streams={streams}")));
        }
        if let Some(log) = &self.log {
            args.extend([OsString::from("--tuning-log"), log.clone().into_os_string()]);
        }
        args
    }
}

/// What came of a copy for a time.
pub struct Copied {
    pub curve: Curve,
    /// The last event.
    pub done: Value,
}

/// Copies that ran at once.
pub struct Ran {
    pub copies: Vec<Copied>,
    /// Why it says more about the emulator than about the copies.
    pub late: Vec<String>,
}

/// What a whole copy took; processors of both ends.
pub struct Used {
    pub seconds: f64,
    pub cpu_seconds: f64,
}

pub struct Stand<'a> {
    // Dropped in this order.
    server: Server,
    pub lab: Lab,
    workspace: Workspace,
    root: PathBuf,
    variant: Variant,
    bits_per_second: u64,
    cancel: &'a AtomicBool,
    runs: u64,
}

impl<'a> Stand<'a> {
    pub fn up(context: &Context<'a>, condition: &Condition) -> Result<Stand<'a>> {
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(context.options.work_dir.as_deref(), pauses, &mut |_| ())?;
        let root = workspace.path().join("root");
        fs::create_dir(&root).map_err(Error::io("create", &root))?;
        let lab = Lab::up(condition.scenario(context.options.seed)?)?;
        let (variant, cancel) = (context.variant(), context.cancel());
        let bed = Bed { workspace: workspace.path(), delivered: &root, lab: Some(&lab) };
        let tool = Thalweg::new(&variant, 0, Class::Network);
        let (command, ready) = tool.server(&bed)?.expect("between hosts there is one");
        let mut command = bed.at(Host::Server, Class::Network, &command)?;
        let server = Server::start(&mut command, &ready, &workspace.path().join("server.log"), cancel)?;
        tool.enrol(&bed)?;
        let bits_per_second = condition.bits_per_second.unwrap_or(0);
        Ok(Stand { server, lab, workspace, root, variant, bits_per_second, cancel, runs: 0 })
    }

    /// Runs copies on one clock until it shows so many seconds, and `meanwhile` beside them.
    pub fn run(
        &mut self,
        jobs: &[Job],
        seconds: f64,
        meanwhile: impl FnOnce(&Lab, Instant) -> Result<()>,
    ) -> Result<Ran> {
        let mut waiting = Vec::new();
        for (number, job) in jobs.iter().enumerate() {
            self.runs += 1;
            let lasts = (seconds - job.begins + AFTER_SECONDS).ceil() as u64;
            let mut args = job.args();
            args.push(OsString::from(format!("--max-duration={lasts}s")));
            let mib = (self.bits_per_second / 8 * lasts * PLENTY) >> 20;
            waiting.push(self.gated(number, args, mib + self.runs)?);
        }
        let limit = Duration::from_secs_f64(seconds) + LIMIT;
        let (cancel, before, clock) = (self.cancel, self.lab.snapshot(), Instant::now());
        let (ended, happened) = thread::scope(|scope| {
            let start = |(gated, job): (Gated, &Job)| {
                let begins = clock + Duration::from_secs_f64(job.begins);
                scope.spawn(move || {
                    wait_until(begins, cancel);
                    (clock.elapsed().as_secs_f64(), gated.run(limit, None, cancel))
                })
            };
            let running: Vec<_> = waiting.into_iter().zip(jobs).map(start).collect();
            let happened = meanwhile(&self.lab, clock);
            let ended: Vec<_> = running.into_iter().map(|copy| copy.join().expect("a run does not panic")).collect();
            (ended, happened)
        });
        happened?;
        let late = reasons_since(&self.lab, before.as_ref());
        let copies = ended.into_iter().map(|(begun, finished)| copied(&finished?, begun)).collect::<Result<_>>()?;
        Ok(Ran { copies, late })
    }

    /// Runs one copy of so much to its end.
    pub fn whole(&self, mib: u64, job: &Job) -> Result<Used> {
        let gated = self.gated(0, job.args(), mib)?;
        let (processes, before) = (self.server.processes(), self.server.cpu_seconds());
        let finished = gated.run(LIMIT, Some(&self.server), self.cancel)?;
        if let Some(cause) = failure(&finished, LIMIT) {
            return Err(Error::new(Kind::Failed, "copy", SUBJECT, cause));
        }
        self.server.settle(processes);
        let cpu_seconds = finished.cpu_seconds + self.server.cpu_seconds() - before;
        Ok(Used { seconds: finished.seconds, cpu_seconds })
    }

    /// A copy that waits for its start.
    fn gated(&self, number: usize, cp_args: Vec<OsString>, mib: u64) -> Result<Gated> {
        let outputs = self.workspace.path().join(format!("outputs-{number}"));
        fs::create_dir_all(&outputs).map_err(Error::io("create", &outputs))?;
        let source = PathBuf::from(format!("{SYNTHETIC_SOURCE}1x{mib}MiB"));
        let set = Set { name: SUBJECT.to_owned(), files: 1, bytes: mib << 20, source };
        let bed = Bed { workspace: self.workspace.path(), delivered: &self.root, lab: Some(&self.lab) };
        let tool = Thalweg::new(&Variant { cp_args, ..self.variant.clone() }, 0, Class::Network);
        let client = tool.client(&bed, &set, Path::new("delivery"));
        Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), &outputs)
    }
}

fn copied(finished: &Finished, begun_seconds: f64) -> Result<Copied> {
    let last = finished.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let done: Value = serde_json::from_str(last).unwrap_or_default();
    let code = finished.status.and_then(|status| status.code());
    if code == Some(Exit::DurationLimit as i32) && done["attempts"].as_u64() == Some(1) {
        return Ok(Copied { curve: Curve::of(&finished.stdout, begun_seconds), done });
    }
    let said = format!("it was to go on until its time was over: {} {last}", finished.stderr.trim());
    Err(Error::new(Kind::Failed, "copy", SUBJECT, said))
}

/// As long as somebody wants it.
pub fn wait_until(moment: Instant, cancel: &AtomicBool) {
    while Instant::now() < moment && !cancel.load(Relaxed) {
        thread::sleep(LOOK);
    }
}

/// What a part of a round takes that has so many seconds of copies on one clock.
pub fn seconds_of(seconds: f64) -> f64 {
    seconds + AFTER_SECONDS + OVERHEAD_SECONDS
}

/// The samples, one line for each run.
pub struct Raw {
    path: PathBuf,
    file: File,
}

impl Raw {
    pub fn new(dir: &Path) -> Result<Raw> {
        fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        let path = dir.join("runs.jsonl");
        let file = File::create(&path).map_err(Error::io("create", &path))?;
        Ok(Raw { path, file })
    }

    pub fn add(&mut self, line: &Value) -> Result<()> {
        writeln!(self.file, "{line}").map_err(Error::io("write", &self.path))
    }
}
