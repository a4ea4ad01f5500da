//! Two hosts of a laboratory, far from each other, and copies between them: through buffers, with storage
//! that is slow or stalls.
//!
//! Slow storage is this program's own (`lab storage`), so it takes FUSE.
//!
//! Invariants: every run is kept in `runs.jsonl` with the command's last event, and what an earlier run left there
//! goes first; a run that did not deliver everything is an error. Not here: what is claimed of the runs (`staging`).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Lab;
use lab::record::reasons_since;
use plan::staging::Stalling;
use serde_json::{Value, json};

use super::context::Context;
use super::course::Course;
use super::judge::{Check, median, shown};
use crate::dataset;
use crate::error::{Error, Kind, Result};
use crate::process::{Finished, Gated, Ready, Server};
use crate::sweep::Condition;
use crate::tool::thalweg::Thalweg;
use crate::tool::{Bed, Class, Host, Set, Tool, Variant};
use crate::workspace::{Pauses, Workspace, remove_tree};

pub const BITS_PER_SECOND: u64 = 500_000_000;
pub const RTT_US: u64 = 74_000;
pub const MIB: u64 = 1 << 20;
pub const CHUNK: u64 = 2 * MIB;
const CHUNK_FLAGS: [&str; 2] = ["--chunk-size", "2MiB"];
/// Of the path alone, and of a comparison without a condition.
pub const ROUNDS_FEW: u32 = 2;
/// Of one run; a longer one is a failure.
const LIMIT: Duration = Duration::from_secs(900);
pub const ROUNDS: u32 = 5;

/// Storage that moves at a rate and stands still for the first seconds of every period.
#[derive(Clone, Copy)]
pub struct Slow {
    pub bytes_per_second: u64,
    /// Milliseconds, of milliseconds.
    pub stall: Option<(u64, u64)>,
}

impl Slow {
    pub fn model(self) -> Stalling {
        let (stall, period) = self.stall.unwrap_or((0, 1000));
        Stalling {
            bytes_per_second: self.bytes_per_second as f64,
            stall_seconds: stall as f64 / 1e3,
            period_seconds: period as f64 / 1e3,
        }
    }
}

/// What a run is made of.
#[derive(Clone, Default)]
pub struct Case {
    pub name: String,
    pub source: Option<Slow>,
    pub sink: Option<Slow>,
    /// In bytes, on the client's host and on the endpoint's.
    pub ahead: Option<u64>,
    pub behind: Option<u64>,
    pub flags: Vec<String>,
    pub bytes: u64,
}

/// What the path carries once it is under way, and what a copy takes besides.
pub struct PathAlone {
    pub bytes_per_second: f64,
    pub begin_seconds: f64,
    /// As of runs.
    pub late: Vec<String>,
}

/// What came of one run.
pub struct Run {
    /// Until everything was delivered, by the command's own word.
    pub seconds: f64,
    pub course: Course,
    /// Why it says more about the emulator than about the copy.
    pub late: Vec<String>,
}

/// Two hosts far from each other, and a folder for both.
pub struct Far<'a> {
    pub lab: Lab,
    workspace: Workspace,
    cancel: &'a AtomicBool,
}

impl<'a> Far<'a> {
    pub fn up(context: &Context<'a>) -> Result<Far<'a>> {
        Far::up_with(context, Some(BITS_PER_SECOND), RTT_US)
    }

    pub fn up_with(context: &Context<'a>, bits_per_second: Option<u64>, rtt_us: u64) -> Result<Far<'a>> {
        let bits_per_second = bits_per_second.and_then(|own| context.rate(own)[0]);
        let condition = Condition { bits_per_second, rtt_us, ..Condition::default() };
        let workspace = Workspace::create(
            context.options.work_dir.as_deref(),
            Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO },
            &mut |_| (),
        )?;
        let lab = Lab::up(condition.scenario(context.options.seed)?)?;
        begin_raw(&context.dir)?;
        Ok(Far { lab, workspace, cancel: context.cancel() })
    }

    fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.workspace.path().join(name);
        remove_tree(&path)?;
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        Ok(path)
    }

    /// Files of 64 MiB in a directory.
    pub fn data(&self, bytes: u64, name: Option<&str>) -> Result<PathBuf> {
        let path = self.workspace.path().join(name.unwrap_or("data"));
        if !path.exists() {
            dataset::run(&dataset::Options::new(format!("{}x64MiB", bytes.div_ceil(64 * MIB)), &path), &mut |_| {})?;
        }
        Ok(path)
    }

