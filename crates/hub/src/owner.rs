//! The one thread that owns the queue and the database: takes what came, changes the queue, writes it down, then answers and acts.
//!
//! Invariants:
//! - Nothing is answered, told or done before the transaction that holds it is durable.
//! - After a transaction that failed, the queue is read back from the database: what was not written down did not happen. Until it
//!   could be read, nothing is changed or given.
//! - An order that is on its way stays so, whatever is read back: an endpoint that does not know it yet is not missing it.
//!
//! Not here: what is handed in (`intake`), orders (`dispatch`, `hearing`), schedules (`recurring`).

use crate::access::Access;
use crate::almanac::Almanac;
use crate::audit::{Deed, Quota};
use crate::courier::{Courier, Word};
use crate::crews::Crews;
use crate::events::Ring;
use crate::figures::Ended;
use crate::order::order_id;
use crate::outbox::{Outcome, Posting};
use crate::reader::LiveJobs;
use crate::retention::{Keep, SWEEP_PAUSE, Sweep};
use crate::store::{Group, Store};
use crate::{Error, Result, unix_ms};
use daemon::EndpointBook;
use model::JobId;
use net::Identity;
use queue::{Answer, Job, Limits, Now, Queue, Status};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};
use tracing::error;

/// What is taken in before it is written down together.
const GROUP_MAX: usize = 512;
/// After ten half-lives of a charge nothing is left of it.
const CHARGED_FOR_MS: i64 = 10 * 3_600_000;
/// The calendar is looked at this often, whatever it does meanwhile.
const TICK: Duration = Duration::from_secs(1);
/// Jobs that come in together, from which on what their texts took is given back to the host.
const MANY: usize = 1000;
/// After a transaction that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// After that, before owed lines are tried again without anything else to write.
const OWED_PAUSE: Duration = Duration::from_secs(10);

/// Changes something, and says what is answered once that is durable, or why it is not.
pub type Change = Box<dyn FnOnce(&mut Owner, Now) -> Reply + Send>;
/// Told when the group is durable, or why it is not.
pub type Reply = Box<dyn FnOnce(Option<&Error>) + Send>;

/// What the owner is told, by those who hold the hub, by couriers and by channels.
pub enum Command {
    Change(Change),
    /// Something was done outside the database, or refused.
    Done(Deed, Reply),
    Heard(Word),
    Posted(Outcome),
    Stop,
}

pub struct Owner {
    pub store: Store,
    pub(crate) posting: Posting,
    pub(crate) access: Arc<Access>,
    pub queue: Queue,
    pub limits: Limits,
    pub book: EndpointBook,
    pub identity: Identity,
    pub(crate) crews: Arc<Crews>,
    pub ring: Arc<Ring>,
    pub live: LiveJobs,
    pub commands: Receiver<Command>,
    pub words: SyncSender<Word>,
    pub started: Instant,
    pub(crate) couriers: HashMap<String, Arc<Courier>>,
    /// The orders that endpoints have, or may have.
    pub(crate) orders: HashMap<JobId, Order>,
    pub(crate) group: Group,
    quota: Quota,
    pub(crate) replies: Vec<Reply>,
    /// Lines of the audit log that tell of what was done elsewhere, and hold whatever becomes of a group: not written down yet.
    owed: Vec<Deed>,
    /// When they are tried again without anything else to write.
    owed_at: Instant,
    pub(crate) next_seq: u64,
    /// Since the start.
    pub(crate) ended: BTreeMap<Status, Ended>,
    /// Endpoints that have to say what they have before they are given anything.
    pub(crate) unheard: HashSet<String>,
    /// Every job of the database could be read.
    pub(crate) knows_all: bool,
    /// When the queue is to be read back again; nothing while it is as the database has it.
    read_again_at: Option<Instant>,
    keep: Keep,
    sweep: Sweep,
    /// When the sweep goes on.
    sweep_at: Instant,
    /// When memory is given back that a batch took.
    give_back_at: Option<Instant>,
}

#[derive(Clone)]
pub(crate) struct Order {
    pub job: JobId,
    pub attempt: u32,
    pub endpoint: Arc<str>,
    /// When it was taken, by the courier's count; nothing while it is on its way.
    pub taken: Option<u64>,
    /// When the endpoint is to be told the job's present rate; nothing where it has it, or is being told.
    pub rate_due: Option<Instant>,
    /// When its warrant was made or renewed, as far as this hub knows it.
    pub renewed: Option<Instant>,
    /// When the other endpoint was last asked to do without this one.
    pub left_to_other: Option<Instant>,
}

