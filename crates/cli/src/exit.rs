//! How the program ends: an exit code for scripts, and for a person two lines that say what failed and what to do.
//!
//! The codes are `model::Exit` (docs/json.md lists them). Clap answers a wrong command line itself, with code 2.

use model::Exit;
use std::ffi::OsStr;

/// What failed, what to do about it, and the code.
pub use daemon::Error;
pub use transfer::plain;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error with both its lines.
pub fn error(exit: Exit, message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(exit, message).hint(hint)
}

/// The command line asks for something that makes no sense.
pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Error {
    error(Exit::Usage, message, hint)
}

/// A file that the program writes beside what it was asked for, such as a report, cannot be written: no file of the source,
/// and no place at the destination, is missing.
pub fn of_written(operation: &str, path: impl AsRef<OsStr>, cause: &std::io::Error) -> Error {
    transfer::Error::from_written(operation, path, cause).into()
}

/// An operation on a file of the user's that failed.
pub fn of_file(operation: &str, path: impl AsRef<OsStr>, cause: &std::io::Error) -> Error {
    transfer::Error::from_file(operation, path, cause).into()
}

/// An error of the storage as one of the program.
pub fn of_store(e: &store::Error, subject: &str) -> Error {
    transfer::Error::from_store(e, subject).into()
}

/// What to do when an error does not say it itself.
pub fn hint_for(exit: Exit) -> &'static str {
    match exit {
        Exit::Refused => "the reason is above: name another path or option, or ask the endpoint's operator",
        Exit::Fatal => "this is a bug in one of the two programs: report it with the output of THALWEG_LOG=debug",
        Exit::Temporary => "the same command continues where this one stopped",
        Exit::Usage => "`thalweg --help` lists the commands",
        _ => "THALWEG_LOG=debug shows more",
    }
}
