//! What both ends saw, joined: intervals while a run lasts, and totals for streams and directions at its end.
//!
//! Bytes and rates are the receiver's, by its clock; everything else is the sender's.

use std::time::Duration;

use super::counters::Counters;
use super::interval::{Interval, StreamInterval, StreamSummary, Totals};
use super::measure::Sample;
use super::slowdown::{Slowdown, slowdowns};
use super::{Direction, Load, Moment, Way};

/// Who the two ends are and what they use.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Peers {
    pub address: String,
    pub client_kernel: String,
    pub server_kernel: String,
    /// Of the client's sending connections, and of the server's; those that the load does not use are named too.
    pub client_congestion: String,
    pub server_congestion: String,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    pub load: Load,
    pub peers: Peers,
    /// Of the counted part, by the receiver's clock.
    pub seconds: f64,
    /// One for each direction.
    pub totals: Vec<Totals>,
    pub streams: Vec<StreamSummary>,
    pub intervals: Vec<Interval>,
    pub slowdowns: Vec<Slowdown>,
    /// Why the figures say more about the laboratory than about what it stands for; empty outside laboratories.
    pub void: Vec<String>,
}

impl Outcome {
    /// Of all directions.
    pub fn bits_per_second(&self) -> f64 {
        self.totals.iter().map(|totals| totals.bits_per_second).sum()
    }
}

/// The samples of both ends so far.
pub struct Series {
    load: Load,
    last: Option<[Sample; 2]>,
    /// At the end of the part that is left out.
    base: Option<[Sample; 2]>,
    intervals: Vec<Interval>,
}

impl Series {
    pub fn new(load: Load) -> Series {
        Series { load, last: None, base: None, intervals: Vec::new() }
    }

    /// Adds what both ends say about one moment; gives the interval that it ends.
    pub fn add(&mut self, of_client: Sample, of_server: Sample, moment: Moment) -> Option<&Interval> {
        let now = [of_client, of_server];
        if !moment.is_counted {
            self.base = Some(now.clone());
        }
        let last = self.last.replace(now)?;
        let now = self.last.as_ref()?;
        let streams = streams(&self.load, &last, now);
        let at = moment.at.as_secs_f64();
        let seconds = self.intervals.last().map_or(at, |interval| at - interval.from_seconds - interval.seconds);
        self.intervals.push(Interval {
            from_seconds: at - seconds,
            seconds,
            is_omitted: !moment.is_counted,
            totals: totals(&self.load, &last, now, &streams),
            streams,
        });
        self.intervals.last()
    }

    pub fn finish(self, peers: Peers) -> Outcome {
        let (base, last) = (self.base.unwrap_or_default(), self.last.unwrap_or_default());
        let streams = streams(&self.load, &base, &last);
        let receiver = if self.load.direction == Direction::Reverse { 0 } else { 1 };
        Outcome {
            seconds: elapsed(&base[receiver], &last[receiver]).as_secs_f64(),
            totals: totals(&self.load, &base, &last, &streams),
            slowdowns: slowdowns(&self.intervals, &streams),
            streams,
            intervals: self.intervals,
            void: Vec::new(),
            peers,
            load: self.load,
        }
    }
}

/// Which of client (0) and server (1) send in this direction, and which receive.
fn ends(way: Way) -> (usize, usize) {
    match way {
        Way::Forward => (0, 1),
        Way::Reverse => (1, 0),
    }
}

/// As written in tables and files.
pub(super) fn name(way: Way) -> &'static str {
    match way {
        Way::Forward => "forward",
        Way::Reverse => "reverse",
    }
}

fn elapsed(from: &Sample, to: &Sample) -> Duration {
    Duration::from_micros(to.elapsed_us.saturating_sub(from.elapsed_us))
}

fn change(from: &Sample, to: &Sample, lane: u32) -> Counters {
    let of = |sample: &Sample| sample.lanes.get(lane as usize).copied().unwrap_or_default();
    of(to).since(&of(from))
}

