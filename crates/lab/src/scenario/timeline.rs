//! What a link is at a moment of its timeline.
//!
//! Pure: the moment is counted from the start of the laboratory.

use std::time::Duration;

use super::{Event, Impairment, Link};

impl Link {
    /// The directions at `moment`, when `base` is what holds outside all events. Later events win over earlier ones.
    pub fn at(&self, base: [Impairment; 2], moment: Duration) -> [Impairment; 2] {
        let mut directions = base;
        for event in self.timeline.iter().filter(|event| event.is_active(moment)) {
            for (index, direction) in directions.iter_mut().enumerate() {
                if event.direction.is_none_or(|only| only == index) {
                    *direction = direction.with(&event.change);
                }
            }
        }
        directions
    }

    /// The next moment after `moment` at which an event begins or ends.
    pub fn next_change(&self, moment: Duration) -> Option<Duration> {
        self.timeline.iter().filter_map(|event| event.next_change(moment)).min()
    }
}

impl Event {
    fn is_active(&self, moment: Duration) -> bool {
        self.since_begin(moment).is_some_and(|since| self.lasts.is_none_or(|lasts| since < lasts))
    }

    fn next_change(&self, moment: Duration) -> Option<Duration> {
        let Some(since) = self.since_begin(moment) else { return Some(self.at) };
        let end = self.lasts.filter(|lasts| since < *lasts).map(|lasts| moment - since + lasts);
        end.or_else(|| self.every.filter(|every| !every.is_zero()).map(|every| moment - since + every))
    }

    /// Time since the event last began.
    fn since_begin(&self, moment: Duration) -> Option<Duration> {
        let since = moment.checked_sub(self.at)?;
        let Some(every) = self.every.filter(|every| !every.is_zero()) else { return Some(since) };
        Some(Duration::from_nanos((since.as_nanos() % every.as_nanos()) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Change, End};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn link(timeline: Vec<Event>) -> Link {
        let ends = [End::Site(0), End::Site(1)];
        Link { name: "wan".into(), ends, directions: [Impairment::default(); 2], timeline }
    }

    fn down(at: u64, lasts: Option<u64>, every: Option<u64>) -> Event {
        let change = Change { down: Some(true), ..Change::default() };
        Event { at: s(at), lasts: lasts.map(s), every: every.map(s), direction: None, change }
    }

    #[test]
    fn an_outage_begins_and_ends_and_a_flap_does_so_again_and_again() {
        let is_down = |link: &Link, moment| link.at(link.directions, s(moment)).map(|direction| direction.down);
        let outage = link(vec![down(20, Some(30), None)]);
        assert_eq!([19, 20, 49, 50].map(|moment| is_down(&outage, moment)[0]), [false, true, true, false]);
        assert_eq!([0, 20, 50].map(|moment| outage.next_change(s(moment))), [Some(s(20)), Some(s(50)), None]);
        let flap = link(vec![down(5, Some(1), Some(10))]);
        assert_eq!([4, 5, 6, 15, 16, 25].map(|at| is_down(&flap, at)[1]), [false, true, false, true, false, true]);
        assert_eq!([5, 6, 15].map(|at| flap.next_change(s(at))), [Some(s(6)), Some(s(15)), Some(s(16))]);
    }

    #[test]
    fn an_event_without_an_end_stays_and_may_be_for_one_direction() {
        let change = Change { bits_per_second: Some(Some(1_000_000)), ..Change::default() };
        let link = link(vec![Event { at: s(10), lasts: None, every: None, direction: Some(1), change }]);
        let [forward, backward] = link.at(link.directions, s(100));
        assert_eq!((forward.bits_per_second, backward.bits_per_second), (None, Some(1_000_000)));
        assert_eq!(link.next_change(s(100)), None);
    }
}
