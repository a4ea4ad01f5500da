//! Attributes in the kernel's terms and in those of the backing files.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::fs::{Stat, Timespec, UTIME_NOW, UTIME_OMIT};

pub(super) fn attributes(node: u64, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: time_of(stat.st_atime, stat.st_atime_nsec),
        mtime: time_of(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time_of(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind_of(stat),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: u32::try_from(stat.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// Attributes of "." and "..", which the kernel does not look at in a listing.
pub(super) fn placeholder(node: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    kind_from(rustix::fs::FileType::from_raw_mode(stat.st_mode))
}

pub(super) fn kind_from(kind: rustix::fs::FileType) -> FileType {
    match kind {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time_of(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds))).unwrap_or(UNIX_EPOCH)
}

pub(super) fn time_to_set(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() },
            // Before 1970 the fraction still counts upwards.
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                let nanoseconds = (1_000_000_000 - i64::from(before.subsec_nanos())) % 1_000_000_000;
                Timespec { tv_sec: -(before.as_secs() as i64) - borrow, tv_nsec: nanoseconds }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fraction() {
        for (seconds, nanoseconds) in [(-2i64, 750_000_000u32), (-1, 0), (0, 1), (1_700_000_000, 999_999_999)] {
            let time = time_of(seconds, nanoseconds.into());
            let set = time_to_set(Some(TimeOrNow::SpecificTime(time)));
            assert_eq!((set.tv_sec, set.tv_nsec as u32), (seconds, nanoseconds));
        }
    }
}
