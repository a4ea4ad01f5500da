//! Limited tickets: credentials that hold for a path, for reading or writing, for a time, for a number of clients.
//!
//! One file each below the state directory: `tickets/ID.toml` says what the ticket allows, `tickets/ID.uses` which clients
//! redeemed it, one pin a line. Whoever may write there makes and revokes tickets, also beside a running endpoint, which
//! reads them again whenever it has to know: nothing is cached. Where hosts share a coordinator, both are records there.
//!
//! Invariants:
//! - A file holds the credential's digest only: nobody can make a ticket from it. The id is the beginning of that digest.
//! - What a client may is what its ticket says now. A ticket that was revoked or has expired allows nothing. One that was closed
//!   (`closed/ID`) lets in nobody new.
//! - A use is on disk before the client is enrolled: a crash can lose a use, and never gives one away.
//!
//! Not here: who is enrolled with which ticket (`clients`), paths below a root (`host`).

use crate::error::{Error, Result};
use crate::records::Records;
use crate::time;
use data_encoding::HEXLOWER;
use model::name::{self, Name};
use model::{Class, Exit, Pin};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What stands for the ticket that `serve` writes, which has no limits.
pub const SERVE_TICKET: &str = "serve";
const ID_BYTES: usize = 5;
const FILE_BYTES_MAX: u64 = 16 << 10;
const USE_LINE_BYTES: u64 = 65;
/// Uses that a ticket may have; more clients than this are what an unlimited ticket is for.
pub const USES_MAX: u32 = 10_000;
/// How often a use is noted again that others came before.
const TRIES: usize = 8;
/// Tickets that are listed.
const TICKETS_MAX: usize = 100_000;

/// What a ticket allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Names below the root; empty for all of it. What is asked for must begin with them, name by name.
    pub scope: Vec<Name>,
    pub may_read: bool,
    pub may_write: bool,
    pub expires: Option<SystemTime>,
    /// Clients that it may enrol.
    pub uses_max: Option<u32>,
    /// The highest class that jobs may have.
    pub class_max: Class,
    /// Clients see and change the endpoint's contracts, and see what all jobs move.
    pub may_manage: bool,
}

impl Limits {
    /// Everything but managing, for anybody who brings the ticket, without an end.
    pub fn none() -> Limits {
        Limits {
            scope: Vec::new(),
            may_read: true,
            may_write: true,
            expires: None,
            uses_max: None,
            class_max: Class::High,
            may_manage: false,
        }
    }
}

/// A ticket as it is kept: without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limited {
    pub id: String,
    pub limits: Limits,
    /// RFC 3339.
    pub created: String,
    credential_sha256: [u8; 32],
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    credential_sha256: String,
    path: String,
    may_read: bool,
    may_write: bool,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_unix_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uses_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class_max: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    may_manage: bool,
}

#[derive(Clone, Debug)]
pub struct LimitedBook {
    records: Records,
}

impl LimitedBook {
    pub fn new(records: impl Into<Records>) -> LimitedBook {
        LimitedBook { records: records.into() }
    }

    /// Writes a new ticket down; returns it with its credential, which is kept nowhere.
    pub fn create(&self, limits: Limits) -> Result<(Limited, [u8; 32])> {
        let credential: [u8; 32] = net::random_bytes();
        Ok((self.keep(limits, &credential)?, credential))
    }

    /// Writes down a ticket whose credential is there; the one that was kept of it before stays.
    pub fn keep(&self, limits: Limits, credential: &[u8; 32]) -> Result<Limited> {
        let created = time::rfc3339(SystemTime::now());
        let credential_sha256 = net::sha256(credential);
        let ticket = Limited { id: id_of(&credential_sha256), limits, created, credential_sha256 };
        self.records.add(&key(&ticket.id), ticket.to_toml()?.as_bytes())?;
        Ok(ticket)
    }

