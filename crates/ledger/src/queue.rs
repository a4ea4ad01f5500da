//! A bounded queue of requests from many callers to the one writer.
//!
//! Bounded in number and in bytes; a caller waits for room up to a deadline. (std's bounded channel can neither wait with
//! a deadline to send nor bound bytes.)

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Queue<T> {
    /// Protects the items; held only to move items in or out.
    inner: Mutex<Inner<T>>,
    filled: Condvar,
    emptied: Condvar,
    count_max: usize,
    bytes_max: usize,
}

struct Inner<T> {
    items: VecDeque<T>,
    bytes: usize,
    is_closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Closed,
    NoRoom,
}

impl<T> Queue<T> {
    pub(crate) fn new(count_max: usize, bytes_max: usize) -> Queue<T> {
        let inner = Inner { items: VecDeque::new(), bytes: 0, is_closed: false };
        Queue { inner: Mutex::new(inner), filled: Condvar::new(), emptied: Condvar::new(), count_max, bytes_max }
    }

    /// Adds an item, waiting for room for at most `wait`. An item larger than the whole bound waits for an empty queue.
    pub(crate) fn push(&self, item: T, bytes: usize, wait: Duration) -> Result<(), Refused> {
        let since = Instant::now();
        let mut inner = self.lock();
        loop {
            if inner.is_closed {
                return Err(Refused::Closed);
            }
            let has_room = inner.items.len() < self.count_max && inner.bytes.saturating_add(bytes) <= self.bytes_max;
            if has_room || inner.items.is_empty() {
                inner.items.push_back(item);
                inner.bytes = inner.bytes.saturating_add(bytes);
                self.filled.notify_one();
                return Ok(());
            }
            let left = wait.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Err(Refused::NoRoom);
            }
            inner = self.emptied.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes everything, waiting until there is something. Empty when the queue is closed and drained.
    pub(crate) fn take(&self) -> VecDeque<T> {
        let mut inner = self.lock();
        while inner.items.is_empty() && !inner.is_closed {
            inner = self.filled.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
        inner.bytes = 0;
        self.emptied.notify_all();
        std::mem::take(&mut inner.items)
    }

    /// Refuses further items; those in the queue are still taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_all();
        self.emptied.notify_all();
    }

    /// Nothing in the sections above can leave the items half moved, so a poisoned lock still holds sound ones.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_at_the_deadline_and_keeps_what_it_holds() {
        let queue = Queue::new(2, 100);
        assert_eq!(queue.push(1, 60, Duration::ZERO), Ok(()));
        assert_eq!(queue.push(2, 60, Duration::from_millis(1)), Err(Refused::NoRoom));
        assert_eq!(queue.push(3, 40, Duration::ZERO), Ok(()));
        assert_eq!(queue.push(4, 0, Duration::ZERO), Err(Refused::NoRoom));
        assert_eq!(queue.take(), [1, 3]);
    }

    #[test]
    fn an_item_larger_than_the_bound_enters_an_empty_queue() {
        let queue = Queue::new(2, 100);
        assert_eq!(queue.push(1, usize::MAX, Duration::ZERO), Ok(()));
        assert_eq!(queue.push(2, 1, Duration::ZERO), Err(Refused::NoRoom));
        assert_eq!(queue.take(), [1]);
        assert_eq!(queue.push(2, 1, Duration::ZERO), Ok(()));
    }

    #[test]
    fn a_closed_queue_is_drained_and_takes_no_more() {
        let queue = Queue::new(2, 100);
        queue.push(1, 1, Duration::ZERO).unwrap();
        queue.close();
        assert_eq!(queue.push(2, 1, Duration::ZERO), Err(Refused::Closed));
        assert_eq!(queue.take(), [1]);
        assert!(queue.take().is_empty());
    }
}
