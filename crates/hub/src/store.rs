//! The database of a hub: `hub.db` in its state directory, and the transactions that change it.
//!
//! Invariants: one connection writes, and each group of changes is one synced transaction. A file that is not a hub's, or a newer
//! hub's, is refused and left as it is. A copy that was put back counts its events from beyond those of the original, so that no
//! number of an event is given twice (`generation`).

use crate::events::Event;
use crate::job_file::{JobFile, Wish};
use crate::retention::{Keep, Sweep};
use crate::{Error, Result, unix_ms};
use model::order::Role;
use model::{Exit, JobId};
use queue::{Facts, Goal, Job, Reason, Status, Work};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// "TWHB".
const APPLICATION_ID: i64 = 0x5457_4842;
/// The n-th step leads from version n to version n + 1. A released step is never changed.
const MIGRATIONS: [&str; 1] = [include_str!("schema_1.sql")];
const VERSION: i64 = MIGRATIONS.len() as i64;
const BUSY_MAX: Duration = Duration::from_secs(10);
/// Events of a new generation begin this far beyond the last one.
const GENERATION_STEP: i64 = 1 << 32;

pub struct Store {
    connection: Connection,
    path: PathBuf,
    pub last_event: i64,
    /// The first event that this generation has, or may still have.
    pub generation_from: i64,
}

/// A row that says what a job is, beside where it stands.
pub struct Stored {
    pub job: Job,
    pub file: JobFile,
}

/// What one group of changes writes.
#[derive(Default)]
pub struct Group {
    pub new: Vec<NewJob>,
    /// Each change of a job, in order.
    pub changes: Vec<Job>,
    pub keys: Vec<Key>,
    pub reports: Vec<Report>,
    pub removed: Vec<JobId>,
    /// Jobs that are asked for otherwise than before.
    pub rewritten: Vec<Rewritten>,
}

pub struct Rewritten {
    pub id: JobId,
    pub body: String,
    pub facts: Facts,
}

pub struct NewJob {
    pub id: JobId,
    pub seq: u64,
    pub wish: Wish,
    pub body: String,
    pub labels: Vec<(String, String)>,
}

pub struct Key {
    pub owner: String,
    pub key: String,
    pub digest: [u8; 32],
    pub job: JobId,
}

/// What an attempt left.
pub struct Report {
    pub job: JobId,
    pub text: String,
    pub failures: Vec<(String, String, String)>,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        let Group { new, changes, keys, reports, removed, rewritten } = self;
        new.is_empty()
            && changes.is_empty()
            && keys.is_empty()
            && reports.is_empty()
            && removed.is_empty()
            && rewritten.is_empty()
    }
}

pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("hub.db")
}

