//! Questions about files at the endpoint: which are under way in a session, and how far each may be answered.
//!
//! Invariants:
//! - A question holds one thread and what `files::answer` bounds; questions of a session are bounded (`ASKS_MAX`), those of a
//!   key, a client and all clients are shared out (`room`).
//! - A question ends with its session, and when the client says `Stop`: between two names, never in the middle of one.
//! - At most `BATCHES_AHEAD` parts are sent that the client has not taken, and an answer that is not taken for as long as a
//!   job may stand still ends.

use super::seats::Seat;
use model::files::Question;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use wire::limits::{ASKS_MAX, BATCHES_AHEAD};
use wire::message::Proceed;
use wire::{CloseCode, Refusal};

/// The questions of one session.
#[derive(Default)]
pub struct Asks {
    open: Mutex<HashMap<u32, Arc<Asked>>>,
}

/// A question under way.
pub struct Asked {
    pub question: Question,
    is_stopped: AtomicBool,
    /// Why it was stopped, if not by the client.
    refused: OnceLock<Refusal>,
    /// Parts that may be sent in all.
    granted: Mutex<u64>,
    changed: Condvar,
    /// Since when a part waits to be taken.
    waits_since: Mutex<Option<Instant>>,
    seat: Seat,
}

impl Asks {
    pub fn count(&self) -> usize {
        self.open.lock().unwrap().len()
    }

    pub fn all(&self) -> Vec<Arc<Asked>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The session is over.
    pub fn stop_all(&self) {
        self.all().iter().for_each(|asked| asked.stop());
    }

    pub fn stop(&self, number: u32) {
        if let Some(asked) = self.find(number) {
            asked.stop();
        }
    }

    pub fn proceed(&self, proceed: Proceed) {
        if let Some(asked) = self.find(proceed.number) {
            let mut granted = asked.granted.lock().unwrap();
            *granted = proceed.batches.max(*granted);
            asked.changed.notify_all();
        }
    }

    /// A question that has its seat, from here on under way.
    pub fn begin(&self, number: u32, question: Question, seat: Seat) -> Result<Arc<Asked>, Refusal> {
        let mut open = self.open.lock().unwrap();
        if open.contains_key(&number) || open.len() >= ASKS_MAX {
            return Err(Refusal::new(CloseCode::Limit, "a question of this number is open, or too many are"));
        }
        let asked = Arc::new(Asked {
            question,
            is_stopped: AtomicBool::new(false),
            refused: OnceLock::new(),
            granted: Mutex::new(BATCHES_AHEAD),
            changed: Condvar::new(),
            waits_since: Mutex::default(),
            seat,
        });
        open.insert(number, asked.clone());
        Ok(asked)
    }

    pub fn forget(&self, number: u32) {
        self.open.lock().unwrap().remove(&number);
    }

    fn find(&self, number: u32) -> Option<Arc<Asked>> {
        self.open.lock().unwrap().get(&number).cloned()
    }
}

impl Asked {
    pub fn stop(&self) {
        self.is_stopped.store(true, Relaxed);
        // Whoever waits for room has to look again, also one that has just looked.
        drop(self.granted.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Ends the answer because of rights that have ended.
    pub fn refuse(&self, refusal: Refusal) {
        let _ = self.refused.set(refusal);
        self.stop();
    }

    /// The same, and its place is free at once.
    pub fn give_up(&self, refusal: Refusal) {
        self.seat.give_up();
        self.refuse(refusal);
    }

    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Why it ended, if not by the client.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refused.get().cloned()
    }

    /// Hands over a part: whoever does not take it may hold its sender up here, and counts as waited for.
    pub fn hand_over<T>(&self, since: Instant, send: impl FnOnce() -> T) -> T {
        *self.waits_since.lock().unwrap() = Some(since);
        let sent = send();
        *self.waits_since.lock().unwrap() = None;
        sent
    }

    /// For how long a part has waited to be taken, if one does.
    pub fn waits_for(&self) -> Option<Duration> {
        self.waits_since.lock().unwrap().map(|since| since.elapsed())
    }

    /// Waits until part `number`, counted from 1, may be sent. False when none is wanted any more.
    pub fn wait_for_room(&self, number: u64, patience: Duration) -> bool {
        let mut granted = self.granted.lock().unwrap();
        if *granted < number {
            let since = Instant::now();
            *self.waits_since.lock().unwrap() = Some(since);
            while *granted < number && !self.is_stopped() {
                let Some(left) = patience.checked_sub(since.elapsed()) else {
                    let text = format!("none of the answer was read for {} s", patience.as_secs());
                    let _ = self.refused.set(Refusal::new(CloseCode::NoProgress, &text));
                    self.is_stopped.store(true, Relaxed);
                    break;
                };
                granted = self.changed.wait_timeout(granted, left).unwrap().0;
            }
            *self.waits_since.lock().unwrap() = None;
        }
        !self.is_stopped()
    }
}
