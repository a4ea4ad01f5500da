//! What is kept of a job that was handed in: a file each, `orders/OWNER.JOB.json` below the state directory, replaced as a whole.
//!
//! Invariants: what was acknowledged is durable; a file that is not understood is left alone and told in the log.
//!
//! Not here: what becomes of jobs (`super`).

use crate::error::{Error, Result, shown};
use crate::private_file::{self, Existing};
use crate::trust;
use model::order::{Kind, Reason, Role, Status};
use model::{Exit, JobId, Location, Pin, TransferSpec};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const VERSION: u32 = 1;
const FILE_BYTES_MAX: u64 = 1 << 20;
pub const ORDERS_MAX: usize = 16_384;
/// Of a source or a destination that is told.
const END_BYTES_MAX: usize = 256;

/// A job, in whose name, and where it stands.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub v: u32,
    pub job: String,
    /// The key of the client, and what the endpoint calls it.
    pub owner: String,
    pub owner_name: String,
    /// The ticket that the client lived by when it handed the job in.
    pub account: String,
    pub role: String,
    pub kind: String,
    pub peer: Peer,
    /// What the client calls this endpoint.
    pub own_name: String,
    /// The transfer in its written form.
    pub transfer: String,
    /// Hexadecimal. No secret: it is worth nothing without this endpoint's key.
    pub warrant: String,
    /// Seconds since 1970.
    pub created: u64,
    pub attempt: u32,
    pub status: String,
    #[serde(default)]
    pub reason: String,
    #[serde(default)]
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    pub name: String,
    pub pin: String,
    pub addresses: Vec<String>,
}

/// How an attempt ended.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Seconds since 1970.
    pub at: u64,
    pub code: i32,
    pub text: String,
    pub hint: String,
    pub files_done: u64,
    pub files_skipped: u64,
    pub files_failed: u64,
    pub directories: u64,
    pub bytes: u64,
    pub bytes_sent: u64,
    pub removed: u64,
    pub milliseconds: u64,
    pub bottleneck: String,
    pub durable: String,
    pub failures: Vec<Failed>,
    pub failures_untold: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// Escaped as in every text of the program.
    pub path: String,
    pub kind: u32,
    pub text: String,
}

impl Record {
    pub const VERSION: u32 = VERSION;

    /// By whom, and which: nobody else's job has this name.
    pub fn key(&self) -> Option<(Pin, JobId)> {
        Some((Pin::from_hex(&self.owner)?, JobId::from_hex(&self.job)?))
    }

    pub fn status(&self) -> Status {
        Status::from_word(&self.status).unwrap_or(Status::Queued)
    }

    pub fn reason(&self) -> Reason {
        Reason::from_word(&self.reason).unwrap_or(Reason::None)
    }

    pub fn role(&self) -> Role {
        Role::from_word(&self.role).unwrap_or(Role::Sends)
    }

    pub fn kind(&self) -> Kind {
        Kind::from_word(&self.kind).unwrap_or(Kind::Copy)
    }

    pub fn set(&mut self, status: Status, reason: Reason, text: &str) {
        self.status = status.word().to_owned();
        self.reason = reason.word().to_owned();
        self.text = text.to_owned();
    }

    /// Source and destination for people. A list of jobs holds a thousand of them.
    pub fn ends(&self) -> (String, String) {
        let Ok(spec) = serde_json::from_str::<TransferSpec>(&self.transfer) else { return Default::default() };
        let more = if spec.sources.len() > 1 { format!(" and {} more", spec.sources.len() - 1) } else { String::new() };
        let shown = |location: &Location| {
            let text = location.to_string();
            let end = (0..=END_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            if end < text.len() { format!("{}...", &text[..end]) } else { text }
        };
        (shown(&spec.sources[0]) + &more, shown(&spec.destination))
    }

    /// What it takes of memory and storage, as far as its client decides that.
    pub fn weight(&self) -> usize {
        let failures = self.ended.iter().flat_map(|ended| &ended.failures).map(Failed::weight).sum::<usize>();
        self.transfer.len() + self.warrant.len() + failures
    }

    fn is_sound(&self) -> bool {
        let words = Status::from_word(&self.status).is_some()
            && Role::from_word(&self.role).is_some()
            && Reason::from_word(&self.reason).is_some()
            && Kind::from_word(&self.kind).is_some();
        words && self.v == VERSION && self.key().is_some() && Pin::from_hex(&self.peer.pin).is_some()
    }
}

impl Failed {
    pub fn weight(&self) -> usize {
        self.path.len() + self.text.len()
    }
}

pub struct Store {
    directory: PathBuf,
}

impl Store {
    pub fn open(state_dir: &Path) -> Result<Store> {
        let directory = state_dir.join("orders");
        trust::make_private_directory(&directory)?;
        Ok(Store { directory })
    }

