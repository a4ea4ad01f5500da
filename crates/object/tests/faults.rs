//! A store that fails, lies or answers late: what comes of a copy then.

mod support;

use fakes::{BUCKET, Fault, SECRET};
use model::{Entry, FailureKind, Kind, Location, Name, ObjectId, TransferOptions};
use object::{Buckets, StoreConfig};
use std::collections::{BTreeMap, HashMap};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use store::open::{Opener, Refused};
use store::{Decision, Found, OpenError, PublishRule, Sink, Source, SourceFile};
use support::{Bed, bed, bed_of, bed_with, buckets, file, location, noise, open_in, put};

impl Bed {
    /// The whole bucket, as a process has it that finds in a directory what others learnt.
    fn source_after(&self, known: &Path) -> Arc<dyn Source> {
        let buckets = buckets(&self.config).keep_known_in(known.to_owned());
        buckets.source(&[location(&format!("{BUCKET}/"))], &TransferOptions::default()).ok().unwrap().source
    }

    fn refused(&self, path: &str) -> (Refused, String) {
        match self.buckets.source(&[location(path)], &TransferOptions::default()) {
            Err(OpenError::Refused { why, text, .. }) => (why, text),
            Err(e) => panic!("{e}"),
            Ok(_) => panic!("it was opened"),
        }
    }
}

#[test]
fn what_a_store_refuses_for_a_while_arrives_all_the_same() {
    for fault in [Fault::Status(500), Fault::Status(503), Fault::OkWithError, Fault::LostAnswer] {
        let bed = bed();
        let bytes = noise(20 << 20);
        bed.fake.order("PUT", "partNumber", 1, 2, fault);
        bed.fake.order("POST", "?uploads=", 0, 1, Fault::Status(503));
        bed.fake.order("POST", "?uploadId=", 0, 1, fault);
        bed.put_large("large", &bytes).unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert!(bed.fake.content("large").as_ref() == Some(&bytes), "{fault:?}");
        assert!(bed.fake.fired() >= 3 && bed.fake.state.lock().unwrap().uploads.is_empty(), "{fault:?}");
    }
}

#[test]
fn a_small_object_whose_answer_was_lost_is_found_to_be_there() {
    let bed = bed();
    bed.put("first", b"x").unwrap();
    bed.fake.order("PUT", "/small", 0, 1, Fault::LostAnswer);
    bed.put("small", b"content").unwrap();
    assert_eq!((bed.fake.content("small").as_deref(), bed.fake.fired()), (Some(&b"content"[..]), 1));
}

#[test]
fn what_has_arrived_damaged_and_cannot_be_sent_again_does_not_stay() {
    for is_damaged in [true, false] {
        let bed = bed();
        bed.put("first", b"x").unwrap();
        bed.fake.order("PUT", "/bkt/small", 0, 1, Fault::WrongSum);
        bed.fake.order("PUT", "/bkt/small", 0, 9, Fault::Status(403));
        if is_damaged {
            bed.fake.order("HEAD", "/bkt/small", 0, 9, Fault::WrongSum);
        }
        let put = bed.put("small", b"content").map_err(|error| error.kind);
        // What only the first answer said wrong is there.
        let (expected, there) = match is_damaged {
            true => (Err(FailureKind::DigestMismatch), None),
            false => (Ok(()), Some(&b"content"[..])),
        };
        assert_eq!((put, bed.fake.content("small").as_deref()), (expected, there));
    }
}

#[test]
fn what_has_arrived_damaged_without_an_answer_does_not_stay_and_what_stood_there_before_does() {
    let bed = bed();
    bed.put("first", b"x").unwrap();
    bed.fake.order("PUT", "/bkt/small", 0, 1, Fault::LostAnswer);
    bed.fake.order("HEAD", "/bkt/small", 0, 9, Fault::WrongSum);
    assert_eq!(bed.put("small", b"content").unwrap_err().kind, FailureKind::DigestMismatch);
    assert_eq!(bed.fake.content("small"), None);
    // Of the same size and time, and nothing took its place.
    bed.put("other", b"earlier").unwrap();
    let sink = bed.sink();
    let _ = sink.decide(&file(1, "other", 7));
    bed.fake.order("PUT", "/bkt/other", 0, 99, Fault::AtOnce);
    assert!(put(&*sink, "other", b"content", PublishRule::Replace).is_err());
    assert_eq!(bed.fake.content("other").as_deref(), Some(&b"earlier"[..]));
}

#[test]
fn a_rival_is_not_replaced() {
    let bed = bed();
    let sink = bed.sink();
    assert!(matches!(sink.decide(&file(1, "a", 3)), Ok(Decision::Absent)));
    bed.fake.put("a", b"rival");
    let error = put(&*sink, "a", b"own", PublishRule::NoReplace).unwrap_err();
    assert_eq!((error.kind, bed.fake.content("a").as_deref()), (FailureKind::InTheWay, Some(&b"rival"[..])));
    // One that replaces replaces what was seen, and nothing that came after that.
    let sink = bed.sink();
    assert!(matches!(sink.decide(&file(1, "a", 3)), Ok(Decision::Replace { .. })));
    bed.fake.put("a", b"later rival");
    assert_eq!(put(&*sink, "a", b"own", PublishRule::Replace).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("a").as_deref(), Some(&b"later rival"[..]));
    // One of parts is as careful.
    bed.fake.put("large", b"rival");
    assert_eq!(bed.put_large("large", &noise(20 << 20)).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("large").as_deref(), Some(&b"rival"[..]));
}

