//! The remote side: greets, hears what is wanted on standard input, and is an endpoint for one client until that input ends.
//!
//! It keeps nothing: its identity is made for the session and forgotten, it has no state directory and no log of its own.
//!
//! Invariants:
//! - What is asked for is opened first, then the process is confined, then it gets its other threads.
//! - A connection that does not prove the one client's key ends with its handshake.
//! - It ends when its input does, or when nobody has come for a while: nothing stays behind a connection that broke.

use super::host::OfferHost;
use super::launch::greet;
use super::link::{self, Accept, Link};
use super::message::{
    self, Answer, CopyRequest, Failed, News, Peer, PinText, Ready, Request, Role, ServeRequest, VERSION,
};
use super::offer::Offer;
use super::reach::{probe, relay};
use super::terms::Terms;
use daemon::advertise;
use daemon::error::{Error, Result};
use daemon::gate::Gate;
use daemon::{connections_max, own_name};
use model::{Exit, Pin};
use mover::Memory;
use mover::session::{AGENT, Server};
use net::{Identity, Listener, Lobby, ServerTls, accept_tls};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const SILENT_MAX: usize = 64;
const SILENT_PATIENCE: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Longer than a client pauses before it tries again.
const LONELY_PATIENCE: Duration = Duration::from_secs(600);

/// What is wanted of this process.
pub enum Asked {
    Serve(Box<Serving>),
    Copy(Box<Copying>),
}

/// Greets and waits for the request. `None` for one that cannot be met; the other side has been told why.
pub fn accept(mut input: File, mut output: File) -> Result<Option<Asked>> {
    let failed = |e: io::Error| {
        Error::new(Exit::Failed, format!("read the request: {e}"))
            .hint("`serve --stdio` is started by thalweg itself, over ssh")
    };
    greet(&mut output).map_err(failed)?;
    let message = link::read_message(&mut input).map_err(failed)?;
    let message = message.ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    let request = message::decode::<Request>("the other host", &message);
    let request = request.and_then(|request| match request.version {
        VERSION => Ok(request.role),
        other => Err(Error::new(Exit::Version, format!("requests of version {other} are not supported here"))
            .hint("install the same version of thalweg on both hosts; --deploy copies one there")),
    });
    Ok(match request {
        Ok(Role::Serve(request)) => Some(Asked::Serve(Box::new(Serving { request, input, output }))),
        Ok(Role::Copy(request)) => Some(Asked::Copy(Box::new(Copying { request, input, output }))),
        Err(error) => {
            answer_failed(&mut output, &error);
            None
        }
    })
}

fn answer_failed(output: &mut File, error: &Error) {
    // Without a reader there is nobody to tell.
    let _ = link::write_message(output, &message::encode(&Answer::Failed(Failed::new(error))));
}

/// A request to be an endpoint.
pub struct Serving {
    request: ServeRequest,
    input: File,
    output: File,
}

impl Serving {
    /// Serves until the input ends. Called on the process's only thread.
    pub fn run(mut self) -> Result<()> {
        match Prepared::prepare(&self.request) {
            Ok(prepared) => prepared.serve(self.input, self.output),
            Err(error) => {
                answer_failed(&mut self.output, &error);
                Ok(())
            }
        }
    }
}

/// Everything that is needed before the first thread.
struct Prepared {
    host: OfferHost,
    listener: Listener,
    tls: ServerTls,
    ready: Ready,
    memory: Memory,
    is_congestion_chosen: bool,
}

