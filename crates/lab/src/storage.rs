//! Slow storage: a real file system whose operations take as long as the profile says.
//!
//! A FUSE pass-through over a backing directory, for tests and for people who want to know how a job would run on
//! storage they do not have yet. Latency is added to every operation of its class; operations overlap, as they do on
//! real storage with a latency, so that depth pays; the byte rate is shared by all of them.
//!
//! Invariants:
//! - The delay of an operation never holds up another one: replies wait in one timer queue, nobody sleeps in a handler.
//! - Unless the page cache is asked for, every read and write of the user becomes an operation here.
//! - Dropping unmounts; mounting over what a killed run left behind removes that first.
//!
//! Not here: faults (errors, lost writes), latency of look-ups and attributes, extended attributes. Locks are the kernel's
//! own and hold within one mount.

mod profile;
mod clock;
mod tree;
mod attributes;
mod pass_through;
mod requests;

pub use profile::StorageProfile;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use pass_through::PassThrough;

/// A mounted slow storage; dropping it unmounts.
pub struct SlowStorage {
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

impl SlowStorage {
    /// Mounts the files of `backing` at `mountpoint`, slowed down to `profile`.
    ///
    /// Needs `/dev/fuse`, and root or `fusermount3`. Mounted by root it is open to every user, and what a user makes
    /// belongs to that user; mounted by anyone else it is theirs alone.
    pub fn mount(backing: &Path, mountpoint: &Path, profile: StorageProfile) -> io::Result<SlowStorage> {
        clean_stale(mountpoint)?;
        let mountpoint = mountpoint.canonicalize()?;
        let files = PassThrough::new(backing, profile)?;
        let mut config = Config::default();
        config.mount_options =
            vec![MountOption::FSName("thalweg-lab".to_owned()), MountOption::DefaultPermissions, MountOption::NoAtime];
        config.acl = if rustix::process::geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
        // Handlers do nothing but calls on the backing files; a few threads keep a slow sync from stopping the rest.
        config.n_threads = Some(4);
        let session = fuser::spawn_mount(files, &mountpoint, &config)?;
        Ok(SlowStorage { mountpoint, session: Some(session) })
    }

    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Unmounts; afterwards the backing directory holds everything that was acknowledged.
    ///
    /// Files still open keep the storage alive, out of sight, until they are closed.
    pub fn unmount(mut self) -> io::Result<()> {
        self.detach()
    }

    fn detach(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        match session.umount_and_join() {
            Ok(()) => Ok(()),
            // Busy. The threads end with the last open file.
            Err(_) => take_out_of_sight(&self.mountpoint),
        }
    }
}

impl Drop for SlowStorage {
    fn drop(&mut self) {
        let _ = self.detach();
    }
}

/// Removes the mount of a process that is gone from `mountpoint`, if there is one.
///
/// A live mount is left alone.
pub fn clean_stale(mountpoint: &Path) -> io::Result<()> {
    // Several runs may have been killed one above the other; more than a few is not our doing.
    for _ in 0..16 {
        match rustix::fs::stat(mountpoint) {
            Err(Errno::NOTCONN) => take_out_of_sight(mountpoint)?,
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Unmounts even what is in use, as root or through the set-uid program that lets users unmount their own.
fn take_out_of_sight(mountpoint: &Path) -> io::Result<()> {
    match unmount(mountpoint, UnmountFlags::DETACH) {
        Err(Errno::PERM) => match Command::new("fusermount3").args(["-u", "-z", "--"]).arg(mountpoint).output()? {
            output if output.status.success() => Ok(()),
            _ => Err(Errno::PERM.into()),
        },
        unmounted => Ok(unmounted?),
    }
}

/// Whether this host can mount a slow storage at all.
pub fn is_available() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

#[cfg(test)]
mod tests;