impl Store {
    pub fn open(state_dir: &Path) -> Result<Store> {
        let path = path(state_dir);
        let failed = |e: rusqlite::Error| of_sqlite(&path, &e);
        // SQLite gives its other files the permissions of this one.
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        if let Err(e) = made
            && e.kind() != std::io::ErrorKind::AlreadyExists
        {
            return Err(Error::of_file("make", &path, e));
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        recognise(&connection).map_err(failed)?.check(&path)?;
        prepare(&mut connection).map_err(failed)?;
        let mut store = Store { connection, path: path.clone(), last_event: 0, generation_from: 0 };
        store.begin_generation().map_err(failed)?;
        Ok(store)
    }

    /// Notices that the file is another one than the last hub wrote: then it is a copy, and may be an old one.
    fn begin_generation(&mut self) -> rusqlite::Result<()> {
        let own = std::fs::metadata(&self.path).map_or(0, |found| found.ino() as i64);
        let meta = |name: &str| -> rusqlite::Result<Option<i64>> {
            let mut select = self.connection.prepare("SELECT value FROM meta WHERE name = ?1")?;
            select.query_row([name], |row| row.get(0)).optional()
        };
        let (inode, from, generation) = (meta("inode")?, meta("generation_from")?, meta("generation")?.unwrap_or(0));
        let last: i64 = self.connection.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0))?;
        let is_new = inode != Some(own);
        let from = if is_new && inode.is_some() { last + GENERATION_STEP } else { from.unwrap_or(1) };
        let set = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        for (name, value) in [("inode", own), ("generation_from", from), ("generation", generation + i64::from(is_new))]
        {
            self.connection.execute(set, params![name, value])?;
        }
        self.last_event = last.max(from - 1);
        self.generation_from = from;
        Ok(())
    }

    /// The number of the next job.
    pub fn next_seq(&self) -> Result<u64> {
        let select = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)";
        let last: i64 = self.connection.query_row(select, [], |row| row.get(0)).map_err(|e| self.failed(&e))?;
        Ok(last as u64 + 1)
    }

    /// The open jobs, from the oldest on. Of what cannot be read, the message is given to `unusable`.
    pub fn open_jobs(&self, unusable: &mut dyn FnMut(String)) -> Result<Vec<Stored>> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE ended IS NULL ORDER BY seq");
        self.stored(&select, [], unusable)
    }

    /// One job, whatever its state.
    pub fn job(&self, id: JobId) -> Result<Option<Stored>> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
        Ok(self.stored(&select, [&id.0[..]], &mut |_| {})?.pop())
    }

    fn stored(
        &self,
        select: &str,
        values: impl rusqlite::Params,
        unusable: &mut dyn FnMut(String),
    ) -> Result<Vec<Stored>> {
        let read = || {
            let mut select = self.connection.prepare_cached(select)?;
            let mut rows = select.query(values)?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                match of_row(row)? {
                    Ok(stored) => found.push(stored),
                    Err(why) => unusable(why),
                }
            }
            Ok(found)
        };
        read().map_err(|e| self.failed(&e))
    }

    /// The status of a job, and nothing of one that is not there.
    pub fn status(&self, id: JobId) -> Result<Option<Status>> {
        let mut select =
            self.connection.prepare_cached("SELECT status FROM jobs WHERE id = ?1").map_err(|e| self.failed(&e))?;
        let word: Option<String> =
            select.query_row([&id.0[..]], |row| row.get(0)).optional().map_err(|e| self.failed(&e))?;
        Ok(word.and_then(|word| Status::from_word(&word)))
    }

    /// Refuses what was decided on by an older state of a job than the present one.
    pub fn check_version(&self, id: JobId, version: u64) -> Result<()> {
        let select = "SELECT version FROM jobs WHERE id = ?1";
        let mut select = self.connection.prepare_cached(select).map_err(|e| self.failed(&e))?;
        let found: Option<i64> =
            select.query_row([&id.0[..]], |row| row.get(0)).optional().map_err(|e| self.failed(&e))?;
        match found {
            Some(found) if found as u64 != version => {
                Err(Error::new(Exit::Inconclusive, "the job has changed meanwhile")
                    .hint("look at it again, then decide"))
            }
            _ => Ok(()),
        }
    }

    pub fn key(&self, owner: &str, key: &str) -> Result<Option<([u8; 32], JobId)>> {
        let select = "SELECT digest, job FROM keys WHERE owner = ?1 AND key = ?2";
        let mut select = self.connection.prepare_cached(select).map_err(|e| self.failed(&e))?;
        let found: Option<([u8; 32], [u8; 16])> = select
            .query_row([owner, key], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|e| self.failed(&e))?;
        Ok(found.map(|(digest, job)| (digest, JobId(job))))
    }

    /// Durable when this returns; after an error nothing of it happened. The events that tell of the changes.
    pub fn commit(&mut self, group: &Group) -> Result<Vec<Event>> {
        let written = self.try_commit(group);
        match written {
            Ok(events) => {
                self.last_event = events.last().map_or(self.last_event, |event| event.id);
                Ok(events)
            }
            Err(_) if model::mutant::is_on("hub-answers-before-it-is-durable") => Ok(Vec::new()),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn try_commit(&mut self, group: &Group) -> rusqlite::Result<Vec<Event>> {
        let (now, mut id) = (unix_ms(), self.last_event);
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for job in &group.new {
            insert(&transaction, job, now)?;
        }
        let mut events = Vec::with_capacity(group.changes.len());
        for job in &group.changes {
            update(&transaction, job, now)?;
            id += 1;
            let event = Event::of(id, now, job);
            let mut insert = transaction.prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5)")?;
            insert.execute(params![id, now, job.id.0, event.owner, event.data])?;
            events.push(event);
        }
        for Rewritten { id, body, facts } in &group.rewritten {
            let put = "UPDATE jobs SET body = ?2, class = ?3, priority = ?4 WHERE id = ?1";
            transaction.prepare_cached(put)?.execute(params![id.0, body, facts.class.word(), facts.priority])?;
        }
        for key in &group.keys {
            let put = "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
            transaction.prepare_cached(put)?.execute(params![key.owner, key.key, key.digest, key.job.0, now])?;
        }
        for report in &group.reports {
            put_report(&transaction, report)?;
        }
        for job in &group.removed {
            for delete in ["DELETE FROM keys WHERE job = ?1", "DELETE FROM jobs WHERE id = ?1"] {
                transaction.prepare_cached(delete)?.execute([&job.0[..]])?;
            }
        }
        transaction.commit()?;
        Ok(events)
    }

    /// Forgets some of what is old; true once all was looked at.
    pub fn forget_old(&mut self, sweep: &mut Sweep, keep: Keep) -> Result<bool> {
        sweep.step(&mut self.connection, keep, unix_ms()).map_err(|e| of_sqlite(&self.path, &e))
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        of_sqlite(&self.path, error)
    }
}

