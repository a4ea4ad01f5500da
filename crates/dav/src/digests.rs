//! Whose turn it is to ask a server for a checksum: one at a time. XRootD 5.5 crashes when it computes several at once,
//! or has a client wait 30 s (decision 019).
//!
//! Invariant: nobody asks while another one does.
//!
//! Not here: the requests (`checksums`).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// After so many files without a checksum a server is taken for one that states none.
const UNSTATED_MAX: u32 = 16;

/// The place to ask, while it is taken.
pub type DigestPlace<'a> = MutexGuard<'a, ()>;

#[derive(Default)]
pub struct Digests {
    place: Mutex<()>,
    /// Files that the server stated none of, one after the other, although it was asked separately.
    unstated: AtomicU32,
}

impl Digests {
    /// Waits for the place to ask.
    pub fn enter(&self) -> DigestPlace<'_> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place, if it is free.
    pub fn try_enter(&self) -> Option<DigestPlace<'_>> {
        self.place.try_lock().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_taken_once_and_free_again_when_its_request_ends() {
        let digests = Digests::default();
        let place = digests.enter();
        assert!(digests.try_enter().is_none());
        drop(place);
        assert!(digests.try_enter().is_some());
    }
}
