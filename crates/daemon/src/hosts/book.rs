//! The hosts of an endpoint, as the head keeps them below its state directory, or as all keep them where they share a coordinator:
//! `hosts/NAME.toml` says what is to become of a host, and `hosts/NAME.seen` where it was when it was last heard. Both are changed by
//! commands too, beside the endpoint or while it does not run.
//!
//! Invariants:
//! - The head is the one without a ticket. Each other host has one that is good for one key, so a name is one key until it is removed.
//! - Where there is no `hosts`, the endpoint is one host.
//! - Where hosts share a coordinator none is the head, and `NAME.seen` is there as long as the host is heard. `handed/NAME` is the ticket
//!   that a host hands out, which lets in nobody new once that is removed.
//!
//! Not here: what a host does (`member`).

use crate::endpoints::check_name;
use crate::error::{Error, Result};
use crate::issue::{Announcement, Issue};
use crate::limited::{LimitedBook, Limits};
use crate::records::Records;
use crate::ticket::{ADDRESSES_MAX, Ticket, is_address};
use model::name::Escaped;
use model::{Class, Exit, Pin};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::hosts::{ACTIVE, DRAINING};
use wire::limits::HOSTS_MAX;
use wire::message::HostRecord;

const FILE_BYTES_MAX: u64 = 16 << 10;
/// A host that was not heard for so long is not told to clients.
const SILENCE_SECONDS_MAX: u64 = 30;

/// How often a record is changed again that others change.
const TRIES: usize = 8;
/// What was written down so lately is not written again unless it differs.
const SAW_SECONDS: u64 = 3;

/// `NAME.toml`.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    is_draining: bool,
    /// The key that joined, where there is no head that knows it by its ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin: Option<String>,
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
    /// The key, where hosts share a coordinator and it has joined.
    pub pin: Option<Pin>,
    pub is_shared: bool,
    /// Nothing until it was there.
    pub seen: Option<Seen>,
}

#[derive(Clone, Debug)]
pub struct HostBook {
    state: PathBuf,
    records: Records,
    /// What the endpoint is known by to hosts that join, where they share a coordinator.
    endpoint: Option<Pin>,
    /// What this host is called there.
    own_name: String,
}

impl HostBook {
    pub fn new(state: &Path) -> HostBook {
        HostBook { records: state.into(), state: state.to_owned(), endpoint: None, own_name: String::new() }
    }

    /// The hosts that share a coordinator.
    pub fn shared(state: &Path, records: Records, endpoint: Pin, own_name: &str) -> HostBook {
        HostBook { records, state: state.to_owned(), endpoint: Some(endpoint), own_name: own_name.to_owned() }
    }

    /// Makes the endpoint of this state directory the head of several hosts; returns what it is called among them.
    pub fn init(&self) -> Result<String> {
        if self.is_shared() {
            return Ok(self.own_name.clone());
        }
        if super::is_member(&self.state) {
            return Err(Error::new(Exit::Usage, "this host belongs to an endpoint that another host heads")
                .hint("give the command at that one"));
        }
        let name = name_for(&Announcement::read(&self.state)?.name);
        if self.is_there() {
            return Ok(self.list()?.into_iter().find(Listed::is_head).map_or(name, |head| head.name));
        }
        self.records.add(&key(&name), Record::default().to_text()?.as_bytes())?;
        Ok(name)
    }

    pub fn is_shared(&self) -> bool {
        self.endpoint.is_some()
    }

    pub fn is_there(&self) -> bool {
        self.endpoint.is_some() || self.state.join("hosts").is_dir()
    }

    /// Notes that a host with this key goes by a name; false where somebody else does.
    pub(super) fn register(&self, name: &str, pin: Pin) -> Result<bool> {
        let of = |old: Option<&[u8]>| -> Result<Option<Record>> { old.map(|old| self.parsed(name, old)).transpose() };
        for _ in 0..TRIES {
            let old = self.records.get(&key(name), FILE_BYTES_MAX, false)?;
            let record = of(old.as_deref())?.unwrap_or_default();
            match record.pin.as_deref() {
                Some(known) if known == pin.to_string() => return Ok(true),
                Some(_) => return Ok(false),
                None => {}
            }
            let text = Record { pin: Some(pin.to_string()), ..record }.to_text()?;
            if self.records.swap(&key(name), old.as_deref(), text.as_bytes())? {
                return Ok(true);
            }
        }
        Err(Error::new(Exit::Temporary, format!("{name} is changed by others again and again")))
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
        let issue = Issue::of(&self.state, self.records.clone());
        let (limited, token) = issue.create(limits)?;
        let record = Record { ticket: Some(limited.id.clone()), ..Record::default() };
        match record.to_text().and_then(|text| self.records.add(&key(name), text.as_bytes())) {
            // A host that joins finds the endpoint by its key.
            Ok(true) => Ok(Ticket { pin: self.endpoint.unwrap_or(token.pin), ..token }),
            failed => {
                let _ = issue.revoke(&limited.id);
                failed?;
                Err(Error::new(Exit::Usage, format!("there is a host {name} already")).hint("choose another name"))
            }
        }
    }

