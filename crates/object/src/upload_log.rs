//! What this host knows of its unfinished uploads: one file an object, by which the next attempt goes on (docs/ledger-format.md, C).
//!
//! Invariants: one attempt at a time has the log of an object; what a log says is no more than a question to the store, which alone
//! says what it holds; a log that cannot be written stops helping, and the transfer goes on. A log lives as long as its upload.
//! Not here: the journal's content, which is the receiver's.

use crate::calls::Part;
use aws_lc_rs::digest;
use data_encoding::HEXLOWER;
use model::mutant;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

const VERSION: u64 = 1;
/// After that nobody goes on with it: it is aborted, because stores charge for what they hold.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Each part is told four times at most in practice: it is a bound on what is read.
const LOG_BYTES_MAX: u64 = 16 << 20;
const UPLOAD: &str = "upload";
const JOURNAL: &str = "extents";

/// Which upload of which object is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subject {
    pub store: String,
    pub bucket: String,
    pub key: String,
    /// Of the source's version, of what is kept besides content, and of the length of parts.
    pub version: String,
}

/// The directory of the logs.
#[derive(Clone, Debug)]
pub struct UploadLogs(PathBuf);

/// What an earlier attempt put down.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Left {
    pub id: String,
    /// False where it is an upload of another version of the object.
    pub is_same: bool,
    pub parts: BTreeMap<u32, Part>,
}

/// The log of one object, held until it is dropped.
pub struct UploadLog {
    subject: Subject,
    upload: PathBuf,
    journal: PathBuf,
    files: Mutex<Option<(File, File)>>,
}

pub fn hashed(parts: &[&[u8]]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    HEXLOWER.encode(&context.finish().as_ref()[..16])
}

impl UploadLogs {
    pub fn new(directory: PathBuf) -> UploadLogs {
        UploadLogs(directory)
    }

    fn path(&self, subject: &Subject, suffix: &str) -> PathBuf {
        let Subject { store, bucket, key, .. } = subject;
        self.0.join(format!("{}.{suffix}", hashed(&[store.as_bytes(), bucket.as_bytes(), key.as_bytes()])))
    }

    /// Whether an earlier attempt at the same left something.
    pub fn has(&self, subject: &Subject) -> bool {
        let file = File::open(self.path(subject, UPLOAD));
        file.ok().and_then(|file| read(file, subject)).is_some_and(|left| left.is_same && !left.parts.is_empty())
    }

