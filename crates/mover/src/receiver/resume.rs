//! What an interrupted attempt verified of a large object: the extent log beside its staging (docs/ledger-format.md).
//!
//! Invariants:
//! - An extent is recorded only after its digest was compared and its bytes were handed to storage.
//! - What no checkpoint vouches for is read back and compared with its recorded digest before it counts: storage may have
//!   failed to write it after the process was gone. After a reboot that is everything: what the page cache held may be lost,
//!   the name of the data file included. So it is at another host's storage that is never told to sync
//!   (`StagedFile::outlasts_its_host`), and with what was recorded in chunks of another length (`recut`). A storage that cannot
//!   be read back gives its own word (`StagedFile::kept`).
//! - A job that is over changes nothing of the log: what it did not read back is there for the next attempt.

use super::recut::recut;
use crate::block::Block;
use ledger::extent_log::{self, Appender, Chunk, Continuation, Header, Replayed};
use model::options::CHUNK_BYTES_DEFAULT;
use model::{ChunkHasher, Digest, DigestAlgorithm, Entry, Extent, JobId, Pin};
use store::StagedFile;

/// The name of an object's staging: the same for the same version of the same source at the same destination, from the same
/// sender, whatever the length of its chunks. All but the sender is what a peer says: one that could find another's staging could
/// fill it with what it likes, or read out what is in it.
pub fn stem(sender: Pin, destination: &[u8], entry: &Entry, algorithm: DigestAlgorithm) -> String {
    let generation = &entry.generation;
    let mut key = Vec::with_capacity(destination.len() + 112);
    key.extend_from_slice(&sender.0);
    for number in [
        generation.size_bytes,
        generation.modified.seconds as u64,
        u64::from(generation.modified.nanoseconds),
        generation.version.changed().seconds as u64,
        u64::from(generation.version.changed().nanoseconds),
        generation.version.object(),
        generation.version.storage(),
        // In the place of the length of chunks, which may be another one the next time.
        CHUNK_BYTES_DEFAULT,
        algorithm.digest_bytes() as u64,
    ] {
        key.extend_from_slice(&number.to_le_bytes());
    }
    key.extend_from_slice(destination);
    hashed(&key)
}

/// By what the stems of a run begin.
pub fn tag_of_parts(run: JobId) -> String {
    hashed(&[b"ranges of ", &run.0[..]].concat())[..16].to_owned()
}

/// As `stem`, for an object that slices of one run write together. Hosts that share storage may know it by other devices.
pub fn stem_of_parts(
    run: JobId,
    destination: &[u8],
    entry: &Entry,
    algorithm: DigestAlgorithm,
    chunk_bytes: u64,
) -> String {
    let numbers = [chunk_bytes, algorithm.digest_bytes() as u64].map(u64::to_le_bytes).concat();
    let key = [&run.0[..], &version_of_parts(entry), &numbers, destination].concat();
    format!("{}-{}", tag_of_parts(run), hashed(&key))
}

/// A generation without its device, which is told last.
fn version_of_parts(entry: &Entry) -> Vec<u8> {
    let mut version = extent_log::stem_of(&entry.generation);
    let device = version.len() - 8;
    version[device..].fill(0);
    version
}

/// As `header`, for an object that slices of one run write together.
pub fn header_of_parts(
    destination: &[u8],
    entry: &Entry,
    algorithm: DigestAlgorithm,
    chunk_bytes: u64,
    job: JobId,
) -> Header {
    Header { stem: version_of_parts(entry), ..header(destination, entry, algorithm, chunk_bytes, job) }
}

const GROWING: &[u8] = b"growing\0";

/// What a log says of an object that grows: size and times change meanwhile.
fn growing_stem(entry: &Entry) -> Vec<u8> {
    let version = &entry.generation.version;
    [GROWING, &version.object().to_le_bytes(), &version.storage().to_le_bytes()].concat()
}

/// As `stem`, for an object that grows.
pub fn stem_of_growing(
    sender: Pin,
    destination: &[u8],
    entry: &Entry,
    algorithm: DigestAlgorithm,
    chunk_bytes: u64,
) -> String {
    let numbers = [chunk_bytes, algorithm.digest_bytes() as u64].map(u64::to_le_bytes).concat();
    hashed(&[&sender.0[..], &growing_stem(entry), &numbers, destination].concat())
}

