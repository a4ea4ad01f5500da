//! How an object or a whole run ended: closed sets, so that programs can decide on them.

use std::fmt;

/// Why one object was not delivered. The numbers are part of the protocol (docs/protocol.md) and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum FailureKind {
    /// Anything the other kinds do not name.
    Other = 1,
    NotFound = 2,
    Permission = 3,
    /// The source changed while it was read, more often than it was worth trying again.
    Changed = 4,
    NoSpace = 5,
    /// An object of another kind, or one that may not be replaced, stands at the destination.
    InTheWay = 6,
    NameRefused = 7,
    ReadError = 8,
    WriteError = 9,
    DigestMismatch = 10,
    ReadOnly = 11,
    /// A FIFO, socket or device, or a directory that holds our own staging: not copied by design.
    Special = 12,
    /// Two objects of one job have the same destination name.
    Duplicate = 13,
}

impl FailureKind {
    pub const ALL: [FailureKind; 13] = [
        FailureKind::Other,
        FailureKind::NotFound,
        FailureKind::Permission,
        FailureKind::Changed,
        FailureKind::NoSpace,
        FailureKind::InTheWay,
        FailureKind::NameRefused,
        FailureKind::ReadError,
        FailureKind::WriteError,
        FailureKind::DigestMismatch,
        FailureKind::ReadOnly,
        FailureKind::Special,
        FailureKind::Duplicate,
    ];

    /// Unknown numbers from a newer peer read as `Other`.
    pub fn from_number(number: u32) -> FailureKind {
        Self::ALL.into_iter().find(|k| *k as u32 == number).unwrap_or(FailureKind::Other)
    }

    /// Where it says nothing, what the operation says, a verb phrase: content could not be read, or not be written.
    pub fn or_by(self, operation: &str) -> FailureKind {
        match self {
            FailureKind::Other if operation.starts_with("read") => FailureKind::ReadError,
            FailureKind::Other if operation.starts_with("write") => FailureKind::WriteError,
            kind => kind,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            FailureKind::Other => "failed",
            FailureKind::NotFound => "not-found",
            FailureKind::Permission => "permission",
            FailureKind::Changed => "changed",
            FailureKind::NoSpace => "no-space",
            FailureKind::InTheWay => "in-the-way",
            FailureKind::NameRefused => "name-refused",
            FailureKind::ReadError => "read-error",
            FailureKind::WriteError => "write-error",
            FailureKind::DigestMismatch => "digest-mismatch",
            FailureKind::ReadOnly => "read-only",
            FailureKind::Special => "special-file",
            FailureKind::Duplicate => "duplicate",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One object that was not delivered, and why. Skipped special files are failures of kind `Special` in form only: they
/// are counted as skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// Relative to the destination of the job.
    pub path: Vec<u8>,
    pub kind: FailureKind,
    pub message: String,
}

/// Exit codes of the program (docs/json.md lists them for scripts).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    SourceDirectoryNotFound = 3,
    SourceFileNotFound = 4,
    /// Temporary errors outlasted the retries; the same command continues.
    Temporary = 5,
    Refused = 6,
    Fatal = 7,
    /// `--max-transfer` was reached; the same command continues.
    TransferLimit = 8,
    /// `--wait buffered`: not all is at its destination yet; the endpoint there brings it to its place.
    Buffered = 9,
    /// `--max-duration` was reached; the same command continues.
    DurationLimit = 10,
    Partial = 23,
    Changed = 24,
    /// A limit was crossed: more would be deleted than --max-delete allows, or a measurement came out worse than the one
    /// it was compared with.
    LimitCrossed = 25,
    /// A comparison that could not have noticed what it was made for.
    Inconclusive = 26,
    Integrity = 40,
    Authentication = 41,
    Version = 42,
    Unreachable = 43,
    NoSpace = 44,
    Cancelled = 45,
    /// A plan whose goal cannot be had.
    OutOfReach = 46,
    Interrupted = 130,
    /// The reader of standard output went away.
    BrokenPipe = 141,
    Terminated = 143,
}

impl Exit {
    const ALL: [Exit; 25] = [
        Exit::Done,
        Exit::Failed,
        Exit::Usage,
        Exit::SourceDirectoryNotFound,
        Exit::SourceFileNotFound,
        Exit::Temporary,
        Exit::Refused,
        Exit::Fatal,
        Exit::TransferLimit,
        Exit::Buffered,
        Exit::DurationLimit,
        Exit::Partial,
        Exit::Changed,
        Exit::LimitCrossed,
        Exit::Inconclusive,
        Exit::Integrity,
        Exit::Authentication,
        Exit::Version,
        Exit::Unreachable,
        Exit::NoSpace,
        Exit::Cancelled,
        Exit::OutOfReach,
        Exit::Interrupted,
        Exit::BrokenPipe,
        Exit::Terminated,
    ];

    /// The code that another program ended with; one that is not known here is a failure.
    pub fn from_number(number: i32) -> Exit {
        Self::ALL.into_iter().find(|exit| *exit as i32 == number).unwrap_or(Exit::Failed)
    }

    /// The exit of a run that ended in order, by what failed in it: the most telling class wins.
    pub fn from_failures(kinds: impl IntoIterator<Item = FailureKind>) -> Exit {
        let mut exit = Exit::Done;
        for kind in kinds {
            let this = match kind {
                FailureKind::Special => continue,
                FailureKind::DigestMismatch => return Exit::Integrity,
                FailureKind::NoSpace => Exit::NoSpace,
                FailureKind::Changed | FailureKind::NotFound => Exit::Changed,
                _ => Exit::Partial,
            };
            exit = match (exit, this) {
                (Exit::Done, this) => this,
                (Exit::NoSpace, _) | (_, Exit::NoSpace) => Exit::NoSpace,
                (Exit::Changed, Exit::Changed) => Exit::Changed,
                _ => Exit::Partial,
            };
        }
        exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_unknown_ones_are_other() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_number(kind as u32), kind);
        }
        assert_eq!(FailureKind::from_number(9999), FailureKind::Other);
    }

    #[test]
    fn the_most_telling_failure_decides_the_exit() {
        use FailureKind::*;
        assert_eq!(Exit::from_failures([]), Exit::Done);
        assert_eq!(Exit::from_failures([Special]), Exit::Done);
        assert_eq!(Exit::from_failures([Changed, NotFound]), Exit::Changed);
        assert_eq!(Exit::from_failures([Changed, Permission]), Exit::Partial);
        assert_eq!(Exit::from_failures([Permission, NoSpace]), Exit::NoSpace);
        assert_eq!(Exit::from_failures([NoSpace, DigestMismatch]), Exit::Integrity);
    }
}
