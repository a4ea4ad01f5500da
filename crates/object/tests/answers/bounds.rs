//! What a store says and cannot mean: sizes that no file has, and answers beyond what any has.

use crate::support::{Bed, bed, buckets, location, objects};
use fakes::http::{Asked, Said, encoded, serve};
use fakes::{BUCKET, Fault};
use model::TransferOptions;
use object::StoreConfig;
use std::net::TcpListener;
use store::open::Opener;
use store::{Found, How, Slots, Visit};

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

/// Each of its directories would be kept with its path.
#[test]
fn a_key_that_is_longer_than_keys_can_be_fails_alone() {
    let bed = bed();
    drop(bed.sink());
    let long = "a/".repeat(600) + "b";
    bed.fake.put(&long, b"x");
    bed.fake.put("c", b"x");
    let (mut names, mut failed) = (Vec::new(), Vec::new());
    let scanned = bed.source().scan(&mut |found| {
        match found {
            Found::Object(object) => names.push(object.entry.name.to_string()),
            Found::Failed(failure) => failed.push((failure.path, failure.message)),
        }
        true
    });
    scanned.unwrap();
    assert_eq!((names, failed.len()), (vec!["c".to_owned()], 1));
    assert!(failed[0].0 == long.as_bytes() && failed[0].1.contains("longer than 1024 bytes"), "{}", failed[0].1);
}

/// Wherever it is asked what stands, a directory does.
fn bottomless(asked: &Asked) -> Said {
    if asked.method == "HEAD" {
        return Said::new(404, b"");
    }
    let prefix = encoded(&asked.query("prefix").unwrap_or_default());
    let found = match asked.query("delimiter") {
        Some(_) => format!("<CommonPrefixes><Prefix>{prefix}{}/</Prefix></CommonPrefixes>", "d".repeat(100)),
        None => format!("<Contents><Key>{prefix}d/f</Key><Size>1</Size></Contents>"),
    };
    let head = "<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>";
    Said::new(200, format!("<ListBucketResult>{head}{found}</ListBucketResult>").as_bytes())
}

#[test]
fn a_walk_ends_where_keys_would_be_longer_than_keys_can_be() {
    const VISITS_MAX: usize = 100;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, &bottomless));
        }
    });
    let bed = bed();
    let bed = Bed { buckets: buckets(&StoreConfig { endpoint, ..bed.config.clone() }), ..bed };
    let shelf = bed.buckets.shelf(&location(&format!("{BUCKET}/d/")), How::Look).ok().unwrap();
    let (mut visits, mut failed) = (0, Vec::new());
    shelf.walk(u32::MAX, &Slots::new(100), &mut |visit| {
        visits += 1;
        if let Visit::Failed { error, .. } = visit {
            failed.push(error.to_string());
        }
        visits < VISITS_MAX
    });
    assert!(visits < VISITS_MAX && failed.len() == 1, "{visits} visits, {failed:?}");
    assert!(failed[0].contains("longer than keys can be"), "{failed:?}");
}

/// A list of uploads that goes on behind `a`, then behind `b`, and then behind `a` again.
fn round(asked: &Asked) -> Said {
    if asked.query("uploads").is_none() {
        return bottomless(asked);
    }
    let next = if asked.query("key-marker").as_deref() == Some("a") { "b" } else { "a" };
    let upload = format!("<Upload><Key>{next}</Key><UploadId>1</UploadId></Upload>");
    let on = format!("<NextKeyMarker>{next}</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>");
    let list = format!("<IsTruncated>true</IsTruncated>{on}{upload}");
    Said::new(200, format!("<ListMultipartUploadsResult>{list}</ListMultipartUploadsResult>").as_bytes())
}

#[test]
fn a_list_of_uploads_that_goes_round_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Some(format!("http://{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, &round));
        }
    });
    let bed = bed();
    let buckets = buckets(&StoreConfig { endpoint, ..bed.config.clone() });
    let place = buckets.place(&location(&format!("{BUCKET}/")));
    let mut told = 0;
    let listed = place.ok().unwrap().bucket.uploads("", &mut |_| {
        told += 1;
        told < 100
    });
    assert!(listed.unwrap_err().to_string().contains("does not go on"));
    assert!(told < 10, "{told}");
}
