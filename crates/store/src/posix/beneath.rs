//! Opening below a directory descriptor without ever leaving it.
//!
//! Every open in this crate starts from a descriptor and goes through here. The kernel enforces the boundary
//! (`openat2`, RESOLVE_BENEATH, Linux 5.6); without it each component is opened with O_NOFOLLOW, which also refuses
//! symbolic links that stay inside. Below the root of an endpoint a file system that is mounted there is refused as well
//! (`Mounts::Kept`): whoever mounted it did not mean to share it; and so is a set that is not the client's to read (`closed`).
//!
//! Not here: what a name may be (see `model::Name`).

use super::closed;
use super::wait::sync_names;
use model::name::Escaped;
use model::{Name, Pin, mutant};
use os::fs::{mkdirat, openat};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, fstat, openat2, statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// What becomes of a file system that is mounted below where opening starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mounts {
    /// It is entered like any directory: the user's own paths, as with cp and rsync.
    #[default]
    Crossed,
    /// It is not entered, be it another file system or a bind mount of the same.
    Kept,
}

/// What of all that lies below where opening starts is entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    pub mounts: Mounts,
    /// Whose readers' rights count. The user of this process needs none.
    pub reader: Option<Pin>,
}

impl From<Mounts> for Bounds {
    fn from(mounts: Mounts) -> Bounds {
        Bounds { mounts, reader: None }
    }
}

impl Bounds {
    /// Whether mounts are to be refused.
    fn are_kept(self) -> bool {
        self.mounts == Mounts::Kept && !mutant::is_on("cross-mounts")
    }

    fn checked(self, opened: OwnedFd) -> io::Result<OwnedFd> {
        self.reader.map_or(Ok(()), |reader| closed::check(opened.as_fd(), reader)).map(|()| opened)
    }

    /// As the function of this name.
    pub fn open_child(self, parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
        self.checked(match self.are_kept() {
            true => open_on_one(parent, name, DIRECTORY | OFlags::NOFOLLOW)?,
            false => open_child(parent, name)?,
        })
    }

    /// As `open_child`, without any right to what is in the directory: to learn whose it is, and who may enter it.
    pub fn find_child(self, parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.are_kept() {
            true => open_on_one(parent, name, flags),
            false => Ok(openat(parent, name.as_c_str(), flags, Mode::empty())?),
        }
    }

    /// As the function of this name.
    pub fn open_file(self, parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
        if self.are_kept() {
            return open_on_one(parent, name, FILE);
        }
        open_file(parent, name)
    }

    /// As the function of this name.
    pub fn resolve_directory(self, root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
        let opened = self.resolve_anywhere(root, names)?;
        if let Some(reader) = self.reader {
            // A link may have led into the middle of a set.
            closed::check_up_to(root, opened.as_fd(), reader)?;
        }
        Ok(opened)
    }

    fn resolve_anywhere(self, root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
        match resolve(root, names, self.are_kept()) {
            // Either it leaves the root, or it crosses a mount, and only the first is so without this rule too. What
            // lies behind the mount may be a file, or not be there.
            Err(Errno::XDEV) if self.are_kept() && !matches!(resolve(root, names, false), Err(Errno::XDEV)) => {
                let crosses = |depth: &usize| matches!(resolve(root, &names[..*depth], true), Err(Errno::XDEV));
                let depth = (1..names.len()).find(crosses).unwrap_or(names.len());
                Err(mounted(&names[..depth]))
            }
            Err(Errno::XDEV) => Err(outside()),
            Err(Errno::NOSYS) => self.walk(root, names),
            resolved => Ok(resolved?),
        }
    }

    /// As the function of this name. The names of what it makes are on disk when it returns, if that is asked for.
    pub fn make_directories(self, root: BorrowedFd<'_>, names: &[Name], is_durable: bool) -> io::Result<OwnedFd> {
        let mut at = self.resolve_directory(root, &[])?;
        for (depth, name) in names.iter().enumerate() {
            at = match self.resolve_directory(root, &names[..=depth]) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    match mkdirat(&at, name.as_c_str(), Mode::from_raw_mode(0o777)) {
                        Ok(()) if is_durable => sync_names(at.as_fd())?,
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                    self.open_child(at.as_fd(), name)?
                }
                found => found?,
            };
        }
        Ok(at)
    }

    /// Goes down one name at a time, following no link.
    pub fn walk(self, root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
        let mut at = self.resolve_directory(root, &[])?;
        for name in names {
            at = self.open_child(at.as_fd(), name)?;
        }
        Ok(at)
    }

    /// Why a directory that was come upon is to be left alone.
    pub fn kept_out(self, parent: BorrowedFd<'_>, name: &Name, device: u64) -> Option<String> {
        let is_mount = || is_mounted(parent, name).unwrap_or_else(|| fstat(parent).is_ok_and(|at| at.st_dev != device));
        if self.are_kept() && is_mount() {
            return Some(MOUNTED.to_owned());
        }
        closed::check_child(parent, name, self.reader?).err().filter(closed::is_closed).map(|e| e.to_string())
    }
}

