//! What the mount does to the backing files: one function for each thing a request may ask for.
//!
//! Invariants:
//! - Work is done at once and only its reply waits, so that a write need not be copied to outlive its request. The user
//!   sees no difference: a file system may be ahead of its replies.
//! - Locks here are held for a look at a table only; the listing of a directory alone is held while it is read.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{FileAttr, FileHandle, FileType, FopenFlags, INodeNo, RenameFlags, Request, TimeOrNow};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::Errno;

use super::attributes::{attributes, kind_from, kind_of, time_to_set};
use super::clock::Clock;
use super::profile::StorageProfile;
use super::tree::{Place, Tree};

pub(super) struct PassThrough {
    pub(super) tree: Tree,
    pub(super) profile: StorageProfile,
    pub(super) clock: Clock,
    handles: Mutex<Handles>,
    is_root: bool,
}

/// What is open. Held for look-ups in the table only.
#[derive(Default)]
struct Handles {
    by_number: HashMap<u64, Handle>,
    last_number: u64,
}

enum Handle {
    File { node: u64, file: Arc<OwnedFd> },
    Directory(Arc<Mutex<Listing>>),
}

/// A directory as it was when it was last read from the start.
struct Listing {
    directory: OwnedFd,
    entries: Vec<(OsString, FileType)>,
}

