//! Sources that grow, in the simulation: files that are appended to, patched, cut, replaced, removed and renamed while they
//! travel, by a writer on a host of its own that goes on while either side is dead.
//!
//! Beside what every simulated job is held to: a final name holds what the source had under it at one moment; of a visible part
//! (`--show prefix`) no byte was ever anything but what the source held there, none is a hole, none changes while the file is
//! the same, and what it says of itself as durable survives a power loss.
//!
//! What the generator cannot do: let the writer come between two calls of one look at the source; tell of changes by events, so
//! that everything is found by listing.

use super::disk::{Content, SimulatedDisk, Storage};
use super::faults::{Course, DiskFaults, Fired, Kind};
use super::image::{Found, Image};
use super::reference::{DESTINATION, Reference, Version};
use super::scenario::{Fault, set_time};
use super::seen::{STEPS_MAX, Seen};
use super::transfer::{self, NetworkFaults, PipeFaults, Sides, Spec};
use crate::random::Random;
use anyhow::{Context, Result};
use model::follow::{Follow, FollowEnd, UNFINISHED, Until, View};
use model::options::{Compression, Engine, Fsync};
use model::{DigestAlgorithm, Name, TransferOptions};
use mover::Ending;
use os::simulation::scheduler::spawn_on;
use os::simulation::{Host, World};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CHUNK_BYTES: u64 = 4096;
const FILES_MAX: u64 = 4;
const SUFFIX: &str = ".tmp";
const BESIDE: &str = ".partial";
const STOP: &str = "STOP";
const DURABLE: &[u8] = b"user.thalweg.durable";
/// States after a power loss that are looked at after an attempt.
const LOSS_SAMPLES: usize = 24;

/// Every class of fault that a seed may draw here.
pub const CLASSES: [(&str, &[&str]); 6] = [
    ("growing: kill of the receiver", &["F087"]),
    ("growing: power loss", &["F089"]),
    ("growing: kill of the sender", &["F087"]),
    ("growing: cut of a stream", &["F099"]),
    ("growing: cut of the session", &[]),
    ("growing: write or sync error", &["F072"]),
];

/// One seed: attempts under faults, and a clean one.
pub fn run_one(seed: u64, dir: &Path, is_told: bool) -> Result<Seen> {
    std::fs::create_dir(dir).with_context(|| format!("make {}", dir.display()))?;
    let seen = World::run(seed, STEPS_MAX, |world| Growing::new(seed, world, dir)?.all(is_told));
    std::fs::remove_dir_all(dir).with_context(|| format!("remove {}", dir.display()))?;
    seen
}

/// All that the source ever held, by name.
#[derive(Default)]
struct History {
    states: BTreeMap<String, Vec<Vec<u8>>>,
    /// Of each visible part: what was seen of it last, by its disk and inode.
    seen: BTreeMap<(u8, u64), Vec<u8>>,
}

struct Growing<'a> {
    world: &'a Arc<World>,
    dir: PathBuf,
    random: Random,
    options: TransferOptions,
    /// Nothing is sent of a file before it is complete.
    takes_whole: bool,
    streams: u32,
    reference: Arc<Reference>,
    history: Arc<Mutex<History>>,
    disk: Arc<SimulatedDisk>,
    root: PathBuf,
    boot: u8,
    seen: Seen,
}

