//! One job from its start to its end, or to where it has to wait.
//!
//! Not here: which job is next (`super`), and the transfer itself (`transfer`).

use super::errand::{self, Errand};
use super::record::{Ended, Failed, Record};
use super::{Ground, Key, Live, Orders, reach};
use crate::error::Error;
use crate::transfer_log::plain_text;
use crate::warrant::now;
use model::name::Escaped;
use model::order::{Kind, Reason, Status};
use model::pace::Timetable;
use model::{Exit, Pin, TransferSpec, mutant};
use mover::limits::DOUBTS_MAX;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;
use transfer::{Means, Sample, Steering, Transfer, pause_after};
use wire::limits::ORDER_FAILURES_MAX;
use wire::{CloseCode, Refusal, bounded};

/// How often a job that runs is looked at, and its owner's rights.
const LOOK: Duration = Duration::from_millis(200);
const RIGHTS_EVERY: Duration = Duration::from_secs(2);
/// Pauses of a job that is tried again: the first, which doubles, and the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// The longest while the other endpoint does not answer.
const PROBE: Duration = Duration::from_secs(30);
const SPACE_EVERY: Duration = Duration::from_secs(60);
/// Attempts without progress, and how long space is waited for.
const FAILURES_MAX: u32 = 12;
const DAMAGED_MAX: u32 = 2;
const SPACE_PATIENCE: Duration = Duration::from_secs(86_400);
/// Of the paths and texts of failures that are kept with a job.
const FAILURE_BYTES_MAX: usize = 32 << 10;

/// What an attempt came to.
enum Outcome {
    Ended(Box<transfer::Ended>),
    Failed(Error),
    /// Steered, or the endpoint stops.
    Stopped,
}

pub fn run(orders: &Arc<Orders>, key: Key, record: Record) {
    let Some(host) = orders.host.upgrade() else { return };
    let started = Instant::now();
    tell(&*host, &record, "begun", None);
    let outcome = attempt(orders, &host, key, &record).unwrap_or_else(Outcome::Failed);
    settle(orders, &*host, key, outcome, started);
}

fn attempt(orders: &Arc<Orders>, host: &Arc<dyn Ground>, key: Key, record: &Record) -> Result<Outcome, Error> {
    let broken = |why: String| Error::new(Exit::Fatal, format!("the job cannot be read: {why}"));
    let spec: TransferSpec = serde_json::from_str(&record.transfer).map_err(|e| broken(e.to_string()))?;
    let rights = || host.may_order(key.0, record.kind(), record.role(), &spec);
    rights().map_err(|refusal| Error::from_refusal(&record.own_name, &refusal))?;
    host.may_open(key.0, record.role(), &spec).map_err(|refusal| Error::from_refusal(&record.own_name, &refusal))?;
    let plan = reach::plan((orders.identity.clone(), &orders.memory), host, record, &spec)?;
    let partner = plan.peers.clone();
    let mut copied = None;
    if record.kind() != Kind::Check {
        let buffer = host.waiting_room().map(|spool| (spool, plan.spec.options.buffer));
        let means = Means { stores: plan.stores, buffer, ..Means::new(plan.peers) };
        let transfer = Transfer::start(plan.spec, means)?;
        look_on(orders, key, &transfer, &rights).map_err(|refusal| Error::from_refusal(&record.own_name, &refusal))?;
        let ended = transfer.wait();
        match ended.error.as_ref().map(|e| e.kind) {
            Some(transfer::Kind::Stopped) => return Ok(Outcome::Stopped),
            _ if record.kind() == Kind::Move && errand::may_remove(&ended) => copied = Some(ended),
            _ => return Ok(Outcome::Ended(Box::new(ended))),
        }
    }
    let started = Errand::start(host.clone(), partner, record, spec.clone(), copied)?;
    look_on(orders, key, &started, &rights).map_err(|refusal| Error::from_refusal(&record.own_name, &refusal))?;
    let ended = started.wait();
    match ended.error.as_ref().is_some_and(|e| e.kind == transfer::Kind::Stopped) {
        true => Ok(Outcome::Stopped),
        false => Ok(Outcome::Ended(Box::new(ended))),
    }
}

