//! The endpoints that a user knows, as the peers of their transfers.

use crate::endpoints::{Endpoint, EndpointBook};
use crate::error::{Error, Result};
use crate::paths::Paths;
use model::Location;
use mover::session::Client;
use net::Identity;
use std::sync::Arc;
use transfer::{ConnectOptions, Peer, Peers, Reach, Use};

/// Opens a session with a known endpoint. Its answer to the greeting is not waited for: a refusal shows when the first
/// job ends (`Error::from_refusal`), or in `Client::welcome`.
pub fn connect(endpoint: &Endpoint, identity: &Identity, options: &ConnectOptions) -> Result<Client> {
    Ok(reach(endpoint, identity, options).connect(&endpoint.addresses)?)
}

fn reach<'a>(endpoint: &'a Endpoint, identity: &'a Identity, options: &'a ConnectOptions) -> Reach<'a> {
    Reach { name: &endpoint.name, pin: endpoint.pin, credential: Vec::new(), identity, options }
}

impl Peer for Endpoint {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self, request: &Use<'_>) -> transfer::Result<Client> {
        reach(self, request.identity, request.options).connect(&self.addresses)
    }
}

/// The endpoints of a book, and who asks them.
#[derive(Clone)]
pub struct Known {
    pub book: EndpointBook,
    pub identity: Identity,
}

impl Known {
    /// What `thalweg endpoint add` of this user made known.
    pub fn of(paths: &Paths) -> Result<Known> {
        Ok(Known { book: EndpointBook::new(paths.endpoints()), identity: paths.identity()? })
    }

    fn endpoint(&self, location: &Location) -> Result<Endpoint> {
        match location {
            Location::Named { name, .. } => self.book.get(name),
            Location::Address { address, .. } => self.book.find_by_address(address),
            here => Err(Error::new(model::Exit::Usage, format!("{here} is at no endpoint"))),
        }
    }
}

impl Peers for Known {
    fn identity(&self) -> transfer::Result<Identity> {
        Ok(self.identity.clone())
    }

    fn find(&self, location: &Location) -> transfer::Result<Arc<dyn Peer>> {
        Ok(Arc::new(self.endpoint(location)?))
    }
}
