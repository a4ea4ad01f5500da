//! Named sets: published, fetched from honest and other holders, published again, and notes that are forged, older or somebody else's.

use crate::bed::{Bed, Ran, Server, journal_bytes, noise, staged, until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

const NAME: &str = "example.org/climate";

/// Endpoints with roots of their own names.
fn serve(bed: &Bed, names: &[&str]) -> Vec<Server> {
    let one = |name: &&str| {
        fs::create_dir_all(bed.path(name)).unwrap();
        let ticket = format!("ticket-{name}");
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", name, "--ticket-file", &ticket];
        let server = bed.serve_with(bed.command(&format!("home-{name}"), &args));
        bed.run(&["endpoint", "add", name, "--ticket-file", &ticket, "--replace"]).succeeded();
        server
    };
    names.iter().map(one).collect()
}

trait Failed {
    fn with(self, code: i32) -> Self;
}

impl Failed for Ran {
    #[track_caller]
    fn with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self
    }
}

fn make(bed: &Bed) {
    bed.write("a/set/large", &noise((20 << 20) + 77, 1));
    bed.write("a/set/d/e/middle", &noise(3 << 20, 2));
    bed.write("a/set/d/empty", b"");
    (0..40).for_each(|at| _ = bed.write(&format!("a/set/many/f{at}"), &noise(1000 + 37 * at, at as u64)));
}

/// Published by somebody else than whoever fetches.
fn publish(bed: &Bed, more: &[&str]) -> String {
    let args = [&["publish", "a/set", "--as", NAME, "--key", "key"][..], more].concat();
    let out = bed.command("publisher", &args).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

#[track_caller]
fn assert_fetched(bed: &Bed, to: &str) {
    let compared =
        std::process::Command::new("diff").arg("-r").arg(bed.path("a/set")).arg(bed.path(to)).output().unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    assert_eq!(staged(&bed.path(to)), []);
}

fn source<'a>(done: &'a Value, name: &str) -> &'a Value {
    let sources = done["sources"].as_array().unwrap();
    sources.iter().find(|source| source["name"] == name).unwrap_or_else(|| panic!("no {name}: {done}"))
}

fn copy(bed: &Bed, from: &str, to: &str) {
    fs::create_dir_all(bed.path(to).parent().unwrap()).unwrap();
    let copied = std::process::Command::new("cp").arg("-a").arg(bed.path(from)).arg(bed.path(to)).status().unwrap();
    assert!(copied.success());
}

fn overwrite(path: &Path, bytes: &[u8]) {
    let times = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(times).unwrap();
}

#[test]
fn a_set_is_fetched_by_its_name_and_then_only_what_is_new() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    let digest = publish(&bed, &[]);
    let fetch = ["fetch", NAME, "here", "--from", "a:set", "--signer", "key.pub", "--json"];
    let done = bed.run(&fetch).succeeded().done();
    assert_fetched(&bed, "here");
    assert_eq!((&done["files"]["ok"], &source(&done, "a")["bad_chunks"]), (&43.into(), &0.into()), "{done}");
    let done = bed.run(&fetch).succeeded().done();
    assert_eq!((&done["files"]["skipped"], &done["sent_bytes"]), (&43.into(), &0.into()), "{done}");
    bed.write("a/set/many/new", b"new");
    publish(&bed, &[]);
    let done = bed.run(&fetch).succeeded().done();
    assert_eq!((&done["files"]["ok"], &done["sent_bytes"]), (&1.into(), &3.into()), "{done}");
    assert_fetched(&bed, "here");
    // The first catalogue is still there, under its digest.
    fs::remove_file(bed.path("a/set/many/new")).unwrap();
    bed.run(&["fetch", &digest, "then", "--from", "a:set"]).succeeded();
    assert!(!bed.path("then/many/new").exists() && bed.path("then/large").exists());
}

#[test]
fn what_was_fetched_is_on_offer_and_several_bring_a_part_each() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    publish(&bed, &[]);
    bed.run(&["fetch", NAME, "b/mirror", "--from", "a:set"]).succeeded();
    fs::remove_file(bed.path("a/set/many/f3")).unwrap();
    let done = bed.run(&["fetch", NAME, "here", "--json", "--from", "a:set", "--from", "b:mirror"]).succeeded().done();
    assert_eq!(done["files"]["ok"], 43, "{done}");
    assert!(bed.path("here/many/f3").exists());
    assert!(source(&done, "b")["bytes"].as_u64().unwrap() > 0, "{done}");
}

