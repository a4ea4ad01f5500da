//! What clients asked for and what came to nothing, such as lines that were refused: the first few of a minute have lines of
//! their own, the rest are numbers.
//!
//! The transfer log keeps a bounded number of bytes for everybody. What costs its author nothing must not push out what others
//! did: in a minute at most `FULL_OF_ALL` such lines are written, at most `SUMS` clients have a line with the number of
//! theirs that were left out, and the others share one.
//!
//! Failures of single files, which a job may have by the thousand, have a budget of bytes in an hour besides what their job
//! may write (`Failures`); beyond it their job counts them. What changed or delivered something is never left out: whoever could
//! have lines left out could hide what they did.
//!
//! Invariant: memory is bounded by `CLIENTS_MAX`, and no line is left out uncounted. No clock of its own, no writing.

use model::Pin;
use std::collections::HashMap;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const FULL_OF_CLIENT: u64 = 5;
const FULL_OF_ALL: u64 = 30;
const SUMS: usize = 20;
/// Clients whose lines are counted apart in one minute.
const CLIENTS_MAX: usize = 4096;

#[derive(Default)]
pub struct Fruitless {
    began: Option<Instant>,
    full: u64,
    clients: HashMap<Pin, Client>,
    /// Of clients that found no place above.
    others: u64,
}

#[derive(Default)]
struct Client {
    name: String,
    full: u64,
    left_out: u64,
}

/// What has no line of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sum {
    /// `None` for several clients together.
    pub client: Option<(Pin, String)>,
    pub lines: u64,
}

impl Fruitless {
    /// Counts one; true when it is to have a line of its own.
    pub fn note(&mut self, pin: Pin, name: &str, now: Instant) -> bool {
        self.began.get_or_insert(now);
        if self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&pin) {
            self.others += 1;
            return false;
        }
        let client = self.clients.entry(pin).or_default();
        if client.full < FULL_OF_CLIENT && self.full < FULL_OF_ALL {
            client.full += 1;
            self.full += 1;
            return true;
        }
        if client.name.is_empty() {
            name.clone_into(&mut client.name);
        }
        client.left_out += 1;
        false
    }

    /// What was left out, once the minute is over, or `at_once`. The clients with most of it come first.
    pub fn sums(&mut self, now: Instant, at_once: bool) -> Vec<Sum> {
        let is_over = self.began.is_some_and(|began| at_once || now.duration_since(began) >= MINUTE);
        if !is_over {
            return Vec::new();
        }
        let over = std::mem::take(self);
        let mut clients: Vec<_> = over.clients.into_iter().filter(|(_, client)| client.left_out > 0).collect();
        clients.sort_by_key(|(pin, client)| (std::cmp::Reverse(client.left_out), pin.0));
        let rest: u64 = clients.iter().skip(SUMS).map(|(_, client)| client.left_out).sum::<u64>() + over.others;
        let told = clients.into_iter().take(SUMS);
        let mut sums: Vec<_> =
            told.map(|(pin, client)| Sum { client: Some((pin, client.name)), lines: client.left_out }).collect();
        sums.extend((rest > 0).then_some(Sum { client: None, lines: rest }));
        sums
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const FAILURE_BYTES_OF_CLIENT: usize = 1 << 20;
const FAILURE_BYTES_OF_ALL: usize = 16 << 20;

#[derive(Default)]
pub struct Failures {
    began: Option<Instant>,
    bytes: usize,
    clients: HashMap<Pin, usize>,
}

impl Failures {
    /// True when a failure whose texts are so long may have a line.
    pub fn note(&mut self, pin: Pin, bytes: usize, now: Instant) -> bool {
        if self.began.is_none_or(|began| now.duration_since(began) >= HOUR) {
            *self = Failures { began: Some(now), ..Failures::default() };
        }
        if self.bytes >= FAILURE_BYTES_OF_ALL || (self.clients.len() >= CLIENTS_MAX && !self.clients.contains_key(&pin))
        {
            return false;
        }
        let of_client = self.clients.entry(pin).or_default();
        if *of_client >= FAILURE_BYTES_OF_CLIENT {
            return false;
        }
        *of_client += bytes;
        self.bytes += bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(n: u32) -> Pin {
        let mut pin = [0; 32];
        pin[..4].copy_from_slice(&n.to_be_bytes());
        Pin(pin)
    }

    #[test]
    fn the_first_few_of_a_minute_are_told_and_the_others_are_numbers() {
        let (mut fruitless, start) = (Fruitless::default(), Instant::now());
        let told = (0..10_000).filter(|_| fruitless.note(pin(1), "a", start)).count();
        assert_eq!(told, 5);
        assert!(fruitless.note(pin(2), "b", start), "another client is told of");
        assert_eq!(fruitless.sums(start + MINUTE / 2, false), []);
        let sum = Sum { client: Some((pin(1), "a".into())), lines: 9995 };
        assert_eq!(fruitless.sums(start + MINUTE, false), [sum]);
        assert_eq!(fruitless.sums(start + MINUTE, true), []);
        assert!(fruitless.note(pin(1), "a", start + MINUTE));
    }

    #[test]
    fn failures_have_a_budget_of_bytes_for_each_client_and_for_all() {
        let (mut failures, start) = (Failures::default(), Instant::now());
        let told = (0..10_000).filter(|_| failures.note(pin(1), 1000, start)).count();
        assert_eq!(told, FAILURE_BYTES_OF_CLIENT / 1000 + 1);
        assert!(failures.note(pin(2), 1000, start));
        let told = (3..10_000).filter(|n| failures.note(pin(*n), 100_000, start)).count();
        assert!((100..200).contains(&told), "{told}");
        assert!(failures.note(pin(1), 1000, start + HOUR));
    }

    #[test]
    fn however_many_clients_there_are_the_lines_of_a_minute_are_bounded_and_nothing_is_uncounted() {
        let (mut fruitless, start) = (Fruitless::default(), Instant::now());
        let all = 3 * CLIENTS_MAX as u32;
        let told = (0..2).flat_map(|_| 0..all).filter(|n| fruitless.note(pin(*n), "c", start)).count() as u64;
        assert_eq!((told, fruitless.clients.len()), (FULL_OF_ALL, CLIENTS_MAX));
        let sums = fruitless.sums(start, true);
        assert_eq!(sums.len(), SUMS + 1);
        assert_eq!(sums.iter().map(|sum| sum.lines).sum::<u64>() + told, 2 * u64::from(all));
        assert_eq!(sums.last().unwrap().client, None);
    }
}