/// A store may keep to conditions where it is sent content, and pass them over where it makes an object of what it has.
#[test]
fn a_rival_is_not_replaced_by_what_the_store_has_already() {
    let bed = bed();
    bed.fake.state.lock().unwrap().is_conditional_by_put_alone = true;
    bed.fake.put("from", b"content");
    let entry = file(1, "to", 7);
    // Something appears after it was decided what may be replaced.
    let publish = |sink: &dyn Sink, rule: PublishRule, rival: &[u8]| {
        let (upload, _) = sink.begin(&entry, "stem").unwrap();
        assert!(upload.share_from(&*bed.open("from")));
        bed.fake.put("to", rival);
        let refused = upload.publish(&entry, rule).unwrap_err();
        assert_eq!((refused.kind, bed.fake.content("to").as_deref()), (FailureKind::InTheWay, Some(rival)));
    };
    let sink = bed.sink();
    assert!(matches!(sink.decide(&entry), Ok(Decision::Absent)));
    publish(&*sink, PublishRule::NoReplace, b"rival");
    let sink = bed.sink();
    assert!(matches!(sink.decide(&entry), Ok(Decision::Replace { .. })));
    publish(&*sink, PublishRule::Replace, b"later rival");
    // So it is with what was sent in parts.
    bed.fake.put("large", b"rival");
    assert_eq!(bed.put_large("large", &noise(20 << 20)).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("large").as_deref(), Some(&b"rival"[..]));
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty());
}

/// The second attempt replaces no more than the first.
#[test]
fn what_was_decided_on_holds_for_every_attempt() {
    let bed = bed();
    bed.fake.put("a", b"seen");
    let sink = bed.sink();
    assert!(matches!(sink.decide(&file(1, "a", 3)), Ok(Decision::Replace { .. })));
    bed.fake.order("PUT", "/bkt/a", 0, 1, Fault::Status(403));
    assert!(put(&*sink, "a", b"own", PublishRule::Replace).is_err());
    bed.fake.put("a", b"rival");
    assert_eq!(put(&*sink, "a", b"own", PublishRule::Replace).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("a").as_deref(), Some(&b"rival"[..]));
}

/// What was compared, too.
#[test]
fn what_was_compared_is_what_is_replaced_or_given_a_time() {
    let bed = bed();
    bed.fake.put("a", b"old");
    let (sink, entry) = (bed.sink(), file(1, "a", 3));
    sink.open_published(&entry).unwrap();
    bed.fake.put("a", b"new");
    assert_eq!(sink.touch(&entry).unwrap_err().kind, FailureKind::InTheWay);
    sink.open_published(&entry).unwrap();
    bed.fake.put("a", b"newer");
    assert_eq!(put(&*sink, "a", b"own", PublishRule::Replace).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("a").as_deref(), Some(&b"newer"[..]));
}

