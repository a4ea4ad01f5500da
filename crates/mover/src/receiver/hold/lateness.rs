//! Whether the storage behind a buffer has lately not kept up.
//!
//! A lane that is in the middle of a chunk cannot turn aside when storage stands still: it finds out with the write that does not
//! come back. So what has stood still once is expected to do so again, and for a while everything goes through the buffer.

use crate::limits::STALL_REMEMBERED;
use model::progress::{LaneTimes, Stage};
use os::time::Instant;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Lanes that wait for storage for more than this part of their time, and are not computing, are held up by it.
const SLOW: f64 = 0.5;
/// Less lane time says nothing.
const TELLING: Duration = Duration::from_millis(500);

/// Shared by all jobs of an endpoint.
pub(crate) struct Lateness {
    began: Instant,
    /// Milliseconds from then on.
    until_ms: AtomicU64,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { began: Instant::now(), until_ms: AtomicU64::new(0) }
    }
}

impl Lateness {
    pub fn note(&self) {
        let until = self.began.elapsed() + STALL_REMEMBERED;
        self.until_ms.fetch_max(until.as_millis() as u64, Relaxed);
    }

    pub fn is_noted(&self) -> bool {
        self.until_ms.load(Relaxed) > self.began.elapsed().as_millis() as u64
    }
}

/// Whether lanes spent most of their time between two looks waiting for storage.
pub(crate) fn is_slow(before: &LaneTimes, now: &LaneTimes) -> bool {
    let since = |stage: Stage| now.stage_ns[stage as usize].saturating_sub(before.stage_ns[stage as usize]);
    let storage: u64 = [Stage::Create, Stage::Write, Stage::Sync, Stage::Publish].map(since).iter().sum();
    let computing = now.cpu_ns.saturating_sub(before.cpu_ns) + now.cpu_wait_ns.saturating_sub(before.cpu_wait_ns);
    let total = now.total_ns().saturating_sub(before.total_ns());
    total >= TELLING.as_nanos() as u64 && storage.saturating_sub(computing) as f64 > SLOW * total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_that_wait_for_storage_tell_slow_storage_from_a_busy_processor() {
        let times = |write_ms: u64, receive_ms: u64, cpu_ms: u64| {
            let mut times = LaneTimes { cpu_ns: cpu_ms * 1_000_000, ..LaneTimes::default() };
            times.stage_ns[Stage::Write as usize] = write_ms * 1_000_000;
            times.stage_ns[Stage::Receive as usize] = receive_ms * 1_000_000;
            times
        };
        let before = times(100, 100, 50);
        assert!(is_slow(&before, &times(1000, 200, 150)));
        assert!(!is_slow(&before, &times(1000, 200, 950)), "it copies into the page cache");
        assert!(!is_slow(&before, &times(400, 1100, 150)), "the network is slower");
        assert!(!is_slow(&before, &times(300, 100, 50)), "too short");
        let lateness = Lateness::default();
        assert!(!lateness.is_noted());
        lateness.note();
        assert!(lateness.is_noted());
    }
}
