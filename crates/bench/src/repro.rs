//! Published figures and tables made again with this program, in laboratories of this machine, each judged by conditions.
//!
//! Every item is a plan, a run, plots, and a list of claims with what was measured: PASS, FAIL, or VOID where the run does
//! not allow a verdict. What cannot be made yet stands in the list too, with the reason.
//!
//! Invariants:
//! - An item that fails does not keep the others from running; what is measured stays and is continued.
//! - The published rates are of other machines: conditions hold ratios and shapes, and say how they were adapted.

mod catalog;
mod series;
mod context;
mod facility;
mod index;
mod judge;
mod paths;
mod planned;
mod holders;
mod hosts;
mod outage;
mod cards;
mod endpoints;
mod million;
mod laws;
mod latency;
mod loss;
mod processors;
mod rates;
mod over_time;
mod clients;
mod course;
mod cloud;
mod staging;
mod far;
mod tuning;
mod verdicts;

pub use catalog::{ITEMS, Item, Needs, find};
#[cfg(feature = "fuse")]
pub(crate) use judge::median;
pub use judge::{Check, Verdict};
pub use series::run;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::dataset;
use crate::plot::Plot;

#[derive(Clone, Debug)]
pub struct Options {
    pub out: PathBuf,
    pub program: PathBuf,
    /// A build that races beside it in `rates`.
    pub earlier: Option<PathBuf>,
    pub budget: Option<Duration>,
    /// Of the links, instead of each item's own.
    pub bits_per_second: Option<u64>,
    pub rounds: Option<u32>,
    /// Of the chain of a facility instead of its own, and of each set of `rates` at most.
    pub bytes: Option<u64>,
    /// Do not hold the laboratory against its gates first.
    pub is_unchecked: bool,
    pub work_dir: Option<PathBuf>,
    pub seed: u64,
    pub regenerate: String,
}

impl Options {
    pub fn new(out: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Options {
        Options {
            out: out.into(),
            program: program.into(),
            earlier: None,
            budget: None,
            bits_per_second: None,
            rounds: None,
            bytes: None,
            is_unchecked: false,
            work_dir: None,
            seed: dataset::SEED_DEFAULT,
            regenerate: String::new(),
        }
    }
}

/// What became of one item.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    pub id: String,
    pub title: String,
    pub checks: Vec<Check>,
    pub notes: Vec<String>,
    /// Drawn in the pages, and kept as files beside them.
    #[serde(skip)]
    pub plots: Vec<Plot>,
    /// Why it did not come to its end, if it did not.
    pub failure: Option<String>,
    pub seconds: f64,
}

#[derive(Clone, Debug)]
pub struct Outcome {
    pub done: Vec<Done>,
    pub is_cancelled: bool,
}

impl Outcome {
    /// Whether everything ran to its end and no claim failed.
    pub fn holds(&self) -> bool {
        let is_good =
            |done: &Done| done.failure.is_none() && done.checks.iter().all(|check| check.verdict != Verdict::Fail);
        !self.is_cancelled && self.done.iter().all(is_good)
    }
}
