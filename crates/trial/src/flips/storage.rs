//! Stages c and d: bits that flip behind the receiver's check, on their way to storage or on it.
//!
//! A sink that wraps the production one flips a bit of each object once. With `--verify reread` each has to be found
//! before its name appears; without it they are published, and that figure is told beside.

use super::Bed;
use super::frames::{count_many, sink};
use super::joined::Gate;
use crate::random::Random;
use crate::record::{Outcome as Verdict, Tally};
use anyhow::{Context, Result};
use model::options::Verify;
use model::{DigestAlgorithm, Entry, JobId, Name};
use mover::{Ending, Memory, Progress};
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use store::posix::PosixSink;
use store::{Abilities, Decision, PublishRule, Sink, SinkFacts, SinkLane, Staged, StagedFile};

/// The header of a journal and as many records as an attempt writes before it is cut.
pub const APPENDS_MAX: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Bytes on their way from the receiver's buffer to storage.
    Buffer,
    /// The staged file, complete.
    File,
    /// A record of the journal on its way to storage.
    Journal,
    Nothing,
}

pub struct Flipping {
    pub stage: Stage,
    random: Mutex<Random>,
    /// Objects that were flipped before.
    flipped: Mutex<HashSet<u64>>,
    /// Appends to a journal until the one that is flipped.
    appends_left: Mutex<u64>,
    pub gate: Option<Gate>,
}

impl Flipping {
    pub fn new(stage: Stage, seed: u64, gate: Option<Gate>) -> Arc<Flipping> {
        let mut random = Random::new(seed);
        let appends_left = Mutex::new(random.next() % APPENDS_MAX);
        Arc::new(Flipping { stage, random: Mutex::new(random), flipped: Mutex::default(), appends_left, gate })
    }

    pub fn flips(&self) -> u64 {
        self.flipped.lock().unwrap().len() as u64
    }

    /// The bytes with one bit flipped, the first time that this stage of the object comes.
    fn changed(&self, stage: Stage, object: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        if stage != self.stage || bytes.is_empty() || !self.flipped.lock().unwrap().insert(object) {
            return None;
        }
        let mut changed = bytes.to_vec();
        self.random.lock().unwrap().flip(&mut changed);
        Some(changed)
    }

    /// Whether it is this append's turn.
    fn is_append_due(&self) -> bool {
        let mut left = self.appends_left.lock().unwrap();
        let is_due = *left == 0;
        *left = left.saturating_sub(1);
        is_due
    }

    /// `flip` changes a bit of the byte at an offset, and says whether it did.
    fn change_file(&self, object: u64, length: u64, flip: &dyn Fn(u64, u8) -> bool) {
        if self.stage != Stage::File || length == 0 || !self.flipped.lock().unwrap().insert(object) {
            return;
        }
        let (at, bit) = {
            let mut random = self.random.lock().unwrap();
            (random.below(length), random.below(8))
        };
        assert!(flip(at, 1 << bit), "the flip itself failed");
    }
}

/// Flips bits of what the destination below stores.
pub struct FlipSink {
    pub inner: Arc<PosixSink>,
    pub flipping: Arc<Flipping>,
}

struct FlipLane {
    inner: Box<dyn SinkLane>,
    sink: Arc<PosixSink>,
    flipping: Arc<Flipping>,
    object: u64,
}

struct FlipFile {
    inner: Arc<dyn StagedFile>,
    flipping: Arc<Flipping>,
    object: u64,
    size_bytes: u64,
}

