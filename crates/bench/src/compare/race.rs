//! One race from its tools and hosts to its report.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use lab::Lab;
use lab::record::Record;
use lab::scenario::Scenario;

use super::Options;
use super::journal::{self, Journal};
use super::record::{Report, ToolRecord};
use super::run::Race;
use crate::counters::Hosts;
use crate::dataset::{self, Plan};
use crate::environment::Environment;
use crate::error::{Error, Kind, Result};
use crate::image::Image;
use crate::storage::report::check_out;
use crate::tool::{self, Bed, Class, Tool};
use crate::workspace::Workspace;

/// Two hosts on one cable: the race is about the programs.
pub(crate) const SCENARIO_DEFAULT: &str = "direct";

/// Runs the race. Cancelling ends it with an error after everything it made is removed.
pub fn run(options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let plans: Result<Vec<Plan>> =
        options.sets.iter().map(|set| Plan::parse(set, dataset::PER_DIR_DEFAULT, options.seed)).collect();
    let plans = plans?;
    let (tools, mut report) = enlist(options)?;
    if let (Some(out), false) = (&options.out, options.is_resumed) {
        check_out(out)?;
    }
    // Servers first, so that nobody writes to a folder that is being removed. Without the right to there are none.
    if let Ok(_lock) = lab::lease::lock() {
        lab::lease::remove_leftovers();
    }
    let workspace = Workspace::create(options.work_dir.as_deref(), options.pauses, progress)?;
    let working = shown_file_system(workspace.path());
    report.environment.file_system.clone_from(&working);
    let lab = join_hosts(&tools, options, &mut report)?;
    let delivered = workspace.path().join("delivered");
    std::fs::create_dir(&delivered).map_err(Error::io("create", &delivered))?;
    let image = options.image.as_ref().map(|image| Image::create(image, room(&plans), &delivered)).transpose()?;
    if let Some(image) = &options.image {
        let below = shown_file_system(&image.dir);
        report.environment.file_system = format!("a new {} for each run, in an image on {below}", image.kind);
    }
    let bed = Bed { workspace: workspace.path(), delivered: &delivered, lab: lab.as_ref() };
    let tools: Vec<&dyn Tool> =
        tools.iter().map(AsRef::as_ref).filter(|tool| lab.is_some() || tool.class() != Class::Network).collect();
    let hosts = lab.as_ref().map(Hosts::open).transpose()?;
    let journal = take_up(options, &mut report, &working)?;
    let mut race = Race { options, workspace: &workspace, bed: &bed, image, hosts, cancel, progress, journal, report };
    let outcome = race.run(&plans, &tools);
    if let Err(error) = &outcome {
        race.report.notes.push(format!("not complete: {}", error.chain()));
    }
    // What was measured is kept, whatever ended the race.
    race.save()?;
    outcome?;
    if let Some(journal) = race.journal {
        journal.remove()?;
    }
    Ok(race.report)
}

/// What the largest delivery takes on storage.
fn room(plans: &[Plan]) -> u64 {
    plans.iter().map(|plan| plan.totals().space_bytes).max().unwrap_or(0)
}

fn take_up(options: &Options, report: &mut Report, working: &str) -> Result<Option<Journal>> {
    let Some(out) = &options.out else {
        return match options.is_resumed {
            true => Err(Error::usage("--resume", "needs --out, where the interrupted race has left its samples")),
            false => Ok(None),
        };
    };
    let identity = journal::identity(options, report, working)?;
    let (journal, samples) = Journal::open(out, &identity, options.is_resumed)?;
    if !samples.is_empty() {
        report.notes.push(format!("resumed after {} runs of an interrupted race", samples.len()));
    }
    report.samples = samples;
    Ok(Some(journal))
}

/// Finds the tools and their versions; a missing rival is recorded, and our own program is required.
pub(crate) fn enlist(options: &Options) -> Result<(Vec<Box<dyn Tool>>, Report)> {
    let mut wanted = match &options.store {
        Some(store) => tool::at_store(store, &options.variants, &options.rivals)?,
        None => tool::ours(&options.variants),
    };
    for name in options.rivals.iter().filter(|_| options.store.is_none()) {
        wanted.push(tool::rival(name)?);
    }
    for file in &options.adapters {
        wanted.push(tool::adapter(file)?);
    }
    for (index, tool) in wanted.iter().enumerate() {
        if wanted[..index].iter().any(|other| other.name() == tool.name()) {
            return Err(Error::usage(format!("rival {:?}", tool.name()), "two tools of one race have this name"));
        }
    }
    let mut report = Report {
        environment: Environment::read(),
        regenerate: options.regenerate.clone(),
        rounds: options.rounds,
        seed: options.seed,
        tools: Vec::new(),
        missing: Vec::new(),
        sets: Vec::new(),
        notes: Vec::new(),
        samples: Vec::new(),
    };
    let mut tools = Vec::new();
    for tool in wanted {
        match tool.version() {
            Ok(version) => {
                report.tools.push(ToolRecord {
                    name: tool.name().to_owned(),
                    class: tool.class(),
                    version,
                    protection: tool.protection().to_owned(),
                    is_encrypted: tool.guards().is_encrypted,
                    is_digested: tool.guards().is_digested,
                    setup_steps: tool.steps().into_iter().map(str::to_owned).collect(),
                    setup_seconds: None,
                    programs: BTreeMap::new(),
                    server: String::new(),
                    clients: BTreeMap::new(),
                });
                tools.push(tool);
            }
            Err(error) if error.kind == Kind::Missing && !tool.is_ours() => {
                report.missing.push(format!("{}: {}", tool.name(), error.chain()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok((tools, report))
}

/// Makes the two hosts if a tool needs them. Without the right to, the local tools still race.
fn join_hosts(tools: &[Box<dyn Tool>], options: &Options, report: &mut Report) -> Result<Option<Lab>> {
    if !options.with_ceilings && tools.iter().all(|tool| tool.class() != Class::Network) {
        return Ok(None);
    }
    let Some(scenario) = options.scenario.clone().or_else(|| Scenario::preset(SCENARIO_DEFAULT)) else {
        return Ok(None);
    };
    match Lab::up(scenario) {
        Ok(lab) => {
            report.environment.congestion_control = lab.scenario().congestion_control.clone();
            report.environment.network = described(&lab);
            Ok(Some(lab))
        }
        Err(error) if matches!(error.kind, lab::Kind::Denied | lab::Kind::Missing) => {
            let cause = Error::from(error).chain();
            report.missing.push(format!("everything between two hosts: {cause}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The links in words, for the report.
pub(crate) fn described(lab: &Lab) -> String {
    let record = Record::of(lab, Vec::new());
    if record.backend == "none" {
        return "one cable, nothing emulated".into();
    }
    let links: Vec<_> =
        record.links.iter().map(|way| format!("{} to {}: {}", way.from, way.to, way.settings)).collect();
    format!("{}, {} hosts, back end {}", links.join("; "), record.host_settings, record.backend)
}

/// The type of the file system, from what the kernel says about the mount.
pub(crate) fn shown_file_system(path: &Path) -> String {
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best: Option<(&str, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split(' ').skip(1);
        let (Some(dir), Some(kind)) = (fields.next(), fields.next()) else { continue };
        if path.starts_with(dir) && best.is_none_or(|(longest, _)| dir.len() >= longest.len()) {
            best = Some((dir, kind));
        }
    }
    best.map_or("unknown", |(_, kind)| kind).to_owned()
}
