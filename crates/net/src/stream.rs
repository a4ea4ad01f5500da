//! A data stream: bulk bytes in both directions, driven by one thread that waits for the socket itself.
//!
//! Invariants:
//! - A call that moves bytes allocates nothing: only `widen` replaces the buffers.
//! - Until it is widened, a stream holds little: a peer may have many connections before any of them is charged for.
//! - The end of data is the peer's close_notify; a connection that just ends is an error.
//! - After a failed send, and after a record that does not authenticate, the stream is broken for good.
//!
//! Not here: framing, concurrency (one lane, one stream).

use std::fmt;
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use model::{Pin, mutant};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::connection::Connection;
use crate::handshake::Exporter;
use crate::inbound::{Inbound, Taken};
use crate::record::{
    ALERT_RECORD_BYTES, HEADER_BYTES, KEY_UPDATE_RECORD_BYTES, PLAINTEXT_BYTES_MAX, RECORD_BYTES_MAX, RecordError,
    RecordLayer, SEALED_BYTES_MAX,
};
use crate::socket::{TcpInfo, backoff_max, limit_backoff, timespec, wait_until};

/// Records that leave in one system call: a block of 128 KiB and its header. Over loopback, 4, 5 and 16 cost the same
/// processor time per byte or more.
const RECORDS_PER_SEND: usize = 9;
const OUTGOING_BYTES: usize = KEY_UPDATE_RECORD_BYTES + RECORDS_PER_SEND * SEALED_BYTES_MAX;
/// What one system call may receive. 64 KiB cost a tenth more processor time per byte over loopback, 512 KiB the same;
/// with the caller's block this stays in a second-level cache of 1 MiB.
const INCOMING_BYTES: usize = 256 * 1024;
/// The same for a stream that is not widened: the longest record, behind another.
const NARROW_OUTGOING_BYTES: usize = KEY_UPDATE_RECORD_BYTES + SEALED_BYTES_MAX;
const NARROW_INCOMING_BYTES: usize = 2 * RECORD_BYTES_MAX;

/// One end of an established connection that carries bulk data. Any thread may own it, one at a time.
pub struct DataStream {
    pub(crate) socket: Arc<Socket>,
    pub(crate) records: RecordLayer,
    pub(crate) inbound: Inbound,
    exporter: Exporter,
    peer_pin: Pin,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    pub(crate) outgoing: Box<[u8]>,
    io_timeout: Option<Duration>,
    deadline: Option<Instant>,
    counters: StreamCounters,
    is_send_closed: bool,
    is_broken: bool,
}

/// What a stream has moved and how long its owner waited, since the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Time spent waiting until the socket took more bytes.
    pub send_blocked_ns: u64,
    /// Time spent waiting until the socket had bytes.
    pub recv_blocked_ns: u64,
    /// Including what TLS adds.
    pub wire_bytes_sent: u64,
    /// Including what TLS adds.
    pub wire_bytes_received: u64,
}

impl Connection {
    /// Goes on as a data stream.
    pub fn into_data(self) -> DataStream {
        DataStream::new(self)
    }
}

impl DataStream {
    fn new(connection: Connection) -> Self {
        let Connection { tcp, established, peer_pin, peer_addr, local_addr } = connection;
        Self {
            socket: Arc::new(Socket { tcp, is_aborted: AtomicBool::new(false) }),
            records: established.records,
            inbound: Inbound::new(NARROW_INCOMING_BYTES),
            exporter: established.exporter,
            peer_pin,
            peer_addr,
            local_addr,
            outgoing: vec![0; NARROW_OUTGOING_BYTES].into(),
            io_timeout: None,
            deadline: None,
            counters: StreamCounters::default(),
            is_send_closed: false,
            is_broken: false,
        }
    }

    /// Takes the buffers that bulk data needs to be fast, of 400 KiB. To be called once they are charged for.
    pub fn widen(&mut self) {
        self.inbound.widen(INCOMING_BYTES);
        self.outgoing = vec![0; OUTGOING_BYTES].into();
    }

