//! Tries a further network path while a job runs, and keeps it if the whole job goes faster by it.
//!
//! The law is that of `adapt`: settle, measure, judge, try. A path is worth trying when the lanes of both sides wait for the
//! network and enough is left; it stays if the total rate rises by `GAIN` within a few measurements. Otherwise its streams end: two
//! cards behind one bottleneck carry no more than one, and would only crowd out others.
//!
//! Invariants: at most one path is on trial; after `FAILED_TRIALS_MAX` trials without a gain there are no more. The clock is the
//! sample's.
//!
//! Not here: which paths there are (`paths`), streams on each (`adapt`), opening and ending them (`mover`).

use crate::adapt::{
    MEASURE_ROUND_TRIPS, MEASURE_US_MIN, SETTLE_ROUND_TRIPS, SETTLE_US_MIN, StreamSample, WaitingShare, round_trips,
};
use crate::window::{FAILED_TRIALS_MAX, LEFT_ROUND_TRIPS, LEFT_US_MIN, TRIAL_MEASUREMENTS, shown};
use model::progress::Stage;

/// A job that is over before this is none for several paths: finding them takes a round trip, and their streams slow start.
const FIRST_US: u64 = 2_000_000;
/// By what share the total rate has to rise.
const GAIN: f64 = 0.15;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathStep {
    Nothing,
    /// Opens one more path.
    Add,
    /// The path on trial stays.
    Keep(String),
    /// The path on trial ends.
    Drop(String),
}

/// The trials of one job. Samples are of all its streams together.
#[derive(Debug)]
pub struct PathTrials {
    sender: WaitingShare,
    receiver: WaitingShare,
    /// Until then nothing is measured.
    settles_until_us: u64,
    /// Start and bytes of the measurement under way.
    from: Option<(u64, u64)>,
    /// The rate before the path on trial, and its measurements so far.
    trial: Option<(f64, u32)>,
    failed: u32,
}

impl Default for PathTrials {
    fn default() -> PathTrials {
        PathTrials {
            sender: WaitingShare::new(Stage::Send),
            receiver: WaitingShare::new(Stage::Receive),
            settles_until_us: FIRST_US,
            from: None,
            trial: None,
            failed: 0,
        }
    }
}

impl PathTrials {
    /// No path will be tried any more.
    pub fn is_over(&self) -> bool {
        self.trial.is_none() && self.failed >= FAILED_TRIALS_MAX
    }

    pub fn is_trying(&self) -> bool {
        self.trial.is_some()
    }

    /// Takes a sample in, several for each round trip or one in tens of milliseconds. After `Add` the caller says by `opened` when the
    /// path has streams.
    pub fn step(&mut self, sample: &StreamSample) -> PathStep {
        self.sender.step(sample.at_us, &sample.sender);
        self.receiver.step(sample.at_us, &sample.receiver);
        if sample.at_us < self.settles_until_us {
            return PathStep::Nothing;
        }
        let (from_us, from_bytes) = *self.from.get_or_insert((sample.at_us, sample.delivered_bytes));
        let us = sample.at_us.saturating_sub(from_us);
        if us < round_trips(sample, MEASURE_ROUND_TRIPS, MEASURE_US_MIN) {
            return PathStep::Nothing;
        }
        self.from = Some((sample.at_us, sample.delivered_bytes));
        let rate = sample.delivered_bytes.saturating_sub(from_bytes) as f64 * 1e6 / us.max(1) as f64;
        match self.trial.take() {
            Some((before, measurements)) => self.judge(before, measurements + 1, rate),
            None if self.is_worth_it(sample, rate) => {
                self.trial = Some((rate, 0));
                self.settle(sample);
                PathStep::Add
            }
            None => PathStep::Nothing,
        }
    }

    /// The path that was asked for is open, and gets the time of its slow start.
    pub fn settle(&mut self, sample: &StreamSample) {
        self.settles_until_us = sample.at_us.saturating_add(round_trips(sample, SETTLE_ROUND_TRIPS, SETTLE_US_MIN));
        self.from = None;
    }

    /// There is no path to be opened.
    pub fn give_up(&mut self) {
        (self.trial, self.failed) = (None, FAILED_TRIALS_MAX);
    }

