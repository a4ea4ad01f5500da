//! Sessions of browsers: a code that is good once and for a minute, and the cookie that it is exchanged for.
//!
//! Both are kept as digests, in memory: a hub that starts anew knows none. A session is worth what its principal is worth now.
//!
//! Invariant: nobody ends the session of one who has fewer.

use hub::Principal;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const CODE_LIFETIME: Duration = Duration::from_secs(60);
pub const SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);
const CODES: Bounds = Bounds { of_one: 8, of_all: 256 };
const SESSIONS: Bounds = Bounds { of_one: 32, of_all: 1024 };

/// How many one principal has, and all together.
#[derive(Clone, Copy)]
struct Bounds {
    of_one: usize,
    of_all: usize,
}

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
fn issue(kept: &Mutex<Vec<Kept>>, who: &Principal, lifetime: Duration, bounds: Bounds) -> String {
    let secret = model::Pin(net::random_bytes()).to_string();
    let digest = net::sha256(secret.as_bytes());
    let now = Instant::now();
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    kept.retain(|one| one.until > now);
    if let Some(at) = one_too_many(&kept, who, bounds) {
        kept.remove(at);
    }
    kept.push(Kept { digest, who: who.clone(), until: now + lifetime });
    secret
}

/// What makes room for another one of `who`: the oldest of one's own, or where all have too many, the oldest of whoever has most.
fn one_too_many(kept: &[Kept], who: &Principal, bounds: Bounds) -> Option<usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    kept.iter().for_each(|one| *counts.entry(&one.who.name).or_default() += 1);
    let count_of = |one: &Kept| counts.get(&one.who.name[..]).copied();
    if counts.get(&who.name[..]).is_some_and(|own| *own >= bounds.of_one) {
        return kept.iter().position(|one| one.who.name == who.name);
    }
    let most = counts.values().copied().max();
    kept.iter().position(|one| count_of(one) == most).filter(|_| kept.len() >= bounds.of_all)
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
        issue(&self.codes, who, CODE_LIFETIME, CODES)
    }

    /// Exchanges a code, which is gone then.
    pub fn redeem(&self, code: &str) -> Option<(Principal, String)> {
        let mut codes = self.codes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = place(&codes, code)?;
        let who = codes.remove(at).who;
        drop(codes);
        let secret = issue(&self.open, &who, SESSION_LIFETIME, SESSIONS);
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
        for _ in 0..2 * CODES.of_one {
            sessions.code(&who);
        }
        assert_eq!(sessions.codes.lock().unwrap().len(), CODES.of_one);
    }

    #[test]
    fn one_who_begins_many_sessions_ends_none_but_its_own() {
        let sessions = Sessions::default();
        let begin = |user: u32| {
            let code = sessions.code(&Principal::local(user));
            sessions.redeem(&code).unwrap().1
        };
        let is_open = |secret: &String| sessions.find(secret).is_some();
        let other = begin(1);
        let own: Vec<String> = (0..=SESSIONS.of_one).map(|_| begin(2)).collect();
        assert!(is_open(&other) && !is_open(&own[0]) && own[1..].iter().all(is_open));
        // Where there is no room at all, whoever has most makes it.
        for user in 0..SESSIONS.of_all - SESSIONS.of_one {
            begin(100 + user as u32);
        }
        assert!(is_open(&other) && !is_open(&own[1]) && own[2..].iter().all(is_open));
    }

    #[test]
    fn what_has_expired_is_not_found() {
        let kept = Mutex::default();
        let secret = issue(&kept, &Principal::local(0), Duration::ZERO, CODES);
        assert!(place(&kept.lock().unwrap(), &secret).is_none());
    }
}
