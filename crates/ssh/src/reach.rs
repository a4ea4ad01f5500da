//! The way for the data: straight to a port of the remote host where one answers, else through the ssh connection.
//!
//! Every address that the remote side names, and the name that ssh was given, are tried at once; the first that answers with the
//! right key is taken. Whatever else answers there is of no interest: private addresses may belong to somebody else here.
//!
//! A copy between two remote hosts goes from the one straight to the other where it can, else through this host: what is
//! carried is encrypted from end to end all the same.

use super::command::{SshOptions, Target};
use super::launch::{Remote, Tell, harmless};
use super::link::{Accept, Link};
use super::message::{Access, CopyRequest, CopyTerms, News, PathBytes, Peer, PinText, Role, ServeRequest};
use super::owner::is_own;
use super::tunnel::{Tunnel, carried};
use daemon::error::{Error, Result};
use model::{Exit, Pin};
use mover::session::{Client, Connector, Direct};
use net::{DialOptions, Identity};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use transfer::ConnectOptions;

/// For one address to answer, and to show its key. Twice the round trip to the other side of the earth and back, several
/// times; a firewall that drops what it does not like costs as much.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// With the time that a name takes to be resolved.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Streams that share one ssh connection: one of them reads or writes while the other waits.
const TUNNEL_STREAMS: u32 = 2;

/// A remote host to be reached, and what for.
pub struct Wanted<'a> {
    pub options: &'a SshOptions,
    pub target: &'a Target,
    pub access: Access,
    pub paths: Vec<Vec<u8>>,
    pub identity: &'a Identity,
    /// For the remote side's lanes.
    pub memory_bytes: usize,
    pub congestion: Option<String>,
    pub tell: Tell,
    pub interrupted: &'a dyn Fn() -> bool,
}

/// An endpoint on a remote host, for as long as this lives.
pub struct Reached {
    remote: Remote,
    /// Where it can be dialled; through the ssh connection otherwise.
    address: Option<String>,
    dial: DialOptions,
    /// The ssh connection carried no session: it may hang, though ssh runs.
    is_stuck: AtomicBool,
}

impl Reached {
    /// Whether ssh carries the connections.
    pub fn is_tunnelled(&self) -> bool {
        self.address.is_none()
    }

    /// Opens a session.
    pub fn connect(&self, options: &ConnectOptions) -> Result<Client> {
        let mut options = options.clone();
        let connector: Arc<dyn Connector> = match &self.address {
            Some(address) => {
                let dial = DialOptions { congestion: options.congestion.clone(), ..self.dial.clone() };
                Arc::new(Direct::new(address, dial))
            }
            None => {
                options.tuning.streams.get_or_insert(TUNNEL_STREAMS);
                Arc::new(Tunnel::new(self.remote.link().clone(), self.remote.name(), self.dial.clone()))
            }
        };
        let client = transfer::connect_over(self.remote.name(), connector, &options);
        self.is_stuck.store(client.is_err() && self.is_tunnelled(), Relaxed);
        Ok(client?)
    }

    /// Whether another session may be tried here. Once none came through the ssh connection, only another ssh helps.
    pub fn is_alive(&mut self) -> bool {
        !*self.is_stuck.get_mut() && self.remote.is_alive()
    }
}

/// Starts an endpoint on a remote host and finds the way to it.
pub fn reach(wanted: &Wanted<'_>) -> Result<Reached> {
    let mut remote = Remote::start(wanted.options, wanted.target, None, wanted.tell.clone(), wanted.interrupted)?;
    let (addresses, pin) = serve(&mut remote, wanted, vec![PinText(wanted.identity.pin())], None)?;
    let dial = dial_options(wanted, pin)?;
    let address = probe(&addresses, &dial, wanted.interrupted)?;
    Ok(Reached { remote, address, dial, is_stuck: AtomicBool::new(false) })
}

