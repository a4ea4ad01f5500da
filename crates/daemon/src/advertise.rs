//! Which addresses a ticket names.
//!
//! Linux only: local addresses come from /proc, which shows those of the calling thread's network namespace.

use crate::error::{Error, Result};
use crate::ticket::{ADDRESSES_MAX, is_address};
use model::Exit;
use net::route::{self, LocalAddress};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// `HOST:PORT` of a listener, the likeliest first: what the user said, else the address listened on, else every local
/// address that other hosts may know.
pub fn addresses(listening: SocketAddr, advertise: &[String]) -> Result<Vec<String>> {
    let port = listening.port();
    if !advertise.is_empty() {
        if advertise.len() > ADDRESSES_MAX {
            return Err(Error::new(Exit::Usage, format!("a ticket holds at most {ADDRESSES_MAX} addresses")));
        }
        return advertise.iter().map(|text| with_port(text, port)).collect();
    }
    if !listening.ip().is_unspecified() {
        return Ok(vec![listening.to_string()]);
    }
    let mut local = local_addresses(listening.is_ipv6());
    local.truncate(ADDRESSES_MAX);
    Ok(local.into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect())
}

/// Where an endpoint can be reached, as it tells clients that look for more than one path.
pub struct Listening {
    on: IpAddr,
    /// Addresses to be told, and no others, where the user said any.
    advertised: Option<Vec<IpAddr>>,
}

/// Cards of addresses that belong to something in front of this host, each on its own.
const CARD_ELSEWHERE_FIRST: u32 = 1 << 31;

impl Listening {
    /// Names, and addresses with another port, are left out of what is advertised: paths have addresses and one port.
    pub fn new(on: SocketAddr, advertise: &[String]) -> Listening {
        let numeric = |text: &String| {
            let address: SocketAddr = with_port(text, on.port()).ok()?.parse().ok()?;
            (address.port() == on.port()).then(|| address.ip())
        };
        let advertised = (!advertise.is_empty()).then(|| advertise.iter().filter_map(numeric).collect());
        Listening { on: on.ip(), advertised }
    }

    /// At this moment: cards come and go.
    pub fn addresses(&self) -> Vec<LocalAddress> {
        let own = route::local_addresses().unwrap_or_default();
        self.of(own)
    }

    fn of(&self, own: Vec<LocalAddress>) -> Vec<LocalAddress> {
        let is_reached = |ip: IpAddr| match self.on {
            on if !on.is_unspecified() => ip == on,
            on => on.is_ipv6() || ip.is_ipv4(),
        };
        let Some(advertised) = &self.advertised else {
            return own.into_iter().filter(|own| is_reached(own.ip)).collect();
        };
        let told = |(at, ip): (usize, &IpAddr)| {
            let known = own.iter().find(|own| own.ip == *ip).cloned();
            let card = CARD_ELSEWHERE_FIRST + at as u32;
            known.unwrap_or(LocalAddress { ip: *ip, card, interface: card, name: String::new(), prefix_bits: 0 })
        };
        advertised.iter().enumerate().map(told).collect()
    }
}

fn with_port(text: &str, port: u16) -> Result<String> {
    let is_bare_ipv6 = text.parse::<Ipv6Addr>().is_ok();
    let candidates = [text.to_owned(), format!("{text}:{port}"), format!("[{text}]:{port}")];
    let fitting = candidates.into_iter().skip(if is_bare_ipv6 { 2 } else { 0 }).find(|address| is_address(address));
    fitting.ok_or_else(|| {
        let text = model::name::Escaped(text.as_bytes());
        Error::new(Exit::Usage, format!("{text}: not an address to advertise"))
            .hint("give HOST or HOST:PORT, with IPv6 in brackets")
    })
}

