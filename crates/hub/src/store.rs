//! The database of a hub: `hub.db` in its state directory, and the transactions that change it.
//!
//! Invariants: one connection writes, and each group of changes is one synced transaction. A file that is not a hub's, or a newer
//! hub's, is refused and left as it is. A copy that was put back counts its events and its messages from beyond those of the original,
//! so that no number of one is given twice (`generation`).

use crate::audit::{self, Deed, Head, Mark};
use crate::database::{of_sqlite, path, prepare, recognise};
use crate::events::Event;
use crate::outbox::{self, Outgoing, Posted};
use crate::refusal::changed_meanwhile;
use crate::retention::{KEYS_LOOK, Keep, Sweep, forget_oldest_keys};
use crate::rows::{COLUMNS, Key, NewJob, Report, Rewritten, Stored, insert, of_row, put_report, update};
use crate::schedules::{self, StoredSchedule};
use crate::{Error, Result, unix_ms};
use model::JobId;
use queue::{Job, Status};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, params};
use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Events and messages of a new generation begin this far beyond the last event.
const GENERATION_STEP: i64 = 1 << 32;

pub struct Store {
    connection: Connection,
    path: PathBuf,
    state_dir: PathBuf,
    audit: Head,
    marked: Instant,
    /// Nothing was written since.
    is_marked: bool,
    pub last_event: i64,
    /// The first event that this generation has, or may still have.
    pub generation_from: i64,
    /// How many keys of each owner came since its oldest ones were last forgotten.
    new_keys: HashMap<String, usize>,
}

/// Ended jobs that are read for what their owners had.
const ENDED_MAX: usize = 20_000;
/// How often the mark beside the database is brought up to it.
const MARK_EVERY: Duration = Duration::from_secs(1);

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
    /// Schedules as they are now.
    pub schedules: Vec<StoredSchedule>,
    pub dropped: Vec<String>,
    pub audit: Vec<Deed>,
    /// Endpoints that said what they have.
    pub heard: Vec<String>,
    /// What is to be told, and what was.
    pub messages: Vec<Outgoing>,
    pub posted: Vec<Posted>,
}

