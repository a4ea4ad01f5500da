//! Which engine a lane's blocks take: plain calls, or a queue where a trial on the storage says that it pays.
//!
//! Reading starts with plain calls into the lane's own block. Where they take long, as no page cache and no fast disk does, what
//! comes next is read by a queue, and whichever had the lane wait less for a byte reads from then on: nothing is read only to find
//! out. Writing is raced once for each sink (`engine::probe`), beside the running transfer, and lanes that start a chunk after the
//! verdict follow it.
//!
//! Not here: the engines (`engine`).

use super::engine::probe::GAIN_MIN;
use super::engine::{self, BlockReader, EngineKind, Shape, Verdict};
use super::facts;
use crate::{BlockWriter, Engines, Error, Result, SourceFile, StagedFile};
use model::Extent;
use model::options::Engine;
use os::time::Instant;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Bytes that take longer than this on average make a trial worth its memory: no page cache and no fast disk is so slow.
const SLOW_BLOCK: Duration = Duration::from_micros(500);
const BLOCK_BYTES: u64 = 128 << 10;
/// Read by plain calls before judging.
const JUDGED_BYTES: u64 = 8 * BLOCK_BYTES;
/// Waited in all before a trial: a disk that hesitates once is not slow.
const SLOW_TIME: Duration = Duration::from_millis(250);
/// Read by the queue before judging: several times what it has in flight.
const TRIED_BYTES: u64 = 32 << 20;
/// A trial on very slow storage ends earlier.
const TRIED_TIME: Duration = Duration::from_secs(1);
/// A shorter extent shows nothing of a queue.
const TRIED_EXTENT_BYTES_MIN: u64 = 2 << 20;
const PROBE_BUDGET: Duration = Duration::from_millis(150);

/// The file of this host's kernel behind an open object, if it is one.
pub(super) fn source_file(file: &dyn SourceFile) -> Option<BorrowedFd<'_>> {
    Some(file.native()?.downcast_ref::<File>()?.as_fd())
}

fn staged_file(file: &dyn StagedFile) -> Option<BorrowedFd<'_>> {
    Some(file.native()?.downcast_ref::<File>()?.as_fd())
}

fn shape(kind: EngineKind, engines: &Engines) -> Shape {
    let own = Shape::of(kind);
    Shape { depth: if engines.depth > 0 { engines.depth } else { own.depth }, ..own }
}

/// What a lane waited for its bytes.
#[derive(Clone, Copy, Default)]
struct Pace {
    bytes: u64,
    waited: Duration,
}

impl Pace {
    /// Of a block.
    fn seconds(&self) -> f64 {
        self.waited.as_secs_f64() * BLOCK_BYTES as f64 / self.bytes.max(1) as f64
    }

    fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / self.waited.as_secs_f64().max(1e-9) / f64::from(1 << 20)
    }
}

/// One lane's reader.
#[derive(Default)]
pub(super) struct ExtentReader {
    queue: Option<(Box<dyn BlockReader>, Box<dyn Send>)>,
    /// As long as it is not decided whether a queue pays.
    undecided: Option<Engines>,
    is_asked_for: bool,
    plain: Pace,
    queued: Pace,
}

impl ExtentReader {
    pub fn serve(&mut self, engines: Engines) {
        self.is_asked_for = engines.requested == Engine::Uring;
        self.undecided = (engines.requested != Engine::Plain).then_some(engines);
    }

    /// See `SourceLane::read_extent`.
    pub fn read(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let Some(descriptor) = source_file(file) else {
            return crate::read_by_blocks(file, extent, block, each);
        };
        // So little is one request either way.
        if extent.length() <= BLOCK_BYTES && !self.is_asked_for {
            return crate::read_by_blocks(file, extent, block, each);
        }
        let mut at = extent.start;
        loop {
            self.judge(descriptor, Extent::new(at, extent.end));
            // Before it is decided, a slow extent is not read to its end by plain calls.
            let is_judged_again = self.undecided.is_some() && self.queue.is_none();
            let end = if is_judged_again { extent.end.min(at + JUDGED_BYTES) } else { extent.end };
            let mut goes_on = true;
            let got = self.read_part(file, descriptor, Extent::new(at, end), block, &mut |block| {
                goes_on = each(block);
                goes_on
            })?;
            at += got;
            if at < end || at >= extent.end || !goes_on {
                return Ok(at - extent.start);
            }
        }
    }

