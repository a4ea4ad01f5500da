//! Laws fitted to measurements: what a few numbers say of a device at every setting.
//!
//! Errors are relative, so all fits are of logarithms: a point at 1 MB/s counts as much as one at 10 GB/s. Invariant: what is
//! returned is finite; points that determine nothing are refused. Not here: taking measurements, choosing between forms.

mod point;
mod least;

use crate::graph::Law;
use least::{Fitted, least_squares};
use point::check;
pub use point::{Point, Unfit};

/// Small files: each costs `a` seconds, its bytes pass at `b`, and how far the two overlap is `p` (1: not at all).
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SmallFiles {
    pub a_seconds: f64,
    pub b_bytes_per_second: f64,
    pub p: f64,
    /// Root of the mean squared error, relative, and the largest.
    pub rms: f64,
    pub max: f64,
}

/// The exponents that are tried: measurements do not tell finer ones apart.
const EXPONENT_STEP: f64 = 0.25;
const EXPONENT_MAX: f64 = 8.0;

impl SmallFiles {
    /// Seconds for a file of so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        joined(self.a_seconds, bytes / self.b_bytes_per_second, self.p)
    }

    /// Finds the exponent by trying, and the other two by least squares.
    pub fn fit(points: &[Point]) -> Result<SmallFiles, Unfit> {
        check(points, 3)?;
        let steps = ((EXPONENT_MAX - 1.0) / EXPONENT_STEP) as usize;
        let fits = (0..=steps).map(|step| Self::with_exponent(points, 1.0 + EXPONENT_STEP * step as f64));
        Ok(fits.min_by(|a, b| a.rms.total_cmp(&b.rms)).expect("more than one exponent"))
    }

    pub fn with_exponent(points: &[Point], p: f64) -> SmallFiles {
        let seconds = |point: &Point| point.at / point.bytes_per_second;
        let a = points.iter().map(seconds).fold(f64::INFINITY, f64::min);
        let b = points.iter().map(|point| point.bytes_per_second).fold(0.0, f64::max);
        let predicted = |logs: &[f64], at: f64| at / joined(logs[0].exp(), at / logs[1].exp(), p);
        let Fitted { parameters, rms, max } = least_squares(points, vec![a.ln(), b.ln()], predicted);
        SmallFiles { a_seconds: parameters[0].exp(), b_bytes_per_second: parameters[1].exp(), p, rms, max }
    }
}

/// Two times that overlap in part: the longer of them where `p` is large, their sum where it is 1.
fn joined(a: f64, b: f64, p: f64) -> f64 {
    let longer = a.max(b);
    if longer <= 0.0 {
        return 0.0;
    }
    longer * ((a / longer).powf(p) + (b / longer).powf(p)).powf(1.0 / p)
}

/// A law with its errors.
#[derive(Clone, PartialEq, Debug)]
pub struct FittedLaw {
    pub law: Law,
    pub rms: f64,
    pub max: f64,
    /// What the points leave open, in a sentence.
    pub doubt: Option<&'static str>,
}

/// F1, `beta / (n + alpha)`: from the straight line of 1/rate over n, then by least squares.
pub fn falling(points: &[Point], knob: &str) -> Result<FittedLaw, Unfit> {
    check(points, 2)?;
    let (slope, at_zero) = inverse_line(points);
    if slope <= 0.0 {
        return Err(Unfit::OtherShape("the rates do not fall with n: F1 describes only what falls; try F2"));
    }
    let least = points.iter().map(|point| point.at).fold(f64::INFINITY, f64::min);
    // Above -1 only if there is a point at 1; in general, so that every point has a rate.
    let above = |log: f64| log.exp() - least * (1.0 - 1e-9);
    let start = vec![(1.0 / slope).ln(), (at_zero / slope + least).max(1e-3).ln()];
    let predicted = |logs: &[f64], n: f64| logs[0].exp() / (n + above(logs[1]));
    let Fitted { parameters, rms, max } = least_squares(points, start, predicted);
    let (beta, alpha) = (parameters[0].exp(), above(parameters[1]));
    Ok(FittedLaw { law: Law::F1 { beta, alpha, knob: knob.to_owned(), scale: 1.0 }, rms, max, doubt: None })
}

