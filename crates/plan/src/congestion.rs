//! Decides whether a sender's streams use a congestion control that goes by what the path delivers (BBR) instead of their host's, and how
//! many of them then work.
//!
//! CUBIC and Reno take every loss for a full queue. Where the path itself loses, a stream carries about MSS / RTT x sqrt(3 / 2p) (Mathis
//! et al., 1997), whatever the link could. BBR does not yield to such losses, but beside streams that do, and with a short queue, it takes
//! more than its share; and several of its streams fill a queue of one bandwidth-delay product and lose several per cent. So one stream
//! works with it, only on suspicion, and only as long as what it brings and what is lost show that the losses were the path's:
//! 1. **Suspect**: in `SUSPECT_WINDOWS` in a row segments were lost and the queue was empty.
//! 2. **Try**: after its slow start, one of `TRIAL_WINDOWS` carries `GAIN` of what was carried before and loses no more than allowed.
//! 3. **Watch**: it goes when more than that is lost, or less is carried than before, in two windows in a row; or when nothing was lost
//!    for `CLEAN_US`. Where windows hold it back, twice as many are tried.
//!
//! What failed is not tried again for `TABU_US`, four times as long after each failure. If it lost too much, the losses are
//! congestion all that time. Where an earlier job over the same path kept BBR, the next one begins with it on all streams, and with the
//! trial after their slow start.
//!
//! Invariants: pure; the clock is the samples'; the same samples give the same decisions; nothing is begun when the job is about to end.
//!
//! Not here: taking samples and setting sockets (`mover`), the number of streams (`tuner`).

use crate::adapt::queue_of;
use crate::streams::milliseconds;
use crate::window::{LEFT_ROUND_TRIPS, LEFT_US_MIN, Window, shown};
use serde::{Deserialize, Serialize};

/// Within a site, losses are bursts that overflow a switch, and one stream is little where storage is to be kept busy.
const RTT_US_MIN: u64 = 2_000;
/// Shorter windows are at the mercy of single losses.
const WINDOW_US_MIN: u64 = 400_000;
const WINDOW_ROUND_TRIPS: u64 = 4;
/// What the streams' own slow start lost says nothing, nor what it carried.
const SLOW_START_ROUND_TRIPS: u64 = 8;
const SLOW_START_US_MIN: u64 = 400_000;
/// One window may hold the end of what slow start lost.
const SUSPECT_WINDOWS: u32 = 2;
/// BBR's slow start takes some ten round trips, and two more to empty the queue.
const SETTLE_ROUND_TRIPS: u64 = 12;
const SETTLE_US_MIN: u64 = 800_000;
/// The first ones may still hold what its slow start lost.
const TRIAL_WINDOWS: u32 = 5;
const GAIN: f64 = 1.1;
/// BBR fills a queue from time to time to see whether there is more: on a path that loses 1 % it lost 2. If the queue is too short for
/// it, it loses 4 % and more.
const LOST_FACTOR: f64 = 2.5;
const LOST_MORE: f64 = 0.015;
/// A round trip that is shorter than it ever was, by this share of it and `SHORTER_US_MIN`, is one without a queue.
const SHORTER_SHARE_OF_RTT: u64 = 20;
const SHORTER_US_MIN: u64 = 1_000;
const WORSE_WINDOWS: u32 = 2;
const CLEAN_US: u64 = 30_000_000;
const TABU_US: u64 = 30_000_000;
const FAILURES_MAX: u32 = 4;

/// What a path's streams have sent. Counters run from the start and include streams that are gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    pub at_us: u64,
    /// Streams that are open.
    pub streams: u32,
    /// Acknowledged.
    pub bytes: u64,
    /// Segments, those that were sent again included.
    pub segments: u64,
    pub segments_again: u64,
    pub rtt_us_min: u64,
    /// Smoothed, mean of the streams, and its variation.
    pub rtt_us: u64,
    pub rtt_var_us: u64,
    /// Time with something to send, of all streams, and part of it in which windows were the limit.
    pub busy_us: u64,
    pub window_limited_us: u64,
    /// Payload that is known and not sent; `None` while the listing goes on.
    pub left_bytes: Option<u64>,
}

/// How many streams work with BBR, and what was learned about it.
#[derive(Debug, Default)]
pub struct LossWatch {
    streams: u32,
    from: Option<Sent>,
    /// Windows that begin before this hold slow start.
    settled_us: u64,
    queue_us_sum: u64,
    samples: u64,
    phase: Phase,
    tabu_until_us: u64,
    congestion_until_us: u64,
    failures: u32,
    finding: Finding,
    /// The trial began with what an earlier job found.
    is_known: bool,
    story: Vec<String>,
}

