//! What is copied arrives as it was: to an endpoint, from one, and within a host.

use crate::bed::{Bed, contents, noise};
use std::ffi::OsStr;
use std::fs::{self, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A tree with everything that a tree can hold: sizes around every limit, empty directories, links, modes, times and
/// names of any bytes.
fn make_tree(bed: &Bed, name: &str) {
    let at = |below: &str| format!("{name}/{below}");
    for (i, bytes) in [0, 1, 1023, 4096, 70_000, 1 << 20, (9 << 20) + 7].into_iter().enumerate() {
        bed.write(&at(&format!("sizes/{bytes}")), &noise(bytes, i as u64));
    }
    for i in 0..300 {
        bed.write(&at(&format!("many/{}/{i}", i % 7)), &noise(i * 3, i as u64));
    }
    fs::create_dir_all(bed.path(at("empty/deeper"))).unwrap();
    symlink("sizes/4096", bed.path(at("link"))).unwrap();
    symlink("/nonexistent/\u{1b}[2J", bed.path(at("dangling"))).unwrap();
    for odd in [&b"sp ace"[..], b"new\nline", b"\xff\xfe", b"-rf", b"$(x)", b"a\\b", "\u{202e}txt".as_bytes()] {
        fs::write(bed.path(name).join(OsStr::from_bytes(odd)), odd).unwrap();
    }
    fs::write(bed.path(name).join("x".repeat(255)), b"long").unwrap();
    for (below, mode) in [("sizes/1", 0o600), ("sizes/4096", 0o755), ("sizes/0", 0o444), ("empty", 0o700)] {
        fs::set_permissions(bed.path(at(below)), fs::Permissions::from_mode(mode)).unwrap();
    }
    let times = [
        ("sizes/1023", SystemTime::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789)),
        ("sizes/4096", SystemTime::UNIX_EPOCH - Duration::from_secs(86_400)),
    ];
    for (below, time) in times {
        let file = fs::File::options().append(true).open(bed.path(at(below))).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    let directory = fs::File::open(bed.path(at("empty/deeper"))).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    directory.set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[track_caller]
fn assert_equal(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    let (a, b) = (contents(a.as_ref()), contents(b.as_ref()));
    let missing: Vec<_> = a.iter().filter(|line| !b.contains(line)).collect();
    let added: Vec<_> = b.iter().filter(|line| !a.contains(line)).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:#?}, added {added:#?}");
}

#[test]
fn generated_files_arrive_alike_on_every_way_and_a_null_sink_keeps_nothing() {
    let (bed, _server) = Bed::with_endpoint();
    bed.run(&["cp", "gen:1200x3000", "lab:pushed/"]).succeeded();
    bed.run(&["cp", "lab:gen:1200x3000", "pulled"]).succeeded();
    bed.run(&["cp", "gen:1200x3000", "copied"]).succeeded();
    assert_eq!(contents(&bed.path("copied")).len(), 1202);
    assert_equal(bed.path("root/pushed"), bed.path("copied"));
    assert_equal(bed.path("pulled"), bed.path("copied"));
    let before = contents(&bed.path("root"));
    for (from, to) in [("gen:3x9MiB", "lab:null:"), ("lab:gen:3x9MiB", "null:"), ("gen:3x9MiB", "null:")] {
        let events = bed.run(&["cp", "--json", from, to]).succeeded().events();
        let done = events.last().unwrap();
        assert_eq!((done["bytes"].as_u64(), done["files"]["ok"].as_u64()), (Some(27 << 20), Some(3)), "{from} {to}");
        assert_eq!(done["synthetic"], serde_json::json!(["source", "destination"]), "{from} {to}");
    }
    assert_eq!(contents(&bed.path("root")), before);
}

#[test]
fn a_tree_is_pushed_and_pulled_back_as_it_was() {
    let (bed, server) = Bed::with_endpoint();
    make_tree(&bed, "tree");
    bed.run(&["cp", "tree", "lab:in"]).succeeded();
    assert_equal(bed.path("tree"), bed.path("root/in/tree"));
    bed.run(&["cp", "lab:in/tree/", "back"]).succeeded();
    assert_equal(bed.path("tree"), bed.path("back"));
    let (code, log) = server.stop();
    assert_eq!(code, Some(0));
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
    let left: Vec<_> = fs::read_dir(bed.path("root")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["in"], "staging is gone");
}

#[test]
fn a_tree_is_copied_here_as_it_was() {
    let bed = Bed::new();
    make_tree(&bed, "tree");
    bed.run(&["cp", "tree/", "copy"]).succeeded();
    assert_equal(bed.path("tree"), bed.path("copy"));
    let again = bed.run(&["cp", "--json", "tree/", "copy"]).succeeded().done();
    assert_eq!((&again["files"]["ok"], &again["bytes"]), (&0.into(), &0.into()), "{again}");
    assert!(!bed.path("client/state_home").exists(), "a local copy needs no identity");
}

#[test]
fn what_is_there_already_is_skipped_and_what_differs_is_replaced() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("tree/same", b"same");
    bed.write("tree/other", b"new");
    bed.run(&["cp", "tree/", "lab:t"]).succeeded();
    bed.write("tree/other", b"newer");
    let done = bed.run(&["cp", "--json", "tree/", "lab:t"]).succeeded().done();
    assert_eq!(done["files"], serde_json::json!({"ok": 1, "skipped": 1, "failed": 0}));
    assert_equal(bed.path("tree"), bed.path("root/t"));
}

#[test]
fn several_sources_go_below_one_directory_in_both_directions() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("a/1", b"1");
    bed.write("b/2", b"2");
    bed.write("c", b"c");
    bed.run(&["cp", "a", "b/", "c", "lab:x/y"]).succeeded();
    for (below, content) in [("a/1", "1"), ("2", "2"), ("c", "c")] {
        assert_eq!(fs::read_to_string(bed.path("root/x/y").join(below)).unwrap(), content);
    }
    bed.run(&["cp", "lab:x/y/a/", "lab:x/y/c", "here"]).succeeded();
    assert_eq!(fs::read_to_string(bed.path("here/1")).unwrap(), "1");
    assert_eq!(fs::read_to_string(bed.path("here/c")).unwrap(), "c");
    bed.run(&["cp", "a", "c", "there"]).succeeded();
    assert_eq!(fs::read_to_string(bed.path("there/a/1")).unwrap(), "1");
}

