//! Which addresses of this host lead to other hosts, by which card each, and how the kernel would send from one to another.
//!
//! Invariants: nothing is sent and nothing is changed; an address of a bridge that only joins containers or virtual machines
//! of this host, of a tunnel, of the loopback interface or of a card without a link is not one that leads elsewhere.
//!
//! Linux only. Not here: which of these addresses form paths (`plan::paths`).

use crate::netlink::{self, attributes, put_attribute, u32_at};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address by which other hosts may reach this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalAddress {
    pub ip: IpAddr,
    /// The kernel's number of the card: of what lies below, where the interface is a VLAN.
    pub card: u32,
    /// Its interface's number and name.
    pub interface: u32,
    pub name: String,
    pub prefix_bits: u8,
}

/// How the kernel would send from one address to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub interface: u32,
    /// Without a router on the way.
    pub is_direct: bool,
}

// Messages and attributes of `linux/rtnetlink.h`, `linux/if_link.h` and `linux/if_addr.h`.
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const LINK_BYTES: usize = 16;
const LINK_NAME: u16 = 3;
const LINK_BELOW: u16 = 5;
const LINK_MASTER: u16 = 10;
const LINK_INFO: u16 = 18;
const LINK_INFO_KIND: u16 = 1;
const FLAG_UP: u32 = 1 << 0;
const FLAG_LOOPBACK: u32 = 1 << 3;
const FLAG_RUNNING: u32 = 1 << 6;
const ADDRESS_BYTES: usize = 8;
const ADDRESS: u16 = 1;
const ADDRESS_LOCAL: u16 = 2;
const ADDRESS_FLAGS: u16 = 8;
const SCOPE_UNIVERSE: u8 = 0;
/// Temporary, failed the test for duplicates, deprecated, being tested for duplicates.
const ADDRESS_NOT_TO_BE_USED: u32 = 0x01 | 0x08 | 0x20 | 0x40;
const ROUTE_BYTES: usize = 12;
const ROUTE_TO: u16 = 1;
const ROUTE_FROM: u16 = 2;
const ROUTE_BY: u16 = 4;
const ROUTE_GATEWAY: u16 = 5;
const ROUTE_UNICAST: u8 = 1;
const FAMILY_IPV4: u8 = libc::AF_INET as u8;
const FAMILY_IPV6: u8 = libc::AF_INET6 as u8;

/// Kinds of interface that stand for a card or lie straight above one. A card itself has no kind.
const CARDS: [&str; 8] = ["", "veth", "bond", "team", "vlan", "macvlan", "ipvlan", "bridge"];
/// Of those, the ones that share what lies below them.
const ABOVE_A_CARD: [&str; 3] = ["vlan", "macvlan", "ipvlan"];
/// Ports of a bridge behind which there are containers or virtual machines of this host.
const INWARD_PORTS: [&str; 2] = ["veth", "tun"];

#[derive(Clone, Debug, Default)]
struct Link {
    name: String,
    kind: String,
    flags: u32,
    below: Option<u32>,
    master: Option<u32>,
}

/// The addresses that lead to other hosts, in the kernel's order.
pub fn local_addresses() -> io::Result<Vec<LocalAddress>> {
    let mut links = BTreeMap::new();
    netlink::dump(GET_LINK, &[0; LINK_BYTES], &mut |kind, message| {
        links.extend((kind == NEW_LINK).then(|| link(message)).flatten());
    })?;
    let mut found = Vec::new();
    netlink::dump(GET_ADDRESS, &[0; ADDRESS_BYTES], &mut |kind, message| {
        found.extend((kind == NEW_ADDRESS).then(|| address(message)).flatten());
    })?;
    Ok(usable(&links, found))
}

/// How the kernel sends from a local address to another host's; an error where it does not.
pub fn leaves_by(from: IpAddr, to: IpAddr) -> io::Result<Route> {
    let mut request = vec![0u8; ROUTE_BYTES];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            (request[0], request[1], request[2]) = (FAMILY_IPV4, 32, 32);
            put_attribute(&mut request, ROUTE_TO, &to.octets());
            put_attribute(&mut request, ROUTE_FROM, &from.octets());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            (request[0], request[1], request[2]) = (FAMILY_IPV6, 128, 128);
            put_attribute(&mut request, ROUTE_TO, &to.octets());
            put_attribute(&mut request, ROUTE_FROM, &from.octets());
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    let mut found = None;
    netlink::get(GET_ROUTE, &request, &mut |kind, message| {
        found = found.or((kind == NEW_ROUTE).then(|| route(message)).flatten());
    })?;
    found.ok_or_else(|| io::ErrorKind::NetworkUnreachable.into())
}

fn link(message: &[u8]) -> Option<(u32, Link)> {
    let mut link = Link { flags: u32_at(message, 8)?, ..Link::default() };
    for (kind, value) in attributes(message.get(LINK_BYTES..)?) {
        match kind {
            LINK_NAME => link.name = netlink::text(value),
            LINK_BELOW => link.below = u32_at(value, 0),
            LINK_MASTER => link.master = u32_at(value, 0),
            LINK_INFO => {
                let named = attributes(value).find(|(kind, _)| *kind == LINK_INFO_KIND);
                link.kind = named.map_or_else(String::new, |(_, value)| netlink::text(value));
            }
            _ => {}
        }
    }
    Some((u32_at(message, 4)?, link))
}

