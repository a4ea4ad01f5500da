//! The table of errors that storage can return, and what is to come of each (`docs/reliability.md`, F067-F081).
//!
//! A row is one call at one kind of place in one part that the program plays, the errors that manual pages name for it, and
//! the outcomes that are right when it happens once and when it goes on for ever.
//!
//! Invariant: a number of the table of faults stands only for the error that the fault is (`fault`): most pairs have none.

use crate::calls::Area;

/// Who suffers: whichever program plays this part in the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Receiver,
    Sender,
    /// The receiver of a copy that keeps names, owners and attributes, and writes through io_uring.
    Whole,
    /// The endpoint's own files, while it receives.
    Endpoint,
}

/// What a copy came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// Everything was delivered.
    Keep,
    /// Some files were not, and are named; the rest is in place.
    FailFile,
    /// The job ended early and says why.
    FailJob,
}

impl Word {
    pub fn name(self) -> &'static str {
        match self {
            Keep => "KEEP",
            FailFile => "FAIL-FILE",
            FailJob => "FAIL-JOB",
        }
    }
}
use Word::{FailFile, FailJob, Keep};

const KEEP: &[Word] = &[Keep];
const FILE: &[Word] = &[FailFile];
const JOB: &[Word] = &[FailJob];
/// Where the part hit by the call is a whole directory or the first thing a job needs.
const FILE_OR_JOB: &[Word] = &[FailFile, FailJob];
const KEEP_OR_FILE: &[Word] = &[Keep, FailFile];
const KEEP_OR_JOB: &[Word] = &[Keep, FailJob];
const ANY: &[Word] = &[Keep, FailFile, FailJob];

/// The error that means a read or write of half the length.
pub const SHORT: &str = "short";

pub struct Row {
    pub part: Part,
    pub call: &'static str,
    pub area: Area,
    pub errors: &'static [&'static str],
    pub once: &'static [Word],
    /// Empty where going on for ever means nothing.
    pub forever: &'static [Word],
}

const fn row(
    (part, call, area): (Part, &'static str, Area),
    errors: &'static [&'static str],
    once: &'static [Word],
    forever: &'static [Word],
) -> Row {
    Row { part, call, area, errors, once, forever }
}

use Area::{Destination, Other, Source, Staging, State};
use Part::{Endpoint, Receiver, Sender, Whole};

const FULL: &[&str] = &["ENOSPC", "EDQUOT"];
const REFUSED: &[&str] = &["EACCES", "EPERM", "EROFS"];
const SCARCE: &[&str] = &["EMFILE", "ENFILE", "ENOMEM"];

