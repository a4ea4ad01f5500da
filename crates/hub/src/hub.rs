//! The handle of a hub: what can be asked of it, by whom, and how it starts and ends.
//!
//! Clones share one hub. Calls block: until the change is durable, or until the database has answered.
//!
//! Not here: how those who ask are known (`api`).

use crate::access::{Access, Principal, RuleView, Scopes};
use crate::courier::Word;
use crate::events::{Missed, Ring};
use crate::job_file::{BODY_BYTES_MAX, JobFile};
use crate::owner::{After, Command, Owner, Submission};
use crate::reader::{EndpointView, FailureView, Filter, JobView, LiveJobs, PAGE_MAX, Page, Reader};
use crate::store::Store;
use crate::subscription::Subscription;
use crate::{Error, Result};
use daemon::endpoints::Replace;
use daemon::{EndpointBook, Paths, StateLock, Ticket, enrol};
use model::{Exit, JobId};
use net::Identity;
use queue::{Limits, Status, Verb};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Jobs of one batch.
pub const BATCH_JOBS_MAX: usize = 10_000;
/// Commands and words of couriers that wait for the owner.
const WAITING_MAX: usize = 4096;
const KEY_BYTES_MAX: usize = 128;

#[derive(Clone, Debug)]
pub struct Options {
    pub state_dir: PathBuf,
    pub limits: Limits,
}

