//! Object stores, with the program as its users have it, against a store in this process.

use crate::bed::{Bed, Ran};
use fakes::{BUCKET, Fake, SECRET};
use std::fs;

struct Store {
    bed: Bed,
    fake: Fake,
}

/// `None` where the program under test has no object stores.
fn store() -> Option<Store> {
    let bed = Bed::new();
    let built = bed.run(&["ls", "s3://x/"]);
    if !needs::met(!built.stderr.contains("has no object stores"), "the program was built without --features full") {
        return None;
    }
    let fake = Fake::start();
    let text = format!("[stores.fake]\nkind = \"s3\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\n", fake.url);
    bed.write("client/config_home/thalweg/config.toml", text.as_bytes());
    Some(Store { bed, fake })
}

impl Store {
    fn run_with(&self, id: &str, args: &[&str]) -> Ran {
        let mut command = self.bed.command("client", args);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        let ran = self.bed.finish(command);
        let said = format!("{}{}", ran.stderr, String::from_utf8_lossy(&ran.stdout));
        assert!(!said.contains(SECRET), "the secret was shown: {said}");
        ran
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with("fake", args)
    }

    fn done(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
        String::from_utf8(ran.stdout).unwrap()
    }
}

#[test]
fn a_tree_goes_to_a_bucket_and_comes_back() {
    let Some(store) = store() else { return };
    let large: Vec<u8> = (0..20_000_000u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    store.bed.write("src/large", &large);
    store.bed.write("src/sub/small", b"small");
    store.bed.write("src/sub/a b+c%\u{e9}", b"odd");
    fs::create_dir(store.bed.path("src/hollow")).unwrap();
    let there = format!("s3+fake://{BUCKET}/p/");
    store.done(&["cp", "src/", &there]);
    assert!(store.fake.content("p/large").as_ref() == Some(&large));
    assert!(store.fake.count("partNumber=") >= 3 && store.fake.state.lock().unwrap().uploads.is_empty());
    store.done(&["cp", &there, "back/"]);
    assert!(fs::read(store.bed.path("back/large")).unwrap() == large);
    assert_eq!(fs::read(store.bed.path("back/sub/a b+c%\u{e9}")).unwrap(), b"odd");
    let modified = |path: &str| fs::metadata(store.bed.path(path)).unwrap().modified().unwrap();
    assert!(store.bed.path("back/hollow").is_dir() && modified("back/sub/small") == modified("src/sub/small"));
    store.done(&["check", "src/", &there]);
    // Nothing is sent, or fetched, twice.
    let puts = store.fake.count("PUT ");
    store.done(&["sync", "src/", &there]);
    store.done(&["sync", &there, "back/"]);
    assert_eq!(store.fake.count("PUT "), puts);
    fs::remove_file(store.bed.path("src/sub/small")).unwrap();
    store.done(&["sync", "--delete", "src/", &there]);
    assert!(store.fake.content("p/sub/small").is_none() && store.fake.content("p/large").is_some());
}

#[test]
fn what_works_with_files_works_with_objects() {
    let Some(store) = store() else { return };
    store.bed.write("f", b"content");
    let at = |path: &str| format!("s3+fake://{BUCKET}/{path}");
    store.done(&["cp", "f", &at("d/f")]);
    assert_eq!(store.done(&["ls", &at("d/")]), "f\n");
    assert_eq!(store.done(&["cat", &at("d/f")]), "content");
    let sums = [store.done(&["sum", "f"]), store.done(&["sum", &at("d/f")])]
        .map(|text| text.lines().last().unwrap().to_owned());
    assert_eq!(sums[0].split(' ').next(), sums[1].split(' ').next());
    assert!(store.done(&["stat", &at("d/f")]).contains("size: 7 bytes"));
    assert!(store.done(&["tree", &at("d")]).contains('f') && store.done(&["du", &at("d")]).contains("7 B"));
    store.done(&["mkdir", &at("e")]);
    store.done(&["mv", &at("d/f"), &at("e/g")]);
    assert!(store.fake.content("d/f").is_none() && store.fake.content("e/g").is_some());
    store.done(&["mv", &at("e/g"), "h"]);
    assert_eq!(fs::read(store.bed.path("h")).unwrap(), b"content");
    store.done(&["cp", "f", &at("e/i")]);
    store.done(&["rm", "-r", &at("e")]);
    assert!(store.fake.content("e/i").is_none());
    let rival = at("r");
    store.fake.put("r", b"rival");
    store.done(&["cp", "--no-clobber", "f", &rival]);
    assert_eq!(store.fake.content("r").as_deref(), Some(&b"rival"[..]));
}

#[test]
fn a_store_that_cannot_be_used_is_told_by_its_exit_code() {
    let Some(store) = store() else { return };
    store.bed.write("f", b"x");
    let bucket = format!("s3+fake://{BUCKET}/");
    for (id, args, code, said) in [
        ("nobody", &["cp", "f", &bucket][..], 41, "InvalidAccessKeyId"),
        ("nobody", &["ls", &bucket], 41, "InvalidAccessKeyId"),
        ("fake", &["cp", "f", "s3+fake://other/"], 3, "NoSuchBucket"),
        ("fake", &["ls", "s3+fake://other/"], 3, "NoSuchBucket"),
        ("fake", &["cp", &format!("{bucket}none"), "g"], 4, "no such object"),
        ("fake", &["ls", "s3+else://b/"], 2, "no store \"else\" is configured"),
        ("fake", &["ls", "s3+fake:///x"], 2, "names no bucket"),
    ] {
        let ran = store.run_with(id, args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("hint: "), "{args:?}: {}", ran.stderr);
    }
    store.bed.write(
        "client/config_home/thalweg/config.toml",
        b"[stores.fake]\nkind = \"s3\"\nendpoint = \"http://127.0.0.1:1\"\n",
    );
    assert_eq!(store.run(&["ls", &bucket]).code, Some(43));
}

#[test]
fn uploads_that_were_left_are_listed_and_aborted() {
    let Some(store) = store() else { return };
    for key in ["p/a", "q"] {
        let upload = fakes::Upload { key: key.to_owned(), ..fakes::Upload::default() };
        store.fake.state.lock().unwrap().uploads.insert(format!("id-{}", key.len()), upload);
    }
    let bucket = format!("s3+fake://{BUCKET}");
    assert_eq!(store.done(&["uploads", "ls", &bucket]), "2026-01-01T00:00:00Z id-1 q\n2026-01-01T00:00:00Z id-3 p/a\n");
    store.done(&["uploads", "abort", &bucket]);
    assert!(store.fake.state.lock().unwrap().uploads.is_empty());
}