/// Stages c and d, with the check that finds them and without.
pub fn buffer_and_file(bed: &Bed, flips: u64, tally: &mut Tally) -> Result<()> {
    for (stage, name) in
        [(Stage::Buffer, "c: receiver's buffer after verification"), (Stage::File, "d: staged file on its storage")]
    {
        let class = format!("bit flip {name}, --verify reread");
        let (mut done, mut round) = (0u64, 0u64);
        while done < flips {
            let seed = bed.seed.wrapping_add(round << 20);
            let (made, is_finished, found) = copy(bed, stage, Verify::Reread, seed)?;
            let verdict = match is_finished && found.is_whole() && made > 0 {
                true => Verdict::Survived,
                false => Verdict::Violated(format!("{made} flips left {found:?}, finished: {is_finished}")),
            };
            count_many(tally, &class, made, &verdict, &format!("{} --seed {}", bed.again, bed.seed));
            (done, round) = (done + made.max(1), round + 1);
        }
        let (made, _, found) = copy(bed, stage, Verify::Stream, bed.seed)?;
        let figure = format!("{} of {made} were published unnoticed, as the manual says", found.wrong);
        tally.figures.insert(format!("bit flip {name}, without reread"), figure);
    }
    Ok(())
}

fn copy(bed: &Bed, stage: Stage, verify: Verify, seed: u64) -> Result<(u64, bool, super::damage::Found)> {
    let to = tempfile::tempdir_in(&bed.place).context("make a destination")?;
    let flipping = Flipping::new(stage, seed, None);
    let sink = Arc::new(FlipSink { inner: sink(to.path())?, flipping: flipping.clone() });
    let algorithm = if seed.is_multiple_of(2) { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
    let spec = mover::local::LocalSpec {
        id: JobId([2; 16]),
        options: model::TransferOptions { verify, ..super::joined::options(algorithm) },
        rename_to: None,
        lanes: Some(1),
        lanes_first: None,
        is_sequential: false,
        memory: Memory::default(),
    };
    let report = mover::local::copy(spec, bed.small.source()?, sink, Progress::new(), None, &|| false)?;
    let is_finished = matches!(report.ending, Ending::Finished(_)) && report.snapshot.counts.files_failed == 0;
    Ok((flipping.flips(), is_finished, bed.small.compare(to.path())?))
}

impl Sink for FlipSink {
    fn facts(&self) -> store::Result<SinkFacts> {
        // Of the abilities beside the ordinary only what it passes on.
        let can = Abilities { reread: true, ..Abilities::NONE };
        Ok(SinkFacts { can, shares_on: None, ..self.inner.facts()? })
    }

    fn enter(&self, name: &Name) -> store::Result<()> {
        self.inner.enter(name)
    }

    fn make_directory(&self, entry: &Entry) -> store::Result<()> {
        self.inner.make_directory(entry)
    }

    fn make_symlink(&self, entry: &Entry, rule: PublishRule) -> store::Result<bool> {
        self.inner.make_symlink(entry, rule)
    }

    fn decide(&self, entry: &Entry) -> store::Result<Decision> {
        self.inner.decide(entry)
    }

    /// What is staged has a name, by which it is found again to be changed.
    fn lane(&self, _: bool) -> store::Result<Box<dyn SinkLane>> {
        let (inner, sink) = (self.inner.lane(false)?, self.inner.clone());
        Ok(Box::new(FlipLane { inner, sink, flipping: self.flipping.clone(), object: 0 }))
    }

    fn begin(&self, entry: &Entry, stem: &str) -> store::Result<(Arc<dyn StagedFile>, Vec<u8>)> {
        let (inner, journal) = self.inner.begin(entry, stem)?;
        let (flipping, object, size_bytes) = (self.flipping.clone(), entry.id.0, entry.size_bytes());
        Ok((Arc::new(FlipFile { inner, flipping, object, size_bytes }), journal))
    }

    fn has_journal(&self, entry: &Entry, stem: &str) -> bool {
        self.inner.has_journal(entry, stem)
    }

    fn drop_staged(&self, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
        self.inner.drop_staged(is_needless);
    }

    fn sync_group(&self, group: &mut dyn Iterator<Item = Staged>) -> store::Result<bool> {
        self.inner.sync_group(group)
    }

    fn publish(&self, entry: &Entry, staged: Staged) -> store::Result<()> {
        self.inner.publish(entry, staged)
    }

    fn discard(&self, staged: Staged) {
        self.inner.discard(staged);
    }

    fn reread(&self, entry: &Entry, staged: Staged, check: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        self.inner.reread(entry, staged, check)
    }

    fn sync_names(&self) -> store::Result<()> {
        self.inner.sync_names()
    }

    fn finish_directory(&self, entry: &Entry) -> store::Result<()> {
        self.inner.finish_directory(entry)
    }

    fn close(&self) {
        self.inner.close();
    }

    fn path(&self, entry: &Entry) -> Vec<u8> {
        self.inner.path(entry)
    }
}

impl SinkLane for FlipLane {
    fn create(&mut self, entry: &Entry, rule: PublishRule) -> store::Result<()> {
        self.object = entry.id.0;
        self.inner.create(entry, rule)
    }

    fn write(&mut self, bytes: &[u8]) -> store::Result<()> {
        let changed = self.flipping.changed(Stage::Buffer, self.object, bytes);
        self.inner.write(changed.as_deref().unwrap_or(bytes))
    }

    fn seal(&mut self, entry: &Entry, sync: bool) -> store::Result<Staged> {
        let staged = self.inner.seal(entry, sync)?;
        let file = self.sink.open_staged(staged, OFlags::RDWR).expect("it was staged");
        self.flipping.change_file(self.object, entry.size_bytes(), &|at, bit| {
            let mut byte = [0];
            let read = rustix::io::pread(&file, &mut byte, at);
            byte[0] ^= bit;
            read.and_then(|_| rustix::io::pwrite(&file, &byte, at)) == Ok(1)
        });
        Ok(staged)
    }

    fn abandon(&mut self) {
        self.inner.abandon();
    }

    fn publish(&mut self, entry: &Entry, staged: Staged) -> store::Result<()> {
        self.inner.publish(entry, staged)
    }
}

impl FlipFile {
    fn change_file(&self) {
        self.flipping.change_file(self.object, self.size_bytes, &|at, bit| {
            let mut byte = [0];
            let is_read = self.inner.read_at(at, &mut byte).is_ok_and(|read| read == 1);
            byte[0] ^= bit;
            is_read && self.inner.write_at(at, &byte).is_ok()
        });
    }
}

impl StagedFile for FlipFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> store::Result<()> {
        let changed = self.flipping.changed(Stage::Buffer, self.object, bytes);
        self.inner.write_at(offset, changed.as_deref().unwrap_or(bytes))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> store::Result<usize> {
        self.inner.read_at(offset, buffer)
    }

    fn append_journal(&self, bytes: &[u8]) -> store::Result<()> {
        // Held before it is written: a log that is cut ends with whole records.
        if let Some(gate) = &self.flipping.gate {
            gate.pass();
        }
        let is_due = self.flipping.is_append_due();
        let changed = is_due.then(|| self.flipping.changed(Stage::Journal, self.object, bytes)).flatten();
        self.inner.append_journal(changed.as_deref().unwrap_or(bytes))
    }

    fn truncate_journal(&self, length: u64) -> store::Result<()> {
        self.inner.truncate_journal(length)
    }

    fn settle(&self, size_bytes: u64) -> store::Result<()> {
        self.inner.settle(size_bytes)
    }

    fn checkpoint(&self) -> store::Result<()> {
        self.inner.checkpoint()
    }

    fn reread(&self, check: &mut dyn FnMut(&[u8])) -> store::Result<()> {
        self.change_file();
        self.inner.reread(check)
    }

    fn make_durable(&self, entry: &Entry) -> store::Result<()> {
        self.inner.make_durable(entry)
    }

    fn publish(&self, entry: &Entry, rule: PublishRule) -> store::Result<()> {
        self.change_file();
        self.inner.publish(entry, rule)
    }

    fn discard(&self) {
        self.inner.discard();
    }
}
