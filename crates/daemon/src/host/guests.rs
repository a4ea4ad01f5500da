//! Endpoints that are here by a warrant: whose account their connections are counted in.
//!
//! Invariant: bounded; what is forgotten is asked again, and costs a stranger's place meanwhile.

use crate::warrant::now;
use model::Pin;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const GUESTS_MAX: usize = 1024;

/// By the key: the account of who sent it, and until when.
#[derive(Default)]
pub struct Guests(Mutex<HashMap<Pin, (String, u64)>>);

impl Guests {
    pub fn note(&self, pin: Pin, account: &str, expires: u64) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = now();
        known.retain(|_, (_, expires)| *expires > now);
        if known.len() < GUESTS_MAX || known.contains_key(&pin) {
            known.insert(pin, (account.to_owned(), expires));
        }
    }

    pub fn account(&self, pin: Pin) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&pin).filter(|(_, expires)| *expires > now()).map(|(account, _)| account.clone())
    }
}
