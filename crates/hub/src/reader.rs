//! Questions about jobs, answered from the database without holding up who writes it.

use crate::Result;
use crate::audit;
use crate::database::{of_sqlite, path};
use crate::events::{Event, rfc3339};
use crate::schedules::{self, ScheduleView};
use model::JobId;
use queue::{Reason, Status, Work};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params_from_iter};
use serde::Serialize;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections that are kept.
const KEPT_MAX: usize = 8;
const BUSY_MAX: Duration = Duration::from_secs(2);
/// An endpoint that has said nothing for so long may be away: it is asked ten times a second.
const SILENT: Duration = Duration::from_secs(3);
pub const PAGE_MAX: usize = 1000;
/// Job files of a page, together: one more may pass it.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// What changes too often to be written down.
#[derive(Clone, Debug, Default)]
pub struct Live {
    pub work: Work,
    pub bytes_per_second: u64,
    /// At the destination or on their way there.
    pub bytes_reached: u64,
    pub files_failed: u64,
    pub files_skipped: u64,
    /// What limits the rate, or what is waited for, in a sentence; empty where that is not known.
    pub bottleneck: Arc<str>,
    /// The endpoint that said so, and when; none where nobody has yet, or several did.
    pub said: Option<(Arc<str>, Instant)>,
}

impl Live {
    /// As it is shown now: of an endpoint that is silent, what it said last is no longer known to be so.
    pub fn now(self) -> Live {
        let silent = self.said.as_ref().map(|(endpoint, at)| (endpoint.clone(), at.elapsed()));
        let Some((endpoint, silent)) = silent.filter(|(_, silent)| *silent >= SILENT) else { return self };
        let text = format!("{endpoint} has not answered for {} s; where it runs, the job goes on", silent.as_secs());
        Live { bytes_per_second: 0, bottleneck: text.into(), ..self }
    }

    /// What is shown after this. An attempt begins at nothing and lists anew: that takes nothing away of how far the job was, and of
    /// how much.
    pub fn then(&self, next: Live) -> Live {
        let bytes_reached = next.bytes_reached.max(next.work.bytes_done).max(self.bytes_reached);
        let listed = if next.work.is_listed { 0 } else { self.work.bytes_listed };
        let work = Work { bytes_listed: next.work.bytes_listed.max(listed), ..next.work };
        Live { bytes_reached, work, ..next }
    }
}

/// Shared with those who look on; held to copy a few numbers.
pub type LiveJobs = Arc<Mutex<HashMap<JobId, Live>>>;

/// Which jobs a list holds; what is not said is not looked at.
#[derive(Clone, Default, Debug)]
pub struct Filter {
    pub statuses: Vec<Status>,
    pub owner: Option<String>,
    /// Either end.
    pub endpoint: Option<String>,
    pub label: Option<(String, String)>,
    /// Part of the job file's text.
    pub text: Option<String>,
    /// Only those that are open.
    pub is_open: bool,
    /// From the oldest on; otherwise from the newest.
    pub is_oldest_first: bool,
}

/// A page of a list, and where the next one begins.
#[derive(Clone, Debug, Serialize)]
pub struct Page {
    pub jobs: Vec<JobView>,
    pub next: Option<u64>,
}

/// A job as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    pub id: String,
    #[serde(skip)]
    pub seq: u64,
    pub version: u64,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    pub owner: String,
    /// The job file.
    pub job: Value,
    pub attempt: u32,
    /// The endpoint that carries it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<String>,
    /// What this attempt is called there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
    pub created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    pub files: Counts,
    pub bytes: Counts,
    pub bytes_per_second: u64,
    /// The most that were at the destination or on their way there in any second so far, what earlier attempts brought and what was
    /// there before included. A large file is not `ok` before its end.
    pub bytes_reached: u64,
    /// What limits the rate of a running one, or what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<String>,
    /// Of the last attempt that ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Value>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Counts {
    pub listed: u64,
    pub ok: u64,
    pub skipped: u64,
    pub failed: u64,
}

impl Counts {
    /// Files and bytes, as they are at this moment.
    pub fn of(live: &Live) -> (Counts, Counts) {
        let Live { work, files_failed, files_skipped, .. } = live;
        let files =
            Counts { listed: work.files_listed, ok: work.files_done, skipped: *files_skipped, failed: *files_failed };
        (files, Counts { listed: work.bytes_listed, ok: work.bytes_done, ..Counts::default() })
    }
}

