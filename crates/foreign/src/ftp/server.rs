//! A server that let us in, and the conversations with it: some are open, and whoever needs one takes it.
//!
//! Invariants: no more are open than the server takes; one in whose transfer something went wrong is not used again; nobody waits for one
//! that another only keeps for later, and everybody as long as those who have one move on.

use super::fault::{Fault, Result, said};
use super::line::{Line, PATIENCE};
use super::login::{Account, log_in, log_in_again};
use super::reply::Parser;
use super::session::{Features, Flow, Reach, Session};
use crate::tree::{Attempts, WIDTH};
use rustix::net::sockopt;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use store::OpenError;
use store::open::Refused;

/// Conversations at once.
pub const SESSIONS_MAX: usize = 12;
/// Of them at work for one group of small files.
const AT_WORK_MAX: usize = 8;
/// Small files of a group at a GridFTP server: 32 behind one another on each data connection at work.
const GROUP_FILES: usize = 256;
/// So many small files are worth a try whether the server can connect to this host.
const CALLED_FILES_MIN: usize = 16;
/// Whoever waits longer for one while nothing moves waits for itself: the server is given up before (`line::PATIENCE`).
const TURN_PATIENCE: Duration = Duration::from_secs(240);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// A conversation that was idle for longer is tried before it is used.
const FRESH: Duration = Duration::from_secs(10);
/// How long a server may still count a conversation that this side gave up.
const LINGERING: Duration = Duration::from_secs(10);
/// How often another one is tried meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// A control connection.
pub struct Wires {
    pub input: Box<dyn Read + Send>,
    pub output: Box<dyn Write + Send>,
    /// What holds it up, and says why it ended before a greeting.
    pub why: Option<Box<dyn FnOnce() -> OpenError + Send>>,
    pub peer: Option<IpAddr>,
    /// The address of this host that the server sees, unless somebody translates it on the way.
    pub here: Option<IpAddr>,
}

pub type DialWires = dyn Fn() -> std::result::Result<Wires, OpenError> + Send + Sync;

pub struct Server {
    pub name: String,
    pub attempts: Attempts,
    pub can: Features,
    /// It did not set a time that it was asked to set.
    pub keeps_no_times: AtomicBool,
    /// Files whose checksums are compared beside the transfer.
    pub comparing: AtomicUsize,
    /// Conversations in which the server is given more time than for any other answer, because it sums up files.
    pub summing: AtomicUsize,
    account: Account,
    reach: Reach,
    dial: Box<DialWires>,
    /// Whether it could connect to this host, the first time that it was told to.
    called: Mutex<Option<bool>>,
    idle: Mutex<Idle>,
    freed: Condvar,
    /// How often a conversation came back, ended or moved content.
    stirs: AtomicU64,
    turn_patience: Duration,
}

/// A server, as a store.
pub struct Ftp(pub Arc<Server>);

struct Idle {
    sessions: Vec<Held>,
    open: usize,
    most: usize,
    /// When one was last given up in which MODE E did not come about, or the server was to connect to this host.
    given_up: Option<Instant>,
    /// Before then no other one is tried.
    again: Option<Instant>,
    /// The one that was kept first is the first.
    spares: VecDeque<Weak<dyn Spare>>,
}

impl Idle {
    /// Another one may be had, as far as is known.
    fn may_open(&self) -> bool {
        self.open < self.most && self.again.is_none_or(|at| Instant::now() >= at)
    }

    /// There was no other one. That says how many the server takes, unless it may count one that was given up.
    fn refused(&mut self, error: &OpenError) -> Result<()> {
        self.open -= 1;
        match self.open {
            _ if self.given_up.is_some_and(|when| when.elapsed() < LINGERING) => {
                self.again = Some(Instant::now() + PAUSE);
            }
            0 => return Err(Fault::Lost(error.to_string().into())),
            open => self.most = open,
        }
        Ok(())
    }
}

/// What keeps a conversation for later, as a transfer that may be read on, and can begin another one instead.
pub trait Spare: Send + Sync {
    fn give_up(&self);
}

