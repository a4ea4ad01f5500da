//! What is left over in staging, and who may remove it.
//!
//! Invariants:
//! - What no one has locked is removed: lanes at once, and so one half of a large object's pair without the other; pairs
//!   `KEPT_SECONDS` after their last change (I20). A file's own time says nothing: it may be the source's already.
//! - That holds for this host's directory, and for the others of this user where a lock is one for all who see the file
//!   system. Elsewhere two hosts do not see each other's locks (Lustre's `localflock`, NFS with `local_lock`): what is another
//!   host's, or of a version that had no directories for hosts, is removed only when nothing in it has changed for
//!   `KEPT_SECONDS` by the clock of the storage.
//! - A pair is taken over into this host's directory, where it is found again, with its lock won.

use super::host::HOST_PREFIX;
use super::slices::{RANGES_PREFIX, SLICE_PREFIX, VOID_PREFIX};
use super::{beneath, facts, list};
use model::{Name, mutant};
use os::fs::{renameat_with, unlinkat};
use rustix::fs::{AtFlags, FileType, FlockOperation, RenameFlags, Stat, Timespec, Timestamps, flock, fstat, statat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::time::SystemTime;

/// Seven days: DESIGN section 8.
const KEPT_SECONDS: i64 = 7 * 24 * 3600;
/// Clocks that differ by more than this say nothing about the age of others' files.
const CLOCKS_APART_SECONDS: i64 = 24 * 3600;
/// The longest header of a journal fits.
const JOURNAL_HEAD_BYTES: usize = 8 << 10;
/// Directories below a host's: its slices and their lanes.
const LEVELS: u32 = 3;

pub(super) struct Sweep<'a> {
    own: &'a OwnedFd,
    host: &'a Name,
    now: i64,
}

