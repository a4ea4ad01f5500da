//! How far behind its source a file is at the other end while it is written: ours, and what people use in its place.
//!
//! An appender writes files at a set pace; a watcher at the other end notes how much of them can be seen, and when. The lag of
//! a write is the time from when it was made until all of it was visible there. Both run in this process, so one clock times
//! both; the two hosts are namespaces of a laboratory.
//!
//! Invariants:
//! - Every byte that becomes visible is compared with what was written, and all of them at the end: a lag counts beside the
//!   number of wrong bytes.
//! - A write that was never seen counts as seen when the run ended, and is told.

mod appender;
mod bundle;
mod figures;
mod watch;

pub use appender::Pace;
pub use bundle::write;
pub use figures::{Goals, Sample, milliseconds};

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::record::reasons_to_void;
use lab::scenario::Scenario;

use crate::account::Split;
use crate::compare::race::{SCENARIO_DEFAULT, described, shown_file_system};
use crate::counters::Hosts;
use crate::environment::Environment;
use crate::error::{Error, Kind, Result};
use crate::process::{Finished, Gated, Server};
use crate::tool::follow::{Follower, STOP};
use crate::tool::{Bed, Host, Set, Variant};
use crate::workspace::{Pauses, Workspace, remove_tree};
use figures::{Raw, Run};

/// A client has this long to connect and to see what is there before anything is written.
const SETTLE: Duration = Duration::from_secs(2);
/// With many files that rest, listing them takes longer: this much more for each thousand.
const SETTLE_PER_THOUSAND: Duration = Duration::from_millis(60);
/// Files that are younger than two seconds when they are found are taken for files that grow.
const RESTING: Duration = Duration::from_millis(2500);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub struct Options {
    pub pace: Pace,
    /// Files beside those that grow, which nobody writes to.
    pub idle_files: u64,
    pub rounds: u32,
    pub variant: Variant,
    pub rivals: Vec<String>,
    pub scenario: Option<Scenario>,
    /// Ours also copies the finished files, for the share of that rate which is left while they grow.
    pub with_bulk: bool,
    /// How long after the last write everything may take to arrive.
    pub patience: Duration,
    pub work_dir: Option<PathBuf>,
    pub out: Option<PathBuf>,
    pub regenerate: String,
}

#[derive(Debug, serde::Serialize)]
pub struct Report {
    pub environment: Environment,
    pub regenerate: String,
    pub pace: Pace,
    pub idle_files: u64,
    pub rtt_ms: f64,
    pub goals: Goals,
    /// Name and version.
    pub tools: Vec<(String, String)>,
    pub missing: Vec<String>,
    /// The clients' commands, as shown to people.
    pub commands: Vec<(String, String)>,
    pub samples: Vec<Sample>,
    #[serde(skip)]
    pub raw: Vec<Raw>,
}

/// Runs each tool in each round, round by round.
pub fn run(options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    if options.pace.files == 0 || options.pace.write_bytes == 0 || options.pace.bytes_per_second == 0 {
        return Err(Error::usage("the pace", "files, the size of a write and the rate are at least 1"));
    }
    let mut followers = vec![Follower::ours(&options.variant)];
    for name in &options.rivals {
        followers.push(Follower::named(name)?);
    }
    if let Ok(_lock) = lab::lease::lock() {
        lab::lease::remove_leftovers();
    }
    let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
    let workspace = Workspace::create(options.work_dir.as_deref(), pauses, progress)?;
    let copies = 2 + u64::from(options.with_bulk);
    workspace.check_space(copies * options.pace.bytes() + (256 << 20))?;
    let scenario = options.scenario.clone().or_else(|| Scenario::preset(SCENARIO_DEFAULT));
    let lab = Lab::up(scenario.ok_or_else(|| Error::usage("the laboratory", "it has no scenario"))?)?;
    let delivered = workspace.path().join("delivered");
    fs::create_dir(&delivered).map_err(Error::io("create", &delivered))?;
    let mut report = begin(options, &lab, workspace.path());
    followers.retain(|follower| match follower.version() {
        Ok(version) => {
            report.tools.push((follower.name.clone(), version));
            true
        }
        Err(error) => {
            report.missing.push(format!("{}: {}", follower.name, error.chain()));
            follower.is_ours()
        }
    });
    let bed = Bed { workspace: workspace.path(), delivered: &delivered, lab: Some(&lab) };
    let meter = Meter { options, bed: &bed, lab: &lab, hosts: Hosts::open(&lab)?, cancel };
    for round in 1..=options.rounds {
        for follower in &followers {
            progress(&format!("round {round} of {}: {}", options.rounds, follower.name));
            match meter.round(follower, round, &mut report) {
                Err(error) if error.kind == Kind::Cancelled || follower.is_ours() => return Err(error),
                Err(error) => report.missing.push(format!("{}, round {round}: {}", follower.name, error.chain())),
                Ok(()) => progress(&report.samples.last().map(Sample::shown).unwrap_or_default()),
            }
            if let Some(out) = &options.out {
                write(&report, out)?;
            }
        }
    }
    Ok(report)
}

