//! The calls under rustix's names and signatures, told to the disk of a simulated host before and after.

use super::disk::{Call, Object, Verdict};
use super::scheduler;
use rustix::fs::{AtFlags, Dev, FileType, RenameFlags, StatFs, XattrFlags};
use rustix::fs::{FallocateFlags, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::Errno;
use rustix::path::Arg;
use std::os::fd::BorrowedFd;
use std::os::fd::{AsFd, OwnedFd};

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

pub fn mknodat<P: Arg, Fd: AsFd>(directory: Fd, path: P, kind: FileType, mode: Mode, device: Dev) -> Result<(), Errno> {
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

pub fn utimensat<P: Arg, Fd: AsFd>(directory: Fd, path: P, times: &Timestamps, flags: AtFlags) -> Result<(), Errno> {
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
