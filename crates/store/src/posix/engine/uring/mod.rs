//! io_uring: several blocks of one lane in flight at once.
//!
//! [`Queue`] owns the ring together with the blocks the kernel reads and writes, and is the only unsafe part; the writer
//! and the reader above it are safe code.
//!
//! Invariants:
//! - A block is lent only while none of its operations is in flight.
//! - An operation in flight keeps the descriptors of its file open.
//! - Dropping a queue waits for every operation. Where that is impossible the blocks are leaked, never unmapped.
//! - A queue belongs to the thread that first submitted to it; from another thread every call fails. Completions are
//!   delivered only inside calls on the queue, so that they never interrupt the lane's socket calls. (From Linux 6.1 on;
//!   before, any thread may call, and completions arrive when they like.)

mod writer;
mod reader;
mod ring;

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::Shape;
use super::direct::Target;
use super::memory::BlockMemory;
use ring::{Direction, Operation, Ring};

pub use reader::UringReader;
pub use writer::UringWriter;

/// Operations of one block that may be in flight at once: its aligned part past the page cache, the rest through it.
const PARTS: usize = 2;

/// More in flight than this from a single lane has not been seen to help any storage; it bounds memory.
const DEPTH_MAX: usize = 128;

/// Small blocks, so that a short file of a trial is several operations in flight.
#[cfg(feature = "simulation")]
const SIMULATED: Shape = Shape { block_bytes: 4096, depth: 4 };

/// How often an operation that reports an interruption is handed in again before that counts as its error.
const ATTEMPTS_MAX: u8 = 16;

/// One operation: which bytes of its block, and where in which file.
struct Transfer {
    target: Arc<Target>,
    direction: Direction,
    /// Past the page cache: offset, range and file must then be fit for it.
    is_direct: bool,
    offset: u64,
    range: Range<usize>,
    attempts: u8,
}

/// Told how long each operation took, from handing it in to taking its completion.
///
/// A completion waits until the lane asks for one, so that a lane that is busy elsewhere sees longer times.
pub type Observer = Box<dyn FnMut(Duration) + Send>;

impl Transfer {
    /// What is left of a transfer after `done` bytes; `is_direct` only if the rest is still aligned.
    fn rest(mut self, done: usize) -> Transfer {
        self.offset += done as u64;
        self.range.start += done;
        // It got on: interruptions are counted from here.
        self.attempts = 0;
        self.is_direct &= done.is_multiple_of(super::memory::ALIGNMENT_BYTES);
        self
    }

    fn fd(&self) -> RawFd {
        match (&self.target.direct, self.is_direct) {
            (Some(direct), true) => direct.as_raw_fd(),
            _ => self.target.buffered.as_raw_fd(),
        }
    }
}

/// A transfer the kernel is done with.
struct Completion {
    block: usize,
    part: usize,
    transfer: Transfer,
    result: Result<usize, Errno>,
}

/// The ring, the blocks, and what is in flight between them.
struct Queue {
    ring: Ring,
    is_bound: bool,
    memory: ManuallyDrop<BlockMemory>,
    /// Index `block * PARTS + part`; `Some` from submission to completion.
    operations: Box<[Option<Transfer>]>,
    in_flight: usize,
    /// None on the data path of transfers, which then read no clock.
    watch: Option<Watch>,
}

struct Watch {
    observer: Observer,
    /// Index as in `operations`.
    handed_in: Box<[Instant]>,
}

impl Queue {
    fn new(shape: Shape) -> io::Result<Queue> {
        #[cfg(feature = "simulation")]
        let shape = if os::simulation::is_simulated() { SIMULATED } else { shape };
        let depth = shape.depth.clamp(1, DEPTH_MAX);
        let ring = Ring::new((depth * PARTS) as u32)?;
        let memory = ManuallyDrop::new(BlockMemory::new(shape.block_bytes, depth)?);
        let operations = (0..depth * PARTS).map(|_| None).collect();
        Ok(Queue { ring, is_bound: false, memory, operations, in_flight: 0, watch: None })
    }

