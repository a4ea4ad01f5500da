//! Which endpoint a host belongs to when it starts: one of its own, one that another host heads, or one whose hosts keep their records
//! together.
//!
//! Not here: what being one of several means (`hosts`).

use crate::clients::ClientBook;
use crate::error::{Error, Result};
use crate::host::EndpointHost;
use crate::hosts::{Attendant, Coordinated, HostBook, Joined, Membership, Shared, is_member};
use crate::limited::id_of_credential;
use crate::revoked::RevokedBook;
use crate::ticket::Ticket;
use cluster::coordinator::Coordinator;
use model::{Exit, Pin};
use net::Identity;
use std::path::Path;
use std::sync::Arc;
use tracing::warn;

/// What an endpoint is started with.
pub struct Asked<'a> {
    pub state: &'a Path,
    /// A token to join with.
    pub join: Option<&'a Path>,
    pub coordinator: Option<&'a Arc<dyn Coordinator>>,
    pub takes_orders: bool,
    /// It writes a ticket.
    pub hands_out: bool,
}

pub enum Belongs {
    Alone,
    ToHead(Joined),
    ToAll { shared: Shared, hands_out: bool },
}

impl Belongs {
    /// With the clients, as this host decides on them. Called before the process is confined: it may look names up.
    pub fn of(asked: &Asked<'_>, identity: &Identity, name: &str) -> Result<(Belongs, ClientBook)> {
        let belongs = Belongs::looked_up(asked, identity, name)?;
        let clients = belongs.clients(asked.state, identity.pin())?;
        Ok((belongs, clients))
    }

    fn looked_up(asked: &Asked<'_>, identity: &Identity, name: &str) -> Result<Belongs> {
        let Asked { state, join, coordinator, .. } = *asked;
        let is_one_of_several = join.is_some() || coordinator.is_some() || is_member(state);
        if !asked.takes_orders && is_one_of_several {
            return Err(Error::new(Exit::Usage, "a host of an endpoint of several carries out jobs for its clients")
                .hint("omit --no-orders"));
        }
        let Some(coordinator) = coordinator else {
            let Some(joined) = Joined::of(state, join, identity)? else { return Ok(Belongs::Alone) };
            if asked.hands_out {
                warn!("this host belongs to another one: its own ticket lets nobody in; make tickets at the other one");
            }
            return Ok(Belongs::ToHead(joined));
        };
        let shared = Shared::begin(state, coordinator, join, identity, name)?;
        Ok(Belongs::ToAll { shared, hands_out: asked.hands_out })
    }

    fn clients(&self, state: &Path, own: Pin) -> Result<ClientBook> {
        let clients = ClientBook::open(state)?;
        let (shared, hands_out) = match self {
            Belongs::Alone => return Ok(clients),
            Belongs::ToHead(_) => return Ok(clients.elsewhere()),
            Belongs::ToAll { shared, hands_out } => (shared, hands_out),
        };
        // Before the ticket is written, where that is possible; otherwise as soon as it is.
        match hands_out.then(|| shared.publish(&clients.credential(), own)) {
            Some(Ok(false)) => {
                RevokedBook::new(state).mark(&id_of_credential(&clients.credential()[..]))?;
                let clients = ClientBook::open(state)?;
                shared.publish(&clients.credential(), own)?;
                return Ok(clients.elsewhere());
            }
            Some(Err(e)) => warn!(error = %e, "the ticket of this host lets nobody in before etcd answers"),
            _ => {}
        }
        Ok(clients.elsewhere())
    }

    pub fn book(&self, state: &Path) -> HostBook {
        match self {
            Belongs::ToAll { shared, .. } => shared.book(),
            _ => HostBook::new(state),
        }
    }

    /// Begins to ask who clients are, where that is somebody else's to say.
    pub fn attend(self, host: &Arc<EndpointHost>, ticket: &Ticket) -> Result<()> {
        let roster = host.roster.clone();
        let jobs = Box::new(move || roster.members().len());
        let membership = match self {
            Belongs::Alone => return Ok(()),
            Belongs::ToHead(joined) => {
                Membership::start(Box::new(Attendant::new(joined, &ticket.addresses)), None, jobs)?
            }
            Belongs::ToAll { shared, hands_out } => {
                let credential = hands_out.then(|| ticket.credential.clone());
                let enroller = Some(shared.enroller());
                let head = Coordinated::new(shared, host.pin, &ticket.addresses, credential);
                Membership::start(Box::new(head), enroller, jobs)?
            }
        };
        let _ = host.membership.set(membership.clone());
        host.clients.rely_on(membership);
        Ok(())
    }
}
