//! Threads that start a piece of work together, and what they took.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::account::{Machine, own_cpu_seconds};
use crate::error::{Error, Result};

/// When to stop early.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'a> {
    pub limit: Duration,
    pub cancel: &'a AtomicBool,
}

/// One thread's view of its bounds, from the common start on.
pub(crate) struct Clock<'a> {
    bounds: Bounds<'a>,
    started: Instant,
}

impl Clock<'_> {
    pub fn is_over(&self) -> bool {
        self.bounds.cancel.load(Relaxed) || self.started.elapsed() > self.bounds.limit
    }
}

/// What a team's work came to.
pub(crate) struct Took<T> {
    pub of_threads: Vec<T>,
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Processor time that this program did not use.
    pub foreign_cpu_seconds: f64,
    pub steal_seconds: f64,
}

/// Runs `work` on each thread, then `finish`; the time runs from the common start to the end of `finish`.
pub(crate) fn run<T: Send>(
    threads: usize,
    bounds: Bounds<'_>,
    work: impl Fn(usize, &Clock<'_>) -> Result<T> + Sync,
    finish: impl FnOnce() -> Result<()>,
) -> Result<Took<T>> {
    let start = Barrier::new(threads + 1);
    let (work, start) = (&work, &start);
    let (machine, own) = (Machine::read(), own_cpu_seconds());
    let (outcome, seconds) = thread::scope(|scope| {
        let run_one = |index| {
            move || {
                start.wait();
                work(index, &Clock { bounds, started: Instant::now() })
            }
        };
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(run_one(index))).collect();
        start.wait();
        let started = Instant::now();
        let ended = handles.into_iter().map(|handle| handle.join().expect("a measurement does not panic"));
        let outcome = ended.collect::<Result<Vec<T>>>();
        let outcome = outcome.and_then(|of_threads| finish().map(|()| of_threads));
        (outcome, started.elapsed().as_secs_f64())
    });
    let of_threads = outcome?;
    if bounds.cancel.load(Relaxed) {
        return Err(Error::cancelled("measure", "storage"));
    }
    let (after, cpu_seconds) = (Machine::read(), own_cpu_seconds() - own);
    Ok(Took {
        of_threads,
        seconds,
        cpu_seconds,
        foreign_cpu_seconds: (after.busy_seconds - machine.busy_seconds - cpu_seconds).max(0.0),
        steal_seconds: after.steal_seconds - machine.steal_seconds,
    })
}
