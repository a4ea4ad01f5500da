//! What runs, once a second: for those who look on, and as a history that outlives a restart.
//!
//! A thread of its own looks at what the owner last heard, so that nobody who looks on holds up the queue. The history is a file of its
//! own, `history.db`: it may be lost, and is never in the way of a job. Invariants: memory and file are bounded; what is told of a job is
//! told to its owner and to administrators alone; how far a job is told to be is written down first, so that it never falls, whoever is
//! started again.
//!
//! Not here: how a series stays short (`series`), changes of jobs (`events`).

use crate::reader::{Counts, Live, LiveJobs, Reader};
use crate::series::{Point, Series};
use crate::unix_ms;
use model::JobId;
use queue::Work;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tracing::warn;

const EVERY: Duration = Duration::from_secs(1);
/// Looks after which what is new is written down.
const KEEP_EVERY: u64 = 10;
/// Seconds of the rate of everything.
const TOTAL_MAX: usize = 900;
/// Jobs whose series are kept, at 19 KiB each at most.
const KEPT_MAX: u32 = 5000;

/// The rate of everything at a moment, and how many jobs ran: milliseconds since 1970, bytes per second, jobs.
pub type Total = (i64, u64, u64);

pub struct Samples {
    shared: Arc<Shared>,
    /// Dropped to end the thread.
    run: Mutex<Option<(SyncSender<()>, JoinHandle<()>)>>,
}

struct Shared {
    path: PathBuf,
    reader: Arc<Reader>,
    /// Held to take in a second, or to copy from it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Counts the seconds.
    tick: u64,
    at: i64,
    running: HashMap<JobId, Running>,
    total: VecDeque<Total>,
    /// Absent where the file cannot be used.
    file: Option<Connection>,
}

struct Running {
    owner: Arc<str>,
    live: Live,
    series: Series,
}

impl Samples {
    pub fn start(state_dir: &Path, live: LiveJobs, reader: Arc<Reader>) -> std::io::Result<Samples> {
        let path = state_dir.join("history.db");
        let file = open(&path).map_err(|e| warn!(error = %e, "no history of rates is kept")).ok();
        let state = Mutex::new(State { file, ..State::default() });
        let shared = Arc::new(Shared { path, reader, state });
        let (stop, stopped) = sync_channel(0);
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("samples".into()).spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let seen = live.lock().unwrap_or_else(PoisonError::into_inner).clone();
                own.take(unix_ms(), seen);
            }
            own.lock().keep_all();
        })?;
        Ok(Samples { shared, run: Mutex::new(Some((stop, thread))) })
    }

    pub fn stop(&self) {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = run {
            drop(stop);
            let _ = thread.join();
        }
    }

    /// What was told of a job in the last second that it ran; of one that does not, how far it came.
    pub fn last(&self, id: JobId) -> Live {
        let state = self.shared.lock();
        state.running.get(&id).map_or_else(|| state.reached(id), |running| running.live.clone())
    }

    /// The rate of a job since it began; empty for one that was too short to be seen, or is too old.
    pub fn of_job(&self, id: JobId) -> Series {
        let state = self.shared.lock();
        let running = state.running.get(&id).map(|running| running.series.clone());
        running.or_else(|| state.kept(id)).unwrap_or_default()
    }

    pub fn total(&self) -> Vec<Total> {
        self.shared.lock().total.iter().copied().collect()
    }

    /// What runs, from now on, second by second: the jobs of an owner, or all.
    pub fn watch(&self, owner: Option<String>) -> Watch {
        Watch { shared: self.shared.clone(), owner, seen: self.shared.lock().tick }
    }
}

/// Somebody who looks on.
pub struct Watch {
    shared: Arc<Shared>,
    owner: Option<String>,
    seen: u64,
}

impl Watch {
    /// The last second, if it was not told yet.
    pub fn news(&mut self) -> Option<Value> {
        let state = self.shared.lock();
        if state.tick == self.seen {
            return None;
        }
        self.seen = state.tick;
        let is_for = |running: &Running| self.owner.as_ref().is_none_or(|owner| **owner == *running.owner);
        let jobs: Vec<_> = state.running.iter().filter(|(_, running)| is_for(running)).map(told).collect();
        Some(json!({"at": state.at, "jobs": jobs}))
    }
}

