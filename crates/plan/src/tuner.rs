//! The law by which the number of streams follows a job that runs: windows of it go in, another number comes out, with its reason.
//!
//! What is tried depends on what limits the job (`window::Limit`), and one law says what is kept:
//!
//! | limit | tried | kept if |
//! |---|---|---|
//! | network; losses hold the streams back, and the queue is empty; or windows do, and none stands | twice as many | it carries `GAIN_SHARE` of what they should |
//! | network; a queue stands, with fewer streams than `FLOOR` | twice as many | as above: then others were on it |
//! | network; a queue stands (the link is full) | a quarter less, down to the floor | the queue still stands and what is lost is less than `K_FULL` for each stream; or nothing is lost |
//! | source or destination | twice as many | as above |
//! | the same, when more brought nothing | half, down to one | nothing is lost |
//! | processors, a rate that was set, unknown | nothing | |
//!
//! What is not kept is taken back at once (but for the first streams that were added for losses), and not tried again for `TABU_US`,
//! four times as long after each failure. When the rate leaves what was usual (a test of Page and Hinkley), all of that is forgotten: the
//! host, the path or a neighbour is another one. When something else limits at the same rate, fewer may be tried again, and more only
//! for what it was not tried for.
//!
//! Two jobs on one full link meet: the one with more streams loses less by giving one back than `K_FULL` allows. The one that began later
//! takes most of the queue for the path, and losses are no reason for more until the rest of it is gone too (`Window::queue_is_empty`).
//!
//! Invariants: the number stays between one and its bound and changes by a doubling at most; nothing is begun when the job is about
//! to end; the same windows give the same decisions, so that a log of them can be replayed. The clock is the windows'.
//!
//! Not here: making windows of samples (`adapt`), starting and resting lanes (`mover`).

use crate::streams::milliseconds;
use crate::window::{FAILED_TRIALS_MAX, LEFT_ROUND_TRIPS, LEFT_US_MIN, Limit, TRIAL_MEASUREMENTS, Window, shown};
use serde::{Deserialize, Serialize};

/// Below this round trip a window is regained before it matters: the table's number stays.
const RTT_US_MIN: u64 = 1_000;
/// Streams times two would carry twice as much if each carried what it did; a link that is nearly full gives less. This
/// share of the proportional gain must show: 15 % for a doubling, above what the saw-teeth of few streams vary by.
const GAIN_SHARE: f64 = 0.15;
/// On a full link a stream must be worth this factor of the rate to be kept: beside m foreign streams n are worth it as long as
/// m / (n (n + m)) is more than its logarithm, so that two jobs meet at some four streams each, or where both began.
const K_FULL: f64 = 1.15;
/// What may be lost by a stream less where nobody else takes it.
const LOSS_ALLOWED: f64 = 0.01;
/// Where losses are usual and links are full, fewer streams than these recover slowly: trimming ends here, or where it began.
const FLOOR: u32 = 4;
/// A quarter of the streams is given back to a link at a time, five at most; of the lanes at storage half.
const NETWORK_PARTS: u32 = 4;
const STORAGE_PARTS: u32 = 2;
const TRIM_MAX: u32 = 5;
/// Windows in which a smaller number may show that nothing is lost, and what shows at once that something is.
const FEWER_MEASUREMENTS: u32 = 2;
const CLEARLY: f64 = 0.9;
/// Windows without a change before streams are given back.
const HOLD: u32 = 3;
/// What failed is not tried again for this long, then four times as long, and so on.
const TABU_US: u64 = 30_000_000;
const TABU_US_MAX: u64 = 3_600_000_000;
/// In the last seconds of a job nothing is given back, and in fewer of them nothing more is tried for storage: as long as a trial that
/// brings nothing may take, and as long again.
const END_US: u64 = 10_000_000;
const STORAGE_LEFT_US: u64 = 3_000_000;
/// Page and Hinkley: what the logarithm of the rate may be off, and the sum at which it is another rate.
const DRIFT: f64 = 0.05;
const ALARM: f64 = 0.4;
/// Windows in a row in which something else limits, or a queue stands that did not, or the other way round; and in which a queue is
/// empty, before losses are the path's.
const OTHERWISE: u32 = 2;
/// A factor between mean sizes of files from which two windows are not comparable.
const OTHER_FILES: u64 = 2;
/// What is remembered of the job's past.
const CHANGES_MAX: usize = 1_000;

