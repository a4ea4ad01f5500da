//! Condition after condition: a laboratory, its ceilings, the work from small to large, each sample kept at once.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use lab::Lab;
use lab::flow::Flow;
use lab::record::reasons_since;

use super::plan::omitted;
use super::*;
use crate::account::Split;
use crate::compare::run::{FAILURES_MAX, Lane, Race, create_open_dir, in_turn, shown_sample};
use crate::compare::{self, SetRecord};
use crate::counters::Hosts;
use crate::error::{Error, Kind, Result};
use crate::manifest::Manifest;
use crate::process::Server;
use crate::reference::{self, empty_sample, unless_late};
use crate::sample::State;
use crate::tool::{self, Bed, Class, Set, Tool};
use crate::workspace::{Workspace, remove_tree};

/// Names of ceilings that are no steady flow of ours.
pub const FROM_START: &str = "flow from its start";
pub const IPERF: &str = "iperf3, 1 stream";

/// Runs the plan, or what is left of it, and writes the bundle to `Options::out`. Cancelling keeps what is done.
pub fn run(options: &Options, cancel: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Outcome> {
    let plan = Plan::of(options)?;
    let compare = compare::Options {
        sets: Vec::new(),
        variants: options.variants.clone(),
        rivals: options.rivals.clone(),
        rounds: plan.rounds,
        limit: options.limit,
        with_ceilings: false,
        pauses: options.pauses,
        seed: options.seed,
        regenerate: options.regenerate.clone(),
        ..compare::Options::default()
    };
    let (tools, mut report) = compare::enlist(&compare)?;
    report.notes.extend(plan.cut.iter().map(|cut| format!("cut to fit the budget: {cut}")));
    report.notes.extend(plan.note_on_rivals().map(str::to_owned));
    let is_there = |name: &String| tools.iter().any(|tool| tool.class() == Class::Network && tool.name() == name);
    let tools_there: Vec<String> = plan.tools.iter().filter(|name| is_there(name)).cloned().collect();
    let journal = Journal::open(&options.out, &plan)?;
    // Servers first, so that nobody writes to a folder that is being removed. Without the right to there are none.
    if let Ok(_lock) = lab::lease::lock() {
        lab::lease::remove_leftovers();
    }
    let workspace = Workspace::create(options.work_dir.as_deref(), options.pauses, progress)?;
    report.environment.file_system = compare::shown_file_system(workspace.path());
    report.environment.network = "one link whose rate, delay and loss each condition names".into();
    let started = Instant::now();
    let mut sweep = Sweep {
        options,
        plan: &plan,
        compare: &compare,
        tools: tools_there,
        journal,
        workspace,
        report: Some(report),
        cancel,
        progress,
        started,
        seconds_done: 0.0,
    };
    let ended = sweep.run_conditions();
    let ((settled, planned), is_complete) = (sweep.counts(), sweep.is_settled());
    let report = sweep.finish()?;
    let is_cancelled = match ended {
        Ok(()) => false,
        Err(error) if error.kind == Kind::Cancelled => true,
        Err(error) => return Err(error),
    };
    Ok(Outcome { plan, report, is_complete, is_cancelled, settled, planned })
}

pub(super) struct Sweep<'a> {
    pub options: &'a Options,
    pub plan: &'a Plan,
    compare: &'a compare::Options,
    /// Those of the plan that are installed.
    tools: Vec<String>,
    pub journal: Journal,
    workspace: Workspace,
    /// None only while a race holds it.
    report: Option<Report>,
    cancel: &'a AtomicBool,
    progress: &'a mut dyn FnMut(&str),
    started: Instant,
    /// Of the plan's estimate, what this run has done.
    seconds_done: f64,
}

/// One set as it lies, or as it is made up.
pub(super) struct Work {
    pub set: Set,
    /// None: synthetic.
    pub truth: Option<Manifest>,
}

