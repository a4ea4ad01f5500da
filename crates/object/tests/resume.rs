//! What comes of an upload that an attempt left: gone on with where host and store agree on its parts, begun again where not.

use fakes::{BUCKET, Fake, Fault, SECRET};
use model::{
    Digest, DigestAlgorithm, Entry, Extent, ExtentSet, FailureKind, Generation, Kind, Location, Name, ObjectId,
    Timestamp, TransferOptions,
};
use object::{Buckets, Stop, StoreConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use store::open::{Opener, Rights, Shape, SinkRequest};
use store::{PublishRule, Sink, StagedFile};

const PART: u64 = 8 << 20;
const SIZE: u64 = 5 * PART + 1000;
const CHUNK: u64 = 1 << 20;

struct Bed {
    fake: Fake,
    home: tempfile::TempDir,
    bytes: Vec<u8>,
}

fn bed() -> Bed {
    let fake = Fake::start();
    let home = tempfile::tempdir().unwrap();
    let text = format!("[default]\naws_access_key_id = fake\naws_secret_access_key = {SECRET}\n");
    std::fs::write(home.path().join("keys"), text).unwrap();
    let bytes = (0..=SIZE >> 10).map(|number| [number.to_le_bytes(); 128].concat()).collect::<Vec<_>>();
    let bytes = bytes.concat()[..SIZE as usize].to_vec();
    Bed { fake, home, bytes }
}

fn file(seconds: i64) -> Entry {
    let modified = Timestamp { seconds, nanoseconds: 5 };
    Entry {
        id: ObjectId(1),
        parent: ObjectId::ROOT,
        name: Name::new(b"large").unwrap(),
        kind: Kind::File,
        mode: 0o644,
        generation: Generation { size_bytes: SIZE, modified, ..Generation::default() },
        attributes: None,
    }
}

impl Bed {
    /// As another process has it.
    fn sink(&self) -> Arc<dyn Sink> {
        self.sink_with(TransferOptions::default())
    }

    /// The same, for chunks of which a part has several.
    fn sink_of_chunks(&self) -> Arc<dyn Sink> {
        self.sink_with(TransferOptions { chunk_bytes: CHUNK, ..TransferOptions::default() })
    }

    fn sink_with(&self, options: TransferOptions) -> Arc<dyn Sink> {
        self.sink_of(&self.buckets(), options)
    }

    fn buckets(&self) -> Buckets {
        let config = StoreConfig {
            endpoint: Some(self.fake.url.clone()),
            region: Some("us-east-1".into()),
            credentials_file: Some(self.home.path().join("keys")),
            ..StoreConfig::default()
        };
        let buckets = Buckets::new(BTreeMap::from([("fake".to_owned(), config)]));
        buckets.keep_uploads_in(self.home.path().join("uploads"))
    }

    fn sink_of(&self, buckets: &Buckets, options: TransferOptions) -> Arc<dyn Sink> {
        let location = Location::Url { scheme: "s3+fake".into(), rest: format!("{BUCKET}/").into_bytes() };
        let (rights, shape) = (Rights::Write, Shape::Tree);
        let request = SinkRequest { rights, shape, is_nameless: false, is_own: false, options: &options };
        buckets.sink(&location, &request).ok().unwrap().sink
    }

    fn extent(&self, number: u64) -> Extent {
        Extent::new(number * PART, SIZE.min((number + 1) * PART))
    }

    fn chunk(&self, number: u64) -> (Extent, Digest) {
        let extent = self.extent(number);
        (extent, DigestAlgorithm::Crc64Nvme.of_object(&self.bytes[extent.start as usize..extent.end as usize]))
    }

    /// The chunks from here on, with their digests.
    fn chunks(&self, start: u64) -> Vec<(Extent, Digest)> {
        let chunk = |start: u64| {
            let extent = Extent::new(start, SIZE.min(start + CHUNK));
            (extent, DigestAlgorithm::Crc64Nvme.of_object(self.content(extent)))
        };
        (start..SIZE).step_by(CHUNK as usize).map(chunk).collect()
    }

    fn content(&self, extent: Extent) -> &[u8] {
        &self.bytes[extent.start as usize..extent.end as usize]
    }

    /// Writes chunks as a lane does that verifies them.
    fn bring(&self, upload: &dyn StagedFile, chunks: &[(Extent, Digest)]) {
        for (extent, _) in chunks {
            upload.write_at(extent.start, self.content(*extent)).unwrap();
            upload.seal_extent(*extent, b"record").unwrap();
        }
    }

    fn write(&self, upload: &dyn StagedFile, numbers: &[u64]) {
        for number in numbers {
            let extent = self.extent(*number);
            upload.write_at(extent.start, &self.bytes[extent.start as usize..extent.end as usize]).unwrap();
        }
    }

    /// An attempt that ends after these parts, as one does that is killed: its sink forgets nothing.
    fn attempt(&self, numbers: &[u64]) {
        let (upload, journal) = self.sink().begin(&file(1), "stem").unwrap();
        assert!(journal.is_empty());
        self.write(&*upload, numbers);
        upload.append_journal(b"journal").unwrap();
    }

    /// What the next attempt finds of the recorded parts; then it sends the rest and publishes. Bytes of parts that were sent.
    fn finish(&self, recorded: &[u64]) -> (Option<Vec<bool>>, u64) {
        let before = self.fake.state.lock().unwrap().part_bytes_taken;
        let sink = self.sink();
        let (upload, journal) = sink.begin(&file(1), "stem").unwrap();
        let recorded: Vec<_> = recorded.iter().map(|number| self.chunk(*number)).collect();
        let kept = (!journal.is_empty()).then(|| upload.kept(&recorded).unwrap());
        let held = kept.clone().unwrap_or_else(|| vec![false; recorded.len()]);
        let held: Vec<_> =
            recorded.iter().zip(held).filter(|(_, held)| *held).map(|((extent, _), _)| *extent).collect();
        let rest: Vec<u64> = (0..6).filter(|number| !held.contains(&self.extent(*number))).collect();
        self.write(&*upload, &rest);
        upload.publish(&file(1), PublishRule::NoReplace).unwrap();
        assert!(self.fake.content("large").as_ref() == Some(&self.bytes));
        let state = self.fake.state.lock().unwrap();
        assert!(state.uploads.is_empty(), "nothing is left at the store");
        (kept, state.part_bytes_taken - before)
    }

    fn logs(&self) -> usize {
        std::fs::read_dir(self.home.path().join("uploads")).map_or(0, Iterator::count)
    }
}

#[test]
fn an_attempt_that_is_interrupted_leaves_what_was_sent_though_it_gives_its_staging_up() {
    let bed = bed();
    let sink = bed.sink();
    let (upload, _) = sink.begin(&file(1), "stem").unwrap();
    bed.write(&*upload, &[0, 2]);
    upload.append_journal(b"journal").unwrap();
    sink.interrupt();
    // There is no room for another part any more.
    assert!(upload.write_at(3 * PART, b"x").is_err());
    upload.discard();
    drop((upload, sink));
    assert_eq!(bed.finish(&[0, 2]), (Some(vec![true; 2]), SIZE - 2 * PART));
}

#[test]
fn an_attempt_goes_on_with_the_parts_that_the_store_holds() {
    let bed = bed();
    bed.fake.state.lock().unwrap().page_max = 2;
    bed.attempt(&[0, 2, 3]);
    assert_eq!((bed.fake.state.lock().unwrap().uploads.len(), bed.logs()), (1, 2));
    assert!(bed.sink().has_journal(&file(1), "stem") && !bed.sink().has_journal(&file(1), "other"));
    assert_eq!(bed.finish(&[0, 2, 3]), (Some(vec![true; 3]), SIZE - 3 * PART));
    assert_eq!(bed.logs(), 0);
}

#[test]
fn a_part_counts_when_its_chunk_was_verified_and_a_chunk_when_its_part_is_there() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    // Part 0 was sent and not yet verified, chunk 3 verified and not yet sent.
    assert_eq!(bed.finish(&[1, 3]), (Some(vec![true, false]), SIZE - PART));
}

