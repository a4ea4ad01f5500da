//! A coordinator for tests: in memory, and something happens once, right before a certain question.
//!
//! Not here: what every engine has to do (`conformance::coordinators`).

use cluster::coordinator::{Answer, Coordinator, Held, History, Lease};
use conformance::coordinators::Memory;
use std::fmt;
use std::sync::Mutex;

type Act = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Watched {
    pub memory: Memory,
    before: Mutex<Option<(&'static str, Act)>>,
}

impl Watched {
    /// `question` is how a key ends that is to be changed, or `end` for the end of a lease.
    pub fn before(&self, question: &'static str, act: impl FnOnce() + Send + 'static) {
        *self.before.lock().unwrap() = Some((question, Box::new(act)));
    }

    fn reach(&self, question: &str) {
        let due = self.before.lock().unwrap().take_if(|(awaited, _)| question.ends_with(*awaited));
        if let Some((_, act)) = due {
            act();
        }
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl Coordinator for Watched {
    fn get(&self, keys: &[String]) -> Answer<Vec<Option<Held>>> {
        self.memory.get(keys)
    }

    fn list(&self, prefix: &str, most: usize) -> Answer<Vec<String>> {
        self.memory.list(prefix, most)
    }

    fn change(&self, key: &str, seen: Option<&Held>, new: Option<&[u8]>, lease: Option<Lease>) -> Answer<bool> {
        self.reach(key);
        self.memory.change(key, seen, new, lease)
    }

    fn grant(&self, seconds: u64) -> Answer<Lease> {
        self.memory.grant(seconds)
    }

    fn renew(&self, lease: Lease) -> Answer<bool> {
        self.memory.renew(lease)
    }

    fn left_seconds(&self, lease: Lease) -> Answer<Option<(u64, u64)>> {
        self.memory.left_seconds(lease)
    }

    fn end(&self, lease: Lease) -> Answer<()> {
        self.reach("end");
        self.memory.end(lease)
    }

    fn history(&self) -> History {
        self.memory.history()
    }

    fn recall(&self, history: History) {
        self.memory.recall(history);
    }
}