/// What runs for a job.
trait Running {
    fn wait_timeout(&self, timeout: Duration) -> bool;
    fn sample(&self) -> Option<Sample>;
    fn cancel(&self);
    fn set_pace(&self, pace: Option<Arc<Timetable>>);
}

impl Running for Transfer {
    fn wait_timeout(&self, timeout: Duration) -> bool {
        Transfer::wait_timeout(self, timeout)
    }

    fn sample(&self) -> Option<Sample> {
        self.observe().sample
    }

    fn cancel(&self) {
        Transfer::cancel(self);
    }

    fn set_pace(&self, pace: Option<Arc<Timetable>>) {
        self.steer(Steering::Pace(pace));
    }
}

impl Running for Errand {
    fn wait_timeout(&self, timeout: Duration) -> bool {
        Errand::wait_timeout(self, timeout)
    }

    fn sample(&self) -> Option<Sample> {
        Errand::sample(self)
    }

    fn cancel(&self) {
        Errand::cancel(self);
    }

    /// Both sides read their own files: nothing of it is content on the network.
    fn set_pace(&self, _pace: Option<Arc<Timetable>>) {}
}

/// Looks at what runs until it ends, and has it stop where its job is steered or its owner's rights end: then it says why.
fn look_on(
    orders: &Arc<Orders>,
    key: Key,
    running: &dyn Running,
    rights: &dyn Fn() -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (mut looked, mut lost_rights, mut doubts) = (Instant::now(), None, Doubts(0));
    while !running.wait_timeout(LOOK) {
        if looked.elapsed() >= RIGHTS_EVERY {
            looked = Instant::now();
            lost_rights = doubts.note(rights()).or(lost_rights);
        }
        if lost_rights.is_some() {
            // Without waiting for the lock, under which others write.
            running.cancel();
        }
        let sample = running.sample();
        let mut state = orders.lock();
        let is_stopping = state.is_stopping;
        let Some(job) = state.jobs.get_mut(&key) else { break };
        if sample.is_some() {
            job.live.sample = sample;
        }
        let pace = job.live.pace.take();
        if is_stopping || job.live.wanted.is_some() || job.live.is_outdated {
            running.cancel();
        }
        drop(state);
        if let Some(pace) = pace {
            running.set_pace(pace);
        }
    }
    let sample = running.sample();
    let mut state = orders.lock();
    if let Some(job) = state.jobs.get_mut(&key) {
        job.live.sample = sample.or(job.live.sample.take());
    }
    drop(state);
    lost_rights.map_or(Ok(()), Err)
}

/// How often in a row nobody could tell whether a client still has its rights.
struct Doubts(u32);

impl Doubts {
    /// Why the job has to stop. What cannot be told at this moment is believed for a while.
    fn note(&mut self, told: Result<(), Refusal>) -> Option<Refusal> {
        let is_told = told.as_ref().err().is_none_or(|refusal| refusal.code != CloseCode::Internal);
        self.0 = if is_told { 0 } else { self.0 + 1 };
        let is_believed = !is_told && (self.0 < DOUBTS_MAX || mutant::is_on("orders-fail-open"));
        told.err().filter(|_| !is_believed)
    }
}