/// What was found out about the losses of a path.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Finding {
    #[default]
    Nothing,
    /// They are its own.
    Lossy(LossyPath),
    /// They are not, or BBR does not help.
    NotLossy,
}

#[derive(Debug)]
enum Phase {
    /// Windows in a row that were suspicious, and the least share that was lost in one of them.
    Own {
        suspicious: u32,
        lost: f64,
    },
    /// All streams have BBR, on a path that an earlier job knew, until they have found their rates together: one alone takes losses in its
    /// slow start for the end of the path.
    Starting(LossyPath),
    Trying(Trial),
    Kept(Kept),
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Own { suspicious: 0, lost: 1.0 }
    }
}

#[derive(Debug)]
struct Trial {
    from: u32,
    /// What was carried before.
    rate: f64,
    windows: u32,
    idle_windows: u32,
    best: f64,
    lost_least: f64,
    path: LossyPath,
}

/// What a path was taken for when its losses were taken for its own.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct LossyPath {
    /// Bytes per second that the host's own congestion control carried.
    pub rate: f64,
    /// Share of the segments that may be lost with BBR.
    pub lost_allowed: f64,
    pub rtt_us: u64,
}

impl LossyPath {
    /// Packets had stood in a queue of others all the time.
    fn was_longer(&self, span: &Span) -> bool {
        self.rtt_us.saturating_sub(span.rtt_us) > (self.rtt_us / SHORTER_SHARE_OF_RTT).max(SHORTER_US_MIN)
    }
}

#[derive(Debug)]
struct Kept {
    path: LossyPath,
    /// Windows in a row in which too much was lost, and too little carried.
    over: u32,
    slow: u32,
    lost_at_us: u64,
    may_grow: bool,
}

/// What happened between two samples.
struct Span {
    from_us: u64,
    at_us: u64,
    streams: u32,
    /// Bytes per second.
    rate: f64,
    /// Share of the segments that were sent again.
    lost: f64,
    rtt_us: u64,
    is_queue_empty: bool,
    do_windows_limit: bool,
    /// Something was there to be sent for most of it.
    is_busy: bool,
    left_bytes: Option<u64>,
}

impl LossWatch {
    /// How many streams may work, with BBR, now; none where all use their host's.
    pub fn streams(&self) -> u32 {
        self.streams
    }

    pub fn is_trying(&self) -> bool {
        matches!(self.phase, Phase::Starting(_) | Phase::Trying(_))
    }

    /// BBR showed that losses with an empty queue are not the path's: they are no reason for more streams either.
    pub fn are_losses_congestion(&self, now_us: u64) -> bool {
        now_us < self.congestion_until_us
    }

    /// What is known by now, for the next job over the same path.
    pub fn finding(&self) -> Finding {
        self.finding
    }

    /// One stream works, or a few do, and those that are left rest.
    pub fn do_others_rest(&self) -> bool {
        (1..u32::MAX).contains(&self.streams)
    }

    /// Begins with what an earlier job found, before the first sample: it still has to prove itself.
    pub fn begin_as_known(&mut self, path: LossyPath, check: &dyn Fn() -> Result<(), String>) {
        if path.rtt_us < RTT_US_MIN || check().is_err() {
            return;
        }
        self.say("BBR from the start, because it helped an earlier copy over this path".to_owned());
        (self.phase, self.streams) = (Phase::Starting(path), u32::MAX);
    }

    /// A stream has been given BBR: its slow start says nothing.
    pub fn has_changed(&mut self, at_us: u64) {
        match self.phase {
            Phase::Starting(_) => self.settle(at_us, SLOW_START_ROUND_TRIPS, SLOW_START_US_MIN),
            _ => self.settle(at_us, SETTLE_ROUND_TRIPS, SETTLE_US_MIN),
        }
    }

    /// Takes a sample in, one in some seconds or many in one. `check` says why BBR cannot be used, and is asked once.
    pub fn step(&mut self, sent: &Sent, check: &dyn Fn() -> Result<(), String>) {
        if sent.bytes == 0 {
            return;
        }
        if self.from.is_none_or(|from| from.streams < sent.streams) {
            self.from.get_or_insert(*sent).rtt_us_min = sent.rtt_us_min;
            self.settle(sent.at_us, SLOW_START_ROUND_TRIPS, SLOW_START_US_MIN);
        }
        let from = *self.from.get_or_insert(*sent);
        self.queue_us_sum = self.queue_us_sum.saturating_add(queue_of(sent.rtt_us_min, sent.rtt_us, sent.rtt_var_us));
        self.samples += 1;
        let us = sent.at_us.saturating_sub(from.at_us);
        if us < WINDOW_US_MIN.max(sent.rtt_us_min.saturating_mul(WINDOW_ROUND_TRIPS)) {
            self.from = Some(Sent { streams: from.streams.max(sent.streams), ..from });
            return;
        }
        let span = Span::new(&from, sent, self.queue_us_sum / self.samples);
        (self.from, self.queue_us_sum, self.samples) = (Some(*sent), 0, 0);
        if span.from_us < self.settled_us {
            return;
        }
        match std::mem::take(&mut self.phase) {
            Phase::Own { suspicious, lost } => self.suspect(suspicious, lost, &span, check),
            Phase::Starting(path) if span.is_ending() => self.phase = Phase::Starting(path),
            Phase::Starting(path) => {
                self.tell(&span, "only one stream goes on");
                self.streams = 0;
                self.begin(1, path.rate, path, &span);
                self.is_known = true;
            }
            Phase::Trying(trial) => self.judge(trial, &span),
            Phase::Kept(kept) => self.watch(kept, &span),
        }
    }

