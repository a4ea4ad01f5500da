//! What answers a client's requests about jobs: handed to whoever waits, by number.
//!
//! Invariant: no more requests are open than an endpoint takes in one session; whoever has one more waits for a place.
//!
//! Not here: the requests (`question`), and what an endpoint says (`requests`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::limits::{ASKS_MAX, ORDERS_TOLD_MAX};
use wire::{CloseCode, Message, Refusal};

/// Answers that may wait to be taken: each job with its failures and its end.
pub const ANSWERS_MAX: usize = 3 * ORDERS_TOLD_MAX + 1;
/// How often a wait, for a place or for an answer, looks whether it is still wanted.
pub const WAIT: Duration = Duration::from_millis(50);

/// The requests of a client that are not answered to their end.
#[derive(Default)]
pub struct Replies {
    open: Mutex<HashMap<u32, SyncSender<Message>>>,
    /// Told of each place that becomes free.
    freed: Condvar,
    last: AtomicU32,
}

impl Replies {
    /// One that nobody waits for any more is passed over.
    pub fn take(&self, message: Message) -> Result<(), Refusal> {
        let number = number_of(&message).unwrap_or(0);
        let mut open = self.open();
        let is_last = matches!(message, Message::OrderTaken(_));
        let Some(waiting) = open.get(&number) else { return Ok(()) };
        let is_full = matches!(waiting.try_send(message), Err(TrySendError::Full(_)));
        if is_last {
            open.remove(&number);
            self.freed.notify_one();
        }
        if is_full {
            return Err(Refusal::new(CloseCode::Limit, "more of an answer than there can be"));
        }
        Ok(())
    }

    /// Takes a place, once there is one; nothing where the wait for it is not wanted any more.
    pub fn begin(&self, is_over: &dyn Fn() -> bool) -> Option<(u32, Receiver<Message>)> {
        let mut open = self.open();
        while open.len() >= ASKS_MAX {
            if is_over() {
                return None;
            }
            open = self.freed.wait_timeout(open, WAIT).unwrap_or_else(PoisonError::into_inner).0;
        }
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let (sender, received) = sync_channel(ANSWERS_MAX);
        open.insert(number, sender);
        Some((number, received))
    }

    pub fn forget(&self, number: u32) {
        self.open().remove(&number);
        self.freed.notify_one();
    }

    pub fn close(&self) {
        self.open().clear();
        self.freed.notify_all();
    }

    /// Also after a thread panicked with it: whoever waits is to hear of the end.
    fn open(&self) -> MutexGuard<'_, HashMap<u32, SyncSender<Message>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number under which a request is answered.
pub fn number_of(message: &Message) -> Option<u32> {
    match message {
        Message::Order(m) => Some(m.number),
        Message::OrderSteer(m) => Some(m.number),
        Message::OrderAsk(m) => Some(m.number),
        Message::Revoke(m) => Some(m.number),
        Message::OrderTaken(m) => Some(m.number),
        Message::OrderNews(m) => Some(m.number),
        Message::OrderEvents(m) => Some(m.number),
        Message::OrderEnded(m) => Some(m.number),
        Message::AskHosts(m) => Some(m.number),
        Message::Hosts(m) => Some(m.number),
        Message::Attend(m) => Some(m.number),
        Message::Standing(m) => Some(m.number),
        Message::AskTerms(m) => Some(m.number),
        Message::Terms(m) => Some(m.number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::message::OrderTaken;

    #[test]
    fn one_request_more_than_a_session_may_have_waits_for_a_place() {
        let replies = Replies::default();
        let begin = |is_over: bool| replies.begin(&|| is_over).map(|(number, _)| number);
        let numbers: Vec<u32> = (0..ASKS_MAX).filter_map(|_| begin(false)).collect();
        assert_eq!((numbers.len(), begin(true)), (ASKS_MAX, None));
        // One was answered, another is not waited for any more.
        replies.take(OrderTaken { number: numbers[0], ..OrderTaken::default() }.into()).unwrap();
        replies.forget(numbers[1]);
        assert!(begin(true).is_some() && begin(true).is_some() && begin(true).is_none());
        replies.close();
        assert!(begin(true).is_some());
    }
}
