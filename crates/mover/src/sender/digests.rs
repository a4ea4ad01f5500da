//! Answers a receiver that compares by digest: reads what it names, on a thread of its own, and tells the digests.
//!
//! The queue is bounded by the entries' credit: an object is asked for only while it is open, and once.

use super::SendJob;
use crate::digest::of_file;
use crate::job::panics;
use crate::progress::count;
use model::Kind;
use os::sync::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::{SourceLane, SourceObject};
use wire::message::{AskDigests, DigestRecord, Digests};
use wire::{CloseCode, Message, Refusal};

/// Answers told in one message, and how often the thread looks whether the job still runs.
const ANSWERS_AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Default)]
pub struct Asked {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<SourceObject>,
    /// In the queue or in the thread's hands.
    open: HashSet<u64>,
    is_started: bool,
}

impl SendJob {
    /// Takes a question in; it is answered later.
    pub(super) fn ask_digests(self: &Arc<SendJob>, asked: &AskDigests) -> Result<(), Refusal> {
        super::split::check_counts(asked.runs.iter())?;
        let mut state = self.asked.state.lock().unwrap();
        for id in asked.runs.iter().flat_map(|run| run.ids()) {
            let object = self.book.lock().unwrap().split.unanswered_object(id);
            let object = object.filter(|object| object.entry.kind == Kind::File && !object.is_open_ended);
            let Some(object) = object.filter(|_| state.open.insert(id)) else {
                let text = format!("the digest of object {id} is asked for, which cannot be told, or twice");
                return Err(Refusal::new(CloseCode::WrongState, &text));
            };
            state.queue.push_back(object);
        }
        if !std::mem::replace(&mut state.is_started, true) {
            let job = self.clone();
            os::thread::spawn("digests", move || {
                if panics(|| run(&job)) {
                    job.cancel(CloseCode::Internal, "a thread of this program failed; this is a bug");
                }
            });
        }
        self.asked.arrived.notify_one();
        Ok(())
    }
}

fn run(job: &Arc<SendJob>) {
    let mut lane = job.source.lane();
    let mut answers = Vec::new();
    while !job.end.is_set() && !job.is_complete() {
        let mut state = job.asked.state.lock().unwrap();
        let Some(object) = state.queue.pop_front() else {
            if answers.is_empty() {
                drop(job.asked.arrived.wait_timeout(state, PATIENCE).unwrap());
            } else {
                drop(state);
                tell(job, &mut answers);
            }
            continue;
        };
        drop(state);
        let digest = digest_of(job, &mut *lane, &object).unwrap_or_default();
        answers.push(DigestRecord { object: object.entry.id.0, digest });
        if answers.len() >= ANSWERS_AT_ONCE || object.entry.size_bytes() > (1 << 20) {
            tell(job, &mut answers);
        }
    }
}

fn tell(job: &SendJob, answers: &mut Vec<DigestRecord>) {
    let mut state = job.asked.state.lock().unwrap();
    answers.iter().for_each(|answer| _ = state.open.remove(&answer.object));
    drop(state);
    job.port.send(Message::Digests(Digests { job: job.number, digests: std::mem::take(answers) }));
}

/// `None` when it cannot be read, or is not what was described any more: its content then tells why.
fn digest_of(job: &SendJob, lane: &mut dyn SourceLane, object: &SourceObject) -> Option<Vec<u8>> {
    let file = lane.open(object).ok()?;
    let goes_on = || {
        count(&job.progress.blocks_compared, 1);
        !job.end.is_set()
    };
    let digest = of_file(&*file, object.entry.size_bytes(), job.options.digest, &goes_on).ok()??;
    (file.generation().ok()? == object.entry.generation).then(|| digest.to_bytes())
}