/// What a job moved, and in which time.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub files: u64,
    pub bytes: u64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct FailureView {
    pub path: String,
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct EndpointView {
    pub name: String,
    pub addresses: Vec<String>,
    pub pin: String,
    #[serde(flatten)]
    pub health: Health,
}

/// Whether an endpoint answers: `up`, `down`, or `unknown` while no job needed it.
#[derive(Clone, Debug, Serialize)]
pub struct Health {
    pub health: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    pub takes_orders: bool,
    /// Open ones that need it.
    pub jobs: usize,
}

impl From<queue::EndpointState<'_>> for Health {
    fn from(state: queue::EndpointState<'_>) -> Health {
        let health = match state.is_up {
            None => "unknown",
            Some(true) => "up",
            Some(false) => "down",
        };
        Health { health, text: state.text.to_owned(), takes_orders: state.takes_orders, jobs: state.jobs }
    }
}

impl Default for Health {
    fn default() -> Health {
        Health { health: "unknown", text: String::new(), takes_orders: true, jobs: 0 }
    }
}

pub struct Reader {
    path: PathBuf,
    /// Held to take one out or put it back.
    kept: Mutex<Vec<Connection>>,
}

const COLUMNS: &str =
    "id, seq, version, status, reason, text, until, owner, body, attempt, role, from_endpoint, to_endpoint,
    created, begun, ended, code, hint, files_listed, bytes_listed, files_done, bytes_done, report";

impl Reader {
    pub fn new(state_dir: &Path) -> Reader {
        Reader { path: path(state_dir), kept: Mutex::default() }
    }

