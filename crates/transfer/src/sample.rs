//! A moment of a transfer: how much is done, how fast it goes, what limits it, and when it will be over.
//!
//! Not here: counting (`mover::progress`), judging (`plan`), and showing it.

use crate::ended::nothing_moved;
use crate::route::Direction;
use model::progress::{Behind, Bottleneck, Counts, Fill, LaneTimes, StreamFacts};
use model::quantity::{ByteCount, Rate};
use mover::Snapshot;
use plan::{Amounts, Observed};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// The present rate is that of the last few seconds: shorter jumps, longer lags.
const WINDOW: Duration = Duration::from_secs(4);

/// A moment of a transfer, with what can be concluded from the moments before.
#[derive(Clone, Debug)]
pub struct Sample {
    pub counts: Counts,
    pub is_listing_complete: bool,
    pub seconds: f64,
    pub streams: u32,
    pub rate_now: Rate,
    pub rate_average: Rate,
    pub files_per_second: f64,
    pub seconds_left: Option<f64>,
    /// Of the last few seconds.
    pub bottleneck: Bottleneck,
    /// Where the source is followed.
    pub behind: Option<Behind>,
    /// Where a buffer is used.
    pub legs: Option<Legs>,
}

/// The legs of a transfer with buffers: from the source to the network, over the network, and to the destination's storage.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Legs {
    pub source: Fill,
    pub destination: Fill,
    /// Of the last few seconds, in the order above.
    pub rates: [Rate; 3],
    /// The one that limits the others.
    pub limit: Option<&'static str>,
}

/// `read at 1.20 Gbit/s, stored at 800 Mbit/s, 3.00 GiB of 20.0 GiB waiting at the source`.
impl fmt::Display for Legs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [read, _, stored] = self.rates;
        write!(f, "read at {read}, stored at {stored}")?;
        for (fill, side) in [(self.source, "source"), (self.destination, "destination")] {
            if fill.capacity_bytes > 0 {
                let (waiting, all) = (ByteCount(fill.waiting_bytes), ByteCount(fill.capacity_bytes));
                write!(f, ", {waiting} of {all} waiting at the {side}")?;
            }
        }
        Ok(())
    }
}

impl Sample {
    /// Of what somebody else counts.
    pub fn told(counts: Counts, is_listing_complete: bool, rate: Rate, time: Duration) -> Sample {
        Sample {
            counts,
            is_listing_complete,
            seconds: time.as_secs_f64(),
            streams: 0,
            rate_now: rate,
            rate_average: rate,
            files_per_second: 0.0,
            seconds_left: None,
            bottleneck: nothing_moved(),
            behind: None,
            legs: None,
        }
    }

    /// What limits it at the moment, and how far each leg is where there are buffers.
    pub fn pace(&self) -> String {
        let legs = self.legs.as_ref().map(ToString::to_string).unwrap_or_default();
        let texts = [self.bottleneck.sentence.clone(), legs];
        texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Bytes that are at the destination or on their way to it.
    pub fn reached_bytes(&self) -> u64 {
        reached(&self.counts)
    }
}

/// The snapshots of the last few seconds.
pub struct History {
    direction: Direction,
    snapshots: VecDeque<Snapshot>,
}

impl History {
    pub fn new(direction: Direction) -> History {
        History { direction, snapshots: VecDeque::new() }
    }

