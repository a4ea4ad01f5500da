//! A file system of its own for each run: made in an image file, mounted where deliveries go, gone with its owner.
//!
//! Why: creating files on a used ext4 is up to six times slower for minutes after something was deleted there, because it
//! skips the inodes that were freed lately one by one. Runs of different tools compare only from equal beginnings.
//!
//! Invariants:
//! - The image has no name as soon as it is open, and its mount exists only in this thread's mount namespace and those of
//!   its children: when they end, however they end, the kernel removes both.
//! - Its blocks are written once before the first run, so that no run pays for their allocation below.
//!
//! Not here: how fast the storage below is (`storage` measures that).

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use model::quantity::ByteCount;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use crate::dataset::Free;
use crate::error::{Error, Kind, Result};
use crate::tool::found_program;

/// File systems that a race can be delivered to, with the package that makes each and what keeps it from making a part of
/// itself only later, while a run is measured.
pub const FILE_SYSTEMS: [(&str, &str, &[&str]); 3] = [
    ("ext4", "e2fsprogs", &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]),
    ("xfs", "xfsprogs", &["-q", "-f", "-K"]),
    ("btrfs", "btrfs-progs", &["-q", "-f", "-K"]),
];
/// Journals, inode tables and what xfs and btrfs insist on.
const OVERHEAD_BYTES: u64 = 512 << 20;
const BLOCK_BYTES: usize = 4 << 20;
const BUSY_TRIES: u32 = 40;
const BUSY_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// One of `FILE_SYSTEMS`.
    pub kind: String,
    /// Where the image lies while it is in use: on the storage that is to be measured.
    pub dir: PathBuf,
}

#[derive(Debug)]
pub struct Image {
    kind: String,
    file: File,
    mountpoint: PathBuf,
    is_mounted: bool,
}

impl Image {
    /// Makes room for `bytes` of deliveries in `options.dir` and takes this thread to a mount namespace of its own.
    pub fn create(options: &Options, bytes: u64, mountpoint: &Path) -> Result<Image> {
        make_command(&options.kind)?;
        let bytes = (bytes + OVERHEAD_BYTES).next_multiple_of(BLOCK_BYTES as u64);
        let free = Free::at(&options.dir)?.bytes;
        if bytes > free {
            let cause =
                format!("needs {}, {} free; --image-dir names another place", ByteCount(bytes), ByteCount(free));
            return Err(Error::new(Kind::NoSpace, "make an image in", options.dir.display(), cause));
        }
        lab::unshare_mounts().map_err(Error::io("mount at", mountpoint))?;
        let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
        mount_change("/", private).map_err(Error::io("make private", "/"))?;
        Ok(Image {
            kind: options.kind.clone(),
            file: written(&options.dir, bytes)?,
            mountpoint: mountpoint.to_owned(),
            is_mounted: false,
        })
    }

    /// Replaces the file system by a new, empty one, open to everybody. Nobody may use the old one any more.
    pub fn renew(&mut self) -> Result<()> {
        self.unmount()?;
        let image = format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        run(make_command(&self.kind)?.arg(&image))?;
        run(Command::new("mount").args(["-t", &self.kind, "-o", "loop"]).arg(&image).arg(&self.mountpoint))?;
        self.is_mounted = true;
        // A server may write as another user.
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&self.mountpoint, open).map_err(Error::io("open up", &self.mountpoint))
    }

    fn unmount(&mut self) -> Result<()> {
        if std::mem::take(&mut self.is_mounted) {
            self.unmount_idle().map_err(Error::io("unmount", &self.mountpoint))?;
        }
        Ok(())
    }

    /// A process that is just being started holds what is open here until it runs its program.
    fn unmount_idle(&self) -> rustix::io::Result<()> {
        for _ in 0..BUSY_TRIES {
            match unmount(&self.mountpoint, UnmountFlags::empty()) {
                Err(Errno::BUSY) => std::thread::sleep(BUSY_PAUSE),
                ended => return ended,
            }
        }
        unmount(&self.mountpoint, UnmountFlags::empty())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = unmount(&self.mountpoint, UnmountFlags::DETACH);
        }
    }
}

/// A file of `bytes` without a name, every block of it written.
fn written(dir: &Path, bytes: u64) -> Result<File> {
    let path = dir.join(format!("thalweg-image-{}", std::process::id()));
    let open = File::options().read(true).write(true).create_new(true).open(&path);
    let mut file = open.map_err(Error::io("create", &path))?;
    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    let block = vec![0; BLOCK_BYTES];
    let write = (0..bytes / BLOCK_BYTES as u64).try_for_each(|_| file.write_all(&block));
    write.and_then(|()| file.rewind()).and_then(|()| file.sync_all()).map_err(Error::io("write", &path))?;
    Ok(file)
}

/// `mkfs` of this kind, without the place.
fn make_command(kind: &str) -> Result<Command> {
    let Some((name, package, settings)) = FILE_SYSTEMS.iter().find(|(name, ..)| *name == kind) else {
        let known = FILE_SYSTEMS.map(|(name, ..)| name).join(", ");
        return Err(Error::usage(format!("file system {kind:?}"), format!("choose one of {known}")));
    };
    let mut command = Command::new(found_program(&format!("mkfs.{name}"), package)?);
    command.args(*settings);
    Ok(command)
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(Error::io("run", &program))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::new(Kind::Failed, "run", program, String::from_utf8_lossy(&output.stderr).trim())),
    }
}
