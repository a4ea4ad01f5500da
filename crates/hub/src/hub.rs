//! The handle of a hub: what can be asked of it, by whom, and how it starts and ends.
//!
//! Clones share one hub. Calls block: until the change is durable, or until the database has answered.
//!
//! Not here: how those who ask are known (`api`).

use crate::access::{Access, Principal};
use crate::audit::Deed;
use crate::channels::Channels;
use crate::courier::Word;
use crate::crews::Crews;
use crate::events::{Missed, Ring};
use crate::figures::Figures;
use crate::outbox::{Posting, Tell};
use crate::owner::{Command, Owner, Reply};
use crate::reader::{EndpointView, FailureView, Filter, Health, JobView, LiveJobs, Page, Reader};
use crate::retention::Keep;
use crate::samples::{Samples, Total, Watch};
use crate::series::Series;
use crate::store::Store;
use crate::subscription::Subscription;
use crate::{Error, Result};
use daemon::endpoints::Replace;
use daemon::hand_in::Desk;
use daemon::{EndpointBook, Paths, StateLock, Ticket, enrol};
use model::name::Escaped;
use model::{Exit, JobId};
use net::Identity;
use queue::{Limits, Now, Status, Verb};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Commands and words of couriers that wait for the owner.
const WAITING_MAX: usize = 4096;
/// Events of one job that are told at once.
const PAST_MAX: usize = 200;

/// Not shown: channels have secrets.
#[derive(Clone)]
pub struct Options {
    pub state_dir: PathBuf,
    pub limits: Limits,
    pub channels: Channels,
    pub keep: Keep,
}

impl Options {
    pub fn new(state_dir: PathBuf) -> Options {
        Options { state_dir, limits: Limits::default(), channels: Channels::default(), keep: Keep::default() }
    }
}

#[derive(Clone)]
pub struct Hub {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) commands: SyncSender<Command>,
    pub(crate) reader: Arc<Reader>,
    ring: Arc<Ring>,
    live: LiveJobs,
    book: EndpointBook,
    identity: Identity,
    generation_from: i64,
    pub(crate) samples: Samples,
    /// The last count, for whoever asks again soon.
    pub(crate) figures: Mutex<Option<Figures>>,
    pub(crate) access: Arc<Access>,
    state_dir: PathBuf,
    owner: Mutex<Option<JoinHandle<()>>>,
    _lock: StateLock,
}

impl Hub {
    /// Takes the state directory, reads the queue, and goes on where the hub before it ended.
    pub fn start(options: Options) -> Result<Hub> {
        let paths = Paths::from_env()?.with_state(Some(options.state_dir.clone()));
        let identity = paths.identity()?;
        let lock = StateLock::take(&options.state_dir)?;
        let store = Store::open(&options.state_dir)?;
        let book = EndpointBook::new(options.state_dir.join("endpoints"));
        let (ring, live) = (Ring::starting_after(store.last_event), LiveJobs::default());
        let generation_from = store.generation_from;
        let access = Arc::new(Access::open(&options.state_dir)?);
        let (commands, incoming) = sync_channel(WAITING_MAX);
        let (words, heard) = sync_channel::<Word>(WAITING_MAX);
        let failed = |e: std::io::Error| Error::new(Exit::Failed, format!("no thread for the hub: {e}"));
        let heard_of = commands.clone();
        let tell: Arc<Tell> = Arc::new(move |outcome| {
            // A hub that ends does not listen any more.
            let _ = heard_of.send(Command::Posted(outcome));
        });
        let posting = Posting::start(options.channels, &tell).map_err(failed)?;
        let crews = Crews::new(book.clone(), identity.clone(), &options.state_dir);
        let owner = Owner::new(
            store,
            posting,
            access.clone(),
            options.limits,
            options.keep,
            book.clone(),
            identity.clone(),
            crews,
            ring.clone(),
            live.clone(),
            incoming,
            words,
        )?;
        let passing = commands.clone();
        std::thread::Builder::new().name("words".into()).spawn(move || pass_on(&heard, &passing)).map_err(failed)?;
        let owner = std::thread::Builder::new().name("hub".into()).spawn(move || owner.run()).map_err(failed)?;
        let reader = Arc::new(Reader::new(&options.state_dir));
        let samples = Samples::start(&options.state_dir, live.clone(), reader.clone()).map_err(failed)?;
        let (owner, state_dir) = (Mutex::new(Some(owner)), options.state_dir);
        let inner = Inner {
            commands,
            reader,
            ring,
            live,
            book,
            identity,
            generation_from,
            samples,
            figures: Mutex::default(),
            access,
            state_dir,
            owner,
            _lock: lock,
        };
        Ok(Hub { inner: Arc::new(inner) })
    }