fn headers(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn an_object_that_is_given_a_time_keeps_what_else_was_said_of_it() {
    let said = [
        ("cache-control", "no-store"),
        ("content-disposition", "attachment; filename=\"a  b\""),
        ("content-encoding", "zstd"),
        ("content-language", "sgs"),
        ("content-type", "text/plain"),
        ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
        ("x-amz-meta-mode", "33188"),
        ("x-amz-meta-run", "42"),
        ("x-amz-storage-class", "STANDARD_IA"),
    ];
    let bed = bed();
    bed.fake.put("a", b"same");
    let before = [&said[..], &[("x-amz-meta-mtime", "5.000000000")]].concat();
    bed.fake.state.lock().unwrap().objects.get_mut("a").unwrap().meta = headers(&before);
    bed.sink().touch(&file(1, "a", 4)).unwrap();
    let after = [&said[..], &[("x-amz-meta-mtime", "1600000000.000000005")]].concat();
    let meta = || {
        let mut meta = bed.fake.state.lock().unwrap().objects["a"].meta.clone();
        meta.sort();
        meta
    };
    let mut expected = headers(&after);
    expected.sort();
    assert_eq!((meta(), bed.fake.content("a").as_deref()), (expected, Some(&b"same"[..])));
    // What the store copies by no one request stays as it is, and that is told.
    let bed = bed_of("fake", SECRET, Some(3), str::to_owned);
    bed.fake.put("a", b"same");
    let refused = bed.sink().touch(&file(1, "a", 4)).unwrap_err();
    assert!(refused.to_string().contains("old time") && bed.fake.count("PUT ") == 0, "{refused}");
}

#[test]
fn an_object_with_content_that_is_called_like_a_directory_stays() {
    let bed = bed();
    bed.fake.put("gone/", b"content");
    bed.fake.put("gone/x", b"1");
    let (removed, failed) = prune(&*bed.sink());
    assert!(removed == ["gone/x"] && failed.is_empty(), "{removed:?} {failed:?}");
    assert_eq!(bed.fake.content("gone/").as_deref(), Some(&b"content"[..]));
}

#[test]
fn an_object_with_content_stays_where_directories_to_be_removed_are_named() {
    let bed = bed();
    bed.fake.put("a/gone/", b"content");
    bed.fake.put("a/gone/x", b"1");
    bed.fake.put("a/", b"");
    bed.fake.put("b/", b"");
    let paths = [("a/gone/x", false), ("a/gone", true), ("a", true), ("b", true), ("c", true)];
    let mut paths = paths.iter().map(|(path, is_directory)| (path.as_bytes().to_vec(), *is_directory));
    let (removed, failed) = told(|prune| bed.sink().prune_paths(&mut || paths.next(), prune));
    assert!(removed == ["a/gone/x", "b", "c"] && failed.is_empty(), "{removed:?} {failed:?}");
    let there: Vec<_> = bed.fake.state.lock().unwrap().objects.keys().cloned().collect();
    assert_eq!(there, ["a/", "a/gone/"]);
    assert_eq!(bed.fake.content("a/gone/").as_deref(), Some(&b"content"[..]));
}

/// Of a large directory names are kept by their hashes, and what stands below one of them is asked for.
#[test]
fn an_object_with_content_stays_where_its_directory_is_made() {
    let bed = bed();
    (0..20).for_each(|number| bed.fake.put(&format!("f{number:02}"), b"x"));
    bed.fake.put("d/", b"content");
    bed.fake.state.lock().unwrap().page_max = 1;
    let directory = |name: &str| Entry { kind: Kind::Directory, ..file(2, name, 0) };
    let sink = bed.sink();
    sink.make_directory(&directory("d")).unwrap();
    assert_eq!(bed.fake.content("d/").as_deref(), Some(&b"content"[..]));
    // What appears after the look stays as well.
    bed.fake.put("e/", b"content");
    sink.make_directory(&directory("e")).unwrap();
    sink.make_directory(&directory("g")).unwrap();
    let content = |key: &str| bed.fake.content(key);
    assert_eq!((content("e/"), content("g/")), (Some(b"content".to_vec()), Some(Vec::new())));
}

#[test]
fn a_store_that_passes_conditions_over_is_looked_at_before_it_is_written_to() {
    let bed = bed();
    bed.fake.state.lock().unwrap().is_unconditional = true;
    let sink = bed.sink();
    assert!(matches!(sink.decide(&file(1, "a", 3)), Ok(Decision::Absent)));
    bed.fake.put("a", b"rival");
    assert_eq!(put(&*sink, "a", b"own", PublishRule::NoReplace).unwrap_err().kind, FailureKind::InTheWay);
    assert_eq!(bed.fake.content("a").as_deref(), Some(&b"rival"[..]));
    put(&*sink, "b", b"own", PublishRule::NoReplace).unwrap();
    assert_eq!(bed.fake.count(".thalweg-probe-") > 0, bed.fake.content("b").is_some());
}

#[test]
fn a_trial_that_is_refused_tells_nothing_of_the_store() {
    let bed = bed();
    bed.fake.order("PUT", "/one/.thalweg-probe-", 0, 1, Fault::Status(403));
    let put_in = |prefix: &str| put(&*bed.sink_at(prefix), "a", b"own", PublishRule::NoReplace).unwrap();
    put_in("one/");
    put_in("two/");
    // Where it is not known that the store keeps to conditions it is looked at before it is written to.
    let looks = |key: &str| bed.fake.count(&format!("HEAD /bkt/{key}"));
    assert_eq!((bed.fake.fired(), looks("one/a"), looks("two/a")), (1, 1, 0));
}

#[test]
fn keys_that_may_write_and_not_remove_write_and_one_trial_object_is_told_of() {
    let bed = bed();
    bed.fake.order("DELETE", ".thalweg-probe-", 0, 9, Fault::Status(403));
    let sink = bed.sink();
    for name in ["a", "b"] {
        put(&*sink, name, b"own", PublishRule::NoReplace).unwrap();
    }
    let state = bed.fake.state.lock().unwrap();
    assert_eq!(state.objects.keys().filter(|key| key.starts_with(".thalweg-probe-")).count(), 1);
    drop(state);
    let notes = sink.notes();
    assert!(notes.iter().any(|note| note.contains(".thalweg-probe-") && note.contains("s3:DeleteObject")), "{notes:?}");
}

/// Its content was there before, of another time: that the store never wrote it is not taken for a success.
#[test]
fn a_write_that_was_refused_is_none_though_the_same_content_stands_there() {
    let bed = bed();
    put(&*bed.sink(), "a", b"same", PublishRule::NoReplace).unwrap();
    bed.fake.state.lock().unwrap().objects.get_mut("a").unwrap().meta = headers(&[("x-amz-meta-mtime", "5.000000000")]);
    let (sink, entry) = (bed.sink(), file(1, "a", 4));
    assert!(matches!(sink.decide(&entry), Ok(Decision::Replace { .. })));
    // As often as it is asked.
    bed.fake.order("PUT", "/bkt/a", 0, 8, Fault::AtOnce);
    assert!(put(&*sink, "a", b"same", PublishRule::Replace).is_err());
    assert_eq!(bed.fake.fired(), 8);
}

#[test]
fn what_comes_in_one_piece_and_is_longer_than_a_part_is_sent_while_it_comes() {
    let bed = bed();
    let (sink, bytes) = (bed.sink(), noise(20 << 20));
    let entry = file(1, "large", bytes.len() as u64);
    let mut lane = sink.lane(false).unwrap();
    // What is given up leaves nothing.
    lane.create(&entry, PublishRule::NoReplace).unwrap();
    lane.write(&bytes[..9 << 20]).unwrap();
    lane.abandon();
    assert_eq!(bed.fake.count("partNumber"), 1);
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty());
    lane.create(&entry, PublishRule::NoReplace).unwrap();
    bytes.chunks(1 << 20).for_each(|block| lane.write(block).unwrap());
    let staged = lane.seal(&entry, true).unwrap();
    assert!(bed.fake.content("large").is_none());
    sink.publish(&entry, staged).unwrap();
    assert!(bed.fake.content("large").as_ref() == Some(&bytes) && bed.fake.count("partNumber") == 4);
    // And so does what is not published.
    lane.create(&entry, PublishRule::NoReplace).unwrap();
    lane.write(&bytes).unwrap();
    sink.discard(lane.seal(&entry, true).unwrap());
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty());
}

