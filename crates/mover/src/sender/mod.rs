//! The sending half of a job: one listing, one book of what is to be sent, lanes that work it off.
//!
//! `scan` describes, `split` decides what goes next, `send` is a lane.
//!
//! Invariants:
//! - listed = done + skipped + failed + pending at every moment (I6): an object is counted where it is settled, once.
//! - A file that changed while it was read is described again under a new id, a few times, or reported as changed (I8). Where the
//!   source is followed, the thread that follows it does so (`follow::changed`).

mod ahead;
mod claim;
mod allowance;
mod guard;
mod guarded;
mod lanes;
mod scanning;
mod scan;
mod follow;
mod lag;
pub mod split;
mod states;
pub mod work;
mod large;
mod next_chunk;
mod send;
mod read_ahead;
mod questions;
mod reading;
mod digests;
mod start;
mod kept;
mod working;
mod whole;

pub use crate::stream::LaneEnd;
pub use send::run_lane;
pub(crate) use send::{digest_small, judge_read, read_fragment, read_small};
pub use working::Said;

use self::ahead::{Ahead, Ready};
use crate::compression::Choice;
use crate::job::{Delivered, End, Ending, Followed, Observer, Port, bounded_path, cancelled};
use crate::limits::{INITIAL_ENTRIES, INITIAL_IN_FLIGHT_BYTES, TRIES_MAX};
use crate::memory::Memory;
use crate::pace::{By, Pace};
use crate::progress::{Progress, count};
use crate::stall::Headway;
use model::change::Subject;
use model::fidelity::Warning;
use model::mutant;
use model::options::Wait;
use model::quantity::RATE_MIN;
use model::{Change, Digest, End as ObjectEnd, Entry, Failure, FailureKind, ObjectId, TransferOptions};
use os::sync::{Condvar, Mutex};
use os::time::Instant;
use split::{Ids, Split};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{Order, Source, SourceFile, SourceObject};
use wire::fidelity::{warnings_from_wire, warnings_to_wire};
use wire::limits::{DIRECTORIES_MAX, OTHER_NAMES_MAX};
use wire::listing::{REPLACEMENT_FIRST, record_of};
use wire::message::{Cancel, Entries, FailureRecord, Finish, Settled, SourceFailures, failures_that_fit};
use wire::{CloseCode, Message, Refusal, bounded};
use work::Batch;

const REACHED: &str = "as much was sent as one run may send";

/// How long a waiting lane sleeps before it looks whether the job still runs.
const CLAIM_PATIENCE: Duration = Duration::from_millis(500);

pub struct SendJob {
    /// Number of the job in its session.
    pub number: u32,
    pub options: TransferOptions,
    source: Arc<dyn Source>,
    port: Arc<dyn Port>,
    pub progress: Arc<Progress>,
    observer: Option<Arc<dyn Observer>>,
    book: Mutex<Book>,
    /// Held while a replacement is described: the receiver hears of them in the order of their ids. Taken before the
    /// book, never by the control loop.
    replacing: Mutex<()>,
    work: Condvar,
    asked: questions::Asked,
    lanes: lanes::Lanes,
    working: working::Working,
    scanning: scanning::Scanning,
    /// What all lanes together may send.
    pub pace: Pace,
    /// How strong the lanes compress.
    pub(crate) compression: Choice,
    /// Where content waits that is read ahead.
    ahead: OnceLock<Ahead>,
    /// The receiver takes files that are followed only once they are complete.
    takes_whole: OnceLock<bool>,
    /// The receiver's user set how far the job may go.
    is_bound_there: AtomicBool,
    memory: OnceLock<Memory>,
    pub end: End,
}

