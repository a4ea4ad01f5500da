//! Several hosts that share a file system copy one tree: all of them work, one dies, one stands still and comes back.

use crate::bed::{Bed, Server, behind, contents, noise, staged, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Endpoints that see one directory `from`, and others that see one directory `to`.
struct Site {
    bed: Bed,
    servers: Vec<(&'static str, Server)>,
}

impl Site {
    fn new(senders: &[&'static str], receivers: &[&'static str]) -> Site {
        let mut site = Site { bed: Bed::new(), servers: Vec::new() };
        for (names, root) in [(senders, "from"), (receivers, "to")] {
            fs::create_dir_all(site.bed.path(root)).unwrap();
            names.iter().for_each(|name| site.serve(name, root));
        }
        site
    }

    fn serve(&mut self, name: &'static str, root: &str) {
        self.serve_behind(&[], name, root);
    }

    fn serve_behind(&mut self, outer: &[&str], name: &'static str, root: &str) {
        let ticket = format!("ticket-{name}");
        fs::create_dir_all(self.bed.path(name)).unwrap();
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", root, "--ticket-file", &ticket, "--name", name];
        let command = self.bed.command(name, &args);
        let server = self.bed.serve_with(if outer.is_empty() { command } else { behind(outer, &command) });
        self.bed.run(&["endpoint", "add", name, "--ticket-file", &ticket]).succeeded();
        self.servers.push((name, server));
    }

    fn server(&mut self, name: &str) -> &mut Server {
        &mut self.servers.iter_mut().find(|(known, _)| *known == name).unwrap().1
    }

    fn tree(&self, large: usize) {
        for at in 0..1500usize {
            self.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
        }
        for at in 0..large {
            self.bed.write(&format!("from/x/large/{at}"), &noise(8 << 20, 7000 + at as u64));
        }
        std::os::unix::fs::symlink("f1", self.bed.path("from/x/link")).unwrap();
        fs::create_dir_all(self.bed.path("from/x/empty")).unwrap();
    }

    #[track_caller]
    fn assert_whole(&self) {
        assert_eq!(contents(&self.bed.path("from/x")), contents(&self.bed.path("to/y")));
    }

    /// The orders that an endpoint has written down.
    fn orders(&self, name: &str) -> usize {
        let state: PathBuf = self.bed.path(name);
        let mut found = 0;
        let mut open = vec![state];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                found += usize::from(directory.ends_with("orders"));
                if path.is_dir() {
                    open.push(path);
                }
            }
        }
        found
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn host<'a>(done: &'a Value, name: &str) -> &'a Value {
    done["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|host| host["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {done}"))
}

#[test]
fn hosts_share_a_tree_and_its_sums_are_the_commands() {
    let site = Site::new(&["a1", "a2", "a3"], &["b1", "b2"]);
    site.tree(4);
    let words = ["cp", "--json", "--hosts", "a2,a3", "--to-hosts", "b2", "a1:x/", "b1:y/"];
    let done = site.bed.run(&words).succeeded().done();
    site.assert_whole();
    let sum = |key: &str| done["hosts"].as_array().unwrap().iter().map(|host| host[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((done["files"]["ok"].as_u64(), sum("files")), (Some(1505), 1505), "{done}");
    assert_eq!(done["bytes"]["ok"].as_u64().or(done["bytes"].as_u64()), Some(sum("bytes")), "{done}");
    let at_work = ["a1", "a2", "a3"].iter().filter(|name| host(&done, name)["slices"].as_u64() > Some(0));
    assert!(at_work.count() > 1, "{done}");
    assert_eq!(sum("lost"), 0, "{done}");
    // A host whose slice was done last empties its staging when its session ends.
    until("nothing else to be left", || fs::read_dir(site.bed.path("to")).unwrap().count() == 1);
    // Again: nothing is left to do.
    let done = site.bed.run(&words).succeeded().done();
    assert_eq!((&done["files"]["ok"], &done["files"]["skipped"]), (&0.into(), &1505.into()), "{done}");
    // For a person; and a directory goes below the destination under its own name.
    let ran = site.bed.run(&["cp", "--hosts", "a2", "a1:x", "b1:z/"]).succeeded();
    assert!(ran.stderr.contains("a2: ") && ran.stderr.contains("copied 1,505 files"), "{}", ran.stderr);
    assert_eq!(contents(&site.bed.path("from/x")), contents(&site.bed.path("to/z/x")));
}

#[test]
fn what_a_killed_host_had_is_taken_over() {
    let mut site = Site::new(&["a1", "a2", "a3"], &["b1"]);
    site.tree(24);
    let child = site.bed.start(&["cp", "--json", "--hosts", "a2,a3", "a1:x/", "b1:y/"]);
    until("an order at a2", || site.orders("a2") > 0);
    site.server("a2").kill();
    let done = site.bed.wait(child).succeeded().done();
    site.assert_whole();
    assert_eq!(done["files"]["failed"], 0, "{done}");
    assert!(host(&done, "a2")["lost"].as_u64() > Some(0), "{done}");
}

/// As runs leave them that could deliver nothing, one after the other.
#[test]
fn more_lost_parts_than_one_can_be_told_of_are_taken_over_before_anything_else() {
    let site = Site::new(&["a1", "a2"], &["b1"]);
    site.tree(24);
    let words = ["cp", "--json", "--hosts", "a2", "a1:x/", "b1:y/"];
    let mut child = site.bed.start(&words);
    until("an order at a2", || site.orders("a2") > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let journal = files_called(&site.bed.path(""), "slices.json").pop().expect("what the run left");
    let mut left: Vec<String> = serde_json::from_slice(&fs::read(&journal).unwrap()).unwrap();
    assert!(!left.is_empty());
    left.extend((0..300).map(|number| format!("{number:032x}")));
    fs::write(&journal, serde_json::to_vec(&left).unwrap()).unwrap();
    site.bed.run(&words).succeeded();
    site.assert_whole();
    let open: Vec<String> =
        fs::read(&journal).map_or_else(|_| Vec::new(), |text| serde_json::from_slice(&text).unwrap());
    assert_eq!(open, [""; 0], "all of them were taken over");
}

fn files_called(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files_called(&path, name)),
            false if path.ends_with(name) => found.push(path),
            false => {}
        }
    }
    found
}

#[test]
fn a_receiver_that_stood_still_publishes_nothing_afterwards() {
    let mut site = Site::new(&["a1", "a2"], &["b1", "b2"]);
    site.tree(24);
    let child = site.bed.start(&["cp", "--json", "--hosts", "a2", "--to-hosts", "b2", "a1:x/", "b1:y/"]);
    until("something to arrive", || staged(&site.bed.path("to")).iter().any(|(_, bytes)| *bytes > 0));
    let pid = site.servers.iter().find(|(name, _)| *name == "b2").unwrap().1.pid();
    signal(pid, Signal::STOP);
    site.bed.wait(child).succeeded();
    site.assert_whole();
    // The source has changed since, and what b2 still holds is older.
    for at in 0..24usize {
        site.bed.write(&format!("from/x/large/{at}"), &noise(8 << 20, 9000 + at as u64));
    }
    site.bed.run(&["cp", "a1:x/", "b1:y/"]).succeeded();
    site.assert_whole();
    signal(pid, Signal::CONT);
    // It answers again, and has heard of everything that was sent to it before.
    site.bed.run(&["ls", "b2:y/"]).succeeded();
    until("its jobs to end", || staged(&site.bed.path("to")).is_empty());
    site.assert_whole();
    site.server("b1").kill();
}

#[test]
fn hosts_that_cannot_work_together_are_refused_with_the_reason() {
    let mut site = Site::new(&["a1", "a2"], &["b1"]);
    site.tree(0);
    fs::create_dir_all(site.bed.path("elsewhere/x")).unwrap();
    site.serve("c", "elsewhere");
    for (words, code, text) in [
        (&["--hosts", "c", "a1:x/", "b1:y/"][..], 6, "c does not see the same files as a1:x/"),
        (&["--hosts", "a2", "-H", "a1:x/", "b1:y/"], 2, "--hard-links: not for copies by several hosts"),
        (&["--hosts", "a2", "--bwlimit", "1M", "a1:x/", "b1:y/"], 2, "not for copies by several hosts"),
        (&["--hosts", "a2", "a1:x/d0/f0", "b1:y/"], 2, "is no directory"),
        (&["--hosts", "nobody", "a1:x/", "b1:y/"], 2, "nobody"),
        (&["--to-hosts", "b1", "a1:x/", "y/"], 2, "--to-hosts names hosts of the endpoint that is the destination"),
    ] {
        let ran = site.bed.run(&[&["cp"], words].concat());
        assert!(ran.stderr.contains(text), "{words:?}: {}", ran.stderr);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.error().contains("hint: "), "{words:?}: {}", ran.stderr);
    }
}

