//! The crate's error: what a person reads, what they can do, and the exit code that tells a script which class it is.

use crate::host::rights;
use model::Exit;
use model::name::Escaped;
use mover::session::ConnectError;
use net::ErrorKind;
use std::fmt;
use std::io;
use std::path::Path;
use wire::{CloseCode, Refusal};

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
        let (exit, hint) = match refusal.code {
            CloseCode::Authentication => {
                (Exit::Authentication, Some("ask for a ticket of this endpoint and run `thalweg endpoint add`"))
            }
            CloseCode::Version => {
                (Exit::Version, Some("bring the other side up to date, or this one if its versions are lower"))
            }
            CloseCode::NotFound => (Exit::SourceFileNotFound, Some("paths are relative to the endpoint's root")),
            CloseCode::Forbidden => (Exit::Refused, way_out(&refusal.text)),
            CloseCode::NoSpace => {
                (Exit::NoSpace, Some("make room at the destination; the same command continues where it stopped"))
            }
            CloseCode::Reached => (Exit::TransferLimit, Some("the same command goes on where this one stopped")),
            CloseCode::Cancelled => (Exit::Cancelled, Some("the same command continues where it stopped")),
            CloseCode::Busy | CloseCode::Internal | CloseCode::NoProgress => {
                (Exit::Temporary, Some("try again later; the same command continues where it stopped"))
            }
            CloseCode::Done | CloseCode::Malformed | CloseCode::WrongState | CloseCode::Limit => (Exit::Fatal, None),
        };
        let error = Error::new(exit, format!("{name}: {refusal}"));
        Error { hint: hint.map(str::to_owned), ..error }
    }

    /// No session with the endpoint `name` came about.
    pub fn from_connect(name: &str, error: &ConnectError) -> Error {
        match error {
            ConnectError::Net(error) => Error::from_net(name, error),
            ConnectError::Refused(refusal) => Error::from_refusal(name, refusal),
            ConnectError::Lost(why) => Error::new(Exit::Unreachable, format!("{name}: {}", Escaped(why.as_bytes())))
                .hint("try again; if this persists, look at the endpoint's log"),
        }
    }

    /// A failed connection to the endpoint `name`.
    pub fn from_net(name: &str, error: &net::Error) -> Error {
        let (exit, hint) = match &error.kind {
            ErrorKind::Refused => (Exit::Unreachable, "is `thalweg serve` running there, and is the port right?"),
            ErrorKind::NameNotResolved => (Exit::Unreachable, "check the host name; `serve --advertise` sets it"),
            ErrorKind::Unreachable | ErrorKind::TimedOut => {
                (Exit::Unreachable, "check the address, the network and any firewall on the path")
            }
            ErrorKind::Reset => (Exit::Unreachable, "try again; if this persists, look at the endpoint's log"),
            ErrorKind::IdentityChanged { .. } => (
                Exit::Authentication,
                "something else answers at this address, or the endpoint has a new identity; if you expected that, ask \
                 for a new ticket and run `thalweg endpoint add --replace`",
            ),
            ErrorKind::NotTls | ErrorKind::IncompatiblePeer | ErrorKind::RefusedByPeer => (
                Exit::Version,
                "check the address and the port: the service there is not a Thalweg endpoint, or has a version that this \
                 program cannot talk to",
            ),
            ErrorKind::HandshakeInvalid => (Exit::Authentication, "something on the path modifies the connection"),
            ErrorKind::InvalidAddress => (Exit::Usage, "addresses are HOST:PORT, with IPv6 in brackets: [::1]:7740"),
            ErrorKind::CongestionUnavailable { .. } => (Exit::Usage, "omit --cc, or load the kernel's module"),
            ErrorKind::AddressInUse => (Exit::Failed, "another process listens there; choose another port"),
            ErrorKind::IdentityExposed { .. } => (Exit::Refused, "set the file's mode to 0600 if nobody else read it"),
            ErrorKind::IdentityInvalid => (Exit::Failed, "restore the file; if it is removed, a new identity is made"),
            ErrorKind::PermissionDenied => (Exit::Failed, "ports below 1024 and other users' files need more rights"),
            _ => (Exit::Failed, "the operating system's reason is above"),
        };
        let mut message = format!("{name}: {error}");
        if let Some(cause) = &error.source {
            let cause = cause.to_string();
            if error.kind == ErrorKind::Io || error.kind == ErrorKind::NameNotResolved {
                message = format!("{message}: {}", Escaped(cause.as_bytes()));
            }
        }
        Error::new(exit, message).hint(hint)
    }

    /// A failed operation on one of the program's own files.
    pub(crate) fn of_file(operation: &str, path: &Path, error: io::Error) -> Error {
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

/// What to do about a right that is missing.
fn way_out(text: &str) -> Option<&'static str> {
    match text {
        _ if text.contains(", and --") => {
            Some("omit that option, or ask for a ticket that also allows reading (docs/rights.md)")
        }
        _ if text.contains(rights::MAY_ONLY_WRITE) => {
            Some("its ticket is write-only: send with `cp`, or ask for one that allows reading (docs/rights.md)")
        }
        _ if text.contains(rights::MAY_ONLY_READ) => {
            Some("its ticket is read-only: ask for one that allows writing (docs/rights.md)")
        }
        _ => None,
    }
}

/// A path as it may stand in a message.
pub(crate) fn shown(path: &Path) -> String {
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

    #[test]
    fn refusals_have_the_exit_codes_that_scripts_rely_on() {
        let exit = |code| Error::from_refusal("lab", &Refusal::new(code, "why")).exit;
        assert_eq!(exit(CloseCode::Authentication), Exit::Authentication);
        assert_eq!(exit(CloseCode::Version), Exit::Version);
        assert_eq!(exit(CloseCode::NoSpace), Exit::NoSpace);
        assert_eq!(exit(CloseCode::Busy), Exit::Temporary);
        assert_eq!(exit(CloseCode::Forbidden), Exit::Refused);
    }

    #[test]
    fn a_peers_words_cannot_control_the_terminal() {
        let refusal = Refusal::new(CloseCode::Internal, "\u{1b}[2J\u{202e}gone");
        for error in [
            Error::from_refusal("lab", &refusal),
            Error::from_connect("lab", &ConnectError::Lost(refusal.text.clone())),
        ] {
            assert!(!error.message.contains(['\u{1b}', '\u{202e}']), "{error:?}");
        }
    }

    #[test]
    fn a_dead_address_is_unreachable_and_a_wrong_one_is_the_users_mistake() {
        let error = |address: &str| Error::from_net("lab", &net::resolve(address).unwrap_err());
        assert_eq!(error("no-port").exit, Exit::Usage);
        assert!(error("no-port").hint.is_some());
    }
}
