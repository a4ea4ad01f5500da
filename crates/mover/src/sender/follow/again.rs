//! Files that failed at the destination and grow on: they are tried again, and not with each of their writes.
//!
//! Not here: what trying is (`follow`).

use os::time::Instant;
use std::collections::HashMap;
use std::time::Duration;

/// Between a failure and the next try, doubled each time up to the second.
pub const PAUSE_FIRST: Duration = Duration::from_secs(1);
pub const PAUSE_MAX: Duration = Duration::from_secs(60);

/// By the numbers that the watch gave the files.
#[derive(Default)]
pub struct Pauses(HashMap<u64, Pause>);

struct Pause {
    length: Duration,
    until: Instant,
    /// How far the file has grown meanwhile.
    grown_bytes: Option<u64>,
}

impl Pauses {
    pub fn failed(&mut self, number: u64, at: Instant) {
        // One that has gone well for so long begins anew.
        let last = self.0.get(&number).filter(|pause| at < pause.until + 2 * PAUSE_MAX);
        let length = last.map_or(PAUSE_FIRST, |pause| (pause.length * 2).min(PAUSE_MAX));
        self.0.insert(number, Pause { length, until: at + length, grown_bytes: None });
    }

    /// Whether a file that has grown to this is to be tried again now. If not, `due` tells of it later.
    pub fn is_over(&mut self, number: u64, grown_bytes: u64, now: Instant) -> bool {
        let pause = self.0.get_mut(&number).filter(|pause| now < pause.until);
        pause.is_none_or(|pause| {
            pause.grown_bytes = Some(grown_bytes);
            false
        })
    }

    /// Files that have grown while they were not to be tried, and are to be now, and how far.
    pub fn due(&mut self, now: Instant) -> Vec<(u64, u64)> {
        let over = self.0.iter_mut().filter(|(_, pause)| pause.until <= now);
        over.filter_map(|(number, pause)| Some((*number, pause.grown_bytes.take()?))).collect()
    }

    /// It is being tried again, with all that there is of it.
    pub fn tried(&mut self, number: u64) {
        if let Some(pause) = self.0.get_mut(&number) {
            pause.grown_bytes = None;
        }
    }

    pub fn forget(&mut self, number: u64) {
        self.0.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fails_again_and_again_is_tried_ever_more_rarely_and_none_of_its_growth_is_forgotten() {
        let (mut pauses, began) = (Pauses::default(), Instant::now());
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        assert!(pauses.is_over(7, 1, at(0)), "it has not failed");
        let mut failed = 0;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            pauses.failed(7, at(failed));
            assert!(!pauses.is_over(7, 10, at(failed)) && !pauses.is_over(7, 11, at(failed + pause - 1)));
            assert!(pauses.due(at(failed + pause - 1)).is_empty() && pauses.is_over(8, 1, at(failed)));
            assert_eq!(pauses.due(at(failed + pause)), [(7, 11)]);
            assert!(pauses.due(at(failed + pause)).is_empty() && pauses.is_over(7, 12, at(failed + pause)));
            failed += pause;
        }
        pauses.failed(7, at(failed));
        assert!(!pauses.is_over(7, 13, at(failed)));
        pauses.tried(7);
        assert!(pauses.due(at(failed + 60)).is_empty(), "it is complete, and was described whole");
        pauses.forget(7);
        pauses.failed(7, at(failed));
        assert!(pauses.is_over(7, 14, at(failed + 1)));
    }
}
