//! Claims about the extent log: golden bytes of versions 1 and 2, what replay refuses, and what damage can never do.

use super::record::{Body, Record};
use super::*;
use model::{Digest as ContentDigest, DigestAlgorithm, Extent, Generation, JobId, Timestamp, VersionToken};
use proptest::prelude::*;
use std::collections::BTreeMap;

const KIB: u64 = 1024;
const BOOT: [u8; 16] = [0xb0; 16];

fn generation() -> Generation {
    Generation {
        size_bytes: 10_000,
        modified: Timestamp { seconds: -2, nanoseconds: 999_999_999 },
        version: VersionToken::new(Timestamp { seconds: 1_700_000_000, nanoseconds: 5 }, 0x0102_0304, 0x0506),
    }
}

fn header(algorithm: DigestAlgorithm) -> Header {
    Header {
        algorithm,
        chunk_bytes: 4 * KIB,
        object_bytes: None,
        stem: stem_of(&generation()),
        boot: BOOT,
        job: JobId([0x10; 16]),
        name: b"a/\xff".to_vec(),
    }
}

fn crc(value: u64) -> ContentDigest {
    ContentDigest::Crc64Nvme(value)
}

fn chunk(index: u64) -> Extent {
    Extent::new(index * 4 * KIB, (index + 1) * 4 * KIB)
}

