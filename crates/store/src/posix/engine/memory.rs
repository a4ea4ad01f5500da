//! The blocks of one engine: a single mapping, cut into equal blocks aligned to 4096.
//!
//! Invariants:
//! - The mapping outlives every pointer handed out by `block`: it goes away in `Drop` only, and `leak` prevents even that.
//! - This module never touches the bytes; who may touch which block at what time is the owner's business.

use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Memory alignment and transfer granularity of direct I/O: the page size, and at least the logical block of every disk
/// in use. Storage that wants more answers EINVAL, and the engine goes on through the page cache.
pub(super) const ALIGNMENT_BYTES: usize = 4096;

/// `count` blocks of `block_bytes` each.
pub(super) struct BlockMemory {
    start: NonNull<u8>,
    block_bytes: usize,
    count: usize,
}

// SAFETY: the mapping is private to the value and not tied to the thread that made it.
unsafe impl Send for BlockMemory {}

impl BlockMemory {
    /// Maps zeroed memory; pages become real when they are first used.
    ///
    /// `block_bytes` is rounded up to the alignment, and to one of it at least.
    pub(super) fn new(block_bytes: usize, count: usize) -> io::Result<BlockMemory> {
        let block_bytes = block_bytes.max(1).checked_next_multiple_of(ALIGNMENT_BYTES);
        let total = block_bytes.and_then(|bytes| bytes.checked_mul(count.max(1)));
        let (Some(block_bytes), Some(total)) = (block_bytes, total) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory));
        };
        // SAFETY: a fresh private mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), total, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        // Huge pages make pinning the memory for direct I/O cheaper; without them everything still works.
        // SAFETY: the range is the mapping just made, and the advice changes no content.
        let _ = unsafe { madvise(start, total, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).expect("mmap never succeeds at address zero unless asked to");
        Ok(BlockMemory { start, block_bytes, count: count.max(1) })
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Points to the start of block `index`, valid for `block_bytes` bytes while `self` lives.
    pub(super) fn block(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.count, "block {index} of {}", self.count);
        // SAFETY: index < count, so that the offset stays inside the mapping of count * block_bytes bytes.
        unsafe { self.start.add(index * self.block_bytes) }
    }

    /// Gives the mapping up without unmapping it: for when the kernel may still write into it.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for BlockMemory {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping of `new`, and the owner guarantees that nobody uses it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.count * self.block_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_do_not_overlap() {
        let memory = BlockMemory::new(5000, 3).unwrap();
        assert_eq!(memory.block_bytes(), 8192);
        let starts: Vec<usize> = (0..3).map(|index| memory.block(index).as_ptr() as usize).collect();
        assert!(starts.iter().all(|start| start % ALIGNMENT_BYTES == 0));
        assert_eq!(starts[1] - starts[0], 8192);
        assert_eq!(starts[2] - starts[1], 8192);
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(BlockMemory::new(usize::MAX, 2).is_err());
        assert!(BlockMemory::new(usize::MAX / 4, 8).is_err());
    }
}
