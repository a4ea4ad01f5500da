//! The parts of a model as values: hosts, knobs, nodes, edges, and the graph that they make.
//!
//! Not here: where they come from (`written`), what makes a graph good (`ways`).

use super::law::Law;
use super::problem::Problem;

/// The terminals' names.
pub const SOURCE: &str = "Src";
pub const DESTINATION: &str = "Dst";

/// A host that pays for edges with processor time.
#[derive(Clone, PartialEq, Debug)]
pub struct Host {
    pub name: String,
    pub cores: f64,
    /// Cores that are left to others.
    pub reserve: f64,
    /// A knob by its place, and how many threads each step of it starts.
    pub threads: Vec<(usize, f64)>,
}

impl Host {
    /// The processor time there is, in percent of one core, with the knobs at `settings`.
    pub fn cpu_percent_max(&self, settings: &[u32]) -> f64 {
        let cores = (self.cores - self.reserve).max(0.0);
        if self.threads.is_empty() {
            return 100.0 * cores;
        }
        let threads: f64 = self.threads.iter().map(|(knob, each)| each * f64::from(settings[*knob])).sum();
        100.0 * cores.min(threads)
    }
}

/// A setting that can be chosen: a whole number, and what a step of it costs when rates are equal.
#[derive(Clone, PartialEq, Debug)]
pub struct Knob {
    pub name: String,
    pub min: u32,
    pub max: u32,
    pub weight: f64,
}

/// What flows out of a node for each byte that flows in: less behind compression, more behind its inverse.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub name: String,
    pub gain: f64,
}

/// How many equal devices an edge stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Count {
    Fixed(u32),
    Knob(usize),
}

#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    pub name: String,
    /// Nodes, by their places.
    pub from: usize,
    pub to: usize,
    pub host: Option<usize>,
    /// Percent of one core at 1 GB/s.
    pub cpu_percent: f64,
    pub count: Count,
    /// None where nothing limits.
    pub law: Option<Law>,
    /// The knob of the law, by its place.
    pub law_knob: Option<usize>,
    /// Of an edge behind the source: what lies at its end and nowhere else.
    pub volume_bytes: Option<f64>,
}

impl Edge {
    /// Bytes a second with the knobs at `settings`.
    pub fn capacity(&self, settings: &[u32]) -> f64 {
        let Some(law) = &self.law else { return f64::INFINITY };
        let count = match self.count {
            Count::Fixed(count) => f64::from(count),
            Count::Knob(knob) => f64::from(settings[knob]),
        };
        count * law.value(self.law_knob.map_or(0, |knob| settings[knob]))
    }

    /// The knobs that its capacity depends on.
    pub fn knobs(&self) -> impl Iterator<Item = usize> {
        let of_count = match self.count {
            Count::Knob(knob) if self.law.is_some() => Some(knob),
            _ => None,
        };
        of_count.into_iter().chain(self.law_knob.filter(move |knob| Some(*knob) != of_count))
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Graph {
    pub hosts: Vec<Host>,
    pub knobs: Vec<Knob>,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub source: usize,
    pub destination: usize,
}

impl Graph {
    pub fn edge_named(&self, name: &str) -> Option<usize> {
        self.edges.iter().position(|edge| edge.name == name)
    }

    pub fn knob_named(&self, name: &str) -> Option<usize> {
        self.knobs.iter().position(|knob| knob.name == name)
    }

    /// Of all hosts together, where each has a volume of its own: all of them are to end at the same time.
    pub fn volume_bytes(&self) -> Option<f64> {
        self.edges.iter().filter_map(|edge| edge.volume_bytes).reduce(|sum, volume| sum + volume)
    }

    /// Sets a knob to one value.
    pub fn fix(&mut self, name: &str, n: u32) -> Result<(), Problem> {
        let subject = format!("knob {name:?}");
        let Some(place) = self.knob_named(name) else {
            let names = some_of(self.knobs.iter().map(|knob| &knob.name));
            let what = format!("the model has no such knob; it has {names}");
            return Err(Problem::new(subject, what, "fix a knob that the model names"));
        };
        let knob = &mut self.knobs[place];
        if !(knob.min..=knob.max).contains(&n) {
            let what = format!("{n} is outside its range {} to {}", knob.min, knob.max);
            return Err(Problem::new(subject, what, "choose a value in the range, or widen it in the model"));
        }
        (knob.min, knob.max) = (n, n);
        Ok(())
    }

    /// The same model with another capacity for one edge.
    pub fn with_capacity(&self, edge: &str, change: Change) -> Result<Graph, Problem> {
        let subject = format!("edge {edge:?}");
        let place = self.edge_named(edge).ok_or_else(|| {
            let names = some_of(self.edges.iter().map(|edge| &edge.name));
            let what = format!("the model has no such edge; it has {names}");
            Problem::new(subject.clone(), what, "name an edge as the model does")
        })?;
        let mut graph = self.clone();
        let edge = &mut graph.edges[place];
        match (change, &mut edge.law) {
            (Change::To(value), law) => {
                *law = Some(Law::Constant { value });
                (edge.count, edge.law_knob) = (Count::Fixed(1), None);
            }
            (Change::Times(_), None) => {
                return Err(Problem::new(subject, "it has no capacity to multiply", "name a rate instead: EDGE=RATE"));
            }
            (Change::Times(factor), Some(law)) => law.multiply(factor),
        }
        Ok(graph)
    }
}

/// The first of some names, for a message.
fn some_of<'a>(names: impl Iterator<Item = &'a String>) -> String {
    const SHOWN: usize = 20;
    let all: Vec<String> = names.map(|name| name.escape_debug().to_string()).collect();
    match all.len() {
        0 => "none".to_owned(),
        count if count > SHOWN => format!("{} and {} more", all[..SHOWN].join(", "), count - SHOWN),
        _ => all.join(", "),
    }
}

/// A what-if about one edge.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// Bytes a second in all.
    To(f64),
    Times(f64),
}
