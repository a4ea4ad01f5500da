//! Deterministic simulation: the production send, receive and commit code between two simulated hosts.
//!
//! A seed makes a small source, options, and faults for up to four attempts of the same job; `disk` and `network` put them
//! in, `reference` is the specification that every state is held against, the states of `image` after a power loss
//! included. In mode `safety` only what may never happen is looked for; in mode `liveness` a clean attempt follows the
//! faults, and has to end with everything in place.
//!
//! What the generator cannot do: interleave two threads between two calls to storage that no lock separates; lose part of
//! a rename; return wrong data from storage that said that it was synced.

mod disk;
mod faults;
mod image;
mod network;
mod reference;
mod scenario;
mod transfer;

use crate::record::{Outcome, Tally};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use disk::{SimulatedDisk, Storage};
use faults::DiskFaults;
use mover::Ending;
use os::simulation::World;
use reference::Reference;
use scenario::{Change, Fault, Random, Scenario};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use transfer::{Attempt, NetworkFaults, Sides, Spec};

/// Enough for the longest transfers there are here; a world that takes more is stuck.
const STEPS_MAX: u64 = 3_000_000;
/// States after a power loss that are looked at where there are too many for all of them.
const LOSS_SAMPLES: usize = 24;

#[derive(Args)]
pub struct Arguments {
    /// How many seeds
    #[arg(long, default_value_t = 400)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// What is looked for
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Folder for the simulated disks, on a tmpfs
    #[arg(long, default_value = "/dev/shm")]
    work_dir: PathBuf,
    /// Ends at the first violation
    #[arg(long)]
    stop: bool,
    /// Tells each attempt
    #[arg(long)]
    verbose: bool,
}

#[derive(Args)]
pub struct CrashArguments {
    /// How many transfers are cut off at every call
    #[arg(long, default_value_t = 2)]
    scenarios: u64,
    /// The number of the first
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Folder for the simulated disks, on a tmpfs
    #[arg(long, default_value = "/dev/shm")]
    work_dir: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    Safety,
    Liveness,
}

/// What one seed showed.
#[derive(Default)]
struct Seen {
    fired: Vec<(&'static str, &'static [&'static str], bool)>,
    /// States after a power loss that were judged.
    states: u64,
    attempts: u64,
    broken: Option<String>,
}

pub fn run(arguments: &Arguments) -> Result<Tally> {
    let mode =
        arguments.mode.map_or("", |mode| if mode == Mode::Safety { " --mode safety" } else { " --mode liveness" });
    let mut tally = Tally::new(&format!("trial simulate --seeds {}{mode}", arguments.seeds));
    let began = Instant::now();
    let dir = folder(&arguments.work_dir)?;
    let modes = arguments.mode.map_or(vec![Mode::Safety, Mode::Liveness], |mode| vec![mode]);
    for mode in modes {
        campaign(arguments, mode, dir.path(), &mut tally)?;
    }
    tally.seconds = began.elapsed().as_secs_f64();
    Ok(tally)
}

/// Power loss before and after every call to storage of a few transfers, every legal state of the disk looked at, and a
/// clean attempt from one of them.
pub fn crash_states(arguments: &CrashArguments) -> Result<Tally> {
    let mut tally = Tally::new(&format!("trial crash-states --scenarios {}", arguments.scenarios));
    let began = Instant::now();
    let dir = folder(&arguments.work_dir)?;
    let (mut states, mut calls) = (0, 0);
    for number in arguments.first..arguments.first + arguments.scenarios {
        let replay = format!("cargo run --release -p trial -- crash-states --first {number} --scenarios 1");
        for call in 1.. {
            let mut is_fired = false;
            for is_after in [false, true] {
                let faults = DiskFaults { kill: Some((call, is_after)), ..DiskFaults::default() };
                let seen = run_with(
                    number,
                    Mode::Liveness,
                    &dir.path().join("one"),
                    Some(vec![Fault::PowerLoss(faults)]),
                    false,
                )?;
                is_fired |= seen.fired.iter().any(|(_, _, is_fired)| *is_fired);
                states += seen.states;
                let outcome = match (seen.broken, is_fired) {
                    (Some(broken), _) => Outcome::Violated(format!("call {call}, after {is_after}: {broken}")),
                    (None, true) => Outcome::Survived,
                    (None, false) => continue,
                };
                tally.count("power loss at every call", &["F089"], &outcome, &replay);
            }
            if !is_fired {
                break;
            }
            calls += 1;
        }
    }
    tally.figures.insert("calls cut off".into(), calls.to_string());
    tally.figures.insert("states after a power loss".into(), states.to_string());
    tally.seconds = began.elapsed().as_secs_f64();
    Ok(tally)
}

/// A folder for disks. The model knows files by their inodes, which other file systems give to new files again.
fn folder(work_dir: &Path) -> Result<tempfile::TempDir> {
    const MAGIC_TMPFS: i64 = 0x0102_1994;
    if !rustix::fs::statfs(work_dir).is_ok_and(|facts| facts.f_type == MAGIC_TMPFS) {
        bail!("{} is not on a tmpfs; name a folder that is by --work-dir", work_dir.display());
    }
    let dir = tempfile::Builder::new().prefix("thalweg-trial-").tempdir_in(work_dir);
    dir.with_context(|| format!("make a folder in {}; name another by --work-dir", work_dir.display()))
}

fn campaign(arguments: &Arguments, mode: Mode, dir: &Path, tally: &mut Tally) -> Result<()> {
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.seeds;
    let shared = Mutex::new((std::mem::take(tally), 0u64, 0u64));
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get());
    let work = |worker: usize| -> Result<()> {
        pin(worker);
        loop {
            let seed = next.fetch_add(1, Relaxed);
            let is_over = arguments.stop && shared.lock().unwrap().0.violated() > 0;
            if seed >= end || is_over {
                return Ok(());
            }
            let seen = run_with(seed, mode, &dir.join(format!("{mode:?}-{seed}")), None, arguments.verbose)?;
            let mut shared = shared.lock().unwrap();
            shared.1 += seen.states;
            shared.2 += seen.attempts;
            note(&mut shared.0, seed, mode, &seen);
        }
    };
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })?;
    let (counted, states, attempts) = shared.into_inner().unwrap();
    *tally = counted;
    let name = format!("{mode:?}").to_lowercase();
    tally.figures.insert(format!("{name}: seeds"), arguments.seeds.to_string());
    tally.figures.insert(format!("{name}: attempts"), attempts.to_string());
    tally.figures.insert(format!("{name}: states after a power loss"), states.to_string());
    Ok(())
}

