//! How much one device carries, by the number of streams, workers or connections on it.
//!
//! Owns the forms F1 to F5 and their values. Invariant: a value is never negative and never undefined, whatever the number;
//! nothing is carried where nothing works. Not here: which number is chosen (`solve`), what fits measurements (`fit`).

use super::problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A law as it is written in a model: rates in bytes a second, `knob` the setting it depends on, `scale` how many streams
/// one step of the setting puts on the device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "form", deny_unknown_fields)]
pub enum Law {
    #[serde(rename = "const")]
    Constant { value: f64 },
    /// Falls with every stream: rotating disks, channels that several streams share.
    F1 {
        beta: f64,
        alpha: f64,
        knob: String,
        #[serde(default = "one")]
        scale: f64,
    },
    /// Rises, and falls behind its peak: flash, parallel file systems, pools of workers.
    F2 {
        lambda: f64,
        sigma: f64,
        kappa: f64,
        knob: String,
        #[serde(default = "one")]
        scale: f64,
    },
    /// So much for each stream: a stage that one stream limits.
    F3 {
        a: f64,
        b: f64,
        knob: String,
        #[serde(default = "one")]
        scale: f64,
    },
    /// A network interface, and what one connection reaches on the path.
    F4 { nic: f64, theta: f64, knob: String },
    /// A table, with a curve through its points that overshoots none of them; level beyond both ends.
    F5 { points: BTreeMap<String, f64>, knob: String },
}

fn one() -> f64 {
    1.0
}

impl Law {
    /// The setting that it depends on.
    pub fn knob(&self) -> Option<&str> {
        match self {
            Law::Constant { .. } => None,
            Law::F1 { knob, .. }
            | Law::F2 { knob, .. }
            | Law::F3 { knob, .. }
            | Law::F4 { knob, .. }
            | Law::F5 { knob, .. } => Some(knob),
        }
    }

    /// Bytes a second with the setting at `n`.
    pub fn value(&self, n: u32) -> f64 {
        let steps = f64::from(n);
        let value = match self {
            Law::Constant { value } => return *value,
            _ if n == 0 => 0.0,
            Law::F1 { beta, alpha, scale, .. } => beta / (scale * steps + alpha),
            Law::F2 { lambda, sigma, kappa, scale, .. } => {
                let n = scale * steps;
                lambda * n / (1.0 + sigma * (n - 1.0) + kappa * n * (n - 1.0))
            }
            Law::F3 { a, b, scale, .. } => a * scale * steps + b,
            Law::F4 { nic, theta, .. } => nic.min(theta * steps),
            Law::F5 { points, .. } => curve(points, steps),
        };
        if value.is_finite() { value.max(0.0) } else { 0.0 }
    }

    /// Makes every value so many times as large.
    pub fn multiply(&mut self, factor: f64) {
        match self {
            Law::Constant { value } => *value *= factor,
            Law::F1 { beta, .. } => *beta *= factor,
            Law::F2 { lambda, .. } => *lambda *= factor,
            Law::F3 { a, b, .. } => (*a, *b) = (*a * factor, *b * factor),
            Law::F4 { nic, theta, .. } => (*nic, *theta) = (*nic * factor, *theta * factor),
            Law::F5 { points, .. } => points.values_mut().for_each(|rate| *rate *= factor),
        }
    }

    /// Refuses what is no rate, and what carries nothing at any number.
    pub fn check(&self, edge: &str) -> Result<(), Problem> {
        let wrong = |what: String, cure: &'static str| Err(Problem::new(format!("edge {edge:?}"), what, cure));
        let numbers: &[(&str, f64, bool)] = match self {
            Law::Constant { value } => &[("value", *value, true)],
            Law::F1 { beta, alpha, scale, .. } => {
                &[("beta", *beta, true), ("alpha", alpha + scale, true), ("scale", *scale, true)]
            }
            Law::F2 { lambda, sigma, kappa, scale, .. } => &[
                ("lambda", *lambda, true),
                ("sigma", *sigma, false),
                ("kappa", *kappa, false),
                ("scale", *scale, true),
            ],
            Law::F3 { a, b, scale, .. } => {
                if !b.is_finite() || a + b <= 0.0 {
                    return wrong(
                        format!("a and b of F3 leave nothing for one stream ({a} + {b})"),
                        "give a rate above 0",
                    );
                }
                &[("a", *a, false), ("scale", *scale, true)]
            }
            Law::F4 { nic, theta, .. } => &[("nic", *nic, true), ("theta", *theta, true)],
            Law::F5 { points, .. } => return check_points(edge, points),
        };
        for (key, number, is_above_zero) in numbers {
            let is_good = number.is_finite() && if *is_above_zero { *number > 0.0 } else { *number >= 0.0 };
            if is_good {
                continue;
            }
            let cure = "leave out an edge that carries nothing; leave out `capacity` where nothing limits";
            let least = if *is_above_zero { "above 0" } else { "0 or more" };
            return wrong(format!("{key} is {number}; it must be {least}"), cure);
        }
        Ok(())
    }
}

