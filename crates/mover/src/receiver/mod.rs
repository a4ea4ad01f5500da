//! The receiving half of a job: decides what it wants, lanes that verify and write it, one place that settles.
//!
//! In reading order:
//! - `needs`: the job, held against what its destination can do
//! - `asked`: its sender, held against what was asked of it
//! - `events`: what waits for the thread that decides
//! - `decide`: answers the listing, with `intake` and `deciding`
//! - `naming`: what a described object is to be called
//! - `answer`: what was decided of a batch
//! - `charge`: what a listing makes its receiver hold
//! - `room`: what it takes on storage
//! - `receive`: reads a lane's stream
//! - `lane`: does with its content what is to be done
//! - `verify`: judges what arrived
//! - `large`: large objects
//! - `gather`: several holders that bring the same objects
//! - `queue`: what waits to become durable
//! - `commit`: publishes it
//! - `seal`: compares what grew before it is published
//! - `settle`: says what came to its end; `sealed_list` says it to programs at the destination
//! - `retry`: what is asked for again
//! - `hold`: what waits in a buffer for slow storage; `buffered` tells the sender of it
//! - `replay`: carries that on without a sender
//! - `links`: gives files their other names
//! - `finish`: the end of a job
//! - `resume`: keeps what an interrupted attempt verified; `recut` has it in chunks of another length
//!
//! Invariants:
//! - Nothing is published that was not verified whole (I9), and nothing is settled as published before it is visible and
//!   as durable as the user asked (I2, I7).
//! - The receiver is the authority for what has arrived; whatever a sender sends twice is dropped.

mod asked;
mod gather;
mod charge;
mod table;
mod listed;
mod tell;
mod naming;
mod needs;
mod policy;
mod events;
mod answer;
mod decide;
mod intake;
mod deciding;
mod room;
mod delta;
mod compare;
mod census;
mod surplus;
mod prune;
mod links;
mod finish;
mod aside;
mod keep;
mod receive;
mod drain;
mod lane;
mod verify;
mod hold;
mod buffered;
mod replay;
mod large;
mod queue;
mod commit;
mod settling;
mod seal;
mod settle;
mod sealed_list;
mod complete;
mod retry;
mod tries;
mod seated;
mod recut;
mod resume;
mod start;
/// What only a sender says that follows its source.
fn is_of_followed(described: &Described) -> bool {
    matches!(described, Described::Entry { end, replaces, .. } if *end == ObjectEnd::Growing || replaces.is_some())
}

#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod headway_tests;
#[cfg(test)]
mod zeros;

pub use asked::Asked;
pub use buffered::BUFFERED;
pub(crate) use buffered::wait_until;
pub(crate) use gather::LEAD;
pub use gather::{Gather, Proofs, Tally};
pub(crate) use hold::Hold;
pub(crate) use lane::{LocalLane, PackedFile};
pub use receive::run_lane;
pub(crate) use replay::{Came, Deaf, Opening, job_of, owner_of, replay};

use crate::job::{End, Ending, Observer, Port, bounded_path, cancelled};
use crate::limits::{DELTAS_OPEN_MAX, INITIAL_ENTRIES};
use crate::memory::{Memory, Permit};
use crate::progress::Progress;
use crate::stall::Headway;
use census::Census;
use events::{Decider, Event};
use model::fidelity::Warning;
use model::options::{Fsync, is_congestion_name};
use model::{Change, End as ObjectEnd, Entry, JobId, Name, Pin, TransferOptions};
use os::sync::Mutex;
use queue::Committer;
use std::collections::HashSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};
use store::{Durability, Engines, Footing, Sink, SinkFacts};
pub(crate) use surplus::Surplus;
use table::Table;
use tries::Tries;
use wire::fidelity::{check_names, warnings_from_wire, warnings_to_wire};
use wire::limits::{CHANGES_TOLD, OWNERS_MAX};
use wire::listing::{Described, ListingCheck};
use wire::message::{Cancel, ChangeRecord, Changes, Finished, Names, Times};
use wire::{CloseCode, Message, Refusal, bounded};

