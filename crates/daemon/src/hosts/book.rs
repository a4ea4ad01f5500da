//! The hosts of an endpoint as the head keeps them, changed beside it or while it does not run: below the state directory
//! `hosts/NAME.toml` says what is to become of a host, and `hosts/NAME.seen` where it was when it was last heard.
//!
//! Invariants:
//! - The head is the one without a ticket. Each other host has one that is good for one key, so a name is one key until it is removed.
//! - Where there is no `hosts`, the endpoint is one host.
//!
//! Not here: what a host does (`member`).

use crate::endpoints::check_name;
use crate::error::{Error, Result};
use crate::issue::{Announcement, Issue};
use crate::limited::Limits;
use crate::private_file::{self, Existing};
use crate::ticket::{ADDRESSES_MAX, Ticket, is_address};
use crate::trust;
use model::name::Escaped;
use model::{Class, Exit, Pin};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::hosts::{ACTIVE, DRAINING};
use wire::limits::HOSTS_MAX;
use wire::message::HostRecord;

const FILE_BYTES_MAX: u64 = 16 << 10;
/// A host that was not heard for so long is not told to clients.
const SILENCE_SECONDS_MAX: u64 = 30;

/// What was written down so lately is not written again unless it differs.
const SAW_SECONDS: u64 = 3;

/// `NAME.toml`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    is_draining: bool,
}

/// `NAME.seen`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    pin: String,
    pub addresses: Vec<String>,
    pub jobs: u32,
    /// Seconds since 1970.
    heard: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub name: String,
    ticket: Option<String>,
    pub is_draining: bool,
    /// Nothing until it was there.
    pub seen: Option<Seen>,
}

#[derive(Clone, Debug)]
pub struct HostBook {
    state: PathBuf,
    directory: PathBuf,
}

impl HostBook {
    pub fn new(state: &Path) -> HostBook {
        HostBook { directory: state.join("hosts"), state: state.to_owned() }
    }

    /// Makes the endpoint of this state directory the head of several hosts; returns what it is called among them.
    pub fn init(&self) -> Result<String> {
        if super::member::is_member(&self.state) {
            return Err(Error::new(Exit::Usage, "this host belongs to an endpoint that another host heads")
                .hint("give the command at that one"));
        }
        let announced = Announcement::read(&self.state)?;
        let fit = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let name: String = announced.name.chars().map(fit).collect();
        let name = if check_name(&name).is_ok() { name } else { "head".to_owned() };
        if self.is_there() {
            return Ok(self.list()?.into_iter().find(Listed::is_head).map_or(name, |head| head.name));
        }
        trust::make_private_directory(&self.directory)?;
        self.write(&name, &Record::default(), Existing::Keep)?;
        Ok(name)
    }

    pub fn is_there(&self) -> bool {
        self.directory.is_dir()
    }

    /// A token that lets one more host in, under this name.
    pub fn invite(&self, name: &str) -> Result<Ticket> {
        check_name(name)?;
        if !self.is_there() {
            return Err(Error::new(Exit::Usage, "this endpoint is one host").hint("run `thalweg host init` first"));
        }
        let known = self.list()?;
        if known.iter().any(|host| host.name == name) {
            return Err(Error::new(Exit::Usage, format!("there is a host {name} already"))
                .hint(format!("choose another name, or `thalweg host rm {name}` first")));
        }
        if known.len() >= HOSTS_MAX {
            return Err(Error::new(Exit::Usage, format!("an endpoint has at most {HOSTS_MAX} hosts")));
        }
        let limits = Limits {
            scope: Vec::new(),
            may_read: true,
            may_write: false,
            expires: None,
            uses_max: Some(1),
            class_max: Class::High,
            may_manage: false,
        };
        let issue = Issue::new(&self.state);
        let (limited, token) = issue.create(limits)?;
        let record = Record { ticket: Some(limited.id.clone()), is_draining: false };
        if let Err(e) = self.write(name, &record, Existing::Keep) {
            let _ = issue.revoke(&limited.id);
            return Err(e);
        }
        Ok(token)
    }