impl Sweep<'_> {
    fn run_conditions(&mut self) -> Result<()> {
        let mut failure = None;
        for (index, condition) in self.plan.conditions.iter().enumerate() {
            if self.is_condition_settled(index) {
                continue;
            }
            if self.is_over() {
                break;
            }
            self.say(&format!("{condition}: {}", self.left()));
            match self.run_condition(index) {
                Ok(()) => {}
                Err(error) if matches!(error.kind, Kind::Cancelled | Kind::Denied | Kind::NoSpace) => {
                    return Err(error);
                }
                Err(error) => {
                    self.note(format!("{condition}: {}", error.chain()));
                    failure = Some(error);
                }
            }
            self.write()?;
        }
        if self.is_over() && !self.is_settled() {
            self.note("the budget ran out: the same command with the same budget continues from here".into());
        }
        match failure {
            Some(error) if self.journal.samples().is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    fn run_condition(&mut self, index: usize) -> Result<()> {
        let condition = &self.plan.conditions[index];
        let lab = Lab::up(condition.scenario(self.options.seed)?)?;
        if let Some(bytes) = condition.window_bytes {
            clients::limit_windows(&lab, bytes)?;
        }
        let delivered = self.workspace.path().join("delivered");
        remove_tree(&delivered)?;
        fs::create_dir(&delivered).map_err(Error::io("create", &delivered))?;
        let path = self.workspace.path().to_owned();
        let bed = Bed { workspace: &path, delivered: &delivered, lab: Some(&lab) };
        self.measure_ceilings(&bed, condition)?;
        if self.is_over() {
            return Ok(());
        }
        let tools = self.tools_for(condition)?;
        let mut lanes = Vec::new();
        for tool in &tools {
            match self.with_race(&bed, |race| race.set_up(tool.as_ref())) {
                Ok(server) => lanes.push(Lane { tool: tool.as_ref(), server, failures: 0 }),
                Err(error) if error.kind == Kind::Cancelled || tool.is_ours() => return Err(error),
                Err(error) => self.note(format!("{condition}: {}: {}", tool.name(), error.chain())),
            }
        }
        for cell in self.plan.cells.iter().filter(|cell| cell.condition == index) {
            if self.is_over() {
                return Ok(());
            }
            if !self.is_cell_settled(cell) {
                self.run_cell(&bed, &mut lanes, cell)?;
            }
            self.seconds_done += self.plan.cell_seconds(cell, self.options.pauses.memory);
        }
        Ok(())
    }

    /// Our settings with the condition's streams, and the rivals.
    fn tools_for(&self, condition: &Condition) -> Result<Vec<Box<dyn Tool>>> {
        let mut variants = self.options.variants.clone();
        if let Some(streams) = condition.streams {
            variants.iter_mut().for_each(|variant| variant.cp_args.push(format!("--streams={streams}").into()));
        }
        let mut tools = tool::ours(&variants);
        // They choose their own number.
        for rival in self.options.rivals.iter().filter(|_| condition.streams.is_none()) {
            tools.push(tool::rival(rival)?);
        }
        tools.retain(|tool| tool.class() == Class::Network && self.tools.iter().any(|name| name == tool.name()));
        Ok(tools)
    }

    fn run_cell(&mut self, bed: &Bed, lanes: &mut [Lane], cell: &Cell) -> Result<()> {
        let work = self.prepare(cell)?;
        for round in self.plan.round_numbers() {
            for lane in in_turn(lanes.iter_mut(), round) {
                if !self.takes_part(lane.tool.name(), lane.tool.is_ours(), cell) {
                    continue;
                }
                let condition = self.plan.conditions[cell.condition].to_string();
                self.run_settling(bed, lane, &work, &condition, round)?;
            }
        }
        self.run_pairs(bed, lanes, cell, &work)?;
        if work.truth.is_some() {
            remove_tree(&work.set.source)?;
        }
        Ok(())
    }

    /// Runs until a run counts, was void too often, or the budget is spent; a tool that keeps failing is left out of the
    /// rest of the cell.
    pub fn run_settling(&mut self, bed: &Bed, lane: &mut Lane, work: &Work, condition: &str, round: u32) -> Result<()> {
        let attempts = self.options.void_retries + 1;
        let name = lane.tool.name().to_owned();
        while !self.is_over() && !self.journal.is_settled(condition, &work.set.name, &name, round, attempts) {
            let sample = Sample { condition: condition.to_owned(), ..self.run_one(bed, lane, work, condition, round)? };
            self.say(&shown_sample(&sample));
            if sample.state == State::Failed
                && self.journal.failures_of(condition, &work.set.name, &name) + 1 == FAILURES_MAX
            {
                let set = &work.set.name;
                self.note(format!(
                    "{condition}: {set}: {name} left out after {FAILURES_MAX} failures: {}",
                    sample.note
                ));
            }
            self.journal.append(sample)?;
        }
        Ok(())
    }

    fn run_one(&mut self, bed: &Bed, lane: &mut Lane, work: &Work, condition: &str, round: u32) -> Result<Sample> {
        let plain = condition.trim_end_matches(pairs::PAIRS);
        let count = self.plan.conditions.iter().find(|of| of.to_string() == plain).map_or(1, |of| of.clients);
        let deliveries: Vec<PathBuf> = (0..count).map(|client| bed.delivered.join(format!("run-{client}"))).collect();
        deliveries.iter().try_for_each(|delivery| remove_tree(delivery))?;
        deliveries.iter().try_for_each(|delivery| create_open_dir(delivery))?;
        if let Some(found) = lane.tool.server_of_run(bed, &work.set, &deliveries[0])? {
            // The last one has the port.
            lane.server = None;
            lane.server = Some(self.with_race(bed, |race| race.start_server(lane.tool, found))?);
        }
        let client = lane.tool.client(bed, &work.set, &deliveries[0]);
        let emulator_seconds = || bed.lab.and_then(Lab::snapshot).map_or(0.0, |snapshot| snapshot.cpu_seconds);
        let split = || lane.server.as_ref().map_or(Split::default(), Server::split).plus(Split::of_children());
        let (before, split_before) = (emulator_seconds(), split());
        let counter = series::Counter::start(bed.lab, self.options.series_interval)?;
        let mut sample = self.with_race(bed, |race| {
            let set = work.set.name.clone();
            race.record(lane.tool, |record| record.clients.entry(set).or_default(), &client);
            match &deliveries[..] {
                [_] => race.run_once(lane, &work.set, &client, round),
                several => clients::run(race, lane, &work.set, several, round),
            }
        })?;
        let split = split().since(split_before);
        if let Some(series) = counter.map(series::Counter::finish) {
            series::write(&self.options.out, condition, &sample, &series)?;
        }
        for delivery in &deliveries {
            if let Some(truth) = &work.truth {
                sample.verify(truth, delivery);
            }
            // The sample is not lost for what stays; the next run removes it, or says why it cannot.
            let _ = remove_tree(delivery);
        }
        // Several clients share one link, and their runs one sample.
        crate::ceiling::judge(&mut sample, bed.lab);
        let share = cpu_share(&sample, emulator_seconds() - before);
        if sample.state != State::Failed {
            label(&mut sample, share, split);
        }
        Ok(sample)
    }

    fn prepare(&mut self, cell: &Cell) -> Result<Work> {
        let report = self.report.as_mut().expect("no race holds it");
        if !report.sets.iter().any(|set| set.name == cell.set) {
            let (name, files, bytes) = (cell.set.clone(), cell.files, cell.bytes);
            report.sets.push(SetRecord { name, files, directories: files.div_ceil(dataset::PER_DIR_DEFAULT), bytes });
        }
        let source = if cell.is_synthetic() { PathBuf::from(&cell.set) } else { self.workspace.path().join("source") };
        let set = Set { name: cell.set.clone(), files: cell.files, bytes: cell.bytes, source };
        if cell.is_synthetic() {
            return Ok(Work { set, truth: None });
        }
        let (files, bytes) = (cell.files, cell.bytes);
        // Source, deliveries, and room for the ballast.
        let copies = 1 + u64::from(self.plan.conditions[cell.condition].clients);
        self.workspace.check_space(copies * (bytes + files * 4096) + (1 << 30))?;
        remove_tree(&set.source)?;
        let options = dataset::Options { seed: self.options.seed, ..dataset::Options::new(&cell.set, &set.source) };
        dataset::run(&options, &mut |_| ())?;
        let truth = Some(Manifest::of_tree(&set.source, dataset::cores())?);
        Ok(Work { set, truth })
    }

    /// What the path carries from memory to memory: the denominator of efficiency, kept with the samples.
    fn measure_ceilings(&mut self, bed: &Bed, condition: &Condition) -> Result<()> {
        let text = condition.to_string();
        for (name, ceiling) in ceilings(self.plan) {
            let attempts = self.options.void_retries + 1;
            while !self.is_over() && !self.journal.is_settled(&text, CEILINGS, &name, 1, attempts) {
                if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Error::cancelled("measure", "ceilings"));
                }
                let mut sample = match ceiling {
                    Ceiling::Flow { streams, from_start } => self.flow(bed, condition, streams, from_start)?,
                    Ceiling::Iperf => reference::iperf(bed, 1, 1, self.cancel)?,
                };
                crate::ceiling::judge(&mut sample, bed.lab);
                let sample = Sample { condition: text.clone(), tool: name.clone(), set: CEILINGS.into(), ..sample };
                self.say(&shown_sample(&sample));
                self.journal.append(sample)?;
            }
        }
        Ok(())
    }

    fn flow(&self, bed: &Bed, condition: &Condition, streams: usize, from_start: bool) -> Result<Sample> {
        let Some(lab) = bed.lab else { return Err(Error::new(Kind::Failed, "measure", CEILINGS, "no laboratory")) };
        let sites = &lab.scenario().sites;
        let index = self.plan.conditions.iter().position(|known| known == condition);
        let (seconds, omitted) = match index.map(|index| self.plan.run_seconds[index]) {
            Some(seconds) if from_start => (seconds, Duration::ZERO),
            _ => (self.plan.ceiling_seconds, omitted(condition)),
        };
        let flow = Flow { streams, ..Flow::lasting(Duration::from_secs_f64(seconds), omitted) };
        let before = lab.snapshot();
        let counter = series::Counter::start(Some(lab), self.options.series_interval)?;
        let received = flow.run(lab, &sites[0].name, &sites[1].name, || ())?;
        let reasons = reasons_since(lab, before.as_ref());
        if let (Some(series), false) = (counter.map(series::Counter::finish), from_start) {
            let (name, text) = (flow_name(streams), condition.to_string());
            series::write(&self.options.out, &text, &empty_sample(&name, 1), &series)?;
        }
        let sample = Sample { seconds: received.seconds, bytes: received.bytes, ..empty_sample("flow", 1) };
        Ok(unless_late(sample, &reasons))
    }

    /// Lends the report to a race over `bed` for one step.
    fn with_race<T>(&mut self, bed: &Bed, step: impl FnOnce(&mut Race) -> Result<T>) -> Result<T> {
        let hosts = bed.lab.map(Hosts::open).transpose()?;
        let report = self.report.take().expect("no race holds it");
        let mut silent = |_: &str| ();
        let (options, workspace, cancel) = (self.compare, &self.workspace, self.cancel);
        let mut race =
            Race { options, workspace, bed, image: None, hosts, cancel, progress: &mut silent, journal: None, report };
        let outcome = step(&mut race);
        self.report = Some(race.report);
        outcome
    }

    fn takes_part(&self, tool: &str, is_ours: bool, cell: &Cell) -> bool {
        self.tools.iter().any(|name| name == tool) && (is_ours || self.plan.has_rivals(cell))
    }

    fn is_run_settled(&self, cell: &Cell, tool: &str, round: u32) -> bool {
        let condition = self.plan.conditions[cell.condition].to_string();
        self.journal.is_settled(&condition, &cell.set, tool, round, self.options.void_retries + 1)
    }

    /// Every run that a cell asks for.
    fn runs_of<'b>(&'b self, cell: &'b Cell) -> impl Iterator<Item = (&'b str, u32)> {
        let is_ours = |name: &str| self.options.variants.iter().any(|variant| variant.label == name);
        let tools: Vec<&str> =
            self.tools.iter().map(String::as_str).filter(|name| self.takes_part(name, is_ours(name), cell)).collect();
        tools.into_iter().flat_map(|tool| self.plan.round_numbers().map(move |round| (tool, round)))
    }

    fn is_cell_settled(&self, cell: &Cell) -> bool {
        self.runs_of(cell).all(|(tool, round)| self.is_run_settled(cell, tool, round)) && self.are_pairs_settled(cell)
    }

    fn is_condition_settled(&self, index: usize) -> bool {
        let condition = self.plan.conditions[index].to_string();
        let has_ceiling = |(name, _): (String, Ceiling)| {
            self.journal.is_settled(&condition, CEILINGS, &name, 1, self.options.void_retries + 1)
        };
        ceilings(self.plan).into_iter().all(has_ceiling)
            && self.plan.cells.iter().filter(|cell| cell.condition == index).all(|cell| self.is_cell_settled(cell))
    }

    fn is_settled(&self) -> bool {
        (0..self.plan.conditions.len()).all(|index| self.is_condition_settled(index))
    }

    /// Settled and planned runs.
    fn counts(&self) -> (usize, usize) {
        let mut counts = (0, 0);
        for cell in &self.plan.cells {
            for (tool, round) in self.runs_of(cell) {
                counts.0 += usize::from(self.is_run_settled(cell, tool, round));
                counts.1 += 1;
            }
        }
        counts
    }

    fn is_over(&self) -> bool {
        self.options.budget.is_some_and(|budget| self.started.elapsed() > budget)
    }

    /// From the plan's estimate, corrected by how it held so far.
    fn left(&self) -> String {
        let of_cell = |cell: &Cell| self.plan.cell_seconds(cell, self.options.pauses.memory);
        let remaining: f64 = self.plan.cells.iter().filter(|cell| !self.is_cell_settled(cell)).map(of_cell).sum();
        let elapsed = self.started.elapsed().as_secs_f64();
        let correction = if self.seconds_done > 10.0 { elapsed / self.seconds_done } else { 1.0 };
        let (settled, planned) = self.counts();
        format!("{settled} of {planned} runs done, about {:.0} s left", (remaining * correction).abs())
    }

    fn note(&mut self, note: String) {
        self.say(&note);
        let notes = &mut self.report.as_mut().expect("no race holds it").notes;
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    fn say(&mut self, text: &str) {
        (self.progress)(text);
    }

    fn write(&mut self) -> Result<()> {
        let report = self.report.as_mut().expect("no race holds it");
        report.samples = self.journal.samples().to_vec();
        figures::write(report, &self.options.out)
    }

    fn finish(mut self) -> Result<Report> {
        self.write()?;
        Ok(self.report.take().expect("no race holds it"))
    }
}

