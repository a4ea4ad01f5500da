//! The place of a round: an endpoint that can start again, its tickets, and clients that say hello and listen.

use super::{OnDisk, PATIENCE};
use daemon::limited::Limits;
use daemon::{Issue, ServeOptions, Served, Ticket};
use model::SessionId;
use net::{DataStream, DialOptions, Identity};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};
use wire::frame::{FrameHeader, HEADER_BYTES};
use wire::handshake::feature;
use wire::message;
use wire::{CloseCode, Message};

pub fn limits() -> Limits {
    Limits {
        scope: Vec::new(),
        may_read: true,
        may_write: true,
        expires: None,
        uses_max: None,
        class_max: model::Class::High,
        may_manage: false,
    }
}

/// A ticket as its clients have it.
pub struct Ticketed {
    pub id: String,
    pub credential: Vec<u8>,
    pub expires: Option<SystemTime>,
}

impl Ticketed {
    /// Whether a client's file says that it lives by this ticket.
    pub fn names(&self, text: &str) -> bool {
        text.contains(&format!("ticket = \"{}\"", self.id))
    }
}

pub struct Place {
    dir: tempfile::TempDir,
    served: Mutex<Option<Served>>,
    ticket: Ticket,
    address: Mutex<String>,
}

impl Place {
    pub fn start() -> Result<Place, String> {
        let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
        fs::create_dir(dir.path().join("root")).map_err(|e| e.to_string())?;
        let served = serve(&dir)?;
        let (ticket, address) = (served.ticket(), Mutex::new(served.local_addr().to_string()));
        Ok(Place { dir, served: Mutex::new(Some(served)), ticket, address })
    }

    fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Ends the endpoint in order and starts it again.
    pub fn restart(&self) -> Result<(), String> {
        let mut served = self.served.lock().unwrap();
        if let Some(served) = served.take() {
            served.shut_down(PATIENCE);
        }
        let again = serve(&self.dir)?;
        *self.address.lock().unwrap() = again.local_addr().to_string();
        *served = Some(again);
        Ok(())
    }

    pub fn serve_ticket(&self) -> Ticketed {
        Ticketed { id: String::new(), credential: self.ticket.credential.to_vec(), expires: None }
    }

    pub fn ticket(&self, limits: Limits) -> Result<Ticketed, String> {
        let expires = limits.expires;
        let (limited, ticket) = Issue::new(self.state()).create(limits).map_err(|e| e.to_string())?;
        Ok(Ticketed { id: limited.id, credential: ticket.credential.to_vec(), expires })
    }

    pub fn revoke(&self, what: &str) -> Result<(), String> {
        Issue::new(self.state()).revoke(what).map(drop).map_err(|e| format!("revoke: {e}"))
    }

    pub fn take_credential_away(&self) -> Result<(), String> {
        fs::remove_file(self.state().join("credential")).map_err(|e| e.to_string())
    }

    /// What is written of clients, as it stands there.
    pub fn enrolled(&self) -> Result<OnDisk, String> {
        let mut found = OnDisk::new();
        for entry in fs::read_dir(self.state().join("clients")).map_err(|e| e.to_string())?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(pin) = name.strip_suffix(".toml").filter(|name| !name.starts_with('.')) else { continue };
            // What was removed meanwhile is no client.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                found.insert(pin.to_owned(), text);
            }
        }
        Ok(found)
    }

    /// Connects; nothing is said yet.
    pub fn connect(&self, key: &Identity) -> Result<Connected, String> {
        let dial = DialOptions::new(key, self.ticket.pin).map_err(|e| e.to_string())?;
        let address = self.address.lock().unwrap().clone();
        let mut stream = net::dial(&address, &dial).map_err(|e| format!("dial: {e}"))?.into_data();
        stream.set_deadline(Some(Instant::now() + PATIENCE));
        Ok(Connected { stream })
    }

    pub fn hello(&self, key: &Identity, credential: &[u8]) -> Result<Hello, String> {
        self.connect(key)?.hello(credential)
    }
}

