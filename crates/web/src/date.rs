//! Moments as servers write them, in seconds since 1970. Not here: what a moment means.

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
    let number = |text: &str, max: i64| text.parse().ok().filter(|number| (0..=max).contains(number));
    let day = number(words.next()?, 31)?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|known| *known == month)? as i64 + 1;
    let year = number(words.next()?, 9999)?;
    let mut clock = words.next()?.split(':');
    let mut part = |max| number(clock.next()?, max);
    Some(days(year, month, day) * 86_400 + part(23)? * 3600 + part(59)? * 60 + part(60)?)
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
    fn moments_are_read_from_listings_and_headers() {
        assert_eq!(moment("2001-09-09T01:46:40.000Z"), Some(1_000_000_000));
        assert_eq!(header_moment("Sun, 09 Sep 2001 01:46:40 GMT"), Some(1_000_000_000));
        assert_eq!(header_moment("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
        assert_eq!((moment("yesterday"), header_moment("now")), (None, None));
    }

    #[test]
    fn what_is_no_moment_is_none_however_large_its_numbers_are() {
        for text in [
            "Sun, 09 Sep 9223372036854775807 01:46:40 GMT",
            "Sun, 09 Sep -9223372036854775808 01:46:40 GMT",
            "Sun, 9223372036854775807 Sep 2001 01:46:40 GMT",
            "Sun, 09 Sep 2001 9223372036854775807:46:40 GMT",
            "Sun, 09 Sep 2001 01:-9223372036854775808:40 GMT",
            "Sun, 32 Sep 2001 01:46:40 GMT",
            "Sun, 09 Sep 2001 24:46:40 GMT",
        ] {
            assert_eq!(header_moment(text), None, "{text}");
        }
    }
}
