//! What a laboratory looks like: sites, the links between them, and what each link does to packets.
//!
//! Owns: the checked description that every back end builds from. It comes from a preset (`preset`), a TOML file
//! (`file`) or from code, and `check` refuses what cannot be built.
//!
//! Invariants: a link joins two different nodes; the first of its two directions leads from `ends[0]` to `ends[1]`.
//!
//! Not here: addresses and interfaces (`topology`), and what a back end can do.

pub mod check;
mod error;
pub mod file;
pub mod preset;
pub mod quantity;
mod timeline;

use std::time::Duration;

pub use error::{Error, Kind};

/// Ethernet's share of the wire per packet beyond IP: header 14, checksum 4, preamble 8 and gap 12.
pub const FRAMING_BYTES: u64 = 38;

#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Names the laboratory; letters, digits and `-`.
    pub name: String,
    /// Of every random choice: the same seed gives the same losses.
    pub seed: u64,
    pub mtu_bytes: u32,
    pub host_settings: HostSettings,
    /// Of connections whose program does not choose its own.
    pub congestion_control: String,
    /// None: the best that this host has and that can do what the links ask.
    pub backend: Option<Backend>,
    pub sites: Vec<Site>,
    pub links: Vec<Link>,
}

/// The limits that hosts put on their sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostSettings {
    /// What distributions ship: 6 MiB to receive, 4 MiB to send.
    Stock,
    /// As wide as the longest path needs.
    Tuned,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backend {
    /// The kernel's own emulator, where it is built in.
    Netem,
    /// The kernel queues packets, a thread of ours says when each goes on.
    Nfqueue,
    /// Packets pass through a thread of ours, which may cut, copy and damage them.
    Tun,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    pub name: String,
    pub hosts: u8,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    pub name: String,
    pub ends: [End; 2],
    /// From `ends[0]` to `ends[1]`, and back.
    pub directions: [Impairment; 2],
    pub timeline: Vec<Event>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Index into `Scenario::sites`.
    Site(usize),
    /// The middle of a star: joins the access links of the sites.
    Core,
}

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
    /// Mean number of segments lost in a row; 1: each segment by itself.
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

/// A change of a link at a time counted from the start of the laboratory.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    pub at: Duration,
    /// Taken back after this long; none: it stays.
    pub lasts: Option<Duration>,
    /// Happens again at this interval.
    pub every: Option<Duration>,
    /// Index into `Link::directions`; none: both.
    pub direction: Option<usize>,
    pub change: Change,
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

impl Link {
    pub fn is_between(&self, from: End, to: End) -> Option<usize> {
        match self.ends {
            [a, b] if a == from && b == to => Some(0),
            [a, b] if a == to && b == from => Some(1),
            _ => None,
        }
    }

    pub fn round_trip(&self) -> Duration {
        self.directions.iter().map(|direction| direction.delay).sum()
    }
}

impl Scenario {
    /// The longest round trip of any path over a link: in a star, with the access link of the other site.
    pub fn round_trip_over(&self, link: usize) -> Duration {
        let own = self.links[link].round_trip();
        if !self.links[link].ends.contains(&End::Core) {
            return own;
        }
        let others = self.links.iter().enumerate().filter(|(i, other)| *i != link && other.ends.contains(&End::Core));
        own + others.map(|(_, other)| other.round_trip()).max().unwrap_or_default()
    }

    /// The longest round trip of all.
    pub fn round_trip_max(&self) -> Duration {
        (0..self.links.len()).map(|link| self.round_trip_over(link)).max().unwrap_or_default()
    }
}