    /// From memory to memory.
    pub fn path(&self, context: &mut Context) -> Result<PathAlone> {
        let bytes = 384 * MIB;
        let case = Case { name: "the path alone".into(), bytes, ..Case::default() };
        let set = Set { name: "gen".into(), files: 1, bytes, source: PathBuf::from("gen:1x384MiB") };
        let root = self.dir("root")?;
        let (mut rates, mut seconds, mut late) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..context.options.rounds.unwrap_or(ROUNDS).min(ROUNDS_FEW) {
            let run = self.run(context, &case, &root, &set)?;
            rates.extend(run.course.rate(None));
            seconds.push(run.seconds);
            late.extend(run.late);
        }
        let (Some(bytes_per_second), Some(seconds)) = (median(rates), median(seconds)) else {
            return Err(Error::new(Kind::Failed, "measure", "the path", "no run ended"));
        };
        let begin_seconds = (seconds - bytes as f64 / bytes_per_second).max(0.0);
        let told = format!("{} MB/s, {} s until it has begun", shown(bytes_per_second / 1e6), shown(begin_seconds));
        context.check(Check::told("the path alone", "", told).beside(&late));
        Ok(PathAlone { bytes_per_second, begin_seconds, late })
    }

    /// One after the other, as many as the caller asked for, or `rounds_max`.
    pub fn rounds(&self, context: &mut Context, case: &Case, rounds_max: Option<u32>) -> Result<Vec<Run>> {
        let data = self.data(case.bytes, Some(&format!("data-{}", case.bytes)))?;
        let mut runs = Vec::new();
        let rounds = context.options.rounds.unwrap_or(ROUNDS);
        for _ in 0..rounds_max.map_or(rounds, |most| rounds.min(most)) {
            let real = self.dir("real")?;
            let mut mounts = Vec::new();
            let mut shown = |slow: Option<Slow>, backing: &Path, at: &str| -> Result<PathBuf> {
                let Some(slow) = slow else { return Ok(backing.to_owned()) };
                let mount = self.dir(at)?;
                mounts.push(self.mount(context, slow, backing, &mount)?);
                Ok(mount)
            };
            let root = shown(case.sink, &real, "sink")?;
            let source = shown(case.source, &data, "source")?;
            let set = Set { name: case.name.clone(), files: case.bytes / (64 * MIB), bytes: case.bytes, source };
            runs.push(self.run(context, case, &root, &set)?);
        }
        Ok(runs)
    }

    fn mount(&self, context: &Context, slow: Slow, backing: &Path, at: &Path) -> Result<Server> {
        let mut command = Command::new(&context.options.program);
        command.args(["lab", "storage"]).arg(backing).arg(at).arg("--rate").arg(slow.bytes_per_second.to_string());
        if let Some((stall, period)) = slow.stall {
            // It begins to move, but for storage that hardly ever does.
            let phase = if stall * 2 < period { stall } else { 0 };
            command.arg("--stall").arg(format!("{stall}ms/{period}ms")).arg("--phase").arg(format!("{phase}ms"));
        }
        let log = self.workspace.path().join("storage.log");
        let server = Server::start(&mut command, &Ready::Says("ready"), &log, self.cancel)?;
        Ok(server)
    }

    fn tool(&self, context: &Context, behind: Option<u64>, flags: &[String]) -> Result<Thalweg> {
        let mut variant = Variant { cp_args: flags.iter().map(Into::into).collect(), ..context.variant() };
        if let Some(bytes) = behind {
            let buffer = self.workspace.path().join("behind");
            remove_tree(&buffer)?;
            variant.serve_args = vec!["--buffer".into(), format!("{}:{bytes}", buffer.display()).into()];
        }
        Ok(Thalweg::new(&variant, 0, Class::Network))
    }

    fn server(&self, tool: &Thalweg, bed: &Bed) -> Result<Server> {
        let (command, ready) = tool.server(bed)?.expect("it has one");
        let mut wrapped = bed.at(Host::Server, Class::Network, &command)?;
        let server = Server::start(&mut wrapped, &ready, &self.workspace.path().join("server.log"), self.cancel)?;
        tool.enrol(bed)?;
        Ok(server)
    }

