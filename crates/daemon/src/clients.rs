//! The clients that an endpoint knows, how it comes to know one, and what each of them may.
//!
//! One file each, `clients/PIN.toml` below the state directory, read again for every session and every job, and every few
//! seconds for those that run: removing a file shuts its client out. Where hosts share a coordinator, the same record is there
//! (`records`), and what this host alone has of clients counts for nothing; nor does it where another host is the head.
//!
//! Invariants:
//! - A key gets in by being enrolled, or by presenting a credential that enrols it: the endpoint's own, which allows
//!   everything, or that of a limited ticket.
//! - A client enrolled with a limited ticket may what that ticket says at the moment it is asked; nothing without it.
//! - A ticket never takes rights away from a client that has them without limit, be it by a ticket that has none. But a host lives by
//!   its token where there is a head.
//! - A client that was removed by its identity is enrolled by no ticket that was there at that time.
//! - Revoking leaves a mark (or removes the ticket's file) and then looks for clients; enrolling writes the client and then looks
//!   for marks. So one of the two sees the other. Looking up rights checks the marks again, in case a crash came between: an
//!   enrolment is worth what the credential that made it is worth.
//! - A wrong, an empty and a missing credential get the same answer, and the comparison takes the same time.
//! - The credential outlives restarts and is in no `Debug` output.

use crate::census::{CLIENTS_OF_TICKET_MAX, Census, Crowded};
use crate::enrolment::{self, CLIENTS_MAX, Enrolment, FILE_BYTES_MAX, parse, visit};
use crate::error::{Error, Result, shown};
use crate::host::rights::Rights;
use crate::hosts::HostBook;
use crate::limited::{Limited, LimitedBook, Limits, SERVE_TICKET, id_of_credential};
use crate::private_file::{self, Existing};
use crate::records::Records;
use crate::removed::RemovedClients;
use crate::revoked::RevokedBook;
use crate::{time, trust};
use model::{Class, Exit, Pin, mutant};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};
use tracing::{error, info};
use wire::{CloseCode, Refusal};
use zeroize::Zeroizing;

pub const CREDENTIAL_BYTES: usize = 32;
const NOT_ENROLLED: &str = "this client is not enrolled here, and has no valid ticket of this endpoint";
const REMOVED: &str = "this client was revoked here; only a ticket made after that lets it in again";

const REVOKED: &str = "the ticket with which this client enrolled was revoked; what is verified is kept";
pub(crate) type Refused<T> = std::result::Result<T, Refusal>;

/// What a credential opens.
enum Admission {
    Unlimited,
    Limited(Limited),
}

/// A client that somebody else knows, and what it may.
#[derive(Clone, Debug)]
pub struct Vouched {
    pub enrolment: Enrolment,
    pub rights: Rights,
}

/// Who knows clients that are not enrolled here.
pub trait Surety: Send + Sync {
    /// What is known of a client, asked for if nothing is: that may take seconds.
    ///
    /// # Errors
    /// `Internal` where nobody answers: nobody can tell then, and it may be a client.
    fn vouch(&self, pin: Pin) -> Refused<Option<Vouched>>;

    /// The same without asking.
    fn knows(&self, pin: Pin) -> Option<Vouched>;

    /// Lets a newcomer in by what it brings, where that is not for this host alone to do.
    fn enrol(&self, _pin: Pin, _credential: &[u8], _name: &dyn Fn() -> String) -> Option<Refused<(Enrolment, Rights)>> {
        None
    }
}

pub struct ClientBook {
    surety: OnceLock<Arc<dyn Surety>>,
    /// Nobody counts that only this host knows.
    is_elsewhere: bool,
    records: Records,
    credential_path: PathBuf,
    credential: Zeroizing<[u8; CREDENTIAL_BYTES]>,
    tickets: LimitedBook,
    removed: RemovedClients,
    revoked: RevokedBook,
    /// Held while one client is enrolled: uses are counted one after the other. As long as two small files take to write,
    /// or, now and then, all files of clients to read.
    census: Mutex<Census>,
    #[cfg(test)]
    hook: Mutex<Option<races::Hook>>,
}