impl Group {
    pub fn is_empty(&self) -> bool {
        let Group { new, changes, keys, reports, removed, rewritten, .. } = self;
        let Group { schedules, dropped, audit, heard, messages, posted, .. } = self;
        let has_jobs = !(new.is_empty() && changes.is_empty() && removed.is_empty() && rewritten.is_empty());
        let has_more = !(keys.is_empty() && reports.is_empty() && audit.is_empty() && heard.is_empty());
        let tells = !(messages.is_empty() && posted.is_empty());
        !has_jobs && !has_more && !tells && schedules.is_empty() && dropped.is_empty()
    }
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
        let audit = audit::head(&connection).map_err(failed)?;
        // In another log, which whoever can change this one may not be able to change.
        info!(line = audit.n, digest = audit.digest, "the audit log goes on");
        let (state_dir, marked, is_marked) = (state_dir.to_owned(), Instant::now(), true);
        let mut store = Store {
            connection,
            path: path.clone(),
            state_dir,
            audit,
            marked,
            is_marked,
            last_event: 0,
            generation_from: 0,
            new_keys: HashMap::new(),
        };
        store.begin_generation().map_err(failed)?;
        store.mark_now();
        Ok(store)
    }

    /// Notices that the file is another one than the last hub wrote, or is behind what that one had written: then it is a copy, and may
    /// be an old one. Each endpoint has to say what it has before it is given anything.
    fn begin_generation(&mut self) -> rusqlite::Result<()> {
        let own = std::fs::metadata(&self.path).map_or(0, |found| found.ino() as i64);
        let meta = |name: &str| -> rusqlite::Result<Option<i64>> {
            let mut select = self.connection.prepare("SELECT value FROM meta WHERE name = ?1")?;
            select.query_row([name], |row| row.get(0)).optional()
        };
        let (inode, from, generation) = (meta("inode")?, meta("generation_from")?, meta("generation")?.unwrap_or(0));
        let last: i64 = self.connection.query_row("SELECT coalesce(max(id), 0) FROM events", [], |row| row.get(0))?;
        let mark = Mark::read(&self.state_dir).unwrap_or_default();
        let is_behind = mark.event > last.max(from.unwrap_or(1) - 1) || mark.audit.n > self.audit.n;
        let is_new = inode != Some(own) || is_behind;
        // All of it or nothing: if only the inode were written, the next start would not notice the copy.
        let all = self.connection.unchecked_transaction()?;
        let from = if is_new && inode.is_some() {
            warn!("hub.db is a copy that was put back: no order is given before its endpoints say what they have");
            let unheard = "INSERT INTO unheard SELECT from_endpoint FROM jobs UNION SELECT to_endpoint FROM jobs WHERE true ON CONFLICT DO NOTHING";
            self.connection.execute(unheard, [])?;
            let deed = Deed::new("hub", "go on from a copy of hub.db", "", &Ok(()));
            self.audit = audit::write(&self.connection, self.audit.clone(), &[deed], unix_ms())?;
            let from = mark.event.max(last) + GENERATION_STEP;
            outbox::number_from(&self.connection, from)?;
            from
        } else {
            from.unwrap_or(1)
        };
        let set = "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value";
        for (name, value) in [("inode", own), ("generation_from", from), ("generation", generation + i64::from(is_new))]
        {
            self.connection.execute(set, params![name, value])?;
        }
        all.commit()?;
        self.last_event = last.max(from - 1);
        self.generation_from = from;
        Ok(())
    }

    /// Writes down beside the database how far it has come. That it cannot be written holds nobody up.
    pub fn mark_now(&mut self) {
        (self.marked, self.is_marked) = (Instant::now(), true);
        let mark = Mark { event: self.last_event, audit: self.audit.clone() };
        if let Err(error) = mark.write(&self.state_dir) {
            warn!(%error, "hub.mark cannot be written: an old copy of hub.db may not be noticed");
        }
    }

    /// The same, where something was written and the last mark is old.
    pub fn mark(&mut self) {
        if !self.is_marked && self.marked.elapsed() >= MARK_EVERY {
            self.mark_now();
        }
    }

    /// Endpoints that have to say what they have before they are given anything.
    pub fn unheard(&self) -> Result<Vec<String>> {
        let read = || {
            let mut select = self.connection.prepare_cached("SELECT endpoint FROM unheard")?;
            let rows = select.query_map([], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<Vec<String>>>()
        };
        read().map_err(|e| self.failed(&e))
    }

    /// Messages that wait, each with its channel.
    pub fn waiting(&self) -> Result<Vec<(i64, String)>> {
        outbox::waiting(&self.connection).map_err(|e| self.failed(&e))
    }

    /// Messages of a channel that are due.
    pub fn due(&self, channel: &str, now: i64) -> Result<Vec<(i64, String, usize)>> {
        outbox::due(&self.connection, channel, now).map_err(|e| self.failed(&e))
    }

    pub fn schedules(&self) -> Result<Vec<StoredSchedule>> {
        schedules::some(&self.connection, None, None).map_err(|e| self.failed(&e))
    }

    pub fn schedule(&self, name: &str) -> Result<Option<StoredSchedule>> {
        let found = schedules::some(&self.connection, None, Some(name)).map_err(|e| self.failed(&e));
        found.map(|mut found| found.pop())
    }

    /// The number of the next job.
    pub fn next_seq(&self) -> Result<u64> {
        let select = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'jobs'), 0)";
        let last: i64 = self.connection.query_row(select, [], |row| row.get(0)).map_err(|e| self.failed(&e))?;
        Ok(last as u64 + 1)
    }

    /// Gives each open job, from the oldest on, or in words why it cannot be read.
    pub fn open_jobs(&self, each: &mut dyn FnMut(std::result::Result<Stored, String>)) -> Result<()> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE ended IS NULL ORDER BY seq");
        self.stored(&select, [], each)
    }

    /// Gives each job that ended since then, with when it began and ended; of very many, the last ones.
    pub fn ended_since(&self, since_unix_ms: i64, each: &mut dyn FnMut(&Job, [i64; 2])) -> Result<()> {
        let select =
            format!("SELECT {COLUMNS}, ended FROM jobs WHERE ended > ?1 ORDER BY ended DESC LIMIT {ENDED_MAX}");
        let mut read = || {
            let mut select = self.connection.prepare(&select)?;
            let mut rows = select.query([since_unix_ms])?;
            while let Some(row) = rows.next()? {
                if let Ok(stored) = of_row(row)? {
                    each(&stored.job, [row.get::<_, Option<i64>>("begun")?.unwrap_or(0), row.get("ended")?]);
                }
            }
            Ok(())
        };
        read().map_err(|e| self.failed(&e))
    }

    /// One job, whatever its state.
    pub fn job(&self, id: JobId) -> Result<Option<Stored>> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
        let mut found = None;
        self.stored(&select, [&id.0[..]], &mut |stored| found = stored.ok())?;
        Ok(found)
    }

    fn stored(
        &self,
        select: &str,
        values: impl rusqlite::Params,
        each: &mut dyn FnMut(std::result::Result<Stored, String>),
    ) -> Result<()> {
        let read = || {
            let mut select = self.connection.prepare_cached(select)?;
            let mut rows = select.query(values)?;
            while let Some(row) = rows.next()? {
                each(of_row(row)?);
            }
            Ok(())
        };
        read().map_err(|e| self.failed(&e))
    }

    /// The status of a job, and nothing of one that is not there.
    pub fn status(&self, id: JobId) -> Result<Option<Status>> {
        Ok(self.standing(id)?.map(|(status, _)| status))
    }

    /// The same, with its owner.
    pub fn standing(&self, id: JobId) -> Result<Option<(Status, String)>> {
        let select = "SELECT status, owner FROM jobs WHERE id = ?1";
        let mut select = self.connection.prepare_cached(select).map_err(|e| self.failed(&e))?;
        let found: Option<(String, String)> = select
            .query_row([&id.0[..]], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()
            .map_err(|e| self.failed(&e))?;
        Ok(found.and_then(|(word, owner)| Some((Status::from_word(&word)?, owner))))
    }

    /// Refuses what was decided on by an older state of a job than the present one.
    pub fn check_version(&self, id: JobId, version: u64) -> Result<()> {
        let select = "SELECT version FROM jobs WHERE id = ?1";
        let mut select = self.connection.prepare_cached(select).map_err(|e| self.failed(&e))?;
        let found: Option<i64> =
            select.query_row([&id.0[..]], |row| row.get(0)).optional().map_err(|e| self.failed(&e))?;
        match found {
            Some(found) if found as u64 != version => Err(changed_meanwhile()),
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
            Ok((events, audit)) => {
                self.last_event = events.last().map_or(self.last_event, |event| event.id);
                self.audit = audit;
                self.is_marked = false;
                Ok(events)
            }
            Err(_) if model::mutant::is_on("hub-answers-before-it-is-durable") => Ok(Vec::new()),
            Err(e) => Err(self.failed(&e)),
        }
    }

    fn try_commit(&mut self, group: &Group) -> rusqlite::Result<(Vec<Event>, Head)> {
        let (now, mut id, head) = (unix_ms(), self.last_event, self.audit.clone());
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
            transaction.prepare_cached(put)?.execute(params![id.0, body, facts.class.name(), facts.priority])?;
        }
        for key in &group.keys {
            let put = "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
            transaction.prepare_cached(put)?.execute(params![key.owner, key.key, key.digest, key.job.0, now])?;
            *self.new_keys.entry(key.owner.clone()).or_default() += 1;
        }
        for (owner, new) in self.new_keys.iter_mut().filter(|(_, new)| **new >= KEYS_LOOK) {
            forget_oldest_keys(&transaction, owner)?;
            *new = 0;
        }
        for report in &group.reports {
            put_report(&transaction, report)?;
        }
        for job in &group.removed {
            for delete in ["DELETE FROM keys WHERE job = ?1", "DELETE FROM jobs WHERE id = ?1"] {
                transaction.prepare_cached(delete)?.execute([&job.0[..]])?;
            }
        }
        for name in &group.dropped {
            transaction.execute("DELETE FROM schedules WHERE name = ?1", [name])?;
        }
        for schedule in &group.schedules {
            schedules::put(&transaction, schedule)?;
        }
        for endpoint in &group.heard {
            transaction.execute("DELETE FROM unheard WHERE endpoint = ?1", [endpoint])?;
        }
        let left_out = outbox::put(&transaction, &group.messages, now)?;
        group.posted.iter().try_for_each(|posted| outbox::note(&transaction, posted))?;
        let head = audit::write(&transaction, head, &group.audit, now)?;
        transaction.commit()?;
        if left_out > 0 {
            warn!(left_out, "too many messages wait: these are not sent");
        }
        Ok((events, head))
    }

    /// Forgets some of what is old; true once all was looked at.
    pub fn forget_old(&mut self, sweep: &mut Sweep, keep: Keep) -> Result<bool> {
        sweep.step(&mut self.connection, keep, unix_ms()).map_err(|e| of_sqlite(&self.path, &e))
    }

    fn failed(&self, error: &rusqlite::Error) -> Error {
        of_sqlite(&self.path, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::VERSION;
    use crate::job_file::JobFile;
    use crate::retention::KEYS_OF_OWNER_MAX;
    use model::Exit;
    use model::order::Role;
    use queue::Goal;

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
        let mut jobs = Vec::new();
        store.open_jobs(&mut |stored| jobs.push(stored.map(|stored| stored.job).unwrap())).unwrap();
        jobs
    }

    #[test]
    fn what_was_written_reads_back_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let mut group = group(1..3);
        let mut running = group.changes[0].clone();
        (running.status, running.role, running.attempt) = (Status::Running, Some(Role::Fetches), 3);
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
    fn a_backup_that_was_put_back_is_noticed_again_where_that_could_not_be_written_down() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.commit(&group(1..3)).unwrap();
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON meta WHEN new.name = 'generation_from'
            BEGIN SELECT RAISE(ABORT, 'no room'); END";
        store.connection.execute_batch(refuse).unwrap();
        let copy = dir.path().join("copy");
        store.connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        drop(store);
        for of in ["hub.db-wal", "hub.db-shm"] {
            let _ = std::fs::remove_file(dir.path().join(of));
        }
        std::fs::rename(&copy, path(dir.path())).unwrap();
        assert!(Store::open(dir.path()).is_err());
        Connection::open(path(dir.path())).unwrap().execute_batch("DROP TRIGGER refuse").unwrap();
        assert_eq!(Store::open(dir.path()).unwrap().generation_from, 2 + GENERATION_STEP);
    }

    #[test]
    fn a_message_of_a_backup_keeps_its_number_and_the_next_one_has_that_of_no_other() {
        let message = || Group {
            messages: vec![Outgoing { channel: "ops".into(), body: String::new(), is_asked_for: true }],
            ..Group::default()
        };
        for waiting in [0, 1] {
            let dir = tempfile::tempdir().unwrap();
            let mut store = Store::open(dir.path()).unwrap();
            (0..waiting).for_each(|_| _ = store.commit(&message()).unwrap());
            let copy = dir.path().join("copy");
            store.connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
            store.commit(&message()).unwrap();
            drop(store);
            for of in ["hub.db-wal", "hub.db-shm"] {
                let _ = std::fs::remove_file(dir.path().join(of));
            }
            std::fs::rename(&copy, path(dir.path())).unwrap();
            let mut store = Store::open(dir.path()).unwrap();
            store.commit(&message()).unwrap();
            let numbers: Vec<i64> = store.waiting().unwrap().into_iter().map(|(id, _)| id).collect();
            let kept: Vec<i64> = (1..=waiting).collect();
            assert_eq!(numbers, [kept, vec![store.generation_from + 1]].concat());
        }
    }

    #[test]
    fn of_many_keys_of_one_owner_the_newest_are_kept_and_nobody_elses_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let put = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?2)
            INSERT INTO keys SELECT ?1, 'before' || n, zeroblob(32), zeroblob(16), n FROM numbers";
        for (owner, keys) in [("anna", KEYS_OF_OWNER_MAX), ("bert", 10)] {
            store.connection.execute(put, params![owner, keys]).unwrap();
        }
        let key = |n: usize| Key { owner: "anna".into(), key: n.to_string(), digest: [0; 32], job: JobId([1; 16]) };
        let keys: Vec<Key> = (0..KEYS_LOOK).map(key).collect();
        store.commit(&Group { keys, ..Group::default() }).unwrap();
        let count = |of: &str| -> i64 {
            let select = format!("SELECT count(*) FROM keys WHERE {of}");
            store.connection.query_row(&select, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((count("owner = 'anna'"), count("owner = 'bert'")), (KEYS_OF_OWNER_MAX, 10));
        assert_eq!(count("owner = 'anna' AND job = zeroblob(16)"), KEYS_OF_OWNER_MAX - KEYS_LOOK as i64);
        assert!(store.key("anna", "0").unwrap().is_some() && store.key("anna", "before1").unwrap().is_none());
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
