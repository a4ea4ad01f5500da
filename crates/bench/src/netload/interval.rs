//! What a load did in one interval of its time, and in all of it.

use serde::Serialize;

use super::Way;

/// One stream in one interval, or in all that count.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct StreamInterval {
    pub stream: u32,
    pub way: Way,
    pub bytes: u64,
    pub bits_per_second: f64,
    pub retransmitted_segments: u64,
    pub sent_segments: u64,
    /// At the end of the interval, and so are the next five.
    pub rtt_us: u64,
    pub rtt_us_min: u64,
    pub cwnd_segments: u64,
    pub mss_bytes: u64,
    pub delivery_bits_per_second: f64,
    /// Shares of the interval: with something to send or to be acknowledged; held up by the receiver's window; held up by
    /// the send buffer.
    pub busy_share: f64,
    pub rwnd_limited_share: f64,
    pub sndbuf_limited_share: f64,
}

/// A stream over all that counts.
pub type StreamSummary = StreamInterval;

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Since the start.
    pub from_seconds: f64,
    pub seconds: f64,
    /// Of the part that is left out.
    pub is_omitted: bool,
    pub totals: Vec<Totals>,
    pub streams: Vec<StreamInterval>,
}

/// All streams of one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Totals {
    pub way: Way,
    pub bytes: u64,
    pub bits_per_second: f64,
    pub retransmitted_segments: u64,
    pub sent_segments: u64,
    /// The middle one of the streams.
    pub rtt_us: u64,
    /// The smallest of the streams.
    pub rtt_us_min: u64,
    /// Of the threads that move the bytes; what the kernel does for them in interrupts is not in it.
    pub sender_cpu_seconds: f64,
    pub receiver_cpu_seconds: f64,
}

impl Totals {
    /// Of the segments that left, those that were sent again.
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmitted_segments as f64 / (self.sent_segments.max(1)) as f64
    }

    /// Of both ends; a GB is 10^9 bytes.
    pub fn cpu_seconds_per_gb(&self) -> f64 {
        (self.sender_cpu_seconds + self.receiver_cpu_seconds) / (self.bytes.max(1) as f64 / 1e9)
    }
}
