//! Writes what happens to jobs into the ledger, on a thread of its own: no transfer waits for the ledger's disk.
//!
//! Invariants: the queue is bounded, and what does not fit is dropped and counted; an error of the ledger is logged and
//! ends no transfer. A ledger that was removed or replaced while the endpoint runs is noticed at the next job: the endpoint
//! says so and goes on with the file that is there, or with a new one.

use crate::error::{Error, Result, shown};
use ledger::{Attempt, End, JobSpec, Kind, Ledger, SweepBefore, Wait};
use model::progress::Counts;
use model::{Exit, Failure, Pin};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{debug, error, warn};

const QUEUE_EVENTS_MAX: usize = 1024;
/// Attempts whose end is awaited: above what all sessions together may have open.
const ATTEMPTS_MAX: usize = 8192;
/// How long finished jobs, and jobs that nobody continued, are remembered.
const KEPT: Duration = Duration::from_secs(90 * 86_400);

/// How often `close` looks whether the thread has ended.
const CLOSE_INTERVAL: Duration = Duration::from_millis(1);

/// Names an attempt until its end.
pub type Number = u64;

/// How an attempt ended, in the ledger's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Ended(End),
    /// Broken off; the same command continues it.
    Paused,
}

pub struct History {
    events: SyncSender<Event>,
    next: AtomicU64,
    dropped: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Event {
    Begin(Number, Box<JobSpec>),
    Failures(Number, Vec<Failure>),
    LeftOut(Number, u64),
    End(Number, Outcome, Counts),
    Stop,
}

/// Opens a ledger for an identity; its own thread ends with the value.
fn claim(path: &Path, identity: Pin) -> Result<Ledger> {
    let ledger = Ledger::open(path).and_then(|ledger| ledger.claim(&identity.to_string()).map(|()| ledger));
    ledger.map_err(|e| {
        let error = Error::new(Exit::Failed, e.to_string());
        Error { hint: e.kind.hint().map(str::to_owned), ..error }
    })
}

impl History {
    /// Whether `open` would succeed; no thread is left when this returns.
    pub fn check(path: &Path, identity: Pin) -> Result<()> {
        let ledger = claim(path, identity)?;
        // Opened again at once: what closing has to say will be said then.
        let _ = ledger.close();
        Ok(())
    }

    /// Opens the ledger of an endpoint. One of another identity or of a newer version is refused (F091).
    pub fn open(path: &Path, identity: Pin) -> Result<History> {
        let mut book = Book::open(path, identity)?;
        let (events, queue) = sync_channel(QUEUE_EVENTS_MAX);
        let thread = std::thread::Builder::new().name("history".into()).spawn(move || book.record(&queue));
        let thread = thread.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        let thread = Mutex::new(Some(thread));
        Ok(History { events, next: AtomicU64::new(1), dropped: AtomicU64::new(0), thread })
    }

    pub fn begin(&self, spec: JobSpec) -> Number {
        let number = self.next.fetch_add(1, Relaxed);
        self.offer(Event::Begin(number, Box::new(spec)));
        number
    }

    pub fn failures(&self, number: Number, failures: Vec<Failure>) {
        self.offer(Event::Failures(number, failures));
    }

    /// So many more failures of the attempt are not told one by one.
    pub fn left_out(&self, number: Number, failures: u64) {
        self.offer(Event::LeftOut(number, failures));
    }

    /// Waits for room in the queue: an end is told once, on a thread that moves no data.
    pub fn end(&self, number: Number, outcome: Outcome, counts: Counts) {
        // Refused only after `close`, when the endpoint is gone.
        let _ = self.events.send(Event::End(number, outcome, counts));
    }

    /// Waits until what was told is in the ledger, at most until `deadline`; a disk that hangs must not keep the endpoint.
    pub fn close(&self, deadline: Instant) -> bool {
        while let Err(TrySendError::Full(_)) = self.events.try_send(Event::Stop)
            && Instant::now() < deadline
        {
            std::thread::park_timeout(CLOSE_INTERVAL);
        }
        let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() else { return true };
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::park_timeout(CLOSE_INTERVAL);
        }
        let is_closed = thread.is_finished() && thread.join().is_ok();
        if !is_closed {
            warn!("the ledger was not closed in time");
        }
        is_closed
    }

    fn offer(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            let dropped = self.dropped.fetch_add(1, Relaxed) + 1;
            // 1, 2, 4, ... : a stalled disk is not worth a line for each event.
            if dropped.is_power_of_two() {
                warn!(dropped, "the ledger cannot keep up; some of the history is missing");
            }
        }
    }
}

/// The ledger as its thread has it, and the attempts whose end is awaited.
struct Book {
    path: PathBuf,
    identity: Pin,
    /// None while the file that is there cannot be used.
    ledger: Option<Ledger>,
    /// The ledger's file, and that of its latest changes.
    files: [Option<FileId>; 2],
    attempts: HashMap<Number, (Box<JobSpec>, Attempt)>,
}