    fn judge(&mut self, before: f64, measurements: u32, rate: f64) -> PathStep {
        let told = format!("from {} to {}", shown(before), shown(rate));
        if rate >= before * (1.0 + GAIN) {
            return PathStep::Keep(told);
        }
        if measurements < TRIAL_MEASUREMENTS {
            self.trial = Some((before, measurements));
            return PathStep::Nothing;
        }
        self.failed += 1;
        PathStep::Drop(told)
    }

    fn is_worth_it(&self, sample: &StreamSample, rate: f64) -> bool {
        let left_us = sample.left_bytes.map_or(f64::INFINITY, |bytes| bytes as f64 * 1e6 / rate.max(1.0));
        let has_time = left_us >= round_trips(sample, LEFT_ROUND_TRIPS, LEFT_US_MIN) as f64;
        self.failed < FAILED_TRIALS_MAX && has_time && self.sender.is_waiting() && self.receiver.is_waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::progress::LaneTimes;

    const TICK_US: u64 = 50_000;
    const MBIT: f64 = 125_000.0;

    /// Runs for so long; each path carries its rate, all together at most `shared`. Returns paths open at the end and what was said.
    fn run(
        rates: &[f64],
        shared: f64,
        seconds: u64,
        waiting: (f64, f64),
        left_bytes: Option<u64>,
    ) -> (usize, Vec<PathStep>) {
        let mut trials = PathTrials::default();
        let mut sample = StreamSample { left_bytes, rtt_us_min: 1000, ..StreamSample::default() };
        let (mut open, mut said) = (1, Vec::new());
        for _ in 0..seconds * 1_000_000 / TICK_US {
            sample.at_us += TICK_US;
            let rate = rates[..open].iter().sum::<f64>().min(shared) * MBIT;
            sample.delivered_bytes += (rate * TICK_US as f64 / 1e6) as u64;
            for (times, stage, share) in
                [(&mut sample.sender, Stage::Send, waiting.0), (&mut sample.receiver, Stage::Receive, waiting.1)]
            {
                spend(times, stage, share);
            }
            match trials.step(&sample) {
                PathStep::Nothing => {}
                PathStep::Add if open == rates.len() => trials.give_up(),
                PathStep::Add => {
                    open += 1;
                    trials.settle(&sample);
                    said.push(PathStep::Add);
                }
                step => {
                    open -= usize::from(matches!(step, PathStep::Drop(_)));
                    said.push(step);
                }
            }
        }
        (open, said)
    }

    fn spend(times: &mut LaneTimes, waiting: Stage, share: f64) {
        times.lanes = 1;
        times.stage_ns[waiting as usize] += (TICK_US as f64 * 1e3 * share) as u64;
        times.stage_ns[Stage::Digest as usize] += (TICK_US as f64 * 1e3 * (1.0 - share)) as u64;
    }

    const WAITING: (f64, f64) = (0.9, 0.9);

    #[test]
    fn paths_are_added_one_after_the_other_as_long_as_each_brings_more() {
        let (open, said) = run(&[250.0; 4], f64::INFINITY, 20, WAITING, None);
        assert_eq!(open, 4);
        assert_eq!(said.iter().filter(|step| matches!(step, PathStep::Keep(_))).count(), 3, "{said:?}");
        assert!(format!("{said:?}").contains("from 250 Mbit/s to 500 Mbit/s"), "{said:?}");
    }

    #[test]
    fn two_cards_behind_one_bottleneck_stay_one_path() {
        let (open, said) = run(&[250.0; 4], 260.0, 60, WAITING, None);
        assert_eq!(open, 1);
        assert_eq!(said.iter().filter(|step| matches!(step, PathStep::Drop(_))).count(), 2, "{said:?}");
        assert_eq!(said.len(), 4, "no more trials: {said:?}");
    }

    #[test]
    fn nothing_is_tried_for_storage_for_a_short_job_or_on_suspicion() {
        for waiting in [(0.1, 0.9), (0.9, 0.1)] {
            assert_eq!(run(&[250.0; 2], f64::INFINITY, 20, waiting, None).1, []);
        }
        assert_eq!(run(&[250.0; 2], f64::INFINITY, 20, WAITING, Some(1 << 20)).1, []);
        assert_eq!(run(&[250.0; 2], f64::INFINITY, 1, WAITING, None).1, []);
    }
}
