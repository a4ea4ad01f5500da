//! Real hosts and real packets: two network namespaces without a name, which end with the threads that made them. That
//! takes root.

use std::any::Any;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::random::Random;
use crate::sys::namespace::unshare_network;
use crate::worker::Engine;

const INTERFACE: &str = "eth0";
const ADDRESSES: [[&str; 2]; 2] = [["10.9.0.1", "fd09::1"], ["10.9.0.2", "fd09::2"]];
const TIMEOUT: Duration = Duration::from_secs(20);

type Work = Box<dyn FnOnce() + Send>;

/// A thread with a network of its own.
struct Host {
    work: Sender<Work>,
}

struct Wan {
    hosts: [Host; 2],
    tun: Tun,
}

impl Host {
    fn new() -> Option<Host> {
        if !needs::root() {
            return None;
        }
        let (work, works) = channel::<Work>();
        let (has_network, answer) = channel();
        thread::spawn(move || {
            unshare_network().unwrap();
            let _ = has_network.send(());
            works.into_iter().for_each(|work| work());
        });
        answer.recv().unwrap();
        Some(Host { work })
    }

    /// Runs `work` in this host's network; what it panics with comes out here.
    fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
        let (sender, receiver) = channel::<Result<T, Box<dyn Any + Send>>>();
        let guarded = move || {
            let _ = sender.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
        };
        self.work.send(Box::new(guarded)).unwrap();
        move || receiver.recv().unwrap().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.start(work)()
    }

    fn counter(&self, file: &'static str, group: &'static str, name: &'static str) -> u64 {
        self.run(move || {
            let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
            let lines: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
            let of_group: Vec<_> = lines.iter().filter(|line| line[0] == group).collect();
            let place = of_group[0].iter().position(|column| *column == name).unwrap();
            of_group[1][place].parse().unwrap()
        })
    }
}

impl Wan {
    fn new(there: Impairment, back: Impairment, seed: u64) -> Option<Wan> {
        let hosts = [Host::new()?, Host::new()?];
        let devices = [0, 1].map(|index| hosts[index].run(move || build_host(ADDRESSES[index])));
        let routes = [(0, 1), (1, 0)].map(|(from_port, to_port): (usize, usize)| Route {
            from_port,
            to_port,
            to_addresses: ADDRESSES[to_port].map(|address| address.parse().unwrap()).to_vec(),
            path: Some(from_port),
        });
        let round_trip = there.delay + back.delay;
        let channels = [("wan/0", there), ("wan/1", back)]
            .map(|(name, impairment)| Channel::new(impairment, round_trip, seed, name));
        let tun = Tun::start(devices.into(), routes.into(), channels.into(), vec![vec![0], vec![1]]).unwrap();
        Some(Wan { hosts, tun })
    }

    fn snapshot(&self) -> Snapshot {
        let snapshot = self.tun.snapshot();
        assert_eq!((&snapshot.failure, snapshot.overruns), (&None, 0));
        snapshot
    }

    /// Sends `bytes` from the first host to the second and compares what arrives.
    fn stream(&self, to: &str, bytes: usize) {
        let address: IpAddr = to.parse().unwrap();
        let listener = self.hosts[1].run(move || TcpListener::bind((address, 0)).unwrap());
        let bound = listener.local_addr().unwrap();
        let sent = self.hosts[0].start(move || {
            let mut stream = TcpStream::connect_timeout(&bound, TIMEOUT).unwrap();
            // The machine's own choice may be one that sends no aggregates to speak of.
            rustix::net::sockopt::set_tcp_congestion(&stream, "cubic").unwrap();
            content(bytes, |part| stream.write_all(part).unwrap());
        });
        let mut stream = listener.accept().unwrap().0;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut received = vec![0; 1 << 20];
        content(bytes, |part| {
            stream.read_exact(&mut received[..part.len()]).unwrap();
            assert!(received[..part.len()] == *part, "what arrives differs from what was sent");
        });
        assert_eq!(stream.read(&mut received).unwrap(), 0);
        sent();
    }