impl<'a> Growing<'a> {
    fn new(seed: u64, world: &'a Arc<World>, dir: &Path) -> Result<Growing<'a>> {
        let mut random = Random::new(seed);
        let (root, reference) = (dir.join("disk-0"), Arc::new(Reference::default()));
        std::fs::create_dir(dir.join("source"))?;
        std::fs::create_dir_all(root.join("to"))?;
        let is_journaled = random.one_in(2);
        let disk = SimulatedDisk::new(&root, is_journaled, DiskFaults::default())?;
        let options = options(&mut random);
        let streams = 1 + random.below(3) as u32;
        let (history, seen) = Default::default();
        let dir = dir.to_owned();
        // Not drawn: it would be another course for each seed.
        let takes_whole = seed % 4 == 3 && options.view.is_none();
        Ok(Growing { world, dir, random, options, takes_whole, streams, reference, history, disk, root, boot: 0, seen })
    }

    fn all(mut self, is_told: bool) -> Result<Seen> {
        for _ in 0..1 + self.random.below(4) {
            let (class, fault) = fault(&mut self.random);
            if let Some(broken) = self.attempt(class, &fault, false, is_told)? {
                self.seen.broken = Some(format!("{broken} (attempt {} under {fault:?})", self.seen.attempts));
                return Ok(self.seen);
            }
        }
        // A failed sync may be told once more, by the next one: then the file fails, and is followed again the next time.
        let mut broken = self.attempt("", &Fault::None, true, is_told)?;
        let failures = self.reference.failures();
        if broken.is_some() && !failures.is_empty() && failures.iter().all(|text| text.contains("(fsync)")) {
            broken = self.attempt("", &Fault::None, true, is_told)?;
        }
        self.seen.broken = broken.map(|broken| format!("{broken} (clean attempt)"));
        Ok(self.seen)
    }

    fn attempt(&mut self, class: &'static str, fault: &Fault, is_last: bool, is_told: bool) -> Result<Option<String>> {
        self.reference.next_attempt();
        self.seen.attempts += 1;
        let course = Arc::new(Course::default());
        let receiver = self.world.host(Some(self.disk.clone()), [self.boot; 16]);
        self.disk.belongs_to(self.world, &receiver);
        if let Fault::KillReceiver(faults) | Fault::PowerLoss(faults) | Fault::ReceiverDisk(faults, _) = fault {
            let calls = self.disk.calls();
            let mut faults = faults.clone();
            faults.kill = faults.kill.map(|(call, is_after)| (call + calls, is_after));
            faults.error = faults.error.map(|(call, kind, errno)| (call + calls, kind, errno));
            self.disk.set_faults(faults, &course);
        }
        let sides = Sides { sender: self.world.host(None, [255; 16]), receiver };
        let killed = self.kill_sender(fault, &sides.sender, &course);
        let instrument = self.world.host(None, [254; 16]);
        self.write(&instrument, is_last);
        let network = if let Fault::Network(network, _) = fault { network.clone() } else { NetworkFaults::default() };
        let source = self.dir.join("source");
        let (options, streams, course) = (self.options.clone(), self.streams, course.clone());
        let takes_whole = self.takes_whole;
        let spec = Spec {
            source: &source,
            root: &self.root,
            options,
            streams,
            network,
            buffers: None,
            takes_whole,
            reads_ahead: false,
            course,
        };
        let attempt = transfer::attempt(self.world, &sides, &self.reference, &spec);
        self.world.kill(&instrument);
        while !self.world.is_empty(&instrument) {
            self.world.sleep(Duration::from_millis(20));
        }
        let fired = match fault {
            Fault::KillSender(_) => *killed.lock().unwrap(),
            Fault::Network(..) => attempt.network_fired,
            Fault::None => Fired::No,
            _ => self.disk.fired(),
        };
        if is_told {
            println!(
                "{:?}\nattempt {}: {fault:?}, fired: {fired:?}\n  {attempt:?}\n  failed: {:?}\n  {} ms and {} steps so far; alive: {} {}",
                self.options,
                self.seen.attempts,
                self.reference.failures(),
                self.world.now_ns() / 1_000_000,
                self.world.steps(),
                sides.sender.is_alive(),
                sides.receiver.is_alive()
            );
        }
        if !class.is_empty() {
            let (class, faults) = CLASSES.into_iter().find(|(name, _)| *name == class).expect("every class is listed");
            self.seen.fired.push((class, faults, &["KEEP", "RETRY", "FAIL-FILE", "FAIL-JOB"], fired));
        }
        let broken = self.judge(&attempt, &sides, is_last);
        if matches!(fault, Fault::PowerLoss(_)) && !sides.receiver.is_alive() {
            self.lose_power()?;
        }
        self.disk.set_faults(DiskFaults::default(), &Arc::default());
        Ok(broken.err())
    }

    fn kill_sender(&self, fault: &Fault, sender: &Arc<Host>, course: &Arc<Course>) -> Arc<Mutex<Fired>> {
        let fired = Arc::new(Mutex::new(Fired::No));
        let Fault::KillSender(super::scenario::Moment::At { after, .. }) = fault else { return fired };
        let (world, host, course, after) = (self.world.clone(), sender.clone(), course.clone(), *after);
        let for_action = fired.clone();
        os::thread::spawn("kill the sender", move || {
            world.sleep(after);
            if !course.is_over() {
                *for_action.lock().unwrap() = Fired::InTime;
                world.kill(&host);
            }
        })
        .expect("the system gives a thread");
        fired
    }

    /// Starts the writer. In the last attempt it completes every file.
    fn write(&mut self, host: &Arc<Host>, is_last: bool) {
        let mut writer = Writer {
            source: self.dir.join("source"),
            random: Random::new(self.random.next()),
            reference: self.reference.clone(),
            history: self.history.clone(),
            seconds: 1_000_000 * self.seen.attempts as i64,
            is_last,
        };
        let _ = std::fs::remove_file(writer.source.join(STOP));
        let world = self.world.clone();
        spawn_on(self.world, host, "writer", move || {
            for _ in 0..3 + writer.random.below(12) {
                world.sleep(Duration::from_millis([0, 1, 30, 300, 2500][writer.random.below(5) as usize]));
                writer.act().expect("the source can be written to");
            }
            if writer.is_last {
                world.sleep(Duration::from_millis(100));
                writer.complete_all().expect("the source can be written to");
            }
            world.sleep(Duration::from_millis(writer.random.below(3000)));
            writer.stop().expect("the source can be written to");
        });
    }

    fn judge(&mut self, attempt: &transfer::Attempt, sides: &Sides, is_last: bool) -> Result<(), String> {
        if let Some(broken) = self.reference.broken() {
            return Err(broken);
        }
        if let Some(stuck) = &attempt.overdue {
            return Err(format!("I11: no end in sight; {stuck}"));
        }
        if [&sides.sender, &sides.receiver].into_iter().any(|host| !self.world.is_empty(host)) {
            return Err(format!("I11: threads are left after the end; {}", self.world.stuck()));
        }
        if let Some(refusal) = &attempt.refused {
            return Err(format!("one side refused what the other sent: {refusal}"));
        }
        self.judge_visible()?;
        let now = Storage::of_directory(&self.root).map_err(|e| format!("{e:#}"))?.image();
        self.judge_image(&now).map_err(|broken| format!("{broken} (as a reader sees it)"))?;
        let mut random = self.random.clone();
        let storage = self.disk.storage();
        self.seen.states += storage.each_loss(LOSS_SAMPLES, &mut || random.next(), &mut |storage| {
            self.judge_image(&storage.image()).map_err(|broken| format!("{broken} (after a power loss)"))
        })?;
        if !is_last {
            return Ok(());
        }
        let [listed, done, skipped, failed] = attempt.counts;
        if !matches!(attempt.ending, Some(Ending::Finished(_))) || failed > 0 || listed != done + skipped {
            return Err(format!("I11: faults stopped and the job did not succeed: {attempt:?}"));
        }
        let (finals, _) = split(now);
        self.reference.check_end(&finals, self.seen.attempts == 1)
    }

    /// Final names, and visible parts.
    fn judge_image(&self, image: &Image) -> Result<(), String> {
        let (finals, visible) = split(image.clone());
        self.reference.check(&finals, true)?;
        let history = self.history.lock().unwrap();
        visible.iter().try_for_each(|(name, content)| {
            let durable = content.attributes.get(DURABLE).map(|text| String::from_utf8_lossy(text).parse::<usize>());
            let Some(Ok(durable)) = durable else { return Ok(()) };
            if content.bytes.len() < durable {
                return Err(format!(
                    "{name}: {durable} bytes are durable by its word, and {} are there",
                    content.bytes.len()
                ));
            }
            history.held(name, &content.bytes[..durable])
        })
    }

    /// What a reader sees now of what grows.
    fn judge_visible(&self) -> Result<(), String> {
        let mut history = self.history.lock().unwrap();
        let found = std::fs::read_dir(self.root.join("to")).map_err(|e| e.to_string())?.flatten();
        for entry in found.filter(|entry| is_visible_part(&entry.file_name().to_string_lossy())) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let bytes = std::fs::read(entry.path()).map_err(|e| e.to_string())?;
            // Of what a power loss left only what is durable counts.
            if self.boot == 0 {
                history.held(&name, &bytes)?;
            }
            let key = (self.boot, entry.metadata().map_err(|e| e.to_string())?.ino());
            if let Some(before) = history.seen.insert(key, bytes.clone())
                && !bytes.starts_with(&before)
            {
                return Err(format!(
                    "{name}: what was seen of it has changed: {} and {} bytes",
                    before.len(),
                    bytes.len()
                ));
            }
        }
        Ok(())
    }

