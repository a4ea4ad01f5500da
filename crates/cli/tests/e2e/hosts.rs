//! Several hosts that share a file system copy one tree: all of them work, one dies, one stands still and comes back.

use crate::bed::{Bed, Server, contents, noise, staged, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

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
        let ticket = format!("ticket-{name}");
        fs::create_dir_all(self.bed.path(name)).unwrap();
        let args = ["serve", "--listen", "127.0.0.1:0", "--root", root, "--ticket-file", &ticket, "--name", name];
        let server = self.bed.serve_with(self.bed.command(name, &args));
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
    assert!(fs::read_dir(site.bed.path("to")).unwrap().count() == 1, "nothing else is left");
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
        (&["--hosts", "a2", "a1:x/", "y/"], 2, "--hosts is for copies between two endpoints"),
    ] {
        let ran = site.bed.run(&[&["cp"], words].concat());
        assert!(ran.stderr.contains(text), "{words:?}: {}", ran.stderr);
        assert_eq!(ran.code, Some(code), "{words:?}: {}", ran.stderr);
        assert!(ran.error().contains("hint: "), "{words:?}: {}", ran.stderr);
    }
}
