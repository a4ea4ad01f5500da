//! The calls to storage of a simulated host: told to its disk before and after, or answered by it.
//!
//! The calls go to real directories; what a disk adds is failure, and the memory of what was not synced.

use super::scheduler;
use rustix::fs::{FallocateFlags, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// What a call on attributes is about.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    Open(BorrowedFd<'a>),
    /// A name in a directory; a link there is not followed.
    Named(BorrowedFd<'a>, &'a CStr),
}

/// One call, before it is done.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Open {
        directory: BorrowedFd<'a>,
        name: &'a CStr,
        flags: OFlags,
        mode: Mode,
    },
    MakeDirectory {
        directory: BorrowedFd<'a>,
        name: &'a CStr,
    },
    MakeLink {
        target: &'a CStr,
        directory: BorrowedFd<'a>,
        name: &'a CStr,
    },
    /// A FIFO, socket or device.
    MakeNode {
        directory: BorrowedFd<'a>,
        name: &'a CStr,
    },
    /// Another name for the file that `name` in `from` is; for the file `from` itself where `name` is empty.
    HardLink {
        from: BorrowedFd<'a>,
        name: &'a CStr,
        to: BorrowedFd<'a>,
        new_name: &'a CStr,
    },
    Unlink {
        directory: BorrowedFd<'a>,
        name: &'a CStr,
    },
    Rename {
        from: BorrowedFd<'a>,
        name: &'a CStr,
        to: BorrowedFd<'a>,
        new_name: &'a CStr,
    },
    /// `offset` is `None` for an append.
    Write {
        file: BorrowedFd<'a>,
        offset: Option<u64>,
        bytes: &'a [u8],
    },
    Read {
        file: BorrowedFd<'a>,
    },
    Truncate {
        file: BorrowedFd<'a>,
        length: u64,
    },
    Reserve {
        file: BorrowedFd<'a>,
        length: u64,
    },
    Mode {
        object: Object<'a>,
        mode: Mode,
    },
    Owner {
        object: Object<'a>,
        owner: Option<Uid>,
        group: Option<Gid>,
    },
    Times {
        object: Object<'a>,
        times: &'a Timestamps,
    },
    /// Without a value: it is removed.
    Attribute {
        file: BorrowedFd<'a>,
        name: &'a CStr,
        value: Option<&'a [u8]>,
    },
    Sync {
        file: BorrowedFd<'a>,
    },
    SyncData {
        file: BorrowedFd<'a>,
    },
    SyncAll {
        directory: BorrowedFd<'a>,
    },
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    Go,
    Fail(Errno),
    /// A write of so many bytes only.
    Short(usize),
}

pub trait Disk: Send + Sync {
    fn before(&self, call: &Call<'_>) -> Verdict;

    /// The call succeeded. `opened` is what an open returned.
    fn after(&self, call: &Call<'_>, opened: Option<BorrowedFd<'_>>);

    /// The number by which statfs(2) tells file systems apart.
    fn magic(&self) -> i64;
}

/// How many bytes of a write may be written; all, for other calls.
fn permitted(call: &Call<'_>) -> Result<usize, Errno> {
    let Some(context) = scheduler::current() else { return Ok(usize::MAX) };
    let Some(disk) = context.host.disk() else { return Ok(usize::MAX) };
    if !context.host.is_alive() {
        return Err(Errno::IO);
    }
    match disk.before(call) {
        // The disk may have stopped its host at this very call.
        _ if !context.host.is_alive() => Err(Errno::IO),
        Verdict::Go => Ok(usize::MAX),
        Verdict::Short(at_most) => Ok(at_most),
        Verdict::Fail(errno) => Err(errno),
    }
}

fn succeeded(call: &Call<'_>, opened: Option<BorrowedFd<'_>>) {
    if let Some(context) = scheduler::current()
        && let Some(disk) = context.host.disk()
    {
        disk.after(call, opened);
    }
}

fn asked<T>(call: &Call<'_>, run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    permitted(call)?;
    let done = run()?;
    succeeded(call, None);
    Ok(done)
}

/// The calls under rustix's names and signatures.
pub mod calls {
    use super::*;
    use rustix::fs::{AtFlags, Dev, FileType, RenameFlags, StatFs, XattrFlags};
    use rustix::path::Arg;
    use std::os::fd::{AsFd, OwnedFd};

