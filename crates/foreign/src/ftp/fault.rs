//! Why a request came to nothing.

use super::reply::Reply;
use crate::tree::Faulty;
use model::FailureKind;
use std::sync::Arc;

const REASON: &[u8] = b"GridFTP-Error-String:";

#[derive(Clone, Debug)]
pub enum Fault {
    Refused {
        code: u16,
        text: String,
    },
    /// The conversation is over.
    Lost(Arc<str>),
    /// There was none to be had: others have them all, and none of these moves on.
    Crowded(Arc<str>),
    Malformed(&'static str),
    /// A name that cannot be said.
    Name(&'static str),
    /// Nothing is there, which the server says in more words than one.
    Absent,
    /// What the server holds is not what was sent, or the other way round.
    Differs(String),
    /// The server sends data to somewhere else.
    Abroad(String),
    Unable(&'static str),
}

pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn of(reply: &Reply) -> Fault {
        // Globus says why between the first line and the last.
        let why = reply.lines.iter().find_map(|line| {
            let at = line.windows(REASON.len()).position(|part| part == REASON)?;
            Some(crate::tree::shown(&line[at + REASON.len()..line.len().min(500 + at)]))
        });
        Fault::Refused { code: reply.code, text: why.map_or_else(|| reply.text.clone(), |why| why.trim().to_owned()) }
    }

    /// What a refusal to look at a path means: nothing is there, unless the server says something else.
    pub fn into_absent(self) -> Fault {
        match &self {
            Fault::Refused { code: 550, text } if kind_of(550, text) == FailureKind::Other => Fault::Absent,
            _ => self,
        }
    }
}

/// What a refusal is about: codes are few, and servers use 550 for everything.
fn kind_of(code: u16, text: &str) -> FailureKind {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match code {
        452 | 552 => FailureKind::NoSpace,
        _ if says(&["no space", "disk full", "quota"]) => FailureKind::NoSpace,
        530 | 532 => FailureKind::Permission,
        _ if says(&["no such file", "not found", "does not exist", "not exist"]) => FailureKind::NotFound,
        _ if says(&["denied", "not permitted", "read-only", "not allowed"]) => FailureKind::Permission,
        _ if says(&["file exists", "already exists", "is a directory", "not a directory", "not empty"]) => {
            FailureKind::InTheWay
        }
        _ if says(&["name too long"]) => FailureKind::NameRefused,
        _ => FailureKind::Other,
    }
}

/// Why a connection came to nothing, in words.
pub fn said(fault: &Fault) -> String {
    let message = fault.on("connect", b"").message();
    message.strip_prefix("connect: ").unwrap_or(&message).to_owned()
}

impl Faulty for Fault {
    fn on(&self, operation: &'static str, subject: &[u8]) -> store::Error {
        let (kind, why) = match self {
            Fault::Refused { code, text } => (kind_of(*code, text), format!("the server says \"{code} {text}\"")),
            Fault::Lost(why) | Fault::Crowded(why) => (FailureKind::Other, why.to_string()),
            Fault::Malformed(why) => (FailureKind::Other, format!("the server does not keep to the protocol: {why}")),
            Fault::Name(why) => (FailureKind::NameRefused, (*why).to_owned()),
            Fault::Absent => (FailureKind::NotFound, "it is not there".to_owned()),
            Fault::Differs(why) => (FailureKind::DigestMismatch, why.clone()),
            Fault::Abroad(why) => (FailureKind::Permission, why.clone()),
            Fault::Unable(why) => (FailureKind::Special, (*why).to_owned()),
        };
        store::Error::of_kind(kind.or_by(operation), operation, subject, &why)
    }

    fn is_absent(&self) -> bool {
        match self {
            Fault::Absent => true,
            Fault::Refused { code, text } => kind_of(*code, text) == FailureKind::NotFound,
            _ => false,
        }
    }

    fn is_lost(&self) -> bool {
        matches!(self, Fault::Lost(_) | Fault::Crowded(_))
    }

    fn beyond(why: &'static str) -> Fault {
        Fault::Malformed(why)
    }
}
