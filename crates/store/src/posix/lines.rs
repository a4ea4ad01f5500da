//! A file of lines at the top of a destination, beside what is delivered.
//!
//! Invariants: only a regular file with one name is opened, and no link on the way to it; one job at a time has it.
//!
//! Not here: what the lines say (`mover`).

use super::content::write_all_at;
use super::wait::sync_names;
use crate::{Error, Lines, Result};
use model::{FailureKind, Name, Timestamp};
use os::fs::{fdatasync, ftruncate, openat, pread};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub struct PosixLines {
    file: File,
    name: Name,
}

impl PosixLines {
    /// Opens it, and makes it if it is not there.
    pub fn open(directory: BorrowedFd<'_>, name: &Name) -> Result<PosixLines> {
        let error = |e: Errno| Error::new("open list", name.as_bytes(), e);
        let refused = |why: &str| Error::of_kind(FailureKind::Other, "open list", name.as_bytes(), why);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(directory, name.as_c_str(), flags, Mode::from_raw_mode(0o644)).map_err(error)?;
        let status = fstat(&file).map_err(error)?;
        if !FileType::from_raw_mode(status.st_mode).is_file() || status.st_nlink != 1 {
            return Err(refused("what has this name is not a file with one name"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(refused("another job writes this list")),
            locked => locked.map_err(error)?,
        }
        sync_names(directory).map_err(error)?;
        Ok(PosixLines { file: file.into(), name: name.clone() })
    }

    fn error(&self, operation: &'static str, e: impl Into<io::Error>) -> Error {
        Error::new(operation, self.name.as_bytes(), e.into())
    }
}

impl Lines for PosixLines {
    fn changed(&self) -> Result<Timestamp> {
        let status = fstat(&self.file).map_err(|e| self.error("look at list", e))?;
        Ok(super::list::generation_of(&status).version.changed())
    }

    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        pread(self.file.as_fd(), buffer, at).map_err(|e| self.error("read list", e))
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(self.file.as_fd(), bytes, at).map_err(|e| self.error("write list", e))
    }

    fn cut(&self, at: u64) -> Result<()> {
        ftruncate(self.file.as_fd(), at).map_err(|e| self.error("write list", e))
    }

    fn sync(&self) -> Result<()> {
        fdatasync(self.file.as_fd()).map_err(|e| self.error("write list to storage", e))
    }
}
