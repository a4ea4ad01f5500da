//! Each network interface that is up: rate, packet size, rings, offloads, queue discipline, and what it lost.

use super::routing::{self, Astray};
use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use crate::path::{Path, rate};

/// From here on packets come faster than small rings and single segments keep up with.
const FAST_BITS_PER_SECOND: u64 = 10_000_000_000;
const JUMBO_BYTES: u64 = 9000;
/// A share of packets lost at the interface above which windows of long paths no longer grow.
const LOST_SHARE: f64 = 1e-5;

/// An interface as its files show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    pub name: String,
    pub index: Option<u32>,
    pub mtu_bytes: Option<u64>,
    /// Nothing where it is virtual, or tells nothing.
    pub bits_per_second: Option<u64>,
    pub driver: Option<String>,
}

/// The interfaces that are up, the loopback one left out.
pub fn interfaces(host: &Host) -> Vec<Interface> {
    let names = host.names("sys/class/net");
    let read = |name: String| {
        let at = |file: &str| format!("sys/class/net/{name}/{file}");
        // Virtual interfaces often do not know whether they are up.
        let is_up = host.read(&at("operstate")).is_some_and(|state| state == "up" || state == "unknown");
        let megabits = host.number::<i64>(&at("speed")).and_then(|speed| u64::try_from(speed).ok());
        (is_up && name != "lo").then(|| Interface {
            name: name.clone(),
            index: host.number(&at("ifindex")),
            mtu_bytes: host.number(&at("mtu")),
            bits_per_second: megabits.filter(|speed| *speed > 0).map(|speed| speed * 1_000_000),
            driver: host.link_name(&at("device/driver")),
        })
    };
    names.into_iter().filter_map(read).collect()
}

/// The fastest one that says how fast it is.
pub fn fastest(host: &Host) -> Option<Interface> {
    interfaces(host).into_iter().filter(|found| found.bits_per_second.is_some()).max_by_key(|i| i.bits_per_second)
}

pub fn findings(host: &Host, path: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for interface in interfaces(host) {
        findings.push(link(&interface, path));
        findings.extend(rings(host, &interface));
        findings.extend(offloads(host, &interface));
        findings.extend(discipline(host, &interface));
        findings.extend(losses(host, &interface));
    }
    findings.extend(paths(host));
    if findings.is_empty() && host.exists("sys/class/net") {
        let found = "none is up in this network namespace";
        findings.push(Finding::new(Area::Network, Level::Note, "interfaces", found));
    }
    findings
}

/// Whether further cards can be used beside the first.
fn paths(host: &Host) -> Vec<Finding> {
    let Some(calls) = host.calls() else { return Vec::new() };
    let Some(found) = routing::astray(&calls.addresses(), &|from, to| calls.leaves_by(from, to)) else {
        return Vec::new();
    };
    if found.is_empty() {
        return vec![Finding::new(Area::Network, Level::Good, "paths", "packets from each card's address leave by it")];
    }
    let finding = |astray: Astray| {
        let Astray { name, ip, by, is_net_shared, commands } = astray;
        let (level, whither) = match is_net_shared {
            true => (Level::Optional, "to its own net"),
            // Where the card's net has no router there is nothing to be mended.
            false => (Level::Note, "to hosts behind a router"),
        };
        let found = format!("packets from {ip} {whither} leave by {by}");
        let cost = format!("transfers over several paths cannot use {name} for hosts there (docs/paths.md)");
        Finding::new(Area::Network, level, format!("{name} paths"), found).costs(cost).by_hand(commands)
    };
    found.into_iter().map(finding).collect()
}

fn is_fast(interface: &Interface) -> bool {
    interface.bits_per_second.is_some_and(|rate| rate >= FAST_BITS_PER_SECOND)
}

