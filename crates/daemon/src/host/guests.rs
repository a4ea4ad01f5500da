//! Endpoints that are here by a warrant: whose account their connections are counted in.
//!
//! Invariant: bounded for each account and in all; what is forgotten is asked again, and costs a stranger's place meanwhile.

use crate::warrant::now;
use model::Pin;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const GUESTS_MAX: usize = 1024;
/// Of one account: whoever is enrolled can sign warrants for any number of keys.
const GUESTS_OF_ACCOUNT_MAX: usize = 64;

/// By the key: the account of who sent it, and until when.
#[derive(Default)]
pub struct Guests(Mutex<HashMap<Pin, (String, u64)>>);

impl Guests {
    pub fn note(&self, pin: Pin, account: &str, expires: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        known.retain(|_, (_, expires)| *expires > now);
        let of_account = known.values().filter(|(of, _)| of == account).count();
        if known.contains_key(&pin) || known.len() < GUESTS_MAX && of_account < GUESTS_OF_ACCOUNT_MAX {
            known.insert(pin, (account.to_owned(), expires));
        }
    }

    pub fn account(&self, pin: Pin) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&pin).filter(|(_, expires)| *expires > now()).map(|(account, _)| account.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warrants_of_one_account_leave_places_for_those_of_others() {
        let (guests, later) = (Guests::default(), now() + 600);
        let pin = |n: u16| Pin([n.to_le_bytes(); 16].concat().try_into().unwrap());
        for n in 0..2 * GUESTS_MAX as u16 {
            guests.note(pin(n), "greedy", later);
        }
        guests.note(Pin([255; 32]), "modest", later);
        assert_eq!(guests.account(Pin([255; 32])).as_deref(), Some("modest"));
        assert_eq!(guests.account(pin(0)).as_deref(), Some("greedy"));
        assert_eq!(guests.account(pin(GUESTS_OF_ACCOUNT_MAX as u16)), None);
    }
}
