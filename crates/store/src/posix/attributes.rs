//! Owner and extended attributes of a source's objects.
//!
//! Invariants: an object is opened by one name from the descriptor of its directory, and only where its extended attributes
//! are asked for; what is read is bounded (`model::fidelity`). What could not be read is never taken for absent.

use super::beneath;
use model::fidelity::{XATTRS_BYTES_MAX, XATTRS_MAX, Xattr};
use model::{Attributes, Fidelity, Kind, Name};
use rustix::fs::{Stat, fgetxattr, flistxattr};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The kernel lets no list and no value be longer.
const KERNEL_BYTES_MAX: usize = 64 << 10;
/// Enough for nearly every list and value.
const FIRST_BYTES: usize = 1 << 10;

/// Whether this process may give files away, and with it everything else that root may do to them.
pub fn is_super() -> bool {
    capabilities(None).is_ok_and(|held| held.effective.contains(CapabilitySet::CHOWN))
}

/// Reads the metadata of an object that a job keeps. `missed` hears of what stays behind.
pub fn read(
    (directory, name): (BorrowedFd<'_>, &Name),
    status: &Stat,
    kind: &Kind,
    fidelity: Fidelity,
    missed: &mut dyn FnMut(&str),
) -> Attributes {
    let links = if fidelity.hard_links { u32::try_from(status.st_nlink).unwrap_or(u32::MAX) } else { 0 };
    let opened = match kind {
        _ if !fidelity.has_xattrs() => None,
        Kind::Directory => Some(beneath::open_child(directory, name)),
        Kind::File => Some(beneath::open_file(directory, name)),
        Kind::Symlink(_) | Kind::Node(_) | Kind::HardLink(_) => None,
    };
    let mut are_incomplete = false;
    let mut miss = |text: &str| {
        are_incomplete = true;
        missed(text);
    };
    let xattrs = match opened {
        None => Vec::new(),
        Some(Ok(opened)) => xattrs_of(&opened, fidelity, &mut miss),
        Some(Err(e)) => {
            miss(&format!("its extended attributes and ACLs could not be read: {}", plain(e)));
            Vec::new()
        }
    };
    let mut attributes = Attributes::new(status.st_uid, status.st_gid, links, xattrs);
    attributes.are_incomplete = are_incomplete;
    attributes
}

fn xattrs_of(object: &OwnedFd, fidelity: Fidelity, missed: &mut dyn FnMut(&str)) -> Vec<Xattr> {
    let names = match names(object.as_fd()) {
        Ok(names) => names,
        Err(e) => {
            missed(&format!("its extended attributes could not be listed: {}", plain(e)));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    let mut bytes = 0;
    for name in names {
        let (name, is_plain) = (name.as_c_str(), name.to_bytes().starts_with(b"user."));
        let is_acl = name.to_bytes().starts_with(b"system.");
        if !Xattr::is_kept_by(name.to_bytes(), fidelity) || !(is_plain || is_acl || is_super()) {
            continue;
        }
        let value = match value(object.as_fd(), name) {
            Ok(Some(value)) => value,
            Ok(None) => continue,
            Err(e) => {
                missed(&format!("an extended attribute could not be read: {}", plain(e)));
                continue;
            }
        };
        let xattr = Xattr { name: name.to_bytes().into(), value: value.into() };
        bytes += xattr.bytes();
        if !Xattr::fits(&xattr.name, &xattr.value) || bytes > XATTRS_BYTES_MAX || found.len() == XATTRS_MAX {
            bytes -= xattr.bytes();
            missed("it has more extended attributes than can be sent (128 KiB, 64 KiB each)");
            continue;
        }
        found.push(xattr);
    }
    found
}

/// The names of an object's extended attributes; none where its file system has no such thing.
pub fn names(object: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let list = with_room(&mut |room| flistxattr(object, room))?;
    let names = list.split(|b| *b == 0).filter(|name| !name.is_empty());
    Ok(names.filter_map(|name| CString::new(name).ok()).collect())
}

/// The value of an extended attribute; `None` where the object has none of that name.
pub fn value(object: BorrowedFd<'_>, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
    match with_room(&mut |room| fgetxattr(object, name, room)) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

fn with_room(once: &mut dyn FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for bytes in [FIRST_BYTES, KERNEL_BYTES_MAX] {
        let mut room = vec![0; bytes];
        match once(&mut room) {
            Ok(length) => {
                room.truncate(length);
                return Ok(room);
            }
            Err(Errno::RANGE) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            Err(e) => return Err(e),
        }
    }
    Err(Errno::TOOBIG)
}

/// An error of the kernel in words, without its number.
pub fn plain(e: impl Into<io::Error>) -> String {
    let e: io::Error = e.into();
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, statat};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn attributes_that_could_not_be_read_are_told_of_and_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let directory = beneath::open_directory(dir.path()).unwrap();
        let fidelity = Fidelity { xattrs: true, ..Fidelity::default() };
        for (name, kind, readable) in [("f", Kind::File, 0o600), ("d", Kind::Directory, 0o700)] {
            let path = dir.path().join(name);
            match kind {
                Kind::File => fs::write(&path, b"x").unwrap(),
                _ => fs::create_dir(&path).unwrap(),
            }
            let name = Name::new(name.as_bytes()).unwrap();
            for (mode, missing) in [(0o000, 1), (readable, 0)] {
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                let status = statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW).unwrap();
                let mut said = Vec::new();
                let attributes = needs::bound_by_permissions(|| {
                    read((directory.as_fd(), &name), &status, &kind, fidelity, &mut |text| said.push(text.to_owned()))
                });
                assert_eq!((attributes.are_incomplete, said.len()), (missing > 0, missing), "{said:?}");
            }
        }
    }
}