    fn read_part(
        &mut self,
        file: &dyn SourceFile,
        descriptor: BorrowedFd<'_>,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let is_timed = self.undecided.is_some();
        match &mut self.queue {
            Some((queue, _)) if is_timed => {
                let mut got = 0;
                let mut count = |block: &[u8]| {
                    got += block.len() as u64;
                    each(block)
                };
                let on_trial =
                    |each: &mut dyn FnMut(&[u8]) -> bool| read_queued(&mut **queue, descriptor, extent, each);
                let read = timed(&mut self.queued, &mut count, on_trial);
                if read.is_ok() {
                    return read;
                }
                // On trial it fails nothing that plain calls can read.
                (self.queue, self.undecided) = (None, None);
                let rest = Extent::new(extent.start + got, extent.end);
                crate::read_by_blocks(file, rest, block, each).map(|more| got + more)
            }
            Some((queue, _)) => read_queued(&mut **queue, descriptor, extent, each),
            None if is_timed => timed(&mut self.plain, each, |each| crate::read_by_blocks(file, extent, block, each)),
            None => crate::read_by_blocks(file, extent, block, each),
        }
    }

    /// Begins the trial of a queue where plain calls are slow, and ends it with the better of the two.
    fn judge(&mut self, file: BorrowedFd<'_>, extent: Extent) {
        let Some(engines) = self.undecided.clone() else { return };
        if engines.requested == Engine::Uring {
            self.undecided = None;
            if self.take_queue(&engines) {
                self.tell_queue(&engines, "asked for");
            }
        } else if self.queue.is_none() {
            if self.plain.bytes < JUDGED_BYTES || extent.length() < TRIED_EXTENT_BYTES_MIN {
                return;
            }
            if self.plain.seconds() < SLOW_BLOCK.as_secs_f64() {
                // It came out of a cache, and what comes next may not.
                self.plain = Pace::default();
            } else if self.plain.waited >= SLOW_TIME && (facts::is_memory_backed(file) || !self.take_queue(&engines)) {
                self.undecided = None;
            }
        } else if self.queued.bytes >= TRIED_BYTES || self.queued.waited >= TRIED_TIME {
            self.undecided = None;
            let (plain, queued) = (self.plain.mib_per_second(), self.queued.mib_per_second());
            if queued >= GAIN_MIN * plain {
                self.tell_queue(&engines, "pread had the lanes wait longer for a byte");
            } else {
                self.queue = None;
            }
        }
    }

    /// False where there is none: no memory, or a kernel that has none.
    fn take_queue(&mut self, engines: &Engines) -> bool {
        let kind = EngineKind::UringDirect;
        let shape = shape(kind, engines);
        let Some(memory) = engines.account.hold(shape.block_bytes * shape.depth) else {
            engines.account.note(format!("reads without {kind}: no memory for its blocks (--memory)"));
            return false;
        };
        let Ok(queue) = engine::reader(kind, shape) else { return false };
        let is_there = queue.engine() != EngineKind::PreadPwrite;
        if let Some(fallback) = queue.fallback().filter(|_| self.is_asked_for && !is_there) {
            engines.account.note(format!("reads by {fallback}"));
        }
        self.queue = is_there.then_some((queue, memory));
        self.queue.is_some()
    }

    fn tell_queue(&self, engines: &Engines, why: &str) {
        let Some((queue, _)) = &self.queue else { return };
        let fallback = queue.fallback().map_or(String::new(), |f| format!(" ({f})"));
        let depth = shape(queue.engine(), engines).depth;
        engines.account.note(format!("reads by {}{fallback}, {depth} in flight: {why}", queue.engine()));
    }
}

/// Reads, and counts what is waited for: not what is done with the blocks.
fn timed(
    pace: &mut Pace,
    each: &mut dyn FnMut(&[u8]) -> bool,
    read: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool) -> Result<u64>,
) -> Result<u64> {
    let mut since = Instant::now();
    read(&mut |block| {
        pace.waited += since.elapsed();
        pace.bytes += block.len() as u64;
        let goes_on = each(block);
        since = Instant::now();
        goes_on
    })
}

