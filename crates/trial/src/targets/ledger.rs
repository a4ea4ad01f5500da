//! The extent log: whatever happened to its bytes, nothing is reported that was not recorded, and it can be continued.

use super::bytes::Bytes;
use ledger::extent_log::{self, Continuation, Header, RECORD_BYTES, Replayed};
use model::{Digest, DigestAlgorithm, Extent, JobId};
use std::collections::HashSet;

const CHUNK_BYTES: u64 = 1 << 20;
const BOOT: [u8; 16] = [7; 16];

pub fn run(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    if bytes.u8().is_multiple_of(4) {
        if let Ok(replayed) = extent_log::replay(bytes.rest()) {
            check(&replayed);
        }
        return;
    }
    let (mut log, recorded, durable, grown) = written(&mut bytes);
    let is_whole = !damaged(&mut log, &mut bytes);
    let Ok(replayed) = extent_log::replay(&log) else {
        assert!(!is_whole, "a log that is whole cannot be read");
        return;
    };
    check(&replayed);
    for found in &replayed.extents {
        assert!(recorded.contains(found), "{:?} was never recorded", found.0);
    }
    for found in &replayed.extents[..replayed.durable_count] {
        assert!(durable.contains(found), "{:?} was never made durable", found.0);
    }
    for (start, (extent, crc)) in &replayed.prefixes {
        assert!(grown.contains(&(*start, *crc)) && extent.end == *crc, "{extent:?} was never recorded");
    }
    if is_whole {
        assert_eq!(replayed.extents.len(), recorded.len());
        assert_eq!(replayed.durable_count, durable.len());
    }
    goes_on(&log, &replayed);
}

type Recorded = HashSet<(Extent, Digest)>;

/// A log as a receiver writes it, what was recorded in it, what of that is durable, and the prefixes.
fn written(bytes: &mut Bytes<'_>) -> (Vec<u8>, Recorded, Recorded, Vec<(u64, u64)>) {
    let algorithm = if bytes.u8() & 1 == 0 { DigestAlgorithm::Crc64Nvme } else { DigestAlgorithm::Blake3 };
    let chunks = u64::from(bytes.u8() % 24) + 1;
    let object_bytes = chunks * CHUNK_BYTES - u64::from(bytes.u16());
    let header = Header {
        algorithm,
        chunk_bytes: CHUNK_BYTES,
        object_bytes: None,
        stem: vec![bytes.u8(), bytes.u8()],
        boot: BOOT,
        job: JobId([1; 16]),
        name: b"dir/name".to_vec(),
    };
    let (mut log, mut appender) = extent_log::start(&header).expect("a header within its bounds");
    let (mut recorded, mut durable, mut grown) = (Recorded::new(), Recorded::new(), Vec::new());
    for _ in 0..bytes.u8() % 32 {
        let step = bytes.u8();
        if step >= 200 {
            let mark = appender.mark();
            log.extend_from_slice(&appender.checkpoint(mark).expect("a mark of this log"));
            durable.clone_from(&recorded);
            continue;
        }
        let start = u64::from(step) % chunks * CHUNK_BYTES;
        if step >= 170 {
            let end = start + grown.len() as u64 + 1;
            log.extend_from_slice(&appender.prefix(Extent::new(start, end), end).expect("the beginning of a chunk"));
            grown.push((start, end));
            continue;
        }
        let extent = Extent::new(start, (start + CHUNK_BYTES).min(object_bytes));
        if extent.is_empty() {
            continue;
        }
        // One digest for each place: a log that says two of one place is unusable as a whole, and rightly.
        let digest = algorithm.of_object(&start.to_le_bytes());
        log.extend_from_slice(&appender.extent(extent, &digest).expect("a chunk of the object"));
        recorded.insert((extent, digest));
    }
    (log, recorded, durable, grown)
}

/// What storage may do to a log; false when nothing changed. Few enough flips that no checksum is met by accident.
fn damaged(log: &mut Vec<u8>, bytes: &mut Bytes<'_>) -> bool {
    let before = log.clone();
    for _ in 0..bytes.u8() % 4 {
        let how = bytes.u8() % 6;
        let at = usize::from(bytes.u16()) % log.len().max(1);
        match how {
            0 => log.truncate(at),
            1 if at < log.len() => log[at] ^= 1 << (bytes.u8() % 8),
            // One byte, many times: a fuzzer that sees comparisons could write a whole record, and storage does not.
            2 => log.resize(log.len() + usize::from(bytes.u8()), bytes.u8()),
            3 => log[at..].fill(0),
            4 | 5 => moved(log, at, how == 5),
            _ => {}
        }
    }
    *log != before
}

/// A record in the place of another, or twice.
fn moved(log: &mut Vec<u8>, at: usize, is_copy: bool) {
    let records = log.len() / RECORD_BYTES;
    if records < 3 {
        return;
    }
    let place = |number: usize| log_place(log.len(), number % records);
    let (from, to) = (place(at), place(at / 7));
    let record: Vec<u8> = log[from..from + RECORD_BYTES].to_vec();
    if is_copy {
        log.splice(to..to, record);
    } else {
        log[to..to + RECORD_BYTES].copy_from_slice(&record);
    }
}

/// Where the record so many before the end begins.
fn log_place(length: usize, from_end: usize) -> usize {
    length - RECORD_BYTES * (from_end + 1)
}

fn check(replayed: &Replayed) {
    assert!(replayed.durable_count <= replayed.extents.len());
    let mut places = HashSet::new();
    for (extent, digest) in &replayed.extents {
        let header = &replayed.header;
        assert!(
            extent.start.is_multiple_of(header.chunk_bytes)
                && header.object_bytes.is_none_or(|bytes| extent.end <= bytes)
                && !extent.is_empty()
        );
        assert!(places.insert(extent.start), "an extent is reported twice");
        assert_eq!(digest.algorithm(), header.algorithm);
    }
    let mut other = replayed.header.boot;
    other[0] ^= 1;
    assert_eq!(replayed.continuation(&other), None, "another boot goes on with a log it cannot vouch for");
    assert!(replayed.sure_and_doubtful(&other).0.is_empty());
}

/// The next attempt appends behind what is good, and all of it is read again.
fn goes_on(log: &[u8], replayed: &Replayed) {
    let next = replayed.continuation(&replayed.header.boot);
    if replayed.header.object_bytes.is_some() {
        return assert_eq!(next, None, "a log of version 1 is continued");
    }
    let Continuation { keep_bytes, mut appender } = next.expect("the boot that wrote a log goes on with it");
    let mut kept = log[..keep_bytes].to_vec();
    let mark = appender.mark();
    let Ok(record) = appender.checkpoint(mark) else { return };
    kept.extend_from_slice(&record);
    let again = extent_log::replay(&kept).expect("a continued log is read");
    assert_eq!(again.extents, replayed.extents);
    assert_eq!(again.durable_count, replayed.extents.len());
}