/// Whoever is told that the rest is done without it sends nothing again.
#[test]
fn what_outlasts_an_attempt_is_whole_parts_that_the_store_confirmed_and_that_were_verified() {
    let bed = bed();
    let (upload, _) = bed.sink().begin(&file(1), "stem").unwrap();
    bed.write(&*upload, &[0]);
    upload.write_at(PART, &bed.bytes[PART as usize..(PART + PART / 2) as usize]).unwrap();
    let first = |bytes: u64| {
        let mut held = ExtentSet::new();
        held.insert(Extent::new(0, bytes));
        held
    };
    while upload.confirmed(&first(PART + PART / 2)).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(upload.confirmed(&first(PART + PART / 2)), first(PART), "half a part is nowhere but here");
    assert!(upload.confirmed(&first(PART - 1)).is_empty(), "of that part something is not verified");
}

#[test]
fn parts_of_another_content_than_was_verified_come_again() {
    let mut bed = bed();
    bed.attempt(&[0, 1]);
    bed.bytes[5] ^= 1;
    assert_eq!(bed.finish(&[0, 1]), (Some(vec![false, true]), SIZE - PART));
}

#[test]
fn a_part_that_was_replaced_and_not_confirmed_counts_no_more() {
    let bed = bed();
    let (upload, _) = bed.sink().begin(&file(1), "stem").unwrap();
    upload.append_journal(b"journal").unwrap();
    bed.write(&*upload, &[0, 1]);
    upload.write_at(0, b"again").unwrap();
    drop(upload);
    assert_eq!(bed.finish(&[0, 1]), (Some(vec![false, true]), SIZE - PART));
}

