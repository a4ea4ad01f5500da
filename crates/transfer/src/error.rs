//! Why a transfer ended, or did not begin: a kind for programs, what it is about, and for people what failed and what to do.
//!
//! Invariant: no text holds a secret or anything that could control a terminal.

use model::name::Escaped;
use model::{Exit, FailureKind, Location, TransferSpec};
use mover::session::{ConnectError, TAKEN_OVER};
use mover::{CloseCode, Refusal};
use net::ErrorKind;
use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::io;
use std::os::unix::ffi::OsStrExt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What an endpoint answers a client that lacks a right.
pub const MAY_ONLY_READ: &str = "this client may only read here";
pub const MAY_ONLY_WRITE: &str = "this client may only write here";
/// What it answers to a path that it does not serve, and, behind a path, to one that the client's ticket does not cover.
pub const LEAVES_ROOT: &str = "paths are relative to the endpoint's root and cannot leave it";
pub const NOTHING_ELSE: &str = "and what is below it, nothing else";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Something on this host, or of its storage, that has no kind of its own.
    Failed,
    /// What was asked for makes no sense.
    Request,
    SourceNotFound,
    SourceDirectoryNotFound,
    /// Worth trying again: what is verified is kept.
    Temporary,
    Refused,
    /// One of the two programs is at fault.
    Fault,
    TransferLimit,
    /// Not all is at its destination: the rest waits in the far endpoint's buffer, as was asked for.
    Buffered,
    DurationLimit,
    /// More would be removed than was allowed.
    RemovalLimit,
    /// Objects were left out, for several reasons or for others than those below.
    Partial,
    /// Objects changed or vanished while they were read.
    Changed,
    /// Data changed on its way to storage.
    Integrity,
    Authentication,
    Version,
    Unreachable,
    NoSpace,
    /// The other side ended it, or a newer attempt took over.
    Cancelled,
    /// `Transfer::cancel`, or the flag that stands for it.
    Stopped,
}

pub(crate) const PIPE_ADVICE: &str = "a copy through a pipe cannot be resumed: nothing was published";
/// What standard output says of anything but its one file (`store::pipe`).
pub(crate) const NO_TREE: &str = "standard output takes one file, not a tree";
/// How advice begins that is of no use where the same cannot be sent again.
const CONTINUES: &str = "the same command continues";
const FORMS_ADVICE: &str =
    "a location is PATH, NAME:PATH, USER@HOST:PATH, tw://ADDR:PORT/PATH, `-`, gen:COUNTxSIZE or null:";
const XROOTD_ADVICE: &str =
    "an XRootD server is reached by WebDAV: name davs://HOST:PORT/PATH, with the port of its HTTP (docs/webdav.md)";
const GOOGLE_ADVICE: &str = "Google's buckets are reached by their S3 interface: describe a store with endpoint = \
    \"https://storage.googleapis.com\" (docs/object-stores.md)";
const AZURE_ADVICE: &str = "there is no store for Azure Blob Storage: copy from or to a mount of it";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    pub kind: Kind,
    /// The endpoint, host, path or option that it is about; empty where it is about the transfer.
    pub subject: String,
    /// What failed, in one line that stands for itself.
    pub text: String,
    /// What to do about it.
    pub advice: Option<String>,
}

impl Error {
    pub fn new(kind: Kind, subject: impl Into<String>, text: impl Into<String>) -> Error {
        Error { kind, subject: subject.into(), text: text.into(), advice: None }
    }

    pub fn advice(mut self, advice: impl Into<String>) -> Error {
        self.advice = Some(advice.into());
        self
    }

    /// What was asked for makes no sense.
    pub fn request(text: impl Into<String>, advice: impl Into<String>) -> Error {
        Error::new(Kind::Request, "", text).advice(advice)
    }

    /// It was asked to stop, and can go on later.
    pub(crate) fn stopped(spec: &TransferSpec) -> Error {
        match spec.has_pipe() {
            true => Error::new(Kind::Stopped, "", "stopped").advice(PIPE_ADVICE),
            false => Error::new(Kind::Stopped, "", "stopped; what was verified is kept")
                .advice("the same request continues where this one stopped"),
        }
    }

