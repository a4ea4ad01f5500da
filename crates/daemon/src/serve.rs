//! A running endpoint: one state directory, one root, one listener.
//!
//! Invariants:
//! - At most one endpoint uses a state directory (F097); the lock ends with its process, however that ends.
//! - The root holds none of the endpoint's own files, and they do not hold the root (F130).
//! - The ticket is written when, and only when, the endpoint listens and nothing is left that could keep it from answering
//!   but a lack of threads.
//! - A process that is to be confined is so before its first thread (`sandbox`).
//!
//! Not here: signals. The program sets the flag that `run_until` looks at.

mod accept;
mod belongs;
mod lock;
mod review;

use crate::advertise::Listening;
use crate::cache::{Cache, CacheOptions};
use crate::descriptors::connections_max;
use crate::error::{Error, Result, shown};
use crate::events::EventLog;
use crate::gate::Gate;
use crate::governor::{Allotment, Governor, contracts};
use crate::history::History;
use crate::host::{EndpointHost, Rates, RunningJob, StoredRoots};
use crate::issue::{Announcement, write_ticket};
use crate::orders::{Ground, Orders};
use crate::privileges::{self, Privileges};
use crate::sandbox::{self, Landlock, Left};
use crate::ticket::Ticket;
use crate::transfer_log::TransferLog;
use crate::warrant::TakenBack;
use crate::{advertise, metrics, paths, time, trust};
use accept::Acceptor;
use belongs::{Asked, Belongs};
use cluster::coordinator::Coordinator;
pub use lock::StateLock;
use model::{Exit, Pin};
use mover::Memory;
use mover::session::Server;
use net::{Listener, ServerTls, Stopper};
pub use review::Pulse;
use review::Review;
use serde_json::json;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::posix::beneath::{self, Mounts};
use store::spool::Spool;
use tracing::{info, warn};

const NAME_BYTES_MAX: usize = 64;
/// In the state directory: where the buffer is.
const BUFFER_NOTE: &str = "buffer";
/// The ledger gets this long to write the last lines even when the sessions took all the time there was.
const HISTORY_PATIENCE_MIN: Duration = Duration::from_secs(2);
/// By so much a clock may be behind the newest line of the log without a word.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// How often `run_until` looks at its flag, which a signal handler sets and cannot announce.
const FLAG_INTERVAL: Duration = Duration::from_millis(50);

/// What `thalweg serve` is asked for.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// `ADDR:PORT`; `[::]:PORT` takes IPv4 too, port 0 lets the kernel choose.
    pub listen: String,
    pub root: PathBuf,
    /// Roots at stores. With any, `root` is a directory below `state_dir` that is made and stays empty.
    pub stored: StoredRoots,
    /// What the endpoint calls itself; the host's name by default.
    pub name: Option<String>,
    pub state_dir: PathBuf,
    /// Where the ticket is written once the endpoint listens.
    pub ticket_file: Option<PathBuf>,
    /// Addresses for the ticket (`HOST` or `HOST:PORT`) instead of those listened on.
    pub advertise: Vec<String>,
    pub read_only: bool,
    /// `transfers.jsonl` in the state directory by default.
    pub transfer_log: Option<PathBuf>,
    /// Congestion control by the kernel's name.
    pub congestion: Option<String>,
    /// For the lanes of all jobs.
    pub memory_bytes: usize,
    /// Where what clients send may wait for slow storage, and how much of it.
    pub buffer: Option<(PathBuf, u64)>,
    /// Serve sets of other endpoints, kept below the root.
    pub cache: Option<CacheOptions>,
    /// Let clients into file systems that are mounted below the root.
    pub crosses_mounts: bool,
    /// Give up the rest of the file system. For a process that does nothing else, called on its only thread.
    pub confine: bool,
    /// What is kept of the powers of root; given up on the calling thread, as with `confine`.
    pub privileges: Privileges,
    /// The token by which this host becomes one of an endpoint's.
    pub join: Option<PathBuf>,
    /// What the hosts of this endpoint keep their records in, where that is not the first of them.
    pub coordinator: Option<Arc<dyn Coordinator>>,
    /// Carry out jobs in clients' names, which takes connections to other endpoints.
    pub takes_orders: bool,
    /// Where Prometheus may ask.
    pub metrics: Option<metrics::Place>,
    /// It serves whoever started it, for as long as one command runs: what an endpoint's owner should mend is not told, and readers of sets
    /// do not matter.
    pub is_for_one_command: bool,
}