/// Where an enrolment stands; tests have something happen there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Everything was looked at, nothing is written yet.
    Admitted,
    Written,
}

impl ClientBook {
    /// Opens the book in a state directory, and makes the credential on first use.
    pub fn open(state_dir: &Path) -> Result<ClientBook> {
        trust::make_private_directory(&state_dir.join("clients"))?;
        let credential_path = state_dir.join("credential");
        let revoked = RevokedBook::new(state_dir);
        let mut own = credential(&credential_path)?;
        // A revocation was broken off between the mark and the credential's end, or is under way.
        if revoked.holds(Some(&id_of_credential(&own[..])))? {
            std::fs::remove_file(&credential_path)
                .or_else(only_missing)
                .map_err(|e| Error::of_file("remove", &credential_path, e))?;
            own = credential(&credential_path)?;
        }
        Ok(ClientBook::with(state_dir.into(), own, credential_path))
    }

    /// The clients that several hosts have in common. No credential is without limits there.
    pub fn shared(records: &Records) -> ClientBook {
        ClientBook::with(records.clone(), Zeroizing::new(net::random_bytes()), PathBuf::new())
    }

    fn with(records: Records, credential: Zeroizing<[u8; CREDENTIAL_BYTES]>, credential_path: PathBuf) -> ClientBook {
        ClientBook {
            credential,
            credential_path,
            surety: OnceLock::new(),
            is_elsewhere: false,
            tickets: LimitedBook::new(&records),
            removed: RemovedClients::new(&records),
            revoked: RevokedBook::new(&records),
            records,
            census: Mutex::default(),
            #[cfg(test)]
            hook: Mutex::default(),
        }
    }

    /// Has nobody count that only this host knows: its clients are kept where all hosts see them, or by the head.
    pub fn elsewhere(self) -> ClientBook {
        ClientBook { is_elsewhere: true, ..self }
    }

    /// Has somebody vouch for clients that are not enrolled here.
    pub fn rely_on(&self, surety: Arc<dyn Surety>) {
        let _ = self.surety.set(surety);
    }

    fn vouched(&self, pin: Pin) -> Refused<Option<Vouched>> {
        self.surety.get().map_or(Ok(None), |surety| surety.vouch(pin))
    }

    /// What tickets without limits carry. Secret.
    pub fn credential(&self) -> Zeroizing<[u8; CREDENTIAL_BYTES]> {
        self.credential.clone()
    }

    /// Whether this key is enrolled: one look at a directory, no reading.
    pub fn knows(&self, pin: Pin) -> bool {
        let is_here = || self.records.has(&enrolment::key(pin)).unwrap_or(false);
        (!self.is_elsewhere && is_here()) || self.surety.get().is_some_and(|surety| surety.knows(pin).is_some())
    }

    /// The account of an enrolled key: the ticket that it lives by.
    pub fn account(&self, pin: Pin) -> Option<String> {
        let known = self.find(pin).ok()?;
        let enrolment = known.or_else(|| Some(self.surety.get()?.knows(pin)?.enrolment))?;
        Some(enrolment.ticket.unwrap_or_else(|| SERVE_TICKET.to_owned()))
    }

    /// Lets a peer in, enrolling it where its credential allows that. `name` says what to call a newcomer.
    pub fn authorise(&self, pin: Pin, credential: &[u8], name: impl Fn() -> String) -> Refused<(Enrolment, Rights)> {
        if !credential.is_empty()
            && let Some(enrolled) = self.surety.get().and_then(|surety| surety.enrol(pin, credential, &name))
        {
            return enrolled;
        }
        let enrolment = match self.find(pin)? {
            Some(known) if credential.is_empty() => known,
            // One that may do everything else still gains by a ticket to manage with, or to be a host by.
            Some(known)
                if known.ticket.is_none() && !self.is_for_more(credential)? && self.rights_of(pin, &known).is_ok() =>
            {
                known
            }
            Some(known) => self.renew(pin, known, credential)?,
            None => {
                if credential.is_empty()
                    && let Some(Vouched { enrolment, rights }) = self.vouched(pin)?
                {
                    return Ok((enrolment, rights));
                }
                let admission = self.admission(credential)?.ok_or_else(not_enrolled)?;
                let newcomer = self.newcomer(pin, name(), &admission);
                self.enrol(pin, newcomer, &admission, None)?
            }
        };
        let rights = self.rights_of(pin, &enrolment)?;
        Ok((enrolment, rights))
    }

