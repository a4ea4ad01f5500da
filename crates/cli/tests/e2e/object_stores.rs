//! Object stores, with the program as its users have it, against a store in this process.

use crate::bed::{Bed, Ran, Server, noise, until};
use crate::follows::{Following, words};
use fakes::{BUCKET, Fake, Fault, SECRET};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
    fn command(&self, id: &str, args: &[&str]) -> Command {
        let mut command = self.bed.command("client", args);
        command.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_EC2_METADATA_DISABLED", "true");
        command
    }

    fn run_with(&self, id: &str, args: &[&str]) -> Ran {
        let ran = self.bed.finish(self.command(id, args));
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
fn small_files_are_asked_for_once_where_nothing_stands() {
    let Some(store) = store() else { return };
    for number in 0..40 {
        store.bed.write(&format!("src/d{}/f{number}", number % 3), format!("content {number}").as_bytes());
    }
    store.bed.write("src/tool", b"#!/bin/sh");
    fs::set_permissions(store.bed.path("src/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("d1/f1", store.bed.path("src/link")).unwrap();
    let there = format!("s3+fake://{BUCKET}/p/");
    store.done(&["cp", "-p", "src/", &there]);
    // As a host that has never seen these objects.
    let forget = || fs::remove_dir_all(store.bed.path("client/state_home/thalweg/objects")).unwrap_or_default();
    forget();
    let heads = || store.fake.count("HEAD /bkt/p/");
    let (asked, got) = (heads(), store.fake.count("GET /bkt/p/"));
    store.done(&["cp", &there, "back/"]);
    // Directories alone are asked for; a file that turns out to be a link is one.
    assert_eq!((heads() - asked, store.fake.count("GET /bkt/p/") - got), (3, 42));
    assert_eq!(fs::read_link(store.bed.path("back/link")).unwrap(), std::path::Path::new("d1/f1"));
    let found = |path: &str| fs::metadata(store.bed.path(path)).unwrap();
    for path in ["tool", "d0/f0", "d2/f2"] {
        let (from, to) = (found(&format!("src/{path}")), found(&format!("back/{path}")));
        assert_eq!(
            (from.modified().unwrap(), from.mode() & 0o111),
            (to.modified().unwrap(), to.mode() & 0o111),
            "{path}"
        );
    }
    // What was learnt by reading is known to the next run, and nothing is fetched again.
    let (asked, got) = (heads(), store.fake.count("GET /bkt/p/"));
    store.done(&["sync", &there, "back/"]);
    assert_eq!((heads() - asked, store.fake.count("GET /bkt/p/") - got), (0, 1), "the link is read and compared");
    // Where something stands at a name, its time decides, and is asked for.
    forget();
    let newer = [("back/d0/f0", 12), ("back/d1/f1", 12)].map(|(path, length)| (path, "x".repeat(length)));
    for (path, text) in newer {
        store.bed.write(path, text.as_bytes());
    }
    fs::remove_file(store.bed.path("back/d2/f2")).unwrap();
    let got = store.fake.count("GET /bkt/p/d");
    let told = store.done(&["sync", "--update", &there, "back/"]);
    assert_eq!(store.fake.count("GET /bkt/p/d") - got, 1, "{told}");
    assert_eq!(fs::read(store.bed.path("back/d0/f0")).unwrap(), b"xxxxxxxxxxxx", "what is newer there stays");
    assert!(found("back/d2/f2").modified().unwrap() == found("src/d2/f2").modified().unwrap());
}

/// As s3fs reads them (`src/metaheader.cpp`): a mode as C reads numbers, with the kind in it; digits behind the point of a time as
/// nanoseconds; and owners of whom no header tells are whoever mounts the bucket.
#[test]
fn s3fs_finds_modes_and_times_in_the_form_that_it_writes() {
    let Some(store) = store() else { return };
    store.bed.write("src/sub/tool", b"#!/bin/sh");
    std::os::unix::fs::symlink("tool", store.bed.path("src/sub/link")).unwrap();
    let time = std::time::UNIX_EPOCH + Duration::new(1_577_934_245, 5_000);
    for (path, mode) in [("src/sub/tool", 0o751), ("src/sub", 0o750)] {
        let path = store.bed.path(path);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
    }
    store.done(&["cp", "-p", "src/", &format!("s3+fake://{BUCKET}/p/")]);
    let state = store.fake.state.lock().unwrap();
    let header = |key: &str, name: &str| {
        let name = format!("x-amz-meta-{name}");
        let found = state.objects[key].meta.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    };
    for (key, mode) in [("p/sub/", 0o040_750), ("p/sub/tool", 0o100_751), ("p/sub/link", 0o120_777)] {
        // A zero in front would make it octal.
        assert_eq!(header(key, "mode"), Some(mode.to_string()), "{key}");
        assert!(["uid", "gid", "owner", "group"].iter().all(|name| header(key, name).is_none()), "{key}");
        let time = header(key, "mtime").unwrap();
        let (seconds, digits) = time.split_once('.').unwrap();
        assert_eq!(digits.len(), 9, "{time}");
        if key != "p/sub/link" {
            assert_eq!((seconds.parse::<u64>(), digits.parse::<u64>()), (Ok(1_577_934_245), Ok(5_000)), "{key}");
        }
    }
    assert_eq!(state.objects["p/sub/link"].bytes, b"tool");
}

/// Names that stand before and behind a slash.
const NEIGHBOURS: [&str; 6] = ["d/x", "d-", "d.txt", "d0", "e/f/g", "e/f-"];

#[test]
fn both_sides_are_compared_by_one_listing_and_only_what_is_left_over_goes() {
    let Some(store) = store() else { return };
    for name in NEIGHBOURS {
        store.bed.write(&format!("src/{name}"), name.as_bytes());
    }
    for number in 0..40 {
        store.bed.write(&format!("src/many{number}/f"), b"x");
    }
    let there = format!("s3+fake://{BUCKET}/p/");
    store.done(&["sync", "--delete", "src/", &there]);
    store.done(&["sync", "--delete", &there, "back/"]);
    // What the source does not have, at all depths, beside what it has.
    for key in ["p/d/y", "p/d-/z", "p/d00", "p/a/b/c", "p/e/f/g0", "p/z"] {
        store.fake.put(key, b"left over");
        store.bed.write(&format!("back/{}", &key[2..]).replace("d-/z", "d-z/z"), b"left over");
    }
    // The store's dates are not those of its answers: times are learnt by asking once.
    store.done(&["sync", "src/", &there]);
    let (listings, puts) = (store.fake.count("delimiter="), store.fake.count("PUT "));
    let rehearsed = store.done(&["sync", "--delete", "-n", "--itemize", "src/", &there]);
    assert_eq!(rehearsed.lines().filter(|line| line.starts_with("*deleting")).count(), 7, "{rehearsed}");
    let refused = store.run(&["sync", "--delete", "--max-delete", "3", "src/", &there]);
    assert_eq!((refused.code, store.fake.content("p/z").is_some()), (Some(25), true), "{}", refused.stderr);
    store.done(&["sync", "--delete", "--exclude", "z", "src/", &there]);
    assert!(store.fake.content("p/z").is_some() && store.fake.content("p/d/y").is_none());
    // A key below what is a file at the source stays.
    assert!(store.fake.content("p/d-/z").is_some());
    store.done(&["sync", "--delete", "src/", &there]);
    assert!(store.fake.content("p/z").is_none() && store.fake.content("p/d/x").is_some());
    assert_eq!(store.fake.count("PUT "), puts);
    assert_eq!(store.fake.count("delimiter="), listings, "directories are not listed one by one");
    store.fake.state.lock().unwrap().objects.remove("p/d-/z");
    store.done(&["sync", "--delete", &there, "back/"]);
    let ran = Command::new("diff").args(["-r", "src", "back"]).current_dir(store.bed.path("")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    assert!(!store.bed.path("back/a").exists());
}

#[test]
fn a_listing_that_breaks_off_removes_nothing() {
    let Some(store) = store() else { return };
    store.bed.write("src/f", b"f");
    let there = format!("s3+fake://{BUCKET}/p/");
    store.done(&["sync", "src/", &there]);
    (0..50).for_each(|number| store.fake.put(&format!("p/g{number:02}"), b"x"));
    store.fake.state.lock().unwrap().page_max = 10;
    store.fake.order("GET", "list-type", 3, 100, Fault::Status(403));
    let ran = store.run(&["sync", "--delete", "src/", &there]);
    assert!(store.fake.fired() > 0 && ran.code != Some(0), "{}", ran.stderr);
    assert_eq!(store.fake.state.lock().unwrap().objects.len(), 51);
}

#[test]
fn one_request_of_a_hundred_that_fails_costs_no_file() {
    let Some(store) = store() else { return };
    for number in 0..1500 {
        store.bed.write(&format!("src/d{}/f{number}", number % 7), format!("content {number}").as_bytes());
    }
    store.bed.write("src/large", &vec![7; 60 << 20]);
    let there = format!("s3+fake://{BUCKET}/p/");
    store.fake.state.lock().unwrap().faulty =
        Some((100, &[Fault::Status(503), Fault::Cut, Fault::Status(500), Fault::LostAnswer, Fault::AtOnce]));
    store.done(&["cp", "src/", &there]);
    store.done(&["cp", &there, "back/"]);
    assert!(store.fake.fired() > 20, "{}", store.fake.fired());
    let ran = Command::new("diff").args(["-r", "src", "back"]).current_dir(store.bed.path("")).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
    // What has to be asked again is asked again, and nothing else.
    let requests = store.fake.state.lock().unwrap().requests.len();
    assert!((3000..3200).contains(&requests), "two for each file: {requests}");
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

#[test]
fn a_copy_to_a_bucket_goes_on_after_it_was_killed() {
    let Some(store) = store() else { return };
    let bytes = crate::bed::noise(60 << 20, 7);
    let source = store.bed.write("large", &bytes);
    let there = format!("s3+fake://{BUCKET}/dir/");
    let args = ["cp", "--json", "large", &there];
    let taken = || store.fake.state.lock().unwrap().part_bytes_taken;
    let interrupted = |enough: u64| {
        let slow = [&args[..], &["--bwlimit", "16MiB"]].concat();
        let child = store.command("fake", &slow).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        crate::bed::until("parts at the store", || taken() >= enough);
        crate::bed::signal(&child, rustix::process::Signal::KILL);
        store.bed.wait(child);
        taken()
    };
    let first = interrupted(24 << 20);
    assert_eq!(store.fake.state.lock().unwrap().uploads.len(), 1);
    let done = store.run(&args).succeeded().done();
    let resumed = done["resumed_bytes"].as_u64().unwrap();
    // What was confirmed and not yet put down when the process was killed comes again: a part for each lane and thread at most.
    assert!(resumed >= 8 << 20 && resumed <= first, "{done}");
    assert_eq!(taken() - first, bytes.len() as u64 - resumed, "{done}");
    assert!(store.fake.content("dir/large").as_ref() == Some(&bytes));
    // Another version of the source starts again, and ends what was left.
    store.done(&["rm", &format!("{there}large")]);
    interrupted(taken() + (24 << 20));
    let changed = [&b"x"[..], &bytes[1..]].concat();
    fs::write(source, &changed).unwrap();
    let done = store.run(&args).succeeded().done();
    assert_eq!(done["resumed_bytes"].as_u64().unwrap_or_default(), 0, "{done}");
    assert!(store.fake.content("dir/large").as_ref() == Some(&changed));
    assert!(store.fake.state.lock().unwrap().uploads.is_empty());
}

/// Chunks of 1 MiB, of which a part has several.
#[test]
fn with_delta_a_file_in_a_bucket_is_replaced_by_what_the_source_is() {
    let Some(store) = store() else { return };
    let mut bytes = noise(20 << 20, 5);
    let source = store.bed.write("large", &bytes);
    let there = format!("s3+fake://{BUCKET}/dir/");
    store.done(&["cp", "large", &there]);
    let touch = |seconds: u64| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
    };
    touch(1_000_000_000);
    store.done(&["cp", "--delta", "large", &there]);
    assert!(store.fake.content("dir/large").as_ref() == Some(&bytes));
    bytes[(8 << 20) - 5] ^= 1;
    fs::write(&source, &bytes).unwrap();
    touch(1_000_000_001);
    store.done(&["cp", "--delta", "large", &there]);
    assert!(store.fake.content("dir/large").as_ref() == Some(&bytes));
    assert!(store.fake.count("GET /bkt/dir/large") == 0, "what stands there does not come here to be sent back");
}

/// An endpoint of a bucket, which the client knows as `lab`; its keys are the endpoint's alone.
fn endpoint(store: &Store) -> Server {
    endpoint_of(store, &store.fake.url)
}

fn endpoint_of(store: &Store, url: &str) -> Server {
    let text = format!(
        "[stores.fake]\nkind = \"s3\"\nendpoint = \"{url}\"\nregion = \"us-east-1\"\n\n\
         [roots]\narchive = \"s3+fake://{BUCKET}/pre/fix\"\n"
    );
    store.bed.write("serve.toml", text.as_bytes());
    store.bed.write("client/config_home/thalweg/config.toml", b"");
    let args = ["serve", "--config", "serve.toml", "--listen", "127.0.0.1:0", "--ticket-file", "ticket"];
    let mut command = store.bed.command("server", &args);
    command.env("AWS_ACCESS_KEY_ID", "fake").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    let server = store.bed.serve_with(command);
    store.bed.enrol();
    server
}

#[test]
fn a_root_of_an_endpoint_is_a_bucket() {
    let Some(store) = store() else { return };
    let server = endpoint(&store);
    let bed = &store.bed;
    let done = |args: &[&str]| String::from_utf8(bed.run(args).succeeded().stdout).unwrap();
    let large = crate::bed::noise(20 << 20, 3);
    bed.write("src/large", &large);
    bed.write("src/sub/small", b"small");
    assert_eq!(done(&["ls", "lab:"]), "archive/\n");
    done(&["cp", "src/", "lab:archive/run42/"]);
    assert!(store.fake.content("pre/fix/run42/large").as_ref() == Some(&large));
    assert_eq!(done(&["ls", "lab:archive/run42"]), "large\nsub/\n");
    assert_eq!(done(&["cat", "lab:archive/run42/sub/small"]), "small");
    assert!(done(&["tree", "lab:"]).contains("small"));
    done(&["check", "src/", "lab:archive/run42/"]);
    done(&["cp", "lab:archive/run42/", "back/"]);
    assert!(fs::read(bed.path("back/large")).unwrap() == large);
    done(&["cp", "src/sub/small", "lab:archive/renamed"]);
    done(&["cp", "src/sub/small", "lab:archive"]);
    let [renamed, within] = ["pre/fix/renamed", "pre/fix/small"].map(|key| store.fake.content(key));
    assert_eq!((renamed.as_deref(), within.as_deref()), (Some(&b"small"[..]), Some(&b"small"[..])));
    fs::remove_file(bed.path("src/sub/small")).unwrap();
    done(&["sync", "--delete", "src/", "lab:archive/run42/"]);
    assert!(store.fake.content("pre/fix/run42/sub/small").is_none());
    done(&["sync", "lab:archive/run42/", "back/"]);
    done(&["mkdir", "lab:archive/made"]);
    done(&["rm", "-r", "lab:archive/run42"]);
    assert!(store.fake.content("pre/fix/run42/large").is_none());
    // What a bucket does not keep does not keep files from moving there.
    bed.write("moved", b"moved");
    let ran = bed.run(&["mv", "moved", "lab:archive/moved"]).succeeded();
    assert!(ran.stderr.contains("warning: lab:archive/moved: hard links are not kept"), "{}", ran.stderr);
    assert!(!bed.path("moved").exists() && store.fake.content("pre/fix/moved").as_deref() == Some(&b"moved"[..]));
    for (args, code, said) in [
        (&["cp", "lab:archive", "x"][..], 6, "put a slash after the name of a root"),
        (&["cp", "lab:", "x"], 6, "name one of the endpoint's roots"),
        (&["cp", "src/large", "lab:other/x"], 4, "no such root"),
        (&["cp", "lab:archive/none", "x"], 4, "no such file or directory"),
        (&["cp", "src/large", "lab:archive/../../x"], 6, "cannot leave it"),
        (&["rm", "-r", "lab:archive"], 2, "the root itself"),
        (&["mv", "lab:archive/renamed", "lab:archive/else"], 23, "renames nothing in one step"),
        (&["cp", "-H", "src/large", "lab:archive/renamed"], 6, "--hard-links"),
        (&["sync", "--backup-dir", "old", "src/", "lab:archive/"], 6, "--backup-dir"),
    ] {
        let ran = bed.run(args);
        assert!(ran.stderr.contains(said) && ran.code != Some(0), "{args:?}: {:?} {}", ran.code, ran.stderr);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("pre/fix") && !ran.stderr.contains(BUCKET), "the server's names: {}", ran.stderr);
    }
    let (_, log) = server.stop();
    assert!(!log.contains(SECRET), "{log}");
}

#[test]
fn an_endpoint_starts_while_its_store_stands_still() {
    let Some(store) = store() else { return };
    // The kernel takes the connections, and nobody reads from them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = endpoint_of(&store, &format!("http://{}", silent.local_addr().unwrap()));
    let began = Instant::now();
    let listed = store.bed.run(&["ls", "lab:"]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!((listed.code, &listed.stdout[..]), (Some(23), &b""[..]), "{}", listed.stderr);
    let told = listed.stderr.lines().find(|line| line.contains("lab:archive")).unwrap_or_default();
    assert!(told.contains("the endpoint's store does not answer"), "{}", listed.stderr);
    let (_, log) = server.stop();
    assert!(log.contains("the store of the root archive does not answer"), "{log}");
}

#[test]
fn rights_hold_at_a_root_that_is_a_bucket() {
    let Some(store) = store() else { return };
    let _server = endpoint(&store);
    let bed = &store.bed;
    bed.write("f", b"mine");
    store.fake.put("pre/fix/in/f", b"theirs");
    store.fake.put("pre/fix/inside", b"theirs");
    store.fake.put("secret", b"of another");
    let guest = |name: &str, rights: &[&str]| {
        let file = format!("{name}.ticket");
        let args = [&["ticket", "new", "--path", "archive/in", "--ticket-file", &file], rights].concat();
        bed.finish(bed.command("server", &args)).succeeded();
        bed.finish(bed.command(name, &["endpoint", "add", "lab", "--ticket-file", &file])).succeeded();
    };
    let run = |name: &str, args: &[&str]| bed.finish(bed.command(name, args));
    guest("reader", &["--read-only"]);
    run("reader", &["cp", "lab:archive/in/f", "got"]).succeeded();
    assert_eq!(fs::read(bed.path("got")).unwrap(), b"theirs");
    for args in [
        &["cp", "f", "lab:archive/in/g"][..],
        &["rm", "lab:archive/in/f"],
        &["cp", "lab:archive/inside", "x"],
        &["ls", "lab:archive"],
        &["ls", "lab:"],
        &["cp", "lab:archive/in/../inside", "x"],
    ] {
        let ran = run("reader", args);
        assert_eq!(ran.code, Some(6), "{args:?}: {}", ran.stderr);
    }
    // A drop box: what is there stays as it is and is not shown.
    guest("writer", &["--write-only"]);
    run("writer", &["cp", "f", "lab:archive/in/f"]).succeeded();
    run("writer", &["cp", "f", "lab:archive/in/"]).succeeded();
    assert_eq!(store.fake.content("pre/fix/in/f").as_deref(), Some(&b"theirs"[..]));
    let aside = |(key, object): (&String, &fakes::Object)| key.starts_with("pre/fix/in/f.~") && object.bytes == b"mine";
    assert!(store.fake.state.lock().unwrap().objects.iter().any(aside));
    for args in [
        &["cp", "lab:archive/in/f", "x"][..],
        &["ls", "lab:archive/in"],
        &["sync", "--delete", "./", "lab:archive/in/"],
    ] {
        assert_eq!(run("writer", args).code, Some(6), "{args:?}");
    }
}

#[test]
fn an_upload_through_an_endpoint_goes_on_after_the_client_was_killed() {
    let Some(store) = store() else { return };
    let _server = endpoint(&store);
    let bytes = crate::bed::noise(60 << 20, 9);
    store.bed.write("large", &bytes);
    let args = ["cp", "--json", "large", "lab:archive/dir/"];
    let taken = || store.fake.state.lock().unwrap().part_bytes_taken;
    let child = store.bed.start(&[&args[..], &["--bwlimit", "16MiB"]].concat());
    crate::bed::until("parts at the store", || taken() >= 24 << 20);
    crate::bed::signal(&child, rustix::process::Signal::KILL);
    store.bed.wait(child);
    let done = store.bed.run(&args).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() >= 16 << 20, "{done}");
    assert!(store.fake.content("pre/fix/dir/large").as_ref() == Some(&bytes));
    assert!(store.fake.state.lock().unwrap().uploads.is_empty());
}

#[test]
fn what_cannot_be_a_root_is_told_before_the_endpoint_serves() {
    let Some(store) = store() else { return };
    let serve = |roots: &str, more: &[&str]| {
        let text = format!("[stores.fake]\nkind = \"s3\"\nendpoint = \"{}\"\n[roots]\n{roots}\n", store.fake.url);
        store.bed.write("serve.toml", text.as_bytes());
        store.run(&[&["serve", "--config", "serve.toml", "--listen", "127.0.0.1:0"], more].concat())
    };
    fs::create_dir_all(store.bed.path("root")).unwrap();
    for (roots, more, code, said) in [
        ("a = \"s3+fake://other/x\"", &[][..], 3, "the root a: s3+fake://other: "),
        ("a = \"s3+else://b\"", &[], 2, "no store \"else\" is configured"),
        ("a = \"dir\"", &[], 2, "the root a is not at a store"),
        ("a = 1", &[], 2, "the root a is not at a store"),
        ("\"a/b\" = \"s3+fake://b\"", &[], 2, "cannot be the name of a root"),
        ("a = \"s3+fake://bkt\"", &["--root", "root"], 2, "and [roots] at stores"),
    ] {
        let ran = serve(roots, more);
        assert_eq!(ran.code, Some(code), "{roots}: {}", ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stderr.contains("hint: "), "{roots}: {}", ran.stderr);
    }
}

#[test]
fn a_doctor_looks_at_a_bucket_and_says_what_to_do() {
    let Some(store) = store() else { return };
    let at = format!("s3+fake://{BUCKET}/p/");
    let well = store.done(&["doctor", &at]);
    assert!(well.contains("good     conditions: ") && well.contains("\n0 needed, 0 to know, "), "{well}");
    store.fake.order("DELETE", "/p/.thalweg-probe-", 0, 9, fakes::Fault::Status(403));
    let told = store.run(&["doctor", "--json", &at]).succeeded();
    let events = told.events();
    let delete = events.iter().find(|event| event["subject"] == "delete").unwrap();
    assert_eq!((&delete["level"], &delete["here"]), (&"needed".into(), &"by-hand".into()), "{delete}");
    assert!(delete["command"].as_str().unwrap().contains("s3:DeleteObject"), "{delete}");
    // The upload could not be aborted either.
    assert_eq!(told.done()["needed"], 2);
    assert_eq!(store.run_with("nobody", &["doctor", &at]).code, Some(41));
    assert_eq!(store.run(&["doctor", "s3+fake://other/"]).code, Some(3));
    assert_eq!(store.run(&["doctor", "--apply", &at]).code, Some(2));
}

/// An instrument writes; `there` tells what the bucket has of a name.
fn followed(following: Following<'_>, there: &dyn Fn(&str) -> Option<Vec<u8>>) {
    let (first, more) = (noise(9 << 20, 1), noise(300_000, 2));
    following.append("run.tmp", &first);
    following.append("before", b"complete");
    following.wait_for("sealed", "before");
    assert_eq!((there("run.tmp"), there("run"), there("before")), (None, None, Some(b"complete".to_vec())));
    following.append("run.tmp", &more);
    following.rename("run.tmp", "run");
    following.wait_for("sealed", "run");
    assert!(there("run") == Some([&first[..], &more].concat()) && there("run.tmp").is_none());
    // It goes on after it was sent.
    following.append("run", b"late");
    following.wait_for("reopened", "run");
    until("it is sent again", || there("run").is_some_and(|content| content.ends_with(b"late")));
    // What its writer gives up never had its final name: nothing has failed.
    let before = following.events().len();
    following.append("withdrawn.tmp", b"not wanted");
    following.append("never.tmp", b"not complete");
    let are_seen = |said: &serde_json::Value| said["event"] == "lag" && said["files"] == 2;
    until("they are seen", || following.events()[before..].iter().any(are_seen));
    following.remove("withdrawn.tmp");
    following.wait_for("vanished", "withdrawn.tmp");
    let (ran, events) = following.end();
    assert_eq!(ran.code, Some(24), "{}", ran.stderr);
    let done = events.last().unwrap();
    assert_eq!((&done["files"]["ok"], &done["files"]["failed"]), (&4.into(), &1.into()), "{done}");
    assert!(done.to_string().contains("sent once they are complete"), "{done}");
    assert!(there("STOP").is_some() && there("never.tmp").is_none());
}

#[test]
fn files_are_followed_to_a_bucket_and_sent_once_they_are_complete() {
    let Some(store) = store() else { return };
    let to = format!("s3+fake://{BUCKET}/p/");
    let following = Following::of(&store.bed, store.command("fake", &words(&to)));
    followed(following, &|name| store.fake.content(&format!("p/{name}")));
}

#[test]
fn files_are_followed_to_a_bucket_behind_an_endpoint() {
    let Some(store) = store() else { return };
    let _server = endpoint(&store);
    let following = Following::start(&store.bed, "lab:archive/p/");
    followed(following, &|name| store.fake.content(&format!("pre/fix/p/{name}")));
}
