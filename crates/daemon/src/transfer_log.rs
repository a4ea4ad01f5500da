//! What went through this endpoint: one JSON object a line, for people and programs that account for transfers.
//!
//! Every line has `v`, `time`, `event`, `client`, `pin`, `job` and `direction` (`in` or `out`). Events:
//! - `bundle`: up to 1,000 delivered files below 64 MiB, or 64 MiB of them: `files`, `bytes`, `first` (a path of them).
//! - `file`: one delivered file of 64 MiB or more: `path`, `bytes`, `digest` (`ALGORITHM:HEX`).
//! - `failure`: one file that was not delivered: `path`, `kind`, `message`.
//! - `failures`: `left_out`, how many more were not delivered and have no line, where a job has very many.
//! - `job`: the end: `outcome`, `reason`, `files`, `skipped`, `failed`, `bytes`, `seconds`.
//! - `change`: directories made, objects removed or renamed by command, without `job` and `direction`: `action`, `paths`
//!   (how many), `first` (one of them), `files`, `directories`, `failed`, `refused`.
//! - `lost`: `lines` that could not be written before this one.
//!
//! Paths are escaped as in `model::name::Escaped`.
//!
//! Invariants: a line is at most `LINE_BYTES_MAX` long and whole; a log that cannot be written stops no transfer; the file
//! and its predecessor together stay below twice `FILE_BYTES_MAX`.

use crate::error::{Error, Result, shown};
use crate::time;
use model::Exit;
use model::name::Escaped;
use serde_json::{Map, Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tracing::{info, warn};

/// The file becomes `NAME.1` when it has grown to this.
const FILE_BYTES_MAX: u64 = 256 << 20;
const LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of one text in a line. Escaping for JSON at most doubles them, and a line has at most two long ones.
const TEXT_BYTES_MAX: usize = 1800;

pub struct TransferLog {
    path: PathBuf,
    file_bytes_max: u64,
    state: Mutex<State>,
}

struct State {
    file: File,
    bytes: u64,
    /// The last line was cut short, by a full disk or a crash.
    is_torn: bool,
    lines_lost: u64,
}

impl TransferLog {
    /// Opens the log for appending, and makes it (mode 0600) when it is not there.
    pub fn open(path: &Path) -> Result<TransferLog> {
        TransferLog::open_with(path, FILE_BYTES_MAX)
    }

    fn open_with(path: &Path, file_bytes_max: u64) -> Result<TransferLog> {
        let (file, bytes, is_torn) = open(path)?;
        let state = Mutex::new(State { file, bytes, is_torn, lines_lost: 0 });
        Ok(TransferLog { path: path.to_owned(), file_bytes_max, state })
    }

    /// Appends a line. `fields` begins with what all lines of a job have in common.
    pub fn write(&self, event: &'static str, fields: &Map<String, Value>) {
        let mut line = Map::new();
        line.insert("v".into(), json!(1));
        line.insert("time".into(), json!(time::rfc3339_ms(SystemTime::now())));
        line.insert("event".into(), json!(event));
        line.extend(fields.clone());
        let mut line = Value::Object(line).to_string();
        assert!(line.len() < LINE_BYTES_MAX, "texts in the transfer log are shortened first");
        line.push('\n');
        // Held for one write(2) of a line.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.lines_lost > 0 {
            let lost = json!({"v": 1, "time": time::rfc3339_ms(SystemTime::now()), "event": "lost",
                "lines": state.lines_lost});
            line = format!("{lost}\n{line}");
        }
        self.append(&mut state, &line);
    }

    fn append(&self, state: &mut State, line: &str) {
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
                (state.is_torn, state.lines_lost) = (false, 0);
                state.bytes += n as u64;
            }
            Ok(n) => {
                state.is_torn |= n > 0;
                state.bytes += n as u64;
                lose(state, &io::ErrorKind::StorageFull.into());
            }
            Err(e) => lose(state, &e),
        }
    }

    fn rotate(&self, state: &mut State) -> std::result::Result<(), Error> {
        let mut older = self.path.clone().into_os_string();
        older.push(".1");
        std::fs::rename(&self.path, &older).map_err(|e| Error::of_file("rename", &self.path, e))?;
        let (file, bytes, is_torn) = open(&self.path)?;
        (state.file, state.bytes, state.is_torn) = (file, bytes, is_torn);
        Ok(())
    }
}

fn lose(state: &mut State, error: &io::Error) {
    if state.lines_lost == 0 {
        warn!(%error, "the transfer log cannot be written; transfers go on");
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
    use std::os::unix::fs::MetadataExt;

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
    fn a_log_that_has_grown_makes_room_and_keeps_one_predecessor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = TransferLog::open_with(&path, 1000).unwrap();
        for n in 0..100 {
            log.write("job", &fields(&n.to_string()));
        }
        let kept = lines(&path).len() + lines(&dir.path().join("log.1")).len();
        assert!((10..100).contains(&kept), "{kept}");
        assert_eq!(lines(&path).last().unwrap()["path"], "99");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
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
    fn what_is_not_a_file_is_no_log() {
        let dir = tempfile::tempdir().unwrap();
        assert!(TransferLog::open(dir.path()).is_err());
        assert!(TransferLog::open(&dir.path().join("absent/log")).is_err());
        std::os::unix::fs::symlink("log", dir.path().join("link")).unwrap();
        assert!(TransferLog::open(&dir.path().join("link")).is_err());
    }
}