    fn lose_power(&mut self) -> Result<()> {
        self.boot += 1;
        self.root = self.dir.join(format!("disk-{}", self.boot));
        self.disk.lose_power(&self.root, &mut self.random)?;
        self.disk = SimulatedDisk::new(&self.root, self.random.one_in(2), DiskFaults::default())?;
        Ok(())
    }
}

impl History {
    /// Whether the source held each of these bytes at its place, at some time.
    fn held(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        // A file that went on under its last name is shown beside it.
        let base = name.trim_end_matches(SUFFIX).trim_end_matches(BESIDE);
        let names = [base.to_owned(), format!("{base}{SUFFIX}")];
        let states: Vec<_> = names.iter().filter_map(|name| self.states.get(name)).flatten().collect();
        let is_held = |(at, byte): (usize, &u8)| states.iter().any(|state| state.get(at) == Some(byte));
        match bytes.iter().enumerate().position(|one| !is_held(one)) {
            None => Ok(()),
            Some(at) => {
                Err(format!("{name}: byte {at} of {} is {}, which the source never held there", bytes.len(), bytes[at]))
            }
        }
    }
}

/// What changes the source.
struct Writer {
    source: PathBuf,
    random: Random,
    reference: Arc<Reference>,
    history: Arc<Mutex<History>>,
    seconds: i64,
    /// Every file comes to its end: nothing is removed or replaced.
    is_last: bool,
}

