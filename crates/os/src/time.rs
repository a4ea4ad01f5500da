//! Monotonic time.

#[cfg(not(feature = "simulation"))]
pub use std::time::Instant;

#[cfg(feature = "simulation")]
pub use crate::simulation::time::Instant;