#[test]
fn another_version_of_the_source_starts_again_and_ends_what_was_left() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    let (upload, journal) = bed.sink().begin(&file(2), "changed").unwrap();
    assert!(journal.is_empty() && bed.fake.state.lock().unwrap().uploads.is_empty());
    upload.discard();
    // Another mode or time that is to be kept is another version too, whatever the stem says.
    bed.attempt(&[0, 1]);
    assert!(!bed.sink().has_journal(&file(2), "stem"));
    assert!(bed.sink().begin(&file(2), "stem").unwrap().1.is_empty());
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty());
}

#[test]
fn two_attempts_at_once_share_nothing() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    let first = bed.sink().begin(&file(1), "stem").unwrap();
    let (second, journal) = bed.sink().begin(&file(1), "stem").unwrap();
    assert!(!first.1.is_empty() && journal.is_empty());
    bed.write(&*second, &[0, 1, 2, 3, 4, 5]);
    second.publish(&file(1), PublishRule::NoReplace).unwrap();
    assert_eq!(bed.fake.state.lock().unwrap().uploads.len(), 1, "the first has its own still");
}

#[test]
fn an_upload_that_somebody_aborted_is_begun_again() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    bed.fake.state.lock().unwrap().uploads.clear();
    assert_eq!(bed.finish(&[0, 1]), (None, SIZE));
}

#[test]
fn keys_that_have_expired_cost_nothing_of_what_was_sent() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    bed.fake.order("GET", "uploadId=", 0, 1, Fault::Expired);
    let refused = bed.sink().begin(&file(1), "stem").err().unwrap();
    assert_eq!((refused.kind, bed.fake.fired()), (FailureKind::Permission, 1));
    assert_eq!(bed.finish(&[0, 1]), (Some(vec![true; 2]), SIZE - 2 * PART));
}

#[test]
fn a_store_that_does_not_answer_whoever_is_to_stop_keeps_what_was_sent() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    let stop = Stop::by(Arc::new(AtomicBool::new(true)));
    let sink = bed.sink_of(&bed.buckets().stopped_by(stop), TransferOptions::default());
    // Where a connection was kept it is asked once more over a new one.
    bed.fake.order("GET", "uploadId=", 0, 2, Fault::LostAnswer);
    assert!(sink.begin(&file(1), "stem").is_err() && bed.fake.fired() > 0);
    drop(sink);
    assert_eq!(bed.finish(&[0, 1]), (Some(vec![true; 2]), SIZE - 2 * PART));
}

#[test]
fn a_store_that_lies_about_its_parts_is_not_believed() {
    type Lie = fn(String) -> String;
    let lies: [(&str, Lie); 8] = [
        ("sizes", |xml| xml.replace("<Size>8388608", "<Size>8388609")),
        ("huge sizes", |xml| xml.replace("<Size>8", "<Size>99999999999999999999")),
        ("no checksums", |xml| xml.replace("ChecksumCRC64NVME", "ChecksumCRC32")),
        ("other checksums", |xml| {
            xml.replace("<ChecksumCRC64NVME>", "<ChecksumCRC64NVME>AAAAAAAAAAA=</ChecksumCRC64NVME><ChecksumCRC64NVME>")
        }),
        ("other ETags", |xml| xml.replace("&quot;</ETag>", "0&quot;</ETag>")),
        ("no part 1", |xml| {
            xml.replace("<PartNumber>1<", "<PartNumber>0<").replace("<PartNumber>2<", "<PartNumber>10001<")
        }),
        ("another upload", |xml| xml.replace("<UploadId>", "<UploadId>x")),
        ("a list that does not go on", |xml| xml.replace("<IsTruncated>false", "<IsTruncated>true")),
    ];
    for (what, lie) in lies {
        let bed = bed();
        bed.attempt(&[0, 1]);
        bed.fake.state.lock().unwrap().parts_told = Some(lie);
        assert_eq!(bed.finish(&[0, 1]), (None, SIZE), "{what}");
    }
}

