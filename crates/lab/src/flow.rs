//! TCP streams from memory to memory between two hosts: what a link carries, with no foreign tool and no storage in it.
//!
//! Owns: the sockets and threads of one measurement, one thread per stream and side, all gone when it returns.
//!
//! What is received is counted and discarded unread (MSG_TRUNC), because the receiver's copy would take from the emulator
//! the processor that a real receiver has of its own.

mod stream;
mod wanted;

pub use wanted::Flow;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind, Result};
use crate::laboratory::Lab;
use stream::Pair;

/// The interval over which received bytes are counted.
pub const WINDOW: Duration = Duration::from_millis(500);
/// More streams than a laboratory's hosts could serve.
pub const STREAMS_MAX: usize = 256;

/// What arrived.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Received {
    /// Of the counted part.
    pub seconds: f64,
    pub bytes: u64,
    /// Payload bits per second in each half second of the counted part.
    pub windows_bits_per_second: Vec<f64>,
    pub streams: Vec<Stream>,
}

/// One connection at its end, as its sender saw it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stream {
    /// Since its start, the omitted part included.
    pub bytes: u64,
    /// Payload of a full segment.
    pub mss_bytes: u32,
    pub rtt_us: u32,
    pub rtt_us_min: u32,
    pub cwnd_segments: u32,
    pub retransmitted_segments: u32,
    pub delivery_rate_bits_per_second: f64,
}

impl Flow {
    /// Sends from host to host. `at_start` is called when the counted part begins.
    pub fn run(&self, lab: &Lab, from: &str, to: &str, at_start: impl FnOnce()) -> Result<Received> {
        if self.streams == 0 || self.streams > STREAMS_MAX {
            let said = format!("there can be 1 to {STREAMS_MAX}");
            return Err(Error::new(Kind::Refused, "send", format!("{} streams", self.streams), said));
        }
        let pairs = stream::connect(lab, from, to, self)?;
        let is_over = AtomicBool::new(false);
        let counters: Vec<AtomicU64> = pairs.iter().map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for (pair, counter) in pairs.iter().zip(&counters) {
                scope.spawn(|| pair.send(&is_over));
                scope.spawn(|| pair.receive(counter));
            }
            let mut received = self.observe(&counters, at_start);
            received.streams = pairs.iter().zip(&counters).map(|(pair, counter)| state(pair, counter)).collect();
            is_over.store(true, Ordering::Relaxed);
            // Wakes whoever waits for room or for data.
            pairs.iter().for_each(Pair::cut);
            Ok(received)
        })
    }

    fn observe(&self, counters: &[AtomicU64], at_start: impl FnOnce()) -> Received {
        let sum = || counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum::<u64>();
        thread::sleep(self.omitted);
        at_start();
        let (start, first) = (Instant::now(), sum());
        let (mut last_at, mut last, mut windows_bits_per_second) = (start, first, Vec::new());
        while last_at - start < self.duration {
            let due = start + (WINDOW * (windows_bits_per_second.len() as u32 + 1)).min(self.duration);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (now, bytes) = (Instant::now(), sum());
            windows_bits_per_second.push((bytes - last) as f64 * 8.0 / (now - last_at).as_secs_f64());
            (last_at, last) = (now, bytes);
        }
        let seconds = (last_at - start).as_secs_f64();
        Received { seconds, bytes: last - first, windows_bits_per_second, streams: Vec::new() }
    }
}

impl Received {
    pub fn bits_per_second(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.seconds.max(1e-9)
    }

    /// The segment size that the streams used in the end; the smallest, if they differ.
    pub fn mss_bytes(&self) -> u32 {
        self.streams.iter().map(|stream| stream.mss_bytes).min().unwrap_or_default()
    }

    pub fn retransmitted_segments(&self) -> u64 {
        self.streams.iter().map(|stream| u64::from(stream.retransmitted_segments)).sum()
    }
}

fn state(pair: &Pair, counter: &AtomicU64) -> Stream {
    let info = pair.info();
    Stream {
        bytes: counter.load(Ordering::Relaxed),
        mss_bytes: info.mss_bytes,
        rtt_us: info.rtt_us,
        rtt_us_min: info.rtt_us_min,
        cwnd_segments: info.cwnd_segments,
        retransmitted_segments: info.retransmitted_segments,
        delivery_rate_bits_per_second: info.delivery_rate_bytes_per_second as f64 * 8.0,
    }
}