    /// What came by a pipe cannot be sent again: nothing says that the same command goes on with it.
    pub(crate) fn of_pipe(self) -> Error {
        let advice = match self.advice {
            Some(advice) => Some(match advice.find(CONTINUES) {
                Some(at) => format!("{}{PIPE_ADVICE}", &advice[..at]),
                None => advice,
            }),
            None => (self.kind == Kind::Temporary).then(|| PIPE_ADVICE.to_owned()),
        };
        Error { advice, ..self }
    }

    /// What comes in by a pipe needs a name at the destination.
    pub(crate) fn no_name() -> Error {
        Error::request(
            "standard input has no name of its own",
            "name the file at the destination, such as lab:results.tar",
        )
    }

    pub(crate) fn directory_to_pipe(source: &Location) -> Error {
        let text = format!("{source} is a directory: {NO_TREE}");
        Error::request(text, "name a file; `thalweg ls` lists what is there")
    }

    /// A refusal that the endpoint `name` sent: of the session, or of a job.
    pub fn from_refusal(name: &str, refusal: &Refusal) -> Error {
        let (kind, advice) = match refusal.code {
            CloseCode::Authentication => {
                (Kind::Authentication, Some("ask for a ticket of this endpoint and run `thalweg endpoint add`"))
            }
            CloseCode::Version => {
                (Kind::Version, Some("bring the other side up to date, or this one if its versions are lower"))
            }
            CloseCode::NotFound => (Kind::SourceNotFound, Some("paths are relative to the endpoint's root")),
            CloseCode::Forbidden => (Kind::Refused, way_out(&refusal.text)),
            CloseCode::NoSpace => {
                (Kind::NoSpace, Some("make room at the destination; the same command continues where it stopped"))
            }
            CloseCode::Reached => (Kind::TransferLimit, Some("the same command continues where this one stopped")),
            CloseCode::Cancelled if refusal.text == TAKEN_OVER => {
                (Kind::Cancelled, Some("no action is needed: the newer run continues from what this one delivered"))
            }
            CloseCode::Cancelled => (Kind::Cancelled, Some("the same command continues where it stopped")),
            CloseCode::Busy | CloseCode::Internal | CloseCode::NoProgress => {
                (Kind::Temporary, Some("try again later; the same command continues where it stopped"))
            }
            CloseCode::Done | CloseCode::Malformed | CloseCode::WrongState | CloseCode::Limit => (Kind::Fault, None),
        };
        let error = Error::new(kind, name, format!("{name}: {refusal}"));
        Error { advice: advice.map(str::to_owned), ..error }
    }

    /// No session with the endpoint `name` came about.
    pub fn from_connect(name: &str, error: &ConnectError) -> Error {
        match error {
            ConnectError::Net(error) => Error::from_net(name, error),
            ConnectError::Refused(refusal) => Error::from_refusal(name, refusal),
            ConnectError::Lost(why) => {
                Error::new(Kind::Unreachable, name, format!("{name}: {}", Escaped(why.as_bytes())))
                    .advice("try again; if this persists, look at the endpoint's log")
            }
        }
    }

