//! Adds streams while a transfer runs, as long as loss or windows hold the streams back and more of them carry more.
//!
//! Before the first byte neither the path's capacity nor its loss is known, so that `streams` chooses a number for a
//! path that loses nothing. Here samples of the running streams go in and a larger number comes out:
//! 1. **Settle.** After every change the streams are left alone until slow start is over.
//! 2. **Measure** the rate, the losses, and the time that packets stood in a queue.
//! 3. **Judge.** Twice as many streams, when lost segments or windows held the streams back, no queue stood at the
//!    bottleneck (it would be full), the sender's lanes waited for their sockets and the receiver's for theirs (neither
//!    storage nor processors were the limit), and enough is left to send.
//! 4. **Try.** The larger number must show a higher rate within a few measurements. One that does not ends the growing.
//!
//! Invariants: the number only grows, at most by a doubling for each judgement, never beyond its bound; after
//! `FAILED_TRIALS_MAX` trials without a gain it stays. So it cannot oscillate, and surplus streams are at most what two
//! trials added. The clock is the sample's: nothing here waits.
//!
//! Not here: taking samples and starting lanes (`mover`). Streams are never taken away: what a lane has sent is known
//! to be held only much later, and an idle stream costs memory.

use crate::streams::{STREAMS_CHOSEN_MAX, milliseconds};
use model::progress::{LaneTimes, Stage};
use model::quantity::Rate;

/// A stream needs about ten round trips to fill its window: three for its handshakes, and seven doublings of ten
/// segments are 10 MB at a segment of 9000 bytes.
pub(crate) const SETTLE_US_MIN: u64 = 400_000;
pub(crate) const SETTLE_ROUND_TRIPS: u64 = 8;

/// Shorter measurements are at the mercy of single losses.
pub(crate) const MEASURE_US_MIN: u64 = 500_000;
pub(crate) const MEASURE_ROUND_TRIPS: u64 = 8;

/// Below this round trip a window is regained before it matters: the table's number stays.
const RTT_US_MIN: u64 = 1_000;

/// What must be left, in time at the measured rate: as long as it takes to settle and be of use.
pub(crate) const LEFT_US_MIN: u64 = 1_500_000;
pub(crate) const LEFT_ROUND_TRIPS: u64 = 20;

/// A loss is remembered for this long: CUBIC needs seconds to regain a large window, and a stream of 150 Mbit/s with
/// one loss in 10,000 segments of 9000 bytes has one in five seconds.
const LOSS_MEMORY_US: u64 = 5_000_000;

/// A queue stands when packets wait longer than this share of the round trip and `QUEUE_US_MIN`, beyond what the round
/// trip varies by itself. Loss-based streams that fill a link keep its queue at 40 % of its product and more.
const QUEUE_SHARE_OF_RTT: u64 = 10;
const QUEUE_US_MIN: u64 = 1_000;

/// Lanes wait for the network when they spend at least this share of their time blocked in their sockets.
const WAITING_SHARE: f64 = 0.5;

/// Windows are the limit when they held the streams for this share of the time that these had something to send.
const WINDOW_SHARE: f64 = 0.5;

/// Streams times two would carry twice as much if each carried what it did; a link that is nearly full gives less. This
/// share of the proportional gain must show: 15 % for a doubling, above what the saw-teeth of few streams vary by.
const GAIN_SHARE: f64 = 0.15;

/// Measurements in which a trial may show its gain: a stream that left slow start early needs several.
pub(crate) const TRIAL_MEASUREMENTS: u32 = 3;

/// Trials without a gain after which the number stays for good. The second is only made when the rate has fallen to
/// `RETRY_SHARE` of what it was: then the link is not full any more.
pub(crate) const FAILED_TRIALS_MAX: u32 = 2;
const RETRY_SHARE: f64 = 0.8;

/// Lanes' times are compared over at least this; the other side tells its own every second.
const SHARE_US_MIN: u64 = 400_000;

