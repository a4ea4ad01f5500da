//! The program of an earlier commit and the present one understand each other, both ways: what one sends the other delivers,
//! what one began the other continues, and what only one of them knows is done, or refused in clear words.
//!
//! `THALWEG_PREVIOUS_BIN` names the earlier program; `xtask ci` builds it from the commit in `packaging/earlier-commit`.
//! Without it nothing is tried here, and that is said.

use crate::bed::{Bed, Ran, Server, contents, journal_bytes, noise, program, signal, surround_as, until};
use crate::resumption::{assert_same, make_large};
use crate::ssh::Hosts;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    Previous,
    Present,
}
use Release::{Present, Previous};

/// Client, server.
pub const PAIRS: [(Release, Release); 2] = [(Previous, Present), (Present, Previous)];

/// As in `resumption`: enough chunks to be kept, far from the end.
const JOURNAL_BYTES: u64 = 16 * 64;

/// Flags that a release may have learned, with which the other side has to do something too. Where one of the two does
/// not know a flag, its absence is to be said.
const REQUESTS: &[&[&str]] = &[
    &["--compare", "size"],
    &["--compare", "checksum"],
    &["--exclude", "*.tmp"],
    &["--dry-run"],
    &["--numeric-ids"],
    &["--perms"],
    &["--owner"],
    &["--group"],
    &["--xattrs"],
    &["--acls"],
    &["--hard-links"],
    &["--sparse"],
    &["--archive"],
    &["--compress=zstd"],
    &["--compress=auto"],
    &["--bwlimit=100MiB"],
    &["--max-duration=1h"],
    &["--max-transfer=1GiB"],
    &["--timeout=5m"],
    &["--fail-fast"],
    &["--delta"],
    &["--cc=reno"],
];

/// Of those, the ones that not every file system can keep: that is said of single files, whose content arrives all the same.
const KEPT_WHERE_POSSIBLE: [&str; 4] = ["--xattrs", "--acls", "--hard-links", "--archive"];

/// The names and content that a request is to deliver: neither side may pass it over.
fn is_fulfilled(bed: &Bed, request: &[&str], delivered: &Path) -> bool {
    let is_there = |name: &str| fs::read(delivered.join(name)).ok() == fs::read(bed.path("tree").join(name)).ok();
    match request {
        ["--dry-run"] => !delivered.exists(),
        ["--exclude", _] => is_there("a") && is_there("sub/b") && !delivered.join("c.tmp").exists(),
        _ => ["a", "sub/b", "c.tmp"].into_iter().all(is_there),
    }
}

pub fn previous() -> Option<PathBuf> {
    let named = std::env::var_os("THALWEG_PREVIOUS_BIN").map(PathBuf::from);
    let why = "THALWEG_PREVIOUS_BIN names no earlier program; `xtask previous` builds one";
    needs::met(named.is_some(), why);
    named
}

impl Release {
    fn program(self) -> PathBuf {
        match self {
            Present => program(),
            Previous => previous().expect("looked at before"),
        }
    }

    /// The command with this release's program.
    pub fn of(self, command: &Command) -> Command {
        let mut other = Command::new(self.program());
        other.args(command.get_args()).stdin(Stdio::null());
        surround_as(command, &mut other);
        other
    }

    pub fn run(self, bed: &Bed, home: &str, args: &[&str]) -> Ran {
        bed.finish(self.of(&bed.command(home, args)))
    }

    fn serve(self, bed: &Bed, listen: &str) -> Server {
        let args = ["serve", "--listen", listen, "--root", "root", "--ticket-file", "ticket"];
        bed.serve_with(self.of(&bed.command("server", &args)))
    }

    /// Whether its `cp` takes these flags.
    fn knows(self, bed: &Bed, flags: &[&str]) -> bool {
        self.run(bed, "client", &[&["cp"], flags, &["--help"]].concat()).code == Some(0)
    }
}

/// An endpoint of `server`, which `client` knows as `lab`.
fn bed_of(client: Release, server: Release) -> (Bed, Server) {
    let bed = Bed::new();
    let served = server.serve(&bed, "127.0.0.1:0");
    client.run(&bed, "client", &["endpoint", "add", "lab", "--ticket-file", "ticket"]).succeeded();
    (bed, served)
}

/// Sizes around the limits, many small files, links, empty directories.
fn make_tree(bed: &Bed) {
    for bytes in [0, 1, 4096, 200_000, 8 << 20, (20 << 20) + 7] {
        bed.write(&format!("tree/sizes/{bytes}"), &noise(bytes, bytes as u64));
    }
    for i in 0..300 {
        bed.write(&format!("tree/many/{}/{i}", i % 7), &noise(i * 3, i as u64));
    }
    fs::create_dir_all(bed.path("tree/empty/deeper")).unwrap();
    symlink("sizes/4096", bed.path("tree/link")).unwrap();
}

