//! The largest rate from source to destination with every capacity given: by reduction where the graph is series and
//! parallel, by a linear program everywhere else; and what one more unit of each resource would add.
//!
//! The rows are those of the model in `docs/planner.md`: what flows out of a node is its gain times what flows in, the rate is
//! what leaves the source and what arrives, and a host's processor time bounds the sum of what its edges cost. Where hosts have
//! volumes of their own, each sends the same part of its volume, so that all of them end together.
//! Not here: which settings give these capacities (`choice`).

use super::simplex::{Failure, Program};
use crate::graph::Graph;

/// Processor time is given in percent of one core at this rate.
const CPU_RATE: f64 = 1e9;
/// Steps of arithmetic that one program may take: some seconds. A network of 300 nodes and 1,500 edges at random takes fewer.
const WORK_MAX: f64 = 4e9;
/// Stands in for "nothing limits" in scales.
const SCALE_DEFAULT: f64 = 1e9;
/// A rate that is a smaller part of what it was divided by is too near to what a program takes for nothing.
const SHARE_MIN: f64 = 1e-3;

/// What one LP says of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Flow {
    pub rate: f64,
    /// Bytes a second on every edge.
    pub rates: Vec<f64>,
    /// What one byte a second more of an edge's capacity would add.
    pub edge_prices: Vec<f64>,
    /// What one percent of a core more would add, in bytes a second.
    pub host_prices: Vec<f64>,
}

/// Capacities of edges, and percent of a core of hosts.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    pub edges: Vec<f64>,
    pub hosts: Vec<f64>,
}

impl Limits {
    pub fn at(graph: &Graph, settings: &[u32]) -> Limits {
        Limits {
            edges: graph.edges.iter().map(|edge| edge.capacity(settings)).collect(),
            hosts: graph.hosts.iter().map(|host| host.cpu_percent_max(settings)).collect(),
        }
    }
}

/// What rates are divided by in a program, so that its numbers are near one.
pub fn scale(limits: &Limits) -> f64 {
    let largest = limits.edges.iter().copied().filter(|capacity| capacity.is_finite()).fold(0.0, f64::max);
    if largest > 0.0 { largest } else { SCALE_DEFAULT }
}

/// The program of a graph: a variable for every edge, and one for the rate, whose place is returned.
pub fn program(graph: &Graph, uppers: impl Iterator<Item = f64>, gain: f64) -> (Program, usize) {
    let mut program = Program::default();
    uppers.for_each(|upper| _ = program.variable(0.0, upper));
    let rate = program.variable(gain, f64::INFINITY);
    let (mut leaving, mut arriving) = (vec![Vec::new(); graph.nodes.len()], vec![Vec::new(); graph.nodes.len()]);
    for (place, edge) in graph.edges.iter().enumerate() {
        leaving[edge.from].push((place, 1.0));
        arriving[edge.to].push((place, 1.0));
    }
    for (node, (leaving, arriving)) in leaving.into_iter().zip(arriving).enumerate() {
        if node == graph.source {
            share_out(&mut program, graph, &leaving);
        }
        if node == graph.source || node == graph.destination {
            let mut terms = if node == graph.source { leaving } else { arriving };
            terms.iter_mut().for_each(|(_, factor)| *factor = -1.0);
            terms.push((rate, 1.0));
            program.at_most(terms, 0.0);
        } else {
            let mut terms = leaving;
            terms.extend(arriving.into_iter().map(|(edge, _)| (edge, -graph.nodes[node].gain)));
            program.balanced(terms);
        }
    }
    (program, rate)
}

/// Where volumes are given, what leaves the source is in proportion to them.
fn share_out(program: &mut Program, graph: &Graph, leaving: &[(usize, f64)]) {
    let volume_bytes = |edge: usize| graph.edges[edge].volume_bytes.unwrap_or(0.0);
    let edges = || leaving.iter().map(|(edge, _)| *edge);
    let largest = edges().max_by(|a, b| volume_bytes(*a).total_cmp(&volume_bytes(*b)));
    let Some(largest) = largest.filter(|edge| volume_bytes(*edge) > 0.0) else { return };
    for edge in edges().filter(|edge| *edge != largest) {
        program.balanced(vec![(largest, volume_bytes(edge) / volume_bytes(largest)), (edge, -1.0)]);
    }
}

/// What a host's edges cost it, as terms of a row in percent, for rates divided by `scale`.
pub fn costs(graph: &Graph, host: usize, scale: f64) -> Vec<(usize, f64)> {
    let is_its = |edge: &crate::graph::Edge| edge.host == Some(host) && edge.cpu_percent > 0.0;
    let edges = graph.edges.iter().enumerate().filter(|(_, edge)| is_its(edge));
    edges.map(|(place, edge)| (place, edge.cpu_percent * scale / CPU_RATE)).collect()
}