#[test]
fn a_size_that_no_object_can_have_is_refused_before_anything_of_it_comes() {
    let bed = bed();
    let (sink, entry) = (bed.sink(), file(1, "huge", i64::MAX as u64));
    assert!(!sink.has_journal(&entry, "stem"));
    assert_eq!(sink.begin(&entry, "stem").err().unwrap().kind, FailureKind::Permission);
    assert!(sink.lane(false).unwrap().create(&entry, PublishRule::NoReplace).is_err());
    assert_eq!(bed.fake.count("POST "), 0);
}

#[test]
fn a_name_that_makes_a_key_too_long_fails_alone() {
    let bed = bed();
    let prefix = format!("{}/", ["d"; 4].map(|name| name.repeat(200)).join("/"));
    let sink = bed.sink_at(&prefix);
    // Each byte that is no UTF-8 takes five in a key.
    for name in [&[b'n'; 255][..], &[0xff_u8; 50]] {
        let entry = Entry { name: Name::new(name).unwrap(), ..file(1, "x", 3) };
        let refused = sink.lane(false).unwrap().create(&entry, PublishRule::NoReplace).unwrap_err();
        assert_eq!(refused.kind, FailureKind::NameRefused);
        assert!(refused.to_string().contains("longer than 1,024 bytes"), "{refused}");
        assert_eq!(sink.begin(&entry, "stem").err().unwrap().kind, FailureKind::NameRefused);
    }
    // Those of 1,024 bytes fit; a directory's has a slash behind it.
    let (fits, too_long) = ("n".repeat(1024 - prefix.len()), "n".repeat(1025 - prefix.len()));
    put(&*sink, &fits, b"own", PublishRule::NoReplace).unwrap();
    let directory = |name: &str| Entry { kind: Kind::Directory, ..file(2, name, 0) };
    let refused = [
        put(&*sink, &too_long, b"own", PublishRule::NoReplace),
        sink.make_directory(&directory(&fits.replace('n', "d"))),
    ];
    assert_eq!(refused.map(|refused| refused.unwrap_err().kind), [FailureKind::NameRefused; 2]);
    let below = "d".repeat(1023 - prefix.len());
    sink.make_directory(&directory(&below)).unwrap();
    let there: Vec<_> = bed.fake.state.lock().unwrap().objects.keys().cloned().collect();
    assert_eq!(there, [format!("{prefix}{below}/"), format!("{prefix}{fits}")]);
}

#[test]
fn a_store_that_does_not_answer_keeps_nobody_from_another_one() {
    let bed = bed();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    let silent = StoreConfig { endpoint, anonymous: true, ..StoreConfig::default() };
    let stores = [("fake", bed.config.clone()), ("silent", silent)].map(|(name, config)| (name.to_owned(), config));
    let buckets = Buckets::new(BTreeMap::from(stores));
    let at = |store: &str| Location::Url { scheme: format!("s3+{store}"), rest: format!("{BUCKET}/").into_bytes() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| buckets.place(&at("silent")).is_err());
        // It was asked, and says nothing.
        let asked = listener.accept().unwrap();
        assert!(buckets.place(&at("fake")).is_ok() && !waiting.is_finished());
        drop((asked, listener));
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn many_that_begin_at_once_try_conditions_once() {
    let bed = bed();
    bed.fake.state.lock().unwrap().delay = Duration::from_millis(20);
    let sink = bed.sink();
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d", "e", "f"] {
            let sink = &*sink;
            scope.spawn(move || put(sink, name, b"own", PublishRule::NoReplace).unwrap());
        }
    });
    // Each trial ends with the removal of its object.
    assert_eq!(bed.fake.count("DELETE /bkt/.thalweg-probe-"), 1);
}

#[test]
fn conditions_are_tried_beside_the_parts_and_nothing_of_that_stays() {
    let bed = bed();
    let (sink, entry) = (bed.sink(), file(1, "a", 24 << 20));
    let (upload, _) = sink.begin(&entry, "stem").unwrap();
    upload.write_at(0, &vec![7; 8 << 20]).unwrap();
    upload.discard();
    drop(upload);
    assert_eq!(bed.fake.count("DELETE /bkt/.thalweg-probe-"), 1);
    let state = bed.fake.state.lock().unwrap();
    assert!(state.objects.is_empty() && state.uploads.is_empty(), "{:?}", state.objects.keys());
}

#[test]
fn what_breaks_while_it_is_read_goes_on_where_it_stopped() {
    let bed = bed();
    let bytes = noise(20 << 20);
    bed.fake.put("large", &bytes);
    bed.fake.order("GET", "/large", 0, 3, Fault::Cut);
    let (_, read) = bed.read().unwrap();
    assert!(read == bytes && bed.fake.fired() == 3);
}

#[test]
fn a_byte_that_the_store_sends_wrong_is_noticed() {
    let bed = bed();
    bed.fake.put("large", &noise(20 << 20));
    bed.fake.order("GET", "/large", 1, 1, Fault::Flipped);
    assert_eq!(bed.read().unwrap_err().kind, FailureKind::DigestMismatch);
}

