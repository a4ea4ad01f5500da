//! Synchronising: what is sent, what is removed and above all what is not, over a network both ways and on one host.

use crate::bed::{Bed, Ran, Server, as_nobody, behind, contents, is_root, journal_bytes, noise, until};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// One way from a source to a destination: how both are named in a command, and where they lie.
struct Way {
    name: &'static str,
    from: &'static str,
    to: &'static str,
    source: &'static str,
    destination: &'static str,
}

const WAYS: [Way; 3] = [
    Way { name: "push", from: "s/", to: "lab:d", source: "s", destination: "root/d" },
    Way { name: "pull", from: "lab:s/", to: "d", source: "root/s", destination: "d" },
    Way { name: "local", from: "s/", to: "d", source: "s", destination: "d" },
];

/// Runs a test over each way, in beds of their own.
fn each_way(test: impl Fn(&Bed, &Way)) {
    for way in &WAYS {
        let (bed, _server) = Bed::with_endpoint();
        eprintln!("way: {}", way.name);
        test(&bed, way);
    }
}

impl Way {
    fn sync(&self, bed: &Bed, flags: &[&str]) -> Ran {
        let args: Vec<&str> = ["sync"].into_iter().chain(flags.iter().copied()).chain([self.from, self.to]).collect();
        bed.run(&args)
    }

    fn put(&self, bed: &Bed, files: &[&str]) {
        for file in files {
            bed.write(&format!("{}/{file}", self.source), file.as_bytes());
        }
    }

    fn there(&self, bed: &Bed, file: &str) -> PathBuf {
        bed.path(self.destination).join(file)
    }

    /// The names below the destination, in order.
    fn names(&self, bed: &Bed) -> Vec<String> {
        names(bed.path(self.destination))
    }
}

fn names(root: PathBuf) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![root.clone()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
            }
        }
    }
    found.sort();
    found
}

fn age(path: PathBuf, seconds: u64) {
    let at = SystemTime::now() - Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
}

fn stdout(ran: &Ran) -> String {
    String::from_utf8(ran.stdout.clone()).unwrap()
}

#[test]
fn a_sync_with_delete_makes_the_destination_like_the_source() {
    each_way(|bed, way| {
        way.put(bed, &["a", "sub/b", "sub/deep/c"]);
        way.sync(bed, &[]).succeeded();
        way.put(bed, &["new"]);
        fs::remove_dir_all(bed.path(way.source).join("sub/deep")).unwrap();
        fs::remove_file(bed.path(way.source).join("a")).unwrap();
        way.sync(bed, &[]).succeeded();
        assert!(way.there(bed, "a").exists(), "nothing goes without --delete");
        let done = way.sync(bed, &["--json", "--delete"]).succeeded().done();
        assert_eq!((&done["removed"], &done["is_dry_run"]), (&3.into(), &false.into()));
        assert_eq!(contents(&bed.path(way.source)), contents(&bed.path(way.destination)));
        let ran = way.sync(bed, &["--delete"]).succeeded();
        assert!(ran.stderr.starts_with("copied 0 files, 0 B to "), "{}", ran.stderr);
        assert!(ran.stderr.contains("2 skipped; 0 removed"), "{}", ran.stderr);
    });
}

#[test]
fn a_source_without_a_slash_never_empties_what_lies_beside_it() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("d/keep", b"x");
    bed.write("root/d/keep", b"x");
    bed.write("s/f", b"x");
    bed.write("root/s/f", b"x");
    for (from, to, at) in [("s", "d", "d"), ("s", "lab:d", "root/d"), ("lab:s", "d", "d")] {
        bed.write(&format!("{at}/s/gone"), b"x");
        bed.run(&["sync", "--delete", from, to]).succeeded();
        assert_eq!(names(bed.path(at)), ["keep", "s", "s/f"], "{from} {to}");
    }
    bed.run(&["sync", "--delete", "s/f", "d"]).succeeded();
    assert_eq!(names(bed.path("d")), ["f", "keep", "s", "s/f"]);
}

