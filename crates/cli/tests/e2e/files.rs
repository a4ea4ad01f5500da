//! Commands on locations: the same on this host and at an endpoint, within rights, and in bounded memory.

use crate::bed::{Bed, Ran, Server, noise};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn text(ran: Ran) -> String {
    String::from_utf8(ran.succeeded().stdout).unwrap()
}

/// A small tree with what is hard to show.
fn make_tree(bed: &Bed, below: &str) {
    bed.write(&format!("{below}/a/x"), b"12345");
    bed.write(&format!("{below}/a/b/y"), &noise(3 << 20, 1));
    bed.write(&format!("{below}/a-b"), b"");
    bed.write(&format!("{below}/new\nline"), b"n");
    bed.write(&format!("{below}/esc\u{1b}[2J"), b"e");
    fs::write(bed.path(below).join(std::ffi::OsStr::from_bytes(b"\xff")), b"f").unwrap();
    symlink("nowhere", bed.path(below).join("link")).unwrap();
}

/// A command on the endpoint's host.
fn at_endpoint(bed: &Bed, args: &[&str]) -> Ran {
    bed.finish(bed.command("server", args))
}

/// A bed whose client holds a limited ticket.
fn limited(limits: &[&str]) -> (Bed, Server) {
    let bed = Bed::new();
    let server = bed.serve(&[]);
    let args = [&["ticket", "new", "--ticket-file", "guest"], limits].concat();
    at_endpoint(&bed, &args).succeeded();
    bed.run(&["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    (bed, server)
}

#[test]
fn listings_of_both_sides_are_the_same_and_harm_no_terminal() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "root/t");
    let names = "a/\na-b\nesc\\x1b[2J\nlink\nnew\\nline\n\\xff\n";
    assert_eq!(text(bed.run(&["ls", "lab:t"])), names);
    assert_eq!(text(bed.run(&["ls", "lab:t/"])), names);
    assert_eq!(text(bed.run(&["ls", "root/t"])), names);
    assert_eq!(text(bed.run(&["ls", "-d", "lab:t/a"])), "lab:t/a/\n");
    assert_eq!(text(bed.run(&["ls", "lab:"])), "t/\n");
    let deep = text(bed.run(&["ls", "-R", "lab:t/a"]));
    assert_eq!(deep, "b/\nb/y\nx\n");
    for args in [&["ls", "-lR"][..], &["tree", "--sizes"], &["du", "--bytes"], &["stat"]] {
        let there = text(bed.run(&[args, &["lab:t"]].concat()));
        let here = text(bed.run(&[args, &["root/t"]].concat()));
        assert_eq!(there.replace("lab:t", "root/t"), here, "{args:?}");
        assert!(here.chars().all(|c| c == '\n' || !c.is_control()) || args == ["du", "--bytes"], "{here}");
    }
    let zero = bed.run(&["ls", "--print0", "lab:t"]).succeeded().stdout;
    assert_eq!(zero, b"a\0a-b\0esc\x1b[2J\0link\0new\nline\0\xff\0");
    let tree = text(bed.run(&["tree", "lab:t/a"]));
    assert_eq!(tree, "lab:t/a\n├── b\n│   └── y\n└── x\n\n1 directory, 2 files\n");
    assert_eq!(text(bed.run(&["du", "-s", "--bytes", "lab:t"])), format!("{}\tlab:t\n", (3 << 20) + 8));
    assert_eq!(text(bed.run(&["du", "-d", "0", "lab:t/a/x"])), "5 B\tlab:t/a/x\n");
    let listed = bed.run(&["ls", "--json", "-R", "lab:t/a"]).succeeded().events();
    assert_eq!((listed.len(), &listed[2]["path"], &listed[2]["size"]), (3, &"lab:t/a/x".into(), &5.into()));
    let known = &bed.run(&["stat", "--json", "lab:t/link"]).succeeded().events()[0];
    assert_eq!((&known["kind"], &known["target"]), (&"symlink".into(), &"nowhere".into()));
}

