//! How the values of plans read and are shown: rates, files.

use crate::exit::{Result, of_file, usage};
use crate::output::shown;
use model::quantity::{ByteCount, parse_rate};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Below it, a rate was given in another unit, as in models; nothing at all is one.
const RATE_MIN: f64 = 1e3;
const RATE_MAX: f64 = 1e15;
/// Longer than any model, plan or log of many paths.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Reads a rate as bytes a second. A bare number is bytes a second, as in models: rates are copied from one to the other.
pub fn rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a rate such as 10Gbit, 1.2GB or 1200000000 (bytes a second)");
    let rate = match text.parse::<f64>() {
        Ok(bytes_per_second) => bytes_per_second,
        Err(_) => parse_rate(text).map_err(|_| wrong())?.ok_or_else(wrong)? as f64,
    };
    if rate == 0.0 || (RATE_MIN..=RATE_MAX).contains(&rate) { Ok(rate) } else { Err(wrong()) }
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

pub fn read_text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Err(e) => Err(of_file("read", path, &e)),
        Ok(bytes) if bytes as u64 > TEXT_BYTES_MAX => {
            let what = format!("{} is longer than {}", shown(path), ByteCount(TEXT_BYTES_MAX));
            Err(usage(what, "name a file that holds a model, a plan, a log, or what a tool printed"))
        }
        Ok(_) => Ok(text),
    }
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
        // Ten bytes a second are meant by nobody.
        for wrong in ["", "fast", "-1", "nan", "inf", "1e16", "off", "10Gbits", "10", "1e-300"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }
}
