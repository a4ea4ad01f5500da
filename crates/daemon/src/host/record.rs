//! The record of one job: gathers what was delivered into bundles, and tells log and ledger.
//!
//! Its lock is held for additions and one line of the log, never while the network is waited for.

use crate::events::EventLog;
use crate::history::{History, Number, Outcome};
use crate::transfer_log::{TransferLog, path_text, plain_text};
use ledger::{End, JobKey, JobSpec, Role};
use model::progress::Counts;
use model::{Failure, JobId, Pin, TransferOptions};
use mover::session::Grant;
use mover::{Delivered, Ending, Snapshot};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{debug, info};
use wire::CloseCode;
use wire::handshake::Direction;
use wire::message::Open;

/// Files of this size have a line of their own.
const LARGE_FILE_BYTES: u64 = 64 << 20;
const BUNDLE_FILES_MAX: u64 = 1000;
const BUNDLE_BYTES_MAX: u64 = 64 << 20;
/// Failures of one job that are written down one by one, as long as their texts fit too: a client can make failures at will,
/// and the log and the ledger are everybody's. The rest is counted.
const FAILURES_MAX: u64 = 1000;
const FAILURE_BYTES_MAX: usize = 256 << 10;
/// Failures that go to the ledger at once.
const FAILURES_AT_ONCE: usize = 64;
/// Bytes of the paths in the ledger's texts.
const SPEC_TEXT_BYTES_MAX: usize = 4096;

/// Where jobs are written down: for the operator, for other programs, for this endpoint itself.
pub struct Books {
    pub log: Arc<TransferLog>,
    pub events: Arc<EventLog>,
    pub history: Arc<History>,
}

pub struct JobRecord {
    pub number: Number,
    log: Arc<TransferLog>,
    events: Arc<EventLog>,
    history: Arc<History>,
    started: Instant,
    job: JobId,
    client: String,
    pin: Pin,
    /// `in` or `out`.
    direction: &'static str,
    /// What all lines of this job have in common.
    fields: Map<String, Value>,
    state: Mutex<State>,
}

/// A job as whoever runs the endpoint sees it.
#[derive(Clone, Debug)]
pub struct RunningJob {
    pub job: JobId,
    /// What the endpoint calls the client.
    pub client: String,
    /// `in` or `out`.
    pub direction: &'static str,
    pub seconds: f64,
    /// Delivered so far.
    pub files: u64,
    pub bytes: u64,
}

#[derive(Default)]
struct State {
    /// Gathered for the next line.
    files: u64,
    bytes: u64,
    first: Vec<u8>,
    /// Since the job began.
    files_delivered: u64,
    bytes_delivered: u64,
    failures: u64,
    failure_bytes: usize,
    failures_left_out: u64,
    unsaved_failures: Vec<Failure>,
    is_ended: bool,
}

fn event_of(direction: &str) -> &'static str {
    if direction == "in" { "thalweg.job.receive" } else { "thalweg.job.send" }
}

impl JobRecord {
    pub fn begin(
        books: Books,
        host: &str,
        grant: &Grant,
        job: JobId,
        direction: Direction,
        open: &Open,
        options: &TransferOptions,
    ) -> Arc<JobRecord> {
        let Books { log, events, history } = books;
        let number = history.begin(spec(host, grant, job, direction, open, options));
        let direction = if direction == Direction::ClientSends { "in" } else { "out" };
        let client = plain_text(&grant.name);
        debug!(client, pin = %grant.pin, %job, direction, "job opened");
        let fields = json!({"client": client, "pin": grant.pin.to_string(), "job": job.to_string(),
            "direction": direction});
        let Value::Object(fields) = fields else { unreachable!("written as an object") };
        events.start(event_of(direction), &job.to_string(), json!({"peer": grant.pin.to_string()}));
        let state = Mutex::default();
        let (pin, started) = (grant.pin, Instant::now());
        Arc::new(JobRecord { number, log, events, history, started, job, client, pin, direction, fields, state })
    }

    pub fn delivered(&self, batch: &[Delivered]) {
        let mut state = self.lock();
        state.files_delivered += batch.len() as u64;
        state.bytes_delivered += batch.iter().map(|object| object.size_bytes).sum::<u64>();
        for object in batch {
            if object.size_bytes >= LARGE_FILE_BYTES {
                let digest = format!("{}:{}", object.digest.algorithm().name(), object.digest);
                let path = path_text(&object.path);
                self.write("file", json!({"path": path, "bytes": object.size_bytes, "digest": digest}));
                continue;
            }
            if state.files == 0 {
                state.first = object.path.clone();
            }
            state.files += 1;
            state.bytes += object.size_bytes;
            if state.files >= BUNDLE_FILES_MAX || state.bytes >= BUNDLE_BYTES_MAX {
                self.write_bundle(&mut state);
            }
        }
    }