#[test]
fn a_whole_object_is_not_taken_for_a_range() {
    let bed = bed();
    bed.fake.put("large", &noise(9 << 20));
    bed.fake.order("GET", "/large", 0, 100, Fault::NoRange);
    assert_eq!(bed.read().unwrap_err().kind, FailureKind::ReadError);
}

#[test]
fn no_other_length_version_or_coding_is_taken_for_what_was_asked_for() {
    for (fault, kind) in [
        (Fault::Longer, FailureKind::ReadError),
        (Fault::Packed, FailureKind::ReadError),
        (Fault::OtherVersion, FailureKind::Changed),
    ] {
        let bed = bed();
        bed.fake.put("large", &noise(9 << 20));
        bed.fake.order("GET", "/large", 0, 100, fault);
        let failed = bed.read().unwrap_err();
        assert!(failed.kind == kind && bed.fake.fired() > 0, "{fault:?}: {failed:?}");
    }
}

#[test]
fn another_clock_and_another_region_are_found_out() {
    let bed = bed();
    bed.fake.state.lock().unwrap().ahead_seconds = 3600;
    bed.fake.state.lock().unwrap().region = "eu-central-7".to_owned();
    bed.put("a", b"x").unwrap();
    assert!(bed.fake.content("a").is_some());
}

#[test]
fn wrong_keys_and_buckets_that_are_not_there_are_told_apart() {
    assert_eq!(bed_with("fake", "wrong").refused(BUCKET).0, Refused::Keys);
    let (why, text) = bed_with("someone", SECRET).refused(BUCKET);
    assert_eq!(why, Refused::Keys);
    assert!(!text.contains(SECRET), "{text}");
    assert_eq!(bed().refused("other/x").0, Refused::Missing);
    assert_eq!(bed().refused("").0, Refused::Request);
    let nobody = StoreConfig { endpoint: Some("http://127.0.0.1:1".into()), anonymous: true, ..StoreConfig::default() };
    let nobody = Bed { buckets: buckets(&nobody), ..bed() };
    assert_eq!(nobody.refused(BUCKET).0, Refused::Unreachable);
}

#[test]
fn keys_that_have_expired_are_told_as_keys() {
    let bed = bed();
    bed.fake.order("GET", "list-type", 0, 9, Fault::Expired);
    let (why, text) = bed.refused(BUCKET);
    assert!(why == Refused::Keys && text.contains("ExpiredToken") && !text.contains(SECRET), "{text}");
}

#[test]
fn a_checksum_of_checksums_of_parts_is_not_taken_for_that_of_the_object() {
    let bed = bed();
    for length in [5, 20 << 20] {
        bed.fake.put("a", &noise(length));
        for method in ["GET", "HEAD"] {
            bed.fake.order(method, "/bkt/a", 0, 1, Fault::Composite);
        }
        let (_, bytes) = bed.read().unwrap();
        assert!(bed.fake.fired() > 0 && bytes == noise(length));
    }
}

/// The way to a server, which can be taken away for a while, with all connections that are on it.
fn road(to: &str, is_closed: Arc<AtomicBool>) -> String {
    let to = to.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut listener, mut open) = (Some(listener), Vec::<TcpStream>::new());
        loop {
            if is_closed.load(Relaxed) {
                listener = None;
                open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
                std::thread::park_timeout(Duration::from_millis(5));
                continue;
            }
            let listener = listener.get_or_insert_with(|| TcpListener::bind(at).unwrap());
            listener.set_nonblocking(true).unwrap();
            let Ok((near, _)) = listener.accept() else {
                std::thread::park_timeout(Duration::from_millis(5));
                continue;
            };
            near.set_nonblocking(false).unwrap();
            let far = TcpStream::connect(&to).unwrap();
            for (mut from, mut to) in
                [(&near, &far), (&far, &near)].map(|(a, b)| (a.try_clone().unwrap(), b.try_clone().unwrap()))
            {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
            open.extend([near, far]);
        }
    });
    format!("http://{at}")
}

#[test]
fn a_store_whose_server_is_started_again_is_waited_for() {
    let is_closed = Arc::new(AtomicBool::new(false));
    let bed = bed_of("fake", SECRET, None, |url| road(url, is_closed.clone()));
    let sink = bed.sink();
    put(&*sink, "before", b"x", PublishRule::NoReplace).unwrap();
    is_closed.store(true, Relaxed);
    let again = is_closed.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        again.store(false, Relaxed);
    });
    put(&*sink, "meanwhile", b"y", PublishRule::NoReplace).unwrap();
    assert_eq!(bed.fake.content("meanwhile").as_deref(), Some(&b"y"[..]));
}

#[test]
fn a_redirect_is_not_followed() {
    let bed = bed();
    bed.fake.order("GET", "list-type", 0, 1, Fault::Abroad);
    assert_eq!(bed.refused(BUCKET).0, Refused::Request);
}

#[test]
fn a_listing_that_never_ends_is_an_error_and_not_a_tree() {
    let bed = bed();
    for number in 0..30 {
        bed.fake.put(&format!("k{number:02}"), b"x");
    }
    {
        let mut state = bed.fake.state.lock().unwrap();
        (state.page_max, state.repeats_pages) = (10, true);
    }
    assert!(bed.read().is_err());
    bed.fake.state.lock().unwrap().has_empty_pages = true;
    assert!(bed.read().is_err());
}

/// What a scan of the whole bucket tells.
fn listed(bed: &Bed) -> Vec<String> {
    names(&*bed.buckets.source(&[location("bkt/")], &TransferOptions::default()).unwrap().source)
}

