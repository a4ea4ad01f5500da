//! From a scenario to hosts, interfaces, addresses and paths.
//!
//! Owns: all naming and numbering inside a laboratory. Sites, hosts and links are numbered in the order of the scenario; the
//! address of host `h` of site `s` on network `n` is 10.(100+n).(s+1).(h+1) and fd77:7468:616c:n:s+1::h+1. The access links
//! of a star form network 0, each direct link one of its own. All of it is visible inside the laboratory only.
//!
//! Pure. Not here: making any of it (`network`).

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::scenario::{End, Impairment, Link, Scenario};

/// How long an aggregate of a sender may occupy a link: beyond that a link of that rate would look lumpy.
const AGGREGATE_US: u64 = 200;
/// The largest aggregate of an ordinary interface.
const AGGREGATE_BYTES_MAX: u64 = 65_536;

#[derive(Clone, PartialEq, Debug)]
pub struct Topology {
    pub hosts: Vec<Host>,
    /// Two hosts and nothing to emulate: their interfaces are the two ends of one cable.
    pub is_cable: bool,
    /// Nothing is emulated: a cable, or hosts that the kernel alone holds to rates of their own.
    pub is_plain: bool,
    pub paths: Vec<Path>,
    /// Indices into `paths` of those that share channels, or the link.
    pub groups: Vec<Vec<usize>>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Host {
    pub site: usize,
    /// The site's name, numbered from 1 if it has several hosts.
    pub name: String,
    pub interfaces: Vec<Interface>,
}

/// A host's end of a link.
#[derive(Clone, PartialEq, Debug)]
pub struct Interface {
    /// In the host's namespace.
    pub name: String,
    /// Of the other end of its cable, in the core's namespace; a number of its own in the laboratory.
    pub port: usize,
    pub link: usize,
    pub network: u8,
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
    /// Of the port. All ports of a site and network share them; each is reached over its own cable only.
    pub gateway_v4: Ipv4Addr,
    pub gateway_v6: Ipv6Addr,
    /// Full-sized segments that a sender may hand over at once.
    pub aggregate_segments_max: u64,
}

/// All packets from the hosts of one site to those of another over one link, or two in a star.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    /// Indices of channels, `2 x link + direction`.
    pub channels: Vec<usize>,
    pub from_ports: Vec<usize>,
    pub to_ports: Vec<usize>,
}

impl Topology {
    pub fn of(scenario: &Scenario) -> Topology {
        let mut hosts = Vec::new();
        let mut port_count = 0;
        for (site, described) in scenario.sites.iter().enumerate() {
            for index in 0..described.hosts {
                let name = match described.hosts {
                    1 => described.name.clone(),
                    _ => format!("{}{}", described.name, index + 1),
                };
                let links = scenario.links.iter().enumerate().filter(|(_, link)| link.ends.contains(&End::Site(site)));
                let interfaces: Vec<_> = links
                    .enumerate()
                    .map(|(ordinal, (link, _))| interface(scenario, site, index, ordinal, link, port_count + ordinal))
                    .collect();
                port_count += interfaces.len();
                hosts.push(Host { site, name, interfaces });
            }
        }
        let paths = paths(scenario, &hosts);
        let groups = groups(scenario, &paths);
        Topology { is_cable: is_cable(scenario), is_plain: is_plain(scenario), hosts, paths, groups }
    }

    /// The host of that name, or the first of the site of that name.
    pub fn host(&self, name: &str, scenario: &Scenario) -> Option<&Host> {
        let of_site = |host: &&Host| scenario.sites[host.site].name == name;
        self.hosts.iter().find(|host| host.name == name).or_else(|| self.hosts.iter().find(of_site))
    }

    pub fn ports(&self) -> impl Iterator<Item = (&Host, &Interface)> {
        self.hosts.iter().flat_map(|host| host.interfaces.iter().map(move |interface| (host, interface)))
    }

    pub fn channel_count(&self, scenario: &Scenario) -> usize {
        scenario.links.len() * 2
    }