#[test]
fn a_part_that_is_named_twice_counts_not_at_all() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    bed.fake.state.lock().unwrap().parts_told = Some(|xml| {
        xml.replace(
            "</ListPartsResult>",
            "<Part><PartNumber>1</PartNumber><ETag>x</ETag><Size>1</Size></Part></ListPartsResult>",
        )
    });
    assert_eq!(bed.finish(&[0, 1]), (Some(vec![false, true]), SIZE - PART));
}

#[test]
fn parts_that_the_store_only_claims_to_hold_make_no_object() {
    let bed = bed();
    bed.attempt(&[0, 1]);
    let sink = bed.sink();
    let (upload, _) = sink.begin(&file(1), "stem").unwrap();
    assert_eq!(upload.kept(&[bed.chunk(0), bed.chunk(1)]), Some(vec![true; 2]));
    bed.fake.state.lock().unwrap().uploads.values_mut().next().unwrap().parts.remove(&1);
    bed.write(&*upload, &[2, 3, 4, 5]);
    upload.publish(&file(1), PublishRule::NoReplace).unwrap_err();
    assert_eq!((bed.fake.content("large"), bed.logs()), (None, 0));
    drop(upload);
    assert_eq!(bed.finish(&[0, 1]), (None, SIZE));
}

#[test]
fn what_a_store_in_trouble_has_stays_for_the_next_attempt() {
    let bed = bed();
    let (upload, _) = bed.sink().begin(&file(1), "stem").unwrap();
    upload.append_journal(b"journal").unwrap();
    bed.write(&*upload, &[0, 1]);
    while bed.fake.state.lock().unwrap().part_bytes_taken < 2 * PART {
        std::thread::yield_now();
    }
    bed.fake.order("PUT", "partNumber=3", 0, 100, Fault::AtOnce);
    bed.write(&*upload, &[2]);
    upload.publish(&file(1), PublishRule::NoReplace).unwrap_err();
    upload.discard();
    assert_eq!(bed.fake.state.lock().unwrap().uploads.len(), 1);
    let (_, journal) = bed.sink().begin(&file(1), "stem").unwrap();
    assert!(!journal.is_empty());
}

#[test]
fn what_a_store_in_trouble_does_not_put_together_stays_for_the_next_attempt() {
    let bed = bed();
    let all = [0, 1, 2, 3, 4, 5];
    let (upload, _) = bed.sink().begin(&file(1), "stem").unwrap();
    upload.append_journal(b"journal").unwrap();
    bed.write(&*upload, &all);
    // As often as it is asked.
    bed.fake.order("POST", "?uploadId=", 0, 8, Fault::AtOnce);
    upload.publish(&file(1), PublishRule::NoReplace).unwrap_err();
    upload.discard();
    drop(upload);
    assert_eq!((bed.fake.fired(), bed.fake.state.lock().unwrap().uploads.len(), bed.logs()), (8, 1, 2));
    assert_eq!(bed.finish(&all), (Some(vec![true; 6]), 0));
}

/// Bytes of a part that has left are nowhere any more.
#[test]
fn a_part_of_which_only_something_came_again_makes_no_object() {
    let bed = bed();
    for chunk_bytes in [CHUNK, TransferOptions::default().chunk_bytes] {
        let sink = bed.sink_with(TransferOptions { chunk_bytes, ..TransferOptions::default() });
        let (upload, _) = sink.begin(&file(1), "stem").unwrap();
        bed.bring(&*upload, &bed.chunks(0));
        let last = bed.chunks(PART - CHUNK)[0];
        bed.bring(&*upload, &[last]);
        let refused = upload.publish(&file(1), PublishRule::NoReplace).unwrap_err();
        assert!(refused.to_string().contains("a part of it is missing"), "{refused}");
        assert_eq!(bed.fake.content("large"), None);
        upload.discard();
    }
}

