//! One connection: what is written and read on it, with a clock on progress alone.

use crate::error::{Error, ErrorKind, Result, plain};
use crate::origin::Origin;
use crate::stop::{SLICE, Stop};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// To an address, the handshake not counted.
pub const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Without a byte in either direction.
pub const PROGRESS_MAX: Duration = Duration::from_secs(30);
/// The same once this process is to stop: a last request, which takes away what is half done, may still be answered.
const GRACE: Duration = Duration::from_secs(2);
/// Status line and headers.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
pub(crate) const HEADERS_MAX: usize = 128;
/// Answers that only say that one will come.
const INTERIM_MAX: usize = 16;
/// What is read at once while a head or the frame of a chunk is looked for.
const READ_BYTES: usize = 16 << 10;

enum Stream {
    Clear(TcpStream),
    Local(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

pub(crate) struct Connection {
    stream: Stream,
    host: String,
    /// What was read and not taken.
    buffer: Vec<u8>,
    taken: usize,
    pub opened: Instant,
    pub idle_since: Instant,
    pub uses: u64,
    stop: Stop,
    /// Without a byte, until an answer is given up.
    patience: Duration,
    /// The same outside heads.
    calm: Duration,
    /// When the exchange that is under way is given up, even if more of the answer still comes.
    pub until: Option<Instant>,
    /// The same, once this process was told to stop.
    pub stops: Option<Instant>,
}

/// A status line with its headers, the names in lower case.
pub(crate) struct Head {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub is_http_1_0: bool,
}

impl Head {
    /// No other answer follows on its connection.
    pub fn is_last(&self) -> bool {
        let is_closing = |(name, value): &(String, String)| name == "connection" && value.eq_ignore_ascii_case("close");
        self.is_http_1_0 || self.headers.iter().any(is_closing)
    }
}

impl Connection {
    /// Tries the addresses of the origin, beginning with one that `turn` chooses.
    pub fn open(
        origin: &Origin,
        tls: Option<&Arc<ClientConfig>>,
        turn: usize,
        stop: &Stop,
        calm: Duration,
        until: Option<Instant>,
    ) -> Result<Connection> {
        if let Some(socket) = &origin.socket {
            return Connection::local(socket, &origin.host, stop, calm);
        }
        let host = &origin.host;
        let unreachable = |why: String| Error::new(ErrorKind::Unreachable, why);
        let mut addresses = origin.addresses.clone();
        if addresses.is_empty() {
            let found = (&host[..], origin.port).to_socket_addrs();
            addresses = found.map_err(|e| unreachable(format!("{host} has no address: {}", plain(&e))))?.collect();
        }
        if addresses.is_empty() {
            return Err(unreachable(format!("{host} has no address")));
        }
        let first = turn % addresses.len();
        addresses.rotate_left(first);
        let mut failed = None;
        for address in addresses {
            let patience = if stop.is_set() { GRACE } else { CONNECT_MAX.min(calm) };
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => return Connection::over(stream, origin, tls, stop.clone(), calm, until),
                Err(e) => failed = Some(unreachable(format!("nobody answers at {address}: {}", plain(&e)))),
            }
        }
        Err(failed.expect("there was an address"))
    }

    fn local(socket: &Path, host: &str, stop: &Stop, calm: Duration) -> Result<Connection> {
        let unreachable = |e: io::Error| {
            Error::new(ErrorKind::Unreachable, format!("nobody answers at {}: {}", socket.display(), plain(&e)))
        };
        let stream = UnixStream::connect(socket).map_err(unreachable)?;
        let failed = |e: io::Error| Error::from_io(host, &e);
        stream.set_read_timeout(Some(SLICE)).map_err(failed)?;
        stream.set_write_timeout(Some(SLICE)).map_err(failed)?;
        Ok(Connection::new(Stream::Local(stream), host.to_owned(), stop.clone(), calm))
    }

    fn new(stream: Stream, host: String, stop: Stop, calm: Duration) -> Connection {
        let (now, buffer) = (Instant::now(), Vec::new());
        let (opened, idle_since, patience) = (now, now, calm);
        let (taken, uses, until, stops) = Default::default();
        Connection { stream, host, buffer, taken, opened, idle_since, uses, stop, patience, calm, until, stops }
    }

    fn over(
        stream: TcpStream,
        origin: &Origin,
        tls: Option<&Arc<ClientConfig>>,
        stop: Stop,
        calm: Duration,
        until: Option<Instant>,
    ) -> Result<Connection> {
        let host = origin.host.clone();
        let failed = |e: io::Error| Error::from_io(&host, &e);
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(SLICE)).map_err(failed)?;
        stream.set_write_timeout(Some(SLICE)).map_err(failed)?;
        let began = Instant::now();
        let stream = match tls {
            None => Stream::Clear(stream),
            Some(config) => {
                let untrusted = |why: String| Error::new(ErrorKind::Untrusted, why);
                let name = ServerName::try_from(host.clone())
                    .map_err(|e| Error::new(ErrorKind::Settings, format!("{host} is not a host name: {e}")))?;
                let session = ClientConnection::new(config.clone(), name).map_err(|e| untrusted(e.to_string()))?;
                let mut stream = StreamOwned::new(session, stream);
                while stream.conn.is_handshaking() {
                    in_time(until, &host)?;
                    match stream.conn.complete_io(&mut stream.sock) {
                        Err(e) if waits(&e) => patient(&stop, began, calm, &host, &e)?,
                        done => _ = done.map_err(failed)?,
                    }
                }
                Stream::Tls(Box::new(stream))
            }
        };
        Ok(Connection::new(stream, host, stop, calm))
    }

    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let (mut rest, mut since) = (bytes, Instant::now());
        loop {
            in_time(self.until, &self.host)?;
            let step = match &mut self.stream {
                Stream::Clear(_) | Stream::Local(_) if rest.is_empty() => return Ok(()),
                Stream::Tls(stream) if rest.is_empty() => stream.flush().map(|()| 0),
                Stream::Clear(stream) => stream.write(rest),
                Stream::Local(stream) => stream.write(rest),
                Stream::Tls(stream) => stream.write(rest),
            };
            match step {
                Ok(0) if rest.is_empty() => return Ok(()),
                Ok(0) => return Err(self.lost()),
                Ok(written) => (rest, since) = (&rest[written..], Instant::now()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if waits(&e) => patient(&self.stop, since, self.calm, &self.host, &e)?,
                Err(e) => return Err(Error::from_io(&self.host, &e)),
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let since = Instant::now();
        loop {
            in_time(self.until, &self.host)?;
            // An answer that comes byte by byte ends too once this process is to stop.
            let now = Instant::now();
            if self.stop.is_set() && now >= *self.stops.get_or_insert(now + GRACE) {
                return Err(interrupted());
            }
            let read = match &mut self.stream {
                Stream::Clear(stream) => stream.read(buffer),
                Stream::Local(stream) => stream.read(buffer),
                Stream::Tls(stream) => stream.read(buffer),
            };
            match read {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if waits(&e) => patient(&self.stop, since, self.patience, &self.host, &e)?,
                // A close without a word: whether it is early is for the caller to say.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read.map_err(|e| Error::from_io(&self.host, &e)),
            }
        }
    }

    /// What is waiting, or what comes next; 0 at the end of the connection.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let waiting = &self.buffer[self.taken..];
        if waiting.is_empty() {
            return self.receive(buffer);
        }
        let count = waiting.len().min(buffer.len());
        buffer[..count].copy_from_slice(&waiting[..count]);
        self.taken += count;
        Ok(count)
    }

    /// Reads more behind what is waiting; 0 at the end of the connection.
    fn fill(&mut self) -> Result<usize> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let start = self.buffer.len();
        let mut more = vec![0; READ_BYTES];
        let read = self.receive(&mut more)?;
        self.buffer.extend_from_slice(&more[..read]);
        debug_assert!(self.buffer.len() == start + read);
        Ok(read)
    }