/// Somebody else makes files in the destination all the time: the hosts look at it one after the other and see it changed.
#[test]
fn hosts_share_a_directory_that_somebody_writes_to_meanwhile() {
    let site = Site::new(&["a1"], &["b1", "b2"]);
    site.tree(1);
    let (foreign, is_over) = (site.bed.path("to/y/foreign"), AtomicBool::new(false));
    site.bed.write("to/y/there", b"it is the same for both");
    let done = std::thread::scope(|scope| {
        let write = || {
            while !is_over.load(Relaxed) {
                fs::write(&foreign, b"").unwrap();
                fs::remove_file(&foreign).unwrap();
                // Nothing is waited for: somebody writes so often, and leaves the processors to the copy.
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::Builder::new().spawn_scoped(scope, write).unwrap();
        let run = || site.bed.run(&["cp", "--json", "--to-hosts", "b2", "a1:x/", "b1:y/"]);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        is_over.store(true, Relaxed);
        let ran = ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).succeeded();
        assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
        ran.done()
    });
    fs::remove_file(site.bed.path("to/y/there")).unwrap();
    site.assert_whole();
    assert_eq!(host(&done, "a1")["lost"], 0, "it is shared: {done}");
}

/// What of a file several hosts stage together.
fn ranges(site: &Site) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![site.bed.path("to")];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.parent().unwrap().file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ranges-")) {
                found.push(path);
            } else if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

