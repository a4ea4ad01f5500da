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
    /// `host` is the remote side's name.
    pub fn new(link: Link, host: &str, dial: DialOptions) -> Tunnel {
        Tunnel { link, paths: [Path { name: "ssh".to_owned(), remote: host.to_owned(), ..Path::default() }], dial }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Accept;
    use net::{Identity, ServerTls, accept_tls};
    use std::net::TcpListener;

    #[test]
    fn connections_come_out_at_the_far_side_and_only_the_pinned_key_is_believed() {
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ((near_reads, far_writes), (far_reads, near_writes)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (near, _messages) = Link::start(near_reads, near_writes, None).unwrap();
        let accept: Accept = Box::new(move || TcpStream::connect(address));
        let (_far, _far_messages) = Link::start(far_reads, far_writes, Some(accept)).unwrap();
        let tls = ServerTls::new(&theirs).unwrap();
        std::thread::spawn(move || {
            while let Ok((tcp, _)) = listener.accept() {
                let _ = accept_tls(tcp, &tls, Instant::now() + std::time::Duration::from_secs(10));
            }
        });
        let tunnel = |pin| Tunnel::new(near.clone(), "far", DialOptions::new(&ours, pin).unwrap());
        let right = tunnel(theirs.pin());
        assert_eq!(right.connect(&right.paths()[0]).unwrap().peer_pin(), theirs.pin());
        let wrong = tunnel(ours.pin());
        assert!(wrong.connect(&wrong.paths()[0]).is_err());
        near.close();
        assert!(right.connect(&right.paths()[0]).is_err());
    }
}
