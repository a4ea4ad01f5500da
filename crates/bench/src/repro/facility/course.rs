//! How a run goes: the jobs that the hub is given, what it tells meanwhile, and what happens to the chain.
//!
//! One job follows the instrument until that has written its last name; where something failed in it, it is handed in again. Every word of the
//! hub is kept: `course.jsonl` has what it says of the job when it is asked, `events.jsonl` the events it sends.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::appender::{GROWING, STOP};
use super::stand::{Role, Site, Stand};
use crate::error::{Error, Kind, Result};

const ASK_EVERY: Duration = Duration::from_millis(300);
/// So often the job is handed in where something fails in it.
const ROUNDS_MAX: u32 = 4;

/// What is known at a moment: seconds, and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: f64,
    pub written: u64,
    pub delivered: u64,
}

/// What the threads of a run share.
pub struct Shared {
    pub name: String,
    pub began: Instant,
    pub limit: Duration,
    pub written: AtomicU64,
    /// The run is over, well or not.
    pub is_over: AtomicBool,
}

impl Shared {
    pub fn new(name: String, limit: Duration) -> Shared {
        let (written, is_over) = Default::default();
        Shared { name, began: Instant::now(), limit, written, is_over }
    }

    fn check_time(&self, waiting_for: &str) -> Result<()> {
        if self.is_over.load(Relaxed) {
            return Err(Error::cancelled("run", &self.name));
        }
        if self.began.elapsed() < self.limit {
            return Ok(());
        }
        Err(Error::new(Kind::Failed, "run", &self.name, format!("it is not over in time: {waiting_for}")))
    }
}

/// The job, and where it is handed in.
pub struct Course<'a> {
    pub office: &'a Site,
    pub job_file: &'a Path,
    pub raw: &'a Path,
    pub shared: &'a Shared,
}

impl Course<'_> {
    /// Until everything is delivered.
    pub fn follow(&self) -> Result<Vec<Moment>> {
        let mut moments = Vec::new();
        for round in 1.. {
            let ended = self.one(round, &mut moments)?;
            match ended["code"].as_i64() {
                Some(0) => break,
                _ if round >= ROUNDS_MAX => {
                    return Err(Error::new(Kind::Failed, "deliver", &self.shared.name, ended.to_string()));
                }
                _ => {}
            }
        }
        Ok(moments)
    }

    /// Hands the job in, and asks for it until it has ended. A hub that is away for a moment is asked again.
    fn one(&self, round: u32, moments: &mut Vec<Moment>) -> Result<Value> {
        let (key, job) = (format!("{}-{round}", self.shared.name), self.job_file.display().to_string());
        let id = loop {
            match self.office.thalweg(&["submit", "--key", &key, &job]) {
                Ok(said) => break said.split_whitespace().last().unwrap_or_default().to_owned(),
                Err(error) => self.shared.check_time(&format!("handing in the job: {}", error.chain()))?,
            }
            thread::sleep(ASK_EVERY);
        };
        loop {
            let asked = self.office.thalweg(&["job", "show", "--json", &id]);
            let job: Value = asked.ok().and_then(|said| serde_json::from_str(&said).ok()).unwrap_or_default();
            let at = self.shared.began.elapsed().as_secs_f64();
            let written = self.shared.written.load(Relaxed);
            let reached = job["bytes_reached"].as_u64().max(job["bytes"]["ok"].as_u64()).unwrap_or(0);
            // What an earlier round brought is there, and the job of this one counts it when it has found it.
            let delivered = moments.last().map_or(reached, |last| last.delivered.max(reached));
            keep(
                self.raw,
                &json!({"run": self.shared.name, "at": at, "round": round, "written": written, "job": job}),
            )?;
            if !job.is_null() {
                moments.push(Moment { at, written, delivered });
            }
            if job["code"].is_i64() && job["ended"].is_string() {
                return Ok(job);
            }
            self.shared.check_time(&format!("job {id}: {}", job["status"]))?;
            thread::sleep(ASK_EVERY);
        }
    }
}

