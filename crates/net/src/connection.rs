//! A TCP connection over which both ends have proved who they are, and the two ways to one.
//!
//! Invariant: there is none before its handshake has succeeded.
//!
//! Not here: whether a listening side wants to deal with the key that dialled (see [`Connection::peer_pin`]); the bytes that it
//! carries (`stream`, `control`).

use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use model::Pin;

use crate::cipher;
use crate::error::Error;
use crate::handshake::{self, Established};
use crate::identity::sha256;
use crate::tls::{ClientTls, ServerTls};

/// Performs the listening side's handshake on an accepted connection. All of it has to be over by `deadline`.
pub fn accept_tls(tcp: TcpStream, tls: &ServerTls, deadline: Instant) -> Result<Connection, Error> {
    Connection::establish(tcp, "accept connection from", |tcp| handshake::accept(tcp, tls, deadline))
}

/// Performs the dialling side's handshake on a connected socket. All of it has to be over by `deadline`.
pub fn connect_tls(tcp: TcpStream, tls: &ClientTls, deadline: Instant) -> Result<Connection, Error> {
    Connection::establish(tcp, "connect to", |tcp| handshake::connect(tcp, tls, deadline))
}

/// A TCP connection whose two ends have proved possession of their keys. Its socket is non-blocking.
pub struct Connection {
    pub(crate) tcp: TcpStream,
    pub(crate) established: Established,
    pub(crate) peer_pin: Pin,
    pub(crate) peer_addr: SocketAddr,
    pub(crate) local_addr: SocketAddr,
}

impl Connection {
    /// The key that the peer proved to own.
    pub fn peer_pin(&self) -> Pin {
        self.peer_pin
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Exported keying material (RFC 8446, 7.5): equal at both ends, different in each connection.
    ///
    /// `label` is at most 249 bytes long.
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        self.established.exporter.export(label, context)
    }

    /// Which cipher was agreed on, and what carries it here.
    pub fn cipher_note(&self) -> String {
        cipher::chosen().note(self.established.suite)
    }

    fn establish(
        tcp: TcpStream,
        operation: &'static str,
        handshake: impl FnOnce(&TcpStream) -> Result<Established, handshake::Failure>,
    ) -> Result<Self, Error> {
        let failed = |e| Error::from_io(operation, "peer", e);
        let (peer_addr, local_addr) = (tcp.peer_addr().map_err(failed)?, tcp.local_addr().map_err(failed)?);
        let established = handshake(&tcp).map_err(|failure| failure.into_error(operation, peer_addr))?;
        let peer_pin = Pin(sha256(&established.peer_spki));
        Ok(Self { tcp, established, peer_pin, peer_addr, local_addr })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tcp.as_fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer_addr", &self.peer_addr)
            .field("peer_pin", &self.peer_pin)
            .finish_non_exhaustive()
    }
}
