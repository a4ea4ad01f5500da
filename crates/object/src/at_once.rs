//! How many requests are under way at once: as many as make a store faster, and fewer where it says that it is too many.
//!
//! The count doubles while that brings a tenth more, goes back where it brought nothing, and is tried again later; a store that
//! throttles gets a third less. Requests that wait before they are sent again are not under way.
//!
//! Not here: memory for bodies (`width`).

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

const FIRST: usize = 16;
const MIN: usize = 2;
pub const MAX: usize = 128;
/// What is measured for at least so long, and so many requests for each that may be under way.
const WINDOW: Duration = Duration::from_millis(200);
const ROUNDS: usize = 4;
/// What counts as faster.
const GAIN: f64 = 1.1;
/// After that a count that was good enough is questioned.
const REST: Duration = Duration::from_secs(10);
/// Answers of one burst are one reason to do less.
const BURST: Duration = Duration::from_millis(500);
/// So many refusals, and one of so many answers, are a store that asks for less; fewer are what goes wrong now and then.
const REFUSALS_MIN: usize = 3;
const REFUSALS_EVERY: usize = 20;
/// So many bytes of a body count as another request.
const WEIGHT_BYTES: usize = 256 << 10;

pub struct AtOnce {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    limit: usize,
    /// What it was before it was doubled.
    before: Option<usize>,
    under_way: usize,
    most: usize,
    waiting: usize,
    was_full: bool,
    since: Instant,
    /// Answers since then, and what they weigh.
    answers: usize,
    weight: usize,
    rate: f64,
    rests_until: Option<Instant>,
    throttled: u64,
    /// Refusals and answers since then.
    burst: (Instant, usize, usize),
    cut: Option<Instant>,
}

/// A request under way.
pub struct Place<'a> {
    of: &'a AtOnce,
    weight: usize,
}

impl AtOnce {
    pub fn new() -> AtOnce {
        let state = State {
            limit: FIRST,
            before: None,
            under_way: 0,
            most: 0,
            waiting: 0,
            was_full: false,
            since: Instant::now(),
            answers: 0,
            weight: 0,
            rate: 0.0,
            rests_until: None,
            throttled: 0,
            burst: (Instant::now(), 0, 0),
            cut: None,
        };
        AtOnce { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until one more may be under way.
    pub fn enter(&self, body_bytes: usize) -> Place<'_> {
        let mut state = self.state();
        while state.under_way >= state.limit {
            state.was_full = true;
            state.waiting += 1;
            state = self.changed.wait(state).unwrap();
            state.waiting -= 1;
        }
        state.under_way += 1;
        state.was_full |= state.under_way == state.limit;
        state.most = state.most.max(state.under_way);
        Place { of: self, weight: 1 + body_bytes / WEIGHT_BYTES }
    }

    /// How many may be under way now.
    pub fn limit(&self) -> usize {
        self.state().limit
    }

    /// The store says that it is too much.
    pub fn throttled(&self) {
        self.state().throttled(Instant::now());
    }

    /// What was found, for whoever asks.
    pub fn note(&self, store: &str) -> Option<String> {
        let state = self.state();
        if state.most < 2 {
            return None;
        }
        let why = match (state.throttled, state.rests_until) {
            (0, _) if !state.was_full && state.most < state.limit => "no more were to be had".to_owned(),
            (0, Some(_)) => "more brought nothing".to_owned(),
            (0, None) if state.limit >= MAX => "the most there are".to_owned(),
            (0, None) => "it ended before more were tried".to_owned(),
            (1, _) => "the store once asked for fewer".to_owned(),
            (count, _) => format!("the store asked {count} times for fewer"),
        };
        let (most, limit) = (state.most, state.limit);
        Some(format!("{store}: up to {most} requests at once, {limit} at the end: {why}"))
    }
}

impl State {
    fn throttled(&mut self, now: Instant) {
        if now.saturating_duration_since(self.burst.0) >= BURST {
            self.burst = (now, 0, 0);
        }
        self.burst.1 += 1;
        let (_, refusals, answers) = self.burst;
        if refusals < REFUSALS_MIN || refusals * REFUSALS_EVERY < answers {
            return;
        }
        self.throttled += 1;
        if self.cut.is_some_and(|cut| now.saturating_duration_since(cut) < BURST) {
            return;
        }
        (self.limit, self.before) = ((self.limit * 2 / 3).max(MIN), None);
        (self.cut, self.rests_until) = (Some(now), Some(now + REST));
        self.measure_anew(now);
    }

