//! What two hosts of somebody else's carry, in one folder that can be sent: findings about both, and transfers of every file
//! size in both directions, from memory and from storage, each with the program's own account of what limited it.
//!
//! Every transfer is a run of the program itself against an endpoint that stands already, as its users run it.
//! Invariants: what was written at either end is removed again, also after a failure; a run that fails is kept with what it
//! said and never counts as a figure; nothing is tried at the endpoint that its ticket does not allow.

mod bundle;
mod items;
mod record;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;

use crate::environment::{Environment, Program};
use crate::error::{Error, Kind, Result};
use crate::process::{Finished, Gated};
use crate::storage::report::check_out;
use crate::workspace::{Pauses, Workspace};
use items::Item;
pub use record::{Report, Sample};

#[derive(Clone, Debug)]
pub struct Options {
    pub program: PathBuf,
    /// As `endpoint add` named it.
    pub endpoint: String,
    /// A directory there in which files may be made; without one that storage is not measured.
    pub far_dir: Option<String>,
    /// The same here.
    pub near_dir: Option<PathBuf>,
    /// Where `thalweg bench net --serve` listens beside the endpoint.
    pub net: Option<String>,
    /// What one transfer should take.
    pub seconds: f64,
    pub rounds: u32,
    /// The longest that one transfer may take.
    pub limit: Duration,
    pub out: PathBuf,
    pub regenerate: String,
}

/// Runs everything, with a line to `tell` for each transfer, and writes the folder.
pub fn run(options: &Options, cancel: &AtomicBool, tell: &mut dyn FnMut(&str)) -> Result<Report> {
    check_out(&options.out)?;
    let workspace = Workspace::create(None, Pauses::default(), tell)?;
    let runner = Runner { options, outputs: workspace.path(), cancel };
    let mut report = Report {
        environment: Environment { program: Program::read(&options.program), ..Environment::read() },
        regenerate: options.regenerate.clone(),
        samples: Vec::new(),
        findings: runner.findings()?,
        net: Vec::new(),
        left_out: Vec::new(),
    };
    match &options.net {
        Some(host) => report.net = runner.net(host)?,
        None => {
            report.left_out.push("the path alone: give --net HOST:PORT of a `thalweg bench net --serve` there".into())
        }
    }
    let made = Made { runner: &runner, name: format!("thalweg-field-{}", std::process::id()) };
    let outcome = made.measure(&mut report, tell);
    items::GROUPS.iter().for_each(|group| made.remove(group, tell));
    outcome?;
    bundle::write(&report, &options.out)?;
    Ok(report)
}

/// Values of a program that prints one JSON object a line.
fn lines(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

struct Runner<'a> {
    options: &'a Options,
    outputs: &'a Path,
    cancel: &'a AtomicBool,
}

impl Runner<'_> {
    fn thalweg(&self, words: &[&str]) -> Result<Finished> {
        let mut command = Command::new(&self.options.program);
        command.args(words);
        let gated = Gated::prepare(&command, |gate| Ok(again(gate)), self.outputs)?;
        gated.run(self.options.limit, None, self.cancel)
    }

    /// Bad findings end the program with an exit code of their own, but they are findings; nothing found is a failure.
    fn findings(&self) -> Result<Vec<Value>> {
        let finished = self.thalweg(&["doctor", &self.options.endpoint, "--all", "--json"])?;
        let findings = lines(&finished.stdout);
        if findings.is_empty() {
            let said = finished.stderr.trim().trim_start_matches("error: ").to_owned();
            return Err(Error::new(Kind::Failed, "examine", &self.options.endpoint, said));
        }
        Ok(findings)
    }

    /// Clear and encrypted, each way.
    fn net(&self, host: &str) -> Result<Vec<Value>> {
        let mut measured = Vec::new();
        let seconds = self.options.seconds.to_string();
        for tls in ["off", "on"] {
            for reverse in [&[][..], &["--reverse"]] {
                let words =
                    ["bench", "net", host, "--streams", "4", "--omit", "2", "--seconds", &seconds, "--tls", tls];
                let finished = self.thalweg(&[&words[..], &["--json"], reverse].concat())?;
                let found = lines(&finished.stdout).into_iter().filter(|event| event["event"] == "done");
                measured.extend(found);
                if finished.status.is_none_or(|status| !status.success()) {
                    let cause = finished.stderr.trim().to_owned();
                    return Err(Error::new(Kind::Failed, "measure the path to", host, cause));
                }
            }
        }
        Ok(measured)
    }

    fn copy(&self, item: Item, [from, to]: [&str; 2], set: &str, streams: Option<u32>, round: u32) -> Result<Sample> {
        let count = streams.map(|count| count.to_string());
        let mut words = vec!["cp", "--json"];
        words.extend(count.iter().flat_map(|count| ["--streams", count]));
        words.extend([from, to]);
        let finished = self.thalweg(&words)?;
        let done = lines(&finished.stdout).pop().unwrap_or_default();
        let is_good = finished.status.is_some_and(|status| status.success());
        let error = if is_good { String::new() } else { finished.stderr.trim().to_owned() };
        let error = if finished.is_killed { format!("not over after {:?}", self.options.limit) } else { error };
        Ok(Sample {
            item: item.name(),
            set: set.to_owned(),
            streams,
            round,
            seconds: finished.seconds,
            client_cpu_seconds: finished.cpu_seconds,
            client_rss_bytes_max: finished.rss_bytes_max,
            exit: finished.status.and_then(|status| status.code()),
            done,
            error,
        })
    }
}

