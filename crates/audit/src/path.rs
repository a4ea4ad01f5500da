//! What a path asks of a host, and the formulas that findings cite.
//!
//! - Bandwidth-delay product: `BDP = rate x RTT`, the bytes under way when a path is full (RFC 1072 section 1, RFC 7323
//!   section 1.1).
//! - One stream carries at most `window / RTT`; n streams carry n times as much.
//! - Of a socket's buffer about half is payload (`net.ipv4.tcp_adv_win_scale` = 1 and, since Linux 6.6, the socket's own
//!   ratio, which starts there; a send buffer was measured between 47 % and 71 %): `window = buffer / 2`.

use model::quantity::{ByteCount, Rate};
use std::time::Duration;

/// The bytes of buffer that hold one byte under way.
const BUFFER_BYTES_PER_WINDOW_BYTE: u64 = 2;
/// The most streams that a transfer opens unless told otherwise.
pub const STREAMS_MAX: u64 = 64;
/// Published advice for hosts that move data: never less.
const BUFFER_BYTES_MIN: u64 = 16 << 20;
/// The kernel keeps these limits as signed 32-bit numbers.
const BUFFER_BYTES_MAX: u64 = 1 << 30;

/// A path with the source of each figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Path {
    pub bits_per_second: u64,
    /// `assumed`, `the link of eth0`, `--rate`.
    pub rate_from: String,
    pub rtt: Duration,
    pub rtt_from: String,
}

impl Default for Path {
    /// A long path at the rate of an ordinary data link, where nothing better is known.
    fn default() -> Path {
        Path {
            bits_per_second: 10_000_000_000,
            rate_from: "assumed".into(),
            rtt: Duration::from_millis(100),
            rtt_from: "assumed".into(),
        }
    }
}

impl Path {
    /// Bytes under way when the path is full.
    pub fn bdp_bytes(&self) -> u64 {
        (self.bits_per_second as f64 / 8.0 * self.rtt.as_secs_f64()).ceil() as u64
    }

    /// What one stream carries with a buffer of this ceiling.
    pub fn stream_bits_per_second(&self, buffer_bytes: u64) -> u64 {
        let window_bytes = buffer_bytes / BUFFER_BYTES_PER_WINDOW_BYTE;
        let rate = window_bytes as f64 * 8.0 / self.rtt.as_secs_f64().max(1e-6);
        rate.min(1e15) as u64
    }

    /// Streams that fill the path together.
    pub fn streams(&self, buffer_bytes: u64) -> u64 {
        self.bits_per_second.div_ceil(self.stream_bits_per_second(buffer_bytes).max(1)).max(1)
    }

    /// The ceiling with which one stream fills the path, within what the host's memory can spare.
    pub fn buffer_bytes(&self, memory_bytes: Option<u64>) -> u64 {
        let wanted = (self.bdp_bytes() * BUFFER_BYTES_PER_WINDOW_BYTE).next_power_of_two();
        let spare = memory_bytes.map_or(BUFFER_BYTES_MAX, |bytes| 1 << (bytes / 16).max(1).ilog2());
        wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX).min(spare.max(BUFFER_BYTES_MIN))
    }

    /// `10.0 Gbit/s (assumed) over 100 ms (measured)`.
    pub fn text(&self) -> String {
        let rtt_ms = self.rtt.as_secs_f64() * 1000.0;
        let rtt = if rtt_ms < 10.0 { format!("{rtt_ms:.2} ms") } else { format!("{rtt_ms:.0} ms") };
        format!("{} ({}) over {rtt} ({})", rate(self.bits_per_second), self.rate_from, self.rtt_from)
    }

    pub fn bdp_text(&self) -> String {
        format!("{} are under way when it is full (BDP = rate x RTT)", ByteCount(self.bdp_bytes()))
    }
}

pub fn rate(bits_per_second: u64) -> Rate {
    Rate { bytes_per_second: bits_per_second as f64 / 8.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(gigabits: u64, rtt_ms: u64) -> Path {
        Path { bits_per_second: gigabits * 1_000_000_000, rtt: Duration::from_millis(rtt_ms), ..Path::default() }
    }

    #[test]
    fn the_product_and_its_consequences() {
        assert_eq!(path(10, 74).bdp_bytes(), 92_500_000);
        assert_eq!(path(100, 100).bdp_bytes(), 1_250_000_000);
        // The usual 4 MiB at 100 ms: 2 MiB under way.
        assert_eq!(path(10, 100).stream_bits_per_second(4 << 20), 167_772_160);
        assert_eq!(path(10, 100).streams(4 << 20), 60);
        assert_eq!(path(1, 0).streams(4 << 20), 1);
    }

    #[test]
    fn two_paths_ask_for_two_ceilings() {
        assert_eq!(path(10, 74).buffer_bytes(None), 256 << 20);
        assert_eq!(path(1, 10).buffer_bytes(None), 16 << 20);
        assert_eq!(path(100, 100).buffer_bytes(None), 1 << 30);
        assert_eq!(path(100, 100).buffer_bytes(Some(4 << 30)), 256 << 20, "a sixteenth of the memory");
        assert_eq!(path(100, 100).buffer_bytes(Some(64 << 20)), 16 << 20);
    }
}
