//! A job as a row of the database, and a row as a job.
//!
//! Not here: transactions (`store`).

use crate::job_file::{JobFile, Wish};
use model::JobId;
use model::order::Role;
use queue::{Facts, Goal, Job, Reason, State, Status, Work};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// A row that says what a job is, beside where it stands.
pub struct Stored {
    pub job: Job,
    pub file: JobFile,
    pub wish: Wish,
    /// When it first began, if it has, and when it last changed; milliseconds since 1970.
    pub begun: Option<i64>,
    pub changed: i64,
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

pub const COLUMNS: &str = "id, seq, owner, body, status, reason, text, hint, until, attempt, role, goal, failures, passes, \
    is_switched, after, begun, code, files_listed, bytes_listed, is_listed, files_done, bytes_done, changed";

/// A job of its row; in words why not.
pub fn of_row(row: &Row<'_>) -> rusqlite::Result<std::result::Result<Stored, String>> {
    let id = JobId(row.get(0)?);
    let owner: String = row.get(2)?;
    let body: String = row.get(3)?;
    let words: [String; 2] = [row.get(4)?, row.get(5)?];
    let role: Option<String> = row.get(10)?;
    let goal: Option<String> = row.get(11)?;
    let after: String = row.get(15)?;
    let (begun, changed): (Option<i64>, i64) = (row.get(16)?, row.get(23)?);
    let count = |index| row.get::<_, i64>(index).map(|value| value.max(0) as u64);
    let work = Work {
        files_listed: count(18)?,
        bytes_listed: count(19)?,
        is_listed: row.get(20)?,
        files_done: count(21)?,
        bytes_done: count(22)?,
    };
    let wish = JobFile::from_json(&body).and_then(|file| file.known_wish(&owner).map(|wish| (file, wish)));
    let (file, wish) = match wish {
        Ok(found) => found,
        Err(e) => return Ok(Err(format!("job {id}: {}", e.message))),
    };
    let (Some(status), Some(reason)) = (Status::from_word(&words[0]), Reason::from_word(&words[1])) else {
        return Ok(Err(format!("job {id}: its state is not known to this version")));
    };
    let state = State {
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
        has_begun: begun.is_some(),
        code: row.get(17)?,
        work,
    };
    let job = Job { id, seq: row.get::<_, i64>(1)? as u64, facts: wish.facts.clone(), state: state.into() };
    Ok(Ok(Stored { job, file, wish, begun, changed }))
}

pub fn insert(connection: &Connection, new: &NewJob, now: i64) -> rusqlite::Result<()> {
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
        facts.class.name(),
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

pub fn update(connection: &Connection, job: &Job, now: i64) -> rusqlite::Result<()> {
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

pub fn put_report(connection: &Connection, report: &Report) -> rusqlite::Result<()> {
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