pub const ROWS: &[Row] = &[
    // The receiver's staging.
    // Looking for what an earlier attempt left may fail: the first file that is staged tries again.
    row((Receiver, "mkdirat", Staging), FULL, KEEP_OR_JOB, JOB),
    row((Receiver, "mkdirat", Staging), REFUSED, ANY, FILE_OR_JOB),
    row((Receiver, "mkdirat", Staging), &["EIO", "ENOMEM"], ANY, FILE_OR_JOB),
    row((Receiver, "openat", Staging), SCARCE, ANY, ANY),
    row((Receiver, "openat", Staging), &["EIO", "ESTALE", "ELOOP"], ANY, ANY),
    row((Receiver, "flock", Staging), &["ENOLCK"], ANY, FILE_OR_JOB),
    row((Receiver, "flock", Staging), &["EINTR"], KEEP, &[]),
    row((Receiver, "create", Staging), FULL, JOB, JOB),
    row((Receiver, "create", Staging), REFUSED, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "create", Staging), SCARCE, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "create", Staging), &["EIO", "ESTALE"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "create", Staging), &["EEXIST", "ELOOP"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "write", Staging), FULL, JOB, JOB),
    row((Receiver, "write", Staging), &["EIO"], KEEP, FILE_OR_JOB),
    row((Receiver, "write", Staging), &["EFBIG"], FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "write", Staging), &["EINTR"], KEEP, &[]),
    row((Receiver, "write", Staging), &[SHORT], KEEP, KEEP),
    row((Receiver, "pwrite64", Staging), FULL, JOB, JOB),
    row((Receiver, "pwrite64", Staging), &["EIO"], KEEP, FILE_OR_JOB),
    row((Receiver, "pwrite64", Staging), &["EINTR"], KEEP, &[]),
    row((Receiver, "pwrite64", Staging), &[SHORT], KEEP, KEEP),
    row((Receiver, "fallocate", Staging), FULL, JOB, JOB),
    row((Receiver, "fallocate", Staging), &["EOPNOTSUPP", "ENOSYS", "EINVAL"], KEEP, KEEP),
    row((Receiver, "fallocate", Staging), &["EINTR"], KEEP, &[]),
    row((Receiver, "fallocate", Staging), &["EIO"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "ftruncate", Staging), &["EIO"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "ftruncate", Staging), &["EINTR"], KEEP, &[]),
    row((Receiver, "fchmod", Staging), &["EPERM", "EIO", "EROFS"], KEEP_OR_FILE, FILE_OR_JOB),
    // A link's own time is not promised.
    row((Receiver, "utimensat", Staging), &["EPERM", "EIO", "EROFS"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "symlinkat", Staging), FULL, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "symlinkat", Staging), &["EPERM", "EACCES", "EROFS", "EIO"], FILE, FILE_OR_JOB),
    // A failed wait for storage is final for what it covered. Contents come again, into new files; names that it covered
    // too end the job, whose next attempt looks at them again.
    row((Receiver, "syncfs", Staging), &["EIO"], KEEP_OR_JOB, FILE_OR_JOB),
    row((Receiver, "syncfs", Staging), FULL, KEEP_OR_JOB, FILE_OR_JOB),
    row((Receiver, "fsync", Staging), &["EIO"], KEEP, FILE_OR_JOB),
    row((Receiver, "fsync", Staging), FULL, KEEP_OR_JOB, FILE_OR_JOB),
    // Tidying up fails: the copy is right, and the next one tidies up.
    row((Receiver, "unlinkat", Staging), &["EIO", "EACCES", "EBUSY", "EROFS"], KEEP, KEEP),
    // The receiver's destination.
    row((Receiver, "mkdirat", Destination), FULL, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "mkdirat", Destination), REFUSED, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "mkdirat", Destination), &["EIO", "EMLINK", "ENOMEM"], FILE_OR_JOB, FILE_OR_JOB),
    // Some of these opens only look for what an earlier attempt left.
    row((Receiver, "openat", Destination), REFUSED, ANY, FILE_OR_JOB),
    row((Receiver, "openat", Destination), SCARCE, ANY, FILE_OR_JOB),
    row((Receiver, "openat", Destination), &["EIO", "ESTALE", "ELOOP", "ENOENT"], ANY, FILE_OR_JOB),
    // The first only looks for staging that an earlier attempt left.
    row((Receiver, "newfstatat", Destination), &["EIO", "EACCES", "ESTALE", "ENOMEM"], ANY, FILE_OR_JOB),
    row((Receiver, "fstat", Destination), &["EIO", "ESTALE", "ENOMEM"], ANY, ANY),
    row((Receiver, "fstatfs", Destination), &["EIO", "ENOSYS"], ANY, ANY),
    row((Receiver, "readlinkat", Destination), &["EIO", "EACCES"], ANY, ANY),
    row((Receiver, "renameat2", Destination), FULL, JOB, JOB),
    row((Receiver, "renameat2", Destination), &["EXDEV"], FILE, FILE_OR_JOB),
    // A file system that does not know how to refuse an existing name: looked at instead.
    row((Receiver, "renameat2", Destination), &["EINVAL"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), REFUSED, FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["EEXIST", "EISDIR"], FILE, FILE_OR_JOB),
    // A file of many pieces comes again.
    row((Receiver, "renameat2", Destination), &["EBUSY"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["EIO"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["ENOENT", "ESTALE", "ENOMEM"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "fchmod", Destination), &["EIO", "EROFS"], FILE, FILE_OR_JOB),
    row((Receiver, "utimensat", Destination), &["EIO", "EROFS"], FILE, FILE_OR_JOB),
    // What is refused of a directory that was there, as where it is somebody else's, is a warning.
    row((Receiver, "fchmod", Destination), &["EPERM"], KEEP_OR_FILE, ANY),
    row((Receiver, "utimensat", Destination), &["EPERM"], KEEP_OR_FILE, ANY),
    row((Receiver, "syncfs", Destination), &["EIO", "ENOSPC"], FILE_OR_JOB, FILE_OR_JOB),
    // The destination's directory is looked for below the root.
    row((Receiver, "openat2", Destination), SCARCE, ANY, FILE_OR_JOB),
    row((Receiver, "openat2", Destination), &["EIO", "EACCES", "ESTALE", "ELOOP", "EXDEV"], ANY, FILE_OR_JOB),
    row((Receiver, "openat2", Destination), &["ENOSYS", "EAGAIN"], KEEP_OR_JOB, KEEP_OR_JOB),
    // Other names of a file, in staging and then in place: one that is not made is named.
    row((Whole, "linkat", Staging), FULL, FILE_OR_JOB, FILE_OR_JOB),
    row((Whole, "linkat", Staging), &["EIO", "EMLINK", "EPERM", "EXDEV"], FILE, FILE_OR_JOB),
    // What of owners and attributes cannot be kept is a warning.
    row((Whole, "fchown", Staging), &["EPERM", "EIO", "EROFS"], KEEP, KEEP),
    row((Whole, "fsetxattr", Staging), &["EOPNOTSUPP", "ENOSPC", "EPERM", "EIO"], KEEP, KEEP),
    // A ring that cannot be made or used: plain calls do it, or the object comes again.
    row((Whole, "io_uring_setup", Other), &["EPERM", "ENOSYS", "ENOMEM"], KEEP, KEEP),
    row((Whole, "io_uring_enter", Other), &["EINTR"], KEEP, &[]),
    row((Whole, "io_uring_enter", Other), &["EAGAIN", "EBUSY"], KEEP_OR_FILE, &[]),
    // The endpoint's own records: no transfer depends on them, and an endpoint without its identity does not start.
    row((Endpoint, "write", State), &["ENOSPC", "EIO", "EDQUOT", SHORT], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "pwrite64", State), &["ENOSPC", "EIO", SHORT], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "create", State), &["ENOSPC", "EACCES", "EROFS", "EMFILE"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "fdatasync", State), &["EIO"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "fsync", State), &["EIO", "ENOSPC"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "ftruncate", State), &["EIO", "ENOSPC"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "rename", State), &["EIO", "ENOSPC", "EROFS"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "renameat2", State), &["EIO", "ENOSPC", "EROFS"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "mkdir", State), &["EACCES", "ENOSPC", "EROFS"], KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "flock", State), &["ENOLCK", "EIO"], FILE_OR_JOB, FILE_OR_JOB),
    // The sender's source.
    row((Sender, "openat", Source), REFUSED, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "openat", Source), SCARCE, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "openat", Source), &["EIO", "ELOOP", "ENOENT", "ESTALE"], FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "getdents64", Source), &["EIO", "ENOENT", "ESTALE", "ENOMEM"], FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "newfstatat", Source), &["EIO", "EACCES", "ESTALE", "ENOMEM"], FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "readlinkat", Source), &["EIO", "EACCES", "ESTALE"], FILE, FILE_OR_JOB),
    row((Sender, "fstat", Source), &["EIO", "ESTALE"], ANY, ANY),
    row((Sender, "read", Source), &["EIO", "ESTALE", "ENOMEM"], KEEP_OR_FILE, FILE),
    row((Sender, "read", Source), &["EINTR"], KEEP, &[]),
    row((Sender, "read", Source), &[SHORT], KEEP, KEEP),
    row((Sender, "pread64", Source), &["EIO", "ESTALE", "ENOMEM"], KEEP_OR_FILE, FILE),
    row((Sender, "pread64", Source), &["EINTR"], KEEP, &[]),
    row((Sender, "pread64", Source), &[SHORT], KEEP, KEEP),
];

