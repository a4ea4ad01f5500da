//! The sweep: file size x round trip x congestion control x loss x streams x rate, unattended, in laboratories of its own.
//!
//! Invariants:
//! - Every sample is on disk before the next run starts; the same command goes on where a run was interrupted.
//! - Figures of different conditions are never mixed: the condition is part of every sample and of every key.
//! - A void run is made again a bounded number of times; all attempts are kept and labelled.
//! - A run that used more than `CPU_SHARE_MAX` of the machine is labelled, not hidden: its rate is the machine's, not
//!   the path's.

mod condition;
mod plan;
mod journal;
mod run;
mod clients;
pub(crate) mod series;
mod pairs;
mod bound;
mod figures;
mod grid;

pub use condition::Condition;
pub use figures::{Figures, Row, mean_and_deviation, tables};
pub use grid::variants;
pub use journal::Journal;
pub use plan::{Cell, Plan, shown_size, thinned};
pub use run::run;

use std::path::PathBuf;
use std::time::Duration;

use crate::compare::Report;
use crate::dataset;
use crate::sample::Sample;
use crate::tool::Variant;
use crate::workspace::Pauses;

pub const ROUNDS_DEFAULT: u32 = 3;
pub const PAIRS_DEFAULT: u32 = 5;
pub const RUN_SECONDS_DEFAULT: f64 = 5.0;
pub const VOLUME_BYTES_MAX_DEFAULT: u64 = 1 << 30;
/// Of all processors over a run, by both ends, the emulator and others.
pub const CPU_SHARE_MAX: f64 = 0.8;
/// The set under which the ceilings of a condition are kept.
pub const CEILINGS: &str = "ceilings";

/// The values that are combined with each other.
#[derive(Clone, Debug)]
pub struct Axes {
    /// Of the files; how many of them follows from the rate and `Options::run_seconds`.
    pub sizes: Vec<u64>,
    /// Data sets as they are, besides.
    pub sets: Vec<String>,
    pub rates: Vec<Option<u64>>,
    pub round_trips: Vec<Duration>,
    pub losses: Vec<f64>,
    /// Mean segments that are lost in a row, where any are.
    pub loss_bursts: Vec<f64>,
    pub congestion_controls: Vec<String>,
    pub streams: Vec<Option<u32>>,
    pub has_stock_hosts: bool,
    pub windows: Vec<Option<u64>>,
    pub clients: Vec<u32>,
}

impl Default for Axes {
    fn default() -> Self {
        let one = Condition::default();
        Axes {
            sizes: Vec::new(),
            sets: Vec::new(),
            rates: vec![one.bits_per_second],
            round_trips: vec![one.round_trip()],
            losses: vec![one.loss],
            loss_bursts: vec![one.loss_burst_segments],
            congestion_controls: vec![one.congestion_control],
            streams: vec![None],
            has_stock_hosts: one.has_stock_hosts,
            windows: vec![None],
            clients: vec![1],
        }
    }
}

impl Axes {
    /// Every combination; the round trip varies fastest, the rate slowest.
    pub fn conditions(&self) -> Vec<Condition> {
        let mut conditions = vec![Condition { has_stock_hosts: self.has_stock_hosts, ..Condition::default() }];
        vary(&mut conditions, &self.rates, |condition, rate| condition.bits_per_second = *rate);
        vary(&mut conditions, &self.losses, |condition, loss| condition.loss = *loss);
        vary(&mut conditions, &self.loss_bursts, |condition, segments| {
            condition.loss_burst_segments = if condition.loss > 0.0 { *segments } else { 1.0 };
        });
        // Without losses all bursts are one condition.
        conditions.dedup();
        vary(&mut conditions, &self.congestion_controls, |condition, name| {
            condition.congestion_control.clone_from(name)
        });
        vary(&mut conditions, &self.streams, |condition, streams| condition.streams = *streams);
        vary(&mut conditions, &self.windows, |condition, bytes| condition.window_bytes = *bytes);
        vary(&mut conditions, &self.clients, |condition, clients| condition.clients = *clients);
        vary(&mut conditions, &self.round_trips, |condition, time| condition.rtt_us = time.as_micros() as u64);
        conditions
    }

