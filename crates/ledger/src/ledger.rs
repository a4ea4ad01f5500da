//! The handle: what callers can ask of the ledger.
//!
//! Each call is queued for the one writer. Calls that change a job's state wait until the change is durable; failures wait
//! only when asked to. No call waits longer than twice `Settings::wait_max` (once for room in
//! the queue, once for the answer).

use crate::error::{Cause, Error, Kind, Result, Subject};
use crate::job::{JobSpec, SweepBefore};
use crate::limits::{MESSAGE_BYTES_MAX, PEER_BYTES_MAX, Settings, TEXT_BYTES_MAX, VACUUM_PAGES_MAX};
use crate::operation::{AttemptRow, Operation, Outcome};
use crate::queue::{Queue, Refused};
use crate::schema;
use crate::state::Verb;
use crate::writer::{LostSlot, Reply, Request, Write, Writer};
use model::Failure;
use model::progress::Counts;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The ledger of one state directory. Clones share one writer; dropping the last one lets the writer finish what is
/// queued, without waiting for it (see `close`).
///
/// Several processes of one host may open the same file. On a network file system they must all be on one host.
#[derive(Clone)]
pub struct Ledger {
    inner: Arc<Inner>,
}

/// One run of a job, and the right to record what happens in it until a newer attempt begins.
#[derive(Clone, Debug)]
pub struct Attempt {
    row: AttemptRow,
    lost: Arc<LostSlot>,
}

/// How an attempt ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum End {
    Succeeded,
    Failed,
    Cancelled,
}

/// What a call returns after.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Wait {
    /// The operation is queued. If it is lost or refused, the attempt's next call says so.
    Queued,
    /// The change survives power loss.
    Durable,
}

struct Inner {
    queue: Arc<Queue<Request>>,
    path: PathBuf,
    settings: Settings,
    /// Receives how closing the file went; taken by the call that waits for it.
    ended: Mutex<Option<Receiver<Result<()>>>>,
}

impl Ledger {
    /// Opens the ledger at `path`, creating it (mode 0600) when nothing is there.
    pub fn open(path: &Path) -> Result<Ledger> {
        Ledger::open_with(path, Settings::default())
    }

    pub fn open_with(path: &Path, settings: Settings) -> Result<Ledger> {
        let failed = |cause: Cause| cause.of("open", Subject::Ledger(path.to_owned()));
        let connection = schema::open(path, &settings).map_err(failed)?;
        let queue = Arc::new(Queue::new(settings.queued_operations_max, settings.queued_bytes_max));
        let writer = Writer::new(connection, queue.clone(), path.to_owned(), settings.clone());
        let (report, ended) = sync_channel(1);
        std::thread::Builder::new()
            .name("ledger".into())
            .spawn(move || drop(report.try_send(writer.run())))
            .map_err(|error| failed(error.into()))?;
        let ended = Mutex::new(Some(ended));
        Ok(Ledger { inner: Arc::new(Inner { queue, path: path.to_owned(), settings, ended }) })
    }

    /// Binds the ledger to the identity of its endpoint. A ledger that belongs to another one, because a state directory
    /// was copied, is refused with `Kind::OtherIdentity`.
    pub fn claim(&self, identity: &str) -> Result<()> {
        let operation = Operation::Claim(identity.to_owned());
        self.bounded(&operation, &[(identity, PEER_BYTES_MAX)])?;
        self.wait(operation).map(drop)
    }

    /// any state -> Planning
    ///
    /// The attempt before, if it is still at work somewhere, is superseded: all its later calls are refused.
    pub fn begin_attempt(&self, spec: &JobSpec) -> Result<Attempt> {
        let operation = Operation::Begin(spec.clone());
        self.spec_bounded(&operation, spec)?;
        let (name, subject) = (operation.name(), operation.subject(&self.inner.path));
        match self.wait(operation)? {
            Outcome::Begun(row) => Ok(Attempt { row, lost: Arc::default() }),
            _ => Err(Cause::from(Kind::Unexpected).of(name, subject)),
        }
    }

    /// Planning, Paused -> Running
    pub fn mark_running(&self, attempt: &Attempt) -> Result<()> {
        self.change(attempt, Verb::Run, None)
    }

    /// Planning, Running -> Paused
    pub fn pause(&self, attempt: &Attempt, counts: Counts) -> Result<()> {
        self.change(attempt, Verb::Pause, Some(counts))
    }

    /// Running -> Succeeded; Planning, Running, Paused -> Failed, Cancelled
    ///
    /// Refused with `Kind::Unbalanced` when more files ended than were listed, or when a job would succeed with a file
    /// failed or pending. When an earlier operation of the attempt was lost, that error is returned and the job is left
    /// as it was; a second call finishes it.
    pub fn finish(&self, attempt: &Attempt, end: End, counts: Counts) -> Result<()> {
        let verb = match end {
            End::Succeeded => Verb::Succeed,
            End::Failed => Verb::Fail,
            End::Cancelled => Verb::Cancel,
        };
        self.change(attempt, verb, Some(counts))
    }

    /// Adds failures to those of the attempt. Beyond `Settings::failures_per_job_max` they are only counted.
    pub fn record_failures(&self, attempt: &Attempt, mut failures: Vec<Failure>, wait: Wait) -> Result<()> {
        for failure in &mut failures {
            shorten(&mut failure.message, MESSAGE_BYTES_MAX);
        }
        self.record(attempt, Operation::Failures { attempt: attempt.row, failures }, wait)
    }

