//! The paths of a job that were not asked for by name: a further one is tried while the job runs, and one that carries next to
//! nothing is left alone for a time.
//!
//! Not here: whether a path is worth it (`plan::PathTrials`), and finding them (`ways`).

use super::connector::Path;
use super::path_lanes::PathLanes;
use super::running::Running;
use plan::{PathStep, PathTrials};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The look-out for a second path where the user leaves it to the program.
#[derive(Default)]
pub(super) struct LookOut {
    pub trials: PathTrials,
    /// Paths that were found and not tried.
    pub candidates: Option<VecDeque<Path>>,
    /// Paths that there were when the one on trial was asked for.
    pub opened: usize,
    /// What came of those that were.
    pub story: Vec<String>,
}

impl LookOut {
    /// Notes what is to become of the path on trial; why, when it is to end.
    pub fn note(&mut self, name: &str, step: &PathStep) -> Option<String> {
        match step {
            PathStep::Nothing | PathStep::Add => None,
            PathStep::Keep(told) => {
                self.story.push(format!("path {name} was added while running: {told}"));
                None
            }
            PathStep::Drop(told) => Some(format!("tried while running and ended: no gain, {told}")),
        }
    }
}

/// How often the shares of paths are compared, and after how many times in a row one is left alone.
const COMPARE: Duration = Duration::from_secs(5);
const TIMES: u32 = 3;
/// A path that carries less of the total than this brings less than it holds up.
const SHARE_MIN: f64 = 0.02;
const REST: Duration = Duration::from_secs(60);

/// What each path carried since the last comparison.
pub(super) struct Shares {
    at: Instant,
    moved_bytes: Vec<u64>,
    poor: Vec<u32>,
}

impl Default for Shares {
    fn default() -> Shares {
        Shares { at: Instant::now(), moved_bytes: Vec::new(), poor: Vec::new() }
    }
}

impl Shares {
    /// Lets paths rest that have carried next to nothing for long.
    pub fn compare(&mut self, paths: &[PathLanes], running: &Running) {
        if paths.len() < 2 || self.at.elapsed() < COMPARE {
            return;
        }
        self.at = Instant::now();
        let now: Vec<u64> = paths.iter().map(|path| running.watch.sample(Some(path.place)).1.moved_bytes).collect();
        self.moved_bytes.resize(now.len(), 0);
        let moved: Vec<u64> = now.iter().zip(&self.moved_bytes).map(|(now, then)| now.saturating_sub(*then)).collect();
        self.moved_bytes = now;
        for place in self.poor_for_long(&moved) {
            let path = &paths[place];
            if path.busy() > 0 {
                path.rest(REST);
            }
        }
    }

    fn poor_for_long(&mut self, moved: &[u64]) -> Vec<usize> {
        let total: u64 = moved.iter().sum();
        self.poor.resize(moved.len(), 0);
        for (poor, moved) in self.poor.iter_mut().zip(moved) {
            let is_poor = total > 0 && (*moved as f64) < total as f64 * SHARE_MIN;
            *poor = if is_poor { *poor + 1 } else { 0 };
        }
        let found: Vec<_> = (0..moved.len()).filter(|place| self.poor[*place] >= TIMES).collect();
        found.iter().for_each(|place| self.poor[*place] = 0);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_rests_only_after_it_was_poor_for_long() {
        let mut shares = Shares::default();
        for _ in 0..2 {
            assert_eq!(shares.poor_for_long(&[1000, 1, 500]), [0; 0]);
        }
        assert_eq!(shares.poor_for_long(&[1000, 100, 500]), [0; 0], "it recovers");
        for _ in 0..2 {
            assert_eq!(shares.poor_for_long(&[1000, 1, 500]), [0; 0]);
        }
        assert_eq!(shares.poor_for_long(&[1000, 1, 500]), [1]);
        assert_eq!(shares.poor_for_long(&[0, 0, 0]), [0; 0], "nothing moves at all");
    }
}
