//! Which engine a lane's blocks take: plain calls, or a queue where a trial on the storage says that it pays.
//!
//! Reading starts with plain calls into the lane's own block. Where they take long, as no page cache and no fast disk does, what
//! comes next is read by a queue, and whichever had the lane wait less for a byte reads from then on: nothing is read only to find
//! out. Writing is raced once for each sink (`engine::probe`), beside the running transfer, and lanes that start a chunk after the
//! verdict follow it. Where a number of blocks in flight was asked for, a queue begins and is compared with nothing.
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
const JUDGED_BYTES: u64 = 4 * BLOCK_BYTES;
/// Waited before a trial, without the longest wait: a disk that hesitates once is not slow.
const SLOW_TIME: Duration = Duration::from_millis(50);
/// Read by the queue before judging: several times what it has in flight.
const TRIED_BYTES: u64 = 32 << 20;
/// A trial on very slow storage ends earlier.
const TRIED_TIME: Duration = Duration::from_secs(1);
/// A shorter extent shows nothing of a queue.
const TRIED_EXTENT_BYTES_MIN: u64 = 2 << 20;
const PROBE_BUDGET: Duration = Duration::from_millis(150);
/// Why a queue is used that nothing was compared with.
const DEPTH_ASKED: &str = "so many blocks in flight were asked for";

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
    longest: Duration,
}

impl Pace {
    fn waited_but_longest(&self) -> Duration {
        self.waited.saturating_sub(self.longest)
    }

    /// Whether blocks take longer on average than out of a page cache or from a fast disk.
    fn is_slow(&self) -> bool {
        self.waited.as_secs_f64() * BLOCK_BYTES as f64 >= SLOW_BLOCK.as_secs_f64() * self.bytes as f64
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
    coming: Coming,
    plain: Pace,
    queued: Pace,
}

/// Extents that are read after the present one. As long as a file is kept here, no other one has its address.
#[derive(Default)]
struct Coming {
    /// The queue has not heard of it.
    expected: Option<(Arc<dyn SourceFile>, Extent)>,
    /// The queue asks for it as soon as it has room.
    told: Option<(Arc<dyn SourceFile>, Extent)>,
}

impl ExtentReader {
    pub fn serve(&mut self, engines: Engines) {
        self.is_asked_for = engines.requested == Engine::Uring;
        self.undecided = (engines.requested != Engine::Plain).then_some(engines);
    }

    pub fn has_queue(&self) -> bool {
        self.queue.is_some()
    }

    /// See `SourceLane::expect`.
    pub fn expect(&mut self, file: Arc<dyn SourceFile>, extent: Extent) {
        if extent.length() > BLOCK_BYTES && source_file(&*file).is_some() {
            self.coming.expected = Some((file, extent));
        }
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
            self.coming = Coming::default();
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
                let coming = &mut self.coming;
                let on_trial = |each: &mut dyn FnMut(&[u8]) -> bool| {
                    read_queued(&mut **queue, (file, descriptor), extent, coming, each)
                };
                let read = timed(&mut self.queued, &mut count, on_trial);
                if read.is_ok() {
                    return read;
                }
                // On trial it fails nothing that plain calls can read.
                self.undecided = None;
                self.leave_queue();
                let rest = Extent::new(extent.start + got, extent.end);
                crate::read_by_blocks(file, rest, block, each).map(|more| got + more)
            }
            Some((queue, _)) => read_queued(&mut **queue, (file, descriptor), extent, &mut self.coming, each),
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
            if self.plain.bytes == 0 && engines.depth > 0 && !facts::is_memory_backed(file) {
                match self.take_queue(&engines) {
                    true => self.tell_queue(&engines, DEPTH_ASKED),
                    // Once is enough to find out that there is none.
                    false => self.undecided = Some(Engines { depth: 0, ..engines }),
                }
            } else if self.plain.bytes < JUDGED_BYTES || extent.length() < TRIED_EXTENT_BYTES_MIN {
                // Too little is known.
            } else if !self.plain.is_slow() {
                // It came out of a cache, and what comes next may not.
                self.plain = Pace::default();
            } else if self.plain.waited_but_longest() >= SLOW_TIME
                && (facts::is_memory_backed(file) || !self.take_queue(&engines))
            {
                self.undecided = None;
            }
        } else if self.queued.bytes >= TRIED_BYTES || self.queued.waited >= TRIED_TIME {
            self.undecided = None;
            let (plain, queued) = (self.plain.mib_per_second(), self.queued.mib_per_second());
            if queued < GAIN_MIN * plain {
                self.leave_queue();
            } else if self.plain.bytes > 0 {
                self.tell_queue(&engines, "pread had the lanes wait longer for a byte");
            }
        }
    }

    fn leave_queue(&mut self) {
        (self.queue, self.coming) = (None, Coming::default());
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
        let waited = since.elapsed();
        pace.waited += waited;
        pace.longest = pace.longest.max(waited);
        pace.bytes += block.len() as u64;
        let goes_on = each(block);
        since = Instant::now();
        goes_on
    })
}

fn read_queued(
    queue: &mut dyn BlockReader,
    (file, descriptor): (&dyn SourceFile, BorrowedFd<'_>),
    extent: Extent,
    coming: &mut Coming,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<u64> {
    let fail = |e| Error::new("read file", b"", e);
    let is_it = |(told, at): (Arc<dyn SourceFile>, Extent)| at == extent && std::ptr::addr_eq(&raw const *told, file);
    if !(coming.told.take().is_some_and(is_it) && queue.go_on()) {
        queue.start(descriptor, extent.start, extent.end).map_err(fail)?;
    }
    if let Some((file, extent)) = coming.expected.take()
        && let Some(descriptor) = source_file(&*file)
        && queue.follow(descriptor, extent.start, extent.end).is_ok()
    {
        coming.told = Some((file, extent));
    }
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
            (Engine::Auto, None) if engines.depth > 0 => EngineKind::UringDirect,
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
        let unjudged = if engines.requested == Engine::Uring { "asked for" } else { DEPTH_ASKED };
        let why = self.0.get().map_or(unjudged, |verdict| &verdict.reason);
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
mod tests;
