//! How a session reaches its peer: which paths there are, and a connection on one of them.
//!
//! Invariants:
//! - A connector has at least one path, and keeps the paths it has. The control stream takes the first.
//! - A connection that a connector yields has proved who answers. A session uses none whose key is another than that of its
//!   control stream (`path_lanes`).
//!
//! Not here: how many streams a job has and when one is tried again (`lanes`), paths that are found while a session runs (`ways`),
//! and which peer is meant (whoever makes the connector).

use net::{Connection, DialOptions};
use std::net::IpAddr;
use std::time::Duration;

/// What an address has for an answer where it is one of several: a first packet and one more.
const PATH_CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// One way from this host to the peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// For people.
    pub name: String,
    /// What streams leave from; left to the kernel where it is not set.
    pub local: Option<IpAddr>,
    /// Interface that streams leave by, whatever the routes say.
    pub device: Option<String>,
    /// `HOST:PORT`, or whatever else the connector calls the other end.
    pub remote: String,
}

pub trait Connector: Send + Sync {
    fn paths(&self) -> &[Path];

    /// Opens a connection on one of `paths`, or on another one if it takes more. Waits, and may be called by several threads at
    /// once.
    fn connect(&self, path: &Path) -> Result<Connection, net::Error>;

    /// The congestion control that is asked for on every path, by the kernel's name.
    fn congestion(&self) -> Option<&str>;

    /// Whether it connects on paths of other addresses as well.
    fn takes_more(&self) -> bool {
        false
    }
}

/// Dials addresses.
pub struct Direct {
    paths: Vec<Path>,
    dial: DialOptions,
}

impl Direct {
    /// `address` is `HOST:PORT`.
    pub fn new(address: &str, dial: DialOptions) -> Direct {
        let path = Path { name: address.to_owned(), remote: address.to_owned(), ..Path::default() };
        Direct { paths: vec![path], dial }
    }

    /// On these paths, of which there is at least one.
    pub fn over(paths: Vec<Path>, dial: DialOptions) -> Direct {
        assert!(!paths.is_empty(), "a connector has a path");
        Direct { paths, dial }
    }
}

impl Connector for Direct {
    fn paths(&self) -> &[Path] {
        &self.paths
    }

    fn connect(&self, path: &Path) -> Result<Connection, net::Error> {
        if path.local.is_none() && path.device.is_none() {
            return net::dial(&path.remote, &self.dial);
        }
        let connect_timeout = self.dial.connect_timeout.min(PATH_CONNECT_TIMEOUT);
        let dial = DialOptions { bind: path.local, device: path.device.clone(), connect_timeout, ..self.dial.clone() };
        net::dial(&path.remote, &dial)
    }

    fn congestion(&self) -> Option<&str> {
        self.dial.congestion.as_deref()
    }

    fn takes_more(&self) -> bool {
        true
    }
}
