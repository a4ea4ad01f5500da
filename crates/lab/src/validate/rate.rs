//! Gates on rate: what a link of a rate carries (F1, V3, V11), what a window carries (V4), and what the emulator itself can
//! carry (V10, F2).

use std::time::Duration;

use super::Finding;
use super::bench::{Bench, Load, gbit, percent};
use super::disturbance::Disturbance;
use super::statistics::goodput_bits_per_second;
use crate::error::{Kind, Result};
use crate::flow::Flow;
use crate::record::lateness_max_us;

/// Of the rate of the wire, for 20 s after the ramp, whatever the number of streams: 9.5 of 10 Gbit/s.
const STREAMS_SHARE_MIN: f64 = 0.95;
const GOODPUT_PERCENT_MAX: f64 = 2.0;
/// One disturbance of the machine spoils a half second or two, and says nothing of the link.
const WINDOWS_SHARE_MIN: f64 = 0.9;
const WINDOW_PERCENT_MAX: f64 = 3.0;
const DISTANCE_SHARE_MIN: f64 = 0.88;
/// What continuous integration carries beside other work.
const QUICK_RATE_MAX: u64 = 1_000_000_000;
/// Beside the scenario's own.
const RATES: [u64; 2] = [1_000_000_000, 5_000_000_000];
const MIB: u32 = 1 << 20;
/// The reference machine of the design, which this is not: told, not judged by.
const REFERENCE: &str = "reference box: 30 Gbit/s, 0.6 CPU s/GB";

/// One stream at the scenario's own rate, or the highest that the depth allows; kept for the other gates.
pub fn load_at_own_rate(bench: &mut Bench) -> Result<()> {
    if bench.loaded.is_empty() {
        let rate = if bench.is_quick() { bench.rate.min(QUICK_RATE_MAX) } else { bench.rate };
        let load = load_at(bench, rate, 1, bench.seconds(5.0, 10.0))?;
        bench.loaded.push(load);
    }
    // The gate that asks measured there too, though in another's name.
    bench.backends = vec![bench.loaded[0].backend.clone()];
    bench.disturbed_earlier = bench.loaded.iter().fold(Disturbance::default(), |worst, load| worst.max(load.disturbed));
    Ok(())
}

pub fn streams(bench: &mut Bench) -> Result<Finding> {
    bench.loaded.clear();
    for streams in [1, 4, 16] {
        let load = load_at(bench, bench.rate, streams, bench.seconds(5.0, 20.0))?;
        bench.loaded.push(load);
    }
    let late_max = lateness_max_us(bench.round_trip);
    let is_good = |load: &Load| {
        load.received.bits_per_second() >= STREAMS_SHARE_MIN * bench.rate as f64 && load.lateness_us().2 <= late_max
    };
    let rates: Vec<_> =
        bench.loaded.iter().map(|load| format!("{:.2}", load.received.bits_per_second() / 1e9)).collect();
    let late: Vec<_> = bench.loaded.iter().map(|load| format!("{:.0}", load.lateness_us().2)).collect();
    Ok(Finding::new(
        bench.loaded.iter().all(is_good),
        format!("{} Gbit/s, lateness p99.9 {} us", rates.join(", "), late.join(", ")),
        format!("{} of wire", gbit(bench.rate as f64)),
        format!(">= {}; p99.9 <= {late_max:.0} us", gbit(STREAMS_SHARE_MIN * bench.rate as f64)),
    )
    .with(bench.loaded.iter().map(Load::line).collect()))
}

pub fn goodput(bench: &mut Bench) -> Result<Finding> {
    load_at_own_rate(bench)?;
    let mut loads = Vec::new();
    if !bench.is_quick() {
        let own_rate = bench.rate;
        for rate in RATES.into_iter().filter(|rate| *rate < own_rate) {
            loads.push((rate, load_at(bench, rate, 1, Duration::from_secs(5))?));
        }
    }
    let own_rate = if bench.is_quick() { bench.rate.min(QUICK_RATE_MAX) } else { bench.rate };
    loads.push((own_rate, bench.loaded[0].clone()));
    let (mut is_good, mut measured, mut expected) = (true, Vec::new(), Vec::new());
    for (rate, load) in &loads {
        let wanted = goodput_bits_per_second(*rate, load.received.mss_bytes());
        let deviation = percent(load.received.bits_per_second(), wanted);
        let windows = &load.received.windows_bits_per_second;
        let close = windows.iter().filter(|window| percent(**window, wanted).abs() <= GOODPUT_PERCENT_MAX).count();
        is_good &= deviation.abs() <= GOODPUT_PERCENT_MAX;
        // In continuous integration a half second tells of the scheduler.
        is_good &= bench.is_quick() || close as f64 >= WINDOWS_SHARE_MIN * windows.len() as f64;
        let rate = gbit(load.received.bits_per_second());
        measured.push(format!("{rate} ({deviation:+.2} %, {close} of {} half seconds)", windows.len()));
        expected.push(gbit(wanted));
    }
    let of = if bench.is_quick() { "mean" } else { "mean and nine of ten half seconds" };
    let tolerance = format!("{of} {GOODPUT_PERCENT_MAX} %");
    Ok(Finding::new(is_good, measured.join("; "), expected.join("; "), tolerance)
        .with(loads.iter().map(|(_, load)| load.line()).collect()))
}