#[test]
fn directories_are_made_and_trees_removed_where_they_are() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "root/t");
    for at in ["lab:", "root/"] {
        let loc = |path: &str| format!("{at}{path}");
        let refused = bed.run(&["mkdir", &loc("n/m")]);
        assert_eq!(refused.code, Some(4), "{}", refused.stderr);
        bed.run(&["mkdir", "-p", &loc("n/m"), &loc("n")]).succeeded();
        assert_eq!(bed.run(&["mkdir", &loc("n")]).code, Some(23));
        let refused = bed.run(&["rm", &loc("n"), &loc("none")]);
        assert!(refused.stderr.contains("it is a directory") && refused.code == Some(23), "{}", refused.stderr);
        assert!(refused.stderr.contains("removed 0 files, 0 directories"), "{}", refused.stderr);
        let removed = bed.run(&["rm", "-rf", &loc("n"), &loc("none")]).succeeded();
        assert_eq!(removed.stderr, "removed 0 files, 2 directories\n");
        assert_eq!(bed.run(&["rm", &loc("none")]).code, Some(4));
    }
    for root in ["lab:", "lab:.", "lab:./"] {
        let refused = bed.run(&["rm", "-r", root]);
        assert_eq!(refused.code, Some(2), "{root} {}", refused.stderr);
        assert!(refused.stderr.contains("remove: this is the endpoint's root, which stays"), "{}", refused.stderr);
    }
    for path in [".", "root/..", "/"] {
        let refused = bed.run(&["rm", "-r", path]);
        assert_eq!(refused.code, Some(2), "{path}");
        assert!(refused.stderr.contains("remove: the path does not end in a name"), "{}", refused.stderr);
    }
    let refused = bed.run(&["rm", "-r", "lab:t/.."]);
    assert!(
        refused.stderr.contains("hint: omit the leading slash or the `..`: paths begin at the"),
        "{}",
        refused.stderr
    );
    for at in ["lab:", "root/"] {
        let (file, tree) = (format!("{at}t/a/x"), format!("{at}t"));
        for (from, to, why) in [
            (&file, format!("{at}t/a/x"), "both names already belong to the same file"),
            (&tree, format!("{at}t/a/t"), "a directory cannot go into itself"),
        ] {
            let refused = bed.run(&["mv", from, &to]);
            assert_eq!(refused.code, Some(2), "{from} {to}: {}", refused.stderr);
            assert!(refused.stderr.contains(&format!("rename: {why}")), "{}", refused.stderr);
        }
    }
    let done = bed.run(&["rm", "-r", "--json", "lab:t"]).succeeded().done();
    assert_eq!((&done["files"], &done["directories"], &done["code"]), (&7.into(), &3.into(), &0.into()));
    assert!(!bed.path("root/t").exists());
    let log = fs::read_to_string(bed.path("server/state_home/thalweg/transfers.jsonl")).unwrap();
    assert!(log.lines().any(|line| line.contains("\"change\"") && line.contains("\"rm\"")), "{log}");
}

#[test]
fn no_path_leads_out_of_the_root() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("outside/f", b"secret");
    symlink("../outside", bed.path("root/out")).unwrap();
    symlink("/", bed.path("root/abs")).unwrap();
    let long = format!("lab:{}", "x".repeat(300));
    let longer = format!("lab:{}", "d/".repeat(2500));
    let paths =
        ["lab:../outside", "lab:/etc", "lab:a/../../outside/f", "lab:out/f", "lab:out/", "lab:abs/etc", &long, &longer];
    for command in [&["ls"][..], &["rm", "-r"], &["mkdir", "-p"], &["stat"], &["du"], &["sum"], &["tree"], &["cat"]] {
        for path in paths {
            let ran = bed.run(&[command, &[path]].concat());
            let is_refused = ran.code.is_some_and(|code| code != 0) && !ran.stderr.contains("panicked");
            assert!(is_refused, "{command:?} {path}: {:?} {}", ran.code, ran.stderr);
            assert!(!String::from_utf8_lossy(&ran.stdout).contains("secret"));
        }
    }
    bed.write("root/f", b"f");
    for (from, to) in [("lab:f", "lab:../f"), ("lab:f", "lab:out/f"), ("lab:out/f", "lab:g"), ("lab:f", "lab:/tmp/f")] {
        assert_ne!(bed.run(&["mv", from, to]).code, Some(0), "{from} {to}");
    }
    assert_eq!(fs::read(bed.path("outside/f")).unwrap(), b"secret");
    // The link itself is the client's to remove.
    bed.run(&["rm", "-r", "lab:out"]).succeeded();
    assert!(bed.path("outside/f").exists() && bed.path("root/f").exists());
}

