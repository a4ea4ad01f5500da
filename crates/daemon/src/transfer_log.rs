//! What went through this endpoint: one JSON object a line, for people and programs that account for transfers.
//!
//! Every line has `v`, `time`, `event`, `client`, `pin`, `job` and `direction` (`in` or `out`), and `prev`: the SHA-256 of
//! the line before it, also across files (`chain`). Events:
//! - `bundle`: up to 1,000 delivered files below 64 MiB, or 64 MiB of them: `files`, `bytes`, `first` (a path of them).
//! - `file`: one delivered file of 64 MiB or more: `path`, `bytes`, `digest` (`ALGORITHM:HEX`).
//! - `failure`: one file that was not delivered: `path`, `kind`, `message`.
//! - `failures`: `left_out`, how many more were not delivered and have no line, where a job has very many.
//! - `job`: the end: `outcome`, `reason`, `files`, `skipped`, `failed`, `bytes`, `seconds`.
//! - `change`: directories made, objects removed or renamed by command, without `job` and `direction`: `action`, `paths`
//!   (how many), `first` (one of them), `files`, `directories`, `failed`, `refused`.
//! - `left-out`: `lines` of one client, or without `client` of several, that are not written: of changes that changed
//!   nothing and of jobs that delivered nothing, of which a client has a few a minute in full (`fruitless`).
//! - `lost`: `lines` that could not be written before this one.
//! - `broken`: the file was removed, replaced or cut short while the endpoint ran; `lines` that it had written to it.
//!
//! Paths are escaped as in `model::name::Escaped`.
//!
//! Invariants: a line is at most `LINE_BYTES_MAX` long and whole; a log that cannot be written stops no transfer; the file and
//! its `FILES_KEPT` predecessors (`NAME.1` is the youngest) take `FILE_BYTES_MAX` each. That the file is no longer the one that
//! was written to is noticed within seconds, or at the next line (`look`).

mod chain;
mod fruitless;

pub use chain::{Chained, verify};

use crate::error::{Error, Result, shown};
use crate::time;
use chain::{FILES_KEPT, numbered};
use fruitless::{Failures, Fruitless};
use model::name::Escaped;
use model::{Exit, Pin, mutant};
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime};
use tracing::{error, info, warn};

/// The file becomes `NAME.1` when it has grown to this, `NAME.1` becomes `NAME.2`, and so on.
const FILE_BYTES_MAX: u64 = 64 << 20;
const LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of one text in a line. Escaping for JSON at most doubles them, and a line has at most two long ones.
const TEXT_BYTES_MAX: usize = 1800;

pub struct TransferLog {
    path: PathBuf,
    file_bytes_max: u64,
    state: Mutex<State>,
    fruitless: Mutex<Fruitless>,
    failures: Mutex<Failures>,
}

struct State {
    file: File,
    /// Of the file, as it is found again by.
    id: (u64, u64),
    bytes: u64,
    /// Written to this file since it was opened.
    lines: u64,
    /// It is gone, and there is no other: said once.
    is_gone: bool,
    /// The last line was cut short, by a full disk or a crash.
    is_torn: bool,
    lines_lost: u64,
    /// Of the line before the next one.
    prev: String,
}

impl TransferLog {
    /// Opens the log for appending, and makes it (mode 0600) when it is not there.
    pub fn open(path: &Path) -> Result<TransferLog> {
        TransferLog::open_with(path, FILE_BYTES_MAX)
    }

    fn open_with(path: &Path, file_bytes_max: u64) -> Result<TransferLog> {
        let (file, bytes, is_torn) = open(path)?;
        let before = if bytes > 0 { chain::last_of(&file) } else { chain::last_of_file(&numbered(path, 1)) };
        let prev = before.map_err(|e| Error::of_file("read", path, e))?;
        info!(prev, "the transfer log goes on");
        let id = id_of(&file).map_err(|e| Error::of_file("read", path, e))?;
        let state = State { file, id, bytes, lines: 0, is_gone: false, is_torn, lines_lost: 0, prev };
        let state = Mutex::new(state);
        let (fruitless, failures) = (Mutex::default(), Mutex::default());
        Ok(TransferLog { path: path.to_owned(), file_bytes_max, state, fruitless, failures })
    }