/// Threads of one world run one at a time: on one processor they hand over quickest.
fn pin(worker: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(worker);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

fn note(tally: &mut Tally, seed: u64, mode: Mode, seen: &Seen) {
    let mode = format!("{mode:?}").to_lowercase();
    let replay = format!("cargo run --release -p trial -- simulate --mode {mode} --first {seed} --seeds 1");
    for (class, faults, is_fired) in &seen.fired {
        let outcome = match (&seen.broken, is_fired) {
            (Some(broken), _) => Outcome::Violated(format!("seed {seed}: {broken}")),
            (None, true) => Outcome::Survived,
            (None, false) => Outcome::Inert,
        };
        tally.count(class, faults, &outcome, &replay);
    }
    if seen.fired.is_empty() {
        let outcome = seen.broken.as_ref().map_or(Outcome::Survived, |broken| Outcome::Violated(broken.clone()));
        tally.count("simulated transfer without fault", &[], &outcome, &replay);
    }
}

/// `faults` stand for those that the seed draws.
fn run_with(seed: u64, mode: Mode, dir: &Path, faults: Option<Vec<Fault>>, is_told: bool) -> Result<Seen> {
    std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
    let seen = World::run(seed, STEPS_MAX, |world| {
        let mut run = Run::new(seed, world, dir)?;
        run.scenario.faults = faults.unwrap_or(run.scenario.faults);
        run.is_told = is_told;
        run.all(mode)
    });
    std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    seen
}

/// One seed under way.
struct Run<'a> {
    world: &'a Arc<World>,
    dir: &'a Path,
    random: Random,
    scenario: Scenario,
    reference: Arc<Reference>,
    root: PathBuf,
    disk: Arc<SimulatedDisk>,
    boot: u8,
    seen: Seen,
    /// Of the attempt under way, for what waits for its moment; 0 between attempts.
    number: Arc<AtomicU64>,
    /// Tell each attempt.
    is_told: bool,
}

