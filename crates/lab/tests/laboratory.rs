//! A laboratory as its users see it: packets on real interfaces. Needs root.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use lab::flow::Flow;
use lab::lease::Lease;
use lab::probe::round_trips;
use lab::scenario::{Backend, Scenario, parse_changes};
use lab::{Kind, Lab};

fn up(scenario: Scenario) -> Option<Lab> {
    needs::root().then(|| Lab::up(scenario).unwrap())
}

fn toml(text: &str) -> Scenario {
    Scenario { name: "test".into(), ..Scenario::from_toml(text).unwrap() }
}

#[test]
fn a_round_trip_takes_what_the_links_say_over_every_kind_of_topology() {
    let two = "[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\nrtt = '20ms'\nrate = '1Gbit'\n";
    let star = "[site.a]\nhosts = 2\n[site.b]\n[site.c]\n\
                [link.a]\nbetween = ['a', 'core']\ndelay = '5ms'\nrate = '1Gbit'\n\
                [link.b]\nbetween = ['core', 'b']\ndelay = '3ms'\n[link.c]\nbetween = ['c', 'core']\ndelay = '1ms'\n";
    for (text, from, to) in [(two, "a", "b"), (two, "b", "a"), (star, "a2", "b"), (star, "b", "c"), (star, "c", "a1")] {
        let Some(lab) = up(toml(text)) else { return };
        let found = round_trips(&lab, from, to, 20, Duration::from_millis(2)).unwrap();
        let late_us = found.median_us - found.expected_us;
        // Other tests run beside this one: only the emulated share is held exactly.
        assert!(found.expected_us > 5_000.0 && (0.0..3_000.0).contains(&late_us), "{found:?}");
        assert_eq!(found.received, 20);
    }
}

#[test]
fn hosts_of_one_site_and_the_two_ends_of_a_cable_meet_at_once() {
    let two = "[site.a]\nhosts = 2\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\nrtt = '50ms'\n";
    for (scenario, from, to) in [(toml(two), "a1", "a2"), (Scenario::preset("direct").unwrap(), "a", "b")] {
        let Some(lab) = up(scenario) else { return };
        let found = round_trips(&lab, from, to, 5, Duration::from_millis(1)).unwrap();
        assert!(found.expected_us == 0.0 && found.median_us < 5_000.0, "{found:?}");
    }
}

#[test]
fn a_change_holds_from_then_on_and_an_outage_of_the_timeline_loses_everything() {
    let text = "[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\nrtt = '2ms'\n";
    let Some(lab) = up(toml(text)) else { return };
    let receive_bytes_max = || -> u64 {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap();
        lab.inside("b", read).unwrap().split_whitespace().last().unwrap().parse().unwrap()
    };
    assert_eq!(receive_bytes_max(), 64 << 20);
    lab.set("wan", &parse_changes(&["rtt=30ms"]).unwrap()).unwrap();
    assert!(receive_bytes_max() > 250_000_000, "sockets are made for the longer path");
    assert_eq!(lab.receive_window_bytes_max(), receive_bytes_max() / 2);
    let slow = round_trips(&lab, "a", "b", 5, Duration::from_millis(1)).unwrap();
    assert!(slow.expected_us == 30_000.0 && slow.min_us >= 30_000.0, "{slow:?}");
    lab.set("wan", &parse_changes(&["forward.down=on"]).unwrap()).unwrap();
    let lost = round_trips(&lab, "a", "b", 3, Duration::from_millis(1)).unwrap();
    let counts = lab.snapshot().unwrap().counts;
    assert_eq!((lost.received, counts[0].down_drops, counts[1].down_drops), (0, 3, 0));
    let refused = lab.set("wan", &parse_changes(&["corrupt=1%"]).unwrap());
    if lab.choice().unwrap().backend == Backend::Nfqueue {
        assert_eq!(refused.unwrap_err().kind, Kind::Refused);
    }
    assert!(lab.set("lan", &[]).unwrap_err().to_string().contains("there are wan"));
}

