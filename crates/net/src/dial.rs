//! From a name to an authenticated connection.
//!
//! All addresses of a name are tried; a slow one does not hold up the next (RFC 8305 in its simplest form).
//!
//! Not here: retries and their pauses (the caller knows what it can wait for).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use model::Pin;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use crate::connection::{Connection, connect_tls};
use crate::error::{Error, ErrorKind};
use crate::identity::Identity;
use crate::socket::{BACKOFF_MAX, limit_backoff, set_congestion, timespec};
use crate::tls::ClientTls;

const OPERATION: &str = "connect to";

/// How long one address may be silent before the next one is tried as well (RFC 8305, section 5).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// More addresses than this under one name are not tried.
const ADDRESSES_MAX: usize = 16;

/// How to dial. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct DialOptions {
    pub tls: ClientTls,
    /// By the kernel's name, set before connecting; `None` leaves the system's default.
    pub congestion: Option<String>,
    /// For all addresses together.
    pub connect_timeout: Duration,
    /// For the whole TLS handshake.
    pub handshake_timeout: Duration,
    /// Local address to dial from; addresses of the other family are then left out.
    pub bind: Option<IpAddr>,
    /// Interface to dial by, whatever the routes say.
    pub device: Option<String>,
}

impl DialOptions {
    /// 10 s to connect, 10 s for the handshake, the system's congestion control, any local address.
    pub fn new(identity: &Identity, pin: Pin) -> Result<Self, Error> {
        Ok(Self {
            tls: ClientTls::new(identity, pin)?,
            congestion: None,
            connect_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            bind: None,
            device: None,
        })
    }
}

/// Finds the addresses of `HOST:PORT`, where HOST is a name, an IPv4 address or an IPv6 address in brackets.
///
/// Asks the system's resolver, and waits as long as that does.
pub fn resolve(host_port: &str) -> Result<Vec<SocketAddr>, Error> {
    const OPERATION: &str = "resolve";
    let invalid = || Error::new(ErrorKind::InvalidAddress, OPERATION, host_port);
    let (host, port) = host_port.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bracketed {
        Some(host) => host,
        None if host.is_empty() || host.contains(':') => return Err(invalid()),
        None => host,
    };
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|e| Error::caused(ErrorKind::NameNotResolved, OPERATION, host_port, e))?;
    let mut addrs = Vec::new();
    for addr in found.take(ADDRESSES_MAX) {
        if !addrs.contains(&addr) {
            addrs.push(addr);
        }
    }
    if addrs.is_empty() { Err(Error::new(ErrorKind::NameNotResolved, OPERATION, host_port)) } else { Ok(addrs) }
}

/// Resolves `HOST:PORT`, connects and authenticates.
pub fn dial(host_port: &str, options: &DialOptions) -> Result<Connection, Error> {
    dial_addrs(&resolve(host_port)?, options)
}

/// Connects to the first of `addrs` that answers, and authenticates.
pub fn dial_addrs(addrs: &[SocketAddr], options: &DialOptions) -> Result<Connection, Error> {
    let tcp = connect(addrs, options)?;
    connect_tls(tcp, &options.tls, Instant::now() + options.handshake_timeout)
}

/// Both ends of a new connection within this host, and nobody else's: for what carries connections elsewhere.
pub fn pair() -> Result<(TcpStream, TcpStream), Error> {
    let failed = |e| Error::from_io(OPERATION, "the loopback interface", e);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).or_else(|_| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)));
    let listener = listener.map_err(failed)?;
    let near = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    near.set_nodelay(true).map_err(failed)?;
    let own = near.local_addr().map_err(failed)?;
    loop {
        // Anybody on this host may have connected first.
        let (far, peer) = listener.accept().map_err(failed)?;
        if peer == own {
            return Ok((near, far));
        }
    }
}

/// Options that both ends of every connection have.
pub(crate) fn set_common_options(socket: &Socket) -> io::Result<()> {
    // Frames are written whole; waiting to fill a segment would only add latency.
    socket.set_tcp_nodelay(true)?;
    limit_backoff(socket, BACKOFF_MAX);
    // Finds a dead peer of an idle connection within 40 s, also where nothing else would, and keeps what forgets idle
    // connections on the way from forgetting this one. The kernel answers: a peer that waits for its disk is not dead.
    let keepalive =
        TcpKeepalive::new().with_time(Duration::from_secs(20)).with_interval(Duration::from_secs(5)).with_retries(4);
    socket.set_tcp_keepalive(&keepalive)
}

fn connect(addrs: &[SocketAddr], options: &DialOptions) -> Result<TcpStream, Error> {
    let mut race = Race::new(addrs, options);
    while race.pending.len() + race.waiting.len() > 0 {
        race.start_next()?;
        if let Some(tcp) = race.wait_for_one()? {
            return Ok(tcp);
        }
        if Instant::now() >= race.deadline {
            return Err(race.ran_out());
        }
    }
    Err(race.failure.unwrap_or_else(|| Error::new(ErrorKind::NameNotResolved, OPERATION, "no usable address")))
}

