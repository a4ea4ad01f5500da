//! What was learnt of versions of objects: the times and modes that their writers gave them, which a listing does not tell and only a
//! request for each object could.
//!
//! It is kept in the state directory, a bucket in some files; keys of one directory are in one of them (docs/ledger-format.md, D).
//!
//! Invariants: it is believed of the version it was learnt of alone: the same key, ETag and length, taken by the store at the same
//! time; a file that is lost, torn or full costs requests and never truth; memory is bounded by `LOADED_BYTES_MAX`.

use crate::version::{Listed, Object, crc_of};
use aws_lc_rs::digest;
use model::Timestamp;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Key and version by their hashes, time, mode, when the store took it, and a checksum of all that.
const RECORD_BYTES: usize = 40;
const CHECKED_BYTES: usize = 36;
/// Files of one bucket.
const FILES: u64 = 256;
/// What is read of one file; the end of it is the newest.
const FILE_BYTES_MAX: u64 = 48 << 20;
const LOADED_BYTES_MAX: usize = 48 << 20;
/// Of one file, before it is written to.
const UNWRITTEN_BYTES_MAX: usize = 16 << 10;
/// One in which more is out of date than not is written anew.
const WORTH_COMPACTING_BYTES: u64 = 1 << 20;
/// What a listing says of the time differs by fractions from what an answer says.
const SLACK_SECONDS: i64 = 2;
/// No mode, or no time.
const NOTHING: u32 = u32::MAX;

pub struct Known {
    directory: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    loaded: HashMap<u64, Loaded>,
    unwritten: HashMap<u64, Vec<u8>>,
    /// Files of which more is known than was loaded.
    stale: HashSet<u64>,
    /// The last directory, and where its keys are.
    last: (String, u64),
    clock: u64,
}

#[derive(Default)]
struct Loaded {
    /// In the order of their keys' hashes.
    records: Vec<Record>,
    used: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Record {
    key: u64,
    version: u64,
    seconds: i64,
    nanoseconds: u32,
    mode: u32,
    stored: u32,
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    });
    u64::from_le_bytes(context.finish().as_ref()[..8].try_into().expect("a hash is longer"))
}

fn version(etag: &str, size_bytes: u64) -> u64 {
    hash(&[etag.as_bytes(), &size_bytes.to_le_bytes()])
}

impl Record {
    fn of(key: &str, object: &Object) -> Record {
        let none = Timestamp { seconds: 0, nanoseconds: NOTHING };
        let modified = object.modified.unwrap_or(none);
        Record {
            key: hash(&[key.as_bytes()]),
            version: version(&object.etag, object.size_bytes),
            seconds: modified.seconds,
            nanoseconds: modified.nanoseconds,
            mode: object.mode.unwrap_or(NOTHING),
            stored: object.stored as u32,
        }
    }

    fn bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        bytes[..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.seconds.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.nanoseconds.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.mode.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.stored.to_le_bytes());
        let check = crc_of(&bytes[..CHECKED_BYTES]) as u32;
        bytes[CHECKED_BYTES..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Record> {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let short = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let record = Record {
            key: number(0),
            version: number(8),
            seconds: number(16) as i64,
            nanoseconds: short(24),
            mode: short(28),
            stored: short(32),
        };
        (short(CHECKED_BYTES) == crc_of(&bytes[..CHECKED_BYTES]) as u32).then_some(record)
    }

    fn object(&self, listed: &Listed) -> Object {
        let Listed { size_bytes, etag, stored, .. } = listed.clone();
        let modified = Timestamp { seconds: self.seconds, nanoseconds: self.nanoseconds };
        Object {
            size_bytes,
            etag,
            stored,
            modified: (self.nanoseconds != NOTHING).then_some(modified),
            mode: Some(self.mode).filter(|mode| *mode != NOTHING),
            crc: None,
        }
    }
}

impl Known {
    /// Of one bucket of a store.
    pub fn new(directory: &Path, store: &str, bucket: &str) -> Known {
        let name = format!("{:016x}", hash(&[store.as_bytes(), bucket.as_bytes()]));
        Known { directory: directory.join(name), state: Mutex::default() }
    }

