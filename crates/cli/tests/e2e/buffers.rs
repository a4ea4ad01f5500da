//! Buffers before slow storage: what waits is verified and durable, nothing is called delivered early, and nothing is lost when
//! senders and endpoints are killed.

use crate::bed::{Bed, Server, contents, until};
use std::fs;
use std::path::Path;

const ALWAYS: &[&str] = &["cp", "--buffer", "always", "-r"];

fn bed() -> Bed {
    let bed = Bed::new();
    for at in 0..40 {
        bed.write(&format!("src/d/f{at}"), &crate::bed::noise(1 + at * 700, at as u64));
    }
    bed.write("src/one-chunk", &crate::bed::noise(3 << 20, 100));
    bed.write("src/large", &crate::bed::noise((20 << 20) + 7, 101));
    bed.write("src/empty", b"");
    bed
}

fn serve(bed: &Bed) -> Server {
    bed.serve(&["--buffer", "buffer:64MiB"])
}

#[track_caller]
fn assert_same(a: impl AsRef<Path>, b: impl AsRef<Path>) {
    assert_eq!(contents(a.as_ref()), contents(b.as_ref()));
}

/// What the endpoint still has to deliver, in bytes.
fn held(bed: &Bed) -> u64 {
    let listed = bed.finish(bed.command("server", &["buffer", "ls", "--json"]));
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    listed.events().last().unwrap()["used_bytes"].as_u64().unwrap()
}

#[cfg(feature = "fuse")]
fn buffered(ran: &crate::bed::Ran) {
    assert_eq!(ran.code, Some(9), "{}", ran.stderr);
    assert!(ran.stderr.contains("not delivered yet") && ran.stderr.contains("delivers them"), "{}", ran.stderr);
}

/// A directory that cannot be written to stands for storage that takes nothing for now, for other users than root.
fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn everything_may_go_through_the_buffer_and_success_means_delivered() {
    let bed = bed();
    let server = serve(&bed);
    bed.enrol();
    for (way, to) in [("always", "lab:a/"), ("auto", "lab:b/"), ("never", "lab:c/")] {
        let ran = bed.run(&["cp", "--buffer", way, "-r", "src/", to]);
        assert_eq!(ran.code, Some(0), "{way}: {}", ran.stderr);
        assert_same(bed.path("src"), bed.path(format!("root/{}", &to[4..5])));
    }
    until("an empty buffer", || held(&bed) == 0);
    let again = bed.run(&[ALWAYS, &["src/", "lab:a/"]].concat());
    assert!(again.stderr.contains("skipped"), "{}", again.stderr);
    drop(server);
}

/// The root of the endpoint is storage that takes seconds for what is sent to it.
#[cfg(feature = "fuse")]
fn slow(bed: &Bed) -> Option<crate::bed::Ends> {
    needs::fuse().then(|| crate::bed::slow_storage(bed, "root", &["--rate", "3MB"]))
}

#[cfg(feature = "fuse")]
#[test]
fn a_sender_leaves_what_is_buffered_and_the_endpoint_delivers_it_after_a_kill() {
    let bed = bed();
    let Some(_storage) = slow(&bed) else { return };
    let mut server = serve(&bed);
    bed.enrol();
    let ran = bed.run(&[ALWAYS, &["--wait", "buffered", "src/", "lab:b/"]].concat());
    buffered(&ran);
    assert!(held(&bed) > 0);
    server.kill();
    // Nobody hears what is asked of it now, and nobody does it later.
    let ask = |words: &[&str]| bed.finish(bed.command("server", &[&["buffer"][..], words].concat()));
    let job = ask(&["ls", "--json"]).succeeded().events()[0]["job"].as_str().unwrap().to_owned();
    for words in [&["drop", &job][..], &["drain"]] {
        let refused = ask(words);
        assert_eq!(refused.code, Some(1), "{words:?}: {}", refused.stderr);
        assert!(refused.error().contains("no endpoint runs with the buffer"), "{words:?}: {}", refused.stderr);
    }
    let server = serve(&bed);
    until("delivery without the sender", || held(&bed) == 0);
    // Where the storage keeps it, reading is not slow.
    assert_same(bed.path("src"), bed.path("root-backing/b"));
    drop(server);
    let server = serve(&bed);
    assert_eq!(held(&bed), 0, "what was delivered comes back");
    drop(server);
}