    pub fn failed(&self, failure: &Failure) {
        let mut state = self.lock();
        let (path, message) = (path_text(&failure.path), plain_text(&failure.message));
        // The log has them escaped and shortened, the ledger as they are.
        let bytes = path.len().max(failure.path.len()) + message.len().max(failure.message.len());
        if state.failures >= FAILURES_MAX
            || state.failure_bytes >= FAILURE_BYTES_MAX
            || !self.log.has_room_for_failure(self.pin, bytes)
        {
            state.failures_left_out += 1;
            return;
        }
        state.failures += 1;
        state.failure_bytes += bytes;
        self.write("failure", json!({"path": path, "kind": failure.kind.name(), "message": message}));
        state.unsaved_failures.push(failure.clone());
        if state.unsaved_failures.len() >= FAILURES_AT_ONCE {
            self.save_failures(&mut state);
        }
    }

    pub fn running(&self) -> RunningJob {
        let state = self.lock();
        RunningJob {
            job: self.job,
            client: self.client.clone(),
            direction: self.direction,
            seconds: self.seconds(),
            files: state.files_delivered,
            bytes: state.bytes_delivered,
        }
    }

    /// Writes the last lines.
    pub fn end(&self, snapshot: &Snapshot, ending: &Ending) {
        let counts = &snapshot.counts;
        let (outcome, reason) = match ending {
            Ending::Finished(_) if counts.files_failed > 0 => (Outcome::Ended(End::Failed), String::new()),
            Ending::Finished(_) => (Outcome::Ended(End::Succeeded), String::new()),
            Ending::Cancelled { refusal, .. } if refusal.code == CloseCode::Cancelled => {
                (Outcome::Ended(End::Cancelled), refusal.text.clone())
            }
            // Rights that ended, a path that did not get on, a bound of the user's: the same command continues when that is over.
            Ending::Cancelled { refusal, .. }
                if matches!(refusal.code, CloseCode::Authentication | CloseCode::NoProgress | CloseCode::Reached) =>
            {
                (Outcome::Paused, refusal.text.clone())
            }
            Ending::Cancelled { refusal, .. } => (Outcome::Ended(End::Failed), refusal.text.clone()),
            Ending::Lost(why) => (Outcome::Paused, why.clone()),
        };
        self.finish(outcome, counts, &reason, snapshot.elapsed.as_secs_f64());
    }

    /// Ends a job that was opened and then refused.
    pub fn not_started(&self) {
        self.finish(Outcome::Ended(End::Failed), &Counts::default(), "not started", self.seconds());
    }

    /// Ends a job that was still running when the endpoint stopped.
    pub fn abandoned(&self) {
        self.finish(Outcome::Paused, &Counts::default(), "the endpoint stopped", self.seconds());
    }

