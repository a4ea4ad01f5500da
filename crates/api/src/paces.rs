//! How often a principal may ask: so often a second, and after a rest that many times at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PER_SECOND: f64 = 300.0;
const AT_ONCE: f64 = 600.0;
/// Principals that are kept at least.
const KNOWN_MAX: usize = 2048;

#[derive(Default)]
pub struct Paces {
    /// What is left to each, and when that was so.
    left: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Paces {
    /// How long to wait where it was too often.
    pub fn take(&self, who: &str) -> Result<(), Duration> {
        let now = Instant::now();
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KNOWN_MAX {
            // Whoever rested so long has all of it again.
            all.retain(|_, (_, since)| (now - *since).as_secs_f64() * PER_SECOND < AT_ONCE);
        }
        let (left, since) = all.entry(who.to_owned()).or_insert((AT_ONCE, now));
        *left = (*left + (now - *since).as_secs_f64() * PER_SECOND).min(AT_ONCE);
        *since = now;
        if *left < 1.0 {
            return Err(Duration::from_secs(1));
        }
        *left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_asks_too_often_waits_and_another_does_not() {
        let paces = Paces::default();
        let began = Instant::now();
        let mut taken = 0.0;
        while paces.take("a").is_ok() {
            taken += 1.0;
        }
        let most = AT_ONCE + began.elapsed().as_secs_f64() * PER_SECOND;
        assert!((AT_ONCE..=most).contains(&taken), "{taken} of {most}");
        paces.take("b").unwrap();
    }
}
