//! Namespaces of the calling process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Gives the calling thread a mount namespace of its own: what it and its children mount is seen by nobody else.
pub fn unshare_mounts() -> io::Result<()> {
    // SAFETY: no memory or descriptor is shared differently afterwards.
    check(unsafe { libc::unshare(libc::CLONE_NEWNS) })
}

/// Gives the calling process a user, a mount and a network namespace of its own. Fails if it has more than one thread.
///
/// The network one because `ip` returns to where it was, which must be a place that the user namespace owns.
pub fn unshare_user() -> io::Result<()> {
    // SAFETY: changes the process's rights and which mounts it sees; no memory and no descriptor is affected.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET) })
}

/// Moves the calling process to the user or mount namespace of the handle. Fails if it has more than one thread.
pub fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: as for `unshare_user`; the descriptor is open for the time of the call.
    check(unsafe { libc::setns(namespace.as_raw_fd(), 0) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
