//! Streams follow the path while a transfer runs: a laboratory whose loss holds every one of them back. Where somebody chose their
//! congestion control they become more; where nobody did, one of them gets another one, as far as the kernel has it.

use crate::bed::{Bed, Ran, noise, program};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A stream carries about 6 Mbit/s of this (1.2 segments of 1448 bytes times (RTT / loss)^0.75, for each round trip).
const LOSSY: &str = "mtu = 1500\nhost-settings = 'tuned'\ncongestion-control = 'cubic'\n[site.a]\n[site.b]\n\
    [link.wan]\nbetween = ['a', 'b']\nrtt = '40ms'\nrate = '300Mbit'\nqueue = '1bdp'\nloss = '0.1%'\n";

/// A laboratory that goes down with its test.
struct Up<'a> {
    bed: &'a Bed,
    name: String,
}

impl<'a> Up<'a> {
    fn new(bed: &'a Bed, scenario: &str) -> Up<'a> {
        bed.write("scenario.toml", scenario.as_bytes());
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("s{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        bed.run(&["lab", "up", "scenario.toml", "--name", &name]).succeeded();
        Up { bed, name }
    }

    fn at(&self, site: &str, args: &[&str]) -> Vec<String> {
        let program = program().display().to_string();
        let exec = ["lab", "exec", "--lab", &self.name, site, "--", &program];
        exec.iter().chain(args).map(|word| (*word).to_owned()).collect()
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.bed.run(&["lab", "down", &self.name]);
    }
}

fn assert_grown(ran: Ran) {
    let done = ran.succeeded().done();
    let streams = done["streams"].as_u64().unwrap();
    let notes = done["notes"].to_string();
    assert!((8..=64).contains(&streams) && notes.contains(" while running: from "), "{done}");
}

const SERVE: &[&str] = &["serve", "--listen", "10.101.2.1:7740", "--root", "root", "--ticket-file", "ticket"];

#[test]
fn a_lossy_path_gets_more_streams_of_a_congestion_control_that_was_chosen_in_both_directions() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let lab = Up::new(&bed, LOSSY);
    let _server = bed.serve_with(bed.command("server", &lab.at("b", &[SERVE, &["--cc", "cubic"]].concat())));
    bed.run(&lab.at("a", &["endpoint", "add", "far", "--ticket-file", "ticket"])).succeeded();
    // More than send buffers take in at the start, so that work is left for lanes that come later.
    assert_grown(bed.run(&lab.at("a", &["cp", "--json", "--cc=cubic", "gen:1x160MiB", "far:null:"])));
    assert_grown(bed.run(&lab.at("a", &["cp", "--json", "far:gen:1x160MiB", "null:"])));
}

#[test]
fn a_lossy_path_gets_a_stream_with_bbr_where_nobody_chose_in_both_directions() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let lab = Up::new(&bed, LOSSY);
    let _server = bed.serve_with(bed.command("server", &lab.at("b", SERVE)));
    bed.run(&lab.at("a", &["endpoint", "add", "far", "--ticket-file", "ticket"])).succeeded();
    let pushed = bed.run(&lab.at("a", &["cp", "--json", "gen:1x160MiB", "far:null:"])).succeeded().done();
    let pulled = bed.run(&lab.at("a", &["cp", "--json", "far:gen:1x160MiB", "null:"])).succeeded().done();
    // A client may use what the kernel has, since root may; an endpoint gave that up, and has to be allowed to come back as well.
    let kernel = |what: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{what}_control")).unwrap();
    let has = |what: &str, names: &[&str]| names.iter().all(|name| kernel(what).split_whitespace().any(|n| n == *name));
    let used = |is_usable: bool| if is_usable { "bbr" } else { "cubic" };
    let (here, there) = (has("available_congestion", &["bbr"]), has("allowed_congestion", &["bbr", "cubic"]));
    let note = if here { "BBR for one stream, because" } else { "this kernel has not loaded bbr" };
    assert!(pushed["notes"].to_string().contains(note), "{pushed}");
    assert_eq!([used(here), used(there)], [pushed["cc"].as_str().unwrap(), pulled["cc"].as_str().unwrap()], "{pulled}");
    // The next copy to that address begins with what this one kept.
    let again = bed.run(&lab.at("a", &["cp", "--json", "gen:1x16MiB", "far:null:"])).succeeded().done();
    assert_eq!(again["notes"].to_string().contains("BBR from the start, because"), here, "{again}");
    // The laboratory's routes name another one, which connections take before one can be set.
    let asked = bed.run(&lab.at("a", &["cp", "--json", "--cc=reno", "gen:1x1MiB", "far:null:"])).succeeded().done();
    assert_eq!(asked["cc"], "reno", "{asked}");
}

#[test]
fn the_side_that_sends_uses_the_congestion_control_asked_for_and_tells_it() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/far", &noise(3 << 20, 1));
    bed.write("near", &noise(3 << 20, 2));
    let kernel = |what: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{what}_control")).unwrap();
    let (system, allowed) = (kernel("congestion"), kernel("allowed_congestion"));
    let used = |args: &[&str]| {
        let done = bed.run(&[&["cp", "--json"], args].concat()).succeeded().done();
        done["cc"].as_str().unwrap_or("none was told").to_owned()
    };
    assert_eq!(used(&["lab:far", "pulled"]), system.trim(), "a short job tells it as well");
    assert_eq!(used(&["near", "lab:pushed"]), system.trim());
    for (n, name) in allowed.split_whitespace().enumerate() {
        let cc = format!("--cc={name}");
        assert_eq!(used(&[&cc, "lab:far", &format!("pulled{n}")]), name, "pulled");
        assert_eq!(used(&[&cc, "near", &format!("lab:pushed{n}")]), name, "pushed");
    }
}

#[test]
fn a_congestion_control_that_the_endpoint_cannot_use_is_refused_with_those_that_it_can() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("root/far", b"far");
    let allowed = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let ran = bed.run(&["cp", "--cc=nonsense", "lab:far", "pulled"]);
    let said =
        format!("error: lab: congestion control nonsense cannot be used there: that host allows {}\n", allowed.trim());
    assert_eq!(ran.code, Some(6), "{}", ran.stderr);
    assert!(ran.error().starts_with(&said), "{}", ran.error());
    assert!(!bed.path("pulled").exists());
    // Here the kernel that lacks it is this one's.
    let ran = bed.run(&["cp", "--cc=nonsense", "root/far", "lab:pushed"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    let ran = bed.run(&["cp", "--cc=../x", "lab:far", "pulled"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    // A root that serves must not load a module because a stranger names it.
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if let Some(reserved) =
        available.split_whitespace().find(|name| !allowed.split_whitespace().any(|other| other == *name))
    {
        let ran = bed.run(&["cp", &format!("--cc={reserved}"), "lab:far", "pulled"]);
        assert_eq!(ran.code, Some(6), "{reserved}: {}", ran.stderr);
    }
}
