//! What waits to become durable: complete objects, and links that are visible already.

use super::large::Large;
use super::listed::Listed;
use crate::job::End;
use crate::limits::COMMIT_QUEUE_MAX;
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
    queue: Mutex<VecDeque<Item>>,
    changed: Condvar,
}

impl Committer {
    /// Hands an item in; waits while too many are waiting. After the end of the job nobody takes items out: they are
    /// dropped, and what they staged is swept with their lane.
    pub fn push(&self, item: Item, end: &End) {
        let mut queue = self.queue.lock().unwrap();
        while queue.len() >= COMMIT_QUEUE_MAX {
            if end.is_set() {
                return;
            }
            queue = self.changed.wait_timeout(queue, Duration::from_millis(100)).unwrap().0;
        }
        queue.push_back(item);
        self.changed.notify_all();
    }

    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Everything that waits, or nothing after `patience`.
    pub fn take(&self, patience: Duration) -> Vec<Item> {
        let mut queue = self.queue.lock().unwrap();
        if queue.is_empty() {
            queue = self.changed.wait_timeout(queue, patience).unwrap().0;
        }
        let items = queue.drain(..).collect();
        self.changed.notify_all();
        items
    }
}
