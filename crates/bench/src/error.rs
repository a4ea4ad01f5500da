//! What can go wrong while making data sets and running races.

use std::fmt;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Error>;

/// Shown as "operation subject"; the cause is the source.
#[derive(thiserror::Error, Debug)]
#[error("{operation} {subject}")]
pub struct Error {
    pub kind: Kind,
    pub operation: &'static str,
    pub subject: String,
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The request makes no sense as written.
    Usage,
    /// Not enough free bytes or inodes; nothing was written.
    NoSpace,
    /// A program is not installed; the source names its Debian package where it has one.
    Missing,
    /// Needs rights that this process does not have.
    Denied,
    /// The caller asked to stop.
    Cancelled,
    /// Nothing answers at that address.
    Unreachable,
    /// What answers is something else, or speaks another version.
    Incompatible,
    /// The other side does not want to.
    Refused,
    /// A process or system call failed.
    Failed,
}

impl Error {
    pub fn new(kind: Kind, operation: &'static str, subject: impl fmt::Display, cause: impl Into<String>) -> Error {
        Error { kind, operation, subject: subject.to_string(), source: Some(cause.into().into()) }
    }

    pub fn usage(subject: impl fmt::Display, cause: impl Into<String>) -> Error {
        Error::new(Kind::Usage, "read", subject, cause)
    }

    pub fn cancelled(operation: &'static str, subject: impl fmt::Display) -> Error {
        Error { kind: Kind::Cancelled, operation, subject: subject.to_string(), source: None }
    }

    /// For `map_err`: an error of the system on a path.
    pub fn io<E: Into<std::io::Error>>(operation: &'static str, path: impl AsRef<Path>) -> impl FnOnce(E) -> Error {
        let subject = path.as_ref().display().to_string();
        move |source| {
            let source: std::io::Error = source.into();
            let kind = match source.kind() {
                std::io::ErrorKind::StorageFull => Kind::NoSpace,
                std::io::ErrorKind::PermissionDenied => Kind::Denied,
                _ => Kind::Failed,
            };
            Error { kind, operation, subject, source: Some(source.into()) }
        }
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

impl From<lab::Error> for Error {
    fn from(error: lab::Error) -> Error {
        let kind = match error.kind {
            lab::Kind::Denied => Kind::Denied,
            lab::Kind::Missing => Kind::Missing,
            lab::Kind::Refused => Kind::Usage,
            lab::Kind::Failed => Kind::Failed,
        };
        Error { kind, operation: "use", subject: "a laboratory".into(), source: Some(error.into()) }
    }
}