    /// Writes what was gathered so far.
    pub fn flush(&self) {
        let mut state = self.lock();
        self.write_bundle(&mut state);
        self.save_failures(&mut state);
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn finish(&self, outcome: Outcome, counts: &Counts, reason: &str, seconds: f64) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_ended, true) {
            return;
        }
        let left_out = state.failures_left_out;
        drop(state);
        self.flush();
        if left_out > 0 {
            self.write("failures", json!({"left_out": left_out}));
            self.history.left_out(self.number, left_out);
        }
        let word = match outcome {
            Outcome::Ended(End::Succeeded) => "succeeded",
            Outcome::Ended(End::Failed) => "failed",
            Outcome::Ended(End::Cancelled) => "cancelled",
            Outcome::Paused => "paused",
        };
        let status = if word == "succeeded" { 0 } else { -1 };
        let amounts = json!({"outcome": word, "files": counts.files_done, "failed": counts.files_failed,
            "bytes": counts.bytes_done, "bytes_sent": counts.bytes_sent});
        self.events.end(event_of(self.direction), &self.job.to_string(), status, amounts);
        let line = json!({"outcome": word, "reason": plain_text(reason), "files": counts.files_done,
            "skipped": counts.files_skipped, "failed": counts.files_failed, "bytes": counts.bytes_done,
            "seconds": (seconds * 1000.0).round() / 1000.0});
        let fields = self.with_common(line);
        let is_told = if counts.files_done + counts.bytes_done + counts.files_failed > 0 {
            self.log.write("job", &fields);
            true
        } else {
            self.log.write_fruitless(self.pin, &self.client, "job", &fields)
        };
        let (client, job) = (self.client.as_str(), self.job);
        let (files, failed, bytes) = (counts.files_done, counts.files_failed, counts.bytes_done);
        if is_told {
            info!(client, %job, outcome = word, files, failed, bytes, seconds, "job ended");
        }
        self.history.end(self.number, outcome, *counts);
    }

    fn write_bundle(&self, state: &mut State) {
        if state.files > 0 {
            let first = path_text(&std::mem::take(&mut state.first));
            self.write("bundle", json!({"files": state.files, "bytes": state.bytes, "first": first}));
            (state.files, state.bytes) = (0, 0);
        }
    }

    fn save_failures(&self, state: &mut State) {
        if !state.unsaved_failures.is_empty() {
            self.history.failures(self.number, std::mem::take(&mut state.unsaved_failures));
        }
    }

    fn write(&self, event: &'static str, more: Value) {
        self.log.write(event, &self.with_common(more));
    }

    /// What all lines of the job have in common, and more.
    fn with_common(&self, more: Value) -> Map<String, Value> {
        let mut fields = self.fields.clone();
        if let Value::Object(more) = more {
            fields.extend(more);
        }
        fields
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn spec(host: &str, grant: &Grant, id: JobId, direction: Direction, open: &Open, options: &TransferOptions) -> JobSpec {
    let mut paths = String::new();
    for path in &open.paths {
        if !paths.is_empty() {
            paths.push(' ');
        }
        paths.push_str(&path_text(path));
        if paths.len() > SPEC_TEXT_BYTES_MAX {
            break;
        }
    }
    let (here, there) = (format!("{host}:{paths}"), format!("client {}", plain_text(&grant.name)));
    let (role, source, destination) = match direction {
        Direction::ClientSends => (Role::Receiver, there, here),
        Direction::ServerSends => (Role::Sender, here, there),
    };
    let options = format!(
        "fsync={} verify={} digest={} chunk_bytes={} no_clobber={} engine={}",
        options.fsync, options.verify, options.digest, options.chunk_bytes, options.no_clobber, options.engine
    );
    JobSpec { key: JobKey { id, role, peer: grant.pin.to_string() }, source, destination, options }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{JobFilter, Reader};
    use model::FailureKind;
    use std::time::Duration;

    /// The words of the log, and how many failures the ledger lists and leaves out.
    fn recorded(failures: impl Iterator<Item = Failure>) -> (Vec<Value>, u64, u64) {
        let dir = tempfile::tempdir().unwrap();
        let log = Arc::new(TransferLog::open(&dir.path().join("log")).unwrap());
        let history = Arc::new(History::open(&dir.path().join("ledger.db"), Pin([1; 32])).unwrap());
        let key = JobKey { id: JobId([1; 16]), role: Role::Receiver, peer: "p".into() };
        let spec = JobSpec { key, source: "s".into(), destination: "d".into(), options: String::new() };
        let record = JobRecord {
            number: history.begin(spec),
            log,
            events: Arc::new(EventLog::new(dir.path(), "h")),
            history: history.clone(),
            started: Instant::now(),
            job: JobId([1; 16]),
            direction: "in",
            client: "c".into(),
            pin: Pin([1; 32]),
            fields: Map::new(),
            state: Mutex::default(),
        };
        failures.for_each(|failure| record.failed(&failure));
        record.not_started();
        assert!(history.close(Instant::now() + Duration::from_secs(30)));
        let reader = Reader::open(&dir.path().join("ledger.db")).unwrap();
        let job = reader.jobs(&JobFilter::default()).unwrap().remove(0);
        let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines, job.failures_listed, job.failures_unlisted)
    }

    fn failure(path_bytes: usize) -> Failure {
        Failure { path: vec![0xff; path_bytes], kind: FailureKind::Permission, message: "why".into() }
    }

    #[test]
    fn failures_beyond_the_budget_of_a_job_are_one_line_with_their_number() {
        let (lines, listed, left_out) = recorded((0..1500).map(|_| failure(10)));
        assert_eq!((listed, left_out), (1000, 500));
        let events: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!((events.len(), events[999], &events[1000..]), (1002, "failure", &["failures", "job"][..]));
        assert_eq!(lines[1000]["left_out"], 500);
        let (lines, listed, left_out) = recorded((0..1500).map(|_| failure(4000)));
        assert_eq!(listed + left_out, 1500);
        assert!((1..=FAILURE_BYTES_MAX as u64 / 4000 + 1).contains(&listed), "{listed}");
        assert_eq!(lines.len() as u64, listed + 2);
        let (lines, ..) = recorded((0..3).map(|_| failure(10)));
        assert_eq!((lines.len(), &lines[3]["event"]), (4, &json!("job")));
    }
}