#[test]
fn what_a_ticket_does_not_allow_is_refused() {
    let (bed, _server) = limited(&["--path", "box", "--read-only"]);
    bed.write("root/box/f", b"f");
    bed.write("root/boxer/g", b"g");
    assert_eq!(text(bed.run(&["ls", "lab:box"])), "f\n");
    for args in [
        &["rm", "lab:box/f"][..],
        &["rm", "-r", "lab:box"],
        &["mkdir", "lab:box/d"],
        &["mv", "lab:box/f", "lab:box/g"],
        &["ls", "lab:boxer"],
        &["ls", "lab:"],
        &["sum", "lab:boxer/g"],
        &["check", "root/boxer", "lab:boxer"],
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(6), "{args:?} {}", ran.stderr);
    }
    assert!(bed.path("root/box/f").exists() && !bed.path("root/box/d").exists());

    let (bed, _server) = limited(&["--path", "box"]);
    bed.run(&["mkdir", "-p", "lab:box/d/e"]).succeeded();
    bed.write("root/box/f", b"f");
    bed.run(&["mv", "lab:box/f", "lab:box/d/"]).succeeded();
    bed.run(&["rm", "-r", "lab:box/d"]).succeeded();
    assert_eq!(bed.run(&["rm", "-r", "lab:box"]).code, Some(2));
    assert_eq!(bed.run(&["mv", "lab:box", "lab:box/x"]).code, Some(2));
    let refused = bed.run(&["mkdir", "--json", "lab:box/made", "lab:other"]);
    let done = refused.done();
    assert_eq!((refused.code, &done["code"], &done["directories"]), (Some(6), &6.into(), &1.into()), "{done}");

    let (bed, _server) = limited(&["--path", "drop", "--write-only"]);
    bed.write("root/drop/others", b"o");
    bed.write("others", b"mine");
    for args in [
        &["ls", "lab:drop"][..],
        &["rm", "lab:drop/others"],
        &["mv", "lab:drop/others", "lab:drop/x"],
        &["mkdir", "-p", "lab:drop/mine"],
        &["sync", "--delete", "t/", "lab:drop/"],
        &["sync", "-n", "--itemize", "t/", "lab:drop/"],
        &["sync", "-c", "t/", "lab:drop/"],
        &["cp", "--no-clobber", "others", "lab:drop/"],
    ] {
        fs::create_dir_all(bed.path("t")).unwrap();
        let ran = bed.run(args);
        assert!(ran.code == Some(6) && ran.stderr.contains("docs/rights.md"), "{args:?} {}", ran.stderr);
        assert!(ran.stdout.is_empty(), "{args:?}");
    }
    bed.run(&["cp", "others", "lab:drop/"]).succeeded();
    assert_eq!(fs::read(bed.path("root/drop/others")).unwrap(), b"o");
    let names = fs::read_dir(bed.path("root/drop")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    assert!(names.iter().any(|name| name.starts_with("others.~") && name.ends_with('~')), "{names:?}");
}

#[test]
fn cat_writes_files_one_after_the_other() {
    let (bed, _server) = Bed::with_endpoint();
    let content = noise(5 << 20, 7);
    bed.write("root/f", &content);
    bed.write("g", b"end");
    let ran = bed.run(&["cat", "lab:f", "g"]).succeeded();
    assert!(ran.stdout == [&content[..], b"end"].concat() && ran.stderr.is_empty(), "{}", ran.stderr);
    assert_eq!(bed.run(&["cat", "lab:none"]).code, Some(4));
    assert_eq!(bed.run(&["cat", "lab:f/"]).code, Some(2));
}