impl Writer {
    fn act(&mut self) -> Result<()> {
        let base = format!("run-{}", self.random.below(FILES_MAX));
        let (growing, complete) = (format!("{base}{SUFFIX}"), base);
        let name = if self.source.join(&growing).exists() { growing.clone() } else { complete.clone() };
        let is_there = self.source.join(&name).exists();
        match self.random.below(if self.is_last { 12 } else { 16 }) {
            _ if !is_there => self.append(&growing),
            0..=5 => self.append(&name),
            6 | 7 => self.patch(&name),
            8 => self.cut(&name),
            9 | 10 if name == growing => self.rename(&growing, &complete),
            9..=11 => self.append(&name),
            12 => self.replace(&name),
            13 if name == growing => Ok(std::fs::remove_file(self.source.join(&growing))?),
            _ => self.rename_if_growing(&name, &growing, &complete),
        }
    }

    fn rename_if_growing(&mut self, name: &str, growing: &str, complete: &str) -> Result<()> {
        if name == growing { self.rename(growing, complete) } else { self.append(name) }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let sizes = [1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7];
        let size = sizes[self.random.below(sizes.len() as u64) as usize];
        // Never zeros: those are what a hole reads as.
        (0..size).map(|_| self.random.below(255) as u8 + 1).collect()
    }

    fn append(&mut self, name: &str) -> Result<()> {
        let bytes = self.bytes();
        OpenOptions::new().append(true).create(true).open(self.source.join(name))?.write_all(&bytes)?;
        self.changed(name)
    }

    fn patch(&mut self, name: &str) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.source.join(name))?;
        let length = file.metadata()?.len();
        if length > 0 {
            let at = self.random.below(length);
            file.write_all_at(&[self.random.below(255) as u8 + 1], at)?;
        }
        self.changed(name)
    }

    fn cut(&mut self, name: &str) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.source.join(name))?;
        file.set_len(self.random.below(file.metadata()?.len() + 1))?;
        self.changed(name)
    }

    fn replace(&mut self, name: &str) -> Result<()> {
        let (other, bytes) = (self.source.with_file_name("other"), self.bytes());
        std::fs::write(&other, bytes)?;
        self.note(name, &other)?;
        Ok(std::fs::rename(other, self.source.join(name))?)
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        // It is known under its new name before it has it: nobody comes in between.
        self.note(to, &self.source.join(from))?;
        Ok(std::fs::rename(self.source.join(from), self.source.join(to))?)
    }

    fn changed(&mut self, name: &str) -> Result<()> {
        let at = self.source.join(name);
        self.note(name, &at)
    }

    /// Notes a state of the source, with a time that no other has.
    fn note(&mut self, name: &str, at: &Path) -> Result<()> {
        self.seconds += 1;
        let modified = (self.seconds, 7);
        set_time(at, modified)?;
        let bytes = std::fs::read(at)?;
        if !name.ends_with(SUFFIX) {
            self.reference.source_has(name.as_bytes(), Version::File { bytes: bytes.clone(), modified, kept: None });
        }
        self.history.lock().unwrap().states.entry(name.to_owned()).or_default().push(bytes);
        Ok(())
    }

    fn complete_all(&mut self) -> Result<()> {
        for number in 0..FILES_MAX {
            let (growing, complete) = (format!("run-{number}{SUFFIX}"), format!("run-{number}"));
            if self.source.join(&growing).exists() {
                self.rename(&growing, &complete)?;
            }
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        std::fs::write(self.source.join(STOP), b"")?;
        self.changed(STOP)
    }
}

