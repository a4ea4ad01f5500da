//! The changes that the writer makes, each on one job or on the ledger as a whole.
//!
//! Invariant: an operation that is refused has changed nothing (it runs in its own savepoint).

use crate::error::{Cause, Kind, Subject};
use crate::job::{JobSpec, SweepBefore};
use crate::limits::{RUNS_PER_JOB_MAX, SWEEP_JOBS_MAX, TEXT_BYTES_MAX};
use crate::query::{find, sql_int};
use crate::state::{State, Verb};
use model::progress::Counts;
use model::{Failure, JobId};
use rusqlite::{Connection, OptionalExtension, params};
use std::path::Path;

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Begin(JobSpec),
    Change {
        attempt: AttemptRow,
        verb: Verb,
        counts: Option<Counts>,
    },
    Failures {
        attempt: AttemptRow,
        failures: Vec<Failure>,
    },
    Unlisted {
        attempt: AttemptRow,
        failures: u64,
    },
    Sweep(SweepBefore),
    Claim(String),
    /// Writes one page, so that its commit makes earlier, lighter commits durable too.
    Flush,
}

/// An attempt as the tables know it. Row numbers are never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttemptRow {
    pub job: i64,
    pub number: u64,
    pub id: JobId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    Begun(AttemptRow),
    Swept { jobs: usize },
}

/// What operations need beside the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub now_unix_ms: i64,
    pub failures_max: u64,
}

impl Operation {
    pub(crate) fn apply(&self, connection: &Connection, context: Context) -> Result<Outcome, Cause> {
        let now = context.now_unix_ms;
        match self {
            Operation::Begin(spec) => return begin(connection, spec, now),
            Operation::Change { attempt, verb, counts } => change(connection, attempt, *verb, counts.as_ref(), now)?,
            Operation::Failures { attempt, failures } => put_failures(connection, attempt, failures, context)?,
            Operation::Unlisted { attempt, failures } => {
                open_state(connection, attempt)?;
                let add =
                    "UPDATE jobs SET failures_unlisted = failures_unlisted + ?2, updated_unix_ms = ?3 WHERE job = ?1";
                connection.prepare_cached(add)?.execute(params![attempt.job, sql_int(*failures), now])?;
            }
            Operation::Sweep(before) => return sweep(connection, before),
            Operation::Claim(identity) => claim(connection, identity)?,
            Operation::Flush => {
                connection.prepare_cached("UPDATE ledger SET flushes = flushes + 1")?.execute([])?;
            }
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Operation::Begin(_) => "begin attempt",
            Operation::Change { verb: Verb::Run, .. } => "mark running",
            Operation::Change { verb: Verb::Pause, .. } => "pause",
            Operation::Change { .. } => "finish",
            Operation::Failures { .. } => "record failures",
            Operation::Unlisted { .. } => "count failures",
            Operation::Sweep(_) => "sweep",
            Operation::Claim(_) => "claim for an identity",
            Operation::Flush => "flush",
        }
    }

    pub(crate) fn subject(&self, path: &Path) -> Subject {
        match self {
            Operation::Begin(spec) => Subject::Job(spec.key.id),
            Operation::Change { attempt, .. }
            | Operation::Failures { attempt, .. }
            | Operation::Unlisted { attempt, .. } => Subject::Job(attempt.id),
            Operation::Sweep(_) | Operation::Claim(_) | Operation::Flush => Subject::Ledger(path.to_owned()),
        }
    }

    /// Roughly what it holds, for the queue's bound.
    pub(crate) fn bytes(&self) -> usize {
        let held: usize = match self {
            Operation::Begin(spec) => {
                spec.key.peer.len() + spec.source.len() + spec.destination.len() + spec.options.len()
            }
            Operation::Failures { failures, .. } => {
                failures.iter().map(|f| size_of::<Failure>() + f.path.len() + f.message.len()).sum()
            }
            _ => 0,
        };
        held + size_of::<Operation>()
    }
}