#[test]
fn check_finds_what_is_missing_extra_and_different() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "t");
    bed.run(&["cp", "t/", "lab:copy"]).succeeded();
    let same = bed.run(&["check", "t", "lab:copy"]).succeeded();
    assert!(same.stderr.starts_with("7 files are the same, 3.00 MiB by crc64nvme in "), "{}", same.stderr);
    for digest in ["blake3", "sha256", "md5", "adler32"] {
        bed.run(&["check", "--digest", digest, "t/", "lab:copy/", "-q"]).succeeded();
    }
    bed.run(&["check", "lab:copy", "root/copy"]).succeeded();
    let copy = bed.path("root/copy");
    let mut bytes = fs::read(copy.join("a/b/y")).unwrap();
    bytes[2_000_000] ^= 1;
    fs::write(copy.join("a/b/y"), bytes).unwrap();
    fs::write(copy.join("a-b"), b"longer").unwrap();
    fs::remove_file(copy.join("a/x")).unwrap();
    fs::write(copy.join("new"), b"").unwrap();
    fs::remove_file(copy.join("link")).unwrap();
    symlink("elsewhere", copy.join("link")).unwrap();
    let ran = bed.run(&["check", "t", "lab:copy"]);
    let found = String::from_utf8(ran.stdout.clone()).unwrap();
    let expected = "differs: a/b/y (content)\nmissing: a/x\ndiffers: a-b (0 and 6 bytes)\n\
                    differs: link (link to nowhere and elsewhere)\nextra: new\n";
    assert_eq!((ran.code, &found[..]), (Some(1), expected));
    assert_eq!(
        ran.error(),
        "error: the two differ: 1 missing, 1 extra, 3 different\nhint: `thalweg cp A/ B` copies what is missing or different"
    );
    let sizes = bed.run(&["check", "--size-only", "--one-way", "t", "lab:copy"]);
    assert_eq!(sizes.code, Some(1));
    assert!(!String::from_utf8_lossy(&sizes.stdout).contains("content"));
    let done = bed.run(&["check", "--json", "t", "lab:copy"]).done();
    assert_eq!((&done["missing"], &done["extra"], &done["different"]), (&1.into(), &1.into(), &3.into()));
    assert_eq!(bed.run(&["check", "t", "lab:none"]).code, Some(4));
    assert_eq!(bed.run(&["check", "t/a/x", "lab:copy/a-b"]).code, Some(1));
}

/// What another program says of the files in a directory.
fn other(bed: &Bed, program: &str, args: &[&str], directory: &Path) -> Option<std::process::Output> {
    let mut command = Command::new(program);
    match command.args(args).current_dir(directory).env("LC_ALL", "C").output() {
        Ok(output) => Some(output),
        // Not every host has every program; coreutils are everywhere.
        Err(_) if program == "b3sum" && !needs::program(program) => None,
        Err(e) => panic!("{program} in {}: {e}", bed.path("").display()),
    }
}

