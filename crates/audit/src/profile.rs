//! Published sets of host settings, to compare a host with.
//!
//! A set says what others found good on their machines. It is no advice for this path: `checks` computes that.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;

/// A set of settings and where it was published.
#[derive(Debug)]
pub struct Profile {
    pub name: &'static str,
    pub source: &'static str,
    rows: &'static [Row],
}

#[derive(Debug)]
enum Row {
    /// A sysctl with exactly this value.
    Is(&'static str, &'static str),
    /// One of a sysctl's numbers within these bounds.
    Within(&'static str, usize, u64, u64),
    /// Rings of every interface that has any: receive and send.
    Rings(u32, u32),
    /// The send queue of every interface.
    SendQueue(u64, u64),
    /// `tso`, `gso`, `gro` on and `lro` off.
    Offloads,
}

use Row::{Is, Offloads, Rings, SendQueue, Within};

const PROFILES: &[Profile] = &[
    Profile {
        name: "zettar",
        source: "Zettar, Reexamining Paradigms of End-to-End Data Movement, section 3.1, tables 2 and 3: hosts at 100 Gbit/s",
        rows: &[
            Rings(8160, 8160),
            Is("net.core.rmem_max", "2147483647"),
            Is("net.core.wmem_max", "2147483647"),
            Is("net.ipv4.tcp_rmem", "4096 67108864 1073741824"),
            Is("net.ipv4.tcp_wmem", "4096 67108864 1073741824"),
            Is("net.ipv4.tcp_mtu_probing", "1"),
            Is("net.core.default_qdisc", "fq_codel"),
            Is("net.ipv4.tcp_congestion_control", "cubic"),
            Is("net.core.netdev_max_backlog", "8192"),
        ],
    },
    Profile {
        name: "esnet",
        source: "ESnet and OSG guidance for data transfer nodes, as the same paper refers to it in section 3.1",
        rows: &[
            Is("net.core.default_qdisc", "fq"),
            Is("net.ipv4.tcp_congestion_control", "bbr"),
            Within("net.core.rmem_max", 0, 512 << 20, 2_147_483_647),
            Within("net.core.wmem_max", 0, 512 << 20, 2_147_483_647),
            Within("net.ipv4.tcp_rmem", 2, 512 << 20, 1 << 30),
            Within("net.ipv4.tcp_wmem", 2, 512 << 20, 1 << 30),
            Within("net.core.netdev_max_backlog", 0, 250_000, 600_000),
            SendQueue(10_000, 25_000),
            Offloads,
        ],
    },
];

/// Why each of the settings is in a set.
const REASONS: &[(&str, &str)] = &[
    ("net.core.rmem_max", "ceiling for programs that set receive buffers themselves"),
    ("net.core.wmem_max", "ceiling for programs that set send buffers themselves"),
    ("net.ipv4.tcp_rmem", "window of a receiving stream: rate = window / RTT"),
    ("net.ipv4.tcp_wmem", "window of a sending stream: rate = window / RTT"),
    ("net.ipv4.tcp_mtu_probing", "connections survive routers that silently drop large packets"),
    ("net.core.default_qdisc", "spreads streams on their way out; applies to interfaces that come up later"),
    ("net.ipv4.tcp_congestion_control", "how a stream reacts to loss"),
    ("net.core.netdev_max_backlog", "packets that may wait between the interface and the kernel"),
];

pub fn names() -> Vec<&'static str> {
    PROFILES.iter().map(|profile| profile.name).collect()
}