#[test]
fn a_dry_run_tells_what_would_be_done_and_changes_nothing() {
    each_way(|bed, way| {
        way.put(bed, &["a", "sub/b", "same"]);
        way.sync(bed, &[]).succeeded();
        bed.write(&format!("{}/a", way.source), b"longer");
        way.put(bed, &["new/x"]);
        fs::remove_file(bed.path(way.source).join("sub/b")).unwrap();
        let before = contents(&bed.path(way.destination));
        let ran = way.sync(bed, &["-n", "--delete"]).succeeded();
        assert_eq!(contents(&bed.path(way.destination)), before);
        let sign = if way.name == "push" { "<" } else { ">" };
        let mut lines: Vec<_> = stdout(&ran).lines().map(str::to_owned).collect();
        lines.sort();
        let mut expected = vec![
            "*deleting   sub/b".to_owned(),
            format!("{sign}f+++++++++ new/x"),
            format!("{sign}f.st...... a"),
            "cd+++++++++ new/".to_owned(),
        ];
        expected.sort();
        assert_eq!(lines, expected);
        assert!(ran.stderr.starts_with("would copy 2 files, 11 B to "), "{}", ran.stderr);
        assert!(ran.stderr.contains("1 removed") && ran.stderr.contains("nothing was changed (--dry-run)"));
        let real = way.sync(bed, &["--itemize", "--delete"]).succeeded();
        let mut lines: Vec<_> = stdout(&real).lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, expected, "the real run does what the dry one told");
        assert_eq!(stdout(&way.sync(bed, &["--itemize", "--delete"]).succeeded()), "");
    });
}

#[test]
fn a_dry_run_to_a_place_that_does_not_exist_does_not_make_it() {
    each_way(|bed, way| {
        way.put(bed, &["sub/b"]);
        let ran = way.sync(bed, &["-n"]).succeeded();
        assert!(stdout(&ran).contains("f+++++++++ sub/b\n"), "{}", stdout(&ran));
        assert!(!bed.path(way.destination).exists());
        let staged = fs::read_dir(bed.path("root"))
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b".thalweg"));
        assert_eq!(staged.count(), 0);
        let quiet = way.sync(bed, &["-n", "-q"]).succeeded();
        assert_eq!((stdout(&quiet), &quiet.stderr[..]), (String::new(), ""));
    });
}

#[test]
fn changes_are_events_for_programs() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/f", b"x");
    bed.write("root/d/gone", b"x");
    let ran = bed.run(&["sync", "--json", "--itemize", "--delete", "s/", "lab:d"]).succeeded();
    let changes: Vec<_> = ran.events().into_iter().filter(|event| event["event"] == "change").collect();
    let told = |path: &str| changes.iter().find(|change| change["path"] == path).unwrap().clone();
    assert_eq!((&told("f")["action"], &told("f")["letters"]), (&"create".into(), &"<f+++++++++".into()));
    assert_eq!((&told("gone")["action"], &told("gone")["kind"]), (&"delete".into(), &"file".into()));
    assert_eq!((&ran.events()[0]["command"], changes.len()), (&"sync".into(), 2));
}

#[test]
fn more_than_max_delete_removes_nothing_and_is_exit_25() {
    each_way(|bed, way| {
        way.put(bed, &["a"]);
        for file in ["x", "y", "sub/z"] {
            bed.write(&format!("{}/{file}", way.destination), b"x");
        }
        let ran = way.sync(bed, &["--delete", "--max-delete", "3"]);
        assert_eq!(ran.code, Some(25), "{}", ran.stderr);
        assert_eq!(
            ran.error(),
            "error: 4 objects would be removed, more than --max-delete 3: nothing was removed\n\
             hint: list them with --dry-run; a larger --max-delete allows their removal"
        );
        assert_eq!(way.names(bed), ["a", "sub", "sub/z", "x", "y"], "the rest is done");
        way.sync(bed, &["--delete", "--max-delete", "4"]).succeeded();
        assert_eq!(way.names(bed), ["a"]);
    });
}

#[test]
fn what_is_excluded_is_neither_sent_nor_removed() {
    each_way(|bed, way| {
        way.put(bed, &["a", "b.tmp", "cache/x"]);
        for file in ["old.tmp", "cache/mine", "gone", "was/old.tmp", "was/gone"] {
            bed.write(&format!("{}/{file}", way.destination), b"x");
        }
        way.sync(bed, &["--delete", "--exclude", "*.tmp", "--filter", "- /cache/"]).succeeded();
        assert_eq!(way.names(bed), ["a", "cache", "cache/mine", "old.tmp", "was", "was/old.tmp"]);
    });
}