pub fn window_law(bench: &mut Bench) -> Result<Finding> {
    let round_trip_s = bench.round_trip.as_secs_f64();
    let product = bench.rate as f64 / 8.0 * round_trip_s;
    // Next to one product, the window is as much the limit as the rate.
    let is_clear = |window: &u32| !(0.85..1.15).contains(&(f64::from(*window) / product));
    let windows: Vec<u32> = [1, 4, 16, 64].map(|n| n * MIB).into_iter().filter(is_clear).collect();
    if !windows.iter().any(|window| f64::from(*window) < product) {
        return Ok(Finding::not_applicable("the path holds less than 1 MiB, the smallest window of this gate"));
    }
    let (mut is_good, mut measured, mut expected, mut details) = (true, Vec::new(), Vec::new(), Vec::new());
    let lab = bench.clean(bench.round_trip, Some(bench.rate))?;
    for window in windows {
        let flow =
            Flow { window_bytes: Some(window), ..Flow::lasting(Duration::from_secs(3), bench.ramp(bench.round_trip)) };
        let load = Load::run(&lab, &flow)?;
        let of_rate = goodput_bits_per_second(bench.rate, load.received.mss_bytes());
        let wanted = (f64::from(window) * 8.0 / round_trip_s).min(of_rate);
        let deviation = percent(load.received.bits_per_second(), wanted);
        is_good &= deviation.abs() <= WINDOW_PERCENT_MAX;
        measured.push(format!("{} ({deviation:+.1} %)", gbit(load.received.bits_per_second())));
        expected.push(gbit(wanted));
        details.push(format!("window {} MiB: {}", window / MIB, load.line()));
    }
    let tolerance = format!("{WINDOW_PERCENT_MAX} %");
    Ok(Finding::new(is_good, measured.join("; "), expected.join("; "), tolerance).with(details))
}

pub fn forwarding(bench: &mut Bench) -> Result<Finding> {
    // A microsecond, because without any delay there would be a cable and nothing to measure.
    let lab = bench.clean(Duration::from_micros(2), None)?;
    let load = Load::run(&lab, &Flow::lasting(Duration::from_secs(5), Duration::from_secs(1)))?;
    Ok(Finding::new(
        load.received.bits_per_second() >= bench.rate as f64,
        format!("{}, {:.2} CPU s/GB", gbit(load.received.bits_per_second()), load.cpu_seconds_per_gigabyte()),
        REFERENCE,
        format!(">= the scenario's {}", gbit(bench.rate as f64)),
    )
    .with(vec![load.line()]))
}

pub fn distance(bench: &mut Bench) -> Result<Finding> {
    let mut loads = Vec::new();
    for milliseconds in [10, 100] {
        let round_trip = Duration::from_millis(milliseconds);
        let lab = bench.clean(round_trip, Some(bench.rate))?;
        let flow = Flow::lasting(Duration::from_secs(8), bench.ramp(Duration::from_millis(100)));
        loads.push(Load::run(&lab, &flow)?);
    }
    let [near, far] = [0, 1].map(|index| loads[index].received.bits_per_second());
    Ok(Finding::new(
        far >= DISTANCE_SHARE_MIN * near,
        format!("{} and {}: {:.3}", gbit(near), gbit(far), far / near),
        "1",
        format!(">= {DISTANCE_SHARE_MIN}"),
    )
    .with(loads.iter().map(Load::line).collect()))
}

/// Goes up until the emulator is late or the rate is not reached.
pub fn highest(bench: &mut Bench) -> Result<Finding> {
    let (mut best, mut details) = (None, Vec::new());
    let late_max = lateness_max_us(bench.round_trip);
    for rate in [10_u64, 12, 15, 20, 25].map(|gigabits| gigabits * 1_000_000_000) {
        let load = match load_at(bench, rate, 1, Duration::from_secs(5)) {
            // More in flight than this host's memory holds: the climb ends here.
            Err(error) if error.kind == Kind::Refused => break,
            load => load?,
        };
        let wanted = goodput_bits_per_second(rate, load.received.mss_bytes());
        let is_reached = load.received.bits_per_second() >= STREAMS_SHARE_MIN * wanted;
        let is_good = is_reached && load.lateness_us().2 <= late_max;
        details.push(load.line());
        if !is_good {
            break;
        }
        best = Some((rate, load.cpu_seconds_per_gigabyte()));
    }
    let measured =
        best.map_or("less than 10 Gbit/s".into(), |(rate, cpu)| format!("{}, {cpu:.2} CPU s/GB", gbit(rate as f64)));
    let is_good = best.is_some_and(|(rate, _)| rate >= bench.rate.min(10_000_000_000));
    let tolerance = format!(">= {}; p99.9 <= {late_max:.0} us", gbit(bench.rate.min(10_000_000_000) as f64));
    Ok(Finding::new(is_good, measured, "10, 12, 15, 20, 25 Gbit/s", tolerance).with(details))
}

fn load_at(bench: &mut Bench, rate: u64, streams: usize, duration: Duration) -> Result<Load> {
    let lab = bench.clean(bench.round_trip, Some(rate))?;
    let flow = Flow { streams, ..Flow::lasting(duration, bench.ramp(bench.round_trip)) };
    Load::run(&lab, &flow)
}
