//! The written form of a model, version 1: JSON, rates in bytes a second, processor time in percent of one core at 1 GB/s.
//!
//! Invariant: a key that is not known is an error, since a misspelt limit would be no limit. What a document may hold is
//! bounded before anything is built of it.

use super::law::Law;
use super::parts::{Count, DESTINATION, Edge, Graph, Host, Knob, Node, SOURCE};
use super::problem::Problem;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};

const VERSION: u32 = 1;
/// What one equation system may hold: a table of its rows and columns stays below 100 MB.
const NODES_MAX: usize = 1_000;
const EDGES_MAX: usize = 5_000;
const HOSTS_MAX: usize = 1_000;
const KNOBS_MAX: usize = 200;
/// More streams than any device has use for.
const KNOB_VALUES_MAX: u32 = 1_024;
const TEXT_BYTES_MAX: usize = 16 << 20;
/// Of all tables together.
const POINTS_MAX: usize = 20_000;
/// More than all storage there is.
const VOLUME_BYTES_MAX: f64 = 1e24;
/// More than any host has, or starts.
const CORES_MAX: f64 = 1e6;
/// More than any step costs beside another: sums of weights have to stay exact.
const WEIGHT_MAX: f64 = 1e9;
/// A core that moves a hundred bytes a second: what costs more was given in another unit.
const CPU_PERCENT_MAX: f64 = 1e9;
/// Above every device there is: what lies beyond was given in another unit.
const RATE_MAX: f64 = 1e15;
/// Below it, a rate was given in another unit: nobody plans for less than a kilobyte a second.
const RATE_MIN: f64 = 1e3;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    v: u32,
    #[serde(default)]
    hosts: Vec<WrittenHost>,
    #[serde(default)]
    knobs: Vec<WrittenKnob>,
    #[serde(default)]
    nodes: Vec<WrittenNode>,
    edges: Vec<WrittenEdge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHost {
    name: String,
    cores: f64,
    #[serde(default)]
    reserve: f64,
    #[serde(default)]
    threads: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKnob {
    name: String,
    min: u32,
    max: u32,
    #[serde(default = "weight")]
    weight: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenNode {
    name: String,
    #[serde(default = "weight")]
    gain: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEdge {
    name: String,
    from: String,
    to: String,
    host: Option<String>,
    #[serde(default)]
    cpu: f64,
    #[serde(default = "single")]
    count: WrittenCount,
    capacity: Option<Law>,
    volume: Option<f64>,
}

impl WrittenEdge {
    fn points(&self) -> usize {
        match &self.capacity {
            Some(Law::F5 { points, .. }) => points.len(),
            _ => 0,
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a whole number or the name of a knob")]
enum WrittenCount {
    Fixed(u32),
    Knob(String),
}

fn weight() -> f64 {
    1.0
}

fn single() -> WrittenCount {
    WrittenCount::Fixed(1)
}

const FORM: &str = "docs/planner.md shows the form of a model";

pub fn read(text: &str) -> Result<Graph, Problem> {
    let of_model = |what: String, cure| Problem::new("the model", what, cure);
    if text.len() > TEXT_BYTES_MAX {
        return Err(of_model(format!("it has {} bytes; at most {TEXT_BYTES_MAX} are read", text.len()), FORM));
    }
    let written: Written = serde_json::from_str(text).map_err(|e| of_model(e.to_string(), FORM))?;
    if written.v != VERSION {
        let what = format!("it is of version {}; this program reads version {VERSION}", written.v);
        return Err(of_model(what, "bring the program and the model to the same version"));
    }
    for (what, count, most) in [
        ("edges", written.edges.len(), EDGES_MAX),
        ("nodes", written.nodes.len(), NODES_MAX),
        ("hosts", written.hosts.len(), HOSTS_MAX),
        ("knobs", written.knobs.len(), KNOBS_MAX),
        ("points of F5", written.edges.iter().map(WrittenEdge::points).sum(), POINTS_MAX),
    ] {
        if count > most {
            let cure = "join equal devices into one edge with a `count`";
            return Err(of_model(format!("it has {count} {what}; at most {most} can be solved"), cure));
        }
    }
    let knobs = knobs(written.knobs)?;
    let knob_places = places("knob", knobs.iter().map(|knob| &knob.name))?;
    let hosts = hosts(written.hosts, &knob_places)?;
    let host_places = places("host", hosts.iter().map(|host| &host.name))?;
    let mut nodes = nodes(written.nodes)?;
    let mut node_places = places("node", nodes.iter().map(|node| &node.name))?;
    for edge in &written.edges {
        for name in [&edge.from, &edge.to] {
            node_places.entry(name.clone()).or_insert_with(|| {
                nodes.push(Node { name: name.clone(), gain: 1.0 });
                nodes.len() - 1
            });
        }
    }
    if nodes.len() > NODES_MAX {
        let what = format!("its edges name {} nodes; at most {NODES_MAX} can be solved", nodes.len());
        return Err(of_model(what, "join equal devices into one edge with a `count`"));
    }
    places("edge", written.edges.iter().map(|edge| &edge.name))?;
    let places = Places { nodes: &node_places, hosts: &host_places, knobs: &knob_places };
    let edges = written.edges.into_iter().map(|edge| places.edge(edge)).collect::<Result<Vec<_>, _>>()?;
    let end = |name: &str| {
        let missing = || of_model(format!("no edge touches {name}"), "edges lead from Src to Dst");
        node_places.get(name).copied().ok_or_else(missing)
    };
    let (source, destination) = (end(SOURCE)?, end(DESTINATION)?);
    for (terminal, node) in [(SOURCE, source), (DESTINATION, destination)] {
        let is_wrong = |edge: &&Edge| if node == source { edge.to == node } else { edge.from == node };
        if let Some(edge) = edges.iter().find(is_wrong) {
            let what = format!("it leads the wrong way at {terminal}");
            return Err(Problem::new(format!("edge {:?}", edge.name), what, "edges lead from Src to Dst"));
        }
    }
    check_volumes(&edges, source)?;
    Ok(Graph { hosts, knobs, nodes, edges, source, destination })
}

/// What lies on hosts of their own lies behind the source, and there on all of them.
fn check_volumes(edges: &[Edge], source: usize) -> Result<(), Problem> {
    let has_volumes = edges.iter().any(|edge| edge.from == source && edge.volume_bytes.is_some());
    for edge in edges {
        let what = match edge.volume_bytes {
            Some(_) if edge.from != source => format!("it has a volume and does not begin at {SOURCE}"),
            Some(volume) if !(1.0..=VOLUME_BYTES_MAX).contains(&volume) => format!("its volume is {volume}"),
            None if has_volumes && edge.from == source => {
                format!("it has no volume, which others that begin at {SOURCE} have")
            }
            _ => continue,
        };
        let cure = "give every edge that begins at Src the bytes that lie there, or none of them";
        return Err(Problem::new(format!("edge {:?}", edge.name), what, cure));
    }
    Ok(())
}

/// The place of every name; a name that stands twice is an error.
fn places<'a>(what: &str, names: impl Iterator<Item = &'a String>) -> Result<HashMap<String, usize>, Problem> {
    let mut places = HashMap::new();
    for (place, name) in names.enumerate() {
        if name.is_empty() {
            return Err(Problem::new(format!("{what} number {}", place + 1), "it has no name", "give it a name"));
        }
        if places.insert(name.clone(), place).is_some() {
            return Err(Problem::new(format!("{what} {name:?}"), "the name stands twice", "give each its own name"));
        }
    }
    Ok(places)
}

fn knobs(written: Vec<WrittenKnob>) -> Result<Vec<Knob>, Problem> {
    let mut knobs = Vec::new();
    for WrittenKnob { name, min, max, weight } in written {
        let subject = || format!("knob {name:?}");
        if min > max || max - min >= KNOB_VALUES_MAX || max > 1 << 20 {
            let what = format!("its range {min} to {max} is empty, or has more than {KNOB_VALUES_MAX} values");
            return Err(Problem::new(subject(), what, "give `min` and `max` in this order"));
        }
        if !(0.0..=WEIGHT_MAX).contains(&weight) {
            let cure = "a weight is 0 or more, and at most 1e9";
            return Err(Problem::new(subject(), format!("its weight is {weight:?}"), cure));
        }
        knobs.push(Knob { name, min, max, weight });
    }
    Ok(knobs)
}

fn hosts(written: Vec<WrittenHost>, knobs: &HashMap<String, usize>) -> Result<Vec<Host>, Problem> {
    let mut hosts = Vec::new();
    for WrittenHost { name, cores, reserve, threads } in written {
        let subject = || format!("host {name:?}");
        if cores > CORES_MAX {
            return Err(Problem::new(subject(), format!("it has {cores:?} cores"), "give at most 1e6 cores"));
        }
        let is_good = reserve >= 0.0 && cores > reserve;
        if !is_good {
            let what = format!("of {cores:?} cores, {reserve:?} are kept in reserve: none is left");
            return Err(Problem::new(subject(), what, "`cores` must be more than `reserve`, which is 0 or more"));
        }
        let mut counted = Vec::new();
        for (knob, each) in threads {
            let place = knobs.get(&knob).ok_or_else(|| unknown(subject(), "knob", &knob))?;
            if !(0.0..=CORES_MAX).contains(&each) {
                let cure = "give 0 or more, and at most 1e6";
                return Err(Problem::new(subject(), format!("{knob:?} starts {each:?} threads"), cure));
            }
            counted.push((*place, each));
        }
        hosts.push(Host { name, cores, reserve, threads: counted });
    }
    Ok(hosts)
}

fn nodes(written: Vec<WrittenNode>) -> Result<Vec<Node>, Problem> {
    let mut nodes = Vec::new();
    for WrittenNode { name, gain } in written {
        if !(1e-6..=1e6).contains(&gain) {
            let cure = "a gain is bytes out for each byte in, such as 0.5 behind compression";
            return Err(Problem::new(format!("node {name:?}"), format!("its gain is {gain}"), cure));
        }
        nodes.push(Node { name, gain });
    }
    Ok(nodes)
}

fn unknown(subject: String, what: &str, name: &str) -> Problem {
    Problem::new(subject, format!("the model has no {what} {name:?}"), "list it, or correct the name")
}

/// Where everything stands that an edge may name.
struct Places<'a> {
    nodes: &'a HashMap<String, usize>,
    hosts: &'a HashMap<String, usize>,
    knobs: &'a HashMap<String, usize>,
}

impl Places<'_> {
    fn edge(&self, written: WrittenEdge) -> Result<Edge, Problem> {
        let WrittenEdge { name, from, to, host, cpu, count, capacity: law, volume: volume_bytes } = written;
        let subject = || format!("edge {name:?}");
        if !(0.0..=CPU_PERCENT_MAX).contains(&cpu) {
            let cure = "give percent of one core at 1 GB/s, such as 300";
            return Err(Problem::new(subject(), format!("cpu is {cpu:?}"), cure));
        }
        if cpu > 0.0 && host.is_none() {
            return Err(Problem::new(subject(), "it costs processor time on no host", "name its `host`"));
        }
        let host = match host {
            Some(host) => Some(*self.hosts.get(&host).ok_or_else(|| unknown(subject(), "host", &host))?),
            None => None,
        };
        let count = match count {
            WrittenCount::Fixed(0) => return Err(Problem::new(subject(), "its count is 0", "leave the edge out")),
            WrittenCount::Fixed(count) => Count::Fixed(count),
            WrittenCount::Knob(knob) => {
                Count::Knob(*self.knobs.get(&knob).ok_or_else(|| unknown(subject(), "knob", &knob))?)
            }
        };
        let mut law_knob = None;
        if let Some(law) = &law {
            law.check(&name)?;
            if let Some(knob) = law.knob() {
                law_knob = Some(*self.knobs.get(knob).ok_or_else(|| unknown(subject(), "knob", knob))?);
            }
        }
        let edge = Edge {
            from: self.nodes[&from],
            to: self.nodes[&to],
            host,
            cpu_percent: cpu,
            count,
            law,
            law_knob,
            volume_bytes,
            name: name.clone(),
        };
        Ok(edge)
    }
}

/// Refuses models whose rates cannot be bytes a second.
pub fn check_units(graph: &Graph) -> Result<(), Problem> {
    for edge in &graph.edges {
        let mut most = 0.0f64;
        let values = |knob: Option<usize>| match knob {
            Some(knob) => graph.knobs[knob].min..=graph.knobs[knob].max,
            None => 0..=0,
        };
        let Some(law) = &edge.law else { continue };
        for n in values(edge.law_knob) {
            most = most.max(law.value(n));
        }
        let subject = format!("edge {:?}", edge.name);
        let cure = "capacities are bytes a second: 10 Gbit/s is 1.25e9";
        if most > RATE_MAX {
            return Err(Problem::new(subject, format!("its capacity is {most:?} bytes a second"), cure));
        }
        if most < RATE_MIN {
            return Err(Problem::new(subject, format!("its capacity is at most {most} bytes a second"), cure));
        }
    }
    Ok(())
}