#[test]
fn a_holder_with_other_content_is_found_and_named_and_alone_brings_nothing() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    publish(&bed, &[]);
    copy(&bed, "a/set", "b/set");
    // All of it: which holder is asked for what is not foreseen.
    let many = (0..40).map(|at| format!("b/set/many/f{at}"));
    for path in many.chain(["b/set/large".to_owned(), "b/set/d/e/middle".to_owned()]) {
        let mut bytes = fs::read(bed.path(&path)).unwrap();
        bytes.chunks_mut(1000).for_each(|part| part[0] ^= 1);
        overwrite(&bed.path(&path), &bytes);
    }
    let done = bed.run(&["fetch", NAME, "here", "--json", "--from", "b:set", "--from", "a:set"]).succeeded().done();
    assert_fetched(&bed, "here");
    assert!(source(&done, "b")["bad_chunks"].as_u64().unwrap() > 0, "{done}");
    let alone = bed.run(&["fetch", NAME, "alone", "--from", "b:set"]).with(40);
    assert!(alone.stderr.contains("catalogue"), "{}", alone.stderr);
    for path in ["large", "d/e/middle", "many/f1"] {
        assert!(!bed.path("alone").join(path).exists(), "{path}");
    }
}

#[test]
fn notes_that_are_forged_older_or_signed_by_others_are_refused() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    publish(&bed, &[]);
    let note = bed.path("a/set/.thalweg-set/note");
    let first = fs::read(&note).unwrap();
    publish(&bed, &[]);
    let fetch = ["fetch", NAME, "here", "--from", "a:set"];
    bed.run(&fetch).succeeded();
    let second = fs::read(&note).unwrap();
    fs::write(&note, &first).unwrap();
    assert!(bed.run(&fetch).with(6).stderr.contains("serial 1"));
    let forged = String::from_utf8(second.clone()).unwrap().replace("serial 2", "serial 9");
    fs::write(&note, forged).unwrap();
    assert!(bed.run(&fetch).with(41).stderr.contains("not to be trusted"));
    // Somebody else publishes under the same name.
    fs::remove_file(&note).unwrap();
    let args = ["publish", "a/set", "--as", NAME, "--key", "other"];
    assert!(bed.command("impostor", &args).status().unwrap().success());
    bed.run(&fetch).with(41);
    bed.run(&["fetch", NAME, "new", "--from", "a:set", "--signer", "key.pub"]).with(41);
    for hostile in [&b""[..], b"\0", &[b'x'; 2 << 20], &second[..second.len() / 2]] {
        fs::write(&note, hostile).unwrap();
        let refused = bed.run(&fetch);
        assert_ne!(refused.code, Some(0), "{}", refused.stderr);
    }
    // Its own key, changed with both signatures.
    fs::write(&note, &second).unwrap();
    let changed = ["publish", "a/set", "--as", NAME, "--key", "key2"];
    assert!(!bed.command("publisher", &changed).status().unwrap().success());
    let both = [&changed[..], &["--previous-key", "key"]].concat();
    assert!(bed.command("publisher", &both).status().unwrap().success());
    bed.run(&fetch).succeeded();
    assert!(bed.command("publisher", &changed).status().unwrap().success());
    bed.run(&fetch).succeeded();
}

#[test]
fn an_endpoint_is_enough_where_the_set_lies_a_few_levels_below_its_root() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    bed.write("a/deep/other/file", b"of another set");
    publish(&bed, &[]);
    let other = ["publish", "a/deep/other", "--as", "example.org/other", "--key", "key"];
    assert!(bed.command("publisher", &other).status().unwrap().success());
    bed.run(&["fetch", NAME, "here", "--from", "a", "--signer", "key.pub"]).succeeded();
    assert_fetched(&bed, "here");
    bed.run(&["fetch", "example.org/other", "--from", "a:"]).succeeded();
    assert_eq!(fs::read(bed.path("other/file")).unwrap(), b"of another set");
    let absent = bed.run(&["fetch", "example.org/absent", "x", "--from", "a"]).with(4);
    assert!(absent.stderr.contains("none of the 2 sets of a:"), "{}", absent.stderr);
}

