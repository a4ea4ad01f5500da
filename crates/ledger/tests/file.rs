//! Claims about the ledger's file: who may read it, what survives a crash, and what a damaged one leads to.

use ledger::{End, JobFilter, JobKey, JobSpec, Kind, Ledger, Reader, Role, Settings, State, SweepBefore, Wait};
use model::progress::Counts;
use model::{Failure, FailureKind, JobId};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    (directory, path)
}

fn key(number: u8) -> JobKey {
    JobKey { id: JobId([number; 16]), role: Role::Sender, peer: String::new() }
}

fn spec(number: u8) -> JobSpec {
    JobSpec { key: key(number), source: "/x".into(), destination: "b:y".into(), options: String::new() }
}

fn numbered(number: u64) -> Failure {
    Failure { path: number.to_string().into_bytes(), kind: FailureKind::Other, message: "m".into() }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The files as a crash at this moment would leave them.
fn crashed(path: &Path, to: &Path) -> Vec<u8> {
    fs::copy(path, to).unwrap();
    let log = fs::read(beside(path, "-wal")).unwrap();
    fs::write(beside(to, "-wal"), &log).unwrap();
    log
}

fn failures(path: &Path, number: u8) -> ledger::Result<usize> {
    Reader::open(path)?.failures(&key(number), 0, 10_000).map(|failures| failures.len())
}

fn refusal(path: &Path) -> ledger::Error {
    Ledger::open(path).map(drop).unwrap_err()
}

#[test]
fn the_file_and_its_companions_are_private() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    ledger.begin_attempt(&spec(1)).unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let mode = fs::metadata(beside(&path, suffix)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600, "{suffix}");
    }
}

#[test]
fn everything_waited_for_is_there_after_dropping_the_handles() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    ledger.record_failures(&attempt, vec![numbered(1)], Wait::Queued).unwrap();
    ledger.record_failures(&attempt, vec![numbered(2)], Wait::Durable).unwrap();
    drop(ledger);
    let again = Ledger::open(&path).unwrap();
    assert_eq!(failures(&path, 1).unwrap(), 2);
    assert_eq!(Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap()[0].state, State::Running);
    again.begin_attempt(&spec(1)).unwrap();
}

#[test]
fn everything_waited_for_is_there_after_a_crash_and_a_torn_log_loses_only_its_end() {
    let (directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    for number in 0..20 {
        ledger.record_failures(&attempt, vec![numbered(number)], Wait::Durable).unwrap();
    }
    let copy = directory.path().join("crashed.sqlite");
    let log = crashed(&path, &copy);
    Ledger::open(&copy).unwrap().close().unwrap();
    assert_eq!(failures(&copy, 1).unwrap(), 20);

    let mut seen_max = 0;
    for (index, cut) in (0..=log.len()).step_by(log.len() / 23).enumerate() {
        let copy = directory.path().join(format!("torn-{index}.sqlite"));
        crashed(&path, &copy);
        fs::write(beside(&copy, "-wal"), &log[..cut]).unwrap();
        Ledger::open(&copy).unwrap().close().unwrap();
        let raw = rusqlite::Connection::open(&copy).unwrap();
        let finding: String = raw.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).unwrap();
        assert_eq!(finding, "ok");
        let failures = Reader::open(&copy).unwrap().failures(&key(1), 0, 100).unwrap_or_default();
        // A prefix of what was recorded, growing with the part that is left.
        assert!(failures.iter().map(|failure| failure.number).eq(1..=failures.len() as u64));
        assert!(failures.len() >= seen_max);
        seen_max = failures.len();
    }
    assert!(seen_max > 10);
}

#[test]
fn many_processes_may_create_one_ledger_at_once() {
    let (_directory, path) = directory();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let path = &path;
            scope.spawn(move || Ledger::open(path).unwrap().begin_attempt(&spec(number)).map(drop).unwrap());
        }
    });
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap().len(), 8);
    ledger.close().unwrap();
}