    pub fn openat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            let call = Call::Open { directory, name, flags, mode };
            permitted(&call)?;
            let opened = rustix::fs::openat(directory, name, flags, mode)?;
            succeeded(&call, Some(opened.as_fd()));
            Ok(opened)
        })
    }

    pub fn mkdirat<P: Arg, Fd: AsFd>(directory: Fd, path: P, mode: Mode) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            asked(&Call::MakeDirectory { directory, name }, || rustix::fs::mkdirat(directory, name, mode))
        })
    }

    pub fn symlinkat<P: Arg, Q: Arg, Fd: AsFd>(target: P, directory: Fd, path: Q) -> Result<(), Errno> {
        target.into_with_c_str(|target| {
            path.into_with_c_str(|name| {
                let directory = directory.as_fd();
                let call = Call::MakeLink { target, directory, name };
                asked(&call, || rustix::fs::symlinkat(target, directory, name))
            })
        })
    }

    pub fn mknodat<P: Arg, Fd: AsFd>(
        directory: Fd,
        path: P,
        kind: FileType,
        mode: Mode,
        device: Dev,
    ) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            let call = Call::MakeNode { directory, name };
            asked(&call, || rustix::fs::mknodat(directory, name, kind, mode, device))
        })
    }

    pub fn linkat<P: Arg, Q: Arg, A: AsFd, B: AsFd>(
        from: A,
        path: P,
        to: B,
        new_path: Q,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            new_path.into_with_c_str(|new_name| {
                let (from, to) = (from.as_fd(), to.as_fd());
                let call = Call::HardLink { from, name, to, new_name };
                asked(&call, || rustix::fs::linkat(from, name, to, new_name, flags))
            })
        })
    }

    pub fn unlinkat<P: Arg, Fd: AsFd>(directory: Fd, path: P, flags: AtFlags) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            asked(&Call::Unlink { directory, name }, || rustix::fs::unlinkat(directory, name, flags))
        })
    }

    pub fn renameat_with<P: Arg, Q: Arg, A: AsFd, B: AsFd>(
        from: A,
        path: P,
        to: B,
        new_path: Q,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            new_path.into_with_c_str(|new_name| {
                let (from, to) = (from.as_fd(), to.as_fd());
                let call = Call::Rename { from, name, to, new_name };
                asked(&call, || rustix::fs::renameat_with(from, name, to, new_name, flags))
            })
        })
    }

    pub fn write<Fd: AsFd>(file: Fd, bytes: &[u8]) -> Result<usize, Errno> {
        let file = file.as_fd();
        written(file, None, bytes, |bytes| rustix::io::write(file, bytes))
    }

    pub fn pwrite<Fd: AsFd>(file: Fd, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let file = file.as_fd();
        written(file, Some(offset), bytes, |bytes| rustix::io::pwrite(file, bytes, offset))
    }

    /// The disk hears of what was written, not of what was asked for.
    fn written(
        file: BorrowedFd<'_>,
        offset: Option<u64>,
        bytes: &[u8],
        run: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let at_most = permitted(&Call::Write { file, offset, bytes })?;
        let count = run(&bytes[..bytes.len().min(at_most)])?;
        succeeded(&Call::Write { file, offset, bytes: &bytes[..count] }, None);
        Ok(count)
    }

    pub fn read<Fd: AsFd>(file: Fd, buffer: &mut [u8]) -> Result<usize, Errno> {
        let file = file.as_fd();
        asked(&Call::Read { file }, || rustix::io::read(file, buffer))
    }

    pub fn pread<Fd: AsFd>(file: Fd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let file = file.as_fd();
        asked(&Call::Read { file }, || rustix::io::pread(file, buffer, offset))
    }

    pub fn ftruncate<Fd: AsFd>(file: Fd, length: u64) -> Result<(), Errno> {
        let file = file.as_fd();
        asked(&Call::Truncate { file, length }, || rustix::fs::ftruncate(file, length))
    }

    pub fn fallocate<Fd: AsFd>(file: Fd, flags: FallocateFlags, offset: u64, length: u64) -> Result<(), Errno> {
        let file = file.as_fd();
        let call = Call::Reserve { file, length: offset + length };
        asked(&call, || rustix::fs::fallocate(file, flags, offset, length))
    }

    /// A simulated disk sees every byte that is written: it has no copies that pass it by.
    pub fn copy_file_range<In: AsFd, Out: AsFd>(
        from: In,
        from_offset: Option<&mut u64>,
        to: Out,
        to_offset: Option<&mut u64>,
        length: usize,
    ) -> Result<usize, Errno> {
        refused_by_a_disk()?;
        rustix::fs::copy_file_range(from, from_offset, to, to_offset, length)
    }

    /// As `copy_file_range`.
    pub fn ioctl_ficlone<To: AsFd, From: AsFd>(to: To, from: From) -> Result<(), Errno> {
        refused_by_a_disk()?;
        rustix::fs::ioctl_ficlone(to, from)
    }

    fn refused_by_a_disk() -> Result<(), Errno> {
        let has_disk = scheduler::current().is_some_and(|context| context.host.disk().is_some());
        if has_disk { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    pub fn fchmod<Fd: AsFd>(file: Fd, mode: Mode) -> Result<(), Errno> {
        let file = file.as_fd();
        asked(&Call::Mode { object: Object::Open(file), mode }, || rustix::fs::fchmod(file, mode))
    }

    pub fn chmodat<P: Arg, Fd: AsFd>(directory: Fd, path: P, mode: Mode, flags: AtFlags) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            let call = Call::Mode { object: Object::Named(directory, name), mode };
            asked(&call, || rustix::fs::chmodat(directory, name, mode, flags))
        })
    }

    pub fn fchown<Fd: AsFd>(file: Fd, owner: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        let file = file.as_fd();
        let call = Call::Owner { object: Object::Open(file), owner, group };
        asked(&call, || rustix::fs::fchown(file, owner, group))
    }

    pub fn chownat<P: Arg, Fd: AsFd>(
        directory: Fd,
        path: P,
        owner: Option<Uid>,
        group: Option<Gid>,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            let call = Call::Owner { object: Object::Named(directory, name), owner, group };
            asked(&call, || rustix::fs::chownat(directory, name, owner, group, flags))
        })
    }

    pub fn futimens<Fd: AsFd>(file: Fd, times: &Timestamps) -> Result<(), Errno> {
        let file = file.as_fd();
        asked(&Call::Times { object: Object::Open(file), times }, || rustix::fs::futimens(file, times))
    }

    pub fn utimensat<P: Arg, Fd: AsFd>(
        directory: Fd,
        path: P,
        times: &Timestamps,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        path.into_with_c_str(|name| {
            let directory = directory.as_fd();
            let call = Call::Times { object: Object::Named(directory, name), times };
            asked(&call, || rustix::fs::utimensat(directory, name, times, flags))
        })
    }

    pub fn fsetxattr<P: Arg, Fd: AsFd>(file: Fd, name: P, value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        name.into_with_c_str(|name| {
            let file = file.as_fd();
            let call = Call::Attribute { file, name, value: Some(value) };
            asked(&call, || rustix::fs::fsetxattr(file, name, value, flags))
        })
    }

    pub fn fremovexattr<P: Arg, Fd: AsFd>(file: Fd, name: P) -> Result<(), Errno> {
        name.into_with_c_str(|name| {
            let file = file.as_fd();
            let call = Call::Attribute { file, name, value: None };
            asked(&call, || rustix::fs::fremovexattr(file, name))
        })
    }

    pub fn fsync<Fd: AsFd>(file: Fd) -> Result<(), Errno> {
        let file = file.as_fd();
        asked(&Call::Sync { file }, || rustix::fs::fsync(file))
    }

    pub fn fdatasync<Fd: AsFd>(file: Fd) -> Result<(), Errno> {
        let file = file.as_fd();
        asked(&Call::SyncData { file }, || rustix::fs::fdatasync(file))
    }

    pub fn syncfs<Fd: AsFd>(directory: Fd) -> Result<(), Errno> {
        let directory = directory.as_fd();
        asked(&Call::SyncAll { directory }, || rustix::fs::syncfs(directory))
    }

    pub fn fstatfs<Fd: AsFd>(directory: Fd) -> Result<StatFs, Errno> {
        let mut facts = rustix::fs::fstatfs(directory)?;
        if let Some(disk) = scheduler::current().and_then(|context| context.host.disk().cloned()) {
            facts.f_type = disk.magic() as _;
        }
        Ok(facts)
    }
}
