//! What this endpoint does in somebody's name, and what others may do here in somebody's name.
//!
//! Invariant: both come down to the rights of a client that is enrolled here, looked up at that moment, and are no more than they.

use super::rights::{Deed, Rights};
use super::{EndpointHost, equipped, generated};
use crate::hand_in::TAKES_NONE;
use crate::orders::Ground;
use crate::warrant;
use model::files::{Question, Record, Tally};
use model::order::{Kind, Role};
use model::synthetic::{is_null, is_synthetic};
use model::{Class, JobId, Location, Pin, TransferOptions, TransferSpec};
use mover::files::{How, NotReached, Reach};
use mover::session::{Grant, Roster};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::open::{OpenSink, OpenSource};
use store::posix::PosixSink;
use store::spool::Spool;
use store::synthetic::NullSink;
use store::{DropBox, Rehearsal, Shelf, Sink};
use wire::handshake::Direction;
use wire::message::{Open, Revoke};
use wire::{CloseCode, Message, Refusal};

impl EndpointHost {
    /// Lets an endpoint in that works in a client's name.
    pub(super) fn authorise_by_warrant(&self, peer: Pin, credential: &[u8]) -> Result<Grant, Refusal> {
        let mandate = Arc::new(warrant::check(credential, peer, self.pin)?);
        let unknown =
            || Refusal::new(CloseCode::Authentication, "the client that gave the warrant is not enrolled here");
        // Whoever gave it may never have been here itself: then it is asked about.
        let account = match self.clients.account(mandate.issuer) {
            Some(account) => account,
            None => {
                let asked = self.clients.rights(mandate.issuer);
                asked.map_err(|refusal| if refusal.code == CloseCode::Authentication { unknown() } else { refusal })?;
                self.clients.account(mandate.issuer).ok_or_else(unknown)?
            }
        };
        let name = format!("{}@warrant-of-{}", &peer.to_string()[..8], &mandate.issuer.to_string()[..8]);
        let mut grant = Grant { pin: peer, name, account, may_write: true, warrant: Some(mandate.clone()) };
        grant.may_write = self.rights(&grant)?.may_write && !self.is_read_only;
        self.guests.note(peer, &grant.account, mandate.warrant.expires);
        self.gate.admit(peer, &grant.account);
        Ok(grant)
    }

    /// What whoever is here may at this moment, by its own enrolment or by that of the client in whose name it is here.
    pub(super) fn rights(&self, grant: &Grant) -> Result<Rights, Refusal> {
        let Some(mandate) = &grant.warrant else { return self.clients.rights(grant.pin) };
        warrant::check_time(mandate)?;
        self.taken_back.check(mandate)?;
        let rights = self.clients.rights(mandate.issuer)?;
        let verbs = mandate.warrant.verbs;
        Ok(Rights { may_read: rights.may_read && verbs.read, may_write: rights.may_write && verbs.write, ..rights })
    }

    /// Whose account a connection is counted in.
    pub fn account(&self, pin: Pin) -> Option<String> {
        self.clients.account(pin).or_else(|| self.guests.account(pin))
    }

    fn may(
        &self,
        owner: Pin,
        (kind, role): (Kind, Role),
        paths: &[Vec<u8>],
        options: &TransferOptions,
    ) -> Result<Rights, Refusal> {
        let rights = self.clients.rights(owner)?;
        let direction = match role {
            Role::Sends => Direction::ServerSends,
            Role::Fetches => Direction::ClientSends,
        };
        for deed in Deed::of_order(kind, direction, paths, options) {
            paths.iter().try_for_each(|path| self.check(&rights, deed, path))?;
        }
        rights.check_class(options.class)?;
        paths.iter().try_for_each(|path| self.check_open(&rights, path))?;
        Ok(rights)
    }

    /// Answers what a client says of jobs, its warrants included.
    pub(super) fn answer_request(&self, grant: &Grant, message: Message) -> Result<(Vec<Message>, u32), Refusal> {
        self.rights(grant)?;
        if let Message::Revoke(revoke) = message {
            // What a ticket's warrants may be is for those who hold the ticket.
            if grant.warrant.is_some() {
                return Err(Refusal::new(CloseCode::Forbidden, "whoever works by a warrant takes none back"));
            }
            return self.revoke(grant, &revoke).map(|()| (Vec::new(), 0));
        }
        if let Message::AskHosts(ask) = &message {
            return self.tell_hosts(grant, ask).map(|hosts| (vec![hosts.into()], 0));
        }
        if let Message::Attend(attend) = &message {
            return self.attended(grant, attend).map(|standing| (vec![standing.into()], 0));
        }
        if let Message::AskTerms(ask) = &message {
            return self.terms(grant, ask).map(|terms| (vec![terms.into()], 0));
        }
        let orders = self.orders.get().ok_or_else(|| {
            Refusal::new(CloseCode::Forbidden, &format!("{TAKES_NONE} (it was started with --no-orders)"))
        })?;
        orders.answer(self, grant, message)
    }

    fn revoke(&self, grant: &Grant, revoke: &Revoke) -> Result<(), Refusal> {
        let id = revoke.warrant_id[..].try_into();
        let id = id.map_err(|_| Refusal::new(CloseCode::Malformed, "a warrant's id that is not 16 bytes long"))?;
        self.taken_back.add(&grant.account, grant.pin, id).map_err(|e| Refusal::new(CloseCode::Internal, &e.message))
    }
}

impl Ground for EndpointHost {
    fn pin(&self) -> Pin {
        self.pin
    }

    fn roster(&self) -> Arc<Roster> {
        self.roster.clone()
    }