struct Held {
    session: Session,
    since: Instant,
    _why: Option<Box<dyn FnOnce() -> OpenError + Send>>,
}

/// A conversation while somebody has it.
pub struct Lease {
    server: Arc<Server>,
    held: Option<Held>,
}

impl std::ops::Deref for Lease {
    type Target = Session;
    fn deref(&self) -> &Session {
        &self.held.as_ref().expect("until it is dropped").session
    }
}

impl std::ops::DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.held.as_mut().expect("until it is dropped").session
    }
}

impl Lease {
    fn is_fresh(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.since.elapsed() < FRESH)
    }

    /// Content moved: whoever waits for a turn waits on.
    pub fn stir(&self) {
        self.server.stir();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let mut idle = self.server.idle.lock().unwrap();
        match held.session.line.is_lost || held.session.line.is_busy() {
            true => {
                idle.open -= 1;
                idle.given_up = (held.session.flow == Flow::Back).then(Instant::now).or(idle.given_up);
            }
            false => idle.sessions.push(Held { since: Instant::now(), ..held }),
        }
        self.server.stir();
        self.server.freed.notify_one();
    }
}

/// Connects to a server of a name, unless that would show what is sent to others.
pub fn by_tcp(host: &str, port: u16, allow_clear: bool) -> std::result::Result<Wires, OpenError> {
    let advice = "check the address, the network and any firewall on the path";
    let unreachable = |why: String| OpenError::refused(Refused::Unreachable, why, advice);
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = (bare, port).to_socket_addrs().map_err(|e| unreachable(format!("look up {host}: {e}")))?;
    let mut last = format!("{host} has no address");
    for address in found {
        if !address.ip().to_canonical().is_loopback() && !allow_clear {
            let text = format!("{host}: FTP is not encrypted: others on the path can read and change what is sent");
            let advice = "use sftp:// or an endpoint, or accept it for this server: [stores.NAME] with kind = \"gridftp\", \
                          endpoint = \"gsiftp://HOST:PORT\" and allow_clear = true";
            return Err(OpenError::refused(Refused::Request, text, advice));
        }
        match dial(&address) {
            Ok(stream) => {
                let output = stream.try_clone().map_err(|e| unreachable(format!("{host}: {e}")))?;
                let (peer, here) = (Some(address.ip()), stream.local_addr().ok().map(|own| own.ip()));
                return Ok(Wires { input: Box::new(stream), output: Box::new(Ends(output)), why: None, peer, here });
            }
            Err(e) => last = format!("connect to {address}: {e}"),
        }
    }
    Err(unreachable(last))
}

