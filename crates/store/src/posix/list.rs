//! Listing a directory tree for the sender: one directory at a time, streamed, parents before children.
//!
//! Invariants: nothing is followed out of a directory; special files, our own staging, and what is out of bounds (mounts,
//! sets of others) are reported, not entered; memory is bounded by the directories found and by `SORT_MAX` names, whatever the size of one directory.

use super::attributes;
use super::facts::{self, STAGING_PREFIX};
use crate::source::{DirectoryKey, End, Found, SourceObject};
use crate::{Error, Result};
use model::fidelity::Warnings;
use model::{Entry, Failure, FailureKind, Fidelity, Generation, Kind, Name, Node, ObjectId, Timestamp, VersionToken};
use rustix::fs::{AtFlags, FileType, RawDir, Stat, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// Names sorted by inode before they are looked at: on disks the inode table is then read in order. Larger
/// directories are sorted piece by piece.
const SORT_MAX: usize = 16_384;
const LIST_BUFFER_BYTES: usize = 64 << 10;

/// Goes through one directory and hands each entry's name and status to `visit`, which returns false to stop.
pub fn read_directory(
    directory: BorrowedFd<'_>,
    visit: &mut dyn FnMut(&Name, std::result::Result<Stat, Errno>) -> bool,
) -> std::io::Result<()> {
    // A descriptor of its own: the offset of a shared one belongs to someone else.
    let listing = rustix::fs::openat(
        directory,
        c".",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let is_sorted = !facts::is_memory_backed(listing.as_fd());
    let mut buffer = vec![MaybeUninit::uninit(); LIST_BUFFER_BYTES];
    let mut raw = RawDir::new(&listing, &mut buffer);
    let mut names: Vec<(u64, Name)> = Vec::new();
    loop {
        let next = raw.next().transpose()?;
        let is_end = next.is_none();
        if let Some(found) = next
            && let Ok(name) = Name::new(found.file_name().to_bytes())
        {
            names.push((found.ino(), name));
        }
        if names.len() == SORT_MAX || is_end || raw.is_buffer_empty() {
            if is_sorted {
                names.sort_unstable_by_key(|(inode, _)| *inode);
            }
            for (_, name) in names.drain(..) {
                let status = statat(&listing, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                if !visit(&name, status) {
                    return Ok(());
                }
            }
        }
        if is_end {
            return Ok(());
        }
    }
}

/// Turns a status into an entry, or says why the object is not copied. `missed` hears of what is not kept of it.
pub fn entry_from(
    (directory, name): (BorrowedFd<'_>, &Name),
    (id, parent): (ObjectId, ObjectId),
    status: &Stat,
    fidelity: Fidelity,
    missed: &mut dyn FnMut(&str),
) -> Result<Entry> {
    let kind = match FileType::from_raw_mode(status.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => {
            let target = readlinkat(directory, name.as_c_str(), Vec::new())
                .map_err(|e| Error::new("read symbolic link", name.as_bytes(), e))?;
            Kind::Symlink(target.into_bytes().into())
        }
        FileType::Fifo if fidelity.specials => Kind::Node(Node::Fifo),
        FileType::Socket if fidelity.specials => Kind::Node(Node::Socket),
        FileType::CharacterDevice if fidelity.devices => Kind::Node(Node::CharacterDevice(status.st_rdev)),
        FileType::BlockDevice if fidelity.devices => Kind::Node(Node::BlockDevice(status.st_rdev)),
        other => {
            let what = match other {
                FileType::Fifo => "a FIFO is not copied",
                FileType::Socket => "a socket is not copied",
                FileType::CharacterDevice | FileType::BlockDevice => "a device is not copied",
                _ => "a file of an unknown kind is not copied",
            };
            return Err(Error::of_kind(FailureKind::Special, "skip", name.as_bytes(), what));
        }
    };
    let (mode, generation) = (status.st_mode & 0o7777, generation_of(status));
    let read = || Arc::new(attributes::read((directory, name), status, &kind, fidelity, missed));
    let attributes = fidelity.has_attributes().then(read);
    Ok(Entry { id, parent, name: name.clone(), kind, mode, generation, attributes })
}

/// When a name in a directory was last made or removed; `None` where that cannot be learnt.
pub fn date_of(directory: BorrowedFd<'_>) -> Option<Timestamp> {
    fstat(directory).ok().map(|status| generation_of(&status).modified)
}

pub fn generation_of(status: &Stat) -> Generation {
    Generation {
        size_bytes: status.st_size as u64,
        modified: Timestamp { seconds: status.st_mtime, nanoseconds: status.st_mtime_nsec as u32 },
        version: VersionToken::new(
            Timestamp { seconds: status.st_ctime, nanoseconds: status.st_ctime_nsec as u32 },
            status.st_ino,
            status.st_dev,
        ),
    }
}

/// A directory waiting to be listed.
pub struct Pending {
    /// How the source opens it.
    pub key: DirectoryKey,
    /// Its number in the walk; what the receiver knows it as, where nothing is left out.
    pub id: ObjectId,
}

/// Who hears of what a walk comes upon.
pub trait Visitor {
    /// Whether an object of this name is looked at, and entered if it is a directory.
    fn takes(&mut self, at: &Pending, name: &Name, is_directory: bool) -> bool;

    /// Hears of what was taken. False to stop.
    fn found(&mut self, found: Found) -> bool;
}

/// A walk through a tree, directory by directory. Ids count up from 1 by what the visitor takes.
pub struct Walk<'a> {
    pub tree: &'a super::tree::Tree,
    pub next_id: u64,
    pub pending: Vec<Pending>,
    /// What is read of each object beside the ordinary, and what of that was not.
    pub fidelity: Fidelity,
    pub missed: &'a Mutex<Warnings>,
}

impl Walk<'_> {
    /// Lists one directory, or only these names in it: hands its entries to the visitor and keeps its subdirectories
    /// for later. Returns false when the visitor asked to stop.
    pub fn list(&mut self, at: &Pending, names: Option<&[Name]>, visitor: &mut dyn Visitor) -> bool {
        let directory = match self.tree.open(at.key.0) {
            Ok(directory) => directory,
            Err(e) => return visitor.found(self.failed(at, b"", Error::new("open directory", b"", e))),
        };
        let mut goes_on = true;
        let mut found_directories = Vec::new();
        let mut look = |name: &Name, status: std::result::Result<Stat, Errno>| {
            goes_on = match status {
                // Gone between listing and looking: it was never part of this copy.
                Err(Errno::NOENT) if names.is_none() => true,
                Err(Errno::NOENT) => {
                    let path = self.tree.path(at.key.0, name.as_bytes());
                    let message = "it does not exist".to_owned();
                    visitor.found(Found::Failed(Failure { path, kind: FailureKind::NotFound, message }))
                }
                Err(e) => visitor.found(self.failed(at, name.as_bytes(), Error::new("look at", b"", e))),
                Ok(status) => self.visit(at, directory.as_fd(), (name, &status), &mut found_directories, visitor),
            };
            goes_on
        };
        let listed = match names {
            None => read_directory(directory.as_fd(), &mut look),
            Some(names) => {
                let status = |name: &Name| statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                let _ = names.iter().all(|name| look(name, status(name)));
                Ok(())
            }
        };
        self.pending.extend(found_directories.into_iter().rev());
        if let Err(e) = listed {
            goes_on = visitor.found(self.failed(at, b"", Error::new("read directory", b"", e)));
        }
        goes_on
    }

    pub(super) fn visit(
        &mut self,
        at: &Pending,
        directory: BorrowedFd<'_>,
        (name, status): (&Name, &Stat),
        found_directories: &mut Vec<Pending>,
        visitor: &mut dyn Visitor,
    ) -> bool {
        let is_directory = FileType::from_raw_mode(status.st_mode).is_dir();
        if name.as_bytes().starts_with(STAGING_PREFIX) && is_directory {
            let path = self.tree.path(at.key.0, name.as_bytes());
            let why = "skip: staging of running transfers is not copied".to_owned();
            return visitor.found(Found::Failed(Failure { path, kind: FailureKind::Special, message: why }));
        }
        if !visitor.takes(at, name, is_directory) {
            return true;
        }
        let kept_out = || self.tree.bounds.kept_out(directory, name, status.st_dev);
        if let Some(why) = is_directory.then(kept_out).flatten() {
            // As what is skipped, so that `--delete` spares what the destination has of it.
            let path = self.tree.path(at.key.0, name.as_bytes());
            let message = format!("skip: {why}");
            return visitor.found(Found::Failed(Failure { path, kind: FailureKind::Special, message }));
        }
        let id = ObjectId(self.next_id);
        let (tree, missed) = (self.tree, self.missed);
        let mut miss = |text: &str| {
            missed.lock().unwrap().note(text, &|| tree.path(at.key.0, name.as_bytes()));
        };
        let found = match entry_from((directory, name), (id, at.id), status, self.fidelity, &mut miss) {
            Ok(entry) => {
                self.next_id += 1;
                if entry.kind == Kind::Directory {
                    self.tree.insert(id.0, at.key.0, name.clone(), false);
                    found_directories.push(Pending { key: DirectoryKey(id.0), id });
                }
                Found::Object(SourceObject { entry, directory: at.key, end: End::Known })
            }
            Err(e) => self.failed(at, name.as_bytes(), e),
        };
        visitor.found(found)
    }

    pub(super) fn failed(&self, at: &Pending, name: &[u8], error: Error) -> Found {
        let path = self.tree.path(at.key.0, name);
        Found::Failed(Failure { path, kind: error.kind, message: error.message() })
    }
}

/// File system and inode.
pub fn inode_of(generation: &Generation) -> (u64, u64) {
    (generation.version.storage(), generation.version.object())
}

/// How long ago a file changed, by the clock of this host.
pub fn age_of(status: &Stat) -> Duration {
    let Timestamp { seconds, nanoseconds } = generation_of(status).version.changed();
    let changed =
        SystemTime::UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), nanoseconds.min(999_999_999));
    SystemTime::now().duration_since(changed).unwrap_or_default()
}