fn serve(dir: &tempfile::TempDir) -> Result<Served, String> {
    let mut options = ServeOptions::new("127.0.0.1:0", dir.path().join("root"), dir.path().join("state"));
    options.name = Some("trial".into());
    Served::start(options).map_err(|e| format!("serve: {e}"))
}

pub struct Connected {
    stream: DataStream,
}

/// A hello and what came of it.
pub struct Hello {
    pub asked: Instant,
    pub heard_at: Instant,
    pub heard: Heard,
}

pub enum Heard {
    Welcome(Box<Session>),
    Refused(CloseCode, String),
    /// The endpoint went away.
    Lost,
}

impl Connected {
    pub fn hello(mut self, credential: &[u8]) -> Result<Hello, String> {
        let session = SessionId(net::random_bytes()).0.to_vec();
        let credential = credential.to_vec();
        let hello = message::Hello {
            version_min: 1,
            version_max: 1,
            features: feature::ALL,
            session,
            credential,
            ..Default::default()
        };
        let asked = Instant::now();
        let heard = match self.stream.send(&[&message::encode(hello)]).and_then(|()| hear(&mut self.stream)) {
            Ok(Some(Message::Welcome(_))) => Heard::Welcome(Box::new(Session { control: self.stream })),
            Ok(Some(Message::Close(close))) => Heard::Refused(CloseCode::from_number(close.code), close.text),
            Ok(other) => return Err(format!("a hello was answered by {other:?}")),
            Err(_) => Heard::Lost,
        };
        Ok(Hello { asked, heard_at: Instant::now(), heard })
    }
}

impl Hello {
    pub fn welcomed(self) -> Result<Session, String> {
        match self.heard {
            Heard::Welcome(session) => Ok(*session),
            Heard::Refused(code, text) => Err(format!("refused ({code:?}): {text}")),
            Heard::Lost => Err("the endpoint went away".to_owned()),
        }
    }

    /// Whether a session was opened; anything but a welcome and the refusal of an unknown client is an error.
    pub fn is_welcome(&self) -> Result<bool, String> {
        match &self.heard {
            Heard::Welcome(_) => Ok(true),
            Heard::Refused(CloseCode::Authentication, _) => Ok(false),
            Heard::Refused(code, text) => Err(format!("refused otherwise ({code:?}): {text}")),
            Heard::Lost => Err("the endpoint went away".to_owned()),
        }
    }
}

/// An open session whose client only listens.
pub struct Session {
    control: DataStream,
}

impl Session {
    /// Waits for its end. Returns how long after `since` it came.
    pub fn ends_by(&mut self, deadline: Instant, since: Instant) -> Result<Duration, String> {
        self.control.set_deadline(Some(deadline));
        let mut block = vec![0; 16 << 10];
        loop {
            match self.control.recv(&mut block) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::TimedOut => {
                    return Err("F029: a session stays open although its ticket has ended".to_owned());
                }
                Err(_) => break,
            }
        }
        Ok(since.elapsed())
    }

    /// # Errors
    /// Says how it ended.
    pub fn is_alive(&mut self) -> Result<(), String> {
        self.control.set_deadline(Some(Instant::now() + PATIENCE));
        let sent = self.control.send(&[&message::encode(message::Ping { number: 7 })]);
        sent.map_err(|e| format!("the session of a bystander ended: {e}"))?;
        loop {
            match hear(&mut self.control) {
                Ok(Some(Message::Pong(pong))) if pong.number == 7 => return Ok(()),
                Ok(Some(Message::Close(close))) => {
                    return Err(format!("the session of a bystander was closed: {}", close.text));
                }
                Ok(_) => {}
                Err(e) => return Err(format!("the session of a bystander ended: {e}")),
            }
        }
    }
}

/// The next message; `None` for one of a kind that is not known here.
fn hear(stream: &mut DataStream) -> io::Result<Option<Message>> {
    let refused = |refusal: wire::Refusal| io::Error::other(refusal.to_string());
    let mut head = [0; HEADER_BYTES];
    stream.recv_exact(&mut head)?;
    let mut body = vec![0; FrameHeader::decode(&head).map_err(refused)?.body_bytes as usize];
    stream.recv_exact(&mut body)?;
    message::decode(&body).map_err(refused)
}