/// Addresses of this host except loopback and link-local ones, those that lead to the rest of the world first; loopback
/// when there are no others.
fn local_addresses(with_ipv6: bool) -> Vec<IpAddr> {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let mut found: Vec<IpAddr> = Vec::new();
    found.extend(outward("0.0.0.0:0", "192.0.2.1:9"));
    found.extend(ipv4(&read("fib_trie")).into_iter().map(IpAddr::V4));
    if with_ipv6 {
        found.extend(outward("[::]:0", "[2001:db8::1]:9"));
        found.extend(ipv6(&read("if_inet6")).into_iter().map(IpAddr::V6));
    }
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in found {
        if is_reachable(address) && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        addresses.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    addresses
}

fn is_reachable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_unspecified() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unspecified() && !v6.is_unicast_link_local(),
    }
}

/// The address from which the kernel would speak to `far` (an address for documentation). Nothing is sent.
fn outward(any: &str, far: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Local addresses in `fib_trie`: each stands on a line of its own, followed by what it is.
fn ipv4(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    let mut last = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            addresses.extend(last.filter(|address| !addresses.contains(address)));
        }
    }
    addresses
}

/// Addresses in `if_inet6`: 32 hexadecimal digits, interface number, prefix length, scope, flags, interface name.
fn ipv6(if_inet6: &str) -> Vec<Ipv6Addr> {
    const GLOBAL: &str = "00";
    /// Temporary, failed the test for duplicates, deprecated, being tested for duplicates.
    const NOT_TO_BE_TOLD: u32 = 0x01 | 0x08 | 0x20 | 0x40;
    let address = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [digits, _, _, GLOBAL, flags, _] = fields[..] else { return None };
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let bits = u128::from_str_radix(digits, 16).ok()?;
        (digits.len() == 32 && flags & NOT_TO_BE_TOLD == 0).then_some(Ipv6Addr::from(bits))
    };
    if_inet6.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_says_wins_and_lacks_only_a_port() {
        let listening = "127.0.0.1:7740".parse().unwrap();
        let said = ["node-1", "node-2:99", "2001:db8::1", "[2001:db8::2]", "[::1]:5", "10.0.0.1"].map(String::from);
        let expected =
            ["node-1:7740", "node-2:99", "[2001:db8::1]:7740", "[2001:db8::2]:7740", "[::1]:5", "10.0.0.1:7740"];
        assert_eq!(addresses(listening, &said).unwrap(), expected);
        for bad in ["", "a b", "http://x", "node:0", "a:b:c"] {
            assert_eq!(addresses(listening, &[bad.to_owned()]).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn one_address_listened_on_is_the_one_told() {
        assert_eq!(addresses("127.0.0.1:1".parse().unwrap(), &[]).unwrap(), ["127.0.0.1:1"]);
        assert_eq!(addresses("[::1]:1".parse().unwrap(), &[]).unwrap(), ["[::1]:1"]);
    }

    #[test]
    fn any_address_stands_for_local_ones_that_can_be_dialled() {
        for listening in ["0.0.0.0:7740", "[::]:7740"] {
            let told = addresses(listening.parse().unwrap(), &[]).unwrap();
            assert!(!told.is_empty() && told.iter().all(|a| is_address(a) && a.ends_with(":7740")), "{told:?}");
            assert!(!told.iter().any(|a| a.starts_with("0.0.0.0") || a.starts_with("[::]")), "{told:?}");
        }
    }

    #[test]
    fn local_addresses_are_read_from_the_kernels_tables() {
        let fib_trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.2.3\n        /32 host LOCAL\n     \
            |-- 10.1.2.255\n        /32 link BROADCAST\n     |-- 127.0.0.0\n        /8 host LOCAL\n           \
            |-- 127.0.0.1\n              /32 host LOCAL\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(ipv4(fib_trie), [Ipv4Addr::new(10, 1, 2, 3), Ipv4Addr::LOCALHOST]);
        let if_inet6 = "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
            fd000000000000000000000000000002 04 40 00 82     eth0\n\
            fd000000000000000000000000000003 04 40 00 40     eth0\n\
            00000000000000000000000000000001 01 80 10 80       lo\nrubbish\n";
        assert_eq!(ipv6(if_inet6), ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
        assert!(ipv4("").is_empty() && ipv6("").is_empty());
    }
}