const COLUMNS: &str = "id, seq, owner, body, status, reason, text, hint, until, attempt, role, goal, failures, passes, \
    is_switched, after, begun, code, files_listed, bytes_listed, is_listed, files_done, bytes_done";

/// A job of its row; in words why not.
fn of_row(row: &Row<'_>) -> rusqlite::Result<std::result::Result<Stored, String>> {
    let id = JobId(row.get(0)?);
    let owner: String = row.get(2)?;
    let body: String = row.get(3)?;
    let words: [String; 2] = [row.get(4)?, row.get(5)?];
    let role: Option<String> = row.get(10)?;
    let goal: Option<String> = row.get(11)?;
    let after: String = row.get(15)?;
    let count = |index| row.get::<_, i64>(index).map(|value| value.max(0) as u64);
    let work = Work {
        files_listed: count(18)?,
        bytes_listed: count(19)?,
        is_listed: row.get(20)?,
        files_done: count(21)?,
        bytes_done: count(22)?,
    };
    let wish = JobFile::from_json(&body).and_then(|file| file.wish(&owner).map(|wish| (file, wish)));
    let (file, wish) = match wish {
        Ok(found) => found,
        Err(e) => return Ok(Err(format!("job {id}: {}", e.message))),
    };
    let (Some(status), Some(reason)) = (Status::from_word(&words[0]), Reason::from_word(&words[1])) else {
        return Ok(Err(format!("job {id}: its state is not known to this version")));
    };
    let job = Job {
        after: after.split(',').filter_map(JobId::from_hex).collect(),
        status,
        reason,
        text: row.get(6)?,
        hint: row.get(7)?,
        until: row.get(8)?,
        attempt: row.get(9)?,
        role: role.as_deref().and_then(Role::from_word),
        goal: goal.as_deref().and_then(Goal::from_word),
        failures: row.get(12)?,
        passes: row.get(13)?,
        is_switched: row.get(14)?,
        has_begun: row.get::<_, Option<i64>>(16)?.is_some(),
        code: row.get(17)?,
        work,
        ..Job::new(id, row.get::<_, i64>(1)? as u64, wish.facts, Vec::new())
    };
    Ok(Ok(Stored { job, file }))
}

fn insert(connection: &Connection, new: &NewJob, now: i64) -> rusqlite::Result<()> {
    let facts = &new.wish.facts;
    let put = "INSERT INTO jobs (seq, id, owner, project, class, priority, from_endpoint, to_endpoint, body, created, version,
            changed, status, reason, text, hint, attempt, failures, passes, is_switched, after, files_listed, bytes_listed,
            is_listed, files_done, bytes_done)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?10, 'queued', '', '', '', 0, 0, 0, 0, '', 0, 0, 0, 0, 0)";
    connection.prepare_cached(put)?.execute(params![
        new.seq as i64,
        new.id.0,
        &*facts.owner,
        &*facts.project,
        facts.class.word(),
        facts.priority,
        &*facts.from,
        &*facts.to,
        new.body,
        now
    ])?;
    for (name, value) in &new.labels {
        connection.prepare_cached("INSERT INTO labels VALUES (?1, ?2, ?3)")?.execute(params![
            new.seq as i64,
            name,
            value
        ])?;
    }
    Ok(())
}

