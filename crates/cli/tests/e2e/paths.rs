//! Several network paths between two hosts: namespaces joined by cables of a set rate, cut and led astray.

use crate::bed::{Bed, Ran, Server, behind, journal_bytes, noise, until};
use serde_json::Value;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Network namespaces that end with their test.
struct Hosts<'a> {
    bed: &'a Bed,
    token: String,
}

impl<'a> Hosts<'a> {
    /// Two hosts, `a` and `b`, with a cable for each rate: 10.201.N.1 and 10.201.N.2 on the interfaces wN.
    fn new(bed: &'a Bed, rates: &[&str]) -> Option<Hosts<'a>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !needs::root() || !needs::network_namespaces() || !needs::program("ip") || !needs::program("tc") {
            return None;
        }
        let hosts = Hosts { bed, token: format!("{}x{}", std::process::id(), COUNT.fetch_add(1, Relaxed)) };
        for name in ["a", "b"] {
            hosts.add(name);
        }
        for (n, rate) in (1..).zip(rates) {
            hosts.cable(n, rate, ("a", 1), ("b", 2));
        }
        Some(hosts)
    }

    fn name(&self, host: &str) -> String {
        format!("twp{}{host}", self.token)
    }

    fn add(&self, host: &str) {
        ip(&["netns", "add", &self.name(host)]);
        ip(&["-n", &self.name(host), "link", "set", "lo", "up"]);
    }

    fn cable(&self, n: u32, rate: &str, one: (&str, u32), other: (&str, u32)) {
        let interface = format!("w{n}");
        let (near, far) = (self.name(one.0), self.name(other.0));
        ip(&["link", "add", &interface, "netns", &near, "type", "veth", "peer", "name", &interface, "netns", &far]);
        for (host, (_, last)) in [(&near, one), (&far, other)] {
            ip(&["-n", host, "addr", "add", &format!("10.201.{n}.{last}/24"), "dev", &interface]);
            ip(&["-n", host, "link", "set", &interface, "up"]);
            run(
                "tc",
                &[
                    "-n", host, "qdisc", "add", "dev", &interface, "root", "tbf", "rate", rate, "burst", "128kb",
                    "latency", "100ms",
                ],
            );
        }
        self.until_up(one.0, n);
        self.until_up(other.0, n);
    }

    /// The kernel tells of a cable's end within a second.
    fn until_up(&self, host: &str, n: u32) {
        let name = self.name(host);
        until("the cable", || {
            let shown = Command::new("ip").args(["-n", &name, "link", "show", &format!("w{n}")]).output().unwrap();
            String::from_utf8_lossy(&shown.stdout).contains("state UP")
        });
    }

    fn cut(&self, n: u32) {
        // The far end: nobody on the near one is told more than that nothing comes.
        ip(&["-n", &self.name("b"), "link", "set", &format!("w{n}"), "down"]);
    }

    fn serve(&self, host: &str, home: &str, root: &str) -> Server {
        std::fs::create_dir_all(self.bed.path(root)).unwrap();
        let ticket = format!("ticket-{host}");
        let args = ["serve", "--listen", "0.0.0.0:7740", "--root", root, "--ticket-file", &ticket];
        self.bed.serve_with(self.at(host, &self.bed.command(home, &args)))
    }

    fn at(&self, host: &str, command: &Command) -> Command {
        behind(&["ip", "netns", "exec", &self.name(host)], command)
    }

    fn enrol(&self) {
        self.run(&["endpoint", "add", "b", "--ticket-file", "ticket-b"]).succeeded();
    }

    /// The client on `a`.
    fn command(&self, args: &[&str]) -> Command {
        self.at("a", &self.bed.command("client", args))
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.bed.finish(self.command(args))
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        for host in ["a", "b", "c"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(host)]).output();
        }
    }
}

