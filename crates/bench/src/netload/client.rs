//! The asking end: dials, brings up all streams, runs its part, and joins what both ends saw.

use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use model::Pin;
use model::name::Escaped;
use net::{ClientTls, Identity};

use super::control::Control;
use super::counters::Counters;
use super::interval::Interval;
use super::lane::{Joined, Lane};
use super::measure::{Sample, measure};
use super::outcome::{Outcome, Peers, Series};
use super::protocol::{FromClient, FromServer, GREETING_BYTES, Greeting, Hello, Token, VERSION, from_hex};
use super::server::{of_net, token_of};
use super::{Load, Way};
use crate::error::{Error, Kind, Result};

/// For each address of a name.
const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// For each answer until payload flows; longer than the server waits for the streams.
const STEP_WAIT: Duration = Duration::from_secs(25);
/// How late a sample of the server may be: the path may be out for a while, and the retry after that takes as long again.
const SAMPLE_WAIT: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_millis(100);
/// Of what a peer says, this much is shown.
const REASON_BYTES_MAX: usize = 300;

/// What happens while a run lasts.
#[derive(Debug)]
pub enum Event<'a> {
    Started(&'a Peers),
    Interval(&'a Interval),
}

/// Runs the load against the server at `HOST:PORT`. Broken off soon after `stop` is set.
pub fn run(address: &str, load: &Load, stop: &AtomicBool, on_event: &mut dyn FnMut(Event<'_>)) -> Result<Outcome> {
    load.check().map_err(|problem| Error::usage("the load", problem))?;
    let addrs = net::resolve(address).map_err(|e| of_net(e, "resolve", address))?;
    let (socket, addr) = connect(&addrs, address)?;
    let client = Client { address, addr, load, stop };
    let control = Control::new(socket, stop).map_err(|e| client.failed("talk to", e))?;
    if let Some(name) = &load.congestion {
        // Shows at once whether this host has it; the server looks for itself if it sends.
        net::socket::set_congestion(control.socket(), name).map_err(|e| of_net(e, "set congestion control", name))?;
    }
    let (token, pin) = client.introduce(&control)?;
    let lanes = client.join(&token, pin)?;
    let peers = client.ready(&control)?;
    on_event(Event::Started(&peers));
    client.conduct(&control, &lanes, peers, on_event)
}

struct Client<'a> {
    address: &'a str,
    addr: SocketAddr,
    load: &'a Load,
    stop: &'a AtomicBool,
}

impl Client<'_> {
    fn introduce(&self, control: &Control<'_>) -> Result<(Token, Option<Pin>)> {
        let broken = |e| self.failed("talk to", e);
        control.socket().write_all_to(&Hello::Control.encode()).map_err(broken)?;
        let mut greeting = [0; GREETING_BYTES];
        match control.read_exact(&mut greeting, Instant::now() + STEP_WAIT) {
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return Err(self.incompatible("it closed the connection without a greeting".into()));
            }
            Err(e) if e.kind() == ErrorKind::TimedOut => {
                return Err(self.incompatible("it sent no greeting".into()));
            }
            result => result.map_err(broken)?,
        }
        match Greeting::decode(&greeting) {
            Ok(Greeting::Welcome) => {}
            Ok(Greeting::Busy) => {
                return Err(self.error(Kind::Refused, "be served by", "it serves as many clients as it may".into()));
            }
            Ok(Greeting::NotUnderstood { version }) => {
                let said = format!("it speaks version {version} of this measurement, not {VERSION}");
                return Err(self.incompatible(said));
            }
            Err(_) => return Err(self.incompatible("what listens there is something else".into())),
        }
        control.send(&FromClient::Request(self.load.clone())).map_err(broken)?;
        let FromServer::Accepted { token, pin } = self.hear(control)? else {
            return Err(self.incompatible("it answered out of turn".into()));
        };
        let token = token_of(&token).ok_or_else(|| self.incompatible("its token is none".into()))?;
        let pin = match (self.load.is_encrypted, pin.as_deref().map(from_hex)) {
            (false, None) => None,
            (true, Some(Some(pin))) => Some(Pin(pin)),
            _ => return Err(self.incompatible("its key is none".into())),
        };
        Ok((token, pin))
    }

    /// Connects all lanes at once, a thread for each.
    fn join(&self, token: &Token, pin: Option<Pin>) -> Result<Vec<Lane>> {
        let tls = match pin {
            None => None,
            Some(pin) => {
                let identity = Identity::generate().map_err(|e| of_net(e, "make", "a key"))?;
                Some(ClientTls::new(&identity, pin).map_err(|e| of_net(e, "set up", "TLS"))?)
            }
        };
        let tls = tls.as_ref();
        thread::scope(|scope| {
            let start = |lane| {
                let work = move || self.join_one(lane, token, tls);
                thread::Builder::new().spawn_scoped(scope, work).map_err(|e| self.failed("start a thread for", e))
            };
            let threads: Result<Vec<_>> = (0..self.load.lanes()).map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Lane>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads?.into_iter().map(join).collect()
        })
    }

    fn join_one(&self, lane: u32, token: &Token, tls: Option<&ClientTls>) -> Result<Lane> {
        let tcp =
            TcpStream::connect_timeout(&self.addr, CONNECT_WAIT).map_err(|e| self.failed("open a stream to", e))?;
        let said = tcp.set_nodelay(true).and_then(|()| tcp.write_all_to(&Hello::Data { lane, token: *token }.encode()));
        said.map_err(|e| self.failed("open a stream to", e))?;
        let joined = match tls {
            None => Joined::Clear(tcp),
            Some(tls) => {
                let connected = net::connect_tls(tcp, tls, Instant::now() + STEP_WAIT);
                Joined::Sealed(Box::new(connected.map_err(|e| of_net(e, "open a stream to", self.address))?))
            }
        };
        let is_sending = self.load.way(lane) == Way::Forward;
        Lane::new(joined, is_sending, self.load).map_err(|e| of_net(e, "configure a stream to", self.address))
    }

    fn ready(&self, control: &Control<'_>) -> Result<Peers> {
        let FromServer::Ready { kernel, congestion } = self.hear(control)? else {
            return Err(self.incompatible("it answered out of turn".into()));
        };
        control.send(&FromClient::Start).map_err(|e| self.failed("talk to", e))?;
        Ok(Peers {
            address: self.addr.to_string(),
            client_kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            server_kernel: shown(&kernel),
            client_congestion: net::socket::congestion(control.socket()).unwrap_or_default(),
            server_congestion: shown(&congestion),
        })
    }

    /// The own part of the run in a thread of its own; this one joins the samples of both ends.
    fn conduct(
        &self,
        control: &Control<'_>,
        lanes: &[Lane],
        peers: Peers,
        on_event: &mut dyn FnMut(Event<'_>),
    ) -> Result<Outcome> {
        let moments = self.load.moments();
        let is_over = AtomicBool::new(false);
        let (own, owns) = sync_channel(moments.len());
        let (go, gone) = sync_channel(1);
        let mut series = Series::new(self.load.clone());
        let joined = thread::scope(|scope| {
            let _over = SetOnDrop(&is_over);
            let go = go;
            let is_over = &is_over;
            // Payload may leave before the server's word that it began: that word and the first payload from there come
            // together, and both clocks start when the first payload may arrive.
            let begin = move || gone.recv().is_ok();
            let work = move || {
                measure(lanes, self.load, is_over, SAMPLE_WAIT, begin, |sample| own.send(sample).is_ok());
            };
            let started = thread::Builder::new().name("netload measure".into()).spawn_scoped(scope, work);
            started.map_err(|e| self.failed("start a thread for", e))?;
            let FromServer::Started = self.hear(control)? else {
                return Err(self.incompatible("it answered out of turn".into()));
            };
            // Fails when the other thread has ended, which the wait for its samples tells.
            let _ = go.send(());
            for moment in &moments {
                let of_client = self.own_sample(&owns)?;
                let of_server = self.sample_of_server(control, of_client.number)?;
                if let Some(lane) = of_client.broken.first().or(of_server.broken.first()) {
                    let said = format!("stream {lane} broke {:.1} s after the start", moment.at.as_secs_f64());
                    return Err(self.error(Kind::Failed, "measure to", said));
                }
                if let Some(interval) = series.add(of_client, of_server, *moment) {
                    on_event(Event::Interval(interval));
                }
            }
            // A server that does not hear it finds the connection closed.
            let _ = control.send(&FromClient::Stop);
            Ok(())
        });
        joined.map(|()| series.finish(peers))
    }

    fn own_sample(&self, owns: &Receiver<Sample>) -> Result<Sample> {
        let deadline = Instant::now() + self.load.interval + SAMPLE_WAIT;
        loop {
            if self.stop.load(Relaxed) {
                return Err(Error::cancelled("measure to", self.address));
            }
            match owns.recv_timeout(SLICE) {
                Ok(sample) => return Ok(sample),
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(_) => {
                    return Err(self.error(Kind::Failed, "measure to", "not enough threads could be started".into()));
                }
            }
        }
    }

    fn sample_of_server(&self, control: &Control<'_>, number: u32) -> Result<Sample> {
        let message = control.receive(Instant::now() + SAMPLE_WAIT).map_err(|e| self.failed("measure to", e))?;
        let is_whole = |sample: &Sample| {
            let lanes = self.load.lanes();
            sample.number == number
                && sample.lanes.len() == lanes as usize
                && sample.broken.iter().all(|lane| *lane < lanes)
        };
        match message {
            FromServer::Sample(sample) if !sample.lanes.iter().all(Counters::can_be) => {
                Err(self.incompatible("it counts more than a stream can carry".into()))
            }
            FromServer::Sample(sample) if is_whole(&sample) => Ok(sample),
            FromServer::Failed { reason } => Err(self.error(Kind::Failed, "measure to", shown(&reason))),
            _ => Err(self.incompatible("it answered out of turn".into())),
        }
    }

    /// The server's next word, unless it is that it will not.
    fn hear(&self, control: &Control<'_>) -> Result<FromServer> {
        match control.receive(Instant::now() + STEP_WAIT) {
            Ok(FromServer::Refused { reason }) => Err(self.error(Kind::Refused, "be served by", shown(&reason))),
            Ok(FromServer::Failed { reason }) => Err(self.error(Kind::Failed, "be served by", shown(&reason))),
            Ok(message) => Ok(message),
            Err(e) => Err(self.failed("talk to", e)),
        }
    }

    fn failed(&self, operation: &'static str, cause: io::Error) -> Error {
        let kind = match cause.kind() {
            ErrorKind::Interrupted if self.stop.load(Relaxed) => Kind::Cancelled,
            ErrorKind::ConnectionRefused | ErrorKind::TimedOut | ErrorKind::HostUnreachable => Kind::Unreachable,
            ErrorKind::InvalidData => Kind::Incompatible,
            _ => Kind::Failed,
        };
        let said = match cause.kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => "it closed the connection".into(),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer any more".into(),
            // What is not understood is quoted in it.
            _ => shown(&cause.to_string()),
        };
        self.error(kind, operation, said)
    }

    fn incompatible(&self, said: String) -> Error {
        self.error(Kind::Incompatible, "talk to", said)
    }

    fn error(&self, kind: Kind, operation: &'static str, said: String) -> Error {
        Error::new(kind, operation, self.address, said)
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

trait WriteAllTo {
    fn write_all_to(&self, bytes: &[u8]) -> io::Result<()>;
}

impl WriteAllTo for TcpStream {
    fn write_all_to(&self, bytes: &[u8]) -> io::Result<()> {
        let mut socket = self;
        socket.write_all(bytes)
    }
}

/// What a peer said, bounded and harmless.
fn shown(text: &str) -> String {
    Escaped(&text.as_bytes()[..text.len().min(REASON_BYTES_MAX)]).to_string()
}

fn connect(addrs: &[SocketAddr], address: &str) -> Result<(TcpStream, SocketAddr)> {
    let mut failure = None;
    for addr in addrs {
        match TcpStream::connect_timeout(addr, CONNECT_WAIT) {
            Ok(socket) => return Ok((socket, *addr)),
            Err(e) => failure = failure.or(Some(e)),
        }
    }
    let cause = failure.unwrap_or_else(|| ErrorKind::AddrNotAvailable.into());
    let said = match cause.kind() {
        ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "it does not answer".to_owned(),
        _ => cause.to_string(),
    };
    Err(Error::new(Kind::Unreachable, "connect to", address, said))
}
