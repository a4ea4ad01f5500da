//! A server that answers: who it is, and the conversation with it, begun again where it was lost.
//!
//! Invariant: a lost conversation is begun again a few times, and not for ever.

use super::calls::Limits;
use super::pipe::Pipe;
use super::session::{Fault, PATIENCE, Session};
use crate::tree::{Attempts, Host};
use std::io::{self, Read};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::OpenError;
use store::open::Refused;

/// How often a lost conversation is begun again.
const REDIALS_MAX: u32 = 3;

/// Two pipes, or sockets, with an SFTP server at their other end.
pub struct Line {
    pub input: Box<dyn Pipe + Send>,
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
    pub attempts: Attempts,
    host: Host,
    dial: Arc<dyn Dial>,
    current: Mutex<Current>,
}

struct Current {
    session: Arc<Session>,
    limits: Limits,
    /// What holds the line up, until it is lost.
    why: Option<Box<dyn FnOnce() -> OpenError + Send>>,
    redials: u32,
}

fn connect(dial: &dyn Dial, host: &Host, redials: u32) -> Result<Current, OpenError> {
    let Line { input, output, why } = dial.dial(host)?;
    match Session::start(output, input, &host.name, [dial.patience(), PATIENCE]) {
        Ok(session) => {
            let limits = session.limits();
            Ok(Current { session: Arc::new(session), limits, why: Some(why), redials })
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => {
            let text = format!("{} does not answer like an SFTP server: {e}", host.name);
            Err(OpenError::refused(
                Refused::Unreachable,
                text,
                "`sftp HOST` must work; with Thalweg installed there use HOST:PATH",
            ))
        }
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            let text = format!("{} has not greeted for {} s", host.name, dial.patience().as_secs());
            Err(OpenError::refused(Refused::Unreachable, text, "`sftp HOST` must work without waiting"))
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
            attempts: Attempts::default(),
            host: host.clone(),
            dial: dial.clone(),
            current: Mutex::new(current),
        })
    }

    /// The conversation, begun anew where it was lost.
    pub fn session(&self) -> super::session::Result<(Arc<Session>, Limits)> {
        let mut current = self.current.lock().unwrap();
        if current.session.is_lost() {
            // Whoever is still at the old line gets free of it.
            drop(current.why.take());
            if current.redials < REDIALS_MAX {
                current.redials += 1;
                if let Ok(again) = connect(&*self.dial, &self.host, current.redials) {
                    *current = again;
                }
            }
        }
        match current.session.is_lost() {
            true => Err(Fault::Lost(format!("the connection to {} was lost", self.name).into())),
            false => Ok((current.session.clone(), current.limits)),
        }
    }
}
