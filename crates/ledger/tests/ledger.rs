//! Claims about the ledger of jobs: what a caller can ask, what it refuses, and what survives.

use ledger::{
    Attempt, End, Error, Job, JobFilter, JobKey, JobSpec, Kind, Ledger, Reader, RecordedFailure, Role, Settings, State,
    Subject, SweepBefore, Wait,
};
use model::progress::Counts;
use model::{Failure, FailureKind, JobId};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;
use tempfile::TempDir;

const NOW: i64 = 1_700_000_000_123;

fn settings() -> Settings {
    Settings { clock: || NOW, ..Settings::default() }
}

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    (directory, path)
}

fn key(number: u8) -> JobKey {
    JobKey { id: JobId([number; 16]), role: Role::Receiver, peer: "peer".into() }
}

fn spec(number: u8) -> JobSpec {
    JobSpec { key: key(number), source: "a:/x".into(), destination: "/y".into(), options: "--fsync batch".into() }
}

fn counts(listed: u64, done: u64, failed: u64) -> Counts {
    Counts {
        files_listed: listed,
        files_done: done,
        files_failed: failed,
        bytes_done: done.saturating_mul(10),
        ..Counts::default()
    }
}

fn failure(name: &str) -> Failure {
    Failure { path: name.into(), kind: FailureKind::Permission, message: "refused".into() }
}

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> Kind {
    result.unwrap_err().kind
}

fn jobs(path: &Path, filter: &JobFilter) -> Vec<Job> {
    Reader::open(path).unwrap().jobs(filter).unwrap()
}

fn failures(path: &Path, number: u8, after: u64) -> Result<Vec<RecordedFailure>, Error> {
    Reader::open(path).unwrap().failures(&key(number), after, 10_000)
}

fn state(path: &Path, number: u8) -> Option<State> {
    let jobs = jobs(path, &JobFilter { id: Some(JobId([number; 16])), ..JobFilter::default() });
    jobs.first().map(|job| job.state)
}

/// Holds the file's write lock as another process would.
fn other_writer(path: &Path) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[test]
fn a_finished_job_is_listed_with_all_that_was_recorded() {
    let (_directory, path) = directory();
    let ledger = Ledger::open_with(&path, settings()).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    let odd = Failure { path: b"\xff/\x01".to_vec(), ..failure("") };
    ledger.record_failures(&attempt, vec![failure("f"), odd.clone()], Wait::Queued).unwrap();
    let totals = Counts {
        files_listed: 10,
        bytes_listed: 11,
        files_done: 6,
        bytes_done: 13,
        files_skipped: 2,
        bytes_skipped: 15,
        files_failed: 2,
        directories: 17,
        bytes_sent: u64::MAX,
        bytes_resumed: 19,
        ..Counts::default()
    };
    ledger.finish(&attempt, End::Failed, totals).unwrap();

    let jobs = jobs(&path, &JobFilter::default());
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!(job.key, key(1));
    assert_eq!((&job.source[..], &job.destination[..], &job.options[..]), ("a:/x", "/y", "--fsync batch"));
    assert_eq!((job.state, job.attempts), (State::Failed, 1));
    assert_eq!((job.created_unix_ms, job.updated_unix_ms, job.finished_unix_ms), (NOW, NOW, Some(NOW)));
    assert_eq!(job.counts, Counts { bytes_sent: i64::MAX as u64, ..totals });
    assert_eq!((job.failures_listed, job.failures_unlisted), (2, 0));

    let all = failures(&path, 1, 0).unwrap();
    assert_eq!(all.iter().map(|f| f.failure.clone()).collect::<Vec<_>>(), [failure("f"), odd]);
    assert_eq!(failures(&path, 1, 1).unwrap()[0].number, 2);
    assert_eq!(kind(failures(&path, 2, 0)), Kind::NotFound);
}

/// Brings job `number` into a state by calls alone.
fn drive(ledger: &Ledger, number: u8, state: Option<State>) -> Option<Attempt> {
    let state = state?;
    let attempt = ledger.begin_attempt(&spec(number)).unwrap();
    if matches!(state, State::Running | State::Succeeded) {
        ledger.mark_running(&attempt).unwrap();
    }
    match state {
        State::Paused => ledger.pause(&attempt, counts(0, 0, 0)).unwrap(),
        State::Succeeded => ledger.finish(&attempt, End::Succeeded, counts(0, 0, 0)).unwrap(),
        State::Failed => ledger.finish(&attempt, End::Failed, counts(0, 0, 0)).unwrap(),
        State::Cancelled => ledger.finish(&attempt, End::Cancelled, counts(0, 0, 0)).unwrap(),
        _ => {}
    }
    Some(attempt)
}