#[test]
fn the_same_seed_loses_the_same_packets_and_another_others() {
    let text = "[site.a]\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\nrtt = '1ms'\nloss = '10%'\n";
    let lost = |seed| {
        let lab = up(Scenario { seed, ..toml(text) })?;
        let found = round_trips(&lab, "a", "b", 400, Duration::from_micros(200)).unwrap();
        let counts = lab.snapshot().unwrap().counts;
        assert_eq!(counts[0].lost_asked, counts[0].lost_made);
        Some((found.received, counts[0].lost_made, counts[1].lost_made))
    };
    let Some(first) = lost(5) else { return };
    assert_eq!(lost(5), Some(first));
    assert_ne!(lost(6), Some(first));
    assert!((20..=70).contains(&first.1), "{first:?}");
}

#[test]
fn dropping_a_laboratory_leaves_no_namespace_process_or_file() {
    let Some(lab) = up(Scenario::preset("quad").unwrap()) else { return };
    let mut inside = lab.command("b", "sleep").unwrap().arg("1000").spawn().unwrap();
    let (token, dir) = (lab.lease().token.clone(), lab.lease().dir.clone());
    drop(lab);
    assert!(!inside.wait().unwrap().success());
    let left = |place: &str| {
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().contains(&token)).count()
    };
    assert_eq!((left("/run/netns"), left("/etc/netns"), dir.exists()), (0, 0, false));
}

#[test]
fn what_cannot_be_built_is_refused_with_a_reason_and_nothing_stays() {
    let Some(lab) = up(Scenario::preset("direct").unwrap()) else { return };
    drop(lab);
    let wrong = Scenario { congestion_control: "warp".into(), ..Scenario::preset("metro").unwrap() };
    let error = Lab::up(wrong).err().unwrap();
    assert!(error.to_string().contains("this kernel has") && error.kind == Kind::Missing, "{error}");
    let mut huge = Scenario::preset("metro").unwrap();
    huge.links[0].directions[0].delay = Duration::from_secs(10);
    huge.links[0].directions[0].bits_per_second = Some(1_000_000_000_000);
    let error = Lab::up(huge).err().unwrap();
    assert!(error.to_string().contains("GiB") && error.kind == Kind::Refused, "{error}");
}

/// What arrives when a host sends a few bytes over TCP, and the congestion control of the connection.
fn sent_over(lab: &Lab, to: IpAddr) -> (String, Vec<u8>) {
    let listener = lab.inside("b", || TcpListener::bind((to, 0)).unwrap()).unwrap();
    let server = listener.local_addr().unwrap();
    let mut sender = lab.inside("a", || TcpStream::connect(server).unwrap()).unwrap();
    sender.write_all(b"over the link").unwrap();
    let used = rustix::net::sockopt::tcp_congestion(&sender).unwrap();
    drop(sender);
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    (text, used.into())
}

#[test]
fn every_back_end_carries_tcp_over_both_families_with_the_stated_congestion_control() {
    let emulated = |backend| Scenario { backend: Some(backend), ..Scenario::preset("metro").unwrap() };
    let direct = Scenario::preset("direct").unwrap();
    for scenario in [direct, emulated(Backend::Nfqueue), emulated(Backend::Tun)] {
        let Some(lab) = up(Scenario { congestion_control: "reno".into(), ..scenario }) else { return };
        for address in [lab.address_v4("b").unwrap().into(), lab.address_v6("b").unwrap().into()] {
            assert_eq!(sent_over(&lab, address), ("over the link".into(), b"reno".to_vec()), "{address}");
        }
        assert!(lab.snapshot().is_none_or(|state| state.at_ns > 0), "shares of a processor are of some time");
    }
}

#[test]
fn a_command_sees_its_own_interfaces_resolver_files_and_environment() {
    let Some(lab) = up(Scenario::preset("direct").unwrap()) else { return };
    let mut inner = Command::new("sh");
    inner.args(["-c", "cat /etc/nsswitch.conf /sys/class/net/eth0/mtu; echo $WORD"]).env("WORD", "kept");
    let text = String::from_utf8(lab.exec("a", &inner).unwrap().output().unwrap().stdout).unwrap();
    assert!(text.contains("hosts: files\n") && !text.contains("dns"), "{text}");
    assert!(text.ends_with("9000\nkept\n"), "{text}");
}

