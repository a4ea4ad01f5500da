//! Reads a chunk block by block, by the engine that suits the storage.
//!
//! The plain engine reads into the lane's own block. The first large object that reads slowly is raced against a queue
//! (`store::posix::engine::probe`), once for each lane's job; the winner reads from then on.

use crate::limits::BLOCK_BYTES;
use crate::memory::{Memory, Permit};
use crate::progress::Progress;
use model::Extent;
use model::options::Engine;
use os::time::Instant;
use std::sync::Arc;
use std::time::Duration;
use store::SourceFile;
use store::posix::engine::{self, BlockReader, EngineKind, Shape};

/// A block read slower than this on average makes the probe worth its time: no page cache and no fast disk is.
const SLOW_BLOCK: Duration = Duration::from_micros(500);
/// Blocks read before judging.
const BLOCKS_JUDGED: u32 = 8;
const PROBE_BUDGET: Duration = Duration::from_millis(150);

/// One lane's reader.
pub struct ChunkReader {
    block: Box<[u8]>,
    queue: Option<(Box<dyn BlockReader>, Permit)>,
    wish: Engine,
    blocks: u32,
    spent: Duration,
    is_judged: bool,
    progress: Arc<Progress>,
    memory: Memory,
}

impl ChunkReader {
    /// `memory` is the account of a queue's blocks, should one pay.
    pub fn new(wish: Engine, progress: Arc<Progress>, memory: Memory) -> ChunkReader {
        ChunkReader {
            block: vec![0; BLOCK_BYTES].into(),
            queue: None,
            wish,
            blocks: 0,
            spent: Duration::ZERO,
            is_judged: wish == Engine::Plain,
            progress,
            memory,
        }
    }

    /// Reads `extent` and hands every block to `each` in order. Returns how many bytes there were: fewer than the
    /// extent is long when the source ends before it. `each` says false to stop.
    pub fn read(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> store::Result<u64> {
        self.judge(file, extent);
        if self.queue.is_some() && file.descriptor().is_some() {
            return self.read_queued(file, extent, each);
        }
        let mut at = extent.start;
        while at < extent.end {
            let wanted = self.block.len().min((extent.end - at) as usize);
            let before = Instant::now();
            let got = file.read_at(at, &mut self.block[..wanted])?;
            if !self.is_judged {
                self.spent += before.elapsed();
                self.blocks += 1;
            }
            at += got as u64;
            if (got > 0 && !each(&self.block[..got])) || got < wanted {
                break;
            }
        }
        Ok(at - extent.start)
    }

    fn read_queued(
        &mut self,
        file: &dyn SourceFile,
        extent: Extent,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> store::Result<u64> {
        let (Some((queue, _)), Some(descriptor)) = (&mut self.queue, file.descriptor()) else { return Ok(0) };
        let fail = |e| store::Error::new("read file", b"", e);
        queue.start(descriptor, extent.start, extent.end).map_err(fail)?;
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

    /// Decides once whether a queue pays here.
    fn judge(&mut self, file: &dyn SourceFile, extent: Extent) {
        let Some(descriptor) = file.descriptor().filter(|_| !self.is_judged) else { return };
        if self.wish == Engine::Uring {
            return self.use_queue(EngineKind::UringDirect, "asked for");
        }
        if self.blocks < BLOCKS_JUDGED {
            return;
        }
        self.is_judged = true;
        if self.spent / self.blocks >= SLOW_BLOCK {
            let verdict = engine::probe_read(descriptor, extent.start..extent.end, PROBE_BUDGET);
            if verdict.chosen != EngineKind::PreadPwrite {
                self.use_queue(verdict.chosen, &verdict.reason);
            }
        }
    }

    fn use_queue(&mut self, kind: EngineKind, why: &str) {
        self.is_judged = true;
        let shape = Shape::of(kind);
        let Some(permit) = self.memory.acquire(shape.block_bytes * shape.depth, Duration::ZERO) else {
            return self.progress.note(format!("reads without {kind}: no memory for its blocks (--memory)"));
        };
        if let Ok(queue) = engine::reader(kind, shape) {
            let fallback = queue.fallback().map_or(String::new(), |f| format!(" ({f})"));
            self.progress.note(format!("reads by {}{fallback}: {why}", queue.engine()));
            self.queue = Some((queue, permit));
        }
    }
}
