//! Cards beyond the first: whether packets from their addresses leave by them, as transfers over several paths need.
//!
//! Linux chooses the card by the destination. Where two cards are in one net, everything leaves by the first, and answers from the
//! second card's address to other nets leave by the card of the default route. Rules by source address mend both.
//!
//! Nothing is sent: the kernel is asked how it would route. Not here: what is said of it (`interfaces`), and changing
//! routes, which needs to know the net's routers.

use net::route::{LocalAddress, Route};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Numbers of routing tables that nobody else is likely to use; the interface's number is added.
const TABLE_FIRST: u32 = 7700;

/// An address whose packets leave by another card than its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Astray {
    /// Its interface.
    pub name: String,
    pub ip: IpAddr,
    /// By which interface they leave.
    pub by: String,
    /// Packets to its own net do so too; otherwise only those to hosts behind a router.
    pub is_net_shared: bool,
    /// What mends it, for a shell.
    pub commands: String,
}

/// The addresses of further cards that have to be mended; nothing where there is one card.
pub fn astray(own: &[LocalAddress], leaves_by: &dyn Fn(IpAddr, IpAddr) -> Option<Route>) -> Option<Vec<Astray>> {
    let cards: BTreeSet<u32> = own.iter().map(|own| own.card).collect();
    (cards.len() > 1).then(|| own.iter().filter_map(|address| of_address(leaves_by, own, address)).collect())
}

fn of_address(
    leaves_by: &dyn Fn(IpAddr, IpAddr) -> Option<Route>,
    own: &[LocalAddress],
    address: &LocalAddress,
) -> Option<Astray> {
    let leaves_by = |to: IpAddr| {
        let route = leaves_by(address.ip, to)?;
        (route.interface != address.interface).then(|| name_of(own, route.interface))
    };
    let near = neighbour(own, address).and_then(leaves_by);
    let is_net_shared = near.is_some();
    let by = near.or_else(|| leaves_by(far(address.ip)))?;
    let commands = commands(address, is_net_shared);
    Some(Astray { name: address.name.clone(), ip: address.ip, by, is_net_shared, commands })
}

/// The lines that make packets from an address leave by its card.
fn commands(address: &LocalAddress, is_net_shared: bool) -> String {
    let LocalAddress { ip, interface, name, prefix_bits, .. } = address;
    let (family, table) = (if ip.is_ipv6() { "-6 " } else { "" }, TABLE_FIRST + interface);
    let net = network(*ip, *prefix_bits);
    let mut lines = vec![
        format!("ip {family}rule add from {ip} table {table}"),
        format!("ip {family}route add {net}/{prefix_bits} dev {name} src {ip} table {table}"),
        format!(
            "ip {family}route add default via ROUTER dev {name} table {table}   (ROUTER: that of this net, if it has one)"
        ),
    ];
    if is_net_shared && ip.is_ipv4() {
        lines.push("sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2".to_owned());
    }
    lines.join("; ")
}

fn name_of(own: &[LocalAddress], interface: u32) -> String {
    own.iter().find(|own| own.interface == interface).map_or(format!("interface {interface}"), |own| own.name.clone())
}

