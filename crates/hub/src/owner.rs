//! The one thread that owns the queue and the database: takes what came, changes the queue, writes it down, then answers and acts.
//!
//! Invariants:
//! - Nothing is answered, told or done before the transaction that holds it is durable.
//! - After a transaction that failed, the queue is read back from the database: what was not written down did not happen.
//! - What an endpoint says of an order counts for the attempt that the order was given for, and for no other.

use crate::courier::{Census, Courier, Errand, Word};
use crate::events::Ring;
use crate::job_file::{JobFile, Wish};
use crate::order::{self, answer, failures, order_id, report};
use crate::reader::{Health, Live, LiveJobs};
use crate::refusal::refused;
use crate::retention::{Keep, SWEEP_PAUSE, Sweep};
use crate::store::{Group, Key, NewJob, Report, Store};
use crate::windows::Almanac;
use crate::{Error, Result, unix_ms};
use daemon::EndpointBook;
use daemon::hand_in::Told;
use model::order::{Kind, Role};
use model::{Exit, JobId};
use net::Identity;
use queue::{Action, Answer, Job, Limits, Now, Queue, Reason, Status, Verb};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// What is taken in before it is written down together.
const GROUP_MAX: usize = 512;
/// The calendar is looked at this often, whatever it does meanwhile.
const TICK: Duration = Duration::from_secs(1);
/// An order that waits for credentials longer than this after its last warrant gets another: they hold for a day.
const RENEWED_MAX: Duration = Duration::from_secs(3600);
/// After a transaction that failed.
const PAUSE: Duration = Duration::from_secs(1);

pub enum Command {
    Submit {
        jobs: Vec<Submission>,
        reply: SyncSender<Result<Vec<(JobId, bool)>>>,
    },
    Steer {
        id: JobId,
        verb: Verb,
        version: Option<u64>,
        reply: SyncSender<Result<()>>,
    },
    Change {
        id: JobId,
        changes: Map<String, Value>,
        version: Option<u64>,
        reply: SyncSender<Result<()>>,
    },
    /// Why queued jobs wait.
    Why {
        ids: Vec<JobId>,
        reply: SyncSender<HashMap<JobId, (Reason, String)>>,
    },
    /// How the endpoints stand, by name.
    Health {
        reply: SyncSender<HashMap<String, Health>>,
    },
    /// An endpoint was added.
    Look {
        endpoint: String,
    },
    Heard(Word),
    Stop,
}

pub struct Submission {
    pub owner: String,
    pub file: JobFile,
    pub wish: Wish,
    pub body: String,
    /// With the digest of what it came with.
    pub key: Option<(String, [u8; 32])>,
    /// Jobs that it comes after: ids, or positions of earlier ones in the same submission.
    pub after: Vec<After>,
}

#[derive(Clone, Copy, Debug)]
pub enum After {
    Job(JobId),
    Here(usize),
}

pub struct Owner {
    pub store: Store,
    pub queue: Queue,
    pub limits: Limits,
    pub book: EndpointBook,
    pub identity: Identity,
    pub ring: Arc<Ring>,
    pub live: LiveJobs,
    pub commands: Receiver<Command>,
    pub words: SyncSender<Word>,
    pub started: Instant,
    couriers: HashMap<String, Arc<Courier>>,
    /// The orders that endpoints have, or may have.
    pub orders: HashMap<JobId, Order>,
    pub group: Group,
    replies: Vec<Reply>,
    /// Ended jobs that are in the queue while somebody steers them.
    visitors: Vec<JobId>,
    next_seq: u64,
    pub keep: Keep,
    pub sweep: Sweep,
    /// When the sweep goes on.
    pub sweep_at: Instant,
}

/// Told when the group is durable, or why it is not.
type Reply = Box<dyn FnOnce(Option<&Error>) + Send>;

pub struct Order {
    job: JobId,
    attempt: u32,
    endpoint: Arc<str>,
    /// When it was taken, by the courier's count; nothing while it is on its way.
    taken: Option<u64>,
    is_asked: bool,
    /// The endpoint has the job's present rate, or is being told it.
    pub has_rate: bool,
    /// When its warrant was made or renewed, as far as this hub knows it.
    renewed: Option<Instant>,
}

