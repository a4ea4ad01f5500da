//! Directories that nothing can be renamed into from staging above them, though they are on the same mount: those of another quota
//! project (XFS, ext4, Lustre), another fileset (GPFS), another quota realm (CephFS). Only trying tells; a flag that directories of
//! projects have says when it is worth it before anything is written.
//!
//! Invariants:
//! - Such a directory has staging of its own, beside the topmost one that is as far away: one for all that is below it.
//! - What was staged too far away is copied there, and is durable before it has its name.
//!
//! Not here: other mounts, which are known beforehand (`shared`).

use super::content::write_all_at;
use super::facts::mount_of;
use super::shared::{OPEN_DIRECTORY, Shared, not_for_slices, times_of};
use super::staging::{Staging, has_journal, random};
use super::wait::once;
use super::{sparse, within};
use crate::sink::PublishRule;
use crate::{Error, Result};
use model::{Entry, ObjectId};
use os::fs::{chmodat, fchmod, fsync, ftruncate, futimens, openat, pread, renameat_with, unlinkat};
use rustix::fs::{AtFlags, IFlags, Mode, OFlags, RenameFlags, fstat, ioctl_getflags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const BLOCK_BYTES: usize = 1 << 20;
const OURS: Mode = Mode::from_raw_mode(0o600);

/// Whether an object did not get its name because of what separates it from there.
pub(super) fn is_apart(e: &Error) -> bool {
    e.source.raw_os_error() == Some(Errno::XDEV.raw_os_error())
}

/// What is made in a directory gets the directory's quota project.
fn is_of_project(directory: BorrowedFd<'_>) -> bool {
    ioctl_getflags(directory).is_ok_and(|flags| flags.contains(IFlags::PROJECT_INHERIT))
}

/// A name that nobody has in a directory of staging; whatever has it is swept.
pub(super) fn free_name(kind: &str) -> CString {
    CString::new(format!("{kind}-{:016x}", random())).expect("no NUL")
}

impl Shared {
    /// Gives the staged file `name` in `from`, which is in `staging`, its final name.
    pub fn publish_file(
        &self,
        (staging, from, name): (&Arc<Staging>, BorrowedFd<'_>, &CStr),
        directory: BorrowedFd<'_>,
        entry: &Entry,
        rule: PublishRule,
    ) -> Result<()> {
        let e = match self.rename(from, name, directory, entry, rule) {
            Err(e) if is_apart(&e) => e,
            renamed => return renamed,
        };
        let Some(nearer) = self.nearer(staging, entry.parent)? else { return Err(e) };
        let lane = self.link_lane(&nearer)?;
        let (at, copy) = (lane.directory.directory.as_fd(), free_name("copy"));
        let copied = self.copy_staged((from, name), (at, &copy), &nearer, entry);
        let copied = copied.map_err(|e| {
            let path = self.tree.path(entry.parent.0, entry.name.as_bytes());
            Error::new("write file (to its quota project or fileset)", path, e)
        });
        // Where one lies in another, it may have come no farther than the outer one.
        let published = copied.and_then(|()| self.publish_file((&nearer, at, copy.as_c_str()), directory, entry, rule));
        let needless = if published.is_ok() { (from, name) } else { (at, copy.as_c_str()) };
        let _ = unlinkat(needless.0, needless.1, AtFlags::empty());
        published
    }

    /// The staging for a new large file, which would have to be written again if it were found out only in the end how far it is.
    pub fn staging_for_large(&self, entry: &Entry, stem: &str, directory: &Arc<OwnedFd>) -> Result<Arc<Staging>> {
        let staging = self.staging_for(entry.parent, directory)?;
        let is_near = !is_of_project(directory.as_fd()) || is_of_project(staging.directory.as_fd());
        if is_near || has_journal(&staging, stem) {
            return Ok(staging);
        }
        Ok(self.nearer(&staging, entry.parent).ok().flatten().unwrap_or(staging))
    }

    /// Staging from which can be renamed into a directory what could not be from `tried`. None where it would be no better.
    pub fn nearer(&self, tried: &Arc<Staging>, parent: ObjectId) -> Result<Option<Arc<Staging>>> {
        let failed = |e: io::Error| Error::new(OPEN_DIRECTORY, self.tree.path(parent.0, b""), e);
        if self.slice.get().is_some() {
            return Err(not_for_slices());
        }
        // Whoever waits here finds what was found meanwhile.
        let _search = self.apart.search.lock().unwrap();
        let directory = self.tree.open(parent.0).map_err(failed)?;
        let known = self.staging_for(parent, &directory)?;
        if !Arc::ptr_eq(&known, tried) {
            return Ok(Some(known));
        }
        let mount = mount_of(directory.as_fd()).map_err(|e| failed(e.into()))?;
        let is_here = |at: u64| self.tree.open(at).is_ok_and(|at| mount_of(at.as_fd()) == Ok(mount));
        let (mut way, mut next) = (Vec::new(), Some(parent.0));
        while let Some(at) = next.filter(|at| !self.apart.contains(*at) && is_here(*at)) {
            way.push(at);
            next = self.tree.place(at).map(|(above, _)| above);
        }
        let mut nearest = known;
        for at in way.into_iter().rev() {
            if self.is_beyond(&nearest, at) {
                self.apart.add(at);
                nearest = self.staging_for(ObjectId(at), &self.tree.open(at).map_err(failed)?)?;
            }
        }
        Ok(Some(nearest).filter(|nearest| !Arc::ptr_eq(nearest, tried)))
    }

    /// Nothing can be renamed from a staging to one beside what is in this directory: tried where nobody looks.
    fn is_beyond(&self, staging: &Staging, directory: u64) -> bool {
        let opened = self.tree.open(directory);
        let Some(beside) = opened.ok().and_then(|opened| Staging::open(opened, &self.host, None).ok()) else {
            return false;
        };
        let (name, places) = (free_name("probe"), [&staging.directory, &beside.directory]);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let renamed = openat(places[0], &name, flags, OURS)
            .and_then(|_| renameat_with(places[0], &name, places[1], &name, RenameFlags::empty()));
        for place in places {
            let _ = unlinkat(place, &name, AtFlags::empty());
        }
        beside.remove_if_empty();
        renamed == Err(Errno::XDEV)
    }

    fn copy_staged(
        &self,
        (from, name): (BorrowedFd<'_>, &CStr),
        (at, copy): (BorrowedFd<'_>, &CStr),
        staging: &Staging,
        entry: &Entry,
    ) -> std::result::Result<(), Errno> {
        // It may have a mode by which its owner may not read it.
        let _ = chmodat(from, name, OURS, AtFlags::empty());
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let staged = openat(from, name, flags | OFlags::RDONLY, Mode::empty())?;
        let file = openat(at, copy, flags | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, OURS)?;
        self.give(file.as_fd(), staging, entry, OURS.as_raw_mode());
        if !within::share(staged.as_fd(), file.as_fd()) {
            self.copy_bytes(staged.as_fd(), file.as_fd())?;
        }
        fchmod(&file, Mode::from_raw_mode(self.mode_of(entry)))?;
        self.keep(file.as_fd(), entry, false);
        futimens(&file, &times_of(entry.generation.modified))?;
        once(|| fsync(&file))
    }

    fn copy_bytes(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> std::result::Result<(), Errno> {
        let status = fstat(from)?;
        let size_bytes = status.st_size as u64;
        let is_sparse =
            self.keeper.fidelity.sparse || within::footing_of(status.st_blocks as u64, size_bytes).has_holes;
        let mut block = vec![0; BLOCK_BYTES];
        let mut at = 0;
        while at < size_bytes {
            let bytes = match pread(from, &mut block[..], at) {
                Ok(0) => return Err(Errno::IO),
                Ok(read) => &block[..read],
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            match is_sparse {
                true => sparse::write_at(to, bytes, at)?,
                false => write_all_at(to, bytes, at)?,
            }
            at += bytes.len() as u64;
        }
        ftruncate(to, size_bytes)
    }
}
