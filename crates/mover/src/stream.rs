//! What a lane needs of its data stream, and how a lane on it ends.
//!
//! The product's is `net::DataStream`: TCP under TLS. Trials give lanes streams that lose, delay and damage what is sent.

use model::{Extent, ObjectId};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Breaks a stream off from another thread: whoever waits in it comes back with an error.
pub type Breaker = Arc<dyn Fn() + Send + Sync>;

/// Tells from another thread, or between two calls, how a stream stands; nothing when it is gone.
pub type Gauge = Arc<dyn Fn() -> Option<Pulse> + Send + Sync>;

/// What the kernel knows of a stream that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pulse {
    pub acknowledged_bytes: u64,
    /// Handed to the kernel and not acknowledged.
    pub backlog_bytes: u64,
    /// What its windows let it send in a second; 0 where that is not known.
    pub window_bytes_per_second: u64,
    /// The same if no packet of it stood in a queue: more than it carries, where others have a part of its path.
    pub alone_bytes_per_second: u64,
    /// Between which addresses, where that is known.
    pub path: Option<(IpAddr, IpAddr)>,
    /// The shortest round trip lately.
    pub rtt_us_min: u32,
    /// How long ago the other end acknowledged something, or answered a probe.
    pub last_ack_received_ms: u32,
}

/// What a frame brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// So many small objects of one batch, from this one on.
    Pack {
        first: ObjectId,
        count: usize,
        bytes: u64,
    },
    Chunk {
        object: ObjectId,
        extent: Extent,
    },
}

impl Unit {
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Unit::Pack { bytes, .. } => *bytes,
            Unit::Chunk { extent, .. } => extent.length(),
        }
    }
}

pub trait Stream: Send {
    /// Says what the next frame brings, to a stream that keeps frames.
    fn announce(&mut self, _: Unit) {}

    /// What is sent goes over the network now.
    fn is_network(&self) -> bool {
        true
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()>;

    /// Fills the buffer; a stream that ends before it is full is an error.
    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()>;

    /// Waits until there is something to receive, where the stream can tell.
    fn wait_for_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Takes what it needs to carry a lane's data; the lane's memory has been charged.
    fn widen(&mut self) {}

    /// Says that nothing follows, and waits until the other side has heard it.
    fn close(&mut self) -> io::Result<()>;

    /// Whether the stream is known to have ended or failed without anything being sent on it.
    fn is_broken(&self) -> bool;

    fn breaker(&self) -> Breaker;

    /// Reads what the kernel knows of the stream, where there is one.
    fn gauge(&self) -> Option<Gauge> {
        None
    }

    /// Time spent waiting in `send` since the stream was made.
    fn send_blocked_ns(&self) -> u64;

    /// Time spent waiting in `recv_exact` since the stream was made.
    fn recv_blocked_ns(&self) -> u64;

    /// Time spent in `send` because a rate was set.
    fn paced_ns(&self) -> u64 {
        0
    }
}

/// How a lane ended.
#[derive(Debug)]
pub enum LaneEnd {
    /// The job needs it no more.
    Done,
    /// No memory permit was to be had: fewer lanes have to do.
    NoMemory,
    /// Its stream failed; what it had in flight is wanted again.
    Failed(io::Error),
}

/// The concatenation of slices, taken off piece by piece.
pub(crate) struct Parts<'a> {
    rest: VecDeque<&'a [u8]>,
}

