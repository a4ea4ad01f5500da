//! Waiting for storage to have what was written.
//!
//! Invariant: one wait, and no second one after a failure. The kernel takes for clean what it could not write, and a second wait
//! would succeed without it (F072). Not here: what becomes of what was waited for.

use model::mutant;
use os::fs::fsync;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

pub fn once(wait: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match wait() {
        Err(_) if mutant::is_on("retry-failed-sync") => wait(),
        waited => waited,
    }
}

/// Waits for the names in a directory.
pub fn sync_names(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    match fsync(directory) {
        // Some network file systems cannot, and keep names by themselves.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(()),
        synced => synced,
    }
}
