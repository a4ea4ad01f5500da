//! Does storage keep up with a target rate: throughput and latency, each for reading and for writing.
//!
//! Throughput is what was measured with the settings given. Latency is judged by how much must be in flight: at a rate R,
//! with blocks of B bytes that each take L alone, R * L / B operations are in flight at any time (Little's law). Storage
//! whose operations take long passes only if that many can be in flight; a ladder of rising concurrency shows what more of
//! it brings, and where it ends.

use model::quantity::{MIB, Rate};
use serde::Serialize;

use super::measured::Operation;

/// Written or read in one step of the ladder, at most.
pub(super) const LADDER_BYTES_MAX: u64 = 256 * MIB;
/// Doubling the concurrency counts as a gain from here on.
const GAIN_MIN: f64 = 1.05;
/// A step this close to the best is as good; less concurrency means less waiting.
const NEAR_BEST: f64 = 0.95;

/// One step of a ladder.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rung {
    pub threads: usize,
    pub depth: usize,
    pub bytes_per_second: f64,
    pub latency_us_mean: f64,
}

pub struct Ladders {
    pub write: Vec<Rung>,
    pub read: Vec<Rung>,
}

impl Rung {
    pub fn concurrency(&self) -> u64 {
        (self.threads * self.depth) as u64
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Side {
    pub operation: Operation,
    /// With the settings given.
    pub bytes_per_second: f64,
    pub is_fast_enough: bool,
    /// Of one block while nothing else is in flight.
    pub latency_alone_us: f64,
    pub concurrency: u64,
    /// Blocks in flight that the target needs if none takes longer than alone.
    pub concurrency_needed: u64,
    pub is_concurrent_enough: bool,
    pub ladder: Vec<Rung>,
    /// The least concurrency that reaches the target, or what comes near the best where none does.
    pub recommended: Option<Rung>,
    pub advice: String,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    pub target_bytes_per_second: f64,
    pub passes: bool,
    pub sides: Vec<Side>,
}

/// The side that limits a transfer which reads and writes storage like this one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Binds {
    pub operation: Operation,
    /// The other side's rate divided by this one's.
    pub by: f64,
}

impl Verdict {
    pub fn of(target_bytes_per_second: f64, sides: Vec<Side>) -> Verdict {
        let passes = sides.iter().all(|side| side.is_fast_enough && side.is_concurrent_enough);
        Verdict { target_bytes_per_second, passes, sides }
    }
}

/// None where one of them was not measured.
pub fn binds(read_bytes_per_second: f64, write_bytes_per_second: f64) -> Option<Binds> {
    if read_bytes_per_second <= 0.0 || write_bytes_per_second <= 0.0 {
        return None;
    }
    Some(match write_bytes_per_second <= read_bytes_per_second {
        true => Binds { operation: Operation::Write, by: read_bytes_per_second / write_bytes_per_second },
        false => Binds { operation: Operation::Read, by: write_bytes_per_second / read_bytes_per_second },
    })
}

/// Whether a ladder needs no further step.
pub(super) fn is_climbed(ladder: &[Rung], target_bytes_per_second: f64) -> bool {
    let Some(last) = ladder.last() else { return false };
    let reached = ladder.iter().any(|rung| rung.bytes_per_second >= target_bytes_per_second);
    let before = |steps: usize| ladder.len().checked_sub(steps + 1).map(|index| ladder[index].bytes_per_second);
    // One step without gain may be noise.
    let is_flat = before(2).is_some_and(|rate| last.bytes_per_second < GAIN_MIN * rate);
    ladder.len() >= 3 && (reached || is_flat)
}

pub(super) fn judge(
    operation: Operation,
    bytes_per_second: f64,
    block_bytes: u64,
    concurrency: u64,
    target_bytes_per_second: f64,
    ladder: Vec<Rung>,
) -> Side {
    let latency_alone_us = ladder.first().map_or(0.0, |rung| rung.latency_us_mean);
    let needed = target_bytes_per_second * latency_alone_us / 1e6 / block_bytes as f64;
    let concurrency_needed = (needed.ceil() as u64).max(1);
    let is_fast_enough = bytes_per_second >= target_bytes_per_second;
    let is_concurrent_enough = concurrency >= concurrency_needed;
    let best = ladder.iter().map(|rung| rung.bytes_per_second).fold(0.0, f64::max);
    let reaching = ladder.iter().find(|rung| rung.bytes_per_second >= target_bytes_per_second);
    let near_best = ladder.iter().find(|rung| rung.bytes_per_second >= NEAR_BEST * best);
    let recommended = reaching.or(near_best).copied();
    let advice = advice(is_fast_enough, is_concurrent_enough, reaching, near_best);
    Side {
        operation,
        bytes_per_second,
        is_fast_enough,
        latency_alone_us,
        concurrency,
        concurrency_needed,
        is_concurrent_enough,
        ladder,
        recommended,
        advice,
    }
}

fn advice(fast: bool, concurrent: bool, reaching: Option<&Rung>, near_best: Option<&Rung>) -> String {
    let setting = |rung: &Rung| {
        let threads = format!("{} thread{}", rung.threads, if rung.threads == 1 { "" } else { "s" });
        if rung.depth > 1 { format!("{threads} with a depth of {}", rung.depth) } else { threads }
    };
    match (fast && concurrent, reaching, near_best) {
        (true, _, _) => "keeps up".into(),
        (false, Some(rung), _) => {
            let rate = Rate { bytes_per_second: rung.bytes_per_second };
            format!("more in flight helps: {} reach {rate}", setting(rung))
        }
        (false, None, Some(rung)) => {
            let rate = Rate { bytes_per_second: rung.bytes_per_second };
            format!(
                "this storage does not reach the target: {} give {rate}, and more in flight adds nothing",
                setting(rung)
            )
        }
        (false, None, None) => "not measured".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1e6;

    fn ladder(rates: &[f64]) -> Vec<Rung> {
        let rung = |(step, rate): (usize, &f64)| Rung {
            threads: 1,
            depth: 1 << step,
            bytes_per_second: *rate * MB,
            latency_us_mean: 5_000.0,
        };
        rates.iter().enumerate().map(rung).collect()
    }

    #[test]
    fn latency_alone_says_how_much_must_be_in_flight() {
        // 1 MB blocks of 5 ms each: 200 MB/s alone, so that 1 GB/s takes five in flight.
        let steps = ladder(&[200.0, 400.0, 800.0, 1_600.0]);
        let side = judge(Operation::Read, 400.0 * MB, 1_000_000, 2, 1_000.0 * MB, steps.clone());
        assert_eq!((side.concurrency_needed, side.is_concurrent_enough, side.is_fast_enough), (5, false, false));
        assert_eq!(side.recommended.unwrap().depth, 8);
        assert_eq!(side.advice, "more in flight helps: 1 thread with a depth of 8 reach 12.8 Gbit/s");
        let enough = judge(Operation::Read, 1_600.0 * MB, 1_000_000, 8, 1_000.0 * MB, steps);
        assert!(enough.is_concurrent_enough && enough.is_fast_enough && enough.advice == "keeps up");
        assert!(Verdict::of(1_000.0 * MB, vec![enough.clone()]).passes);
        assert!(!Verdict::of(1_000.0 * MB, vec![enough, side]).passes);
    }

    #[test]
    fn storage_that_ends_below_the_target_says_so_and_names_the_least_that_gives_its_best() {
        let steps = ladder(&[200.0, 390.0, 500.0, 505.0, 501.0]);
        let side = judge(Operation::Write, 500.0 * MB, 1_000_000, 4, 1_000.0 * MB, steps);
        assert_eq!(side.recommended.unwrap().depth, 4);
        assert!(side.advice.starts_with("this storage does not reach the target"), "{}", side.advice);
    }

    #[test]
    fn a_ladder_ends_at_the_target_or_where_more_brings_nothing() {
        let target = 1_000.0 * MB;
        assert!(!is_climbed(&ladder(&[2_000.0]), target));
        assert!(is_climbed(&ladder(&[2_000.0, 2_000.0, 2_000.0]), target));
        assert!(!is_climbed(&ladder(&[100.0, 200.0, 201.0]), target));
        assert!(is_climbed(&ladder(&[100.0, 200.0, 201.0, 202.0]), target));
    }

    #[test]
    fn the_slower_side_binds() {
        assert_eq!(binds(4.0, 2.0), Some(Binds { operation: Operation::Write, by: 2.0 }));
        assert_eq!(binds(2.0, 3.0), Some(Binds { operation: Operation::Read, by: 1.5 }));
        assert_eq!(binds(0.0, 3.0), None);
    }
}
