//! Which engine a lane's blocks take: plain calls, or a queue where a race on the storage says that it pays.
//!
//! Reading starts with plain calls into the lane's own block. The first large object that reads slowly is raced against a queue
//! (`engine::probe`), once for each lane; the winner reads from then on. Writing is raced once for each sink, beside the running
//! transfer, and lanes that start a chunk after the verdict follow it.
//!
//! Not here: the engines (`engine`).

use super::engine::{self, BlockReader, EngineKind, Shape, Verdict};
use super::large::LargeFile;
use super::source::PosixFile;
use crate::{BlockWriter, Engines, Error, Result, SourceFile, StagedFile};
use model::Extent;
use model::options::Engine;
use os::time::Instant;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A block read slower than this on average makes the race worth its time: no page cache and no fast disk is.
const SLOW_BLOCK: Duration = Duration::from_micros(500);
/// Blocks read before judging.
const BLOCKS_JUDGED: u32 = 8;
const PROBE_BUDGET: Duration = Duration::from_millis(150);

/// The file of this host's kernel behind an open object, if it is one.
pub(super) fn source_file(file: &dyn SourceFile) -> Option<BorrowedFd<'_>> {
    Some(file.native()?.downcast_ref::<PosixFile>()?.file.as_fd())
}

fn staged_file(file: &dyn StagedFile) -> Option<BorrowedFd<'_>> {
    Some(file.native()?.downcast_ref::<LargeFile>()?.data())
}

/// One lane's reader.
#[derive(Default)]
pub(super) struct ExtentReader {
    queue: Option<(Box<dyn BlockReader>, Box<dyn Send>)>,
    /// As long as it is not decided whether a queue pays.
    undecided: Option<Engines>,
    blocks: u32,
    spent: Duration,
}

impl ExtentReader {
    pub fn serve(&mut self, engines: Engines) {
        self.undecided = (engines.wish != Engine::Plain).then_some(engines);
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
        self.judge(descriptor, extent);
        match &mut self.queue {
            Some((queue, _)) => read_queued(&mut **queue, descriptor, extent, each),
            None if self.undecided.is_some() => self.read_timed(file, extent, block, each),
            None => crate::read_by_blocks(file, extent, block, each),
        }
    }

    fn read_timed(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        block: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<u64> {
        let mut before = Instant::now();
        crate::read_by_blocks(file, extent, block, &mut |block| {
            self.spent += before.elapsed();
            self.blocks += 1;
            let goes_on = each(block);
            before = Instant::now();
            goes_on
        })
    }

    /// Decides once whether a queue pays here.
    fn judge(&mut self, file: BorrowedFd<'_>, extent: Extent) {
        let Some(engines) = &self.undecided else { return };
        let is_asked_for = engines.wish == Engine::Uring;
        if !is_asked_for && self.blocks < BLOCKS_JUDGED {
            return;
        }
        let Some(engines) = self.undecided.take() else { return };
        if is_asked_for {
            return self.use_queue(&engines, EngineKind::UringDirect, "asked for");
        }
        if self.spent / self.blocks >= SLOW_BLOCK {
            let verdict = engine::probe_read(file, extent.start..extent.end, PROBE_BUDGET);
            if verdict.chosen != EngineKind::PreadPwrite {
                self.use_queue(&engines, verdict.chosen, &verdict.reason);
            }
        }
    }

    fn use_queue(&mut self, engines: &Engines, kind: EngineKind, why: &str) {
        let shape = Shape::of(kind);
        let Some(memory) = engines.account.hold(shape.block_bytes * shape.depth) else {
            return engines.account.note(format!("reads without {kind}: its blocks found no memory (--memory)"));
        };
        if let Ok(queue) = engine::reader(kind, shape) {
            let fallback = queue.fallback().map_or(String::new(), |f| format!(" ({f})"));
            engines.account.note(format!("reads by {}{fallback}: {why}", queue.engine()));
            self.queue = Some((queue, memory));
        }
    }
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

impl WriteVerdict {
    /// Races beside the running transfer. The thread keeps nothing of the sink but the directory.
    pub fn find(&self, directory: Arc<OwnedFd>, engines: &Engines, is_durable: bool) {
        if engines.wish != Engine::Auto {
            return;
        }
        let (verdict, account) = (self.0.clone(), engines.account.clone());
        let probe = move || {
            let found = engine::probe_write(directory.as_fd(), is_durable, PROBE_BUDGET);
            account.note(format!("probe of the destination: {}", found.reason));
            let _ = verdict.set(found);
        };
        os::thread::spawn("probe", probe);
    }

    /// A queue for a lane, where one pays; `None` for plain writes.
    pub fn writer(&self, engines: &Engines) -> Option<Box<dyn BlockWriter>> {
        let kind = match (engines.wish, self.0.get()) {
            (Engine::Plain, _) | (Engine::Auto, None) => return None,
            (Engine::Uring, _) => EngineKind::UringDirect,
            (Engine::Auto, Some(verdict)) if verdict.chosen == EngineKind::PreadPwrite => return None,
            (Engine::Auto, Some(verdict)) => verdict.chosen,
        };
        let shape = Shape::of(kind);
        let Some(memory) = engines.account.hold(shape.block_bytes * shape.depth) else {
            engines.account.note(format!("writes without {kind}: its blocks found no memory (--memory)"));
            return None;
        };
        let queue = engine::writer(kind, shape).ok()?;
        let why = self.0.get().map_or("asked for", |verdict| &verdict.reason);
        let fallback = queue.fallback().map_or(String::new(), |f| format!(" ({f})"));
        engines.account.note(format!("writes by {}{fallback}: {why}", queue.engine()));
        Some(Box::new(QueueWriter { queue, _memory: memory }))
    }
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