#[test]
fn copies_are_delivered_both_ways() {
    if previous().is_none() {
        return;
    }
    for (client, server) in PAIRS {
        let (bed, _server) = bed_of(client, server);
        make_tree(&bed);
        let run = |args: &[&str]| client.run(&bed, "client", args);
        for (name, more) in [("a", &[][..]), ("b", &["--digest", "blake3", "--fsync", "file", "--verify", "reread"])] {
            run(&[&["cp", "tree/", &format!("lab:{name}")], more].concat()).succeeded();
            assert_eq!(contents(&bed.path("tree")), contents(&bed.path("root").join(name)), "{client:?} to {server:?}");
            run(&[&["cp", &format!("lab:{name}"), "back/"], more].concat()).succeeded();
            assert_eq!(contents(&bed.path("tree")), contents(&bed.path("back").join(name)), "{server:?} to {client:?}");
        }
        let again = run(&["cp", "--json", "tree/", "lab:a"]).succeeded().done();
        assert_eq!(again["files"]["ok"], 0, "{again}");
        bed.write("input", &noise(3 << 20, 1));
        let mut piped = client.of(&bed.command("client", &["cp", "-", "lab:piped"]));
        piped.stdin(fs::File::open(bed.path("input")).unwrap());
        bed.finish(piped).succeeded();
        assert_eq!(run(&["cp", "lab:piped", "-"]).succeeded().stdout, fs::read(bed.path("input")).unwrap());
        run(&["cp", "gen:100x1KiB", "lab:null:"]).succeeded();
    }
}

#[test]
fn trees_are_kept_alike_listed_compared_and_changed_both_ways() {
    if previous().is_none() {
        return;
    }
    for (client, server) in PAIRS {
        let (bed, _server) = bed_of(client, server);
        make_tree(&bed);
        let run = |args: &[&str]| client.run(&bed, "client", args);
        run(&["sync", "tree/", "lab:copy/"]).succeeded();
        run(&["sync", "lab:copy/", "back/"]).succeeded();
        fs::remove_dir_all(bed.path("tree/many")).unwrap();
        bed.write("tree/new/file", b"new");
        bed.write("tree/sizes/4096", b"changed");
        run(&["sync", "--delete", "--itemize", "--exclude", "*.tmp", "tree/", "lab:copy/"]).succeeded();
        assert_eq!(contents(&bed.path("tree")), contents(&bed.path("root/copy")), "{client:?} to {server:?}");
        run(&["sync", "--delete", "--checksum", "lab:copy/", "back/"]).succeeded();
        assert_eq!(contents(&bed.path("tree")), contents(&bed.path("back")), "{server:?} to {client:?}");
        run(&["check", "tree", "lab:copy"]).succeeded();
        let listed = |path: &str| run(&["ls", path]).succeeded().stdout;
        assert_eq!(listed("lab:copy/"), listed("tree/"));
        let sums = |path: &str| run(&["sum", "--digest", "sha256", path]).succeeded().stdout;
        assert_eq!(sums("lab:copy/"), sums("tree/"));
        run(&["mkdir", "-p", "lab:made/deep"]).succeeded();
        run(&["mv", "lab:copy/new/file", "lab:made/deep/"]).succeeded();
        assert_eq!(run(&["cat", "lab:made/deep/file"]).succeeded().stdout, b"new");
        run(&["mv", "lab:made/deep/file", "fetched"]).succeeded();
        run(&["du", "-s", "lab:copy"]).succeeded();
        run(&["rm", "-r", "lab:made", "lab:copy"]).succeeded();
        assert!(bed.path("fetched").exists() && !bed.path("root/copy").exists());
    }
}