impl Options {
    pub fn new(state_dir: PathBuf) -> Options {
        Options { state_dir, limits: Limits::default() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    New,
    /// It was there already: by its key, or as an open job that asks for the same.
    Known,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Submitted {
    pub id: JobId,
    pub taken: Taken,
}

#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    commands: SyncSender<Command>,
    reader: Arc<Reader>,
    ring: Arc<Ring>,
    live: LiveJobs,
    book: EndpointBook,
    identity: Identity,
    generation_from: i64,
    access: Access,
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
        let access = Access::open(&options.state_dir)?;
        let (commands, incoming) = sync_channel(WAITING_MAX);
        let (words, heard) = sync_channel::<Word>(WAITING_MAX);
        let owner = Owner::new(
            store,
            options.limits,
            book.clone(),
            identity.clone(),
            ring.clone(),
            live.clone(),
            incoming,
            words,
        )?;
        let failed = |e: std::io::Error| Error::new(Exit::Failed, format!("no thread for the hub: {e}"));
        let passing = commands.clone();
        std::thread::Builder::new().name("words".into()).spawn(move || pass_on(&heard, &passing)).map_err(failed)?;
        let owner = std::thread::Builder::new().name("hub".into()).spawn(move || owner.run()).map_err(failed)?;
        let reader = Arc::new(Reader::new(&options.state_dir));
        let (owner, state_dir) = (Mutex::new(Some(owner)), options.state_dir);
        let inner = Inner {
            commands,
            reader,
            ring,
            live,
            book,
            identity,
            generation_from,
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
    }

    /// Durable when this returns. The same key with the same job is the same job.
    pub fn submit(&self, who: &Principal, file: JobFile, key: Option<&str>) -> Result<Submitted> {
        let mut taken = self.take(who, vec![file], key)?;
        taken.pop().ok_or_else(|| Error::new(Exit::Fatal, "no answer for a job"))
    }

    /// All of them or none; in the order given. With a key, each has it with its position.
    pub fn batch(&self, who: &Principal, files: Vec<JobFile>, key: Option<&str>) -> Result<Vec<Submitted>> {
        if files.is_empty() {
            return Err(wrong("a batch without a job", "write one JSON object a line"));
        }
        if files.len() > BATCH_JOBS_MAX {
            return Err(wrong(format!("a batch of {} jobs is too large", files.len()), "give at most 10,000 at once"));
        }
        self.take(who, files, key)
    }

    fn take(&self, who: &Principal, files: Vec<JobFile>, key: Option<&str>) -> Result<Vec<Submitted>> {
        if key.is_some_and(|key| key.is_empty() || key.len() > KEY_BYTES_MAX) {
            return Err(wrong("a key has 1 to 128 bytes", "a random word is best"));
        }
        let is_batch = files.len() > 1;
        let order = in_order(&files)?;
        let mut place = vec![0; files.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
        let names: HashMap<&str, usize> =
            files.iter().enumerate().filter_map(|(at, file)| Some((file.name.as_deref()?, at))).collect();
        let mut jobs = Vec::with_capacity(files.len());
        for old in &order {
            let file = &files[*old];
            let at =
                |e: Error| if is_batch { Error { message: format!("job {}: {}", old + 1, e.message), ..e } } else { e };
            let wish = file.wish(&who.name).map_err(at)?;
            if !who.is_admin() {
                self.inner.access.check(&who.name, &wish).map_err(at)?;
            }
            let body = serde_json::to_string(file).unwrap_or_default();
            if body.len() > BODY_BYTES_MAX {
                return Err(wrong("the job is larger than 256 KiB", "list fewer paths in one job"));
            }
            let mut after = Vec::new();
            for text in &file.after {
                after.push(match (names.get(text.as_str()), JobId::from_hex(text)) {
                    (Some(position), _) => After::Here(place[*position]),
                    (None, Some(id)) => After::Job(id),
                    (None, None) => {
                        return Err(at(wrong(
                            format!("after = {text:?} is neither the id of a job nor the name of one here"),
                            "`thalweg job ls` lists the ids",
                        )));
                    }
                });
            }
            let digest = net::sha256(body.as_bytes());
            let key = key.map(|key| if is_batch { format!("{key}#{old}") } else { key.to_owned() });
            let key = key.map(|key| (key, digest));
            jobs.push(Submission { owner: who.name.clone(), file: file.clone(), wish, body, key, after });
        }
        let taken = self.ask(|reply| Command::Submit { jobs, reply })??;
        let of = |new: usize| {
            let (id, is_new) = taken[new];
            Submitted { id, taken: if is_new { Taken::New } else { Taken::Known } }
        };
        Ok(place.into_iter().map(of).collect())
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
        let job = self.show(who, id)?;
        // What ran once may not be allowed any more.
        if !who.is_admin() && matches!(verb, Verb::Resume | Verb::Retry) {
            self.inner.access.check(&job.owner, &JobFile::from_value(job.job)?.wish(&job.owner)?)?;
        }
        self.ask(|reply| Command::Steer { id, verb, version, reply })?
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
        let view = |endpoint: daemon::Endpoint| EndpointView {
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
        only_admin(who)?;
        let ticket =
            Ticket::parse(ticket).map_err(|e| Error::new(Exit::Usage, format!("the ticket: {e}")).hint(e.hint()))?;
        let replace = if replace { Replace::Always } else { Replace::SameIdentity };
        let enrolled = enrol(&ticket, name, &self.inner.identity, &self.inner.book, replace)?;
        let _ = self.inner.commands.send(Command::Look { endpoint: name.to_owned() });
        let endpoint = enrolled.endpoint;
        Ok(EndpointView { name: endpoint.name, addresses: endpoint.addresses, pin: endpoint.pin.to_string() })
    }

    /// Tokens and rules.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }

    /// Cancels what rules do not allow any more of somebody's open jobs, those that run included.
    pub fn review(&self, owner: &str) -> Result<usize> {
        if self.inner.access.is_admin(owner) {
            return Ok(0);
        }
        let filter = Filter { owner: Some(owner.to_owned()), is_open: true, ..Filter::default() };
        let (mut cancelled, mut after) = (0, None);
        loop {
            let page = self.inner.reader.page(&filter, after, PAGE_MAX)?;
            for job in &page.jobs {
                let allowed = JobFile::from_value(job.job.clone())
                    .and_then(|file| self.inner.access.check(owner, &file.wish(owner)?));
                if let (Err(_), Some(id)) = (allowed, JobId::from_hex(&job.id)) {
                    let verb = Verb::Cancel;
                    // It may have ended meanwhile.
                    let steered = self.ask(|reply| Command::Steer { id, verb, version: None, reply })?;
                    cancelled += usize::from(steered.is_ok());
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(cancelled);
            }
        }
    }

    pub fn add_token(&self, who: &Principal, name: &str, scopes: Scopes, lifetime: Duration) -> Result<String> {
        only_admin(who)?;
        self.inner.access.new_token(name, scopes, lifetime)
    }

    /// Withdraws a token with its rules; what its jobs may not do then ends.
    pub fn remove_token(&self, who: &Principal, name: &str) -> Result<usize> {
        only_admin(who)?;
        self.inner.access.remove_token(name)?;
        self.review(&format!("token:{name}"))
    }

    pub fn add_rule(&self, who: &Principal, text: &str) -> Result<RuleView> {
        only_admin(who)?;
        self.inner.access.add_rule(text)
    }

    /// Withdraws a rule; what jobs of whom it was for may not do then ends.
    pub fn remove_rule(&self, who: &Principal, id: u64) -> Result<usize> {
        only_admin(who)?;
        let owner = self.inner.access.remove_rule(id)?;
        self.review(&owner)
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
            false => self.ask(|reply| Command::Why { ids: queued, reply })?,
        };
        let live = self.inner.live.lock().unwrap_or_else(PoisonError::into_inner);
        for job in jobs {
            let Some(id) = id_of(job) else { continue };
            job.enliven(live.get(&id).copied().filter(|_| job.code.is_none()), why.get(&id));
        }
        Ok(())
    }

    fn ask<T>(&self, make: impl FnOnce(SyncSender<T>) -> Command) -> Result<T> {
        let ended = || Error::new(Exit::Temporary, "the hub is ending").hint("try again when it runs");
        let (reply, answer) = sync_channel(1);
        self.inner.commands.send(make(reply)).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())
    }
}

fn pass_on(heard: &Receiver<Word>, commands: &SyncSender<Command>) {
    while let Ok(word) = heard.recv() {
        if commands.send(Command::Heard(word)).is_err() {
            break;
        }
    }
}

fn wrong(text: impl Into<String>, hint: &str) -> Error {
    Error::new(Exit::Usage, text).hint(hint)
}

fn only_admin(who: &Principal) -> Result<()> {
    match who.is_admin() {
        true => Ok(()),
        false => Err(Error::new(Exit::Refused, "only an administrator may do this").hint("ask whoever runs the hub")),
    }
}

/// The answer to what is not there and to what is somebody else's.
fn no_such_job() -> Error {
    Error::new(Exit::SourceFileNotFound, "the hub has no job of this id").hint("`thalweg job ls` lists them")
}

/// Positions, those that others come after before them.
fn in_order(files: &[JobFile]) -> Result<Vec<usize>> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for (at, file) in files.iter().enumerate() {
        if let Some(name) = &file.name
            && names.insert(name, at).is_some()
        {
            return Err(wrong(format!("two jobs of the batch are called {name}"), "give each a name of its own"));
        }
    }
    let mut left: Vec<usize> = vec![0; files.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); files.len()];
    for (at, file) in files.iter().enumerate() {
        for before in file.after.iter().filter_map(|name| names.get(name.as_str())) {
            left[at] += 1;
            followers[*before].push(at);
        }
    }
    let mut order: Vec<usize> = (0..files.len()).filter(|at| left[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for follower in &followers[at] {
            left[*follower] -= 1;
            if left[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    if order.len() == files.len() {
        return Ok(order);
    }
    let in_loop: Vec<&str> = files
        .iter()
        .zip(&left)
        .filter(|(_, left)| **left > 0)
        .filter_map(|(file, _)| file.name.as_deref())
        .take(5)
        .collect();
    Err(wrong(format!("jobs come after each other in a loop: {}", in_loop.join(", ")), "no job can come after itself"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, after: &[&str]) -> JobFile {
        let mut file = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap();
        file.name = Some(name.to_owned());
        file.after = after.iter().map(|name| (*name).to_owned()).collect();
        file
    }

    #[test]
    fn a_batch_is_put_in_order_and_a_loop_is_refused() {
        assert_eq!(in_order(&[file("c", &["b"]), file("b", &["a"]), file("a", &[])]).unwrap(), [2, 1, 0]);
        let refused = in_order(&[file("a", &["b"]), file("b", &["a"]), file("c", &[])]).unwrap_err();
        assert!(refused.message.contains("in a loop: a, b"), "{refused:?}");
        assert!(in_order(&[file("a", &["a"])]).unwrap_err().message.contains("loop"));
        assert!(in_order(&[file("a", &[]), file("a", &[])]).unwrap_err().message.contains("two jobs"));
    }
}