    /// Ends in order. What endpoints were given goes on.
    pub fn stop(&self) {
        let _ = self.inner.commands.send(Command::Stop);
        let owner = self.inner.owner.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(owner) = owner {
            let _ = owner.join();
        }
        self.inner.samples.stop();
    }

    /// A page of jobs, from the newest on, behind a cursor that an earlier page named.
    pub fn list(&self, who: &Principal, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
        let mut filter = filter.clone();
        if !who.is_admin() {
            // What somebody else's name would show is nothing of this one's.
            if filter.owner.as_ref().is_some_and(|owner| *owner != who.name) {
                return Ok(Page { jobs: Vec::new(), next: None });
            }
            filter.owner = Some(who.name.clone());
        }
        let mut page = self.inner.reader.page(&filter, after, limit)?;
        self.enliven(&mut page.jobs)?;
        Ok(page)
    }

    pub fn show(&self, who: &Principal, id: JobId) -> Result<JobView> {
        let found = self.inner.reader.job(id)?.filter(|job| who.is_admin() || job.owner == who.name);
        let mut jobs = vec![found.ok_or_else(no_such_job)?];
        self.enliven(&mut jobs)?;
        jobs.pop().ok_or_else(no_such_job)
    }

    pub fn failures(&self, who: &Principal, id: JobId, after: u64, limit: usize) -> Result<Vec<FailureView>> {
        self.show(who, id)?;
        self.inner.reader.failures(id, after, limit)
    }

    /// Steers a job; with a version, only if it is still that one.
    pub fn steer(&self, who: &Principal, id: JobId, verb: Verb, version: Option<u64>) -> Result<()> {
        self.show(who, id)?;
        let begins = !who.is_admin() && matches!(verb, Verb::Resume | Verb::Retry);
        self.carry_out(
            &who.name,
            verb.word(),
            move |_| id.to_string(),
            move |owner, now| {
                // What ran once may not be allowed any more.
                if begins && let Some(wish) = owner.wish_of(id)? {
                    owner.access.check_owner(&wish)?;
                }
                owner.steer(now, id, verb, version)
            },
        )
    }

    /// Changes an open job's `rate`, `class` or `priority`; with a version, only if it is still that one. A running job has the
    /// other rate within a second; another class counts in the queue at once, and its order begins anew with it.
    pub fn change(&self, who: &Principal, id: JobId, changes: Map<String, Value>, version: Option<u64>) -> Result<()> {
        self.show(who, id)?;
        let target = format!("{id} {}", Value::Object(changes.clone()));
        self.carry_out(&who.name, "change", move |_| target, move |owner, now| owner.change(now, id, &changes, version))
    }

    /// The events behind one, and all that follow: of one's own jobs, or of all for an administrator. Without a number, from now on.
    pub fn events(&self, who: &Principal, after: Option<i64>) -> Result<std::result::Result<Subscription, Missed>> {
        let last = self.inner.ring.last();
        let after = after.unwrap_or(last);
        let (is_there, oldest) = self.inner.reader.has_event(after)?;
        let is_known =
            is_there || after == last || after == 0 || (after >= self.inner.generation_from && after <= last);
        if !is_known || after > last || (after > 0 && after + 1 < oldest) {
            return Ok(Err(Missed { last }));
        }
        let owner = (!who.is_admin()).then(|| who.name.clone());
        Ok(Ok(Subscription::new(self.inner.ring.clone(), self.inner.reader.clone(), owner, after)))
    }

