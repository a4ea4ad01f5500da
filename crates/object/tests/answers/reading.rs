//! Requests that list, look or read, each of which goes wrong once.

use crate::support::{Bed, bed, content, location, noise, objects, other_version};
use crate::table::Request;
use crate::{LARGE, each, kept};
use fakes::Fault;
use model::FailureKind::ReadError;
use model::TransferOptions;
use store::open::Opener;

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
    each(Request::Page, ("GET", "list-type", 2), &|_| {}, prepare, |bed| {
        let listed = objects(&*bed.source())?;
        let names = listed.iter().map(|object| String::from_utf8_lossy(object.entry.name.as_bytes()).into_owned());
        assert!(names.eq(keys()), "{listed:?}");
        Ok(())
    });
}

#[test]
fn what_is_read_by_ranges_is_what_the_store_has_or_fails() {
    let prepare = |bed: &Bed| bed.fake.put("large", &LARGE);
    each(Request::Range, ("GET", "/bkt/large", 0), &|_| {}, prepare, |bed| {
        assert!(bed.read()?.1 == *LARGE);
        Ok(())
    });
}

#[test]
fn what_is_read_whole_is_what_the_store_has_or_fails() {
    let bytes = noise(1000);
    let prepare = |bed: &Bed| bed.fake.put("small", &bytes);
    each(Request::Whole, ("GET", "/bkt/small", 0), &|_| {}, prepare, |bed| {
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

/// The first look is that of whoever opens the source, the second that of the scan.
#[test]
fn what_a_look_tells_of_an_object_is_true_or_nothing_of_it_arrives() {
    let prepare = |bed: &Bed| bed.fake.put("large", &LARGE);
    each(Request::Look, ("HEAD", "/bkt/large", 1), &|_| {}, prepare, |bed| {
        let opened = bed.buckets.source(&[location("bkt/large")], &TransferOptions::default());
        let source = opened.ok().unwrap().source;
        let object = objects(&*source)?.pop().expect("it was put there");
        assert!(content(&*source, &object)? == *LARGE);
        Ok(())
    });
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