impl<'a> Sweep<'a> {
    pub fn new(own: &'a OwnedFd, host: &'a Name) -> Sweep<'a> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        Sweep { own, host, now }
    }

    /// Sweeps this host's directory, and in that of all hosts what may be.
    pub fn run(&self, shared: &OwnedFd) {
        self.by_locks(self.own, false);
        if facts::has_locks_for_all(shared.as_fd()) || mutant::is_on("sweep-other-hosts") {
            // Of an earlier version, or of one that is older than the directories of hosts.
            self.by_locks(shared, true);
            self.sweep_voids(shared);
            self.each_other(shared, &mut |name, _| {
                let Ok(other) = beneath::open_child(shared.as_fd(), name) else { return };
                let is_free = flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok();
                if is_free || mutant::is_on("sweep-other-hosts") {
                    self.by_locks(&other, true);
                    let _ = unlinkat(shared, name.as_c_str(), AtFlags::REMOVEDIR);
                }
            });
        } else if let Some(now) = self.now_of_storage() {
            let _ = list::read_directory(shared.as_fd(), &mut |name, status| {
                if let Ok(status) = status
                    && name != self.host
                    && is_untouched(shared, name, &status, now, LEVELS)
                {
                    remove(shared, name, &status, LEVELS);
                }
                true
            });
        }
    }

    fn each_other(&self, shared: &OwnedFd, visit: &mut dyn FnMut(&Name, &Stat)) {
        let _ = list::read_directory(shared.as_fd(), &mut |name, status| {
            if let Ok(status) = status
                && name != self.host
                && name.as_bytes().starts_with(HOST_PREFIX)
                && FileType::from_raw_mode(status.st_mode).is_dir()
            {
                visit(name, &status);
            }
            true
        });
    }

    /// The storage's idea of now, by which it dates changes; `None` where it is far from this host's, or not told.
    fn now_of_storage(&self) -> Option<i64> {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        rustix::fs::futimens(self.own, &Timestamps { last_access: now, last_modification: now }).ok()?;
        let now = fstat(self.own).ok()?.st_ctime;
        ((now - self.now).abs() <= CLOCKS_APART_SECONDS).then_some(now)
    }

    /// Removes what nobody has locked. Pairs that are worth keeping stay, or come to this host's directory.
    fn by_locks(&self, place: &OwnedFd, takes_over: bool) {
        let _ = list::read_directory(place.as_fd(), &mut |name, status| {
            if let Ok(status) = status {
                let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
                if is_directory && name.as_bytes().starts_with(b"lane-") {
                    sweep_lane(place, name);
                } else if is_directory && name.as_bytes().starts_with(SLICE_PREFIX) {
                    self.sweep_slice(place, name);
                } else if !is_directory {
                    // A stem with a random part was one attempt's own: no other will look for it.
                    let is_own = name.as_bytes().contains(&b'-');
                    if is_own || self.now - status.st_ctime > KEPT_SECONDS || !is_paired(place, name) {
                        remove_unlocked(place, name);
                    } else if takes_over {
                        self.take_over(place, name);
                    }
                }
            }
            true
        });
    }

    /// What an attempt at a slice left: the next one of the same host finds large objects again.
    fn sweep_slice(&self, place: &OwnedFd, name: &Name) {
        let Ok(slice) = beneath::open_child(place.as_fd(), name) else { return };
        if flock(&slice, FlockOperation::NonBlockingLockExclusive).is_ok() {
            self.by_locks(&slice, false);
            let _ = unlinkat(place, name.as_c_str(), AtFlags::REMOVEDIR);
        }
    }

    /// Whoever could still come with a slice that was taken over has no warrant any more.
    fn sweep_voids(&self, shared: &OwnedFd) {
        let _ = list::read_directory(shared.as_fd(), &mut |name, status| {
            let is_old =
                status.as_ref().is_ok_and(|status| self.now - status.st_ctime > KEPT_SECONDS + CLOCKS_APART_SECONDS);
            if is_old && name.as_bytes().starts_with(VOID_PREFIX) {
                let _ = unlinkat(shared, name.as_c_str(), AtFlags::REMOVEDIR);
            }
            if let Ok(status) = status
                && name.as_bytes().starts_with(RANGES_PREFIX)
                && is_untouched(shared, name, &status, self.now, 1)
            {
                remove(shared, name, &status, 1);
            }
            true
        });
    }

    /// Brings a pair to this host's directory, when it comes upon its log.
    fn take_over(&self, place: &OwnedFd, log: &Name) {
        let Some(data) = log.as_bytes().strip_suffix(b".log").and_then(|stem| other_half(stem, b".data")) else {
            return;
        };
        let Ok(lock) = beneath::open_file(place.as_fd(), log) else { return };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        // The data first: a log without data is swept, and data without a log counts for nothing.
        for name in [&data, log] {
            let renamed = renameat_with(place, name.as_c_str(), self.own, name.as_c_str(), RenameFlags::NOREPLACE);
            if renamed.is_err() {
                // This host has one of its own.
                let _ = unlinkat(place, name.as_c_str(), AtFlags::empty());
            }
        }
    }
}

fn other_half(stem: &[u8], suffix: &[u8]) -> Option<Name> {
    Name::new(&[stem, suffix].concat()).ok()
}

/// Whether neither an object nor what is in it has changed for long.
fn is_untouched(place: &OwnedFd, name: &Name, status: &Stat, now: i64, levels: u32) -> bool {
    if now - status.st_ctime.max(status.st_mtime) <= KEPT_SECONDS {
        return false;
    }
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        return true;
    }
    let Ok(below) = beneath::open_child(place.as_fd(), name) else { return false };
    let mut is_untouched_all = levels > 0;
    let listed = list::read_directory(below.as_fd(), &mut |name, status| {
        is_untouched_all &=
            status.is_ok_and(|status| is_untouched(&below, name, &status, now, levels.saturating_sub(1)));
        is_untouched_all
    });
    listed.is_ok() && is_untouched_all
}