impl ServeOptions {
    pub fn new(listen: impl Into<String>, root: impl Into<PathBuf>, state_dir: impl Into<PathBuf>) -> ServeOptions {
        ServeOptions {
            listen: listen.into(),
            root: root.into(),
            stored: StoredRoots::default(),
            name: None,
            state_dir: state_dir.into(),
            ticket_file: None,
            advertise: Vec::new(),
            read_only: false,
            transfer_log: None,
            congestion: None,
            memory_bytes: mover::limits::MEMORY_BYTES_MAX,
            buffer: None,
            cache: None,
            crosses_mounts: false,
            confine: false,
            privileges: Privileges::Untouched,
            join: None,
            coordinator: None,
            takes_orders: true,
            metrics: None,
            is_for_one_command: false,
        }
    }
}

impl ServeOptions {
    fn asked(&self) -> Asked<'_> {
        Asked {
            state: &self.state_dir,
            join: self.join.as_deref(),
            coordinator: self.coordinator.as_ref(),
            takes_orders: self.takes_orders,
            hands_out: self.ticket_file.is_some(),
        }
    }
}

/// An endpoint that listens. Dropping it ends its sessions without waiting for them.
pub struct Served {
    local_addr: SocketAddr,
    ticket: Ticket,
    server: Arc<Server>,
    host: Arc<EndpointHost>,
    stopper: Stopper,
    accepting: Option<JoinHandle<Result<()>>>,
    review: Review,
    governor: Arc<Governor>,
    landlock: Landlock,
    _lock: StateLock,
}

fn hand_out(ticket: &Ticket, path: &Path) -> Result<()> {
    write_ticket(path, &ticket.to_text()).map_err(|e| Error::of_file("write ticket", path, e))
}

