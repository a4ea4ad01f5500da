//! The one thread that owns the SQLite connection: takes what is queued, commits it as one group, then answers.
//!
//! Invariants:
//! - A caller that waits is answered after the commit, which is synced when anyone in the group waits.
//! - One refused operation does not touch its neighbours; an error of the file undoes the group and is everyone's answer.
//! - After a failed sync, or once damage was seen, nothing more is written: what earlier commits left behind in memory
//!   and on disk may differ. Opening the ledger again reads it back with its checksums.

use crate::error::{Cause, Error, Kind, Subject, is_failed_sync};
use crate::limits::{LOG_FRAMES_MAX, Settings};
use crate::operation::{Context, Operation, Outcome};
use crate::queue::Queue;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) enum Request {
    Write(Write),
    /// Runs between two groups. Sees all that was queued before it.
    Alone(Box<dyn FnOnce(&Connection) + Send>),
}

pub(crate) struct Write {
    pub operation: Operation,
    pub reply: Reply,
}

pub(crate) enum Reply {
    /// The caller waits for the change to be durable.
    Waiting(SyncSender<Result<Outcome, Error>>),
    /// Nobody waits; an error is kept for the attempt's next call.
    Later(Arc<LostSlot>),
}

/// The first error of an attempt's operations that were not waited for.
#[derive(Default, Debug)]
pub(crate) struct LostSlot(Mutex<Option<Error>>);

impl LostSlot {
    pub(crate) fn take(&self) -> Option<Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

pub(crate) struct Writer {
    connection: Connection,
    queue: Arc<Queue<Request>>,
    path: PathBuf,
    settings: Settings,
    /// What `PRAGMA synchronous` is set to.
    is_synced: bool,
    /// Commits since the last one that was synced.
    has_unsynced: bool,
    /// Why nothing more is written.
    fault: Option<Error>,
}

impl Writer {
    /// `connection` is as `schema::open` left it.
    pub(crate) fn new(connection: Connection, queue: Arc<Queue<Request>>, path: PathBuf, settings: Settings) -> Writer {
        Writer { connection, queue, path, settings, is_synced: true, has_unsynced: false, fault: None }
    }

    /// Works until the queue is closed and drained, then closes the file.
    pub(crate) fn run(mut self) -> Result<(), Error> {
        // Also when this thread panics: callers are refused instead of waiting.
        let _closer = CloseOnDrop(self.queue.clone());
        loop {
            let requests = self.queue.take();
            if requests.is_empty() {
                break;
            }
            let mut group = Vec::with_capacity(requests.len());
            for request in requests {
                match request {
                    Request::Write(write) => group.push(write),
                    Request::Alone(run) => {
                        self.commit(&group);
                        group.clear();
                        run(&self.connection);
                    }
                }
            }
            self.commit(&group);
            self.checkpoint();
        }
        self.close()
    }

    fn close(self) -> Result<(), Error> {
        if self.fault.is_some() {
            // The log is left for the next start to read back and check, instead of being copied unchecked.
            let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        let subject = Subject::Ledger(self.path);
        self.connection.close().map_err(|(_, error)| Cause::from(error).of("close", subject))
    }

    /// Commits and answers a group.
    fn commit(&mut self, group: &[Write]) {
        let is_empty = group.iter().all(|write| matches!(write.operation, Operation::Flush));
        if is_empty && !self.has_unsynced && self.fault.is_none() {
            group.iter().for_each(|write| answer(write, Ok(Outcome::Done)));
            return;
        }
        match self.try_commit(group) {
            Ok(results) => group.iter().zip(results).for_each(|(write, result)| answer(write, result)),
            // What did not fit may be one operation of many: halving finds it in few commits and lets the others through.
            Err(cause) if cause.kind == Kind::Full && group.len() > 1 => {
                let (first, second) = group.split_at(group.len() / 2);
                self.commit(first);
                self.commit(second);
            }
            Err(cause) => self.fail(group, cause),
        }
    }

    /// Applies the group in one transaction. `Err` means that nothing of it was changed; within `Ok`, a refused operation
    /// has changed nothing.
    fn try_commit(&mut self, group: &[Write]) -> Result<Vec<Result<Outcome, Error>>, Cause> {
        if let Some(fault) = &self.fault {
            return Err(Cause { kind: fault.kind, source: Some(Arc::new(fault.clone())) });
        }
        let is_waited = group.iter().any(|write| matches!(write.reply, Reply::Waiting(_)));
        if self.is_synced != is_waited {
            self.connection.pragma_update(None, "synchronous", if is_waited { "FULL" } else { "NORMAL" })?;
            self.is_synced = is_waited;
        }
        let context =
            Context { now_unix_ms: (self.settings.clock)(), failures_max: self.settings.failures_per_job_max };
        let mut results = Vec::with_capacity(group.len());
        let mut transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for write in group {
            let savepoint = transaction.savepoint()?;
            match write.operation.apply(&savepoint, context) {
                Ok(outcome) => {
                    savepoint.commit()?;
                    results.push(Ok(outcome));
                }
                Err(cause) if cause.kind.ends_group() => return Err(cause),
                Err(cause) => {
                    savepoint.finish()?;
                    results.push(Err(cause.of(write.operation.name(), write.operation.subject(&self.path))));
                }
            }
        }
        if is_waited && self.has_unsynced {
            // A commit that writes nothing syncs nothing either, and those who wait rely on earlier commits too.
            Operation::Flush.apply(&transaction, context)?;
        }
        transaction.commit()?;
        assert_eq!(results.len(), group.len());
        self.has_unsynced = !is_waited;
        Ok(results)
    }

    /// Copies the write-ahead log into the file when it has grown.
    ///
    /// SQLite would do so within a commit, but without a word of errors, and a sync of the log that fails there
    /// is the only sign that commits which were not synced are lost, and synced ones behind them with them.
    fn checkpoint(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let result = log_frames(&self.connection, "NOOP").and_then(|(frames, copied)| {
            if frames - copied >= LOG_FRAMES_MAX { log_frames(&self.connection, "PASSIVE").map(drop) } else { Ok(()) }
        });
        if let Err(error) = result {
            // Anything else is tried again after the next group.
            self.note_fault(&Cause::from(error));
        }
    }

    fn note_fault(&mut self, cause: &Cause) {
        if self.fault.is_none() && (cause.kind == Kind::Corrupt || is_failed_sync(cause)) {
            let source = cause.source.clone();
            let subject = Subject::Ledger(self.path.clone());
            self.fault = Some(Error { kind: cause.kind, operation: "commit", subject, source });
        }
    }

    fn fail(&mut self, group: &[Write], cause: Cause) {
        self.note_fault(&cause);
        for write in group {
            let (operation, subject) = (write.operation.name(), write.operation.subject(&self.path));
            answer(write, Err(Error { kind: cause.kind, operation, subject, source: cause.source.clone() }));
        }
    }
}

fn answer(write: &Write, result: Result<Outcome, Error>) {
    match (&write.reply, result) {
        // A caller that gave up waiting has dropped its end.
        (Reply::Waiting(caller), result) => drop(caller.try_send(result)),
        (Reply::Later(slot), Err(error)) => slot.put(error),
        (Reply::Later(_), Ok(_)) => {}
    }
}

/// Runs a checkpoint; frames in the log, and how many of them are in the file.
fn log_frames(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| Ok((row.get(1)?, row.get(2)?)))
}

struct CloseOnDrop(Arc<Queue<Request>>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
        // Requests that came in between are dropped, and with them what their callers wait on.
        self.0.take();
    }
}
