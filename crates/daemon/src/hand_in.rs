//! Handing a job in at an endpoint: the order with its warrant, and afterwards what is said of it and heard.
//!
//! The asking side of `orders`. Invariant: what leaves this host is a signature, never the key.

use crate::endpoints::{Endpoint, EndpointBook};
use crate::error::{Error, Result};
use crate::host::deeds_of;
use crate::warrant::{now, sign, verbs_of};
use model::name::{Escaped, relative_path};
use model::order::{Kind, Role, Status, Steer};
use model::synthetic::is_synthetic;
use model::warrant::{LIFETIME_SECONDS, PATHS_MAX};
use model::{Class, Exit, JobId, Location, Pin, TransferSpec, Warrant, mutant};
use mover::session::{AskError, Client, Tuning};
use net::Identity;
use std::net::ToSocketAddrs;
use transfer::{ConnectOptions, LEAVES_ROOT, check_apart_there, job_id};
use wire::handshake::feature;
use wire::limits::{ORDER_ADDRESSES_MAX, ORDER_TRANSFER_BYTES_MAX};
use wire::message::{AskTerms, Order, OrderAsk, OrderSteer, Revoke};
pub use wire::message::{OrderEnded, OrderEvents, OrderFailure, OrderNews, ShareRecord, Terms};
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
    /// What the warrant is called, by which it can be revoked. Those of one job may have one name.
    pub warrant_id: [u8; 16],
}

/// What is known of a job.
#[derive(Clone, Debug)]
pub struct Told {
    pub news: OrderNews,
    pub ended: Option<OrderEnded>,
    pub events: Option<OrderEvents>,
}

/// How a job stands, as far as this version has a word for it.
pub fn status_of(news: &OrderNews) -> Status {
    Status::from_number(news.status).unwrap_or(Status::Queued)
}

impl Told {
    pub fn status(&self) -> Status {
        status_of(&self.news)
    }

    /// What an ended job failed with, as the command would have said it.
    pub fn failure(&self) -> Option<Error> {
        let status = self.status();
        let ended = self.ended.as_ref().filter(|_| status.is_end())?;
        let exit = match Exit::from_number(ended.code as i32) {
            // Whatever its code says.
            Exit::Done if status != Status::Succeeded => Exit::Failed,
            exit => exit,
        };
        let shown = |text: &str| Escaped(text.as_bytes()).to_string();
        let hint = Some(shown(&ended.hint)).filter(|hint| !hint.is_empty());
        let message = match ended.text.is_empty() {
            true => format!("the endpoint says that the job is {status}, and not why"),
            false => shown(&ended.text),
        };
        (exit != Exit::Done).then_some(Error { exit, message, hint })
    }
}

/// A session with an endpoint that carries out jobs.
pub struct Desk {
    client: Client,
    name: String,
    identity: Identity,
}

impl Desk {
    pub fn open(endpoint: &Endpoint, identity: &Identity) -> Result<Desk> {
        let options =
            ConnectOptions { tuning: Tuning { streams: Some(0), ..Tuning::default() }, ..ConnectOptions::default() };
        let client = crate::connect(endpoint, identity, &options)?;
        let welcome = client.welcome().map_err(|e| Error::from_connect(&endpoint.name, &e));
        welcome.map(|_| Desk { client, name: endpoint.name.clone(), identity: identity.clone() })
    }

    /// Whether the endpoint tells which hosts it has.
    pub(crate) fn knows_hosts(&self) -> bool {
        self.client.knows(feature::HOSTS).unwrap_or(false)
    }

    /// Whether the session goes on: then what was refused was refused by the endpoint.
    pub fn is_open(&self) -> bool {
        self.client.is_open()
    }