    /// The ticket of a credential that a peer brings; one file is looked at, and the comparison takes the same time.
    pub fn find_by_credential(&self, credential: &[u8]) -> Result<Option<Limited>> {
        let digest = net::sha256(credential);
        let found = self.get(&id_of(&digest))?;
        Ok(found.filter(|ticket| net::constant_time_eq(&ticket.credential_sha256, &digest)))
    }

    /// `None` when there is no such ticket, or not any more.
    pub fn get(&self, id: &str) -> Result<Option<Limited>> {
        if !is_id(id) {
            return Ok(None);
        }
        let bytes = self.records.get(&key(id), FILE_BYTES_MAX, true)?;
        bytes.map(|bytes| parse(&self.records.named(&key(id)), id, &bytes)).transpose()
    }

    /// All tickets in order of their ids.
    pub fn list(&self) -> Result<Vec<Limited>> {
        let mut tickets = Vec::new();
        for id in self.ids()? {
            tickets.extend(self.get(&id)?);
        }
        tickets.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(tickets)
    }

    /// The ids of all tickets, also of those that cannot be read.
    pub fn ids(&self) -> Result<Vec<String>> {
        let names = self.records.names("tickets", 2 * TICKETS_MAX)?;
        let id = |name: &String| name.strip_suffix(".toml").filter(|id| is_id(id)).map(str::to_owned);
        Ok(names.iter().filter_map(id).collect())
    }

    /// Forgets a ticket; from then on it allows nothing. False when there is none of this id.
    pub fn revoke(&self, id: &str) -> Result<bool> {
        if !is_id(id) {
            return Ok(false);
        }
        if !self.records.remove(&key(id))? {
            return Ok(false);
        }
        // What is left of it allows nothing without the record above.
        let _ = self.records.remove(&uses_key(id));
        self.records.settle("tickets")?;
        Ok(true)
    }

    /// Has a ticket let in nobody new: whoever lives by it stays.
    pub fn close(&self, id: &str) -> Result<()> {
        self.records.put(&closed_key(id), b"")
    }

    pub fn is_closed(&self, id: &str) -> Result<bool> {
        self.records.has(&closed_key(id))
    }

    /// Clients that have redeemed the ticket.
    pub fn uses(&self, id: &str) -> Result<u32> {
        Ok(self.users(id)?.len() as u32)
    }

    /// Notes that a client redeems the ticket; false when it has been used as often as it may be. The same client again is
    /// no further use. The caller sees to it that nobody else does this meanwhile.
    pub fn use_once(&self, ticket: &Limited, pin: Pin) -> Result<bool> {
        let Some(uses_max) = ticket.limits.uses_max else { return Ok(true) };
        for _ in 0..TRIES {
            let kept = self.kept_uses(&ticket.id)?;
            let text = kept.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            if text.lines().any(|user| user == pin.to_string()) {
                return Ok(true);
            }
            if text.lines().count() >= uses_max as usize {
                return Ok(false);
            }
            // A line that was cut short stays one.
            let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            if self.records.swap(&uses_key(&ticket.id), kept.as_deref(), format!("{text}{end}{pin}\n").as_bytes())? {
                return Ok(true);
            }
        }
        Err(Error::new(Exit::Temporary, format!("ticket {} is redeemed by too many at once", ticket.id)))
    }

    /// A line that a crash cut short counts as a use of somebody.
    fn users(&self, id: &str) -> Result<Vec<String>> {
        let bytes = self.kept_uses(id)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect())
    }

    fn kept_uses(&self, id: &str) -> Result<Option<Vec<u8>>> {
        self.records.get(&uses_key(id), u64::from(USES_MAX + 1) * USE_LINE_BYTES, false)
    }
}

pub(crate) fn key(id: &str) -> String {
    format!("tickets/{id}.toml")
}

fn closed_key(id: &str) -> String {
    format!("closed/{id}")
}

fn uses_key(id: &str) -> String {
    format!("tickets/{id}.uses")
}