/// Whether something is mounted at a name; `None` where the kernel does not say (before 5.8).
pub(super) fn is_mounted(parent: BorrowedFd<'_>, name: &Name) -> Option<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let found = statx(parent, name.as_c_str(), flags, StatxFlags::TYPE).ok()?;
    let known = found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT);
    known.then(|| found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

/// Opens by one name on the same mount.
fn open_on_one(parent: BorrowedFd<'_>, name: &Name, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    for _ in 0..closed::RESOLVE_TRIES_MAX {
        match openat2(parent, name.as_c_str(), flags, Mode::empty(), resolve) {
            Err(Errno::XDEV) => return Err(mounted(std::slice::from_ref(name))),
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => {
                let opened = openat(parent, name.as_c_str(), flags, Mode::empty())?;
                let is_same = fstat(&opened)?.st_dev == fstat(parent)?.st_dev;
                return if is_same { Ok(opened) } else { Err(mounted(std::slice::from_ref(name))) };
            }
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// What is said of a mount that is not entered.
const MOUNTED: &str = "another file system is mounted there, which this endpoint does not share; its operator can \
                           allow that with `thalweg serve --cross-mounts`";

fn mounted(names: &[Name]) -> io::Error {
    let path = Escaped(&model::name::join(names)).to_string();
    io::Error::new(io::ErrorKind::CrossesDevices, format!("{path}: {MOUNTED}"))
}

/// Opens a directory that the user of this process named: links in the path are the user's own business.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, DIRECTORY, Mode::empty())?)
}

/// Opens a subdirectory by one name; a symbolic link there is refused, never followed.
pub fn open_child(parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
    let refused = if mutant::is_on("follow-links") { OFlags::empty() } else { OFlags::NOFOLLOW };
    Ok(openat(parent, name.as_c_str(), DIRECTORY | refused, Mode::empty())?)
}

/// Opens a file by one name for reading. Never blocks on a FIFO, never follows a link.
pub fn open_file(parent: BorrowedFd<'_>, name: &Name) -> io::Result<OwnedFd> {
    Ok(openat(parent, name.as_c_str(), FILE, Mode::empty())?)
}

/// Resolves a path that a peer named, to a directory below `root`. Symbolic links are followed as long as they stay
/// below it.
pub fn resolve_directory(root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
    Bounds::default().resolve_directory(root, names)
}

/// As `resolve_directory`, making what is missing, durably, with the mode 0777 less the umask.
pub fn make_directories(root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
    Bounds::default().make_directories(root, names, true)
}

fn resolve(root: BorrowedFd<'_>, names: &[Name], is_one_mount: bool) -> Result<OwnedFd, Errno> {
    if names.is_empty() {
        return openat(root, c".", DIRECTORY, Mode::empty());
    }
    let path = model::name::join(names);
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if is_one_mount {
        resolve |= ResolveFlags::NO_XDEV;
    }
    if mutant::is_on("resolve-anywhere") {
        resolve = ResolveFlags::empty();
    }
    for _ in 0..closed::RESOLVE_TRIES_MAX {
        match openat2(root, OsStr::from_bytes(&path), DIRECTORY, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            resolved => return resolved,
        }
    }
    Err(Errno::AGAIN)
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the path leads outside the served root")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn names(path: &str) -> Vec<Name> {
        model::name::relative_path(path.as_bytes()).unwrap()
    }

    #[test]
    fn links_inside_are_followed_and_links_outside_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        symlink("a", root.join("inside")).unwrap();
        symlink("../outside", root.join("climbs")).unwrap();
        symlink("/etc", root.join("absolute")).unwrap();
        let fd = open_directory(&root).unwrap();
        resolve_directory(fd.as_fd(), &names("inside/b")).unwrap();
        for path in ["climbs", "absolute", "climbs/deeper"] {
            let refused = resolve_directory(fd.as_fd(), &names(path)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{path}");
            assert!(make_directories(fd.as_fd(), &names(&format!("{path}/new"))).is_err());
        }
        assert!(std::fs::read_dir(dir.path().join("outside")).unwrap().next().is_none());
        make_directories(fd.as_fd(), &names("x/y/z")).unwrap();
        assert!(root.join("x/y/z").is_dir());
        assert!(open_child(fd.as_fd(), &names("inside")[0]).is_err());
    }
}
