//! What a path leads to, held by descriptor: a directory, or a name in one.
//!
//! Invariant: nothing here resolves a path a second time. Whoever holds a target reaches its object by one name from a
//! descriptor, without following a link.

use super::beneath::{self, Bounds};
use super::list::generation_of;
use crate::{Error, Result};
use model::files::{FileKind, FileStatus};
use model::name::relative_path;
use model::{FailureKind, Name};
use rustix::fs::{AtFlags, FileType, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a block as `st_blocks` counts them.
const BLOCK_BYTES: u64 = 512;

/// An object that was named.
#[derive(Clone, Debug)]
pub struct Target {
    /// The object itself where there is no `name`.
    pub directory: Arc<OwnedFd>,
    pub name: Option<Name>,
    /// A root: nobody may remove it or give it another name through this target.
    pub is_root: bool,
    /// Staging of running transfers is neither shown nor touched.
    pub hides_staging: bool,
    /// What is entered below it.
    pub bounds: Bounds,
}

impl Target {
    /// A path of the user's own. `follows`: a link that stands there is followed, because only a directory will do.
    pub fn local(path: &[u8], follows: bool) -> io::Result<Target> {
        let as_path = Path::new(OsStr::from_bytes(path));
        let target = |directory, name, is_root| {
            let bounds = Bounds::default();
            Target { directory: Arc::new(directory), name, is_root, hides_staging: false, bounds }
        };
        // `Path` drops a last `.`, and `x/.` must not be taken for x itself.
        let is_dot = path == b"." || path.ends_with(b"/.");
        let Some(name) = as_path.file_name().filter(|_| !follows && !is_dot) else {
            let is_root = as_path.file_name().is_none() || is_dot;
            return Ok(target(beneath::open_directory(as_path)?, None, is_root));
        };
        let name = Name::new(name.as_bytes()).map_err(|_| io::Error::from(Errno::NAMETOOLONG))?;
        let parent = as_path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(target(beneath::open_directory(parent)?, Some(name), false))
    }

    /// Names below a directory that a client may reach. `follows` as for `local`.
    pub fn beneath(
        base: BorrowedFd<'_>,
        names: &[Name],
        follows: bool,
        bounds: impl Into<Bounds>,
    ) -> io::Result<Target> {
        let bounds = bounds.into();
        let (directory, name) = match names.split_last() {
            Some((last, parents)) if !follows => (bounds.resolve_directory(base, parents)?, Some(last.clone())),
            _ => (bounds.resolve_directory(base, names)?, None),
        };
        Ok(Target { directory: Arc::new(directory), name, is_root: names.is_empty(), hides_staging: true, bounds })
    }

    /// Refuses a link: the path had a slash behind it, and who wrote that did not mean the link.
    pub fn not_a_link(self) -> io::Result<Target> {
        match self.status() {
            Ok(status) if FileType::from_raw_mode(status.st_mode).is_symlink() => Err(Errno::NOTDIR.into()),
            _ => Ok(self),
        }
    }

    /// The object's status; a link's own.
    pub fn status(&self) -> std::result::Result<Stat, Errno> {
        match &self.name {
            Some(name) => statat(&self.directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW),
            None => fstat(&self.directory),
        }
    }

    /// Opens the object as a directory; a link is not followed.
    pub fn open(&self) -> io::Result<Arc<OwnedFd>> {
        match &self.name {
            Some(name) => Ok(Arc::new(self.bounds.open_child(self.directory.as_fd(), name)?)),
            None => Ok(self.directory.clone()),
        }
    }

    pub fn file_status(&self) -> Result<FileStatus> {
        let status = self.status().map_err(|e| Error::new("look at", b"", e))?;
        status_of(self.directory.as_fd(), self.name.as_ref(), &status)
    }

    /// The name, of what is no root.
    pub fn changeable(&self, operation: &'static str) -> Result<&Name> {
        let why = match &self.name {
            Some(name) if !self.is_root => return Ok(name),
            // Only a client's target hides staging: its root is the endpoint's.
            _ if self.hides_staging => "this is the endpoint's root, which stays",
            _ => "the path does not end in a name",
        };
        Err(Error::of_kind(FailureKind::NameRefused, operation, b"", why))
    }
}

/// Names of a relative path that stays below where it starts.
pub fn names_of(path: &[u8]) -> Result<Vec<Name>> {
    relative_path(path).map_err(|e| Error::of_kind(FailureKind::NameRefused, "look at", path, &e.to_string()))
}

pub fn status_of(directory: BorrowedFd<'_>, name: Option<&Name>, status: &Stat) -> Result<FileStatus> {
    let kind = match (FileType::from_raw_mode(status.st_mode), name) {
        (FileType::Directory, _) => FileKind::Directory,
        (FileType::RegularFile, _) => FileKind::File,
        (FileType::Symlink, Some(name)) => {
            let target = readlinkat(directory, name.as_c_str(), Vec::new())
                .map_err(|e| Error::new("read symbolic link", b"", e))?;
            FileKind::Symlink(target.into_bytes().into())
        }
        (FileType::Fifo, _) => FileKind::Fifo,
        (FileType::Socket, _) => FileKind::Socket,
        (FileType::CharacterDevice, _) => FileKind::CharacterDevice,
        (FileType::BlockDevice, _) => FileKind::BlockDevice,
        _ => FileKind::Unknown,
    };
    let generation = generation_of(status);
    Ok(FileStatus {
        kind,
        mode: status.st_mode & 0o7777,
        size_bytes: generation.size_bytes,
        allocated_bytes: (status.st_blocks as u64).saturating_mul(BLOCK_BYTES),
        owner: status.st_uid,
        group: status.st_gid,
        links: status.st_nlink as _,
        inode: status.st_ino,
        device: status.st_dev,
        modified: generation.modified,
        changed: generation.version.changed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::beneath::Mounts;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_itself_unless_a_directory_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        symlink("d", dir.path().join("l")).unwrap();
        symlink("/", dir.path().join("out")).unwrap();
        let kind = |target: io::Result<Target>| target.unwrap().file_status().unwrap().kind;
        let path = |name: &str| dir.path().join(name).into_os_string().into_encoded_bytes();
        assert!(matches!(kind(Target::local(&path("l"), false)), FileKind::Symlink(_)));
        assert_eq!(kind(Target::local(&path("l/"), true)), FileKind::Directory);
        let root = beneath::open_directory(dir.path()).unwrap();
        let names = |path: &[u8]| names_of(path).unwrap();
        assert!(matches!(
            kind(Target::beneath(root.as_fd(), &names(b"out"), false, Mounts::Kept)),
            FileKind::Symlink(_)
        ));
        assert_eq!(kind(Target::beneath(root.as_fd(), &names(b"l"), true, Mounts::Kept)), FileKind::Directory);
        assert!(Target::beneath(root.as_fd(), &names(b"out"), true, Mounts::Kept).is_err());
        assert!(Target::beneath(root.as_fd(), &names(b"out/etc"), false, Mounts::Kept).is_err());
    }

    #[test]
    fn what_has_no_name_of_its_own_cannot_be_changed() {
        for path in [&b"/"[..], b".", b"..", b"/tmp/.", b"/tmp/.."] {
            let target = Target::local(path, false).unwrap();
            assert!(target.is_root && target.changeable("remove").is_err(), "{path:?}");
        }
        let root = beneath::open_directory(Path::new("/tmp")).unwrap();
        assert!(Target::beneath(root.as_fd(), &[], false, Mounts::Kept).unwrap().changeable("remove").is_err());
    }
}