#[test]
fn a_single_file_gets_a_new_name_or_goes_into_a_directory() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    fs::create_dir(bed.path("root/there")).unwrap();
    for (to, at) in [("new", "new"), ("deep/new", "deep/new"), ("there", "there/f"), ("made/", "made/f")] {
        bed.run(&["cp", "f", &format!("lab:{to}")]).succeeded();
        assert_eq!(fs::read(bed.path("root").join(at)).unwrap(), b"f", "push to {to}");
    }
    fs::create_dir_all(bed.path("copied/there")).unwrap();
    fs::create_dir_all(bed.path("pulled/there")).unwrap();
    for (to, at) in [("new", "new"), ("deep/new", "deep/new"), ("there", "there/f"), ("made/", "made/f")] {
        bed.run(&["cp", "lab:made/f", &format!("pulled/{to}")]).succeeded();
        assert_eq!(fs::read(bed.path("pulled").join(at)).unwrap(), b"f", "pull to {to}");
        bed.run(&["cp", "f", &format!("copied/{to}")]).succeeded();
        assert_eq!(fs::read(bed.path("copied").join(at)).unwrap(), b"f", "copy to {to}");
    }
}

#[test]
fn a_directory_pulled_to_a_new_name_lands_below_it() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/d/sub/f", b"f");
    bed.run(&["cp", "lab:d", "new"]).succeeded();
    assert_eq!(fs::read(bed.path("new/d/sub/f")).unwrap(), b"f");
    bed.run(&["cp", "lab:d/", "contents"]).succeeded();
    assert_eq!(fs::read(bed.path("contents/sub/f")).unwrap(), b"f");
    bed.run(&["cp", "lab:", "everything"]).succeeded();
    assert_eq!(fs::read(bed.path("everything/d/sub/f")).unwrap(), b"f");
}

