//! Where incomplete objects live: one private directory per root and file system, swept when it is left over.
//!
//! ```text
//! ROOT/.thalweg-staging-UID/   0700, ours
//!     lane-RANDOM/             small files of one lane, numbered; held by a lock while the lane lives
//!     KEY.data  KEY.log        one large object and its extent log; the log is locked while an attempt works on it
//! ```
//!
//! Invariants:
//! - Staging is a real directory of this user with mode 0700; anything else of that name is refused (F044).
//! - Names are created with O_EXCL; nothing of another attempt is written to unless its lock was won.
//! - What no one has locked is removed: lanes at once, and so one half of a large object's pair without the other; pairs
//!   `LARGE_KEPT_SECONDS` after their last change (I20). A file's own time says nothing: it may be the source's already.

use super::facts::STAGING_PREFIX;
use super::{beneath, list};
use crate::{Error, Result};
use model::{FailureKind, Name, mutant};
use os::fs::{mkdirat, openat, unlinkat};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, statat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Seven days: DESIGN section 8.
const LARGE_KEPT_SECONDS: i64 = 7 * 24 * 3600;

/// How often a lane's directory may be swept before it is locked, and how often staging itself may be removed before it
/// is: whoever may write to the root could go on with that for ever.
const TRIES_MAX: u32 = 100;

pub struct Staging {
    pub directory: OwnedFd,
    pub device: u64,
    parent: Arc<OwnedFd>,
    name: CString,
}

