//! What waits to become durable: complete objects, and links that are visible already.

use super::large::Large;
use super::listed::Listed;
use crate::job::End;
use crate::limits::{COMMIT_LARGE_MAX, COMMIT_QUEUE_MAX};
use model::Digest;
use os::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use store::Staged;

pub enum Item {
    Small {
        listed: Arc<Listed>,
        index: usize,
        staged: Staged,
        digest: Digest,
        size_bytes: u64,
    },
    Large(Arc<Large>),
    /// A symbolic link, already visible.
    Link(u64),
}

#[derive(Default)]
pub struct Committer {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    /// Large ones among them.
    large: usize,
}

impl Queue {
    fn has_room_for(&self, item: &Item) -> bool {
        let has_room = self.large < COMMIT_LARGE_MAX || !matches!(item, Item::Large(_));
        has_room && self.items.len() < COMMIT_QUEUE_MAX
    }

    fn put(&mut self, item: Item) {
        self.large += usize::from(matches!(item, Item::Large(_)));
        self.items.push_back(item);
    }
}

impl Committer {
    /// Hands an item in; waits while too many are waiting. After the end of the job nobody takes items out: they are
    /// dropped, and what they staged is swept with their lane.
    pub fn push(&self, item: Item, end: &End) {
        let mut queue = self.queue.lock().unwrap();
        while !queue.has_room_for(&item) {
            if end.is_set() {
                return;
            }
            queue = self.changed.wait_timeout(queue, Duration::from_millis(100)).unwrap().0;
        }
        queue.put(item);
        self.changed.notify_all();
    }

    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Everything that waits, or nothing after `patience`.
    pub fn take(&self, patience: Duration) -> Vec<Item> {
        let mut queue = self.queue.lock().unwrap();
        if queue.items.is_empty() {
            queue = self.changed.wait_timeout(queue, patience).unwrap().0;
        }
        queue.large = 0;
        let items = queue.items.drain(..).collect();
        self.changed.notify_all();
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_keep_files_open_wait_for_room_sooner_than_others() {
        let large = super::super::large::tests::large(16, Arc::new(super::super::zeros::Zeros));
        let mut queue = Queue::default();
        for _ in 0..COMMIT_LARGE_MAX {
            assert!(queue.has_room_for(&Item::Large(large.clone())));
            queue.put(Item::Large(large.clone()));
        }
        assert!(!queue.has_room_for(&Item::Large(large)) && queue.has_room_for(&Item::Link(1)));
        let committer = Committer { queue: Mutex::new(queue), ..Committer::default() };
        assert_eq!(committer.take(Duration::ZERO).len(), COMMIT_LARGE_MAX);
        assert_eq!(committer.queue.lock().unwrap().large, 0);
    }
}
