//! The system calls that touch storage: which argument says where, and what kind of thing a call does.
//!
//! `Areas` tells the places of a trial apart, so that a fault hits the destination and not a socket or a library.
//! Not here: stopping programs (see `sys`), and what to do at a stop.

use crate::check::STAGING_PREFIX;
use crate::sys::{Moment, Stop, text_at};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Changes what storage holds or shows.
    Change,
    /// Waits for storage, or takes a lock in it.
    Sync,
    /// Opens for reading, or asks for a status.
    Look,
    Read,
}

/// Which arguments of a call say what it works on.
#[derive(Clone, Copy, Debug)]
enum Place {
    Descriptor(usize),
    Path(usize),
    /// A directory's descriptor, and a path below it.
    Below(usize, usize),
    Nowhere,
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub name: &'static str,
    pub number: i64,
    kind: Kind,
    place: Place,
}

const fn call(name: &'static str, number: i64, kind: Kind, place: Place) -> Call {
    Call { name, number, kind, place }
}

use Kind::{Change, Look, Read, Sync};
use Place::{Below, Descriptor};

/// Hands operations to the kernel and waits for them.
const RING: &str = "io_uring_enter";

/// A call with two names is known by the second one, where something appears.
pub const CALLS: &[Call] = &[
    call("openat", libc::SYS_openat, Look, Below(0, 1)),
    call("openat2", libc::SYS_openat2, Look, Below(0, 1)),
    call("write", libc::SYS_write, Change, Descriptor(0)),
    call("pwrite64", libc::SYS_pwrite64, Change, Descriptor(0)),
    call("writev", libc::SYS_writev, Change, Descriptor(0)),
    call("ftruncate", libc::SYS_ftruncate, Change, Descriptor(0)),
    call("fallocate", libc::SYS_fallocate, Change, Descriptor(0)),
    call("fchmod", libc::SYS_fchmod, Change, Descriptor(0)),
    call("fchown", libc::SYS_fchown, Change, Descriptor(0)),
    call("utimensat", libc::SYS_utimensat, Change, Below(0, 1)),
    call("renameat", libc::SYS_renameat, Change, Below(2, 3)),
    call("renameat2", libc::SYS_renameat2, Change, Below(2, 3)),
    call("linkat", libc::SYS_linkat, Change, Below(2, 3)),
    call("mknodat", libc::SYS_mknodat, Change, Below(0, 1)),
    call("fsetxattr", libc::SYS_fsetxattr, Change, Descriptor(0)),
    call("fchownat", libc::SYS_fchownat, Change, Below(0, 1)),
    // A ring is no place: what its operations work on is not told.
    call("io_uring_setup", libc::SYS_io_uring_setup, Look, Place::Nowhere),
    call(RING, libc::SYS_io_uring_enter, Change, Place::Nowhere),
    call("symlinkat", libc::SYS_symlinkat, Change, Below(1, 2)),
    call("unlinkat", libc::SYS_unlinkat, Change, Below(0, 1)),
    call("mkdirat", libc::SYS_mkdirat, Change, Below(0, 1)),
    #[cfg(target_arch = "x86_64")]
    call("rename", libc::SYS_rename, Change, Place::Path(1)),
    #[cfg(target_arch = "x86_64")]
    call("unlink", libc::SYS_unlink, Change, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    call("mkdir", libc::SYS_mkdir, Change, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    call("rmdir", libc::SYS_rmdir, Change, Place::Path(0)),
    #[cfg(target_arch = "x86_64")]
    call("chmod", libc::SYS_chmod, Change, Place::Path(0)),
    call("fsync", libc::SYS_fsync, Sync, Descriptor(0)),
    call("fdatasync", libc::SYS_fdatasync, Sync, Descriptor(0)),
    call("syncfs", libc::SYS_syncfs, Sync, Descriptor(0)),
    call("flock", libc::SYS_flock, Sync, Descriptor(0)),
    call("fstat", libc::SYS_fstat, Look, Descriptor(0)),
    call("fstatfs", libc::SYS_fstatfs, Look, Descriptor(0)),
    call("newfstatat", libc::SYS_newfstatat, Look, Below(0, 1)),
    call("statx", libc::SYS_statx, Look, Below(0, 1)),
    call("readlinkat", libc::SYS_readlinkat, Look, Below(0, 1)),
    call("getdents64", libc::SYS_getdents64, Read, Descriptor(0)),
    call("read", libc::SYS_read, Read, Descriptor(0)),
    call("pread64", libc::SYS_pread64, Read, Descriptor(0)),
];

/// The numbers of the calls that change storage or wait for it.
pub fn durable_numbers() -> Vec<i64> {
    // An open may make a file: its flags tell.
    CALLS.iter().filter(|c| matches!(c.kind, Change | Sync) || c.name.starts_with("openat")).map(|c| c.number).collect()
}

pub fn numbers_of(names: &[&str]) -> Vec<i64> {
    let is_named = |call: &&Call| names.contains(&call.name) || (call.name == "openat" && names.contains(&"create"));
    CALLS.iter().filter(is_named).map(|call| call.number).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    Destination,
    Staging,
    /// Identity, ledger, transfer log, known endpoints.
    State,
    Source,
    /// Sockets, libraries, the system's own files.
    Other,
}

/// Where the parts of a trial lie.
#[derive(Clone, Debug)]
pub struct Areas {
    pub destination: PathBuf,
    pub source: PathBuf,
    pub states: Vec<PathBuf>,
}

impl Areas {
    pub fn of(&self, path: &Path) -> Area {
        if self.states.iter().any(|state| path.starts_with(state)) {
            return Area::State;
        }
        let is_staging = path.components().any(|c| c.as_os_str().to_string_lossy().starts_with(STAGING_PREFIX));
        match path {
            _ if is_staging => Area::Staging,
            path if path.starts_with(&self.destination) => Area::Destination,
            path if path.starts_with(&self.source) => Area::Source,
            _ => Area::Other,
        }
    }
}

/// A stop, understood.
#[derive(Clone, Debug)]
pub struct Seen {
    /// An open that makes a file is called `create`.
    pub call: &'static str,
    pub kind: Kind,
    pub area: Area,
    pub path: PathBuf,
    /// The third argument: a length, for reads and writes.
    pub length: u64,
    pub moment: Moment,
}

impl Seen {
    pub fn of(stop: &Stop, areas: &Areas) -> Option<Seen> {
        let call = CALLS.iter().find(|call| call.number == stop.number)?;
        let path = path_of(call, stop).unwrap_or_default();
        let is_making = call.name == "openat" && stop.arguments[2] & (libc::O_CREAT | libc::O_TRUNC) as u64 != 0;
        let kind = if is_making { Change } else { call.kind };
        let (area, length) = (areas.of(&path), stop.arguments[2]);
        let name = if is_making { "create" } else { call.name };
        Some(Seen { call: name, kind, area, path, length, moment: stop.moment })
    }

    /// Whether it takes in something of the source.
    pub fn is_reading(&self) -> bool {
        self.area == Area::Source
    }

    /// Whether the order of such calls decides what a crash leaves behind.
    pub fn is_durable(&self) -> bool {
        let is_here = !matches!(self.area, Area::Source | Area::Other);
        matches!(self.kind, Change | Sync) && (is_here || self.call == RING)
    }
}

fn path_of(call: &Call, stop: &Stop) -> Option<PathBuf> {
    let argument = |index: usize| stop.arguments[index];
    let text = |index| text_at(stop.thread, argument(index)).map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    match call.place {
        Descriptor(at) => descriptor(stop.thread, argument(at) as i32),
        Place::Nowhere => None,
        Place::Path(at) => Some(directory(stop.thread, libc::AT_FDCWD)?.join(text(at)?)),
        Below(at, path) => {
            let directory = directory(stop.thread, argument(at) as i32)?;
            match text(path) {
                Some(path) if !path.as_os_str().is_empty() && path != Path::new(".") => Some(directory.join(path)),
                _ => Some(directory),
            }
        }
    }
}

fn directory(thread: u32, number: i32) -> Option<PathBuf> {
    match number {
        libc::AT_FDCWD => std::fs::read_link(format!("/proc/{thread}/cwd")).ok(),
        number => descriptor(thread, number),
    }
}

fn descriptor(thread: u32, number: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{thread}/fd/{number}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_by_whole_names() {
        let at = |path: &str| PathBuf::from(path);
        let areas = Areas { destination: at("/t/root"), source: at("/t/source"), states: vec![at("/t/server")] };
        for (path, area) in [
            ("/t/root/in/a", Area::Destination),
            ("/t/root/.thalweg-staging-0/lane-1/00", Area::Staging),
            ("/t/rootless", Area::Other),
            ("/t/source/a", Area::Source),
            ("/t/server/state/ledger.db", Area::State),
            ("socket:[12]", Area::Other),
        ] {
            assert_eq!(areas.of(Path::new(path)), area, "{path}");
        }
    }

    #[test]
    fn a_stop_names_its_call_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("x")).unwrap();
        use std::os::fd::AsRawFd;
        let arguments = [file.as_raw_fd() as u64, 0, 7, 0, 0, 0];
        let stop = Stop { thread: std::process::id(), number: libc::SYS_write, arguments, moment: Moment::Before };
        let areas = Areas { destination: dir.path().to_owned(), source: "/s".into(), states: Vec::new() };
        let seen = Seen::of(&stop, &areas).unwrap();
        assert_eq!((seen.call, seen.area, seen.length), ("write", Area::Destination, 7));
        assert!(seen.is_durable());
    }
}