impl<'a> Run<'a> {
    fn new(seed: u64, world: &'a Arc<World>, dir: &'a Path) -> Result<Run<'a>> {
        let mut random = Random(seed);
        let reference = Arc::new(Reference::default());
        let scenario = scenario::make(&mut random, dir, &reference)?;
        let root = dir.join("disk-0");
        let disk = SimulatedDisk::new(&root, scenario.is_journaled, DiskFaults::default())?;
        Ok(Run {
            world,
            dir,
            random,
            scenario,
            reference,
            root,
            disk,
            boot: 0,
            seen: Seen::default(),
            number: Arc::default(),
            is_told: false,
        })
    }

    fn all(mut self, mode: Mode) -> Result<Seen> {
        for fault in self.scenario.faults.clone() {
            if self.seen.broken.is_none() {
                let broken = self.attempt(&fault, false)?;
                self.seen.broken =
                    broken.map(|broken| format!("{broken} (attempt {} under {fault:?})", self.seen.attempts));
            }
        }
        if mode == Mode::Liveness && self.seen.broken.is_none() {
            self.seen.broken = self.attempt(&Fault::None, true)?.map(|broken| format!("{broken} (clean attempt)"));
        }
        Ok(self.seen)
    }

    /// Runs one attempt and judges what it left. Returns what was broken.
    fn attempt(&mut self, fault: &Fault, is_last: bool) -> Result<Option<String>> {
        self.reference.next_attempt();
        self.seen.attempts += 1;
        self.number.store(self.seen.attempts, Relaxed);
        let (sides, sender_disk) = self.sides(fault)?;
        self.disturb(fault, &sides)?;
        let network = if let Fault::Network(network, ..) = fault { network.clone() } else { NetworkFaults::default() };
        let source = self.dir.join("source");
        let spec = Spec {
            source: &source,
            root: &self.root,
            options: self.scenario.options.clone(),
            streams: self.scenario.streams,
            network,
        };
        let attempt = transfer::attempt(self.world, &sides, &self.reference, &spec);
        self.number.store(0, Relaxed);
        if self.is_told {
            println!("{:?}", self.scenario.options);
            println!(
                "attempt {}: {fault:?}\n  {attempt:?}\n  receiver's calls so far: {}",
                self.seen.attempts,
                self.disk.calls()
            );
        }
        let is_fired = match fault {
            Fault::None => false,
            Fault::KillSender(_) => !sides.sender.is_alive(),
            Fault::SourceChanges(..) => true,
            Fault::Network(..) => attempt.network_fired > 0,
            Fault::SenderDisk(_) => sender_disk.is_some_and(|disk| disk.fired() > 0),
            _ => self.disk.fired() > 0,
        };
        if !matches!(fault, Fault::None) {
            let (class, faults) = fault.class();
            self.seen.fired.push((class, faults, is_fired));
        }
        let broken = self.judge(fault, &attempt, &sides, is_last)?;
        if matches!(fault, Fault::PowerLoss(_)) && !sides.receiver.is_alive() {
            self.lose_power()?;
        }
        self.disk.set_faults(DiskFaults::default());
        Ok(broken)
    }

    /// The hosts of an attempt, with their disks' faults counted from now on.
    fn sides(&mut self, fault: &Fault) -> Result<(Sides, Option<Arc<SimulatedDisk>>)> {
        let receiver = self.world.host(Some(self.disk.clone()), [self.boot; 16]);
        self.disk.belongs_to(self.world, &receiver);
        if let Fault::KillReceiver(faults) | Fault::PowerLoss(faults) | Fault::ReceiverDisk(faults, ..) = fault {
            let calls = self.disk.calls();
            let mut faults = faults.clone();
            faults.kill = faults.kill.map(|(call, is_after)| (call + calls, is_after));
            faults.error = faults.error.map(|(call, kind, errno)| (call + calls, kind, errno));
            self.disk.set_faults(faults);
        }
        let mut sender_disk = None;
        if let Fault::SenderDisk(faults) = fault {
            sender_disk = Some(SimulatedDisk::new(&self.dir.join("source"), true, faults.clone())?);
        }
        let disk = sender_disk.clone().map(|disk| disk as Arc<dyn os::simulation::Disk>);
        Ok((Sides { sender: self.world.host(disk, [255; 16]), receiver }, sender_disk))
    }

    /// Starts what happens at a moment instead of at a call.
    fn disturb(&mut self, fault: &Fault, sides: &Sides) -> Result<()> {
        let world = self.world.clone();
        match fault {
            Fault::KillSender(after) => {
                let (after, host) = (*after, sides.sender.clone());
                os::thread::spawn("kill", move || {
                    world.sleep(after);
                    world.kill(&host);
                });
            }
            Fault::SourceChanges(after, change) if !self.scenario.files.is_empty() => {
                let path = self.scenario.files[self.random.below(self.scenario.files.len() as u64) as usize].clone();
                let change = *change;
                let (after, source, reference) = (*after, self.dir.join("source"), self.reference.clone());
                let mut random = Random(self.random.next());
                let seconds = 2_000_000 + self.seen.attempts as i64;
                let (number, current) = (self.seen.attempts, self.number.clone());
                os::thread::spawn("change", move || {
                    world.sleep(after);
                    if current.load(Relaxed) != number {
                        return;
                    }
                    let at = source.join(std::ffi::OsStr::from_bytes(&path));
                    let size = std::fs::metadata(&at).map_or(0, |status| status.len());
                    let written = match change {
                        Change::InPlace => scenario::write_sized(&mut random, &at, seconds, size),
                        Change::Rewritten => scenario::write(&mut random, &at, seconds),
                    };
                    if let Ok(version) = written {
                        reference.source_has(&path, version);
                    }
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn judge(&mut self, fault: &Fault, attempt: &Attempt, sides: &Sides, is_last: bool) -> Result<Option<String>> {
        if let Some(broken) = self.reference.broken() {
            return Ok(Some(broken));
        }
        if let Some(stuck) = &attempt.overdue {
            return Ok(Some(format!("I11: no end in sight; {stuck}")));
        }
        for host in [&sides.sender, &sides.receiver] {
            if !self.world.is_empty(host) {
                return Ok(Some(format!("I11: threads are left after the end; {}", self.world.stuck())));
            }
        }
        // A flip may turn a frame into one that has to be refused.
        let may_refuse = matches!(fault, Fault::Network(network, ..) if network.stream.flip_at.is_some());
        if let Some(refusal) = attempt.refused.as_ref().filter(|_| !may_refuse && matches!(fault, Fault::None)) {
            return Ok(Some(format!("one side refused the other: {refusal}")));
        }
        if let Err(broken) = self.judge_disk() {
            return Ok(Some(broken));
        }
        let [listed, done, skipped, failed] = attempt.counts;
        if let Some(Ending::Finished(_)) = &attempt.ending
            && listed != done + skipped + failed
        {
            return Ok(Some(format!("I6: {listed} listed, {done} done, {skipped} skipped, {failed} failed")));
        }
        if is_last {
            return self.judge_end(attempt);
        }
        Ok(None)
    }

    /// What a reader sees now, and what a power loss now may leave.
    fn judge_disk(&mut self) -> Result<(), String> {
        let now = Storage::of_directory(&self.root).map_err(|e| format!("{e:#}"))?.image();
        self.reference.check(&now, true).map_err(|broken| format!("{broken} (as a reader sees it)"))?;
        let mut random = self.random.clone();
        let reference = self.reference.clone();
        let storage = self.disk.storage();
        self.seen.states += storage.each_loss(LOSS_SAMPLES, &mut || random.next(), &mut |storage| {
            reference.check(&storage.image(), true).map_err(|broken| format!("{broken} (after a power loss)"))
        })?;
        Ok(())
    }

    fn judge_end(&self, attempt: &Attempt) -> Result<Option<String>> {
        if !matches!(attempt.ending, Some(Ending::Finished(_))) || attempt.counts[3] > 0 {
            return Ok(Some(format!("I11: faults stopped and the job did not succeed: {attempt:?}")));
        }
        let now = Storage::of_directory(&self.root)?.image();
        Ok(self.reference.check_end(&now, self.seen.attempts == 1).err())
    }

    /// The host boots again from one of the states that its disk may have.
    fn lose_power(&mut self) -> Result<()> {
        let mut random = self.random.clone();
        let storage = self.disk.storage().some_loss(&mut || random.next());
        self.random = random;
        self.boot += 1;
        self.root = self.dir.join(format!("disk-{}", self.boot));
        storage.materialise(&self.root)?;
        self.disk = SimulatedDisk::new(&self.root, self.scenario.is_journaled, DiskFaults::default())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(seeds: u64) -> Arguments {
        Arguments { seeds, first: 1, mode: None, work_dir: "/dev/shm".into(), stop: false, verbose: false }
    }

    #[test]
    fn seeds_pass_and_every_class_of_fault_fires() {
        let tally = run(&arguments(120)).unwrap();
        assert_eq!(tally.violated(), 0, "{}", tally.text());
        assert!(tally.classes.values().all(|class| class.survived > 0), "{}", tally.text());
        assert!(tally.classes.len() >= 11, "{}", tally.text());
    }

    #[test]
    fn a_seed_runs_the_same_way_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let steps = |name: &str| {
            let dir = dir.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            World::run(5, STEPS_MAX, |world| {
                let seen = Run::new(5, world, &dir).unwrap().all(Mode::Liveness).unwrap();
                (world.steps(), world.now_ns(), seen.states)
            })
        };
        assert_eq!(steps("first"), steps("second"));
    }
}
