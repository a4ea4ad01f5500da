//! The room that bodies take from before they are read until their requests are answered.
//!
//! Invariants: all bodies together are bounded, and so are those of each who sends some: one whose bodies do not come keeps nobody
//! else from sending any. Not here: how large one may be (`table`), how long it may take (`gate`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// In KiB: of all together, and of one principal, or of one network that did not say who it is.
pub const ALL_KIB_MAX: usize = 64 << 10;
pub const OWN_KIB_MAX: usize = 16 << 10;
/// Senders that are kept at least.
const KNOWN_MAX: usize = 2048;

pub struct Bodies {
    pub all: Arc<Semaphore>,
    own: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Given back when it is dropped.
pub type Room = [OwnedSemaphorePermit; 2];

impl Default for Bodies {
    fn default() -> Bodies {
        Bodies { all: Arc::new(Semaphore::new(ALL_KIB_MAX)), own: Mutex::default() }
    }
}

impl Bodies {
    /// Waits for so many KiB, first of what the sender may take.
    pub async fn room(&self, who: &str, kib: u32) -> Option<Room> {
        let own = self.own(who).acquire_many_owned(kib).await.ok()?;
        let all = self.all.clone().acquire_many_owned(kib).await.ok()?;
        Some([own, all])
    }

    fn own(&self, who: &str) -> Arc<Semaphore> {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            // Whoever has some room, or waits for it, has it as well.
            known.retain(|_, own| Arc::strong_count(own) > 1);
        }
        known.entry(who.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(OWN_KIB_MAX))).clone()
    }
}
