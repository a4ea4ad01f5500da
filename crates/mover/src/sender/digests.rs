//! Answers a receiver that compares by digest: reads what it names, whole objects or chunks of one, on a thread of its own,
//! and tells the digests.

use super::SendJob;
use super::questions::Question;
use crate::digest::{chunk_at, of_chunk, of_file};
use crate::progress::count;
use model::{End, Extent, FailureKind, Generation, Kind};
use os::time::Instant;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use store::{SourceFile, SourceLane, SourceObject};
use wire::limits::CHUNK_DIGESTS_MAX;
use wire::message::{AskDigests, DigestRecord, Digests};
use wire::{CloseCode, Message, Refusal};

/// Answers told in one message, and how often the thread looks whether the job still runs.
const ANSWERS_AT_ONCE: usize = 512;
const PATIENCE: Duration = Duration::from_millis(500);
/// How often what was sealed is read while it gets another mode, owner or name.
const READS_MAX: u32 = 5;
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
        let Some(question) = state.queue.pop_front() else {
            if answers.is_empty() {
                drop(job.asked.arrived.wait_timeout(state, PATIENCE).unwrap());
            } else {
                drop(state);
                tell(job, &mut answers);
            }
            continue;
        };
        drop(state);
        let entry = &question.object.entry;
        let (object, is_large) = (entry.id.0, entry.size_bytes() > (1 << 20));
        answers.push(DigestRecord { object, digest: answer(job, &mut *lane, question) });
        let is_enough = answers.len() >= ANSWERS_AT_ONCE || is_large;
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

/// Nothing where an object is not what was described any more, or cannot be read: its content then tells why. What grew and was
/// sealed was sent already, and fails here.
fn answer(job: &SendJob, lane: &mut dyn SourceLane, Question { object, chunks }: Question) -> Vec<u8> {
    let (held, is_sealed) = {
        let book = job.book.lock().unwrap();
        // What grew may have another name by now.
        (book.files.get(&object.entry.id.0).cloned(), book.sealed.contains_key(&object.entry.id.0))
    };
    let file = held.map_or_else(|| lane.open(&object), Ok);
    let told = match is_sealed {
        true => file.and_then(|file| sealed_digests(job, &*file, &object, chunks)),
        false => file.and_then(|file| {
            let told = digests_of(job, &*file, &object, chunks)?;
            Ok(told.filter(|_| file.generation().is_ok_and(|now| now == object.entry.generation)))
        }),
    };
    match told {
        Ok(told) => told.unwrap_or_default(),
        // What has gone, or has another name, is told of by whoever follows it.
        Err(e) if is_sealed && e.kind != FailureKind::NotFound => {
            job.source_failed(&object, e.kind, e.message());
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
}

/// The same of what grew and was sealed. Another mode, owner or name is no other content, and whoever follows the file does not tell
/// of it: what was read while it got one is read again.
fn sealed_digests(
    job: &SendJob,
    file: &dyn SourceFile,
    object: &SourceObject,
    chunks: Option<Range<u64>>,
) -> store::Result<Option<Vec<u8>>> {
    let sealed = &object.entry.generation;
    let content = |now: &Generation| (now.size_bytes, now.modified, now.version.object());
    let mut before = file.generation()?;
    for _ in 0..READS_MAX {
        if content(&before) != content(sealed) {
            return Ok(None);
        }
        let told = digests_of(job, file, object, chunks.clone())?;
        let now = file.generation()?;
        if told.is_none() || now == before {
            return Ok(told);
        }
        before = now;
    }
    let why = "its mode, owner or links were changed each time it was compared";
    Err(store::Error::of_kind(FailureKind::Changed, "read file", b"", why))
}

/// `None` when it has another length by now, or the job is over.
fn digests_of(
    job: &SendJob,
    file: &dyn SourceFile,
    object: &SourceObject,
    chunks: Option<Range<u64>>,
) -> store::Result<Option<Vec<u8>>> {
    let goes_on = || {
        count(&job.progress.worked, 1);
        !job.end.is_set()
    };
    let (size, algorithm) = (object.entry.size_bytes(), job.options.digest);
    let Some(chunks) = chunks else {
        return Ok(of_file(file, size, algorithm, &goes_on)?.map(|digest| digest.to_bytes()));
    };
    let mut told = Vec::with_capacity(algorithm.digest_bytes() * (chunks.end - chunks.start) as usize);
    for chunk in chunks {
        let extent = chunk_at(chunk, job.options.chunk_bytes, size);
        let digest = match extent == Extent::new(0, size) {
            true => of_file(file, size, algorithm, &goes_on)?,
            false => of_chunk(file, extent, algorithm, &mut |_, _| Ok(goes_on()))?,
        };
        let Some(digest) = digest else { return Ok(None) };
        told.extend_from_slice(&digest.to_bytes());
    }
    Ok(Some(told))
}
