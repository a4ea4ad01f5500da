//! How the values of plans read and are shown: rates, files.

use crate::exit::Result;
use model::quantity::parse_rate;
use std::path::PathBuf;

/// Reads a rate as bytes a second. A bare number is bytes a second, as in models: rates are copied from one to the other.
pub fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a rate such as 10Gbit, 1.2GB or 1200000000");
    let rate = match text.parse::<f64>() {
        Ok(bytes_per_second) => bytes_per_second,
        Err(_) => parse_rate(text).map_err(|_| wrong())?.ok_or_else(wrong)? as f64,
    };
    if rate.is_finite() && (0.0..=1e15).contains(&rate) { Ok(rate) } else { Err(wrong()) }
}

/// A rate that something moves at.
pub fn rate_above_zero(text: &str) -> Result<f64, String> {
    rate(text).and_then(|rate| if rate > 0.0 { Ok(rate) } else { Err("the rate must be above 0".into()) })
}

/// What a person reads of a rate: both forms, since disks and networks are counted differently.
pub fn shown_rate(bytes_per_second: f64) -> String {
    let of_storage = match bytes_per_second {
        b if b >= 1e9 => format!("{:.2} GB/s", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB/s", b / 1e6),
        b => format!("{:.1} kB/s", b / 1e3),
    };
    format!("{of_storage} ({})", model::quantity::Rate { bytes_per_second })
}

pub fn read_text(path: &PathBuf) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| crate::exit::of_file("read", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_rates_are_bytes_a_second_and_others_have_a_unit() {
        assert_eq!(rate("10Gbit"), Ok(1.25e9));
        assert_eq!(rate("1.2GB/s"), Ok(1.2e9));
        assert_eq!(rate("1.2e9"), Ok(1.2e9));
        assert_eq!((rate("0"), rate_above_zero("0").is_err()), (Ok(0.0), true));
        for wrong in ["", "fast", "-1", "nan", "inf", "1e16", "off", "10Gbits"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