fn read_queued(
    queue: &mut dyn BlockReader,
    file: BorrowedFd<'_>,
    extent: Extent,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64> {
    let fail = |e| Error::new("read file", b"", e);
    queue.start(file, extent.start, extent.end).map_err(fail)?;
    let mut read = 0;
    loop {
        let block = queue.next().map_err(fail)?;
        if block.is_empty() {
            return Ok(read);
        }
        read += block.len() as u64;
        if !each(block) {
            queue.cancel();
            return Ok(read);
        }
    }
}

/// What the race on a sink's file system came to, as soon as it did.
#[derive(Clone, Default)]
pub(super) struct WriteVerdict(Arc<OnceLock<Verdict>>);

struct Won {
    device: (u64, bool),
    since: Instant,
    verdict: Verdict,
}

/// Devices on which a queue won lately, in this process: on slow storage it takes a second of each job to find that out anew.
/// Apart for content that is made durable and for content that need not be.
static WON: Mutex<Vec<Won>> = Mutex::new(Vec::new());
const WON_MAX: usize = 64;
/// Storage may change, and is raced again.
const WON_AGE: Duration = Duration::from_secs(600);

impl WriteVerdict {
    /// Takes what is remembered of a directory's device, unless something is known or was asked for before.
    pub fn recall(&self, directory: impl FnOnce() -> Option<Arc<OwnedFd>>, engines: &Engines) {
        if self.0.get().is_none()
            && engines.requested == Engine::Auto
            && !WON.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && let Some(device) = directory().and_then(|directory| device_of(directory.as_fd()))
        {
            self.recall_of((device, engines.is_durable));
        }
    }

    fn recall_of(&self, device: (u64, bool)) {
        let won = WON.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Won { verdict, .. }) = won.iter().find(|won| won.device == device && won.since.elapsed() < WON_AGE)
        {
            let _ = self.0.set(Verdict { reason: format!("{}, in an earlier job", verdict.reason), ..verdict.clone() });
        }
    }

    fn remember(device: (u64, bool), found: &Verdict) {
        let mut won = WON.lock().unwrap_or_else(PoisonError::into_inner);
        won.retain(|won| won.device != device && won.since.elapsed() < WON_AGE);
        if found.chosen != EngineKind::PreadPwrite && won.len() < WON_MAX {
            won.push(Won { device, since: Instant::now(), verdict: found.clone() });
        }
    }

    /// Races beside the running transfer. The thread keeps nothing of the sink but the directory.
    pub fn find(&self, directory: Arc<OwnedFd>, engines: &Engines) {
        if engines.requested != Engine::Auto {
            return;
        }
        let (verdict, account, is_durable) = (self.0.clone(), engines.account.clone(), engines.is_durable);
        let probe = move || {
            let found = engine::probe_write(directory.as_fd(), is_durable, PROBE_BUDGET);
            account.note(format!("probe of the destination: {}", found.reason));
            if let Some(device) = device_of(directory.as_fd()) {
                WriteVerdict::remember((device, is_durable), &found);
            }
            let _ = verdict.set(found);
        };
        if let Err(e) = os::thread::spawn("probe", probe) {
            engines.account.note(format!("the destination was not probed: no thread could be started ({e})"));
        }
    }

    /// A queue for a lane, where one pays; `None` for plain writes.
    pub fn writer(&self, engines: &Engines) -> Option<Box<dyn BlockWriter>> {
        let kind = match (engines.requested, self.0.get()) {
            (Engine::Plain, _) | (Engine::Auto, None) => return None,
            (Engine::Uring, _) => EngineKind::UringDirect,
            (Engine::Auto, Some(verdict)) if verdict.chosen == EngineKind::PreadPwrite => return None,
            (Engine::Auto, Some(verdict)) => verdict.chosen,
        };
        let shape = shape(kind, engines);
        let Some(memory) = engines.account.hold(shape.block_bytes * shape.depth) else {
            engines.account.note(format!("writes without {kind}: no memory for its blocks (--memory)"));
            return None;
        };
        let queue = engine::writer(kind, shape).ok()?;
        let why = self.0.get().map_or("asked for", |verdict| &verdict.reason);
        let fallback = queue.fallback().map_or(String::new(), |f| format!(" ({f})"));
        engines.account.note(format!("writes by {}{fallback}, {} in flight: {why}", queue.engine(), shape.depth));
        Some(Box::new(QueueWriter { queue, _memory: memory }))
    }
}

