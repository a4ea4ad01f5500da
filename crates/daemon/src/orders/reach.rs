//! The two ends of a job that was handed in: this endpoint's root with its owner's rights, and the other endpoint by a warrant.

use super::ground::Ground;
use super::record::Record;
use crate::error::Error;
use crate::warrant;
use model::order::{Kind, Role};
use model::synthetic::{self, Generated};
use model::{Class, Exit, JobId, Location, Pin, TransferOptions, TransferSpec, mutant};
use mover::Memory;
use mover::session::{Client, Mandate, Roster, Who};
use mover::shares::Holder;
use net::Identity;
use std::io;
use std::sync::Arc;
use store::Stores;
use store::open::{OpenError, OpenSink, OpenSource, Opener, Shape, SinkRequest};
use transfer::{ConnectOptions, Peer, Peers, Reach, Use};
use wire::limits::STREAMS_MAX;
use wire::{CloseCode, Refusal};

/// What a transfer is started with.
pub struct Plan {
    pub spec: TransferSpec,
    pub stores: Stores,
    pub peers: Partner,
}

pub fn plan(
    own: (Identity, &Memory),
    host: &Arc<dyn Ground>,
    record: &Record,
    spec: &TransferSpec,
) -> Result<Plan, Error> {
    let unusable = || Error::new(Exit::Fatal, "the job names no owner, no peer or no warrant");
    let (owner, job) = record.key().ok_or_else(unusable)?;
    let pin = Pin::from_hex(&record.peer.pin).ok_or_else(unusable)?;
    let credential = data_encoding::HEXLOWER.decode(record.warrant.as_bytes()).map_err(|_| unusable())?;
    let mut spec = spec.clone();
    let far = |path: &[u8]| Location::Named { name: record.peer.name.clone(), path: path.to_vec() };
    match record.role() {
        Role::Sends => {
            spec.sources = spec.sources.iter().map(|source| here(source.path())).collect::<Result<_, _>>()?;
            spec.destination = far(spec.destination.path());
        }
        Role::Fetches => {
            spec.sources = spec.sources.iter().map(|source| far(source.path())).collect();
            spec.destination = here(spec.destination.path())?;
        }
    }
    spec.memory_bytes = None;
    let class = host.class(owner, spec.options.class);
    // Where none was asked for, the other endpoint may allow less than this one.
    spec.options.class = spec.options.class.or(Some(class).filter(|class| *class < Class::Normal));
    let holder = Holder { client: record.account.as_str().into(), key: owner, name: record.owner_name.as_str().into() };
    let (identity, memory) = own;
    let memory = memory.of(holder, None);
    let endpoint = Partner {
        name: record.peer.name.clone(),
        own: record.own_name.clone(),
        pin,
        addresses: record.peer.addresses.clone(),
        credential,
        identity,
        memory,
        job,
        roster: host.roster(),
        who: Who { job, peer: pin, user: record.account.clone(), name: record.owner_name.clone(), class },
    };
    let root = Arc::new(Root { host: host.clone(), owner, job });
    Ok(Plan { spec, stores: Stores::default().with("file", root), peers: endpoint })
}

/// A path of this endpoint's root.
fn here(path: &[u8]) -> Result<Location, Error> {
    match Generated::parse(path) {
        Some(generated) => generated.map(Location::Generated).map_err(|why| Error::new(Exit::Usage, why)),
        None if synthetic::is_null(path) => Ok(Location::Null),
        None => Ok(Location::Local(path.to_vec())),
    }
}

/// The other endpoint.
#[derive(Clone)]
pub struct Partner {
    name: String,
    own: String,
    pin: Pin,
    addresses: Vec<String>,
    credential: Vec<u8>,
    identity: Identity,
    memory: Memory,
    job: JobId,
    roster: Arc<Roster>,
    who: Who,
}

impl Partner {
    /// What its client calls this endpoint.
    pub fn own(&self) -> &str {
        &self.own
    }
}

impl Peers for Partner {
    fn identity(&self) -> transfer::Result<Identity> {
        Ok(self.identity.clone())
    }

    fn find(&self, _location: &Location) -> transfer::Result<Arc<dyn Peer>> {
        Ok(Arc::new(self.clone()))
    }

    fn job(&self) -> Option<JobId> {
        Some(self.job)
    }
}

impl Peer for Partner {
    fn name(&self) -> &str {
        &self.name
    }