/// Device and inode.
type FileId = (u64, u64);

fn file_id(path: &Path) -> Option<FileId> {
    std::fs::symlink_metadata(path).ok().map(|status| (status.dev(), status.ino()))
}

impl Book {
    fn open(path: &Path, identity: Pin) -> Result<Book> {
        let ledger = Some(claim(path, identity)?);
        let mut book = Book { path: path.to_owned(), identity, ledger, files: [None; 2], attempts: HashMap::new() };
        book.files = book.files_there();
        Ok(book)
    }

    fn record(&mut self, queue: &Receiver<Event>) {
        if let Some(ledger) = &self.ledger {
            sweep(ledger);
        }
        while let Ok(event) = queue.recv() {
            if matches!(event, Event::Stop) {
                break;
            }
            if matches!(event, Event::Begin(..) | Event::End(..)) {
                self.look();
            }
            match self.note(event) {
                Ok(()) => {}
                // The same job was started again while this attempt was still ending.
                Err(e) if matches!(e.kind, Kind::Superseded | Kind::WrongState { .. }) => {
                    debug!(error = %e, "superseded");
                }
                Err(e) => warn!(error = %e, "the ledger was not written"),
            }
        }
        if let Some(Err(e)) = self.ledger.as_ref().map(Ledger::close) {
            warn!(error = %e, "the ledger was not closed cleanly");
        }
    }

    fn note(&mut self, event: Event) -> ledger::Result<()> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        match event {
            Event::Begin(number, spec) if self.attempts.len() < ATTEMPTS_MAX => {
                let attempt = begin(ledger, &spec)?;
                self.attempts.insert(number, (spec, attempt));
                Ok(())
            }
            Event::Begin(..) | Event::Stop => Ok(()),
            Event::Failures(number, failures) => match self.attempts.get(&number) {
                Some((_, attempt)) => ledger.record_failures(attempt, failures, Wait::Queued),
                None => Ok(()),
            },
            Event::LeftOut(number, failures) => match self.attempts.get(&number) {
                Some((_, attempt)) => ledger.record_unlisted(attempt, failures, Wait::Queued),
                None => Ok(()),
            },
            Event::End(number, outcome, counts) => match self.attempts.remove(&number) {
                Some((_, attempt)) => end(ledger, &attempt, outcome, counts),
                None => Ok(()),
            },
        }
    }

    /// Goes on in another file when the one that is written to is no longer the one at the path.
    fn look(&mut self) {
        let [file, changes] = self.files_there();
        if file == self.files[0] && file.is_some() {
            // Made with the first change.
            self.files[1] = changes;
            return;
        }
        if let Some(ledger) = self.ledger.take() {
            let path = shown(&self.path);
            error!(path, "the ledger was removed or replaced while the endpoint runs; what it held is lost here");
            // SQLite leaves the changes of a file alone that was moved away; the next file must not take them for its own.
            let _ = ledger.close();
            if changes.is_some() && changes == self.files[1] {
                let _ = std::fs::remove_file(self.changes_path());
            }
        }
        match claim(&self.path, self.identity) {
            Ok(ledger) => {
                warn!("the ledger continues in the file that is there now");
                for (spec, attempt) in self.attempts.values_mut() {
                    match begin(&ledger, spec) {
                        Ok(again) => *attempt = again,
                        Err(e) => warn!(error = %e, "the ledger was not written"),
                    }
                }
                self.ledger = Some(ledger);
                self.files = self.files_there();
            }
            // Said once for each file.
            Err(e) if file != self.files[0] => {
                error!(error = %e, "no history is recorded until the ledger is repaired or removed");
                self.files[0] = file;
            }
            Err(_) => {}
        }
    }

    fn files_there(&self) -> [Option<FileId>; 2] {
        [file_id(&self.path), file_id(&self.changes_path())]
    }

    fn changes_path(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        path.into()
    }
}

fn begin(ledger: &Ledger, spec: &JobSpec) -> ledger::Result<Attempt> {
    let attempt = ledger.begin_attempt(spec)?;
    ledger.mark_running(&attempt)?;
    Ok(attempt)
}

fn end(ledger: &Ledger, attempt: &Attempt, outcome: Outcome, counts: Counts) -> ledger::Result<()> {
    let finish = || match outcome {
        Outcome::Ended(end) => ledger.finish(attempt, end, counts),
        Outcome::Paused => ledger.pause(attempt, counts),
    };
    // The first call returns what was lost on the way, for instance failures that were too long; the job still ends.
    finish().or_else(|e| if matches!(e.kind, Kind::TooLarge | Kind::Full) { finish() } else { Err(e) })
}

