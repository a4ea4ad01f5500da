//! What disturbs a gate while it measures: other programs, and a machine that stands still.

use super::foreign::Usage;
use super::stalls::Sentinel;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Disturbance {
    /// Of one processor, by other programs.
    pub foreign_share: f64,
    /// How late this machine woke what runs before all others: the 99.9th percentile.
    pub stalled_us: f64,
}

impl Disturbance {
    pub fn max(self, other: Disturbance) -> Disturbance {
        Disturbance {
            foreign_share: self.foreign_share.max(other.foreign_share),
            stalled_us: self.stalled_us.max(other.stalled_us),
        }
    }
}

pub struct Watch {
    usage: Usage,
    sentinel: Sentinel,
}

impl Watch {
    pub fn start() -> Watch {
        Watch { usage: Usage::now(), sentinel: Sentinel::start() }
    }

    pub fn end(self) -> Disturbance {
        let stalled_us = self.sentinel.end_us();
        Disturbance { foreign_share: Usage::now().foreign_since(&self.usage), stalled_us }
    }
}
