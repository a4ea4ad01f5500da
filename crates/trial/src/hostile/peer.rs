//! A peer that says what it likes to the real endpoint: over bare TCP, TLS, a session, a data stream.

use crate::job::{ATTACKED, Bed};
use anyhow::{Context, Result};
use daemon::Ticket;
use model::{SessionId, TransferOptions};
use mover::job_options::options_to_wire;
use net::{DataStream, DialOptions, Identity};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::{Direction, EXPORTER_LABEL, Join, feature};
use wire::message::{self, Hello, Open};
use wire::{CloseCode, Message};

/// Longer than the endpoint waits for a peer, which is 10 s.
const PEER_PATIENCE: Duration = Duration::from_secs(20);
pub const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What a peer did to end the talk, or that it did not.
pub type Acted = Result<(), String>;

pub struct Target {
    address: String,
    ticket: Ticket,
}

impl Target {
    /// # Errors
    /// When the endpoint left no ticket.
    pub fn of(bed: &Bed<'_>) -> Result<Target> {
        let text = std::fs::read_to_string(bed.dir.join("server/ticket")).context("read the ticket")?;
        let ticket = Ticket::parse(&text).context("read the ticket")?;
        Ok(Target { address: bed.relay.address.to_string(), ticket })
    }

    /// Says `bytes` as a stranger; the endpoint has to end the connection, and to say little.
    pub fn stranger(&self, bytes: &[u8]) -> Acted {
        let mut tcp = TcpStream::connect(&self.address).map_err(|e| format!("the endpoint is not reached: {e}"))?;
        let _ = tcp.set_read_timeout(Some(PEER_PATIENCE));
        // Turned away before all of it was said is as good.
        let _ = tcp.write_all(bytes);
        let mut answer = Vec::new();
        match tcp.read_to_end(&mut answer) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(format!("a stranger is kept for {} s", PEER_PATIENCE.as_secs()))
            }
            _ if answer.len() > 1024 => Err(format!("a stranger is told {} bytes", answer.len())),
            _ => Ok(()),
        }
    }

    pub fn stream(&self, identity: &Identity) -> Result<DataStream, String> {
        let dial = DialOptions::new(identity, self.ticket.pin).map_err(|e| format!("dial: {e}"))?;
        let mut stream = net::dial(&self.address, &dial).map_err(|e| format!("dial: {e}"))?.into_data();
        stream.set_deadline(Some(Instant::now() + PEER_PATIENCE));
        Ok(stream)
    }

    pub fn hello(&self, session: &[u8]) -> Hello {
        let (credential, session) = (self.ticket.credential.to_vec(), session.to_vec());
        Hello { version_min: 1, version_max: 1, features: feature::ALL, session, credential, ..Hello::default() }
    }

    /// Says `first` on a stream of an enrolled peer; the endpoint has to end the stream.
    pub fn first(&self, first: &[u8]) -> Acted {
        let mut stream = self.stream(&identity()?)?;
        let _ = stream.send(&[first]);
        drained(&mut stream)
    }

    /// The endpoint that this ticket leads to.
    pub fn by(ticket: Ticket) -> Target {
        Target { address: ticket.addresses.first().cloned().unwrap_or_default(), ticket }
    }

    pub fn session(&self) -> Result<Peer<'_>, String> {
        self.session_as(&identity()?)
    }

    pub fn session_as(&self, identity: &Identity) -> Result<Peer<'_>, String> {
        let identity = identity.clone();
        let mut control = self.stream(&identity)?;
        let id = SessionId(net::random_bytes());
        control.send(&[&message::encode(self.hello(&id.0))]).map_err(|e| format!("say hello: {e}"))?;
        let mut peer = Peer { target: self, identity, control, id };
        match peer.hear() {
            Some(Message::Welcome(_)) => Ok(peer),
            other => Err(format!("an enrolled client is not welcome: {other:?}")),
        }
    }
}

/// The next of so many clients in turn: fewer than one ticket enrols, however many trials there are.
pub fn identity() -> Result<Identity, String> {
    static CLIENTS: [OnceLock<Identity>; 768] = [const { OnceLock::new() }; 768];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let client = &CLIENTS[NEXT.fetch_add(1, Relaxed) % CLIENTS.len()];
    match client.get() {
        Some(known) => Ok(known.clone()),
        None => {
            let made = Identity::generate().map_err(|e| format!("make a key: {e}"))?;
            Ok(client.get_or_init(|| made).clone())
        }
    }
}

