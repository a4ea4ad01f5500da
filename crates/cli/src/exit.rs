//! How the program ends: an exit code for scripts, and for a person two lines that say what failed and what to do.
//!
//! The codes are `model::Exit` (docs/json.md lists them). Clap answers a wrong command line by itself, with code 2.

use crate::output;
use model::Exit;
use model::name::Escaped;
use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

/// What failed, what to do about it, and the code.
pub use daemon::Error;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Shows the error, if there is one.
pub fn code(ended: Result<Exit>) -> ExitCode {
    let exit = ended.unwrap_or_else(|error| {
        output::error(&error);
        error.exit
    });
    ExitCode::from(exit as i32 as u8)
}

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
    use std::io::ErrorKind::*;
    let failed = of_file(operation, path, cause);
    match cause.kind() {
        NotFound => Error { exit: Exit::Failed, ..failed }.hint("make its directory first, or name a file elsewhere"),
        StorageFull | QuotaExceeded => {
            Error { exit: Exit::Failed, ..failed }.hint("make room there, or name a file elsewhere")
        }
        _ => failed,
    }
}

/// An operation on a file of the user's that failed.
pub fn of_file(operation: &str, path: impl AsRef<OsStr>, cause: &std::io::Error) -> Error {
    use std::io::ErrorKind::*;
    let (exit, hint) = match cause.kind() {
        NotFound => (Exit::SourceFileNotFound, "check the path"),
        PermissionDenied => (Exit::Failed, "give this user the right to it, or run as a user who has it"),
        StorageFull | QuotaExceeded => (Exit::NoSpace, "make room there first"),
        ReadOnlyFilesystem => (Exit::Failed, "name a place on a writable file system"),
        IsADirectory => (Exit::Usage, "name a file"),
        NotADirectory => (Exit::Usage, "a file stands where a directory is needed: check the path"),
        InvalidFilename => (Exit::Usage, "a name has at most 255 bytes, and a path 4,095: choose a shorter one"),
        AlreadyExists => (Exit::Failed, "choose another name, or remove the existing file"),
        _ => (Exit::Failed, "the operating system's reason is above"),
    };
    let path = Escaped(path.as_ref().as_bytes()).to_string();
    error(exit, format!("{operation} {path}: {}", plain(cause)), hint)
}

/// What to do when an error does not say it itself.
pub fn hint_for(exit: Exit) -> &'static str {
    match exit {
        Exit::Refused => "its configuration or its file system does not allow this; ask whoever runs the endpoint",
        Exit::Fatal => "this is a mistake in one of the two programs: report it with the output of THALWEG_LOG=debug",
        Exit::Temporary => "the same command continues where this one stopped",
        Exit::Usage => "`thalweg --help` lists the commands",
        _ => "THALWEG_LOG=debug shows more",
    }
}

/// The operating system's words without the number that people cannot use.
pub fn plain(cause: &impl Display) -> String {
    let text = cause.to_string();
    let end = text.rfind(" (os error").unwrap_or(text.len());
    Escaped(&text.as_bytes()[..end]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_without_its_directory_is_no_missing_source() {
        for errno in [2, 28, 122] {
            let error = of_written("write report", "no/dir/r", &std::io::Error::from_raw_os_error(errno));
            assert_eq!(error.exit, Exit::Failed);
            assert!(error.hint.is_some_and(|hint| hint.contains("name a file elsewhere")), "{}", error.message);
        }
        let error = of_written("write report", "d", &std::io::Error::from_raw_os_error(21));
        assert_eq!(error.exit, Exit::Usage);
    }

    #[test]
    fn an_error_on_a_file_shows_the_path_without_what_could_harm_a_terminal() {
        let cause = std::io::Error::from_raw_os_error(13);
        let error = of_file("open", "a\u{1b}[2Jb", &cause);
        assert_eq!(error.message, "open a\\x1b[2Jb: Permission denied");
        assert_eq!(error.exit, Exit::Failed);
        assert!(error.hint.is_some());
    }
}