    /// Sends the concatenation of `parts`, and returns when the kernel has taken all of it.
    ///
    /// Records are filled across parts. A part that starts a record and fills it is sealed from where it is; a record
    /// made of several parts costs a copy.
    pub fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.check_sendable()?;
        let mut gather = Gather::new(parts);
        while gather.remaining > 0 {
            let mut sealed = self.records.seal_due(&mut self.outgoing).map_err(|e| self.fail_locally(e))?;
            while gather.remaining > 0 && self.outgoing.len() - sealed >= SEALED_BYTES_MAX {
                let out = &mut self.outgoing[sealed..];
                sealed += gather.seal(&mut self.records, out).map_err(|e| self.fail_locally(e))?;
            }
            self.write_outgoing(sealed)?;
        }
        Ok(())
    }

    /// Receives the next bytes into `buf` (not empty): as many as are here, at least one, waiting if there are none.
    ///
    /// 0 is the end that the peer declared. Cheapest when `buf` is longer than a record (16 KiB) by at least one byte:
    /// records that fit are opened straight into it.
    ///
    /// # Errors
    /// `UnexpectedEof` if the connection ended undeclared, `TimedOut` after the io timeout or the deadline (the stream
    /// stays usable), `ConnectionAborted` after [`Aborter::abort`], `InvalidData` for bytes that break TLS.
    pub fn recv(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.check_usable()?;
        debug_assert!(!buf.is_empty(), "receiving nothing cannot be told from the end");
        loop {
            match self.inbound.take(&mut self.records, buf) {
                Ok(Taken::Bytes(bytes)) => return Ok(bytes),
                Ok(Taken::Closed) => return Ok(0),
                Ok(Taken::NeedMore) => match self.read_incoming() {
                    Err(_) if mutant::is_on("take-any-end-for-the-end") => return Ok(0),
                    read => read?,
                },
                Err(e) => return Err(self.fail_by_peer(e)),
            }
        }
    }

    /// Waits until the peer has sent something that was not received yet, or has ended.
    pub fn wait_for_data(&mut self) -> io::Result<()> {
        self.check_usable()?;
        if self.inbound.is_empty() { self.wait(PollFlags::IN, Instant::now()) } else { Ok(()) }
    }

    /// Fills `buf`; the end of data before that is an `UnexpectedEof`.
    pub fn recv_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.recv(&mut buf[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => filled += bytes,
            }
        }
        Ok(())
    }

    /// Declares the end of what is sent (close_notify, then FIN). Receiving goes on. Closing again does nothing.
    pub fn close(&mut self) -> io::Result<()> {
        if self.is_send_closed {
            return Ok(());
        }
        self.check_sendable()?;
        let sealed = self.records.seal_close_notify(&mut self.outgoing).map_err(|e| self.fail_locally(e))?;
        self.write_outgoing(sealed)?;
        self.is_send_closed = true;
        self.socket.tcp.shutdown(Shutdown::Write)
    }

    /// Whether the connection has ended or failed, as far as the kernel knows now. What was handed to it may be lost.
    pub fn is_broken(&self) -> bool {
        if self.is_broken || self.socket.is_aborted.load(Ordering::Relaxed) {
            return true;
        }
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let mut socket = [PollFd::new(&self.socket.tcp, PollFlags::RDHUP)];
        let now = timespec(Duration::ZERO);
        rustix::event::poll(&mut socket, Some(&now)).is_ok() && socket[0].revents().intersects(ended)
    }

    /// A handle for other threads, with which they end this stream's waiting or sample its TCP_INFO.
    pub fn aborter(&self) -> Aborter {
        Aborter { socket: Arc::downgrade(&self.socket) }
    }

    /// Lets a call fail with `TimedOut` when the socket makes no progress at all for this long.
    pub fn set_io_timeout(&mut self, timeout: Option<Duration>) {
        self.io_timeout = timeout;
    }

    /// Lets every call fail with `TimedOut` that would have to wait beyond `deadline`.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }

    pub fn counters(&self) -> StreamCounters {
        self.counters
    }

    /// See [`Connection::export`].
    pub fn export(&self, label: &[u8], context: &[u8]) -> [u8; 32] {
        self.exporter.export(label, context)
    }

    /// See [`Connection::peer_pin`].
    pub fn peer_pin(&self) -> Pin {
        self.peer_pin
    }

    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    fn check_usable(&self) -> io::Result<()> {
        if self.is_broken { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    pub(crate) fn check_sendable(&self) -> io::Result<()> {
        self.check_usable()?;
        if self.is_send_closed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn write_outgoing(&mut self, bytes: usize) -> io::Result<()> {
        let mut written = 0;
        while written < bytes {
            let result = match self.socket.send(&self.outgoing[written..bytes]) {
                Ok(taken) => {
                    written += taken;
                    Ok(())
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let started = Instant::now();
                    let result = self.wait(PollFlags::OUT, started);
                    self.counters.send_blocked_ns += started.elapsed().as_nanos() as u64;
                    result
                }
                Err(e) => Err(e),
            };
            // Part of a record may have left; nothing that follows would make sense to the peer.
            result.inspect_err(|_| self.is_broken = true)?;
        }
        self.counters.wire_bytes_sent += bytes as u64;
        Ok(())
    }

    fn read_incoming(&mut self) -> io::Result<()> {
        loop {
            match self.socket.recv(self.inbound.space()) {
                Ok(bytes) => {
                    self.inbound.extend(bytes);
                    self.counters.wire_bytes_received += bytes as u64;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let started = Instant::now();
                    let result = self.wait(PollFlags::IN, started);
                    self.counters.recv_blocked_ns += started.elapsed().as_nanos() as u64;
                    result?;
                }
                Err(e) => {
                    self.is_broken = true;
                    return Err(e);
                }
            }
        }
    }

    fn wait(&self, events: PollFlags, now: Instant) -> io::Result<()> {
        let no_progress = self.io_timeout.map(|timeout| now + timeout);
        let deadline = [no_progress, self.deadline].into_iter().flatten().min();
        wait_until(&self.socket.tcp, events, deadline)
    }

    fn fail_locally(&mut self, error: RecordError) -> io::Error {
        self.is_broken = true;
        io::Error::other(error)
    }

    fn fail_by_peer(&mut self, error: RecordError) -> io::Error {
        self.is_broken = true;
        self.socket.fail(&mut self.records, error)
    }
}

impl AsFd for DataStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.tcp.as_fd()
    }
}