fn names(source: &dyn Source) -> Vec<String> {
    let (mut above, mut names) = (HashMap::from([(ObjectId::ROOT, String::new())]), Vec::new());
    let scan = source.scan(&mut |found| {
        if let Found::Object(object) = found {
            let Entry { id, parent, name, kind, .. } = object.entry;
            let path = format!("{}{}", above[&parent], String::from_utf8_lossy(name.as_bytes()));
            match kind {
                Kind::File => names.push(path),
                _ => _ = above.insert(id, format!("{path}/")),
            }
        }
        true
    });
    scan.unwrap();
    names
}

#[test]
fn a_listing_by_many_cursors_has_each_key_once_and_in_order() {
    for deep in [false, true] {
        let bed = bed();
        let key = |number: u32| match deep {
            true => format!("d{:02}/e{:02}/f{number}", number % 23, number % 7),
            false => format!("f{number:06}"),
        };
        let mut expected: Vec<String> = (0..3000).map(key).collect();
        expected.iter().for_each(|key| bed.fake.put(key, b"x"));
        expected.sort();
        {
            let mut state = bed.fake.state.lock().unwrap();
            // Pages take longer than whatever is done with them here.
            (state.page_max, state.delay) = (20, Duration::from_millis(20));
        }
        assert_eq!(names(&*bed.sink().mirror().unwrap()), expected);
        assert!(bed.fake.count("start-after=") > 5, "{}", bed.fake.count("start-after="));
        // Guesses cost little beside what was found.
        assert!(bed.fake.count("list-type=2") < 150 * 3 / 2 + 64, "{}", bed.fake.count("list-type=2"));
    }
}

#[test]
fn a_store_that_does_not_begin_behind_a_key_is_listed_by_one_cursor() {
    let bed = bed();
    let mut expected: Vec<String> = (0..300).map(|number| format!("f{number}")).collect();
    expected.iter().for_each(|key| bed.fake.put(key, b"x"));
    expected.sort();
    {
        let mut state = bed.fake.state.lock().unwrap();
        (state.page_max, state.ignores_start_after) = (20, true);
    }
    assert_eq!(listed(&bed), expected);
    assert_eq!(bed.fake.count("start-after="), 1);
}

#[test]
fn keys_that_are_no_path_fail_alone() {
    let bed = bed();
    for key in ["fine", "a//b", "../up", "x/./y"] {
        bed.fake.put(key, b"x");
    }
    let source = bed.buckets.source(&[location(&format!("{BUCKET}/"))], &TransferOptions::default());
    let (mut files, mut failed) = (0, Vec::new());
    source
        .ok()
        .unwrap()
        .source
        .scan(&mut |found| {
            match found {
                Found::Object(object) if object.entry.kind == Kind::File => files += 1,
                Found::Object(_) => {}
                Found::Failed(failure) => failed.push((failure.path, failure.kind)),
            }
            true
        })
        .unwrap();
    let refused = |key: &str| (key.as_bytes().to_vec(), FailureKind::NameRefused);
    assert_eq!((files, failed), (1, vec![refused("../up"), refused("a//b"), refused("x/./y")]));
}

#[test]
fn a_diagnosis_names_what_is_missing_and_leaves_nothing_behind() {
    use store::Weight::{Good, Needed, Note};
    let seen = |bed: &Bed| {
        let seen = bed.buckets.place(&location(&format!("{BUCKET}/"))).ok().unwrap().bucket.diagnose("p/");
        let state = bed.fake.state.lock().unwrap();
        assert!(state.objects.is_empty() && state.uploads.is_empty(), "{:?}", state.objects.keys());
        assert!(
            seen.iter().all(|one| one.weight == Good || (one.advice.is_some() && !one.found.is_empty())),
            "{seen:?}"
        );
        move |subject: &str| seen.iter().find(|one| one.subject == subject).map(|one| one.weight)
    };
    let all =
        ["keys", "store", "clock", "list", "put", "get", "checksum", "damage", "conditions", "delete", "multipart"];
    let well = seen(&bed());
    all.iter().chain(&["resume", "uploads"]).for_each(|subject| assert_eq!(well(subject), Some(Good), "{subject}"));
    let off = bed();
    off.fake.state.lock().unwrap().ahead_seconds = 3600;
    off.fake.state.lock().unwrap().is_unconditional = true;
    off.fake.state.lock().unwrap().parts_told = Some(|xml| xml.replace("ChecksumCRC64NVME", "ChecksumCRC32"));
    let off = seen(&off);
    assert_eq!(["clock", "conditions", "resume"].map(off), [Some(Note); 3]);
    let careless = bed();
    careless.fake.state.lock().unwrap().takes_damage = true;
    let careless = seen(&careless);
    assert_eq!(["checksum", "damage", "resume"].map(careless), [Some(Note); 3]);
    // The second request that puts it is the trial's first.
    let untried = bed();
    untried.fake.order("PUT", "/p/.thalweg", 1, 1, Fault::Status(403));
    assert_eq!(["put", "damage", "conditions"].map(seen(&untried)), [Some(Good), None, Some(Note)]);
    for (method, holds, subject) in
        [("PUT", "partNumber", "multipart"), ("POST", "?uploads", "multipart"), ("GET", "/p/.thalweg", "get")]
    {
        let bed = bed();
        bed.fake.order(method, holds, 0, 1, Fault::Status(403));
        assert_eq!(seen(&bed)(subject), Some(Needed), "{subject}");
    }
    let read_only = bed();
    read_only.fake.order("PUT", "/", 0, 9, Fault::Status(403));
    read_only.fake.order("POST", "/", 0, 9, Fault::Status(403));
    let read_only = seen(&read_only);
    assert_eq!(["put", "multipart", "list"].map(read_only), [Some(Needed), Some(Needed), Some(Good)]);
}