    /// The rate of a job since it began.
    pub fn samples(&self, who: &Principal, id: JobId) -> Result<Series> {
        self.show(who, id)?;
        Ok(self.inner.samples.of_job(id))
    }

    /// The rate of everything, for those who may see everything.
    pub fn total_samples(&self, who: &Principal) -> Result<Vec<Total>> {
        match who.is_admin() {
            true => Ok(self.inner.samples.total()),
            false => Err(Error::new(Exit::Refused, "only an administrator sees the rate of all jobs")
                .hint("the own jobs' rates are told with the events")),
        }
    }

    /// What runs, second by second.
    pub fn watch(&self, who: &Principal) -> Watch {
        self.inner.samples.watch((!who.is_admin()).then(|| who.name.clone()))
    }

    /// What happened to a job, the oldest first.
    pub fn past(&self, who: &Principal, id: JobId) -> Result<Vec<serde_json::Value>> {
        self.show(who, id)?;
        self.inner.reader.past(id, PAST_MAX)
    }

    /// Waits for an event behind one, for so long; the number of the newest, and nothing when the hub ends.
    pub fn wait_for_event(&self, after: i64, wait: Duration) -> Option<i64> {
        self.inner.ring.wait(after, wait)
    }

    /// One's own open jobs by status, or everybody's for an administrator.
    pub fn counts(&self, who: &Principal) -> Result<Vec<(String, u64)>> {
        self.inner.reader.counts((!who.is_admin()).then_some(&who.name[..]))
    }

    /// The endpoints that somebody may use somehow.
    pub fn endpoints(&self, who: &Principal) -> Result<Vec<EndpointView>> {
        let mut health: HashMap<String, Health> =
            self.look(|owner| owner.queue.endpoints().map(|state| (state.name.to_owned(), state.into())).collect())?;
        let view = |endpoint: daemon::Endpoint| EndpointView {
            health: health.remove(&endpoint.name).unwrap_or_default(),
            name: endpoint.name,
            addresses: endpoint.addresses,
            pin: endpoint.pin.to_string(),
        };
        let mut known = self.inner.book.list()?;
        known.retain(|endpoint| self.inner.access.knows_endpoint(who, &endpoint.name));
        Ok(known.into_iter().map(view).collect())
    }

    /// Redeems a ticket: the hub is the endpoint's client from then on.
    pub fn add_endpoint(&self, who: &Principal, name: &str, ticket: &str, replace: bool) -> Result<EndpointView> {
        let enrolled = self.enrol(who, name, ticket, replace);
        let endpoint = self.record(who, "endpoint add", name, enrolled)?;
        let name = name.to_owned();
        self.look(move |owner| owner.courier(&name).look())?;
        Ok(endpoint)
    }

    fn enrol(&self, who: &Principal, name: &str, ticket: &str, replace: bool) -> Result<EndpointView> {
        only_admin(who)?;
        let ticket =
            Ticket::parse(ticket).map_err(|e| Error::new(Exit::Usage, format!("the ticket: {e}")).hint(e.hint()))?;
        let replace = if replace { Replace::Always } else { Replace::SameIdentity };
        let endpoint = enrol(&ticket, name, &self.inner.identity, &self.inner.book, replace)?.endpoint;
        let (health, pin) = (Health::default(), endpoint.pin.to_string());
        Ok(EndpointView { name: endpoint.name, addresses: endpoint.addresses, pin, health })
    }

    pub fn state_dir(&self) -> &Path {
        &self.inner.state_dir
    }

    pub fn pin(&self) -> String {
        self.inner.identity.pin().to_string()
    }

    /// With what is known at this moment.
    fn enliven(&self, jobs: &mut [JobView]) -> Result<()> {
        let id_of = |job: &JobView| JobId::from_hex(&job.id);
        let queued =
            jobs.iter().filter(|job| job.status == Status::Queued.word()).filter_map(id_of).collect::<Vec<_>>();
        let why = match queued.is_empty() {
            true => HashMap::new(),
            false => {
                self.look(move |owner| queued.into_iter().filter_map(|id| Some((id, owner.queue.why(id)?))).collect())?
            }
        };
        for job in jobs {
            let Some(id) = id_of(job) else { continue };
            let before = self.inner.samples.last(id);
            let live = self.inner.live.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
            job.enliven(live.filter(|_| job.code.is_none()), &before, why.get(&id));
        }
        Ok(())
    }

