//! The system calls that change storage, wait for it, or read content from it.
//!
//! Names and signatures are rustix's. Calls that only look (`fstat`, `statat`, listing) are not here: nothing of the
//! publish sequence depends on their failing at a certain moment.

#[cfg(not(feature = "simulation"))]
pub use rustix::fs::{
    copy_file_range, fallocate, fchmod, fdatasync, fstatfs, fsync, ftruncate, futimens, ioctl_ficlone, mkdirat, openat,
    renameat_with, symlinkat, syncfs, unlinkat,
};
#[cfg(not(feature = "simulation"))]
pub use rustix::io::{pread, pwrite, read, write};

#[cfg(feature = "simulation")]
pub use crate::simulation::disk::calls::*;
