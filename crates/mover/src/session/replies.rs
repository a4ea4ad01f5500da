//! What answers a client's requests about jobs: handed to whoever waits, by number.
//!
//! Not here: the requests (`question`), and what an endpoint says (`requests`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::limits::ORDERS_TOLD_MAX;
use wire::{CloseCode, Message, Refusal};

/// Answers that may wait to be taken: each job with its failures and its end.
pub const ANSWERS_MAX: usize = 3 * ORDERS_TOLD_MAX + 1;

/// The requests of a client that are not answered to their end.
#[derive(Default)]
pub struct Replies {
    open: Mutex<HashMap<u32, SyncSender<Message>>>,
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
        }
        if is_full {
            return Err(Refusal::new(CloseCode::Limit, "more of an answer than there can be"));
        }
        Ok(())
    }

    pub fn begin(&self) -> (u32, Receiver<Message>) {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let (sender, received) = sync_channel(ANSWERS_MAX);
        self.open().insert(number, sender);
        (number, received)
    }

    pub fn forget(&self, number: u32) {
        self.open().remove(&number);
    }

    pub fn close(&self) {
        self.open().clear();
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
