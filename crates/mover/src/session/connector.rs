//! How a session reaches its peer: which paths there are, and a connection on one of them.
//!
//! Invariants:
//! - A connector has at least one path, and keeps the paths it has. The control stream takes the first.
//! - A connection that a connector yields has proved who answers. A session uses none whose key is another than that of its
//!   control stream (`lanes`).
//!
//! Not here: how many streams a job has and when one is tried again (`lanes`), and which peer is meant (whoever makes the
//! connector).

use net::{Connection, DialOptions};
use std::net::IpAddr;

/// One way from this host to the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// For people.
    pub name: String,
    /// What streams leave from; left to the kernel where it is not set.
    pub local: Option<IpAddr>,
    /// `HOST:PORT`, or whatever else the connector calls the other end.
    pub remote: String,
}

pub trait Connector: Send + Sync {
    fn paths(&self) -> &[Path];

    /// Opens a connection on one of `paths`. Waits, and may be called by several threads at once.
    fn connect(&self, path: &Path) -> Result<Connection, net::Error>;

    /// The congestion control that is asked for on every path, by the kernel's name.
    fn congestion(&self) -> Option<&str>;
}

/// Dials one address.
pub struct Direct {
    paths: [Path; 1],
    dial: DialOptions,
}

impl Direct {
    /// `address` is `HOST:PORT`.
    pub fn new(address: &str, dial: DialOptions) -> Direct {
        Direct { paths: [Path { name: address.to_owned(), local: dial.bind, remote: address.to_owned() }], dial }
    }
}

impl Connector for Direct {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn connect(&self, path: &Path) -> Result<Connection, net::Error> {
        net::dial(&path.remote, &self.dial)
    }

    fn congestion(&self) -> Option<&str> {
        self.dial.congestion.as_deref()
    }
}