    fn path(&self, file: u64) -> PathBuf {
        self.directory.join(format!("{file:02x}"))
    }

    /// What was learnt of a version that a listing tells of.
    pub fn find(&self, listed: &Listed) -> Option<Object> {
        let mut state = self.state.lock().unwrap();
        let file = state.file_of(&listed.key);
        if !state.loaded.contains_key(&file) {
            let records = load(&self.path(file));
            state.make_room(records.len() * size_of::<Record>());
            state.loaded.insert(file, Loaded { records, used: 0 });
        }
        state.clock += 1;
        let now = state.clock;
        let loaded = state.loaded.get_mut(&file)?;
        loaded.used = now;
        let key = hash(&[listed.key.as_bytes()]);
        let at = loaded.records.binary_search_by_key(&key, |record| record.key).ok()?;
        let record = loaded.records[at];
        let is_it = record.version == version(&listed.etag, listed.size_bytes)
            && (i64::from(record.stored) - i64::from(listed.stored as u32)).abs() <= SLACK_SECONDS;

        is_it.then(|| record.object(listed))
    }

    pub fn learn(&self, key: &str, object: &Object) {
        if object.etag.is_empty() {
            return;
        }
        let record = Record::of(key, object).bytes();
        let mut state = self.state.lock().unwrap();
        let file = state.file_of(key);
        state.stale.insert(file);
        let unwritten = state.unwritten.entry(file).or_default();
        unwritten.extend_from_slice(&record);
        if unwritten.len() >= UNWRITTEN_BYTES_MAX {
            let bytes = state.unwritten.remove(&file).unwrap_or_default();
            drop(state);
            self.append(file, &bytes);
        }
    }

    /// Puts down what was learnt, and finds it from then on: who asks next may be another transfer of a process that goes on.
    pub fn flush(&self) {
        let mut state = self.state.lock().unwrap();
        let (unwritten, stale) = (std::mem::take(&mut state.unwritten), std::mem::take(&mut state.stale));
        drop(state);
        unwritten.iter().for_each(|(file, bytes)| self.append(*file, bytes));
        self.state.lock().unwrap().loaded.retain(|file, _| !stale.contains(file));
    }

    /// Whole records, in one write: others may append too.
    fn append(&self, file: u64, bytes: &[u8]) {
        let open = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
            OpenOptions::new().append(true).create(true).mode(0o600).open(self.path(file))
        };
        if let Ok(mut file) = open()
            && file.metadata().is_ok_and(|known| known.len() < 2 * FILE_BYTES_MAX)
        {
            let _ = file.write_all(bytes);
        }
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        self.flush();
    }
}

impl State {
    fn file_of(&mut self, key: &str) -> u64 {
        let directory = &key[..key.rfind('/').map_or(0, |at| at + 1)];
        if self.last.0 != directory || directory.is_empty() {
            self.last = (directory.to_owned(), hash(&[directory.as_bytes()]) % FILES);
        }
        self.last.1
    }

    /// Forgets what was not used for longest, until so much more is within the bound.
    fn make_room(&mut self, bytes: usize) {
        let held =
            |state: &State| state.loaded.values().map(|one| one.records.len() * size_of::<Record>()).sum::<usize>();
        while !self.loaded.is_empty() && held(self) + bytes > LOADED_BYTES_MAX {
            let oldest = self.loaded.iter().min_by_key(|(_, one)| one.used).map(|(file, _)| *file);
            oldest.and_then(|file| self.loaded.remove(&file));
        }
    }
}

/// The newest records of a file, one for each key. Those that make no sense are passed over.
fn load(path: &Path) -> Vec<Record> {
    let Ok((mut records, length)) = read(path) else { return Vec::new() };
    // Behind one another in the file is later, which a stable sort keeps; the last of equal ones counts.
    records.reverse();
    records.sort_by_key(|record| record.key);
    records.dedup_by_key(|record| record.key);
    records.shrink_to_fit();
    if length > WORTH_COMPACTING_BYTES && length > 2 * (records.len() * RECORD_BYTES) as u64 {
        let _ = rewrite(path, &records);
    }
    records
}

