//! Making, listing and revoking tickets of an endpoint, beside it or while it does not run.
//!
//! All of it happens in files of the state directory; a running endpoint reads them again within `REVIEW_INTERVAL`, and
//! for whatever is asked of it at once.
//!
//! Not here: what tickets allow (`limited`), who is let in (`clients`).

use crate::clients::CREDENTIAL_BYTES;
use crate::enrolment::{self, Enrolment};
use crate::error::{Error, Result, shown};
pub use crate::limited::SERVE_TICKET;
use crate::limited::{Limited, LimitedBook, Limits, USES_MAX, id_of_credential};
use crate::paths;
use crate::private_file::{self, Existing};
use crate::records::Records;
use crate::removed::RemovedClients;
use crate::revoked::RevokedBook;
use crate::ticket::{self, Ticket, TicketError};
use model::{Exit, Pin};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 64 << 10;

/// Writes a ticket's text form, or its link, to a file that only this user can read. An older ticket is replaced, and nothing else: a
/// link, a FIFO or a device there would be lost, and what reads from it would wait for ever.
pub fn write_ticket(path: &Path, text: &str) -> io::Result<()> {
    let why = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => (!is_ticket_or_empty(path)?).then_some("there is a file that is not a ticket"),
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Some("there is a link or a special file, which a ticket would replace"),
        Err(_) => None,
    };
    if let Some(why) = why {
        return Err(io::Error::other(format!("{why}: name another file")));
    }
    private_file::write(path, format!("{text}\n").as_bytes(), Existing::Replace)
}

fn is_ticket_or_empty(path: &Path) -> io::Result<bool> {
    let mut text = String::new();
    let read = File::open(path)?.take(ticket::TICKET_TEXT_BYTES_MAX as u64).read_to_string(&mut text);
    Ok(read.is_ok() && (text.trim().is_empty() || !matches!(Ticket::parse(&text), Err(TicketError::NotATicket))))
}

/// The ticket in a file of this user's; nothing where there is none.
pub(crate) fn read_token(path: &Path) -> Result<Option<Ticket>> {
    let bytes = private_file::read(path, ticket::TICKET_TEXT_BYTES_MAX as u64, true)?;
    let parsed = bytes.map(|bytes| Ticket::parse(&String::from_utf8_lossy(&bytes))).transpose();
    parsed.map_err(|e| Error::new(Exit::Usage, format!("{}: {e}", shown(path))).hint(e.hint()))
}

/// What an endpoint says of itself in tickets. Not secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Announcement {
    pub name: String,
    pub addresses: Vec<String>,
}

impl Announcement {
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        let path = path_of(state_dir);
        let text = toml::to_string(self).map_err(|e| Error::new(Exit::Fatal, format!("write endpoint.toml: {e}")))?;
        private_file::write(&path, text.as_bytes(), Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }

    pub fn read(state_dir: &Path) -> Result<Announcement> {
        let path = path_of(state_dir);
        let bytes = private_file::read(&path, FILE_BYTES_MAX, false)?.ok_or_else(|| {
            Error::new(Exit::Failed, format!("no endpoint has run with the state directory {}", shown(state_dir)))
                .hint("start `thalweg serve` with this --state-dir first: it makes the identity and knows its address")
        })?;
        let announced = std::str::from_utf8(&bytes).ok().and_then(|text| toml::from_str::<Announcement>(text).ok());
        let is_usable = |a: &Announcement| {
            (1..=ticket::ADDRESSES_MAX).contains(&a.addresses.len())
                && a.addresses.iter().all(|address| ticket::is_address(address))
                && a.name.len() <= 255
        };
        announced.filter(is_usable).ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", shown(&path))).hint("start `thalweg serve` again")
        })
    }
}

/// The tickets of one state directory.
pub struct Issue {
    state_dir: PathBuf,
    records: Records,
    book: LimitedBook,
}

/// A ticket and what came of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    pub ticket: Limited,
    /// How often it was used; of tickets without a number of uses, how many clients live by it.
    pub uses: u32,
}

impl Issue {
    pub fn new(state_dir: impl Into<PathBuf>) -> Issue {
        let state_dir = state_dir.into();
        let records = Records::from(state_dir.as_path());
        Issue::of(state_dir, records)
    }

    /// The tickets that several hosts have in common, as this one makes them.
    pub fn of(state_dir: impl Into<PathBuf>, records: Records) -> Issue {
        Issue { state_dir: state_dir.into(), book: LimitedBook::new(&records), records }
    }

    /// Makes a ticket; its text form is the only place where the credential is.
    pub fn create(&self, limits: Limits) -> Result<(Limited, Ticket)> {
        if !limits.may_read && !limits.may_write {
            return Err(Error::new(Exit::Usage, "a ticket must allow reading or writing"));
        }
        if limits.uses_max.is_some_and(|uses| !(1..=USES_MAX).contains(&uses)) {
            let hint = "omit --uses for 1,024 clients at one time";
            return Err(Error::new(Exit::Usage, format!("a ticket has 1 to {USES_MAX} uses")).hint(hint));
        }
        let Announcement { name, addresses } = Announcement::read(&self.state_dir)?;
        let pin = paths::identity(&self.state_dir)?.pin();
        let (limited, credential) = self.book.create(limits)?;
        Ok((limited, Ticket { addresses, pin, credential: credential.into(), name }))
    }