impl Prepared {
    fn prepare(request: &ServeRequest) -> Result<Prepared> {
        let terms = request.terms.as_ref().map(Terms::of).transpose()?;
        let offer = Offer::open(request)?;
        let listener = listen(request)?;
        daemon::forbid_dumps();
        let identity = Identity::generate().map_err(|e| Error::from_net("identity", &e))?;
        let tls = ServerTls::new(&identity).map_err(|e| Error::from_net("identity", &e))?;
        let addresses = if request.is_tunnel_only { Vec::new() } else { addresses(listener.local_addr()) };
        let name = own_name(None)?;
        let landlock = offer.confine().to_owned();
        let ready = Ready { agent: AGENT.to_owned(), pin: PinText(identity.pin()), addresses, landlock };
        let paths = request.paths.iter().map(|path| path.0.clone()).collect();
        let clients = request.clients.iter().map(|pin| pin.0).collect();
        let host = OfferHost { name, clients, paths, offer, terms };
        let memory = Memory::of_endpoint(request.memory_bytes.max(mover::limits::LANE_BYTES));
        let is_congestion_chosen = request.congestion.is_some();
        Ok(Prepared { host, listener, tls, ready, memory, is_congestion_chosen })
    }

    fn serve(self, input: File, output: File) -> Result<()> {
        let failed = |e: io::Error| Error::new(Exit::Failed, format!("serve: {e}"));
        let port = self.listener.local_addr().port();
        let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let own = own.map(|ip| SocketAddr::new(ip, port));
        let connect: Accept = Box::new(move || TcpStream::connect(&own[..]));
        let (link, messages) = Link::start(input, output, Some(connect)).map_err(failed)?;
        let clients = self.host.clients.clone();
        let server = Server::new(Arc::new(self.host), self.memory);
        if self.is_congestion_chosen {
            server.keep_congestion();
        }
        let gate = Gate::new(connections_max());
        let stopper = self.listener.stopper();
        let door = Door { tls: self.tls, clients, server: server.clone(), gate: gate.clone() };
        let listener = self.listener;
        let run = move || Arc::new(door).run(listener);
        let accepting = std::thread::Builder::new().name("accept".into()).spawn(run).map_err(failed)?;
        link.send_message(&message::encode(&Answer::Ready(self.ready))).map_err(failed)?;
        wait_for_the_end(&messages, &server);
        stopper.stop();
        gate.close();
        server.shut_down();
        server.wait_idle(DRAIN_PATIENCE);
        let _ = accepting.join();
        link.close();
        Ok(())
    }
}

/// Until the input ends, or no session has been open for long.
fn wait_for_the_end(messages: &Receiver<Vec<u8>>, server: &Server) {
    let mut last_seen = Instant::now();
    loop {
        match messages.recv_timeout(LOOK_INTERVAL) {
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) if server.sessions() > 0 => last_seen = Instant::now(),
            Err(RecvTimeoutError::Timeout) if last_seen.elapsed() > LONELY_PATIENCE => return,
            // A newer client may say more than this version knows.
            _ => {}
        }
    }
}

/// Lets the clients in that were named.
struct Door {
    tls: ServerTls,
    clients: Vec<Pin>,
    server: Arc<Server>,
    gate: Arc<Gate>,
}

impl Door {
    fn run(self: Arc<Door>, listener: Listener) {
        let mut lobby = Lobby::new(listener, SILENT_MAX, SILENT_PATIENCE);
        while let Ok(Some((tcp, peer))) = lobby.next_speaking() {
            let (door, arrived) = (self.clone(), Instant::now());
            // Who finds no thread is not served, and tries again.
            let _ =
                std::thread::Builder::new().name("connection".into()).spawn(move || door.attend(tcp, peer, arrived));
        }
    }

    fn attend(&self, tcp: TcpStream, peer: SocketAddr, arrived: Instant) {
        let Ok(mut pass) = self.gate.enter(&tcp, peer) else { return };
        let Ok(connection) = accept_tls(tcp, &self.tls, Instant::now() + HANDSHAKE_TIMEOUT) else { return };
        let pin = connection.peer_pin();
        if !self.clients.contains(&pin) || self.gate.identified(&mut pass, pin, Some("ssh")).is_err() {
            tracing::debug!(%peer, "connection refused");
            return;
        }
        self.gate.admit(pin, "ssh");
        if let Err(refusal) = self.server.serve(connection, arrived) {
            tracing::debug!(%peer, why = %refusal, "connection not used");
        }
    }
}