/// Parts that were brought whole, by their journals.
fn journals(site: &Site) -> usize {
    ranges(site).iter().filter(|path| path.extension().is_some_and(|extension| extension == "log")).count()
}

impl Site {
    /// One large file, which each host sends so slowly that there is time to disturb it.
    fn of_one_file() -> Site {
        let mut site = Site { bed: Bed::new(), servers: Vec::new() };
        for (names, root) in [(&["a1", "a2", "a3"][..], "from"), (&["b1", "b2"], "to")] {
            fs::create_dir_all(site.bed.path(root)).unwrap();
            for name in names {
                fs::create_dir_all(site.bed.path(name)).unwrap();
                if root == "from" {
                    let words = ["contract", "add", "slow", "--direction", "out", "--rate", "200Mbit"];
                    site.bed.finish(site.bed.command(name, &words)).succeeded();
                }
                site.serve(name, root);
            }
        }
        site.bed.write("from/x/deep/large", &noise((192 << 20) + 1, 1));
        site.bed.write("from/x/small", b"small");
        site
    }
}

const ONE_FILE: [&str; 8] = ["cp", "--json", "--hosts", "a2,a3", "--to-hosts", "b2", "a1:x/", "b1:y/"];

#[test]
fn one_file_is_sent_by_all_hosts_and_what_a_killed_one_had_by_others() {
    let mut site = Site::of_one_file();
    let done = site.bed.run(&ONE_FILE).succeeded().done();
    site.assert_whole();
    let size = (192 << 20) + 1 + 5;
    assert_eq!((&done["files"]["ok"], &done["bytes"]), (&2.into(), &size.into()), "{done}");
    for name in ["a1", "a2", "a3"] {
        assert!(host(&done, name)["bytes"].as_u64() > Some(32 << 20), "{done}");
    }
    until("nothing else to be left", || fs::read_dir(site.bed.path("to")).unwrap().count() == 1);
    // A sender is killed, and a receiver stands still and goes on when all is over.
    fs::remove_dir_all(site.bed.path("to/y")).unwrap();
    let child = site.bed.start(&ONE_FILE);
    until("parts to be under way", || journals(&site) >= 6);
    let pid = site.servers.iter().find(|(name, _)| *name == "b2").unwrap().1.pid();
    signal(pid, Signal::STOP);
    site.server("a2").kill();
    let done = site.bed.wait(child).succeeded().done();
    site.assert_whole();
    assert!(host(&done, "a2")["lost"].as_u64() > Some(0), "{done}");
    // What stands still may write to nothing that has its name.
    let large = site.bed.path("to/y/deep/large");
    let inode = |path: &Path| fs::metadata(path).map(|of| (of.dev(), of.ino())).ok();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter_map(|one| inode(&one.path()));
    assert!(!open.collect::<Vec<_>>().contains(&inode(&large).unwrap()), "a host has it open that may go on");
    // Its owner changes the file in place.
    let mut changed = fs::read(&large).unwrap();
    changed.fill(7);
    fs::write(&large, &changed).unwrap();
    signal(pid, Signal::CONT);
    site.bed.run(&["ls", "b2:y/"]).succeeded();
    until("its jobs to end", || staged(&site.bed.path("to")).is_empty());
    assert!(fs::read(&large).unwrap() == changed, "a late host has written to a file that has its name");
}