    pub fn list(&self) -> Result<Vec<Issued>> {
        let clients = self.clients()?;
        let tickets = self.book.list()?.into_iter().map(|ticket| {
            let living = clients.iter().filter(|client| client.ticket.as_deref() == Some(&ticket.id)).count() as u32;
            let uses = if ticket.limits.uses_max.is_some() { self.book.uses(&ticket.id)? } else { living };
            Ok(Issued { ticket, uses })
        });
        tickets.collect()
    }

    pub fn clients(&self) -> Result<Vec<Enrolment>> {
        enrolment::list(&self.records)
    }

    /// Revokes a ticket and removes the clients enrolled with it, or one client by its pin, which no ticket of now
    /// enrols again. Returns how many clients.
    pub fn revoke(&self, what: &str) -> Result<usize> {
        if let Some(pin) = Pin::from_hex(what) {
            return if self.remove(pin)? { Ok(1) } else { Err(unknown(what)) };
        }
        if what == SERVE_TICKET && self.records.is_shared() {
            return self.revoke_own();
        }
        let ticket = (what != SERVE_TICKET).then_some(what);
        let revoked = RevokedBook::new(&self.records);
        let was_there = match ticket {
            Some(id) => self.revoke_ticket(id, &revoked)?,
            None => self.revoke_credential(&revoked)?,
        };
        let is_meant = |client: &Enrolment| match ticket {
            Some(id) => Ok(client.ticket.as_deref() == Some(id)),
            // Not those whom the credential let in that was made after it.
            None => Ok(client.ticket.is_none() && revoked.holds(client.credential.as_deref())?),
        };
        // Also those that an interrupted revocation left.
        let mut removed = 0;
        for client in self.clients()? {
            if is_meant(&client)? {
                removed += usize::from(enrolment::remove_if(&self.records, &client.pin, &is_meant)?);
            }
        }
        if was_there || removed > 0 { Ok(removed) } else { Err(unknown(what)) }
    }

    /// The mark comes first: a running endpoint never sees a client that is unknown and not kept out.
    fn remove(&self, pin: Pin) -> Result<bool> {
        if !self.records.has(&enrolment::key(pin))? {
            return Ok(false);
        }
        let mut tickets = self.book.ids()?;
        let credential = private_file::read(&self.credential_path(), CREDENTIAL_BYTES as u64, true)?;
        tickets.extend(credential.map(|credential| id_of_credential(&credential)));
        RemovedClients::new(&self.records).mark(pin, &tickets)?;
        enrolment::remove(&self.records, &pin.to_string())
    }

    /// The ticket that this host hands out, where hosts share tickets: its clients live by it as by any other.
    fn revoke_own(&self) -> Result<usize> {
        let credential = private_file::read(&self.credential_path(), CREDENTIAL_BYTES as u64, true)?;
        let credential = credential.ok_or_else(|| unknown(SERVE_TICKET))?;
        let removed = self.revoke(&id_of_credential(&credential))?;
        self.revoke_credential(&RevokedBook::new(self.state_dir.as_path()))?;
        Ok(removed)
    }

    /// Where hosts share tickets, the one that `serve` of another host hands out is among them: the mark tells that host.
    fn revoke_ticket(&self, id: &str, revoked: &RevokedBook) -> Result<bool> {
        if self.records.is_shared() && self.book.get(id)?.is_some() {
            revoked.mark(id)?;
        }
        self.book.revoke(id)
    }

    fn credential_path(&self) -> PathBuf {
        self.state_dir.join("credential")
    }

    /// Leaves the mark first: whom the credential lets in meanwhile sees it. The endpoint makes another one when it starts
    /// next.
    fn revoke_credential(&self, revoked: &RevokedBook) -> Result<bool> {
        let path = self.credential_path();
        let read = || private_file::read(&path, CREDENTIAL_BYTES as u64, true);
        let Some(credential) = read()? else { return Ok(false) };
        revoked.mark(&id_of_credential(&credential))?;
        // An endpoint that starts at this moment sees the mark and makes another one, which stays.
        if read()?.is_some_and(|now| now != credential) {
            return Ok(true);
        }
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::of_file("remove", &path, e)),
            _ => Ok(true),
        }
    }
}

fn path_of(state_dir: &Path) -> PathBuf {
    state_dir.join("endpoint.toml")
}