    /// Appends a line. `fields` begins with what all lines of a job have in common.
    pub fn write(&self, event: &'static str, fields: &Map<String, Value>) {
        let mut line = Map::new();
        line.insert("v".into(), json!(1));
        line.insert("time".into(), json!(time::rfc3339_ms(SystemTime::now())));
        line.insert("event".into(), json!(event));
        line.extend(fields.clone());
        // Held for one write(2) of a line.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.look(&mut state);
        let mut lines = Vec::new();
        if state.lines_lost > 0 {
            lines.extend(counted("lost", state.lines_lost));
        }
        lines.push(line);
        self.put(&mut state, lines);
    }

    fn put(&self, state: &mut State, lines: Vec<Map<String, Value>>) {
        state.lines += lines.len() as u64;
        let (mut text, mut prev) = (String::new(), state.prev.clone());
        for mut line in lines {
            line.insert(chain::KEY.into(), json!(prev));
            let line = Value::Object(line).to_string();
            assert!(line.len() < LINE_BYTES_MAX, "texts in the transfer log are shortened first");
            prev = chain::digest(line.as_bytes());
            text.push_str(&line);
            text.push('\n');
        }
        self.append(state, &text, prev);
    }

    /// Goes on in a new file where the one that is written to is no longer the one at the path, or has become shorter. Its first
    /// line says so, and names the last one that was written before.
    fn look(&self, state: &mut State) {
        let there = std::fs::symlink_metadata(&self.path).ok().map(|status| (status.dev(), status.ino()));
        let is_cut = state.file.metadata().is_ok_and(|status| status.len() < state.bytes);
        if there == Some(state.id) && !is_cut || mutant::is_on("overlook-a-removed-log") {
            return;
        }
        let path = shown(&self.path);
        if !state.is_gone {
            error!(
                path,
                prev = state.prev,
                "the transfer log was removed, replaced or cut short while the endpoint runs"
            );
        }
        let opened = open(&self.path).and_then(|(file, bytes, is_torn)| {
            let id = id_of(&file).map_err(|e| Error::of_file("read", &self.path, e))?;
            Ok((file, id, bytes, is_torn))
        });
        match opened {
            Ok((file, id, bytes, is_torn)) => {
                let broken = counted("broken", state.lines);
                let (lines_lost, prev) = (state.lines_lost, std::mem::take(&mut state.prev));
                *state = State { file, id, bytes, lines: 0, is_gone: false, is_torn, lines_lost, prev };
                self.put(state, broken.into_iter().collect());
            }
            // What is written to the old one may still be read by whoever has it open.
            Err(e) if !state.is_gone => {
                error!(error = %e, "no transfer is logged until the log can be opened again");
                state.is_gone = true;
            }
            Err(_) => {}
        }
    }

    /// The same for what came to nothing: beyond the first few of a minute it is counted only. True when it has a line.
    pub fn write_fruitless(&self, pin: Pin, client: &str, event: &'static str, fields: &Map<String, Value>) -> bool {
        let mut fruitless = self.fruitless.lock().unwrap_or_else(PoisonError::into_inner);
        let has_line = fruitless.note(pin, client, Instant::now()) || mutant::is_on("flush-the-log");
        drop(fruitless);
        if has_line {
            self.write(event, fields);
        }
        has_line
    }

