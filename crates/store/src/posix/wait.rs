//! Waiting for storage to have what was written.
//!
//! Invariant: one wait, and no second one after a failure. The kernel takes for clean what it could not write, and a second wait
//! would succeed without it (F072). Not here: what becomes of what was waited for.

use model::mutant;
use rustix::io::Errno;

pub fn once(wait: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match wait() {
        Err(_) if mutant::is_on("retry-failed-sync") => wait(),
        waited => waited,
    }
}
