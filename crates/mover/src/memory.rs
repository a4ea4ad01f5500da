//! Memory permits: the right to hold bytes, given back when the holder is dropped.
//!
//! Invariant: the sum of all permits never exceeds the limit. A permit travels inside what holds the memory. Never wait
//! for one while holding a lock.

use crate::limits::{LANE_BYTES, PERMIT_PATIENCE, RECEIVE_PERMIT_PATIENCE};
use crate::progress::{LaneClock, Progress};
use model::progress::Stage;
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

struct Shared {
    free: Mutex<usize>,
    freed: Condvar,
    /// What further lanes of a job leave free, so that one job cannot keep all others from moving.
    reserve_bytes: usize,
}

/// Lanes for which an endpoint's reserve has room, at most.
const RESERVED_LANES_MAX: usize = 8;

impl Memory {
    pub fn new(limit_bytes: usize) -> Memory {
        Memory::with(limit_bytes, 0)
    }

    /// For an endpoint, whose jobs belong to several clients: a quarter of it, at most 8 lanes, is kept for the first lanes
    /// of jobs.
    pub fn of_endpoint(limit_bytes: usize) -> Memory {
        let lanes = (limit_bytes / 4 / LANE_BYTES).min(RESERVED_LANES_MAX);
        Memory::with(limit_bytes, lanes * LANE_BYTES)
    }

    fn with(limit_bytes: usize, reserve_bytes: usize) -> Memory {
        let free = Mutex::new(limit_bytes);
        Memory { shared: Arc::new(Shared { free, freed: Condvar::new(), reserve_bytes }) }
    }

    /// Waits until a lane's memory is free, at most for `patience`.
    pub fn acquire_lane(&self, bytes: usize, is_first: bool, patience: Duration) -> Option<Permit> {
        self.acquire_above(bytes, if is_first { 0 } else { self.shared.reserve_bytes }, patience)
    }

    /// Waits until `bytes` are free, at most for `patience`.
    pub fn acquire(&self, bytes: usize, patience: Duration) -> Option<Permit> {
        self.acquire_above(bytes, 0, patience)
    }

    fn acquire_above(&self, bytes: usize, left_bytes: usize, patience: Duration) -> Option<Permit> {
        let deadline = Instant::now() + patience;
        let mut free = self.shared.free.lock().unwrap();
        while *free < bytes + left_bytes {
            let left = deadline.checked_duration_since(Instant::now())?;
            free = self.shared.freed.wait_timeout(free, left).unwrap().0;
        }
        *free -= bytes;
        Some(Permit { bytes, shared: self.shared.clone() })
    }

    pub fn free_bytes(&self) -> usize {
        *self.shared.free.lock().unwrap()
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::new(crate::limits::MEMORY_BYTES_MAX)
    }
}

/// A lane's memory, counted among the lanes of its job that have theirs.
pub struct LanePermit {
    _permit: Permit,
    progress: Arc<Progress>,
}

impl LanePermit {
    /// Waits for at most `patience`.
    pub fn acquire(memory: &Memory, bytes: usize, progress: &Arc<Progress>, patience: Duration) -> Option<LanePermit> {
        let is_first = progress.lanes.running.load(Relaxed) == 0;
        let permit = memory.acquire_lane(bytes, is_first, patience)?;
        progress.lanes.running.fetch_add(1, Relaxed);
        Some(LanePermit { _permit: permit, progress: progress.clone() })
    }

    /// For a receiver's lane. What the sender has put into its stream waits with it, so a lane gives up as long as others of
    /// its job can take that over; while there are none, the job waits for other jobs to end, and is not lost.
    pub fn acquire_to_receive(
        memory: &Memory,
        bytes: usize,
        progress: &Arc<Progress>,
        clock: &mut LaneClock,
        is_over: &dyn Fn() -> bool,
    ) -> Option<LanePermit> {
        let _waiting = progress.lanes.enter_waiting();
        let deadline = Instant::now() + RECEIVE_PERMIT_PATIENCE;
        loop {
            if let Some(permit) = LanePermit::acquire(memory, bytes, progress, PERMIT_PATIENCE) {
                return Some(permit);
            }
            if is_over() {
                return None;
            }
            if progress.lanes.running.load(Relaxed) > 0 && Instant::now() >= deadline {
                progress.note("a stream was given up: no memory was left for it (--memory)".into());
                return None;
            }
            clock.enter(Stage::Memory);
        }
    }
}

impl Drop for LanePermit {
    fn drop(&mut self) {
        self.progress.lanes.running.fetch_sub(1, Relaxed);
    }
}

/// The right to hold `bytes`.
pub struct Permit {
    bytes: usize,
    shared: Arc<Shared>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        *self.shared.free.lock().unwrap() += self.bytes;
        self.shared.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_limit_and_come_back_on_drop() {
        let memory = Memory::new(10);
        let first = memory.acquire(6, Duration::ZERO).unwrap();
        assert!(memory.acquire(5, Duration::ZERO).is_none());
        drop(first);
        assert!(memory.acquire(10, Duration::ZERO).is_some());
        assert_eq!(memory.free_bytes(), 10);
    }

    #[test]
    fn one_job_leaves_memory_for_the_first_lanes_of_others() {
        let memory = Memory::of_endpoint(8 * LANE_BYTES);
        let mut of_one = vec![memory.acquire_lane(LANE_BYTES, true, Duration::ZERO).unwrap()];
        while let Some(permit) = memory.acquire_lane(LANE_BYTES, false, Duration::ZERO) {
            of_one.push(permit);
        }
        assert_eq!(of_one.len(), 6);
        let first_of_others = [(); 2].map(|()| memory.acquire_lane(LANE_BYTES, true, Duration::ZERO).unwrap());
        assert!(memory.acquire_lane(LANE_BYTES, true, Duration::ZERO).is_none());
        drop(first_of_others);
        // Little memory has no reserve: the one lane it is for would never start.
        let little = Memory::of_endpoint(2 * LANE_BYTES);
        let _both = [false; 2].map(|is_first| little.acquire_lane(LANE_BYTES, is_first, Duration::ZERO).unwrap());
    }
}
