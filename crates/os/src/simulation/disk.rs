//! What the disk of a simulated host hears of calls to storage, and what it may do to them.
//!
//! The calls go to real directories (`calls`); what a disk adds is failure, and the memory of what was not synced.

use rustix::fs::{Gid, Mode, OFlags, Timestamps, Uid};
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
