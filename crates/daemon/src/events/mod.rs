//! The event log of an endpoint: one JSON object a line, by NetLogger's rules, so that the logs of several hosts can be laid side
//! by side.
//!
//! Everything that takes time is a pair of events, NAME.start and NAME.end, with one `guid`; what it came to is the `status` of
//! the end, 0 for good. Never one for each file or chunk.
//!
//! Invariants:
//! - The log takes at most `FILES` times `FILE_BYTES_MAX`; the oldest goes first.
//! - An event that cannot be written holds nothing up; that is said once.
//!
//! Not here: reading logs (`analysis`).

pub mod analysis;

use crate::time;
use model::mutant;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tracing::error;

const FILE_BYTES_MAX: u64 = 16 << 20;
const FILES: usize = 4;
const PROGRAM: &str = concat!("thalweg-", env!("CARGO_PKG_VERSION"));

pub struct EventLog {
    path: PathBuf,
    host: String,
    file_bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<(File, u64)>,
    has_failed: bool,
}

impl EventLog {
    /// `host` is what the endpoint calls itself.
    pub fn new(state_dir: &Path, host: &str) -> EventLog {
        let path = state_dir.join("events.jsonl");
        EventLog { path, host: host.to_owned(), file_bytes_max: FILE_BYTES_MAX, state: Mutex::default() }
    }

    /// Something begins.
    pub fn start(&self, name: &str, guid: &str, more: Value) {
        self.write(&format!("{name}.start"), guid, None, more);
    }

    /// It has ended; `status` is 0 for good, else why not, as an exit code or -1.
    pub fn end(&self, name: &str, guid: &str, status: i32, more: Value) {
        self.write(&format!("{name}.end"), guid, Some(status), more);
    }

    fn write(&self, event: &str, guid: &str, status: Option<i32>, more: Value) {
        let ts = time::rfc3339_us(SystemTime::now());
        let level = if status.is_none_or(|status| status == 0) { "Info" } else { "Error" };
        let line = json!({"ts": ts, "event": event, "level": level, "guid": guid, "host": self.host, "prog": PROGRAM});
        let mut fields = match line {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        if let Some(status) = status {
            fields.insert("status".to_owned(), status.into());
        }
        if let Value::Object(more) = more {
            fields.extend(more);
        }
        let text = format!("{}\n", Value::Object(fields));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.append(&mut state, text.as_bytes()) {
            Ok(()) => state.has_failed = false,
            Err(e) if !state.has_failed => {
                state.has_failed = true;
                error!(error = %e, "the event log cannot be written");
            }
            Err(_) => {}
        }
    }

    fn append(&self, state: &mut State, line: &[u8]) -> io::Result<()> {
        if state.file.as_ref().is_some_and(|(_, bytes)| bytes + line.len() as u64 > self.file_bytes_max) {
            state.file = None;
            self.turn_over()?;
        }
        if state.file.is_none() {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
            let bytes = file.metadata()?.len();
            state.file = Some((file, bytes));
        }
        let Some((file, bytes)) = &mut state.file else { return Ok(()) };
        // In one call, so that a line is whole or not there.
        let written = file.write(line)?;
        *bytes += written as u64;
        if written == line.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// `events.jsonl` becomes `events.jsonl.1`, that `events.jsonl.2`, and the last one goes.
    fn turn_over(&self) -> io::Result<()> {
        if mutant::is_on("event-log-without-end") {
            return Ok(());
        }
        let of = |number: usize| match number {
            0 => self.path.clone(),
            number => PathBuf::from(format!("{}.{number}", self.path.display())),
        };
        for number in (0..FILES - 1).rev() {
            match std::fs::rename(of(number), of(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_events_has_what_netlogger_asks_for() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog::new(dir.path(), "site\na");
        log.start("thalweg.job.send", "00ff", json!({"peer": "x\"y"}));
        log.end("thalweg.job.send", "00ff", 23, json!({"bytes": 7}));
        let text = std::fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), &lines[0]["event"]), (2, &json!("thalweg.job.send.start")));
        assert_eq!(
            (&lines[0]["status"], &lines[1]["status"], &lines[1]["level"]),
            (&Value::Null, &json!(23), &json!("Error"))
        );
        assert_eq!(
            (&lines[1]["guid"], &lines[1]["bytes"], &lines[0]["host"]),
            (&json!("00ff"), &json!(7), &json!("site\na"))
        );
        assert!(lines[0]["ts"].as_str().unwrap().len() == "2026-11-23T06:20:00.123456Z".len());
    }

    #[test]
    fn the_log_is_bounded_and_its_newest_lines_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let log = EventLog { file_bytes_max: 1000, ..EventLog::new(dir.path(), "h") };
        (0..200).for_each(|at| log.start("thalweg.test", &at.to_string(), json!({})));
        let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let bytes: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(files.len() == FILES && bytes <= 4000, "{} files of {bytes} bytes", files.len());
        let newest = std::fs::read_to_string(dir.path().join("events.jsonl")).unwrap();
        assert!(newest.lines().last().unwrap().contains("\"guid\":\"199\""));
        // One that went on with another process appends.
        drop(log);
        EventLog::new(dir.path(), "h").start("thalweg.test", "200", json!({}));
        assert!(std::fs::read_to_string(dir.path().join("events.jsonl")).unwrap().starts_with(&newest));
    }

    #[test]
    fn a_log_that_cannot_be_written_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let away = dir.path().join("away");
        let log = EventLog::new(&away, "h");
        log.start("thalweg.test", "1", json!({}));
        log.end("thalweg.test", "1", 0, json!({}));
        assert!(!away.exists() && log.state.lock().unwrap().has_failed);
        std::fs::create_dir(&away).unwrap();
        log.start("thalweg.test", "2", json!({}));
        assert_eq!(std::fs::read_to_string(away.join("events.jsonl")).unwrap().lines().count(), 1);
    }
}
