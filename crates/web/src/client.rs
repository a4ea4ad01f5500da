//! Requests to one origin, over connections that are kept for the next one.

use crate::body::Body;
use crate::connection::{Connection, Head, PROGRESS_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::origin::Origin;
use crate::stop::Stop;
use crate::trust::Trust;
use rustls::ClientConfig;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Servers end connections that nobody uses: S3 after some 20 s.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// So that addresses which are new or gone are noticed.
const AGE_MAX: Duration = Duration::from_secs(600);
/// Connections that wait for the next request.
const IDLE_COUNT_MAX: usize = 128;
/// What of an answer nobody wants is read all the same, to keep its connection.
const REST_BYTES_MAX: usize = 64 << 10;
/// And for twice as long as a connection took to be opened, within these bounds: a new one costs no less.
const REST_TIME_MIN: Duration = Duration::from_millis(100);
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// A server is far if a connection to it takes so long.
const FAR_US: u64 = 5_000;

#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub method: &'static str,
    /// Path and query, encoded.
    pub target: &'a str,
    /// `Host` and `Content-Length` are added.
    pub headers: &'a [(String, String)],
    pub body: &'a [u8],
}

/// Clones share their connections.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    /// How long an answer may take to begin.
    patience: Duration,
    /// The same for a connection, its handshake and what follows the head.
    calm: Duration,
    /// When every exchange is given up.
    until: Option<Instant>,
}

struct Shared {
    origin: Origin,
    tls: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Connection>>,
    opened: AtomicUsize,
    /// What the fastest connection so far took to be opened.
    open_us: AtomicU64,
    stop: Stop,
}

pub struct Response {
    pub status: u16,
    /// The request was sent before, on a connection that ended: the server may have carried it out then.
    pub is_resent: bool,
    headers: Vec<(String, String)>,
    body: Body,
    connection: Option<Connection>,
    is_kept: bool,
    shared: Arc<Shared>,
}

impl Client {
    pub fn new(origin: Origin, trust: &Trust) -> Result<Client> {
        Client::stopped_by(origin, trust, Stop::default())
    }

    /// One whose waiting ends when it is to stop.
    pub fn stopped_by(origin: Origin, trust: &Trust, stop: Stop) -> Result<Client> {
        let tls = if origin.is_tls { Some(trust.client()?) } else { None };
        let shared = Arc::new(Shared::new(origin, tls, stop));
        Ok(Client { shared, patience: PROGRESS_MAX, calm: PROGRESS_MAX, until: None })
    }

    /// The same with connections of its own, of which there is none yet.
    pub fn anew(&self) -> Client {
        let Shared { origin, tls, stop, .. } = &*self.shared;
        Client { shared: Arc::new(Shared::new(origin.clone(), tls.clone(), stop.clone())), ..*self }
    }

    /// One for another origin, which is stopped with this one. It believes the same authorities: reading them again for
    /// each server that a redirect leads to would take long.
    pub fn elsewhere(&self, origin: Origin, trust: &Trust) -> Result<Client> {
        let Shared { tls, stop, .. } = &*self.shared;
        if !origin.is_tls || tls.is_none() {
            return Client::stopped_by(origin, trust, stop.clone());
        }
        Ok(Client { shared: Arc::new(Shared::new(origin, tls.clone(), stop.clone())), ..*self })
    }

    /// The same, for requests that take a server long before it answers.
    pub fn patient(&self, patience: Duration) -> Client {
        Client { patience: patience.max(PROGRESS_MAX), ..self.clone() }
    }

    /// The same, for whoever has somebody else to ask: it waits nowhere for longer than that.
    pub fn within(&self, patience: Duration) -> Client {
        Client { patience, calm: patience, ..self.clone() }
    }

    /// The same, for whoever waits until then and no longer, also where an answer comes byte by byte.
    pub fn until(&self, until: Instant) -> Client {
        Client { until: Some(until), ..self.clone() }
    }

    pub fn origin(&self) -> &Origin {
        &self.shared.origin
    }

    pub fn stop(&self) -> &Stop {
        &self.shared.stop
    }

    /// Sends a request and reads the head of its answer. A connection that was used before and ends before it answers says nothing
    /// of this request, which is sent again over a new one, unless it is a POST, which may do its work twice.
    pub fn send(&self, request: &Request<'_>) -> Result<Response> {
        if let Some(connection) = self.take() {
            match self.exchange(connection, request) {
                Err(e) if e.kind == ErrorKind::Lost && request.method != "POST" => {
                    return Ok(self.send_anew(request)?.resent());
                }
                answered => return answered,
            }
        }
        self.send_anew(request)
    }

    fn send_anew(&self, request: &Request<'_>) -> Result<Response> {
        self.exchange(self.open()?, request)
    }

    pub(crate) fn take(&self) -> Option<Connection> {
        self.shared.take()
    }

    pub(crate) fn open(&self) -> Result<Connection> {
        let Shared { origin, tls, opened, stop, .. } = &*self.shared;
        let began = Instant::now();
        let turn = opened.fetch_add(1, Relaxed);
        let connection = Connection::open(origin, tls.as_ref(), turn, stop, self.calm, self.until)?;
        self.shared.open_us.fetch_min(began.elapsed().as_micros() as u64, Relaxed);
        Ok(connection)
    }

    /// Whether opening a connection takes long enough to be done before it is needed, as far as the fastest one tells.
    pub fn is_far(&self) -> bool {
        (FAR_US..u64::MAX).contains(&self.shared.open_us.load(Relaxed))
    }