#[test]
fn lists_are_those_of_coreutils_both_ways() {
    let (bed, _server) = Bed::with_endpoint();
    for name in ["plain", "sp ace", "new\nline", "back\\slash", "cr\rlf"] {
        bed.write(&format!("root/t/{name}"), name.as_bytes());
    }
    bed.write("root/t/big", &noise(3_000_000, 3));
    for (digest, program) in [("sha256", "sha256sum"), ("md5", "md5sum"), ("blake3", "b3sum")] {
        let args = ["sum", "--digest", digest, "--format", "list", "lab:t/"];
        let listed = bed.run(&args).succeeded().stdout;
        let here = bed.run(&["sum", "--digest", digest, "--format", "list", "root/t/"]).succeeded().stdout;
        assert_eq!(listed, here);
        fs::write(bed.path("list"), &listed).unwrap();
        let list = bed.path("list").display().to_string();
        let names = ["plain", "sp ace", "new\nline", "back\\slash", "big"];
        for directory in ["lab:t", "root/t"] {
            bed.run(&["sum", "-c", "list", directory, "--digest", digest]).succeeded();
        }
        if let Some(checked) = other(&bed, program, &["-c", &list], &bed.path("root/t")) {
            // Older coreutils and b3sum do not escape a carriage return, and take no name with one.
            let good = String::from_utf8_lossy(&checked.stdout).lines().filter(|line| line.ends_with(": OK")).count();
            assert!(good >= names.len(), "{program} {checked:?}");
            let theirs = other(&bed, program, &names, &bed.path("root/t")).unwrap();
            fs::write(bed.path("theirs"), theirs.stdout).unwrap();
            let ran = bed.run(&["sum", "-c", "theirs", "lab:t", "--digest", digest]).succeeded();
            assert!(ran.stderr.starts_with("5 files are as listed"), "{}", ran.stderr);
        }
        let zero = bed.run(&["sum", "--digest", digest, "--format", "list", "-z", "lab:t/"]).succeeded().stdout;
        assert_eq!(zero.iter().filter(|byte| **byte == 0).count(), 6);
        fs::write(bed.path("zero"), zero).unwrap();
        bed.run(&["sum", "-z", "-c", "zero", "lab:t", "--digest", digest]).succeeded();
    }
    let adler = bed.run(&["sum", "--digest", "adler32", "lab:t/plain"]).succeeded().stdout;
    assert_eq!(adler, b"06480215  plain\n");
    bed.write("wrong", b"00000000  plain\n00000000  none\n");
    let ran = bed.run(&["sum", "-c", "wrong", "lab:t"]);
    let said = "plain: FAILED (content differs)\nnone: FAILED (missing)\n";
    assert_eq!((ran.code, String::from_utf8(ran.stdout).unwrap()), (Some(1), said.to_owned()));
    let absolute = bed.path("root/t/plain").display().to_string();
    bed.write("absolute", format!("06480215  {absolute}\n").as_bytes());
    bed.run(&["sum", "-c", "absolute"]).succeeded();
    assert_eq!(bed.run(&["sum", "-c", "absolute", "lab:"]).code, Some(6));
    let manifest = bed.run(&["sum", "lab:t/"]).succeeded().stdout;
    assert_eq!(manifest, bed.run(&["sum", "root/t/"]).succeeded().stdout);
    fs::write(bed.path("manifest"), manifest).unwrap();
    let done = bed.run(&["sum", "--json", "-c", "manifest", "lab:t"]).succeeded().done();
    assert_eq!((&done["ok"], &done["different"], &done["by"]), (&6.into(), &0.into(), &"crc64nvme".into()));
    bed.write("broken", b"06480215  plain\nno digest\n");
    let broken = bed.run(&["sum", "--json", "-c", "broken", "lab:t"]);
    assert_eq!((broken.code, &broken.done()["code"]), (Some(2), &2.into()), "{}", broken.stderr);
}

#[test]
fn the_same_rules_choose_for_every_command_on_both_sides() {
    let (bed, _server) = Bed::with_endpoint();
    for (path, bytes) in [("keep/a.h5", 5), ("keep/b.tmp", 7), ("only/c.tmp", 9), ("d.tmp", 11), ("e.h5", 13)] {
        bed.write(&format!("root/t/{path}"), &noise(bytes, 1));
    }
    let rules = ["--exclude", "*.tmp"];
    let run = |words: &[&str]| bed.run(&[words, &rules].concat());
    run(&["cp", "--quiet", "lab:t", "copy/"]).succeeded();
    let differences = bed.run(&["check", "--quiet", "lab:t", "copy/t"]);
    let told = String::from_utf8(differences.stdout).unwrap();
    assert_eq!(
        (differences.code, told.as_str()),
        (Some(1), "missing: d.tmp\nmissing: keep/b.tmp\nmissing: only/c.tmp\n")
    );
    run(&["check", "lab:t", "copy/t"]).succeeded();
    run(&["check", "--one-way", "root/t/", "copy/t"]).succeeded();
    assert_eq!(bed.run(&["check", "--quiet", "--max-size", "10", "lab:t", "copy/t"]).code, Some(1));
    bed.run(&["check", "--min-size", "12", "lab:t", "copy/t"]).succeeded();
    for place in ["lab:t", "root/t"] {
        let sums = text(run(&["sum", place]));
        assert_eq!(
            sums.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap()).collect::<Vec<_>>(),
            ["t/e.h5", "t/keep/a.h5"]
        );
        assert_eq!(text(run(&["ls", "-R", place])), "e.h5\nkeep/\nkeep/a.h5\nonly/\n");
        assert_eq!(text(run(&["du", "-s", "--bytes", place])), format!("18\t{place}\n"));
        let deep = text(bed.run(&["du", "--bytes", "--include", "*.tmp", place]));
        assert_eq!(deep, format!("7\t{place}/keep\n9\t{place}/only\n27\t{place}\n"));
    }
    assert_eq!(bed.run(&["sum", "-c", "x", "--exclude", "a", "copy"]).code, Some(2));
}

