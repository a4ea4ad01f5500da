//! What limited a transfer, by its own report: eight bottlenecks are put in the way one after the other, each about ten
//! times as strong as anything else on the path, and the report names each one.
//!
//! Judged by names, never by times. What this host cannot inject (slow storage without FUSE, networks without root) is
//! left out, and says so. That other programs took the processors is believed only where the kernel's accounts show it, and of
//! at most two of the eight: on a host that is as busy as that this test says nothing, and fails.

use crate::bed::{Bed, Ends, Server, behind, is_root, noise, program, slow_storage};
use model::progress::Stage;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

const TRIES: usize = 3;
/// Bottlenecks that may go unjudged.
const UNJUDGED_MAX: usize = 2;
/// Of the host's processors: where more than this stood idle, nobody was starved of them.
const IDLE_SHARE_MAX: f64 = 0.25;

/// What was named instead of what was injected.
#[derive(Default)]
struct Judged {
    wrong: Vec<String>,
    unjudged: Vec<String>,
}

/// Idle and all time of this host's processors since it started, from the kernel's accounts and not from the program's.
fn processor_ticks() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let fields = text.lines().next().unwrap().split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap()).collect();
    (ticks[3] + ticks[4], ticks.iter().sum())
}

/// What a report says of one copy.
#[derive(PartialEq, Debug)]
enum Ruling {
    Named,
    Wrong(String),
    /// The host was busy with something else, and the report says so.
    Starved,
}

impl Ruling {
    fn of(found: &Value, stages: &[&str], idle_share: f64) -> Ruling {
        if stages.contains(&found["stage"].as_str().unwrap()) {
            let is_whole = found["share"].as_f64().unwrap() > 0.0 && found["sentence"].is_string();
            return if is_whole { Ruling::Named } else { Ruling::Wrong(format!("{found}")) };
        }
        let is_said = found["advice"].as_str().is_some_and(|advice| advice.contains("what else runs there"));
        match is_said && idle_share <= IDLE_SHARE_MAX {
            true => Ruling::Starved,
            false => Ruling::Wrong(format!("{:.0} % of the processors idle: {found}", idle_share * 100.0)),
        }
    }
}

impl Judged {
    /// Runs a copy until its report names one of `stages`, or something that is not this host's other work.
    fn expect(&mut self, injected: &str, stages: &[&str], copy: &mut dyn FnMut(usize) -> Value) {
        for attempt in 0..TRIES {
            let (idle_before, all_before) = processor_ticks();
            let done = copy(attempt);
            let (idle, all) = processor_ticks();
            let idle_share = (idle - idle_before) as f64 / (all - all_before).max(1) as f64;
            match Ruling::of(&done["bottleneck"], stages, idle_share) {
                Ruling::Named => return,
                Ruling::Wrong(why) => return self.wrong.push(format!("{injected}: {why}")),
                Ruling::Starved => {}
            }
        }
        self.unjudged.push(injected.to_owned());
    }
}

/// An endpoint on slow storage. Fields end in this order.
struct SlowEndpoint {
    _server: Server,
    _storage: Ends,
    bed: Bed,
}

impl SlowEndpoint {
    fn new(profile: &[&str]) -> SlowEndpoint {
        let bed = Bed::new();
        let storage = slow_storage(&bed, "root", profile);
        let server = bed.serve(&[]);
        bed.enrol();
        SlowEndpoint { _server: server, _storage: storage, bed }
    }
}

fn copied(bed: &Bed, args: &[&str]) -> Value {
    bed.run(&[&["cp", "--json"], args].concat()).succeeded().done()
}

fn slow_read_and_little_memory(judged: &mut Judged) {
    let (bed, _server) = Bed::with_endpoint();
    let _storage = slow_storage(&bed, "slow", &["--read-latency", "40ms"]);
    bed.write("slow-backing/f", &noise(12 << 20, 1));
    judged.expect("slow read", &["read"], &mut |_| copied(&bed, &["slow/f", "lab:null:"]));
    // Storage that answers late could serve eight lanes at once; there is memory for one.
    let few = ["--streams", "8", "--memory", "1MiB", "--engine", "pread", "slow/f", "lab:null:"];
    judged.expect("memory permits", &["memory"], &mut |_| copied(&bed, &few));
}

fn slow_write(judged: &mut Judged) {
    let endpoint = SlowEndpoint::new(&["--write-latency", "40ms"]);
    endpoint.bed.write("f", &noise(12 << 20, 2));
    judged.expect("slow write", &["write"], &mut |n| {
        copied(&endpoint.bed, &["--fsync", "never", "f", &format!("lab:write{n}")])
    });
}

fn slow_create(judged: &mut Judged) {
    let endpoint = SlowEndpoint::new(&["--create-latency", "40ms"]);
    for file in 0..30 {
        endpoint.bed.write(&format!("t/{file}"), b"small");
    }
    // Storage that is slow at names is slow at both: making a file, and giving it its final name.
    judged.expect("slow create", &["create", "publish"], &mut |n| {
        copied(&endpoint.bed, &["--fsync", "never", "t/", &format!("lab:create{n}/")])
    });
}