#[test]
fn special_files_are_skipped_with_a_reason() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/f", b"f");
    let socket = std::os::unix::net::UnixListener::bind(bed.path("t/socket")).unwrap();
    let ran = bed.run(&["cp", "t", "lab:"]).succeeded();
    assert!(ran.stderr.contains("skipped: t/socket: a socket is not copied"), "{}", ran.stderr);
    let ran = bed.run(&["cp", "--json", "t", "lab:again"]).succeeded();
    assert_eq!(ran.done()["files"], serde_json::json!({"ok": 1, "skipped": 1, "failed": 0}));
    let file = ran.events().into_iter().find(|event| event["event"] == "file").unwrap();
    assert_eq!((&file["path"], &file["outcome"]), (&"t/socket".into(), &"skipped".into()));
    drop(socket);
}

/// The kernel gives the size of most of its files as 0, and nothing of them changes while they are read.
#[test]
fn a_file_with_content_and_size_0_fails_and_never_arrives_empty() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    for to in ["lab:in", "here"] {
        let ran = bed.run(&["cp", "/proc/version", "f", to]);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(ran.stderr.contains("failed: version: read file: its size is said to be 0"), "{}", ran.stderr);
    }
    for at in ["root/in", "here"] {
        assert!(bed.path(at).join("f").exists() && !bed.path(at).join("version").exists());
    }
    for command in [&["cat", "/proc/version"][..], &["sum", "/proc/version"], &["mv", "/proc/version", "lab:"]] {
        let ran = bed.run(command);
        assert_eq!(ran.code, Some(23), "{command:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("its size is said to be 0"), "{command:?}: {}", ran.stderr);
    }
}

#[test]
fn a_special_file_that_is_named_is_skipped_and_holds_up_nothing() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"f");
    let _socket = std::os::unix::net::UnixListener::bind(bed.path("socket")).unwrap();
    let ran = bed.run(&["cp", "socket", "f", "lab:in/"]).succeeded();
    assert!(ran.stderr.contains("skipped: socket: a socket is not copied"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("trying again") && bed.path("root/in/f").exists(), "{}", ran.stderr);
    let ran = bed.run(&["cat", "socket"]);
    assert_eq!(ran.code, Some(23), "{}", ran.stderr);
    assert!(ran.stderr.contains("error: nothing was written to standard output"), "{}", ran.stderr);
}

#[test]
fn modes_are_what_chmod_says() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/f", b"f");
    bed.run(&["cp", "--chmod", "600,711", "t", "lab:"]).succeeded();
    bed.run(&["cp", "--chmod=600", "t", "copy"]).succeeded();
    let mode = |below: &str| fs::metadata(bed.path(below)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("root/t"), mode("root/t/f")), (0o711, 0o600));
    assert_eq!((mode("copy/t"), mode("copy/t/f")), (0o700, 0o600));
}

#[test]
fn no_clobber_keeps_what_is_there_and_counts_it_as_skipped() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/f", b"new");
    bed.write("root/t/f", b"old!");
    let done = bed.run(&["cp", "--json", "--no-clobber", "t", "lab:"]).succeeded().done();
    assert_eq!(done["files"], serde_json::json!({"ok": 0, "skipped": 1, "failed": 0}));
    assert_eq!(fs::read(bed.path("root/t/f")).unwrap(), b"old!");
}

#[test]
fn every_way_of_verifying_storing_and_chunking_delivers_the_same() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "tree");
    let ways: [&[&str]; 5] = [
        &["--digest", "blake3"],
        &["--verify", "reread", "--fsync", "file"],
        &["--fsync", "never", "--chunk-size", "1MiB"],
        &["--streams", "5", "--digest", "blake3", "--verify", "reread"],
        &["--engine", "pread", "--streams", "1"],
    ];
    for (i, way) in ways.into_iter().enumerate() {
        let (push, pull, copy) = (format!("lab:{i}"), format!("back{i}"), format!("copy{i}"));
        for ends in [["tree/", &push], [&format!("{push}/"), &pull], ["tree/", &copy]] {
            let mut args = vec!["cp"];
            args.extend(way);
            args.extend(ends);
            bed.run(&args).succeeded();
        }
        assert_equal(bed.path("tree"), bed.path(format!("root/{i}")));
        assert_equal(bed.path("tree"), bed.path(pull));
        assert_equal(bed.path("tree"), bed.path(copy));
    }
}