    /// Sends numbered datagrams from the first host to the second and returns the numbers that arrive.
    fn datagrams(&self, to: &str, count: u32) -> Vec<u32> {
        let address: IpAddr = to.parse().unwrap();
        let socket = self.hosts[1].run(move || UdpSocket::bind((address, 0)).unwrap());
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 256 << 20).unwrap();
        let bound = socket.local_addr().unwrap();
        self.hosts[0].run(move || {
            let from: SocketAddr = (if bound.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).parse().unwrap();
            let socket = UdpSocket::bind(from).unwrap();
            assert!((0..count).all(|number| socket.send_to(&number.to_be_bytes(), bound).is_ok()));
        });
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let Snapshot { counts, lateness, .. } = self.snapshot();
            let released = u64::from(count) - counts[0].lost_made + counts[0].duplicated;
            if counts[0].packets == u64::from(count) && lateness.samples == released {
                break;
            }
            assert!(Instant::now() < deadline, "{counts:?}");
            thread::yield_now();
        }
        // A datagram is with the receiver before its release is counted.
        socket.set_nonblocking(true).unwrap();
        let mut datagram = [0; 4];
        std::iter::from_fn(|| socket.recv(&mut datagram).ok().map(|_| u32::from_be_bytes(datagram))).collect()
    }
}

/// Reproducible bytes, in parts of at most 1 MiB.
fn content(bytes: usize, mut give: impl FnMut(&[u8])) {
    let mut random = Random::new(77);
    let mut part = vec![0_u8; 1 << 20];
    for start in (0..bytes).step_by(part.len()) {
        part.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.draw().to_ne_bytes()));
        give(&part[..(bytes - start).min(1 << 20)]);
    }
}

fn build_host(addresses: [&str; 2]) -> Device {
    let device = crate::sys::tun::create(INTERFACE).unwrap();
    let [v4, v6] =
        addresses.map(|address| if address.contains(':') { format!("{address}/64") } else { format!("{address}/24") });
    let commands: [&[&str]; 4] = [
        &["addr", "add", &v4, "dev", INTERFACE],
        &["addr", "add", &v6, "dev", INTERFACE, "nodad"],
        &["link", "set", INTERFACE, "mtu", "1500", "up"],
        &["link", "set", "lo", "up"],
    ];
    for arguments in commands {
        assert!(Command::new("ip").args(arguments).stdin(Stdio::null()).status().unwrap().success(), "{arguments:?}");
    }
    device
}

fn lossy(loss: f64) -> Impairment {
    Impairment { loss, ..Impairment::default() }
}

