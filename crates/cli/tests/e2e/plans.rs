//! Plans from models: answers as a program reads them, goals, buffers, fits, and what is wrong with a model. Plans from calibrations:
//! copies that follow them, and what dry runs say.

use crate::bed::{Bed, Ran};
use serde_json::Value;
use std::process::{Command, Stdio};

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models");

fn model(name: &str) -> String {
    format!("{MODELS}/{name}.json")
}

fn answer(ran: Ran) -> Value {
    serde_json::from_slice(&ran.stdout).expect("one JSON object")
}

#[test]
fn a_plan_names_rate_settings_limit_and_what_a_change_would_bring() {
    let bed = Bed::new();
    let graph = model("s1-100mb");
    let ran =
        bed.run(&["plan", "--graph", &graph, "--what-if", "network=x2", "--what-if", "application=3GB", "--json"]);
    let plan = answer(ran.succeeded());
    assert_eq!(plan["knobs"], serde_json::json!({"n": 3, "nics": 2, "t": 3}));
    assert!((plan["rate_bytes_per_second"].as_f64().unwrap() / 1.8e9 - 1.0).abs() < 1e-6);
    assert_eq!((plan["bottleneck"].as_str(), plan["is_proved"].as_bool()), (Some("application"), Some(true)));
    assert!((plan["hosts"][0]["cpu_percent"].as_f64().unwrap() - 990.0).abs() < 0.01);
    assert_eq!(plan["prices"][0]["resource"], "application");
    assert_eq!(plan["what_if"][0]["change"], "network=x2");
    assert!(plan["what_if"][1]["best_bytes_per_second"].as_f64().unwrap() > 1.85e9);
    let fixed = bed.run(&["plan", "--graph", &graph, "--fix", "nics=1", "--fix", "n=2", "--json"]);
    assert!((answer(fixed.succeeded())["rate_bytes_per_second"].as_f64().unwrap() / 1.2e9 - 1.0).abs() < 1e-6);
}