fn streams(load: &Load, from: &[Sample; 2], to: &[Sample; 2]) -> Vec<StreamInterval> {
    let one = |lane| {
        let way = load.way(lane);
        let (sender, receiver) = ends(way);
        let sent = change(&from[sender], &to[sender], lane);
        let bytes = change(&from[receiver], &to[receiver], lane).bytes;
        let sender_us = (elapsed(&from[sender], &to[sender]).as_micros() as f64).max(1.0);
        let share = |us: u64| (us as f64 / sender_us).min(1.0);
        StreamInterval {
            stream: lane,
            way,
            bytes,
            bits_per_second: bytes as f64 * 8.0 / elapsed(&from[receiver], &to[receiver]).as_secs_f64().max(1e-6),
            retransmitted_segments: sent.retransmitted_segments,
            sent_segments: sent.sent_segments,
            rtt_us: sent.rtt_us,
            rtt_us_min: sent.rtt_us_min,
            cwnd_segments: sent.cwnd_segments,
            mss_bytes: sent.mss_bytes,
            delivery_bits_per_second: sent.delivery_bytes_per_second as f64 * 8.0,
            busy_share: share(sent.busy_us),
            rwnd_limited_share: share(sent.rwnd_limited_us),
            sndbuf_limited_share: share(sent.sndbuf_limited_us),
        }
    };
    (0..load.lanes()).map(one).collect()
}

fn totals(load: &Load, from: &[Sample; 2], to: &[Sample; 2], streams: &[StreamInterval]) -> Vec<Totals> {
    let ways: &[Way] = match load.direction {
        Direction::Forward => &[Way::Forward],
        Direction::Reverse => &[Way::Reverse],
        Direction::Both => &[Way::Forward, Way::Reverse],
    };
    let one = |way: &Way| {
        let (sender, receiver) = ends(*way);
        let of_way: Vec<&StreamInterval> = streams.iter().filter(|stream| stream.way == *way).collect();
        let sum = |of: fn(&StreamInterval) -> u64| of_way.iter().map(|stream| of(stream)).sum::<u64>();
        let cpu = |end: usize| {
            let us: u64 = of_way.iter().map(|stream| change(&from[end], &to[end], stream.stream).cpu_us).sum();
            us as f64 / 1e6
        };
        let mut rtts_us: Vec<u64> = of_way.iter().map(|stream| stream.rtt_us).collect();
        rtts_us.sort_unstable();
        Totals {
            way: *way,
            bytes: sum(|stream| stream.bytes),
            bits_per_second: of_way.iter().map(|stream| stream.bits_per_second).sum(),
            retransmitted_segments: sum(|stream| stream.retransmitted_segments),
            sent_segments: sum(|stream| stream.sent_segments),
            rtt_us: rtts_us.get(rtts_us.len() / 2).copied().unwrap_or(0),
            rtt_us_min: of_way.iter().map(|stream| stream.rtt_us_min).min().unwrap_or(0),
            sender_cpu_seconds: cpu(sender),
            receiver_cpu_seconds: cpu(receiver),
        }
    };
    ways.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(number: u32, seconds: u64, bytes: u64, retransmitted_segments: u64) -> Sample {
        let lane = Counters { bytes, retransmitted_segments, busy_us: seconds * 500_000, ..Counters::default() };
        Sample { number, elapsed_us: seconds * 1_000_000, lanes: vec![lane], broken: vec![] }
    }

    #[test]
    fn the_rate_is_the_receivers_and_what_is_left_out_does_not_count() {
        let load = Load { duration: Duration::from_secs(2), omitted: Duration::from_secs(1), ..Load::default() };
        let mut series = Series::new(load.clone());
        for (number, (moment, received)) in load.moments().into_iter().zip([0, 10, 135, 260]).enumerate() {
            let seconds = moment.at.as_secs();
            let sent = sample(number as u32, seconds, received * 2, seconds * 3);
            series.add(sent, sample(number as u32, seconds, received, 0), moment);
        }
        let outcome = series.finish(Peers::default());
        assert_eq!((outcome.totals[0].bytes, outcome.seconds), (250, 2.0));
        assert_eq!(outcome.bits_per_second(), 1000.0);
        assert_eq!((outcome.totals[0].retransmitted_segments, outcome.streams[0].busy_share), (6, 0.5));
        let shown: Vec<_> =
            outcome.intervals.iter().map(|i| (i.from_seconds, i.is_omitted, i.totals[0].bytes)).collect();
        assert_eq!(shown, [(0.0, true, 10), (1.0, false, 125), (2.0, false, 125)]);
    }

    #[test]
    fn a_run_without_an_omitted_part_counts_from_its_first_moment() {
        let load = Load { duration: Duration::from_secs(1), direction: Direction::Reverse, ..Load::default() };
        let mut series = Series::new(load.clone());
        for (number, moment) in load.moments().into_iter().enumerate() {
            let received = sample(number as u32, moment.at.as_secs(), 7 + 100 * number as u64, 0);
            series.add(received, sample(number as u32, moment.at.as_secs(), 9999, 1), moment);
        }
        assert_eq!(series.finish(Peers::default()).totals[0].bytes, 100);
    }
}
