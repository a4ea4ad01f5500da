//! Round trips of small datagrams between hosts: what the links really do, seen from outside the emulator.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::laboratory::Lab;
use crate::scenario::{FRAMING_BYTES, Impairment};

/// How long an echo may take beyond the round trip asked for before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// What the hosts' own stacks and wake-ups add to any round trip.
pub const OWN_SHARE: Duration = Duration::from_micros(400);
const DATAGRAM_BYTES: usize = 64;
/// Of IPv4 and UDP.
const HEADERS_BYTES: u64 = 28;

/// The round trips over one pair of hosts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RoundTrips {
    pub from: String,
    pub to: String,
    /// What the links are set to, without queueing and jitter.
    pub expected_us: f64,
    /// Standard deviation that they are set to.
    pub jitter_us: f64,
    pub sent: usize,
    pub received: usize,
    pub min_us: f64,
    pub median_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl RoundTrips {
    /// 0.4 ms or 1 %, whichever is larger; with jitter, which is correlated in time, three standard deviations more.
    pub fn tolerance_us(&self) -> f64 {
        (self.expected_us / 100.0).max(OWN_SHARE.as_secs_f64() * 1e6) + 3.0 * self.jitter_us
    }

    pub fn is_as_expected(&self) -> bool {
        self.received > 0 && (self.median_us - self.expected_us).abs() <= self.tolerance_us()
    }
}

/// Sends `count` datagrams at `interval` and hears their echoes.
pub fn round_trips(lab: &Lab, from: &str, to: &str, count: usize, interval: Duration) -> Result<RoundTrips> {
    let failed = |source| Error { kind: Kind::Failed, ..Error::io("probe", to.as_ref(), source) };
    let (client_address, server_address) = (lab.address_v4(from)?, lab.address_v4(to)?);
    let server = lab.inside(to, || UdpSocket::bind((server_address, 0)))?.map_err(failed)?;
    let client = lab.inside(from, || UdpSocket::bind((client_address, 0)))?.map_err(failed)?;
    let crossed = crossed(lab, from, to);
    let expected = crossed.iter().map(|way| way.delay + serialisation(way)).sum();
    // Probes that wait for each other would measure their own queue.
    let interval = crossed.iter().map(|way| 2 * serialisation(way)).fold(interval, Duration::max);
    let times = exchange(&client, &server, count, interval, expected + PATIENCE).map_err(failed)?;
    let variance: f64 = crossed.iter().map(|way| (way.jitter.as_secs_f64() * 1e6).powi(2)).sum();
    Ok(RoundTrips { jitter_us: variance.sqrt(), ..summary(from, to, expected, count, times) })
}

/// What the links between two hosts are set to now, there and back.
fn crossed(lab: &Lab, from: &str, to: &str) -> Vec<Impairment> {
    let port =
        |host: &str| lab.host(host).ok().and_then(|host| host.interfaces.first()).map(|interface| interface.port);
    let (Some(from), Some(to)) = (port(from), port(to)) else { return Vec::new() };
    let links = lab.links_now();
    let one_way = |a: usize, b: usize| {
        let path = lab.topology().paths.iter().find(|path| path.from_ports.contains(&a) && path.to_ports.contains(&b));
        let channels = path.map(|path| path.channels.clone()).unwrap_or_default();
        channels.into_iter().map(|channel| links[channel / 2][channel % 2]).collect::<Vec<_>>()
    };
    [one_way(from, to), one_way(to, from)].concat()
}

/// The time that one probe takes of a wire.
fn serialisation(impairment: &Impairment) -> Duration {
    let bits = (DATAGRAM_BYTES as u64 + HEADERS_BYTES + FRAMING_BYTES) * 8;
    impairment.bits_per_second.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bits as f64 / rate as f64))
}

fn exchange(
    client: &UdpSocket,
    server: &UdpSocket,
    count: usize,
    interval: Duration,
    patience: Duration,
) -> io::Result<Vec<Duration>> {
    server.set_read_timeout(Some(Duration::from_millis(20)))?;
    client.set_read_timeout(Some(patience))?;
    client.connect(server.local_addr()?)?;
    // Whatever can fail comes before the echo, which only the end of this stops.
    let sender = client.try_clone()?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(server, &is_over));
        let sent_at = scope.spawn(|| send_at_interval(&sender, count, interval));
        let received_at = receive(client, count);
        is_over.store(true, Ordering::Relaxed);
        let sent_at: Vec<Instant> = sent_at.join().unwrap_or_else(|_| Ok(Vec::new()))?;
        let _ = echo.join();
        let times = received_at.into_iter().filter_map(|(number, at)| Some(at - *sent_at.get(number)?));
        Ok(times.collect())
    })
}

fn echo(server: &UdpSocket, is_over: &AtomicBool) {
    let mut buffer = [0; DATAGRAM_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((length, peer)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..length], peer);
        }
    }
}

fn send_at_interval(client: &UdpSocket, count: usize, interval: Duration) -> io::Result<Vec<Instant>> {
    let start = Instant::now();
    let mut sent_at = Vec::with_capacity(count);
    for number in 0..count {
        let due = start + interval * number as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut datagram = [0; DATAGRAM_BYTES];
        datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
        sent_at.push(Instant::now());
        // A full queue is a loss like any other.
        let _ = client.send(&datagram);
    }
    Ok(sent_at)
}

/// (number, when) of the echoes, until all are there or none comes for the patience of the socket. Of one
/// that comes twice, the first counts.
fn receive(client: &UdpSocket, count: usize) -> Vec<(usize, Instant)> {
    let mut received = BTreeMap::new();
    let mut buffer = [0; DATAGRAM_BYTES];
    while received.len() < count {
        let Ok(length) = client.recv(&mut buffer) else { break };
        let at = Instant::now();
        if let Some(number) = buffer[..length].first_chunk() {
            received.entry(u64::from_be_bytes(*number) as usize).or_insert(at);
        }
    }
    received.into_iter().collect()
}

fn summary(from: &str, to: &str, expected: Duration, sent: usize, mut times: Vec<Duration>) -> RoundTrips {
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    RoundTrips {
        from: from.to_owned(),
        to: to.to_owned(),
        expected_us: expected.as_secs_f64() * 1e6,
        jitter_us: 0.0,
        sent,
        received: times.len(),
        min_us: at(0.0),
        median_us: at(0.5),
        p99_us: at(0.99),
        max_us: at(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_that_comes_twice_stands_for_no_other() {
        let [client, server] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for number in [0_u64, 0, 1] {
            server.send_to(&number.to_be_bytes(), client.local_addr().unwrap()).unwrap();
        }
        let numbers: Vec<usize> = receive(&client, 2).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [0, 1]);
    }
}