#[test]
fn what_was_verified_before_a_kill_is_not_fetched_again_and_a_holder_that_dies_is_replaced() {
    let bed = Bed::new();
    let mut servers = serve(&bed, &["a", "b"]);
    bed.write("a/set/large", &noise(300 << 20, 1));
    publish(&bed, &[]);
    copy(&bed, "a/set", "b/set");
    let fetch = ["fetch", NAME, "here", "--json", "--from", "a:set", "--from", "b:set"];
    let mut child = bed.start(&fetch);
    until("something is verified", || journal_bytes(&bed.path("here")) >= 8 * 64);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!bed.path("here/large").exists());
    let child = bed.start(&fetch);
    until("it goes on", || journal_bytes(&bed.path("here")) >= 16 * 64);
    servers[1].kill();
    let done = bed.wait(child).succeeded().done();
    assert_fetched(&bed, "here");
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_eq!(source(&done, "a")["bad_chunks"], 0, "{done}");
}

/// Whoever may write to the directory could have whoever publishes or fetches write somewhere else.
#[test]
fn a_link_in_place_of_a_sets_own_directory_is_not_followed() {
    let bed = Bed::new();
    bed.write("a/set/file", b"content");
    fs::create_dir_all(bed.path("elsewhere")).unwrap();
    fs::set_permissions(bed.path("a/set"), fs::Permissions::from_mode(0o700)).unwrap();
    let own = bed.path("a/set/.thalweg-set");
    let publish = || bed.run(&["publish", "a/set", "--as", NAME, "--key", "key"]);
    symlink(bed.path("elsewhere"), &own).unwrap();
    let refused = publish().with(23);
    assert!(refused.stderr.contains(".thalweg-set has to be a directory, and no link"), "{}", refused.stderr);
    assert_eq!(fs::read_dir(bed.path("elsewhere")).unwrap().count(), 0);
    fs::remove_file(&own).unwrap();
    fs::create_dir(&own).unwrap();
    symlink(bed.path("elsewhere/note"), own.join("note")).unwrap();
    publish().succeeded();
    assert_eq!(fs::read_dir(bed.path("elsewhere")).unwrap().count(), 0);
    assert!(own.join("note").symlink_metadata().unwrap().is_file());
    assert_eq!(fs::metadata(bed.path("a/set")).unwrap().permissions().mode() & 0o777, 0o700);
    // The same at a destination of what is fetched.
    let _servers = serve(&bed, &["a"]);
    fs::create_dir(bed.path("copy")).unwrap();
    symlink(bed.path("elsewhere"), bed.path("copy/.thalweg-set")).unwrap();
    bed.run(&["fetch", NAME, "copy/", "--from", "a:set"]).with(23);
    assert_eq!(fs::read(bed.path("copy/file")).unwrap(), b"content");
    assert_eq!(fs::read_dir(bed.path("elsewhere")).unwrap().count(), 0);
}

/// The directory says what was published there, whoever publishes it next.
#[test]
fn serial_and_readers_go_on_under_another_state_directory_and_nobody_elses_set_is_replaced() {
    let bed = Bed::new();
    make(&bed);
    let reader = "ab".repeat(32);
    let as_user = |user: &str, (name, key): (&str, &str), more: &[&str]| {
        let args = [&["publish", "a/set", "--as", name, "--key", key][..], more].concat();
        bed.finish(bed.command(user, &args))
    };
    as_user("publisher", (NAME, "key"), &["--readers", &reader]).succeeded();
    let note = || fs::read_to_string(bed.path("a/set/.thalweg-set/note")).unwrap();
    assert!(note().contains("serial 1\n") && note().contains(&format!("readers {reader}\n")));
    as_user("another", (NAME, "key"), &[]).succeeded();
    assert!(note().contains("serial 2\n") && note().contains(&format!("readers {reader}\n")), "{}", note());
    as_user("publisher", (NAME, "key"), &[]).succeeded();
    assert!(note().contains("serial 3\n"), "{}", note());
    let before = note();
    let refused = as_user("another", ("example.org/other", "key"), &[]).with(4);
    assert!(refused.error().contains("/.thalweg-set to publish it as a new set"), "{}", refused.stderr);
    as_user("third", (NAME, "other.key"), &[]).with(41);
    assert_eq!(note(), before);
}

