//! The largest packet that a path carries whole, found with datagrams that no router may divide.
//!
//! A datagram to a port where nothing listens is answered by the other host with "port unreachable": it has arrived whole.
//! A router that cannot pass it on says "too big"; one that says nothing is a black hole, on which TCP connections hang as
//! soon as they send full packets.
//! Invariants: at most `PROBES_MAX` datagrams are sent, so that hosts that answer six and then one a second answer all; a
//! size counts as lost only after two that were not answered, and only if a small datagram was.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};

/// IP and UDP headers.
const HEADERS_V4_BYTES: u32 = 28;
const HEADERS_V6_BYTES: u32 = 48;
const PROBES_MAX: usize = 12;
const SMALL_BYTES: u32 = 300;
/// Sizes that paths have: jumbo frames, Ethernet, and Ethernet less what PPPoE and tunnels add.
const USUAL_BYTES: &[u32] = &[9000, 8000, 4352, 1500, 1492, 1476, 1450, 1420, 1400, 1380, 1280];

/// What became of the probes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMtu {
    /// What the route's interface, or what the kernel has learnt of the path, allows.
    pub route_bytes: u32,
    /// The largest that has arrived; nothing when the other host answers no probes.
    pub arrived_bytes: Option<u32>,
    /// The smallest that did not arrive.
    pub lost_bytes: Option<u32>,
    /// Somebody on the way said that a packet was too big, as routers have to.
    pub is_told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Arrived,
    TooBig,
    Nothing,
}

/// Probes the path to a host, at a port where nothing should listen for datagrams.
///
/// `patience` is how long an answer may take: more than a round trip.
pub fn probe(to: SocketAddr, patience: Duration) -> io::Result<PathMtu> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(patience))?;
    let (route_bytes, header_bytes) = match to {
        SocketAddr::V4(_) => {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?;
            (sockopt::ip_mtu(&socket)?, HEADERS_V4_BYTES)
        }
        SocketAddr::V6(_) => {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?;
            (sockopt::ipv6_mtu(&socket)?, HEADERS_V6_BYTES)
        }
    };
    // Datagrams have no more than 65535 bytes, the loopback interface's packets have one more.
    search(route_bytes.min(65_535), |bytes| once(&socket, bytes.saturating_sub(header_bytes)))
        .map(|found| PathMtu { route_bytes, ..found })
}

/// Finds the largest size that arrives.
fn search(route_bytes: u32, mut send: impl FnMut(u32) -> io::Result<Answer>) -> io::Result<PathMtu> {
    let mut found = PathMtu { route_bytes, arrived_bytes: None, lost_bytes: None, is_told: false };
    let mut sent = 0;
    let mut arrives = |bytes: u32, found: &mut PathMtu| -> io::Result<bool> {
        for _ in 0..2 {
            sent += 1;
            match if sent <= PROBES_MAX { send(bytes)? } else { Answer::Nothing } {
                Answer::Arrived => return Ok(true),
                Answer::TooBig => {
                    found.is_told = true;
                    return Ok(false);
                }
                Answer::Nothing => {}
            }
        }
        Ok(false)
    };
    if !arrives(SMALL_BYTES, &mut found)? {
        return Ok(found);
    }
    found.arrived_bytes = Some(SMALL_BYTES);
    if arrives(route_bytes, &mut found)? {
        found.arrived_bytes = Some(route_bytes);
        return Ok(found);
    }
    found.lost_bytes = Some(route_bytes);
    let sizes: Vec<u32> = USUAL_BYTES.iter().copied().filter(|bytes| *bytes < route_bytes).collect();
    // Sizes fall: before `low` all are lost, from `high` on all arrive.
    let (mut low, mut high) = (0, sizes.len());
    while low < high {
        let middle = low + (high - low) / 2;
        if arrives(sizes[middle], &mut found)? {
            found.arrived_bytes = Some(sizes[middle]);
            high = middle;
        } else {
            found.lost_bytes = Some(sizes[middle]);
            low = middle + 1;
        }
    }
    Ok(found)
}

fn once(socket: &UdpSocket, payload_bytes: u32) -> io::Result<Answer> {
    let payload = vec![0u8; payload_bytes as usize];
    let told = |e: io::Error| match e.raw_os_error() {
        Some(libc::EMSGSIZE) => Ok(Answer::TooBig),
        Some(libc::ECONNREFUSED) => Ok(Answer::Arrived),
        _ if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(Answer::Nothing),
        // A firewall that rejects, or a host that is gone: nothing is known of this size.
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EACCES | libc::EPERM) => Ok(Answer::Nothing),
        _ => Err(e),
    };
    if let Err(e) = socket.send(&payload) {
        return told(e);
    }
    match socket.recv(&mut [0; 16]) {
        // Something does listen there, and has answered.
        Ok(_) => Ok(Answer::Arrived),
        Err(e) => told(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that carries so much, and its routers say so or not.
    fn searched(route: u32, carries: u32, tells: bool) -> (PathMtu, usize) {
        let mut probes = 0;
        let found = search(route, |bytes| {
            probes += 1;
            Ok(if bytes <= carries {
                Answer::Arrived
            } else if tells {
                Answer::TooBig
            } else {
                Answer::Nothing
            })
        });
        (found.unwrap(), probes)
    }

    #[test]
    fn the_largest_usual_size_is_found_within_the_bound() {
        for (route, carries, arrived) in
            [(1500, 1500, 1500), (9000, 1500, 1500), (9000, 9000, 9000), (1500, 1430, 1420), (1500, 1300, 1280)]
        {
            for tells in [true, false] {
                let (found, probes) = searched(route, carries, tells);
                assert_eq!(found.arrived_bytes, Some(arrived), "{route} {carries}");
                assert_eq!(found.is_told, tells && carries < route);
                assert!(found.lost_bytes.is_none_or(|lost| lost > carries) && probes <= PROBES_MAX, "{probes}");
            }
        }
    }

    #[test]
    fn a_host_that_answers_nothing_leaves_the_size_open() {
        let (found, probes) = searched(1500, 0, false);
        assert_eq!((found.arrived_bytes, found.lost_bytes, probes), (None, None, 2));
    }

    #[test]
    fn loopback_carries_its_whole_size() {
        let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let found = probe(unused, Duration::from_secs(2)).unwrap();
        assert_eq!(found.arrived_bytes, Some(found.route_bytes.min(65_535)));
    }
}
