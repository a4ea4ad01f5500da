//! The gate against the kernel's own emulator (V9), where there is one.

use std::time::Duration;

use super::Finding;
use super::bench::{Bench, Load, gbit, percent};
use super::datagrams::Burst;
use super::statistics::same_origin_probability;
use crate::error::Result;
use crate::flow::Flow;
use crate::scenario::Backend;

const RATE_MAX: u64 = 2_000_000_000;
const RATE_PERCENT_MAX: f64 = 5.0;
const PROBABILITY_MIN: f64 = 0.01;

pub fn agreement(bench: &mut Bench) -> Result<Finding> {
    if let Some(lack) = Backend::Netem.lacks() {
        return Ok(Finding::not_applicable(lack));
    }
    let other = [Backend::Nfqueue, Backend::Tun].into_iter().find(|backend| backend.lacks().is_none());
    let Some(other) = other else {
        return Ok(Finding::not_applicable("netem is the only back end here"));
    };
    let mut sides = Vec::new();
    for backend in [Backend::Netem, other] {
        let mut scenario = bench.scenario(bench.round_trip, Some(bench.rate.min(RATE_MAX)));
        scenario.backend = Some(backend);
        let lab = bench.up(scenario)?;
        let burst = Burst { count: 1000, bytes: 64, per_second: Some(1000.0) };
        let times = aligned(burst.send(&lab, "a", "b", Duration::from_secs(1))?.one_way_ms);
        let load = Load::run(&lab, &Flow::lasting(Duration::from_secs(6), bench.ramp(bench.round_trip)))?;
        sides.push((times, load));
    }
    let rates = [0, 1].map(|side: usize| sides[side].1.received.bits_per_second());
    let deviation = percent(rates[1], rates[0]);
    let probability = same_origin_probability(&sides[0].0, &sides[1].0);
    Ok(Finding::new(
        deviation.abs() <= RATE_PERCENT_MAX && probability > PROBABILITY_MIN,
        format!("{} ({deviation:+.1} %), delays of one origin with p = {probability:.3}", gbit(rates[1])),
        gbit(rates[0]),
        format!("{RATE_PERCENT_MAX} %; p > {PROBABILITY_MIN}"),
    )
    .with(sides.iter().map(|(_, load)| load.line()).collect()))
}

/// Around their median: the back ends may differ by a constant, which V1 limits, not in the shape.
fn aligned(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(0.0);
    times.into_iter().map(|time| time - median).collect()
}