#[test]
fn sizes_and_ages_choose_what_is_sent_and_protect_from_removal() {
    each_way(|bed, way| {
        way.put(bed, &["small"]);
        bed.write(&format!("{}/large", way.source), &noise(5000, 1));
        bed.write(&format!("{}/aged", way.source), b"x");
        age(bed.path(way.source).join("aged"), 3 * 86_400);
        way.sync(bed, &["--max-size", "1KiB", "--newer-than", "1d"]).succeeded();
        assert_eq!(way.names(bed), ["small"]);
        way.sync(bed, &["--min-size", "1KiB"]).succeeded();
        assert_eq!(way.names(bed), ["large", "small"]);
        way.sync(bed, &["--delete", "--older-than", "2d"]).succeeded();
        assert_eq!(way.names(bed), ["aged", "large", "small"], "what the source has stays");
    });
}

#[test]
fn only_includes_leave_the_rest_and_make_no_empty_directories() {
    each_way(|bed, way| {
        way.put(bed, &["a.c", "a.h", "x/y/b.c", "x/z/b.h", "docs/all/of/it"]);
        way.sync(bed, &["--include", "*.c", "--include", "/docs/"]).succeeded();
        assert_eq!(way.names(bed), ["a.c", "docs", "docs/all", "docs/all/of", "docs/all/of/it", "x", "x/y", "x/y/b.c"]);
    });
}

#[test]
fn a_list_names_what_is_sent() {
    each_way(|bed, way| {
        way.put(bed, &["a", "sub/b", "sub/c", "dir/x/y", "other"]);
        bed.write("list", b"# a list\nsub/b\ndir\n\nnosuch\n");
        let ran = way.sync(bed, &["--files-from", "list"]);
        assert_eq!(ran.code, Some(24), "{}", ran.stderr);
        assert!(ran.stderr.contains("failed: nosuch: it does not exist"), "{}", ran.stderr);
        assert!(ran.error().contains("hint: they do not exist at the source"), "{}", ran.stderr);
        assert_eq!(way.names(bed), ["dir", "dir/x", "dir/x/y", "sub", "sub/b"]);
        bed.write("list0", b"a\0sub/c\0");
        way.sync(bed, &["--files-from0", "list0"]).succeeded();
        assert_eq!(way.names(bed), ["a", "dir", "dir/x", "dir/x/y", "sub", "sub/b", "sub/c"]);
    });
}

#[test]
fn each_way_of_comparing_finds_what_it_should() {
    each_way(|bed, way| {
        way.put(bed, &["f"]);
        let put = |content: &[u8], seconds| {
            bed.write(&format!("{}/f", way.source), content);
            age(bed.path(way.source).join("f"), seconds);
        };
        let there = || fs::read(way.there(bed, "f")).unwrap();
        put(b"one", 1000);
        way.sync(bed, &[]).succeeded();
        put(b"two", 1000);
        // The same size and very nearly the same time: only the content tells.
        let time = fs::metadata(way.there(bed, "f")).unwrap().modified().unwrap();
        let source = fs::File::options().write(true).open(bed.path(way.source).join("f")).unwrap();
        source.set_modified(time).unwrap();
        way.sync(bed, &[]).succeeded();
        assert_eq!(there(), b"one");
        let done = way.sync(bed, &["--json", "-c"]).succeeded().done();
        assert_eq!((there(), &done["files"]["ok"]), (b"two".to_vec(), &1.into()));
        put(b"two", 500);
        let done = way.sync(bed, &["--json", "--checksum"]).succeeded().done();
        assert_eq!((&done["files"]["skipped"], &done["sent_bytes"]), (&1.into(), &0.into()));
        assert_eq!(
            fs::metadata(way.there(bed, "f")).unwrap().modified().unwrap(),
            fs::metadata(bed.path(way.source).join("f")).unwrap().modified().unwrap(),
            "the same content gets its time"
        );
        put(b"six", 100);
        way.sync(bed, &["--compare", "size"]).succeeded();
        assert_eq!(there(), b"two");
        put(b"seven", 100);
        way.sync(bed, &["--compare", "exists"]).succeeded();
        assert_eq!(there(), b"two");
        way.sync(bed, &["--size-only"]).succeeded();
        assert_eq!(there(), b"seven");
        put(b"older", 90_000);
        way.sync(bed, &["-u"]).succeeded();
        assert_eq!(there(), b"seven");
        way.put(bed, &["new", "newdir/x"]);
        way.sync(bed, &["--existing"]).succeeded();
        assert_eq!((there(), way.names(bed)), (b"older".to_vec(), vec!["f".to_owned()]));
    });
}