    /// Counts failures of the attempt that are not listed.
    pub fn record_unlisted(&self, attempt: &Attempt, failures: u64, wait: Wait) -> Result<()> {
        self.record(attempt, Operation::Unlisted { attempt: attempt.row, failures }, wait)
    }

    /// Deletes old jobs with their failures, and gives space back. Returns how many jobs went.
    pub fn sweep(&self, before: SweepBefore) -> Result<usize> {
        let mut swept = 0;
        while let Outcome::Swept { jobs: jobs @ 1.. } = self.wait(Operation::Sweep(before))? {
            swept += jobs;
        }
        self.alone("sweep", self.subject(), |connection| {
            let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES_MAX})"))?;
            let mut pages = vacuum.query([])?;
            while pages.next()?.is_some() {}
            Ok(())
        })?;
        Ok(swept)
    }

    /// Waits until everything queued before is durable. Errors of operations that were not waited for go to their
    /// attempts, not here.
    pub fn flush(&self) -> Result<()> {
        self.wait(Operation::Flush).map(drop)
    }

    /// Flushes, and closes the file. All handles are refused from then on (`Kind::Closed`); closing again is no error.
    pub fn close(&self) -> Result<()> {
        let flushed = match self.flush() {
            Err(Error { kind: Kind::Closed, .. }) => Ok(()),
            result => result,
        };
        self.inner.queue.close();
        let ended = self.inner.ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = match ended.map(|ended| ended.recv_timeout(self.inner.settings.wait_max)) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(RecvTimeoutError::Timeout)) => Err(Cause::from(Kind::Stalled).of("close", self.subject())),
            Some(Err(RecvTimeoutError::Disconnected)) => Err(Cause::from(Kind::Unexpected).of("close", self.subject())),
        };
        flushed.and(closed)
    }

    fn change(&self, attempt: &Attempt, verb: Verb, counts: Option<Counts>) -> Result<()> {
        attempt.check_lost()?;
        self.wait(Operation::Change { attempt: attempt.row, verb, counts }).map(drop)
    }

    fn record(&self, attempt: &Attempt, operation: Operation, wait: Wait) -> Result<()> {
        attempt.check_lost()?;
        match wait {
            Wait::Queued => self.submit(attempt, operation, self.inner.settings.wait_max),
            Wait::Durable => self.wait(operation).map(drop),
        }
    }

    fn submit(&self, attempt: &Attempt, operation: Operation, wait: Duration) -> Result<()> {
        let (name, subject) = (operation.name(), operation.subject(&self.inner.path));
        let bytes = operation.bytes();
        let reply = Reply::Later(attempt.lost.clone());
        self.push(Request::Write(Write { operation, reply }), bytes, wait)
            .map_err(|kind| Cause::from(kind).of(name, subject))
    }

    fn wait(&self, operation: Operation) -> Result<Outcome> {
        let (name, subject) = (operation.name(), operation.subject(&self.inner.path));
        let bytes = operation.bytes();
        let (reply, answer) = sync_channel(1);
        let request = Request::Write(Write { operation, reply: Reply::Waiting(reply) });
        let result = self
            .push(request, bytes, self.inner.settings.wait_max)
            .and_then(|()| self.receive(&answer))
            .map_err(|kind| Cause::from(kind).of(name, subject));
        result?
    }

    fn alone<T: Send + 'static>(
        &self,
        operation: &'static str,
        subject: Subject,
        run: impl FnOnce(&Connection) -> std::result::Result<T, Cause> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = sync_channel(1);
        let request = Request::Alone(Box::new(move |connection| drop(reply.try_send(run(connection)))));
        let result = self.push(request, 0, self.inner.settings.wait_max).and_then(|()| self.receive(&answer));
        result.map_err(Cause::from).and_then(|result| result).map_err(|cause| cause.of(operation, subject))
    }

    fn push(&self, request: Request, bytes: usize, wait: Duration) -> std::result::Result<(), Kind> {
        self.inner.queue.push(request, bytes, wait).map_err(|refused| match refused {
            Refused::Closed => Kind::Closed,
            Refused::NoRoom => Kind::Stalled,
        })
    }

    fn receive<T>(&self, answer: &Receiver<T>) -> std::result::Result<T, Kind> {
        answer.recv_timeout(self.inner.settings.wait_max).map_err(|error| match error {
            RecvTimeoutError::Timeout => Kind::Stalled,
            // The writer is gone, and the request with it.
            RecvTimeoutError::Disconnected => Kind::Closed,
        })
    }

    fn subject(&self) -> Subject {
        Subject::Ledger(self.inner.path.clone())
    }

    fn spec_bounded(&self, operation: &Operation, spec: &JobSpec) -> Result<()> {
        let texts = [
            (spec.key.peer.as_str(), PEER_BYTES_MAX),
            (spec.source.as_str(), TEXT_BYTES_MAX),
            (spec.destination.as_str(), TEXT_BYTES_MAX),
            (spec.options.as_str(), TEXT_BYTES_MAX),
        ];
        self.bounded(operation, &texts)
    }

    fn bounded(&self, operation: &Operation, texts: &[(&str, usize)]) -> Result<()> {
        match texts.iter().all(|(text, bytes_max)| text.len() <= *bytes_max) {
            true => Ok(()),
            false => Err(Cause::from(Kind::TooLarge).of(operation.name(), operation.subject(&self.inner.path))),
        }
    }
}

impl Attempt {
    fn check_lost(&self) -> Result<()> {
        self.lost.take().map_or(Ok(()), Err)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Cuts a text at a character boundary.
fn shorten(text: &mut String, bytes_max: usize) {
    let end = (0..=bytes_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    text.truncate(end.unwrap_or(0));
}
