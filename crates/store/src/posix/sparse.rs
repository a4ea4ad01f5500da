//! Holes in place of zeros.
//!
//! Invariant: what is told to be a hole reads as zeros, whatever was written there before.

use super::content::write_all_at;
use os::fs::fallocate;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The unit in which zeros are looked for, at multiples of it: smaller holes are none on most file systems.
const UNIT_BYTES: usize = 4096;
static ZEROS: [u8; UNIT_BYTES] = [0; UNIT_BYTES];

/// A part of a block, as it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

/// Splits bytes that begin at `offset` of their file into runs of zeros and the rest.
pub fn parts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let mut rest = bytes;
    let mut at = offset;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let is_hole = is_zero_unit(at, rest);
        let mut length = unit_at(at, rest);
        while length < rest.len() && is_zero_unit(at + length as u64, &rest[length..]) == is_hole {
            length += unit_at(at + length as u64, &rest[length..]);
        }
        let (part, after) = rest.split_at(length);
        (rest, at) = (after, at + length as u64);
        Some(if is_hole { Part::Zeros(length as u64) } else { Part::Bytes(part) })
    })
}

/// Bytes up to the next multiple of a unit.
fn unit_at(offset: u64, bytes: &[u8]) -> usize {
    (UNIT_BYTES - (offset % UNIT_BYTES as u64) as usize).min(bytes.len())
}

/// Whole units only: the rest is written as it is.
fn is_zero_unit(offset: u64, bytes: &[u8]) -> bool {
    offset.is_multiple_of(UNIT_BYTES as u64) && bytes.len() >= UNIT_BYTES && bytes[..UNIT_BYTES] == ZEROS
}

/// Writes a block of a file in which something may have been written at the same place before.
pub fn write_at(file: BorrowedFd<'_>, bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    for part in parts(offset, bytes) {
        offset += match part {
            Part::Bytes(bytes) => {
                write_all_at(file, bytes, offset)?;
                bytes.len() as u64
            }
            Part::Zeros(length) => {
                punch(file, offset, length)?;
                length
            }
        };
    }
    Ok(())
}

fn punch(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::io::retry_on_intr(|| fallocate(file, flags, offset, length)) {
        // A file system that has no such call gets the zeros.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let mut units = (0..length).step_by(UNIT_BYTES);
            units.try_for_each(|done| write_all_at(file, &ZEROS, offset + done))
        }
        punched => punched,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    #[test]
    fn runs_of_whole_zero_units_are_holes_and_nothing_else() {
        let mut bytes = vec![0; 5 * UNIT_BYTES + 10];
        bytes[2 * UNIT_BYTES + 5] = 1;
        let found: Vec<_> = parts(0, &bytes).collect();
        assert_eq!(found[0], Part::Zeros(2 * UNIT_BYTES as u64));
        assert_eq!(found[1], Part::Bytes(&bytes[2 * UNIT_BYTES..3 * UNIT_BYTES]));
        assert_eq!(found[2], Part::Zeros(2 * UNIT_BYTES as u64));
        assert_eq!(found[3], Part::Bytes(&[0; 10]));
        assert_eq!(found.len(), 4);
        // From the middle of a unit on, the first whole one is the next.
        let found: Vec<_> = parts(10, &bytes[..2 * UNIT_BYTES]).collect();
        assert_eq!(found[0], Part::Bytes(&bytes[..UNIT_BYTES - 10]));
        assert_eq!(found[1], Part::Zeros(UNIT_BYTES as u64));
        assert_eq!(parts(0, b"").count(), 0);
    }

    #[test]
    fn a_hole_reads_as_zeros_also_where_something_was() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 4 * UNIT_BYTES], 0).unwrap();
        let mut bytes = vec![0; 3 * UNIT_BYTES];
        bytes[0] = 1;
        write_at(file.as_fd(), &bytes, 0).unwrap();
        let mut read = vec![9; 4 * UNIT_BYTES];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read[..3 * UNIT_BYTES] == bytes[..] && read[3 * UNIT_BYTES..] == [7; UNIT_BYTES]);
    }
}
