//! Times, modes and owners as they stand in an object's metadata, so that rclone and s3fs read them too.

use model::Timestamp;
pub use web::date::{header_moment, moment};

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
}
