//! When a reply is due: one queue in the order of time, one thread that runs it.
//!
//! Invariants:
//! - While the storage stands still, nothing passes: an operation takes the time that it moves, not the time by the clock.
//! - Replies run in the order of their due times, never before them; those left when the clock stops run at once.
//! - The queue is bounded by the kernel: each waiting reply is one of its requests, and it limits those.

use super::profile::Stall;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs replies when they are due.
pub(super) struct Clock {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Held for a push or a pop only.
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    waiting: BinaryHeap<Waiting>,
    count: u64,
    bytes_per_second: Option<u64>,
    stall: Option<Stall>,
    began: Instant,
    /// When the last byte admitted so far has passed.
    rate_free_at: Instant,
    is_stopped: bool,
}

struct Waiting {
    due: Instant,
    /// Keeps replies due at the same time in order.
    number: u64,
    reply: Box<dyn FnOnce() + Send>,
}

impl Clock {
    pub(super) fn start(bytes_per_second: Option<u64>, stall: Option<Stall>) -> std::io::Result<Clock> {
        let queue = Queue {
            waiting: BinaryHeap::new(),
            count: 0,
            bytes_per_second: bytes_per_second.filter(|&rate| rate > 0),
            stall: stall.filter(|stall| !stall.length.is_zero() && stall.length < stall.period),
            began: Instant::now(),
            rate_free_at: Instant::now(),
            is_stopped: false,
        };
        let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("storage-clock".to_owned()).spawn(move || theirs.run())?;
        Ok(Clock { shared, thread: Some(thread) })
    }

    /// Runs `reply` when an operation that arrived at `arrived` and moves `bytes` has taken its time.
    ///
    /// Latency and the rate run at the same time: the later of the two counts.
    pub(super) fn reply_after(
        &self,
        arrived: Instant,
        latency: Duration,
        bytes: usize,
        reply: impl FnOnce() + Send + 'static,
    ) {
        let mut queue = self.shared.lock();
        let due = queue.after(arrived, latency).max(queue.admit(arrived, bytes));
        if due <= Instant::now() {
            drop(queue);
            return reply();
        }
        queue.count += 1;
        let number = queue.count;
        queue.waiting.push(Waiting { due, number, reply: Box::new(reply) });
        drop(queue);
        self.shared.changed.notify_one();
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// Books `bytes` at the shared rate; returns when the last of them has passed.
    fn admit(&mut self, arrived: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.bytes_per_second.filter(|_| bytes > 0) else { return arrived };
        let passing = Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.rate_free_at = self.after(self.rate_free_at.max(arrived), passing);
        self.rate_free_at
    }

    /// When what takes `time` is over that begins at `start`: while the storage stands still, no time passes.
    fn after(&self, start: Instant, mut time: Duration) -> Instant {
        let Some(stall) = self.stall else { return start + time };
        let mut at = start;
        loop {
            let into = ((at - self.began) + stall.phase).as_nanos() % stall.period.as_nanos();
            let into = Duration::from_nanos(into as u64);
            if into < stall.length {
                at += stall.length - into;
                continue;
            }
            let moves = stall.period - into;
            if time < moves {
                return at + time;
            }
            time -= moves;
            at += moves;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing that can panic runs under the lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut queue = self.lock();
        loop {
            let now = Instant::now();
            let is_stopped = queue.is_stopped;
            match queue.waiting.peek().map(|first| first.due) {
                Some(due) if due <= now || is_stopped => {
                    let due = queue.waiting.pop();
                    drop(queue);
                    if let Some(waiting) = due {
                        (waiting.reply)();
                    }
                    queue = self.lock();
                }
                Some(due) => {
                    let waited = self.changed.wait_timeout(queue, due - now);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None if is_stopped => return,
                None => queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The earliest first, and of those the one that came first: `BinaryHeap` pops the greatest.
impl Ord for Waiting {
    fn cmp(&self, other: &Waiting) -> std::cmp::Ordering {
        Reverse((self.due, self.number)).cmp(&Reverse((other.due, other.number)))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Waiting) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Waiting) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn delays_overlap_and_end_in_order() {
        let clock = Clock::start(None, None).unwrap();
        let (sender, receiver) = mpsc::channel();
        let arrived = Instant::now();
        for milliseconds in [30u64, 10, 20] {
            let sender = sender.clone();
            let latency = Duration::from_millis(milliseconds);
            clock.reply_after(arrived, latency, 0, move || sender.send((milliseconds, arrived.elapsed())).unwrap());
        }
        let replies: Vec<_> = receiver.iter().take(3).collect();
        assert_eq!(replies.iter().map(|reply| reply.0).collect::<Vec<_>>(), [10, 20, 30]);
        assert!(replies.iter().all(|&(due, after)| after >= Duration::from_millis(due)));
    }

    #[test]
    fn nothing_passes_while_the_storage_stands_still() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let stall = Stall { length: seconds(5), period: seconds(20), phase: seconds(5) };
        let mut queue = Queue {
            waiting: BinaryHeap::new(),
            count: 0,
            bytes_per_second: Some(100),
            stall: Some(stall),
            began: start,
            rate_free_at: start,
            is_stopped: false,
        };
        assert_eq!(queue.admit(start, 1000), start + seconds(10));
        // Five seconds until it stands still, five of standing still, five more.
        assert_eq!(queue.admit(start, 1000), start + seconds(25));
        assert_eq!(queue.after(start + seconds(16), Duration::ZERO), start + seconds(20));
        assert_eq!(queue.after(start + seconds(14), seconds(31)), start + seconds(60));
    }

    #[test]
    fn the_rate_is_shared_and_latency_is_not_added_to_it() {
        let start = Instant::now();
        let mut queue = Queue {
            waiting: BinaryHeap::new(),
            count: 0,
            bytes_per_second: Some(1000),
            stall: None,
            began: start,
            rate_free_at: start,
            is_stopped: false,
        };
        assert_eq!(queue.admit(start, 500), start + Duration::from_millis(500));
        assert_eq!(queue.admit(start, 500), start + Duration::from_millis(1000));
        assert_eq!(queue.admit(start + Duration::from_secs(5), 100), start + Duration::from_millis(5100));
    }

    #[test]
    fn stopping_answers_what_still_waits() {
        let clock = Clock::start(None, None).unwrap();
        let (sender, receiver) = mpsc::channel();
        clock.reply_after(Instant::now(), Duration::from_secs(3600), 0, move || sender.send(()).unwrap());
        drop(clock);
        assert!(receiver.try_recv().is_ok());
    }
}
