//! Measured points, and when they say too little.

use std::fmt;

/// A measurement: a file size or a setting, and the rate at it in bytes a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    pub at: f64,
    pub bytes_per_second: f64,
}

/// Why points determine no law.
#[derive(Clone, PartialEq, Debug)]
pub enum Unfit {
    /// Fewer different settings than the law has parameters.
    TooFew {
        needed: usize,
        given: usize,
    },
    NoRate {
        at: f64,
        bytes_per_second: f64,
    },
    /// The rates rise where the law can only fall, or the other way round.
    OtherShape(&'static str),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::TooFew { needed, given } => {
                write!(f, "{given} different points are too few: the law has {needed} parameters")
            }
            Unfit::NoRate { at, bytes_per_second } => {
                write!(f, "{bytes_per_second:?} bytes a second at {at:?}: both have to be above 0 and below 1e18")
            }
            Unfit::OtherShape(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Unfit {}

impl Unfit {
    /// What to do about it.
    pub fn cure(&self) -> &'static str {
        match self {
            Unfit::TooFew { .. } => "measure at more settings",
            Unfit::NoRate { .. } => {
                "leave out the row, or correct it: the first number is n or a size, the second a rate"
            }
            Unfit::OtherShape(_) => "choose another form, or use the points as they are (F5)",
        }
    }
}

/// Above every size, and every rate that there is.
const NUMBER_MAX: f64 = 1e18;

/// Refuses points that are no measurements, and fewer different ones than parameters.
pub fn check(points: &[Point], needed: usize) -> Result<(), Unfit> {
    let is_good = |value: f64| value > 0.0 && value < NUMBER_MAX;
    if let Some(wrong) = points.iter().find(|point| !is_good(point.at) || !is_good(point.bytes_per_second)) {
        return Err(Unfit::NoRate { at: wrong.at, bytes_per_second: wrong.bytes_per_second });
    }
    let mut at: Vec<f64> = points.iter().map(|point| point.at).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    if at.len() < needed { Err(Unfit::TooFew { needed, given: at.len() }) } else { Ok(()) }
}