#[test]
fn a_diagnosis_tells_conditions_that_are_not_kept_from_those_that_were_not_tried() {
    let found = |bed: &Bed| {
        let place = bed.buckets.place(&location(&format!("{BUCKET}/"))).ok().unwrap();
        let seen = place.bucket.diagnose("p/");
        seen.into_iter().find(|one| one.subject == "conditions").unwrap().found
    };
    let careless = bed();
    careless.fake.state.lock().unwrap().is_unconditional = true;
    assert!(found(&careless).contains("does not keep"), "{}", found(&careless));
    let untried = bed();
    untried.fake.order("PUT", "/p/.thalweg", 1, 1, Fault::Status(403));
    let told = found(&untried);
    assert!(told.contains("not tried") && !told.contains("does not keep"), "{told}");
}

#[test]
fn a_tree_is_removed_a_page_at_a_time_and_each_key_is_answered_for() {
    let bed = bed();
    let keys = ["t/a", "t/b&<c>", "t/d/e\n", "t/stays", "t/untold", "t/\u{e9}"];
    keys.iter().for_each(|key| bed.fake.put(key, b"x"));
    let mut failed = Vec::new();
    let tree = location(&format!("{BUCKET}/t"));
    let shelf = bed.buckets.shelf(&tree, store::How::Take).ok().unwrap();
    let tally = shelf.remove_tree(&|| false, &mut |path, e| failed.push((path.to_vec(), e.kind)));
    assert_eq!((tally.files, failed), (5, vec![(b"stays".to_vec(), FailureKind::Permission)]));
    assert_eq!(bed.fake.state.lock().unwrap().objects.keys().collect::<Vec<_>>(), ["t/stays"]);
    // What XML cannot say, and what was not answered for, is deleted with a request of its own.
    assert_eq!((bed.fake.count("POST /bkt?delete"), bed.fake.count("DELETE /")), (1, 2));
    // A store that does not know the request.
    keys.iter().for_each(|key| bed.fake.put(key, b"x"));
    bed.fake.order("POST", "?delete", 0, 1, Fault::Status(403));
    let tally = shelf.remove_tree(&|| false, &mut |_, _| {});
    assert_eq!((tally.files, bed.fake.state.lock().unwrap().objects.len()), (6, 0));
}

/// Removes all that stands at the top but what is called `kept`; what was told to be removed, and what failed.
fn prune(sink: &dyn Sink) -> (Vec<String>, Vec<String>) {
    told(|prune| sink.prune(prune))
}

