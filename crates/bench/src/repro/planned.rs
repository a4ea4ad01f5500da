//! S1's figures that its model draws: flows over streams, and the planner beside other rules, computed from the models in
//! `docs/models` by the solver that `thalweg plan --graph` uses.
//!
//! Invariant: nothing is measured here, no laboratory is made, and every item says so. The models' constants were chosen to
//! satisfy what the publication states in words, because it gives its curves as drawings only.

use plan::graph::{Change, Count, Graph};
use plan::solve::{best, solve};

use super::context::Context;
use super::judge::{Check, shown};
use crate::error::{Error, Kind, Result};
use crate::plot::{self, Axis, Plot, Point, Scale, Series, Unit};

/// Sets of 1, 10 and 100 MB files on the four disk sets of S1's host.
pub(super) const MODELS: [(&str, &str); 3] = [
    ("1 MB", include_str!("../../../../docs/models/s1-1mb.json")),
    ("10 MB", include_str!("../../../../docs/models/s1-10mb.json")),
    ("100 MB", include_str!("../../../../docs/models/s1-100mb.json")),
];
const STREAMS_MAX: u32 = 16;
const PUBLISHED_STREAMS: [u32; 3] = [8, 6, 3];
/// Streams that fill a card, by the publication.
const CARD_STREAMS: u32 = 3;
/// Of an edge that does not limit, bytes a second.
const UNLIMITED: f64 = 1e12;
pub(super) const NOTE: &str =
    "computed from docs/models/s1-*.json by the planner's solver; nothing was measured on this machine";

/// Figures 14 and 15: end-to-end rate over the streams of each disk set, several and one of them.
pub fn flows(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    for (name, title, narrow) in [
        ("four disk sets", "Four disk sets, two cards", four as fn(&str) -> Result<Graph>),
        ("one disk set", "One disk set, no limit behind it", one),
    ] {
        let mut series = Vec::new();
        for ((size, text), published) in MODELS.iter().zip(PUBLISHED_STREAMS) {
            let graph = narrow(text)?;
            let points = curve(&graph)?;
            let (peak, highest) = peak(&points);
            let claim = format!("{name}, {size} files: streams at the peak");
            let at = (format!("{peak} ({} GB/s)", shown(highest)), peak == published);
            context.check(Check::of(claim, format!("{published}, as published"), Some(at)));
            let last = points.last().map(|point| point.y / highest);
            let claim = format!("{name}, {size} files: rate at {STREAMS_MAX} streams / at the peak");
            context.check(Check::at_most(claim, 0.95, last));
            series.push(Series { name: format!("{size} files"), kind: plot::Kind::Bound, points });
        }
        context.plot(drawn(&name.replace(' ', "-"), title, series));
    }
    Ok(())
}

/// Figure 16: the rates of one stream, of the published rule of Globus, of the planner, and of the best of all settings.
pub fn rules(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    context
        .note("the rule: 2 files at a time below 50 MB and above 250 MB on average, 2 between; one card, as published");
    let mut series: Vec<Series> = ["one stream", "rule of Globus", "planner", "best of all settings"]
        .map(|name| Series { name: name.into(), kind: plot::Kind::Bound, points: Vec::new() })
        .into();
    for ((size, text), published) in MODELS.iter().zip([None, Some(8.0), Some(4.0)]) {
        let graph = fixed(parsed(text)?, &[("nics", 1)])?;
        let planned = solve(&graph, None).map_err(unsolved)?;
        let rates = [in_all(&graph, 1)?, in_all(&graph, 2)?, planned.bytes_per_second, exhaustive(&graph)?];
        let megabytes: f64 = size.trim_end_matches(" MB").parse().expect("sizes are numbers");
        for (series, rate) in series.iter_mut().zip(rates) {
            series.points.push(Point::at(megabytes, rate / 1e9));
        }
        context.check(Check::at_least(format!("{size} files: planner / best"), 0.9, Some(rates[2] / rates[3])));
        let claim = format!("{size} files: planner / rule of Globus");
        context.check(match published {
            Some(gain) => Check::within(claim, 0.98 * gain, 1.02 * gain, Some(rates[2] / rates[1])),
            None => Check::told(claim, "not published", shown(rates[2] / rates[1])),
        });
    }
    context.plot(Plot {
        x: Axis::new("file size, MB", Scale::Log10, Unit::Number),
        ..drawn("rules", "Planner and rules", series)
    });
    Ok(())
}