#[test]
fn killed_at_any_moment_the_endpoint_loses_nothing_and_tells_nothing_early() {
    let bed = bed();
    for round in 0..6u64 {
        let to = format!("lab:r{round}/");
        let mut server = serve(&bed);
        bed.enrol();
        let child = bed.start(&[ALWAYS, &["--retries", "0", "src/", &to]].concat());
        // Some have sent nothing by then, some are done.
        std::thread::park_timeout(std::time::Duration::from_millis(60 * round));
        server.kill();
        let ran = bed.wait(child);
        if ran.code == Some(0) {
            assert_same(bed.path("src"), bed.path(format!("root/r{round}")));
        }
        let server = serve(&bed);
        bed.enrol();
        let again = bed.run(&[ALWAYS, &["src/", &to]].concat());
        assert_eq!(again.code, Some(0), "{}", again.stderr);
        assert_same(bed.path("src"), bed.path(format!("root/r{round}")));
        drop(server);
    }
}

#[cfg(feature = "fuse")]
#[test]
fn what_storage_does_not_take_waits_until_it_does_or_is_dropped() {
    let bed = bed();
    let Some(storage) = slow(&bed) else { return };
    let mut server = serve(&bed);
    bed.enrol();
    buffered(&bed.run(&[ALWAYS, &["--wait", "buffered", "src/", "lab:a/"]].concat()));
    server.kill();
    drop(storage);
    // Its place is taken by a file.
    fs::write(bed.path("root/a"), b"in the way").unwrap();
    let server = serve(&bed);
    std::thread::park_timeout(std::time::Duration::from_millis(700));
    assert!(held(&bed) > 0, "what could not be delivered is gone");
    fs::remove_file(bed.path("root/a")).unwrap();
    let drained = bed.finish(bed.command("server", &["buffer", "drain"]));
    assert_eq!(drained.code, Some(0), "{}", drained.stderr);
    assert!(bed.path("root/a").is_dir());
    drop(server);
}

/// Its clients were told that the endpoint delivers it.
#[cfg(feature = "fuse")]
#[test]
fn an_endpoint_does_not_start_without_the_buffer_in_which_something_waits() {
    let bed = bed();
    let Some(_storage) = slow(&bed) else { return };
    let mut server = serve(&bed);
    bed.enrol();
    buffered(&bed.run(&[ALWAYS, &["--wait", "buffered", "src/", "lab:b/"]].concat()));
    server.kill();
    let others: [&[&str]; 2] = [&[], &["--buffer", "another:64MiB"]];
    for buffer in others {
        let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
        command.args(buffer);
        let refused = bed.finish(command);
        assert_eq!(refused.code, Some(6), "{}", refused.stderr);
        let is_told = ["not delivered", "buffer drop"].iter().all(|part| refused.stderr.contains(part));
        assert!(is_told, "{}", refused.stderr);
        assert!(held(&bed) > 0, "the endpoint does not know of it any more");
    }
    let server = serve(&bed);
    // What describes the job goes last.
    let has_job = || bed.finish(bed.command("server", &["buffer", "ls", "--json"])).events().len() > 1;
    until("delivery without the sender", || !has_job());
    drop(server);
    drop(bed.serve(&[]));
}

#[test]
fn a_buffer_is_private_apart_from_the_root_and_used_by_one() {
    let bed = Bed::new();
    fs::create_dir_all(bed.path("root")).unwrap();
    let fails = |buffer: &str| {
        let mut command = bed.command("server", &["serve", "--listen", "127.0.0.1:0", "--root", "root"]);
        command.args(["--buffer", buffer]);
        let ran = bed.finish(command);
        assert_ne!(ran.code, Some(0));
        ran.stderr
    };
    assert!(fails("root/buffer:64MiB").contains("overlap"));
    assert!(fails("buffer:1KiB").contains("at least"));
    assert!(fails("buffer").contains("DIR:SIZE"));
    fs::create_dir(bed.path("open")).unwrap();
    set_mode(&bed.path("open"), 0o755);
    assert!(fails("open:64MiB").contains("chmod 700"));
    let none = bed.finish(bed.command("server", &["buffer", "ls"]));
    assert!(none.code == Some(2) && none.stderr.contains("no buffer"), "{}", none.stderr);
}

