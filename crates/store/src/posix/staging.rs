//! Where incomplete objects live: one private directory per root, file system and host, swept when it is left over.
//!
//! ```text
//! ROOT/.thalweg-staging-UID/       0700, this user's
//!     host-NAME/                   0700, this host's
//!         lane-RANDOM/             small files of one lane, numbered; held by a lock while the lane lives
//!         KEY.data  KEY.log        one large object and its extent log; the log is locked while an attempt works on it
//!         slice-JOB/               the same for one slice of a job that several hosts work on (`fence`)
//!     void-JOB/                    a slice that another host has taken over
//!     ranges-STEM/                 one large object that several slices write together (`parts`)
//! ```
//!
//! Invariants:
//! - Staging is a real directory of this user with mode 0700; anything else of that name is refused (F044).
//! - Names are created with O_EXCL; nothing of another attempt is written to unless its lock was won.
//! - A lock says nothing of another host where storage is shared: a host works in its own directory only.
//!
//! What is removed, and when, is in `sweep`.

use super::beneath;
use super::facts::STAGING_PREFIX;
use super::inherit::Inherited;
use super::slices::slice_name;
use super::sweep::Sweep;
use crate::{Error, Result};
use model::{FailureKind, JobId, Name, mutant};
use os::fs::{mkdirat, openat, unlinkat};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, statat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// How often a lane's directory may be swept before it is locked, and how often staging itself may be removed before it
/// is: whoever may write to the root could go on with that for ever.
pub(super) const TRIES_MAX: u32 = 100;

pub struct Staging {
    /// This host's, or a slice's.
    pub directory: Arc<OwnedFd>,
    pub device: u64,
    /// What files get here.
    pub inherited: Inherited,
    /// The directories on the way there from `parent`, with their names; the last is `directory`.
    levels: Vec<(Arc<OwnedFd>, Name)>,
    parent: Arc<OwnedFd>,
}

