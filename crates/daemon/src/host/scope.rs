//! What a client asks for, below the path that its ticket is limited to.
//!
//! Invariants:
//! - Paths are compared name by name (F033): `foo` does not cover `foobar`.
//! - The limiting path is walked without following a link, and everything below is resolved beneath its end: a client
//!   that may write there cannot make a link through which it leaves (links within the whole root would let it).

use model::name::{self, Name};
use rustix::fs::{Mode, mkdirat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use store::posix::beneath::{self, Bounds};
use store::posix::closed::is_closed;
use store::posix::sync_names;
use store::posix::target::Target;

/// A path that may be reached.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The limiting path; empty where the whole root may be reached.
    scope: Vec<Name>,
    /// Below it.
    pub below: Vec<Name>,
    bounds: Bounds,
}

impl Asked {
    /// `None` when the names do not begin with those of `scope`.
    pub fn within(scope: &[Name], names: Vec<Name>, bounds: impl Into<Bounds>) -> Option<Asked> {
        let below = names.strip_prefix(scope)?.to_vec();
        Some(Asked { scope: scope.to_vec(), below, bounds: bounds.into() })
    }

    /// Opens the end of the limiting path to write below it, making what is missing.
    pub fn make_base(&self, root: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut at = beneath::resolve_directory(root, &[])?;
        for name in &self.scope {
            at = match self.bounds.open_child(at.as_fd(), name) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    match mkdirat(&at, name.as_c_str(), Mode::from_raw_mode(0o777)) {
                        Ok(()) => sync_names(at.as_fd())?,
                        Err(Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                    self.bounds.open_child(at.as_fd(), name)?
                }
                opened => opened?,
            };
        }
        Ok(at)
    }

    /// Opens a directory below the end of the limiting path, without making anything.
    pub fn look_beneath(&self, root: BorrowedFd<'_>, names: &[Name]) -> io::Result<OwnedFd> {
        let at = self.bounds.walk(root, &self.scope)?;
        self.bounds.resolve_directory(at.as_fd(), names)
    }

    /// Why nothing of the path may be reached, if it lies in a set of others.
    pub fn closed(&self, root: BorrowedFd<'_>) -> Option<io::Error> {
        let parents = self.below.split_last().map_or(&[][..], |(_, parents)| parents);
        // What is there may be a file, or not be there.
        let error = self.look_beneath(root, &self.below).err()?;
        if is_closed(&error) { Some(error) } else { self.look_beneath(root, parents).err().filter(is_closed) }
    }

    /// What the path leads to. `follows`: only a directory will do, and a link there is followed. The limiting path itself is
    /// a root.
    pub fn target(&self, root: BorrowedFd<'_>, follows: bool) -> io::Result<Target> {
        match self.scope.split_last() {
            Some((last, parents)) if self.below.is_empty() && !follows => {
                let (directory, bounds) = (Arc::new(self.bounds.walk(root, parents)?), self.bounds);
                Ok(Target { directory, name: Some(last.clone()), is_root: true, hides_staging: true, bounds })
            }
            _ => {
                let base = self.bounds.walk(root, &self.scope)?;
                Target::beneath(base.as_fd(), &self.below, follows, self.bounds)
            }
        }
    }

    /// Where a directory is to be made; `with_parents` makes what is missing above it.
    pub fn new_target(&self, root: BorrowedFd<'_>, with_parents: bool) -> io::Result<Target> {
        if with_parents {
            let base = self.make_base(root)?;
            let parents = self.below.split_last().map_or(&[][..], |(_, parents)| parents);
            self.bounds.make_directories(base.as_fd(), parents, true)?;
        }
        self.target(root, false)
    }