fn update(connection: &Connection, job: &Job, now: i64) -> rusqlite::Result<()> {
    let after: Vec<String> = job.after.iter().map(ToString::to_string).collect();
    let put = "UPDATE jobs SET version = version + 1, changed = ?2, status = ?3, reason = ?4, text = ?5, hint = ?6, until = ?7,
            attempt = ?8, role = ?9, goal = ?10, failures = ?11, passes = ?12, is_switched = ?13, after = ?14, code = ?15,
            files_listed = ?16, bytes_listed = ?17, is_listed = ?18, files_done = ?19, bytes_done = ?20,
            begun = CASE WHEN ?21 THEN coalesce(begun, ?2) ELSE begun END, ended = CASE WHEN ?22 THEN ?2 ELSE NULL END
        WHERE id = ?1";
    connection.prepare_cached(put)?.execute(params![
        job.id.0,
        now,
        job.status.word(),
        job.reason.word(),
        job.text,
        job.hint,
        job.until,
        job.attempt,
        job.role.map(Role::word),
        job.goal.map(Goal::word),
        job.failures,
        job.passes,
        job.is_switched,
        after.join(","),
        job.code,
        sql(job.work.files_listed),
        sql(job.work.bytes_listed),
        job.work.is_listed,
        sql(job.work.files_done),
        sql(job.work.bytes_done),
        job.has_begun,
        job.status.is_end(),
    ])?;
    Ok(())
}

fn put_report(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
    let seq: Option<i64> = connection
        .prepare_cached("SELECT seq FROM jobs WHERE id = ?1")?
        .query_row([&report.job.0[..]], |row| row.get(0))
        .optional()?;
    let Some(seq) = seq else { return Ok(()) };
    connection.prepare_cached("UPDATE jobs SET report = ?2 WHERE seq = ?1")?.execute(params![seq, report.text])?;
    connection.prepare_cached("DELETE FROM failures WHERE seq = ?1")?.execute([seq])?;
    for (number, (path, kind, text)) in report.failures.iter().enumerate() {
        connection.prepare_cached("INSERT INTO failures VALUES (?1, ?2, ?3, ?4, ?5)")?.execute(params![
            seq,
            number as i64,
            path,
            kind,
            text
        ])?;
    }
    Ok(())
}

/// A count beyond SQLite's integers is written as the largest.
fn sql(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What a file is.
pub enum Recognised {
    Empty,
    Hub,
    Newer(i64),
    Foreign,
}

impl Recognised {
    pub fn check(self, path: &Path) -> Result<()> {
        let shown = path.display();
        match self {
            Recognised::Empty | Recognised::Hub => Ok(()),
            Recognised::Newer(version) => Err(Error::new(
                Exit::Version,
                format!("{shown}: written by a newer version (format {version}; this program knows up to {VERSION})"),
            )
            .hint("use the newer version, or another --state-dir")),
            Recognised::Foreign => Err(Error::new(Exit::Failed, format!("{shown} is not the database of a hub"))
                .hint("name another --state-dir")),
        }
    }
}

pub fn recognise(connection: &Connection) -> rusqlite::Result<Recognised> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(match (pragma("application_id")?, pragma("user_version")?, objects) {
        (0, 0, 0) => Recognised::Empty,
        (APPLICATION_ID, version, _) if version > VERSION => Recognised::Newer(version),
        (APPLICATION_ID, 1.., _) => Recognised::Hub,
        _ => Recognised::Foreign,
    })
}

fn prepare(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    let damage: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if damage != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(damage)));
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