/// The job file: everything below a directory, as it becomes complete.
pub fn job(from: &str, to: &str) -> String {
    json!({"kind": "follow", "source": format!("instrument:{from}/"), "destination": format!("archive:vault/{to}/"),
        "options": {"until": format!("rename:*.{GROWING}"), "end": [format!("marker:{STOP}")]}, "labels": {"run": to}})
    .to_string()
}

/// Keeps the events that the hub sends, with the rates of each second, until the run is over; goes on where it was when the hub is back.
pub fn listen(socket: &Path, raw: &Path, shared: &Shared) -> Result<()> {
    let mut last = String::from("0");
    while !shared.is_over.load(Relaxed) {
        if let Ok(stream) = UnixStream::connect(socket) {
            hear(stream, raw, shared, &mut last)?;
        }
        thread::sleep(ASK_EVERY);
    }
    Ok(())
}

fn hear(mut stream: UnixStream, raw: &Path, shared: &Shared, last: &mut String) -> Result<()> {
    let request = format!(
        "GET /api/v1/events?rates=true&after={last} HTTP/1.1\r\nHost: hub\r\nAccept: text/event-stream\r\n\r\n"
    );
    if stream.set_read_timeout(Some(ASK_EVERY)).is_err() || stream.write_all(request.as_bytes()).is_err() {
        return Ok(());
    }
    let (mut lines, mut line) = (BufReader::new(stream), String::new());
    while !shared.is_over.load(Relaxed) {
        match lines.read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) if line.ends_with('\n') => {}
            Ok(_) => continue,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return Ok(()),
        }
        if let Some(id) = line.strip_prefix("id:") {
            id.trim().clone_into(last);
        }
        if let Some(data) = line.strip_prefix("data:").and_then(|data| serde_json::from_str::<Value>(data).ok()) {
            keep(raw, &json!({"run": shared.name, "at": shared.began.elapsed().as_secs_f64(), "data": data}))?;
        }
        line.clear();
    }
    Ok(())
}

/// One more line.
pub fn keep(path: &Path, line: &Value) -> Result<()> {
    let mut file: File = OpenOptions::new().create(true).append(true).open(path).map_err(Error::io("open", path))?;
    file.write_all(format!("{line}\n").as_bytes()).map_err(Error::io("write", path))
}

/// For how long the path is cut.
const CUT: Duration = Duration::from_secs(3);

/// What happens to the chain, and when.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// The store stands still, or moves again.
    Stall(bool),
    /// The instrument's storage does the same, at times of its own.
    Storage(bool),
    Kill(Role),
    Cut,
}

/// Lets everything happen in its order until the run is over; each is noted with its time.
pub fn happen(
    stand: &mut Stand<'_>,
    mut events: Vec<(f64, Event)>,
    raw: &Path,
    shared: &Shared,
    cancel: &AtomicBool,
) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(20);
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut events = events.into_iter().peekable();
    let (mut is_stalled, mut to_start) = (false, Vec::new());
    while !shared.is_over.load(Relaxed) {
        if cancel.load(Relaxed) {
            return Err(Error::cancelled("run", &shared.name));
        }
        let now = shared.began.elapsed().as_secs_f64();
        let Some((due, event)) = events.next_if(|(at, _)| *at <= now) else {
            thread::sleep(LOOK);
            continue;
        };
        match event {
            Event::Stall(stands) => {
                stand.stall(stands);
                is_stalled = stands;
                if !stands {
                    to_start.drain(..).try_for_each(|role| stand.start(role))?;
                }
            }
            Event::Storage(_) => {}
            Event::Cut => {
                stand.cut(true)?;
                thread::sleep(CUT);
                stand.cut(false)?;
            }
            Event::Kill(role) => {
                stand.kill(role);
                // A start is waited for, and some ask the store: it would stand still for longer than it was to.
                if is_stalled { to_start.push(role) } else { stand.start(role)? }
            }
        }
        let at = if matches!(event, Event::Storage(_)) { due } else { now };
        keep(raw, &json!({"run": shared.name, "at": at, "happens": format!("{event:?}")}))?;
    }
    // The next run begins with everything moving.
    stand.stall(false);
    Ok(())
}
