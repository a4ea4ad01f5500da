//! Each way in which an answer goes wrong, at each request of a copy: it is made up for, or the copy fails and leaves nothing.
//!
//! The table says which of the two; what the store then has is compared with what was sent, and what was read with what it has.

mod support;

use Ends::{Arrives, Fails, Untold};
use fakes::Fault;
use model::FailureKind::{self, Changed, DigestMismatch, InTheWay, Other, Permission, ReadError, WriteError};
use object::Stop;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use store::{Decision, PublishRule};
use support::{Bed, bed, buckets, content, file, noise, objects, other_version, put};

/// How a copy ends whose request goes wrong once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ends {
    Arrives,
    Fails(FailureKind),
    /// Nothing tells it: no checksum covers the answer, and TLS notices what changes it on the way; or it was true a moment
    /// ago.
    Untold,
}

const PAGE: usize = 0;
const RANGE: usize = 1;
const WHOLE: usize = 2;
const PUT: usize = 3;
const PART: usize = 4;
const COMPLETE: usize = 5;
const PLACE: usize = 6;

/// For a page of a listing, a range of an object, a whole one that is read; for one that is put, a part, and the end of an
/// upload; for the page that shows what stands where an object is to be put. A store that stalls is waited for longer than a
/// test may take.
const TABLE: &[(Fault, [Ends; 7])] = &[
    (Fault::Status(403), [Fails(Permission); 7]),
    (Fault::Status(429), [Arrives; 7]),
    (Fault::Status(500), [Arrives; 7]),
    (Fault::Status(503), [Arrives; 7]),
    (Fault::AtOnce, [Arrives; 7]),
    (Fault::Later, [Arrives; 7]),
    (Fault::OkWithError, [Arrives; 7]),
    (Fault::OkEmpty, [Arrives; 7]),
    (Fault::Html, [Arrives; 7]),
    (Fault::LostAnswer, [Arrives; 7]),
    (Fault::Reset, [Arrives; 7]),
    (Fault::Drip, [Arrives; 7]),
    (Fault::Cut, [Arrives; 7]),
    (Fault::Flipped, [Untold, Fails(DigestMismatch), Arrives, Arrives, Arrives, Untold, Untold]),
    (Fault::NoRange, [Fails(Other), Fails(ReadError), Arrives, Arrives, Arrives, Arrives, Arrives]),
    (Fault::WrongRange, [Arrives, Fails(ReadError), Arrives, Arrives, Arrives, Arrives, Arrives]),
    (Fault::Longer, [Arrives, Fails(ReadError), Fails(Changed), Arrives, Arrives, Arrives, Arrives]),
    (Fault::OtherVersion, [Arrives, Fails(Changed), Arrives, Arrives, Arrives, Arrives, Arrives]),
    (Fault::Packed, [Arrives, Fails(ReadError), Arrives, Arrives, Arrives, Arrives, Arrives]),
    (
        Fault::Abroad,
        [Fails(Other), Fails(ReadError), Fails(ReadError), Fails(Other), Fails(WriteError), Fails(Other), Fails(Other)],
    ),
    (Fault::Expired, [Fails(Permission); 7]),
    (
        Fault::Archived,
        [Fails(Other), Fails(ReadError), Fails(ReadError), Fails(Other), Fails(WriteError), Fails(Other), Fails(Other)],
    ),
    (Fault::WrongSum, [Arrives; 7]),
    (Fault::Composite, [Arrives; 7]),
    (Fault::Unsummed, [Arrives; 7]),
    (Fault::Unsorted, [Fails(Other), Arrives, Arrives, Arrives, Arrives, Arrives, Arrives]),
    (Fault::Doubled, [Fails(Other), Arrives, Arrives, Arrives, Arrives, Arrives, Arrives]),
    // What a listing did not show is in the way, and stays.
    (Fault::Stale, [Untold, Arrives, Arrives, Arrives, Arrives, Arrives, Fails(InTheWay)]),
];

/// Of two parts, and two extents.
static LARGE: LazyLock<Vec<u8>> = LazyLock::new(|| noise(9 << 20));