fn device_of(directory: BorrowedFd<'_>) -> Option<u64> {
    Some(rustix::fs::fstat(directory).ok()?.st_dev)
}

struct QueueWriter {
    queue: Box<dyn engine::BlockWriter>,
    _memory: Box<dyn Send>,
}

fn write_error(e: io::Error) -> Error {
    Error::new("write file", b"", e)
}

impl BlockWriter for QueueWriter {
    fn buffer(&mut self) -> Result<&mut [u8]> {
        self.queue.buffer().map_err(write_error)
    }

    fn write(&mut self, file: &dyn StagedFile, offset: u64, length: usize) -> Result<()> {
        match staged_file(file) {
            Some(descriptor) => self.queue.write(descriptor, offset, length).map_err(write_error),
            None => file.write_at(offset, &self.buffer()?[..length]),
        }
    }

    fn drain(&mut self) -> Result<()> {
        self.queue.drain().map_err(write_error)
    }

    fn name(&self) -> &'static str {
        self.queue.engine().as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::{PosixSink, PosixSource, beneath};
    use crate::{Account, Found, PublishRule, Sink, Source, SourceLane, SourceObject};
    use model::{Entry, Generation, Kind, Name, ObjectId};
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const BYTES: usize = (3 << 20) + 4099;

    /// Room for one queue, or for none.
    struct Room {
        free: Arc<AtomicUsize>,
        notes: Mutex<Vec<String>>,
    }

    struct Given(Arc<AtomicUsize>, usize);

    impl Drop for Given {
        fn drop(&mut self) {
            self.0.fetch_add(self.1, Relaxed);
        }
    }

    impl Account for Room {
        fn hold(&self, bytes: usize) -> Option<Box<dyn Send>> {
            self.free.fetch_update(Relaxed, Relaxed, |free| free.checked_sub(bytes)).ok()?;
            Some(Box::new(Given(self.free.clone(), bytes)))
        }

        fn note(&self, text: String) {
            self.notes.lock().unwrap().push(text);
        }
    }

    fn engines(requested: Engine, free: usize) -> (Engines, Arc<Room>) {
        let room = Arc::new(Room { free: Arc::new(AtomicUsize::new(free)), notes: Mutex::default() });
        (Engines { requested, depth: 0, is_durable: true, account: room.clone() }, room)
    }

    #[test]
    fn a_queue_that_won_is_remembered_for_its_device_until_it_loses_there() {
        let device = (u64::MAX, true);
        let verdict = |chosen, reason: &str| Verdict {
            chosen,
            plain_bytes_per_second: None,
            uring_bytes_per_second: None,
            reason: reason.to_owned(),
        };
        let recalled_of = |device| {
            let verdict = WriteVerdict::default();
            verdict.recall_of(device);
            verdict.0.get().map(|verdict| verdict.reason.clone())
        };
        let recalled = || recalled_of(device);
        WriteVerdict::remember(device, &verdict(EngineKind::UringDirect, "it won"));
        assert_eq!(recalled(), Some("it won, in an earlier job".to_owned()));
        assert_eq!(recalled_of((device.0, false)), None, "what need not be durable is another matter");
        WriteVerdict::remember(device, &verdict(EngineKind::PreadPwrite, "it lost"));
        assert_eq!(recalled(), None);
    }

    fn content() -> Vec<u8> {
        (0..BYTES as u64).map(|at| ((at * at) >> 7) as u8).collect()
    }

    fn file_of(directory: &std::path::Path) -> (Box<dyn SourceLane>, SourceObject) {
        std::fs::write(directory.join("f"), content()).unwrap();
        let mut source = PosixSource::new();
        source.add_local(directory.join("f").as_os_str().as_encoded_bytes()).unwrap();
        let mut found = None;
        let mut emit = |object| {
            let Found::Object(object) = object else { panic!("nothing fails") };
            found = Some(object);
            true
        };
        source.scan(&mut emit).unwrap();
        (source.lane(), found.unwrap())
    }

