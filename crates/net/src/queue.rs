//! The bytes that wait to be sent on a control stream, between any number of senders and the loop.
//!
//! Invariants:
//! - At most `bytes_max` bytes wait, or one message alone.
//! - The lock is never held during a system call; its longest hold copies one record (16 KiB).
//! - What waits beyond `FREE_BYTES` is charged to the queue's account, if it has one, and given back when the queue is gone.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{self, ThreadId};

use rustix::event::EventfdFlags;

/// Messages are joined up to this length: many short ones would take several times their bytes.
const JOINED_BYTES_MAX: usize = 4 << 10;
/// What may wait without being charged, and the steps in which the rest is.
const FREE_BYTES: usize = 256 << 10;
const CHARGED_BYTES: usize = 256 << 10;

/// Why bytes were not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("the control stream is closed")]
    Closed,
    /// Only said to the loop's own thread, which must not wait for itself.
    #[error("too many bytes wait to be sent on the control stream")]
    Full,
}

/// An account that bytes waiting to be sent are charged to.
pub trait Budget: Send + Sync {
    /// Whether so many more may wait. Never waits itself.
    fn take(&self, bytes: usize) -> bool;

    fn give(&self, bytes: usize);
}

pub(crate) struct Queue {
    state: Mutex<State>,
    /// Waited on by senders while too many bytes are queued.
    has_room: Condvar,
    /// Readable when the loop should look at the queue.
    wake: OwnedFd,
    bytes_max: usize,
    loop_thread: OnceLock<ThreadId>,
    budget: OnceLock<Arc<dyn Budget>>,
}

struct State {
    /// Taken from the budget.
    charged: usize,
    messages: VecDeque<Vec<u8>>,
    /// Part of the first message that has been taken.
    offset: usize,
    /// Of all messages, less `offset`.
    bytes: usize,
    phase: Phase,
    is_wake_pending: bool,
    was_finished_by_sender: bool,
    is_leaving: bool,
}

/// Where a queue is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Open,
    /// Takes nothing more; what it holds is still to be sent.
    Finishing,
    /// The loop is gone.
    Closed,
}

/// What [`Queue::take`] found.
pub(crate) struct Taken {
    pub(crate) bytes: usize,
    pub(crate) phase: Phase,
}

impl Queue {
    pub(crate) fn new(bytes_max: usize) -> io::Result<Self> {
        let state = State {
            charged: 0,
            messages: VecDeque::new(),
            offset: 0,
            bytes: 0,
            phase: Phase::Open,
            is_wake_pending: false,
            was_finished_by_sender: false,
            is_leaving: false,
        };
        Ok(Self {
            state: Mutex::new(state),
            has_room: Condvar::new(),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            bytes_max,
            loop_thread: OnceLock::new(),
            budget: OnceLock::new(),
        })
    }

    pub(crate) fn charge_to(&self, budget: Arc<dyn Budget>) {
        let _ = self.budget.set(budget);
    }

    /// Takes what so many waiting bytes cost. A message that waits alone is let through: it is on its way out.
    fn charge(&self, state: &mut State, bytes: usize) -> bool {
        let Some(budget) = self.budget.get().filter(|_| bytes > FREE_BYTES + state.charged) else { return true };
        let steps = (bytes - FREE_BYTES - state.charged).div_ceil(CHARGED_BYTES);
        let is_taken = budget.take(steps * CHARGED_BYTES);
        if is_taken {
            state.charged += steps * CHARGED_BYTES;
        }
        is_taken
    }

    /// Gives back what is not needed for what still waits.
    fn discharge(&self, state: &mut State) {
        let needed = state.bytes.saturating_sub(FREE_BYTES).div_ceil(CHARGED_BYTES) * CHARGED_BYTES;
        if let Some(budget) = self.budget.get().filter(|_| needed < state.charged) {
            budget.give(state.charged - needed);
            state.charged = needed;
        }
    }

    /// Queues a message, waiting for room if asked to and unless this is the loop's thread.
    pub(crate) fn push(&self, message: Vec<u8>, may_wait: bool) -> Result<(), SendError> {
        let mut state = self.lock();
        loop {
            if state.phase != Phase::Open {
                return Err(SendError::Closed);
            }
            if message.is_empty() {
                return Ok(());
            }
            let bytes = state.bytes.saturating_add(message.len());
            if state.bytes == 0 || bytes <= self.bytes_max && self.charge(&mut state, bytes) {
                break;
            }
            if !may_wait || self.loop_thread.get() == Some(&thread::current().id()) {
                return Err(SendError::Full);
            }
            state = self.has_room.wait(state).expect("nobody panics while holding it");
        }
        state.bytes += message.len();
        match state.messages.back_mut() {
            Some(last) if last.len() + message.len() <= JOINED_BYTES_MAX => last.extend_from_slice(&message),
            _ => state.messages.push_back(message),
        }
        self.wake_loop(state);
        Ok(())
    }