pub fn find(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

pub fn findings(host: &Host, profile: &Profile) -> Vec<Finding> {
    profile.rows.iter().flat_map(|row| compare(host, profile, row)).collect()
}

fn compare(host: &Host, profile: &Profile, row: &Row) -> Vec<Finding> {
    match row {
        Is(name, value) => {
            vec![sysctl(host, profile, name, host.sysctl(name), |found| found == *value, value.to_string())]
        }
        Within(name, index, low, high) => {
            let is_fit = |found: &str| {
                let number = found.split(' ').nth(*index).and_then(|number| number.parse::<u64>().ok());
                number.is_some_and(|number| (*low..=*high).contains(&number))
            };
            let found = host.sysctl(name);
            let mut numbers: Vec<String> =
                found.as_deref().map_or(Vec::new(), |found| found.split(' ').map(str::to_owned).collect());
            if let Some(number) = numbers.get_mut(*index) {
                *number = low.to_string();
            }
            let value = if numbers.is_empty() { low.to_string() } else { numbers.join(" ") };
            vec![sysctl(host, profile, name, found, is_fit, value)]
        }
        _ => crate::checks::interfaces::interfaces(host)
            .iter()
            .filter_map(|found| interface(host, profile, row, &found.name))
            .collect(),
    }
}

fn sysctl(
    host: &Host,
    profile: &Profile,
    name: &str,
    found: Option<String>,
    is_fit: impl Fn(&str) -> bool,
    value: String,
) -> Finding {
    let subject = format!("{}: {name}", profile.name);
    let Some(found) = found else {
        let finding = Finding::new(Area::Profile, Level::Note, subject, "does not show here");
        return finding.sysctl(host, name, value);
    };
    if is_fit(&found) {
        return Finding::new(Area::Profile, Level::Good, subject, found);
    }
    let mut cost = REASONS.iter().find(|(known, _)| *known == name).map_or("", |(_, reason)| reason).to_owned();
    for other in PROFILES.iter().filter(|other| other.name != profile.name) {
        for row in other.rows {
            if let Is(its, wants) = row
                && *its == name
                && *wants != value
            {
                cost.push_str(&format!("; {} wants {wants} instead", other.name));
            }
        }
    }
    Finding::new(Area::Profile, Level::Optional, subject, found).costs(cost).sysctl(host, name, value)
}

fn interface(host: &Host, profile: &Profile, row: &Row, name: &str) -> Option<Finding> {
    let judged = |is_fit: bool, what: &str, found: String, cost: &str, command: String| {
        let subject = format!("{}: {name} {what}", profile.name);
        if is_fit {
            return Finding::new(Area::Profile, Level::Good, subject, found);
        }
        Finding::new(Area::Profile, Level::Optional, subject, found).costs(cost).by_hand(command)
    };
    match row {
        Rings(receive, send) => {
            let rings = host.calls()?.rings(name)?;
            // A driver that has fewer is set to all it has.
            let (receive, send) = ((*receive).min(rings.receive_max), (*send).min(rings.send_max));
            let found =
                format!("rx {} of {}, tx {} of {}", rings.receive, rings.receive_max, rings.send, rings.send_max);
            let cost = "a burst longer than the ring is dropped before the kernel sees it";
            let is_fit = rings.receive >= receive && rings.send >= send;
            Some(judged(is_fit, "rings", found, cost, format!("ethtool -G {name} rx {receive} tx {send}")))
        }
        SendQueue(low, high) => {
            let found: u64 = host.number(&format!("sys/class/net/{name}/tx_queue_len"))?;
            let cost = "packets that may wait for the interface";
            let is_fit = (*low..=*high).contains(&found);
            Some(judged(
                is_fit,
                "send queue",
                found.to_string(),
                cost,
                format!("ip link set dev {name} txqueuelen {low}"),
            ))
        }
        Offloads => {
            let offloads = host.calls()?.offloads(name)?;
            let wanted = [
                ("tso", offloads.segmentation_tcp, true),
                ("gso", offloads.segmentation, true),
                ("gro", offloads.receive_merging, true),
                ("lro", offloads.receive_merging_hardware, false),
            ];
            let wrong: Vec<String> = wanted
                .iter()
                .filter(|(_, found, wanted)| found.is_some_and(|found| found != *wanted))
                .map(|(what, _, wanted)| format!("{what} {}", if *wanted { "on" } else { "off" }))
                .collect();
            let found = if wrong.is_empty() { "as wanted".into() } else { format!("wanted: {}", wrong.join(", ")) };
            let cost = "merged packets cost less processor time; packets that hardware has merged cannot be forwarded";
            Some(judged(wrong.is_empty(), "offloads", found, cost, format!("ethtool -K {name} {}", wrong.join(" "))))
        }
        Is(..) | Within(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};

    #[test]
    fn the_zettar_tables_are_checked_row_by_row() {
        let answers = Answers {
            rings: Some(net::interface::Rings { receive: 512, receive_max: 8160, send: 8160, send_max: 8160 }),
            ..Answers::default()
        };
        let dir = files(&[
            ("sys/class/net/eth0/operstate", "up"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096 67108864 1073741824"),
            ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304"),
            ("proc/sys/net/ipv4/tcp_mtu_probing", "1"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr"),
            ("proc/sys/net/core/default_qdisc", "fq"),
        ]);
        let findings = findings(&Host::imitated(dir.path(), &answers), find("zettar").unwrap());
        let level = |subject: &str| findings.iter().find(|f| f.subject == format!("zettar: {subject}")).unwrap().level;
        assert_eq!(findings.len(), 9);
        assert_eq!(level("eth0 rings"), Level::Optional);
        assert_eq!(level("net.ipv4.tcp_rmem"), Level::Good);
        assert_eq!(level("net.ipv4.tcp_wmem"), Level::Optional);
        assert_eq!(level("net.core.rmem_max"), Level::Note, "it does not show in this namespace");
        let conflict = findings.iter().find(|f| f.subject.ends_with("default_qdisc")).unwrap();
        assert!(conflict.cost.ends_with("esnet wants fq instead"), "{}", conflict.cost);
    }

    #[test]
    fn a_range_is_met_by_any_value_within_it() {
        let answers = Answers::default();
        for (value, level) in [("4096 131072 6291456", Level::Optional), ("4096 131072 600000000", Level::Good)] {
            let dir = files(&[("proc/sys/net/ipv4/tcp_rmem", value)]);
            let findings = findings(&Host::imitated(dir.path(), &answers), find("esnet").unwrap());
            let found = findings.iter().find(|f| f.subject == "esnet: net.ipv4.tcp_rmem").unwrap();
            assert_eq!(found.level, level);
            if level == Level::Optional {
                assert_eq!(found.mend.as_ref().unwrap().change.as_ref().unwrap().value, "4096 131072 536870912");
            }
        }
    }

    #[test]
    fn names_are_found() {
        assert_eq!(names(), ["zettar", "esnet"]);
        assert!(find("esnet").is_some() && find("nobody").is_none());
    }
}
