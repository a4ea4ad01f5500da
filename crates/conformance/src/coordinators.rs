//! What every engine of a coordinator has to do, and one in memory, with a clock that its owner moves.
//!
//! Not here: what an endpoint keeps there (`daemon`).

use cluster::coordinator::{Answer, Coordinator, Fault, FaultKind, Held, History, Lease};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An engine without a database; it ends with its process.
#[derive(Debug, Default)]
pub struct Memory(Mutex<Kept>);

#[derive(Clone, Debug, Default)]
struct Kept {
    values: BTreeMap<String, Held>,
    /// When each ends, and what it was granted for.
    leases: BTreeMap<Lease, (u64, u64)>,
    /// The number that was given last; none is given twice.
    granted: i64,
    now_seconds: u64,
    history: History,
    is_silent: bool,
}

/// What `Memory` was at some moment.
#[derive(Debug)]
pub struct Snapshot(Kept);

impl Memory {
    pub fn advance(&self, seconds: u64) {
        let mut kept = self.kept();
        kept.now_seconds += seconds;
        let now = kept.now_seconds;
        let gone: Vec<_> = kept.leases.iter().filter(|(_, (ends, _))| *ends <= now).map(|(lease, _)| *lease).collect();
        gone.into_iter().for_each(|lease| kept.end(lease));
    }

    /// Has it answer nobody, or again.
    pub fn silence(&self, is_silent: bool) {
        self.kept().is_silent = is_silent;
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.kept().clone())
    }

    pub fn restore(&self, snapshot: &Snapshot) {
        let mut kept = self.kept();
        let (turns, granted) = (kept.history.turns + 1, kept.granted);
        *kept = snapshot.0.clone();
        (kept.history.turns, kept.granted) = (turns, granted);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> Answer<MutexGuard<'_, Kept>> {
        let mut kept = self.kept();
        if kept.is_silent {
            let (text, advice) = ("the coordinator is silent".to_owned(), "wake it".to_owned());
            return Err(Fault { kind: FaultKind::Silent, text, advice });
        }
        kept.history.cluster = 1;
        Ok(kept)
    }
}

impl Kept {
    fn end(&mut self, lease: Lease) {
        self.leases.remove(&lease);
        self.values.retain(|_, held| held.lease != Some(lease));
    }
}

impl Coordinator for Memory {
    fn get(&self, keys: &[String]) -> Answer<Vec<Option<Held>>> {
        let kept = self.asked()?;
        Ok(keys.iter().map(|key| kept.values.get(key).cloned()).collect())
    }

    fn list(&self, prefix: &str, most: usize) -> Answer<Vec<String>> {
        let kept = self.asked()?;
        let keys = kept.values.keys().filter(|key| key.starts_with(prefix));
        Ok(keys.take(most).cloned().collect())
    }

    fn change(&self, key: &str, seen: Option<&Held>, new: Option<&[u8]>, lease: Option<Lease>) -> Answer<bool> {
        let mut kept = self.asked()?;
        if kept.values.get(key) != seen || lease.is_some_and(|lease| !kept.leases.contains_key(&lease)) {
            return Ok(false);
        }
        kept.history.revision += 1;
        let revision = kept.history.revision;
        match new {
            Some(value) => _ = kept.values.insert(key.to_owned(), Held { value: value.to_vec(), revision, lease }),
            None => _ = kept.values.remove(key),
        }
        Ok(true)
    }

    fn grant(&self, seconds: u64) -> Answer<Lease> {
        let mut kept = self.asked()?;
        kept.granted += 1;
        let number = kept.granted;
        let ends = kept.now_seconds + seconds;
        kept.leases.insert(Lease(number), (ends, seconds));
        Ok(Lease(number))
    }

    fn renew(&self, lease: Lease) -> Answer<bool> {
        let mut kept = self.asked()?;
        let now = kept.now_seconds;
        let Some((ends, granted)) = kept.leases.get_mut(&lease) else { return Ok(false) };
        *ends = now + *granted;
        Ok(true)
    }

    fn left_seconds(&self, lease: Lease) -> Answer<Option<(u64, u64)>> {
        let kept = self.asked()?;
        Ok(kept.leases.get(&lease).map(|(ends, granted)| (ends - kept.now_seconds, *granted)))
    }

