//! Blocks to and from an open file, each timed: one call at a time, or the queue of crate `store`.
//!
//! Invariants:
//! - What is written does not compress, and no two runs of 512 bytes within a measurement are equal: each buffer is filled
//!   once with incompressible bytes, and every 512 bytes of it get a number of their own before each write, which costs next
//!   to nothing beside making new bytes.
//! - Past the page cache only what is aligned is written so; the rest of a file, less than 4 KiB, goes through it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;
use store::posix::engine::{BlockReader, BlockWriter, EngineKind, Shape, UringReader, UringWriter};

use super::files::Piece;
use super::latency::Histogram;
use super::options::{ALIGNMENT_BYTES, Engine};
use super::team::Clock;
use crate::dataset::{Content, Stream};
use crate::error::{Error, Kind, Result};

const STAMP_EVERY_BYTES: usize = 512;
const ALIGNMENT: usize = ALIGNMENT_BYTES as usize;

/// How blocks are moved. All of it is settled before a measurement: nothing falls back within one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub engine: Engine,
    pub is_direct: bool,
    pub block_bytes: u64,
    pub depth: usize,
}

impl Way {
    fn kind(&self) -> EngineKind {
        if self.is_direct { EngineKind::UringDirect } else { EngineKind::UringBuffered }
    }

    fn shape(&self) -> Shape {
        Shape { block_bytes: self.block_bytes as usize, depth: self.depth }
    }

    /// Whether a file gets its size before it is written: writes that extend one are done one at a time in a queue, and
    /// wait for the allocation past the page cache.
    pub fn allocates(&self) -> bool {
        self.is_direct || self.engine == Engine::Uring
    }

    /// What a file is opened with besides the access; the queue opens its own way past the page cache.
    pub fn flags(&self) -> OFlags {
        if self.is_direct && self.engine == Engine::Plain { OFlags::DIRECT } else { OFlags::empty() }
    }
}

/// Latencies that an engine fills from inside.
type Latencies = Arc<Mutex<Histogram>>;

/// One thread's way of writing.
pub(crate) struct Writer {
    way: Way,
    stamps: Stamps,
    plain: AlignedBlock,
    uring: Option<UringWriter>,
    latencies: Latencies,
}

impl Writer {
    pub fn new(way: Way, seed: u64, thread: usize) -> Result<Writer> {
        let (uring, latencies) = match way.engine {
            Engine::Plain => (None, Latencies::default()),
            Engine::Uring => {
                let mut uring = UringWriter::new(way.kind(), way.shape()).map_err(no_uring)?;
                let latencies = Latencies::default();
                let theirs = latencies.clone();
                uring.observe(Box::new(move |took| record(&theirs, took)));
                (Some(uring), latencies)
            }
        };
        let plain = AlignedBlock::new(if uring.is_some() { 0 } else { way.block_bytes as usize });
        Ok(Writer { way, stamps: Stamps::new(seed, thread), plain, uring, latencies })
    }

    /// Writes a piece until it is complete or the clock says stop; returns how many bytes that was.
    pub fn write(&mut self, file: BorrowedFd<'_>, piece: Piece, clock: &Clock<'_>) -> rustix::io::Result<u64> {
        match self.uring.take() {
            Some(mut uring) => {
                let written = self.write_queued(&mut uring, file, piece, clock);
                self.uring = Some(uring);
                written
            }
            None => self.write_plain(file, piece, clock),
        }
    }

    fn write_queued(
        &mut self,
        uring: &mut UringWriter,
        file: BorrowedFd<'_>,
        piece: Piece,
        clock: &Clock<'_>,
    ) -> rustix::io::Result<u64> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let mut offset = piece.start;
        while offset < piece.end && !clock.is_over() {
            let len = self.way.block_bytes.min(piece.end - offset) as usize;
            self.stamps.stamp(uring.buffer().map_err(errno)?);
            uring.write(file, offset, len).map_err(errno)?;
            offset += len as u64;
        }
        uring.drain().map_err(errno)?;
        Ok(offset - piece.start)
    }

    fn write_plain(&mut self, file: BorrowedFd<'_>, piece: Piece, clock: &Clock<'_>) -> rustix::io::Result<u64> {
        let mut offset = piece.start;
        let mut is_direct = self.way.is_direct;
        let mut latencies = lock(&self.latencies);
        while offset < piece.end && !clock.is_over() {
            let mut len = self.way.block_bytes.min(piece.end - offset) as usize;
            if is_direct && !len.is_multiple_of(ALIGNMENT) {
                if len > ALIGNMENT {
                    len -= len % ALIGNMENT;
                } else {
                    let flags = rustix::fs::fcntl_getfl(file)? - OFlags::DIRECT;
                    rustix::fs::fcntl_setfl(file, flags)?;
                    is_direct = false;
                }
            }
            let bytes = self.plain.bytes();
            self.stamps.stamp(bytes);
            let called = Instant::now();
            write_all_at(file, &bytes[..len], offset)?;
            latencies.record(called.elapsed());
            offset += len as u64;
        }
        Ok(offset - piece.start)
    }

    pub fn into_latencies(self) -> Histogram {
        drop(self.uring);
        std::mem::take(&mut lock(&self.latencies))
    }
}

/// One thread's way of reading.
pub(crate) struct Reader {
    way: Way,
    plain: AlignedBlock,
    uring: Option<UringReader>,
    latencies: Latencies,
}

