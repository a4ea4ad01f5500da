//! What is said to a transfer while it runs, and what it says of itself: the part that its thread and its holders share.
//!
//! Invariant: no lock is held while anything else is called.

use crate::route::Direction;
use crate::sample::{History, Sample};
use model::TransferSpec;
use model::pace::Timetable;
use mover::Progress;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// How often a pause looks at the flag, which a signal's handler sets without waking anybody.
const FLAG_INTERVAL: Duration = Duration::from_millis(50);

/// A command to a running transfer.
#[derive(Clone, Debug)]
pub enum Steering {
    /// How fast it may be, from now on.
    Pace(Option<Arc<Timetable>>),
    /// When it stops, counted from its start.
    DurationMax(Option<Duration>),
    /// How often in a row an attempt may fail without progress.
    Retries(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Starting,
    Running,
    /// Until the next attempt.
    Pausing,
    Ended,
}

/// A transfer at a moment.
#[derive(Clone, Debug)]
pub struct Observed {
    pub phase: Phase,
    /// The number of the last attempt that began; 0 before the first.
    pub attempt: u32,
    /// Of that attempt.
    pub sample: Option<Sample>,
}

pub struct Control {
    stop: Arc<AtomicBool>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    phase: Phase,
    attempt: u32,
    seen: Option<(Arc<Progress>, History)>,
    pace: Option<Arc<Timetable>>,
    duration_max: Option<Duration>,
    retries: u32,
}

impl Control {
    pub fn new(spec: &TransferSpec, stop: Arc<AtomicBool>) -> Control {
        let state = State {
            phase: Phase::Starting,
            attempt: 0,
            seen: None,
            pace: spec.options.pace.clone(),
            duration_max: spec.bounds.duration_max,
            retries: spec.retries,
        };
        Control { stop, state: Mutex::new(state), changed: Condvar::new() }
    }

    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        drop(self.state.lock().unwrap());
        self.changed.notify_all();
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(SeqCst)
    }

    pub fn steer(&self, steering: Steering) {
        let mut state = self.state.lock().unwrap();
        match steering {
            Steering::Pace(pace) => state.pace = pace,
            Steering::DurationMax(max) => state.duration_max = max,
            Steering::Retries(retries) => state.retries = retries,
        }
        drop(state);
        self.changed.notify_all();
    }

    pub fn observe(&self) -> Observed {
        let mut state = self.state.lock().unwrap();
        let sample = state.seen.as_mut().map(|(progress, history)| history.sample(progress.snapshot()));
        Observed { phase: state.phase, attempt: state.attempt, sample }
    }

    /// Waits until the transfer has ended; false when it has not in time.
    pub fn wait_ended(&self, timeout: Duration) -> bool {
        let state = self.state.lock().unwrap();
        let waited = self.changed.wait_timeout_while(state, timeout, |state| state.phase != Phase::Ended);
        waited.unwrap().0.phase == Phase::Ended
    }

    pub fn begin_attempt(&self, number: u32, progress: &Arc<Progress>, direction: Direction) {
        let mut state = self.state.lock().unwrap();
        (state.phase, state.attempt) = (Phase::Running, number);
        state.seen = Some((progress.clone(), History::new(direction)));
    }

    pub fn end(&self) {
        self.state.lock().unwrap().phase = Phase::Ended;
        self.changed.notify_all();
    }

    /// Waits between two attempts; true when the transfer is to stop.
    pub fn pause(&self, pause: Duration, started: Instant) -> bool {
        let until = Instant::now() + pause;
        let mut state = self.state.lock().unwrap();
        state.phase = Phase::Pausing;
        loop {
            let now = Instant::now();
            let is_out = state.duration_max.is_some_and(|max| now.saturating_duration_since(started) >= max);
            if self.is_stopped() || is_out || now >= until {
                return self.is_stopped();
            }
            state = self.changed.wait_timeout(state, FLAG_INTERVAL.min(until - now)).unwrap().0;
        }
    }

    pub fn pace(&self) -> Option<Arc<Timetable>> {
        self.state.lock().unwrap().pace.clone()
    }

    pub fn retries(&self) -> u32 {
        self.state.lock().unwrap().retries
    }

    pub fn duration_max(&self) -> Option<Duration> {
        self.state.lock().unwrap().duration_max
    }

    pub fn is_out_of_time(&self, started: Instant) -> bool {
        self.duration_max().is_some_and(|max| started.elapsed() >= max)
    }
}