/// Everything that changes, under one lock that is held for the time of a lookup, once for each pack or chunk.
struct Book {
    split: Split,
    /// Large objects that are being read, and what cannot be opened a second time, until it is settled.
    files: HashMap<u64, Arc<dyn SourceFile>>,
    /// Digests of what was read: of small objects whole, of large ones by chunk. Kept only for an observer.
    digests: HashMap<u64, BTreeMap<u64, Digest>>,
    /// How often an object (by its newest id) was described again.
    tries: HashMap<u64, u32>,
    /// What objects turned out to be long whose end was not known.
    final_bytes: HashMap<u64, u64>,
    /// Objects that grew and were sealed, as they are now.
    sealed: HashMap<u64, Entry>,
    /// When objects that grow failed at the destination.
    failed: HashMap<u64, Instant>,
    /// Objects that changed while they were read, and when they are to be described again; nothing where no thread follows the source.
    changed: Option<BTreeMap<u64, Instant>>,
    lags: lag::Lags,
    guard: guard::Guard,
    /// Frames that were read ahead, in their order.
    ready: VecDeque<Ready>,
    next_replacement: u64,
    /// Calls that have settled objects and not yet told the receiver, the counters or the observer: `Finish` may not overtake them.
    untold: u32,
    is_finish_sent: bool,
}

impl Book {
    /// Forgets an object that came to its end without being published; its file is returned, because closing it may wait.
    fn ended(&mut self, id: u64) -> Option<Arc<dyn SourceFile>> {
        self.sealed.remove(&id);
        self.final_bytes.remove(&id);
        self.digests.remove(&id);
        self.files.remove(&id)
    }
}

impl SendJob {
    pub fn new(
        number: u32,
        options: TransferOptions,
        source: Arc<dyn Source>,
        port: Arc<dyn Port>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
    ) -> Arc<SendJob> {
        let mut split = Split::new(options.chunk_bytes, INITIAL_ENTRIES, INITIAL_IN_FLIGHT_BYTES);
        split.allow(options.payload_bytes_max);
        let book = Book {
            split,
            files: HashMap::new(),
            digests: HashMap::new(),
            tries: HashMap::new(),
            final_bytes: HashMap::new(),
            sealed: HashMap::new(),
            failed: HashMap::new(),
            changed: None,
            lags: lag::Lags::default(),
            guard: guard::Guard::default(),
            ready: VecDeque::new(),
            next_replacement: REPLACEMENT_FIRST,
            untold: 0,
            is_finish_sent: false,
        };
        Arc::new(SendJob {
            number,
            pace: Pace::default(),
            compression: Choice::new(options.compression),
            ahead: OnceLock::new(),
            takes_whole: OnceLock::new(),
            is_bound_there: AtomicBool::new(false),
            memory: OnceLock::new(),
            options,
            source,
            port,
            progress,
            observer,
            book: Mutex::new(book),
            replacing: Mutex::new(()),
            work: Condvar::new(),
            asked: Default::default(),
            lanes: Default::default(),
            working: Default::default(),
            scanning: Default::default(),
            end: End::default(),
        })
    }

    /// The account that the job is charged to; before it starts. One of its own for whoever names none.
    pub fn charge_to(&self, memory: Memory) {
        let _ = self.memory.set(memory);
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.memory.get_or_init(Memory::default)
    }

    /// One lane's handle on the source.
    pub(crate) fn source_lane(&self) -> Box<dyn store::SourceLane> {
        let mut lane = self.source.lane();
        lane.serve(crate::engines::of(self.options.engine, self.options.depths.read, self.memory(), &self.progress));
        lane
    }

    pub fn is_sequential(&self) -> bool {
        self.source.facts().order != Order::Any
    }

