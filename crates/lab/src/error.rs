//! What kept a laboratory from being made or used.

use std::io;
use std::path::Path;

/// One line: what was tried, on what, why it failed; and how to mend it.
#[derive(thiserror::Error, Debug)]
#[error("{operation}{}{subject}: {source}", if operation.is_empty() { "" } else { " " })]
pub struct Error {
    pub kind: Kind,
    /// Empty where the subject says it all.
    pub operation: &'static str,
    pub subject: String,
    /// What the system said, or what a command wrote to its standard error.
    pub source: io::Error,
    pub hint: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not allowed: needs root, or the right to make user namespaces.
    Denied,
    /// A program or kernel feature that is needed is not there.
    Missing,
    /// What was asked for makes no sense or is in use.
    Refused,
    /// A command or system call failed.
    Failed,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub fn io(operation: &'static str, subject: &Path, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => Kind::Denied,
            io::ErrorKind::NotFound => Kind::Missing,
            _ => Kind::Failed,
        };
        Error { kind, operation, subject: subject.display().to_string(), source, hint: None }
    }

    pub fn new(kind: Kind, operation: &'static str, subject: impl Into<String>, said: impl Into<String>) -> Error {
        Error { kind, operation, subject: subject.into(), source: io::Error::other(said.into()), hint: None }
    }

    /// `hint` says how to mend it.
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }
}

impl From<crate::scenario::Error> for Error {
    fn from(error: crate::scenario::Error) -> Error {
        Error::new(Kind::Refused, "", error.subject, error.problem)
    }
}
