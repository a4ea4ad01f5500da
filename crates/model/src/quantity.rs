//! Sizes, rates, counts and times as people write and read them.
//!
//! Sizes are bytes, shown in binary units (KiB). Rates are bits per second, decimal (Gbit/s), with bytes beside them.

use std::fmt;
use std::time::Duration;

/// The lowest rate, bytes a second: below it a job would seem to stand still.
pub const RATE_MIN: u64 = 1 << 10;
const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// A number of bytes, shown in the largest binary unit that keeps it above one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 5] = [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => write!(f, "{} {name}", three_digits(self.0 as f64 / *unit as f64)),
            None => write!(f, "{} B", self.0),
        }
    }
}

/// A data rate.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct Rate {
    pub bytes_per_second: f64,
}

impl Rate {
    /// Zero when no time has passed.
    pub fn over(bytes: u64, seconds: f64) -> Rate {
        Rate { bytes_per_second: if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 } }
    }

    pub fn bits_per_second(self) -> f64 {
        self.bytes_per_second * 8.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, f64); 3] = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)];
        let bits = self.bits_per_second();
        match UNITS.iter().find(|(_, unit)| bits >= *unit) {
            Some((name, unit)) => write!(f, "{} {name}", three_digits(bits / unit)),
            None => write!(f, "{bits:.0} bit/s"),
        }
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Reads `4096`, `8KiB`, `8K` (binary), `8KB` (decimal), `1.5GiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_bytes: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(format!("{text:?}: unknown unit; use KiB, MiB, GiB, TiB or KB, MB, GB, TB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit_bytes).ok_or_else(|| format!("{text:?} is too large"));
    }
    let fraction: f64 = number.parse().map_err(|_| format!("{text:?} is not a size such as 8MiB"))?;
    let bytes = fraction * unit_bytes as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(format!("{text:?} is too large")) }
}

/// Reads a rate as bytes a second: `500Mbit` (decimal bits), `10MiB` or `10M` (binary bytes), `10MB`; a bare number is
/// KiB a second, as rsync and rclone take it. `off` and 0 are no limit.
pub fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    const BIT_UNITS: [(&str, f64); 5] = [("tbit", 1e12), ("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
    let wrong = || format!("{text:?} is not a rate such as 500Mbit, 10MiB or off");
    let plain = text.to_ascii_lowercase();
    if matches!(&plain[..], "off" | "unlimited" | "0") {
        return Ok(None);
    }
    let plain = plain.strip_suffix("/s").unwrap_or(&plain);
    let bits = BIT_UNITS.iter().find_map(|(unit, bits)| Some((plain.strip_suffix(unit)?, bits)));
    let bytes_per_second = match bits {
        Some((number, bits)) => {
            let number: f64 = number.trim().parse().map_err(|_| wrong())?;
            number * bits / 8.0
        }
        None if plain.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
            let number: f64 = plain.parse().map_err(|_| wrong())?;
            number * KIB as f64
        }
        None => parse_bytes(plain).map_err(|_| wrong())? as f64,
    };
    if !(RATE_MIN as f64..=1e15).contains(&bytes_per_second) {
        return Err(format!("{text:?}: a rate is 1 KiB/s or more"));
    }
    Ok(Some(bytes_per_second as u64))
}

/// Reads a time span of whole units: `90s`, `30m`, `12h`, `7d`, `2w`.
pub fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time span such as 12h, 7d or 2w");
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(wrong)?;
    Ok(Duration::from_secs(number * seconds))
}

/// A count as people read it: `21,002`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `21,002 files`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// `0.42 s`, `12 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        s if s < 1.0 => format!("{s:.3} s"),
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 100.0 => format!("{s:.1} s"),
        _ if whole < 3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_with_binary_and_decimal_units() {
        assert_eq!(parse_bytes("8K"), Ok(8192));
        assert_eq!(parse_bytes("8KiB"), Ok(8192));
        assert_eq!(parse_bytes("8KB"), Ok(8000));
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert!(parse_bytes("8 furlongs").is_err());
        assert!(parse_bytes("").is_err());
        assert!(parse_bytes("99999999999T").is_err());
    }

    #[test]
    fn rates_read_as_bits_or_bytes_and_bare_numbers_as_kib() {
        assert_eq!(parse_rate("500Mbit"), Ok(Some(62_500_000)));
        assert_eq!(parse_rate("1.5Gbit/s"), Ok(Some(187_500_000)));
        assert_eq!(parse_rate("512"), Ok(Some(512 << 10)));
        assert_eq!(parse_rate("10M"), Ok(Some(10 << 20)));
        assert_eq!(parse_rate("10MB/s"), Ok(Some(10_000_000)));
        assert_eq!([parse_rate("off"), parse_rate("0"), parse_rate("unlimited")], [Ok(None), Ok(None), Ok(None)]);
        for wrong in ["", "fast", "-1M", "1 furlong", "nanMbit", "1e30Gbit", "1B"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn time_spans_have_a_unit() {
        let seconds = |text| parse_span(text).map(|span| span.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("7d"), Ok(604_800));
        assert_eq!(seconds("2w"), Ok(1_209_600));
        for wrong in ["", "7", "d", "0d", "-1d", "1y", "1.5h", "7\u{20ac}", "9999999999d"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shown_in_the_units_people_expect() {
        assert_eq!(ByteCount(1536).to_string(), "1.50 KiB");
        assert_eq!(ByteCount(12).to_string(), "12 B");
        assert_eq!(Rate::over(1_250_000_000, 1.0).to_string(), "10.0 Gbit/s");
        assert_eq!(Rate::over(5, 0.0).to_string(), "0 bit/s");
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 21_002, 1_234_567].map(grouped), ["0", "999", "1,000", "21,002", "1,234,567"]);
        assert_eq!(counted(1, "file", "files"), "1 file");
    }

    #[test]
    fn durations_have_as_many_digits_as_matter() {
        let shown = [0.0421, 2.5, 12.34, 200.0, 7500.0].map(duration);
        assert_eq!(shown, ["0.042 s", "2.50 s", "12.3 s", "3 min 20 s", "2 h 5 min"]);
    }
}
