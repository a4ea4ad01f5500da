//! Reads rows back into records.

use crate::error::{Cause, Kind};
use crate::job::{Job, JobFilter, JobKey, RecordedFailure, Role};
use crate::limits::ROWS_MAX;
use crate::state::State;
use model::progress::Counts;
use model::{Failure, FailureKind, JobId};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Integers of SQLite are signed; a count beyond them is recorded as the largest.
pub(crate) fn sql_int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Row, state and attempts of a job.
pub(crate) fn find(connection: &Connection, key: &JobKey) -> Result<Option<(i64, State, u64)>, Cause> {
    let found: Option<(i64, String, u64)> = connection
        .prepare_cached("SELECT job, state, attempts FROM jobs WHERE id = ?1 AND role = ?2 AND peer = ?3")?
        .query_row(params![key.id.0, key.role.name(), key.peer], |row| Ok((row.get(0)?, row.get(1)?, count(row, 2)?)))
        .optional()?;
    let Some((job, state, attempts)) = found else { return Ok(None) };
    Ok(Some((job, State::from_name(&state).ok_or(Kind::Corrupt)?, attempts)))
}

pub(crate) fn jobs(connection: &Connection, filter: &JobFilter) -> Result<Vec<Job>, Cause> {
    let states: String = filter.states.iter().map(|state| format!(",{},", state.name())).collect();
    let mut select = connection.prepare_cached(
        "SELECT id, role, peer, source, destination, options, state, attempts, created_unix_ms, updated_unix_ms,
             finished_unix_ms, failures_listed, failures_unlisted, files_listed, bytes_listed, files_done, bytes_done,
             files_skipped, bytes_skipped, files_failed, directories, bytes_sent, bytes_resumed
         FROM jobs
         WHERE (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR role = ?2) AND (?3 = '' OR instr(?3, ',' || state || ',') > 0)
             AND (?4 IS NULL OR updated_unix_ms >= ?4)
         ORDER BY updated_unix_ms DESC, job DESC LIMIT ?5",
    )?;
    let (id, role) = (filter.id.map(|id| id.0), filter.role.map(Role::name));
    let values = params![id, role, states, filter.changed_since_unix_ms, limit(filter.limit)];
    let mut rows = select.query(values)?;
    let mut jobs = Vec::new();
    while let Some(row) = rows.next()? {
        jobs.push(job(row)?);
    }
    Ok(jobs)
}

/// The runs of jobs, as their rows were when the next one began; the latest are the jobs as they are.
pub(crate) fn runs(
    connection: &Connection,
    id: Option<JobId>,
    changed_since_unix_ms: Option<i64>,
    rows_max: usize,
) -> Result<Vec<Job>, Cause> {
    // A ledger of version 1 that no newer program has opened for writing.
    let has_runs: bool =
        connection.query_row("SELECT count(*) > 0 FROM sqlite_schema WHERE name = 'runs'", [], |row| row.get(0))?;
    let before = if has_runs { EARLIER_RUNS } else { "" };
    let mut select = connection.prepare_cached(&format!(
        "SELECT id, role, peer, source, destination, options, state, attempts, created_unix_ms, updated_unix_ms,
             finished_unix_ms, failures_listed, failures_unlisted, files_listed, bytes_listed, files_done, bytes_done,
             files_skipped, bytes_skipped, files_failed, directories, bytes_sent, bytes_resumed
         FROM (SELECT * FROM jobs {before})
         WHERE (?1 IS NULL OR id = ?1) AND (?2 IS NULL OR updated_unix_ms >= ?2)
         ORDER BY updated_unix_ms DESC, job DESC, attempts DESC LIMIT ?3"
    ))?;
    let mut rows = select.query(params![id.map(|id| id.0), changed_since_unix_ms, limit(rows_max)])?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next()? {
        runs.push(job(row)?);
    }
    Ok(runs)
}

/// In the order of the columns of `jobs`.
const EARLIER_RUNS: &str = "UNION ALL
    SELECT j.job, j.id, j.role, j.peer, j.source, j.destination, j.options, r.state, r.attempts, j.created_unix_ms,
        r.updated_unix_ms, r.finished_unix_ms, r.files_listed, r.bytes_listed, r.files_done, r.bytes_done, r.files_skipped,
        r.bytes_skipped, r.files_failed, r.directories, r.bytes_sent, r.bytes_resumed, r.failures_listed, r.failures_unlisted
    FROM runs r JOIN jobs j ON j.job = r.job";

pub(crate) fn failures(
    connection: &Connection,
    key: &JobKey,
    after: u64,
    rows_max: usize,
) -> Result<Vec<RecordedFailure>, Cause> {
    let (job, ..) = find(connection, key)?.ok_or(Kind::NotFound)?;
    let mut select = connection.prepare_cached(
        "SELECT number, path, kind, message, at_unix_ms FROM failures WHERE job = ?1 AND number > ?2
         ORDER BY number LIMIT ?3",
    )?;
    let mut rows = select.query(params![job, sql_int(after), limit(rows_max)])?;
    let mut failures = Vec::new();
    while let Some(row) = rows.next()? {
        let failure = Failure {
            path: row.get(1)?,
            kind: failure_kind_from_name(&row.get::<_, String>(2)?),
            message: row.get(3)?,
        };
        failures.push(RecordedFailure { number: count(row, 0)?, failure, at_unix_ms: row.get(4)? });
    }
    Ok(failures)
}

fn job(row: &Row<'_>) -> Result<Job, Cause> {
    let role: String = row.get(1)?;
    let state: String = row.get(6)?;
    Ok(Job {
        key: JobKey { id: JobId(row.get(0)?), role: Role::from_name(&role).ok_or(Kind::Corrupt)?, peer: row.get(2)? },
        source: row.get(3)?,
        destination: row.get(4)?,
        options: row.get(5)?,
        state: State::from_name(&state).ok_or(Kind::Corrupt)?,
        attempts: count(row, 7)?,
        created_unix_ms: row.get(8)?,
        updated_unix_ms: row.get(9)?,
        finished_unix_ms: row.get(10)?,
        failures_listed: count(row, 11)?,
        failures_unlisted: count(row, 12)?,
        counts: Counts {
            files_listed: count(row, 13)?,
            bytes_listed: count(row, 14)?,
            files_done: count(row, 15)?,
            bytes_done: count(row, 16)?,
            files_skipped: count(row, 17)?,
            bytes_skipped: count(row, 18)?,
            files_failed: count(row, 19)?,
            directories: count(row, 20)?,
            bytes_sent: count(row, 21)?,
            bytes_resumed: count(row, 22)?,
            bytes_wire: 0,
        },
    })
}

/// A column that this program never writes negative.
fn count(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(index)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, value))
}

fn limit(rows_max: usize) -> i64 {
    rows_max.min(ROWS_MAX) as i64
}

/// A kind from a newer program reads as `Other`.
fn failure_kind_from_name(name: &str) -> FailureKind {
    FailureKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(FailureKind::Other)
}