    /// What was done and why, when anything was.
    pub fn note(&self) -> Option<String> {
        let mut story = self.story.clone();
        if story.len() > STORY_TOLD {
            story.splice(STORY_TOLD / 2..self.story.len() - STORY_TOLD / 2, ["and so on".to_owned()]);
        }
        (!story.is_empty()).then(|| format!("congestion control: {}", story.join("; ")))
    }

    fn settle(&mut self, at_us: u64, round_trips: u64, us_min: u64) {
        let rtt_us = self.from.map_or(0, |from| from.rtt_us_min);
        let us = rtt_us.saturating_mul(round_trips).max(us_min);
        self.settled_us = self.settled_us.max(at_us.saturating_add(us));
    }

    fn suspect(&mut self, suspicious: u32, lost: f64, span: &Span, check: &dyn Fn() -> Result<(), String>) {
        let is_over = self.failures > FAILURES_MAX || span.at_us < self.tabu_until_us;
        if span.lost == 0.0 || !span.is_queue_empty || span.rtt_us < RTT_US_MIN || is_over || span.is_ending() {
            return;
        }
        let (suspicious, lost) = (suspicious + 1, lost.min(span.lost));
        if suspicious < SUSPECT_WINDOWS {
            self.phase = Phase::Own { suspicious, lost };
            return;
        }
        if let Err(why) = check() {
            self.failures = FAILURES_MAX + 1;
            self.say(format!("BBR was not tried, although segments were lost with an empty queue: {why}"));
            return;
        }
        let share = percent(lost);
        self.tell(span, &format!("BBR for one stream, because {share} of the segments were lost with an empty queue"));
        let lost_allowed = (lost * LOST_FACTOR).max(lost + LOST_MORE);
        self.begin(1, span.rate, LossyPath { rate: span.rate, lost_allowed, rtt_us: span.rtt_us }, span);
    }

    fn begin(&mut self, streams: u32, rate: f64, path: LossyPath, span: &Span) {
        self.settle(span.at_us, SETTLE_ROUND_TRIPS, SETTLE_US_MIN);
        self.phase = Phase::Trying(Trial::new(self.streams, rate, path));
        self.streams = streams;
    }

    fn judge(&mut self, mut trial: Trial, span: &Span) {
        let path = trial.path;
        let kept = |may_grow| Phase::Kept(Kept { path, over: 0, slow: 0, lost_at_us: span.at_us, may_grow });
        if !span.is_busy {
            trial.idle_windows += 1;
            if trial.idle_windows < TRIAL_WINDOWS {
                self.phase = Phase::Trying(trial);
                return;
            }
            self.tell(span, "as before, because there was too little to send to judge by");
            self.tabu_until_us = span.at_us.saturating_add(TABU_US);
            self.streams = trial.from;
            if trial.from > 0 {
                self.phase = kept(false);
            }
            return;
        }
        trial.windows += 1;
        trial.best = trial.best.max(span.rate);
        trial.lost_least = trial.lost_least.min(span.lost);
        let is_known = std::mem::take(&mut self.is_known);
        if path.was_longer(span) && is_known {
            // It is another one since: no more is known than before.
            self.tell(span, "the host's again, because the round trip is shorter than it was");
            (self.streams, self.finding) = (0, Finding::NotLossy);
        } else if path.was_longer(span) {
            self.outcome(trial.best, trial.lost_least);
            self.back(span, A_QUEUE_STOOD, true);
        } else if span.rate >= GAIN * trial.rate && span.lost <= path.lost_allowed {
            self.outcome(span.rate, span.lost);
            self.finding = Finding::Lossy(path);
            self.phase = kept(true);
        } else if trial.windows < TRIAL_WINDOWS {
            self.phase = Phase::Trying(trial);
        } else if trial.from > 0 {
            self.outcome(trial.best, trial.lost_least);
            self.tell(span, "fewer again, because more brought nothing or lost too much");
            self.streams = trial.from;
            self.phase = kept(false);
        } else {
            self.outcome(trial.best, trial.lost_least);
            match trial.lost_least > path.lost_allowed {
                true => self.back(span, "it lost too much", true),
                false => self.back(span, "it brought too little", false),
            }
        }
    }

