//! Intervals in which a stream stood still or fell far below its usual rate, and the likely cause of each.
//!
//! The cause is what the sender's kernel says about the same interval; where it says nothing, neither does this.

use serde::Serialize;

use super::Way;
use super::interval::{Interval, StreamInterval, StreamSummary};

/// Below this share of the stream's mean rate an interval is a dip.
const DIP_SHARE: f64 = 0.5;
/// More than this share of an interval spent waiting for something makes that the cause.
const CAUSE_SHARE: f64 = 0.4;
/// What is listed in full of a run that goes badly everywhere.
const SLOWDOWNS_MAX: usize = 10_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// Not a byte arrived.
    Stall,
    /// Less than half of the stream's mean rate arrived.
    Dip,
}

/// Consecutive intervals of one stream.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Slowdown {
    pub stream: u32,
    pub way: Way,
    pub trouble: Trouble,
    pub from_seconds: f64,
    pub seconds: f64,
    /// In the first of the intervals.
    pub cause: String,
}

/// In the part that counts, by stream.
pub fn slowdowns(intervals: &[Interval], summaries: &[StreamSummary]) -> Vec<Slowdown> {
    let mut found: Vec<Slowdown> = Vec::new();
    for (index, summary) in summaries.iter().enumerate() {
        let mut is_continued = false;
        for interval in intervals.iter().filter(|interval| !interval.is_omitted) {
            let Some(stream) = interval.streams.get(index) else { continue };
            let Some(trouble) = trouble(stream, summary) else {
                is_continued = false;
                continue;
            };
            let is_full = found.len() == SLOWDOWNS_MAX;
            match found.last_mut() {
                Some(last) if is_continued && last.trouble == trouble => last.seconds += interval.seconds,
                _ if is_full => return found,
                _ => found.push(Slowdown {
                    stream: stream.stream,
                    way: stream.way,
                    trouble,
                    from_seconds: interval.from_seconds,
                    seconds: interval.seconds,
                    cause: cause(stream),
                }),
            }
            is_continued = true;
        }
    }
    found
}

fn trouble(stream: &StreamInterval, summary: &StreamSummary) -> Option<Trouble> {
    if stream.bytes == 0 {
        return Some(Trouble::Stall);
    }
    (stream.bits_per_second < DIP_SHARE * summary.bits_per_second).then_some(Trouble::Dip)
}

fn cause(stream: &StreamInterval) -> String {
    let percent = |share: f64| format!("{:.0} % of the time", share * 100.0);
    if stream.rwnd_limited_share > CAUSE_SHARE {
        return format!("the receiver held it up: its window was full {}", percent(stream.rwnd_limited_share));
    }
    if stream.retransmitted_segments > 0 {
        let share = stream.retransmitted_segments as f64 / stream.sent_segments.max(1) as f64 * 100.0;
        return format!(
            "loss: {} of {} segments were retransmitted ({share:.1} %), window {} segments",
            stream.retransmitted_segments, stream.sent_segments, stream.cwnd_segments
        );
    }
    if stream.sndbuf_limited_share > CAUSE_SHARE {
        return format!("the send buffer was too small {}", percent(stream.sndbuf_limited_share));
    }
    if stream.busy_share < 1.0 - CAUSE_SHARE {
        return format!("the sender had nothing under way {}", percent(1.0 - stream.busy_share));
    }
    if stream.rtt_us > 2 * stream.rtt_us_min.max(1) {
        let (rtt_ms, rtt_ms_min) = (stream.rtt_us as f64 / 1e3, stream.rtt_us_min as f64 / 1e3);
        return format!("a queue on the way: round trip {rtt_ms:.1} ms, at best {rtt_ms_min:.1} ms");
    }
    format!("the network, or other streams: window {} segments, nothing retransmitted", stream.cwnd_segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(bytes: u64) -> StreamInterval {
        StreamInterval {
            stream: 0,
            way: Way::Forward,
            bytes,
            bits_per_second: bytes as f64 * 8.0,
            retransmitted_segments: 0,
            sent_segments: 100,
            rtt_us: 1000,
            rtt_us_min: 900,
            cwnd_segments: 10,
            mss_bytes: 1448,
            delivery_bits_per_second: 0.0,
            busy_share: 1.0,
            rwnd_limited_share: 0.0,
            sndbuf_limited_share: 0.0,
        }
    }

    fn interval(from_seconds: f64, stream: StreamInterval, is_omitted: bool) -> Interval {
        Interval { from_seconds, seconds: 1.0, is_omitted, totals: vec![], streams: vec![stream] }
    }

    #[test]
    fn neighbouring_stalls_are_one_and_the_omitted_part_has_none() {
        let stalled = StreamInterval { retransmitted_segments: 2, ..stream(0) };
        let intervals = [
            interval(0.0, stalled, true),
            interval(1.0, stream(100), false),
            interval(2.0, stalled, false),
            interval(3.0, stalled, false),
            interval(4.0, stream(100), false),
            interval(5.0, stream(10), false),
        ];
        let found = slowdowns(&intervals, &[stream(100)]);
        let shown: Vec<_> = found.iter().map(|s| (s.trouble, s.from_seconds, s.seconds)).collect();
        assert_eq!(shown, [(Trouble::Stall, 2.0, 2.0), (Trouble::Dip, 5.0, 1.0)]);
        assert!(found[0].cause.starts_with("loss: 2 of 100"), "{}", found[0].cause);
    }

    #[test]
    fn each_cause_is_told_from_what_the_kernel_says() {
        for (stream, said) in [
            (StreamInterval { rwnd_limited_share: 0.9, retransmitted_segments: 1, ..stream(0) }, "the receiver"),
            (StreamInterval { sndbuf_limited_share: 0.5, ..stream(0) }, "the send buffer"),
            (StreamInterval { busy_share: 0.1, ..stream(0) }, "the sender had nothing"),
            (StreamInterval { rtt_us: 9000, ..stream(0) }, "a queue on the way"),
            (stream(0), "the network"),
        ] {
            assert!(cause(&stream).starts_with(said), "{}", cause(&stream));
        }
    }
}