fn told((id, running): (&JobId, &Running)) -> Value {
    let (files, bytes) = Counts::of(&running.live);
    json!({"id": id.to_string(), "files": files, "bytes": bytes, "bytes_per_second": running.live.bytes_per_second,
        "bytes_reached": running.live.bytes_reached,
        "bottleneck": &*running.live.bottleneck})
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in one second.
    fn take(&self, at: i64, seen: HashMap<JobId, Live>) {
        let new: Vec<JobId> = {
            let state = self.lock();
            seen.keys().filter(|id| !state.running.contains_key(id)).copied().collect()
        };
        // The database is asked while nobody waits for the lock.
        let owners = new.into_iter().filter_map(|id| Some((id, self.reader.job(id).ok()??.owner)));
        let owners: Vec<(JobId, String)> = owners.collect();
        let mut state = self.lock();
        owners.into_iter().for_each(|(id, owner)| state.begin(id, owner.into()));
        let gone: Vec<JobId> = state.running.keys().filter(|id| !seen.contains_key(id)).copied().collect();
        for id in gone {
            let running = state.running.remove(&id);
            running.into_iter().for_each(|running| state.keep(id, at, &running.series));
        }
        let (mut all, mut further) = (0u64, Vec::new());
        for (id, live) in seen {
            let live = live.now();
            all = all.saturating_add(live.bytes_per_second);
            let Some(running) = state.running.get_mut(&id) else { continue };
            let live = running.live.then(live);
            let reached = |live: &Live| (live.bytes_reached, live.work.bytes_listed);
            if reached(&live) != reached(&running.live) {
                further.push((id, reached(&live)));
            }
            let (files, bytes) = (live.work.files_done, live.bytes_reached);
            running.series.push(Point { at, files, bytes, bytes_per_second: live.bytes_per_second });
            running.live = live;
        }
        state.keep_reached(at, &further);
        let jobs = state.running.len() as u64;
        state.total.push_back((at, all, jobs));
        if state.total.len() > TOTAL_MAX {
            state.total.pop_front();
        }
        (state.tick, state.at) = (state.tick + 1, at);
        if state.tick.is_multiple_of(KEEP_EVERY) {
            state.keep_all();
        }
        let is_lost = state.file.is_none();
        if is_lost && state.tick.is_multiple_of(60 * KEEP_EVERY) {
            state.file = open(&self.path).ok();
        }
    }
}

impl State {
    /// A job runs: with what is known of it from before.
    fn begin(&mut self, id: JobId, owner: Arc<str>) {
        let (series, live) = (self.kept(id).unwrap_or_default(), self.reached(id));
        self.running.insert(id, Running { owner, live, series });
    }

    fn keep_all(&self) {
        for (id, running) in &self.running {
            self.keep(*id, self.at, &running.series);
        }
        let Some(file) = &self.file else { return };
        for table in ["series", "reached"] {
            let limit =
                format!("DELETE FROM {table} WHERE at < (SELECT at FROM {table} ORDER BY at DESC LIMIT 1 OFFSET ?1)");
            note(file.execute(&limit, [KEPT_MAX]).map(drop));
        }
    }

    /// Writes down how far jobs are, and of how much.
    fn keep_reached(&self, at: i64, further: &[(JobId, (u64, u64))]) {
        let Some(file) = self.file.as_ref().filter(|_| !further.is_empty()) else { return };
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let put = || {
            let all = file.unchecked_transaction()?;
            for (id, (bytes, listed)) in further {
                let put = "INSERT INTO reached VALUES (?1, ?2, ?3, ?4)
                    ON CONFLICT (job) DO UPDATE SET at = excluded.at, bytes = excluded.bytes, listed = excluded.listed";
                all.prepare_cached(put)?.execute(params![id.0, at, number(*bytes), number(*listed)])?;
            }
            all.commit()
        };
        note(put());
    }

    /// How far a job came, as it was written down.
    fn reached(&self, id: JobId) -> Live {
        let found = || {
            let select = "SELECT bytes, listed FROM reached WHERE job = ?1";
            let mut select = self.file.as_ref()?.prepare_cached(select).ok()?;
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
            select.query_row([&id.0[..]], row).ok()
        };
        let (bytes, listed) = found().unwrap_or_default();
        let work = Work { bytes_listed: listed.max(0) as u64, ..Work::default() };
        Live { bytes_reached: bytes.max(0) as u64, work, ..Live::default() }
    }

    fn keep(&self, id: JobId, at: i64, series: &Series) {
        let Some(file) = &self.file else { return };
        // One point is no curve.
        if series.points.len() > 1 {
            let put = "INSERT INTO series VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (job) DO UPDATE SET at = excluded.at, step = excluded.step, points = excluded.points";
            let put = file.prepare_cached(put);
            note(put.and_then(|mut put| put.execute(params![id.0, at, series.step, series.to_bytes()]).map(drop)));
        }
    }

    fn kept(&self, id: JobId) -> Option<Series> {
        let select = "SELECT step, points FROM series WHERE job = ?1";
        let mut select = self.file.as_ref()?.prepare_cached(select).ok()?;
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: Option<(u32, Vec<u8>)> = select.query_row([&id.0[..]], row).optional().ok()?;
        found.and_then(|(step, points)| Series::from_bytes(step, &points))
    }
}

fn note(done: rusqlite::Result<()>) {
    if let Err(e) = done {
        warn!(error = %e, "the history of rates cannot be written");
    }
}

/// The file; what cannot be read as one is begun anew.
fn open(path: &Path) -> rusqlite::Result<Connection> {
    prepare(path).or_else(|_| {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            let _ = std::fs::remove_file(name);
        }
        prepare(path)
    })
}