impl Order {
    fn of_another_hub(job: &Job, endpoint: Arc<str>) -> Order {
        Order {
            job: job.id,
            attempt: job.attempt,
            endpoint,
            taken: Some(0),
            // That hub may have ended while it told it.
            rate_due: Some(Instant::now()),
            renewed: None,
            left_to_other: None,
        }
    }
}

/// Charges the owner of a job that no executor has for what it moved before the queue was read.
fn remember(queue: &mut Queue, now: Now, job: &Job, [begun, last]: [i64; 2]) {
    let spans = [(begun, last), (last, now.unix_ms)];
    let [took_ms, ago_ms] = spans.map(|(from, to)| to.saturating_sub(from).max(0) as u64);
    queue.remember(now, job, took_ms, ago_ms);
}

impl Owner {
    #[allow(clippy::too_many_arguments, reason = "made in one place, of all that the hub has")]
    pub fn new(
        store: Store,
        posting: Posting,
        access: Arc<Access>,
        limits: Limits,
        keep: Keep,
        book: EndpointBook,
        identity: Identity,
        crews: Arc<Crews>,
        ring: Arc<Ring>,
        live: LiveJobs,
        commands: Receiver<Command>,
        words: SyncSender<Word>,
    ) -> Result<Owner> {
        let mut owner = Owner {
            queue: Queue::new(limits.clone(), Box::new(Almanac::default())),
            store,
            posting,
            access,
            limits,
            book,
            identity,
            crews,
            ring,
            live,
            commands,
            words,
            started: Instant::now(),
            couriers: HashMap::new(),
            orders: HashMap::new(),
            group: Group::default(),
            quota: Quota::default(),
            replies: Vec::new(),
            owed: Vec::new(),
            owed_at: Instant::now(),
            next_seq: 0,
            ended: BTreeMap::new(),
            unheard: HashSet::new(),
            knows_all: false,
            read_again_at: None,
            keep,
            sweep: Sweep::default(),
            sweep_at: Instant::now() + SWEEP_PAUSE,
            give_back_at: Some(Instant::now()),
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
            if !self.is_read() {
                if is_over {
                    break;
                }
                continue;
            }
            let now = self.now();
            self.lapse_rules(now);
            self.begin_scheduled(now);
            self.group.audit.extend(self.quota.left_out(if is_over { u64::MAX } else { now.ms }));
            self.queue.step(now);
            if let Err(e) = self.post(now) {
                error!(error = %e.message, "what is to be told cannot be read");
            }
            self.settle();
            self.store.mark();
            self.forget_old();
            self.give_back();
            if is_over {
                break;
            }
        }
        self.store.mark_now();
        self.couriers.values().for_each(|courier| courier.stop());
        self.crews.stop_all();
        self.ring.close();
    }

    pub(crate) fn now(&self) -> Now {
        Now { ms: self.started.elapsed().as_millis() as u64, unix_ms: unix_ms() }
    }

    fn patience(&self) -> Duration {
        if self.read_again_at.is_some() {
            return TICK;
        }
        let now = self.now().ms;
        let next = self.queue.next_ms().map_or(TICK, |at| Duration::from_millis(at.saturating_sub(now)));
        next.min(TICK)
    }

    /// What a batch took, once whoever handed it in has let go of it as well.
    fn give_back(&mut self) {
        if self.give_back_at.is_some_and(|at| at <= Instant::now()) {
            self.give_back_at = None;
            daemon::give_back_memory();
        }
    }

    /// A bit of what is old, while nobody waits.
    fn forget_old(&mut self) {
        if Instant::now() < self.sweep_at {
            return;
        }
        let pause = match self.store.forget_old(&mut self.sweep, self.keep) {
            Ok(true) => {
                self.crews.forget_old();
                SWEEP_PAUSE
            }
            Ok(false) => TICK,
            Err(e) => {
                error!(error = %e.message, "what is old cannot be forgotten");
                SWEEP_PAUSE
            }
        };
        self.sweep_at = Instant::now() + pause;
    }

    /// Whether the queue is as the database has it; reads it, where that failed before and its time has come.
    fn is_read(&mut self) -> bool {
        if self.read_again_at.is_some_and(|at| at <= Instant::now()) {
            self.read_back();
        }
        self.read_again_at.is_none()
    }