#[test]
fn every_call_changes_the_state_as_the_table_says_or_not_at_all() {
    use ledger::Verb;
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let verbs = [Verb::Begin, Verb::Run, Verb::Pause, Verb::Succeed, Verb::Fail, Verb::Cancel];
    // This program brings no job into the state of a queue.
    let befores = [None].into_iter().chain(State::ALL.into_iter().filter(|state| *state != State::Queued).map(Some));
    for (number, (before, verb)) in befores.flat_map(|before| verbs.map(|verb| (before, verb))).enumerate() {
        let number = number as u8;
        let attempt = drive(&ledger, number, before);
        assert_eq!(state(&path, number), before);
        let zero = counts(0, 0, 0);
        let result = match (verb, &attempt) {
            (Verb::Begin, _) => ledger.begin_attempt(&spec(number)).map(drop),
            // An absent job has no attempt that could ask.
            (_, None) => continue,
            (Verb::Run, Some(attempt)) => ledger.mark_running(attempt),
            (Verb::Pause, Some(attempt)) => ledger.pause(attempt, zero),
            (Verb::Succeed, Some(attempt)) => ledger.finish(attempt, End::Succeeded, zero),
            (Verb::Fail, Some(attempt)) => ledger.finish(attempt, End::Failed, zero),
            (Verb::Cancel, Some(attempt)) => ledger.finish(attempt, End::Cancelled, zero),
        };
        let after = State::after(before, verb);
        match (before, after) {
            (_, Some(_)) => result.unwrap(),
            (Some(state), None) => assert_eq!(kind(result), Kind::WrongState { state }, "{verb:?}"),
            (None, None) => assert_eq!(kind(result), Kind::NotFound, "{verb:?}"),
        }
        assert_eq!(state(&path, number), after.or(before), "{before:?} {verb:?}");
    }
}

#[test]
fn counts_that_do_not_add_up_finish_nothing() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    for (end, counts) in [
        (End::Succeeded, counts(3, 2, 0)),
        (End::Succeeded, counts(3, 2, 1)),
        (End::Succeeded, counts(3, 4, 0)),
        (End::Failed, counts(3, 2, 2)),
        (End::Cancelled, counts(u64::MAX, u64::MAX, u64::MAX)),
    ] {
        assert_eq!(kind(ledger.finish(&attempt, end, counts)), Kind::Unbalanced);
    }
    assert_eq!(kind(ledger.pause(&attempt, counts(1, 2, 0))), Kind::Unbalanced);
    assert_eq!(state(&path, 1), Some(State::Running));
    ledger.finish(&attempt, End::Succeeded, counts(3, 3, 0)).unwrap();
}

#[test]
fn a_newer_attempt_supersedes_one_in_another_process() {
    let (_directory, path) = directory();
    let one = Ledger::open(&path).unwrap();
    let other = Ledger::open(&path).unwrap();
    let old = one.begin_attempt(&spec(1)).unwrap();
    one.mark_running(&old).unwrap();
    let new = other.begin_attempt(&spec(1)).unwrap();
    assert_eq!(jobs(&path, &JobFilter::default())[0].attempts, 2);
    assert_eq!(kind(one.record_failures(&old, vec![failure("f")], Wait::Durable)), Kind::Superseded);
    assert_eq!(kind(one.finish(&old, End::Succeeded, counts(0, 0, 0))), Kind::Superseded);
    assert!(failures(&path, 1, 0).unwrap().is_empty());
    other.mark_running(&new).unwrap();
    other.finish(&new, End::Succeeded, counts(0, 0, 0)).unwrap();
    assert_eq!(state(&path, 1), Some(State::Succeeded));
}

#[test]
fn a_new_attempt_begins_without_the_failures_and_counts_of_the_one_before() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).unwrap();
    ledger.finish(&attempt, End::Failed, counts(2, 1, 1)).unwrap();
    ledger.begin_attempt(&spec(1)).unwrap();
    assert!(failures(&path, 1, 0).unwrap().is_empty());
    let job = jobs(&path, &JobFilter::default()).remove(0);
    assert_eq!((job.counts, job.failures_listed, job.finished_unix_ms), (Counts::default(), 0, None));
}