impl Staging {
    /// Whether an attempt, which may have died, has staging below `parent`.
    pub fn is_there(parent: &OwnedFd) -> bool {
        statat(parent, own_name().as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens (or makes) the staging directory below `parent` and sweeps what dead attempts left.
    pub fn open(parent: Arc<OwnedFd>) -> Result<Staging> {
        let fail = |e: Errno| Error::new("make staging directory", STAGING_PREFIX, e);
        let user = rustix::process::geteuid().as_raw();
        let name = own_name();
        let mut tries = 0;
        let (directory, status) = loop {
            tries += 1;
            if tries > TRIES_MAX {
                return Err(fail(Errno::BUSY));
            }
            match mkdirat(&parent, name.as_c_str(), Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(fail(e)),
            }
            let directory = match beneath::open_child(parent.as_fd(), &name) {
                // Its last user removed it just now.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.map_err(|e| Error::new("open staging directory", name.as_bytes(), e))?,
            };
            // Users share the lock; the last one, which removes the directory, needs it alone. Whoever waited here
            // may hold a directory that is gone.
            retry_on_intr(|| flock(&directory, FlockOperation::LockShared)).map_err(fail)?;
            let status = fstat(&directory).map_err(fail)?;
            if status.st_nlink > 0 {
                break (directory, status);
            }
        };
        if (status.st_uid != user || status.st_mode & 0o077 != 0) && !mutant::is_on("share-staging") {
            let why = "it belongs to another user or others may enter it; remove it and run the command again";
            return Err(Error::of_kind(FailureKind::Permission, "use staging directory", name.as_bytes(), why));
        }
        let staging = Staging { directory, device: status.st_dev, parent, name: name.as_c_str().to_owned() };
        staging.sweep();
        Ok(staging)
    }

    /// A fresh directory for one lane's small files, locked for as long as the descriptor lives.
    pub fn make_lane(&self) -> Result<LaneDirectory> {
        let fail = |e: Errno| Error::new("make staging directory", b"", e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Until it is locked the directory looks left over, and a transfer that starts at this moment may sweep it.
        for _ in 0..TRIES_MAX {
            let name = CString::new(format!("lane-{:016x}", random())).expect("no NUL");
            mkdirat(&self.directory, &name, Mode::from_raw_mode(0o700)).map_err(fail)?;
            let directory = match openat(&self.directory, &name, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(fail)?,
            };
            match retry_on_intr(|| flock(&directory, FlockOperation::NonBlockingLockExclusive)) {
                Err(Errno::WOULDBLOCK) => continue,
                locked => locked.map_err(fail)?,
            }
            if fstat(&directory).map_err(fail)?.st_nlink > 0 {
                return Ok(LaneDirectory { directory, name });
            }
        }
        Err(fail(Errno::BUSY))
    }

    /// Removes a lane's directory if it is empty. False when it is not.
    pub fn remove_lane(&self, lane: &LaneDirectory) -> bool {
        matches!(unlinkat(&self.directory, &lane.name, AtFlags::REMOVEDIR), Ok(()) | Err(Errno::NOENT))
    }

    /// Removes the staging directory itself if nothing is in it and no one else uses it.
    pub fn remove_if_empty(&self) {
        if flock(&self.directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        // One that is gone already has given its name to the staging of whoever came next.
        if fstat(&self.directory).is_ok_and(|status| status.st_nlink == 0) {
            return;
        }
        if unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR).is_err() {
            // Others may come in meanwhile; a later call tries again.
            let _ = flock(&self.directory, FlockOperation::Unlock);
        }
    }

    fn sweep(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let _ = list::read_directory(self.directory.as_fd(), &mut |name, status| {
            if let Ok(status) = status {
                let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
                if is_directory && name.as_bytes().starts_with(b"lane-") {
                    self.sweep_lane(name);
                } else if !is_directory {
                    // A stem with a random part was one attempt's own: no other will look for it.
                    let is_own = name.as_bytes().contains(&b'-');
                    if is_own || now - status.st_ctime > LARGE_KEPT_SECONDS || !self.is_paired(name) {
                        self.remove_unlocked(name);
                    }
                }
            }
            true
        });
    }

    fn sweep_lane(&self, name: &Name) {
        let Ok(lane) = beneath::open_child(self.directory.as_fd(), name) else { return };
        if flock(&lane, FlockOperation::NonBlockingLockExclusive).is_err() && !mutant::is_on("sweep-what-is-used") {
            return;
        }
        let _ = list::read_directory(lane.as_fd(), &mut |file, _| {
            let _ = unlinkat(&lane, file.as_c_str(), AtFlags::empty());
            true
        });
        let _ = unlinkat(&self.directory, name.as_c_str(), AtFlags::REMOVEDIR);
    }

    /// False for one half of a large object's pair that stands alone: a journal of what was published or dropped, or
    /// data that nothing vouches for.
    fn is_paired(&self, name: &Name) -> bool {
        let other = match (name.as_bytes().strip_suffix(b".data"), name.as_bytes().strip_suffix(b".log")) {
            (Some(stem), _) => [stem, b".log"].concat(),
            (_, Some(stem)) => [stem, b".data"].concat(),
            (None, None) => return true,
        };
        // A name too long for its other half to be one is none of ours.
        let Ok(other) = Name::new(&other) else { return true };
        !matches!(statat(&self.directory, other.as_c_str(), AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
    }

    /// Removes a file of a large object unless an attempt works on it, which cannot begin meanwhile.
    fn remove_unlocked(&self, name: &Name) {
        let log = match name.as_bytes().strip_suffix(b".data") {
            Some(stem) => Name::new(&[stem, b".log"].concat()).ok(),
            None => Some(name.clone()),
        };
        let lock = log.and_then(|log| beneath::open_file(self.directory.as_fd(), &log).ok());
        if lock.as_ref().is_none_or(|log| flock(log, FlockOperation::NonBlockingLockExclusive).is_ok()) {
            let _ = unlinkat(&self.directory, name.as_c_str(), AtFlags::empty());
        }
    }
}

/// What this user's staging is called.
fn own_name() -> Name {
    let mut name = STAGING_PREFIX.to_vec();
    name.extend_from_slice(rustix::process::geteuid().as_raw().to_string().as_bytes());
    Name::new(&name).expect("prefix and digits are a name")
}

/// One lane's directory. Its files are numbered from 0.
pub struct LaneDirectory {
    pub directory: OwnedFd,
    name: CString,
}

/// The name of a lane's file: its number in hexadecimal, without allocating.
pub struct FileNumber {
    digits: [u8; 17],
}

impl FileNumber {
    pub fn new(number: u64) -> FileNumber {
        let mut digits = [0; 17];
        for (i, digit) in digits[..16].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(number >> (60 - 4 * i)) as usize & 15];
        }
        FileNumber { digits }
    }

    pub fn as_c_str(&self) -> &std::ffi::CStr {
        std::ffi::CStr::from_bytes_with_nul(&self.digits).expect("sixteen digits and a NUL")
    }
}

/// Names only need to be free, and the directory is private: a counter mixed with time and process is enough where the
/// kernel gives no random bytes.
pub fn random() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    if let Some(number) = os::random() {
        return number;
    }
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    time ^ u64::from(std::process::id()) << 40 ^ COUNTER.fetch_add(1, Ordering::Relaxed)
}

/// Opens a file of staging, making it if it is missing. A symbolic link there is refused, and so is a file that has
/// another name as well or another owner: what is written here must not appear elsewhere (F044).
pub fn open_staged(staging: &Staging, name: &std::ffi::CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&staging.directory, name, flags, Mode::from_raw_mode(0o600))?;
    let status = fstat(&file)?;
    let is_ours = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_nlink <= 1
        && status.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours {
        let why = "a staged file has another name or owner; remove the staging directory and run the command again";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &std::path::Path) -> Result<Staging> {
        Staging::open(Arc::new(beneath::open_directory(path).unwrap()))
    }

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
    fn half_a_pair_is_swept_and_a_pair_is_not_however_old_its_source_is() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(dir.path()).unwrap();
        let make = |name: &std::ffi::CStr| {
            let file =
                openat(&staging.directory, name, OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).unwrap();
            // As a sealed file is: with the time of a source of 1970.
            let long_ago = crate::posix::sink::times_of(model::Timestamp { seconds: 1, nanoseconds: 0 });
            rustix::fs::futimens(&file, &long_ago).unwrap();
        };
        for name in [c"a.data", c"a.log", c"b.data", c"c.log", c"d-1.data", c"d-1.log"] {
            make(name);
        }
        let is_there = |name: &std::ffi::CStr| statat(&staging.directory, name, AtFlags::empty()).is_ok();
        open(dir.path()).unwrap();
        assert!(is_there(c"a.data") && is_there(c"a.log"));
        assert!(!is_there(c"b.data") && !is_there(c"c.log") && !is_there(c"d-1.data") && !is_there(c"d-1.log"));
    }