    /// The head first, the others by their names.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut hosts = self.hosts()?;
        for host in hosts.iter_mut().filter(|host| host.is_shared) {
            // Whoever is there renews a lease, and no two clocks are compared.
            let silent = self.records.silent_seconds(&seen_key(&host.name))?;
            let heard = silent.map(|silent| now().saturating_sub(silent));
            host.seen = host.seen.take().zip(heard).map(|(seen, heard)| Seen { heard, ..seen });
        }
        Ok(hosts)
    }

    /// The same, without how long those that are heard were silent.
    pub(super) fn hosts(&self) -> Result<Vec<Listed>> {
        let files = self.records.names("hosts", 8 * HOSTS_MAX)?;
        let names = files.iter().filter_map(|file| file.strip_suffix(".toml")).filter(|name| check_name(name).is_ok());
        let names: Vec<_> = names.take(2 * HOSTS_MAX).collect();
        let read = self.records.reading(names.iter().flat_map(|name| [key(name), seen_key(name)]).collect())?;
        let read = HostBook { records: read, ..self.clone() };
        let mut hosts = Vec::new();
        for name in names {
            hosts.extend(read.get(name)?);
        }
        hosts.sort_by_key(|host| (!host.is_head(), host.name.clone()));
        hosts.truncate(HOSTS_MAX);
        Ok(hosts)
    }

    /// Has a host finish what it has and get no more, or lets it work again.
    pub fn drain(&self, name: &str, is_draining: bool) -> Result<()> {
        self.known(name)?;
        for _ in 0..TRIES {
            let Some(old) = self.records.get(&key(name), FILE_BYTES_MAX, false)? else { break };
            let record = Record { is_draining, ..self.parsed(name, &old)? };
            if self.records.swap(&key(name), Some(&old), record.to_text()?.as_bytes())? {
                return Ok(());
            }
        }
        Err(Error::new(Exit::Temporary, format!("{name} is changed by others at this moment")).hint("try again"))
    }

    /// Forgets a host, which is let in no more. What it could let others in with ends first: one that broke off is given again.
    pub fn remove(&self, name: &str) -> Result<()> {
        let host = self.known(name)?;
        if host.is_head() {
            return Err(Error::new(Exit::Usage, format!("{name} heads the others"))
                .hint("`thalweg host drain` keeps it from moving data; clients enrol with it"));
        }
        // What is left of it allows nothing once the ticket itself is gone.
        if let Some(ticket) = &host.ticket
            && let Err(e) = Issue::of(&self.state, self.records.clone()).revoke(ticket)
            && e.exit != Exit::Usage
            && LimitedBook::new(&self.records).get(ticket)?.is_some()
        {
            return Err(e);
        }
        self.close_handed(name)?;
        self.records.remove(&key(name))?;
        // One that hands out a ticket at this moment either finds that it is no host, or is found here.
        self.close_handed(name)?;
        self.records.remove(&seen_key(name)).map(drop)
    }

    /// Has the ticket that a host hands out let in nobody new.
    fn close_handed(&self, name: &str) -> Result<()> {
        let Some(id) = self.records.get(&handed_key(name), FILE_BYTES_MAX, false)? else { return Ok(()) };
        LimitedBook::new(&self.records).close(&String::from_utf8_lossy(&id))
    }

    /// Whether a ticket was made to let a host in.
    pub(crate) fn is_token(records: &Records, ticket: &str) -> Result<bool> {
        let book =
            HostBook { records: records.clone(), state: PathBuf::new(), endpoint: None, own_name: String::new() };
        Ok(book.of_ticket(ticket)?.is_some())
    }

    /// The host that was invited with a ticket.
    pub fn of_ticket(&self, ticket: &str) -> Result<Option<Listed>> {
        Ok(self.hosts()?.into_iter().find(|host| host.ticket.as_deref() == Some(ticket)))
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
        self.records.put(&seen_key(name), &seen.to_bytes()?)
    }

    /// The hosts as clients hear of them; `own` is the head's key.
    pub fn told(&self, own: Pin) -> Result<Vec<HostRecord>> {
        let mut told = Vec::new();
        for host in self.hosts()? {
            let (pin, addresses) = match &host.seen {
                _ if host.is_head() => (Some(own), Announcement::read(&self.state)?.addresses),
                // It is the one that it says only if it is the one that joined.
                Some(seen) if host.is_shared => {
                    (host.pin.filter(|pin| Pin::from_hex(&seen.pin) == Some(*pin)), seen.addresses.clone())
                }
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

    pub(super) fn get(&self, name: &str) -> Result<Option<Listed>> {
        let Some(bytes) = self.records.get(&key(name), FILE_BYTES_MAX, false)? else { return Ok(None) };
        let Record { ticket, is_draining, pin } = self.parsed(name, &bytes)?;
        let seen = self.records.get(&seen_key(name), FILE_BYTES_MAX, false)?;
        let seen = seen.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let (pin, is_shared) = (pin.as_deref().and_then(Pin::from_hex), self.endpoint.is_some());
        Ok(Some(Listed { name: name.to_owned(), ticket, is_draining, pin, is_shared, seen }))
    }

    fn parsed(&self, name: &str, bytes: &[u8]) -> Result<Record> {
        let record = std::str::from_utf8(bytes).ok().and_then(|text| toml::from_str::<Record>(text).ok());
        record.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", self.records.named(&key(name))))
                .hint("remove it, and invite the host again")
        })
    }
}

