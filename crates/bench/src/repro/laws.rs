//! S1's figures of single laws: disks, channel, application, processors and connections, drawn from the models in `docs/models`, and
//! given back by the planner's fits from points that scatter as measurements do.
//!
//! Invariant: nothing is measured here, and every item says so.

use plan::fit::{FittedLaw, Point as Measured, Unfit, bent, falling};
use plan::graph::{Graph, Law};

use super::context::Context;
use super::judge::Check;
use super::planned::{MODELS, NOTE, four, one, parsed};
use crate::error::{Error, Kind, Result};
use crate::plot::{self, Axis, Plot, Point, Scale, Series, Unit};

const STREAMS_MAX: u32 = 16;
/// Of a repeated measurement, by the publication's own error bars.
const SCATTER: f64 = 0.03;
/// A fit is that far from its law at the most.
const FIT_ERROR_MAX: f64 = 0.05;

/// Figure 8: one disk set over streams falls, and the fit gives its law back.
pub fn disk(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    let law = law_of(&parsed(MODELS[2].1)?, "disks")?;
    let points = curve(|n| law.value(n) / 1e9);
    context.check(Check::within("one stream, GB/s", 0.45, 0.6, points.first().map(|point| point.y)));
    let falls = points.windows(2).all(|pair| pair[1].y < pair[0].y);
    context.check(Check::of("each stream more is slower", "always", Some((falls.to_string(), falls))));
    fitted(context, "disk", &law, falling)?;
    drawn(context, "disk", "One disk set", vec![("disk set", points)]);
    Ok(())
}

/// Figure 9: several disk sets on one channel give slightly less than their sum.
pub fn channel(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    let graph = parsed(MODELS[2].1)?;
    let (disk, channel) = (law_of(&graph, "disks")?, law_of(&graph, "channel")?);
    let mut series = Vec::new();
    for sets in 1..=4u32 {
        // The channel's law counts the streams of four sets.
        let shared = |n: u32| (f64::from(sets) * disk.value(n)).min(channel.value((n * sets).div_ceil(4)));
        let share = shared(1) / (f64::from(sets) * disk.value(1));
        let claim = format!("{sets} disk sets with one stream each / their sum");
        context.check(Check::within(claim, 0.9, 1.0, Some(share)));
        series.push((["1 set", "2 sets", "3 sets", "4 sets"][sets as usize - 1], curve(|n| shared(n) / 1e9)));
    }
    drawn(context, "channel", "Disk sets on one channel", series);
    Ok(())
}

/// Figure 10: a local copy rises with its streams until the disk set has enough of them.
pub fn application(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    let mut series = Vec::new();
    for ((size, text), (streams, rate)) in MODELS.iter().zip([(8, 0.3525), (6, 0.3917), (3, 0.45)]) {
        let graph = one(text)?;
        let (disk, application) = (law_of(&graph, "disks")?, law_of(&graph, "application")?);
        let points = curve(|n| disk.value(n).min(application.value(n)) / 1e9);
        let highest = points.iter().map(|point| point.y).fold(0.0, f64::max);
        let peak = points.iter().find(|point| point.y >= highest * (1.0 - 1e-9)).map_or(0.0, |point| point.x);
        let holds = peak as u32 == streams;
        context.check(Check::of(
            format!("{size} files: streams at the peak"),
            format!("{streams}"),
            Some((format!("{peak}"), holds)),
        ));
        context.check(Check::within(format!("{size} files: GB/s there"), rate * 0.99, rate * 1.01, Some(highest)));
        series.push((*size, points));
    }
    drawn(context, "application", "A local copy, one disk set", series);
    Ok(())
}