fn link(interface: &Interface, path: &Path) -> Finding {
    let speed = interface.bits_per_second.map_or("speed not told".into(), |speed| rate(speed).to_string());
    let mtu = interface.mtu_bytes.map_or("MTU not told".into(), |bytes| format!("MTU {bytes}"));
    let driver = interface.driver.as_deref().unwrap_or("virtual");
    let (name, found) = (&interface.name, format!("{speed}, {mtu}, driver {driver}"));
    let finding = Finding::new(Area::Network, Level::Good, format!("{name} link"), found);
    if interface.bits_per_second.is_some_and(|speed| speed < path.bits_per_second) {
        let cost = "the path in question is faster than this interface".to_owned();
        return Finding { level: Level::Note, ..finding }.costs(cost);
    }
    if is_fast(interface) && interface.mtu_bytes.is_some_and(|bytes| bytes < JUMBO_BYTES) {
        let cost = "with an MTU of 9000 bytes there would be a sixth as many packets, and that much less work, if the whole path takes them";
        let command = format!("ip link set dev {name} mtu 9000   (at both ends and on every switch in between)");
        return Finding { level: Level::Optional, ..finding }.costs(cost).by_hand(command);
    }
    finding
}

fn rings(host: &Host, interface: &Interface) -> Option<Finding> {
    let rings = host.calls()?.rings(&interface.name)?;
    let name = &interface.name;
    let found = format!("rx {} of {}, tx {} of {}", rings.receive, rings.receive_max, rings.send, rings.send_max);
    let finding = Finding::new(Area::Network, Level::Good, format!("{name} rings"), found);
    if !is_fast(interface) || (rings.receive >= rings.receive_max && rings.send >= rings.send_max) {
        return Some(finding);
    }
    let cost = "a burst that is longer than the ring is dropped before the kernel sees it";
    let command = format!(
        "ethtool -G {name} rx {} tx {}   (the link may go down for a moment)",
        rings.receive_max, rings.send_max
    );
    Some(Finding { level: Level::Optional, ..finding }.costs(cost).by_hand(command))
}

fn offloads(host: &Host, interface: &Interface) -> Option<Finding> {
    let offloads = host.calls()?.offloads(&interface.name)?;
    let listed = [
        ("tso", offloads.segmentation_tcp),
        ("gso", offloads.segmentation),
        ("gro", offloads.receive_merging),
        ("tx", offloads.checksum_send),
        ("lro", offloads.receive_merging_hardware),
    ];
    let told: Vec<_> = listed.iter().filter_map(|(name, is_on)| Some((*name, (*is_on)?))).collect();
    if told.is_empty() {
        return None;
    }
    let word = |is_on| if is_on { "on" } else { "off" };
    let found: Vec<String> = told.iter().map(|(name, is_on)| format!("{name} {}", word(*is_on))).collect();
    let finding = Finding::new(Area::Network, Level::Good, format!("{} offloads", interface.name), found.join(", "));
    let off: Vec<&str> = told.iter().filter(|(name, is_on)| !is_on && *name != "lro").map(|(name, _)| *name).collect();
    if off.is_empty() {
        return Some(finding);
    }
    let cost = "each packet passes through the kernel separately, at several times the processor time per byte";
    let switches: Vec<String> = off.iter().map(|name| format!("{name} on")).collect();
    let command = format!("ethtool -K {} {}", interface.name, switches.join(" "));
    let level = if is_fast(interface) || interface.driver.is_some() { Level::Optional } else { Level::Note };
    Some(Finding { level, ..finding }.costs(cost).by_hand(command))
}

fn discipline(host: &Host, interface: &Interface) -> Option<Finding> {
    let all = host.calls()?.queue_disciplines()?;
    let own: Vec<_> = all.iter().filter(|found| Some(found.interface_index) == interface.index).collect();
    let root = own.iter().find(|found| found.is_root)?;
    let below: std::collections::BTreeSet<&str> =
        own.iter().filter(|found| !found.is_root).map(|found| found.kind.as_str()).collect();
    let kinds: Vec<&str> = [root.kind.as_str()].into_iter().chain(below).collect();
    let finding =
        Finding::new(Area::Network, Level::Good, format!("{} queue discipline", interface.name), kinds.join(", "));
    let has = |names: &[&str]| kinds.iter().any(|kind| names.contains(kind));
    let command = |kind: &str| format!("tc qdisc replace dev {} root {kind}", interface.name);
    if has(&["tbf", "htb", "hfsc", "netem", "cbq"]) {
        let cost = "it can limit the rate or delay packets: is that intended?";
        return Some(
            Finding { level: Level::Note, ..finding }
                .costs(cost)
                .by_hand(format!("tc -s qdisc show dev {}", interface.name)),
        );
    }
    if has(&["pfifo_fast", "pfifo"]) {
        let cost = "one queue for all streams: a busy stream delays the others, and bursts are not paced";
        return Some(Finding { level: Level::Optional, ..finding }.costs(cost).by_hand(command("fq")));
    }
    Some(finding)
}