/// Writes down what came of an attempt.
fn settle(orders: &Orders, host: &dyn Ground, key: Key, outcome: Outcome, started: Instant) {
    let mut state = orders.lock();
    let is_stopping = state.is_stopping;
    let Some(job) = state.jobs.get_mut(&key) else { return };
    let has_moved =
        job.live.sample.as_ref().is_some_and(|sample| sample.counts.files_done + sample.counts.bytes_done > 0);
    let wanted = job.live.wanted.take();
    job.live.is_outdated = false;
    match outcome {
        Outcome::Stopped if is_stopping => job.record.set(Status::Queued, Reason::None, ""),
        Outcome::Stopped if wanted.is_none() => job.queue(),
        Outcome::Stopped => {}
        Outcome::Failed(error) => {
            let ended = Ended { milliseconds: started.elapsed().as_millis() as u64, ..Ended::default() };
            conclude(job, ended, Some(error), has_moved);
        }
        Outcome::Ended(mut ended) => {
            let error = ended.error.take().map(Error::from);
            conclude(job, of_transfer(&ended), error, has_moved);
        }
    }
    // What it was told holds, whatever the attempt came to.
    job.obey(wanted);
    // Whoever steers it next finds it where it stands now.
    job.live.is_running = false;
    orders.keep(&job.record);
    tell(host, &job.record, job.record.status().word(), job.record.ended.as_ref());
}

/// An end, or a wait for what would let the job go on.
fn conclude(job: &mut super::Job, mut ended: Ended, error: Option<Error>, has_moved: bool) {
    let exit = error.as_ref().map_or(Exit::Done, |error| error.exit);
    let text = error.as_ref().map_or(String::new(), |error| bounded(&error.message).to_owned());
    let live: &mut Live = &mut job.live;
    live.failures = if has_moved { 1 } else { live.failures + 1 };
    let failures = live.failures;
    let pause = pause_after(failures, PAUSE_FIRST, PAUSE_MAX);
    let waited = live.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
    match exit {
        Exit::Temporary if failures < FAILURES_MAX => return job.wait(Reason::Retry, &text, pause),
        Exit::Integrity if failures <= DAMAGED_MAX => return job.wait(Reason::Retry, &text, pause),
        Exit::Unreachable => return job.wait(Reason::Unreachable, &text, pause.min(PROBE)),
        Exit::NoSpace if waited < SPACE_PATIENCE => return job.wait(Reason::Space, &text, SPACE_EVERY),
        Exit::Authentication => {
            job.record.set(Status::Waiting, Reason::Credentials, &text);
            job.live.not_before = None;
            return;
        }
        _ => {}
    }
    ended.at = now();
    ended.code = exit as i32;
    ended.text = text;
    ended.hint = error.and_then(|error| error.hint).map_or(String::new(), |hint| bounded(&hint).to_owned());
    job.record.ended = Some(ended);
    let status = match exit {
        Exit::Done => Status::Succeeded,
        Exit::Partial | Exit::Changed => Status::Partial,
        Exit::Cancelled => Status::Cancelled,
        _ => Status::Failed,
    };
    job.record.set(status, Reason::None, "");
}

fn of_transfer(ended: &transfer::Ended) -> Ended {
    let failures = ended.failures.iter().take(ORDER_FAILURES_MAX);
    let failed = |failure: &model::Failure| Failed {
        path: Escaped(&failure.path).to_string(),
        kind: failure.kind as u32,
        text: plain_text(&failure.message),
    };
    let mut bytes = 0;
    let fits = |failed: &Failed| {
        bytes += failed.weight();
        bytes <= FAILURE_BYTES_MAX || mutant::is_on("failures-of-any-length")
    };
    let told: Vec<_> = failures.map(failed).take_while(fits).collect();
    let failures_untold = ended.failures_not_kept + (ended.failures.len() - told.len()) as u64;
    Ended {
        files_done: ended.files_ok,
        files_skipped: ended.files_skipped,
        files_failed: ended.files_failed,
        directories: ended.directories,
        bytes: ended.bytes,
        bytes_sent: ended.sent_bytes,
        removed: ended.removed,
        milliseconds: (ended.seconds * 1000.0) as u64,
        bottleneck: ended.bottleneck.sentence.clone(),
        durable: ended.report.as_ref().map_or_else(String::new, |report| report.durable.clone()),
        failures: told,
        failures_untold,
        ..Ended::default()
    }
}

