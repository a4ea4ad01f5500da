//! Sealed small objects in memory, until a store that takes each by a request of its own has published them.
//!
//! Invariant: what all lanes hold is bounded. Above `HELD_BYTES_MAX` a lane waits for `PATIENCE` at most; above `HELD_BYTES_BOUND` as
//! long as anything is taken. Whoever publishes takes what is held already and needs no lane for it, so that none waits for itself;
//! after the end of a job nobody takes anything, and a lane that waits goes on after `STALL`.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Held by all lanes before one waits.
const HELD_BYTES_MAX: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// Held by all lanes at most, and one object more.
const HELD_BYTES_BOUND: usize = 4 * HELD_BYTES_MAX;
const STALL: Duration = Duration::from_secs(60);

/// Objects by number, each with the bytes of memory that it takes.
pub struct Held<T> {
    state: Mutex<State<T>>,
    freed: Condvar,
}

struct State<T> {
    objects: HashMap<u64, (T, usize)>,
    bytes: usize,
    last: u64,
    /// How many were taken.
    taken: u64,
}

impl<T> Default for Held<T> {
    fn default() -> Held<T> {
        let state = State { objects: HashMap::new(), bytes: 0, last: 0, taken: 0 };
        Held { state: Mutex::new(state), freed: Condvar::new() }
    }
}

impl<T> Held<T> {
    pub fn put(&self, object: T, bytes: usize) -> u64 {
        self.put_within(object, bytes, PATIENCE)
    }

    fn put_within(&self, object: T, bytes: usize, patience: Duration) -> u64 {
        let began = Instant::now();
        let mut state = self.state.lock().unwrap();
        let (mut taken, mut since) = (state.taken, began);
        while state.bytes > HELD_BYTES_MAX && (state.bytes > HELD_BYTES_BOUND || began.elapsed() < patience) {
            if state.taken != taken {
                (taken, since) = (state.taken, Instant::now());
            }
            if since.elapsed() >= STALL {
                break;
            }
            state = self.freed.wait_timeout(state, Duration::from_millis(100)).unwrap().0;
        }
        state.last += 1;
        let number = state.last;
        state.insert(number, object, bytes);
        number
    }

    /// Puts back what was taken, as it is by then.
    pub fn put_back(&self, number: u64, object: T, bytes: usize) {
        self.state.lock().unwrap().insert(number, object, bytes);
    }

    pub fn take(&self, number: u64) -> Option<T> {
        let mut state = self.state.lock().unwrap();
        let (object, bytes) = state.objects.remove(&number)?;
        state.bytes -= bytes;
        state.taken += 1;
        self.freed.notify_all();
        Some(object)
    }

    /// Takes all that is left.
    pub fn take_all(&self) -> Vec<T> {
        let mut state = self.state.lock().unwrap();
        state.bytes = 0;
        self.freed.notify_all();
        state.objects.drain().map(|(_, (object, _))| object).collect()
    }
}

impl<T> State<T> {
    fn insert(&mut self, number: u64, object: T, bytes: usize) {
        self.bytes += bytes;
        self.objects.insert(number, (object, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::sync::mpsc::channel;

    #[test]
    fn no_more_is_held_than_the_bound_and_one_object_however_slowly_it_is_taken() {
        let held: Held<u32> = Held::default();
        let (tell, told) = channel();
        std::thread::scope(|scope| {
            let held = &held;
            scope.spawn(move || {
                for object in 0..20 {
                    tell.send(held.put_within(object, HELD_BYTES_MAX, Duration::ZERO)).unwrap();
                }
            });
            // Those that have room.
            let mut there: VecDeque<u64> = told.iter().take(5).collect();
            while let Some(number) = there.pop_front() {
                assert!(held.state.lock().unwrap().bytes <= HELD_BYTES_BOUND + HELD_BYTES_MAX);
                held.take(number).unwrap();
                there.extend(told.recv());
            }
        });
        assert_eq!(held.state.lock().unwrap().bytes, 0);
    }
}
