//! Handing a job in at an endpoint: the order with its warrant, and afterwards what is said of it and heard.
//!
//! The asking side of `orders`. Invariant: what leaves this host is a signature, never the key.

use crate::endpoints::Endpoint;
use crate::error::{Error, Result};
use crate::host::deeds_of;
use crate::warrant::{now, sign, verbs_of};
use model::name::{Escaped, relative_path};
use model::order::{Kind, Role, Steer};
use model::synthetic::is_synthetic;
use model::warrant::{LIFETIME_SECONDS, PATHS_MAX};
use model::{Exit, JobId, TransferSpec, Warrant};
use mover::session::{AskError, Client, Tuning};
use net::Identity;
use std::net::ToSocketAddrs;
use transfer::{ConnectOptions, LEAVES_ROOT};
use wire::limits::{ORDER_ADDRESSES_MAX, ORDER_TRANSFER_BYTES_MAX};
use wire::message::{Order, OrderAsk, OrderSteer};
pub use wire::message::{OrderEnded, OrderEvents, OrderFailure, OrderNews};
use wire::{CloseCode, Message, Refusal};

/// What an endpoint answers that was told to carry out no jobs.
pub const TAKES_NONE: &str = "this endpoint carries out no jobs";

/// A job between two endpoints that this user knows.
pub struct HandIn<'a> {
    pub job: JobId,
    pub kind: Kind,
    pub role: Role,
    /// The endpoint that carries it out, and the other one.
    pub executor: &'a Endpoint,
    pub peer: &'a Endpoint,
    pub spec: &'a TransferSpec,
}

/// What is known of a job.
#[derive(Clone, Debug)]
pub struct Told {
    pub news: OrderNews,
    pub ended: Option<OrderEnded>,
    pub events: Option<OrderEvents>,
}

/// A session with an endpoint that carries out jobs.
pub struct Desk {
    client: Client,
    name: String,
    identity: Identity,
}

impl Desk {
    pub fn open(endpoint: &Endpoint, identity: &Identity) -> Result<Desk> {
        let options = ConnectOptions { tuning: Tuning { streams: Some(0) }, ..ConnectOptions::default() };
        let client = crate::connect(endpoint, identity, &options)?;
        let welcome = client.welcome().map_err(|e| Error::from_connect(&endpoint.name, &e));
        welcome.map(|_| Desk { client, name: endpoint.name.clone(), identity: identity.clone() })
    }

    /// Whether the session goes on: then what was refused was refused by the endpoint.
    pub fn is_open(&self) -> bool {
        self.client.is_open()
    }

    /// Durable at the endpoint when this returns.
    pub fn hand_in(&self, job: &HandIn<'_>, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let transfer = serde_json::to_string(job.spec)
            .map_err(|e| Error::new(Exit::Fatal, format!("the transfer has no written form: {e}")))?;
        if transfer.len() > ORDER_TRANSFER_BYTES_MAX {
            return Err(Error::new(Exit::Usage, "the job does not fit into one message")
                .hint("use fewer sources, filter rules or listed paths in one command"));
        }
        let warrant = sign(&self.identity, warrant(job)?);
        let addresses = numeric(job.peer)?.into_iter().map(String::into_bytes).collect();
        let order = |number| {
            Message::from(Order {
                number,
                job_id: job.job.0.to_vec(),
                role: job.role as u32,
                peer_pin: job.peer.pin.0.to_vec(),
                peer_name: job.peer.name.clone(),
                addresses,
                warrant,
                transfer,
                kind: job.kind as u32,
                own_name: job.executor.name.clone(),
            })
        };
        self.request(order, interrupt).map(drop)
    }

    /// One job with all that is known of it.
    pub fn ask(&self, job: JobId, interrupt: &dyn Fn() -> bool) -> Result<Told> {
        let ask = |number| OrderAsk { number, job_id: job.0.to_vec(), wants_events: true, wants_order: false }.into();
        self.told(ask, interrupt)?
            .pop()
            .ok_or_else(|| Error::new(Exit::Fatal, format!("{}: an empty answer", self.name)))
    }

    /// The jobs of this user there, the newest first.
    pub fn list(&self, interrupt: &dyn Fn() -> bool) -> Result<Vec<Told>> {
        self.told(|number| OrderAsk { number, ..OrderAsk::default() }.into(), interrupt)
    }

    /// Steers a job; where it is to go on, with a new warrant for the other endpoint.
    pub fn steer(&self, job: JobId, steer: Steer, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let warrant = match steer {
            Steer::Resume | Steer::Retry => self.renewed(job, interrupt)?,
            _ => Vec::new(),
        };
        let order = |number| OrderSteer { number, job_id: job.0.to_vec(), steer: steer as u32, warrant }.into();
        self.request(order, interrupt).map(drop)
    }