    #[test]
    fn an_extent_is_the_same_by_a_queue_and_without_one_and_a_queue_without_memory_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let queue_bytes = Shape::of(EngineKind::UringDirect).block_bytes * Shape::of(EngineKind::UringDirect).depth;
        for (requested, free, noted) in [
            (Engine::Plain, queue_bytes, None),
            (Engine::Uring, queue_bytes, Some("reads by ")),
            (Engine::Uring, queue_bytes - 1, Some("reads without ")),
        ] {
            let (mut lane, object) = file_of(dir.path());
            let (engines, room) = engines(requested, free);
            lane.serve(engines);
            let file = lane.open(&object).unwrap();
            let mut block = vec![0; 128 << 10];
            let mut read = Vec::new();
            let extent = Extent::new(4096, BYTES as u64 + 100);
            let count = lane.read_extent(&*file, extent, &mut block, &mut |block| {
                read.extend_from_slice(block);
                true
            });
            assert_eq!((count.unwrap(), read == content()[4096..]), (BYTES as u64 - 4096, true), "{requested:?}");
            let notes = room.notes.lock().unwrap().clone();
            assert_eq!(notes.len(), usize::from(noted.is_some()), "{notes:?}");
            assert!(notes.iter().zip(noted).all(|(note, noted)| note.starts_with(noted)), "{notes:?}");
            drop(lane);
            assert_eq!(room.free.load(Relaxed), free, "what a lane held it gave back");
        }
    }

    #[test]
    fn reading_ends_when_it_is_told_to() {
        let dir = tempfile::tempdir().unwrap();
        for requested in [Engine::Plain, Engine::Auto, Engine::Uring] {
            let (mut lane, object) = file_of(dir.path());
            lane.serve(engines(requested, usize::MAX).0);
            let file = lane.open(&object).unwrap();
            let mut blocks = 0;
            let read = lane.read_extent(&*file, Extent::new(0, BYTES as u64), &mut [0; 4096], &mut |_| {
                blocks += 1;
                blocks < 2
            });
            assert!(blocks == 2 && read.unwrap() < BYTES as u64, "{requested:?}");
        }
    }

    /// Staging that does not say what it is to the file system.
    struct Wrapped(Arc<dyn StagedFile>);

    impl StagedFile for Wrapped {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            self.0.write_at(offset, bytes)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            self.0.read_at(offset, buffer)
        }
        fn append_journal(&self, bytes: &[u8]) -> Result<()> {
            self.0.append_journal(bytes)
        }
        fn truncate_journal(&self, length: u64) -> Result<()> {
            self.0.truncate_journal(length)
        }
        fn checkpoint(&self) -> Result<()> {
            self.0.checkpoint()
        }
        fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
            self.0.reread(check)
        }
        fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
            self.0.publish(entry, rule)
        }
        fn discard(&self) {
            self.0.discard();
        }
    }

    #[test]
    fn a_writer_of_blocks_fills_staging_that_it_knows_and_staging_that_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let sink = PosixSink::new(root.clone(), root, None);
        assert!(sink.writer(&engines(Engine::Plain, usize::MAX).0).is_none());
        assert!(sink.writer(&engines(Engine::Auto, usize::MAX).0).is_none(), "nothing was measured");
        assert!(sink.writer(&engines(Engine::Uring, 0).0).is_none());
        let mut writer = sink.writer(&engines(Engine::Uring, usize::MAX).0).unwrap();
        for name in ["known", "unknown"] {
            let entry = Entry {
                id: ObjectId(1),
                parent: ObjectId::ROOT,
                name: Name::new(name.as_bytes()).unwrap(),
                kind: Kind::File,
                mode: 0o644,
                generation: Generation { size_bytes: BYTES as u64, ..Generation::default() },
                attributes: None,
            };
            let (file, _) = sink.begin(&entry, name).unwrap();
            let file = if name == "known" { file } else { Arc::new(Wrapped(file)) };
            let mut at = 0;
            while at < BYTES {
                let buffer = writer.buffer().unwrap();
                let length = buffer.len().min(BYTES - at);
                buffer[..length].copy_from_slice(&content()[at..at + length]);
                writer.write(&*file, at as u64, length).unwrap();
                at += length;
            }
            writer.drain().unwrap();
            file.publish(&entry, PublishRule::NoReplace).unwrap();
            assert!(std::fs::read(dir.path().join(name)).unwrap() == content(), "{name}");
        }
    }
}
