//! Answers a receiver that compares by digest: reads what it names, whole objects or chunks of one, on a thread of its own,
//! and tells the digests.

use super::SendJob;
use super::questions::Question;
use crate::digest::{chunk_at, of_chunk, of_file};
use crate::progress::count;
use model::{End, Extent, Kind};
use os::time::Instant;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{SourceLane, SourceObject};
use wire::limits::CHUNK_DIGESTS_MAX;
use wire::message::{AskDigests, DigestRecord, Digests};
use wire::{CloseCode, Message, Refusal};

/// Answers told in one message, and how often the thread looks whether the job still runs.
const ANSWERS_AT_ONCE: usize = 512;
const PATIENCE: Duration = Duration::from_millis(500);
/// What was answered waits so long for what is answered next.
const TOLD_WITHIN: Duration = Duration::from_millis(50);

impl SendJob {
    /// A question about an object can have been under way when that came to its end, or when a file that was sealed went on.
    fn has_crossed(&self, id: u64) -> bool {
        let book = self.book.lock().unwrap();
        book.split.is_settled(id) || book.split.object(id).is_some_and(|object| object.end == End::Growing)
    }

    /// Takes a question in; it is answered later.
    pub(super) fn ask_digests(self: &Arc<SendJob>, asked: &AskDigests) -> Result<(), Refusal> {
        self.book.lock().unwrap().split.check_runs(&asked.runs)?;
        let chunks = chunks_of(asked)?;
        let mut state = self.asked.state.lock().unwrap();
        for id in asked.runs.iter().flat_map(|run| run.ids()) {
            let object = {
                let book = self.book.lock().unwrap();
                // Those of one that is wanted are for others that are to bring it.
                let sealed = book.sealed_object(id).filter(|_| chunks.is_some());
                sealed.or_else(|| book.split.object(id).filter(|_| !book.split.is_settled(id)))
            };
            let is_fit = |object: &SourceObject| object.entry.kind == Kind::File && object.end == End::Known;
            let object = object.filter(is_fit);
            if object.is_none() && self.has_crossed(id) {
                let digests = vec![DigestRecord { object: id, digest: Vec::new() }];
                self.port.send(Message::Digests(Digests { job: self.number, digests }));
                continue;
            }
            let Some(object) = object.filter(|_| state.open.insert(id)) else {
                let text = format!("the digest of object {id} is asked for, which cannot be told, or twice");
                return Err(Refusal::new(CloseCode::WrongState, &text));
            };
            let count = object.entry.size_bytes().div_ceil(self.options.chunk_bytes);
            if chunks.as_ref().is_some_and(|chunks| chunks.end > count) {
                return Err(Refusal::new(CloseCode::Malformed, "digests of chunks that an object does not have"));
            }
            state.queue.push_back(Question { object, chunks: chunks.clone() });
        }
        if !std::mem::replace(&mut state.is_started, true) {
            crate::job::spawn(self, "digests", run, SendJob::cancel);
        }
        self.asked.arrived.notify_one();
        Ok(())
    }
}

fn run(job: &Arc<SendJob>) {
    let mut lane = job.source.lane();
    let (mut answers, mut told) = (Vec::new(), Instant::now());
    while !job.end.is_set() && !job.is_complete() {
        let mut state = job.asked.state.lock().unwrap();
        let Some(Question { object, chunks }) = state.queue.pop_front() else {
            if answers.is_empty() {
                drop(job.asked.arrived.wait_timeout(state, PATIENCE).unwrap());
            } else {
                drop(state);
                tell(job, &mut answers);
            }
            continue;
        };
        drop(state);
        let digest = digest_of(job, &mut *lane, &object, chunks).unwrap_or_default();
        answers.push(DigestRecord { object: object.entry.id.0, digest });
        let is_enough = answers.len() >= ANSWERS_AT_ONCE || object.entry.size_bytes() > (1 << 20);
        if is_enough || told.elapsed() >= TOLD_WITHIN {
            tell(job, &mut answers);
            told = Instant::now();
        }
    }
}

fn tell(job: &SendJob, answers: &mut Vec<DigestRecord>) {
    let mut state = job.asked.state.lock().unwrap();
    answers.iter().for_each(|answer| _ = state.open.remove(&answer.object));
    drop(state);
    job.port.send(Message::Digests(Digests { job: job.number, digests: std::mem::take(answers) }));
}

/// The chunks that are asked for, if not whole objects.
fn chunks_of(asked: &AskDigests) -> Result<Option<Range<u64>>, Refusal> {
    let malformed = || Refusal::new(CloseCode::Malformed, "digests of chunks of several objects, or of too many");
    if asked.chunk_count == 0 {
        return Ok(None);
    }
    let end = asked.chunk_first.checked_add(asked.chunk_count.into()).ok_or_else(malformed)?;
    let is_of_one = matches!(asked.runs[..], [run] if run.count == 1);
    let is_fit = is_of_one && asked.chunk_count <= CHUNK_DIGESTS_MAX;
    is_fit.then_some(Some(asked.chunk_first..end)).ok_or_else(malformed)
}

/// `None` when it cannot be read, or is not what was described any more: its content then tells why.
fn digest_of(
    job: &SendJob,
    lane: &mut dyn SourceLane,
    object: &SourceObject,
    chunks: Option<Range<u64>>,
) -> Option<Vec<u8>> {
    // What grew may have another name by now.
    let held = job.book.lock().unwrap().files.get(&object.entry.id.0).cloned();
    let file = held.map_or_else(|| lane.open(object), Ok).ok()?;
    let goes_on = || {
        count(&job.progress.blocks_compared, 1);
        !job.end.is_set()
    };
    let (size, algorithm) = (object.entry.size_bytes(), job.options.digest);
    let told = match chunks {
        None => of_file(&*file, size, algorithm, &goes_on).ok()??.to_bytes(),
        Some(chunks) => {
            let mut told = Vec::with_capacity(algorithm.digest_bytes() * (chunks.end - chunks.start) as usize);
            for chunk in chunks {
                let extent = chunk_at(chunk, job.options.chunk_bytes, size);
                if extent == Extent::new(0, size) {
                    told.extend_from_slice(&of_file(&*file, size, algorithm, &goes_on).ok()??.to_bytes());
                    continue;
                }
                let digest = of_chunk(&*file, extent, algorithm, &mut |_, _| Ok(goes_on())).ok()??;
                told.extend_from_slice(&digest.to_bytes());
            }
            told
        }
    };
    (file.generation().ok()? == object.entry.generation).then_some(told)
}
