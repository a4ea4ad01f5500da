//! What a part of the way gives with so many streams, by the runs of a calibration.
//!
//! Not here: what comes of all parts together (`predict`).

use super::written::{Calibration, Part, Run, bytes_of, median};

/// From this share of the network's rate on, writing behind it is limited by it.
pub const AS_FAST: f64 = 0.85;

/// The median at so many streams; between two measured numbers a straight line, beyond them the nearest.
pub fn level(calibration: &Calibration, part: Part, streams: u32, amount: impl Fn(&Run) -> f64) -> Option<f64> {
    let runs = calibration.runs(part);
    let of =
        |n: u32| median(standing_for(runs, n).map(|run| amount(run) / calibration.steady_seconds(part, run)).collect());
    let (low, high) = around(runs, streams)?;
    if low == high {
        return of(low);
    }
    let share = f64::from(streams - low) / f64::from(high - low);
    Some(of(low)? * (1.0 - share) + of(high)? * share)
}

/// How many runs that rests on: of two numbers, those of the one with fewer.
pub fn runs_behind(runs: &[Run], streams: u32) -> usize {
    let count = |n: u32| standing_for(runs, n).count();
    around(runs, streams).map_or(0, |(low, high)| count(low).min(count(high)))
}

/// The runs that tell what a number gives: where some began with it and were free to go on as they liked, those. So is what follows a plan.
fn standing_for(runs: &[Run], streams: u32) -> impl Iterator<Item = &Run> {
    let has_free = runs.iter().any(|run| run.streams == streams && run.is_free);
    runs.iter().filter(move |run| run.streams == streams && run.is_free == has_free)
}

/// The measured numbers below and above one; the same twice where it was measured itself, or lies beyond them.
fn around(runs: &[Run], streams: u32) -> Option<(u32, u32)> {
    let at = settings(runs);
    let above = at.iter().position(|n| *n >= streams).unwrap_or(at.len().checked_sub(1)?);
    let (low, high) = (at[above.saturating_sub(1)], at[above]);
    Some(if high <= streams { (high, high) } else { (low, if low >= streams { low } else { high }) })
}

/// The numbers of streams that runs were made with.
pub fn settings(runs: &[Run]) -> Vec<u32> {
    let mut settings: Vec<u32> = runs.iter().map(|run| run.streams).collect();
    settings.sort_unstable();
    settings.dedup();
    settings
}

/// Whether writing is as fast as the network before it lets it be. Asked once, with the most streams that writing was asked to use, where
/// storage shows best: by the numbers of single streams it would be a matter of chance. What a copy without a plan begins with may be more
/// than is good for either.
pub fn is_behind(calibration: &Calibration) -> bool {
    let Some(most) = most_asked(calibration) else { return false };
    let [network, write] = [Part::Network, Part::Write].map(|part| level(calibration, part, most, bytes_of));
    network.zip(write).is_some_and(|(network, write)| write >= AS_FAST * network)
}

/// The most streams that writing was asked to use.
pub fn most_asked(calibration: &Calibration) -> Option<u32> {
    calibration.runs(Part::Write).iter().filter(|run| !run.is_free).map(|run| run.streams).max()
}
