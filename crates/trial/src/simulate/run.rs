//! One seed: its attempts one after the other, each with its fault, and the judgement of what each left.
//!
//! Invariants: a fault counts as fired only while the job of its attempt is under way; every attempt is judged, by what is on
//! its disk, by what a power loss would leave of that, and by how it ended.

use super::Mode;
use super::disk::{SimulatedDisk, Storage};
use super::expect::{self, Word};
use super::faults::{Course, DiskFaults, Fired, Kind};
use super::reference::Reference;
use super::scenario::{self, Change, Fault, Moment, Scenario};
use super::seen::{STEPS_MAX, Seen};
use super::transfer::{self, Attempt, NetworkFaults, Sides, Spec};
use crate::random::Random;
use anyhow::{Context, Result};
use mover::Ending;
use os::simulation::World;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// States after a power loss that are looked at where there are too many for all of them.
const LOSS_SAMPLES: usize = 24;
/// `faults` stand for those that the seed draws.
pub fn run_with(
    seed: u64,
    mode: Mode,
    dir: &Path,
    faults: Option<Vec<Fault>>,
    (has_buffers, is_told): (bool, bool),
) -> Result<Seen> {
    std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
    let seen = World::run(seed, STEPS_MAX, |world| {
        let mut run = Run::new(seed, world, dir)?;
        run.scenario.faults = faults.unwrap_or(run.scenario.faults);
        (run.has_buffers, run.is_told) = (has_buffers, is_told);
        run.all(mode)
    });
    std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    seen
}

/// One seed under way.
pub struct Run<'a> {
    world: &'a Arc<World>,
    dir: &'a Path,
    random: Random,
    scenario: Scenario,
    reference: Arc<Reference>,
    root: PathBuf,
    disk: Arc<SimulatedDisk>,
    boot: u8,
    seen: Seen,
    pub has_buffers: bool,
    reads_ahead: bool,
    /// Tell each attempt.
    is_told: bool,
}