impl Limited {
    pub fn is_expired(&self, now: SystemTime) -> bool {
        self.limits.expires.is_some_and(|expires| now >= expires) && !model::mutant::is_on("overlook-expiry")
    }

    /// The path as text, escaped, `.` for the whole root.
    pub fn path_text(&self) -> String {
        path_text(&self.limits.scope)
    }

    /// RFC 3339.
    pub fn expires_text(&self) -> Option<String> {
        self.limits.expires.map(time::rfc3339)
    }

    fn to_toml(&self) -> Result<String> {
        let record = Record {
            credential_sha256: HEXLOWER.encode(&self.credential_sha256),
            path: self.path_text(),
            may_read: self.limits.may_read,
            may_write: self.limits.may_write,
            created: self.created.clone(),
            expires_unix_seconds: self.limits.expires.map(unix_seconds),
            uses_max: self.limits.uses_max,
            class_max: (self.limits.class_max != Class::High).then(|| self.limits.class_max.name().to_owned()),
            may_manage: self.limits.may_manage,
        };
        toml::to_string(&record).map_err(|e| Error::new(Exit::Fatal, format!("write down a ticket: {e}")))
    }
}

/// Reads the path of a ticket: relative, without `..`.
pub fn scope_of(path: &[u8]) -> Result<Vec<Name>> {
    // An unset variable in a script must not open the whole root.
    if path.is_empty() {
        let error = Error::new(Exit::Usage, "the path of a ticket is empty");
        return Err(error.hint("name a path below the endpoint's root, such as results/2026, or `.` for all of it"));
    }
    name::relative_path(path).map_err(|e| {
        Error::new(Exit::Usage, format!("{} cannot be the path of a ticket: {e}", name::Escaped(path)))
            .hint("name a path below the endpoint's root, such as results/2026")
    })
}

fn path_text(scope: &[Name]) -> String {
    if scope.is_empty() { ".".to_owned() } else { name::Escaped(&name::join(scope)).to_string() }
}

fn parse(named: &str, id: &str, bytes: &[u8]) -> Result<Limited> {
    let wrong = |what: &str| Error::new(Exit::Failed, format!("{named}: {}", what.trim_end()));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("not text"))?;
    let record: Record = toml::from_str(text).map_err(|e| wrong(e.message()))?;
    let digest = HEXLOWER.decode(record.credential_sha256.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    let credential_sha256: [u8; 32] = digest.ok_or_else(|| wrong("no digest of a credential"))?;
    if id_of(&credential_sha256) != id {
        return Err(wrong("the digest in the file is not that of its id"));
    }
    let expires = record.expires_unix_seconds.map(|seconds| {
        UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).ok_or_else(|| wrong("expires beyond all time"))
    });
    let unescaped = name::unescape(record.path.as_bytes()).ok_or_else(|| wrong("an unreadable path"))?;
    let limits = Limits {
        scope: name::relative_path(&unescaped).map_err(|e| wrong(&e.to_string()))?,
        may_read: record.may_read,
        may_write: record.may_write,
        expires: expires.transpose()?,
        uses_max: record.uses_max,
        class_max: record.class_max.map_or(Ok(Class::High), |class| class.parse()).map_err(|e: String| wrong(&e))?,
        may_manage: record.may_manage,
    };
    Ok(Limited { id: id.to_owned(), limits, created: record.created, credential_sha256 })
}

/// The id of the ticket that carries this credential, the endpoint's own included.
pub(crate) fn id_of_credential(credential: &[u8]) -> String {
    id_of(&net::sha256(credential))
}

fn id_of(digest: &[u8; 32]) -> String {
    HEXLOWER.encode(&digest[..ID_BYTES])
}

pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 2 * ID_BYTES && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            scope: Vec::new(),
            may_read: true,
            may_write: true,
            expires: None,
            uses_max: None,
            class_max: Class::High,
            may_manage: false,
        }
    }

    fn book() -> (tempfile::TempDir, LimitedBook) {
        let dir = tempfile::tempdir().unwrap();
        let book = LimitedBook::new(dir.path());
        (dir, book)
    }

    #[test]
    fn a_ticket_is_found_by_its_credential_alone_and_its_file_holds_no_secret() {
        let (dir, book) = book();
        assert_eq!(book.list().unwrap(), []);
        let expires = Some(UNIX_EPOCH + Duration::from_secs(4_000_000_000));
        let wanted = Limits {
            scope: scope_of(b"a/b\xff").unwrap(),
            may_write: false,
            expires,
            uses_max: Some(2),
            class_max: Class::Low,
            may_manage: true,
            ..limits()
        };
        let (ticket, credential) = book.create(wanted.clone()).unwrap();
        assert_eq!(book.find_by_credential(&credential).unwrap(), Some(ticket.clone()));
        assert_eq!((book.list().unwrap(), ticket.limits.clone()), (vec![ticket.clone()], wanted));
        assert_eq!(ticket.expires_text().unwrap(), "2096-10-02T07:06:40Z");
        let mut nearly = credential;
        nearly[31] ^= 1;
        for wrong in [&nearly[..], b"", &credential[..31], &[0; 4000]] {
            assert_eq!(book.find_by_credential(wrong).unwrap(), None);
        }
        let file = std::fs::read(dir.path().join(format!("tickets/{}.toml", ticket.id))).unwrap();
        let hex = HEXLOWER.encode(&credential);
        assert!(!String::from_utf8(file).unwrap().contains(&hex[..16]));
        assert!(book.revoke(&ticket.id).unwrap() && !book.revoke(&ticket.id).unwrap());
        assert_eq!(book.find_by_credential(&credential).unwrap(), None);
    }

    #[test]
    fn uses_are_counted_once_for_each_client_and_outlive_the_process() {
        let (dir, book) = book();
        let (ticket, _) = book.create(Limits { uses_max: Some(2), ..limits() }).unwrap();
        for (pin, may) in [(1, true), (1, true), (2, true), (3, false), (2, true)] {
            let again = LimitedBook::new(dir.path());
            assert_eq!(again.use_once(&ticket, Pin([pin; 32])).unwrap(), may, "{pin}");
        }
        assert_eq!(book.uses(&ticket.id).unwrap(), 2);
        let (free, _) = book.create(limits()).unwrap();
        assert!((0..9).all(|pin| book.use_once(&free, Pin([pin; 32])).unwrap()));
    }

    #[test]
    fn what_is_no_id_and_what_is_no_ticket_is_refused() {
        let (dir, book) = book();
        let (ticket, _) = book.create(limits()).unwrap();
        for id in ["", "../identity", "0123456789a", "ABCDEF0123", "zzzzzzzzzz"] {
            assert_eq!((book.get(id).unwrap(), book.revoke(id).unwrap()), (None, false), "{id}");
        }
        let path = dir.path().join(format!("tickets/{}.toml", ticket.id));
        let text = std::fs::read_to_string(&path).unwrap();
        let other = text.replace(&text[text.find('"').unwrap() + 1..][..4], "0000");
        for change in [format!("{text}quota = 1\n"), other, text.replace("path = \".\"", "path = \"../x\"")] {
            std::fs::write(&path, change).unwrap();
            assert!(book.get(&ticket.id).is_err());
        }
        for path in [&b"/x"[..], b"a/../b", b"..", b"a\0b", b""] {
            assert_eq!(scope_of(path).unwrap_err().exit, Exit::Usage, "{path:?}");
        }
        assert_eq!(scope_of(b"./a//b/").unwrap().len(), 2);
    }

    #[test]
    fn tickets_expire_at_their_second() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let (_dir, book) = book();
        let (ticket, _) = book.create(Limits { expires: Some(at(1000)), ..limits() }).unwrap();
        assert!(!ticket.is_expired(at(999)) && ticket.is_expired(at(1000)));
    }
}
