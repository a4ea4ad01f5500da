//! Which backing file an inode number of the kernel stands for.
//!
//! An inode is known by its directory and its name, as keeping a descriptor for each would exhaust them with the first
//! large tree; once its name is gone it is reached through an open file, or not at all.
//!
//! Invariants:
//! - A number is given to one backing inode only, and never again to another. An inode keeps it though the kernel has forgotten it for
//!   want of memory: to programs it is the same file, as in the file systems that this stands for.
//! - No path leaves the backing directory, whatever others put into it meanwhile: names come from the kernel one
//!   component at a time, no link on the way to a directory is followed (`directory_below`), and the last name, on
//!   which calls act from there, is never followed if it is a symbolic link.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// The kernel's number of the root directory.
pub(super) const ROOT: u64 = 1;

pub(super) struct Tree {
    root: Arc<OwnedFd>,
    /// Held for look-ups in the table only, never during a call on a file.
    nodes: Mutex<Nodes>,
    folds_case: bool,
}

struct Nodes {
    by_number: HashMap<u64, Node>,
    by_inode: HashMap<(u64, u64), u64>,
    last_number: u64,
}

struct Node {
    parent: u64,
    name: OsString,
    /// How many references the kernel holds.
    lookups: u64,
    /// Its last known name is gone, and may belong to another file by now.
    is_nameless: bool,
    open: Vec<Arc<OwnedFd>>,
}

/// How to reach a backing file.
pub(super) struct Place {
    anchor: Anchor,
    path: PathBuf,
}

enum Anchor {
    /// `path` is a name in this directory, or "." for the root itself.
    Directory(Arc<OwnedFd>),
    /// `path` is the name of this open file below `/proc`.
    Open(#[expect(dead_code, reason = "keeps the descriptor open")] Arc<OwnedFd>),
}

impl Place {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        match &self.anchor {
            Anchor::Directory(directory) => directory.as_fd(),
            Anchor::Open(_) => CWD,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As it is spelled in its directory.
    pub(super) fn name(&self) -> &OsStr {
        self.path.as_os_str()
    }

    pub(super) fn flags(&self) -> AtFlags {
        match self.anchor {
            Anchor::Directory(_) => AtFlags::SYMLINK_NOFOLLOW,
            Anchor::Open(_) => AtFlags::empty(),
        }
    }

    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(self.dir(), &self.path, self.flags())
    }

    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.create(flags, Mode::empty())
    }

    pub(super) fn create(&self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let no_follow = match self.anchor {
            Anchor::Directory(_) => OFlags::NOFOLLOW,
            Anchor::Open(_) => OFlags::empty(),
        };
        rustix::fs::openat(self.dir(), &self.path, flags | no_follow | OFlags::CLOEXEC, mode)
    }

    /// Changes the mode of what is there, never of what a link there leads to: that call has no flag against it.
    pub(super) fn chmod(&self, mode: Mode) -> Result<(), Errno> {
        let opened = match self.anchor {
            Anchor::Directory(_) => Some(self.open(OFlags::PATH)?),
            Anchor::Open(_) => None,
        };
        let path = opened.as_ref().map_or_else(|| self.path.clone(), path_of);
        rustix::fs::chmodat(CWD, path, mode, AtFlags::empty())
    }
}

