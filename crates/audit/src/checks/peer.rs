//! The other side, as far as its greeting and the path to it tell.

use crate::finding::{Area, Finding, Level};
use crate::host::Host;
use crate::path::{Path, STREAMS_MAX, rate};
use model::quantity::ByteCount;
use net::path_mtu::PathMtu;

/// What is known of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The name it is known by here.
    pub name: String,
    /// `thalweg 0.1.0`, of each side.
    pub agent: String,
    pub own_agent: String,
    /// Abilities of this program that the other lacks.
    pub features_lacking: u32,
    pub processors: u32,
    pub streams_max: u32,
    pub send_buffer_bytes_max: u64,
    pub is_read_only: bool,
    /// Nothing where it could not be probed.
    pub path_mtu: Option<PathMtu>,
}

pub fn findings(host: &Host, peer: &Peer, path: &Path) -> Vec<Finding> {
    let mut findings = vec![version(peer), buffers(peer, path), abilities(peer)];
    findings.extend(peer.path_mtu.map(|found| path_mtu(host, peer, found)));
    findings
}

fn version(peer: &Peer) -> Finding {
    let found = format!("{} there, {} here", peer.agent, peer.own_agent);
    let finding = Finding::new(Area::Peer, Level::Good, format!("{} version", peer.name), found);
    if peer.features_lacking > 0 {
        let cost = format!("{} of this program's abilities cannot be used with it", peer.features_lacking);
        return Finding { level: Level::Optional, ..finding }.costs(cost).by_hand("install this version there");
    }
    if peer.agent != peer.own_agent {
        return Finding { level: Level::Note, ..finding }
            .costs("the two versions work together; a fault fixed in one may remain in the other");
    }
    finding
}

fn buffers(peer: &Peer, path: &Path) -> Finding {
    let bytes = peer.send_buffer_bytes_max;
    let found = format!("send buffers up to {}", ByteCount(bytes));
    let finding = Finding::new(Area::Peer, Level::Good, format!("{} buffers", peer.name), found);
    let streams = path.streams(bytes);
    if bytes == 0 || streams == 1 {
        return finding;
    }
    let level = if streams > STREAMS_MAX { Level::Needed } else { Level::Optional };
    let stream = rate(path.stream_bits_per_second(bytes));
    let cost = format!(
        "when data is fetched from it, one stream carries at most {stream} (window / RTT); {streams} fill the path"
    );
    let command = format!("sysctl -w net.ipv4.tcp_wmem='4096 65536 {}'   (there)", path.buffer_bytes(None));
    Finding { level, ..finding }.costs(cost).by_hand(command)
}

fn abilities(peer: &Peer) -> Finding {
    let processors =
        if peer.processors == 0 { "processors not told".into() } else { format!("{} processors", peer.processors) };
    let read_only = if peer.is_read_only { ", read only" } else { "" };
    let found = format!("{processors}, up to {} streams in a job{read_only}", peer.streams_max);
    Finding::new(Area::Peer, Level::Good, format!("{} host", peer.name), found)
}

fn path_mtu(host: &Host, peer: &Peer, probed: PathMtu) -> Finding {
    let subject = format!("{} path MTU", peer.name);
    let route = probed.route_bytes;
    let Some(arrived) = probed.arrived_bytes else {
        let found = format!("unknown: datagrams are not answered (the route's interface takes {route} bytes)");
        return Finding::new(Area::Peer, Level::Note, subject, found)
            .costs("a firewall there drops the probes; this does not affect transfers");
    };
    let Some(lost) = probed.lost_bytes else {
        return Finding::new(Area::Peer, Level::Good, subject, format!("{arrived} bytes arrive whole"));
    };
    let found = format!("{arrived} bytes arrive whole, {lost} do not; the interface sends up to {route}");
    if probed.is_told {
        let cost = "routers say so, and TCP keeps to it";
        return Finding::new(Area::Peer, Level::Note, subject, found).costs(cost);
    }
    let finding = Finding::new(Area::Peer, Level::Needed, subject, found);
    let name = "net.ipv4.tcp_mtu_probing";
    if host.sysctl(name).is_some_and(|probing| probing != "0") {
        let cost = "large packets are dropped silently; TCP detects this here, after a pause in every connection";
        return Finding { level: Level::Optional, ..finding }
            .costs(cost)
            .by_hand(format!("set the interface's MTU to {arrived}"));
    }
    finding
        .costs("large packets are dropped silently: connections open, then hang at the first full-size packet")
        .sysctl(host, name, "1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::imitation::{Answers, files};
    use std::time::Duration;

    fn peer() -> Peer {
        Peer {
            name: "lab".into(),
            agent: "thalweg 0.1.0".into(),
            own_agent: "thalweg 0.1.0".into(),
            features_lacking: 0,
            processors: 8,
            streams_max: 64,
            send_buffer_bytes_max: 4 << 20,
            is_read_only: false,
            path_mtu: None,
        }
    }

    fn found(peer: &Peer, probing: &str) -> Vec<Finding> {
        let answers = Answers::default();
        let dir = files(&[("proc/sys/net/ipv4/tcp_mtu_probing", probing)]);
        let path = Path { rtt: Duration::from_millis(74), ..Path::default() };
        findings(&Host::imitated(dir.path(), &answers), peer, &path)
    }

    #[test]
    fn an_older_program_and_small_buffers_there_are_found() {
        let older = Peer { agent: "thalweg 0.0.9".into(), features_lacking: 2, ..peer() };
        let findings = found(&older, "0");
        assert_eq!(findings[0].level, Level::Optional);
        assert!(findings[0].cost.starts_with("2 of this program's abilities"));
        assert_eq!(findings[1].level, Level::Optional);
        assert_eq!(found(&peer(), "0")[0].level, Level::Good);
    }

    #[test]
    fn a_black_hole_is_needed_mending_and_what_routers_tell_is_not() {
        let mtu = |arrived, lost, is_told| {
            let path_mtu = Some(PathMtu { route_bytes: 9000, arrived_bytes: arrived, lost_bytes: lost, is_told });
            Peer { path_mtu, ..peer() }
        };
        let last = |peer: Peer, probing| found(&peer, probing).pop().unwrap();
        let hole = last(mtu(Some(1500), Some(8000), false), "0");
        assert_eq!((hole.level, hole.mend.unwrap().change.unwrap().value.as_str()), (Level::Needed, "1"));
        assert_eq!(last(mtu(Some(1500), Some(8000), false), "1").level, Level::Optional);
        assert_eq!(last(mtu(Some(1500), Some(8000), true), "0").level, Level::Note);
        assert_eq!(last(mtu(Some(9000), None, false), "0").level, Level::Good);
        assert_eq!(last(mtu(None, None, false), "0").level, Level::Note);
    }
}
