//! A part of a large object that is being put together.
//!
//! Invariants: bytes that come twice replace what they were; a part is complete when every byte of it was written, and never for its
//! length alone.
//! Not here: how much memory all parts may take (`width`).

use crate::width::Permit;
use model::{Extent, ExtentSet};
use std::collections::TryReserveError;

/// A part that is being put together.
pub struct Filling {
    bytes: Vec<u8>,
    written: ExtentSet,
    /// Of that, what was verified: it is not written again.
    sealed: ExtentSet,
    room: Permit,
}

impl Filling {
    /// An empty one.
    pub fn new(mut room: Permit) -> Filling {
        Filling { bytes: room.buffer(), written: ExtentSet::new(), sealed: ExtentSet::new(), room }
    }

    /// Puts bytes in their place. The part has this length, or where `is_open` at most.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn write(&mut self, offset: u64, bytes: &[u8], length: u64, is_open: bool) -> Result<(), TryReserveError> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        let before = self.bytes.len();
        if before < start {
            self.stretch(length as usize)?;
        } else if before < end && is_open {
            self.bytes.try_reserve(end - before)?;
        } else if before < end {
            // What is large gets its room at once.
            self.bytes.try_reserve_exact(length as usize - before)?;
        }
        let (over, behind) = bytes.split_at(end.min(self.bytes.len()) - start);
        self.bytes[start..start + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(behind);
        let extent = Extent::new(offset, end as u64);
        cover(&mut self.written, extent);
        self.sealed.remove(extent);
        Ok(())
    }

    /// Makes it that long. What was not written yet reads as zeros, and takes no memory.
    fn stretch(&mut self, length: usize) -> Result<(), TryReserveError> {
        if self.bytes.capacity() < length {
            // Memory that is not to be had is an error here; below it would end the process.
            let mut trial: Vec<u8> = Vec::new();
            trial.try_reserve_exact(length)?;
            drop(std::hint::black_box(trial));
            let mut whole = vec![0; length];
            whole[..self.bytes.len()].copy_from_slice(&self.bytes);
            self.bytes = whole;
        }
        self.bytes.resize(length, 0);
        Ok(())
    }

    pub fn seal(&mut self, extent: Extent) {
        cover(&mut self.sealed, extent);
    }

    /// So much, and no more, was written of it from its start.
    pub fn is_written(&self, length: u64) -> bool {
        self.written.covers(length) && self.written.length() == length
    }

    /// All of it was verified.
    pub fn is_sealed(&self, length: u64) -> bool {
        self.is_written(length) && self.sealed.covers(length)
    }

    /// Its content, once so much of it was written, and the right to hold it.
    pub fn into_bytes(mut self, length: u64) -> (Vec<u8>, Permit) {
        self.bytes.truncate(length as usize);
        (self.bytes, self.room)
    }
}

/// Adds an extent of which something may be there.
fn cover(set: &mut ExtentSet, extent: Extent) {
    if !set.insert(extent) {
        set.remove(extent);
        set.insert(extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::width::{Permits, Rooms};

    fn filling() -> Filling {
        Filling::new(Rooms::new(Permits::default()).busy())
    }

    #[test]
    fn bytes_that_come_in_any_order_and_twice_are_where_they_belong() {
        for is_open in [false, true] {
            let mut part = filling();
            for (offset, bytes) in [(6, &b"gh"[..]), (0, b"xbc"), (0, b"a"), (1, b"bcde"), (4, b"ef")] {
                assert!(!part.is_written(8));
                part.write(offset, bytes, 8, is_open).unwrap();
            }
            assert!(part.is_written(8) && !part.is_written(7) && !part.is_written(9));
            assert_eq!(part.into_bytes(8).0, b"abcdefgh");
        }
    }

    #[test]
    fn a_part_is_sealed_when_all_of_it_is_and_not_after_something_of_it_came_again() {
        let mut part = filling();
        part.write(0, b"abcd", 4, false).unwrap();
        part.seal(Extent::new(0, 2));
        assert!(!part.is_sealed(4));
        part.seal(Extent::new(2, 4));
        assert!(part.is_sealed(4));
        part.write(2, b"c", 4, false).unwrap();
        assert!(part.is_written(4) && !part.is_sealed(4));
        part.seal(Extent::new(2, 4));
        assert!(part.is_sealed(4));
    }

    #[test]
    fn memory_that_is_not_to_be_had_is_an_error() {
        assert!(filling().write(0, b"x", 1 << 60, false).is_err());
        assert!(filling().write(1 << 59, b"x", 1 << 60, false).is_err());
    }
}
