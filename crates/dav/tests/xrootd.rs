//! A real XRootD server: what it is sent and asked; and other clients of WebDAV read what this one wrote, and write what it reads.

mod support;

use dav::Sites;
use model::FailureKind;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use store::{Decision, PublishRule};
use support::{entry, open, put, read, scan, sink_at};

/// A server that ends with the test.
struct Xrootd {
    child: Child,
    address: String,
    directory: tempfile::TempDir,
}

impl Drop for Xrootd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Xrootd {
    /// A server over a directory, of which `fill` fills what is served; `None` where it is missing, which is said.
    fn start(fill: impl FnOnce(&Path)) -> Option<Xrootd> {
        let is_there = Command::new("xrootd").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
        if !needs::met(is_there, "it takes xrootd and its libXrdHttp (xrootd-server)") {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().join("t");
        std::fs::create_dir(&top).unwrap();
        fill(&top);
        let all = Command::new("chmod").arg("-R").arg("a+rwX").arg(directory.path()).status().unwrap();
        assert!(all.success());
        let (port, http, shown) = (free_port(), free_port(), directory.path().display());
        let text = format!(
            "xrd.port {port}\nxrd.network nodnr norpipa\nall.export {shown}\nall.adminpath {shown}/.adm\nall.pidpath {shown}/.adm\n\
             xrd.protocol http:{http} libXrdHttp.so\nxrootd.chksum adler32\n"
        );
        let configuration = directory.path().join("xrootd.cf");
        std::fs::write(&configuration, text).unwrap();
        let mut command = Command::new("xrootd");
        command.args(["-I", "v4"]);
        // It refuses to run as root.
        if std::env::var("USER").is_ok_and(|user| user == "root") || Path::new("/root").read_dir().is_ok() {
            command.args(["-R", "nobody"]);
        }
        let child = command.arg("-c").arg(&configuration).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let (server, began) = (Xrootd { child, address: format!("127.0.0.1:{http}"), directory }, Instant::now());
        while std::net::TcpStream::connect(("127.0.0.1", http)).is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "xrootd does not listen");
            std::thread::yield_now();
        }
        Some(server)
    }

    fn top(&self) -> PathBuf {
        self.directory.path().join("t")
    }

    /// What is served, as URLs have it behind their scheme.
    fn rest(&self) -> String {
        format!("{}{}", self.address, self.top().display())
    }
}

/// A client waits for so long before it says that there is no progress.
const STILL: Duration = Duration::from_secs(30);

/// Asks a server, and another one where that fails: that of Debian 12 crashes, stands still, does not know its own methods or states a
/// wrong checksum now and then (decision 019). What is wrong here fails with each of them.
fn with_server(fill: impl Fn(&Path), ask: impl Fn(&Xrootd)) {
    for is_last in [false, false, true] {
        let Some(server) = Xrootd::start(&fill) else { return };
        let process = server.child.id().to_string();
        // Where it stands still, each of many requests would wait.
        let (_asking, over) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if let Err(RecvTimeoutError::Timeout) = over.recv_timeout(2 * STILL) {
                drop(Command::new("kill").args(["-9", &process]).status());
            }
        });
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| ask(&server))) else { return };
        if is_last {
            resume_unwind(panic);
        }
        eprintln!("another xrootd is asked");
    }
}

fn content() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at * 7 % 251) as u8).collect()
}

#[test]
fn a_real_xrootd_is_listed_read_and_compared() {
    let content = content();
    let fill = |top: &Path| {
        std::fs::create_dir(top.join("e")).unwrap();
        std::fs::write(top.join("big"), &content).unwrap();
        std::fs::write(top.join("a b é"), b"odd").unwrap();
    };
    with_server(fill, |server| is_listed_read_and_compared(server, &content));
}

fn is_listed_read_and_compared(server: &Xrootd, content: &[u8]) {
    let source = open("dav", &server.rest()).ok().unwrap();
    let (objects, failures) = scan(&*source);
    assert!(failures.is_empty(), "{failures:?}");
    let paths: Vec<_> = objects.iter().map(|object| source.path(object)).collect();
    assert_eq!(paths, ["t", "t/a b é", "t/big", "t/e"].map(|path| path.as_bytes().to_vec()));
    assert_eq!(read(&*source, &objects[1]).unwrap(), b"odd");
    assert_eq!(read(&*source, &objects[2]).unwrap(), content);
    let file = source.lane().open(&objects[2]).unwrap();
    let mut part = [0; 1000];
    assert_eq!(file.read_at(1_234_567, &mut part).unwrap(), 1000);
    assert_eq!(part, content[1_234_567..1_235_567]);
}

#[test]
fn a_real_xrootd_takes_files_compares_and_renames_them() {
    with_server(|_| {}, takes_files_compares_and_renames_them);
}

