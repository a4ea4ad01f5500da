//! One set after the other, one round after the other, one tool after the other.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use emulator::Snapshot;
use lab::record::reasons_to_void;

use super::journal::Journal;
use super::record::{Report, SetRecord, ToolRecord};
use super::{Options, Way};
use crate::account::{Machine, own_cpu_seconds};
use crate::counters::Hosts;
use crate::dataset::{self, Plan};
use crate::environment::Program;
use crate::error::{Error, Kind, Result};
use crate::image::Image;
use crate::manifest::Manifest;
use crate::process::{Finished, Gated, Ready, Server};
use crate::sample::{Sample, State, Usage};
use crate::tool::thalweg::bottleneck;
use crate::tool::{self, Bed, Class, Host, Set, Tool};
use crate::workspace::{Workspace, remove_tree};
use crate::{ceiling, reference, report};

/// Failures in a row after which a tool is left out of the rest of a set.
pub const FAILURES_MAX: u32 = 2;
/// Of what a failed client said, kept as its note.
const NOTE_CHARS_MAX: usize = 300;

pub struct Race<'a> {
    pub options: &'a Options,
    pub workspace: &'a Workspace,
    pub bed: &'a Bed<'a>,
    pub image: Option<Image>,
    /// None without two hosts.
    pub hosts: Option<Hosts>,
    pub cancel: &'a AtomicBool,
    pub progress: &'a mut dyn FnMut(&str),
    pub journal: Option<Journal>,
    pub report: Report,
}

/// A tool in a race, with its server.
pub struct Lane<'a> {
    pub tool: &'a dyn Tool,
    pub server: Option<Server>,
    pub failures: u32,
}

/// Those that race, in the order of a round: rounds with an odd number reverse it.
pub fn in_turn<T>(racers: impl IntoIterator<Item = T>, round: u32) -> Vec<T> {
    let mut racers: Vec<T> = racers.into_iter().collect();
    if !round.is_multiple_of(2) {
        racers.reverse();
    }
    racers
}

