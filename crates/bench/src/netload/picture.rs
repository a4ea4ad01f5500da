//! Rate, round trip and congestion window over time, a curve for each stream or, of many streams, for each direction.

use super::Way;
use super::interval::{Interval, Totals};
use super::outcome::{Outcome, name};
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};

/// More curves than this in one picture cannot be told apart.
const CURVES_MAX: usize = 8;

pub fn plots(outcome: &Outcome) -> Vec<Plot> {
    let note = format!(
        "{} streams in each direction, {}; the first {} s do not count.",
        outcome.load.streams,
        if outcome.load.is_encrypted { "sealed" } else { "clear text" },
        outcome.load.omitted.as_secs_f64()
    );
    let plot = |stem: &str, title: &str, label: &str, unit, series| Plot {
        name: stem.to_owned(),
        title: title.to_owned(),
        note: note.clone(),
        x: Axis::new("time (s)", Scale::Linear, Unit::Number),
        y: Axis::new(label, Scale::Linear, unit),
        series,
    };
    let rate = directions(outcome, |totals| totals.bits_per_second / 1e9);
    let rtt = directions(outcome, |totals| totals.rtt_us as f64 / 1e3);
    vec![
        plot("rate", "What arrived", "rate (Gbit/s)", Unit::Number, rate),
        plot("rtt", "Round trip", "smoothed round trip (ms)", Unit::Milliseconds, rtt),
        plot("cwnd", "Congestion window", "window (segments)", Unit::Number, windows(outcome)),
    ]
}

fn directions(outcome: &Outcome, of: fn(&Totals) -> f64) -> Vec<Series> {
    let one = |(index, totals): (usize, &Totals)| {
        let at = |interval: &Interval| interval.totals.get(index).map(|totals| Point::at(end(interval), of(totals)));
        let points = outcome.intervals.iter().filter_map(at).collect();
        Series { name: format!("all {}", name(totals.way)), kind: Kind::Measured, points }
    };
    outcome.totals.iter().enumerate().map(one).collect()
}

fn windows(outcome: &Outcome) -> Vec<Series> {
    let label = |way: Way, stream: u32| format!("stream {stream} {}", name(way));
    let one = |(index, stream): (usize, &super::StreamSummary)| {
        let at = |interval: &Interval| {
            interval.streams.get(index).map(|stream| Point::at(end(interval), stream.cwnd_segments as f64))
        };
        let points = outcome.intervals.iter().filter_map(at).collect();
        Series { name: label(stream.way, stream.stream), kind: Kind::Measured, points }
    };
    outcome.streams.iter().enumerate().take(CURVES_MAX).map(one).collect()
}

fn end(interval: &Interval) -> f64 {
    interval.from_seconds + interval.seconds
}