fn unknown(what: &str) -> Error {
    let what = model::name::Escaped(what.as_bytes());
    Error::new(Exit::Usage, format!("there is no ticket and no client {what}"))
        .hint("`thalweg ticket ls` and `thalweg ticket clients` list them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::ClientBook;
    use std::os::unix::fs::MetadataExt;

    fn limits() -> Limits {
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

    #[test]
    fn tickets_are_made_beside_the_endpoint_and_revoked_with_their_clients() {
        let dir = tempfile::tempdir().unwrap();
        let issue = Issue::new(dir.path());
        assert!(issue.create(limits()).unwrap_err().hint.is_some());
        let addresses = vec!["192.0.2.1:7740".to_owned()];
        Announcement { name: "lab".into(), addresses: addresses.clone() }.write(dir.path()).unwrap();
        let (limited, ticket) = issue.create(limits()).unwrap();
        assert_eq!((&ticket.addresses, &ticket.name[..]), (&addresses, "lab"));
        assert_eq!(ticket.pin, paths::identity(dir.path()).unwrap().pin());
        let book = ClientBook::open(dir.path()).unwrap();
        for (pin, credential) in [(1, &ticket.credential), (2, &ticket.credential), (3, &book.credential())] {
            book.authorise(Pin([pin; 32]), &credential[..], || "n".into()).unwrap();
        }
        assert_eq!(issue.list().unwrap(), [Issued { ticket: limited.clone(), uses: 2 }]);
        assert_eq!(issue.revoke(&limited.id).unwrap(), 2);
        assert_eq!((issue.list().unwrap().len(), issue.clients().unwrap().len()), (0, 1));
        assert!(!book.knows(Pin([1; 32])) && book.knows(Pin([3; 32])));
        for unknown in [&limited.id[..], "nosuch", "../credential"] {
            assert_eq!(issue.revoke(unknown).unwrap_err().exit, Exit::Usage);
        }
        assert_eq!(issue.revoke(&Pin([3; 32]).to_string()).unwrap(), 1);
        assert_eq!(issue.revoke(SERVE_TICKET).unwrap(), 0);
        assert!(book.authorise(Pin([4; 32]), &book.credential()[..], || "n".into()).is_err());
    }

    #[test]
    fn a_client_that_was_removed_comes_back_with_a_later_ticket_only() {
        let dir = tempfile::tempdir().unwrap();
        let issue = Issue::new(dir.path());
        Announcement { name: "lab".into(), addresses: vec!["192.0.2.1:7740".into()] }.write(dir.path()).unwrap();
        let book = ClientBook::open(dir.path()).unwrap();
        let pin = Pin([0xab; 32]);
        let enrol = |credential: &[u8]| book.authorise(pin, credential, || "n".into());
        let once = Limits { uses_max: Some(1), ..limits() };
        let (_, older) = issue.create(once).unwrap();
        let (_, unused) = issue.create(limits()).unwrap();
        enrol(&older.credential[..]).unwrap();
        assert_eq!(issue.revoke(&pin.to_string().to_uppercase()).unwrap(), 1);
        for credential in [&older.credential, &unused.credential, &book.credential()] {
            let refused = enrol(&credential[..]).unwrap_err();
            assert!(refused.text.contains("only a ticket made after that"), "{refused}");
        }
        let (later, ticket) = issue.create(limits()).unwrap();
        assert_eq!(enrol(&ticket.credential[..]).unwrap().0.ticket, Some(later.id.clone()));
        // An older ticket does not replace the later one either.
        assert_eq!(enrol(&older.credential[..]).unwrap().0.ticket, Some(later.id));
        book.authorise(Pin([2; 32]), &unused.credential[..], || "n".into()).unwrap();
        assert_eq!(issue.revoke(&Pin([3; 32]).to_string()).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn a_ticket_replaces_a_ticket_and_nothing_else() {
        use std::os::unix::fs::symlink;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let ticket = Ticket {
            addresses: vec!["192.0.2.1:7740".into()],
            pin: Pin([1; 32]),
            credential: [2; 32].into(),
            name: "lab".into(),
        };
        std::fs::write(at("empty"), "").unwrap();
        for name in ["new", "empty", "new"] {
            write_ticket(&at(name), &ticket.to_text()).unwrap();
            assert_eq!(std::fs::read_to_string(at(name)).unwrap().trim(), ticket.to_text());
        }
        std::fs::write(at("notes"), "do not lose").unwrap();
        symlink(at("new"), at("link")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for name in ["notes", "link", "null", "fifo", "directory"] {
            let before = std::fs::symlink_metadata(at(name)).unwrap().ino();
            assert!(write_ticket(&at(name), &ticket.to_text()).is_err(), "{name}");
            assert_eq!(std::fs::symlink_metadata(at(name)).unwrap().ino(), before, "{name}");
        }
        assert_eq!(std::fs::read(at("notes")).unwrap(), b"do not lose");
    }

    #[test]
    fn tickets_that_allow_nothing_are_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let issue = Issue::new(dir.path());
        let nothing = Limits { may_read: false, may_write: false, ..limits() };
        for wrong in [nothing, Limits { uses_max: Some(0), ..limits() }] {
            assert_eq!(issue.create(wrong).unwrap_err().exit, Exit::Usage);
        }
    }
}
