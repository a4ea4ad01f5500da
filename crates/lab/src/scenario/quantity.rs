//! Times, rates, probabilities and queue limits as people write them, and back.
//!
//! Invariants: what a `show_` function writes, its `parse_` function reads as the same value. Times and rates are read
//! exactly, without binary fractions in between; what cannot be held exactly is refused.

use std::time::Duration;

use super::QueueLimit;

/// A text that is not the quantity that was asked for.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("{given:?} is not {wanted}")]
pub struct Malformed {
    given: String,
    /// With an example.
    wanted: &'static str,
}

/// Longer texts are cut in error messages.
const GIVEN_CHARACTERS_MAX: usize = 40;

const TIME: &str = "a time such as 74ms, 300us or 1.5s";
const RATE: &str = "a rate in bits per second such as 10Gbit, 500kbit or unlimited";
const PROBABILITY: &str = "a probability such as 0.01%, 1e-4 or 100% (% from 1 on)";
const QUEUE: &str = "a queue limit such as 64MiB, 65536 or 0.5bdp";
const SWITCH: &str = "on or off";
const BURST: &str = "a mean number of segments lost in a row, 1 or more, such as 10";

/// Nanoseconds.
const TIME_UNITS: [(&str, u64); 6] =
    [("min", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("µs", 1_000), ("ns", 1)];
/// Bits per second.
const RATE_UNITS: [(&str, u64); 5] =
    [("Tbit", 1_000_000_000_000), ("Gbit", 1_000_000_000), ("Mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];
const BYTE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Malformed {
    pub(super) fn new(given: &str, wanted: &'static str) -> Malformed {
        let mut cut: String = given.chars().take(GIVEN_CHARACTERS_MAX).collect();
        if cut.len() < given.len() {
            cut.push('…');
        }
        Malformed { given: cut, wanted }
    }
}

/// Reads `74ms`, `300us`, `1.5s`, `2min`; a unit is needed except for `0`.
pub fn parse_duration(text: &str) -> Result<Duration, Malformed> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (number, unit) = split_unit(text);
    let unit = TIME_UNITS.iter().find(|(name, _)| *name == unit);
    let nanoseconds = unit.and_then(|(_, nanoseconds)| multiply(number, *nanoseconds));
    nanoseconds.map(Duration::from_nanos).ok_or_else(|| Malformed::new(text, TIME))
}

/// Writes the largest unit of which there is at least one: `1.5s`.
pub fn show_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    let units = TIME_UNITS.iter().filter(|(name, _)| !["min", "µs"].contains(name));
    let (name, unit) = largest_unit(nanoseconds, units).unwrap_or(("s", 1_000_000_000));
    format!("{}{name}", divide(nanoseconds, unit))
}

/// Reads `10Gbit`, `1.5Gbit/s`, `500 kbit`, with decimal prefixes, and `unlimited` as none.
pub fn parse_rate(text: &str) -> Result<Option<u64>, Malformed> {
    if text == "unlimited" {
        return Ok(None);
    }
    let (number, unit) = split_unit(text);
    let unit = unit.strip_suffix("/s").unwrap_or(unit);
    let unit = RATE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    let rate = unit.and_then(|(_, bits)| multiply(number, *bits));
    rate.map(Some).ok_or_else(|| Malformed::new(text, RATE))
}

pub fn show_rate(bits_per_second: Option<u64>) -> String {
    let Some(bits) = bits_per_second else { return "unlimited".into() };
    let (name, unit) = largest_unit(bits.into(), RATE_UNITS.iter()).unwrap_or(("bit", 1));
    format!("{}{name}", divide(bits.into(), unit))
}

/// Reads `0.01%`, `1e-4`, `0.0001`; from one on only with `%`.
pub fn parse_probability(text: &str) -> Result<f64, Malformed> {
    let malformed = || Malformed::new(text, PROBABILITY);
    let value = match text.strip_suffix('%').map(str::trim_end) {
        // The exponent moves the decimal point before the number becomes binary: 0.01 % is the same as 0.0001.
        Some(percent) if !percent.contains(['e', 'E']) => parse_finite(&format!("{percent}e-2")),
        Some(percent) => parse_finite(percent).map(|percent| percent / 100.0),
        // One out of one, or one percent? Nobody can tell.
        None => parse_finite(text).filter(|value| *value < 1.0),
    };
    value.filter(|value| (0.0..=1.0).contains(value)).ok_or_else(malformed)
}

/// In percent where that is exact and short, else as the number itself.
pub fn show_probability(probability: f64) -> String {
    let digits = format!("{:.10}", probability * 100.0);
    let percent = format!("{}%", digits.trim_end_matches('0').trim_end_matches('.'));
    if parse_probability(&percent) == Ok(probability) { percent } else { format!("{probability:e}") }
}

/// Reads `64MiB`, `65536` and, in products of rate and round trip, `0.5bdp`.
pub fn parse_queue(text: &str) -> Result<QueueLimit, Malformed> {
    let malformed = || Malformed::new(text, QUEUE);
    match text.strip_suffix("bdp").or_else(|| text.strip_suffix("BDP")) {
        Some(products) => {
            let products = parse_finite(products.trim_end()).filter(|products| *products >= 0.0);
            products.map(QueueLimit::BandwidthDelayProducts).ok_or_else(malformed)
        }
        None => model::quantity::parse_bytes(text).map(QueueLimit::Bytes).map_err(|_| malformed()),
    }
}

pub fn show_queue(queue: QueueLimit) -> String {
    match queue {
        QueueLimit::BandwidthDelayProducts(products) => format!("{products}bdp"),
        QueueLimit::Bytes(bytes) => match BYTE_UNITS.iter().find(|(_, unit)| bytes >= *unit && bytes % unit == 0) {
            Some((name, unit)) => format!("{}{name}", bytes / unit),
            None => bytes.to_string(),
        },
    }
}

pub fn parse_switch(text: &str) -> Result<bool, Malformed> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(Malformed::new(text, SWITCH)),
    }
}