#[test]
fn the_write_ahead_log_stays_bounded() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let log_bytes = || fs::metadata(beside(&path, "-wal")).unwrap().len();
    let mut largest = 0;
    let failure = Failure { path: b"f".to_vec(), kind: FailureKind::Other, message: "m".repeat(1000) };
    for _ in 0..20 {
        ledger.record_failures(&attempt, vec![failure.clone(); 1000], Wait::Durable).unwrap();
        largest = largest.max(log_bytes());
    }
    let file_bytes = fs::metadata(&path).unwrap().len();
    assert!(file_bytes > 12 << 20 && largest < 8 << 20, "file {file_bytes}, log {largest}");
}

/// A ledger of some 100 KiB, closed.
fn filled(path: &Path) {
    let ledger = Ledger::open(path).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    ledger.record_failures(&attempt, (0..3000).map(numbered).collect(), Wait::Queued).unwrap();
    ledger.close().unwrap();
    assert!(!beside(path, "-wal").exists());
}

#[test]
fn a_damaged_file_is_reported_with_a_hint_and_left_as_it_is() {
    let (_directory, path) = directory();
    filled(&path);
    let sound = fs::read(&path).unwrap();
    assert!(sound.len() > 50_000);
    let zeros = vec![0; sound.len()];
    let mut page = sound.clone();
    page[20_480..24_576].fill(0xa5);
    let truncated = sound[..sound.len() / 2].to_vec();
    let garbage = b"not a database, but long enough to be taken for one ".repeat(100);
    for damaged in [zeros, page, truncated, garbage, vec![1]] {
        fs::write(&path, &damaged).unwrap();
        let error = refusal(&path);
        assert_eq!(error.kind, Kind::Corrupt);
        assert!(error.kind.hint().unwrap().contains("aside"));
        assert_eq!(error.to_string(), format!("open: ledger {}: damaged", path.display()));
        assert!(fs::read(&path).unwrap() == damaged, "the file was changed");
    }
    fs::write(&path, &sound).unwrap();
    Ledger::open(&path).unwrap().close().unwrap();
    assert_eq!(failures(&path, 1).unwrap(), 3000);
}

