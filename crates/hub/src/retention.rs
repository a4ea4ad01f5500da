//! What a hub forgets: ended jobs and events that are old, and the oldest where the database has grown beyond its cap.
//!
//! It goes through the rows bit by bit, each bit a transaction, so that nobody waits for it. Open jobs are never forgotten, nor is a
//! job's key before it is a month old, unless its owner has many newer ones; the newest events stay for those who follow them. The cap
//! reaches jobs only where no older event is left: whoever makes many events drives nobody's jobs out.

use rusqlite::{Connection, TransactionBehavior, params};
use std::time::Duration;

/// Rows that are looked at in one go.
const STEP: i64 = 1000;
/// Events that stay whatever the cap says.
const EVENTS_MIN: i64 = 10_000;
const KEYS_MS: i64 = 30 * 86_400_000;
/// Keys of one owner: as many as it may have open jobs. One job can have many.
pub const KEYS_OF_OWNER_MAX: i64 = 100_000;
/// After so many new keys of an owner, those beyond its bound are forgotten.
pub const KEYS_LOOK: usize = 10_000;

/// Between two sweeps through what is old.
pub const SWEEP_PAUSE: Duration = Duration::from_secs(600);

/// How long ended jobs and events are kept, and how large the database may be with them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    pub age: Duration,
    pub bytes: u64,
}

impl Default for Keep {
    fn default() -> Keep {
        Keep { age: Duration::from_secs(90 * 86_400), bytes: 4 << 30 }
    }
}

/// Where the sweep is.
#[derive(Default)]
pub struct Sweep {
    /// Rows up to this one were looked at.
    seq: i64,
}

impl Sweep {
    /// Looks at some rows; true when it is through, and begins anew then.
    pub fn step(&mut self, connection: &mut Connection, keep: Keep, now: i64) -> rusqlite::Result<bool> {
        let limit = now - i64::try_from(keep.age.as_millis()).unwrap_or(i64::MAX);
        let is_over = used_bytes(connection)? > keep.bytes;
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let events = transaction
            .prepare_cached(
                "DELETE FROM events WHERE id IN (SELECT id FROM (SELECT id, at FROM events WHERE id <=
                    (SELECT coalesce(max(id), 0) FROM events) - ?3 ORDER BY id LIMIT ?2) WHERE at < ?1 OR ?4)",
            )?
            .execute(params![limit, STEP, EVENTS_MIN, is_over])?;
        if is_over && events == STEP as usize {
            transaction.commit()?;
            return Ok(false);
        }
        // What the events left free may be enough.
        let is_over = is_over && used_bytes(&transaction)? > keep.bytes;
        let last: Option<i64> = transaction
            .prepare_cached("SELECT max(seq) FROM (SELECT seq FROM jobs WHERE seq > ?1 ORDER BY seq LIMIT ?2)")?
            .query_row([self.seq, STEP], |row| row.get(0))?;
        let upto = last.unwrap_or(i64::MAX);
        let ended = "seq > ?1 AND seq <= ?2 AND ended IS NOT NULL AND (ended < ?3 OR ?4)";
        transaction
            .prepare_cached(&format!("DELETE FROM keys WHERE at < ?5 AND job IN (SELECT id FROM jobs WHERE {ended})"))?
            .execute(params![self.seq, upto, limit, is_over, now - KEYS_MS])?;
        transaction
            .prepare_cached(&format!("DELETE FROM jobs WHERE {ended}"))?
            .execute(params![self.seq, upto, limit, is_over])?;
        if last.is_none() {
            // Keys that outlived their jobs.
            transaction
                .prepare_cached("DELETE FROM keys WHERE at < ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE id = job)")?
                .execute([now - KEYS_MS])?;
        }
        transaction.commit()?;
        self.seq = last.unwrap_or(0);
        Ok(last.is_none() && events < STEP as usize)
    }
}

/// Leaves somebody the newest keys.
pub fn forget_oldest_keys(connection: &Connection, owner: &str) -> rusqlite::Result<usize> {
    let delete = "DELETE FROM keys WHERE owner = ?1 AND key IN
        (SELECT key FROM keys WHERE owner = ?1 ORDER BY at DESC LIMIT -1 OFFSET ?2)";
    connection.prepare_cached(delete)?.execute(params![owner, KEYS_OF_OWNER_MAX])
}

/// Without the pages that are free, as they are used again before the file grows, and without the audit log, which has a bound of its
/// own and drives no job out.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let all = (pragma("page_count")? - pragma("freelist_count")?) * pragma("page_size")?;
    Ok((all - audit_bytes(connection)?).max(0) as u64)
}