/// Size and time say nothing of a file that was put back after it had been read.
#[test]
fn what_was_put_back_with_its_old_time_is_read_again_even_after_a_fetch() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
    for file in ["a/set/d/e/middle", "a/set/large"] {
        fs::File::options().write(true).open(bed.path(file)).unwrap().set_modified(old).unwrap();
    }
    publish(&bed, &[]);
    overwrite(&bed.path("a/set/d/e/middle"), &noise(3 << 20, 9));
    // What a fetch keeps at the publisher's is no word on the publisher's files.
    let ticket = bed.path("ticket-a").display().to_string();
    bed.finish(bed.command("publisher", &["endpoint", "add", "a", "--ticket-file", &ticket])).succeeded();
    bed.finish(bed.command("publisher", &["fetch", NAME, "test", "--from", "a:set"])).with(40);
    // When the note was kept is no word on when the files were read either.
    let kept = bed.path("publisher/state_home/thalweg/sets/example.org%climate/note");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(100);
    fs::File::options().write(true).open(kept).unwrap().set_modified(later).unwrap();
    publish(&bed, &[]);
    bed.run(&["fetch", NAME, "here", "--from", "a:set", "--signer", "key.pub"]).succeeded();
    assert_eq!(fs::read(bed.path("here/d/e/middle")).unwrap(), noise(3 << 20, 9));
}

#[test]
fn what_one_holder_puts_in_the_way_of_a_note_is_not_in_the_way_of_the_next() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    publish(&bed, &[]);
    bed.write("b/set/.thalweg-set/note/planted", b"x");
    let fetched = bed.run(&["fetch", NAME, "here", "--from", "b:set", "--from", "a:set"]).succeeded();
    assert!(fetched.stderr.contains("not taken: "), "{}", fetched.stderr);
    assert_fetched(&bed, "here");
}

#[test]
fn two_holders_with_keys_that_nobody_knows_are_both_not_believed() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    publish(&bed, &[]);
    bed.write("b/set/planted", b"x");
    bed.finish(bed.command("other", &["publish", "b/set", "--as", NAME, "--key", "theirs"])).succeeded();
    let refused = bed.run(&["fetch", NAME, "here", "--from", "a:set", "--from", "b:set"]).with(41);
    assert!(
        refused.error().contains("by different keys") && refused.error().contains("--signer"),
        "{}",
        refused.stderr
    );
    bed.run(&["fetch", NAME, "here", "--from", "a:set", "--from", "b:set", "--signer", "key.pub"]).succeeded();
    assert_fetched(&bed, "here");
}

/// Whoever serves the copy is to know who may read it.
#[test]
fn a_private_set_that_is_fetched_by_its_digest_stays_one() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    publish(&bed, &["--readers", &"ab".repeat(32)]);
    let pin = pin_of_client(&bed, "a:set");
    let digest = publish(&bed, &["--readers", &pin]);
    bed.run(&["fetch", &digest, "here", "--from", "a:set"]).succeeded();
    let note = fs::read_to_string(bed.path("here/.thalweg-set/note")).unwrap();
    assert!(note.contains(&format!("readers {pin}\n")), "{note}");
    assert_fetched(&bed, "here");
}

/// What the client is told of its own key by who does not let it in.
fn pin_of_client(bed: &Bed, at: &str) -> String {
    let refused = bed.command("client", &["ls", at]).output().unwrap().stderr;
    let refused = String::from_utf8(refused).unwrap();
    let is_own = |word: &&str| word.len() == 64 && !word.starts_with("abab");
    refused.split(|c: char| !c.is_ascii_hexdigit()).find(is_own).expect(&refused).to_owned()
}

/// A digest says what the content is, and nothing of whose signature counts.
#[test]
fn the_key_of_a_note_that_a_fetch_by_digest_came_upon_is_not_known_afterwards() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    let digest = publish(&bed, &[]);
    copy(&bed, "a/set", "b/set");
    fs::remove_file(bed.path("b/set/.thalweg-set/note")).unwrap();
    // The same files under the same name, by somebody else.
    let theirs = |readers: &str| {
        let args = ["publish", "b/set", "--as", NAME, "--key", "theirs", "--readers", readers];
        let published = bed.finish(bed.command("other", &args)).succeeded();
        assert_eq!(String::from_utf8(published.stdout).unwrap().trim(), digest);
    };
    theirs(&"ab".repeat(32));
    let pin = pin_of_client(&bed, "b:set");
    theirs(&pin);
    bed.run(&["fetch", &digest, "copy", "--from", "b:set"]).succeeded();
    let note = fs::read_to_string(bed.path("copy/.thalweg-set/note")).unwrap();
    assert!(note.contains(&format!("readers {pin}\n")), "{note}");
    assert!(!bed.path("client/state_home/thalweg/sets/example.org%climate/note").exists());
    bed.run(&["fetch", NAME, "here", "--from", "a:set"]).succeeded();
    assert_fetched(&bed, "here");
    // From here on that note is one by another key: it keeps nobody from the files, and the copy stays closed.
    bed.run(&["fetch", &digest, "again", "--from", "b:set"]).succeeded();
    assert_eq!(fs::read_to_string(bed.path("again/.thalweg-set/note")).unwrap(), note);
}