#[test]
fn a_file_that_was_emptied_keeps_its_log() {
    let (directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    ledger.begin_attempt(&spec(1)).unwrap();
    let copy = directory.path().join("emptied.sqlite");
    let log = crashed(&path, &copy);
    fs::write(&copy, b"").unwrap();
    assert_eq!(refusal(&copy).kind, Kind::Corrupt);
    assert!(fs::read(beside(&copy, "-wal")).unwrap() == log);
}

#[test]
fn a_newer_version_is_refused_and_left_as_it_is() {
    let (_directory, path) = directory();
    filled(&path);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", 3).unwrap();
    raw.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    let error = refusal(&path);
    assert_eq!(error.kind, Kind::NewerVersion { found: 3, known: 2 });
    assert_eq!(
        error.to_string(),
        format!(
            "open: ledger {}: written by a newer version (format 3; this program knows formats up to 2)",
            path.display()
        )
    );
    assert!(error.kind.hint().is_some());
    assert!(fs::read(&path).unwrap() == bytes);
}

/// As a program of version 1 leaves it: everything is there, and runs are kept from then on.
#[test]
fn a_ledger_of_version_1_is_read_and_continued() {
    let (_directory, path) = directory();
    filled(&path);
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("DROP TABLE runs; PRAGMA user_version = 1").unwrap();
    raw.close().unwrap();
    let jobs = Reader::open(&path).unwrap().runs(None, None, 100).unwrap();
    assert!(!jobs.is_empty());
    let ledger = Ledger::open(&path).unwrap();
    assert_eq!(Reader::open(&path).unwrap().jobs(&JobFilter::default()).unwrap(), jobs);
    ledger.begin_attempt(&spec(1)).unwrap();
    assert_eq!(Reader::open(&path).unwrap().runs(None, None, 100).unwrap().len(), jobs.len() + 1);
}

#[test]
fn another_programs_database_is_refused_and_left_as_it_is() {
    let (_directory, path) = directory();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("CREATE TABLE t (x)").unwrap();
    raw.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(refusal(&path).kind, Kind::Foreign);
    assert!(fs::read(&path).unwrap() == bytes);
}

#[test]
fn a_ledger_serves_one_identity() {
    let (_directory, path) = directory();
    let ledger = Ledger::open(&path).unwrap();
    ledger.claim("one").unwrap();
    ledger.claim("one").unwrap();
    assert_eq!(ledger.claim("other").unwrap_err().kind, Kind::OtherIdentity);
    drop(ledger);
    assert_eq!(Ledger::open(&path).unwrap().claim("other").unwrap_err().kind, Kind::OtherIdentity);
}

#[test]
fn a_path_that_cannot_be_opened_is_an_error_with_its_cause() {
    let (directory, path) = directory();
    let error = refusal(&path.join("below-a-file-that-is-not-there"));
    assert_eq!(error.kind, Kind::Io);
    assert!(error.source.is_some());
    assert_eq!(refusal(directory.path()).kind, Kind::Io);
    // A name that SQLite alone would take for a URI.
    let odd = directory.path().join("file:x?mode=memory");
    Ledger::open(&odd).unwrap().begin_attempt(&spec(1)).unwrap();
    assert!(odd.exists());
}

#[test]
fn a_full_file_refuses_what_does_not_fit_lets_the_rest_through_and_recovers() {
    let (_directory, path) = directory();
    let ledger = Ledger::open_with(&path, Settings { file_bytes_max: 256 << 10, ..Settings::default() }).unwrap();
    let attempt = ledger.begin_attempt(&spec(1)).unwrap();
    let neighbour = ledger.begin_attempt(&spec(2)).unwrap();
    ledger.mark_running(&attempt).unwrap();
    let failure = Failure { path: vec![b'x'; 4000], kind: FailureKind::Other, message: "m".repeat(1000) };
    let too_many = vec![failure.clone(); 100];
    let error = ledger.record_failures(&attempt, too_many.clone(), Wait::Durable).unwrap_err();
    assert_eq!(error.kind, Kind::Full);
    assert!(error.kind.is_transient() && error.kind.hint().is_some());

    // In one group with others, not waited for: only its own attempt hears of it.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for number in 0..10 {
        ledger.record_failures(&neighbour, vec![numbered(number)], Wait::Queued).unwrap();
    }
    ledger.record_failures(&attempt, too_many, Wait::Queued).unwrap();
    ledger.record_failures(&neighbour, vec![numbered(10)], Wait::Queued).unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    ledger.flush().unwrap();
    assert_eq!(failures(&path, 2).unwrap(), 11);
    let counts = Counts { files_listed: 1, files_failed: 1, ..Counts::default() };
    let error = ledger.finish(&attempt, End::Failed, counts).unwrap_err();
    assert_eq!((error.kind, error.operation), (Kind::Full, "record failures"));
    ledger.finish(&attempt, End::Failed, counts).unwrap();

    // Filled to the brim by what fits, and usable again after sweeping.
    while ledger.record_failures(&neighbour, vec![failure.clone()], Wait::Durable).is_ok() {}
    ledger.finish(&neighbour, End::Cancelled, Counts::default()).unwrap();
    let before = SweepBefore { finished_unix_ms: i64::MAX, abandoned_unix_ms: None };
    assert_eq!(ledger.sweep(before).unwrap(), 2);
    let attempt = ledger.begin_attempt(&spec(3)).unwrap();
    ledger.record_failures(&attempt, vec![failure; 20], Wait::Durable).unwrap();
    ledger.close().unwrap();
    assert!(fs::metadata(&path).unwrap().len() <= 256 << 10);
}

#[test]
fn damage_seen_while_running_stops_all_writing() {
    let (_directory, path) = directory();
    filled(&path);
    let ledger = Ledger::open(&path).unwrap();
    // Another process changes something, so that ours reads its pages again, and then breaks them.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute("UPDATE ledger SET flushes = 7", []).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    fs::write(&path, &bytes).unwrap();
    let broken = ledger.begin_attempt(&spec(1)).unwrap_err();
    assert_eq!(broken.kind, Kind::Corrupt);
    let next = ledger.begin_attempt(&spec(2)).unwrap_err();
    assert_eq!((next.kind, next.operation), (Kind::Corrupt, "begin attempt"));
    drop(other);
    assert_eq!(ledger.close().unwrap_err().kind, Kind::Corrupt);
}
