//! Settings: their weight and rate, and the values of each knob that are worth a look.
//!
//! A value is left out when a smaller one serves every edge and host at least as well: it costs more and brings nothing. That
//! never changes the best rate, nor the least weight that reaches it.

use super::flow::{self, Limits};
use super::simplex::Failure;
use crate::graph::{Count, Graph};

/// Weighted knobs; what is least when rates are equal.
pub fn weight(graph: &Graph, settings: &[u32]) -> f64 {
    graph.knobs.iter().zip(settings).map(|(knob, n)| knob.weight * f64::from(*n)).sum()
}

pub fn rate_at(graph: &Graph, settings: &[u32]) -> Result<f64, Failure> {
    flow::rate(graph, &Limits::at(graph, settings))
}

/// For every knob its values, rising; at least one.
pub type Options = Vec<Vec<u32>>;

pub fn options(graph: &Graph) -> Result<Options, Failure> {
    if graph.knobs.iter().all(|knob| knob.min == knob.max) {
        return Ok(graph.knobs.iter().map(|knob| vec![knob.min]).collect());
    }
    let ceiling = ceiling(graph)?;
    let worth = |knob: usize| {
        let mut kept: Vec<(u32, Vec<f64>)> = Vec::new();
        for n in graph.knobs[knob].min..=graph.knobs[knob].max {
            let serves = serves(graph, knob, n, ceiling);
            let is_worse = |(_, other): &(u32, Vec<f64>)| serves.iter().zip(other).all(|(own, other)| own <= other);
            if !kept.iter().any(is_worse) {
                kept.push((n, serves));
            }
        }
        kept.into_iter().map(|(n, _)| n).collect()
    };
    Ok((0..graph.knobs.len()).map(worth).collect())
}

/// No edge can carry more than this, where every byte that leaves the source passes it once.
fn ceiling(graph: &Graph) -> Result<f64, Failure> {
    if graph.nodes.iter().any(|node| node.gain != 1.0) {
        return Ok(f64::INFINITY);
    }
    let largest = |edge: &crate::graph::Edge| {
        let Some(law) = &edge.law else { return f64::INFINITY };
        let values = edge.law_knob.map_or(0..=0, |knob| graph.knobs[knob].min..=graph.knobs[knob].max);
        let count = match edge.count {
            Count::Fixed(count) => count,
            Count::Knob(knob) => graph.knobs[knob].max,
        };
        if edge.count == Count::Knob(edge.law_knob.unwrap_or(usize::MAX)) {
            return values.map(|n| f64::from(n) * law.value(n)).fold(0.0, f64::max);
        }
        f64::from(count) * values.map(|n| law.value(n)).fold(0.0, f64::max)
    };
    let limits = Limits {
        edges: graph.edges.iter().map(largest).collect(),
        hosts: graph.hosts.iter().map(|host| 100.0 * (host.cores - host.reserve)).collect(),
    };
    flow::rate(graph, &limits)
}

/// What a knob at `n` gives each edge and host that depends on it; more is better everywhere.
fn serves(graph: &Graph, knob: usize, n: u32, ceiling: f64) -> Vec<f64> {
    let of_edge = |edge: &crate::graph::Edge| {
        let law = edge.law.as_ref()?;
        let (counts, shapes) = (edge.count == Count::Knob(knob), edge.law_knob == Some(knob));
        Some(match (counts, shapes) {
            (false, false) => return None,
            (true, true) => (f64::from(n) * law.value(n)).min(ceiling),
            // The other factor depends on another knob, or on none.
            (true, false) if edge.law_knob.is_none() => (f64::from(n) * law.value(0)).min(ceiling),
            (true, false) => f64::from(n),
            (false, true) => match edge.count {
                Count::Fixed(count) => (f64::from(count) * law.value(n)).min(ceiling),
                Count::Knob(_) => law.value(n),
            },
        })
    };
    let of_host = |host: &crate::graph::Host| {
        let each = host.threads.iter().find(|(place, _)| *place == knob)?.1;
        Some(each * f64::from(n))
    };
    graph.edges.iter().filter_map(of_edge).chain(graph.hosts.iter().filter_map(of_host)).collect()
}
