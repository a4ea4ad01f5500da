//! The way through the ssh connection itself: each connection of a session is one within this host, carried by the link.
//!
//! Invariant: nothing listens for it once it is made, so nobody else on this host is ever carried.

use super::link::Link;
use mover::session::{Connector, Path};
use net::{Connection, DialOptions, Error, connect_tls};
use std::net::TcpStream;
use std::time::Instant;

pub struct Tunnel {
    link: Link,
    paths: [Path; 1],
    dial: DialOptions,
}

impl Tunnel {
    /// `host` is the far side's name.
    pub fn new(link: Link, host: &str, dial: DialOptions) -> Tunnel {
        Tunnel { link, paths: [Path { name: "ssh".to_owned(), local: None, remote: host.to_owned() }], dial }
    }
}

impl Connector for Tunnel {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn connect(&self, path: &Path) -> Result<Connection, Error> {
        connect_tls(carried(&self.link, &path.remote)?, &self.dial.tls, Instant::now() + self.dial.handshake_timeout)
    }

    /// It would be that of a connection within this host.
    fn congestion(&self) -> Option<&str> {
        None
    }
}

/// A connection to wherever the link's other side connects its channels.
pub fn carried(link: &Link, host: &str) -> Result<TcpStream, Error> {
    let (near, far) = net::pair()?;
    link.carry(far).map_err(|e| Error::from_io("reach through ssh", host, e))?;
    Ok(near)
}
