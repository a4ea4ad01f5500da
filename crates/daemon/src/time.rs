//! Points in time as text: RFC 3339, UTC, whole seconds, milliseconds or microseconds; and the time by which tickets expire.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock's time, but not before that of this function's first call and what has passed since: whoever sets the clock back
/// while an endpoint runs gives no ticket more time. Set forward and back again, the clock counts as if it had not been.
pub fn now_or_later() -> SystemTime {
    static START: OnceLock<(SystemTime, Instant)> = OnceLock::new();
    let start = START.get_or_init(|| (SystemTime::now(), Instant::now()));
    later_of(start.0, start.1.elapsed(), SystemTime::now())
}

fn later_of(start: SystemTime, passed: Duration, clock: SystemTime) -> SystemTime {
    if model::mutant::is_on("follow-the-clock-back") {
        return clock;
    }
    start.checked_add(passed).map_or(clock, |time| time.max(clock))
}

/// `2025-11-20T09:53:00Z`.
pub fn rfc3339(time: SystemTime) -> String {
    text(time, "")
}

/// `2025-11-20T09:53:00.123Z`.
pub fn rfc3339_ms(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    text(time, &format!(".{:03}", since.subsec_millis()))
}

/// `2025-11-20T09:53:00.123456Z`.
pub fn rfc3339_us(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    text(time, &format!(".{:06}", since.subsec_micros()))
}

fn text(time: SystemTime, fraction: &str) -> String {
    // A clock before 1970 is a broken clock; its lines still have to be written.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// The Gregorian date so many days after 1970-01-01. Years are counted from March, so that the leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const DAYS_BEFORE_1970: u64 = 719_468;
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_IN_400_YEARS, days % DAYS_IN_400_YEARS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_gives_no_ticket_more_time() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let passed = Duration::from_secs(10);
        assert_eq!(later_of(at(1000), passed, at(1010)), at(1010));
        assert_eq!(later_of(at(1000), passed, at(20)), at(1010));
        // An excursion forward ends with it.
        assert_eq!(later_of(at(1000), passed, at(9000)), at(9000));
        assert_eq!(later_of(at(1000), passed * 2, at(1020)), at(1020));
        assert!(now_or_later() >= SystemTime::now() - Duration::from_secs(1));
    }

    #[test]
    fn known_moments_have_their_dates() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(rfc3339_ms(UNIX_EPOCH + Duration::from_millis(1_234_567_890_007)), "2009-02-13T23:31:30.007Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00Z");
    }
}