    fn read_back(&mut self) {
        let loaded = self.load();
        self.read_again_at = loaded.is_err().then(|| Instant::now() + TICK);
        if let Err(e) = loaded {
            error!(error = %e.message, "the queue cannot be read back: nothing is taken in or given until it can");
        }
    }

    /// The queue as the database has it.
    pub(crate) fn load(&mut self) -> Result<()> {
        self.queue = Queue::new(self.limits.clone(), Box::new(Almanac::default()));
        self.group = Group::default();
        self.knows_all = false;
        self.next_seq = self.store.next_seq()?;
        let (now, mut unusable, mut withdrawn) = (self.now(), 0, Vec::new());
        let mut orders = HashMap::new();
        let Owner { store, queue, posting, access, orders: before, .. } = self;
        store.ended_since(now.unix_ms - CHARGED_FOR_MS, &mut |job, times| remember(queue, now, job, times))?;
        store.open_jobs(&mut |stored| {
            let job = match stored {
                Ok(stored) => {
                    posting.watch(stored.job.id, &stored.file);
                    if access.check_owner(&stored.wish).is_err() {
                        withdrawn.push(stored.job.id);
                    }
                    // What an executor has, the queue charges itself.
                    if let Some(begun) = stored.begun.filter(|_| stored.job.role.is_none()) {
                        remember(queue, now, &stored.job, [begun, stored.changed]);
                    }
                    stored.job
                }
                Err(why) => {
                    unusable += 1;
                    return error!(job = why, "a job cannot be read and is left alone");
                }
            };
            if let Some(endpoint) = job.executor() {
                let id = order_id(job.id, job.attempt);
                let order = before.get(&id).cloned().unwrap_or_else(|| Order::of_another_hub(&job, endpoint.clone()));
                orders.insert(id, order);
            }
            queue.restore(now, job);
        })?;
        self.orders = orders;
        for order in self.orders.values() {
            self.expect(order.job, format!("{} is asked how far it is", order.endpoint));
        }
        self.unheard = self.store.unheard()?.into_iter().collect();
        self.unheard.iter().for_each(|endpoint| self.queue.distrust(endpoint));
        self.store.schedules()?.into_iter().for_each(|stored| self.queue.put_schedule(stored.schedule));
        for missing in self.queue.missing() {
            match self.store.status(missing)? {
                // It cannot be read, and is left alone: those that come after it wait for it.
                Some(status) if !status.is_end() => {}
                status => self.queue.after_ended(now, missing, status == Some(Status::Succeeded)),
            }
        }
        // The hub before this one may have ended between taking a rule away and cancelling what it allowed.
        withdrawn.into_iter().for_each(|id| self.cancel_withdrawn(now, id));
        self.begin_anew(now);
        self.give_up_unknown()?;
        self.count_open();
        self.revoke_left()?;
        self.knows_all = unusable == 0;
        // One that no job names may have an order of a job that this copy of the database does not know.
        for endpoint in self.book.list()? {
            self.courier(&endpoint.name).look();
        }
        Ok(())
    }

    /// Attempts that several hosts had under another hub: no endpoint has their orders, and none need be asked.
    fn begin_anew(&mut self, now: Now) {
        let orders = self.orders.values().map(|order| (order.job, order.attempt));
        let begun: Vec<_> = orders.filter(|(job, attempt)| self.crews.was_begun(*job, *attempt)).collect();
        for (job, attempt) in begun {
            self.queue.heard(now, job, attempt, Answer::Unknown);
        }
    }

    /// Writes down what changed, then answers and acts.
    fn settle(&mut self) {
        let (changes, actions) = self.queue.take();
        let told = self.tell(&changes);
        self.group.changes = changes;
        // Each try that fails has the queue read back.
        let tells_owed = !self.group.is_empty() || self.owed_at <= Instant::now();
        if tells_owed {
            self.group.audit.extend(self.owed.iter().cloned());
        }
        let group = std::mem::take(&mut self.group);
        let replies = std::mem::take(&mut self.replies);
        let committed = match group.is_empty() {
            true => Ok(Vec::new()),
            false => told.and_then(|()| self.store.commit(&group)),
        };
        match committed {
            Ok(events) => {
                if tells_owed {
                    self.owed.clear();
                }
                self.note_orders(&group.changes);
                self.note_ended(&group.changes);
                self.revoke_parts(&group.changes);
                group.removed.iter().for_each(|job| self.crews.forget(*job));
                self.ring.publish(events);
                if group.new.len() >= MANY {
                    drop(group);
                    daemon::give_back_memory();
                    self.give_back_at = Some(Instant::now() + TICK);
                }
                replies.into_iter().for_each(|reply| reply(None));
                actions.into_iter().for_each(|action| self.act(action));
            }
            Err(e) => {
                error!(error = %e.message, "the queue cannot be written down");
                replies.into_iter().for_each(|reply| reply(Some(&e)));
                self.owed_at = Instant::now() + OWED_PAUSE;
                std::thread::sleep(PAUSE);
                self.read_back();
            }
        }
    }