impl Staging {
    /// Whether an attempt, which may have died, has staging below `parent`.
    pub fn is_there(parent: &OwnedFd) -> bool {
        statat(parent, own_name().as_c_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Opens (or makes) the staging directory of a host below `parent` and sweeps what dead attempts left; of a slice, its own
    /// within it.
    pub fn open(parent: Arc<OwnedFd>, host: &Name, slice: Option<JobId>) -> Result<Staging> {
        for _ in 0..TRIES_MAX {
            let Some(shared) = open_private(parent.as_fd(), &own_name())? else { continue };
            let Some(own) = open_private(shared.as_fd(), host)? else { continue };
            Sweep::new(&own, host).run(&shared);
            let mut levels = vec![(Arc::new(shared), own_name()), (Arc::new(own), host.clone())];
            if let Some(job) = slice {
                let name = slice_name(job);
                let Some(directory) = open_private(levels[1].0.as_fd(), &name)? else { continue };
                levels.push((Arc::new(directory), name));
            }
            let directory = levels[levels.len() - 1].0.clone();
            let device = fstat(&directory).map_err(failed)?.st_dev;
            let inherited = Inherited::of(directory.as_fd());
            return Ok(Staging { directory, device, inherited, levels, parent });
        }
        Err(failed(Errno::BUSY))
    }

    /// A directory in that of all hosts, which is nobody's alone.
    pub fn of_parts(directory: Arc<OwnedFd>, host: &Staging) -> Staging {
        let (device, inherited) = (host.device, host.inherited.clone());
        Staging { parent: directory.clone(), directory, device, inherited, levels: Vec::new() }
    }

    /// The directory of all hosts.
    pub fn top(&self) -> &Arc<OwnedFd> {
        self.levels.first().map_or(&self.directory, |(directory, _)| directory)
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

    /// Removes this directory if nothing is in it and no one else uses it, and then those above it.
    pub fn remove_if_empty(&self) {
        for (at, (directory, name)) in self.levels.iter().enumerate().rev() {
            let parent = if at == 0 { &self.parent } else { &self.levels[at - 1].0 };
            if !remove_unused(directory, parent.as_fd(), name) {
                return;
            }
        }
    }
}

pub(super) fn failed(e: Errno) -> Error {
    Error::new("make staging directory", STAGING_PREFIX, e)
}

/// Opens, or makes, a directory that is this user's alone. `None` when its last user removed it just now.
pub(super) fn open_private(parent: BorrowedFd<'_>, name: &Name) -> Result<Option<OwnedFd>> {
    match mkdirat(parent, name.as_c_str(), Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        // What it was to lie in is gone.
        Err(Errno::NOENT) if name.as_bytes() != own_name().as_bytes() => return Ok(None),
        Err(e) => return Err(failed(e)),
    }
    let directory = match beneath::open_child(parent, name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| Error::new("open staging directory", name.as_bytes(), e))?,
    };
    // Users share the lock; the last one, which removes the directory, needs it alone. Whoever waited here may hold a
    // directory that is gone.
    retry_on_intr(|| flock(&directory, FlockOperation::LockShared)).map_err(failed)?;
    let status = fstat(&directory).map_err(failed)?;
    if status.st_nlink == 0 {
        return Ok(None);
    }
    let is_own = status.st_uid == rustix::process::geteuid().as_raw();
    if (!is_own || status.st_mode & 0o077 != 0) && !mutant::is_on("share-staging") {
        let why = "it belongs to another user or others may enter it; remove it and run the command again";
        return Err(Error::of_kind(FailureKind::Permission, "use staging directory", name.as_bytes(), why));
    }
    Ok(Some(directory))
}

/// False when somebody uses it, or something is in it.
fn remove_unused(directory: &OwnedFd, parent: BorrowedFd<'_>, name: &Name) -> bool {
    if flock(directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    // One that is gone already has given its name to the staging of whoever came next.
    if fstat(directory).is_ok_and(|status| status.st_nlink == 0) {
        return false;
    }
    let is_removed = unlinkat(parent, name.as_c_str(), AtFlags::REMOVEDIR).is_ok();
    if !is_removed {
        // Others may come in meanwhile; a later call tries again.
        let _ = flock(directory, FlockOperation::Unlock);
    }
    is_removed
}

/// What this user's staging is called.
pub(super) fn own_name() -> Name {
    let mut name = STAGING_PREFIX.to_vec();
    name.extend_from_slice(rustix::process::geteuid().as_raw().to_string().as_bytes());
    Name::new(&name).expect("prefix and digits are a name")
}

/// One lane's directory. Its files are numbered from 0.
pub struct LaneDirectory {
    pub directory: OwnedFd,
    pub(super) name: CString,
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

/// Opens a file of staging, making it if it is missing. A symbolic link there is refused, and so is a file that has more
/// names than are known or another owner: what is written here must not appear elsewhere (F044).
pub fn open_staged(staging: &Staging, name: &std::ffi::CStr, flags: OFlags, links_max: u8) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&staging.directory, name, flags, Mode::from_raw_mode(0o600))?;
    let status = fstat(&file)?;
    let is_ours = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && status.st_nlink <= links_max.into()
        && status.st_uid == rustix::process::geteuid().as_raw();
    if !is_ours {
        let why = "a staged file has another name or owner; remove the staging directory and run the command again";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

/// Whether an earlier attempt at a large object left its log.
pub(super) fn has_journal(staging: &Staging, stem: &str) -> bool {
    rustix::fs::accessat(&staging.directory, file_name(stem, "log"), rustix::fs::Access::EXISTS, AtFlags::empty())
        .is_ok()
}

/// What belongs to a large object.
pub(super) fn file_name(stem: &str, suffix: &str) -> CString {
    assert!(stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "a stem is letters and digits");
    CString::new(format!("{stem}.{suffix}")).expect("no NUL")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::posix::host;
    use std::path::{Path, PathBuf};

    pub fn open(path: &Path) -> Result<Staging> {
        Staging::open(Arc::new(beneath::open_directory(path).unwrap()), host::own(), None)
    }

    /// Where this user's staging lies, of all hosts and of this one.
    pub fn places(path: &Path) -> (PathBuf, PathBuf) {
        let shared = path.join(std::ffi::OsStr::new(&*String::from_utf8_lossy(own_name().as_bytes())));
        let own = shared.join(String::from_utf8_lossy(host::own().as_bytes()).into_owned());
        (shared, own)
    }

    #[test]
    fn staging_that_others_may_enter_or_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (shared, own) = places(dir.path());
        for name in [&own, &shared] {
            open(dir.path()).unwrap();
            std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o755)).unwrap();
            assert_eq!(open(dir.path()).err().map(|e| e.kind), Some(FailureKind::Permission));
            std::fs::remove_dir_all(name).unwrap();
            symlink("/tmp", name).unwrap();
            assert!(open(dir.path()).is_err());
            std::fs::remove_file(name).unwrap();
        }
    }

    #[test]
    fn what_the_last_user_leaves_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (open(dir.path()).unwrap(), open(dir.path()).unwrap());
        let parent = Arc::new(beneath::open_directory(dir.path()).unwrap());
        let elsewhere = Staging::open(parent, &host::named("other"), None).unwrap();
        first.remove_if_empty();
        second.make_lane().unwrap();
        drop(first);
        elsewhere.remove_if_empty();
        assert!(places(dir.path()).1.exists(), "it is in use");
        let third = open(dir.path()).unwrap();
        drop(second);
        third.remove_if_empty();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        // One that is gone makes room for the next.
        elsewhere.remove_if_empty();
        open(dir.path()).unwrap().make_lane().unwrap();
    }

    #[test]
    fn a_staged_file_that_is_a_link_or_has_another_name_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let staging = open(dir.path()).unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"theirs").unwrap();
        let place = places(dir.path()).1;
        std::os::unix::fs::symlink(&outside, place.join("soft.data")).unwrap();
        std::fs::hard_link(&outside, place.join("hard.data")).unwrap();
        for name in [c"soft.data", c"hard.data"] {
            assert!(open_staged(&staging, name, OFlags::CREATE, 1).is_err(), "{name:?}");
        }
        open_staged(&staging, c"own.data", OFlags::CREATE, 1).unwrap();
        open_staged(&staging, c"own.data", OFlags::CREATE, 1).unwrap();
        assert_eq!(std::fs::read(&outside).unwrap(), b"theirs");
    }

    #[test]
    fn file_numbers_are_distinct_names() {
        assert_eq!(FileNumber::new(0x1f).as_c_str().to_bytes(), b"000000000000001f");
    }
}
