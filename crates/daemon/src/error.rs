//! The crate's error: what a person reads, what they can do, and the exit code that tells a script which class it is.

use model::Exit;
use model::name::Escaped;
use mover::session::ConnectError;
use std::fmt;
use std::io;
use std::path::Path;
use transfer::Kind;
use wire::Refusal;

pub type Result<T> = std::result::Result<T, Error>;

/// `message` is the first line, `hint` the second. Neither holds a secret or anything that could control a terminal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    pub exit: Exit,
    pub message: String,
    pub hint: Option<String>,
}

impl Error {
    pub fn new(exit: Exit, message: impl Into<String>) -> Error {
        Error { exit, message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// A refusal that the endpoint `name` sent: of the session, or of a job.
    pub fn from_refusal(name: &str, refusal: &Refusal) -> Error {
        transfer::Error::from_refusal(name, refusal).into()
    }

    /// No session with the endpoint `name` came about.
    pub fn from_connect(name: &str, error: &ConnectError) -> Error {
        transfer::Error::from_connect(name, error).into()
    }

    /// A failed connection to the endpoint `name`.
    pub fn from_net(name: &str, error: &net::Error) -> Error {
        transfer::Error::from_net(name, error).into()
    }

    /// A failed operation on one of the program's own files.
    pub fn of_file(operation: &str, path: &Path, error: io::Error) -> Error {
        let hint = match error.kind() {
            io::ErrorKind::PermissionDenied => Some("this user must own the directory and be able to write to it"),
            io::ErrorKind::ReadOnlyFilesystem => Some("name a directory on a writable file system"),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some("free some space first"),
            io::ErrorKind::NotFound => Some("check the path; directories must already exist"),
            io::ErrorKind::NotADirectory => Some("a file stands where a directory is needed: check the path"),
            _ => None,
        };
        let reason = error.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        let error = Error::new(Exit::Failed, format!("{operation} {}: {reason}", shown(path)));
        Error { hint: hint.map(str::to_owned), ..error }
    }
}

impl From<transfer::Error> for Error {
    fn from(error: transfer::Error) -> Error {
        Error { exit: exit_of(error.kind), message: error.text, hint: error.advice }
    }
}

/// The exit code of a kind of error. The program knows which signal stopped it, and puts that in its place.
fn exit_of(kind: Kind) -> Exit {
    match kind {
        Kind::Failed => Exit::Failed,
        Kind::Request => Exit::Usage,
        Kind::SourceNotFound => Exit::SourceFileNotFound,
        Kind::SourceDirectoryNotFound => Exit::SourceDirectoryNotFound,
        Kind::Temporary => Exit::Temporary,
        Kind::Refused => Exit::Refused,
        Kind::Fault => Exit::Fatal,
        Kind::TransferLimit => Exit::TransferLimit,
        Kind::Buffered => Exit::Buffered,
        Kind::DurationLimit => Exit::DurationLimit,
        Kind::RemovalLimit => Exit::LimitCrossed,
        Kind::Partial => Exit::Partial,
        Kind::Changed => Exit::Changed,
        Kind::Integrity => Exit::Integrity,
        Kind::Authentication => Exit::Authentication,
        Kind::Version => Exit::Version,
        Kind::Unreachable => Exit::Unreachable,
        Kind::NoSpace => Exit::NoSpace,
        Kind::Cancelled => Exit::Cancelled,
        Kind::Stopped => Exit::Interrupted,
    }
}

impl From<Error> for transfer::Error {
    fn from(error: Error) -> transfer::Error {
        transfer::Error { kind: kind_of(error.exit), subject: String::new(), text: error.message, advice: error.hint }
    }
}

fn kind_of(exit: Exit) -> Kind {
    match exit {
        Exit::Done | Exit::Failed | Exit::Inconclusive | Exit::OutOfReach | Exit::BrokenPipe => Kind::Failed,
        Exit::Usage => Kind::Request,
        Exit::SourceFileNotFound => Kind::SourceNotFound,
        Exit::SourceDirectoryNotFound => Kind::SourceDirectoryNotFound,
        Exit::Temporary => Kind::Temporary,
        Exit::Refused => Kind::Refused,
        Exit::Fatal => Kind::Fault,
        Exit::TransferLimit => Kind::TransferLimit,
        Exit::Buffered => Kind::Buffered,
        Exit::DurationLimit => Kind::DurationLimit,
        Exit::LimitCrossed => Kind::RemovalLimit,
        Exit::Partial => Kind::Partial,
        Exit::Changed => Kind::Changed,
        Exit::Integrity => Kind::Integrity,
        Exit::Authentication => Kind::Authentication,
        Exit::Version => Kind::Version,
        Exit::Unreachable => Kind::Unreachable,
        Exit::NoSpace => Kind::NoSpace,
        Exit::Cancelled => Kind::Cancelled,
        Exit::Interrupted | Exit::Terminated => Kind::Stopped,
    }
}

/// Where a text is no TOML, and why: without the lines around it.
pub fn not_toml(text: &str, e: &toml::de::Error) -> String {
    let before = text.get(..e.span().map_or(0, |span| span.start)).unwrap_or_default();
    let (line, column) = (before.matches('\n').count(), before.chars().rev().take_while(|c| *c != '\n').count());
    format!("line {}, column {}: {}", line + 1, column + 1, e.message().trim_end().replace('\n', "; "))
}

/// A path as it may stand in a message.
pub fn shown(path: &Path) -> String {
    Escaped(path.as_os_str().as_encoded_bytes()).to_string()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::CloseCode;

    #[test]
    fn an_error_of_a_transfer_keeps_its_exit_code_there_and_back() {
        for exit in [Exit::Usage, Exit::Refused, Exit::Unreachable, Exit::Temporary, Exit::LimitCrossed, Exit::Fatal] {
            let error = Error::new(exit, "why").hint("what to do");
            assert_eq!(Error::from(transfer::Error::from(error.clone())), error);
        }
    }

    #[test]
    fn what_is_no_toml_is_told_in_one_line_with_its_place() {
        for (text, told) in [
            ("a = 1\nb = [1\n", "line 2, column 7: unclosed array, expected `]`"),
            ("a = 'ä'\n[b\n", "line 2, column 3: unclosed table, expected `]`"),
            ("a = 1\na = 2\n", "line 2, column 1: duplicate key"),
        ] {
            let error = toml::from_str::<toml::Table>(text).unwrap_err();
            assert_eq!(not_toml(text, &error), told);
        }
    }

    #[test]
    fn refusals_have_the_exit_codes_that_scripts_rely_on() {
        let exit = |code| Error::from_refusal("lab", &Refusal::new(code, "why")).exit;
        assert_eq!(exit(CloseCode::Authentication), Exit::Authentication);
        assert_eq!(exit(CloseCode::Version), Exit::Version);
        assert_eq!(exit(CloseCode::NoSpace), Exit::NoSpace);
        assert_eq!(exit(CloseCode::Busy), Exit::Temporary);
        assert_eq!(exit(CloseCode::Forbidden), Exit::Refused);
    }
}
