//! `thalweg doctor`: on a captured host, towards an endpoint, and with changes in a network namespace of its own.

use crate::bed::{Bed, program};
use serde_json::Value;
use std::process::{Command, Stdio};

fn finding<'a>(events: &'a [Value], subject: &str) -> &'a Value {
    events.iter().find(|event| event["subject"] == subject).unwrap_or_else(|| panic!("no finding {subject}"))
}

#[test]
fn a_captured_host_is_judged_for_the_path_that_is_asked_for() {
    let bed = Bed::new();
    for (file, content) in [
        ("proc/sys/net/ipv4/tcp_rmem", "4096 131072 6291456"),
        ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304"),
        ("proc/sys/net/ipv4/tcp_sack", "0"),
        ("proc/sys/net/ipv4/tcp_congestion_control", "cubic"),
        ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr"),
        ("sys/class/net/eth0/operstate", "up"),
        ("sys/class/net/eth0/speed", "100000"),
        ("sys/class/net/eth0/mtu", "1500"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave"),
        ("run/systemd/container", "lxc"),
    ] {
        bed.write(&format!("host/{file}"), content.as_bytes());
    }
    let doctor = |more: &[&str]| bed.run(&[&["doctor", "--host-root", "host", "--json"], more].concat());
    let near = doctor(&["--rtt", "1ms", "--rate", "1Gbit"]).succeeded();
    assert_eq!(finding(&near.events(), "net.ipv4.tcp_wmem")["level"], "good");
    let far = doctor(&["--rtt", "74ms"]).succeeded();
    let events = far.events();
    let buffers = finding(&events, "net.ipv4.tcp_wmem");
    assert_eq!(buffers["level"], "needed", "100 Gbit/s of the interface, not an assumption: {buffers}");
    assert!(buffers["cost"].as_str().unwrap().contains("window / RTT"), "{buffers}");
    assert_eq!(buffers["command"], "sysctl -w net.ipv4.tcp_wmem='4096 16384 1073741824'");
    assert_eq!(finding(&events, "net.ipv4.tcp_sack")["level"], "needed");
    assert_eq!(finding(&events, "eth0 link")["level"], "optional");
    assert_eq!(finding(&events, "CPU governor")["found"], "powersave");
    assert_eq!(finding(&events, "surroundings")["found"], "a container (lxc)");
    let done = far.done();
    assert_eq!((&done["bdp_bytes"], &done["changed"]), (&925_000_000.into(), &0.into()));
    let zettar = doctor(&["--profile", "zettar"]).succeeded().events();
    assert_eq!(finding(&zettar, "zettar: net.ipv4.tcp_wmem")["level"], "optional");
    assert_eq!(finding(&zettar, "zettar: net.ipv4.tcp_congestion_control")["level"], "good");
    assert_eq!(bed.run(&["doctor", "--profile", "zetar"]).code, Some(2));
}

#[test]
fn people_read_what_why_and_how_to_fix_it() {
    let bed = Bed::new();
    bed.write("host/proc/sys/net/ipv4/tcp_sack", b"0");
    let ran = bed.run(&["doctor", "--host-root", "host"]).succeeded();
    let text = String::from_utf8(ran.stdout).unwrap();
    let expected = "for 10.0 Gbit/s (assumed) over 100 ms (assumed): 119 MiB are under way when it is full (BDP = rate x RTT)\n\
        needed   net.ipv4.tcp_sack: 0\n\
        \x20        without it one lost segment makes TCP resend the rest of the window\n\
        \x20        fix: sysctl -w net.ipv4.tcp_sack=1   [";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with(" good (--all lists them)\n"), "{text}");
}

#[test]
fn an_endpoint_is_asked_and_the_path_to_it_measured() {
    let (bed, server) = Bed::with_endpoint();
    let ran = bed.run(&["doctor", "lab", "--json", "--all"]).succeeded();
    let events = ran.events();
    let version = finding(&events, "lab version");
    assert_eq!(version["level"], "good", "{version}");
    let mtu = finding(&events, "lab path MTU");
    assert!(mtu["found"].as_str().unwrap().ends_with("bytes arrive whole"), "{mtu}");
    assert!(ran.done()["rtt_us"].as_u64().unwrap() < 100_000);
    assert!(finding(&events, ".")["found"].as_str().unwrap().contains(" free"));
    let (code, log) = server.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("WARN"), "an audit is no reason to warn of anybody: {log}");
    assert_eq!(bed.run(&["doctor", "lab"]).code, Some(43), "it is gone");
}

/// The namespace is that of one process and ends with it, however that ends.
#[test]
fn changes_are_made_in_their_namespace_told_and_undone() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let setting = "/proc/sys/net/ipv4/tcp_wmem";
    let outside = std::fs::read_to_string(setting).unwrap();
    let script = format!(
        "set -e; cat {setting}; {} doctor --apply --rate 10Gbit --rtt 74ms --config /dev/null > undo; cat {setting}; \
         grep '^sysctl -w' undo > steps; sed \"s/^sysctl -w //;s/=/ /\" steps | while read name value; do \
         eval \"value=$value\"; echo \"$value\" > /proc/sys/$(echo $name | tr . /); done; cat {setting}",
        program().display()
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", &script]).current_dir(bed.dir.path()).env("HOME", bed.path("client"));
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let (said, talk) = (String::from_utf8(ran.stdout).unwrap(), String::from_utf8(ran.stderr).unwrap());
    assert!(ran.status.success(), "{talk}");
    let values: Vec<&str> = said.lines().collect();
    assert_eq!(values.len(), 3, "{said}");
    assert_ne!(values[0], values[1], "{talk}");
    assert_eq!(values[0], values[2], "the undo was not complete");
    assert!(talk.contains("changing net.ipv4.tcp_wmem: "), "{talk}");
    assert_eq!(std::fs::read_to_string(setting).unwrap(), outside);
}
