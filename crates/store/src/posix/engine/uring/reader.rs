//! Read-ahead: up to `depth` blocks of an extent are on their way while the lane works on the one before; when all of it was
//! asked for, the blocks that become free are for the extent after it.
//!
//! Past the page cache the blocks lie on a grid of whole pages that begins at or before the extent; what is outside the
//! extent is cut off before a block is lent, so that neither its start nor its end need be aligned.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::direct::Target;
use super::super::memory::ALIGNMENT_BYTES;
use super::super::{BlockReader, EngineKind, Fallback, Shape};
use super::ring::Direction;
use super::{ATTEMPTS_MAX, Completion, Observer, Queue, Transfer};

/// Reads an extent through a queue of blocks.
pub struct UringReader {
    queue: Queue,
    kind: EngineKind,
    fallback: Option<Fallback>,
    extent: Option<Extent>,
    /// The extent after it.
    next: Option<Extent>,
    /// Blocks on their way or arrived, in the order in which they are lent.
    ahead: VecDeque<Arriving>,
    free: Vec<usize>,
    lent: Option<usize>,
}

/// What is left to ask for.
struct Extent {
    target: Arc<Target>,
    /// Where the next block begins: at or before the first byte still wanted.
    position: u64,
    left: Range<u64>,
}

/// One block on its way.
struct Arriving {
    block: usize,
    is_of_next: bool,
    /// The bytes of the block that belong to the extent.
    wanted: Range<usize>,
    /// Bytes read so far; an error ends the extent.
    filled: Result<usize, Errno>,
    is_complete: bool,
}

impl UringReader {
    /// Makes a reader past the page cache, or through it for any other `kind` than `UringDirect`.
    ///
    /// # Errors
    /// Where the host does not allow io_uring.
    pub fn new(kind: EngineKind, shape: Shape) -> io::Result<UringReader> {
        let queue = Queue::new(shape)?;
        let depth = queue.depth();
        let kind = if kind == EngineKind::UringDirect { kind } else { EngineKind::UringBuffered };
        Ok(UringReader {
            queue,
            kind,
            fallback: None,
            extent: None,
            next: None,
            ahead: VecDeque::with_capacity(depth),
            free: (0..depth).collect(),
            lent: None,
        })
    }

    /// Measures every operation from here on, for benchmarks.
    pub fn observe(&mut self, observer: Observer) {
        self.queue.observe(observer);
    }

    /// Asks for blocks until none is free or nothing is left.
    fn ask_ahead(&mut self) -> Result<(), Errno> {
        let block_bytes = self.queue.block_bytes() as u64;
        loop {
            let is_left = |extent: &&mut Extent| !extent.left.is_empty();
            let present = self.extent.as_mut().filter(is_left).map(|extent| (extent, false));
            let asked_for = present.or_else(|| self.next.as_mut().filter(is_left).map(|extent| (extent, true)));
            let Some((extent, is_of_next)) = asked_for else { return Ok(()) };
            let Some(block) = self.free.pop() else { return Ok(()) };
            let block_end = extent.position.saturating_add(block_bytes);
            let wanted_end = block_end.min(extent.left.end);
            let is_direct = self.kind == EngineKind::UringDirect && extent.target.direct.is_some();
            // All three are at most block_bytes, which came from a usize.
            let wanted = (extent.left.start - extent.position) as usize..(wanted_end - extent.position) as usize;
            let asked = if is_direct { wanted.end.next_multiple_of(ALIGNMENT_BYTES) } else { wanted.end };
            let transfer = Transfer {
                target: Arc::clone(&extent.target),
                direction: Direction::Read,
                is_direct,
                offset: extent.position,
                range: 0..asked,
                attempts: 0,
            };
            extent.position = block_end;
            extent.left.start = wanted_end;
            self.ahead.push_back(Arriving { block, is_of_next, wanted, filled: Ok(0), is_complete: false });
            self.queue.submit(block, 0, transfer)?;
        }
    }