    /// A line without its end, of what frames a body.
    pub fn line(&mut self) -> Result<Vec<u8>> {
        loop {
            let waiting = &self.buffer[self.taken..];
            if let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line = waiting[..end].strip_suffix(b"\r").unwrap_or(&waiting[..end]).to_vec();
                self.taken += end + 1;
                return Ok(line);
            }
            if waiting.len() > READ_BYTES {
                return Err(self.malformed("a line has no end"));
            }
            if self.fill()? == 0 {
                return Err(self.lost());
            }
        }
    }

    /// The head of the final answer; what is said before it is passed over.
    pub fn head(&mut self, patience: Duration) -> Result<Head> {
        self.patience = patience;
        let head = self.final_head();
        self.patience = self.calm;
        head
    }

    fn final_head(&mut self) -> Result<Head> {
        let mut interim = 0;
        loop {
            if let Some(head) = self.parse()? {
                interim += 1;
                match head.status {
                    200.. => return Ok(head),
                    _ if interim > INTERIM_MAX => {
                        return Err(self.malformed("it says again and again that it will answer"));
                    }
                    _ => continue,
                }
            }
            if self.buffer.len() - self.taken > HEAD_BYTES_MAX {
                return Err(self.malformed("its answer begins with more than 64 KiB of headers"));
            }
            if self.fill()? == 0 {
                return Err(self.lost());
            }
        }
    }

    /// Waits for leave to send a body: nothing where it came, or did not come for so long; the final answer where that came instead.
    pub fn leave(&mut self, patience: Duration) -> Result<Option<Head>> {
        self.patience = patience;
        let mut interim = 0;
        let answer = loop {
            match self.parse() {
                Ok(Some(head)) if head.status >= 200 => break Ok(Some(head)),
                Ok(Some(head)) if head.status == 100 => break Ok(None),
                Ok(Some(_)) if interim >= INTERIM_MAX => {
                    break Err(self.malformed("it says again and again that it will answer"));
                }
                Ok(Some(_)) => {
                    interim += 1;
                    continue;
                }
                Err(e) => break Err(e),
                Ok(None) => {}
            }
            match self.fill() {
                Ok(0) => break Err(self.lost()),
                Ok(_) if self.buffer.len() - self.taken <= HEAD_BYTES_MAX => {}
                Ok(_) => break Err(self.malformed("its answer begins with more than 64 KiB of headers")),
                Err(e) if e.kind == ErrorKind::TimedOut => break Ok(None),
                Err(e) => break Err(e),
            }
        };
        self.patience = self.calm;
        answer
    }

    fn parse(&mut self) -> Result<Option<Head>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let (length, head) = match response.parse(&self.buffer[self.taken..]) {
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(e) => return Err(self.malformed(&format!("its answer is not HTTP: {e}"))),
            Ok(httparse::Status::Complete(length)) => {
                let text = |header: &httparse::Header<'_>| {
                    (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).into_owned())
                };
                let headers = response.headers.iter().map(text).collect();
                let status = response.code.unwrap_or_default();
                (length, Head { status, headers, is_http_1_0: response.version == Some(0) })
            }
        };
        self.taken += length;
        Ok(Some(head))
    }

    /// Nothing came that nobody asked for, as far as is known.
    pub fn is_quiet(&self) -> bool {
        self.taken == self.buffer.len()
    }

    pub fn lost(&self) -> Error {
        Error::new(ErrorKind::Lost, format!("{} closed the connection early", self.host))
    }

    pub fn malformed(&self, why: &str) -> Error {
        Error::new(ErrorKind::Malformed, format!("{}: {why}", self.host))
    }
}

/// A socket that had nothing to give, or no room, for a while.
fn waits(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Stopped, "interrupted")
}

/// Goes on, unless the time for all of it is over.
fn in_time(until: Option<Instant>, host: &str) -> Result<()> {
    match until.is_some_and(|until| Instant::now() >= until) {
        true => Err(Error::new(ErrorKind::TimedOut, format!("{host} takes too long to answer"))),
        false => Ok(()),
    }
}

/// Goes on waiting, unless that has taken too long or is to stop.
fn patient(stop: &Stop, since: Instant, patience: Duration, host: &str, error: &io::Error) -> Result<()> {
    match stop.is_set() {
        true if since.elapsed() >= GRACE => Err(interrupted()),
        false if since.elapsed() >= patience && patience < PROGRESS_MAX => {
            let text = format!("{host} made no progress for {:.1} s", patience.as_secs_f64());
            Err(Error::new(ErrorKind::TimedOut, text))
        }
        false if since.elapsed() >= patience => Err(Error::from_io(host, error)),
        _ => Ok(()),
    }
}