impl Served {
    /// Starts an endpoint; it answers when this returns.
    pub fn start(options: ServeOptions) -> Result<Served> {
        let log_path = options.transfer_log.clone().unwrap_or_else(|| options.state_dir.join("transfers.jsonl"));
        make_places(&options, &log_path)?;
        let lock = StateLock::take(&options.state_dir)?;
        let root = beneath::open_directory(&options.root).map_err(|e| Error::of_file("open root", &options.root, e))?;
        let identity = paths::identity(&options.state_dir)?;
        let name = own_name(options.name.as_deref())?;
        let (belongs, clients) = Belongs::of(&options.asked(), &identity, &name)?;
        warn_of_clock(&log_path);
        let ledger = options.state_dir.join("ledger.db");
        History::check(&ledger, identity.pin())?;
        let listener = listen(&options)?;
        let local_addr = listener.local_addr();
        let addresses = advertise::addresses(local_addr, &options.advertise)?;
        Announcement { name: name.clone(), addresses: addresses.clone() }.write(&options.state_dir)?;
        let ticket = Ticket { addresses, pin: identity.pin(), credential: clients.credential(), name: name.clone() };
        let contracts = contracts::Held::open(&options.state_dir)?;
        let metrics = options.metrics.as_ref().map(metrics::Metrics::bind).transpose()?;
        let tls = ServerTls::new(&identity).map_err(|e| Error::from_net("identity", &e))?;
        options.ticket_file.as_ref().map_or(Ok(()), |path| hand_out(&ticket, path))?;
        let restricted = privileges::restrict(options.privileges);
        let kept = restricted.map_err(|e| Error::new(Exit::Fatal, format!("give up privileges: {e}")))?;
        remember();
        let memory = Memory::of_endpoint(options.memory_bytes);
        store::posix::host::own();
        let buffer = open_buffer(&options)?;
        let landlock = confine(&options, &root, &log_path);
        let host = Arc::new(EndpointHost {
            events: Arc::new(EventLog::new(&options.state_dir, &name)),
            name,
            is_read_only: options.read_only,
            mounts: if options.crosses_mounts { Mounts::Crossed } else { Mounts::Kept },
            is_for_its_owner: options.is_for_one_command,
            root: Arc::new(root),
            stored: options.stored.clone(),
            cache: open_cache(&options, &identity)?,
            clients,
            gate: Gate::new(connections_max()),
            log: Arc::new(TransferLog::open(&log_path)?),
            history: Arc::new(History::open(&ledger, identity.pin())?),
            jobs: Default::default(),
            pin: identity.pin(),
            hosts: belongs.book(&options.state_dir),
            membership: Default::default(),
            listening: Listening::new(local_addr, &options.advertise),
            taken_back: TakenBack::new(&options.state_dir),
            guests: Default::default(),
            orders: Default::default(),
            buffer,
            roster: Default::default(),
            rates: Rates::new(&options.state_dir),
        });
        let governor = host.rates.govern(contracts, &options.state_dir, host.roster.clone())?;
        // Before jobs of clients are begun: who they are may be somebody else's to say.
        belongs.attend(&host, &ticket)?;
        take_orders(&host, &options, &identity, &memory)?;
        let server = server_of(&host, memory, &options)?;
        let stopper = listener.stopper();
        let accepting = Some(start_accepting(Acceptor::new(tls, server.clone(), host.clone()), listener)?);
        let review = start_review(&server, &host)?;
        metrics.map_or(Ok(()), |metrics| tell_metrics(metrics, &server, &host, &governor))?;
        let served =
            Served { local_addr, ticket, server, host, stopper, accepting, review, governor, landlock, _lock: lock };
        let (name, read_only, landlock) = (served.name(), options.read_only, landlock.word());
        let privileges = if kept.is_empty() { "none".to_owned() } else { kept.join(" ") };
        served.host.events.start("thalweg.serve", &identity.pin().to_string(), json!({}));
        info!(%local_addr, pin = %identity.pin(), name, read_only, landlock, privileges, "serving");
        Ok(served)
    }

    /// What the kernel keeps this process to.
    pub fn landlock(&self) -> Landlock {
        self.landlock
    }

    /// The address listened on, with the port that the kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Secret: it lets any client in.
    pub fn ticket(&self) -> Ticket {
        self.ticket.clone()
    }

    pub fn pin(&self) -> Pin {
        self.ticket.pin
    }

    /// What the endpoint calls itself.
    pub fn name(&self) -> &str {
        &self.ticket.name
    }

    /// For whoever tells others that the endpoint is well.
    pub fn pulse(&self) -> Pulse {
        self.review.pulse()
    }

    /// For whoever asks what it does while it serves.
    pub fn activity(&self) -> Activity {
        Activity { server: self.server.clone(), host: self.host.clone(), governor: self.governor.clone() }
    }

    /// Serves until `stop` is set, then as `shut_down`.
    ///
    /// # Errors
    /// When nothing can be accepted any more, or the rights of those who are here are not looked at any more.
    pub fn run_until(mut self, stop: &AtomicBool, patience: Duration) -> Result<bool> {
        let mut watch = self.review.watch();
        let mut lost = Ok(());
        while !stop.load(Relaxed) && self.accepting.as_ref().is_some_and(|thread| !thread.is_finished()) && lost.is_ok()
        {
            std::thread::park_timeout(FLAG_INTERVAL);
            lost = watch.look(FLAG_INTERVAL);
        }
        let ended = self.stop_accepting().and(lost);
        let is_drained = self.shut_down(patience);
        ended.map(|()| is_drained)
    }