impl Race<'_> {
    pub fn run(&mut self, plans: &[Plan], tools: &[&dyn Tool]) -> Result<()> {
        let options = self.options;
        for (name, plan) in options.sets.iter().zip(plans) {
            for way in &options.ways {
                self.race_set(name, plan, tools, *way)?;
                self.save()?;
            }
        }
        if self.options.with_ceilings { self.measure_ceilings() } else { Ok(()) }
    }

    fn race_set(&mut self, spec: &str, plan: &Plan, tools: &[&dyn Tool], way: Way) -> Result<()> {
        let name = &if way == Way::Fetch { format!("{spec} back") } else { spec.to_owned() };
        let totals = plan.totals();
        let (files, bytes) = (totals.files, totals.bytes);
        self.report.sets.push(SetRecord { name: name.to_owned(), files, directories: totals.directories, bytes });
        let mut pending = (0..=self.options.rounds).flat_map(|round| tools.iter().map(move |tool| (round, tool)));
        if pending.all(|(round, tool)| self.is_done(name, *tool, round)) {
            return Ok(());
        }
        // Source, delivery, and room for the ballast's margin.
        self.workspace.check_space(2 * totals.space_bytes + (1 << 30))?;
        (self.progress)(&format!("{name}: writing {files} files"));
        let mut set = Set { name: name.to_owned(), files, bytes, source: self.workspace.path().join("source") };
        dataset::run(
            &dataset::Options { seed: self.options.seed, ..dataset::Options::new(spec, &set.source) },
            self.progress,
        )?;
        let truth = Manifest::of_tree(&set.source, dataset::cores())?;
        let mut lanes = Vec::new();
        for &tool in tools {
            self.renew_image()?;
            let server = self.set_up(tool).map(|server| server.filter(|_| self.image.is_none()));
            match server {
                Ok(server) => lanes.push(Lane { tool, server, failures: 0 }),
                Err(error) if error.kind == Kind::Cancelled || tool.is_ours() => return Err(error),
                Err(error) => self.report.notes.push(format!("{name}: {}: {}", tool.name(), error.chain())),
            }
        }
        if way == Way::Fetch {
            lanes.retain(|lane| lane.tool.fetch(self.bed, &set, &set.source).is_some());
            set.source = self.put_there(&lanes, &set, &truth)?;
        }
        for round in 0..=self.options.rounds {
            for lane in in_turn(lanes.iter_mut().filter(|lane| lane.failures < FAILURES_MAX), round) {
                if !self.is_done(name, lane.tool, round) {
                    self.run_lane(lane, &set, &truth, round)?;
                }
            }
        }
        drop(lanes);
        remove_tree(&set.source)
    }

    /// What is going to be fetched, put where servers have it by the first tool. The source is not needed after that.
    fn put_there(&mut self, lanes: &[Lane], set: &Set, truth: &Manifest) -> Result<PathBuf> {
        let Some(lane) = lanes.first() else { return Err(Error::usage(&set.name, "no tool fetches")) };
        (self.progress)(&format!("{}: {} puts it there", set.name, lane.tool.name()));
        let there = self.bed.delivered.join("there");
        create_open_dir(&there)?;
        let client = lane.tool.client(self.bed, set, &there);
        let class = lane.tool.class();
        let gated = Gated::prepare(&client, |gate| self.bed.at(Host::Client, class, gate), self.workspace.path())?;
        let finished = gated.run(self.options.limit, lane.server.as_ref(), self.cancel)?;
        let cause = failure(&finished, self.options.limit).or_else(|| {
            let differences = truth.differences_at(&there, dataset::cores());
            (!differences.is_empty()).then(|| differences.join(", "))
        });
        match cause {
            Some(cause) => Err(Error::new(Kind::Failed, "put there with", lane.tool.name(), cause)),
            None => remove_tree(&set.source).map(|()| there),
        }
    }

    fn measure_ceilings(&mut self) -> Result<()> {
        match reference::iperf_version() {
            Ok(version) => self.record_reference("iperf3", &version, reference::IPERF_SETTINGS),
            Err(error) => self.report.missing.push(error.chain()),
        }
        self.record_reference("create + rename", "", reference::CREATE_SETTINGS);
        self.record_reference("write", "", reference::WRITE_SETTINGS);
        let has_network = self.bed.lab.is_some() && reference::iperf_version().is_ok();
        for round in 0..=self.options.rounds {
            (self.progress)(&format!("ceilings: round {round} of {}", self.options.rounds));
            if has_network {
                let mut found = reference::network(self.bed, round, self.cancel)?;
                found.iter_mut().for_each(|sample| ceiling::judge(sample, self.bed.lab));
                self.report.samples.extend(found);
            }
            self.report.samples.extend(reference::storage(self.workspace, round)?);
            if self.cancel.load(std::sync::atomic::Ordering::Relaxed) {
                return Err(Error::cancelled("measure", "ceilings"));
            }
        }
        Ok(())
    }

    pub fn save(&self) -> Result<()> {
        match &self.options.out {
            Some(dir) => report::write(&self.report, dir),
            None => Ok(()),
        }
    }

    /// Whether an interrupted race has measured this already.
    fn is_done(&self, set: &str, tool: &dyn Tool, round: u32) -> bool {
        let is_it = |sample: &Sample| {
            sample.set == set && sample.round == round && sample.tool == tool.name() && sample.class == tool.class()
        };
        self.report.samples.iter().any(is_it)
    }

    /// No server may be using the old one.
    fn renew_image(&mut self) -> Result<()> {
        self.image.as_mut().map_or(Ok(()), Image::renew)
    }

    /// Everything between an installed tool and its first transfer.
    pub fn set_up(&mut self, tool: &dyn Tool) -> Result<Option<Server>> {
        let started = Instant::now();
        tool.prepare(self.bed)?;
        let server = match tool.server(self.bed)? {
            Some(found) => Some(self.start_server(tool, found)?),
            None => None,
        };
        if server.is_some() {
            tool.enrol(self.bed)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        if let Some(record) = self.record_of(tool) {
            record.setup_seconds.get_or_insert(seconds);
        }
        Ok(server)
    }

    pub fn start_server(&mut self, tool: &dyn Tool, (command, ready): (Command, Ready)) -> Result<Server> {
        self.record(tool, |record| &mut record.server, &command);
        let log = self.workspace.path().join(format!("{}.log", tool.name()));
        let mut wrapped = self.bed.at(Host::Server, tool.class(), &command)?;
        Server::start(&mut wrapped, &ready, &log, self.cancel)
    }

    fn run_lane(&mut self, lane: &mut Lane, set: &Set, truth: &Manifest, round: u32) -> Result<()> {
        let tool = lane.tool;
        let delivery = self.bed.delivered.join(format!("{}-{round}", tool.name().replace([' ', '(', ')'], "_")));
        let is_back = sender(self.bed, set) == Host::Server;
        let fetch = if is_back { tool.fetch(self.bed, set, &delivery) } else { None };
        let client = fetch.unwrap_or_else(|| tool.client(self.bed, set, &delivery));
        let set_name = set.name.clone();
        self.record(tool, |record| record.clients.entry(set_name).or_default(), &client);
        self.renew_image()?;
        create_open_dir(&delivery)?;
        if let Some(started) = self.server_of_run(lane, set, &delivery)? {
            match started {
                Ok(server) => lane.server = Some(server),
                Err(error) if error.kind == Kind::Cancelled => return Err(error),
                Err(error) => {
                    lane.failures = FAILURES_MAX;
                    self.report.notes.push(format!("{}: {} left out: {}", set.name, tool.name(), error.chain()));
                    return remove_tree(&delivery);
                }
            }
        }
        let mut sample = self.run_once(lane, set, &client, round)?;
        ceiling::judge(&mut sample, self.bed.lab.filter(|_| tool.class() == Class::Network));
        sample.verify(truth, &delivery);
        if self.image.is_some() {
            lane.server = None;
        }
        lane.failures = if sample.state == State::Failed { lane.failures + 1 } else { 0 };
        (self.progress)(&shown_sample(&sample));
        if lane.failures == FAILURES_MAX {
            let note = format!("{}: {} left out after {FAILURES_MAX} failures: {}", set.name, tool.name(), sample.note);
            self.report.notes.push(note);
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&sample)?;
        }
        self.report.samples.push(sample);
        // Kept before: otherwise the run would be made again wherever its delivery cannot be removed.
        remove_tree(&delivery)
    }

    /// Starts a server for this run alone, if the tool or a new file system needs it; the one before has the port.
    fn server_of_run(&mut self, lane: &mut Lane, set: &Set, delivery: &Path) -> Result<Option<Result<Server>>> {
        if let Some(found) = lane.tool.server_of_run(self.bed, set, delivery)? {
            lane.server = None;
            return Ok(Some(self.start_server(lane.tool, found)));
        }
        Ok(if self.image.is_some() { self.set_up(lane.tool).transpose() } else { None })
    }

    pub fn run_once(&self, lane: &Lane, set: &Set, client: &Command, round: u32) -> Result<Sample> {
        let (files, bytes) = set.footprint();
        let ballast = self.workspace.ballast(files, bytes)?;
        let class = lane.tool.class();
        let mut gated = Gated::prepare(client, |gate| self.bed.at(Host::Client, class, gate), self.workspace.path())?;
        let giving = ballast.give()?;
        let server = lane.server.as_ref();
        let processes = server.map_or(0, Server::processes);
        let server_before = server.map_or(0.0, Server::cpu_seconds);
        let emulated = self.emulated(class);
        let hosts = self.hosts.as_ref().filter(|_| class == Class::Network);
        let network = hosts.map(|hosts| hosts.begin(sender(self.bed, set)));
        if let Some(network) = &network {
            gated.watch(network.clone());
        }
        let (machine, own) = (Machine::read(), own_cpu_seconds());
        let finished = gated.run(self.options.limit, server, self.cancel)?;
        drop(giving);
        let after = Machine::read();
        let own = own_cpu_seconds() - own;
        if let Some(server) = server {
            server.settle(processes);
        }
        let network = network.map(|begun| begun.end(finished.first_byte_seconds));
        let server_usage = server.map(|server| Usage {
            cpu_seconds: server.cpu_seconds() - server_before,
            rss_bytes_max: finished.server_rss_bytes_max,
        });
        let used = finished.cpu_seconds + server_usage.map_or(0.0, |usage| usage.cpu_seconds) + own;
        let (failed, void) = (failure(&finished, self.options.limit), self.void(class, emulated));
        let state = match (&failed, &void, round) {
            (Some(_), ..) => State::Failed,
            (None, Some(_), _) => State::Void,
            (None, None, 0) => State::Discarded,
            (None, None, _) => State::Counted,
        };
        let note = failed.or(void);
        Ok(Sample {
            condition: String::new(),
            set: set.name.clone(),
            class,
            tool: lane.tool.name().to_owned(),
            is_ours: lane.tool.is_ours(),
            round,
            state,
            seconds: finished.seconds,
            reported_seconds: lane.tool.reported_seconds(&finished.stdout),
            bytes: set.bytes,
            files: set.files,
            client: Usage { cpu_seconds: finished.cpu_seconds, rss_bytes_max: finished.rss_bytes_max },
            server: server_usage,
            network,
            foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - used).max(0.0),
            steal_seconds: after.steal_seconds - machine.steal_seconds,
            bottleneck: lane.tool.is_ours().then(|| bottleneck(&finished.stdout)).flatten(),
            note: note.unwrap_or_default(),
        })
    }

    /// What the emulator did so far; none where none is in the way.
    pub fn emulated(&self, class: Class) -> Option<Snapshot> {
        self.bed.lab.filter(|_| class == Class::Network).and_then(|lab| lab.snapshot())
    }

    /// Why a run says more about the emulator than about the tool.
    pub fn void(&self, class: Class, before: Option<Snapshot>) -> Option<String> {
        let reasons = reasons_to_void(self.bed.lab?.scenario(), &before?, &self.emulated(class)?);
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Keeps a command, as shown to people, and the program that it starts in the record of its tool.
    pub fn record(&mut self, tool: &dyn Tool, place: impl FnOnce(&mut ToolRecord) -> &mut String, command: &Command) {
        let name = shown_program(tool, command);
        let shown = shown_command(command, &name, self.workspace.path());
        if let Some(record) = self.record_of(tool) {
            *place(record) = shown;
            if !record.programs.contains_key(&name) {
                let found = tool::found(command.get_program()).and_then(|path| Program::read(&path));
                record.programs.extend(found.map(|program| (name, program)));
            }
        }
    }

    fn record_of(&mut self, tool: &dyn Tool) -> Option<&mut ToolRecord> {
        let (name, class) = (tool.name(), tool.class());
        self.report.tools.iter_mut().find(|record| record.name == name && record.class == class)
    }

    pub fn record_reference(&mut self, name: &str, version: &str, settings: &str) {
        self.report.tools.push(ToolRecord {
            name: name.to_owned(),
            class: Class::Reference,
            version: version.to_owned(),
            protection: settings.to_owned(),
            is_encrypted: false,
            is_digested: false,
            setup_steps: Vec::new(),
            setup_seconds: None,
            programs: BTreeMap::new(),
            server: String::new(),
            clients: BTreeMap::new(),
        });
    }
}

