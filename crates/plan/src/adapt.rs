//! Makes windows of samples while a transfer runs, and has the law (`tuner`) decide by them how many streams there should be.
//!
//! Before the first byte neither the path's capacity nor its loss is known, nor what storage makes of several lanes, so that `streams`
//! chooses a number for a path that loses nothing, or a plan does from what was calibrated. From then on:
//! 1. **Settle.** After every change the streams are left alone until slow start is over.
//! 2. **Measure** the rate, the losses, the time that packets stood in a queue, and where the lanes of both sides were.
//! 3. **Decide**: `tuner`.
//!
//! Invariants: nothing is decided while streams are missing or settle; every window and every change is kept, as far as it is
//! bounded, so that the decisions can be replayed. The clock is the sample's: nothing here waits.
//!
//! Not here: taking samples, starting and resting lanes (`mover`).

use crate::streams::STREAMS_CHOSEN_MAX;
use crate::tuner::{Change, Tuner};
use crate::window::{Limit, WAITING, Window};
use model::progress::{LaneTimes, Stage};
use serde::{Deserialize, Serialize};

/// A stream needs about ten round trips to fill its window: three for its handshakes, and seven doublings of ten
/// segments are 10 MB at a segment of 9000 bytes.
pub(crate) const SETTLE_US_MIN: u64 = 400_000;
pub(crate) const SETTLE_ROUND_TRIPS: u64 = 8;

/// Shorter measurements are at the mercy of single losses.
pub(crate) const MEASURE_US_MIN: u64 = 500_000;
pub(crate) const MEASURE_ROUND_TRIPS: u64 = 8;

/// A loss is remembered for this long: CUBIC needs seconds to regain a large window, and a stream of 150 Mbit/s with
/// one loss in 10,000 segments of 9000 bytes has one in five seconds.
const LOSS_MEMORY_US: u64 = 5_000_000;

/// Lanes' times are compared over at least this; the other side tells its own every second.
const SHARE_US_MIN: u64 = 400_000;

/// Fewer files say nothing of their sizes.
const FILES_TELLING: u64 = 8;

/// Windows kept for the log: some three hours of them.
const WINDOWS_MAX: usize = 20_000;

/// The streams of one job at one moment. Counters run from its start and include streams that are gone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamSample {
    pub at_us: u64,
    /// A copy within one process: its lanes have two clocks, as `bottleneck` says.
    pub is_local: bool,
    /// Streams that are open.
    pub streams: u32,
    /// What the receiver's kernel has acknowledged or, seen from there, has received.
    pub delivered_bytes: u64,
    pub retransmits: u64,
    /// Whether the congestion control takes a loss for congestion, and it may be something else.
    pub yields_to_loss: bool,
    /// Time with something to send or to be acknowledged.
    pub busy_us: u64,
    /// Part of it in which the receive window or the send buffer was the limit.
    pub window_limited_us: u64,
    pub rtt_us_min: u64,
    /// Smoothed, mean of the streams, and its variation; 0 when it is not known.
    pub rtt_us: u64,
    pub rtt_var_us: u64,
    pub sender: LaneTimes,
    pub receiver: LaneTimes,
    /// Files that are done, and their bytes.
    pub files: u64,
    pub file_bytes: u64,
    /// Payload that is known and not sent; `None` while the listing goes on.
    pub left_bytes: Option<u64>,
}

/// What is needed to make the decisions of a job again.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    pub v: u32,
    pub streams: u32,
    pub most: u32,
    pub only_grows: bool,
    pub windows: Vec<Window>,
    pub changes: Vec<Change>,
    /// The job went on: what is kept ends with the last of the windows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_truncated: bool,
}

impl Log {
    /// The changes that the law of this program makes of the windows.
    pub fn replayed(&self) -> Vec<Change> {
        let mut tuner = Tuner::new(self.streams, self.most.min(STREAMS_CHOSEN_MAX));
        if self.only_grows {
            tuner.only_grows();
        }
        for window in &self.windows {
            tuner.step(window);
        }
        tuner.changes().to_vec()
    }
}

/// The number of streams of a running job, and what was learned about it.
#[derive(Debug)]
pub struct Adaptation {
    tuner: Tuner,
    log: Log,
    phase: Phase,
    sender: WaitingShare,
    receiver: WaitingShare,
    losses: Losses,
}

#[derive(Debug)]
enum Phase {
    /// Until then nothing is measured; `None` before the first sample.
    Settling(Option<u64>),
    Measuring(Measurement),
}

