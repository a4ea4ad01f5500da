//! Whether verdicts are right: seven bottlenecks are put in the way of copies one after the other, each about ten times
//! as strong as anything else there, and what each copy says of itself is held against what was put there.
//!
//! Invariants: every copy is kept in `runs.jsonl` with its verdict; one during which the laboratory was late counts
//! neither as right nor as wrong. What slows storage is this program's own (`lab storage`), so the item needs FUSE.
//!
//! Not here: how a verdict is found (`plan`), and the test that each bottleneck is named once
//! (`cli/tests/e2e/attribution.rs`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lab::Lab;
use lab::record::reasons_since;
use serde_json::{Value, json};

use super::context::Context;
use super::judge::Check;
use crate::compare::run::failure;
use crate::dataset;
use crate::error::{Error, Kind, Result};
use crate::process::{Gated, Ready, Server};
use crate::sweep::Condition;
use crate::tool::thalweg::Thalweg;
use crate::tool::{Bed, Class, Host, SYNTHETIC_SOURCE, Set, Tool, Variant};
use crate::workspace::{Pauses, Workspace, remove_tree};

const MBIT: u64 = 1_000_000;
/// Copies for each bottleneck.
const ROUNDS: u32 = 15;
const SHARE_MIN: f64 = 0.95;
/// Of the copies with one bottleneck: what is often taken for another one is not made up for by the other six.
const SHARE_OF_ONE_MIN: f64 = 0.8;
/// Of one copy.
const LIMIT: Duration = Duration::from_secs(120);
/// From a request of slow storage to its answer.
const LATE: &str = "40ms";
/// Programs that use the processor that one end is held to.
const BURNERS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Here,
    There,
}

#[derive(Clone, Copy)]
enum Means {
    /// Storage of one end is late, by this option of `lab storage`.
    Storage(Place, &'static str),
    Link {
        bits_per_second: u64,
        rtt_us: u64,
        loss: f64,
    },
    /// Others use the processor of one end.
    Processor(Place),
}

/// A bottleneck, and the stage that verdicts have to name.
struct Injection {
    name: &'static str,
    stage: &'static str,
    means: Means,
    mib: u64,
    flags: &'static [&'static str],
}

const READS: Means = Means::Storage(Place::Here, "--read-latency");
const WRITES: Means = Means::Storage(Place::There, "--write-latency");
const THIN: Means = Means::Link { bits_per_second: 200 * MBIT, rtt_us: 10_000, loss: 0.0 };
const LOSSY: Means = Means::Link { bits_per_second: 500 * MBIT, rtt_us: 20_000, loss: 1e-3 };
/// Late storage could serve eight lanes at once, and there is memory for one.
const ONE_LANE: &[&str] = &["--streams=8", "--memory=1MiB", "--engine=pread"];

static INJECTIONS: [Injection; 7] = [
    injection("thin link", "network", THIN, 40, &["--streams=2"]),
    injection("lossy link", "network", LOSSY, 48, &["--streams=2"]),
    injection("processor taken here", "cpu-sender", Means::Processor(Place::Here), 192, &[]),
    injection("processor taken there", "cpu-receiver", Means::Processor(Place::There), 192, &[]),
    injection("late reads", "read", READS, 12, &[]),
    injection("late writes", "write", WRITES, 12, &["--fsync=never"]),
    injection("little memory", "memory", READS, 12, ONE_LANE),
];

const fn injection(
    name: &'static str,
    stage: &'static str,
    means: Means,
    mib: u64,
    flags: &'static [&'static str],
) -> Injection {
    Injection { name, stage, means, mib, flags }
}