#[test]
fn only_what_is_chosen_is_removed_and_moved() {
    let (bed, _server) = Bed::with_endpoint();
    let make = |below: &str| {
        for path in ["keep/a.h5", "keep/b.tmp", "only/c.tmp", "d.tmp"] {
            bed.write(&format!("{below}/{path}"), b"12345");
        }
    };
    let exists = |path: &str| bed.path(path).exists();
    for (at, below) in [("lab:t", "root/t"), ("t", "t")] {
        make(below);
        bed.run(&["rm", "-r", "--include", "*.tmp", at]).succeeded();
        assert!(exists(&format!("{below}/keep/a.h5")) && exists(&format!("{below}/only")));
        assert!(!exists(&format!("{below}/keep/b.tmp")) && !exists(&format!("{below}/d.tmp")));
        bed.run(&["rm", "-r", "--exclude", "keep/", at]).succeeded();
        assert!(exists(&format!("{below}/keep/a.h5")) && !exists(&format!("{below}/only")));
        bed.run(&["rm", "-r", "--older-than", "1d", at]).succeeded();
        assert!(exists(&format!("{below}/keep/a.h5")));
    }
    make("m");
    bed.run(&["mv", "--exclude", "*.tmp", "m", "lab:moved/"]).succeeded();
    assert!(exists("root/moved/m/keep/a.h5") && !exists("m/keep/a.h5") && exists("m/keep/b.tmp") && exists("m/d.tmp"));
    bed.write("list", b"only\n");
    bed.run(&["mv", "--files-from", "list", "m", "elsewhere"]).succeeded();
    assert!(exists("elsewhere/only/c.tmp") && !exists("m/only") && exists("m/d.tmp"));
}

/// A name that goes changes when the file was changed last, which its other names were seen with: here more of them than one question
/// has paths.
#[test]
fn every_name_of_a_file_is_removed_and_moved() {
    const NAMES: usize = 300;
    let (bed, _server) = Bed::with_endpoint();
    let make = |below: &str| {
        let first = bed.write(&format!("{below}/0"), b"of many names");
        (1..NAMES).for_each(|name| fs::hard_link(&first, bed.path(below).join(name.to_string())).unwrap());
    };
    for (at, below) in [("lab:t", "root/t"), ("t", "t")] {
        make(below);
        let ran = bed.run(&["rm", "-r", "--include", "*", at]).succeeded();
        assert!((0..NAMES).all(|name| !bed.path(below).join(name.to_string()).exists()), "{at}: {}", ran.stderr);
    }
    let Some(other) = bed.elsewhere() else { return };
    let there = other.path().display();
    let ways = [("lab:in/".to_owned(), bed.path("root/in")), (format!("{there}/in/"), other.path().join("in"))];
    for (to, arrived) in ways {
        make("m");
        let ran = bed.run(&["mv", "m", &to]).succeeded();
        assert!(!bed.path("m").exists(), "{to}: {}", ran.stderr);
        for name in 0..NAMES {
            assert_eq!(fs::read(arrived.join("m").join(name.to_string())).unwrap(), b"of many names", "{to}");
        }
    }
}

#[test]
fn within_one_side_a_move_is_a_rename() {
    let (bed, _server) = Bed::with_endpoint();
    for at in ["lab:", "root/"] {
        let loc = |path: &str| format!("{at}{path}");
        make_tree(&bed, "root/t");
        let before = fs::metadata(bed.path("root/t/a/b/y")).unwrap();
        bed.run(&["mv", &loc("t"), &loc("u")]).succeeded();
        bed.run(&["mv", &loc("u/a/b/y"), &loc("u/a/x"), &loc("new/")]).succeeded();
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(bed.path("root/new/y")).unwrap().ino(), before.ino());
        let refused = bed.run(&["mv", "--no-clobber", &loc("new/x"), &loc("new/y")]);
        assert_eq!(refused.code, Some(23), "{}", refused.stderr);
        bed.run(&["mv", &loc("new/x"), &loc("new/y")]).succeeded();
        assert_eq!(fs::read(bed.path("root/new/y")).unwrap(), b"12345");
        assert_eq!(bed.run(&["mv", &loc("none"), &loc("x")]).code, Some(4));
        assert_eq!(bed.run(&["mv", &loc("new"), &loc("u"), &loc("nowhere")]).code, Some(2));
        bed.run(&["rm", "-r", &loc("u"), &loc("new")]).succeeded();
    }
}