    /// Connections that wait for a request.
    pub fn idle_count(&self) -> usize {
        self.shared.idle.lock().unwrap().len()
    }

    /// Opens a connection for a request to come. Whoever makes that request hears what is wrong.
    pub fn open_ahead(&self) {
        if let Ok(connection) = self.open() {
            self.shared.keep(connection);
        }
    }

    fn exchange(&self, mut connection: Connection, request: &Request<'_>) -> Result<Response> {
        let framing = match !request.body.is_empty() || matches!(request.method, "PUT" | "POST" | "PATCH") {
            true => format!("Content-Length: {}\r\n", request.body.len()),
            false => String::new(),
        };
        let head = self.head(request, &framing)?;
        connection.until = self.until;
        let sent = match request.body.len() {
            // In one segment with its head, where it fits.
            0..=1024 => connection.write(&[head.as_bytes(), request.body].concat()),
            _ => connection.write(head.as_bytes()).and_then(|()| connection.write(request.body)),
        };
        // A server that refuses may answer and close before all was sent: what it said tells more than that.
        let is_whole = sent.is_ok();
        let head = match (sent, connection.head(self.patience)) {
            (_, Ok(head)) => head,
            (Err(e), Err(_)) | (Ok(()), Err(e)) => return Err(e),
        };
        self.answer(connection, request.method, head, is_whole)
    }

    /// The answer whose head came on a connection, which may be used again only after a request that was sent whole.
    pub(crate) fn answer(
        &self,
        mut connection: Connection,
        method: &str,
        head: Head,
        is_whole: bool,
    ) -> Result<Response> {
        connection.uses += 1;
        let is_kept = is_whole && !head.is_last();
        let body = Body::of(method, &head, &connection)?;
        let Head { status, headers, .. } = head;
        let mut response = Response {
            status,
            is_resent: false,
            headers,
            body,
            connection: Some(connection),
            is_kept,
            shared: self.shared.clone(),
        };
        response.keep();
        Ok(response)
    }

    pub(crate) fn head(&self, request: &Request<'_>, framing: &str) -> Result<String> {
        let is_plain = |text: &str| !text.chars().any(|c| c.is_control());
        let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
        for (name, value) in request.headers {
            if !is_plain(name) || !is_plain(value) {
                return Err(Error::new(ErrorKind::Settings, format!("header {name:?} holds control characters")));
            }
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !request.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            let _ = write!(head, "Host: {}\r\n", self.shared.origin.authority());
        }
        head.push_str(framing);
        head.push_str("\r\n");
        Ok(head)
    }
}

impl Shared {
    fn new(origin: Origin, tls: Option<Arc<ClientConfig>>, stop: Stop) -> Shared {
        let (idle, opened, open_us) = (Mutex::default(), AtomicUsize::new(0), AtomicU64::new(u64::MAX));
        Shared { origin, tls, idle, opened, open_us, stop }
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap();
        let now = Instant::now();
        idle.retain(|one| now - one.idle_since < IDLE_MAX && now - one.opened < AGE_MAX);
        idle.pop()
    }

    fn keep(&self, mut connection: Connection) {
        (connection.idle_since, connection.until, connection.stops) = (Instant::now(), None, None);
        let mut idle = self.idle.lock().unwrap();
        if idle.len() < IDLE_COUNT_MAX {
            idle.push(connection);
        }
    }
}

impl Response {
    fn resent(mut self) -> Response {
        self.is_resent = true;
        self
    }

    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim())
    }

    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The length of the body, where it was told.
    pub fn length(&self) -> Option<u64> {
        self.header("content-length").and_then(|length| length.parse().ok())
    }

    /// Reads some of the body; 0 at its end alone.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let Some(connection) = &mut self.connection else { return Ok(0) };
        let read = self.body.read(connection, buffer);
        match read {
            Ok(_) => self.keep(),
            Err(_) => self.connection = None,
        }
        read
    }

    /// The whole body, if it is no longer than allowed.
    pub fn into_bytes(mut self, bytes_max: usize) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        let mut block = vec![0; 16 << 10];
        loop {
            match self.read(&mut block)? {
                0 => return Ok(whole),
                read if whole.len() + read > bytes_max => {
                    self.connection = None;
                    let text = format!("{} sent more than {bytes_max} bytes", self.shared.origin.host);
                    return Err(Error::new(ErrorKind::Malformed, text));
                }
                read => whole.extend_from_slice(&block[..read]),
            }
        }
    }

    /// Gives the connection back once the body is over.
    fn keep(&mut self) {
        if self.body != Body::Ended {
            return;
        }
        if let Some(connection) = self.connection.take().filter(|one| self.is_kept && one.is_quiet()) {
            self.shared.keep(connection);
        }
    }
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Body::Length(left) = self.body
            && left <= REST_BYTES_MAX as u64
            && let Some(connection) = &mut self.connection
        {
            let opened = Duration::from_micros(self.shared.open_us.load(Relaxed));
            let soon = Instant::now() + opened.saturating_mul(2).clamp(REST_TIME_MIN, REST_TIME_MAX);
            connection.until = Some(connection.until.map_or(soon, |until| until.min(soon)));
            let mut rest = vec![0; left as usize];
            while matches!(self.read(&mut rest), Ok(read) if read > 0) {}
        }
    }
}