    fn measure_anew(&mut self, now: Instant) {
        (self.since, self.answers, self.weight, self.rate, self.was_full) = (now, 0, 0, 0.0, false);
    }

    fn answered(&mut self, weight: usize, now: Instant) {
        self.answers += 1;
        self.burst.2 += 1;
        self.weight += weight;
        let took = now - self.since;
        if took < WINDOW || self.answers < ROUNDS * self.limit {
            return;
        }
        let (rate, before) = (self.weight as f64 / took.as_secs_f64(), self.rate);
        let was_full = self.was_full;
        self.measure_anew(now);
        self.rate = rate;
        if self.rests_until.is_some_and(|until| now < until) || !was_full {
            return;
        }
        let is_faster = rate > before * GAIN;
        match self.before.take() {
            // Doubling brought nothing.
            Some(smaller) if !is_faster => {
                (self.limit, self.rests_until) = (smaller, Some(now + REST));
                self.rate = 0.0;
            }
            _ if self.limit < MAX => {
                self.before = Some(self.limit);
                (self.limit, self.rests_until) = ((self.limit * 2).min(MAX), None);
            }
            _ => {}
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        state.under_way -= 1;
        let before = state.limit;
        state.answered(self.weight, Instant::now());
        let (is_awaited, is_wider) = (state.waiting > 0, state.limit > before);
        drop(state);
        match is_awaited {
            true if is_wider => self.of.changed.notify_all(),
            true => self.of.changed.notify_one(),
            false => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a store that does `most` requests a second, each within `latency`, answer for so long; more than `throttles_at` at
    /// once it refuses.
    fn answer(at_once: &AtOnce, now: &mut Instant, seconds: f64, most: f64, latency: f64, throttles_at: usize) {
        let end = *now + Duration::from_secs_f64(seconds);
        while *now < end {
            let mut state = at_once.state();
            let rate = (state.limit as f64 / latency).min(most);
            *now += Duration::from_secs_f64(1.0 / rate);
            if state.limit > throttles_at {
                state.throttled(*now);
            }
            state.was_full = true;
            state.answered(1, *now);
        }
    }

    #[test]
    fn the_count_grows_while_that_pays_and_no_further() {
        let (at_once, mut now) = (AtOnce::new(), Instant::now());
        // 40 under way are what 800 a second with 50 ms take.
        answer(&at_once, &mut now, 9.0, 800.0, 0.05, usize::MAX);
        assert!((32..=64).contains(&at_once.limit()), "{}", at_once.limit());
        let (far, mut now) = (AtOnce::new(), Instant::now());
        answer(&far, &mut now, 9.0, 1e6, 0.15, usize::MAX);
        assert_eq!(far.limit(), MAX);
        let (near, mut now) = (AtOnce::new(), Instant::now());
        answer(&near, &mut now, 9.0, 5000.0, 0.001, usize::MAX);
        assert_eq!(near.limit(), FIRST);
    }

    #[test]
    fn a_store_that_throttles_gets_less_and_later_as_much_as_it_takes() {
        let (at_once, mut now) = (AtOnce::new(), Instant::now());
        answer(&at_once, &mut now, 30.0, 1e6, 0.15, 20);
        assert!((8..=32).contains(&at_once.limit()), "{}", at_once.limit());
        at_once.state().most = 32;
        let note = at_once.note("s3://b").unwrap();
        assert!(note.contains("the store asked") && note.contains("times for fewer"), "{note}");
        // It never does less than it needs to go on.
        (0..100).for_each(|_| at_once.state().throttled(Instant::now() + Duration::from_secs(3600)));
        assert!(at_once.limit() >= MIN);
    }

    #[test]
    fn no_more_are_under_way_than_may_be() {
        let at_once = AtOnce::new();
        let most = std::sync::atomic::AtomicUsize::new(0);
        let now = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let _place = at_once.enter(0);
                    use std::sync::atomic::Ordering::SeqCst;
                    most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                    now.fetch_sub(1, SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= FIRST);
    }
}
