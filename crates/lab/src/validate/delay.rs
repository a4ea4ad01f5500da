//! Gates on time: round trips (V1) and how late the emulator releases packets (V2).

use std::time::Duration;

use super::Finding;
use super::bench::{Bench, Load};
use super::rate;
use crate::error::Result;
use crate::flow::Flow;
use crate::laboratory::Lab;
use crate::probe::{RoundTrips, round_trips};
use crate::record::lateness_max_us;

const INTERVAL: Duration = Duration::from_millis(5);
/// Shares of the rate at which round trips are taken beside a paced stream.
const LOADS: [f64; 2] = [0.5, 0.95];
/// Beyond what is expected, of an idle link.
const IDLE_P99_MAX_US: f64 = 1000.0;
const P50_MAX_US: f64 = 50.0;
const P99_MAX_US: f64 = 300.0;

pub fn round_trip(bench: &mut Bench) -> Result<Finding> {
    let lab = bench.clean(bench.round_trip, Some(bench.rate))?;
    let count = if bench.is_quick() { 200 } else { 2000 };
    let idle = round_trips(&lab, "a", "b", count, INTERVAL)?;
    let mut measured = vec![("idle".to_owned(), idle)];
    if !bench.is_quick() {
        for load in LOADS {
            measured.push((format!("{:.0} % load", 100.0 * load), beside_load(bench, &lab, load)?));
        }
    }
    // Held against what was asked for, not against what the laboratory says of itself.
    for (_, probe) in &mut measured {
        probe.expected_us = bench.round_trip.as_secs_f64() * 1e6;
    }
    let idle = measured[0].1.clone();
    // Two hundred pings have their 99th percentile in two of them: not for continuous integration.
    let is_p99_good = bench.is_quick() || idle.p99_us - idle.expected_us < IDLE_P99_MAX_US;
    let is_good = is_p99_good && measured.iter().all(|(_, probe)| probe.is_as_expected());
    let medians: Vec<_> = measured.iter().map(|(of, probe)| format!("{of} {:.3}", probe.median_us / 1e3)).collect();
    Ok(Finding::new(
        is_good,
        format!("median {} ms", medians.join(", ")),
        format!("{:.3} ms", idle.expected_us / 1e3),
        format!("{:.2} ms{}", idle.tolerance_us() / 1e3, if bench.is_quick() { "" } else { "; idle p99 < +1 ms" }),
    )
    .with(measured.iter().map(|(of, probe)| line(of, probe)).collect()))
}

pub fn lateness(bench: &mut Bench) -> Result<Finding> {
    rate::load_at_own_rate(bench)?;
    let worst = |quantile: fn(&Load) -> f64| bench.loaded.iter().map(quantile).fold(0.0, f64::max);
    let (p50, p99) = (worst(|load| load.lateness_us().0), worst(|load| load.lateness_us().1));
    let p999 = worst(|load| load.lateness_us().2);
    if bench.loaded.iter().all(|load| load.lateness.samples == 0) {
        return Ok(Finding::not_applicable("the netem back end does not tell when it releases"));
    }
    let p999_max = lateness_max_us(bench.round_trip);
    let is_good = p50 <= P50_MAX_US && p99 <= P99_MAX_US && p999 <= p999_max;
    Ok(Finding::new(
        is_good,
        format!("p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0} us"),
        "0 us",
        format!("p50 <= {P50_MAX_US:.0}, p99 <= {P99_MAX_US:.0}, p99.9 <= {p999_max:.0} us"),
    )
    .with(bench.loaded.iter().map(Load::line).collect()))
}

/// Round trips while one stream paced at a share of the rate is under way.
fn beside_load(bench: &Bench, lab: &Lab, share: f64) -> Result<RoundTrips> {
    let mut probe = Ok(RoundTrips::default());
    let pacing_bits_per_second = Some((bench.rate as f64 * share) as u64);
    let flow = Flow { pacing_bits_per_second, ..Flow::lasting(Duration::ZERO, bench.ramp(bench.round_trip)) };
    flow.run(lab, "a", "b", || probe = round_trips(lab, "a", "b", 1000, INTERVAL))?;
    probe
}

fn line(of: &str, probe: &RoundTrips) -> String {
    format!(
        "{of}: min {:.3}, median {:.3}, p99 {:.3}, max {:.3} ms; {} of {} answered",
        probe.min_us / 1e3,
        probe.median_us / 1e3,
        probe.p99_us / 1e3,
        probe.max_us / 1e3,
        probe.received,
        probe.sent
    )
}