/// CRC-64/NVME bit by bit: checks the format apart from the code that writes it.
fn crc64_bitwise(bytes: &[u8]) -> u64 {
    !bytes.iter().fold(!0u64, |crc, &byte| {
        (0..8).fold(crc ^ u64::from(byte), |crc, _| (crc >> 1) ^ (if crc & 1 == 1 { 0x9a6c_9329_ac4b_c9b5 } else { 0 }))
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes_of_version_2() {
    let (mut log, mut appender) = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap();
    let mut golden = GOLDEN.split_whitespace();
    assert_eq!(hex(&log), golden.next().unwrap());
    let records = [
        appender.extent(Extent::new(8192, 10_000), &crc(0x1122_3344_5566_7788)).unwrap(),
        appender.checkpoint(appender.mark()).unwrap(),
        appender.prefix(Extent::new(0, 5), 0x0102_0304_0506_0708).unwrap(),
    ];
    assert_eq!(crc64_bitwise(b"123456789"), 0xae8b_1486_0a79_9888);
    let (body, link) = log.split_last_chunk::<8>().unwrap();
    assert_eq!(u64::from_le_bytes(*link), crc64_bitwise(body));
    for record in records {
        assert_eq!(hex(&record), golden.next().unwrap());
        let linked = [&log[log.len() - 8..], &record[..56]].concat();
        assert_eq!(record[56..], crc64_bitwise(&linked).to_le_bytes());
        log.extend_from_slice(&record);
    }
    let replayed = replay(&log).unwrap();
    assert_eq!(replayed.header, header(DigestAlgorithm::Crc64Nvme));
    assert_eq!(replayed.extents, [(Extent::new(8192, 10_000), crc(0x1122_3344_5566_7788))]);
    assert_eq!(replayed.prefixes.into_iter().collect::<Vec<_>>(), [(0, (Extent::new(0, 5), 0x0102_0304_0506_0708))]);
    assert_eq!((replayed.durable_count, replayed.good_bytes), (1, log.len()));
}

#[test]
fn golden_bytes_of_a_record_with_blake3() {
    let mut hash = [0u8; 32];
    hash.iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
    let (log, mut appender) = start(&header(DigestAlgorithm::Blake3)).unwrap();
    assert_eq!(log[6], 2);
    let extent = appender.extent(Extent::new(0, 4096), &ContentDigest::Blake3(hash)).unwrap();
    assert_eq!(hex(&extent), GOLDEN_BLAKE3);
    let replayed = replay(&[&log[..], &extent].concat()).unwrap();
    assert_eq!(replayed.extents, [(Extent::new(0, 4096), ContentDigest::Blake3(hash))]);
    assert_eq!(replayed.durable_count, 0);
}

#[test]
fn a_log_of_version_1_is_read_and_not_continued() {
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    };
    let log = bytes(GOLDEN_VERSION_1);
    let replayed = replay(&log).unwrap();
    assert_eq!(replayed.header, Header { object_bytes: Some(10_000), ..header(DigestAlgorithm::Crc64Nvme) });
    assert!(replayed.header.is_same_object(&header(DigestAlgorithm::Crc64Nvme)));
    assert_eq!(replayed.extents, [(Extent::new(8192, 10_000), crc(0x1122_3344_5566_7788))]);
    assert_eq!((replayed.durable_count, replayed.good_bytes), (1, log.len()));
    assert_eq!(replayed.sure_and_doubtful(&BOOT).0.len(), 1);
    assert_eq!(replayed.continuation(&BOOT), None);
    // It knows how long its object is: a short chunk elsewhere is none, and it has no prefixes.
    let short = forge(&log, 2, |record| record[8..16].copy_from_slice(&4095u64.to_le_bytes()));
    assert_eq!(replay(&short), Err(Unusable::Record { index: 2, violation: Violation::NotAChunk }));
    let prefix = forge(&log, 2, |record| record[48] = 2);
    assert_eq!(replay(&prefix), Err(Unusable::Record { index: 2, violation: Violation::Kind }));
    let mut times = log.clone();
    times[43] = 0xff;
    let crc = crc64_bitwise(&times[..109]).to_le_bytes();
    times[109..117].copy_from_slice(&crc);
    assert_eq!(replay(&times), Err(Unusable::Field("mtime_ns")));
}

const GOLDEN_VERSION_1: &str = "\
    5457584c01000100001000000000000010270000000000001027000000000000feffffffffffffffffc99a3b00f15365\
    000000000500000004030201000000000605000000000000b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b01010101010101010\
    10101010101010100300612fff5f39a78cf925bb5d\
    002000000000000010270000000000008877665544332211000000000000000000000000000000000000000000000000\
    0000000000000000f117237eb61e690e\
    010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0100000001000000208b58655ccca736";
const GOLDEN: &str = "\
    5457584c020001000010000000000000b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b010101010101010101010101010101010\
    30001027000000000000feffffffffffffffffc99a3b00f1536500000000050000000403020100000000060500000000\
    00000300612fffb2a1fdf079daa07b \
    002000000000000010270000000000008877665544332211000000000000000000000000000000000000000000000000\
    0000000000000000df5e00c73916cdcd \
    010000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0100000001000000385c5eb8cc46dae8 \
    000000000000000005000000000000000807060504030201000000000000000000000000000000000000000000000000\
    0200000002000000d161e42a8f719683";
const GOLDEN_BLAKE3: &str = "\
    00000000000000000010000000000000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
    0000000000000000a9b971e209f4016d";

#[test]
fn a_prefix_grows_and_is_replaced_by_a_longer_one_only() {
    let (log, appender) = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap();
    let log_of = |records: &[(Extent, u64)]| {
        let (mut log, mut appender) = (log.clone(), appender.clone());
        for (extent, crc) in records {
            log.extend_from_slice(&appender.prefix(*extent, *crc).unwrap());
        }
        replay(&log)
    };
    let grown = log_of(&[(Extent::new(4096, 4100), 1), (Extent::new(0, 4096), 2), (Extent::new(4096, 8192), 3)]);
    let found: Vec<_> = grown.unwrap().prefixes.into_values().collect();
    assert_eq!(found, [(Extent::new(0, 4096), 2), (Extent::new(4096, 8192), 3)]);
    let refused = |records: &[(Extent, u64)], violation| {
        assert_eq!(log_of(records), Err(Unusable::Record { index: 1, violation }));
    };
    refused(&[(Extent::new(0, 9), 1), (Extent::new(0, 8), 2)], Violation::Prefix);
    refused(&[(Extent::new(0, 9), 1), (Extent::new(0, 9), 2)], Violation::Contradiction);
    for (extent, violation) in [
        (Extent::new(1, 5), Violation::Unaligned),
        (Extent::new(0, 0), Violation::Prefix),
        (Extent::new(0, 4097), Violation::Prefix),
    ] {
        assert_eq!(appender.clone().prefix(extent, 0), Err(violation), "{extent:?}");
    }
}

#[test]
fn unusable_headers_are_told_apart() {
    let good = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap().0;
    assert!(replay(&good).is_ok());
    for length in 0..good.len() {
        assert_eq!(replay(&good[..length]), Err(Unusable::Truncated), "{length} bytes");
    }
    assert_eq!(replay(&[0; 4096]), Err(Unusable::NotALog));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        let body = bytes.len() - 8;
        let crc = crc64_bitwise(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&crc);
        replay(&bytes).map(drop)
    };
    assert_eq!(with(4, 3), Err(Unusable::Version(3)));
    assert_eq!(with(6, 3), Err(Unusable::Algorithm(3)));
    assert_eq!(with(7, 1), Err(Unusable::Field("reserved")));
    assert_eq!(with(8, 1), Err(Unusable::Field("chunk_bytes")));
    assert_eq!(with(100, 0), Err(Unusable::Field("name")));
    let mut torn = good.clone();
    torn[60] ^= 1;
    assert_eq!(replay(&torn), Err(Unusable::Checksum));
}

#[test]
fn a_header_that_could_not_be_read_back_is_not_written() {
    let sound = header(DigestAlgorithm::Crc64Nvme);
    let refused = [
        Header { chunk_bytes: 5000, ..sound.clone() },
        Header { chunk_bytes: 512, ..sound.clone() },
        Header { chunk_bytes: 2 << 30, ..sound.clone() },
        Header { object_bytes: Some(1), ..sound.clone() },
        Header { stem: Vec::new(), ..sound.clone() },
        Header { stem: vec![0; STEM_BYTES_MAX + 1], ..sound.clone() },
        Header { name: Vec::new(), ..sound.clone() },
        Header { name: vec![b'a'; NAME_BYTES_MAX + 1], ..sound.clone() },
        Header { name: b"a\0b".to_vec(), ..sound },
    ];
    for header in refused {
        assert!(matches!(header.encode(), Err(Unusable::Field(_))), "{header:?}");
    }
}

#[test]
fn an_extent_that_is_no_chunk_is_not_written() {
    let (_, mut appender) = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap();
    let before = appender.clone();
    let refused = [
        (Extent::new(1, 4097), Violation::Unaligned),
        (Extent::new(0, 8192), Violation::NotAChunk),
        (Extent::new(12288, 12288), Violation::NotAChunk),
        (Extent::new(i64::MAX as u64 + 1, i64::MAX as u64 + 2), Violation::NotAChunk),
        (Extent::new(u64::MAX - 4095, u64::MAX), Violation::NotAChunk),
    ];
    for (extent, violation) in refused {
        assert_eq!(appender.extent(extent, &crc(0)), Err(violation), "{extent:?}");
    }
    assert_eq!(appender.extent(chunk(0), &ContentDigest::Blake3([0; 32])), Err(Violation::Digest));
    assert_eq!(appender, before);
}

/// A record that `Appender` refuses to write, with a checksum that holds.
fn forge(log: &[u8], sequence: u32, change: impl Fn(&mut [u8; RECORD_BYTES])) -> Vec<u8> {
    let link = log.split_last_chunk::<8>().unwrap().1;
    let body = Body::Extent(Extent::new(0, 4096), crc(7));
    let mut record = Record { sequence, body }.encode(u64::from_le_bytes(*link));
    change(&mut record);
    let sum = crc64_bitwise(&[&link[..], &record[..56]].concat());
    record[56..].copy_from_slice(&sum.to_le_bytes());
    [log, &record].concat()
}

fn forge_checkpoint(log: &[u8], sequence: u32, records: u64) -> Vec<u8> {
    forge(log, sequence, |record| {
        record[..48].fill(0);
        record[..8].copy_from_slice(&records.to_le_bytes());
        record[48] = 1;
    })
}

#[test]
fn intact_records_that_cannot_be_right_make_the_log_unusable() {
    let (mut log, mut appender) = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap();
    log.extend_from_slice(&appender.extent(Extent::new(0, 4096), &crc(7)).unwrap());
    let put = |record: &mut [u8; RECORD_BYTES], at: usize, value: u64| {
        record[at..at + 8].copy_from_slice(&value.to_le_bytes());
    };
    assert!(replay(&forge(&log, 1, |_| ())).is_ok(), "a chunk may be recorded again");
    assert!(replay(&forge_checkpoint(&log, 1, 1)).is_ok(), "a checkpoint may vouch for all before it");
    let cases: [(Vec<u8>, Violation); 15] = [
        (forge(&log, 0, |_| ()), Violation::Sequence),
        (forge(&log, 2, |_| ()), Violation::Sequence),
        (forge(&log, 1, |r| r[48] = 3), Violation::Range),
        (forge(&log, 1, |r| r[48] = 4), Violation::Kind),
        (forge(&log, 1, |r| r[51] = 0x80), Violation::Kind),
        (forge(&log, 1, |r| r[48] = 1), Violation::Checkpoint),
        (forge_checkpoint(&log, 1, 2), Violation::Checkpoint),
        (forge_checkpoint(&log, 1, 1 << 32), Violation::Checkpoint),
        (forge(&log, 1, |r| put(r, 0, 1)), Violation::Unaligned),
        (forge(&log, 1, |r| put(r, 8, 4097)), Violation::NotAChunk),
        (forge(&log, 1, |r| put(r, 8, 4095)), Violation::Contradiction),
        (forge(&log, 1, |r| put(r, 0, 8192)), Violation::NotAChunk),
        (forge(&log, 1, |r| put(r, 8, u64::MAX)), Violation::NotAChunk),
        (forge(&log, 1, |r| r[47] = 1), Violation::Digest),
        (forge(&log, 1, |r| r[16] = 8), Violation::Contradiction),
    ];
    for (bytes, violation) in cases {
        assert_eq!(replay(&bytes), Err(Unusable::Record { index: 1, violation }));
    }
}

#[test]
fn a_log_holds_no_more_records_than_its_bound() {
    let (mut log, mut appender) = start(&header(DigestAlgorithm::Crc64Nvme)).unwrap();
    let bound = records_max(0, 4 * KIB);
    for _ in 0..bound {
        log.extend_from_slice(&appender.checkpoint(appender.mark()).unwrap());
    }
    assert_eq!(appender.checkpoint(appender.mark()), Err(Violation::TooMany));
    assert!(replay(&log).is_ok());
    let link = u64::from_le_bytes(*log.split_last_chunk::<8>().unwrap().1);
    log.extend_from_slice(&Record { sequence: bound, body: Body::Checkpoint { records: 0 } }.encode(link));
    assert_eq!(replay(&log), Err(Unusable::Record { index: bound, violation: Violation::TooMany }));
    assert_eq!(records_max(u64::MAX, 1), u32::MAX);
}

#[test]
fn a_boot_trusts_its_own_checkpoints_and_another_one_nothing_unread() {
    let header = header(DigestAlgorithm::Crc64Nvme);
    let (mut log, mut appender) = start(&header).unwrap();
    for index in [3, 0] {
        log.extend_from_slice(&appender.extent(chunk(index), &crc(index)).unwrap());
    }
    let mark = appender.mark();
    // Recorded while the sync runs: the checkpoint behind it does not vouch for it.
    log.extend_from_slice(&appender.extent(chunk(1), &crc(1)).unwrap());
    log.extend_from_slice(&appender.checkpoint(mark).unwrap());
    let replayed = replay(&log).unwrap();
    assert_eq!((replayed.extents.len(), replayed.durable_count), (3, 2));
    let next = replayed.continuation(&BOOT).unwrap();
    assert_eq!((next.keep_bytes, next.appender), (log.len(), appender));
    let (sure, doubtful) = replayed.sure_and_doubtful(&BOOT);
    assert_eq!((sure.len(), doubtful), (2, &replayed.extents[2..]));
    assert_eq!(replayed.continuation(&[1; 16]), None);
    let (sure, doubtful) = replayed.sure_and_doubtful(&[1; 16]);
    assert_eq!((sure.len(), doubtful), (0, &replayed.extents[..]));
}

#[test]
fn a_later_checkpoint_for_less_takes_nothing_back() {
    let header = header(DigestAlgorithm::Crc64Nvme);
    let (mut log, mut appender) = start(&header).unwrap();
    log.extend_from_slice(&appender.extent(chunk(0), &crc(0)).unwrap());
    let early = appender.mark();
    log.extend_from_slice(&appender.extent(chunk(1), &crc(1)).unwrap());
    let late = appender.mark();
    log.extend_from_slice(&appender.checkpoint(late).unwrap());
    log.extend_from_slice(&appender.checkpoint(early).unwrap());
    assert_eq!(replay(&log).unwrap().durable_count, 2);
}

#[test]
fn the_remains_of_a_cut_tail_do_not_come_back() {
    let header = header(DigestAlgorithm::Crc64Nvme);
    let (log, mut appender) = start(&header).unwrap();
    let first = appender.extent(chunk(0), &crc(0)).unwrap();
    let second = appender.extent(chunk(1), &crc(1)).unwrap();
    // The first record is cut off and another takes its place; the second is still on disk behind it.
    let (_, mut appender) = start(&header).unwrap();
    let instead = appender.extent(chunk(2), &crc(2)).unwrap();
    assert_eq!(replay(&[&log[..], &first, &second].concat()).unwrap().extents.len(), 2);
    let replayed = replay(&[&log[..], &instead, &second].concat()).unwrap();
    assert_eq!(replayed.extents, [(chunk(2), crc(2))]);
    assert_eq!(replayed.good_bytes, log.len() + RECORD_BYTES);
}

#[test]
fn only_the_same_version_cut_the_same_way_is_continued() {
    let sound = header(DigestAlgorithm::Crc64Nvme);
    assert!(sound.is_same_object(&Header { boot: [0; 16], job: JobId([0; 16]), ..sound.clone() }));
    let others = [
        Header { name: b"b".to_vec(), ..sound.clone() },
        Header { chunk_bytes: 8 * KIB, ..sound.clone() },
        Header { algorithm: DigestAlgorithm::Blake3, ..sound.clone() },
        Header { stem: stem_of(&Generation { version: VersionToken::default(), ..generation() }), ..sound.clone() },
    ];
    for other in others {
        assert!(!sound.is_same_object(&other), "{other:?}");
    }
}

/// What was written: the log, and for every record the length of `extents` and the durable count behind it.
#[derive(Debug, Clone)]
struct Written {
    log: Vec<u8>,
    header_bytes: usize,
    extents: Vec<(Extent, ContentDigest)>,
    /// In the order written, with the record that each is.
    prefixes: Vec<(usize, Extent, u64)>,
    marks: Vec<(usize, usize)>,
}

#[derive(Debug, Clone)]
enum Step {
    Extent(u64),
    /// A chunk grows by so many bytes.
    Prefix(u64, u64),
    Mark,
    Checkpoint,
}

fn written() -> impl Strategy<Value = Written> {
    let prefix = (0u64..12, 1u64..500).prop_map(|(chunk, bytes)| Step::Prefix(chunk, bytes));
    let step = prop_oneof![
        4 => (0u64..12).prop_map(Step::Extent),
        3 => prefix,
        1 => Just(Step::Mark),
        1 => Just(Step::Checkpoint),
    ];
    let steps = prop::collection::vec(step, 0..30);
    (steps, 0u64..3, any::<bool>(), any::<[u8; 16]>()).prop_map(|(steps, tail, is_blake3, job)| {
        let algorithm = if is_blake3 { DigestAlgorithm::Blake3 } else { DigestAlgorithm::Crc64Nvme };
        let header = Header { job: JobId(job), ..header(algorithm) };
        let (mut log, mut appender) = start(&header).unwrap();
        let header_bytes = log.len();
        let (mut extents, mut marks, mut durable_count) = (Vec::new(), vec![(0, 0)], 0);
        let (mut mark, mut grown, mut prefixes) = ((appender.mark(), 0), [0; 12], Vec::new());
        for step in steps {
            let record = match step {
                Step::Mark => {
                    mark = (appender.mark(), extents.len());
                    continue;
                }
                Step::Extent(index) => {
                    let extent = if index == 11 {
                        Extent::new(index * 4 * KIB, index * 4 * KIB + 1 + tail)
                    } else {
                        chunk(index)
                    };
                    let digest = algorithm.of_object(&extent.start.to_le_bytes());
                    if !extents.contains(&(extent, digest)) {
                        extents.push((extent, digest));
                    }
                    appender.extent(extent, &digest).unwrap()
                }
                Step::Prefix(index, bytes) => {
                    let end = &mut grown[index as usize];
                    *end += bytes.min(4 * KIB - *end);
                    let extent = Extent::new(chunk(index).start, chunk(index).start + *end);
                    prefixes.push((marks.len() - 1, extent, extent.end ^ 7));
                    appender.prefix(extent, extent.end ^ 7).unwrap()
                }
                Step::Checkpoint => {
                    durable_count = mark.1;
                    appender.checkpoint(mark.0).unwrap()
                }
            };
            log.extend_from_slice(&record);
            marks.push((extents.len(), durable_count));
        }
        Written { log, header_bytes, extents, prefixes, marks }
    })
}

impl Written {
    /// Exactly the first `records` records are reported.
    fn expect(&self, replayed: &Replayed, records: usize) {
        let (count, durable_count) = self.marks[records];
        assert_eq!(replayed.extents, self.extents[..count]);
        assert_eq!(replayed.durable_count, durable_count);
        let mut prefixes = BTreeMap::new();
        for (_, extent, crc) in self.prefixes.iter().filter(|(record, ..)| *record < records) {
            prefixes.insert(extent.start, (*extent, *crc));
        }
        assert_eq!(replayed.prefixes, prefixes);
        assert_eq!(replayed.good_bytes, self.header_bytes + records * RECORD_BYTES);
    }
}

proptest! {
    #[test]
    fn truncation_yields_the_whole_records_before_the_cut(written in written(), cut in any::<prop::sample::Index>()) {
        let length = cut.index(written.log.len() + 1);
        match replay(&written.log[..length]) {
            Err(unusable) => {
                prop_assert!(length < written.header_bytes);
                prop_assert_eq!(unusable, Unusable::Truncated);
            }
            Ok(replayed) => written.expect(&replayed, (length - written.header_bytes) / RECORD_BYTES),
        }
    }

    #[test]
    fn a_flipped_bit_yields_the_records_before_it(written in written(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut log = written.log.clone();
        let at = at.index(log.len());
        log[at] ^= 1 << bit;
        match replay(&log) {
            Err(_) => prop_assert!(at < written.header_bytes),
            Ok(replayed) => {
                prop_assert!(at >= written.header_bytes);
                written.expect(&replayed, (at - written.header_bytes) / RECORD_BYTES);
            }
        }
    }

    #[test]
    fn appended_garbage_is_a_torn_tail(written in written(), garbage in prop::collection::vec(any::<u8>(), 0..300)) {
        let log = [&written.log[..], &garbage].concat();
        written.expect(&replay(&log).unwrap(), written.marks.len() - 1);
    }

    #[test]
    fn records_of_another_log_do_not_verify(one in written(), other in written()) {
        prop_assume!(one.log[..one.header_bytes] != other.log[..other.header_bytes]);
        let log = [&one.log[..], &other.log[other.header_bytes..]].concat();
        one.expect(&replay(&log).unwrap(), one.marks.len() - 1);
    }

    #[test]
    fn a_record_moved_repeated_or_dropped_ends_the_log(written in written(), from in any::<prop::sample::Index>(),
            to in any::<prop::sample::Index>()) {
        let records = written.marks.len() - 1;
        if records < 2 {
            return Ok(());
        }
        let (from, step) = (from.index(records), 1 + to.index(records - 1));
        let to = (from + step) % records;
        let at = |index: usize| written.header_bytes + index * RECORD_BYTES;
        let mut log = written.log.clone();
        log.copy_within(at(from)..at(from + 1), at(to));
        written.expect(&replay(&log).unwrap(), to);
    }

    #[test]
    fn continuing_a_torn_log_is_as_if_it_had_not_been_torn(written in written(), cut in any::<prop::sample::Index>()) {
        let length = written.header_bytes + cut.index(written.log.len() - written.header_bytes + 1);
        let replayed = replay(&written.log[..length]).unwrap();
        let Continuation { keep_bytes, mut appender } = replayed.continuation(&BOOT).unwrap();
        let mut log = written.log[..keep_bytes].to_vec();
        log.extend_from_slice(&appender.checkpoint(appender.mark()).unwrap());
        let again = replay(&log).unwrap();
        prop_assert_eq!(&again.extents, &replayed.extents);
        prop_assert_eq!(again.durable_count, again.extents.len());
        prop_assert_eq!(again.good_bytes, log.len());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), is_dressed in any::<bool>()) {
        for version in [b"TWXL\x01\x00", b"TWXL\x02\x00"] {
            let dressed = if is_dressed { [&version[..], &bytes].concat() } else { bytes.clone() };
            prop_assert!(replay(&dressed).is_err());
        }
    }
}
