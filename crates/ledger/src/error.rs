//! The crate's error: what kind it is, what was tried, on what, and why it failed underneath.

use crate::state::State;
use model::JobId;
use rusqlite::{ErrorCode, ffi};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

pub type Result<T> = std::result::Result<T, Error>;

/// Clonable, because one failed group commit is the answer to many calls.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation}: {subject}: {kind}")]
pub struct Error {
    pub kind: Kind,
    /// Verb phrase. In the answer to an attempt's call it may name an earlier operation that was not waited for.
    pub operation: &'static str,
    pub subject: Subject,
    #[source]
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Subject {
    Ledger(PathBuf),
    Job(JobId),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Kind {
    #[error("no such job")]
    NotFound,
    #[error("there is none")]
    Absent,
    #[error("not possible while the job is {state}")]
    WrongState { state: State },
    #[error("a newer attempt has taken over")]
    Superseded,
    #[error("the counts do not add up")]
    Unbalanced,
    #[error("a value is larger than the ledger accepts")]
    TooLarge,
    #[error("written by a newer version (format {found}; this program knows formats up to {known})")]
    NewerVersion { found: i64, known: i64 },
    #[error("not a ledger")]
    Foreign,
    #[error("belongs to another identity")]
    OtherIdentity,
    #[error("damaged")]
    Corrupt,
    #[error("no space left")]
    Full,
    #[error("input/output error")]
    Io,
    #[error("permission denied")]
    Permission,
    #[error("another process holds it")]
    Busy,
    #[error("no answer in time; whether the change was made is unknown")]
    Stalled,
    #[error("already closed")]
    Closed,
    #[error("unexpected database error")]
    Unexpected,
}

impl Kind {
    /// True when the same call may succeed later without anyone's doing.
    pub fn is_transient(self) -> bool {
        matches!(self, Kind::Full | Kind::Busy | Kind::Stalled)
    }

    /// What a person can do about it.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Kind::NewerVersion { .. } => "use the newer version, or another state directory",
            Kind::Foreign => "name another file; this one was left as it is",
            Kind::OtherIdentity => "a state directory serves one identity: use another state directory",
            Kind::Corrupt => {
                "move the file and its -wal and -shm companions aside; a new ledger starts empty, the job history is \
                 lost, and objects that were delivered are found at the destination"
            }
            Kind::Full => "free some space, or sweep old jobs",
            Kind::Io => "the ledger needs a working local file system; start again once that is so",
            Kind::Permission => "the file and its directory must be writable for this user",
            Kind::Busy | Kind::Stalled => "look for a process that holds the file, or a disk that does not answer",
            _ => return None,
        })
    }

    /// True for errors of the file, which undo the whole group; the others concern one operation.
    pub(crate) fn ends_group(self) -> bool {
        matches!(self, Kind::Corrupt | Kind::Full | Kind::Io | Kind::Permission | Kind::Busy)
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Ledger(path) => write!(f, "ledger {}", path.display()),
            Subject::Job(id) => write!(f, "job {id}"),
        }
    }
}

/// An error before it is known whose it is.
#[derive(Debug)]
pub(crate) struct Cause {
    pub kind: Kind,
    pub source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Cause {
    pub(crate) fn of(self, operation: &'static str, subject: Subject) -> Error {
        Error { kind: self.kind, operation, subject, source: self.source }
    }
}

impl From<Kind> for Cause {
    fn from(kind: Kind) -> Cause {
        Cause { kind, source: None }
    }
}

impl From<rusqlite::Error> for Cause {
    fn from(source: rusqlite::Error) -> Cause {
        Cause { kind: kind_of(&source), source: Some(Arc::new(source)) }
    }
}

impl From<io::Error> for Cause {
    fn from(source: io::Error) -> Cause {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => Kind::Permission,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Kind::Full,
            _ => Kind::Io,
        };
        Cause { kind, source: Some(Arc::new(source)) }
    }
}

/// True after a sync that failed: what the kernel still holds of the file can no longer be vouched for.
pub(crate) fn is_failed_sync(cause: &Cause) -> bool {
    let source = cause.source.as_deref().and_then(|source| source.downcast_ref::<rusqlite::Error>());
    let code = source.and_then(rusqlite::Error::sqlite_error).map(|error| error.extended_code);
    matches!(code, Some(ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC))
}

fn kind_of(error: &rusqlite::Error) -> Kind {
    let failure = match error {
        rusqlite::Error::SqliteFailure(failure, _) => failure,
        rusqlite::Error::SqlInputError { error, .. } => error,
        // The tables are strict, so a value of the wrong type or out of its set was not written by this program.
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::InvalidColumnType(..) => return Kind::Corrupt,
        _ => return Kind::Unexpected,
    };
    match failure.code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Kind::Corrupt,
        ErrorCode::DiskFull => Kind::Full,
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Kind::Busy,
        ErrorCode::PermissionDenied | ErrorCode::ReadOnly => Kind::Permission,
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::FileLockingProtocolFailed => Kind::Io,
        ErrorCode::TooBig => Kind::TooLarge,
        _ => Kind::Unexpected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(code: i32) -> Cause {
        Cause::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    #[test]
    fn each_class_of_database_error_has_its_kind() {
        let kinds = [
            (ffi::SQLITE_CORRUPT, Kind::Corrupt),
            (ffi::SQLITE_NOTADB, Kind::Corrupt),
            (ffi::SQLITE_FULL, Kind::Full),
            (ffi::SQLITE_BUSY, Kind::Busy),
            (ffi::SQLITE_READONLY, Kind::Permission),
            (ffi::SQLITE_IOERR_WRITE, Kind::Io),
            (ffi::SQLITE_CANTOPEN, Kind::Io),
            (ffi::SQLITE_TOOBIG, Kind::TooLarge),
            (ffi::SQLITE_NOMEM, Kind::Unexpected),
            (ffi::SQLITE_CONSTRAINT, Kind::Unexpected),
        ];
        for (code, kind) in kinds {
            assert_eq!(cause(code).kind, kind, "SQLite code {code}");
        }
    }

    #[test]
    fn only_a_failed_sync_puts_earlier_changes_in_doubt() {
        assert!(is_failed_sync(&cause(ffi::SQLITE_IOERR_FSYNC)));
        assert!(is_failed_sync(&cause(ffi::SQLITE_IOERR_DIR_FSYNC)));
        assert!(!is_failed_sync(&cause(ffi::SQLITE_IOERR_WRITE)));
        assert!(!is_failed_sync(&Cause::from(Kind::Closed)));
    }

    #[test]
    fn the_text_names_operation_subject_and_kind() {
        let error = Cause::from(Kind::Superseded).of("record failures", Subject::Job(JobId([0xab; 16])));
        assert_eq!(
            error.to_string(),
            "record failures: job abababababababababababababababab: a newer attempt has taken over"
        );
        assert!(!error.kind.is_transient());
    }
}