fn check_points(edge: &str, points: &BTreeMap<String, f64>) -> Result<(), Problem> {
    let wrong = |what: String| {
        Err(Problem::new(format!("edge {edge:?}"), what, "write points as {\"1\": BYTES_PER_SECOND, \"2\": ...}"))
    };
    if points.is_empty() {
        return wrong("F5 has no points".into());
    }
    let mut known = std::collections::BTreeSet::new();
    for (n, rate) in points {
        let Ok(at) = n.parse::<u32>() else {
            return wrong(format!("the point {n:?} of F5 is at no whole number"));
        };
        if !known.insert(at) {
            return wrong(format!("F5 has two points at {at}"));
        }
        if !rate.is_finite() || *rate < 0.0 {
            return wrong(format!("the point {n:?} of F5 is {rate}, which is no rate"));
        }
    }
    if points.values().all(|rate| *rate == 0.0) {
        return wrong("every point of F5 is 0: nothing could pass".into());
    }
    Ok(())
}

/// The monotone cubic of Fritsch and Carlson through the points (PCHIP), at `x`.
fn curve(points: &BTreeMap<String, f64>, x: f64) -> f64 {
    let mut at: Vec<(f64, f64)> =
        points.iter().filter_map(|(n, rate)| Some((f64::from(n.parse::<u32>().ok()?), *rate))).collect();
    at.sort_by(|a, b| a.0.total_cmp(&b.0));
    at.dedup_by(|a, b| a.0 == b.0);
    let (Some(first), Some(last)) = (at.first(), at.last()) else { return 0.0 };
    if x <= first.0 {
        return first.1;
    }
    if x >= last.0 {
        return last.1;
    }
    let right = at.partition_point(|(n, _)| *n < x);
    let (a, b) = (at[right - 1], at[right]);
    let width = b.0 - a.0;
    let (slope_a, slope_b) = (slope(&at, right - 1), slope(&at, right));
    let t = (x - a.0) / width;
    let (t2, t3) = (t * t, t * t * t);
    (2.0 * t3 - 3.0 * t2 + 1.0) * a.1
        + (t3 - 2.0 * t2 + t) * width * slope_a
        + (3.0 * t2 - 2.0 * t3) * b.1
        + (t3 - t2) * width * slope_b
}

/// The curve's slope at a point: none at a peak and at the ends of the table, the weighted harmonic mean elsewhere.
fn slope(at: &[(f64, f64)], i: usize) -> f64 {
    let secant = |i: usize| (at[i + 1].1 - at[i].1) / (at[i + 1].0 - at[i].0);
    if i == 0 || i + 1 == at.len() {
        return if at.len() == 2 { secant(0) } else { 0.0 };
    }
    let (left, right) = (secant(i - 1), secant(i));
    if left * right <= 0.0 {
        return 0.0;
    }
    let (width_left, width_right) = (at[i].0 - at[i - 1].0, at[i + 1].0 - at[i].0);
    let (w1, w2) = (2.0 * width_right + width_left, width_right + 2.0 * width_left);
    (w1 + w2) / (w1 / left + w2 / right)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(points: &[(u32, f64)]) -> Law {
        Law::F5 { points: points.iter().map(|(n, rate)| (n.to_string(), *rate)).collect(), knob: "n".into() }
    }

    #[test]
    fn a_table_goes_through_its_points_and_overshoots_none() {
        let law = table(&[(1, 100.0), (2, 180.0), (4, 300.0), (8, 290.0), (16, 120.0)]);
        assert_eq!([1, 2, 4, 8, 16].map(|n| law.value(n)), [100.0, 180.0, 300.0, 290.0, 120.0]);
        assert_eq!((law.value(40), law.value(0)), (120.0, 0.0));
        assert!((180.0..300.0).contains(&law.value(3)));
        assert!((5..8).all(|n| (290.0..=300.0).contains(&law.value(n))), "no peak between the points");
        assert!((8..16).all(|n| law.value(n) >= law.value(n + 1)));
    }

    #[test]
    fn the_general_curve_peaks_where_its_formula_says() {
        let law = Law::F2 { lambda: 500e6, sigma: 0.02, kappa: 0.005, knob: "n".into(), scale: 1.0 };
        let best = (1..64).max_by(|a, b| law.value(*a).total_cmp(&law.value(*b)));
        assert_eq!(best, Some(((1.0f64 - 0.02) / 0.005).sqrt().round() as u32));
    }

    #[test]
    fn what_carries_nothing_or_is_no_rate_is_refused() {
        let refused = |law: Law| law.check("e").unwrap_err().to_string();
        assert!(refused(Law::Constant { value: 0.0 }).contains("value is 0"));
        assert!(refused(Law::Constant { value: f64::NAN }).contains("NaN"));
        let falling = |alpha| Law::F1 { beta: 1e9, alpha, knob: "n".into(), scale: 1.0 };
        assert!(refused(falling(-1.0)).contains("alpha"));
        assert!(falling(-0.5).check("e").is_ok());
        assert!(refused(table(&[])).contains("no points"));
        assert!(refused(table(&[(1, -1.0)])).contains("no rate"));
        let points = |points: &[(&str, f64)]| Law::F5 {
            points: points.iter().map(|(n, rate)| ((*n).to_owned(), *rate)).collect(),
            knob: "n".into(),
        };
        assert!(refused(points(&[("one", 1.0)])).contains("no whole number"));
        assert!(refused(points(&[("1", 1e9), ("01", 2e9)])).contains("two points at 1"));
    }
}
