//! Copies between two open files of one host without a way through this process: by sharing blocks, by the kernel, and
//! around holes.
//!
//! Invariants:
//! - What a call of the kernel did not do is told, never assumed: the caller moves the rest itself.
//! - A hole of the source is only passed over where the destination reads as zeros.
//!
//! Not here: whether the source changed meanwhile (the caller compares generations afterwards), and when such a copy is
//! allowed at all (`mover::local`).

use super::facts;
use crate::{Error, Footing, Holes, Piece, Result};
use model::Extent;
use os::fs::{copy_file_range, fallocate, ioctl_ficlone, pwrite};
use rustix::fs::{FallocateFlags, SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Bytes of a block as `st_blocks` counts them.
const BLOCK_BYTES: u64 = 512;
/// What is asked of the kernel at once: an interruption is noticed after it.
const RANGE_BYTES: u64 = 64 << 20;
/// Zeros written at once where a hole cannot be made.
const ZEROS_BYTES: usize = 64 << 10;

/// Whether a file has holes, and whether the word of its file system on where they are is to be relied on. Others have called
/// data a hole that was just being written, and what stands behind a network file system is not known.
pub fn holes(file: BorrowedFd<'_>) -> Holes {
    let footing = fstat(file).map(|status| footing_of(status.st_blocks as u64, status.st_size as u64));
    match footing {
        Ok(Footing { has_holes: true, .. }) => match facts::file_system(file) {
            "ext4" | "xfs" | "btrfs" | "tmpfs" => Holes::Told,
            _ => Holes::Somewhere,
        },
        _ => Holes::None,
    }
}

/// File systems that keep small files beside their inode count no block for them, and those that compress count fewer: both
/// are asked for holes in vain.
pub(super) fn footing_of(blocks: u64, size_bytes: u64) -> Footing {
    let allocated_bytes = blocks.saturating_mul(BLOCK_BYTES);
    Footing { allocated_bytes, has_holes: allocated_bytes < size_bytes }
}

/// What an extent begins with. Where the file system does not tell, all of it is data.
pub fn piece(file: BorrowedFd<'_>, extent: Extent) -> Piece {
    let Extent { start, end } = extent;
    let reaches_end = || fstat(file).is_ok_and(|status| status.st_size as u64 >= end);
    let data = match seek(file, SeekFrom::Data(start)) {
        Ok(data) => data.clamp(start, end),
        // Nothing but a hole up to the end of the file. If it ends before the extent does, reading tells so: a hole there
        // would pass for content.
        Err(Errno::NXIO) if reaches_end() => end,
        Err(_) => start,
    };
    if data > start {
        return Piece::Hole(Extent::new(start, data));
    }
    let hole = match seek(file, SeekFrom::Hole(start)) {
        Ok(hole) if hole > start => hole.min(end),
        _ => end,
    };
    // The end of a file that became shorter is a hole too, for the kernel.
    let hole = if hole < end && !reaches_end() { end } else { hole };
    Piece::Data(Extent::new(start, hole))
}

/// Has `to` share all blocks of `from`: nothing is copied, and nothing can differ. False where that cannot be; whatever the
/// reason, writing the bytes works or meets it again.
pub fn share(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
    ioctl_ficlone(to, from).is_ok()
}

/// Has the kernel copy an extent to the same place in `to`. Returns how much of it, from its start: less where the source ends,
/// or where the kernel does not copy between these files.
pub fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, extent: Extent) -> Result<u64> {
    copy_range_by(extent, &mut |at, length| {
        let (mut source, mut target) = (at, at);
        copy_file_range(from, Some(&mut source), to, Some(&mut target), length)
    })
}

/// `copy` is given an offset and a length, and says how many bytes it copied.
fn copy_range_by(extent: Extent, copy: &mut dyn FnMut(u64, usize) -> std::result::Result<usize, Errno>) -> Result<u64> {
    let mut at = extent.start;
    while at < extent.end {
        let wanted = (extent.end - at).min(RANGE_BYTES);
        match copy(at, wanted as usize) {
            // The end of the source, or a file that the kernel cannot copy from: reading tells which.
            Ok(0) => break,
            Ok(copied) => at += (copied as u64).min(wanted),
            Err(Errno::INTR) => {}
            Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::ROFS)) => {
                return Err(Error::at("write file (copy_file_range)", at, e));
            }
            // EXDEV, EOPNOTSUPP, EINVAL, ENOSYS, EPERM, EIO: if it is an error of storage, reading or writing meets it again and
            // tells which of the two it was.
            Err(_) => break,
        }
    }
    Ok(at - extent.start)
}

/// Sees to it that an extent reads as zeros: it does where nothing was written; elsewhere a hole is made, or zeros written.
pub fn clear(to: BorrowedFd<'_>, extent: Extent) -> Result<()> {
    if extent.is_empty() || is_hole(to, extent) {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(to, flags, extent.start, extent.length()) {
        Ok(()) => return Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {}
        Err(e) => return Err(Error::at("write file (make a hole)", extent.start, e)),
    }
    let zeros = [0; ZEROS_BYTES];
    let mut at = extent.start;
    while at < extent.end {
        let part = (extent.end - at).min(ZEROS_BYTES as u64) as usize;
        match pwrite(to, &zeros[..part], at) {
            Ok(0) => return Err(Error::at("write file", at, Errno::IO)),
            Ok(written) => at += written as u64,
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::at("write file", at, e)),
        }
    }
    Ok(())
}