/// Removes an object with what is in it, unless somebody has it locked after all.
fn remove(place: &OwnedFd, name: &Name, status: &Stat, levels: u32) {
    if !FileType::from_raw_mode(status.st_mode).is_dir() {
        return remove_unlocked(place, name);
    }
    let Ok(below) = beneath::open_child(place.as_fd(), name) else { return };
    if levels == 0 || flock(&below, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let _ = list::read_directory(below.as_fd(), &mut |name, status| {
        if let Ok(status) = status {
            remove(&below, name, &status, levels - 1);
        }
        true
    });
    let _ = unlinkat(place, name.as_c_str(), AtFlags::REMOVEDIR);
}

fn sweep_lane(place: &OwnedFd, name: &Name) {
    let Ok(lane) = beneath::open_child(place.as_fd(), name) else { return };
    if flock(&lane, FlockOperation::NonBlockingLockExclusive).is_err() && !mutant::is_on("sweep-what-is-used") {
        return;
    }
    let _ = list::read_directory(lane.as_fd(), &mut |file, _| {
        let _ = unlinkat(&lane, file.as_c_str(), AtFlags::empty());
        true
    });
    let _ = unlinkat(place, name.as_c_str(), AtFlags::REMOVEDIR);
}

/// False for one half of a large object's pair that stands alone: a journal of what was published or dropped, or data
/// that nothing vouches for.
fn is_paired(place: &OwnedFd, name: &Name) -> bool {
    let other = match (name.as_bytes().strip_suffix(b".data"), name.as_bytes().strip_suffix(b".log")) {
        (Some(stem), _) => other_half(stem, b".log"),
        (_, Some(stem)) => other_half(stem, b".data"),
        (None, None) => return true,
    };
    // A name too long for its other half to be one is none of ours.
    let Some(other) = other else { return true };
    !matches!(statat(place, other.as_c_str(), AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

/// Removes pairs that are needless, by their stem and the beginning of their journal. An empty one vouches for nothing: its data
/// goes too, unless a reader sees it under another name.
pub(super) fn drop_pairs(place: &OwnedFd, is_needless: &dyn Fn(&str, &[u8]) -> bool) {
    let _ = list::read_directory(place.as_fd(), &mut |name, status| {
        let stem = name.as_bytes().strip_suffix(b".log").and_then(|stem| std::str::from_utf8(stem).ok());
        if let (Some(stem), Ok(status)) = (stem, status)
            && FileType::from_raw_mode(status.st_mode).is_file()
            && let Some(data) = other_half(stem.as_bytes(), b".data")
            && let Ok(journal) = beneath::open_file(place.as_fd(), name)
        {
            let mut head = [0; JOURNAL_HEAD_BYTES];
            let Ok(length) = os::fs::pread(&journal, &mut head, 0) else { return true };
            let head = &head[..length];
            let is_shown = || statat(place, data.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|s| s.st_nlink > 1);
            let is_to_go = if head.is_empty() { !is_shown() } else { is_needless(stem, head) };
            if is_to_go && flock(&journal, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = unlinkat(place, data.as_c_str(), AtFlags::empty());
                let _ = unlinkat(place, name.as_c_str(), AtFlags::empty());
            }
        }
        true
    });
}

/// Removes a file of a large object unless an attempt works on it, which cannot begin meanwhile.
fn remove_unlocked(place: &OwnedFd, name: &Name) {
    let log = match name.as_bytes().strip_suffix(b".data") {
        Some(stem) => other_half(stem, b".log"),
        None => Some(name.clone()),
    };
    let lock = log.and_then(|log| beneath::open_file(place.as_fd(), &log).ok());
    if lock.as_ref().is_none_or(|log| flock(log, FlockOperation::NonBlockingLockExclusive).is_ok()) {
        let _ = unlinkat(place, name.as_c_str(), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::super::staging::Staging;
    use super::super::staging::tests::{open, places};
    use super::*;
    use crate::posix::host;
    use rustix::fs::{Mode, OFlags, openat};
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    #[test]
    fn a_dead_lane_is_swept_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path()).unwrap();
        let live = first.make_lane().unwrap();
        let dead = first.make_lane().unwrap();
        openat(&dead.directory, c"0", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
        let (live_name, dead_name) = (live.name.clone(), dead.name.clone());
        drop(dead);
        let second = open(dir.path()).unwrap();
        assert!(openat(&second.directory, &live_name, OFlags::DIRECTORY, Mode::empty()).is_ok());
        assert_eq!(openat(&second.directory, &dead_name, OFlags::DIRECTORY, Mode::empty()).err(), Some(Errno::NOENT));
    }

    #[test]
    fn pairs_go_that_are_needless_or_vouch_for_nothing_unless_they_are_in_use_or_shown() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(dir.path()).unwrap();
        let own = places(dir.path()).1;
        for stem in ["needless", "needed", "empty", "shown", "used"] {
            fs::write(own.join(format!("{stem}.data")), b"x").unwrap();
            fs::write(own.join(format!("{stem}.log")), if matches!(stem, "empty" | "shown") { "" } else { stem })
                .unwrap();
        }
        fs::hard_link(own.join("shown.data"), dir.path().join("x.partial")).unwrap();
        let used = fs::File::open(own.join("used.log")).unwrap();
        flock(&used, FlockOperation::LockExclusive).unwrap();
        drop_pairs(&staging.directory, &|stem, head| {
            assert_eq!(stem.as_bytes(), head);
            stem != "needed"
        });
        let mut left: Vec<_> =
            fs::read_dir(&own).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["needed.data", "needed.log", "shown.data", "shown.log", "used.data", "used.log"]);
    }

    /// Makes files of 1970, as a sealed file has the time of its source.
    fn make(directory: &Path, names: &[&str]) {
        fs::create_dir_all(directory).unwrap();
        for name in names {
            let file = fs::File::create(directory.join(name)).unwrap();
            let long_ago = crate::posix::shared::times_of(model::Timestamp { seconds: 1, nanoseconds: 0 });
            rustix::fs::futimens(&file, &long_ago).unwrap();
        }
    }

    #[test]
    fn half_a_pair_is_swept_and_a_pair_is_not_however_old_its_source_is() {
        let dir = tempfile::tempdir().unwrap();
        let _staging = open(dir.path()).unwrap();
        let own = places(dir.path()).1;
        make(&own, &["a.data", "a.log", "b.data", "c.log", "d-1.data", "d-1.log"]);
        open(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.data", "a.log"]);
    }

    #[test]
    fn what_an_earlier_version_or_a_host_that_is_gone_left_is_taken_over_or_swept_where_locks_are_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = places(dir.path());
        drop(open(dir.path()).unwrap());
        let (gone, busy) = (shared.join("host-gone"), host::named("busy"));
        let pairs = ["a.data", "a.log", "b.data"];
        make(&shared, &pairs);
        make(&shared.join("lane-1"), &["0"]);
        make(&gone.join("lane-2"), &["0"]);
        make(&gone, &["a.data", "a.log", "c.data", "c.log", "e-1.log"]);
        let parent = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let live = Staging::open(parent, &busy, None).unwrap();
        let lane = live.make_lane().unwrap();
        // It took over what had no owner; what it has itself is in use.
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 1, "what is left has all come to its own");
        let staging = open(dir.path()).unwrap();
        assert!(fs::read_dir(&own).unwrap().next().is_none(), "the other is in use, with what is in it");
        assert!(statat(&live.directory, &lane.name, AtFlags::empty()).is_ok());
        drop((lane, live, staging));
        let staging = open(dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["a.data", "a.log", "c.data", "c.log"]);
        assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
        drop(staging);
    }

    #[test]
    fn a_pair_is_not_taken_over_while_its_lock_is_held() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = places(dir.path());
        drop(open(dir.path()).unwrap());
        make(&shared, &["a.data", "a.log", "b.data", "b.log"]);
        let held = fs::File::open(shared.join("a.log")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        open(dir.path()).unwrap();
        assert!(shared.join("a.data").exists() && shared.join("a.log").exists());
        assert!(own.join("b.data").exists() && own.join("b.log").exists());
    }

    #[test]
    fn age_is_that_of_the_youngest_thing_inside() {
        let dir = tempfile::tempdir().unwrap();
        make(&dir.path().join("host-x/lane-1"), &["0"]);
        let place = beneath::open_directory(dir.path()).unwrap();
        let name = host::named("x");
        let status = || statat(&place, name.as_c_str(), AtFlags::empty()).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
        let untouched = |after: i64| is_untouched(&place, &name, &status(), now + after, LEVELS);
        assert!(!untouched(KEPT_SECONDS - 60) && untouched(KEPT_SECONDS + 60));
        let lane = beneath::open_directory(&dir.path().join("host-x/lane-1")).unwrap();
        flock(&lane, FlockOperation::LockExclusive).unwrap();
        remove(&place, &name, &status(), LEVELS);
        assert!(dir.path().join("host-x/lane-1/0").exists(), "what somebody has locked stays, however old");
        drop(lane);
        remove(&place, &name, &status(), LEVELS);
        assert!(!dir.path().join("host-x").exists());
    }
}
