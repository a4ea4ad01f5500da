//! How long what was written to growing files waits until the receiver has it.
//!
//! Invariants:
//! - What is remembered is bounded: where there is more, marks are joined, and what came later counts as old as what came before.
//!   Lag looks longer by that, never shorter.
//! - A byte has arrived when all before it have.

use model::progress::Lag;
use os::time::Instant;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Of one file: at one mark for 5 ms more than a second.
const MARKS_MAX: usize = 256;
/// Between two times that lag is told.
const SAMPLES_MAX: usize = 16_384;

#[derive(Default)]
pub struct Lags {
    /// How far a file was written, and when that was seen.
    marks: HashMap<u64, VecDeque<(u64, Instant)>>,
    samples: Vec<Duration>,
    whole: Histogram,
}

/// Counts of times: eight buckets for each doubling, so that a percentile is at most an eighth too high.
#[derive(Default)]
struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let us = (time.as_micros().min(1 << 50) as u64).max(8);
        let exponent = u64::from(us.ilog2());
        let bucket = (exponent * 8 + ((us >> (exponent - 3)) & 7)) as usize;
        self.counts.resize(self.counts.len().max(bucket + 1), 0);
        self.counts[bucket] += 1;
    }

    fn at(&self, hundredths: u64) -> Option<Duration> {
        let wanted = (self.counts.iter().sum::<u64>() * hundredths).div_ceil(100);
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted && wanted > 0
        })?;
        let (exponent, eighth) = (bucket / 8, bucket as u64 % 8);
        Some(Duration::from_micros((9 + eighth) << (exponent - 3)))
    }
}

impl Lags {
    pub fn grown(&mut self, id: u64, end: u64, now: Instant) {
        let marks = self.marks.entry(id).or_default();
        let is_full = marks.len() >= MARKS_MAX;
        match marks.back_mut() {
            Some((last, _)) if *last >= end => {}
            Some((last, _)) if is_full => *last = end,
            _ => marks.push_back((end, now)),
        }
    }

    pub fn arrived(&mut self, id: u64, end: u64, now: Instant) {
        let Some(marks) = self.marks.get_mut(&id) else { return };
        while let Some((_, seen)) = marks.front().copied().filter(|(mark, _)| *mark <= end) {
            marks.pop_front();
            self.whole.add(now.duration_since(seen));
            if self.samples.len() < SAMPLES_MAX {
                self.samples.push(now.duration_since(seen));
            }
        }
        if marks.is_empty() {
            self.marks.remove(&id);
        }
    }

    pub fn forget(&mut self, id: u64) {
        self.marks.remove(&id);
    }

    /// Of all that arrived.
    pub fn whole(&self) -> Lag {
        Lag { p50: self.whole.at(50), p99: self.whole.at(99), oldest: None }
    }

    pub fn take(&mut self, now: Instant) -> Lag {
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_unstable();
        let at = |hundredths: usize| samples.get((samples.len() * hundredths).div_ceil(100).saturating_sub(1)).copied();
        let oldest = self.marks.values().filter_map(VecDeque::front).map(|(_, seen)| *seen).min();
        Lag { p50: at(50), p99: at(99), oldest: oldest.map(|seen| now.duration_since(seen)) }
    }
}

/// How often and for how long the destination was too far behind.
#[derive(Default)]
pub struct Alarms {
    pub count: u64,
    pub since: Option<Instant>,
    pub lasted: Duration,
}

impl Alarms {
    pub fn change(&mut self, is_alarmed: bool) {
        match (is_alarmed, self.since.take()) {
            (true, None) => {
                self.count += 1;
                self.since = Some(Instant::now());
            }
            (_, Some(since)) => self.lasted += since.elapsed(),
            (false, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_counted_from_when_a_byte_was_seen_until_all_before_it_have_arrived() {
        let (began, mut lags) = (Instant::now(), Lags::default());
        let at = |ms| began + Duration::from_millis(ms);
        let ms = |ms| Some(Duration::from_millis(ms));
        lags.grown(1, 10, at(0));
        lags.grown(1, 10, at(1));
        lags.grown(1, 20, at(5));
        lags.grown(2, 5, at(2));
        lags.arrived(1, 9, at(6));
        assert_eq!(lags.take(at(7)), Lag { oldest: ms(7), ..Lag::default() });
        lags.arrived(1, 20, at(105));
        assert_eq!(lags.take(at(110)), Lag { p50: ms(100), p99: ms(105), oldest: ms(108) });
        lags.forget(2);
        assert_eq!(lags.take(at(111)), Lag::default());
    }

    #[test]
    fn the_whole_is_known_to_an_eighth() {
        let mut lags = Lags::default();
        let began = Instant::now();
        assert_eq!(lags.whole(), Lag::default());
        for ms in 1..=100 {
            lags.grown(1, ms, began);
            lags.arrived(1, ms, began + Duration::from_millis(ms));
        }
        let (p50, p99) = (lags.whole().p50.unwrap(), lags.whole().p99.unwrap());
        for (found, ms) in [(p50, 50), (p99, 99)] {
            let exact = Duration::from_millis(ms);
            assert!(found >= exact && found <= exact * 9 / 8, "{found:?} for {exact:?}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_looks_old_rather_than_young() {
        let (began, mut lags) = (Instant::now(), Lags::default());
        let at = |ms| began + Duration::from_millis(ms);
        for number in 0..1000 {
            lags.grown(1, number + 1, at(number));
        }
        assert_eq!(lags.marks[&1].len(), MARKS_MAX);
        lags.arrived(1, 999, at(1000));
        assert_eq!(lags.take(at(1000)).oldest, Some(Duration::from_millis(1000 - 255)));
        lags.arrived(1, 1000, at(1000));
        assert_eq!(lags.take(at(1000)).p50, Some(Duration::from_millis(745)));
    }
}
