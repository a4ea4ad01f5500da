//! The coordinator as hosts reach it: now and then it does not hear a question, or its answer is lost.
//!
//! Production code: the trait `Coordinator`. Behind it is the engine of tests, which passes what every engine has to,
//! with revisions, and leases on simulated time. Simulated: the way there. Not here: HTTP and the engine of etcd
//! (`etcd`), which is tried with real members; watching and reading the past, which no host does, so that neither can
//! be lost or compacted away.

use crate::random::Random;
use cluster::coordinator::{Answer, Coordinator, Fault, FaultKind, Held};
use conformance::coordinators::Memory;

const LOST_ONE_IN: u64 = 12;

pub struct Etcd {
    memory: Memory,
    random: Random,
    seconds: u64,
    pub is_up: bool,
    /// Whoever asks next reaches it.
    pub is_reached: bool,
    /// Nothing is lost any more.
    pub is_calm: bool,
    /// It was heard, and its answer was not.
    pub has_lost_an_answer: bool,
}

impl Etcd {
    pub fn new(seed: u64) -> Etcd {
        Etcd {
            memory: Memory::default(),
            random: Random::new(seed),
            seconds: 0,
            is_up: true,
            is_reached: true,
            is_calm: false,
            has_lost_an_answer: false,
        }
    }

    pub fn pass_to(&mut self, now_ms: u64) {
        let seconds = now_ms / 1000;
        if seconds > self.seconds {
            self.memory.advance(seconds - self.seconds);
            self.seconds = seconds;
        }
    }

    pub fn ask<T>(&mut self, act: impl FnOnce(&Memory) -> Answer<T>) -> Answer<T> {
        if !(self.is_up && self.is_reached) || self.loses() {
            return Err(silent());
        }
        let answer = act(&self.memory);
        if self.loses() {
            self.has_lost_an_answer = true;
            return Err(silent());
        }
        answer
    }

    pub fn held(&mut self, key: &str) -> Answer<Option<Held>> {
        self.ask(|memory| Ok(memory.get(&[key.to_owned()])?.pop().flatten()))
    }

    pub fn value(&mut self, key: &str) -> Answer<Option<Vec<u8>>> {
        Ok(self.held(key)?.map(|held| held.value))
    }

    fn loses(&mut self) -> bool {
        !self.is_calm && self.random.one_in(LOST_ONE_IN)
    }
}

fn silent() -> Fault {
    Fault { kind: FaultKind::Silent, text: "nobody answers".to_owned(), advice: "ask again".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_answered_may_have_been_done_and_a_lease_ends_by_simulated_time() {
        let mut etcd = Etcd::new(1);
        let mut unanswered = 0;
        for number in 0..400 {
            let key = format!("{number}");
            let is_answered = etcd.ask(|memory| memory.change(&key, None, Some(b"x"), None)).is_ok();
            etcd.is_calm = true;
            let is_done = etcd.value(&key).unwrap().is_some();
            etcd.is_calm = false;
            assert!(is_done || !is_answered);
            unanswered += u32::from(is_done && !is_answered);
        }
        assert!(unanswered > 0 && etcd.has_lost_an_answer);
        etcd.is_calm = true;
        let lease = etcd.ask(|memory| memory.grant(30)).unwrap();
        assert!(etcd.ask(|memory| memory.change("lock", None, Some(b"x"), Some(lease))).unwrap());
        etcd.pass_to(29_999);
        assert!(etcd.value("lock").unwrap().is_some());
        etcd.pass_to(30_000);
        assert!(etcd.value("lock").unwrap().is_none());
        etcd.is_reached = false;
        assert_eq!(etcd.value("0").unwrap_err().kind, FaultKind::Silent);
    }
}
