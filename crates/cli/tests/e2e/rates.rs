//! Rates of an endpoint shared among its jobs: classes, contracts, and who may ask for what. The link is a laboratory's.

use crate::bed::{Bed, Ran, Server, program, until};
use crate::scrapes::{check_by_promtool, page_at};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LINK: &str = "mtu = 1500\n[site.a]\n[site.b]\n\
    [link.wan]\nbetween = ['a', 'b']\nrtt = '10ms'\nrate = '80Mbit'\nqueue = '1bdp'\n";
const LINK_RATE: f64 = 80e6 / 8.0;

/// Two sites: an endpoint at b, its clients at a.
struct Sites {
    bed: Bed,
    lab: String,
}

impl Sites {
    fn new(name: &str) -> (Sites, Server) {
        let bed = Bed::new();
        bed.write("scenario.toml", LINK.as_bytes());
        let lab = format!("{name}{}", std::process::id());
        bed.run(&["lab", "up", "scenario.toml", "--name", &lab]).succeeded();
        let sites = Sites { bed, lab };
        let serve = ["serve", "--listen", "10.101.2.1:7740", "--root", "root", "--ticket-file", "ticket"];
        let server = sites.bed.serve_with(sites.bed.command("server", &sites.at("b", &serve)));
        sites.run(&["endpoint", "add", "far", "--ticket-file", "ticket"]).succeeded();
        (sites, server)
    }

    fn at(&self, site: &str, args: &[&str]) -> Vec<String> {
        let program = program().display().to_string();
        let exec = ["lab", "exec", "--lab", &self.lab, site, "--", &program];
        exec.iter().chain(args).map(|word| (*word).to_owned()).collect()
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.bed.run(&self.at("a", args))
    }

    /// On the endpoint's host, beside it.
    #[track_caller]
    fn contract(&self, args: &[&str]) -> Ran {
        self.bed.finish(self.bed.command("server", &[&["contract"], args].concat()))
    }

    /// A copy whose progress is looked at.
    fn copy(&self, args: &[&str]) -> Copy {
        let words = self.at("a", &[&["cp", "--json"], args].concat());
        let mut command = self.bed.command("client", &words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen: Arc<Mutex<Vec<(Instant, u64)>>> = Arc::default();
        let told = seen.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["event"] == "progress" {
                    told.lock().unwrap().push((Instant::now(), event["bytes"]["sent"].as_u64().unwrap_or(0)));
                }
            }
        });
        Copy { child, seen }
    }
}

impl Drop for Sites {
    fn drop(&mut self) {
        self.bed.run(&["lab", "down", &self.lab]);
    }
}

struct Copy {
    child: Child,
    seen: Arc<Mutex<Vec<(Instant, u64)>>>,
}

