//! Times, modes and owners as they stand in an object's metadata, so that rclone and s3fs read them too.

use model::Timestamp;

pub const MTIME: &str = "x-amz-meta-mtime";
pub const MODE: &str = "x-amz-meta-mode";
/// The bits of a mode that say what an object is.
const KIND: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
pub const SYMLINK: u32 = 0o120_000;

/// Seconds with nine digits behind the point: some readers take the digits as nanoseconds.
pub fn time_text(time: Timestamp) -> String {
    let Timestamp { seconds, nanoseconds } = time;
    if seconds < 0 && nanoseconds > 0 {
        return format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds);
    }
    format!("{seconds}.{nanoseconds:09}")
}

pub fn time(text: &str) -> Option<Timestamp> {
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanoseconds: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
    Some(match (is_negative, nanoseconds) {
        (false, _) => Timestamp { seconds, nanoseconds },
        (true, 0) => Timestamp { seconds: -seconds, nanoseconds },
        (true, _) => Timestamp { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
    })
}

pub fn file_mode(mode: u32) -> String {
    (FILE | mode).to_string()
}

pub fn directory_mode(mode: u32) -> String {
    (DIRECTORY | mode).to_string()
}

pub fn link_mode() -> String {
    (SYMLINK | 0o777).to_string()
}

/// A mode with its kind: decimal as s3fs writes it, or octal as rclone does.
pub fn mode(text: &str) -> Option<u32> {
    // Five digits of octal are a directory's; a link's five are decimal.
    let is_octal = text.len() == 6 || (text.len() == 5 && text.starts_with('4') && text != link_mode());
    let mode = if is_octal { u32::from_str_radix(text, 8) } else { text.parse() };
    mode.ok().filter(|mode| *mode <= 0o177_777)
}

pub fn is_link(mode: u32) -> bool {
    mode & KIND == SYMLINK
}

/// The moment of `2001-09-09T01:46:40.000Z`, as listings have it.
pub fn moment(text: &str) -> Option<i64> {
    let digits = |from: usize, to: usize| text.get(from..to).and_then(|part| part.parse::<i64>().ok());
    let is_in_place = text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(10) == Some(&b'T');
    let date = days(digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
    is_in_place.then_some(date * 86_400 + digits(11, 13)? * 3600 + digits(14, 16)? * 60 + digits(17, 19)?)
}

/// The moment of `Sun, 09 Sep 2001 01:46:40 GMT`, as headers have it.
pub fn header_moment(text: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split(' ');
    let day = words.next()?.parse().ok()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? as i64 + 1;
    let year = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let mut part = || clock.next().flatten();
    Some(days(year, month, day) * 86_400 + part()? * 3600 + part()? * 60 + part()?)
}

/// Days from 1970-01-01 to a Gregorian date; years are counted from March.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_before_1970_too() {
        for (seconds, nanoseconds, text) in [
            (0, 0, "0.000000000"),
            (1_700_000_000, 5, "1700000000.000000005"),
            (-2, 500_000_000, "-1.500000000"),
            (-3, 0, "-3.000000000"),
        ] {
            let moment = Timestamp { seconds, nanoseconds };
            assert_eq!(time_text(moment), text);
            assert_eq!(time(text), Some(moment));
        }
        assert_eq!(time("1.5"), Some(Timestamp { seconds: 1, nanoseconds: 500_000_000 }));
        assert_eq!(
            time("12345678901.1234567891"),
            Some(Timestamp { seconds: 12_345_678_901, nanoseconds: 123_456_789 })
        );
        for text in ["", ".5", "x", "1.x", "--1", "1e9"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn modes_are_read_as_both_programs_write_them() {
        assert_eq!(mode("33188"), Some(0o100_644));
        assert_eq!(mode("100644"), Some(0o100_644));
        assert_eq!(mode("40755"), Some(0o40_755));
        assert_eq!(mode("41471"), Some(0o120_777));
        assert!(is_link(mode(&link_mode()).unwrap()) && !is_link(mode(&file_mode(0o644)).unwrap()));
        assert_eq!((mode("x"), mode("99999999")), (None, None));
    }

    #[test]
    fn moments_are_read_from_listings_and_headers() {
        assert_eq!(moment("2001-09-09T01:46:40.000Z"), Some(1_000_000_000));
        assert_eq!(header_moment("Sun, 09 Sep 2001 01:46:40 GMT"), Some(1_000_000_000));
        assert_eq!(header_moment("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!((moment("yesterday"), header_moment("now")), (None, None));
    }
}
