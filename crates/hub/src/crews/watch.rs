//! Whether anything moves of an attempt that several hosts carry out.
//!
//! Invariants:
//! - What waits for its turn at busy hosts, or has not been handed out, is not said to get nowhere.
//! - An attempt that was given up stays so.
//!
//! Not here: what becomes of it then (`super`), and of a part that does not move (`daemon::crew`).

use daemon::crew::Counts;
use daemon::hand_in::{OrderNews, status_of};
use model::order::Status;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Where nothing has moved for so long, one host does it: senders may not reach the other side, which may reach them.
const FRUITLESS: Duration = Duration::from_secs(60);

/// How long nothing has moved of an attempt.
pub struct Watch {
    pub begun: Instant,
    /// Milliseconds after that, from which on something should move; nothing before hosts have it.
    from_ms: AtomicU64,
    has_moved: AtomicBool,
    gave_up: AtomicBool,
}

impl Watch {
    pub fn new() -> Watch {
        let (has_moved, gave_up) = Default::default();
        Watch { begun: Instant::now(), from_ms: AtomicU64::new(u64::MAX), has_moved, gave_up }
    }

    pub fn start(&self) {
        self.from_ms.store(self.begun.elapsed().as_millis() as u64, Relaxed);
    }

    pub fn note(&self, news: &OrderNews, counts: Counts) {
        if counts.done > 0 || news.files_done > 0 || news.bytes_done > 0 || news.bytes_reached > 0 {
            self.has_moved.store(true, Relaxed);
        }
        // What waits for its turn at busy hosts has not begun.
        if status_of(news) == Status::Queued {
            self.start();
        }
    }

    /// For good: who has seen it has ended.
    pub fn gives_up(&self) -> bool {
        let still_ms = (self.begun.elapsed().as_millis() as u64).saturating_sub(self.from_ms.load(Relaxed));
        if u128::from(still_ms) >= FRUITLESS.as_millis() && !self.has_moved.load(Relaxed) {
            self.gave_up.store(true, Relaxed);
        }
        self.gave_up.load(Relaxed)
    }

    pub fn is_fruitless(&self) -> bool {
        self.gave_up.load(Relaxed) || !self.has_moved.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_file_moves_before_all_of_it_is_there_and_what_waits_for_its_turn_is_not_fruitless() {
        let counts = Counts { open: 1, all: 1, done: 0, aside: 0 };
        let news =
            |status: Status, bytes_reached| OrderNews { status: status as u32, bytes_reached, ..OrderNews::default() };
        let since = |ago: Duration| Watch {
            begun: Instant::now().checked_sub(ago).expect("a clock that began earlier"),
            ..Watch::new()
        };
        let watch = since(2 * FRUITLESS);
        assert!(!watch.gives_up(), "no host has anything");
        watch.from_ms.store(0, Relaxed);
        watch.note(&news(Status::Queued, 0), counts);
        assert!(!watch.gives_up() && watch.is_fruitless());
        watch.from_ms.store(0, Relaxed);
        watch.note(&news(Status::Running, 0), counts);
        assert!(watch.gives_up());
        let watch = since(2 * FRUITLESS);
        watch.from_ms.store(0, Relaxed);
        watch.note(&news(Status::Running, 1), counts);
        assert!(!watch.gives_up() && !watch.is_fruitless());
    }
}
