//! A cache of sets between an origin and those who fetch: what it asks of the origin, what it keeps, and to whom it gives it.

use crate::bed::{Bed, Ran, Server, noise, signal, until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

const NAME: &str = "example.org/data";

const SET_BYTES: u64 = (40 << 20) + 77 + 2 * (3 << 20) + 200 * 1000 + 37 * (199 * 200 / 2);

struct Site {
    bed: Bed,
    origin: Server,
    meter: Meter,
    cache: Option<Server>,
}

/// Stands on the only way to the origin and counts what it sends.
struct Meter {
    address: String,
    origin: Arc<OnceLock<String>>,
    sent: Arc<AtomicU64>,
}

impl Meter {
    fn new() -> Meter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (origin, sent) = (Arc::<OnceLock<String>>::default(), Arc::<AtomicU64>::default());
        let meter = Meter { address, origin: origin.clone(), sent: sent.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(origin.get().unwrap()) else { continue };
                let (back, there) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pump(client, there, &AtomicU64::new(0)));
                let sent = sent.clone();
                std::thread::spawn(move || pump(server, back, &sent));
            }
        });
        meter
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        count.fetch_add(n as u64, Relaxed);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn serve_origin(bed: &Bed, meter: &Meter) -> Server {
    let args = ["serve", "--listen", "127.0.0.1:0", "--root", "data", "--ticket-file", "ticket-origin"];
    let server = bed.serve_with(bed.command("origin", &[&args[..], &["--advertise", &meter.address]].concat()));
    meter.origin.set(server.address.clone()).unwrap();
    server
}

fn serve_cache(bed: &Bed, size: &str) -> Server {
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--root", "kept", "--ticket-file", "ticket-cache", "--name", "site"];
    bed.serve_with(bed.command("cache", &[&args[..], &["--cache", "origin", "--cache-size", size]].concat()))
}

impl Site {
    /// An origin with a set, a cache of it, and clients who know the cache alone.
    fn new(size: &str, more: &[&str]) -> Site {
        let bed = Bed::new();
        ["data", "kept"].iter().for_each(|name| fs::create_dir_all(bed.path(name)).unwrap());
        bed.write("data/set/large", &noise((40 << 20) + 77, 1));
        bed.write("data/set/d/middle", &noise(3 << 20, 2));
        bed.write("data/set/d/twin", &noise(3 << 20, 2));
        bed.write("data/set/empty", b"");
        (0..200).for_each(|at| _ = bed.write(&format!("data/set/many/f{at:03}"), &noise(1000 + 37 * at, at as u64)));
        let meter = Meter::new();
        let mut site = Site { origin: serve_origin(&bed, &meter), meter, cache: None, bed };
        site.publish(more);
        site.run("cache", &["endpoint", "add", "origin", "--ticket-file", "ticket-origin"]).succeeded();
        site.start_cache(size);
        site
    }

    fn start_cache(&mut self, size: &str) {
        self.cache = Some(serve_cache(&self.bed, size));
    }

    fn run(&self, home: &str, args: &[&str]) -> Ran {
        self.bed.finish(self.bed.command(home, args))
    }

    fn publish(&self, more: &[&str]) {
        let args = [&["publish", "data/set", "--as", NAME, "--key", "key"][..], more].concat();
        self.run("publisher", &args).succeeded();
    }

    fn add(&self, home: &str) {
        self.run(home, &["endpoint", "add", "site", "--ticket-file", "ticket-cache", "--replace"]).succeeded();
    }

    fn start(&self, home: &str, to: &str) -> Child {
        self.add(home);
        let fetch = ["fetch", NAME, to, "--from", "site", "--json", "--retries", "2"];
        let mut command = self.bed.command(home, &fetch);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn fetch(&self, home: &str, to: &str) -> Ran {
        self.bed.wait(self.start(home, to))
    }

    #[track_caller]
    fn assert_whole(&self, to: &str) {
        let (set, copy) = (self.bed.path("data/set"), self.bed.path(to));
        let compared =
            std::process::Command::new("diff").args(["-r", "-x", ".thalweg-set"]).arg(set).arg(copy).output().unwrap();
        assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stdout));
    }

    /// What the origin sent, everything counted.
    fn sent(&self) -> u64 {
        self.meter.sent.load(Relaxed)
    }

    /// Files that the cache keeps.
    fn blobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.bed.path("kept/blobs")).unwrap().map(|entry| entry.unwrap().path());
        found.filter(|path| path.file_name().unwrap().len() == 64).collect()
    }

    fn largest_blob(&self) -> PathBuf {
        self.blobs().into_iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap()
    }
}

#[test]
fn ten_who_fetch_at_once_cost_the_origin_one_set() {
    let site = Site::new("1GiB", &[]);
    let homes: Vec<String> = (0..10).map(|at| format!("client{at}")).collect();
    let children: Vec<Child> = homes.iter().map(|home| site.start(home, &format!("{home}/copy"))).collect();
    for child in children {
        site.bed.wait(child).succeeded();
    }
    homes.iter().for_each(|home| site.assert_whole(&format!("{home}/copy")));
    let sent = site.sent();
    println!("the origin sent {sent} bytes for ten copies of a set of {SET_BYTES}");
    assert!(sent as f64 <= 1.05 * SET_BYTES as f64, "{sent} of {SET_BYTES}");
    // Equal content under two names is kept once.
    assert_eq!(site.blobs().len(), 202);
}