    /// The head first, the others by their names.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let failed = |e| Error::of_file("list", &self.directory, e);
        let listing = match std::fs::read_dir(&self.directory) {
            Ok(listing) => listing,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(e)),
        };
        let mut hosts = Vec::new();
        for entry in listing.take(8 * HOSTS_MAX) {
            let file = entry.map_err(failed)?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".toml"));
            if let Some(name) = name.filter(|name| check_name(name).is_ok()) {
                hosts.extend(self.get(name)?);
            }
        }
        hosts.sort_by_key(|host| (!host.is_head(), host.name.clone()));
        hosts.truncate(HOSTS_MAX);
        Ok(hosts)
    }

    /// Has a host finish what it has and get no more, or lets it work again.
    pub fn drain(&self, name: &str, is_draining: bool) -> Result<()> {
        let host = self.known(name)?;
        self.write(name, &Record { ticket: host.ticket, is_draining }, Existing::Replace)
    }

    /// Forgets a host, which is let in no more.
    pub fn remove(&self, name: &str) -> Result<()> {
        let host = self.known(name)?;
        let Some(ticket) = &host.ticket else {
            return Err(Error::new(Exit::Usage, format!("{name} heads the others"))
                .hint("`thalweg host drain` keeps it from moving data; clients enrol with it"));
        };
        for path in [self.path(name, "toml"), self.path(name, "seen")] {
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::of_file("remove", &path, e)),
                _ => {}
            }
        }
        Issue::new(&self.state)
            .revoke(ticket)
            .map(drop)
            .or_else(|e| if e.exit == Exit::Usage { Ok(()) } else { Err(e) })
    }

    /// The host that was invited with a ticket.
    pub fn of_ticket(&self, ticket: &str) -> Result<Option<Listed>> {
        Ok(self.list()?.into_iter().find(|host| host.ticket.as_deref() == Some(ticket)))
    }

    /// Notes that a host was heard.
    pub fn saw(&self, name: &str, pin: Pin, addresses: &[Vec<u8>], jobs: u32) -> Result<()> {
        let texts = addresses.iter().filter_map(|address| std::str::from_utf8(address).ok());
        let addresses = texts.filter(|address| is_address(address)).take(ADDRESSES_MAX).map(str::to_owned).collect();
        let seen = Seen { pin: pin.to_string(), addresses, jobs, heard: now() };
        // Strangers make a host ask as often as they like.
        let is_known =
            |old: &Seen| Seen { heard: seen.heard, ..old.clone() } == seen && old.silent_seconds() < SAW_SECONDS;
        if self.get(name)?.and_then(|host| host.seen).is_some_and(|old| is_known(&old)) {
            return Ok(());
        }
        let text = serde_json::to_vec(&seen).map_err(|e| Error::new(Exit::Fatal, format!("write {name}.seen: {e}")))?;
        let path = self.path(name, "seen");
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }

    /// The hosts as clients hear of them; `own` is the head's key.
    pub fn told(&self, own: Pin) -> Result<Vec<HostRecord>> {
        let mut told = Vec::new();
        for host in self.list()? {
            let (pin, addresses) = match &host.seen {
                _ if host.is_head() => (Some(own), Announcement::read(&self.state)?.addresses),
                Some(seen) if seen.silent_seconds() <= SILENCE_SECONDS_MAX => {
                    (Pin::from_hex(&seen.pin), seen.addresses.clone())
                }
                _ => continue,
            };
            let state = if host.is_draining { DRAINING } else { ACTIVE };
            if let Some(pin) = pin.filter(|_| !addresses.is_empty()) {
                let addresses = addresses.into_iter().map(String::into_bytes).collect();
                told.push(HostRecord { name: host.name, pin: pin.0.to_vec(), addresses, state });
            }
        }
        Ok(told)
    }

    fn known(&self, name: &str) -> Result<Listed> {
        check_name(name)?;
        self.get(name)?.ok_or_else(|| {
            Error::new(Exit::Usage, format!("there is no host {}", Escaped(name.as_bytes())))
                .hint("`thalweg host ls` lists them")
        })
    }

    fn get(&self, name: &str) -> Result<Option<Listed>> {
        let path = self.path(name, "toml");
        let Some(bytes) = private_file::read(&path, FILE_BYTES_MAX, false)? else { return Ok(None) };
        let record = std::str::from_utf8(&bytes).ok().and_then(|text| toml::from_str::<Record>(text).ok());
        let Record { ticket, is_draining } = record.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", crate::error::shown(&path)))
                .hint("remove the file, and invite the host again")
        })?;
        let seen = private_file::read(&self.path(name, "seen"), FILE_BYTES_MAX, false)?;
        let seen = seen.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(Some(Listed { name: name.to_owned(), ticket, is_draining, seen }))
    }

    fn write(&self, name: &str, record: &Record, existing: Existing) -> Result<()> {
        let path = self.path(name, "toml");
        let text = toml::to_string(record).map_err(|e| Error::new(Exit::Fatal, format!("write {name}.toml: {e}")))?;
        private_file::write(&path, text.as_bytes(), existing).map_err(|e| Error::of_file("write", &path, e))
    }

    fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.directory.join(format!("{name}.{kind}"))
    }
}