    /// All that is there; what cannot be used is told.
    pub fn load(&self, unusable: &mut dyn FnMut(Error)) -> Result<Vec<Record>> {
        let failed = |e| Error::of_file("list", &self.directory, e);
        let mut records = Vec::new();
        for entry in std::fs::read_dir(&self.directory).map_err(failed)?.take(2 * ORDERS_MAX) {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') {
                // What was being written when the process ended.
                let _ = std::fs::remove_file(&path);
                continue;
            }
            match self.read(&path) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => {}
                Err(e) => unusable(e),
            }
        }
        records.sort_by(|a, b| (a.created, &a.job).cmp(&(b.created, &b.job)));
        Ok(records)
    }

    fn read(&self, path: &Path) -> Result<Option<Record>> {
        let Some(bytes) = private_file::read(path, FILE_BYTES_MAX, false)? else { return Ok(None) };
        let wrong = |why: String| Error::new(Exit::Failed, format!("{}: {why}", shown(path)));
        let record: Record = serde_json::from_slice(&bytes).map_err(|e| wrong(e.to_string()))?;
        let is_its_own = record.is_sound() && self.path(&record) == *path;
        if is_its_own { Ok(Some(record)) } else { Err(wrong("a job of another version of the program".to_owned())) }
    }

    /// Durable when this returns.
    pub fn write(&self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record).expect("texts and numbers have a JSON form");
        private_file::write(&self.path(record), &text, Existing::Replace)
    }

    /// How long ago it was written.
    pub fn age(&self, record: &Record) -> Option<Duration> {
        std::fs::metadata(self.path(record)).ok()?.modified().ok()?.elapsed().ok()
    }

    pub fn remove(&self, record: &Record) -> io::Result<()> {
        match std::fs::remove_file(self.path(record)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => private_file::sync_directory(&self.directory),
        }
    }

    fn path(&self, record: &Record) -> PathBuf {
        self.directory.join(format!("{}.{}.json", record.owner, record.job))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn record() -> Record {
        let peer = Peer { name: "b".into(), pin: Pin([2; 32]).to_string(), addresses: vec!["[::1]:1".into()] };
        Record {
            v: VERSION,
            job: JobId([1; 16]).to_string(),
            owner: Pin([3; 32]).to_string(),
            owner_name: "anna".into(),
            account: "serve".into(),
            role: "sends".into(),
            kind: "copy".into(),
            peer,
            own_name: "a".into(),
            transfer: r#"{"version":1,"sources":["a:x"],"destination":"b:y"}"#.into(),
            warrant: "00".into(),
            created: 7,
            attempt: 1,
            status: "queued".into(),
            reason: String::new(),
            text: String::new(),
            ended: None,
        }
    }

    fn loaded(store: &Store) -> (Vec<Record>, usize) {
        let mut unusable = 0;
        let records = store.load(&mut |_| unusable += 1).unwrap();
        (records, unusable)
    }

    #[test]
    fn what_is_written_is_there_after_a_restart_and_what_was_begun_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.write(&record()).unwrap();
        let failures = vec![Failed { path: "x".into(), kind: 2, text: "gone".into() }];
        let later = Record {
            created: 9,
            job: JobId([2; 16]).to_string(),
            ended: Some(Ended { failures, ..Ended::default() }),
            ..record()
        };
        store.write(&later).unwrap();
        std::fs::write(dir.path().join("orders/.half"), b"{").unwrap();
        assert_eq!(loaded(&Store::open(dir.path()).unwrap()), (vec![record(), later.clone()], 0));
        assert!(!dir.path().join("orders/.half").exists());
        store.remove(&later).unwrap();
        assert_eq!(loaded(&store), (vec![record()], 0));
    }

    /// The longest of everything that a client can bring about.
    #[test]
    fn what_can_be_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let failed = Failed { path: "\\".repeat(16 << 10), kind: 1, text: "\"".repeat(16 << 10) };
        let text = "\\".repeat(4096);
        let ended = Ended {
            text: text.clone(),
            hint: text.clone(),
            bottleneck: text.clone(),
            failures: vec![failed],
            ..Ended::default()
        };
        let long = Record {
            transfer: "\"".repeat(wire::limits::ORDER_TRANSFER_BYTES_MAX),
            warrant: "0".repeat(2 * model::warrant::WARRANT_BYTES_MAX),
            text,
            ended: Some(ended),
            ..record()
        };
        store.write(&long).unwrap();
        assert_eq!(loaded(&store), (vec![long], 0));
    }

    #[test]
    fn a_file_that_is_not_understood_is_kept_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        store.write(&record()).unwrap();
        let path = store.path(&record());
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [("\"v\":1", "\"v\":2"), ("queued", "quoted"), ("\"kind\"", "\"kinds\""), ("0303", "0404")] {
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            assert_eq!(loaded(&store), (vec![], 1), "{to}");
            assert!(path.exists());
        }
    }
}
