//! How many descriptors this process has, and how many connections they are good for.
//!
//! Not here: who gets a connection (`gate`), and the directories that jobs keep open (`store`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::posix::directories_max;

/// Connections of all peers, where descriptors allow so many.
const CONNECTIONS_MAX: usize = 4096;
/// Descriptors that one connection may need, with the files its lane has open.
const DESCRIPTORS_OF_CONNECTION: usize = 4;

/// Takes all descriptors that this process may have, and returns how many connections they are good for, beside
/// the directories that jobs keep open.
pub fn connections_max() -> usize {
    let descriptors = take_descriptors();
    ((descriptors - directories_max(descriptors)) / DESCRIPTORS_OF_CONNECTION).min(CONNECTIONS_MAX)
}

/// Raises this process's limit of descriptors as far as it may, and returns it. The usual one is kept low for programs that wait with
/// `select`; files that are under way stay open.
pub fn take_descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let mut current = limit.current;
    if limit.maximum.is_none_or(|maximum| current.is_some_and(|c| c < maximum)) {
        // Without the right to, the old limit stays.
        if setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).is_ok() {
            current = limit.maximum;
        }
    }
    current.map_or(usize::MAX, |c| usize::try_from(c).unwrap_or(usize::MAX))
}
