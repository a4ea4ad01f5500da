//! A server that answers: who it is, and the conversation with it, begun again where it was lost.
//!
//! Invariant: a lost conversation is begun again a few times, and not for ever.

use super::calls::Limits;
use super::session::{Fault, PATIENCE, Session};
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::OpenError;
use store::open::Refused;

/// How often a lost conversation is begun again.
const REDIALS_MAX: u32 = 3;

/// Who is to be reached.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    /// `USER@HOST`, or `HOST`; an IPv6 address in brackets.
    pub name: String,
    pub port: Option<u16>,
}

/// Two pipes with an SFTP server at their other end.
pub struct Line {
    pub input: Box<dyn Write + Send>,
    pub output: Box<dyn Read + Send>,
    /// Says why the other end has gone before it answered. Whatever holds the line up is in it, and ends when it is dropped.
    pub why: Box<dyn FnOnce() -> OpenError + Send>,
}

pub trait Dial: Send + Sync {
    fn dial(&self, host: &Host) -> Result<Line, OpenError>;

    /// How long the other side may take to greet: whoever logs in may be asked questions first.
    fn patience(&self) -> Duration {
        PATIENCE
    }
}

pub struct Server {
    pub name: String,
    /// Part of the names of what this process stages there.
    pub mark: String,
    host: Host,
    dial: Arc<dyn Dial>,
    current: Mutex<Current>,
    held: Mutex<HashSet<String>>,
}

struct Current {
    session: Arc<Session>,
    limits: Limits,
    /// What holds the line up.
    _why: Box<dyn FnOnce() -> OpenError + Send>,
    redials: u32,
}

pub fn refused(why: Refused, text: impl Into<String>, advice: &str) -> OpenError {
    OpenError::Refused { why, text: text.into(), advice: advice.to_owned() }
}

fn connect(dial: &dyn Dial, host: &Host, redials: u32) -> Result<Current, OpenError> {
    let Line { input, output, why } = dial.dial(host)?;
    match Session::start(output, input, &host.name, dial.patience()) {
        Ok(session) => {
            let limits = session.limits();
            Ok(Current { session: Arc::new(session), limits, _why: why, redials })
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            let text = format!("{} does not answer like an SFTP server: {e}", host.name);
            Err(refused(
                Refused::Unreachable,
                text,
                "`sftp HOST` must work; with Thalweg installed there use HOST:PATH",
            ))
        }
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            let text = format!("{} has not greeted for {} s", host.name, dial.patience().as_secs());
            Err(refused(Refused::Unreachable, text, "`sftp HOST` must work without waiting"))
        }
        Err(_) => Err(why()),
    }
}

impl Server {
    /// Greets a server.
    pub fn connect(dial: &Arc<dyn Dial>, host: &Host) -> Result<Server, OpenError> {
        let current = connect(&**dial, host, 0)?;
        Ok(Server {
            name: host.name.clone(),
            mark: format!("{:016x}", RandomState::new().build_hasher().finish()),
            host: host.clone(),
            dial: dial.clone(),
            current: Mutex::new(current),
            held: Mutex::default(),
        })
    }

    /// The conversation, begun anew where it was lost.
    pub fn session(&self) -> super::session::Result<(Arc<Session>, Limits)> {
        let mut current = self.current.lock().unwrap();
        if current.session.is_lost() && current.redials < REDIALS_MAX {
            current.redials += 1;
            if let Ok(again) = connect(&*self.dial, &self.host, current.redials) {
                *current = again;
            }
        }
        match current.session.is_lost() {
            true => Err(Fault::Lost(format!("the connection to {} was lost", self.name).into())),
            false => Ok((current.session.clone(), current.limits)),
        }
    }

    /// Takes a stem for one attempt; false where another has it.
    pub fn hold(&self, stem: &str) -> bool {
        self.held.lock().unwrap().insert(stem.to_owned())
    }

    pub fn release(&self, stem: &str) {
        self.held.lock().unwrap().remove(stem);
    }
}

impl Host {
    pub fn parse(text: &str) -> Result<Host, OpenError> {
        let wrong = |why: &str| refused(Refused::Request, why, "a location is sftp://[USER@]HOST[:PORT]/ABSOLUTE");
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, text),
        };
        if user.is_some_and(|user| user.contains(':')) {
            let advice = "leave it out: ssh asks for it, or uses a key";
            return Err(refused(Refused::Request, "a password must not stand in a location", advice));
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = port.map(|port| port.parse().ok().filter(|port| *port > 0));
        let port = port.map(|port| port.ok_or_else(|| wrong("the port is no number from 1 to 65535"))).transpose()?;
        if host.is_empty() || host.contains(':') && !host.starts_with('[') {
            return Err(wrong("the location names no host"));
        }
        let name = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
        Ok(Host { name, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_a_user_and_a_port_and_never_a_password() {
        let parsed = |text: &str| Host::parse(text).ok().map(|host| (host.name, host.port));
        assert_eq!(parsed("far"), Some(("far".into(), None)));
        assert_eq!(parsed("me@far:2222"), Some(("me@far".into(), Some(2222))));
        assert_eq!(parsed("me@[2001:db8::1]:22"), Some(("me@[2001:db8::1]".into(), Some(22))));
        assert_eq!(parsed("[2001:db8::1]"), Some(("[2001:db8::1]".into(), None)));
        for wrong in ["", "me:secret@far", "far:0", "far:70000", "far:x", "2001:db8::1", ":22"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
        let OpenError::Refused { text, advice, .. } = Host::parse("me:secret@far").unwrap_err() else { panic!() };
        assert!(!format!("{text}{advice}").contains("secret"));
    }
}
