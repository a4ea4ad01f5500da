//! An endpoint whose hosts keep what they know of each other and of clients where it outlives each of them: a coordinator such as etcd,
//! below `/thalweg/` and the beginning of the key of the endpoint's first host.
//!
//! `shared.json` below the state directory says which endpoint this host belongs to, under which name, and which history of the
//! coordinator it was last heard in.
//!
//! Invariants:
//! - A host is one whose record has its key. Only what this process knows to have been so is written anew, and only in another history;
//!   where the coordinator has lost everything, also what this process does not know yet.
//! - That a host is there is said by a lease, and by no clock.
//! - No credential is kept: of those that hosts hand out there is the digest alone, written by a host and by none that was removed.
//! - A host that can write nothing still lets in the clients that it can read.
//!
//! Not here: what becomes of the answers (`member`).

use super::book::{HostBook, Seen, handed_key, name_for, seen_key};
use super::head;
use super::member::{Enroller, Head, Heard};
use crate::clients::{CREDENTIAL_BYTES, ClientBook, Vouched};
use crate::enrolment::{self, Enrolment};
use crate::error::{Error, Result};
use crate::issue::{Issue, read_token};
use crate::limited::{self, LimitedBook, Limits, id_of_credential};
use crate::private_file::{self, Existing};
use crate::records::{Records, of_fault};
use crate::removed;
use crate::revoked::RevokedBook;
use crate::ticket::Ticket;
use cluster::coordinator::{Coordinator, History, Lease};
use model::{Exit, Pin};
use net::Identity;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::{info, warn};
use zeroize::Zeroizing;

const FILE: &str = "shared.json";
const FILE_BYTES_MAX: u64 = 4 << 10;
/// Which form the records have.
const META: &str = "meta";
const SCHEMA: &[u8] = b"{\"schema\":1}";
/// A host that was not heard for so long is not told to clients.
const LEASE_SECONDS: u64 = 30;
/// Characters of the first host's key in names of keys.
const PIN_CHARS: usize = 16;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    endpoint: String,
    name: String,
    /// The token that was redeemed last.
    token: Option<String>,
    cluster: u64,
    revision: u64,
}

/// What hosts have in common, as one of them sees it.
#[derive(Clone, Debug)]
pub struct Shared {
    state: PathBuf,
    coordinator: Arc<dyn Coordinator>,
    pub records: Records,
    endpoint: Pin,
    /// What this host is called.
    pub name: String,
    token: Option<String>,
}

impl Shared {
    /// What the host of this state directory belongs to; nothing before it was started once.
    pub fn of(state: &Path, coordinator: &Arc<dyn Coordinator>) -> Result<Option<Shared>> {
        let path = state.join(FILE);
        let Some(bytes) = private_file::read(&path, FILE_BYTES_MAX, false)? else { return Ok(None) };
        let note = serde_json::from_slice::<Note>(&bytes).ok();
        let note = note.and_then(|note| Some((Pin::from_hex(&note.endpoint)?, note)));
        let (endpoint, note) = note.ok_or_else(|| {
            Error::new(Exit::Failed, format!("{} is damaged", crate::error::shown(&path)))
                .hint("remove it, and start this host with a new token: `thalweg host invite` at another one")
        })?;
        coordinator.recall(History { cluster: note.cluster, revision: note.revision, turns: 0 });
        Ok(Some(Shared::new(state, coordinator, endpoint, note.name, note.token)))
    }

    fn new(
        state: &Path,
        coordinator: &Arc<dyn Coordinator>,
        endpoint: Pin,
        name: String,
        token: Option<String>,
    ) -> Shared {
        let prefix = format!("/thalweg/{}/", &endpoint.to_string()[..PIN_CHARS]);
        let records = Records::shared(coordinator.clone(), prefix);
        Shared { state: state.to_owned(), coordinator: coordinator.clone(), records, endpoint, name, token }
    }