/// The streams of one job at one moment. Counters run from its start and include streams that are gone.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamSample {
    pub at_us: u64,
    /// Streams that are open.
    pub streams: u32,
    /// What the receiver's kernel has acknowledged or, seen from there, has received.
    pub delivered_bytes: u64,
    pub retransmits: u64,
    /// Whether the congestion control takes a loss for congestion.
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
    /// Payload that is known and not sent; `None` while the listing goes on.
    pub left_bytes: Option<u64>,
}

/// The number of streams of a running job, and what was learned about it.
#[derive(Debug)]
pub struct Adaptation {
    streams: u32,
    streams_max: u32,
    phase: Phase,
    sender: WaitingShare,
    receiver: WaitingShare,
    losses: Losses,
    trial: Option<Trial>,
    failed: u32,
    /// Rate of the last trial that brought nothing, in bytes per second.
    failed_rate: f64,
    story: Vec<String>,
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
    queue_us_sum: u64,
    samples: u64,
}

#[derive(Debug)]
struct Trial {
    from_streams: u32,
    from_rate: f64,
    measurements: u32,
    began_us: u64,
    why: String,
}

#[derive(Debug, Default)]
struct Losses {
    retransmits: u64,
    last_us: Option<u64>,
}

/// Share of one side's time that its lanes waited for their sockets.
#[derive(Debug)]
pub(crate) struct WaitingShare {
    stage: Stage,
    from_us: u64,
    from: LaneTimes,
    share: Option<f64>,
}

impl Adaptation {
    /// `streams` is what was chosen at the start, `streams_max` what both ends take.
    pub fn new(streams: u32, streams_max: u32) -> Adaptation {
        Adaptation {
            streams,
            streams_max: streams_max.min(STREAMS_CHOSEN_MAX),
            phase: Phase::Settling(None),
            sender: WaitingShare::new(Stage::Send),
            receiver: WaitingShare::new(Stage::Receive),
            losses: Losses::default(),
            trial: None,
            failed: 0,
            failed_rate: 0.0,
            story: Vec::new(),
        }
    }