#[test]
fn one_endpoint_serves_both_directions_at_once() {
    let (bed, _server) = Bed::with_endpoint();
    make_tree(&bed, "out");
    make_tree(&bed, "root/held");
    let children: Vec<_> = (0..2)
        .flat_map(|i| {
            [
                ["cp".to_owned(), "out/".into(), format!("lab:in{i}")],
                ["cp".into(), "lab:held/".into(), format!("back{i}")],
            ]
        })
        .map(|args| bed.start(&args))
        .collect();
    for child in children {
        bed.wait(child).succeeded();
    }
    for i in 0..2 {
        assert_equal(bed.path("out"), bed.path(format!("root/in{i}")));
        assert_equal(bed.path("root/held"), bed.path(format!("back{i}")));
    }
}

#[test]
fn a_result_is_three_lines_and_advice_where_there_is_some() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"12345");
    let ran = bed.run(&["cp", "f", "lab:"]).succeeded();
    let lines: Vec<_> = ran.stderr.lines().collect();
    let is_advised = lines.get(3).is_some_and(|line| line.starts_with("to go faster: "));
    assert_eq!(lines.len(), if is_advised { 4 } else { 3 }, "{}", ran.stderr);
    assert_eq!(lines[0], "copied 1 file, 5 B to lab:");
    assert!(lines[1].starts_with("in 0.") && lines[1].contains("; TLS 1.3, "), "{}", lines[1]);
    assert!(lines[1].contains("; verified by crc64nvme; "), "{}", lines[1]);
    assert!(lines[2].starts_with("too short to tell") || lines[2].starts_with("limited by "), "{}", lines[2]);
    assert!(ran.stdout.is_empty());
    let ran = bed.run(&["cp", "-q", "f", "lab:quiet"]).succeeded();
    assert_eq!(ran.stderr, "");
}

#[test]
fn explain_tells_the_choices_and_the_table_of_streams() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"12345");
    let ran = bed.run(&["cp", "--explain", "f", "lab:"]).succeeded();
    assert!(ran.stderr.contains("streams between these two hosts, by round trip time:"), "{}", ran.stderr);
    assert!(ran.stderr.lines().any(|line| line.trim_start().starts_with("100 ms  ")), "{}", ran.stderr);
    assert!(ran.stderr.contains("note: "), "{}", ran.stderr);
}

#[test]
fn flags_stand_anywhere_and_names_behind_two_dashes_may_begin_with_one() {
    let bed = Bed::new();
    bed.write("f", b"f");
    bed.write("g", b"g");
    bed.run(&["cp", "f", "--quiet", "g", "--fsync", "never", "into/"]).succeeded();
    assert_eq!(contents(&bed.path("into")).len(), 2);
    bed.run(&["cp", "--", "f", "-x"]).succeeded();
    bed.run(&["cp", "--", "-x", "-y"]).succeeded();
    bed.run(&["mv", "--", "-y", "-z"]).succeeded();
    assert_eq!(bed.run(&["mv", "-x", "--quiet", "lost"]).code, Some(2));
    bed.run(&["sync", "--", "into/", "-copy"]).succeeded();
    assert_eq!(fs::read(bed.path("-z")).unwrap(), b"f");
    assert!(bed.path("-x").exists() && bed.path("-copy/g").exists() && !bed.path("-y").exists());
    for command in ["cp", "mv", "sync"] {
        let ran = bed.run(&[command, "f"]);
        let error = "error: only f is named: a source and a destination are needed\n\
            hint: name the destination too; `.` is the current directory";
        assert_eq!((ran.code, &ran.error()[..]), (Some(2), error));
    }
}
