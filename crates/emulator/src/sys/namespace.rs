//! The network of the calling thread.

use std::io;

/// Gives the calling thread a network namespace of its own, which ends with the thread. Use a thread made for it.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: changes which network the thread sees; no memory and no descriptor is affected.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
