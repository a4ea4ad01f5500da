//! S2 figures 1 to 4: the rate over time of every installed tool, counted at the interface of the sending host.

use std::ffi::OsString;
use std::time::Duration;

use super::context::Context;
use super::judge::{Check, mean, shown};
use super::paths::{OURS, rate_of};
use crate::error::Result;
use crate::plot::{Axis, Kind, Plot, Point, Scale, Series, Unit};
use crate::sweep::{Axes, Figures, mean_and_deviation, series};

const GBIT: u64 = 1_000_000_000;
const RIVALS: [&str; 4] = ["globus-url-copy", "rsync", "xrdcp", "rclone"];
/// Single-thread: these have one stream, and ours is told to have one; globus-url-copy has several whatever one asks of its
/// adapter.
const RIVALS_SINGLE: [&str; 2] = ["rsync", "scp"];
/// What a run is sized for.
const RUN_SECONDS: f64 = 8.0;
const FILE_BYTES: u64 = 64 << 20;
const LOCAL: Duration = Duration::from_micros(400);
const WAN: Duration = Duration::from_millis(75);

/// Figure 1: a memory-to-memory test with 16 threads before anything else.
pub fn stability(context: &mut Context) -> Result<()> {
    let axes = Axes { rates: context.rate(GBIT), round_trips: vec![WAN], ..Axes::default() };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.variants = Vec::new();
        options.ceiling_streams = vec![16];
        options.series_interval = Some(series::INTERVAL);
        options.run_seconds = 4.0;
    })?;
    let condition = figures.conditions().first().map(|condition| (*condition).to_owned()).unwrap_or_default();
    let kept = kept_series(context, &condition, "ceilings", "flow, 16 streams");
    let inner: Vec<f64> = steady(&kept, 2.0).iter().map(|point| point.1).collect();
    let (average, deviation) = mean_and_deviation(&inner);
    let variation = (inner.len() > 1).then(|| deviation / average);
    context.check(Check::at_most("coefficient of variation of 16 streams after the ramp", 0.05, variation));
    draw(context, "Memory to memory, 16 streams, 75 ms", vec![("flow, 16 streams".into(), Kind::Measured, kept)]);
    Ok(())
}

/// Figure 2.
pub fn single_local(context: &mut Context) -> Result<()> {
    let (figures, tools) = race(context, LOCAL, &["--streams=1"], &RIVALS_SINGLE)?;
    let ceiling = figures.ceilings.values().copied().next();
    let eff = rate(&figures, OURS).zip(ceiling).map(|(rate, ceiling)| rate / ceiling);
    context.check(Check::at_least("one stream below 1 ms / TCP alone", 0.95, eff));
    compare(context, &figures, &tools, false);
    finish(context, "One stream, below 1 ms", &figures, &tools);
    Ok(())
}

/// Figure 3.
pub fn single_far(context: &mut Context) -> Result<()> {
    let (figures, tools) = race(context, WAN, &["--streams=1"], &RIVALS_SINGLE)?;
    compare(context, &figures, &tools, true);
    finish(context, "One stream, 75 ms", &figures, &tools);
    Ok(())
}

/// Figure 4.
pub fn multiple_far(context: &mut Context) -> Result<()> {
    let (figures, tools) = race(context, WAN, &[], &RIVALS)?;
    compare(context, &figures, &tools, true);
    let link = context.rate(GBIT)[0].unwrap_or(GBIT) as f64 / 1e9;
    let utilised = rate(&figures, OURS).map(|rate| rate / link);
    let claim = "share of the link with several streams (published: NDN 0.158, FDT 0.152, WDT 0.072 of 100 Gbit/s)";
    context.check(Check::at_least(claim, 0.158, utilised));
    finish(context, "Several streams, 75 ms", &figures, &tools);
    Ok(())
}