/// No data is there for certain.
fn is_hole(file: BorrowedFd<'_>, extent: Extent) -> bool {
    match seek(file, SeekFrom::Data(extent.start)) {
        Ok(data) => data >= extent.end,
        Err(e) => e == Errno::NXIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    fn pieces(file: BorrowedFd<'_>, mut left: Extent) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while !left.is_empty() {
            let piece = piece(file, left);
            let (Piece::Data(part) | Piece::Hole(part)) = piece;
            left.start = part.end;
            pieces.push(piece);
        }
        pieces
    }

    fn sparse(size_bytes: u64, data: &[(u64, &[u8])]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_bytes).unwrap();
        data.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file
    }

    #[test]
    fn pieces_cover_an_extent_and_name_holes_that_are_there() {
        let block = [7; 4096];
        let file = sparse(40 << 20, &[(8 << 20, &block), (24 << 20, &block)]);
        for extent in [Extent::new(0, 40 << 20), Extent::new(8 << 20, 24 << 20), Extent::new((8 << 20) + 9, 9 << 20)] {
            let (mut at, mut holes) = (extent.start, 0);
            for piece in pieces(file.as_fd(), extent) {
                let (Piece::Data(part) | Piece::Hole(part)) = piece;
                assert_eq!(part.start, at);
                at = part.end;
                if let Piece::Hole(part) = piece {
                    holes += part.length();
                    let mut bytes = vec![1; part.length() as usize];
                    file.read_exact_at(&mut bytes, part.start).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 0));
                }
            }
            assert_eq!(at, extent.end);
            // A file system that knows no holes has none; this one may be one.
            assert!(holes == 0 || holes >= extent.length().saturating_sub(2 << 20), "{holes} of {extent:?}");
        }
        assert_eq!(footing_of(8, 4096), Footing { allocated_bytes: 4096, has_holes: false });
        assert!(footing_of(8, 8192).has_holes);
    }

    #[test]
    fn what_a_file_does_not_have_any_more_is_data_to_be_read_and_never_a_hole() {
        let file = sparse(1 << 20, &[(0, &[7; 4096])]);
        let found = pieces(file.as_fd(), Extent::new(0, 8 << 20));
        let last = found.last().unwrap();
        assert!(matches!(last, Piece::Data(extent) if extent.end == 8 << 20), "{found:?}");
    }

    #[test]
    fn what_is_cleared_reads_as_zeros_whatever_was_there() {
        let file = sparse(1 << 20, &[(0, &[7; 300_000])]);
        clear(file.as_fd(), Extent::new(1000, 200_001)).unwrap();
        clear(file.as_fd(), Extent::new(500_000, 1 << 20)).unwrap();
        let mut bytes = vec![1; 1 << 20];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let expected = |at: usize| if at < 1000 || (200_001..300_000).contains(&at) { 7 } else { 0 };
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
    }

    #[test]
    fn the_kernel_copies_what_it_can_and_says_how_much() {
        let bytes: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
        let (from, to) = (sparse(0, &[(0, &bytes)]), sparse(300_000, &[]));
        let copied = copy_range(from.as_fd(), to.as_fd(), Extent::new(100_000, 400_000)).unwrap();
        let mut there = vec![0; 300_000];
        to.read_exact_at(&mut there, 0).unwrap();
        assert!(copied <= 200_000);
        assert_eq!(there[100_000..][..copied as usize], bytes[100_000..][..copied as usize]);
        assert!(there[..100_000].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn short_copies_go_on_interruptions_are_repeated_and_refusals_leave_the_rest_to_the_caller() {
        let copied = |answers: &[std::result::Result<usize, Errno>]| {
            let mut answers = answers.iter();
            let mut asked = Vec::new();
            let copied = copy_range_by(Extent::new(10, 110), &mut |at, length| {
                asked.push((at, length));
                *answers.next().unwrap()
            });
            (copied.map_err(|e| e.kind), asked)
        };
        let (all, asked) = copied(&[Ok(30), Err(Errno::INTR), Ok(1), Ok(69)]);
        assert_eq!((all, asked), (Ok(100), vec![(10, 100), (40, 70), (40, 70), (41, 69)]));
        for refusal in [Errno::XDEV, Errno::OPNOTSUPP, Errno::INVAL, Errno::NOSYS, Errno::PERM, Errno::IO] {
            assert_eq!(copied(&[Err(refusal)]).0, Ok(0), "{refusal}");
            assert_eq!(copied(&[Ok(64), Err(refusal)]).0, Ok(64), "{refusal}");
        }
        assert_eq!(copied(&[Ok(5), Ok(0)]).0, Ok(5));
        assert_eq!(copied(&[Ok(5), Err(Errno::NOSPC)]).0, Err(model::FailureKind::NoSpace));
    }

    #[test]
    fn what_cannot_share_is_told_and_left_as_it_was() {
        let (from, to) = (sparse(0, &[(0, &[7; 5000])]), sparse(9000, &[]));
        let is_shared = share(from.as_fd(), to.as_fd());
        let mut there = vec![1; 9000];
        to.read_exact_at(&mut there, 0).unwrap();
        assert!(there[..5000].iter().all(|byte| *byte == if is_shared { 7 } else { 0 }));
        let closed = File::open("/").unwrap();
        assert!(!share(closed.as_fd(), to.as_fd()));
    }
}
