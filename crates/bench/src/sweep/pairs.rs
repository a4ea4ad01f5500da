//! The second race of a grid: the defaults against the setting that won, in alternation.
//!
//! The best of many noisy figures is too good; only new runs of both say what the defaults lose.

use super::run::{Sweep, Work};
use super::*;
use crate::compare::run::{Lane, in_turn};
use crate::error::Result;
use crate::sample::State;
use crate::statistics::Spread;
use crate::tool::Bed;

/// Set apart from the runs of the grid, whose figures chose the winner.
pub const PAIRS: &str = " pairs";

/// The setting with the largest median rate in a cell, if it is not the defaults.
pub fn winner(samples: &[Sample], variants: &[Variant], condition: &str, set: &str) -> Option<String> {
    let median = |tool: &str| {
        let counted = samples.iter().filter(|s| s.state == State::Counted && s.condition == condition && s.set == set);
        let of_tool = counted.filter(|sample| sample.tool == tool);
        Spread::of(of_tool.map(Sample::gbit_per_second)).map_or(0.0, |spread| spread.median)
    };
    let best = variants.iter().map(|variant| &variant.label).max_by(|a, b| median(a).total_cmp(&median(b)))?;
    (median(best) > median(&variants.first()?.label)).then(|| best.clone())
}

impl Sweep<'_> {
    pub(super) fn run_pairs(&mut self, bed: &Bed, lanes: &mut [Lane], cell: &Cell, work: &Work) -> Result<()> {
        let Some((condition, names)) = self.pair_of(cell) else { return Ok(()) };
        for round in 1..=self.plan.pairs {
            for name in in_turn(&names, round) {
                if let Some(lane) = lanes.iter_mut().find(|lane| lane.tool.name() == name) {
                    self.run_settling(bed, lane, work, &condition, round)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn are_pairs_settled(&self, cell: &Cell) -> bool {
        let Some((condition, names)) = self.pair_of(cell) else { return true };
        let attempts = self.options.void_retries + 1;
        let is_settled = |round, name: &String| self.journal.is_settled(&condition, &cell.set, name, round, attempts);
        (1..=self.plan.pairs).all(|round| names.iter().all(|name| is_settled(round, name)))
    }

    /// Condition and names of the two that race again; none where the defaults won or there is no grid.
    fn pair_of(&self, cell: &Cell) -> Option<(String, [String; 2])> {
        if self.plan.pairs == 0 || self.options.variants.len() < 2 {
            return None;
        }
        let condition = self.plan.conditions[cell.condition].to_string();
        let best = winner(self.journal.samples(), &self.options.variants, &condition, &cell.set)?;
        Some((condition + PAIRS, [self.options.variants[0].label.clone(), best]))
    }
}