    /// A failed connection to the endpoint `name`.
    pub fn from_net(name: &str, error: &net::Error) -> Error {
        let (kind, advice) = match &error.kind {
            ErrorKind::Refused => (Kind::Unreachable, "is `thalweg serve` running there, and is the port right?"),
            ErrorKind::NameNotResolved => (Kind::Unreachable, "check the host name; `serve --advertise` sets it"),
            ErrorKind::Unreachable | ErrorKind::TimedOut => {
                (Kind::Unreachable, "check the address, the network and any firewall on the path")
            }
            ErrorKind::Reset => (Kind::Unreachable, "try again; if this persists, look at the endpoint's log"),
            ErrorKind::IdentityChanged { .. } => (
                Kind::Authentication,
                "something else answers at this address, or the endpoint has a new identity; if you expected that, ask \
                 for a new ticket and run `thalweg endpoint add --replace`",
            ),
            ErrorKind::IncompatiblePeer => (
                Kind::Version,
                "check the address and the port, whether both sides allow a common --cipher, and whether the service there \
                 is a Thalweg endpoint of a version that this program can talk to",
            ),
            ErrorKind::NotTls | ErrorKind::RefusedByPeer => (
                Kind::Version,
                "check the address and the port: the service there is not a Thalweg endpoint, or has a version that this \
                 program cannot talk to",
            ),
            ErrorKind::HandshakeInvalid => (Kind::Authentication, "something on the path modifies the connection"),
            ErrorKind::InvalidAddress => (Kind::Request, "addresses are HOST:PORT, with IPv6 in brackets: [::1]:7740"),
            ErrorKind::CongestionUnavailable { .. } => (Kind::Request, "omit --cc, or load the kernel's module"),
            ErrorKind::AddressInUse => (Kind::Failed, "another process listens there; choose another port"),
            ErrorKind::IdentityExposed { .. } => (Kind::Refused, "set the file's mode to 0600 if nobody else read it"),
            ErrorKind::IdentityInvalid => (Kind::Failed, "restore the file; if it is removed, a new identity is made"),
            ErrorKind::PermissionDenied => (Kind::Failed, "ports below 1024 and other users' files need more rights"),
            _ => (Kind::Failed, "the operating system's reason is above"),
        };
        let mut text = format!("{name}: {error}");
        if let Some(cause) = &error.source
            && matches!(error.kind, ErrorKind::Io | ErrorKind::NameNotResolved)
        {
            text = format!("{text}: {}", plain(cause));
        }
        Error::new(kind, name, text).advice(advice)
    }

    /// An operation on a file of this host that failed.
    pub fn from_file(operation: &str, path: impl AsRef<OsStr>, cause: &io::Error) -> Error {
        use io::ErrorKind::*;
        let (kind, advice) = match cause.kind() {
            NotFound => (Kind::SourceNotFound, "check the path"),
            PermissionDenied => (Kind::Failed, "give this user permission, or run as a user who has it"),
            StorageFull | QuotaExceeded => (Kind::NoSpace, "make room there first"),
            ReadOnlyFilesystem => (Kind::Failed, "name a place on a writable file system"),
            IsADirectory => (Kind::Request, "name a file"),
            NotADirectory => (Kind::Request, "a file stands where a directory is needed: check the path"),
            InvalidFilename => (Kind::Request, "a name has at most 255 bytes, and a path 4,095: choose a shorter one"),
            AlreadyExists => (Kind::Failed, "choose another name, or remove the existing file"),
            _ => (Kind::Failed, "the operating system's reason is above"),
        };
        let path = Escaped(path.as_ref().as_bytes()).to_string();
        let text = format!("{operation} {path}: {}", plain(cause));
        Error::new(kind, path, text).advice(advice)
    }

    /// A file that is written beside what was asked for, such as a report, could not be: no file of the source, and no place at the
    /// destination, is missing.
    pub fn from_written(operation: &str, path: impl AsRef<OsStr>, cause: &io::Error) -> Error {
        use io::ErrorKind::*;
        let failed = Error::from_file(operation, path, cause);
        match cause.kind() {
            NotFound => {
                Error { kind: Kind::Failed, ..failed }.advice("make its directory first, or name a file elsewhere")
            }
            StorageFull | QuotaExceeded => {
                Error { kind: Kind::Failed, ..failed }.advice("make room there, or name a file elsewhere")
            }
            AlreadyExists => failed.advice("name a new file, or one that may be replaced"),
            _ => failed,
        }
    }

    /// An error of storage, on what the user calls `subject`.
    pub fn from_store(e: &store::Error, subject: &str) -> Error {
        use FailureKind as Failure;
        let (kind, advice) = match e.kind {
            Failure::NotFound => (Kind::SourceNotFound, "check the path"),
            Failure::Permission => (Kind::Failed, "give this user permission, or run as a user who has it"),
            Failure::NoSpace => {
                (Kind::NoSpace, "make room at the destination; the same command continues where it stopped")
            }
            Failure::ReadOnly => (Kind::Failed, "name a place on a writable file system"),
            Failure::InTheWay => (Kind::Request, "an object of another kind is there: check the path"),
            Failure::NameRefused => (Kind::Request, "check the path"),
            _ => (Kind::Failed, "the operating system's reason is above"),
        };
        let text = match e.subject.is_empty() {
            true => format!("{} {subject}: {}", e.operation, plain(&e.source)),
            false => e.to_string(),
        };
        Error::new(kind, subject, text).advice(advice)
    }