#[test]
fn a_round_trip_takes_the_delay_of_both_directions() {
    let delayed = |ms| Impairment { delay: Duration::from_millis(ms), ..Impairment::default() };
    let Some(wan) = Wan::new(delayed(10), delayed(5), 1) else { return };
    for address in ADDRESSES[1] {
        let address: IpAddr = address.parse().unwrap();
        let echo = wan.hosts[1].run(move || UdpSocket::bind((address, 0)).unwrap());
        let bound = echo.local_addr().unwrap();
        let round_trips = wan.hosts[0].start(move || {
            let socket = UdpSocket::bind(if bound.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            let round_trip = |_| {
                let start = Instant::now();
                socket.send_to(b"ping", bound).unwrap();
                socket.recv(&mut [0; 4]).unwrap();
                start.elapsed()
            };
            (0..20).map(round_trip).collect::<Vec<_>>()
        });
        for _ in 0..20 {
            let (_, from) = echo.recv_from(&mut [0; 4]).unwrap();
            echo.send_to(b"pong", from).unwrap();
        }
        let fastest = round_trips().into_iter().min().unwrap();
        assert!((15_000..16_500).contains(&fastest.as_micros()), "{address}: {fastest:?}");
    }
}

#[test]
fn a_stream_survives_losses_and_as_many_segments_are_lost_as_were_drawn() {
    let Some(wan) = Wan::new(lossy(0.01), lossy(0.01), 2) else { return };
    for address in ADDRESSES[1] {
        wan.stream(address, 24 << 20);
    }
    let snapshot = wan.snapshot();
    for counts in &snapshot.counts {
        assert_eq!(counts.lost_made, counts.lost_asked);
        let expected = 0.01 * counts.segments as f64;
        assert!((counts.lost_made as f64 - expected).abs() < 4.0 * expected.sqrt() + 1.0, "{counts:?}");
    }
    // Aggregates were cut: otherwise there would be as many packets as segments.
    assert!(snapshot.counts[0].packets * 10 < snapshot.counts[0].segments * 9, "{:?}", snapshot.counts);
    // All but a bare acknowledgement or two had to be sent again.
    assert!(wan.hosts[0].counter("snmp", "Tcp:", "RetransSegs") + 4 >= snapshot.counts[0].lost_made);
    assert_eq!(wan.hosts[1].counter("snmp", "Tcp:", "InCsumErrors"), 0);
}

#[test]
fn the_receiver_sees_as_many_wrong_checksums_as_segments_were_damaged_and_the_stream_is_whole() {
    let Some(wan) = Wan::new(Impairment { corrupt: 0.003, ..Impairment::default() }, lossy(0.0), 3) else { return };
    for address in ADDRESSES[1] {
        wan.stream(address, 24 << 20);
    }
    let counts = wan.snapshot().counts[0];
    assert!(counts.corrupted > 20 && counts.lost_made == 0, "{counts:?}");
    assert_eq!(wan.hosts[1].counter("snmp", "Tcp:", "InCsumErrors"), counts.corrupted);
}

#[test]
fn the_receiver_sees_doubled_segments_and_the_stream_is_whole() {
    let Some(wan) = Wan::new(Impairment { duplicate: 0.003, ..Impairment::default() }, lossy(0.0), 4) else { return };
    for address in ADDRESSES[1] {
        wan.stream(address, 24 << 20);
    }
    let counts = wan.snapshot().counts[0];
    assert!(counts.duplicated > 20, "{counts:?}");
    // Each is answered with a selective acknowledgement of old data. Copies of bare acknowledgements are not, and a sender
    // in a hurry adds copies of its own.
    let seen = wan.hosts[1].counter("netstat", "TcpExt:", "TCPDSACKOldSent");
    let expected = counts.duplicated * 9 / 10..=counts.duplicated * 11 / 10 + 3;
    assert!(expected.contains(&seen), "{seen} of {}", counts.duplicated);
}

#[test]
fn the_same_seed_loses_the_same_datagrams_and_another_seed_others() {
    let arrived = |seed| Some(Wan::new(lossy(0.05), lossy(0.0), seed)?.datagrams(ADDRESSES[1][0], 4000));
    let Some(first) = arrived(5) else { return };
    assert!(first.is_sorted() && (3700..3900).contains(&first.len()), "{}", first.len());
    assert_eq!(arrived(5).unwrap(), first);
    assert_ne!(arrived(6).unwrap(), first);
}

#[test]
fn datagrams_arrive_twice_or_not_at_all_as_often_as_counted() {
    let impairment = Impairment { duplicate: 0.05, corrupt: 0.05, loss: 0.05, ..Impairment::default() };
    let Some(wan) = Wan::new(impairment, lossy(0.0), 7) else { return };
    let arrived = wan.datagrams(ADDRESSES[1][1], 2000);
    let counts = wan.snapshot().counts[0];
    assert!(counts.duplicated > 50 && counts.corrupted > 50 && counts.lost_made > 50, "{counts:?}");
    let damaged = wan.hosts[1].run(|| {
        let text = fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
        let line = text.lines().find(|line| line.starts_with("Udp6InCsumErrors")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    });
    assert!((counts.corrupted..counts.corrupted + 20).contains(&damaged), "{damaged} of {}", counts.corrupted);
    assert_eq!(arrived.len() as u64 + damaged, 2000 - counts.lost_made + counts.duplicated);
}

#[test]
fn a_port_whose_interface_is_removed_is_no_longer_waited_for() {
    let Some(host) = Host::new() else { return };
    let device = host.run(|| build_host(ADDRESSES[0]));
    let mut group = Group::new(vec![Port::new(device)], &[], vec![], vec![]);
    group.turn().unwrap();
    assert_eq!(group.descriptors().len(), 1);
    assert!(host.run(|| Command::new("ip").args(["link", "del", INTERFACE]).status().unwrap().success()));
    group.turn().unwrap();
    assert_eq!(group.descriptors().len(), 0);
}

#[test]
fn ports_that_no_route_joins_have_groups_of_their_own() {
    let route = |from_port, to_port, path| Route { from_port, to_port, to_addresses: vec![], path: Some(path) };
    let routes = [route(0, 3, 0), route(3, 0, 1), route(1, 4, 2), route(5, 6, 0)];
    let paths = [vec![0], vec![1], vec![2]];
    assert_eq!(join_ports(7, &routes, &paths), [0, 1, 2, 0, 1, 0, 0]);
}
