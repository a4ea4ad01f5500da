//! Opening below a directory descriptor without ever leaving it.
//!
//! Every open in this crate starts from a descriptor and goes through here. The kernel enforces the boundary
//! (`openat2`, RESOLVE_BENEATH, Linux 5.6); without it each component is opened with O_NOFOLLOW, which also refuses
//! symbolic links that stay inside.
//!
//! Not here: what a name may be (see `model::Name`).

use model::{Name, mutant};
use os::fs::{mkdirat, openat};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

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
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(openat(parent, name.as_c_str(), flags, Mode::empty())?)
}

/// Resolves a path that a peer named, to a directory below `root`. Symbolic links are followed as long as they stay
/// below it.
pub fn resolve_directory(root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
    if names.is_empty() {
        return Ok(openat(root, c".", DIRECTORY, Mode::empty())?);
    }
    let path = model::name::join(names);
    let mut resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    if mutant::is_on("resolve-anywhere") {
        resolve = ResolveFlags::empty();
    }
    match openat2(root, OsStr::from_bytes(&path), DIRECTORY, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => walk(root, names),
        Err(Errno::XDEV) => Err(outside()),
        found => Ok(found?),
    }
}

/// As `resolve_directory`, making what is missing with the mode 0777 less the umask.
pub fn make_directories(root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
    let mut at = resolve_directory(root, &[])?;
    for (depth, name) in names.iter().enumerate() {
        at = match resolve_directory(root, &names[..=depth]) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                match mkdirat(&at, name.as_c_str(), Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e.into()),
                }
                open_child(at.as_fd(), name)?
            }
            found => found?,
        };
    }
    Ok(at)
}

fn walk(root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
    let mut at = resolve_directory(root, &[])?;
    for name in names {
        at = open_child(at.as_fd(), name)?;
    }
    Ok(at)
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