#[test]
fn what_came_of_each_attempt_is_kept_as_a_run() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).unwrap();
    ledger.finish(&attempt, End::Failed, counts(2, 1, 1)).unwrap();
    // One that is broken off without a word, and the latest; another job beside them.
    for number in [1, 1, 2] {
        ledger.begin_attempt(&spec(number)).unwrap();
    }
    let reader = Reader::open(&path).unwrap();
    let runs = reader.runs(Some(key(1).id), None, 10).unwrap();
    let mut facts: Vec<_> = runs.iter().map(|run| (run.attempts, run.state, run.counts, run.failures_listed)).collect();
    facts.sort_by_key(|(attempts, ..)| *attempts);
    let none = Counts::default();
    assert_eq!(
        facts,
        [(1, State::Failed, counts(2, 1, 1), 1), (2, State::Paused, none, 0), (3, State::Planning, none, 0)]
    );
    assert!(runs.iter().all(|run| run.key == key(1) && run.finished_unix_ms.is_some() == (run.attempts == 1)));
    assert_eq!(
        (reader.runs(None, None, 10).unwrap().len(), reader.runs(None, Some(i64::MAX), 10).unwrap().len()),
        (4, 0)
    );
}

#[test]
fn a_reader_sees_what_is_durable_while_a_writer_is_at_work_and_makes_nothing() {
    let (directory, path) = directory();
    assert_eq!(Reader::open(&path).err().unwrap().kind, Kind::Absent);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let ledger = Ledger::open_with(&path, settings()).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.record_failures(&attempt, vec![failure("f")], Wait::Durable).unwrap();
    let reader = Reader::open(&path).unwrap();
    let jobs = reader.jobs(&JobFilter::default()).unwrap();
    assert_eq!((jobs.len(), jobs[0].state, jobs[0].failures_listed), (1, State::Planning, 1));
    assert_eq!(reader.failures(&key(1), 0, 10).unwrap()[0].failure, failure("f"));
    assert_eq!(kind(reader.failures(&key(2), 0, 10)), Kind::NotFound);
    let changed = |since| JobFilter { changed_since_unix_ms: Some(since), ..JobFilter::default() };
    assert_eq!([NOW, NOW + 1].map(|since| reader.jobs(&changed(since)).unwrap().len()), [1, 0]);
    ledger.finish(&attempt, End::Failed, counts(1, 0, 1)).unwrap();
    assert_eq!(reader.jobs(&JobFilter::default()).unwrap()[0].state, State::Failed);
    drop(reader);
    ledger.close().unwrap();
    assert_eq!(Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap().len(), 1);
    std::fs::write(&path, b"no database, and long enough to be taken for one").unwrap();
    assert_eq!(Reader::open(&path).err().unwrap().kind, Kind::Corrupt);
}

#[test]
fn a_peer_that_presents_anothers_job_id_finds_nothing_of_it() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let stranger = JobSpec { key: JobKey { peer: "stranger".into(), ..key(1) }, ..spec(1) };
    ledger.begin_attempt(&stranger).unwrap();
    let as_sender = JobSpec { key: JobKey { role: Role::Sender, ..key(1) }, ..spec(1) };
    ledger.begin_attempt(&as_sender).unwrap();
    ledger.mark_running(&attempt).unwrap();
    let of_id = jobs(&path, &JobFilter { id: Some(JobId([1; 16])), ..JobFilter::default() });
    assert!(of_id.len() == 3 && of_id.iter().all(|job| job.attempts == 1), "{of_id:?}");
    let senders = jobs(&path, &JobFilter { role: Some(Role::Sender), ..JobFilter::default() });
    assert_eq!(senders.iter().map(|job| job.key.clone()).collect::<Vec<_>>(), [as_sender.key]);
    let states = vec![State::Running, State::Paused];
    let running = jobs(&path, &JobFilter { states, ..JobFilter::default() });
    assert_eq!(running.iter().map(|job| job.key.clone()).collect::<Vec<_>>(), [key(1)]);
    assert_eq!(jobs(&path, &JobFilter { limit: 2, ..JobFilter::default() }).len(), 2);
}

