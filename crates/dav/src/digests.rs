//! Whose turn it is to ask a server for a checksum: one at a time. XRootD 5.5 crashes when it computes several at once,
//! or has a client wait 30 s (decision 019).
//!
//! Invariants: nobody asks while another one does; whoever waits for that leaves within `SLICE` of being told to stop.
//!
//! Not here: the requests (`checksums`).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// After so many files without a checksum a server is taken for one that states none.
const UNSTATED_MAX: u32 = 16;

/// How often whoever waits looks whether it is to stop.
const SLICE: Duration = Duration::from_millis(250);

/// The place to ask, while it is taken.
pub struct DigestPlace<'a>(&'a Digests);

#[derive(Default)]
pub struct Digests {
    is_taken: Mutex<bool>,
    freed: Condvar,
    /// Files that the server stated none of, one after the other, although it was asked separately.
    unstated: AtomicU32,
}

impl Digests {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the place to ask; nothing where that `is_stopped`.
    pub fn enter(&self, is_stopped: impl Fn() -> bool) -> Option<DigestPlace<'_>> {
        let mut is_taken = self.lock();
        while *is_taken {
            if is_stopped() {
                return None;
            }
            is_taken = self.freed.wait_timeout(is_taken, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Some(DigestPlace(self))
    }

    /// The place, if it is free.
    pub fn try_enter(&self) -> Option<DigestPlace<'_>> {
        let was_taken = std::mem::replace(&mut *self.lock(), true);
        if was_taken { None } else { Some(DigestPlace(self)) }
    }

    /// Whether it is taken for a server that states no checksums.
    pub fn states_none(&self) -> bool {
        self.unstated.load(Relaxed) >= UNSTATED_MAX
    }

    /// Whether it stated the checksum of a file.
    pub fn note_stated(&self, is_stated: bool) {
        match is_stated {
            true => self.unstated.store(0, Relaxed),
            false => _ = self.unstated.fetch_add(1, Relaxed),
        }
    }
}

impl Drop for DigestPlace<'_> {
    fn drop(&mut self) {
        *self.0.lock() = false;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_place_is_taken_once_and_free_again_when_its_request_ends() {
        let digests = Digests::default();
        let place = digests.enter(|| false);
        assert!(place.is_some() && digests.try_enter().is_none());
        std::thread::scope(|scope| {
            let next = scope.spawn(|| digests.enter(|| false).is_some());
            drop(place);
            assert!(next.join().unwrap());
        });
        assert!(digests.try_enter().is_some());
    }

    #[test]
    fn whoever_waits_leaves_when_told_to_stop_although_the_place_is_taken() {
        let (digests, stop) = (Digests::default(), AtomicBool::new(false));
        let place = digests.enter(|| false);
        std::thread::scope(|scope| {
            let waiting = [(); 8].map(|()| scope.spawn(|| digests.enter(|| stop.load(Relaxed)).is_none()));
            stop.store(true, Relaxed);
            assert!(waiting.into_iter().all(|one| one.join().unwrap()));
        });
        drop(place);
    }
}
