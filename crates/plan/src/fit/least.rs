//! Least squares of logarithms by the method of Levenberg and Marquardt, with derivatives by differences; for two or three
//! parameters and some tens of points.

use super::point::Point;

const STEPS_MAX: usize = 200;
/// Of a parameter, for its derivative.
const DIFFERENCE: f64 = 1e-6;

pub struct Fitted {
    pub parameters: Vec<f64>,
    pub rms: f64,
    pub max: f64,
}

/// Root of the mean square, and the largest.
pub fn errors(of: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, max, count) =
        of.fold((0.0, 0.0f64, 0u32), |(sum, max, count), error| (sum + error * error, max.max(error.abs()), count + 1));
    ((sum / f64::from(count.max(1))).sqrt(), max)
}

/// The parameters with the least squared errors of ln(predicted / measured), near `start`.
pub fn least_squares(points: &[Point], start: Vec<f64>, predicted: impl Fn(&[f64], f64) -> f64) -> Fitted {
    let residuals = |parameters: &[f64]| -> Vec<f64> {
        let error = |point: &Point| {
            let ratio = predicted(parameters, point.at) / point.bytes_per_second;
            // A prediction of nothing is as wrong as any.
            if ratio.is_finite() && ratio > 1e-30 { ratio.ln() } else { 70.0 }
        };
        points.iter().map(error).collect()
    };
    let square = |residuals: &[f64]| residuals.iter().map(|r| r * r).sum::<f64>();
    let mut at = start;
    let mut held = residuals(&at);
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let columns: Vec<Vec<f64>> = (0..at.len())
            .map(|k| {
                let mut beside = at.clone();
                let step = DIFFERENCE * at[k].abs().max(1e-2);
                beside[k] += step;
                residuals(&beside).iter().zip(&held).map(|(moved, held)| (moved - held) / step).collect()
            })
            .collect();
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let right: Vec<f64> = columns.iter().map(|column| -product(column, &held)).collect();
        let mut left: Vec<Vec<f64>> =
            columns.iter().map(|row| columns.iter().map(|column| product(row, column)).collect()).collect();
        for (k, row) in left.iter_mut().enumerate() {
            row[k] += damping * row[k].max(1e-12);
        }
        let Some(step) = solved(left, right) else { break };
        let next: Vec<f64> = at.iter().zip(&step).map(|(at, step)| at + step).collect();
        let tried = residuals(&next);
        let gained = square(&held) - square(&tried);
        if gained <= 0.0 || !gained.is_finite() {
            damping *= 4.0;
            if damping > 1e12 {
                break;
            }
            continue;
        }
        let is_done = gained <= 1e-14 * square(&held).max(1e-30);
        (at, held, damping) = (next, tried, (damping / 3.0).max(1e-12));
        if is_done {
            break;
        }
    }
    let (rms, max) = errors(held.into_iter());
    Fitted { parameters: at, rms, max }
}

/// Solves a small system of equations by elimination; none where it has no one answer.
fn solved(mut left: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let count = right.len();
    for k in 0..count {
        let pivot = (k..count).max_by(|a, b| left[*a][k].abs().total_cmp(&left[*b][k].abs()))?;
        if left[pivot][k].abs() < 1e-300 {
            return None;
        }
        left.swap(k, pivot);
        right.swap(k, pivot);
        for row in k + 1..count {
            let factor = left[row][k] / left[k][k];
            let (above, below) = left.split_at_mut(row);
            below[0].iter_mut().zip(&above[k]).for_each(|(cell, pivot)| *cell -= factor * pivot);
            right[row] -= factor * right[k];
        }
    }
    for k in (0..count).rev() {
        let known: f64 = (k + 1..count).map(|column| left[k][column] * right[column]).sum();
        right[k] = (right[k] - known) / left[k][k];
    }
    right.iter().all(|value| value.is_finite()).then_some(right)
}
