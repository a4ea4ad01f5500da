//! What a seed showed, and how long its world may take.

use super::faults::Fired;

/// Enough for the longest transfers there are here; a world that takes more is stuck.
pub const STEPS_MAX: u64 = 3_000_000;

/// What one seed showed.
#[derive(Default)]
pub struct Seen {
    pub fired: Vec<(&'static str, &'static [&'static str], &'static [&'static str], Fired)>,
    /// States after a power loss that were judged.
    pub states: u64,
    pub attempts: u64,
    pub broken: Option<String>,
}