/// Waits until what earlier attempts left is in its place.
type Older = Box<dyn Fn(&End) + Send + Sync>;

/// Looks at the source of an entry.
pub(crate) type FootingOf = Box<dyn Fn(&Entry) -> Option<Footing> + Send + Sync>;

const NOT_SETTLED: &str = "a job that is to be finished before everything in it is settled";

pub struct ReceiveJob {
    /// Number of the job in its session.
    pub number: u32,
    pub id: JobId,
    pub sender: Pin,
    pub options: TransferOptions,
    pub sink: Arc<dyn Sink>,
    port: Arc<dyn Port>,
    pub progress: Arc<Progress>,
    observer: Option<Arc<dyn Observer>>,
    durability: Durability,
    table: Mutex<Table>,
    listing: Mutex<ListingCheck>,
    /// What the sender was asked for by name; nothing where the sender decides what it sends.
    asked: OnceLock<Mutex<Asked>>,
    decider: Decider,
    committer: Committer,
    pub(crate) facts: SinkFacts,
    /// The engine that large objects were written with, if it was not the plain one.
    engine_used: OnceLock<&'static str>,
    is_probed: AtomicBool,
    tries: Mutex<Tries>,
    /// Entries settled in all, and at the last grant.
    settled: AtomicU64,
    granted_at: AtomicU64,
    /// Objects that the sender gave up and that were not looked at yet.
    failures_waiting: AtomicU64,
    is_finish_heard: AtomicBool,
    /// It was asked of an endpoint that has not said yet whether it takes it.
    is_unanswered: AtomicBool,
    /// Objects are among the described whose end is not known.
    has_open_ended: AtomicBool,
    /// Objects that grow are among them.
    has_growing: AtomicBool,
    is_followed: AtomicBool,
    /// Some of them are left to the next attempt.
    has_unfinished: AtomicBool,
    /// What files take where they lie, for a copy within one process.
    footing: OnceLock<FootingOf>,
    /// The session has the feature for digests of chunks.
    may_ask_chunks: AtomicBool,
    /// Held by each file that takes chunks over from an older one.
    delta_places: Arc<()>,
    /// Digests that the sender has been asked for and not told.
    digests_asked: AtomicU64,
    /// Users and groups that the sender has named.
    owners_told: AtomicU64,
    /// What the source has, where the rest is removed.
    census: Option<Census>,
    /// What the source does not have, where both sides were compared already.
    surplus: OnceLock<Arc<Surplus>>,
    /// Set when everything is in place, before the sender is told.
    finished: OnceLock<Finished>,
    /// What waits for slow storage, where the job may use a buffer.
    hold: OnceLock<Hold>,
    /// What earlier attempts left in the buffer goes first.
    older: OnceLock<Older>,
    /// Of a job that is carried on without its sender: the objects that are here.
    replayed: OnceLock<HashSet<u64>>,
    /// What is complete, for programs at the destination.
    sealed_list: OnceLock<sealed_list::SealedList>,
    /// The sender leaves as soon as all is buffered.
    is_left: AtomicBool,
    /// What the job is charged to, and what of it stays to the end.
    memory: OnceLock<Memory>,
    kept: Mutex<Option<Permit>>,
    /// Among the jobs of several holders.
    pub(crate) place: OnceLock<gather::Place>,
    /// The job that content goes to, where that is not this one.
    destination: OnceLock<Arc<ReceiveJob>>,
    pub end: End,
    /// Declared last, so dropped last: whoever sees it gone knows that staging is closed and its locks are free.
    presence: Arc<()>,
}

/// What a job receives under: from whom, and what its one object is to be called when its destination is a new name.
pub struct ReceiveSpec {
    pub number: u32,
    pub id: JobId,
    /// Who sends; nobody's for a copy within a host. What one sender left in staging is not continued by another.
    pub sender: Pin,
    pub options: TransferOptions,
    pub rename_to: Option<Name>,
}