impl fmt::Debug for DataStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataStream")
            .field("peer_addr", &self.peer_addr)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

/// Ends a stream from another thread. Holding one does not keep the connection open; the default is that of none.
#[derive(Clone, Debug, Default)]
pub struct Aborter {
    pub(crate) socket: Weak<Socket>,
}

impl Aborter {
    /// Breaks the connection off: a waiting call and all that follow return `ConnectionAborted`.
    pub fn abort(&self) {
        if let Some(socket) = self.socket.upgrade() {
            socket.is_aborted.store(true, Ordering::SeqCst);
            // Fails only if the peer was faster.
            let _ = socket.tcp.shutdown(Shutdown::Both);
        }
    }

    /// Whether the stream is still held by its owner.
    pub fn is_alive(&self) -> bool {
        self.socket.strong_count() > 0
    }

    /// The address of the other side; `None` when the connection is gone.
    pub fn peer(&self) -> Option<IpAddr> {
        let address = self.socket.upgrade()?.tcp.peer_addr().ok()?;
        Some(address.ip().to_canonical())
    }

    /// What has arrived and was not read here; 0 when the connection is gone.
    pub fn unread_bytes(&self) -> u64 {
        self.socket.upgrade().and_then(|socket| rustix::io::ioctl_fionread(&socket.tcp).ok()).unwrap_or(0)
    }

    /// Marks what is sent from here with a code point for differentiated services (RFC 2474). A mark is a wish: a kernel that
    /// refuses it changes nothing else.
    pub fn set_dscp(&self, code_point: u8) {
        let Some(socket) = self.socket.upgrade() else { return };
        let class = (code_point & 0x3f) << 2;
        // An IPv6 socket may carry IPv4.
        let _ = rustix::net::sockopt::set_ip_tos(&socket.tcp, class);
        let _ = rustix::net::sockopt::set_ipv6_tclass(&socket.tcp, class.into());
    }

    /// The congestion control in use; `None` when the connection is gone.
    pub fn congestion(&self) -> Option<String> {
        crate::socket::congestion(&self.socket.upgrade()?.tcp).ok()
    }

