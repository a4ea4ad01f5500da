//! What this endpoint tells of its hosts: to clients who they are, to the hosts what becomes of them and who clients are.
//!
//! Invariant: only a host, let in by a token made for it, learns what clients may; and only of those that it names.
//! Not here: what is kept of hosts (`hosts::book`).

use super::EndpointHost;
use crate::limited::SERVE_TICKET;
use crate::transfer_log::plain_text;
use model::{Pin, mutant};
use mover::session::Grant;
use wire::hosts::{ACTIVE, DRAINING};
use wire::message::{AskHosts, Attend, ClientRecord, Hosts, Standing};
use wire::{CloseCode, Refusal, bounded};

type Refused<T> = std::result::Result<T, Refusal>;

const NO_HOST: &str = "this client is no host of this endpoint: it was not let in by `thalweg host invite`";

const NO_ENGINE: &str =
    "the hosts of this endpoint have [cluster] engine = \"etcd\" in their configuration: give it to the one that joins";

impl EndpointHost {
    pub(super) fn tell_hosts(&self, grant: &Grant, ask: &AskHosts) -> Refused<Hosts> {
        if grant.warrant.is_some() {
            return Err(Refusal::new(CloseCode::Forbidden, "a warrant does not allow asking for hosts"));
        }
        if let Some(hosts) = self.membership.get().map_or(Ok(None), |membership| membership.hosts())? {
            return Ok(Hosts { number: ask.number, hosts });
        }
        let hosts = self.hosts.told(self.pin).map_err(|e| Refusal::new(CloseCode::Internal, bounded(&e.message)))?;
        Ok(Hosts { number: ask.number, hosts })
    }

    pub(super) fn attended(&self, grant: &Grant, attend: &Attend) -> Refused<Standing> {
        if self.hosts.is_shared() {
            return Err(Refusal::new(CloseCode::Forbidden, NO_ENGINE));
        }
        let internal = |e: crate::Error| Refusal::new(CloseCode::Internal, bounded(&e.message));
        let host = match &grant.warrant {
            Some(_) => None,
            None if mutant::is_on("anybody-is-a-host") => self.hosts.list().map_err(internal)?.pop(),
            None => self.hosts.of_ticket(&grant.account).map_err(internal)?,
        };
        let host = host.ok_or_else(|| Refusal::new(CloseCode::Forbidden, NO_HOST))?;
        self.hosts.saw(&host.name, grant.pin, &attend.addresses, attend.jobs).map_err(internal)?;
        let clients = attend.pins.iter().filter_map(|pin| self.client_record(Pin(pin[..].try_into().ok()?))).collect();
        let state = if host.is_draining { DRAINING } else { ACTIVE };
        Ok(Standing { number: attend.number, state, clients })
    }

    /// What a client may at this moment, if it is one.
    fn client_record(&self, pin: Pin) -> Option<ClientRecord> {
        let (enrolment, rights) = self.clients.authorise(pin, &[], String::new).ok()?;
        let account = enrolment.ticket.unwrap_or_else(|| SERVE_TICKET.to_owned());
        Some(ClientRecord {
            pin: pin.0.to_vec(),
            name: bounded(&plain_text(&enrolment.name)).to_owned(),
            account,
            may_read: rights.may_read,
            may_write: rights.may_write && !self.is_read_only,
            path: model::name::join(&rights.scope),
            class_max: rights.class_max as u32,
        })
    }
}
