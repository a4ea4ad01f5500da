//! Describes a source that is followed: what is there, what comes, and of files that grow how far they are and when they are
//! complete. Lanes send meanwhile what there is.
//!
//! Invariants:
//! - Ids count up in the order of the descriptions. A name that was described before is described as a replacement.
//! - What marks others as complete is described after all of them are settled.
//! - A file that went on after it was settled is described again; nothing of it is lost. After a failure that waits (`again`).
//! - Under one name a file has one object at a time that is not settled, also where it changed while it was read (`changed`).
//!
//! Not here: what a file's end is (`store`), and whether the receiver has what the source has (`digests`, and `seal` there).

mod again;
mod behind;
mod changed;

use self::again::Pauses;
use super::lag::Alarms;
use super::scan::Scan;
use super::whole::Waiting;
use super::work::Batch;
use super::{Book, SendJob};
use crate::job::Followed;
use crate::progress::count;
use model::follow::{Follow, LagAlarm};
use model::progress::Behind;
use model::{End, Entry, Extent, FailureKind, Kind, Name, ObjectId, mutant};
use os::sync::MutexGuard;
use os::time::Instant;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;
use store::{Event, Found, Piece, Restart, SourceFile, SourceLane, SourceObject, Watch};
use wire::listing::record_of;
use wire::message::{Entries, EntryRecord, Resend, Seal};
use wire::{CloseCode, Message, Refusal};

/// How long a look at the source may last while something waits for it to end.
const PATIENCE: Duration = Duration::from_millis(100);
const PATIENCE_AT_THE_END: Duration = Duration::from_millis(10);
/// So many events at once are a listing.
const MANY: usize = 10_000;

pub fn run(job: &Arc<SendJob>) {
    let Some(rules) = job.options.follow.clone() else { return };
    let mut watch = match job.source.watch(&rules) {
        Ok(Some(watch)) => watch,
        Ok(None) => return job.cancel(CloseCode::Forbidden, "this kind of source cannot be followed"),
        Err(e) => return job.cancel(CloseCode::Internal, &e.to_string()),
    };
    let Some(takes_whole) = job.takes_whole() else { return };
    store::return_large_blocks();
    let mut following = Following::new(job, &rules, takes_whole);
    *job.progress.behind.lock().unwrap() = Some(Behind::default());
    while !job.end.is_set() && !following.is_at_end() {
        if let Err(e) = following.look(&mut *watch) {
            return job.cancel(CloseCode::Internal, &e.to_string());
        }
    }
    following.tell_whole();
    following.hand_back_changed();
    if !job.end.is_set() {
        following.scan.finish();
    }
}

impl Book {
    /// An object that grew and was sealed, as it is now.
    pub(super) fn sealed_object(&self, id: u64) -> Option<SourceObject> {
        let (object, entry) = (self.split.object(id)?, self.sealed.get(&id)?.clone());
        Some(SourceObject { entry, end: End::Known, ..object })
    }

    /// The receiver has more of these.
    pub(super) fn note_arrived(&mut self, ids: impl Iterator<Item = u64>) {
        let now = Instant::now();
        for id in ids {
            if let Some(end) = self.split.arrived_bytes(id) {
                self.lags.arrived(id, end, now);
            }
        }
    }

    /// Lets go of what is held for an object.
    fn forget(&mut self, id: u64) {
        self.files.remove(&id);
        self.lags.forget(id);
        self.sealed.remove(&id);
        self.failed.remove(&id);
        self.final_bytes.remove(&id);
        self.tries.remove(&id);
    }
}

impl SendJob {
    pub(super) fn resend(&self, again: &Resend) -> Result<(), Refusal> {
        let mut book = self.book.lock().unwrap();
        book.split.resend(&again.runs, &again.extents)?;
        // What is sealed was all there: its writer went back to it.
        let first = again.extents.first().and_then(|extent| book.sealed_object(extent.object));
        drop(book);
        if let (Some(object), Some(observer)) = (first, &self.observer) {
            observer.followed(&Followed::Rewritten { path: self.source.path(&object) });
        }
        Ok(())
    }

