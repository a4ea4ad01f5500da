//! Latencies of single operations: a histogram of bounded size and its percentiles.
//!
//! Buckets are exact below 64 ns and otherwise 1/32 of a power of two wide: a percentile is at most 3.2 % too high and
//! never too low. The maximum is exact.

use std::time::Duration;

use serde::Serialize;

/// Buckets of one power of two.
const SUB_BITS: u32 = 5;
const SUB: u64 = 1 << SUB_BITS;
/// For every value of 64 bits.
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) * SUB as usize;

#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum_ns: u128,
    max_ns: u64,
}

/// What is reported of a histogram, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into(), count: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// All operations together, one after the other.
    pub fn seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    pub fn percentiles(&self) -> Percentiles {
        let us = |ns: f64| ns / 1e3;
        let at = |part| us(self.quantile_ns(part) as f64);
        Percentiles {
            count: self.count,
            mean_us: us(self.sum_ns as f64 / self.count.max(1) as f64),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: us(self.max_ns as f64),
        }
    }

    /// The upper end of the bucket in which this part of the operations is reached.
    fn quantile_ns(&self, part: f64) -> u64 {
        let wanted = ((self.count as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return upper_end(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket(ns: u64) -> usize {
    if ns < 2 * SUB {
        return ns as usize;
    }
    // At least SUB_BITS + 1 here, since the value has more bits than a bucket index of one power of two.
    let power = ns.ilog2();
    let shift = power - SUB_BITS;
    (u64::from(shift) * SUB + (ns >> shift)) as usize
}

fn upper_end(index: usize) -> u64 {
    let index = index as u64;
    if index < 2 * SUB {
        return index;
    }
    let shift = index / SUB - 1;
    let low = (index - shift * SUB) << shift;
    low + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_close_below_its_end() {
        for ns in (0..200).chain((7..64).flat_map(|bit| [1 << bit, (1 << bit) + (1 << (bit - 1)), (1 << bit) - 1])) {
            let end = upper_end(bucket(ns));
            assert!(end >= ns && (end - ns) as f64 <= ns as f64 / 31.0, "{ns} {end}");
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn percentiles_of_a_thousand_known_operations() {
        let (mut low, mut high) = (Histogram::default(), Histogram::default());
        for us in 1..=1_000 {
            (if us % 2 == 0 { &mut low } else { &mut high }).record(Duration::from_micros(us));
        }
        low.merge(&high);
        let found = low.percentiles();
        assert_eq!((found.count, found.mean_us, found.max_us), (1_000, 500.5, 1_000.0));
        for (value, exact) in
            [(found.p50_us, 500.0), (found.p90_us, 900.0), (found.p99_us, 990.0), (found.p999_us, 999.0)]
        {
            assert!(value >= exact && value <= exact * 1.033, "{value} {exact}");
        }
    }

    #[test]
    fn nothing_recorded_is_zero() {
        assert_eq!(Histogram::default().percentiles(), Percentiles::default());
    }
}