    /// A sender asks for the end: nothing more is taken.
    pub(crate) fn finish_by_sender(&self) {
        let mut state = self.lock();
        state.was_finished_by_sender |= state.phase == Phase::Open;
        self.finish_locked(state);
    }

    /// The peer has closed: nothing more is taken.
    pub(crate) fn finish(&self) {
        self.finish_locked(self.lock());
    }

    /// Like `finish_by_sender`, and the peer's close is not waited for.
    pub(crate) fn leave(&self) {
        self.lock().is_leaving = true;
        self.finish_by_sender();
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.lock().is_leaving
    }

    pub(crate) fn was_finished_by_sender(&self) -> bool {
        self.lock().was_finished_by_sender
    }

    /// The loop is gone: what waits is dropped, whoever waits is told.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.phase = Phase::Closed;
        state.messages = VecDeque::new();
        (state.offset, state.bytes) = (0, 0);
        self.discharge(&mut state);
        drop(state);
        self.has_room.notify_all();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Moves the next bytes to `out`, across messages.
    pub(crate) fn take(&self, out: &mut [u8]) -> Taken {
        let mut state = self.lock();
        let mut taken = 0;
        while let Some(message) = state.messages.front() {
            let piece = &message[state.offset..];
            let piece = &piece[..piece.len().min(out.len() - taken)];
            out[taken..taken + piece.len()].copy_from_slice(piece);
            taken += piece.len();
            state.offset += piece.len();
            if state.offset < state.messages[0].len() {
                break;
            }
            state.messages.pop_front();
            state.offset = 0;
        }
        state.bytes -= taken;
        self.discharge(&mut state);
        let phase = state.phase;
        drop(state);
        if taken > 0 {
            self.has_room.notify_all();
        }
        Taken { bytes: taken, phase }
    }

    /// Makes the calling thread the one that never waits for room.
    pub(crate) fn adopt_thread(&self) {
        // A loop runs once, so this is the first and only call.
        let _ = self.loop_thread.set(thread::current().id());
    }

    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    /// Forgets earlier wake-ups; what is queued from here on makes `wake_fd` readable again.
    ///
    /// The caller has to look at the queue afterwards.
    pub(crate) fn clear_wake(&self) {
        if !self.lock().is_wake_pending {
            return;
        }
        // Read before the flag is cleared: the other way round, the wake-up of a message queued in between would be
        // read here while the flag says that one is pending, and nobody would write another. EAGAIN means that the
        // waker has not written yet; then one wake-up too many follows.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        self.lock().is_wake_pending = false;
    }

    fn finish_locked(&self, mut state: MutexGuard<'_, State>) {
        state.phase = state.phase.max(Phase::Finishing);
        self.wake_loop(state);
        self.has_room.notify_all();
    }

    fn wake_loop(&self, mut state: MutexGuard<'_, State>) {
        let was_pending = std::mem::replace(&mut state.is_wake_pending, true);
        drop(state);
        if !was_pending {
            // A counter of one cannot overflow, so this neither waits nor fails.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// An account of so many bytes.
    struct Account(AtomicUsize);

    impl Budget for Account {
        fn take(&self, bytes: usize) -> bool {
            self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).is_ok()
        }

        fn give(&self, bytes: usize) {
            self.0.fetch_add(bytes, Relaxed);
        }
    }

    #[test]
    fn what_waits_is_charged_and_given_back() {
        const MESSAGE: usize = 64 << 10;
        let account = Arc::new(Account(AtomicUsize::new(2 * CHARGED_BYTES)));
        let queue = Queue::new(8 << 20).unwrap();
        queue.charge_to(account.clone());
        let mut waiting = 0;
        while queue.push(vec![0; MESSAGE], false).is_ok() {
            waiting += MESSAGE;
        }
        assert_eq!((waiting, account.0.load(Relaxed)), (FREE_BYTES + 2 * CHARGED_BYTES, 0));
        // What leaves makes room.
        queue.take(&mut vec![0; MESSAGE]);
        queue.push(vec![0; MESSAGE], false).unwrap();
        queue.take(&mut vec![0; CHARGED_BYTES]);
        assert_eq!(account.0.load(Relaxed), CHARGED_BYTES);
        queue.close();
        assert_eq!(account.0.load(Relaxed), 2 * CHARGED_BYTES);
    }
}
