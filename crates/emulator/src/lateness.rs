//! How late packets were released: the emulator's measure of itself.
//!
//! Owns: a histogram of fixed size. Buckets are 1/8 of an octave wide, so a quantile is exact to 9 %.

const OCTAVE_PARTS: u64 = 8;
const BUCKETS: usize = 320;

#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Lateness {
    /// Counts by `bucket`, the empty end cut off.
    counts: Vec<u64>,
    pub samples: u64,
    pub max_ns: u64,
    pub sum_ns: u64,
}

impl Default for Lateness {
    fn default() -> Self {
        Lateness { counts: vec![0; BUCKETS], samples: 0, max_ns: 0, sum_ns: 0 }
    }
}

impl Lateness {
    pub fn add(&mut self, late_ns: u64) {
        self.counts[bucket(late_ns)] += 1;
        self.samples += 1;
        self.max_ns = self.max_ns.max(late_ns);
        self.sum_ns += late_ns;
    }

    /// Upper edge of the bucket that holds the quantile; 0 without samples.
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.samples as f64).ceil() as u64;
        let mut below = 0;
        for (index, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank && below > 0 {
                return upper_edge_ns(index).min(self.max_ns);
            }
        }
        self.max_ns
    }

    pub fn merge(&mut self, other: &Lateness) {
        for (own, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *own += theirs;
        }
        self.samples += other.samples;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// What was added since `earlier`, a state of the same histogram.
    pub fn since(&self, earlier: &Lateness) -> Lateness {
        let counts = self.counts.iter().zip(&earlier.counts).map(|(now, then)| now.saturating_sub(*then)).collect();
        let (samples, sum_ns) =
            (self.samples.saturating_sub(earlier.samples), self.sum_ns.saturating_sub(earlier.sum_ns));
        Lateness { counts, samples, sum_ns, max_ns: self.max_ns }
    }

    /// (upper edge in nanoseconds, count) of the buckets that hold something.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (upper_edge_ns(index), *count))
    }
}

fn bucket(ns: u64) -> usize {
    if ns < OCTAVE_PARTS {
        return ns as usize;
    }
    let octave = u64::from(ns.ilog2()) - 3;
    let part = (ns >> octave) - OCTAVE_PARTS;
    ((octave * OCTAVE_PARTS + OCTAVE_PARTS + part) as usize).min(BUCKETS - 1)
}

fn upper_edge_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < OCTAVE_PARTS {
        return bucket;
    }
    let (octave, part) = ((bucket - OCTAVE_PARTS) / OCTAVE_PARTS, bucket % OCTAVE_PARTS);
    ((OCTAVE_PARTS + part + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bucket_of_the_truth() {
        let mut lateness = Lateness::default();
        (1..=100_000).for_each(|us| lateness.add(us * 1000));
        for (share, exact_ns) in [(0.5, 50_000_000.0), (0.99, 99_000_000.0), (0.999, 99_900_000.0)] {
            let found = lateness.quantile_ns(share) as f64;
            assert!((1.0..1.13).contains(&(found / exact_ns)), "{share}: {found}");
        }
        assert_eq!(lateness.quantile_ns(1.0), 100_000_000);
        assert_eq!(Lateness::default().quantile_ns(0.5), 0);
    }

    #[test]
    fn every_value_has_a_bucket_whose_edge_is_not_below_it() {
        for ns in (0..5000).chain([u64::MAX >> 24, 1 << 39]) {
            assert!(upper_edge_ns(bucket(ns)) >= ns, "{ns}");
            assert!(bucket(ns) == 0 || upper_edge_ns(bucket(ns) - 1) < ns, "{ns}");
        }
    }
}