/// What the interface has lost or found damaged since it came up.
fn losses(host: &Host, interface: &Interface) -> Option<Finding> {
    let count = |file: &str| host.number::<u64>(&format!("sys/class/net/{}/statistics/{file}", interface.name));
    let (packets, dropped) = (count("rx_packets")?, count("rx_dropped")?);
    let damaged = count("rx_crc_errors").unwrap_or(0) + count("rx_frame_errors").unwrap_or(0);
    let missed = count("rx_missed_errors").unwrap_or(0) + count("rx_fifo_errors").unwrap_or(0);
    let found = format!("of {packets} packets {dropped} dropped, {missed} missed, {damaged} damaged");
    let finding = Finding::new(Area::Network, Level::Good, format!("{} losses", interface.name), found);
    if damaged > 0 {
        let cost = "damaged packets come from a cable, an optic or a port, and TCP treats each as a loss";
        return Some(
            Finding { level: Level::Optional, ..finding }.costs(cost).by_hand("clean or replace cable and optics"),
        );
    }
    if packets > 0 && (dropped + missed) as f64 / packets as f64 > LOST_SHARE {
        let cost = "lost at this host: rings too short, processors too busy, or protocols without a listener";
        return Some(
            Finding { level: Level::Note, ..finding }.costs(cost).by_hand(format!("ethtool -S {}", interface.name)),
        );
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};
    use net::interface::{Offloads, QueueDiscipline, Rings};

    const FAST: &[(&str, &str)] = &[
        ("sys/class/net/lo/operstate", "unknown"),
        ("sys/class/net/eth1/operstate", "down"),
        ("sys/class/net/eth0/operstate", "up"),
        ("sys/class/net/eth0/ifindex", "2"),
        ("sys/class/net/eth0/mtu", "1500"),
        ("sys/class/net/eth0/speed", "100000"),
        ("sys/class/net/eth0/statistics/rx_packets", "1000000"),
        ("sys/class/net/eth0/statistics/rx_dropped", "0"),
        ("sys/class/net/eth0/statistics/rx_crc_errors", "3"),
    ];

    fn of(findings: &[Finding], subject: &str) -> Finding {
        findings.iter().find(|finding| finding.subject == subject).unwrap().clone()
    }

    #[test]
    fn a_fast_interface_is_judged_by_rings_offloads_discipline_and_losses() {
        let discipline = |is_root, kind: &str| QueueDiscipline { interface_index: 2, is_root, kind: kind.into() };
        let answers = Answers {
            rings: Some(Rings { receive: 1024, receive_max: 8192, send: 1024, send_max: 8192 }),
            offloads: Offloads {
                segmentation_tcp: Some(false),
                receive_merging: Some(true),
                receive_merging_hardware: Some(false),
                ..Offloads::default()
            },
            disciplines: vec![discipline(true, "mq"), discipline(false, "pfifo_fast")],
            ..Answers::default()
        };
        let dir = files(FAST);
        let host = Host::imitated(dir.path(), &answers);
        let findings = findings(&host, &Path::default());
        assert_eq!(of(&findings, "eth0 link").level, Level::Optional);
        let rings = of(&findings, "eth0 rings");
        assert!(rings.mend.unwrap().command.starts_with("ethtool -G eth0 rx 8192 tx 8192"));
        assert_eq!(of(&findings, "eth0 offloads").mend.unwrap().command, "ethtool -K eth0 tso on");
        assert_eq!(of(&findings, "eth0 queue discipline").found, "mq, pfifo_fast");
        assert!(of(&findings, "eth0 losses").cost.contains("cable"));
        assert!(findings.iter().all(|finding| !finding.subject.starts_with("eth1")));
        assert_eq!(fastest(&host).unwrap().bits_per_second, Some(100_000_000_000));
    }

    #[test]
    fn a_captured_interface_shows_what_files_tell() {
        let answers = Answers::default();
        let dir = files(FAST);
        let findings = findings(&Host::captured(dir.path(), &answers), &Path::default());
        let subjects: Vec<_> = findings.iter().map(|finding| finding.subject.as_str()).collect();
        assert_eq!(subjects, ["eth0 link", "eth0 losses"]);
    }
}