    /// When the ticket ends by which a client is here; nothing where it does not end.
    pub fn expires(&self, pin: Pin) -> Option<SystemTime> {
        let id = self.find(pin).ok()??.ticket?;
        self.ticket(&id).ok()?.limits.expires
    }

    /// What a client may now: asked for every job, and again while it runs.
    pub fn rights(&self, pin: Pin) -> Refused<Rights> {
        let Some(enrolment) = self.find(pin)? else {
            if let Some(vouched) = self.vouched(pin)? {
                return Ok(vouched.rights);
            }
            let text = "this client is no longer enrolled here; what is verified is kept";
            return Err(Refusal::new(CloseCode::Authentication, text));
        };
        self.rights_of(pin, &enrolment)
    }

    fn rights_of(&self, pin: Pin, enrolment: &Enrolment) -> Refused<Rights> {
        let Some(id) = &enrolment.ticket else {
            let by = enrolment.credential.as_deref();
            if !mutant::is_on("enrol-after-revocation") && self.revoked.holds(by).map_err(|e| unusable(&e))? {
                return Err(Refusal::new(CloseCode::Authentication, REVOKED));
            }
            self.check_removed(pin, by.unwrap_or(&id_of_credential(&self.credential[..])))?;
            return Ok(Rights {
                may_read: true,
                may_write: enrolment.may_write,
                is_drop_box: false,
                reader: Some(pin),
                scope: Vec::new(),
                class_max: Class::High,
                may_manage: enrolment.manages_by.as_ref().is_some_and(|id| self.may_manage(pin, id)),
            });
        };
        let limits = self.limits(pin, id)?;
        let may_write = limits.may_write && enrolment.may_write;
        let may_read = limits.may_read;
        Ok(Rights {
            may_read,
            may_write,
            is_drop_box: !may_read,
            reader: may_read.then_some(pin),
            scope: limits.scope,
            class_max: limits.class_max,
            may_manage: limits.may_manage || enrolment.manages_by.as_ref().is_some_and(|id| self.may_manage(pin, id)),
        })
    }

    fn may_manage(&self, pin: Pin, ticket: &str) -> bool {
        self.limits(pin, ticket).is_ok_and(|limits| limits.may_manage)
    }

    /// What a ticket says that holds now, for this client.
    fn limits(&self, pin: Pin, ticket: &str) -> Refused<Limits> {
        let limits = self.ticket(ticket)?.limits;
        self.check_removed(pin, ticket)?;
        Ok(limits)
    }

    /// A ticket that holds now.
    fn ticket(&self, id: &str) -> Refused<Limited> {
        let ticket = self.tickets.get(id).map_err(|e| unusable(&e))?.ok_or_else(|| {
            let text = format!("ticket {id}, with which this client enrolled, was revoked; what is verified is kept");
            Refusal::new(CloseCode::Authentication, &text)
        })?;
        check_time(&ticket)?;
        Ok(ticket)
    }

    /// A client brings another credential than it lives by: it lives by that from here on; one without limits keeps what it has,
    /// and manages rates by it besides, unless it is the token of a host. One that is no better than none changes nothing as long as what
    /// the client lives by holds.
    fn renew(&self, pin: Pin, known: Enrolment, credential: &[u8]) -> Refused<Enrolment> {
        let Some(admission) = self.admission(credential)? else { return Ok(known) };
        let is_unlimited = self.is_unlimited(pin, &known)?;
        let renewed = match &admission {
            Admission::Limited(ticket) if is_unlimited && ticket.limits.may_manage => {
                Enrolment { manages_by: Some(ticket.id.clone()), ..known.clone() }
            }
            Admission::Limited(ticket)
                if is_unlimited && ticket.limits != Limits::none() && !self.is_token(ticket)? =>
            {
                return Ok(known);
            }
            _ => Enrolment {
                may_write: known.may_write,
                manages_by: known.manages_by.clone().filter(|_| is_unlimited),
                ..self.newcomer(pin, known.name.clone(), &admission)
            },
        };
        if (&renewed.ticket, &renewed.credential, &renewed.manages_by)
            == (&known.ticket, &known.credential, &known.manages_by)
        {
            return Ok(known);
        }
        match self.enrol(pin, renewed, &admission, Some(&known)) {
            // Read again: it may have been removed meanwhile.
            Err(refusal) => self.find(pin)?.filter(|still| self.rights_of(pin, still).is_ok()).ok_or(refusal),
            enrolled => enrolled,
        }
    }