/// Figure 11: processors over rate, a straight line.
pub fn processors(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    let graph = four(MODELS[2].1)?;
    let percent: f64 = graph.edges.iter().map(|edge| edge.cpu_percent).sum();
    let cores = graph.hosts.first().map_or(0.0, |host| host.cores);
    let points: Vec<Point> =
        (1..=20).map(|tenth| Point::at(f64::from(tenth) / 10.0, f64::from(tenth) / 10.0 * percent)).collect();
    let at_plan = plan::solve::solve(&graph, None).map_err(|e| refused(e.to_string()))?;
    context.check(Check::within("percent of a core at 1.8 GB/s", 980.0, 1000.0, at_plan.host_percent.first().copied()));
    context.check(Check::at_least("GB/s that the host's processors carry", 1.8, Some(100.0 * cores / percent)));
    context.plot(Plot {
        x: Axis::new("GB/s", Scale::Linear, Unit::Number),
        y: Axis::new("percent of a core", Scale::Linear, Unit::Number),
        ..plotted("processors", "Processors over rate", vec![("application and TCP", points)])
    });
    Ok(())
}

/// Figure 12: connections fill a card, and the fit finds how many it takes.
pub fn connections(context: &mut Context) -> Result<()> {
    context.note(NOTE);
    let law = law_of(&parsed(MODELS[2].1)?, "network")?;
    let points = curve(|n| law.value(n) / 1e9);
    let full = points.iter().find(|point| point.y >= 1.199).map_or(0.0, |point| point.x);
    context.check(Check::of("connections that fill a card", "3, as published", Some((format!("{full}"), full == 3.0))));
    fitted(context, "connections", &law, bent)?;
    drawn(context, "connections", "Connections on one card", vec![("card", points)]);
    Ok(())
}

type Fit = fn(&[Measured], &str) -> std::result::Result<FittedLaw, Unfit>;

/// Fits points of a law that scatter, and holds what comes of it against the law.
fn fitted(context: &mut Context, name: &str, law: &Law, fit: Fit) -> Result<()> {
    let scattered = |(place, n): (usize, u32)| {
        let sign = if place.is_multiple_of(2) { 1.0 } else { -1.0 };
        Measured { at: f64::from(n), bytes_per_second: law.value(n) * (1.0 + sign * SCATTER) }
    };
    let points: Vec<Measured> = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32].into_iter().enumerate().map(scattered).collect();
    let found = fit(&points, "n").map_err(|e| refused(e.to_string()))?;
    let off = |n: u32| (found.law.value(n) / law.value(n) - 1.0).abs();
    let worst = (1..=STREAMS_MAX).map(off).fold(0.0, f64::max);
    let claim = format!("{name}: the fit of points that scatter by 3 % / the law, at the worst");
    context.check(Check::at_most(claim, FIT_ERROR_MAX, Some(worst)));
    Ok(())
}

/// The law of one device.
fn law_of(graph: &Graph, edge: &str) -> Result<Law> {
    let found = graph.edge_named(edge).and_then(|at| graph.edges[at].law.clone());
    found.ok_or_else(|| refused(format!("it has no law of {edge}")))
}

fn curve(rate: impl Fn(u32) -> f64) -> Vec<Point> {
    (1..=STREAMS_MAX).map(|n| Point::at(f64::from(n), rate(n))).collect()
}

fn drawn(context: &mut Context, name: &str, title: &str, series: Vec<(&str, Vec<Point>)>) {
    context.plot(plotted(name, title, series));
}

fn plotted(name: &str, title: &str, series: Vec<(&str, Vec<Point>)>) -> Plot {
    let one = |(name, points): (&str, Vec<Point>)| Series { name: name.to_owned(), kind: plot::Kind::Bound, points };
    Plot {
        name: name.into(),
        title: title.into(),
        note: NOTE.into(),
        x: Axis::new("streams", Scale::Linear, Unit::Number),
        y: Axis::new("GB/s", Scale::Linear, Unit::Number),
        series: series.into_iter().map(one).collect(),
    }
}

fn refused(cause: String) -> Error {
    Error::new(Kind::Failed, "draw", "a law of the disk-to-disk study", cause)
}