fn listen(request: &ServeRequest) -> Result<Listener> {
    let any: [&str; 2] = if request.is_tunnel_only { ["127.0.0.1", "[::1]"] } else { ["[::]", "0.0.0.0"] };
    let (first, last) = request.ports.filter(|_| !request.is_tunnel_only).unwrap_or((0, 0));
    let mut failure = None;
    for port in first..=last {
        for host in any {
            match Listener::bind(&format!("{host}:{port}")) {
                Ok(mut listener) => {
                    if let Some(congestion) = &request.congestion {
                        let set = listener.set_congestion(congestion);
                        set.map_err(|e| Error::from_net("serve", &e))?;
                    }
                    return Ok(listener);
                }
                Err(e) => failure = Some(e),
            }
        }
    }
    let failure = failure.expect("at least one port was tried");
    Err(Error::from_net("serve", &failure).hint(match request.ports {
        Some(_) => "all ports of that range are taken there: give a longer one, or omit --ports",
        None => "that host lets this user open no port; --tunnel needs none that others can reach",
    }))
}

/// Where this host may be reached: at the address that ssh came to, then at its others.
fn addresses(listening: SocketAddr) -> Vec<String> {
    let by_ssh = std::env::var("SSH_CONNECTION").ok();
    let by_ssh = by_ssh.and_then(|text| text.split(' ').nth(2).and_then(|ip| ip.parse::<IpAddr>().ok()));
    let mut addresses: Vec<String> =
        by_ssh.into_iter().map(|ip| SocketAddr::new(ip, listening.port()).to_string()).collect();
    for address in advertise::addresses(listening, &[]).unwrap_or_default() {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

/// A request to copy from here to another endpoint.
pub struct Copying {
    pub request: CopyRequest,
    input: File,
    output: File,
}

/// The connection to whoever gave the command, on the copying host.
#[derive(Clone)]
pub struct RemoteLink {
    link: Link,
}

impl Copying {
    /// Answers with the key that this side will show, and waits for the endpoint. `gone` is called when whoever gave the
    /// command has gone.
    pub fn begin(self, identity: &Identity, gone: impl FnOnce() + Send + 'static) -> Result<(RemoteLink, Peer)> {
        let failed = |e: io::Error| Error::new(Exit::Failed, format!("answer: {e}"));
        let (link, messages) = Link::start(self.input, self.output, None).map_err(failed)?;
        let ready = Ready {
            agent: AGENT.to_owned(),
            pin: PinText(identity.pin()),
            addresses: Vec::new(),
            landlock: "off".to_owned(),
        };
        link.send_message(&message::encode(&Answer::Ready(ready))).map_err(failed)?;
        let peer = messages.recv().map_err(|_| failed(io::ErrorKind::UnexpectedEof.into()))?;
        let peer = message::decode("the other host", &peer)?;
        let watch = move || {
            while messages.recv().is_ok() {}
            gone();
        };
        std::thread::Builder::new().name("watch".into()).spawn(watch).map_err(failed)?;
        Ok((RemoteLink { link }, peer))
    }

    /// Answers that it cannot be.
    pub fn refuse(mut self, error: &Error) {
        answer_failed(&mut self.output, error);
    }
}

impl RemoteLink {
    /// Gives a line for standard output of the one who gave the command.
    pub fn line(&self, text: &str) -> bool {
        self.link.send_message(&message::encode(&News::Line(text.to_owned()))).is_ok()
    }

    pub fn ended(&self, exit: Exit) {
        // Nobody is there to hear it: then it does not matter.
        let _ = self.link.send_message(&message::encode(&News::Ended(exit as i32)));
    }

    /// Where the endpoint is to be dialled: straight, else at an address here whose connections the link carries. True for
    /// the second.
    pub fn way_to(&self, peer: &Peer, identity: &Identity) -> Result<(String, bool)> {
        let dial = net::DialOptions::new(identity, peer.pin.0).map_err(|e| Error::from_net("identity", &e))?;
        match probe(&peer.addresses, &dial, &|| false)? {
            Some(address) => Ok((address, false)),
            None => Ok((relay(&self.link)?, true)),
        }
    }
}
