//! A calibration as a model with one knob, `streams`: what was measured, as tables, in a row from source to destination.

use super::level::{AS_FAST, is_behind, level};
use super::predict::{DataSet, candidates, level_of_bytes};
use super::written::{Calibration, Part, Unusable};
use crate::graph::{Count, Edge, Graph, Knob, Law, Node};
use std::collections::BTreeMap;

const KNOB: &str = "streams";
/// More than what is equal, as a factor, for an edge that is not to be named as a limit.
const BEYOND: f64 = 1.000_001;

impl Calibration {
    /// The model for a data set: files that are small make an edge of their own, whose capacity is files times mean size.
    pub fn graph(&self, data: &DataSet) -> Result<Graph, Unusable> {
        let streams = candidates(self);
        let (Some(least), Some(most)) = (streams.first(), streams.last()) else { return Err(Unusable::Empty) };
        if data.files() == 0 {
            return Err(Unusable::Empty);
        }
        let mean = data.bytes() / data.files() as f64;
        let laws =
            [Part::Read, Part::Engine, Part::Network, Part::Write, Part::Metadata].into_iter().filter_map(|part| {
                let point = |n: &u32| {
                    let rate = match part {
                        Part::Metadata => mean * level(self, part, *n, |run| run.files as f64)?,
                        Part::Write => of_write(self, *n)?,
                        _ => level_of_bytes(self, part, *n)?,
                    };
                    Some((n.to_string(), rate))
                };
                let points: BTreeMap<String, f64> = streams.iter().filter_map(point).collect();
                (!points.is_empty()).then(|| (part.word(), Law::F5 { points, knob: KNOB.to_owned() }))
            });
        let (mut nodes, mut edges) = (vec![Node { name: "Src".into(), gain: 1.0 }], Vec::new());
        for (name, law) in laws {
            nodes.push(Node { name: format!("behind {name}"), gain: 1.0 });
            edges.push(Edge {
                name: name.to_owned(),
                from: nodes.len() - 2,
                to: nodes.len() - 1,
                host: None,
                cpu_percent: 0.0,
                count: Count::Fixed(1),
                law: Some(law),
                law_knob: Some(0),
                volume_bytes: None,
            });
        }
        let destination = nodes.len() - 1;
        nodes[destination].name = "Dst".into();
        let knobs = vec![Knob { name: KNOB.into(), min: *least, max: *most, weight: 1.0 }];
        if edges.is_empty() {
            return Err(Unusable::Empty);
        }
        Ok(Graph { hosts: Vec::new(), knobs, nodes, edges, source: 0, destination })
    }
}

/// Storage that the network held back may give more: the network is what limits, and what an upgrade has to be of.
fn of_write(calibration: &Calibration, streams: u32) -> Option<f64> {
    let write = level_of_bytes(calibration, Part::Write, streams)?;
    let network = level_of_bytes(calibration, Part::Network, streams);
    let held_back = network.filter(|network| write >= AS_FAST * network && is_behind(calibration));
    Some(held_back.map_or(write, |network| write.max(network) * BEYOND))
}
