//! FTP and GridFTP (RFC 959, 2389, 2428, 3659; GFD.20): `ftp://`, `gsiftp://` without certificates, and `sshftp://`, whose control
//! connection is the user's own ssh.
//!
//! `reply` and `facts` are what a server says, as values; `line` is the control connection, `session` one conversation on
//! it, which `login` begins and which may have an `inlet` for data; `server` is a host with several of them. `remote` is
//! what `tree` makes a store of, with `reading`, `fetching`, `sending`, `extended` and `large`; `open` is the way in.
//!
//! Invariants:
//! - What the other side can make this one hold is bounded: lines, replies, listings, conversations.
//! - Data connections lead to the host of the control connection or to those that its table lists. This side opens them,
//!   but for small files from a GridFTP server that can connect to this host: a port is for one connection, and what came
//!   over it counts if no other did.
//! - Nothing goes in clear text to another host unless its table allows it, and the result says that it did.
//!
//! Not here: certificates of grids (GSI), which sites leave for tokens.

mod reply;
mod facts;
mod fault;
mod line;
mod inlet;
mod session;
mod login;
mod server;
mod extended;
mod fetching;
mod reading;
mod sums;
mod sending;
mod large;
mod remote;
mod open;

pub use open::{FtpConfig, FtpServers, SCHEMES};

/// What makes values of a server's bytes, for whoever tries it with any bytes.
pub mod said {
    pub use super::facts::{Told, of_facts, of_list};
    pub use super::reply::{Malformed, Parser, Reply, extended_port, passive_address};
}
