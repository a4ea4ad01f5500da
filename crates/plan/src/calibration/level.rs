//! What a part of the way gives with so many streams, by the runs of a calibration.
//!
//! Not here: what comes of all parts together (`predict`).

use super::written::{Calibration, Part, Run, median};

/// The median at so many streams; between two measured numbers a straight line, beyond them the nearest. Where a run began with that number and
/// went on as it liked, it stands for it: so does what follows a plan.
pub fn level(calibration: &Calibration, part: Part, streams: u32, amount: impl Fn(&Run) -> f64) -> Option<f64> {
    let at = settings(calibration.runs(part));
    let of = |n: u32| {
        let at = |is_free: bool| {
            let runs = calibration.runs(part).iter().filter(|run| (run.streams, run.is_free) == (n, is_free));
            median(runs.map(|run| amount(run) / calibration.steady_seconds(part, run)).collect())
        };
        at(true).or_else(|| at(false))
    };
    let above = at.iter().position(|n| *n >= streams).unwrap_or(at.len().checked_sub(1)?);
    let (high, low) = (at[above], at[above.saturating_sub(1)]);
    if high <= streams || low >= streams || high == low {
        return of(if low >= streams { low } else { high });
    }
    let share = f64::from(streams - low) / f64::from(high - low);
    Some(of(low)? * (1.0 - share) + of(high)? * share)
}

/// The numbers of streams that runs were made with.
pub fn settings(runs: &[Run]) -> Vec<u32> {
    let mut settings: Vec<u32> = runs.iter().map(|run| run.streams).collect();
    settings.sort_unstable();
    settings.dedup();
    settings
}