    fn renewed(&self, job: JobId, interrupt: &dyn Fn() -> bool) -> Result<Vec<u8>> {
        let ask = |number| OrderAsk { number, job_id: job.0.to_vec(), wants_events: false, wants_order: true }.into();
        let told = self.told(ask, interrupt)?;
        let order = told.into_iter().next().and_then(|told| told.ended?.order);
        let unusable = || Error::new(Exit::Fatal, format!("{}: a job without its order", self.name));
        let order = order.ok_or_else(unusable)?;
        let spec: TransferSpec = serde_json::from_str(&order.transfer).map_err(|_| unusable())?;
        let pin = model::Pin::from_slice(&order.peer_pin).ok_or_else(unusable)?;
        let role = Role::from_number(order.role).ok_or_else(unusable)?;
        let endpoint =
            |name: &str, pin| Endpoint { name: name.to_owned(), addresses: Vec::new(), pin, added: String::new() };
        let (executor, peer) = (endpoint(&order.own_name, self.client.peer()), endpoint(&order.peer_name, pin));
        let job = HandIn { job, kind: Kind::Copy, role, executor: &executor, peer: &peer, spec: &spec };
        Ok(sign(&self.identity, warrant(&job)?))
    }

    fn told(&self, make: impl FnOnce(u32) -> Message, interrupt: &dyn Fn() -> bool) -> Result<Vec<Told>> {
        let mut told: Vec<Told> = Vec::new();
        for message in self.request(make, interrupt)? {
            match (message, told.last_mut()) {
                (Message::OrderNews(news), _) => told.push(Told { news, ended: None, events: None }),
                (Message::OrderEnded(ended), Some(last)) => last.ended = Some(ended),
                (Message::OrderEvents(events), Some(last)) => last.events = Some(events),
                _ => {}
            }
        }
        Ok(told)
    }

    fn request(&self, make: impl FnOnce(u32) -> Message, interrupt: &dyn Fn() -> bool) -> Result<Vec<Message>> {
        self.client.request(make, interrupt).map(|(answers, _)| answers).map_err(|e| match e {
            AskError::Connect(e) => Error::from_connect(&self.name, &e),
            AskError::Refused(refusal) => self.refused(&refusal),
            AskError::Lost(why) => {
                Error::new(Exit::Temporary, format!("{}: the connection was lost: {why}", self.name))
            }
            AskError::Interrupted(_) => Error::new(Exit::Interrupted, "stopped"),
        })
    }

    fn refused(&self, refusal: &Refusal) -> Error {
        let error = Error::from_refusal(&self.name, refusal);
        match refusal.code {
            CloseCode::WrongState => {
                Error { exit: Exit::Failed, ..error }.hint("`thalweg job show` says how it stands")
            }
            CloseCode::NotFound if refusal.text.contains("has no job") => {
                Error { exit: Exit::Failed, ..error }.hint("`thalweg job ls` lists the jobs there")
            }
            _ => error,
        }
    }
}

/// What the other endpoint is to allow the one that carries the job out, and no more.
fn warrant(job: &HandIn<'_>) -> Result<Warrant> {
    let paths: Vec<_> = match job.role {
        Role::Sends => vec![job.spec.destination.path().to_vec()],
        Role::Fetches => job.spec.sources.iter().map(|source| source.path().to_vec()).collect(),
    };
    if paths.len() > PATHS_MAX || paths.iter().map(Vec::len).sum::<usize>() > 1500 {
        return Err(Error::new(Exit::Usage, "the paths do not fit into one warrant")
            .hint("a job between two endpoints has up to 16 sources, of 1,500 bytes in all: give several commands"));
    }
    let leaves = |path: &&Vec<u8>| !is_synthetic(path) && relative_path(path).is_err();
    if let Some(path) = paths.iter().find(leaves) {
        return Err(Error::new(Exit::Refused, format!("{}: {}: {LEAVES_ROOT}", job.peer.name, Escaped(path))));
    }
    let now = now();
    Ok(Warrant {
        holder: job.executor.pin,
        audience: job.peer.pin,
        job: job.job,
        verbs: verbs_of(&deeds_of(job.role, job.spec)),
        not_before: now,
        expires: now + LIFETIME_SECONDS,
        id: net::random_bytes(),
        paths,
    })
}

/// The addresses of an endpoint as numbers, which is how another one takes them: those that have no number are left out.
fn numeric(endpoint: &Endpoint) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for address in &endpoint.addresses {
        for socket in address.to_socket_addrs().into_iter().flatten() {
            let text = socket.to_string();
            if !found.contains(&text) && found.len() < ORDER_ADDRESSES_MAX {
                found.push(text);
            }
        }
    }
    let nowhere = || {
        Error::new(Exit::Unreachable, format!("no address of {} can be resolved", endpoint.name))
            .hint("check the host name; `serve --advertise` sets it")
    };
    if found.is_empty() { Err(nowhere()) } else { Ok(found) }
}