#[derive(Clone, Copy)]
enum Ceiling {
    Flow { streams: usize, from_start: bool },
    Iperf,
}

/// What is measured beside the work in each condition, by its name in samples.
fn ceilings(plan: &Plan) -> Vec<(String, Ceiling)> {
    let mut ceilings = Vec::new();
    for &streams in &plan.ceiling_streams {
        let name = flow_name(streams);
        if plan.with_starts {
            let started = name.replacen("flow", FROM_START, 1);
            ceilings.push((started, Ceiling::Flow { streams, from_start: true }));
        }
        ceilings.push((name, Ceiling::Flow { streams, from_start: false }));
    }
    if plan.with_iperf && reference::iperf_version().is_ok() {
        ceilings.push((IPERF.into(), Ceiling::Iperf));
    }
    ceilings
}

fn flow_name(streams: usize) -> String {
    format!("flow, {streams} stream{}", if streams == 1 { "" } else { "s" })
}

/// Of all processors: both ends, the emulator, others, and what the host took away.
fn cpu_share(sample: &Sample, emulator_seconds: f64) -> f64 {
    let used = sample.cpu_seconds() + emulator_seconds + sample.foreign_cpu_seconds + sample.steal_seconds;
    used / (dataset::cores() as f64 * sample.seconds.max(1e-3))
}

