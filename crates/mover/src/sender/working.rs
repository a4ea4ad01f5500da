//! How many of a job's lanes work; the others rest between two units of work, with their streams open, and come back at once.
//!
//! Invariants: at least one lane works; where none has to rest, a claim costs one load. A lane that rests has everything settled by
//! others, or by the stream that it still watches.
//!
//! Not here: how many should (`plan::tuner`).

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Who says how many.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Here = 0,
    ByReceiver = 1,
    /// By whoever looks after losses: with BBR, few fill a path.
    ForLosses = 2,
}

#[derive(Default)]
pub struct Working {
    /// 0 for all of them.
    most: [AtomicU32; 3],
    /// Those that have memory and take work. Held for a lookup, inside the book's lock or without it.
    lanes: Mutex<BTreeSet<u32>>,
}

impl Working {
    /// True when that is something else.
    pub fn set(&self, said: Said, most: u32) -> bool {
        self.most[said as usize].swap(most, Relaxed) != most
    }

    /// Counts a lane among those that work, until what is returned is dropped.
    pub fn enter(&self, lane: u32) -> Entered<'_> {
        self.lanes.lock().unwrap().insert(lane);
        Entered { working: self, lane }
    }

    /// The oldest lanes work.
    pub fn may_work(&self, lane: u32) -> bool {
        let said = self.most.each_ref().map(|most| most.load(Relaxed));
        let Some(most) = said.into_iter().filter(|most| *most > 0).min() else { return true };
        self.lanes.lock().unwrap().range(..lane).count() < most as usize
    }
}

pub struct Entered<'a> {
    working: &'a Working,
    lane: u32,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.working.lanes.lock().unwrap().remove(&self.lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_work_and_the_next_takes_the_place_of_one_that_ended() {
        let working = Working::default();
        let mut entered: Vec<_> = (0..4).map(|lane| working.enter(lane)).collect();
        let at_work = |working: &Working| (0..4).filter(|lane| working.may_work(*lane)).collect::<Vec<_>>();
        assert_eq!(at_work(&working), [0, 1, 2, 3]);
        working.set(Said::Here, 2);
        assert_eq!(at_work(&working), [0, 1]);
        drop(entered.remove(0));
        assert_eq!(at_work(&working)[1..], [1, 2], "the lane that ended is asked by nobody");
        working.set(Said::ByReceiver, 1);
        assert_eq!(at_work(&working)[1..], [1]);
        working.set(Said::Here, 0);
        working.set(Said::ByReceiver, 0);
        assert_eq!(at_work(&working), [0, 1, 2, 3]);
    }
}