    /// The order of replacements and the book, once something may be described; nothing where that is not waited for any more. Lanes
    /// that describe something again get on meanwhile: what they send is settled, and makes room.
    fn when_describable(&self, is_over: &dyn Fn() -> bool) -> Option<(MutexGuard<'_, ()>, MutexGuard<'_, Book>)> {
        loop {
            let order = self.replacing.lock().unwrap();
            let book = self.book.lock().unwrap();
            if book.split.describable() > 0 {
                return Some((order, book));
            }
            drop(order);
            if is_over() {
                return None;
            }
            drop(self.work.wait_timeout(book, super::CLAIM_PATIENCE).unwrap());
        }
    }

    /// There was less of a file that grows than had been seen: what becomes of it is the watch's to tell.
    pub(crate) fn fell_short(&self, object: &SourceObject, extent: Extent, available_bytes: u64) {
        self.book.lock().unwrap().split.fell_short(object.entry.id.0, extent, available_bytes);
    }
}

/// A file that grows, until it is settled. Its ids are those of the wire.
struct File {
    object: SourceObject,
    available_bytes: u64,
    /// What it is, once it is complete.
    ended: Option<Box<Entry>>,
    is_sealed: bool,
    /// There is more of it than when it was sealed.
    has_gone_on: bool,
    /// It was renamed before it could be opened: what it is called in the end is described.
    is_missed: bool,
}

struct Following<'a> {
    job: &'a Arc<SendJob>,
    scan: Scan<'a>,
    lane: Box<dyn SourceLane>,
    /// Of directories, by the number that the watch gave them.
    ids: HashMap<u64, ObjectId>,
    files: BTreeMap<u64, File>,
    /// Of those, what was sealed, went on and was sealed again before it was settled: as which of the two is not told.
    sealed_twice: BTreeSet<u64>,
    pauses: Pauses,
    waiting: Waiting,
    /// Of files that rest, until they are settled: there may be very many, and the watch knows what they are.
    resting: HashMap<u64, ObjectId>,
    directories: HashMap<(ObjectId, Name), ObjectId>,
    /// Described before, by a digest of each: there may be very many, and one that is taken for another only costs a description.
    names: HashSet<u64>,
    hasher: RandomState,
    next_id: u64,
    /// Files of which something is to be told.
    changed: BTreeSet<u64>,
    markers: Vec<(SourceObject, Vec<ObjectId>)>,
    is_over: bool,
    lag_told: Instant,
    /// What a listing takes for a moment would stay for as long as the source is followed.
    has_surplus: bool,
    is_append_only: bool,
    alarm: Option<LagAlarm>,
    alarms: Alarms,
}