    /// Leaves out values of the longest axis: its name and what went; none when every axis has two values or fewer.
    fn thin(&mut self) -> Option<(&'static str, Vec<String>)> {
        const VALUES_MIN: usize = 2;
        // The later of two that are as long loses values first.
        let lengths = [self.losses.len(), self.congestion_controls.len(), self.round_trips.len(), self.streams.len()];
        let (longest, &length) = lengths.iter().enumerate().max_by_key(|(index, length)| (**length, *index))?;
        if length <= VALUES_MIN {
            return None;
        }
        Some(match longest {
            0 => ("losses", thinned(&mut self.losses).iter().map(f64::to_string).collect()),
            1 => ("congestion controls", thinned(&mut self.congestion_controls)),
            2 => {
                let shown = |time: &Duration| lab::scenario::quantity::show_duration(*time);
                ("round trips", thinned(&mut self.round_trips).iter().map(shown).collect())
            }
            _ => {
                let shown = |streams: &Option<u32>| streams.map_or("auto".to_owned(), |count| count.to_string());
                let mut dropped = thinned(&mut self.streams);
                // Rivals race where the number is left to them, and nowhere else.
                if let Some(at) = dropped.iter().position(Option::is_none) {
                    self.streams.push(dropped.remove(at));
                }
                if dropped.is_empty() {
                    return None;
                }
                ("stream counts", dropped.iter().map(shown).collect())
            }
        })
    }
}

/// Each condition once with every value.
fn vary<T>(conditions: &mut Vec<Condition>, values: &[T], set: impl Fn(&mut Condition, &T)) {
    let with = |condition: &Condition, value: &T| {
        let mut condition = condition.clone();
        set(&mut condition, value);
        condition
    };
    *conditions = conditions.iter().flat_map(|condition| values.iter().map(|value| with(condition, value))).collect();
}

#[derive(Clone, Debug)]
pub struct Options {
    pub axes: Axes,
    /// Ours: the defaults first. Several are other settings of the same program, as `variants` makes them.
    pub variants: Vec<Variant>,
    pub rivals: Vec<String>,
    pub rounds: u32,
    /// Rounds in which the defaults and the best other setting race again, in alternation; 0: none.
    pub pairs: u32,
    /// What the work of a run is sized for.
    pub run_seconds: f64,
    /// A larger amount is made and discarded in memory instead of lying in a file system.
    pub volume_bytes_max: u64,
    /// The plan is cut down to it, and no run starts after it.
    pub budget: Option<Duration>,
    /// More attempts at a run that was void.
    pub void_retries: u32,
    /// Streams of the ceilings that are measured in each condition, memory to memory; the best is what a rate is held
    /// against. None are measured if empty.
    pub ceiling_streams: Vec<usize>,
    /// Also measure the ceilings from the first byte on, for as long as a run is sized for: what short runs can reach.
    pub with_starts: bool,
    /// Runs last many round trips at least, so that connection and slow start are a small part of them.
    pub with_steady_runs: bool,
    /// Also run iperf3 with one stream in each condition, where it is installed.
    pub with_iperf: bool,
    /// Keep the rate over time of each run in `series`, from the counters of the sending host's interfaces, read this
    /// often; none: it is not kept.
    pub series_interval: Option<Duration>,
    /// A client that takes longer is killed.
    pub limit: Duration,
    pub out: PathBuf,
    /// Where data sets and deliveries lie; a tmpfs if none.
    pub work_dir: Option<PathBuf>,
    pub pauses: Pauses,
    pub seed: u64,
    /// The command line that repeats this sweep, for the report.
    pub regenerate: String,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            axes: Axes::default(),
            variants: Vec::new(),
            rivals: Vec::new(),
            rounds: ROUNDS_DEFAULT,
            pairs: 0,
            run_seconds: RUN_SECONDS_DEFAULT,
            volume_bytes_max: VOLUME_BYTES_MAX_DEFAULT,
            budget: None,
            void_retries: 2,
            ceiling_streams: vec![1, 8],
            with_starts: false,
            with_steady_runs: false,
            with_iperf: false,
            series_interval: None,
            limit: Duration::from_secs(120),
            out: PathBuf::new(),
            work_dir: None,
            // At the rates of a sweep the machine touches memory slowly enough to pay for it once.
            pauses: Pauses { memory: Duration::from_millis(300), quiet_max: Duration::from_secs(3) },
            seed: dataset::SEED_DEFAULT,
            regenerate: String::new(),
        }
    }
}

/// What a sweep has, complete or not.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub plan: Plan,
    pub report: Report,
    pub is_complete: bool,
    /// The caller asked to stop.
    pub is_cancelled: bool,
    /// Of the runs of the plan, those that are settled.
    pub settled: usize,
    pub planned: usize,
}

impl Outcome {
    pub fn samples(&self) -> &[Sample] {
        &self.report.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_in_each_burst_and_a_path_without_losses_once() {
        let axes = Axes { losses: vec![0.0, 1e-3], loss_bursts: vec![1.0, 8.0], ..Axes::default() };
        let conditions = axes.conditions();
        let varied: Vec<_> = conditions.iter().map(|of| (of.loss, of.loss_burst_segments)).collect();
        assert_eq!(varied, [(0.0, 1.0), (1e-3, 1.0), (1e-3, 8.0)]);
    }
}