/// Makes a greeted remote side an endpoint, which has no more to say; returns where it may be reached, and its key.
fn serve(
    remote: &mut Remote,
    wanted: &Wanted<'_>,
    clients: Vec<PinText>,
    terms: Option<CopyTerms>,
) -> Result<(Vec<String>, Pin)> {
    let request = ServeRequest {
        access: wanted.access,
        paths: wanted.paths.iter().cloned().map(PathBytes).collect(),
        clients,
        ports: wanted.options.ports,
        is_tunnel_only: wanted.options.is_tunnel_only,
        memory_bytes: wanted.memory_bytes,
        congestion: wanted.congestion.clone(),
        terms,
    };
    let ready = remote.ask(Role::Serve(request), wanted.interrupted)?;
    remote.hear_no_more();
    let mut addresses = ready.usable_addresses();
    if let Some(port) = addresses.first().and_then(|address| address.rsplit_once(':')).map(|(_, port)| port) {
        let host = &wanted.target.host;
        let by_name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        if daemon::ticket::is_address(&by_name) && !addresses.contains(&by_name) {
            addresses.push(by_name);
        }
    }
    Ok((addresses, ready.pin.0))
}

fn dial_options(wanted: &Wanted<'_>, pin: Pin) -> Result<DialOptions> {
    DialOptions::new(wanted.identity, pin).map_err(|e| Error::from_net(&wanted.target.name, &e))
}

