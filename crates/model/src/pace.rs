//! How fast a transfer may be, by the time of the week: `10M`, or `08:00,512K 12:00,10M 23:00,off`.
//!
//! Pure: the time comes in. Not here: holding a transfer to it (`mover::pace`).

use crate::quantity::parse_rate;
use std::fmt;

pub const MINUTES_OF_DAY: u32 = 24 * 60;
/// A timetable of more would be a mistake.
const SLOTS_MAX: usize = 256;

const DAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

/// Rates with the minutes of the week at which they begin. The last one of a week holds until the first one of the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timetable {
    /// In order, and never empty; bytes a second, nothing for as fast as it goes.
    slots: Vec<(u32, Option<u64>)>,
}

impl Timetable {
    /// Reads a rate, or entries `[DAY-]HH:MM,RATE` with blanks between them; an entry without a day is for every day.
    ///
    /// # Errors
    /// With words for the user.
    pub fn parse(text: &str) -> Result<Timetable, String> {
        if !text.contains(',') {
            return Ok(Timetable { slots: vec![(0, parse_rate(text.trim())?)] });
        }
        let mut slots: Vec<(u32, Option<u64>)> = Vec::new();
        for entry in text.split_whitespace() {
            let wrong = || format!("{entry:?} is not an entry of a timetable, such as 08:00,512K or Sat-12:30,off");
            let (time, rate) = entry.split_once(',').ok_or_else(wrong)?;
            let rate = parse_rate(rate)?;
            let (day, time) = match time.split_once('-') {
                Some((day, time)) => (Some(day_of_week(day).ok_or_else(wrong)?), time),
                None => (None, time),
            };
            let minute = minute_of_day(time).ok_or_else(wrong)?;
            let days = day.map_or(0..7, |day| day..day + 1);
            for minute in days.map(|day| day * MINUTES_OF_DAY + minute) {
                match slots.iter_mut().find(|(other, _)| *other == minute) {
                    Some(slot) => slot.1 = rate,
                    None => slots.push((minute, rate)),
                }
            }
        }
        if slots.is_empty() || slots.len() > SLOTS_MAX {
            return Err("a timetable has from 1 to 36 entries, such as `08:00,512K 23:00,off`".to_owned());
        }
        slots.sort_unstable_by_key(|(minute, _)| *minute);
        Ok(Timetable { slots })
    }

    /// The rate that holds at a minute of the week, counted from Sunday 00:00.
    pub fn rate_at(&self, minute_of_week: u32) -> Option<u64> {
        let begun = self.slots.iter().take_while(|(minute, _)| *minute <= minute_of_week).last();
        begun.or(self.slots.last()).and_then(|(_, rate)| *rate)
    }

    /// The lowest rate of all; nothing where there is no limit at any time.
    pub fn rate_min(&self) -> Option<u64> {
        self.slots.iter().filter_map(|(_, rate)| *rate).min()
    }
}

/// A form that `parse` reads back.
impl fmt::Display for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |rate: &Option<u64>| rate.map_or("off".to_owned(), |rate| format!("{rate}B"));
        if let [(0, only)] = &self.slots[..] {
            return f.write_str(&rate(only));
        }
        for (at, (minute, slot)) in self.slots.iter().enumerate() {
            let (day, of_day) = (DAYS[(minute / MINUTES_OF_DAY) as usize], minute % MINUTES_OF_DAY);
            let blank = if at == 0 { "" } else { " " };
            write!(f, "{blank}{}-{:02}:{:02},{}", &day[..3], of_day / 60, of_day % 60, rate(slot))?;
        }
        Ok(())
    }
}

fn day_of_week(text: &str) -> Option<u32> {
    let text = text.to_ascii_lowercase();
    let is_it = |day: &&str| text.len() >= 3 && day.starts_with(&text);
    DAYS.iter().position(is_it).map(|day| day as u32)
}

fn minute_of_day(text: &str) -> Option<u32> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.len() <= 2 && !text.starts_with('+'));
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str, times: &[(u32, u32, u32)]) -> Vec<Option<u64>> {
        let table = Timetable::parse(text).unwrap();
        times.iter().map(|(day, hour, minute)| table.rate_at(day * MINUTES_OF_DAY + hour * 60 + minute)).collect()
    }

    #[test]
    fn a_bare_rate_holds_all_week() {
        assert_eq!(rates("10M", &[(0, 0, 0), (3, 12, 0), (6, 23, 59)]), [Some(10 << 20); 3]);
        assert_eq!(rates("off", &[(0, 0, 0)]), [None]);
    }

    #[test]
    fn a_timetable_holds_from_each_time_to_the_next_and_over_midnight() {
        let times = [(1, 7, 59), (1, 8, 0), (1, 11, 59), (1, 12, 0), (1, 23, 0), (0, 0, 0)];
        let (slow, fast) = (Some(512 << 10), Some(10 << 20));
        assert_eq!(rates("08:00,512K 12:00,10M 23:00,off", &times), [None, slow, slow, fast, None, None]);
        // Before the first time of the week the last one holds.
        assert_eq!(
            rates("Mon-08:00,1M Fri-18:00,off", &[(0, 3, 0), (1, 8, 0), (5, 17, 59), (6, 0, 0)]),
            [None, Some(1 << 20), Some(1 << 20), None]
        );
        assert_eq!(rates("08:00,1M sunday-08:00,off", &[(0, 9, 0), (1, 9, 0)]), [None, Some(1 << 20)]);
    }

    #[test]
    fn the_lowest_rate_is_known() {
        assert_eq!(Timetable::parse("08:00,512K 12:00,10M").unwrap().rate_min(), Some(512 << 10));
        assert_eq!(Timetable::parse("off").unwrap().rate_min(), None);
    }

    #[test]
    fn a_timetable_reads_back_from_its_text() {
        for text in ["10M", "off", "08:00,512K 12:00,10M 23:00,off", "Sat-00:00,1M", "sun-00:00,off mon-00:00,1500B"] {
            let table = Timetable::parse(text).unwrap();
            assert_eq!(Timetable::parse(&table.to_string()), Ok(table.clone()), "{table}");
        }
    }

    #[test]
    fn what_is_no_timetable_is_refused_with_an_example() {
        for wrong in ["", "8,1M", "24:00,1M", "08:60,1M", "Xyz-08:00,1M", "08:00,1M 9", "08:00,", "+8:00,1M", ","] {
            assert!(Timetable::parse(wrong).is_err(), "{wrong}");
        }
    }
}