impl ReceiveJob {
    /// # Errors
    /// When the destination cannot be looked at, or cannot do what the options ask for.
    pub fn new(
        spec: ReceiveSpec,
        sink: Arc<dyn Sink>,
        port: Arc<dyn Port>,
        progress: Arc<Progress>,
        observer: Option<Arc<dyn Observer>>,
    ) -> store::Result<Arc<ReceiveJob>> {
        let facts = sink.facts()?;
        needs::check(&spec.options, &facts)?;
        if let Some(slice) = &spec.options.slice {
            sink.fence(spec.id, &slice.instead_of)?;
        }
        let durability = match spec.options.fsync {
            _ if facts.is_memory_backed || spec.options.is_dry_run => Durability::None,
            _ if facts.confirms => Durability::Group,
            Fsync::Never => Durability::None,
            Fsync::File => Durability::File,
            Fsync::Batch => Durability::Group,
        };
        let mut listing = ListingCheck::new(INITIAL_ENTRIES);
        listing.allow(spec.options.fidelity);
        Ok(Arc::new(ReceiveJob {
            number: spec.number,
            id: spec.id,
            sender: spec.sender,
            census: spec.options.deletion.map(|_| Census::default()),
            surplus: OnceLock::new(),
            may_ask_chunks: AtomicBool::new(true),
            delta_places: Arc::default(),
            digests_asked: AtomicU64::new(0),
            options: spec.options,
            port,
            progress,
            observer,
            durability,
            table: Mutex::default(),
            owners_told: AtomicU64::new(0),
            listing: Mutex::new(listing),
            asked: OnceLock::new(),
            decider: Decider::new(spec.rename_to),
            committer: Committer::default(),
            facts,
            engine_used: OnceLock::new(),
            is_probed: AtomicBool::new(false),
            tries: Mutex::default(),
            settled: AtomicU64::new(0),
            granted_at: AtomicU64::new(0),
            failures_waiting: AtomicU64::new(0),
            is_finish_heard: AtomicBool::new(false),
            is_unanswered: AtomicBool::new(false),
            has_open_ended: AtomicBool::new(false),
            has_growing: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
            has_unfinished: AtomicBool::new(false),
            footing: OnceLock::new(),
            finished: OnceLock::new(),
            hold: OnceLock::new(),
            older: OnceLock::new(),
            replayed: OnceLock::new(),
            sealed_list: OnceLock::new(),
            is_left: AtomicBool::new(false),
            memory: OnceLock::new(),
            kept: Mutex::default(),
            place: OnceLock::new(),
            destination: OnceLock::new(),
            end: End::default(),
            presence: Arc::default(),
            sink,
        }))
    }

    /// Holds the sender to what it was asked for. Before `start`.
    pub fn hold_to(&self, asked: Asked) {
        let _ = self.asked.set(Mutex::new(asked));
    }

    /// What is to be removed is not to be found out here, if it was found already. Before `start`.
    pub(crate) fn prune_by(&self, surplus: Option<Arc<Surplus>>) {
        surplus.map(|surplus| self.surplus.set(surplus));
    }

    fn census(&self) -> Option<&Census> {
        self.census.as_ref().filter(|_| self.surplus.get().is_none())
    }

    /// Tells where files that are described can be looked at. Before `start`.
    pub(crate) fn look_by(&self, footing: FootingOf) {
        let _ = self.footing.set(footing);
    }

    fn is_probed(&self) -> bool {
        self.is_probed.load(Relaxed)
    }

    /// Has the sink find out how large objects are written best. Once.
    fn probe_storage(&self) {
        if !self.is_probed.swap(true, Relaxed) {
            self.sink.probe(&self.engines());
        }
    }