    /// Whether what a client lives by holds and has no limits: the credential of `serve`, or a ticket that allows as much.
    fn is_unlimited(&self, pin: Pin, known: &Enrolment) -> Refused<bool> {
        // What cannot be read at this moment says nothing.
        let sure = |e: Refusal| if e.code == CloseCode::Authentication { Ok(false) } else { Err(e) };
        let has_none = match &known.ticket {
            Some(id) => self.ticket(id).map(|ticket| ticket.limits == Limits::none()).or_else(sure)?,
            None => true,
        };
        Ok(has_none && self.rights_of(pin, known).map(|_| true).or_else(sure)?)
    }

    /// Whether a credential is for more than moving data.
    fn is_for_more(&self, credential: &[u8]) -> Refused<bool> {
        match self.tickets.find_by_credential(credential).map_err(|e| unusable(&e))? {
            Some(ticket) => Ok(ticket.limits.may_manage || self.is_token(&ticket)?),
            None => Ok(false),
        }
    }

    /// Where there is a head, it knows a host by its token, and the host lives by that.
    fn is_token(&self, ticket: &Limited) -> Refused<bool> {
        let is_token = || HostBook::is_token(&self.records, &ticket.id).map_err(|e| unusable(&e));
        Ok(!self.records.is_shared() && is_token()?)
    }

    /// What the credential opens; `None` for one that opens nothing.
    fn admission(&self, credential: &[u8]) -> Refused<Option<Admission>> {
        if self.is_elsewhere {
            return Ok(None);
        }
        // Digests have one length, so that the time of the comparison says nothing of the credential's.
        let is_own = net::constant_time_eq(&net::sha256(credential), &net::sha256(&self.credential[..]));
        if is_own {
            return Ok(self.opens_all()?.then_some(Admission::Unlimited));
        }
        match self.tickets.find_by_credential(credential).map_err(|e| unusable(&e))? {
            Some(ticket) if self.is_closed(&ticket)? => Ok(None),
            ticket => Ok(ticket.map(Admission::Limited)),
        }
    }

    fn is_closed(&self, ticket: &Limited) -> Refused<bool> {
        self.tickets.is_closed(&ticket.id).map_err(|e| unusable(&e))
    }

    /// Whether the endpoint's own credential still lets clients in. Its file may have been taken away, to revoke what was
    /// handed out.
    fn opens_all(&self) -> Refused<bool> {
        let on_file = private_file::read(&self.credential_path, CREDENTIAL_BYTES as u64, true);
        let on_file = on_file.map_err(|e| unusable(&e))?.map(Zeroizing::new);
        if on_file.is_none_or(|bytes| bytes[..] != self.credential[..]) {
            return Ok(false);
        }
        let is_revoked = self.revoked.holds(Some(&id_of_credential(&self.credential[..]))).map_err(|e| unusable(&e))?;
        Ok(!is_revoked)
    }