    /// A page of so many jobs, or of fewer where they are large.
    pub fn page(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut conditions, mut values) = (vec!["1".to_owned()], Vec::<rusqlite::types::Value>::new());
        let mut add = |condition: &str, value: rusqlite::types::Value| {
            values.push(value);
            conditions.push(condition.replace('?', &format!("?{}", values.len())));
        };
        if let Some(after) = after {
            add(if filter.is_oldest_first { "seq > ?" } else { "seq < ?" }, (after as i64).into());
        }
        if let Some(owner) = &filter.owner {
            add("owner = ?", owner.clone().into());
        }
        if let Some(endpoint) = &filter.endpoint {
            add("(from_endpoint = ? OR to_endpoint = ?)", endpoint.clone().into());
        }
        if let Some(text) = &filter.text {
            add("instr(body, ?) > 0", text.clone().into());
        }
        if let Some((name, value)) = &filter.label {
            add("seq IN (SELECT seq FROM labels WHERE name = ?", name.clone().into());
            let last = conditions.pop().unwrap_or_default();
            values.push(value.clone().into());
            conditions.push(format!("{last} AND value = ?{})", values.len()));
        }
        if filter.is_open {
            conditions.push("ended IS NULL".to_owned());
        }
        if !filter.statuses.is_empty() {
            // Words of this program, not of whoever asks.
            let words: Vec<_> = filter.statuses.iter().map(|status| format!("'{}'", status.word())).collect();
            conditions.push(format!("status IN ({})", words.join(",")));
        }
        let order = if filter.is_oldest_first { "ASC" } else { "DESC" };
        let select = format!(
            "SELECT {COLUMNS} FROM jobs WHERE {} ORDER BY seq {order} LIMIT {}",
            conditions.join(" AND "),
            limit + 1
        );
        let (jobs, has_more) = self.with(|connection| {
            let mut select = connection.prepare_cached(&select)?;
            let mut rows = select.query(params_from_iter(values.iter()))?;
            let (mut jobs, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                if jobs.len() >= limit || bytes >= PAGE_BYTES_MAX {
                    return Ok((jobs, true));
                }
                bytes += row.get_ref(8)?.as_bytes().map_or(0, <[u8]>::len);
                jobs.push(view(row)?);
            }
            Ok((jobs, false))
        })?;
        let next = jobs.last().filter(|_| has_more).map(|last| last.seq);
        Ok(Page { jobs, next })
    }

    pub fn job(&self, id: JobId) -> Result<Option<JobView>> {
        let select = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1");
        self.with(|connection| connection.prepare_cached(&select)?.query_row([&id.0[..]], view).optional())
    }

    /// When a job ended, in milliseconds since 1970.
    pub fn ended(&self, id: JobId) -> Result<Option<i64>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached("SELECT ended FROM jobs WHERE id = ?1")?;
            Ok(select.query_row([&id.0[..]], |row| row.get(0)).optional()?.flatten())
        })
    }

    /// What the last jobs between two endpoints moved that went well, without those that had nothing to do.
    pub fn moved(&self, from: &str, to: &str, limit: usize) -> Result<Vec<Moved>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT files_done, bytes_done, report FROM jobs WHERE from_endpoint = ?1 AND to_endpoint = ?2
                AND status = 'succeeded' AND files_done > 0 AND instr(body, '\"dry-run\":true') = 0
                ORDER BY seq DESC LIMIT ?3",
            )?;
            let rows = select.query_map(rusqlite::params![from, to, limit as i64], |row| {
                let report: Option<String> = row.get(2)?;
                let report: Option<Value> = report.and_then(|text| serde_json::from_str(&text).ok());
                let seconds = report.and_then(|report| report["seconds"].as_f64()).unwrap_or(0.0);
                let count = |index| row.get::<_, i64>(index).map(|value| value.max(0) as u64);
                Ok(Moved { files: count(0)?, bytes: count(1)?, seconds })
            })?;
            rows.collect()
        })
    }

    pub fn failures(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<FailureView>> {
        let select =
            "SELECT path, kind, text FROM failures WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND number >= ?2
            ORDER BY number LIMIT ?3";
        self.with(|connection| {
            let mut select = connection.prepare_cached(select)?;
            let limit = limit.clamp(1, PAGE_MAX) as i64;
            let rows = select.query_map(rusqlite::params![id.0, after as i64, limit], |row| {
                Ok(FailureView { path: row.get(0)?, reason: row.get(1)?, message: row.get(2)? })
            })?;
            rows.collect()
        })
    }

    /// Events behind one, the oldest first.
    pub fn events(&self, after: i64, limit: usize) -> Result<Vec<Event>> {
        self.with(|connection| {
            let mut select = connection
                .prepare_cached("SELECT id, job, owner, data FROM events WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let rows = select.query_map([after, limit as i64], |row| {
                Ok(Event { id: row.get(0)?, job: JobId(row.get(1)?), owner: row.get(2)?, data: row.get(3)? })
            })?;
            rows.collect()
        })
    }

    /// What is kept of a job's past, the oldest first.
    pub fn past(&self, id: JobId, limit: usize) -> Result<Vec<Value>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT data FROM (SELECT id, data FROM events WHERE job = ?1 ORDER BY id DESC LIMIT ?2) ORDER BY id",
            )?;
            let rows = select.query_map(rusqlite::params![id.0, limit as i64], |row| row.get::<_, String>(0))?;
            rows.map(|data| data.map(|data| serde_json::from_str(&data).unwrap_or(Value::Null))).collect()
        })
    }

    /// Whether an event is there, and the oldest one.
    pub fn has_event(&self, id: i64) -> Result<(bool, i64)> {
        self.with(|connection| {
            let select =
                "SELECT EXISTS (SELECT 1 FROM events WHERE id = ?1), coalesce((SELECT min(id) FROM events), 0)";
            connection.prepare_cached(select)?.query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// Those of an owner, or of all; or the one of a name among them.
    pub fn schedules(&self, owner: Option<&str>, name: Option<&str>) -> Result<Vec<ScheduleView>> {
        self.with(|connection| {
            let mut status = connection.prepare_cached("SELECT status FROM jobs WHERE id = ?1")?;
            let mut view = |stored: schedules::StoredSchedule| {
                let job = stored.schedule.job;
                let last_status =
                    job.map(|id| status.query_row([&id.0[..]], |row| row.get(0)).optional()).transpose()?.flatten();
                Ok(ScheduleView { last_status, ..ScheduleView::from(stored) })
            };
            schedules::some(connection, owner, name)?.into_iter().map(&mut view).collect()
        })
    }

    pub fn audit(&self, wanted: &audit::Wanted) -> Result<Vec<Value>> {
        let wanted = audit::Wanted { limit: wanted.limit.clamp(1, PAGE_MAX), ..wanted.clone() };
        self.with(|connection| audit::lines(connection, &wanted))
    }

    /// When a job was handed in.
    pub fn created(&self, id: JobId) -> Result<Option<i64>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached("SELECT created FROM jobs WHERE id = ?1")?;
            select.query_row([&id.0[..]], |row| row.get(0)).optional()
        })
    }

    /// Open jobs by status, of one owner or of all.
    pub fn counts(&self, owner: Option<&str>) -> Result<Vec<(String, u64)>> {
        self.with(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT status, count(*) FROM jobs WHERE ended IS NULL AND (?1 IS NULL OR owner = ?1) GROUP BY status",
            )?;
            let rows = select.query_map([owner], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
            rows.collect()
        })
    }

    fn with<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        let failed = |e: rusqlite::Error| of_sqlite(&self.path, &e);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match kept {
            Some(connection) => connection,
            None => self.open().map_err(failed)?,
        };
        let answer = ask(&connection).map_err(failed)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < KEPT_MAX {
            kept.push(connection);
        }
        Ok(answer)
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY_MAX)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        Ok(connection)
    }
}