#[test]
fn many_files_are_compared_by_content_across_batches() {
    each_way(|bed, way| {
        for i in 0..3000 {
            bed.write(&format!("{}/{:02}/{i}", way.source, i % 30), &noise(100 + i, i as u64));
        }
        bed.write(&format!("{}/large", way.source), &noise(20 << 20, 1));
        way.sync(bed, &[]).succeeded();
        for i in [7, 1500, 2999] {
            let path = bed.path(way.source).join(format!("{:02}/{i}", i % 30));
            let time = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, noise(100 + i, 99)).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        let done = way.sync(bed, &["--json", "--checksum", "--digest", "blake3"]).succeeded().done();
        assert_eq!(done["files"], serde_json::json!({"ok": 3, "skipped": 2998, "failed": 0}));
        assert_eq!(contents(&bed.path(way.source)), contents(&bed.path(way.destination)));
    });
}

#[test]
fn of_a_large_file_that_changed_in_place_only_the_chunks_travel_that_differ() {
    each_way(|bed, way| {
        let mut content = noise(20 << 20 | 77, 1);
        let put = |content: &[u8]| bed.write(&format!("{}/large", way.source), content);
        put(&content);
        bed.write(&format!("{}/small", way.source), b"beside it");
        way.sync(bed, &[]).succeeded();
        content[(3 << 20) + 5] ^= 1;
        content[(12 << 20) - 1] ^= 1;
        put(&content);
        let sync = |flags: &[&str]| {
            let done = way.sync(bed, &[&["--json", "--delta"], flags].concat()).succeeded().done();
            assert!(
                fs::read(way.there(bed, "large")).unwrap() == fs::read(bed.path(way.source).join("large")).unwrap()
            );
            (done["sent_bytes"].as_u64().unwrap(), done["resumed_bytes"].as_u64().unwrap())
        };
        assert_eq!(sync(&[]), (2 << 20, (18 << 20) + 77));
        content.truncate(7 << 20 | 3);
        put(&content);
        // All of it is in the old file: its last chunk alone comes, with the word that the source stood still.
        assert_eq!(sync(&[]), (3, 7 << 20));
        content.extend_from_slice(&noise(4 << 20, 3));
        content[0] ^= 1;
        put(&content);
        assert_eq!(sync(&[]), ((5 << 20) + 3, 6 << 20));
        put(&content);
        assert_eq!(sync(&["--compare", "mtime"]).0, 3);
        content[9 << 20] ^= 1;
        let time = fs::metadata(way.there(bed, "large")).unwrap().modified().unwrap();
        put(&content);
        fs::File::options().write(true).open(bed.path(way.source).join("large")).unwrap().set_modified(time).unwrap();
        assert_eq!(sync(&["--checksum"]).0, 1 << 20);
    });
}

#[test]
fn chunks_of_more_files_are_compared_than_may_be_open_at_once() {
    const FILES: usize = 200;
    const BYTES: usize = (1 << 20) + 10;
    each_way(|bed, way| {
        for i in 0..FILES {
            bed.write(&format!("{}/{}/{i}", way.source, i % 3), &noise(BYTES, i as u64));
        }
        way.sync(bed, &[]).succeeded();
        for i in 0..FILES {
            let mut content = noise(BYTES, i as u64);
            content[BYTES - 1] ^= 1;
            bed.write(&format!("{}/{}/{i}", way.source, i % 3), &content);
        }
        let flags = ["sync", "--json", "--delta", "-c", way.from, way.to];
        let limited = ["sh", "-c", "ulimit -n 320; exec \"$0\" \"$@\""];
        let done = bed.finish(behind(&limited, &bed.command("client", &flags))).succeeded().done();
        assert_eq!((&done["files"]["ok"], &done["sent_bytes"]), (&FILES.into(), &(FILES * 10).into()), "{done}");
        assert_eq!(contents(&bed.path(way.source)), contents(&bed.path(way.destination)));
    });
}