    /// What this host belongs to from here on: what it belonged to, or what its token is of, or, without either, an endpoint whose first
    /// host it is.
    pub(crate) fn begin(
        state: &Path,
        coordinator: &Arc<dyn Coordinator>,
        token: Option<&Path>,
        identity: &Identity,
        name: &str,
    ) -> Result<Shared> {
        if head::is_member(state) {
            return Err(Error::new(Exit::Usage, "this host belongs to an endpoint that another host heads")
                .hint("use another --state-dir for an endpoint with etcd"));
        }
        let known = Shared::of(state, coordinator)?;
        let ticket = token.map(read_token).transpose()?.flatten();
        match (known, ticket) {
            (Some(known), Some(ticket)) if known.endpoint != ticket.pin => {
                Err(Error::new(Exit::Usage, "this state directory belongs to a host of another endpoint")
                    .hint("use another --state-dir"))
            }
            // A token is good once, and a service is started with it each time.
            (Some(known), Some(ticket)) if known.token != Some(id_of_credential(&*ticket.credential)) => {
                Shared::redeem(state, coordinator, &ticket, identity.pin())
            }
            (Some(known), _) => Ok(known),
            (None, Some(ticket)) => Shared::redeem(state, coordinator, &ticket, identity.pin()),
            (None, None) if token.is_some() => {
                Err(Error::new(Exit::Usage, "there is no token in the file that --join names")
                    .hint("make one at another host: `thalweg host invite NAME --token-file F`"))
            }
            (None, None) => Shared::found(state, coordinator, identity.pin(), name),
        }
    }

    /// Begins an endpoint with this host as the first, and with the clients that it has.
    fn found(state: &Path, coordinator: &Arc<dyn Coordinator>, own: Pin, name: &str) -> Result<Shared> {
        let shared = Shared::new(state, coordinator, own, name_for(name), None);
        shared.records.add(META, SCHEMA)?;
        shared.check_schema()?;
        let credential = ClientBook::open(state)?.credential();
        let is_lived_by = shared.import(&id_of_credential(&credential[..]))?;
        if !shared.book().register(&shared.name, own)? {
            return Err(Error::new(Exit::Usage, format!("there is a host {} already", shared.name)));
        }
        if is_lived_by {
            // Nobody else would, where this host hands out no ticket.
            shared.publish(&credential, own)?;
        }
        shared.note()?;
        info!(name = shared.name, "this is the first host of an endpoint that its hosts keep together");
        Ok(shared)
    }

    fn redeem(state: &Path, coordinator: &Arc<dyn Coordinator>, ticket: &Ticket, own: Pin) -> Result<Shared> {
        let id = id_of_credential(&*ticket.credential);
        let mut shared = Shared::new(state, coordinator, ticket.pin, String::new(), Some(id.clone()));
        shared.check_schema()?;
        let refused = |why: &str| {
            Error::new(Exit::Authentication, why)
                .hint("make a new token at another host: `thalweg host invite NAME --token-file F`")
        };
        let book = LimitedBook::new(&shared.records);
        let found = book.find_by_credential(&*ticket.credential)?;
        let host = shared.book().of_ticket(&id)?;
        let (Some(limited), Some(host)) = (found, host) else {
            return Err(refused("the token is not valid any more, or its host was removed"));
        };
        shared.name = host.name;
        if !book.use_once(&limited, own)? || !shared.book().register(&shared.name, own)? {
            return Err(refused("the token was used by another host"));
        }
        shared.note()?;
        Ok(shared)
    }

    fn check_schema(&self) -> Result<()> {
        match self.records.get(META, FILE_BYTES_MAX, false)?.as_deref() {
            Some(SCHEMA) => Ok(()),
            Some(_) => Err(Error::new(Exit::Version, "the hosts of this endpoint keep their records in a newer form")
                .hint("update this program")),
            None => Err(Error::new(Exit::Usage, "etcd knows nothing of this endpoint")
                .hint("check `urls` in [cluster]: all hosts name the same etcd")),
        }
    }