pub fn of_sqlite(path: &Path, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let code = error.sqlite_error_code();
    let text = format!("{}: {error}", path.display());
    match code {
        Some(ErrorCode::DiskFull) => {
            Error::new(Exit::NoSpace, format!("{}: no space left; the queue is unchanged", path.display()))
                .hint("free some space where the hub keeps its state")
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Error::new(Exit::Fatal, text)
            .hint("restore hub.db from a backup; endpoints keep what they were given, and the hub asks them"),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            Error::new(Exit::Temporary, text).hint("another program holds the database: wait for it, or end it")
        }
        _ => Error::new(Exit::Failed, text).hint("the hub's state directory must be on a working local file system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(seq: u64) -> NewJob {
        let body = format!(r#"{{"source":"a:x{seq}","destination":"b:y{seq}","labels":{{"n":"{seq}"}}}}"#);
        let file = JobFile::from_json(&body).unwrap();
        let wish = file.wish("anna").unwrap();
        NewJob { id: JobId([seq as u8; 16]), seq, wish, body, labels: file.labels.into_iter().collect() }
    }

    fn group(seqs: std::ops::Range<u64>) -> Group {
        let new: Vec<NewJob> = seqs.map(new).collect();
        let changes = new.iter().map(|new| Job::new(new.id, new.seq, new.wish.facts.clone(), vec![])).collect();
        Group { new, changes, ..Group::default() }
    }

    fn open(store: &Store) -> Vec<Job> {
        let jobs = store.open_jobs(&mut |why| panic!("{why}")).unwrap();
        jobs.into_iter().map(|stored| stored.job).collect()
    }

    #[test]
    fn what_was_written_reads_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let mut group = group(1..3);
        let mut running =
            Job { status: Status::Running, role: Some(Role::Fetches), attempt: 3, ..group.changes[0].clone() };
        running.after = vec![JobId([9; 16]), JobId([8; 16])];
        running.goal = Some(Goal::Pause);
        (running.has_begun, running.failures, running.text) = (true, 2, "why".into());
        group.changes.push(running.clone());
        let events = store.commit(&group).unwrap();
        assert_eq!(events.iter().map(|event| event.id).collect::<Vec<_>>(), [1, 2, 3]);
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        assert_eq!(open(&store), [running, group.changes[1].clone()]);
        assert_eq!((store.next_seq().unwrap(), store.last_event), (3, 3));
    }

    #[test]
    fn a_full_disk_refuses_a_group_whole_and_lets_the_next_one_in_when_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.commit(&group(1..3)).unwrap();
        let before = open(&store);
        let pages: i64 = store.connection.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        let bound = |store: &Store, pages: i64| {
            store.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        };
        bound(&store, pages + 1);
        let refused = store.commit(&group(3..250)).unwrap_err();
        assert_eq!(refused.exit, Exit::NoSpace, "{refused:?}");
        assert_eq!((open(&store), store.last_event), (before, 2));
        bound(&store, 1 << 20);
        assert_eq!(store.commit(&group(3..250)).unwrap()[0].id, 3);
    }

    #[test]
    fn a_backup_that_was_put_back_gives_no_number_twice() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.commit(&group(1..3)).unwrap();
        let copy = dir.path().join("copy");
        store.connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        store.commit(&group(3..9)).unwrap();
        drop(store);
        for of in ["hub.db-wal", "hub.db-shm"] {
            let _ = std::fs::remove_file(dir.path().join(of));
        }
        std::fs::rename(&copy, path(dir.path())).unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        assert_eq!(open(&store).len(), 2);
        let first = store.commit(&group(3..4)).unwrap()[0].id;
        assert_eq!((first, store.generation_from), (2 + GENERATION_STEP, 2 + GENERATION_STEP));
        drop(store);
        // Opened again it is the same generation.
        assert_eq!(Store::open(dir.path()).unwrap().generation_from, 2 + GENERATION_STEP);
    }

    #[test]
    fn what_is_no_hubs_database_is_refused_and_left_alone() {
        for (content, exit) in
            [(&b"not a database, but long enough to be taken for one"[..], Exit::Fatal), (b"", Exit::Done)]
        {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(path(dir.path()), content).unwrap();
            let opened = Store::open(dir.path()).map_or_else(|e| e.exit, |_| Exit::Done);
            assert_eq!(opened, exit);
            if exit != Exit::Done {
                assert_eq!(std::fs::read(path(dir.path())).unwrap(), content);
            }
        }
        let dir = tempfile::tempdir().unwrap();
        drop(Store::open(dir.path()).unwrap());
        let connection = Connection::open(path(dir.path())).unwrap();
        connection.pragma_update(None, "user_version", VERSION + 1).unwrap();
        drop(connection);
        assert_eq!(Store::open(dir.path()).map_or_else(|e| e.exit, |_| Exit::Done), Exit::Version);
        let foreign = tempfile::tempdir().unwrap();
        Connection::open(path(foreign.path())).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        assert_eq!(Store::open(foreign.path()).map_or_else(|e| e.exit, |_| Exit::Done), Exit::Failed);
    }
}