/// Whether a journal, kept under this stem, is of an object that grew in this job of this sender's.
pub fn grew_in(journal: &[u8], stem: &str, sender: Pin, job: JobId) -> bool {
    let Ok(Replayed { header, .. }) = extent_log::replay(journal) else { return false };
    let numbers = [header.chunk_bytes, header.algorithm.digest_bytes() as u64].map(u64::to_le_bytes).concat();
    let is_growing = header.stem.starts_with(GROWING);
    is_growing && header.job == job && hashed(&[&sender.0[..], &header.stem, &numbers, &header.name].concat()) == stem
}

fn hashed(key: &[u8]) -> String {
    net::identity::sha256(key)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn header(destination: &[u8], entry: &Entry, algorithm: DigestAlgorithm, chunk_bytes: u64, job: JobId) -> Header {
    Header {
        algorithm,
        chunk_bytes,
        object_bytes: None,
        stem: extent_log::stem_of(&entry.generation),
        boot: os::boot_id(),
        job,
        name: destination.to_vec(),
    }
}

/// As `header`, for an object that grows.
pub fn header_of_growing(
    destination: &[u8],
    entry: &Entry,
    algorithm: DigestAlgorithm,
    chunk_bytes: u64,
    job: JobId,
) -> Header {
    Header { stem: growing_stem(entry), ..header(destination, entry, algorithm, chunk_bytes, job) }
}

/// What is held of an object, and where its journal goes on; `None` for an object too strange for a journal.
pub struct Held {
    pub chunks: Vec<(Extent, Digest)>,
    pub appender: Option<Appender>,
}

/// Reads the journal of an earlier attempt, or starts one. When `is_over` says so, before what is read back next, the journal stays
/// as it is, and is not gone on with.
pub fn open(
    file: &dyn StagedFile,
    journal: &[u8],
    (header, object_bytes): (&Header, u64),
    is_over: &dyn Fn() -> bool,
) -> store::Result<Held> {
    let is_of_object = |replayed: &Replayed| {
        let of_its_length = Header { chunk_bytes: replayed.header.chunk_bytes, ..header.clone() };
        replayed.header.is_same_object(&of_its_length) || model::mutant::is_on("resume-another-version")
    };
    let replayed = extent_log::replay(journal).ok().filter(is_of_object);
    let Some(replayed) = replayed else { return start(file, header, Vec::new()) };
    if replayed.header.chunk_bytes != header.chunk_bytes {
        return open_recut(file, replayed.extents, (header, object_bytes), is_over);
    }
    let kept = file.kept(&replayed.extents);
    let (sure, doubtful) = match &kept {
        Some(_) => (&[][..], &[][..]),
        None if !file.outlasts_its_host() => (&[][..], &replayed.extents[..]),
        None => replayed.sure_and_doubtful(&header.boot),
    };
    let mut chunks = sure.to_vec();
    let by_word = kept.into_iter().flatten().zip(&replayed.extents);
    chunks.extend(by_word.filter(|(is_there, _)| *is_there).map(|(_, chunk)| *chunk));
    let mut is_cut = false;
    for (extent, digest) in doubtful {
        is_cut = is_over();
        if is_cut {
            break;
        }
        if digest_of(file, *extent, header, object_bytes)? == Some(*digest)
            || model::mutant::is_on("trust-log-after-reboot")
        {
            chunks.push((*extent, *digest));
        }
    }
    // The log does not know where its object ends.
    chunks.retain(|(extent, _)| extent.end == object_bytes.min(extent.start.saturating_add(header.chunk_bytes)));
    if is_cut {
        return Ok(Held { chunks, appender: None });
    }
    match replayed.continuation(&header.boot) {
        Some(Continuation { keep_bytes, appender }) if chunks.len() == replayed.extents.len() => {
            file.truncate_journal(keep_bytes as u64)?;
            Ok(Held { chunks, appender: Some(appender) })
        }
        _ => start(file, header, chunks),
    }
}

/// What was left in chunks of another length. A storage that cannot be read back vouches for those chunks alone: there the object
/// comes whole.
fn open_recut(
    file: &dyn StagedFile,
    recorded: Vec<Chunk>,
    of: (&Header, u64),
    is_over: &dyn Fn() -> bool,
) -> store::Result<Held> {
    if file.kept(&[]).is_some() {
        return start(file, of.0, Vec::new());
    }
    match recut(file, recorded, of, is_over)? {
        Some(chunks) => start(file, of.0, chunks),
        None => Ok(Held { chunks: Vec::new(), appender: None }),
    }
}

/// What an earlier attempt left of an object that grows: how far it reaches from its start, and a journal that says so. All of it
/// is read back, unless `is_over` says that it is not worth it any more: then the journal stays as it is.
pub fn open_growing(
    file: &dyn StagedFile,
    journal: &[u8],
    header: &Header,
    is_over: &dyn Fn() -> bool,
) -> store::Result<(Frontier, Option<Appender>)> {
    let replayed = extent_log::replay(journal).ok().filter(|r| r.header.is_same_object(header));
    let mut frontier = Frontier::new(header.chunk_bytes);
    let Ok((mut bytes, mut appender)) = extent_log::start(header) else {
        file.truncate_journal(0)?;
        return Ok((frontier, None));
    };
    for (extent, crc) in replayed.into_iter().flat_map(|replayed| replayed.prefixes.into_values()) {
        if is_over() {
            return Ok((frontier, None));
        }
        let before = frontier.clone();
        if extent.start != frontier.end() || !frontier.advance(file, extent.end)? {
            frontier = before;
            break;
        }
        if frontier.crc_of(&before) != crc {
            frontier = before;
            break;
        }
        match appender.prefix(extent, crc) {
            Ok(record) => bytes.extend_from_slice(&record),
            Err(_) => {
                file.truncate_journal(0)?;
                return Ok((frontier, None));
            }
        }
    }
    // One that is empty belongs to nobody: for no longer than it has to be.
    file.truncate_journal(0)?;
    file.append_journal(&bytes)?;
    Ok((frontier, Some(appender)))
}

/// How far an object that grows is there without a gap, and the digest of its last chunk so far.
#[derive(Clone)]
pub struct Frontier {
    chunk_bytes: u64,
    end: u64,
    open: ChunkHasher,
    /// Of the chunk that was closed last.
    closed_crc: u64,
}

impl Frontier {
    pub fn new(chunk_bytes: u64) -> Frontier {
        let open = ChunkHasher::new(DigestAlgorithm::Crc64Nvme, 0);
        Frontier { chunk_bytes, end: 0, open, closed_crc: 0 }
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Reads on, at most to the end of the chunk. False when there is less than that.
    fn advance(&mut self, file: &dyn StagedFile, end: u64) -> store::Result<bool> {
        let mut block = vec![0; crate::limits::BLOCK_BYTES.min((end - self.end) as usize)];
        while self.end < end {
            let wanted = block.len().min((end - self.end) as usize);
            if file.read_at(self.end, &mut block[..wanted])? < wanted {
                return Ok(false);
            }
            self.open.update(&block[..wanted]);
            self.end += wanted as u64;
        }
        if self.end.is_multiple_of(self.chunk_bytes) {
            self.closed_crc = crc_of(&self.open);
            self.open = ChunkHasher::new(DigestAlgorithm::Crc64Nvme, self.end);
        }
        Ok(true)
    }

    /// Of the chunk that went on after `before`.
    fn crc_of(&self, before: &Frontier) -> u64 {
        match self.end.is_multiple_of(self.chunk_bytes) && self.end > before.end {
            true => self.closed_crc,
            false => crc_of(&self.open),
        }
    }

    /// Goes on to `end`, and puts down each chunk on the way with what there is of it.
    pub fn note(&mut self, file: &dyn StagedFile, end: u64, appender: &mut Appender) -> store::Result<Vec<u8>> {
        let mut records = Vec::new();
        while self.end < end {
            let before = self.clone();
            let start = self.end / self.chunk_bytes * self.chunk_bytes;
            let next = end.min(start + self.chunk_bytes);
            if !self.advance(file, next)? {
                break;
            }
            match appender.prefix(Extent::new(start, next), self.crc_of(&before)) {
                Ok(record) => records.extend_from_slice(&record),
                Err(_) => break,
            }
        }
        Ok(records)
    }
}

fn crc_of(hasher: &ChunkHasher) -> u64 {
    match hasher.finish(false) {
        Digest::Crc64Nvme(crc) => crc,
        Digest::Blake3(_) => 0,
    }
}

/// A new journal that says what is held, in place of whatever was there.
pub fn start(file: &dyn StagedFile, header: &Header, chunks: Vec<(Extent, Digest)>) -> store::Result<Held> {
    file.truncate_journal(0)?;
    let Ok((mut bytes, mut appender)) = extent_log::start(header) else { return Ok(Held { chunks, appender: None }) };
    for (extent, digest) in &chunks {
        match appender.extent(*extent, digest) {
            Ok(record) => bytes.extend_from_slice(&record),
            Err(_) => return Ok(Held { chunks, appender: None }),
        }
    }
    file.append_journal(&bytes)?;
    Ok(Held { chunks, appender: Some(appender) })
}

pub fn digest_of(
    file: &dyn StagedFile,
    extent: Extent,
    header: &Header,
    object_bytes: u64,
) -> store::Result<Option<Digest>> {
    let mut hasher = ChunkHasher::new(header.algorithm, extent.start);
    let mut block = Block::new(crate::limits::BLOCK_BYTES);
    let mut at = extent.start;
    while at < extent.end {
        let wanted = block.len().min((extent.end - at) as usize);
        if file.read_at(at, &mut block[..wanted])? < wanted {
            return Ok(None);
        }
        hasher.update(&block[..wanted]);
        at += wanted as u64;
    }
    Ok(Some(hasher.finish(extent == Extent::new(0, object_bytes))))
}

#[cfg(test)]
mod tests {
    use super::super::zeros::Zeros;
    use super::*;
    use model::{Generation, Kind, Name, ObjectId};
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use store::{PublishRule, Result};

    /// As `Zeros`, if need be on another host that syncs nothing. Counts what is done to its journal.
    #[derive(Default)]
    struct Noted {
        is_far: bool,
        changes: AtomicU32,
    }

    impl StagedFile for Noted {
        fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
            Zeros.write_at(offset, bytes)
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            Zeros.read_at(offset, buffer)
        }
        fn outlasts_its_host(&self) -> bool {
            !self.is_far
        }
        fn append_journal(&self, bytes: &[u8]) -> Result<()> {
            self.changes.fetch_add(1, Relaxed);
            Zeros.append_journal(bytes)
        }
        fn truncate_journal(&self, length: u64) -> Result<()> {
            self.changes.fetch_add(1, Relaxed);
            Zeros.truncate_journal(length)
        }
        fn checkpoint(&self) -> Result<()> {
            Zeros.checkpoint()
        }
        fn reread(&self, check: &mut dyn FnMut(&[u8])) -> Result<()> {
            Zeros.reread(check)
        }
        fn publish(&self, entry: &Entry, rule: PublishRule) -> Result<()> {
            Zeros.publish(entry, rule)
        }
        fn discard(&self) {}
    }

    #[test]
    fn nothing_counts_unread_after_a_reboot_and_only_what_a_checkpoint_vouches_for_before_one() {
        let (algorithm, chunk_bytes) = (DigestAlgorithm::Crc64Nvme, 1 << 10);
        let header = |boot: u8| Header {
            algorithm,
            chunk_bytes,
            object_bytes: None,
            stem: b"stem".to_vec(),
            boot: [boot; 16],
            job: JobId([1; 16]),
            name: b"data".to_vec(),
        };
        let (mut log, mut appender) = extent_log::start(&header(1)).unwrap();
        let chunk = |n: u64| Extent::new(n * chunk_bytes, (n + 1) * chunk_bytes);
        let [right, wrong] = [vec![0; chunk_bytes as usize], vec![1; chunk_bytes as usize]];
        let digest = |bytes: &[u8], n: u64| {
            let mut hasher = ChunkHasher::new(algorithm, chunk(n).start);
            hasher.update(bytes);
            hasher.finish(false)
        };
        log.extend_from_slice(&appender.extent(chunk(0), &digest(&wrong, 0)).unwrap());
        log.extend_from_slice(&appender.checkpoint(appender.mark()).unwrap());
        log.extend_from_slice(&appender.extent(chunk(1), &digest(&wrong, 1)).unwrap());
        log.extend_from_slice(&appender.extent(chunk(2), &digest(&right, 2)).unwrap());
        let held_of = |file: &dyn StagedFile, boot: u8, is_over: bool| {
            let held = open(file, &log, (&header(boot), 4 * chunk_bytes), &|| is_over).unwrap();
            held.chunks.iter().map(|(extent, _)| extent.start / chunk_bytes).collect::<Vec<_>>()
        };
        let held = |boot: u8, is_over: bool| held_of(&Zeros, boot, is_over);
        assert_eq!(held(1, false), [0, 2]);
        assert_eq!(held(2, false), [2]);
        assert_eq!((held(1, true), held(2, true)), (vec![0], vec![]));
        // A checkpoint at a host that syncs nothing vouches for nothing: that host may have been restarted meanwhile.
        let far = Noted { is_far: true, ..Noted::default() };
        assert_eq!((held_of(&far, 1, false), held_of(&far, 1, true)), (vec![2], vec![]));
    }

    #[test]
    fn a_job_that_is_over_leaves_the_journal_to_the_next_attempt_as_it_was() {
        let (algorithm, chunk_bytes) = (DigestAlgorithm::Crc64Nvme, 1 << 10);
        let header = Header {
            algorithm,
            chunk_bytes,
            object_bytes: None,
            stem: b"stem".to_vec(),
            boot: [1; 16],
            job: JobId([1; 16]),
            name: b"data".to_vec(),
        };
        let (file, chunks) = (Noted::default(), 3);
        let changes = || file.changes.swap(0, Relaxed);
        let (mut log, mut appender) = extent_log::start(&header).unwrap();
        for start in (0..chunks).map(|chunk| chunk * chunk_bytes) {
            let mut hasher = ChunkHasher::new(algorithm, start);
            hasher.update(&[0; 1 << 10]);
            let extent = Extent::new(start, start + chunk_bytes);
            log.extend_from_slice(&appender.extent(extent, &hasher.finish(false)).unwrap());
        }
        let open = |is_over: &dyn Fn() -> bool| open(&file, &log, (&header, chunks * chunk_bytes), is_over).unwrap();
        let asked = Cell::new(0);
        let held = open(&|| asked.replace(asked.get() + 1) > 0);
        assert_eq!((held.chunks.len(), held.appender.is_none(), changes()), (1, true, 0));
        let held = open(&|| false);
        assert_eq!((held.chunks.len(), held.appender.is_some()), (3, true));
        assert!(changes() > 0);

        let (mut log, mut appender) = extent_log::start(&header).unwrap();
        log.extend(Frontier::new(chunk_bytes).note(&Zeros, chunks * chunk_bytes, &mut appender).unwrap());
        let (frontier, appender) = open_growing(&file, &log, &header, &|| true).unwrap();
        assert_eq!((frontier.end(), appender.is_none(), changes()), (0, true, 0));
        let (frontier, appender) = open_growing(&file, &log, &header, &|| false).unwrap();
        assert_eq!((frontier.end(), appender.is_some()), (chunks * chunk_bytes, true));
    }

    #[test]
    fn what_one_sender_left_is_not_found_by_another_who_describes_the_same() {
        let entry = Entry {
            id: ObjectId(1),
            parent: ObjectId::ROOT,
            name: Name::new(b"data").unwrap(),
            kind: Kind::File,
            mode: 0o644,
            generation: Generation { size_bytes: 1 << 30, ..Generation::default() },
            attributes: None,
        };
        let of = |sender: u8, path: &[u8]| stem(Pin([sender; 32]), path, &entry, DigestAlgorithm::Crc64Nvme);
        assert_eq!(of(1, b"data"), of(1, b"data"));
        let (algorithm, job) = (DigestAlgorithm::Crc64Nvme, JobId([7; 16]));
        let grown = stem_of_growing(Pin([1; 32]), b"data", &entry, algorithm, 1 << 20);
        let start = |header| extent_log::start(&header).unwrap().0;
        let journal = start(header_of_growing(b"data", &entry, algorithm, 1 << 20, job));
        assert!(grew_in(&journal, &grown, Pin([1; 32]), job));
        assert!(!grew_in(&journal, &grown, Pin([2; 32]), job) && !grew_in(&journal, "else", Pin([1; 32]), job));
        assert!(!grew_in(&journal, &grown, Pin([1; 32]), JobId([8; 16])));
        let whole = start(header(b"data", &entry, algorithm, 1 << 20, job));
        assert!(!grew_in(&whole, &of(1, b"data"), Pin([1; 32]), job));
        assert_ne!(of(1, b"data"), of(2, b"data"));
        assert_ne!(of(1, b"data"), of(1, b"date"));
    }
}