    /// Puts the clients and tickets that this host has where all hosts see them; returns whether a client lives by this host's
    /// credential.
    fn import(&self, credential: &str) -> Result<bool> {
        let own = Records::from(self.state.as_path());
        let mut is_lived_by = false;
        let revoked = RevokedBook::new(&own);
        for directory in ["tickets", "struck"] {
            for name in own.names(directory, enrolment::CLIENTS_MAX)?.iter().filter(|name| !name.starts_with('.')) {
                let key = format!("{directory}/{name}");
                let read = own.get(&key, cluster::coordinator::VALUE_BYTES_MAX as u64, false)?;
                read.map_or(Ok(false), |bytes| self.records.add(&key, &bytes))?;
            }
        }
        for client in enrolment::list(&own)? {
            // What is without limits here lives by the ticket that stands for this host's credential there.
            let by = client
                .ticket
                .clone()
                .or(client.credential.clone().filter(|id| !revoked.holds(Some(id)).unwrap_or(true)));
            let (Some(ticket), Some(pin)) = (by, Pin::from_hex(&client.pin)) else { continue };
            is_lived_by |= ticket == credential;
            let client = Enrolment { ticket: Some(ticket), credential: None, ..client };
            self.records.add(&enrolment::key(pin), client.to_text().as_bytes())?;
        }
        Ok(is_lived_by)
    }

    fn note(&self) -> Result<()> {
        let History { cluster, revision, .. } = self.coordinator.history();
        let (endpoint, name, token) = (self.endpoint.to_string(), self.name.clone(), self.token.clone());
        let text = serde_json::to_vec(&Note { endpoint, name, token, cluster, revision });
        let text = text.map_err(|e| Error::new(Exit::Fatal, format!("write {FILE}: {e}")))?;
        let path = self.state.join(FILE);
        private_file::write(&path, &text, Existing::Replace).map_err(|e| Error::of_file("write", &path, e))
    }

    pub fn book(&self) -> HostBook {
        HostBook::shared(&self.state, self.records.clone(), self.endpoint, &self.name)
    }

    pub fn issue(&self) -> Issue {
        Issue::of(&self.state, self.records.clone())
    }

    pub(crate) fn grant(&self, seconds: u64) -> Result<Lease> {
        self.coordinator.grant(seconds).map_err(|fault| of_fault(&fault))
    }

    pub(crate) fn renew(&self, lease: Lease) -> Result<bool> {
        self.coordinator.renew(lease).map_err(|fault| of_fault(&fault))
    }

    pub(crate) fn end(&self, lease: Lease) -> Result<()> {
        self.coordinator.end(lease).map_err(|fault| of_fault(&fault))
    }

    /// What tells one endpoint's jobs from another's, whichever of its hosts is told to do them.
    pub fn endpoint(&self) -> Pin {
        self.endpoint
    }

    /// Has the ticket that this host hands out let clients in at all hosts; false where it was revoked, or closed with the host that this
    /// one was. One that is no host hands out nothing.
    pub(crate) fn publish(&self, credential: &[u8; CREDENTIAL_BYTES], own: Pin) -> Result<bool> {
        let (id, tickets) = (id_of_credential(credential), LimitedBook::new(&self.records));
        let is_host = || self.book().get(&self.name).map(|host| host.is_some_and(|host| host.pin == Some(own)));
        if !is_host()? {
            return Ok(true);
        }
        if RevokedBook::new(&self.records).holds(Some(&id))? || tickets.is_closed(&id)? {
            // The next start makes another one.
            RevokedBook::new(self.state.as_path()).mark(&id)?;
            return Ok(false);
        }
        self.records.put(&handed_key(&self.name), id.as_bytes())?;
        tickets.keep(Limits::none(), credential)?;
        // Of this and a removal one sees the other.
        if !is_host()? {
            tickets.close(&id)?;
        }
        Ok(true)
    }

    /// Lets newcomers in for all hosts.
    pub(crate) fn enroller(&self) -> Box<Enroller> {
        let book = ClientBook::shared(&self.records);
        Box::new(move |pin, credential, name| book.authorise(pin, credential, || name.clone()))
    }
}