pub fn run(context: &mut Context) -> Result<()> {
    fs::create_dir_all(&context.dir).map_err(Error::io("create", &context.dir))?;
    let path = context.dir.join("runs.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    let (mut rows, mut ended) = (Vec::new(), Ok(()));
    for injection in &INJECTIONS {
        match named(context, injection, &mut raw) {
            Ok(named) => rows.push((injection, named)),
            Err(error) => {
                rows.push((injection, Vec::new()));
                ended = Err(error);
                break;
            }
        }
    }
    // What was measured is judged, whatever ended the rest.
    checks(&rows).into_iter().for_each(|check| context.check(check));
    ended
}

/// Copies with a bottleneck in their way, and returns the stages that they named.
fn named(context: &mut Context, injection: &Injection, raw: &mut File) -> Result<Vec<String>> {
    let (cancel, pauses) = (context.cancel(), Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO });
    let workspace = Workspace::create(context.options.work_dir.as_deref(), pauses, &mut |_| ())?;
    let path = |name: &str| workspace.path().join(name);
    for dir in ["source", "root", "behind"].map(path) {
        fs::create_dir(&dir).map_err(Error::io("create", &dir))?;
    }
    let lab = Lab::up(injection.condition().scenario(context.options.seed)?)?;
    let set = injection.set(&workspace)?;
    let _storage = injection.mount(&context.options.program, &workspace, cancel)?;
    let root = path("root");
    let bed = Bed { workspace: workspace.path(), delivered: &root, lab: Some(&lab) };
    let cp_args = injection.flags.iter().map(Into::into).collect();
    let tool = Thalweg::new(&Variant { cp_args, ..context.variant() }, 0, Class::Network);
    let (command, ready) = tool.server(&bed)?.expect("between hosts there is one");
    let command = injection.held(Place::There, command)?;
    let mut command = bed.at(Host::Server, Class::Network, &command)?;
    let server = Server::start(&mut command, &ready, &path("server.log"), cancel)?;
    tool.enrol(&bed)?;
    let _burners = injection.burners(&workspace, cancel)?;
    let mut named = Vec::new();
    for round in 1..=context.options.rounds.unwrap_or(ROUNDS) {
        let delivery = root.join(format!("run-{round}"));
        let client = injection.held(Place::Here, tool.client(&bed, &set, &delivery))?;
        let gated = Gated::prepare(&client, |gate| bed.at(Host::Client, Class::Network, gate), bed.workspace)?;
        let before = lab.snapshot();
        let finished = gated.run(LIMIT, Some(&server), cancel)?;
        let late = reasons_since(&lab, before.as_ref());
        if let Some(cause) = failure(&finished, LIMIT) {
            return Err(Error::new(Kind::Failed, "copy with", injection.name, cause));
        }
        remove_tree(&delivery)?;
        let last = finished.stdout.trim_end().lines().last().unwrap_or_default();
        let done: Value = serde_json::from_str(last).unwrap_or_default();
        let found = &done["bottleneck"];
        let stage = found["stage"].as_str().unwrap_or("nothing").to_owned();
        let (name, seconds) = (injection.name, finished.seconds);
        let line = json!({"injected": name, "expected": injection.stage, "seconds": seconds, "bottleneck": found,
            "void": late});
        writeln!(raw, "{line}").map_err(Error::io("write", "runs.jsonl"))?;
        (context.progress())(&format!("{name}, copy {round}: {stage}"));
        match late.first() {
            None => named.push(stage),
            Some(reason) => context.note(format!("{name}, copy {round} does not count: {reason}")),
        }
    }
    Ok(named)
}

impl Injection {
    /// The path: without a link in the way two hosts on one cable.
    fn condition(&self) -> Condition {
        let cable = Condition { bits_per_second: None, rtt_us: 0, has_stock_hosts: true, ..Condition::default() };
        match self.means {
            Means::Link { bits_per_second, rtt_us, loss } => {
                Condition { bits_per_second: Some(bits_per_second), rtt_us, loss, ..cable }
            }
            _ => cable,
        }
    }

    /// One file: where storage is in the way a real one, else from memory to memory.
    fn set(&self, workspace: &Workspace) -> Result<Set> {
        let spec = format!("1x{}MiB", self.mib);
        let source = match self.means {
            Means::Storage(place, _) => {
                let content = workspace.path().join(if place == Place::Here { "behind" } else { "source" });
                dataset::run(&dataset::Options::new(&spec, content.join("set")), &mut |_| ())?;
                workspace.path().join("source/set")
            }
            _ => PathBuf::from(format!("{SYNTHETIC_SOURCE}{spec}")),
        };
        Ok(Set { name: self.name.to_owned(), files: 1, bytes: self.mib << 20, source })
    }

    fn mount(&self, program: &Path, workspace: &Workspace, cancel: &AtomicBool) -> Result<Option<Server>> {
        let Means::Storage(place, latency) = self.means else { return Ok(None) };
        let [behind, log] = ["behind", "storage.log"].map(|name| workspace.path().join(name));
        let at = workspace.path().join(if place == Place::Here { "source" } else { "root" });
        let mut command = Command::new(program);
        command.args(["lab", "storage", latency, LATE]).arg(behind).arg(at);
        Server::start(&mut command, &Ready::Says("ready"), &log, cancel).map(Some)
    }