#[test]
fn limited_tickets_of_one_are_used_by_the_other() {
    if previous().is_none() {
        return;
    }
    for (client, server) in PAIRS {
        let (bed, _server) = bed_of(client, server);
        bed.write("root/results/a", b"a");
        let new = ["ticket", "new", "--path", "results", "--read-only", "--uses", "1", "--ticket-file", "guest"];
        server.run(&bed, "server", &new).succeeded();
        client.run(&bed, "visitor", &["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
        client.run(&bed, "visitor", &["cp", "lab:results/a", "got"]).succeeded();
        assert_eq!(client.run(&bed, "visitor", &["cp", "got", "lab:results/b"]).code, Some(6));
    }
}

/// Starts the copy and kills it when some chunks are verified.
fn killed(bed: &Bed, release: Release, args: &[&str], staged_below: &str) {
    let mut command = release.of(&bed.command("client", args));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("verified chunks", || journal_bytes(&bed.path(staged_below)) >= JOURNAL_BYTES);
    signal(&child, Signal::KILL);
    bed.wait(child);
}

#[test]
fn the_present_program_takes_over_everything_that_the_earlier_one_left() {
    if previous().is_none() {
        return;
    }
    let (bed, mut server) = bed_of(Previous, Previous);
    make_large(&bed, "large");
    let new = ["ticket", "new", "--path", "in", "--ticket-file", "guest"];
    Previous.run(&bed, "server", &new).succeeded();
    let args = ["cp", "--json", "large", "lab:in/"];
    killed(&bed, Previous, &args, "root");
    let address = server.address.clone();
    server.kill();
    // The same state directories: identity, enrolled clients, tickets, ledger; the client's own; and the staging.
    let _server = Present.serve(&bed, &address);
    let done = Present.run(&bed, "client", &args).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_same(bed.path("large"), bed.path("root/in/large"));
    let tickets = Present.run(&bed, "server", &["ticket", "ls", "--json"]).succeeded().events();
    assert!(tickets.iter().any(|ticket| ticket["path"] == "in"), "{tickets:?}");
    Present.run(&bed, "visitor", &["endpoint", "add", "lab", "--ticket-file", "guest"]).succeeded();
    Present.run(&bed, "visitor", &["cp", "lab:in/large", "there"]).succeeded();
    assert_same(bed.path("large"), bed.path("there"));
}

#[test]
fn a_fetch_that_one_began_is_ended_by_the_other() {
    if previous().is_none() {
        return;
    }
    for (first, second) in PAIRS {
        let (bed, _server) = bed_of(first, Present);
        make_large(&bed, "root/large");
        let args = ["cp", "--json", "lab:large", "here/"];
        killed(&bed, first, &args, "here");
        let done = second.run(&bed, "client", &args).succeeded().done();
        // An older program need not read a newer one's journal: then it begins anew, and delivers the same.
        assert!(second == Previous || done["resumed_bytes"].as_u64().unwrap() > 0, "{first:?}, {second:?}: {done}");
        assert_same(bed.path("root/large"), bed.path("here/large"));
    }
}

#[test]
fn copies_over_ssh_go_both_ways_between_the_two() {
    if previous().is_none() {
        return;
    }
    for (client, far) in PAIRS {
        let hosts = Hosts::with_program(&["far"], &far.program());
        make_tree(&hosts.bed);
        let run = |args: &[&str]| hosts.bed.finish(client.of(&hosts.command(args)));
        for (name, more) in [("a", &[][..]), ("b", &["--tunnel"])] {
            run(&[&["cp", "tree/", &format!("me@far:{name}/")], more].concat()).succeeded();
            assert_eq!(
                contents(&hosts.bed.path("tree")),
                contents(&hosts.home("far").join(name)),
                "{client:?} to {far:?}"
            );
            run(&[&["cp", &format!("me@far:{name}"), "back/"], more].concat()).succeeded();
            assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.bed.path("back").join(name)), "{far:?}");
        }
        run(&["ls", "me@far:a"]).succeeded();
    }
}

#[test]
fn what_only_one_of_them_knows_is_done_or_refused_in_clear_words() {
    if previous().is_none() {
        return;
    }
    for (client, server) in PAIRS {
        let (bed, _server) = bed_of(client, server);
        for (i, name) in ["a", "sub/b", "c.tmp"].into_iter().enumerate() {
            bed.write(&format!("tree/{name}"), &noise(5000 + i, i as u64));
        }
        bed.run(&["cp", "tree/", "root/from"]).succeeded();
        for request in REQUESTS.iter().filter(|request| client.knows(&bed, request)) {
            for (from, to) in [("tree/", "lab:in"), ("lab:from/", "fetched")] {
                let ran = client.run(&bed, "client", &[&["cp"], *request, &[from, to]].concat());
                let delivered = if to == "fetched" { bed.path("fetched") } else { bed.path("root/in") };
                let is_right = match ran.code {
                    Some(0) => is_fulfilled(&bed, request, &delivered),
                    Some(23) => KEPT_WHERE_POSSIBLE.contains(&request[0]) && is_fulfilled(&bed, request, &delivered),
                    Some(42) => ran.stderr.contains("bring the other side up to date") && !delivered.exists(),
                    _ => false,
                };
                assert!(is_right, "{client:?}, {server:?}, {request:?}, {from}: {:?} {}", ran.code, ran.stderr);
                let _ = fs::remove_dir_all(delivered);
            }
        }
    }
}
