//! Sessions of browsers: a code that is good once and for a minute, and the cookie that it is exchanged for.
//!
//! Both are kept as digests, in memory: a hub that starts anew knows none. A session is worth what its principal is worth now.

use hub::Principal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const CODE_LIFETIME: Duration = Duration::from_secs(60);
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
/// Of all principals together; the oldest makes room.
const CODES_MAX: usize = 256;
const SESSIONS_MAX: usize = 1024;

struct Kept {
    digest: [u8; 32],
    who: Principal,
    until: Instant,
}

#[derive(Default)]
pub struct Sessions {
    codes: Mutex<Vec<Kept>>,
    open: Mutex<Vec<Kept>>,
}

/// Keeps a new secret's digest and returns the secret.
fn issue(kept: &Mutex<Vec<Kept>>, who: &Principal, lifetime: Duration, count_max: usize) -> String {
    let secret = model::Pin(net::random_bytes()).to_string();
    let digest = net::sha256(secret.as_bytes());
    let now = Instant::now();
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|one| one.until > now);
    if kept.len() >= count_max {
        kept.remove(0);
    }
    kept.push(Kept { digest, who: who.clone(), until: now + lifetime });
    secret
}

/// The place of a secret's digest; every one is compared in the same time.
fn place(kept: &[Kept], secret: &str) -> Option<usize> {
    let digest = net::sha256(secret.as_bytes());
    let now = Instant::now();
    let mut found = None;
    for (at, one) in kept.iter().enumerate() {
        if net::constant_time_eq(&one.digest, &digest) {
            found = Some(at);
        }
    }
    found.filter(|at| kept[*at].until > now)
}

impl Sessions {
    pub fn code(&self, who: &Principal) -> String {
        issue(&self.codes, who, CODE_LIFETIME, CODES_MAX)
    }

    /// Exchanges a code, which is gone then.
    pub fn redeem(&self, code: &str) -> Option<(Principal, String)> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = place(&codes, code)?;
        let who = codes.remove(at).who;
        drop(codes);
        let secret = issue(&self.open, &who, SESSION_LIFETIME, SESSIONS_MAX);
        Some((who, secret))
    }

    pub fn find(&self, secret: &str) -> Option<Principal> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        place(&open, secret).map(|at| open[at].who.clone())
    }

    pub fn end(&self, secret: &str) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = place(&open, secret) {
            open.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_good_once_and_its_session_until_it_ends() {
        let sessions = Sessions::default();
        let who = Principal::local(0);
        let code = sessions.code(&who);
        assert!(sessions.redeem("").is_none() && sessions.redeem(&code[1..]).is_none());
        assert!(sessions.find(&code).is_none(), "a code is no session");
        let (found, secret) = sessions.redeem(&code).unwrap();
        assert_eq!(found, who);
        assert!(sessions.redeem(&code).is_none(), "it is good once");
        assert!(sessions.redeem(&secret).is_none() && sessions.find(&secret).is_some());
        sessions.end(&secret);
        assert!(sessions.find(&secret).is_none());
        for _ in 0..2 * CODES_MAX {
            sessions.code(&who);
        }
        assert_eq!(sessions.codes.lock().unwrap().len(), CODES_MAX);
    }

    #[test]
    fn what_has_expired_is_not_found() {
        let kept = Mutex::default();
        let secret = issue(&kept, &Principal::local(0), Duration::ZERO, 8);
        assert!(place(&kept.lock().unwrap(), &secret).is_none());
    }
}