/// A control connection, on which a server that is gone is noticed even while it is given long to answer.
fn dial(address: &SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(address, CONNECT_PATIENCE)?;
    let _ = stream.set_nodelay(true);
    let _ = stream.set_write_timeout(Some(PATIENCE));
    let _ = sockopt::set_socket_keepalive(&stream, true);
    let _ = sockopt::set_tcp_keepidle(&stream, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepintvl(&stream, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepcnt(&stream, 4);
    Ok(stream)
}

/// Ends both directions when it is dropped, so that the thread that reads ends too.
struct Ends(TcpStream);

impl Write for Ends {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

impl Server {
    /// Begins the first conversation.
    pub fn connect(
        name: String,
        account: Account,
        reach: Reach,
        dial: Box<DialWires>,
    ) -> std::result::Result<Arc<Server>, OpenError> {
        let most = SESSIONS_MAX;
        let (sessions, spares, given_up, again) = Default::default();
        let idle = Mutex::new(Idle { sessions, open: 0, most, given_up, again, spares });
        let mut server = Server {
            name,
            attempts: Attempts::default(),
            can: Features::default(),
            comparing: AtomicUsize::new(0),
            summing: AtomicUsize::new(0),
            keeps_no_times: AtomicBool::new(false),
            account,
            reach,
            dial,
            called: Mutex::default(),
            idle,
            freed: Condvar::new(),
            stirs: AtomicU64::new(0),
            turn_patience: TURN_PATIENCE,
        };
        let first = server.talk()?;
        server.can = first.session.can.clone();
        let mut idle = server.idle.lock().unwrap();
        idle.open = 1;
        idle.sessions.push(first);
        drop(idle);
        Ok(Arc::new(server))
    }

    fn talk(&self) -> std::result::Result<Held, OpenError> {
        let Wires { input, output, why, peer, here } = (self.dial)()?;
        let reach = Reach { peer: peer.or(self.reach.peer), here, ..self.reach.clone() };
        let lost = |fault: &Fault| {
            OpenError::refused(Refused::Unreachable, format!("{}: {}", self.name, said(fault)), "try again")
        };
        let parser = if why.is_some() { Parser::after_words() } else { Parser::default() };
        let line = Line::start(&self.name, input, output, parser);
        let line = line.map_err(|e| lost(&Fault::Lost(e.to_string().into())))?;
        let mut session = Session::new(line, reach);
        let greeting = match session.last() {
            Ok(greeting) => greeting,
            Err(Fault::Lost(text)) => {
                return Err(why.map_or_else(|| lost(&Fault::Lost(text)), |why| why()));
            }
            Err(fault) => return Err(not_ftp(&self.name, &fault)),
        };
        if greeting.code != 220 {
            return Err(not_ftp(&self.name, &Fault::of(&greeting)));
        }
        // Of a GridFTP server it is known by then, and it reads what is sent ahead.
        if self.can.grid {
            log_in_again(&self.account, &self.can, &mut session).map_err(|fault| lost(&fault))?;
        } else {
            let asks_password = log_in(&self.name, &self.account, &mut session)?;
            session.learn().map_err(|fault| lost(&fault))?;
            session.can.asks_password = asks_password;
        }
        Ok(Held { session, since: Instant::now(), _why: why })
    }

    /// A conversation that nobody else has.
    pub fn lease(self: &Arc<Self>) -> Result<Lease> {
        self.lease_as(Flow::Streams, 0)
    }

    /// As `lease`, in MODE E with at least so many data connections.
    pub fn lease_extended(self: &Arc<Self>, channels: usize) -> Result<Lease> {
        self.lease_as(Flow::There, channels)
    }

    /// As `lease`, in MODE E with a data connection that the server opens, or has opened.
    pub fn lease_called(self: &Arc<Self>) -> Result<Lease> {
        self.lease_as(Flow::Back, 0)
    }

    fn lease_as(self: &Arc<Self>, flow: Flow, channels: usize) -> Result<Lease> {
        let mut lease = self.any_lease(flow)?;
        match lease.set_flow(flow, channels) {
            Ok(()) => Ok(lease),
            Err(fault) => {
                lease.line.is_lost = true;
                if flow != Flow::Streams {
                    self.idle.lock().unwrap().given_up = Some(Instant::now());
                }
                Err(fault)
            }
        }
    }

    /// One of this kind, if one is idle; else a new one, and as long as no more may be opened one of the other kind, or one that is only
    /// kept for later.
    fn any_lease(self: &Arc<Self>, flow: Flow) -> Result<Lease> {
        let mut idle = self.idle.lock().unwrap();
        let (mut until, mut stirs) = (Instant::now() + self.turn_patience, self.stirs.load(Relaxed));
        loop {
            let fits = idle.sessions.iter().rposition(|held| held.session.flow == flow);
            let may_open = idle.may_open();
            let any = if may_open { fits } else { fits.or(idle.sessions.len().checked_sub(1)) };
            if let Some(at) = any {
                let held = idle.sessions.swap_remove(at);
                drop(idle);
                let mut lease = Lease { server: self.clone(), held: Some(held) };
                let is_fresh = lease.is_fresh();
                if is_fresh || lease.ask(b"NOOP".to_vec()).is_ok() {
                    // A data connection that stood still may have been cut off without a word.
                    if !is_fresh && lease.flow == Flow::Back {
                        (lease.flow, lease.channels, lease.inlet) = (Flow::There, Vec::new(), None);
                    }
                    return Ok(lease);
                }
                // The server ended it meanwhile, and says so.
                lease.line.is_lost = true;
                drop(lease);
                idle = self.idle.lock().unwrap();
                continue;
            }
            if may_open {
                idle.open += 1;
                drop(idle);
                let talk = self.talk();
                idle = self.idle.lock().unwrap();
                match talk {
                    Ok(held) => return Ok(Lease { server: self.clone(), held: Some(held) }),
                    Err(error) => idle.refused(&error)?,
                }
                continue;
            }
            let spare = idle.spares.pop_front();
            if let Some(spare) = spare {
                drop(idle);
                if let Some(spare) = spare.upgrade() {
                    spare.give_up();
                }
                idle = self.idle.lock().unwrap();
                continue;
            }
            // As long as others come and go, or move on, its turn comes too.
            if self.moves_on(stirs) {
                (until, stirs) = (Instant::now() + self.turn_patience, self.stirs.load(Relaxed));
            }
            if Instant::now() > until {
                let text = format!("{} takes only {} connections at once, which are all in use", self.name, idle.most);
                return Err(Fault::Crowded(text.into()));
            }
            idle = self.freed.wait_timeout(idle, Duration::from_secs(1)).unwrap().0;
        }
    }

    /// Whether anything stirred since there were so many stirs, or the server has reason to be silent.
    fn moves_on(&self, stirs: u64) -> bool {
        self.stirs.load(Relaxed) != stirs || self.summing.load(Relaxed) > 0
    }

    /// Whoever waits for a conversation may have this one.
    pub fn offer(&self, spare: Weak<dyn Spare>) {
        let mut idle = self.idle.lock().unwrap();
        idle.spares.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&spare));
        idle.spares.push_back(spare);
        self.freed.notify_one();
    }

    /// Does something that changes nothing, and once more where the conversation was lost.
    pub fn with<T>(self: &Arc<Self>, act: impl Fn(&mut Session) -> Result<T>) -> Result<T> {
        // The lost one is given back first: the server may take no other.
        let done = act(&mut *self.lease()?);
        match done {
            Err(Fault::Lost(_)) => act(&mut *self.lease()?),
            done => done,
        }
    }

    /// Whether so many small files are to be fetched over data connections that the server opens.
    pub fn may_call(&self, files: usize) -> bool {
        self.can.calls && files > 1 && self.called.lock().unwrap().unwrap_or(files >= CALLED_FILES_MIN)
    }

    /// What came of it. Once it failed it is not tried again.
    pub fn note_called(&self, has_called: bool) {
        let mut called = self.called.lock().unwrap();
        *called = Some(has_called && *called != Some(false));
    }

    /// Small files that are worked on together.
    pub fn group_files(&self) -> usize {
        // To plain servers each file takes round trips of its own, and a group is not broken off.
        if self.can.grid { GROUP_FILES } else { WIDTH }
    }

    /// Spreads work over as many conversations as it is worth, in shares of so many at least.
    pub fn spread<T: Send>(&self, all: &mut [T], share_min: usize, work: impl Fn(&mut [T]) + Sync) {
        let share = all.len().div_ceil(AT_WORK_MAX).max(share_min);
        if all.len() <= share {
            return work(all);
        }
        let shares = Mutex::new(all.chunks_mut(share));
        let next = || shares.lock().unwrap().next();
        let run = || {
            while let Some(some) = next() {
                work(some);
            }
        };
        std::thread::scope(|scope| {
            // This thread is one of them: the rest are there where they are to be had.
            (1..AT_WORK_MAX)
                .for_each(|_| _ = std::thread::Builder::new().name("ftp".to_owned()).spawn_scoped(scope, run));
            run();
        });
    }

    /// Who is let in.
    pub fn user(&self) -> &str {
        &self.account.user
    }

    pub fn stir(&self) {
        self.stirs.fetch_add(1, Relaxed);
    }

    pub fn note_no_times(&self) {
        self.keeps_no_times.store(true, Relaxed);
    }
}

fn not_ftp(name: &str, fault: &Fault) -> OpenError {
    let text = format!("{name} does not answer like an FTP server: {}", said(fault));
    OpenError::refused(Refused::Unreachable, text, "check the port: FTP has 21, GridFTP 2811")
}

#[cfg(test)]
pub mod tests;