#[test]
fn a_ping_by_name_reaches_the_other_side_without_asking_dns() {
    let Some(lab) = up(Scenario::preset("metro").unwrap()) else { return };
    let mut inner = Command::new("ping");
    inner.args(["-c", "2", "-i", "0.01", "b"]);
    let output = lab.exec("a", &inner).unwrap().output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn hosts_with_a_rate_of_their_own_send_and_receive_at_it_and_nothing_is_emulated() {
    if !needs::program("tc") {
        return;
    }
    let text = "[site.a]\nhosts = 2\nhost-rate = '40Mbit'\n[site.b]\n\
                [link.up]\nbetween = ['a', 'core']\n[link.down]\nbetween = ['core', 'b']\n";
    let Some(lab) = up(toml(text)) else { return };
    assert!(lab.choice().is_none() && lab.snapshot().is_none());
    assert!(lab.set("up", &parse_changes(&["rtt=30ms"]).unwrap()).unwrap_err().to_string().contains("nothing"));
    for (from, to) in [("a1", "b"), ("b", "a2"), ("a1", "a2")] {
        let flow = Flow::lasting(Duration::from_secs(2), Duration::from_millis(500));
        let rate = flow.run(&lab, from, to, || ()).unwrap().bits_per_second();
        // Other tests run beside this one, and may slow it down.
        assert!((10e6..42e6).contains(&rate), "{from} to {to}: {rate}");
    }
}

/// Whether the kernel says that new control groups have processor quotas.
fn has_quotas() -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let of = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let root = PathBuf::from(words[1]);
        let given = || std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
        let has_cpu = match words[2] {
            "cgroup" => words[3].split(',').any(|word| word == "cpu"),
            "cgroup2" => given().split_whitespace().any(|word| word == "cpu"),
            _ => false,
        };
        has_cpu && words[3].split(',').any(|word| word == "rw")
    };
    mounts.lines().any(of)
}

#[test]
fn a_host_with_a_processor_quota_is_held_to_it_or_the_laboratory_is_refused_and_nothing_stays() {
    if !needs::root() {
        return;
    }
    let scenario = toml("[site.a]\ncpu = '5%'\n[site.b]\n[link.wan]\nbetween = ['a', 'b']\n");
    if !has_quotas() {
        let error = Lab::up(scenario).err().unwrap();
        assert!(error.hint.as_ref().is_some_and(|hint| hint.contains("omit `cpu`")), "{error}");
        return;
    }
    let lab = Lab::up(scenario).unwrap();
    let group = lab.lease().group("a").unwrap();
    let said = |host: &str, script: &str| {
        let output = lab.command(host, "sh").unwrap().args(["-c", script]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let name = format!("/{}\n", lab.namespace("a").unwrap());
    assert!(said("a", "cat /proc/self/cgroup").contains(&name));
    assert!(!said("b", "cat /proc/self/cgroup").contains("/tw-"), "it has no quota");
    said("a", "timeout 1 sh -c 'while :; do :; done'");
    let stat = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
    let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
    assert!(throttled.is_some_and(|count| count.parse::<u64>().unwrap() > 0), "{stat}");
    // What removes it when its holder was killed knows the record alone.
    let mut inside = lab.command("a", "sleep").unwrap().arg("1000").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while std::fs::read_to_string(group.join("cgroup.procs")).unwrap().is_empty() {
        assert_eq!(inside.try_wait().unwrap(), None);
        assert!(Instant::now() < deadline, "it does not join its group");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let token = lab.lease().token.clone();
    Lease::all().into_iter().find(|lease| lease.token == token).unwrap().remove();
    assert!(!inside.wait().unwrap().success());
    assert_eq!((group.exists(), lab.lease().dir.exists()), (false, false));
}