/// Reads to the end of a stream; an error when it does not come.
pub fn drained(stream: &mut DataStream) -> Acted {
    let mut block = vec![0; 64 << 10];
    loop {
        match stream.recv(&mut block) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::TimedOut => return Err("the stream is kept".to_owned()),
            Err(_) => return Ok(()),
        }
    }
}

/// A client in a session of its own.
pub struct Peer<'a> {
    target: &'a Target,
    identity: Identity,
    pub control: DataStream,
    id: SessionId,
}

impl Peer<'_> {
    pub fn say(&mut self, message: impl Into<Message>) {
        // Refused already is as good: what is heard decides.
        let _ = self.control.send(&[&message::encode(message)]);
    }

    /// `None` at the end of the session, or when nothing came for too long: `is_over` tells which.
    pub fn hear(&mut self) -> Option<Message> {
        let mut head = [0; HEADER_BYTES];
        self.control.recv_exact(&mut head).ok()?;
        let mut body = vec![0; FrameHeader::decode(&head).ok()?.body_bytes as usize];
        self.control.recv_exact(&mut body).ok()?;
        message::decode(&body).ok()?
    }

    /// The session, or the job in it, has to be ended with one of these codes.
    pub fn is_refused(&mut self, codes: &[CloseCode]) -> Acted {
        loop {
            let code = match self.hear() {
                Some(Message::Close(close)) => close.code,
                Some(Message::Cancel(cancel)) => cancel.code,
                Some(Message::Reject(reject)) => reject.code,
                Some(_) => continue,
                None => return Err("the session ended without a reason, or not at all".to_owned()),
            };
            let code = CloseCode::from_number(code);
            return if codes.contains(&code) { Ok(()) } else { Err(format!("ended with {code:?}, not {codes:?}")) };
        }
    }

    /// The endpoint either ended the session or answers.
    pub fn is_answered_or_ended(&mut self) -> Acted {
        self.say(message::Ping { number: 77 });
        loop {
            match self.hear() {
                Some(Message::Pong(pong)) if pong.number == 77 => return Ok(()),
                Some(_) => {}
                None => return drained(&mut self.control),
            }
        }
    }

    /// Opens job 1, into the place for attacks or from the source, and waits until it is accepted.
    pub fn open(&mut self, direction: Direction) -> Acted {
        let path = match direction {
            Direction::ClientSends => ATTACKED,
            Direction::ServerSends => "in",
        };
        self.say(opening(1, direction, path));
        loop {
            match self.hear() {
                Some(Message::Accept(_)) => return Ok(()),
                Some(Message::Reject(reject)) => return Err(format!("a job in order is rejected: {}", reject.text)),
                Some(_) => {}
                None => return Err("the session ended before a job was accepted".to_owned()),
            }
        }
    }

    /// A data stream of job 1. `damage` is added to its proof.
    pub fn join(&self, direction: Direction, damage: u8) -> Result<DataStream, String> {
        self.join_job(1, direction, damage)
    }

    pub fn join_job(&self, job: u32, direction: Direction, damage: u8) -> Result<DataStream, String> {
        let mut stream = self.target.stream(&self.identity)?;
        let mut join = Join { session: self.id, job, stream: 0, direction, proof: [0; 32] };
        let [ours, theirs] = [&self.control, &stream].map(|s| s.export(EXPORTER_LABEL, &self.id.0));
        join.proof = net::hmac_sha256(&ours, &[&join.authenticated(), &theirs]);
        join.proof[31] = join.proof[31].wrapping_add(damage);
        let _ = stream.send(&[&join.encode()]);
        Ok(stream)
    }
}

pub fn opening(job: u32, direction: Direction, path: &str) -> Open {
    Open {
        job,
        job_id: net::random_bytes::<16>().to_vec(),
        direction: direction as u32,
        paths: vec![path.as_bytes().to_vec()],
        options: Some(options_to_wire(&TransferOptions::default())),
        ..Open::default()
    }
}
