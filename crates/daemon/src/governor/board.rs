//! What the governor saw last, for whoever looks from another process: `rates.json` in the state directory, renewed every second
//! while there are jobs, and gone without.
//!
//! Invariants: readers see a whole file; nothing waits for storage, and what cannot be written is left out.

use super::contracts::Way;
use super::division::Allotment;
use crate::error::{Error, Result, shown};
use crate::private_file;
use crate::transfer_log::plain_text;
use model::Exit;
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A job, as a person is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub job: String,
    /// What the endpoint calls whoever asked for it.
    pub client: String,
    pub user: String,
    pub class: String,
    pub direction: Way,
    /// Bytes a second; 0 where nothing is shared out.
    pub moves: u64,
    /// What it may have; nothing where it is not held.
    pub rate: Option<u64>,
    /// What holds it, in words.
    pub by: String,
}

impl From<&Allotment> for Row {
    fn from(one: &Allotment) -> Row {
        Row {
            job: one.who.job.to_string(),
            client: plain_text(&one.who.name),
            user: plain_text(&one.who.user),
            class: one.who.class.name().to_owned(),
            direction: one.way,
            moves: one.moves as u64,
            rate: one.rate,
            by: one.by.to_string(),
        }
    }
}

pub struct Board {
    path: PathBuf,
    shown: Option<Instant>,
}

impl Board {
    pub fn new(state_dir: &Path) -> Board {
        let path = path_in(state_dir);
        // Of an endpoint that was killed.
        let _ = std::fs::remove_file(&path);
        Board { path, shown: None }
    }

    pub fn show(&mut self, allotted: &[Allotment], now: Instant) {
        if allotted.is_empty() {
            if self.shown.take().is_some() {
                let _ = std::fs::remove_file(&self.path);
            }
            return;
        }
        if self.shown.is_none_or(|then| now.saturating_duration_since(then) >= INTERVAL) {
            self.shown = Some(now);
            let rows: Vec<Row> = allotted.iter().map(Row::from).collect();
            let _ = self.write(&rows);
        }
    }

    fn write(&self, rows: &[Row]) -> std::io::Result<()> {
        let staged = self.path.with_extension("json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&staged)?;
        file.write_all(&serde_json::to_vec(rows)?)?;
        std::fs::rename(&staged, &self.path)
    }
}

fn path_in(state_dir: &Path) -> PathBuf {
    state_dir.join("rates.json")
}

/// The jobs of the endpoint with this state directory, as it saw them within the last second; none where it has none or does not
/// run.
///
/// # Errors
/// When the file cannot be read.
pub fn read(state_dir: &Path) -> Result<Vec<Row>> {
    let path = path_in(state_dir);
    let Some(bytes) = private_file::read(&path, FILE_BYTES_MAX, false)? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes).map_err(|e| Error::new(Exit::Failed, format!("{}: {e}", shown(&path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::governor::division::Held;
    use model::{Class, JobId, Pin};
    use mover::session::Who;
    use std::sync::Arc;

    #[test]
    fn what_is_shown_is_read_and_goes_with_the_last_job() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rates.json"), b"stale").unwrap();
        let mut board = Board::new(dir.path());
        assert_eq!(read(dir.path()).unwrap(), []);
        let who =
            Who { job: JobId([1; 16]), peer: Pin([2; 32]), user: "u".into(), name: "a\nb".into(), class: Class::Low };
        let by = Held::Contract("office".into());
        let one = Allotment { who: Arc::new(who), way: Way::In, moves: 5.9, rate: Some(7), by };
        let now = Instant::now();
        board.show(std::slice::from_ref(&one), now);
        let rows = read(dir.path()).unwrap();
        assert_eq!((rows.len(), &rows[0].by[..], rows[0].moves, rows[0].rate), (1, "the contract office", 5, Some(7)));
        assert!(!rows[0].client.contains('\n'));
        board.show(&[one.clone(), one], now);
        assert_eq!(read(dir.path()).unwrap().len(), 1, "not more often than once a second");
        board.show(&[], now);
        assert_eq!(read(dir.path()).unwrap(), []);
    }
}