/// any state -> Planning
///
/// Counts and failures belong to the latest attempt and start empty; what came of the one before is kept as a run.
fn begin(connection: &Connection, spec: &JobSpec, now: i64) -> Result<Outcome, Cause> {
    let found = find(connection, &spec.key)?;
    let before = found.map(|(_, state, _)| state);
    let after = next(before, Verb::Begin)?;
    if let Some((job, _, attempts)) = found {
        keep_run(connection, job, attempts)?;
    }
    let job = put_spec(connection, found.map(|(job, ..)| job), spec, after, now)?;
    connection.prepare_cached("DELETE FROM failures WHERE job = ?1")?.execute([job])?;
    put_counts(connection, job, &Counts::default(), now)?;
    let number = found.map_or(0, |(_, _, attempts)| attempts) + 1;
    connection
        .prepare_cached("UPDATE jobs SET attempts = ?2, failures_listed = 0, failures_unlisted = 0 WHERE job = ?1")?
        .execute(params![job, sql_int(number)])?;
    Ok(Outcome::Begun(AttemptRow { job, number, id: spec.key.id }))
}

/// One that is still under way has been broken off.
fn keep_run(connection: &Connection, job: i64, attempts: u64) -> Result<(), Cause> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO runs SELECT job, attempts,
                 CASE WHEN state IN ('planning', 'running') THEN 'paused' ELSE state END, updated_unix_ms, finished_unix_ms,
                 files_listed, bytes_listed, files_done, bytes_done, files_skipped, bytes_skipped, files_failed, directories,
                 bytes_sent, bytes_resumed, failures_listed, failures_unlisted
             FROM jobs WHERE job = ?1",
        )?
        .execute([job])?;
    let oldest = sql_int(attempts.saturating_sub(RUNS_PER_JOB_MAX));
    connection.prepare_cached("DELETE FROM runs WHERE job = ?1 AND attempts <= ?2")?.execute(params![job, oldest])?;
    Ok(())
}

/// Planning, Paused -> Running; Planning, Running -> Paused; Running -> Succeeded;
/// Planning, Running, Paused -> Failed, Cancelled
fn change(
    connection: &Connection,
    attempt: &AttemptRow,
    verb: Verb,
    counts: Option<&Counts>,
    now: i64,
) -> Result<(), Cause> {
    let after = next(Some(state_of(connection, attempt)?), verb)?;
    if let Some(counts) = counts {
        if !is_balanced(counts, after) {
            return Err(Kind::Unbalanced.into());
        }
        put_counts(connection, attempt.job, counts, now)?;
    }
    put_state(connection, attempt.job, after, now)
}

/// listed = done + skipped + failed + pending, and a job succeeds only with nothing failed and nothing pending (I6, I7).
fn is_balanced(counts: &Counts, after: State) -> bool {
    let settled = [counts.files_done, counts.files_skipped, counts.files_failed].map(u128::from).iter().sum::<u128>();
    let listed = u128::from(counts.files_listed);
    match after {
        State::Succeeded => counts.files_failed == 0 && settled == listed,
        _ => settled <= listed,
    }
}

/// Keeps failures as rows up to the bound and counts the rest.
fn put_failures(
    connection: &Connection,
    attempt: &AttemptRow,
    failures: &[Failure],
    context: Context,
) -> Result<(), Cause> {
    open_state(connection, attempt)?;
    let listed: i64 = connection
        .prepare_cached("SELECT failures_listed FROM jobs WHERE job = ?1")?
        .query_row([attempt.job], |row| row.get(0))?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO failures (job, number, path, kind, message, at_unix_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let (mut number, mut unlisted) = (listed, 0i64);
    for failure in failures {
        if number >= sql_int(context.failures_max) || failure.path.len() > TEXT_BYTES_MAX {
            unlisted += 1;
            continue;
        }
        number += 1;
        let values =
            params![attempt.job, number, failure.path, failure.kind.name(), failure.message, context.now_unix_ms];
        insert.execute(values)?;
    }
    connection
        .prepare_cached(
            "UPDATE jobs SET failures_listed = ?2, failures_unlisted = failures_unlisted + ?3, updated_unix_ms = ?4
             WHERE job = ?1",
        )?
        .execute(params![attempt.job, number, unlisted, context.now_unix_ms])?;
    Ok(())
}

fn sweep(connection: &Connection, before: &SweepBefore) -> Result<Outcome, Cause> {
    // Failures go with their job (ON DELETE CASCADE).
    let jobs = connection
        .prepare_cached(
            "DELETE FROM jobs WHERE job IN (SELECT job FROM jobs
             WHERE finished_unix_ms < ?1 OR (finished_unix_ms IS NULL AND updated_unix_ms < ?2) LIMIT ?3)",
        )?
        .execute(params![before.finished_unix_ms, before.abandoned_unix_ms, SWEEP_JOBS_MAX as i64])?;
    Ok(Outcome::Swept { jobs })
}

