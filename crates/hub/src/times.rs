//! The moments of a schedule: times of day on days of the week, in a named zone.
//!
//! A local time that the clocks skip is the moment of the change; of one that they repeat it is the first.

use crate::windows::{DAYS_MAX, TIME_BYTES_MAX, day, time, zone};
use crate::{Error, Result};
use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use model::{Exit, mutant};
use queue::Slots;
use serde::{Deserialize, Serialize};

/// Times of one schedule.
const TIMES_MAX: usize = 96;
/// Slots are looked for so many days around a moment: a week, and what zones and changes of clocks add.
const DAYS_AROUND: i64 = 9;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// `02:30`, or `*:30` for each hour.
    pub at: Vec<String>,
    /// `mon` to `sun`; all of them where none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
    /// Such as `Europe/Berlin`; UTC where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

struct Parsed {
    at: Vec<Time>,
    days: Vec<Weekday>,
    zone: TimeZone,
}

impl Times {
    pub fn check(&self) -> Result<()> {
        if self.at.is_empty() || self.at.len() > TIMES_MAX {
            let text = format!("a schedule has 1 to {TIMES_MAX} times of day");
            return Err(Error::new(Exit::Usage, text).hint("such as 02:30, or *:30 for each hour"));
        }
        if self.days.len() > DAYS_MAX || self.at.iter().any(|at| at.len() > TIME_BYTES_MAX) {
            return Err(Error::new(Exit::Usage, "a schedule has at most 7 days, and times such as 02:30")
                .hint("name each day once: mon, tue, wed, thu, fri, sat or sun"));
        }
        self.parse().map(drop)
    }

    fn parse(&self) -> Result<Parsed> {
        let mut at = Vec::new();
        for text in &self.at {
            match text.strip_prefix("*:") {
                None => at.push(time(text)?),
                Some(minute) => {
                    let first = time(&format!("00:{minute}"))?;
                    at.extend((0..24).filter_map(|hour| Time::new(hour, first.minute(), 0, 0).ok()));
                }
            }
        }
        at.sort_unstable();
        at.dedup();
        let days = self.days.iter().map(|text| day(text)).collect::<Result<Vec<_>>>()?;
        Ok(Parsed { at, days, zone: zone(self.zone.as_deref())? })
    }
}

impl Parsed {
    fn slots(&self, unix_ms: i64) -> Option<Slots> {
        let today = Timestamp::from_millisecond(unix_ms).ok()?.to_zoned(self.zone.clone()).date();
        let on = |ahead: i64| today.checked_add(ahead.days()).map_or_else(|_| Vec::new(), |date| self.of_day(date));
        // The nearest days first. Where clocks change at midnight, one of the day on the other side may be nearer still.
        let next = (-1..=DAYS_AROUND).find_map(|ahead| on(ahead).into_iter().filter(|at| *at > unix_ms).min());
        let last = (-1..=DAYS_AROUND).find_map(|back| on(-back).into_iter().filter(|at| *at <= unix_ms).max());
        Some(Slots { last, next })
    }

    fn of_day(&self, date: Date) -> Vec<i64> {
        match self.days.is_empty() || self.days.contains(&date.weekday()) {
            true => self.at.iter().flat_map(|time| self.moments(date.to_datetime(*time))).collect(),
            false => Vec::new(),
        }
    }

    fn moments(&self, local: DateTime) -> Vec<i64> {
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        let found = match ambiguous.offset() {
            AmbiguousOffset::Gap { .. } => ambiguous.later().ok().and_then(|later| {
                // The change itself is no later than that.
                let after = later.checked_add(1.second()).ok()?;
                self.zone.preceding(after).next().map(|change| change.timestamp())
            }),
            AmbiguousOffset::Fold { .. } if mutant::is_on("schedule-twice-at-the-hour-change") => {
                let both = [ambiguous.earlier(), ambiguous.later()];
                return both.into_iter().flatten().map(Timestamp::as_millisecond).collect();
            }
            _ => ambiguous.earlier().ok(),
        };
        found.map(Timestamp::as_millisecond).into_iter().collect()
    }
}

/// The slots around a moment; none where the times cannot be read any more, because their zone is gone.
pub fn slots(times: &str, unix_ms: i64) -> Slots {
    let times: Option<Times> = serde_json::from_str(times).ok();
    times.and_then(|times| times.parse().ok()?.slots(unix_ms)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(times: &str, at: &str) -> (String, String) {
        let at: Timestamp = at.parse().unwrap();
        let shown = |ms: Option<i64>| Timestamp::from_millisecond(ms.unwrap()).unwrap().to_string();
        let Slots { last, next } = slots(times, at.as_millisecond());
        (shown(last), shown(next))
    }

    #[test]
    fn slots_are_found_on_both_sides_across_weeks() {
        let friday = r#"{"at":["22:00"],"days":["fri"]}"#;
        // 2027-01-01 is a Friday.
        let (last, next) = around(friday, "2027-01-01T21:59:59Z");
        assert_eq!((&last[..], &next[..]), ("2026-12-25T22:00:00Z", "2027-01-01T22:00:00Z"));
        assert_eq!(around(friday, "2027-01-01T22:00:00Z").0, "2027-01-01T22:00:00Z");
        let hourly = r#"{"at":["*:15","12:00"]}"#;
        let (last, next) = around(hourly, "2027-01-01T12:00:01Z");
        assert_eq!((&last[..], &next[..]), ("2027-01-01T12:00:00Z", "2027-01-01T12:15:00Z"));
    }

    #[test]
    fn what_the_clocks_skip_is_at_the_change_and_what_they_repeat_is_once() {
        if TimeZone::get("Europe/Berlin").is_err() {
            eprintln!("skipped: this host has no time zones");
            return;
        }
        // 2027-03-28 02:00 is skipped to 03:00, at 01:00 UTC; 2027-10-31 03:00 goes back to 02:00, at 01:00 UTC.
        for at in ["02:00", "02:30", "02:59"] {
            let times = format!(r#"{{"at":["{at}"],"zone":"Europe/Berlin"}}"#);
            assert_eq!(around(&times, "2027-03-28T00:59:59Z").1, "2027-03-28T01:00:00Z", "{at}");
        }
        let times = r#"{"at":["02:30","03:00"],"zone":"Europe/Berlin"}"#;
        assert_eq!(around(times, "2027-03-28T01:00:00Z").1, "2027-03-29T00:30:00Z");
        let night = r#"{"at":["02:30"],"zone":"Europe/Berlin"}"#;
        assert_eq!(around(night, "2027-10-31T00:29:59Z").1, "2027-10-31T00:30:00Z");
        assert_eq!(around(night, "2027-10-31T00:30:00Z").1, "2027-11-01T01:30:00Z");
        assert_eq!(around(night, "2027-10-31T01:45:00Z").0, "2027-10-31T00:30:00Z");
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let times = |at: &[&str]| Times { at: at.iter().map(|at| (*at).into()).collect(), days: vec![], zone: None };
        for at in [&[][..], &["24:00"], &["*:60"], &["x"], &["*"]] {
            assert!(times(at).check().is_err(), "{at:?}");
        }
        assert!(times(&["00:00", "*:59"]).check().is_ok());
        assert_eq!(times(&["*:15", "03:15", "*:15"]).parse().unwrap().at.len(), 24);
        assert_eq!(slots("nonsense", 0), Slots::default());
    }
}