    fn end(&self, lease: Lease) -> Answer<()> {
        self.asked()?.end(lease);
        Ok(())
    }

    fn history(&self) -> History {
        self.kept().history
    }

    fn recall(&self, _history: History) {}
}

/// What every engine has to do, below a prefix that nobody else uses. `wait` lets so many seconds pass.
///
/// # Panics
/// When it does not.
pub fn examine(engine: &dyn Coordinator, prefix: &str, wait: &dyn Fn(u64)) {
    let key = |name: &str| format!("{prefix}{name}");
    let get = |name: &str| engine.get(&[key(name)]).unwrap().pop().unwrap();
    let value = |name: &str| get(name).map(|held| held.value);
    assert_eq!((get("a"), engine.list(prefix, 9).unwrap()), (None, vec![]), "empty at first");
    assert!(engine.change(&key("a"), None, Some(b"1"), None).unwrap());
    assert!(!engine.change(&key("a"), None, Some(b"2"), None).unwrap(), "what is there is not made anew");
    let first = get("a").unwrap();
    assert_eq!(first.value, b"1");
    assert!(engine.change(&key("a"), Some(&first), Some(b"\0\xff"), None).unwrap());
    assert!(!engine.change(&key("a"), Some(&first), Some(b"3"), None).unwrap(), "as seen before the last change");
    let second = get("a").unwrap();
    assert!(second.value == b"\0\xff" && second.revision > first.revision, "any bytes are kept");
    assert!(engine.change(&key("a"), Some(&second), Some(b"1"), None).unwrap());
    assert!(!engine.change(&key("a"), Some(&first), None, None).unwrap(), "the same value, written again, is another");
    for name in ["d/2", "d/1", "d/3", "e"] {
        assert!(engine.change(&key(name), None, Some(name.as_bytes()), None).unwrap());
    }
    assert_eq!(engine.list(&key("d/"), 9).unwrap(), [key("d/1"), key("d/2"), key("d/3")]);
    assert_eq!(engine.list(&key("d/"), 2).unwrap().len(), 2, "no more than is allowed");
    let several = engine.get(&[key("d/2"), key("none"), key("e")]).unwrap();
    let values: Vec<_> = several.into_iter().map(|held| held.map(|held| held.value)).collect();
    assert_eq!(values, [Some(b"d/2".to_vec()), None, Some(b"e".to_vec())]);
    assert!(engine.change(&key("a"), get("a").as_ref(), None, None).unwrap());
    assert!(!engine.change(&key("a"), Some(&second), None, None).unwrap(), "what is gone is not removed again");
    let (kept, left) = (engine.grant(4).unwrap(), engine.grant(4).unwrap());
    assert!(engine.change(&key("kept"), None, Some(b"k"), Some(kept)).unwrap());
    assert!(engine.change(&key("left"), None, Some(b"l"), Some(left)).unwrap());
    assert_eq!(get("kept").unwrap().lease, Some(kept));
    for _ in 0..4 {
        wait(2);
        assert!(engine.renew(kept).unwrap(), "renewed in time");
    }
    assert_eq!((value("kept"), value("left")), (Some(b"k".to_vec()), None), "what ends with a lease ends");
    assert!(!engine.renew(left).unwrap(), "a lease that is gone is not renewed");
    assert_eq!(engine.left_seconds(left).unwrap(), None);
    assert!(engine.left_seconds(kept).unwrap().is_some_and(|(seconds, granted)| seconds <= granted));
    assert!(!engine.change(&key("late"), None, Some(b"x"), Some(left)).unwrap(), "nothing begins with what is gone");
    engine.end(kept).unwrap();
    assert_eq!((value("kept"), engine.renew(kept).unwrap()), (None, false));
    let history = engine.history();
    assert!(history.cluster != 0 && history.turns == 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_of_tests_does_what_every_engine_has_to() {
        let memory = Memory::default();
        examine(&memory, "/x/", &|seconds| memory.advance(seconds));
        let snapshot = memory.snapshot();
        assert!(memory.change("/x/later", None, Some(b"1"), None).unwrap());
        memory.restore(&snapshot);
        assert_eq!((memory.get(&["/x/later".into()]).unwrap(), memory.history().turns), (vec![None], 1));
        memory.silence(true);
        assert_eq!(memory.get(&[]).unwrap_err().kind, FaultKind::Silent);
    }
}