#[test]
fn a_backup_directory_keeps_what_is_replaced_and_removed() {
    each_way(|bed, way| {
        way.put(bed, &["sub/changed", "same"]);
        bed.write(&format!("{}/large", way.source), &noise(9 << 20, 1));
        way.sync(bed, &[]).succeeded();
        bed.write(&format!("{}/sub/changed", way.source), b"new content");
        bed.write(&format!("{}/large", way.source), &noise(10 << 20, 2));
        bed.write(&format!("{}/sub/gone/deep", way.destination), b"gone");
        symlink("nowhere", way.there(bed, "link")).unwrap();
        way.sync(bed, &["--delete", "--backup-dir", "old/1"]).succeeded();
        let kept = |file: &str| fs::read(way.there(bed, "old/1").join(file)).unwrap();
        assert_eq!((kept("sub/changed"), kept("sub/gone/deep")), (b"sub/changed".to_vec(), b"gone".to_vec()));
        assert!(kept("large") == noise(9 << 20, 1));
        assert_eq!(fs::read_link(way.there(bed, "old/1/link")).unwrap(), PathBuf::from("nowhere"));
        assert_eq!(fs::read(way.there(bed, "sub/changed")).unwrap(), b"new content");
        assert!(!way.there(bed, "sub/gone").exists());
        way.sync(bed, &["--delete", "--backup-dir", "old/2"]).succeeded();
        assert!(way.there(bed, "old/1/sub/gone/deep").exists(), "backups are not removed in their turn");
    });
}