    /// Stops listening, tells the clients, and waits for their sessions and the record of their jobs, at most for
    /// `patience`. True when all ended in time. What is verified is kept either way.
    pub fn shut_down(mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        if let Err(e) = self.stop_accepting() {
            warn!(error = %e, "accepting connections had ended");
        }
        self.server.shut_down();
        self.host.cache.iter().for_each(Cache::end);
        let are_stopped = self.host.orders.get().is_none_or(|orders| orders.stop(deadline));
        let is_closed = self.server.wait_idle(deadline.saturating_duration_since(Instant::now()));
        let is_idle = self.host.wait_jobs(deadline) && is_closed && are_stopped;
        self.host.log.tell_left_out(true);
        let is_idle = self.host.history.close(deadline.max(Instant::now() + HISTORY_PATIENCE_MIN)) && is_idle;
        self.host.events.end("thalweg.serve", &self.pin().to_string(), if is_idle { 0 } else { -1 }, json!({}));
        info!(is_idle, log = self.host.log.head(), "endpoint stopped");
        is_idle
    }

    fn stop_accepting(&mut self) -> Result<()> {
        self.stopper.stop();
        self.review.stop();
        self.host.gate.close();
        match self.accepting.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(Error::new(Exit::Fatal, "the accepting thread failed")),
            None => Ok(()),
        }
    }
}

/// Confined, this process could not ask what users are called.
fn remember() {
    store::posix::owners::remember();
    net::numa::remember();
}

/// The directories that an endpoint keeps, and what it serves, looked at before anything is opened.
fn make_places(options: &ServeOptions, log_path: &Path) -> Result<()> {
    if options.stored.is_empty() {
        check_apart(options, log_path)?;
        return trust::make_private_directory(&options.state_dir);
    }
    trust::make_private_directory(&options.state_dir)?;
    trust::make_private_directory(&options.root)?;
    options.stored.check().map_err(|(name, e)| unusable(&name, &e))
}

fn start_review(server: &Arc<Server>, host: &Arc<EndpointHost>) -> Result<Review> {
    let (reviewed, logged) = (server.clone(), host.clone());
    Review::start(move || {
        logged.log.tell_left_out(false);
        reviewed.review()
    })
}

fn tell_metrics(
    metrics: metrics::Metrics,
    server: &Arc<Server>,
    host: &Arc<EndpointHost>,
    governor: &Arc<Governor>,
) -> Result<()> {
    let governor = Arc::downgrade(governor);
    let allotted = move || governor.upgrade().map_or_else(Vec::new, |governor| governor.allotted());
    metrics.answer(metrics::teller(server, host, allotted))
}

fn take_orders(
    host: &Arc<EndpointHost>,
    options: &ServeOptions,
    identity: &net::Identity,
    memory: &Memory,
) -> Result<()> {
    if !options.takes_orders {
        return Ok(());
    }
    let ground: Arc<dyn Ground> = host.clone();
    let orders = Orders::open(&options.state_dir, Arc::downgrade(&ground), identity.clone(), memory.clone())?;
    orders.start().map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
    let _ = host.orders.set(orders);
    Ok(())
}

/// What an endpoint does at this moment.
pub struct Activity {
    server: Arc<Server>,
    host: Arc<EndpointHost>,
    governor: Arc<Governor>,
}

impl Activity {
    /// Sessions that are open.
    pub fn sessions(&self) -> usize {
        self.server.sessions()
    }

    pub fn jobs(&self) -> Vec<RunningJob> {
        self.host.jobs.running()
    }

    /// What each job may have at this moment, and why.
    pub fn allotted(&self) -> Vec<Allotment> {
        self.governor.allotted()
    }
}

/// From here on the clock may not go back for tickets; where it stood is all that is known from before.
fn warn_of_clock(log: &Path) {
    let now = time::now_or_later();
    let written = std::fs::metadata(log).and_then(|log| log.modified());
    let Ok(behind) = written.and_then(|at| at.duration_since(now).map_err(std::io::Error::other)) else { return };
    if behind > CLOCK_TOLERANCE {
        warn!(
            seconds = behind.as_secs(),
            "the clock is behind the last line of the transfer log: until it is corrected, expired tickets may be valid again"
        );
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.stop_accepting();
        if let Some(orders) = self.host.orders.get() {
            orders.stop(Instant::now());
        }
        self.server.shut_down();
    }
}

