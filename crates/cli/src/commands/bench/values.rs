//! How the values of measurements read: lists, ranges of sizes, budgets.

use crate::exit::{Result, usage};
use model::quantity::parse_bytes;
use std::time::Duration;

/// A list of sizes as one value of the command line.
#[derive(Clone, Debug)]
pub struct Sizes(pub Vec<u64>);

/// Reads `1KiB,64KiB` and `1KiB..1GiB/4`, whose factor is 2 unless given.
pub fn sizes(text: &str) -> Result<Sizes, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        let Some((first, rest)) = part.split_once("..") else {
            sizes.push(parse_bytes(part.trim())?);
            continue;
        };
        let (last, factor) = rest.split_once('/').unwrap_or((rest, "2"));
        let factor: u64 = factor.parse().map_err(|_| format!("the factor {factor:?} is not a number"))?;
        let (mut size, last) = (parse_bytes(first.trim())?, parse_bytes(last.trim())?);
        if factor < 2 || size == 0 || size > last {
            return Err(format!("{part:?} is not a range of sizes, such as 1KiB..1GiB/4"));
        }
        while size <= last {
            sizes.push(size);
            size = size.saturating_mul(factor);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(Sizes(sizes))
}

/// Reads `90s`, `60m`, `2h`.
pub fn budget(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a time, such as 90s, 60m or 2h");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        _ => return Err(refuse()),
    };
    let number: u64 = number.parse().map_err(|_| refuse())?;
    number.checked_mul(seconds).filter(|seconds| *seconds > 0).map(Duration::from_secs).ok_or_else(refuse)
}

/// Reads a stream count, or `auto` as none.
pub fn streams(text: &str) -> Result<Option<u32>, String> {
    match text {
        "auto" => Ok(None),
        _ => match text.parse() {
            Ok(count @ 1..=64) => Ok(Some(count)),
            _ => Err(format!("{text:?} is neither auto nor a number from 1 to 64")),
        },
    }
}

/// Reads a buffer size, or `tuned` as none.
pub fn window(text: &str) -> Result<Option<u64>, String> {
    const BYTES_MIN: u64 = 64 << 10;
    match text {
        "tuned" => Ok(None),
        _ => match parse_bytes(text)? {
            bytes @ BYTES_MIN.. => Ok(Some(bytes)),
            _ => Err(format!("a window of {text} is smaller than 64KiB")),
        },
    }
}

/// Every word of a list, read.
pub fn each<T>(words: &[String], read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>> {
    let values = words.iter().map(|word| read(word.trim()));
    values.collect::<Result<_, _>>().map_err(|cause| usage(cause, "`thalweg bench --help` shows the form"))
}

/// The command line that repeats this run. Where the program lies on this machine is nothing to a reader.
pub fn command_line() -> String {
    ["thalweg".into()].into_iter().chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_ranges_in_order() {
        assert_eq!(sizes("4KiB,1KiB,1KiB").unwrap().0, [1024, 4096]);
        assert_eq!(sizes("1KiB..64KiB/4").unwrap().0, [1024, 4096, 16384, 65536]);
        assert_eq!(sizes("1..7,100").unwrap().0, [1, 2, 4, 100]);
        for wrong in ["", "x", "8..4", "0..4", "1..4/1", "1..4/x"] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn budgets_have_a_unit() {
        assert_eq!(budget("60m"), Ok(Duration::from_secs(3600)));
        assert_eq!(budget("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["60", "m", "0s", "1d", "99999999999999999999h"] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn stream_counts_are_numbers_or_automatic() {
        assert_eq!((streams("auto"), streams("8")), (Ok(None), Ok(Some(8))));
        assert!(streams("0").is_err() && streams("65").is_err() && streams("many").is_err());
    }
}
