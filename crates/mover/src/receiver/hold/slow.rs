//! Whether the storage behind a buffer does not keep up, by where lanes spend their time.

use model::progress::{LaneTimes, Stage};
use std::time::Duration;

/// Lanes that wait for storage for more than this part of their time, and are not computing, are held up by it.
const SLOW: f64 = 0.5;
/// Less lane time says nothing.
const TELLING: Duration = Duration::from_millis(500);

/// Whether lanes spent most of their time between two looks waiting for storage.
pub(crate) fn is_slow(before: &LaneTimes, now: &LaneTimes) -> bool {
    is_slow_within(before, now, TELLING)
}

/// The same, told by so short a time.
pub(crate) fn is_slow_within(before: &LaneTimes, now: &LaneTimes, telling: Duration) -> bool {
    let since = |stage: Stage| now.stage_ns[stage as usize].saturating_sub(before.stage_ns[stage as usize]);
    let storage: u64 = [Stage::Create, Stage::Write, Stage::Sync, Stage::Publish].map(since).iter().sum();
    let computing = now.cpu_ns.saturating_sub(before.cpu_ns) + now.cpu_wait_ns.saturating_sub(before.cpu_wait_ns);
    let total = now.total_ns().saturating_sub(before.total_ns());
    total >= telling.as_nanos() as u64 && storage.saturating_sub(computing) as f64 > SLOW * total as f64
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
        assert!(is_slow_within(&before, &times(300, 100, 50), TELLING / 4));
    }
}
