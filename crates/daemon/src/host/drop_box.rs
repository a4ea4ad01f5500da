//! The way to a destination whose client may not know what is there (`store::DropBox` is the destination itself).
//!
//! Invariant: that a name on the way is taken by what is no directory is not told; another one beside it is taken.

use model::{JobId, Name};
use rustix::io::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use store::aside;
use store::posix::beneath::Bounds;

/// Other names that are tried for one on the way.
const ASIDE_MAX: u32 = 16;

/// The same for each attempt at a job, and another one for each client.
pub fn tag_of(job: JobId) -> String {
    job.to_string().chars().take(8).collect()
}

/// Something on the way is no directory, or a link that leads outside.
pub fn is_in_the_way(e: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied};
    matches!(e.kind(), AlreadyExists | NotADirectory)
        || e.kind() == PermissionDenied && e.raw_os_error().is_none()
        || e.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Makes directories below `base`, beside what stands in the way of them.
pub fn make_directories(
    bounds: Bounds,
    base: BorrowedFd<'_>,
    names: &[Name],
    tag: &str,
    is_durable: bool,
) -> io::Result<OwnedFd> {
    let mut names = names.to_vec();
    let mut end = bounds.make_directories(base, &[], is_durable)?;
    for depth in 0..names.len() {
        let mut made = bounds.make_directories(base, &names[..=depth], is_durable);
        let plain = names[depth].clone();
        for number in 0..ASIDE_MAX {
            if !made.as_ref().is_err_and(is_in_the_way) {
                break;
            }
            names[depth] = aside(&plain, tag, number);
            made = bounds.make_directories(base, &names[..=depth], is_durable);
        }
        end = made?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use store::posix::beneath::Mounts;

    #[test]
    fn directories_are_made_beside_what_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "others'").unwrap();
        symlink("/etc", dir.path().join("l")).unwrap();
        let root = store::posix::beneath::open_directory(dir.path()).unwrap();
        let make = |path: &[u8]| {
            let names = model::name::relative_path(path).unwrap();
            make_directories(Mounts::Kept.into(), root.as_fd(), &names, "77", false)
        };
        for path in [&b""[..], b"new/deep", b"f/deep", b"f/deep", b"l/x"] {
            make(path).unwrap();
        }
        let there = |path: &str| dir.path().join(path).is_dir();
        assert!(there("new/deep") && there("f.~77~/deep") && there("l.~77~/x"));
        assert!(!there("f.~77.2~") && fs::read(dir.path().join("f")).unwrap() == b"others'");
    }
}