/// An endpoint on a file system that this host mounts too, or a mount of the source elsewhere: both sides have the same content,
/// because both are one file, and nothing may be removed.
#[test]
fn a_move_onto_itself_by_another_way_removes_nothing() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/in/only", b"copy");
    fs::create_dir(bed.path("root/in/empty")).unwrap();
    for (from, to) in [("root/in/only", "lab:in/only"), ("root/in", "lab:"), ("lab:in", "root/")] {
        let ran = bed.run(&["mv", from, to]);
        assert_eq!(ran.code, Some(23), "{from} {to}: {}", ran.stderr);
        assert!(ran.stderr.contains("the destination is the same object, reached by another path"), "{}", ran.stderr);
        assert_eq!(fs::read(bed.path("root/in/only")).unwrap(), b"copy");
        assert!(bed.path("root/in/empty").exists());
    }
}

#[test]
fn between_storages_only_what_arrived_leaves_the_source() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "t");
    let moved = bed.run(&["mv", "t", "lab:in/"]).succeeded();
    assert!(moved.stderr.ends_with("moved 7 files, 3 directories\n"), "{}", moved.stderr);
    assert!(!bed.path("t").exists());
    assert_eq!(fs::read(bed.path("root/in/t/a/b/y")).unwrap(), noise(3 << 20, 1));
    bed.run(&["mv", "lab:in/t", "back"]).succeeded();
    assert!(!bed.path("root/in/t").exists());
    assert_eq!(fs::read(bed.path("back/a/x")).unwrap(), b"12345");
    bed.write("one", b"1");
    bed.run(&["mv", "one", "lab:uno"]).succeeded();
    assert!(!bed.path("one").exists() && bed.path("root/uno").exists());

    // What stands at the destination and is not the same keeps its source where it is.
    bed.write("s/kept", b"mine");
    bed.write("s/gone", b"gone");
    bed.write("root/d/s/kept", b"theirs");
    let ran = bed.run(&["mv", "--no-clobber", "s", "lab:d"]);
    assert_ne!(ran.code, Some(0));
    assert_eq!(fs::read(bed.path("s/kept")).unwrap(), b"mine");
    assert_eq!(fs::read(bed.path("root/d/s/kept")).unwrap(), b"theirs");
    assert!(!bed.path("s/gone").exists() && bed.path("root/d/s/gone").exists(), "{}", ran.stderr);
    // Given again, what is there already counts as delivered.
    fs::write(bed.path("root/d/s/kept"), b"mine").unwrap();
    bed.run(&["mv", "--no-clobber", "s", "lab:d"]);
    assert_eq!(fs::read(bed.path("root/d/s/kept")).unwrap(), b"mine");
}

/// The most memory that a process had, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_hundred_thousand_files_are_listed_summed_and_removed_in_bounded_memory() {
    const FILES: usize = 100_000;
    const PEAK_KIB_MAX: u64 = 160 << 10;
    let (bed, server) = Bed::with_endpoint();
    for d in 0..100 {
        let directory = bed.path(format!("root/t/{d:03}"));
        fs::create_dir_all(&directory).unwrap();
        for f in 0..FILES / 100 {
            fs::write(directory.join(format!("file-{f:06}")), b"x").unwrap();
        }
    }
    let listed = bed.run(&["ls", "-R", "lab:t"]).succeeded().stdout;
    assert_eq!(listed.iter().filter(|byte| **byte == b'\n').count(), FILES + 100);
    let usage = text(bed.run(&["du", "-s", "--bytes", "lab:t"]));
    assert_eq!(usage, format!("{FILES}\tlab:t\n"));
    let checked = bed.run(&["check", "root/t", "lab:t"]).succeeded();
    assert!(checked.stderr.starts_with("100,000 files are the same"), "{}", checked.stderr);
    let removed = bed.run(&["rm", "-r", "lab:t"]).succeeded();
    assert_eq!(removed.stderr, "removed 100,000 files, 101 directories\n");
    assert!(!bed.path("root/t").exists());
    let peak = peak_kib(server.pid());
    assert!(peak < PEAK_KIB_MAX, "{peak} KiB");
    let (code, log) = server.stop();
    assert!(code == Some(0) && !log.contains("WARN") && !log.contains("ERROR"), "{log}");
}