fn address(message: &[u8]) -> Option<LocalAddress> {
    let (family, prefix_bits, short_flags, scope) =
        (*message.first()?, *message.get(1)?, *message.get(2)?, *message.get(3)?);
    let (mut ip, mut local, mut flags) = (None, None, u32::from(short_flags));
    for (kind, value) in attributes(message.get(ADDRESS_BYTES..)?) {
        match kind {
            ADDRESS => ip = ip_of(family, value),
            ADDRESS_LOCAL => local = ip_of(family, value),
            ADDRESS_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    // On a link between two hosts the plain address is the other end's.
    let ip = local.or(ip)?;
    // Of IPv4 addresses the first flag says that another one of the same net came first.
    let unusable = if family == FAMILY_IPV6 { ADDRESS_NOT_TO_BE_USED } else { 0 };
    let interface = u32_at(message, 4)?;
    (scope == SCOPE_UNIVERSE && flags & unusable == 0).then(|| LocalAddress {
        ip,
        card: interface,
        interface,
        name: String::new(),
        prefix_bits,
    })
}

fn route(message: &[u8]) -> Option<Route> {
    let kind = *message.get(7)?;
    let (mut interface, mut is_direct) = (None, true);
    for (kind, value) in attributes(message.get(ROUTE_BYTES..)?) {
        match kind {
            ROUTE_BY => interface = u32_at(value, 0),
            ROUTE_GATEWAY => is_direct = false,
            _ => {}
        }
    }
    (kind == ROUTE_UNICAST).then_some(Route { interface: interface?, is_direct })
}

fn ip_of(family: u8, value: &[u8]) -> Option<IpAddr> {
    match family {
        FAMILY_IPV4 => Some(IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?))),
        FAMILY_IPV6 => Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?))),
        _ => None,
    }
}

fn usable(links: &BTreeMap<u32, Link>, found: Vec<LocalAddress>) -> Vec<LocalAddress> {
    let named = |found: LocalAddress| {
        let link = links.get(&found.interface)?;
        let is_usable = leads_elsewhere(links, found.interface, link);
        is_usable.then(|| LocalAddress { card: card(links, found.interface), name: link.name.clone(), ..found })
    };
    found.into_iter().filter_map(named).collect()
}

fn leads_elsewhere(links: &BTreeMap<u32, Link>, number: u32, link: &Link) -> bool {
    let has_link = link.flags & FLAG_UP != 0 && link.flags & FLAG_RUNNING != 0 && link.flags & FLAG_LOOPBACK == 0;
    let mut ports = links.values().filter(|port| port.master == Some(number));
    let leads_out = link.kind != "bridge" || ports.any(|port| !INWARD_PORTS.contains(&&port.kind[..]));
    has_link && leads_out && CARDS.contains(&&link.kind[..])
}

/// What carries an interface's packets in the end.
fn card(links: &BTreeMap<u32, Link>, mut number: u32) -> u32 {
    // A chain cannot be longer than there are links; the kernel's is of at most eight.
    for _ in 0..links.len() {
        let below =
            links.get(&number).filter(|link| ABOVE_A_CARD.contains(&&link.kind[..])).and_then(|link| link.below);
        match below.filter(|below| links.contains_key(below)) {
            Some(below) => number = below,
            None => break,
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> BTreeMap<u32, Link> {
        let link = |name: &str, kind: &str, below, master| Link {
            name: name.into(),
            kind: kind.into(),
            flags: FLAG_UP | FLAG_RUNNING,
            below,
            master,
        };
        let mut links = BTreeMap::from([
            (1, Link { flags: FLAG_UP | FLAG_RUNNING | FLAG_LOOPBACK, ..link("lo", "", None, None) }),
            (2, link("eth0", "", None, None)),
            (3, link("docker0", "bridge", None, None)),
            (4, link("veth9", "veth", None, Some(3))),
            (5, link("eth0.7", "vlan", Some(2), None)),
            (6, link("br0", "bridge", None, None)),
            (7, link("eth1", "", None, Some(6))),
            (8, link("wg0", "wireguard", None, None)),
            (9, link("eth2", "", None, None)),
        ]);
        links.get_mut(&9).unwrap().flags = FLAG_UP;
        links
    }

    fn on(interface: u32) -> LocalAddress {
        LocalAddress {
            ip: [10, 0, 0, interface as u8].into(),
            card: interface,
            interface,
            name: String::new(),
            prefix_bits: 24,
        }
    }

    #[test]
    fn only_what_leads_to_other_hosts_is_told() {
        let usable = usable(&links(), (1..=9).map(on).collect());
        let told: Vec<_> = usable.iter().map(|found| (&found.name[..], found.card)).collect();
        // Not the loopback interface, a bridge of containers, a tunnel, a card without a link.
        assert_eq!(told, [("eth0", 2), ("veth9", 4), ("eth0.7", 2), ("br0", 6), ("eth1", 7)]);
    }

    #[test]
    fn a_circle_of_interfaces_ends() {
        let mut links = links();
        links.get_mut(&2).unwrap().kind = "vlan".into();
        links.get_mut(&2).unwrap().below = Some(5);
        assert!([2, 5].contains(&card(&links, 5)));
    }

    #[test]
    fn damaged_messages_are_nothing() {
        for bytes in 0..LINK_BYTES {
            assert!(link(&vec![1; bytes]).is_none() && route(&vec![1; bytes.min(ROUTE_BYTES - 1)]).is_none());
        }
        assert!(address(&[2, 24, 0, 0, 0, 0, 0, 0]).is_none(), "an address without an address");
    }

    #[test]
    fn this_host_is_asked_without_rights() {
        let own = local_addresses().unwrap();
        assert!(own.iter().all(|found| !found.ip.is_loopback() && !found.name.is_empty()), "{own:?}");
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // What stays within the host leads nowhere.
        assert!(leaves_by(loopback, loopback).is_err());
        assert!(leaves_by(loopback, IpAddr::V6(Ipv6Addr::LOCALHOST)).is_err());
    }
}