impl Record {
    fn to_text(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::new(Exit::Fatal, format!("write down a host: {e}")))
    }
}

/// What an endpoint is called among hosts.
pub(super) fn name_for(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let name: String = name.chars().map(fit).collect();
    if check_name(&name).is_ok() { name } else { "head".to_owned() }
}

fn key(name: &str) -> String {
    format!("hosts/{name}.toml")
}

pub(super) fn handed_key(name: &str) -> String {
    format!("handed/{name}")
}

pub(super) fn seen_key(name: &str) -> String {
    format!("hosts/{name}.seen")
}

impl Listed {
    pub fn is_head(&self) -> bool {
        !self.is_shared && self.ticket.is_none()
    }
}

impl Seen {
    /// Where a host is; that it is there is said by what this is kept with.
    pub(super) fn here(pin: Pin, addresses: &[String], jobs: u32) -> Seen {
        Seen { pin: pin.to_string(), addresses: addresses.to_vec(), jobs, heard: 0 }
    }

    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::new(Exit::Fatal, format!("write down a host: {e}")))
    }

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

    #[test]
    fn a_removal_that_breaks_off_leaves_the_host_and_can_be_given_again() {
        let dir = tempfile::tempdir().unwrap();
        let book = HostBook::new(dir.path());
        Announcement { name: "far".into(), addresses: vec!["192.0.2.1:7740".into()] }.write(dir.path()).unwrap();
        book.init().unwrap();
        let token = book.invite("h2").unwrap();
        let clients = ClientBook::open(dir.path()).unwrap();
        let host = Pin([2; 32]);
        clients.authorise(host, &token.credential[..], || "h".into()).unwrap();
        // The token's file cannot be removed at this moment.
        let ticket = book.list().unwrap()[1].ticket.clone().unwrap();
        let [file, aside] = ["tickets", "aside"].map(|place| dir.path().join(format!("{place}/{ticket}.toml")));
        std::fs::create_dir(dir.path().join("aside")).unwrap();
        std::fs::rename(&file, &aside).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert_ne!(book.remove("h2").unwrap_err().exit, Exit::Usage);
        assert_eq!(book.list().unwrap().len(), 2);
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&aside, &file).unwrap();
        book.remove("h2").unwrap();
        assert_eq!(book.list().unwrap().len(), 1);
        assert!(clients.rights(host).is_err() && !clients.knows(host));
    }

    #[test]
    fn a_client_that_cannot_be_read_keeps_no_host_from_being_removed() {
        let dir = tempfile::tempdir().unwrap();
        let book = HostBook::new(dir.path());
        Announcement { name: "far".into(), addresses: vec!["192.0.2.1:7740".into()] }.write(dir.path()).unwrap();
        book.init().unwrap();
        let token = book.invite("h2").unwrap();
        let clients = ClientBook::open(dir.path()).unwrap();
        let host = Pin([2; 32]);
        clients.authorise(host, &token.credential[..], || "h".into()).unwrap();
        std::fs::write(dir.path().join(format!("clients/{}.toml", Pin([3; 32]))), "rubbish").unwrap();
        book.remove("h2").unwrap();
        assert_eq!(book.list().unwrap().len(), 1);
        assert!(clients.rights(host).is_err());
    }
}