/// A change of the number, as it is told and logged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    pub at_us: u64,
    pub from: u32,
    pub to: u32,
    /// One sentence, with the rate at that moment.
    pub why: String,
}

/// A number of streams that is looked after.
#[derive(Clone, Debug)]
pub struct Tuner {
    streams: u32,
    most: u32,
    floor: u32,
    only_grows: bool,
    home: Home,
    trial: Option<Trial>,
    /// For want of network, and for want of storage.
    more: [Tabu; 2],
    fewer: Tabu,
    held: u32,
    /// Windows in a row in which the queue was empty.
    empty: u32,
    changes: Vec<Change>,
}

/// The usual rate, as a mean that forgets, and how far windows are from it.
#[derive(Clone, Copy, Debug, Default)]
struct Home {
    windows: u32,
    rate: f64,
    spread: f64,
    file_bytes: u64,
    /// What limits, and whether a queue stands; and for how many windows that was otherwise.
    kind: (Limit, bool),
    otherwise: u32,
    above: f64,
    below: f64,
}

#[derive(Clone, Debug)]
struct Trial {
    from: u32,
    rate: f64,
    spread: f64,
    file_bytes: u64,
    windows: u32,
    best: f64,
    kind: Kind,
    /// Its change is the last of those that are remembered.
    is_listed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// For which want: a place in `Tuner::more`.
    More(usize),
    Fewer,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tabu {
    until_us: u64,
    failures: u32,
}

impl Tabu {
    fn failed(&mut self, now_us: u64) {
        let span = TABU_US.saturating_mul(1 << (2 * self.failures.min(5))).min(TABU_US_MAX);
        *self = Tabu { until_us: now_us.saturating_add(span), failures: self.failures + 1 };
    }

    /// It may be right all the same.
    fn wait(&mut self, now_us: u64) {
        self.until_us = self.until_us.max(now_us.saturating_add(TABU_US));
    }

    fn allows(&self, now_us: u64) -> bool {
        now_us >= self.until_us
    }
}

impl Home {
    fn new(window: &Window, rate: f64) -> Home {
        let kind = (window.limit, window.queue_stands());
        Home { rate, kind, file_bytes: window.file_bytes, ..Home::default() }
    }
}

impl Tuner {
    /// `streams` is what was chosen at the start, `most` what both ends take.
    pub fn new(streams: u32, most: u32) -> Tuner {
        let (more, fewer) = Default::default();
        Tuner {
            streams,
            most,
            floor: streams.clamp(1, FLOOR),
            only_grows: false,
            home: Home::default(),
            trial: None,
            more,
            fewer,
            held: 0,
            empty: 0,
            changes: Vec::new(),
        }
    }

    /// Lanes on several paths are told apart by what they carry: none of them rests.
    pub fn only_grows(&mut self) {
        self.only_grows = true;
    }

    pub fn streams(&self) -> u32 {
        self.streams
    }

    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Takes a window in; another number comes out when it is time for it.
    pub fn step(&mut self, window: &Window) -> Option<u32> {
        let before = self.streams;
        let rate = (window.bytes_per_second as f64).max(1.0);
        self.empty = if window.queue_is_empty() { self.empty.saturating_add(1) } else { 0 };
        match self.trial.take() {
            Some(trial) => self.judge(trial, window, rate),
            None => self.watch(window, rate),
        }
        if self.trial.is_none() && self.streams == before {
            self.consider(window, rate);
        }
        (self.streams != before).then_some(self.streams)
    }

    /// Learns what is usual, and notices when it is not any more.
    fn watch(&mut self, window: &Window, rate: f64) {
        let home = &mut self.home;
        if home.windows > 0 && differs(home.file_bytes, window.file_bytes) {
            // Other files have another rate.
            *home = Home::default();
            self.held = 0;
        }
        if home.windows == 0 {
            *home = Home::new(window, rate);
        }
        let off = (rate / home.rate.max(1.0)).ln();
        let drift = DRIFT.max(home.spread);
        home.above = (home.above + off - drift).max(0.0);
        home.below = (home.below - off - drift).max(0.0);
        let is_other = window.limit != Limit::Unknown && home.kind != (window.limit, window.queue_stands());
        home.otherwise = if is_other { home.otherwise + 1 } else { 0 };
        let is_another_rate = home.above.max(home.below) > ALARM;
        if is_another_rate || home.otherwise >= OTHERWISE {
            // Our own changes may make limits take turns at one rate: what brought nothing for one of them brings nothing again.
            if is_another_rate {
                self.more = Default::default();
            }
            self.fewer = Tabu::default();
            self.held = 0;
            *home = Home { windows: 1, ..Home::new(window, rate) };
            return;
        }
        let weight = 1.0 / f64::from(home.windows.min(9) + 1);
        home.spread += (off.abs() * 1.25 - home.spread) * weight;
        home.rate += (rate - home.rate) * weight;
        home.windows += 1;
        self.held += 1;
    }

