//! The one error of this crate: a kind to decide by, and what happened to which host.

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The URL or the certificates that were named cannot be used.
    Settings,
    /// Nobody answers there: no address, or no connection.
    Unreachable,
    /// The other side is not who its name says, or speaks no TLS that this client does.
    Untrusted,
    /// No progress for too long.
    TimedOut,
    /// The connection ended early.
    Lost,
    /// What came is not HTTP, or exceeds a bound.
    Malformed,
    /// This process was told to stop.
    Stopped,
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Error {
    pub kind: ErrorKind,
    pub text: String,
}

impl Error {
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// Of a connection that was there.
    pub(crate) fn from_io(host: &str, error: &std::io::Error) -> Error {
        use std::io::ErrorKind as Io;
        let (kind, text) = match error.kind() {
            Io::WouldBlock | Io::TimedOut => {
                (ErrorKind::TimedOut, format!("{host} made no progress for {} s", crate::PROGRESS_MAX.as_secs()))
            }
            // What rustls found wrong with the other side.
            Io::InvalidData => (ErrorKind::Untrusted, format!("no secure connection to {host}: {error}")),
            _ => (ErrorKind::Lost, format!("the connection to {host} was lost: {}", plain(error))),
        };
        Error { kind, text }
    }
}

/// The operating system's words without the number behind them.
pub(crate) fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