fn sweep(ledger: &Ledger) {
    let kept = SystemTime::now().checked_sub(KEPT).and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let before = kept.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(0));
    let sweep = SweepBefore { finished_unix_ms: before, abandoned_unix_ms: Some(before) };
    match ledger.sweep(sweep) {
        Ok(0) => {}
        Ok(jobs) => debug!(jobs, "old jobs forgotten"),
        Err(e) => warn!(error = %e, "old jobs were not forgotten"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{JobFilter, JobKey, Reader, Role, State};
    use model::{FailureKind, JobId};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn spec(id: u8) -> JobSpec {
        JobSpec {
            key: JobKey { id: JobId([id; 16]), role: Role::Receiver, peer: "p".into() },
            source: "s".into(),
            destination: "d".into(),
            options: String::new(),
        }
    }

    #[test]
    fn attempts_end_in_the_ledger_as_they_ended() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        let history = History::open(&path, Pin([1; 32])).unwrap();
        let done = Counts { files_listed: 2, files_done: 2, ..Counts::default() };
        let partly = Counts { files_listed: 2, files_done: 1, files_failed: 1, ..Counts::default() };
        let (a, b, c) = (history.begin(spec(1)), history.begin(spec(2)), history.begin(spec(3)));
        let failure = Failure { path: b"x".to_vec(), kind: FailureKind::Permission, message: "m".into() };
        history.failures(b, vec![failure]);
        history.end(a, Outcome::Ended(End::Succeeded), done);
        history.end(b, Outcome::Ended(End::Failed), partly);
        history.end(c, Outcome::Paused, partly);
        history.end(99, Outcome::Paused, partly);
        assert!(history.close(Instant::now() + PATIENCE));
        let mut jobs = Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap();
        jobs.sort_by_key(|job| job.key.id);
        let states: Vec<_> = jobs.iter().map(|job| (job.state, job.counts.files_done, job.failures_listed)).collect();
        assert_eq!(states, [(State::Succeeded, 2, 0), (State::Failed, 1, 1), (State::Paused, 1, 0)]);
    }

    /// An attempt that is under way is recorded in the new file from its beginning; what was there before is not.
    #[test]
    fn a_ledger_that_is_removed_or_replaced_is_noticed_and_recording_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        let done = Counts { files_listed: 1, files_done: 1, ..Counts::default() };
        let mut book = Book::open(&path, Pin([1; 32])).unwrap();
        let tell = |book: &mut Book, event| {
            book.look();
            book.note(event).unwrap();
        };
        let ended = |number| Event::End(number, Outcome::Ended(End::Succeeded), done);
        let ids = |book: &Book| {
            assert!(book.ledger.is_some());
            let jobs = Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap();
            let mut ids: Vec<_> = jobs.iter().map(|job| (job.key.id.0[0], job.state)).collect();
            ids.sort_by_key(|(id, _)| *id);
            ids
        };
        tell(&mut book, Event::Begin(1, Box::new(spec(1))));
        tell(&mut book, ended(1));
        tell(&mut book, Event::Begin(2, Box::new(spec(2))));
        std::fs::remove_file(&path).unwrap();
        tell(&mut book, ended(2));
        assert_eq!(ids(&book), [(2, State::Succeeded)]);
        // One of another endpoint is left alone; nothing is recorded until it is gone.
        let other = dir.path().join("other.db");
        History::open(&other, Pin([2; 32])).unwrap().close(Instant::now() + PATIENCE);
        let bytes = std::fs::read(&other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        tell(&mut book, Event::Begin(3, Box::new(spec(3))));
        assert!(book.ledger.is_none() && std::fs::read(&path).unwrap() == bytes);
        std::fs::remove_file(&path).unwrap();
        tell(&mut book, Event::Begin(4, Box::new(spec(4))));
        tell(&mut book, ended(4));
        assert_eq!(ids(&book), [(4, State::Succeeded)]);
        // One that was kept elsewhere, as a backup is.
        let kept = dir.path().join("kept.db");
        let history = History::open(&kept, Pin([1; 32])).unwrap();
        let number = history.begin(spec(9));
        history.end(number, Outcome::Ended(End::Succeeded), done);
        assert!(history.close(Instant::now() + PATIENCE));
        tell(&mut book, Event::Begin(5, Box::new(spec(5))));
        std::fs::rename(&kept, &path).unwrap();
        tell(&mut book, Event::Begin(6, Box::new(spec(6))));
        assert_eq!(ids(&book), [(5, State::Running), (6, State::Running), (9, State::Succeeded)]);
    }

    #[test]
    fn a_ledger_of_another_endpoint_is_refused_with_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.db");
        History::open(&path, Pin([1; 32])).unwrap().close(Instant::now() + PATIENCE);
        let error = History::open(&path, Pin([2; 32])).err().unwrap();
        assert!(error.hint.is_some_and(|hint| hint.contains("state directory")));
    }
}
