//! The table of errors that storage can return, and what is to come of each (`docs/reliability.md`, F067-F081).
//!
//! A row is one call at one kind of place in one part that the program plays, the errors that manual pages name for it, and
//! the outcomes that are right when it happens once and when it goes on for ever.

use crate::calls::Area;

/// Who suffers: whichever program plays this part in the copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Receiver,
    Sender,
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
    pub faults: &'static [&'static str],
    pub once: &'static [Word],
    /// Empty where going on for ever means nothing.
    pub forever: &'static [Word],
}

const fn row(
    (part, call, area): (Part, &'static str, Area),
    errors: &'static [&'static str],
    faults: &'static [&'static str],
    once: &'static [Word],
    forever: &'static [Word],
) -> Row {
    Row { part, call, area, errors, faults, once, forever }
}

use Area::{Destination, Source, Staging, State};
use Part::{Endpoint, Receiver, Sender};

const FULL: &[&str] = &["ENOSPC", "EDQUOT"];
const NO_SPACE: &[&str] = &["F070"];
const DEAD: &[&str] = &["F072"];
const PARTIAL: &[&str] = &["F073"];
const READING: &[&str] = &["F071"];
const UNREADABLE: &[&str] = &["F067"];
const IN_THE_WAY: &[&str] = &["F068"];
const ACROSS: &[&str] = &["F077"];
const STALE: &[&str] = &["F079"];
const REMOUNTED: &[&str] = &["F081"];
const EXHAUSTED: &[&str] = &["F092"];
const REFUSED: &[&str] = &["EACCES", "EPERM", "EROFS"];
const SCARCE: &[&str] = &["EMFILE", "ENFILE", "ENOMEM"];

