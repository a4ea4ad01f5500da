//! Whether anybody has a file open for writing, or holds a lock on it, by the word of the kernel.
//!
//! Invariant: what is taken to find out is given back at once; a writer that comes meanwhile waits for microseconds.
//!
//! Not here: what follows from it (`watch`).

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writers {
    None,
    Some,
    /// The kernel does not tell: another user's file, or a file system without leases or locks.
    Unknown,
}

/// Asks for a lease to read, which nobody gets while a file is open for writing, or mapped so.
pub fn opened_by(file: BorrowedFd<'_>) -> Writers {
    /// Of <fcntl.h>; the crate has it for some systems only.
    const F_SETSIG: libc::c_int = 10;
    // SAFETY: the descriptor is borrowed and open; these commands take a number and touch no memory of ours.
    let set = |command, value: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), command, value) };
    // A writer that opens the file while the lease is held is told to us by a signal. SIGIO would end this process; SIGURG
    // does nothing unless it is asked for.
    if set(F_SETSIG, libc::SIGURG) != 0 {
        return Writers::Unknown;
    }
    if set(libc::F_SETLEASE, libc::F_RDLCK) == 0 {
        set(libc::F_SETLEASE, libc::F_UNLCK);
        return Writers::None;
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Writers::Some,
        _ => Writers::Unknown,
    }
}

/// Asks for a shared lock (fcntl) on all of the file.
pub fn locked_by(file: impl AsFd) -> Writers {
    match fcntl_lock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = fcntl_lock(&file, FlockOperation::NonBlockingUnlock);
            Writers::None
        }
        Err(Errno::AGAIN | Errno::ACCESS) => Writers::Some,
        Err(_) => Writers::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};

    #[test]
    fn a_writer_is_seen_as_long_as_it_has_the_file_open_and_readers_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert_eq!(opened_by(reader.as_fd()), Writers::Some);
        drop(writer);
        assert_eq!(opened_by(reader.as_fd()), Writers::None);
        // The lease is given back: a writer does not wait for it.
        drop(OpenOptions::new().append(true).open(&path).unwrap());
        assert_eq!(opened_by(reader.as_fd()), Writers::None);
    }
}