    /// For the hosts file: every host by name, and by `name.link` for each of its links.
    pub fn names_v4(&self, scenario: &Scenario) -> Vec<(Ipv4Addr, Vec<String>)> {
        let mut names = Vec::new();
        for host in &self.hosts {
            for (ordinal, interface) in host.interfaces.iter().enumerate() {
                let mut of_one = vec![format!("{}.{}", host.name, scenario.links[interface.link].name)];
                if ordinal == 0 {
                    of_one.insert(0, host.name.clone());
                }
                names.push((interface.v4, of_one));
            }
        }
        names
    }
}

impl Interface {
    pub fn port_name(&self) -> String {
        format!("p{}", self.port)
    }

    pub fn network_v4(&self) -> String {
        format!("10.{}.0.0/16", 100 + u16::from(self.network))
    }

    pub fn network_v6(&self) -> String {
        format!("fd77:7468:616c:{:x}::/64", self.network)
    }
}

fn interface(scenario: &Scenario, site: usize, index: u8, ordinal: usize, link: usize, port: usize) -> Interface {
    let network = if scenario.links[link].ends.contains(&End::Core) { 0 } else { 1 + link as u8 };
    let v4 = |last| Ipv4Addr::new(10, 100 + network, site as u8 + 1, last);
    let v6 = |last: u16| Ipv6Addr::new(0xfd77, 0x7468, 0x616c, network.into(), site as u16 + 1, 0, 0, last);
    Interface {
        name: format!("eth{ordinal}"),
        port,
        link,
        network,
        v4: v4(index + 1),
        v6: v6(u16::from(index) + 1),
        gateway_v4: v4(254),
        gateway_v6: v6(254),
        aggregate_segments_max: aggregate_segments_max(scenario, link),
    }
}

fn aggregate_segments_max(scenario: &Scenario, link: usize) -> u64 {
    let round_trip = scenario.round_trip_over(link);
    let of_direction = |impairment: &Impairment| match impairment.bits_per_second {
        Some(rate) => (rate / 8 * AGGREGATE_US / 1_000_000).min(impairment.queue_bytes(round_trip) / 4),
        None => AGGREGATE_BYTES_MAX,
    };
    let link = &scenario.links[link];
    let states = link.timeline.iter().flat_map(|event| link.changed_by(event)).chain(link.directions);
    let bytes = states.map(|state| of_direction(&state)).min().unwrap_or(AGGREGATE_BYTES_MAX);
    (bytes.min(AGGREGATE_BYTES_MAX) / u64::from(scenario.mtu_bytes)).max(1)
}

fn is_cable(scenario: &Scenario) -> bool {
    scenario.links.len() == 1
        && scenario.sites.iter().all(|site| site.hosts == 1)
        && scenario.links.iter().all(|link| does_nothing(link) && !link.ends.contains(&End::Core))
        && !has_host_rates(scenario)
}

/// Where hosts have no rates, links that do nothing are emulated all the same, so that they can be changed.
fn is_plain(scenario: &Scenario) -> bool {
    is_cable(scenario) || has_host_rates(scenario) && scenario.links.iter().all(does_nothing)
}

fn does_nothing(link: &Link) -> bool {
    link.timeline.is_empty() && link.directions.iter().all(|direction| *direction == Impairment::default())
}

fn has_host_rates(scenario: &Scenario) -> bool {
    scenario.sites.iter().any(|site| site.host_bits_per_second.is_some())
}

