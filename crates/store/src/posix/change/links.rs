//! Files that lose one name here after the other: to the storage, each of these removals is a change of the file.
//!
//! Invariants:
//! - A time of change counts as that of a removal only if the storage gave it right after one. A change by anybody else gives another,
//!   and nothing is known of the file any more.
//! - At most `FILES_MAX` files are remembered, and none without a name left. What is not remembered counts as changed, and stays.

use crate::posix::facts::file_system;
use crate::posix::list::generation_of;
use model::files::{FileStatus, Version};
use model::{Name, Timestamp};
use os::fs::openat;
use rustix::fs::{Mode, OFlags, fstat};
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;

const FILES_MAX: usize = 1 << 16;

/// The times of change of a file before the first removal and after the last; all in between are those of removals.
type Times = (Timestamp, Timestamp);

/// By device and inode.
static TAKEN: Mutex<BTreeMap<(u64, u64), Times>> = Mutex::new(BTreeMap::new());

/// A file is the version that was listed, but for names that it lost here since.
pub fn is_as_listed(found: &FileStatus, listed: &Version) -> bool {
    let times = TAKEN.lock().unwrap().get(&(found.device, found.inode)).copied();
    times.is_some_and(|(first, last)| last == found.changed && (first..=last).contains(&listed.changed))
        && Version { changed: listed.changed, ..found.version() } == *listed
}

/// Keeps hold of a file that has other names than the one that it is about to lose.
pub fn hold(directory: BorrowedFd<'_>, name: &Name, found: &FileStatus) -> Option<OwnedFd> {
    // NFS does not remove what somebody holds: it hides it under another name until then.
    if found.links < 2 || found.is_directory() || file_system(directory) == "nfs" {
        return None;
    }
    openat(directory, name.as_c_str(), OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// It has lost the name; `found` is what it was before.
pub fn note(held: &OwnedFd, found: &FileStatus) {
    let Ok(status) = fstat(held) else { return };
    let file = (found.device, found.inode);
    if (status.st_dev, status.st_ino) != file {
        return;
    }
    let mut taken = TAKEN.lock().unwrap();
    let known = taken.get(&file).filter(|(_, last)| *last == found.changed);
    let first = known.map_or(found.changed, |(first, _)| *first);
    taken.insert(file, (first, generation_of(&status).version.changed()));
    if taken.len() > FILES_MAX {
        taken.pop_first();
    }
}

/// Its last name is gone, or that of a file that is not known here.
pub fn forget(found: &FileStatus) {
    TAKEN.lock().unwrap().remove(&(found.device, found.inode));
}
