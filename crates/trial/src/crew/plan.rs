//! What a seed draws of a trial, of which class that is, and how long it may take.
//!
//! Invariant: a host that lost nothing to others has suffered no fault of the table; what it was put through is a class
//! of its own.

use super::houses::{FAULTS, Fault, HOSTS, Host};
use crate::random::Random;
use std::time::Duration;

pub const PAUSE_MIN_SECONDS: u64 = 2;
/// The fault comes in this part of an undisturbed copy's time: per thousand.
const COMES: std::ops::Range<u64> = 100..700;
/// How long a host counts as there that does not answer: `docs/hosts.md`.
const LEASE_SECONDS: f64 = 15.0;
/// How much longer than an undisturbed copy one may take, besides the lease.
pub const SLOWER_MAX: f64 = 1.2;
/// A stop that is one of minutes (F093).
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    pub seed: u64,
    pub fault: Fault,
    pub host: Host,
    /// Of an undisturbed copy's time.
    pub comes_at: f64,
    /// For how long the host stands still or is cut off.
    pub pause: Duration,
}

impl Plan {
    /// Three seeds in a row have all faults.
    pub fn of(seed: u64, pause_max_seconds: u64) -> Plan {
        let mut random = Random::new(seed);
        let fault = FAULTS[(seed % FAULTS.len() as u64) as usize];
        let host = HOSTS[random.below(HOSTS.len() as u64) as usize];
        let comes_at = (COMES.start + random.below(COMES.end - COMES.start)) as f64 / 1000.0;
        let more_ms = random.below((pause_max_seconds - PAUSE_MIN_SECONDS) * 1000 + 1);
        Plan { seed, fault, host, comes_at, pause: Duration::from_millis(PAUSE_MIN_SECONDS * 1000 + more_ms) }
    }

    /// The class of the trial and its numbers in the table of faults.
    pub fn class(&self, away: Duration, has_lost: bool) -> (String, &'static [&'static str]) {
        let side = if self.host.is_sender { "sends" } else { "receives" };
        let of = format!("crew, {} of a host that {side}", self.fault.word());
        match self.fault {
            Fault::Kill => (of, &["F109"]),
            Fault::Stop if has_lost && away >= LONG => (format!("{of}, for a minute or more"), &["F093", "F110"]),
            _ if has_lost => (format!("{of}, until others had its parts"), &["F110"]),
            _ => (format!("{of}, for seconds"), &[]),
        }
    }

    pub fn bound_seconds(&self, calm_seconds: f64) -> f64 {
        SLOWER_MAX * calm_seconds + LEASE_SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_meaning_and_three_in_a_row_have_all_faults() {
        let plans: Vec<Plan> = (7..10).map(|seed| Plan::of(seed, 4)).collect();
        assert!(FAULTS.iter().all(|fault| plans.iter().any(|plan| plan.fault == *fault)));
        assert_eq!(Plan::of(8, 4), plans[1]);
        for plan in (0..200).map(|seed| Plan::of(seed, 90)) {
            assert!((0.1..0.7).contains(&plan.comes_at), "{plan:?}");
            assert!((2..=90).contains(&plan.pause.as_secs()), "{plan:?}");
        }
    }

    #[test]
    fn only_a_host_whose_parts_others_took_over_has_suffered_a_fault_of_the_table() {
        let plan = |fault| Plan { seed: 1, fault, host: HOSTS[0], comes_at: 0.5, pause: LONG };
        let faults = |fault, has_lost| plan(fault).class(LONG, has_lost).1;
        assert_eq!(faults(Fault::Kill, true), ["F109"]);
        assert_eq!(faults(Fault::Stop, true), ["F093", "F110"]);
        assert_eq!(faults(Fault::Cut, true), ["F110"]);
        assert_eq!(faults(Fault::Stop, false), [""; 0]);
        assert_eq!(plan(Fault::Stop).class(LONG / 2, true).1, ["F110"]);
    }
}