    /// Where to read from, and the path below that. What the ticket is limited to may itself be a file.
    pub fn open_base(&self, root: BorrowedFd<'_>, names_contents: bool) -> io::Result<(OwnedFd, Vec<u8>)> {
        let (walked, below) = match self.scope.split_last() {
            Some((last, parents)) if self.below.is_empty() && !names_contents => (parents, std::slice::from_ref(last)),
            _ => (&self.scope[..], &self.below[..]),
        };
        let at = self.bounds.walk(root, walked)?;
        let mut path = name::join(below);
        if names_contents {
            // Also where nothing is left: `./` is the contents of the base.
            path.extend_from_slice(if path.is_empty() { b"./" } else { b"/" });
        }
        Ok((at, path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use store::posix::beneath::Mounts;

    fn names(path: &[u8]) -> Vec<Name> {
        name::relative_path(path).unwrap()
    }

    #[test]
    fn paths_are_compared_name_by_name() {
        let within = |scope: &[u8], path: &[u8]| {
            Asked::within(&names(scope), names(path), Mounts::Kept).map(|asked| name::join(&asked.below))
        };
        assert_eq!(within(b"foo", b"foo/bar"), Some(b"bar".to_vec()));
        assert_eq!(within(b"foo", b"./foo//"), Some(Vec::new()));
        assert_eq!(within(b"", b"any/thing"), Some(b"any/thing".to_vec()));
        for path in [&b"foobar"[..], b"fo", b"", b".", b"bar/foo", b"Foo"] {
            assert_eq!(within(b"foo", path), None, "{path:?}");
        }
        assert_eq!(within(b"a/b", b"a"), None);
    }

    #[test]
    fn no_link_leads_out_of_the_limiting_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("box/in")).unwrap();
        std::fs::create_dir(dir.path().join("other")).unwrap();
        symlink("../other", dir.path().join("box/out")).unwrap();
        symlink("other", dir.path().join("alias")).unwrap();
        let root = beneath::open_directory(dir.path()).unwrap();
        let asked = |scope: &[u8], path: &[u8]| Asked::within(&names(scope), names(path), Mounts::Kept).unwrap();
        let inside = asked(b"box", b"box/in");
        let base = inside.make_base(root.as_fd()).unwrap();
        beneath::resolve_directory(base.as_fd(), &inside.below).unwrap();
        assert!(beneath::resolve_directory(base.as_fd(), &names(b"out")).is_err());
        assert!(asked(b"alias", b"alias").make_base(root.as_fd()).is_err());
        assert!(asked(b"alias", b"alias/x").open_base(root.as_fd(), false).is_err());
        asked(b"new/deep", b"new/deep").make_base(root.as_fd()).unwrap();
        assert!(dir.path().join("new/deep").is_dir());
        // The limiting path itself: as one object from its parent, or its contents.
        assert_eq!(asked(b"box", b"box").open_base(root.as_fd(), false).unwrap().1, b"box");
        assert_eq!(asked(b"box", b"box/").open_base(root.as_fd(), true).unwrap().1, b"./");
        assert_eq!(asked(b"", b"").open_base(root.as_fd(), false).unwrap().1, b"");
    }
    #[test]
    fn what_a_path_leads_to_stays_below_the_limiting_path_which_is_a_root() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("box/in")).unwrap();
        symlink("../..", dir.path().join("box/out")).unwrap();
        let root = beneath::open_directory(dir.path()).unwrap();
        let asked = |path: &[u8]| Asked::within(&names(b"box"), names(path), Mounts::Kept).unwrap();
        for follows in [false, true] {
            let target = asked(b"box").target(root.as_fd(), follows).unwrap();
            assert!(target.is_root && target.hides_staging && target.changeable("remove").is_err());
        }
        assert!(asked(b"box/in").target(root.as_fd(), false).unwrap().changeable("remove").is_ok());
        assert!(asked(b"box/out").target(root.as_fd(), true).is_err());
        assert!(asked(b"box/out/box").target(root.as_fd(), false).is_err());
        assert!(asked(b"box/new/deep").new_target(root.as_fd(), false).is_err());
        asked(b"box/new/deep").new_target(root.as_fd(), true).unwrap();
        assert!(dir.path().join("box/new").is_dir() && !dir.path().join("box/new/deep").exists());
        assert!(asked(b"box/out/x/y").new_target(root.as_fd(), true).is_err());
    }
}