#[test]
fn failures_beyond_the_bound_are_counted() {
    let (_directory, path) = directory();
    let ledger = Ledger::open_with(&path, Settings { failures_per_job_max: 3, ..settings() }).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let long = Failure { message: "é".repeat(5000), ..failure("a") };
    ledger.record_failures(&attempt, vec![long, failure("b")], Wait::Queued).unwrap();
    let endless = Failure { path: vec![b'x'; 1 << 20], ..failure("") };
    ledger.record_failures(&attempt, vec![endless, failure("c"), failure("d"), failure("e")], Wait::Queued).unwrap();
    ledger.flush().unwrap();
    let failures = failures(&path, 1, 0).unwrap();
    assert_eq!(failures.iter().map(|f| &f.failure.path[..]).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert_eq!(failures[0].failure.message, "é".repeat(512));
    let job = jobs(&path, &JobFilter::default()).remove(0);
    assert_eq!((job.failures_listed, job.failures_unlisted), (3, 3));
}

#[test]
fn an_operation_that_was_not_waited_for_and_lost_is_told_once_to_its_own_attempt() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let (old, neighbour) = (ledger.begin_attempt(&spec(1)).unwrap(), ledger.begin_attempt(&spec(2)).unwrap());
    ledger.begin_attempt(&spec(1)).unwrap();
    ledger.record_failures(&old, vec![failure("f")], Wait::Queued).unwrap();
    ledger.record_failures(&neighbour, vec![failure("f")], Wait::Queued).unwrap();
    ledger.flush().unwrap();
    let error = ledger.record_unlisted(&old, 1, Wait::Queued).unwrap_err();
    assert_eq!((error.kind, error.operation), (Kind::Superseded, "record failures"));
    assert!(matches!(error.subject, Subject::Job(id) if id == JobId([1; 16])));
    ledger.record_unlisted(&neighbour, 1, Wait::Queued).unwrap();
    let error = ledger.finish(&old, End::Failed, counts(0, 0, 0)).unwrap_err();
    assert_eq!((error.kind, error.operation), (Kind::Superseded, "finish"));
    assert_eq!(failures(&path, 2, 0).unwrap().len(), 1);
}

#[test]
fn sweeping_deletes_old_finished_jobs_and_abandoned_ones_only_when_asked() {
    let (_directory, path) = directory();
    let ledger = Ledger::open_with(&path, settings()).unwrap();
    for number in 1..=250 {
        let attempt = ledger.begin_attempt(&spec(number)).unwrap();
        ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).unwrap();
        ledger.finish(&attempt, End::Cancelled, counts(0, 0, 0)).unwrap();
    }
    let live = ledger.begin_attempt(&spec(251)).unwrap();
    let before = SweepBefore { finished_unix_ms: NOW, abandoned_unix_ms: None };
    assert_eq!(ledger.sweep(before).unwrap(), 0);
    assert_eq!(ledger.sweep(SweepBefore { finished_unix_ms: NOW + 1, ..before }).unwrap(), 250);
    assert_eq!(state(&path, 251), Some(State::Planning));
    assert_eq!(kind(failures(&path, 1, 0)), Kind::NotFound);
    ledger.mark_running(&live).unwrap();
    let abandoned = SweepBefore { abandoned_unix_ms: Some(NOW + 1), ..before };
    assert_eq!(ledger.sweep(abandoned).unwrap(), 1);
    assert_eq!(kind(ledger.finish(&live, End::Failed, counts(0, 0, 0))), Kind::NotFound);
    // A row is never used twice: the swept attempt does not become the first attempt of a later job.
    ledger.begin_attempt(&spec(252)).unwrap();
    assert_eq!(kind(ledger.mark_running(&live)), Kind::NotFound);
    ledger.close().unwrap();
    let rows = rusqlite::Connection::open(&path).unwrap();
    let left: i64 = rows.query_row("SELECT count(*) FROM failures", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn many_operations_share_one_commit() {
    // The clock is read once for each commit.
    static COMMITS: AtomicI64 = AtomicI64::new(0);
    let (_directory, path) = directory();
    let settings = Settings { clock: || COMMITS.fetch_add(1, Relaxed), ..settings() };
    let ledger = Ledger::open_with(&path, settings).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let before = COMMITS.load(Relaxed);
    let other = other_writer(&path);
    for number in 1..=5000 {
        ledger.record_failures(&attempt, vec![failure(&number.to_string())], Wait::Queued).unwrap();
    }
    other.execute_batch("ROLLBACK").unwrap();
    ledger.flush().unwrap();
    // One for what the writer took first, one for what had gathered meanwhile, one for the flush.
    assert!(COMMITS.load(Relaxed) - before <= 3);
    let last = failures(&path, 1, 4001).unwrap();
    assert_eq!((last.len(), last[998].failure.clone()), (999, failure("5000")));
}

#[test]
fn handles_on_many_threads_lose_nothing() {
    let (_directory, path) = directory();
    let ledger = Ledger::open_with(&path, Settings { queued_operations_max: 8, ..settings() }).unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let ledger = ledger.clone();
            scope.spawn(move || {
                let attempt = ledger.begin_attempt(&spec(number)).unwrap();
                ledger.mark_running(&attempt).unwrap();
                for _ in 0..200 {
                    ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).unwrap();
                }
                ledger.finish(&attempt, End::Succeeded, counts(200, 200, 0)).unwrap();
            });
        }
    });
    for number in 0..8 {
        assert_eq!(state(&path, number), Some(State::Succeeded));
        assert_eq!(failures(&path, number, 0).unwrap().len(), 200);
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    let finding: String = raw.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).unwrap();
    assert_eq!(finding, "ok");
}

