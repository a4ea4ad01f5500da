//! What answers a client's requests about jobs: handed to whoever waits, by number.
//!
//! Invariants:
//! - No more requests are open than an endpoint takes in one session; whoever has one more waits for a place.
//! - What an endpoint can make this side hold of one answer is bounded, in messages and in bytes.
//!
//! Not here: the requests (`question`), and what an endpoint says (`requests`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::limits::{ASKS_MAX, CONTROL_BODY_BYTES_MAX, ORDERS_TOLD_MAX, PLAIN_BODY_BYTES_MAX};
use wire::{CloseCode, Message, Refusal};

/// Answers that may wait to be taken: each job with its failures and its end.
pub const ANSWERS_MAX: usize = 3 * ORDERS_TOLD_MAX + 1;
/// And their bytes: how each job stands and how it ended. An order and failures are told of one job at a time.
const ANSWER_BYTES_MAX: usize = 2 * ORDERS_TOLD_MAX * PLAIN_BODY_BYTES_MAX + 2 * CONTROL_BODY_BYTES_MAX;
/// How often a wait, for a place or for an answer, looks whether it is still wanted.
pub const WAIT: Duration = Duration::from_millis(50);

/// The requests of a client that are not answered to their end.
#[derive(Default)]
pub struct Replies {
    open: Mutex<HashMap<u32, Waiting>>,
    /// Told of each place that becomes free.
    freed: Condvar,
    last: AtomicU32,
}

struct Waiting {
    answers: SyncSender<Message>,
    /// Of all that came so far: whoever takes them keeps them.
    bytes: usize,
}

impl Replies {
    /// One that nobody waits for any more is passed over.
    pub fn take(&self, message: Message) -> Result<(), Refusal> {
        let number = number_of(&message).unwrap_or(0);
        let mut open = self.open();
        let is_last = matches!(message, Message::OrderTaken(_));
        let Some(waiting) = open.get_mut(&number) else { return Ok(()) };
        waiting.bytes += message.encoded_len();
        let is_full =
            waiting.bytes > ANSWER_BYTES_MAX || matches!(waiting.answers.try_send(message), Err(TrySendError::Full(_)));
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
        let (answers, received) = sync_channel(ANSWERS_MAX);
        open.insert(number, Waiting { answers, bytes: 0 });
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
    fn open(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
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
    use wire::message::{OrderEvents, OrderFailure, OrderTaken};

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

    #[test]
    fn an_answer_has_no_more_bytes_than_there_can_be_whether_they_were_taken_or_not() {
        let replies = Replies::default();
        let (number, received) = replies.begin(&|| false).unwrap();
        let failure = OrderFailure { path: vec![7; CONTROL_BODY_BYTES_MAX / 2], ..OrderFailure::default() };
        let news = || OrderEvents { number, failures: vec![failure.clone()], ..OrderEvents::default() }.into();
        let fit = ANSWER_BYTES_MAX / CONTROL_BODY_BYTES_MAX;
        for _ in 0..fit {
            replies.take(news()).unwrap();
            received.recv().unwrap();
        }
        let refused = (0..2 * fit).find_map(|_| replies.take(news()).err());
        assert_eq!(refused.map(|refusal| refusal.code), Some(CloseCode::Limit));
        // Another request has room of its own.
        let (number, _received) = replies.begin(&|| false).unwrap();
        replies.take(OrderEvents { number, failures: vec![failure.clone()], ..OrderEvents::default() }.into()).unwrap();
    }
}