impl Copy {
    /// Bytes a second over the last so many seconds.
    fn rate(&self, seconds: u64) -> Option<f64> {
        let seen = self.seen.lock().unwrap();
        let last = seen.last()?;
        let first = seen.iter().rev().find(|one| last.0 - one.0 >= Duration::from_secs(seconds))?;
        Some((last.1 - first.1) as f64 / (last.0 - first.0).as_secs_f64())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn high_gets_nine_tenths_of_the_link_beside_a_greedy_low_one_whichever_way_they_go() {
    if !needs::root() {
        return;
    }
    let (sites, _server) = Sites::new("q");
    for [of_low, of_high, to] in
        [["gen:1x4GiB", "gen:1x5GiB", "far:null:"], ["far:gen:1x4GiB", "far:gen:1x5GiB", "null:"]]
    {
        let low = sites.copy(&["--class", "low", "--streams", "8", of_low, to]);
        until("the low one to fill the link", || low.rate(1).is_some_and(|rate| rate > 0.8 * LINK_RATE));
        let high = sites.copy(&["--class", "high", "--streams", "2", of_high, to]);
        until("the high one to have it", || high.rate(3).is_some_and(|rate| rate > 0.85 * LINK_RATE));
        assert!(low.rate(2).unwrap() > 0.01 * LINK_RATE, "the low one starves");
        drop(high);
        until("the low one to have it back", || low.rate(1).is_some_and(|rate| rate > 0.8 * LINK_RATE));
    }
}

#[test]
fn a_contract_is_kept_changed_and_ended_while_copies_run() {
    if !needs::root() {
        return;
    }
    let (sites, server) = Sites::new("c");
    let copies = ["gen:1x4GiB", "gen:1x5GiB"].map(|source| sites.copy(&[source, "far:null:"]));
    let total = |seconds| copies.iter().map(|copy| copy.rate(seconds)).sum::<Option<f64>>();
    until("them to fill the link", || total(1).is_some_and(|rate| rate > 0.8 * LINK_RATE));
    for (rate, bytes) in [("16Mbit", 2e6), ("40Mbit", 5e6), ("8Mbit", 1e6)] {
        sites.contract(&["add", "all", "--direction", "in", "--rate", rate]).succeeded();
        until("the cap", || total(3).is_some_and(|rate| (rate / bytes - 1.0).abs() < 0.05));
    }
    let shares = sites.contract(&["shares", "--json"]).succeeded().events();
    assert!(shares.len() == 2 && shares.iter().all(|job| job["by"] == "the contract all"), "{shares:?}");
    until("them to have equal shares, being of one class and one user", || {
        let [one, other] = [0, 1].map(|at| copies[at].rate(6).unwrap_or(0.0));
        (one / other - 1.0).abs() < 0.15
    });
    let listed = sites.contract(&["ls"]).succeeded();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("direction in\trate 8Mbit"));
    sites.contract(&["rm", "all"]).succeeded();
    until("it to be lifted", || total(1).is_some_and(|rate| rate > 0.8 * LINK_RATE));
    drop(copies);
    server.stop();
}

#[test]
fn a_class_that_a_ticket_does_not_allow_is_refused_and_contracts_that_cannot_be_kept_too() {
    let (bed, server) = Bed::with_endpoint();
    let at_server = |args: &[&str]| bed.finish(bed.command("server", args));
    at_server(&["ticket", "new", "--class-max", "normal", "--ticket-file", "ticket-modest"]).succeeded();
    let modest = |args: &[&str]| bed.finish(bed.command("modest", args));
    modest(&["endpoint", "add", "lab", "--ticket-file", "ticket-modest"]).succeeded();
    bed.write("s/a", b"one");
    let refused = modest(&["cp", "--class", "high", "s/", "lab:d"]);
    assert_eq!(refused.code, Some(6), "{}", refused.stderr);
    assert!(refused.stderr.contains("may have class normal at most, and high was asked for"), "{}", refused.stderr);
    for class in ["normal", "low"] {
        modest(&["cp", "--class", class, "s/", &format!("lab:{class}")]).succeeded();
    }
    bed.run(&["cp", "--class", "high", "s/", "lab:high"]).succeeded();
    for (args, why) in [
        (&["add", "a", "--guarantee", "1Gbit"][..], "the link's rate is not known"),
        (&["add", "a"], "it says nothing"),
        (&["add", "a", "--rate", "NaN"], "NaN"),
        (&["add", "a", "--rate", "25:00,1M"], "25:00"),
        (&["add", "a", "--peer", "nobody", "--rate", "1M"], "neither an endpoint that you know nor an identity"),
        (&["rm", "a"], "there is no contract a"),
    ] {
        let refused = at_server(&[&["contract"], args].concat());
        assert!(refused.code != Some(0) && refused.stderr.contains(why), "{args:?}: {}", refused.stderr);
    }
    at_server(&["contract", "link", "1Gbit"]).succeeded();
    let beyond = at_server(&["contract", "add", "a", "--guarantee", "2Gbit"]);
    assert!(
        beyond.stderr.contains("the guarantees come to 2.00 Gbit/s, and the link carries 1.00 Gbit/s"),
        "{}",
        beyond.stderr
    );
    server.stop();
}

#[test]
fn a_job_that_was_handed_in_is_given_another_rate_while_it_runs() {
    let sites = Pair::new();
    let job = sites.bed.run(&["cp", "--detach", "--bwlimit", "1M", "sitea:gen:1x4GiB", "siteb:null:"]).succeeded();
    let id = String::from_utf8(job.stdout).unwrap().split_whitespace().last().unwrap().to_owned();
    let rate = || {
        let seen = sites.bed.run(&["job", "show", "--json", &id]).succeeded().events().pop().unwrap();
        assert_eq!((&seen["attempt"], &seen["status"]), (&1.into(), &"running".into()), "{seen}");
        seen["bytes_per_second"].as_f64().unwrap()
    };
    until("the job", || sites.bed.run(&["job", "show", "--json", &id]).succeeded().events()[0]["status"] == "running");
    until("its rate", || (rate() / (1 << 20) as f64 - 1.0).abs() < 0.1);
    sites.bed.run(&["job", "rate", &id, "80Mbit"]).succeeded();
    until("the other rate", || (rate() / 10e6 - 1.0).abs() < 0.1);
    for wrong in ["NaN", "-1M", "fast"] {
        assert_eq!(sites.bed.run(&["job", "rate", &id, wrong]).code, Some(2), "{wrong}");
    }
    sites.bed.run(&["job", "cancel", &id]).succeeded();
}

/// Two endpoints on loopback, which their client knows as `sitea` and `siteb`.
struct Pair {
    bed: Bed,
    _servers: [Server; 2],
}

impl Pair {
    fn new() -> Pair {
        let bed = Bed::new();
        let servers = ["sitea", "siteb"].map(|name| {
            let (root, ticket, socket) = (
                format!("root-{name}"),
                format!("ticket-{name}"),
                format!("unix:{}", bed.path(name).join("m").display()),
            );
            std::fs::create_dir_all(bed.path(&root)).unwrap();
            std::fs::create_dir_all(bed.path(name)).unwrap();
            let args = ["serve", "--listen", "127.0.0.1:0", "--root", &root, "--ticket-file", &ticket, "--name", name];
            bed.serve_with(bed.command(name, &[&args[..], &["--metrics", &socket]].concat()))
        });
        for name in ["sitea", "siteb"] {
            bed.run(&["endpoint", "add", name, "--ticket-file", &format!("ticket-{name}")]).succeeded();
        }
        Pair { bed, _servers: servers }
    }