fn read(path: &Path) -> std::io::Result<(Vec<Record>, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(FILE_BYTES_MAX).next_multiple_of(RECORD_BYTES as u64);
    file.seek(SeekFrom::Start(start))?;
    let mut reader = BufReader::new(file.take(FILE_BYTES_MAX));
    let (mut records, mut bytes) = (Vec::new(), [0; RECORD_BYTES]);
    while reader.read_exact(&mut bytes).is_ok() {
        records.extend(Record::read(&bytes));
    }
    Ok((records, length))
}

/// What others append meanwhile is lost with the old file, and learnt again.
fn rewrite(path: &Path, records: &[Record]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file =
        std::io::BufWriter::new(OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?);
    for record in records {
        file.write_all(&record.bytes())?;
    }
    file.flush()?;
    fs::rename(new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(key: &str, etag: &str) -> Listed {
        Listed { key: key.to_owned(), size_bytes: 5, etag: etag.to_owned(), stored: 1_000 }
    }

    fn object(etag: &str, nanoseconds: u32) -> Object {
        let modified = Some(Timestamp { seconds: -5, nanoseconds });
        Object { size_bytes: 5, etag: etag.to_owned(), stored: 1_001, modified, mode: Some(0o100_640), crc: None }
    }

    #[test]
    fn what_was_learnt_of_a_version_is_found_by_the_next_process_and_of_no_other_version() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::new(directory.path(), "https://s", "b");
        known.learn("d/a", &object("1", 1));
        known.learn("d/a", &object("2", 2));
        known.learn("d/b", &Object { modified: None, mode: None, ..object("3", 0) });
        drop(known);
        let known = Known::new(directory.path(), "https://s", "b");
        let found = known.find(&listed("d/a", "2")).unwrap();
        assert_eq!((found.modified, found.mode), (object("2", 2).modified, Some(0o100_640)));
        assert_eq!(found.stored, 1_000, "as the listing has it");
        assert_eq!(known.find(&listed("d/b", "3")).map(|found| (found.modified, found.mode)), Some((None, None)));
        for other in [
            listed("d/a", "1"),
            listed("d/c", "2"),
            Listed { size_bytes: 6, ..listed("d/a", "2") },
            Listed { stored: 1_004, ..listed("d/a", "2") },
        ] {
            assert_eq!(known.find(&other), None, "{other:?}");
        }
        assert_eq!(Known::new(directory.path(), "https://s", "c").find(&listed("d/a", "2")), None);
    }

    #[test]
    fn what_was_learnt_is_found_by_the_next_transfer_of_the_same_process() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::new(directory.path(), "s", "b");
        known.learn("d/a", &object("1", 1));
        known.flush();
        assert!(known.find(&listed("d/a", "1")).is_some());
        // After its file was loaded.
        known.learn("d/a", &object("2", 2));
        known.learn("d/b", &object("3", 3));
        known.flush();
        assert_eq!(known.find(&listed("d/a", "1")), None);
        assert!([("d/a", "2"), ("d/b", "3")].iter().all(|(key, etag)| known.find(&listed(key, etag)).is_some()));
    }

    #[test]
    fn nonsense_is_passed_over_and_what_is_out_of_date_is_given_up() {
        let directory = tempfile::tempdir().unwrap();
        let known = Known::new(directory.path(), "s", "b");
        for version in 0..60_000 {
            known.learn("d/a", &object(&version.to_string(), 1));
        }
        known.flush();
        let path = fs::read_dir(&known.directory).unwrap().next().unwrap().unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 60_000 * RECORD_BYTES);
        // One that was damaged counts for nothing, and neither does a torn end.
        let last = bytes.len() - RECORD_BYTES;
        bytes[last + 20] ^= 1;
        bytes.extend_from_slice(&[7; 11]);
        fs::write(&path, bytes).unwrap();
        let known = Known::new(directory.path(), "s", "b");
        assert!(known.find(&listed("d/a", "59999")).is_none() && known.find(&listed("d/a", "59998")).is_some());
        assert_eq!(fs::metadata(&path).unwrap().len(), RECORD_BYTES as u64);
    }
}