    fn waiting_room(&self) -> Option<Arc<Spool>> {
        self.buffer.clone()
    }

    fn class(&self, owner: Pin, asked: Option<Class>) -> Class {
        asked.unwrap_or_else(|| {
            self.clients.rights(owner).map_or(Class::Low, |rights| rights.class_max.min(Class::Normal))
        })
    }

    fn may_order(&self, owner: Pin, kind: Kind, role: Role, spec: &TransferSpec) -> Result<(), Refusal> {
        let paths: Vec<_> = match role {
            Role::Sends => spec.sources.iter().map(|source| source.path().to_vec()).collect(),
            Role::Fetches => vec![spec.destination.path().to_vec()],
        };
        self.may(owner, (kind, role), &paths, &spec.options).map(drop)
    }

    fn may_open(&self, owner: Pin, role: Role, spec: &TransferSpec) -> Result<(), Refusal> {
        if role == Role::Fetches {
            return Ok(());
        }
        let paths: Vec<_> = spec.sources.iter().map(|source| source.path().to_vec()).collect();
        self.open_source(owner, &paths, &spec.options).map(drop)
    }

    fn open_source(&self, owner: Pin, paths: &[Vec<u8>], options: &TransferOptions) -> Result<OpenSource, Refusal> {
        let rights = self.may(owner, (Kind::Copy, Role::Sends), paths, options)?;
        let open = Open { paths: paths.to_vec(), ..Open::default() };
        if paths.iter().any(|path| is_synthetic(path)) {
            return Ok(OpenSource { source: Arc::new(generated(&open)?), is_single: false });
        }
        if self.cache.is_some() || !self.stored.is_empty() {
            return self.elsewhere(&rights, &open, options, &options.selection_at_source());
        }
        let mut source = self.open_sources(&rights, &open)?;
        source.select(options.selection_at_source());
        source.keep(options.fidelity);
        let is_single = source.is_single_object();
        Ok(OpenSource { source: Arc::new(source), is_single })
    }

    fn open_sink(
        &self,
        owner: Pin,
        job: JobId,
        path: &[u8],
        is_single: bool,
        options: &TransferOptions,
    ) -> Result<OpenSink, Refusal> {
        let rights = self.may(owner, (Kind::Copy, Role::Fetches), &[path.to_vec()], options)?;
        if is_null(path) {
            return Ok(OpenSink::new(Arc::new(NullSink), None));
        }
        let open = Open { paths: vec![path.to_vec()], is_single, ..Open::default() };
        if !self.stored.is_empty() {
            return self.open_stored(&rights, job, &open, options);
        }
        if options.is_dry_run {
            let (there, rename_to) = self.look_at_destination(&rights, &open)?;
            let there = there.map(|there| equipped(there, options));
            return Ok(OpenSink::new(Arc::new(Rehearsal::new(there)), rename_to));
        }
        let destination = self.open_destination(&rights, job, &open, options.fsync)?;
        let sink = PosixSink::new(destination.staging_parent, destination.directory, options.chmod);
        let sink: Arc<dyn Sink> = Arc::new(equipped(sink.keep_within(self.bounds(&rights)), options));
        let sink = match destination.tag {
            Some(tag) => Arc::new(DropBox::new(sink, &tag)),
            None => sink,
        };
        Ok(OpenSink::new(sink, destination.rename_to))
    }

    fn answer(
        &self,
        owner: Pin,
        question: &Question,
        is_stopped: store::Stopped<'_>,
        each: &mut dyn FnMut(Record) -> bool,
    ) -> Result<Tally, Refusal> {
        let account = self.clients.account(owner).unwrap_or_default();
        let grant = Grant { pin: owner, name: account.clone(), account, may_write: true, warrant: None };
        let answered = mover::files::answer(question, &InName { host: self, grant: &grant }, is_stopped, each);
        self.record_answer(&grant, question, &answered);
        answered
    }

    fn knows(&self, owner: Pin) -> bool {
        self.clients.rights(owner).err().is_none_or(|refusal| refusal.code != CloseCode::Authentication)
    }

    fn log(&self, owner: Pin, client: &str, has_delivered: bool, fields: &Map<String, Value>) -> bool {
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let more = json!({"attempt": fields.get("attempt"), "role": text("role"), "peer": text("peer_pin"),
            "state": text("state"), "bytes": fields.get("bytes")});
        match (text("state"), fields.get("code").and_then(Value::as_i64)) {
            ("begun", _) => self.events.start("thalweg.order.attempt", text("job"), more),
            (_, code) => self.events.end("thalweg.order.attempt", text("job"), code.unwrap_or(-1) as i32, more),
        }
        if !has_delivered {
            return self.log.write_fruitless(owner, client, "order", fields);
        }
        self.log.write("order", fields);
        true
    }
}

/// This endpoint's files as a client reaches them.
struct InName<'a> {
    host: &'a EndpointHost,
    grant: &'a Grant,
}

impl Reach for InName<'_> {
    fn reach(&self, path: &[u8], how: How) -> Result<Box<dyn Shelf>, NotReached> {
        self.host.reach_file(self.grant, path, how)
    }
}

/// What a job asks of the side that a warrant is for.
pub fn deeds_of(kind: Kind, role: Role, spec: &TransferSpec) -> Vec<Deed> {
    let paths = |locations: &[Location]| locations.iter().map(|location| location.path().to_vec()).collect::<Vec<_>>();
    match role {
        Role::Sends => {
            Deed::of_order(kind, Direction::ClientSends, &paths(std::slice::from_ref(&spec.destination)), &spec.options)
        }
        Role::Fetches => Deed::of_order(kind, Direction::ServerSends, &paths(&spec.sources), &spec.options),
    }
}