    /// Begins a trial where there is a reason for one.
    fn consider(&mut self, window: &Window, rate: f64) {
        let left_us = window.left_bytes.map_or(f64::INFINITY, |bytes| bytes as f64 * 1e6 / rate);
        let is_network = window.limit == Limit::Network;
        let patience = window.rtt_us.saturating_mul(LEFT_ROUND_TRIPS).max(LEFT_US_MIN);
        let growing_us = if is_network { patience } else { STORAGE_LEFT_US };
        let more = &self.more[usize::from(!is_network)];
        if more.allows(window.at_us)
            && !(self.only_grows && more.failures >= FAILED_TRIALS_MAX)
            && left_us >= growing_us as f64
            && self.streams < self.most
            && let Some(why) = self.reason_for_more(window, rate)
        {
            let to = self.streams.saturating_mul(2).min(self.most);
            return self.begin(Kind::More(usize::from(!is_network)), to, window, rate, why);
        }
        let is_calm = self.held >= HOLD && left_us >= END_US as f64 && !self.only_grows;
        if is_calm
            && self.fewer.allows(window.at_us)
            && let Some((floor, why)) = self.reason_for_fewer(window, rate)
            && self.streams > floor
        {
            // A step that was too large is tried smaller.
            let part = match is_network {
                true => self.streams.div_ceil(NETWORK_PARTS).min(TRIM_MAX),
                false => self.streams / STORAGE_PARTS,
            };
            let step = (part >> self.fewer.failures.min(3)).max(1);
            self.begin(Kind::Fewer, self.streams.saturating_sub(step).max(floor), window, rate, why);
        }
    }

    fn reason_for_more(&self, window: &Window, rate: f64) -> Option<String> {
        let at = shown(rate);
        match window.limit {
            Limit::Network if window.rtt_us < RTT_US_MIN => None,
            Limit::Network if window.queue_stands() => (self.streams < FLOOR)
                .then(|| format!("the link is full, and others on it may have more streams, {at}")),
            Limit::Network if window.windows_limit() => {
                Some(format!("windows held the streams back, {at} at {}", milliseconds(window.rtt_us)))
            }
            Limit::Network if window.is_lossy && self.empty >= OTHERWISE => Some(format!(
                "losses held the streams back with an empty queue, {at} at {}",
                milliseconds(window.rtt_us)
            )),
            Limit::Source if !self.only_grows => Some(format!("the lanes waited for the source's storage, {at}")),
            Limit::Destination if !self.only_grows => {
                Some(format!("the lanes waited for the destination's storage, {at}"))
            }
            _ => None,
        }
    }

    fn reason_for_fewer(&self, window: &Window, rate: f64) -> Option<(u32, String)> {
        let at = shown(rate);
        match window.limit {
            Limit::Network if window.queue_stands() && window.rtt_us >= RTT_US_MIN => Some((
                self.floor,
                format!("the link is full: a queue of {} stands, {at}", milliseconds(window.queue_us)),
            )),
            // Only when more was tried: storage that is slow with few lanes shows the same.
            Limit::Source | Limit::Destination if self.more[1].failures > 0 => {
                Some((1, format!("more lanes brought nothing, {at}")))
            }
            _ => None,
        }
    }

    fn begin(&mut self, kind: Kind, to: u32, window: &Window, rate: f64, why: String) {
        // One window is at the mercy of one saw-tooth: where there is a usual rate, that is compared with.
        let before = if self.home.windows >= HOLD { self.home.rate } else { rate };
        self.trial = Some(Trial {
            from: self.streams,
            rate: before,
            spread: self.home.spread,
            file_bytes: window.file_bytes,
            windows: 0,
            best: 0.0,
            kind,
            is_listed: self.changes.len() < CHANGES_MAX,
        });
        self.change(window, to, why);
    }

