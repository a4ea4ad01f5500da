//! The memory that content is read into and written from: it begins at a page, as files do in the kernel's cache.
//!
//! Linux copies with `rep movsb` where the processor announces FSRM. On AMD Zen 3 that takes 25 times as long when the destination
//! lies 1 to 31 bytes behind the source, modulo 4096; and what the allocator maps begins 16 bytes behind a page. Reading a file in
//! the cache then costs five times as much (docs/decisions/012-every-processor.md).
//!
//! Not here: who may have how much (`memory`).

use std::ops::{Deref, DerefMut};

const PAGE_BYTES: usize = 4096;

pub(crate) struct Block {
    bytes: Box<[u8]>,
    /// Where the page begins.
    start: usize,
}

impl Block {
    pub(crate) fn new(bytes: usize) -> Block {
        let bytes: Box<[u8]> = vec![0; bytes + PAGE_BYTES - 1].into();
        let start = bytes.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        Block { bytes, start }
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.bytes.len() - (PAGE_BYTES - 1)]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes.len() - (PAGE_BYTES - 1);
        &mut self.bytes[self.start..][..bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_any_length_begins_at_a_page() {
        for bytes in [0, 1, 4095, 4096, 128 << 10, 200_000] {
            let mut block = Block::new(bytes);
            assert_eq!((block.len(), block.as_ptr().addr() % PAGE_BYTES), (bytes, 0));
            block.fill(1);
        }
    }
}
