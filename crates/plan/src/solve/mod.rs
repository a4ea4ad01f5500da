//! What a model allows: the best rate there is, the cheapest settings that come near it or reach a goal, what limits, what
//! one more unit of each resource would bring, and what a change would.
//!
//! The objective is lexicographic: the best rate T*, then the least sum of weighted knobs that keeps 98 % of it (or reaches
//! the goal). Invariant: a choice is evaluated in the model itself, never taken from a relaxation.
//! Not here: the graph's form and checks (`graph`).

mod simplex;
mod flow;
mod options;
mod search;
mod branch;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod large;

use crate::graph::Graph;
pub use flow::{Flow, Limits};
pub use search::SHARE_KEPT;
use search::TOLERANCE;
use simplex::Failure;
use std::fmt;

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsolved {
    /// A way from source to destination without any limit.
    Unlimited,
    /// The linear program did not come to its end.
    NoEnd,
    /// It would take longer than anyone waits.
    TooLarge,
}

impl Unsolved {
    /// What to do about it.
    pub fn cure(self) -> &'static str {
        match self {
            Unsolved::Unlimited => "give every edge that limits a `capacity` in bytes a second (docs/planner.md)",
            Unsolved::NoEnd => "check the units of capacities, gains and `cpu`; leave out edges that never limit",
            Unsolved::TooLarge => {
                "join equal devices into one edge with a `count`, and leave out edges and hosts that never limit"
            }
        }
    }
}

impl fmt::Display for Unsolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unsolved::Unlimited => "nothing in the model limits the rate: some way from Src to Dst has no capacity",
            Unsolved::NoEnd => "the equations of the model could not be solved: its numbers lie too far apart",
            Unsolved::TooLarge => "the model is too large: its equations would take minutes",
        })
    }
}

impl std::error::Error for Unsolved {}

impl From<Failure> for Unsolved {
    fn from(failure: Failure) -> Unsolved {
        match failure {
            Failure::Unbounded => Unsolved::Unlimited,
            Failure::NoEnd => Unsolved::NoEnd,
            Failure::TooMuch => Unsolved::TooLarge,
        }
    }
}

/// What one more unit of a resource would add to the best rate, the settings left alone.
#[derive(Clone, PartialEq, Debug)]
pub struct Price {
    /// An edge or a host.
    pub resource: String,
    /// For one byte a second of an edge, or one percent of a core of a host.
    pub bytes_per_second_per_unit: f64,
    /// For a host.
    pub is_host: bool,
    /// How much of the best rate hangs on it.
    pub share: f64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Solution {
    /// T*, at whatever price.
    pub best_bytes_per_second: f64,
    /// What the chosen settings reach.
    pub bytes_per_second: f64,
    /// The value of every knob, in the model's order.
    pub settings: Vec<u32>,
    /// Whether no cheaper settings can exist; large models are searched for a bounded time.
    pub is_proved: bool,
    /// None only where nothing can flow.
    pub bottleneck: Option<String>,
    /// What limits the best rate, the most telling first.
    pub prices: Vec<Price>,
    /// At the chosen settings: bytes a second on each edge, and percent of a core on each host.
    pub edge_rates: Vec<f64>,
    pub edge_capacities: Vec<f64>,
    pub host_percent: Vec<f64>,
}

impl Solution {
    /// Whether a goal that was asked for can be had.
    pub fn reaches(&self, goal: Option<f64>) -> bool {
        goal.is_none_or(|goal| self.best_bytes_per_second >= goal * (1.0 - TOLERANCE))
    }

    /// An edge that carries what it can.
    pub fn is_full(&self, edge: usize) -> bool {
        self.edge_rates[edge] >= self.edge_capacities[edge] * (1.0 - 1e-6)
    }
}

/// Solves a model for the best rate, or, with a goal, for the cheapest settings that reach it.
pub fn solve(graph: &Graph, goal: Option<f64>) -> Result<Solution, Unsolved> {
    let found = search::search(graph, goal)?;
    let at_best = flow::solve(graph, &Limits::at(graph, &found.best))?;
    let limits = Limits::at(graph, &found.chosen);
    let at_choice = if found.chosen == found.best { at_best.clone() } else { flow::solve(graph, &limits)? };
    let best_limits = Limits::at(graph, &found.best);
    let mut prices = prices(graph, &at_best, &best_limits);
    prices.sort_by(|a, b| b.share.total_cmp(&a.share));
    let cost = |host| flow::costs(graph, host, 1.0).iter().map(|(edge, cost)| cost * at_choice.rates[*edge]).sum();
    Ok(Solution {
        best_bytes_per_second: at_best.rate,
        bytes_per_second: at_choice.rate,
        settings: found.chosen,
        is_proved: found.is_proved,
        bottleneck: prices.first().map(|price| price.resource.clone()),
        prices,
        host_percent: (0..graph.hosts.len()).map(cost).collect(),
        edge_rates: at_choice.rates,
        edge_capacities: limits.edges,
    })
}

/// The best rate alone, as a what-if asks for it.
pub fn best(graph: &Graph) -> Result<f64, Unsolved> {
    let found = search::best(graph)?;
    Ok(flow::rate(graph, &Limits::at(graph, &found))?)
}

fn prices(graph: &Graph, flow: &Flow, limits: &Limits) -> Vec<Price> {
    let price = |resource: &str, bytes_per_second_per_unit: f64, limit: f64, is_host| Price {
        resource: resource.to_owned(),
        bytes_per_second_per_unit,
        is_host,
        share: if flow.rate > 0.0 { bytes_per_second_per_unit * limit / flow.rate } else { 0.0 },
    };
    let edges = graph.edges.iter().zip(&flow.edge_prices).zip(&limits.edges);
    let edges = edges.map(|((edge, each), limit)| price(&edge.name, *each, *limit, false));
    let hosts = graph.hosts.iter().zip(&flow.host_prices).zip(&limits.hosts);
    let hosts = hosts.map(|((host, each), limit)| price(&host.name, *each, *limit, true));
    edges.chain(hosts).filter(|price| price.bytes_per_second_per_unit > TOLERANCE).collect()
}