    fn observe(&mut self, observer: Observer) {
        let handed_in = vec![Instant::now(); self.operations.len()].into();
        self.watch = Some(Watch { observer, handed_in });
    }

    fn depth(&self) -> usize {
        self.operations.len() / PARTS
    }

    fn block_bytes(&self) -> usize {
        self.memory.block_bytes()
    }

    fn is_in_flight(&self, block: usize) -> bool {
        self.operations[block * PARTS..(block + 1) * PARTS].iter().any(Option::is_some)
    }

    /// Lends a block. Panics if the kernel still works on it.
    fn bytes(&mut self, block: usize) -> &mut [u8] {
        assert!(!self.is_in_flight(block), "block {block} is in flight");
        let len = self.memory.block_bytes();
        // SAFETY: the block is `len` initialised bytes of a live mapping; no operation on it is in flight (checked), none
        // can be handed in while the result borrows `self` exclusively, and nobody else has pointers to it.
        unsafe { std::slice::from_raw_parts_mut(self.memory.block(block).as_ptr(), len) }
    }

    /// Hands an operation to the kernel. Panics if `part` of `block` already has one in flight.
    ///
    /// # Errors
    /// The ring refuses to work. The operation may then count as in flight for ever, and its block is lost.
    fn submit(&mut self, block: usize, part: usize, transfer: Transfer) -> Result<(), Errno> {
        let index = block * PARTS + part;
        assert!(part < PARTS && self.operations[index].is_none(), "operation {part} of block {block} is in flight");
        assert!(transfer.range.start < transfer.range.end && transfer.range.end <= self.memory.block_bytes());
        self.bind()?;
        if let Some(watch) = &mut self.watch {
            watch.handed_in[index] = Instant::now();
        }
        // SAFETY: range.start is inside the block (checked).
        let start = unsafe { self.memory.block(block).add(transfer.range.start) }.as_ptr();
        let len = u32::try_from(transfer.range.len()).map_err(|_| Errno::INVAL)?;
        let Transfer { direction, offset, .. } = transfer;
        let operation = Operation { index, fd: transfer.fd(), direction, start, length: len, offset };
        // SAFETY: the bytes start..start + len stay mapped until the completion: they are inside the block (checked), and
        // `Drop` waits for the completion or leaks the mapping. Nobody touches them meanwhile: `bytes` refuses the block
        // while `operations` has an entry for it. The descriptor stays open: the entry holds the target.
        // The ring has an entry for every operation there can be, and all of them are submitted one by one.
        unsafe { self.ring.push(operation) }?;
        self.operations[index] = Some(transfer);
        self.in_flight += 1;
        loop {
            match self.ring.submit() {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                // The kernel is out of memory for requests, for a moment: the entry goes with the next call.
                Err(Errno::AGAIN | Errno::BUSY) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for one of the operations in flight. Panics if there is none.
    fn complete(&mut self) -> Result<Completion, Errno> {
        assert!(self.in_flight > 0, "waiting for nothing");
        loop {
            let Some((index, result)) = self.ring.next() else {
                match self.ring.wait() {
                    Ok(()) | Err(Errno::INTR) => continue,
                    Err(error) => return Err(error),
                }
            };
            let Some(transfer) = self.operations.get_mut(index).and_then(Option::take) else { continue };
            self.in_flight -= 1;
            if let Some(watch) = &mut self.watch {
                (watch.observer)(watch.handed_in[index].elapsed());
            }
            return Ok(Completion { block: index / PARTS, part: index % PARTS, transfer, result });
        }
    }

    /// Ties the ring to the calling thread, once.
    fn bind(&mut self) -> Result<(), Errno> {
        if self.is_bound {
            return Ok(());
        }
        self.ring.bind(self.operations.len() as u32)?;
        self.is_bound = true;
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.complete().is_err() {
                // SAFETY: `memory` is not used again: this is the end of `drop`, and nothing after it takes it.
                unsafe { ManuallyDrop::take(&mut self.memory) }.leak();
                return;
            }
        }
        // SAFETY: as above, and no operation is in flight, so that the kernel is done with the mapping.
        drop(unsafe { ManuallyDrop::take(&mut self.memory) });
    }
}