/// An endpoint that cannot be confined serves nevertheless: paths are guarded without it.
fn confine(options: &ServeOptions, root: &OwnedFd, log: &Path) -> Landlock {
    // Stores are reached over the network, with keys and certificates from all over the host; no path leads to files here.
    if !options.confine || !options.stored.is_empty() {
        return Landlock::Off;
    }
    let mut own = vec![options.state_dir.as_path()];
    own.extend(options.buffer.iter().map(|(path, _)| path.as_path()));
    own.extend(log.parent().filter(|directory| !directory.starts_with(&options.state_dir)));
    sandbox::seclude(Left::ReadAndWrite(root.as_fd(), &own), options.takes_orders || options.cache.is_some())
        .unwrap_or_else(|e| {
            warn!(error = %e, "landlock cannot be set up");
            Landlock::Off
        })
}

fn unusable(name: &str, e: &store::OpenError) -> Error {
    let mut error = Error::from(transfer::Error::from_open(e));
    error.message = format!("the root {name}: {}", error.message);
    error
}

fn open_cache(options: &ServeOptions, identity: &net::Identity) -> Result<Option<Cache>> {
    let open = |wanted| Cache::open(&options.root, wanted, identity, &options.state_dir);
    options.cache.as_ref().map(open).transpose()
}

/// Opens the place where what clients send may wait. Clients reach it no other way.
fn open_buffer(options: &ServeOptions) -> Result<Option<Arc<Spool>>> {
    check_left(options)?;
    let Some((path, bytes)) = &options.buffer else { return note_buffer(options).map(|()| None) };
    let (real, root) = (real_path(path)?, real_path(&options.root)?);
    if real.starts_with(&root) || root.starts_with(&real) {
        let message = format!("the buffer {} and the root {} overlap", shown(&real), shown(&root));
        return Err(Error::new(Exit::Refused, message).hint("name another directory with --buffer"));
    }
    let spool = Spool::open(path, *bytes).map_err(|e| Error::new(Exit::Refused, e.to_string()))?;
    note_buffer(options).map(|()| Some(spool))
}

/// What waits in the buffer that the endpoint had before was promised to clients, and nobody else delivers it.
fn check_left(options: &ServeOptions) -> Result<()> {
    let Some(before) = buffer_of(&options.state_dir)? else { return Ok(()) };
    let is_it = |(path, _): &(PathBuf, u64)| real_path(path).ok() == real_path(&before).ok();
    let is_left = || store::spool::look(&before).is_ok_and(|look| !look.owners.is_empty());
    if options.buffer.as_ref().is_some_and(is_it) || !is_left() {
        return Ok(());
    }
    let before = shown(&before);
    let message = format!("the buffer {before} of this endpoint holds what is not delivered yet");
    let hint = format!("serve with `--buffer {before}:SIZE` until it is delivered, or dropped (`thalweg buffer drop`)");
    Err(Error::new(Exit::Refused, message).hint(hint))
}

fn start_accepting(acceptor: Acceptor, listener: Listener) -> Result<JoinHandle<Result<()>>> {
    let spawned = std::thread::Builder::new().name("accept".into()).spawn(move || acceptor.run(listener));
    spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))
}

/// Notes where the buffer is, for `thalweg buffer`.
fn note_buffer(options: &ServeOptions) -> Result<()> {
    let (path, note) = (options.buffer.as_ref().map(|(path, _)| path), options.state_dir.join(BUFFER_NOTE));
    let noted = match path {
        Some(path) => std::path::absolute(path).and_then(|path| std::fs::write(&note, path.as_os_str().as_bytes())),
        None => std::fs::remove_file(&note).or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) }),
    };
    noted.map_err(|e| Error::of_file("write", &note, e))
}

