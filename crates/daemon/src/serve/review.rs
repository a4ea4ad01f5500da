//! The thread that looks again at the rights of those who are here: what expired or was revoked ends within two rounds.
//!
//! Invariants:
//! - It cannot stop unnoticed: a round that panics is told and followed by the next one; after `PANICS_MAX` in a row, or when
//!   no round ends for `STANDSTILL_MAX`, the endpoint ends with an error (`Watch`), and with it everything that runs.
//! - Signs of life for systemd depend on it (`Pulse`).

use crate::error::{Error, Result};
use model::{Exit, mutant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::error;

/// F029 asks for 60 s at most. A few small files are read for each session and each job.
pub const REVIEW_INTERVAL: Duration = Duration::from_secs(2);
/// Rounds that panic one after the other.
const PANICS_MAX: u32 = 3;
/// Without a round that ended, an endpoint cannot promise any more what F029 asks for.
const STANDSTILL_MAX: Duration = Duration::from_secs(60);
/// Without one for this long, systemd hears no sign of life; it has a patience of its own.
const PULSE_AGE_MAX: Duration = Duration::from_secs(30);

pub struct Review {
    state: Arc<State>,
}

struct State {
    is_stopped: Mutex<bool>,
    came: Condvar,
    /// Rounds that have ended in order.
    rounds: AtomicU64,
    last: Mutex<Instant>,
    is_given_up: AtomicBool,
}

impl Review {
    /// `look` makes one round, and returns how many sessions could not be reviewed and were cut off.
    pub fn start(look: impl FnMut() -> usize + Send + 'static) -> Result<Review> {
        Review::start_every(REVIEW_INTERVAL, look)
    }

    fn start_every(interval: Duration, mut look: impl FnMut() -> usize + Send + 'static) -> Result<Review> {
        let state = Arc::new(State {
            is_stopped: Mutex::default(),
            came: Condvar::new(),
            rounds: AtomicU64::new(0),
            last: Mutex::new(Instant::now()),
            is_given_up: AtomicBool::new(false),
        });
        let of_thread = state.clone();
        let run = move || {
            let mut panics = 0;
            while panics < PANICS_MAX && !of_thread.is_stopped_within(interval) {
                panics = if of_thread.round(&mut look) { 0 } else { panics + 1 };
            }
            of_thread.is_given_up.store(panics >= PANICS_MAX, Relaxed);
        };
        let spawned = std::thread::Builder::new().name("review".into()).spawn(run);
        spawned.map_err(|e| Error::new(Exit::Failed, format!("start a thread: {e}")))?;
        Ok(Review { state })
    }

    pub fn stop(&self) {
        *self.state.is_stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.state.came.notify_all();
    }

    pub fn pulse(&self) -> Pulse {
        Pulse { state: self.state.clone() }
    }

    pub fn watch(&self) -> Watch {
        Watch { state: self.state.clone(), rounds: 0, stood: Duration::ZERO }
    }
}

impl State {
    fn is_stopped_within(&self, patience: Duration) -> bool {
        let is_set = self.is_stopped.lock().unwrap_or_else(PoisonError::into_inner);
        *self.came.wait_timeout_while(is_set, patience, |is_set| !*is_set).unwrap_or_else(PoisonError::into_inner).0
    }

    /// False when the round panicked.
    fn round(&self, look: &mut impl FnMut() -> usize) -> bool {
        if mutant::is_on("review-may-die") {
            look();
        } else {
            match catch_unwind(AssertUnwindSafe(look)) {
                Ok(0) => {}
                Ok(sessions) => error!(sessions, "sessions could not be reviewed and were cut off; this is a bug"),
                Err(_) => {
                    error!("the review of rights failed and is repeated; this is a bug");
                    return false;
                }
            }
        }
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.rounds.fetch_add(1, Relaxed);
        true
    }
}

/// Whether rights are looked at.
pub struct Pulse {
    state: Arc<State>,
}

impl Pulse {
    pub fn is_there(&self) -> bool {
        let last = *self.state.last.lock().unwrap_or_else(PoisonError::into_inner);
        !self.state.is_given_up.load(Relaxed) && last.elapsed() < PULSE_AGE_MAX
    }
}

/// Notices that rights are not looked at any more.
pub struct Watch {
    state: Arc<State>,
    rounds: u64,
    /// By the ticks of whoever looks, not by a clock: a process that was stopped and goes on has missed nothing.
    stood: Duration,
}

impl Watch {
    /// Called every `tick`.
    ///
    /// # Errors
    /// When the endpoint must not go on.
    pub fn look(&mut self, tick: Duration) -> Result<()> {
        let rounds = self.state.rounds.load(Relaxed);
        self.stood = if rounds == self.rounds { self.stood + tick } else { Duration::ZERO };
        self.rounds = rounds;
        let failed = |what: &str| {
            Err(Error::new(Exit::Fatal, format!("{what}, so rights can no longer be withdrawn: the endpoint stops"))
                .hint("start it again; its log says what went wrong"))
        };
        if self.state.is_given_up.load(Relaxed) {
            return failed("the review of rights failed three times in a row");
        }
        if self.stood >= STANDSTILL_MAX {
            return failed("rights could not be checked for 60 s");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(1);

    /// A review whose rounds end as they are told: `false` panics.
    fn review(rounds: Vec<bool>) -> (Review, std::sync::mpsc::Receiver<()>) {
        let (told, tell) = channel();
        let mut rounds = rounds.into_iter();
        let look = move || {
            let is_well = rounds.next();
            let _ = told.send(());
            match is_well {
                Some(true) => 0,
                Some(false) => panic!("injected: a round of the review panics"),
                None => loop {
                    std::thread::park();
                },
            }
        };
        (Review::start_every(SHORT, look).unwrap(), tell)
    }

    #[track_caller]
    fn until(mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < deadline, "waited in vain");
            std::thread::park_timeout(SHORT);
        }
    }

    #[test]
    fn a_review_that_panics_is_made_again() {
        let (review, rounds) = review(vec![true, false, false, true, false, true]);
        for round in 0..7 {
            rounds.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("round {round} was not made"));
        }
        assert!(review.watch().look(SHORT).is_ok() && review.pulse().is_there());
        assert_eq!(review.state.rounds.load(Relaxed), 3);
    }

    #[test]
    fn a_review_that_panics_always_ends_the_endpoint_and_its_signs_of_life() {
        let (review, _rounds) = review(vec![true, false, false, false]);
        let mut watch = review.watch();
        until(|| watch.look(SHORT).is_err());
        let error = watch.look(SHORT).unwrap_err();
        assert!(error.message.contains("three times") && error.exit == Exit::Fatal, "{error}");
        assert!(!review.pulse().is_there());
    }

    #[test]
    fn a_review_that_hangs_ends_the_endpoint_and_one_that_was_stopped_does_not() {
        let (review, rounds) = review(vec![true]);
        (0..2).for_each(|_| rounds.recv_timeout(PATIENCE).unwrap());
        let mut watch = review.watch();
        // The first look sees a round that it had not seen.
        let looks = (0..).find(|_| watch.look(Duration::from_secs(10)).is_err());
        assert_eq!(looks, Some(6));
        assert!(review.pulse().is_there(), "too young to be missed by systemd");
        *review.state.last.lock().unwrap() = Instant::now().checked_sub(PULSE_AGE_MAX).unwrap();
        assert!(!review.pulse().is_there());
    }
}