    fn extent(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<Extent> {
        let access = (self.kind == EngineKind::UringDirect).then_some(OFlags::RDONLY);
        let (target, refusal) = Target::new(file, access)?;
        if let Some(refusal) = refusal {
            self.fall_back("open with O_DIRECT", refusal);
        }
        let position = if target.direct.is_some() { start - start % ALIGNMENT_BYTES as u64 } else { start };
        Ok(Extent { target: Arc::new(target), position, left: start..end })
    }

    /// Waits for one read and asks for the rest of its block if that is not complete.
    fn complete_one(&mut self) -> Result<(), Errno> {
        let Completion { block, part, mut transfer, result } = self.queue.complete()?;
        let Some(arriving) = self.ahead.iter_mut().find(|arriving| arriving.block == block) else { return Ok(()) };
        match result {
            Ok(done) => {
                let filled = transfer.range.start + done;
                arriving.filled = Ok(filled);
                // Zero is the end of the file. A count that ends inside a page most likely is, too, but only a read that
                // returns nothing proves it.
                if done > 0 && filled < arriving.wanted.end {
                    return self.queue.submit(block, part, transfer.rest(done));
                }
            }
            Err(Errno::INTR | Errno::AGAIN) if transfer.attempts < ATTEMPTS_MAX => {
                transfer.attempts += 1;
                return self.queue.submit(block, part, transfer);
            }
            Err(Errno::INVAL) if transfer.is_direct => {
                self.fall_back("read with O_DIRECT", Errno::INVAL);
                transfer.is_direct = false;
                return self.queue.submit(block, part, transfer);
            }
            Err(error) => arriving.filled = Err(error),
        }
        arriving.is_complete = true;
        Ok(())
    }

    /// Waits until the first block of the extent is complete and takes it out of the row.
    fn take_first(&mut self) -> Result<Option<Arriving>, Errno> {
        while self.ahead.front().is_some_and(|first| !first.is_of_next && !first.is_complete) {
            self.complete_one()?;
        }
        let is_there = self.ahead.front().is_some_and(|first| !first.is_of_next);
        Ok(if is_there { self.ahead.pop_front() } else { None })
    }

    fn fall_back(&mut self, operation: &'static str, errno: Errno) {
        let (wanted, used) = (EngineKind::UringDirect, EngineKind::UringBuffered);
        self.kind = used;
        self.fallback.get_or_insert(Fallback { wanted, used, operation, errno: errno.raw_os_error() });
    }

    fn next_block(&mut self) -> Result<Option<(usize, Range<usize>)>, Errno> {
        self.free.extend(self.lent.take());
        self.ask_ahead()?;
        let Some(first) = self.take_first()? else { return Ok(None) };
        self.lent = Some(first.block);
        let filled = first.filled?;
        let wanted = first.wanted.start..first.wanted.end.min(filled).max(first.wanted.start);
        if filled < first.wanted.end {
            // The file ends here. What was asked for beyond stays in the row until `cancel`; more is not asked for.
            (self.extent, self.next) = (None, None);
        }
        Ok((!wanted.is_empty()).then_some((first.block, wanted)))
    }
}

impl BlockReader for UringReader {
    fn start(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        self.cancel();
        self.extent = Some(self.extent(file, start, end)?);
        self.ask_ahead().map_err(|error| {
            self.cancel();
            error.into()
        })
    }

    fn follow(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        if self.extent.is_some() && self.next.is_none() {
            self.next = Some(self.extent(file, start, end)?);
        }
        Ok(())
    }

    fn go_on(&mut self) -> bool {
        // What is left of an extent that was given up half-way may not be taken for the next one's.
        if self.extent.is_some() || self.ahead.iter().any(|block| !block.is_of_next) {
            return false;
        }
        self.extent = self.next.take();
        self.ahead.iter_mut().for_each(|block| block.is_of_next = false);
        self.extent.is_some()
    }

    fn next(&mut self) -> io::Result<&mut [u8]> {
        match self.next_block() {
            Ok(Some((block, wanted))) => Ok(&mut self.queue.bytes(block)[wanted]),
            Ok(None) if self.next.is_some() => {
                self.extent = None;
                Ok(&mut [])
            }
            Ok(None) => {
                self.cancel();
                Ok(&mut [])
            }
            Err(error) => {
                self.cancel();
                Err(error.into())
            }
        }
    }

    fn cancel(&mut self) {
        (self.extent, self.next) = (None, None);
        while self.queue.in_flight > 0 {
            if self.queue.complete().is_err() {
                break;
            }
        }
        self.ahead.clear();
        self.lent = None;
        self.free.clear();
        self.free.extend((0..self.queue.depth()).filter(|&block| !self.queue.is_in_flight(block)));
    }

    fn engine(&self) -> EngineKind {
        self.kind
    }

    fn block_bytes(&self) -> usize {
        self.queue.block_bytes()
    }

    fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }
}
