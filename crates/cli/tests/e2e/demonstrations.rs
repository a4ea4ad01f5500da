//! What a newcomer tries first: the demonstration, and slow storage.

use crate::bed::{Bed, noise, signal, until};
use rustix::io::Errno;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;

fn left(bed: &Bed) -> usize {
    fs::read_dir(bed.path("room")).unwrap().count()
}

#[test]
fn a_demonstration_compares_what_it_moved_and_leaves_nothing() {
    let bed = Bed::new();
    fs::create_dir(bed.path("room")).unwrap();
    let ran = bed.run(&["demo", "--set", "2x3MiB,300x1KiB", "--work-dir", "room"]).succeeded();
    let table = String::from_utf8(ran.stdout).unwrap();
    let lines: Vec<_> = table.lines().collect();
    assert!(lines[0].contains("thalweg, TCP and TLS 1.3"), "{table}");
    let row = |name: &str| *lines.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{table}"));
    assert!(row("2x3MiB").contains("6.00 MiB") && row("2x3MiB").contains("bit/s"), "{table}");
    assert!(row("300x1KiB").contains("files/s"), "{table}");
    assert!(lines.iter().any(|line| line.starts_with("every delivery was compared with its source by ")), "{table}");
    assert_eq!(left(&bed), 0);
}

#[test]
fn a_demonstration_of_a_directory_only_reads_it() {
    let bed = Bed::new();
    fs::create_dir(bed.path("room")).unwrap();
    bed.write("mine/a", &noise(100_000, 1));
    std::os::unix::fs::symlink("a", bed.path("mine/link")).unwrap();
    let before = crate::bed::contents(&bed.path("mine"));
    let ran = bed.run(&["demo", "mine", "--work-dir", "room", "--keep"]).succeeded();
    assert!(String::from_utf8(ran.stdout).unwrap().lines().any(|line| line.starts_with("mine ")));
    assert_eq!(crate::bed::contents(&bed.path("mine")), before);
    assert!(ran.stderr.contains("kept in [DIR]/room/thalweg-demo-"), "{}", ran.stderr);
    assert_eq!(left(&bed), 1);
    let ran = bed.run(&["demo", "nosuch", "--work-dir", "room"]);
    assert_eq!(
        (ran.code, &ran.error()[..]),
        (Some(4), "error: list nosuch: No such file or directory\nhint: check the path")
    );
}

#[test]
fn an_interrupted_demonstration_cleans_up() {
    let bed = Bed::new();
    fs::create_dir(bed.path("room")).unwrap();
    let child = bed.start(&["demo", "--set", "20000x1KiB", "--work-dir", "room"]);
    let ticket = || -> Option<daemon::Ticket> {
        let work: PathBuf = fs::read_dir(bed.path("room")).ok()?.next()?.ok()?.path();
        daemon::Ticket::parse(&fs::read_to_string(work.join("home/ticket")).ok()?).ok()
    };
    until("its endpoint", || ticket().is_some());
    let address = ticket().unwrap().addresses[0].clone();
    signal(&child, Signal::INT);
    let ran = bed.wait(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert_eq!(left(&bed), 0);
    assert!(std::net::TcpStream::connect(address).is_err(), "the endpoint is gone");
}

#[test]
fn slow_storage_is_there_until_ctrl_c() {
    if !needs::fuse() {
        return;
    }
    let bed = Bed::new();
    bed.write("real/f", b"slow");
    fs::create_dir(bed.path("slow")).unwrap();
    let mut command = bed.command("client", &["lab", "storage", "real", "slow", "--read-latency", "1ms"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready).unwrap();
    assert!(ready.starts_with("ready at "), "{ready}");
    assert_eq!(fs::read(bed.path("slow/f")).unwrap(), b"slow");
    signal(&child, Signal::INT);
    assert!(child.wait().unwrap().success());
    assert!(!bed.path("slow/f").exists());
}

#[test]
fn a_killed_slow_storage_leaves_a_mount_that_the_next_one_replaces() {
    if !needs::fuse() {
        return;
    }
    let bed = Bed::new();
    for directory in ["real", "slow"] {
        fs::create_dir(bed.path(directory)).unwrap();
    }
    let start = || {
        let mut command = bed.command("client", &["lab", "storage", "real", "slow"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready).unwrap();
        assert!(ready.starts_with("ready at "), "{ready}");
        child
    };
    let mut killed = start();
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(rustix::fs::stat(bed.path("slow")).err(), Some(Errno::NOTCONN));
    let mut again = start();
    fs::write(bed.path("slow/file"), "text").unwrap();
    assert_eq!(fs::read_to_string(bed.path("real/file")).unwrap(), "text");
    signal(&again, Signal::INT);
    assert!(again.wait().unwrap().success());
}
