//! Orders of each client that are being taken, over all of its sessions, in the order in which they came.
//!
//! A client that lost a session asks over another one what there is. What it had handed in before, and what is still being written
//! down, belongs to the answer: otherwise it would hand the same in once more, and have it done twice.
//!
//! Invariant: whoever asks waits for orders that came before, and for no later ones.

use model::Pin;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
pub struct Arrivals {
    /// Held to look, and to note one.
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Each client's, by their numbers.
    open: HashMap<Pin, BTreeSet<u64>>,
}

/// An order that is being taken, until this is dropped.
pub struct Arrival {
    arrivals: Arc<Arrivals>,
    client: Pin,
    number: u64,
}

impl Arrivals {
    /// An order came.
    pub fn note(self: &Arc<Arrivals>, client: Pin) -> Arrival {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.open.entry(client).or_default().insert(number);
        Arrival { arrivals: self.clone(), client, number }
    }

    /// What comes from here on is later than this.
    pub fn now(&self) -> u64 {
        self.lock().next
    }

    /// Waits until a client's orders that came before are taken or refused. False where that takes too long.
    pub fn wait(&self, client: Pin, before: u64, patience: Duration) -> bool {
        let is_open = |state: &mut State| {
            state.open.get(&client).and_then(|open| open.first()).is_some_and(|first| *first < before)
        };
        let waited = self.left.wait_timeout_while(self.lock(), patience, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        let mut state = self.arrivals.lock();
        if let Some(open) = state.open.get_mut(&self.client) {
            open.remove(&self.number);
            if open.is_empty() {
                state.open.remove(&self.client);
            }
        }
        drop(state);
        self.arrivals.left.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_waits_for_its_own_earlier_orders_and_for_no_others() {
        let arrivals = Arc::new(Arrivals::default());
        let (client, other) = (Pin([1; 32]), Pin([2; 32]));
        let (early, foreign) = (arrivals.note(client), arrivals.note(other));
        let asked = arrivals.now();
        let late = arrivals.note(client);
        assert!(!arrivals.wait(client, asked, Duration::from_millis(20)));
        let waiting = arrivals.clone();
        let waits = std::thread::spawn(move || waiting.wait(client, asked, Duration::from_secs(60)));
        drop(early);
        assert!(waits.join().unwrap());
        drop((late, foreign));
        assert!(arrivals.lock().open.is_empty());
    }
}