#[test]
fn ranges_that_arrived_are_not_sent_again_after_the_command_was_killed_and_a_changed_source_voids_them() {
    let site = Site::of_one_file();
    let mut child = site.bed.start(&ONE_FILE);
    until("parts to be brought", || journals(&site) >= 10);
    child.kill().unwrap();
    child.wait().unwrap();
    let done = site.bed.run(&ONE_FILE).succeeded().done();
    site.assert_whole();
    assert!(done["sent_bytes"].as_u64() < Some(180 << 20), "{done}");
    until("nothing else to be left", || ranges(&site).is_empty());
    // The source changes in the middle: what is published is one version of it.
    fs::remove_dir_all(site.bed.path("to/y")).unwrap();
    let child = site.bed.start(&ONE_FILE);
    until("parts to be brought", || journals(&site) >= 8);
    site.bed.write("from/x/deep/large", &noise((192 << 20) + 1, 2));
    let ran = site.bed.wait(child);
    assert!(ran.code == Some(0) || ran.code == Some(1), "{}", ran.stderr);
    site.bed.run(&ONE_FILE).succeeded();
    site.assert_whole();
    until("nothing else to be left", || ranges(&site).is_empty());
}

/// Endpoints of several hosts under one name each: a source of three, a destination of two.
struct Houses {
    bed: Bed,
    servers: Vec<(&'static str, Server)>,
    rate: Option<&'static str>,
}

impl Houses {
    fn new() -> Houses {
        Houses::of_rate(None)
    }

    /// Each host at the source sends with `rate`.
    fn of_rate(rate: Option<&'static str>) -> Houses {
        let mut houses = Houses { bed: Bed::new(), servers: Vec::new(), rate };
        for (head, root, more) in [("a", "from", &["a2", "a3"][..]), ("b", "to", &["b2"])] {
            fs::create_dir_all(houses.bed.path(root)).unwrap();
            let ticket = format!("ticket-{head}");
            houses.serve(head, root, &["--ticket-file", &ticket]);
            houses.at(head, &["host", "init"]);
            more.iter().for_each(|name| houses.join(head, name, root));
            let heard = || houses.hosts(head).iter().all(|host| host["state"] != "invited");
            until("the hosts to be heard", heard);
            houses.bed.run(&["endpoint", "add", head, "--ticket-file", &ticket]).succeeded();
        }
        houses
    }

    fn serve(&mut self, home: &'static str, root: &str, more: &[&str]) {
        // Before it runs, so that it holds from the first byte on.
        if let Some(rate) = self.rate.filter(|_| root == "from") {
            self.at(home, &["contract", "add", "slow", "--direction", "out", "--rate", rate]);
        }
        let mut command = self.bed.command(home, &["serve", "--listen", "127.0.0.1:0", "--root", root, "--name", home]);
        command.args(more);
        let server = self.bed.serve_with(command);
        self.servers.push((home, server));
    }

    fn at(&self, home: &str, args: &[&str]) -> crate::bed::Ran {
        self.bed.finish(self.bed.command(home, args)).succeeded()
    }

    fn join(&mut self, head: &'static str, name: &'static str, root: &str) {
        let token = format!("token-{name}");
        self.at(head, &["host", "invite", name, "--token-file", &token]);
        self.serve(name, root, &["--join", &token]);
    }

