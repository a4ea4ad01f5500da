//! One end's part of a run: all lanes flow while their counters are looked at, at the moments of the load.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Load;
use super::counters::Counters;
use super::lane::Lane;

/// How often a wait looks whether it should end.
const SLICE: Duration = Duration::from_millis(50);

/// All lanes of one end at one moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Of the moment.
    pub number: u32,
    /// By this end's clock.
    pub elapsed_us: u64,
    /// By lane.
    pub lanes: Vec<Counters>,
    /// Lanes whose connection ended before its time.
    pub broken: Vec<u32>,
}

/// Lets all lanes flow, hands a sample of each moment to `on_sample`, then waits for `is_over`, and cuts all lanes.
///
/// The clock starts when `begin`, called once all lanes may send, returns true. Ends early when it does not, when `is_over` is set, when `on_sample` returns false, or when nobody set `is_over` by `patience` after the
/// last moment.
pub fn measure(
    lanes: &[Lane],
    load: &Load,
    is_over: &AtomicBool,
    patience: Duration,
    begin: impl FnOnce() -> bool,
    mut on_sample: impl FnMut(Sample) -> bool,
) {
    let block_bytes = load.block_bytes as usize;
    let gate = RwLock::new(());
    thread::scope(|scope| {
        let cut = Cut { lanes, is_over };
        // A thousand senders that run at once would leave no time to start the next one.
        let closed = gate.write().expect("nobody panics while holding it");
        for lane in lanes {
            let pump = || {
                drop(gate.read());
                lane.pump(block_bytes, is_over);
            };
            if thread::Builder::new().name("netload".into()).spawn_scoped(scope, pump).is_err() {
                return;
            }
        }
        drop(closed);
        if !begin() {
            return;
        }
        let start = Instant::now();
        for (number, moment) in load.moments().into_iter().enumerate() {
            if !wait_until(start + moment.at, is_over) || !on_sample(sample(lanes, number as u32, start)) {
                return;
            }
        }
        wait_until(start + load.total() + patience, is_over);
        drop(cut);
    });
}

/// Wakes all threads when measuring ends, in whatever way.
struct Cut<'a> {
    lanes: &'a [Lane],
    is_over: &'a AtomicBool,
}

impl Drop for Cut<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.lanes.iter().for_each(Lane::cut);
    }
}

fn sample(lanes: &[Lane], number: u32, start: Instant) -> Sample {
    // Clock and bytes at once; asking the kernel takes a system call for each lane, and other threads may run meanwhile.
    let elapsed_us = start.elapsed().as_micros() as u64;
    let bytes: Vec<u64> = lanes.iter().map(Lane::bytes).collect();
    let broken = lanes.iter().enumerate().filter(|(_, lane)| lane.is_broken()).map(|(index, _)| index as u32).collect();
    let counters = lanes.iter().zip(bytes).map(|(lane, bytes)| Counters { bytes, ..lane.counters() }).collect();
    Sample { number, elapsed_us, lanes: counters, broken }
}

/// False when it was over before that.
fn wait_until(moment: Instant, is_over: &AtomicBool) -> bool {
    loop {
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() || is_over.load(Relaxed) {
            return !is_over.load(Relaxed);
        }
        thread::sleep(left.min(SLICE));
    }
}
