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

pub use emulator::impairment::{Change, FRAMING_BYTES, Impairment, QueueLimit};
pub use error::{Error, Kind};
pub use file::parse_changes;

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
    /// Of one processor, for what runs on each of its hosts; none: whatever the machine has.
    pub processor_percent: Option<u32>,
    /// What each of its hosts may send, and receive.
    pub host_bits_per_second: Option<u64>,
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
