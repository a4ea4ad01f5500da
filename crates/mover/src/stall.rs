//! Tells a job that waits from one that is stuck: nothing moved for long, and one side owes the other something.
//!
//! The network is not judged here: a lost one ends the control stream, a silent stream is broken off (`session`). What is left
//! is a peer that answers and never gets on (F107), a reader or writer that crawls (F016), and storage that hangs for
//! longer than storage may (F078).
//!
//! A value without a clock. Not here: what counts as owed (`sender`, `receiver`).

use std::time::{Duration, Instant};

/// What a job has come to, as far as progress is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headway {
    /// Changes whenever something moved, or was listed, settled or worked on, on either side.
    pub mark: u64,
    /// Somebody has to do something: the job does not just wait for its source.
    pub is_owed: bool,
}

#[derive(Default, Debug)]
pub struct Stall {
    last: Option<(u64, Instant)>,
}

impl Stall {
    /// How long the job has been stuck.
    pub fn stuck_for(&mut self, headway: Headway, now: Instant) -> Duration {
        match self.last {
            Some((mark, since)) if mark == headway.mark && headway.is_owed => now.saturating_duration_since(since),
            _ => {
                self.last = Some((headway.mark, now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_job_that_is_owed_something_and_does_not_move_is_stuck() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let stuck = |mark, is_owed| Headway { mark, is_owed };
        let mut stall = Stall::default();
        assert_eq!(stall.stuck_for(stuck(0, true), at(0)), Duration::ZERO);
        assert_eq!(stall.stuck_for(stuck(0, true), at(600)), Duration::from_secs(600));
        assert_eq!(stall.stuck_for(stuck(1, true), at(700)), Duration::ZERO);
        assert_eq!(stall.stuck_for(stuck(1, true), at(800)), Duration::from_secs(100));
        // An idle source may rest as long as it likes.
        assert_eq!(stall.stuck_for(stuck(1, false), at(5000)), Duration::ZERO);
        assert_eq!(stall.stuck_for(stuck(1, true), at(5001)), Duration::from_secs(1));
    }
}
