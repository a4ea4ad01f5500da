//! Sets with named readers below the root of an endpoint: everything that reads there, tried by somebody who is none of them.

use crate::bed::{Bed, Ran, Server, noise, staged, until};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const NAME: &str = "example.org/private";
const CLOSED: &str = "this client is not one of its readers";

/// An endpoint with an open directory, a public set and one for the client `reader`; `client` is another one, with all rights.
fn ground() -> (Bed, Server) {
    let (bed, server) = Bed::with_endpoint();
    bed.write("root/data/open/f", b"open");
    bed.write("root/data/public/f", b"public");
    bed.write("root/data/set/f", b"private");
    bed.write("root/data/set/in/large", &noise(9 << 20, 1));
    as_reader(&bed, &["endpoint", "add", "lab", "--ticket-file", "ticket"]).succeeded();
    publish(&bed, "public", "example.org/public", &[]).succeeded();
    // Its publisher is let know the identity of a reader by what that one is told.
    publish(&bed, "set", NAME, &["--readers", &"0".repeat(64)]).succeeded();
    let out = bed.command("reader", &["ls", "lab:data/set"]).output().unwrap();
    let told = String::from_utf8(out.stderr).unwrap();
    let pin = told.split(|c: char| !c.is_ascii_hexdigit()).find(|word| word.len() == 64).expect(&told);
    publish(&bed, "set", NAME, &["--readers", pin]).succeeded();
    (bed, server)
}

fn publish(bed: &Bed, directory: &str, name: &str, more: &[&str]) -> Ran {
    let directory = format!("root/data/{directory}");
    bed.finish(bed.command("publisher", &[&["publish", &directory, "--as", name, "--key", "key"][..], more].concat()))
}

fn as_reader(bed: &Bed, args: &[&str]) -> Ran {
    bed.finish(bed.command("reader", args))
}

fn text(ran: &Ran) -> String {
    format!("{}{}", ran.stderr, String::from_utf8_lossy(&ran.stdout))
}

