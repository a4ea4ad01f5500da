//! The kernel's requests: what each asks for, which latency it has, and its reply.
//!
//! Nothing but dispatch; the length comes from the number of requests and of their parameters.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::attributes::{attributes, placeholder};
use super::pass_through::{Change, PassThrough, backing_flags};
use super::tree::Place;

/// How long the kernel may answer look-ups itself where nobody else changes the backing directory meanwhile.
const ATTRIBUTES_VALID: Duration = Duration::from_secs(1);

/// The largest transfer the kernel makes one request of.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Asynchronous requests the kernel keeps in flight. Its default of 12 would hide depth beyond that.
const BACKGROUND_REQUESTS_MAX: u16 = 512;

/// Numbers are never given twice, so that one generation serves.
const GENERATION: Generation = Generation(0);

impl PassThrough {
    fn attributes_valid(&self) -> Duration {
        // Names that differ in case alone are several to the kernel: under one of them it would keep a file that is gone.
        let is_kept = !self.profile.is_shared && !self.profile.folds_case;
        if is_kept { ATTRIBUTES_VALID } else { Duration::ZERO }
    }
}

impl Filesystem for PassThrough {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is an optimisation that an old kernel may lack. Without the first, direct I/O with a queue is done one
        // request after the other.
        for capability in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
        ] {
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS_MAX);
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.enter(parent.0, name) {
            Ok(attributes) => reply.entry(&self.attributes_valid(), &attributes, GENERATION),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn forget(&self, _request: &Request, node: INodeNo, count: u64) {
        self.tree.forget(node.0, count);
    }

    fn getattr(&self, _request: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let stat = match handle.and_then(|handle| self.file(handle).ok()) {
            Some(file) => rustix::fs::fstat(file.as_fd()),
            None => self.tree.place(node.0).and_then(|place| place.stat()),
        };
        match stat {
            Ok(stat) => reply.attr(&self.attributes_valid(), &attributes(node.0, &stat)),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _attributes_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, accessed, modified };
        match self.change_attributes(node.0, handle, &change) {
            Ok(attributes) => reply.attr(&self.attributes_valid(), &attributes),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        let place = self.tree.place(node.0);
        match place.and_then(|place| rustix::fs::readlinkat(place.dir(), place.path(), Vec::new())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let arrived = Instant::now();
        let made = self.make(request, (parent.0, name), mode, |place| {
            let (kind, mode) = (rustix::fs::FileType::from_raw_mode(mode), Mode::from_raw_mode(mode & 0o7777));
            rustix::fs::mknodat(place.dir(), place.path(), kind, mode, device.into())
        });
        self.reply_entry(arrived, made, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let arrived = Instant::now();
        let made = self.make(request, (parent.0, name), mode, |place| {
            rustix::fs::mkdirat(place.dir(), place.path(), Mode::from_raw_mode(mode & 0o7777))
        });
        self.reply_entry(arrived, made, reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let arrived = Instant::now();
        let done = self.remove(parent, name, AtFlags::empty());
        self.reply_empty(arrived, self.profile.create_latency, done, reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let arrived = Instant::now();
        let done = self.remove(parent, name, AtFlags::REMOVEDIR);
        self.reply_empty(arrived, self.profile.create_latency, done, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let arrived = Instant::now();
        let make = |place: &Place| rustix::fs::symlinkat(target, place.dir(), place.path());
        let made = self.make(request, (parent.0, name), 0o777, make);
        self.reply_entry(arrived, made, reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let arrived = Instant::now();
        let done = self.move_entry((parent.0, name), (new_parent.0, new_name), flags);
        self.reply_empty(arrived, self.profile.create_latency, done, reply);
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let arrived = Instant::now();
        let make = |old: Place| {
            let new = self.tree.child(parent.0, name)?;
            // What is to be followed is the name of an open file below `/proc`.
            let follow = if old.flags().is_empty() { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
            rustix::fs::linkat(old.dir(), old.path(), new.dir(), new.path(), follow)?;
            self.enter_at(&new, parent.0)
        };
        self.reply_entry(arrived, self.tree.place(node.0).and_then(make), reply);
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.tree.place(node.0).and_then(|place| place.open(backing_flags(flags.0))) {
            Ok(file) => reply.opened(self.keep_file(node.0, file), self.open_flags()),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let arrived = Instant::now();
        let make = |place: Place| {
            let existed = place.stat().is_ok();
            let flags_there = OFlags::from_bits_retain(flags as u32) & (OFlags::EXCL | OFlags::TRUNC) | OFlags::CREATE;
            let file = place.create(backing_flags(flags) | flags_there, Mode::from_raw_mode(mode & 0o7777))?;
            let attributes = match existed {
                true => self.enter_at(&place, parent.0)?,
                false => self.adopt(request, &place, parent.0, mode)?,
            };
            Ok((self.keep_file(attributes.ino.0, file), attributes))
        };
        let made = self.tree.child(parent.0, name).and_then(make);
        let open_flags = self.open_flags();
        let valid = self.attributes_valid();
        self.clock.reply_after(arrived, self.profile.create_latency, 0, move || match made {
            Ok((handle, attributes)) => reply.created(&valid, &attributes, GENERATION, handle, open_flags),
            Err(error) => reply.error(fuse_errno(error)),
        });
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let arrived = Instant::now();
        let mut bytes = vec![0; size.min(TRANSFER_BYTES_MAX) as usize];
        let read = self.file(handle).and_then(|file| rustix::io::pread(file.as_fd(), &mut bytes[..], offset));
        let passed = *read.as_ref().unwrap_or(&0);
        self.clock.reply_after(arrived, self.profile.read_latency, passed, move || match read {
            Ok(len) => reply.data(&bytes[..len]),
            Err(error) => reply.error(fuse_errno(error)),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let arrived = Instant::now();
        let written = self.file(handle).and_then(|file| rustix::io::pwrite(file.as_fd(), data, offset));
        let passed = *written.as_ref().unwrap_or(&0);
        self.clock.reply_after(arrived, self.profile.write_latency, passed, move || match written {
            // At most the request's length, which is a u32.
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(fuse_errno(error)),
        });
    }

    fn flush(&self, _request: &Request, _node: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(handle);
        reply.ok();
    }

    fn fsync(&self, _request: &Request, _node: INodeNo, handle: FileHandle, is_data_only: bool, reply: ReplyEmpty) {
        let arrived = Instant::now();
        let done = self.file(handle).and_then(|file| match is_data_only {
            true => rustix::fs::fdatasync(file.as_fd()),
            false => rustix::fs::fsync(file.as_fd()),
        });
        self.reply_empty(arrived, self.profile.write_latency, done, reply);
    }

    fn opendir(&self, _request: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.tree.place(node.0).and_then(|place| place.open(OFlags::RDONLY | OFlags::DIRECTORY)) {
            Ok(directory) => reply.opened(self.keep_directory(directory), FopenFlags::empty()),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn readdir(&self, _request: &Request, node: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        // Inode numbers of a listing are not used by the kernel; an entry gets its own when it is looked up.
        match self.list(handle, offset, |name, kind, next| reply.add(node, next, kind, name)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let directory = self.tree.directory(node.0);
        let listed = self.list(handle, offset, |name, kind, next| {
            let is_own = name == "." || name == "..";
            let attributes = match &directory {
                _ if is_own => Ok(placeholder(node.0, kind)),
                Ok(directory) => self.enter_at(&self.tree.child_in(directory, name), node.0),
                Err(error) => Err(*error),
            };
            // Removed since the directory was read.
            let Ok(attributes) = attributes else { return false };
            let is_full = reply.add(attributes.ino, next, name, &self.attributes_valid(), &attributes, GENERATION);
            if is_full && !is_own {
                self.tree.forget(attributes.ino.0, 1);
            }
            is_full
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn releasedir(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.close(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _request: &Request, _node: INodeNo, handle: FileHandle, _data: bool, reply: ReplyEmpty) {
        let arrived = Instant::now();
        let done = self.sync_directory(handle);
        self.reply_empty(arrived, self.profile.write_latency, done, reply);
    }

    fn statfs(&self, _request: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match rustix::fs::fstatvfs(self.tree.root()) {
            Ok(all) => reply.statfs(
                all.f_blocks,
                all.f_bfree,
                all.f_bavail,
                all.f_files,
                all.f_ffree,
                u32::try_from(all.f_bsize).unwrap_or(4096),
                u32::try_from(all.f_namemax).unwrap_or(255),
                u32::try_from(all.f_frsize).unwrap_or(4096),
            ),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let arrived = Instant::now();
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let done = self.file(handle).and_then(|file| rustix::fs::fallocate(file.as_fd(), mode, offset, length));
        self.reply_empty(arrived, self.profile.write_latency, done, reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // The kernel asks for these two only; it works out all other positions.
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let wanted = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(offset)) => Ok(SeekFrom::Data(offset)),
            (SEEK_HOLE, Ok(offset)) => Ok(SeekFrom::Hole(offset)),
            _ => Err(Errno::INVAL),
        };
        match wanted.and_then(|to| rustix::fs::seek(self.file(handle)?.as_fd(), to)) {
            Ok(position) => reply.offset(position as i64),
            Err(error) => reply.error(fuse_errno(error)),
        }
    }
}

impl PassThrough {
    /// Answers with the entry that `made` came to, when a change of names has taken its time.
    fn reply_entry(&self, arrived: Instant, made: Result<FileAttr, Errno>, reply: ReplyEntry) {
        let valid = self.attributes_valid();
        self.clock.reply_after(arrived, self.profile.create_latency, 0, move || match made {
            Ok(attributes) => reply.entry(&valid, &attributes, GENERATION),
            Err(error) => reply.error(fuse_errno(error)),
        });
    }

    fn reply_empty(&self, arrived: Instant, latency: Duration, done: Result<(), Errno>, reply: ReplyEmpty) {
        self.clock.reply_after(arrived, latency, 0, move || match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(fuse_errno(error)),
        });
    }
}

fn fuse_errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}
