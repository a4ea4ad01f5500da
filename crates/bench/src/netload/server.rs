//! The listening end: any number of runs one after the other, several at once, and nothing a stranger could make grow.
//!
//! Owns: the listener, the sessions under way, the budget of streams. A session is the thread of its control connection;
//! data connections reach it through a channel that holds as many as it announced.
//!
//! Invariants: a connection that has not said what it is holds one of few places, for seconds. A session ends by its own
//! clock even if its client never says another word.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use net::{Identity, Listener, ServerTls, Stopper};

use super::control::{Control, read_exact};
use super::lane::{Joined, Lane};
use super::measure::measure;
use super::protocol::{FromClient, FromServer, Greeting, HELLO_BYTES, Hello, Token, VERSION, from_hex, to_hex};
use super::{Load, STREAMS_MAX, Way};
use crate::error::{Error, Kind};

/// For the first bytes of a connection, which a client sends at once.
const HELLO_WAIT: Duration = Duration::from_secs(10);
/// For each step until payload flows.
const STEP_WAIT: Duration = Duration::from_secs(20);
/// A client collects what it wants within this after the last moment, or is taken for gone.
const AFTER_WAIT: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_millis(100);

/// What all clients together may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    pub sessions: u32,
    /// Of one address.
    pub sessions_of_peer: u32,
    /// Of one session's load, what is left out of it included: nobody holds a place for longer, however little it sends.
    pub time_max: Duration,
    /// Of all sessions, both directions counted.
    pub lanes: u32,
    /// Connections that have not said what they are, or are in their handshake.
    pub strangers: u32,
}

impl Limits {
    /// For a server that strangers may use.
    pub const FOR_STRANGERS: Limits = Limits {
        sessions: 16,
        sessions_of_peer: 8,
        time_max: Duration::from_secs(2 * 3600),
        lanes: 2 * STREAMS_MAX,
        strangers: 64,
    };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::FOR_STRANGERS
    }
}

/// A session that has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Served {
    pub peer: SocketAddr,
    /// None: there was no request that could be served.
    pub load: Option<Load>,
    /// What went wrong, or empty.
    pub problem: String,
}

pub struct Server {
    listener: Listener,
    limits: Limits,
}

impl Server {
    /// Listens on `ADDR:PORT`.
    pub fn bind(address: &str, limits: Limits) -> Result<Server, Error> {
        let listener = Listener::bind(address).map_err(|e| of_net(e, "listen on", address))?;
        Ok(Server { listener, limits })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    pub fn stopper(&self) -> Stopper {
        self.listener.stopper()
    }

    /// Serves until the stopper is used; sessions under way are then broken off. `on_served` is called from several threads.
    pub fn serve(&self, on_served: impl Fn(Served) + Sync) -> Result<(), Error> {
        let shared = Shared {
            limits: self.limits,
            stop: AtomicBool::new(false),
            book: Mutex::new(Book::default()),
            left: Condvar::new(),
        };
        thread::scope(|scope| {
            let _stop = StopOnDrop(&shared.stop);
            while let Some((tcp, peer)) = self.listener.accept().map_err(|e| of_net(e, "accept on", "the listener"))? {
                let Some(place) = shared.place() else { continue };
                let (shared, on_served) = (&shared, &on_served);
                let work = move || shared.meet(tcp, peer, place, on_served);
                // Without a thread the connection is closed; the client says that it was.
                let _ = thread::Builder::new().name("netload peer".into()).spawn_scoped(scope, work);
            }
            Ok(())
        })
    }
}

/// What all connections share.
struct Shared {
    limits: Limits,
    stop: AtomicBool,
    /// Held for a lookup or a change of a number, never while waiting for a peer.
    book: Mutex<Book>,
    left: Condvar,
}

#[derive(Default)]
struct Book {
    strangers: u32,
    sessions: u32,
    by_peer: HashMap<IpAddr, u32>,
    lanes: u32,
    expected: HashMap<Token, Expected>,
}

/// What a session waits for.
struct Expected {
    lanes: u32,
    tls: Option<ServerTls>,
    joined: SyncSender<(u32, Joined)>,
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A stranger's place, given back on drop.
struct Place<'a>(&'a Shared);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.book().strangers -= 1;
        self.0.left.notify_one();
    }
}

/// A session's part of the budget, given back on drop.
struct Budget<'a> {
    shared: &'a Shared,
    peer: IpAddr,
    lanes: u32,
    token: Option<Token>,
}