    /// Changes something on the owner's thread, and answers when that is durable. What was done, or why not, is in the audit log.
    pub(crate) fn carry_out<T: Send + 'static>(
        &self,
        who: &str,
        action: &'static str,
        target: impl FnOnce(&Result<T>) -> String + Send + 'static,
        change: impl FnOnce(&mut Owner, Now) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let who = who.to_owned();
        self.send(Command::Change(Box::new(move |owner, now| {
            let outcome = change(owner, now);
            owner.note_deed(now, &who, Deed::new(&who, action, &target(&outcome), &outcome));
            Box::new(move |failed| drop(reply.try_send(failed.map_or(outcome, |e| Err(e.clone())))))
        })))?;
        answer.recv().map_err(|_| ended())?
    }

    /// Done elsewhere already, or refused: that is in the audit log before it is answered. Where the log cannot be written, what was done
    /// holds all the same, and has its line as soon as it can be.
    pub(crate) fn record<T>(
        &self,
        who: &Principal,
        action: &'static str,
        target: &str,
        outcome: Result<T>,
    ) -> Result<T> {
        let (reply, answer) = sync_channel::<Option<Error>>(1);
        let reply: Reply = Box::new(move |failed| drop(reply.try_send(failed.cloned())));
        let told = self.send(Command::Done(Deed::new(&who.name, action, target, &outcome), reply));
        match told.and_then(|()| answer.recv().map_err(|_| ended())) {
            Ok(None) => outcome,
            Ok(Some(e)) | Err(e) => outcome.and_then(|_| Err(holds(action, e))),
        }
    }

    /// The session with an endpoint that orders go over as well.
    pub(crate) fn desk(&self, endpoint: &str) -> Result<Arc<Desk>> {
        if !self.inner.book.has(endpoint) {
            let text = format!("the hub knows no endpoint {}", Escaped(endpoint.as_bytes()));
            return Err(Error::new(Exit::SourceFileNotFound, text).hint("`thalweg endpoint ls` lists them"));
        }
        let name = endpoint.to_owned();
        self.look(move |owner| owner.courier(&name))?.desk()
    }

    /// Looks at something on the owner's thread.
    pub(crate) fn look<T: Send + 'static>(&self, look: impl FnOnce(&mut Owner) -> T + Send + 'static) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        self.send(Command::Change(Box::new(move |owner, _| {
            drop(reply.try_send(look(owner)));
            Box::new(|_| {})
        })))?;
        answer.recv().map_err(|_| ended())
    }

    fn send(&self, command: Command) -> Result<()> {
        self.inner.commands.send(command).map_err(|_| ended())
    }
}

fn ended() -> Error {
    Error::new(Exit::Temporary, "the hub is ending, or cannot read its database")
        .hint("try again; if this persists, look at the hub's log")
}

/// Said of what was done and could not be written into the audit log.
fn holds(action: &str, e: Error) -> Error {
    let message = format!("`{action}` was done and holds, but the audit log cannot be written: {}", e.message);
    let hint = "its line follows when the log can be written again, if the hub runs until then; remove a token that \
        was made and not shown";
    Error { message, ..e }.hint(hint)
}

fn pass_on(heard: &Receiver<Word>, commands: &SyncSender<Command>) {
    while let Ok(word) = heard.recv() {
        if commands.send(Command::Heard(word)).is_err() {
            break;
        }
    }
}

pub(crate) fn only_admin(who: &Principal) -> Result<()> {
    match who.is_admin() {
        true => Ok(()),
        false => Err(Error::new(Exit::Refused, "only an administrator may do this").hint("ask whoever runs the hub")),
    }
}

/// The answer to what is not there and to what is somebody else's.
fn no_such_job() -> Error {
    Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("`thalweg job ls` lists them")
}
