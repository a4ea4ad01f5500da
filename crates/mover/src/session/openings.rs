//! The jobs of one session that are being opened, and what the client says of them meanwhile; and which are over.
//!
//! Invariants:
//! - A session has at most `JOBS_MAX` jobs, counting these.
//! - What waits is handed over in its order, and is charged to the client's account until then.

use super::running::Running;
use super::seats::Guest;
use crate::job::Ending;
use crate::memory::Permit;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::limits::JOBS_MAX;
use wire::message;
use wire::{CloseCode, Refusal};

/// What a message that waits takes beside its bytes.
const WAITING_BYTES: usize = 64;
/// So many jobs that are over are remembered: a stream of one of them is late, and not a stranger's.
const PAST_KEPT: usize = 4 * JOBS_MAX;

/// The jobs of one session that are being opened.
#[derive(Default)]
pub struct Openings {
    state: Mutex<OpeningsState>,
}

#[derive(Default)]
struct OpeningsState {
    by_number: HashMap<u32, Waiting>,
    /// Those that have ended or were refused, the last one behind.
    past: VecDeque<u32>,
    /// Why the session has ended.
    ended: Option<Ending>,
}

/// What was said of a job that is being opened.
#[derive(Default)]
struct Waiting {
    messages: VecDeque<(Vec<u8>, Permit)>,
    /// More was said than there is room for.
    refused: Option<Refusal>,
}

impl Openings {
    pub fn count(&self) -> usize {
        self.state().by_number.len()
    }

    /// Keeps what is said of a job until it is open. False for a job that is not being opened.
    pub fn keep(&self, guest: Result<&Guest, Refusal>, number: u32, body: &[u8]) -> bool {
        let mut state = self.state();
        let Some(waiting) = state.by_number.get_mut(&number) else { return false };
        let charged = || guest?.memory.hold(body.len() + WAITING_BYTES, "jobs that are being opened");
        if waiting.refused.is_none() {
            match charged() {
                Ok(charge) => waiting.messages.push_back((body.to_vec(), charge)),
                Err(refusal) => waiting.refused = Some(refusal),
            }
        }
        true
    }

    /// The session is over: whatever is opened from here on ends.
    pub fn end(&self, why: &Ending) {
        self.state().ended.get_or_insert_with(|| why.clone());
    }

    /// A job from here on, beside those that are open: their lock is taken before this one wherever both are held.
    pub fn begin(&self, jobs: &HashMap<u32, Arc<Running>>, number: u32) -> Result<(), Refusal> {
        let mut state = self.state();
        let opening = state.by_number.keys().filter(|opening| !jobs.contains_key(opening)).count();
        let is_known = jobs.contains_key(&number) || state.by_number.contains_key(&number);
        if is_known || jobs.len() + opening >= JOBS_MAX {
            return Err(Refusal::new(CloseCode::Limit, "a job of this number is open, or too many are"));
        }
        state.by_number.insert(number, Waiting::default());
        state.past.retain(|past| *past != number);
        Ok(())
    }

    /// A job has ended, or was refused.
    pub fn note_past(&self, number: u32) {
        let mut state = self.state();
        state.past.push_back(number);
        if state.past.len() > PAST_KEPT {
            state.past.pop_front();
        }
    }

    /// A job was refused before it was begun. Another one of that number may be open.
    pub fn note_refused(&self, jobs: &HashMap<u32, Arc<Running>>, number: u32) {
        let is_known = jobs.contains_key(&number) || self.state().by_number.contains_key(&number);
        if !is_known {
            self.note_past(number);
        }
    }

    /// Whether no stream of this job is to be expected any more.
    pub fn is_past(&self, number: u32) -> bool {
        let state = self.state();
        state.ended.is_some() || state.past.contains(&number)
    }

    pub fn forget(&self, number: u32) {
        self.state().by_number.remove(&number);
    }

    /// Tells an open job what was said of it meanwhile. From the last of it on, the control stream's thread does.
    pub fn catch_up(&self, number: u32, running: &Running) -> Result<(), Refusal> {
        loop {
            if let Some(why) = self.ended() {
                running.job.stop(why);
                running.watch.abort();
            }
            let mut state = self.state();
            let Some(waiting) = state.by_number.get_mut(&number) else { return Ok(()) };
            let Some((body, _charge)) = waiting.messages.pop_front() else {
                let refused = state.by_number.remove(&number).and_then(|waiting| waiting.refused);
                drop(state);
                if let Some(refusal) = refused {
                    running.job.cancel(refusal.code, &refusal.text);
                }
                return Ok(());
            };
            drop(state);
            if let Some(message) = message::decode(&body)? {
                running.job.handle(message)?;
            }
        }
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<Ending> {
        self.state().ended.clone()
    }

    fn state(&self) -> MutexGuard<'_, OpeningsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
