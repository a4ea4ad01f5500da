//! One bad file does not stop the rest, and nothing wrong or half arrives.

use crate::bed::{Bed, as_nobody, behind, is_root, noise, staged, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

/// A tree with one file that its reader may not open.
fn with_unreadable(bed: &Bed) {
    for i in 0..50 {
        bed.write(&format!("t/{i:02}"), &noise(1000 + i, i as u64));
    }
    fs::set_permissions(bed.path("t/25"), fs::Permissions::from_mode(0o000)).unwrap();
}

#[test]
fn an_unreadable_file_in_the_middle_is_listed_and_the_rest_arrives() {
    let (bed, _server) = Bed::with_endpoint();
    with_unreadable(&bed);
    for (to, at) in [("lab:in", "root/in"), ("here", "here")] {
        let mut command = bed.command("client", &["cp", "--json", "--report", "report", "t/", to]);
        if is_root() {
            fs::set_permissions(bed.dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
            as_nobody(&mut command, &[bed.path("client")]);
        }
        let ran = bed.finish(command);
        assert_eq!(ran.code, Some(23), "{}", ran.stderr);
        assert_eq!(ran.done()["files"], serde_json::json!({"ok": 49, "skipped": 0, "failed": 1}));
        assert_eq!(
            ran.error(),
            "error: 1 file was not delivered\n\
             hint: fix the problems listed and give the same command again; files that are already there are skipped"
        );
        let report = fs::read_to_string(bed.path("report")).unwrap();
        assert_eq!(report, "# permission: open file: Permission denied\n25\n");
        assert_eq!(fs::read_dir(bed.path(at)).unwrap().count(), 49);
        fs::remove_file(bed.path("report")).unwrap();
    }
    fs::set_permissions(bed.path("t/25"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut again = bed.command("client", &["cp", "--json", "t/", "lab:in"]);
    if is_root() {
        // Root would not believe what is the other's by now.
        as_nobody(&mut again, &[]);
    }
    let done = bed.finish(again).succeeded().done();
    assert_eq!(done["files"], serde_json::json!({"ok": 1, "skipped": 49, "failed": 0}));
}

#[test]
fn failures_are_shown_up_to_a_number_and_counted_beyond() {
    let bed = Bed::new();
    for i in 0..30 {
        bed.write(&format!("t/{i:02}"), b"x");
        fs::create_dir_all(bed.path(format!("copy/{i:02}"))).unwrap();
    }
    let ran = bed.run(&["cp", "t/", "copy"]);
    assert_eq!(ran.code, Some(23));
    let failed = ran.stderr.lines().filter(|line| line.starts_with("failed: ")).count();
    assert_eq!(failed, 20, "{}", ran.stderr);
    assert!(ran.stderr.contains("and 10 more (--report FILE lists them)\n"), "{}", ran.stderr);
}

#[test]
fn a_report_with_a_line_feed_in_a_path_ends_its_paths_with_nul() {
    let bed = Bed::new();
    for name in ["a\nb", "#c"] {
        bed.write(&format!("t/{name}"), b"x");
        fs::create_dir_all(bed.path(format!("copy/{name}"))).unwrap();
    }
    bed.run(&["cp", "--report", "report", "t/", "copy"]);
    let text = fs::read(bed.path("report")).unwrap();
    let mut paths: Vec<_> = text.split_inclusive(|byte| *byte == 0).collect();
    paths.sort();
    assert_eq!(paths, [&b"./#c\0"[..], b"a\nb\0"]);
}

#[test]
fn a_run_that_reaches_nobody_leaves_the_list_of_what_is_to_be_retried() {
    let (bed, mut server) = Bed::with_endpoint();
    for name in ["a", "b"] {
        bed.write(&format!("t/{name}"), b"x");
        fs::create_dir_all(bed.path(format!("root/in/{name}"))).unwrap();
    }
    assert_eq!(bed.run(&["cp", "--report", "failed", "t/", "lab:in/"]).code, Some(23));
    let listed = fs::read_to_string(bed.path("failed")).unwrap();
    assert!(listed.ends_with("\nb\n") || listed.ends_with("\na\n"), "{listed}");
    server.kill();
    let ran = bed.run(&["cp", "--files-from", "failed", "--report", "failed", "--retries", "0", "t/", "lab:in/"]);
    assert!(matches!(ran.code, Some(5 | 43)), "{:?} {}", ran.code, ran.stderr);
    assert!(ran.stderr.contains("failed is left as it was"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(bed.path("failed")).unwrap(), listed);
    // An empty list would say that nothing is left to do.
    bed.run(&["cp", "--report", "none", "--retries", "0", "t/", "lab:in/"]);
    assert!(!bed.path("none").exists());
}

#[test]
fn what_failed_is_retried_by_its_list_with_and_without_a_slash_behind_the_source() {
    let bed = Bed::new();
    bed.write("s/t/a", b"x");
    bed.write("s/t/b", b"x");
    for (source, to, at, base) in [("s/t/", "one/", "one/a", "s/t/"), ("s/t", "two/", "two/t/a", "s/")] {
        let at = bed.path(at);
        fs::create_dir_all(&at).unwrap();
        assert_eq!(bed.run(&["cp", "--report", "failed", source, to]).code, Some(23), "{source}");
        fs::remove_dir(&at).unwrap();
        let done = bed.run(&["cp", "--json", "--files-from", "failed", base, to]).succeeded().done();
        assert_eq!((&done["files"]["ok"], fs::read(&at).unwrap()), (&1.into(), b"x".to_vec()), "{source}");
    }
}

#[test]
fn a_file_that_changes_all_the_time_is_reported_and_not_published() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/quiet", b"quiet");
    let path = bed.write("t/restless", &noise(64 << 20, 1));
    let is_over = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = fs::File::options().write(true).open(&path).unwrap();
            while !is_over.load(Relaxed) {
                file.set_modified(SystemTime::now()).unwrap();
            }
        });
        let ran = bed.run(&["cp", "t/", "lab:in"]);
        is_over.store(true, Relaxed);
        ran
    });
    assert_eq!(ran.code, Some(24), "{}", ran.stderr);
    assert!(ran.stderr.contains("failed: restless: "), "{}", ran.stderr);
    assert_eq!(
        ran.error(),
        "error: 1 file was not delivered\n\
         hint: they changed or vanished while being read; give the same command again when they no longer change"
    );
    assert!(bed.path("root/in/quiet").exists() && !bed.path("root/in/restless").exists());
    bed.run(&["cp", "t/", "lab:in"]).succeeded();
    assert!(fs::read(&path).unwrap() == fs::read(bed.path("root/in/restless")).unwrap());
}