    /// What engines of the sink need of this job.
    fn engines(&self) -> Engines {
        let of_memory =
            crate::engines::of(self.options.engine, self.options.depths.write, self.memory(), &self.progress);
        Engines { is_durable: self.durability != Durability::None, ..of_memory }
    }

    fn footing(&self, entry: &Entry) -> Option<Footing> {
        self.footing.get().and_then(|footing| footing(entry))
    }

    /// Gone once the job holds nothing of its destination any more.
    pub fn presence(&self) -> Weak<()> {
        Arc::downgrade(&self.presence)
    }

    /// Nothing can grow here: files are to be described once they are complete.
    pub fn takes_whole(&self) -> bool {
        !self.facts.can.growth
    }

    /// What the result says of durability.
    pub fn durable(&self) -> &'static str {
        match (self.durability, self.options.fsync) {
            (Durability::None, Fsync::Never) => "never",
            // Not "memory", where nothing could be safer: no move takes such a copy for one that may stand alone.
            (Durability::None, _) if self.facts.cannot_sync => "never",
            (Durability::None, _) => "memory",
            _ if self.facts.confirms => "store",
            (Durability::File, _) => "file",
            (Durability::Group, _) => "batch",
        }
    }

    /// Takes in what the sender says. A refusal is the peer's fault and ends the session.
    pub fn handle(self: &Arc<ReceiveJob>, message: Message) -> Result<(), Refusal> {
        let told = self.hold.get().and_then(|hold| hold.told(&message));
        match message {
            Message::Entries(batch) => {
                let described = self.listing.lock().unwrap().check(batch)?;
                self.asked.get().map_or(Ok(()), |asked| asked.lock().unwrap().check(&described))?;
                self.put_down(told);
                let ends = |d: &Described| if let Described::Entry { end, .. } = d { *end } else { ObjectEnd::Known };
                self.has_open_ended.fetch_or(described.iter().any(|d| ends(d) != ObjectEnd::Known), Relaxed);
                self.has_growing.fetch_or(described.iter().any(|d| ends(d) == ObjectEnd::Growing), Relaxed);
                self.is_followed.fetch_or(described.iter().any(is_of_followed), Relaxed);
                self.take_described(described);
            }
            Message::SourceFailures(failures) => {
                self.put_down(told);
                if let Some(place) = self.place.get().filter(|place| !place.is_lead()) {
                    place.gave_up(failures.failures.iter().map(|record| record.object).filter(|object| *object != 0));
                    return Ok(());
                }
                for record in failures.failures.into_iter().filter(|record| self.charge_failure(record)) {
                    // Dropping what is staged of an object may wait for storage.
                    match record.object != 0 || self.is_followed.load(Relaxed) {
                        true => self.take_failure(record),
                        false => self.source_failed(record),
                    }
                }
            }
            Message::ListEnd(end) => {
                self.listing.lock().unwrap().end(end.entries)?;
                self.asked.get().map_or(Ok(()), |asked| asked.lock().unwrap().end())?;
                self.put_down(told);
                self.progress.is_listing_complete.store(true, Relaxed);
            }
            Message::Digests(told) => {
                let count = told.digests.len() as u64;
                let asked = self.digests_asked.fetch_update(Relaxed, Relaxed, |asked| asked.checked_sub(count));
                if asked.is_err() {
                    return Err(Refusal::new(CloseCode::Limit, "more digests than were asked for"));
                }
                self.take_digests(told.digests);
            }
            Message::Seal(seal) => self.take_seal(seal)?,
            Message::Names(names) => {
                self.take_names(names)?;
                self.put_down(told);
            }
            Message::Warnings(told) => warnings_from_wire(&told).for_each(|warning| self.progress.warn(warning)),
            Message::Finish(finish) => {
                // Refused, it ends the session.
                self.put_down(told);
                match finish.is_buffered && self.hold.get().is_some() {
                    true => self.take_leave()?,
                    false => self.take_finish()?,
                }
            }
            Message::Times(times) => self.take_times(times),
            Message::Cancel(cancel) => {
                let refusal = Refusal::new(CloseCode::from_number(cancel.code), &cancel.text);
                self.stop(Ending::Cancelled { by_peer: true, refusal });
            }
            _ => return Err(Refusal::new(CloseCode::WrongState, "a message that a receiver does not take")),
        }
        Ok(())
    }

    fn take_times(&self, times: Times) {
        self.progress.mark_there.store(times.headway, Relaxed);
        self.progress.set_there(crate::report::times_from_wire(&times));
        *self.progress.stream_facts.lock().unwrap() = crate::report::facts_from_wire(&times, times.lanes);
        // An older sender tells none, and what is no name is nobody's.
        if is_congestion_name(&times.congestion) {
            *self.progress.congestion.lock().unwrap() = times.congestion;
        }
    }

    fn take_names(&self, names: Names) -> Result<(), Refusal> {
        check_names(&names)?;
        let told = (names.users.len() + names.groups.len()) as u64;
        let told = self.owners_told.fetch_add(told, Relaxed) + told;
        let fidelity = self.options.fidelity;
        if !(fidelity.owner || fidelity.group) || told > 2 * OWNERS_MAX as u64 {
            return Err(Refusal::new(CloseCode::Limit, "names of users or groups that nobody asked for, or too many"));
        }
        self.take_owners(names);
        Ok(())
    }

    /// Notes what could not be kept of objects, and tells the sender.
    fn warn(&self, warnings: Vec<Warning>) {
        if !warnings.is_empty() {
            self.port.send(Message::Warnings(warnings_to_wire(self.number, &warnings)));
            warnings.into_iter().for_each(|warning| self.progress.warn(warning));
        }
    }

    /// The sender says that everything is settled. It is believed once, after the whole listing, and when nothing of what was
    /// decided is open; what was described and not decided yet is looked at by the decider, which takes things in order.
    fn take_finish(&self) -> Result<(), Refusal> {
        // What was given up waits with the descriptions, and is looked at before this.
        let waits = self.is_followed.load(Relaxed) || self.failures_waiting.load(Acquire) > 0;
        let is_open = !waits && !self.table.lock().unwrap().is_empty();
        if !self.progress.is_listing_complete.load(Relaxed) || is_open {
            return Err(Refusal::new(CloseCode::WrongState, NOT_SETTLED));
        }
        if self.is_finish_heard.swap(true, Relaxed) {
            return Err(Refusal::new(CloseCode::WrongState, "a job that is finished twice"));
        }
        self.decider.push(Event::Finish);
        Ok(())
    }

    /// Whether an endpoint that was asked for this still owes its answer.
    pub(crate) fn owes_answer(&self, is_owed: bool) {
        self.is_unanswered.store(is_owed, Relaxed);
    }

    /// The session lacks the feature for objects whose end is not known.
    pub(crate) fn forbid_open_ended(&self) {
        self.listing.lock().unwrap().forbid_open_ended();
    }

    /// The session lacks the feature for objects that grow.
    pub(crate) fn forbid_growing(&self) {
        self.listing.lock().unwrap().forbid_growing();
    }

    /// The session lacks the feature for digests of chunks: everything travels whole.
    pub(crate) fn forbid_chunk_digests(&self) {
        self.may_ask_chunks.store(false, Relaxed);
    }

    /// What other holders bring into this job is compared with what its sender tells.
    pub(crate) fn is_lead(&self) -> bool {
        self.place.get().is_some_and(gather::Place::is_lead)
    }

    /// As many files take chunks over as may at once.
    fn is_full_of_deltas(&self) -> bool {
        Arc::strong_count(&self.delta_places) > DELTAS_OPEN_MAX
    }

    /// Not at a store to which files go in requests: the old object would come here, to be sent back to it.
    pub(crate) fn compares_chunks(&self) -> bool {
        self.options.is_delta && !self.facts.confirms && self.may_ask_chunks.load(Relaxed)
    }

    /// Whoever was asked for a listing owes the rest of it: everything that it described is decided and settled.
    pub(crate) fn is_listing_owed(&self) -> bool {
        let is_waited_for = self.asked.get().is_some() && !self.is_unanswered.load(Relaxed);
        let is_listed = self.progress.is_listing_complete.load(Relaxed);
        is_waited_for && !is_listed && self.decider.is_idle() && self.table.lock().unwrap().is_empty()
    }

    /// How far the job has come, and whether it is for the sender to get on: with its answer, with the listing, with a frame it has
    /// begun, with what is wanted, or with the last word. A pipe may rest as long as no frame of it has begun.
    pub(crate) fn headway(&self) -> Headway {
        let is_in_frame = self.progress.lanes.in_frame.load(Relaxed) > 0;
        let is_wanted = !self.has_open_ended.load(Relaxed) && !self.table.lock().unwrap().is_empty();
        let is_listed = self.progress.is_listing_complete.load(Relaxed);
        let is_last_word_owed = is_listed && self.table.lock().unwrap().is_empty();
        // What waits here for storage is not the sender's to bring.
        let is_draining = self.hold.get().is_some_and(|hold| hold.waiting_bytes() > 0);
        // What several bring is looked after in their book.
        let is_beside = self.place.get().is_some_and(|place| !place.is_lead());
        let is_owed = self.is_unanswered.load(Relaxed)
            || !is_beside && (is_in_frame || is_wanted && !is_draining || is_last_word_owed || self.is_listing_owed());
        Headway { mark: self.progress.headway(), is_owed: is_owed && !self.is_finish_heard.load(Relaxed) }
    }

    /// Ends the job here: threads stop, what is staged and verified of large objects is kept for the next attempt.
    pub fn stop(&self, ending: Ending) {
        let finished = self.finished.get().cloned().map(Ending::Finished);
        self.end.set(finished.unwrap_or(ending));
        self.surplus.get().into_iter().for_each(|surplus| surplus.end());
        self.sink.interrupt();
        self.decider.wake();
        self.committer.wake();
    }

    /// No lane is left: objects of which a later attempt could use nothing leave staging, which can go then.
    pub(crate) fn forget_objects(&self) {
        let _objects = self.table.lock().map(|mut table| std::mem::take(&mut *table));
    }

    /// Gives the job up and tells the sender.
    pub fn cancel(&self, code: CloseCode, text: &str) {
        if self.finished.get().is_none() && self.end.set(cancelled(code, text)) {
            let text = bounded(text).to_owned();
            self.port.send(Message::Cancel(Cancel { job: self.number, code: code as u32, text }));
            self.sink.interrupt();
        }
        self.decider.wake();
        self.committer.wake();
    }

    /// Tells of changes: the observer that asked for it, or the sender's.
    fn tell_changes(&self, changes: Vec<Change>) {
        if changes.is_empty() || !self.options.tells_changes {
            return;
        }
        if let Some(observer) = self.observer.as_ref().filter(|observer| observer.wants_changes()) {
            return observer.changed(&changes);
        }
        for changes in changes.chunks(CHANGES_TOLD) {
            let record = |change: &Change| ChangeRecord {
                path: bounded_path(&change.path),
                subject: change.subject as u32,
                causes: change.causes,
            };
            self.port.make_room();
            let changes = changes.iter().map(record).collect();
            self.port.send(Message::Changes(Changes { job: self.number, changes }));
        }
    }

    /// Where this side's time went, for the sender.
    pub fn tell_times(&self) {
        let (mark, times, facts) = (self.progress.mark(), self.progress.here(), Default::default());
        self.port.send(Message::Times(crate::report::times_to_wire(self.number, mark, &times, &facts, "")));
    }
}

impl Drop for ReceiveJob {
    fn drop(&mut self) {
        self.forget_objects();
        self.sink.close();
    }
}