    /// What Prometheus would read at an endpoint.
    fn metrics(&self, site: &str) -> String {
        page_at(&self.bed.path(site).join("m"))
    }
}

#[test]
fn what_two_endpoints_did_is_in_their_metrics_and_their_event_logs() {
    let sites = Pair::new();
    sites.bed.write("root-sitea/x/one", &vec![7; 3 << 20]);
    sites.bed.write("root-sitea/x/two", b"two");
    sites.bed.run(&["cp", "sitea:x/", "siteb:y/"]).succeeded();
    until("the count of what was sent", || {
        sites.metrics("sitea").contains("thalweg_files_total{direction=\"out\",result=\"ok\"} 2\n")
    });
    let received = sites.metrics("siteb");
    for row in [
        "thalweg_files_total{direction=\"in\",result=\"ok\"} 2",
        "thalweg_transfer_bytes_total{direction=\"in\"} 3145731",
        "thalweg_transfer_bytes_total{direction=\"out\"} 0",
        "thalweg_jobs_ended_total{direction=\"in\"} 1",
    ] {
        assert!(received.lines().any(|line| line == row), "{row} is not in\n{received}");
    }
    assert!(!received.contains("sitea") && !received.contains("one"), "{received}");
    check_by_promtool(&received);
    let logs = ["sitea", "siteb"].map(|site| format!("{site}/state_home/thalweg/events.jsonl"));
    let merged = sites.bed.run(&["log", "merge", &logs[0], &logs[1]]).succeeded();
    let names: Vec<_> = merged.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    let of_job: Vec<_> =
        names.iter().filter(|name| !name.contains("serve")).map(|name| &name["thalweg.".len()..]).collect();
    let expected = ["order.attempt.start", "job.receive.start", "job.receive.end", "order.attempt.end"];
    assert_eq!(of_job, expected, "{}", merged.stderr);
    let rates = sites.bed.run(&["log", "rate", "--json", &logs[0], &logs[1]]).succeeded().events();
    assert_eq!(
        (&rates[0]["jobs"], &rates[1]["jobs"], &rates[1]["bytes_per_second"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert!(rates[0]["bytes_per_second"].as_u64() > Some(1000), "{rates:?}");
}

#[test]
fn a_copy_waits_for_its_reservation_and_gives_it_back_whatever_becomes_of_it() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("s/a", b"one");
    let stub = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/reservation/stub");
    let copy = |fail: &str, source: &str| {
        let mut command = bed.command("client", &["cp", "--reserve", stub, source, "lab:d"]);
        let _ = std::fs::remove_file(bed.path("asked"));
        let ran = bed.finish({
            command.env("STUB_DIR", bed.path("")).env("STUB_FAIL", fail);
            command
        });
        (ran, std::fs::read_to_string(bed.path("asked")).unwrap_or_default())
    };
    let (ran, asked) = copy("", "s/");
    assert_eq!((ran.code, &asked[..]), (Some(0), "reserve\nstatus\nrelease\n"), "{}", ran.stderr);
    let (ran, asked) = copy("", "absent/");
    assert_eq!((ran.code, &asked[..]), (Some(3), "reserve\nstatus\nrelease\n"), "{}", ran.stderr);
    let (ran, asked) = copy("refuse", "s/");
    assert_eq!((ran.code, &asked[..]), (Some(6), "reserve\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the reservation was refused: no capacity"), "{}", ran.stderr);
    let (ran, _) = copy("release", "s/");
    assert!(ran.code == Some(1) && ran.stderr.contains("could not be released"), "{}", ran.stderr);
}