    /// Whether a failure of a client's job, whose texts have so many bytes, may have a line.
    pub fn has_room_for_failure(&self, pin: Pin, bytes: usize) -> bool {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).note(pin, bytes, Instant::now())
    }

    /// Writes how many lines were left out in the last minute, once it is over, or `at_once`. Called every few seconds.
    pub fn tell_left_out(&self, at_once: bool) {
        self.look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        let sums = self.fruitless.lock().unwrap_or_else(PoisonError::into_inner).sums(Instant::now(), at_once);
        for sum in sums {
            let mut fields = Map::new();
            if let Some((pin, client)) = sum.client {
                fields.insert("client".into(), json!(client));
                fields.insert("pin".into(), json!(pin.to_string()));
            }
            fields.insert("lines".into(), json!(sum.lines));
            self.write("left-out", &fields);
        }
    }

    /// What the next line would name as `prev`.
    pub fn head(&self) -> String {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).prev.clone()
    }

    fn append(&self, state: &mut State, line: &str, prev: String) {
        if state.bytes >= self.file_bytes_max
            && let Err(e) = self.rotate(state)
        {
            // Growing on is better than losing lines.
            warn!(error = %e, "the transfer log cannot be rotated");
            state.bytes = 0;
        }
        let whole = if state.is_torn { format!("\n{line}") } else { line.to_owned() };
        match state.file.write(whole.as_bytes()) {
            Ok(n) if n == whole.len() => {
                if state.lines_lost > 0 {
                    info!(lines = state.lines_lost, "the transfer log can be written again; lines were lost");
                }
                (state.is_torn, state.lines_lost, state.prev) = (false, 0, prev);
                state.bytes += n as u64;
            }
            Ok(n) => {
                state.is_torn |= n > 0;
                state.bytes += n as u64;
                // What stands there now is a line for the one after it, torn or not.
                if let Ok(prev) = chain::last_of(&state.file) {
                    state.prev = prev;
                }
                lose(state, &io::ErrorKind::StorageFull.into());
            }
            Err(e) => lose(state, &e),
        }
    }

    fn rotate(&self, state: &mut State) -> std::result::Result<(), Error> {
        for number in (1..FILES_KEPT).rev() {
            let path = numbered(&self.path, number);
            match std::fs::rename(&path, numbered(&self.path, number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::of_file("rename", &path, e)),
                _ => {}
            }
        }
        std::fs::rename(&self.path, numbered(&self.path, 1)).map_err(|e| Error::of_file("rename", &self.path, e))?;
        let (file, bytes, is_torn) = open(&self.path)?;
        state.id = id_of(&file).map_err(|e| Error::of_file("read", &self.path, e))?;
        (state.file, state.bytes, state.is_torn, state.lines) = (file, bytes, is_torn, 0);
        // In another log, which whoever can change this one may not be able to change.
        info!(prev = state.prev, "the transfer log continues in a new file");
        Ok(())
    }
}

/// Device and inode.
fn id_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|status| (status.dev(), status.ino()))
}

fn counted(event: &str, lines: u64) -> Option<Map<String, Value>> {
    json!({"v": 1, "time": time::rfc3339_ms(SystemTime::now()), "event": event, "lines": lines}).as_object().cloned()
}

fn lose(state: &mut State, error: &io::Error) {
    if state.lines_lost == 0 {
        warn!(%error, "the transfer log cannot be written; transfers continue");
    }
    state.lines_lost += 1;
}

/// The file, its length, and whether its last line is torn.
fn open(path: &Path) -> Result<(File, u64, bool)> {
    let failed = |e| Error::of_file("open transfer log", path, e);
    // Without blocking, so that a FIFO under this name cannot hold the endpoint up.
    let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOFOLLOW).bits() as i32;
    let mut file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(Error::new(Exit::Failed, format!("the transfer log {} is not a regular file", shown(path))));
    }
    let mut last = [b'\n'];
    if metadata.len() > 0 {
        file.seek(SeekFrom::End(-1)).and_then(|_| file.read_exact(&mut last)).map_err(failed)?;
    }
    Ok((file, metadata.len(), last[0] != b'\n'))
}

/// A path as it stands in a line: escaped, and shortened where it is long.
pub fn path_text(path: &[u8]) -> String {
    let mut text = Escaped(&path[..path.len().min(TEXT_BYTES_MAX)]).to_string();
    let is_whole = path.len() <= TEXT_BYTES_MAX && text.len() <= TEXT_BYTES_MAX;
    if !is_whole {
        let fits = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= TEXT_BYTES_MAX);
        text.truncate(fits.last().unwrap_or(0));
        text.push_str("...");
    }
    text
}