/// The host that the content leaves: what is fetched lies where servers have their root.
fn sender(bed: &Bed, set: &Set) -> Host {
    if set.source.starts_with(bed.delivered) { Host::Server } else { Host::Client }
}

/// A server may have to write as another user than this one.
pub fn create_open_dir(dir: &Path) -> Result<()> {
    fs::create_dir(dir).map_err(Error::io("create", dir))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).map_err(Error::io("open up", dir))
}

pub fn failure(finished: &Finished, limit: Duration) -> Option<String> {
    if finished.is_killed {
        return Some(format!("killed at the limit of {} s", limit.as_secs()));
    }
    match finished.status {
        Some(status) if status.success() => None,
        status => {
            let said = if finished.stderr.trim().is_empty() { &finished.stdout } else { &finished.stderr };
            let said: String = said.trim().replace('\n', " | ").chars().take(NOTE_CHARS_MAX).collect();
            Some(format!("{}: {said}", status.map_or("no status".into(), |status| status.to_string())))
        }
    }
}

pub fn shown_sample(sample: &Sample) -> String {
    let (set, round, tool) = (&sample.set, sample.round, &sample.tool);
    if sample.state == State::Failed {
        return format!("{set}: round {round}: {tool} failed: {}", sample.note);
    }
    let (gbit, files) = (sample.gbit_per_second(), sample.files_per_second());
    let mut remarks = String::new();
    if sample.is_disturbed() {
        remarks += ", disturbed";
    }
    if sample.state == State::Void {
        remarks += &format!(", void: {}", sample.note);
    }
    format!("{set}: round {round}: {tool} {:.3} s, {gbit:.2} Gbit/s, {files:.0} files/s{remarks}", sample.seconds)
}