/// Connection attempts under way.
struct Race<'a> {
    options: &'a DialOptions,
    waiting: Vec<SocketAddr>,
    pending: Vec<(Socket, SocketAddr)>,
    deadline: Instant,
    next_start: Instant,
    /// The first one: what comes back from the preferred address says most.
    failure: Option<Error>,
}

impl<'a> Race<'a> {
    fn new(addrs: &[SocketAddr], options: &'a DialOptions) -> Self {
        let usable = |addr: &&SocketAddr| options.bind.is_none_or(|bind| bind.is_ipv4() == addr.is_ipv4());
        let mut waiting: Vec<_> = addrs.iter().filter(usable).take(ADDRESSES_MAX).copied().collect();
        waiting.reverse();
        let now = Instant::now();
        Self {
            options,
            waiting,
            pending: Vec::new(),
            deadline: now + options.connect_timeout,
            next_start: now,
            failure: None,
        }
    }

    /// Starts the next attempt if it is its turn: nothing is under way, or that has been silent for long enough.
    fn start_next(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if !self.pending.is_empty() && now < self.next_start {
            return Ok(());
        }
        let Some(addr) = self.waiting.pop() else { return Ok(()) };
        self.next_start = now + NEXT_ADDRESS_DELAY;
        let socket = match open_socket(addr, self.options) {
            Ok(socket) => socket,
            Err(e) if matches!(e.kind, ErrorKind::CongestionUnavailable { .. }) => return Err(e),
            // A host without IPv6, say, still has its other addresses.
            Err(e) => {
                self.fail(e);
                return Ok(());
            }
        };
        match socket.connect(&SockAddr::from(addr)) {
            Ok(()) => self.pending.push((socket, addr)),
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => self.pending.push((socket, addr)),
            Err(e) => self.fail(Error::from_io(OPERATION, addr, e)),
        }
        Ok(())
    }

    /// Waits until an attempt is decided or the next one may start.
    fn wait_for_one(&mut self) -> Result<Option<TcpStream>, Error> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        let until = if self.waiting.is_empty() { self.deadline } else { self.deadline.min(self.next_start) };
        let timeout = timespec(until.saturating_duration_since(Instant::now()));
        let mut fds: Vec<_> = self.pending.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::OUT)).collect();
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::from_io(OPERATION, "peer", e.into())),
        }
        let decided = fds.iter().position(|fd| !fd.revents().is_empty());
        drop(fds);
        let Some(index) = decided else { return Ok(None) };
        let (socket, addr) = self.pending.remove(index);
        match socket.take_error().and_then(|error| error.map_or(Ok(()), Err)) {
            Ok(()) => {
                if let Some(name) = &self.options.congestion {
                    // A route may name one of its own (`ip route ... congctl`), which the connection took.
                    set_congestion(&socket, name)?;
                }
                return Ok(Some(socket.into()));
            }
            Err(e) => self.fail(Error::from_io(OPERATION, addr, e)),
        }
        Ok(None)
    }

    /// What to say once the time is up. A host that refused was reached, which says more than the silence of another address.
    /// That this host has no way to some address says less.
    fn ran_out(self) -> Error {
        let subject = self.pending.first().map_or(String::new(), |(_, addr)| addr.to_string());
        let refused = self.failure.filter(|failure| failure.kind == ErrorKind::Refused);
        refused.unwrap_or_else(|| Error::new(ErrorKind::TimedOut, OPERATION, subject))
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        // A refusal need not be waited for.
        self.next_start = Instant::now();
    }
}

fn open_socket(addr: SocketAddr, options: &DialOptions) -> Result<Socket, Error> {
    let failed = |e| Error::from_io(OPERATION, addr, e);
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(addr), kind, Some(Protocol::TCP)).map_err(failed)?;
    set_common_options(&socket).map_err(failed)?;
    if let Some(name) = &options.congestion {
        set_congestion(&socket, name)?;
    }
    if let Some(device) = &options.device {
        let bound = socket.bind_device(Some(device.as_bytes()));
        bound.map_err(|e| Error::from_io("bind to", device, e))?;
    }
    if let Some(ip) = options.bind {
        let bound = socket.bind(&SockAddr::from(SocketAddr::new(ip, 0)));
        bound.map_err(|e| Error::from_io("bind to", ip, e))?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_although_another_address_was_silent_until_the_end() {
        let identity = Identity::generate().unwrap();
        let options = DialOptions::new(&identity, identity.pin()).unwrap();
        for (kind, told) in [
            (io::ErrorKind::ConnectionRefused, ErrorKind::Refused),
            (io::ErrorKind::NetworkUnreachable, ErrorKind::TimedOut),
        ] {
            let mut race = Race::new(&[], &options);
            race.fail(Error::from_io(OPERATION, "127.0.0.1:1", kind.into()));
            assert_eq!(race.ran_out().kind, told);
        }
        assert_eq!(Race::new(&[], &options).ran_out().kind, ErrorKind::TimedOut);
    }
}
