//! Requests that write, remove or copy, each of which goes wrong once.

use crate::support::{Bed, buckets, file, location, noise, put, sink_of};
use crate::table::Request;
use crate::{LARGE, Objects, PATIENCE, each};
use model::{DigestAlgorithm, Extent};
use object::{Buckets, StoreConfig};
use store::open::Opener;
use store::{Decision, How, PublishRule, StagedFile};

/// What was there, with this object.
fn with<'a>(key: &'a str, bytes: &'a [u8]) -> impl Fn(&mut Objects) + 'a {
    move |there: &mut Objects| _ = there.insert(key.to_owned(), bytes.to_vec())
}

#[test]
fn a_small_object_is_put_once_and_right_or_not_at_all() {
    const SMALL: &[u8] = b"content";
    each(Request::Put, ("PUT", "/bkt/small", 0), &with("small", SMALL), |_| {}, |bed| bed.put("small", SMALL));
}

#[test]
fn an_object_one_of_whose_parts_goes_wrong_is_right_or_leaves_nothing() {
    let large = with("large", &LARGE);
    each(Request::Part, ("PUT", "partNumber", 0), &large, |_| {}, |bed| bed.put_large("large", &LARGE));
}

#[test]
fn an_object_whose_upload_does_not_begin_at_once_is_right_or_leaves_nothing_that_was_sent() {
    let large = with("large", &LARGE);
    each(Request::Create, ("POST", "?uploads=", 0), &large, |_| {}, |bed| bed.put_large("large", &LARGE));
}

#[test]
fn an_object_whose_parts_are_not_put_together_at_once_is_right_or_leaves_nothing() {
    let large = with("large", &LARGE);
    each(Request::Complete, ("POST", "?uploadId=", 0), &large, |_| {}, |bed| bed.put_large("large", &LARGE));
}

#[test]
fn an_upload_that_was_interrupted_is_gone_on_with_or_begun_anew_and_right() {
    let (home, first) = (tempfile::tempdir().unwrap(), Extent::new(0, 8 << 20));
    let entry = file(1, "large", LARGE.len() as u64);
    // As another process has the bucket.
    let again = |bed: &Bed| buckets(&bed.config).within(PATIENCE).keep_uploads_in(home.path().to_owned());
    let write = |upload: &dyn StagedFile, extent: Extent| {
        let blocks = LARGE[extent.start as usize..extent.end as usize].chunks(1 << 20);
        blocks.enumerate().try_for_each(|(at, block)| upload.write_at(extent.start + ((at as u64) << 20), block))
    };
    let prepare = |bed: &Bed| {
        let (upload, _) = sink_of(&again(bed), "").begin(&entry, "stem").unwrap();
        write(&*upload, first).unwrap();
        upload.append_journal(b"journal").unwrap();
    };
    each(Request::Parts, ("GET", "uploadId=", 0), &with("large", &LARGE), prepare, |bed| {
        let (upload, journal) = sink_of(&again(bed), "").begin(&entry, "stem")?;
        let digest = DigestAlgorithm::Crc64Nvme.of_object(&LARGE[..first.end as usize]);
        let is_there = !journal.is_empty() && upload.kept(&[(first, digest)]) == Some(vec![true]);
        let start = if is_there { first.end } else { 0 };
        write(&*upload, Extent::new(start, entry.size_bytes()))?;
        upload.publish(&entry, PublishRule::NoReplace)
    });
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
        each(Request::Place, ("GET", "delimiter=", 0), &with("small", OWN), prepare, |bed| {
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
fn a_tree_is_removed_whole_and_nothing_beside_it() {
    let prepare = |bed: &Bed| ["t/a", "t/b", "u"].iter().for_each(|key| bed.fake.put(key, b"x"));
    let change = |there: &mut Objects| there.retain(|key, _| key == "u");
    each(Request::Delete, ("POST", "?delete", 0), &change, prepare, |bed| {
        let shelf = bed.buckets.shelf(&location("bkt/t"), How::Take).ok().unwrap();
        let mut failed = None;
        shelf.remove_tree(&|| false, &mut |_, error| failed = Some(error));
        failed.map_or(Ok(()), Err)
    });
}

/// Has the store copy an object of its own.
fn copy(bed: &Bed, to: &Buckets, size_bytes: usize) -> store::Result<()> {
    let entry = file(1, "to", size_bytes as u64);
    let (upload, _) = sink_of(to, "").begin(&entry, "stem")?;
    assert!(upload.share_from(&*bed.open("from")));
    upload.publish(&entry, PublishRule::NoReplace)
}

#[test]
fn what_the_store_copies_is_right_or_not_there() {
    let bytes = noise(1000);
    let prepare = |bed: &Bed| bed.fake.put("from", &bytes);
    let copied = with("to", &bytes);
    each(Request::Copy, ("PUT", "/bkt/to", 0), &copied, prepare, |bed| copy(bed, &bed.buckets, bytes.len()));
}

#[test]
fn what_the_store_copies_in_parts_is_right_or_not_there() {
    const ONE_REQUEST: u64 = 80_000;
    let bytes = noise(95_000);
    let prepare = |bed: &Bed| {
        bed.fake.state.lock().unwrap().part_bytes_min = 0;
        bed.fake.put("from", &bytes);
    };
    each(Request::CopyPart, ("PUT", "partNumber=", 0), &with("to", &bytes), prepare, |bed| {
        let config = StoreConfig { copy_bytes_max: Some(ONE_REQUEST), ..bed.config.clone() };
        copy(bed, &buckets(&config).within(PATIENCE), bytes.len())
    });
}