/// Reads the mean length of a burst of losses.
pub fn parse_burst(text: &str) -> Result<f64, Malformed> {
    parse_finite(text).filter(|segments| *segments >= 1.0).ok_or_else(|| Malformed::new(text, BURST))
}

/// Only digits, point, sign and exponent: the standard parser also takes `inf` and `nan`.
fn parse_finite(text: &str) -> Option<f64> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    // Minus zero would not be shown as it was written.
    text.parse::<f64>().ok().filter(|value| is_number && value.is_finite())
}

fn split_unit(text: &str) -> (&str, &str) {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    (number, unit.trim_start())
}

/// A decimal number times a unit; none if the product is no whole number or too large.
fn multiply(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_decimal = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_decimal(whole) || !is_decimal(fraction) {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let scale = 10u64.checked_pow(fraction.len().try_into().ok()?)?;
    let parts = if fraction.is_empty() { 0 } else { u128::from(fraction.parse::<u64>().ok()?) * u128::from(unit) };
    if parts % u128::from(scale) != 0 {
        return None;
    }
    let part = u64::try_from(parts / u128::from(scale)).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
}

fn largest_unit<'a>(
    value: u128,
    mut units: impl Iterator<Item = &'a (&'static str, u64)>,
) -> Option<(&'static str, u64)> {
    units.find(|(_, unit)| value >= u128::from(*unit)).copied()
}

/// A whole number over a power of ten, as a decimal number without trailing zeros.
fn divide(value: u128, unit: u64) -> String {
    let (whole, rest) = (value / u128::from(unit), value % u128::from(unit));
    if rest == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{rest:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_read_exactly() {
        let read = |text| parse_duration(text).map(|d| d.as_nanos());
        assert_eq!(read("74ms"), Ok(74_000_000));
        assert_eq!(read("300us"), Ok(300_000));
        assert_eq!(read("1.5s"), Ok(1_500_000_000));
        assert_eq!(read("2 min"), Ok(120_000_000_000));
        assert_eq!(read("0"), Ok(0));
        for wrong in ["", "74", "ms", "-1ms", "1e3ms", "nanms", "infs", "1.2.3s", "0.5ns", ".5s", "99999999999999s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_are_decimal_and_unlimited_is_none() {
        assert_eq!(parse_rate("10Gbit"), Ok(Some(10_000_000_000)));
        assert_eq!(parse_rate("1.5 Gbit/s"), Ok(Some(1_500_000_000)));
        assert_eq!(parse_rate("500kbit"), Ok(Some(500_000)));
        assert_eq!(parse_rate("unlimited"), Ok(None));
        for wrong in ["", "10", "10GB", "-1Gbit", "1e9bit", "0.5bit", "99999999999Tbit", "Gbit"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_rate(Some(1_500_000_000)), "1.5Gbit");
    }

    #[test]
    fn a_probability_is_the_same_in_percent_and_as_a_number() {
        assert_eq!(parse_probability("0.01%"), Ok(0.0001));
        assert_eq!(parse_probability("1e-4"), Ok(0.0001));
        assert_eq!(parse_probability("100%"), Ok(1.0));
        for wrong in ["", "%", "1.1", "101%", "-0.1", "-0", "nan", "inf", "NaN%", "1e400", "1e-4e1%"] {
            assert!(parse_probability(wrong).is_err(), "{wrong}");
        }
        assert_eq!(show_probability(0.0001), "0.01%");
        assert_eq!(show_probability(1e-9), "0.0000001%");
    }

    #[test]
    fn queues_are_bytes_or_products() {
        assert_eq!(parse_queue("64MiB"), Ok(QueueLimit::Bytes(64 << 20)));
        assert_eq!(parse_queue("65536"), Ok(QueueLimit::Bytes(65536)));
        assert_eq!(parse_queue("0.5bdp"), Ok(QueueLimit::BandwidthDelayProducts(0.5)));
        for wrong in ["", "bdp", "-1bdp", "nanbdp", "infbdp", "-1", "1 furlong", "99999999999T"] {
            assert!(parse_queue(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_is_one_line_that_quotes_the_value_and_gives_an_example() {
        let said = parse_duration("7\n4").unwrap_err().to_string();
        assert_eq!(said, r#""7\n4" is not a time such as 74ms, 300us or 1.5s"#);
        assert!(parse_rate(&"9".repeat(1000)).unwrap_err().to_string().len() < 200);
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_as_the_same(
            nanoseconds: u64, rate: Option<u64>, probability in 0.0..=1.0f64, bytes: u64, products in 0.0..1e9f64,
        ) {
            let duration = Duration::from_nanos(nanoseconds);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_rate(&show_rate(rate)), Ok(rate));
            prop_assert_eq!(parse_probability(&show_probability(probability)), Ok(probability));
            for queue in [QueueLimit::Bytes(bytes), QueueLimit::BandwidthDelayProducts(products)] {
                prop_assert_eq!(parse_queue(&show_queue(queue)), Ok(queue));
            }
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,24}") {
            let _ = (parse_duration(&text), parse_rate(&text), parse_probability(&text));
            let _ = (parse_queue(&text), parse_switch(&text), parse_burst(&text));
        }
    }
}