/// The coordinator, asked by one host.
pub(crate) struct Coordinated {
    shared: Shared,
    own: Pin,
    addresses: Vec<String>,
    /// To be published, where it is handed out.
    credential: Option<Zeroizing<[u8; CREDENTIAL_BYTES]>>,
    lease: Option<Lease>,
    /// What is said of this host under the lease.
    said: Option<Vec<u8>>,
    /// The turns of history that were noticed.
    turns: u64,
    /// It was one when its record was last read; nothing until that was.
    was_host: Option<bool>,
    /// What it says was not taken when it was last said.
    is_mute: bool,
    /// It has told of all hosts.
    has_told: bool,
}

impl Coordinated {
    pub fn new(
        shared: Shared,
        own: Pin,
        addresses: &[String],
        credential: Option<Zeroizing<[u8; CREDENTIAL_BYTES]>>,
    ) -> Coordinated {
        Coordinated {
            shared,
            own,
            addresses: addresses.to_vec(),
            credential,
            lease: None,
            said: None,
            turns: 0,
            was_host: None,
            is_mute: false,
            has_told: false,
        }
    }

    /// Makes sure that this is a host; returns whether it is to finish what it has.
    fn register(&mut self) -> Result<bool> {
        let (book, name) = (self.shared.book(), self.shared.name.clone());
        let mut found = book.get(&name)?;
        let turns = self.shared.coordinator.history().turns;
        if turns != self.turns {
            let may_return = match self.was_host {
                Some(was_host) => was_host,
                None => self.shared.records.get(META, FILE_BYTES_MAX, false)?.is_none(),
            };
            if may_return {
                warn!("etcd tells another history than before, as after it was restored: this host registers again");
                self.shared.records.add(META, SCHEMA)?;
                // It may have been invited already then.
                if found.as_ref().is_none_or(|host| host.pin.is_none()) && book.register(&name, self.own)? {
                    found = book.get(&name)?;
                }
            }
            (self.lease, self.said) = (None, None);
            self.shared.note()?;
        }
        self.turns = turns;
        let found = found.filter(|host| host.pin == Some(self.own));
        self.was_host = Some(found.is_some());
        found.map(|host| host.is_draining).ok_or_else(|| {
            Error::new(Exit::Authentication, format!("{name} is no host of this endpoint any more"))
                .hint("make a token at another host, and start this one with --join")
        })
    }

    /// Says where this host is, under a lease that lasts as long as it is.
    fn be_there(&mut self, jobs: u32) -> Result<()> {
        let lease = match self.lease {
            Some(lease) if self.shared.renew(lease)? => lease,
            _ => {
                self.said = None;
                self.shared.grant(LEASE_SECONDS)?
            }
        };
        self.lease = Some(lease);
        let here = Seen::here(self.own, &self.addresses, jobs).to_bytes()?;
        if self.said.as_ref() != Some(&here) {
            let is_said = self.shared.records.put_leased(&seen_key(&self.shared.name), &here, lease)?;
            self.said = is_said.then_some(here);
            self.lease = is_said.then_some(lease);
        }
        Ok(())
    }

    /// Says what all hosts are to know of this one.
    fn say(&mut self, jobs: u32) -> Result<()> {
        self.be_there(jobs)?;
        if let Some(credential) = self.credential.take()
            && !self
                .shared
                .publish(&credential, self.own)
                .inspect_err(|_| self.credential = Some(credential.clone()))?
        {
            warn!("the ticket that this host handed out was revoked: the next start makes another one");
        }
        Ok(())
    }