    /// Selects the congestion control; nothing happens when the connection is gone.
    pub fn set_congestion(&self, name: &str) -> Result<(), crate::Error> {
        self.socket.upgrade().map_or(Ok(()), |socket| crate::socket::set_congestion(&socket.tcp, name))
    }

    /// What the kernel knows about the connection; `None` when it is gone.
    pub fn tcp_info(&self) -> Option<TcpInfo> {
        TcpInfo::sample(&self.socket.upgrade()?.tcp).ok()
    }

    /// The same, from a loop that comes about once a second: while it does, the kernel looks for a path that is away every second
    /// at first, and less often before it would give the connection up.
    pub fn watched_tcp_info(&self) -> Option<TcpInfo> {
        let socket = self.socket.upgrade()?;
        let info = TcpInfo::sample(&socket.tcp).ok()?;
        limit_backoff(&socket.tcp, backoff_max(&info));
        Some(info)
    }
}

/// The socket, non-blocking, shared with its aborters.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) tcp: TcpStream,
    is_aborted: AtomicBool,
}

impl Socket {
    /// Sends as much as the kernel takes, without waiting.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::net::send(&self.tcp, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.explain(e.into())),
            }
        }
    }

    /// Receives what the kernel has, without waiting. The connection's end is `UnexpectedEof`.
    pub(crate) fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match rustix::net::recv(&self.tcp, &mut *buf, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(self.explain(io::ErrorKind::UnexpectedEof.into())),
                Ok((_, bytes)) => return Ok(bytes),
                Err(Errno::INTR) => {}
                Err(e) => return Err(self.explain(e.into())),
            }
        }
    }

    /// Gives up on a peer that broke TLS: tells it why, as far as the socket takes it without waiting.
    pub(crate) fn fail(&self, records: &mut RecordLayer, error: RecordError) -> io::Error {
        let mut out = [0; ALERT_RECORD_BYTES];
        if let Some(description) = error.alert()
            && let Ok(sealed) = records.seal_alert(description, &mut out)
        {
            // The connection has failed already.
            let _ = self.send(&out[..sealed]);
        }
        let kind = match error {
            RecordError::AlertReceived(_) => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::InvalidData,
        };
        io::Error::new(kind, error)
    }

    /// An abort looks like the end of the connection or a broken pipe; it is told apart here.
    fn explain(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::WouldBlock && self.is_aborted() {
            return io::ErrorKind::ConnectionAborted.into();
        }
        error
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }
}

/// Cuts the concatenation of parts into records.
pub(crate) struct Gather<'a> {
    parts: &'a [&'a [u8]],
    /// Within the first part.
    offset: usize,
    pub(crate) remaining: usize,
}

impl<'a> Gather<'a> {
    pub(crate) fn new(parts: &'a [&'a [u8]]) -> Self {
        Self { parts, offset: 0, remaining: parts.iter().map(|part| part.len()).sum() }
    }

    /// Seals the next record into `out`; there are bytes remaining.
    pub(crate) fn seal(&mut self, records: &mut RecordLayer, out: &mut [u8]) -> Result<usize, RecordError> {
        let record_bytes = self.remaining.min(PLAINTEXT_BYTES_MAX);
        let first = self.next_piece(record_bytes);
        if first.len() == record_bytes {
            return records.seal_payload(first, out);
        }
        let mut gathered = 0;
        let mut piece = first;
        loop {
            out[HEADER_BYTES + gathered..][..piece.len()].copy_from_slice(piece);
            gathered += piece.len();
            if gathered == record_bytes {
                return records.seal_gathered(record_bytes, out);
            }
            piece = self.next_piece(record_bytes - gathered);
        }
    }

    /// The next contiguous bytes, at least one and at most `bytes_max`; there are bytes remaining.
    fn next_piece(&mut self, bytes_max: usize) -> &'a [u8] {
        while self.offset == self.parts[0].len() {
            (self.parts, self.offset) = (&self.parts[1..], 0);
        }
        let rest = &self.parts[0][self.offset..];
        let piece = &rest[..rest.len().min(bytes_max)];
        self.offset += piece.len();
        self.remaining -= piece.len();
        piece
    }
}