    fn judge(&mut self, mut trial: Trial, window: &Window, rate: f64) {
        if differs(trial.file_bytes, window.file_bytes) {
            return self.void(&trial, window);
        }
        trial.windows += 1;
        trial.best = trial.best.max(rate);
        let is_kept = match trial.kind {
            Kind::More(_) => rate >= trial.rate_wanted(self.streams),
            Kind::Fewer => rate >= trial.rate_enough(self.streams, window),
        };
        let told = format!("{} before, {} after", shown(trial.rate), shown(trial.best));
        let tabu = match trial.kind {
            Kind::More(want) => &mut self.more[want],
            Kind::Fewer => &mut self.fewer,
        };
        if is_kept {
            *tabu = Tabu::default();
            self.amend(&trial, &format!("{} after", shown(rate)));
            (self.home, self.held) = (Home::default(), if trial.kind == Kind::Fewer { HOLD - 1 } else { 0 });
            return self.watch(window, rate);
        }
        if !trial.is_hopeless(self.streams, window, rate) {
            self.trial = Some(trial);
            return;
        }
        // Streams that lost much are slow for seconds, so that a rate may fall meanwhile for no other reason: what was added for losses stays
        // the first time, as long as it fills no queue.
        let may_stay = trial.kind == Kind::More(0) && tabu.failures == 0 && !window.queue_stands();
        tabu.failed(window.at_us);
        self.held = 0;
        match trial.kind {
            Kind::More(_) if self.only_grows || may_stay => {
                self.amend(&trial, &format!("{} after: no gain", shown(trial.best)));
            }
            Kind::More(_) => self.change(window, trial.from, format!("no gain: {told}")),
            Kind::Fewer => self.change(window, trial.from, format!("slower: {told}")),
        }
    }

    /// Nothing was learned. Where sizes of files take turns, the next trial would end like this one: it waits a time.
    fn void(&mut self, trial: &Trial, window: &Window) {
        const WHY: &str = "other files came meanwhile: not comparable";
        match trial.kind {
            Kind::More(want) => self.more[want].wait(window.at_us),
            Kind::Fewer => self.fewer.wait(window.at_us),
        }
        if !self.only_grows {
            return self.change(window, trial.from, WHY.to_owned());
        }
        self.amend(trial, WHY);
    }

    /// Adds to the words of a trial's change what came of it.
    fn amend(&mut self, trial: &Trial, outcome: &str) {
        if let Some(change) = self.changes.last_mut().filter(|_| trial.is_listed) {
            change.why = format!("{}; {outcome}", change.why);
        }
    }

    fn change(&mut self, window: &Window, to: u32, why: String) {
        if self.changes.len() < CHANGES_MAX {
            self.changes.push(Change { at_us: window.at_us, from: self.streams, to, why });
        }
        self.streams = to;
    }
}

impl Trial {
    fn rate_wanted(&self, streams: u32) -> f64 {
        let added = f64::from(streams) / f64::from(self.from.max(1)) - 1.0;
        let noise = (2.0 * self.spread).min(GAIN_SHARE);
        self.rate * (1.0 + (GAIN_SHARE * added).max(noise))
    }

    /// More streams need their time to start; what fewer of them lose shows at once.
    fn is_hopeless(&self, streams: u32, window: &Window, rate: f64) -> bool {
        match self.kind {
            Kind::More(_) => self.windows >= TRIAL_MEASUREMENTS,
            Kind::Fewer => self.windows >= FEWER_MEASUREMENTS || rate < CLEARLY * self.rate_enough(streams, window),
        }
    }

    /// On a link that is still full, somebody else took what is missing.
    fn rate_enough(&self, streams: u32, window: &Window) -> f64 {
        let removed = self.from.saturating_sub(streams);
        match window.queue_stands() {
            true => self.rate / K_FULL.powi(removed.min(1 << 10) as i32),
            false => self.rate * (1.0 - LOSS_ALLOWED),
        }
    }
}

fn differs(one: u64, other: u64) -> bool {
    let (less, more) = (one.min(other), one.max(other));
    less > 0 && more > less.saturating_mul(OTHER_FILES)
}

#[cfg(test)]
#[path = "tuner_tests.rs"]
mod tests;
