//! Scripts that a shell reads, for every preset, and the figures in them.

use std::process::Command;
use std::time::Duration;

use super::*;
use crate::scenario::preset::PRESETS;
use crate::scenario::{Change, Event, Impairment};

fn file(scenario: &Scenario, name: &str) -> String {
    let files = scenario.emit();
    let found = files.into_iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no file {name}")).1
}

fn words(impairment: &Impairment) -> String {
    let limit = netem::limit_packets(impairment, 2 * impairment.delay, 9000);
    netem::arguments(impairment, impairment.bits_per_second, limit).join(" ")
}

#[test]
fn a_shell_reads_every_script_of_every_preset() {
    let dir = tempfile::tempdir().unwrap();
    for preset in PRESETS {
        for (name, content) in Scenario::preset(preset.name).unwrap().emit() {
            if !name.ends_with(".sh") {
                continue;
            }
            let path = dir.path().join(format!("{}-{name}", preset.name));
            std::fs::write(&path, content).unwrap();
            let output = Command::new("bash").arg("-n").arg(&path).output().unwrap();
            assert!(output.status.success(), "{path:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn netem_is_told_everything_so_that_a_change_leaves_nothing_behind() {
    let plain = "netem limit 1000 delay 0s loss random 0% duplicate 0% corrupt 0% rate 0bit 24";
    assert_eq!(words(&Impairment::default()), plain);
    let continent = Scenario::preset("continent").unwrap().links[0].directions[0];
    // 1.5 x 10 Gbit/s x 37 ms / 72 000 bits is 7709 packets; a product of 92.5 MB is 10 235 of 9038 bytes.
    assert_eq!(
        words(&continent),
        "netem limit 17944 delay 37ms loss random 0% duplicate 0% corrupt 0% rate 10000000000bit 24"
    );
    let bad = Impairment {
        delay: Duration::from_millis(10),
        loss: 0.01,
        loss_burst_segments: 10.0,
        jitter: Duration::from_millis(2),
        reorder: true,
        duplicate: 0.001,
        corrupt: 1e-9,
        ..Impairment::default()
    };
    let said = words(&bad);
    assert!(said.contains("delay 10ms 2ms distribution normal loss gemodel 0.101010101% 10% 100% 0%"), "{said}");
    assert!(said.contains("duplicate 0.1% corrupt 0.0000001% rate 0bit"), "{said}");
    // Only with a rate does netem keep the order.
    assert!(words(&Impairment { reorder: false, ..bad }).contains("rate 1000000000000bit"));
    assert!(words(&Impairment { down: true, ..bad }).contains("loss random 100%"));
    let given = netem_arguments(&continent, Duration::from_millis(74), 9000, 7).join(" ");
    assert!(given.starts_with(&words(&continent)), "{given}");
}

#[test]
fn a_direction_is_limited_where_it_enters_the_link_and_delayed_where_it_leaves_it() {
    let satellite = Scenario::preset("satellite").unwrap();
    let [near, far] = ["latency-wan-a.sh", "latency-wan-b.sh"].map(|name| file(&satellite, name));
    assert!(near.contains("\nlimit 10000000bit 18076 750000\n"));
    assert!(far.contains("\nlimit 50000000bit 18076 3750000\n"));
    for script in [&near, &far] {
        assert!(script.contains("\nemulate netem limit 1000 delay 300ms 5ms distribution normal"));
    }
    assert!(near.contains("seed=(seed 2)") && far.contains("seed=(seed 1)"));
    assert!(!file(&Scenario::preset("direct").unwrap(), "latency-wan-a.sh").contains("htb"));
}

#[test]
fn every_site_of_a_star_has_a_route_to_every_other() {
    let sc09 = Scenario::preset("sc09").unwrap();
    assert!(file(&sc09, "host-llnl.sh").contains("ip route replace 10.80.1.0/24 via 10.81.2.254 dev \"$IF_LLNL\""));
    let beside = file(&sc09, "latency-llnl-llnl.sh");
    assert!(beside.contains("ip route replace 10.80.1.0/24 via 10.81.200.2 dev \"$IF_WAN\""));
    let core = file(&sc09, "latency-llnl-core.sh");
    assert!(core.contains("ip address replace 10.79.0.2/24 dev \"$IF_LAN\""));
    assert!(core.contains("ip route replace 10.81.2.0/24 via 10.81.200.1 dev \"$IF_WAN\""));
    assert!(core.contains("ip route replace 10.80.1.0/24 via 10.79.0.1 dev \"$IF_LAN\""));
}

#[test]
fn a_timeline_script_says_only_what_changes_and_ends() {
    let mobile = Scenario::preset("mobile").unwrap();
    let script = file(&mobile, "latency-wan-a-timeline.sh");
    let moments: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("at ")).take(7).collect();
    // The first call after the outage of the cell, the slow spell of this direction, and the next outage.
    assert_eq!(moments, ["20", "22", "35", "50", "80", "82", "90"]);
    assert!(script.contains("this script ends here"));
    let slow = script.split("at 35\n").nth(1).unwrap();
    assert!(slow.starts_with("limit 4000000bit 18076 131072\n\nat 50"), "{slow}");

    let mut fast = mobile;
    let change = Change { down: Some(true), ..Change::default() };
    let (lasts, every) = (Some(Duration::from_millis(1)), Some(Duration::from_millis(2)));
    fast.links[0].timeline = vec![Event { at: Duration::ZERO, lasts, every, direction: None, change }];
    assert!(file(&fast, "latency-wan-a-timeline.sh").len() < 400_000);
}

#[test]
fn the_instructions_name_what_to_expect() {
    let readme = file(&Scenario::preset("continent").unwrap(), "README.txt");
    assert!(readme.contains("a round trip of 74ms") && readme.contains("at most 9.9Gbit/s"), "{readme}");
    let readme = file(&Scenario::preset("sc09").unwrap(), "README.txt");
    assert!(readme.contains("floor to llnl") && readme.contains("a round trip of 20ms"), "{readme}");
    assert!(readme.contains("IF_LLNL=eth1 bash host-llnl.sh"));
}
