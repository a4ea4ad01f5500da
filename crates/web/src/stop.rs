//! Being told to stop while a server keeps this process waiting.
//!
//! Invariant: whoever waits by it notices within `SLICE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often whoever waits looks whether it is to stop.
pub const SLICE: Duration = Duration::from_millis(250);

/// A flag that somebody else sets, once. The default is one that nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Stop(Option<Arc<AtomicBool>>);

impl Stop {
    pub fn by(flag: Arc<AtomicBool>) -> Stop {
        Stop(Some(flag))
    }

    pub fn is_set(&self) -> bool {
        self.0.as_ref().is_some_and(|flag| flag.load(Relaxed))
    }

    /// Waits so long; false as soon as it is to stop.
    pub fn wait(&self, duration: Duration) -> bool {
        let until = Instant::now() + duration;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.is_set() || left.is_zero() {
                return !self.is_set();
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_it_is_told_to() {
        let flag = Arc::new(AtomicBool::new(false));
        let stop = Stop::by(flag.clone());
        assert!(stop.wait(Duration::from_millis(1)));
        let waiting = std::thread::spawn(move || stop.wait(Duration::from_secs(3600)));
        flag.store(true, Relaxed);
        assert!(!waiting.join().unwrap());
    }
}
