//! A port of this host for one connection of a GridFTP server, which sends files over it in MODE E: who sends has to be
//! the one who connects (GFD.20).
//!
//! Invariant: what came counts only if nobody else had connected when the server said that it had sent it. The
//! connection is the server's then, because the server has one.
//!
//! Not here: whether the address that it came from may send anything (`session`), and what comes (`extended`).

use super::fault::{Fault, Result};
use rustix::net::sockopt::{self, Timeout};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a server that is near may take to open a file and connect, its first packet lost.
const CALL_PATIENCE: Duration = Duration::from_secs(2);

pub struct Inlet {
    listener: TcpListener,
    /// What tells the server of it.
    pub command: Vec<u8>,
    /// A server that was told and takes longer cannot connect, or is kept from it.
    pub patience: Duration,
}

impl Inlet {
    pub fn open(here: IpAddr) -> Result<Inlet> {
        let open = || {
            let listener = TcpListener::bind((here, 0))?;
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        };
        let opened: std::io::Result<_> = open();
        let (listener, port) = opened.map_err(|e| Fault::Lost(format!("listen at {here}: {e}").into()))?;
        let family = if here.is_ipv4() { 1 } else { 2 };
        let command = format!("EPRT |{family}|{here}|{port}|").into_bytes();
        Ok(Inlet { listener, command, patience: CALL_PATIENCE })
    }

    /// The first connection, and where it comes from.
    pub fn accept(&self) -> Result<(TcpStream, SocketAddr)> {
        let timed = sockopt::set_socket_timeout(&self.listener, Timeout::Recv, Some(self.patience));
        let accepted = timed.map_err(std::io::Error::from).and_then(|()| self.listener.accept());
        accepted.map_err(|e| Fault::Lost(format!("the server did not connect to this host: {e}").into()))
    }

    /// Closes the port, to which nobody else has connected.
    pub fn close(self) -> Result<()> {
        let other = self.listener.set_nonblocking(true).and_then(|()| self.listener.accept());
        match other {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(()),
            _ => Err(Fault::Malformed("another connection came to the port that it was told")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn open() -> (Inlet, SocketAddr) {
        let mut inlet = Inlet::open(Ipv4Addr::LOCALHOST.into()).unwrap();
        let address = inlet.listener.local_addr().unwrap();
        assert_eq!(inlet.command, format!("EPRT |1|127.0.0.1|{}|", address.port()).as_bytes());
        inlet.patience = Duration::from_millis(20);
        (inlet, address)
    }

    #[test]
    fn one_connection_is_the_servers_and_of_two_neither_is() {
        let (inlet, address) = open();
        assert!(matches!(inlet.accept(), Err(Fault::Lost(_))), "somebody came");
        let first = TcpStream::connect(address).unwrap();
        assert_eq!(inlet.accept().unwrap().1, first.local_addr().unwrap());
        inlet.close().unwrap();
        let (inlet, address) = open();
        let _both = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        inlet.accept().unwrap();
        assert!(matches!(inlet.close(), Err(Fault::Malformed(_))), "the second was not seen");
    }
}
