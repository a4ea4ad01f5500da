//! One copy of what many jobs have alike.
//!
//! Invariant: what nobody has any more is forgotten before the pool is twice as large as it was after the last look.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

pub(crate) struct Pool<T> {
    known: HashSet<Arc<T>>,
    /// At this size it is looked for what nobody has.
    look_at: usize,
}

const LOOK_FIRST: usize = 64;

impl<T: Eq + Hash> Pool<T> {
    pub fn new() -> Pool<T> {
        Pool { known: HashSet::new(), look_at: LOOK_FIRST }
    }

    /// Puts the copy of the pool in the place of an equal value.
    pub fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.known.get(&**value) {
            *value = known.clone();
            return;
        }
        if self.known.len() >= self.look_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.known.shrink_to(LOOK_FIRST);
            self.look_at = (self.known.len() * 2).max(LOOK_FIRST);
        }
        self.known.insert(value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_what_nobody_has_is_forgotten() {
        let mut pool = Pool::new();
        let (mut one, mut other) = (Arc::new(7), Arc::new(7));
        pool.share(&mut one);
        pool.share(&mut other);
        assert!(Arc::ptr_eq(&one, &other));
        (100..10_000).for_each(|n| pool.share(&mut Arc::new(n)));
        assert!(pool.known.len() <= LOOK_FIRST && pool.known.contains(&7), "{}", pool.known.len());
    }
}
