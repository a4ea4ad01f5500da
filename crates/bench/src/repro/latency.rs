//! S0 figure 2: what TCP from memory to memory carries over latency, on a host as distributed and on a tuned one.

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, shown};
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::published;
use crate::sweep::{Axes, CEILINGS, Figures};

/// A host as distributed is limited by its windows at every published latency only above this.
const RATE: u64 = 2_000_000_000;
/// Nearer to the rate of the link than this, the window is not the limit.
const WINDOW_LIMITED_MAX: f64 = 0.85;

pub fn run(context: &mut Context) -> Result<()> {
    let latencies_ms: Vec<u64> = (10..=30).step_by(2).chain((40..=100).step_by(10)).collect();
    let axes = |rates, has_stock_hosts| Axes {
        rates,
        round_trips: latencies_ms.iter().map(|ms| Duration::from_millis(2 * ms)).collect(),
        has_stock_hosts,
        ..Axes::default()
    };
    let mut curves = Vec::new();
    for (name, is_stock) in [("stock", true), ("tuned", false)] {
        let axes = axes(context.rate(RATE), is_stock);
        let figures = context.sweep(Some(name), 0.5, axes, |options| {
            options.variants = Vec::new();
            options.ceiling_streams = vec![1];
            options.with_iperf = true;
        })?;
        for tool in ["flow, 1 stream", "iperf3, 1 stream"] {
            curves.push((name, tool, curve(&figures, tool)));
        }
    }
    let of = |name: &str, tool: &str| {
        curves.iter().find(|curve| curve.0 == name && curve.1.starts_with(tool)).map_or(&[][..], |curve| &curve.2[..])
    };
    let (stock, tuned) = (of("stock", "flow"), of("tuned", "flow"));
    let link = context.rate(RATE)[0].unwrap_or(RATE) as f64 / 1e9;
    let limited: Vec<f64> = stock.iter().filter(|p| p.y < WINDOW_LIMITED_MAX * link).map(|p| p.x * p.y).collect();
    let spread = crate::repro::judge::mean(&limited)
        .map(|mean| limited.iter().map(|product| (product / mean - 1.0).abs()).fold(0.0, f64::max));
    let said = spread
        .map(|spread| (format!("within {:.1} % over {} latencies", spread * 100.0, limited.len()), spread <= 0.05));
    context.check(Check::of("host as distributed: rate x latency is constant", "5 % (published: 82-85 MB)", said));
    let ends = |points: &[Point]| Some((points.first()?.y, points.last()?.y));
    let kept = ends(tuned).map(|(near, far)| far / near);
    context.check(Check::at_least(
        "tuned host: rate at the longest / at the shortest latency (published 0.846)",
        0.85,
        kept,
    ));
    let gains: Vec<f64> = stock.iter().zip(tuned).map(|(stock, tuned)| tuned.y / stock.y).collect();
    let grows = gains.windows(2).all(|pair| pair[1] >= 0.97 * pair[0]);
    let said = gains
        .first()
        .zip(gains.last())
        .map(|(first, last)| (format!("from {} to {}", shown(*first), shown(*last)), grows && last > first));
    context.check(Check::of("the gain of tuning grows with latency", "grows (published 1.45 to 12.5)", said));
    let agree = |name: &str| {
        let (own, iperf) = (of(name, "flow"), of(name, "iperf3"));
        own.last().zip(iperf.last()).map_or("iperf3 is not installed".into(), |(own, iperf)| shown(own.y / iperf.y))
    };
    let claim = "our flow / iperf3 at the longest latency, tuned";
    context.check(Check::told(claim, "iperf3 counts its slow start, our flow does not", agree("tuned")));
    draw(context, &curves);
    Ok(())
}

fn curve(figures: &Figures, tool: &str) -> Vec<Point> {
    let rows = figures.rows.iter().filter(|row| row.set == CEILINGS && row.tool == tool);
    let point = |row: &crate::sweep::Row| {
        let rtt = row.condition.split(' ').find_map(|word| word.strip_prefix("rtt="))?;
        let rtt = lab::scenario::quantity::parse_duration(rtt).ok()?;
        Some(Point::at(rtt.as_secs_f64() * 1e3 / 2.0, row.gbit_per_second.median))
    };
    rows.filter_map(point).collect()
}

/// Ours and the published in shares of each link.
fn draw(context: &mut Context, curves: &[(&str, &str, Vec<Point>)]) {
    const PUBLISHED_LINK: f64 = 100.0;
    let link = context.rate(RATE)[0].unwrap_or(RATE) as f64 / 1e9;
    let share = |points: &[Point], link: f64| points.iter().map(|point| Point::at(point.x, point.y / link)).collect();
    let mut series: Vec<Series> = curves
        .iter()
        .filter(|(_, _, points)| !points.is_empty())
        .map(|(name, tool, points)| Series {
            name: format!("{tool}, {name} host"),
            kind: if tool.starts_with("iperf3") { Kind::Rival } else { Kind::Measured },
            points: share(points, link),
        })
        .collect();
    series.extend(published::iperf3().map(|of| Series { points: share(&of.points, PUBLISHED_LINK), ..of }));
    context.plot(Plot {
        name: "latency".into(),
        title: "TCP over latency, host as distributed and tuned".into(),
        note: format!("Shares of the link: {link} Gbit/s here, 100 Gbit/s published. Latency is one way."),
        x: Axis::new("one-way latency", Scale::Linear, Unit::Milliseconds),
        y: Axis::new("share of the link", Scale::Linear, Unit::Number),
        series,
    });
}
