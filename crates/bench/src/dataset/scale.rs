//! The share of a data set that is made: an exact fraction, so that powers of two stay powers of two.

use std::fmt;

use crate::error::{Error, Result};

/// More than any set can be divided by and leave a byte.
const POWER_MAX: u32 = 60;
/// Digits after the point: 10^12 fits the denominator with room for another factor.
const DECIMALS_MAX: usize = 12;

/// A fraction above 0 and at most 1, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    numerator: u64,
    denominator: u64,
}

impl Scale {
    pub const WHOLE: Scale = Scale { numerator: 1, denominator: 1 };

    /// Reads `2^-10`, `1/1000`, `0.25` or `1`.
    pub fn parse(text: &str) -> Result<Scale> {
        let refuse =
            || Error::usage(format!("scale {text:?}"), "give a fraction such as 2^-10, 1/1000 or 0.25, at most 1");
        read(text.trim()).and_then(|(numerator, denominator)| Scale::new(numerator, denominator)).ok_or_else(refuse)
    }

    fn new(numerator: u64, denominator: u64) -> Option<Scale> {
        if numerator == 0 || numerator > denominator {
            return None;
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        Some(Scale { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// This share of a count, rounded down.
    pub fn of(self, count: u64) -> u64 {
        let product = u128::from(count) * u128::from(self.numerator) / u128::from(self.denominator);
        u64::try_from(product).expect("a share is not larger than the whole")
    }

    /// The share of a share; `None` where the fraction has no place in 64 bits.
    pub fn and(self, other: Scale) -> Option<Scale> {
        let numerator = self.numerator.checked_mul(other.numerator)?;
        Scale::new(numerator, self.denominator.checked_mul(other.denominator)?)
    }

    /// This share of `count`, where that is less than one.
    pub fn of_less_than_one(self, count: u64) -> Option<Scale> {
        Scale::new(self.numerator.checked_mul(count)?, self.denominator)
    }
}

impl Default for Scale {
    fn default() -> Self {
        Scale::WHOLE
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.numerator, self.denominator) {
            (1, 1) => f.write_str("1"),
            (1, power) if power.is_power_of_two() => write!(f, "2^-{}", power.trailing_zeros()),
            (numerator, denominator) => write!(f, "{numerator}/{denominator}"),
        }
    }
}

fn read(text: &str) -> Option<(u64, u64)> {
    if let Some(power) = text.strip_prefix("2^-") {
        return power.parse().ok().filter(|power| *power <= POWER_MAX).map(|power: u32| (1, 1 << power));
    }
    if let Some((numerator, denominator)) = text.split_once('/') {
        return Some((numerator.trim().parse().ok()?, denominator.trim().parse().ok()?));
    }
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    if decimals.len() > DECIMALS_MAX || !decimals.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let denominator = 10_u64.pow(decimals.len() as u32);
    let below: u64 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    Some((whole.parse::<u64>().ok()?.checked_mul(denominator)?.checked_add(below)?, denominator))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_fractions_and_decimals_are_exact() {
        let shown = |text| Scale::parse(text).unwrap().to_string();
        assert_eq!(
            ["2^-10", "1/1024", "0.25", "1", "1.0", "2/6"].map(shown),
            ["2^-10", "2^-10", "2^-2", "1", "1", "1/3"]
        );
        assert_eq!(Scale::parse("0.001").unwrap().of(12_345), 12);
        assert_eq!(Scale::parse("2^-60").unwrap().of(u64::MAX), 15);
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in ["", "0", "2", "1.5", "-1", "2^10", "2^-61", "1/0", "0/5", "3/2", "a", "0.", ".5", "1/x", "1e-3"] {
            assert!(Scale::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_share_of_a_share_is_refused_where_it_cannot_be_held() {
        let small = Scale::parse("2^-40").unwrap();
        assert_eq!(small.and(small), None);
        assert_eq!(small.and(Scale::WHOLE), Some(small));
    }
}