/// Solves the program, with prices.
pub fn solve(graph: &Graph, limits: &Limits) -> Result<Flow, Failure> {
    let mut scale = scale(limits);
    loop {
        let flow = solve_with(graph, limits, scale)?;
        if flow.rate >= scale * SHARE_MIN || scale <= 1.0 {
            return Ok(flow);
        }
        scale = flow.rate.max(scale * 1e-6);
    }
}

/// The same with rates divided by `scale`.
fn solve_with(graph: &Graph, limits: &Limits, scale: f64) -> Result<Flow, Failure> {
    let (mut program, _) = program(graph, limits.edges.iter().map(|capacity| capacity / scale), 1.0);
    let mut rows = vec![None; graph.hosts.len()];
    for (host, percent) in limits.hosts.iter().enumerate() {
        let costs = costs(graph, host, scale);
        if !costs.is_empty() {
            rows[host] = Some(program.rows.len());
            program.at_most(costs, *percent);
        }
    }
    let optimum = program.solve_within(WORK_MAX)?;
    let count = graph.edges.len();
    Ok(Flow {
        rate: optimum.value * scale,
        rates: optimum.values[..count].iter().map(|rate| rate * scale).collect(),
        edge_prices: optimum.bound_prices[..count].to_vec(),
        host_prices: rows.iter().map(|row| row.map_or(0.0, |row| optimum.row_prices[row].max(0.0) * scale)).collect(),
    })
}

/// About how many steps of arithmetic it takes to find one rate.
pub fn work(graph: &Graph) -> f64 {
    let (rows, columns) = (graph.nodes.len() + graph.hosts.len(), graph.edges.len() + graph.nodes.len());
    (rows * rows * columns) as f64
}

/// The rate alone, as cheaply as it can be had.
pub fn rate(graph: &Graph, limits: &Limits) -> Result<f64, Failure> {
    let is_free = graph.edges.iter().all(|edge| edge.cpu_percent <= 0.0 && edge.volume_bytes.is_none());
    match reduced(graph, &limits.edges).filter(|_| is_free) {
        Some(rate) if rate.is_finite() => Ok(rate),
        Some(_) => Err(Failure::Unbounded),
        None => solve(graph, limits).map(|flow| flow.rate),
    }
}

/// An edge that stands for several: what may flow in, and what flows out of it for each byte.
#[derive(Clone, Copy)]
struct Joined {
    from: usize,
    to: usize,
    capacity: f64,
    gain: f64,
}

/// The rate of a graph that is series and parallel, by joining edges until one is left: in a chain the least counts, side by
/// side the sum. None for other graphs. Processor time and volumes are left out.
pub fn reduced(graph: &Graph, capacities: &[f64]) -> Option<f64> {
    let join = |(edge, capacity): (&crate::graph::Edge, &f64)| Joined {
        from: edge.from,
        to: edge.to,
        capacity: *capacity,
        gain: 1.0,
    };
    let mut edges: Vec<Joined> = graph.edges.iter().zip(capacities).map(join).collect();
    loop {
        let before = edges.len();
        edges.sort_by_key(|edge| (edge.from, edge.to));
        edges.dedup_by(|next, kept| {
            let is_beside = (next.from, next.to) == (kept.from, kept.to) && same(next.gain, kept.gain);
            if is_beside {
                kept.capacity += next.capacity;
            }
            is_beside
        });
        join_chains(graph, &mut edges);
        if edges.len() == 1 {
            return Some(edges[0].capacity * edges[0].gain.min(1.0));
        }
        if edges.len() == before {
            return None;
        }
    }
}

fn same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Joins what enters and what leaves each node that has one of both.
fn join_chains(graph: &Graph, edges: &mut Vec<Joined>) {
    let count = graph.nodes.len();
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (place, edge) in edges.iter().enumerate() {
        into[edge.to].push(place);
        out[edge.from].push(place);
    }
    let mut is_gone = vec![false; edges.len()];
    for node in (0..count).filter(|node| *node != graph.source && *node != graph.destination) {
        let (&[first], &[second]) = (&into[node][..], &out[node][..]) else { continue };
        let (a, b) = (edges[first], edges[second]);
        let until = a.gain * graph.nodes[node].gain;
        edges[first] =
            Joined { from: a.from, to: b.to, capacity: a.capacity.min(b.capacity / until), gain: until * b.gain };
        is_gone[second] = true;
        for place in &mut into[b.to] {
            if *place == second {
                *place = first;
            }
        }
    }
    let mut gone = is_gone.iter();
    edges.retain(|_| !gone.next().copied().unwrap_or_default());
}