#[derive(Debug)]
struct Measurement {
    from_us: u64,
    from_delivered_bytes: u64,
    from_busy_us: u64,
    from_window_limited_us: u64,
    from_files: u64,
    from_file_bytes: u64,
    queue_us_sum: u64,
    samples: u64,
}

#[derive(Debug, Default)]
struct Losses {
    retransmits: u64,
    last_us: Option<u64>,
}

/// What one side's lanes did lately, and for which share of it they waited for their sockets.
#[derive(Debug)]
pub(crate) struct WaitingShare {
    stage: Stage,
    from_us: u64,
    from: LaneTimes,
    lately: Option<LaneTimes>,
}

impl Adaptation {
    /// `streams` is what was chosen at the start, `streams_max` what both ends take.
    pub fn new(streams: u32, streams_max: u32) -> Adaptation {
        let most = streams_max.min(STREAMS_CHOSEN_MAX);
        Adaptation {
            tuner: Tuner::new(streams, most),
            log: Log { v: 1, streams, most, ..Log::default() },
            phase: Phase::Settling(None),
            sender: WaitingShare::new(Stage::Send),
            receiver: WaitingShare::new(Stage::Receive),
            losses: Losses::default(),
        }
    }

    /// For a job on several paths.
    pub fn only_growing(mut self) -> Adaptation {
        self.tuner.only_grows();
        self.log.only_grows = true;
        self
    }

    /// Takes a sample in, several for each round trip or one in tens of milliseconds. Returns another number of
    /// streams when it is time for it.
    pub fn step(&mut self, sample: &StreamSample) -> Option<u32> {
        self.sender.step(sample.at_us, &sample.sender);
        self.receiver.step(sample.at_us, &sample.receiver);
        self.losses.step(sample);
        if sample.streams < self.tuner.streams() {
            // Streams that are being opened, or replaced.
            self.phase = Phase::Settling(None);
            return None;
        }
        let settle_us = round_trips(sample, SETTLE_ROUND_TRIPS, SETTLE_US_MIN);
        match &mut self.phase {
            Phase::Settling(until) => {
                let until = *until.get_or_insert(sample.at_us.saturating_add(settle_us));
                if sample.at_us >= until {
                    self.phase = Phase::Measuring(Measurement::new(sample));
                }
                None
            }
            Phase::Measuring(measurement) => {
                measurement.queue_us_sum = measurement.queue_us_sum.saturating_add(queue_us(sample));
                measurement.samples += 1;
                let us = sample.at_us.saturating_sub(measurement.from_us);
                if us < round_trips(sample, MEASURE_ROUND_TRIPS, MEASURE_US_MIN) {
                    return None;
                }
                let next = Phase::Measuring(Measurement::new(sample));
                let Phase::Measuring(measurement) = std::mem::replace(&mut self.phase, next) else { return None };
                self.measured(&measurement, sample)
            }
        }
    }

    /// Another number is being tried.
    pub fn is_trying(&self) -> bool {
        self.tuner.is_trying()
    }

    /// What was done and why, when anything was.
    pub fn note(&self) -> Option<String> {
        let told = |change: &Change| {
            let Change { at_us, from, to, why } = change;
            format!("from {from} to {to} after {:.1} s ({why})", *at_us as f64 / 1e6)
        };
        let mut story: Vec<_> = self.tuner.changes().iter().map(told).collect();
        if story.is_empty() {
            return None;
        }
        if story.len() > CHANGES_TOLD {
            story.drain(CHANGES_TOLD / 2..story.len() - CHANGES_TOLD / 2);
            story.insert(CHANGES_TOLD / 2, "and others (--tuning-log has all)".to_owned());
        }
        let pending = if self.is_trying() { "; too short to tell what came of that" } else { "" };
        let kind = if self.tuner.changes().iter().all(|change| change.from < change.to) { "added" } else { "adapted" };
        Some(format!("streams were {kind} while running: {}{pending}", story.join("; ")))
    }

    /// Everything that was decided, and by what.
    pub fn log(&self) -> Log {
        match self.log.is_truncated {
            true => self.log.clone(),
            false => Log { changes: self.tuner.changes().to_vec(), ..self.log.clone() },
        }
    }

    fn measured(&mut self, measurement: &Measurement, sample: &StreamSample) -> Option<u32> {
        let window = self.window(measurement, sample);
        if self.log.windows.len() < WINDOWS_MAX {
            self.log.windows.push(window.clone());
        } else if !self.log.is_truncated {
            // Later windows change more than is replayed: also what was said of the last change.
            self.log = Log { is_truncated: true, ..self.log() };
        }
        let decided = self.tuner.step(&window);
        if decided.is_some() {
            self.phase = Phase::Settling(None);
        }
        decided
    }