    fn watch(&mut self, mut kept: Kept, span: &Span) {
        kept.over = if span.lost > kept.path.lost_allowed { kept.over + 1 } else { 0 };
        kept.slow = if span.is_busy && span.rate < kept.path.rate { kept.slow + 1 } else { 0 };
        if span.lost > 0.0 {
            kept.lost_at_us = span.at_us;
        }
        if kept.path.was_longer(span) {
            self.back(span, A_QUEUE_STOOD, true);
        } else if kept.over >= WORSE_WINDOWS {
            self.back(span, &format!("{} of the segments were lost", percent(span.lost)), true);
        } else if kept.slow >= WORSE_WINDOWS {
            self.back(span, "it carried less than they did", false);
        } else if span.at_us.saturating_sub(kept.lost_at_us) >= CLEAN_US {
            self.tell(span, "the host's again, because nothing is lost any more");
            (self.streams, self.finding) = (0, Finding::NotLossy);
        } else if kept.may_grow && span.do_windows_limit && self.streams < span.streams && !span.is_ending() {
            let streams = self.streams.saturating_mul(2).min(span.streams);
            self.tell(span, &format!("BBR for {streams} streams, because windows held back those that had it"));
            self.begin(streams, span.rate, kept.path, span);
        } else {
            self.phase = Phase::Kept(kept);
        }
    }

    fn back(&mut self, span: &Span, why: &str, is_congestion: bool) {
        self.tabu_until_us = span.at_us.saturating_add(TABU_US << (2 * self.failures));
        if is_congestion {
            self.congestion_until_us = self.tabu_until_us;
        }
        self.failures += 1;
        (self.streams, self.finding) = (0, Finding::NotLossy);
        self.tell(span, &format!("the host's again, because {why}"));
    }

    fn say(&mut self, what: String) {
        if self.story.len() >= STORY_MAX {
            self.story.remove(STORY_TOLD / 2);
        }
        self.story.push(what);
    }

    fn tell(&mut self, span: &Span, what: &str) {
        let (seconds, rate) = (span.at_us as f64 / 1e6, shown(span.rate));
        self.say(format!("after {seconds:.1} s {what} ({rate} at {})", milliseconds(span.rtt_us)));
    }

    fn outcome(&mut self, rate: f64, lost: f64) {
        self.say(format!("then {}, and {} were lost", shown(rate), percent(lost)));
    }
}

const A_QUEUE_STOOD: &str = "the round trip became shorter: before, others had kept a queue full";
/// Steps that are remembered, and told.
const STORY_MAX: usize = 100;
const STORY_TOLD: usize = 12;

impl Trial {
    fn new(from: u32, rate: f64, path: LossyPath) -> Trial {
        Trial { from, rate, windows: 0, idle_windows: 0, best: 0.0, lost_least: 1.0, path }
    }
}

impl Span {
    fn new(from: &Sent, to: &Sent, queue_us: u64) -> Span {
        let us = to.at_us.saturating_sub(from.at_us).max(1);
        let segments = to.segments.saturating_sub(from.segments);
        let again = to.segments_again.saturating_sub(from.segments_again);
        let busy_us = to.busy_us.saturating_sub(from.busy_us);
        let limited_us = to.window_limited_us.saturating_sub(from.window_limited_us).min(busy_us);
        let rate = to.bytes.saturating_sub(from.bytes) as f64 * 1e6 / us as f64;
        let window = Window {
            bytes_per_second: rate as u64,
            rtt_us: to.rtt_us_min,
            queue_us,
            windows_permille: (limited_us.saturating_mul(1_000) / busy_us.max(1)) as u32,
            ..Window::default()
        };
        Span {
            from_us: from.at_us,
            at_us: to.at_us,
            streams: to.streams,
            rate,
            lost: if segments == 0 { 0.0 } else { (again as f64 / segments as f64).min(1.0) },
            rtt_us: to.rtt_us_min,
            is_queue_empty: window.queue_is_empty(),
            do_windows_limit: window.windows_limit(),
            is_busy: busy_us.saturating_mul(2) >= us,
            left_bytes: to.left_bytes,
        }
    }

    /// What was begun now would hardly be of use.
    fn is_ending(&self) -> bool {
        let patience_us = self.rtt_us.saturating_mul(LEFT_ROUND_TRIPS).max(LEFT_US_MIN);
        self.left_bytes.is_some_and(|bytes| bytes as f64 * 1e6 < patience_us as f64 * self.rate)
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
#[path = "congestion_tests.rs"]
mod tests;