impl Drop for Budget<'_> {
    fn drop(&mut self) {
        let mut book = self.shared.book();
        book.sessions -= 1;
        if let Entry::Occupied(mut of_peer) = book.by_peer.entry(self.peer) {
            *of_peer.get_mut() -= 1;
            if *of_peer.get() == 0 {
                of_peer.remove();
            }
        }
        book.lanes -= self.lanes;
        if let Some(token) = self.token {
            book.expected.remove(&token);
        }
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while all places are taken: those who wait are in the listener's backlog. None: none became free in time.
    fn place(&self) -> Option<Place<'_>> {
        let is_full = |book: &mut Book| book.strangers >= self.limits.strangers;
        let waited = self.left.wait_timeout_while(self.book(), STEP_WAIT, is_full);
        let (mut book, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        book.strangers += 1;
        Some(Place(self))
    }

    fn meet(&self, tcp: TcpStream, peer: SocketAddr, place: Place<'_>, on_served: &(impl Fn(Served) + Sync)) {
        let mut hello = [0; HELLO_BYTES];
        if read_exact(&tcp, &mut hello, Instant::now() + HELLO_WAIT, &self.stop).is_err() {
            return;
        }
        match Hello::decode(&hello) {
            Some(Hello::Control) => {
                drop(place);
                let mut load = None;
                let problem = self.session(tcp, peer.ip(), &mut load).err().map_or(String::new(), |e| e.to_string());
                on_served(Served { peer, load, problem });
            }
            Some(Hello::Data { lane, token }) => self.join(tcp, lane, &token),
            None => {
                // A peer that is something else may not listen.
                let _ = io::Write::write_all(&mut &tcp, &Greeting::NotUnderstood { version: VERSION }.encode());
                on_served(Served { peer, load: None, problem: "it is no client of this version".into() });
            }
        }
    }

    /// Hands a data connection to its session, with TLS if that is what it waits for.
    fn join(&self, tcp: TcpStream, lane: u32, token: &Token) {
        let expected = self.book().expected.get(token).map(|e| (e.lanes, e.tls.clone(), e.joined.clone()));
        let Some((lanes, tls, channel)) = expected else { return };
        if lane >= lanes {
            return;
        }
        let joined = match tls {
            None => tcp.set_read_timeout(None).map(|()| Joined::Clear(tcp)).ok(),
            Some(tls) => {
                let accepted = net::accept_tls(tcp, &tls, Instant::now() + STEP_WAIT);
                accepted.map(|connection| Joined::Sealed(Box::new(connection))).ok()
            }
        };
        if let Some(joined) = joined {
            // Fails when the session has ended, or when more came than were announced.
            let _ = channel.try_send((lane, joined));
        }
    }

    fn session(&self, tcp: TcpStream, peer: IpAddr, load_of: &mut Option<Load>) -> io::Result<()> {
        let control = Control::new(tcp, &self.stop)?;
        let Some(mut budget) = self.admit(peer) else {
            return io::Write::write_all(&mut control.socket(), &Greeting::Busy.encode());
        };
        io::Write::write_all(&mut control.socket(), &Greeting::Welcome.encode())?;
        let FromClient::Request(load) = control.receive(Instant::now() + STEP_WAIT)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it asked for nothing"));
        };
        if let Err(reason) = self.examine(&control, &load, &mut budget) {
            return control.send(&FromServer::Refused { reason });
        }
        *load_of = Some(load.clone());
        let lanes = match self.gather(&control, &load, &mut budget)? {
            Ok(lanes) => lanes,
            Err(reason) => {
                control.send(&FromServer::Failed { reason: reason.clone() })?;
                return Err(io::Error::other(reason));
            }
        };
        let congestion = net::socket::congestion(control.socket()).unwrap_or_default();
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        control.send(&FromServer::Ready { kernel, congestion })?;
        let FromClient::Start = control.receive(Instant::now() + STEP_WAIT)? else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it did not start"));
        };
        conduct(&control, &load, &lanes);
        Ok(())
    }

    fn admit(&self, peer: IpAddr) -> Option<Budget<'_>> {
        let mut book = self.book();
        let of_peer = book.by_peer.get(&peer).copied().unwrap_or(0);
        if book.sessions >= self.limits.sessions || of_peer >= self.limits.sessions_of_peer {
            return None;
        }
        book.sessions += 1;
        book.by_peer.insert(peer, of_peer + 1);
        Some(Budget { shared: self, peer, lanes: 0, token: None })
    }

    /// Whether the load can be served; takes its lanes from the budget.
    fn examine(&self, control: &Control<'_>, load: &Load, budget: &mut Budget<'_>) -> Result<(), String> {
        load.check()?;
        if load.total() > self.limits.time_max {
            return Err(format!("a run lasts at most {} s here", self.limits.time_max.as_secs()));
        }
        if let Some(name) = load.congestion.as_ref().filter(|_| sends(load)) {
            // Tried on this connection, which then shows what the sending ones use.
            net::socket::set_congestion(control.socket(), name).map_err(|e| e.to_string())?;
        }
        let mut book = self.book();
        let free = self.limits.lanes - book.lanes;
        if load.lanes() > free {
            return Err(format!("{} streams are free here at present, not {}", free, load.lanes()));
        }
        book.lanes += load.lanes();
        budget.lanes = load.lanes();
        Ok(())
    }

    /// Announces what is expected and waits until all data connections are there.
    fn gather(
        &self,
        control: &Control<'_>,
        load: &Load,
        budget: &mut Budget<'_>,
    ) -> io::Result<Result<Vec<Lane>, String>> {
        let identity = if load.is_encrypted { Some(Identity::generate().map_err(io::Error::other)?) } else { None };
        let tls = identity.as_ref().map(ServerTls::new).transpose().map_err(io::Error::other)?;
        let token: Token = net::random_bytes();
        let (joined, joining) = sync_channel(load.lanes() as usize);
        self.book().expected.insert(token, Expected { lanes: load.lanes(), tls, joined });
        budget.token = Some(token);
        let pin = identity.map(|identity| to_hex(&identity.pin().0));
        control.send(&FromServer::Accepted { token: to_hex(&token), pin })?;
        let found = self.collect(load, &joining);
        self.book().expected.remove(&token);
        Ok(found)
    }

    fn collect(&self, load: &Load, joining: &Receiver<(u32, Joined)>) -> Result<Vec<Lane>, String> {
        let mut lanes: Vec<Option<Lane>> = (0..load.lanes()).map(|_| None).collect();
        let deadline = Instant::now() + STEP_WAIT;
        let mut count = 0;
        while count < lanes.len() {
            let Ok((number, joined)) = joining.recv_timeout(SLICE) else {
                if Instant::now() >= deadline || self.stop.load(Relaxed) {
                    return Err(format!("{count} of {} streams arrived", lanes.len()));
                }
                continue;
            };
            let place = &mut lanes[number as usize];
            if place.is_some() {
                return Err(format!("stream {number} arrived twice"));
            }
            let is_sending = load.way(number) == Way::Reverse;
            *place = Some(Lane::new(joined, is_sending, load).map_err(|e| e.to_string())?);
            count += 1;
        }
        Ok(lanes.into_iter().flatten().collect())
    }
}