/// `flags` are for our `cp`; rivals have as many streams as they choose.
fn race(context: &mut Context, rtt: Duration, flags: &[&str], wanted: &[&str]) -> Result<(Figures, Vec<String>)> {
    let rivals = context.rivals(wanted);
    let (sets, rates, round_trips) = (vec![set(context)], context.rate(GBIT), vec![rtt]);
    let axes = Axes { sets, rates, round_trips, ..Axes::default() };
    let figures = context.sweep(None, 1.0, axes, |options| {
        options.rivals = rivals.clone();
        options.variants.iter_mut().for_each(|variant| variant.cp_args.extend(flags.iter().map(OsString::from)));
        options.series_interval = Some(series::INTERVAL);
    })?;
    context.note("FDT, WDT and NDN are not packaged here; the tools that are stand in for them");
    Ok((figures, std::iter::once(OURS.to_owned()).chain(rivals).collect()))
}

/// The same for all tools, at any rate of the link.
fn set(context: &Context) -> String {
    let bits_per_second = context.rate(GBIT)[0].unwrap_or(GBIT);
    let files = (bits_per_second as f64 * RUN_SECONDS / 8.0 / FILE_BYTES as f64).round().max(1.0);
    format!("{files}x{}", crate::sweep::shown_size(FILE_BYTES))
}

fn rate(figures: &Figures, tool: &str) -> Option<f64> {
    figures.conditions().first().and_then(|condition| rate_of(figures, condition, tool))
}

fn compare(context: &mut Context, figures: &Figures, tools: &[String], is_judged: bool) {
    for rival in &tools[1..] {
        let ratio = rate(figures, OURS).zip(rate(figures, rival)).map(|(own, other)| own / other);
        let claim = format!("rate of ours (TLS, digests) / of {rival}");
        match is_judged {
            true => context.check(Check::at_least(claim, 1.0, ratio)),
            false => context.check(Check::told(claim, "", ratio.map_or("no counted run".into(), shown))),
        }
    }
}

fn finish(context: &mut Context, title: &str, figures: &Figures, tools: &[String]) {
    let condition = figures.conditions().first().map(|condition| (*condition).to_owned()).unwrap_or_default();
    let (set, mut curves) = (set(context), Vec::new());
    for (index, tool) in tools.iter().enumerate() {
        let kept = kept_series(context, &condition, &set, tool);
        let seconds = stalled_seconds(&kept);
        context.check(Check::told(format!("{tool}: seconds below a tenth of its own mean"), "", shown(seconds)));
        curves.push((tool.clone(), if index == 0 { Kind::Measured } else { Kind::Rival }, kept));
    }
    draw(context, title, curves);
}

/// Of the first counted round.
fn kept_series(context: &Context, condition: &str, set: &str, tool: &str) -> series::Series {
    series::read(&series::path(&context.dir, condition, set, tool, 1))
}

fn steady(series: &series::Series, from_seconds: f64) -> Vec<(f64, f64)> {
    let last = series.len().saturating_sub(1);
    series.iter().take(last).filter(|point| point.0 >= from_seconds).copied().collect()
}

fn stalled_seconds(series: &series::Series) -> f64 {
    let Some(average) = mean(&series.iter().map(|point| point.1).collect::<Vec<_>>()) else { return 0.0 };
    let step = series.first().map_or(0.0, |point| point.0);
    series.iter().filter(|point| point.1 < average / 10.0).count() as f64 * step
}

fn draw(context: &mut Context, title: &str, curves: Vec<(String, Kind, series::Series)>) {
    let points = |series: &series::Series| series.iter().map(|(at, rate)| Point::at(*at, *rate)).collect();
    let series =
        curves.iter().map(|(name, kind, kept)| Series { name: name.clone(), kind: *kind, points: points(kept) });
    let plot = Plot {
        name: "over-time".into(),
        title: title.into(),
        note: "Bytes that left the sending host's interface, headers and retransmissions included.".into(),
        x: Axis::new("seconds", Scale::Linear, Unit::Number),
        y: Axis::new("Gbit/s", Scale::Linear, Unit::Number),
        series: series.collect(),
    };
    context.plot(plot);
}