fn view(row: &Row<'_>) -> rusqlite::Result<JobView> {
    let id = JobId(row.get(0)?);
    let word = |text: String| Some(text).filter(|text| !text.is_empty());
    let moment = |at: Option<i64>| at.map(rfc3339);
    let count = |index| row.get::<_, i64>(index).map(|value| value.max(0) as u64);
    let attempt: u32 = row.get(9)?;
    let role: Option<String> = row.get(10)?;
    let executor: Option<String> = match role.as_deref() {
        Some("sends") => Some(row.get(11)?),
        Some(_) => Some(row.get(12)?),
        None => None,
    };
    let body: String = row.get(8)?;
    let report: Option<String> = row.get(22)?;
    let report: Option<Value> = report.and_then(|text| serde_json::from_str(&text).ok());
    let of_report = |what: &str| report.as_ref().and_then(|report| report["files"][what].as_u64()).unwrap_or(0);
    Ok(JobView {
        id: id.to_string(),
        seq: count(1)?,
        version: count(2)?,
        status: row.get(3)?,
        reason: word(row.get(4)?),
        text: word(row.get(5)?),
        until: moment(row.get(6)?),
        owner: row.get(7)?,
        job: serde_json::from_str(&body).unwrap_or(Value::Null),
        attempt,
        order: executor.is_some().then(|| crate::order::order_id(id, attempt).to_string()),
        executor,
        created: rfc3339(row.get(13)?),
        begun: moment(row.get(14)?),
        ended: moment(row.get(15)?),
        code: row.get(16)?,
        hint: word(row.get(17)?),
        files: Counts {
            listed: count(18)?,
            ok: count(20)?,
            skipped: of_report("skipped"),
            failed: of_report("failed"),
        },
        bytes: Counts { listed: count(19)?, ok: count(21)?, ..Counts::default() },
        bytes_per_second: 0,
        bytes_reached: 0,
        bottleneck: None,
        report,
    })
}

impl JobView {
    /// With what is known of it at this moment, and what was shown of it before.
    pub fn enliven(&mut self, live: Option<Live>, before: &Live, why: Option<&(Reason, String)>) {
        if let Some(live) = live {
            let live = before.then(live.now());
            (self.files, self.bytes) = Counts::of(&live);
            self.bytes_per_second = live.bytes_per_second;
            self.bottleneck = Some(live.bottleneck.to_string()).filter(|text| !text.is_empty());
        }
        // Of what is newer, another attempt may not know.
        let ended = if self.code.is_some() { self.bytes.ok } else { 0 };
        self.bytes_reached = before.bytes_reached.max(ended);
        if let Some((reason, text)) = why {
            self.reason = Some(reason.word().to_owned());
            self.text = Some(text.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::JobFile;
    use crate::rows::NewJob;
    use crate::store::{Group, Store};

    #[test]
    fn what_an_endpoint_said_last_is_not_told_as_if_it_were_still_so_when_it_is_silent() {
        let live = |ago: Duration| {
            let said = Some(("a".into(), Instant::now().checked_sub(ago).unwrap()));
            Live { bytes_per_second: 7, bottleneck: "limited by memory".into(), said, ..Live::default() }.now()
        };
        let (fresh, silent) = (live(Duration::ZERO), live(SILENT));
        assert_eq!((fresh.bytes_per_second, &*fresh.bottleneck), (7, "limited by memory"));
        assert_eq!(silent.bytes_per_second, 0);
        assert!(silent.bottleneck.starts_with("a has not answered for 3 s"), "{}", silent.bottleneck);
    }

    #[test]
    fn a_page_of_large_jobs_has_fewer_and_says_where_the_next_one_begins() {
        let dir = tempfile::tempdir().unwrap();
        let wish = JobFile::from_json(r#"{"source":"a:x","destination":"b:y"}"#).unwrap().wish("anna").unwrap();
        let body = format!(r#"{{"source":"a:{}","destination":"b:y"}}"#, "x".repeat(200 << 10));
        let new = |seq: u64| {
            let (id, wish, body) = (JobId([seq as u8; 16]), wish.clone(), body.clone());
            NewJob { id, seq, wish, body, labels: vec![] }
        };
        let mut store = Store::open(dir.path()).unwrap();
        store.commit(&Group { new: (1..=20).map(new).collect(), ..Group::default() }).unwrap();
        let reader = Reader::new(dir.path());
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = reader.page(&Filter::default(), after, 100).unwrap();
            assert!((1..=6).contains(&page.jobs.len()), "{}", page.jobs.len());
            seen.extend(page.jobs.iter().map(|job| job.seq));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(seen, (1..=20).rev().collect::<Vec<u64>>());
    }
}