    /// Takes in what the receiver says. A refusal is the peer's fault and ends the session.
    pub fn handle(self: &Arc<SendJob>, message: Message) -> Result<(), Refusal> {
        match message {
            Message::Want(want) => {
                let held_bytes = self.book.lock().unwrap().split.want(&want.runs, &want.extents)?;
                count(&self.progress.counters.bytes_resumed, held_bytes);
            }
            Message::Settled(settled) => self.settled(settled)?,
            Message::Held(held) => {
                let mut book = self.book.lock().unwrap();
                held.extents.iter().for_each(|record| book.split.held(record));
                let may_leave = self.may_leave(&book);
                if self.options.follow.is_some() {
                    book.note_arrived(held.extents.iter().map(|record| record.object));
                }
                drop(book);
                if may_leave {
                    self.finish_if_complete();
                }
            }
            Message::Resend(again) => self.resend(&again)?,
            Message::Credit(credit) => {
                self.book.lock().unwrap().split.grant(credit.entries, credit.in_flight_bytes);
            }
            Message::Pace(pace) => self.take_pace(&pace)?,
            Message::AskDigests(asked) => self.ask_digests(&asked)?,
            Message::Changes(changes) => self.changed(changes),
            Message::Warnings(told) => warnings_from_wire(&told).for_each(|warning| self.progress.warn(warning)),
            Message::Times(times) => {
                self.progress.mark_there.store(times.headway, Relaxed);
                self.progress.set_there(crate::report::times_from_wire(&times));
            }
            Message::Finished(finished) => {
                if !self.book.lock().unwrap().is_finish_sent {
                    return Err(Refusal::new(CloseCode::WrongState, "a job that is finished before it was asked to"));
                }
                self.finished(&finished);
                self.stop(Ending::Finished(crate::report::kept(finished)));
            }
            Message::Cancel(cancel) => {
                let refusal = Refusal::new(CloseCode::from_number(cancel.code), &cancel.text);
                self.stop(Ending::Cancelled { by_peer: true, refusal });
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that a sender does not take")),
        }
        self.work.notify_all();
        Ok(())
    }

    /// Ends the job here; lanes notice within their patience.
    pub fn stop(&self, ending: Ending) {
        self.end.set(ending);
        self.work.notify_all();
    }

    /// Gives the job up and tells the receiver.
    pub fn cancel(&self, code: CloseCode, text: &str) {
        if self.end.set(cancelled(code, text)) {
            let text = bounded(text).to_owned();
            self.port.send(Message::Cancel(Cancel { job: self.number, code: code as u32, text }));
        }
        self.work.notify_all();
    }

    /// The limits that the other side sets. Beside what this side's own user set, the smaller bound holds.
    fn take_pace(&self, pace: &wire::message::Pace) -> Result<(), Refusal> {
        if pace.bytes_per_second > 0 && pace.bytes_per_second < RATE_MIN {
            return Err(Refusal::new(CloseCode::Malformed, "a rate below 1 KiB a second"));
        }
        let set = |number: u64| Some(number).filter(|number| *number > 0);
        self.pace.set(By::Peer, set(pace.bytes_per_second));
        self.working.set(Said::ByReceiver, pace.streams);
        let (here, there) = (self.options.payload_bytes_max, set(pace.payload_bytes_max));
        self.is_bound_there.store(there.is_some_and(|there| here.is_none_or(|here| there < here)), Relaxed);
        self.book.lock().unwrap().split.allow(here.into_iter().chain(there).min());
        Ok(())
    }

    /// As much was sent as may be, and the receiver has all of it.
    fn spent(&self) {
        // Whoever set the bound is told that it was reached, the other side just that the job was stopped.
        let code = if self.is_bound_there.load(Relaxed) { CloseCode::Reached } else { CloseCode::Cancelled };
        if self.end.set(cancelled(CloseCode::Reached, REACHED)) {
            self.port.send(Message::Cancel(Cancel { job: self.number, code: code as u32, text: REACHED.to_owned() }));
        }
        self.work.notify_all();
    }

    fn settled(&self, settled: Settled) -> Result<(), Refusal> {
        let counters = &self.progress.counters;
        let mut delivered = Vec::new();
        let mut failures = Vec::new();
        let mut sealed = Vec::new();
        let mut closed = Vec::new();
        let [mut published, mut skipped] = [&settled.published, &settled.skipped].map(|runs| Ids::of(runs));
        let wants_delivered = self.observer.as_ref().is_some_and(|o| o.wants_delivered());
        let digests =
            settled.digests.iter().filter(|_| wants_delivered).map(|record| (record.object, &record.digest[..]));
        let digests: HashMap<_, _> = digests.collect();
        let mut book = self.book.lock().unwrap();
        book.split.check_runs(settled.published.iter().chain(&settled.skipped))?;
        book.split.buffered(&settled.buffered)?;
        while let Some((id, batch, index)) = book.split.settle_first(&mut published) {
            let object = &batch.objects[index];
            let size_bytes = book.final_bytes.remove(&id).unwrap_or(object.entry.size_bytes());
            count(&counters.files_done, 1);
            count(&counters.bytes_done, size_bytes);
            closed.extend(book.files.remove(&id));
            // It may have got another name when it was complete.
            let named = book.sealed.remove(&id).map(|entry| SourceObject { entry, ..object.clone() });
            if let Some(object) = &named {
                book.lags.arrived(id, u64::MAX, Instant::now());
                sealed.push(Followed::Sealed { path: self.source.path(object), size_bytes });
            } else if self.is_sent_whole(object) {
                sealed.push(Followed::Sealed { path: self.source.path(object), size_bytes });
            }
            if wants_delivered && let Some(digest) = self.digest_of(&mut book, object, &digests) {
                let path = self.source.path(named.as_ref().unwrap_or(object));
                delivered.push(Delivered { path, size_bytes, digest });
            }
        }
        while let Some((id, batch, index)) = book.split.settle_first(&mut skipped) {
            count(&counters.files_skipped, 1);
            count(&counters.bytes_skipped, batch.objects[index].entry.size_bytes());
            closed.extend(book.ended(id));
            book.lags.forget(id);
        }
        for record in settled.failed {
            if let Some((batch, index)) = book.split.settle(record.object) {
                closed.extend(book.ended(record.object));
                if batch.objects[index].is_growing() {
                    book.failed.insert(record.object, Instant::now());
                }
                failures.push(self.failure_of(&batch.objects[index], record));
            }
        }
        // Another thread may settle the last object meanwhile: the job must not end before these are counted and told.
        book.untold += 1;
        drop(book);
        // It may wait for storage.
        drop(closed);
        failures.into_iter().for_each(|failure| self.failed(failure));
        if let Some(observer) = &self.observer {
            if !delivered.is_empty() {
                observer.delivered(&delivered);
            }
            sealed.iter().for_each(|event| observer.followed(event));
        }
        self.book.lock().unwrap().untold -= 1;
        self.finish_if_complete();
        Ok(())
    }

    /// The digest of a delivered object from what its lanes read; where an earlier attempt moved a part, from the receiver.
    fn digest_of(&self, book: &mut Book, object: &SourceObject, told: &HashMap<u64, &[u8]>) -> Option<Digest> {
        let id = object.entry.id.0;
        let size = object.entry.size_bytes();
        let chunks: Vec<Digest> = book.digests.remove(&id).unwrap_or_default().into_values().collect();
        if object.end == ObjectEnd::Known && chunks.len() as u64 == size.div_ceil(self.options.chunk_bytes).max(1) {
            return Some(self.options.digest.combine(&chunks, self.options.chunk_bytes, size));
        }
        self.options.digest.digest_from_bytes(told.get(&id)?)
    }

    fn failure_of(&self, object: &SourceObject, record: FailureRecord) -> Failure {
        Failure {
            path: self.source.path(object),
            kind: FailureKind::from_number(record.kind),
            message: model::name::Escaped(bounded(&record.text).as_bytes()).to_string(),
        }
    }

    /// Notes what could not be read besides content, and tells the receiver.
    fn warn(&self, warnings: Vec<Warning>) {
        if !warnings.is_empty() {
            self.port.send(Message::Warnings(warnings_to_wire(self.number, &warnings)));
            warnings.into_iter().for_each(|warning| self.progress.warn(warning));
        }
    }

    /// Directories whose attributes could not be set are failures too. Other names of files are counted now: they are made
    /// when all files are there.
    fn finished(&self, finished: &wire::message::Finished) {
        let counters = &self.progress.counters;
        let [made, there] = [finished.linked, finished.linked_before].map(|names| names.min(OTHER_NAMES_MAX as u64));
        count(&counters.files_listed, made + there);
        count(&counters.files_done, made);
        count(&counters.files_skipped, there);
        for record in &finished.failures {
            let kind = FailureKind::from_number(record.kind);
            let message = model::name::Escaped(bounded(&record.text).as_bytes()).to_string();
            count(&self.progress.counters.files_listed, 1);
            self.failed(Failure { path: bounded_path(&record.path), kind, message });
        }
        self.untold(finished.failures_untold);
    }

    /// Failures for which the receiver's last message had no room.
    fn untold(&self, count_there: u64) {
        if count_there == 0 {
            return;
        }
        // As many as can be: objects that a failure in the end is of were described.
        let untold = count_there.min((DIRECTORIES_MAX + OTHER_NAMES_MAX) as u64);
        count(&self.progress.counters.files_listed, untold);
        count(&self.progress.counters.files_failed, untold - 1);
        let message =
            format!("{untold} more directories or names failed like those above; they did not fit in the message");
        self.failed(Failure { path: Vec::new(), kind: FailureKind::Other, message });
    }

    /// What the receiver changes, for whoever asked to see it.
    fn changed(&self, changes: wire::message::Changes) {
        let Some(observer) = self.observer.as_ref().filter(|observer| observer.wants_changes()) else { return };
        let change = |record: wire::message::ChangeRecord| Change {
            path: bounded_path(&record.path),
            subject: Subject::from_number(record.subject),
            causes: record.causes,
        };
        observer.changed(&changes.changes.into_iter().map(change).collect::<Vec<_>>());
    }

    fn failed(&self, failure: Failure) {
        let counter = match failure.kind {
            FailureKind::Special => &self.progress.counters.files_skipped,
            _ => &self.progress.counters.files_failed,
        };
        count(counter, 1);
        if let Some(observer) = &self.observer {
            observer.failed(&failure);
        }
    }

    /// Settles an object that failed at the source, and tells the receiver why.
    pub(crate) fn source_failed(&self, object: &SourceObject, kind: FailureKind, message: String) {
        let id = object.entry.id.0;
        let mut book = self.book.lock().unwrap();
        let closed = book.ended(id);
        book.lags.forget(id);
        let settled = book.split.settle(id).is_some();
        book.untold += u32::from(settled);
        drop(book);
        drop(closed);
        if settled {
            let failure = Failure { path: self.source.path(object), kind, message };
            self.tell_failures(vec![(id, failure)]);
            self.book.lock().unwrap().untold -= 1;
            self.finish_if_complete();
        }
    }

    pub(crate) fn tell_failures(&self, failures: Vec<(u64, Failure)>) {
        let record = |(object, failure): &(u64, Failure)| FailureRecord {
            object: *object,
            path: bounded_path(&failure.path),
            kind: failure.kind as u32,
            text: bounded(&failure.message).to_owned(),
        };
        let mut records: Vec<_> = failures.iter().map(record).collect();
        while !records.is_empty() {
            let failures = records.drain(..failures_that_fit(&records)).collect();
            self.port.send(Message::SourceFailures(SourceFailures { job: self.number, failures }));
        }
        failures.into_iter().for_each(|(_, failure)| self.failed(failure));
    }

    /// An object that was empty when it was listed is not any more.
    pub(crate) fn was_filled(&self, object: &SourceObject) -> bool {
        let is_empty = object.entry.size_bytes() == 0;
        is_empty && self.source.look_again(object).is_ok_and(|now| now.entry.size_bytes() > 0)
    }

    /// The source of an object changed under its reader: the object is described again, or given up.
    pub(crate) fn source_changed(&self, object: &SourceObject) {
        if !self.leave_to_follower(object.entry.id.0) {
            self.describe_changed(object);
        }
    }

    fn describe_changed(&self, object: &SourceObject) {
        let id = object.entry.id.0;
        let again = self.source.look_again(object);
        let _order = self.replacing.lock().unwrap();
        let mut book = self.book.lock().unwrap();
        let tries = book.tries.remove(&id).unwrap_or(0) + 1;
        book.files.remove(&id);
        match again {
            Ok(mut again) if tries < TRIES_MAX => {
                if book.split.describable() == 0 || book.split.settle(id).is_none() {
                    drop(book);
                    return self.source_failed(
                        object,
                        FailureKind::Changed,
                        "the file changed while it was read".into(),
                    );
                }
                again.entry.id = ObjectId(book.next_replacement);
                book.next_replacement += 1;
                book.tries.insert(again.entry.id.0, tries);
                let (first, record) = (again.entry.id.0, record_of(&again.entry, again.end));
                book.split.describe(Arc::new(Batch { objects: vec![again], charge: None }));
                drop(book);
                self.port.send(Message::Entries(Entries { job: self.number, first, entries: vec![record] }));
            }
            Ok(_) => {
                drop(book);
                let message = format!("the file changed while it was read, {tries} times");
                self.source_failed(object, FailureKind::Changed, message);
            }
            Err(e) => {
                drop(book);
                self.source_failed(object, e.kind, e.message());
            }
        }
    }

    /// An object that the receiver has not answered yet.
    pub(crate) fn unanswered(&self, id: u64) -> Option<SourceObject> {
        self.book.lock().unwrap().split.unanswered_object(id)
    }

    pub(crate) fn wants_delivered(&self) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.wants_delivered())
    }

    pub(crate) fn footing(&self, object: &SourceObject) -> Option<store::Footing> {
        self.source.footing(object)
    }

    /// A lane ended without everything it sent being settled: the others send that again.
    pub fn lane_died(&self, lane: u32) {
        let mut book = self.book.lock().unwrap();
        book.split.lane_died(lane);
        book.guard.forget(lane);
        drop(book);
        self.work.notify_all();
    }

    /// The receiver has all of it, if that is all that is waited for.
    fn may_leave(&self, book: &Book) -> bool {
        self.options.wait == Wait::Buffered && book.untold == 0 && book.split.is_all_buffered()
    }

    fn finish_if_complete(&self) {
        let mut book = self.book.lock().unwrap();
        let is_complete = book.split.is_complete() && book.untold == 0;
        let is_buffered = !is_complete && self.may_leave(&book);
        if (is_complete || is_buffered || mutant::is_on("finish-early") && book.split.is_all_sent())
            && !book.is_finish_sent
        {
            book.is_finish_sent = true;
            drop(book);
            self.port.send(Message::Finish(Finish { job: self.number, is_buffered }));
            self.work.notify_all();
        }
    }

    /// Where this side's time went, for the receiver.
    pub fn tell_times(&self) {
        count(&self.progress.worked, self.scanning.got_on().into());
        let facts = *self.progress.stream_facts.lock().unwrap();
        let (mark, times) = (self.progress.mark(), self.progress.here());
        let congestion = self.progress.congestion.lock().unwrap().clone();
        self.port.send(Message::Times(crate::report::times_to_wire(self.number, mark, &times, &facts, &congestion)));
    }

    /// How far the job has come, and whether it is for the receiver to get on. A source that is read while it is written (a
    /// pipe) may rest; the bytes that a lane has claimed of it are not with the receiver yet.
    pub(crate) fn headway(&self) -> Headway {
        let book = self.book.lock().unwrap();
        let is_owed = book.is_finish_sent
            || if self.is_sequential() || self.options.follow.is_some() {
                book.split.is_answer_owed()
            } else {
                book.split.is_receiver_next()
            };
        Headway { mark: self.progress.headway(), is_owed }
    }

    /// Nothing is left to send, as far as is known now.
    pub(crate) fn is_complete(&self) -> bool {
        self.book.lock().unwrap().split.is_complete()
    }

    pub fn is_listing_complete(&self) -> bool {
        self.progress.is_listing_complete.load(Relaxed)
    }
}