#[test]
fn another_process_that_holds_the_file_is_an_error_in_time_and_not_for_ever() {
    let (_directory, path) = directory();
    let short = Settings { busy_max: Duration::from_millis(20), ..settings() };
    let ledger = Ledger::open_with(&path, short).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let other = other_writer(&path);
    let error = ledger.mark_running(&attempt).unwrap_err();
    assert_eq!(error.kind, Kind::Busy);
    assert!(error.kind.is_transient() && error.source.is_some());
    assert_eq!(state(&path, 1), Some(State::Planning), "reading goes on");
    other.execute_batch("ROLLBACK").unwrap();
    ledger.mark_running(&attempt).unwrap();
}

#[test]
fn a_writer_that_does_not_answer_stalls_nobody_for_ever() {
    let (_directory, path) = directory();
    // What has to come to pass does so through a handle with patience: this machine may be busy.
    let patient = Ledger::open(&path).unwrap();
    let attempt = patient.begin_attempt(&spec(1)).unwrap();
    let short = Settings { wait_max: Duration::from_millis(20), queued_operations_max: 2, ..settings() };
    let ledger = Ledger::open_with(&path, short).unwrap();
    let other = other_writer(&path);
    assert_eq!(kind(ledger.mark_running(&attempt)), Kind::Stalled);
    while ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).is_ok() {}
    assert_eq!(kind(ledger.flush()), Kind::Stalled);
    other.execute_batch("ROLLBACK").unwrap();
    while ledger.flush().is_err() {}
    assert_eq!(state(&path, 1), Some(State::Running), "the change came to pass after all");
}

#[test]
fn a_closed_ledger_refuses_and_closing_again_is_no_error() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.record_failures(&attempt, vec![failure("f")], Wait::Queued).unwrap();
    let clone = ledger.clone();
    ledger.close().unwrap();
    clone.close().unwrap();
    assert_eq!(kind(clone.mark_running(&attempt)), Kind::Closed);
    assert_eq!(kind(clone.record_unlisted(&attempt, 1, Wait::Queued)), Kind::Closed);
    assert_eq!(kind(clone.flush()), Kind::Closed);
    assert_eq!(failures(&path, 1, 0).unwrap().len(), 1);
}

#[test]
fn oversized_texts_are_refused() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let long = JobSpec { source: "x".repeat(70_000), ..spec(1) };
    assert_eq!(kind(ledger.begin_attempt(&long)), Kind::TooLarge);
    let long = JobSpec { key: JobKey { peer: "x".repeat(2000), ..key(1) }, ..spec(1) };
    assert_eq!(kind(ledger.begin_attempt(&long)), Kind::TooLarge);
    assert_eq!(kind(ledger.claim(&"x".repeat(2000))), Kind::TooLarge);
}

#[test]
fn handles_may_be_shared_between_threads() {
    fn assert_shareable<T: Clone + Send + Sync + 'static>() {}
    assert_shareable::<Ledger>();
    assert_shareable::<Attempt>();
    assert_shareable::<Error>();
}
