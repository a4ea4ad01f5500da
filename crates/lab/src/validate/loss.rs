//! The gate on the loss process (V7): as many losses as asked for, in the order of chance, in bursts of the length asked for.

use std::time::Duration;

use super::Finding;
use super::bench::Bench;
use super::datagrams::Burst;
use super::statistics::{binomial_99, burst_mean, looks_like_chance, runs_deviation};
use crate::error::Result;
use emulator::error_process::ErrorProcess;
use emulator::random::Random;

const LOSS: f64 = 0.01;
const BURST_LOSS: f64 = 0.05;
const BURST_SEGMENTS: f64 = 5.0;
const BURST_PERCENT_MAX: f64 = 10.0;
const PURE_SEGMENTS: u32 = 1_000_000;
const PER_SECOND: f64 = 30_000.0;

pub fn process(bench: &mut Bench) -> Result<Finding> {
    let pure = pure(bench.scenario(Duration::ZERO, None).seed);
    let (single, single_note) = on_packets(bench, LOSS, 1.0)?;
    let (bursts, burst_note) = on_packets(bench, BURST_LOSS, BURST_SEGMENTS)?;
    let judged = [judge("model", &pure), judge("packets", &single)];
    let mean = burst_mean(&bursts).unwrap_or(0.0);
    let is_mean_good = (mean / BURST_SEGMENTS - 1.0).abs() * 100.0 <= BURST_PERCENT_MAX;
    let is_good = judged.iter().all(|(is_good, _)| *is_good) && is_mean_good && single_note.0 && burst_note.0;
    let (low, high) = binomial_99(single.len() as u64, LOSS);
    let lost = single.iter().filter(|lost| **lost).count();
    Ok(Finding::new(
        is_good,
        format!(
            "{lost} of {} lost, runs {:+.2} sigma, bursts of {mean:.2}",
            single.len(),
            runs_deviation(single.iter().copied()).unwrap_or(f64::NAN)
        ),
        format!("{:.0}, 0 sigma, {BURST_SEGMENTS:.0}", LOSS * single.len() as f64),
        format!("{low} to {high} (99 %), 2.58 sigma, {BURST_PERCENT_MAX} %"),
    )
    .with(judged.into_iter().map(|(_, text)| text).chain([single_note.1, burst_note.1]).collect()))
}

/// The process alone, without packets.
fn pure(seed: u64) -> Vec<bool> {
    let mut hit = Vec::new();
    ErrorProcess::new(Random::named(seed, "validate"), LOSS, 1.0).draw(PURE_SEGMENTS, &mut hit);
    let mut lost = vec![false; PURE_SEGMENTS as usize];
    hit.into_iter().for_each(|at| lost[at as usize] = true);
    lost
}

/// Which of many datagrams did not arrive, and whether that is what the emulator counts.
fn on_packets(bench: &mut Bench, loss: f64, burst_segments: f64) -> Result<(Vec<bool>, (bool, String))> {
    let mut scenario = bench.scenario(Duration::from_millis(2), None);
    // One direction only, so that no answer is lost.
    scenario.links[0].directions[0].loss = loss;
    scenario.links[0].directions[0].loss_burst_segments = burst_segments;
    let lab = bench.up(scenario)?;
    let burst = Burst { count: 60_000, bytes: 64, per_second: Some(PER_SECOND) };
    let arrivals = burst.send(&lab, "a", "b", Duration::from_millis(500))?;
    let counts = lab.snapshot().and_then(|snapshot| snapshot.counts.first().copied()).unwrap_or_default();
    let lost: Vec<bool> = arrivals.arrived.iter().map(|arrived| !arrived).collect();
    let seen = lost.iter().filter(|lost| **lost).count() as u64;
    let note = format!(
        "loss {} %: {seen} did not arrive, the emulator asked for {} and made {}",
        loss * 100.0,
        counts.lost_asked,
        counts.lost_made
    );
    Ok((lost, (seen == counts.lost_made, note)))
}

fn judge(of: &str, lost: &[bool]) -> (bool, String) {
    let (low, high) = binomial_99(lost.len() as u64, LOSS);
    let count = lost.iter().filter(|lost| **lost).count() as u64;
    let deviation = runs_deviation(lost.iter().copied()).unwrap_or(f64::NAN);
    let is_good = (low..=high).contains(&count) && looks_like_chance(deviation);
    (is_good, format!("{of}: {count} of {} ({low} to {high}), runs {deviation:+.2} sigma", lost.len()))
}