/// Whether the server sends payload.
fn sends(load: &Load) -> bool {
    (0..load.lanes()).any(|lane| load.way(lane) == Way::Reverse)
}

/// Measures, and tells the client, until it says that it knows enough, or goes away.
fn conduct(control: &Control<'_>, load: &Load, lanes: &[Lane]) {
    let is_over = AtomicBool::new(false);
    let until = Instant::now() + load.total() + AFTER_WAIT;
    thread::scope(|scope| {
        scope.spawn(|| {
            // Whatever comes (a stop, garbage, the end of the connection) is the end of the run.
            let _ = control.receive::<FromClient>(until);
            is_over.store(true, Relaxed);
        });
        let begin = || control.send(&FromServer::Started).is_ok();
        measure(lanes, load, &is_over, AFTER_WAIT, begin, |sample| control.send(&FromServer::Sample(sample)).is_ok());
        // Ends the wait for a word of a client that has none.
        control.cut();
    });
}

/// An error of a connection as one of a measurement.
pub(super) fn of_net(error: net::Error, operation: &'static str, subject: &str) -> Error {
    use net::error::ErrorKind;
    let kind = match &error.kind {
        ErrorKind::InvalidAddress | ErrorKind::CongestionUnavailable { .. } => Kind::Usage,
        ErrorKind::NameNotResolved | ErrorKind::Refused | ErrorKind::Unreachable | ErrorKind::TimedOut => {
            Kind::Unreachable
        }
        ErrorKind::NotTls | ErrorKind::IncompatiblePeer => Kind::Incompatible,
        ErrorKind::PermissionDenied => Kind::Denied,
        _ => Kind::Failed,
    };
    let cause = error.kind.to_string();
    Error::new(kind, operation, subject, cause)
}

/// The token that a server announced; None if it is none.
pub(super) fn token_of(text: &str) -> Option<Token> {
    from_hex(text)
}