/// The first one that is looked at is no better than the next one.
#[test]
fn keys_that_nobody_knows_are_not_believed_where_sets_are_looked_for_either() {
    let bed = Bed::new();
    let _servers = serve(&bed, &["a", "b"]);
    make(&bed);
    publish(&bed, &[]);
    bed.write("a/second/file", b"of another set");
    let second = ["publish", "a/second", "--as", "example.org/second", "--key", "key"];
    bed.finish(bed.command("publisher", &second)).succeeded();
    bed.write("b/set/planted", b"x");
    bed.finish(bed.command("other", &["publish", "b/set", "--as", NAME, "--key", "theirs"])).succeeded();
    let refused = bed.run(&["fetch", NAME, "here", "--from", "a", "--from", "b"]).with(41);
    assert!(refused.error().contains("by different keys"), "{}", refused.stderr);
    assert!(!bed.path("client/state_home/thalweg/sets/example.org%climate/note").exists());
    bed.run(&["fetch", NAME, "here", "--from", "a", "--from", "b", "--signer", "key.pub"]).succeeded();
    assert_fetched(&bed, "here");
}

#[test]
fn a_set_that_lies_twice_at_an_endpoint_is_fetched_by_its_name_and_by_its_digest() {
    let bed = Bed::new();
    let _server = serve(&bed, &["a"]);
    make(&bed);
    let digest = publish(&bed, &[]);
    copy(&bed, "a/set", "a/twin");
    bed.write("a/third/file", b"of another set");
    let third = ["publish", "a/third", "--as", "example.org/third", "--key", "key"];
    bed.finish(bed.command("publisher", &third)).succeeded();
    for (set, to) in [(NAME, "by-name"), (&digest[..], "by-digest")] {
        let done = bed.run(&["fetch", set, to, "--from", "a", "--json"]).succeeded().done();
        assert!(bed.path(to).join("many/f39").exists() && !bed.path(to).join("file").exists());
        let names: Vec<_> = done["sources"].as_array().unwrap().iter().map(|source| &source["name"]).collect();
        assert_eq!(names.len(), 2, "{done}");
        assert!(names.iter().all(|name| **name == "a:set/" || **name == "a:twin/"), "{done}");
    }
    let unknown = format!("blake3:{}", "0".repeat(64));
    bed.run(&["fetch", &unknown, "x", "--from", "a"]).with(4);
}

#[test]
fn an_endpoint_that_is_away_or_lacks_the_set_keeps_nobody_from_the_others() {
    let bed = Bed::new();
    let mut servers = serve(&bed, &["a", "b", "c"]);
    make(&bed);
    publish(&bed, &[]);
    servers[1].kill();
    let fetched = bed.run(&["fetch", NAME, "here", "--from", "b", "--from", "c", "--from", "a"]).succeeded();
    assert_fetched(&bed, "here");
    let not_taken = |ran: &Ran| ran.stderr.lines().filter(|line| line.starts_with("not taken: ")).count();
    assert_eq!(not_taken(&fetched), 2, "{}", fetched.stderr);
    let nobody = bed.run(&["fetch", NAME, "there", "--from", "b", "--from", "c"]);
    assert!(nobody.code != Some(0) && nobody.error().contains("error: "), "{}", nobody.stderr);
}

/// Everybody who fetches a set gets what lies below its directory.
#[test]
fn a_key_in_the_directory_that_is_published_is_refused_before_it_is_made() {
    let bed = Bed::new();
    make(&bed);
    symlink("a/set", bed.path("way")).unwrap();
    let publish = |more: &[&str]| bed.run(&[&["publish", "a/set", "--as", NAME][..], more].concat());
    for keys in [&["--key", "a/set/my.key"][..], &["--key", "way/d/my.key"], &["--previous-key", "a/set/large"]] {
        let refused = publish(keys).with(2);
        assert!(refused.error().contains("private key"), "{}", refused.stderr);
    }
    let mut inside = bed.command("client", &["publish", ".", "--as", NAME, "--key", "my.key"]);
    inside.current_dir(bed.path("a/set"));
    bed.finish(inside).with(2);
    for made in ["a/set/my.key", "a/set/d/my.key", "a/set/.thalweg-set"] {
        assert!(!bed.path(made).exists(), "{made}");
    }
    publish(&["--key", "a/my.key"]).succeeded();
}