/// A build of ours is called by its label, whatever its file is called; another program without its folder.
fn shown_program(tool: &dyn Tool, command: &Command) -> String {
    if tool.starts_ours(command.get_program()) {
        return tool.name().trim_end_matches(" (local)").to_owned();
    }
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    program.to_string_lossy().into_owned()
}

/// The command as a person would type it, with the run's folder as $WORK.
fn shown_command(command: &Command, program: &str, workspace: &Path) -> String {
    let mut words = vec![program.to_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    let quote = |word: &String| {
        if word.contains([' ', '"', '*']) { format!("'{word}'") } else { word.clone() }
    };
    let line = words.iter().map(quote).collect::<Vec<_>>().join(" ");
    line.replace(&*workspace.to_string_lossy(), "$WORK")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_leaves_the_client_and_what_is_fetched_the_server() {
        let bed = Bed { workspace: Path::new("/w"), delivered: Path::new("/w/delivered"), lab: None };
        let of = |source: &str| sender(&bed, &Set { name: "s".into(), files: 1, bytes: 1, source: source.into() });
        let senders = ["/w/source", "/w/delivered/there", "gen:1x1MiB"].map(of);
        assert_eq!(senders, [Host::Client, Host::Server, Host::Client]);
    }

    #[test]
    fn each_is_before_the_other_in_every_second_round() {
        let order = |round| in_turn("abc".chars(), round).into_iter().collect::<String>();
        assert_eq!([0, 1, 2].map(order), ["abc", "cba", "abc"]);
    }

    #[test]
    fn commands_are_shown_without_the_places_of_this_machine() {
        let mut command = Command::new("/somewhere/s6");
        command.args(["cp", "/dev/shm/thalweg-bench-7-8/source/", "far:x y/"]);
        let ours = tool::ours(&[tool::Variant::new("/somewhere/s6")]);
        let name = shown_program(ours[0].as_ref(), &command);
        assert_eq!(
            shown_command(&command, &name, Path::new("/dev/shm/thalweg-bench-7-8")),
            "thalweg cp $WORK/source/ 'far:x y/'"
        );
        let rival = tool::rival("cp").unwrap();
        assert_eq!(shown_program(rival.as_ref(), &Command::new("/bin/cp")), "cp");
    }
}
