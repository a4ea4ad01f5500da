//! The other side of a slice in which nothing moves: whether it is there at all. Whoever carries the slice out finds that out later, as it
//! tries for itself to reach it again.
//!
//! Invariants:
//! - Asking holds nobody up: a host that hangs is asked by a thread of its own, one at a time.
//! - No host counts as silent for a time in which nobody asked it, as where this side was held up.
//!
//! Not here: what becomes of the slice (`super`), and whoever carries it out (`slice`).

use super::work::thread;
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

/// Nothing moves for so long before anybody asks, and so long between two questions.
const ASK_AFTER: Duration = Duration::from_secs(3);
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Peer {
    answer: Option<mpsc::Receiver<bool>>,
    asked: Option<Instant>,
    /// When it last answered.
    heard: Option<Instant>,
    /// Since when it has been asked without an answer.
    unanswered: Option<Instant>,
}

impl Peer {
    /// For how long it has been silent: nothing has moved since `moved`, nor did it answer. `ask` may take its time.
    pub fn silence<A: FnOnce() -> bool + Send + 'static>(&mut self, moved: Instant, ask: impl Fn() -> A) -> Duration {
        match self.answer.as_ref().map(mpsc::Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) | None => {}
            Some(answer) => {
                self.answer = None;
                if answer == Ok(true) {
                    self.heard = Some(Instant::now());
                }
            }
        }
        let silence = self.heard.unwrap_or(moved).max(moved).elapsed();
        if silence < ASK_AFTER {
            self.unanswered = None;
            return silence;
        }
        let unanswered = *self.unanswered.get_or_insert_with(Instant::now);
        if self.answer.is_none() && self.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY) {
            let (ask, (tell, answer)) = (ask(), mpsc::channel());
            self.asked = Some(Instant::now());
            // Without a thread nobody knows: it counts as there.
            match thread("ask").spawn(move || _ = tell.send(ask())) {
                Ok(_) => self.answer = Some(answer),
                Err(_) => self.heard = Some(Instant::now()),
            }
        }
        silence.min(ASK_AFTER + unanswered.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ago(time: Duration) -> Instant {
        Instant::now().checked_sub(time).expect("a clock that began earlier")
    }

    /// Looks until the answer has come.
    fn look(peer: &mut Peer, moved: Instant, is_there: bool) -> Duration {
        peer.silence(moved, || move || is_there);
        let deadline = Instant::now() + Duration::from_secs(30);
        while peer.answer.is_some() && Instant::now() < deadline {
            std::thread::yield_now();
            peer.silence(moved, || move || is_there);
        }
        peer.silence(moved, || move || is_there)
    }

    #[test]
    fn one_that_answers_is_not_silent_however_long_nothing_moves() {
        let moved = ago(Duration::from_secs(60));
        let silent = || Peer { unanswered: Some(moved), ..Peer::default() };
        assert!(look(&mut silent(), moved, true) < Duration::from_secs(30));
        assert!(look(&mut silent(), moved, false) >= Duration::from_secs(60));
    }

    #[test]
    fn one_that_nobody_asked_is_not_silent_however_late_this_side_looks() {
        let moved = ago(Duration::from_secs(60));
        assert!(Peer::default().silence(moved, || || false) < Duration::from_secs(30));
    }

    #[test]
    fn one_that_hangs_is_asked_once_and_holds_nobody_up() {
        let (_hangs, until) = mpsc::channel::<()>();
        let until = std::sync::Arc::new(std::sync::Mutex::new(until));
        let asked = std::cell::Cell::new(0);
        let ask = || {
            asked.set(asked.get() + 1);
            let until = until.clone();
            move || until.lock().unwrap().recv().is_ok()
        };
        let moved = ago(Duration::from_secs(60));
        let mut peer = Peer { unanswered: Some(moved), ..Peer::default() };
        for _ in 0..3 {
            peer.asked = None;
            assert!(peer.silence(moved, ask) >= Duration::from_secs(60));
        }
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn nobody_is_asked_while_something_moves() {
        let (mut peer, now) = (Peer::default(), Instant::now());
        assert!(peer.silence(now, || -> fn() -> bool { unreachable!() }) < ASK_AFTER);
    }
}
