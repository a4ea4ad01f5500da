//! Schedules as people write them, as they are shown, and as rows of the database.

use crate::events::rfc3339;
use crate::job_file::JobFile;
use crate::times::{self, Times};
use crate::{Error, Result, strict, unix_ms};
use model::{Exit, JobId};
use queue::Schedule;
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

const NAME_BYTES_MAX: usize = 64;
/// Slots ahead that are told.
const UPCOMING: usize = 5;

/// A job that begins again and again. A key that is not known is an error.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduleFile {
    pub name: String,
    pub times: Times,
    pub job: JobFile,
}

impl ScheduleFile {
    pub fn from_json(text: &str) -> Result<ScheduleFile> {
        let hint = "docs/hub.md says what a schedule is";
        let read = strict::parse(text).and_then(serde_json::from_value);
        read.map_err(|e| Error::new(Exit::Usage, format!("not a schedule: {e}")).hint(hint))
    }

    /// Checks everything that can be checked without asking anybody.
    pub fn check(&self, owner: &str) -> Result<()> {
        let wrong = |text: &str, hint: &str| Err(Error::new(Exit::Usage, text).hint(hint));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !(1..=NAME_BYTES_MAX).contains(&self.name.len()) || !self.name.chars().all(is_name) {
            return wrong("the name of a schedule has 1 to 64 letters, digits, `-`, `_` and `.`", "choose another");
        }
        self.times.check()?;
        if !self.job.after.is_empty() || self.job.start_by.is_some() || self.job.finish_by.is_some() {
            return wrong(
                "`after`, `start_by` and `finish_by` are of one job, and a schedule begins many",
                "leave them out; `windows` bound the times at which each of its jobs runs",
            );
        }
        self.job.wish(owner).map(drop)
    }
}

#[derive(Clone, Debug)]
pub struct StoredSchedule {
    pub schedule: Schedule,
    pub owner: String,
    pub file: ScheduleFile,
    pub created: i64,
    /// The last slot that had its turn, and what came of it.
    pub slot: Option<i64>,
    pub said: String,
}

impl StoredSchedule {
    pub fn new(owner: &str, file: ScheduleFile) -> StoredSchedule {
        let now = unix_ms();
        let times = serde_json::to_string(&file.times).expect("texts have a JSON form").into();
        let (name, dealt) = (file.name.as_str().into(), Vec::new());
        let schedule = Schedule { name, times, since: now, is_paused: false, dealt, job: None };
        StoredSchedule { schedule, owner: owner.to_owned(), file, created: now, slot: None, said: String::new() }
    }
}

/// A schedule as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ScheduleView {
    pub name: String,
    pub owner: String,
    pub times: Times,
    pub job: JobFile,
    pub created: String,
    pub is_paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The next few, that one included.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upcoming: Vec<String>,
    /// The slot of the last turn, the job that began then, and what is to be said of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_job: Option<String>,
    /// How that job stands, while the hub knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl From<StoredSchedule> for ScheduleView {
    fn from(stored: StoredSchedule) -> ScheduleView {
        let Schedule { times, is_paused, job, .. } = stored.schedule;
        let following = |at: &i64| times::slots(&times, *at).next;
        let upcoming = std::iter::successors(times::slots(&times, unix_ms()).next, following);
        let upcoming: Vec<_> = upcoming.take(if is_paused { 0 } else { UPCOMING }).map(rfc3339).collect();
        ScheduleView {
            name: stored.file.name,
            owner: stored.owner,
            times: stored.file.times,
            job: stored.file.job,
            created: rfc3339(stored.created),
            is_paused,
            next: upcoming.first().cloned(),
            upcoming,
            last: stored.slot.map(rfc3339),
            last_job: job.map(|id| id.to_string()),
            last_status: None,
            text: stored.said,
        }
    }
}

const COLUMNS: &str = "name, owner, body, created, since, is_paused, dealt, job, slot, said";

/// Those of an owner, or of all; or the one of a name among them.
pub fn some(connection: &Connection, owner: Option<&str>, name: Option<&str>) -> rusqlite::Result<Vec<StoredSchedule>> {
    let which = "(?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR name = ?2)";
    let select = format!("SELECT {COLUMNS} FROM schedules WHERE {which} ORDER BY name");
    let mut select = connection.prepare_cached(&select)?;
    let rows = select.query_map(params![owner, name], of_row)?;
    // One that this version cannot read is left alone.
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn of_row(row: &Row<'_>) -> rusqlite::Result<Option<StoredSchedule>> {
    let (body, dealt): (String, String) = (row.get(2)?, row.get(6)?);
    let parsed = (serde_json::from_str::<ScheduleFile>(&body), serde_json::from_str(&dealt));
    let (Ok(file), Ok(dealt)) = parsed else { return Ok(None) };
    let (owner, created): (String, i64) = (row.get(1)?, row.get(3)?);
    let mut stored = StoredSchedule::new(&owner, file);
    stored.created = created;
    stored.schedule.since = row.get(4)?;
    stored.schedule.is_paused = row.get(5)?;
    stored.schedule.dealt = dealt;
    stored.schedule.job = row.get::<_, Option<[u8; 16]>>(7)?.map(JobId);
    stored.slot = row.get(8)?;
    stored.said = row.get(9)?;
    Ok(Some(stored))
}

pub fn put(connection: &Connection, stored: &StoredSchedule) -> rusqlite::Result<()> {
    let StoredSchedule { schedule, owner, file, created, slot, said } = stored;
    let body = serde_json::to_string(file).expect("texts have a JSON form");
    let dealt = serde_json::to_string(&schedule.dealt).expect("numbers have a JSON form");
    let put = "INSERT OR REPLACE INTO schedules VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.prepare_cached(put)?.execute(params![
        &*schedule.name,
        owner,
        &*schedule.times,
        body,
        created,
        schedule.since,
        schedule.is_paused,
        dealt,
        schedule.job.map(|id| id.0),
        slot,
        said
    ])?;
    Ok(())
}