/// The fault of the table that an error at a call is; none where it is only an error.
pub fn fault(row: &Row, error: &str) -> Option<&'static str> {
    let is_read = matches!(row.call, "read" | "pread64");
    let is_write = matches!(row.call, "write" | "pwrite64" | "fsync" | "fdatasync" | "syncfs");
    let receives = matches!(row.part, Receiver | Whole);
    Some(match (error, row.area) {
        ("ENOSPC" | "EDQUOT", _) => "F070",
        ("EIO", Source) if is_read => "F071",
        ("EIO", _) if is_write => "F072",
        (SHORT, _) => "F073",
        ("EINTR", _) if is_read || is_write => "F073",
        ("EACCES" | "ENOENT", Source) if row.call == "openat" => "F067",
        ("EXDEV" | "EINVAL", _) if row.call == "renameat2" => "F077",
        ("ESTALE", _) => "F079",
        ("EROFS" | "EACCES", _) if receives => "F081",
        _ => return None,
    })
}

/// The number of an error by its name.
pub fn errno(name: &str) -> Option<i32> {
    Some(match name {
        "EACCES" => libc::EACCES,
        "EAGAIN" => libc::EAGAIN,
        "EBUSY" => libc::EBUSY,
        "EDQUOT" => libc::EDQUOT,
        "EEXIST" => libc::EEXIST,
        "EFBIG" => libc::EFBIG,
        "EINTR" => libc::EINTR,
        "EINVAL" => libc::EINVAL,
        "EIO" => libc::EIO,
        "EISDIR" => libc::EISDIR,
        "ELOOP" => libc::ELOOP,
        "EMFILE" => libc::EMFILE,
        "EMLINK" => libc::EMLINK,
        "ENFILE" => libc::ENFILE,
        "ENOENT" => libc::ENOENT,
        "ENOLCK" => libc::ENOLCK,
        "ENOMEM" => libc::ENOMEM,
        "ENOSPC" => libc::ENOSPC,
        "ENOSYS" => libc::ENOSYS,
        "EOPNOTSUPP" => libc::EOPNOTSUPP,
        "EPERM" => libc::EPERM,
        "EROFS" => libc::EROFS,
        "ESTALE" => libc::ESTALE,
        "EXDEV" => libc::EXDEV,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;

    #[test]
    fn every_row_names_calls_and_errors_that_there_are() {
        for row in ROWS {
            assert!(!calls::numbers_of(&[row.call]).is_empty(), "{}", row.call);
            for error in row.errors {
                assert!(*error == SHORT || errno(error).is_some(), "{error}");
            }
            assert!(!row.once.is_empty());
        }
    }
}
