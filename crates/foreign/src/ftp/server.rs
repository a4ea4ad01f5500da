//! A server that let us in, and the conversations with it: some are open, and whoever needs one takes it.
//!
//! Invariants: no more are open than the server takes; one in whose transfer something went wrong is not used again; nobody waits for one
//! that another only keeps for later.

use super::fault::{Fault, Result};
use super::line::Line;
use super::reply::Parser;
use super::session::{Features, Reach, Session};
use crate::tree::{Attempts, refused};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};
use store::OpenError;
use store::open::Refused;

/// Conversations at once.
pub const SESSIONS_MAX: usize = 12;
/// Of them at work for one group of small files.
const AT_WORK_MAX: usize = 8;
/// Whoever waits longer for one waits for itself.
const TURN_PATIENCE: Duration = Duration::from_secs(60);
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// A conversation that was idle for longer is tried before it is used.
const FRESH: Duration = Duration::from_secs(10);

/// Who is let in.
#[derive(Clone)]
pub struct Account {
    pub user: String,
    pub password: String,
}

/// A control connection.
pub struct Wires {
    pub input: Box<dyn Read + Send>,
    pub output: Box<dyn Write + Send>,
    /// What holds it up, and says why it ended before a greeting.
    pub why: Option<Box<dyn FnOnce() -> OpenError + Send>>,
    pub peer: Option<IpAddr>,
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
    account: Account,
    reach: Reach,
    dial: Box<DialWires>,
    idle: Mutex<Idle>,
    freed: Condvar,
}

/// A server, as a store.
pub struct Ftp(pub Arc<Server>);

struct Idle {
    sessions: Vec<Held>,
    open: usize,
    most: usize,
    /// Conversations that came back, or ended, so far.
    returned: u64,
    /// The one that was kept first is the first.
    spares: VecDeque<Weak<dyn Spare>>,
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
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let mut idle = self.server.idle.lock().unwrap();
        match held.session.line.is_lost || held.session.line.is_busy() {
            true => idle.open -= 1,
            false => idle.sessions.push(Held { since: Instant::now(), ..held }),
        }
        idle.returned += 1;
        self.server.freed.notify_one();
    }
}