/// Where the endpoint of a state directory has its buffer.
pub fn buffer_of(state_dir: &Path) -> Result<Option<PathBuf>> {
    let note = state_dir.join(BUFFER_NOTE);
    match std::fs::read(&note) {
        Ok(path) => Ok(Some(PathBuf::from(OsString::from_vec(path)))),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::of_file("read", &note, e)),
    }
}

fn server_of(host: &Arc<EndpointHost>, memory: Memory, options: &ServeOptions) -> Result<Arc<Server>> {
    let server = Server::new(host.clone(), memory);
    if options.congestion.is_some() {
        server.keep_congestion();
    }
    server.start_draining().map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
    Ok(server)
}

fn listen(options: &ServeOptions) -> Result<Listener> {
    let failed = |e: net::Error| Error::from_net("serve", &e);
    let mut listener = Listener::bind(&options.listen).map_err(|e| match e.kind {
        net::ErrorKind::NameNotResolved => failed(e).hint("listen on an address of this host, or on all: '[::]:7740'"),
        _ => failed(e),
    })?;
    if let Some(congestion) = &options.congestion {
        listener.set_congestion(congestion).map_err(failed)?;
    }
    Ok(listener)
}

/// Refuses a root that holds, or lies in, what the endpoint keeps for itself: whoever may write to such a root could
/// enrol clients, and whoever may read it would find the key.
fn check_apart(options: &ServeOptions, log: &Path) -> Result<()> {
    let root = std::fs::canonicalize(&options.root).map_err(|e| Error::of_file("open root", &options.root, e))?;
    let state = real_path(&options.state_dir)?;
    if root.starts_with(&state) || state.starts_with(&root) {
        let message = format!("the root {} and the state directory {} overlap", shown(&root), shown(&state));
        return Err(Error::new(Exit::Refused, message).hint("name another directory with --root or --state-dir"));
    }
    if !options.is_for_one_command {
        warn_of_others(&root);
    }
    let mut files = vec![("the transfer log", real_path(log)?)];
    if let Some(ticket) = &options.ticket_file {
        files.push(("the ticket", real_path(ticket)?));
    }
    for (what, path) in files {
        if path.starts_with(&root) {
            let message = format!("{what} {} would be inside the root, where clients can reach it", shown(&path));
            return Err(Error::new(Exit::Refused, message).hint("name a file outside the root"));
        }
    }
    Ok(())
}

/// Says it where local users may put into the root what clients are given, or may put another in its place.
fn warn_of_others(root: &Path) {
    let checked = std::fs::metadata(root).is_ok_and(|found| found.mode() & 0o002 == 0);
    if !checked {
        warn!(root = %shown(root), "every user of this host may write to the root: `chmod o-w` it unless that is intended");
    }
    if let Err(e) = trust::check_way("the root", root) {
        warn!("{}; its owner decides what clients see", e.message);
    }
}

/// Where a path leads, of which the last components need not be there yet.
pub fn real_path(path: &Path) -> Result<PathBuf> {
    let failed = |e| Error::of_file("open", path, e);
    let whole = std::path::absolute(path).map_err(failed)?;
    let mut missing = Vec::new();
    let mut at = whole.as_path();
    loop {
        match (std::fs::canonicalize(at), at.parent(), at.file_name()) {
            (Ok(found), ..) => return Ok(missing.iter().rev().fold(found, |path, name| path.join(name))),
            (Err(e), Some(parent), Some(name)) if e.kind() == ErrorKind::NotFound => {
                missing.push(name);
                at = parent;
            }
            (Err(e), ..) => return Err(failed(e)),
        }
    }
}

/// What the user said, or the host's name.
pub fn own_name(said: Option<&str>) -> Result<String> {
    if let Some(name) = said {
        let is_fit = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
        let wrong = || Error::new(Exit::Usage, "a name has 1 to 64 bytes and no control characters");
        return if is_fit { Ok(name.to_owned()) } else { Err(wrong()) };
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|c| c.is_ascii_graphic()).take(NAME_BYTES_MAX).collect();
    Ok(if host.is_empty() { "endpoint".to_owned() } else { host })
}