/// For the transfer log. What delivers nothing costs its client nothing: it must not push out what others did.
fn tell(host: &dyn Ground, record: &Record, what: &str, ended: Option<&Ended>) {
    let (client, job) = (plain_text(&record.owner_name), &record.job);
    let has_delivered = ended.is_some_and(|ended| ended.files_done + ended.bytes > 0);
    let line = json!({"client": client, "pin": record.owner, "job": job, "attempt": record.attempt, "state": what,
        "role": record.role, "peer": plain_text(&record.peer.name), "peer_pin": record.peer.pin,
        "reason": record.reason, "files": ended.map_or(0, |ended| ended.files_done),
        "bytes": ended.map_or(0, |ended| ended.bytes), "code": ended.map(|ended| ended.code)});
    let (Some(fields), Some(owner)) = (line.as_object(), Pin::from_hex(&record.owner)) else { return };
    if host.log(owner, &client, has_delivered, fields) {
        info!(client, job, state = what, reason = record.reason, "job handed in");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Job;
    use crate::orders::record::tests::record;
    use crate::orders::tests::{Anything, book};
    use model::order::Steer;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::{Sender, channel};

    fn after(exits: &[Exit]) -> Job {
        let mut job = Job::new(record());
        for exit in exits {
            conclude(&mut job, Ended::default(), (*exit != Exit::Done).then(|| Error::new(*exit, "why")), false);
        }
        job
    }

    #[test]
    fn each_class_of_error_has_its_wait_or_its_end() {
        for (exit, status, reason) in [
            (Exit::Done, Status::Succeeded, Reason::None),
            (Exit::Temporary, Status::Waiting, Reason::Retry),
            (Exit::Unreachable, Status::Waiting, Reason::Unreachable),
            (Exit::NoSpace, Status::Waiting, Reason::Space),
            (Exit::Authentication, Status::Waiting, Reason::Credentials),
            (Exit::Integrity, Status::Waiting, Reason::Retry),
            (Exit::Partial, Status::Partial, Reason::None),
            (Exit::Changed, Status::Partial, Reason::None),
            (Exit::Usage, Status::Failed, Reason::None),
            (Exit::SourceFileNotFound, Status::Failed, Reason::None),
            (Exit::Refused, Status::Failed, Reason::None),
            (Exit::LimitCrossed, Status::Failed, Reason::None),
        ] {
            let job = after(&[exit]);
            assert_eq!((job.record.status(), job.record.reason()), (status, reason), "{exit:?}");
            assert_eq!(job.record.ended.as_ref().map(|ended| ended.code), status.is_end().then_some(exit as i32));
            assert_eq!(job.live.not_before.is_some(), status == Status::Waiting && reason != Reason::Credentials);
        }
    }

    #[test]
    fn trying_again_has_an_end_where_nothing_moves() {
        let times = |exit, times: u32| after(&vec![exit; times as usize]).record.status();
        assert_eq!(times(Exit::Temporary, FAILURES_MAX - 1), Status::Waiting);
        assert_eq!(times(Exit::Temporary, FAILURES_MAX), Status::Failed);
        assert_eq!(times(Exit::Integrity, DAMAGED_MAX + 1), Status::Failed);
        assert_eq!(times(Exit::Unreachable, 1000), Status::Waiting);
    }

    #[test]
    fn rights_that_cannot_be_looked_up_are_believed_for_a_while_and_not_for_ever() {
        let mut doubts = Doubts(0);
        let (cannot_tell, ended) =
            (Refusal::new(CloseCode::Internal, "?"), Refusal::new(CloseCode::Authentication, "no"));
        assert_eq!(doubts.note(Err(ended.clone())), Some(ended));
        for _ in 0..3 {
            assert_eq!(doubts.note(Ok(())), None);
            assert!((1..DOUBTS_MAX).all(|_| doubts.note(Err(cannot_tell.clone())).is_none()));
        }
        assert_eq!(doubts.note(Err(cannot_tell.clone())), Some(cannot_tell));
    }

    struct Endless {
        is_cancelled: AtomicBool,
        cancelled: Sender<()>,
    }

    impl Running for Endless {
        fn wait_timeout(&self, timeout: Duration) -> bool {
            std::thread::park_timeout(timeout);
            self.is_cancelled.load(Relaxed)
        }

        fn sample(&self) -> Option<Sample> {
            None
        }

        fn cancel(&self) {
            self.is_cancelled.store(true, Relaxed);
            let _ = self.cancelled.send(());
        }

        fn set_pace(&self, _pace: Option<Arc<Timetable>>) {}
    }

    #[test]
    fn a_job_that_was_told_to_pause_rests_whatever_its_attempt_came_to() {
        let dir = tempfile::tempdir().unwrap();
        let (orders, key) = (book(&dir), record().key().unwrap());
        let settled = |outcome: Outcome, is_stopping: bool| {
            let mut job = Job::new(record());
            job.record.set(Status::Stopping, Reason::None, Steer::Pause.word());
            (job.live.is_running, job.live.wanted) = (true, Some(Steer::Pause));
            let mut state = orders.lock();
            state.is_stopping = is_stopping;
            state.jobs.insert(key, job);
            drop(state);
            settle(&orders, &Anything, key, outcome, Instant::now());
            let state = orders.lock();
            (state.jobs[&key].record.status(), state.jobs[&key].live.until)
        };
        let lost = || Outcome::Failed(Error::new(Exit::Unreachable, "why"));
        assert_eq!(settled(Outcome::Stopped, false), (Status::Paused, 0));
        assert_eq!(settled(lost(), false), (Status::Paused, 0), "it would be tried again");
        assert_eq!(settled(Outcome::Stopped, true), (Status::Paused, 0), "it would run after the restart");
        let refused = Outcome::Failed(Error::new(Exit::Refused, "why"));
        assert_eq!(settled(refused, false).0, Status::Failed);
    }

    /// Whoever holds it writes, and may wait for storage.
    #[test]
    fn what_runs_ends_with_its_owners_rights_whoever_holds_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (orders, key) = (book(&dir), record().key().unwrap());
        orders.lock().jobs.insert(key, Job::new(record()));
        std::thread::scope(|scope| {
            let ((asks, asked), (holds, held), (cancelled, ends)) = (channel(), channel(), channel());
            let orders = &orders;
            scope.spawn(move || {
                asked.recv().unwrap();
                let _state = orders.lock();
                holds.send(()).unwrap();
                ends.recv().unwrap();
            });
            let rights = || -> Result<(), Refusal> {
                asks.send(()).unwrap();
                held.recv().unwrap();
                Err(Refusal::new(CloseCode::Authentication, "no"))
            };
            let running = Endless { is_cancelled: AtomicBool::new(false), cancelled };
            assert_eq!(look_on(orders, key, &running, &rights).unwrap_err().text, "no");
        });
    }

    #[test]
    fn failures_take_no_more_than_their_room_and_the_rest_is_counted() {
        let failure = |length| model::Failure {
            path: vec![0xff; length],
            kind: model::FailureKind::Permission,
            message: "m".repeat(length),
        };
        let spec: TransferSpec = serde_json::from_str(&record().transfer).unwrap();
        let told = |count, length| {
            let ended = transfer::Ended {
                failures: vec![failure(length); count],
                ..transfer::Ended::before_the_start(&spec, transfer::Direction::Push)
            };
            of_transfer(&ended)
        };
        let long = told(ORDER_FAILURES_MAX, 4096);
        assert!(long.failures.iter().map(Failed::weight).sum::<usize>() <= FAILURE_BYTES_MAX);
        assert_eq!(long.failures.len() as u64 + long.failures_untold, ORDER_FAILURES_MAX as u64);
        assert_eq!(told(ORDER_FAILURES_MAX, 60).failures_untold, 0);
    }
}
