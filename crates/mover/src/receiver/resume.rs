//! What an interrupted attempt verified of a large object: the extent log beside its staging (docs/ledger-format.md).
//!
//! Invariants:
//! - An extent is recorded only after its digest was compared and its bytes were handed to storage.
//! - What no checkpoint vouches for is read back and compared with its recorded digest before it counts: storage may have
//!   failed to write it after the process was gone. After a reboot that is everything: what the page cache held may be lost,
//!   the name of the data file included.

use crate::block::Block;
use ledger::extent_log::{self, Appender, Continuation, Header};
use model::{ChunkHasher, Digest, DigestAlgorithm, Entry, Extent, JobId, Pin};
use store::StagedFile;

/// The name of an object's staging: the same for the same version of the same source at the same destination, from the same
/// sender. All but the sender is what a peer says: one that could find another's staging could fill it with what it likes,
/// or read out what is in it.
pub fn stem(sender: Pin, destination: &[u8], entry: &Entry, algorithm: DigestAlgorithm, chunk_bytes: u64) -> String {
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
        chunk_bytes,
        algorithm.digest_bytes() as u64,
    ] {
        key.extend_from_slice(&number.to_le_bytes());
    }
    key.extend_from_slice(destination);
    net::identity::sha256(&key)[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn header(destination: &[u8], entry: &Entry, algorithm: DigestAlgorithm, chunk_bytes: u64, job: JobId) -> Header {
    Header {
        algorithm,
        chunk_bytes,
        object_bytes: entry.size_bytes(),
        generation: entry.generation,
        boot: os::boot_id(),
        job,
        name: destination.to_vec(),
    }
}

/// What is held of an object, and where its journal goes on; `None` for an object too strange for a journal.
pub struct Held {
    pub chunks: Vec<(Extent, Digest)>,
    pub appender: Option<Appender>,
}

/// Reads the journal of an earlier attempt, or starts one. When `is_over` says so, what was not read back yet is given up.
pub fn open(file: &dyn StagedFile, journal: &[u8], header: &Header, is_over: &dyn Fn() -> bool) -> store::Result<Held> {
    let replayed = extent_log::replay(journal)
        .ok()
        .filter(|r| r.header.is_same_object(header) || model::mutant::is_on("resume-another-version"));
    let Some(replayed) = replayed else { return start(file, header, Vec::new()) };
    let (sure, doubtful) = replayed.sure_and_doubtful(&header.boot);
    let mut chunks = sure.to_vec();
    for (extent, digest) in doubtful.iter().take_while(|_| !is_over()) {
        if digest_of(file, *extent, header)? == Some(*digest) || model::mutant::is_on("trust-log-after-reboot") {
            chunks.push((*extent, *digest));
        }
    }
    match replayed.continuation(&header.boot) {
        Some(Continuation { keep_bytes, appender }) if chunks.len() == replayed.extents.len() => {
            file.truncate_journal(keep_bytes as u64)?;
            Ok(Held { chunks, appender: Some(appender) })
        }
        _ => start(file, header, chunks),
    }
}

/// A new journal that says what is held, in place of whatever was there.
fn start(file: &dyn StagedFile, header: &Header, chunks: Vec<(Extent, Digest)>) -> store::Result<Held> {
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

fn digest_of(file: &dyn StagedFile, extent: Extent, header: &Header) -> store::Result<Option<Digest>> {
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
    Ok(Some(hasher.finish(extent == Extent::new(0, header.object_bytes))))
}

#[cfg(test)]
mod tests {
    use super::super::zeros::Zeros;
    use super::*;
    use model::{Generation, Kind, Name, ObjectId};

    #[test]
    fn nothing_counts_unread_after_a_reboot_and_only_what_a_checkpoint_vouches_for_before_one() {
        let (algorithm, chunk_bytes) = (DigestAlgorithm::Crc64Nvme, 1 << 10);
        let header = |boot: u8| Header {
            algorithm,
            chunk_bytes,
            object_bytes: 4 * chunk_bytes,
            generation: Generation { size_bytes: 4 * chunk_bytes, ..Generation::default() },
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
        let held = |boot: u8, is_over: bool| {
            let held = open(&Zeros, &log, &header(boot), &|| is_over).unwrap();
            held.chunks.iter().map(|(extent, _)| extent.start / chunk_bytes).collect::<Vec<_>>()
        };
        assert_eq!(held(1, false), [0, 2]);
        assert_eq!(held(2, false), [2]);
        assert_eq!((held(1, true), held(2, true)), (vec![0], vec![]));
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
        let of = |sender: u8, path: &[u8]| stem(Pin([sender; 32]), path, &entry, DigestAlgorithm::Crc64Nvme, 1 << 20);
        assert_eq!(of(1, b"data"), of(1, b"data"));
        assert_ne!(of(1, b"data"), of(2, b"data"));
        assert_ne!(of(1, b"data"), of(1, b"date"));
    }
}