    /// A location that could not be opened.
    pub fn from_open(e: &store::OpenError) -> Error {
        use store::OpenError;
        use store::open::Refused;
        match e {
            OpenError::NoStore(scheme) => {
                let advice = match &scheme[..] {
                    "root" | "roots" | "xroot" | "xroots" => XROOTD_ADVICE,
                    "gs" => GOOGLE_ADVICE,
                    "az" => AZURE_ADVICE,
                    _ => FORMS_ADVICE,
                };
                Error::new(Kind::Request, scheme.clone(), e.to_string()).advice(advice)
            }
            OpenError::Nameless => Error::no_name(),
            OpenError::Name { path, .. } => shown(path, e).advice("check the path"),
            OpenError::NoDirectory(path) => shown(path, e).advice("name a directory as the destination"),
            OpenError::Refused { why, text, advice } => {
                let kind = match why {
                    Refused::Request | Refused::Unable => Kind::Request,
                    Refused::Keys | Refused::Untrusted => Kind::Authentication,
                    Refused::Missing => Kind::SourceDirectoryNotFound,
                    Refused::Unreachable => Kind::Unreachable,
                };
                Error::new(kind, "", text.clone()).advice(advice.clone())
            }
            OpenError::Source { path, error } => {
                let mut failed = Error::from_store(error, &Escaped(path).to_string());
                let is_missing = matches!(error.kind, FailureKind::NotFound | FailureKind::InTheWay);
                if is_missing && path.ends_with(b"/") {
                    failed.kind = Kind::SourceDirectoryNotFound;
                }
                failed
            }
            OpenError::Destination { operation, path, error } => {
                let mut failed = Error::from_file(operation, OsStr::from_bytes(path), error);
                if *operation == "make directory" && failed.kind == Kind::SourceNotFound {
                    // A missing source has a kind of its own; this is the destination.
                    failed.kind = Kind::Failed;
                }
                failed
            }
        }
    }

    /// What the failures of a run that ended in order come to; nothing where there are none.
    pub fn kind_of_failures(kinds: impl IntoIterator<Item = FailureKind>) -> Option<Kind> {
        match Exit::from_failures(kinds) {
            Exit::Done => None,
            Exit::Integrity => Some(Kind::Integrity),
            Exit::NoSpace => Some(Kind::NoSpace),
            Exit::Changed => Some(Kind::Changed),
            _ => Some(Kind::Partial),
        }
    }
}

fn shown(path: &[u8], e: &store::OpenError) -> Error {
    Error::new(Kind::Request, Escaped(path).to_string(), e.to_string())
}

/// What to do about a right that is missing.
fn way_out(text: &str) -> Option<&'static str> {
    match text {
        _ if text.contains(", and --") => {
            Some("omit that option, or ask for a ticket that also allows reading (docs/rights.md)")
        }
        _ if text.contains(MAY_ONLY_WRITE) => {
            Some("its ticket is write-only: send with `cp`, or ask for one that allows reading (docs/rights.md)")
        }
        _ if text.contains(MAY_ONLY_READ) => {
            Some("its ticket is read-only: ask for one that allows writing (docs/rights.md)")
        }
        _ if text.ends_with(NOTHING_ELSE) => {
            Some("its ticket is limited to that path: name something below it, or ask for another ticket")
        }
        _ if text.ends_with(LEAVES_ROOT) => {
            Some("omit the leading slash or the `..`: paths begin at the endpoint's root")
        }
        _ => None,
    }
}

/// The reason of a failure, as it stands behind the path of its object: that this was looked at need not be said.
pub fn reason(text: &str) -> &str {
    text.strip_prefix("look at: ").unwrap_or(text)
}

