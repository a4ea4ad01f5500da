//! How good plans are: the settings that a plan chooses beside the best of a search, what `cp` chooses, and a published rule;
//! and what was predicted beside what was measured.
//!
//! For each cell and data set: a calibration, a search over all settings once, and then the three best of it, the plan, the default and
//! the rule in turn, five times.
//!
//! Invariants:
//! - Settings are named before anything runs (`cells`). A time counts only if every file that was delivered equals its source, the
//!   link was not late, and others left the machine to it.
//! - Every run is a line on disk as soon as it is over, before anything else may fail; the same command goes on where it was stopped,
//!   and a slice of the cells is a run of its own that adds to the same file.
//! - Runs of another program, seed, file system or kernel are kept and not mixed with these.
//!
//! Not here: what a plan is (`plan`), laboratories and slow storage (`lab`).

mod cells;
mod load;
mod run;
mod record;
mod verdict;

pub use cells::{CELLS, SETS};
pub use record::{Run, Step};
pub use run::run;
pub use verdict::{Verdict, text};

use std::path::PathBuf;
use std::time::Duration;

pub struct Options {
    pub program: PathBuf,
    /// Places of `CELLS`.
    pub cells: Vec<usize>,
    /// Names of `SETS`; empty for all.
    pub sets: Vec<String>,
    /// After this, no further run begins.
    pub budget: Option<Duration>,
    pub repetitions: u32,
    pub out: PathBuf,
    pub work_dir: Option<PathBuf>,
    pub seed: u64,
}

/// Seconds of one run with everything around it, as far as they can be said before: a run of six seconds, and comparing what came.
const RUN_SECONDS: f64 = 9.0;
const CALIBRATION_SECONDS: f64 = 75.0;

impl Options {
    /// How long all of it takes, roughly.
    pub fn estimated(&self) -> Duration {
        let sets = if self.sets.is_empty() { SETS.len() } else { self.sets.len() } as f64;
        let of_cell = |cell: &usize| {
            let runs = CELLS[*cell].settings().len() as f64 + 6.0 * f64::from(self.repetitions);
            sets * (runs * RUN_SECONDS + CALIBRATION_SECONDS)
        };
        Duration::from_secs_f64(self.cells.iter().map(of_cell).sum())
    }
}
