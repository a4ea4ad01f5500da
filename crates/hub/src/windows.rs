//! Windows: the times of a week in which a job may run, in a named zone.

use crate::{Error, Result};
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use model::Exit;
use serde::{Deserialize, Serialize};

/// From a time to a time, which may be that of the next day, on days of the week on which it begins.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// `mon` to `sun`; all of them where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    pub from: String,
    pub to: String,
    /// Such as `Europe/Berlin`; UTC where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

pub(crate) struct Parsed {
    days: Vec<Weekday>,
    from: Time,
    to: Time,
    zone: TimeZone,
}

pub const DAYS_MAX: usize = 7;
/// As in `06:30`.
pub const TIME_BYTES_MAX: usize = 5;
/// How far ahead a change is looked for.
const DAYS_AHEAD: i64 = 8;

impl Window {
    pub fn check(&self) -> Result<()> {
        if self.days.len() > DAYS_MAX || self.from.len().max(self.to.len()) > TIME_BYTES_MAX {
            return Err(wrong("a window has at most 7 days, and times such as 06:30".to_owned()));
        }
        self.parse().map(drop)
    }

    pub(crate) fn parse(&self) -> Result<Parsed> {
        let days = self.days.iter().map(|text| day(text)).collect::<Result<Vec<_>>>()?;
        Ok(Parsed { days, from: time(&self.from)?, to: time(&self.to)?, zone: zone(self.zone.as_deref())? })
    }
}

fn wrong(text: String) -> Error {
    Error::new(Exit::Usage, text)
        .hint("days are mon to sun, times such as 06:30, zones such as Europe/Berlin; UTC where none is named")
}

pub fn time(text: &str) -> Result<Time> {
    let found: Option<Time> =
        text.split_once(':').and_then(|(hour, minute)| Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok());
    found.ok_or_else(|| wrong(format!("{text:?} is not a time of day, such as 06:30")))
}

pub fn day(text: &str) -> Result<Weekday> {
    let found = match text {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return Err(wrong(format!("{text:?} is not a day: mon, tue, wed, thu, fri, sat or sun"))),
    };
    Ok(found)
}

pub fn zone(name: Option<&str>) -> Result<TimeZone> {
    match name {
        None => Ok(TimeZone::UTC),
        Some(name) => TimeZone::get(name).map_err(|_| wrong(format!("no time zone {name:?} is known here"))),
    }
}

impl Parsed {
    /// The spans around a moment: those that begin from yesterday to a week ahead.
    pub fn spans(&self, now: Timestamp) -> Vec<(i64, i64)> {
        let mut spans = Vec::new();
        let Ok(yesterday) = now.to_zoned(self.zone.clone()).checked_sub(1.day()) else { return spans };
        for ahead in 0..=DAYS_AHEAD {
            let Ok(date) = yesterday.date().checked_add(ahead.days()) else { continue };
            if !self.days.is_empty() && !self.days.contains(&date.weekday()) {
                continue;
            }
            let end = if self.to > self.from { Ok(date) } else { date.checked_add(1.day()) };
            let at = |date: jiff::civil::Date, time: Time| -> Option<Zoned> {
                // A local time that the clocks skip is the moment of the change.
                date.to_datetime(time).to_zoned(self.zone.clone()).ok()
            };
            let (Some(from), Some(to)) = (at(date, self.from), end.ok().and_then(|end| at(end, self.to))) else {
                continue;
            };
            spans.push((from.timestamp().as_millisecond(), to.timestamp().as_millisecond()));
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::almanac::Almanac;
    use queue::{Calendar, Opening};

    fn ms(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn opening(windows: &str, at: &str) -> (bool, String) {
        let Opening { is_open, until } = Almanac::default().opening(windows, ms(at));
        (is_open, Timestamp::from_millisecond(until).map_or("never".to_owned(), |at| at.to_string()))
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let night = r#"[{"days":["fri"],"from":"22:00","to":"06:00"}]"#;
        // 2027-01-01 is a Friday.
        assert_eq!(opening(night, "2027-01-01T21:59:59Z"), (false, "2027-01-01T22:00:00Z".into()));
        assert_eq!(opening(night, "2027-01-01T22:00:00Z"), (true, "2027-01-02T06:00:00Z".into()));
        assert_eq!(opening(night, "2027-01-02T05:59:59Z"), (true, "2027-01-02T06:00:00Z".into()));
        assert_eq!(opening(night, "2027-01-02T06:00:00Z"), (false, "2027-01-08T22:00:00Z".into()));
    }

    #[test]
    fn windows_that_touch_are_one() {
        let all = r#"[{"from":"00:00","to":"12:00"},{"from":"12:00","to":"00:00"}]"#;
        assert!(opening(all, "2027-01-01T11:59:59Z").0 && opening(all, "2027-01-01T12:00:00Z").0);
    }

    #[test]
    fn the_hour_that_the_clocks_skip_and_the_one_they_repeat_have_their_windows_once() {
        // Berlin: 2027-03-28 02:00 is skipped to 03:00; 2027-10-31 03:00 goes back to 02:00.
        let early = r#"[{"from":"02:30","to":"04:00","zone":"Europe/Berlin"}]"#;
        if TimeZone::get("Europe/Berlin").is_err() {
            return;
        }
        assert!(!opening(early, "2027-03-28T00:59:59Z").0);
        assert_eq!(opening(early, "2027-03-28T01:30:00Z"), (true, "2027-03-28T02:00:00Z".into()));
        assert_eq!(opening(early, "2027-10-31T01:00:00Z"), (true, "2027-10-31T03:00:00Z".into()));
    }
}