fn prepare(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // It may be lost.
    connection.pragma_update(None, "synchronous", "off")?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS series (job BLOB PRIMARY KEY, at INTEGER NOT NULL, step INTEGER NOT NULL, points BLOB NOT NULL) STRICT;
        CREATE INDEX IF NOT EXISTS series_by_age ON series (at);
        CREATE TABLE IF NOT EXISTS reached (job BLOB PRIMARY KEY, at INTEGER NOT NULL, bytes INTEGER NOT NULL, listed INTEGER NOT NULL)
        STRICT;",
    )?;
    // Another table of that name has other columns.
    connection.prepare("SELECT job, at, step, points FROM series").map(drop)?;
    connection.prepare("SELECT job, at, bytes, listed FROM reached").map(drop)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(dir: &Path) -> Shared {
        let path = dir.join("history.db");
        let state = Mutex::new(State { file: open(&path).ok(), ..State::default() });
        Shared { path, reader: Arc::new(Reader::new(dir)), state }
    }

    fn series(seconds: i64) -> Series {
        let mut series = Series::default();
        (1..=seconds).for_each(|n| series.push(Point { at: n * 1000, bytes_per_second: 7, ..Point::default() }));
        series
    }

    #[test]
    fn a_history_outlives_its_hub_and_a_damaged_file_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (JobId([1; 16]), JobId([2; 16]));
        shared(dir.path()).lock().keep(one, 5, &series(20));
        assert_eq!(shared(dir.path()).lock().kept(one), Some(series(20)));
        assert_eq!(shared(dir.path()).lock().kept(other), None);
        std::fs::write(dir.path().join("history.db"), [7; 4096]).unwrap();
        let again = shared(dir.path());
        assert_eq!(again.lock().kept(one), None);
        again.lock().keep(other, 5, &series(9));
        assert_eq!(again.lock().kept(other), Some(series(9)));
    }

    #[test]
    fn the_file_holds_the_newest_alone() {
        let dir = tempfile::tempdir().unwrap();
        let shared = shared(dir.path());
        let state = shared.lock();
        for n in 0..KEPT_MAX + 20 {
            let id = JobId(u128::from(n).to_le_bytes());
            state.keep(id, i64::from(n), &series(2));
        }
        state.keep_all();
        let kept: u32 =
            state.file.as_ref().unwrap().query_row("SELECT count(*) FROM series", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, KEPT_MAX + 1);
        assert_eq!(state.kept(JobId(0u128.to_le_bytes())), None);
    }

    #[test]
    fn how_far_a_job_is_told_to_be_never_falls_through_attempts_and_restarts() {
        let (dir, job) = (tempfile::tempdir().unwrap(), JobId([1; 16]));
        let told = |shared: &Shared, bytes_reached, bytes_listed, is_listed| {
            let work = Work { bytes_listed, is_listed, ..Work::default() };
            shared.take(1000, HashMap::from([(job, Live { bytes_reached, work, ..Live::default() })]));
            let state = shared.lock();
            let told = told((&job, &state.running[&job]));
            [&told["bytes_reached"], &told["bytes"]["listed"]].map(|number| number.as_u64().unwrap())
        };
        let hub = Samples { shared: Arc::new(shared(dir.path())), run: Mutex::new(None) };
        hub.shared.lock().begin(job, "anna".into());
        assert_eq!(told(&hub.shared, 50, 90, true), [50, 90]);
        assert_eq!(told(&hub.shared, 0, 10, false), [50, 90], "another attempt, which lists");
        assert_eq!(told(&hub.shared, 40, 80, true), [50, 80], "there is less by now");
        hub.shared.take(2000, HashMap::new());
        assert_eq!(hub.last(job).bytes_reached, 50, "it waits");
        let other = Samples { shared: Arc::new(shared(dir.path())), run: Mutex::new(None) };
        assert_eq!(other.last(job).bytes_reached, 50);
        other.shared.lock().begin(job, "anna".into());
        assert_eq!(told(&other.shared, 10, 0, false), [50, 80], "the hub is another");
        assert_eq!(told(&other.shared, 60, 80, true), [60, 80]);
    }

    #[test]
    fn who_looks_on_is_told_each_second_once_and_of_the_own_jobs_alone() {
        let dir = tempfile::tempdir().unwrap();
        let samples = Samples { shared: Arc::new(shared(dir.path())), run: Mutex::new(None) };
        let live = |rate| Live { bytes_per_second: rate, ..Live::default() };
        for (id, owner) in [(1, "anna"), (2, "bert")] {
            let running = Running { owner: owner.into(), live: live(0), series: Series::default() };
            samples.shared.lock().running.insert(JobId([id; 16]), running);
        }
        let (mut all, mut annas) = (samples.watch(None), samples.watch(Some("anna".into())));
        assert_eq!(all.news(), None);
        let seen = HashMap::from([(JobId([1; 16]), live(10)), (JobId([2; 16]), live(20))]);
        samples.shared.take(1000, seen);
        let of = |news: Option<Value>| news.unwrap()["jobs"].as_array().unwrap().len();
        assert_eq!((of(all.news()), of(annas.news())), (2, 1));
        assert_eq!(all.news(), None);
        assert_eq!(samples.total(), [(1000, 30, 2)]);
        samples.shared.take(2000, HashMap::new());
        assert_eq!((of(all.news()), of(annas.news())), (0, 0));
    }
}
