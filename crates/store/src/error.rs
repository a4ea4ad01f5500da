//! The one error of this crate: what was tried on which object, and the cause. Whether it is worth trying again is a
//! property of the kind.

use crate::posix::closed;
use model::name::Escaped;
use model::{Entry, FailureKind};
use rustix::io::Errno;
use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub struct Error {
    pub kind: FailureKind,
    /// A verb phrase: "open file".
    pub operation: &'static str,
    /// The path of the object, as the user would name it; may be empty where the caller knows it.
    pub subject: Vec<u8>,
    pub source: io::Error,
}

impl Error {
    pub fn new(operation: &'static str, subject: impl Into<Vec<u8>>, source: impl Into<io::Error>) -> Error {
        let source = source.into();
        Error { kind: kind_of(operation, &source), operation, subject: subject.into(), source }
    }

    /// An operation on content that failed at an offset.
    pub fn at(operation: &'static str, offset: u64, source: impl Into<io::Error>) -> Error {
        let source = source.into();
        let kind = kind_of(operation, &source);
        let source = io::Error::new(source.kind(), format!("{} at byte {offset}", plain(&source)));
        Error { kind, operation, subject: Vec::new(), source }
    }

    pub fn of_kind(kind: FailureKind, operation: &'static str, subject: impl Into<Vec<u8>>, why: &str) -> Error {
        Error { kind, operation, subject: subject.into(), source: io::Error::other(why.to_owned()) }
    }

    /// The same of what arrives under a name; in which directory, the caller knows.
    pub fn of_entry(kind: FailureKind, operation: &'static str, entry: &Entry, why: &str) -> Error {
        Error::of_kind(kind, operation, entry.name.as_bytes(), why)
    }

    /// A rehearsal is asked to write.
    pub fn rehearses() -> Error {
        Error::of_kind(FailureKind::ReadOnly, "write", b"", "a dry run writes nothing")
    }

    /// What is to be named has no directory to be in.
    pub fn no_directory() -> Error {
        Error::of_kind(FailureKind::NotFound, "open directory", b"", "its directory is not there")
    }

    /// A name has the prefix of staging.
    pub fn name_kept(entry: &Entry) -> Error {
        let why = "names that begin so are kept for what is being copied";
        Error::of_entry(FailureKind::NameRefused, "name file", entry, why)
    }

    /// A directory has the name of a file that is to be.
    pub fn directory_there(operation: &'static str, entry: &Entry) -> Error {
        Error::of_entry(FailureKind::InTheWay, operation, entry, "a directory stands where a file is to be")
    }

    /// The root of what may be reached is to be renamed or removed.
    pub fn root_stays() -> Error {
        Error::of_kind(FailureKind::NameRefused, "change", b"", "this is the root itself, which stays")
    }

    /// Another version stands where one is to be removed.
    pub fn other_version() -> Error {
        Error::of_kind(FailureKind::Changed, "remove", b"", "it was changed meanwhile and is kept")
    }

    pub fn subject(mut self, subject: impl Into<Vec<u8>>) -> Error {
        self.subject = subject.into();
        self
    }

    /// The message for a report that shows the path itself.
    pub fn message(&self) -> String {
        format!("{}: {}", self.operation, plain(&self.source))
    }
}

fn kind_of(operation: &str, error: &io::Error) -> FailureKind {
    let Some(errno) = error.raw_os_error().map(Errno::from_raw_os_error) else {
        return if closed::is_closed(error) { FailureKind::Permission } else { FailureKind::Other };
    };
    match errno {
        Errno::NOENT => FailureKind::NotFound,
        // A file that is too large fails alone: for the others there is room.
        Errno::ACCESS | Errno::PERM | Errno::FBIG => FailureKind::Permission,
        Errno::NOSPC | Errno::DQUOT => FailureKind::NoSpace,
        Errno::ROFS => FailureKind::ReadOnly,
        Errno::EXIST | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY | Errno::LOOP | Errno::XDEV => {
            FailureKind::InTheWay
        }
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => FailureKind::NameRefused,
        _ => FailureKind::Other.or_by(operation),
    }
}

/// The operating system's words without the trailing error number, unless they leave open what is too large.
fn plain(error: &io::Error) -> String {
    if error.raw_os_error() == Some(Errno::FBIG.raw_os_error()) {
        return "it is larger than a file may be on this file system, or for this process".to_owned();
    }
    let text = error.to_string();
    match text.rfind(" (os error") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        if !self.subject.is_empty() {
            write!(f, " {}", Escaped(&self.subject))?;
        }
        write!(f, ": {}", plain(&self.source))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_fails_and_is_not_taken_for_a_full_disk() {
        for error in [Error::new("write file", b"f", Errno::FBIG), Error::at("write file", 7, Errno::FBIG)] {
            assert_eq!(error.kind, FailureKind::Permission);
            assert!(error.message().contains("larger than a file may be on this file system"), "{error}");
        }
        assert_eq!(Error::new("write file", b"f", Errno::NOSPC).kind, FailureKind::NoSpace);
    }
}