impl Owner {
    #[allow(clippy::too_many_arguments, reason = "made in one place, of all that the hub has")]
    pub fn new(
        store: Store,
        limits: Limits,
        keep: Keep,
        book: EndpointBook,
        identity: Identity,
        ring: Arc<Ring>,
        live: LiveJobs,
        commands: Receiver<Command>,
        words: SyncSender<Word>,
    ) -> Result<Owner> {
        let mut owner = Owner {
            queue: Queue::new(limits.clone(), Box::new(Almanac::default())),
            store,
            limits,
            book,
            identity,
            ring,
            live,
            commands,
            words,
            started: Instant::now(),
            couriers: HashMap::new(),
            orders: HashMap::new(),
            group: Group::default(),
            replies: Vec::new(),
            visitors: Vec::new(),
            next_seq: 0,
            keep,
            sweep: Sweep::default(),
            sweep_at: Instant::now() + SWEEP_PAUSE,
        };
        owner.load()?;
        Ok(owner)
    }

    /// Works until it is told to stop.
    pub fn run(mut self) {
        loop {
            let mut is_over = false;
            match self.commands.recv_timeout(self.patience()) {
                Ok(first) => {
                    is_over |= self.take(first);
                    for _ in 0..GROUP_MAX {
                        let Ok(next) = self.commands.try_recv() else { break };
                        is_over |= self.take(next);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => is_over = true,
            }
            let now = self.now();
            self.queue.step(now);
            self.settle();
            self.forget_old();
            if is_over {
                break;
            }
        }
        self.couriers.values().for_each(|courier| courier.stop());
        self.ring.close();
    }

    fn now(&self) -> Now {
        Now { ms: self.started.elapsed().as_millis() as u64, unix_ms: unix_ms() }
    }

    fn patience(&self) -> Duration {
        let now = self.now().ms;
        let next = self.queue.next_ms().map_or(TICK, |at| Duration::from_millis(at.saturating_sub(now)));
        next.min(TICK)
    }

    /// The queue as the database has it.
    fn load(&mut self) -> Result<()> {
        self.queue = Queue::new(self.limits.clone(), Box::new(Almanac::default()));
        self.orders.clear();
        self.next_seq = self.store.next_seq()?;
        let open = self.store.open_jobs(&mut |why| error!(job = why, "a job cannot be read and is left alone"))?;
        let now = self.now();
        for stored in open {
            let job = stored.job;
            if let Some(endpoint) = job.executor().cloned() {
                let order = Order {
                    job: job.id,
                    attempt: job.attempt,
                    endpoint,
                    taken: Some(0),
                    is_asked: false,
                    // The hub before this one may have ended while it told it.
                    has_rate: false,
                    renewed: None,
                };
                self.orders.insert(order_id(job.id, job.attempt), order);
            }
            self.queue.restore(now, job);
        }
        for missing in self.queue.missing() {
            let has_succeeded = self.store.status(missing)? == Some(Status::Succeeded);
            self.queue.after_ended(now, missing, has_succeeded);
        }
        self.count_open();
        Ok(())
    }

    /// Writes down what changed, then answers and acts.
    fn settle(&mut self) {
        let (changes, actions) = self.queue.take();
        self.visitors.drain(..).for_each(|id| self.queue.let_go(id));
        self.group.changes = changes;
        let group = std::mem::take(&mut self.group);
        let replies = std::mem::take(&mut self.replies);
        let committed = if group.is_empty() { Ok(Vec::new()) } else { self.store.commit(&group) };
        match committed {
            Ok(events) => {
                self.note_orders(&group.changes);
                self.ring.publish(events);
                replies.into_iter().for_each(|reply| reply(None));
                actions.into_iter().for_each(|action| self.act(action));
            }
            Err(e) => {
                error!(error = %e.message, "the queue cannot be written down");
                replies.into_iter().for_each(|reply| reply(Some(&e)));
                std::thread::sleep(PAUSE);
                if let Err(e) = self.load() {
                    error!(error = %e.message, "the queue cannot be read back");
                }
            }
        }
    }

    /// Which orders are out, as the changes leave it.
    fn note_orders(&mut self, changes: &[Job]) {
        for job in changes {
            let id = order_id(job.id, job.attempt);
            match job.executor() {
                Some(endpoint) => {
                    let order = Order {
                        job: job.id,
                        attempt: job.attempt,
                        endpoint: endpoint.clone(),
                        taken: None,
                        is_asked: false,
                        has_rate: true,
                        renewed: Some(Instant::now()),
                    };
                    self.orders.entry(id).or_insert(order);
                }
                None => _ = self.orders.remove(&id),
            }
            if job.status.is_end() || job.role.is_none() {
                self.live.lock().unwrap_or_else(PoisonError::into_inner).remove(&job.id);
            }
        }
        if !changes.is_empty() {
            self.count_open();
        }
    }

    fn count_open(&mut self) {
        let mut open: HashMap<&str, usize> = HashMap::new();
        for order in self.orders.values() {
            *open.entry(&order.endpoint).or_default() += 1;
        }
        for (name, courier) in &self.couriers {
            courier.open.store(open.get(name.as_str()).copied().unwrap_or(0), Ordering::Relaxed);
        }
    }

    pub fn courier(&mut self, endpoint: &str) -> Arc<Courier> {
        let make = || Courier::new(endpoint, self.book.clone(), self.identity.clone(), self.words.clone());
        let courier = self.couriers.entry(endpoint.to_owned()).or_insert_with(make).clone();
        let open = self.orders.values().filter(|order| *order.endpoint == *endpoint).count();
        courier.open.store(open, Ordering::Relaxed);
        courier
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Probe { endpoint } => self.courier(&endpoint).look(),
            Action::HandIn { id, attempt, role, endpoint } => self.hand_in(id, attempt, role, &endpoint),
            Action::SetRate { id, attempt, endpoint } => self.set_rate(id, attempt, &endpoint),
            Action::Stop { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Stop { order: order_id(id, attempt) });
            }
            Action::Renew { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Renew { order: order_id(id, attempt) });
            }
            Action::Forget { id, attempt, endpoint } => {
                self.courier(&endpoint).send(Errand::Forget { order: order_id(id, attempt) });
            }
        }
    }

    fn hand_in(&mut self, id: JobId, attempt: u32, role: Role, endpoint: &str) {
        let stored = self.store.job(id).and_then(|stored| {
            let stored = stored.ok_or_else(|| Error::new(Exit::Fatal, "the job is not in the database"))?;
            Ok((stored.file.wish(&stored.job.facts.owner)?, stored.job))
        });
        let now = self.now();
        match stored {
            Ok((wish, job)) => {
                let peer = match role {
                    Role::Sends => job.facts.to.to_string(),
                    Role::Fetches => job.facts.from.to_string(),
                };
                info!(job = %id, attempt, endpoint, role = role.word(), "order given");
                let (kind, spec): (Kind, _) = (wish.kind, Box::new(wish.spec));
                let courier = self.courier(endpoint);
                courier.send(Errand::HandIn { job: id, attempt, kind, role, peer, spec });
                courier.look();
            }
            Err(e) => {
                let hint = e.hint.unwrap_or_default();
                let answer = Answer::Refused { code: Exit::Fatal as i32, text: e.message, hint };
                self.queue.heard(now, id, attempt, answer);
            }
        }
    }

    /// True when it is the end.
    fn take(&mut self, command: Command) -> bool {
        let now = self.now();
        match command {
            Command::Submit { jobs, reply } => {
                let taken = self.submit(now, jobs);
                self.answer(taken, reply);
            }
            Command::Steer { id, verb, version, reply } => {
                let steered = self.steer(now, id, verb, version);
                self.answer(steered, reply);
            }
            Command::Change { id, changes, version, reply } => {
                let changed = self.change(now, id, &changes, version);
                self.answer(changed, reply);
            }
            Command::Why { ids, reply } => {
                let found = ids.into_iter().filter_map(|id| Some((id, self.queue.why(id)?))).collect();
                drop(reply.try_send(found));
            }
            Command::Health { reply } => {
                let found = self.queue.endpoints().map(|state| (state.name.to_owned(), state.into())).collect();
                drop(reply.try_send(found));
            }
            Command::Look { endpoint } => self.courier(&endpoint).look(),
            Command::Heard(word) => self.hear(now, word),
            Command::Stop => return true,
        }
        false
    }

    /// Once what it tells of is durable; otherwise why it is not.
    fn answer<T: Send + 'static>(&mut self, answer: Result<T>, reply: SyncSender<Result<T>>) {
        self.replies.push(Box::new(move |failed| {
            let answer = match (answer, failed) {
                (Ok(_), Some(e)) => Err(e.clone()),
                (answer, _) => answer,
            };
            drop(reply.try_send(answer));
        }));
    }

    fn hear(&mut self, now: Now, word: Word) {
        match word {
            Word::Taken { job, attempt, stamp } => {
                if let Some(order) = self.orders.get_mut(&order_id(job, attempt)) {
                    order.taken = Some(stamp);
                }
            }
            Word::RateUntold { order } => {
                self.orders.get_mut(&order).into_iter().for_each(|order| order.has_rate = false);
            }
            Word::Answered { job, attempt, answer } => self.queue.heard(now, job, attempt, answer),
            Word::Unreached { endpoint, text } => {
                warn!(endpoint, text, "an endpoint does not answer");
                self.queue.unreached(now, &endpoint, &text);
            }
            Word::TakesNone { endpoint } => self.queue.takes_no_orders(&endpoint),
            Word::Ended { order, told } => self.ended(now, order, &told),
            Word::Census(census) => self.count(now, census),
        }
    }

    /// Takes note of what an endpoint has of ours, and of what it has not.
    fn count(&mut self, now: Now, census: Census) {
        let Census { endpoint, as_of, told, is_whole } = census;
        let mut seen = std::collections::HashSet::with_capacity(told.len());
        for (id, told) in told {
            seen.insert(id);
            self.note(now, &endpoint, id, &told);
        }
        if is_whole {
            let is_missing = |id: &JobId, order: &Order| {
                *order.endpoint == *endpoint && !seen.contains(id) && order.taken.is_some_and(|taken| taken <= as_of)
            };
            let missing: Vec<_> = self
                .orders
                .iter()
                .filter(|(id, order)| is_missing(id, order))
                .map(|(_, order)| (order.job, order.attempt))
                .collect();
            for (job, attempt) in missing {
                warn!(job = %job, attempt, endpoint, "the endpoint does not know the order");
                self.queue.heard(now, job, attempt, Answer::Unknown);
            }
        }
        self.queue.reached(&endpoint);
    }

    fn note(&mut self, now: Now, endpoint: &str, id: JobId, told: &Told) {
        let Some(order) = self.orders.get_mut(&id).filter(|order| *order.endpoint == *endpoint) else {
            // Its end was taken note of, and the word of that did not arrive.
            if order::status_of(told).is_end() {
                self.courier(endpoint).send(Errand::Forget { order: id });
            }
            return;
        };
        let (job, attempt) = (order.job, order.attempt);
        let has_failures = told.ended.as_ref().is_some_and(|ended| ended.code != 0 || ended.files_failed > 0);
        match answer(told) {
            Answer::Ended(_) if has_failures => {
                if !std::mem::replace(&mut order.is_asked, true) {
                    self.courier(endpoint).send(Errand::Report { order: id });
                }
            }
            Answer::Ended(_) => self.ended(now, id, told),
            answer => {
                if !order.has_rate {
                    self.set_rate(job, attempt, endpoint);
                }
                let order = self.orders.get_mut(&id).expect("it was there");
                if let Answer::News(news) = &answer {
                    let waits = news.reason == model::order::Reason::Credentials;
                    if waits && order.renewed.is_none_or(|at| at.elapsed() >= RENEWED_MAX) {
                        order.renewed = Some(Instant::now());
                        self.courier(endpoint).send(Errand::Renew { order: id });
                    }
                    let live = Live {
                        work: news.work,
                        bytes_per_second: told.news.bytes_per_second,
                        bytes_reached: told.news.bytes_reached,
                        files_failed: told.news.files_failed,
                        files_skipped: told.news.files_skipped,
                        bottleneck: order::shown(&told.news.bottleneck).into(),
                    };
                    self.live.lock().unwrap_or_else(PoisonError::into_inner).insert(job, live);
                }
                self.queue.heard(now, job, attempt, answer);
            }
        }
    }

    fn ended(&mut self, now: Now, id: JobId, told: &Told) {
        let Some(order) = self.orders.get_mut(&id) else { return };
        order.is_asked = false;
        let (job, attempt) = (order.job, order.attempt);
        let answer = answer(told);
        if matches!(answer, Answer::Ended(_))
            && let Some(text) = report(told)
        {
            self.group.reports.push(Report { job, text: text.to_string(), failures: failures(told) });
        }
        self.queue.heard(now, job, attempt, answer);
    }

    /// All or none: what can be wrong is looked at before anything is taken. Those that others come after are before them.
    fn submit(&mut self, now: Now, jobs: Vec<Submission>) -> Result<Vec<(JobId, bool)>> {
        self.check_room(&jobs)?;
        let mut known = Vec::with_capacity(jobs.len());
        for job in &jobs {
            self.check_endpoints(&job.wish)?;
            known.push(self.known_by_key(job)?);
        }
        for job in &jobs {
            for after in &job.after {
                match *after {
                    After::Job(id) => self.check_after(id)?,
                    After::Here(position) => known[position].map_or(Ok(()), |id| self.check_after(id))?,
                }
            }
        }
        let mut taken: Vec<(JobId, bool)> = Vec::with_capacity(jobs.len());
        for (job, known) in jobs.into_iter().zip(known) {
            let id_of = |after: &After| match *after {
                After::Here(position) => taken[position].0,
                After::Job(id) => id,
            };
            let after = job.after.iter().map(id_of).collect();
            taken.push(match known {
                Some(known) => (known, false),
                None => self.submit_one(now, job, JobId(net::random_bytes()), after)?,
            });
        }
        Ok(taken)
    }

    fn submit_one(&mut self, now: Now, job: Submission, id: JobId, after: Vec<JobId>) -> Result<(JobId, bool)> {
        let Submission { owner, wish, body, key, file, .. } = job;
        let labels = file.labels.into_iter().collect();
        let seq = self.next_seq;
        let taken = self.queue.submit(now, Job::new(id, seq, wish.facts.clone(), after));
        let (id, is_new) = match taken {
            Ok(queue::Taken::New) => {
                self.next_seq += 1;
                self.group.new.push(NewJob { id, seq, wish, body, labels });
                (id, true)
            }
            Ok(queue::Taken::Known(known)) => (known, false),
            Err(e) => return Err(refused(&e)),
        };
        if let Some((key, digest)) = key {
            self.group.keys.push(Key { owner, key, digest, job: id });
        }
        Ok((id, is_new))
    }

    fn steer(&mut self, now: Now, id: JobId, verb: Verb, version: Option<u64>) -> Result<()> {
        if let Some(version) = version {
            self.store.check_version(id, version)?;
        }
        if self.queue.get(id).is_none() {
            let stored = self.store.job(id)?.ok_or_else(|| refused(&queue::Refused::NoSuchJob))?;
            self.queue.restore(now, stored.job);
            self.visitors.push(id);
        }
        let steered = self.queue.steer(now, id, verb);
        if verb == Verb::Remove && steered.is_ok() {
            self.group.removed.push(id);
        }
        steered.map_err(|e| refused(&e))
    }
}