/// An address for documentation: some other net.
fn far(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// An address of the same net that is not this host's; none where there is no room for one.
fn neighbour(own: &[LocalAddress], address: &LocalAddress) -> Option<IpAddr> {
    let is_free = |ip: &IpAddr| own.iter().all(|own| own.ip != *ip);
    let host_bits = if address.ip.is_ipv4() { 32u8 } else { 128 }.checked_sub(address.prefix_bits)?;
    if host_bits < 2 {
        return None;
    }
    let last = if host_bits >= 8 { 250 } else { (1u128 << host_bits) - 2 };
    let net = number(network(address.ip, address.prefix_bits));
    (1..=last).map(|host| with_number(address.ip, net + host)).find(is_free)
}

fn network(ip: IpAddr, prefix_bits: u8) -> IpAddr {
    let bits: u8 = if ip.is_ipv4() { 32 } else { 128 };
    let host_bits = u32::from(bits.saturating_sub(prefix_bits));
    with_number(ip, number(ip).checked_shr(host_bits).and_then(|net| net.checked_shl(host_bits)).unwrap_or(0))
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Of the same family as `like`.
fn with_number(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from_bits(number as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(number).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(interface: u32, ip: &str) -> LocalAddress {
        LocalAddress {
            ip: ip.parse().unwrap(),
            card: interface,
            interface,
            name: format!("eth{interface}"),
            prefix_bits: if ip.contains(':') { 64 } else { 24 },
        }
    }

    fn found(own: &[LocalAddress], leaves_by: fn(IpAddr, IpAddr) -> Option<u32>) -> Option<Vec<Astray>> {
        astray(own, &|from, to| leaves_by(from, to).map(|interface| Route { interface, is_direct: true }))
    }

    #[test]
    fn two_cards_in_one_net_get_the_lines_that_tell_them_apart() {
        let found = found(&[own(2, "10.0.0.1"), own(3, "10.0.0.2")], |_, _| Some(2)).unwrap();
        let [astray] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&astray.name[..], &astray.by[..], astray.is_net_shared), ("eth3", "eth2", true));
        for line in [
            "ip rule add from 10.0.0.2 table 7703",
            "ip route add 10.0.0.0/24 dev eth3 src 10.0.0.2 table 7703",
            "ip route add default via ROUTER dev eth3 table 7703",
            "net.ipv4.conf.all.arp_ignore=1",
        ] {
            assert!(astray.commands.contains(line), "{astray:?}");
        }
    }

    #[test]
    fn cards_in_nets_of_their_own_lack_at_most_the_way_through_a_router() {
        let by_net = |_, to: IpAddr| match to {
            IpAddr::V4(v4) if v4.octets()[0] == 10 => Some(u32::from(v4.octets()[2])),
            _ => Some(2),
        };
        let found = found(&[own(2, "10.0.2.1"), own(3, "10.0.3.1")], by_net).unwrap();
        let [astray] = &found[..] else { panic!("{found:?}") };
        assert_eq!((astray.ip, &astray.by[..], astray.is_net_shared), ([10, 0, 3, 1].into(), "eth2", false));
        assert!(!astray.commands.contains("arp_"));
    }

    #[test]
    fn rules_by_source_and_single_cards_need_nothing() {
        let by_source = |from: IpAddr, _| match from {
            IpAddr::V4(v4) => Some(u32::from(v4.octets()[3]) + 1),
            IpAddr::V6(_) => Some(3),
        };
        assert_eq!(found(&[own(2, "10.0.0.1"), own(3, "10.0.0.2"), own(3, "fd00::1")], by_source), Some(vec![]));
        assert_eq!(found(&[own(2, "10.0.0.1"), own(2, "fd00::1")], |_, _| Some(9)), None);
        // Nothing leads there at all.
        assert_eq!(found(&[own(2, "10.0.0.1"), own(3, "10.0.1.1")], |_, _| None), Some(vec![]));
    }

    #[test]
    fn nets_of_every_size_have_a_neighbour_or_none() {
        for (ip, prefix_bits, expected) in [
            ("10.0.0.1", 24, Some("10.0.0.2")),
            ("10.0.0.1", 30, Some("10.0.0.2")),
            ("10.0.0.1", 31, None),
            ("10.0.0.1", 32, None),
            ("fd00::1", 64, Some("fd00::2")),
            ("10.1.2.3", 0, Some("0.0.0.1")),
        ] {
            let address = LocalAddress { prefix_bits, ..own(2, ip) };
            let found = neighbour(std::slice::from_ref(&address), &address);
            assert_eq!(found, expected.map(|ip| ip.parse().unwrap()), "{ip}/{prefix_bits}");
        }
    }
}
