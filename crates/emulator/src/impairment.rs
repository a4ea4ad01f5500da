//! What one direction of a link does to packets, and how that changes.
//!
//! Not here: which links there are and when they change (a scenario of the laboratory), and the models that do it (`schedule`,
//! `error_process`).

use std::time::Duration;

/// Ethernet's share of the wire per packet beyond IP: header 14, checksum 4, preamble 8 and gap 12.
pub const FRAMING_BYTES: u64 = 38;

/// What one direction of a link does to packets. The default does nothing to them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Impairment {
    pub delay: Duration,
    /// Of the wire, Ethernet framing included; none: no limit.
    pub bits_per_second: Option<u64>,
    /// What may wait for the wire before packets are dropped; of no account without a rate.
    pub queue: QueueLimit,
    /// Probability that a segment is lost.
    pub loss: f64,
    /// Mean number of segments lost in a row; 1: losses are independent.
    pub loss_burst_segments: f64,
    /// Standard deviation of the delay.
    pub jitter: Duration,
    /// Whether jitter lets packets overtake each other.
    pub reorder: bool,
    /// Probability that a segment arrives twice.
    pub duplicate: f64,
    /// Probability that a segment arrives with one wrong bit.
    pub corrupt: f64,
    /// Everything that enters is lost.
    pub down: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum QueueLimit {
    Bytes(u64),
    /// Multiples of rate times the longest round trip over this link.
    BandwidthDelayProducts(f64),
}

/// The properties of a direction that change; the others stay.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Change {
    pub delay: Option<Duration>,
    /// `Some(None)` lifts the limit.
    pub bits_per_second: Option<Option<u64>>,
    pub queue: Option<QueueLimit>,
    pub loss: Option<f64>,
    pub loss_burst_segments: Option<f64>,
    pub jitter: Option<Duration>,
    pub reorder: Option<bool>,
    pub duplicate: Option<f64>,
    pub corrupt: Option<f64>,
    pub down: Option<bool>,
}

impl Default for Impairment {
    fn default() -> Self {
        Impairment {
            delay: Duration::ZERO,
            bits_per_second: None,
            queue: QueueLimit::BandwidthDelayProducts(1.0),
            loss: 0.0,
            loss_burst_segments: 1.0,
            jitter: Duration::ZERO,
            reorder: false,
            duplicate: 0.0,
            corrupt: 0.0,
            down: false,
        }
    }
}

impl Impairment {
    pub fn with(self, change: &Change) -> Impairment {
        Impairment {
            delay: change.delay.unwrap_or(self.delay),
            bits_per_second: change.bits_per_second.unwrap_or(self.bits_per_second),
            queue: change.queue.unwrap_or(self.queue),
            loss: change.loss.unwrap_or(self.loss),
            loss_burst_segments: change.loss_burst_segments.unwrap_or(self.loss_burst_segments),
            jitter: change.jitter.unwrap_or(self.jitter),
            reorder: change.reorder.unwrap_or(self.reorder),
            duplicate: change.duplicate.unwrap_or(self.duplicate),
            corrupt: change.corrupt.unwrap_or(self.corrupt),
            down: change.down.unwrap_or(self.down),
        }
    }

    /// Bytes of the wire, framing included, that may wait. A limit in products is at least `QUEUE_BYTES_MIN`.
    pub fn queue_bytes(&self, round_trip: Duration) -> u64 {
        match self.queue {
            QueueLimit::Bytes(bytes) => bytes,
            QueueLimit::BandwidthDelayProducts(products) => {
                let rate = self.bits_per_second.unwrap_or(0) as f64 / 8.0;
                ((products * rate * round_trip.as_secs_f64()) as u64).max(QUEUE_BYTES_MIN)
            }
        }
    }
}

/// What a queue given in products holds at least: over a short path one product is less than one aggregate of a sender.
pub const QUEUE_BYTES_MIN: u64 = 128 << 10;

impl Change {
    /// What turns one impairment into another.
    pub fn between(from: &Impairment, to: &Impairment) -> Change {
        fn changed<T: PartialEq + Copy>(from: T, to: T) -> Option<T> {
            (from != to).then_some(to)
        }
        Change {
            delay: changed(from.delay, to.delay),
            bits_per_second: changed(from.bits_per_second, to.bits_per_second),
            queue: changed(from.queue, to.queue),
            loss: changed(from.loss, to.loss),
            loss_burst_segments: changed(from.loss_burst_segments, to.loss_burst_segments),
            jitter: changed(from.jitter, to.jitter),
            reorder: changed(from.reorder, to.reorder),
            duplicate: changed(from.duplicate, to.duplicate),
            corrupt: changed(from.corrupt, to.corrupt),
            down: changed(from.down, to.down),
        }
    }
}
