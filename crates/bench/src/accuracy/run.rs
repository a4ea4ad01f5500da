//! One cell after the other: a laboratory and its storage, a calibration, a search, and the repetitions.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lab::Lab;
use lab::record::reasons_to_void;
use lab::storage::SlowStorage;
use serde_json::{Value, json};

use super::cells::{CELLS, Cell, PLAN, SETS, Setting, Slow};
use super::load::{Load, reason_to_void};
use super::record::{Basis, DIFFERS, Record, Run, Step, TRIES};
use super::verdict::{Verdict, text};
use super::{Options, RUN_SECONDS};
use crate::account::Split;
use crate::compare::run::in_turn;
use crate::compare::shown_file_system;
use crate::dataset;
use crate::environment::Program;
use crate::error::{Error, Kind, Result};
use crate::manifest::Manifest;
use crate::process::{Gated, Server};
use crate::tool::thalweg::Thalweg;
use crate::tool::{self, Bed, Class, Host, Set, Tool, Variant};
use crate::workspace::{MEMORY_DIR, Pauses, Workspace, remove_tree};

/// A run that takes so many times as long as it should is abandoned.
const LIMIT: Duration = Duration::from_secs(180);
const REPEATED: usize = 3;

/// Runs what is not there yet of the cells and sets that are asked for, and judges everything that is.
pub fn run(options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Vec<Verdict>> {
    let program = tool::digest(&options.program)?;
    let basis = basis(options);
    let mut record = Record::open(&options.out, &program, basis.clone())?;
    if let Ok(_lock) = lab::lease::lock() {
        lab::lease::remove_leftovers();
    }
    let started = Instant::now();
    let commit = commit(&options.program);
    let mut unmeasured = Vec::new();
    'cells: for cell in options.cells.iter().filter_map(|place| CELLS.get(*place)) {
        for (set, file_bytes) in SETS {
            if !options.sets.is_empty() && !options.sets.iter().any(|wanted| wanted == set) {
                continue;
            }
            let left = options.budget.map(|budget| budget.saturating_sub(started.elapsed()));
            if left.is_some_and(|left| left.as_secs_f64() < 10.0 * RUN_SECONDS) {
                progress("the budget is spent: the same command goes on from here");
                break 'cells;
            }
            let deadline = left.map(|left| Instant::now() + left);
            let (commit, program, basis) = (&*commit, &*program, &basis);
            let mut bench =
                Bench { options, cell, set, record: &mut record, cancel, progress, deadline, commit, program, basis };
            match bench.run(file_bytes) {
                Err(error) if matches!(error.kind, Kind::Cancelled | Kind::Denied | Kind::NoSpace) => {
                    return Err(error);
                }
                Err(error) => {
                    (bench.progress)(&format!("{}, {set}: {}", cell.name, error.chain()));
                    unmeasured.push(format!("{}, {set}", cell.name));
                }
                Ok(()) => {}
            }
            write(&options.out, &record, commit)?;
        }
    }
    match unmeasured.is_empty() {
        true => Ok(Verdict::of(record.runs())),
        false => Err(Error::new(Kind::Failed, "measure", unmeasured.join("; "), "the same command goes on")),
    }
}

fn write(out: &Path, record: &Record, commit: &str) -> Result<()> {
    let verdicts = Verdict::of(record.runs());
    let path = out.join("report.md");
    fs::write(&path, text(&verdicts, commit)).map_err(Error::io("write", &path))
}

/// What this machine is to runs.
fn basis(options: &Options) -> Basis {
    let working = options.work_dir.as_deref().unwrap_or(Path::new(MEMORY_DIR));
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    Basis { seed: options.seed, file_system: shown_file_system(working), kernel }
}

/// Of the source tree in which the program lies; elsewhere there is only what it says of itself.
fn commit(program: &Path) -> String {
    Program::read(program).and_then(|read| read.commit).unwrap_or_else(|| {
        let said = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
        format!("unknown ({})", String::from_utf8_lossy(&said).lines().next().unwrap_or_default())
    })
}

struct Bench<'a> {
    options: &'a Options,
    cell: &'a Cell,
    set: &'a str,
    record: &'a mut Record,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    deadline: Option<Instant>,
    commit: &'a str,
    program: &'a str,
    basis: &'a Basis,
}

/// Where a cell's runs take place.
struct Place<'a> {
    bed: &'a Bed<'a>,
    lab: &'a Lab,
    server: &'a Server,
    set: &'a Set,
    truth: &'a Manifest,
    /// What lies behind the storage that deliveries go to: comparing costs nothing there.
    behind: &'a Path,
    flags: Vec<Setting>,
}