    /// A command of one end: on the burners' processor, and after them, where that is what is in the way.
    fn held(&self, place: Place, command: Command) -> Result<Command> {
        if !matches!(self.means, Means::Processor(of) if of == place) {
            return Ok(command);
        }
        let mut held = Command::new("taskset");
        held.args(["-c", &processor()?, "nice", "-n", "5"]).arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => held.env(name, value),
                None => held.env_remove(name),
            };
        }
        Ok(held)
    }

    fn burners(&self, workspace: &Workspace, cancel: &AtomicBool) -> Result<Vec<Server>> {
        let Means::Processor(_) = self.means else { return Ok(Vec::new()) };
        let processor = processor()?;
        let burner = |number: usize| {
            let mut command = Command::new("taskset");
            command.args(["-c", &processor, "sh", "-c", "echo ready; while :; do :; done"]);
            let log = workspace.path().join(format!("burner-{number}.log"));
            Server::start(&mut command, &Ready::Says("ready"), &log, cancel)
        };
        (0..BURNERS).map(burner).collect()
    }
}

/// The first that this program may use.
fn processor() -> Result<String> {
    let path = Path::new("/proc/self/status");
    let status = fs::read_to_string(path).map_err(Error::io("read", path))?;
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0");
    Ok(allowed.trim().chars().take_while(char::is_ascii_digit).collect())
}

/// What share of what was named by what was in the way is right, for each and in all: none in all where one has no
/// copy that counts.
fn checks(rows: &[(&Injection, Vec<String>)]) -> Vec<Check> {
    let (mut checks, mut right, mut all) = (Vec::new(), 0, 0);
    for (injection, named) in rows {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        named.iter().for_each(|stage| *counts.entry(stage).or_default() += 1);
        let right_here = counts.get(injection.stage).copied().unwrap_or(0);
        let shown: Vec<String> = counts.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
        let share = share_of(right_here, named.len());
        let shown = share.map(|share| (shown.join(", "), share >= SHARE_OF_ONE_MIN));
        let expected = format!("{} in >= {SHARE_OF_ONE_MIN}", injection.stage);
        checks.push(Check::of(format!("{}: named", injection.name), expected, shown));
        (right, all) = (right + right_here, all + named.len());
    }
    let is_whole = rows.iter().all(|(_, named)| !named.is_empty());
    let share = share_of(right, all).filter(|_| is_whole);
    checks.push(Check::at_least("verdicts that name what was in the way", SHARE_MIN, share));
    checks
}

fn share_of(right: usize, all: usize) -> Option<f64> {
    (all > 0).then(|| right as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use model::progress::Stage;

    #[test]
    fn every_injection_wants_a_stage_that_there_is_on_a_path_that_can_be_made() {
        for injection in &INJECTIONS {
            let is_stage = Stage::ALL.into_iter().any(|stage| stage.name() == injection.stage);
            assert!(is_stage || plan::VERDICTS.contains(&injection.stage), "{}", injection.name);
            assert_eq!(injection.condition().scenario(1).unwrap().check(8 << 30), Ok(()), "{}", injection.name);
        }
    }

    #[test]
    fn more_than_one_wrong_verdict_in_twenty_fails() {
        let [network, .., memory] = &INJECTIONS;
        let stages = |right: &str, count: usize, wrong: usize| {
            let named = |stage: &str, count| vec![stage.to_owned(); count];
            [named(right, count), named("write", wrong)].concat()
        };
        let judged = |wrong| {
            let rows = [(network, stages("network", 10, 0)), (memory, stages("memory", 10 - wrong, wrong))];
            let checks = checks(&rows);
            assert_eq!(checks.len(), 3);
            (checks[1].measured.clone(), checks[2].verdict)
        };
        assert_eq!(judged(1), ("memory 9, write 1".to_owned(), Verdict::Pass));
        assert_eq!(judged(2), ("memory 8, write 2".to_owned(), Verdict::Fail));
    }

    #[test]
    fn no_bottleneck_is_made_up_for_by_others_or_left_out() {
        let [network, .., memory] = &INJECTIONS;
        let named = |right, wrong| [vec!["memory".to_owned(); right], vec!["read".to_owned(); wrong]].concat();
        let judged = |of_memory: Vec<String>| {
            let rows = [(network, vec!["network".to_owned(); 100]), (memory, of_memory)];
            let checks = checks(&rows);
            [&checks[1], &checks[2]].map(|check| check.verdict)
        };
        assert_eq!(judged(named(8, 2)), [Verdict::Pass; 2]);
        assert_eq!(judged(named(7, 3)), [Verdict::Fail, Verdict::Pass]);
        assert_eq!(judged(Vec::new()), [Verdict::Void; 2]);
        assert_eq!(checks(&[]).len(), 1);
        assert_eq!(checks(&[])[0].verdict, Verdict::Void);
    }
}
