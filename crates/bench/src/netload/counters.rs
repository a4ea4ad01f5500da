//! What one end counts of a stream.

use net::TcpInfo;
use serde::{Deserialize, Serialize};

/// What one end knows of one stream, since its start unless said otherwise. Travels as an array, to disturb little.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(from = "[u64; 14]", into = "[u64; 14]")]
pub struct Counters {
    /// Taken by the receiving program, or given to the kernel by the sending one.
    pub bytes: u64,
    /// Of the thread that moves the bytes.
    pub cpu_us: u64,
    /// From here on only the sender knows.
    pub retransmitted_segments: u64,
    pub retransmitted_bytes: u64,
    pub sent_segments: u64,
    pub sent_bytes: u64,
    pub busy_us: u64,
    pub rwnd_limited_us: u64,
    pub sndbuf_limited_us: u64,
    /// Of the moment, and so are all that follow.
    pub rtt_us: u64,
    pub rtt_us_min: u64,
    pub cwnd_segments: u64,
    pub mss_bytes: u64,
    pub delivery_bytes_per_second: u64,
}

/// A stream of 400 Gbit/s does not reach it in the longest run, and the sum over 1,024 streams fits into 64 bits.
const COUNT_MAX: u64 = 1 << 52;

impl Counters {
    /// Whether a stream can come to that: a peer may say anything.
    pub fn can_be(&self) -> bool {
        <[u64; 14]>::from(*self).iter().all(|count| *count <= COUNT_MAX)
    }

    pub fn of(info: &TcpInfo) -> Counters {
        Counters {
            bytes: 0,
            cpu_us: 0,
            retransmitted_segments: info.retransmitted_segments_total.into(),
            retransmitted_bytes: info.bytes_retransmitted,
            sent_segments: info.segments_sent.into(),
            sent_bytes: info.bytes_sent,
            busy_us: info.busy_us,
            rwnd_limited_us: info.rwnd_limited_us,
            sndbuf_limited_us: info.sndbuf_limited_us,
            rtt_us: info.rtt_us.into(),
            rtt_us_min: info.rtt_us_min.into(),
            cwnd_segments: info.cwnd_segments.into(),
            mss_bytes: info.mss_bytes.into(),
            delivery_bytes_per_second: info.delivery_rate_bytes_per_second,
        }
    }

    /// What was added since `earlier`; what is of the moment stays.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            cpu_us: self.cpu_us.saturating_sub(earlier.cpu_us),
            retransmitted_segments: self.retransmitted_segments.saturating_sub(earlier.retransmitted_segments),
            retransmitted_bytes: self.retransmitted_bytes.saturating_sub(earlier.retransmitted_bytes),
            sent_segments: self.sent_segments.saturating_sub(earlier.sent_segments),
            sent_bytes: self.sent_bytes.saturating_sub(earlier.sent_bytes),
            busy_us: self.busy_us.saturating_sub(earlier.busy_us),
            rwnd_limited_us: self.rwnd_limited_us.saturating_sub(earlier.rwnd_limited_us),
            sndbuf_limited_us: self.sndbuf_limited_us.saturating_sub(earlier.sndbuf_limited_us),
            ..*self
        }
    }
}

impl From<Counters> for [u64; 14] {
    fn from(c: Counters) -> [u64; 14] {
        [
            c.bytes,
            c.cpu_us,
            c.retransmitted_segments,
            c.retransmitted_bytes,
            c.sent_segments,
            c.sent_bytes,
            c.busy_us,
            c.rwnd_limited_us,
            c.sndbuf_limited_us,
            c.rtt_us,
            c.rtt_us_min,
            c.cwnd_segments,
            c.mss_bytes,
            c.delivery_bytes_per_second,
        ]
    }
}

impl From<[u64; 14]> for Counters {
    fn from(values: [u64; 14]) -> Counters {
        let [
            bytes,
            cpu_us,
            retransmitted_segments,
            retransmitted_bytes,
            sent_segments,
            sent_bytes,
            busy_us,
            rwnd_limited_us,
            sndbuf_limited_us,
            rtt_us,
            rtt_us_min,
            cwnd_segments,
            mss_bytes,
            delivery_bytes_per_second,
        ] = values;
        Counters {
            bytes,
            cpu_us,
            retransmitted_segments,
            retransmitted_bytes,
            sent_segments,
            sent_bytes,
            busy_us,
            rwnd_limited_us,
            sndbuf_limited_us,
            rtt_us,
            rtt_us_min,
            cwnd_segments,
            mss_bytes,
            delivery_bytes_per_second,
        }
    }
}
