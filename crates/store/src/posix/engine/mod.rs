//! How a lane's blocks reach a file: storage engines behind two traits.
//!
//! A lane is one thread; it owns one [`BlockWriter`] or [`BlockReader`] and works on one block after the other. The
//! engine supplies what the storage needs to be busy: nothing more than the calls themselves where storage answers from
//! memory ([`EngineKind::PreadPwrite`]), a queue of several blocks where every operation takes long
//! ([`EngineKind::UringDirect`], [`EngineKind::UringBuffered`]).
//!
//! Invariants:
//! - Block memory is mapped once per engine; no block is allocated on the data path.
//! - The kernel may use a block only while the engine says it is in flight: a block is lent to the caller only when none
//!   of its operations is, and dropping an engine waits for all of them.
//! - The caller may close its descriptor at any time: an engine works on descriptors of its own.
//! - The bytes of a file are the same whichever engine wrote them; engines differ in time only.
//!
//! Not here: opening files, sizes and preallocation, durability (the caller syncs after [`BlockWriter::drain`]), digests,
//! and small files, for which one `pread` or `pwrite` by the caller is cheaper than any engine.

mod memory;
mod direct;
mod plain;
mod uring;
pub mod probe;

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

pub use plain::{PlainReader, PlainWriter};
pub use probe::{Verdict, probe_write};
pub use uring::{Observer, UringReader, UringWriter};

/// One lane's way of writing blocks into files; owned by the lane's thread.
///
/// Errors of earlier writes surface on any later call and name nothing but an errno; from the first one on, every call
/// fails with it until [`drain`](Self::drain) has returned it.
///
/// With an io_uring engine give the file its size first (`fallocate`, or `ftruncate`): writes that extend a file are done
/// one at a time. On a disk with little latency that cost nothing; at 5 ms an operation it was 0.17 GB/s against 0.8.
pub trait BlockWriter: Send {
    /// Lends the buffer for the next block: [`block_bytes`](Self::block_bytes) long, aligned to 4096.
    ///
    /// Waits for a completion when all blocks are in flight. Asked twice without a write between, it lends the same
    /// buffer again.
    fn buffer(&mut self) -> io::Result<&mut [u8]>;

    /// Writes the first `len` bytes of the buffer last lent at `offset` of `file`; may return before they are written.
    ///
    /// `file` may be closed, and another file passed next, without a `drain` between. Fast when both `offset` and `len`
    /// are multiples of 4096; right in any case.
    fn write(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()>;

    /// Returns when every write handed in is complete; fails with the first error of any of them since the last drain.
    ///
    /// Lets go of every descriptor. Nothing is durable yet.
    fn drain(&mut self) -> io::Result<()>;

    fn engine(&self) -> EngineKind;

    fn block_bytes(&self) -> usize;

    /// Says why this is not the engine that was asked for, if it is not.
    fn fallback(&self) -> Option<&Fallback>;
}

/// One lane's way of reading a file's extent as a sequence of blocks, in order.
pub trait BlockReader: Send {
    /// Starts on `start..end` of `file`, giving up what is left of the extent before.
    fn start(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()>;

    /// Tells of another extent, whose blocks are asked for as soon as none of the present one is left to be asked for. A queue asks;
    /// where there is none, this does nothing. One at a time, after `start` or `go_on`.
    fn follow(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        let _ = (file, start, end);
        Ok(())
    }

    /// At the end of an extent: goes on with the one that was told of. False when there is none, or it was given up.
    fn go_on(&mut self) -> bool {
        false
    }

    /// Lends the next block; empty at the end of the extent and when the file ends before it (compare lengths).
    ///
    /// No block is longer than [`block_bytes`](Self::block_bytes), and only the first and the last are shorter. After an
    /// error the extent is over.
    fn next(&mut self) -> io::Result<&mut [u8]>;

    /// Gives up what is left of the extent and lets go of the file; waits for reads in flight.
    fn cancel(&mut self);

    fn engine(&self) -> EngineKind;

    fn block_bytes(&self) -> usize;

    /// Says why this is not the engine that was asked for, if it is not.
    fn fallback(&self) -> Option<&Fallback>;
}

/// The ways of reading and writing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// One `pread` or `pwrite` at a time, through the page cache.
    PreadPwrite,
    /// A queue of blocks in flight past the page cache.
    UringDirect,
    /// A queue of blocks in flight through the page cache.
    UringBuffered,
}

impl EngineKind {
    pub fn as_str(self) -> &'static str {
        match self {
            EngineKind::PreadPwrite => "pread/pwrite",
            EngineKind::UringDirect => "io_uring O_DIRECT",
            EngineKind::UringBuffered => "io_uring buffered",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Blocks of an engine: how long, and how many in flight at most. Memory per engine is the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rounded up to a multiple of 4096.
    pub block_bytes: usize,
    /// 1 to 128; [`EngineKind::PreadPwrite`] always has 1.
    pub depth: usize,
}

impl Shape {
    /// The shape an engine has unless the caller knows better.
    pub fn of(kind: EngineKind) -> Shape {
        match kind {
            EngineKind::PreadPwrite => Shape { block_bytes: 128 << 10, depth: 1 },
            EngineKind::UringDirect => Shape { block_bytes: 1 << 20, depth: 8 },
            EngineKind::UringBuffered => Shape { block_bytes: 256 << 10, depth: 8 },
        }
    }
}

/// Why an engine is not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    pub wanted: EngineKind,
    pub used: EngineKind,
    /// The call that was refused.
    pub operation: &'static str,
    /// What it was refused with.
    pub errno: i32,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cause = io::Error::from_raw_os_error(self.errno);
        write!(f, "{} instead of {}: {}: {cause}", self.used, self.wanted, self.operation)
    }
}

/// Makes a writer of `kind`, or of the next simpler kind the host allows ([`BlockWriter::fallback`] says why).
///
/// # Errors
/// Only for lack of memory.
pub fn writer(kind: EngineKind, shape: Shape) -> io::Result<Box<dyn BlockWriter>> {
    if kind == EngineKind::PreadPwrite {
        return Ok(Box::new(PlainWriter::new(shape)?));
    }
    match UringWriter::new(kind, shape) {
        Ok(writer) => Ok(Box::new(writer)),
        Err(error) => {
            Ok(Box::new(PlainWriter::standing_in(Shape::of(EngineKind::PreadPwrite), no_ring(kind, &error))?))
        }
    }
}

/// Makes a reader of `kind`, or of the next simpler kind the host allows ([`BlockReader::fallback`] says why).
///
/// # Errors
/// Only for lack of memory.
pub fn reader(kind: EngineKind, shape: Shape) -> io::Result<Box<dyn BlockReader>> {
    if kind == EngineKind::PreadPwrite {
        return Ok(Box::new(PlainReader::new(shape)?));
    }
    match UringReader::new(kind, shape) {
        Ok(reader) => Ok(Box::new(reader)),
        Err(error) => {
            Ok(Box::new(PlainReader::standing_in(Shape::of(EngineKind::PreadPwrite), no_ring(kind, &error))?))
        }
    }
}

/// Containers commonly refuse io_uring (ENOSYS or EPERM), hosts may switch it off, and it may exceed a memory limit.
fn no_ring(wanted: EngineKind, error: &io::Error) -> Fallback {
    let errno = error.raw_os_error().unwrap_or(0);
    Fallback { wanted, used: EngineKind::PreadPwrite, operation: "set up io_uring", errno }
}

#[cfg(test)]
mod tests;