    fn run(&self, context: &mut Context, case: &Case, root: &Path, set: &Set) -> Result<Run> {
        let mut flags = [&CHUNK_FLAGS.map(str::to_owned)[..], &case.flags].concat();
        if let Some(bytes) = case.ahead {
            let buffer = self.workspace.path().join("ahead");
            remove_tree(&buffer)?;
            flags.extend(["--buffer".to_owned(), format!("{}:{bytes}", buffer.display())]);
        }
        let tool = self.tool(context, case.behind, &flags)?;
        let bed = Bed { workspace: self.workspace.path(), delivered: root, lab: Some(&self.lab) };
        let server = self.server(&tool, &bed)?;
        let client = tool.client(&bed, set, Path::new("out"));
        let gated = Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), bed.workspace)?;
        let before = self.lab.snapshot();
        let finished = gated.run(LIMIT, Some(&server), self.cancel)?;
        let void = reasons_since(&self.lab, before.as_ref());
        let done = done_of(&finished)?;
        keep(&context.dir, &case.name, &done, &void)?;
        if done["files"]["ok"].as_u64() != Some(set.files) {
            return Err(Error::new(Kind::Failed, "copy", &case.name, "not everything was delivered"));
        }
        let seconds = done["seconds"].as_f64();
        let seconds = seconds.ok_or_else(|| Error::new(Kind::Failed, "read", "the last event", "it has no seconds"))?;
        let late = void.into_iter().map(|reason| format!("{}: {reason}", case.name)).collect();
        Ok(Run { seconds, course: Course::of(&finished.stdout, set.bytes), late })
    }

    /// The longest of three jobs, beside a fourth, whose storage hangs or does not.
    pub fn beside(
        &self,
        context: &mut Context,
        source: &Path,
        bytes: u64,
        behind: Option<u64>,
        hangs: bool,
        late: &mut Vec<String>,
    ) -> Result<Option<f64>> {
        let name = if hangs { "beside a job that hangs" } else { "beside a job that moves" };
        let mut longest = Vec::new();
        for _ in 0..context.options.rounds.unwrap_or(ROUNDS) {
            let (root, hung) = (self.dir("root")?, self.dir("hung")?);
            let mount = root.join("hung");
            fs::create_dir(&mount).map_err(Error::io("create", &mount))?;
            let standing = Slow { bytes_per_second: 1_000_000_000, stall: Some((3_599_000, 3_600_000)) };
            let _storage = match hangs {
                true => Some(self.mount(context, standing, &hung, &mount)?),
                false => None,
            };
            let tool = self.tool(context, behind, &[])?;
            let bed = Bed { workspace: self.workspace.path(), delivered: &root, lab: Some(&self.lab) };
            let server = self.server(&tool, &bed)?;
            let set = Set { name: "job".into(), files: bytes / (64 * MIB), bytes, source: source.to_owned() };
            let start = |to: &str| -> Result<Gated> {
                let client = tool.client(&bed, &set, Path::new(to));
                let outputs = self.dir(&format!("client-{to}"))?;
                Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), &outputs)
            };
            let stuck = start("hung")?;
            let others = ["a", "b", "c"].map(start);
            let over = AtomicBool::new(false);
            let before = self.lab.snapshot();
            let seconds = std::thread::scope(|scope| -> Result<f64> {
                let over = &over;
                let stuck = scope.spawn(move || stuck.run(LIMIT, None, over));
                let running = others.map(|gated| scope.spawn(|| gated?.run(LIMIT, None, self.cancel)));
                let mut longest = 0.0f64;
                let mut failed = None;
                for thread in running {
                    match thread.join().expect("a run does not panic").and_then(|finished| done_of(&finished)) {
                        Ok(done) => {
                            let void = reasons_since(&self.lab, before.as_ref());
                            keep(&context.dir, name, &done, &void)?;
                            longest = longest.max(done["seconds"].as_f64().unwrap_or(f64::MAX));
                        }
                        Err(e) => failed = Some(e),
                    }
                }
                over.store(true, std::sync::atomic::Ordering::Relaxed);
                let _ = stuck.join();
                failed.map_or(Ok(longest), Err)
            })?;
            drop(server);
            let void = reasons_since(&self.lab, before.as_ref());
            late.extend(void.into_iter().map(|reason| format!("{name}: {reason}")));
            longest.push(seconds);
        }
        Ok(median(longest))
    }
}

/// The last event of a command that ended well.
fn done_of(finished: &Finished) -> Result<Value> {
    let last = finished.stdout.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    let done: Value = serde_json::from_str(last).unwrap_or_default();
    match finished.status {
        Some(status) if status.success() && done["event"] == "done" => Ok(done),
        _ => Err(Error::new(Kind::Failed, "copy", "with a buffer", finished.stderr.trim())),
    }
}

fn raw_of(dir: &Path) -> PathBuf {
    dir.join("runs.jsonl")
}

/// What an earlier run of the item has left is not this one's.
fn begin_raw(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
    let path = raw_of(dir);
    fs::File::create(&path).map(drop).map_err(Error::io("create", &path))
}

fn keep(dir: &Path, name: &str, done: &Value, void: &[String]) -> Result<()> {
    let path = raw_of(dir);
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).map_err(Error::io("open", &path))?;
    let line = json!({"case": name, "seconds": done["seconds"], "bytes": done["bytes"], "legs": done["legs"],
        "bottleneck": done["bottleneck"], "streams": done["streams"], "notes": done["notes"], "void": void});
    writeln!(file, "{line}").map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_lines_are_those_of_this_run_and_say_when_the_laboratory_was_late() {
        let dir = tempfile::tempdir().unwrap();
        let lines = || -> Vec<Value> {
            let text = fs::read_to_string(raw_of(dir.path())).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        for void in [Vec::new(), vec!["packets were late".to_owned()]] {
            begin_raw(dir.path()).unwrap();
            keep(dir.path(), "case", &json!({"seconds": 1.5}), &void).unwrap();
            assert_eq!(lines().len(), 1);
            assert_eq!((&lines()[0]["void"], &lines()[0]["seconds"]), (&json!(void), &json!(1.5)));
        }
    }
}