fn ip(args: &[&str]) {
    run("ip", args);
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What each path carried of all, in percent.
fn shares(done: &Value) -> Vec<u64> {
    let bytes: Vec<u64> =
        done["paths"].as_array().unwrap().iter().map(|path| path["bytes"].as_u64().unwrap()).collect();
    let total: u64 = bytes.iter().sum();
    bytes.iter().map(|bytes| bytes * 100 / total.max(1)).collect()
}

fn same(bed: &Bed, one: &str, other: &str) -> bool {
    std::fs::read(bed.path(one)).unwrap() == std::fs::read(bed.path(other)).unwrap()
}

#[test]
fn four_cables_carry_equal_shares_in_both_directions() {
    let bed = Bed::new();
    let Some(hosts) = Hosts::new(&bed, &["60mbit"; 4]) else { return };
    let _server = hosts.serve("b", "server", "root");
    hosts.enrol();
    bed.write("file", &noise(96 << 20, 1));
    for args in [["file", "b:there"], ["b:there", "back"]] {
        let done = hosts.run(&[&["cp", "--json", "--paths", "all"], &args[..]].concat()).succeeded().done();
        let shares = shares(&done);
        assert_eq!(shares.len(), 4, "{done}");
        assert!(shares.iter().all(|share| (15..=35).contains(share)), "{args:?}: {shares:?} {done}");
    }
    assert!(same(&bed, "file", "back"));
    // Those that the user names, by address and by interface.
    let paths = "--paths=10.201.3.1=10.201.3.2,w2=10.201.2.2:7740";
    let done = hosts.run(&["cp", "--json", paths, "gen:1x32MiB", "b:null:"]).succeeded().done();
    let locals: Vec<_> = done["paths"].as_array().unwrap().iter().map(|path| path["local"].as_str().unwrap()).collect();
    assert_eq!(locals, ["10.201.3.1", "10.201.2.1"]);
    assert!(shares(&done).iter().all(|share| (35..=65).contains(share)), "{done}");
    // More than there are.
    let done = hosts.run(&["cp", "--json", "--paths", "9", "gen:1x1MiB", "b:null:"]).succeeded().done();
    assert!(done["notes"].to_string().contains("9 paths were asked for, and there are 4"), "{done}");
}

#[test]
fn unequal_cables_carry_what_each_can() {
    let bed = Bed::new();
    let Some(hosts) = Hosts::new(&bed, &["100mbit", "25mbit"]) else { return };
    let _server = hosts.serve("b", "server", "root");
    hosts.enrol();
    for args in [["gen:1x192MiB", "b:null:"], ["b:gen:1x192MiB", "null:"]] {
        let done = hosts.run(&[&["cp", "--json", "--paths", "all"], &args[..]].concat()).succeeded().done();
        let shares = shares(&done);
        assert!((70..=90).contains(&shares[0]) && (10..=30).contains(&shares[1]), "{args:?}: {shares:?} {done}");
    }
}

/// Pushes a file over two cables and cuts one of them on the way.
fn cut_on_the_way(cable: u32) -> Option<(u64, Value)> {
    let bed = Bed::new();
    let hosts = Hosts::new(&bed, &["60mbit"; 2])?;
    let _server = hosts.serve("b", "server", "root");
    hosts.enrol();
    bed.write("file", &noise(96 << 20, 3));
    let mut push = hosts.command(&["cp", "--json", "--progress", "none", "--paths", "all", "file", "b:there"]);
    let push = push.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    until("chunks that arrived", || journal_bytes(&bed.path("root")) > 3 * 64);
    hosts.cut(cable);
    let done = bed.wait(push).succeeded().done();
    assert!(same(&bed, "file", "root/there"), "{done}");
    Some((done["attempts"].as_u64().unwrap(), done))
}

#[test]
fn a_cable_that_is_cut_costs_its_lanes_and_not_the_job() {
    let Some((attempts, done)) = cut_on_the_way(2) else { return };
    assert_eq!(attempts, 1, "{done}");
    assert!(done["paths"][1]["failure"].is_string(), "{done}");
}

#[test]
fn control_moves_to_the_path_that_is_left() {
    let Some((attempts, done)) = cut_on_the_way(1) else { return };
    assert_eq!(attempts, 2, "{done}");
    assert!(done["paths"].as_array().unwrap().iter().any(|path| path["local"] == "10.201.2.1"), "{done}");
}

#[test]
fn an_address_that_is_somebody_elses_here_gets_no_data() {
    let bed = Bed::new();
    let Some(hosts) = Hosts::new(&bed, &["60mbit"]) else { return };
    // The second cable of `a` ends at a stranger with the address that `b` has on a cable of its own.
    hosts.add("c");
    hosts.cable(2, "60mbit", ("a", 1), ("c", 2));
    let b = hosts.name("b");
    ip(&["-n", &b, "link", "add", "w2", "type", "veth", "peer", "name", "w3"]);
    ip(&["-n", &b, "addr", "add", "10.201.2.2/24", "dev", "w2"]);
    ip(&["-n", &b, "link", "set", "w2", "up"]);
    ip(&["-n", &b, "link", "set", "w3", "up"]);
    let _server = hosts.serve("b", "server", "root");
    let _stranger = hosts.serve("c", "stranger", "strange");
    hosts.enrol();
    bed.write("file", &noise(24 << 20, 4));
    let done = hosts.run(&["cp", "--json", "--paths", "all", "file", "b:there"]).succeeded().done();
    assert!(same(&bed, "file", "root/there"));
    let second = &done["paths"][1];
    assert_eq!((&second["bytes"], &second["local"]), (&0.into(), &Value::Null), "{done}");
    assert!(second["failure"].as_str().unwrap().contains("another endpoint answers there"), "{done}");
    assert_eq!(std::fs::read_dir(bed.path("strange")).unwrap().count(), 0);
}

#[test]
fn a_second_cable_is_tried_and_kept_where_nobody_asked_and_one_cable_is_left_alone() {
    let bed = Bed::new();
    let Some(hosts) = Hosts::new(&bed, &["40mbit"; 2]) else { return };
    let _server = hosts.serve("b", "server", "root");
    hosts.enrol();
    let done = hosts.run(&["cp", "--json", "gen:1x72MiB", "b:null:"]).succeeded().done();
    assert!(done["notes"].to_string().contains("was added while running: from "), "{done}");
    assert!(shares(&done)[1] >= 10, "{done}");
    let done = hosts.run(&["cp", "--json", "--paths", "1", "gen:1x24MiB", "b:null:"]).succeeded().done();
    assert_eq!(shares(&done), [100], "{done}");
}

#[test]
fn doctor_prints_the_lines_without_which_a_second_card_stays_idle() {
    let bed = Bed::new();
    let Some(hosts) = Hosts::new(&bed, &["60mbit"; 2]) else { return };
    let a = hosts.name("a");
    let said = |ran: Ran| format!("{}{}", String::from_utf8_lossy(&ran.stdout), ran.stderr);
    // Both cards in one net: whatever is sent leaves by the first.
    ip(&["-n", &a, "addr", "flush", "dev", "w2"]);
    ip(&["-n", &a, "addr", "add", "10.201.1.11/24", "dev", "w2"]);
    let before = said(hosts.run(&["doctor", "--all"]));
    assert!(before.contains("packets from 10.201.1.11 to its own net leave by w1"), "{before}");
    let rule = before.split("; ").find_map(|part| part.split("ip rule add ").nth(1)).expect(&before).trim();
    let route = before.split("; ").find_map(|part| part.strip_prefix("ip route add 10.201.1.0/24 ")).expect(&before);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let add = |kind: &str, line: &str| {
        let words = words(line);
        let line: Vec<&str> = words.iter().map(String::as_str).collect();
        ip(&[&["-n", &a, kind, "add"], &line[..]].concat());
    };
    add("rule", rule);
    add("route", &format!("10.201.1.0/24 {route}"));
    let after = said(hosts.run(&["doctor", "--all"]));
    assert!(!after.contains("to its own net leave by"), "{after}");
}

#[test]
fn paths_that_make_no_sense_are_refused_with_those_that_do() {
    let bed = Bed::new();
    let _server = bed.serve(&[]);
    bed.enrol();
    bed.write("file", b"content");
    for (paths, to, said) in [
        ("192.0.2.9=192.0.2.1", "lab:x", "192.0.2.9 is not an address of this host"),
        ("nonesuch=192.0.2.1", "lab:x", "this host has no interface and no address nonesuch"),
        (
            "all",
            "someone@nowhere.invalid:x",
            "--paths needs an endpoint, and someone@nowhere.invalid is reached over ssh",
        ),
        ("17", "lab:x", "17 is no number of paths"),
        ("garbage", "lab:x", "is no path: give auto, all, a number"),
    ] {
        let ran = bed.run(&["cp", "--paths", paths, "file", to]);
        assert_eq!(ran.code, Some(2), "{paths}: {}", ran.stderr);
        assert!(ran.stderr.contains(said), "{paths}: {}", ran.stderr);
    }
    // One host, one path: whatever is asked for, the copy is made.
    bed.write("larger", &[7; 400_000]);
    let args = ["cp", "--json", "--bwlimit", "400K", "--paths", "all", "larger", "lab:x"];
    let done = bed.run(&args).succeeded().done();
    assert_eq!(done["paths"].as_array().unwrap().len(), 1, "{done}");
    assert!(done["notes"].to_string().contains("all paths were asked for, and there is one"), "{done}");
}
