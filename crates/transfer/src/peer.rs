//! The other side of a transfer: whatever a remote location names, and how a session with it is opened.
//!
//! A program says what names stand for by a `Peers`: known endpoints, hosts that something else reaches, or nothing at all. What is
//! behind a `Peer` is its own business, as long as a session of the protocol comes out.
//!
//! Invariant: a peer outlives the attempts of a transfer; what it started for the first one serves the next.

use crate::connect::ConnectOptions;
use crate::error::{Error, Result};
use model::{JobId, Location};
use mover::Refusal;
use mover::session::Client;
use net::Identity;
use std::sync::Arc;

/// What remote locations stand for.
pub trait Peers: Send + Sync {
    /// Who this side is. Asked for only where there is another side.
    fn identity(&self) -> Result<Identity>;

    /// What a remote location names.
    fn find(&self, location: &Location) -> Result<Arc<dyn Peer>>;

    /// Whether a location is at a peer that another location named.
    fn is_at(&self, location: &Location, peer: &dyn Peer) -> Result<bool> {
        Ok(self.find(location)?.name() == peer.name())
    }

    /// The id of the job, where somebody else gave the command and chose it.
    fn job(&self) -> Option<JobId> {
        None
    }
}

/// What the session is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Push,
    Pull,
}

/// What a session is opened with.
pub struct Use<'a> {
    pub way: Way,
    /// As the peer knows them.
    pub paths: &'a [Vec<u8>],
    pub identity: &'a Identity,
    pub options: &'a ConnectOptions,
    pub memory_bytes: usize,
    pub is_stopped: &'a dyn Fn() -> bool,
}

pub trait Peer: Send + Sync {
    fn name(&self) -> &str;

    /// Opens a session.
    fn connect(&self, request: &Use<'_>) -> Result<Client>;

    /// An endpoint that somebody runs, with a root of its own; otherwise a host, on which one is started for the session.
    fn is_endpoint(&self) -> bool {
        true
    }

    /// A path of a location as the peer takes it.
    fn path(&self, path: &[u8]) -> Vec<u8> {
        path.to_vec()
    }

    /// What a refusal from there means to the user.
    fn refused(&self, refusal: &Refusal) -> Error {
        Error::from_refusal(self.name(), refusal)
    }
}

/// For transfers within this host: no name stands for anything.
pub struct NoPeers;

impl Peers for NoPeers {
    fn identity(&self) -> Result<Identity> {
        Identity::generate().map_err(|e| Error::from_net("identity", &e))
    }

    fn find(&self, location: &Location) -> Result<Arc<dyn Peer>> {
        Err(Error::request(format!("{location} is at a peer, and none is known"), "give the transfer a `Peers`"))
    }
}