impl Listed {
    pub fn is_head(&self) -> bool {
        self.ticket.is_none()
    }
}

impl Seen {
    pub fn silent_seconds(&self) -> u64 {
        now().saturating_sub(self.heard)
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::ClientBook;

    #[test]
    fn hosts_are_invited_once_told_when_they_were_heard_and_removed_with_their_rights() {
        let dir = tempfile::tempdir().unwrap();
        let (book, own) = (HostBook::new(dir.path()), Pin([1; 32]));
        assert!(book.init().unwrap_err().hint.is_some(), "no endpoint has run here");
        Announcement { name: "far away".into(), addresses: vec!["192.0.2.1:7740".into()] }.write(dir.path()).unwrap();
        assert!(book.invite("h2").unwrap_err().hint.unwrap().contains("host init"));
        assert_eq!((book.init().unwrap(), book.init().unwrap()), ("far-away".into(), "far-away".into()));
        let token = book.invite("h2").unwrap();
        for name in ["h2", "far-away", "../x", "-h"] {
            assert_eq!(book.invite(name).unwrap_err().exit, Exit::Usage, "{name}");
        }
        let names = || book.told(own).unwrap().into_iter().map(|host| (host.name, host.state)).collect::<Vec<_>>();
        assert_eq!(names(), [("far-away".to_owned(), ACTIVE)], "h2 was never there");
        let clients = ClientBook::open(dir.path()).unwrap();
        let host = Pin([2; 32]);
        let (enrolment, _) = clients.authorise(host, &token.credential[..], || "h".into()).unwrap();
        assert!(clients.authorise(Pin([3; 32]), &token.credential[..], || "h".into()).is_err(), "good for one key");
        let found = book.of_ticket(&enrolment.ticket.unwrap()).unwrap().unwrap();
        assert_eq!((found.name.as_str(), book.of_ticket("serve").unwrap()), ("h2", None));
        book.saw("h2", host, &["192.0.2.2:7740".into(), "rubbish".into()], 3).unwrap();
        book.drain("h2", true).unwrap();
        assert_eq!(names(), [("far-away".to_owned(), ACTIVE), ("h2".to_owned(), DRAINING)]);
        assert_eq!(book.told(own).unwrap()[1].addresses, [b"192.0.2.2:7740"]);
        book.drain("h2", false).unwrap();
        let silent = Seen { heard: now() - SILENCE_SECONDS_MAX - 1, ..book.list().unwrap()[1].seen.clone().unwrap() };
        std::fs::write(dir.path().join("hosts/h2.seen"), serde_json::to_vec(&silent).unwrap()).unwrap();
        assert_eq!(names().len(), 1, "not heard for long");
        book.remove("h2").unwrap();
        assert!(clients.rights(host).is_err());
        assert_eq!(book.remove("far-away").unwrap_err().exit, Exit::Usage);
        assert_eq!((book.list().unwrap().len(), book.remove("h2").unwrap_err().exit), (1, Exit::Usage));
    }
}