pub const ROWS: &[Row] = &[
    // The receiver's staging.
    // Looking for what an earlier attempt left may fail: the first file that is staged tries again.
    row((Receiver, "mkdirat", Staging), FULL, NO_SPACE, KEEP_OR_JOB, JOB),
    row((Receiver, "mkdirat", Staging), REFUSED, REMOUNTED, ANY, FILE_OR_JOB),
    row((Receiver, "mkdirat", Staging), &["EIO", "ENOMEM"], DEAD, ANY, FILE_OR_JOB),
    row((Receiver, "openat", Staging), SCARCE, EXHAUSTED, ANY, ANY),
    row((Receiver, "openat", Staging), &["EIO", "ESTALE", "ELOOP"], STALE, ANY, ANY),
    row((Receiver, "flock", Staging), &["ENOLCK"], STALE, ANY, FILE_OR_JOB),
    row((Receiver, "flock", Staging), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Receiver, "create", Staging), FULL, NO_SPACE, JOB, JOB),
    row((Receiver, "create", Staging), REFUSED, REMOUNTED, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "create", Staging), SCARCE, EXHAUSTED, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "create", Staging), &["EIO", "ESTALE"], STALE, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "create", Staging), &["EEXIST", "ELOOP"], &["F044"], KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "write", Staging), FULL, NO_SPACE, JOB, JOB),
    row((Receiver, "write", Staging), &["EIO"], DEAD, KEEP, FILE_OR_JOB),
    row((Receiver, "write", Staging), &["EFBIG"], NO_SPACE, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "write", Staging), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Receiver, "write", Staging), &[SHORT], PARTIAL, KEEP, KEEP),
    row((Receiver, "pwrite64", Staging), FULL, NO_SPACE, JOB, JOB),
    row((Receiver, "pwrite64", Staging), &["EIO"], DEAD, KEEP, FILE_OR_JOB),
    row((Receiver, "pwrite64", Staging), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Receiver, "pwrite64", Staging), &[SHORT], PARTIAL, KEEP, KEEP),
    row((Receiver, "fallocate", Staging), FULL, NO_SPACE, JOB, JOB),
    row((Receiver, "fallocate", Staging), &["EOPNOTSUPP", "ENOSYS", "EINVAL"], ACROSS, KEEP, KEEP),
    row((Receiver, "fallocate", Staging), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Receiver, "fallocate", Staging), &["EIO"], DEAD, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "ftruncate", Staging), &["EIO"], DEAD, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "ftruncate", Staging), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Receiver, "fchmod", Staging), &["EPERM", "EIO", "EROFS"], REMOUNTED, KEEP_OR_FILE, FILE_OR_JOB),
    // A link's own time is not promised.
    row((Receiver, "utimensat", Staging), &["EPERM", "EIO", "EROFS"], REMOUNTED, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "symlinkat", Staging), FULL, NO_SPACE, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "symlinkat", Staging), &["EPERM", "EACCES", "EROFS", "EIO"], REMOUNTED, FILE, FILE_OR_JOB),
    // A failed wait for storage is final for what it covered. Contents come again, into new files; names that it covered
    // too end the job, whose next attempt looks at them again.
    row((Receiver, "syncfs", Staging), &["EIO"], DEAD, KEEP_OR_JOB, FILE_OR_JOB),
    row((Receiver, "syncfs", Staging), FULL, NO_SPACE, KEEP_OR_JOB, FILE_OR_JOB),
    row((Receiver, "fsync", Staging), &["EIO"], DEAD, KEEP, FILE_OR_JOB),
    row((Receiver, "fsync", Staging), FULL, NO_SPACE, KEEP_OR_JOB, FILE_OR_JOB),
    // Tidying up fails: the copy is right, and the next one tidies up.
    row((Receiver, "unlinkat", Staging), &["EIO", "EACCES", "EBUSY", "EROFS"], &["F081"], KEEP, KEEP),
    // The receiver's destination.
    row((Receiver, "mkdirat", Destination), FULL, NO_SPACE, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "mkdirat", Destination), REFUSED, REMOUNTED, FILE_OR_JOB, FILE_OR_JOB),
    row((Receiver, "mkdirat", Destination), &["EIO", "EMLINK", "ENOMEM"], DEAD, FILE_OR_JOB, FILE_OR_JOB),
    // Some of these opens only look for what an earlier attempt left.
    row((Receiver, "openat", Destination), REFUSED, REMOUNTED, ANY, FILE_OR_JOB),
    row((Receiver, "openat", Destination), SCARCE, EXHAUSTED, ANY, FILE_OR_JOB),
    row((Receiver, "openat", Destination), &["EIO", "ESTALE", "ELOOP", "ENOENT"], STALE, ANY, FILE_OR_JOB),
    // The first only looks for staging that an earlier attempt left.
    row((Receiver, "newfstatat", Destination), &["EIO", "EACCES", "ESTALE", "ENOMEM"], STALE, ANY, FILE_OR_JOB),
    row((Receiver, "fstat", Destination), &["EIO", "ESTALE", "ENOMEM"], STALE, ANY, ANY),
    row((Receiver, "fstatfs", Destination), &["EIO", "ENOSYS"], STALE, ANY, ANY),
    row((Receiver, "readlinkat", Destination), &["EIO", "EACCES"], STALE, ANY, ANY),
    row((Receiver, "renameat2", Destination), FULL, NO_SPACE, JOB, JOB),
    row((Receiver, "renameat2", Destination), &["EXDEV"], ACROSS, FILE, FILE_OR_JOB),
    // A file system that does not know how to refuse an existing name: looked at instead.
    row((Receiver, "renameat2", Destination), &["EINVAL"], ACROSS, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), REFUSED, REMOUNTED, FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["EEXIST", "EISDIR", "EBUSY"], IN_THE_WAY, FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["EIO"], DEAD, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "renameat2", Destination), &["ENOENT", "ESTALE", "ENOMEM"], STALE, KEEP_OR_FILE, FILE_OR_JOB),
    row((Receiver, "fchmod", Destination), &["EPERM", "EIO", "EROFS"], REMOUNTED, FILE, FILE_OR_JOB),
    row((Receiver, "utimensat", Destination), &["EPERM", "EIO", "EROFS"], REMOUNTED, FILE, FILE_OR_JOB),
    row((Receiver, "syncfs", Destination), &["EIO", "ENOSPC"], DEAD, FILE_OR_JOB, FILE_OR_JOB),
    // The endpoint's own records: no transfer depends on them, and an endpoint without its identity does not start.
    row((Endpoint, "write", State), &["ENOSPC", "EIO", "EDQUOT", SHORT], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "pwrite64", State), &["ENOSPC", "EIO", SHORT], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "create", State), &["ENOSPC", "EACCES", "EROFS", "EMFILE"], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "fdatasync", State), &["EIO"], DEAD, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "fsync", State), &["EIO", "ENOSPC"], DEAD, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "ftruncate", State), &["EIO", "ENOSPC"], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "rename", State), &["EIO", "ENOSPC", "EROFS"], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "renameat2", State), &["EIO", "ENOSPC", "EROFS"], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "mkdir", State), &["EACCES", "ENOSPC", "EROFS"], NO_SPACE, KEEP_OR_JOB, KEEP_OR_JOB),
    row((Endpoint, "flock", State), &["ENOLCK", "EIO"], &["F097"], FILE_OR_JOB, FILE_OR_JOB),
    // The sender's source.
    row((Sender, "openat", Source), REFUSED, UNREADABLE, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "openat", Source), SCARCE, EXHAUSTED, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "openat", Source), &["EIO", "ELOOP", "ENOENT", "ESTALE"], UNREADABLE, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "getdents64", Source), &["EIO", "ENOENT", "ESTALE", "ENOMEM"], UNREADABLE, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "newfstatat", Source), &["EIO", "EACCES", "ESTALE", "ENOMEM"], UNREADABLE, FILE_OR_JOB, FILE_OR_JOB),
    row((Sender, "readlinkat", Source), &["EIO", "EACCES", "ESTALE"], UNREADABLE, FILE, FILE_OR_JOB),
    row((Sender, "fstat", Source), &["EIO", "ESTALE"], READING, ANY, ANY),
    row((Sender, "read", Source), &["EIO", "ESTALE", "ENOMEM"], READING, KEEP_OR_FILE, FILE),
    row((Sender, "read", Source), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Sender, "read", Source), &[SHORT], PARTIAL, KEEP, KEEP),
    row((Sender, "pread64", Source), &["EIO", "ESTALE", "ENOMEM"], READING, KEEP_OR_FILE, FILE),
    row((Sender, "pread64", Source), &["EINTR"], PARTIAL, KEEP, &[]),
    row((Sender, "pread64", Source), &[SHORT], PARTIAL, KEEP, KEEP),
];

/// The number of an error by its name.
pub fn errno(name: &str) -> Option<i32> {
    Some(match name {
        "EACCES" => libc::EACCES,
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
