//! Failed log-ins by address: after some, more of them are put off for a while. Whoever has what it takes is let in all the same.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong codes of a minute.
pub const CODES_MAX: u32 = 5;
/// Wrong tokens of a minute: programs that were left with an old one ask again and again.
pub const TOKENS_MAX: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);
/// Addresses that are kept; beyond them nobody's failures are forgiven sooner.
const ADDRESSES_MAX: usize = 16_384;

#[derive(Default)]
pub struct Failures {
    by_address: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Failures {
    /// Counts one; how long to wait where there were more than allowed.
    pub fn note(&self, address: IpAddr, count_max: u32) -> Option<Duration> {
        let now = Instant::now();
        let mut known = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&network) {
            known.retain(|_, (_, since)| now - *since < WINDOW);
            if known.len() >= ADDRESSES_MAX {
                return Some(WINDOW);
            }
        }
        let (count, since) = known.entry(network).or_insert((0, now));
        if now - *since >= WINDOW {
            (*count, *since) = (0, now);
        }
        *count = count.saturating_add(1);
        (*count > count_max).then(|| WINDOW - (now - *since))
    }
}

/// Whoever has one address of an IPv6 network has them all.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_put_off_after_five_and_another_is_not() {
        let failures = Failures::default();
        let one: IpAddr = "10.0.0.1".parse().unwrap();
        for _ in 0..CODES_MAX {
            assert_eq!(failures.note(one, CODES_MAX), None);
        }
        let wait = failures.note(one, CODES_MAX).unwrap();
        assert!(wait <= WINDOW && wait > Duration::ZERO);
        assert_eq!(failures.note("10.0.0.2".parse().unwrap(), CODES_MAX), None);
        assert!(failures.note("::ffff:10.0.0.1".parse().unwrap(), CODES_MAX).is_some(), "the same in another form");
        for low in 0..CODES_MAX {
            assert_eq!(failures.note(format!("2001:db8::{low:x}").parse().unwrap(), CODES_MAX), None);
        }
        assert!(failures.note("2001:db8::ffff".parse().unwrap(), CODES_MAX).is_some(), "the same network");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let failures = Failures::default();
        for number in 0..ADDRESSES_MAX as u32 {
            failures.note(IpAddr::V4(number.into()), CODES_MAX);
        }
        assert!(failures.note("10.0.0.1".parse().unwrap(), CODES_MAX).is_some());
        assert_eq!(failures.by_address.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