    fn note_ended(&mut self, changes: &[Job]) {
        for job in changes.iter().filter(|job| job.code.is_some()) {
            let ended = self.ended.entry(job.status).or_default();
            ended.jobs += 1;
            if job.facts.is_rehearsal {
                continue;
            }
            ended.files += job.work.files_done;
            ended.bytes += job.work.bytes_done;
        }
    }

    /// A line of the audit log, for which somebody who is no administrator may have no room left.
    pub(crate) fn note_deed(&mut self, now: Now, who: &str, deed: Deed) {
        if self.has_line(now, who, &deed) {
            self.group.audit.push(deed);
        }
    }

    fn has_line(&mut self, now: Now, who: &str, deed: &Deed) -> bool {
        who == "hub" || self.access.is_admin(who) || self.quota.admits(who, deed, now.ms)
    }

    /// True when it is the end.
    fn take(&mut self, command: Command) -> bool {
        let now = self.now();
        let is_unread = self.read_again_at.is_some();
        match command {
            Command::Done(deed, reply) => {
                if self.has_line(now, &deed.who, &deed) {
                    self.owed.push(deed);
                    self.owed_at = Instant::now();
                }
                self.replies.extend(Some(reply).filter(|_| !is_unread));
            }
            // Whoever waits for its answer hears that there is none.
            Command::Change(_) if is_unread => {}
            Command::Heard(word) if is_unread => self.note_arrival(&word),
            // It is not written down, so the message goes once more.
            Command::Posted(outcome) if is_unread => _ = self.posting.under_way.remove(&outcome.id),
            Command::Change(change) => {
                let reply = change(self, now);
                self.replies.push(reply);
            }
            Command::Heard(word) => self.hear(now, word),
            Command::Posted(outcome) => self.posted(now, outcome),
            Command::Stop => {
                self.owed_at = Instant::now();
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::NewJob;
    use crate::scene::{anna, jobs, start, state, until};
    use crate::{Channels, Hub, JobFile, Options};
    use model::Exit;
    use rusqlite::Connection;
    use std::path::Path;

    #[test]
    fn a_queue_that_cannot_be_read_back_is_read_again_and_takes_nothing_meanwhile() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let submit = |to: &str| {
            let text = format!(r#"{{"source":"a:x","destination":"b:{to}"}}"#);
            hub.submit(&anna(), JobFile::from_json(&text).unwrap(), None)
        };
        let kept = submit("y").unwrap().id;
        let connection = Connection::open(crate::database::path(dir.path())).unwrap();
        connection.execute_batch("ALTER TABLE jobs RENAME TO away").unwrap();
        assert!(submit("z").is_err());
        assert_eq!(submit("z").unwrap_err().exit, Exit::Temporary);
        connection.execute_batch("ALTER TABLE away RENAME TO jobs").unwrap();
        until(|| submit("z").is_ok());
        let found = jobs(&hub);
        assert_eq!((found.len(), &found[1].id), (2, &kept.to_string()));
        hub.stop();
    }

    #[test]
    fn a_message_whose_outcome_came_while_the_queue_was_unread_is_under_way_no_more() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let is_under_way = hub.look(|owner| {
            owner.posting.under_way.insert(7);
            owner.read_again_at = Some(Instant::now());
            owner.take(Command::Posted(Outcome { channel: "ops".to_owned(), id: 7, tries: 1, of: Ok(()) }));
            owner.posting.under_way.contains(&7)
        });
        assert!(!is_under_way.unwrap(), "it would hold up its channel");
        hub.stop();
    }

    #[test]
    fn a_line_that_could_not_be_written_goes_with_what_is_written_next_and_alone_after_a_pause() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let connection = Connection::open(crate::database::path(dir.path())).unwrap();
        let deed = || Deed::new("hub", "rule add", "", &Ok(()));
        let found = hub.look(move |owner| {
            connection.execute_batch("ALTER TABLE audit RENAME TO away").unwrap();
            let before = Instant::now();
            owner.take(Command::Done(deed(), Box::new(|_| {})));
            owner.settle();
            let rests = owner.owed_at >= before + OWED_PAUSE;
            connection.execute_batch("ALTER TABLE away RENAME TO audit").unwrap();
            owner.owed_at = before + 360 * OWED_PAUSE;
            owner.settle();
            let alone = owner.owed.len();
            owner.group.audit.push(deed());
            owner.settle();
            (rests, alone, owner.owed.len())
        });
        assert_eq!(found.unwrap(), (true, 1, 0));
        hub.stop();
    }

    /// What a hub before this one has left: jobs, each with its project and what more there is in its file.
    fn left(dir: &Path, jobs: &[(&str, &str)], stand: impl Fn(u8, &mut Job)) {
        let (mut new, mut changes) = (Vec::new(), Vec::new());
        for (seq, (project, more)) in (1..).zip(jobs) {
            let text = format!(r#"{{"source":"a:x","destination":"b:{seq}","project":"{project}"}}"#);
            let wish = JobFile::from_json(&text).unwrap().wish("unix:0").unwrap();
            let mut job = Job::new(JobId([seq; 16]), seq.into(), wish.facts.clone(), vec![]);
            stand(seq, &mut job);
            let body = text.replace('}', &format!("{more}}}"));
            new.push(NewJob { id: job.id, seq: job.seq, wish, body, labels: vec![] });
            changes.push(job);
        }
        Store::open(dir).unwrap().commit(&Group { new, changes, ..Group::default() }).unwrap();
    }

    #[test]
    fn what_a_job_that_rests_had_moved_counts_for_its_owner_after_a_restart() {
        let dir = state();
        left(dir.path(), &[("greedy", ""), ("greedy", ""), ("modest", "")], |seq, job| {
            if seq == 1 {
                (job.status, job.attempt, job.has_begun) = (Status::Paused, 1, true);
                job.work.bytes_done = 1 << 40;
            }
        });
        // One at a time.
        let limits = Limits { of_pair: 8, ..Limits::default() };
        let hub = Hub::start(Options { limits, ..Options::new(dir.path().to_owned()) }).unwrap();
        let stand = hub.look(|owner| {
            ["a", "b"].iter().for_each(|endpoint| owner.queue.reached(endpoint));
            let now = owner.now();
            owner.queue.step(now);
            [2, 3].map(|seq| owner.queue.get(JobId([seq; 16])).map(|job| job.status))
        });
        assert_eq!(stand.unwrap(), [Some(Status::Queued), Some(Status::Running)]);
        hub.stop();
    }

    #[test]
    fn what_comes_after_a_job_that_cannot_be_read_waits_for_it() {
        let dir = state();
        left(dir.path(), &[("p", r#","of-another-version":true"#), ("p", "")], |seq, job| {
            if seq == 2 {
                (job.status, job.reason) = (Status::Waiting, queue::Reason::Dependency);
                job.after = vec![JobId([1; 16])];
            }
        });
        let hub = start(dir.path(), Channels::default());
        let stand = hub.look(|owner| owner.queue.get(JobId([2; 16])).map(|job| (job.status, job.reason)));
        assert_eq!(stand.unwrap(), Some((Status::Waiting, queue::Reason::Dependency)));
        hub.stop();
    }

    #[test]
    fn what_a_rehearsal_saw_is_not_counted_as_moved() {
        let dir = state();
        let hub = start(dir.path(), Channels::default());
        let job = |options: &str| {
            let text = format!(r#"{{"source":"a:x","destination":"b:y","options":{options}}}"#);
            let wish = JobFile::from_json(&text).unwrap().wish("anna").unwrap();
            let mut job = Job::new(JobId([1; 16]), 1, wish.facts, vec![]);
            (job.status, job.code) = (Status::Succeeded, Some(0));
            (job.work.files_done, job.work.bytes_done) = (3, 1 << 40);
            job
        };
        let jobs = [job(r#"{"dry-run":true}"#), job("{}")];
        hub.look(move |owner| owner.note_ended(&jobs)).unwrap();
        let Ended { jobs, files, bytes } = hub.look(|owner| owner.ended[&Status::Succeeded]).unwrap();
        assert_eq!((jobs, files, bytes), (2, 3, 1 << 40));
        hub.stop();
    }
}