impl PassThrough {
    pub(super) fn new(backing: &Path, profile: StorageProfile) -> std::io::Result<PassThrough> {
        Ok(PassThrough {
            tree: Tree::new(backing, profile.folds_case)?,
            profile,
            clock: Clock::start(profile.bytes_per_second, profile.stall)?,
            handles: Mutex::default(),
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, handle: Handle) -> FileHandle {
        let mut handles = self.handles();
        handles.last_number += 1;
        let number = handles.last_number;
        handles.by_number.insert(number, handle);
        FileHandle(number)
    }

    pub(super) fn file(&self, handle: FileHandle) -> Result<Arc<OwnedFd>, Errno> {
        match self.handles().by_number.get(&handle.0) {
            Some(Handle::File { file, .. }) => Ok(Arc::clone(file)),
            _ => Err(Errno::BADF),
        }
    }

    fn listing(&self, handle: FileHandle) -> Result<Arc<Mutex<Listing>>, Errno> {
        match self.handles().by_number.get(&handle.0) {
            Some(Handle::Directory(listing)) => Ok(Arc::clone(listing)),
            _ => Err(Errno::BADF),
        }
    }

    pub(super) fn keep_file(&self, node: u64, file: OwnedFd) -> FileHandle {
        let file = Arc::new(file);
        self.tree.opened(node, &file);
        self.keep(Handle::File { node, file })
    }

    pub(super) fn keep_directory(&self, directory: OwnedFd) -> FileHandle {
        self.keep(Handle::Directory(Arc::new(Mutex::new(Listing { directory, entries: Vec::new() }))))
    }

    pub(super) fn close(&self, handle: FileHandle) {
        let closed = self.handles().by_number.remove(&handle.0);
        if let Some(Handle::File { node, file }) = closed {
            self.tree.closed(node, &file);
        }
    }

    pub(super) fn sync_directory(&self, handle: FileHandle) -> Result<(), Errno> {
        let listing = self.listing(handle)?;
        rustix::fs::fsync(&listing.lock().unwrap_or_else(PoisonError::into_inner).directory)
    }

    pub(super) fn open_flags(&self) -> FopenFlags {
        match self.profile.page_cache {
            true => FopenFlags::FOPEN_KEEP_CACHE,
            false => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        }
    }

    /// The attributes of what `name` stands for, with one more reference for the kernel.
    pub(super) fn enter(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        self.enter_at(&self.tree.child(parent, name)?, parent)
    }

    /// The same of a place in that directory.
    pub(super) fn enter_at(&self, place: &Place, parent: u64) -> Result<FileAttr, Errno> {
        let stat = place.stat()?;
        Ok(attributes(self.tree.enter(parent, place.name(), &stat), &stat))
    }

    /// Makes something new, and gives it to its user.
    pub(super) fn make(
        &self,
        request: &Request,
        (parent, name): (u64, &OsStr),
        mode: u32,
        make: impl FnOnce(&Place) -> Result<(), Errno>,
    ) -> Result<FileAttr, Errno> {
        let place = self.tree.child(parent, name)?;
        make(&place)?;
        self.adopt(request, &place, parent, mode)
    }

    /// Gives a new file the mode and owner its user asked for: the umask and the user of this process don't count.
    pub(super) fn adopt(&self, request: &Request, place: &Place, parent: u64, mode: u32) -> Result<FileAttr, Errno> {
        let stat = place.stat()?;
        let parent_mode = rustix::fs::fstat(place.dir())?.st_mode;
        if self.is_root {
            let uid = (stat.st_uid != request.uid()).then(|| Uid::from_raw(request.uid()));
            let is_group_inherited = parent_mode & Mode::SGID.as_raw_mode() != 0;
            let gid = (stat.st_gid != request.gid() && !is_group_inherited).then(|| Gid::from_raw(request.gid()));
            if uid.is_some() || gid.is_some() {
                rustix::fs::chownat(place.dir(), place.path(), uid, gid, place.flags())?;
            }
        }
        let is_symlink = kind_of(&stat) == FileType::Symlink;
        let wanted = mode & 0o7777 | stat.st_mode & Mode::SGID.as_raw_mode();
        if !is_symlink && stat.st_mode & 0o7777 != wanted {
            place.chmod(Mode::from_raw_mode(wanted))?;
        }
        self.enter_at(place, parent)
    }

    pub(super) fn remove(&self, parent: INodeNo, name: &OsStr, flags: AtFlags) -> Result<(), Errno> {
        let place = self.tree.child(parent.0, name)?;
        let was = place.stat()?;
        rustix::fs::unlinkat(place.dir(), place.path(), flags)?;
        self.tree.remove(parent.0, name, &was);
        Ok(())
    }

    pub(super) fn move_entry(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: RenameFlags) -> Result<(), Errno> {
        let (old, new) = (self.tree.child(from.0, from.1)?, self.tree.child(to.0, to.1)?);
        let moved = old.stat()?;
        let replaced = new.stat().ok();
        let flags_there = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        rustix::fs::renameat_with(old.dir(), old.path(), new.dir(), new.path(), flags_there)?;
        // Two names of one inode: the kernel leaves both alone.
        if replaced.as_ref().is_some_and(|there| (there.st_dev, there.st_ino) == (moved.st_dev, moved.st_ino)) {
            return Ok(());
        }
        match replaced {
            Some(there) if flags.contains(RenameFlags::RENAME_EXCHANGE) => self.tree.rename(&there, from.0, old.name()),
            Some(there) => self.tree.remove(to.0, to.1, &there),
            None => {}
        }
        self.tree.rename(&moved, to.0, new.name());
        Ok(())
    }

    pub(super) fn change_attributes(
        &self,
        node: u64,
        handle: Option<FileHandle>,
        change: &Change,
    ) -> Result<FileAttr, Errno> {
        let place = self.tree.place(node)?;
        if let Some(mode) = change.mode {
            place.chmod(Mode::from_raw_mode(mode & 0o7777))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(place.dir(), place.path(), uid, gid, place.flags())?;
        }
        if let Some(size) = change.size {
            match handle {
                Some(handle) => rustix::fs::ftruncate(self.file(handle)?.as_fd(), size)?,
                None => rustix::fs::ftruncate(place.open(OFlags::WRONLY)?, size)?,
            }
        }
        if change.accessed.is_some() || change.modified.is_some() {
            let times = Timestamps {
                last_access: time_to_set(change.accessed),
                last_modification: time_to_set(change.modified),
            };
            rustix::fs::utimensat(place.dir(), place.path(), &times, place.flags())?;
        }
        Ok(attributes(node, &place.stat()?))
    }

    /// Calls `add` with every entry after `offset` and the offset after it, until it says that it is full.
    pub(super) fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(&OsStr, FileType, u64) -> bool,
    ) -> Result<(), Errno> {
        let listing = self.listing(handle)?;
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            listing.entries = read_directory(&listing.directory)?;
        }
        for (index, (name, kind)) in listing.entries.iter().enumerate().skip(usize::try_from(offset).unwrap_or(0)) {
            if add(name, *kind, index as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}

/// What `setattr` asks for.
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) accessed: Option<TimeOrNow>,
    pub(super) modified: Option<TimeOrNow>,
}

fn read_directory(directory: &OwnedFd) -> Result<Vec<(OsString, FileType)>, Errno> {
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        entries.push((name, kind_from(entry.file_type())));
    }
    Ok(entries)
}

/// The flags a backing file is opened with. Direct I/O and appending are the kernel's business above us: it sends
/// offsets, and our buffers are not aligned.
pub(super) fn backing_flags(flags: i32) -> OFlags {
    // Access modes are no bit set: comparing is the only way.
    match flags as u32 & OFlags::RWMODE.bits() {
        mode if mode == OFlags::WRONLY.bits() => OFlags::WRONLY,
        mode if mode == OFlags::RDWR.bits() => OFlags::RDWR,
        _ => OFlags::RDONLY,
    }
}
