//! Files that are sent while they are written, by the program: locally, to an endpoint, and again after a kill.

use crate::bed::{Bed, Ran, journal_bytes, noise, until};
use crate::ssh::Hosts;
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running `follow` of `src/`, and what it has said.
pub struct Following<'a> {
    bed: &'a Bed,
    child: Child,
    said: Arc<Mutex<Vec<Value>>>,
}

impl<'a> Following<'a> {
    pub fn start(bed: &'a Bed, to: &str) -> Following<'a> {
        Following::of(bed, bed.command("client", &words(to)))
    }

    pub fn of(bed: &'a Bed, mut command: Command) -> Following<'a> {
        fs::create_dir_all(bed.path("src")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (said, lines) = (Arc::<Mutex<Vec<Value>>>::default(), BufReader::new(child.stdout.take().unwrap()));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                heard.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        Following { bed, child, said }
    }

    pub fn events(&self) -> Vec<Value> {
        self.said.lock().unwrap().clone()
    }

    pub fn has(&self, event: &str, path: &str) -> bool {
        self.events().iter().any(|said| said["event"] == event && said["path"] == path)
    }

    pub fn wait_for(&self, event: &str, path: &str) {
        until(&format!("{event} of {path}"), || self.has(event, path));
    }

    /// Until so many files grow and all of their bytes have arrived.
    fn wait_until_caught_up(&self, files: u64) {
        let before = self.events().len();
        let is_so = |said: &Value| said["event"] == "lag" && said["bytes"] == 0 && said["files"] == files;
        until("everything has arrived", || self.events()[before..].iter().any(is_so));
    }

    pub fn append(&self, name: &str, bytes: &[u8]) {
        let path = self.bed.path("src").join(name);
        OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(bytes).unwrap();
    }

    pub fn rename(&self, from: &str, to: &str) {
        fs::rename(self.bed.path("src").join(from), self.bed.path("src").join(to)).unwrap();
    }

    pub fn remove(&self, name: &str) {
        fs::remove_file(self.bed.path("src").join(name)).unwrap();
    }

    /// Ends it by its marker.
    pub fn end(self) -> (Ran, Vec<Value>) {
        self.bed.write("src/STOP", b"");
        let (said, ran) = (self.said.clone(), self.bed.wait(self.child));
        until("the last event", || said.lock().unwrap().last().is_some_and(|event| event["event"] == "done"));
        let events = said.lock().unwrap().clone();
        (ran, events)
    }
}

pub fn words(to: &str) -> [&str; 8] {
    ["follow", "--json", "--until", "rename", "--end", "marker:STOP", "src/", to]
}

/// Everything that may become of a file, once each.
pub fn eventful(bed: &Bed) -> Vec<Value> {
    let following = Following::start(bed, "followed");
    for name in ["cut.tmp", "swapped.tmp", "removed.tmp", "patched.tmp"] {
        following.append(name, &noise(5000, 3));
    }
    following.wait_until_caught_up(4);
    OpenOptions::new().write(true).open(bed.path("src/cut.tmp")).unwrap().set_len(10).unwrap();
    following.wait_for("truncated", "cut.tmp");
    fs::rename(bed.write("another", b"another file"), bed.path("src/swapped.tmp")).unwrap();
    following.wait_for("replaced", "swapped.tmp");
    fs::remove_file(bed.path("src/removed.tmp")).unwrap();
    following.wait_for("vanished", "removed.tmp");
    OpenOptions::new().write(true).open(bed.path("src/patched.tmp")).unwrap().write_all_at(b"header", 0).unwrap();
    following.rename("patched.tmp", "patched");
    following.wait_for("rewritten", "patched");
    following.wait_for("sealed", "patched");
    following.append("patched", b"and more");
    following.wait_for("reopened", "patched");
    let (ran, events) = following.end();
    assert_eq!(ran.code, Some(24), "{}", ran.stderr);
    let same = fs::read(bed.path("src/patched")).unwrap() == fs::read(bed.path("followed/patched")).unwrap();
    assert!(same, "{}\n{events:#?}", ran.stderr);
    assert!(!bed.path("followed/cut.tmp").exists() && !bed.path("followed/removed.tmp").exists());
    events
}

#[test]
fn a_file_grows_to_an_endpoint_and_appears_whole_when_it_is_renamed() {
    let (bed, _server) = Bed::with_endpoint();
    let following = Following::start(&bed, "lab:there/");
    for part in 0..5 {
        following.append("run.dat.inprogress", &noise(300_000, part));
        following.wait_until_caught_up(1);
        assert!(!bed.path("root/there/run.dat").exists() && !bed.path("root/there/run.dat.inprogress").exists());
    }
    following.rename("run.dat.inprogress", "run.dat");
    following.wait_for("sealed", "run.dat");
    assert!(fs::read(bed.path("root/there/run.dat")).unwrap() == fs::read(bed.path("src/run.dat")).unwrap());
    let (ran, events) = following.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let done = events.last().unwrap();
    assert_eq!((&done["files"]["ok"], &done["sent_bytes"]), (&2.into(), &1_500_000.into()), "{done}");
    assert!(bed.path("root/there/STOP").exists());
}

#[test]
fn the_same_command_goes_on_where_a_killed_one_stopped() {
    let (bed, _server) = Bed::with_endpoint();
    let mut killed = Following::start(&bed, "lab:there/");
    killed.append("run.tmp", &noise(9 << 20, 1));
    killed.wait_until_caught_up(1);
    // What has arrived is put down every few seconds, while something comes.
    let before = journal_bytes(&bed.path("root"));
    until("it is put down", || {
        killed.append("run.tmp", b".");
        std::thread::park_timeout(Duration::from_millis(50));
        journal_bytes(&bed.path("root")) > before
    });
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    killed.append("run.tmp", b"written while nobody followed");
    let following = Following::start(&bed, "lab:there/");
    following.wait_until_caught_up(1);
    following.rename("run.tmp", "run");
    following.wait_for("sealed", "run");
    let (ran, events) = following.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read(bed.path("root/there/run")).unwrap() == fs::read(bed.path("src/run")).unwrap());
    let sent = events.last().unwrap()["sent_bytes"].as_u64().unwrap();
    assert!(sent < 2 << 20, "{sent} bytes were sent again");
}

#[test]
fn a_reader_at_the_endpoint_sees_a_file_grow_through_a_kill_and_to_its_end() {
    let (bed, _server) = Bed::with_endpoint();
    let start = || {
        let words = [&words("lab:there/")[..7], &["--show", "prefix", "lab:there/"]].concat();
        Following::of(&bed, bed.command("client", &words))
    };
    let mut killed = start();
    let shown = bed.path("root/there/run.tmp");
    let parts = [1, 2, 3].map(|seed| noise(3_000_000, seed));
    let whole = parts.concat();
    killed.append("run.tmp", &parts[0]);
    until("it is shown", || fs::metadata(&shown).is_ok_and(|found| found.len() == 3_000_000));
    let reader = fs::File::open(&shown).unwrap();
    let sees = |bytes: usize| {
        let mut seen = vec![0; bytes];
        reader.read_exact_at(&mut seen, 0).unwrap();
        assert!(seen == whole[..bytes], "other bytes than the source's");
    };
    killed.append("run.tmp", &parts[1]);
    until("more of it is shown", || reader.metadata().unwrap().len() > 3_000_000);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let before = reader.metadata().unwrap().len();
    sees(before as usize);
    killed.append("run.tmp", &parts[2]);
    let following = start();
    until("all of it is shown", || {
        let now = reader.metadata().unwrap().len();
        assert!(now >= before, "it shrank from {before} to {now}");
        now == 9_000_000
    });
    sees(9_000_000);
    following.rename("run.tmp", "run");
    following.wait_for("sealed", "run");
    assert!(!shown.exists());
    assert!(fs::read(bed.path("root/there/run")).unwrap() == whole);
    let (ran, _) = following.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn files_are_followed_to_a_host_over_ssh() {
    let hosts = Hosts::new(&["far"]);
    let following = Following::of(&hosts.bed, hosts.command(&words("me@far:in/")));
    following.append("run.tmp", &noise(700_000, 1));
    following.wait_until_caught_up(1);
    following.append("run.tmp", &noise(700_000, 2));
    following.rename("run.tmp", "run");
    following.wait_for("sealed", "run");
    let (ran, _) = following.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read(hosts.home("far").join("in/run")).unwrap() == fs::read(hosts.bed.path("src/run")).unwrap());
}

#[test]
fn what_cannot_be_followed_is_refused_with_what_to_do() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("src/f", b"f");
    for (words, said) in [
        (&["lab:x", "here"][..], "is not on this host"),
        (&["-", "lab:x"], "give `-` to cp instead"),
        (&["--dry-run", "src/", "lab:x"], "cannot be combined with follow"),
        (&["--until", "noon", "src/", "lab:x"], "expected close, rename, rename:GLOB"),
        (&["--end", "marker:a/b", "src/", "lab:x"], "a marker is one name without slashes"),
    ] {
        let ran = bed.run(&[&["follow"], words].concat());
        assert_eq!(ran.code, Some(2), "{words:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{words:?}: {}", ran.stderr);
    }
    assert!(!bed.path("root/x").exists());
}

/// Another host writes: this kernel hears of nothing.
#[cfg(feature = "fuse")]
#[test]
fn storage_that_tells_nothing_is_followed_all_the_same() {
    if !needs::fuse() {
        return;
    }
    let (bed, _server) = Bed::with_endpoint();
    let _storage = crate::bed::slow_storage(&bed, "src", &["--local-locks"]);
    let following = Following::start(&bed, "lab:in/");
    let (first, more) = (noise(300_000, 1), noise(3 << 20, 2));
    bed.write("src-backing/a.inprogress", &first);
    following.wait_until_caught_up(1);
    let growing = bed.path("src-backing/a.inprogress");
    OpenOptions::new().append(true).open(&growing).unwrap().write_all(&more).unwrap();
    fs::rename(&growing, bed.path("src-backing/a")).unwrap();
    following.wait_for("sealed", "a");
    let (ran, _) = following.end();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(fs::read(bed.path("root/in/a")).unwrap() == [first, more].concat());
}
