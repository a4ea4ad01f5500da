//! What each endpoint and each pair of endpoints carries, and whether an endpoint answers.
//!
//! Slots are counted in eighths: a small job takes one, any other eight.

use crate::fault::{PROBE_FIRST_MS, PROBE_MAX_MS};
use crate::share::Decayed;
use std::sync::Arc;

/// Whether an endpoint can be given orders.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It was not asked yet what it has: nothing is given to it before.
    Unknown,
    Up,
    Down,
}

/// Eighths of slots in use, and those of the class high among them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub all: u32,
    pub high: u32,
}

impl Used {
    pub fn replace(&mut self, is_high: bool, before: u32, after: u32) {
        self.all = self.all - before + after;
        if is_high {
            self.high = self.high - before + after;
        }
    }

    /// The class high has `of_high` of its own beyond what all share: it need not wait for what runs long, and takes nothing from others.
    pub fn has_room(&self, is_high: bool, slots: u32, limit: u32, of_high: u32) -> bool {
        let shared = self.all - self.high.min(of_high);
        shared + slots <= limit || is_high && self.high + slots <= of_high
    }
}

#[derive(Clone, Debug)]
pub struct Endpoint {
    pub name: Arc<str>,
    pub used: Used,
    pub health: Health,
    pub takes_orders: bool,
    /// Looks in a row that found it away.
    pub failures: u32,
    /// When it is to be looked at again; nothing while it answers.
    pub probe_at: Option<u64>,
    /// Why it is away.
    pub text: String,
    /// Open jobs that need it.
    pub jobs: usize,
    /// It may have orders that nobody here knows of: nothing is given to it, nor for it, before it said what it has.
    pub is_unheard: bool,
}

impl Endpoint {
    pub fn new(name: Arc<str>) -> Endpoint {
        Endpoint {
            name,
            used: Used::default(),
            health: Health::Unknown,
            takes_orders: true,
            failures: 0,
            probe_at: Some(0),
            text: String::new(),
            jobs: 0,
            is_unheard: false,
        }
    }

    pub fn is_usable(&self) -> bool {
        self.health == Health::Up && self.takes_orders
    }

    pub fn lost(&mut self, now_ms: u64, text: String) {
        self.health = Health::Down;
        self.failures += 1;
        let pause = PROBE_FIRST_MS.saturating_mul(1 << self.failures.saturating_sub(1).min(5)).min(PROBE_MAX_MS);
        self.probe_at = Some(now_ms + pause);
        self.text = text;
    }

    pub fn found(&mut self) {
        self.health = Health::Up;
        self.is_unheard = false;
        self.failures = 0;
        self.probe_at = None;
        self.text.clear();
    }
}

/// Source and destination.
#[derive(Clone, Debug)]
pub struct Pair {
    pub from: usize,
    pub to: usize,
    pub used: Used,
    /// Orders that wait at their executor for what others of the pair would wait for too: they are the probes.
    pub parked: u32,
    pub attempts: Decayed,
    pub retries: Decayed,
    /// Whether the last job of an owner here was small.
    pub guesses: std::collections::HashMap<usize, bool>,
}

/// Retries within an hour that a pair has in any case, and the part of its attempts that may be more.
const RETRIES_FREE: f64 = 10.0;
const RETRIES_PART: f64 = 0.1;
/// What waits at an executor before nothing more is given to it.
pub const PARKED_MAX: u32 = 4;

impl Pair {
    pub fn new(from: usize, to: usize) -> Pair {
        Pair {
            from,
            to,
            used: Used::default(),
            parked: 0,
            attempts: Decayed::default(),
            retries: Decayed::default(),
            guesses: std::collections::HashMap::new(),
        }
    }

    pub fn may_retry(&self, now_ms: u64) -> bool {
        self.retries.at(now_ms) < RETRIES_FREE + RETRIES_PART * self.attempts.at(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_an_absent_endpoint_come_to_one_in_half_a_minute() {
        let mut endpoint = Endpoint::new("a".into());
        let pauses: Vec<u64> = (0..8)
            .map(|_| {
                endpoint.lost(0, String::new());
                endpoint.probe_at.unwrap()
            })
            .collect();
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
        endpoint.found();
        assert_eq!((endpoint.failures, endpoint.probe_at, endpoint.is_usable()), (0, None, true));
    }

    #[test]
    fn the_class_high_has_a_slot_of_its_own_and_leaves_others_theirs() {
        let mut used = Used::default();
        used.replace(false, 0, 16);
        assert!(!used.has_room(false, 8, 16, 8) && used.has_room(true, 8, 16, 8));
        used.replace(true, 0, 8);
        assert!(!used.has_room(true, 8, 16, 8));
        used.replace(false, 16, 8);
        assert!(used.has_room(false, 8, 16, 8) && used.has_room(true, 8, 16, 8));
    }

    #[test]
    fn retries_of_a_pair_share_a_budget() {
        let mut pair = Pair::new(0, 1);
        (0..10).for_each(|_| pair.retries.add(1.0, 0));
        assert!(!pair.may_retry(0));
        (0..20).for_each(|_| pair.attempts.add(1.0, 0));
        assert!(pair.may_retry(0));
    }
}