impl<'a> Run<'a> {
    pub fn new(seed: u64, world: &'a Arc<World>, dir: &'a Path) -> Result<Run<'a>> {
        let mut random = Random::new(seed);
        let reference = Arc::new(Reference::default());
        let scenario = scenario::make(&mut random, dir, &reference)?;
        let root = dir.join("disk-0");
        let disk = SimulatedDisk::new(&root, scenario.is_journaled, DiskFaults::default())?;
        let (has_buffers, is_told, seen) = (false, false, Seen::default());
        // Of the seeds that notice a bug of the museum none is among these.
        let reads_ahead = matches!(seed % 16, 5 | 15);
        Ok(Run {
            world,
            dir,
            random,
            scenario,
            reference,
            root,
            disk,
            boot: 0,
            seen,
            has_buffers,
            reads_ahead,
            is_told,
        })
    }

    pub fn all(mut self, mode: Mode) -> Result<Seen> {
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
        let course = Arc::new(Course::default());
        let (sides, sender_disk) = self.sides(fault, &course)?;
        let disturbed = self.disturb(fault, &sides, sender_disk.as_ref(), &course);
        let network = match fault {
            Fault::Network(network, ..) => network.clone(),
            Fault::KillSender(Moment::At { delay, .. }) | Fault::SourceChanges(Moment::At { delay, .. }, _) => {
                NetworkFaults { delay: *delay, ..NetworkFaults::default() }
            }
            _ => NetworkFaults::default(),
        };
        let source = self.dir.join("source");
        let spec = Spec {
            source: &source,
            root: &self.root,
            options: self.scenario.options.clone(),
            streams: self.scenario.streams,
            network,
            buffers: self.has_buffers.then_some(self.dir),
            takes_whole: false,
            reads_ahead: self.reads_ahead,
            course,
        };
        if matches!(fault, Fault::ReceiverDisk(DiskFaults { error: Some((_, Kind::Attribute | Kind::Sync, _)), .. }, _))
        {
            self.reference.excuse_attributes(true);
        }
        let attempt = transfer::attempt(self.world, &sides, &self.reference, &spec);
        let fired = match fault {
            Fault::None => Fired::No,
            Fault::KillSender(_) | Fault::SourceChanges(..) => *disturbed.lock().unwrap(),
            Fault::Network(..) => attempt.network_fired,
            Fault::SenderDisk(_) => sender_disk.map_or(Fired::No, |disk| disk.fired()),
            Fault::KillReceiver(_) | Fault::PowerLoss(_) | Fault::ReceiverDisk(..) => self.disk.fired(),
        };
        if self.is_told {
            println!("{:?}", self.scenario.options);
            println!(
                "attempt {}: {fault:?}, fired: {fired:?}\n  {attempt:?}\n  receiver's calls so far: {}, failed: {:?}",
                self.seen.attempts,
                self.disk.calls(),
                self.reference.failures()
            );
        }
        if !matches!(fault, Fault::None) {
            let (class, faults) = fault.class();
            self.seen.fired.push((class, faults, expect::allowed(fault, self.job()), fired));
        }
        let broken = self.judge(fault, fired, &attempt, &sides, is_last)?;
        if matches!(fault, Fault::PowerLoss(_)) && !sides.receiver.is_alive() {
            self.lose_power()?;
        }
        self.disk.set_faults(DiskFaults::default(), &Arc::default());
        Ok(broken)
    }

    /// The hosts of an attempt, with their disks' faults counted from now on.
    fn sides(&mut self, fault: &Fault, course: &Arc<Course>) -> Result<(Sides, Option<Arc<SimulatedDisk>>)> {
        let receiver = self.world.host(Some(self.disk.clone()), [self.boot; 16]);
        self.disk.belongs_to(self.world, &receiver);
        if let Fault::KillReceiver(faults) | Fault::PowerLoss(faults) | Fault::ReceiverDisk(faults, ..) = fault {
            let calls = self.disk.calls();
            let mut faults = faults.clone();
            faults.kill = faults.kill.map(|(call, is_after)| (call + calls, is_after));
            faults.error = faults.error.map(|(call, kind, errno)| (call + calls, kind, errno));
            self.disk.set_faults(faults, course);
        }
        let of_source = match fault {
            Fault::SenderDisk(faults) => Some(faults.clone()),
            Fault::KillSender(Moment::Reading(_)) | Fault::SourceChanges(Moment::Reading(_), _) => {
                Some(DiskFaults::default())
            }
            _ => None,
        };
        let mut sender_disk = None;
        if let Some(faults) = of_source {
            let disk = SimulatedDisk::new(&self.dir.join("source"), true, DiskFaults::default())?;
            disk.set_faults(faults, course);
            sender_disk = Some(disk);
        }
        let disk = sender_disk.clone().map(|disk| disk as Arc<dyn os::simulation::Disk>);
        Ok((Sides { sender: self.world.host(disk, [255; 16]), receiver }, sender_disk))
    }

    /// Prepares what happens at a moment or a read instead of at a call of the receiver. Returns where it says that it came.
    fn disturb(
        &mut self,
        fault: &Fault,
        sides: &Sides,
        sender_disk: Option<&Arc<SimulatedDisk>>,
        course: &Arc<Course>,
    ) -> Arc<Mutex<Fired>> {
        let fired = Arc::new(Mutex::new(Fired::No));
        let (for_action, course) = (fired.clone(), course.clone());
        let (moment, action): (Moment, Box<dyn FnOnce() + Send>) = match fault {
            Fault::KillSender(moment) => {
                // The host holds its disk, which may hold this.
                let (world, host) = (Arc::downgrade(self.world), Arc::downgrade(&sides.sender));
                let kill = move || {
                    if let (false, Some(world), Some(host)) = (course.is_over(), world.upgrade(), host.upgrade()) {
                        *for_action.lock().unwrap() = Fired::InTime;
                        world.kill(&host);
                    }
                };
                (*moment, Box::new(kill))
            }
            Fault::SourceChanges(moment, change) if !self.scenario.files.is_empty() => {
                (*moment, self.change(*change, for_action, course))
            }
            _ => return fired,
        };
        match (moment, sender_disk) {
            (Moment::Reading(number), Some(disk)) => disk.at_read(number, action),
            (Moment::Reading(_), None) => {}
            (Moment::At { after, .. }, _) => {
                let world = self.world.clone();
                os::thread::spawn("disturb", move || {
                    world.sleep(after);
                    action();
                })
                .expect("the system gives a thread");
            }
        }
        fired
    }

    /// A new version of one file of the source, while the job is under way. It fires where the file is described and not
    /// settled.
    fn change(&mut self, change: Change, fired: Arc<Mutex<Fired>>, course: Arc<Course>) -> Box<dyn FnOnce() + Send> {
        let path = self.scenario.files[self.random.below(self.scenario.files.len() as u64) as usize].clone();
        let (source, reference) = (self.dir.join("source"), self.reference.clone());
        let mut random = Random::new(self.random.next());
        let seconds = 2_000_000 + self.seen.attempts as i64;
        Box::new(move || {
            if course.is_over() {
                return;
            }
            let is_under_way = reference.is_under_way(&path);
            let at = source.join(std::ffi::OsStr::from_bytes(&path));
            let size = std::fs::metadata(&at).map_or(0, |status| status.len());
            let written = match change {
                Change::InPlace => scenario::write_sized(&mut random, &at, seconds, size),
                Change::Rewritten => scenario::write(&mut random, &at, seconds),
            };
            if let Ok(version) = written {
                reference.source_has(&path, version);
                if is_under_way {
                    *fired.lock().unwrap() = Fired::InTime;
                }
            }
        })
    }

    fn judge(
        &mut self,
        fault: &Fault,
        fired: Fired,
        attempt: &Attempt,
        sides: &Sides,
        is_last: bool,
    ) -> Result<Option<String>> {
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
        if let Err(broken) = self.judge_disk() {
            return Ok(Some(broken));
        }
        let [listed, done, skipped, failed] = attempt.counts;
        if let Some(Ending::Finished(_)) = &attempt.ending {
            if listed != done + skipped + failed {
                return Ok(Some(format!("I6: {listed} listed, {done} done, {skipped} skipped, {failed} failed")));
            }
            // Of a file that changed, the version that was read may be an older one.
            if !matches!(fault, Fault::SourceChanges(..)) {
                let now = Storage::of_directory(&self.root)?.image();
                if let Err(broken) = self.reference.check_delivered(&now, failed) {
                    return Ok(Some(broken));
                }
            }
        }
        if is_last {
            return self.judge_end(attempt);
        }
        Ok(expect::check(fault, fired, &Word::of(attempt), self.job()).err())
    }

    fn job(&self) -> expect::Job {
        expect::Job {
            is_delta: self.scenario.options.is_delta,
            keeps_backups: self.scenario.options.backup.is_some(),
            names_of_one: self.scenario.names_of_one.len() as u64,
        }
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
        if Word::of(attempt) != Word::Keep {
            return Ok(Some(format!("I11: faults stopped and the job did not succeed: {attempt:?}")));
        }
        self.reference.excuse_attributes(false);
        let now = Storage::of_directory(&self.root)?.image();
        let ended = self.reference.check_end(&now, self.seen.attempts == 1);
        Ok(ended.and_then(|()| self.judge_names_of_one()).err())
    }

    /// What has several names at the source has them at the destination.
    fn judge_names_of_one(&self) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt;
        let at = |path: &Vec<u8>| scenario::join(&self.root.join("to"), path);
        let inode = |path: &Vec<u8>| std::fs::metadata(at(path)).map_or(0, |status| status.ino());
        let inodes: Vec<u64> = self.scenario.names_of_one.iter().map(inode).collect();
        let is_one = inodes.windows(2).all(|pair| pair[0] == pair[1]);
        if is_one { Ok(()) } else { Err(format!("I7: names of one file lead to {inodes:?}")) }
    }

    /// The host boots again from one of the states that its disk may have.
    fn lose_power(&mut self) -> Result<()> {
        self.boot += 1;
        self.root = self.dir.join(format!("disk-{}", self.boot));
        self.disk.lose_power(&self.root, &mut self.random)?;
        self.disk = SimulatedDisk::new(&self.root, self.scenario.is_journaled, DiskFaults::default())?;
        Ok(())
    }
}
