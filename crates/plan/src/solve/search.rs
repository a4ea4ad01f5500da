//! Finds settings: all of them are tried where that is little work; otherwise branch and bound, from a good start.

use super::options::{Options, options, rate_at, weight};
use super::simplex::Failure;
use super::{branch, flow};
use crate::graph::Graph;

/// Of the best rate, what the cheapest settings must keep (S1's plans give up less than what calibration can tell apart).
pub const SHARE_KEPT: f64 = 0.98;
/// Rates that differ by less are the same.
pub const TOLERANCE: f64 = 1e-9;
/// Steps of arithmetic that trying every setting may take: some tens of milliseconds.
const WORK_MAX: f64 = 4e7;

pub struct Found {
    /// The cheapest settings among those with the best rate.
    pub best: Vec<u32>,
    pub chosen: Vec<u32>,
    pub is_proved: bool,
}

/// The rate that a choice has to reach.
fn wanted(best: f64, goal: Option<f64>) -> f64 {
    match goal {
        Some(goal) if goal <= best * (1.0 + TOLERANCE) => goal * (1.0 - TOLERANCE),
        _ => best * SHARE_KEPT,
    }
}

pub fn search(graph: &Graph, goal: Option<f64>) -> Result<Found, Failure> {
    let options = options(graph)?;
    if let Some(only) = only(&options) {
        return Ok(Found { best: only.clone(), chosen: only, is_proved: true });
    }
    if is_little_work(graph, &options) {
        let tried = all(graph, &options)?;
        let best = tried.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        let cheapest = |least: f64| {
            let enough = tried.iter().filter(|(_, rate)| *rate >= least);
            let order = |(a, fast_a): &&(Vec<u32>, f64), (b, fast_b): &&(Vec<u32>, f64)| {
                weight(graph, a).total_cmp(&weight(graph, b)).then(fast_b.total_cmp(fast_a))
            };
            enough.min_by(order).map(|(settings, _)| settings.clone()).unwrap_or_default()
        };
        let (of_best, chosen) = (cheapest(best * (1.0 - TOLERANCE)), cheapest(wanted(best, goal)));
        return Ok(Found { best: of_best, chosen, is_proved: true });
    }
    let (best, is_best) = branch::fastest(graph, &options)?;
    let rate = rate_at(graph, &best)?;
    let (chosen, is_cheapest) = branch::cheapest(graph, &options, &best, wanted(rate, goal))?;
    Ok(Found { best, chosen, is_proved: is_best && is_cheapest })
}

/// Settings with the best rate.
pub fn best(graph: &Graph) -> Result<Vec<u32>, Failure> {
    let options = options(graph)?;
    if let Some(only) = only(&options) {
        return Ok(only);
    }
    if !is_little_work(graph, &options) {
        return Ok(branch::fastest(graph, &options)?.0);
    }
    let tried = all(graph, &options)?;
    Ok(tried.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(settings, _)| settings).unwrap_or_default())
}

/// The settings, where nothing is left to choose.
fn only(options: &Options) -> Option<Vec<u32>> {
    options.iter().map(|values| (values.len() == 1).then(|| values[0])).collect()
}

fn is_little_work(graph: &Graph, options: &Options) -> bool {
    let settings: f64 = options.iter().map(|values| values.len() as f64).product();
    settings * flow::work(graph) <= WORK_MAX
}

/// Every combination with its rate.
fn all(graph: &Graph, options: &Options) -> Result<Vec<(Vec<u32>, f64)>, Failure> {
    let mut tried = Vec::new();
    let mut at = vec![0; options.len()];
    loop {
        let settings: Vec<u32> = at.iter().zip(options).map(|(place, values)| values[*place]).collect();
        let rate = rate_at(graph, &settings)?;
        tried.push((settings, rate));
        let Some(knob) = (0..at.len()).find(|knob| at[*knob] + 1 < options[*knob].len()) else { return Ok(tried) };
        at[knob] += 1;
        at[..knob].fill(0);
    }
}