#[test]
fn a_set_that_lies_twice_at_the_origin_comes_through_a_cache() {
    let site = Site::new("1GiB", &[]);
    let (set, twin) = (site.bed.path("data/set"), site.bed.path("data/twin"));
    assert!(std::process::Command::new("cp").arg("-a").arg(set).arg(twin).status().unwrap().success());
    site.fetch("one", "one/copy").succeeded();
    site.assert_whole("one/copy");
}

#[test]
fn what_rots_in_a_cache_is_fetched_again_and_never_served() {
    let site = Site::new("1GiB", &[]);
    site.fetch("one", "one/copy").succeeded();
    for blob in [site.largest_blob(), site.blobs().swap_remove(0)] {
        let mut bytes = fs::read(&blob).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&blob, &bytes).unwrap();
    }
    let short = site.blobs().into_iter().find(|path| fs::metadata(path).unwrap().len() == 3 << 20).unwrap();
    fs::File::options().write(true).open(short).unwrap().set_len(1000).unwrap();
    let done = site.fetch("two", "two/copy").succeeded().done();
    site.assert_whole("two/copy");
    let source = &done["sources"][0];
    assert_eq!(source["bad_chunks"], 0, "{done}");
    let before = site.sent();
    site.fetch("three", "three/copy").succeeded();
    assert!(site.sent() < before + 100_000, "it is healed");
}

#[test]
fn a_set_with_readers_goes_to_them_alone_also_through_a_cache() {
    let mut site = Site::new("1GiB", &["--readers", &"0".repeat(64)]);
    let pin_of = |stderr: &[u8]| {
        let text = String::from_utf8_lossy(stderr).into_owned();
        text.split(|c: char| !c.is_ascii_hexdigit()).find(|word| word.len() == 64).expect(&text).to_owned()
    };
    // The cache itself has to be one of the readers.
    let cache = pin_of(&site.bed.command("cache", &["ls", "origin:set/"]).output().unwrap().stderr);
    let refused = site.fetch("reader", "reader/copy");
    assert!(refused.code == Some(6) && refused.stderr.contains("not one of its readers"), "{}", refused.stderr);
    site.publish(&["--readers", &cache]);
    // A cache asks its origin again after some seconds; one that was started again does at once.
    site.cache = None;
    site.start_cache("1GiB");
    let out = site.start("reader", "reader/copy").wait_with_output().unwrap();
    let reader = pin_of(&out.stderr);
    assert!(!out.status.success() && reader != cache);
    site.publish(&["--readers", &format!("{cache},{reader}")]);
    site.cache = None;
    site.start_cache("1GiB");
    site.fetch("reader", "reader/copy").succeeded();
    site.assert_whole("reader/copy");
    let refused = site.fetch("other", "other/copy");
    assert!(refused.code == Some(6) && refused.stderr.contains("not one of the readers"), "{}", refused.stderr);
    assert!(refused.stderr.contains("thalweg publish --readers"), "{}", refused.stderr);
    let refused = site.run("other", &["cp", &format!("site:{NAME}/.thalweg-set/"), "stolen/"]);
    assert!(refused.code != Some(0) && !site.bed.path("stolen/note").exists(), "{}", refused.stderr);
    let refused = site.run("other", &["ls", "site:"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("cache of sets"), "{}", refused.stderr);
}

#[test]
fn a_small_cache_makes_room_and_says_what_is_too_large() {
    let mut site = Site::new("44MiB", &[]);
    site.fetch("one", "one/copy").succeeded();
    site.assert_whole("one/copy");
    let kept = |site: &Site| site.blobs().iter().map(|path| fs::metadata(path).unwrap().len()).sum::<u64>();
    assert!(kept(&site) <= 44 << 20, "{}", kept(&site));
    site.fetch("two", "two/copy").succeeded();
    site.assert_whole("two/copy");
    assert!(kept(&site) <= 44 << 20, "{}", kept(&site));
    site.cache = None;
    site.start_cache("8MiB");
    assert!(kept(&site) <= 8 << 20, "{}", kept(&site));
    let ran = site.fetch("three", "three/copy");
    assert!(ran.code == Some(23) && ran.stderr.contains("1 file was not delivered"), "{}", ran.stderr);
    assert!(site.bed.path("three/copy/many/f001").exists() && !site.bed.path("three/copy/large").exists());
}

#[test]
fn a_cache_that_is_killed_goes_on_and_serves_what_it_has_without_its_origin() {
    let mut site = Site::new("1GiB", &[]);
    site.bed.write("data/set/huge", &noise(200 << 20, 9));
    site.publish(&[]);
    let child = site.start("one", "one/copy");
    until("something has come", || !site.blobs().is_empty());
    site.cache.as_mut().unwrap().kill();
    // By itself it would wait for the cache, which will have another address, for 30 s in each of three attempts.
    signal(&child, Signal::TERM);
    let _ = site.bed.wait(child);
    site.cache = None;
    site.start_cache("1GiB");
    site.fetch("one", "one/copy").succeeded();
    site.assert_whole("one/copy");
    site.origin.kill();
    site.fetch("two", "two/copy").succeeded();
    site.assert_whole("two/copy");
    site.cache = None;
    site.start_cache("1GiB");
    site.fetch("three", "three/copy").succeeded();
    site.assert_whole("three/copy");
    fs::remove_file(site.largest_blob()).unwrap();
    let lacking = site.fetch("four", "four/copy");
    assert!(lacking.code != Some(0) && site.bed.path("four/copy/large").exists(), "{}", lacking.stderr);
    let unknown = site.run("four", &["fetch", "example.org/unknown", "x", "--from", "site"]);
    assert!(unknown.code != Some(0), "{}", unknown.stderr);
    assert!(!site.bed.path("cache/state_home/thalweg/sets/example.org%unknown").exists());
}