fn takes_files_compares_and_renames_them(server: &Xrootd) {
    let (top, sites, rest) = (server.top(), Sites::default(), format!("{}/", server.rest()));
    let (sink, content) = (sink_at(&sites, &rest), content());
    // What needs escapes is not called by them there.
    for name in ["plain", "a b \u{e9}+", "a b+\u{e9}", "x#y", "100%41"] {
        put(&*sink, &entry(name, 3), b"one", PublishRule::NoReplace).unwrap();
        assert_eq!(std::fs::read(top.join(name)).unwrap(), b"one", "{name}");
        let refused = put(&*sink, &entry(name, 3), b"two", PublishRule::NoReplace).unwrap_err();
        assert_eq!((refused.kind, std::fs::read(top.join(name)).unwrap()), (FailureKind::InTheWay, b"one".to_vec()));
        put(&*sink, &entry(name, 3), b"two", PublishRule::Replace).unwrap();
        assert_eq!(std::fs::read(top.join(name)).unwrap(), b"two", "{name}");
    }
    let (staged, _) = sink.begin(&entry("large", content.len()), "stem").unwrap();
    content.chunks(100_000).enumerate().for_each(|(at, part)| staged.write_at(at as u64 * 100_000, part).unwrap());
    staged.publish(&entry("large", content.len()), PublishRule::NoReplace).unwrap();
    assert_eq!(std::fs::read(top.join("large")).unwrap(), content);
    // It keeps no times: what came after the source was changed is current, what is older is not.
    assert!(matches!(sink_at(&sites, &rest).decide(&entry("plain", 3)).unwrap(), Decision::Same));
    let mut newer = entry("plain", 3);
    newer.generation.modified.seconds = 4_000_000_000;
    assert!(matches!(sink_at(&sites, &rest).decide(&newer).unwrap(), Decision::Replace { .. }));
    sink.close();
    let mut left: Vec<_> = std::fs::read_dir(&top).unwrap().map(|one| one.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["100%41", "a b \u{e9}+", "a b+\u{e9}", "large", "plain", "x#y"]);
}

/// Has another client copy from one name to another.
fn copies(program: &str, from: &str, to: &str) {
    let ran = Command::new(program).args([from, to]).stdin(Stdio::null()).output().unwrap();
    assert!(ran.status.success(), "{program} {from} {to}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Another client fetches what this one wrote, and sends what this one reads. `local` is what it has before paths of this host.
fn reads_and_writes(fetches: &str, sends: &str, scheme: &str, local: &str) {
    with_server(|_| {}, |server| one_writes_and_the_other_reads(server, fetches, sends, scheme, local));
}

fn one_writes_and_the_other_reads(server: &Xrootd, fetches: &str, sends: &str, scheme: &str, local: &str) {
    let (sites, content, here) = (Sites::default(), content(), tempfile::tempdir().unwrap());
    let sink = sink_at(&sites, &format!("{}/", server.rest()));
    put(&*sink, &entry("a b", 3), b"odd", PublishRule::NoReplace).unwrap();
    let (staged, _) = sink.begin(&entry("large", content.len()), "stem").unwrap();
    staged.write_at(0, &content).unwrap();
    staged.publish(&entry("large", content.len()), PublishRule::NoReplace).unwrap();
    let url = |name: &str| format!("{scheme}://{}/{name}", server.rest());
    let file = |name: &str| format!("{local}{}", here.path().join(name).display());
    for (name, written, bytes) in [("odd", "a%20b", &b"odd"[..]), ("large", "large", &content[..])] {
        copies(fetches, &url(written), &file(name));
        assert!(std::fs::read(here.path().join(name)).unwrap() == bytes, "{name}");
    }
    copies(sends, &file("large"), &url("theirs"));
    let source = open("dav", &format!("{}/theirs", server.rest())).ok().unwrap();
    let (objects, failures) = scan(&*source);
    assert!(failures.is_empty() && objects.len() == 1, "{failures:?}");
    assert!(read(&*source, &objects[0]).unwrap() == content);
}

#[test]
fn davix_reads_what_was_written_and_writes_what_is_read() {
    if ["davix-get", "davix-put"].into_iter().all(needs::program) {
        reads_and_writes("davix-get", "davix-put", "http", "");
    }
}

/// Not installed by `.ci/run`: its HTTP is davix's.
#[test]
fn gfal_copy_reads_what_was_written_and_writes_what_is_read() {
    if !Command::new("gfal-copy").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return eprintln!("skipped: no gfal-copy is installed (Debian's gfal2-util-scripts and gfal2-plugin-http)");
    }
    reads_and_writes("gfal-copy", "gfal-copy", "dav", "file://");
}