impl Bench<'_> {
    fn run(&mut self, file_bytes: u64) -> Result<()> {
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let workspace = Workspace::create(self.options.work_dir.as_deref(), pauses, self.progress)?;
        let [source, delivered] = ["source", "delivered"].map(|name| workspace.path().join(name));
        let mut backing = [source.clone(), delivered.clone()];
        let slow = match self.cell.slow {
            Slow::Nowhere => None,
            Slow::Source => Some(0),
            Slow::Destination => Some(1),
        };
        for place in [&source, &delivered] {
            open_dir(place)?;
        }
        let mut mounted = None;
        if let (Some(slow), Some(profile)) = (slow, self.cell.storage()) {
            let mountpoint = backing[slow].clone();
            backing[slow] = workspace.path().join("behind");
            open_dir(&backing[slow])?;
            let mount = SlowStorage::mount(&backing[slow], &mountpoint, profile);
            mounted = Some(mount.map_err(Error::io("mount slow storage at", &mountpoint))?);
        }
        let spec = self.cell.spec(self.set, file_bytes);
        let content = backing[0].join("set");
        let generated = dataset::Options { seed: self.options.seed, ..dataset::Options::new(&spec, &content) };
        dataset::run(&generated, &mut |_| ())?;
        let truth = Manifest::of_tree(&content, dataset::cores())?;
        let totals = dataset::Plan::parse(&spec, 1000, self.options.seed)?.totals();
        let set =
            Set { name: self.set.to_owned(), files: totals.files, bytes: totals.bytes, source: source.join("set") };
        let lab = Lab::up(self.cell.scenario(self.options.seed)?)?;
        let bed = Bed { workspace: workspace.path(), delivered: &delivered, lab: Some(&lab) };
        let server = self.server(&bed)?;
        let flags = Setting::judged(set.files, set.bytes).to_vec();
        let place =
            Place { bed: &bed, lab: &lab, server: &server, set: &set, truth: &truth, behind: &backing[1], flags };
        let ended = self.measure(&place);
        drop(server);
        drop(mounted);
        ended
    }

    fn measure(&mut self, place: &Place) -> Result<()> {
        self.calibrate(place)?;
        for setting in self.cell.settings() {
            self.once(place, &setting, Step::Search, 0)?;
        }
        let mut searched: Vec<(&str, f64)> = Vec::new();
        for run in self.record.own() {
            if run.cell == self.cell.name && run.set == self.set && run.step == Step::Search {
                searched.extend(run.rate().map(|rate| (run.setting.as_str(), rate)));
            }
        }
        searched.sort_by(|a, b| b.1.total_cmp(&a.1));
        let best: Vec<String> = searched.iter().take(REPEATED).map(|(name, _)| (*name).to_owned()).collect();
        let of_search = self.cell.settings().into_iter().filter(|setting| best.contains(&setting.name));
        let repeated: Vec<Setting> = place.flags.iter().cloned().chain(of_search).collect();
        for round in 1..=self.options.repetitions {
            for setting in in_turn(&repeated, round) {
                self.once(place, setting, Step::Repeat, round)?;
            }
        }
        Ok(())
    }

    fn ours(flags: &[String], program: &Path) -> Thalweg {
        let cp_args = flags.iter().map(Into::into).collect();
        Thalweg::new(&Variant { cp_args, ..Variant::new(program) }, 0, Class::Network)
    }

    fn server(&self, bed: &Bed) -> Result<Server> {
        let ours = Self::ours(&[], &self.options.program);
        let (command, ready) = ours.server(bed)?.expect("between hosts there is a server");
        let log = bed.workspace.join("server.log");
        let server = Server::start(&mut bed.at(Host::Server, Class::Network, &command)?, &ready, &log, self.cancel)?;
        ours.enrol(bed)?;
        Ok(server)
    }

    /// Again while the laboratory was late or others used the machine, so often in all; the record says so of the last one too.
    fn calibrate(&mut self, place: &Place) -> Result<()> {
        for _ in 0..TRIES {
            self.check_budget()?;
            let reasons = self.calibrate_once(place)?;
            if reasons.is_empty() {
                break;
            }
            (self.progress)(&format!("{}, {}: {}", self.cell.name, self.set, reasons.join("; ")));
        }
        Ok(())
    }

    /// Returns why the laboratory or others had a part in it.
    fn calibrate_once(&mut self, place: &Place) -> Result<Vec<String>> {
        (self.progress)(&format!("{}, {}: calibrating", self.cell.name, self.set));
        let ours = Self::ours(&[], &self.options.program);
        let (before, load) = (place.lab.snapshot(), Load::begin(place.server));
        let (began, children) = (Instant::now(), Split::of_children());
        let said = self.asked(place, &ours.calibrate(place.bed, place.set))?;
        let used = Split::of_children().since(children);
        let foreign = load.foreign(began.elapsed().as_secs_f64(), used.user_seconds + used.system_seconds);
        let judged = |(before, after)| reasons_to_void(place.lab.scenario(), &before, &after);
        let late: Vec<String> = before.zip(place.lab.snapshot()).map(judged).into_iter().flatten().collect();
        let loaded = reason_to_void(foreign);
        self.record.add_calibration(&json!({
            "cell": self.cell.name, "set": self.set, "late": late, "foreign": foreign, "loaded": loaded,
            "commit": self.commit, "program": self.program, "calibration": serde_json::from_str::<Value>(&said).ok(),
        }))?;
        Ok(late.into_iter().chain(loaded).collect())
    }

    /// The standard output of a command at the client's host.
    fn asked(&self, place: &Place, command: &Command) -> Result<String> {
        let output = place.bed.at(Host::Client, Class::Network, command)?.output();
        let output = output.map_err(Error::io("start", &self.options.program))?;
        if self.cancel.load(Relaxed) {
            return Err(Error::cancelled("measure", self.cell.name));
        }
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(Error::new(Kind::Failed, "run", format!("{command:?}"), said))
            }
        }
    }

    fn once(&mut self, place: &Place, setting: &Setting, step: Step, round: u32) -> Result<()> {
        while !self.record.has(self.cell.name, self.set, step, &setting.name, round) {
            self.try_once(place, setting, step, round)?;
        }
        Ok(())
    }

    fn check_budget(&self) -> Result<()> {
        match self.deadline.is_some_and(|deadline| Instant::now() > deadline) {
            true => {
                let cause = "the budget is spent: the same command goes on";
                Err(Error::new(Kind::Failed, "measure", self.cell.name, cause))
            }
            false => Ok(()),
        }
    }

    fn try_once(&mut self, place: &Place, setting: &Setting, step: Step, round: u32) -> Result<()> {
        self.check_budget()?;
        let ours = Self::ours(&setting.flags, &self.options.program);
        let plan = match setting.name == PLAN {
            true => serde_json::from_str::<Value>(&self.asked(place, &ours.plan(place.bed, place.set))?).ok(),
            false => None,
        };
        let name = format!("run-{}", self.record.count());
        let (delivery, behind) = (place.bed.delivered.join(&name), place.behind.join(&name));
        let client = ours.client(place.bed, place.set, &delivery);
        let at = |gate: &Command| place.bed.at(Host::Client, Class::Network, gate);
        drop_caches(&place.set.source);
        let gated = Gated::prepare(&client, at, place.bed.workspace)?;
        let (before, load) = (place.lab.snapshot(), Load::begin(place.server));
        let finished = gated.run(LIMIT, Some(place.server), self.cancel)?;
        let foreign = load.foreign(finished.seconds, finished.cpu_seconds);
        let judged = |(before, after)| reasons_to_void(place.lab.scenario(), &before, &after);
        let late = before.zip(place.lab.snapshot()).map(judged).unwrap_or_default();
        let disturbed: Vec<String> = late.into_iter().chain(reason_to_void(foreign)).collect();
        let is_good = !finished.is_killed && finished.status.is_some_and(|status| status.success());
        let void = match () {
            () if finished.is_killed => "it took too long".to_owned(),
            () if !is_good => format!("it failed: {}", finished.stderr.lines().last().unwrap_or_default()),
            () => match place.truth.differences_at(&behind, dataset::cores()) {
                differences if differences.is_empty() => disturbed.join("; "),
                differences => format!("{DIFFERS}{}", differences.join(", ")),
            },
        };
        let seconds = (is_good && !void.starts_with(DIFFERS)).then_some(finished.seconds);
        let done: Option<Value> = finished.stdout.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let run = Run {
            cell: self.cell.name.to_owned(),
            set: self.set.to_owned(),
            step,
            setting: setting.name.clone(),
            flags: setting.flags.clone(),
            round,
            seconds,
            files: place.set.files,
            bytes: place.set.bytes,
            plan,
            streams: done.and_then(|done| done["streams"].as_u64()),
            foreign,
            void,
            commit: self.commit.to_owned(),
            program: self.program.to_owned(),
            basis: Some(self.basis.clone()),
            time: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        };
        let rate = run.rate().map_or(format!("void: {}", run.void), |rate| format!("{:.1} MB/s", rate / 1e6));
        (self.progress)(&format!("{}, {}: {setting}, round {round}: {rate}", self.cell.name, self.set));
        self.record.add(run)?;
        // Recorded before: otherwise it would be tried again wherever its delivery cannot be removed.
        remove_tree(&behind)
    }
}

/// A source that lies in the page cache is not what its storage gives.
fn drop_caches(source: &Path) {
    let mut left: Vec<PathBuf> = vec![source.to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if let Ok(file) = fs::File::open(&path) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
    }
}

fn open_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::io("create", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).map_err(Error::io("open up", path))
}