    fn hosts(&self, head: &str) -> Vec<Value> {
        self.at(head, &["host", "ls", "--json"]).events()
    }
}

fn names(done: &Value) -> Vec<String> {
    let hosts = done["hosts"].as_array().map_or(&[][..], |hosts| &hosts[..]);
    hosts.iter().map(|host| host["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn endpoints_of_several_hosts_are_one_name_each() {
    let mut houses = Houses::new();
    for at in 0..1200usize {
        houses.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
    }
    let done = houses.bed.run(&["cp", "--json", "a:x/", "b:y/"]).succeeded().done();
    assert_eq!(contents(&houses.bed.path("from/x")), contents(&houses.bed.path("to/y")));
    assert_eq!((names(&done), &done["files"]["ok"]), (vec!["a".into(), "a.a2".into(), "a.a3".into()], &1200.into()));
    // One host if that is wanted; a single file, and what several hosts cannot do, takes one too.
    let one = ["cp", "--json", "--hosts", "1", "--to-hosts", "1", "a:x/", "b:z/"];
    assert_eq!(names(&houses.bed.run(&one).succeeded().done()), ["a"]);
    for words in [&["cp", "--json", "a:x/d0/f0", "b:f0"][..], &["cp", "--json", "-H", "a:x/", "b:h/"]] {
        assert_eq!(names(&houses.bed.run(words).succeeded().done()), [""; 0], "{words:?}");
    }
    // A host that joined makes no tickets.
    let own = houses.bed.finish(houses.bed.command("a2", &["ticket", "new", "--ticket-file", "own"]));
    assert_eq!((own.code, own.error().contains("make the ticket at the head")), (Some(2), true), "{}", own.stderr);
    // A drained host gets nothing.
    houses.at("a", &["host", "drain", "a2"]);
    let done = houses.bed.run(&["cp", "--json", "a:x/", "b:w/"]).succeeded().done();
    assert_eq!(names(&done), ["a", "a.a3"]);
    houses.at("a", &["host", "resume", "a2"]);
    let done = houses.bed.run(&["cp", "--json", "a:x/", "b:w/"]).succeeded().done();
    assert_eq!(names(&done).len(), 3, "{done}");
    // One that was removed needs another token, which may be under another name.
    houses.at("a", &["host", "rm", "a3"]);
    let at = houses.servers.iter().position(|(name, _)| *name == "a3").unwrap();
    houses.servers.remove(at).1.kill();
    houses.at("a", &["host", "invite", "a4", "--token-file", "token-a4"]);
    houses.serve("a3", "from", &["--join", "token-a4"]);
    until("a4 to be heard", || houses.hosts("a").iter().any(|host| host["name"] == "a4" && host["state"] != "invited"));
    let done = houses.bed.run(&["cp", "--json", "a:x/", "b:u/"]).succeeded().done();
    assert_eq!(names(&done), ["a", "a.a2", "a.a4"]);
    // Started again with the same token, it goes on.
    houses.servers.pop().unwrap().1.kill();
    houses.serve("a3", "from", &["--join", "token-a4"]);
    let copied = || names(&houses.bed.run(&["cp", "--json", "a:x/", "b:u/"]).succeeded().done());
    until("a4 to be heard where it is now", || copied() == ["a", "a.a2", "a.a4"]);
    // Without the head the others go on.
    houses.servers.remove(0).1.kill();
    let done = houses.bed.run(&["cp", "--json", "a:x/", "b:v/"]).succeeded().done();
    assert_eq!(names(&done), ["a.a2", "a.a4"]);
    assert_eq!(contents(&houses.bed.path("from/x")), contents(&houses.bed.path("to/v")));
}

#[test]
fn hosts_join_and_leave_a_copy_that_runs() {
    // Slowed down, so that there is a while to join in.
    let houses = Houses::of_rate(Some("24Mbit"));
    for at in 0..3000usize {
        houses.bed.write(&format!("from/x/d{}/f{at}", at % 7), &noise(64 << 10, at as u64));
    }
    houses.at("a", &["host", "drain", "a3"]);
    let child = houses.bed.start(&["cp", "--json", "a:x/", "b:y/"]);
    until("something to arrive", || staged(&houses.bed.path("to")).iter().any(|(_, bytes)| *bytes > 0));
    houses.at("a", &["host", "resume", "a3"]);
    houses.at("a", &["host", "drain", "a2"]);
    let working = |name: &str, jobs: u64| {
        let host = houses.hosts("a").into_iter().find(|host| host["name"] == name).unwrap();
        host["jobs"].as_u64().is_some_and(|has| if jobs == 0 { has == 0 } else { has >= jobs })
    };
    until("a3 to work", || working("a3", 1));
    until("a2 to finish what it has", || working("a2", 0));
    for host in ["a", "a2", "a3"] {
        houses.at(host, &["contract", "rm", "slow"]);
    }
    let ran = houses.bed.wait(child).succeeded();
    assert!(ran.stderr.contains("a.a3 joins") && ran.stderr.contains("a.a2 is drained"), "{}", ran.stderr);
    let done = ran.done();
    assert_eq!(contents(&houses.bed.path("from/x")), contents(&houses.bed.path("to/y")));
    assert_eq!((&done["files"]["ok"], &done["files"]["failed"]), (&3000.into(), &0.into()), "{done}");
    assert!(host(&done, "a.a3")["slices"].as_u64() > Some(0), "{done}");
    assert_eq!(host(&done, "a.a2")["lost"], 0, "{done}");
}

/// What is left of endpoints that served this host's own directories.
fn places_of_this_host(bed: &Bed) -> usize {
    let mut found = 0;
    let mut open = vec![bed.path("")];
    while let Some(directory) = open.pop() {
        for path in fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
            found +=
                usize::from(directory.file_name().is_some_and(|name| name == "here") && path.join("state").exists());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    found
}

#[test]
fn a_directory_of_this_host_goes_to_several_hosts_and_comes_back_from_them() {
    let houses = Houses::new();
    for at in 0..1200usize {
        houses.bed.write(&format!("x/d{}/f{at}", at % 7), &noise(100 + at, at as u64));
    }
    houses.bed.write("x/large", &noise((192 << 20) + 1, 1));
    let orders = |home: &str| {
        fs::read_to_string(houses.bed.path(home).join("state_home/thalweg/transfers.jsonl")).unwrap_or_default()
    };
    let done = houses.bed.run(&["cp", "--json", "--to-hosts", "all", "x/", "b:y/"]).succeeded().done();
    assert_eq!(contents(&houses.bed.path("x")), contents(&houses.bed.path("to/y")));
    assert_eq!((names(&done), &done["files"]["ok"]), (vec!["this-host".into()], &1201.into()), "{done}");
    for home in ["b", "b2"] {
        assert!(orders(home).lines().count() > 1, "{home} took no part: {done}");
    }
    // Under its own name, to a directory that is not there yet.
    let done = houses.bed.run(&["cp", "--json", "--hosts", "all", "b:y", "back/again"]).succeeded().done();
    assert_eq!(contents(&houses.bed.path("x")), contents(&houses.bed.path("back/again/y")));
    assert_eq!(names(&done), ["b", "b.b2"]);
    assert!(names(&done).iter().all(|name| host(&done, name)["bytes"].as_u64() > Some(0)), "{done}");
    assert_eq!(places_of_this_host(&houses.bed), 0);
    // Without a word one host does it, which keeps all that a copy of one's own files can do.
    assert_eq!(names(&houses.bed.run(&["cp", "--json", "x/", "b:z/"]).succeeded().done()), [""; 0]);
    for (words, text) in [
        (&["--to-hosts", "all", "x/d0/f0", "b:f1"][..], "x/d0/f0 is no directory"),
        (&["--to-hosts", "all", "--manifest", "m", "x/", "b:f1"], "--manifest is not for copies by several hosts"),
        (&["--to-hosts", "all", "--fail-fast", "x/", "b:f1"], "--fail-fast: not for copies by several hosts"),
        (&["--to-hosts", "all", "./", "b:f1"], "holds thalweg's own files"),
    ] {
        let ran = houses.bed.run(&[&["cp"], words].concat());
        assert!(ran.error().contains(text) && ran.error().contains("hint: "), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_killed_copy_between_this_host_and_several_goes_on_with_the_same_command() {
    let houses = Houses::of_rate(Some("200Mbit"));
    houses.bed.write("from/x/large", &noise((192 << 20) + 1, 1));
    let words = ["cp", "--json", "--hosts", "all", "a:x/", "back/"];
    let mut child = houses.bed.start(&words);
    until("something to be brought", || {
        staged(&houses.bed.path("back")).iter().map(|(_, bytes)| bytes).sum::<u64>() > 0
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(places_of_this_host(&houses.bed), 1);
    houses.bed.run(&words).succeeded();
    assert_eq!(contents(&houses.bed.path("from/x")), contents(&houses.bed.path("back")));
    until("nothing else to be left", || staged(&houses.bed.path("back")).is_empty());
}

#[test]
fn a_copy_by_several_hosts_tells_how_far_it_is_when_it_is_asked() {
    let houses = Houses::of_rate(Some("40Mbit"));
    for at in 0..20 {
        houses.bed.write(&format!("from/x/{at}"), &noise(1 << 20, at));
    }
    let mut child = houses.bed.start(&["cp", "a:x/", "b:y/"]);
    until("something to be brought", || !staged(&houses.bed.path("to")).is_empty());
    signal(child.id(), Signal::USR1);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let told: Vec<_> = lines.by_ref().take_while(|line| !line.contains(" parts are done")).collect();
    let rest: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{told:?} {rest:?}");
    assert!(rest.iter().any(|line| line.contains("copied 20 files")), "{told:?} {rest:?}");
    assert_eq!(contents(&houses.bed.path("from/x")), contents(&houses.bed.path("to/y")));
}

#[test]
fn a_full_disk_ends_a_copy_by_several_hosts_which_goes_on_when_there_is_room() {
    if !needs::root() {
        return;
    }
    let mut site = Site::new(&["a1", "a2"], &[]);
    for at in 0..40 {
        site.bed.write(&format!("from/x/{at}"), &noise(1 << 20, at));
    }
    fs::create_dir_all(site.bed.path("to")).unwrap();
    let script = "mount -t tmpfs -o size=16m thalweg-e2e to && exec \"$0\" \"$@\"";
    site.serve_behind(&["unshare", "--mount", "sh", "-c", script], "b1", "to");
    let words = ["cp", "--hosts", "a2", "a1:x/", "b1:y/"];
    let ran = site.bed.run(&words);
    assert_eq!(ran.code, Some(44), "{}", ran.stderr);
    assert!(ran.error().contains("hint: make room at the destination"), "{}", ran.stderr);
    let pid = site.server("b1").pid().to_string();
    let resize = ["-t", &pid, "--mount", "mount", "-o", "remount,size=96m"];
    assert!(Command::new("nsenter").args(resize).arg(site.bed.path("to")).status().unwrap().success());
    site.bed.run(&words).succeeded();
    site.bed.run(&["cp", "b1:y/", "back"]).succeeded();
    assert_eq!(contents(&site.bed.path("from/x")), contents(&site.bed.path("back")));
}

/// All of them may try, none needs to try again.
#[test]
fn a_destination_that_nobody_may_write_to_ends_a_copy_by_several_hosts_with_its_reason() {
    if !needs::root() {
        return;
    }
    let mut site = Site::new(&["a1", "a2"], &[]);
    site.bed.write("from/x/f", b"f");
    fs::create_dir_all(site.bed.path("to")).unwrap();
    let script = "mount --bind to to && mount -o remount,bind,ro to && exec \"$0\" \"$@\"";
    site.serve_behind(&["unshare", "--mount", "sh", "-c", script], "b1", "to");
    let ran = site.bed.run(&["cp", "--hosts", "a2", "a1:x/", "b1:y/"]);
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.error().contains("the last: a") && ran.error().contains("is read-only"), "{}", ran.stderr);
}

#[test]
fn a_receiver_that_cannot_write_costs_the_copy_nothing_but_itself() {
    if !needs::root() {
        return;
    }
    let mut site = Site::new(&["a1", "a2"], &["b1"]);
    site.tree(4);
    fs::create_dir_all(site.bed.path("to/y")).unwrap();
    let script = "mount --bind to to && mount -o remount,bind,ro to && exec \"$0\" \"$@\"";
    site.serve_behind(&["unshare", "--mount", "sh", "-c", script], "b2", "to");
    site.bed.run(&["cp", "--hosts", "a2", "--to-hosts", "b2", "a1:x/", "b1:y/"]).succeeded();
    site.assert_whole();
}