    /// Durable at the endpoint when this returns.
    pub fn hand_in(&self, job: &HandIn<'_>, interrupt: &dyn Fn() -> bool) -> Result<()> {
        check_ends(job)?;
        let is_plain = matches!(job.kind, Kind::Copy | Kind::Sync) && !is_beyond_copying(job.spec);
        if !is_plain && !self.client.knows(feature::ERRANDS).map_err(|e| Error::from_connect(&self.name, &e))? {
            let text = format!("{} is too old to move, compare, rehearse or follow in a client's name", self.name);
            return Err(Error::new(Exit::Version, text)
                .hint("install this version there, or give the command without --detach"));
        }
        let transfer = serde_json::to_string(job.spec)
            .map_err(|e| Error::new(Exit::Fatal, format!("the transfer cannot be encoded: {e}")))?;
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

    /// Has a job stop, or forgets it.
    pub fn steer(&self, job: JobId, steer: Steer, interrupt: &dyn Fn() -> bool) -> Result<()> {
        self.steer_with(job, steer, Vec::new(), interrupt)
    }

    /// Gives a job another rate, in the words of `--bwlimit`; nothing for no limit.
    pub fn set_rate(&self, job: JobId, bwlimit: Option<&str>, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let (steer, bwlimit) = (Steer::Rate as u32, bwlimit.unwrap_or_default().to_owned());
        let order =
            |number| OrderSteer { number, job_id: job.0.to_vec(), steer, bwlimit, ..OrderSteer::default() }.into();
        self.request(order, interrupt).map(drop)
    }

    /// Has a job count otherwise from now on; nothing for what is usual.
    pub fn set_class(&self, job: JobId, class: Option<Class>, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let (steer, class) = (Steer::Class as u32, class.map_or(0, |class| class as u32));
        let order =
            |number| OrderSteer { number, job_id: job.0.to_vec(), steer, class, ..OrderSteer::default() }.into();
        self.request(order, interrupt).map(drop)
    }

    /// Has a job go on, with a new warrant for the other endpoint, which the book knows.
    pub fn renew(&self, job: JobId, steer: Steer, book: &EndpointBook, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let ask = |number| OrderAsk { number, job_id: job.0.to_vec(), wants_events: false, wants_order: true }.into();
        let order = self.told(ask, interrupt)?.into_iter().next().and_then(|told| told.ended?.order);
        let order = order.ok_or_else(|| Error::new(Exit::Fatal, format!("{}: a job without its order", self.name)))?;
        let executor =
            Endpoint { name: self.name.clone(), addresses: Vec::new(), pin: self.client.peer(), added: String::new() };
        let warrant = sign(&self.identity, renewal(self.identity.pin(), &executor, job, &order, book)?);
        self.steer_with(job, steer, warrant, interrupt)
    }

    /// The same for whoever knows what was asked.
    pub fn renew_as(&self, job: &HandIn<'_>, steer: Steer, interrupt: &dyn Fn() -> bool) -> Result<()> {
        self.steer_with(job.job, steer, sign(&self.identity, warrant(job)?), interrupt)
    }

    /// Takes a warrant back at the endpoint that it is for: whoever works there with it is cut off.
    pub fn revoke(&self, warrant_id: [u8; 16], interrupt: &dyn Fn() -> bool) -> Result<()> {
        let warrant_id = warrant_id.to_vec();
        self.request(|number| Revoke { number, warrant_id }.into(), interrupt).map(drop)
    }

    fn steer_with(&self, job: JobId, steer: Steer, warrant: Vec<u8>, interrupt: &dyn Fn() -> bool) -> Result<()> {
        let order = |number| {
            OrderSteer { number, job_id: job.0.to_vec(), steer: steer as u32, warrant, ..OrderSteer::default() }.into()
        };
        self.request(order, interrupt).map(drop)
    }

    /// What this client may there, and how rates are shared out; having changed the contracts of a version, if there are any to be.
    pub fn terms(&self, change: Option<(&str, u64)>, interrupt: &dyn Fn() -> bool) -> Result<Terms> {
        let (contracts, version) = change.unwrap_or_default();
        let (is_change, contracts) = (change.is_some(), contracts.to_owned());
        let ask = |number| AskTerms { number, is_change, contracts, version }.into();
        let told = self.request(ask, interrupt)?.into_iter().find_map(|answer| match answer {
            Message::Terms(terms) => Some(terms),
            _ => None,
        });
        told.ok_or_else(|| Error::new(Exit::Fatal, format!("{}: an empty answer", self.name)))
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

    pub(crate) fn request(
        &self,
        make: impl FnOnce(u32) -> Message,
        interrupt: &dyn Fn() -> bool,
    ) -> Result<Vec<Message>> {
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
            CloseCode::WrongState => Error { exit: Exit::Failed, ..error }.hint("`thalweg job show` shows its state"),
            CloseCode::NotFound if refusal.text.contains("has no job") => {
                Error { exit: Exit::Failed, ..error }.hint("`thalweg job ls` lists the jobs there")
            }
            _ => error,
        }
    }
}

/// A warrant for a job of which an endpoint says what it is. That is believed as far as it has the job's id, which is the digest
/// of what was asked for, and the other endpoint is the one that has its name in the book: an endpoint that lies gets nothing
/// signed that its user did not ask for.
fn renewal(owner: Pin, executor: &Endpoint, job: JobId, order: &Order, book: &EndpointBook) -> Result<Warrant> {
    let lies = || {
        Error::new(
            Exit::Refused,
            format!("{} says of job {job} what was not asked for: nothing is signed", executor.name),
        )
        .hint("give the command again, or ask whoever runs that endpoint")
    };
    let spec: TransferSpec = serde_json::from_str(&order.transfer).map_err(|_| lies())?;
    let kind = Kind::from_number(order.kind).ok_or_else(lies)?;
    if job_of(owner, kind, &spec) != job && !mutant::is_on("sign-what-is-told") {
        return Err(lies());
    }
    let find = |location: &Location| match location {
        Location::Address { address, .. } => book.find_by_address(address),
        Location::Named { name, .. } => book.get(name),
        _ => Err(lies()),
    };
    let (from, to) = (find(&spec.sources[0])?, find(&spec.destination)?);
    let (role, peer) = match Role::from_number(order.role) {
        Some(Role::Sends) if from.pin == executor.pin => (Role::Sends, to),
        Some(Role::Fetches) if to.pin == executor.pin => (Role::Fetches, from),
        _ => return Err(lies()),
    };
    let warrant_id = net::random_bytes();
    warrant(&HandIn { job, kind, role, executor, peer: &peer, spec: &spec, warrant_id })
}

/// What a job is called that somebody asks of endpoints. A copy has the name that it has everywhere.
pub fn job_of(owner: Pin, kind: Kind, spec: &TransferSpec) -> JobId {
    let texts: Vec<_> = spec.sources.iter().map(|source| source.to_string().into_bytes()).collect();
    let copy = job_id(owner, &texts, spec.destination.to_string(), &spec.choice, &spec.options);
    match kind {
        Kind::Copy | Kind::Sync => copy,
        Kind::Move | Kind::Check => {
            let digest = net::sha256(&[&b"thalweg errand 1"[..], kind.word().as_bytes(), &copy.0].concat());
            JobId::from_slice(&digest[..16]).expect("half of a SHA-256 is 16 bytes long")
        }
    }
}

/// An endpoint of an earlier version refuses it, or would not know it.
fn is_beyond_copying(spec: &TransferSpec) -> bool {
    spec.options.is_dry_run || spec.options.follow.is_some()
}

/// Refuses what would copy something into itself, or remove it after it was copied, where both ends are one endpoint,
/// whatever it is called in the two.
fn check_ends(job: &HandIn<'_>) -> Result<()> {
    let TransferSpec { sources, destination, options, .. } = job.spec;
    if job.kind == Kind::Check || job.executor.pin != job.peer.pin {
        return Ok(());
    }
    Ok(check_apart_there(sources, destination, options.deletion.is_some())?)
}

/// What the other endpoint is to allow the one that carries the job out, and no more.
fn warrant(job: &HandIn<'_>) -> Result<Warrant> {
    let paths: Vec<_> = match job.role {
        Role::Sends => vec![job.spec.destination.path().to_vec()],
        Role::Fetches => job.spec.sources.iter().map(|source| source.path().to_vec()).collect(),
    };
    if paths.len() > PATHS_MAX || paths.iter().map(Vec::len).sum::<usize>() > 1500 {
        return Err(Error::new(Exit::Usage, "the paths do not fit into one warrant").hint(
            "use several commands: a job between two endpoints takes at most 16 sources, of 1,500 bytes in all",
        ));
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
        verbs: verbs_of(&deeds_of(job.kind, job.role, job.spec)),
        not_before: now,
        expires: now + LIFETIME_SECONDS,
        id: job.warrant_id,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::Replace;
    use model::options::Deletion;

    #[test]
    fn a_job_that_did_not_succeed_has_an_error_whatever_its_endpoint_says_of_it() {
        let told = |status: u32, code: u32, text: &str| {
            let news = OrderNews { status, ..OrderNews::default() };
            let ended = Some(OrderEnded { code, text: text.into(), ..OrderEnded::default() });
            Told { news, ended, events: None }
        };
        let failed = told(Status::Failed as u32, 0, "").failure().unwrap();
        assert_eq!((failed.exit, failed.hint), (Exit::Failed, None));
        assert!(failed.message.contains("failed, and not why"), "{}", failed.message);
        let partial = told(Status::Partial as u32, 23, "a\x1b").failure().unwrap();
        assert_eq!((partial.exit, &partial.message[..]), (Exit::Partial, "a\\x1b"));
        assert!(told(Status::Succeeded as u32, 0, "").failure().is_none());
        // One that is not over, and one of a status that this version does not know.
        assert!(told(Status::Running as u32, 1, "why").failure().is_none());
        assert_eq!(told(u32::MAX, 1, "why").status(), Status::Queued);
    }

    #[test]
    fn a_job_within_one_endpoint_takes_nothing_into_itself_and_removes_no_source_whatever_the_endpoint_is_called() {
        let endpoint = |name: &str, key: u8| Endpoint {
            name: name.into(),
            addresses: Vec::new(),
            pin: Pin([key; 32]),
            added: String::new(),
        };
        let (e, alias, other) = (endpoint("e", 1), endpoint("alias", 1), endpoint("other", 2));
        let refusal = |kind: Kind, peer: &Endpoint, from: &str, to: &str| {
            let at = |name: &str, path: &str| Location::Named { name: name.into(), path: path.into() };
            let mut spec = TransferSpec::new(vec![at("e", from)], at(&peer.name, to));
            spec.options.deletion = (kind == Kind::Sync).then_some(Deletion { is_at_root: true, removals_max: None });
            let (job, role, warrant_id) = (JobId([1; 16]), Role::Sends, [0; 16]);
            check_ends(&HandIn { job, kind, role, executor: &e, peer, spec: &spec, warrant_id }).err()
        };
        let into_itself = refusal(Kind::Copy, &alias, "a/", "a/copy/").unwrap();
        assert_eq!(into_itself.exit, Exit::Usage);
        assert_eq!(into_itself.message, "alias:a/copy/ is inside e:a/, which is to be copied");
        let removed = refusal(Kind::Sync, &e, "a/b/", "a/").unwrap();
        assert_eq!(removed.message, "e:a/b/ is inside e:a/, and would be removed with what is not in it");
        assert!(refusal(Kind::Move, &e, "a", "a/b").is_some() && refusal(Kind::Copy, &e, "a", "b").is_none());
        // What is compared stays as it is, and two endpoints have two roots.
        assert_eq!(refusal(Kind::Check, &e, "a/", "a/b/"), None);
        assert_eq!(refusal(Kind::Sync, &other, "a/b/", "a/"), None);
    }

    /// What an endpoint says of a job when its user has it go on: the user signs for what was asked, or not at all.
    #[test]
    fn an_endpoint_that_lies_about_a_job_gets_no_warrant_for_another() {
        let dir = tempfile::tempdir().unwrap();
        let book = EndpointBook::new(dir.path().join("book"));
        let endpoint = |name: &str, key: u8| {
            let known = Endpoint {
                name: name.into(),
                addresses: vec!["192.0.2.1:1".into()],
                pin: Pin([key; 32]),
                added: "2026-01-01T00:00:00Z".into(),
            };
            book.add(&known, Replace::Always).unwrap();
            known
        };
        let (a, b, _other) = (endpoint("a", 1), endpoint("b", 2), endpoint("other", 3));
        let at = |name: &str, path: &str| Location::Named { name: name.into(), path: path.into() };
        let spec = TransferSpec::new(vec![at("a", "x/")], at("b", "in/y"));
        let owner = Pin([7; 32]);
        let id = job_id(owner, &["a:x/"], "b:in/y", &spec.choice, &spec.options);
        let renewed_as = |kind: Kind, executor: &Endpoint, role: Role, spec: &TransferSpec, peer: u8| {
            let order = Order {
                role: role as u32,
                kind: kind as u32,
                peer_pin: vec![peer; 32],
                transfer: serde_json::to_string(spec).unwrap(),
                ..Order::default()
            };
            renewal(owner, executor, id, &order, &book)
        };
        let renewed =
            |executor: &Endpoint, role, spec: &TransferSpec, peer| renewed_as(Kind::Copy, executor, role, spec, peer);
        let sends = renewed(&a, Role::Sends, &spec, 2).unwrap();
        assert_eq!((sends.holder, sends.audience, &sends.paths[..]), (a.pin, b.pin, &[b"in/y".to_vec()][..]));
        let fetches = renewed(&b, Role::Fetches, &spec, 1).unwrap();
        assert_eq!((fetches.holder, fetches.audience, fetches.verbs.write), (b.pin, a.pin, false));
        // Whom it names does not matter.
        assert_eq!(renewed(&a, Role::Sends, &spec, 3).unwrap().audience, b.pin);
        let mut deletes = spec.clone();
        deletes.options.deletion = Some(Deletion { is_at_root: false, removals_max: None });
        let lies = [
            (&a, Role::Sends, TransferSpec { destination: at("b", ""), ..spec.clone() }),
            (&a, Role::Sends, TransferSpec { destination: at("other", "in/y"), ..spec.clone() }),
            (&a, Role::Sends, deletes),
            (&a, Role::Fetches, spec.clone()),
            (&b, Role::Sends, spec.clone()),
            (&b, Role::Fetches, TransferSpec { sources: vec![at("a", "")], ..spec.clone() }),
        ];
        for (executor, role, spec) in lies {
            let error = renewed(executor, role, &spec, 2).unwrap_err();
            assert!(error.message.contains("nothing is signed"), "{}", error.message);
        }
        // A copy is no move, which would take away what it copied.
        for kind in [Kind::Move, Kind::Check] {
            let error = renewed_as(kind, &b, Role::Fetches, &spec, 1).unwrap_err();
            assert!(error.message.contains("nothing is signed"), "{}", error.message);
        }
        assert!(job_of(owner, Kind::Move, &spec) != id && job_of(owner, Kind::Copy, &spec) == id);
    }
}