#[test]
fn a_source_that_cannot_be_listed_as_a_whole_removes_nothing() {
    let bed = Bed::new();
    for file in ["s/open/a", "s/closed/b"] {
        bed.write(file, b"x");
    }
    fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(bed.path("s/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let server = bed.serve(&[]);
    bed.enrol();
    for (to, at) in [("lab:d", "root/d"), ("d", "d")] {
        for file in ["closed/b", "gone"] {
            bed.write(&format!("{at}/{file}"), b"mine");
        }
        let mut command = bed.command("client", &["sync", "--delete", "s/", to]);
        if is_root() {
            as_nobody(
                &mut command,
                &[bed.path("client"), bed.path("d")].map(|path| {
                    fs::create_dir_all(&path).unwrap();
                    path
                }),
            );
        }
        let ran = bed.finish(command);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("nothing was removed: the source could not be listed as a whole\n"),
            "{}",
            ran.stderr
        );
        assert_eq!(names(bed.path(at)), ["closed", "closed/b", "gone", "open", "open/a"]);
    }
    drop(server);
    fs::set_permissions(bed.path("s/closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_sync_that_is_killed_in_the_middle_removes_nothing() {
    let (bed, mut server) = Bed::with_endpoint();
    bed.write("s/large", &noise(200 << 20, 1));
    bed.write("root/d/gone", b"x");
    for is_client in [true, false] {
        let mut child = bed.start(&["sync", "--delete", "--retries", "0", "s/", "lab:d"]);
        until("a verified chunk", || journal_bytes(&bed.path("root")) > 64);
        if is_client {
            child.kill().unwrap();
        } else {
            server.kill();
        }
        let _ = bed.wait(child);
        assert!(bed.path("root/d/gone").exists());
        assert!(!bed.path("root/d/large").exists());
    }
    let _server: Server = bed.serve(&[]);
    bed.enrol();
    bed.run(&["sync", "--delete", "s/", "lab:d"]).succeeded();
    assert_eq!(names(bed.path("root/d")), ["large"]);
}

#[test]
fn a_link_in_the_destination_is_removed_and_never_followed() {
    each_way(|bed, way| {
        way.put(bed, &["a", "was/b"]);
        way.sync(bed, &[]).succeeded();
        bed.write("outside/theirs", b"theirs");
        fs::remove_dir_all(way.there(bed, "was")).unwrap();
        symlink(bed.path("outside"), way.there(bed, "was")).unwrap();
        symlink(bed.path("outside"), way.there(bed, "extra")).unwrap();
        // The link stands where a directory is needed: that fails, and nothing beyond the link is touched.
        let ran = way.sync(bed, &["--delete"]);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(!way.there(bed, "extra").is_symlink());
        fs::remove_dir_all(bed.path(way.source).join("was")).unwrap();
        way.sync(bed, &["--delete"]).succeeded();
        assert_eq!(way.names(bed), ["a"]);
        assert_eq!(fs::read(bed.path("outside/theirs")).unwrap(), b"theirs");
    });
}

#[test]
fn staging_of_others_is_not_removed() {
    each_way(|bed, way| {
        way.put(bed, &["a"]);
        bed.write(&format!("{}/.thalweg-staging-4711/x", way.destination), b"x");
        bed.write(&format!("{}/sub/.thalweg-staging-4711/x", way.destination), b"x");
        way.sync(bed, &["--delete"]).succeeded();
        assert!(way.there(bed, ".thalweg-staging-4711/x").exists());
        assert!(way.there(bed, "sub/.thalweg-staging-4711/x").exists());
    });
}

#[test]
fn a_client_that_may_only_read_cannot_remove() {
    let bed = Bed::new();
    bed.write("root/d/mine", b"x");
    bed.write("s/f", b"x");
    let _server = bed.serve(&["--read-only"]);
    bed.enrol();
    for flags in [&["--delete"][..], &["-n", "--delete"]] {
        let args: Vec<&str> = ["sync"].into_iter().chain(flags.iter().copied()).chain(["s/", "lab:d"]).collect();
        let ran = bed.run(&args);
        assert_eq!(ran.code, Some(6), "{}", ran.stderr);
        assert!(bed.path("root/d/mine").exists());
    }
}

#[test]
fn two_sources_with_one_name_leave_the_rest_whole() {
    let (bed, _server) = Bed::with_endpoint();
    for file in ["a/same/x", "a/1", "b/same/y", "b/2", "b/after/z"] {
        bed.write(file, file.as_bytes());
    }
    for (to, at) in [("lab:d", "root/d"), ("d", "d")] {
        let ran = bed.run(&["cp", "a/", "b/", to]);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert!(ran.stderr.contains("failed: same: two sources have this name at the destination"), "{}", ran.stderr);
        assert_eq!(names(bed.path(at)), ["1", "2", "after", "after/z", "same", "same/x"]);
    }
}

#[test]
fn filter_test_names_the_rule_that_decides() {
    let bed = Bed::new();
    bed.write("rules", b"# comment\n/build/\n");
    let ran = bed.run(&[
        "filter",
        "test",
        "logs/a.log",
        "keep.log",
        "build/x/y",
        "z",
        "--include",
        "keep.log",
        "--exclude",
        "*.log",
        "--exclude-from",
        "rules",
    ]);
    assert_eq!(
        stdout(&ran.succeeded()),
        "left  logs/a.log: rule 2, `- *.log` (--exclude)\n\
         taken  keep.log: rule 1, `+ keep.log` (--include)\n\
         left  build/x/y: rule 3, `- /build/` (rules:2), which matches build/\n\
         taken  z: no rule matches\n"
    );
    let ran = bed.run(&["filter", "test", "--json", "a/", "--exclude", "a/"]).succeeded();
    let line = &ran.events()[0];
    assert_eq!((&line["is_taken"], &line["rule"]), (&false.into(), &"- a/".into()));
}

#[test]
fn mistakes_are_told_with_a_way_out() {
    let bed = Bed::new();
    bed.write("s/f", b"x");
    bed.write("list", b"../x\n");
    for (args, message) in [
        (&["sync", "s", "s", "d"][..], "sync takes one source and one destination"),
        (&["sync", "--delete", "--files-from", "list", "s", "d"], "--delete and --files-from cannot be combined"),
        (&["sync", "--exclude", "[a", "s/", "d"], "filter pattern \"[a\": has a [ without its ]"),
        (&["sync", "--filter", "*.o", "s/", "d"], "--filter: \"*.o\" is not a filter rule"),
        (&["cp", "--files-from", "list", "s", "d"], "list: ../x is not a path below the source"),
        (&["sync", "--backup-dir", "/old", "s/", "d"], "a backup directory is a path below the destination"),
        (&["cp", "-n", "s/f", "-"], "--dry-run: filters, comparisons and dry runs need a tree of files on both sides"),
    ] {
        let ran = bed.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.starts_with(&format!("error: {message}\nhint: ")), "{args:?}: {}", ran.stderr);
        assert!(!bed.path("d").exists());
    }
    bed.write("list", b"f\0g\0");
    let hint = "hint: paths that each end with a NUL byte are read with --files-from0";
    assert!(bed.run(&["cp", "--files-from", "list", "s", "d"]).error().ends_with(hint));
}