fn stolen_processors(judged: &mut Judged) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let processor: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    let (bed, _server) = Bed::with_endpoint();
    let burn = ["60", "taskset", "-c", &processor, "sh", "-c", "while :; do :; done"];
    let spawn = |_| Ends(Command::new("timeout").args(burn).stdin(Stdio::null()).spawn().unwrap());
    let _burners: Vec<_> = (0..3).map(spawn).collect();
    judged.expect("processors stolen", &["cpu-sender"], &mut |_| {
        let copy = bed.command("client", &["cp", "--json", "gen:1x192MiB", "lab:null:"]);
        bed.finish(behind(&["taskset", "-c", &processor, "nice", "-n", "5"], &copy)).succeeded().done()
    });
}

fn slow_digest(judged: &mut Judged) {
    let bed = Bed::new();
    judged.expect("slow digest", &["digest"], &mut |_| {
        let copy =
            bed.command("client", &["cp", "--json", "--digest", "blake3", "--streams", "1", "gen:1x2GiB", "null:"]);
        // Ahead of whatever else this host does, where that may be asked for.
        let ahead: &[&str] = if is_root() { &["chrt", "--rr", "1"] } else { &["env"] };
        bed.finish(behind(ahead, &copy)).succeeded().done()
    });
}

/// Within a laboratory, at its site `a`: an endpoint at `b`, `tune`, and a copy to it.
const AT_SITE_A: &str = r#"
program=$1 lab=$2 server=$3 tune=$4; shift 4
export THALWEG_LAB=$lab
HOME=$server XDG_CONFIG_HOME=$server/config XDG_STATE_HOME=$server/state "$program" lab exec --lab "$lab" b -- \
    "$program" serve --listen 0.0.0.0:7740 --advertise b:7740 --root root --ticket-file ticket >ready 2>log &
pid=$!
trap 'kill $pid 2>/dev/null; wait $pid 2>/dev/null' EXIT
for i in $(seq 600); do grep -q ready ready && break; sleep 0.05; done
"$program" endpoint add lab --ticket-file ticket --replace >/dev/null 2>&1
sh -c "$tune"
"$program" cp --json "$@"
"#;

fn over_a_link(link: &str, tune: &str, args: &[&str]) -> Value {
    let bed = Bed::new();
    let name = format!("attr{}", std::process::id());
    let scenario = format!(
        "name = '{name}'\nhost-settings = 'stock'\ncongestion-control = 'cubic'\n[site.a]\n[site.b]\n\
         [link.wan]\nbetween = ['a', 'b']\n{link}\n"
    );
    bed.write("link.toml", scenario.as_bytes());
    let (program, server) = (program(), bed.path("server"));
    let mut run = bed.command("client", &["lab", "run", "link.toml", "--", "sh", "-c", AT_SITE_A, "sh"]);
    run.arg(program).arg(name).arg(server).arg(tune).args(args);
    bed.finish(run).succeeded().done()
}

fn thin_link(judged: &mut Judged) {
    let link = "rtt = '10ms'\nrate = '200Mbit'";
    judged.expect("thin link", &["network"], &mut |_| {
        over_a_link(link, ":", &["--streams", "2", "gen:1x40MiB", "lab:null:"])
    });
}

fn long_link_with_small_buffers(judged: &mut Judged) {
    let small = "echo 4096 65536 262144 >/proc/sys/net/ipv4/tcp_wmem";
    judged.expect("long link with small buffers", &["buffers"], &mut |_| {
        over_a_link("rtt = '100ms'\nrate = '1Gbit'", small, &["--streams", "1", "gen:1x5MiB", "lab:null:"])
    });
}

#[test]
fn each_of_eight_injected_bottlenecks_is_named_by_the_report() {
    let mut judged = Judged::default();
    slow_digest(&mut judged);
    stolen_processors(&mut judged);
    if needs::fuse() {
        slow_read_and_little_memory(&mut judged);
        slow_write(&mut judged);
        slow_create(&mut judged);
    }
    if needs::root() {
        thin_link(&mut judged);
        long_link_with_small_buffers(&mut judged);
    }
    assert!(judged.wrong.is_empty(), "{}", judged.wrong.join("\n"));
    let unjudged = &judged.unjudged;
    assert!(unjudged.len() <= UNJUDGED_MAX, "this host is too busy to judge {}", unjudged.join(", "));
}

#[test]
fn blaming_other_programs_on_an_idle_host_is_wrong_and_on_a_busy_one_no_answer() {
    let blame =
        serde_json::json!({"stage": "cpu-sender", "share": 0.9, "sentence": "s", "advice": "see what else runs there"});
    assert!(matches!(Ruling::of(&blame, &["read"], 0.9), Ruling::Wrong(_)));
    assert_eq!(Ruling::of(&blame, &["read"], 0.05), Ruling::Starved);
    assert_eq!(Ruling::of(&blame, &["cpu-sender"], 0.9), Ruling::Named);
    let silent = serde_json::json!({"stage": "write", "share": 0.9, "sentence": "s", "advice": null});
    assert!(matches!(Ruling::of(&silent, &["read"], 0.05), Ruling::Wrong(_)));
}

#[test]
fn every_name_of_a_limit_is_documented() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md")).unwrap();
    let limits = text.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = limits.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let listed: BTreeSet<_> = rows.flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`'))).collect();
    let known = Stage::ALL.into_iter().map(Stage::name).chain(plan::VERDICTS).collect();
    assert_eq!(listed, known);
}