/// A text of a peer or of the system as it stands in a line.
pub fn plain_text(text: &str) -> String {
    path_text(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn fields(text: &str) -> Map<String, Value> {
        Map::from_iter([("path".to_owned(), json!(path_text(text.as_bytes())))])
    }

    #[test]
    fn lines_are_json_whatever_a_path_holds_and_their_length_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = TransferLog::open(&path).unwrap();
        let wild: String = (0..8000).map(|i| char::from((i % 255 + 1) as u8)).collect();
        for text in ["a\nb\"}{", &wild, &"\\".repeat(5000), &"\u{1}".repeat(5000), &"é".repeat(5000)] {
            log.write("failure", &fields(text));
        }
        let lines = lines(&path);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0]["path"], "a\\nb\"}{");
        assert_eq!((&lines[0]["v"], &lines[0]["event"]), (&json!(1), &json!("failure")));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().all(|line| line.len() < LINE_BYTES_MAX));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn a_torn_line_stays_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "{\"v\":1}\n{\"v\":").unwrap();
        TransferLog::open(&path).unwrap().write("job", &fields("x"));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[1], "{\"v\":");
        assert_eq!(serde_json::from_str::<Value>(lines[2]).unwrap()["event"], "job");
    }

    #[test]
    fn a_log_that_has_grown_makes_room_and_keeps_so_many_predecessors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = TransferLog::open_with(&path, 1000).unwrap();
        for n in 0..200 {
            log.write("job", &fields(&n.to_string()));
        }
        let kept: usize = (0..=FILES_KEPT).map(|number| lines(&numbered(&path, number)).len()).sum();
        assert!((80..200).contains(&kept), "{kept}");
        assert_eq!(lines(&path).last().unwrap()["path"], "199");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 16);
        let found = verify(&path).unwrap();
        assert_eq!((found.lines, &found.head), (kept as u64, &log.head()));
        // A file that is gone between others is a gap.
        std::fs::remove_file(numbered(&path, 7)).unwrap();
        assert!(verify(&path).unwrap_err().message.contains("log.6:1"));
    }

    #[test]
    fn a_full_disk_loses_lines_counts_them_and_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = TransferLog::open(&path).unwrap();
        let good = {
            let mut state = log.state.lock().unwrap();
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            std::mem::replace(&mut state.file, full)
        };
        log.write("job", &fields("lost"));
        log.write("job", &fields("lost"));
        log.state.lock().unwrap().file = good;
        log.write("job", &fields("kept"));
        let lines = lines(&path);
        assert_eq!((&lines[0]["event"], &lines[0]["lines"]), (&json!("lost"), &json!(2)));
        assert_eq!(lines[1]["path"], "kept");
    }

    #[test]
    fn a_log_that_is_removed_replaced_or_cut_short_is_noticed_and_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = TransferLog::open(&path).unwrap();
        let write = |text| log.write("job", &fields(text));
        let events = || lines(&path).iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
        write("1");
        write("2");
        let kept = log.head();
        std::fs::remove_file(&path).unwrap();
        write("3");
        let there = lines(&path);
        assert_eq!(
            (&there[0]["event"], &there[0]["lines"], &there[0]["prev"]),
            (&json!("broken"), &json!(2), &json!(kept))
        );
        assert_eq!((there.len(), &there[1]["path"]), (2, &json!("3")));
        // By another one, which is not written over.
        std::fs::write(dir.path().join("other"), "{\"event\":\"foreign\"}\n").unwrap();
        std::fs::rename(dir.path().join("other"), &path).unwrap();
        log.tell_left_out(false);
        write("4");
        assert_eq!(events(), ["foreign", "broken", "job"]);
        assert!(verify(&path).unwrap_err().message.contains("log:2"));
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        write("5");
        assert_eq!(events(), ["broken", "job"]);
        // Where there is nothing that can be written, lines go where they went, until there is.
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        write("6");
        std::fs::remove_dir(&path).unwrap();
        write("7");
        assert_eq!(events(), ["broken", "job"]);
        assert_eq!(lines(&path)[1]["path"], "7");
    }

    #[test]
    fn what_is_not_a_file_is_no_log() {
        let dir = tempfile::tempdir().unwrap();
        assert!(TransferLog::open(dir.path()).is_err());
        assert!(TransferLog::open(&dir.path().join("absent/log")).is_err());
        std::os::unix::fs::symlink("log", dir.path().join("link")).unwrap();
        assert!(TransferLog::open(&dir.path().join("link")).is_err());
    }
}