/// What a reader must know of a run that is no failure.
fn label(sample: &mut Sample, cpu_share: f64, split: Split) {
    let mut words: Vec<String> =
        Some(std::mem::take(&mut sample.note)).into_iter().filter(|note| !note.is_empty()).collect();
    if cpu_share > CPU_SHARE_MAX {
        words.push(format!("CPU bound: {:.0} % of all processors", cpu_share * 100.0));
    }
    words.push(format!("user {:.2} s, system {:.2} s", split.user_seconds, split.system_seconds));
    sample.note = words.join("; ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_run_starts_after_the_budget_and_what_is_left_stays_unsettled() {
        let dir = tempfile::tempdir().unwrap();
        let started = Instant::now();
        let pauses = Pauses { memory: Duration::ZERO, quiet_max: Duration::ZERO };
        let axes = Axes { sets: vec!["2x1KiB".into()], ..Axes::default() };
        let planned = Options { axes, rivals: vec!["cp".into()], out: dir.path().join("out"), ..Options::default() };
        let plan = Plan::of(&planned).unwrap();
        let options = Options { budget: Some(Duration::ZERO), ..planned };
        let mut sweep = Sweep {
            options: &options,
            plan: &plan,
            compare: &compare::Options::default(),
            tools: vec!["cp".into()],
            journal: Journal::open(&options.out, &plan).unwrap(),
            workspace: Workspace::create(Some(dir.path()), pauses, &mut |_| ()).unwrap(),
            report: Some(Report::default()),
            cancel: &AtomicBool::new(false),
            progress: &mut |_| (),
            started,
            seconds_done: 0.0,
        };
        let (path, delivered) = (sweep.workspace.path().to_owned(), sweep.workspace.path().join("delivered"));
        fs::create_dir(&delivered).unwrap();
        let bed = Bed { workspace: &path, delivered: &delivered, lab: None };
        let tool = tool::rival("cp").unwrap();
        let mut lanes = [Lane { tool: tool.as_ref(), server: None, failures: 0 }];
        sweep.measure_ceilings(&bed, &plan.conditions[0]).unwrap();
        sweep.run_cell(&bed, &mut lanes, &plan.cells[0]).unwrap();
        assert!(sweep.journal.samples().is_empty(), "{:?}", sweep.journal.samples());
        assert!(!sweep.is_cell_settled(&plan.cells[0]) && !sweep.is_settled());
    }
}