/// The name of an open file below `/proc`.
fn path_of(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opens a directory for calls that start from it. No link on the way is followed.
fn directory_below(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, path, DIRECTORY, Mode::empty(), resolve) {
        // Before Linux 5.6: one name after the other.
        Err(Errno::NOSYS) => {
            let mut directory = rustix::fs::openat(root, ".", DIRECTORY, Mode::empty())?;
            for name in path {
                directory = rustix::fs::openat(&directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
            }
            Ok(directory)
        }
        opened => opened,
    }
}

impl Tree {
    pub(super) fn new(backing: &Path, folds_case: bool) -> Result<Tree, Errno> {
        let root = rustix::fs::open(backing, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let inode = inode_of(&rustix::fs::fstat(&root)?);
        let node = Node { parent: ROOT, name: OsString::new(), lookups: 1, is_nameless: false, open: Vec::new() };
        let nodes = Nodes {
            by_number: HashMap::from([(ROOT, node)]),
            by_inode: HashMap::from([(inode, ROOT)]),
            last_number: ROOT,
        };
        Ok(Tree { root: Arc::new(root), nodes: Mutex::new(nodes), folds_case })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    pub(super) fn place(&self, number: u64) -> Result<Place, Errno> {
        let (parent, name) = {
            let nodes = self.lock();
            let node = nodes.by_number.get(&number).ok_or(Errno::STALE)?;
            if node.is_nameless {
                let open = node.open.last().ok_or(Errno::STALE)?;
                return Ok(Place { anchor: Anchor::Open(Arc::clone(open)), path: path_of(open) });
            }
            (node.parent, node.name.clone())
        };
        if number == ROOT {
            return Ok(Place { anchor: Anchor::Directory(Arc::clone(&self.root)), path: PathBuf::from(".") });
        }
        Ok(Place { anchor: Anchor::Directory(self.directory(parent)?), path: name.into() })
    }

    pub(super) fn child(&self, parent: u64, name: &OsStr) -> Result<Place, Errno> {
        Ok(self.child_in(&self.directory(parent)?, name))
    }

    /// The same for several names of one directory.
    pub(super) fn child_in(&self, directory: &Arc<OwnedFd>, name: &OsStr) -> Place {
        let path = PathBuf::from(&*self.spelled(directory, name));
        Place { anchor: Anchor::Directory(Arc::clone(directory)), path }
    }

    /// Where calls on the names of a directory start from: the root itself, or the one call that leads below it.
    pub(super) fn directory(&self, number: u64) -> Result<Arc<OwnedFd>, Errno> {
        if number == ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let path = self.lock().path(number)?;
        directory_below(&self.root, &path).map(Arc::new)
    }

    /// The name as it is spelled in its directory: itself, unless upper and lower case are one here.
    fn spelled<'n>(&self, directory: &OwnedFd, name: &'n OsStr) -> Cow<'n, OsStr> {
        let there = || -> Result<Option<OsString>, Errno> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
            for found in rustix::fs::Dir::new(directory)? {
                let found = OsStr::from_bytes(found?.file_name().to_bytes()).to_owned();
                if found.eq_ignore_ascii_case(name) {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        };
        let found = if self.folds_case { there() } else { Ok(None) };
        found.ok().flatten().map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// Gives the kernel one more reference to the inode found under a name, as it is spelled; returns its number.
    pub(super) fn enter(&self, parent: u64, name: &OsStr, stat: &Stat) -> u64 {
        let mut nodes = self.lock();
        let inode = inode_of(stat);
        let number = match nodes.by_inode.get(&inode) {
            Some(&number) => number,
            None => {
                nodes.last_number += 1;
                nodes.last_number
            }
        };
        nodes.by_inode.insert(inode, number);
        let node = nodes.by_number.entry(number).or_insert_with(|| Node {
            parent,
            name: OsString::new(),
            lookups: 0,
            is_nameless: false,
            open: Vec::new(),
        });
        node.lookups += 1;
        if number != ROOT {
            node.parent = parent;
            node.name = name.to_owned();
            node.is_nameless = false;
        }
        number
    }

    pub(super) fn forget(&self, number: u64, count: u64) {
        let mut nodes = self.lock();
        let Some(node) = nodes.by_number.get_mut(&number).filter(|_| number != ROOT) else { return };
        node.lookups = node.lookups.saturating_sub(count);
        if node.lookups == 0 {
            nodes.by_number.remove(&number);
        }
    }

    /// Takes note that a name is gone; `was` is what it stood for.
    pub(super) fn remove(&self, parent: u64, name: &OsStr, was: &Stat) {
        let mut nodes = self.lock();
        let inode = inode_of(was);
        let Some(&number) = nodes.by_inode.get(&inode) else { return };
        if let Some(node) = nodes.by_number.get_mut(&number)
            && node.parent == parent
            && (node.name == name || self.folds_case && node.name.eq_ignore_ascii_case(name))
        {
            node.is_nameless = true;
        }
        let is_directory = rustix::fs::FileType::from_raw_mode(was.st_mode) == rustix::fs::FileType::Directory;
        if is_directory || was.st_nlink <= 1 {
            // The backing file system may give the inode to a new file, which must get a number of its own.
            nodes.by_inode.remove(&inode);
        }
    }

    /// Takes note that `what` has a new name, as it is spelled.
    pub(super) fn rename(&self, what: &Stat, parent: u64, name: &OsStr) {
        let mut nodes = self.lock();
        let Some(&number) = nodes.by_inode.get(&inode_of(what)) else { return };
        if let Some(node) = nodes.by_number.get_mut(&number) {
            node.parent = parent;
            node.name = name.to_owned();
        }
    }

    pub(super) fn opened(&self, number: u64, file: &Arc<OwnedFd>) {
        if let Some(node) = self.lock().by_number.get_mut(&number) {
            node.open.push(Arc::clone(file));
        }
    }

    pub(super) fn closed(&self, number: u64, file: &Arc<OwnedFd>) {
        if let Some(node) = self.lock().by_number.get_mut(&number) {
            node.open.retain(|open| !Arc::ptr_eq(open, file));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Nodes> {
        // A panic under the lock leaves a table that is at worst too full.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Nodes {
    /// The path of a directory below the root; "." for the root itself.
    fn path(&self, number: u64) -> Result<PathBuf, Errno> {
        let mut names = Vec::new();
        let mut at = number;
        while at != ROOT {
            let node = self.by_number.get(&at).ok_or(Errno::STALE)?;
            // No path the kernel accepts has more components; more would be a loop.
            if node.is_nameless || names.len() > 4096 {
                return Err(Errno::STALE);
            }
            names.push(node.name.as_os_str());
            at = node.parent;
        }
        match names.is_empty() {
            true => Ok(PathBuf::from(".")),
            false => Ok(names.iter().rev().collect()),
        }
    }
}

fn inode_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