    pub fn sample(&mut self, now: Snapshot) -> Sample {
        // The oldest one that is kept is the last that lies outside the window.
        while self.snapshots.get(1).is_some_and(|second| now.elapsed.saturating_sub(second.elapsed) >= WINDOW) {
            self.snapshots.pop_front();
        }
        let from = self.snapshots.front();
        let (bytes, files, elapsed) = match from {
            Some(from) => (moved(&from.counts), from.counts.files_done, from.elapsed),
            None => (0, 0, Duration::ZERO),
        };
        let seconds = now.elapsed.saturating_sub(elapsed).as_secs_f64();
        let rate_now = Rate::over(moved(&now.counts).saturating_sub(bytes), seconds);
        let files = now.counts.files_done.saturating_sub(files);
        let files_per_second = if seconds > 0.0 { files as f64 / seconds } else { 0.0 };
        let (rate, complete) = (rate_now.bytes_per_second, now.is_listing_complete);
        let estimated = Counts { bytes_done: reached(&now.counts), ..now.counts };
        let sample = Sample {
            counts: now.counts,
            is_listing_complete: complete,
            seconds: now.elapsed.as_secs_f64(),
            streams: now.streams,
            rate_now,
            rate_average: Rate::over(moved(&now.counts), now.elapsed.as_secs_f64()),
            files_per_second,
            seconds_left: plan::time_left(&estimated, complete, rate, files_per_second),
            bottleneck: bottleneck(from, &now, self.direction),
            behind: now.behind,
            legs: legs(from, &now, self.direction),
        };
        self.snapshots.push_back(now);
        sample
    }
}

/// Bytes that are at the destination or on their way: a large file is not over before its end, but it moves.
fn reached(counts: &Counts) -> u64 {
    let under_way = counts.bytes_sent.saturating_add(counts.bytes_resumed);
    counts.bytes_done.max(under_way.min(counts.bytes_listed.saturating_sub(counts.bytes_skipped)))
}

/// What was verified in an earlier run did not take part of this one's time.
fn moved(counts: &Counts) -> u64 {
    reached(counts).saturating_sub(counts.bytes_resumed)
}

/// What waits in the buffers of the source's side and of the destination's.
fn fills(at: &Snapshot, direction: Direction) -> [Fill; 2] {
    match direction {
        Direction::Push | Direction::Local => [at.here.fill, at.there.fill],
        Direction::Pull => [at.there.fill, at.here.fill],
    }
}

fn has_buffer(fills: &[Fill; 2]) -> bool {
    fills.iter().any(|fill| fill.capacity_bytes > 0)
}

/// What was read, carried and stored since `from`, or since the start; nothing where there is no buffer.
pub fn legs(from: Option<&Snapshot>, to: &Snapshot, direction: Direction) -> Option<Legs> {
    let [source, destination] = fills(to, direction);
    if !has_buffer(&[source, destination]) {
        return None;
    }
    let passed = |at: &Snapshot| {
        let ([source, destination], moved) = (fills(at, direction), moved(&at.counts));
        [moved.saturating_add(source.waiting_bytes), moved, moved.saturating_sub(destination.waiting_bytes)]
    };
    let (before, elapsed) = from.map_or(([0; 3], Duration::ZERO), |from| (passed(from), from.elapsed));
    let (now, seconds) = (passed(to), to.elapsed.saturating_sub(elapsed).as_secs_f64());
    let rates = std::array::from_fn(|leg| Rate::over(now[leg].saturating_sub(before[leg]), seconds));
    Some(Legs { source, destination, rates, limit: leg_of(bottleneck(from, to, direction).stage) })
}

/// The leg that a verdict is of.
fn leg_of(stage: &str) -> Option<&'static str> {
    match stage {
        "read" | "scan" => Some("source"),
        "network" | "send" | "receive" | "limit" | "buffers" => Some("network"),
        "create" | "write" | "sync" | "publish" => Some("destination"),
        _ => None,
    }
}

