//! Schedules in the queue: whose turn it is, and whether the job of the turn before is still open.

use crate::calendar::Now;
use crate::queue::Queue;
use crate::schedule::Schedule;
use model::{JobId, mutant};
use std::sync::Arc;

/// A slot has its turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Firing {
    pub schedule: Arc<str>,
    pub slot: i64,
    /// The job of the last turn is still open: nothing begins.
    pub is_overlap: bool,
}

impl Queue {
    /// Takes a schedule in, or what it has become.
    pub fn put_schedule(&mut self, schedule: Schedule) {
        self.schedules.known.insert(schedule.name.clone(), (schedule, i64::MIN));
    }

    pub fn drop_schedule(&mut self, name: &str) {
        self.schedules.known.remove(name);
    }

    pub fn schedule(&self, name: &str) -> Option<&Schedule> {
        self.schedules.known.get(name).map(|(schedule, _)| schedule)
    }

    /// Whose turn it is. Whoever asks writes each schedule down as it then is, together with the job that begins.
    pub fn fire(&mut self, now: Now) -> Vec<Firing> {
        let due = self.schedules.due(&*self.calendar, now.unix_ms);
        let firing = |(schedule, slot): (Arc<str>, i64)| {
            let job = self.schedule(&schedule).and_then(|schedule| schedule.job);
            let is_open = job.and_then(|job| self.get(job)).is_some_and(|job| !job.status.is_end());
            Firing { is_overlap: is_open && !mutant::is_on("schedule-overlaps"), schedule, slot }
        };
        due.into_iter().map(firing).collect()
    }

    /// The job of a schedule's last turn.
    pub fn fired(&mut self, name: &str, job: JobId) {
        if let Some((schedule, _)) = self.schedules.known.get_mut(name) {
            schedule.job = Some(job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::{Calendar, Opening, Slots};
    use crate::queue::Limits;
    use crate::schedule::RANGES_MAX;

    /// A slot each ten.
    struct Tens;

    impl Calendar for Tens {
        fn opening(&self, _windows: &str, _unix_ms: i64) -> Opening {
            Opening { is_open: true, until: i64::MAX }
        }

        fn slots(&self, _times: &str, unix_ms: i64) -> Slots {
            let last = unix_ms.div_euclid(10) * 10;
            Slots { last: Some(last), next: Some(last + 10) }
        }
    }

    fn queue() -> Queue {
        let mut queue = Queue::new(Limits::default(), Box::new(Tens));
        let (dealt, job) = (Vec::new(), None);
        let (name, times) = ("nightly".into(), "".into());
        queue.put_schedule(Schedule { name, times, since: 100, is_paused: false, dealt, job });
        queue
    }

    fn slots(queue: &mut Queue, unix_ms: i64) -> Vec<i64> {
        queue.fire(Now { ms: 0, unix_ms }).into_iter().map(|firing| firing.slot).collect()
    }

    #[test]
    fn a_slot_has_one_turn_whatever_the_clock_does() {
        let mut queue = queue();
        assert_eq!(slots(&mut queue, 109), [0_i64; 0]);
        assert_eq!(slots(&mut queue, 110), [110]);
        assert_eq!(slots(&mut queue, 115), [0_i64; 0]);
        // Set back a little, and on again.
        assert_eq!(slots(&mut queue, 109), [0_i64; 0]);
        assert_eq!(slots(&mut queue, 111), [0_i64; 0]);
        assert_eq!(slots(&mut queue, 120), [120]);
        // Far ahead and back: the slots in between were nobody's turn yet.
        assert_eq!(slots(&mut queue, 9_000), [9_000]);
        assert_eq!(slots(&mut queue, 125), [0_i64; 0]);
        assert_eq!(slots(&mut queue, 130), [130]);
        assert_eq!(slots(&mut queue, 9_001), [0_i64; 0]);
        assert_eq!(queue.schedule("nightly").unwrap().dealt, [(110, 130), (9_000, 9_000)]);
    }

    #[test]
    fn of_the_slots_that_were_missed_one_has_its_turn() {
        let mut queue = queue();
        assert_eq!(slots(&mut queue, 110), [110]);
        assert_eq!(slots(&mut queue, 555), [550]);
        assert_eq!(slots(&mut queue, 560), [560]);
        assert_eq!(queue.schedule("nightly").unwrap().dealt, [(110, 110), (550, 560)]);
    }

    #[test]
    fn ranges_that_meet_become_one_and_their_number_is_bounded() {
        let mut queue = queue();
        for slot in [120, 140, 130, 110] {
            assert_eq!(slots(&mut queue, slot), [slot]);
        }
        assert_eq!(queue.schedule("nightly").unwrap().dealt, [(110, 140)]);
        (1..100).for_each(|n| _ = slots(&mut queue, 1_000 * n));
        let dealt = queue.schedule("nightly").unwrap().dealt.clone();
        assert_eq!((dealt.len(), dealt[0].0, dealt[15]), (RANGES_MAX, 110, (99_000, 99_000)));
        assert!((1..100).all(|n| slots(&mut queue, 1_000 * n).is_empty()));
    }

    #[test]
    fn a_paused_one_has_no_turn() {
        let mut queue = queue();
        let paused = Schedule { is_paused: true, ..queue.schedule("nightly").unwrap().clone() };
        queue.put_schedule(paused.clone());
        assert_eq!(slots(&mut queue, 200), [0_i64; 0]);
        queue.put_schedule(Schedule { is_paused: false, since: 205, ..paused });
        assert_eq!(slots(&mut queue, 205), [0_i64; 0]);
        assert_eq!(slots(&mut queue, 210), [210]);
    }
}