/// The operating system's words without the number that people cannot use.
pub fn plain(cause: &impl Display) -> String {
    let text = cause.to_string();
    let text = reason(&text);
    let end = text.rfind(" (os error").unwrap_or(text.len());
    Escaped(&text.as_bytes()[..end]).to_string()
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peers_words_cannot_control_the_terminal() {
        let refusal = Refusal::new(CloseCode::Internal, "\u{1b}[2J\u{202e}gone");
        for error in [
            Error::from_refusal("lab", &refusal),
            Error::from_connect("lab", &ConnectError::Lost(refusal.text.clone())),
        ] {
            assert!(!error.text.contains(['\u{1b}', '\u{202e}']), "{error:?}");
            assert_eq!(error.subject, "lab");
        }
    }

    #[test]
    fn nothing_says_that_a_copy_from_a_pipe_goes_on() {
        let full = Error::from_refusal("lab", &Refusal::new(CloseCode::NoSpace, "full")).of_pipe();
        assert_eq!(full.advice, Some(format!("make room at the destination; {PIPE_ADVICE}")));
        let lost = Error::new(Kind::Temporary, "", "lost");
        for error in [lost.clone(), lost.advice("the same command continues where this one stopped")] {
            assert_eq!(error.of_pipe().advice.as_deref(), Some(PIPE_ADVICE));
        }
        let refused = Error::new(Kind::Refused, "", "no").advice("name another path");
        assert_eq!(refused.clone().of_pipe(), refused);
        for code in CloseCode::ALL {
            let advice = Error::from_refusal("lab", &Refusal::new(code, "why")).of_pipe().advice;
            assert!(!advice.is_some_and(|advice| advice.contains(CONTINUES)), "{code:?}");
        }
    }

    #[test]
    fn what_an_object_was_looked_at_for_is_not_said_behind_its_path() {
        assert_eq!(reason("look at: Permission denied"), "Permission denied");
        assert_eq!(plain(&"look at: Permission denied (os error 13)"), "Permission denied");
        assert_eq!(plain(&"open file: Permission denied"), "open file: Permission denied");
    }

    #[test]
    fn a_dead_address_is_unreachable_and_a_wrong_one_is_the_users_mistake() {
        let error = Error::from_net("lab", &net::resolve("no-port").unwrap_err());
        assert_eq!(error.kind, Kind::Request);
        assert!(error.advice.is_some());
    }

    #[test]
    fn a_written_file_without_its_directory_is_no_missing_source() {
        for errno in [2, 28, 122] {
            let error = Error::from_written("write report", "no/dir/r", &io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind, Kind::Failed);
            assert!(error.advice.is_some_and(|advice| advice.contains("name a file elsewhere")), "{}", error.text);
        }
        let error = Error::from_written("write report", "d", &io::Error::from_raw_os_error(21));
        assert_eq!(error.kind, Kind::Request);
    }

    #[test]
    fn an_xrootd_server_is_said_to_be_reached_by_webdav() {
        let error = |scheme: &str| Error::from_open(&store::OpenError::NoStore(scheme.to_owned()));
        for scheme in ["root", "roots", "xroot", "xroots"] {
            assert_eq!(error(scheme).text, format!("this build has no store for {scheme}://"));
            assert!(error(scheme).advice.is_some_and(|advice| advice.contains("name davs://HOST:PORT/PATH")));
        }
        assert!(error("gs").advice.is_some_and(|advice| advice.contains("storage.googleapis.com")));
        assert!(error("b2").advice.is_some_and(|advice| advice.starts_with("a location is PATH")));
    }

    #[test]
    fn an_error_on_a_file_shows_the_path_without_what_could_harm_a_terminal() {
        let error = Error::from_file("open", "a\u{1b}[2Jb", &io::Error::from_raw_os_error(13));
        assert_eq!(error.text, "open a\\x1b[2Jb: Permission denied");
        assert_eq!((error.kind, &error.subject[..]), (Kind::Failed, "a\\x1b[2Jb"));
        assert!(error.advice.is_some());
    }
}
