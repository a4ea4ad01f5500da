//! What a file system is and has: kind, mount, free room, the process's umask.

use crate::{Abilities, Error, Order, Result, SinkFacts};
use os::fs::fstatfs;
use rustix::fs::{AtFlags, StatxFlags, fstat, fstatvfs, makedev, statx};
use rustix::io::Errno;
use rustix::system::uname;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

pub use crate::sink::STAGING_PREFIX;

/// File systems by the magic number of statfs(2).
const KINDS: [(i64, &str); 14] = [
    (0xef53, "ext4"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x6969, "nfs"),
    (0x0bd0_0bd0, "lustre"),
    (0x6573_5546, "fuse"),
    (0x2fc1_2fc1, "zfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x4750_4653, "gpfs"),
    (0x00c3_6400, "ceph"),
    (0x794c_7630, "overlay"),
];

pub fn file_system(directory: BorrowedFd<'_>) -> &'static str {
    let Ok(facts) = fstatfs(directory) else { return "unknown" };
    let magic = facts.f_type & 0xffff_ffff;
    KINDS.iter().find(|(number, _)| *number == magic).map_or("unknown", |(_, name)| name)
}

pub fn is_memory_backed(directory: BorrowedFd<'_>) -> bool {
    matches!(file_system(directory), "tmpfs" | "ramfs")
}

/// A lock that one process has is seen by all that see the file system: no other host mounts it, or it is none at all.
pub fn has_locks_for_all(directory: BorrowedFd<'_>) -> bool {
    is_memory_backed(directory) || has_local_journal(directory) || file_system(directory) == "overlay"
}

/// One `syncfs` waits for the local file system's journal; on the others it may wait for the whole cluster.
pub fn has_local_journal(directory: BorrowedFd<'_>) -> bool {
    matches!(file_system(directory), "ext4" | "xfs" | "btrfs" | "zfs")
}

/// The device of a directory, and the number of the mount that it is reached through: 0 where the kernel does not tell (before
/// Linux 5.8). Nothing is renamed from one mount to another, be they of the same device.
pub fn mount_of(directory: BorrowedFd<'_>) -> rustix::io::Result<(u64, u64)> {
    match statx(directory, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
        Ok(found) => {
            let is_told = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
            let device = makedev(found.stx_dev_major, found.stx_dev_minor);
            Ok((device, if is_told { found.stx_mnt_id } else { 0 }))
        }
        Err(Errno::NOSYS) => Ok((fstat(directory)?.st_dev, 0)),
        Err(e) => Err(e),
    }
}

/// The wait for a whole file system says so when content could not be written. Before Linux 5.8 it never does (syncfs(2)).
pub fn syncfs_tells() -> bool {
    static TELLS: OnceLock<bool> = OnceLock::new();
    *TELLS.get_or_init(|| is_since(&uname().release().to_string_lossy(), (5, 8)))
}

/// Whether a kernel of this release is not older than a version. One that does not say counts as older.
fn is_since(release: &str, version: (u32, u32)) -> bool {
    let number = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok();
    let mut parts = release.splitn(3, '.').map(number);
    parts.next().flatten().zip(parts.next().flatten()).is_some_and(|found| found >= version)
}

pub fn sink_facts(directory: BorrowedFd<'_>) -> Result<SinkFacts> {
    let room = fstatvfs(directory).map_err(|e| Error::new("look at file system", b"", e))?;
    Ok(SinkFacts {
        file_system: file_system(directory),
        is_memory_backed: is_memory_backed(directory),
        cannot_sync: false,
        // ramfs, and file systems in user space that do not care, report no blocks at all.
        free_bytes: if room.f_blocks > 0 { room.f_bavail.saturating_mul(room.f_frsize) } else { u64::MAX },
        // btrfs and some network file systems report no inodes at all.
        free_inodes: (room.f_files > 0).then_some(room.f_favail),
        order: Order::Any,
        part_rule: None,
        shares_on: shares_on(directory),
        confirms: false,
        can: Abilities::ALL,
    })
}

/// The umask, read without the set-and-restore of umask(2), which would race with other threads.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
    })
}

/// The device of a directory on which files may share blocks with others of the same device; asking for one of them tells for
/// sure.
fn shares_on(directory: BorrowedFd<'_>) -> Option<u64> {
    let may_share = matches!(file_system(directory), "btrfs" | "xfs");
    may_share.then(|| fstat(directory).map(|status| status.st_dev).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels_are_compared_as_numbers() {
        for release in ["5.8.0", "5.8", "5.8-rc1", "5.10.0-28-amd64", "6.1+", "6.18.44-fc-v657", "10.0.1"] {
            assert!(is_since(release, (5, 8)), "{release}");
        }
        for release in ["5.7.19", "4.18.0-553.el8_10.x86_64", "5.4.0-150-generic", "3.10.0", "5", "", "x.9", "5.x"] {
            assert!(!is_since(release, (5, 8)), "{release:?}");
        }
    }
}
