//! `pread` and `pwrite`, one block at a time: the default engine, and the fastest wherever the page cache answers.
//!
//! Every write is complete when `write` returns. Short transfers and interruptions are continued here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use super::memory::BlockMemory;
use super::{BlockReader, BlockWriter, EngineKind, Fallback, Shape};

/// Writes blocks with `pwrite`.
pub struct PlainWriter {
    block: Block,
    error: Option<Errno>,
    fallback: Option<Fallback>,
}

impl PlainWriter {
    pub fn new(shape: Shape) -> io::Result<PlainWriter> {
        Ok(PlainWriter { block: Block::new(shape)?, error: None, fallback: None })
    }

    pub(super) fn standing_in(shape: Shape, fallback: Fallback) -> io::Result<PlainWriter> {
        Ok(PlainWriter { fallback: Some(fallback), ..PlainWriter::new(shape)? })
    }
}

impl BlockWriter for PlainWriter {
    fn buffer(&mut self) -> io::Result<&mut [u8]> {
        match self.error {
            Some(error) => Err(error.into()),
            None => Ok(self.block.bytes()),
        }
    }

    fn write(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        let Some(bytes) = self.block.bytes().get(..len) else { return Err(Errno::INVAL.into()) };
        write_all_at(file, bytes, offset).map_err(|error| {
            self.error = Some(error);
            error.into()
        })
    }

    fn drain(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }

    fn engine(&self) -> EngineKind {
        EngineKind::PreadPwrite
    }

    fn block_bytes(&self) -> usize {
        self.block.memory.block_bytes()
    }

    fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }
}

/// Reads blocks with `pread`.
pub struct PlainReader {
    block: Block,
    extent: Option<(OwnedFd, std::ops::Range<u64>)>,
    fallback: Option<Fallback>,
}

impl PlainReader {
    pub fn new(shape: Shape) -> io::Result<PlainReader> {
        Ok(PlainReader { block: Block::new(shape)?, extent: None, fallback: None })
    }

    pub(super) fn standing_in(shape: Shape, fallback: Fallback) -> io::Result<PlainReader> {
        Ok(PlainReader { fallback: Some(fallback), ..PlainReader::new(shape)? })
    }
}

impl BlockReader for PlainReader {
    fn start(&mut self, file: BorrowedFd<'_>, start: u64, end: u64) -> io::Result<()> {
        self.extent = None;
        self.extent = Some((file.try_clone_to_owned()?, start..end));
        Ok(())
    }

    fn next(&mut self) -> io::Result<&mut [u8]> {
        let Some((file, left)) = &mut self.extent else { return Ok(&mut []) };
        let block_bytes = self.block.memory.block_bytes() as u64;
        // At most block_bytes, which came from a usize.
        let wanted = left.end.saturating_sub(left.start).min(block_bytes) as usize;
        let bytes = &mut self.block.bytes()[..wanted];
        let read = read_full_at(file.as_fd(), bytes, left.start);
        left.start += wanted as u64;
        let is_over = left.start >= left.end;
        match read {
            Ok(len) => {
                if is_over || len < wanted {
                    self.extent = None;
                }
                Ok(&mut self.block.bytes()[..len])
            }
            Err(error) => {
                self.extent = None;
                Err(error.into())
            }
        }
    }

    fn cancel(&mut self) {
        self.extent = None;
    }

    fn engine(&self) -> EngineKind {
        EngineKind::PreadPwrite
    }

    fn block_bytes(&self) -> usize {
        self.block.memory.block_bytes()
    }

    fn fallback(&self) -> Option<&Fallback> {
        self.fallback.as_ref()
    }
}

/// One block that only this process touches.
struct Block {
    memory: BlockMemory,
}

impl Block {
    fn new(shape: Shape) -> io::Result<Block> {
        Ok(Block { memory: BlockMemory::new(shape.block_bytes, 1)? })
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.memory.block_bytes();
        // SAFETY: the mapping is block_bytes long, initialised (zeroed by the kernel), owned by `self` and lent to nobody
        // else: the borrow of `self` is exclusive, and no call that keeps the pointer is ever made on this memory.
        unsafe { std::slice::from_raw_parts_mut(self.memory.block(0).as_ptr(), len) }
    }
}

fn write_all_at(file: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match os::fs::pwrite(file, bytes, offset) {
            // Regular files never do this; a file system that does would hang us for ever.
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

/// Reads until `bytes` is full or the file ends; returns how much it was.
fn read_full_at(file: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < bytes.len() {
        match os::fs::pread(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
