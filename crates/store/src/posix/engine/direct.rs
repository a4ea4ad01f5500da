//! Descriptors of an engine's own for a file that the caller has open.
//!
//! Direct I/O is a property of an open file description, so that it needs a second one: setting the flag on a duplicate
//! would change the caller's as well. The second description comes from `/proc/self/fd`, which names the open file itself:
//! no path is resolved, and a file that was renamed or removed meanwhile is still the same file.
//!
//! Invariant: `direct`, where there is one, is the same inode as `buffered` (compared, in case `/proc` is not what it
//! should be).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;

/// What identifies an inode while it is open: neither number is given to another file before the last close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inode {
    device: u64,
    number: u64,
}

/// One file as an engine sees it.
pub(super) struct Target {
    pub(super) inode: Inode,
    /// Shares the caller's open file description.
    pub(super) buffered: OwnedFd,
    /// A description of its own with `O_DIRECT`, unless that was not wanted or refused.
    pub(super) direct: Option<OwnedFd>,
}

impl Target {
    /// Duplicates `file`, and opens it a second time for direct I/O with `access` if that is asked for.
    ///
    /// The second value is the refusal, if direct I/O was wanted and refused.
    pub(super) fn new(file: BorrowedFd<'_>, access: Option<OFlags>) -> Result<(Target, Option<Errno>), Errno> {
        let inode = inode_of(file)?;
        let buffered = rustix::io::fcntl_dupfd_cloexec(file, 0)?;
        let (direct, refusal) = match access.map(|access| open_direct(buffered.as_fd(), access)) {
            None => (None, None),
            Some(Ok(direct)) => (Some(direct), None),
            Some(Err(refusal)) => (None, Some(refusal)),
        };
        Ok((Target { inode, buffered, direct }, refusal))
    }
}

pub(super) fn inode_of(file: BorrowedFd<'_>) -> Result<Inode, Errno> {
    let stat = fstat(file)?;
    Ok(Inode { device: stat.st_dev, number: stat.st_ino })
}

fn open_direct(file: BorrowedFd<'_>, access: OFlags) -> Result<OwnedFd, Errno> {
    use std::os::fd::AsRawFd;

    // Anything else has no direct I/O, and opening some of it (a FIFO) could wait for ever.
    if FileType::from_raw_mode(fstat(file)?.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let direct = open(name, access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
    match inode_of(direct.as_fd())? == inode_of(file)? {
        true => Ok(direct),
        false => Err(Errno::STALE),
    }
}