#[test]
fn without_a_buffer_there_nobody_waits_for_one() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("f", b"content");
    bed.enrol();
    let ran = bed.run(&["cp", "--wait", "buffered", "f", "lab:f"]);
    assert!(matches!(ran.code, Some(0 | 6)), "{:?} {}", ran.code, ran.stderr);
    let here = bed.run(&["cp", "--wait", "buffered", "f", "g"]);
    assert_eq!(here.code, Some(2), "{}", here.stderr);
}

#[test]
fn a_source_may_be_read_ahead_on_either_side_and_nothing_stays_behind() {
    let bed = bed();
    let server = serve(&bed);
    bed.enrol();
    let ahead = ["--buffer", "ahead:64MiB"];
    let sent = bed.run(&[&["cp", "--json", "-r"], &ahead[..], &["src/", "lab:a/"]].concat()).succeeded();
    assert_same(bed.path("src"), bed.path("root/a"));
    let legs = &sent.done()["legs"];
    assert!(legs["source_buffer"]["capacity_bytes"].as_u64() >= Some(60 << 20), "{legs}");
    assert_eq!(legs["source_buffer"]["waiting_bytes"], 0);
    // One chunk does not fit into the buffer: it goes without.
    bed.run(&["cp", "--chunk-size", "128MiB", "--buffer", "ahead:64MiB", "src/large", "lab:large"]).succeeded();
    assert_eq!(fs::read(bed.path("src/large")).unwrap(), fs::read(bed.path("root/large")).unwrap());
    for (buffer, to) in [("always", "b/"), ("auto", "c/"), ("ahead:64MiB", "d/")] {
        bed.run(&["cp", "--buffer", buffer, "-r", "lab:a/", to]).succeeded();
        assert_same(bed.path("src"), bed.path(to));
    }
    drop(server);
    let refused = bed.run(&["cp", "--buffer", "ahead:64MiB", "-r", "src/", "here/"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("another"), "{}", refused.stderr);
}

#[test]
fn a_command_does_not_take_an_endpoints_buffer() {
    let bed = bed();
    let mut server = serve(&bed);
    bed.enrol();
    let busy = bed.run(&["cp", "--buffer", "buffer:64MiB", "-r", "src/", "lab:a/"]);
    assert_ne!(busy.code, Some(0), "one process at a time");
    let child = bed.start(&[ALWAYS, &["--retries", "0", "src/", "lab:a/"]].concat());
    until("something in the buffer, or the end of the copy", || held(&bed) > 0 || bed.path("root/a/large").exists());
    server.kill();
    bed.wait(child);
    if held(&bed) > 0 {
        let refused = bed.run(&["cp", "--buffer", "buffer:64MiB", "-r", "src/", "lab:a/"]);
        assert!(refused.stderr.contains("not delivered"), "{}", refused.stderr);
    }
}

#[test]
fn storages_of_one_host_are_staged_and_a_job_file_runs_without_a_hub() {
    let bed = bed();
    bed.run(&["stage", "-r", "src/", "fast/"]).succeeded();
    assert_same(bed.path("src"), bed.path("fast"));
    let refused = bed.run(&["stage", "src/", "lab:x/"]);
    assert!(refused.code == Some(2) && refused.stderr.contains("another host"), "{}", refused.stderr);
    if cfg!(feature = "hub") {
        bed.write("job.toml", b"source = \"src/\"\ndestination = \"out/\"\n[options]\ndigest = \"blake3\"\n");
        let ran = bed.run(&["run", "--json", "job.toml"]).succeeded();
        assert_eq!(ran.done()["verify"], "blake3");
        assert_same(bed.path("src"), bed.path("out"));
        bed.write("bad.toml", b"source = \"src/\"\ndestination = \"out/\"\nfollow = 3\n");
        let bad = bed.run(&["run", "bad.toml"]);
        assert!(bad.code == Some(2) && bad.stderr.contains("bad.toml"), "{}", bad.stderr);
    }
}