/// Behind compression to a half a network carries twice what it can, and so does a change of it.
#[test]
fn what_ifs_about_a_network_behind_compression_count_twice() {
    let bed = Bed::new();
    let edge = |name: &str, from: &str, to: &str, value: &str| {
        format!(r#"{{"name":"{name}","from":"{from}","to":"{to}","capacity":{{"form":"const","value":{value}}}}}"#)
    };
    let edges = [edge("pack", "Src", "p", "9e9"), edge("network", "p", "u", "1e9"), edge("unpack", "u", "Dst", "9e9")];
    let nodes = r#"{"name":"p","gain":0.5},{"name":"u","gain":2}"#;
    bed.write("model.json", format!(r#"{{"v":1,"nodes":[{nodes}],"edges":[{}]}}"#, edges.join(",")).as_bytes());
    let changes = ["--what-if", "network=x2", "--what-if", "network=x0.5"];
    let plan = answer(bed.run(&[&["plan", "--graph", "model.json", "--json"][..], &changes].concat()).succeeded());
    let best = |answer: &Value| (answer["best_bytes_per_second"].as_f64().unwrap() / 1e6).round();
    let found = [best(&plan), best(&plan["what_if"][0]), best(&plan["what_if"][1])];
    assert_eq!(found, [2000.0, 4000.0, 1000.0], "{plan}");
}

#[test]
fn a_goal_out_of_reach_ends_with_46_and_names_what_limits() {
    let bed = Bed::new();
    let graph = model("s1-10mb");
    let within = answer(bed.run(&["plan", "--graph", &graph, "--goal", "9.6Gbit", "--json"]).succeeded());
    assert_eq!(within["knobs"], serde_json::json!({"n": 4, "nics": 1, "t": 3}));
    let ran = bed.run(&["plan", "--graph", &graph, "--goal", "2GB"]);
    assert_eq!(ran.code, Some(46));
    assert!(ran.stderr.contains("cannot be reached") && ran.stderr.contains("limited by disks"), "{}", ran.stderr);
}

#[test]
fn a_model_that_is_wrong_is_refused_with_its_place_and_a_cure() {
    let bed = Bed::new();
    let edge = |name: &str, from: &str, to: &str| format!(r#"{{"name":"{name}","from":"{from}","to":"{to}"}}"#);
    let looped = [edge("a", "Src", "x"), edge("b", "x", "y"), edge("c", "y", "x"), edge("d", "y", "Dst")].join(",");
    for (edges, said) in [
        (looped, "the graph has a loop"),
        (edge("a", "Src", "Dst"), "nothing in the model limits the rate"),
        (edge("a", "Src", "Dst").replace('}', r#","capacity":{"form":"const","value":0}}"#), "value is 0"),
        (edge("a", "Src", "Dst").replace("from", "form"), "unknown field `form`"),
    ] {
        bed.write("model.json", format!(r#"{{"v":1,"edges":[{edges}]}}"#).as_bytes());
        let ran = bed.run(&["plan", "--graph", "model.json"]);
        assert_eq!(ran.code, Some(2), "{edges}");
        assert!(ran.stderr.contains(said) && ran.stderr.contains("\nhint: "), "{}", ran.stderr);
    }
}

#[test]
fn questions_that_a_model_does_not_know_are_refused_with_what_it_has() {
    let bed = Bed::new();
    let graph = model("s1-100mb");
    for (flags, said) in [
        (["--what-if", "nowhere=x2"], "the model has no such edge; it has "),
        (["--fix", "n=2,n=3"], "--fix names n twice"),
        (["--goal", "10"], "is not a rate such as 10Gbit"),
    ] {
        let ran = bed.run(&[&["plan", "--graph", graph.as_str()][..], &flags].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(said), "{said}: {}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
    }
}

#[test]
fn buffers_and_fits_answer_in_numbers() {
    let bed = Bed::new();
    let buffer = ["plan", "buffer", "--capacity", "4TB", "--in", "10GB", "--out", "4GB", "--volume", "10TB", "--json"];
    let times = answer(bed.run(&buffer).succeeded());
    for (key, seconds) in [("fill_seconds", 666.67), ("received_seconds", 1500.0), ("durable_seconds", 2500.0)] {
        assert!((times[key].as_f64().unwrap() - seconds).abs() < 0.01, "{times}");
    }
    bed.write("streams.csv", b"n,bytes_per_second\n1,542307692\n2,503571428\n4,440625000\n8,352500000\n");
    let fitted = answer(bed.run(&["plan", "fit", "F1", "streams.csv", "--json"]).succeeded());
    assert!((fitted["beta"].as_f64().unwrap() / 7.05e9 - 1.0).abs() < 0.01, "{fitted}");
    assert!((fitted["alpha"].as_f64().unwrap() - 12.0).abs() < 0.1, "{fitted}");
    bed.write("wrong.csv", b"1,fast\n");
    let ran = bed.run(&["plan", "fit", "F2", "wrong.csv"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("wrong.csv:1"), "{}", ran.stderr);
}

/// Keeps every processor busy until it is dropped.
struct Busy(Vec<std::process::Child>);

impl Busy {
    fn new() -> Busy {
        let each = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |_| Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        Busy((0..each).map(spin).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn a_busy_host_measures_nothing() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("there")).unwrap();
    let _busy = Busy::new();
    let ran = bed.run(&["calibrate", "there"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.stderr.contains("other programs used") && ran.stderr.contains("--despite-load"), "{}", ran.stderr);
    assert_eq!(std::fs::read_dir(bed.path("there")).unwrap().count(), 0);
}

/// The whole way: measure an endpoint, plan, copy by the plan, and see what came of it.
#[test]
fn a_calibrated_endpoint_gives_plans_that_copies_follow_and_are_held_against() {
    let (bed, _server) = Bed::with_endpoint();
    for name in ["a", "b", "c"] {
        bed.write(&format!("src/{name}"), &crate::bed::noise(3 << 20, 7));
    }
    let without = bed.run(&["plan", "src/", "lab:dst/"]);
    assert!(without.code == Some(2) && without.stderr.contains("`thalweg calibrate lab`"), "{}", without.stderr);
    let kept = answer(bed.run(&["calibrate", "lab", "--source", "src", "--despite-load", "--json"]).succeeded());
    let parts: Vec<_> = kept["measured"].as_array().unwrap().iter().map(|m| m["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["engine", "network", "write", "metadata", "read"]);
    assert!(kept["measured"][1]["runs"].as_array().unwrap().len() >= 4, "{kept}");
    // The copy that nobody told how many streams to use is marked, whether it changed them or not.
    let is_marked =
        |place: usize| kept["measured"][place]["runs"].as_array().unwrap().iter().any(|run| run["is_free"] == true);
    assert!(is_marked(1) && is_marked(2), "{kept}");

    let ran = bed.run(&["plan", "src/", "lab:dst/", "--json"]).succeeded();
    bed.write("plan.json", &ran.stdout);
    let plan = answer(ran);
    let rate = |key: &str| plan["interval"][key].as_f64().unwrap();
    assert!(0.0 < rate("p5") && rate("p5") <= rate("p50") && rate("p50") <= rate("p95"), "{plan}");
    assert!(
        plan["streams"].as_u64().is_some_and(|n| (1..=64).contains(&n)) && plan["bottleneck"].is_string(),
        "{plan}"
    );

    let names: Vec<_> = plan["settings"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect();
    assert!(names[0] == "streams" && names.contains(&"engine") && names.contains(&"compress"), "{plan}");
    assert!(plan["settings"].as_array().unwrap().iter().all(|s| !s["reason"].as_str().unwrap().is_empty()), "{plan}");

    let noted = |done: &Value, plan: &str| {
        let notes = done["notes"].as_array().unwrap();
        notes.iter().any(|note| note.as_str().unwrap().starts_with(&format!("plan {plan}: ")))
    };
    let by_file = bed.run(&["cp", "--json", "--plan", "plan.json", "src/", "lab:one/"]).succeeded().done();
    assert_eq!(by_file["streams"], plan["streams"]);
    assert!(noted(&by_file, "plan.json") && by_file["notes"].to_string().contains("plan: streams "), "{by_file}");
    let automatic = bed.run(&["cp", "--json", "--plan", "auto", "src/", "lab:two/"]).succeeded().done();
    assert!(noted(&automatic, "auto"), "{automatic}");
    let unknown = bed.run(&["cp", "--json", "--plan", "auto", "src/", "here/"]).succeeded().done();
    assert!(unknown["notes"].to_string().contains("were not calibrated"), "{unknown}");

    let report = answer(bed.run(&["plan", "report", "--json"]).succeeded());
    assert_eq!(report["outcomes"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["outcomes"][0]["bytes"], 9 << 20);
    bed.write("wrong.json", b"{}");
    let wrong = bed.run(&["cp", "--plan", "wrong.json", "src/", "lab:three/"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("holds no plan"), "{}", wrong.stderr);
}

/// A calibration as it is kept: network and storage of 1 GB/s with one stream and with two.
fn keep_calibration(bed: &Bed, of: &str, source: Option<&str>, start_seconds: f64) {
    let run = |streams: u32| {
        serde_json::json!({"streams": streams, "files": 1, "file_bytes": 1_000_000_000u64, "seconds": 1.0 + start_seconds,
            "cpu_seconds": 0.0})
    };
    let of_part = |part: &str| serde_json::json!({"part": part, "runs": [run(1), run(2)]});
    let reads = source.map(|_| of_part("read"));
    let measured: Vec<_> = ["network", "write"].map(of_part).into_iter().chain(reads).collect();
    let kept = serde_json::json!({"v": 1, "of": of, "source": source, "start_seconds": [start_seconds], "sizes": [],
        "circumstances": {"host": "elsewhere", "kernel": "1", "processors": 1, "program": "0", "taken": 0, "profile": "quick"},
        "measured": measured, "small_files": null, "notes": []});
    let name = of.replace('%', "%25").replace(':', "%3A").replace('/', "%2F").replace('.', "%2E");
    bed.write(&format!("client/state_home/thalweg/calibrations/{name}.json"), kept.to_string().as_bytes());
}

fn notes(ran: Ran) -> String {
    ran.succeeded().done()["notes"].to_string()
}

#[test]
fn a_goal_that_the_start_of_a_session_forbids_is_out_of_reach() {
    let (bed, _server) = Bed::with_endpoint();
    keep_calibration(&bed, "lab", None, 0.9);
    let plan = ["plan", "gen:1x100MB", "lab:dst/", "--json"];
    let expected = answer(bed.run(&plan).succeeded());
    let rate = |plan: &Value, key: &str| plan[key].as_f64().unwrap();
    assert!((rate(&expected, "rate_bytes_per_second") / 100e6 - 1.0).abs() < 0.1, "{expected}");
    let beyond = bed.run(&[&plan[..], &["--goal", "500MB"]].concat());
    assert!(beyond.code == Some(46) && beyond.stderr.contains("cannot be reached"), "{}", beyond.stderr);
    let within = answer(bed.run(&[&plan[..], &["--goal", "90MB"]].concat()).succeeded());
    assert_eq!(within["knobs"], serde_json::json!({"streams": 1}));
    let changes = ["--what-if", "network=x10", "--what-if", "write=100MB"];
    let ran = bed.run(&[&plan[..], &changes].concat()).succeeded();
    assert!(ran.stderr.contains("storage is assumed to keep up"), "{}", ran.stderr);
    let changed = answer(ran);
    let best = |place: usize| rate(&changed["what_if"][place], "best_bytes_per_second");
    assert!((best(0) / 109.9e6 - 1.0).abs() < 0.02 && (best(1) / 52.6e6 - 1.0).abs() < 0.1, "{changed}");
}

#[test]
fn copies_for_which_no_plan_can_be_made_go_on_and_say_why() {
    let (bed, _server) = Bed::with_endpoint();
    keep_calibration(&bed, "lab", None, 0.0);
    std::fs::create_dir(bed.path("empty")).unwrap();
    bed.write("src/a", b"a");
    let cp = |from: &str, to: &str| bed.run(&["cp", "--json", "--plan", "auto", from, to]);
    assert!(notes(cp("empty/", "lab:a/")).contains("holds no bytes to plan for"));
    let deep = format!("{}/", ["a".repeat(120), "b".repeat(120)].join("/"));
    assert!(notes(cp("src/", &deep)).contains("were not calibrated"));
    bed.write("client/state_home/thalweg/calibrations/lab.json", b"{}");
    assert!(notes(cp("src/", "lab:b/")).contains("it is no calibration"));
}

#[test]
fn a_dry_run_to_a_calibrated_destination_says_how_long_the_copy_would_take() {
    let (bed, _server) = Bed::with_endpoint();
    keep_calibration(&bed, "lab", None, 0.9);
    bed.write("src/a", &[7; 1 << 20]);
    bed.write("src/b", &[7; 1 << 20]);
    // Two megabytes are there as soon as the session is: that takes 0.9 s.
    let seconds = |text: &str| -> f64 {
        let after = text.split("expected: ").nth(1).unwrap_or_else(|| panic!("{text}"));
        after.split(" s at ").next().unwrap().parse().unwrap()
    };
    for flags in [&["-n"][..], &["-n", "--plan", "auto"]] {
        let ran = bed.run(&[&["cp"], flags, &["src/", "lab:x/"]].concat()).succeeded();
        assert!((0.8..1.0).contains(&seconds(&ran.stderr)), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("9 out of 10 copies between") && ran.stderr.contains("may be stale"),
            "{}",
            ran.stderr
        );
        let told = notes(bed.run(&[&["cp", "--json"], flags, &["src/", "lab:x/"]].concat()));
        assert!((0.8..1.0).contains(&seconds(&told)), "{told}");
    }
    assert!(!bed.path("root/x").exists());
    // Nothing is told where nothing is known of it, where nothing would be copied, of real copies, and to who wants no words.
    for words in [&["-n", "src/", "here/"][..], &["-n", "--bwlimit", "1M", "src/", "lab:x/"], &["src/", "lab:x/"]] {
        let ran = bed.run(&[&["cp"], words].concat()).succeeded();
        assert!(!ran.stderr.contains("expected: "), "{words:?}: {}", ran.stderr);
    }
    for words in [["-n", "src/", "lab:x/"], ["-nq", "src/", "lab:y/"]] {
        let ran = bed.run(&[&["cp"], &words[..]].concat()).succeeded();
        assert!(!ran.stderr.contains("expected: "), "{words:?}: {}", ran.stderr);
    }
}

#[test]
fn a_calibration_is_held_against_what_it_was_measured_on() {
    let (bed, _server) = Bed::with_endpoint();
    bed.write("src/a", &[7; 1 << 20]);
    keep_calibration(&bed, "lab:fast", Some("/proc"), 0.0);
    let slow = bed.run(&["plan", "src/", "lab:slow/"]);
    assert!(slow.code == Some(2) && slow.stderr.contains("lab was not calibrated"), "{}", slow.stderr);
    let fast = bed.run(&["plan", "src/", "lab:fast/x/"]).succeeded();
    assert!(fast.stderr.contains("/proc, which is different storage"), "{}", fast.stderr);
    let told = notes(bed.run(&["cp", "--json", "--plan", "auto", "src/", "lab:fast/x/"]));
    assert!(told.contains("may be stale: it was taken on host elsewhere") && told.contains("/proc"), "{told}");
}

#[test]
fn copies_that_were_not_free_to_follow_their_plan_say_nothing_of_it() {
    let (bed, _server) = Bed::with_endpoint();
    keep_calibration(&bed, "lab", None, 0.0);
    bed.write("src/a", &[7; 1 << 20]);
    bed.write("src/b", &[7; 1 << 20]);
    let planned = bed.run(&["plan", "src/", "lab:x/", "--json"]).succeeded();
    bed.write("plan.json", &planned.stdout);
    let outcomes = || answer(bed.run(&["plan", "report", "--json"]).succeeded())["outcomes"].as_array().unwrap().len();
    let cp =
        |more: &[&str], to: &str| bed.run(&[&["cp", "--plan", "plan.json"], more, &["src/", to]].concat()).succeeded();
    cp(&["--bwlimit", "100M"], "lab:one/");
    cp(&["--exclude", "b"], "lab:two/");
    let told = |to: &str| notes(bed.run(&["cp", "--json", "--plan", "plan.json", "src/", to]));
    let elsewhere = told("here/");
    assert!(elsewhere.contains("it was made for copies to lab, not to here"), "{elsewhere}");
    assert_eq!(outcomes(), 0);
    cp(&[], "lab:three/");
    assert_eq!(outcomes(), 1);
    bed.write("src/c", &[7; 4 << 20]);
    let grown = told("lab:four/");
    assert!(grown.contains("it was made for 2 files, 2.00 MiB, and 3 files, 6.00 MiB were copied"), "{grown}");
    assert_eq!(outcomes(), 1);
}

#[test]
fn a_part_is_taken_from_what_another_tool_printed() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("there")).unwrap();
    bed.write("dd.txt", b"8388608 bytes (8.4 MB, 8.0 MiB) copied, 0.5 s, 16.8 MB/s\n");
    let imported = ["calibrate", "there", "--import", "write=dd.txt", "--despite-load", "--json"];
    let kept = answer(bed.run(&imported).succeeded());
    let write = kept["measured"].as_array().unwrap().iter().find(|m| m["part"] == "write").unwrap();
    assert_eq!((write["runs"].as_array().unwrap().len(), write["runs"][0]["seconds"].as_f64()), (1, Some(0.5)));
    assert!(kept["notes"].to_string().contains("taken from what dd printed"), "{kept}");
    let wrong = bed.run(&["calibrate", "there", "--import", "network=dd.txt"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("dd measures storage"), "{}", wrong.stderr);
    let twice = bed.run(&["calibrate", "there", "--import", "write=dd.txt", "--import", "write=dd.txt"]);
    assert!(twice.code == Some(2) && twice.stderr.contains("--import names write twice"), "{}", twice.stderr);
    bed.write(
        "net.json",
        br#"{"start":{"test_start":{"num_streams":1}},"end":{"sum_received":{"bytes":1e9,"seconds":10}}}"#,
    );
    let near = bed.run(&["calibrate", "there", "--import", "network=net.json"]);
    assert!(near.code == Some(2) && near.stderr.contains("no network leads to a directory"), "{}", near.stderr);
}

#[test]
fn decisions_are_made_again_from_their_log_and_a_log_that_was_changed_is_told() {
    let (bed, _server) = Bed::with_endpoint();
    bed.run(&["cp", "--tuning-log", "tuning.log", "--bwlimit", "16M", "gen:16x4MiB", "lab:null:"]).succeeded();
    let replayed = answer(bed.run(&["plan", "replay", "tuning.log", "--json"]).succeeded());
    assert_eq!(
        (replayed["differing"].as_u64(), replayed["paths"].as_array().unwrap().len()),
        (Some(0), 1),
        "{replayed}"
    );
    let mut log: Value = serde_json::from_slice(&std::fs::read(bed.path("tuning.log")).unwrap()).unwrap();
    log["changes"] = serde_json::json!([{"at_us": 1, "from": 1, "to": 2, "why": "because"}]);
    bed.write("tuning.log", log.to_string().as_bytes());
    let ran = bed.run(&["plan", "replay", "tuning.log"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("decided differently"), "{:?}: {}", ran.code, ran.stderr);
    bed.write("tuning.log", b"no log");
    let wrong = bed.run(&["plan", "replay", "tuning.log"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("tuning.log:1"), "{}", wrong.stderr);
}
