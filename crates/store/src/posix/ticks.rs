//! How fine the times of a storage are: several cut off what is less than 100 ns (CIFS), a second (ext4 with small inodes) or two
//! (FAT), and what was published there has the time of its source all the same.
//!
//! Invariants:
//! - A storage is asked, by a time that is set and looked at; one that says nothing, or keeps nanoseconds, is compared to the
//!   nanosecond.
//! - Nothing is asked before a time differs as one that was cut off would.

use crate::Result;
use model::Timestamp;
use std::collections::HashMap;
use std::sync::Mutex;

const SECOND_NS: i128 = 1_000_000_000;
/// What FAT keeps.
const TICK_NS_MAX: i128 = 2 * SECOND_NS;
/// What a storage is asked to keep: whatever it cuts off shows, in a digit that is not zero or in the second that is odd.
pub const ASKED: Timestamp = Timestamp { seconds: 1_111_111_111, nanoseconds: 987_654_321 };

/// What is known of the storages of one sink.
#[derive(Default)]
pub struct Ticks {
    /// A rehearsal makes nothing that it could ask with.
    pub are_unasked: bool,
    /// In nanoseconds, by device number. Held while a storage is asked, for a few calls.
    known: Mutex<HashMap<u64, i128>>,
}

impl Ticks {
    /// Whether a storage has kept of the time that is described what is there. `ask` finds out what it makes of `ASKED`.
    pub fn is_kept(
        &self,
        (there, described): (Timestamp, Timestamp),
        device: u64,
        ask: impl FnOnce() -> Result<Timestamp>,
    ) -> bool {
        let may_be_cut = (1..TICK_NS_MAX).contains(&(nanoseconds(described) - nanoseconds(there)));
        if there == described || !may_be_cut || self.are_unasked {
            return there == described;
        }
        let mut known = self.known.lock().unwrap();
        let tick_ns = *known.entry(device).or_insert_with(|| ask().map_or(1, tick_ns_of));
        cut(described, tick_ns) == there
    }
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * SECOND_NS + i128::from(time.nanoseconds)
}

fn cut(time: Timestamp, tick_ns: i128) -> Timestamp {
    let kept = nanoseconds(time).div_euclid(tick_ns) * tick_ns;
    Timestamp { seconds: kept.div_euclid(SECOND_NS) as i64, nanoseconds: kept.rem_euclid(SECOND_NS) as u32 }
}

/// Of a storage that kept `kept` of `ASKED`: a decimal part of a second, or two.
fn tick_ns_of(kept: Timestamp) -> i128 {
    let ticks = (0..=9).map(|digits| 10i128.pow(digits)).chain([TICK_NS_MAX]);
    ticks.into_iter().find(|tick_ns| cut(ASKED, *tick_ns) == kept).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp { seconds, nanoseconds }
    }

    #[test]
    fn a_storage_is_known_by_what_it_keeps_of_a_time() {
        let second = ASKED.seconds;
        for (kept, tick_ns) in [
            (ASKED, 1),
            (at(second, 987_654_300), 100),
            (at(second, 987_654_000), 1_000),
            (at(second, 980_000_000), 10_000_000),
            (at(second, 0), SECOND_NS),
            (at(second - 1, 0), TICK_NS_MAX),
            // Rounded up, or not kept at all: nothing is known.
            (at(second + 1, 0), 1),
            (at(second, 987_654_400), 1),
            (at(0, 0), 1),
        ] {
            assert_eq!(tick_ns_of(kept), tick_ns, "{kept:?}");
        }
    }

    #[test]
    fn times_are_cut_off_downwards_before_1970_too() {
        assert_eq!(cut(at(5, 123_456_789), 1), at(5, 123_456_789));
        assert_eq!(cut(at(5, 123_456_789), 100), at(5, 123_456_700));
        assert_eq!(cut(at(5, 123_456_789), TICK_NS_MAX), at(4, 0));
        assert_eq!(cut(at(-5, 123_456_789), SECOND_NS), at(-5, 0));
        assert_eq!(cut(at(-5, 123_456_789), TICK_NS_MAX), at(-6, 0));
    }
}