    fn connect(&self, request: &Use<'_>) -> transfer::Result<Client> {
        // The lanes live from the endpoint's memory, as those of its clients do.
        let options = ConnectOptions { memory: self.memory.clone(), ..request.options.clone() };
        let credential = self.credential.clone();
        let reach =
            Reach { name: &self.name, pin: self.pin, credential, identity: request.identity, options: &options };
        let client = reach.connect(&self.addresses)?;
        client.list_in(self.roster.clone(), self.who.clone());
        Ok(client)
    }

    fn refused(&self, refusal: &Refusal) -> transfer::Error {
        let error = transfer::Error::from_refusal(&self.name, refusal);
        match refusal.code {
            CloseCode::Authentication => error.advice(format!(
                "give the same command again, or `thalweg job retry`: {} gets a new warrant",
                self.own
            )),
            _ => error,
        }
    }
}

/// This endpoint's files, as far as a client may reach them at this moment.
struct Root {
    host: Arc<dyn Ground>,
    owner: Pin,
    job: JobId,
}

impl Opener for Root {
    fn source(&self, locations: &[Location], options: &TransferOptions) -> Result<OpenSource, OpenError> {
        let paths: Vec<_> = locations.iter().map(|location| location.path().to_vec()).collect();
        let refused = |refusal: Refusal| OpenError::Source {
            path: paths[0].clone(),
            error: store::Error::new("open", &paths[0][..], as_io(&refusal)),
        };
        self.host.open_source(self.owner, &paths, options).map_err(refused)
    }

    fn sink(&self, location: &Location, request: &SinkRequest<'_>) -> Result<OpenSink, OpenError> {
        let path = location.path();
        let refused = |refusal: Refusal| OpenError::Destination {
            operation: "open",
            path: path.to_vec(),
            error: as_io(&refusal),
        };
        let is_single = request.shape != Shape::Tree;
        self.host.open_sink(self.owner, self.job, path, is_single, request.options).map_err(refused)
    }
}

fn as_io(refusal: &Refusal) -> io::Error {
    let kind = match refusal.code {
        CloseCode::NotFound => io::ErrorKind::NotFound,
        CloseCode::NoSpace => io::ErrorKind::StorageFull,
        CloseCode::Forbidden | CloseCode::Authentication => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, refusal.text.clone())
}

/// A warrant that a client hands in: its own, for this endpoint to use at the other one, for this job. That of somebody else,
/// whom this endpoint may work for as well, would lend that one's rights to whoever got hold of it.
pub fn check_warrant(credential: &[u8], owner: Pin, own: Pin, peer: Pin, job: JobId) -> Result<Mandate, Refusal> {
    let refused = |text| Err(Refusal::new(CloseCode::Authentication, text));
    let mandate = warrant::check(credential, own, peer)?;
    if mandate.issuer != owner && !mutant::is_on("hand-in-any-warrant") {
        return refused("the warrant was signed by another client");
    }
    if mandate.warrant.job != job {
        return refused("the warrant is for another job");
    }
    Ok(mandate)
}

/// What the job may be at all, before it is taken.
pub fn check(kind: Kind, role: Role, spec: &TransferSpec) -> Result<(), Refusal> {
    let malformed = |text: &str| Err(Refusal::new(CloseCode::Malformed, text));
    let refused = |text: &str| Err(Refusal::new(CloseCode::Forbidden, text));
    let ends = || spec.sources.iter().chain([&spec.destination]);
    let is_copy = matches!(kind, Kind::Copy | Kind::Sync);
    if !ends().all(Location::is_remote) {
        return malformed("an order whose source and destination are not both at endpoints");
    }
    if kind == Kind::Check && spec.sources.len() > 1 {
        return malformed("an order that compares more than two trees");
    }
    if !is_copy && ends().any(|end| synthetic::is_synthetic(end.path())) {
        return refused("there is no storage behind this path");
    }
    if !spec.replicas.is_empty() {
        return malformed("an order that fetches from several holders");
    }
    if spec.streams.is_some_and(|streams| streams > STREAMS_MAX) {
        return refused("more data streams than there can be");
    }
    if let Some(Err(why)) = spec.options.backup.as_deref().map(mover::job_options::check_backup) {
        return Err(Refusal::new(CloseCode::Malformed, &why));
    }
    if spec.options.tells_changes {
        return refused("lists of changes need a client that stays connected");
    }
    if !is_copy && (spec.options.is_dry_run || spec.options.follow.is_some()) {
        return refused("only copies can be rehearsed, or follow their source");
    }
    // Files are followed where they are written.
    if spec.options.follow.is_some() && role == Role::Fetches {
        return refused(
            "files are followed where they are written: the endpoint of the source must reach the other one",
        );
    }
    Ok(())
}