/// The first address at which the right key answers; `None` when none does in time.
pub(super) fn probe(
    addresses: &[String],
    dial: &DialOptions,
    interrupted: &dyn Fn() -> bool,
) -> Result<Option<String>> {
    let dial = DialOptions { connect_timeout: CONNECT_TIMEOUT, handshake_timeout: HANDSHAKE_TIMEOUT, ..dial.clone() };
    let (answers, answered) = channel();
    for address in addresses {
        let (address, dial, answers) = (address.clone(), dial.clone(), answers.clone());
        let dial_one = move || {
            let found = net::dial(&address, &dial).inspect_err(|e| tracing::debug!(error = %e, "no way there"));
            // Whoever was first is enough.
            let _ = answers.send(found.is_ok().then_some(address));
        };
        // An address without a thread is one address less.
        let _ = std::thread::Builder::new().name("probe".into()).spawn(dial_one);
    }
    drop(answers);
    let deadline = Instant::now() + PROBE_PATIENCE;
    while Instant::now() < deadline {
        match answered.recv_timeout(LOOK_INTERVAL) {
            Ok(Some(address)) => return Ok(Some(address)),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if interrupted() => return Err(stopped()),
            Ok(None) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    Ok(None)
}

/// A listener on this host's loopback, whose connections the link carries until it ends. Returns its address.
pub(super) fn relay(link: &Link) -> Result<String> {
    let failed = |e: io::Error| Error::new(Exit::Failed, format!("listen on the loopback interface: {e}"));
    let listener = TcpListener::bind("127.0.0.1:0").or_else(|_| TcpListener::bind("[::1]:0")).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?.to_string();
    let link = link.clone();
    let accept = move || {
        for socket in listener.incoming() {
            match socket {
                // Anybody on this host may connect: other users are not carried, and take no channel.
                Ok(socket) if !is_own(&socket) => {}
                // Who finds no room is not carried either, and the others go on.
                Ok(socket) => match link.carry(socket) {
                    Err(e) if e.kind() == io::ErrorKind::NotConnected => return,
                    _ => {}
                },
                // Out of descriptors, most likely: the connection waits.
                Err(_) => std::thread::park_timeout(ACCEPT_PAUSE),
            }
        }
    };
    std::thread::Builder::new().name("relay".into()).spawn(accept).map_err(failed)?;
    Ok(address)
}

/// A copy from one remote host to another.
pub struct ThirdParty<'a> {
    pub from: &'a Target,
    /// What the host `from` is asked to do.
    pub copy: CopyRequest,
    /// What the other host takes of it, whatever `from` does.
    pub terms: CopyTerms,
    /// The other host and its path. Its `options` reach both.
    pub to: Wanted<'a>,
    /// Takes a line of data; false when nobody reads it any more.
    pub line: &'a dyn Fn(&str) -> bool,
}

/// Runs the copy to its end. What is to be said about it, the sending host has said.
pub fn third_party_copy(copy: ThirdParty<'_>) -> Result<Exit> {
    let ThirdParty { from, copy, terms, to, line } = copy;
    let remote_end: Arc<OnceLock<Onward>> = Arc::default();
    let for_link = remote_end.clone();
    let accept: Accept = Box::new(move || for_link.get().ok_or(io::ErrorKind::NotConnected)?.connect());
    let sender = Remote::start(to.options, from, Some(accept), to.tell.clone(), to.interrupted)?;
    let key = sender.ask(Role::Copy(copy), to.interrupted)?.pin;
    let mut receiver = Remote::start(to.options, to.target, None, to.tell.clone(), to.interrupted)?;
    let (addresses, pin) = serve(&mut receiver, &to, vec![key, PinText(to.identity.pin())], Some(terms))?;
    // For what the sender cannot reach directly; asked for once it cannot.
    let direct = probe(&addresses, &dial_options(&to, pin)?, to.interrupted)?;
    let through = || Onward::Link(receiver.link().clone(), receiver.name().to_owned());
    let _ = remote_end.set(direct.map_or_else(through, Onward::Address));
    sender.say(&Peer { addresses, pin: PinText(pin) })?;
    loop {
        match sender.hear(to.interrupted)? {
            Some(News::Line(text)) if !line(&harmless(&text)) => return Ok(Exit::BrokenPipe),
            Some(News::Line(_)) => {}
            Some(News::Ended(exit)) => return Ok(Exit::from_number(exit)),
            None => {
                return Err(Error::new(Exit::Temporary, format!("the ssh connection to {} was lost", from.name))
                    .hint("the same command continues where this one stopped"));
            }
        }
    }
}

/// How this host passes on what the sending one cannot connect itself.
enum Onward {
    Address(String),
    /// Through the ssh connection to the host of this name.
    Link(Link, String),
}

impl Onward {
    fn connect(&self) -> io::Result<TcpStream> {
        match self {
            Onward::Address(address) => {
                let addresses = net::resolve(address).map_err(io::Error::other)?;
                TcpStream::connect(&addresses[..])
            }
            Onward::Link(link, host) => carried(link, host).map_err(io::Error::other),
        }
    }
}

fn stopped() -> Error {
    Error::new(Exit::Interrupted, "stopped before anything was copied")
        .hint("nothing was changed; give the same command again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_with_the_right_key_is_taken_and_others_are_passed_over() {
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let serve = |identity: &Identity| {
            let tls = net::ServerTls::new(identity).unwrap();
            let listener = net::Listener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().to_string();
            std::thread::spawn(move || {
                while let Ok(Some((tcp, _))) = listener.accept() {
                    let _ = net::accept_tls(tcp, &tls, Instant::now() + HANDSHAKE_TIMEOUT);
                }
            });
            address
        };
        let right = serve(&theirs);
        let wrong = serve(&ours);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let dial = DialOptions::new(&ours, theirs.pin()).unwrap();
        let found = probe(&[wrong.clone(), closed.clone(), right.clone()], &dial, &|| false).unwrap();
        assert_eq!(found, Some(right));
        assert_eq!(probe(&[wrong, closed], &dial, &|| false).unwrap(), None);
        assert_eq!(probe(&[], &dial, &|| false).unwrap(), None);
    }

    #[test]
    fn an_ssh_that_runs_and_carries_nothing_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("fake");
        std::fs::write(&fake, format!("printf '\\n{}\\n'; cat >/dev/null\n", crate::launch::GREETING)).unwrap();
        let options = SshOptions { command: Some(format!("sh {}", fake.display())), ..SshOptions::default() };
        let target = Target::parse("far").unwrap();
        let remote = Remote::start(&options, &target, None, Arc::new(|_: &str| {}), &|| false).ok().unwrap();
        let (ours, theirs) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let dial = DialOptions::new(&ours, theirs.pin()).unwrap();
        let dial = DialOptions { handshake_timeout: Duration::from_millis(10), ..dial };
        let mut reached = Reached { remote, address: None, dial, is_stuck: AtomicBool::new(false) };
        assert!(reached.is_alive());
        assert!(reached.connect(&ConnectOptions::default()).is_err());
        assert!(reached.remote.is_alive() && !reached.is_alive(), "the next attempt would go the same way");
    }
}