/// What other hardware would bring: more cards, and faster disks.
pub fn what_if(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    for (size, text) in MODELS {
        let rate = |cards| fixed(parsed(text)?, &[("nics", cards)]).and_then(|graph| best(&graph).map_err(unsolved));
        let (one, two, three) = (rate(1)?, rate(2)?, rate(3)?);
        let claim = format!("{size} files: a second card brings");
        context.check(Check::at_least(claim, 1.1, Some(two / one)));
        let claim = format!("{size} files: a third card brings");
        context.check(Check::at_most(claim, 1.001, Some(three / two)));
        let graph = fixed(parsed(text)?, &[("nics", 2)])?;
        for edge in ["disks", "application"] {
            let more = graph.with_capacity(edge, Change::Times(2.0)).map_err(refused)?;
            let gain = best(&more).map_err(unsolved)? / two;
            context.check(Check::told(format!("{size} files, two cards: {edge} twice as fast bring"), "", shown(gain)));
        }
    }
    Ok(())
}

pub(super) fn parsed(text: &str) -> Result<Graph> {
    Graph::parse(text).map_err(refused)
}

fn fixed(mut graph: Graph, knobs: &[(&str, u32)]) -> Result<Graph> {
    knobs.iter().try_for_each(|(knob, n)| graph.fix(knob, *n)).map_err(refused)?;
    Ok(graph)
}

pub(super) fn four(text: &str) -> Result<Graph> {
    fixed(parsed(text)?, &[("nics", 2), ("t", CARD_STREAMS)])
}

pub(super) fn one(text: &str) -> Result<Graph> {
    let mut graph = four(text)?;
    for edge in ["channel", "network"] {
        graph = graph.with_capacity(edge, Change::To(UNLIMITED)).map_err(refused)?;
    }
    for edge in graph.edges.iter_mut().filter(|edge| edge.count == Count::Fixed(4)) {
        edge.count = Count::Fixed(1);
    }
    Ok(graph)
}

/// With so many streams in all instead of some for each disk set.
fn in_all(graph: &Graph, streams: u32) -> Result<f64> {
    let graph = fixed(graph.clone(), &[("n", 1), ("t", CARD_STREAMS)])?;
    let application = graph.edge_named("application").map(|edge| &graph.edges[edge]);
    let each = application.and_then(|edge| edge.law.as_ref()).map_or(0.0, |law| law.value(1));
    let few = graph.with_capacity("application", Change::To(f64::from(streams) * each)).map_err(refused)?;
    best(&few).map_err(unsolved)
}

fn exhaustive(graph: &Graph) -> Result<f64> {
    Ok(curve(&fixed(graph.clone(), &[("t", CARD_STREAMS)])?)?.iter().map(|point| point.y * 1e9).fold(0.0, f64::max))
}

/// GB/s over streams of each disk set.
fn curve(graph: &Graph) -> Result<Vec<Point>> {
    let rate = |n| -> Result<f64> { Ok(best(&fixed(graph.clone(), &[("n", n)])?).map_err(unsolved)? / 1e9) };
    (1..=STREAMS_MAX).map(|n| Ok(Point::at(f64::from(n), rate(n)?))).collect()
}

fn peak(points: &[Point]) -> (u32, f64) {
    let highest = points.iter().map(|point| point.y).fold(0.0, f64::max);
    let first = points.iter().find(|point| point.y >= highest * (1.0 - 1e-9));
    (first.map_or(0, |point| point.x as u32), highest)
}

fn drawn(name: &str, title: &str, series: Vec<Series>) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        note: NOTE.into(),
        x: Axis::new("streams of each disk set", Scale::Linear, Unit::Number),
        y: Axis::new("GB/s", Scale::Linear, Unit::Number),
        series,
    }
}

fn refused(problem: impl std::fmt::Display) -> Error {
    Error::new(Kind::Failed, "read", "a model of the disk-to-disk study", problem.to_string())
}

fn unsolved(problem: impl std::fmt::Display) -> Error {
    Error::new(Kind::Failed, "solve", "a model of the disk-to-disk study", problem.to_string())
}