#[test]
fn two_transfers_to_one_name_leave_one_of_them_whole() {
    let (bed, _server) = Bed::with_endpoint();
    let contents = [noise(24 << 20, 1), noise(25 << 20, 2)];
    for (i, content) in contents.iter().enumerate() {
        bed.write(&format!("{i}/f"), content);
    }
    let children = [0, 1].map(|i| bed.start(&["cp", &format!("{i}/f"), "lab:f"]));
    let codes = children.map(|child| bed.wait(child).code.unwrap());
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 23].contains(code)), "{codes:?}");
    let found = fs::read(bed.path("root/f")).unwrap();
    assert!(contents.contains(&found), "{} bytes", found.len());
}

#[test]
fn a_full_disk_is_exit_44_and_the_copy_goes_on_when_there_is_room() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("t/small", b"small");
    bed.write("t/large", &noise(40 << 20, 1));
    let script = "mount -t tmpfs -o size=16m thalweg-e2e root && exec \"$0\" \"$@\"";
    let served =
        bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"]);
    let server = bed.serve_with(behind(&["unshare", "--mount", "sh", "-c", script], &served));
    bed.enrol();
    let ran = bed.run(&["cp", "t", "lab:"]);
    assert_eq!(ran.code, Some(44), "{}", ran.stderr);
    assert!(
        ran.error().contains("hint: make room at the destination; the same command continues where "),
        "{}",
        ran.stderr
    );
    let resize = ["-t", &server.pid().to_string(), "--mount", "mount", "-o", "remount,size=64m"].map(str::to_owned);
    let resized = std::process::Command::new("nsenter").args(resize).arg(bed.path("root")).status().unwrap();
    assert!(resized.success());
    bed.run(&["cp", "t", "lab:"]).succeeded();
    bed.run(&["cp", "lab:t/", "back"]).succeeded();
    assert!(fs::read(bed.path("back/large")).unwrap() == noise(40 << 20, 1));
}

/// What is missing then is missing at the destination: the source neither vanished nor changed.
#[test]
fn a_destination_that_is_removed_meanwhile_is_not_blamed_on_the_source() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("t/f", &noise(4 << 20, 1));
    let copy = bed.start(&["cp", "--bwlimit", "2M", "t/", "lab:in/"]);
    until("staging", || !staged(&bed.path("root")).is_empty());
    fs::remove_dir_all(bed.path("root/in")).unwrap();
    let ran = bed.wait(copy);
    assert_eq!(ran.code, Some(23), "{}", ran.stderr);
    let why = "failed: f: publish: No such file or directory; a directory of the destination was removed meanwhile";
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    bed.run(&["cp", "t/", "lab:in/"]).succeeded();
}

#[test]
fn a_file_system_that_does_not_tell_its_size_is_not_taken_for_a_full_one() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("f", b"f");
    fs::create_dir(bed.path("ram")).unwrap();
    let command = bed.command("client", &["cp", "f", "ram/"]);
    let script = "mount -t ramfs thalweg-e2e ram && exec \"$0\" \"$@\"";
    bed.finish(behind(&["unshare", "--mount", "sh", "-c", script], &command)).succeeded();
}