/// Lets one request go wrong in each way: the one that holds a text, after so many that do not. What `attempt` does ends as the table
/// says, and the store has what it had before, with what `writes` names where that arrives.
fn each(
    column: usize,
    (method, holds, passes): (&'static str, &'static str, u32),
    writes: Option<(&str, &[u8])>,
    prepare: impl Fn(&Bed),
    attempt: impl Fn(&Bed) -> store::Result<()>,
) {
    for (fault, ends) in TABLE.iter().map(|(fault, ends)| (*fault, ends[column])).filter(|(_, ends)| *ends != Untold) {
        let bed = bed();
        prepare(&bed);
        let mut expected = kept(&bed);
        bed.fake.order(method, holds, passes, 1, fault);
        let attempted = attempt(&bed);
        let came = attempted.as_ref().map_or_else(|error| Fails(error.kind), |()| Arrives);
        assert_eq!((came, bed.fake.fired()), (ends, 1), "{fault:?}: {attempted:?}");
        if came == Arrives {
            expected.extend(writes.map(|(key, bytes)| (key.to_owned(), bytes.to_vec())));
        }
        assert!(kept(&bed) == expected, "{fault:?}: {:?}", kept(&bed).keys());
        assert!(bed.fake.state.lock().unwrap().uploads.is_empty(), "{fault:?}");
    }
}

/// What the store has.
fn kept(bed: &Bed) -> BTreeMap<String, Vec<u8>> {
    let state = bed.fake.state.lock().unwrap();
    state.objects.iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
}

#[test]
fn a_listing_is_whole_and_in_order_or_fails() {
    let keys = || (0..8).map(|number| format!("k{number}"));
    let prepare = |bed: &Bed| {
        keys().for_each(|key| bed.fake.put(&key, b"x"));
        {
            let mut state = bed.fake.state.lock().unwrap();
            // One page after another: the third is one that a token leads to.
            (state.page_max, state.ignores_start_after) = (3, true);
        }
        // A bucket that was opened before is listed from its first page.
        drop(bed.sink());
    };
    each(PAGE, ("GET", "list-type", 2), None, prepare, |bed| {
        let listed = objects(&*bed.source())?;
        let names = listed.iter().map(|object| String::from_utf8_lossy(object.entry.name.as_bytes()).into_owned());
        assert!(names.eq(keys()), "{listed:?}");
        Ok(())
    });
}

#[test]
fn what_is_read_by_ranges_is_what_the_store_has_or_fails() {
    let prepare = |bed: &Bed| bed.fake.put("large", &LARGE);
    each(RANGE, ("GET", "/bkt/large", 0), None, prepare, |bed| {
        assert!(bed.read()?.1 == *LARGE);
        Ok(())
    });
}

#[test]
fn what_is_read_whole_is_what_the_store_has_or_fails() {
    let bytes = noise(1000);
    let prepare = |bed: &Bed| bed.fake.put("small", &bytes);
    each(WHOLE, ("GET", "/bkt/small", 0), None, prepare, |bed| {
        let source = bed.source();
        let object = objects(&*source)?.pop().expect("it was put there");
        let mut buffer = vec![0; bytes.len()];
        let (count, generation) = source.lane().read_whole(&object, &mut buffer)?;
        if generation != object.entry.generation {
            return Err(other_version(&object));
        }
        assert!(count == buffer.len() && buffer == bytes);
        Ok(())
    });
}

#[test]
fn a_small_object_is_put_once_and_right_or_not_at_all() {
    const SMALL: &[u8] = b"content";
    each(PUT, ("PUT", "/bkt/small", 0), Some(("small", SMALL)), |_| {}, |bed| bed.put("small", SMALL));
}

#[test]
fn an_object_one_of_whose_parts_goes_wrong_is_right_or_leaves_nothing() {
    each(PART, ("PUT", "partNumber", 0), Some(("large", &LARGE[..])), |_| {}, |bed| bed.put_large("large", &LARGE));
}

#[test]
fn an_object_whose_parts_are_not_put_together_at_once_is_right_or_leaves_nothing() {
    each(
        COMPLETE,
        ("POST", "?uploadId=", 0),
        Some(("large", &LARGE[..])),
        |_| {},
        |bed| bed.put_large("large", &LARGE),
    );
}

