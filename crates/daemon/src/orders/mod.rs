//! Jobs that this endpoint carries out in its clients' names: taken, kept, begun, steered, told of and forgotten.
//!
//! In reading order:
//! - `record`: keeps jobs
//! - `answer`: speaks with clients
//! - `schedule`: which is next
//! - `run`: carries one out
//! - `errand`: what of it is no copying
//! - `reach`: finds the other endpoint and this one's root
//! - `ground`: what a job may do here
//!
//! Invariants:
//! - A job is acknowledged when it is durable, and goes on until it ends, whoever is there: after a restart too.
//! - A client that does not know whether its order arrived takes the warrant back here, and asks for the job: either it
//!   is there, or it never comes.
//! - A job belongs to the key that handed it in; to every other it does not exist.
//! - What is done with this endpoint's files needs the rights of its owner at that moment; with the other's, a warrant.
//! - No other host is asked while the jobs are locked: whoever steers one waits for small files to be written at most.
//! - Jobs that are kept are bounded for each account and in all, jobs that run in all.
//!
//! Not here: the queue of a service, which hands jobs in (`hub`).

mod answer;
mod ground;
mod reach;
mod record;
mod errand;
mod run;
mod schedule;

use crate::error::Result;
use crate::warrant::{TakenBack, now};
pub use ground::Ground;
use model::order::{Reason, Status, Steer};
use model::pace::Timetable;
use model::{Class, JobId, Pin, TransferSpec};
use mover::Memory;
use mover::session::Mandate;
use net::Identity;
use record::{Ended, ORDERS_MAX, Record, Store};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, error};
use transfer::Sample;
use wire::limits::ORDER_TRANSFER_BYTES_MAX;
use wire::{CloseCode, Refusal};

/// Jobs of one account that are kept, and the bytes of them.
const OF_ACCOUNT_MAX: usize = 1000;
const BYTES_OF_ACCOUNT_MAX: usize = 16 << 20;
/// The bytes of all that are kept.
const BYTES_MAX: usize = 128 << 20;
/// How long an end that its client was not told of makes no room for jobs of other clients.
const UNTOLD_SECONDS: u64 = 86_400;
/// And one that it was told of: the answer may be lost with a connection that breaks, and the client asks again.
const UNHEARD: Duration = Duration::from_secs(600);
/// Ends that leave for one order. Each waits for storage, and everybody else for that.
const LEAVING_MAX: usize = 64;

type Key = (Pin, JobId);
type Refused<T> = std::result::Result<T, Refusal>;

pub struct Orders {
    store: Store,
    host: Weak<dyn Ground>,
    identity: Identity,
    memory: Memory,
    taken_back: TakenBack,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: HashMap<Key, Job>,
    is_stopping: bool,
    threads: usize,
}

/// Jobs that are kept, and how much they may be.
struct Held {
    jobs: usize,
    bytes: usize,
    jobs_max: usize,
    bytes_max: usize,
}

/// An end that may leave; that of the lowest rank is first.
struct Leaver {
    rank: (bool, u64),
    key: Key,
    bytes: usize,
    is_of_account: bool,
}

#[derive(Clone)]
struct Job {
    record: Record,
    /// Source and destination for people, read once.
    ends: (String, String),
    live: Live,
}

/// What is not worth writing down.
#[derive(Clone, Default)]
struct Live {
    is_running: bool,
    /// What the thread that runs it is to bring about.
    wanted: Option<Steer>,
    /// The rate that it is to have from now on.
    pace: Option<Option<Arc<Timetable>>>,
    /// It runs as it was before somebody changed it.
    is_outdated: bool,
    sample: Option<Sample>,
    /// Before this it is not tried again.
    not_before: Option<Instant>,
    /// The same for whoever asks, in seconds since 1970.
    until: u64,
    /// When its client was first told all of its end.
    told: Option<Instant>,
    /// Attempts in a row that came to nothing.
    failures: u32,
    waits_since: Option<Instant>,
}

impl Orders {
    /// Reads what is there. Nothing runs before `start`.
    pub fn open(state_dir: &Path, host: Weak<dyn Ground>, identity: Identity, memory: Memory) -> Result<Arc<Orders>> {
        let store = Store::open(state_dir)?;
        let mut state = State::default();
        for mut record in store.load(&mut |e| error!(error = %e, "a job that was handed in cannot be used"))? {
            let Some(key) = record.key() else { continue };
            match record.status() {
                Status::Running | Status::Waiting if record.reason() != Reason::Credentials => {
                    record.set(Status::Queued, Reason::None, "");
                }
                Status::Stopping if record.text == Steer::Cancel.word() => cancelled(&mut record),
                Status::Stopping => record.set(Status::Paused, Reason::None, ""),
                _ => {}
            }
            state.jobs.insert(key, Job::new(record));
        }
        let (taken_back, state, changed) = (TakenBack::new(state_dir), Mutex::new(state), Condvar::new());
        Ok(Arc::new(Orders { store, host, identity, memory, taken_back, state, changed }))
    }