impl<'a> Following<'a> {
    /// From here on what changes while it is read is left to this thread.
    fn new(job: &'a Arc<SendJob>, rules: &Follow, takes_whole: bool) -> Following<'a> {
        job.book.lock().unwrap().changed = Some(BTreeMap::new());
        Following {
            job,
            scan: Scan::new(job),
            lane: job.source_lane(),
            ids: HashMap::from([(0, ObjectId::ROOT)]),
            files: BTreeMap::new(),
            sealed_twice: BTreeSet::new(),
            pauses: Pauses::default(),
            waiting: Waiting::new(takes_whole),
            resting: HashMap::new(),
            directories: HashMap::new(),
            names: HashSet::new(),
            hasher: RandomState::new(),
            next_id: 1,
            changed: BTreeSet::new(),
            markers: Vec::new(),
            is_over: false,
            lag_told: Instant::now(),
            has_surplus: false,
            is_append_only: rules.is_append_only,
            alarm: rules.alarm,
            alarms: Alarms::default(),
        }
    }

    fn look(&mut self, watch: &mut dyn Watch) -> store::Result<()> {
        let is_waiting = self.is_over || !self.markers.is_empty();
        let mut events = 0;
        watch.next(if is_waiting { PATIENCE_AT_THE_END } else { PATIENCE }, &mut |event| {
            self.take(event);
            events += 1;
        })?;
        self.pauses.due(Instant::now()).into_iter().for_each(|(number, bytes)| self.grown(number, bytes));
        self.has_surplus |= events >= MANY;
        self.scan.flush();
        self.scan.flush_failures();
        let changed = std::mem::take(&mut self.changed);
        if !changed.is_empty() {
            changed.into_iter().for_each(|number| self.tell(number));
            self.job.work.notify_all();
        }
        while let Some(failure) = self.waiting.lost() {
            let _ = self.scan.take(Found::Failed(failure));
        }
        self.look_at_changed();
        self.describe_markers();
        self.look_back();
        self.tell_lag();
        Ok(())
    }

    fn take(&mut self, event: Event) {
        let (ids, names, hasher) = (&self.ids, &self.names, &self.hasher);
        let is_sent = |object: &SourceObject| {
            let parent = ids.get(&object.entry.parent.0);
            parent.is_some_and(|parent| names.contains(&hasher.hash_one((*parent, &object.entry.name))))
        };
        let Some(event) = self.waiting.hear(self.job, event, &is_sent) else { return };
        match event {
            Event::Found(object) => self.found(object),
            Event::Marker { object, covers } => self.markers.push((object, covers)),
            Event::Failed(failure) => _ = self.scan.take(Found::Failed(failure)),
            Event::Grown { id, available_bytes } => self.grown(id.0, available_bytes),
            Event::Ended { id, entry } => self.ended(id.0, entry),
            Event::Renamed { object, before } => self.renamed(object, before),
            Event::Restarted { object, why } => self.restarted(object, why),
            Event::Gone { id } => self.gone(id.0),
            Event::Over => {
                self.is_over = true;
                // From here on each file is tried as often as in any copy.
                self.job.book.lock().unwrap().tries.clear();
                self.give_up_unfinished();
            }
        }
    }

    fn found(&mut self, mut object: SourceObject) {
        let number = object.entry.id.0;
        let Some(parent) = self.ids.get(&object.entry.parent.0) else { return };
        object.entry.parent = *parent;
        let place = (*parent, object.entry.name.clone());
        if object.entry.kind == Kind::Directory
            && let Some(id) = self.directories.get(&place)
        {
            self.ids.insert(number, *id);
            return;
        }
        let Some(held) = self.held(number, &object) else { return };
        if !self.name(place.0, &place.1) {
            return self.describe_again(number, object, held);
        }
        object.entry.id = ObjectId(self.next_id);
        self.next_id += 1;
        match object.entry.kind {
            Kind::Directory => {
                self.ids.insert(number, object.entry.id);
                self.directories.insert(place, object.entry.id);
            }
            Kind::File => self.keep(number, &object, held),
            _ => {}
        }
        self.scan.take(Found::Object(object));
    }

    /// Notes a name; false when it was known.
    fn name(&mut self, parent: ObjectId, name: &Name) -> bool {
        self.names.insert(self.hasher.hash_one((parent, name)))
    }

    /// Opens a file that grows, because it may be renamed before it is read. Nothing where that has happened: it is not described.
    fn held(&mut self, number: u64, object: &SourceObject) -> Option<Option<Arc<dyn SourceFile>>> {
        if !object.is_growing() {
            return Some(None);
        }
        let inode = object.entry.generation.version.object();
        let opened = match self.lane.open(object) {
            Err(e) if e.kind != FailureKind::NotFound => return Some(None),
            opened => opened.ok(),
        };
        let is_it = |file: &Arc<dyn SourceFile>| file.generation().is_ok_and(|now| now.version.object() == inode);
        let held = opened.filter(is_it);
        if held.is_none() {
            self.gone(number);
            self.keep(number, object, None);
            self.files.get_mut(&number)?.is_missed = true;
        }
        held.map(Some)
    }

    fn keep(&mut self, number: u64, object: &SourceObject, held: Option<Arc<dyn SourceFile>>) {
        self.pauses.tried(number);
        if !object.is_growing() {
            self.files.remove(&number);
            self.resting.insert(number, object.entry.id);
            return;
        }
        self.resting.remove(&number);
        if let Some(file) = held {
            self.job.book.lock().unwrap().files.insert(object.entry.id.0, file);
        }
        let (object, ended) = (object.clone(), None);
        let file = File { object, available_bytes: 0, ended, is_sealed: false, has_gone_on: false, is_missed: false };
        self.files.insert(number, file);
    }

    /// A name that was described before, or a file that is another one now.
    fn describe_again(&mut self, number: u64, mut object: SourceObject, held: Option<Arc<dyn SourceFile>>) {
        // In the order of their ids.
        self.scan.flush();
        let before = self.id_of(number).map(|id| id.0);
        let job = self.job;
        {
            let Some((_order, mut book)) = job.when_describable(&|| job.end.is_set()) else { return };
            let replaced = before.filter(|id| book.split.settle(*id).is_some());
            if replaced.is_none() {
                count(&job.progress.counters.files_listed, 1);
                count(&job.progress.counters.bytes_listed, object.entry.size_bytes());
            }
            before.inspect(|id| book.forget(*id));
            object.entry.id = ObjectId(book.next_replacement);
            book.next_replacement += 1;
            let first = object.entry.id.0;
            let record = EntryRecord { replaces: Some(replaced.unwrap_or(0)), ..record_of(&object.entry, object.end) };
            book.split.describe(Arc::new(Batch { objects: vec![object.clone()], charge: None }));
            drop(book);
            job.port.send(Message::Entries(Entries { job: job.number, first, entries: vec![record] }));
        }
        self.keep(number, &object, held);
    }

    fn grown(&mut self, number: u64, available_bytes: u64) {
        let Some(file) = self.files.get(&number).filter(|file| !file.is_missed) else { return };
        let id = file.object.entry.id.0;
        if self.is_settled(id) {
            let failed = self.job.book.lock().unwrap().failed.remove(&id);
            failed.inspect(|at| self.pauses.failed(number, *at));
            if self.pauses.is_over(number, available_bytes, Instant::now()) {
                return self.go_on(number, available_bytes);
            }
            // At the latest when it is complete.
            if let Some(file) = self.files.get_mut(&number) {
                file.has_gone_on = true;
            }
            return;
        }
        let Some(file) = self.files.get_mut(&number) else { return };
        file.has_gone_on |= file.ended.take().is_some();
        (file.available_bytes, file.is_sealed) = (available_bytes, false);
        self.job.book.lock().unwrap().sealed.remove(&file.object.entry.id.0);
        self.changed.insert(number);
    }

    /// A file that is settled, as it was sealed or because it failed, is followed as another object.
    fn go_on(&mut self, number: u64, available_bytes: u64) {
        let Some(file) = self.files.get_mut(&number) else { return };
        file.has_gone_on = false;
        if mutant::is_on("drop-late-writes") {
            return;
        }
        // It may have got another name when it was complete.
        let entry = file.ended.take().map_or_else(|| file.object.entry.clone(), |entry| *entry);
        let mut object = SourceObject { end: End::Growing, entry, ..file.object.clone() };
        self.say(Followed::Reopened { path: self.job.source.path(&object) });
        let Some(held) = self.held(number, &object) else { return };
        // What it was when it was sealed is at the destination, and would be skipped.
        if let Some(now) = held.as_ref().and_then(|file| file.generation().ok()) {
            object.entry.generation = now;
        }
        self.describe_again(number, object, held);
        if let Some(file) = self.files.get_mut(&number) {
            file.available_bytes = available_bytes;
        }
        self.changed.insert(number);
    }

    fn ended(&mut self, number: u64, entry: Entry) {
        let Some(file) = self.files.get(&number) else { return };
        let (id, parent) = (file.object.entry.id, file.object.entry.parent);
        let is_settled = self.is_settled(id.0);
        if file.has_gone_on && is_settled {
            // It was published as it was sealed before, while the source was looked at.
            self.go_on(number, entry.size_bytes());
            return self.ended(number, entry);
        }
        let is_renamed = file.ended.as_deref().unwrap_or(&file.object.entry).name != entry.name;
        let is_over = file.is_missed || is_settled;
        if is_over && (is_renamed || file.is_missed) {
            // The old name stays, as in any copy.
            self.moved(number, &entry);
            let (directory, parent) = (file.object.directory, self.number_of(parent));
            self.let_go(number);
            let entry = Entry { id: ObjectId(number), parent, ..entry };
            return self.found(SourceObject { entry, directory, end: End::Known });
        }
        if is_over {
            return;
        }
        let entry = Entry { id, parent, ..entry };
        if is_renamed {
            self.moved(number, &entry);
        }
        self.name(parent, &entry.name);
        let Some(file) = self.files.get_mut(&number) else { return };
        (file.available_bytes, file.ended, file.is_sealed) = (entry.size_bytes(), Some(Box::new(entry)), false);
        file.has_gone_on.then(|| self.sealed_twice.insert(number));
        self.changed.insert(number);
    }

    /// What was settled as either of two seals is described once more; the receiver skips what it has.
    fn look_back(&mut self) {
        let mut settled = Vec::new();
        self.sealed_twice.retain(|number| {
            let file = self.files.get(number).filter(|file| file.has_gone_on && !file.is_missed);
            let Some((file, entry)) = file.and_then(|file| Some((file, file.ended.clone()?))) else { return false };
            let is_settled = self.job.book.lock().unwrap().split.is_settled(file.object.entry.id.0);
            is_settled.then(|| settled.push((*number, *entry)));
            !is_settled
        });
        settled.into_iter().for_each(|(number, entry)| self.ended(number, entry));
    }

    /// A complete file has another name. The old one stays, as in any copy, unless the file is not settled yet.
    fn renamed(&mut self, object: SourceObject, before: Name) {
        let number = object.entry.id.0;
        if self.is_open(number) {
            return self.ended(number, object.entry);
        }
        let (to, named) = (self.job.source.path(&object), Entry { name: before, ..object.entry.clone() });
        let path = self.job.source.path(&SourceObject { entry: named, ..object.clone() });
        self.say(Followed::Moved { path, to });
        self.let_go(number);
        self.resting.remove(&number);
        self.found(object);
    }

    /// A file has another name.
    fn moved(&self, number: u64, entry: &Entry) {
        let Some(file) = self.files.get(&number).filter(|file| !file.is_missed) else { return };
        let last = file.ended.as_deref().unwrap_or(&file.object.entry);
        let path = |entry: &Entry| self.job.source.path(&SourceObject { entry: entry.clone(), ..file.object.clone() });
        self.say(Followed::Moved { path: path(last), to: path(entry) });
    }

    fn restarted(&mut self, mut object: SourceObject, why: Restart) {
        // Of one that is not settled yet, more has come.
        let goes_on = why == Restart::Reopened && self.is_open(object.entry.id.0);
        let is_dropped = why == Restart::Reopened && mutant::is_on("drop-late-writes");
        let Some(parent) = self.ids.get(&object.entry.parent.0).filter(|_| !goes_on && !is_dropped) else { return };
        object.entry.parent = *parent;
        let path = self.job.source.path(&object);
        self.say(match why {
            Restart::Reopened => Followed::Reopened { path },
            Restart::Truncated => Followed::Truncated { path },
            Restart::Replaced => Followed::Replaced { path },
        });
        let number = object.entry.id.0;
        self.name(object.entry.parent, &object.entry.name);
        let Some(held) = self.held(number, &object) else { return };
        self.describe_again(number, object, held);
    }

    fn gone(&mut self, number: u64) {
        self.resting.remove(&number);
        self.pauses.forget(number);
        let Some(file) = self.let_go(number) else { return };
        if !file.is_missed && !self.is_settled(file.object.entry.id.0) {
            self.say(Followed::Vanished { path: self.job.source.path(&file.object) });
            let why = "it was removed before it was complete".to_owned();
            self.job.source_failed(&file.object, FailureKind::NotFound, why);
        }
    }

    /// Tells lanes what there is to be read of a file, and the receiver that it is complete.
    fn tell(&mut self, number: u64) {
        let Some(file) = self.files.get_mut(&number).filter(|file| !file.is_missed) else { return };
        let id = file.object.entry.id.0;
        let available = match &file.ended {
            Some(entry) => entry.size_bytes(),
            None => without_hole(self.job, id, file.available_bytes),
        };
        let mut book = self.job.book.lock().unwrap();
        book.split.grow(id, available);
        // Once it is settled nothing more of it arrives.
        if !book.split.is_settled(id) {
            book.lags.grown(id, available, Instant::now());
        }
        // What an attempt before this one sent was there at once.
        book.note_arrived(std::iter::once(id));
        let Some(entry) = file.ended.as_deref().filter(|_| !file.is_sealed).cloned() else { return };
        file.is_sealed = true;
        book.final_bytes.insert(id, entry.size_bytes());
        book.sealed.insert(id, entry.clone());
        drop(book);
        let listed = file.object.entry.size_bytes();
        count(&self.job.progress.counters.bytes_listed, entry.size_bytes().saturating_sub(listed));
        let is_append_only = self.is_append_only;
        let seal = Seal { is_append_only, ..Seal::of(self.job.number, id, &file.object.entry, &entry) };
        self.job.port.send(Message::Seal(seal));
    }

    fn describe_markers(&mut self) {
        let markers = std::mem::take(&mut self.markers);
        for (object, covers) in markers {
            let is_open = |number: &ObjectId| {
                let is_described = self.id_of(number.0).is_some_and(|id| !self.is_settled(id.0));
                is_described || self.waiting.contains(number.0)
            };
            match covers.iter().any(is_open) && !mutant::is_on("marker-overtakes") {
                true => self.markers.push((object, covers)),
                false => self.found(object),
            }
        }
        self.scan.flush();
    }

    /// The number that the watch knows a directory by.
    fn number_of(&self, id: ObjectId) -> ObjectId {
        self.ids.iter().find(|(_, known)| **known == id).map_or(ObjectId::ROOT, |(number, _)| ObjectId(*number))
    }

    /// What a file is called on the wire, by the number that the watch gave it. One that was missed was not described.
    fn id_of(&self, number: u64) -> Option<ObjectId> {
        let file = self.files.get(&number).filter(|file| !file.is_missed);
        file.map(|file| file.object.entry.id).or_else(|| self.resting.get(&number).copied())
    }

    /// Whether a file that grew is on its way under the number that the watch gave it.
    fn is_open(&self, number: u64) -> bool {
        let file = self.files.get(&number).filter(|file| !file.is_missed);
        file.is_some_and(|file| !self.is_settled(file.object.entry.id.0))
    }

    fn is_settled(&self, id: u64) -> bool {
        self.job.book.lock().unwrap().split.is_settled(id)
    }

    fn say(&self, event: Followed) {
        if let Some(observer) = &self.job.observer {
            observer.followed(&event);
        }
    }

    /// Whatever can still end has ended.
    fn is_at_end(&self) -> bool {
        self.is_over && self.changed.is_empty() && self.markers.is_empty() && self.sealed_twice.is_empty()
    }

    /// What did not come to its end is told before what ends the job.
    fn give_up_unfinished(&mut self) {
        self.scan.flush();
        let is_open = |file: &File| !file.is_missed && file.ended.is_none();
        let why = "it was not complete when following ended";
        for file in self.files.values().filter(|file| is_open(file)) {
            self.job.source_failed(&file.object, FailureKind::Changed, why.to_owned());
        }
        let waiting = self.waiting.give_up(self.job, why);
        waiting.into_iter().for_each(|failure| _ = self.scan.take(Found::Failed(failure)));
        self.scan.flush_failures();
    }
}

/// Of what there is of a file: what lies before its first hole. What was preallocated is not written yet. Storage is asked, and nobody
/// waits for it meanwhile.
fn without_hole(job: &SendJob, id: u64, available_bytes: u64) -> u64 {
    let book = job.book.lock().unwrap();
    let (file, frontier) = (book.files.get(&id).cloned(), book.split.frontier(id));
    drop(book);
    let Some(file) = file else { return available_bytes };
    let mut at = frontier.map_or(0, |(claimed, _)| claimed);
    while at < available_bytes {
        match file.piece(Extent::new(at, available_bytes)) {
            Piece::Data(data) => at = data.end,
            Piece::Hole(_) => return at,
        }
    }
    at.min(available_bytes)
}

#[cfg(test)]
mod tests;
