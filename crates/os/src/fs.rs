//! The system calls that change storage, wait for it, or read content from it.
//!
//! Names and signatures are rustix's. Calls that only look (`fstat`, `statat`, listing, reading attributes) and locks
//! (`flock`) are not here: nothing of the publish sequence depends on their failing at a certain moment.

#[cfg(not(feature = "simulation"))]
pub use rustix::fs::{
    chmodat, chownat, copy_file_range, fallocate, fchmod, fchown, fdatasync, fremovexattr, fsetxattr, fstatfs, fsync,
    ftruncate, futimens, ioctl_ficlone, linkat, mkdirat, mknodat, openat, renameat_with, symlinkat, syncfs, unlinkat,
    utimensat,
};
#[cfg(not(feature = "simulation"))]
pub use rustix::io::{pread, pwrite, read, write};

#[cfg(feature = "simulation")]
pub use crate::simulation::calls::*;