fn claim(connection: &Connection, identity: &str) -> Result<(), Cause> {
    let holder: Option<String> = connection.query_row("SELECT identity FROM ledger", [], |row| row.get(0))?;
    match holder {
        Some(holder) if holder == identity => {}
        Some(_) => return Err(Kind::OtherIdentity.into()),
        None => {
            connection.execute("UPDATE ledger SET identity = ?1", [identity])?;
        }
    }
    Ok(())
}

fn next(before: Option<State>, verb: Verb) -> Result<State, Cause> {
    State::after(before, verb).ok_or_else(|| match before {
        Some(state) => Kind::WrongState { state }.into(),
        None => Kind::NotFound.into(),
    })
}

/// The state of the job, provided that the attempt is its latest (fencing, I4).
fn state_of(connection: &Connection, attempt: &AttemptRow) -> Result<State, Cause> {
    let found: Option<(String, i64)> = connection
        .prepare_cached("SELECT state, attempts FROM jobs WHERE job = ?1")?
        .query_row([attempt.job], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let (state, attempts) = found.ok_or(Kind::NotFound)?;
    if attempts != sql_int(attempt.number) {
        return Err(Kind::Superseded.into());
    }
    State::from_name(&state).ok_or_else(|| Kind::Corrupt.into())
}

/// As `state_of`, and refuses a job in which nothing may happen.
fn open_state(connection: &Connection, attempt: &AttemptRow) -> Result<State, Cause> {
    match state_of(connection, attempt)? {
        state @ (State::Planning | State::Running | State::Paused) => Ok(state),
        state => Err(Kind::WrongState { state }.into()),
    }
}

fn put_state(connection: &Connection, job: i64, state: State, now: i64) -> Result<(), Cause> {
    connection
        .prepare_cached("UPDATE jobs SET state = ?2, updated_unix_ms = ?3, finished_unix_ms = ?4 WHERE job = ?1")?
        .execute(params![job, state.name(), now, state.is_final().then_some(now)])?;
    Ok(())
}

/// Inserts or updates what was asked for; returns the row.
fn put_spec(connection: &Connection, job: Option<i64>, spec: &JobSpec, state: State, now: i64) -> Result<i64, Cause> {
    let Some(job) = job else {
        connection
            .prepare_cached(
                "INSERT INTO jobs (id, role, peer, source, destination, options, state, attempts, created_unix_ms,
                 updated_unix_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?8)",
            )?
            .execute(params![
                spec.key.id.0,
                spec.key.role.name(),
                spec.key.peer,
                spec.source,
                spec.destination,
                spec.options,
                state.name(),
                now
            ])?;
        return Ok(connection.last_insert_rowid());
    };
    connection
        .prepare_cached("UPDATE jobs SET source = ?2, destination = ?3, options = ?4 WHERE job = ?1")?
        .execute(params![job, spec.source, spec.destination, spec.options])?;
    put_state(connection, job, state, now)?;
    Ok(job)
}

fn put_counts(connection: &Connection, job: i64, counts: &Counts, now: i64) -> Result<(), Cause> {
    connection
        .prepare_cached(
            "UPDATE jobs SET files_listed = ?2, bytes_listed = ?3, files_done = ?4, bytes_done = ?5, files_skipped = ?6,
             bytes_skipped = ?7, files_failed = ?8, directories = ?9, bytes_sent = ?10, bytes_resumed = ?11,
             updated_unix_ms = ?12 WHERE job = ?1",
        )?
        .execute(params![
            job,
            sql_int(counts.files_listed),
            sql_int(counts.bytes_listed),
            sql_int(counts.files_done),
            sql_int(counts.bytes_done),
            sql_int(counts.files_skipped),
            sql_int(counts.bytes_skipped),
            sql_int(counts.files_failed),
            sql_int(counts.directories),
            sql_int(counts.bytes_sent),
            sql_int(counts.bytes_resumed),
            now,
        ])?;
    Ok(())
}