    fn window(&self, measurement: &Measurement, sample: &StreamSample) -> Window {
        let limit = match (&self.sender.lately, &self.receiver.lately) {
            (Some(sender), Some(receiver)) if sample.is_local => Limit::of_local(sender, receiver),
            (Some(sender), Some(receiver)) => Limit::of(sender, receiver),
            // As long as it is not known, nothing is changed on suspicion.
            _ => Limit::Unknown,
        };
        let files = sample.files.saturating_sub(measurement.from_files);
        let file_bytes = sample.file_bytes.saturating_sub(measurement.from_file_bytes);
        Window {
            at_us: sample.at_us,
            bytes_per_second: measurement.rate(sample) as u64,
            rtt_us: sample.rtt_us_min,
            queue_us: measurement.queue_us_sum / measurement.samples.max(1),
            is_lossy: sample.yields_to_loss && self.losses.are_recent(sample.at_us),
            windows_permille: (1e3 * measurement.window_share(sample)).min(1e3) as u32,
            limit,
            file_bytes: if files < FILES_TELLING { 0 } else { file_bytes / files },
            left_bytes: sample.left_bytes,
        }
    }
}

/// Changes in the note of a job.
const CHANGES_TOLD: usize = 12;

impl Measurement {
    fn new(sample: &StreamSample) -> Measurement {
        Measurement {
            from_us: sample.at_us,
            from_delivered_bytes: sample.delivered_bytes,
            from_busy_us: sample.busy_us,
            from_window_limited_us: sample.window_limited_us,
            from_files: sample.files,
            from_file_bytes: sample.file_bytes,
            queue_us_sum: 0,
            samples: 0,
        }
    }

    /// Bytes per second.
    fn rate(&self, to: &StreamSample) -> f64 {
        let us = to.at_us.saturating_sub(self.from_us).max(1);
        to.delivered_bytes.saturating_sub(self.from_delivered_bytes) as f64 * 1e6 / us as f64
    }

    fn window_share(&self, to: &StreamSample) -> f64 {
        let busy_us = to.busy_us.saturating_sub(self.from_busy_us);
        let limited_us = to.window_limited_us.saturating_sub(self.from_window_limited_us);
        if busy_us == 0 { 0.0 } else { limited_us as f64 / busy_us as f64 }
    }
}

impl Losses {
    fn step(&mut self, sample: &StreamSample) {
        if sample.retransmits > self.retransmits {
            self.retransmits = sample.retransmits;
            self.last_us = Some(sample.at_us);
        }
    }

    fn are_recent(&self, now_us: u64) -> bool {
        self.last_us.is_some_and(|at| now_us.saturating_sub(at) <= LOSS_MEMORY_US)
    }
}

impl WaitingShare {
    pub(crate) fn new(stage: Stage) -> WaitingShare {
        WaitingShare { stage, from_us: 0, from: LaneTimes::default(), lately: None }
    }

    pub(crate) fn step(&mut self, at_us: u64, times: &LaneTimes) {
        let total_ns = times.total_ns().saturating_sub(self.from.total_ns());
        if total_ns == 0 || at_us.saturating_sub(self.from_us) < SHARE_US_MIN {
            return;
        }
        self.lately = Some(times.since(&self.from));
        (self.from_us, self.from) = (at_us, times.clone());
    }

    /// False as long as it is not known: nothing is added on suspicion.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lately.as_ref().is_some_and(|lately| lately.share(self.stage) >= WAITING)
    }
}

pub(crate) fn round_trips(sample: &StreamSample, count: u64, us_min: u64) -> u64 {
    sample.rtt_us_min.saturating_mul(count).max(us_min)
}

/// How long packets stand in a queue, as far as the round trip shows it.
fn queue_us(sample: &StreamSample) -> u64 {
    queue_of(sample.rtt_us_min, sample.rtt_us, sample.rtt_var_us)
}

/// The same from the least round trip, the one of now, and its variation.
pub(crate) fn queue_of(rtt_us_min: u64, rtt_us: u64, rtt_var_us: u64) -> u64 {
    rtt_us.saturating_sub(rtt_us_min.saturating_add(rtt_var_us.saturating_mul(2)))
}

#[cfg(test)]
#[path = "adapt_tests.rs"]
mod tests;