/// As it does whose digest was another one, or whose stream ended before its last word.
#[test]
fn a_chunk_that_comes_again_before_it_was_verified_costs_no_other_one() {
    let bed = bed();
    let (upload, _) = bed.sink_of_chunks().begin(&file(1), "stem").unwrap();
    let mut chunks = bed.chunks(0);
    let again = chunks.remove((PART / CHUNK) as usize - 1);
    upload.write_at(again.0.start, &vec![7; CHUNK as usize]).unwrap();
    bed.bring(&*upload, &chunks);
    // Its part waits, and no other one.
    while bed.fake.state.lock().unwrap().part_bytes_taken < 4 * PART {
        std::thread::yield_now();
    }
    assert!(bed.fake.count("partNumber=1&") == 0 && bed.fake.count("partNumber=2&") == 1);
    bed.bring(&*upload, &[again]);
    upload.publish(&file(1), PublishRule::NoReplace).unwrap();
    assert!(bed.fake.content("large").as_ref() == Some(&bed.bytes));
    assert_eq!(bed.fake.state.lock().unwrap().part_bytes_taken, SIZE);
}

/// The last chunk comes again where an earlier attempt left everything, and what shares its part comes with it.
#[test]
fn of_an_upload_that_has_all_its_parts_the_end_comes_again_by_whole_parts() {
    let bed = bed();
    let (upload, _) = bed.sink_of_chunks().begin(&file(1), "stem").unwrap();
    bed.bring(&*upload, &bed.chunks(0));
    // As often as it is asked.
    bed.fake.order("POST", "?uploadId=", 0, 8, Fault::AtOnce);
    upload.publish(&file(1), PublishRule::NoReplace).unwrap_err();
    upload.discard();
    drop(upload);
    let (upload, journal) = bed.sink_of_chunks().begin(&file(1), "stem").unwrap();
    assert!(!journal.is_empty());
    let recorded = bed.chunks(0);
    assert_eq!(upload.kept(&recorded), Some(vec![true; recorded.len()]));
    let from = upload.again_from(5 * PART - CHUNK);
    assert_eq!((from, upload.again_from(5 * PART)), (4 * PART, 5 * PART));
    bed.bring(&*upload, &bed.chunks(from));
    upload.publish(&file(1), PublishRule::NoReplace).unwrap();
    assert!(bed.fake.content("large").as_ref() == Some(&bed.bytes));
}

/// Nobody goes on with what a pipe brought: the next attempt ends it.
#[test]
fn an_upload_whose_end_was_not_known_is_ended_and_not_gone_on_with() {
    let bed = bed();
    let (mut entry, open_part) = (file(1), 64 << 20);
    entry.generation.size_bytes = 0;
    let (upload, _) = bed.sink().begin(&entry, "stem").unwrap();
    let block = vec![7; CHUNK as usize];
    // Beyond the first part, which leaves then.
    for at in (0..open_part + CHUNK).step_by(CHUNK as usize) {
        upload.write_at(at, &block).unwrap();
        upload.seal_extent(Extent::new(at, at + CHUNK), b"record").unwrap();
    }
    while bed.fake.state.lock().unwrap().part_bytes_taken < open_part {
        std::thread::yield_now();
    }
    let mut held = ExtentSet::new();
    held.insert(Extent::new(0, open_part));
    assert!(upload.confirmed(&held).is_empty() && bed.logs() == 2);
    // As one leaves it that is killed: nobody has its log.
    for log in std::fs::read_dir(bed.home.path().join("uploads")).unwrap() {
        let (log, copy) = (log.unwrap().path(), bed.home.path().join("copy"));
        std::fs::copy(&log, &copy).unwrap();
        std::fs::rename(copy, log).unwrap();
    }
    let (_again, journal) = bed.sink().begin(&entry, "stem").unwrap();
    assert!(journal.is_empty() && bed.fake.state.lock().unwrap().uploads.is_empty());
}

#[test]
fn an_upload_whose_end_was_not_known_leaves_nothing_where_it_is_given_up() {
    let bed = bed();
    let mut entry = file(1);
    entry.generation.size_bytes = 0;
    let sink = bed.sink_with(TransferOptions { chunk_bytes: 64 << 20, ..TransferOptions::default() });
    let (upload, _) = sink.begin(&entry, "stem").unwrap();
    upload.write_at(0, &vec![7; 64 << 20]).unwrap();
    drop(upload);
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty() && bed.logs() == 0);
}
