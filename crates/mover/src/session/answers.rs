//! The questions of a client that wait for an answer: its parts are handed to the asking thread through a queue that never
//! holds more than the endpoint may send ahead.
//!
//! Not here: asking, and taking the parts (`question`).

use model::files::{Question, Record, Tally};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::files::{AnswerCheck, tally_of};
use wire::limits::BATCHES_AHEAD;
use wire::message::{Answered, Records};
use wire::{CloseCode, Refusal};

/// The questions of a client that are not answered to their end.
#[derive(Default)]
pub(super) struct Answers {
    open: Mutex<HashMap<u32, Waiting>>,
    /// Number of the question asked last.
    last: AtomicU32,
}

struct Waiting {
    check: AnswerCheck,
    parts: SyncSender<Part>,
}

pub(super) enum Part {
    Records(Vec<Record>),
    End(Result<Tally, Refusal>),
}

impl Answers {
    /// A part of an answer; one that nobody waits for any more crossed its `Stop` on the way.
    pub fn records(&self, batch: Records) -> Result<(), Refusal> {
        let number = batch.number;
        let mut open = self.open();
        let Some(waiting) = open.get(&number) else { return Ok(()) };
        let records = waiting.check.check(batch)?;
        match waiting.parts.try_send(Part::Records(records)) {
            Ok(()) => Ok(()),
            Err(TrySendError::Disconnected(_)) => {
                open.remove(&number);
                Ok(())
            }
            Err(TrySendError::Full(_)) => Err(Refusal::new(CloseCode::Limit, "more of an answer than was asked for")),
        }
    }

    pub fn answered(&self, answered: &Answered) -> Result<(), Refusal> {
        if let Some(waiting) = self.open().remove(&answered.number) {
            // There is always room for it: it is not counted among the parts.
            let _ = waiting.parts.try_send(Part::End(tally_of(answered)));
        }
        Ok(())
    }

    /// The session is over: nothing more comes.
    pub fn close(&self) {
        self.open().clear();
    }

    pub fn begin(&self, question: &Question) -> (u32, Receiver<Part>) {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let (parts, received) = sync_channel(BATCHES_AHEAD as usize + 1);
        self.open().insert(number, Waiting { check: AnswerCheck::new(question), parts });
        (number, received)
    }

    pub fn forget(&self, number: u32) {
        self.open().remove(&number);
    }

    /// Also after a thread panicked with it: whoever waits is to hear of the end.
    fn open(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