impl Reader {
    pub fn new(way: Way) -> Result<Reader> {
        let latencies = Latencies::default();
        let uring = match way.engine {
            Engine::Plain => None,
            Engine::Uring => {
                let mut uring = UringReader::new(way.kind(), way.shape()).map_err(no_uring)?;
                let theirs = latencies.clone();
                uring.observe(Box::new(move |took| record(&theirs, took)));
                Some(uring)
            }
        };
        let plain = AlignedBlock::new(if uring.is_some() { 0 } else { way.block_bytes as usize });
        Ok(Reader { way, plain, uring, latencies })
    }

    /// Reads a piece until it is complete, the file ends or the clock says stop; returns how many bytes that was.
    pub fn read(&mut self, file: BorrowedFd<'_>, piece: Piece, clock: &Clock<'_>) -> rustix::io::Result<u64> {
        let Some(uring) = &mut self.uring else { return self.read_plain(file, piece, clock) };
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let mut bytes = 0;
        uring.start(file, piece.start, piece.end).map_err(errno)?;
        while bytes < piece.end - piece.start && !clock.is_over() {
            match uring.next().map_err(errno)?.len() as u64 {
                0 => break,
                len => bytes += len,
            }
        }
        uring.cancel();
        Ok(bytes)
    }

    fn read_plain(&mut self, file: BorrowedFd<'_>, piece: Piece, clock: &Clock<'_>) -> rustix::io::Result<u64> {
        let mut latencies = lock(&self.latencies);
        let mut offset = piece.start;
        while offset < piece.end && !clock.is_over() {
            let wanted = self.way.block_bytes.min(piece.end - offset) as usize;
            // Past the page cache the length asked for must be aligned, too; the file ends before it.
            let asked = if self.way.is_direct { wanted.next_multiple_of(ALIGNMENT) } else { wanted };
            let called = Instant::now();
            let len = read_at(file, &mut self.plain.bytes()[..asked], offset)?.min(wanted);
            latencies.record(called.elapsed());
            if len == 0 {
                break;
            }
            offset += len as u64;
        }
        Ok(offset - piece.start)
    }

    pub fn into_latencies(self) -> Histogram {
        drop(self.uring);
        std::mem::take(&mut lock(&self.latencies))
    }
}

/// Never contended: the engine and its owner are one thread.
fn lock(latencies: &Latencies) -> std::sync::MutexGuard<'_, Histogram> {
    latencies.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn record(latencies: &Latencies, took: Duration) {
    lock(latencies).record(took);
}

fn no_uring(error: std::io::Error) -> Error {
    Error { source: Some(error.into()), ..Error::new(Kind::Failed, "set up", "io_uring", "") }
}

/// Makes every 512 bytes that are written different from all others.
struct Stamps {
    seed: u64,
    thread: u64,
    next: u64,
    /// Addresses of the buffers that have been filled; as many as the depth.
    filled: Vec<usize>,
}

impl Stamps {
    fn new(seed: u64, thread: usize) -> Stamps {
        Stamps { seed, thread: thread as u64, next: 0, filled: Vec::new() }
    }

    fn stamp(&mut self, buffer: &mut [u8]) {
        let address = buffer.as_ptr() as usize;
        if !self.filled.contains(&address) {
            Stream::of_file(Content::Random, self.seed, self.thread, self.filled.len() as u64).fill(0, buffer);
            self.filled.push(address);
        }
        for run in buffer.chunks_mut(STAMP_EVERY_BYTES) {
            let len = run.len().min(8);
            run[..len].copy_from_slice(&(self.next ^ (self.thread << 48)).to_le_bytes()[..len]);
            self.next += 1;
        }
    }
}

/// A block whose address is a multiple of what direct I/O wants, found inside a longer one.
struct AlignedBlock {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBlock {
    fn new(len: usize) -> AlignedBlock {
        let len = len.next_multiple_of(ALIGNMENT);
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        AlignedBlock { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

fn write_all_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_at(file: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::pread(file, &mut *bytes, offset) {
            Err(Errno::INTR) => {}
            ended => return ended,
        }
    }
}

/// Says why direct I/O or io_uring cannot be used in a directory; None where both can, as far as they are wanted.
pub(crate) fn refusal(dir: BorrowedFd<'_>, way: Way) -> Option<String> {
    if way.engine == Engine::Uring
        && let Err(error) = UringWriter::new(way.kind(), Shape { block_bytes: ALIGNMENT, depth: 1 })
    {
        return Some(format!("io_uring is not available here ({error})"));
    }
    if !way.is_direct {
        return None;
    }
    let name = "direct-io-probe";
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let tried = rustix::fs::openat(dir, name, flags, rustix::fs::Mode::from_raw_mode(0o600))
        .and_then(|file| write_all_at(file.as_fd(), AlignedBlock::new(ALIGNMENT).bytes(), 0));
    let _ = rustix::fs::unlinkat(dir, name, rustix::fs::AtFlags::empty());
    tried.err().map(|errno| format!("O_DIRECT is not supported by this file system ({errno})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_runs_of_512_bytes_are_equal_though_buffers_are_reused() {
        let mut seen = std::collections::HashSet::new();
        for thread in 0..2 {
            let mut stamps = Stamps::new(1, thread);
            let mut buffers = [vec![0; 4096], vec![0; 4096]];
            for round in 0..10 {
                let buffer = &mut buffers[round % 2];
                stamps.stamp(buffer);
                assert!(buffer.chunks(512).all(|run| seen.insert(run.to_vec())));
            }
        }
        assert_eq!(seen.len(), 2 * 10 * 8);
    }

    #[test]
    fn a_block_is_aligned_whatever_its_length() {
        for len in [1, 512, 4096, 5000] {
            let mut block = AlignedBlock::new(len);
            assert!((block.bytes().as_ptr() as usize).is_multiple_of(ALIGNMENT) && block.bytes().len() >= len);
        }
    }
}