/// As a hundred of its lines say, evenly spaced: nobody waits for a look at a million.
fn audit_bytes(connection: &Connection) -> rusqlite::Result<i64> {
    let select =
        "WITH RECURSIVE span AS (SELECT (SELECT min(n) FROM audit) AS low, (SELECT max(n) FROM audit) AS high),
            picks (pick) AS (SELECT 0 UNION ALL SELECT pick + 1 FROM picks WHERE pick < 99)
        SELECT coalesce(cast((high - low + 1) * avg(length(cast(line AS BLOB))) AS INTEGER), 0)
        FROM span, picks JOIN audit ON n = low + (high - low) * pick / 99";
    connection.prepare_cached(select)?.query_row([], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    /// A database with jobs that ended so many days ago, or are open.
    fn database(ended: &[Option<i64>]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(concat!(include_str!("schema_1.sql"), include_str!("schema_2.sql"))).unwrap();
        connection.pragma_update(None, "foreign_keys", true).unwrap();
        for (at, days) in ended.iter().enumerate() {
            let put = "INSERT INTO jobs (id, owner, project, class, priority, from_endpoint, to_endpoint, body, created, version,
                changed, status, reason, text, hint, attempt, failures, passes, is_switched, after, files_listed, bytes_listed,
                is_listed, files_done, bytes_done, ended) VALUES (?1, 'a', '', 'normal', 0, 'a', 'b', ?3, 0, 0, 0, 'queued', '', '', '',
                0, 0, 0, 0, '', 0, 0, 0, 0, 0, ?2)";
            let id = (at as u128).to_be_bytes();
            let body = "x".repeat(1000);
            connection.execute(put, params![&id[..], days.map(|days| (1000 - days) * DAY), body]).unwrap();
            let seq = connection.last_insert_rowid();
            connection.execute("INSERT INTO failures VALUES (?1, 0, 'p', 'k', 't')", [seq]).unwrap();
            let key = "INSERT INTO keys VALUES ('a', ?1, x'00', ?2, ?3)";
            let made = 1000 - days.unwrap_or(0);
            connection.execute(key, params![at.to_string(), &id[..], made * DAY]).unwrap();
        }
        connection
    }

    fn count(connection: &Connection, table: &str) -> i64 {
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    fn sweep(connection: &mut Connection, keep: Keep) -> usize {
        let (mut sweep, mut steps) = (Sweep::default(), 1);
        while !sweep.step(connection, keep, 1000 * DAY).unwrap() {
            steps += 1;
        }
        steps
    }

    #[test]
    fn what_is_old_goes_and_what_is_open_stays() {
        let jobs: Vec<_> = (0..2500).map(|at| (at % 5 != 0).then_some(at % 180)).collect();
        let mut connection = database(&jobs);
        let steps = sweep(&mut connection, Keep::default());
        assert!(steps >= 3, "a bit at a time: {steps}");
        let left = jobs.iter().filter(|days| days.is_none_or(|days| days <= 90)).count() as i64;
        assert_eq!((count(&connection, "jobs"), count(&connection, "failures")), (left, left));
        assert_eq!(count(&connection, "keys"), left);
    }

    #[test]
    fn the_audit_log_drives_no_job_out() {
        let jobs = [Some(5); 1000];
        let mut connection = database(&jobs);
        let cap = used_bytes(&connection).unwrap() + (1 << 20);
        let put = "WITH RECURSIVE lines (n) AS (SELECT 7 UNION ALL SELECT n + 1 FROM lines WHERE n < 20000)
            INSERT INTO audit SELECT n, printf('%.*c', 200 + n % 7, 'x') FROM lines";
        connection.execute(put, []).unwrap();
        let bytes: i64 = connection.query_row("SELECT sum(length(line)) FROM audit", [], |row| row.get(0)).unwrap();
        let found = audit_bytes(&connection).unwrap();
        assert!((found - bytes).abs() < bytes / 50, "{found} {bytes}");
        sweep(&mut connection, Keep { bytes: cap, ..Keep::default() });
        assert_eq!(count(&connection, "jobs"), 1000);
    }

    fn put_events(connection: &Connection, ids: std::ops::Range<i64>) {
        let put = "WITH RECURSIVE ids (id) AS (SELECT ?1 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?2)
            INSERT INTO events SELECT id, ?3, x'00', 'a', printf('%.*c', 200, 'x') FROM ids";
        connection.execute(put, [ids.start, ids.end, 999 * DAY]).unwrap();
    }

    #[test]
    fn many_events_drive_no_job_out() {
        let mut connection = database(&[Some(5); 1000]);
        put_events(&connection, 0..EVENTS_MIN);
        let cap = used_bytes(&connection).unwrap() + (1 << 20);
        put_events(&connection, EVENTS_MIN..4 * EVENTS_MIN);
        assert!(used_bytes(&connection).unwrap() > cap);
        sweep(&mut connection, Keep { bytes: cap, ..Keep::default() });
        assert!(used_bytes(&connection).unwrap() <= cap);
        assert_eq!(count(&connection, "jobs"), 1000);
    }

    #[test]
    fn beyond_the_cap_jobs_go_although_events_keep_coming() {
        let mut connection = database(&[Some(5); 1000]);
        put_events(&connection, 0..EVENTS_MIN);
        let (mut sweep, keep) = (Sweep::default(), Keep { bytes: 0, ..Keep::default() });
        for id in EVENTS_MIN..EVENTS_MIN + 3 {
            put_events(&connection, id..id + 1);
            sweep.step(&mut connection, keep, 1000 * DAY).unwrap();
        }
        assert_eq!((count(&connection, "jobs"), count(&connection, "events")), (0, EVENTS_MIN));
    }

    #[test]
    fn beyond_the_cap_the_oldest_go_and_keys_of_a_month_stay() {
        let jobs: Vec<_> = (0..3000).map(|at| (at >= 100).then_some(5)).collect();
        let mut connection = database(&jobs);
        let events = EVENTS_MIN + 5000;
        for id in 0..events {
            connection.execute("INSERT INTO events VALUES (?1, ?2, x'00', 'a', '')", [id, 999 * DAY]).unwrap();
        }
        let before = used_bytes(&connection).unwrap();
        sweep(&mut connection, Keep { bytes: before - (1 << 20), ..Keep::default() });
        let left = count(&connection, "jobs");
        assert!((100..3000).contains(&left) && used_bytes(&connection).unwrap() <= before - (1 << 20), "{left}");
        let first: i64 =
            connection.query_row("SELECT min(seq) FROM jobs WHERE ended > 0", [], |row| row.get(0)).unwrap();
        assert!(first > 101, "the oldest went first");
        sweep(&mut connection, Keep { bytes: 0, ..Keep::default() });
        assert_eq!((count(&connection, "jobs"), count(&connection, "keys")), (100, 3000));
        assert!(count(&connection, "events") >= EVENTS_MIN);
    }
}