    /// Ends what runs, in order; it goes on when the endpoint does. True when all ended in time.
    pub fn stop(&self, deadline: Instant) -> bool {
        let mut state = self.lock();
        state.is_stopping = true;
        self.changed.notify_all();
        while state.threads > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { return false };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// How many jobs there are of each status.
    pub fn counts(&self) -> Vec<(Status, u64)> {
        let state = self.lock();
        let count = |status: &Status| state.jobs.values().filter(|job| job.record.status() == *status).count() as u64;
        Status::ALL.iter().map(|status| (*status, count(status))).collect()
    }

    /// Writes down where a job stands. What cannot be written is done again after a restart, which finds it done.
    fn keep(&self, record: &Record) {
        if let Err(e) = self.store.write(record) {
            error!(job = record.job, error = %e, "the state of a job cannot be recorded");
        }
    }

    /// Takes a job in, or finds the one that it already is. Returns which attempt it is.
    fn take_in(&self, record: Record, mandate: &Mandate) -> Refused<u32> {
        let key = record.key().ok_or_else(|| Refusal::new(CloseCode::Malformed, "an order without a job"))?;
        let mut state = self.lock();
        // Under the lock: whoever took the warrant back and then asks for the job sees what came before that.
        self.taken_back.check(mandate)?;
        let known = state.jobs.get(&key).map(|job| (job.record.status(), job.record.attempt, job.live.is_running));
        let mut record = record;
        match known {
            Some((status, attempt, is_running)) if is_running || !status.is_end() => {
                // The same command again: it goes on, under the newer warrant. One that was told to stop has ended for
                // whoever said so, and begins anew with what is asked for now.
                if status == Status::Stopping {
                    self.check_room(&mut state, key, &record)?;
                }
                self.change(&mut state, key, |job| {
                    (job.record.warrant, job.record.peer) = (record.warrant, record.peer);
                    match status {
                        Status::Stopping => {
                            job.go_on();
                            job.live.is_outdated |= job.record.transfer != record.transfer;
                            job.record.transfer = record.transfer;
                            job.ends = job.record.ends();
                        }
                        Status::Paused | Status::Waiting if !is_running => job.queue(),
                        _ => {}
                    }
                    Ok(())
                })?;
                return Ok(attempt);
            }
            Some((_, attempt, _)) => record.attempt = attempt.saturating_add(1),
            None => {}
        }
        self.check_room(&mut state, key, &record)?;
        self.write(&record)?;
        debug!(job = record.job, client = record.owner_name, attempt = record.attempt, "job taken");
        let attempt = record.attempt;
        state.jobs.insert(key, Job::new(record));
        self.changed.notify_all();
        Ok(attempt)
    }

    /// Changes a job as far as that can be written down: what is refused has not happened.
    fn change(&self, state: &mut State, key: Key, change: impl FnOnce(&mut Job) -> Refused<()>) -> Refused<()> {
        let job = state.jobs.get_mut(&key).ok_or_else(no_such_job)?;
        let mut changed = job.clone();
        change(&mut changed)?;
        self.write(&changed.record)?;
        *job = changed;
        self.changed.notify_all();
        Ok(())
    }

    fn write(&self, record: &Record) -> Refused<()> {
        self.store.write(record).map_err(|e| match e.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Refusal::new(CloseCode::NoSpace, "the endpoint has no space left to record the job")
            }
            _ => {
                error!(job = record.job, error = %e, "a job cannot be written down");
                Refusal::new(CloseCode::Internal, "the endpoint cannot record the job; see its log")
            }
        })
    }

    /// Makes room for a job, which may take the place of its own end.
    fn check_room(&self, state: &mut State, key: Key, record: &Record) -> Refused<()> {
        let leaving = state.leaving(key, record)?;
        for end in leaving.iter().take(LEAVING_MAX) {
            if let Some(job) = state.jobs.remove(end) {
                let _ = self.store.remove(&job.record);
            }
        }
        match leaving.len() <= LEAVING_MAX {
            true => Ok(()),
            false => Err(Refusal::new(CloseCode::Busy, "many ended jobs have to make room for this one; try again")),
        }
    }

    fn steer(&self, key: Key, steer: Steer, warrant: Option<String>) -> Refused<()> {
        let mut state = self.lock();
        if steer == Steer::Remove {
            return self.forget(&mut state, key);
        }
        self.change(&mut state, key, |job| {
            let (status, is_running) = (job.record.status(), job.live.is_running);
            job.record.warrant = warrant.unwrap_or_else(|| std::mem::take(&mut job.record.warrant));
            match steer {
                Steer::Pause if status.is_end() => return wrong_state(status, "it cannot be paused"),
                Steer::Cancel if status.is_end() => {}
                Steer::Pause | Steer::Cancel if is_running => {
                    job.live.wanted = Some(steer);
                    // What it was told outlives a crash before it has stopped.
                    job.record.set(Status::Stopping, Reason::None, steer.word());
                }
                Steer::Pause => job.record.set(Status::Paused, Reason::None, ""),
                Steer::Cancel => cancelled(&mut job.record),
                Steer::Resume if status.is_end() => return wrong_state(status, "`job retry` begins it anew"),
                Steer::Resume if is_running => job.go_on(),
                Steer::Resume => job.queue(),
                Steer::Retry if is_running => return wrong_state(status, "it runs"),
                Steer::Retry => {
                    if status.is_end() {
                        job.record.attempt = job.record.attempt.saturating_add(1);
                        job.record.ended = None;
                    }
                    job.queue();
                }
                Steer::Rate | Steer::Class | Steer::Remove => return wrong_state(status, "the rate is missing"),
            }
            Ok(())
        })
    }

    fn forget(&self, state: &mut State, key: Key) -> Refused<()> {
        let job = state.jobs.get(&key).ok_or_else(no_such_job)?;
        if job.live.is_running || !job.record.status().is_end() {
            return wrong_state(job.record.status(), "cancel it first");
        }
        let removed = self.store.remove(&job.record);
        removed.map_err(|_| Refusal::new(CloseCode::Internal, "the endpoint cannot forget the job"))?;
        state.jobs.remove(&key);
        Ok(())
    }

    /// Gives a job another rate, which holds from the next look of the thread that runs it, and for every later attempt.
    fn set_rate(&self, key: Key, bwlimit: &str) -> Refused<()> {
        let wrong = |why: String| Refusal::new(CloseCode::Forbidden, &why);
        let pace = match bwlimit {
            "" => None,
            text => {
                Some(Timetable::parse(text).map_err(wrong)?).filter(|table| table.rate_min().is_some()).map(Arc::new)
            }
        };
        self.change(&mut self.lock(), key, |job| {
            let status = job.record.status();
            if status.is_end() {
                return wrong_state(status, "it has no rate any more");
            }
            let mut spec = spec_of(&job.record)?;
            spec.options.pace.clone_from(&pace);
            job.record.transfer = written(&spec)?;
            job.live.pace = Some(pace);
            Ok(())
        })
    }

    /// Has a job count otherwise. One that runs begins anew at once, so that both ends know; what was verified is not sent again.
    fn set_class(&self, host: &dyn Ground, key: Key, class: Option<Class>) -> Refused<()> {
        let record = self.lock().jobs.get(&key).map(|job| job.record.clone()).ok_or_else(no_such_job)?;
        let mut spec = spec_of(&record)?;
        if spec.options.class == class {
            return Ok(());
        }
        spec.options.class = class;
        host.may_order(key.0, record.kind(), record.role(), &spec)?;
        self.change(&mut self.lock(), key, |job| {
            let status = job.record.status();
            if status.is_end() {
                return wrong_state(status, "it has no class any more");
            }
            let mut spec = spec_of(&job.record)?;
            spec.options.class = class;
            job.record.transfer = written(&spec)?;
            job.live.is_outdated = job.live.is_running;
            Ok(())
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What leaves for a job: ends that make room, the oldest first; if there are none, other ends of its client. Work
    /// that is open stays.
    fn leaving(&self, key: Key, record: &Record) -> Refused<Vec<Key>> {
        let mut share = Held { jobs: 0, bytes: 0, jobs_max: OF_ACCOUNT_MAX, bytes_max: BYTES_OF_ACCOUNT_MAX };
        let mut all = Held { jobs: 0, bytes: 0, jobs_max: ORDERS_MAX, bytes_max: BYTES_MAX };
        let mut ends = Vec::new();
        for (other, job) in self.jobs.iter().filter(|(other, _)| **other != key) {
            let (bytes, is_of_account) = (job.record.weight(), job.record.account == record.account);
            all.add(bytes);
            if is_of_account {
                share.add(bytes);
            }
            let makes_room = job.makes_room();
            if makes_room || other.0 == key.0 && job.record.status().is_end() {
                let ended_at = job.record.ended.as_ref().map_or(0, |ended| ended.at);
                ends.push(Leaver { rank: (!makes_room, ended_at), key: *other, bytes, is_of_account });
            }
        }
        ends.sort_unstable_by_key(|end| end.rank);
        let (wanted, mut leaving) = (record.weight(), Vec::new());
        // Where its account has too much, ends of others are of no use.
        for is_for_share in [true, false] {
            ends.retain(|end| {
                let leaves = match is_for_share {
                    true => end.is_of_account && !share.has_room(wanted),
                    false => !all.has_room(wanted),
                };
                if leaves {
                    leaving.push(end.key);
                    all.remove(end.bytes);
                    if end.is_of_account {
                        share.remove(end.bytes);
                    }
                }
                !leaves
            });
        }
        let has_share = share.has_room(wanted);
        if has_share && all.has_room(wanted) {
            return Ok(leaving);
        }
        let whose = format!("the clients of ticket {}", record.account);
        let whose = if has_share { "all clients together" } else { &whose[..] };
        let many = "have as many jobs here that are open, or whose end they may not have heard, as they are allowed";
        Err(Refusal::new(CloseCode::Busy, &format!("{whose} {many}; try again later")))
    }
}

impl Held {
    fn has_room(&self, bytes: usize) -> bool {
        self.jobs < self.jobs_max && self.bytes + bytes <= self.bytes_max
    }

    fn add(&mut self, bytes: usize) {
        self.jobs += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.jobs -= 1;
        self.bytes -= bytes;
    }
}

impl Job {
    fn new(record: Record) -> Job {
        Job { ends: record.ends(), record, live: Live::default() }
    }

    fn queue(&mut self) {
        self.record.set(Status::Queued, Reason::None, "");
        self.live = Live::default();
    }

    /// It was told to stop, and is not to.
    fn go_on(&mut self) {
        self.live.wanted = None;
        self.record.set(Status::Running, Reason::None, "");
    }

    /// What it was told while it ran, unless it has ended.
    fn obey(&mut self, wanted: Option<Steer>) {
        match wanted.filter(|_| !self.record.status().is_end()) {
            Some(Steer::Cancel) => cancelled(&mut self.record),
            Some(_) => self.record.set(Status::Paused, Reason::None, ""),
            None => return,
        }
        self.live.until = 0;
    }

    /// Whether it ended, and its client knows that by now or has not asked for long. A hub that does not find the end
    /// of its order has the job done again.
    fn makes_room(&self) -> bool {
        let is_old = |ended: &Ended| now().saturating_sub(ended.at) >= UNTOLD_SECONDS;
        let status = self.record.status();
        let is_known = self.live.told.is_some_and(|told| told.elapsed() >= UNHEARD) || status == Status::Cancelled;
        status.is_end() && (is_known || self.record.ended.as_ref().is_none_or(is_old))
    }

    /// Tried again automatically after a pause.
    fn wait(&mut self, reason: Reason, text: &str, pause: Duration) {
        self.record.set(Status::Waiting, reason, text);
        self.live.waits_since.get_or_insert_with(Instant::now);
        self.live.not_before = Some(Instant::now() + pause);
        self.live.until = now() + pause.as_secs();
    }
}

fn cancelled(record: &mut Record) {
    let text = "cancelled; what was verified is kept".to_owned();
    let hint = "`thalweg job retry` continues it".to_owned();
    let code = model::Exit::Cancelled as i32;
    record.ended = Some(Ended { at: now(), code, text, hint, ..record.ended.take().unwrap_or_default() });
    record.set(Status::Cancelled, Reason::None, "");
}

fn spec_of(record: &Record) -> Refused<TransferSpec> {
    let wrong = |e: serde_json::Error| Refusal::new(CloseCode::Internal, &format!("the job cannot be read: {e}"));
    serde_json::from_str(&record.transfer).map_err(wrong)
}

fn written(spec: &TransferSpec) -> Refused<String> {
    let text = serde_json::to_string(spec).unwrap_or_default();
    match (1..=ORDER_TRANSFER_BYTES_MAX).contains(&text.len()) {
        true => Ok(text),
        false => Err(Refusal::new(CloseCode::Limit, "the job is too long with this change")),
    }
}

fn wrong_state(status: Status, what: &str) -> Refused<()> {
    Err(Refusal::new(CloseCode::WrongState, &format!("the job is {status}: {what}")))
}

/// The answer to what is not there and to what is somebody else's.
fn no_such_job() -> Refusal {
    Refusal::new(CloseCode::NotFound, "this client has no job of this id here")
}

#[cfg(test)]
mod tests;