fn again(gate: &Command) -> Command {
    let mut command = Command::new(gate.get_program());
    command.args(gate.get_args());
    command
}

/// What a run makes at both ends, below one name.
struct Made<'a> {
    runner: &'a Runner<'a>,
    name: String,
}

impl Made<'_> {
    fn measure(&self, report: &mut Report, tell: &mut dyn FnMut(&str)) -> Result<()> {
        for group in items::GROUPS {
            let Some(amount) = self.amount(group, report, tell)? else { continue };
            for round in 1..=self.runner.options.rounds {
                for (set, streams) in items::sets(group, amount) {
                    for &item in group {
                        let Some([from, to]) = self.places(item, &set) else { continue };
                        let sample = self.runner.copy(item, [&from, &to], &set, streams, round)?;
                        tell(&sample.shown());
                        report.samples.push(sample);
                    }
                    self.remove(group, tell);
                }
            }
        }
        Ok(())
    }

    /// How many bytes take about as long as a transfer should: found with growing ones. None where it cannot be tried.
    fn amount(&self, group: &[Item], report: &mut Report, tell: &mut dyn FnMut(&str)) -> Result<Option<u64>> {
        const FIRST_BYTES: u64 = 16 << 20;
        const BYTES_MAX: u64 = 64 << 30;
        let (item, seconds) = (group[0], self.runner.options.seconds);
        let mut bytes = FIRST_BYTES;
        loop {
            let set = format!("1x{bytes}");
            let Some([from, to]) = self.places(item, &set) else {
                report.left_out.push(format!("{}: {}", item.name(), item.needs()));
                return Ok(None);
            };
            let sample = self.runner.copy(item, [&from, &to], &set, None, 0)?;
            self.remove(group, tell);
            if !sample.error.is_empty() {
                tell(&format!("{}: left out: {}", item.name(), sample.error));
                report.left_out.push(format!("{}: {}", item.name(), sample.error.replace('\n', "; ")));
                return Ok(None);
            }
            if sample.seconds > seconds / 2.0 || bytes >= BYTES_MAX {
                return Ok(Some((bytes as f64 * seconds / sample.seconds) as u64));
            }
            bytes *= 4;
        }
    }

    /// From where to where; what is read from storage is what the item before has written.
    fn places(&self, item: Item, set: &str) -> Option<[String; 2]> {
        let endpoint = &self.runner.options.endpoint;
        Some(match item {
            Item::Push => [format!("gen:{set}"), format!("{endpoint}:null:")],
            Item::Pull => [format!("{endpoint}:gen:{set}"), "null:".to_owned()],
            Item::WriteThere => [format!("gen:{set}"), self.far()? + "/"],
            Item::ReadThere => [self.far()? + "/", "null:".to_owned()],
            Item::WriteHere => [format!("{endpoint}:gen:{set}"), self.near()? + "/"],
            Item::ReadHere => [self.near()? + "/", format!("{endpoint}:null:")],
        })
    }

    fn far(&self) -> Option<String> {
        let Options { endpoint, far_dir, .. } = self.runner.options;
        far_dir.as_ref().map(|dir| format!("{endpoint}:{}/{}", dir.trim_end_matches('/'), self.name))
    }

    fn near(&self) -> Option<String> {
        let near_dir = self.runner.options.near_dir.as_ref()?;
        near_dir.join(&self.name).to_str().map(str::to_owned)
    }

    /// What the items of a group made; what was never made is no error.
    fn remove(&self, group: &[Item], tell: &mut dyn FnMut(&str)) {
        let place = match group[0] {
            Item::WriteThere => self.far(),
            Item::WriteHere => self.near(),
            _ => None,
        };
        let Some(place) = place else { return };
        let uninterrupted = Runner { cancel: &AtomicBool::new(false), ..*self.runner };
        let removed = uninterrupted.thalweg(&["rm", "--recursive", "--force", "--quiet", &place]);
        if !removed.is_ok_and(|finished| finished.status.is_some_and(|status| status.success())) {
            tell(&format!("{place} could not be removed: remove it by hand"));
        }
    }
}
