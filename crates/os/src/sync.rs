//! Locks and conditions.

#[cfg(not(feature = "simulation"))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "simulation")]
pub use crate::simulation::lock::{Condvar, Mutex, MutexGuard};