    /// Writes a client down, in place of what is known of it.
    fn enrol(
        &self,
        pin: Pin,
        enrolment: Enrolment,
        admission: &Admission,
        known: Option<&Enrolment>,
    ) -> Refused<Enrolment> {
        let mut census = self.census.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_admission(pin, admission)?;
        self.check_room(&mut census, admission)?;
        if let Admission::Limited(ticket) = admission
            && !self.tickets.use_once(ticket, pin).map_err(|e| unusable(&e))?
        {
            let text = format!("ticket {} has been used as often as it may be", ticket.id);
            return Err(Refusal::new(CloseCode::Authentication, &text));
        }
        self.reached(Step::Admitted);
        let existing = if known.is_some() { Existing::Replace } else { Existing::Keep };
        let text = enrolment.to_text();
        let written = match existing {
            Existing::Keep => self.records.add(&enrolment::key(pin), text.as_bytes()),
            Existing::Replace => self.records.put(&enrolment::key(pin), text.as_bytes()).map(|()| true),
        };
        match written {
            Ok(true) => {
                census.add(&enrolment.ticket, existing == Existing::Keep);
                self.reached(Step::Written);
                self.check_admission(pin, admission).inspect_err(|_| self.take_back(pin, known))?;
                info!(%pin, client = enrolment.name, ticket = enrolment.ticket, "client enrolled");
                Ok(enrolment)
            }
            // Another connection of the same client was faster.
            Ok(false) => self.find(pin)?.ok_or_else(unreadable),
            Err(e) => {
                error!(%pin, error = %e, "a client cannot be enrolled");
                Err(Refusal::new(CloseCode::Internal, "the endpoint cannot record this client; see its log"))
            }
        }
    }

    /// Whether the credential lets this client in at this moment: asked before it is written down, and again after.
    fn check_admission(&self, pin: Pin, admission: &Admission) -> Refused<()> {
        match admission {
            Admission::Unlimited if !mutant::is_on("enrol-after-revocation") && !self.opens_all()? => {
                Err(not_enrolled())
            }
            Admission::Unlimited => self.check_removed(pin, &id_of_credential(&self.credential[..])),
            Admission::Limited(ticket) if self.is_closed(ticket)? => Err(not_enrolled()),
            Admission::Limited(ticket) => {
                self.ticket(&ticket.id).and_then(|ticket| self.check_removed(pin, &ticket.id))
            }
        }
    }

    fn check_removed(&self, pin: Pin, ticket: &str) -> Refused<()> {
        match self.removed.forbids(pin, ticket) {
            Ok(false) => Ok(()),
            Ok(true) => Err(Refusal::new(CloseCode::Authentication, REMOVED)),
            Err(e) => Err(unusable(&e)),
        }
    }

    /// Undoes an enrolment whose credential ended while it was written: what the client lived by before holds again, should
    /// it hold still.
    fn take_back(&self, pin: Pin, known: Option<&Enrolment>) {
        let holds = |known: &Enrolment| self.rights_of(pin, known).is_ok();
        let write = |known: &Enrolment| self.records.put(&enrolment::key(pin), known.to_text().as_bytes()).is_ok();
        if !known.is_some_and(|known| holds(known) && write(known) && holds(known)) {
            self.remove(pin);
        }
    }

    fn remove(&self, pin: Pin) {
        if let Err(e) = self.records.remove(&enrolment::key(pin)) {
            error!(%pin, error = %e, "a revoked client cannot be removed; it has no rights all the same");
        }
    }

    /// Whether one more client may live by what it brought.
    fn check_room(&self, census: &mut Census, admission: &Admission) -> Refused<()> {
        let (ticket, of_ticket_max) = match admission {
            Admission::Unlimited => (None, CLIENTS_OF_TICKET_MAX),
            // Where its maker named a number, uses are counted instead.
            Admission::Limited(ticket) => {
                let counted = ticket.limits.uses_max.map_or(CLIENTS_OF_TICKET_MAX, |_| usize::MAX);
                (Some(ticket.id.clone()), counted)
            }
        };
        let see_all = |see: &mut dyn FnMut(Option<Enrolment>)| {
            let visited = visit(&self.records, &mut |client| {
                see(client.ok());
                Ok(())
            });
            if let Err(e) = visited {
                error!(error = %e, "the clients cannot be counted");
            }
        };
        census.check(&ticket, of_ticket_max, Instant::now(), see_all).map_err(|crowded| match crowded {
            Crowded::Endpoint => {
                error!(clients = CLIENTS_MAX, "no more clients can be enrolled");
                Refusal::new(CloseCode::Busy, "the endpoint has as many clients as it allows")
            }
            Crowded::Ticket => {
                let ticket = ticket.as_deref().unwrap_or(SERVE_TICKET);
                let text =
                    format!("{CLIENTS_OF_TICKET_MAX} clients are enrolled with ticket {ticket}, as many as it allows");
                Refusal::new(CloseCode::Authentication, &text)
            }
        })
    }