/// Whether the store keeps to conditions, or what stands there is looked at right before it is written to.
#[test]
fn what_stands_in_the_way_is_replaced_if_it_was_seen_and_never_if_it_was_not() {
    const OWN: &[u8] = b"content";
    for is_unconditional in [false, true] {
        let prepare = |bed: &Bed| {
            bed.fake.state.lock().unwrap().is_unconditional = is_unconditional;
            bed.fake.put("small", b"rival");
        };
        each(PLACE, ("GET", "delimiter=", 0), Some(("small", OWN)), prepare, |bed| {
            let sink = bed.sink();
            let rule = match sink.decide(&file(1, "small", OWN.len() as u64))? {
                Decision::Absent => PublishRule::NoReplace,
                _ => PublishRule::Replace,
            };
            put(&*sink, "small", OWN, rule)
        });
    }
}

#[test]
fn what_an_older_listing_shows_is_read_as_it_is_now_and_the_rest_by_the_next_run() {
    let bed = bed();
    // A bucket that was opened before is listed when it is scanned.
    drop(bed.sink());
    let read = || {
        let source = bed.source();
        let listed = objects(&*source).unwrap();
        listed.iter().map(|object| content(&*source, object).unwrap()).collect::<Vec<_>>()
    };
    let stale = || bed.fake.order("GET", "list-type", 0, 1, Fault::Stale);
    bed.fake.put("a", b"old");
    bed.fake.put("a", b"newer");
    stale();
    assert_eq!(read(), [b"newer"]);
    bed.fake.put("b", b"added");
    stale();
    assert_eq!(read(), [b"newer"]);
    assert_eq!(read(), [b"newer", b"added"]);
    assert_eq!(bed.fake.fired(), 2);
}

/// A page for people has a length too, which is not that of the object.
#[test]
fn a_look_that_names_no_version_is_made_again() {
    for fault in [Fault::Html, Fault::OkEmpty, Fault::OkWithError] {
        let bed = bed();
        bed.fake.put("large", &LARGE);
        bed.fake.order("HEAD", "/bkt/large", 0, 1, fault);
        let (_, bytes) = bed.read().unwrap_or_else(|e| panic!("{fault:?}: {e}"));
        assert!(bytes == *LARGE && bed.fake.fired() == 1, "{fault:?}: {} bytes", bytes.len());
    }
}

#[test]
fn a_store_that_says_when_to_come_again_is_asked_no_sooner() {
    let bed = bed();
    bed.put("first", b"x").unwrap();
    bed.fake.order("PUT", "/bkt/small", 0, 1, Fault::Later);
    let begun = Instant::now();
    bed.put("small", b"x").unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1) && bed.fake.fired() == 1);
}

#[test]
fn a_store_that_says_nothing_does_not_hold_whoever_is_to_stop() {
    let is_over = Arc::new(AtomicBool::new(false));
    let bed = bed();
    let bed = Bed { buckets: buckets(&bed.config).stopped_by(Stop::by(is_over.clone())), ..bed };
    bed.fake.order("PUT", "/bkt/small", 0, 9, Fault::Stall);
    let sink = bed.sink();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| put(&*sink, "small", b"own", PublishRule::NoReplace));
        while bed.fake.fired() == 0 && !waiting.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!waiting.is_finished());
        is_over.store(true, Relaxed);
        assert!(waiting.join().unwrap().is_err());
    });
    assert!(kept(&bed).is_empty());
}

#[test]
fn an_archived_object_fails_alone_and_the_sentence_says_to_restore_it() {
    let [from, to] = [bed(), bed()];
    for (key, bytes) in [("a", &b"first"[..]), ("cold", b"small"), ("cold-large", &LARGE[..]), ("z", b"last")] {
        from.fake.put(key, bytes);
    }
    from.fake.order("GET", "/bkt/cold", 0, 9, Fault::Archived);
    let (source, mut failed) = (from.source(), Vec::new());
    for object in objects(&*source).unwrap() {
        let name = String::from_utf8_lossy(object.entry.name.as_bytes()).into_owned();
        match content(&*source, &object) {
            Ok(bytes) => to.put(&name, &bytes).unwrap(),
            Err(error) => failed.push((name, error.kind, error.message())),
        }
    }
    assert!(kept(&to).iter().eq(kept(&from).iter().filter(|(key, _)| !key.starts_with("cold"))));
    let names: Vec<_> = failed.iter().map(|(name, kind, _)| (&name[..], *kind)).collect();
    assert_eq!(names, [("cold", ReadError), ("cold-large", ReadError)]);
    assert!(failed.iter().all(|(.., message)| message.contains("restore it first")), "{failed:?}");
}
