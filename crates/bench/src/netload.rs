//! What a path carries from memory to memory: TCP streams, clear or sealed like a transfer's, measured at both ends.
//!
//! One thread for each stream and end. The rate is the receiver's: bytes that its program took within its own window of
//! time. The sender's kernel says why it was not more (TCP_INFO), at every interval and for every stream.
//!
//! Invariants:
//! - What a peer can make an end hold or do is bounded: streams, intervals, message lengths, time.
//! - Both ends cut the same run at the same moments ([`Load::moments`]), each by its own clock from the start on.
//! - Keys are made for one run and thrown away. The peer is not authenticated and the payload is noise: sealing costs
//!   here what it costs a transfer, and protects nothing.
//!
//! Not here: printing; storage; the decision what a good rate is.

mod protocol;
mod control;
mod counters;
mod interval;
mod lane;
mod measure;
mod server;
mod client;
mod outcome;
mod slowdown;
mod laboratory;
mod stability;
mod bundle;
mod picture;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use bundle::write;
pub use client::{Event, run};
pub use interval::{Interval, StreamInterval, StreamSummary, Totals};
pub use laboratory::{Hosts, run_in};
pub use outcome::{Outcome, Peers};
pub use server::{Limits, Served, Server};
pub use slowdown::{Slowdown, Trouble};
pub use stability::{Stability, Thresholds, stability_in};

/// Where [`Server`] listens and [`run`] dials when no port is named: the one after an endpoint's.
pub const PORT_DEFAULT: u16 = 7741;
/// Threads of one end; a thousand connections are the most that a published curve asks for.
pub const STREAMS_MAX: u32 = 1024;
pub const BLOCK_BYTES_DEFAULT: u32 = 128 << 10;
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Blocks of all streams of a load together: a stranger may ask for them.
const BLOCKS_BYTES_MAX: u64 = 256 << 20;
const SECONDS_MAX: u64 = 86_400;
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Intervals times streams: about 100 bytes each are kept until the end.
const CELLS_MAX: u64 = 2_000_000;

/// Which way the payload goes, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From client to server.
    Forward,
    /// From server to client.
    Reverse,
    /// Both at once, each with its own streams.
    Both,
}

/// One of the two ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Forward,
    Reverse,
}

/// What is asked of both ends.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// In each direction.
    pub streams: u32,
    /// Of the counted part.
    pub duration: Duration,
    /// Sent before that, and not counted: slow start, if it is to be left out.
    pub omitted: Duration,
    pub interval: Duration,
    pub direction: Direction,
    /// By the kernel's name; None: the system's default of the sending end.
    pub congestion: Option<String>,
    /// Of each stream.
    pub pacing_bits_per_second: Option<u64>,
    /// With the record layer, cipher and handshake of a transfer.
    pub is_encrypted: bool,
    /// What one call sends.
    pub block_bytes: u32,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            streams: 1,
            duration: Duration::from_secs(10),
            omitted: Duration::ZERO,
            interval: Duration::from_secs(1),
            direction: Direction::Forward,
            congestion: None,
            pacing_bits_per_second: None,
            is_encrypted: false,
            block_bytes: BLOCK_BYTES_DEFAULT,
        }
    }
}

impl Load {
    /// What is wrong with it, for a person; both ends ask, because the other one may be anybody.
    pub fn check(&self) -> Result<(), String> {
        let most = Duration::from_secs(SECONDS_MAX);
        if !(1..=STREAMS_MAX).contains(&self.streams) {
            return Err(format!("{} streams: there can be 1 to {STREAMS_MAX}", self.streams));
        }
        // Each alone first: the sum of what a stranger asks for may overflow.
        let is_long = [self.duration, self.omitted].iter().any(|part| *part > most);
        if self.duration.is_zero() || is_long || self.duration + self.omitted > most {
            return Err(format!("a run, and the part left out of it, lasts more than 0 and at most {SECONDS_MAX} s"));
        }
        if self.interval < INTERVAL_MIN || self.interval > most {
            return Err(format!("an interval lasts {} to {SECONDS_MAX} s", INTERVAL_MIN.as_secs_f64()));
        }
        if self.cells() > CELLS_MAX {
            return Err(format!("{} intervals times streams are too many (at most {CELLS_MAX})", self.cells()));
        }
        if !(1..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return Err(format!("a block has 1 to {BLOCK_BYTES_MAX} bytes"));
        }
        if self.streams as u64 * u64::from(self.block_bytes) > BLOCKS_BYTES_MAX {
            return Err(format!("the blocks of all streams together exceed {BLOCKS_BYTES_MAX} bytes"));
        }
        // The kernel's limit for a name, its end included, is 16.
        let is_name = |name: &str| (1..16).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if self.congestion.as_deref().is_some_and(|name| !is_name(name)) {
            return Err("a congestion control's name has 1 to 15 printable characters".into());
        }
        if self.pacing_bits_per_second.is_some_and(|rate| rate < 8_000) {
            return Err("pacing begins at 8 kbit/s".into());
        }
        Ok(())
    }

    /// When both ends look at their counters, from the start on. The end of the omitted part is one of them.
    pub fn moments(&self) -> Vec<Moment> {
        let mut moments = vec![Duration::ZERO];
        for (from, length) in [(Duration::ZERO, self.omitted), (self.omitted, self.duration)] {
            let mut passed = Duration::ZERO;
            while passed < length {
                passed = (passed + self.interval).min(length);
                moments.push(from + passed);
            }
        }
        moments.into_iter().map(|at| Moment { at, is_counted: at > self.omitted }).collect()
    }

    pub(crate) fn lanes(&self) -> u32 {
        self.streams * if self.direction == Direction::Both { 2 } else { 1 }
    }

    /// Lanes of both directions are numbered through, forward first.
    pub(crate) fn way(&self, lane: u32) -> Way {
        match self.direction {
            Direction::Forward => Way::Forward,
            Direction::Reverse => Way::Reverse,
            Direction::Both if lane < self.streams => Way::Forward,
            Direction::Both => Way::Reverse,
        }
    }

    pub(crate) fn total(&self) -> Duration {
        self.omitted + self.duration
    }

    fn cells(&self) -> u64 {
        let nanoseconds = self.interval.as_nanos().max(1);
        let intervals = self.omitted.as_nanos().div_ceil(nanoseconds) + self.duration.as_nanos().div_ceil(nanoseconds);
        u64::try_from(intervals).unwrap_or(u64::MAX).saturating_mul(u64::from(self.lanes()))
    }
}

/// A moment at which counters are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Since the start.
    pub at: Duration,
    /// Whether the interval that ends here counts.
    pub is_counted: bool,
}

#[cfg(test)]
mod tests;