    #[test]
    fn staging_that_others_may_enter_or_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).unwrap();
        let name = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(open(dir.path()).err().map(|e| e.kind), Some(FailureKind::Permission));
        std::fs::remove_dir(&name).unwrap();
        symlink("/tmp", &name).unwrap();
        assert!(open(dir.path()).is_err());
    }

    #[test]
    fn a_staged_file_that_is_a_link_or_has_another_name_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(dir.path()).unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"theirs").unwrap();
        let place = std::fs::read_dir(dir.path()).unwrap().map(|d| d.unwrap().path()).find(|p| p.is_dir()).unwrap();
        std::os::unix::fs::symlink(&outside, place.join("soft.data")).unwrap();
        std::fs::hard_link(&outside, place.join("hard.data")).unwrap();
        for name in [c"soft.data", c"hard.data"] {
            assert!(open_staged(&staging, name, OFlags::CREATE).is_err(), "{name:?}");
        }
        open_staged(&staging, c"own.data", OFlags::CREATE).unwrap();
        open_staged(&staging, c"own.data", OFlags::CREATE).unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"theirs");
    }

    #[test]
    fn file_numbers_are_distinct_names() {
        assert_eq!(FileNumber::new(0x1f).as_c_str().to_bytes(), b"000000000000001f");
    }
}
