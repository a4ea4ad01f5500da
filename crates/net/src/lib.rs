//! TCP and TLS 1.3 between two peers that know each other by public key.
//!
//! Threads and blocking (or polled) sockets; no async runtime. A connection is made by [`dial::dial`] or by
//! [`listen::Listener`] and [`connection::accept_tls`], and then becomes a [`stream::DataStream`] (one thread, bulk bytes)
//! or a [`control::ControlStream`] (full duplex, any thread sends).
//!
//! Invariants:
//! - Not one byte of payload travels before both sides proved possession of their keys; there is no clear text.
//! - A stream that ends without `close_notify` is an error and never an end of data.
//! - Before authentication a peer costs bounded bytes and bounded time.
//! - Moving a block through an established stream allocates nothing.
//!
//! `interface`, `route`, `path_mtu` and `clock` only ask the kernel, for the audit of a host, for paths and for timetables; `numa`
//! keeps a thread near its card.
//! Not here: who is allowed to do what (the caller judges [`connection::Connection::peer_pin`]), framing, sessions, retries.

pub mod identity;
pub mod note;
pub mod tls;
mod handshake;
pub mod connection;
mod record;
mod aead;
pub mod cipher;
mod inbound;
pub mod dial;
pub mod listen;
pub mod lobby;
pub mod stream;
pub mod control;
mod queue;
pub mod socket;
mod netlink;
pub mod interface;
pub mod route;
pub mod numa;
pub mod path_mtu;
pub mod clock;
pub mod error;

pub use connection::{Connection, accept_tls, connect_tls};
pub use control::{ControlEnd, ControlEvent, ControlOptions, ControlSender, ControlStream};
pub use dial::{DialOptions, dial, dial_addrs, pair, resolve};
pub use error::{Error, ErrorKind};
pub use identity::{Identity, constant_time_eq, hmac_sha256, random_bytes, sha256};
pub use listen::{Listener, Stopper};
pub use lobby::Lobby;
pub use queue::{Budget, SendError};
pub use socket::TcpInfo;
pub use stream::{Aborter, DataStream};
pub use tls::{ClientTls, ServerTls};