    /// The log of an object and what it says; nothing where another attempt has it, or where none can be kept.
    pub fn open(&self, subject: &Subject) -> Option<(UploadLog, Option<Left>)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0).ok()?;
        let (upload, journal) = (self.path(subject, UPLOAD), self.path(subject, JOURNAL));
        let file = lock(&upload)?;
        let left = read(file.try_clone().ok()?, subject);
        let records = open_file(&journal).ok()?;
        if left.is_none() {
            file.set_len(0).and_then(|()| records.set_len(0)).ok()?;
        }
        let files = Mutex::new(Some((file, records)));
        Some((UploadLog { subject: subject.clone(), upload, journal, files }, left))
    }

    /// Uploads to a bucket that nobody went on with for a week: `abort` ends one, and says whether it did.
    pub fn sweep(&self, store: &str, bucket: &str, abort: &dyn Fn(&str, &str) -> bool) {
        let Ok(there) = fs::read_dir(&self.0) else { return };
        for path in
            there.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == UPLOAD))
        {
            let age = || SystemTime::now().duration_since(fs::metadata(&path).ok()?.modified().ok()?).ok();
            if age().is_none_or(|age| age < KEPT) {
                continue;
            }
            let Some(file) = lock(&path) else { continue };
            let named = |(subject, left): &(Subject, Left)| {
                let is_here = (&subject.store[..], &subject.bucket[..]) == (store, bucket);
                (is_here || mutant::is_on("s3-foreign-uploads-are-swept")) && abort(&subject.key, &left.id)
            };
            if parse(file).as_ref().is_none_or(named) {
                let _ = fs::remove_file(path.with_extension(JOURNAL));
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl UploadLog {
    /// A new upload: whatever stood there before is over.
    pub fn begun(&self, id: &str) {
        let Subject { store, bucket, key, version } = &self.subject;
        let line = json!({
            "v": VERSION, "store": store, "bucket": bucket, "key": key, "version": version, "id": id,
        });
        self.write(|upload, _| upload.set_len(0).and_then(|()| append(upload, format!("{line}\n").as_bytes())));
    }

    pub fn confirmed(&self, part: &Part) {
        let Part { number, etag, size_bytes, crc } = part;
        let crc = crc.map(|crc| format!("{crc:016x}"));
        let line = json!({ "part": number, "bytes": size_bytes, "etag": etag, "crc": crc });
        self.write(|upload, _| append(upload, format!("{line}\n").as_bytes()));
    }

    /// The content of a part is to be another one.
    pub fn replaced(&self, number: u32) {
        let line = json!({ "gone": number });
        self.write(|upload, _| append(upload, format!("{line}\n").as_bytes()));
    }

    pub fn journal(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(|_, journal| {
            journal.seek(SeekFrom::Start(0))?;
            journal.read_to_end(&mut bytes).map(drop)
        });
        bytes
    }

    pub fn append_journal(&self, bytes: &[u8]) {
        self.write(|_, journal| append(journal, bytes));
    }

    pub fn truncate_journal(&self, length: u64) {
        self.write(|_, journal| journal.set_len(length));
    }

    /// Whether what was put down outlasts a power loss.
    pub fn sync(&self) -> bool {
        self.write(|upload, journal| upload.sync_data().and_then(|()| journal.sync_data()));
        self.is_kept()
    }

    /// Its upload is over.
    pub fn forget(&self) {
        if let Some((file, _)) = self.files.lock().unwrap().take() {
            let _ = fs::remove_file(&self.journal);
            let _ = fs::remove_file(&self.upload);
            drop(file);
        }
    }

    /// Leaves it to the next attempt.
    pub fn release(&self) {
        self.files.lock().unwrap().take();
    }

    pub fn is_kept(&self) -> bool {
        self.files.lock().unwrap().is_some()
    }

    fn write(&self, work: impl FnOnce(&mut File, &mut File) -> std::io::Result<()>) {
        let mut files = self.files.lock().unwrap();
        let Some((upload, journal)) = &mut *files else { return };
        if work(upload, journal).is_err() {
            drop(files);
            self.forget();
        }
    }
}

fn append(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.seek(SeekFrom::End(0))?;
    file.write_all(bytes)
}

fn open_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Opens a log and wins its lock. Whoever had it before may have removed it meanwhile.
fn lock(path: &Path) -> Option<File> {
    for _ in 0..3 {
        let file = open_file(path).ok()?;
        file.try_lock().ok()?;
        let (opened, named) = (file.metadata().ok()?, fs::metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (opened.dev(), opened.ino())) {
            return Some(file);
        }
    }
    None
}

fn read(file: File, asked: &Subject) -> Option<Left> {
    let (subject, left) = parse(file)?;
    let is_place = (&subject.store, &subject.bucket, &subject.key) == (&asked.store, &asked.bucket, &asked.key);
    is_place.then(|| Left { is_same: subject.version == asked.version, ..left })
}

/// A log's lines. One that makes no sense ends it: it is the torn end of a process that was killed, or worth nothing.
fn parse(mut file: File) -> Option<(Subject, Left)> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    (&mut file).take(LOG_BYTES_MAX).read_to_end(&mut text).ok()?;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let head: Value = serde_json::from_slice(lines.next()?).ok()?;
    let field = |name: &str| head[name].as_str().map(str::to_owned);
    let subject =
        Subject { store: field("store")?, bucket: field("bucket")?, key: field("key")?, version: field("version")? };
    let id = field("id").filter(|_| head["v"] == VERSION)?;
    let mut parts = BTreeMap::new();
    for line in lines {
        let (number, part) = parse_line(line)?;
        match part {
            Some(part) => parts.insert(number, part),
            None => parts.remove(&number),
        };
    }
    Some((subject, Left { id, is_same: false, parts }))
}

/// A part that the store confirmed, or one that counts no more.
fn parse_line(line: &[u8]) -> Option<(u32, Option<Part>)> {
    let line: Value = serde_json::from_slice(line).ok()?;
    let number = |name: &str| line[name].as_u64().and_then(|number| u32::try_from(number).ok());
    if let Some(number) = number("gone") {
        return Some((number, None));
    }
    let crc = line["crc"].as_str().and_then(|crc| u64::from_str_radix(crc, 16).ok());
    let (number, etag) = (number("part")?, line["etag"].as_str()?.to_owned());
    Some((number, Some(Part { number, etag, size_bytes: line["bytes"].as_u64()?, crc })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(key: &str, version: &str) -> Subject {
        let [store, bucket, key, version] = ["https://s", "b", key, version].map(str::to_owned);
        Subject { store, bucket, key, version }
    }

    fn part(number: u32) -> Part {
        Part { number, etag: format!("\"e{number}\""), size_bytes: 5, crc: Some(u64::MAX - u64::from(number)) }
    }

    #[test]
    fn a_log_says_what_was_put_down_and_belongs_to_one_attempt_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let logs = UploadLogs::new(directory.path().join("uploads"));
        let (log, left) = logs.open(&subject("k", "1")).unwrap();
        assert_eq!((left, logs.open(&subject("k", "1")).is_none()), (None, true));
        log.begun("id");
        (1..4).for_each(|number| log.confirmed(&part(number)));
        log.replaced(2);
        log.append_journal(b"journal");
        assert!(logs.has(&subject("k", "1")) && !logs.has(&subject("k", "2")) && !logs.has(&subject("l", "1")));
        drop(log);
        let (log, left) = logs.open(&subject("k", "1")).unwrap();
        let parts = BTreeMap::from([(1, part(1)), (3, part(3))]);
        assert_eq!(left, Some(Left { id: "id".to_owned(), is_same: true, parts }));
        assert_eq!(log.journal(), b"journal");
        drop(log);
        // Another version finds the upload, so that it can end it.
        let (log, left) = logs.open(&subject("k", "2")).unwrap();
        assert!(left.is_some_and(|left| !left.is_same && left.id == "id"));
        log.forget();
        assert_eq!(fs::read_dir(directory.path().join("uploads")).unwrap().count(), 0);
    }

    #[test]
    fn a_torn_end_is_passed_over_and_nonsense_is_no_log() {
        let directory = tempfile::tempdir().unwrap();
        let logs = UploadLogs::new(directory.path().to_owned());
        let write = |more: &[u8]| {
            let (log, _) = logs.open(&subject("k", "1")).unwrap();
            log.begun("id");
            log.confirmed(&part(1));
            log.write(|upload, _| append(upload, more));
        };
        write(b"{\"part\":2,");
        assert!(logs.has(&subject("k", "1")));
        for nonsense in [&b"{\"part\":2}\n"[..], b"x\n", b"{\"gone\":-1}\n", b"\xff\n"] {
            write(nonsense);
            assert!(!logs.has(&subject("k", "1")), "{nonsense:?}");
        }
    }

    #[test]
    fn what_nobody_went_on_with_for_a_week_is_aborted() {
        let directory = tempfile::tempdir().unwrap();
        let logs = UploadLogs::new(directory.path().to_owned());
        let keep = |key: &str, days: u64| {
            let (log, _) = logs.open(&subject(key, "1")).unwrap();
            log.begun(key);
            let age = SystemTime::now() - Duration::from_secs(days * 24 * 3600);
            log.write(|upload, _| upload.set_modified(age));
        };
        keep("young", 6);
        keep("old", 8);
        keep("refused", 8);
        let (held, _) = logs.open(&subject("held", "1")).unwrap();
        held.begun("held");
        held.write(|upload, _| upload.set_modified(SystemTime::UNIX_EPOCH));
        let aborted = Mutex::new(Vec::new());
        logs.sweep("https://s", "other", &|_, _| panic!("it is of another bucket"));
        logs.sweep("https://s", "b", &|key, id| {
            aborted.lock().unwrap().push((key.to_owned(), id.to_owned()));
            key != "refused"
        });
        let mut aborted = aborted.into_inner().unwrap();
        aborted.sort();
        assert_eq!(aborted, ["old", "refused"].map(|key| (key.to_owned(), key.to_owned())));
        let there = |key: &str| logs.path(&subject(key, "1"), UPLOAD).exists();
        assert_eq!(["young", "old", "refused", "held"].map(there), [true, false, true, true]);
    }
}