    fn find(&self, pin: Pin) -> Refused<Option<Enrolment>> {
        if self.is_elsewhere {
            return Ok(None);
        }
        let key = enrolment::key(pin);
        let read = self.records.get(&key, FILE_BYTES_MAX, false);
        read.and_then(|bytes| bytes.map(|bytes| parse(&self.records.named(&key), &bytes, pin)).transpose()).map_err(
            |e| {
                error!(%pin, error = %e, "the file of a client cannot be used");
                unreadable()
            },
        )
    }

    fn newcomer(&self, pin: Pin, name: String, admission: &Admission) -> Enrolment {
        let (ticket, credential) = match admission {
            Admission::Unlimited => (None, Some(id_of_credential(&self.credential[..]))),
            Admission::Limited(ticket) => (Some(ticket.id.clone()), None),
        };
        let enrolled = time::rfc3339(SystemTime::now());
        Enrolment { pin: pin.to_string(), name, enrolled, may_write: true, ticket, credential, manages_by: None }
    }

    #[cfg(test)]
    fn path(&self, pin: Pin) -> PathBuf {
        self.records.named(&enrolment::key(pin)).into()
    }

    fn reached(&self, step: Step) {
        #[cfg(test)]
        if let Some(hook) = &*self.hook.lock().unwrap() {
            hook(step);
        }
        let _ = step;
    }
}

fn check_time(ticket: &Limited) -> Refused<()> {
    match ticket.expires_text() {
        Some(expires) if ticket.is_expired(time::now_or_later()) => {
            let now = time::rfc3339(time::now_or_later());
            let text = format!(
                "ticket {} expired at {expires}, and the endpoint's clock says {now}; what is verified is kept",
                ticket.id
            );
            Err(Refusal::new(CloseCode::Authentication, &text))
        }
        _ => Ok(()),
    }
}

fn not_enrolled() -> Refusal {
    Refusal::new(CloseCode::Authentication, NOT_ENROLLED)
}

fn unusable(e: &Error) -> Refusal {
    error!(error = %e, "the records of tickets cannot be used");
    Refusal::new(CloseCode::Internal, "the endpoint cannot read its tickets; see its log")
}

fn unreadable() -> Refusal {
    Refusal::new(CloseCode::Internal, "the endpoint cannot read what it knows of this client; see its log")
}

/// A missing file need not be removed.
fn only_missing(e: io::Error) -> io::Result<()> {
    if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) }
}

/// Loads the credential, or makes it. Two processes that start at once end up with the same one.
fn credential(path: &Path) -> Result<Zeroizing<[u8; CREDENTIAL_BYTES]>> {
    let load = || -> Result<Option<Zeroizing<[u8; CREDENTIAL_BYTES]>>> {
        let Some(bytes) = private_file::read(path, CREDENTIAL_BYTES as u64, true)?.map(Zeroizing::new) else {
            return Ok(None);
        };
        let whole = <[u8; CREDENTIAL_BYTES]>::try_from(&bytes[..]).map_err(|_| {
            Error::new(Exit::Failed, format!("{} is not a whole credential", shown(path)))
                .hint("move it elsewhere: a new one is made, and tickets made before no longer enrol clients")
        })?;
        Ok(Some(whole.into()))
    };
    if let Some(credential) = load()? {
        return Ok(credential);
    }
    let fresh = Zeroizing::new(net::random_bytes());
    match private_file::write(path, &fresh[..], Existing::Keep) {
        Ok(()) => Ok(fresh),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            load()?.ok_or_else(|| Error::of_file("read", path, io::ErrorKind::NotFound.into()))
        }
        Err(e) => Err(Error::of_file("write", path, e)),
    }
}

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;
