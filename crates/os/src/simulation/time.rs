//! Time that passes only when every thread of the world waits. Outside a world it is the real one.

use super::scheduler;
use std::ops::{Add, AddAssign, Sub};
use std::sync::OnceLock;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    pub fn now() -> Instant {
        static START: OnceLock<std::time::Instant> = OnceLock::new();
        let ns = match scheduler::current() {
            Some(context) => context.world.now_ns(),
            None => START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64,
        };
        Instant { ns }
    }

    pub fn elapsed(&self) -> Duration {
        Instant::now() - *self
    }

    pub fn duration_since(&self, earlier: Instant) -> Duration {
        *self - earlier
    }

    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.ns.checked_sub(earlier.ns).map(Duration::from_nanos)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant { ns: self.ns.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64) }
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}
