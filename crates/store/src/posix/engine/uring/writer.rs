//! Write-behind: blocks are handed to the kernel and the lane goes on; it waits only when all of them are in flight.
//!
//! A block whose offset is aligned is written past the page cache up to its last whole page, and the bytes after that
//! (only ever the tail of a file) through it, both at once; an unaligned block goes through the page cache altogether. No
//! page is ever written both ways, and the file never is longer than its bytes, so that no truncation is needed.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use model::mutant;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::direct::{Target, inode_of};
use super::super::memory::ALIGNMENT_BYTES;
use super::super::{BlockWriter, EngineKind, Fallback, Shape};
use super::ring::Direction;
use super::{ATTEMPTS_MAX, Completion, Observer, Queue, Transfer};

/// Writes blocks through a queue of them.
pub struct UringWriter {
    queue: Queue,
    kind: EngineKind,
    fallback: Option<Fallback>,
    /// The file of the last write: a lane writes many blocks of one file before it turns to the next.
    target: Option<Arc<Target>>,
    /// Blocks that are neither lent nor in flight; the last used comes first, as it may still be in cache.
    free: Vec<usize>,
    lent: Option<usize>,
    error: Option<Errno>,
}

impl UringWriter {
    /// Makes a writer past the page cache, or through it for any other `kind` than `UringDirect`.
    ///
    /// # Errors
    /// Where the host does not allow io_uring.
    pub fn new(kind: EngineKind, shape: Shape) -> io::Result<UringWriter> {
        let queue = Queue::new(shape)?;
        let free = (0..queue.depth()).collect();
        let kind = if kind == EngineKind::UringDirect { kind } else { EngineKind::UringBuffered };
        Ok(UringWriter { queue, kind, fallback: None, target: None, free, lent: None, error: None })
    }

    /// Measures every operation from here on, for benchmarks.
    pub fn observe(&mut self, observer: Observer) {
        self.queue.observe(observer);
    }

    /// The engine's view of `file`, kept from the last write if that went to the same file.
    fn target_of(&mut self, file: BorrowedFd<'_>) -> Result<Arc<Target>, Errno> {
        if let Some(target) = &self.target {
            // The kept descriptors hold the inode, so that its number cannot have been given to another file.
            if target.inode == inode_of(file)? {
                return Ok(Arc::clone(target));
            }
        }
        let access = (self.kind == EngineKind::UringDirect).then_some(OFlags::WRONLY);
        let (target, refusal) = Target::new(file, access)?;
        if let Some(refusal) = refusal {
            self.fall_back("open with O_DIRECT", refusal);
        }
        let target = Arc::new(target);
        self.target = Some(Arc::clone(&target));
        Ok(target)
    }

    fn hand_in(&mut self, block: usize, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<(), Errno> {
        let target = self.target_of(file)?;
        let is_aligned = offset.is_multiple_of(ALIGNMENT_BYTES as u64);
        let direct_len = match self.kind == EngineKind::UringDirect && target.direct.is_some() && is_aligned {
            true => len - len % ALIGNMENT_BYTES,
            false => 0,
        };
        for (part, range) in [0..direct_len, direct_len..len].into_iter().enumerate() {
            if range.is_empty() {
                continue;
            }
            let transfer = Transfer {
                target: Arc::clone(&target),
                direction: Direction::Write,
                is_direct: part == 0,
                offset: offset + range.start as u64,
                range,
                attempts: 0,
            };
            self.queue.submit(block, part, transfer)?;
        }
        Ok(())
    }

    /// Waits for one operation and continues it if it is not complete.
    fn complete_one(&mut self) -> Result<(), Errno> {
        let Completion { block, part, mut transfer, result } = self.queue.complete()?;
        let left = match result {
            Ok(0) => Err(Errno::IO),
            Ok(done) if done < transfer.range.len() && !mutant::is_on("take-short-completions") => {
                Ok(Some(transfer.rest(done)))
            }
            Ok(_) => Ok(None),
            Err(Errno::INTR | Errno::AGAIN) if transfer.attempts < ATTEMPTS_MAX => {
                transfer.attempts += 1;
                Ok(Some(transfer))
            }
            Err(Errno::INVAL) if transfer.is_direct => {
                self.fall_back("write with O_DIRECT", Errno::INVAL);
                transfer.is_direct = false;
                Ok(Some(transfer))
            }
            Err(_) if mutant::is_on("ignore-failed-completions") => Ok(None),
            Err(error) => Err(error),
        };
        match left {
            Ok(Some(rest)) => return self.queue.submit(block, part, rest),
            Ok(None) => {}
            Err(error) => _ = self.error.get_or_insert(error),
        }
        if !self.queue.is_in_flight(block) {
            self.free.push(block);
        }
        Ok(())
    }

    fn fall_back(&mut self, operation: &'static str, errno: Errno) {
        let (wanted, used) = (EngineKind::UringDirect, EngineKind::UringBuffered);
        self.kind = used;
        self.fallback.get_or_insert(Fallback { wanted, used, operation, errno: errno.raw_os_error() });
    }

    fn check(&self) -> io::Result<()> {
        self.error.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Keeps an error for the calls to come, and returns it.
    fn keep(&mut self, error: Errno) -> io::Error {
        (*self.error.get_or_insert(error)).into()
    }
}

impl BlockWriter for UringWriter {
    fn buffer(&mut self) -> io::Result<&mut [u8]> {
        self.check()?;
        let block = loop {
            if let Some(block) = self.lent.or_else(|| self.free.pop()) {
                break block;
            }
            self.complete_one().map_err(|error| self.keep(error))?;
            self.check()?;
        };
        self.lent = Some(block);
        Ok(self.queue.bytes(block))
    }

    fn write(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        self.check()?;
        let (Some(block), true) = (self.lent, len <= self.queue.block_bytes()) else {
            return Err(Errno::INVAL.into());
        };
        if offset.checked_add(len as u64).is_none() {
            return Err(Errno::FBIG.into());
        }
        if len == 0 {
            return Ok(());
        }
        let handed_in = self.hand_in(block, file, offset, len);
        if self.queue.is_in_flight(block) {
            self.lent = None;
        }
        handed_in.map_err(|error| self.keep(error))
    }

    fn drain(&mut self) -> io::Result<()> {
        self.target = None;
        while self.queue.in_flight > 0 {
            if let Err(error) = self.complete_one() {
                self.error.get_or_insert(error);
                break;
            }
        }
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
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
