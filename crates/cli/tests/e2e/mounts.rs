//! File systems that are mounted below the root of an endpoint, each test in a mount namespace of its own.

use crate::bed::{Bed, Server, behind, slow_storage};
use std::fs;

/// A root with `t/plain/f`, another file system at `t/other`, and a directory from outside the root bound at `t/bound`.
const MOUNTS: &str = "mount -t tmpfs thalweg-e2e root/t/other && echo theirs > root/t/other/theirs && \
                      mount --bind outside root/t/bound && mount --bind outside/theirs root/t/plain/file && \
                      exec \"$0\" \"$@\"";

fn serve(bed: &Bed, more: &[&str]) -> Server {
    bed.write("root/t/plain/f", b"ours");
    bed.write("outside/theirs", b"theirs");
    bed.write("root/t/plain/file", b"");
    ["other", "bound"].iter().for_each(|name| fs::create_dir_all(bed.path(format!("root/t/{name}"))).unwrap());
    let args = [&["serve", "--listen", "127.0.0.1:0", "--root", "root", "--ticket-file", "ticket"], more].concat();
    let server = bed.serve_with(behind(&["unshare", "--mount", "sh", "-c", MOUNTS], &bed.command("server", &args)));
    bed.enrol();
    server
}

#[test]
fn mounts_below_a_root_are_skipped_with_a_word_and_not_reached() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let _server = serve(&bed, &[]);
    // A file that something is mounted over is seen, and not read.
    let ran = bed.run(&["sum", "lab:t/plain/file"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("another file system is mounted there"), "{}", ran.stderr);
    let ran = bed.run(&["cp", "--exclude", "file", "lab:t/", "back"]).succeeded();
    for name in ["other", "bound"] {
        assert!(ran.stderr.contains(&format!("{name}: another file system is mounted there")), "{}", ran.stderr);
    }
    assert!(ran.stderr.contains("serve --cross-mounts"), "{}", ran.stderr);
    assert!(bed.path("back/plain/f").exists() && !bed.path("back/other").exists() && !bed.path("back/bound").exists());
    // What a mirror has of them is spared.
    bed.write("back/other/kept", b"kept");
    bed.write("back/gone", b"gone");
    bed.run(&["sync", "--delete", "--exclude", "file", "lab:t/", "back/"]).succeeded();
    assert!(bed.path("back/other/kept").exists() && !bed.path("back/gone").exists());
    for args in [
        &["ls", "lab:t/other"][..],
        &["ls", "lab:t/bound/"],
        &["cat", "lab:t/bound/theirs"],
        &["cp", "lab:t/other/theirs", "got"],
        &["cp", "back/plain/f", "lab:t/bound/"],
        &["cp", "back/plain/f", "lab:t/bound/new"],
        &["cp", "back/plain/f", "lab:t/bound/theirs"],
        &["mkdir", "lab:t/other/new"],
        &["rm", "-r", "lab:t/bound"],
        &["rm", "lab:t/bound/theirs"],
    ] {
        let ran = bed.run(args);
        assert!(ran.code != Some(0), "{args:?}");
        let is_told = ran.stderr.contains("another file system is mounted there") || args[1] == "-r";
        assert!(is_told, "{args:?}: {}", ran.stderr);
    }
    assert_eq!(fs::read(bed.path("outside/theirs")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(bed.path("outside")).unwrap().count(), 1);
}

#[test]
fn mounts_are_crossed_where_the_endpoint_says_so() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let _server = serve(&bed, &["--cross-mounts"]);
    bed.run(&["cp", "lab:t/", "back"]).succeeded();
    for name in ["other", "bound"] {
        assert!(bed.path(format!("back/{name}/theirs")).exists(), "{name}");
    }
    bed.run(&["cp", "back/plain/f", "lab:t/other/"]).succeeded();
    bed.run(&["cp", "lab:t/other/f", "again"]).succeeded();
    assert_eq!(fs::read(bed.path("again")).unwrap(), b"ours");
}

/// A directory of this host that is bound to another place is in both, and its names are others in each.
#[test]
fn a_mirror_does_not_remove_its_own_source_through_another_mount() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    bed.write("export/home/u/photos/one", b"one");
    bed.write("export/home/u/letters", b"letters");
    fs::create_dir_all(bed.path("home/u")).unwrap();
    let bound = |args: &[&str]| {
        let script = "mount --bind export/home/u home/u && exec \"$0\" \"$@\"";
        bed.finish(behind(&["unshare", "--mount", "sh", "-c", script], &bed.command("client", args)))
    };
    for to in ["export/home/u/", "export/home/", "export"] {
        let ran = bound(&["sync", "--delete", "home/u/photos/", to]);
        assert_eq!(ran.code, Some(2), "{to}: {}", ran.stderr);
        assert!(ran.stderr.contains("home/u/photos/ is inside export"), "{to}: {}", ran.stderr);
        assert!(ran.stderr.contains("would be removed"), "{to}: {}", ran.stderr);
    }
    let ran = bound(&["cp", "export/home", "home/u/photos/new/"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("is inside export/home, which is to be copied"), "{}", ran.stderr);
    assert_eq!(fs::read(bed.path("export/home/u/photos/one")).unwrap(), b"one");
    assert_eq!(fs::read_dir(bed.path("export/home/u/photos")).unwrap().count(), 1);
    // Beside it there is no danger.
    bound(&["sync", "--delete", "home/u/photos/", "export/home/u/mirror/"]).succeeded();
    assert_eq!(fs::read(bed.path("export/home/u/mirror/one")).unwrap(), b"one");
}

/// A mount that makes its inodes up shows the same files under other identities.
#[test]
fn what_is_moved_onto_itself_through_a_mount_stays() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let _storage = slow_storage(&bed, "shown", &[]);
    for (path, content) in [("x/one", "one"), ("x/sub/two", "two"), ("three", "three")] {
        bed.write(&format!("shown-backing/{path}"), content.as_bytes());
    }
    let args = ["serve", "--listen", "127.0.0.1:0", "--root", "shown-backing", "--ticket-file", "ticket"];
    let _server = bed.serve_with(bed.command("server", &args));
    bed.enrol();
    for (from, to) in [("shown/x", "lab:"), ("shown/three", "lab:three"), ("lab:x", "shown/")] {
        let ran = bed.run(&["mv", from, to]);
        assert!(ran.code != Some(0) && ran.stderr.contains("reached by another path"), "{from}: {}", ran.stderr);
        for (path, content) in [("x/one", "one"), ("x/sub/two", "two"), ("three", "three")] {
            assert_eq!(fs::read_to_string(bed.path(format!("shown-backing/{path}"))).unwrap(), content, "{from}");
        }
        assert_eq!(fs::read_dir(bed.path("shown-backing/x")).unwrap().count(), 2, "a sign is left");
    }
}