fn paths(scenario: &Scenario, hosts: &[Host]) -> Vec<Path> {
    let ports = |site: usize, link: usize| -> Vec<usize> {
        let own = hosts.iter().filter(|host| host.site == site).flat_map(|host| &host.interfaces);
        own.filter(|interface| interface.link == link).map(|interface| interface.port).collect()
    };
    // (site, link, channel towards the core, channel from it)
    let mut access = Vec::new();
    let mut paths = Vec::new();
    for (link, described) in scenario.links.iter().enumerate() {
        match described.ends {
            [End::Site(a), End::Site(b)] => {
                for (channel, from, to) in [(2 * link, a, b), (2 * link + 1, b, a)] {
                    let (from_ports, to_ports) = (ports(from, link), ports(to, link));
                    paths.push(Path { channels: vec![channel], from_ports, to_ports });
                }
            }
            [End::Site(site), End::Core] => access.push((site, link, 2 * link, 2 * link + 1)),
            [End::Core, End::Site(site)] => access.push((site, link, 2 * link + 1, 2 * link)),
            [End::Core, End::Core] => (),
        }
    }
    for &(from, from_link, up, _) in &access {
        for &(to, to_link, _, down) in access.iter().filter(|(to, ..)| *to != from) {
            let (from_ports, to_ports) = (ports(from, from_link), ports(to, to_link));
            paths.push(Path { channels: vec![up, down], from_ports, to_ports });
        }
    }
    paths
}

/// The paths of a direct link together, and all those of the star.
fn groups(scenario: &Scenario, paths: &[Path]) -> Vec<Vec<usize>> {
    let of_paths = |wanted: &dyn Fn(&Path) -> bool| -> Vec<usize> {
        (0..paths.len()).filter(|index| wanted(&paths[*index])).collect()
    };
    let mut groups: Vec<_> = (0..scenario.links.len())
        .map(|link| of_paths(&|path| path.channels.len() == 1 && path.channels[0] / 2 == link))
        .collect();
    groups.push(of_paths(&|path| path.channels.len() > 1));
    groups.retain(|group| !group.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> (Scenario, Topology) {
        let scenario = Scenario::preset(name).unwrap();
        let topology = Topology::of(&scenario);
        (scenario, topology)
    }

    #[test]
    fn two_sites_have_one_interface_each_and_a_path_each_way() {
        let (scenario, topology) = preset("continent");
        let addresses: Vec<_> = topology.ports().map(|(host, port)| (host.name.as_str(), port.v4)).collect();
        assert_eq!(addresses, [("a", Ipv4Addr::new(10, 101, 1, 1)), ("b", Ipv4Addr::new(10, 101, 2, 1))]);
        let path = |channel, from, to| Path { channels: vec![channel], from_ports: vec![from], to_ports: vec![to] };
        assert_eq!(topology.paths, [path(0, 0, 1), path(1, 1, 0)]);
        assert_eq!((topology.groups.len(), topology.is_cable), (1, false));
        assert_eq!(topology.hosts[0].interfaces[0].aggregate_segments_max, 7);
        assert_eq!(topology.names_v4(&scenario)[1].1, ["b", "b.wan"]);
    }

    #[test]
    fn in_a_star_every_site_reaches_every_other_over_two_channels() {
        let (scenario, topology) = preset("sc09");
        let sites = scenario.sites.len();
        assert_eq!(topology.paths.len(), sites * (sites - 1));
        assert!(topology.paths.iter().all(|path| path.channels.len() == 2));
        assert_eq!(topology.groups.len(), 1);
        assert!(topology.ports().all(|(_, port)| port.network == 0));
    }

    #[test]
    fn parallel_links_have_networks_interfaces_and_threads_of_their_own() {
        let (_, topology) = preset("quad");
        let names: Vec<_> = topology.hosts[1].interfaces.iter().map(|interface| interface.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1", "eth2", "eth3"]);
        assert_eq!(topology.groups.len(), 4);
    }

    #[test]
    fn only_two_hosts_with_nothing_between_them_share_a_cable() {
        assert!(preset("direct").1.is_cable);
        assert!(!preset("lan").1.is_cable);
    }

    #[test]
    fn nothing_is_emulated_where_hosts_alone_have_rates() {
        let with_rate = |name: &str| {
            let mut scenario = preset(name).0;
            scenario.sites[0].host_bits_per_second = Some(1_000_000);
            let Topology { is_cable, is_plain, .. } = Topology::of(&scenario);
            (is_cable, is_plain)
        };
        assert_eq!((with_rate("direct"), with_rate("lan")), ((false, true), (false, false)));
        assert!(preset("direct").1.is_plain && !preset("lan").1.is_plain);
    }
}