    /// Takes a sample in, several for each round trip or one in tens of milliseconds. Returns a larger number of
    /// streams when it is time for it.
    pub fn step(&mut self, sample: &StreamSample) -> Option<u32> {
        self.sender.step(sample.at_us, &sample.sender);
        self.receiver.step(sample.at_us, &sample.receiver);
        self.losses.step(sample);
        if sample.streams < self.streams {
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

    /// A larger number is being tried.
    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// What was done and why, when anything was.
    pub fn note(&self) -> Option<String> {
        if self.story.is_empty() && self.trial.is_none() {
            return None;
        }
        let pending = self.trial.as_ref().map(|trial| format!("{}: too short to tell", trial.told(self.streams)));
        let story: Vec<_> = self.story.iter().cloned().chain(pending).collect();
        Some(format!("streams were added while running: {}", story.join("; ")))
    }

    fn measured(&mut self, measurement: &Measurement, sample: &StreamSample) -> Option<u32> {
        let rate = measurement.rate(sample);
        if let Some(mut trial) = self.trial.take() {
            trial.measurements += 1;
            let told = trial.told(self.streams);
            if rate >= trial.rate_wanted(self.streams) {
                self.story.push(format!("{told}, {} after", shown(rate)));
            } else if trial.measurements < TRIAL_MEASUREMENTS {
                self.trial = Some(trial);
                return None;
            } else {
                self.failed += 1;
                self.failed_rate = rate.max(trial.from_rate);
                self.story.push(format!("{told}, {} after: no gain", shown(rate)));
            }
        }
        let why = self.why(measurement, sample, rate)?;
        let streams = self.streams.saturating_mul(2).min(self.streams_max);
        let began_us = sample.at_us;
        self.trial = Some(Trial { from_streams: self.streams, from_rate: rate, measurements: 0, began_us, why });
        self.streams = streams;
        self.phase = Phase::Settling(None);
        Some(streams)
    }

    /// The reason for more streams, if there is one.
    fn why(&self, measurement: &Measurement, sample: &StreamSample, rate: f64) -> Option<String> {
        let may_grow = self.streams < self.streams_max
            && self.failed < FAILED_TRIALS_MAX
            && (self.failed == 0 || rate < RETRY_SHARE * self.failed_rate);
        let left_us = sample.left_bytes.map_or(f64::INFINITY, |bytes| bytes as f64 * 1e6 / rate.max(1.0));
        let is_worth_it = left_us >= round_trips(sample, LEFT_ROUND_TRIPS, LEFT_US_MIN) as f64;
        if !may_grow || !is_worth_it || sample.rtt_us_min < RTT_US_MIN {
            return None;
        }
        let waits_for_network = self.sender.is_waiting() && self.receiver.is_waiting();
        if !waits_for_network || measurement.queue_stands(sample) {
            return None;
        }
        let rtt = milliseconds(sample.rtt_us_min);
        if measurement.window_share(sample) >= WINDOW_SHARE {
            return Some(format!("windows held the streams back, {} at {rtt}", shown(rate)));
        }
        if sample.yields_to_loss && self.losses.are_recent(sample.at_us) {
            return Some(format!("losses held the streams back with an empty queue, {} at {rtt}", shown(rate)));
        }
        None
    }
}

impl Measurement {
    fn new(sample: &StreamSample) -> Measurement {
        Measurement {
            from_us: sample.at_us,
            from_delivered_bytes: sample.delivered_bytes,
            from_busy_us: sample.busy_us,
            from_window_limited_us: sample.window_limited_us,
            queue_us_sum: 0,
            samples: 0,
        }
    }

    /// Bytes per second.
    fn rate(&self, to: &StreamSample) -> f64 {
        let us = to.at_us.saturating_sub(self.from_us).max(1);
        to.delivered_bytes.saturating_sub(self.from_delivered_bytes) as f64 * 1e6 / us as f64
    }

    fn queue_stands(&self, sample: &StreamSample) -> bool {
        let mean_us = self.queue_us_sum / self.samples.max(1);
        mean_us > (sample.rtt_us_min / QUEUE_SHARE_OF_RTT).max(QUEUE_US_MIN)
    }

    fn window_share(&self, to: &StreamSample) -> f64 {
        let busy_us = to.busy_us.saturating_sub(self.from_busy_us);
        let limited_us = to.window_limited_us.saturating_sub(self.from_window_limited_us);
        if busy_us == 0 { 0.0 } else { limited_us as f64 / busy_us as f64 }
    }
}

impl Trial {
    fn rate_wanted(&self, streams: u32) -> f64 {
        let added = f64::from(streams) / f64::from(self.from_streams.max(1)) - 1.0;
        self.from_rate * (1.0 + GAIN_SHARE * added)
    }

    fn told(&self, streams: u32) -> String {
        let at_s = self.began_us as f64 / 1e6;
        format!("from {} to {streams} after {at_s:.1} s ({})", self.from_streams, self.why)
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
        WaitingShare { stage, from_us: 0, from: LaneTimes::default(), share: None }
    }

    pub(crate) fn step(&mut self, at_us: u64, times: &LaneTimes) {
        let total_ns = times.total_ns().saturating_sub(self.from.total_ns());
        if total_ns == 0 || at_us.saturating_sub(self.from_us) < SHARE_US_MIN {
            return;
        }
        let stage = self.stage as usize;
        let waiting_ns = times.stage_ns[stage].saturating_sub(self.from.stage_ns[stage]);
        self.share = Some(waiting_ns as f64 / total_ns as f64);
        (self.from_us, self.from) = (at_us, times.clone());
    }

    /// False as long as it is not known: nothing is added on suspicion.
    pub(crate) fn is_waiting(&self) -> bool {
        self.share.is_some_and(|share| share >= WAITING_SHARE)
    }
}

pub(crate) fn round_trips(sample: &StreamSample, count: u64, us_min: u64) -> u64 {
    sample.rtt_us_min.saturating_mul(count).max(us_min)
}

/// How long packets stand in a queue, as far as the round trip shows it.
fn queue_us(sample: &StreamSample) -> u64 {
    let by_itself = sample.rtt_us_min.saturating_add(sample.rtt_var_us.saturating_mul(2));
    sample.rtt_us.saturating_sub(by_itself)
}

pub(crate) fn shown(bytes_per_second: f64) -> String {
    Rate { bytes_per_second }.to_string()
}

#[cfg(test)]
#[path = "adapt_tests.rs"]
mod tests;