/// What limited a whole attempt, or the part between two snapshots.
pub fn bottleneck(from: Option<&Snapshot>, to: &Snapshot, direction: Direction) -> Bottleneck {
    let none = LaneTimes::default();
    let (here, there, facts) = match from {
        Some(from) => (to.here.since(&from.here), to.there.since(&from.there), facts_since(from, to)),
        None => (to.here.clone(), to.there.clone(), to.stream_facts),
    };
    let (sender, receiver) = match direction {
        Direction::Push => (&here, &there),
        Direction::Pull => (&there, &here),
        Direction::Local => (&here, if there.lanes > 0 { &there } else { &none }),
    };
    let is_local = direction == Direction::Local;
    let is_over = |at: &Snapshot| at.is_listing_complete || at.behind.is_some_and(|behind| behind.is_over);
    let mut found = plan::bottleneck(&Observed {
        sender,
        receiver,
        facts: &facts,
        is_local,
        is_following: to.behind.is_some(),
        has_ended: from.is_some_and(is_over),
        amounts: amounts_since(from, to),
    });
    if let Some(leg) = leg_of(found.stage).filter(|_| has_buffer(&fills(to, direction))) {
        let leg = match leg {
            "source" => "the first, from the source to the network",
            "network" => "the second, over the network",
            _ => "the third, to the destination's storage",
        };
        found.sentence.push_str(&format!("; of the three legs it is {leg}"));
    }
    found
}

fn amounts_since(from: Option<&Snapshot>, to: &Snapshot) -> Amounts {
    let (files, bytes, elapsed) = match from {
        Some(from) => (from.counts.files_done, moved(&from.counts), from.elapsed),
        None => (0, 0, Duration::ZERO),
    };
    Amounts {
        files: to.counts.files_done.saturating_sub(files),
        bytes: moved(&to.counts).saturating_sub(bytes),
        seconds: to.elapsed.saturating_sub(elapsed).as_secs_f64(),
    }
}

fn facts_since(from: &Snapshot, to: &Snapshot) -> StreamFacts {
    let (from, to) = (&from.stream_facts, &to.stream_facts);
    StreamFacts {
        retransmits: to.retransmits.saturating_sub(from.retransmits),
        busy_us: to.busy_us.saturating_sub(from.busy_us),
        receive_window_limited_us: to.receive_window_limited_us.saturating_sub(from.receive_window_limited_us),
        send_buffer_limited_us: to.send_buffer_limited_us.saturating_sub(from.send_buffer_limited_us),
        ..*to
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mover::Progress;

    fn snapshot(seconds: u64, files: u64, bytes: u64) -> Snapshot {
        let progress = Progress::new();
        let counts = Counts {
            files_listed: 100,
            bytes_listed: 100_000_000,
            files_done: files,
            bytes_done: bytes,
            ..Counts::default()
        };
        Snapshot { counts, is_listing_complete: true, elapsed: Duration::from_secs(seconds), ..progress.snapshot() }
    }

    #[test]
    fn the_present_rate_is_that_of_the_last_seconds_and_the_average_that_of_all() {
        let mut history = History::new(Direction::Push);
        for second in 0..10 {
            history.sample(snapshot(second, second, second * 1_000_000));
        }
        for second in 10..15 {
            history.sample(snapshot(second, 10, 10_000_000 + (second - 9) * 5_000_000));
        }
        let sample = history.sample(snapshot(15, 10, 40_000_000));
        assert_eq!(sample.rate_now, Rate { bytes_per_second: 5_000_000.0 });
        assert!((sample.rate_average.bytes_per_second - 40_000_000.0 / 15.0).abs() < 1.0);
        assert_eq!(sample.files_per_second, 0.0);
        assert_eq!(sample.seconds_left.map(f64::round), Some(12.0));
        assert!(history.snapshots.len() <= 6);
    }

    #[test]
    fn a_large_file_moves_before_it_is_done() {
        let mut now = snapshot(1, 0, 0);
        now.counts = Counts { bytes_sent: 30_000_000, bytes_resumed: 20_000_000, ..now.counts };
        assert_eq!((reached(&now.counts), moved(&now.counts)), (50_000_000, 30_000_000));
        now.counts.bytes_sent = 200_000_000;
        assert_eq!(reached(&now.counts), 100_000_000, "what is sent twice arrives once");
    }
}