fn begin(options: &Options, lab: &Lab, workspace: &Path) -> Report {
    let rtt = lab.scenario().round_trip_max();
    let mut environment = Environment::read();
    environment.network = described(lab);
    environment.congestion_control = lab.scenario().congestion_control.clone();
    environment.file_system = shown_file_system(workspace);
    Report {
        environment,
        regenerate: options.regenerate.clone(),
        pace: options.pace.clone(),
        idle_files: options.idle_files,
        rtt_ms: milliseconds(rtt),
        goals: Goals::of(rtt),
        tools: Vec::new(),
        missing: Vec::new(),
        commands: Vec::new(),
        samples: Vec::new(),
        raw: Vec::new(),
    }
}

struct Meter<'a> {
    options: &'a Options,
    bed: &'a Bed<'a>,
    lab: &'a Lab,
    hosts: Hosts,
    cancel: &'a AtomicBool,
}

impl Meter<'_> {
    fn round(&self, follower: &Follower, round: u32, report: &mut Report) -> Result<()> {
        let pace = &self.options.pace;
        let source = self.bed.workspace.join("source");
        remove_tree(&source)?;
        fs::create_dir(&source).map_err(Error::io("create", &source))?;
        if self.options.idle_files > 0 {
            appender::idle(&source, self.options.idle_files)?;
            self.pause(RESTING);
        }
        let delivery = self.delivery(&follower.name)?;
        let set = Set { name: "growing".into(), files: pace.files.into(), bytes: pace.bytes(), source };
        let server = self.server(follower)?;
        let client = follower.client(self.bed, &set, &delivery)?;
        if round == 1 {
            let shown = format!("{client:?}").replace(&*self.bed.workspace.to_string_lossy(), "$WORK");
            report.commands.push((follower.name.clone(), shown.replace('"', "")));
        }
        let (before, network) = (self.lab.snapshot(), self.hosts.begin(Host::Client));
        let gated =
            Gated::prepare(&client, |gate| self.bed.at(Host::Client, Default::default(), gate), self.bed.workspace)?;
        let (run, finished) = self.watched_run(follower, &set.source, &delivery, gated, server.as_ref())?;
        let network = network.end(None);
        let judged = |(before, after)| reasons_to_void(self.lab.scenario(), &before, &after);
        let void = before.zip(self.lab.snapshot()).map(judged);
        let suffixes = [follower.suffix(), ""];
        let one = (pace.file_bytes(), pace.seed);
        let wrong = (0..pace.files).map(|file| watch::wrong_in_the_end(&delivery, &suffixes, file, one)).sum();
        let bulk_seconds = self.bulk(follower, &set, server.as_ref())?;
        let sample = Sample::of(&follower.name, round, &run, &finished)
            .with_ends((pace.bytes(), network.sent_bytes, wrong))
            .with_bulk(bulk_seconds)
            .with_void(void.unwrap_or_default());
        report.raw.push(Raw::of(&follower.name, round, &run));
        report.samples.push(sample);
        remove_tree(&delivery)
    }

    fn delivery(&self, name: &str) -> Result<PathBuf> {
        let delivery = self.bed.delivered.join(name);
        remove_tree(&delivery)?;
        fs::create_dir(&delivery).map_err(Error::io("create", &delivery))?;
        // For servers that give up root.
        fs::set_permissions(&delivery, fs::Permissions::from_mode(0o777)).map_err(Error::io("open up", &delivery))?;
        Ok(delivery)
    }

    fn server(&self, follower: &Follower) -> Result<Option<Server>> {
        let Some((command, ready)) = follower.server(self.bed)? else { return Ok(None) };
        let log = self.bed.workspace.join(format!("{}.log", follower.name));
        let mut wrapped = self.bed.at(Host::Server, Default::default(), &command)?;
        let server = Server::start(&mut wrapped, &ready, &log, self.cancel)?;
        follower.enrol(self.bed)?;
        Ok(Some(server))
    }

    fn watched_run(
        &self,
        follower: &Follower,
        source: &Path,
        delivery: &Path,
        gated: Gated,
        server: Option<&Server>,
    ) -> Result<(Run, Finished)> {
        let (pace, over) = (&self.options.pace, AtomicBool::new(false));
        let client = gated.id();
        let settle = SETTLE + SETTLE_PER_THOUSAND * (self.options.idle_files / 1000) as u32;
        let limit = settle + Duration::from_secs_f64(pace.seconds * 2.0) + self.options.patience * 2;
        let suffixes = match follower.suffix() {
            "" => vec![""],
            suffix => vec![suffix, ""],
        };
        thread::scope(|scope| {
            let running = scope.spawn(|| gated.run(limit, server, self.cancel));
            let watching =
                scope.spawn(|| watch::run(delivery, &suffixes, (pace.files, pace.file_bytes(), pace.seed), &over));
            self.pause(settle);
            let (cpu, began) = (cpu_seconds(client), Instant::now());
            let written = appender::run(source, follower.suffix(), pace, self.cancel);
            let (cpu_seconds, written_seconds) = (cpu_seconds(client) - cpu, began.elapsed().as_secs_f64());
            let completed =
                written.and_then(|written| complete(source, follower.suffix(), pace.files).map(|()| written));
            let deadline = Instant::now() + self.options.patience;
            while completed.is_ok() && !watching.is_finished() && !running.is_finished() && Instant::now() < deadline {
                self.pause(LOOK_INTERVAL);
            }
            let stopped = fs::write(source.join(STOP), b"").map_err(Error::io("write", source.join(STOP)));
            let finished = running.join().expect("a run does not panic");
            over.store(true, Relaxed);
            let sight = watching.join().expect("a watcher does not panic");
            stopped?;
            let (log, late_max) = completed?;
            let run = Run { began, log, late_max, sight, ended: Instant::now(), cpu_seconds, written_seconds };
            Ok((run, finished?))
        })
    }

    fn pause(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.cancel.load(Relaxed) {
            thread::sleep(LOOK_INTERVAL.min(time));
        }
    }

    /// What a copy of the finished files takes.
    fn bulk(&self, follower: &Follower, set: &Set, server: Option<&Server>) -> Result<Option<f64>> {
        if !self.options.with_bulk {
            return Ok(None);
        }
        let delivery = self.delivery("bulk")?;
        let Some(client) = follower.bulk(self.bed, set, &delivery) else { return Ok(None) };
        let gated =
            Gated::prepare(&client, |gate| self.bed.at(Host::Client, Default::default(), gate), self.bed.workspace)?;
        let finished = gated.run(Duration::from_secs(3600), server, self.cancel)?;
        remove_tree(&delivery)?;
        match finished.status {
            Some(status) if status.success() => Ok(Some(finished.seconds)),
            _ => Err(Error::new(Kind::Failed, "copy with", &follower.name, finished.stderr.trim())),
        }
    }
}

fn cpu_seconds(client: u32) -> f64 {
    let split = Split::of_tree(client);
    split.user_seconds + split.system_seconds
}

/// Gives the files their last names.
fn complete(dir: &Path, suffix: &str, files: u32) -> Result<()> {
    for file in (0..files).filter(|_| !suffix.is_empty()) {
        let (from, to) = (appender::path_of(dir, file, suffix), appender::path_of(dir, file, ""));
        fs::rename(&from, to).map_err(Error::io("rename", &from))?;
    }
    Ok(())
}
