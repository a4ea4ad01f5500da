//! What can go wrong while a connection is made: a closed set of kinds, the operation, its subject and the cause.
//!
//! An established stream fails with `std::io::Error` instead, because its callers are byte loops.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use model::Pin;

/// Why a connection, listener or identity could not be made.
///
/// Shown as `operation subject: kind`, followed by the cause where the kind does not already say it.
#[derive(Debug)]
pub struct Error {
    pub kind: ErrorKind,
    /// A verb phrase, such as `connect to`.
    pub operation: &'static str,
    /// What it was done to: an address, a path.
    pub subject: Box<str>,
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The meanings an [`Error`] can have.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not `HOST:PORT`.
    InvalidAddress,
    /// No address belongs to the name, or the resolver failed.
    NameNotResolved,
    /// Nothing listens on that port.
    Refused,
    /// The network says that there is no way there.
    Unreachable,
    /// The connection, or the whole handshake, did not finish in its time.
    TimedOut,
    /// The peer, or something on the way, broke the connection.
    Reset,
    /// The peer proved possession of another key than the one pinned.
    IdentityChanged { expected: Pin, found: Pin },
    /// The peer answered with something that is not TLS.
    NotTls,
    /// The peer speaks TLS, but not version 1.3 with raw public keys, our protocol name and a cipher of both sides.
    IncompatiblePeer,
    /// The peer ended the handshake with an alert; on the listening side this is also what a wrong pin looks like.
    RefusedByPeer,
    /// A signature, a key or a message of the handshake was not valid.
    HandshakeInvalid,
    /// The kernel does not offer the congestion control asked for.
    CongestionUnavailable { requested: String, available: String },
    /// Somebody else already listens on the address.
    AddressInUse,
    /// The identity file can be read by others than its owner.
    IdentityExposed { mode: u32 },
    /// The identity file holds no Ed25519 key in PKCS#8 form.
    IdentityInvalid,
    /// Permission was denied by the operating system.
    PermissionDenied,
    /// Any other failure of the operating system.
    Io,
}

impl ErrorKind {
    /// Whether the same attempt may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            ErrorKind::NameNotResolved
                | ErrorKind::Refused
                | ErrorKind::Unreachable
                | ErrorKind::TimedOut
                | ErrorKind::Reset
                | ErrorKind::Io
        )
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::InvalidAddress => f.write_str("not an address of the form HOST:PORT"),
            ErrorKind::NameNotResolved => f.write_str("the name could not be resolved"),
            ErrorKind::Refused => {
                f.write_str("connection refused (nothing listens on that port, or a firewall refuses it)")
            }
            ErrorKind::Unreachable => f.write_str("unreachable"),
            ErrorKind::TimedOut => f.write_str("timed out"),
            ErrorKind::Reset => f.write_str("connection broken by the peer or the network"),
            ErrorKind::IdentityChanged { expected, found } => {
                write!(f, "the peer's identity is {found}, expected {expected}")
            }
            ErrorKind::NotTls => f.write_str("the peer does not speak TLS"),
            ErrorKind::IncompatiblePeer => {
                f.write_str("the peer speaks TLS, but not the version, protocol or cipher needed")
            }
            ErrorKind::RefusedByPeer => f.write_str("the peer ended the handshake"),
            ErrorKind::HandshakeInvalid => f.write_str("the handshake is not valid"),
            ErrorKind::CongestionUnavailable { requested, available } => {
                write!(f, "congestion control {requested} is not available here (available: {available})")
            }
            ErrorKind::AddressInUse => f.write_str("the address is in use"),
            ErrorKind::IdentityExposed { mode } => {
                write!(
                    f,
                    "the file's mode is {mode:04o}; a private key must not be accessible to group or others (0600)"
                )
            }
            ErrorKind::IdentityInvalid => f.write_str("not an Ed25519 private key in PKCS#8 form"),
            ErrorKind::PermissionDenied => f.write_str("permission denied"),
            ErrorKind::Io => f.write_str("failed"),
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: &'static str, subject: impl fmt::Display) -> Self {
        Self { kind, operation, subject: subject.to_string().into(), source: None }
    }

    pub(crate) fn caused(
        kind: ErrorKind,
        operation: &'static str,
        subject: impl fmt::Display,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { kind, operation, subject: subject.to_string().into(), source: Some(source.into()) }
    }

    /// Gives an error of the operating system its kind.
    pub fn from_io(operation: &'static str, subject: impl fmt::Display, source: io::Error) -> Self {
        let kind = match source.kind() {
            io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ErrorKind::TimedOut,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
            | io::ErrorKind::UnexpectedEof => ErrorKind::Reset,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable | io::ErrorKind::NetworkDown => {
                ErrorKind::Unreachable
            }
            io::ErrorKind::AddrInUse => ErrorKind::AddressInUse,
            io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
            _ => ErrorKind::Io,
        };
        Self::caused(kind, operation, subject, source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.subject, self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