impl<'a> Parts<'a> {
    pub fn new(parts: &[&'a [u8]]) -> Parts<'a> {
        Parts { rest: parts.iter().copied().filter(|part| !part.is_empty()).collect() }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next bytes, at most `bytes_max` of them, which is not 0.
    pub fn take(&mut self, mut bytes_max: usize) -> Vec<&'a [u8]> {
        let mut taken = Vec::new();
        while let Some(part) = self.rest.pop_front() {
            let (now, later) = part.split_at(part.len().min(bytes_max));
            taken.push(now);
            bytes_max -= now.len();
            if !later.is_empty() {
                self.rest.push_front(later);
            }
            if bytes_max == 0 {
                break;
            }
        }
        taken
    }
}

impl Stream for net::DataStream {
    fn widen(&mut self) {
        net::DataStream::widen(self);
    }

    fn wait_for_data(&mut self) -> io::Result<()> {
        net::DataStream::wait_for_data(self)
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        net::DataStream::send(self, parts)
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        net::DataStream::recv_exact(self, buffer)
    }

    fn close(&mut self) -> io::Result<()> {
        net::DataStream::close(self)
    }

    fn is_broken(&self) -> bool {
        net::DataStream::is_broken(self)
    }

    fn breaker(&self) -> Breaker {
        let aborter = self.aborter();
        Arc::new(move || aborter.abort())
    }

    fn gauge(&self) -> Option<Gauge> {
        let aborter = self.aborter();
        let path = Some((self.local_addr().ip(), self.peer_addr().ip()));
        Some(Arc::new(move || {
            let info = aborter.tcp_info()?;
            let under_way = u64::from(info.unacked_segments) * u64::from(info.mss_bytes);
            let backlog_bytes = u64::from(info.not_sent_bytes) + under_way;
            let own_window = u64::from(info.cwnd_segments) * u64::from(info.mss_bytes);
            let window = match info.send_window_bytes {
                0 => own_window,
                there => own_window.min(there.into()),
            };
            let per_second = |rtt_us: u32| window * 1_000_000 / u64::from(rtt_us.max(1));
            Some(Pulse {
                acknowledged_bytes: info.bytes_acked,
                backlog_bytes,
                window_bytes_per_second: per_second(info.rtt_us),
                alone_bytes_per_second: per_second(info.rtt_us_min),
                path,
                rtt_us_min: info.rtt_us_min,
                last_ack_received_ms: info.last_ack_received_ms,
            })
        }))
    }

    fn send_blocked_ns(&self) -> u64 {
        self.counters().send_blocked_ns
    }

    fn recv_blocked_ns(&self) -> u64 {
        self.counters().recv_blocked_ns
    }
}

/// A lane may have a stream for its time only: whoever lent it reads the counters afterwards.
impl<S: Stream> Stream for &mut S {
    fn announce(&mut self, unit: Unit) {
        (**self).announce(unit);
    }

    fn is_network(&self) -> bool {
        (**self).is_network()
    }

    fn widen(&mut self) {
        (**self).widen();
    }

    fn wait_for_data(&mut self) -> io::Result<()> {
        (**self).wait_for_data()
    }

    fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        (**self).send(parts)
    }

    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        (**self).recv_exact(buffer)
    }

    fn close(&mut self) -> io::Result<()> {
        (**self).close()
    }

    fn is_broken(&self) -> bool {
        (**self).is_broken()
    }

    fn breaker(&self) -> Breaker {
        (**self).breaker()
    }

    fn gauge(&self) -> Option<Gauge> {
        (**self).gauge()
    }

    fn send_blocked_ns(&self) -> u64 {
        (**self).send_blocked_ns()
    }

    fn recv_blocked_ns(&self) -> u64 {
        (**self).recv_blocked_ns()
    }

    fn paced_ns(&self) -> u64 {
        (**self).paced_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_one_another_across_parts_and_nothing_is_lost() {
        let parts: [&[u8]; 4] = [b"abc", b"", b"defgh", b"i"];
        for bytes_max in 1..12 {
            let mut rest = Parts::new(&parts);
            let mut pieces = Vec::new();
            while !rest.is_empty() {
                pieces.push(rest.take(bytes_max).concat());
            }
            assert_eq!(pieces.concat(), b"abcdefghi");
            assert!(pieces.iter().rev().skip(1).all(|piece| piece.len() == bytes_max), "{pieces:?}");
        }
    }
}