#[track_caller]
fn assert_closed(ran: &Ran) {
    assert!(ran.code != Some(0) && ran.stderr.contains(CLOSED), "{:?} {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("thalweg publish --readers"), "{}", ran.stderr);
}

#[test]
fn whoever_is_no_reader_reaches_nothing_of_a_set_by_its_path() {
    let (bed, _server) = ground();
    symlink("set/in", bed.path("root/data/link")).unwrap();
    symlink("data/set", bed.path("root/alias")).unwrap();
    bed.write("mine", b"mine");
    for path in ["data/set/", "data/set/in/", "data/link/", "alias/in/", "alias/"] {
        let at = format!("lab:{path}");
        for args in [&["ls", &at][..], &["tree", &at], &["du", &at], &["cp", &at, "got/"], &["sum", &at]] {
            assert_closed(&bed.run(args));
            as_reader(&bed, args).succeeded();
        }
        fs::remove_dir_all(bed.path("got")).unwrap();
    }
    for path in ["data/set/f", "data/set/in/large", "data/link/large", "alias/in/large", "data/set/.thalweg-set/note"] {
        let at = format!("lab:{path}");
        for args in [
            &["stat", &at][..],
            &["cat", &at],
            &["sum", &at],
            &["cp", &at, "got"],
            &["ls", &at],
            &["check", &at, "got"],
        ] {
            let ran = bed.run(args);
            assert!(ran.code != Some(0) && text(&ran).contains(CLOSED), "{args:?}: {}", text(&ran));
        }
        assert!(!bed.path("got").exists());
        as_reader(&bed, &["cat", &at]).succeeded();
    }
    // Nothing there is changed either: what is moved out could be read, and another note would open all.
    for args in [
        &["cp", "mine", "lab:data/set/"][..],
        &["cp", "mine", "lab:data/set/.thalweg-set/note"],
        &["sync", "--delete", "root/data/open/", "lab:data/set/"],
        &["sync", "--dry-run", "--delete", "root/data/open/", "lab:data/set/"],
        &["mv", "lab:data/set/f", "lab:data/open/f2"],
        &["mv", "lab:data/set/.thalweg-set", "lab:data/open/"],
        &["rm", "lab:data/set/f"],
        &["rm", "-r", "lab:data/set"],
        &["rm", "-r", "lab:data/set/.thalweg-set"],
        &["mkdir", "lab:data/set/new"],
        &["cp", "lab:data/set/f", "lab:data/open/f2"],
    ] {
        let ran = bed.run(args);
        assert!(ran.code != Some(0) && text(&ran).contains(CLOSED), "{args:?}: {}", text(&ran));
    }
    assert_eq!(fs::read(bed.path("root/data/set/f")).unwrap(), b"private");
    assert!(!bed.path("root/data/open/f2").exists());
    let fetch = ["fetch", NAME, "copy", "--from", "lab:data/set"];
    assert_closed(&bed.run(&fetch));
    as_reader(&bed, &fetch).succeeded();
    assert_eq!(fs::read(bed.path("copy/f")).unwrap(), b"private");
    // The user of the endpoint itself is not concerned, nor is whoever reads the public one.
    bed.run(&["cp", "root/data/set/f", "own"]).succeeded();
    bed.run(&["fetch", "example.org/public", "public", "--from", "lab:data/public"]).succeeded();
}

#[test]
fn from_above_a_set_of_others_is_left_out_with_a_word_and_what_a_mirror_has_of_it_stays() {
    let (bed, _server) = ground();
    for args in [&["ls", "-R", "lab:"][..], &["tree", "lab:"], &["du", "lab:data"]] {
        let ran = bed.run(args);
        let told = text(&ran);
        assert!(told.contains(CLOSED) && !told.contains("large"), "{args:?}: {told}");
    }
    let ran = bed.run(&["cp", "-r", "lab:data/", "all/"]);
    assert!(ran.stderr.contains(CLOSED), "{}", ran.stderr);
    assert!(bed.path("all/open/f").exists() && bed.path("all/public/f").exists() && !bed.path("all/set").exists());
    bed.write("all/set/kept", b"kept");
    bed.write("all/open/gone", b"gone");
    bed.run(&["sync", "--delete", "lab:data/", "all/"]);
    assert!(bed.path("all/set/kept").exists() && !bed.path("all/open/gone").exists());
    let ran = bed.run(&["sync", "--delete", "all/", "lab:data/"]);
    assert!(ran.code != Some(0) && ran.stderr.contains(CLOSED), "{}", ran.stderr);
    assert!(bed.path("root/data/set/f").exists() && !bed.path("root/data/set/kept").exists());
    bed.run(&["rm", "-r", "lab:data"]);
    assert!(bed.path("root/data/set/f").exists() && bed.path("root/data/set/.thalweg-set/note").exists());
    as_reader(&bed, &["cp", "-r", "lab:data/", "theirs/"]).succeeded();
    assert!(bed.path("theirs/set/in/large").exists());
    // Given another name as a whole it stays what it is.
    bed.run(&["mv", "lab:data/set", "lab:moved"]).succeeded();
    assert_closed(&bed.run(&["cat", "lab:moved/f"]));
    as_reader(&bed, &["cat", "lab:moved/f"]).succeeded();
}

#[test]
fn a_note_that_cannot_be_read_closes_a_set_to_all_and_a_reader_who_is_left_out_is_so_at_once() {
    let (bed, _server) = ground();
    let note = bed.path("root/data/set/.thalweg-set/note");
    let good = fs::read(&note).unwrap();
    for bad in [&b""[..], b"garbage", &good[..good.len() / 2]] {
        fs::write(&note, bad).unwrap();
        let refused = as_reader(&bed, &["ls", "lab:data/set/"]);
        assert!(refused.code != Some(0) && refused.stderr.contains("note cannot be read"), "{}", refused.stderr);
    }
    fs::write(&note, &good).unwrap();
    let slow = ["cp", "--bwlimit", "200K", "lab:data/set/in/large", "slow"];
    let mut command: Command = bed.command("reader", &slow);
    let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    until("it runs", || !staged(bed.dir.path()).is_empty());
    publish(&bed, "set", NAME, &["--readers", &"0".repeat(64)]).succeeded();
    assert_closed(&bed.wait(child));
    assert_closed(&as_reader(&bed, &["cat", "lab:data/set/f"]));
    // Published once more it is as private as before.
    publish(&bed, "set", NAME, &[]).succeeded();
    assert_closed(&as_reader(&bed, &["cat", "lab:data/set/f"]));
    publish(&bed, "set", NAME, &["--readers", "public"]).succeeded();
    as_reader(&bed, &["cat", "lab:data/set/f"]).succeeded();
}

#[test]
fn a_drop_box_can_make_no_set_of_the_directory_of_others() {
    let (bed, _server) = ground();
    bed.finish(
        bed.command("server", &["ticket", "new", "--write-only", "--path", "data/open", "--ticket-file", "drop"]),
    )
    .succeeded();
    let sender = |args: &[&str]| bed.finish(bed.command("sender", args));
    sender(&["endpoint", "add", "lab", "--ticket-file", "drop"]).succeeded();
    bed.write("hostile/.thalweg-set/note", b"closed to all");
    bed.write("note", b"closed to all");
    sender(&["cp", "-r", "hostile/", "lab:data/open/"]);
    sender(&["cp", "-r", "hostile/.thalweg-set", "lab:data/open/"]);
    let refused = sender(&["cp", "note", "lab:data/open/.thalweg-set/"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("makes no sets"), "{}", refused.stderr);
    assert!(!bed.path("root/data/open/.thalweg-set").exists());
    bed.run(&["cat", "lab:data/open/f"]).succeeded();
}