/// The line of 1/rate over n, weighted so that errors of rates count relatively: slope and value at zero.
fn inverse_line(points: &[Point]) -> (f64, f64) {
    let (mut sum, mut x, mut y, mut xx, mut xy) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let scale = points.iter().map(|point| point.bytes_per_second).fold(0.0, f64::max);
    for point in points {
        let (inverse, weight) = (scale / point.bytes_per_second, (point.bytes_per_second / scale).powi(2));
        sum += weight;
        x += weight * point.at;
        y += weight * inverse;
        xx += weight * point.at * point.at;
        xy += weight * point.at * inverse;
    }
    let slope = (sum * xy - x * y) / (sum * xx - x * x);
    (slope / scale, (y - slope * x) / sum / scale)
}

/// F2, the general curve: from several starts, because it has more than one valley.
pub fn rising(points: &[Point], knob: &str) -> Result<FittedLaw, Unfit> {
    check(points, 3)?;
    let predicted = |p: &[f64], n: f64| {
        let (sigma, kappa) = (p[1].max(0.0), p[2].max(0.0));
        p[0].exp() * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0)).max(1e-9)
    };
    let first = points.iter().min_by(|a, b| a.at.total_cmp(&b.at)).expect("checked");
    let lambda = (first.bytes_per_second / first.at).ln();
    let starts = [(0.01, 1e-4), (0.1, 1e-3), (0.5, 1e-2), (0.9, 0.0), (0.0, 1e-2)];
    let fits = starts.map(|(sigma, kappa)| least_squares(points, vec![lambda, sigma, kappa], predicted));
    let Fitted { parameters, rms, max } = fits.into_iter().min_by(|a, b| a.rms.total_cmp(&b.rms)).expect("five starts");
    let [sigma, kappa] = [parameters[1], parameters[2]].map(|value| value.max(0.0));
    let law = Law::F2 { lambda: parameters[0].exp(), sigma, kappa, knob: knob.to_owned(), scale: 1.0 };
    let past_peak = kappa > 0.0 && points.iter().any(|point| point.at >= ((1.0 - sigma).max(0.0) / kappa).sqrt());
    let doubt = (!past_peak).then_some("no point lies behind the peak: how the rate falls there is a guess");
    Ok(FittedLaw { law, rms, max, doubt })
}

/// F4, `min(nic, theta * n)`: the bend is tried at every place between two points.
pub fn bent(points: &[Point], knob: &str) -> Result<FittedLaw, Unfit> {
    check(points, 2)?;
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mean = |values: &[f64]| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp();
    let slopes: Vec<f64> = sorted.iter().map(|point| point.bytes_per_second / point.at).collect();
    let levels: Vec<f64> = sorted.iter().map(|point| point.bytes_per_second).collect();
    // Where two bends explain the points alike, the later one, which claims no level.
    let fits = (1..=sorted.len()).rev().map(|bend| {
        let theta = mean(&slopes[..bend]);
        let nic =
            if bend < sorted.len() { mean(&levels[bend..]) } else { levels[bend - 1].max(theta * sorted[bend - 1].at) };
        let error = |point: &Point| (nic.min(theta * point.at) / point.bytes_per_second).ln();
        (least::errors(sorted.iter().map(error)), nic, theta, bend == sorted.len())
    });
    let rough = |rms: f64| (rms * 1e9).round();
    let best = fits.min_by(|a, b| rough(a.0.0).total_cmp(&rough(b.0.0))).expect("two points or more");
    let ((rms, max), nic, theta, has_no_level) = best;
    let doubt =
        has_no_level.then_some("the rate rises up to the last point: the interface may carry more than `nic` says");
    Ok(FittedLaw { law: Law::F4 { nic, theta, knob: knob.to_owned() }, rms, max, doubt })
}

#[cfg(test)]
mod tests;
