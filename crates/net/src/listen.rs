//! A listening socket whose waiting can be ended from another thread.
//!
//! Not here: the handshake ([`crate::connection::accept_tls`], on another thread than this one's), how many connections are
//! too many.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::dial::{resolve, set_common_options};
use crate::error::Error;
use crate::socket::{set_congestion, timespec};

/// Connections that the kernel completes and keeps until they are accepted. It caps this at net.core.somaxconn.
const BACKLOG: i32 = 1024;
/// Pause after running out of descriptors or memory: short for a peer that waits, long for a processor that spins.
pub(crate) const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// What accept(2) reports of one connection that failed in the backlog; the next one may be fine.
const CONNECTION_ERRORS: [i32; 12] = [
    libc::EINTR,
    libc::ECONNABORTED,
    libc::ECONNRESET,
    libc::ETIMEDOUT,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::EPERM,
    libc::ENETDOWN,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::EHOSTUNREACH,
    libc::ENONET,
];

/// Accepts TCP connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    local_addr: SocketAddr,
    stop: Arc<OwnedFd>,
    congestion: Option<String>,
}

impl Listener {
    /// Listens on `ADDR:PORT`; `[::]:PORT` takes IPv4 too, and port 0 lets the kernel choose.
    pub fn bind(address: &str) -> Result<Self, Error> {
        let mut failure = None;
        for addr in resolve(address)? {
            match Self::bind_addr(addr) {
                Ok(listener) => return Ok(listener),
                Err(e) => failure = failure.or(Some(Error::from_io("listen on", addr, e))),
            }
        }
        Err(failure.expect("resolve returns at least one address"))
    }

    /// The address listened on, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Waits for the next connection; `None` once stopped. Several threads may wait.
    ///
    /// While descriptors or memory are short it tries again ten times a second, and connections wait in the backlog.
    pub fn accept(&self) -> Result<Option<(TcpStream, SocketAddr)>, Error> {
        let failed = |e| self.failed(e);
        loop {
            if self.is_stopped(Duration::ZERO).map_err(failed)? {
                return Ok(None);
            }
            match self.accept_now()? {
                Accepted::Connection(tcp, addr) => return Ok(Some((tcp, addr))),
                Accepted::Nobody => self.wait().map_err(failed)?,
                Accepted::Exhausted => _ = self.is_stopped(EXHAUSTED_PAUSE).map_err(failed)?,
            }
        }
    }

    /// Takes a connection from the backlog, without waiting for one.
    pub(crate) fn accept_now(&self) -> Result<Accepted, Error> {
        loop {
            let error = match self.socket.accept() {
                Ok((socket, addr)) => match self.prepare(socket, &addr) {
                    Some((tcp, addr)) => return Ok(Accepted::Connection(tcp, addr)),
                    None => continue,
                },
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(Accepted::Nobody),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => return Ok(Accepted::Exhausted),
                Some(code) if CONNECTION_ERRORS.contains(&code) => {}
                _ => return Err(self.failed(error)),
            }
        }
    }

    pub(crate) fn stop_fd(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    pub(crate) fn failed(&self, error: io::Error) -> Error {
        Error::from_io("accept on", self.local_addr, error)
    }

    /// A handle for other threads, with which they end `accept`.
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: self.stop.clone() }
    }

    /// Selects the congestion control of the connections accepted from here on.
    pub fn set_congestion(&mut self, name: &str) -> Result<(), Error> {
        set_congestion(&self.socket, name)?;
        self.congestion = Some(name.to_owned());
        Ok(())
    }

    /// Gives an accepted connection its options; `None` if it has ended already.
    fn prepare(&self, socket: Socket, addr: &SockAddr) -> Option<(TcpStream, SocketAddr)> {
        let addr = addr.as_socket()?;
        set_common_options(&socket).ok()?;
        if let Some(name) = &self.congestion {
            // A route may name one of its own, which the connection took.
            let _ = set_congestion(&socket, name);
        }
        Some((socket.into(), addr))
    }

    fn bind_addr(addr: SocketAddr) -> io::Result<Self> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP))?;
        if addr.is_ipv6() {
            socket.set_only_v6(!addr.ip().is_unspecified())?;
        }
        // A restarted endpoint need not wait until the connections of its predecessor are forgotten.
        socket.set_reuse_address(true)?;
        socket.bind(&SockAddr::from(addr))?;
        socket.listen(BACKLOG)?;
        let local_addr = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { socket, local_addr, stop: Arc::new(stop), congestion: None })
    }

    /// Waits for a connection or the stop.
    fn wait(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut fds, None)
    }

    /// Whether the stop has come, or comes within `patience`.
    fn is_stopped(&self, patience: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN)];
        poll(&mut fds, Some(patience))?;
        Ok(!fds[0].revents().is_empty())
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the backlog had.
#[derive(Debug)]
pub(crate) enum Accepted {
    Connection(TcpStream, SocketAddr),
    Nobody,
    /// Descriptors or memory are short; what waits in the backlog stays there.
    Exhausted,
}

/// Ends a listener's `accept`, for good.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<OwnedFd>,
}

impl Stopper {
    /// Returns at once; also safe in a signal handler.
    pub fn stop(&self) {
        // The counter is never read, so it stays readable; adding to it fails only when it is readable anyway.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

pub(crate) fn poll(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    match rustix::event::poll(fds, timeout.map(timespec).as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}
