//! Numbered datagrams from one host to another: which of them arrive, and when.

use std::io;
use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::laboratory::Lab;

/// Room for all datagrams of a gate at the receiver, so that none is lost but on the link.
const BUFFER_BYTES: usize = 256 << 20;
/// Sent between two looks at the clock.
const BATCH: usize = 32;
const DATAGRAM_BYTES_MAX: usize = 9000;

/// What became of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrivals {
    /// By number.
    pub arrived: Vec<bool>,
    /// From before the first was sent until after the last.
    pub sending: Duration,
    /// From there to their arrival, in milliseconds, of those that arrived.
    pub one_way_ms: Vec<f64>,
}

/// What to send: `count` datagrams of `bytes` of payload, `per_second` or as fast as possible.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    pub count: usize,
    pub bytes: usize,
    pub per_second: Option<f64>,
}

impl Burst {
    /// `patience` is how long the receiver waits for another.
    pub fn send(&self, lab: &Lab, from: &str, to: &str, patience: Duration) -> Result<Arrivals> {
        let failed = |source| Error { kind: Kind::Failed, ..Error::io("send datagrams to", to.as_ref(), source) };
        let (own, peer) = (lab.address_v4(from)?, lab.address_v4(to)?);
        let receiver = lab.inside(to, || UdpSocket::bind((peer, 0)))?.map_err(failed)?;
        let sender = lab.inside(from, || UdpSocket::bind((own, 0)))?.map_err(failed)?;
        // Without the right to more, as much as any program may have.
        let forced = rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES);
        forced
            .or_else(|_| rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, BUFFER_BYTES))
            .map_err(|e| failed(e.into()))?;
        sender.connect(receiver.local_addr().map_err(failed)?).map_err(failed)?;
        receiver.set_read_timeout(Some(patience)).map_err(failed)?;
        let (sent, received) = thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&receiver, self.count));
            let sent = self.send_all(&sender);
            (sent, receiving.join().unwrap_or_default())
        });
        let sent = sent.map_err(failed)?;
        let mut arrived = vec![false; self.count];
        let mut one_way_ms = Vec::with_capacity(received.len());
        for (number, at) in received {
            if let (Some(place), Some(left)) = (arrived.get_mut(number), sent.get(number)) {
                *place = true;
                one_way_ms.push((at.saturating_duration_since(*left)).as_secs_f64() * 1e3);
            }
        }
        let sending = sent.first().zip(sent.last()).map_or(Duration::ZERO, |(first, last)| *last - *first);
        Ok(Arrivals { arrived, sending, one_way_ms })
    }

    fn send_all(&self, sender: &UdpSocket) -> io::Result<Vec<Instant>> {
        let mut datagram = vec![0; self.bytes.clamp(8, DATAGRAM_BYTES_MAX)];
        let (start, mut sent) = (Instant::now(), Vec::with_capacity(self.count));
        for number in 0..self.count {
            if let Some(rate) = self.per_second.filter(|_| number.is_multiple_of(BATCH)) {
                let due = start + Duration::from_secs_f64(number as f64 / rate);
                thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            datagram[..8].copy_from_slice(&(number as u64).to_be_bytes());
            sent.push(Instant::now());
            sender.send(&datagram)?;
        }
        Ok(sent)
    }
}

/// Until the last is there or none comes for the patience of the socket.
fn receive(receiver: &UdpSocket, count: usize) -> Vec<(usize, Instant)> {
    let (mut received, mut buffer) = (Vec::with_capacity(count), [0; DATAGRAM_BYTES_MAX]);
    while let Ok(length) = receiver.recv(&mut buffer) {
        let Some(number) = buffer[..length].first_chunk().map(|bytes| u64::from_be_bytes(*bytes) as usize) else {
            continue;
        };
        received.push((number, Instant::now()));
        if number + 1 == count {
            break;
        }
    }
    received
}
