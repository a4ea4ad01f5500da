//! How late this machine wakes a program that should run before all others.
//!
//! Owns: for each processor a thread of real-time priority that does nothing but wait for the next half millisecond. Where even
//! it is late, the processor itself was gone: a virtual machine's host took it, or fetched memory. No emulator can be on time
//! then, and a gate on time says nothing. What is merely busy does not delay it.
//!
//! Without the right to real-time priority there are no samples, and nothing is excused.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use emulator::lateness::Lateness;

use crate::sys::realtime;

const INTERVAL: Duration = Duration::from_micros(500);

pub struct Sentinel {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Lateness>>,
}

impl Sentinel {
    pub fn start() -> Sentinel {
        let is_over = Arc::new(AtomicBool::new(false));
        let processors = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let stand = |processor: usize| {
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || watch(processor, &is_over))
        };
        Sentinel { threads: (0..processors).map(stand).collect(), is_over }
    }

    /// The 99.9th percentile, in microseconds, of the processor that was worst; 0 if nobody could watch.
    pub fn end_us(self) -> f64 {
        self.is_over.store(true, Ordering::Relaxed);
        let late = self.threads.into_iter().filter_map(|one| one.join().ok());
        late.map(|late| late.quantile_ns(0.999) as f64 / 1e3).fold(0.0, f64::max)
    }
}

fn watch(processor: usize, is_over: &AtomicBool) -> Lateness {
    let mut late = Lateness::default();
    if realtime::first_on(processor).is_err() {
        return late;
    }
    let mut due = Instant::now() + INTERVAL;
    while !is_over.load(Ordering::Relaxed) {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A stall delays everything that was due while it lasted, as it delays packets.
        late.add(due.elapsed().as_nanos() as u64);
        due += INTERVAL;
    }
    late
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_that_is_busy_is_no_stall_and_one_that_is_taken_away_is() {
        let found = |hog: fn(&AtomicBool)| {
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| hog(&is_over));
                let sentinel = Sentinel::start();
                thread::sleep(Duration::from_millis(500));
                let late_us = sentinel.end_us();
                is_over.store(true, Ordering::Relaxed);
                late_us
            })
        };
        let is_possible = thread::spawn(|| realtime::first_on(0).is_ok()).join().unwrap();
        let busy = |is_over: &AtomicBool| while !is_over.load(Ordering::Relaxed) {};
        // As a host that takes a processor for 20 ms now and then.
        let taken = |is_over: &AtomicBool| {
            let can = realtime::first_on(0).is_ok();
            while can && !is_over.load(Ordering::Relaxed) {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(20) {}
                thread::sleep(Duration::from_millis(30));
            }
        };
        let (busy_us, taken_us) = (found(busy), found(taken));
        assert!(!is_possible || taken_us > 10_000.0, "{taken_us}");
        // What this machine's own host does meanwhile is not known: only that it does less.
        assert!(!is_possible || busy_us < taken_us, "{busy_us} {taken_us}");
    }
}
