//! S4 tables 1 and 5: many clients at once, small windows, several streams.

use std::time::Duration;

use super::context::Context;
use super::judge::{Check, shown};
use super::paths::OURS;
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::{Axes, Figures, shown_size};

const GBIT: u64 = 1_000_000_000;
/// The control distance of the LIMAN part of the study, which is also about half of its data distance.
const RTT: Duration = Duration::from_millis(36);

/// Table 1.
pub fn windows(context: &mut Context) -> Result<()> {
    let windows = [Some(1_u64 << 20), Some(2 << 20), None];
    let clients = [1, 2, 4];
    let axes = Axes {
        sets: vec!["8x16MiB".into()],
        rates: context.rate(GBIT),
        round_trips: vec![RTT],
        streams: vec![Some(1), Some(2), None],
        windows: windows.to_vec(),
        clients: clients.to_vec(),
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.rounds = options.rounds.min(2);
        options.ceiling_streams = Vec::new();
    })?;
    let rate = |window: Option<u64>, streams: &str, clients: u32| {
        let is_it = |condition: &str| {
            has(condition, "streams", streams) && has_window(condition, window) && has_clients(condition, clients)
        };
        figures.work().find(|row| is_it(&row.condition) && row.tool == OURS).map(|row| row.gbit_per_second.median)
    };
    let gain = rate(Some(2 << 20), "2", 1).zip(rate(Some(1 << 20), "2", 1)).map(|(wide, narrow)| wide / narrow);
    let said = gain.map_or("no counted run".into(), shown);
    context.check(Check::told("two streams: window of 2 MiB / of 1 MiB", "published 1.04 (50 to 52 Gbit/s)", said));
    let gain = rate(Some(2 << 20), "2", 4).zip(rate(Some(2 << 20), "2", 1)).map(|(many, one)| many / one);
    let said = gain.map_or("no counted run".into(), shown);
    context.check(Check::told("two streams, 2 MiB: four clients / one", "published 1.35 (52 to 70 Gbit/s)", said));
    let best = figures.work().filter(|row| row.tool == OURS).map(|row| row.gbit_per_second.median).reduce(f64::max);
    for window in windows {
        let share = rate(window, "auto", 1).zip(best).map(|(own, best)| own / best);
        let name = window.map_or("tuned".into(), shown_size);
        context.check(Check::at_least(
            format!("one client with automatic streams / best of the study, window {name}"),
            0.9,
            share,
        ));
    }
    let series = windows.iter().flat_map(|window| {
        ["1", "2", "auto"].map(|streams| {
            let at =
                clients.iter().filter_map(|count| Some(Point::at(f64::from(*count), rate(*window, streams, *count)?)));
            let name = window.map_or("tuned window".into(), |bytes| format!("window {}", shown_size(bytes)));
            Series { name: format!("{name}, streams {streams}"), kind: Kind::Measured, points: at.collect() }
        })
    });
    let series = series.collect();
    draw(context, "Clients, windows and streams", series);
    Ok(())
}

/// Table 5.
pub fn scaling(context: &mut Context) -> Result<()> {
    let clients = [1, 2, 4, 8];
    let sets = ["1x128MiB", "8x16MiB", "1000x64KiB"];
    let axes = Axes {
        sets: sets.map(str::to_owned).to_vec(),
        rates: context.rate(GBIT),
        round_trips: vec![RTT],
        streams: vec![Some(1), None],
        clients: clients.to_vec(),
        ..Axes::default()
    };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.rounds = options.rounds.min(2);
        options.ceiling_streams = vec![8];
        options.limit = Duration::from_secs(240);
    })?;
    let rate = |set: &str, streams: &str, count: u32| rate_of(&figures, set, streams, count);
    for set in sets {
        let one = rate(set, "1", 1);
        let scaled: Vec<String> = clients
            .iter()
            .filter_map(|count| Some(format!("{count}: {}", shown(rate(set, "1", *count)? / one?))))
            .collect();
        let claim = format!("{set}: clients with one stream each, relative to one client");
        context.check(Check::told(claim, "xrootd 8 GB: 1, 1.7, 2.6 (link-bound)", scaled.join(", ")));
        let best = clients.iter().filter_map(|count| rate(set, "1", *count)).reduce(f64::max);
        let share = rate(set, "auto", 1).zip(best).map(|(own, best)| own / best);
        context.check(Check::at_least(
            format!("{set}: one client, automatic streams / best of many clients"),
            0.9,
            share,
        ));
    }
    let series = sets.iter().flat_map(|set| {
        ["1", "auto"].map(|streams| {
            let at = clients.iter().filter_map(|count| Some(Point::at(f64::from(*count), rate(set, streams, *count)?)));
            Series { name: format!("{set}, streams {streams}"), kind: Kind::Measured, points: at.collect() }
        })
    });
    let series = series.collect();
    draw(context, "Client scaling", series);
    Ok(())
}

fn rate_of(figures: &Figures, set: &str, streams: &str, clients: u32) -> Option<f64> {
    let is_it = |condition: &str| has(condition, "streams", streams) && has_clients(condition, clients);
    let row = figures.work().find(|row| row.set == set && is_it(&row.condition) && row.tool == OURS)?;
    Some(row.gbit_per_second.median)
}

fn has(condition: &str, key: &str, value: &str) -> bool {
    condition.split(' ').any(|word| word.split_once('=') == Some((key, value)))
}

fn has_window(condition: &str, window: Option<u64>) -> bool {
    match window {
        Some(bytes) => has(condition, "window", &shown_size(bytes)),
        None => !condition.contains(" window="),
    }
}

fn has_clients(condition: &str, clients: u32) -> bool {
    if clients == 1 { !condition.contains(" clients=") } else { has(condition, "clients", &clients.to_string()) }
}

fn draw(context: &mut Context, title: &str, series: Vec<Series>) {
    context.plot(Plot {
        name: "clients".into(),
        title: title.into(),
        note: "All clients together, from the common start to the end of the last; TLS and digests on.".into(),
        x: Axis::new("clients", Scale::Log2, Unit::Number),
        y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
        series,
    });
}
