//! What a store says and cannot mean: sizes that no file has, and answers beyond what any has.

use crate::support::{bed, location, objects};
use fakes::Fault;
use model::TransferOptions;
use store::open::Opener;

const LONGEST: u64 = i64::MAX as u64;

#[test]
fn a_listing_with_a_size_that_no_file_has_is_an_error() {
    for (size_bytes, may_be) in [(LONGEST, true), (LONGEST + 1, false), (u64::MAX, false)] {
        let bed = bed();
        // A bucket that was opened before is listed when it is scanned.
        drop(bed.sink());
        bed.fake.state.lock().unwrap().put_zeros("huge", size_bytes as usize, Vec::new());
        let listed = objects(&*bed.source());
        let sizes = listed.map(|listed| listed.iter().map(|object| object.entry.size_bytes()).collect::<Vec<_>>());
        assert_eq!(sizes.ok(), may_be.then(|| vec![size_bytes]), "{size_bytes}");
    }
}

#[test]
fn an_object_with_a_size_that_no_file_has_is_not_opened() {
    let bed = bed();
    drop(bed.sink());
    let opened = |size_bytes: u64| {
        bed.fake.state.lock().unwrap().put_zeros("huge", size_bytes as usize, Vec::new());
        let opened = bed.buckets.source(&[location("bkt/huge")], &TransferOptions::default());
        opened.err().map(|error| error.to_string())
    };
    assert_eq!(opened(LONGEST), None);
    let told = opened(LONGEST + 1).unwrap();
    assert!(told.contains("a length that no file has"), "{told}");
}

/// It is given up where it exceeds the bound: nothing but that tells it from a page.
#[test]
fn a_page_of_17_mib_is_not_held_and_is_asked_for_again() {
    let bed = bed();
    drop(bed.sink());
    bed.fake.put("a", b"x");
    let before = bed.fake.count("list-type");
    bed.fake.order("GET", "list-type", 0, 1, Fault::Huge);
    assert_eq!(objects(&*bed.source()).unwrap().len(), 1);
    assert_eq!((bed.fake.fired(), bed.fake.count("list-type") - before), (1, 2));
}