fn told(pruned: impl FnOnce(&mut store::Prune<'_>)) -> (Vec<String>, Vec<String>) {
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    pruned(&mut store::Prune {
        directories: &[ObjectId::ROOT],
        is_listed: &|_, name| name.as_bytes() == b"kept",
        is_listed_alike: &|_, _| false,
        fate: &|_, _| store::Fate::Remove,
        is_rehearsal: false,
        removed: &mut |path, _| removed.push(String::from_utf8(path.to_vec()).unwrap()),
        failed: &mut |failure| failed.push(String::from_utf8(failure.path).unwrap()),
        goes_on: &|| true,
    });
    (removed, failed)
}

#[test]
fn what_the_source_does_not_have_is_removed_by_the_thousand() {
    let bed = bed();
    for number in 0..2500 {
        bed.fake.put(&format!("d{}/{number:04}", number % 3), b"x");
    }
    bed.fake.put("kept", b"x");
    let (removed, failed) = prune(&*bed.sink());
    assert_eq!((removed.len(), failed.len()), (2503, 0));
    // A directory comes behind what is in it.
    let place = |path: &str| removed.iter().position(|one| one == path).unwrap();
    assert!(place("d0/2499") < place("d0") && place("d0") < place("d1/0001"));
    assert_eq!((bed.fake.count("POST /bkt?delete"), bed.fake.count("DELETE ")), (3, 0));
    assert!(bed.fake.content("kept").is_some() && bed.fake.content("d1/0001").is_none());
}

#[test]
fn what_stays_against_all_wishes_keeps_its_directories() {
    let bed = bed();
    for key in ["d/", "d/a", "d/e/b", "f/c"] {
        bed.fake.put(key, b"");
    }
    // Neither together nor alone.
    bed.fake.order("POST", "delete", 0, 9, Fault::Status(403));
    bed.fake.order("DELETE", "d/e/b", 0, 9, Fault::Status(403));
    let (mut removed, failed) = prune(&*bed.sink());
    removed.sort();
    assert_eq!((removed, failed), (vec!["d/a".into(), "f".into(), "f/c".into()], vec!["d/e/b".to_owned()]));
    assert!(bed.fake.content("d/").is_some() && bed.fake.content("d/e/b").is_some());
}

#[test]
fn a_store_copies_its_own_objects_and_is_believed_when_it_says_the_same_checksum() {
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    for refuses in [false, true] {
        let bed = bed();
        bed.put_large("from", &bytes).unwrap();
        let opened = bed.open("from");
        if refuses {
            bed.fake.order("PUT", "/to", 0, 9, Fault::Status(403));
        }
        let (sink, entry) = (bed.sink(), file(1, "to", bytes.len() as u64));
        let (upload, _) = sink.begin(&entry, "stem").unwrap();
        assert!(upload.share_from(&*opened));
        let published = upload.publish(&entry, PublishRule::NoReplace);
        assert_eq!(published.is_err(), refuses, "{published:?}");
        assert_eq!(bed.fake.content("to").is_some_and(|there| there == bytes), !refuses);
        // It is not asked a second time.
        drop(upload);
        let (upload, _) = sink.begin(&entry, "stem").unwrap();
        assert_eq!(upload.share_from(&*opened), !refuses);
        assert_eq!(bed.fake.count("partNumber"), 2, "of what was put there first");
    }
}

#[test]
fn an_object_that_cannot_be_copied_for_what_it_is_keeps_no_other_from_being_copied() {
    let bed = bed();
    ["from", "gone"].iter().for_each(|key| bed.fake.put(key, b"content"));
    let (from, gone) = (bed.open("from"), bed.open("gone"));
    bed.fake.state.lock().unwrap().objects.remove("gone");
    let sink = bed.sink();
    let copy = |name: &str, of: &dyn SourceFile| {
        let entry = file(1, name, 7);
        let (upload, _) = sink.begin(&entry, "stem").unwrap();
        upload.share_from(of).then(|| upload.publish(&entry, PublishRule::NoReplace).map_err(|e| e.kind))
    };
    assert_eq!(copy("a", &*gone), Some(Err(FailureKind::NotFound)));
    assert_eq!(copy("b", &*from), Some(Ok(())));
    // One that is refused later comes through this host, and it alone.
    bed.fake.order("PUT", "/bkt/c", 0, 9, Fault::Status(403));
    assert_eq!(copy("c", &*from), Some(Err(FailureKind::Other)));
    assert_eq!((copy("c", &*from), copy("d", &*from)), (None, Some(Ok(()))));
    // One that lies in an archive is not to be had through this host either.
    bed.fake.order("PUT", "/bkt/e", 0, 9, Fault::Archived);
    assert_eq!((copy("e", &*from), copy("f", &*from)), (Some(Err(FailureKind::ReadError)), Some(Ok(()))));
}

#[test]
fn an_object_above_what_one_request_copies_is_copied_in_parts_and_its_checksum_is_stated() {
    const ONE_REQUEST: u64 = 40 << 20;
    let bytes: Vec<u8> = (0..43_000_000_u32).map(|at| (at * 7 % 251) as u8).collect();
    let bed = bed_of("fake", SECRET, Some(ONE_REQUEST), str::to_owned);
    bed.fake.state.lock().unwrap().copy_bytes_max = ONE_REQUEST;
    bed.fake.put("from", &bytes);
    let (opened, entry) = (bed.open("from"), file(1, "to", bytes.len() as u64));
    let publish = || {
        let sink = bed.sink();
        let (upload, _) = sink.begin(&entry, "stem").unwrap();
        assert!(upload.share_from(&*opened));
        upload.publish(&entry, PublishRule::Replace)
    };
    publish().unwrap();
    assert!(bed.fake.content("to").unwrap() == bytes);
    assert_eq!(bed.fake.count("PUT /bkt/to?partNumber"), 9);
    // Another version than the one that was opened is not copied, and no upload stays open.
    bed.fake.put("from", &bytes[1..]);
    assert!(publish().is_err());
    // A part that the store fails to copy fails the object; what stands at its name stays.
    bed.fake.put("from", &bytes);
    bed.fake.order("PUT", "partNumber=4", 0, 9, Fault::Status(403));
    assert!(publish().is_err());
    assert!(bed.fake.state.lock().unwrap().uploads.is_empty() && bed.fake.content("to").unwrap() == bytes);
    // A source without a checksum of the whole cannot be compared in parts, and goes through this host.
    bed.fake.state.lock().unwrap().objects.get_mut("from").unwrap().crc = None;
    let (upload, _) = bed.sink().begin(&entry, "stem").unwrap();
    assert!(!upload.share_from(&*bed.open("from")));
}

/// What a run learns is times, and no checksums: those are asked for again.
#[test]
fn what_an_earlier_run_looked_at_is_compared_after_the_store_copied_it_too() {
    const ONE_REQUEST: u64 = 200_000;
    let bed = bed_of("fake", SECRET, Some(ONE_REQUEST), str::to_owned);
    let known = tempfile::tempdir().unwrap();
    bed.fake.put("from", &noise(100_000));
    bed.fake.put("long", &noise(300_000));
    bed.source_after(known.path()).scan(&mut |_| true).unwrap();
    let asked = bed.fake.count("HEAD ");
    // As if the store copied something else than it says to have.
    bed.fake.state.lock().unwrap().objects.get_mut("from").unwrap().crc = Some(1);
    let source = bed.source_after(known.path());
    let (from, long) = (open_in(&*source, "from"), open_in(&*source, "long"));
    let (sink, entry) = (bed.sink(), file(1, "to", 100_000));
    let (upload, _) = sink.begin(&entry, "stem").unwrap();
    assert!(upload.share_from(&*from));
    assert!(upload.publish(&entry, PublishRule::NoReplace).is_err());
    // A second question has the same answer.
    for name in ["one", "other"] {
        let (upload, _) = sink.begin(&file(2, name, 300_000), "stem").unwrap();
        assert!(upload.share_from(&*long), "it is copied in parts");
    }
    assert_eq!(bed.fake.count("HEAD /bkt/from") + bed.fake.count("HEAD /bkt/long") - asked, 2);
}