/// Connects to a server of a name, unless that would show what is sent to others.
pub fn by_tcp(host: &str, port: u16, allow_clear: bool) -> std::result::Result<Wires, OpenError> {
    let unreachable =
        |why: String| refused(Refused::Unreachable, why, "check the address, the network and any firewall on the path");
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let found = (bare, port).to_socket_addrs().map_err(|e| unreachable(format!("look up {host}: {e}")))?;
    let mut last = format!("{host} has no address");
    for address in found {
        if !address.ip().to_canonical().is_loopback() && !allow_clear {
            let text = format!("{host}: FTP is not encrypted: others on the path can read and change what is sent");
            let advice = "use sftp:// or an endpoint, or accept it for this server: [stores.NAME] with kind = \"gridftp\", \
                          endpoint = \"gsiftp://HOST:PORT\" and allow_clear = true";
            return Err(refused(Refused::Request, text, advice));
        }
        match TcpStream::connect_timeout(&address, CONNECT_PATIENCE) {
            Ok(stream) => {
                let _ = stream.set_nodelay(true);
                let _ = stream.set_write_timeout(Some(super::line::PATIENCE));
                let output = stream.try_clone().map_err(|e| unreachable(format!("{host}: {e}")))?;
                let peer = Some(address.ip());
                return Ok(Wires { input: Box::new(stream), output: Box::new(Ends(output)), why: None, peer });
            }
            Err(e) => last = format!("connect to {address}: {e}"),
        }
    }
    Err(unreachable(last))
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
        let idle = Mutex::new(Idle { sessions: Vec::new(), open: 0, most, returned: 0, spares: VecDeque::new() });
        let mut server = Server {
            name,
            attempts: Attempts::default(),
            can: Features::default(),
            comparing: AtomicUsize::new(0),
            keeps_no_times: AtomicBool::new(false),
            account,
            reach,
            dial,
            idle,
            freed: Condvar::new(),
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
        let Wires { input, output, why, peer } = (self.dial)()?;
        let reach = Reach { peer: peer.or(self.reach.peer), ..self.reach.clone() };
        let lost =
            |fault: &Fault| refused(Refused::Unreachable, format!("{}: {}", self.name, said(fault)), "try again");
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
        self.log_in(&mut session)?;
        session.learn().map_err(|fault| lost(&fault))?;
        Ok(Held { session, since: Instant::now(), _why: why })
    }

    fn log_in(&self, session: &mut Session) -> std::result::Result<(), OpenError> {
        let Account { user, password } = &self.account;
        let mut logged = session.ask(format!("USER {user}").into_bytes());
        if logged.as_ref().is_ok_and(|reply| reply.code == 331) {
            logged = session.ask(format!("PASS {password}").into_bytes());
        }
        let fault = match logged {
            Ok(reply) if reply.code / 100 == 2 => return Ok(()),
            Ok(reply) => Fault::of(&reply),
            Err(fault) => fault,
        };
        let text = said(&fault);
        let wants_gsi = ["gssapi", "gsi", "auth"].iter().any(|word| text.to_ascii_lowercase().contains(word));
        // An empty one is between any two letters.
        let text = if password.is_empty() { text } else { text.replace(&password[..], "...") };
        Err(match fault {
            Fault::Refused { .. } if wants_gsi => refused(
                Refused::Keys,
                format!(
                    "{} asks for GSI, the certificates of grids, which this program does not speak ({text}): GridFTP sites are \
                     leaving it for tokens",
                    self.name
                ),
                "use the site's davs:// door with a token (docs/webdav.md), sshftp://HOST/PATH if you may log in there by ssh, or copy \
                 with globus-url-copy",
            ),
            Fault::Refused { .. } => refused(
                Refused::Keys,
                format!("{} does not let {user} in: {text}", self.name),
                "name the user as ftp://USER@HOST/PATH, and a file with the password as credentials_file in the server's table \
                 (docs/gridftp.md)",
            ),
            _ => refused(Refused::Unreachable, format!("{}: {text}", self.name), "try again"),
        })
    }

    /// A conversation that nobody else has.
    pub fn lease(self: &Arc<Self>) -> Result<Lease> {
        self.lease_as(0)
    }

    /// As `lease`, in MODE E with at least so many data connections.
    pub fn lease_extended(self: &Arc<Self>, channels: usize) -> Result<Lease> {
        self.lease_as(channels)
    }

    fn lease_as(self: &Arc<Self>, channels: usize) -> Result<Lease> {
        let mut lease = self.any_lease(channels > 0)?;
        match lease.set_mode(channels) {
            Ok(()) => Ok(lease),
            Err(fault) => {
                lease.line.is_lost = true;
                Err(fault)
            }
        }
    }

    /// One of this kind, if one is idle; else a new one, and as long as no more may be opened one of the other kind, or one that is only
    /// kept for later.
    fn any_lease(self: &Arc<Self>, is_extended: bool) -> Result<Lease> {
        let mut idle = self.idle.lock().unwrap();
        let (mut until, mut returned) = (Instant::now() + TURN_PATIENCE, idle.returned);
        loop {
            let fits = idle.sessions.iter().rposition(|held| held.session.is_extended == is_extended);
            let any = if idle.open < idle.most { fits } else { fits.or(idle.sessions.len().checked_sub(1)) };
            if let Some(at) = any {
                let held = idle.sessions.swap_remove(at);
                drop(idle);
                let mut lease = Lease { server: self.clone(), held: Some(held) };
                if lease.is_fresh() || lease.ask(b"NOOP".to_vec()).is_ok() {
                    return Ok(lease);
                }
                // The server ended it meanwhile, and says so.
                lease.line.is_lost = true;
                drop(lease);
                idle = self.idle.lock().unwrap();
                continue;
            }
            if idle.open < idle.most {
                idle.open += 1;
                drop(idle);
                let talk = self.talk();
                idle = self.idle.lock().unwrap();
                match talk {
                    Ok(held) => return Ok(Lease { server: self.clone(), held: Some(held) }),
                    Err(error) => {
                        idle.open -= 1;
                        if idle.open == 0 {
                            return Err(Fault::Lost(error.to_string().into()));
                        }
                        // It takes no more at once.
                        idle.most = idle.open;
                    }
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
            // As long as others come and go, its turn comes too.
            if idle.returned != returned {
                (until, returned) = (Instant::now() + TURN_PATIENCE, idle.returned);
            }
            if Instant::now() > until {
                let text = format!("{} takes only {} connections at once, which are all in use", self.name, idle.most);
                return Err(Fault::Lost(text.into()));
            }
            idle = self.freed.wait_timeout(idle, Duration::from_secs(1)).unwrap().0;
        }
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
        match act(&mut *self.lease()?) {
            Err(Fault::Lost(_)) => act(&mut *self.lease()?),
            done => done,
        }
    }

    /// Spreads work over as many conversations as it is worth.
    pub fn spread<T: Send>(&self, all: &mut [T], work: impl Fn(&mut [T]) + Sync) {
        let share = all.len().div_ceil(AT_WORK_MAX).max(1);
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

    pub fn note_no_times(&self) {
        self.keeps_no_times.store(true, Relaxed);
    }
}

pub fn said(fault: &Fault) -> String {
    use crate::tree::Faulty;
    let message = fault.on("connect", b"").message();
    message.strip_prefix("connect: ").unwrap_or(&message).to_owned()
}

fn not_ftp(name: &str, fault: &Fault) -> OpenError {
    let text = format!("{name} does not answer like an FTP server: {}", said(fault));
    refused(Refused::Unreachable, text, "check the port: FTP has 21, GridFTP 2811")
}