    /// What these clients may at this moment.
    fn clients(&self, pins: &[Pin]) -> Result<Vec<(Pin, Vouched)>> {
        let keys = pins.iter().flat_map(|pin| [enrolment::key(*pin), removed::key(*pin)]).collect();
        let records = self.shared.records.reading(keys)?;
        let (mut tickets, mut known) = (Vec::new(), Vec::new());
        for pin in pins {
            // Of one without a record nothing more is asked.
            let found = records.get(&enrolment::key(*pin), enrolment::FILE_BYTES_MAX, false)?;
            let Some(bytes) = found else { continue };
            known.push(*pin);
            let client = enrolment::parse("a client", &bytes, *pin).ok();
            let by = client.into_iter().flat_map(|client| [client.ticket, client.manages_by]).flatten();
            tickets.extend(by.map(|id| limited::key(&id)));
        }
        tickets.sort();
        tickets.dedup();
        let book = ClientBook::shared(&records.reading(tickets)?);
        let vouched = |pin: &Pin| {
            let (enrolment, rights) = book.authorise(*pin, &[], String::new).ok()?;
            Some((*pin, Vouched { enrolment, rights }))
        };
        Ok(known.iter().filter_map(vouched).collect())
    }
}

impl Head for Coordinated {
    fn attend(&mut self, jobs: u32, pins: &[Pin]) -> Result<Heard> {
        let is_draining = self.register().map_err(passing)?;
        let clients = self.clients(pins).map_err(passing)?;
        let told = self.say(jobs).and_then(|()| self.shared.book().told(self.own));
        if let Some(e) = told.as_ref().err().filter(|_| !self.is_mute) {
            warn!(error = %e, "etcd tells who clients are, and does not take what this host says of itself");
        }
        self.is_mute = told.is_err();
        // One that could say nothing yet tells what it reads: later it keeps what it told.
        let read = || if self.has_told { None } else { self.shared.book().told(self.own).ok() };
        let hosts = told.ok().or_else(read);
        self.has_told |= hosts.is_some();
        Ok(Heard { is_draining, clients, hosts })
    }
}

/// That etcd refuses to tell is no word about this host: its password may have been changed.
fn passing(e: Error) -> Error {
    if e.exit == Exit::Refused { Error { exit: Exit::Temporary, ..e } } else { e }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::watched::Watched;

    #[test]
    fn a_host_that_was_removed_does_not_return_when_the_coordinator_has_lost_everything() {
        let (state, watched) = (tempfile::tempdir().unwrap(), Arc::new(Watched::default()));
        let coordinator: Arc<dyn Coordinator> = watched.clone();
        let (nothing, identity) = (watched.memory.snapshot(), Identity::generate().unwrap());
        let shared = Shared::begin(state.path(), &coordinator, None, &identity, "h1").unwrap();
        let mut host = Coordinated::new(shared.clone(), identity.pin(), &[], None);
        // At its start, and while it runs.
        for _ in 0..2 {
            watched.memory.restore(&nothing);
            host.attend(0, &[]).unwrap();
            assert_eq!(shared.book().list().unwrap().len(), 1);
        }
        shared.book().remove("h1").unwrap();
        for _ in 0..2 {
            assert_eq!(host.attend(0, &[]).err().unwrap().exit, Exit::Authentication);
            assert_eq!(shared.book().list().unwrap(), []);
            watched.memory.restore(&nothing);
        }
    }

    #[test]
    fn a_host_that_is_removed_while_it_hands_out_its_ticket_lets_in_nobody_new() {
        for is_removed_meanwhile in [true, false] {
            let (state, watched) = (tempfile::tempdir().unwrap(), Arc::new(Watched::default()));
            let coordinator: Arc<dyn Coordinator> = watched.clone();
            let identity = Identity::generate().unwrap();
            let shared = Shared::begin(state.path(), &coordinator, None, &identity, "h1").unwrap();
            let (credential, own) = ([7_u8; CREDENTIAL_BYTES], identity.pin());
            let (publishing, removing) = (shared.clone(), shared.clone());
            let publish = move || publishing.publish(&credential, own).map(drop).unwrap();
            let remove = move || removing.book().remove("h1").unwrap();
            // Whoever is first has looked, and has not written yet.
            if is_removed_meanwhile {
                watched.before("handed/h1", remove);
                publish();
            } else {
                watched.before("hosts/h1.toml", publish);
                remove();
            }
            let tickets = LimitedBook::new(&shared.records);
            assert!(tickets.is_closed(&id_of_credential(&credential)).unwrap(), "{is_removed_meanwhile}");
        }
    }
}