fn is_visible_part(name: &str) -> bool {
    name.ends_with(SUFFIX) || name.ends_with(BESIDE)
}

/// What a reader may take for complete, and what it sees grow.
fn split(image: Image) -> (Image, Vec<(String, Content)>) {
    let (mut finals, mut visible) = (Image::new(), Vec::new());
    let below = [DESTINATION, b"/"].concat();
    for (path, found) in image {
        let name = path.strip_prefix(&below[..]).map(|name| String::from_utf8_lossy(name).into_owned());
        match (name, found) {
            (Some(name), Found::File(content)) if is_visible_part(&name) => visible.push((name, content)),
            (_, found) => _ = finals.insert(path, found),
        }
    }
    (finals, visible)
}

fn options(random: &mut Random) -> TransferOptions {
    let stop = FollowEnd::Marker(Name::new(STOP.as_bytes()).expect("a name"));
    let until = Until::Rename(UNFINISHED.map(Box::from).to_vec());
    let unfinished = UNFINISHED.map(Box::from).to_vec();
    TransferOptions {
        follow: Some(Arc::new(Follow::new(until, vec![stop]))),
        view: random.one_in(2).then(|| Arc::new(View { unfinished })),
        chunk_bytes: CHUNK_BYTES,
        fsync: if random.one_in(4) { Fsync::File } else { Fsync::Batch },
        digest: if random.one_in(2) { DigestAlgorithm::Blake3 } else { DigestAlgorithm::Crc64Nvme },
        engine: if random.one_in(4) { Engine::Uring } else { Engine::Plain },
        compression: if random.one_in(4) { Compression::Lz4 } else { Compression::None },
        ..TransferOptions::default()
    }
}

fn fault(random: &mut Random) -> (&'static str, Fault) {
    let kill = |random: &mut Random| DiskFaults {
        kill: Some((1 + random.below(150), random.one_in(2))),
        ..DiskFaults::default()
    };
    let delay = Duration::from_micros([0, 100, 40_000][random.below(3) as usize]);
    let at = random.below(30_000);
    match random.below(10) {
        0 | 1 => (CLASSES[0].0, Fault::KillReceiver(kill(random))),
        2..=4 => (CLASSES[1].0, Fault::PowerLoss(kill(random))),
        5 | 6 => {
            let after = Duration::from_millis(random.below(4000));
            (CLASSES[2].0, Fault::KillSender(super::scenario::Moment::At { after, delay }))
        }
        7 => {
            let stream = PipeFaults { cut_at: Some(at), ..PipeFaults::default() };
            (CLASSES[3].0, Fault::Network(NetworkFaults { delay, stream, ..NetworkFaults::default() }, CLASSES[3].0))
        }
        8 => {
            let control_cut_at = Some(random.below(900));
            (
                CLASSES[4].0,
                Fault::Network(NetworkFaults { delay, control_cut_at, ..NetworkFaults::default() }, CLASSES[4].0),
            )
        }
        _ => {
            let kind = if random.one_in(2) { Kind::Write } else { Kind::Sync };
            let error = Some((1 + random.below(80), kind, Errno::IO));
            (CLASSES[5].0, Fault::ReceiverDisk(DiskFaults { error, ..DiskFaults::default() }, CLASSES[5].0))
        }
    }
}
